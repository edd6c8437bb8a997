//! Kafka: librdkafka's mock cluster in this process, with a producer and a look at what is in it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rdkafka::bindings::{rd_kafka_handle_mock_cluster, rd_kafka_mock_group_initial_rebalance_delay_ms};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};

use crate::wait::PATIENCE;

/// When the members of a group change, the mock waits for the rest of it a second less than this.
pub const SESSION_MS: &str = "3000";
/// How long it waits when a group begins. Its own three seconds are as long as the session: it would now and then throw
/// out a member that waits, and never answer it.
const FIRST_JOIN_MS: i32 = 300;
const ASK: Duration = Duration::from_secs(10);

/// The cluster lives in its producer.
pub struct Broker {
    producer: FutureProducer,
}

/// A record to be sent.
#[derive(Clone, Debug)]
pub struct Rec {
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    /// Milliseconds since 1970; the time of sending if there is none.
    pub timestamp: Option<i64>,
}

impl Rec {
    pub fn bare(value: impl Into<Vec<u8>>) -> Self {
        Self { partition: 0, key: None, value: Some(value.into()), headers: Vec::new(), timestamp: None }
    }

    /// With its message id in the header `id`.
    pub fn new(id: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::bare(value).header("id", id)
    }

    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub fn on(mut self, partition: i32) -> Self {
        self.partition = partition;
        self
    }

    pub fn at(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    pub fn tombstone(key: impl Into<Vec<u8>>) -> Self {
        Self { value: None, ..Self::bare("").key(key) }
    }
}

impl Broker {
    pub fn start() -> Self {
        let producer: FutureProducer = ClientConfig::new()
            .set("test.mock.num.brokers", "1")
            .set("message.max.bytes", "20000000")
            .set("linger.ms", "0")
            .create()
            .unwrap();
        let client = producer.client().native_ptr();
        #[allow(unsafe_code, reason = "the safe interface does not have it")]
        // SAFETY: the client was made with a mock cluster and is alive; the call sets a number that later groups read.
        unsafe {
            rd_kafka_mock_group_initial_rebalance_delay_ms(rd_kafka_handle_mock_cluster(client), FIRST_JOIN_MS);
        }
        Self { producer }
    }

    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.cluster().create_topic(name, partitions, 1).unwrap();
    }

    pub fn address(&self) -> String {
        self.cluster().bootstrap_servers()
    }

    pub fn cluster(&self) -> MockCluster<'_, impl ClientContext> {
        self.producer.client().mock_cluster().expect("the client was made with one")
    }

    /// Sends in this order and waits until the broker has everything.
    pub async fn send(&self, topic: &str, records: &[Rec]) {
        let mut sent = Vec::with_capacity(records.len());
        for record in records {
            let mut headers = OwnedHeaders::new();
            for (name, value) in &record.headers {
                headers = headers.insert(Header { key: name, value: Some(value) });
            }
            let mut message: FutureRecord<'_, [u8], [u8]> =
                FutureRecord::to(topic).partition(record.partition).headers(headers);
            message.key = record.key.as_deref();
            message.payload = record.value.as_deref();
            message.timestamp = record.timestamp;
            sent.push(self.producer.send_result(message).map_err(|(error, _)| error).unwrap());
        }
        for delivered in join_all(sent).await {
            delivered.unwrap().map_err(|(error, _)| error).unwrap();
        }
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", self.address())
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("session.timeout.ms", SESSION_MS)
            .set("enable.partition.eof", "true")
            .create()
            .unwrap()
    }

    /// The group's offset of a partition and its metadata.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<(i64, String)> {
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let list = self.consumer(group).committed_offsets(list, ASK).unwrap();
        let elements = list.elements();
        match elements[0].offset() {
            Offset::Offset(offset) if offset >= 0 => Some((offset, elements[0].metadata().to_owned())),
            _ => None,
        }
    }

    /// Commits for a group in which nobody is, as an operator's tool does.
    pub fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64, metadata: &str) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        list.find_partition(topic, partition).unwrap().set_metadata(metadata);
        let consumer = self.consumer(group);
        let deadline = Instant::now() + PATIENCE;
        let poll_until = |assigned: bool| {
            while (consumer.assignment().unwrap().count() > 0) != assigned {
                assert!(Instant::now() < deadline, "an operator's tool gets in and out of the group: {assigned}");
                let _ = consumer.poll(Duration::from_millis(50));
            }
        };
        // The mock takes commits of members alone, so that the operator has to be one for a moment.
        consumer.subscribe(&[topic]).unwrap();
        poll_until(true);
        consumer.commit(&list, CommitMode::Sync).unwrap();
        consumer.unsubscribe();
        poll_until(false);
    }

    /// Everything in a topic: key, value and headers, the partitions one after the other.
    pub fn read_all(&self, topic: &str, partitions: i32) -> Vec<Rec> {
        let consumer = self.consumer("reads-all");
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let (mut records, mut ends) = (Vec::new(), 0);
        let deadline = Instant::now() + PATIENCE;
        while ends < partitions {
            assert!(Instant::now() < deadline, "{topic} has no end");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => records.push(Rec {
                    partition: message.partition(),
                    timestamp: message.timestamp().to_millis(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    headers: message.headers().map_or_else(Vec::new, |headers| {
                        let value = |h: Header<'_, &[u8]>| h.value.unwrap_or_default().to_vec();
                        headers.iter().map(|header| (header.key.to_owned(), value(header))).collect()
                    }),
                }),
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => ends += 1,
                Some(Err(error)) => panic!("{topic}: {error}"),
                None => {}
            }
        }
        records.sort_by_key(|record| record.partition);
        records
    }
}
