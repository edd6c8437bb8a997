//! Keyed lanes: the records of one partition at work side by side, those of one key one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign::supervisor::Readiness;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::{stays, until};
use crate::world::{Running, World, on};

/// SQLite has one writer at a time, and no slices.
const SIDE_BY_SIDE: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

fn ordered(order: &str) -> String {
    CHARGE.replace("message_id", &format!("order = \"{order}\"\nmessage_id"))
}

/// Batches so small that a window of four slices has 40 records.
fn config(world: &World, route: &str) -> String {
    let text = world.config(route).replace("[kafka]\n", "slices = 4\n[kafka]\n");
    text.replace("[store]\n", "[store]\nbatch = 10\n")
}

async fn accounts(world: &World, count: usize) {
    world.db.run(TABLES).await;
    let rows: Vec<String> = (0..count).map(|n| format!("('acc{n}', 1000)")).collect();
    world.db.run(&format!("INSERT INTO accounts VALUES {}", rows.join(", "))).await;
}

/// Holds bob's account until it is told to let go; the server ends a transaction that asks nothing.
struct Rival {
    let_go: tokio::sync::oneshot::Sender<()>,
    holds: tokio::task::JoinHandle<()>,
}

impl Rival {
    async fn begin(world: &World) -> Self {
        let mut tx = world.db.store.begin().await.unwrap();
        tx.batch("UPDATE accounts SET balance = balance + 1000 WHERE id = 'bob'").await.unwrap();
        let (let_go, mut told) = tokio::sync::oneshot::channel();
        let holds = tokio::spawn(async move {
            while tokio::time::timeout(Duration::from_millis(500), &mut told).await.is_err() {
                tx.batch("UPDATE accounts SET balance = balance WHERE id = 'bob'").await.unwrap();
            }
            tx.commit().await.unwrap();
        });
        Self { let_go, holds }
    }

    async fn end(self) {
        self.let_go.send(()).unwrap();
        self.holds.await.unwrap();
    }
}

async fn next_offset(world: &World) -> i64 {
    world.lane(0).await.unwrap().next_offset
}

/// The bookings of each account, in their order.
async fn by_account(world: &World) -> BTreeMap<String, Vec<String>> {
    let mut accounts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in world.db.rows("account, order_id", "FROM ledger ORDER BY n").await {
        let (account, order) = row.split_once('|').unwrap();
        accounts.entry(account.to_owned()).or_default().push(order.to_owned());
    }
    accounts
}

#[test]
fn a_key_that_stands_lets_the_others_go_on_and_the_offset_waits_for_it() {
    on(&SIDE_BY_SIDE, |world| async move {
        for order in ["key", "none"] {
            accounts(&world, 40).await;
            let rival = Rival::begin(&world).await;
            let before = world.committed(0).map_or(0, |(offset, _)| offset);
            let mut records = vec![payment(&format!("{order}-b0"), "bob", 1)];
            records.extend((0..40).map(|n| payment(&format!("{order}-{n}"), &format!("acc{n}"), 1)));
            records.push(payment(&format!("{order}-b1"), "bob", 1));
            world.send(&records).await;
            let running = Running::start(&config(&world, &ordered(order)));
            // All but those that share a slice with bob; the window ends 40 records behind him.
            world.booked(20).await;
            stays(Duration::from_millis(300), "the mark before bob's record", || async {
                next_offset(&world).await == before && world.committed(0).is_none_or(|(offset, _)| offset <= before)
            })
            .await;
            rival.end().await;
            running.outcomes(42, "applied=42").await;
            let accounts = by_account(&world).await;
            assert_eq!(accounts["bob"].len(), 2);
            if order == "key" {
                assert_eq!(accounts["bob"], ["order-key-b0", "order-key-b1"]);
            }
            assert_eq!(accounts.len(), 41);
            assert_eq!(next_offset(&world).await, before + 42);
            running.stop().await;
            assert_eq!(world.committed(0).unwrap().0, before + 42);
            world.db.run("DROP TABLE accounts; DROP TABLE ledger").await;
        }
    });
}

/// However long one key stands: not more records are at work beyond it than the window has.
#[test]
fn the_window_is_bounded_and_what_was_done_beyond_the_mark_is_found_again() {
    on(&SIDE_BY_SIDE, |world| async move {
        accounts(&world, 200).await;
        let rival = Rival::begin(&world).await;
        let mut records = vec![payment("b0", "bob", 1)];
        records.extend((0..200).map(|n| payment(&format!("m-{n}"), &format!("acc{n}"), 1)));
        world.send(&records).await;
        let running = Running::start(&config(&world, &ordered("key")));
        world.booked(20).await;
        stays(Duration::from_secs(1), "the window", || async { world.db.count("FROM ledger").await < 40 }).await;
        let done = world.db.count("FROM ledger").await as usize;
        running.stop_hard().await;
        rival.end().await;
        assert_eq!(next_offset(&world).await, 0);
        let running = Running::start(&config(&world, &ordered("key")));
        running.outcomes(201, &format!("applied={} duplicate={done}", 201 - done)).await;
        assert!(by_account(&world).await.values().all(|orders| orders.len() == 1));
        assert_eq!(world.receipt_ids().await.len(), 201);
        running.stop().await;
    });
}

