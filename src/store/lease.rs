//! Leases: of several processes one does what one alone may do, for a while. By the database's clock.

use std::time::Duration;

use super::meta::clock;
use super::{Bind, Dialect, Sql, Store, StoreError, Tx};

const ENSURE: Sql = Sql {
    postgres: "INSERT INTO countersign_meta (name, value) VALUES ($1, '') ON CONFLICT (name) DO NOTHING",
    mysql: "INSERT INTO countersign_meta (name, value) VALUES (?, '') ON DUPLICATE KEY UPDATE name = name",
    sqlite: "INSERT INTO countersign_meta (name, value) VALUES (?, '') ON CONFLICT (name) DO NOTHING",
};

const RELEASE: Sql = Sql {
    postgres: "UPDATE countersign_meta SET value = '' WHERE name = $1 AND value LIKE $2",
    mysql: "UPDATE countersign_meta SET value = '' WHERE name = ? AND value LIKE ?",
    sqlite: "UPDATE countersign_meta SET value = '' WHERE name = ? AND value LIKE ?",
};

impl Store {
    /// Takes or renews a lease; false while another owner has it. `owner` is a word of letters and digits that no
    /// other process has. The row holds `OWNER UNTIL`.
    pub async fn take_lease(&self, name: &str, owner: &str, time: Duration) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        tx.execute(ENSURE.of(self.dialect()), vec![Bind::text(name)]).await?;
        let (value, now) = tx.locked_meta(name).await?;
        let (holder, until) = value.split_once(' ').unwrap_or_default();
        let now: jiff::Timestamp =
            now.parse().map_err(|_| StoreError::Unexpected("the database's clock is no time".to_owned()))?;
        // One that cannot be read is nobody's.
        let held = until.parse::<jiff::Timestamp>().is_ok_and(|until| until > now);
        if held && holder != owner {
            tx.rollback().await;
            return Ok(false);
        }
        let until = now + time;
        tx.set_meta(name, &format!("{owner} {until}")).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives a lease back, if it is this owner's still.
    pub async fn release_lease(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        let binds = vec![Bind::text(name), Bind::Text(format!("{owner} %"))];
        self.write(RELEASE.of(self.dialect()), binds).await.map(drop)
    }
}

impl Tx {
    /// The value, its row locked until the end of the transaction, and the clock.
    async fn locked_meta(&mut self, name: &str) -> Result<(String, String), StoreError> {
        let dialect = self.dialect();
        let lock = match dialect {
            Dialect::Postgres | Dialect::MySql => " FOR UPDATE",
            // One writer at a time.
            Dialect::Sqlite => "",
        };
        let place = dialect.placeholder(0);
        let sql = format!("SELECT value, {} FROM countersign_meta WHERE name = {place}{lock}", clock(dialect));
        let rows = self.fetch(&sql, vec![Bind::text(name)]).await?;
        let row = rows.first().ok_or_else(|| StoreError::Unexpected("a lease without a row".to_owned()))?;
        Ok((row.text(0)?, row.text(1)?))
    }
}
