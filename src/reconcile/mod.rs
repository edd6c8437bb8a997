//! Reconciliation: every record of a window of a topic is held against the inbox, the dead letters, the lanes and the
//! receipts, as one recorded batch.
//!
//! It reads records as the lanes do and changes nothing but its own two tables, unless it is asked to repair. Whoever
//! has the records gives them; beside running daemons nothing is reported that is merely on its way: the lanes are asked
//! before the inbox, and what seems to differ is looked at twice.

mod judge;
mod receipts;
mod repair;
mod report;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::judge::{Finding, Judge};
use self::receipts::Receipts;
pub use self::receipts::{ReceiptCounts, ReceiptsTopic};
pub use self::repair::Repair;
pub use self::report::{Diff, Outcomes, Report};
pub use self::verdict::{Kind, Verdict};
use crate::kafka::window::WindowError;
use crate::message::MessageId;
use crate::pipeline::Shared;
use crate::pipeline::batch::{Entry, Item};
use crate::record::Record;
use crate::store::reconcile::{NewBatch, NewDiff};
use crate::store::{Meaning, StoreError};

/// Why a batch did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("receipts: {0}")]
    Receipts(#[from] WindowError),
    /// A record needs something that does not answer.
    #[error("{0}")]
    Outage(String),
    #[error("repair: {0}")]
    Repair(String),
    #[error("{0}")]
    Failed(String),
}

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Subject {
    pub topic: Arc<str>,
    /// Bounds that are times, in milliseconds since 1970; they are recorded with the batch.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
    /// Compares the receipts too.
    pub receipts: Option<ReceiptsTopic>,
}

/// A batch at work.
pub struct Reconcile {
    shared: Arc<Shared>,
    judge: Judge,
    receipts: Option<Receipts>,
    repair: Option<Repair>,
    report: Report,
    /// The next offsets of the lanes as the batch began.
    lanes: BTreeMap<i32, i64>,
    began: Instant,
}

/// Batches of a pipeline that are kept, whatever the retention.
const KEEP: usize = 100;
/// Before a second look at what seems to differ.
const SECOND_LOOK: Duration = Duration::from_millis(250);
/// Looks at a database that does not answer, the first one included.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(300);

impl Reconcile {
    /// Begins a batch. The lanes are read here: ends of logs that are asked for afterwards can be told from them with
    /// [`Reconcile::compare_ends`].
    pub async fn begin(shared: Arc<Shared>, subject: Subject, repair: Option<Repair>) -> Result<Self, ReconcileError> {
        let Subject { topic, from_ms, to_ms, receipts } = subject;
        let store = &shared.store;
        store.forget_reconciles(&shared.pipeline, KEEP - 1).await?;
        let batch = NewBatch { pipeline: &shared.pipeline, topic: &topic, from_ms, to_ms };
        let batch = store.begin_reconcile(&batch).await?;
        let lanes = store.lanes(&shared.pipeline).await?;
        let lanes = lanes.iter().filter(|lane| *lane.topic == *topic);
        let lanes = lanes.filter_map(|lane| Some((i32::try_from(lane.partition).ok()?, lane.next_offset))).collect();
        let report = Report::new(batch, &shared.pipeline, &topic);
        let judge = Judge::new(Arc::clone(&shared), topic);
        let receipts = receipts.map(Receipts::new);
        Ok(Self { shared, judge, receipts, repair, report, lanes, began: Instant::now() })
    }

    /// Takes the ends of the topic's logs, asked for after the batch began. A lane that is past its log's end speaks of
    /// a former topic of this name: all records there count as pending.
    pub fn compare_ends(&mut self, ends: &BTreeMap<i32, i64>) {
        self.judge.compare_ends(&self.lanes, ends);
    }

    /// Compares these records of the topic, in whatever order they come.
    ///
    /// # Errors
    /// The batch cannot go on; [`Reconcile::abandon`] says so in its row.
    pub async fn records(&mut self, records: Vec<Record>) -> Result<(), ReconcileError> {
        let mut findings = patiently(&mut self.judge, &records).await?;
        let differs = |finding: &Finding| matches!(finding.verdict, Verdict::Differs(_));
        if findings.iter().any(differs) {
            tokio::time::sleep(SECOND_LOOK).await;
            let (suspects, mut sound): (Vec<_>, Vec<_>) = findings.into_iter().partition(differs);
            let again: Vec<Record> = suspects.into_iter().map(|finding| finding.item.record).collect();
            sound.extend(patiently(&mut self.judge, &again).await?);
            findings = sound;
        }
        let repaired = self.repair(&mut findings).await?;
        let mut diffs = Vec::new();
        let mut due = false;
        for finding in findings {
            let Finding { item, verdict, detail, receipt } = finding;
            self.report.count(verdict);
            if let Verdict::Differs(kind) = verdict {
                diffs.push(diff(&item, kind, detail, false));
            }
            if let (Some(receipts), Some(receipt)) = (&mut self.receipts, receipt) {
                due |= receipts.expect(receipt);
            }
        }
        diffs.extend(repaired);
        diffs.sort_by_key(|diff| (diff.partition, diff.offset));
        self.add(diffs).await?;
        if due { self.pass().await } else { Ok(()) }
    }

