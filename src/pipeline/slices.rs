//! Keyed lanes: the records of one partition at work side by side, in slices. Each slice has its own transactions and takes
//! its records one after the other; what must keep its order goes to one slice (`order`).
//!
//! What a commit leaves in the lane's row is the contiguous mark: the offset below which every record of every slice is
//! done. So nothing changes for whoever starts from the row or from the group's offset; what was done beyond the mark comes
//! again and is found in the inbox. A slice that stands (a row that somebody holds, say) lets the others go on until the
//! window is full; then the partition waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::PipelineOptions;
use super::attempt::Committed;
use super::batch::{Entry, Item, Reader};
use super::fetching::{Batch, Intake};
use super::lane::{Ready, Work};
use super::processor::{Halt, Processor};
use super::status::LaneState;
use crate::offsets::outstanding::Outstanding;
use crate::record::Record;
use crate::store::{StoreError, Tx};

/// A transaction that waits says so often that it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// What the slices of one lane share.
pub struct Slices {
    outstanding: Mutex<Outstanding>,
    /// Held from the last look at the lane's row until what became of the commit is known, so that the row and what is known
    /// here never differ: a slice writes the mark that all commits before its own have left.
    commit: tokio::sync::Mutex<()>,
    /// The mark that the row carries.
    written: Mutex<i64>,
    /// Records were finished.
    freed: Notify,
    states: Mutex<Vec<LaneState>>,
}

/// One of them, as its processor sees it.
#[derive(Clone)]
pub struct Slice {
    pub(super) of: Arc<Slices>,
    index: usize,
}

impl Slices {
    /// `count` of them, and one more for the intake, which can stand too.
    fn new(count: usize, next: i64) -> Self {
        Self {
            outstanding: Mutex::new(Outstanding::new(next)),
            commit: tokio::sync::Mutex::default(),
            written: Mutex::new(next),
            freed: Notify::new(),
            states: Mutex::new(vec![LaneState::Running; count + 1]),
        }
    }

    pub(super) fn outstanding(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next offset of the lane once these records are done too.
    pub(super) fn mark_with(&self, items: &[Item]) -> i64 {
        self.outstanding().mark_with(items.iter().map(offset))
    }

    /// These records are committed, and the row carries this mark.
    pub(super) fn finish(&self, items: &[Item], mark: i64) {
        self.outstanding().finish(items.iter().map(offset));
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = mark;
        self.freed.notify_waiters();
    }

    fn written(&self) -> i64 {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn to end a transaction, which stays alive meanwhile.
    pub(super) async fn turn(&self, tx: &mut Tx) -> Result<tokio::sync::MutexGuard<'_, ()>, StoreError> {
        let turn = self.commit.lock();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                turn = &mut turn => return Ok(turn),
                () = tokio::time::sleep(ALIVE) => tx.stay().await?,
            }
        }
    }

    /// Waits until the window has room, and says for how many records.
    async fn room(&self, options: &PipelineOptions, slices: usize) -> usize {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notification is missed.
            freed.as_mut().enable();
            let room = room(&self.outstanding(), options, slices);
            if room > 0 {
                return room;
            }
            freed.await;
        }
    }

    async fn all_done(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.outstanding().is_empty() {
                return;
            }
            freed.await;
        }
    }
}

impl Slice {
    /// What the lane as a whole is to be called now that this slice is in that state: the worst of all.
    pub(super) fn state(&self, state: LaneState) -> LaneState {
        let mut states = self.of.states.lock().unwrap_or_else(PoisonError::into_inner);
        states[self.index] = state;
        let weight = |state: &&LaneState| match state {
            LaneState::Starting | LaneState::Running => 0,
            LaneState::Retrying(_) => 1,
            LaneState::Paused(_) => 2,
            LaneState::Stopped(_) => 3,
        };
        states.iter().max_by_key(weight).cloned().unwrap_or(LaneState::Running)
    }
}

fn offset(item: &Item) -> i64 {
    item.record.position.offset
}

/// Records that may be at work are two batches, as with a lane that takes its records one after the other and has the next
/// batch fetched. The window, which is what comes again after a death, has a batch for each slice: one that stands should
/// not hold up the others soon.
fn room(outstanding: &Outstanding, options: &PipelineOptions, slices: usize) -> usize {
    if outstanding.bytes() >= 2 * options.batch_bytes {
        return 0;
    }
    let window = (slices * options.batch).saturating_sub(outstanding.len());
    let work = (2 * options.batch).saturating_sub(outstanding.unfinished());
    window.min(work)
}

/// A slice at work.
struct Worker {
    processor: Processor,
    slice: Slice,
    queue: Mutex<VecDeque<Item>>,
    filled: Notify,
}

impl Worker {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Item>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has come, batch after batch, until the lane halts.
    async fn run(&self, work: &Work<'_>) -> Halt {
        loop {
            if self.queue().is_empty() {
                tokio::select! {
                    () = self.processor.stop.cancelled() => return Halt::Stopped,
                    () = self.filled.notified() => continue,
                }
            }
            if let Err(halt) = self.processor.take_slot().await {
                return halt;
            }
            // What came while it waited goes along.
            let mut items = self.take(&self.processor.shared.options);
            let next = items.last().map_or(0, |item| offset(item) + 1);
            let processed = work.process_slice(&self.processor, &self.slice, &mut items, next).await;
            drop(items);
            if let Err(halt) = processed {
                return halt;
            }
            self.processor.leave_slot();
        }
    }

