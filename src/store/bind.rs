//! Values on their way into a statement and rows on their way out, for all three databases.

use std::ops::Range;

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlRow, MySqlTypeInfo};
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::types::BigDecimal;
use sqlx::{Arguments, MySql, Postgres, Row, Type};

use super::dialect::Dialect;
use super::error::StoreError;

/// One bound value. Arrays exist on Postgres alone.
///
/// Nulls have a type: a prepared statement keeps the parameter types of its first use.
#[derive(Clone, Debug, PartialEq)]
pub enum Bind {
    /// A null text.
    Null,
    NullInt,
    NullBytes,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Exact decimal text. MySQL gets it as DECIMAL: a string would be compared and computed as a double.
    Decimal(String),
    Bytes(Vec<u8>),
    Array(Array),
}

/// Values for `unnest`, in the form in which PostgreSQL gets them: many short values in one piece of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    of: Of,
    length: i32,
    nulls: bool,
    /// Each value behind its length.
    values: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Texts,
    Ints,
    Blobs,
}

impl Array {
    pub fn texts<'v>(values: impl IntoIterator<Item = Option<&'v str>>) -> Self {
        Self::of(Of::Texts, values.into_iter().map(|value| value.map(str::as_bytes)))
    }

    pub fn blobs<'v>(values: impl IntoIterator<Item = Option<&'v [u8]>>) -> Self {
        Self::of(Of::Blobs, values)
    }

    pub fn ints(values: impl IntoIterator<Item = i64>) -> Self {
        Self::of(Of::Ints, values.into_iter().map(|value| Some(value.to_be_bytes())))
    }

    fn of(of: Of, values: impl IntoIterator<Item = Option<impl AsRef<[u8]>>>) -> Self {
        let mut array = Self { of, length: 0, nulls: false, values: Vec::new() };
        for value in values {
            array.length += 1;
            match value.as_ref().map(AsRef::as_ref) {
                // A statement is cut long before a value gets there.
                Some(value) => {
                    array.values.extend(i32::try_from(value.len()).unwrap_or(i32::MAX).to_be_bytes());
                    array.values.extend_from_slice(value);
                }
                None => {
                    array.nulls = true;
                    array.values.extend((-1_i32).to_be_bytes());
                }
            }
        }
        array
    }
}

impl Type<Postgres> for Array {
    fn type_info() -> PgTypeInfo {
        <Vec<String> as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for Array {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // The number of the type, as in the catalogue of every PostgreSQL.
        let element = match self.of {
            Of::Texts => 25_i32,
            Of::Ints => 20,
            Of::Blobs => 17,
        };
        // One dimension, whether there are nulls, the type, how many, and the number of the first.
        for number in [1, i32::from(self.nulls), element, self.length, 1] {
            buf.extend(number.to_be_bytes());
        }
        buf.extend_from_slice(&self.values);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(match self.of {
            Of::Texts => <Vec<String> as Type<Postgres>>::type_info(),
            Of::Ints => <Vec<i64> as Type<Postgres>>::type_info(),
            Of::Blobs => <Vec<Vec<u8>> as Type<Postgres>>::type_info(),
        })
    }

    fn size_hint(&self) -> usize {
        20 + self.values.len()
    }
}

impl Bind {
    /// Rows of texts as one array a column, for `unnest`.
    ///
    /// # Errors
    /// A value is no text.
    pub fn texts_by_column(rows: &[Vec<Self>]) -> Result<Vec<Self>, StoreError> {
        let width = rows.first().map_or(0, Vec::len);
        let column = |column: usize| {
            let values: Vec<_> = rows.iter().map(|row| row[column].as_text()).collect::<Result<_, _>>()?;
            Ok(Self::Array(Array::texts(values)))
        };
        (0..width).map(column).collect()
    }

    fn as_text(&self) -> Result<Option<&str>, StoreError> {
        match self {
            Self::Text(text) => Ok(Some(text)),
            Self::Null => Ok(None),
            Self::NullInt
            | Self::NullBytes
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Decimal(_)
            | Self::Bytes(_)
            | Self::Array(_) => {
                Err(StoreError::Unexpected("a value that is no text, for an array of texts".to_owned()))
            }
        }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn opt_text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }

    pub fn opt_bytes(bytes: Option<impl Into<Vec<u8>>>) -> Self {
        bytes.map_or(Self::NullBytes, |bytes| Self::Bytes(bytes.into()))
    }

    pub fn opt_int(int: Option<i64>) -> Self {
        int.map_or(Self::NullInt, Self::Int)
    }

