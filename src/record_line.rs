//! Records as lines of JSON: what `capture` writes, `replay` and `inspect` read, and how a record is kept whole.
//!
//! `{"topic":"t","partition":0,"offset":5,"timestamp":1795989704876,"headers":[["name",V]],"key":V,"value":V}` where V
//! is text for UTF-8 bytes, null, or `{"base64":"…"}`. The lines of `kcat -J` are read as well.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::record::{Header, Record, RecordPosition};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordLineError {
    #[error("no JSON object: {0}")]
    NotJson(String),
    #[error("`{0}` is missing or has the wrong type")]
    Field(&'static str),
    /// Kafka counts from 0; librdkafka's negative numbers mean something else.
    #[error("`{0}` is negative")]
    Negative(&'static str),
}

pub fn write(record: &Record) -> String {
    json!({
        "topic": &*record.position.topic,
        "partition": record.position.partition,
        "offset": record.position.offset,
        "timestamp": record.timestamp_ms,
        "headers": headers_json(&record.headers),
        "key": bytes_json(record.key.as_deref()),
        "value": bytes_json(record.value.as_deref()),
    })
    .to_string()
}

pub fn read(line: &str) -> Result<Record, RecordLineError> {
    let value: Value = serde_json::from_str(line).map_err(|error| RecordLineError::NotJson(error.to_string()))?;
    let object = value.as_object().ok_or_else(|| RecordLineError::NotJson("not an object".to_owned()))?;
    let topic = object.get("topic").and_then(Value::as_str).ok_or(RecordLineError::Field("topic"))?;
    let partition = object.get("partition").and_then(Value::as_i64).and_then(|p| i32::try_from(p).ok());
    let partition = partition.ok_or(RecordLineError::Field("partition"))?;
    let offset = object.get("offset").and_then(Value::as_i64).ok_or(RecordLineError::Field("offset"))?;
    for (name, negative) in [("partition", partition < 0), ("offset", offset < 0)] {
        if negative {
            return Err(RecordLineError::Negative(name));
        }
    }
    // kcat says `ts` for the time and `payload` for the value.
    let timestamp_ms = match object.get("timestamp").or_else(|| object.get("ts")) {
        None | Some(Value::Null) => None,
        // Kafka's -1: the record has no time.
        Some(time) => Some(time.as_i64().ok_or(RecordLineError::Field("timestamp"))?).filter(|time| *time >= 0),
    };
    let value = object.get("value").or_else(|| object.get("payload"));
    Ok(Record {
        position: RecordPosition { topic: Arc::from(topic), partition, offset },
        timestamp_ms,
        headers: headers_from(object.get("headers"))?,
        key: bytes_from(object.get("key"), "key")?,
        value: bytes_from(value, "value")?,
    })
}

/// A header of a dead letter whose value, and headers perhaps, were too large to be kept. What was not kept must not be
/// taken for what was not there: without its value a record is a tombstone.
pub const NOT_KEPT: &str = "countersign.not-kept";

/// Headers alone, as a dead letter keeps them.
pub fn write_headers(headers: &[Header]) -> Vec<u8> {
    headers_json(headers).to_string().into_bytes()
}

pub fn read_headers(bytes: &[u8]) -> Result<Vec<Header>, RecordLineError> {
    let value = serde_json::from_slice(bytes).map_err(|error| RecordLineError::NotJson(error.to_string()))?;
    headers_from(Some(&value))
}

/// Bytes as V.
pub fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => Value::Null,
        Some((Ok(text), _)) => Value::from(text),
        Some((Err(_), bytes)) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

fn headers_json(headers: &[Header]) -> Value {
    headers.iter().map(|header| json!([header.name, bytes_json(header.value.as_deref())])).collect()
}

fn bytes_from(value: Option<&Value>, field: &'static str) -> Result<Option<Vec<u8>>, RecordLineError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone().into_bytes())),
        Some(Value::Object(object)) => {
            let text = object.get("base64").and_then(Value::as_str).ok_or(RecordLineError::Field(field))?;
            STANDARD.decode(text).map(Some).map_err(|_| RecordLineError::Field(field))
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => Err(RecordLineError::Field(field)),
    }
}

/// Pairs, or kcat's flat list of names and values.
fn headers_from(value: Option<&Value>) -> Result<Vec<Header>, RecordLineError> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(RecordLineError::Field("headers")),
    };
    let header = |name: Option<&Value>, value: Option<&Value>| {
        let name = name.and_then(Value::as_str).ok_or(RecordLineError::Field("headers"))?;
        Ok(Header { name: name.to_owned(), value: bytes_from(value, "headers")? })
    };
    if items.first().is_some_and(Value::is_string) {
        return items.chunks(2).map(|pair| header(pair.first(), pair.get(1))).collect();
    }
    items
        .iter()
        .map(|pair| {
            let pair = pair.as_array().ok_or(RecordLineError::Field("headers"))?;
            header(pair.first(), pair.get(1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            position: RecordPosition { topic: "t".into(), partition: 3, offset: 9 },
            timestamp_ms: Some(1_795_989_704_876),
            headers: vec![
                Header { name: "id".into(), value: Some(b"x".to_vec()) },
                Header { name: "id".into(), value: Some(vec![0xff, 0]) },
                Header { name: "none".into(), value: None },
            ],
            key: Some(vec![0, 159]),
            value: Some("ünïcode \"quoted\"\n".into()),
        }
    }

    #[test]
    fn a_record_comes_back_byte_for_byte() {
        for record in [record(), Record { key: None, value: None, timestamp_ms: None, ..record() }] {
            let line = write(&record);
            assert!(!line.contains('\n'));
            assert_eq!(read(&line).unwrap(), record);
            assert_eq!(read_headers(&write_headers(&record.headers)).unwrap(), record.headers);
        }
    }

    #[test]
    fn lines_of_kcat_are_read() {
        let line = r#"{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":5,"broker":1,"headers":["id","a"],"key":"k","payload":"v"}"#;
        let record = read(line).unwrap();
        assert_eq!(record.timestamp_ms, Some(5));
        assert_eq!(record.headers, [Header { name: "id".into(), value: Some(b"a".to_vec()) }]);
        assert_eq!(record.value.as_deref(), Some(b"v".as_slice()));
    }

    #[test]
    fn what_is_no_record_is_said_so() {
        assert!(matches!(read("nothing"), Err(RecordLineError::NotJson(_))));
        assert_eq!(read("{}"), Err(RecordLineError::Field("topic")));
        for (position, field) in
            [(r#""partition":-1,"offset":1"#, "partition"), (r#""partition":0,"offset":-1001"#, "offset")]
        {
            let line = format!(r#"{{"topic":"t",{position},"value":"v"}}"#);
            assert_eq!(read(&line), Err(RecordLineError::Negative(field)), "{line}");
        }
        let bad = r#"{"topic":"t","partition":0,"offset":1,"value":{"base64":"*"}}"#;
        assert_eq!(read(bad), Err(RecordLineError::Field("value")));
    }
}
