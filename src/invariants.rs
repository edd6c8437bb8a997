//! The promise, as seven rules over what can be observed. Written once: models of the protocol check them in every
//! state, tests that break things check them on real tables afterwards, and assertions in the code use them where that
//! is cheap. Pure; whoever looks fills in an [`Observation`] of one pipeline at one moment, as far as it can see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};

use crate::decision::RecordOutcome;

/// What is observed of one pipeline at one moment. A part that cannot be seen stays empty and breaks no rule.
#[derive(Clone, Debug)]
pub struct Observation<K> {
    pub messages: Vec<MessageSeen<K>>,
    /// Delivered ones first, in the order of their delivery, repeats included; then pending ones.
    pub receipts: Vec<ReceiptSeen<K>>,
    pub lanes: Vec<LaneSeen>,
    pub marks: Vec<MarkSeen<K>>,
    pub tally: Option<Tally>,
    /// In the order of their commits, those of one lane together.
    pub tenures: Vec<TenureSeen>,
    pub doubts: Vec<Doubt<K>>,
}

/// One message id in one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSeen<K> {
    pub key: K,
    /// Inbox rows that bear the key, by their state.
    pub rows: Vec<RowState>,
    /// How often its effect is in the target.
    pub effects: usize,
    pub version: i64,
    /// Receipts are issued for the message at all.
    pub told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowState {
    Processing,
    /// Set aside, with or without all that is needed to finish it.
    Waiting {
        complete: bool,
    },
    /// With its effect.
    Applied,
    /// SUCCESS without an effect of its own: ignored, stale, or an effect that cannot be seen.
    Noted,
    Failed,
}

impl RowState {
    pub fn is_final(self) -> bool {
        match self {
            Self::Applied | Self::Noted | Self::Failed => true,
            Self::Processing | Self::Waiting { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReceiptState {
    Processing,
    Success,
    Failed,
    /// Another content under the key; it says nothing of the message.
    Conflict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptSeen<K> {
    /// The receipt's id; the same receipt may be seen several times.
    pub id: String,
    pub key: K,
    pub version: i64,
    pub state: ReceiptState,
    pub delivered: bool,
    /// It was issued in a state of the store that is lost: the store went back since, and cannot know of it.
    pub lost: bool,
}

/// A lane and the records that its log had, as far as the observer knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSeen {
    pub name: String,
    /// The lane row's next offset.
    pub next: i64,
    /// What the group committed to Kafka, if it is of this life of the store.
    pub committed: Option<i64>,
    /// Offsets below which an outcome is due, and whether there is one. Left out: gaps, what an operator passed over,
    /// and what was gone from the broker before it was read.
    pub records: Vec<(i64, bool)>,
}

/// A mark of the gate that would count now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkSeen<K> {
    pub key: K,
    /// The inbox has a row of this key in a final state, for the content that the mark names.
    pub proven: bool,
}

/// Records by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    pub consumed: u64,
    pub applied: u64,
    pub duplicate: u64,
    pub skipped: u64,
    pub rejected: u64,
    pub parked: u64,
    pub conflict: u64,
    pub in_flight: u64,
}

impl Tally {
    /// Of records whose outcomes are all known.
    pub fn of(consumed: usize, outcomes: impl IntoIterator<Item = RecordOutcome>) -> Self {
        let mut tally = Self { consumed: consumed as u64, ..Self::default() };
        for outcome in outcomes {
            *match outcome {
                RecordOutcome::Applied => &mut tally.applied,
                RecordOutcome::Duplicate => &mut tally.duplicate,
                RecordOutcome::Skipped => &mut tally.skipped,
                RecordOutcome::Rejected => &mut tally.rejected,
                RecordOutcome::Parked => &mut tally.parked,
                RecordOutcome::Conflict => &mut tally.conflict,
            } += 1;
        }
        tally
    }
}

/// What happened to a lane's ownership. The assignment is counted by the observer, whatever the row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TenureSeen {
    Acquired {
        lane: usize,
        assignment: u64,
    },
    /// A commit in the database, or of an offset in Kafka, in the name of this assignment.
    Committed {
        lane: usize,
        assignment: u64,
    },
}

/// A commit or a call whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt<K> {
    pub key: K,
    pub happened: bool,
    /// What was made of it; none while it is open.
    pub taken_for: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    OneEffect,
    OneReceipt,
    OffsetsTrailOutcomes,
    GateNeverLies,
    AllAccounted,
    Fenced,
    UnknownIsNotFailure,
}

