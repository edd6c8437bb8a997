//! The value that Debezium puts where PostgreSQL did not log an unchanged TOASTed column, in all its disguises.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use md5::{Digest, Md5};

use super::convert::uuid_from_bytes;
use super::render::hex;
use super::value::Value;

/// `unavailable.value.placeholder` as Debezium ships it.
pub const DEFAULT: &str = "__debezium_unavailable_value";

/// A placeholder with its encodings. Only exact matches count: the words inside a sentence are ordinary text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    text: String,
    base64: String,
    /// The same where the placeholder's bytes meet `+` and `/`.
    base64_url: String,
    hex: String,
    /// `UUID.nameUUIDFromBytes`, for arrays of UUIDs.
    uuid: String,
}

impl Default for Placeholder {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl Placeholder {
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            base64: STANDARD.encode(text),
            base64_url: URL_SAFE.encode(text),
            hex: hex(text.as_bytes()),
            uuid: name_uuid(text.as_bytes()),
        }
    }

    /// Whether `value`, as it came on the wire, stands for "unchanged". The forms are those of Debezium's
    /// `UnchangedToastedPlaceholder`: text; bytes (in JSON base64; base64, base64-url-safe or hex by
    /// `binary.handling.mode`); arrays of one
    /// text, bytes or UUID; arrays of the bytes as numbers; an hstore of the placeholder under itself; and the
    /// bytes inside the structs of geometry and variable-scale decimals.
    pub fn stands_in(&self, value: &Value) -> bool {
        match value {
            Value::Text(text) => self.scalar(text) || self.hstore_text(text),
            Value::Bytes(bytes) => **bytes == *self.text.as_bytes(),
            Value::Array(items) => match &items[..] {
                [Value::Text(text)] => self.scalar(text) || *self.uuid == **text,
                [Value::Bytes(bytes)] => **bytes == *self.text.as_bytes(),
                _ => self.codes(items),
            },
            Value::Struct(row) => match row.len() {
                1 => matches!(row.get(&self.text), Some(Value::Text(text)) if **text == *self.text),
                2..=4 => ["wkb", "value"].iter().any(|name| row.get(name).is_some_and(|inner| self.bytes(inner))),
                _ => false,
            },
            Value::Unavailable => true,
            // Nothing else has room for a text or bytes.
            _ => false,
        }
    }

    fn scalar(&self, text: &str) -> bool {
        text == self.text
            || text == self.base64
            || text == self.base64_url
            || text.len() == self.hex.len() && text.eq_ignore_ascii_case(&self.hex)
    }

    /// `hstore.handling.mode=json`.
    fn hstore_text(&self, text: &str) -> bool {
        text.len() == 2 * self.text.len() + 7 && text == format!("{{\"{0}\":\"{0}\"}}", self.text)
    }

    fn bytes(&self, value: &Value) -> bool {
        match value {
            Value::Text(text) => **text == *self.base64,
            Value::Bytes(bytes) => **bytes == *self.text.as_bytes(),
            _ => false,
        }
    }

    fn codes(&self, items: &[Value]) -> bool {
        !items.is_empty()
            && items.len() == self.text.len()
            && items
                .iter()
                .zip(self.text.bytes())
                .all(|(item, byte)| *item == Value::Int(i64::from(byte.cast_signed())))
    }
}

/// Java's UUID of a name without a name space: MD5 with the version and the variant written over it.
fn name_uuid(name: &[u8]) -> String {
    let mut bytes: [u8; 16] = Md5::digest(name).into();
    bytes[6] = bytes[6] & 0x0f | 0x30;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    uuid_from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::json::parse_text;

    #[test]
    fn every_disguise_is_seen_and_no_likeness() {
        for text in [DEFAULT, "__other", "n/a?>>~~", "\u{e9}\u{4e16}"] {
            let placeholder = Placeholder::new(text);
            let base64 = STANDARD.encode(text);
            let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
            let codes: Vec<String> = text.bytes().map(|b| b.cast_signed().to_string()).collect();
            let disguises = [
                format!("\"{text}\""),
                format!("\"{base64}\""),
                format!("\"{}\"", URL_SAFE.encode(text)),
                format!("\"{hex}\""),
                format!("\"{}\"", hex.to_uppercase()),
                format!("[\"{text}\"]"),
                format!("[\"{base64}\"]"),
                format!("[{}]", codes.join(",")),
                format!("{{\"{text}\":\"{text}\"}}"),
                format!("\"{{\\\"{text}\\\":\\\"{text}\\\"}}\""),
                format!("{{\"wkb\":\"{base64}\",\"srid\":null}}"),
                format!("{{\"scale\":0,\"value\":\"{base64}\"}}"),
            ];
            for disguise in disguises {
                assert!(placeholder.stands_in(&parse_text(&disguise).unwrap()), "{disguise}");
            }
            assert!(placeholder.stands_in(&Value::Bytes(text.as_bytes().into())));
            for ordinary in [
                format!("\"the words {text} inside\""),
                format!("\"{text} \""),
                format!("[\"{text}\",\"{text}\"]"),
                format!("[{},0]", codes.join(",")),
                "[]".to_owned(),
                "null".to_owned(),
                "{}".to_owned(),
                format!("{{\"a\":\"{text}\"}}"),
            ] {
                assert!(!placeholder.stands_in(&parse_text(&ordinary).unwrap()), "{ordinary}");
            }
        }
        assert!(!Placeholder::new("").stands_in(&Value::Array(Vec::new())));
    }

    #[test]
    fn an_array_of_uuids_has_the_name_uuid() {
        // From the JDK's UUID.nameUUIDFromBytes.
        for (text, uuid) in
            [(DEFAULT, "b68a35a7-17ad-35b3-af2a-ae46edb4545a"), ("__other", "bc6765ba-d484-3288-bd9c-2f6fa911ff5d")]
        {
            let array = Value::Array(vec![Value::Text(uuid.into())]);
            assert!(Placeholder::new(text).stands_in(&array));
            assert!(!Placeholder::new("x").stands_in(&array));
            let two = Value::Array(vec![Value::Text(uuid.into()), Value::Text(uuid.into())]);
            assert!(!Placeholder::new(text).stands_in(&two));
        }
    }
}
