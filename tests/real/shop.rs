//! A shop and its bank: orders and an outbox of payments in the source database, and what the daemon makes of them in
//! the target: a mirror of the orders, a ledger and the balances of the accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::{AddAssign, Range};

use serde_json::Value;

use crate::connect;
use crate::daemon::Config;
use crate::database::{Database, Kind, Row};
use crate::kafka;
use crate::view::sorted;
use crate::world::World;

/// Every type that both sides have. The floor of what Debezium must carry exactly: an unsigned number above the signed
/// range, decimals, microseconds, bytes, JSON with decimals in it, and text that would break a careless statement.
const ORDERS: [&str; 3] = [
    "id bigint PRIMARY KEY, account varchar(20) NOT NULL, status varchar(16) NOT NULL, amount numeric(12,2) NOT NULL,
     weight double precision, express boolean NOT NULL, total_ever numeric(20,0), ordered_on date, placed_at timestamp,
     slot time, updated_at timestamptz, proof bytea, details jsonb, note text",
    "id BIGINT PRIMARY KEY, account VARCHAR(20) NOT NULL, status VARCHAR(16) NOT NULL, amount DECIMAL(12,2) NOT NULL,
     weight DOUBLE, express BOOLEAN NOT NULL, total_ever BIGINT UNSIGNED, ordered_on DATE, placed_at DATETIME(6),
     slot TIME(6), updated_at TIMESTAMP(6) NULL, proof VARBINARY(16), details JSON, note TEXT",
    "id INTEGER PRIMARY KEY, account TEXT NOT NULL, status TEXT NOT NULL, amount TEXT NOT NULL,
     weight REAL, express INTEGER NOT NULL, total_ever TEXT, ordered_on TEXT, placed_at TEXT,
     slot TEXT, updated_at TEXT, proof BLOB, details TEXT, note TEXT",
];

/// Columns that every server prints the same way need no word here.
const SELECT: [&str; 3] = ["express::int", "express", "express"];
const PROOF: [&str; 3] =
    ["upper(encode(proof, 'hex'))", "HEX(proof)", "CASE WHEN proof IS NOT NULL THEN hex(proof) END"];

const ROUTES: &str = r#"
[[route]]
name = "charge"
match = { topic = "PAYMENTS", header.eventType = "PaymentRequested" }
message_id = "header:id"
correlation_id = "value:orderId"
source_app = "header:source"
columns = { amount = "decimal(12,2)" }
digest = { include = ["orderId", "account", "amount"] }
[route.effect]
kind = "sql"
steps = [
  { sql = "INSERT INTO ledger (order_id, account, amount) VALUES (:orderId, :account, :amount)" },
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :account AND balance >= :amount", expect_rows = 1, otherwise = "reject", code = "NO_FUNDS" },
]

[[route]]
name = "orders-mirror"
match = { topic = "ORDERS" }
message_id = "source"
[route.effect]
kind = "table"
table = "orders_copy"
key = ["id"]
guard = "source"
"#;

pub struct Shop {
    pub source: Database,
    pub bank: Database,
    pub config: Config,
    pub orders_topic: String,
    pub payments_topic: String,
    pub connectors: Vec<String>,
}

/// What has been done in the shop, as the records that must come of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Changes of orders: reads of the snapshot, creates, updates, deletes. A changed key is two.
    pub changes: u64,
    /// After a delete, also that of a changed key.
    pub tombstones: u64,
    pub payments: u64,
    /// Payments of the account that has nothing.
    pub refused: u64,
}

impl Done {
    pub fn records(&self) -> u64 {
        self.changes + self.tombstones + self.payments
    }

    /// Each has an id, an inbox row and a receipt.
    pub fn messages(&self) -> u64 {
        self.changes + self.payments
    }
}

impl AddAssign for Done {
    fn add_assign(&mut self, more: Self) {
        self.changes += more.changes;
        self.tombstones += more.tombstones;
        self.payments += more.payments;
        self.refused += more.refused;
    }
}