    fn take(&self, options: &PipelineOptions) -> Vec<Item> {
        let mut queue = self.queue();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < options.batch && bytes < options.batch_bytes {
            let Some(item) = queue.pop_front() else { break };
            bytes += item.record.size();
            items.push(item);
        }
        items
    }
}

impl Work<'_> {
    /// As [`Work::follow`], in slices.
    pub(super) async fn follow_in_slices(&self, ready: Ready, count: usize, stop: &CancellationToken) -> Halt {
        // The first halt of one ends all.
        let ending = stop.child_token();
        let of = Arc::new(Slices::new(count, ready.next));
        let slice = |index| Slice { of: Arc::clone(&of), index };
        let (intake, own) = (self.processor(&ready.lane, Some(slice(count)), &ending), slice(count));
        let processor = |index| Processor {
            known: Arc::clone(&intake.known),
            told: Arc::clone(&intake.told),
            ..self.processor(&ready.lane, Some(slice(index)), &ending)
        };
        let workers: Vec<Worker> = (0..count)
            .map(|index| Worker {
                processor: processor(index),
                slice: slice(index),
                queue: Mutex::default(),
                filled: Notify::new(),
            })
            .collect();
        let mut running: FuturesUnordered<_> = workers.iter().map(|worker| worker.run(self)).collect();
        let halt = tokio::select! {
            halt = self.distribute(&intake, &own, &workers) => halt,
            Some(halt) = running.next() => halt,
        };
        ending.cancel();
        while running.next().await.is_some() {}
        halt
    }

    /// Reads the partition and gives each record to its slice.
    async fn distribute(&self, intake: &Processor, slice: &Slice, workers: &[Worker]) -> Halt {
        let mut reading = Intake::new();
        let mut reader = Reader::new(Arc::clone(&self.shared.reader));
        let of = &slice.of;
        loop {
            let room = tokio::select! {
                () = intake.stop.cancelled() => return Halt::Stopped,
                room = of.room(&self.shared.options, workers.len()) => room,
            };
            let next = of.outstanding().end();
            let Batch { records, end, broken } = match self.next_batch(&mut reading, intake, next, room).await {
                Ok(Some(batch)) => batch,
                Ok(None) => continue,
                Err(halt) => return halt,
            };
            let mut waiting = records;
            while !waiting.is_empty() {
                let items = match intake.read(&mut reader, &mut waiting).await {
                    Ok(items) => items,
                    Err(halt) => return halt,
                };
                self.hand_out(of, items, workers);
            }
            of.outstanding().reach(end);
            if let Err(halt) = self.write_mark(intake, slice).await {
                return halt;
            }
            intake.leave_slot();
            if broken {
                tokio::select! {
                    () = intake.stop.cancelled() => return Halt::Stopped,
                    () = of.all_done() => return Halt::Fenced,
                }
            }
        }
    }

    fn hand_out(&self, of: &Slices, items: Vec<Item>, workers: &[Worker]) {
        let mut outstanding = of.outstanding();
        for item in items {
            outstanding.admit(offset(&item), item.record.size(), !matches!(item.entry, Entry::Skip(_)));
            let worker = &workers[self.slice_of(&item, workers.len())];
            worker.queue().push_back(item);
            worker.filled.notify_one();
        }
        let (at_work, name) = (outstanding.unfinished(), &self.name);
        self.lanes.update(name, |report| report.in_flight = at_work);
    }

    fn slice_of(&self, item: &Item, slices: usize) -> usize {
        let Record { position, key, .. } = &item.record;
        let (route, inbox_key) = match &item.entry {
            // Nothing is to be done for it but to say so.
            Entry::Skip(_) => return position.offset as usize % slices,
            Entry::Message { key, message } => (Some(message.route), key),
            Entry::Faulty(faulty) => (faulty.route, &faulty.key),
        };
        let order = route.map(|route| self.shared.order[route]).unwrap_or_default();
        order.slice(key.as_deref(), inbox_key, slices)
    }

    async fn process_slice(
        &self,
        processor: &Processor,
        slice: &Slice,
        items: &mut [Item],
        next: i64,
    ) -> Result<(), Halt> {
        processor.process(items, next, |committed| self.committed(slice, committed)).await?;
        self.write_mark(processor, slice).await
    }

    /// Where the log goes on behind the last record, with markers alone, and no slice is at work that would write so.
    async fn write_mark(&self, processor: &Processor, slice: &Slice) -> Result<(), Halt> {
        let mark = {
            let outstanding = slice.of.outstanding();
            if outstanding.is_empty() { outstanding.mark() } else { return Ok(()) }
        };
        if slice.of.written() >= mark {
            return Ok(());
        }
        processor.process(&mut [], mark, |committed| self.committed(slice, committed)).await
    }

    /// After each commit of a slice.
    fn committed(&self, slice: &Slice, committed: &Committed) {
        let (mark, at_work) = (slice.of.written(), slice.of.outstanding().unfinished());
        self.reader.progress().complete(mark, &committed.store_epoch);
        self.lanes.update(&self.name, |report| {
            report.next = mark;
            report.in_flight = at_work;
        });
        self.reader.hand_over(mark, self.shared.options.batch);
    }
}
