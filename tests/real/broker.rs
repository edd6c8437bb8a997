//! What only a real broker does: transactions, topics and partitions that come while the daemon runs, big records,
//! rebalances.

use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::kafka::{self, Out, Producer};
use crate::killed_daemon::{ROUTE, charging, check_ledger, ledger, message_id, pay, pay_all};
use crate::world::{World, holds, until};

/// Offsets 0..2 committed, 3 a marker, 4..6 aborted, 7 a marker, 8 in an open transaction.
#[test]
fn aborted_records_have_no_effect_and_markers_leave_no_lag() {
    transactions("partition");
}

/// No slice has the last marker among its records.
#[test]
fn markers_leave_no_lag_of_slices_either() {
    transactions("key");
}

fn transactions(order: &str) {
    let world = World::new("transactions");
    let (bank, topic, mut config) = charging(&world, 1, &[]);
    config.routes = config.routes.replace("message_id =", &format!("order = \"{order}\"\nmessage_id ="));

    let producer = Producer::transactional(&format!("{}-a", world.name));
    producer.begin();
    (0..3).for_each(|number| pay(&producer, &topic, number));
    producer.commit();
    producer.begin();
    pay_all(&producer, &topic, 3..6); // to its end, or they would never reach the log
    producer.abort();
    let mut daemon = Daemon::start(&config);
    until(20, "the offset to pass the last marker", || {
        let committed = kafka::committed(&world.name, &topic);
        holds(committed == [8], || format!("{committed:?}"))
    });
    daemon.until_no_lag(10);
    check_ledger(&bank, 3);

    producer.begin();
    pay(&producer, &topic, 3);
    producer.flush();
    // Beside the open one: what is behind it cannot be read yet.
    let other = Producer::new(&[]);
    pay(&other, &topic, 4);
    other.flush();
    assert_eq!(kafka::ends(&topic), [8], "the last stable offset");
    daemon.until_no_lag(10);
    check_ledger(&bank, 3);
    producer.commit();
    daemon.until_consumed(20, 5);
    until(20, "the offset to pass the last marker", || {
        let committed = kafka::committed(&world.name, &topic);
        holds(committed == [11], || format!("{committed:?}"))
    });
    daemon.until_no_lag(10);
    check_ledger(&bank, 5);
    assert_eq!(daemon.outcomes(), [("applied", 5)].into_iter().collect());
    // Nothing waits for a marker on the way out either.
    let (status, took) = daemon.terminate(20);
    assert!(status.success() && took.as_secs() < 5, "{status} after {took:?}");
}

#[test]
fn topics_and_partitions_that_come_later_are_read_from_their_start() {
    let world = World::new("growing");
    let bank = ledger(&world);
    let (first, second) = (world.topic("eu.payments"), world.topic("us.payments"));
    kafka::create(&first, 2, &[]);
    let pattern = format!("^{}\\.[a-z]+\\.payments$", world.name);
    let config = world.pipeline(&bank, &[&pattern], ROUTE).option("topic.metadata.refresh.interval.ms", "1000");
    config.migrate();
    let producer = Producer::new(&[]);
    pay_all(&producer, &first, 0..500);
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(30, 500);

    kafka::create(&second, 3, &[]);
    pay_all(&producer, &second, 500..1000);
    daemon.until_consumed(30, 1000);
    assert_eq!(daemon.lanes(), 5);

    kafka::add_partitions(&first, 5);
    let later = Producer::new(&[]); // learns of the new partitions at once
    pay_all(&later, &first, 1000..1500);
    daemon.until_consumed(30, 1500);
    assert_eq!(daemon.lanes(), 8);
    assert!(kafka::ends(&first)[2..].iter().all(|end| *end > 0), "nothing came to the new partitions");
    assert_eq!(daemon.outcomes(), [("applied", 1500)].into_iter().collect(), "nothing twice through the rebalances");
    check_ledger(&bank, 1500);
    for topic in [&first, &second] {
        kafka::until_committed(20, &world.name, topic);
    }
}