    /// About the bytes that it takes on the wire.
    pub fn size(&self) -> usize {
        match self {
            Self::Null | Self::NullInt | Self::NullBytes | Self::Bool(_) => 1,
            Self::Int(_) | Self::Float(_) => 8,
            Self::Text(text) | Self::Decimal(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Array(array) => array.values.len(),
        }
    }
}

/// Cuts rows of values into statements, by their number and by their bytes.
pub fn cut<R: AsRef<[Bind]>>(rows: Vec<R>, most: usize, most_bytes: usize) -> Vec<Vec<R>> {
    let sizes = rows.iter().map(|row| row.as_ref().iter().map(Bind::size).sum());
    let statements = statements(sizes, most, most_bytes);
    let mut rows = rows.into_iter();
    statements.into_iter().map(|statement| rows.by_ref().take(statement.len()).collect()).collect()
}

fn statements(sizes: impl IntoIterator<Item = usize>, most: usize, most_bytes: usize) -> Vec<Range<usize>> {
    let mut statements = Vec::new();
    let (mut start, mut end, mut bytes) = (0, 0, 0);
    for size in sizes {
        if end > start && (end - start >= most || bytes + size > most_bytes) {
            statements.push(start..end);
            (start, bytes) = (end, 0);
        }
        end += 1;
        bytes += size;
    }
    if end > start {
        statements.push(start..end);
    }
    statements
}

/// Adds every bind to a driver's arguments: first what this driver treats in its own way, then what all take alike.
macro_rules! arguments {
    ($binds:expr, $arguments:ty, $own:expr) => {{
        let mut arguments = <$arguments>::default();
        for bind in $binds {
            let bind = match $own(&mut arguments, bind) {
                Own::Added(added) => {
                    added.map_err(encode_error)?;
                    continue;
                }
                Own::Common(bind) => bind,
            };
            match bind {
                Bind::Null => arguments.add(None::<String>),
                Bind::NullInt => arguments.add(None::<i64>),
                Bind::NullBytes => arguments.add(None::<Vec<u8>>),
                Bind::Bool(value) => arguments.add(value),
                Bind::Int(value) => arguments.add(value),
                Bind::Float(value) => arguments.add(value),
                Bind::Text(value) | Bind::Decimal(value) => arguments.add(value),
                Bind::Bytes(value) => arguments.add(value),
                Bind::Array(_) => Err("arrays are bound on Postgres alone".into()),
            }
            .map_err(encode_error)?;
        }
        Ok(arguments)
    }};
}

enum Own {
    Added(Result<(), BoxDynError>),
    Common(Bind),
}

/// `(…)` of one place each, behind the binds that are there.
pub(super) fn listed<T>(dialect: Dialect, binds: &mut Vec<Bind>, values: &[T], bind: impl Fn(&T) -> Bind) -> String {
    let places: Vec<String> = (0..values.len()).map(|n| dialect.placeholder(binds.len() + n)).collect();
    binds.extend(values.iter().map(bind));
    format!("({})", places.join(", "))
}

/// `FROM … WHERE …` for the rows of a table, called `w`, whose column of bytes is one of these keys, behind the binds
/// that are there and are used in `also`, a condition that ends with `AND`.
///
/// PostgreSQL is asked key by key, in their order: what it plans for a list of them while the table is new and small is
/// to read all of it, and it keeps to that until autovacuum has counted the rows.
pub(super) fn by_keys<K: AsRef<[u8]>>(
    dialect: Dialect,
    binds: &mut Vec<Bind>,
    (table, column): (&str, &str),
    also: &str,
    keys: &[K],
    lock: bool,
) -> String {
    match dialect {
        Dialect::Postgres => {
            binds.push(Bind::Array(Array::blobs(keys.iter().map(|key| Some(key.as_ref())))));
            // Either keeps the inner query from being made one with the outer.
            let apart = if lock { "FOR UPDATE" } else { "OFFSET 0" };
            format!(
                "FROM unnest(CAST(${} AS bytea[])) AS k(key), \
                 LATERAL (SELECT * FROM {table} WHERE {also} {column} = k.key {apart}) AS w",
                binds.len()
            )
        }
        Dialect::MySql | Dialect::Sqlite => {
            let keys = listed(dialect, binds, keys, |key| Bind::Bytes(key.as_ref().to_vec()));
            let lock = match dialect {
                Dialect::MySql if lock => format!(" ORDER BY {column} FOR UPDATE"),
                _ => String::new(),
            };
            format!("FROM {table} AS w WHERE {also} {column} IN {keys}{lock}")
        }
    }
}

pub(super) fn pg_arguments(binds: Vec<Bind>) -> Result<PgArguments, StoreError> {
    arguments!(binds, PgArguments, |arguments: &mut PgArguments, bind| match bind {
        Bind::Array(values) => Own::Added(arguments.add(values)),
        other => Own::Common(other),
    })
}

pub(super) fn mysql_arguments(binds: Vec<Bind>) -> Result<MySqlArguments, StoreError> {
    arguments!(binds, MySqlArguments, |arguments: &mut MySqlArguments, bind| match bind {
        Bind::Decimal(value) => Own::Added(arguments.add(DecimalText(value))),
        other => Own::Common(other),
    })
}

pub(super) fn sqlite_arguments(binds: Vec<Bind>) -> Result<SqliteArguments, StoreError> {
    arguments!(binds, SqliteArguments, |_: &mut SqliteArguments, bind| Own::Common(bind))
}

fn encode_error(error: BoxDynError) -> StoreError {
    StoreError::Unexpected(format!("a value could not be bound: {error}"))
}

/// A decimal by its text, sent with the type of DECIMAL.
struct DecimalText(String);

impl Type<MySql> for DecimalText {
    fn type_info() -> MySqlTypeInfo {
        <BigDecimal as Type<MySql>>::type_info()
    }
}

impl Encode<'_, MySql> for DecimalText {
    fn encode_by_ref(&self, buf: &mut Vec<u8>) -> Result<IsNull, BoxDynError> {
        // Both types stand as length-encoded text in the binary protocol.
        <String as Encode<MySql>>::encode_by_ref(&self.0, buf)
    }
}

/// One row of an answer.
pub enum StoreRow {
    Postgres(PgRow),
    MySql(MySqlRow),
    Sqlite(SqliteRow),
}

impl StoreRow {
    fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::MySql(_) => Dialect::MySql,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub fn opt_text(&self, column: usize) -> Result<Option<String>, StoreError> {
        match self {
            Self::Postgres(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Sqlite(row) => row.try_get(column),
        }
        .map_err(|error| StoreError::from_sqlx(self.dialect(), error))
    }

    pub fn text(&self, column: usize) -> Result<String, StoreError> {
        self.opt_text(column)?.ok_or_else(|| null_in(column))
    }

    pub fn opt_int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        match self {
            Self::Postgres(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Sqlite(row) => row.try_get(column),
        }
        .map_err(|error| StoreError::from_sqlx(self.dialect(), error))
    }

    pub fn int(&self, column: usize) -> Result<i64, StoreError> {
        self.opt_int(column)?.ok_or_else(|| null_in(column))
    }

    /// An array, which Postgres alone has; none where it is NULL.
    pub fn ints(&self, column: usize) -> Result<Vec<i64>, StoreError> {
        let Self::Postgres(row) = self else { return Ok(Vec::new()) };
        let ints: Result<Option<Vec<i64>>, _> = row.try_get(column);
        ints.map(Option::unwrap_or_default).map_err(|error| StoreError::from_sqlx(self.dialect(), error))
    }

    pub fn opt_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::Postgres(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Sqlite(row) => row.try_get(column),
        }
        .map_err(|error| StoreError::from_sqlx(self.dialect(), error))
    }

