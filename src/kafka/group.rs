//! The group's callbacks: lanes come and go with the assignment.
//!
//! All of them run on the consumer's polling thread. A revoke waits for its lanes at most the drain time and then
//! leaves them to the fence in the database; a lost partition is not waited for and nothing is committed for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::client::first_at;
use super::consumer::StartPolicy;
use super::partition::{Assigned, PartitionReader, Progress};
use crate::failpoint;

pub(super) type GroupConsumer = BaseConsumer<GroupContext>;

pub(super) struct GroupContext {
    /// Set right after the consumer is made; a strong reference would keep it from ever closing.
    pub consumer: OnceLock<Weak<GroupConsumer>>,
    pub lanes: Mutex<HashMap<(Arc<str>, i32), Slot>>,
    pub assigned: mpsc::UnboundedSender<Assigned>,
    pub start: StartPolicy,
    pub begun_with: HashMap<String, i32>,
    pub drain: Duration,
    /// The last error that says that the group cannot work, for readiness.
    pub trouble: Mutex<Option<String>>,
    pub fatal: Mutex<Option<String>>,
    /// From when to when the client was seen giving an assignment back without coming to an end of it. Both by what it
    /// says itself: while it says nothing, it may be busy with what comes next.
    pub giving_back: Mutex<Option<(Instant, Instant)>>,
    /// `group.instance.id`, if the membership is static.
    pub instance: Option<String>,
    pub stopping: CancellationToken,
}

/// An assigned partition as the polling thread sees it.
pub(super) struct Slot {
    pub stop: CancellationToken,
    pub progress: Arc<Progress>,
    /// Disconnects when the lane has ended.
    pub ended: std::sync::mpsc::Receiver<()>,
    /// What was handed to the broker last.
    pub sent: i64,
    /// The same when the statistics came last.
    pub sent_before: i64,
}

impl Slot {
    /// A commit is refused while the group comes to rest, and nobody is told: the client's events have no results of
    /// commits. What is not acknowledged from one look at the statistics to the next is handed over again.
    fn acknowledged(&mut self, committed: i64) {
        if self.sent != committed && self.sent == self.sent_before {
            self.sent = Progress::NOTHING;
        }
        self.sent_before = self.sent;
    }
}

/// How the names of those states of librdkafka's end in which it does not need its application any more to give
/// partitions back.
const GIVING_BACK: &str = "-to-complete";

/// How long a question to the broker may take inside a callback before it is asked again.
const ASK: Duration = Duration::from_secs(5);

