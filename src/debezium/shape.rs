//! Records recognised by what they look like, not by their topic alone: routes often take whole topic patterns.

use super::event::{Operation, SkipReason};
use super::value::{Row, Value};

/// Debezium's heartbeat topics (`topic.heartbeat.prefix`, default).
const HEARTBEAT_TOPIC: &str = "__debezium-heartbeat.";

/// A change event envelope: an `op` that Debezium knows, and rows or a source block beside it. A business value
/// that has a field `op` is none.
pub fn is_envelope(row: &Row) -> bool {
    let known = matches!(row.get("op"), Some(Value::Text(op)) if Operation::from_letter(op).is_some());
    known && has_envelope_body(row)
}

/// An envelope by its body whose `op` is a letter that is not known here.
pub fn is_unknown_operation(row: &Row) -> bool {
    let unknown = matches!(row.get("op"), Some(Value::Text(op)) if Operation::from_letter(op).is_none());
    unknown
        && matches!(row.get("source"), Some(Value::Struct(_)))
        && row.get("before").is_some()
        && row.get("after").is_some()
}

/// Debezium's own records that are no business events.
pub fn internal(topic: &str, key: Option<&Value>, value: Option<&Row>) -> Option<SkipReason> {
    if topic.starts_with(HEARTBEAT_TOPIC) {
        return Some(SkipReason::Heartbeat);
    }
    let value = value?;
    if is_heartbeat(key, value) {
        Some(SkipReason::Heartbeat)
    } else if is_transaction(value) {
        Some(SkipReason::Transaction)
    } else if is_schema_change(value) {
        Some(SkipReason::SchemaChange)
    } else {
        None
    }
}

fn has_envelope_body(row: &Row) -> bool {
    let part = |name: &str| row.get(name).unwrap_or(&Value::Null);
    let is_struct = |value: &Value| matches!(value, Value::Struct(_));
    if is_struct(part("source")) {
        return true;
    }
    let (before, after) = (part("before"), part("after"));
    let empty_or_struct = |value: &Value| is_struct(value) || *value == Value::Null;
    *part("source") == Value::Null
        && (is_struct(before) || is_struct(after))
        && empty_or_struct(before)
        && empty_or_struct(after)
}

fn is_heartbeat(key: Option<&Value>, value: &Row) -> bool {
    let Some(Value::Struct(key)) = key else { return false };
    key.len() == 1 && key.get("serverName").is_some() && value.len() == 1 && value.get("ts_ms").is_some()
}

fn is_transaction(value: &Row) -> bool {
    matches!(value.get("status"), Some(Value::Text(status)) if matches!(&**status, "BEGIN" | "END"))
        && matches!(value.get("id"), Some(Value::Text(_)))
        && value.get("event_count").is_some()
}

fn is_schema_change(value: &Row) -> bool {
    value.get("op").is_none()
        && matches!(value.get("source"), Some(Value::Struct(_)))
        && value.get("databaseName").is_some()
        && (value.get("ddl").is_some() || value.get("tableChanges").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::json::parse_text;

    fn row(text: &str) -> Row {
        match parse_text(text) {
            Ok(Value::Struct(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn envelopes_have_rows_or_a_source() {
        for text in [
            r#"{"op":"c","after":{"id":1}}"#,
            r#"{"op":"d","before":{"id":1},"after":null,"source":{}}"#,
            r#"{"op":"t","before":null,"after":null,"source":{"table":"t"}}"#,
            r#"{"op":"m","source":{},"message":{"prefix":"p","content":""}}"#,
        ] {
            assert!(is_envelope(&row(text)), "{text}");
        }
        for text in [
            r#"{"op":"c"}"#,
            r#"{"op":"c","after":"noon"}"#,
            r#"{"op":"add","after":{"id":1}}"#,
            r#"{"op":"c","source":"web","after":{}}"#,
            r#"{"after":{"id":1},"source":{}}"#,
            r#"{"op":1,"after":{"id":1}}"#,
        ] {
            assert!(!is_envelope(&row(text)), "{text}");
        }
        assert!(is_unknown_operation(&row(r#"{"op":"x","before":null,"after":{},"source":{}}"#)));
    }

    #[test]
    fn internal_records_are_seen_in_any_topic() {
        let key = |text: &str| Some(parse_text(text).unwrap());
        let seen = |key: Option<Value>, value: &str| internal("any", key.as_ref(), Some(&row(value)));
        assert_eq!(seen(key(r#"{"serverName":"s"}"#), r#"{"ts_ms":1}"#), Some(SkipReason::Heartbeat));
        assert_eq!(internal("__debezium-heartbeat.s", None, None), Some(SkipReason::Heartbeat));
        for status in ["BEGIN", "END"] {
            let value =
                format!(r#"{{"status":"{status}","id":"5:9","event_count":null,"data_collections":null,"ts_ms":1}}"#);
            assert_eq!(seen(None, &value), Some(SkipReason::Transaction));
        }
        let ddl =
            r#"{"source":{},"ts_ms":1,"databaseName":"d","schemaName":null,"ddl":"DROP TABLE t","tableChanges":[]}"#;
        assert_eq!(seen(None, ddl), Some(SkipReason::SchemaChange));
        for business in [r#"{"ts_ms":1}"#, r#"{"status":"BEGIN","id":"1"}"#, r#"{"ddl":"x","databaseName":"d"}"#] {
            assert_eq!(seen(key(r#"{"id":1}"#), business), None, "{business}");
        }
    }
}
