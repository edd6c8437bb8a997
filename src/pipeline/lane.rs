//! One lane: takes a partition over, reads it in batches, and ends with its assignment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng as _;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::ahead::Ahead;
use super::attempt::Lane;
use super::batch::Reader;
use super::fetching::Intake;
use super::processor::{Halt, Processor};
use super::slices::Slice;
use super::standing::Told;
use super::status::{LaneName, LaneState, Lanes};
use super::tenure::Tenure;
use super::{Shared, unique_word};
use crate::kafka::{Assigned, PartitionReader};
use crate::offsets::{LostOffsets, Start, StartFacts, decide_start};
use crate::store::lanes::LaneKey;
use crate::store::meta::{ADOPTING_EPOCH, FORMER_EPOCHS, STORE_EPOCH};
use crate::store::{Meaning, StoreError};

/// How a lane treats offsets that are gone.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    pub lost: LostOffsets,
}

pub(super) const RETRY: Duration = Duration::from_millis(500);
/// How long the end of a lane waits for its reader's.
const LET_GO: Duration = Duration::from_secs(2);
const REFUSED_LOOK: Duration = Duration::from_secs(5);

/// The group's offset and its metadata, if it has one.
type Committed = Option<(i64, String)>;

/// A lane that is ours and ready.
pub(super) struct Ready {
    pub lane: Lane,
    pub next: i64,
}

/// Runs until the assignment ends. A fence that fails while the partition is still assigned is bumped again: the epoch
/// tells owners apart, the consumer tells who the owner is.
pub async fn run(shared: Arc<Shared>, lanes: Lanes, assigned: Assigned, options: LaneOptions) {
    let Assigned { topic, partition, from, committed, reader, stop, end } = assigned;
    let name = (Arc::clone(&topic), partition);
    lanes.update(&name, |report| report.progress = Some(Arc::clone(reader.progress())));
    let key = LaneKey { pipeline: Arc::clone(&shared.pipeline), topic, partition };
    let (metrics, key_pipeline) = (shared.metrics.clone(), Arc::clone(&shared.pipeline));
    let work = Work { shared, lanes: lanes.clone(), name: name.clone(), key, from, reader: &reader, options };
    let mut first = Some(committed);
    while !stop.is_cancelled() {
        let ready = tokio::select! {
            () = stop.cancelled() => break,
            ready = work.take_over(first.take()) => ready,
        };
        let Some(ready) = ready else { continue };
        match work.work(ready, &stop).await {
            Halt::Stopped => break,
            Halt::Fenced => {
                warn!(topic = %name.0, partition, "fenced off: taking the lane over again if it is still ours")
            }
        }
    }
    lanes.remove(&name, reader.progress());
    let partition_label = partition.to_string();
    for gauge in [&metrics.lag, &metrics.lane_paused] {
        // Not there if it was never observed.
        let _ = gauge.remove_label_values(&[&*key_pipeline, &*name.0, &*partition_label]);
    }
    // It may hold the last reference to a client that was replaced and never comes to an end: not on a thread of the
    // runtime, and not for long.
    let _ = tokio::time::timeout(LET_GO, tokio::task::spawn_blocking(move || drop(reader))).await;
    // Last: the polling thread takes it as the end of the lane.
    drop(end);
}

pub(super) struct Work<'a> {
    pub shared: Arc<Shared>,
    pub lanes: Lanes,
    pub name: LaneName,
    pub key: LaneKey,
    /// Where this assignment began to fetch.
    from: i64,
    pub reader: &'a PartitionReader,
    options: LaneOptions,
}