impl Invariant {
    pub const ALL: [Self; 7] = [
        Self::OneEffect,
        Self::OneReceipt,
        Self::OffsetsTrailOutcomes,
        Self::GateNeverLies,
        Self::AllAccounted,
        Self::Fenced,
        Self::UnknownIsNotFailure,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneEffect => "I1 one effect",
            Self::OneReceipt => "I2 one receipt",
            Self::OffsetsTrailOutcomes => "I3 offsets trail outcomes",
            Self::GateNeverLies => "I4 the gate never lies",
            Self::AllAccounted => "I5 all accounted",
            Self::Fenced => "I6 fenced",
            Self::UnknownIsNotFailure => "I7 unknown is not failure",
        }
    }
}

/// A rule that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.as_str(), self.what)
    }
}

type Holds = Result<(), Violation>;

fn broken(invariant: Invariant, what: String) -> Holds {
    Err(Violation { invariant, what })
}

impl<K> Default for Observation<K> {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            receipts: Vec::new(),
            lanes: Vec::new(),
            marks: Vec::new(),
            tally: None,
            tenures: Vec::new(),
            doubts: Vec::new(),
        }
    }
}

impl<K: Ord + Debug> Observation<K> {
    pub fn check(&self, invariant: Invariant) -> Holds {
        match invariant {
            Invariant::OneEffect => one_effect(&self.messages),
            Invariant::OneReceipt => one_receipt(&self.messages, &self.receipts),
            Invariant::OffsetsTrailOutcomes => offsets_trail_outcomes(&self.lanes),
            Invariant::GateNeverLies => gate_never_lies(&self.marks),
            Invariant::AllAccounted => self.tally.map_or(Ok(()), all_accounted),
            Invariant::Fenced => fenced(&self.tenures),
            Invariant::UnknownIsNotFailure => unknown_is_not_failure(&self.doubts),
        }
    }

    /// Every rule that does not hold, with the first place where.
    pub fn violations(&self) -> Vec<Violation> {
        Invariant::ALL.into_iter().filter_map(|invariant| self.check(invariant).err()).collect()
    }
}

/// I1: at most one inbox row a key; its effect is there once if the row says so, and else not at all.
pub fn one_effect<K: Debug>(messages: &[MessageSeen<K>]) -> Holds {
    for MessageSeen { key, rows, effects, .. } in messages {
        let due = usize::from(rows.contains(&RowState::Applied));
        if rows.len() > 1 || *effects != due {
            return broken(Invariant::OneEffect, format!("{key:?} has rows {rows:?} and {effects} effects"));
        }
    }
    Ok(())
}

/// I2: a final row has one terminal receipt of its version, pending or delivered, that says the same; no receipt says
/// more than the row; to its readers a terminal state is never followed by a first PROCESSING of the same version, and
/// a higher version follows only FAILED.
pub fn one_receipt<K: Ord + Debug>(messages: &[MessageSeen<K>], receipts: &[ReceiptSeen<K>]) -> Holds {
    let mut terminal: BTreeMap<(&K, i64), &ReceiptSeen<K>> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for receipt in receipts {
        let ReceiptSeen { id, key, version, state, delivered, .. } = receipt;
        if !known.insert(id) {
            let first = terminal.get_mut(&(key, *version)).filter(|first| first.id == *id);
            if let Some(first) = first.filter(|_| !receipt.lost) {
                *first = receipt;
            }
            continue;
        }
        let wrong = |what: &str| broken(Invariant::OneReceipt, format!("{key:?} version {version}: {what}"));
        match state {
            ReceiptState::Conflict => {}
            ReceiptState::Processing if *delivered && terminal.contains_key(&(key, *version)) => {
                return wrong("PROCESSING was delivered for the first time after the terminal receipt");
            }
            ReceiptState::Processing => {}
            ReceiptState::Success | ReceiptState::Failed => {
                if let Some(other) = terminal.insert((key, *version), receipt) {
                    return wrong(&format!("two terminal receipts, {} and {id}", other.id));
                }
                let before = terminal.get(&(key, version - 1));
                if *version > 1 && before.is_some_and(|before| before.state != ReceiptState::Failed) {
                    return wrong("a version above one that did not fail");
                }
            }
        }
    }
    for MessageSeen { key, rows, version, told, .. } in messages {
        let Some(row) = rows.first().filter(|_| *told) else { continue };
        let told = terminal.get(&(key, *version)).filter(|told| !told.lost || row.is_final()).map(|told| told.state);
        let due = match row {
            RowState::Applied | RowState::Noted => Some(ReceiptState::Success),
            RowState::Failed => Some(ReceiptState::Failed),
            RowState::Processing | RowState::Waiting { .. } => None,
        };
        if told != due {
            let what = format!("{key:?} version {version}: the row is {row:?}, its terminal receipt {told:?}");
            return broken(Invariant::OneReceipt, what);
        }
        if matches!(row, RowState::Processing | RowState::Waiting { complete: false }) {
            return broken(Invariant::OneReceipt, format!("{key:?} can be finished by nobody: {row:?}"));
        }
    }
    Ok(())
}

