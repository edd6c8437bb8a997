//! The broker: topics, offsets, and records produced and read without the daemon.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use crate::world::{block_on, env, holds, until};

const ASK: Duration = Duration::from_secs(10);

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", env("COUNTERSIGN_KAFKA"));
    config
}

static ADMIN: LazyLock<AdminClient<DefaultClientContext>> = LazyLock::new(|| config().create().unwrap());

pub fn topics() -> Vec<String> {
    let metadata = ADMIN.inner().fetch_metadata(None, ASK).unwrap();
    metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
}

pub fn create(topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        new = new.set(key, value);
    }
    let made = block_on(ADMIN.create_topics([&new], &AdminOptions::new())).unwrap();
    made.into_iter().for_each(|topic| drop(topic.unwrap()));
    // Asked by a consumer: the admin client would ask for the topic again and again, and so make it anew when it is gone.
    let consumer: BaseConsumer = config().create().unwrap();
    until(10, "the topic's partitions", || {
        let metadata = consumer.fetch_metadata(Some(topic), ASK).unwrap();
        let ready = metadata.topics()[0].partitions().iter().filter(|p| p.leader() >= 0).count();
        holds(ready == partitions as usize, || format!("{ready} of {partitions}"))
    });
}

pub fn add_partitions(topic: &str, partitions: usize) {
    let more = NewPartitions::new(topic, partitions);
    let made = block_on(ADMIN.create_partitions([&more], &AdminOptions::new())).unwrap();
    made.into_iter().for_each(|topic| drop(topic.unwrap()));
}

/// Takes away what stands before this offset, as retention does.
pub fn delete_records(topic: &str, partition: i32, before: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(before)).unwrap();
    block_on(ADMIN.delete_records(&list, &AdminOptions::new())).unwrap();
    until(10, "the log to begin there", || {
        let consumer: BaseConsumer = config().create().unwrap();
        let (low, _) = consumer.fetch_watermarks(topic, partition, ASK).map_err(|error| error.to_string())?;
        holds(low == before, || format!("{low}"))
    });
}

/// Deletes all topics and the groups whose name has this in it.
pub fn delete(name: &str) {
    let topics = topics();
    let doomed: Vec<&str> = topics.iter().map(String::as_str).filter(|topic| topic.contains(name)).collect();
    if !doomed.is_empty() {
        let gone = block_on(ADMIN.delete_topics(&doomed, &AdminOptions::new())).unwrap();
        gone.into_iter().for_each(|topic| drop(topic.unwrap()));
    }
    // A killed member keeps its group until its session ends, and a group without offsets and members ends by itself.
    let groups = ADMIN.inner().fetch_group_list(None, ASK).unwrap();
    let doomed: Vec<&str> = groups.groups().iter().map(|g| g.name()).filter(|group| group.starts_with(name)).collect();
    if !doomed.is_empty() {
        let _ = block_on(ADMIN.delete_groups(&doomed, &AdminOptions::new()));
    }
}

/// The offset after the last record of each partition, up to the last stable one; empty while there is no such topic.
pub fn ends(topic: &str) -> Vec<i64> {
    let consumer: BaseConsumer = config().set("isolation.level", "read_committed").create().unwrap();
    // A topic that was just made has no leaders for a moment.
    until(10, "the topic's ends", || {
        let metadata = consumer.fetch_metadata(Some(topic), ASK).map_err(|error| error.to_string())?;
        let partitions = 0..metadata.topics()[0].partitions().len() as i32;
        let ends = partitions.map(|partition| Ok(consumer.fetch_watermarks(topic, partition, ASK)?.1));
        ends.collect::<Result<_, KafkaError>>().map_err(|error| error.to_string())
    })
}

/// What the group has committed of each partition; -1 where nothing is.
pub fn committed(group: &str, topic: &str) -> Vec<i64> {
    let consumer: BaseConsumer = config().set("group.id", group).create().unwrap();
    let partitions = consumer.fetch_metadata(Some(topic), ASK).unwrap().topics()[0].partitions().len();
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, partitions as i32 - 1);
    let list = consumer.committed_offsets(list, ASK).unwrap();
    let offsets = list.elements().into_iter().map(|element| match element.offset() {
        Offset::Offset(offset) => offset,
        _ => -1,
    });
    offsets.collect()
}

/// Waits until the group has committed everything. Partitions without records need no offset.
pub fn until_committed(seconds: u64, group: &str, topic: &str) {
    until(seconds, "all offsets to be committed", || {
        let (committed, ends) = (committed(group, topic), ends(topic));
        let done = committed.iter().zip(&ends).all(|(committed, end)| committed == end || *end == 0);
        holds(done, || format!("{topic}: committed {committed:?} of {ends:?}"))
    });
}

/// A record's value as it was read.
pub type Value = Vec<u8>;

/// A consumer of so many partitions of a topic, from their first records on.
pub fn reader(topic: &str, partitions: usize, settings: &[(&str, &str)]) -> BaseConsumer {
    let mut config = config();
    config.set("group.id", "real-reader").set("enable.auto.commit", "false");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions as i32 {
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    consumer
}

/// Every value of a topic, from its first record to its last.
pub fn values(topic: &str) -> Vec<Value> {
    let ends = ends(topic);
    let consumer = reader(topic, ends.len(), &[]);
    let mut left: Vec<bool> = ends.iter().map(|end| *end > 0).collect();
    let mut values = Vec::new();
    while left.iter().any(|left| *left) {
        let message = consumer.poll(ASK).expect("the topic's next record").unwrap();
        let partition = message.partition() as usize;
        left[partition] = message.offset() + 1 < ends[partition];
        values.push(message.payload().unwrap_or_default().to_owned());
    }
    values
}

/// Counts what the broker did not take.
#[derive(Default)]
pub struct Deliveries {
    failed: AtomicUsize,
}

impl ClientContext for Deliveries {}
impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub struct Producer(ThreadedProducer<Deliveries>);

/// One record; the key decides the partition if none is given.
#[derive(Default)]
pub struct Out<'a> {
    pub topic: &'a str,
    pub partition: Option<i32>,
    pub key: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub value: &'a str,
}

impl Producer {
    pub fn new(settings: &[(&str, &str)]) -> Self {
        let mut config = config();
        config.set("linger.ms", "5").set("compression.type", "lz4").set("enable.idempotence", "true");
        config.set("queue.buffering.max.messages", "200000").set("message.max.bytes", "20000000");
        for (key, value) in settings {
            config.set(*key, *value);
        }
        Self(config.create_with_context(Deliveries::default()).unwrap())
    }

    pub fn transactional(id: &str) -> Self {
        let producer = Self::new(&[("transactional.id", id)]);
        producer.0.init_transactions(ASK).unwrap();
        producer
    }

    pub fn send(&self, out: &Out<'_>) {
        let headers = out.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value.as_bytes()) })
        });
        let mut record = BaseRecord::to(out.topic).key(out.key).payload(out.value).headers(headers);
        record.partition = out.partition;
        loop {
            match self.0.send(record) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => record = back,
                Err((error, _)) => panic!("{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Until the broker has all of it.
    pub fn flush(&self) {
        self.0.flush(Duration::from_secs(60)).unwrap();
        assert_eq!(self.0.client().context().failed.load(Ordering::Relaxed), 0, "records that the broker did not take");
    }

    pub fn begin(&self) {
        self.0.begin_transaction().unwrap();
    }

    pub fn commit(&self) {
        self.0.commit_transaction(ASK).unwrap();
    }

    pub fn abort(&self) {
        self.0.abort_transaction(ASK).unwrap();
    }
}
