//! Values as text: the JSON that `inspect` prints, the exact text that is bound to a statement, and the
//! canonical form over which digests and derived ids are taken.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::value::{Row, Value};
use super::{decimal, json as reader};

impl Value {
    /// The exact text to bind. `None` for null and for a value the connector did not know; bytes are base64
    /// here, whoever can bind bytes takes them from the variant.
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Null | Self::Unavailable => None,
            Self::Bool(true) => Some("true".into()),
            Self::Bool(false) => Some("false".into()),
            Self::Int(int) => Some(int.to_string().into()),
            Self::Float(float) => Some(float_text(*float).into()),
            Self::Bytes(bytes) => Some(STANDARD.encode(bytes).into()),
            Self::Number(text)
            | Self::Decimal(text)
            | Self::Text(text)
            | Self::Date(text)
            | Self::Time(text)
            | Self::TimeTz(text)
            | Self::Timestamp(text)
            | Self::TimestampTz(text)
            | Self::Interval(text)
            | Self::Bits(text)
            | Self::Uuid(text)
            | Self::Json(text) => Some(Cow::Borrowed(text)),
            Self::Geometry { .. } | Self::Array(_) | Self::Struct(_) => Some(json(self).into()),
        }
    }
}

/// Compact JSON in the forms of `inspect`.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, Form::Shown);
    out
}

/// A row as a JSON object, without the fields whose value the connector did not know ([`unavailable`]).
pub fn row_json(row: &Row) -> String {
    let mut out = String::new();
    write_row(&mut out, row, Form::Shown);
    out
}

/// Names of the fields whose value the connector did not know.
pub fn unavailable(row: &Row) -> impl Iterator<Item = &str> {
    row.iter().filter(|(_, value)| matches!(value, Value::Unavailable)).map(|(name, _)| name)
}

/// One text for all ways to write one content, after RFC 8785: names sorted (here by their UTF-8 bytes), no white
/// space, each number in the one form of [`decimal::normal`], so that `1`, `1.0` and `1e0` are the same.
/// Typed decimals count as numbers; all other typed values are the texts they print as.
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(32);
    write_canonical(&mut out, value);
    out
}

/// [`canonical`] onto a text.
pub fn write_canonical(out: &mut String, value: &Value) {
    write_value(out, value, Form::Canonical);
}

/// [`canonical`] for a row. An unknown value is written as `?`, which no JSON value is.
pub fn canonical_row(row: &Row) -> String {
    let mut out = String::with_capacity(256);
    write_canonical_row(&mut out, row);
    out
}

/// [`canonical_row`] onto a text.
pub fn write_canonical_row(out: &mut String, row: &Row) {
    write_row(out, row, Form::Canonical);
}

/// The same content as [`json`], as a document.
pub fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(bool) => (*bool).into(),
        Value::Int(int) => (*int).into(),
        Value::Number(digits) => number(digits),
        Value::Float(float) if float.is_finite() => number(&float_text(*float)),
        Value::Array(items) => items.iter().map(to_json).collect::<Vec<_>>().into(),
        Value::Struct(row) => row_to_json(row),
        Value::Json(text) => reader::parse_text(text).map_or_else(|_| (&**text).into(), |inner| to_json(&inner)),
        Value::Geometry { wkb, srid } => {
            let mut map = serde_json::Map::new();
            map.insert("wkb".into(), STANDARD.encode(wkb).into());
            if let Some(srid) = srid {
                map.insert("srid".into(), (*srid).into());
            }
            map.into()
        }
        Value::Null
        | Value::Float(_)
        | Value::Decimal(_)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Date(_)
        | Value::Time(_)
        | Value::TimeTz(_)
        | Value::Timestamp(_)
        | Value::TimestampTz(_)
        | Value::Interval(_)
        | Value::Bits(_)
        | Value::Uuid(_)
        | Value::Unavailable => value.as_text().map_or(serde_json::Value::Null, |text| text.into_owned().into()),
    }
}

/// The same content as [`row_json`], as a document.
pub fn row_to_json(row: &Row) -> serde_json::Value {
    let known = row.iter().filter(|(_, value)| !matches!(value, Value::Unavailable));
    known.map(|(name, value)| (name.to_owned(), to_json(value))).collect::<serde_json::Map<_, _>>().into()
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    push_hex(&mut hex, bytes);
    hex
}

/// [`hex`] onto a text.
pub fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Pieces of which each is a text: a character at a time would be encoded one by one.
    let mut piece = [0; 64];
    for chunk in bytes.chunks(piece.len() / 2) {
        for (pair, byte) in piece.chunks_exact_mut(2).zip(chunk) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        out.push_str(std::str::from_utf8(&piece[..chunk.len() * 2]).unwrap_or_default());
    }
}

