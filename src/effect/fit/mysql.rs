//! MySQL and MariaDB get numbers as numbers, for they compute with strings as doubles, and all else as text or bytes.

use super::{Misfit, bits, chars, decimal, document, double, finite, limited, moment, number, single, spatial, whole};
use crate::debezium::json::parse_text;
use crate::debezium::value::Value;
use crate::store::{Bind, Holds};

/// TIME reaches from -838:59:59 to 838:59:59; a fraction beyond is cut without an error.
const LAST_HOUR: &str = "838:59:59";

pub(super) fn bind(value: &Value, holds: &Holds) -> Result<Bind, Misfit> {
    Ok(match (holds, value) {
        (Holds::Bool | Holds::Flag { .. }, Value::Bool(value)) => Bind::Int(i64::from(*value)),
        (Holds::Int { least, most } | Holds::Flag { least, most }, _) => integer(whole(value, *least, *most)?),
        (Holds::Year, _) => match whole(value, 0, 2155)? {
            year @ 1..=99 => return Err(Misfit::range(format!("it takes {year} for a year of four digits"))),
            year => integer(year),
        },
        (Holds::Decimal { precision, scale }, _) => exact(&decimal(value, *precision, *scale)?),
        (Holds::Float32, _) => Bind::Float(f64::from(single(value)?)),
        (Holds::Float64, _) => Bind::Float(double(value)?),
        (Holds::Bool, _) => integer(whole(value, 0, 1)?),
        (Holds::Chars { most }, _) => Bind::text(chars(super::text(value)?, *most)?),
        (Holds::Text { most }, _) => {
            Bind::text(limited(super::text(value)?, *most, "bytes", |text| text.len() as u64)?)
        }
        (Holds::Bytes { most, padded }, _) => Bind::Bytes(bytes(value, *most, *padded)?),
        (Holds::Bits { length, .. }, Value::Int(_) | Value::Number(_)) => {
            let length = length.unwrap_or(1).min(64);
            integer(whole(value, 0, (1 << length) - 1)?)
        }
        (Holds::Bits { length, .. }, _) => {
            let (bits, length) = (bits(value)?, length.unwrap_or(1));
            let significant = bits.trim_start_matches('0').len() as u64;
            match u64::from_str_radix(&bits, 2) {
                Ok(number) if significant <= length => integer(i128::from(number)),
                _ => return Err(Misfit::range(format!("it holds {length} bits, the value has {significant}"))),
            }
        }
        (Holds::Date, _) => Bind::Text(moment::four_digit_year(moment::date(value)?)?),
        (Holds::Timestamp(digits) | Holds::TimestampTz(digits), _) => {
            // The session runs in UTC, so that DATETIME and TIMESTAMP both take the instant as it is.
            Bind::Text(moment::four_digit_year(moment::timestamp(value, *digits)?)?)
        }
        (Holds::Time(digits) | Holds::TimeTz(digits), _) => {
            let text = moment::time(value, *digits)?;
            let clock = text.trim_start_matches('-');
            let hours = clock.split(':').next().unwrap_or_default();
            if hours.len() > 3 || hours.len() == 3 && clock > LAST_HOUR {
                return Err(Misfit::range("it holds times from -838:59:59 to 838:59:59"));
            }
            Bind::Text(text)
        }
        (Holds::Uuid, Value::Uuid(text) | Value::Text(text)) => Bind::text(&**text),
        (Holds::Uuid, _) => return Err(Misfit::wrong(value, "a uuid")),
        (Holds::Json, _) => Bind::text(document(value)?),
        (Holds::BinaryJson, _) => {
            let document = document(value)?;
            if !parse_text(&document).is_ok_and(|document| kept(&document)) {
                return Err(Misfit::range("its json keeps numbers as doubles, which cannot hold all digits of one"));
            }
            Bind::text(document)
        }
        (Holds::Geometry, Value::Geometry { wkb, srid }) => Bind::Bytes(spatial::mysql(wkb, *srid)?),
        (Holds::Geometry, _) => return Err(Misfit::wrong(value, "a geometry")),
        (Holds::Labels(labels), _) => label(value, labels)?,
        (_, Value::Bytes(_) | Value::Geometry { .. } | Value::Array(_) | Value::Struct(_)) => {
            return Err(Misfit::kind(format!("there is no way to write {} into its type", super::kind(value))));
        }
        _ => Bind::text(super::text(value)?),
    })
}

