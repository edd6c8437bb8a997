//! What must be true of the tables and the session before anything runs: keys compared byte for byte, the isolation
//! level, durable commits.

use super::{Bind, Dialect, Sql, Store, StoreError, Tx};

/// A column as the catalogue shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFacts {
    pub name: String,
    pub data_type: String,
    /// How its texts are compared; empty where it holds none. On Postgres `deterministic` or not.
    pub collation: String,
}

/// What a column of ours must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Bytes: no collation, no padding.
    Bytes,
    /// Text that is equal only if its bytes are, trailing spaces aside: none of these values ends in one.
    ExactText,
}

/// Columns whose comparison decides which message, lane or row is meant.
const KEY_COLUMNS: &[(&str, &str, Wanted)] = &[
    ("countersign_inbox", "inbox_key", Wanted::Bytes),
    ("countersign_inbox", "pipeline", Wanted::ExactText),
    ("countersign_inbox", "correlation_id", Wanted::ExactText),
    ("countersign_dead_letters", "dead_letter_key", Wanted::Bytes),
    ("countersign_dead_letters", "inbox_key", Wanted::Bytes),
    ("countersign_row_versions", "pipeline", Wanted::ExactText),
    ("countersign_row_versions", "table_name", Wanted::ExactText),
    ("countersign_row_versions", "key_hash", Wanted::Bytes),
    ("countersign_lanes", "pipeline", Wanted::ExactText),
    ("countersign_lanes", "topic", Wanted::ExactText),
    ("countersign_meta", "name", Wanted::ExactText),
];

/// The keys on which insert-if-absent rests.
const UNIQUE: &[(&str, &[&str])] = &[
    ("countersign_inbox", &["inbox_key"]),
    ("countersign_dead_letters", &["dead_letter_key"]),
    ("countersign_row_versions", &["pipeline", "table_name", "key_hash"]),
    ("countersign_lanes", &["pipeline", "topic", "kafka_partition"]),
    ("countersign_meta", &["name"]),
];

const PG_FACTS: &str = "SELECT CAST(a.attname AS text), format_type(a.atttypid, -1), CASE \
     WHEN c.oid IS NULL THEN '' WHEN c.collisdeterministic THEN 'deterministic' ELSE CAST(c.collname AS text) END \
     FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation \
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
/// A collation shows in the index alone. `?` twice: the table.
const SQLITE_FACTS: &str = "SELECT t.name, t.type, coalesce((SELECT x.coll FROM pragma_index_list(?) l, \
     pragma_index_xinfo(l.name) x WHERE x.name = t.name AND x.key = 1 ORDER BY x.coll = 'BINARY' LIMIT 1), 'BINARY') \
     FROM pragma_table_info(?) t";

/// Index and column. `ON CONFLICT` takes no deferrable, partial or computed index.
const PG_UNIQUE: &str = "SELECT CAST(i.indexrelid AS text), CAST(a.attname AS text) FROM pg_index i \
     CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n) \
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
     WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indimmediate AND i.indisvalid \
     AND i.indpred IS NULL AND i.indexprs IS NULL AND k.n <= i.indnkeyatts ORDER BY i.indexrelid, k.n";
/// The primary key besides, for one that is the rowid has no index.
const SQLITE_UNIQUE: &str = "SELECT 'primary key', name FROM pragma_table_info(?) WHERE pk > 0 UNION ALL \
     SELECT l.name, x.name FROM pragma_index_list(?) l, pragma_index_info(l.name) x \
     WHERE l.\"unique\" = 1 AND l.partial = 0 AND l.origin <> 'pk'";

const ISOLATION: Sql = Sql {
    postgres: "SELECT current_setting('transaction_isolation')",
    // The variable has another name in MariaDB before 11.1.
    mysql: "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')",
    sqlite: "SELECT 'one writer'",
};

/// Name and value.
const DURABILITY: Sql = Sql {
    postgres: "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')",
    mysql: "SHOW GLOBAL VARIABLES WHERE Variable_name = 'innodb_flush_log_at_trx_commit'",
    sqlite: "SELECT 'journal_mode', journal_mode FROM pragma_journal_mode UNION ALL \
             SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous",
};

const MYSQL_SESSION: &str = "SELECT CAST(@@SESSION.sql_mode AS CHAR), CAST(@@SESSION.time_zone AS CHAR), \
     CAST(@@SESSION.max_allowed_packet AS CHAR)";

/// What was set at the start of a MySQL session, read back: a proxy between may have dropped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MySqlSession {
    pub sql_mode: String,
    pub time_zone: String,
    /// Bytes.
    pub max_allowed_packet: u64,
}

