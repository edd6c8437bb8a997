//! What the database says of statements and tables: parameter types, columns.

use super::column::{Column, Holds, MySqlColumn, Written};
use super::{Bind, Dialect, StoreError, StoreRow, Tx};

/// `format_type` with the modifier -1 names `bpchar` and `"bit"`, which do not cut to length one.
const PG_PARAMETERS: &str = "SELECT u.n AS place, '' AS name, CAST(u.t AS oid) AS type, -1 AS modifier, \
     CAST('' AS \"char\") AS generated, CAST('' AS \"char\") AS identity FROM pg_prepared_statements, \
     unnest(parameter_types) WITH ORDINALITY AS u(t, n) WHERE pg_prepared_statements.name = 'countersign_describe'";
const PG_COLUMNS: &str = "SELECT CAST(attnum AS bigint) AS place, CAST(attname AS text) AS name, atttypid AS type, \
     atttypmod AS modifier, attgenerated AS generated, attidentity AS identity FROM pg_attribute \
     WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";

/// A domain holds what the type under it holds, with the domain's own modifier.
fn pg_types(of: &str) -> String {
    format!(
        "WITH RECURSIVE base AS (SELECT d.*, format_type(d.type, -1) AS shown FROM ({of}) AS d \
         UNION ALL SELECT b.place, b.name, t.typbasetype, CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE b.modifier END, \
         b.generated, b.identity, b.shown FROM base AS b JOIN pg_type AS t ON t.oid = b.type WHERE t.typtype = 'd') \
         SELECT b.name, b.shown, CASE WHEN COALESCE(e.typtype, t.typtype) IN ('b', 'r') \
         THEN CAST(COALESCE(e.typname, t.typname) AS text) ELSE '' END, CAST(b.modifier AS bigint), \
         CAST((e.oid IS NOT NULL) AS text), CAST(b.generated AS text), CAST(b.identity AS text) FROM base AS b \
         JOIN pg_type AS t ON t.oid = b.type LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A' \
         WHERE t.typtype <> 'd' ORDER BY b.place"
    )
}

const MYSQL_COLUMNS: &str = "SELECT CONVERT(column_name USING utf8mb4), CONVERT(data_type USING utf8mb4), \
     CONVERT(column_type USING utf8mb4), CONVERT(numeric_precision, SIGNED), CONVERT(numeric_scale, SIGNED), \
     CONVERT(datetime_precision, SIGNED), CONVERT(character_maximum_length, SIGNED), CONVERT(extra USING utf8mb4), \
     CONVERT(is_nullable USING utf8mb4) FROM information_schema.columns";

/// JSON is another name for LONGTEXT with this check there.
const MARIADB_JSON: &str = "SELECT CONVERT(constraint_name USING utf8mb4) FROM information_schema.check_constraints";

/// `hidden` is 2 or 3 for generated columns.
const SQLITE_COLUMNS: &str = "SELECT name, type, hidden FROM";

impl Tx {
    /// Postgres: what the server infers of a statement's parameters, in their order.
    pub async fn parameters(&mut self, sql: &str) -> Result<Vec<Column>, StoreError> {
        debug_assert_eq!(self.dialect(), Dialect::Postgres);
        self.batch(&format!("PREPARE countersign_describe AS {sql}")).await?;
        let rows = self.fetch(&pg_types(PG_PARAMETERS), Vec::new()).await?;
        self.batch("DEALLOCATE countersign_describe").await?;
        rows.iter().map(pg_column).collect()
    }