/// For a parameter of which nothing is known.
pub(super) fn anywhere(value: &Value) -> Result<Bind, Misfit> {
    Ok(match value {
        Value::Bool(value) => Bind::Int(i64::from(*value)),
        Value::Int(value) => Bind::Int(*value),
        Value::Float(_) => Bind::Float(double(value)?),
        Value::Number(text) | Value::Decimal(text) => exact(text),
        Value::Bytes(bytes) | Value::Geometry { wkb: bytes, .. } => Bind::Bytes(bytes.to_vec()),
        Value::Timestamp(_) | Value::TimestampTz(_) => {
            Bind::Text(moment::four_digit_year(moment::timestamp(value, 9)?)?)
        }
        Value::Date(_) => Bind::Text(moment::four_digit_year(moment::date(value)?)?),
        Value::Bits(bits) => match u64::from_str_radix(bits, 2) {
            Ok(number) => integer(i128::from(number)),
            Err(_) => return Err(Misfit::range("more than 64 bits")),
        },
        other => Bind::text(super::text(other)?),
    })
}

fn integer(whole: i128) -> Bind {
    i64::try_from(whole).map_or_else(|_| Bind::Decimal(whole.to_string()), Bind::Int)
}

/// An exponent form is no DECIMAL literal; its text is still read exactly.
fn exact(text: &str) -> Bind {
    if text.contains(['e', 'E']) { Bind::text(text) } else { Bind::Decimal(text.to_owned()) }
}

fn bytes(value: &Value, most: Option<u64>, padded: bool) -> Result<Vec<u8>, Misfit> {
    let bytes = match value {
        Value::Bytes(bytes) | Value::Geometry { wkb: bytes, .. } => bytes.to_vec(),
        // A BLOB is where texts of any encoding are kept.
        Value::Text(text) | Value::Json(text) => text.as_bytes().to_vec(),
        Value::Uuid(_) => {
            return Err(Misfit::kind("it holds bytes, whose order in a uuid is not known: use CHAR(36), or UUID"));
        }
        other => return Err(Misfit::wrong(other, "bytes")),
    };
    let sent = bytes.len() as u64;
    match most {
        Some(most) if sent > most => Err(Misfit::range(format!("it holds {most} bytes, the value has {sent}"))),
        Some(most) if padded && sent < most => {
            Err(Misfit::range(format!("it pads to {most} bytes, the value has {sent}: use VARBINARY")))
        }
        _ => Ok(bytes),
    }
}

/// A text that is no label but reads as a number would be taken for an index, or for the bits of a set.
fn label(value: &Value, labels: &[String]) -> Result<Bind, Misfit> {
    let text = super::text(value)?;
    let known = labels.iter().any(|label| label.eq_ignore_ascii_case(&text));
    if !known && number::Extent::of(text.trim()).is_some() {
        return Err(Misfit::range("a number is none of its labels, and would be taken for the place of one"));
    }
    Ok(Bind::text(text))
}

fn kept(document: &Value) -> bool {
    match document {
        Value::Number(_) => finite(document, "number").is_ok_and(|text| {
            number::whole(&text).is_some_and(|whole| u64::try_from(whole).is_ok()) || number::double(&text).is_some()
        }),
        Value::Array(items) => items.iter().all(kept),
        Value::Struct(row) => row.iter().all(|(_, value)| kept(value)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_bound_as_decimals() {
        let amount = Value::Decimal("12345678901234567890.123456789".into());
        let exact = Bind::Decimal("12345678901234567890.123456789".to_owned());
        assert_eq!(anywhere(&amount).unwrap(), exact);
        assert_eq!(bind(&amount, &Holds::Decimal { precision: Some(30), scale: 9 }).unwrap(), exact);
        assert!(bind(&amount, &Holds::Decimal { precision: Some(30), scale: 8 }).is_err());
    }

    #[test]
    fn numbers_that_binary_json_would_round_are_seen() {
        let fits = |text: &str| bind(&Value::Json(text.into()), &Holds::BinaryJson).is_ok();
        assert!(fits(r#"{"a":[18446744073709551615,0.10,-5,1e3]}"#));
        assert!(!fits(r#"{"a":[18446744073709551616.5]}"#));
        assert!(!fits("0.12345678901234567891"));
    }

    #[test]
    fn a_label_is_a_text_and_never_an_index() {
        let labels = Holds::Labels(vec!["0".into(), "1".into(), "2".into()]);
        assert_eq!(bind(&Value::Text("2".into()), &labels).unwrap(), Bind::text("2"));
        assert_eq!(bind(&Value::Int(2), &labels).unwrap(), Bind::text("2"));
        assert!(bind(&Value::Text("3".into()), &labels).is_err());
        assert_eq!(bind(&Value::Text("".into()), &labels).unwrap(), Bind::text(""));
    }
}