impl Tx {
    pub async fn column_facts(&mut self, table: &[String]) -> Result<Vec<ColumnFacts>, StoreError> {
        let rows = match self.dialect() {
            Dialect::Postgres => self.fetch(PG_FACTS, vec![Bind::Text(Dialect::Postgres.quote_path(table))]).await?,
            Dialect::MySql => {
                let (schema, binds) = mysql_table(table);
                let sql = format!(
                    "SELECT CONVERT(column_name USING utf8mb4), CONVERT(data_type USING utf8mb4), \
                     CONVERT(COALESCE(collation_name, '') USING utf8mb4) FROM information_schema.columns \
                     WHERE table_schema = {schema} AND table_name = ?"
                );
                self.fetch(&sql, binds).await?
            }
            Dialect::Sqlite => self.fetch(SQLITE_FACTS, twice(table)).await?,
        };
        let facts = rows
            .iter()
            .map(|row| Ok(ColumnFacts { name: row.text(0)?, data_type: row.text(1)?, collation: row.text(2)? }));
        facts.collect()
    }

    /// The columns of each primary key and unique index that an upsert can rest on.
    pub async fn unique_keys(&mut self, table: &[String]) -> Result<Vec<Vec<String>>, StoreError> {
        let rows = match self.dialect() {
            Dialect::Postgres => self.fetch(PG_UNIQUE, vec![Bind::Text(Dialect::Postgres.quote_path(table))]).await?,
            Dialect::MySql => {
                let (schema, binds) = mysql_table(table);
                // A key part that is a prefix or an expression makes its column null.
                let sql = format!(
                    "SELECT CONVERT(index_name USING utf8mb4), \
                     CONVERT(IF(sub_part IS NULL, column_name, NULL) USING utf8mb4) FROM information_schema.statistics \
                     WHERE table_schema = {schema} AND table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index"
                );
                self.fetch(&sql, binds).await?
            }
            Dialect::Sqlite => self.fetch(SQLITE_UNIQUE, twice(table)).await?,
        };
        let mut keys: Vec<(String, Vec<Option<String>>)> = Vec::new();
        for row in &rows {
            let (index, column) = (row.text(0)?, row.opt_text(1)?);
            match keys.iter_mut().find(|(name, _)| *name == index) {
                Some((_, columns)) => columns.push(column),
                None => keys.push((index, vec![column])),
            }
        }
        Ok(keys.into_iter().filter_map(|(_, columns)| columns.into_iter().collect()).collect())
    }

    /// The isolation level of this transaction, in capitals with spaces.
    pub async fn isolation(&mut self) -> Result<String, StoreError> {
        let dialect = self.dialect();
        let rows = self.fetch(ISOLATION.of(dialect), Vec::new()).await?;
        let row = rows.first().ok_or_else(|| StoreError::Unexpected("no isolation level".to_owned()))?;
        let text = match dialect {
            Dialect::Postgres | Dialect::Sqlite => row.text(0)?,
            Dialect::MySql => row.text(1)?,
        };
        Ok(text.replace('-', " ").to_uppercase())
    }

    /// Settings under which a crash of the server may undo a commit that it has acknowledged.
    pub async fn undurable(&mut self) -> Result<Vec<String>, StoreError> {
        let dialect = self.dialect();
        let rows = self.fetch(DURABILITY.of(dialect), Vec::new()).await?;
        let mut found = Vec::new();
        for row in &rows {
            let (name, value) = (row.text(0)?, row.text(1)?);
            if !durable(&name, &value) {
                found.push(format!("{name} = {value}"));
            }
        }
        Ok(found)
    }

    pub async fn mysql_session(&mut self) -> Result<MySqlSession, StoreError> {
        let rows = self.fetch(MYSQL_SESSION, Vec::new()).await?;
        let row = rows.first().ok_or_else(|| StoreError::Unexpected("no session".to_owned()))?;
        Ok(MySqlSession {
            sql_mode: row.text(0)?,
            time_zone: row.text(1)?,
            max_allowed_packet: row.text(2)?.parse().unwrap_or(0),
        })
    }
}

/// Why nothing may be written to our own tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("the tables are missing or old: run `countersign migrate`")]
    Outdated,
    /// With a collation that joins different ids nothing may start.
    #[error("{0}")]
    Keys(String),
}

impl Store {
    /// Whether our own tables are there, of this version at least, and can be trusted; None if all is well.
    pub async fn distrust(&self, version: i64) -> Result<Option<Distrust>, StoreError> {
        if self.schema_version().await? < version {
            return Ok(Some(Distrust::Outdated));
        }
        Ok(self.key_faults().await?.into_iter().next().map(Distrust::Keys))
    }

    /// What of our own tables would join two keys or let one in twice: empty if all is well. A table that is not
    /// there is no finding.
    pub async fn key_faults(&self) -> Result<Vec<String>, StoreError> {
        let mut tx = self.begin().await?;
        let dialect = self.dialect();
        let mut faults = Vec::new();
        for (table, columns) in UNIQUE {
            let path = [(*table).to_owned()];
            let facts = tx.column_facts(&path).await?;
            if facts.is_empty() {
                continue;
            }
            let wanted = KEY_COLUMNS.iter().filter(|(name, ..)| name == table);
            faults.extend(wanted.filter_map(|(table, column, wanted)| {
                let found = facts.iter().find(|facts| facts.name == *column)?;
                (!fits(dialect, *wanted, found)).then(|| fault(table, *wanted, found))
            }));
            let keys = tx.unique_keys(&path).await?;
            if !has_key(&keys, columns) {
                faults.push(format!(
                    "{table} has no primary key ({}): equal keys would get in twice",
                    columns.join(", ")
                ));
            }
        }
        tx.rollback().await;
        Ok(faults)
    }
}

