//! What the daemon is worth on this machine: against the ceiling of the database, against what others do there, and
//! how that grows. All figures of a table come from one run; `tests/bench/run.sh` makes it, and brings the services.
//!
//!     tests/bench/run.sh            every table
//!     tests/bench/run.sh promise    the tables with these names
//!     tests/bench/run.sh short      the daemon against the ceiling: fails if the ratio has fallen by half

#![allow(clippy::unwrap_used)]
// Parts of the real suite, of which this uses some.
#![allow(dead_code)]

#[path = "../../real/connect.rs"]
mod connect;
#[path = "../../real/daemon.rs"]
mod daemon;
#[path = "../../real/database.rs"]
mod database;
#[path = "../../real/kafka.rs"]
mod kafka;
#[path = "../../it/ports.rs"]
mod ports;
#[path = "../../real/schemas.rs"]
mod schemas;
#[path = "../../real/world.rs"]
mod world;

mod bento;
mod ceiling;
mod consumers;
mod latency;
mod meter;
mod mirror;
mod payments;
mod table;

use database::Kind;
use payments::Payments;
use table::Table;

fn main() {
    // cargo says `--bench` to every benchmark.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["short"] => short(),
        [] => TABLES.iter().for_each(|(_, make)| make().print()),
        ref names => {
            for name in names {
                let found = TABLES.iter().find(|(known, _)| known == name);
                let known: Vec<_> = TABLES.iter().map(|(known, _)| *known).collect();
                found.unwrap_or_else(|| panic!("no table {name}: {known:?} or short")).1().print();
            }
        }
    }
}

type Make = fn() -> Table;

const TABLES: [(&str, Make); 10] = [
    ("promise", promise),
    ("mirror", mirror::table),
    ("databases", databases),
    ("partitions", partitions),
    ("instances", instances),
    ("inbox", inbox),
    ("duplicates", duplicates),
    ("payloads", payloads),
    ("order", order),
    ("latency", latency::table),
];

/// Half of what this ratio was where it was last measured, with and without optimisation.
const LEAST: f64 = if cfg!(debug_assertions) { 0.1 } else { 0.25 };

fn short() {
    let work = Payments { messages: 150_000, ..Payments::default() };
    let mut table = Table::new("the daemon against the ceiling of PostgreSQL");
    let daemon = work.run("short");
    let ceiling = ceiling::measure(&daemon);
    table.row("ceiling", &ceiling, None);
    table.row("countersign", &daemon.score, Some(&ceiling));
    table.print();
    let ratio = daemon.score.rate / ceiling.rate;
    assert!(ratio >= LEAST, "{ratio:.2} of the ceiling, and it was twice {LEAST}");
}

/// A ledger row a message in PostgreSQL: whoever promises more or less.
fn promise() -> Table {
    let work = Payments::default();
    let mut table = Table::new("one ledger row a message, PostgreSQL, 6 partitions");
    let daemon = work.run("promise");
    let ceiling = ceiling::measure(&daemon);
    table.row("ceiling: inbox, ledger and outbox rows set-based, outbox read and deleted", &ceiling, None);
    table.row("countersign: inbox row, effect and receipt, Redis", &daemon.score, Some(&ceiling));
    let off = Payments { gate: "off", ..work.clone() }.run("promise_off");
    table.row("countersign: the same without a gate", &off.score, Some(&ceiling));
    let booking = Payments { booking: true, messages: work.messages / 5, ..work.clone() }.run("promise_two");
    table.row("countersign: ledger row and balance in two steps", &booking.score, Some(&ceiling));
    table.row("Bento: dedup row and ledger row in one statement, no receipt", &bento::atomic(&work), Some(&ceiling));
    table.row("Bento: dedupe in Redis, batched inserts, no receipt, loses", &bento::gated(&work), Some(&ceiling));
    let one = Payments { messages: work.messages / 20, ..work };
    table.row("a consumer that commits each message", &consumers::one_by_one(&one), Some(&ceiling));
    table
}

fn databases() -> Table {
    let mut table = Table::new("one ledger row a message, 6 partitions, by database");
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Sqlite] {
        let daemon = Payments { kind, messages: 200_000, ..Payments::default() }.run("databases");
        let ceiling = ceiling::measure(&daemon);
        table.row(&format!("{kind:?}: ceiling"), &ceiling, None);
        table.row(&format!("{kind:?}: countersign"), &daemon.score, Some(&ceiling));
    }
    table
}

/// Each beside the first.
fn grown(title: &str, name: &str, rows: impl IntoIterator<Item = (String, Payments)>) -> Table {
    let mut table = Table::new(title);
    let mut first = None;
    for (what, work) in rows {
        let score = work.run(name).score;
        table.row(&what, &score, Some(first.get_or_insert(score)));
    }
    table
}

fn partitions() -> Table {
    let rows = [6, 1, 24]
        .map(|partitions| (format!("{partitions} partitions"), Payments { partitions, ..Payments::default() }));
    grown("by partitions", "partitions", rows)
}

/// One partition: all of it one after the other, or slices side by side.
fn order() -> Table {
    let mut table = Table::new("by `order`, one partition, 8 slices");
    let kinds = [
        ("one insert a message", Payments { messages: 150_000, ..Payments::default() }),
        ("two steps message by message", Payments { messages: 30_000, booking: true, ..Payments::default() }),
        ("an effect of a millisecond", Payments { messages: 5_000, slow: true, ..Payments::default() }),
    ];
    for (what, work) in kinds {
        let mut first = None;
        for order in ["partition", "key", "none"] {
            let score = Payments { order, partitions: 1, ..work.clone() }.run("order").score;
            table.row(&format!("{what}, `{order}`"), &score, Some(first.get_or_insert(score)));
        }
    }
    table
}

fn instances() -> Table {
    let rows =
        [1, 2, 3].map(|instances| (format!("{instances} instances"), Payments { instances, ..Payments::default() }));
    grown("by instances, 6 partitions", "instances", rows)
}

fn inbox() -> Table {
    let rows = [0, 1_000_000, 10_000_000]
        .map(|rows| (format!("{rows} rows"), Payments { inbox_rows: rows, ..Payments::default() }));
    grown("by rows that are in the inbox before, PostgreSQL, warmed up", "inbox", rows)
}

fn duplicates() -> Table {
    let mut table = Table::new("by duplicates");
    let work = Payments::default();
    let bare = consumers::bare(&work);
    table.row("a consumer that only reads", &bare, None);
    for (gate, name) in [("redis", "Redis"), ("off", "no gate")] {
        for duplicates in [0, 8, 50, 100] {
            let run = Payments { duplicates, gate, ..work.clone() }.run("duplicates");
            table.row(&format!("{duplicates} %, {name}"), &run.score, Some(&bare));
        }
    }
    table
}

fn payloads() -> Table {
    let rows = [(200, 300_000), (1_000, 200_000), (20_000, 20_000)]
        .map(|(payload, messages)| (format!("{payload} bytes"), Payments { payload, messages, ..Payments::default() }));
    grown("by payload", "payloads", rows)
}
