//! Old rows on their way out: found in bounded portions, locked only where nobody else has them, deleted by key.
//!
//! Each portion goes on where the one before ended, so that rows that have to stay are not looked at again and again.

use jiff::Timestamp;

use super::bind::listed;
use super::inbox_entries::{InboxEntry, entry, entry_columns};
use super::meta::{instant, instant_text, purge_horizon, time_bind, time_text};
use super::{Bind, Dialect, Store, StoreError, StoreRow, Tx};

/// An inbox row from before the window.
#[derive(Clone, Debug, PartialEq)]
pub struct OldRow {
    pub key: Vec<u8>,
    pub version: i64,
    pub received_at: String,
    pub stays: Option<Stays>,
}

/// Why an old row has to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stays {
    /// Waiting or in work, or finished within the window.
    Unfinished,
    /// An operator has not decided yet.
    OpenDeadLetter,
}

/// Where a walk through the inbox stands: behind this row.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxPlace {
    received_at: String,
    key: Vec<u8>,
}

impl Default for InboxPlace {
    fn default() -> Self {
        Self { received_at: "1970-01-01T00:00:00.000Z".to_owned(), key: Vec::new() }
    }
}

impl InboxPlace {
    pub fn behind(row: &OldRow) -> Self {
        Self { received_at: row.received_at.clone(), key: row.key.clone() }
    }
}

/// Where a walk through the row versions stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionPlace {
    table: String,
    hash: Vec<u8>,
}

/// A portion of a walk: what may go, and where to go on; None at the end.
pub struct Portion<T, P> {
    pub old: Vec<T>,
    pub next: Option<P>,
}

/// A time of this program's making in a condition.
fn time(dialect: Dialect, index: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("CAST(${} AS timestamptz)", index + 1),
        Dialect::MySql | Dialect::Sqlite => "?".to_owned(),
    }
}

fn instant_bind(dialect: Dialect, at: Timestamp) -> Bind {
    time_bind(dialect, &instant_text(dialect, at))
}

/// Locks what nobody else has: a purge waits for no lane. SQLite has one writer.
fn unlocked(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres | Dialect::MySql => " FOR UPDATE SKIP LOCKED",
        Dialect::Sqlite => "",
    }
}

/// The end of a DELETE of these many rows by their key. Without it MySQL's optimizer reads the whole table where most of
/// it is to go, and the DELETE waits for the rows of others on its way.
fn by_key(dialect: Dialect, key: &str, rows: usize) -> String {
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => String::new(),
        Dialect::MySql => format!(" ORDER BY {key} LIMIT {rows}"),
    }
}

const DONE: &str = "status IN ('SUCCESS', 'FAILED')";
const OPEN_LETTER: &str = "EXISTS (SELECT 1 FROM countersign_dead_letters \
     WHERE countersign_dead_letters.inbox_key = countersign_inbox.inbox_key AND countersign_dead_letters.status = 'open')";

