//! Many parks in a short while pause the lane; people pause, resume and skip.

use std::time::Duration;

use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::wait::{stays, until};
use crate::world::{Running, World, everywhere, on};

const FIVE: &str = "[pause]\nparks = 5\nratio = 1.0\nwindow = 100\n";

fn poison(count: usize) -> Vec<Rec> {
    (0..count).map(|n| Rec::new(format!("bad-{n}"), "{no json")).collect()
}

async fn paused(running: &Running, world: &World) {
    running.stands(Readiness::Degraded, "paused: too many parked records").await;
    let reason = world.lane(0).await.unwrap().paused.unwrap();
    assert!(reason.contains("lanes resume"), "{reason}");
}

/// Poison that no decoder takes, and poison that the database refuses, whose batch is taken apart first.
#[test]
fn exactly_the_threshold_is_parked_whatever_the_poison_and_a_restart_drains_no_more() {
    for (kind, route) in [("undecodable", CHARGE), ("refused", CHARGE), ("refused", BOOK)] {
        everywhere(|world| async move {
            world.db.run(&TABLES.replace("amount BIGINT NOT NULL", "amount BIGINT NOT NULL CHECK (amount > 0)")).await;
            let bad: Vec<Rec> = match kind {
                "undecodable" => poison(12),
                _ => (0..12).map(|n| payment(&format!("bad-{n}"), "bob", -1)).collect(),
            };
            let good = vec![payment("m-0", "bob", 1), payment("m-1", "bob", 1)];
            world.send(&[good, bad, vec![payment("m-2", "bob", 1)]].concat()).await;
            let config = [FIVE, route].concat();
            let running = world.start(&config).await;
            running.outcomes(7, "applied=2 parked=5").await;
            paused(&running, &world).await;
            assert_eq!(world.lane(0).await.unwrap().next_offset, 7);
            running.stop().await;

            let running = world.start(&config).await;
            paused(&running, &world).await;
            stays(Duration::from_millis(1200), "nothing more is parked", || async {
                world.dead_letters().await.len() == 5
            })
            .await;
            assert!(world.db.store.resume_lane(&world.lane_key(0)).await.unwrap());
            running.outcomes(5, "parked=5").await;
            paused(&running, &world).await;
            world.db.store.resume_lane(&world.lane_key(0)).await.unwrap();
            running.outcomes(8, "applied=1 parked=7").await;
            running.ready().await;
            assert_eq!(world.ledger().await, ["order-m-0", "order-m-1", "order-m-2"]);
            running.stop().await;
        });
    }
}

#[test]
fn by_default_fifty_parks_pause() {
    on(&[Engine::Postgres], |world| async move {
        world.send(&poison(70)).await;
        let running = world.start(BOOK).await;
        running.outcomes(50, "parked=50").await;
        paused(&running, &world).await;
        running.stop().await;
        assert_eq!(world.dead_letters().await.len(), 50);
        assert_eq!(world.committed(0).unwrap().0, 50);
    });
}

#[test]
fn a_lane_paused_by_an_operator_stands_and_goes_on_where_it_stood() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        assert!(world.db.store.pause_lane(&world.lane_key(0), "maintenance").await.unwrap());
        world.send(&[payment("m-1", "bob", 1), payment("m-2", "bob", 1).on(1)]).await;
        running.outcomes(2, "applied=2").await;
        running.stands(Readiness::Degraded, "paused: maintenance").await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-2"], "the other lane goes on");
        world.db.store.resume_lane(&world.lane_key(0)).await.unwrap();
        running.outcomes(3, "applied=3").await;
        running.ready().await;
        running.stop().await;
    });
}

/// An operator looks whether the pause has been heard before he goes to work on the tables.
#[test]
fn a_pause_is_seen_on_a_quiet_lane_and_so_is_its_end() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(1, "applied=1").await;
        assert!(world.db.store.pause_lane(&world.lane_key(0), "maintenance").await.unwrap());
        running.stands(Readiness::Degraded, "paused: maintenance").await;
        assert!(world.db.store.resume_lane(&world.lane_key(0)).await.unwrap());
        running.ready().await;
        running.stop().await;
    });
}

