//! `columns`: types for values that came without a schema.
//!
//! Where a schema spoke, it decides. Two things it cannot say are settled here all the same: that an `int64` is
//! a `BIGINT UNSIGNED` in Debezium's `long` mode, and that 16 bytes are a UUID.

use super::ColumnType;
use crate::debezium::event::{Fault, Shape};
use crate::debezium::value::{Row, Value};
use crate::debezium::{convert, decimal, temporal};
use compact_str::CompactString;

/// How the row came: it decides how a decimal's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub shape: Shape,
    pub typed: bool,
}

/// Gives the declared columns of `row` their types. What is absent, null or unknown stays so.
///
/// # Errors
/// `type_mismatch` or `out_of_range`, naming the column. The row may then be converted in part.
pub fn apply(columns: &[(String, ColumnType)], row: &mut Row, origin: Origin) -> Result<(), Fault> {
    for (name, column) in columns {
        if let Some(value) = row.path_mut(name) {
            let converted =
                if origin.typed { settle(value, *column) } else { convert_value(value, *column, origin.shape) };
            match converted {
                Ok(Some(converted)) => *value = converted,
                Ok(None) => {}
                Err(why) => {
                    return Err(Fault::new("type_mismatch", format!("column {name} is declared {column}: {why}")));
                }
            }
        }
    }
    Ok(())
}

type Converted = Result<Option<Value>, &'static str>;

/// What a schema leaves open.
fn settle(value: &Value, column: ColumnType) -> Converted {
    match (column, value) {
        (ColumnType::Uint, Value::Int(int)) if *int < 0 => Ok(Some(unsigned(*int))),
        (ColumnType::Uuid, Value::Bytes(bytes)) => uuid_bytes(bytes).map(Some),
        _ => Ok(None),
    }
}

fn convert_value(value: &Value, column: ColumnType, shape: Shape) -> Converted {
    if matches!(value, Value::Null | Value::Unavailable) {
        return Ok(None);
    }
    let converted = match column {
        ColumnType::Bool => boolean(value)?,
        ColumnType::Int => integer(value)?,
        ColumnType::Uint => unsigned_value(value)?,
        ColumnType::Float => Value::Float(float(value)?),
        ColumnType::Text => Value::Text(match value {
            Value::Text(_) | Value::Int(_) | Value::Number(_) | Value::Bool(_) => exact_text(value),
            _ => return Err("no text"),
        }),
        ColumnType::Bytes => Value::Bytes(convert::bytes(value).ok_or("no bytes in base64")?),
        ColumnType::Bits(length) => match value {
            // BIT(1) comes as a boolean and stays one.
            Value::Bool(_) => value.clone(),
            _ => {
                let bytes = convert::bytes(value).ok_or("no bytes in base64")?;
                Value::Bits(convert::bits(&bytes, usize::try_from(length).ok()).into())
            }
        },
        ColumnType::Decimal { precision, scale } => decimal_value(value, precision, scale, shape)?,
        ColumnType::Date => Value::Date(match value {
            Value::Int(days) if i32::try_from(*days).is_ok() => temporal::date(*days).into(),
            Value::Text(text) => temporal::date_text(text).ok_or("no date")?.into(),
            _ => return Err("no date"),
        }),
        ColumnType::Time(unit) => Value::Time(match value {
            Value::Int(count) => temporal::time(*count, unit).into(),
            Value::Text(text) => temporal::time_text(text).ok_or("no time")?.into(),
            _ => return Err("no time"),
        }),
        ColumnType::Timestamp(unit) => Value::Timestamp(match value {
            Value::Int(count) => temporal::timestamp(*count, unit).into(),
            Value::Text(text) => temporal::timestamp_text(text).ok_or("no timestamp")?.into(),
            _ => return Err("no timestamp"),
        }),
        ColumnType::TimestampTz => match value {
            Value::Text(text) => {
                Value::TimestampTz(temporal::zoned_timestamp(text).ok_or("no timestamp with a zone")?.into())
            }
            _ => return Err("no timestamp with a zone"),
        },
        ColumnType::Uuid => uuid(value)?,
        ColumnType::Json => match value {
            Value::Text(text) => match convert::json_text(text.clone()) {
                Value::Text(_) => return Err("no json"),
                json => json,
            },
            // A nested document is what it is.
            _ => return Ok(None),
        },
    };
    Ok(Some(converted))
}

