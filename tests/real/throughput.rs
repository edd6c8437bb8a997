//! The floor: how fast the daemon is and how much memory it takes, on whatever machine this is. No timed test:
//! `cargo test --release --test real -- --ignored --nocapture --test-threads=1 floor`

use std::fs;
use std::time::Instant;

use crate::daemon::Daemon;
use crate::kafka::{self, Producer};
use crate::killed_daemon::{ROUTE, ledger, pay};
use crate::world::{World, holds, until};

const MESSAGES: u64 = 300_000;
const BACKLOG: u64 = 1_000_000;
const BOOKINGS: u64 = 60_000;

/// A ledger row and the balance of an account, which other partitions book on as well.
const BOOKING: &str = r#"
[[route]]
name = "charge"
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [
  { sql = "INSERT INTO ledger (message_id, account, amount) VALUES (:meta.messageId, :account, :amount)" },
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :bank AND balance >= :amount", expect_rows = 1, otherwise = "reject" },
]
"#;

/// One ledger row a message in PostgreSQL, Redis as the gate, receipts on, 6 partitions.
#[test]
#[ignore = "a measurement"]
fn floor() {
    let (rate, _) = measure("floor_rate", MESSAGES, ROUTE);
    let (backlog_rate, peak) = measure("floor_backlog", BACKLOG, ROUTE);
    let (booking_rate, _) = measure("floor_bookings", BOOKINGS, BOOKING);
    println!("{MESSAGES} messages: {rate:.0}/s");
    println!("{BOOKINGS} messages with a balance each, on rows shared by all partitions: {booking_rate:.0}/s");
    println!("{BACKLOG} messages: {backlog_rate:.0}/s, peak RSS {:.0} MB", peak as f64 / 1000.0);
}

/// Messages a second from the first outcome to the last receipt, and the peak RSS in kB.
fn measure(test: &str, messages: u64, route: &str) -> (f64, u64) {
    let world = World::new(test);
    let bank = ledger(&world);
    bank.run("CREATE TABLE accounts (id text PRIMARY KEY, balance numeric(14,2) NOT NULL)");
    bank.run("INSERT INTO accounts SELECT 'b-' || n, 100000000 FROM generate_series(0, 99) n");
    let topic = world.topic("payment.events");
    kafka::create(&topic, 6, &[]);
    kafka::create(&world.topic("receipts"), 6, &[]);
    let config = world.pipeline(&bank, &[&topic], route);
    config.migrate();
    let producer = Producer::new(&[]);
    (0..messages).for_each(|number| pay(&producer, &topic, number));
    producer.flush();
    drop(producer);

    let daemon = Daemon::start(&config);
    until(30, "the first outcome", || holds(bank.progress() > 0, || "none".to_owned()));
    let (began, already) = (Instant::now(), bank.progress());
    until(600, "the last outcome", || holds(bank.progress() >= messages, || format!("{}", bank.progress())));
    let applied = began.elapsed();
    until(120, "the last receipt", || {
        let left = bank.number("SELECT COUNT(*) FROM countersign_outbox");
        holds(left == 0, || format!("{left} left"))
    });
    let delivered = began.elapsed();
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("{messages}: applied in {applied:?}, receipts delivered after {delivered:?}, peak {peak} kB");
    ((messages - already) as f64 / delivered.as_secs_f64(), peak)
}