    /// The columns of a table, generated ones among them; none if there is no such table.
    pub async fn columns(&mut self, table: &[String]) -> Result<Vec<Column>, StoreError> {
        let dialect = self.dialect();
        let name = table.last().cloned().unwrap_or_default();
        let schema = match table {
            [schema, _] => Some(schema.clone()),
            _ => None,
        };
        match dialect {
            Dialect::Postgres => {
                let rows = self.fetch(&pg_types(PG_COLUMNS), vec![Bind::Text(dialect.quote_path(table))]).await?;
                rows.iter().map(pg_column).collect()
            }
            Dialect::MySql => {
                let place = if schema.is_some() { "?" } else { "DATABASE()" };
                let binds: Vec<Bind> = schema.into_iter().chain([name]).map(Bind::Text).collect();
                let sql = format!(
                    "{MYSQL_COLUMNS} WHERE table_schema = {place} AND table_name = ? ORDER BY ordinal_position"
                );
                let rows = self.fetch(&sql, binds.clone()).await?;
                let mut columns: Vec<Column> = rows.iter().map(mysql_column).collect::<Result<_, _>>()?;
                if columns.iter().any(|column| column.cast == "longtext") && self.is_mariadb().await? {
                    let sql = format!(
                        "{MARIADB_JSON} WHERE constraint_schema = {place} AND table_name = ? AND level = 'Column' \
                         AND check_clause = CONCAT('json_valid(`', constraint_name, '`)')"
                    );
                    for row in self.fetch(&sql, binds).await? {
                        let name = row.text(0)?;
                        for column in columns.iter_mut().filter(|column| column.name == name) {
                            column.holds = Holds::Json;
                        }
                    }
                }
                Ok(columns)
            }
            Dialect::Sqlite => {
                let of = if schema.is_some() { "(?, ?)" } else { "(?)" };
                let binds = [name].into_iter().chain(schema).map(Bind::Text).collect();
                let rows = self.fetch(&format!("{SQLITE_COLUMNS} pragma_table_xinfo{of}"), binds).await?;
                rows.iter().map(sqlite_column).collect()
            }
        }
    }
}

impl Tx {
    async fn is_mariadb(&mut self) -> Result<bool, StoreError> {
        let rows = self.fetch("SELECT VERSION()", Vec::new()).await?;
        let version = rows.first().map(|row| row.text(0)).transpose()?;
        Ok(version.is_some_and(|version| version.contains("MariaDB")))
    }
}

fn pg_column(row: &StoreRow) -> Result<Column, StoreError> {
    let holds = Holds::postgres(&row.text(2)?, row.int(3)?);
    let holds = if row.text(4)? == "true" { Holds::Array(Box::new(holds)) } else { holds };
    let written = match (row.text(5)?.as_str(), row.text(6)?.as_str()) {
        ("", "a") => Written::Identity,
        ("", _) => Written::Freely,
        _ => Written::Generated,
    };
    Ok(Column { name: row.text(0)?, cast: row.text(1)?, holds, written, replaces_null: false })
}

fn mysql_column(row: &StoreRow) -> Result<Column, StoreError> {
    let described = MySqlColumn {
        data_type: row.text(1)?.to_ascii_lowercase(),
        column_type: row.text(2)?,
        precision: row.opt_int(3)?,
        scale: row.opt_int(4)?,
        datetime_precision: row.opt_int(5)?.and_then(|digits| u64::try_from(digits).ok()),
        length: row.opt_int(6)?.and_then(|length| u64::try_from(length).ok()),
    };
    let extra = row.text(7)?.to_ascii_uppercase();
    // MySQL 8 says DEFAULT_GENERATED of a column whose default is an expression.
    let generated = extra.split_once(" GENERATED").is_some();
    let required = row.text(8)?.eq_ignore_ascii_case("no");
    Ok(Column {
        name: row.text(0)?,
        replaces_null: required && (described.data_type == "timestamp" || extra.contains("AUTO_INCREMENT")),
        cast: described.data_type.clone(),
        holds: Holds::mysql(&described),
        written: if generated { Written::Generated } else { Written::Freely },
    })
}

fn sqlite_column(row: &StoreRow) -> Result<Column, StoreError> {
    let declared = row.text(1)?;
    Ok(Column {
        name: row.text(0)?,
        holds: Holds::sqlite(&declared),
        cast: declared,
        written: if row.int(2)? >= 2 { Written::Generated } else { Written::Freely },
        replaces_null: false,
    })
}
