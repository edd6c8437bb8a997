//! How two servers' texts of one value are made comparable. Between servers of one kind nothing is done to them but
//! what a text would hide: floats to their last digit, bytes, zones.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::database::Kind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// To the letter.
    #[default]
    Text,
    Bool,
    /// Without zeros that say nothing.
    Number,
    Money,
    Single,
    Float,
    Bit1,
    Bits8,
    Bits12,
    Bits33,
    Bits64,
    /// `T` or a blank, with or without the zone (UTC), without trailing zeros of a second.
    Moment,
    ZonedTime,
    /// In the words of PostgreSQL.
    Interval,
    /// Without the blanks that fill a CHAR.
    Padded,
    Bytes,
    Wkb,
    Point,
    /// Digits of numbers stay, the order of names does not count.
    Json,
    /// hstore as JSON
    Pairs,
    /// An array of hstore as JSON
    Maps,
    /// An array as JSON, each element as text.
    Array,
    Moments,
    Floats,
    Documents,
    Blobs,
}

impl View {
    /// The SQL that prints a column. `both` are of one kind if there is nothing to translate.
    pub fn expression(self, kind: Kind, column: &str, same: bool) -> String {
        match kind {
            Kind::Postgres => match self {
                Self::ZonedTime => format!("({column} AT TIME ZONE 'UTC')::text"),
                Self::Bytes | Self::Wkb => format!("upper(encode({column}, 'hex'))"),
                _ if same => column.to_owned(),
                Self::Bool | Self::Bit1 => format!("{column}::int::text"),
                Self::Money => format!("{column}::numeric::text"),
                Self::Point => format!("{column}[0] || ' ' || {column}[1]"),
                Self::Pairs => format!("hstore_to_json({column})::text"),
                Self::Maps => format!("(SELECT json_agg(hstore_to_json(e))::text FROM unnest({column}) e)"),
                Self::Array | Self::Moments | Self::Floats | Self::Documents | Self::Blobs => {
                    format!("array_to_json({column}::text[])::text")
                }
                _ => column.to_owned(),
            },
            Kind::MariaDb => match self {
                // As FLOAT it would print six digits.
                Self::Single | Self::Float => format!("CAST({column} AS DOUBLE)"),
                Self::Bit1 => format!("{column} + 0"),
                Self::Bits8 => format!("LPAD(BIN({column} + 0), 8, '0')"),
                Self::Bits12 => format!("LPAD(BIN({column} + 0), 12, '0')"),
                Self::Bits33 => format!("LPAD(BIN({column} + 0), 33, '0')"),
                Self::Bits64 => format!("LPAD(BIN({column} + 0), 64, '0')"),
                Self::Bytes => format!("HEX({column})"),
                Self::Wkb | Self::Point if same => {
                    format!("CONCAT(ST_SRID({column}), ' ', HEX(ST_AsBinary({column})))")
                }
                Self::Wkb => format!("HEX(ST_AsBinary({column}))"),
                Self::Point => format!("CONCAT(CAST(ST_X({column}) AS DOUBLE), ' ', CAST(ST_Y({column}) AS DOUBLE))"),
                _ => column.to_owned(),
            },
            Kind::Sqlite => match self {
                // 15 digits would be printed otherwise. Only what is stored as a number is read as one.
                Self::Single | Self::Float => {
                    format!("CASE typeof({column}) WHEN 'real' THEN printf('%!.17g', {column}) ELSE {column} END")
                }
                // Only what is stored as bytes is read as bytes.
                Self::Bytes | Self::Wkb | Self::Point => {
                    format!("CASE typeof({column}) WHEN 'blob' THEN hex({column}) ELSE 'text: ' || {column} END")
                }
                _ => format!("CAST({column} AS TEXT)"),
            },
        }
    }

    /// The same text for the same value, whichever server printed it.
    pub fn canonical(self, text: &str) -> String {
        match self {
            Self::Number => number(text),
            Self::Single => text.parse::<f64>().map_or_else(|_| text.to_owned(), |value| format!("{:e}", value as f32)),
            Self::Float => float(text),
            Self::Moment | Self::ZonedTime => moment(text),
            Self::Padded => text.trim_end_matches(' ').to_owned(),
            Self::Point => point(text),
            Self::Json | Self::Pairs | Self::Maps => {
                serde_json::from_str(text).map_or_else(|_| text.to_owned(), |json| sorted(&json))
            }
            Self::Array => elements(text, |element| element.to_owned()),
            Self::Moments => elements(text, moment),
            Self::Floats => elements(text, float),
            Self::Documents => elements(text, |element| Self::Pairs.canonical(element)),
            Self::Blobs => elements(text, |element| match element.strip_prefix("\\x") {
                Some(hex) => STANDARD.encode(bytes(hex)),
                None => element.to_owned(),
            }),
            Self::Text
            | Self::Bool
            | Self::Money
            | Self::Bit1
            | Self::Bits8
            | Self::Bits12
            | Self::Bits33
            | Self::Bits64
            | Self::Interval
            | Self::Bytes
            | Self::Wkb => text.to_owned(),
        }
    }
}

fn number(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    let digits = digits.trim_start_matches('0');
    let zero = if digits.is_empty() || digits.starts_with('.') { "0" } else { "" };
    format!("{sign}{zero}{digits}")
}

fn float(text: &str) -> String {
    text.parse::<f64>().map_or_else(|_| text.to_owned(), |value| format!("{value:e}"))
}

fn moment(text: &str) -> String {
    if let Some(text) = text.strip_suffix(" BC") {
        // ISO 8601 counts a year 0, which was 1 BC.
        let (year, rest) = text.split_at(4);
        return moment(&format!("{:05}{rest}", 1 - year.parse::<i32>().unwrap()));
    }
    let text = text.trim_end_matches("+00").trim_end_matches('Z').replace('T', " ");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Two numbers with a blank between them, or the WKB of a point.
fn point(text: &str) -> String {
    let numbers: Vec<f64> = if text.contains(' ') {
        text.split(' ').filter_map(|number| number.parse().ok()).collect()
    } else {
        bytes(text)
            .get(5..)
            .unwrap_or_default()
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    if numbers.len() == 2 { format!("{numbers:?}") } else { text.to_owned() }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn elements(text: &str, canonical: impl Fn(&str) -> String + Copy) -> String {
    fn element(value: &Value, canonical: impl Fn(&str) -> String + Copy) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| element(item, canonical)).collect(),
            Value::Null => Value::Null,
            Value::String(text) => canonical(text).into(),
            other => canonical(&other.to_string()).into(),
        }
    }
    serde_json::from_str(text).map_or_else(|_| text.to_owned(), |array| element(&array, canonical).to_string())
}

/// The digits of numbers stay, the order of names does not count.
pub fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, String> = fields.iter().map(|(name, value)| (name, sorted(value))).collect();
            format!("{fields:?}")
        }
        Value::Array(items) => format!("{:?}", items.iter().map(sorted).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}
