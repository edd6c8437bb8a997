//! What the database says of statements and tables: parameter types, columns, keys.

use super::{Bind, Dialect, StoreError, Tx};

/// A column of a target table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The type as a cast takes it, without length or precision: an explicit cast to `varchar(3)` would cut
    /// silently, an assignment does not.
    pub cast: String,
}

/// `format_type` with the modifier -1 names `bpchar` and `"bit"`, which do not cut to length one.
const PG_PARAMETERS: &str = "SELECT u.n, format_type(CAST(u.t AS oid), -1) FROM pg_prepared_statements, \
     unnest(parameter_types) WITH ORDINALITY AS u(t, n) WHERE name = 'countersign_describe' ORDER BY u.n";
const PG_COLUMNS: &str = "SELECT attname, format_type(atttypid, -1) FROM pg_attribute \
     WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum";

impl Tx {
    /// Postgres: the types that the server infers for a statement's parameters, in the form that a cast takes.
    pub async fn parameter_types(&mut self, sql: &str) -> Result<Vec<String>, StoreError> {
        debug_assert_eq!(self.dialect(), Dialect::Postgres);
        self.batch(&format!("PREPARE countersign_describe AS {sql}")).await?;
        let rows = self.fetch(PG_PARAMETERS, Vec::new()).await?;
        self.batch("DEALLOCATE countersign_describe").await?;
        rows.iter().map(|row| row.text(1)).collect()
    }

    /// The columns that can be written; none if there is no such table.
    pub async fn columns(&mut self, table: &[String]) -> Result<Vec<Column>, StoreError> {
        let dialect = self.dialect();
        let rows = match dialect {
            Dialect::Postgres => self.fetch(PG_COLUMNS, vec![Bind::Text(dialect.quote_path(table))]).await?,
            Dialect::MySql => {
                let name = table.last().cloned().unwrap_or_default();
                let (schema, mut binds) = match table {
                    [schema, _] => ("?", vec![Bind::text(schema)]),
                    _ => ("DATABASE()", Vec::new()),
                };
                binds.push(Bind::Text(name));
                let sql = format!(
                    "SELECT CONVERT(column_name USING utf8mb4), CONVERT(data_type USING utf8mb4) \
                     FROM information_schema.columns WHERE table_schema = {schema} AND table_name = ? \
                     AND extra NOT LIKE '%GENERATED%' ORDER BY ordinal_position"
                );
                self.fetch(&sql, binds).await?
            }
            Dialect::Sqlite => {
                let name = table.last().cloned().unwrap_or_default();
                self.fetch("SELECT name, type FROM pragma_table_info(?)", vec![Bind::Text(name)]).await?
            }
        };
        rows.iter().map(|row| Ok(Column { name: row.text(0)?, cast: row.text(1)? })).collect()
    }
}
