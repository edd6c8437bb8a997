//! The relay: one process at a time delivers a lane's receipts, in order, and those of every lane go out in the end.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign::kafka::Publisher;
use countersign::kafka::producer::LONGEST_FLIGHT;
use countersign::metrics::Metrics;
use countersign::pipeline::status::{LaneName, LaneState, Lanes};
use countersign::pipeline::undelivered::Undelivered;
use countersign::relay::{Relay, lease_name};
use countersign::store::Store;
use countersign::store::outbox::{NewReceipt, PendingReceipt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::constraints::{TABLES, child, routes};
use crate::daemon::program;
use crate::payments::{self, BOOK, payment};
use crate::wait::{stays, until};
use crate::world::{World, everywhere, in_short};

/// Notes what is delivered, and what must not be.
struct Broker {
    store: Store,
    lease: String,
    flying: AtomicBool,
    thief: AtomicBool,
    delivered: Mutex<Vec<String>>,
    faults: Mutex<Vec<String>>,
}

impl Broker {
    fn new(world: &World) -> Arc<Self> {
        Arc::new(Self {
            store: world.db.store.clone(),
            lease: lease_name(&world.name, Some(&lane(world, 0))),
            flying: AtomicBool::new(false),
            thief: AtomicBool::new(false),
            delivered: Mutex::default(),
            faults: Mutex::default(),
        })
    }

    fn delivered(&self) -> Vec<String> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fault(&self, fault: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn faultless(&self) {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(faults.is_empty(), "{faults:?}");
    }
}

#[async_trait]
impl Publisher for Broker {
    async fn publish(&self, receipts: &[PendingReceipt]) -> Vec<i64> {
        if self.flying.swap(true, Ordering::SeqCst) {
            self.fault("two flights at once".to_owned());
        }
        let value = self.store.meta(&self.lease).await.unwrap().unwrap_or_default();
        let now: jiff::Timestamp = self.store.now().await.unwrap().parse().unwrap();
        let until: Option<jiff::Timestamp> = value.split_once(' ').and_then(|(_, until)| until.parse().ok());
        // The question for the lease itself takes a moment.
        let least = LONGEST_FLIGHT - Duration::from_secs(1);
        if until.is_none_or(|until| until.duration_since(now).as_secs_f64() < least.as_secs_f64()) {
            self.fault(format!("a flight with the lease {value:?} at {now}"));
        }
        if self.thief.swap(false, Ordering::SeqCst) {
            hold(&self.store, &self.lease, "thief 2999-01-01T00:00:00Z").await;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        let ids = receipts.iter().map(|receipt| receipt.receipt.clone());
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        self.flying.store(false, Ordering::SeqCst);
        receipts.iter().map(|receipt| receipt.id).collect()
    }
}

async fn hold(store: &Store, lease: &str, value: &str) {
    let mut tx = store.begin().await.unwrap();
    tx.set_meta(lease, value).await.unwrap();
    tx.commit().await.unwrap();
}

fn lane(world: &World, partition: i32) -> LaneName {
    (world.topic.as_str().into(), partition)
}

struct Process {
    stop: CancellationToken,
    task: JoinHandle<()>,
    undelivered: Arc<Undelivered>,
}

impl Process {
    /// A relay in a process to which these lanes are assigned.
    fn start(world: &World, broker: &Arc<Broker>, owner: &str, own: &[LaneName]) -> Self {
        Self::start_with(world, broker, owner, own, |_| {})
    }

    /// The same, with what it was told before it began.
    fn start_with(
        world: &World,
        broker: &Arc<Broker>,
        owner: &str,
        own: &[LaneName],
        tell: impl FnOnce(&Undelivered),
    ) -> Self {
        let lanes = Lanes::default();
        for lane in own {
            lanes.set(lane, LaneState::Running);
        }
        let undelivered = Arc::new(Undelivered::default());
        tell(&undelivered);
        let relay = Relay {
            pipeline: world.name.as_str().into(),
            store: world.db.store.clone(),
            publisher: Arc::clone(broker) as Arc<dyn Publisher>,
            lanes,
            owner: owner.to_owned(),
            metrics: Metrics::new(),
            undelivered: Arc::clone(&undelivered),
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        Self { stop, task: tokio::spawn(async move { relay.run(token).await }), undelivered }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

async fn enqueue(world: &World, lane: Option<&LaneName>, names: &[String]) -> Vec<PendingReceipt> {
    let mut tx = world.db.store.begin().await.unwrap();
    let now = tx.now().await.unwrap();
    let receipts = names.iter().map(|name| NewReceipt {
        receipt_id: name.clone(),
        receipt_key: "key".to_owned(),
        receipt: name.clone(),
    });
    let of = lane.map(|(topic, partition)| (&**topic, *partition));
    let enqueued = tx.enqueue_receipts(&world.name, of, &now, receipts.collect()).await.unwrap();
    tx.commit().await.unwrap();
    enqueued
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("r{n:04}")).collect()
}

#[test]
fn a_lease_that_another_took_meanwhile_ends_the_deliveries_at_once() {
    everywhere(|world| async move {
        let (broker, own) = (Broker::new(&world), lane(&world, 0));
        enqueue(&world, Some(&own), &names(0..4500)).await;
        broker.thief.store(true, Ordering::SeqCst);
        let process = Process::start(&world, &broker, "a", std::slice::from_ref(&own));
        until("the first round", || async { (broker.delivered().len() == 2000).then_some(()) }).await;
        stays(Duration::from_millis(2500), "nothing behind the first round", || async {
            process.undelivered.of_any();
            broker.delivered().len() == 2000
        })
        .await;
        hold(&world.db.store, &broker.lease, "").await;
        until("the rest", || async { (broker.delivered().len() == 4500).then_some(()) }).await;
        assert_eq!(broker.delivered(), names(0..4500));
        process.stop().await;
        broker.faultless();
    });
}

#[test]
fn a_lane_that_two_processes_think_theirs_is_never_in_two_flights_and_keeps_its_order() {
    everywhere(|world| async move {
        let (broker, own) = (Broker::new(&world), lane(&world, 0));
        let own = std::slice::from_ref(&own);
        let first = Process::start(&world, &broker, "a", own);
        let second = Process::start(&world, &broker, "b", own);
        let stranger = Process::start(&world, &broker, "c", &[]);
        for n in 0..60 {
            enqueue(&world, Some(&own[0]), &names(n * 3..n * 3 + 3)).await;
            for process in [&first, &second, &stranger] {
                process.undelivered.of_any();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The lane goes on with the other one.
        first.stop().await;
        enqueue(&world, Some(&own[0]), &names(180..200)).await;
        until("all of them", || async { (broker.delivered().len() >= 200).then_some(()) }).await;
        stranger.stop().await;
        second.stop().await;
        assert_eq!(broker.delivered(), names(0..200), "each once, in their order");
        broker.faultless();
    });
}

#[test]
fn a_flight_begins_only_with_a_lease_that_outlasts_it() {
    everywhere(|world| async move {
        let (broker, own) = (Broker::new(&world), lane(&world, 0));
        let process = Process::start(&world, &broker, "a", std::slice::from_ref(&own));
        for n in 0..5 {
            until("the lease", || async {
                let value = world.db.store.meta(&broker.lease).await.unwrap();
                value.is_some_and(|value| value.starts_with("a ")).then_some(())
            })
            .await;
            let now: jiff::Timestamp = world.db.store.now().await.unwrap().parse().unwrap();
            let short = now + Duration::from_secs(2 * n);
            hold(&world.db.store, &broker.lease, &format!("a {short}")).await;
            let enqueued = enqueue(&world, Some(&own), &names(n as usize..n as usize + 1)).await;
            match n % 2 {
                0 => process.undelivered.of_any(),
                _ => process.undelivered.hand(&own, enqueued),
            }
            until("its delivery", || async { (broker.delivered().len() > n as usize).then_some(()) }).await;
        }
        process.stop().await;
        broker.faultless();
    });
}

#[test]
fn what_a_lane_hands_over_goes_out_behind_what_stands_before_it() {
    everywhere(|world| async move {
        let (broker, own) = (Broker::new(&world), lane(&world, 0));
        let process = Process::start(&world, &broker, "a", std::slice::from_ref(&own));
        for n in 0..60 {
            let enqueued = enqueue(&world, Some(&own), &names(n * 3..n * 3 + 3)).await;
            // Others, who hand nothing over, leave some as well.
            if n % 5 > 0 {
                process.undelivered.hand(&own, enqueued);
            }
            tokio::time::sleep(Duration::from_millis(n as u64 % 4 * 10)).await;
        }
        until("all of them", || async { (broker.delivered().len() >= 180).then_some(()) }).await;
        process.stop().await;
        assert_eq!(broker.delivered(), names(0..180), "each once, in their order");
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0);
        broker.faultless();
    });
}

#[test]
fn what_a_lane_handed_over_and_a_restored_store_has_lost_does_not_go_out() {
    everywhere(|world| async move {
        let (broker, own) = (Broker::new(&world), lane(&world, 0));
        let lost = enqueue(&world, Some(&own), &names(0..2)).await;
        world.db.run("DELETE FROM countersign_outbox").await;
        let other = enqueue(&world, Some(&own), &names(2..3)).await;
        let process = Process::start_with(&world, &broker, "a", std::slice::from_ref(&own), |undelivered| {
            undelivered.hand(&own, lost);
            undelivered.hand(&own, other);
        });
        until("the one that is there", || async { (!broker.delivered().is_empty()).then_some(()) }).await;
        process.stop().await;
        assert_eq!(broker.delivered(), names(2..3));
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0);
        broker.faultless();
    });
}

#[test]
fn a_receipt_that_got_a_number_in_flight_from_a_restored_sequence_stays() {
    everywhere(|world| async move {
        let store = &world.db.store;
        enqueue(&world, None, &names(0..2)).await;
        let flown = store.pending_receipts(&world.name, None, ("lease", "a"), 10).await.unwrap().receipts;
        assert_eq!(flown.len(), 2);
        // The store goes back while they fly, and another receipt gets the number of the second one.
        let number = flown[1].id;
        world.db.run(&format!("UPDATE countersign_outbox SET receipt_id = 'other' WHERE id = {number}")).await;
        store.delivered(&flown.iter().collect::<Vec<_>>()).await.unwrap();
        let left = store.pending_receipts(&world.name, None, ("lease", "a"), 10).await.unwrap().receipts;
        assert_eq!(left.iter().map(|receipt| &*receipt.receipt_id).collect::<Vec<_>>(), ["other"]);
        store.delivered(&left.iter().collect::<Vec<_>>()).await.unwrap();
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0);
    });
}

#[test]
fn receipts_of_lanes_that_nobody_has_go_out_and_their_leases_are_given_back() {
    everywhere(|world| async move {
        let broker = Broker::new(&world);
        let process = Process::start(&world, &broker, "a", &[lane(&world, 1)]);
        // A partition of a consumed topic that nobody owns, a topic that nobody consumes, no lane at all, and one of
        // a process that died without a word: its lease runs out.
        let lanes = [Some(lane(&world, 0)), Some(("gone".into(), 3)), None];
        for (n, lane) in lanes.iter().enumerate() {
            enqueue(&world, lane.as_ref(), &names(n..n + 1)).await;
        }
        let dead = lease_name(&world.name, Some(&lane(&world, 7)));
        assert!(world.db.store.take_lease(&dead, "dead", Duration::from_secs(2)).await.unwrap());
        enqueue(&world, Some(&lane(&world, 7)), &names(3..4)).await;
        until("all of them", || async { (broker.delivered().len() == 4).then_some(()) }).await;
        until("their leases", || async {
            let leases = lanes.iter().map(|lane| lease_name(&world.name, lane.as_ref())).chain([dead.clone()]);
            for lease in leases {
                if world.db.store.meta(&lease).await.unwrap().as_deref() != Some("") {
                    return None;
                }
            }
            Some(())
        })
        .await;
        process.stop().await;
        let own = world.db.store.meta(&lease_name(&world.name, Some(&lane(&world, 1)))).await.unwrap();
        assert_eq!(own.as_deref(), Some(""), "given back at the end");
        assert_eq!(broker.delivered().last().unwrap(), "r0003", "not before the dead one's lease ran out");
    });
}

/// Nobody delivers while the test holds these.
async fn hold_both(world: &World, value: &str) {
    for partition in 0..2 {
        hold(&world.db.store, &lease_name(&world.name, Some(&lane(world, partition))), value).await;
    }
}

async fn waiting(world: &World, count: usize) -> Vec<String> {
    until("receipts", || async {
        let rows = world.db.rows("receipt, topic, kafka_partition", "FROM countersign_outbox ORDER BY id").await;
        (rows.len() == count).then_some(rows)
    })
    .await
    .into_iter()
    .map(|row| {
        let (receipt, place) = row.split_once("}|").unwrap();
        let receipt = serde_json::from_str(&format!("{receipt}}}")).unwrap();
        format!("{} {place}", in_short(&receipt))
    })
    .collect()
}

#[test]
fn a_message_that_a_replay_set_aside_and_the_sweeper_finished_has_its_receipts_in_one_lane() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        hold_both(&world, "somebody 2999-01-01T00:00:00Z").await;
        world.send(&[child(5, 70, 10)]).await;
        let rest = format!("[retry]\nattempts = 1000\ndelay = \"100ms\"\nmax_delay = \"100ms\"\n{}", routes(""));
        let config = world.file(&world.config(&rest));
        let mut command = program();
        command.args(["replay", "-c", config.to_str().unwrap(), "--topic", &world.topic]);
        let mut replay = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        waiting(&world, 1).await;
        replay.kill().unwrap();
        replay.wait().unwrap();
        world.db.run("INSERT INTO parents VALUES (70)").await;
        let running = world.start(&rest).await;
        let place = format!("{}|0", world.topic);
        let expected =
            [format!("child-5-70-10 PROCESSING WAITING {place}"), format!("child-5-70-10 SUCCESS - {place}")];
        assert_eq!(waiting(&world, 2).await, expected);
        hold_both(&world, "").await;
        let pushed: Vec<String> = world.pushed().await.iter().map(in_short).collect();
        assert_eq!(pushed, ["child-5-70-10 PROCESSING WAITING", "child-5-70-10 SUCCESS -"]);
        running.stop().await;
    });
}

#[test]
fn the_receipt_of_a_conflict_goes_behind_that_of_the_message_wherever_it_came() {
    everywhere(|world| async move {
        world.db.run(payments::TABLES).await;
        hold_both(&world, "somebody 2999-01-01T00:00:00Z").await;
        world.send(&[payment("m-1", "bob", 1)]).await;
        let running = world.start(BOOK).await;
        running.outcomes(1, "applied=1").await;
        world.send(&[payment("m-1", "bob", 2).on(1), payment("m-2", "bob", 2).on(1)]).await;
        running.outcomes(3, "applied=2 conflict=1").await;
        let topic = &world.topic;
        let mut rows = waiting(&world, 3).await;
        let first = rows.iter().position(|row| row.starts_with("m-1 SUCCESS")).unwrap();
        assert!(rows.iter().position(|row| row.starts_with("m-1 FAILED")).unwrap() > first, "{rows:?}");
        rows.sort();
        assert_eq!(
            rows,
            [
                format!("m-1 FAILED CONFLICT {topic}|0"),
                format!("m-1 SUCCESS - {topic}|0"),
                format!("m-2 SUCCESS - {topic}|1")
            ]
        );
        hold_both(&world, "").await;
        assert_eq!(world.pushed().await.len(), 3);
        running.stop().await;
    });
}