impl Shop {
    /// `suffix` tells several shops of one test apart.
    pub fn new(world: &World, source: Kind, bank: Kind, suffix: &str) -> Self {
        let source = world.database(source, &format!("shop{suffix}"));
        let bank = world.database(bank, &format!("bank{suffix}"));
        source.run(&format!("CREATE TABLE orders ({})", ORDERS[source.kind as usize]));
        let outbox = if source.kind == Kind::Postgres { "postgres" } else { "mariadb" };
        source.run(&fs::read_to_string(format!("debezium/outbox.{outbox}.sql")).unwrap());
        if source.kind == Kind::Postgres {
            source.run("ALTER TABLE orders REPLICA IDENTITY FULL");
        }
        bank.run(&format!("CREATE TABLE orders_copy ({})", ORDERS[bank.kind as usize]));
        // No key would hide a second effect.
        let money = if bank.kind == Kind::Sqlite { "NUMERIC" } else { "DECIMAL(14,2)" };
        bank.run(&format!("CREATE TABLE ledger (order_id VARCHAR(20), account VARCHAR(20), amount {money})"));
        bank.run(&format!("CREATE TABLE accounts (id VARCHAR(20) PRIMARY KEY, balance {money} NOT NULL)"));
        bank.run(
            "INSERT INTO accounts VALUES ('alice', 1000000), ('bob', 1000000), ('carol', 1000000), ('poor', 0.01)",
        );
        let prefix = world.topic(&format!("source{suffix}"));
        let schema = if source.kind == Kind::Postgres { "public" } else { &source.name };
        let (orders_topic, payments_topic) = (
            format!("{prefix}.{schema}.orders"),
            format!("{}.payment.events", world.topic(&format!("outbox{suffix}"))),
        );
        let mut config = world.pipeline(
            &bank,
            &[&orders_topic, &payments_topic],
            &ROUTES.replace("PAYMENTS", &payments_topic).replace("ORDERS", &orders_topic),
        );
        config.name.push_str(suffix);
        config.receipts = world.topic(&format!("receipts{suffix}"));
        kafka::create(&config.receipts, 3, &[]);
        config.migrate();
        Self { source, bank, config, orders_topic, payments_topic, connectors: Vec::new() }
    }

    /// Lets Debezium read the source, from what stands in it now.
    pub fn connect(&mut self, world: &World) {
        let flavour = if self.source.kind == Kind::Postgres { "postgres" } else { "mariadb" };
        let schema = if self.source.kind == Kind::Postgres { "public" } else { self.source.name.as_str() };
        let database = if self.source.kind == Kind::Postgres { "database.dbname" } else { "database.include.list" };
        let replacement = self.payments_topic.replace(".payment.", ".${routedByValue}.");
        let prefix = self.orders_topic.strip_suffix(&format!(".{schema}.orders")).unwrap();
        self.connectors = vec![
            world.connector(
                &format!("{flavour}-source"),
                &[
                    (database, &self.source.name),
                    ("table.include.list", &format!("{schema}.orders")),
                    ("topic.prefix", prefix),
                ],
            ),
            world.connector(
                &format!("{flavour}-outbox"),
                &[
                    (database, &self.source.name),
                    ("table.include.list", &format!("{schema}.outbox")),
                    ("topic.prefix", &format!("{prefix}-outbox")),
                    ("transforms.outbox.route.topic.replacement", &replacement),
                ],
            ),
        ];
        self.connectors.iter().for_each(|connector| connect::wait(connector));
    }

    /// Orders and their payments, each few in one transaction.
    pub fn sell(&self, orders: Range<u64>, in_one: u64) -> Done {
        let mut done = Done::default();
        let ids: Vec<u64> = orders.collect();
        for some in ids.chunks(in_one as usize) {
            let mut sql = String::from("BEGIN;\n");
            for &id in some {
                sql.push_str(&self.order(id));
                sql.push_str(&payment(id));
                done.refused += u64::from(account(id) == "poor");
            }
            self.source.run(&(sql + "COMMIT;"));
            done.changes += some.len() as u64;
            done.payments += some.len() as u64;
        }
        done
    }

    /// Updates, two of one row in a transaction, changes of the primary key, deletes, and a row that comes back.
    pub fn change(&self, from: u64, to: u64) -> Done {
        let range = format!("id >= {from} AND id < {to}");
        let run = |sql: &str| self.source.run(sql);
        let mut updates =
            run(&format!("UPDATE orders SET status = 'paid', amount = amount + 0.01 WHERE {range} AND id % 3 = 0"));
        let first = from + 1;
        run(&format!(
            "BEGIN; UPDATE orders SET status = 'sent', placed_at = NULL WHERE id = {first};
             UPDATE orders SET status = 'back', weight = 0.1 WHERE id = {first}; COMMIT"
        ));
        updates += 2;
        let moved = run(&format!("UPDATE orders SET id = id + 1000000 WHERE {range} AND id % 10 = 4"));
        let deleted = run(&format!("DELETE FROM orders WHERE {range} AND id % 7 = 0"));
        run(&self.order(from - from % 7 + 7));
        Done { changes: updates + 2 * moved + deleted + 1, tombstones: moved + deleted, ..Done::default() }
    }

