//! Receipts on their way to Kafka.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode;
use tracing::warn;

use super::client::Connection;
use crate::store::outbox::PendingReceipt;

/// A receipt that is not acknowledged after this is given up, to be given again.
const ACKNOWLEDGED: Duration = Duration::from_secs(8);
/// When everything that was given to [`Publisher::publish`] has left the client for good: librdkafka looks once a second
/// for what has run out.
pub const LONGEST_FLIGHT: Duration = ACKNOWLEDGED.saturating_add(Duration::from_secs(2));

/// Delivers receipts.
///
/// Called by one task at a time, and answers within [`LONGEST_FLIGHT`]. The ids that come back were acknowledged; every other receipt may have been
/// delivered too and is given again, so consumers must tolerate repeats. Receipts of one key are delivered in the
/// order in which they are given.
#[async_trait]
pub trait Publisher: Send + Sync {
    async fn publish(&self, receipts: &[PendingReceipt]) -> Vec<i64>;
}

pub struct KafkaPublisher {
    producer: FutureProducer,
    topic: String,
}

impl KafkaPublisher {
    pub fn new(connection: &Connection, topic: &str) -> Result<Self, KafkaError> {
        let mut config = connection.config();
        // Another name of what is set below.
        config.remove("delivery.timeout.ms");
        config
            // Order per key and no repeats within one life of the producer.
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("compression.type", "lz4")
            .set("message.timeout.ms", ACKNOWLEDGED.as_millis().to_string());
        Ok(Self { producer: config.create()?, topic: topic.to_owned() })
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, receipts: &[PendingReceipt]) -> Vec<i64> {
        let mut sent = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let record = FutureRecord::to(&self.topic).key(&receipt.receipt_key).payload(&receipt.receipt);
            match self.producer.send_result(record) {
                Ok(delivery) => sent.push((receipt.id, delivery)),
                // The rest stays in the outbox and comes with the next round.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => break,
                Err((error, _)) => {
                    warn!(%error, "a receipt was not taken");
                    break;
                }
            }
        }
        let (ids, deliveries): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let answers = join_all(deliveries).await;
        let acknowledged = ids.into_iter().zip(answers).filter_map(|(id, answer)| match answer {
            Ok(Ok(_)) => Some(id),
            Ok(Err((error, _))) => {
                warn!(%error, "a receipt was not delivered");
                None
            }
            Err(_) => None,
        });
        acknowledged.collect()
    }
}