impl Work<'_> {
    /// Finds out where to start and makes the lane ours. None after a wait, to be called again.
    async fn take_over(&self, first: Option<Committed>) -> Option<Ready> {
        match self.try_take_over(first).await {
            Ok(Ok(ready)) => Some(ready),
            Ok(Err(reason)) => {
                error!(topic = %self.key.topic, partition = self.key.partition, "the lane does not start: {reason}");
                self.lanes.set(&self.name, LaneState::Stopped(reason));
                tokio::time::sleep(REFUSED_LOOK).await;
                None
            }
            Err(error) => {
                let text = error.with_advice();
                warn!(topic = %self.key.topic, partition = self.key.partition, "the lane cannot start yet: {text}");
                self.lanes.set(
                    &self.name,
                    match error.meaning() {
                        Meaning::Fatal => LaneState::Stopped(text),
                        Meaning::Transient
                        | Meaning::Unique
                        | Meaning::ForeignKey
                        | Meaning::Check
                        | Meaning::Poison => LaneState::Retrying(text),
                    },
                );
                tokio::time::sleep(RETRY).await;
                None
            }
        }
    }

    async fn try_take_over(&self, first: Option<Committed>) -> Result<Result<Ready, String>, StoreError> {
        let kafka = |error: rdkafka::error::KafkaError| StoreError::Unexpected(format!("kafka: {error}"));
        let (low, high) = self.reader.watermarks().await.map_err(kafka)?;
        let store = &self.shared.store;
        let row = store.lane(&self.key).await?;
        let epoch = store.meta(STORE_EPOCH).await?.ok_or_else(no_epoch)?;
        let former = store.meta(FORMER_EPOCHS).await?.unwrap_or_default();
        let former: Vec<String> = former.split(',').filter(|e| !e.is_empty()).map(str::to_owned).collect();
        let adopting = store.meta(ADOPTING_EPOCH).await?;
        // Later rounds ask the group again: the answer of the assignment is old by then.
        let (fetching_from, committed) = match first {
            Some(committed) => (Some(self.from), committed),
            None => (None, self.reader.committed().await.map_err(kafka)?),
        };
        let lane_next = row.as_ref().map(|row| row.next_offset);
        let facts = StartFacts {
            committed: committed.as_ref().map(|(offset, metadata)| (*offset, metadata.as_str())),
            low,
            high,
            lane_next,
            store_epoch: &epoch,
            former_epochs: &former,
            adopts: adopting.as_deref() == Some(&epoch),
            policy_offset: self.from,
            lost: self.options.lost,
        };
        let start = decide_start(&facts);
        if let Start::Refused(reason) = &start {
            return Ok(Err(reason.clone()));
        }
        let Some(from) = start.from() else { return Ok(Err("no offset to start from".to_owned())) };
        let owner = format!("{:016x}", rand::rng().random::<u64>());
        let mut tx = store.begin().await?;
        let mut row = tx.acquire_lane(&self.key, &owner, from).await?;
        // The first epoch is that of a row that was not there.
        if !facts.hold((row.epoch > 1).then_some(row.next_offset)) {
            tx.rollback().await;
            return Err(StoreError::Unexpected("the lane row went back while the lane was taken over".to_owned()));
        }
        self.announce(&start);
        if matches!(start, Start::TopicRecreated { .. }) {
            tx.regenerate_lane(&self.key, from).await?;
            row.generation += 1;
        }
        if facts.renew(&start) {
            row.store_epoch = tx.renew_store_epoch(&unique_word(), Some(&epoch)).await?;
        }
        tx.commit().await?;
        if fetching_from != Some(from) {
            self.reader.seek(from).await.map_err(kafka)?;
        }
        if row.next_offset >= from {
            // The row carries it: a quiet partition has an offset of its own from now on, whatever the policy says.
            self.reader.progress().complete(from, &row.store_epoch);
        }
        info!(topic = %self.key.topic, partition = self.key.partition, from, epoch = row.epoch, "lane taken over");
        self.lanes.update(&self.name, |report| {
            report.state = LaneState::Running;
            report.next = from;
        });
        let lane = Lane {
            key: self.key.clone(),
            generation: row.generation,
            tenure: Some(Tenure { epoch: row.epoch, owner }),
        };
        Ok(Ok(Ready { lane, next: from }))
    }

    fn announce(&self, start: &Start) {
        let (topic, partition) = (&*self.key.topic, self.key.partition);
        let kind = match start {
            Start::At(_) | Start::Refused(_) => return,
            Start::ResetForward(to) => {
                warn!(
                    topic,
                    partition, to, "an operator moved the group forward: the records in between are not applied"
                );
                "reset_forward"
            }
            Start::StoreWentBack { from, committed } => {
                error!(
                    topic,
                    partition, from, committed, "the database went back in time: reading again from its last state"
                );
                "store_went_back"
            }
            Start::TopicRecreated { from, committed } => {
                warn!(topic, partition, from, committed, "topic recreated: reading from its start");
                "topic_recreated"
            }
            Start::Lost { from, lost_from } => {
                error!(
                    topic,
                    partition,
                    from = lost_from,
                    to = from - 1,
                    "data lost: these offsets are gone from the broker"
                );
                "data_lost"
            }
        };
        self.shared.metrics.offset_events.with_label_values(&[&*self.shared.pipeline, kind]).inc();
    }

    /// Works until the lane is lost or asked to end.
    async fn work(&self, ready: Ready, stop: &CancellationToken) -> Halt {
        match self.shared.slices {
            0 | 1 => self.follow(ready, stop).await,
            count => self.follow_in_slices(ready, count, stop).await,
        }
    }

    /// Takes batch after batch, each as a whole.
    async fn follow(&self, ready: Ready, stop: &CancellationToken) -> Halt {
        let Ready { lane, mut next } = ready;
        let processor = self.processor(&lane, None, stop);
        let mut reader = Reader::new(Arc::clone(&self.shared.reader));
        let options = &self.shared.options;
        let progress = self.reader.progress();
        let mut intake = Intake::new();
        let mut ahead = None;
        loop {
            let (mut batch, mut taken) = match ahead.take() {
                Some(Ahead { items, claims, rest }) => (rest, Some((items, claims))),
                None => match self.next_batch(&mut intake, &processor, next, options.batch).await {
                    Ok(Some(batch)) => (batch, None),
                    Ok(None) => continue,
                    Err(halt) => return halt,
                },
            };
            loop {
                if let Err(halt) = processor.take_slot().await {
                    if let Some((_, claims)) = taken {
                        processor.release(claims).await;
                    }
                    return halt;
                }
                let (mut items, claims) = match taken.take() {
                    Some(taken) => taken,
                    None => match processor.read(&mut reader, &mut batch.records).await {
                        Ok(items) => {
                            let claims = processor.claim(&items).await;
                            (items, claims)
                        }
                        Err(halt) => return halt,
                    },
                };
                let upto = batch.records.front().map_or(batch.end, |record| record.position.offset);
                let backlog = items.len() >= options.batch && batch.records.is_empty() && !batch.broken;
                self.lanes.update(&self.name, |report| report.in_flight = items.len());
                let processed = processor.process_claimed(&mut items, claims, upto, |committed| {
                    next = committed.left.next_offset;
                    progress.complete(next, &committed.store_epoch);
                    self.lanes.update(&self.name, |report| {
                        report.next = next;
                        report.in_flight = report.in_flight.saturating_sub(committed.outcomes.len());
                    });
                });
                let prepared = async {
                    if backlog { self.prepare(&processor, (&mut intake, &mut reader), upto).await } else { None }
                };
                let (processed, prepared) = tokio::join!(processed, prepared);
                if let Err(halt) = processed {
                    if let Some(prepared) = prepared {
                        processor.release(prepared.claims).await;
                    }
                    return halt;
                }
                ahead = prepared;
                self.reader.hand_over(next, options.batch);
                drop(items);
                processor.leave_slot();
                if batch.records.is_empty() {
                    break;
                }
            }
            if batch.broken {
                return Halt::Fenced;
            }
        }
    }

    /// The lane's processor, or that of one of its slices.
    pub(super) fn processor(&self, lane: &Lane, slice: Option<Slice>, stop: &CancellationToken) -> Processor {
        Processor {
            shared: Arc::clone(&self.shared),
            lane: lane.clone(),
            lanes: self.lanes.clone(),
            stop: stop.clone(),
            known: Arc::default(),
            slice,
            // A former owner may have stood for a reason that is gone.
            told: Arc::new(Told::begin()),
            slot: Mutex::default(),
        }
    }
}

fn no_epoch() -> StoreError {
    StoreError::Setup("the store has no epoch: run `countersign migrate`".to_owned())
}
