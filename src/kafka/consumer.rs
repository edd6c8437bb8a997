//! The consumer group member. Polling has a thread of its own, so that no slow work costs the membership.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::client::Connection;
use super::group::{GroupConsumer, GroupContext};
use super::partition::Assigned;

/// Where a group without offsets begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPolicy {
    #[default]
    Earliest,
    Latest,
    /// The first record at or after this time, in milliseconds since 1970.
    Timestamp(i64),
}

#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    pub connection: Connection,
    pub group: String,
    /// Names, and regular expressions that begin with `^`.
    pub topics: Vec<String>,
    pub start: StartPolicy,
    /// Partitions of each topic when the group began: `start` is about these. What came later is read from its start,
    /// or what was written before this member heard of it would be passed over in silence.
    pub begun_with: HashMap<String, i32>,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub max_poll_interval: Duration,
    /// Bytes and records that may wait in memory for one partition. Fetching goes on until one of them is reached.
    pub partition_bytes: usize,
    pub partition_records: usize,
    /// How long a revoke waits for the lanes at most.
    pub drain: Duration,
}

/// A running member of the group.
pub struct Consumer {
    context: Arc<GroupConsumer>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// How the group stands, for readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    pub lanes: usize,
    pub trouble: Option<String>,
    /// This member cannot work any more: another one has its instance id, or the client gave up.
    pub fatal: Option<String>,
    /// The client does not get on in the group's protocol, and may never: another one has to take its place.
    pub stuck: bool,
}

/// Nothing but its own requests keeps the client in a state of giving back. Most are answered at once; the longest are given
/// up after a minute, and some never: a new client costs less than to wait for that.
const STUCK: Duration = Duration::from_secs(10);
/// How long the client may take to leave the group.
const LEAVE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(50);

/// What the user's own options go before.
const DEFAULTS: [(&str, &str); 4] = [
    // New partitions and topics of a pattern are seen after this.
    ("topic.metadata.refresh.interval.ms", "10000"),
    // The broker answers with this much, or with what it has after that time. Otherwise it answers each record by itself,
    // and each has a transaction of its own, however many come: that takes several times as much of every processor.
    ("fetch.min.bytes", "65536"),
    ("fetch.wait.max.ms", "15"),
    // A queue that was full is looked at again after this; after a second, by default, a fast lane would stand most of it.
    ("fetch.queue.backoff.ms", "5"),
];

impl Consumer {
    /// Joins the group. Assigned partitions come through the channel.
    pub fn start(options: &ConsumerOptions) -> Result<(Self, mpsc::UnboundedReceiver<Assigned>), KafkaError> {
        let mut config = options.connection.config();
        let millis = |duration: Duration| duration.as_millis().to_string();
        config
            .set("group.id", &options.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // Only reached if a log loses its start while it is read; the lane then names what is gone.
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.partition.eof", "true")
            .set("statistics.interval.ms", "1000")
            .set("session.timeout.ms", millis(options.session_timeout))
            .set("heartbeat.interval.ms", millis(options.heartbeat_interval))
            .set("max.poll.interval.ms", millis(options.max_poll_interval))
            .set("queued.max.messages.kbytes", (options.partition_bytes / 1024).max(64).to_string())
            .set("queued.min.messages", options.partition_records.max(1).to_string());
        let given = &options.connection.options;
        for (name, value) in DEFAULTS {
            if !given.contains_key(name) {
                config.set(name, value);
            }
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let context = GroupContext {
            consumer: OnceLock::new(),
            lanes: Mutex::new(HashMap::new()),
            assigned: sender,
            start: options.start,
            begun_with: options.begun_with.clone(),
            drain: options.drain,
            trouble: Mutex::new(None),
            fatal: Mutex::new(None),
            giving_back: Mutex::new(None),
            instance: options.connection.options.get("group.instance.id").cloned(),
            stopping: stop.clone(),
        };
        let consumer: Arc<GroupConsumer> = Arc::new(config.create_with_context(context)?);
        let _ = consumer.context().consumer.set(Arc::downgrade(&consumer));
        let topics: Vec<&str> = options.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        let polled = Arc::clone(&consumer);
        let stopping = stop.clone();
        let drain = options.drain;
        let thread = std::thread::Builder::new()
            .name("kafka-poll".to_owned())
            .spawn(move || poll(&polled, &stopping, drain))
            .map_err(|_| KafkaError::Canceled)?;
        Ok((Self { context: consumer, stop, thread: Some(thread) }, receiver))
    }

    pub fn state(&self) -> GroupState {
        let context = self.context.context();
        let trouble = context.trouble.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let fatal = context.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        // Nobody polls any more: the group will throw this member out, and its lanes would not hear of it.
        let gone = self.thread.as_ref().is_some_and(JoinHandle::is_finished) && !self.stop.is_cancelled();
        let fatal = fatal.or_else(|| gone.then(|| "the polling thread ended by itself".to_owned()));
        let seen = *context.giving_back.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let stuck = seen.is_some_and(|(first, last)| last - first > STUCK);
        GroupState { lanes: context.lock().len(), trouble, fatal, stuck }
    }

    /// Ends all lanes within the drain time, commits their offsets and leaves the group.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                error!("the polling thread ended badly");
            }
        }
        // Closing waits for the broker, and may be the last reference: not on a thread of the runtime.
        let left = tokio::task::spawn_blocking(move || drop(self));
        if tokio::time::timeout(LEAVE, left).await.is_err() {
            warn!("the client does not come to an end and is left alone: the group hears of it by its session");
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn poll(consumer: &Arc<GroupConsumer>, stopping: &CancellationToken, drain: Duration) {
    let context = Arc::clone(consumer.context());
    while !stopping.is_cancelled() {
        match consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                // Every queue was split before its assignment, so that none can come here. If one does, its offset is
                // not past what its lane commits, and it is fetched again after the next assignment.
                use rdkafka::Message as _;
                warn!(topic = message.topic(), partition = message.partition(), "a record came outside its lane");
            }
            Some(Err(error)) => trouble(&context, &error),
        }
        context.commit_new(consumer);
    }
    context.end_lanes(consumer, None, false);
    consumer.unsubscribe();
    // Serves the revoke that unsubscribing causes, so that the group hears that we leave.
    let until = Instant::now() + drain.min(Duration::from_secs(2));
    while Instant::now() < until && consumer.assignment().is_ok_and(|list| list.count() > 0) {
        let _ = consumer.poll(POLL);
    }
}

fn trouble(context: &GroupContext, error: &KafkaError) {
    match error {
        KafkaError::PartitionEOF(_) => {}
        KafkaError::MessageConsumptionFatal(code) => context.set_fatal(&code.to_string()),
        KafkaError::MessageConsumption(_) => warn!(%error, "consumer"),
        other => {
            error!(error = %other, "consumer");
            context.set_trouble(Some(other.to_string()));
        }
    }
}
