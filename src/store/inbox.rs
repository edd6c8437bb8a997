//! The inbox: one row a message, and the proof of its effect.

use super::bind::{Array, by_keys, cut};
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

/// What the rows of a batch mostly have in common.
const SHARED: [&str; 7] = ["scope", "route", "status", "code", "reason", "source_app", "source_instance"];

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
            let horizon = if rows.is_empty() { None } else { self.meta(&purge_horizon(head.pipeline)).await? };
            return Ok(Known { rows: None, horizon_ms: horizon.as_deref().map(instant_ms).transpose()? });
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
            let first = shared(&rows[0]);
            let alike = rows.iter().all(|row| shared(row) == first);
            return self.execute(&insert_pg(alike), arrays(head, rows, alike)).await;
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
            let from = by_keys(dialect, &mut binds, ("countersign_inbox", "inbox_key"), "", chunk, false);
            let sql = format!("SELECT {columns} {from}");
            for row in self.fetch(&sql, binds).await? {
                if horizon_ms.is_none() {
                    horizon_ms = row.opt_text(9)?.as_deref().map(instant_ms).transpose()?;
                }
                rows.push(seen_row(&row)?);
            }
        }
        Ok(Known { rows: Some(rows), horizon_ms })
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

fn shared<'a>(row: &NewRow<'a>) -> [Option<&'a str>; SHARED.len()] {
    let status = Some(row.status.as_str());
    [Some(row.scope), Some(row.route), status, row.code, row.reason, row.source_app, row.source_instance]
}

/// What is the same in all rows is sent once: every array costs the server as much as a column that it writes.
fn insert_pg(alike: bool) -> String {
    let places = (6..).take(SHARED.len());
    let each = |of: fn(usize, &str) -> String| places.clone().zip(SHARED).map(move |(n, name)| of(n, name));
    let (arrays, names, values): (String, String, Vec<String>) = if alike {
        (String::new(), String::new(), each(|n, _| format!("CAST(${n} AS text)")).collect())
    } else {
        let arrays = each(|n, _| format!(", CAST(${n} AS text[])")).collect();
        (arrays, each(|_, name| format!(", {name}")).collect(), each(|_, name| format!("u.{name}")).collect())
    };
    let (status, values) = (&values[2], values.join(", "));
    format!(
        "INSERT INTO countersign_inbox (inbox_key, message_id, digest, correlation_id, receipt_key, kafka_offset, {}, \
         pipeline, topic, kafka_partition, attempt_token, received_at, finished_at) \
         SELECT u.inbox_key, u.message_id, u.digest, u.correlation_id, COALESCE(u.correlation_id, u.message_id, ''), \
         u.kafka_offset, {values}, $13, $14, CAST($15 AS integer), $16, CAST($17 AS timestamptz), \
         CASE WHEN {status} IN ('SUCCESS', 'FAILED') THEN CAST($17 AS timestamptz) END \
         FROM unnest(CAST($1 AS bytea[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), \
         CAST($5 AS bigint[]){arrays}) AS u(inbox_key, message_id, digest, correlation_id, kafka_offset{names}) \
         ON CONFLICT (inbox_key) DO NOTHING",
        SHARED.join(", ")
    )
}

fn arrays(head: &BatchHead<'_>, rows: &[NewRow<'_>], alike: bool) -> Vec<Bind> {
    fn texts<'r, 'a>(rows: &'r [NewRow<'a>], field: impl Fn(&'r NewRow<'a>) -> Option<&'a str>) -> Bind {
        Bind::Array(Array::texts(rows.iter().map(field)))
    }
    let mut binds = vec![
        Bind::Array(Array::blobs(rows.iter().map(|row| Some(row.key)))),
        texts(rows, |row| row.message_id),
        texts(rows, |row| row.digest),
        texts(rows, |row| row.correlation_id),
        Bind::Array(Array::ints(rows.iter().map(|row| row.offset))),
    ];
    if alike {
        binds.extend(shared(&rows[0]).map(Bind::opt_text));
    } else {
        binds.extend((0..SHARED.len()).map(|n| texts(rows, |row| shared(row)[n])));
    }
    binds.extend([
        Bind::text(head.pipeline),
        Bind::text(head.topic),
        Bind::Int(i64::from(head.partition)),
        Bind::Int(head.token),
        Bind::text(head.now),
    ]);
    binds
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
        Bind::text(row.correlation_id.or(row.message_id).unwrap_or_default()),
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