    fn order(&self, id: u64) -> String {
        let (bytes, backslash) = match self.source.kind {
            Kind::Postgres => (format!("'\\x{id:08x}00ff'"), "chr(92)"),
            Kind::MariaDb | Kind::Sqlite => (format!("X'{id:08x}00ff'"), "CHAR(92)"),
        };
        let (account, cents) = (account(id), id % 100);
        let rest = if id % 5 == 2 {
            "NULL, FALSE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL".to_owned()
        } else {
            let total = 18_446_744_073_709_551_615 - id;
            let (day, second) = (1 + id % 28, id % 60);
            format!(
                "{id}.5e-9, TRUE, {total}, '2026-02-{day:02}', '2026-11-29 12:34:{second:02}.{id:06}',
                 '23:59:{second:02}.5', '2026-11-29 12:34:{second:02}.120000', {bytes},
                 '{{\"näme\": \"Zoë €\", \"lines\": [{id}, 2.50, null, true]}}', concat('it''s \"{id}\" \u{1f600} ', {backslash}, 'n')"
            )
        };
        format!(
            "INSERT INTO orders VALUES ({id}, '{account}', 'new', {}{id}.{cents:02}, {rest});\n",
            if id.is_multiple_of(9) { "-" } else { "" }
        )
    }

    /// The bank against the shop: the mirror column by column, the ledger payment by payment, the balances.
    pub fn compare(&self) {
        let (source, copy) = (orders(&self.source, "orders"), orders(&self.bank, "orders_copy"));
        for (id, row) in &source {
            assert_eq!(copy.get(id), Some(row), "order {id} in the mirror (left) and at the source (right)");
        }
        let extra: Vec<_> = copy.keys().filter(|id| !source.contains_key(*id)).collect();
        assert!(extra.is_empty(), "orders that the source does not have: {extra:?}");

        let asked = self.payments();
        let booked = self.bank.rows("SELECT order_id, account, amount FROM ledger");
        let mut expected: Vec<Row> = asked.iter().filter(|row| row[1].as_deref() != Some("poor")).cloned().collect();
        let mut booked: Vec<Row> = booked.iter().map(money).collect();
        expected.sort();
        booked.sort();
        assert!(expected == booked, "{}", difference(&expected, &booked));

        let spent = |account: &str| -> i64 {
            expected
                .iter()
                .filter(|row| row[1].as_deref() == Some(account))
                .map(|row| cents(row[2].as_deref().unwrap()))
                .sum()
        };
        for row in self.bank.rows("SELECT id, balance FROM accounts") {
            let (account, balance) = (row[0].as_deref().unwrap(), cents(row[1].as_deref().unwrap()));
            let began = if account == "poor" { 1 } else { 100_000_000 };
            assert_eq!(balance, began - spent(account), "balance of {account}, in cents");
        }
    }

    /// What the outbox asked for: order, account, amount.
    fn payments(&self) -> Vec<Row> {
        let payloads = self.source.texts("SELECT payload FROM outbox");
        let rows = payloads.iter().map(|payload| {
            let payload: Value = serde_json::from_str(payload).unwrap();
            ["orderId", "account", "amount"].map(|field| payload[field].as_str().map(str::to_owned)).to_vec()
        });
        rows.map(|row| money(&row)).collect()
    }

    /// One receipt for every message, on the topic and by command; repeats bear the same receiptId.
    pub fn check_receipts(&self, done: Done) {
        let receipts = receipts(&self.config.receipts);
        let by_message: BTreeSet<&str> = receipts.values().map(|r| r["messageId"].as_str().unwrap()).collect();
        assert_eq!(receipts.len() as u64, done.messages(), "receipts by receiptId");
        assert_eq!(by_message.len() as u64, done.messages(), "messages with a receipt");
        let failed: Vec<&Value> = receipts.values().filter(|receipt| receipt["status"] != "SUCCESS").collect();
        assert_eq!(failed.len() as u64, done.refused);
        assert!(failed.iter().all(|receipt| receipt["status"] == "FAILED" && receipt["code"] == "NO_FUNDS"));
        let of_orders = receipts.values().find(|r| r["position"]["topic"] == self.orders_topic.as_str()).unwrap();
        let of_payments = receipts.values().find(|r| r["correlationId"] == "o-1").unwrap();
        for receipt in [of_orders, of_payments, failed[0]] {
            let id = receipt["messageId"].as_str().unwrap();
            let got: Value =
                serde_json::from_str(&self.config.command(&["receipts", "get", id, "--output", "json"])).unwrap();
            assert_eq!(&got, receipt, "the receipt by command (left) and on the topic (right)");
        }
        assert_eq!(of_payments["sourceApp"], "shop");
    }
}

