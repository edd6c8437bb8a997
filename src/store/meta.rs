//! Facts about the store itself: schema version, store epoch, purge horizon.

use sha2::{Digest as _, Sha256};

use super::{Bind, Dialect, Sql, Store, StoreError, Tx};
use crate::debezium::render::hex;

/// The name of this store's life. A database that went back in time gets a new one, so that offsets and gate
/// marks of the lost future do not count.
pub const STORE_EPOCH: &str = "store_epoch";
/// Epochs that this store had before, newest first, parted by commas.
pub const FORMER_EPOCHS: &str = "former_epochs";
/// The epoch with which an operator said that this store was restored.
pub const ADOPTING_EPOCH: &str = "adopting_epoch";
pub const SCHEMA_VERSION: &str = "schema_version";

const GET: Sql = Sql {
    postgres: "SELECT value FROM countersign_meta WHERE name = $1",
    mysql: "SELECT value FROM countersign_meta WHERE name = ?",
    sqlite: "SELECT value FROM countersign_meta WHERE name = ?",
};
/// Any row that each store has would do, and this one is written once in the store's life.
const TURN: &str = "SELECT 1 FROM countersign_meta WHERE name = 'store_epoch' FOR UPDATE";
const PUT: Sql = Sql {
    postgres: "INSERT INTO countersign_meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    mysql: "INSERT INTO countersign_meta (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)",
    sqlite: "INSERT INTO countersign_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
};

/// The name of a fact about one pipeline: at most 64 bytes, however long the pipeline's name is.
pub fn of_pipeline(fact: &str, pipeline: &str) -> String {
    format!("{fact}:{}", hex(&Sha256::digest(pipeline)[..16]))
}

/// What was received before this instant may have been purged from the pipeline's inbox.
pub fn purge_horizon(pipeline: &str) -> String {
    of_pipeline("purge_horizon", pipeline)
}

/// The database's own clock, as `2026-11-30T01:02:03.123456Z`. Leases and windows use no other.
pub(super) fn clock(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => r#"to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"#,
        Dialect::MySql => "DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')",
        Dialect::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
    }
}

/// A timestamp column as text of that form.
pub(super) fn time_text(dialect: Dialect, column: &str) -> String {
    match dialect {
        Dialect::Postgres => format!(r#"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"#),
        Dialect::MySql => format!("DATE_FORMAT({column}, '%Y-%m-%dT%H:%i:%s.%fZ')"),
        Dialect::Sqlite => column.to_owned(),
    }
}

/// An instant in the form in which this database's columns show theirs, so that texts compare as times do.
pub(super) fn instant_text(dialect: Dialect, instant: jiff::Timestamp) -> String {
    let format = match dialect {
        Dialect::Postgres | Dialect::MySql => "%Y-%m-%dT%H:%M:%S.%6fZ",
        Dialect::Sqlite => "%Y-%m-%dT%H:%M:%S.%3fZ",
    };
    instant.strftime(format).to_string()
}

/// A time as the database shows it.
pub fn instant(text: &str) -> Result<jiff::Timestamp, StoreError> {
    text.parse().map_err(|_| StoreError::Unexpected("a time of the database is none".to_owned()))
}

pub(super) fn instant_ms(text: &str) -> Result<i64, StoreError> {
    instant(text).map(|instant| instant.as_millisecond())
}

/// Text of that form as a bind for a timestamp column; on Postgres the statement casts it.
pub(super) fn time_bind(dialect: Dialect, text: &str) -> Bind {
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => Bind::text(text),
        Dialect::MySql => Bind::Text(text.trim_end_matches('Z').replace('T', " ")),
    }
}

impl Store {
    /// What was said of this first: `value`, unless there is something already.
    pub async fn keep_first(&self, name: &str, value: &str) -> Result<String, StoreError> {
        let mut tx = self.begin().await?;
        tx.wait_for_turn().await?;
        if let Some(first) = tx.meta(name).await? {
            tx.rollback().await;
            return Ok(first);
        }
        tx.set_meta(name, value).await?;
        tx.commit().await?;
        Ok(value.to_owned())
    }

    pub async fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let rows = self.read(GET.of(self.dialect()), vec![Bind::text(name)]).await?;
        rows.first().map(|row| row.text(0)).transpose()
    }

    /// The database's clock.
    pub async fn now(&self) -> Result<String, StoreError> {
        let rows = self.read(&format!("SELECT {}", clock(self.dialect())), Vec::new()).await?;
        rows.first().ok_or_else(|| StoreError::Unexpected("no clock".to_owned()))?.text(0)
    }
}

impl Tx {
    /// The database's clock.
    pub async fn now(&mut self) -> Result<String, StoreError> {
        let rows = self.fetch(&format!("SELECT {}", clock(self.dialect())), Vec::new()).await?;
        rows.first().ok_or_else(|| StoreError::Unexpected("no clock".to_owned()))?.text(0)
    }

    pub async fn meta(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        let rows = self.fetch(GET.of(self.dialect()), vec![Bind::text(name)]).await?;
        rows.first().map(|row| row.text(0)).transpose()
    }

    /// From here to its end this transaction runs beside no other one that has said the same. After the fence: whoever
    /// holds the turn waits for no lane row.
    pub async fn wait_for_turn(&mut self) -> Result<(), StoreError> {
        match self.dialect() {
            Dialect::Postgres | Dialect::MySql => self.fetch(TURN, Vec::new()).await.map(drop),
            // One writer at a time.
            Dialect::Sqlite => Ok(()),
        }
    }

    pub async fn set_meta(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.execute(PUT.of(self.dialect()), vec![Bind::text(name), Bind::text(value)]).await.map(drop)
    }

    /// Gives the store a new epoch and remembers the old one. With `expected`, only if that is the epoch still: of
    /// several lanes that decide so at once, one renews. The answer is the epoch that holds. An expected epoch that this
    /// store does not know is an error: it went back since.
    pub async fn renew_store_epoch(&mut self, epoch: &str, expected: Option<&str>) -> Result<String, StoreError> {
        self.wait_for_turn().await?;
        let old = self.meta(STORE_EPOCH).await?;
        let former = self.meta(FORMER_EPOCHS).await?.unwrap_or_default();
        if let (Some(old), Some(expected)) = (&old, expected)
            && old != expected
        {
            if former.split(',').any(|epoch| epoch == expected) {
                return Ok(old.clone());
            }
            // Not renewed but forgotten: what was decided by that epoch does not hold for this state of the store.
            return Err(StoreError::Unexpected("the store went back while its epoch was to be renewed".to_owned()));
        }
        // An epoch that adopts the offsets of others hands that on: other lanes may still have some.
        if expected.is_some()
            && self.meta(ADOPTING_EPOCH).await?.is_some_and(|adopting| Some(&adopting) == old.as_ref())
        {
            self.set_meta(ADOPTING_EPOCH, epoch).await?;
        }
        let former = old.into_iter().chain(former.split(',').filter(|e| !e.is_empty()).map(str::to_owned)).take(500);
        let former = former.collect::<Vec<_>>().join(",");
        self.set_meta(FORMER_EPOCHS, &former).await?;
        self.set_meta(STORE_EPOCH, epoch).await?;
        Ok(epoch.to_owned())
    }
}
