//! By what an owner knows its lane's row, and its own commit in it. Pure.

use crate::store::lanes::LaneRow;

/// What an assignment wrote into the lane's row.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub epoch: i64,
    pub owner: String,
}

/// What a transaction leaves in the row, by which a commit without an answer is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    pub records_seen: i64,
    pub next_offset: i64,
}

impl Tenure {
    /// Whether the row is still this owner's. `known_next`: the next offset that this owner has committed last; a row
    /// below it has lost what was known to be there.
    pub fn owns(&self, row: &LaneRow, known_next: i64) -> bool {
        row.epoch == self.epoch && row.owner == self.owner && row.next_offset >= known_next
    }

    /// Whether a commit without an answer took effect, by a row that was read under the fence since.
    pub fn committed(&self, row: &LaneRow, known_next: i64, trace: Trace) -> bool {
        self.owns(row, known_next) && row.records_seen == trace.records_seen && row.next_offset >= trace.next_offset
    }
}
