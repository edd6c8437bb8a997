//! A target table's columns, learned once, and how an event's fields meet them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::binding::{Unbindable, into_column};
use super::spec::{TableSpec, UnknownColumns};
use crate::debezium::event::ChangeEvent;
use crate::debezium::value::{Row, Value};
use crate::store::column::Written;
use crate::store::{Bind, Column, Dialect, StoreError, Tx};

/// The columns of a table.
pub(super) struct Columns {
    columns: Vec<Column>,
    learned: Instant,
}

/// What was learned is looked at again after this: a column that was made narrower would round without an error.
pub(super) const LEARNED_FOR: Duration = Duration::from_secs(10);

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
    /// What is known, and whether it was asked for just now.
    pub async fn get(&self, tx: &mut Tx, table: &[String]) -> Result<(Arc<Columns>, bool), StoreError> {
        if let Some(columns) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && columns.learned.elapsed() < LEARNED_FOR
        {
            return Ok((Arc::clone(columns), false));
        }
        Ok((self.learn(tx, table).await?, true))
    }

    pub async fn learn(&self, tx: &mut Tx, table: &[String]) -> Result<Arc<Columns>, StoreError> {
        let columns = tx.columns(table).await?;
        if columns.is_empty() {
            return Err(StoreError::Setup(format!("there is no table {} to write to", table.join("."))));
        }
        let columns = Arc::new(Columns { columns, learned: Instant::now() });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&columns));
        Ok(columns)
    }

    pub fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Columns {
    /// A column by its name; on MySQL and SQLite letter case tells no two apart.
    pub fn find(&self, name: &str, dialect: Dialect) -> Option<&Column> {
        let exact = self.columns.iter().find(|column| column.name == name);
        exact.or_else(|| match dialect {
            Dialect::Postgres => None,
            Dialect::MySql | Dialect::Sqlite => {
                self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
            }
        })
    }

    /// The placeholder of a column's value; on Postgres it says the type.
    pub fn place(&self, dialect: Dialect, column: &str, index: usize) -> String {
        let placeholder = dialect.placeholder(index);
        match (dialect, self.find(column, dialect)) {
            (Dialect::Postgres, Some(column)) => dialect.cast(&placeholder, &column.cast),
            _ => placeholder,
        }
    }

    pub fn written(&self, column: &str, written: Written) -> bool {
        self.columns.iter().any(|known| known.name == column && known.written == written)
    }

    /// The cell of a value, for a field that the table has.
    pub fn cell(
        &self,
        spec: &TableSpec,
        (name, value): (&str, &Value),
        dialect: Dialect,
        event: &ChangeEvent,
    ) -> Result<Result<Cell, Unbindable>, StoreError> {
        let Some(column) = self.find(name, dialect) else { return Err(unknown(spec, name)) };
        let cell = into_column(value, column, dialect, event);
        Ok(cell.map(|bind| Cell { column: column.name.clone(), bind }))
    }

    /// The cells of a row. A field that the table lacks is an error of the set-up (or passed over, if the route
    /// says so), a value that cannot be bound one of the message. What the database generates is left out.
    pub fn cells(
        &self,
        spec: &TableSpec,
        row: &Row,
        dialect: Dialect,
        event: &ChangeEvent,
    ) -> Result<Result<Cells, Unbindable>, StoreError> {
        let mut cells = Cells::default();
        for (target, field) in &spec.rename {
            if row.get(field).is_none() {
                let reason = format!("the event has no field {field}, which is to fill column {target}");
                return Ok(Err(Unbindable { code: "missing_field", reason }));
            }
        }
        for (field, value) in row.iter() {
            let name = spec.rename.iter().find(|(_, from)| from == field).map_or(field, |(target, _)| target);
            match self.find(name, dialect) {
                None if spec.unknown_columns == UnknownColumns::Ignore => {}
                Some(column) if column.written == Written::Generated => {}
                Some(column) if *value == Value::Unavailable => cells.unavailable.push(column.name.clone()),
                None | Some(_) => match self.cell(spec, (name, value), dialect, event)? {
                    Ok(cell) => cells.cells.push(cell),
                    Err(unbindable) => return Ok(Err(unbindable)),
                },
            }
        }
        Ok(Ok(cells))
    }
}

fn unknown(spec: &TableSpec, column: &str) -> StoreError {
    StoreError::Setup(format!(
        "table {} has no column {column}: add it, rename the field, or set `unknown_columns = \"ignore\"`",
        spec.table.join(".")
    ))
}
