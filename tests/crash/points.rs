//! Every named point, on every database: die there, lose the answer there, hang there.

use std::time::{Duration, Instant};

use crate::business::Business;
use crate::daemon::Daemon;
use crate::database::Engine;
use crate::ports::free_port;
use crate::wait::{PATIENCE, until};
use crate::world::{World, everywhere, on};

/// Where the daemon can be hit, in the order in which a message passes.
pub const POINTS: [&str; 10] = [
    "after-claim",
    "after-inbox",
    "after-effect",
    "before-commit",
    "after-commit",
    "after-confirm",
    "after-store-offset",
    "before-produce",
    "after-produce",
    "after-mark",
];

/// Points whose answer can be lost; the others ask nobody.
const ANSWERS: [&str; 7] =
    ["after-inbox", "after-effect", "before-commit", "after-commit", "before-produce", "after-produce", "after-mark"];

/// SQLite has one writer at a time.
const IN_SLICES: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

pub fn redis() -> String {
    std::env::var("COUNTERSIGN_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned())
}

pub fn armed(world: &World, gate: &str, points: &str) -> Daemon {
    armed_with(world, &Business::config(gate), points)
}

fn armed_with(world: &World, config: &str, points: &str) -> Daemon {
    Daemon::start_with(world, config, |command| {
        command.env("FAILPOINTS", points);
    })
}

/// A daemon without faults finishes what the others left.
pub async fn finish(world: &World, gate: &str, business: &Business) {
    let daemon = armed(world, gate, "");
    business.proves_right(world).await;
    daemon.end();
}

async fn dies_everywhere(world: &World, config: &str) {
    let mut business = Business::begin(world).await;
    for (round, point) in POINTS.into_iter().enumerate() {
        let mut daemon = armed_with(world, config, &format!("{point}={}*off->1*return(die)", round % 3));
        // One flight takes all receipts that wait: only later messages make the next one.
        let deadline = Instant::now() + 2 * PATIENCE;
        while daemon.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not die at {point}");
            business.send(world, 20).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(daemon.wait(), None, "it did not die at {point}");
        business.holds(world).await;
    }
    let daemon = armed_with(world, config, "");
    business.proves_right(world).await;
    daemon.end();
}

#[test]
fn a_death_at_any_point_loses_and_doubles_nothing() {
    everywhere(|world| async move { dies_everywhere(&world, &Business::config("memory")).await });
}

/// Claims of the dead and marks of their commits are in Redis when the next one comes.
#[test]
fn a_death_at_any_point_loses_and_doubles_nothing_with_redis() {
    everywhere(|world| async move { dies_everywhere(&world, &Business::config(&redis())).await });
}

/// Of several transactions at work in one partition, too.
#[test]
fn a_death_at_any_point_loses_and_doubles_nothing_in_slices() {
    on(&IN_SLICES, |world| async move { dies_everywhere(&world, &Business::in_slices(&redis())).await });
}

#[test]
fn lost_answers_in_slices_are_looked_up_or_asked_again() {
    on(&IN_SLICES, |world| async move {
        let mut business = Business::begin(&world).await;
        let daemon = armed_with(&world, &Business::in_slices("memory"), &lost_answers());
        for _ in 0..8 {
            business.send(&world, 100).await;
            business.holds(&world).await;
        }
        business.proves_right(&world).await;
        daemon.end();
    });
}

fn lost_answers() -> String {
    ANSWERS.map(|point| format!("{point}=10%return(lose)")).join(";")
}

#[test]
fn lost_answers_are_looked_up_or_asked_again() {
    everywhere(|world| async move {
        let mut business = Business::begin(&world).await;
        let daemon = armed(&world, &redis(), &lost_answers());
        for _ in 0..8 {
            business.send(&world, 100).await;
            business.holds(&world).await;
        }
        business.proves_right(&world).await;
        daemon.end();
        // Every one of them once more as the first thing that happens.
        for point in ANSWERS {
            let daemon = armed(&world, "off", &format!("{point}=1*return(lose)"));
            business.send(&world, 10).await;
            business.finished(&world).await;
            daemon.end();
        }
        finish(&world, "off", &business).await;
    });
}

fn ends(hangs: Daemon, point: &str) {
    let began = Instant::now();
    hangs.end();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?} at {point}", began.elapsed());
}

/// A lane that hangs in its transaction keeps its member in the group: the others go on, the database takes its locks
/// back, and neither the end nor the next daemon waits for it.
#[test]
fn a_lane_that_hangs_holds_up_no_other_and_no_end() {
    everywhere(|world| async move {
        let mut business = Business::begin(&world).await;
        let daemon = armed(&world, "memory", "after-claim=1*return(hang)");
        business.send(&world, 60).await;
        until("the other lane at its end", || async {
            let done = world
                .db
                .count("FROM countersign_inbox WHERE kafka_partition = 0")
                .await
                .max(world.db.count("FROM countersign_inbox WHERE kafka_partition = 1").await);
            (done >= 30).then_some(())
        })
        .await;
        ends(daemon, "after-claim");
        let mut hangs = armed(&world, "memory", "after-effect=1*return(hang)");
        business.send(&world, 20).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        hangs.kill();
        business.holds(&world).await;
        // Offsets are handed over by a thread that waits for nothing.
        for point in POINTS.into_iter().filter(|point| *point != "after-store-offset") {
            let daemon = armed(&world, "memory", &format!("{point}=1*return(hang)"));
            business.send(&world, 20).await;
            let hangs = || async { daemon.last_words().contains(&format!("hangs at {point}")).then_some(()) };
            until(point, hangs).await;
            business.holds(&world).await;
            ends(daemon, point);
        }
        finish(&world, "memory", &business).await;
    });
}

/// Its partitions are still assigned, and nobody reads them: whoever watches the process is to start it anew.
#[test]
fn a_pipeline_that_ends_badly_ends_the_process_with_the_others_in_order() {
    everywhere(|world| async move {
        let mut business = Business::begin(&world).await;
        let listen = format!("[http]\nlisten = \"127.0.0.1:{}\"\n", free_port());
        let text = world.config(&format!("{listen}{}", Business::config("memory")));
        let first = world.file(&text);
        let second = world.file(&text.replace(&format!("name = \"{}\"", world.name), "name = \"other\""));
        let mut daemon = Daemon::run(&world, &first, |command| {
            command.args(["-c", second.to_str().unwrap()]).env("FAILPOINTS", "after-claim=1*return(panic)");
        });
        business.send(&world, 40).await;
        assert_eq!(daemon.wait(), Some(1), "{}", daemon.last_words());
        assert!(daemon.last_words().contains("a lane ended badly"), "{}", daemon.last_words());
    });
}
