//! Values by their schema: the wire forms of Debezium's semantic types to typed [`Value`]s.
//!
//! Works on decoded values, not on JSON text. Bytes may be base64 text (JSON) or bytes (Avro).

use std::mem;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use compact_str::CompactString;

use super::event::Fault;
use super::placeholder::Placeholder;
use super::schema::{Kind, Schema};
use super::value::{Row, Value};
use super::{decimal, json, temporal};

/// Jackson writes padding, other producers leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// PostgreSQL reports `Integer.MAX_VALUE` for `bit varying` without a length; nobody wants that padding.
const MAX_BIT_PADDING: usize = 1 << 16;

/// How values that break their schema are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Every one is a fault. A null in a required field among them: MySQL's zero date in a `NOT NULL` column arrives
    /// so, and storing NULL would hide it.
    Full,
    /// A null in a required field is a null: `before` of a table with default replica identity knows only the key.
    Nulls,
    /// What does not fit is left out as unknown: for finding out whose message a faulty record is.
    Salvage,
}

/// A row by its schema. The field of a column that the connector did not know becomes [`Value::Unavailable`]; a
/// field that the schema does not name stays as it came, and what is absent stays absent.
pub fn row(
    mut row: Row,
    schema: Option<&Schema>,
    strictness: Strictness,
    placeholder: &Placeholder,
) -> Result<Row, Fault> {
    for (at, (name, value)) in row.iter_mut().enumerate() {
        if placeholder.stands_in(value) {
            *value = Value::Unavailable;
            continue;
        }
        let Some(field) = schema.and_then(|schema| schema.field(at, name)) else { continue };
        *value = match convert(mem::replace(value, Value::Null), field, strictness) {
            Ok(converted) => converted,
            Err(_) if strictness == Strictness::Salvage => Value::Unavailable,
            Err(mismatch) => return Err(mismatch.inside(name).fault()),
        };
    }
    Ok(row)
}

/// A single value by its schema: a key, a plain payload.
pub fn value(value: Value, schema: &Schema, strictness: Strictness) -> Result<Value, Fault> {
    convert(value, schema, strictness).map_err(Mismatch::fault)
}

/// Base64 text, or bytes as they are.
pub fn bytes(value: &Value) -> Option<Box<[u8]>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        Value::Text(text) => BASE64.decode(text.as_bytes()).ok().map(Vec::into_boxed_slice),
        _ => None,
    }
}

/// Bits of Debezium's little-endian bytes, most significant first, padded to the declared length.
pub fn bits(bytes: &[u8], length: Option<usize>) -> String {
    let mut all: String = bytes.iter().rev().map(|byte| format!("{byte:08b}")).collect();
    let significant = all.trim_start_matches('0').len();
    let width = length.filter(|length| *length <= MAX_BIT_PADDING).unwrap_or(1).max(significant).max(1);
    if all.len() > width { all.split_off(all.len() - width) } else { format!("{all:0>width$}") }
}

/// A JSON column's text where it is JSON, any other text as text.
pub fn json_text(text: CompactString) -> Value {
    if json::parse_text(&text).is_ok() { Value::Json(text) } else { Value::Text(text) }
}

/// A UUID in lower case where it is one, any other text as text.
pub fn uuid_text(text: CompactString) -> Value {
    let mut text = text;
    let shaped = text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        });
    if !shaped {
        return Value::Text(text);
    }
    text.make_ascii_lowercase();
    Value::Uuid(text)
}

