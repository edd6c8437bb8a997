//! The relay: takes committed receipts from the outbox to Kafka, for the lanes that this process owns. Receipts of no
//! lane (a replay left them), and of lanes of topics that the pipeline does not consume, are taken by one process at a
//! time, by a lease.
//!
//! It is the only one that publishes, and waits for the answers of one round before it begins the next, so that no
//! key is in two flights at once. What was not acknowledged stays in the outbox; after a crash or with the next owner
//! of the lane it goes out again, with the same `receiptId`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::debezium::render::hex;
use crate::failpoint;
use crate::kafka::Publisher;
use crate::metrics::Metrics;
use crate::pipeline::status::{LaneName, Lanes};
use crate::route::TopicPattern;
use crate::store::outbox::PendingReceipt;
use crate::store::{Store, StoreError};

pub struct Relay {
    pub pipeline: Arc<str>,
    pub store: Store,
    pub publisher: Arc<dyn Publisher>,
    pub lanes: Lanes,
    /// What the pipeline consumes: lanes of other topics have no owner.
    pub consumed: Vec<TopicPattern>,
    /// Letters and digits that no other process has.
    pub owner: String,
    pub metrics: Metrics,
    /// Told by every commit that left receipts.
    pub wake: Arc<Notify>,
}

/// Receipts of one lane in one round.
const ROUND: usize = 2000;
/// Looks without being woken: rows of a lane that was just taken over, rows that failed.
const LOOK: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long nobody else takes receipts without an owner, after the process that does so has died.
const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);

impl Relay {
    /// Runs until it is stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let mut looked: Option<Instant> = None;
        loop {
            let more = match self.step(&mut looked).await {
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

    /// Looking for what has no owner asks for the whole outbox, so not with every commit of the own lanes.
    async fn step(&self, looked: &mut Option<Instant>) -> Result<bool, StoreError> {
        let lanes = self.lanes.assigned();
        let mut more = self.owned(&lanes).await?;
        if lanes.is_empty() || looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let left = self.unowned().await?;
            if !left {
                *looked = Some(Instant::now());
            }
            more |= left;
        }
        Ok(more)
    }

    /// One round over these lanes and over what has no owner; true if there may be more.
    pub async fn round(&self, lanes: &[LaneName]) -> Result<bool, StoreError> {
        let more = self.owned(lanes).await?;
        Ok(self.unowned().await? || more)
    }

    async fn owned(&self, lanes: &[LaneName]) -> Result<bool, StoreError> {
        let mut more = false;
        for lane in lanes {
            more |= self.deliver(Some(lane)).await?;
        }
        Ok(more)
    }

    /// Delivers the oldest receipts of a lane, or those of none; true if there may be more.
    async fn deliver(&self, lane: Option<&LaneName>) -> Result<bool, StoreError> {
        let of = lane.map(|(topic, partition)| (&**topic, *partition));
        let receipts = self.store.pending_receipts(&self.pipeline, of, ROUND).await?;
        if receipts.is_empty() {
            return Ok(false);
        }
        failpoint::at("before-produce").await?;
        let delivered = self.publisher.publish(&receipts).await;
        failpoint::at("after-produce").await?;
        if delivered.len() < receipts.len() {
            warn!(?lane, waiting = receipts.len() - delivered.len(), "receipts were not delivered yet");
        }
        self.store.delivered(&delivered).await?;
        failpoint::at("after-mark").await?;
        self.observe(&receipts, delivered.len());
        Ok(delivered.len() == ROUND)
    }

    /// Receipts whose lane nobody is assigned to, ever: one process delivers them at a time, so that no key is in two
    /// flights.
    async fn unowned(&self) -> Result<bool, StoreError> {
        let unowned = |lane: &Option<LaneName>| {
            lane.as_ref().is_none_or(|(topic, _)| !self.consumed.iter().any(|pattern| pattern.matches(topic)))
        };
        let mut lanes = self.store.lanes_with_receipts(&self.pipeline).await?;
        lanes.retain(unowned);
        if lanes.is_empty() || !self.lease().await? {
            return Ok(false);
        }
        let work = async {
            let mut more = false;
            for lane in &lanes {
                more |= self.deliver(lane.as_ref()).await?;
            }
            Ok::<_, StoreError>(more)
        };
        let renewing = async {
            loop {
                tokio::time::sleep(RENEW).await;
                if let Err(error) = self.lease().await {
                    debug!(%error, "the lease is not renewed yet");
                }
            }
        };
        let more = tokio::select! {
            more = work => more,
            () = renewing => Ok(true),
        };
        self.store.release_lease(&self.lease_name(), &self.owner).await?;
        more
    }

    async fn lease(&self) -> Result<bool, StoreError> {
        self.store.take_lease(&self.lease_name(), &self.owner, LEASE).await
    }

    /// At most 64 bytes, whatever the pipeline's name.
    fn lease_name(&self) -> String {
        format!("relay:{}", hex(&Sha256::digest(&*self.pipeline)[..16]))
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
