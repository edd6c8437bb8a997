//! Kafka: the consumer group, one reader a partition, windows of a topic, and the producer of receipts.
//!
//! This folder knows records and offsets; it knows nothing of what is done with them.

pub mod client;
pub mod consumer;
mod group;
pub mod inspect;
pub mod partition;
pub mod producer;
pub mod window;

pub use consumer::{Consumer, ConsumerOptions, StartPolicy};
pub use partition::{Assigned, Fetched, PartitionReader};
pub use producer::{KafkaPublisher, Publisher};