/// 16 bytes as a UUID's text.
pub fn uuid_from_bytes(bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Where a value does not fit, from the inside out.
struct Mismatch {
    path: Vec<CompactString>,
    code: &'static str,
    why: &'static str,
}

impl Mismatch {
    fn new(why: &'static str) -> Self {
        Self { path: Vec::new(), code: "type_mismatch", why }
    }

    fn inside(mut self, name: &str) -> Self {
        self.path.push(name.into());
        self
    }

    fn fault(self) -> Fault {
        let mut path = self.path;
        path.reverse();
        let place = if path.is_empty() { "the value".to_owned() } else { format!("field {}", path.join(".")) };
        Fault::new(self.code, format!("{place}: {}", self.why))
    }
}

fn convert(value: Value, schema: &Schema, strictness: Strictness) -> Result<Value, Mismatch> {
    if matches!(value, Value::Null) {
        return match strictness {
            Strictness::Full if !schema.optional => {
                Err(Mismatch { path: Vec::new(), code: "null_in_required", why: "null in a required field" })
            }
            Strictness::Full | Strictness::Nulls | Strictness::Salvage => Ok(Value::Null),
        };
    }
    match &schema.kind {
        Kind::Bool => expect(value, "no boolean", |v| matches!(v, Value::Bool(_))),
        Kind::Int => expect(value, "no integer", |v| matches!(v, Value::Int(_))),
        Kind::Text => expect(value, "no text", |v| matches!(v, Value::Text(_))),
        Kind::Unsigned => match value {
            Value::Int(int) if int < 0 => Ok(Value::Number(int.cast_unsigned().to_string().into())),
            value => expect(value, "no integer", |v| matches!(v, Value::Int(_) | Value::Number(_))),
        },
        Kind::Single => single_of(&value).map(Value::Float).ok_or(Mismatch::new("no number")),
        Kind::Float => float(&value).map(Value::Float).ok_or(Mismatch::new("no number")),
        Kind::Bytes => Ok(Value::Bytes(raw(&value)?)),
        Kind::Decimal { scale } => decimal_value(&value, *scale),
        Kind::VariableScaleDecimal => variable_decimal(value),
        Kind::Date => {
            whole(&value, i64::from(i32::MIN), i64::from(i32::MAX)).map(|n| Value::Date(temporal::date(n).into()))
        }
        Kind::Time(unit) => any_whole(&value).map(|n| Value::Time(temporal::time(n, *unit).into())),
        Kind::Timestamp(unit) => any_whole(&value).map(|n| Value::Timestamp(temporal::timestamp(n, *unit).into())),
        Kind::Instant(unit) => any_whole(&value).map(|n| Value::TimestampTz(temporal::instant(n, *unit).into())),
        Kind::Duration(unit) => any_whole(&value).map(|n| Value::Interval(temporal::duration(n, *unit).into())),
        Kind::ZonedTimestamp => {
            read(&value, temporal::zoned_timestamp, "no timestamp with a zone").map(Value::TimestampTz)
        }
        Kind::ZonedTime => read(&value, temporal::zoned_time, "no time with a zone").map(Value::TimeTz),
        Kind::DateText => read(&value, temporal::date_text, "no date").map(Value::Date),
        Kind::TimeText => read(&value, temporal::time_text, "no time").map(Value::Time),
        Kind::TimestampText => read(&value, temporal::timestamp_text, "no timestamp").map(Value::Timestamp),
        Kind::Interval => text(value).map(Value::Interval),
        Kind::Structured(structured) => match &value {
            Value::Struct(row) => structured.read(row).ok_or(Mismatch::new("no date or time in these parts")),
            _ => Err(Mismatch::new("no struct of a date's or time's parts")),
        },
        Kind::Bits { length } => Ok(Value::Bits(bits(&raw(&value)?, *length).into())),
        Kind::Json => text(value).map(json_text),
        Kind::Uuid => match &value {
            Value::Bytes(bytes) => <[u8; 16]>::try_from(&**bytes)
                .map(|bytes| Value::Uuid(uuid_from_bytes(bytes).into()))
                .map_err(|_| Mismatch::new("no uuid")),
            _ => text(value).map(uuid_text),
        },
        Kind::Geometry => geometry(value),
        Kind::Any => Ok(value),
        Kind::Array(items) => match value {
            Value::Array(array) => array
                .into_iter()
                .map(|item| convert(item, items, strictness))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            _ => Err(Mismatch::new("no array")),
        },
        Kind::Map { keys, values } => map(value, keys, values, strictness),
        Kind::Struct(_) => match value {
            Value::Struct(mut row) => {
                for (at, (name, value)) in row.iter_mut().enumerate() {
                    if let Some(field) = schema.field(at, name) {
                        let converted = convert(mem::replace(value, Value::Null), field, strictness);
                        *value = converted.map_err(|mismatch| mismatch.inside(name))?;
                    }
                }
                Ok(Value::Struct(row))
            }
            _ => Err(Mismatch::new("no struct")),
        },
    }
}

fn expect(value: Value, why: &'static str, fits: impl Fn(&Value) -> bool) -> Result<Value, Mismatch> {
    if fits(&value) { Ok(value) } else { Err(Mismatch::new(why)) }
}

fn text(value: Value) -> Result<CompactString, Mismatch> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(Mismatch::new("no text")),
    }
}

fn read(value: &Value, parse: fn(&str) -> Option<String>, why: &'static str) -> Result<CompactString, Mismatch> {
    match value {
        Value::Text(text) => parse(text).map(Into::into).ok_or(Mismatch::new(why)),
        _ => Err(Mismatch::new(why)),
    }
}

