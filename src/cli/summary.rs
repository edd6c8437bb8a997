//! What `demo` and `replay` end with.

use serde::Serialize;

use crate::decision::RecordOutcome;

/// `consumed` is the sum of the six outcomes: each record is counted once.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    pub consumed: usize,
    pub applied: usize,
    pub duplicate: usize,
    pub skipped: usize,
    pub rejected: usize,
    pub parked: usize,
    pub conflict: usize,
    pub receipts: usize,
    pub seconds: f64,
}

impl Summary {
    pub fn count(&mut self, outcome: RecordOutcome) {
        self.consumed += 1;
        *match outcome {
            RecordOutcome::Applied => &mut self.applied,
            RecordOutcome::Duplicate => &mut self.duplicate,
            RecordOutcome::Skipped => &mut self.skipped,
            RecordOutcome::Rejected => &mut self.rejected,
            RecordOutcome::Parked => &mut self.parked,
            RecordOutcome::Conflict => &mut self.conflict,
        } += 1;
    }

    /// To the millisecond.
    pub fn took(&mut self, seconds: f64) {
        self.seconds = (seconds * 1000.0).round() / 1000.0;
    }

    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        let counts = [
            (self.applied, "applied"),
            (self.duplicate, "duplicate"),
            (self.skipped, "skipped"),
            (self.rejected, "rejected"),
            (self.parked, "parked"),
            (self.conflict, "conflict"),
        ];
        let counts = counts.map(|(count, name)| format!("{count} {name}")).join(" + ");
        format!("{} records = {counts}; {} receipts; {:.1} s", self.consumed, self.receipts, self.seconds)
    }
}
