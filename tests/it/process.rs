//! The daemon as a process: ended in an orderly way, and killed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::{PATIENCE, until};
use crate::world::{World, everywhere, free_port};

/// `countersign run` as a child of the test; the broker stays with the test.
struct Process(Child);

impl Process {
    fn start(world: &World, rest: &str) -> Self {
        let config = world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{rest}", free_port()));
        // Small enough for the drain time, which the short session of these tests leaves at 2.4 s.
        let file = world.file(&config.replace("[store]\n", "[store]\nbatch = 100\n"));
        let log = std::fs::File::options().create(true).append(true).open(world.db.dir.path().join("log")).unwrap();
        let mut command = crate::command_line::program();
        command.args(["run", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(log);
        Self(command.spawn().unwrap())
    }

    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.wait().unwrap().code()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        assert_eq!(self.wait(), None, "it was killed, it did not end by itself");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn payments(ids: std::ops::Range<usize>) -> Vec<Rec> {
    ids.map(|n| payment(&format!("m-{n:04}"), "bob", 1).on(n as i32 % 2)).collect()
}

async fn once_each(world: &World, count: usize) {
    until(&format!("{count} bookings"), || async { (world.ledger().await.len() >= count).then_some(()) }).await;
    let mut ledger = world.ledger().await;
    ledger.sort();
    assert_eq!(ledger, (0..count).map(|n| format!("order-m-{n:04}")).collect::<Vec<_>>());
    assert_eq!(world.balance("bob").await, 100_000 - count as i64);
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
        let mut process = Process::start(&world, CHARGE);
        world.send(&payments(0..100)).await;
        once_each(&world, 100).await;
        let began = Instant::now();
        process.terminate();
        assert_eq!(process.wait(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        for partition in [0, 1] {
            let next = world.lane(partition).await.unwrap().next_offset;
            assert_eq!(world.committed(partition).unwrap().0, next);
            assert_eq!(next, 50);
        }
        // In mid-stream too: what was committed to the database is committed to Kafka.
        let mut process = Process::start(&world, CHARGE);
        world.send(&payments(100..3000)).await;
        until("some of them", || async { (world.ledger().await.len() > 150).then_some(()) }).await;
        process.terminate();
        assert_eq!(process.wait(), Some(0));
        for partition in [0, 1] {
            assert_eq!(world.committed(partition).unwrap().0, world.lane(partition).await.unwrap().next_offset);
        }
        let mut process = Process::start(&world, CHARGE);
        once_each(&world, 3000).await;
        process.terminate();
        assert_eq!(process.wait(), Some(0));
    });
}

#[test]
fn killed_in_mid_stream_and_started_again_it_ends_with_the_right_ledger_and_receipts() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let small = format!("[gate]\nurl = \"memory\"\n{CHARGE}");
        let mut sent = 0;
        for round in 0..3 {
            let mut process = Process::start(&world, &small);
            world.send(&payments(sent..sent + 1500)).await;
            sent += 1500;
            let enough = sent - 1500 + 200 * (round + 1);
            until("some of them", || async { (world.ledger().await.len() > enough).then_some(()) }).await;
            process.kill();
        }
        let mut process = Process::start(&world, &small);
        once_each(&world, sent).await;
        process.terminate();
        assert_eq!(process.wait(), Some(0));
    });
}

#[test]
fn before_the_broker_is_there_it_waits_and_ends_when_asked() {
    crate::world::on(&[crate::database::Engine::Sqlite], |world| async move {
        let mut command = crate::command_line::program();
        let config = world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port()));
        let file = world.file(&config.replace(&world.broker.address(), "127.0.0.1:1"));
        command.args(["run", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process(command.spawn().unwrap());
        tokio::time::sleep(Duration::from_millis(700)).await;
        let began = Instant::now();
        process.terminate();
        assert_eq!(process.wait(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn a_reader_of_its_log_that_goes_away_stops_neither_the_work_nor_the_end() {
    crate::world::on(&[crate::database::Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let mut command = crate::command_line::program();
        let file = world.file(&world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port())));
        command.args(["run", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        // Every line from here on is written to a pipe that nobody holds any more.
        drop(process.0.stderr.take());
        world.send(&payments(0..4)).await;
        once_each(&world, 4).await;
        process.terminate();
        assert_eq!(process.wait(), Some(0));
    });
}