impl GroupContext {
    pub fn lock(&self) -> MutexGuard<'_, HashMap<(Arc<str>, i32), Slot>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// The client has given up. With static membership the usual reason is a second member of the same name.
    pub fn set_fatal(&self, code: &str) {
        let text = match &self.instance {
            Some(instance) => format!("{code}: is there another member with group.instance.id {instance}?"),
            None => code.to_owned(),
        };
        error!("kafka gave up: {text}");
        *self.fatal.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Hands the outcomes of all lanes to the broker, if there are new ones.
    pub fn commit_new(&self, consumer: &GroupConsumer) {
        let mut list = TopicPartitionList::new();
        // Held until they are handed over: of two threads the later one must not be overtaken by older offsets.
        let mut lanes = self.lock();
        for ((topic, partition), slot) in lanes.iter_mut() {
            if let Some((offset, metadata)) = slot.progress.to_commit(slot.sent) {
                add(&mut list, topic, *partition, offset, &metadata);
                slot.sent = offset;
            }
        }
        if list.count() == 0 {
            return;
        }
        if let Err(error) = consumer.commit(&list, CommitMode::Async) {
            debug!(%error, "offsets are committed again later");
        }
        drop(lanes);
        failpoint::here("after-store-offset");
    }

    /// Hands the outcomes over now if not all below `least` are handed over yet, so that a death never costs more than two
    /// batches. The polling thread does it in time where batches are not that fast, or not that large.
    pub fn commit_overdue(&self, consumer: &GroupConsumer, lane: &(Arc<str>, i32), least: i64) {
        if self.lock().get(lane).is_some_and(|slot| slot.sent < least) {
            self.commit_new(consumer);
        }
    }

    /// Stops lanes, waits for them, and commits what they finished.
    pub fn end_lanes(&self, consumer: &GroupConsumer, partitions: Option<&TopicPartitionList>, lost: bool) {
        let ending: Vec<_> = {
            let mut lanes = self.lock();
            let keys: Vec<_> = match partitions {
                Some(list) => list.elements().iter().map(|e| (Arc::from(e.topic()), e.partition())).collect(),
                None => lanes.keys().cloned().collect(),
            };
            keys.into_iter().filter_map(|key| lanes.remove(&key).map(|slot| (key, slot))).collect()
        };
        for (_, slot) in &ending {
            slot.stop.cancel();
        }
        if lost {
            return;
        }
        let until = Instant::now() + self.drain;
        let mut list = TopicPartitionList::new();
        for ((topic, partition), slot) in &ending {
            let left = until.saturating_duration_since(Instant::now());
            if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = slot.ended.recv_timeout(left) {
                warn!(%topic, partition, "the lane did not end in time and is left to its fence");
            }
            if let Some((offset, metadata)) = slot.progress.to_commit(Progress::NOTHING) {
                add(&mut list, topic, *partition, offset, &metadata);
            }
        }
        if list.count() > 0
            && let Err(error) = consumer.commit(&list, CommitMode::Sync)
        {
            // The records come again and are found in the inbox.
            warn!(%error, "the last offsets were not committed");
        }
    }

    /// Where each new partition begins to be fetched: the committed offset, else the policy's. Asked again until
    /// there is an answer, for an assignment without one would leave the choice to `auto.offset.reset`.
    fn begin_lanes(&self, consumer: &GroupConsumer, list: &mut TopicPartitionList) {
        let Some(shared) = self.consumer.get().and_then(Weak::upgrade) else { return };
        let committed = self.ask("committed offsets", || {
            let list = consumer.committed_offsets(list.clone(), ASK)?;
            // The call succeeds though the question for one partition failed; that is no answer of "none".
            list.elements().iter().try_for_each(|element| element.error())?;
            Ok(list)
        });
        let committed = committed.map(|list| list.elements_for_lanes()).unwrap_or_default();
        let mut begun = Vec::new();
        for ((topic, partition), offset) in committed {
            let (from, committed) = match offset {
                Some((offset, metadata)) => (offset, Some((offset, metadata))),
                None => {
                    let from = self.ask("start offset", || self.policy_offset(consumer, &topic, partition));
                    let Some(from) = from else { continue };
                    (from, None)
                }
            };
            if let Err(error) = list.set_partition_offset(&topic, partition, Offset::Offset(from)) {
                error!(%topic, partition, %error, "a start offset was not taken");
            }
            begun.push((topic, partition, from, committed));
        }
        for (topic, partition, from, committed) in begun {
            // Before the assignment: librdkafka then leaves the queue as it is instead of forwarding it.
            let Some(queue) = shared.split_partition_queue(&topic, partition) else { continue };
            let (end, ended) = std::sync::mpsc::channel();
            let stop = self.stopping.child_token();
            let progress = Arc::new(Progress::default());
            let reader =
                PartitionReader::new(queue, Arc::clone(&shared), Arc::clone(&topic), partition, Arc::clone(&progress));
            let slot =
                Slot { stop: stop.clone(), progress, ended, sent: Progress::NOTHING, sent_before: Progress::NOTHING };
            self.lock().insert((Arc::clone(&topic), partition), slot);
            // Nobody listens once the pipeline is stopping.
            let _ = self.assigned.send(Assigned { topic, partition, from, committed, reader, stop, end });
        }
    }

    fn policy_offset(&self, consumer: &GroupConsumer, topic: &str, partition: i32) -> KafkaResult<i64> {
        let (low, high) = consumer.fetch_watermarks(topic, partition, ASK)?;
        let later = self.begun_with.get(topic).is_none_or(|partitions| partition >= *partitions);
        match self.start {
            StartPolicy::Earliest => Ok(low),
            _ if later => Ok(low),
            StartPolicy::Latest => Ok(high),
            StartPolicy::Timestamp(ms) => Ok(first_at(consumer, (topic, partition), ms, ASK)?.unwrap_or(high)),
        }
    }

    fn ask<T>(&self, what: &str, question: impl Fn() -> KafkaResult<T>) -> Option<T> {
        loop {
            match question() {
                Ok(answer) => return Some(answer),
                Err(error) if self.stopping.is_cancelled() => {
                    debug!(%error, what, "not asked again: stopping");
                    return None;
                }
                Err(error) => warn!(%error, what, "the broker did not answer, asking again"),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

type Committed = ((Arc<str>, i32), Option<(i64, String)>);

trait ElementsForLanes {
    fn elements_for_lanes(&self) -> Vec<Committed>;
}

impl ElementsForLanes for TopicPartitionList {
    fn elements_for_lanes(&self) -> Vec<Committed> {
        let elements = self.elements();
        let lanes = elements.iter().map(|element| {
            let committed = match element.offset() {
                Offset::Offset(offset) if offset >= 0 => Some((offset, element.metadata().to_owned())),
                _ => None,
            };
            ((Arc::from(element.topic()), element.partition()), committed)
        });
        lanes.collect()
    }
}

fn add(list: &mut TopicPartitionList, topic: &str, partition: i32, offset: i64, metadata: &str) {
    let added = list.add_partition_offset(topic, partition, Offset::Offset(offset));
    debug_assert!(added.is_ok(), "offsets of lanes are not negative");
    if let Some(mut element) = list.find_partition(topic, partition) {
        element.set_metadata(metadata);
    }
}

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => error!(fac, "{message}"),
            RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice => warn!(fac, "{message}"),
            RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => debug!(fac, "{message}"),
        }
    }

    /// Once a second: how far each log reaches, and what of it is committed. `eof_offset` is past markers and aborted
    /// records, which are never delivered.
    fn stats(&self, statistics: Statistics) {
        let mut lanes = self.lock();
        for ((topic, partition), slot) in lanes.iter_mut() {
            let Some(partition) = statistics.topics.get(&**topic).and_then(|t| t.partitions.get(partition)) else {
                continue;
            };
            slot.progress.observe(partition);
            slot.acknowledged(partition.committed_offset);
        }
        drop(lanes);
        let unsettled = statistics.cgrp.is_some_and(|group| group.join_state.ends_with(GIVING_BACK));
        let mut seen = self.giving_back.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        *seen = unsettled.then(|| (seen.map_or(now, |(first, _)| first), now));
        drop(seen);
        // One broker that answers is enough to be told about the others. Without an assignment there is nothing to
        // fetch, and connections that are not needed are closed.
        let up = statistics.brokers.values().any(|broker| matches!(broker.state.as_str(), "UP" | "UPDATE"));
        self.set_trouble((!up).then(|| "no Kafka broker can be reached".to_owned()));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        match code {
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure) => {
                debug!(reason, "kafka connection");
                if code == Some(RDKafkaErrorCode::AllBrokersDown) {
                    self.set_trouble(Some("no Kafka broker can be reached".to_owned()));
                }
            }
            // No trouble: rust-rdkafka tells of the end of a partition here as well.
            Some(RDKafkaErrorCode::PartitionEOF) => {}
            _ => {
                warn!(%error, reason, "kafka");
                self.set_trouble(Some(format!("kafka: {error}")));
            }
        }
    }
}

impl ConsumerContext for GroupContext {
    fn rebalance(&self, consumer: &GroupConsumer, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = match err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                self.begin_lanes(consumer, list);
                info!(partitions = list.count(), "assigned");
                consumer.incremental_assign(list)
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                let lost = consumer.assignment_lost();
                info!(partitions = list.count(), lost, "revoked");
                self.end_lanes(consumer, Some(list), lost);
                consumer.incremental_unassign(list)
            }
            other => {
                error!(error = ?RDKafkaErrorCode::from(other), "rebalance failed");
                self.end_lanes(consumer, None, true);
                consumer.unassign()
            }
        };
        if let Err(error) = done {
            error!(%error, "the assignment could not be changed");
        }
    }

    fn main_queue_min_poll_interval(&self) -> rdkafka::util::Timeout {
        rdkafka::util::Timeout::After(Duration::from_millis(100))
    }
}

