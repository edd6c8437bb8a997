//! From records to committed outcomes: the only place that sees Kafka, the gate and the store together.

mod ahead;
pub(crate) mod alone;
mod apply;
pub mod attempt;
pub mod batch;
pub(crate) mod blame;
mod counting;
mod fence;
mod fetching;
mod gaps;
pub mod intake;
pub mod judge;
pub mod lane;
pub(crate) mod late;
pub(crate) mod letter;
mod look_up;
pub mod marks;
pub mod processor;
pub(crate) mod queue;
pub mod replay;
pub(crate) mod rows;
pub(crate) mod settle;
mod slices;
mod standing;
pub mod status;
pub mod tenure;
mod turns;
pub mod undelivered;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use crate::decision::{PausePolicy, RecordOutcome};
use crate::effect::Effect;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::record::RecordPosition;
use crate::registry::Registry;
use crate::route::Order;
use crate::store::Store;

use batch::ReaderSettings;
pub use turns::Turns;
use undelivered::Undelivered;

/// What all lanes of one pipeline share.
pub struct Shared {
    pub pipeline: Arc<str>,
    pub store: Store,
    pub gate: Arc<dyn Gate>,
    pub reader: Arc<ReaderSettings>,
    /// Writers' schemas; only for Avro.
    pub registry: Option<Registry>,
    /// By route.
    pub effects: Vec<Arc<dyn Effect>>,
    /// By route: false gives up the dedup row and the receipts.
    pub inbox: Vec<bool>,
    /// By route: a new message from before the purge horizon is applied, not parked.
    pub late: Vec<bool>,
    /// By route.
    pub order: Vec<Order>,
    /// Transactions side by side in one partition.
    pub slices: usize,
    pub options: PipelineOptions,
    pub metrics: Metrics,
    pub turns: Turns,
    /// Lanes with a batch in their hands at the same time: fewer than there are connections, so that lanes, however many,
    /// leave some to the relay, or receipts would wait for the end of the backlog. What a batch takes of memory is taken
    /// so many times.
    pub slots: Arc<Semaphore>,
    /// Topics of which it was said that they have records without a route.
    pub unrouted: Mutex<BTreeSet<Arc<str>>>,
    /// Wakes the relay after a commit that left receipts.
    pub receipts: Arc<Undelivered>,
    /// Told of every record's outcome after its commit, if anybody wants to know.
    pub observer: Option<UnboundedSender<Observed>>,
}

/// A record and its outcome.
#[derive(Clone, Debug)]
pub struct Observed {
    pub position: RecordPosition,
    pub message_id: Option<String>,
    /// The operation, where the record is a change.
    pub op: Option<&'static str>,
    pub outcome: RecordOutcome,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// Messages and bytes in one transaction at most.
    pub batch: usize,
    pub batch_bytes: usize,
    pub pause: PausePolicy,
    pub retry: RetryPolicy,
    /// Receipts are pushed to a topic: without one none is put into the outbox.
    pub push_receipts: bool,
}

/// How messages that were set aside are tried again.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Tries in all, then the message is parked.
    pub attempts: i64,
    /// Before the second try; doubled each time.
    pub delay: Duration,
    pub max_delay: Duration,
}

impl RetryPolicy {
    /// The wait after this many tries.
    pub fn delay_after(&self, attempts: i64) -> Duration {
        let doubled = self.delay.saturating_mul(1 << attempts.saturating_sub(1).clamp(0, 20));
        doubled.min(self.max_delay)
    }
}

impl Shared {
    /// Some messages keep the order of their record key: what waits stands in queues.
    pub fn has_queues(&self) -> bool {
        self.order.contains(&Order::Key)
    }

    /// The first time that a record of this topic finds no route.
    pub(crate) fn first_unrouted(&self, topic: &Arc<str>) -> bool {
        let mut told = self.unrouted.lock().unwrap_or_else(PoisonError::into_inner);
        !told.contains(topic) && told.insert(Arc::clone(topic))
    }

    pub fn route_name(&self, route: Option<usize>) -> &str {
        route.map_or("", |index| &self.reader.routes[index].name)
    }
}

/// A word of letters and digits that nobody else has: the epoch of a store, the owner of a lease.
pub fn unique_word() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}
