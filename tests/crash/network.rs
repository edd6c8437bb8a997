//! The ways to database and Redis: cut, stalled, robbed of answers; and hosts that are never heard of again.

use std::ops::Range;
use std::time::{Duration, Instant};

use rand::Rng as _;

use crate::broker::Rec;
use crate::business::Business;
use crate::outages::seeded;
use crate::payments::{TABLES, payment};
use crate::points::redis;
use crate::proxy::Proxy;
use crate::server::SERVERS;
use crate::service::{Plan, RECOVERY, Service, recovers};
use crate::wait::{stays, until};
use crate::world::{PARTITIONS, on};
use crate::zombie::asleep;

const LIMITS: &str = "batch = 20\ntransaction_timeout = \"1s\"\n";

#[test]
fn whatever_the_ways_to_database_and_redis_do_nothing_is_lost_or_doubled() {
    on(&SERVERS, |world| async move {
        let mut rng = seeded();
        let mut business = Business::begin(&world).await;
        let (store, cache) = (Proxy::before_url(&world.db.url).await, Proxy::before_url(&redis()).await);
        let gate = cache.instead_of(&redis());
        let service =
            Plan { gate: &gate, store: Some(store.instead_of(&world.db.url)), limits: LIMITS, ..Plan::default() }
                .start(&world);
        business.send(&world, 40).await;
        business.finished(&world).await;
        let mut deaf = 0;
        for _ in 0..24 {
            business.send(&world, 40).await;
            let messages = business.messages();
            let from = rng.random_range(0..messages - 20);
            business.repeat(&world, from..from + 20).await;
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..150))).await;
            let while_it_lasts = Duration::from_millis(rng.random_range(10..700));
            let fault = rng.random_range(0..10);
            match fault {
                0 | 1 => store.cut_once().await,
                2 => {
                    store.cut(true);
                    tokio::time::sleep(while_it_lasts).await;
                    store.cut(false);
                }
                3 => {
                    store.stall(true);
                    tokio::time::sleep(while_it_lasts).await;
                    store.stall(false);
                }
                4 | 5 => store.rob(world.db.engine.commit()),
                6 => store.rob("countersign_outbox"),
                // Noticed only by the time that an answer takes.
                7 if deaf < 2 => {
                    deaf += 1;
                    store.vanish();
                }
                8 => {
                    cache.stall(true);
                    tokio::time::sleep(while_it_lasts).await;
                    cache.stall(false);
                }
                9 => cache.rob("SET"),
                _ => cache.cut_once().await,
            }
        }
        // A backlog, which takes as long as it takes; then nothing is left of all that.
        business.finished(&world).await;
        business.holds(&world).await;
        business.send(&world, 40).await;
        recovers(&world, &business, "all of that").await;
        business.proves_right(&world).await;
        service.says(200, "\"ready\"").await;
        service.end();
    });
}

#[test]
fn a_commit_whose_answer_is_lost_is_looked_up_and_counted_once() {
    on(&SERVERS, |world| async move {
        let mut business = Business::begin(&world).await;
        let store = Proxy::before_url(&world.db.url).await;
        let service = Plan { store: Some(store.instead_of(&world.db.url)), ..Plan::default() }.start(&world);
        business.send(&world, 20).await;
        business.finished(&world).await;
        for lost in 1..=8 {
            store.rob(world.db.engine.commit());
            business.send(&world, 50).await;
            store.until_robbed(lost).await;
            business.finished(&world).await;
        }
        assert_eq!(service.metric("records_total", "duplicate").await, business.repeats as f64);
        let all = service.metric("records_total", "").await;
        assert_eq!(all, business.records() as f64, "consumed = the sum of all outcomes");
        business.proves_right(&world).await;
        service.end();
    });
}

/// A way on which nothing is ever answered is given up once the server should long have ended the statement itself.
#[test]
fn a_way_that_goes_deaf_is_given_up() {
    on(&SERVERS, |world| async move {
        let mut business = Business::begin(&world).await;
        let store = Proxy::before_url(&world.db.url).await;
        let service =
            Plan { store: Some(store.instead_of(&world.db.url)), limits: LIMITS, ..Plan::default() }.start(&world);
        business.send(&world, 50).await;
        business.finished(&world).await;
        store.vanish();
        business.send(&world, 50).await;
        recovers(&world, &business, "a deaf way").await;
        business.proves_right(&world).await;
        service.end();
    });
}

/// Where it is when it is never heard of again, with locks on the lane's row, on inbox rows, on accounts.
const HOLDING: [&str; 3] = ["after-inbox", "after-effect", "before-commit"];