/// `start` is about what is there when the group begins. A partition that comes later has records before its member
/// hears of it.
#[test]
fn a_group_that_begins_at_the_end_reads_later_topics_and_partitions_from_their_start() {
    let world = World::new("latest");
    let bank = ledger(&world);
    let (first, second) = (world.topic("eu.payments"), world.topic("us.payments"));
    kafka::create(&first, 2, &[]);
    let pattern = format!("^{}\\.[a-z]+\\.payments$", world.name);
    let mut config = world.pipeline(&bank, &[&pattern], ROUTE).option("topic.metadata.refresh.interval.ms", "3000");
    config.start = "latest";
    config.migrate();
    let producer = Producer::new(&[]);
    pay_all(&producer, &first, 0..100);
    let mut daemon = Daemon::start(&config);
    until(30, "both lanes", || {
        let rows = bank.number("SELECT COUNT(*) FROM countersign_lanes");
        holds(rows == 2, || format!("{rows}"))
    });
    pay_all(&producer, &first, 100..200);
    daemon.until_consumed(30, 100);
    kafka::create(&second, 3, &[]);
    kafka::add_partitions(&first, 5);
    let later = Producer::new(&[]);
    (200..1000).for_each(|number| pay(&later, if number % 2 == 0 { &first } else { &second }, number));
    later.flush();
    assert!(kafka::ends(&first)[2..].iter().all(|end| *end > 0), "nothing came to the new partitions");
    daemon.until_consumed(60, 900);
    // Another member, and one that begins when all of it is there, decide the same.
    let (status, _) = daemon.terminate(20);
    assert!(status.success());
    pay_all(&later, &first, 1000..1100);
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(60, 100);
    let booked = bank.texts("SELECT message_id FROM ledger ORDER BY message_id");
    assert_eq!(booked, (100..1100).map(message_id).collect::<Vec<_>>());
}

