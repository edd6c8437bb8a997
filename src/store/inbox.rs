//! The inbox: one row a message, and the proof of its effect.

use super::bind::{any_of, cut};
use super::meta::{instant_ms, purge_horizon, time_bind};
use super::{Bind, Dialect, Sql, StoreError, StoreRow, Tx};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Processing,
    Waiting,
    Success,
    Failed,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Waiting => "WAITING",
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        Ok(match text {
            "PROCESSING" => Self::Processing,
            "WAITING" => Self::Waiting,
            "SUCCESS" => Self::Success,
            "FAILED" => Self::Failed,
            _ => return Err(StoreError::Unexpected("unknown inbox status".to_owned())),
        })
    }
}

/// What all rows of one batch have in common.
#[derive(Clone, Debug)]
pub struct BatchHead<'a> {
    pub pipeline: &'a str,
    pub topic: &'a str,
    pub partition: i32,
    /// Random per attempt: a row that carries it was inserted by this very transaction.
    pub token: i64,
    /// The database's clock, from the fence.
    pub now: &'a str,
}

/// A row to insert if its key is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRow<'a> {
    pub key: &'a [u8],
    pub scope: &'a str,
    pub route: &'a str,
    pub message_id: Option<&'a str>,
    pub status: Status,
    pub code: Option<&'a str>,
    pub reason: Option<&'a str>,
    pub digest: Option<&'a str>,
    pub correlation_id: Option<&'a str>,
    pub source_app: Option<&'a str>,
    pub receipt_key: &'a str,
    pub offset: i64,
    pub source_instance: Option<&'a str>,
}

/// What the inbox knows of a key, as far as a batch needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub key: Vec<u8>,
    pub message_id: Option<String>,
    pub status: Status,
    pub digest: Option<String>,
    pub token: i64,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    /// Milliseconds since 1970 by the database's clock.
    pub received_ms: i64,
}

/// What the inbox knows of the keys that it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// None if the insert said that all of them were new.
    pub rows: Option<Vec<Seen>>,
    /// What was received before may have been purged: whoever is older and seems new cannot be proved to be. In
    /// milliseconds since 1970; None while nothing was purged yet.
    pub horizon_ms: Option<i64>,
}

/// A message's final or intermediate state.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict<'a> {
    pub status: Status,
    pub code: Option<&'a str>,
    pub reason: Option<&'a str>,
}

const COLUMNS: usize = 19;

const INSERT_PG: &str = "INSERT INTO countersign_inbox \
    (inbox_key, scope, route, message_id, status, code, reason, digest, correlation_id, source_app, receipt_key, \
     kafka_offset, source_instance, pipeline, topic, kafka_partition, attempt_token, received_at, finished_at) \
    SELECT u.*, $14, $15, CAST($16 AS integer), $17, CAST($18 AS timestamptz), \
     CASE WHEN u.status IN ('SUCCESS', 'FAILED') THEN CAST($18 AS timestamptz) END \
    FROM unnest(CAST($1 AS bytea[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS text[]), \
     CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS text[]), CAST($9 AS text[]), CAST($10 AS text[]), \
     CAST($11 AS text[]), CAST($12 AS bigint[]), CAST($13 AS text[])) \
     AS u(inbox_key, scope, route, message_id, status, code, reason, digest, correlation_id, source_app, receipt_key, \
     kafka_offset, source_instance) \
    ON CONFLICT (inbox_key) DO NOTHING";

const INSERT_ROWS: &str = "INSERT INTO countersign_inbox \
    (inbox_key, scope, route, message_id, status, code, reason, digest, correlation_id, source_app, receipt_key, \
     kafka_offset, source_instance, pipeline, topic, kafka_partition, attempt_token, received_at, finished_at) VALUES ";

/// `INSERT IGNORE` would hide every other fault with the duplicate.
const IF_ABSENT: Sql = Sql {
    postgres: "",
    mysql: " ON DUPLICATE KEY UPDATE inbox_key = inbox_key",
    sqlite: " ON CONFLICT (inbox_key) DO NOTHING",
};

const FINISH: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET status = $1, code = $2, reason = $3, finished_at = CAST($4 AS timestamptz), \
        waiting_record = NULL, next_try_at = NULL WHERE inbox_key = $5",
    mysql: "UPDATE countersign_inbox SET status = ?, code = ?, reason = ?, finished_at = ?, \
        waiting_record = NULL, next_try_at = NULL WHERE inbox_key = ?",
    sqlite: "UPDATE countersign_inbox SET status = ?, code = ?, reason = ?, finished_at = ?, \
        waiting_record = NULL, next_try_at = NULL WHERE inbox_key = ?",
};

