//! A bounded window of a topic, read without a group: partitions are assigned by hand and nothing is committed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use tracing::debug;

use super::client::{Connection, first_at};
use super::inspect::{Questions, Unanswered};
use super::partition::record_of;
use crate::record::Record;

/// One end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Beginning,
    End,
    Offset(i64),
    /// The first record at or after this time, in milliseconds since 1970-01-01 UTC.
    Time(i64),
}

#[derive(Clone, Debug)]
pub struct WindowOptions {
    pub connection: Connection,
    pub topic: String,
    /// All of them if none is named.
    pub partition: Option<i32>,
    pub from: Bound,
    /// Exclusive.
    pub to: Bound,
}

/// The part of one partition that stands in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub partition: i32,
    /// First offset.
    pub from: i64,
    /// The offset behind the last one, known when the window was opened: what is written later stands outside.
    pub to: i64,
    /// Offsets that were asked for and are gone from the log already.
    pub gone: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error("kafka does not answer: {0}")]
    Unreachable(String),
    #[error("kafka refuses: {0}")]
    Refused(String),
    #[error("kafka: {0}")]
    Setup(String),
    #[error("there is no topic {0}")]
    NoTopic(String),
    #[error("topic {topic} has no partition {partition}, it has {count}")]
    NoPartition { topic: String, partition: i32, count: usize },
    #[error("{topic}/{partition} lost its records from {offset} on while it was read: retention or a new topic")]
    Lost { topic: String, partition: i32, offset: i64 },
    #[error(
        "{topic}/{partition}: offsets {from} to {last} were not read, for a transaction that began at {from} is open \
         still: wait for its end, or ask for less with `--to {from}`"
    )]
    Open { topic: String, partition: i32, from: i64, last: i64 },
}

/// A window whose bounds are known.
pub struct Window {
    consumer: BaseConsumer,
    /// Sees open transactions too: asked for the ends of logs, reads nothing.
    asker: BaseConsumer,
    topic: Arc<str>,
    spans: Vec<Span>,
}

/// librdkafka assigns nothing to a client without a group's name. The group is never joined.
const GROUP: &str = "countersign-window";
const ASK: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// A partition that is not read to its end delivers something, or an end, long before.
const SILENCE: Duration = Duration::from_secs(30);
/// Between two looks whether an open transaction has ended.
const LOOK: Duration = Duration::from_millis(200);

/// How the reading of a partition ended.
enum Ended {
    /// Nothing more is wanted.
    Enough,
    /// At or behind the window's end.
    Behind,
    /// At the last stable offset, wherever that was.
    LastStable,
}