#[test]
fn a_host_that_vanishes_with_its_locks_holds_up_its_successor_for_seconds() {
    on(&SERVERS, |world| async move {
        let mut business = Business::begin(&world).await;
        for point in HOLDING {
            // Each with a way of its own, which stays open to the server.
            let store = Proxy::before_url(&world.db.url).await;
            let points = format!("{point}=1*return(stop)");
            let mut lost = Plan {
                store: Some(store.instead_of(&world.db.url)),
                // As it is by default: the bound must not rest on a short one.
                limits: "batch = 20\n",
                points: &points,
                ..Plan::default()
            }
            .start(&world);
            business.send(&world, 60).await;
            asleep(&lost.daemon).await;
            store.vanish();
            lost.daemon.kill();
            let mut tx = world.db.store.begin().await.unwrap();
            let locked = tx.fetch("SELECT epoch FROM countersign_lanes FOR UPDATE NOWAIT", Vec::new()).await;
            assert!(locked.is_err(), "it holds its locks");
            drop(tx);
            let began = Instant::now();
            let successor = Service::start(&world);
            business.send(&world, 60).await;
            business.finished(&world).await;
            let took = began.elapsed();
            println!("{:?}: {:.1} s after a host vanished {point}", world.db.engine, took.as_secs_f64());
            // Its session in the group ends after 3 s, what it left in the database 5 s after its last statement.
            assert!(took < RECOVERY, "{took:?} {point}");
            business.holds(&world).await;
            successor.end();
        }
        until("the last of its locks", || async {
            let mut tx = world.db.store.begin().await.unwrap();
            tx.fetch("SELECT epoch FROM countersign_lanes FOR UPDATE NOWAIT", Vec::new()).await.ok().map(drop)
        })
        .await;
        let last = Service::start(&world);
        business.proves_right(&world).await;
        last.end();
    });
}

/// While nobody knows what became of a commit, nothing is told and no offset moves, however long that lasts.
#[test]
fn a_commit_in_doubt_for_long_is_neither_told_nor_passed() {
    on(&SERVERS, |world| async move {
        world.db.run(TABLES).await;
        let on_first = |numbers: Range<usize>| -> Vec<Rec> {
            numbers.map(|n| payment(&format!("m-{n:04}"), "bob", 1).on(0)).collect()
        };
        let store = Proxy::before_url(&world.db.url).await;
        let service =
            Plan { store: Some(store.instead_of(&world.db.url)), limits: LIMITS, ..Plan::default() }.start(&world);
        world.send(&on_first(0..10)).await;
        let arrived = |to: i64| {
            let world = &world;
            move || async move { world.committed(0).filter(|(offset, _)| *offset == to).map(drop) }
        };
        until("the first ones", arrived(10)).await;
        let mut sent = 10;
        for away in [2, 9] {
            // It takes effect, and nothing is heard of it. A commit that was another's, such as a lease's, does not count.
            loop {
                let before = store.robbed();
                store.rob_and_hold(world.db.engine.commit());
                world.send(&on_first(sent..sent + 10)).await;
                store.until_robbed(before + 1).await;
                store.cut(true);
                tokio::time::sleep(Duration::from_millis(300)).await;
                sent += 10;
                let next = world.lane(0).await.unwrap().next_offset;
                if next == sent as i64 && world.committed(0).unwrap().0 < next {
                    break;
                }
                store.cut(false);
                until("an outcome", arrived(sent as i64)).await;
                assert!(sent < 500, "its commit is never the one");
                // Leases are renewed at once, and then not for some seconds.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let told = world.broker.read_all(&world.receipts, PARTITIONS).len();
            let still = || async {
                world.committed(0).is_some_and(|(offset, _)| offset < sent as i64)
                    && world.broker.read_all(&world.receipts, PARTITIONS).len() == told
            };
            stays(Duration::from_secs(away), "in doubt", still).await;
            assert_eq!(service.get("/livez").await.0, 200);
            store.cut(false);
            let began = Instant::now();
            until("the outcome", arrived(sent as i64)).await;
            assert!(began.elapsed() < RECOVERY, "{:?}", began.elapsed());
            assert_eq!(world.receipt_ids().await.len(), sent);
        }
        world.booked_once(sent).await;
        service.end();
    });
}

/// How the database is away when the daemon is asked to end.
#[derive(Clone, Copy, Debug)]
enum Away {
    Cut,
    Deaf,
    /// In the middle of a commit.
    InDoubt,
}

#[test]
fn a_daemon_that_is_asked_to_end_while_its_database_is_away_ends_in_time() {
    on(&SERVERS, |world| async move {
        let mut business = Business::begin(&world).await;
        for away in [Away::Cut, Away::Deaf, Away::InDoubt] {
            let store = Proxy::before_url(&world.db.url).await;
            let plan = Plan { store: Some(store.instead_of(&world.db.url)), limits: "batch = 20\n", ..Plan::default() };
            let service = plan.start(&world);
            business.send(&world, 40).await;
            business.finished(&world).await;
            match away {
                Away::Cut => store.cut(true),
                Away::Deaf => store.stall(true),
                Away::InDoubt => store.rob_and_hold(world.db.engine.commit()),
            }
            business.send(&world, 40).await;
            if matches!(away, Away::InDoubt) {
                store.until_robbed(1).await;
                store.cut(true);
            }
            // Into whatever waiting that leads.
            tokio::time::sleep(Duration::from_millis(800)).await;
            let began = Instant::now();
            service.end();
            println!("{:?}: {:.1} s to the end, {away:?}", world.db.engine, began.elapsed().as_secs_f64());
            assert!(began.elapsed() < Duration::from_secs(8), "{:?} {away:?}", began.elapsed());
        }
        let last = Service::start(&world);
        business.proves_right(&world).await;
        last.end();
    });
}