    pub fn bytes(&self, column: usize) -> Result<Vec<u8>, StoreError> {
        self.opt_bytes(column)?.ok_or_else(|| null_in(column))
    }
}

fn null_in(column: usize) -> StoreError {
    StoreError::Unexpected(format!("column {column} is null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_becomes_null_on_its_way_into_an_array() {
        assert_eq!(Bind::Null.as_text().unwrap(), None);
        assert_eq!(Bind::text("x").as_text().unwrap(), Some("x"));
        for bind in [Bind::Int(1), Bind::Bytes(vec![1]), Bind::Bool(true), Bind::Decimal("1".to_owned())] {
            assert!(bind.as_text().is_err());
            assert!(Bind::texts_by_column(&[vec![Bind::text("x")], vec![bind]]).is_err());
        }
    }

    #[test]
    fn statements_are_cut_by_rows_and_by_bytes_and_a_row_that_is_too_large_has_one_of_its_own() {
        assert_eq!(statements([3, 3, 1, 1], 2, 4), [0..1, 1..3, 3..4]);
        assert_eq!(statements([1, 9, 1], 10, 4), [0..1, 1..2, 2..3]);
        assert_eq!(statements([1; 5], 2, 100), [0..2, 2..4, 4..5]);
        assert!(statements([], 2, 4).is_empty());
    }
}
