//! Dead letters: records that were parked, with all that came.

use super::meta::{instant_text, time_bind, time_text};
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
    /// When it was parked, redriven or discarded last.
    pub updated_at: String,
    /// Who redrove or discarded it last, and what they said about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_why: Option<String>,
}

/// A dead letter with its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterRecord {
    pub letter: DeadLetter,
    pub inbox_key: Vec<u8>,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    /// As it came.
    pub value: Option<Vec<u8>>,
    pub headers: Vec<u8>,
    /// What the last redrive with another value put in its place.
    pub edited_value: Option<Vec<u8>>,
}

/// Where a dead letter stands among those of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub id: i64,
    pub message_id: Option<String>,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    /// The record's.
    pub key: Option<Vec<u8>>,
}

/// Which dead letters are meant: all parts must hold, and what is left out holds for all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub ids: Vec<i64>,
    pub status: Option<String>,
    pub class: Option<String>,
    pub code: Option<String>,
    pub route: Option<String>,
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub message_id: Option<String>,
    pub inbox_key: Option<Vec<u8>>,
    /// The record's key, byte for byte.
    pub key: Option<Vec<u8>>,
    /// Parked at or after this instant, and before that one.
    pub since: Option<jiff::Timestamp>,
    pub until: Option<jiff::Timestamp>,
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
    let int = dialect.bigint();
    format!(
        "id, message_id, route, topic, CAST(kafka_partition AS {int}), kafka_offset, class, code, reason, status, \
         CAST(attempts AS {int}), {}, {}, decided_by, decided_why",
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
        decided_by: row.opt_text(13)?,
        decided_why: row.opt_text(14)?,
    })
}

/// The condition of a filter and its binds.
fn condition(dialect: Dialect, pipeline: &str, filter: &Filter) -> (String, Vec<Bind>) {
    let mut binds = vec![Bind::text(pipeline), Bind::Int(filter.after)];
    let mut sql = format!("pipeline = {} AND id > {}", dialect.placeholder(0), dialect.placeholder(1));
    let mut and = |column: &str, relation: &str, bind: Option<Bind>| {
        if let Some(bind) = bind {
            let place = dialect.placeholder(binds.len());
            let place = match (dialect, column) {
                (Dialect::Postgres, "created_at") => format!("CAST({place} AS timestamptz)"),
                _ => place,
            };
            sql.push_str(&format!(" AND {column} {relation} {place}"));
            binds.push(bind);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Bind::text);
    let time = |time: Option<jiff::Timestamp>| Some(time_bind(dialect, &instant_text(dialect, time?)));
    and("status", "=", text(&filter.status));
    and("class", "=", text(&filter.class));
    and("code", "=", text(&filter.code));
    and("route", "=", text(&filter.route));
    and("topic", "=", text(&filter.topic));
    and("kafka_partition", "=", filter.partition.map(|partition| Bind::Int(i64::from(partition))));
    and("message_id", "=", text(&filter.message_id));
    and("inbox_key", "=", filter.inbox_key.clone().map(Bind::Bytes));
    and("record_key", "=", filter.key.clone().map(Bind::Bytes));
    and("created_at", ">=", time(filter.since));
    and("created_at", "<", time(filter.until));
    if !filter.ids.is_empty() {
        // Numbers of our own making stand for themselves.
        let ids: Vec<String> = filter.ids.iter().map(i64::to_string).collect();
        sql.push_str(&format!(" AND id IN ({})", ids.join(", ")));
    }
    (sql, binds)
}

impl Store {
    pub async fn dead_letters(&self, pipeline: &str, filter: &Filter) -> Result<Vec<DeadLetter>, StoreError> {
        let dialect = self.dialect();
        let (condition, binds) = condition(dialect, pipeline, filter);
        let sql = format!(
            "SELECT {} FROM countersign_dead_letters WHERE {condition} ORDER BY id LIMIT {}",
            columns(dialect),
            filter.limit
        );
        self.read(&sql, binds).await?.iter().map(letter).collect()
    }

    /// The same in the order of their records, without what is said about them.
    pub async fn dead_letter_places(&self, pipeline: &str, filter: &Filter) -> Result<Vec<Place>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let (condition, binds) = condition(dialect, pipeline, filter);
        let sql = format!(
            "SELECT id, message_id, topic, CAST(kafka_partition AS {int}), kafka_offset, record_key \
             FROM countersign_dead_letters WHERE {condition} \
             ORDER BY topic, kafka_partition, kafka_offset, id LIMIT {}",
            filter.limit
        );
        let place = |row: &StoreRow| {
            Ok(Place {
                id: row.int(0)?,
                message_id: row.opt_text(1)?,
                topic: row.text(2)?,
                partition: row.int(3)?,
                offset: row.int(4)?,
                key: row.opt_bytes(5)?,
            })
        };
        self.read(&sql, binds).await?.iter().map(place).collect()
    }

    pub async fn dead_letter(&self, pipeline: &str, id: i64) -> Result<Option<DeadLetterRecord>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT {}, kafka_timestamp, record_key, record_value, headers, inbox_key, edited_value \
             FROM countersign_dead_letters WHERE pipeline = {} AND id = {}",
            columns(dialect),
            dialect.placeholder(0),
            dialect.placeholder(1)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), Bind::Int(id)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(DeadLetterRecord {
            letter: letter(row)?,
            timestamp_ms: row.opt_int(15)?,
            key: row.opt_bytes(16)?,
            value: row.opt_bytes(17)?,
            headers: row.opt_bytes(18)?.unwrap_or_default(),
            inbox_key: row.bytes(19)?,
            edited_value: row.opt_bytes(20)?,
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
