//! One transaction over a slice of a lane's records. The straight line: fence, record, judge, apply, settle, advance,
//! commit.

use std::collections::HashMap;
use std::time::Instant;

use rand::Rng as _;

use super::Shared;
use super::apply::Applied;
use super::batch::Item;
use super::judge::judge;
use super::marks::valid_marks;
use super::settle::{OPERATOR, Settled, WAITING, settle};
use super::slices::Slices;
use super::tenure::{Known, Tenure, Trace};
use crate::decision::{ParkWindow, RecordOutcome};
use crate::failpoint;
use crate::gate::Mark;
use crate::invariants::{Tally, all_accounted};
use crate::message::DigestMatch;
use crate::store::StoreError;
use crate::store::inbox::BatchHead;
use crate::store::lanes::{LaneAdvance, LaneKey};
use crate::store::outbox::PendingReceipt;

/// The lane in whose name a transaction runs.
#[derive(Clone, Debug)]
pub struct Lane {
    pub key: LaneKey,
    pub generation: i64,
    /// Work without an assignment has none: it neither reads nor writes the lane's row, the inbox row is its fence.
    pub tenure: Option<Tenure>,
}

/// Whether each message can be undone by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Plain,
    /// Postgres keeps the ids of 64 subtransactions of a session in its fast path, and those that wrote and were
    /// released count until the end of the transaction: not more messages than that.
    Savepoints,
}

/// Messages in one transaction with savepoints: one each, released or undone before the next. What a refused one is
/// asked afterwards takes further ones, one at a time.
pub const MAX_SAVEPOINTS: usize = 60;

/// What to run.
pub struct Attempt<'a> {
    pub shared: &'a Shared,
    pub lane: &'a Lane,
    pub items: &'a [Item],
    /// What this owner has committed itself: a row below it has lost what we know was there. Looked at anew each time, for
    /// slices commit beside each other.
    pub known: &'a Known,
    /// Where others are at work beside it in the same lane.
    pub slices: Option<&'a Slices>,
    /// The offset behind these records: the lane's next one, if nobody is at work beside.
    pub next_offset: i64,
    pub mode: Mode,
    /// Lanes take turns: not beside those of other processes either.
    pub alone: bool,
    /// Confirmed marks of the gate, by inbox key.
    pub marks: &'a HashMap<Vec<u8>, Mark>,
    /// Why the messages are to be set aside untried.
    pub aside: Option<&'a str>,
}

/// Messages of a partition that may wait outside their lane.
pub(super) const MOST_WAITING: i64 = 1000;

/// How it went, if nothing failed.
pub enum Attempted {
    Committed(Committed),
    /// A message must be undone by itself.
    NeedsSavepoints,
    /// The systemic pause begins within the slice: run only this many of it.
    CutAt(usize),
    /// Another owner has the lane, or the row has gone back behind our own commit: the lane is to be taken over anew.
    Fenced,
    Paused(String),
    /// So many messages of the partition wait already that no more may be set aside.
    Full(i64),
    /// An operator wants everything below this offset parked.
    Skip {
        to: i64,
    },
}

pub struct Committed {
    /// One a record, in order.
    pub outcomes: Vec<Recorded>,
    pub marks: Vec<Mark>,
    pub store_epoch: String,
    /// What the lane's row says now.
    pub left: Trace,
    /// Milliseconds since 1970 by the database's clock, for distances.
    pub now: String,
    pub receipts: usize,
    /// Those of this lane that are in the outbox, if their numbers are known.
    pub enqueued: Vec<PendingReceipt>,
    pub paused: Option<String>,
}

/// The outcome of a record, and what the metrics say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub outcome: RecordOutcome,
    pub reason: Option<String>,
    pub first_seen_ms: Option<i64>,
    /// How a duplicate's digest relates to the first one's.
    pub note: Option<DigestMatch>,
}

impl Recorded {
    /// Parked for now: set aside, to be tried again.
    pub fn waits(&self) -> bool {
        self.reason.as_deref() == Some(WAITING)
    }
}

/// An attempt that failed; everything is undone.
pub struct Failure {
    /// The record that caused it, where that is known.
    pub at: Option<usize>,
    pub error: StoreError,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { at: None, error }
    }
}

