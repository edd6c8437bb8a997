//! Receipts on their way to Kafka.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
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
/// Answers within [`LONGEST_FLIGHT`]. Called for several lanes at the same time, never twice for one. The ids that come
/// back were acknowledged; every other receipt may have been delivered too and is given again, so consumers must
/// tolerate repeats. Receipts of one key are delivered in the order in which they are given.
#[async_trait]
pub trait Publisher: Send + Sync {
    async fn publish(&self, receipts: &[PendingReceipt]) -> Vec<i64>;
}

pub struct KafkaPublisher {
    config: ClientConfig,
    topic: String,
    producer: Mutex<FutureProducer>,
}

impl KafkaPublisher {
    pub fn new(connection: &Connection, topic: &str) -> Result<Self, KafkaError> {
        let mut config = connection.config();
        // Another name of what is set below.
        config.remove("delivery.timeout.ms");
        config
            // Order per key and no repeats within one life of the producer.
            .set("enable.idempotence", "true")
            .set("linger.ms", "1")
            .set("compression.type", "lz4")
            .set("message.timeout.ms", ACKNOWLEDGED.as_millis().to_string())
            // A broker that has stood still leaves some questions without an answer, the first one of a producer too:
            // with the client's 60 s nothing would be delivered for a minute. No request is worth more time than what it
            // carries.
            .set("socket.timeout.ms", ACKNOWLEDGED.as_millis().to_string());
        let producer = Mutex::new(config.create()?);
        Ok(Self { config, topic: topic.to_owned(), producer })
    }

    fn producer(&self) -> FutureProducer {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An idempotent producer that can no longer promise order and no repeats delivers nothing any more, for ever. What
    /// it was given comes again, and another one may deliver it: repeats are allowed.
    fn replace_if_useless(&self, producer: FutureProducer) {
        let Some((_, reason)) = producer.client().fatal_error() else { return };
        match self.config.create() {
            Ok(another) => {
                warn!(reason, "the receipts' producer gave up for good: another one takes its place");
                *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = another;
                // Its end waits for its thread.
                tokio::task::spawn_blocking(move || drop(producer));
            }
            Err(error) => warn!(reason, %error, "the receipts' producer gave up for good, and there is no other yet"),
        }
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, receipts: &[PendingReceipt]) -> Vec<i64> {
        let producer = self.producer();
        let mut sent = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let record = FutureRecord::to(&self.topic).key(&receipt.receipt_key).payload(&receipt.receipt);
            match producer.send_result(record) {
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
        let mut acknowledged = Vec::with_capacity(ids.len());
        // One line for all of them: a broker that stands still fails thousands at once.
        let mut refused = None;
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                Ok(Ok(_)) => acknowledged.push(id),
                Ok(Err((error, _))) => refused = refused.or(Some(error)),
                Err(_) => {}
            }
        }
        if let Some(error) = refused {
            warn!(%error, given = receipts.len(), acknowledged = acknowledged.len(), "receipts were not delivered yet");
        }
        self.replace_if_useless(producer);
        acknowledged
    }
}