#[test]
fn skipping_parks_the_record_at_which_the_lane_stands_and_no_other() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        world.db.store.pause_lane(&world.lane_key(0), "looking").await.unwrap();
        world.send(&[payment("m-1", "bob", 1), payment("m-2", "bob", 1), payment("m-3", "bob", 1)]).await;
        running.stands(Readiness::Degraded, "looking").await;
        assert!(world.skip_record(0).await);
        running.outcomes(4, "applied=3 parked=1").await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-2", "order-m-3"]);
        let letters = world.dead_letters().await;
        assert_eq!(letters.len(), 1);
        assert!(letters[0].starts_with("1|m-1|operator|"), "{letters:?}");
        until("its receipt", || async {
            let receipts = world.pushed_in_short().await;
            receipts.iter().any(|short| short.starts_with("m-1 FAILED")).then_some(())
        })
        .await;
        running.stop().await;
    });
}

#[test]
fn a_skip_is_used_up_by_one_record_and_reading_it_again_is_no_conflict() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        world.db.store.pause_lane(&world.lane_key(0), "looking").await.unwrap();
        world.send(&[Rec::tombstone("bob"), payment("m-1", "bob", 1), payment("m-2", "bob", 1)]).await;
        running.stands(Readiness::Degraded, "looking").await;
        assert!(world.skip_record(0).await);
        running.outcomes(4, "applied=2 skipped=1 parked=1").await;
        let letters = world.dead_letters().await;
        assert!(letters.len() == 1 && letters[0].starts_with("2|m-1|operator|"), "{letters:?}");
        let lane = world.lane(0).await.unwrap();
        assert_eq!((lane.skip_to, lane.paused, lane.next_offset), (None, None, 4));
        world.send(&[payment("m-3", "bob", 1)]).await;
        running.outcomes(5, "applied=3 skipped=1 parked=1").await;
        running.stop().await;

        world.broker.commit(&world.name, &world.topic, 0, 0, "");
        let running = world.start(CHARGE).await;
        running.outcomes(5, "duplicate=4 skipped=1").await;
        running.stop().await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-2", "order-m-3"]);
        assert_eq!(world.dead_letters().await.len(), 1);
    });
}

#[test]
fn each_skip_takes_a_stopped_lane_one_record_further() {
    everywhere(|world| async move {
        let tables = TABLES.split("CREATE TABLE ledger").collect::<Vec<_>>();
        world.db.run(tables[0]).await;
        world.send(&(0..4).map(|n| payment(&format!("m-{n}"), "bob", 1)).collect::<Vec<_>>()).await;
        let running = world.start(BOOK).await;
        running.stands(Readiness::Degraded, "ledger").await;
        until("a row that says why", || async {
            let lanes = world.db.store.lanes(&world.name).await.unwrap();
            lanes[0].standing.as_deref().is_some_and(|why| why.contains("ledger")).then_some(())
        })
        .await;
        for parked in 1..=2 {
            assert!(world.skip_record(0).await);
            running.outcomes(parked, &format!("parked={parked}")).await;
            let lane = world.lane(0).await.unwrap();
            assert_eq!((lane.next_offset, lane.skip_to), (parked as i64, None));
        }
        world.db.run(&["CREATE TABLE ledger", tables[1]].concat()).await;
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(world.ledger().await, ["order-m-2", "order-m-3"]);
        assert_eq!(world.db.store.lanes(&world.name).await.unwrap()[0].standing, None);
        running.stop().await;
    });
}

#[test]
fn resuming_takes_back_a_skip_that_is_not_used_up() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        let (store, lane) = (&world.db.store, world.lane_key(0));
        assert!(store.skip_lane(&lane, 1_000).await.unwrap());
        let listed = store.lanes(&world.name).await.unwrap();
        assert!(listed.iter().any(|lane| lane.skip_to == Some(1_000)), "an order that is not carried out is shown");
        assert!(store.resume_lane(&lane).await.unwrap());
        world.send(&[payment("m-1", "bob", 1)]).await;
        running.outcomes(2, "applied=2").await;
        running.stop().await;
    });
}
