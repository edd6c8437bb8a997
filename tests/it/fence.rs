//! A worker that lost its lane commits nothing for it.

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::{World, everywhere, on};

fn payments(ids: std::ops::Range<usize>) -> Vec<Rec> {
    ids.map(|n| payment(&format!("m-{n}"), "bob", 1).on(n as i32 % 2)).collect()
}

async fn once_each(world: &World, count: usize) {
    world.booked(count).await;
    let mut ledger = world.ledger().await;
    ledger.sort();
    let mut expected: Vec<String> = (0..count).map(|n| format!("order-m-{n}")).collect();
    expected.sort();
    assert_eq!(ledger, expected);
    assert_eq!(world.receipt_ids().await.len(), count, "one receipt each, repeats have the same id");
}

#[test]
fn an_epoch_raised_behind_a_lanes_back_fences_it_off_and_it_takes_over_again() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        for round in 0..6 {
            world.send(&payments(round * 20..round * 20 + 20)).await;
            if round % 2 == 0 {
                world.db.run("UPDATE countersign_lanes SET epoch = epoch + 100, owner = 'x'").await;
            }
        }
        once_each(&world, 120).await;
        assert_eq!(world.balance("bob").await, 100_000 - 120);
        for partition in [0, 1] {
            let row = world.lane(partition).await.unwrap();
            assert!(row.epoch > 100 && row.owner != "x", "taken over again: {} {}", row.epoch, row.owner);
            assert_eq!(row.next_offset, 60);
        }
        running.stop().await;
    });
}

#[test]
fn a_batch_that_waits_at_the_fence_while_a_rival_takes_over_commits_nothing() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&payments(0..2)).await;
        running.outcomes(2, "applied=2").await;
        let epoch = world.lane(0).await.unwrap().epoch;
        // The rival holds the row, the lane's next batch waits for it.
        let mut rival = world.db.store.begin().await.unwrap();
        rival.fence(&world.lane_key(0)).await.unwrap().unwrap();
        world.send(&payments(2..40)).await;
        until("a batch at hand", || async {
            running.view.lanes.reports().iter().any(|(lane, report)| lane.1 == 0 && report.in_flight > 0).then_some(())
        })
        .await;
        let taken = rival.acquire_lane(&world.lane_key(0), "rival", 0).await.unwrap();
        assert_eq!((taken.epoch, taken.next_offset), (epoch + 1, 1));
        rival.commit().await.unwrap();
        once_each(&world, 40).await;
        let row = world.lane(0).await.unwrap();
        assert!(row.epoch >= epoch + 2 && row.owner != "rival");
        running.stop().await;
    });
}

#[test]
fn two_instances_share_the_partitions_and_one_takes_over_from_the_other() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let first = world.start(BOOK).await;
        world.send(&payments(0..50)).await;
        first.outcomes(50, "applied=50").await;
        let second = world.start(BOOK).await;
        until("the second to get a partition", || async { (second.view.lanes.assigned().len() == 1).then_some(()) })
            .await;
        until("the first to give it up", || async { (first.view.lanes.assigned().len() == 1).then_some(()) }).await;
        world.send(&payments(50..150)).await;
        once_each(&world, 150).await;
        second.seen(1).await;
        world.send(&payments(150..300)).await;
        first.stop().await;
        world.send(&payments(300..350)).await;
        once_each(&world, 350).await;
        assert_eq!(second.view.lanes.assigned().len(), 2);
        second.stop().await;
        for partition in [0, 1] {
            assert_eq!(world.committed(partition).unwrap().0, 175);
        }
    });
}