impl Store {
    /// The oldest rows that were received before this instant, from `place` on.
    pub async fn old_inbox_rows(
        &self,
        pipeline: &str,
        before: Timestamp,
        place: &InboxPlace,
        limit: usize,
    ) -> Result<Vec<OldRow>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let sql = format!(
            "SELECT inbox_key, CAST(version AS {int}), {}, \
             CAST(CASE WHEN NOT ({DONE} AND finished_at < {}) THEN 1 WHEN {OPEN_LETTER} THEN 2 ELSE 0 END AS {int}) \
             FROM countersign_inbox WHERE pipeline = {} AND received_at < {} AND received_at >= {} \
             AND (received_at > {} OR inbox_key > {}) ORDER BY received_at, inbox_key LIMIT {limit}",
            time_text(dialect, "received_at"),
            time(dialect, 0),
            dialect.placeholder(1),
            time(dialect, 2),
            time(dialect, 3),
            time(dialect, 4),
            dialect.placeholder(5),
        );
        let binds = vec![
            instant_bind(dialect, before),
            Bind::text(pipeline),
            instant_bind(dialect, before),
            time_bind(dialect, &place.received_at),
            time_bind(dialect, &place.received_at),
            Bind::Bytes(place.key.clone()),
        ];
        let old = |row: &StoreRow| {
            let stays = match row.int(3)? {
                0 => None,
                2 => Some(Stays::OpenDeadLetter),
                _ => Some(Stays::Unfinished),
            };
            Ok(OldRow { key: row.bytes(0)?, version: row.int(1)?, received_at: row.text(2)?, stays })
        };
        self.read(&sql, binds).await?.iter().map(old).collect()
    }

    /// When the oldest receipt of all was put into the outbox. Ids are given out about in that order.
    pub async fn oldest_pending(&self) -> Result<Option<Timestamp>, StoreError> {
        let created = time_text(self.dialect(), "created_at");
        let sql = format!("SELECT {created} FROM countersign_outbox ORDER BY id LIMIT 1");
        self.read(&sql, Vec::new()).await?.first().map(|row| instant(&row.text(0)?)).transpose()
    }

    /// The ids of undelivered receipts from before this instant.
    pub async fn old_pending_receipts(
        &self,
        pipeline: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT receipt_id FROM countersign_outbox WHERE pipeline = {} AND created_at < {} ORDER BY id LIMIT {limit}",
            dialect.placeholder(0),
            time(dialect, 1)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), instant_bind(dialect, before)]).await?;
        rows.iter().map(|row| row.text(0)).collect()
    }

    /// What was received before this instant may have been purged; None while nothing was.
    pub async fn purge_horizon(&self, pipeline: &str) -> Result<Option<Timestamp>, StoreError> {
        self.meta(&purge_horizon(pipeline)).await?.as_deref().map(instant).transpose()
    }

    /// Raises the horizon, never lowers it. In a transaction of its own, before the rows go.
    pub async fn raise_purge_horizon(&self, pipeline: &str, to: Timestamp) -> Result<(), StoreError> {
        let name = purge_horizon(pipeline);
        let mut tx = self.begin().await?;
        // Whoever purges has the lease, and that ends by time: the lock is what two of them meet at.
        let held = tx.locked_fact(&name).await?;
        if held.is_empty() || instant(&held)? < to {
            tx.set_meta(&name, &instant_text(self.dialect(), to)).await?;
        }
        tx.commit().await
    }

    /// Closed dead letters that were decided before this instant, in the order of their numbers.
    pub async fn old_dead_letters(
        &self,
        pipeline: &str,
        before: Timestamp,
        behind: i64,
        limit: usize,
    ) -> Result<Portion<i64, i64>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let sql = format!(
            "SELECT id, CAST(CASE WHEN status <> 'open' AND updated_at < {} THEN 1 ELSE 0 END AS {int}) \
             FROM countersign_dead_letters WHERE pipeline = {} AND id > {} ORDER BY id LIMIT {limit}",
            time(dialect, 0),
            dialect.placeholder(1),
            dialect.placeholder(2)
        );
        let binds = vec![instant_bind(dialect, before), Bind::text(pipeline), Bind::Int(behind)];
        let rows = self.read(&sql, binds).await?;
        let mut portion = Portion { old: Vec::new(), next: None };
        for row in &rows {
            if row.int(1)? == 1 {
                portion.old.push(row.int(0)?);
            }
        }
        if rows.len() == limit {
            portion.next = rows.last().map(|row| row.int(0)).transpose()?;
        }
        Ok(portion)
    }

    pub async fn delete_dead_letters(&self, ids: &[i64], before: Timestamp) -> Result<u64, StoreError> {
        let dialect = self.dialect();
        let mut binds = vec![instant_bind(dialect, before)];
        let before = time(dialect, 0);
        let end = by_key(dialect, "id", ids.len());
        let ids = listed(dialect, &mut binds, ids, |id| Bind::Int(*id));
        let sql = format!(
            "DELETE FROM countersign_dead_letters WHERE status <> 'open' AND updated_at < {before} AND id IN {ids}{end}"
        );
        self.write(&sql, binds).await
    }

    /// Versions of deleted rows, and placeholders, from before this instant, in the order of their keys.
    pub async fn old_row_versions(
        &self,
        pipeline: &str,
        before: Timestamp,
        behind: &VersionPlace,
        limit: usize,
    ) -> Result<Portion<VersionPlace, VersionPlace>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let place = |index| dialect.placeholder(index);
        let sql = format!(
            "SELECT table_name, key_hash, CAST(CASE WHEN {GONE} AND updated_at < {} THEN 1 ELSE 0 END AS {int}) \
             FROM countersign_row_versions WHERE pipeline = {} AND table_name >= {} \
             AND (table_name > {} OR key_hash > {}) ORDER BY table_name, key_hash LIMIT {limit}",
            time(dialect, 0),
            place(1),
            place(2),
            place(3),
            place(4),
        );
        let binds = vec![
            instant_bind(dialect, before),
            Bind::text(pipeline),
            Bind::text(&behind.table),
            Bind::text(&behind.table),
            Bind::Bytes(behind.hash.clone()),
        ];
        let rows = self.read(&sql, binds).await?;
        let at = |row: &StoreRow| Ok::<_, StoreError>(VersionPlace { table: row.text(0)?, hash: row.bytes(1)? });
        let mut portion = Portion { old: Vec::new(), next: None };
        for row in &rows {
            if row.int(2)? == 1 {
                portion.old.push(at(row)?);
            }
        }
        if rows.len() == limit {
            portion.next = rows.last().map(at).transpose()?;
        }
        Ok(portion)
    }

    /// Deletes those of these versions that nobody has taken up meanwhile.
    pub async fn delete_row_versions(
        &self,
        pipeline: &str,
        places: &[VersionPlace],
        before: Timestamp,
    ) -> Result<u64, StoreError> {
        let dialect = self.dialect();
        let mut deleted = 0;
        for of_table in places.chunk_by(|a, b| a.table == b.table) {
            let Some(first) = of_table.first() else { continue };
            let mut tx = self.begin().await?;
            let mut binds = vec![Bind::text(pipeline), Bind::text(&first.table), instant_bind(dialect, before)];
            let head = format!(
                "pipeline = {} AND table_name = {} AND updated_at < {} AND {GONE}",
                dialect.placeholder(0),
                dialect.placeholder(1),
                time(dialect, 2)
            );
            let hashes = listed(dialect, &mut binds, of_table, |place| Bind::Bytes(place.hash.clone()));
            let sql = format!(
                "SELECT key_hash FROM countersign_row_versions WHERE {head} AND key_hash IN {hashes} ORDER BY key_hash{}",
                unlocked(dialect)
            );
            let free = tx.fetch(&sql, binds).await?;
            let free = free.iter().map(|row| row.bytes(0)).collect::<Result<Vec<_>, _>>()?;
            if free.is_empty() {
                tx.rollback().await;
                continue;
            }
            let mut binds = vec![Bind::text(pipeline), Bind::text(&first.table)];
            let hashes = listed(dialect, &mut binds, &free, |hash| Bind::Bytes(hash.clone()));
            let sql = format!(
                "DELETE FROM countersign_row_versions WHERE pipeline = {} AND table_name = {} AND key_hash IN {hashes}{}",
                dialect.placeholder(0),
                dialect.placeholder(1),
                by_key(dialect, "key_hash", free.len())
            );
            deleted += tx.execute(&sql, binds).await?;
            tx.commit().await?;
        }
        Ok(deleted)
    }

    /// Deletes finished reconcile batches from before this instant with at most `limit` of their differences; the
    /// answer is how many batches went, and whether there may be more.
    pub async fn delete_reconcile_batches(
        &self,
        pipeline: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<(u64, bool), StoreError> {
        let dialect = self.dialect();
        let place = dialect.placeholder(0);
        let sql = format!(
            "SELECT id FROM countersign_reconcile_batches WHERE pipeline = {place} AND finished_at < {} ORDER BY id LIMIT 1",
            time(dialect, 1)
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline), instant_bind(dialect, before)]).await?;
        let Some(batch) = rows.first().map(|row| row.int(0)).transpose()? else { return Ok((0, false)) };
        if self.forget_diffs(batch, limit).await? {
            return Ok((0, true));
        }
        let sql = format!("DELETE FROM countersign_reconcile_batches WHERE id = {place}");
        Ok((self.write(&sql, vec![Bind::Int(batch)]).await?, true))
    }
}

