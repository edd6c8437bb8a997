//! Dead letters: records that were parked, with all that came.

use super::meta::{time_bind, time_text};
use super::{Bind, Dialect, Sql, Store, StoreError, StoreRow, Tx};

/// A record to park.
#[derive(Clone, Debug, PartialEq)]
pub struct NewDeadLetter<'a> {
    /// 32 bytes that are the same for the same fault of the same record: it is parked once.
    pub dead_letter_key: [u8; 32],
    pub pipeline: &'a str,
    pub route: Option<&'a str>,
    pub inbox_key: &'a [u8],
    pub message_id: Option<&'a str>,
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: Option<i64>,
    /// `poison`, `conflict`, `retries`, `operator`.
    pub class: &'a str,
    pub code: &'a str,
    pub reason: &'a str,
    pub digest: Option<&'a str>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Encoded headers; see `record`.
    pub headers: Vec<u8>,
    pub attempts: i64,
}

/// A dead letter without its bytes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    pub id: i64,
    pub message_id: Option<String>,
    pub route: Option<String>,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    pub class: String,
    pub code: String,
    pub reason: String,
    pub status: String,
    pub attempts: i64,
    pub created_at: String,
    pub updated_at: String,
}

/// A dead letter with its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterRecord {
    pub letter: DeadLetter,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<u8>,
}

/// Which dead letters to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<String>,
    pub topic: Option<String>,
    pub code: Option<String>,
    pub message_id: Option<String>,
    pub inbox_key: Option<Vec<u8>>,
    /// Only ids above.
    pub after: i64,
    pub limit: i64,
}

const INSERT: Sql = Sql {
    postgres: "INSERT INTO countersign_dead_letters (dead_letter_key, pipeline, route, inbox_key, message_id, topic, \
        kafka_partition, kafka_offset, kafka_timestamp, class, code, reason, status, digest, record_key, record_value, \
        headers, attempts, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS integer), $8, \
        CAST($9 AS bigint), $10, $11, $12, 'open', $13, CAST($14 AS bytea), CAST($15 AS bytea), $16, CAST($17 AS integer), \
        CAST($18 AS timestamptz), CAST($19 AS timestamptz)) ON CONFLICT (dead_letter_key) DO NOTHING",
    mysql: "INSERT INTO countersign_dead_letters (dead_letter_key, pipeline, route, inbox_key, message_id, topic, \
        kafka_partition, kafka_offset, kafka_timestamp, class, code, reason, status, digest, record_key, record_value, \
        headers, attempts, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?, ?, ?, ?, ?) \
        ON DUPLICATE KEY UPDATE id = id",
    sqlite: "INSERT INTO countersign_dead_letters (dead_letter_key, pipeline, route, inbox_key, message_id, topic, \
        kafka_partition, kafka_offset, kafka_timestamp, class, code, reason, status, digest, record_key, record_value, \
        headers, attempts, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?, ?, ?, ?, ?) \
        ON CONFLICT (dead_letter_key) DO NOTHING",
};

/// Tells a row of ours from one that stood there: `ON DUPLICATE KEY UPDATE` counts matched rows on MySQL.
const EXISTS: Sql = Sql {
    postgres: "SELECT 1 FROM countersign_dead_letters WHERE dead_letter_key = $1",
    mysql: "SELECT 1 FROM countersign_dead_letters WHERE dead_letter_key = ? FOR UPDATE",
    sqlite: "SELECT 1 FROM countersign_dead_letters WHERE dead_letter_key = ?",
};