/// Restored from a backup, or failed over to a replica that was late: the mark is where it was, and what a slice had
/// committed beyond is gone.
#[test]
fn a_database_that_lost_what_was_done_beyond_the_mark_gets_it_again() {
    on(&SIDE_BY_SIDE, |world| async move {
        accounts(&world, 20).await;
        let rival = Rival::begin(&world).await;
        let mut records = vec![payment("b0", "bob", 1)];
        records.extend((0..20).map(|n| payment(&format!("m-{n}"), &format!("acc{n}"), 1)));
        world.send(&records).await;
        let running = Running::start(&config(&world, &ordered("key")));
        world.booked(10).await;
        let booked = world.ledger().await;
        let id = booked[0].strip_prefix("order-").unwrap();
        let seen = world.lane(0).await.unwrap().records_seen;
        assert!(seen >= 10 && next_offset(&world).await == 0);
        world
            .db
            .run(&format!(
                "DELETE FROM ledger WHERE order_id = 'order-{id}'; \
                 UPDATE accounts SET balance = balance + 1 WHERE id = 'acc{}'; \
                 DELETE FROM countersign_outbox; \
                 DELETE FROM countersign_inbox WHERE message_id = '{id}'; \
                 UPDATE countersign_lanes SET records_seen = records_seen - 1",
                id.strip_prefix("m-").unwrap()
            ))
            .await;
        world.send(&[payment("m-20", "acc0", 1)]).await;
        rival.end().await;
        world.booked(22).await;
        let accounts = by_account(&world).await;
        assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 22, "{accounts:?}");
        assert_eq!(accounts["acc0"].len(), 2);
        until("the mark", || async { (next_offset(&world).await == 22).then_some(()) }).await;
        running.stop().await;
    });
}

#[test]
fn a_takeover_waits_for_all_slices_and_none_passes_the_fence_behind_it() {
    on(&SIDE_BY_SIDE, |world| async move {
        let key = world.lane_key(0);
        let store = &world.db.store;
        let mut tx = store.begin().await.unwrap();
        assert!(tx.fence_slice(&key).await.unwrap().is_none(), "nobody has taken it over");
        tx.rollback().await;
        let mut tx = store.begin().await.unwrap();
        tx.acquire_lane(&key, "first", 7).await.unwrap();
        tx.commit().await.unwrap();

        let (mut one, mut two) = (store.begin().await.unwrap(), store.begin().await.unwrap());
        for tx in [&mut one, &mut two] {
            assert_eq!(tx.fence_slice(&key).await.unwrap().unwrap().owner, "first");
        }
        let taking = tokio::spawn({
            let (store, key) = (store.clone(), key.clone());
            async move {
                let mut tx = store.begin().await.unwrap();
                let row = tx.acquire_lane(&key, "second", 7).await.unwrap();
                tx.commit().await.unwrap();
                row
            }
        });
        // Each writes the row at its end, whoever began later or holds the fence still.
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (n, mut tx) in [(1, one), (2, two)] {
            assert!(!taking.is_finished());
            let row = tx.lock_lane(&key).await.unwrap().unwrap();
            assert_eq!((row.owner.as_str(), row.records_seen), ("first", n - 1));
            let advance = countersign::store::lanes::LaneAdvance {
                next_offset: 7,
                records_seen: n,
                recent_parks: String::new(),
                paused: None,
                skip_to: None,
            };
            tx.advance_lane(&key, &advance).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!taking.is_finished());
            tx.commit().await.unwrap();
        }
        let row = taking.await.unwrap();
        assert_eq!((row.owner.as_str(), row.epoch, row.records_seen), ("second", 2, 2));
        let mut late = store.begin().await.unwrap();
        assert_eq!(late.fence_slice(&key).await.unwrap().unwrap().owner, "second");
        late.rollback().await;
    });
}

#[test]
fn an_epoch_raised_behind_the_slices_backs_fences_them_off_and_they_take_over_again() {
    on(&SIDE_BY_SIDE, |world| async move {
        accounts(&world, 10).await;
        let running = Running::start(&config(&world, &ordered("key")));
        for round in 0..6 {
            let ids = round * 30..round * 30 + 30;
            world
                .send(&ids.map(|n| payment(&format!("m-{n}"), &format!("acc{}", n % 10), 1)).collect::<Vec<_>>())
                .await;
            if round % 2 == 0 {
                world.db.run("UPDATE countersign_lanes SET epoch = epoch + 100, owner = 'x'").await;
            }
        }
        world.booked(180).await;
        for (account, orders) in by_account(&world).await {
            let digit: usize = account.strip_prefix("acc").unwrap().parse().unwrap();
            assert_eq!(orders, (0..18).map(|n| format!("order-m-{}", n * 10 + digit)).collect::<Vec<_>>());
        }
        assert_eq!(world.receipt_ids().await.len(), 180);
        running.stop().await;
    });
}

