//! Consumers that do less: one that only reads, and one that commits each message by itself.

use std::time::Duration;

use rdkafka::message::{Headers as _, Message as _};
use serde_json::Value;

use crate::kafka;
use crate::meter::{Meter, Score};
use crate::payments::Payments;
use crate::world::block_on;

/// Reads and does nothing else, from the first record that has come.
pub fn bare(work: &Payments) -> Score {
    // More of them: what is fetched before the clock starts must not count.
    let work = &Payments { messages: 10 * work.messages, ..work.clone() };
    let (_world, _bank, topic) = work.set_up("bare");
    let consumer = kafka::reader(&topic, work.partitions as usize, &[]);
    let next = || drop(consumer.poll(Duration::from_secs(10)).expect("a record").unwrap());
    next();
    let meter = Meter::start(&[std::process::id()]);
    (1..work.messages).for_each(|_| next());
    meter.stop(work.messages - 1)
}

/// Parses, books and commits one message after the other, its id under a unique key in the same transaction.
pub fn one_by_one(work: &Payments) -> Score {
    let (_world, bank, topic) = work.set_up("one");
    bank.run("ALTER TABLE ledger ADD PRIMARY KEY (message_id)");
    let consumer = kafka::reader(&topic, work.partitions as usize, &[]);
    let pool = block_on(sqlx::PgPool::connect(&bank.url())).unwrap();
    let next = || {
        let record = consumer.poll(Duration::from_secs(10)).expect("a record").unwrap();
        let value: Value = serde_json::from_slice(record.payload().unwrap()).unwrap();
        let id = String::from_utf8(record.headers().unwrap().get(0).value.unwrap().to_vec()).unwrap();
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        let booked = sqlx::query("INSERT INTO ledger VALUES ($1, $2, CAST($3 AS numeric)) ON CONFLICT DO NOTHING")
            .bind(id)
            .bind(text("account"))
            .bind(text("amount"));
        block_on(booked.execute(&pool)).unwrap();
    };
    next();
    let meter = Meter::start(&[std::process::id()]);
    (1..work.messages).for_each(|_| next());
    meter.stop(work.messages - 1)
}
