//! The relay: takes committed receipts from the outbox to Kafka.
//!
//! A receipt belongs to the lane in which its message was first seen, whoever issues it: the lane itself, a replay, or
//! the sweeper. A lane's receipts are delivered by the process that holds the lane's lease, and by nobody else: so they
//! go out in the order in which they were enqueued, and no key of a lane is in two flights at once. The lane's owner holds
//! the lease from its assignment on and gives it back with the assignment. Receipts of a lane whose lease nobody holds
//! (its partition or topic is not consumed any more, no daemon runs, another configuration owns it and pushes none)
//! are delivered by whoever comes first, who gives the lease back after each round.
//!
//! Lanes of this process hand their new receipts over in memory, where their numbers are known; these go out if nothing
//! else waits before or among them. All others are read from the outbox.
//!
//! Before each flight the lease must last for longer than a flight can, by the database's clock and by a clock of
//! this process that began before the database was asked. A process that is stopped behind that look and goes on
//! later may still have that one flight under way. What was not acknowledged stays in the outbox; it goes out again,
//! after a crash or with the next holder, with the same `receiptId`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::debezium::render::hex;
use crate::failpoint;
use crate::kafka::Publisher;
use crate::kafka::producer::LONGEST_FLIGHT;
use crate::metrics::Metrics;
use crate::pipeline::status::{LaneName, Lanes};
use crate::pipeline::undelivered::{Told, Undelivered};
use crate::store::outbox::{FrontOf, Pending, PendingReceipt};
use crate::store::{Store, StoreError};

pub struct Relay {
    pub pipeline: Arc<str>,
    pub store: Store,
    pub publisher: Arc<dyn Publisher>,
    /// The lanes of this process.
    pub lanes: Lanes,
    /// Letters and digits that no other process has.
    pub owner: String,
    pub metrics: Metrics,
    /// Told by every commit that left receipts.
    pub undelivered: Arc<Undelivered>,
}

/// Receipts of one lane in one round.
const ROUND: usize = 2000;
/// Lanes whose receipts are on their way at the same time.
pub const AT_ONCE: usize = 4;
/// All lanes are looked at this often: for receipts that others left, receipts that failed.
const LOOK: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long nobody else delivers a lane's receipts after the process that did has died.
const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(3);

/// What a relay has taken on.
#[derive(Default)]
struct Duty {
    /// The own lanes when leases were last asked for, and those of them whose lease was had.
    own: Vec<LaneName>,
    held: Vec<LaneName>,
    renewed: Option<Instant>,
    /// When all own lanes were looked at.
    all: Option<Instant>,
    /// When the lanes of others were looked at.
    looked: Option<Instant>,
}

/// How far the receipts of a lane are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Done,
    /// There may be more.
    More,
    /// The lease is not ours, or not for long enough.
    Lapsed,
}

