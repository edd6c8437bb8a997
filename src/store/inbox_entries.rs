//! Inbox rows one by one: for people, for receipts, and for messages that were set aside.

use std::collections::HashMap;

use super::inbox::Status;
use super::meta::time_text;
use super::queues::HEADS;
use super::{Bind, Dialect, Sql, Store, StoreError, StoreRow, Tx};

/// A whole inbox row, for people and for receipts.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxEntry {
    pub key: Vec<u8>,
    pub pipeline: String,
    pub scope: String,
    pub route: String,
    pub message_id: Option<String>,
    pub status: Status,
    pub code: Option<String>,
    pub reason: Option<String>,
    pub digest: Option<String>,
    pub version: i64,
    pub attempts: i64,
    pub correlation_id: Option<String>,
    pub source_app: Option<String>,
    pub receipt_key: String,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    pub source_instance: Option<String>,
    pub result: Option<String>,
    pub received_at: String,
    pub finished_at: Option<String>,
    pub next_try_at: Option<String>,
}

/// A message that was set aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub key: Vec<u8>,
    pub record: Vec<u8>,
    pub attempts: i64,
    pub token: i64,
    pub received_at: String,
    /// As its first receipt said, whatever the configuration would make of the record now.
    pub correlation_id: Option<String>,
    pub source_app: Option<String>,
}

pub(super) fn entry_columns(dialect: Dialect) -> String {
    let int = dialect.bigint();
    format!(
        "inbox_key, pipeline, scope, route, message_id, status, code, reason, digest, CAST(version AS {int}), \
         CAST(attempts AS {int}), correlation_id, source_app, receipt_key, topic, CAST(kafka_partition AS {int}), \
         kafka_offset, source_instance, result, {}, {}, {}",
        time_text(dialect, "received_at"),
        time_text(dialect, "finished_at"),
        time_text(dialect, "next_try_at"),
    )
}

pub(super) fn entry(row: &StoreRow) -> Result<InboxEntry, StoreError> {
    Ok(InboxEntry {
        key: row.bytes(0)?,
        pipeline: row.text(1)?,
        scope: row.text(2)?,
        route: row.text(3)?,
        message_id: row.opt_text(4)?,
        status: Status::parse(&row.text(5)?)?,
        code: row.opt_text(6)?,
        reason: row.opt_text(7)?,
        digest: row.opt_text(8)?,
        version: row.int(9)?,
        attempts: row.int(10)?,
        correlation_id: row.opt_text(11)?,
        source_app: row.opt_text(12)?,
        receipt_key: row.text(13)?,
        topic: row.text(14)?,
        partition: row.int(15)?,
        offset: row.int(16)?,
        source_instance: row.opt_text(17)?,
        result: row.opt_text(18)?,
        received_at: row.text(19)?,
        finished_at: row.opt_text(20)?,
        next_try_at: row.opt_text(21)?,
    })
}

impl Store {
    pub async fn inbox_entries(&self, keys: Vec<Vec<u8>>) -> Result<Vec<InboxEntry>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {} FROM countersign_inbox WHERE inbox_key IN {}",
            entry_columns(dialect),
            dialect.value_rows(1, keys.len())
        );
        let rows = self.read(&sql, keys.into_iter().map(Bind::Bytes).collect()).await?;
        rows.iter().map(entry).collect()
    }

    /// The newest first, at most `limit`.
    pub async fn inbox_by_correlation(
        &self,
        pipeline: &str,
        correlation_id: &str,
        limit: i64,
    ) -> Result<Vec<InboxEntry>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {} FROM countersign_inbox WHERE pipeline = {} AND correlation_id = {} \
             ORDER BY received_at DESC LIMIT {limit}",
            entry_columns(dialect),
            dialect.placeholder(0),
            dialect.placeholder(1),
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), Bind::text(correlation_id)]).await?;
        rows.iter().map(entry).collect()
    }

    /// The digests of other contents that came under an inbox row's id, by the numbers of their dead letters.
    pub async fn conflict_digests(&self, inbox_key: &[u8]) -> Result<HashMap<i64, String>, StoreError> {
        let sql = format!(
            "SELECT id, digest FROM countersign_dead_letters WHERE inbox_key = {} AND class = 'conflict' \
             AND digest IS NOT NULL",
            self.dialect().placeholder(0)
        );
        let rows = self.read(&sql, vec![Bind::Bytes(inbox_key.to_vec())]).await?;
        rows.iter().map(|row| Ok((row.int(0)?, row.text(1)?))).collect()
    }

    /// When the oldest row of a pipeline was received.
    pub async fn oldest_received(&self, pipeline: &str) -> Result<Option<String>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {} FROM countersign_inbox WHERE pipeline = {}",
            time_text(dialect, "MIN(received_at)"),
            dialect.placeholder(0)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(None), |row| row.opt_text(0))
    }

    /// The message of this key, if it is set aside, and whether it stands first in its queue. Without `queues` each does;
    /// the tables of version 1 have none.
    pub async fn waiting(&self, key: &[u8], queues: bool) -> Result<Option<(Waiting, bool)>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {}, CASE WHEN {} THEN 'first' ELSE 'behind' END FROM countersign_inbox w \
             WHERE inbox_key = {} AND status = 'WAITING'",
            waiting_columns(dialect),
            if queues { HEADS } else { "TRUE" },
            dialect.placeholder(0)
        );
        let rows = self.read(&sql, vec![Bind::Bytes(key.to_vec())]).await?;
        rows.first().map(|row| Ok((waiting(row)?, row.text(7)? == "first"))).transpose()
    }

    /// The keys of messages set aside whose time has come, the oldest first. With `queues` only those that stand first in
    /// the queue of their key.
    pub async fn due_waiting(&self, pipeline: &str, queues: bool, limit: i64) -> Result<Vec<Vec<u8>>, StoreError> {
        let dialect = self.dialect();
        let now = dialect.now();
        let sql = format!(
            "SELECT inbox_key FROM countersign_inbox w \
             WHERE pipeline = {} AND status = 'WAITING' AND next_try_at <= {now} AND {} \
             ORDER BY next_try_at LIMIT {limit}",
            dialect.placeholder(0),
            if queues { HEADS } else { "TRUE" },
        );
        self.read(&sql, vec![Bind::text(pipeline)]).await?.iter().map(|row| row.bytes(0)).collect()
    }
}

