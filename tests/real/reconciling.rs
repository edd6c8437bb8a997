//! `reconcile` against a real broker: windows by time, offsets that are never delivered, a topic that is made anew.

use std::time::Duration;

use serde_json::Value;

use crate::daemon::{Config, Daemon};
use crate::kafka::{self, Producer};
use crate::killed_daemon::{ROUTE, check_ledger, ledger, message_id, pay};
use crate::world::{World, holds, until};

/// Exit code and report.
fn reconcile(config: &Config, topic: &str, more: &[&str]) -> (i32, Value) {
    let arguments = ["reconcile", "--topic", topic, "--output", "json"];
    let (code, said) = config.outcome(&[&arguments[..], more].concat());
    let json = &said[said.find('{').unwrap_or_else(|| panic!("{said}"))..];
    (code, serde_json::Deserializer::from_str(json).into_iter().next().unwrap().unwrap())
}

fn outcome(report: &Value, name: &str) -> u64 {
    report["outcomes"][name].as_u64().unwrap()
}

#[test]
fn every_record_of_a_window_by_time_has_its_outcome_and_its_receipt() {
    let world = World::new("reconciling");
    let bank = ledger(&world);
    let topic = world.topic("payment.events");
    kafka::create(&topic, 2, &[]);
    kafka::create(&world.topic("receipts"), 2, &[]);
    let config = world.pipeline(&bank, &[&topic], ROUTE);
    config.migrate();
    // Markers and aborted records stand between the others.
    let producer = Producer::transactional(&world.name);
    for round in 0..10 {
        producer.begin();
        (round * 500..round * 500 + 500).for_each(|number| pay(&producer, &topic, number));
        if round % 5 == 4 {
            producer.flush();
            producer.abort();
            producer.begin();
            (round * 500..round * 500 + 500).for_each(|number| pay(&producer, &topic, number));
        }
        producer.commit();
    }
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(60, 5000);
    let (code, report) = reconcile(&config, &topic, &["--receipts"]);
    assert_eq!((code, outcome(&report, "matched")), (0, 5000), "{report:#}");
    until(20, "every receipt on the topic", || {
        let (_, report) = reconcile(&config, &topic, &["--receipts"]);
        holds(report["receipts"]["delivered"] == 5000, || format!("{report:#}"))
    });

    // By time: what came before is outside.
    let since = jiff::Timestamp::now().to_string();
    std::thread::sleep(Duration::from_millis(50));
    let plain = Producer::new(&[]);
    (5000..5300).for_each(|number| pay(&plain, &topic, number));
    plain.flush();
    daemon.until_consumed(30, 5300);
    bank.run(&format!(
        "DELETE FROM countersign_inbox WHERE message_id IN ('{}', '{}')",
        message_id(7),
        message_id(5007)
    ));
    bank.run(&format!("DELETE FROM ledger WHERE message_id IN ('{}', '{}')", message_id(7), message_id(5007)));
    let (code, report) = reconcile(&config, &topic, &["--from", &since]);
    assert_eq!(
        (code, &report["checked"], &report["differences"]["missing"]),
        (1, &300.into(), &1.into()),
        "{report:#}"
    );
    let (code, report) = reconcile(&config, &topic, &["--to", &since]);
    assert_eq!(
        (code, &report["checked"], &report["differences"]["missing"]),
        (1, &5000.into(), &1.into()),
        "{report:#}"
    );
    assert_eq!(reconcile(&config, &topic, &["--to", "1h"]).1["checked"], 0);
    // Beside the daemon, and at once with its receipts.
    let (code, report) = reconcile(&config, &topic, &["--from", "1h", "--repair", "replay", "--receipts"]);
    assert_eq!((code, &report["repaired"], outcome(&report, "matched")), (0, &2.into(), 5300), "{report:#}");
    check_ledger(&bank, 5300);
    drop(daemon);

    // The same name, another life: nobody has seen it yet.
    kafka::delete(&topic);
    until(20, "the end of the topic", || {
        holds(kafka::topics().iter().all(|name| *name != topic), || "there".to_owned())
    });
    kafka::create(&topic, 2, &[]);
    (6000..6010).for_each(|number| pay(&plain, &topic, number));
    plain.flush();
    let (code, report) = reconcile(&config, &topic, &[]);
    assert_eq!((code, outcome(&report, "pending")), (0, 10), "{report:#}");
}

/// How fast it is and how much memory it takes: `cargo test --release --test real -- --ignored --nocapture long_window`
#[test]
#[ignore = "a measurement"]
fn long_window() {
    const MESSAGES: u64 = 300_000;
    let world = World::new("reconciling_long");
    let bank = ledger(&world);
    let topic = world.topic("payment.events");
    kafka::create(&topic, 6, &[]);
    kafka::create(&world.topic("receipts"), 6, &[]);
    let config = world.pipeline(&bank, &[&topic], ROUTE);
    config.migrate();
    let producer = Producer::new(&[]);
    (0..MESSAGES).for_each(|number| pay(&producer, &topic, number));
    producer.flush();
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(600, MESSAGES);
    drop(daemon);
    for more in [&[][..], &["--receipts"]] {
        let (code, report) = reconcile(&config, &topic, more);
        assert_eq!((code, outcome(&report, "matched")), (0, MESSAGES), "{report:#}");
        println!("{more:?}: {MESSAGES} records in {} s, {}", report["seconds"], report["receipts"]);
    }
}
