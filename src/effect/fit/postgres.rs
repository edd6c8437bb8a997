//! Postgres gets every value as text, which the statement casts to the type of its place: the server's own input
//! function reads it exactly.

use super::{Misfit, bits, chars, decimal, document, double, kind, limited, moment, single, spatial, whole};
use crate::debezium::json::parse_text;
use crate::debezium::render::{hex, json};
use crate::debezium::value::{Row, Value};
use crate::store::Holds;

/// None for NULL.
pub(super) fn text(value: &Value, holds: &Holds) -> Result<Option<String>, Misfit> {
    if matches!(value, Value::Null) {
        return Ok(None);
    }
    fitted(value, holds).map(Some)
}

fn fitted(value: &Value, holds: &Holds) -> Result<String, Misfit> {
    Ok(match (holds, value) {
        (Holds::Bool, Value::Text(text)) => text.to_string(),
        (Holds::Bool, Value::Bool(_)) => plain(value)?,
        (Holds::Bool, _) => match whole(value, 0, 1)? {
            0 => "false".to_owned(),
            _ => "true".to_owned(),
        },
        (Holds::Int { least, most }, _) => whole(value, *least, *most)?.to_string(),
        (Holds::Float32 | Holds::Float64, Value::Float(float)) if !float.is_finite() => plain(value)?,
        // `numeric` without a precision knows infinity too.
        (Holds::Decimal { precision, .. }, Value::Float(float))
            if float.is_nan() || float.is_infinite() && precision.is_none() =>
        {
            plain(value)?
        }
        (Holds::Decimal { precision, scale }, _) => decimal(value, *precision, *scale)?.into_owned(),
        (Holds::Float32, _) => single(value)?.to_string(),
        (Holds::Float64, _) => format!("{:?}", double(value)?),
        (Holds::Chars { most }, _) => no_nul(chars(super::text(value)?, *most)?.into_owned())?,
        (Holds::Text { most }, _) => {
            no_nul(limited(super::text(value)?, *most, "bytes", |text| text.len() as u64)?.into_owned())?
        }
        (Holds::Bytes { .. }, Value::Bytes(bytes) | Value::Geometry { wkb: bytes, .. }) => format!("\\x{}", hex(bytes)),
        // The server would read `\` in a text as the beginning of an escape.
        (Holds::Bytes { .. }, _) => return Err(Misfit::wrong(value, "bytes")),
        (Holds::Bits { length, varying }, _) => bit_text(value, *length, *varying)?,
        (Holds::Date, _) => moment::with_era(&moment::date(value)?),
        (Holds::Timestamp(digits), _) => moment::with_era(&moment::timestamp(value, *digits)?),
        (Holds::TimestampTz(digits), _) => zoned(&moment::timestamp(value, *digits)?),
        (Holds::Time(digits), _) => moment::time_of_day(value, *digits)?,
        // With the offset that it has.
        (Holds::TimeTz(digits), Value::Text(text)) => moment::within(text.to_string(), *digits)?,
        (Holds::TimeTz(digits), _) => moment::time_of_day(value, *digits)? + "Z",
        (Holds::Interval(digits), Value::Interval(text)) => interval(&moment::within(text.to_string(), *digits)?),
        (Holds::Interval(digits), Value::Time(text) | Value::Text(text)) => moment::within(text.to_string(), *digits)?,
        (Holds::Interval(_), _) => return Err(Misfit::wrong(value, "an interval")),
        (Holds::Uuid, Value::Uuid(text) | Value::Text(text)) => text.to_string(),
        (Holds::Uuid, Value::Bytes(_)) => {
            return Err(Misfit::kind(
                "it holds a uuid, the value is bytes: give the field the type `uuid` in `columns`",
            ));
        }
        (Holds::Uuid, _) => return Err(Misfit::wrong(value, "a uuid")),
        (Holds::Json | Holds::BinaryJson, _) => document(value)?.into_owned(),
        (Holds::Geometry, Value::Geometry { wkb, srid }) => hex(&spatial::extended(wkb, *srid)?),
        // What PostGIS cannot read it answers with an internal error, which looks like the server's own trouble.
        (Holds::Geometry, _) => return Err(Misfit::wrong(value, "a geometry")),
        (Holds::Point, Value::Geometry { wkb, .. }) => spatial::point(wkb)?,
        (Holds::Hstore, Value::Struct(row)) => hstore(row)?,
        // A text in hstore's own syntax would be refused with an internal error where it has a fault.
        (Holds::Hstore, Value::Json(text) | Value::Text(text)) => match parse_text(text) {
            Ok(Value::Struct(row)) => hstore(&row)?,
            _ => return Err(Misfit::wrong(value, "pairs of texts")),
        },
        (Holds::Vector, Value::Array(_)) => json(value),
        (Holds::Array(of), Value::Array(items)) => array(items, of)?,
        (Holds::Array(_), Value::Text(text)) => text.to_string(),
        (Holds::Array(_), _) => return Err(Misfit::wrong(value, "an array")),
        (
            Holds::Point
            | Holds::Hstore
            | Holds::Vector
            | Holds::Year
            | Holds::Labels(_)
            | Holds::Affinity(_)
            | Holds::Other,
            Value::Bytes(_) | Value::Geometry { .. } | Value::Array(_) | Value::Struct(_),
        ) => return Err(Misfit::kind(format!("there is no way to write {} into its type", kind(value)))),
        (Holds::Other, Value::Date(text) | Value::Timestamp(text) | Value::TimestampTz(text)) => moment::with_era(text),
        _ => no_nul(plain(value)?)?,
    })
}

