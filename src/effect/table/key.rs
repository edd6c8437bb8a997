//! Which row of the target an event is about, and which one it was before its key changed.

use sha2::{Digest as _, Sha256};

use super::columns::{Cell, Columns};
use crate::debezium::event::{ChangeEvent, KeyChange};
use crate::debezium::value::{Row, Value};
use crate::effect::binding::Unbindable;
use crate::effect::spec::TableSpec;
use crate::store::column::Written;
use crate::store::{Bind, Dialect, StoreError};

/// The key of one row of the target.
#[derive(Clone)]
pub(super) struct RowKey {
    pub cells: Vec<Cell>,
    pub hash: [u8; 32],
}

/// What the other half of a change of key is about.
pub(super) enum Other {
    /// No change of key, or one of which the other key cannot be had.
    None,
    /// A change of fields that are not in the target's key: the row is the same.
    SameRow,
    Row(RowKey),
}

/// Key columns with their values.
type Values<'a> = Vec<(&'a str, &'a Value)>;

impl RowKey {
    /// The key of the row after the event, or of the one that it deletes.
    pub fn of(
        spec: &TableSpec,
        columns: &Columns,
        dialect: Dialect,
        event: &ChangeEvent,
    ) -> Result<Result<Self, Unbindable>, StoreError> {
        match own_values(spec, event) {
            Ok(values) => Self::bind(spec, columns, dialect, event, &values),
            Err(unbindable) => Ok(Err(unbindable)),
        }
    }

    fn bind(
        spec: &TableSpec,
        columns: &Columns,
        dialect: Dialect,
        event: &ChangeEvent,
        values: &Values<'_>,
    ) -> Result<Result<Self, Unbindable>, StoreError> {
        let mut cells = Vec::with_capacity(values.len());
        let mut hash = Sha256::new();
        for (column, value) in values {
            let cell = match columns.cell(spec, (column, value), dialect, event)? {
                Ok(cell) => cell,
                Err(unbindable) => return Ok(Err(unbindable)),
            };
            let text = value.as_text().unwrap_or_default();
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
            cells.push(cell);
        }
        Ok(Ok(Self { cells, hash: hash.finalize().into() }))
    }

    /// `a = $1 AND b = $2`, the parameters counted from this one on.
    pub fn condition(&self, dialect: Dialect, columns: &Columns, from: usize) -> (String, Vec<Bind>) {
        let equal = self.cells.iter().enumerate().map(|(n, cell)| {
            format!("{} = {}", dialect.quote(&cell.column), columns.place(dialect, &cell.column, from + n))
        });
        (equal.collect::<Vec<_>>().join(" AND "), self.cells.iter().map(|cell| cell.bind.clone()).collect())
    }

    /// This key and not that one. A collation may take both for the same: then it is one row, which must not be
    /// mistaken for another.
    pub fn but_not(&self, other: &Self, dialect: Dialect, columns: &Columns) -> (String, Vec<Bind>) {
        let (this, mut binds) = self.condition(dialect, columns, 0);
        let (that, others) = other.condition(dialect, columns, binds.len());
        binds.extend(others);
        (format!("{this} AND NOT ({that})"), binds)
    }

    pub fn has(&self, column: &str) -> bool {
        self.cells.iter().any(|cell| cell.column == column)
    }
}

impl Other {
    /// The other key as the header names it. Where that cannot be read as the record's own key is, there is none: a
    /// delete and a create then are what they say.
    pub fn of(
        spec: &TableSpec,
        columns: &Columns,
        dialect: Dialect,
        event: &ChangeEvent,
        key: &RowKey,
    ) -> Result<Self, StoreError> {
        let Some(values) = other_values(spec, event) else { return Ok(Self::None) };
        // An UPDATE cannot set such a column.
        if key.cells.iter().any(|cell| columns.written(&cell.column, Written::Identity)) {
            return Ok(Self::None);
        }
        Ok(match RowKey::bind(spec, columns, dialect, event, &values)? {
            Ok(other) if other.hash == key.hash => Self::SameRow,
            Ok(other) => Self::Row(other),
            Err(_) => Self::None,
        })
    }

    pub fn row(&self) -> Option<&RowKey> {
        match self {
            Self::Row(key) => Some(key),
            Self::None | Self::SameRow => None,
        }
    }
}

fn field<'a>(spec: &'a TableSpec, column: &'a str) -> &'a str {
    spec.rename.iter().find(|(target, _)| target == column).map_or(column, |(_, from)| from)
}

/// From the row after the change, else the one before it, else the record's key: a delete may come without a
/// `before`, and the key columns of `before` are there even where the others are not.
fn own_value<'a>(event: &'a ChangeEvent, field: &str) -> Option<&'a Value> {
    let record_key = match &event.key {
        Some(Value::Struct(row)) => Some(row),
        _ => None,
    };
    let places = [event.after.as_ref(), event.before.as_ref(), record_key];
    places.into_iter().flatten().find_map(|row: &Row| row.get(field).filter(|value| **value != Value::Null))
}

fn own_values<'a>(spec: &'a TableSpec, event: &'a ChangeEvent) -> Result<Values<'a>, Unbindable> {
    let values = spec.key.iter().map(|column| {
        let value = own_value(event, field(spec, column)).ok_or_else(|| Unbindable {
            code: "missing_key",
            reason: format!("neither the row nor the record's key has a value for key column {column}"),
        })?;
        Ok((column.as_str(), value))
    });
    values.collect()
}

/// None unless the header's key has every column of the target's key, each of the kind that the record itself has:
/// without a schema a decimal is base64 in a record and a number in a header.
fn other_values<'a>(spec: &'a TableSpec, event: &'a ChangeEvent) -> Option<Values<'a>> {
    let (KeyChange::CreatedFrom(Value::Struct(other)) | KeyChange::MovedTo(Value::Struct(other))) =
        event.key_change.as_ref()?
    else {
        return None;
    };
    let values = spec.key.iter().map(|column| {
        let name = field(spec, column);
        let value = other.get(name)?;
        let own = own_value(event, name)?;
        (std::mem::discriminant(value) == std::mem::discriminant(own)).then_some((column.as_str(), value))
    });
    values.collect()
}
