//! Leases: of several processes one does what one alone may do, for a while. By the database's clock.
//!
//! A row holds `OWNER UNTIL`, or nothing where nobody has the lease.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::bind::listed;
use super::meta::{clock, instant};
use super::{Bind, Dialect, Sql, Store, StoreError, StoreRow, Tx};

const ENSURE: &str = "INSERT INTO countersign_meta (name, value) VALUES ";

/// Of a row that is there already nothing is written.
const IF_ABSENT: Sql = Sql {
    postgres: " ON CONFLICT (name) DO NOTHING",
    mysql: " ON DUPLICATE KEY UPDATE name = name",
    sqlite: " ON CONFLICT (name) DO NOTHING",
};

const RELEASE: Sql = Sql {
    postgres: "UPDATE countersign_meta SET value = '' WHERE value LIKE $1 AND name IN ",
    mysql: "UPDATE countersign_meta SET value = '' WHERE value LIKE ? AND name IN ",
    sqlite: "UPDATE countersign_meta SET value = '' WHERE value LIKE ? AND name IN ",
};

const TAKE: Sql = Sql {
    postgres: "UPDATE countersign_meta SET value = $1 WHERE name IN ",
    mysql: "UPDATE countersign_meta SET value = ? WHERE name IN ",
    sqlite: "UPDATE countersign_meta SET value = ? WHERE name IN ",
};

/// Names in one statement.
const CHUNK: usize = 500;

impl Store {
    /// Takes or renews a lease; false while another owner has it. `owner` is a word of letters and digits that no
    /// other process has.
    pub async fn take_lease(&self, name: &str, owner: &str, time: Duration) -> Result<bool, StoreError> {
        let taken = self.take_leases(&BTreeSet::from([name.to_owned()]), owner, time).await?;
        Ok(!taken.is_empty())
    }

    /// Takes or renews those of these leases that no other owner has; the answer are their names.
    pub async fn take_leases(
        &self,
        names: &BTreeSet<String>,
        owner: &str,
        time: Duration,
    ) -> Result<BTreeSet<String>, StoreError> {
        let mut taken = BTreeSet::new();
        let names: Vec<&String> = names.iter().collect();
        for chunk in names.chunks(CHUNK) {
            taken.extend(self.take_some(chunk, owner, time).await?);
        }
        Ok(taken)
    }

    async fn take_some(&self, names: &[&String], owner: &str, time: Duration) -> Result<Vec<String>, StoreError> {
        let dialect = self.dialect();
        // A look first: what others hold is not locked, and its owner never waits for those who would like it.
        let (sql, binds) = select(dialect, names, false);
        let held = self.read(&sql, binds).await?;
        let held: BTreeSet<String> = others(&held, owner)?;
        let free: Vec<&String> = names.iter().copied().filter(|name| !held.contains(*name)).collect();
        if free.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        // In the order of names, as all do who take several.
        let ensure = format!("{ENSURE}{}{}", dialect.value_rows(free.len(), 2), IF_ABSENT.of(dialect));
        let rows = free.iter().flat_map(|name| [Bind::text(*name), Bind::text("")]);
        tx.execute(&ensure, rows.collect()).await?;
        let (sql, binds) = select(dialect, &free, true);
        let rows = tx.fetch(&sql, binds).await?;
        let held = others(&rows, owner)?;
        let free: Vec<&String> = free.into_iter().filter(|name| !held.contains(*name)).collect();
        let Some(now) = rows.last() else {
            return Err(StoreError::Unexpected("leases without rows".to_owned()));
        };
        if free.is_empty() {
            tx.rollback().await;
            return Ok(Vec::new());
        }
        let until = instant(&now.text(2)?)? + time;
        let mut binds = vec![Bind::Text(format!("{owner} {until}"))];
        let names = listed(dialect, &mut binds, &free, |name| Bind::text(*name));
        tx.execute(&format!("{}{names}", TAKE.of(dialect)), binds).await?;
        tx.commit().await?;
        Ok(free.into_iter().cloned().collect())
    }

    /// Gives a lease back, if it is this owner's still.
    pub async fn release_lease(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        self.release_leases(&BTreeSet::from([name.to_owned()]), owner).await
    }

    pub async fn release_leases(&self, names: &BTreeSet<String>, owner: &str) -> Result<(), StoreError> {
        let names: Vec<&String> = names.iter().collect();
        for chunk in names.chunks(CHUNK) {
            let mut binds = vec![Bind::Text(format!("{owner} %"))];
            let names = listed(self.dialect(), &mut binds, chunk, |name| Bind::text(*name));
            self.write(&format!("{}{names}", RELEASE.of(self.dialect())), binds).await?;
        }
        Ok(())
    }
}

impl Tx {
    /// A fact, empty if it was never set, and locked until the end of the transaction.
    pub(super) async fn locked_fact(&mut self, name: &str) -> Result<String, StoreError> {
        let dialect = self.dialect();
        let ensure = format!("{ENSURE}{}{}", dialect.value_rows(1, 2), IF_ABSENT.of(dialect));
        self.execute(&ensure, vec![Bind::text(name), Bind::text("")]).await?;
        let (sql, binds) = select(dialect, &[&name.to_owned()], true);
        let rows = self.fetch(&sql, binds).await?;
        rows.first().ok_or_else(|| StoreError::Unexpected("a fact without a row".to_owned()))?.text(1)
    }
}

/// How much is left of a lease, where its row and the clock were read at once; None if this owner does not hold it.
pub(super) fn left(value: &str, now: &str, owner: &str) -> Result<Option<Duration>, StoreError> {
    let (holder, until) = value.split_once(' ').unwrap_or_default();
    if holder != owner {
        return Ok(None);
    }
    let now = instant(now)?;
    let left = until.parse::<Timestamp>().ok().map(|until| until.duration_since(now));
    Ok(left.and_then(|left| Duration::try_from(left).ok()))
}

/// Those that somebody else holds. One that cannot be read is nobody's.
fn others(rows: &[StoreRow], owner: &str) -> Result<BTreeSet<String>, StoreError> {
    let mut held = BTreeSet::new();
    for row in rows {
        let (value, now) = (row.text(1)?, instant(&row.text(2)?)?);
        let (holder, until) = value.split_once(' ').unwrap_or_default();
        if holder != owner && until.parse::<Timestamp>().is_ok_and(|until| until > now) {
            held.insert(row.text(0)?);
        }
    }
    Ok(held)
}

/// Name, value and clock of these rows, which stay locked until the end of the transaction if so wished.
fn select(dialect: Dialect, names: &[&String], lock: bool) -> (String, Vec<Bind>) {
    let lock = match dialect {
        Dialect::Postgres | Dialect::MySql if lock => " FOR UPDATE",
        // One writer at a time.
        Dialect::Postgres | Dialect::MySql | Dialect::Sqlite => "",
    };
    let mut binds = Vec::new();
    let list = listed(dialect, &mut binds, names, |name| Bind::text(*name));
    let clock = clock(dialect);
    (format!("SELECT name, value, {clock} FROM countersign_meta WHERE name IN {list} ORDER BY name{lock}"), binds)
}
