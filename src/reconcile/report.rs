//! What a reconciliation came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::receipts::ReceiptCounts;
use super::verdict::{Kind, Verdict};

/// A record whose state is not what it has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub kind: Kind,
    pub message_id: Option<String>,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub detail: String,
    /// It was a difference, and is none any more.
    pub repaired: bool,
}

/// Records by what came of their comparison; those that differ are counted by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    pub matched: u64,
    pub parked: u64,
    pub conflict: u64,
    pub waiting: u64,
    pub incomparable: u64,
    pub pending: u64,
    pub skipped: u64,
    pub unchecked: u64,
    pub outside: u64,
    pub differing: u64,
}

/// `checked` is the sum of the outcomes: each record is counted once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its number in `countersign_reconcile_batches`.
    pub batch: i64,
    pub pipeline: String,
    pub topic: String,
    /// As in the table: `clean`, `differences`, `repaired`.
    pub status: &'static str,
    pub checked: u64,
    pub outcomes: Outcomes,
    /// By kind, those that were repaired among them.
    pub differences: BTreeMap<&'static str, u64>,
    pub repaired: u64,
    /// Only if receipts were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts: Option<ReceiptCounts>,
    /// In the order in which they were found; the first ones, if there are very many.
    pub diffs: Vec<Diff>,
    pub diffs_left_out: u64,
    pub seconds: f64,
}

/// Differences that are recorded and told one by one.
const MOST_DIFFS: usize = 10_000;

impl Report {
    pub(super) fn new(batch: i64, pipeline: &str, topic: &str) -> Self {
        Self {
            batch,
            pipeline: pipeline.to_owned(),
            topic: topic.to_owned(),
            status: "running",
            checked: 0,
            outcomes: Outcomes::default(),
            differences: Kind::ALL.iter().map(|kind| (kind.as_str(), 0)).collect(),
            repaired: 0,
            receipts: None,
            diffs: Vec::new(),
            diffs_left_out: 0,
            seconds: 0.0,
        }
    }

    pub(super) fn count(&mut self, verdict: Verdict) {
        self.checked += 1;
        let outcomes = &mut self.outcomes;
        *match verdict {
            Verdict::Matched => &mut outcomes.matched,
            Verdict::Parked => &mut outcomes.parked,
            Verdict::Conflict => &mut outcomes.conflict,
            Verdict::Waiting => &mut outcomes.waiting,
            Verdict::Incomparable => &mut outcomes.incomparable,
            Verdict::Pending => &mut outcomes.pending,
            Verdict::Skipped => &mut outcomes.skipped,
            Verdict::Unchecked => &mut outcomes.unchecked,
            Verdict::Outside => &mut outcomes.outside,
            Verdict::Differs(_) => &mut outcomes.differing,
        } += 1;
    }

    /// Counts differences and keeps them as long as there is room; those that were kept.
    pub(super) fn add(&mut self, mut diffs: Vec<Diff>) -> &[Diff] {
        for diff in &diffs {
            *self.differences.entry(diff.kind.as_str()).or_default() += 1;
            self.repaired += u64::from(diff.repaired);
        }
        let room = MOST_DIFFS - self.diffs.len();
        self.diffs_left_out += diffs.len().saturating_sub(room) as u64;
        diffs.truncate(room);
        let from = self.diffs.len();
        self.diffs.append(&mut diffs);
        &self.diffs[from..]
    }

    /// All that were found.
    pub fn found(&self) -> u64 {
        self.differences.values().sum()
    }

    /// Those that are differences still.
    pub fn left(&self) -> u64 {
        self.found() - self.repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_complete_and_what_is_kept_is_bounded() {
        let mut report = Report::new(1, "p", "t");
        let diff = |n: usize| Diff {
            kind: Kind::Missing,
            message_id: None,
            topic: "t".into(),
            partition: 0,
            offset: n as i64,
            detail: String::new(),
            repaired: n.is_multiple_of(2),
        };
        for round in 0..3 {
            let kept = report.add((0..6000).map(diff).collect()).len();
            assert_eq!(kept, [6000, 4000, 0][round]);
        }
        assert_eq!((report.found(), report.left(), report.diffs_left_out), (18_000, 9000, 8000));
        assert_eq!(report.diffs.len(), MOST_DIFFS);
    }
}
