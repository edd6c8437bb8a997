//! What the tables say of one record of the window, as a total function.

use serde::Serialize;

use crate::message::DigestMatch;

/// A record of the window, and what the tables know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub read: Read,
    pub row: Row,
    /// Something was parked with this very content under this key.
    pub letter: Letter,
    /// It stands below the next offset of its lane: its outcome is committed.
    pub done: bool,
    /// Its time is before the purge horizon: what is not there may have been there.
    pub old: bool,
}

/// What the pipeline makes of the record today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// No route takes it, or its route passes it over.
    Skip,
    /// Its route keeps no inbox rows.
    Unrecorded,
    Message,
    /// It is to be parked.
    Faulty,
}

/// What the inbox has under the record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    None,
    /// None, but the record alone was parked: nobody could read it then, or its id could not be stored.
    Bare,
    /// The row of another message: its key is a hash.
    Foreign,
    There {
        state: State,
        /// How the content relates to the one that the row has.
        content: DigestMatch,
        /// The row was made from this very record.
        own: bool,
        /// The row's content was read in another way than the record is today.
        read_otherwise: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Success,
    /// An answer, or parked: both are FAILED.
    Failed,
    /// FAILED with a code that only parked records have.
    Parked,
    /// Set aside, or in work.
    Unfinished,
    /// The same, and whoever was to finish it is late.
    Overdue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    None,
    /// Of another content under the same key.
    Other,
    /// Of this content, as a conflict.
    Conflict,
    /// Of this content, for another reason.
    Same,
}

/// What came of the comparison. Each record has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has its outcome.
    Matched,
    /// Parked, with its dead letter.
    Parked,
    /// Another content under a known id, with its dead letter.
    Conflict,
    /// Set aside, and its time has not come.
    Waiting,
    /// It has its outcome; whether that is of this content cannot be said, for it was read in another way.
    Incomparable,
    /// At or after the next offset of its lane.
    Pending,
    Skipped,
    /// Its route keeps no inbox rows.
    Unchecked,
    /// Without an outcome, and older than what the inbox still has to know.
    Outside,
    Differs(Kind),
}

/// Kinds of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A message below the next offset of its lane has neither an inbox row nor a dead letter: lost.
    Missing,
    /// A record that cannot be applied stands below the next offset of its lane, and its dead letter is not there.
    NotParked,
    /// The inbox row has another content, and no dead letter tells of a conflict.
    DigestDiffers,
    /// Set aside or in work, and past its time.
    Stuck,
    /// Finished, and its receipt is neither on the topic nor on its way.
    NoReceipt,
    /// The receipt on the topic says something else than the inbox row, or than the same receipt elsewhere.
    ReceiptDiffers,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Missing, Self::NotParked, Self::DigestDiffers, Self::Stuck, Self::NoReceipt, Self::ReceiptDiffers];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotParked => "not_parked",
            Self::DigestDiffers => "digest_differs",
            Self::Stuck => "stuck",
            Self::NoReceipt => "no_receipt",
            Self::ReceiptDiffers => "receipt_differs",
        }
    }
}

