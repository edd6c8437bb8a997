//! Windows of topics with transactions: what is not stable yet is waited for, or said to be missing.

use std::process::Command;
use std::time::Duration;

use crate::daemon::BINARY;
use crate::kafka::{self, Out, Producer};
use crate::world::{World, env};

fn send(producer: &Producer, topic: &str, values: std::ops::Range<u32>) {
    for n in values {
        producer.send(&Out { topic, partition: Some(0), key: "k", value: &n.to_string(), ..Out::default() });
    }
    producer.flush();
}

/// Exit code, the values, and what was said.
fn captured(topic: &str, more: &[&str]) -> (i32, Vec<String>, String) {
    let mut command = Command::new(BINARY);
    command.args(["capture", "--brokers", env("COUNTERSIGN_KAFKA"), "--topic", topic]).args(more);
    let output = command.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let value =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["value"].as_str().unwrap().to_owned();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), lines.lines().map(value).collect(), said)
}

fn values(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[test]
fn a_window_is_read_to_its_end_or_what_is_missing_is_named() {
    let world = World::new("windows");
    let topic = world.topic("events");
    kafka::create(&topic, 1, &[]);
    let producer = Producer::transactional(&world.name);
    producer.begin();
    send(&producer, &topic, 0..10);
    producer.commit(); // its marker is offset 10
    producer.begin();
    send(&producer, &topic, 0..5);
    producer.abort(); // 11 to 15, and 16
    assert_eq!(captured(&topic, &[]).1, values(0..10), "a window that ends with what is never delivered");

    producer.begin();
    send(&producer, &topic, 10..15);
    let plain = Producer::new(&[]);
    send(&plain, &topic, 15..20);
    // Open, and open for long.
    let (code, read, said) = captured(&topic, &[]);
    assert_eq!((code, read), (1, values(0..10)), "{said}");
    assert!(said.contains("offsets 17 to 26 were not read"), "{said}");
    // What it says helps.
    let (code, read, said) = captured(&topic, &["--to", "17"]);
    assert_eq!((code, read), (0, values(0..10)), "{said}");

    // Committed while it is read.
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| captured(&topic, &[]));
        std::thread::sleep(Duration::from_secs(3));
        producer.commit();
        send(&plain, &topic, 100..101);
        let (code, read, said) = reading.join().unwrap();
        assert_eq!((code, read), (0, values(0..20)), "{said}");
    });
}