/// MySQL's `tinyint(1)` comes as 0 or 1.
fn boolean(value: &Value) -> Result<Value, &'static str> {
    match value {
        Value::Bool(bool) => Ok(Value::Bool(*bool)),
        Value::Int(0) => Ok(Value::Bool(false)),
        Value::Int(1) => Ok(Value::Bool(true)),
        Value::Text(text) if &**text == "false" => Ok(Value::Bool(false)),
        Value::Text(text) if &**text == "true" => Ok(Value::Bool(true)),
        _ => Err("no boolean"),
    }
}

fn integer(value: &Value) -> Result<Value, &'static str> {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Number(digits) | Value::Text(digits) => whole(digits).ok_or("no integer"),
        _ => Err("no integer"),
    }
}

/// A text of digits, or of a number whose fraction is zero.
fn whole(text: &str) -> Option<Value> {
    let digits = decimal::with_scale(text, 0)?;
    Some(digits.parse().map_or_else(|_| Value::Number(digits.into()), Value::Int))
}

/// A negative integer is one from 2^63 upwards (`bigint.unsigned.handling.mode=long`), a base64 text the unscaled
/// decimal of `precise`.
fn unsigned_value(value: &Value) -> Result<Value, &'static str> {
    match value {
        Value::Int(int) if *int < 0 => Ok(unsigned(*int)),
        Value::Int(_) => Ok(value.clone()),
        Value::Number(digits) => match whole(digits) {
            Some(whole) if !digits.starts_with('-') => Ok(whole),
            _ => Err("no unsigned integer"),
        },
        Value::Text(text) => {
            let digits =
                padded(text).and_then(|bytes| decimal::from_unscaled(&bytes, 0)).ok_or("no unsigned integer")?;
            if digits.starts_with('-') { Err("negative") } else { whole(&digits).ok_or("no unsigned integer") }
        }
        _ => Err("no unsigned integer"),
    }
}

fn unsigned(int: i64) -> Value {
    Value::Number(int.cast_unsigned().to_string().into())
}

fn float(value: &Value) -> Result<f64, &'static str> {
    match value {
        Value::Int(_) | Value::Number(_) => exact_text(value).parse().map_err(|_| "no number"),
        Value::Text(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err("no number"),
        },
        _ => Err("no number"),
    }
}

/// A row of Debezium's holds base64 (`decimal.handling.mode=precise`) or a number; with `string` mode nothing has to
/// be declared, and only a text with a point, which base64 does not know, is taken for such a one: `1234` could be
/// either. In a plain or outbox value a text that is a number is that number.
fn decimal_value(value: &Value, precision: u32, scale: u32, shape: Shape) -> Result<Value, &'static str> {
    let places = i32::try_from(scale).map_err(|_| "the scale is too large")?;
    let text = match value {
        Value::Int(_) | Value::Number(_) => number(&exact_text(value), places)?,
        Value::Text(text) => {
            let spelled = match shape {
                Shape::Envelope | Shape::Flattened => text.contains('.'),
                Shape::Outbox | Shape::Plain => decimal::normal(text).is_some(),
            };
            if spelled {
                number(text, places)?
            } else {
                let bytes = padded(text).ok_or("no unscaled bytes in base64; a decimal as text is declared string")?;
                decimal::from_unscaled(&bytes, places).ok_or("no decimal")?
            }
        }
        _ => return Err("no decimal"),
    };
    let whole = text.trim_start_matches('-').split('.').next().unwrap_or_default().trim_start_matches('0');
    if whole.len() > precision.saturating_sub(scale) as usize {
        return Err("more digits than declared");
    }
    Ok(Value::Decimal(text.into()))
}

fn number(text: &str, scale: i32) -> Result<String, &'static str> {
    decimal::with_scale(text, scale).ok_or("no decimal, or more fraction digits than declared")
}

/// Base64 as Jackson writes it, with its padding.
fn padded(text: &str) -> Option<Box<[u8]>> {
    if text.len().is_multiple_of(4) { convert::bytes(&Value::Text(text.into())) } else { None }
}

fn uuid(value: &Value) -> Result<Value, &'static str> {
    match value {
        Value::Text(text) => match convert::uuid_text(text.clone()) {
            uuid @ Value::Uuid(_) => Ok(uuid),
            _ => uuid_bytes(&convert::bytes(value).ok_or("no uuid")?),
        },
        Value::Bytes(bytes) => uuid_bytes(bytes),
        _ => Err("no uuid"),
    }
}

fn uuid_bytes(bytes: &[u8]) -> Result<Value, &'static str> {
    <[u8; 16]>::try_from(bytes).map(|bytes| Value::Uuid(convert::uuid_from_bytes(bytes).into())).map_err(|_| "no uuid")
}

fn exact_text(value: &Value) -> CompactString {
    value.as_text().map(CompactString::from).unwrap_or_default()
}

#[cfg(test)]
mod tests;
