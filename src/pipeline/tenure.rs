//! By what an owner knows its lane's row, and its own commit in it. Pure.

use std::sync::{Mutex, PoisonError};

use crate::store::lanes::LaneRow;

/// What an assignment wrote into the lane's row.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub epoch: i64,
    pub owner: String,
}

/// What a transaction leaves in the row, by which a commit without an answer is found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub records_seen: i64,
    pub next_offset: i64,
}

/// What an owner knows to be in its lane's row, by the commits that were answered.
#[derive(Debug, Default)]
pub struct Known(Mutex<Trace>);

impl Known {
    pub(super) fn get(&self) -> Trace {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of several slices it is the latest commit that counts, whoever's answer comes first.
    pub(super) fn committed(&self, left: Trace) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.records_seen = known.records_seen.max(left.records_seen);
        known.next_offset = known.next_offset.max(left.next_offset);
    }
}

impl Tenure {
    /// Whether the row is still this owner's. A row below what this owner has committed has lost what was known to be
    /// there. The count tells also where the mark had not moved: a slice may commit behind one that is not done.
    pub fn owns(&self, row: &LaneRow, known: Trace) -> bool {
        let kept = row.next_offset >= known.next_offset && row.records_seen >= known.records_seen;
        row.epoch == self.epoch && row.owner == self.owner && kept
    }

    /// Whether a commit without an answer took effect, by a row that was read since behind its lock. Nobody of the same owner
    /// commits between the two.
    pub fn committed(&self, row: &LaneRow, known: Trace, trace: Trace) -> bool {
        self.owns(row, known) && row.records_seen == trace.records_seen && row.next_offset >= trace.next_offset
    }
}
