//! Where a lane starts again: Kafka's offset decides, and the lane row tells whether the store went back.

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::{Running, World, everywhere};
use countersign::supervisor::Readiness;

fn payments(ids: std::ops::Range<usize>) -> Vec<Rec> {
    ids.map(|n| payment(&format!("m-{n}"), "bob", 1)).collect()
}

/// The ledger as sorted numbers: nothing lost, nothing twice.
async fn booked(world: &World) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        world.ledger().await.iter().map(|order| order.trim_start_matches("order-m-").parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

const OF_COUNTERSIGN: &str = "DELETE FROM countersign_inbox; DELETE FROM countersign_outbox; \
     DELETE FROM countersign_dead_letters; DELETE FROM countersign_lanes;";
const OF_BUSINESS: &str = "DELETE FROM ledger; UPDATE accounts SET balance = 100000 WHERE id = 'bob';";

#[test]
fn the_committed_offset_is_that_of_the_lane_row_with_the_store_epoch_and_a_restart_applies_nothing_again() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..10)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(10, "applied=10").await;
        let epoch = world.lane(0).await.unwrap().store_epoch;
        until("a commit while it runs", || async { (world.committed(0) == Some((10, epoch.clone()))).then_some(()) })
            .await;
        world.send(&payments(10..13)).await;
        running.outcomes(13, "applied=13").await;
        running.stop().await;
        assert_eq!(world.lane(0).await.unwrap().next_offset, 13);
        assert_eq!(world.committed(0), Some((13, epoch)), "stopping commits what is finished");

        let running = world.start(CHARGE).await;
        world.send(&payments(13..15)).await;
        running.outcomes(2, "applied=2").await;
        running.stop().await;
        assert_eq!(booked(&world).await, (0..15).collect::<Vec<_>>());
        assert_eq!(world.pushed().await.len(), 15);
    });
}

#[test]
fn batches_of_nothing_but_skips_and_duplicates_move_the_lane_row_too() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..3)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(3, "applied=3").await;
        world.send(&payments(0..3)).await;
        running.outcomes(6, "applied=3 duplicate=3").await;
        assert_eq!(world.lane(0).await.unwrap().next_offset, 6);
        world.send(&[Rec::tombstone("a"), Rec::tombstone("b")]).await;
        running.outcomes(8, "applied=3 duplicate=3 skipped=2").await;
        assert_eq!(world.lane(0).await.unwrap().next_offset, 8);
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 8);
    });
}

#[test]
fn a_database_emptied_behind_kafkas_back_is_filled_again_and_nothing_is_lost() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..20)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(20, "applied=20").await;
        running.stop().await;
        let epoch = world.committed(0).unwrap().1;
        world.db.run(&[OF_COUNTERSIGN, OF_BUSINESS].concat()).await;
        world.send(&payments(20..22)).await;

        let running = world.start(CHARGE).await;
        running.outcomes(22, "applied=22").await;
        assert_eq!(running.metric("offset_events_total", "store_went_back"), 1.0);
        running.stop().await;
        assert_eq!(booked(&world).await, (0..22).collect::<Vec<_>>());
        let (offset, renewed) = world.committed(0).unwrap();
        assert_eq!(offset, 22);
        assert_ne!(renewed, epoch, "the lost time has another name");
        assert_eq!(world.lane(0).await.unwrap().store_epoch, renewed);
        // Offsets of the old name are still this store's.
        let running = world.start(CHARGE).await;
        world.send(&payments(22..23)).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

/// As if a backup from offset `to` had been restored.
async fn restore(world: &World, to: i64) {
    world
        .db
        .run(&format!(
            "DELETE FROM ledger WHERE CAST(substr(order_id, 9) AS {int}) >= {to};
             UPDATE accounts SET balance = 100000 - {to} WHERE id = 'bob';
             DELETE FROM countersign_inbox WHERE kafka_offset >= {to};
             UPDATE countersign_lanes SET next_offset = {to};",
            int = if world.db.engine == crate::database::Engine::MariaDb { "SIGNED" } else { "integer" },
        ))
        .await;
}

#[test]
fn a_restored_backup_is_brought_up_to_date_from_the_log() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..20)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(20, "applied=20").await;
        running.stop().await;
        restore(&world, 12).await;
        let running = world.start(CHARGE).await;
        running.outcomes(8, "applied=8").await;
        running.stop().await;
        assert_eq!(booked(&world).await, (0..20).collect::<Vec<_>>());
        assert_eq!(world.balance("bob").await, 100_000 - 20);
        assert_eq!(world.committed(0).unwrap().0, 20);
    });
}