fn account(order: u64) -> &'static str {
    if order % 25 == 3 { "poor" } else { ["alice", "bob", "carol"][(order % 3) as usize] }
}

fn payment(order: u64) -> String {
    let account = account(order);
    format!(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
         ('00000000-0000-7000-8000-{order:012}', 'payment', 'o-{order}', 'PaymentRequested',
          '{{\"orderId\": \"o-{order}\", \"account\": \"{account}\", \"amount\": \"{}.{:02}\"}}');\n",
        order % 50,
        order % 99 + 1
    )
}

/// The table's rows by id, each column as a text that is the same on every server.
fn orders(database: &Database, table: &str) -> BTreeMap<u64, Vec<(&'static str, Option<String>)>> {
    let (express, proof) = (SELECT[database.kind as usize], PROOF[database.kind as usize]);
    let names = [
        "id",
        "account",
        "status",
        "amount",
        "weight",
        "express",
        "total_ever",
        "ordered_on",
        "placed_at",
        "slot",
        "updated_at",
        "proof",
        "details",
        "note",
    ];
    let rows = database.rows(&format!(
        "SELECT id, account, status, amount, weight, {express}, total_ever, ordered_on, placed_at, slot, updated_at,
         {proof}, details, note FROM {table}"
    ));
    let rows = rows.into_iter().map(|row| {
        let cells = names.into_iter().zip(row).map(|(name, cell)| (name, cell.map(|text| canonical(name, &text))));
        let cells: Vec<_> = cells.collect();
        (cells[0].1.as_deref().unwrap().parse().unwrap(), cells)
    });
    rows.collect()
}

/// The servers print the same value in different ways: how they write exponents, trailing zeros of a second, and JSON.
fn canonical(column: &str, text: &str) -> String {
    match column {
        "weight" => format!("{:e}", text.parse::<f64>().unwrap()),
        "placed_at" | "slot" | "updated_at" => {
            let text = text.trim_end_matches("+00").trim_end_matches('Z').replace('T', " ");
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
        "details" => sorted(&serde_json::from_str(text).unwrap()),
        _ => text.to_owned(),
    }
}

/// The last column in cents, as text: SQLite drops the zeros of a number.
fn money(row: &Row) -> Row {
    let mut row = row.clone();
    let amount = row.last_mut().unwrap();
    *amount = amount.as_deref().map(|text| format!("{}.{:02}", cents(text) / 100, cents(text) % 100));
    row
}

fn cents(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= 2, "{text} has parts of a cent");
    format!("{whole}{part:0<2}").parse().unwrap()
}

fn difference(expected: &[Row], found: &[Row]) -> String {
    let count = |rows: &[Row]| {
        rows.iter().fold(BTreeMap::new(), |mut counts, row| {
            *counts.entry(row.clone()).or_insert(0) += 1;
            counts
        })
    };
    let (expected, found) = (count(expected), count(found));
    let wrong = expected.keys().chain(found.keys()).filter(|row| expected.get(*row) != found.get(*row));
    let wrong: Vec<_> = wrong.map(|row| (row, expected.get(row), found.get(row))).take(10).collect();
    format!("booked wrongly (row, expected times, found times): {wrong:?}")
}

/// Terminal receipts of a topic by receiptId; a repeat must be the same to the letter.
pub fn receipts(topic: &str) -> BTreeMap<String, Value> {
    let mut receipts: BTreeMap<String, Value> = BTreeMap::new();
    for value in kafka::values(topic) {
        let receipt: Value = serde_json::from_slice(&value).unwrap();
        if receipt["status"] == "PROCESSING" {
            continue;
        }
        let id = receipt["receiptId"].as_str().unwrap().to_owned();
        if let Some(before) = receipts.insert(id, receipt.clone()) {
            assert_eq!(before, receipt, "a receipt that was delivered again");
        }
    }
    receipts
}
