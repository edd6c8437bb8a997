//! One assigned partition: its records in order, its progress, its end.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{Consumer as _, base_consumer::PartitionQueue};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::group::{GroupConsumer, GroupContext, waker};
use crate::record::{Header, Record, RecordPosition};

/// A partition that this process got.
pub struct Assigned {
    pub topic: Arc<str>,
    pub partition: i32,
    /// Where fetching begins.
    pub from: i64,
    /// The group's offset and its metadata, if it has one.
    pub committed: Option<(i64, String)>,
    pub reader: PartitionReader,
    /// Cancelled when the partition goes.
    pub stop: CancellationToken,
    /// Dropped by the lane when it has ended: the revoke waits for it. Last, after the reader.
    pub end: std::sync::mpsc::Sender<()>,
}

/// What lane and polling thread tell each other.
#[derive(Debug, Default)]
pub struct Progress {
    /// Next offset with all before it durable, and the metadata to commit with it.
    done: Mutex<Option<(i64, String)>>,
    end: Mutex<EndOfLog>,
    /// Last stable offset, or the high watermark.
    high: AtomicI64,
    /// First offset of the log.
    low: AtomicI64,
}

/// Where the log ends, markers and aborted records included, which are never delivered.
///
/// Statistics tell the offset, but may be older than the last seek or assignment, and a lane that believed them would
/// pass over records. They count only after the queue itself has delivered an end of the partition, for librdkafka
/// throws away what a queue holds from before a seek; and only from the second time on, for the first may have been
/// taken before that event.
#[derive(Debug, Default)]
struct EndOfLog {
    reached: bool,
    told: u32,
    offset: Option<i64>,
}

impl Progress {
    pub(super) const NOTHING: i64 = -1;

    fn end(&self) -> MutexGuard<'_, EndOfLog> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All below `next` has a durable outcome.
    pub fn complete(&self, next: i64, metadata: &str) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = Some((next, metadata.to_owned()));
    }

    pub(super) fn to_commit(&self, sent: i64) -> Option<(i64, String)> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.clone().filter(|(next, _)| *next != sent)
    }

    pub(super) fn observe(&self, partition: &rdkafka::statistics::Partition) {
        self.low.store(partition.lo_offset, Ordering::Release);
        let high = if partition.ls_offset >= 0 { partition.ls_offset } else { partition.hi_offset };
        self.high.store(high, Ordering::Release);
        let mut end = self.end();
        if !end.reached {
            return;
        }
        end.told += 1;
        let at_end = partition.fetchq_cnt == 0 && partition.eof_offset == partition.next_offset;
        end.offset = (at_end && end.told > 1).then_some(partition.eof_offset);
    }

    /// Records between `next` and the end of what may be read; none if that is not known.
    pub fn lag(&self, next: i64) -> Option<i64> {
        let high = self.high.load(Ordering::Acquire);
        (high > 0).then(|| (high - next).max(0))
    }

    /// First offset that the broker still has, as far as is known.
    pub fn low(&self) -> i64 {
        self.low.load(Ordering::Acquire)
    }
}

/// What came from a partition; nothing at all where its end was met again. An error comes alone: what stands before it is
/// read first, and what stands behind it is fetched anew.
#[derive(Debug, Default)]
pub struct Fetched {
    pub records: Vec<Record>,
    /// The log was read to its end: all below has been delivered, markers and aborted records included.
    pub end: Option<i64>,
    /// Why nothing can be read, if the broker said so.
    pub error: Option<String>,
}

/// The records of one partition. While nobody calls, librdkafka's queue fills to its bound and stops fetching.
pub struct PartitionReader {
    queue: PartitionQueue<GroupContext>,
    consumer: Arc<GroupConsumer>,
    topic: Arc<str>,
    partition: i32,
    notify: Arc<Notify>,
    progress: Arc<Progress>,
    /// Met behind records, and still to be told.
    error: Mutex<Option<String>>,
}

/// What librdkafka's queue held.
#[derive(Default)]
struct Taken {
    records: Vec<Record>,
    error: Option<String>,
    met_end: bool,
}

/// How often a quiet partition looks whether its log ends later than its last record.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const ASK: Duration = Duration::from_secs(5);