impl Window {
    /// Finds the bounds. Blocks, as [`Window::read`] does: not for the async runtime's threads.
    pub fn open(options: &WindowOptions) -> Result<Self, WindowError> {
        let unanswered = |error: Unanswered| match error {
            Unanswered::Refused(text) => WindowError::Refused(text),
            Unanswered::Unreachable(text) => WindowError::Unreachable(text),
            Unanswered::Setup(text) | Unanswered::Unsupported(text) => WindowError::Setup(text),
        };
        let cluster = Questions::new(&options.connection).and_then(|ask| ask.cluster(ASK)).map_err(unanswered)?;
        let topic = cluster.topics.iter().find(|topic| topic.name == options.topic && topic.partitions > 0);
        let count = topic.ok_or_else(|| WindowError::NoTopic(options.topic.clone()))?.partitions;
        let partitions = match options.partition {
            None => 0..i32::try_from(count).unwrap_or(i32::MAX),
            Some(partition) if usize::try_from(partition).is_ok_and(|partition| partition < count) => {
                partition..partition + 1
            }
            Some(partition) => {
                return Err(WindowError::NoPartition { topic: options.topic.clone(), partition, count });
            }
        };
        let consumer = consumer(&options.connection, "read_committed")?;
        let asker = self::consumer(&options.connection, "read_uncommitted")?;
        let spans = partitions.map(|partition| span(&asker, options, partition)).collect::<Result<_, _>>()?;
        Ok(Self { consumer, asker, topic: Arc::from(options.topic.as_str()), spans })
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Reads partition after partition, each in the order of its offsets and to the end of its span, until `each` says
    /// false or `stopped` true.
    pub fn read(self, stopped: &dyn Fn() -> bool, each: &mut dyn FnMut(Record) -> bool) -> Result<(), WindowError> {
        for span in self.spans.iter().filter(|span| span.from < span.to) {
            if !self.read_span(span, stopped, each)? {
                break;
            }
        }
        Ok(())
    }

    /// False if nothing more is wanted.
    ///
    /// Offsets of markers, of aborted records and of those that compaction took are never delivered. That all is read is
    /// known by a record at or behind the end of the span, or by the end of what is stable, if that was at or behind it
    /// before this reading began: librdkafka does not say which end it came to.
    fn read_span(
        &self,
        span: &Span,
        stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<bool, WindowError> {
        let mut next = span.from;
        let mut stable = self.stable(span)?;
        loop {
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&self.topic, span.partition, Offset::Offset(next)).map_err(told)?;
            self.consumer.assign(&list).map_err(told)?;
            match self.read_stable(span, &mut next, stopped, each)? {
                Ended::Enough => return Ok(false),
                Ended::Behind => return Ok(true),
                Ended::LastStable if stable >= span.to => return Ok(true),
                Ended::LastStable => match self.await_stable(span, stable.max(next), stopped)? {
                    Some(grown) => stable = grown,
                    None => return Ok(false),
                },
            }
        }
    }

    /// Reads on from `next` until the end of the span, or of what is stable.
    fn read_stable(
        &self,
        span: &Span,
        next: &mut i64,
        stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Ended, WindowError> {
        let mut heard = Instant::now();
        let mut trouble = None;
        while *next < span.to {
            if stopped() {
                return Ok(Ended::Enough);
            }
            match self.consumer.poll(POLL) {
                // Of the partition before, or fetched before this reading began.
                Some(Ok(message)) if message.partition() != span.partition || message.offset() < *next => {}
                Some(Ok(message)) => {
                    if message.offset() >= span.to {
                        break;
                    }
                    *next = message.offset() + 1;
                    if !each(record_of(&message, &self.topic)) {
                        return Ok(Ended::Enough);
                    }
                    heard = Instant::now();
                }
                None => {}
                Some(Err(KafkaError::PartitionEOF(partition))) if partition == span.partition => {
                    return Ok(Ended::LastStable);
                }
                Some(Err(error)) => trouble = self.trouble(error, span, *next)?.or(trouble),
            }
            if heard.elapsed() > SILENCE {
                let what = trouble.unwrap_or_else(|| "nothing more comes".to_owned());
                return Err(WindowError::Unreachable(format!("{}/{}: {what}", self.topic, span.partition)));
            }
        }
        Ok(Ended::Behind)
    }

    /// The offset behind the last stable record: an open transaction begins there, or the log ends.
    fn stable(&self, span: &Span) -> Result<i64, WindowError> {
        self.consumer.fetch_watermarks(&self.topic, span.partition, ASK).map(|(_, stable)| stable).map_err(unreachable)
    }

    /// Waits until more is stable than `stable`, but not for ever. None if it was stopped.
    fn await_stable(&self, span: &Span, stable: i64, stopped: &dyn Fn() -> bool) -> Result<Option<i64>, WindowError> {
        let began = Instant::now();
        loop {
            let now = self.stable(span)?;
            if now > stable {
                return Ok(Some(now));
            }
            let (topic, partition) = (self.topic.to_string(), span.partition);
            let (_, high) = self.asker.fetch_watermarks(&self.topic, partition, ASK).map_err(unreachable)?;
            if high < span.to {
                return Err(WindowError::Lost { topic, partition, offset: high });
            }
            if began.elapsed() > SILENCE {
                return Err(WindowError::Open { topic, partition, from: now, last: span.to - 1 });
            }
            if stopped() {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What may pass by itself is only noted.
    fn trouble(&self, error: KafkaError, span: &Span, next: i64) -> Result<Option<String>, WindowError> {
        let text = error.to_string();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                Err(WindowError::Lost { topic: self.topic.to_string(), partition: span.partition, offset: next })
            }
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::Authentication,
            ) => Err(WindowError::Refused(text)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                Err(WindowError::NoTopic(self.topic.to_string()))
            }
            _ => {
                // Among them that the group's coordinator may not be asked: nobody needs it.
                debug!(%error, "window");
                Ok(Some(text))
            }
        }
    }
}

fn consumer(connection: &Connection, isolation: &str) -> Result<BaseConsumer, WindowError> {
    let mut config = connection.config();
    config
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // Beginning somewhere else would pass over records without a word.
        .set("auto.offset.reset", "error")
        .set("isolation.level", isolation)
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "16384")
        .set("queued.min.messages", "10000");
    config.create().map_err(told)
}

fn span(consumer: &BaseConsumer, options: &WindowOptions, partition: i32) -> Result<Span, WindowError> {
    let (low, high) = consumer.fetch_watermarks(&options.topic, partition, ASK).map_err(unreachable)?;
    let place = |bound: Bound| match bound {
        Bound::Beginning => Ok(low),
        Bound::End => Ok(high),
        Bound::Offset(offset) => Ok(offset),
        Bound::Time(ms) => {
            let found = first_at(consumer, (&options.topic, partition), ms, ASK).map_err(unreachable)?;
            Ok(found.unwrap_or(high))
        }
    };
    let (from, to) = (place(options.from)?, place(options.to)?.min(high));
    Ok(Span { partition, from: from.max(low), to, gone: (low - from).max(0) })
}

fn unreachable(error: KafkaError) -> WindowError {
    match told(error) {
        WindowError::Setup(text) => WindowError::Unreachable(text),
        other => other,
    }
}

/// The error without the value of an option, which may be a secret.
fn told(error: KafkaError) -> WindowError {
    WindowError::Setup(match error {
        KafkaError::ClientConfig(_, _, name, _) => format!("librdkafka does not take the value of {name}"),
        other => other.to_string(),
    })
}
