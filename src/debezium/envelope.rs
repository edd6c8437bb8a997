//! From a record to what it says happened, by the shape of its value.

use sha2::{Digest, Sha256};

use super::convert::{self, Nulls};
use super::document::{Document, SchemaCache};
use super::event::{ChangeEvent, Decoded, Fault, KeyChange, Operation, Shape, Wire};
use super::placeholder::{self, Placeholder};
use super::schema::Schema;
use super::source::Source;
use super::value::{Row, Value};
use super::{flattened, header, json, render, shape};
use crate::record::Record;

/// `[decode]` of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// `unavailable.value.placeholder` of the connector, if it is not Debezium's default.
    pub placeholder: Option<String>,
}

/// Decodes the records of one lane; it remembers the schemas it has met.
#[derive(Clone, Debug)]
pub struct Decoder {
    placeholder: Placeholder,
    schemas: SchemaCache,
}

impl Decoder {
    pub fn new(options: DecodeOptions) -> Self {
        let placeholder = Placeholder::new(options.placeholder.as_deref().unwrap_or(placeholder::DEFAULT));
        Self { placeholder, schemas: SchemaCache::default() }
    }

    /// Decodes a JSON record.
    ///
    /// # Errors
    /// `empty_value`, `undecodable`, `bad_schema`, `type_mismatch`, `null_in_required`, `unknown_operation`,
    /// `delete_without_key`, `no_after`.
    pub fn decode(&mut self, record: &Record) -> Result<Decoded, Fault> {
        let key = self.key(record);
        let value = match record.value.as_deref() {
            _ if shape::internal(&record.position.topic, None, None).is_some() => Document::null(),
            None => Document::null(),
            Some([]) => return Err(Fault::new("empty_value", "the value has no bytes; a tombstone is null")),
            Some(bytes) => match Document::json(bytes, &mut self.schemas) {
                Ok(document) => document,
                Err(fault) => match numeral(record, bytes) {
                    Some(text) => Document { value: text, schema: None },
                    None => return Err(fault),
                },
            },
        };
        self.interpret(record, key, value)
    }

    /// The key of a JSON record. A key that is no JSON is text, or bytes: it never spoils a good value.
    pub fn key(&mut self, record: &Record) -> Option<Document> {
        let bytes = record.key.as_deref()?;
        let document = Document::json(bytes, &mut self.schemas).unwrap_or_else(|_| Document {
            value: std::str::from_utf8(bytes)
                .map_or_else(|_| Value::Bytes(bytes.into()), |text| Value::Text(text.into())),
            schema: None,
        });
        Some(document)
    }

    /// What a record says, its key and value read from whatever format. A null document is no key, or a tombstone.
    pub fn interpret(&self, record: &Record, key: Option<Document>, value: Document) -> Result<Decoded, Fault> {
        let key = key.filter(|key| key.value != Value::Null);
        let row = match &value.value {
            Value::Struct(row) => Some(row),
            _ => None,
        };
        if let Some(reason) = shape::internal(&record.position.topic, key.as_ref().map(|key| &key.value), row) {
            return Ok(Decoded::Skip(reason));
        }
        let (wire_key, key) = read_key(key);
        let Document { value, schema } = value;
        let schema = schema.as_deref();
        let mut event = match value {
            Value::Null => return Ok(Decoded::Tombstone { key }),
            Value::Struct(row) if shape::is_envelope(&row) => self.envelope(row, schema, wire_key.is_none())?,
            Value::Struct(row) if shape::is_unknown_operation(&row) => {
                return Err(Fault::new("unknown_operation", "the envelope's op is none of r, c, u, d, t, m"));
            }
            Value::Struct(row) => match flattened::metadata(record, &row) {
                Some(metadata) => self.flattened(row, metadata, schema, wire_key.is_none())?,
                None => self.plain(record, Value::Struct(row), schema)?,
            },
            scalar => self.plain(record, scalar, schema)?,
        };
        event.key = key;
        event.wire.key = wire_key;
        event.typed = schema.is_some();
        event.key_change = key_change(record, event.op);
        check(&event)?;
        Ok(Decoded::Event(Box::new(event)))
    }

