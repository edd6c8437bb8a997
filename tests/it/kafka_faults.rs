//! A broker that refuses, does not answer in time, or is away for a moment, while records come.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payments};
use crate::wait::{until, until_within};
use crate::world::{Running, World, everywhere, on};

/// What the protocol promises after the broker is itself again.
const RECOVERY: Duration = Duration::from_secs(15);

/// Each effect and each receipt id is there once, and the group knows how far it is.
async fn at_rest(world: &World, count: usize) {
    world.booked(count).await;
    world.booked_once(count).await;
    until_within(RECOVERY, "the group's offsets", || async {
        for partition in [0, 1] {
            let row = world.lane(partition).await.map(|row| row.next_offset);
            if row.is_none() || row != world.committed(partition).map(|(offset, _)| offset) {
                return None;
            }
        }
        Some(())
    })
    .await;
    assert_eq!(world.receipt_ids().await.len(), count);
}

/// Nobody tells of a commit that was refused, and there may be no next record whose commit would cover it.
#[test]
fn a_commit_that_is_refused_is_made_again() {
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
        RD_KAFKA_RESP_ERR_NOT_COORDINATOR, RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
        RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
    };
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        let mut sent = 0;
        for error in [
            RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
            RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
            RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
        ] {
            world.broker.cluster().request_errors(RDKafkaApiKey::OffsetCommit, &[error; 2]);
            world.send(&payments(sent..sent + 10)).await;
            sent += 10;
            at_rest(&world, sent).await;
            println!("{:?}: committed", RDKafkaErrorCode::from(error));
        }
        running.stop().await;
    });
}

/// A member that is thrown out has lost its lanes: what it was doing commits nothing, and it joins again.
#[test]
fn a_member_that_is_thrown_out_joins_again() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        for round in 0..3 {
            world.send(&payments(round * 100..round * 100 + 50)).await;
            let unknown = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID];
            world.broker.cluster().request_errors(RDKafkaApiKey::Heartbeat, &unknown);
            world.send(&payments(round * 100 + 50..round * 100 + 100)).await;
            at_rest(&world, (round + 1) * 100).await;
        }
        running.stop().await;
    });
}

/// Longer than a member may be without polling: the polling goes on while the lane waits for its row.
#[test]
fn a_lane_that_stands_for_longer_than_the_poll_interval_stays_a_member() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let text =
            world.config(CHARGE).replace("[kafka.options]\n", "[kafka.options]\n\"max.poll.interval.ms\" = 4000\n");
        let running = [Running::start(&text), Running::start(&text)];
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        let epochs =
            || world.db.rows("kafka_partition, epoch, owner", "FROM countersign_lanes ORDER BY kafka_partition");
        // The second member may have taken one of them over.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let before = epochs().await;
        let mut rival = world.db.store.begin().await.unwrap();
        world.send(&payments(0..20)).await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(12) {
            // The server ends a transaction that asks nothing.
            rival.batch("UPDATE accounts SET balance = balance WHERE id = 'bob'").await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(epochs().await, before, "nobody was thrown out");
        }
        assert!(world.ledger().await.is_empty());
        rival.commit().await.unwrap();
        at_rest(&world, 20).await;
        for running in running {
            assert!(!running.counted().contains("duplicate"), "{}", running.counted());
            running.stop().await;
        }
    });
}

#[test]
fn a_broker_that_is_slow_or_away_again_and_again_costs_only_time() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        let mut sent = 0;
        for round in 0..6_u64 {
            world.send(&payments(sent..sent + 40)).await;
            sent += 40;
            tokio::time::sleep(Duration::from_millis(20 * (round % 3))).await;
            if round % 2 == 0 {
                world.broker.cluster().broker_down(1).unwrap();
                tokio::time::sleep(Duration::from_millis(300 + 400 * round)).await;
                world.broker.cluster().broker_up(1).unwrap();
            } else {
                world.broker.cluster().broker_round_trip_time(1, Duration::from_millis(900)).unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
                world.broker.cluster().broker_round_trip_time(1, Duration::ZERO).unwrap();
            }
        }
        let began = Instant::now();
        world.booked(sent).await;
        assert!(began.elapsed() < RECOVERY, "{:?}", began.elapsed());
        at_rest(&world, sent).await;
        running.stop().await;
    });
}

/// Readiness says that the brokers do not let this lane read.
async fn refused(running: &Running) {
    until("a lane that says so", || async {
        running.reasons().1.iter().any(|reason| reason.contains("uthorization failed")).then_some(())
    })
    .await;
}

/// The client tells of such an error once, and never that it is over.
#[test]
fn a_quiet_lane_whose_fetches_were_refused_is_well_again_without_a_record() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&payments(0..10)).await;
        at_rest(&world, 10).await;
        let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
        world.broker.cluster().request_errors(RDKafkaApiKey::Fetch, &denied);
        refused(&running).await;
        until("no more of it", || async { running.reasons().1.is_empty().then_some(()) }).await;
        running.ready().await;
        world.send(&payments(10..20)).await;
        at_rest(&world, 20).await;
        running.stop().await;
    });
}

/// What came before the refusal must not hide it.
#[test]
fn fetches_that_are_refused_while_a_lane_has_work_are_told_and_made_again() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        for round in 0..3 {
            let mut rival = world.db.store.begin().await.unwrap();
            rival.batch("UPDATE accounts SET balance = balance WHERE id = 'bob'").await.unwrap();
            world.send(&payments(round * 200..round * 200 + 100)).await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 1000];
            world.broker.cluster().request_errors(RDKafkaApiKey::Fetch, &denied);
            tokio::time::sleep(Duration::from_millis(300)).await;
            rival.commit().await.unwrap();
            world.booked(round * 200 + 100).await;
            refused(&running).await;
            world.broker.cluster().clear_request_errors(RDKafkaApiKey::Fetch);
            world.send(&payments(round * 200 + 100..round * 200 + 200)).await;
            at_rest(&world, round * 200 + 200).await;
            running.ready().await;
        }
        running.stop().await;
    });
}

/// As after a broker that forgot what the producer had sent before: such a client never delivers anything again.
#[test]
fn a_receipts_producer_that_gave_up_for_good_is_replaced() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&payments(0..10)).await;
        at_rest(&world, 10).await;
        for (round, error) in [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
        ]
        .into_iter()
        .enumerate()
        {
            world.send(&payments(10 + 20 * round..20 + 20 * round)).await;
            world.broker.cluster().request_errors(RDKafkaApiKey::Produce, &[error; 2]);
            world.booked(20 + 20 * round).await;
            world.broker.cluster().clear_request_errors(RDKafkaApiKey::Produce);
            world.send(&payments(20 + 20 * round..30 + 20 * round)).await;
            at_rest(&world, 30 + 20 * round).await;
        }
        running.stop().await;
    });
}