impl Relay {
    /// Runs until it is stopped, then delivers once more what waits and gives its leases back.
    pub async fn run(&self, stop: CancellationToken) {
        let mut duty = Duty::default();
        while !stop.is_cancelled() {
            let wait = match self.step(&mut duty).await {
                Ok(true) => continue,
                Ok(false) => LOOK,
                Err(error) => {
                    self.troubled(&error);
                    AFTER_FAILURE
                }
            };
            let woken = async {
                if wait == LOOK {
                    self.undelivered.told().await;
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = woken => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        if let Err(error) = self.others(&[]).await {
            self.troubled(&error);
        }
        // Those that cannot be given back now run out.
        if let Err(error) = self.release(&duty.held).await {
            self.troubled(&error);
        }
    }

    fn troubled(&self, error: &StoreError) {
        self.metrics.relay_errors.with_label_values(&[&*self.pipeline]).inc();
        debug!(%error, "receipts wait");
    }

    /// One round over the own lanes and now and then over those of nobody; true if there may be more.
    async fn step(&self, duty: &mut Duty) -> Result<bool, StoreError> {
        self.renew(duty).await?;
        let Told { lanes: mut told, any, .. } = self.undelivered.take();
        // Whatever was told is lost with an error: then all are looked at.
        let since = duty.all.take().filter(|at| !any && at.elapsed() < LOOK);
        told.retain(|lane, _| duty.held.contains(lane));
        let (handed, told): (HashMap<_, _>, HashMap<_, _>) =
            told.into_iter().partition(|(_, receipts)| !receipts.is_empty());
        let behind = self.hand_on(handed).await?;
        let due: Vec<LaneName> = match since {
            Some(_) => told.into_keys().chain(behind).collect(),
            None => duty.held.clone(),
        };
        let mut more = false;
        // None is dropped for another's error: what is in flight is waited for.
        let rounds: Vec<_> =
            due.iter().map(|lane| async move { (lane, self.deliver(Some(lane)).await) }.boxed()).collect();
        for (lane, round) in stream::iter(rounds).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            match round? {
                Round::Done => {}
                Round::More => {
                    self.undelivered.of(lane);
                    more = true;
                }
                Round::Lapsed => {
                    self.undelivered.of(lane);
                    duty.renewed = None;
                }
            }
        }
        duty.all = Some(since.unwrap_or_else(Instant::now));
        // Looking for them asks for the whole outbox, so not with every commit of the own lanes.
        if duty.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let left = self.others(&duty.held).await?;
            if !left {
                duty.looked = Some(Instant::now());
            }
            more |= left;
        }
        Ok(more)
    }

    /// Delivers what the lanes have handed over, of all of them in one flight. The answer are those lanes whose receipts
    /// have to be looked for in the outbox: others stand before or among those that were handed over, or the lease is not
    /// ours for long enough.
    async fn hand_on(&self, handed: HashMap<LaneName, Vec<PendingReceipt>>) -> Result<Vec<LaneName>, StoreError> {
        if handed.is_empty() {
            return Ok(Vec::new());
        }
        let mut handed: Vec<_> = handed.into_iter().collect();
        for (_, receipts) in &mut handed {
            // Slices commit in another order than the one in which they enqueued, and of two lives of a lane in this process
            // the earlier one may hand its last ones over later.
            receipts.sort_unstable_by_key(|receipt| receipt.id);
        }
        let lanes: Vec<_> = handed
            .iter()
            .map(|(lane, receipts)| FrontOf {
                topic: &lane.0,
                partition: lane.1,
                last: receipts.last().map_or(0, |receipt| receipt.id),
                lease: self.lease(Some(lane)),
            })
            .collect();
        let most = handed.iter().map(|(_, receipts)| receipts.len()).max().unwrap_or(0);
        let asked = Instant::now();
        let fronts = match self.store.fronts(&self.pipeline, &lanes, most, &self.owner).await {
            Ok(fronts) => fronts,
            Err(error) => {
                self.troubled(&error);
                return Ok(handed.into_iter().map(|(lane, _)| lane).collect());
            }
        };
        let (mut flight, mut behind) = (Vec::new(), Vec::new());
        for ((lane, receipts), front) in handed.into_iter().zip(fronts) {
            let first = receipts.first().map(|receipt| receipt.id);
            let all = front.oldest == first && front.waiting == receipts.len() as i64;
            if all && lasts(front.lease, asked) {
                flight.extend(receipts);
            } else {
                behind.push(lane);
            }
        }
        self.send(&flight).await?;
        Ok(behind)
    }

    /// Holds the leases of the own lanes, and gives back those of lanes that are not its own any more: nothing of theirs
    /// is in flight here, for a step ends with its flights.
    async fn renew(&self, duty: &mut Duty) -> Result<(), StoreError> {
        let own = self.lanes.assigned();
        // What another holds is asked for more often.
        let pace = if duty.held.len() < duty.own.len() { LOOK } else { RENEW };
        if own == duty.own && duty.renewed.is_some_and(|at| at.elapsed() < pace) {
            return Ok(());
        }
        let lost: Vec<LaneName> = duty.held.iter().filter(|lane| !own.contains(lane)).cloned().collect();
        duty.held.retain(|lane| own.contains(lane));
        self.release(&lost).await?;
        duty.renewed = Some(Instant::now());
        let taken = self.take(own.iter().map(Some)).await;
        duty.held = match &taken {
            Ok(taken) => own.iter().filter(|lane| taken.contains(&self.lease(Some(lane)))).cloned().collect(),
            Err(_) => Vec::new(),
        };
        duty.own = own;
        // What came new to it may have waited for long.
        duty.all = None;
        taken.map(drop)
    }

    /// Delivers the oldest receipts of a lane, with a lease that is renewed if too little is left of it: the lanes before
    /// may have taken their time.
    async fn deliver(&self, lane: Option<&LaneName>) -> Result<Round, StoreError> {
        match self.fly(lane).await? {
            Round::Lapsed if self.store.take_lease(&self.lease(lane), &self.owner, LEASE).await? => {
                self.fly(lane).await
            }
            round => Ok(round),
        }
    }

    /// Delivers the oldest receipts of a lane, if its lease is ours for as long as that may take.
    async fn fly(&self, lane: Option<&LaneName>) -> Result<Round, StoreError> {
        let of = lane.map(|(topic, partition)| (&**topic, *partition));
        let asked = Instant::now();
        let lease = (&*self.lease(lane), &*self.owner);
        let Pending { receipts, lease } = self.store.pending_receipts(&self.pipeline, of, lease, ROUND).await?;
        if receipts.is_empty() {
            return Ok(Round::Done);
        }
        if !lasts(lease, asked) {
            return Ok(Round::Lapsed);
        }
        let delivered = self.send(&receipts).await?;
        Ok(if delivered == ROUND { Round::More } else { Round::Done })
    }

    /// One flight, and the end of what was acknowledged; the answer is how many were.
    async fn send(&self, receipts: &[PendingReceipt]) -> Result<usize, StoreError> {
        if receipts.is_empty() {
            return Ok(0);
        }
        failpoint::at("before-produce").await?;
        let delivered = self.publisher.publish(receipts).await;
        failpoint::at("after-produce").await?;
        let gone = delivered_in_order(receipts, &delivered);
        self.store.delivered(&gone).await?;
        failpoint::at("after-mark").await?;
        self.observe(&gone);
        Ok(delivered.len())
    }

    /// One round over the lanes whose lease nobody holds. It is given back after the round, so that an owner who comes
    /// need not wait for long.
    async fn others(&self, held: &[LaneName]) -> Result<bool, StoreError> {
        let mut lanes = self.store.lanes_with_receipts(&self.pipeline).await?;
        lanes.retain(|lane| lane.as_ref().is_none_or(|lane| !held.contains(lane)));
        let taken = self.take(lanes.iter().map(Option::as_ref)).await?;
        lanes.retain(|lane| taken.contains(&self.lease(lane.as_ref())));
        if lanes.is_empty() {
            return Ok(false);
        }
        let work = async {
            let mut more = false;
            for lane in &lanes {
                more |= self.deliver(lane.as_ref()).await? == Round::More;
            }
            Ok::<_, StoreError>(more)
        };
        let more = work.await;
        self.store.release_leases(&taken, &self.owner).await?;
        more
    }

    async fn take<'a>(
        &self,
        lanes: impl Iterator<Item = Option<&'a LaneName>>,
    ) -> Result<BTreeSet<String>, StoreError> {
        let names = lanes.map(|lane| self.lease(lane)).collect();
        self.store.take_leases(&names, &self.owner, LEASE).await
    }