    /// The delete that a tombstone is in a flattened topic without delete records (`tombstone = "delete"`): its key
    /// is the Kafka key, its coordinates are in the headers if anywhere (`add.headers`).
    pub fn tombstone_delete(&mut self, record: &Record) -> Result<ChangeEvent, Fault> {
        let (wire_key, key) = read_key(self.key(record).filter(|key| key.value != Value::Null));
        let source = flattened::metadata(record, &Row::new()).and_then(|metadata| metadata.source);
        let event = ChangeEvent {
            op: Some(Operation::Delete),
            source,
            wire: Wire { key: wire_key, row: None },
            ..ChangeEvent::message(Shape::Flattened, key, Value::Null)
        };
        let event = ChangeEvent { scalar: None, ..event };
        check(&event)?;
        Ok(event)
    }

    fn envelope(&self, mut row: Row, schema: Option<&Schema>, keyless: bool) -> Result<ChangeEvent, Fault> {
        let op = match row.get("op") {
            Some(Value::Text(letter)) => Operation::from_letter(letter),
            _ => None,
        };
        let op = op.expect("an envelope is recognised by its op");
        let part = |name: &str| match row.get(name) {
            Some(Value::Struct(row)) => Some(row),
            _ => None,
        };
        let source = part("source").map(|source| Source::read(source, part("transaction")));
        if op == Operation::Message {
            let after = Some(logical_message(part("message"))?);
            return Ok(ChangeEvent {
                op: Some(op),
                source,
                after,
                ..ChangeEvent::message(Shape::Envelope, None, Value::Null)
            }
            .without_scalar());
        }
        let (before, after) = (state(row.remove("before"), "before")?, state(row.remove("after"), "after")?);
        let wire_row =
            (keyless || op == Operation::Read).then(|| after.as_ref().or(before.as_ref())).flatten().map(row_digest);
        let field = |name: &str| schema.and_then(|schema| schema.field(0, name));
        let typed = |row: Option<Row>, name: &str, nulls: Nulls| {
            row.map(|row| convert::row(row, field(name), nulls, &self.placeholder)).transpose()
        };
        Ok(ChangeEvent {
            op: Some(op),
            source,
            before: typed(before, "before", Nulls::Lenient)?,
            after: typed(after, "after", Nulls::Checked)?,
            wire: Wire { key: None, row: wire_row },
            ..ChangeEvent::message(Shape::Envelope, None, Value::Null)
        }
        .without_scalar())
    }

    fn flattened(
        &self,
        row: Row,
        metadata: flattened::Metadata,
        schema: Option<&Schema>,
        keyless: bool,
    ) -> Result<ChangeEvent, Fault> {
        let deleted = metadata.op == Operation::Delete;
        let row = flattened::without_metadata(row);
        let wire_row = (keyless || metadata.op == Operation::Read).then(|| row_digest(&row));
        // A deleted row is what `before` was: with default replica identity little more than the key.
        let nulls = if deleted { Nulls::Lenient } else { Nulls::Checked };
        let row = Some(convert::row(row, schema, nulls, &self.placeholder)?);
        let (before, after) = if deleted { (row, None) } else { (None, row) };
        Ok(ChangeEvent {
            op: Some(metadata.op),
            source: metadata.source,
            before,
            after,
            wire: Wire { key: None, row: wire_row },
            ..ChangeEvent::message(Shape::Flattened, None, Value::Null)
        }
        .without_scalar())
    }

