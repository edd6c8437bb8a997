//! `check` against a real broker: what it says of topics, their retention and the group.

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use serde_json::Value;

use crate::daemon::Config;
use crate::kafka::{self, Producer};
use crate::killed_daemon::{ROUTE, ledger, pay};
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
