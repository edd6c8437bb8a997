//! The business of most tests: payments that are booked and taken from an account that must cover them.

use std::ops::Range;

use crate::broker::Rec;
use crate::wait::until;
use crate::world::World;

pub const TABLES: &str = "
    CREATE TABLE accounts (id VARCHAR(50) PRIMARY KEY, balance BIGINT NOT NULL);
    INSERT INTO accounts VALUES ('alice', 1000), ('bob', 100000), ('poor', 0);
    CREATE TABLE ledger (n {serial}, order_id VARCHAR(50) NOT NULL, account VARCHAR(50) NOT NULL, amount BIGINT NOT NULL);
";

/// Two steps, message by message.
pub const CHARGE: &str = r#"
[[route]]
name = "charge"
match = { topic = "TOPIC" }
message_id = "header:id"
correlation_id = "value:orderId"
source_app = "header:source"
[route.effect]
kind = "sql"
steps = [
  { sql = "INSERT INTO ledger (order_id, account, amount) VALUES (:orderId, :account, :amount)" },
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :account AND balance >= :amount", expect_rows = 1, otherwise = "reject", code = "INSUFFICIENT_FUNDS" },
]
"#;

/// One plain insert, set-based.
pub const BOOK: &str = r#"
[[route]]
name = "book"
match = { topic = "TOPIC" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO ledger (order_id, account, amount) VALUES (:orderId, :account, :amount)" }]
"#;

pub fn payment(id: &str, account: &str, amount: i64) -> Rec {
    let value = format!(r#"{{"orderId":"order-{id}","account":"{account}","amount":{amount}}}"#);
    Rec::new(id, value).key(account).header("source", "shop")
}

/// Payments `m-0000` and so on over both partitions; the n-th has offset n / 2.
pub fn payments(numbers: Range<usize>) -> Vec<Rec> {
    numbers.map(|n| payment(&format!("m-{n:04}"), "bob", 1).on(n as i32 % 2)).collect()
}

impl World {
    /// The order ids of the ledger, in the order of booking.
    pub async fn ledger(&self) -> Vec<String> {
        self.db.rows("order_id", "FROM ledger ORDER BY n").await
    }

    /// The first `count` of [`payments`] are booked, each once, and nothing else is.
    pub async fn booked_once(&self, count: usize) {
        let mut ledger = self.ledger().await;
        ledger.sort();
        assert_eq!(ledger, (0..count).map(|n| format!("order-m-{n:04}")).collect::<Vec<_>>());
        assert_eq!(self.balance("bob").await, 100_000 - count as i64);
    }

    /// Waits for so many bookings.
    pub async fn booked(&self, count: usize) {
        let enough = || async { (self.db.count("FROM ledger").await >= count as i64).then_some(()) };
        until(&format!("{count} bookings"), enough).await;
    }

    pub async fn balance(&self, account: &str) -> i64 {
        let rows = self.db.rows("balance", &format!("FROM accounts WHERE id = '{account}'")).await;
        rows[0].parse().unwrap()
    }
}