/// | record | row | content | dead letter | verdict |
/// |---|---|---|---|---|
/// | skipped, without inbox | any | | | Skipped, Unchecked |
/// | any | overdue | any | any | Stuck |
/// | any | there | other | of this content | Conflict, or Parked |
/// | message | finished | same | any | Matched |
/// | message | parked | same | none | NotParked |
/// | faulty | failed | same | none | NotParked |
/// | any | unfinished | same | | Waiting |
/// | any | there | incomparable | | Incomparable |
/// | any | there | other, by its own record read otherwise | none of it | Incomparable |
/// | any | there | other | none of it | DigestDiffers; Pending at or after the next offset |
/// | any | bare | | any, none | Parked, NotParked |
/// | message, faulty | none | | | Missing, NotParked; Pending at or after the next offset |
///
/// Of a record from before the purge horizon nothing is said to be missing.
pub fn verdict(facts: &Facts) -> Verdict {
    match facts.read {
        Read::Skip => return Verdict::Skipped,
        Read::Unrecorded => return Verdict::Unchecked,
        Read::Message | Read::Faulty => {}
    }
    let differs = |kind| match (facts.done, facts.old) {
        (false, _) => Verdict::Pending,
        (true, true) => Verdict::Outside,
        (true, false) => Verdict::Differs(kind),
    };
    let letters = facts.letter != Letter::None;
    let (state, content, own, read_otherwise) = match facts.row {
        Row::Foreign => return differs(Kind::DigestDiffers),
        Row::Bare if letters => return Verdict::Parked,
        Row::Bare => return differs(Kind::NotParked),
        Row::None => match facts.read {
            Read::Message => return differs(Kind::Missing),
            Read::Faulty | Read::Skip | Read::Unrecorded => return differs(Kind::NotParked),
        },
        Row::There { state, content, own, read_otherwise } => (state, content, own, read_otherwise),
    };
    if state == State::Overdue {
        return Verdict::Differs(Kind::Stuck);
    }
    match content {
        DigestMatch::Incomparable => Verdict::Incomparable,
        DigestMatch::Different => match facts.letter {
            Letter::Conflict => Verdict::Conflict,
            Letter::Same => Verdict::Parked,
            Letter::None | Letter::Other if own && read_otherwise => Verdict::Incomparable,
            Letter::None | Letter::Other => differs(Kind::DigestDiffers),
        },
        DigestMatch::Same => match (state, facts.read) {
            (State::Overdue, _) => Verdict::Differs(Kind::Stuck),
            (State::Unfinished, _) => Verdict::Waiting,
            (State::Parked | State::Failed, Read::Faulty) | (State::Parked, _) if letters => Verdict::Parked,
            (State::Parked | State::Failed, Read::Faulty) | (State::Parked, _) => differs(Kind::NotParked),
            (State::Success | State::Failed, _) => Verdict::Matched,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] = [State::Success, State::Failed, State::Parked, State::Unfinished, State::Overdue];
    const LETTERS: [Letter; 4] = [Letter::None, Letter::Other, Letter::Conflict, Letter::Same];
    const CONTENTS: [DigestMatch; 3] = [DigestMatch::Same, DigestMatch::Different, DigestMatch::Incomparable];

    fn rows() -> Vec<Row> {
        let mut rows = vec![Row::None, Row::Bare, Row::Foreign];
        for state in STATES {
            for content in CONTENTS {
                for (own, read_otherwise) in [(false, false), (false, true), (true, false), (true, true)] {
                    rows.push(Row::There { state, content, own, read_otherwise });
                }
            }
        }
        rows
    }

    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for read in [Read::Skip, Read::Unrecorded, Read::Message, Read::Faulty] {
            for row in rows() {
                for letter in LETTERS {
                    for (done, old) in [(false, false), (false, true), (true, false), (true, true)] {
                        all.push(Facts { read, row, letter, done, old });
                    }
                }
            }
        }
        all
    }

    #[test]
    fn nothing_is_missing_that_is_not_due_or_too_old() {
        for facts in all() {
            let verdict = verdict(&facts);
            if let Verdict::Differs(kind) = verdict
                && kind != Kind::Stuck
            {
                assert!(facts.done && !facts.old, "{facts:?}");
            }
            let absent = facts.row == Row::None && matches!(facts.read, Read::Message | Read::Faulty);
            let told = matches!(verdict, Verdict::Differs(Kind::Missing | Kind::NotParked));
            assert!(!absent || told == (facts.done && !facts.old), "{facts:?}: {verdict:?}");
            assert!(verdict != Verdict::Differs(Kind::Missing) || facts.read == Read::Message, "{facts:?}");
        }
    }

    #[test]
    fn a_dead_letter_of_this_content_explains_every_content() {
        for facts in all().into_iter().filter(|facts| matches!(facts.letter, Letter::Conflict | Letter::Same)) {
            let differs = verdict(&facts) == Verdict::Differs(Kind::DigestDiffers);
            assert!(!differs || facts.row == Row::Foreign, "{facts:?}");
        }
    }

    #[test]
    fn the_table_holds() {
        let facts = |read, row, letter| Facts { read, row, letter, done: true, old: false };
        let row = |state, content| Row::There { state, content, own: true, read_otherwise: false };
        let (message, faulty) = (Read::Message, Read::Faulty);
        for (facts, expected) in [
            (facts(message, row(State::Success, DigestMatch::Same), Letter::None), Verdict::Matched),
            (facts(message, row(State::Failed, DigestMatch::Same), Letter::None), Verdict::Matched),
            (facts(message, row(State::Parked, DigestMatch::Same), Letter::Same), Verdict::Parked),
            (facts(message, row(State::Parked, DigestMatch::Same), Letter::None), Verdict::Differs(Kind::NotParked)),
            (facts(message, row(State::Success, DigestMatch::Different), Letter::Conflict), Verdict::Conflict),
            (
                facts(message, row(State::Success, DigestMatch::Different), Letter::Other),
                Verdict::Differs(Kind::DigestDiffers),
            ),
            (facts(message, row(State::Unfinished, DigestMatch::Same), Letter::None), Verdict::Waiting),
            (facts(message, row(State::Overdue, DigestMatch::Same), Letter::None), Verdict::Differs(Kind::Stuck)),
            (facts(message, row(State::Success, DigestMatch::Incomparable), Letter::None), Verdict::Incomparable),
            (facts(faulty, row(State::Failed, DigestMatch::Same), Letter::None), Verdict::Differs(Kind::NotParked)),
            (facts(faulty, row(State::Failed, DigestMatch::Same), Letter::Same), Verdict::Parked),
            // Redriven: its dead letter stays.
            (facts(faulty, row(State::Success, DigestMatch::Same), Letter::None), Verdict::Matched),
            (facts(faulty, Row::Bare, Letter::Same), Verdict::Parked),
            (facts(message, Row::Bare, Letter::None), Verdict::Differs(Kind::NotParked)),
            (facts(message, Row::None, Letter::None), Verdict::Differs(Kind::Missing)),
            (facts(faulty, Row::None, Letter::Same), Verdict::Differs(Kind::NotParked)),
        ] {
            assert_eq!(verdict(&facts), expected, "{facts:?}");
        }
        let otherwise =
            Row::There { state: State::Success, content: DigestMatch::Different, own: true, read_otherwise: true };
        assert_eq!(verdict(&facts(faulty, otherwise, Letter::None)), Verdict::Incomparable);
    }
}
