//! Client settings that safety rests on, and questions to a broker.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaType;
use rdkafka::{Offset, TopicPartitionList};

/// How to reach the brokers, as librdkafka takes it.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub brokers: String,
    /// Pass-through options, checked by the configuration: none of them is set by this program.
    pub options: BTreeMap<String, String>,
}

impl Connection {
    /// The user's options first, so that what the program sets afterwards cannot be undone by them.
    pub(super) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.options {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", "countersign");
        // Who asks the client what it does has to hear it.
        let debug = self.options.contains_key("debug");
        config.set_log_level(if debug { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning });
        config
    }
}

/// Asks librdkafka whether an option exists and takes this value. Its own answer may quote the value and is left out.
pub fn check_option(name: &str, value: &str) -> Result<(), String> {
    let mut config = ClientConfig::new();
    config.set(name, value);
    match config.create_native_config() {
        Ok(_) => Ok(()),
        Err(rdkafka::error::KafkaError::ClientConfig(code, _, _, _)) => Err(match code {
            rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN => "librdkafka has no such option".to_owned(),
            rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID
            | rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_OK => "librdkafka does not take this value".to_owned(),
        }),
        Err(_) => Err("librdkafka does not take this value".to_owned()),
    }
}

/// A topic as the broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    pub name: String,
    pub partitions: usize,
}

/// Asks the brokers for all topics. Blocks for `timeout` at most: not for the async runtime's threads.
pub fn topics(connection: &Connection, timeout: Duration) -> Result<Vec<TopicInfo>, rdkafka::error::KafkaError> {
    let config = connection.config();
    let client =
        Client::new(&config, config.create_native_config()?, RDKafkaType::RD_KAFKA_PRODUCER, DefaultClientContext)?;
    let metadata = client.fetch_metadata(None, timeout)?;
    let topics = metadata.topics().iter();
    Ok(topics.map(|t| TopicInfo { name: t.name().to_owned(), partitions: t.partitions().len() }).collect())
}

/// The offset after the last record of a partition. Blocks as [`topics`] does.
pub fn end_of_log(
    connection: &Connection,
    topic: &str,
    partition: i32,
    timeout: Duration,
) -> Result<i64, rdkafka::error::KafkaError> {
    let config = connection.config();
    let client =
        Client::new(&config, config.create_native_config()?, RDKafkaType::RD_KAFKA_PRODUCER, DefaultClientContext)?;
    client.fetch_watermarks(topic, partition, timeout).map(|(_, high)| high)
}

/// Offset of the first record at or after a time, in milliseconds since 1970-01-01 UTC; None if there is none that late.
pub(super) fn first_at<C: ConsumerContext>(
    consumer: &impl Consumer<C>,
    (topic, partition): (&str, i32),
    time_ms: i64,
    timeout: Duration,
) -> KafkaResult<Option<i64>> {
    let mut times = TopicPartitionList::new();
    times.add_partition_offset(topic, partition, Offset::Offset(time_ms))?;
    let found = consumer.offsets_for_times(times, timeout)?;
    Ok(match found.elements().first().map(|element| element.offset()) {
        Some(Offset::Offset(offset)) if offset >= 0 => Some(offset),
        _ => None,
    })
}