/// I3: no record below a stored offset is without an outcome, and Kafka's offset is not past the lane row's.
pub fn offsets_trail_outcomes(lanes: &[LaneSeen]) -> Holds {
    for LaneSeen { name, next, committed, records } in lanes {
        if let Some(committed) = committed.filter(|committed| committed > next) {
            let what = format!("{name}: committed to Kafka {committed}, in the lane row {next}");
            return broken(Invariant::OffsetsTrailOutcomes, what);
        }
        if let Some((offset, _)) = records.iter().find(|(offset, outcome)| offset < next && !outcome) {
            let what = format!("{name}: next offset {next}, but {offset} has no outcome");
            return broken(Invariant::OffsetsTrailOutcomes, what);
        }
    }
    Ok(())
}

/// I4: a mark that counts stands for a committed row.
pub fn gate_never_lies<K: Debug>(marks: &[MarkSeen<K>]) -> Holds {
    match marks.iter().find(|mark| !mark.proven) {
        Some(mark) => {
            broken(Invariant::GateNeverLies, format!("a mark of {:?} counts and nothing proves it", mark.key))
        }
        None => Ok(()),
    }
}

/// I5: every record that was consumed has one outcome or is in flight.
pub fn all_accounted(tally: Tally) -> Holds {
    let Tally { consumed, applied, duplicate, skipped, rejected, parked, conflict, in_flight } = tally;
    let sum = applied + duplicate + skipped + rejected + parked + conflict + in_flight;
    if sum != consumed {
        return broken(Invariant::AllAccounted, format!("{consumed} consumed, {sum} accounted for: {tally:?}"));
    }
    Ok(())
}

/// I6: once a later assignment has acquired a lane, an earlier one commits nothing for it.
pub fn fenced(tenures: &[TenureSeen]) -> Holds {
    let mut owners: BTreeMap<usize, u64> = BTreeMap::new();
    for tenure in tenures {
        match *tenure {
            TenureSeen::Acquired { lane, assignment } => {
                owners.insert(lane, assignment);
            }
            TenureSeen::Committed { lane, assignment } => {
                let owner = owners.get(&lane).copied();
                if owner.is_some_and(|owner| owner != assignment) {
                    let what = format!("lane {lane}: assignment {assignment} committed, the owner is {owner:?}");
                    return broken(Invariant::Fenced, what);
                }
            }
        }
    }
    Ok(())
}