impl Attempt<'_> {
    pub async fn run(&self) -> Result<Attempted, Failure> {
        let began = Instant::now();
        let mut tx = self.shared.store.begin().await?;
        let due = self.first_due();
        let Some(row) = self.enter(&mut tx).await? else {
            tx.rollback().await;
            return Ok(Attempted::Fenced);
        };
        if let Some(stop) = self.stop(&row, due) {
            tx.rollback().await;
            return Ok(stop);
        }
        if self.alone {
            tx.wait_for_turn().await?;
        }
        let token = rand::rng().random::<i64>();
        let head = BatchHead {
            pipeline: &self.shared.pipeline,
            topic: &self.lane.key.topic,
            partition: self.lane.key.partition,
            token,
            now: &row.now,
        };
        let marks = valid_marks(self.items, self.marks, self.lane, &row);
        let rows = self.rows(&marks);
        let known = tx.record_inbox(&head, &rows).await?;
        failpoint::at("after-inbox").await?;
        let judgements = judge(self.items, &self.shared.inbox, &marks, known.rows.as_deref(), token)?;
        let late = self.late(&judgements, known.horizon_ms);
        let queues = self.queues(&mut tx, &judgements).await?;
        let outcomes = match self.apply(&mut tx, &judgements, late, queues).await? {
            Applied::Outcomes(outcomes) => outcomes,
            Applied::NeedsSavepoints => {
                tx.rollback().await;
                return Ok(Attempted::NeedsSavepoints);
            }
        };
        failpoint::at("after-effect").await?;
        let aside = outcomes.values().filter(|outcome| outcome.is_retry()).count() as i64;
        if aside > 0 {
            let waiting = tx.count_waiting(self.place()).await?;
            if waiting > 0 && waiting + aside > MOST_WAITING {
                tx.rollback().await;
                return Ok(Attempted::Full(waiting));
            }
        }
        let settled = settle(self, &mut tx, &row, &judgements, &outcomes).await?;
        let outcomes = settled.recorded.iter().map(|recorded| recorded.outcome);
        debug_assert_eq!(all_accounted(Tally::of(self.items.len(), outcomes)), Ok(()));
        // Up to here slices have come side by side; each ends alone, and hears what another one or an operator left meanwhile.
        let (last, _commit) = match self.slices {
            None => (None, None),
            Some(slices) => {
                // At COMMIT it could wait for rows of a slice that waits for this one.
                tx.check_for_good().await?;
                let commit = slices.turn(&mut tx).await?;
                let Some(last) = tx.lock_lane(&self.lane.key).await?.filter(|row| self.owns(row, self.known.get()))
                else {
                    tx.rollback().await;
                    return Ok(Attempted::Fenced);
                };
                if let Some(stop) = self.stop(&last, self.first_due()) {
                    tx.rollback().await;
                    return Ok(stop);
                }
                (Some(last), Some(commit))
            }
        };
        let last = last.as_ref().unwrap_or(&row);
        let next_offset = self.slices.map_or(self.next_offset, |slices| slices.mark_with(self.items));
        let mut window = ParkWindow::from_stored(last.records_seen, &last.recent_parks);
        let paused = match self.pause(&mut window, &settled) {
            Some((at, _)) if at + 1 < self.items.len() => {
                tx.rollback().await;
                return Ok(Attempted::CutAt(at + 1));
            }
            other => other.map(|(_, reason)| reason),
        };
        let (records_seen, recent_parks) = window.stored();
        if self.lane.tenure.is_some() {
            let advance = LaneAdvance {
                next_offset,
                records_seen,
                recent_parks,
                paused: paused.clone(),
                skip_to: self.skip_left(last, next_offset),
            };
            tx.advance_lane(&self.lane.key, &advance).await?;
        }
        let left = Trace { records_seen, next_offset };
        failpoint::at("before-commit").await?;
        match tx.commit_before("after-commit").await {
            Ok(()) => {}
            Err(error @ StoreError::CommitUnknown(_)) => {
                let committed = match self.lane.tenure {
                    Some(_) => self.look_up(left, error).await?,
                    None => self.look_up_rows(&head, &rows, error).await?,
                };
                if !committed {
                    return Err(StoreError::Unexpected("a cut commit did not take effect".to_owned()).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.known.committed(left);
        if let Some(slices) = self.slices {
            slices.finish(self.items, next_offset);
        }
        let pipeline = &[&*self.shared.pipeline];
        self.shared.metrics.transaction_seconds.with_label_values(pipeline).observe(began.elapsed().as_secs_f64());
        self.shared.metrics.transaction_messages.with_label_values(pipeline).observe(self.items.len() as f64);
        let Settled { recorded, marks, receipts, enqueued } = settled;
        Ok(Attempted::Committed(Committed {
            outcomes: recorded,
            marks,
            store_epoch: row.store_epoch,
            left,
            now: row.now,
            receipts,
            enqueued,
            paused,
        }))
    }

    /// The record at which the systemic pause begins, and why.
    fn pause(&self, window: &mut ParkWindow, settled: &Settled) -> Option<(usize, String)> {
        // Without a lane there is none to pause: whoever runs it counts.
        self.lane.tenure.as_ref()?;
        let policy = &self.shared.options.pause;
        for (index, recorded) in settled.recorded.iter().enumerate() {
            // What an operator skipped and what waits for its turn are no sign of trouble.
            let parked = matches!(recorded.outcome, RecordOutcome::Parked | RecordOutcome::Conflict)
                && !matches!(recorded.reason.as_deref(), Some(OPERATOR | WAITING));
            if window.record(parked, policy) {
                let reason = recorded.reason.as_deref().unwrap_or("parked");
                let hint = match recorded.outcome {
                    RecordOutcome::Conflict => {
                        " (one id with ever different content: is `message_id` the right place?)"
                    }
                    _ => "",
                };
                let text = format!(
                    "too many parked records among the last {}, the last one with reason {reason}{hint}: see \
                     `dead-letters list`, then `lanes resume`",
                    policy.window
                );
                return Some((index, text));
            }
        }
        None
    }
}
