//! The next batch, decoded and claimed while the last one is in its transaction: for a lane with a backlog and a processor to
//! spare. While there are lanes that wait for a slot, theirs is the turn.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::{Item, Reader};
use super::fetching::{Batch, Intake};
use super::gaps::{Breaks, breaks};
use super::lane::Work;
use super::processor::{Claims, Processor};
use crate::kafka::Fetched;

/// Records between two looks at the batch before.
const STEP: usize = 64;

/// A batch that is ready for its transaction.
pub(super) struct Ahead {
    pub items: Vec<Item>,
    pub claims: Claims,
    /// What could not be read at once.
    pub rest: Batch,
}

impl Work<'_> {
    /// Prepares what has been fetched behind `next`, as far as that takes no waiting for anybody but the gate. What needs more
    /// is left to the intake.
    pub(super) async fn prepare(
        &self,
        processor: &Processor,
        (intake, reader): (&mut Intake, &mut Reader),
        next: i64,
    ) -> Option<Ahead> {
        let options = &self.shared.options;
        // Not for longer: the lane may stand for hours before it comes to this batch.
        let _slot = Arc::clone(&self.shared.slots).try_acquire_owned().ok()?;
        // After the end nothing may be taken from a queue that may be another lane's by then.
        if processor.stop.is_cancelled() {
            return None;
        }
        let mut fetched = Fetched::default();
        self.reader.top_up(&mut fetched, options.batch, options.batch_bytes);
        let end = fetched.records.last()?.position.offset + 1;
        let offsets = fetched.records.iter().map(|record| record.position.offset);
        if breaks(offsets, next) != Breaks::default() {
            // Only the broker can tell what is missing.
            intake.fetched = Some(fetched);
            return None;
        }
        let mut records = VecDeque::from(fetched.records);
        let mut items = Vec::with_capacity(records.len());
        while let Some(record) = records.front() {
            let Ok(entry) = reader.entry(record, processor.lane.generation) else { break };
            items.extend(records.pop_front().map(|record| Item { record, entry }));
            if items.len() % STEP == 0 {
                tokio::task::yield_now().await;
            }
        }
        if items.is_empty() {
            intake.fetched = Some(Fetched { records: records.into(), ..Fetched::default() });
            return None;
        }
        let claims = processor.claim(&items).await;
        Some(Ahead { items, claims, rest: Batch { records, end, broken: false } })
    }
}