/// Whether one of the keys has these columns and no others, in any order.
pub fn has_key(keys: &[Vec<String>], columns: &[impl AsRef<str>]) -> bool {
    let is = |key: &Vec<String>| {
        key.len() == columns.len() && columns.iter().all(|column| key.iter().any(|part| part == column.as_ref()))
    };
    keys.iter().any(is)
}

fn fits(dialect: Dialect, wanted: Wanted, column: &ColumnFacts) -> bool {
    let data_type = column.data_type.to_ascii_lowercase();
    match (wanted, dialect) {
        (Wanted::Bytes, Dialect::Postgres) => data_type == "bytea",
        // BINARY(n) pads with zeros.
        (Wanted::Bytes, Dialect::MySql) => data_type == "varbinary" || data_type.ends_with("blob"),
        (Wanted::Bytes, Dialect::Sqlite) => data_type == "blob",
        (Wanted::ExactText, Dialect::Postgres) => matches!(column.collation.as_str(), "deterministic" | ""),
        (Wanted::ExactText, Dialect::MySql) => {
            // Bytes have no collation.
            column.collation.is_empty() || column.collation == "binary" || column.collation.ends_with("_bin")
        }
        (Wanted::ExactText, Dialect::Sqlite) => column.collation == "BINARY",
    }
}

fn fault(table: &str, wanted: Wanted, column: &ColumnFacts) -> String {
    let ColumnFacts { name, data_type, collation } = column;
    let collation = if collation.is_empty() { String::new() } else { format!(" with collation {collation}") };
    let must = match wanted {
        Wanted::Bytes => "it must hold bytes, or keys that differ in letter case, accents or spaces may count as one",
        Wanted::ExactText => "it must compare letter for letter",
    };
    format!("{table}.{name} is {data_type}{collation}: {must}")
}

fn durable(name: &str, value: &str) -> bool {
    match name {
        "fsync" => value == "on",
        "synchronous_commit" => value != "off",
        "innodb_flush_log_at_trx_commit" => value == "1",
        "journal_mode" => value.eq_ignore_ascii_case("wal"),
        // 2 is FULL, 3 is EXTRA.
        "synchronous" => matches!(value, "2" | "3"),
        _ => true,
    }
}

fn mysql_table(table: &[String]) -> (&'static str, Vec<Bind>) {
    let name = Bind::Text(table.last().cloned().unwrap_or_default());
    match table {
        [schema, _] => ("?", vec![Bind::text(schema), name]),
        _ => ("DATABASE()", vec![name]),
    }
}

fn twice(table: &[String]) -> Vec<Bind> {
    vec![Bind::Text(table.last().cloned().unwrap_or_default()); 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_and_exact_collations_make_a_key() {
        let column = |data_type: &str, collation: &str| ColumnFacts {
            name: "k".to_owned(),
            data_type: data_type.to_owned(),
            collation: collation.to_owned(),
        };
        for (dialect, wanted, data_type, collation, fit) in [
            (Dialect::Postgres, Wanted::Bytes, "bytea", "", true),
            (Dialect::Postgres, Wanted::Bytes, "text", "deterministic", false),
            (Dialect::Postgres, Wanted::ExactText, "text", "deterministic", true),
            (Dialect::Postgres, Wanted::ExactText, "text", "ignore_accents", false),
            (Dialect::MySql, Wanted::Bytes, "varbinary", "", true),
            (Dialect::MySql, Wanted::Bytes, "mediumblob", "", true),
            (Dialect::MySql, Wanted::Bytes, "binary", "", false),
            (Dialect::MySql, Wanted::Bytes, "varchar", "utf8mb4_bin", false),
            (Dialect::MySql, Wanted::ExactText, "varchar", "utf8mb4_bin", true),
            (Dialect::MySql, Wanted::ExactText, "varchar", "utf8mb4_0900_ai_ci", false),
            (Dialect::Sqlite, Wanted::Bytes, "BLOB", "BINARY", true),
            (Dialect::Sqlite, Wanted::ExactText, "TEXT", "NOCASE", false),
        ] {
            assert_eq!(
                fits(dialect, wanted, &column(data_type, collation)),
                fit,
                "{dialect:?} {data_type} {collation}"
            );
        }
    }

    #[test]
    fn a_key_is_all_of_the_columns_and_no_other() {
        let keys = [vec!["a".to_owned(), "b".to_owned()]];
        assert!(has_key(&keys, &["b", "a"]));
        assert!(!has_key(&keys, &["a"]));
        assert!(!has_key(&keys, &["a", "c"]));
        assert!(!has_key(&[], &["a"]));
    }
}
