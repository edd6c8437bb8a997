//! A target table's columns, learned once, and how an event's fields meet them.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use super::binding::{Unbindable, bind};
use super::spec::{TableSpec, UnknownColumns};
use crate::debezium::value::{Row, Value};
use crate::store::{Bind, Dialect, StoreError, Tx};

/// The columns of a table by name.
pub(super) struct Columns {
    casts: HashMap<String, String>,
}

/// A value on its way into a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub column: String,
    pub bind: Bind,
}

/// The fields of a row as cells, and whether the row is whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cells {
    pub cells: Vec<Cell>,
    /// Columns whose value the connector did not send.
    pub unavailable: Vec<String>,
}

/// Learns the columns at the first use and forgets them when asked to.
#[derive(Default)]
pub(super) struct ColumnCache(RwLock<Option<Arc<Columns>>>);

impl ColumnCache {
    pub async fn get(&self, tx: &mut Tx, table: &[String]) -> Result<Arc<Columns>, StoreError> {
        if let Some(columns) = &*self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Ok(Arc::clone(columns));
        }
        let found = tx.columns(table).await?;
        if found.is_empty() {
            return Err(StoreError::Setup(format!("there is no table {} to write to", table.join("."))));
        }
        let columns = Arc::new(Columns { casts: found.into_iter().map(|column| (column.name, column.cast)).collect() });
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::clone(&columns));
        Ok(columns)
    }

    pub fn forget(&self) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }
}

impl Columns {
    /// The placeholder of a column's value; on Postgres it says the type.
    pub fn place(&self, dialect: Dialect, column: &str, index: usize) -> String {
        let placeholder = dialect.placeholder(index);
        match (dialect, self.casts.get(column)) {
            (Dialect::Postgres, Some(cast)) => format!("CAST(CAST({placeholder} AS text) AS {cast})"),
            _ => placeholder,
        }
    }

    /// The cells of a row. A field that the table lacks is an error of the set-up (or passed over, if the route
    /// says so), a value that cannot be bound one of the message.
    pub fn cells(
        &self,
        spec: &TableSpec,
        row: &Row,
        dialect: Dialect,
    ) -> Result<Result<Cells, Unbindable>, StoreError> {
        let mut cells = Cells::default();
        for (target, field) in &spec.rename {
            if row.get(field).is_none() {
                let reason = format!("the event has no field {field}, which is to fill column {target}");
                return Ok(Err(Unbindable { code: "missing_field", reason }));
            }
        }
        for (field, value) in row.iter() {
            let column = spec.rename.iter().find(|(_, from)| from == field).map_or(field, |(target, _)| target);
            if !self.casts.contains_key(column) {
                match spec.unknown_columns {
                    UnknownColumns::Ignore => continue,
                    UnknownColumns::Fail => {
                        return Err(StoreError::Setup(format!(
                            "table {} has no column {column}: add it, rename the field, or set `unknown_columns = \"ignore\"`",
                            spec.table.join(".")
                        )));
                    }
                }
            }
            if *value == Value::Unavailable {
                cells.unavailable.push(column.to_owned());
                continue;
            }
            match bind(value, dialect) {
                Ok(bind) => cells.cells.push(Cell { column: column.to_owned(), bind }),
                Err(Unbindable { code, reason }) => {
                    return Ok(Err(Unbindable { code, reason: format!("column {column}: {reason}") }));
                }
            }
        }
        Ok(Ok(cells))
    }
}