    /// An outbox payload, or any other value. A row of a flattened topic without metadata looks the same.
    fn plain(&self, record: &Record, value: Value, schema: Option<&Schema>) -> Result<ChangeEvent, Fault> {
        let shape = if has_id_header(record) { Shape::Outbox } else { Shape::Plain };
        let value = match (value, schema) {
            (Value::Struct(row), schema) => {
                Value::Struct(convert::row(row, schema, Nulls::Checked, &self.placeholder)?)
            }
            (scalar, Some(schema)) => convert::value(scalar, schema, Nulls::Checked)?,
            (scalar, None) => scalar,
        };
        Ok(ChangeEvent::message(shape, None, value))
    }
}

impl ChangeEvent {
    fn without_scalar(self) -> Self {
        Self { scalar: None, ..self }
    }
}

/// The wire form and the typed form. A key's nulls are never a fault: a key is only ever compared.
fn read_key(key: Option<Document>) -> (Option<Box<str>>, Option<Value>) {
    let Some(Document { value, schema }) = key else {
        return (None, None);
    };
    let wire = render::canonical(&value).into_boxed_str();
    let typed = match &schema {
        // A key that does not fit its own schema is used as it came.
        Some(schema) => convert::value(value.clone(), schema, Nulls::Lenient).unwrap_or(value),
        None => value,
    };
    (Some(wire), Some(typed))
}

fn has_id_header(record: &Record) -> bool {
    record.header_values("id").any(|value| value.is_some())
}

/// An outbox payload of digits with a leading zero is no JSON, and meant as text (`StringConverter`): turning it
/// away or into a number would both be wrong.
fn numeral(record: &Record, bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits && has_id_header(record)).then(|| Value::Text(text.into()))
}

/// A state of a row. MongoDB's connector sends it as JSON in a text.
fn state(value: Option<Value>, name: &str) -> Result<Option<Row>, Fault> {
    let mismatch = || Fault::new("type_mismatch", format!("field {name}: no row"));
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Struct(row)) => Ok(Some(row)),
        Some(Value::Text(text)) => match json::parse_text(&text) {
            Ok(Value::Struct(row)) => Ok(Some(row)),
            _ => Err(mismatch()),
        },
        Some(_) => Err(mismatch()),
    }
}

/// `pg_logical_emit_message`: a prefix and bytes.
fn logical_message(message: Option<&Row>) -> Result<Row, Fault> {
    let missing = |name: &str| Fault::new("type_mismatch", format!("field message.{name}: missing"));
    let message = message.ok_or_else(|| Fault::new("type_mismatch", "field message: missing"))?;
    let content = message.get("content").and_then(convert::bytes).ok_or_else(|| missing("content"))?;
    let mut row = Row::with_capacity(2);
    row.push("prefix", message.get("prefix").cloned().ok_or_else(|| missing("prefix"))?);
    row.push("content", Value::Bytes(content));
    Ok(row)
}

fn row_digest(row: &Row) -> Box<str> {
    use std::fmt::Write;
    let hash = Sha256::digest(render::canonical_row(row));
    let hex = hash.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    hex.into_boxed_str()
}

fn key_change(record: &Record, op: Option<Operation>) -> Option<KeyChange> {
    let other = |name: &str| record.header_values(name).flatten().next().and_then(header::key);
    match op? {
        Operation::Create => other("__debezium.oldkey").map(KeyChange::CreatedFrom),
        Operation::Delete => other("__debezium.newkey").map(KeyChange::MovedTo),
        Operation::Read | Operation::Update | Operation::Truncate | Operation::Message => None,
    }
}

/// What every later step may rely on: a delete says which row, a state has one.
fn check(event: &ChangeEvent) -> Result<(), Fault> {
    match event.op {
        Some(Operation::Delete) if event.row().is_none() && event.key.is_none() => {
            Err(Fault::new("delete_without_key", "a delete with neither key nor before names no row"))
        }
        Some(Operation::Read | Operation::Create | Operation::Update) if event.after.is_none() => {
            Err(Fault::new("no_after", "the envelope has no after"))
        }
        Some(
            Operation::Read
            | Operation::Create
            | Operation::Update
            | Operation::Delete
            | Operation::Truncate
            | Operation::Message,
        )
        | None => Ok(()),
    }
}
