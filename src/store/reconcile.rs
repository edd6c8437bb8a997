//! What a reconciliation asks of the tables, many keys at a time, and where it leaves what it found.

use std::collections::HashSet;
use std::time::Duration;

use super::bind::{by_keys, listed};
use super::inbox::Status;
use super::meta::time_bind;
use super::queues::HEADS;
use super::{Bind, Dialect, Store, StoreError, StoreRow};

/// What the inbox knows of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownRow {
    pub key: Vec<u8>,
    pub message_id: Option<String>,
    pub status: Status,
    pub code: Option<String>,
    pub digest: Option<String>,
    pub version: i64,
    /// Where the message was first seen.
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    /// Milliseconds since 1970 by the database's clock.
    pub received_ms: i64,
    /// It is not finished, and whoever was to finish it is late, or cannot.
    pub overdue: bool,
}

/// The head of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBatch<'a> {
    pub pipeline: &'a str,
    pub topic: &'a str,
    /// Bounds that are times, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
}

/// A difference as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDiff<'a> {
    pub message_id: Option<&'a str>,
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub kind: &'a str,
    pub detail: &'a str,
}

const DIFF_COLUMNS: usize = 7;
/// Deleted in one statement at most.
const PORTION: usize = 1000;

impl Store {
    /// The inbox rows of these keys. Whoever was to finish one is late after `grace`; one that stands behind another of
    /// its key is not due before that.
    pub async fn known_rows(&self, keys: &[&[u8]], grace: Duration) -> Result<Vec<KnownRow>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let (received, seconds) = (dialect.since_1970("received_at"), grace.as_secs());
        let late = match dialect {
            Dialect::Postgres => format!("now() - interval '{seconds} seconds'"),
            Dialect::MySql => format!("DATE_SUB(UTC_TIMESTAMP(6), INTERVAL {seconds} SECOND)"),
            Dialect::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{seconds} seconds')"),
        };
        let columns = format!(
            "inbox_key, message_id, status, code, digest, CAST(version AS {int}), topic, CAST(kafka_partition AS {int}), \
             kafka_offset, {received}, CAST(CASE \
             WHEN status = 'WAITING' AND (waiting_record IS NULL OR next_try_at IS NULL) THEN 1 \
             WHEN status = 'WAITING' AND next_try_at < {late} AND {HEADS} THEN 1 \
             WHEN status = 'PROCESSING' AND COALESCE(lease_until, received_at) < {late} THEN 1 ELSE 0 END AS {int})"
        );
        let rows = self.by_keys(&columns, "countersign_inbox", "inbox_key", keys).await?;
        rows.iter().map(known_row).collect()
    }

    /// Those of these keys of dead letters that are there.
    pub async fn known_dead_letters(&self, keys: &[&[u8]]) -> Result<HashSet<Vec<u8>>, StoreError> {
        let rows = self.by_keys("dead_letter_key", "countersign_dead_letters", "dead_letter_key", keys).await?;
        rows.iter().map(|row| row.bytes(0)).collect()
    }

    /// Those of these inbox keys under which anything was parked.
    pub async fn parked_keys(&self, keys: &[&[u8]]) -> Result<HashSet<Vec<u8>>, StoreError> {
        let rows = self.by_keys("DISTINCT inbox_key", "countersign_dead_letters", "inbox_key", keys).await?;
        rows.iter().map(|row| row.bytes(0)).collect()
    }

    async fn by_keys(
        &self,
        columns: &str,
        table: &str,
        column: &str,
        keys: &[&[u8]],
    ) -> Result<Vec<StoreRow>, StoreError> {
        let dialect = self.dialect();
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(dialect.max_binds()) {
            let mut binds = Vec::new();
            let from = by_keys(dialect, &mut binds, (table, column), "", chunk, false);
            found.extend(self.read(&format!("SELECT {columns} {from}"), binds).await?);
        }
        Ok(found)
    }

    /// Receipts that wait, by the order of their ids, above `after`: their ids in the outbox and those of the receipts.
    pub async fn waiting_receipts(
        &self,
        pipeline: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT id, receipt_id FROM countersign_outbox WHERE pipeline = {} AND id > {} ORDER BY id LIMIT {limit}",
            dialect.placeholder(0),
            dialect.placeholder(1),
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), Bind::Int(after)]).await?;
        rows.iter().map(|row| Ok((row.int(0)?, row.text(1)?))).collect()
    }

    /// Begins a batch; its number.
    pub async fn begin_reconcile(&self, batch: &NewBatch<'_>) -> Result<i64, StoreError> {
        let dialect = self.dialect();
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let place = |index| dialect.placeholder(index);
        let cast = |index, to: &str| match dialect {
            Dialect::Postgres => format!("CAST({} AS {to})", place(index)),
            Dialect::MySql | Dialect::Sqlite => place(index),
        };
        let sql = format!(
            "INSERT INTO countersign_reconcile_batches (pipeline, topic, from_ms, to_ms, status, started_at) \
             VALUES ({}, {}, {}, {}, 'running', {})",
            place(0),
            place(1),
            cast(2, "bigint"),
            cast(3, "bigint"),
            cast(4, "timestamptz"),
        );
        let binds = vec![
            Bind::text(batch.pipeline),
            Bind::text(batch.topic),
            Bind::opt_int(batch.from_ms),
            Bind::opt_int(batch.to_ms),
            time_bind(dialect, &now),
        ];
        let id = match dialect {
            Dialect::Postgres => tx.fetch(&format!("{sql} RETURNING id"), binds).await?,
            Dialect::MySql => {
                tx.execute(&sql, binds).await?;
                tx.fetch("SELECT CAST(LAST_INSERT_ID() AS SIGNED)", Vec::new()).await?
            }
            Dialect::Sqlite => {
                tx.execute(&sql, binds).await?;
                tx.fetch("SELECT last_insert_rowid()", Vec::new()).await?
            }
        };
        let id = id.first().ok_or_else(|| StoreError::Unexpected("a batch without a number".to_owned()))?.int(0)?;
        tx.commit().await?;
        Ok(id)
    }

    pub async fn record_diffs(&self, batch: i64, diffs: &[NewDiff<'_>]) -> Result<(), StoreError> {
        let dialect = self.dialect();
        for chunk in diffs.chunks(PORTION) {
            let rows = dialect.value_rows(chunk.len(), DIFF_COLUMNS);
            let sql = format!(
                "INSERT INTO countersign_reconcile_diffs \
                 (batch_id, message_id, topic, kafka_partition, kafka_offset, kind, detail) VALUES {rows}"
            );
            let mut binds = Vec::with_capacity(chunk.len() * DIFF_COLUMNS);
            for diff in chunk {
                binds.extend([
                    Bind::Int(batch),
                    Bind::opt_text(diff.message_id),
                    Bind::text(diff.topic),
                    Bind::Int(i64::from(diff.partition)),
                    Bind::Int(diff.offset),
                    Bind::text(diff.kind),
                    Bind::text(diff.detail),
                ]);
            }
            self.write(&sql, binds).await?;
        }
        Ok(())
    }

    /// Ends a batch.
    pub async fn end_reconcile(
        &self,
        batch: i64,
        status: &str,
        checked: i64,
        differences: i64,
    ) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let now = dialect.now();
        let place = |index| dialect.placeholder(index);
        let sql = format!(
            "UPDATE countersign_reconcile_batches SET status = {}, checked = {}, differences = {}, finished_at = {now} \
             WHERE id = {}",
            place(0),
            place(1),
            place(2),
            place(3),
        );
        let binds = vec![Bind::text(status), Bind::Int(checked), Bind::Int(differences), Bind::Int(batch)];
        self.write(&sql, binds).await.map(drop)
    }

    /// Deletes this many differences of a batch; true if there may be more.
    pub(super) async fn forget_diffs(&self, batch: i64, limit: usize) -> Result<bool, StoreError> {
        let dialect = self.dialect();
        let place = dialect.placeholder(0);
        let sql =
            format!("SELECT id FROM countersign_reconcile_diffs WHERE batch_id = {place} ORDER BY id LIMIT {limit}");
        let rows = self.read(&sql, vec![Bind::Int(batch)]).await?;
        let ids = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
        if !ids.is_empty() {
            let mut binds = Vec::new();
            let ids = listed(dialect, &mut binds, &ids, |id| Bind::Int(*id));
            self.write(&format!("DELETE FROM countersign_reconcile_diffs WHERE id IN {ids}"), binds).await?;
        }
        Ok(rows.len() == limit)
    }

    /// Forgets all batches of a pipeline but the newest `keep`, in bounded portions.
    pub async fn forget_reconciles(&self, pipeline: &str, keep: usize) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let place = dialect.placeholder(0);
        let sql = format!(
            "SELECT id FROM countersign_reconcile_batches WHERE pipeline = {place} ORDER BY id DESC LIMIT {PORTION} \
             OFFSET {keep}"
        );
        for row in self.read(&sql, vec![Bind::text(pipeline)]).await? {
            let batch = row.int(0)?;
            while self.forget_diffs(batch, PORTION).await? {}
            let sql = format!("DELETE FROM countersign_reconcile_batches WHERE id = {place}");
            self.write(&sql, vec![Bind::Int(batch)]).await?;
        }
        Ok(())
    }
}

fn known_row(row: &StoreRow) -> Result<KnownRow, StoreError> {
    Ok(KnownRow {
        key: row.bytes(0)?,
        message_id: row.opt_text(1)?,
        status: Status::parse(&row.text(2)?)?,
        code: row.opt_text(3)?,
        digest: row.opt_text(4)?,
        version: row.int(5)?,
        topic: row.text(6)?,
        partition: row.int(7)?,
        offset: row.int(8)?,
        received_ms: row.int(9)?,
        overdue: row.int(10)? != 0,
    })
}