impl Tx {
    /// How many other contents of this id were parked as conflicts.
    pub async fn count_conflicts(&mut self, inbox_key: &[u8]) -> Result<i64, StoreError> {
        let sql = format!(
            "SELECT COUNT(*) FROM countersign_dead_letters WHERE inbox_key = {} AND class = 'conflict'",
            self.dialect().placeholder(0)
        );
        let rows = self.fetch(&sql, vec![Bind::Bytes(inbox_key.to_vec())]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    /// Parks a record; false if this fault of it is parked already.
    pub async fn park(&mut self, letter: &NewDeadLetter<'_>, now: &str) -> Result<bool, StoreError> {
        let dialect = self.dialect();
        if dialect == Dialect::MySql {
            let key = vec![Bind::Bytes(letter.dead_letter_key.to_vec())];
            if !self.fetch(EXISTS.of(dialect), key).await?.is_empty() {
                return Ok(false);
            }
        }
        let binds = vec![
            Bind::Bytes(letter.dead_letter_key.to_vec()),
            Bind::text(letter.pipeline),
            Bind::opt_text(letter.route),
            Bind::Bytes(letter.inbox_key.to_vec()),
            Bind::opt_text(letter.message_id),
            Bind::text(letter.topic),
            Bind::Int(i64::from(letter.partition)),
            Bind::Int(letter.offset),
            Bind::opt_int(letter.timestamp_ms),
            Bind::text(letter.class),
            Bind::text(letter.code),
            Bind::text(letter.reason),
            Bind::opt_text(letter.digest),
            Bind::opt_bytes(letter.key),
            Bind::opt_bytes(letter.value),
            Bind::Bytes(letter.headers.clone()),
            Bind::Int(letter.attempts),
            time_bind(dialect, now),
            time_bind(dialect, now),
        ];
        Ok(self.execute(INSERT.of(dialect), binds).await? > 0)
    }
}

fn columns(dialect: Dialect) -> String {
    let int = if dialect == Dialect::MySql { "SIGNED" } else { "bigint" };
    format!(
        "id, message_id, route, topic, CAST(kafka_partition AS {int}), kafka_offset, class, code, reason, status, \
         CAST(attempts AS {int}), {}, {}",
        time_text(dialect, "created_at"),
        time_text(dialect, "updated_at"),
    )
}

fn letter(row: &StoreRow) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        id: row.int(0)?,
        message_id: row.opt_text(1)?,
        route: row.opt_text(2)?,
        topic: row.text(3)?,
        partition: row.int(4)?,
        offset: row.int(5)?,
        class: row.text(6)?,
        code: row.text(7)?,
        reason: row.text(8)?,
        status: row.text(9)?,
        attempts: row.int(10)?,
        created_at: row.text(11)?,
        updated_at: row.text(12)?,
    })
}

impl Store {
    pub async fn dead_letters(&self, pipeline: &str, filter: &Filter) -> Result<Vec<DeadLetter>, StoreError> {
        let dialect = self.dialect();
        let mut binds = vec![Bind::text(pipeline), Bind::Int(filter.after)];
        let mut sql = format!(
            "SELECT {} FROM countersign_dead_letters WHERE pipeline = {} AND id > {}",
            columns(dialect),
            dialect.placeholder(0),
            dialect.placeholder(1)
        );
        let mut and = |column: &str, bind: Option<Bind>| {
            if let Some(bind) = bind {
                sql.push_str(&format!(" AND {column} = {}", dialect.placeholder(binds.len())));
                binds.push(bind);
            }
        };
        and("status", filter.status.as_deref().map(Bind::text));
        and("topic", filter.topic.as_deref().map(Bind::text));
        and("code", filter.code.as_deref().map(Bind::text));
        and("message_id", filter.message_id.as_deref().map(Bind::text));
        and("inbox_key", filter.inbox_key.clone().map(Bind::Bytes));
        sql.push_str(&format!(" ORDER BY id LIMIT {}", filter.limit));
        self.read(&sql, binds).await?.iter().map(letter).collect()
    }

    pub async fn dead_letter(&self, pipeline: &str, id: i64) -> Result<Option<DeadLetterRecord>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {}, kafka_timestamp, record_key, record_value, headers FROM countersign_dead_letters \
             WHERE pipeline = {} AND id = {}",
            columns(dialect),
            dialect.placeholder(0),
            dialect.placeholder(1)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), Bind::Int(id)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(DeadLetterRecord {
            letter: letter(row)?,
            timestamp_ms: row.opt_int(13)?,
            key: row.opt_bytes(14)?,
            value: row.opt_bytes(15)?,
            headers: row.opt_bytes(16)?.unwrap_or_default(),
        }))
    }

    pub async fn count_open_dead_letters(&self, pipeline: &str) -> Result<i64, StoreError> {
        let sql = format!(
            "SELECT COUNT(*) FROM countersign_dead_letters WHERE pipeline = {} AND status = 'open'",
            self.dialect().placeholder(0)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }
}