    /// Sends what is missing through the pipeline, and looks again. What is none the more is told as repaired.
    async fn repair(&mut self, findings: &mut Vec<Finding>) -> Result<Vec<Diff>, ReconcileError> {
        let missing = |finding: &Finding| finding.verdict == Verdict::Differs(Kind::Missing);
        let Some(repair) = self.repair.as_mut().filter(|_| findings.iter().any(missing)) else {
            return Ok(Vec::new());
        };
        let (lost, rest): (Vec<_>, Vec<_>) = std::mem::take(findings).into_iter().partition(missing);
        *findings = rest;
        let records: Vec<Record> = lost.iter().map(|finding| finding.item.record.clone()).collect();
        repair.replay(records.clone()).await?;
        let mut details: BTreeMap<(i32, i64), String> = lost
            .into_iter()
            .map(|finding| {
                ((finding.item.record.position.partition, finding.item.record.position.offset), finding.detail)
            })
            .collect();
        let mut repaired = Vec::new();
        for finding in patiently(&mut self.judge, &records).await? {
            if !matches!(finding.verdict, Verdict::Differs(_)) {
                let position = &finding.item.record.position;
                let detail = details.remove(&(position.partition, position.offset)).unwrap_or_default();
                let detail = format!("{detail}; repaired by a replay");
                repaired.push(diff(&finding.item, Kind::Missing, detail, true));
            }
            findings.push(finding);
        }
        Ok(repaired)
    }

    /// Compares what is left, and ends the batch.
    pub async fn finish(&mut self) -> Result<Report, ReconcileError> {
        self.pass().await?;
        let mut report = self.report.clone();
        report.status = match (report.found(), report.left()) {
            (0, _) => "clean",
            (_, 0) => "repaired",
            (_, _) => "differences",
        };
        report.receipts = self.receipts.as_ref().map(|receipts| receipts.counts);
        report.seconds = (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        self.end(report.status).await?;
        Ok(report)
    }

    /// Ends the batch before its end: `failed` or `interrupted`.
    pub async fn abandon(&mut self, status: &str) -> Result<(), ReconcileError> {
        self.end(status).await
    }

    async fn end(&self, status: &str) -> Result<(), ReconcileError> {
        let counted = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (checked, found) = (counted(self.report.checked), counted(self.report.found()));
        Ok(self.shared.store.end_reconcile(self.report.batch, status, checked, found).await?)
    }

    async fn pass(&mut self) -> Result<(), ReconcileError> {
        let Some(receipts) = &mut self.receipts else { return Ok(()) };
        let diffs = receipts.pass(&self.shared.store, &self.shared.pipeline, &self.report.topic).await?;
        self.add(diffs).await
    }

    async fn add(&mut self, diffs: Vec<Diff>) -> Result<(), ReconcileError> {
        let batch = self.report.batch;
        let kept = self.report.add(diffs);
        let rows: Vec<NewDiff<'_>> = kept
            .iter()
            .map(|diff| NewDiff {
                message_id: diff.message_id.as_deref(),
                topic: &diff.topic,
                partition: diff.partition,
                offset: diff.offset,
                kind: diff.kind.as_str(),
                detail: &diff.detail,
            })
            .collect();
        Ok(self.shared.store.record_diffs(batch, &rows).await?)
    }
}

/// A database that fails over in the middle of a long window is asked again.
async fn patiently(judge: &mut Judge, records: &[Record]) -> Result<Vec<Finding>, ReconcileError> {
    let mut tried = 0;
    loop {
        match judge.judge(records.to_vec()).await {
            Err(ReconcileError::Store(error)) if error.meaning() == Meaning::Transient && tried + 1 < TRIES => {
                tracing::warn!(%error, "asking again");
                tokio::time::sleep(FIRST_WAIT * 4_u32.pow(tried)).await;
                tried += 1;
            }
            other => return other,
        }
    }
}

fn diff(item: &Item, kind: Kind, detail: String, repaired: bool) -> Diff {
    let id = match &item.entry {
        Entry::Message { message, .. } => Some(&message.id),
        Entry::Faulty(faulty) => faulty.id.as_ref(),
        Entry::Skip(_) => None,
    };
    let position = &item.record.position;
    Diff {
        kind,
        message_id: id.map(MessageId::as_str).map(str::to_owned),
        topic: position.topic.to_string(),
        partition: position.partition,
        offset: position.offset,
        detail,
        repaired,
    }
}