fn plain(value: &Value) -> Result<String, Misfit> {
    super::text(value).map(std::borrow::Cow::into_owned)
}

fn no_nul(text: String) -> Result<String, Misfit> {
    match text.contains('\0') {
        true => Err(Misfit::range("postgres has no place for the character U+0000")),
        false => Ok(text),
    }
}

fn zoned(utc: &str) -> String {
    if moment::infinite(utc) {
        return utc.to_owned();
    }
    match moment::with_era(utc) {
        text if text.ends_with(" BC") => text.replace(" BC", "Z BC"),
        text => text + "Z",
    }
}

fn bit_text(value: &Value, length: Option<u64>, varying: bool) -> Result<String, Misfit> {
    let bits = bits(value)?;
    let sent = bits.len() as u64;
    let length = length.or((!varying).then_some(sent)).unwrap_or(u64::MAX);
    match sent > length || !varying && sent < length {
        true => Err(Misfit::range(format!("it holds {length} bits, the value has {sent}"))),
        false => Ok(bits.into_owned()),
    }
}

/// Postgres puts the sign inside: `PT-0.5S`, where Debezium's and ISO 8601-2's form is `-PT0.5S`.
fn interval(text: &str) -> String {
    let Some(positive) = text.strip_prefix('-') else { return text.to_owned() };
    let mut signed = String::with_capacity(text.len() + 4);
    let mut number_before = false;
    for c in positive.chars() {
        let number = c.is_ascii_digit() || c == '.';
        if number && !number_before {
            signed.push('-');
        }
        number_before = number;
        signed.push(c);
    }
    signed
}

/// An array literal; every element quoted, so that none can be taken for syntax or NULL.
fn array(items: &[Value], of: &Holds) -> Result<String, Misfit> {
    let mut literal = String::from("{");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            literal.push(',');
        }
        match item {
            Value::Array(inner) if !matches!(of, Holds::Json | Holds::Vector) => literal.push_str(&array(inner, of)?),
            Value::Unavailable => return Err(super::unavailable()),
            other => match text(other, of)? {
                None => literal.push_str("NULL"),
                Some(text) => quoted(&mut literal, &text),
            },
        }
    }
    literal.push('}');
    Ok(literal)
}

fn hstore(row: &Row) -> Result<String, Misfit> {
    let mut literal = String::new();
    for (name, value) in row.iter() {
        if !literal.is_empty() {
            literal.push(',');
        }
        quoted(&mut literal, name);
        literal.push_str("=>");
        match value {
            Value::Null => literal.push_str("NULL"),
            other => quoted(&mut literal, &super::text(other)?),
        }
    }
    Ok(literal)
}

fn quoted(literal: &mut String, text: &str) {
    literal.push('"');
    for c in text.chars() {
        if matches!(c, '\\' | '"') {
            literal.push('\\');
        }
        literal.push(c);
    }
    literal.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_elements_cannot_leave_their_quotes() {
        let items = [Value::Text("a\"},\\".into()), Value::Null, Value::Text("NULL".into())];
        let of = Holds::Chars { most: None };
        assert_eq!(array(&items, &of).unwrap(), r#"{"a\"},\\",NULL,"NULL"}"#);
        assert_eq!(array(&[Value::Array(items.into())], &of).unwrap(), r#"{{"a\"},\\",NULL,"NULL"}}"#);
    }

    #[test]
    fn a_negative_interval_is_written_as_postgres_reads_it() {
        assert_eq!(interval("-PT1H0.000001S"), "PT-1H-0.000001S");
        assert_eq!(interval("PT12H"), "PT12H");
    }

    #[test]
    fn an_hstore_keeps_nulls_and_quotes() {
        let row: Row = [("k\"", Value::Text("v\\".into())), ("n", Value::Null)]
            .map(|(name, value)| (name.into(), value))
            .into_iter()
            .collect();
        assert_eq!(hstore(&row).unwrap(), r#""k\""=>"v\\","n"=>NULL"#);
    }
}
