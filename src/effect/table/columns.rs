//! A target table's columns, learned once, and how an event's fields meet them.

use crate::debezium::event::ChangeEvent;
use crate::debezium::value::{Row, Value};
use crate::effect::binding::{Unbindable, into_column};
use crate::effect::spec::{TableSpec, UnknownColumns};
use crate::store::column::{self, Written};
use crate::store::{Bind, Column, Dialect, StoreError, Tx};

/// The columns of a table.
pub(super) struct Columns(Vec<Column>);

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

impl Columns {
    pub async fn of(tx: &mut Tx, table: &[String]) -> Result<Self, StoreError> {
        let columns = tx.columns(table).await?;
        if columns.is_empty() {
            return Err(StoreError::Setup(format!("there is no table {} to write to", table.join("."))));
        }
        Ok(Self(columns))
    }

    pub fn find(&self, name: &str, dialect: Dialect) -> Option<&Column> {
        column::find(&self.0, name, dialect)
    }

    /// The placeholder of a column's value; on Postgres it says the type.
    pub fn place(&self, dialect: Dialect, column: &str, index: usize) -> String {
        self.cast(dialect, column, &dialect.placeholder(index))
    }

    /// A text as a value of the column's type, where the database must be told.
    pub fn cast(&self, dialect: Dialect, column: &str, text: &str) -> String {
        match (dialect, self.find(column, dialect)) {
            (Dialect::Postgres, Some(column)) => dialect.cast(text, &column.cast),
            _ => text.to_owned(),
        }
    }

    pub fn written(&self, column: &str, written: Written) -> bool {
        self.0.iter().any(|known| known.name == column && known.written == written)
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
