//! Decimals of any size, exact: between Connect's unscaled bytes, number texts and one normal form.

use std::fmt::Write;

/// Largest scale in either direction. PostgreSQL's `numeric` ends at 16,383 fraction digits; a schema
/// that asks for more would make a few bytes print as gigabytes.
pub const MAX_SCALE: i32 = 20_000;

/// PostgreSQL's largest `numeric` has 147,455 digits: about 61,000 bytes.
const MAX_BYTES: usize = 65_536;

/// Connect's `Decimal`: the unscaled value as big-endian two's complement, the scale from the schema.
/// `None` for no bytes at all, or out of all bounds.
pub fn from_unscaled(bytes: &[u8], scale: i32) -> Option<String> {
    if bytes.is_empty() || bytes.len() > MAX_BYTES || scale.unsigned_abs() > MAX_SCALE.unsigned_abs() {
        return None;
    }
    let negative = bytes[0] & 0x80 != 0;
    let digits = if bytes.len() <= 16 {
        let mut wide = if negative { [0xff; 16] } else { [0; 16] };
        wide[16 - bytes.len()..].copy_from_slice(bytes);
        itoa::Buffer::new().format(i128::from_be_bytes(wide).unsigned_abs()).to_owned()
    } else {
        magnitude(bytes, negative)
    };
    Some(place_point(negative, &digits, scale))
}

/// The number in `text` with exactly `scale` digits after the point; `None` if `text` is no number or has more.
pub fn with_scale(text: &str, scale: i32) -> Option<String> {
    let number = Number::parse(text)?;
    let zeros = number.exponent.checked_add(i64::from(scale))?;
    if number.digits() == 0 {
        return (0..=MAX_SCALE).contains(&scale).then(|| place_point(false, "0", scale));
    }
    if !(0..=i64::from(MAX_SCALE)).contains(&zeros) || scale.unsigned_abs() > MAX_SCALE.unsigned_abs() {
        return None;
    }
    let zeros = "0".repeat(usize::try_from(zeros).ok()?);
    let digits = [number.whole, number.fraction, &zeros].concat();
    Some(place_point(number.negative, &digits, scale))
}

/// The number in `text` without an exponent, its own fraction digits kept.
pub fn plain(text: &str) -> Option<String> {
    let number = Number::parse(text)?;
    if !text.contains(['e', 'E']) {
        return Some(text.to_owned());
    }
    let scale = i32::try_from((number.written_exponent).checked_neg()?.max(0)).ok()?;
    with_scale(text, scale)
}

/// One form for all texts of one number: significant digits and a power of ten. `1`, `1.0`, `1.00` and `10e-1`
/// are `1`; `100` is `1e2`; every zero is `0`.
pub fn normal(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 4);
    push_normal(&mut out, text).then_some(out)
}

/// [`normal`] onto a text; false, and nothing written, if it is no number.
pub fn push_normal(out: &mut String, text: &str) -> bool {
    let Some(number) = Number::parse(text) else { return false };
    if number.digits() == 0 {
        out.push('0');
        return true;
    }
    if number.negative {
        out.push('-');
    }
    out.push_str(number.whole);
    out.push_str(number.fraction);
    if number.exponent != 0 {
        out.push('e');
        out.push_str(itoa::Buffer::new().format(number.exponent));
    }
    true
}

/// Digits with zeros before them up to a width.
pub fn push_padded(out: &mut String, number: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number);
    out.extend(std::iter::repeat_n('0', width.saturating_sub(digits.len())));
    out.push_str(digits);
}

/// Digits without zeros at either end, times a power of ten. No digits: zero.
pub struct Number<'a> {
    negative: bool,
    /// The digits before the point as written, and those behind it.
    whole: &'a str,
    fraction: &'a str,
    /// The power of ten of the last digit.
    pub exponent: i64,
    /// The same of the last digit as written.
    written_exponent: i64,
}

impl<'a> Number<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, power) = match rest.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, power.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let written_exponent = power.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let (whole, fraction, exponent) = if fraction.is_empty() {
            let digits = whole.trim_end_matches('0');
            (digits, "", power.checked_add(i64::try_from(whole.len() - digits.len()).ok()?)?)
        } else {
            let exponent = power.checked_sub(i64::try_from(fraction.len()).ok()?)?;
            (whole, if whole.is_empty() { fraction.trim_start_matches('0') } else { fraction }, exponent)
        };
        Some(Self { negative, whole, fraction, exponent, written_exponent })
    }

    /// How many digits there are.
    pub fn digits(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }
}

/// Zero has no sign, whatever its scale.
fn place_point(negative: bool, digits: &str, scale: i32) -> String {
    let places = scale.unsigned_abs() as usize;
    let mut out = String::with_capacity(digits.len() + places + 3);
    if negative && digits.bytes().any(|b| b != b'0') {
        out.push('-');
    }
    let zeros = |count: usize| std::iter::repeat_n('0', count);
    if scale < 0 {
        out.push_str(digits);
        out.extend(zeros(if digits == "0" { 0 } else { places }));
    } else if digits.len() > places {
        let (whole, fraction) = digits.split_at(digits.len() - places);
        out.push_str(whole);
        if places > 0 {
            out.push('.');
            out.push_str(fraction);
        }
    } else {
        out.push_str("0.");
        out.extend(zeros(places - digits.len()));
        out.push_str(digits);
    }
    out
}