    async fn release(&self, lanes: &[LaneName]) -> Result<(), StoreError> {
        let names = lanes.iter().map(|lane| self.lease(Some(lane))).collect();
        self.store.release_leases(&names, &self.owner).await
    }

    fn lease(&self, lane: Option<&LaneName>) -> String {
        lease_name(&self.pipeline, lane)
    }

    fn observe(&self, delivered: &[&PendingReceipt]) {
        let pipeline = &[&*self.pipeline];
        self.metrics.receipts_delivered.with_label_values(pipeline).inc_by(delivered.len() as u64);
        let (now, seconds) =
            (jiff::Timestamp::now().as_millisecond(), self.metrics.receipt_delivery.with_label_values(pipeline));
        for receipt in delivered {
            seconds.observe((now - receipt.created_ms).max(0) as f64 / 1000.0);
        }
    }
}

/// Whether a lease lasts for a flight. The database told what was left when it answered, which was after it was asked.
fn lasts(lease: Option<Duration>, asked: Instant) -> bool {
    lease.is_some_and(|left| left.saturating_sub(asked.elapsed()) >= LONGEST_FLIGHT)
}

/// Those that were acknowledged, but for what overtook an earlier one of its key: that goes out once more behind it, so
/// that the last one of a key is the last one that its reader sees.
fn delivered_in_order<'r>(receipts: &'r [PendingReceipt], acknowledged: &[i64]) -> Vec<&'r PendingReceipt> {
    let acknowledged: HashSet<i64> = acknowledged.iter().copied().collect();
    let mut waiting = HashSet::new();
    let in_order = receipts.iter().filter(|receipt| {
        let key = receipt.receipt_key.as_str();
        if !acknowledged.contains(&receipt.id) {
            waiting.insert(key);
        }
        !waiting.contains(key)
    });
    in_order.collect()
}

/// The name of a lane's lease, at most 64 bytes whatever the names of pipeline and topic.
pub fn lease_name(pipeline: &str, lane: Option<&LaneName>) -> String {
    let mut hash = Sha256::new();
    hash.update((pipeline.len() as u64).to_be_bytes());
    hash.update(pipeline);
    if let Some((topic, partition)) = lane {
        hash.update(partition.to_be_bytes());
        hash.update(&**topic);
    }
    format!("relay:{}", hex(&hash.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overtook_an_earlier_one_of_its_key_goes_out_again() {
        let receipt = |id: i64, key: &str| PendingReceipt {
            id,
            receipt_id: format!("r-{id}"),
            receipt_key: key.to_owned(),
            receipt: String::new(),
            created_ms: 0,
        };
        let receipts = [receipt(1, "a"), receipt(2, "b"), receipt(3, "a"), receipt(4, "b"), receipt(5, "c")];
        let ids = |acknowledged: &[i64]| -> Vec<i64> {
            delivered_in_order(&receipts, acknowledged).iter().map(|receipt| receipt.id).collect()
        };
        assert_eq!(ids(&[5, 4, 3, 2, 1]), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&[3, 2, 4, 5]), [2, 4, 5]);
        assert_eq!(ids(&[1, 4]), [1]);
        assert_eq!(ids(&[]), [0; 0]);
    }
}
