//! The relay: takes committed receipts from the outbox to Kafka, for the lanes that this process owns.
//!
//! It is the only one that publishes, and waits for the answers of one round before it begins the next, so that no
//! key is in two flights at once. What was not acknowledged stays in the outbox; after a crash or with the next owner
//! of the lane it goes out again, with the same `receiptId`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::kafka::Publisher;
use crate::metrics::Metrics;
use crate::pipeline::status::Lanes;
use crate::store::outbox::PendingReceipt;
use crate::store::{Store, StoreError};

pub struct Relay {
    pub pipeline: Arc<str>,
    pub store: Store,
    pub publisher: Arc<dyn Publisher>,
    pub lanes: Lanes,
    pub metrics: Metrics,
    /// Told by every commit that left receipts.
    pub wake: Arc<Notify>,
}

/// Receipts of one lane in one round.
const ROUND: usize = 2000;
/// Looks without being woken: rows of a lane that was just taken over, rows that failed.
const LOOK: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_millis(500);

impl Relay {
    /// Runs until it is stopped.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            let more = match self.round(&self.lanes.assigned()).await {
                Ok(more) => more,
                Err(error) => {
                    self.metrics.relay_errors.with_label_values(&[&*self.pipeline]).inc();
                    debug!(%error, "receipts wait");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(AFTER_FAILURE) => {}
                    }
                    continue;
                }
            };
            if stop.is_cancelled() {
                return;
            }
            if !more {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    }

    /// One round over these lanes; true if there may be more.
    pub async fn round(&self, lanes: &[(Arc<str>, i32)]) -> Result<bool, StoreError> {
        let mut more = false;
        for (topic, partition) in lanes {
            let lane = Some((&**topic, *partition));
            let receipts = self.store.pending_receipts(&self.pipeline, lane, ROUND).await?;
            if receipts.is_empty() {
                continue;
            }
            let delivered = self.publisher.publish(&receipts).await;
            if delivered.len() < receipts.len() {
                warn!(%topic, partition, waiting = receipts.len() - delivered.len(), "receipts were not delivered yet");
            }
            more |= delivered.len() == ROUND;
            self.store.delivered(&delivered).await?;
            self.observe(&receipts, delivered.len());
        }
        Ok(more)
    }

    fn observe(&self, receipts: &[PendingReceipt], delivered: usize) {
        let pipeline = &[&*self.pipeline];
        self.metrics.receipts_delivered.with_label_values(pipeline).inc_by(delivered as u64);
        let now = jiff::Timestamp::now();
        for receipt in receipts.iter().take(delivered) {
            if let Ok(created) = receipt.created_at.parse::<jiff::Timestamp>() {
                let seconds = now.duration_since(created).as_secs_f64().max(0.0);
                self.metrics.receipt_delivery.with_label_values(pipeline).observe(seconds);
            }
        }
    }
}
