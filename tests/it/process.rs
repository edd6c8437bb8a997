//! The daemon as a process: ended in an orderly way, and killed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::daemon::{BATCH, Daemon};
use crate::payments::{CHARGE, TABLES, payments};
use crate::ports::free_port;
use crate::world::{World, everywhere};

async fn once_each(world: &World, count: usize) {
    world.booked(count).await;
    world.booked_once(count).await;
    // A receipt may come again, with the same id and the same text.
    let mut receipts: Vec<(String, String)> =
        world.pushed().await.into_iter().map(|receipt| (receipt.receipt_id.clone(), receipt.to_json())).collect();
    receipts.sort();
    receipts.dedup();
    assert_eq!(receipts.len(), count, "each message has one receipt");
    assert_eq!(world.db.count("FROM countersign_inbox WHERE status = 'SUCCESS'").await, count as i64);
}

#[test]
fn sigterm_ends_it_soon_with_exit_0_and_its_offsets_committed() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let process = Daemon::start(&world, CHARGE);
        world.send(&payments(0..100)).await;
        once_each(&world, 100).await;
        let began = Instant::now();
        process.end();
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        for partition in [0, 1] {
            let next = world.lane(partition).await.unwrap().next_offset;
            assert_eq!(world.committed(partition).unwrap().0, next);
            assert_eq!(next, 50);
        }
        // In mid-stream too: what was committed to the database is committed to Kafka.
        let process = Daemon::start(&world, CHARGE);
        world.send(&payments(100..2000)).await;
        world.booked(151).await;
        process.end();
        for partition in [0, 1] {
            assert_eq!(world.committed(partition).unwrap().0, world.lane(partition).await.unwrap().next_offset);
        }
        let process = Daemon::start(&world, CHARGE);
        once_each(&world, 2000).await;
        process.end();
    });
}

#[test]
fn killed_in_mid_stream_and_started_again_it_ends_with_the_right_ledger_and_receipts() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let small = format!("[gate]\nurl = \"memory\"\n{CHARGE}");
        let mut sent = 0;
        for round in 0..3 {
            let mut process = Daemon::start(&world, &small);
            world.send(&payments(sent..sent + 1500)).await;
            sent += 1500;
            world.booked(sent - 1500 + 200 * (round + 1) + 1).await;
            process.kill();
            for partition in [0, 1] {
                let done = world.lane(partition).await.map_or(0, |row| row.next_offset);
                let committed = world.committed(partition).map_or(0, |(offset, _)| offset);
                // One whose commit of offsets was on its way, and one that was handed over with the next.
                assert!(done - committed <= 2 * BATCH, "{done} done, {committed} committed");
            }
        }
        let process = Daemon::start(&world, &small);
        once_each(&world, sent).await;
        process.end();
    });
}

/// A misspelt event type would be lost in silence.
#[test]
fn records_without_a_route_are_warned_of_once_a_topic() {
    crate::world::on(&[crate::database::Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let process = Daemon::start(&world, &CHARGE.replace("\"TOPIC\" }", "\"TOPIC\", header.eventType = \"Paid\" }"));
        let paid = |record: crate::broker::Rec| record.header("eventType", "Paid");
        world.send(&payments(0..20)).await;
        world.send(&payments(20..30).into_iter().map(paid).collect::<Vec<_>>()).await;
        world.booked(10).await;
        let words = process.last_words();
        assert_eq!(words.matches("no route takes this record").count(), 1, "{words}");
        process.end();
    });
}

#[test]
fn before_the_broker_is_there_it_waits_and_ends_when_asked() {
    crate::world::on(&[crate::database::Engine::Sqlite], |world| async move {
        let config = world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port()));
        let file = world.file(&config.replace(&world.broker.address(), "127.0.0.1:1"));
        let process = Daemon::run(&world, &file, |_| {});
        tokio::time::sleep(Duration::from_millis(700)).await;
        let began = Instant::now();
        process.end();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn a_reader_of_its_log_that_goes_away_stops_neither_the_work_nor_the_end() {
    crate::world::on(&[crate::database::Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let mut process = Daemon::start_with(&world, CHARGE, |command| {
            command.stderr(Stdio::piped());
        });
        // Every line from here on is written to a pipe that nobody holds any more.
        drop(process.child.stderr.take());
        world.send(&payments(0..4)).await;
        once_each(&world, 4).await;
        process.end();
    });
}
