//! The daemon dies again and again in the middle of its work.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::daemon::{Config, Daemon};
use crate::database::{Database, Kind};
use crate::kafka::{self, Out, Producer};
use crate::shop::receipts;
use crate::world::{World, holds, until};

/// A payment as an outbox connector would write it. The key decides the partition, so that a repeat meets the first.
pub fn pay(producer: &Producer, topic: &str, number: u64) {
    let id = message_id(number);
    let (account, amount) = (format!("a-{}", number % 997), format!("{}.{:02}", number % 90, number % 100));
    producer.send(&Out {
        topic,
        key: &format!("\"{account}\""),
        headers: &[("id", &id), ("eventType", "PaymentRequested")],
        value: &format!(
            r#"{{"orderId":"o-{number}","account":"{account}","amount":"{amount}","bank":"b-{}"}}"#,
            number % 100
        ),
        ..Out::default()
    });
}

/// Until the broker has all of them.
pub fn pay_all(producer: &Producer, topic: &str, numbers: Range<u64>) {
    numbers.for_each(|number| pay(producer, topic, number));
    producer.flush();
}

pub fn message_id(number: u64) -> String {
    format!("00000000-0000-7000-8000-{number:012}")
}

/// One row a message, without any key that would hide a second one.
pub const ROUTE: &str = r#"
[[route]]
name = "charge"
match = { header.eventType = "PaymentRequested" }
message_id = "header:id"
correlation_id = "value:orderId"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO ledger (message_id, account, amount) VALUES (:meta.messageId, :account, :amount)" }]
"#;

pub fn ledger(world: &World) -> Database {
    let bank = world.database(Kind::Postgres, "bank");
    bank.run("CREATE TABLE ledger (message_id text NOT NULL, account text NOT NULL, amount numeric(12,2) NOT NULL)");
    bank
}

/// A ledger, and a topic of so many partitions whose payments go there.
pub fn charging(world: &World, partitions: i32, settings: &[(&str, &str)]) -> (Database, String, Config) {
    let (bank, topic) = (ledger(world), world.topic("payment.events"));
    kafka::create(&topic, partitions, settings);
    let config = world.pipeline(&bank, &[&topic], ROUTE);
    config.migrate();
    (bank, topic, config)
}

/// Each message once, with its own account and amount.
pub fn check_ledger(bank: &Database, messages: u64) {
    let booked = bank.rows("SELECT message_id, account, amount FROM ledger");
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &booked {
        *times.entry(row[0].as_deref().unwrap()).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).take(10).collect();
    assert!(twice.is_empty(), "effects that happened more than once: {twice:?}");
    let missing: Vec<String> = (0..messages).map(message_id).filter(|id| !times.contains_key(id.as_str())).collect();
    assert!(missing.is_empty(), "{} effects are missing: {:?}", missing.len(), &missing[..missing.len().min(10)]);
    assert_eq!(booked.len() as u64, messages);
    for row in &booked {
        let number: u64 = row[0].as_deref().unwrap()[24..].parse().unwrap();
        let expected = (format!("a-{}", number % 997), format!("{}.{:02}", number % 90, number % 100));
        assert_eq!((row[1].clone().unwrap(), row[2].clone().unwrap()), expected);
    }
}

const MESSAGES: u64 = 60_000;
const KILLS: u64 = 10;
/// Longer than the whole test may take for one restart: only a static member gets its partitions back before.
const SESSION_MS: u64 = 45_000;

#[test]
fn ten_kills_leave_one_effect_and_one_receipt_a_message() {
    let world = World::new("killed_daemon");
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bank = ledger(&world);
    let topic = world.topic("payment.events");
    kafka::create(&topic, 6, &[]);
    kafka::create(&world.topic("receipts"), 3, &[]);
    let config = world
        .pipeline(&bank, &[&topic], ROUTE)
        .option("session.timeout.ms", &SESSION_MS.to_string())
        .option("group.instance.id", "the-only-one");
    config.migrate();

    let producer = Producer::new(&[]);
    let (mut sent, mut records) = (0, 0);
    let mut send = |upto: u64, random: &mut StdRng| {
        while sent < upto {
            pay(&producer, &topic, sent);
            sent += 1;
            records += 1;
            if random.random_bool(0.08) {
                // Mostly one that was just sent, sometimes one that died with an earlier life of the daemon.
                let back =
                    if random.random_bool(0.7) { random.random_range(1..200) } else { random.random_range(1..20_000) };
                pay(&producer, &topic, sent.saturating_sub(back));
                records += 1;
            }
        }
        producer.flush();
        records
    };
    send(MESSAGES / (KILLS + 1), &mut random);
    let mut daemon = Daemon::start(&config);
    for kill in 1..=KILLS {
        let before = bank.progress();
        let records = send((kill + 1) * MESSAGES / (KILLS + 1), &mut random);
        let upto = random.random_range(before..records);
        let started = Instant::now();
        until(30, "a moment to kill it", || {
            let progress = bank.progress();
            holds(progress > upto, || format!("{progress} of {upto}"))
        });
        daemon.kill();
        println!("kill {kill} after {:?}, {} of {records} records done", started.elapsed(), bank.progress());
        daemon = Daemon::start(&config);
    }
    let records = send(MESSAGES, &mut random);
    until(60, "all records", || {
        let progress = bank.progress();
        holds(progress == records, || format!("{progress} of {records}: {:?}", daemon.outcomes()))
    });
    println!("{records} records for {MESSAGES} messages, the last life: {:?}", daemon.outcomes());
    check_ledger(&bank, MESSAGES);
    kafka::until_committed(20, &world.name, &topic);
    daemon.until_no_lag(20);
    until(60, "the receipts to be delivered", || {
        let left = bank.number("SELECT COUNT(*) FROM countersign_outbox");
        holds(left == 0, || format!("{left} left"))
    });
    let receipts = receipts(&config.receipts);
    let mut of_messages: Vec<&str> = receipts.values().map(|receipt| receipt["messageId"].as_str().unwrap()).collect();
    of_messages.sort_unstable();
    let expected: Vec<String> = (0..MESSAGES).map(message_id).collect();
    assert!(of_messages == expected, "{} receipts for {MESSAGES} messages", receipts.len());
    assert!(receipts.values().all(|receipt| receipt["status"] == "SUCCESS" && receipt["version"] == 1));
    let (status, took) = daemon.terminate(20);
    assert!(status.success(), "{status} after {took:?}");
}