fn waiting_columns(dialect: Dialect) -> String {
    let int = dialect.bigint();
    let received_at = time_text(dialect, "received_at");
    format!(
        "inbox_key, waiting_record, CAST(attempts AS {int}), attempt_token, {received_at}, correlation_id, source_app"
    )
}

fn waiting(row: &StoreRow) -> Result<Waiting, StoreError> {
    Ok(Waiting {
        key: row.bytes(0)?,
        record: row.bytes(1)?,
        attempts: row.int(2)?,
        token: row.int(3)?,
        received_at: row.text(4)?,
        correlation_id: row.opt_text(5)?,
        source_app: row.opt_text(6)?,
    })
}

const POSTPONE: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET next_try_at = now() + $1 * interval '1 millisecond' \
        WHERE inbox_key = $2 AND status = 'WAITING' AND attempt_token = $3",
    mysql: "UPDATE countersign_inbox SET next_try_at = DATE_ADD(UTC_TIMESTAMP(6), INTERVAL ? * 1000 MICROSECOND) \
        WHERE inbox_key = ? AND status = 'WAITING' AND attempt_token = ?",
    sqlite: "UPDATE countersign_inbox SET next_try_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (? / 1000.0) || ' seconds') \
        WHERE inbox_key = ? AND status = 'WAITING' AND attempt_token = ?",
};

impl Store {
    /// Looks at a waiting message later, without counting a try.
    pub async fn postpone(&self, waiting: &Waiting, delay_ms: i64) -> Result<(), StoreError> {
        let binds = vec![Bind::Int(delay_ms), Bind::Bytes(waiting.key.clone()), Bind::Int(waiting.token)];
        self.write(POSTPONE.of(self.dialect()), binds).await.map(drop)
    }
}

/// Takes a waiting row for one try: compares the attempt, so that two sweepers cannot both have it.
const TAKE_WAITING: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET attempt_token = $1 \
        WHERE inbox_key = $2 AND status = 'WAITING' AND attempt_token = $3 AND attempts = CAST($4 AS integer)",
    mysql: "UPDATE countersign_inbox SET attempt_token = ? \
        WHERE inbox_key = ? AND status = 'WAITING' AND attempt_token = ? AND attempts = ?",
    sqlite: "UPDATE countersign_inbox SET attempt_token = ? \
        WHERE inbox_key = ? AND status = 'WAITING' AND attempt_token = ? AND attempts = ?",
};

impl Tx {
    /// Locks a waiting row for this attempt; false if another one has it or had it.
    pub async fn take_waiting(&mut self, waiting: &Waiting, token: i64) -> Result<bool, StoreError> {
        let binds = vec![
            Bind::Int(token),
            Bind::Bytes(waiting.key.clone()),
            Bind::Int(waiting.token),
            Bind::Int(waiting.attempts),
        ];
        Ok(self.execute(TAKE_WAITING.of(self.dialect()), binds).await? == 1)
    }
}