#[test]
fn a_restore_under_a_running_lane_is_noticed_with_the_next_batch() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..20)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(20, "applied=20").await;
        until("the commit", || async { (world.committed(0).map(|c| c.0) == Some(20)).then_some(()) }).await;
        restore(&world, 12).await;
        world.send(&payments(20..21)).await;
        until("all of them", || async { (booked(&world).await.len() == 21).then_some(()) }).await;
        assert_eq!(booked(&world).await, (0..21).collect::<Vec<_>>());
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 21);
    });
}

#[test]
fn offsets_of_another_store_stop_the_lane_until_somebody_decides() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..5)).await;
        world.broker.commit(&world.name, &world.topic, 0, 3, "epoch-of-some-other-store");
        world.broker.commit(&world.name, &world.topic, 1, 0, "epoch-of-some-other-store");
        let running = world.start(CHARGE).await;
        running.stands(Readiness::Unready, "another store").await;
        assert_eq!(running.counted(), "");
        running.stop().await;
        assert_eq!(
            world.committed(0),
            Some((3, "epoch-of-some-other-store".to_owned())),
            "nothing is committed over it"
        );
        // The operator decides: from the start.
        for partition in [0, 1] {
            world.broker.commit(&world.name, &world.topic, partition, 0, "");
        }
        let running = world.start(CHARGE).await;
        running.outcomes(5, "applied=5").await;
        running.ready().await;
        running.stop().await;
    });
}

#[test]
fn an_operators_reset_is_obeyed_backwards_and_forwards() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..6)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(6, "applied=6").await;
        running.stop().await;
        world.broker.commit(&world.name, &world.topic, 0, 2, "");
        let running = world.start(CHARGE).await;
        running.outcomes(4, "duplicate=4").await;
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 6);
        assert_eq!(booked(&world).await.len(), 6);

        world.send(&payments(6..10)).await;
        world.broker.commit(&world.name, &world.topic, 0, 9, "");
        let running = world.start(CHARGE).await;
        running.outcomes(1, "applied=1").await;
        assert_eq!(running.metric("offset_events_total", "reset_forward"), 1.0);
        running.stop().await;
        assert_eq!(booked(&world).await, [0, 1, 2, 3, 4, 5, 9]);
        // And that is no store that went back.
        let running = world.start(CHARGE).await;
        world.send(&payments(10..11)).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

#[test]
fn a_log_that_ends_before_the_committed_offset_is_a_new_topic_and_read_from_its_start() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..3)).await;
        world.send(&[Rec::bare("no json")]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=3 parked=1").await;
        running.stop().await;
        let epoch = world.committed(0).unwrap().1;
        world.broker.commit(&world.name, &world.topic, 0, 500, &epoch);
        let running = world.start(CHARGE).await;
        // The known messages are known; the poison stands at a place of another topic.
        running.outcomes(4, "duplicate=3 parked=1").await;
        assert_eq!(running.metric("offset_events_total", "topic_recreated"), 1.0);
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 4);
        assert_eq!(world.lane(0).await.unwrap().generation, 1);
    });
}

#[test]
fn what_comes_after_a_start_at_the_latest_offset_is_applied_even_if_nobody_was_there() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        // One partition with a past and one without.
        world.send(&payments(0..3)).await;
        let config = world.config(CHARGE).replace("[kafka]\n", "[kafka]\nstart = \"latest\"\n");
        let running = Running::start(&config);
        running.ready().await;
        for (partition, offset) in [(0, 3), (1, 0)] {
            until("a lane row", || async { world.lane(partition).await.map(drop) }).await;
            assert_eq!(world.lane(partition).await.unwrap().next_offset, offset);
        }
        running.stop().await;
        world.send(&payments(3..5)).await;
        world.send(&[payment("m-5", "bob", 1).on(1), payment("m-6", "bob", 1).on(1)]).await;

        let running = Running::start(&config);
        running.outcomes(4, "applied=4").await;
        running.stop().await;
        assert_eq!(booked(&world).await, [3, 4, 5, 6]);
        for (partition, offset) in [(0, 5), (1, 2)] {
            assert_eq!(world.committed(partition).unwrap().0, offset);
        }
    });
}