/// The absolute value of a two's complement number in decimal digits.
fn magnitude(bytes: &[u8], negative: bool) -> String {
    let mut bytes = bytes.to_vec();
    if negative {
        // -x = !x + 1
        let mut carry = true;
        for byte in bytes.iter_mut().rev() {
            let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
            *byte = sum;
            carry = over;
        }
    }
    const BASE: u64 = 1_000_000_000;
    // Little-endian groups of nine decimal digits.
    let mut groups: Vec<u32> = vec![0];
    for chunk in bytes.rchunks(4).rev() {
        let mut carry = chunk.iter().fold(0u64, |acc, b| acc << 8 | u64::from(*b));
        let shift = chunk.len() * 8;
        for group in &mut groups {
            let value = (u64::from(*group) << shift) + carry;
            *group = (value % BASE) as u32;
            carry = value / BASE;
        }
        while carry > 0 {
            groups.push((carry % BASE) as u32);
            carry /= BASE;
        }
    }
    let mut out = groups.last().map_or_else(String::new, u32::to_string);
    for group in groups.iter().rev().skip(1) {
        let _ = write!(out, "{group:09}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_bytes_and_scales() {
        let cases: [(&[u8], i32, &str); 11] = [
            (&[0xf4, 0xda, 0x70], 4, "-73.0512"),
            (&[0], 2, "0.00"),
            (&[0, 0x80, 0, 0, 0], 4, "214748.3648"),
            (&[0x0c], 0, "12"),
            (&[0x9c], 2, "-1.00"),
            (&[0x80], 0, "-128"),
            (&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 0, "18446744073709551615"),
            (&[5], -3, "5000"),
            (&[0], -3, "0"),
            (&[5], 3, "0.005"),
            (&[0xff], 1, "-0.1"),
        ];
        for (bytes, scale, text) in cases {
            assert_eq!(from_unscaled(bytes, scale).as_deref(), Some(text));
        }
        assert_eq!(from_unscaled(&[], 0), None);
        assert_eq!(from_unscaled(&[1], i32::MAX), None);
        assert_eq!(from_unscaled(&[1], i32::MIN), None);
    }

    #[test]
    fn long_and_short_numbers_read_alike() {
        for value in [0i128, 1, -1, 127, -128, 255, -256, i128::MAX, i128::MIN, 10i128.pow(30), -(10i128.pow(27)) - 7] {
            let bytes = value.to_be_bytes();
            // The same number with its sign extended beyond 128 bits takes the long way.
            let mut long = vec![if value < 0 { 0xff } else { 0 }; 5];
            long.extend(bytes);
            assert_eq!(from_unscaled(&bytes, 0).unwrap(), value.to_string());
            assert_eq!(from_unscaled(&long, 0).unwrap(), value.to_string());
        }
        let mut power = vec![1];
        power.extend([0; 32]);
        assert_eq!(
            from_unscaled(&power, 0).unwrap(),
            "115792089237316195423570985008687907853269984665640564039457584007913129639936"
        );
        let mut lowest = vec![0x80];
        lowest.extend([0; 31]);
        assert_eq!(
            from_unscaled(&lowest, 0).unwrap(),
            "-57896044618658097711785492504343953926634992332820282019728792003956564819968"
        );
    }

    #[test]
    fn texts_of_one_number_have_one_normal_form() {
        for (form, texts) in [
            ("1", &["1", "1.0", "1.00", "1e0", "10e-1", "0.1E1", "01", "+1"][..]),
            ("1e2", &["100", "1e2", "1E+2", "100.0"]),
            ("-125e-2", &["-1.25", "-1.250", "-125E-2"]),
            ("0", &["0", "-0", "0.00", "0e9", "-0.0e-3"]),
            ("18446744073709551615", &["18446744073709551615", "18446744073709551615.0"]),
        ] {
            for text in texts {
                assert_eq!(normal(text).as_deref(), Some(form), "{text}");
            }
        }
        for text in ["", "-", ".", "1.2.3", "0x1", "NaN", "1e", "1e99999999999999999999", " 1", "1_0"] {
            assert_eq!(normal(text), None, "{text}");
        }
    }

    #[test]
    fn a_scale_is_given_only_without_loss() {
        assert_eq!(with_scale("10.5", 2).as_deref(), Some("10.50"));
        assert_eq!(with_scale("10.500", 2).as_deref(), Some("10.50"));
        assert_eq!(with_scale("0E-10", 2).as_deref(), Some("0.00"));
        assert_eq!(with_scale("1e3", 0).as_deref(), Some("1000"));
        assert_eq!(with_scale("-0.005", 2), None);
        assert_eq!(with_scale("1e999999999999", 2), None);
        assert_eq!(plain("1.50e1").as_deref(), Some("15.0"));
        assert_eq!(plain("1e3").as_deref(), Some("1000"));
        assert_eq!(plain("0.10").as_deref(), Some("0.10"));
    }
}
