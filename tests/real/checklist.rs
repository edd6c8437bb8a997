//! `check` against a real broker: what it says of topics, their retention and the group.

use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use serde_json::Value;

use crate::daemon::{Config, Daemon};
use crate::kafka::{self, Producer};
use crate::killed_daemon::{ROUTE, charging, ledger, pay, pay_all};
use crate::world::{World, env, until};

/// Exit code, and each check's status and detail.
fn check(config: &Config) -> (i32, Vec<[String; 3]>) {
    let (code, printed) = config.outcome(&["check", "--output", "json"]);
    let document: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("no document: {printed}"));
    let checks = document["checks"].as_array().unwrap().iter();
    (code, checks.map(|check| ["name", "status", "detail"].map(|f| check[f].as_str().unwrap().to_owned())).collect())
}

fn said(checks: &[[String; 3]], name: &str, status: &str) -> String {
    let found = checks.iter().find(|check| check[0] == name && check[1] == status);
    found.unwrap_or_else(|| panic!("no {status} of {name:?} in {checks:#?}"))[2].clone()
}

#[test]
fn check_passes_what_runs_and_finds_what_would_not() {
    let world = World::new("checklist");
    let bank = ledger(&world);
    let topic = world.topic("payment.events");
    let week = ("retention.ms", "604800000");
    kafka::create(&topic, 2, &[week, ("segment.ms", "86400000")]);
    let mut config = world.pipeline(&bank, &[&topic], ROUTE);
    kafka::create(&config.receipts, 1, &[]);
    let (code, checks) = check(&config);
    assert_eq!(code, 1);
    said(&checks, "store tables", "fail"); // not migrated yet
    config.migrate();
    config.retention = "8d".to_owned();
    let (code, checks) = check(&config);
    assert!(checks.iter().all(|check| check[1] != "fail"), "{checks:#?}");
    assert_eq!(code, 0);
    said(&checks, "kafka retention", "ok");
    said(&checks, "kafka topics", "ok");
    said(&checks, "kafka group", "ok");

    config.retention = "7d".to_owned();
    let (code, checks) = check(&config);
    assert_eq!(code, 1);
    assert!(said(&checks, "kafka retention", "fail").contains(&topic), "{checks:#?}");

    let compacted = world.topic("compacted");
    kafka::create(&compacted, 1, &[("cleanup.policy", "compact")]);
    config.retention = "8d".to_owned();
    config.topics = vec![topic.clone(), compacted.clone(), world.topic("nobody")];
    let (code, checks) = check(&config);
    assert_eq!(code, 1);
    assert!(said(&checks, "kafka retention", "fail").contains(&compacted), "{checks:#?}");
    assert!(said(&checks, "kafka topics", "fail").contains(&world.topic("nobody")), "{checks:#?}");
    assert!(!kafka::topics().contains(&world.topic("nobody")), "asking for a topic must not make it");

    // A program of another kind that reads with our group would take a part of the records.
    config.topics = vec![topic.clone()];
    let producer = Producer::new(&[]);
    pay(&producer, &topic, 1);
    producer.flush();
    let stranger: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", env("COUNTERSIGN_KAFKA"))
        .set("group.id", &world.name)
        .set("client.id", "sink-7")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    stranger.subscribe(&[&topic]).unwrap();
    until(20, "the stranger to be a member", || match stranger.poll(std::time::Duration::from_millis(100)) {
        Some(Ok(message)) => Ok(message.offset()),
        other => Err(format!("{other:?}")),
    });
    let (_, checks) = check(&config);
    assert!(said(&checks, "kafka group", "warn").contains("sink-7"), "{checks:#?}");
}

const MIRROR: &str = r#"
[[route]]
name = "mirror"
message_id = "source"
[route.effect]
kind = "table"
table = "orders_copy"
key = ["id"]
guard = "source"
"#;

/// A record of the fortieth day that comes again would be new to an inbox that remembers thirty.
#[test]
fn an_inbox_that_forgets_before_its_topic_does_is_warned_of_at_start_and_found_by_check_until_it_is_widened() {
    let world = World::new("forgetting");
    let (bank, topic, mut config) = charging(&world, 1, &[("retention.ms", "3456000000"), ("segment.ms", "86400000")]);
    kafka::create(&config.receipts, 1, &[]);
    let gap = format!("{topic} can redeliver for 41d (retention.ms + segment.ms), the inbox remembers 30d");
    config.retention = "30d".to_owned();
    let (code, checks) = check(&config);
    assert_eq!(code, 1);
    assert_eq!(said(&checks, "kafka retention", "fail"), gap);
    // Where a guard keeps the rows right, only the receipts are at stake.
    bank.run("CREATE TABLE orders_copy (id bigint PRIMARY KEY, state text)");
    let guarded = Config { routes: MIRROR.to_owned(), ..config.clone() };
    let (code, checks) = check(&guarded);
    assert_eq!(code, 0, "{checks:#?}");
    assert!(said(&checks, "kafka retention", "warn").starts_with(&gap), "{checks:#?}");

    // It is said, and the work goes on.
    let producer = Producer::new(&[]);
    let began = Instant::now();
    let mut daemon = Daemon::start(&config);
    let warned = |daemon: &Daemon| daemon.warnings().into_iter().find(|line| line.contains("kafka retention: "));
    let warning = until(30, "the warning", || warned(&daemon).ok_or_else(|| format!("{:?}", daemon.warnings())));
    let took = began.elapsed();
    assert!(warning.contains(&gap) && warning.contains("set `[store] retention` to 41d or more"), "{warning}");
    pay_all(&producer, &topic, 0..10);
    daemon.until_consumed(30, 10);
    let (status, _) = daemon.terminate(20);
    assert!(status.success(), "{status}");

    config.retention = "41d".to_owned();
    let (code, checks) = check(&config);
    assert_eq!(code, 0, "{checks:#?}");
    said(&checks, "kafka retention", "ok");
    let mut daemon = Daemon::start(&config);
    pay_all(&producer, &topic, 10..20);
    daemon.until_consumed(30, 10);
    // Twice as long again as it took to say so.
    std::thread::sleep(2 * took);
    assert_eq!(warned(&daemon), None);
    assert_eq!(bank.number("SELECT COUNT(*) FROM ledger"), 20);
}

/// What is larger than an answer may be is never fetched.
#[test]
fn a_topic_that_takes_larger_batches_than_an_answer_may_have_is_found() {
    let world = World::new("answers");
    let (_, topic, config) = charging(&world, 1, &[("max.message.bytes", "12000000")]);
    kafka::create(&config.receipts, 1, &[]);
    let (code, checks) = check(&config);
    assert!(checks.iter().all(|check| check[0] != "kafka message size"), "{checks:#?}");
    assert_eq!(code, 0, "{checks:#?}");
    let (code, checks) = check(&config.option("receive.message.max.bytes", "4000000"));
    assert_eq!(code, 1);
    let found = said(&checks, "kafka message size", "fail");
    assert_eq!(found, format!("{topic} takes batches of 12000000 bytes, a response may have 4000000"));
}