const SET_ASIDE: Sql = Sql {
    postgres: "UPDATE countersign_inbox SET status = 'WAITING', code = $1, reason = $2, finished_at = NULL, \
        waiting_record = $3, attempts = CAST($4 AS integer), \
        next_try_at = CAST($5 AS timestamptz) + $6 * interval '1 millisecond' WHERE inbox_key = $7",
    mysql: "UPDATE countersign_inbox SET status = 'WAITING', code = ?, reason = ?, finished_at = NULL, \
        waiting_record = ?, attempts = ?, next_try_at = DATE_ADD(?, INTERVAL ? * 1000 MICROSECOND) WHERE inbox_key = ?",
    sqlite: "UPDATE countersign_inbox SET status = 'WAITING', code = ?, reason = ?, finished_at = NULL, \
        waiting_record = ?, attempts = ?, \
        next_try_at = strftime('%Y-%m-%dT%H:%M:%fZ', ?, (? / 1000.0) || ' seconds') WHERE inbox_key = ?",
};

impl Tx {
    /// Inserts the rows whose keys are absent and tells what the inbox knows of these keys.
    pub async fn record_inbox(&mut self, head: &BatchHead<'_>, rows: &[NewRow<'_>]) -> Result<Known, StoreError> {
        let inserted = self.insert_inbox(head, rows).await?;
        // MySQL counts a row that is there like one that is new.
        if self.dialect() != Dialect::MySql && inserted == rows.len() as u64 {
            let horizon_ms = if rows.is_empty() { None } else { self.purge_horizon(head.pipeline).await? };
            return Ok(Known { rows: None, horizon_ms });
        }
        let keys: Vec<&[u8]> = rows.iter().map(|row| row.key).collect();
        self.read_inbox(head.pipeline, &keys).await
    }

    /// The rows must have different keys and be sorted by them: two batches that meet then wait for each other instead of
    /// locking each other out. The answer counts the rows that were inserted; on MySQL also those that were there.
    async fn insert_inbox(&mut self, head: &BatchHead<'_>, rows: &[NewRow<'_>]) -> Result<u64, StoreError> {
        debug_assert!(rows.is_sorted_by(|a, b| a.key < b.key), "rows are sorted and their keys differ");
        if rows.is_empty() {
            return Ok(0);
        }
        let dialect = self.dialect();
        if dialect == Dialect::Postgres {
            return self.execute(INSERT_PG, arrays(head, rows)).await;
        }
        let mut inserted = 0;
        let rows: Vec<_> = rows.iter().map(|row| row_binds(dialect, head, row)).collect();
        for chunk in cut(rows, dialect.max_binds() / COLUMNS, self.statement_bytes()) {
            let sql = format!("{INSERT_ROWS}{}{}", dialect.value_rows(chunk.len(), COLUMNS), IF_ABSENT.of(dialect));
            inserted += self.execute(&sql, chunk.into_iter().flatten().collect()).await?;
        }
        Ok(inserted)
    }

    /// Reads what the inbox knows of these keys. A statement of its own, for the insert sees no row that a rival
    /// committed meanwhile.
    ///
    /// The purge horizon is read here and not with the fence: a purge that commits between the fence and the insert
    /// has raised it, and a row that the insert found gone must be held against no older one.
    async fn read_inbox(&mut self, pipeline: &str, keys: &[&[u8]]) -> Result<Known, StoreError> {
        let dialect = self.dialect();
        let (mut rows, mut horizon_ms) = (Vec::with_capacity(keys.len()), None);
        let horizon = purge_horizon(pipeline);
        for chunk in keys.chunks(dialect.max_binds() - 1) {
            let int = dialect.bigint();
            let received = dialect.since_1970("received_at");
            let columns = format!(
                "inbox_key, message_id, status, digest, attempt_token, topic, CAST(kafka_partition AS {int}), \
                 kafka_offset, {received}, (SELECT value FROM countersign_meta WHERE name = {})",
                dialect.placeholder(0)
            );
            let mut binds = vec![Bind::text(&horizon)];
            let keys = any_of(dialect, &mut binds, chunk);
            let sql = format!("SELECT {columns} FROM countersign_inbox WHERE inbox_key {keys}");
            for row in self.fetch(&sql, binds).await? {
                if horizon_ms.is_none() {
                    horizon_ms = row.opt_text(9)?.as_deref().map(instant_ms).transpose()?;
                }
                rows.push(seen_row(&row)?);
            }
        }
        Ok(Known { rows: Some(rows), horizon_ms })
    }

    async fn purge_horizon(&mut self, pipeline: &str) -> Result<Option<i64>, StoreError> {
        let sql = format!("SELECT value FROM countersign_meta WHERE name = {}", self.dialect().placeholder(0));
        let rows = self.fetch(&sql, vec![Bind::Text(purge_horizon(pipeline))]).await?;
        rows.first().map(|row| instant_ms(&row.text(0)?)).transpose()
    }

    /// Writes the state of a row that this transaction inserted or holds.
    pub async fn finish_inbox(&mut self, key: &[u8], verdict: &Verdict<'_>, now: &str) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let binds = vec![
            Bind::text(verdict.status.as_str()),
            Bind::opt_text(verdict.code),
            Bind::opt_text(verdict.reason),
            time_bind(dialect, now),
            Bind::Bytes(key.to_vec()),
        ];
        self.execute(FINISH.of(dialect), binds).await.map(drop)
    }

    /// Sets a message aside with all that is needed to finish it.
    pub async fn set_aside(
        &mut self,
        key: &[u8],
        (code, reason): (&str, &str),
        record: Vec<u8>,
        attempts: i64,
        (now, delay_ms): (&str, i64),
    ) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let binds = vec![
            Bind::text(code),
            Bind::text(reason),
            Bind::Bytes(record),
            Bind::Int(attempts),
            time_bind(dialect, now),
            Bind::Int(delay_ms),
            Bind::Bytes(key.to_vec()),
        ];
        self.execute(SET_ASIDE.of(dialect), binds).await.map(drop)
    }
}

