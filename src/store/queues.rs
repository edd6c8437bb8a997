//! Queues of messages that wait: with `order = "key"` what comes later for a record key stands behind it.

use std::collections::HashSet;

use super::bind::by_keys;
use super::{Bind, Dialect, Sql, Store, StoreError, Tx};

/// A hash of a record's key.
pub type OrderKey = [u8; 32];

/// A partition of a pipeline: keys are ordered within it.
#[derive(Clone, Copy, Debug)]
pub struct QueuePlace<'a> {
    pub pipeline: &'a str,
    pub topic: &'a str,
    pub partition: i32,
}

const ENQUEUE: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET order_key = $1 WHERE inbox_key = $2",
    mysql: "UPDATE countersign_inbox SET order_key = ? WHERE inbox_key = ?",
    sqlite: "UPDATE countersign_inbox SET order_key = ? WHERE inbox_key = ?",
};

/// What keeps a message in its queue: an earlier one of its key that waits too.
pub(super) const HEADS: &str = "(w.order_key IS NULL OR NOT EXISTS (SELECT 1 FROM countersign_inbox e \
    WHERE e.status = 'WAITING' AND e.order_key = w.order_key AND e.pipeline = w.pipeline AND e.topic = w.topic \
    AND e.kafka_partition = w.kafka_partition AND e.kafka_offset < w.kafka_offset))";

impl Tx {
    /// Those of these keys for which a message waits. One that is about to end its wait counts: whoever comes behind
    /// it is found by the next look at the queue.
    pub async fn waiting_keys(
        &mut self,
        place: QueuePlace<'_>,
        keys: &[OrderKey],
    ) -> Result<HashSet<OrderKey>, StoreError> {
        let dialect = self.dialect();
        let mut waiting = HashSet::new();
        for chunk in keys.chunks(dialect.max_binds() / 2) {
            let mut binds = vec![Bind::text(place.pipeline), Bind::text(place.topic)];
            let (pipeline, topic) = (dialect.placeholder(0), dialect.placeholder(1));
            let waits = format!(
                "pipeline = {pipeline} AND topic = {topic} AND kafka_partition = {} AND status = 'WAITING' AND",
                place.partition
            );
            let from = by_keys(dialect, &mut binds, ("countersign_inbox", "order_key"), &waits, chunk, false);
            let sql = format!("SELECT DISTINCT order_key {from}");
            for row in self.fetch(&sql, binds).await? {
                let key = row.bytes(0)?.try_into();
                waiting.insert(key.map_err(|_| StoreError::Unexpected("an order key of 32 bytes".to_owned()))?);
            }
        }
        Ok(waiting)
    }

    /// How many messages of a partition wait, as this transaction sees it.
    pub async fn count_waiting(&mut self, place: QueuePlace<'_>) -> Result<i64, StoreError> {
        let (sql, binds) = waiting(self.dialect(), place);
        self.fetch(&sql, binds).await?.first().map_or(Ok(0), |row| row.int(0))
    }

    /// Puts a message that was set aside into the queue of its key.
    pub async fn enqueue(&mut self, inbox_key: &[u8], order_key: OrderKey) -> Result<(), StoreError> {
        let binds = vec![Bind::Bytes(order_key.to_vec()), Bind::Bytes(inbox_key.to_vec())];
        self.execute(ENQUEUE.of(self.dialect()), binds).await.map(drop)
    }
}

/// How many messages of a partition wait.
fn waiting(dialect: Dialect, place: QueuePlace<'_>) -> (String, Vec<Bind>) {
    let sql = format!(
        "SELECT COUNT(*) FROM countersign_inbox WHERE pipeline = {} AND topic = {} AND kafka_partition = {} \
         AND status = 'WAITING'",
        dialect.placeholder(0),
        dialect.placeholder(1),
        place.partition
    );
    (sql, vec![Bind::text(place.pipeline), Bind::text(place.topic)])
}

impl Store {
    pub async fn count_waiting(&self, place: QueuePlace<'_>) -> Result<i64, StoreError> {
        let (sql, binds) = waiting(self.dialect(), place);
        self.read(&sql, binds).await?.first().map_or(Ok(0), |row| row.int(0))
    }
}
