//! Numbers by their digits: whether a column keeps every one of them.

use std::borrow::Cow;

use crate::debezium::decimal::{self, Number};
use crate::debezium::value::Value;

/// How far the digits of a number that are not zero reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Digits before the point; zero or less for a number below one.
    pub whole: i64,
    /// Digits after the point; negative if the number ends in zeros before it.
    pub fraction: i64,
}

impl Extent {
    /// None if `text` is no number, or one beyond all columns. Zero reaches nowhere.
    pub fn of(text: &str) -> Option<Self> {
        let number = Number::parse(text)?;
        let exponent = i64::from(i32::try_from(number.exponent).ok()?);
        Some(match i64::try_from(number.digits()).ok()? {
            0 => Self { whole: 0, fraction: i64::from(i32::MIN) },
            digits => Self { whole: digits + exponent, fraction: -exponent },
        })
    }
}

/// The number that a value is, by its text. A boolean is none: nobody who counts means `true` by 1. The texts of `decimal.handling.mode=string` are numbers too.
pub(super) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Int(_) | Value::Float(_) => value.as_text(),
        Value::Number(text) | Value::Decimal(text) => Some(Cow::Borrowed(text)),
        Value::Text(text) => Extent::of(text).map(|_| Cow::Borrowed(&**text)),
        // The bits of a number, most significant first.
        Value::Bits(bits) => u128::from_str_radix(bits, 2).ok().map(|number| number.to_string().into()),
        _ => None,
    }
}

/// The integer that a text is, a fraction of zeros included.
pub(super) fn whole(text: &str) -> Option<i128> {
    text.parse().ok().or_else(|| decimal::with_scale(text, 0)?.parse().ok())
}

/// The double that is this very number: either its shortest text says the same, or all its digits do.
pub(super) fn double(text: &str) -> Option<f64> {
    let double: f64 = text.parse().ok()?;
    (double.is_finite() && same(text, &format!("{double:?}"), double)).then_some(double)
}

/// The same for a float of 32 bits.
pub(super) fn single(text: &str) -> Option<f32> {
    let single: f32 = text.parse().ok()?;
    (single.is_finite() && same(text, &format!("{single:?}"), f64::from(single))).then_some(single)
}

fn same(text: &str, shortest: &str, float: f64) -> bool {
    let wanted = decimal::normal(text);
    let places = Extent::of(text).map_or(0, |extent| usize::try_from(extent.fraction).unwrap_or(0));
    // No double has more digits after the point than this.
    wanted.is_some()
        && (wanted == decimal::normal(shortest)
            || places <= 1_100 && wanted == decimal::normal(&format!("{float:.places$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_without_the_zeros_around_them() {
        for (text, whole, fraction) in [
            ("12.34", 2, 2),
            ("-0012.3400", 2, 2),
            ("0.005", -2, 3),
            ("500", 3, -2),
            ("1.5e3", 4, -2),
            ("1e-3", -2, 3),
            ("+7", 1, 0),
        ] {
            assert_eq!(Extent::of(text), Some(Extent { whole, fraction }), "{text}");
        }
        assert!(Extent::of("0.000").is_some_and(|zero| zero.whole == 0 && zero.fraction < -1_000));
        for text in ["", "-", ".", "1.2.3", "0x1", "NaN", "1e", " 1", "1_0", "BNI="] {
            assert_eq!(Extent::of(text), None, "{text}");
        }
    }

    #[test]
    fn only_exact_floats_are_floats() {
        for text in ["0.1", "1.50", "2.5e100", "1152921504606846976", "9007199254740992", "0", "-0.25"] {
            assert!(double(text).is_some(), "{text}");
        }
        for text in ["9007199254740993", "12345678901234567890.12", "0.12345678901234567891", "1e400"] {
            assert_eq!(double(text), None, "{text}");
        }
        assert_eq!(single("0.1"), Some(0.1));
        assert_eq!(single("16777217"), None);
    }
}