fn whole(value: &Value, least: i64, most: i64) -> Result<i64, Mismatch> {
    match value {
        Value::Int(int) if (least..=most).contains(int) => Ok(*int),
        Value::Int(_) => Err(Mismatch::new("out of range")),
        _ => Err(Mismatch::new("no integer")),
    }
}

fn any_whole(value: &Value) -> Result<i64, Mismatch> {
    whole(value, i64::MIN, i64::MAX)
}

fn raw(value: &Value) -> Result<Box<[u8]>, Mismatch> {
    bytes(value).ok_or(Mismatch::new("no bytes in base64"))
}

/// JSON has no text for these three; Jackson quotes them.
fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(float) => Some(*float),
        Value::Int(int) => int.to_string().parse().ok(),
        Value::Number(digits) => digits.parse().ok(),
        Value::Text(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// The number that a float32's shortest text names: 0.1, not 0.10000000149011612.
pub fn single(float: f32) -> f64 {
    if float.fract() == 0.0 && float.abs() < 1e7 || !float.is_finite() {
        return f64::from(float);
    }
    float.to_string().parse().unwrap_or_else(|_| f64::from(float))
}

/// Java writes `1.17549435E-38` where `1.1754944E-38` says as much.
fn single_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(digits) => digits.parse().ok().map(single),
        // Avro's reader has done it.
        _ => float(value),
    }
}

fn decimal_value(value: &Value, scale: i32) -> Result<Value, Mismatch> {
    let exact = match value {
        // `decimal.format=NUMERIC` of the JSON converter.
        Value::Int(int) => decimal::with_scale(&int.to_string(), scale).or_else(|| Some(int.to_string())),
        Value::Number(digits) => decimal::with_scale(digits, scale).or_else(|| decimal::plain(digits)),
        Value::Decimal(text) => Some(text.to_string()),
        _ => decimal::from_unscaled(&raw(value)?, scale),
    };
    exact.map(|text| Value::Decimal(text.into())).ok_or(Mismatch::new("no decimal"))
}

fn variable_decimal(value: Value) -> Result<Value, Mismatch> {
    let Value::Struct(row) = &value else {
        return Err(Mismatch::new("no struct of scale and value"));
    };
    match (row.get("scale"), row.get("value")) {
        (Some(Value::Int(scale)), Some(unscaled)) => {
            let scale = i32::try_from(*scale).map_err(|_| Mismatch::new("no decimal"))?;
            decimal_value(unscaled, scale)
        }
        _ => Err(Mismatch::new("no struct of scale and value")),
    }
}

/// Bytes as they came (EWKB keeps its flag), a null `srid` stays none. A struct without `wkb` stays a struct.
fn geometry(value: Value) -> Result<Value, Mismatch> {
    let Value::Struct(row) = &value else {
        return Err(Mismatch::new("no geometry struct"));
    };
    let srid = match row.get("srid") {
        Some(Value::Int(srid)) => Some(*srid),
        Some(Value::Null) | None => None,
        Some(_) => return Err(Mismatch::new("no integer").inside("srid")),
    };
    match row.get("wkb") {
        Some(Value::Null) | None => Ok(value),
        Some(wkb) => Ok(Value::Geometry { wkb: raw(wkb).map_err(|mismatch| mismatch.inside("wkb"))?, srid }),
    }
}

/// An object where the keys are texts, else pairs.
fn map(value: Value, keys: &Schema, values: &Schema, strictness: Strictness) -> Result<Value, Mismatch> {
    match value {
        Value::Struct(mut row) => {
            for (name, value) in row.iter_mut() {
                let converted = convert(mem::replace(value, Value::Null), values, strictness);
                *value = converted.map_err(|mismatch| mismatch.inside(name))?;
            }
            Ok(Value::Struct(row))
        }
        Value::Array(pairs) => pairs
            .into_iter()
            .map(|pair| match pair {
                Value::Array(pair) => match <[Value; 2]>::try_from(pair) {
                    Ok([key, value]) => {
                        Ok(Value::Array(vec![convert(key, keys, strictness)?, convert(value, values, strictness)?]))
                    }
                    Err(_) => Err(Mismatch::new("no pair in a map")),
                },
                _ => Err(Mismatch::new("no pair in a map")),
            })
            .collect::<Result<_, _>>()
            .map(Value::Array),
        _ => Err(Mismatch::new("no map")),
    }
}

#[cfg(test)]
mod captured;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod tests;
