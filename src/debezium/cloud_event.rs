//! CloudEvents around a change (Debezium's `CloudEventsConverter`): the change that they hold, and their attributes.
//!
//! `data` holds `before` and `after` alone, in JSON perhaps in the schema wrapper; `op` and the source block are
//! extension attributes (`iodebeziumop`, `iodebeziumlsn`, …). In binary mode the attributes are headers (`ce_id`, …) and
//! the value is the data. A CloudEvent about anything else is a plain value, its data under `data`.

use super::document::{Unwrapped, unwrap};
use super::event::{Fault, Operation};
use super::header;
use super::schema::Schema;
use super::source;
use super::value::{Row, Value};
use crate::record::Record;

/// A change taken out of its CloudEvent.
pub struct CloudChange {
    /// As Debezium's own envelope.
    pub envelope: Row,
    /// The schema of `data`.
    pub schema: Option<Schema>,
    /// The CloudEvent without its data; in binary mode they are headers, and left there.
    pub attributes: Option<Row>,
}

/// Where Debezium puts what its envelope holds.
const EXTENSION: &str = "iodebezium";
const CHANGE_TYPE: &str = ".DataChangeEvent";

/// Whether `row` is a CloudEvent around a change, or the change of one whose attributes are headers.
pub fn is_change(record: &Record, row: &Row) -> bool {
    if matches!(row.get("specversion"), Some(Value::Text(_))) {
        let data = match row.get("data") {
            Some(Value::Struct(data)) => data,
            _ => return false,
        };
        let data = match data.get("payload") {
            Some(Value::Struct(payload)) if data.len() == 2 && data.get("schema").is_some() => payload,
            _ => data,
        };
        return has_states(data) && operation(|name| text(row, name), data).is_some();
    }
    record.header_values("ce_specversion").next().is_some()
        && row.get("op").is_none()
        && has_states(row)
        && operation(|name| from_header(record, name), row).is_some()
}

/// Whether `row` is a CloudEvent around a change in Avro (`data.serializer.type=avro`), which is bytes in it.
pub fn is_avro_change(row: &Row) -> bool {
    let is = |name: &str, found: fn(&str) -> bool| matches!(row.get(name), Some(Value::Text(text)) if found(text));
    is("specversion", |_| true)
        && is("datacontenttype", |kind| kind.eq_ignore_ascii_case("application/avro"))
        && !matches!(row.get("data"), Some(Value::Struct(_)))
        && (is("type", |kind| kind.ends_with(CHANGE_TYPE)) || row.get(&extension("op")).is_some())
}

/// Takes the change out.
///
/// # Errors
/// `bad_schema` where the wrapper of `data` holds none.
pub fn take(record: &Record, mut row: Row) -> Result<CloudChange, Fault> {
    if !matches!(row.get("specversion"), Some(Value::Text(_))) {
        let envelope = envelope(|name| from_header(record, name), row);
        return Ok(CloudChange { envelope, schema: None, attributes: None });
    }
    let (data, schema) = match row.remove("data").map(unwrap) {
        Some(Unwrapped::Schema { schema, payload }) => (payload, Some(Schema::compile(&schema)?)),
        Some(Unwrapped::Bare(data)) => (data, None),
        None => (Value::Null, None),
    };
    let data = match data {
        Value::Struct(data) => data,
        _ => Row::new(),
    };
    let envelope = envelope(|name| text(&row, name), data);
    Ok(CloudChange { envelope, schema, attributes: Some(row) })
}

/// Old and new state, one of them perhaps null, as nothing but Debezium writes them.
fn has_states(data: &Row) -> bool {
    let state = |name: &str| match data.get(name) {
        Some(Value::Struct(_)) => Some(true),
        // MongoDB's are texts.
        Some(Value::Text(text)) if text.starts_with('{') => Some(true),
        Some(Value::Null) | None => Some(false),
        Some(_) => None,
    };
    match (state("before"), state("after")) {
        (Some(before), Some(after)) => before || after || (data.get("before").is_some() && data.get("after").is_some()),
        _ => false,
    }
}

/// Without the extension attributes the event's type says that it is a change, and its states which one: a new state
/// may be of a row that was or was not there.
fn operation(attribute: impl Fn(&str) -> Option<Value>, data: &Row) -> Option<Operation> {
    let named = attribute(&format!("{EXTENSION}op")).or_else(|| text(data, "op"));
    if let Some(Value::Text(letter)) = named {
        return Operation::from_letter(&letter);
    }
    match attribute("type") {
        Some(Value::Text(kind)) if kind.ends_with(CHANGE_TYPE) => {}
        _ => return None,
    }
    let there = |name: &str| data.get(name).is_some_and(|state| *state != Value::Null);
    match (there("before"), there("after")) {
        (_, true) => Some(Operation::Update),
        (true, false) => Some(Operation::Delete),
        (false, false) => None,
    }
}

fn envelope(attribute: impl Fn(&str) -> Option<Value>, mut data: Row) -> Row {
    let op = operation(&attribute, &data);
    let mut source = Row::new();
    for name in source::FIELDS {
        if let Some(value) = attribute(&extension(name)) {
            source.push(name, value);
        }
    }
    if !source.is_empty() && data.get("source").is_none() {
        data.push("source", Value::Struct(source));
    }
    if let (Some(op), None) = (op, data.get("op")) {
        data.push("op", Value::Text(op.letter().into()));
    }
    data
}

/// Attributes have lower-case letters and digits alone: `server_id` is `iodebeziumserverid`.
fn extension(field: &str) -> String {
    let plain = field.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase());
    EXTENSION.chars().chain(plain).collect()
}

fn text(row: &Row, name: &str) -> Option<Value> {
    row.get(name).filter(|value| **value != Value::Null).cloned()
}

fn from_header(record: &Record, name: &str) -> Option<Value> {
    record.header_values(&format!("ce_{name}")).flatten().find_map(header::read).filter(|value| *value != Value::Null)
}