fn arrays(head: &BatchHead<'_>, rows: &[NewRow<'_>]) -> Vec<Bind> {
    let texts = |field: fn(&NewRow<'_>) -> Option<String>| Bind::Texts(rows.iter().map(field).collect());
    vec![
        Bind::Blobs(rows.iter().map(|row| Some(row.key.to_vec())).collect()),
        texts(|row| Some(row.scope.to_owned())),
        texts(|row| Some(row.route.to_owned())),
        texts(|row| row.message_id.map(str::to_owned)),
        texts(|row| Some(row.status.as_str().to_owned())),
        texts(|row| row.code.map(str::to_owned)),
        texts(|row| row.reason.map(str::to_owned)),
        texts(|row| row.digest.map(str::to_owned)),
        texts(|row| row.correlation_id.map(str::to_owned)),
        texts(|row| row.source_app.map(str::to_owned)),
        texts(|row| Some(row.receipt_key.to_owned())),
        Bind::Ints(rows.iter().map(|row| Some(row.offset)).collect()),
        texts(|row| row.source_instance.map(str::to_owned)),
        Bind::text(head.pipeline),
        Bind::text(head.topic),
        Bind::Int(i64::from(head.partition)),
        Bind::Int(head.token),
        Bind::text(head.now),
    ]
}

fn row_binds(dialect: Dialect, head: &BatchHead<'_>, row: &NewRow<'_>) -> [Bind; COLUMNS] {
    let finished = match row.status {
        Status::Success | Status::Failed => time_bind(dialect, head.now),
        Status::Processing | Status::Waiting => Bind::Null,
    };
    [
        Bind::Bytes(row.key.to_vec()),
        Bind::text(row.scope),
        Bind::text(row.route),
        Bind::opt_text(row.message_id),
        Bind::text(row.status.as_str()),
        Bind::opt_text(row.code),
        Bind::opt_text(row.reason),
        Bind::opt_text(row.digest),
        Bind::opt_text(row.correlation_id),
        Bind::opt_text(row.source_app),
        Bind::text(row.receipt_key),
        Bind::Int(row.offset),
        Bind::opt_text(row.source_instance),
        Bind::text(head.pipeline),
        Bind::text(head.topic),
        Bind::Int(i64::from(head.partition)),
        Bind::Int(head.token),
        time_bind(dialect, head.now),
        finished,
    ]
}

fn seen_row(row: &StoreRow) -> Result<Seen, StoreError> {
    Ok(Seen {
        key: row.bytes(0)?,
        message_id: row.opt_text(1)?,
        status: Status::parse(&row.text(2)?)?,
        digest: row.opt_text(3)?,
        token: row.int(4)?,
        topic: row.text(5)?,
        partition: row.int(6)?,
        offset: row.int(7)?,
        received_ms: row.int(8)?,
    })
}