#[test]
fn records_of_ten_megabytes_pass() {
    let world = World::new("big");
    let bank = world.database(crate::database::Kind::Postgres, "bank");
    bank.run("CREATE TABLE documents (id text, body text)");
    let topic = world.topic("documents");
    kafka::create(&topic, 12, &[("max.message.bytes", "12000000")]);
    let route = r#"
[[route]]
name = "documents"
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO documents (id, body) VALUES (:meta.messageId, :body)" }]
"#;
    // With the defaults for fetching: the broker gives a record whole even where it is above them.
    let config = world.pipeline(&bank, &[&topic], route);
    config.migrate();
    let producer = Producer::new(&[("compression.type", "none")]);
    let body = "ten bytes.".repeat(1_000_000);
    let value = format!(r#"{{"body":"{body}"}}"#);
    let mut daemon = Daemon::start(&config);
    for number in 0..4 {
        let id = message_id(number);
        let (key, headers) = ("\"big\"", [("id", id.as_str())]);
        producer.send(&Out {
            topic: &topic,
            partition: Some(number as i32 % 2),
            key,
            headers: &headers,
            value: &value,
        });
    }
    producer.flush();
    daemon.until_consumed(60, 4);
    assert_eq!(daemon.outcomes(), [("applied", 4)].into_iter().collect());
    assert_eq!(bank.texts("SELECT length(body) FROM documents"), ["10000000"; 4]);
    assert_eq!(bank.number("SELECT COUNT(DISTINCT body) FROM documents"), 1);
    kafka::until_committed(20, &world.name, &topic);
}

/// Two pods with one `group.instance.id`: the broker knows only the newer one.
#[test]
fn of_two_daemons_with_one_instance_id_the_older_ends_and_says_why() {
    let world = World::new("instance");
    let (bank, topic, config) = charging(&world, 6, &[]);
    let config = config.option("group.instance.id", "pod-0");
    let producer = Producer::new(&[]);
    let send = |from, to| {
        (from..to).for_each(|number| pay(&producer, &topic, number));
        producer.flush();
    };
    send(0, 10_000);
    let mut first = Daemon::start(&config);
    first.until_consumed(30, 2000);
    let second = Daemon::start(&config);
    let status = first.until_ended(30);
    assert_eq!(status.code(), Some(1), "not 0: whoever started it must hear of it");
    let said = first.warnings().into_iter().find(|line| line.contains("group.instance.id"));
    assert!(said.is_some(), "the log does not name the setting: {:?}", first.warnings());
    send(10_000, 20_000);
    until(30, "the newer one to do all the work", || {
        holds(bank.progress() == 20_000, || format!("{} by {} lanes", bank.progress(), second.lanes()))
    });
    check_ledger(&bank, 20_000);
}

const SESSION: Duration = Duration::from_secs(6);
/// The client's default.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// What is promised beyond the session of the one that died.
const TAKEOVER: Duration = Duration::from_secs(2);

#[test]
fn a_second_daemon_shares_the_work_and_a_dead_one_leaves_it() {
    const MESSAGES: u64 = 60_000;
    let world = World::new("sharing");
    let (bank, topic, config) = charging(&world, 6, &[]);
    let config = config.option("session.timeout.ms", &SESSION.as_millis().to_string());
    let producer = Producer::new(&[]);
    let send = |from, to| {
        (from..to).for_each(|number| pay(&producer, &topic, number));
        producer.flush();
    };
    let shared = |lanes: [&Daemon; 2], expected: [u64; 2]| {
        until(30, "the partitions to be shared", || {
            let lanes = lanes.map(Daemon::lanes);
            holds(lanes == expected, || format!("{lanes:?}"))
        });
    };
    send(0, 20_000);
    let first = Daemon::start(&config);
    until(30, "the first to be at work", || holds(bank.progress() > 2000, || "nothing".to_owned()));
    let second = Daemon::start(&config);
    shared([&first, &second], [3, 3]);
    send(20_000, 30_000);
    until(30, "both to work", || {
        let done = [&first, &second].map(Daemon::consumed);
        holds(bank.progress() == 30_000 && done.iter().all(|done| *done > 0), || format!("{done:?}"))
    });
    // A handover that was asked for repeats nothing.
    let duplicates = [&first, &second].map(|d| d.metric("countersign_records_total", &[("outcome", "duplicate")]));
    assert_eq!(duplicates, [Some(0.0); 2]);
    check_ledger(&bank, 30_000);

    send(30_000, 45_000);
    until(30, "both to be in the middle", || holds(bank.progress() > 33_000, || format!("{}", bank.progress())));
    second.kill();
    let died = Instant::now();
    until(30, "the partitions of the dead one", || holds(first.lanes() == 6, || format!("{} lanes", first.lanes())));
    // Those that live hear of it with their next heartbeat.
    println!("taken over after {:?}", died.elapsed());
    assert!(died.elapsed() < SESSION + HEARTBEAT + TAKEOVER, "{:?}", died.elapsed());
    until(30, "the work of the dead one to be taken over", || {
        holds(bank.progress() == 45_000, || format!("{} by {} lanes", bank.progress(), first.lanes()))
    });
    check_ledger(&bank, 45_000);

    // Killed alone and started again, it waits for the session of its former self.
    first.kill();
    let died = Instant::now();
    let first = Daemon::start(&config);
    until(30, "the partitions of its former self", || holds(first.lanes() == 6, || format!("{} lanes", first.lanes())));
    println!("back after {:?}", died.elapsed());
    assert!(died.elapsed() < SESSION + TAKEOVER, "{:?}", died.elapsed());

    // The other way of leaving: asked to, in mid-stream.
    let third = Daemon::start(&config);
    shared([&first, &third], [3, 3]);
    send(45_000, MESSAGES);
    let (status, took) = first.terminate(20);
    assert!(status.success() && took.as_secs() < 6, "{status} after {took:?}");
    until(30, "the rest", || holds(bank.progress() == MESSAGES, || format!("{}", bank.progress())));
    check_ledger(&bank, MESSAGES);
    kafka::until_committed(20, &world.name, &topic);
    third.until_no_lag(20);
}
