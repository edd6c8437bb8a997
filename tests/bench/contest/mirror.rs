//! A table mirrored by its change events: what Debezium has captured of MariaDB, applied to PostgreSQL.

use std::path::Path;

use serde_json::json;

use crate::connect;
use crate::daemon::Daemon;
use crate::database::{Database, Kind};
use crate::kafka;
use crate::meter::{Meter, Score};
use crate::payments::{look, until_applied, until_delivered};
use crate::table::Table;
use crate::world::{World, env, holds, until};

const ORDERS: u64 = 300_000;
const UPDATED: u64 = 150_000;
const DELETED: u64 = 30_000;
/// Inserts, updates and deletes, as the target counts them; the topic has a tombstone after each delete besides.
const CHANGES: u64 = ORDERS + UPDATED + DELETED;
const RECORDS: u64 = CHANGES + DELETED;

const COLUMNS: &str = "id bigint PRIMARY KEY, customer varchar(40) NOT NULL, amount decimal(12,2) NOT NULL, \
                       status varchar(16) NOT NULL, updated_at timestamp(6) NOT NULL";

pub fn table() -> Table {
    let mut table = Table::new(&format!(
        "orders from MariaDB to PostgreSQL, {RECORDS} records with schema, 6 partitions; rates of records"
    ));
    let world = World::new("mirror");
    let topic = captured(&world);
    let sink = jdbc_sink(&world, &topic, 2, false);
    table.row(
        "Debezium's JDBC sink, 1 task: upserts, no dedup, no receipt",
        &jdbc_sink(&world, &topic, 1, false),
        Some(&sink),
    );
    table.row("the same, 2 tasks", &sink, Some(&sink));
    table.row("the same, 2 tasks and its reduction buffer", &jdbc_sink(&world, &topic, 2, true), Some(&sink));
    for (name, inbox) in [("countersign: guard, inbox rows, receipts", true), ("countersign: guard alone", false)] {
        table.row(name, &daemon(&world, &topic, inbox), Some(&sink));
    }
    table
}

/// The topic with all changes.
fn captured(world: &World) -> String {
    let shop = world.database(Kind::MariaDb, "shop");
    shop.run(&format!("CREATE TABLE orders ({COLUMNS})"));
    let tables = format!("{}.orders", shop.name);
    let connector = world.connector(
        "mariadb-source",
        &[("database.include.list", &shop.name), ("table.include.list", &tables), ("topic.prefix", &world.name)],
    );
    connect::wait(&connector);
    let step = 10_000;
    for from in (0..ORDERS).step_by(step as usize) {
        shop.run(&format!(
            "INSERT INTO orders SELECT seq, CONCAT('customer-', seq % 997), seq % 9000 + 0.25, 'new', NOW(6) \
             FROM seq_{}_to_{}",
            from + 1,
            from + step
        ));
    }
    for from in (0..UPDATED).step_by(step as usize) {
        shop.run(&format!("UPDATE orders SET status = 'paid' WHERE id > {from} AND id <= {}", from + step));
    }
    for from in (UPDATED..UPDATED + DELETED).step_by(step as usize) {
        shop.run(&format!("DELETE FROM orders WHERE id > {from} AND id <= {}", from + step));
    }
    let topic = format!("{}.{tables}", world.name);
    until(600, "the changes to be captured", || {
        let ends = if kafka::topics().contains(&topic) { kafka::ends(&topic).iter().sum::<i64>() as u64 } else { 0 };
        holds(ends >= RECORDS, || format!("{ends} of {RECORDS}"))
    });
    topic
}

fn target(world: &World, role: &str) -> Database {
    let bank = world.database(Kind::Postgres, role);
    bank.run(&format!("CREATE TABLE orders_copy ({COLUMNS})"));
    bank
}

fn changes(bank: &Database) -> u64 {
    bank.number("SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname = 'orders_copy'")
}

/// Rows that are as the source has them, once all changes are applied.
fn right(bank: &Database) -> u64 {
    bank.number("SELECT COUNT(*) FROM orders_copy WHERE (status = 'paid') = (id <= 150000)")
}

fn proves_right(bank: &Database) {
    assert_eq!(right(bank), ORDERS - DELETED);
}

/// In the worker of the stack; what it takes is measured with the whole worker.
fn jdbc_sink(world: &World, topic: &str, tasks: u32, reduced: bool) -> Score {
    let bank = target(world, &format!("sink{tasks}{reduced}"));
    let name = format!("{}_sink{tasks}{reduced}", world.name);
    let (user, url) = bank
        .url()
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('@'))
        .map(|(user, at)| (user.to_owned(), at.to_owned()))
        .unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let converter = "org.apache.kafka.connect.json.JsonConverter";
    let config = json!({
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "tasks.max": tasks.to_string(), "topics": topic,
        "connection.url": format!("jdbc:postgresql://{url}"), "connection.username": user, "connection.password": password,
        "insert.mode": "upsert", "delete.enabled": "true", "primary.key.mode": "record_key",
        "collection.name.format": "orders_copy", "schema.evolution": "none", "batch.size": "2000",
        "use.reduction.buffer": reduced.to_string(), "key.converter": converter, "value.converter": converter,
        "consumer.override.auto.offset.reset": "earliest", "consumer.override.max.poll.records": "2000",
    });
    let at = format!("{}/connectors/{name}", env("COUNTERSIGN_CONNECT_URL"));
    ureq::put(format!("{at}/config")).send_json(&config).unwrap();
    until(60, "the sink's first row", || holds(changes(&bank) > 0, || "none".to_owned()));
    let (meter, already) = (Meter::start(&[worker()]), changes(&bank));
    // Its buffer makes one change of several: there the last one is waited for.
    let last = "SELECT COUNT(*) FROM orders_copy WHERE id = 150000 AND status = 'paid'";
    if reduced {
        look(|| bank.number(last) == 1 && right(&bank) == ORDERS - DELETED, "the sink's last change");
    } else {
        look(|| changes(&bank) >= CHANGES, "the sink's last change");
    }
    let score = meter.stop((CHANGES - already) * RECORDS / CHANGES);
    ureq::delete(&at).call().unwrap();
    proves_right(&bank);
    score
}

/// The process of Kafka Connect.
fn worker() -> u32 {
    let path = Path::new(env("COUNTERSIGN_STACK_DIR")).join("connect.pid");
    std::fs::read_to_string(path).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

fn daemon(world: &World, topic: &str, inbox: bool) -> Score {
    let bank = target(world, &format!("mirror{inbox}"));
    let route = format!(
        r#"
[[route]]
name = "orders-mirror"
message_id = "source"
[route.effect]
kind = "table"
table = "orders_copy"
key = ["id"]
guard = "source"
inbox = {inbox}
"#
    );
    let mut config = world.pipeline(&bank, &[topic], &route);
    config.name = format!("{}{inbox}", world.name);
    config.receipts = format!("{}.receipts{inbox}", world.name);
    kafka::create(&config.receipts, 6, &[]);
    config.migrate();
    let daemon = Daemon::start(&config);
    until(60, "the first outcome", || holds(bank.progress() > 0, || "none".to_owned()));
    let (meter, already) = (Meter::start(&[daemon.pid()]), bank.progress());
    until_applied(&bank, RECORDS);
    until_delivered(&bank);
    let score = meter.stop(RECORDS - already);
    daemon.terminate(30);
    proves_right(&bank);
    score
}