#[test]
fn an_operators_skip_takes_the_record_at_which_the_lane_stands_and_no_other() {
    on(&SIDE_BY_SIDE, |world| async move {
        accounts(&world, 10).await;
        let running = Running::start(&config(&world, &ordered("key")));
        world.send(&[payment("m-first", "acc0", 1)]).await;
        running.outcomes(1, "applied=1").await;
        assert!(world.db.store.pause_lane(&world.lane_key(0), "by hand").await.unwrap());
        world.send(&(0..10).map(|n| payment(&format!("m-{n}"), &format!("acc{n}"), 1)).collect::<Vec<_>>()).await;
        running.stands(Readiness::Degraded, "by hand").await;
        assert!(world.skip_record(0).await);
        let seen = running.outcomes(11, "applied=10 parked=1").await;
        let parked: Vec<_> = seen.iter().filter(|one| one.reason.as_deref() == Some("operator")).collect();
        assert_eq!(parked.len(), 1);
        assert_eq!(parked[0].position.offset, 1);
        running.ready().await;
        assert_eq!(next_offset(&world).await, 11);
        assert_eq!(world.lane(0).await.unwrap().skip_to, None);

        // And everything below an offset, in whichever slice it stands.
        world.db.store.pause_lane(&world.lane_key(0), "by hand").await.unwrap();
        world
            .send(&(20..40).map(|n| payment(&format!("m-{n}"), &format!("acc{}", n % 10), 1)).collect::<Vec<_>>())
            .await;
        running.stands(Readiness::Degraded, "by hand").await;
        world.db.store.skip_lane(&world.lane_key(0), 19).await.unwrap();
        running.outcomes(31, "applied=22 parked=9").await;
        assert_eq!(next_offset(&world).await, 31);
        assert_eq!(world.lane(0).await.unwrap().skip_to, None);
        running.stop().await;
    });
}

/// Keys, ids that come twice, ids that come with other content, poison, rejections, and a daemon that is killed in between:
/// each account is booked in the order in which its payments were sent, each payment once.
#[test]
fn any_history_is_applied_once_and_each_key_in_its_order() {
    on(&SIDE_BY_SIDE, |world| async move {
        accounts(&world, 8).await;
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut all, mut rejected) = (Vec::new(), 0);
        for round in 0..6 {
            let slices = random.random_range(2..7);
            let text = config(&world, &ordered("key")).replace("slices = 4", &format!("slices = {slices}"));
            let running = Running::start(&text);
            for n in 0..random.random_range(20..120) {
                let account = format!("acc{}", random.random_range(0..8));
                let id = format!("m-{round}-{n}");
                let record = match random.random_range(0..12) {
                    0 if !all.is_empty() => {
                        let again: &Rec = &all[random.random_range(0..all.len())];
                        again.clone()
                    }
                    1 => {
                        rejected += 1;
                        payment(&id, &account, 1_000_000)
                    }
                    2 => Rec::new(id.as_str(), "no JSON at all {").key(account.as_str()),
                    _ => {
                        sent.entry(account.clone()).or_default().push(format!("order-{id}"));
                        payment(&id, &account, 1)
                    }
                };
                all.push(record.clone());
                world.send(&[record]).await;
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
            if random.random_bool(0.5) {
                running.stop_hard().await;
            } else {
                running.stop().await;
            }
        }
        let running = Running::start(
            &config(&world, &ordered("key"))
                .replace("[store]\n", "[pause]\nparks = 500\nwindow = 1000\nratio = 1.0\n[store]\n"),
        );
        world.db.store.resume_lane(&world.lane_key(0)).await.unwrap();
        until("the end of the log", || async {
            (world.lane(0).await.is_some_and(|row| row.next_offset == all.len() as i64)).then_some(())
        })
        .await;
        assert_eq!(by_account(&world).await, sent);
        let balances: i64 = world
            .db
            .rows("balance", "FROM accounts WHERE id LIKE 'acc%'")
            .await
            .iter()
            .map(|b| b.parse::<i64>().unwrap())
            .sum();
        assert_eq!(balances, 8 * 1000 - sent.values().map(|orders| orders.len() as i64).sum::<i64>());
        let failed =
            world.db.count("FROM countersign_inbox WHERE status = 'FAILED' AND code = 'INSUFFICIENT_FUNDS'").await;
        assert_eq!(failed, rejected);
        let rows = world.db.count("FROM countersign_inbox").await as usize;
        assert_eq!(world.receipt_ids().await.len(), rows);
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, all.len() as i64);
    });
}
