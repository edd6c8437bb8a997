//! What an operator's decision on a dead letter writes: the inbox row's next version, and the letter's own end.

use super::inbox::Verdict;
use super::inbox_entries::{InboxEntry, entry, entry_columns};
use super::meta::time_bind;
use super::{Bind, Dialect, Sql, Store, StoreError, Tx};

/// The answer to a redrive, as its inbox row keeps it.
#[derive(Clone, Debug)]
pub struct NextVersion<'a> {
    pub verdict: Verdict<'a>,
    /// Of the content that was applied; None leaves what is there.
    pub content: Option<Content<'a>>,
    /// Random per attempt: tells after a cut commit whether it was this one.
    pub token: i64,
}

/// What is known of a message's content.
#[derive(Clone, Debug)]
pub struct Content<'a> {
    pub route: &'a str,
    pub digest: &'a str,
    pub correlation_id: Option<&'a str>,
    pub source_app: Option<&'a str>,
}

/// What becomes of a dead letter.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// `open`, if the redrive was of no avail.
    pub status: &'a str,
    /// The newest code and reason; None leaves those with which it was parked.
    pub fault: Option<(&'a str, &'a str)>,
    pub edited_value: Option<&'a [u8]>,
    pub by: &'a str,
    pub why: Option<&'a str>,
}

/// A correlation id that a receipt had stays: receipts of one call have one key.
const NEXT_VERSION: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET status = $1, code = $2, reason = $3, route = COALESCE($4, route), \
        digest = COALESCE($5, digest), correlation_id = COALESCE(correlation_id, $6), source_app = COALESCE(source_app, $7), \
        attempt_token = $8, finished_at = CAST($9 AS timestamptz), version = version + 1, attempts = attempts + 1 \
        WHERE inbox_key = $10 AND status = 'FAILED'",
    mysql: "UPDATE countersign_inbox SET status = ?, code = ?, reason = ?, route = COALESCE(?, route), \
        digest = COALESCE(?, digest), correlation_id = COALESCE(correlation_id, ?), source_app = COALESCE(source_app, ?), \
        attempt_token = ?, finished_at = ?, version = version + 1, attempts = attempts + 1 \
        WHERE inbox_key = ? AND status = 'FAILED'",
    sqlite: "UPDATE countersign_inbox SET status = ?, code = ?, reason = ?, route = COALESCE(?, route), \
        digest = COALESCE(?, digest), correlation_id = COALESCE(correlation_id, ?), source_app = COALESCE(source_app, ?), \
        attempt_token = ?, finished_at = ?, version = version + 1, attempts = attempts + 1 \
        WHERE inbox_key = ? AND status = 'FAILED'",
};

const DECIDE: Sql = Sql {
    postgres: "UPDATE countersign_dead_letters SET status = $1, code = COALESCE($2, code), reason = COALESCE($3, reason), \
        edited_value = COALESCE(CAST($4 AS bytea), edited_value), decided_by = $5, decided_why = $6, \
        updated_at = CAST($7 AS timestamptz), attempts = attempts + 1 WHERE id = $8 AND status = 'open'",
    mysql: "UPDATE countersign_dead_letters SET status = ?, code = COALESCE(?, code), reason = COALESCE(?, reason), \
        edited_value = COALESCE(?, edited_value), decided_by = ?, decided_why = ?, updated_at = ?, attempts = attempts + 1 \
        WHERE id = ? AND status = 'open'",
    sqlite: "UPDATE countersign_dead_letters SET status = ?, code = COALESCE(?, code), reason = COALESCE(?, reason), \
        edited_value = COALESCE(?, edited_value), decided_by = ?, decided_why = ?, updated_at = ?, attempts = attempts + 1 \
        WHERE id = ? AND status = 'open'",
};

const DISCARD: Sql = Sql {
    postgres: "UPDATE countersign_dead_letters SET status = 'discarded', decided_by = $1, decided_why = $2, \
        updated_at = now() WHERE pipeline = $3 AND id = $4 AND status = 'open'",
    mysql: "UPDATE countersign_dead_letters SET status = 'discarded', decided_by = ?, decided_why = ?, \
        updated_at = UTC_TIMESTAMP(6) WHERE pipeline = ? AND id = ? AND status = 'open'",
    sqlite: "UPDATE countersign_dead_letters SET status = 'discarded', decided_by = ?, decided_why = ?, \
        updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE pipeline = ? AND id = ? AND status = 'open'",
};