impl PartitionReader {
    pub(super) fn new(
        mut queue: PartitionQueue<GroupContext>,
        consumer: Arc<GroupConsumer>,
        topic: Arc<str>,
        partition: i32,
        progress: Arc<Progress>,
    ) -> Self {
        let notify = Arc::new(Notify::new());
        queue.set_nonempty_callback(waker(&notify));
        Self { queue, consumer, topic, partition, notify, progress, error: Mutex::new(None) }
    }

    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Waits for records and takes at most this many, or a little over these bytes. `next` is the offset that the
    /// caller expects; an end of the log beyond it is reported once everything before it was delivered.
    pub async fn fetch(&self, next: i64, max_records: usize, max_bytes: usize) -> Fetched {
        loop {
            // Read before the queue is: what the end covers was in the queue by then.
            let end = self.progress.end().offset;
            let taken = self.take(max_records, max_bytes);
            if taken.met_end || !taken.records.is_empty() || taken.error.is_some() {
                return Fetched { records: taken.records, end: None, error: taken.error };
            }
            if end.is_some_and(|end| end > next) {
                return Fetched { end, ..Fetched::default() };
            }
            // A time-out beside the notification: the end of the log moves without one.
            let _ = tokio::time::timeout(LOOK_AGAIN, self.notify.notified()).await;
        }
    }

    fn take(&self, max_records: usize, max_bytes: usize) -> Taken {
        let mut taken = self.queued(max_records, max_bytes);
        if taken.records.is_empty() {
            taken.error = self.error().take();
        }
        taken
    }

    fn queued(&self, max_records: usize, max_bytes: usize) -> Taken {
        let (mut taken, mut bytes) = (Taken::default(), 0);
        while self.error().is_none() && taken.records.len() < max_records && bytes < max_bytes {
            match self.queue.poll(Duration::ZERO) {
                None => break,
                Some(Ok(message)) => {
                    let record = record_of(&message, &self.topic);
                    bytes += record.size();
                    taken.records.push(record);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.progress.end().reached = true;
                    taken.met_end = true;
                }
                Some(Err(error)) => {
                    *self.error() = Some(error.to_string());
                    break;
                }
            }
        }
        taken
    }

    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After each batch: `next` is behind it, and no batch has more than `most` records.
    pub fn hand_over(&self, next: i64, most: usize) {
        let lane = (Arc::clone(&self.topic), self.partition);
        self.consumer.context().commit_overdue(&self.consumer, &lane, next - most as i64);
    }

    /// Takes what came meanwhile along with records that were fetched before.
    pub fn top_up(&self, fetched: &mut Fetched, max_records: usize, max_bytes: usize) {
        let bytes: usize = fetched.records.iter().map(Record::size).sum();
        let room = max_records.saturating_sub(fetched.records.len());
        // An error stays behind until there are no records before it.
        let taken = self.queued(room, max_bytes.saturating_sub(bytes));
        fetched.records.extend(taken.records);
    }

    /// First offset that the broker has, and the one after its last.
    pub async fn watermarks(&self) -> KafkaResult<(i64, i64)> {
        self.ask(|consumer, topic, partition| consumer.fetch_watermarks(topic, partition, ASK)).await
    }

    /// The group's committed offset and its metadata, if there is one.
    pub async fn committed(&self) -> KafkaResult<Option<(i64, String)>> {
        let ask = |consumer: &GroupConsumer, topic: &str, partition| {
            let mut list = TopicPartitionList::new();
            list.add_partition(topic, partition);
            let list = consumer.committed_offsets(list, ASK)?;
            list.elements().iter().try_for_each(|element| element.error())?;
            Ok(list.elements().first().and_then(|element| match element.offset() {
                Offset::Offset(offset) if offset >= 0 => Some((offset, element.metadata().to_owned())),
                _ => None,
            }))
        };
        self.ask(ask).await
    }

    /// Goes on from another offset; what was fetched before is thrown away by librdkafka.
    pub async fn seek(&self, offset: i64) -> KafkaResult<()> {
        self.ask(move |consumer, topic, partition| consumer.seek(topic, partition, Offset::Offset(offset), ASK))
            .await?;
        // What is known of the end, and what went wrong, belongs to what was read before.
        *self.progress.end() = EndOfLog::default();
        *self.error() = None;
        Ok(())
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&GroupConsumer, &str, i32) -> KafkaResult<T> + Send + 'static,
    ) -> KafkaResult<T> {
        let (consumer, topic, partition) = (Arc::clone(&self.consumer), Arc::clone(&self.topic), self.partition);
        let answer = tokio::task::spawn_blocking(move || question(&consumer, &topic, partition)).await;
        answer.unwrap_or(Err(KafkaError::Canceled))
    }
}

/// The record with its bytes untouched.
pub(super) fn record_of(message: &BorrowedMessage<'_>, topic: &Arc<str>) -> Record {
    let headers = message.headers().map_or_else(Vec::new, |headers| {
        headers
            .iter()
            .map(|header| Header { name: header.key.to_owned(), value: header.value.map(<[u8]>::to_vec) })
            .collect()
    });
    Record {
        position: RecordPosition { topic: Arc::clone(topic), partition: message.partition(), offset: message.offset() },
        timestamp_ms: message.timestamp().to_millis(),
        headers,
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
    }
}
