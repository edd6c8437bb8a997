//! The parts of a replay: the pipeline without its group and its gate, and a relay for what it leaves.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{AppError, Pipeline, connection};
use crate::config::{Config, GateBackend};
use crate::kafka::KafkaPublisher;
use crate::metrics::Metrics;
use crate::pipeline::replay::Replay;
use crate::pipeline::status::Lanes;
use crate::pipeline::{Shared, unique_word};
use crate::redrive::Redriver;
use crate::relay::Relay;
use crate::store::inspect::Distrust;
use crate::store::migrate::VERSION;
use crate::store::{Store, StoreError};

/// A pipeline that takes records from elsewhere.
pub struct Replayer {
    pub(super) shared: Arc<Shared>,
    relay: Option<Arc<Relay>>,
    stop: CancellationToken,
}

/// Why nothing may be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Unready {
    #[error(transparent)]
    Tables(Distrust),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Between two looks at the outbox at the end.
const LOOK: Duration = Duration::from_millis(50);

impl Replayer {
    pub fn new(config: &Config, stop: CancellationToken) -> Result<Self, AppError> {
        let mut config = config.clone();
        config.gate.backend = GateBackend::Off;
        let publisher = match &config.receipts.topic {
            Some(topic) => Some(KafkaPublisher::new(&connection(&config), topic)?),
            None => None,
        };
        let shared = Arc::new(Pipeline::new(config, Metrics::new())?.into_shared());
        let relay = publisher.map(|publisher| {
            Arc::new(Relay {
                pipeline: Arc::clone(&shared.pipeline),
                store: shared.store.clone(),
                publisher: Arc::new(publisher),
                // None is its own: it delivers for those that no daemon has.
                lanes: Lanes::default(),
                owner: unique_word(),
                metrics: shared.metrics.clone(),
                undelivered: Arc::clone(&shared.receipts),
            })
        });
        Ok(Self { shared, relay, stop })
    }

    /// Whether the tables are there and can be trusted.
    pub async fn ready(&self) -> Result<(), Unready> {
        match self.shared.store.distrust(VERSION).await? {
            Some(distrust) => Err(Unready::Tables(distrust)),
            None => Ok(()),
        }
    }

    /// Answers if the database does.
    pub async fn reach(&self) -> Result<(), StoreError> {
        self.shared.store.ping().await
    }

    pub fn replay(&self) -> Replay {
        Replay::new(Arc::clone(&self.shared), self.stop.clone())
    }

    pub fn redriver(&self) -> Redriver {
        Redriver::new(Arc::clone(&self.shared))
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Delivers receipts from now on, until it is cancelled.
    pub fn relay(&self, stop: CancellationToken) -> Option<JoinHandle<()>> {
        let relay = Arc::clone(self.relay.as_ref()?);
        Some(tokio::spawn(async move { relay.run(stop).await }))
    }

    /// Waits until no receipt waits that is there now, or the time is up; how many are left. Whoever has the lease of
    /// their lanes delivers them, a daemon perhaps.
    pub async fn delivered(&self, patience: Duration) -> Result<i64, StoreError> {
        let until = tokio::time::Instant::now() + patience;
        let (store, pipeline) = (&self.shared.store, &*self.shared.pipeline);
        let Some(newest) = store.newest_pending(pipeline).await? else { return Ok(0) };
        loop {
            let left = store.count_pending_to(pipeline, newest).await?;
            if left == 0 || tokio::time::Instant::now() >= until {
                return Ok(left);
            }
            self.shared.receipts.of_any();
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn close(&self) {
        self.shared.store.close().await;
    }
}
