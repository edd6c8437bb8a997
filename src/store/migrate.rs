//! Creates and upgrades the tables from the files in `schemas/`.

use super::meta::{SCHEMA_VERSION, STORE_EPOCH};
use super::{Bind, Dialect, Store, StoreError, Tx};
use crate::failpoint;

/// The schema version that this program writes; it runs with the one before too.
pub const VERSION: i64 = 2;

/// One step: its version and its statements.
struct Step {
    version: i64,
    postgres: &'static str,
    mysql: &'static str,
    sqlite: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        version: 1,
        postgres: include_str!("../../schemas/postgres/0001_tables.sql"),
        mysql: include_str!("../../schemas/mysql/0001_tables.sql"),
        sqlite: include_str!("../../schemas/sqlite/0001_tables.sql"),
    },
    Step {
        version: 2,
        postgres: include_str!("../../schemas/postgres/0002_queues.sql"),
        mysql: include_str!("../../schemas/mysql/0002_queues.sql"),
        sqlite: include_str!("../../schemas/sqlite/0002_queues.sql"),
    },
];

impl Step {
    fn sql(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Postgres => self.postgres,
            Dialect::MySql => self.mysql,
            Dialect::Sqlite => self.sqlite,
        }
    }
}

/// Every statement of every step, for the DBA who runs them by hand.
pub fn script(dialect: Dialect) -> String {
    let steps = STEPS.iter().map(|step| step.sql(dialect)).collect::<Vec<_>>().join("\n");
    format!(
        "{steps}\nINSERT INTO countersign_meta (name, value) VALUES ('schema_version', '{VERSION}');\n\
         -- The store epoch: any text that no other store of yours has.\n\
         INSERT INTO countersign_meta (name, value) VALUES ('store_epoch', '<random text>');\n"
    )
}

/// What `migrate` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

impl Store {
    /// Brings the tables to the current version. `epoch` names a store that is made now.
    ///
    /// What is there already is passed over: MySQL commits each statement of a schema change by itself, and a migration
    /// that died half-way is finished by the next. So are tables whose version was lost.
    pub async fn migrate(&self, epoch: &str) -> Result<Migrated, StoreError> {
        let dialect = self.dialect();
        let from = self.schema_version().await?;
        let mut tx = self.begin().await?;
        if dialect == Dialect::Postgres {
            // Two migrations at once wait for each other; the number is only ours by chance.
            tx.batch("SELECT pg_advisory_xact_lock(7261890351)").await?;
        }
        for step in STEPS.iter().filter(|step| step.version > from) {
            for statement in statements(step.sql(dialect)) {
                if dialect == Dialect::Sqlite && has_column(&mut tx, statement).await? {
                    continue;
                }
                match tx.batch(&idempotent(dialect, statement)).await {
                    Err(StoreError::Answer { code, .. }) if already_there(dialect, &code) => {}
                    other => other?,
                }
                failpoint::at("in-migrate").await?;
            }
        }
        tx.set_meta(SCHEMA_VERSION, &VERSION.max(from).to_string()).await?;
        if tx.meta(STORE_EPOCH).await?.is_none() {
            tx.set_meta(STORE_EPOCH, epoch).await?;
        }
        tx.commit().await?;
        Ok(Migrated { from, to: VERSION.max(from) })
    }

    /// 0 where there are no tables yet.
    pub async fn schema_version(&self) -> Result<i64, StoreError> {
        match self.meta(SCHEMA_VERSION).await {
            Ok(version) => Ok(version.and_then(|v| v.parse().ok()).unwrap_or(0)),
            Err(StoreError::Answer { dialect, code, .. }) if missing_table(dialect, &code) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn missing_table(dialect: Dialect, code: &str) -> bool {
    match dialect {
        Dialect::Postgres => code == "42P01",
        Dialect::MySql => code == "1146",
        // SQLite has one code for every statement that cannot be right.
        Dialect::Sqlite => code == "1",
    }
}

/// An index or a column that is there already, on the one database that cannot undo a half migration and has no
/// `IF NOT EXISTS` for them (MySQL).
fn already_there(dialect: Dialect, code: &str) -> bool {
    dialect == Dialect::MySql && matches!(code, "1060" | "1061")
}

fn idempotent(dialect: Dialect, statement: &str) -> String {
    let statement = statement.replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
    match dialect {
        Dialect::Postgres => statement.replacen("CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1).replacen(
            "ADD COLUMN ",
            "ADD COLUMN IF NOT EXISTS ",
            1,
        ),
        Dialect::Sqlite => statement.replacen("CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1),
        Dialect::MySql => statement,
    }
}

/// Whether a statement adds a column that is there, on the one database that has neither `IF NOT EXISTS` for it nor a
/// code of its own.
async fn has_column(tx: &mut Tx, statement: &str) -> Result<bool, StoreError> {
    let Some((_, rest)) = statement.split_once("ALTER TABLE ") else { return Ok(false) };
    let mut words = rest.split_whitespace();
    let (Some(table), Some("ADD"), Some("COLUMN"), Some(column)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Ok(false);
    };
    let binds = vec![Bind::text(table), Bind::text(column)];
    let found = tx.fetch("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", binds).await?;
    Ok(!found.is_empty())
}

fn statements(script: &str) -> impl Iterator<Item = &str> {
    script.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_schemas_have_the_same_tables_and_columns() {
        let columns = |dialect| {
            let mut names = Vec::new();
            for statement in STEPS.iter().flat_map(|step| statements(step.sql(dialect))) {
                let Some(at) = statement.find("CREATE TABLE ") else { continue };
                for line in statement[at..].lines() {
                    let word = line.trim().split([' ', '(']).next().unwrap_or_default();
                    if !matches!(word, ")" | "PRIMARY" | "") {
                        names.push(
                            line.trim().split(' ').take(if word == "CREATE" { 3 } else { 1 }).collect::<String>(),
                        );
                    }
                }
            }
            names
        };
        assert!(columns(Dialect::Postgres).len() > 60);
        assert_eq!(columns(Dialect::Postgres), columns(Dialect::MySql));
        assert_eq!(columns(Dialect::Postgres), columns(Dialect::Sqlite));
    }
}