/// I7: what was not answered is taken for what it was.
pub fn unknown_is_not_failure<K: Debug>(doubts: &[Doubt<K>]) -> Holds {
    for Doubt { key, happened, taken_for } in doubts {
        if taken_for.is_some_and(|taken| taken != *happened) {
            let (is, taken) = if *happened { ("done", "not done") } else { ("not done", "done") };
            return broken(Invariant::UnknownIsNotFailure, format!("{key:?} was {is} and is taken for {taken}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(rows: Vec<RowState>, effects: usize) -> MessageSeen<&'static str> {
        MessageSeen { key: "a", rows, effects, version: 1, told: true }
    }

    fn receipt(id: &str, version: i64, state: ReceiptState) -> ReceiptSeen<&'static str> {
        ReceiptSeen { id: id.to_owned(), key: "a", version, state, delivered: true, lost: false }
    }

    #[test]
    fn an_effect_goes_with_its_row() {
        assert_eq!(one_effect(&[message(vec![RowState::Applied], 1), message(vec![RowState::Failed], 0)]), Ok(()));
        for bad in [
            message(vec![], 1),
            message(vec![RowState::Applied], 0),
            message(vec![RowState::Applied], 2),
            message(vec![RowState::Waiting { complete: true }], 1),
            message(vec![RowState::Applied, RowState::Failed], 1),
        ] {
            assert!(one_effect(std::slice::from_ref(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_final_row_has_one_receipt_that_says_the_same() {
        use ReceiptState::{Conflict, Failed, Processing, Success};
        let applied = [message(vec![RowState::Applied], 1)];
        let good = [receipt("p", 1, Processing), receipt("s", 1, Success), receipt("p", 1, Processing)];
        assert_eq!(one_receipt(&applied, &good), Ok(()));
        for bad in [
            vec![],
            vec![receipt("f", 1, Failed)],
            vec![receipt("c", 1, Conflict)],
            vec![receipt("s", 1, Success), receipt("t", 1, Success)],
            vec![receipt("s", 1, Success), receipt("p", 1, Processing)],
            vec![receipt("s", 1, Success), receipt("u", 2, Success)],
        ] {
            assert!(one_receipt(&applied, &bad).is_err(), "{bad:?}");
        }
        let redriven = [MessageSeen { version: 2, ..message(vec![RowState::Applied], 1) }];
        assert_eq!(one_receipt(&redriven, &[receipt("f", 1, Failed), receipt("s", 2, Success)]), Ok(()));
        let waiting = [message(vec![RowState::Waiting { complete: true }], 0)];
        assert_eq!(one_receipt(&waiting, &[receipt("p", 1, Processing)]), Ok(()));
        assert!(one_receipt(&waiting, &[receipt("s", 1, Success)]).is_err());
        let of_a_lost_future = ReceiptSeen { lost: true, ..receipt("s", 1, Success) };
        assert_eq!(one_receipt(&waiting, std::slice::from_ref(&of_a_lost_future)), Ok(()));
        assert_eq!(one_receipt(&applied, &[of_a_lost_future.clone(), receipt("s", 1, Success)]), Ok(()));
        assert!(one_receipt(&waiting, &[of_a_lost_future, receipt("s", 1, Success)]).is_err());
        assert!(one_receipt(&[message(vec![RowState::Waiting { complete: false }], 0)], &[]).is_err());
    }

    #[test]
    fn offsets_stay_behind_outcomes() {
        let lane = LaneSeen { name: "t/0".into(), next: 2, committed: Some(2), records: vec![(0, true), (2, false)] };
        assert_eq!(offsets_trail_outcomes(std::slice::from_ref(&lane)), Ok(()));
        assert!(offsets_trail_outcomes(&[LaneSeen { committed: Some(3), ..lane.clone() }]).is_err());
        assert!(offsets_trail_outcomes(&[LaneSeen { records: vec![(1, false)], ..lane }]).is_err());
    }

    #[test]
    fn the_other_rules_hold_and_break_where_they_should() {
        assert!(gate_never_lies(&[MarkSeen { key: "a", proven: true }]).is_ok());
        assert!(gate_never_lies(&[MarkSeen { key: "a", proven: false }]).is_err());
        let tally = Tally { consumed: 3, applied: 1, parked: 1, in_flight: 1, ..Tally::default() };
        assert!(all_accounted(tally).is_ok());
        assert!(all_accounted(Tally { consumed: 4, ..tally }).is_err());
        let acquired = |assignment| TenureSeen::Acquired { lane: 0, assignment };
        let committed = |assignment| TenureSeen::Committed { lane: 0, assignment };
        assert!(fenced(&[acquired(1), committed(1), acquired(2), committed(2)]).is_ok());
        assert!(fenced(&[acquired(1), acquired(2), committed(1)]).is_err());
        let doubt = Doubt { key: "a", happened: true, taken_for: None };
        assert!(unknown_is_not_failure(&[doubt, Doubt { taken_for: Some(true), ..doubt }]).is_ok());
        assert!(unknown_is_not_failure(&[Doubt { taken_for: Some(false), ..doubt }]).is_err());
    }

    #[test]
    fn an_empty_observation_breaks_nothing_and_each_break_is_named() {
        assert!(Observation::<u8>::default().violations().is_empty());
        let seen = Observation { messages: vec![message(vec![], 1)], ..Observation::default() };
        let violations = seen.violations();
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].to_string(), "I1 one effect: \"a\" has rows [] and 1 effects");
    }
}
