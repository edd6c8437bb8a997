//! The value that Debezium puts where PostgreSQL did not log an unchanged TOASTed column, in all its disguises.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::render::hex;
use super::value::Value;

/// `unavailable.value.placeholder` as Debezium ships it.
pub const DEFAULT: &str = "__debezium_unavailable_value";

/// `UUID.nameUUIDFromBytes` of the default (an MD5 name UUID), for arrays of UUIDs. Of a configured placeholder it
/// is not computed: nothing else here needs MD5.
const DEFAULT_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";

/// A placeholder with its encodings. Only exact matches count: the words inside a sentence are ordinary text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    text: String,
    base64: String,
    hex: String,
    uuid: Option<&'static str>,
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
            hex: hex(text.as_bytes()),
            uuid: (text == DEFAULT).then_some(DEFAULT_UUID),
        }
    }

    /// Whether `value`, as it came on the wire, stands for "unchanged". The forms are those of Debezium's
    /// `UnchangedToastedPlaceholder`: text; bytes (in JSON base64, or hex by `binary.handling.mode`); arrays of one
    /// text, bytes or UUID; arrays of the bytes as numbers; an hstore of the placeholder under itself; and the
    /// bytes inside the structs of geometry and variable-scale decimals.
    pub fn stands_in(&self, value: &Value) -> bool {
        match value {
            Value::Text(text) => self.scalar(text) || self.hstore_text(text),
            Value::Bytes(bytes) => **bytes == *self.text.as_bytes(),
            Value::Array(items) => match &items[..] {
                [Value::Text(text)] => self.scalar(text) || self.uuid == Some(&**text),
                [Value::Bytes(bytes)] => **bytes == *self.text.as_bytes(),
                _ => self.codes(items),
            },
            Value::Struct(row) => match row.len() {
                1 => matches!(row.get(&self.text), Some(Value::Text(text)) if **text == *self.text),
                2..=4 => ["wkb", "value"].iter().any(|name| row.get(name).is_some_and(|inner| self.bytes(inner))),
                _ => false,
            },
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Number(_)
            | Value::Decimal(_)
            | Value::Float(_)
            | Value::Date(_)
            | Value::Time(_)
            | Value::TimeTz(_)
            | Value::Timestamp(_)
            | Value::TimestampTz(_)
            | Value::Interval(_)
            | Value::Bits(_)
            | Value::Uuid(_)
            | Value::Json(_)
            | Value::Geometry { .. } => false,
            Value::Unavailable => true,
        }
    }

    fn scalar(&self, text: &str) -> bool {
        text == self.text || text == self.base64 || text.len() == self.hex.len() && text.eq_ignore_ascii_case(&self.hex)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::json::parse_text;

    #[test]
    fn every_disguise_is_seen_and_no_likeness() {
        for text in [DEFAULT, "__other"] {
            let placeholder = Placeholder::new(text);
            let base64 = STANDARD.encode(text);
            let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
            let codes: Vec<String> = text.bytes().map(|b| b.to_string()).collect();
            let disguises = [
                format!("\"{text}\""),
                format!("\"{base64}\""),
                format!("\"{hex}\""),
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
        let array = Value::Array(vec![Value::Text(DEFAULT_UUID.into())]);
        assert!(Placeholder::default().stands_in(&array));
        assert!(!Placeholder::new("x").stands_in(&array));
    }
}
