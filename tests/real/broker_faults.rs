//! A broker that dies, a group that never comes to rest, topics that are made anew, logs that lose their beginning.

use std::process::Command;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::daemon::Daemon;
use crate::database::Database;
use crate::kafka::{self, Producer};
use crate::killed_daemon::{charging, check_ledger, pay_all};
use crate::world::{World, env, holds, run, until};

/// The broker of the stack, without a word to anybody.
fn signal_broker(name: &str) {
    let file = format!("{}/kafka.pid", env("COUNTERSIGN_STACK_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    run(Command::new("kill").args([&format!("-{name}"), text.split(' ').next().unwrap()]));
}

fn start_broker() {
    run(Command::new("tests/stack/up.sh").arg("all"));
}

/// Each payment once, its receipt too, and the group knows how far it is.
fn all_done(world: &World, bank: &Database, topic: &str, receipts: &str, messages: u64) {
    let began = Instant::now();
    until(120, "all of them", || {
        let progress = bank.progress();
        holds(progress == messages, || format!("{progress}"))
    });
    println!("all done {:?} after the broker is back", began.elapsed());
    check_ledger(bank, messages);
    kafka::until_committed(30, &world.name, topic);
    until(60, "every receipt", || {
        let ids = crate::shop::receipts(receipts).len();
        holds(ids as u64 == messages, || {
            format!("{ids}, and {} in the outbox", bank.number("SELECT COUNT(*) FROM countersign_outbox"))
        })
    });
}

#[test]
fn a_broker_that_dies_under_load_loses_and_doubles_nothing() {
    let world = World::new("broker_dies");
    let (bank, topic, config) = charging(&world, 6, &[]);
    let receipts = world.topic("receipts");
    kafka::create(&receipts, 3, &[]);
    pay_all(&Producer::new(&[]), &topic, 0..30_000);
    let mut daemon = Daemon::start(&config);
    for death in 1..=2 {
        until(60, "the middle of the work", || {
            let progress = bank.progress();
            holds(progress > death * 5000, || format!("{progress}"))
        });
        signal_broker("KILL");
        std::thread::sleep(Duration::from_millis(1500));
        daemon.assert_alive();
        start_broker();
    }
    // A producer of its own: the old one's connection is of the former life.
    pay_all(&Producer::new(&[]), &topic, 30_000..40_000);
    all_done(&world, &bank, &topic, &receipts, 40_000);
    daemon.assert_alive();
}

/// Nothing is closed and nothing answers, once for less and once for longer than a session.
#[test]
fn a_broker_that_stands_still_is_waited_for() {
    let world = World::new("broker_stalls");
    let (bank, topic, config) = charging(&world, 6, &[]);
    let receipts = world.topic("receipts");
    kafka::create(&receipts, 3, &[]);
    pay_all(&Producer::new(&[]), &topic, 0..20_000);
    let mut daemon = Daemon::start(&config);
    for (stall, seconds) in [(1, 4), (2, 13)] {
        until(60, "the middle of the work", || {
            let progress = bank.progress();
            holds(progress > stall * 4000, || format!("{progress}"))
        });
        signal_broker("STOP");
        std::thread::sleep(Duration::from_secs(seconds));
        daemon.assert_alive();
        signal_broker("CONT");
    }
    // A broker that has just come back leaves some first questions without an answer, of any client.
    pay_all(&Producer::new(&[("socket.timeout.ms", "5000")]), &topic, 20_000..21_000);
    all_done(&world, &bank, &topic, &receipts, 21_000);
    daemon.assert_alive();
}

#[test]
fn daemons_that_come_and_go_all_the_time_lose_and_double_nothing() {
    const MESSAGES: u64 = 60_000;
    let world = World::new("storm");
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (bank, topic, config) = charging(&world, 12, &[]);
    let config = config.option("session.timeout.ms", "6000");
    let producer = Producer::new(&[]);
    pay_all(&producer, &topic, 0..MESSAGES / 2);
    let mut daemons: Vec<Daemon> = (0..3).map(|_| Daemon::start(&config)).collect();
    for round in 0..8 {
        let share = MESSAGES / 16;
        pay_all(&producer, &topic, MESSAGES / 2 + round * share..MESSAGES / 2 + (round + 1) * share);
        std::thread::sleep(Duration::from_millis(random.random_range(100..2500)));
        let leaving = daemons.swap_remove(random.random_range(0..daemons.len()));
        if random.random_bool(0.5) {
            leaving.kill();
        } else {
            let (status, _) = leaving.terminate(20);
            assert!(status.success(), "{status}");
        }
        daemons.push(Daemon::start(&config));
    }
    until(90, "all of them", || {
        let progress = bank.progress();
        holds(progress == MESSAGES, || format!("{progress}"))
    });
    check_ledger(&bank, MESSAGES);
    kafka::until_committed(30, &world.name, &topic);
}

#[test]
fn a_topic_deleted_and_made_again_under_the_daemon_is_read_from_its_start() {
    let world = World::new("anew");
    let (bank, topic, config) = charging(&world, 2, &[]);
    let config = config.option("topic.metadata.refresh.interval.ms", "1000");
    pay_all(&Producer::new(&[]), &topic, 0..1000);
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(30, 1000);
    kafka::until_committed(20, &world.name, &topic);
    kafka::delete(&topic);
    until(20, "the topic to be gone", || holds(!kafka::topics().contains(&topic), || "it is there".to_owned()));
    kafka::create(&topic, 2, &[]);
    pay_all(&Producer::new(&[]), &topic, 1000..1500);
    until(60, "the new ones", || {
        let booked = bank.number("SELECT COUNT(*) FROM ledger");
        holds(booked == 1500, || format!("{booked}"))
    });
    daemon.assert_alive();
    check_ledger(&bank, 1500);
    let recreated = daemon.metric("countersign_offset_events_total", &[("kind", "topic_recreated")]);
    assert!(recreated.is_some_and(|times| times >= 1.0), "{recreated:?}");
    let said = daemon.warnings();
    assert!(said.iter().any(|line| line.contains("topic recreated")), "{said:?}");
}

/// Retention has taken what was not read yet.
#[test]
fn what_the_log_has_lost_is_named_and_the_rest_is_read() {
    let world = World::new("lost");
    let (bank, topic, config) = charging(&world, 1, &[]);
    let producer = Producer::new(&[]);
    pay_all(&producer, &topic, 0..100);
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(30, 100);
    kafka::until_committed(20, &world.name, &topic);
    let (status, _) = daemon.terminate(20);
    assert!(status.success());
    pay_all(&producer, &topic, 100..200);
    kafka::delete_records(&topic, 0, 150);
    let stopping = config.command(&["lanes", "list"]);
    assert!(stopping.contains(&topic), "{stopping}");
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(30, 50);
    let lost = daemon.metric("countersign_offset_events_total", &[("kind", "data_lost")]);
    assert_eq!(lost, Some(1.0));
    let said = daemon.warnings();
    assert!(
        said.iter().any(|line| line.contains("data lost") && line.contains("100") && line.contains("149")),
        "{said:?}"
    );
    assert_eq!(bank.number("SELECT COUNT(*) FROM ledger"), 150);
    kafka::until_committed(20, &world.name, &topic);

    // All that there is, while the daemon does not look: no record is left whose offset would show it.
    daemon.signal("STOP");
    // A fetch that waits at the broker is answered meanwhile, with nothing.
    std::thread::sleep(Duration::from_millis(500));
    pay_all(&producer, &topic, 200..300);
    kafka::delete_records(&topic, 0, 300);
    daemon.signal("CONT");
    until(30, "the second loss to be named", || {
        let said = daemon.warnings();
        let named = |line: &String| line.contains("data lost") && line.contains("200") && line.contains("299");
        holds(said.iter().any(named), || format!("{said:?}"))
    });
    pay_all(&producer, &topic, 300..310);
    until(30, "what came later", || {
        let booked = bank.number("SELECT COUNT(*) FROM ledger");
        holds(booked == 160, || format!("{booked}"))
    });
}

/// Retention takes what a paused lane was about to read, but for what its client had fetched ahead.
#[test]
fn what_a_running_lane_finds_gone_is_named_and_the_rest_is_read() {
    let world = World::new("out_of_range");
    let (bank, topic, config) = charging(&world, 1, &[]);
    let producer = Producer::new(&[]);
    pay_all(&producer, &topic, 0..100);
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(30, 100);
    kafka::until_committed(20, &world.name, &topic);
    config.command(&["lanes", "pause", &topic, "0"]);
    pay_all(&producer, &topic, 100..40_000);
    std::thread::sleep(Duration::from_secs(3));
    kafka::delete_records(&topic, 0, 35_000);
    config.command(&["lanes", "resume", &topic, "0"]);
    kafka::until_committed(60, &world.name, &topic);
    let booked = bank.number("SELECT COUNT(*) FROM ledger");
    assert!((5_000 + 1_000..40_000 - 10_000).contains(&booked), "something was fetched ahead, not all: {booked}");
    assert_eq!(bank.number("SELECT COUNT(DISTINCT message_id) FROM ledger"), booked);
    // What was not booked was lost, and exactly that is named.
    let lost = daemon.metric("countersign_offset_events_total", &[("kind", "data_lost")]);
    let (said, from) = (daemon.warnings(), format!("from={}", booked - 5_000));
    let named = |line: &String| line.contains("data lost") && line.contains(&from) && line.contains("to=34999");
    assert!(lost == Some(1.0) && said.iter().any(named), "{lost:?} {from} {said:?}");
    daemon.assert_alive();
}

/// Offsets that compaction took never come: the lane passes over them, to the end, and calls nothing lost.
#[test]
fn gaps_that_compaction_left_are_passed_over() {
    const EACH: u64 = 300;
    let world = World::new("compacted");
    let eager = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "200"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "500"),
    ];
    let (bank, topic, config) = charging(&world, 1, &eager);
    let producer = Producer::new(&[]);
    // The numbers of 997 accounts: later ones take the place of those before.
    for round in 0..6 {
        pay_all(&producer, &topic, round * 997..round * 997 + EACH);
        std::thread::sleep(Duration::from_millis(400));
    }
    let left = until(90, "the compaction", || {
        // A segment is closed by the next record alone.
        let left = kafka::values(&topic).len();
        holds(left < 4 * EACH as usize, || format!("{left}")).map(|()| left)
    });
    let mut daemon = Daemon::start(&config);
    kafka::until_committed(60, &world.name, &topic);
    daemon.until_no_lag(20);
    let booked = bank.number("SELECT COUNT(*) FROM ledger");
    assert!((EACH..=left as u64).contains(&booked), "{booked} of {left}");
    assert_eq!(
        bank.number("SELECT COUNT(DISTINCT account) FROM ledger"),
        EACH,
        "of each account the last one at least"
    );
    assert_eq!(daemon.metric("countersign_offset_events_total", &[("kind", "data_lost")]).unwrap_or_default(), 0.0);
    // And those that come behind it while the lane is at work.
    pay_all(&producer, &topic, 6 * 997..6 * 997 + EACH);
    kafka::until_committed(30, &world.name, &topic);
    assert_eq!(bank.number("SELECT COUNT(*) FROM ledger"), booked + EACH);
    daemon.assert_alive();
}
