//! Receipts that are committed and not yet delivered.

use std::sync::Arc;

use super::meta::{time_bind, time_text};
use super::{Bind, Dialect, Store, StoreError, StoreRow, Tx};

/// A receipt on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReceipt {
    pub receipt_id: String,
    /// The Kafka key.
    pub receipt_key: String,
    pub receipt: String,
}

/// A receipt that waits for its delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingReceipt {
    pub id: i64,
    pub receipt_key: String,
    pub receipt: String,
    pub created_at: String,
}

const COLUMNS: usize = 7;

const INSERT_PG: &str = "INSERT INTO countersign_outbox \
    (receipt_id, receipt_key, receipt, pipeline, topic, kafka_partition, created_at) \
    SELECT u.receipt_id, u.receipt_key, u.receipt, $4, $5, CAST($6 AS integer), CAST($7 AS timestamptz) \
    FROM unnest(CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[])) \
    WITH ORDINALITY AS u(receipt_id, receipt_key, receipt, n) ORDER BY u.n";

const INSERT_ROWS: &str = "INSERT INTO countersign_outbox \
    (receipt_id, receipt_key, receipt, pipeline, topic, kafka_partition, created_at) VALUES ";

impl Tx {
    /// Enqueues receipts in this order; `lane` is theirs, or none for work without an assignment.
    pub async fn enqueue_receipts(
        &mut self,
        pipeline: &str,
        lane: Option<(&str, i32)>,
        now: &str,
        receipts: Vec<NewReceipt>,
    ) -> Result<(), StoreError> {
        if receipts.is_empty() {
            return Ok(());
        }
        let dialect = self.dialect();
        let head = [
            Bind::text(pipeline),
            Bind::opt_text(lane.map(|(topic, _)| topic)),
            Bind::opt_int(lane.map(|(_, partition)| i64::from(partition))),
            time_bind(dialect, now),
        ];
        if dialect == Dialect::Postgres {
            let (mut ids, mut keys, mut texts) = (Vec::new(), Vec::new(), Vec::new());
            for receipt in receipts {
                ids.push(Some(receipt.receipt_id));
                keys.push(Some(receipt.receipt_key));
                texts.push(Some(receipt.receipt));
            }
            let mut binds = vec![Bind::Texts(ids), Bind::Texts(keys), Bind::Texts(texts)];
            binds.extend(head);
            return self.execute(INSERT_PG, binds).await.map(drop);
        }
        for chunk in receipts.chunks(dialect.max_binds() / COLUMNS) {
            let sql = format!("{INSERT_ROWS}{}", dialect.value_rows(chunk.len(), COLUMNS));
            let mut binds = Vec::with_capacity(chunk.len() * COLUMNS);
            for receipt in chunk {
                binds.push(Bind::text(&receipt.receipt_id));
                binds.push(Bind::text(&receipt.receipt_key));
                binds.push(Bind::text(&receipt.receipt));
                binds.extend(head.iter().cloned());
            }
            self.execute(&sql, binds).await?;
        }
        Ok(())
    }
}

impl Store {
    /// The oldest receipts of a lane. "Not yet delivered" is "still there": never "above the last id", for ids
    /// are not given out in the order of commits.
    pub async fn pending_receipts(
        &self,
        pipeline: &str,
        lane: Option<(&str, i32)>,
        limit: usize,
    ) -> Result<Vec<PendingReceipt>, StoreError> {
        let dialect = self.dialect();
        let (condition, binds) = lane_condition(dialect, pipeline, lane);
        let sql = format!(
            "SELECT id, receipt_key, receipt, {} FROM countersign_outbox WHERE {condition} ORDER BY id LIMIT {limit}",
            time_text(dialect, "created_at"),
        );
        let rows = self.read(&sql, binds).await?;
        rows.iter()
            .map(|row| {
                Ok(PendingReceipt {
                    id: row.int(0)?,
                    receipt_key: row.text(1)?,
                    receipt: row.text(2)?,
                    created_at: row.text(3)?,
                })
            })
            .collect()
    }

    /// The lanes that have receipts waiting, none among them for work without an assignment.
    pub async fn lanes_with_receipts(&self, pipeline: &str) -> Result<Vec<Option<(Arc<str>, i32)>>, StoreError> {
        let dialect = self.dialect();
        let int = if dialect == Dialect::MySql { "SIGNED" } else { "bigint" };
        let sql = format!(
            "SELECT DISTINCT topic, CAST(kafka_partition AS {int}) FROM countersign_outbox WHERE pipeline = {}",
            dialect.placeholder(0)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        let lane = |row: &StoreRow| {
            let (Some(topic), Some(partition)) = (row.opt_text(0)?, row.opt_int(1)?) else { return Ok(None) };
            let partition = i32::try_from(partition)
                .map_err(|_| StoreError::Unexpected("an outbox row without a partition".to_owned()))?;
            Ok(Some((Arc::from(topic), partition)))
        };
        rows.iter().map(lane).collect()
    }

    /// Removes receipts that the broker has acknowledged.
    pub async fn delivered(&self, ids: &[i64]) -> Result<(), StoreError> {
        let dialect = self.dialect();
        for chunk in ids.chunks(dialect.max_binds() / 2) {
            let (sql, binds) = match dialect {
                Dialect::Postgres => (
                    "DELETE FROM countersign_outbox WHERE id = ANY($1)".to_owned(),
                    vec![Bind::Ints(chunk.iter().map(|id| Some(*id)).collect())],
                ),
                Dialect::MySql | Dialect::Sqlite => (
                    format!("DELETE FROM countersign_outbox WHERE id IN {}", dialect.value_rows(1, chunk.len())),
                    chunk.iter().map(|id| Bind::Int(*id)).collect(),
                ),
            };
            self.write(&sql, binds).await?;
        }
        Ok(())
    }

    /// How many of those wait that have no lane.
    pub async fn count_unassigned(&self, pipeline: &str) -> Result<i64, StoreError> {
        let (condition, binds) = lane_condition(self.dialect(), pipeline, None);
        let rows = self.read(&format!("SELECT COUNT(*) FROM countersign_outbox WHERE {condition}"), binds).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    /// How many receipts of a pipeline wait.
    pub async fn count_pending(&self, pipeline: &str) -> Result<i64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM countersign_outbox WHERE pipeline = {}", self.dialect().placeholder(0));
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }
}

fn lane_condition(dialect: Dialect, pipeline: &str, lane: Option<(&str, i32)>) -> (String, Vec<Bind>) {
    let place = |index| dialect.placeholder(index);
    match lane {
        Some((topic, partition)) => (
            format!("pipeline = {} AND topic = {} AND kafka_partition = {}", place(0), place(1), partition),
            vec![Bind::text(pipeline), Bind::text(topic)],
        ),
        None => (format!("pipeline = {} AND topic IS NULL", place(0)), vec![Bind::text(pipeline)]),
    }
}