/// A version that guards no row of the target: the row was deleted, or the version was never written.
const GONE: &str = "(deleted OR lineage = '')";

impl Tx {
    /// Locks those of these rows that may go still and that nobody else has, until the end of the transaction.
    pub async fn lock_old_rows(&mut self, keys: &[&[u8]], before: Timestamp) -> Result<Vec<InboxEntry>, StoreError> {
        let dialect = self.dialect();
        let mut binds = vec![instant_bind(dialect, before)];
        let listed = listed(dialect, &mut binds, keys, |key| Bind::Bytes(key.to_vec()));
        let sql = format!(
            "SELECT {} FROM countersign_inbox WHERE {DONE} AND finished_at < {} AND NOT {OPEN_LETTER} \
             AND inbox_key IN {listed} ORDER BY inbox_key{}",
            entry_columns(dialect),
            time(dialect, 0),
            unlocked(dialect)
        );
        self.fetch(&sql, binds).await?.iter().map(entry).collect()
    }

    pub async fn delete_inbox(&mut self, keys: &[&[u8]]) -> Result<u64, StoreError> {
        let dialect = self.dialect();
        let mut binds = Vec::new();
        let listed = listed(dialect, &mut binds, keys, |key| Bind::Bytes(key.to_vec()));
        let end = by_key(dialect, "inbox_key", keys.len());
        let sql = format!("DELETE FROM countersign_inbox WHERE inbox_key IN {listed}{end}");
        self.execute(&sql, binds).await
    }
}