/// Wakes a reader when its queue is not empty any more.
pub(super) fn waker(notify: &Arc<Notify>) -> impl Fn() + Send + Sync + 'static {
    let notify = Arc::clone(notify);
    move || notify.notify_one()
}

#[cfg(test)]
mod tests {
    use rdkafka::statistics::ConsumerGroup;

    use super::*;

    #[test]
    fn a_client_that_does_not_come_out_of_giving_back_is_noticed() {
        let (assigned, _lanes) = mpsc::unbounded_channel();
        let context = GroupContext {
            consumer: OnceLock::new(),
            lanes: Mutex::default(),
            assigned,
            start: StartPolicy::Earliest,
            begun_with: HashMap::new(),
            drain: Duration::ZERO,
            trouble: Mutex::default(),
            fatal: Mutex::default(),
            giving_back: Mutex::default(),
            instance: None,
            stopping: CancellationToken::new(),
        };
        let since = |join_state: &str| {
            let group = ConsumerGroup { join_state: join_state.to_owned(), ..ConsumerGroup::default() };
            context.stats(Statistics { cgrp: Some(group), ..Statistics::default() });
            context.giving_back.lock().unwrap().map(|(first, _)| first)
        };
        assert_eq!(since("steady"), None);
        let began = since("wait-incr-unassign-to-complete");
        assert!(began.is_some());
        assert_eq!(since("wait-unassign-to-complete"), began, "not begun anew");
        assert_eq!(since("wait-join"), None, "others of the group may take their time");
    }
}
