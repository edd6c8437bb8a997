//! How long a message takes from its production to its receipt, at a rate far below what the daemon can do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::message::Message as _;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::kafka::{self, Producer};
use crate::meter::Meter;
use crate::payments::{Payments, message_id, send};
use crate::table::Table;
use crate::world::{World, holds, until};

/// Messages a second.
const RATE: u64 = 1000;
const SECONDS: u64 = 20;
/// Partitions of the receipts' topic.
const RECEIPTS: i32 = 6;
/// Connections and plans are not there yet.
const WARM: u64 = 3 * RATE;

pub fn table() -> Table {
    let mut table = Table::new(&format!("from production to receipt at {RATE} messages a second, in milliseconds"));
    for partitions in [6, 24] {
        table.line(measure(partitions));
    }
    table
}

fn measure(partitions: i32) -> String {
    let work = Payments { partitions, messages: 0, ..Payments::default() };
    let world = World::new("latency");
    let (topic, receipts) = (world.topic("payments"), world.topic("receipts"));
    kafka::create(&topic, partitions, &[]);
    kafka::create(&receipts, RECEIPTS, &[]);
    let bank = work.bank(&world);
    let config = work.config(&world, &bank, &topic);
    config.migrate();
    let daemon = Daemon::start(&config);
    until(60, "the lanes", || holds(daemon.lanes() == partitions as u64, || "not yet".to_owned()));
    let total = WARM + RATE * SECONDS;
    let reading = std::thread::spawn(move || read(&receipts, total));
    let producer = Producer::new(&[("linger.ms", "1")]);
    let meter = Meter::start(&[daemon.pid()]);
    let began = Instant::now();
    let mut sent = HashMap::new();
    for number in 0..total {
        let due = Duration::from_micros(number * 1_000_000 / RATE);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        sent.insert(message_id(number), Instant::now());
        send(&producer, &topic, number, 100);
    }
    producer.flush();
    let told = reading.join().unwrap();
    let score = meter.stop(total);
    let warm = message_id(WARM);
    let measured = told.iter().filter(|(id, _)| **id >= warm);
    let mut took: Vec<Duration> = measured.map(|(id, at)| *at - sent[id]).collect();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    format!(
        "| {partitions} partitions: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms | {:.0} | | {:.3} | {:.0} |",
        at(0.5),
        at(0.99),
        at(1.0),
        score.rate,
        score.cpu.unwrap(),
        score.peak.unwrap()
    )
}

/// When the receipt of each message was there.
fn read(topic: &str, messages: u64) -> HashMap<String, Instant> {
    // The broker answers each receipt by itself otherwise, and is a load that measures itself.
    let settings = [("fetch.wait.max.ms", "5"), ("fetch.min.bytes", "65536")];
    let consumer = kafka::reader(topic, RECEIPTS as usize, &settings);
    let mut told = HashMap::new();
    while told.len() < messages as usize {
        let record = consumer.poll(Duration::from_secs(30)).expect("a receipt").unwrap();
        let receipt: Value = serde_json::from_slice(record.payload().unwrap()).unwrap();
        told.entry(receipt["messageId"].as_str().unwrap().to_owned()).or_insert_with(Instant::now);
    }
    told
}
