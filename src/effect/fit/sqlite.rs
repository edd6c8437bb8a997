//! SQLite takes every value in every column and converts by the column's affinity, through doubles where digits are.

use super::{Misfit, double, finite, inexact, kind, number, text, whole};
use crate::debezium::value::Value;
use crate::store::Bind;
use crate::store::column::Affinity;

pub(super) fn bind(value: &Value, affinity: Affinity) -> Result<Bind, Misfit> {
    match affinity {
        Affinity::Text => text(value).map(Bind::text),
        Affinity::None => anywhere(value),
        Affinity::Integer => match value {
            Value::Bool(value) => Ok(Bind::Int(i64::from(*value))),
            _ => integer(whole(value, i64::MIN.into(), i64::MAX.into())?),
        },
        Affinity::Real => match value {
            Value::Text(_) if number::text(value).is_none() => Err(Misfit::kind("the text is no number")),
            _ => double(value).map(Bind::Float),
        },
        Affinity::Decimal => number_of(value),
        Affinity::Numeric => numeric(value),
    }
}

/// Numbers as numbers if they come back with every digit. A text that reads as a number becomes one here, `007` too.
fn numeric(value: &Value) -> Result<Bind, Misfit> {
    match value {
        Value::Bytes(bytes) | Value::Geometry { wkb: bytes, .. } => Ok(Bind::Bytes(bytes.to_vec())),
        Value::Float(float) if !float.is_finite() => Err(not_finite()),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => anywhere(value),
        Value::Number(_) | Value::Decimal(_) | Value::Bits(_) => number_of(value),
        Value::Text(text) if number::Extent::of(text).is_some() => number_of(value),
        other => {
            let text = text(other)?;
            match number::Extent::of(text.trim()) {
                None => Ok(Bind::text(text)),
                Some(_) => Err(Misfit::range(format!("it makes a number of {}: declare it as text", kind(other)))),
            }
        }
    }
}

fn number_of(value: &Value) -> Result<Bind, Misfit> {
    let digits = finite(value, "number")?;
    match number::whole(&digits) {
        Some(whole) => integer(whole),
        None => number::double(&digits).map(Bind::Float).ok_or_else(inexact),
    }
}

fn integer(whole: i128) -> Result<Bind, Misfit> {
    let int = i64::try_from(whole).map_err(|_| Misfit::range("it holds integers of 64 bits, the value is beyond"))?;
    Ok(Bind::Int(int))
}

/// For a place without affinity, or of which nothing is known: decimals as text, exact.
pub(super) fn anywhere(value: &Value) -> Result<Bind, Misfit> {
    Ok(match value {
        Value::Bool(value) => Bind::Int(i64::from(*value)),
        Value::Int(value) => Bind::Int(*value),
        // SQLite has no NaN and would store NULL.
        Value::Float(float) if !float.is_finite() => return Err(not_finite()),
        Value::Float(float) => Bind::Float(*float),
        Value::Bytes(bytes) | Value::Geometry { wkb: bytes, .. } => Bind::Bytes(bytes.to_vec()),
        other => Bind::text(text(other)?),
    })
}

fn not_finite() -> Misfit {
    Misfit::range("it holds neither NaN nor infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_only_with_every_digit() {
        let decimal = |text: &str| Value::Decimal(text.into());
        for affinity in [Affinity::Decimal, Affinity::Numeric] {
            assert_eq!(bind(&decimal("12.50"), affinity).unwrap(), Bind::Float(12.5));
        }
        assert_eq!(bind(&decimal("12.00"), Affinity::Numeric).unwrap(), Bind::Int(12));
        assert_eq!(bind(&decimal("12.00"), Affinity::Text).unwrap(), Bind::text("12.00"));
        assert!(bind(&decimal("12345678901234567890.12"), Affinity::Numeric).is_err());
        assert!(bind(&Value::Number("18446744073709551615".into()), Affinity::Integer).is_err());
        assert!(bind(&Value::Json("007".into()), Affinity::Numeric).is_err());
        assert_eq!(bind(&Value::Date("2026-11-29".into()), Affinity::Numeric).unwrap(), Bind::text("2026-11-29"));
    }

    #[test]
    fn what_is_no_number_is_in_no_column_of_numbers() {
        let others = [
            Value::Text("garbage".into()),
            Value::Text("NaN".into()),
            Value::Text("".into()),
            Value::Float(f64::NAN),
            Value::Bytes([1, 2].into()),
            Value::Json("7".into()),
            Value::Date("2026-11-29".into()),
        ];
        for value in &others {
            for affinity in [Affinity::Integer, Affinity::Real, Affinity::Decimal] {
                assert!(bind(value, affinity).is_err(), "{value:?} {affinity:?}");
            }
        }
        let yes = Value::Bool(true);
        assert_eq!(bind(&yes, Affinity::Integer).unwrap(), Bind::Int(1), "what a boolean is kept in");
        assert!(bind(&yes, Affinity::Real).is_err() && bind(&yes, Affinity::Decimal).is_err());
        for (text, bound) in [("7", Bind::Int(7)), ("-1.5", Bind::Float(-1.5))] {
            assert_eq!(bind(&Value::Text(text.into()), Affinity::Decimal).unwrap(), bound);
        }
    }
}
