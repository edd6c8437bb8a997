//! Header values as text: what the header converters of Kafka Connect make of one value.

use super::convert::{self, Strictness};
use super::document::{Unwrapped, unwrap};
use super::json;
use super::schema::Schema;
use super::value::Value;

/// The value of a header. Plain text, a JSON text in quotes and a value in the schema wrapper read alike
/// (`SimpleHeaderConverter`, `JsonConverter` without and with schemas); JSON `null` is null. `None`: not UTF-8.
pub fn read(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text == "null" {
        return Some(Value::Null);
    }
    if !text.starts_with(['"', '{']) {
        return Some(Value::Text(text.into()));
    }
    let value = match json::parse_text(text) {
        Ok(Value::Text(inner)) => Value::Text(inner),
        Ok(object) => match unwrap(object) {
            Unwrapped::Schema { schema, payload } => {
                let typed =
                    Schema::compile(&schema).and_then(|schema| convert::value(payload, &schema, Strictness::Nulls));
                typed.unwrap_or_else(|_| Value::Text(text.into()))
            }
            // `{"schema":null,"payload":…}` or an object: only the former is a wrapper, and it has a scalar inside.
            Unwrapped::Bare(Value::Struct(_) | Value::Array(_)) => Value::Text(text.into()),
            Unwrapped::Bare(scalar) => scalar,
        },
        Err(_) => Value::Text(text.into()),
    };
    Some(value)
}

/// The same where only text matters.
pub fn text(bytes: &[u8]) -> Option<String> {
    read(bytes)?.as_text().map(|text| text.into_owned())
}

/// A key in a header (`__debezium.oldkey`, `__debezium.newkey`): JSON, perhaps wrapped. Without a schema of its own it
/// has that of the record's key, whose other value it is. `None` if it is no key of that schema.
pub fn key(bytes: &[u8], of_record: Option<&Schema>) -> Option<Value> {
    let value = json::parse(bytes).ok()?;
    match (unwrap(value), of_record) {
        (Unwrapped::Bare(value), None) => Some(value),
        (Unwrapped::Bare(value), Some(schema)) => convert::value(value, schema, Strictness::Nulls).ok(),
        (Unwrapped::Schema { schema, payload }, _) => {
            let schema = Schema::compile(&schema).ok()?;
            convert::value(payload, &schema, Strictness::Nulls).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converters_agree_on_a_text() {
        for bytes in [
            "7b0c8f52",
            "\"7b0c8f52\"",
            r#"{"schema":{"type":"string","optional":false},"payload":"7b0c8f52"}"#,
            r#"{"schema": null, "payload": "7b0c8f52"}"#,
        ] {
            assert_eq!(text(bytes.as_bytes()).as_deref(), Some("7b0c8f52"), "{bytes}");
        }
        assert_eq!(text(b"42").as_deref(), Some("42"));
        assert_eq!(text(b"007").as_deref(), Some("007"));
        assert_eq!(text(b"\xff\x80"), None);
        assert_eq!(read(b"null"), Some(Value::Null));
        assert_eq!(read(b""), Some(Value::Text("".into())));
        for opaque in ["\"half", "{\"a\":1}", "{", "a\"b", "[1]"] {
            assert_eq!(text(opaque.as_bytes()).as_deref(), Some(opaque));
        }
        assert_eq!(read(br#"{"schema":{"type":"bytes"},"payload":"AP8="}"#), Some(Value::Bytes([0, 255].into())));
    }
}