/// A JSON text literal.
pub fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Most texts have none; this looks at many bytes at once.
    if !text.bytes().fold(false, |found, byte| found | special(byte)) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !matches!(byte, b'"' | b'\\' | 0..0x20) {
            continue;
        }
        out.push_str(&text[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            control => drop(write!(out, "\\u{control:04x}")),
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Shown,
    Canonical,
}

fn number(digits: &str) -> serde_json::Value {
    digits.parse::<serde_json::Number>().map_or_else(|_| digits.into(), serde_json::Value::Number)
}

/// The shortest text that reads back as the same number.
fn float_text(float: f64) -> String {
    if float.is_nan() {
        "NaN".to_owned()
    } else if float.is_infinite() {
        if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        format!("{float:?}")
    }
}

fn write_value(out: &mut String, value: &Value, form: Form) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        // Most integers are their own canonical form already.
        Value::Int(int) if form == Form::Shown || int % 10 != 0 => out.push_str(itoa::Buffer::new().format(*int)),
        Value::Int(int) => write_number(out, itoa::Buffer::new().format(*int), form),
        Value::Number(digits) => write_number(out, digits, form),
        Value::Float(float) if float.is_finite() => write_number(out, &float_text(*float), form),
        Value::Float(float) => write_text(out, &float_text(*float)),
        Value::Decimal(digits) => match form {
            Form::Shown => write_text(out, digits),
            Form::Canonical => write_number(out, digits, form),
        },
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::Text(text)
        | Value::Date(text)
        | Value::Time(text)
        | Value::TimeTz(text)
        | Value::Timestamp(text)
        | Value::TimestampTz(text)
        | Value::Interval(text)
        | Value::Bits(text)
        | Value::Uuid(text) => write_text(out, text),
        Value::Json(text) => match reader::parse_text(text) {
            Ok(inner) => write_value(out, &inner, form),
            Err(_) => write_text(out, text),
        },
        Value::Geometry { wkb, srid } => {
            out.push_str("{\"wkb\":");
            write_bytes(out, wkb);
            if let Some(srid) = srid {
                let _ = write!(out, ",\"srid\":{srid}");
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item, form);
            }
            out.push(']');
        }
        Value::Struct(row) => write_row(out, row, form),
        Value::Unavailable => out.push_str(if form == Form::Shown { "null" } else { "?" }),
    }
}

fn write_row(out: &mut String, row: &Row, form: Form) {
    let mut fields: Vec<(&str, &Value)> = row.iter().collect();
    match form {
        Form::Shown => fields.retain(|(_, value)| !matches!(value, Value::Unavailable)),
        Form::Canonical => fields.sort_unstable_by_key(|(name, _)| *name),
    }
    out.push('{');
    for (at, (name, value)) in fields.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_text(out, name);
        out.push(':');
        write_value(out, value, form);
    }
    out.push('}');
}

fn write_number(out: &mut String, digits: &str, form: Form) {
    match form {
        Form::Shown => out.push_str(digits),
        Form::Canonical => {
            if !decimal::push_normal(out, digits) {
                out.push_str(digits);
            }
        }
    }
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    out.push('"');
    STANDARD.encode_string(bytes, out);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        reader::parse_text(text).unwrap()
    }

    #[test]
    fn canonical_text_depends_on_content_alone() {
        for (a, b) in [
            (r#"{"a":1,"b":[1.0,2e0]}"#, r#"{ "b": [1, 2.00], "a": 1.0 }"#),
            (r#"{"x":"\u00e9\n"}"#, "{\"x\":\"é\\u000a\"}"),
            ("100", "1e2"),
            ("-0.0", "0"),
            (r#"{"a":{"c":1,"b":2}}"#, r#"{"a":{"b":2,"c":1}}"#),
        ] {
            assert_eq!(canonical(&read(a)), canonical(&read(b)));
        }
        for (a, b) in [
            ("1", "\"1\""),
            ("null", "\"null\""),
            ("{}", "[]"),
            ("1", "1.01"),
            ("[1,2]", "[2,1]"),
            ("{}", r#"{"a":null}"#),
        ] {
            assert_ne!(canonical(&read(a)), canonical(&read(b)));
        }
    }

    #[test]
    fn shown_text_and_document_agree_and_keep_digits() {
        let value = read(r#"{"a":18446744073709551615,"b":0.10,"c":"q\"\\\u0001","d":[null,true],"e":1e400}"#);
        assert_eq!(json(&value), r#"{"a":18446744073709551615,"b":0.10,"c":"q\"\\\u0001","d":[null,true],"e":1e400}"#);
        let typed = Value::Struct(
            [
                ("f", Value::Float(2.5e100)),
                ("n", Value::Float(f64::NEG_INFINITY)),
                ("d", Value::Decimal("0.00".into())),
                ("j", Value::Json("{ \"b\": 2.50,\n \"a\": null }".into())),
                ("w", Value::Bytes((*b"\x00\xff").into())),
                ("u", Value::Unavailable),
                ("g", Value::Geometry { wkb: [1].into(), srid: None }),
                ("h", Value::Geometry { wkb: [1].into(), srid: Some(4326) }),
            ]
            .map(|(name, value)| (name.into(), value))
            .into_iter()
            .collect(),
        );
        let text = json(&typed);
        assert_eq!(
            text,
            r#"{"f":2.5e100,"n":"-Infinity","d":"0.00","j":{"b":2.50,"a":null},"w":"AP8=","g":{"wkb":"AQ=="},"h":{"wkb":"AQ==","srid":4326}}"#
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), to_json(&typed));
    }

    #[test]
    fn bound_text_is_exact() {
        assert_eq!(Value::Null.as_text(), None);
        assert_eq!(Value::Unavailable.as_text(), None);
        assert_eq!(Value::Bool(true).as_text().unwrap(), "true");
        assert_eq!(Value::Float(1.5).as_text().unwrap(), "1.5");
        assert_eq!(Value::Float(f64::NAN).as_text().unwrap(), "NaN");
        assert_eq!(Value::Int(i64::MIN).as_text().unwrap(), "-9223372036854775808");
        assert_eq!(read(r#"[1,{"a":"b"}]"#).as_text().unwrap(), r#"[1,{"a":"b"}]"#);
    }
}
