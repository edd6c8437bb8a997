//! Whether a column holds a value exactly, and the text or type in which the database reads it there.
//!
//! Databases round, cut, pad and guess where they can. What they would change is refused here, so that it is parked
//! with its column's name; what they refuse themselves is left to them.

mod moment;
mod mysql;
mod number;
mod postgres;
mod spatial;
mod sqlite;

use std::borrow::Cow;

use crate::debezium::json::parse_text;
use crate::debezium::render::json;
use crate::debezium::value::Value;
use crate::store::{Bind, Dialect, Holds};

/// Why a column does not hold a value; without the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub code: &'static str,
    pub reason: String,
}

impl Misfit {
    fn kind(reason: impl Into<String>) -> Self {
        Self { code: "type_mismatch", reason: reason.into() }
    }

    fn range(reason: impl Into<String>) -> Self {
        Self { code: "out_of_range", reason: reason.into() }
    }

    fn wrong(value: &Value, what: &str) -> Self {
        Self::kind(format!("it holds {what}, the value is {}", kind(value)))
    }
}

/// A value for a place of which `holds` is known.
///
/// `opaque`: it came from Debezium without a schema, so that a text may as well be the base64 of a decimal or of bytes.
pub(super) fn fit(value: &Value, holds: &Holds, dialect: Dialect, opaque: bool) -> Result<Bind, Misfit> {
    match value {
        Value::Null => return Ok(Bind::Null),
        Value::Unavailable => return Err(unavailable()),
        Value::Text(text) if opaque && ambiguous(text, holds) => {
            let reason = "a text without a schema may be base64: give the field its type in `columns`";
            return Err(Misfit::kind(reason));
        }
        _ => {}
    }
    match dialect {
        Dialect::Postgres => postgres::text(value, holds).map(Bind::opt_text),
        Dialect::MySql => mysql::bind(value, holds),
        Dialect::Sqlite => match holds {
            Holds::Affinity(affinity) => sqlite::bind(value, *affinity),
            _ => sqlite::bind(value, crate::store::column::Affinity::None),
        },
    }
}

/// A value for a place of which nothing is known: a parameter on MySQL or SQLite that stands in an expression. MySQL
/// gets numbers as numbers, for it computes with strings as doubles.
pub(super) fn anywhere(value: &Value, dialect: Dialect) -> Result<Bind, Misfit> {
    match (value, dialect) {
        (Value::Null, _) => Ok(Bind::Null),
        (Value::Unavailable, _) => Err(unavailable()),
        (_, Dialect::Postgres) => fit(value, &Holds::Other, dialect, false),
        (_, Dialect::MySql) => mysql::anywhere(value),
        (_, Dialect::Sqlite) => sqlite::anywhere(value),
    }
}

fn unavailable() -> Misfit {
    Misfit {
        code: "unavailable",
        reason: "the connector did not send the value of this unchanged column (TOAST)".to_owned(),
    }
}

fn ambiguous(text: &str, holds: &Holds) -> bool {
    use crate::store::column::Affinity;
    match holds {
        Holds::Int { .. }
        | Holds::Flag { .. }
        | Holds::Decimal { .. }
        | Holds::Float32
        | Holds::Float64
        | Holds::Year => {}
        Holds::Affinity(Affinity::Integer | Affinity::Real | Affinity::Decimal | Affinity::Numeric) => {
            if number::Extent::of(text).is_none() {
                return false;
            }
        }
        Holds::Bytes { .. } | Holds::Bits { .. } => return true,
        _ => return false,
    }
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
}

/// A value in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Unavailable => "unknown",
        Value::Bool(_) => "a boolean",
        Value::Int(_) | Value::Number(_) => "a number",
        Value::Decimal(_) => "a decimal",
        Value::Float(_) => "a float",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
        Value::Date(_) => "a date",
        Value::Time(_) | Value::TimeTz(_) => "a time",
        Value::Timestamp(_) | Value::TimestampTz(_) => "a timestamp",
        Value::Interval(_) => "an interval",
        Value::Bits(_) => "bits",
        Value::Uuid(_) => "a uuid",
        Value::Json(_) => "json",
        Value::Geometry { .. } => "a geometry",
        Value::Array(_) => "an array",
        Value::Struct(_) => "a struct",
    }
}

/// A finite number's text.
fn finite<'a>(value: &'a Value, what: &str) -> Result<Cow<'a, str>, Misfit> {
    match value {
        Value::Float(float) if !float.is_finite() => Err(Misfit::range("it holds neither NaN nor infinity")),
        Value::Text(_) => number::text(value).ok_or_else(|| Misfit::kind(format!("the text is no {what}"))),
        _ => number::text(value).ok_or_else(|| Misfit::wrong(value, &format!("a {what}"))),
    }
}

