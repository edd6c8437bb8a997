//! What a redrive does, decided by what is known of the record, of its inbox row and of the operator's wish. Pure.

use crate::message::DigestMatch;
use crate::store::inbox::Status;

/// What the record is under today's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Message,
    /// It still cannot be read, or has no usable id.
    Faulty,
    /// No route takes it any more, or its route skips it.
    Skipped,
}

/// The inbox row of the message that the record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The route keeps none.
    Unkept,
    Absent,
    /// Its state, and how its content relates to the record's.
    There(Status, DigestMatch),
}

/// What is known of one redrive.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub read: Read,
    pub row: Row,
    /// The row is the one with which the record was parked: its id is still the same.
    pub own_row: bool,
    /// The operator put another value in the place of the record's.
    pub edited: bool,
    /// The record was parked with a message id.
    pub had_id: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Apply it as the next version of the row that failed.
    Next,
    /// Apply it and insert its row: it is new.
    First,
    /// Apply it; the guard of its table is all that there is.
    Guarded,
    /// The message was applied, or answered, under its own id before.
    Duplicate,
    /// It is tried in vain without its effect: the row's next version says so.
    Fail,
    /// It must not be tried: nothing changes.
    Refuse(Refused),
}

/// Why a redrive must not be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Skipped,
    /// The id belongs to another content, which was applied.
    Applied,
    /// The id belongs to another content, which failed and has a dead letter of its own.
    OtherFailed,
    /// The id belongs to another content that is in work.
    InWork,
    IdEdited,
}

impl Refused {
    pub fn code(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Applied => "already_applied",
            Self::OtherFailed => "conflict",
            Self::InWork => "in_work",
            Self::IdEdited => "id_edited",
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Skipped => "no route takes this record as a message now: correct the route, or discard it",
            Self::Applied => {
                "this id was applied with other content, and what is final stays: send the content under a new id, \
                 and discard this"
            }
            Self::OtherFailed => "this id came with other content, which failed: redrive or discard that one",
            Self::InWork => "a message with this id waits or is in work: come back when it has its outcome",
            Self::IdEdited => "the edited value names another message id: edit the content, not the id",
        }
    }
}

/// | read | row | own row | course |
/// |------|-----|---------|--------|
/// | skipped | any | any | refused |
/// | faulty  | any | – | fail |
/// | message, other id by the edited value | any | no | refused |
/// | message | unkept | any | guarded |
/// | message | absent | any | first |
/// | message | FAILED | yes | next, whatever its content: this is the way out of a conflict with a failure |
/// | message | FAILED, same content | no | duplicate: its own dead letter decides |
/// | message | FAILED, other content | no | refused |
/// | message | SUCCESS, same or incomparable content | any | duplicate |
/// | message | SUCCESS, other content | any | refused: what is final stays |
/// | message | WAITING or PROCESSING | any | refused |
pub fn course(facts: Facts) -> Course {
    match facts.read {
        Read::Skipped => return Course::Refuse(Refused::Skipped),
        Read::Faulty => return Course::Fail,
        Read::Message => {}
    }
    if facts.edited && facts.had_id && !facts.own_row {
        return Course::Refuse(Refused::IdEdited);
    }
    match facts.row {
        Row::Unkept => Course::Guarded,
        Row::Absent => Course::First,
        Row::There(Status::Failed, _) if facts.own_row => Course::Next,
        Row::There(Status::Failed, DigestMatch::Different) => Course::Refuse(Refused::OtherFailed),
        Row::There(Status::Success, DigestMatch::Different) => Course::Refuse(Refused::Applied),
        Row::There(Status::Failed | Status::Success, DigestMatch::Same | DigestMatch::Incomparable) => {
            Course::Duplicate
        }
        Row::There(Status::Waiting | Status::Processing, _) => Course::Refuse(Refused::InWork),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        read: Read::Message,
        row: Row::There(Status::Failed, DigestMatch::Same),
        own_row: true,
        edited: false,
        had_id: true,
    };

    #[test]
    fn the_table_holds() {
        use DigestMatch::{Different, Incomparable, Same};
        for (row, own_row, wanted) in [
            (Row::Unkept, true, Course::Guarded),
            (Row::Absent, false, Course::First),
            (Row::There(Status::Failed, Same), true, Course::Next),
            (Row::There(Status::Failed, Different), true, Course::Next),
            (Row::There(Status::Failed, Same), false, Course::Duplicate),
            (Row::There(Status::Failed, Different), false, Course::Refuse(Refused::OtherFailed)),
            (Row::There(Status::Success, Same), true, Course::Duplicate),
            (Row::There(Status::Success, Incomparable), false, Course::Duplicate),
            (Row::There(Status::Success, Different), true, Course::Refuse(Refused::Applied)),
            (Row::There(Status::Waiting, Same), true, Course::Refuse(Refused::InWork)),
            (Row::There(Status::Processing, Different), false, Course::Refuse(Refused::InWork)),
        ] {
            assert_eq!(course(Facts { row, own_row, ..FACTS }), wanted, "{row:?} {own_row}");
        }
        assert_eq!(course(Facts { read: Read::Skipped, ..FACTS }), Course::Refuse(Refused::Skipped));
        assert_eq!(course(Facts { read: Read::Faulty, ..FACTS }), Course::Fail);
    }

    #[test]
    fn an_edited_value_may_give_an_id_and_never_change_one() {
        let edited = Facts { edited: true, own_row: false, row: Row::Absent, ..FACTS };
        assert_eq!(course(edited), Course::Refuse(Refused::IdEdited));
        assert_eq!(course(Facts { had_id: false, ..edited }), Course::First);
        assert_eq!(course(Facts { own_row: true, row: FACTS.row, ..edited }), Course::Next);
    }

    #[test]
    fn what_is_final_and_good_is_never_written_over() {
        for read in [Read::Message, Read::Faulty, Read::Skipped] {
            for digest in [DigestMatch::Same, DigestMatch::Different, DigestMatch::Incomparable] {
                for own_row in [true, false] {
                    let row = Row::There(Status::Success, digest);
                    let course = course(Facts { read, row, own_row, ..FACTS });
                    assert!(!matches!(course, Course::Next | Course::First), "{read:?} {digest:?} {own_row}");
                }
            }
        }
    }
}