/// SQLite has one writer, and its transactions are that from their begin on.
fn for_update(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres | Dialect::MySql => " FOR UPDATE",
        Dialect::Sqlite => "",
    }
}

impl Tx {
    /// A whole inbox row, locked until the end of the transaction; None where there is none.
    pub async fn lock_inbox(&mut self, key: &[u8]) -> Result<Option<InboxEntry>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {} FROM countersign_inbox WHERE inbox_key = {}{}",
            entry_columns(dialect),
            dialect.placeholder(0),
            for_update(dialect)
        );
        self.fetch(&sql, vec![Bind::Bytes(key.to_vec())]).await?.first().map(entry).transpose()
    }

    /// The token of the attempt that wrote the row last. Waits for a transaction that holds it.
    pub async fn inbox_token(&mut self, key: &[u8]) -> Result<Option<i64>, StoreError> {
        let dialect = self.dialect();
        let (place, lock) = (dialect.placeholder(0), for_update(dialect));
        let sql = format!("SELECT attempt_token FROM countersign_inbox WHERE inbox_key = {place}{lock}");
        self.fetch(&sql, vec![Bind::Bytes(key.to_vec())]).await?.first().map(|row| row.int(0)).transpose()
    }

    /// Status and attempts of a dead letter, locked until the end of the transaction. After its inbox row: lanes take
    /// the two in this order.
    pub async fn lock_dead_letter(&mut self, id: i64) -> Result<Option<(String, i64)>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let (place, lock) = (dialect.placeholder(0), for_update(dialect));
        let sql =
            format!("SELECT status, CAST(attempts AS {int}) FROM countersign_dead_letters WHERE id = {place}{lock}");
        let rows = self.fetch(&sql, vec![Bind::Int(id)]).await?;
        rows.first().map(|row| Ok((row.text(0)?, row.int(1)?))).transpose()
    }

    /// Writes the next version of a FAILED row that this transaction holds.
    pub async fn next_version(&mut self, key: &[u8], next: &NextVersion<'_>, now: &str) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let content = next.content.as_ref();
        let binds = vec![
            Bind::text(next.verdict.status.as_str()),
            Bind::opt_text(next.verdict.code),
            Bind::opt_text(next.verdict.reason),
            Bind::opt_text(content.map(|content| content.route)),
            Bind::opt_text(content.map(|content| content.digest)),
            Bind::opt_text(content.and_then(|content| content.correlation_id)),
            Bind::opt_text(content.and_then(|content| content.source_app)),
            Bind::Int(next.token),
            time_bind(dialect, now),
            Bind::Bytes(key.to_vec()),
        ];
        match self.execute(NEXT_VERSION.of(dialect), binds).await? {
            1 => Ok(()),
            _ => Err(StoreError::Unexpected("a row that this transaction holds is FAILED no more".to_owned())),
        }
    }

    /// Writes what became of an open dead letter that this transaction holds.
    pub async fn decide(&mut self, id: i64, decision: &Decision<'_>, now: &str) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let binds = vec![
            Bind::text(decision.status),
            Bind::opt_text(decision.fault.map(|(code, _)| code)),
            Bind::opt_text(decision.fault.map(|(_, reason)| reason)),
            Bind::opt_bytes(decision.edited_value),
            Bind::text(decision.by),
            Bind::opt_text(decision.why),
            time_bind(dialect, now),
            Bind::Int(id),
        ];
        match self.execute(DECIDE.of(dialect), binds).await? {
            1 => Ok(()),
            _ => Err(StoreError::Unexpected("a dead letter that this transaction holds is open no more".to_owned())),
        }
    }
}

impl Store {
    /// Closes an open dead letter without applying it; false if it is not open, or not there.
    pub async fn discard(&self, pipeline: &str, id: i64, by: &str, why: &str) -> Result<bool, StoreError> {
        let binds = vec![Bind::text(by), Bind::text(why), Bind::text(pipeline), Bind::Int(id)];
        Ok(self.write(DISCARD.of(self.dialect()), binds).await? == 1)
    }
}