fn whole(value: &Value, least: i128, most: i128) -> Result<i128, Misfit> {
    if let Value::Int(int) = value
        && (least..=most).contains(&i128::from(*int))
    {
        return Ok(i128::from(*int));
    }
    let text = finite(value, "number")?;
    if number::Extent::of(&text).is_some_and(|extent| extent.fraction > 0) {
        return Err(Misfit::range("it holds whole numbers, the value has a fraction"));
    }
    let whole = number::whole(&text).filter(|whole| (least..=most).contains(whole));
    whole.ok_or_else(|| Misfit::range(format!("it holds numbers from {least} to {most}, the value is beyond")))
}

fn decimal<'a>(value: &'a Value, precision: Option<i64>, scale: i64) -> Result<Cow<'a, str>, Misfit> {
    let text = finite(value, "number")?;
    let Some(extent) = number::Extent::of(&text) else { return Ok(text) };
    if extent.fraction > scale {
        let sent = extent.fraction.max(0);
        return Err(Misfit::range(format!("it keeps {scale} digits after the point, the value has {sent}")));
    }
    match precision {
        Some(precision) if extent.whole > precision - scale => {
            let (most, sent) = (precision - scale, extent.whole);
            Err(Misfit::range(format!("it holds {most} digits before the point, the value has {sent}")))
        }
        _ => Ok(text),
    }
}

fn double(value: &Value) -> Result<f64, Misfit> {
    match value {
        Value::Float(float) if float.is_finite() => Ok(*float),
        _ => number::double(&finite(value, "number")?).ok_or_else(inexact),
    }
}

fn single(value: &Value) -> Result<f32, Misfit> {
    number::single(&finite(value, "number")?).ok_or_else(inexact)
}

fn inexact() -> Misfit {
    Misfit::range("a floating point number cannot hold all digits of the value")
}

/// What a text column gets. Documents are JSON there; bytes have no text that everybody would agree on.
fn text<'a>(value: &'a Value) -> Result<Cow<'a, str>, Misfit> {
    match value {
        Value::Bytes(_) | Value::Geometry { .. } => Err(Misfit::wrong(value, "text")),
        other => other.as_text().ok_or_else(|| Misfit::wrong(value, "text")),
    }
}

fn chars<'a>(text: Cow<'a, str>, most: Option<u64>) -> Result<Cow<'a, str>, Misfit> {
    limited(text, most, "characters", |text| text.chars().count() as u64)
}

fn limited<'a>(
    text: Cow<'a, str>,
    most: Option<u64>,
    unit: &str,
    length: impl Fn(&str) -> u64,
) -> Result<Cow<'a, str>, Misfit> {
    // Bytes are never fewer than characters.
    if let Some(most) = most.filter(|most| text.len() as u64 > *most) {
        let sent = length(&text);
        if sent > most {
            return Err(Misfit::range(format!("it holds {most} {unit}, the value has {sent}")));
        }
    }
    Ok(text)
}

/// What a JSON column gets.
fn document(value: &Value) -> Result<Cow<'_, str>, Misfit> {
    match value {
        Value::Json(text) => Ok(Cow::Borrowed(text)),
        Value::Text(text) => match parse_text(text) {
            Ok(_) => Ok(Cow::Borrowed(text)),
            Err(_) => Err(Misfit::kind("the text is no json")),
        },
        // Digits, not a text of digits.
        Value::Decimal(digits) => Ok(Cow::Borrowed(digits)),
        Value::Bytes(_) | Value::Geometry { .. } => Err(Misfit::wrong(value, "json")),
        Value::Float(float) if !float.is_finite() => Err(Misfit::range("json knows neither NaN nor infinity")),
        other => Ok(Cow::Owned(json(other))),
    }
}

/// As many bits as the column has.
fn bits(value: &Value) -> Result<Cow<'_, str>, Misfit> {
    match value {
        Value::Bits(bits) => Ok(Cow::Borrowed(bits)),
        // BIT(1) comes as a boolean.
        Value::Bool(bit) => Ok(Cow::Borrowed(if *bit { "1" } else { "0" })),
        Value::Int(bit @ 0..=1) => Ok(Cow::Borrowed(if *bit == 1 { "1" } else { "0" })),
        Value::Text(text) if !text.is_empty() && text.bytes().all(|b| matches!(b, b'0' | b'1')) => {
            Ok(Cow::Borrowed(text))
        }
        other => Err(Misfit::wrong(other, "bits")),
    }
}
