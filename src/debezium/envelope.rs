//! From a record to what it says happened, by the shape of its value.

use std::sync::Arc;

use compact_str::CompactString;
use sha2::{Digest, Sha256};

use super::avro::framing::{self, Framed};
use super::avro::{AvroOptions, Extent, Part, SchemaRef, WriterSchema, Writers};
use super::convert::{self, Strictness};
use super::document::{Document, SchemaCache};
use super::event::{ChangeEvent, Decoded, Fault, KeyChange, Operation, Shape};
use super::format::Format;
use super::parts::{DESCRIPTION_ALONE, is_description, logical_message, state};
use super::placeholder::{self, Placeholder};
use super::schema::Schema;
use super::source::Source;
use super::value::{Row, Value};
use super::{cloud_event, flattened, header, render, shape};
use crate::record::{Record, RecordPosition};

/// `[decode]` and `[registry]` of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// `unavailable.value.placeholder` of the connector, if it is not Debezium's default.
    pub placeholder: Option<String>,
    /// How Avro names its schemas, where there is a registry.
    pub avro: Option<AvroOptions>,
    pub key_format: Format,
    pub value_format: Format,
}

/// Why a record is not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It cannot be used.
    Fault(Fault),
    /// Its writer's schema is needed: find it, let the decoder [`Decoder::learn`] it, decode again.
    Schema(SchemaRef),
    /// The configuration does not fit the topic; nothing is known to be wrong with the record.
    Setup(String),
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Decodes the records of one lane; it remembers the schemas it has met.
#[derive(Clone, Debug)]
pub struct Decoder {
    placeholder: Placeholder,
    avro: Option<AvroOptions>,
    key_format: Format,
    value_format: Format,
    schemas: SchemaCache,
    writers: Writers,
    /// The record that a schema is missing for.
    asking: Option<RecordPosition>,
}

impl Decoder {
    pub fn new(options: DecodeOptions) -> Self {
        let DecodeOptions { placeholder, avro, key_format, value_format } = options;
        let placeholder = Placeholder::new(placeholder.as_deref().unwrap_or(placeholder::DEFAULT));
        let (schemas, writers) = (SchemaCache::default(), Writers::default());
        Self { placeholder, avro, key_format, value_format, schemas, writers, asking: None }
    }

    /// Decodes a record, JSON or Avro.
    ///
    /// # Errors
    /// Faults are `empty_value`, `undecodable`, `bad_schema`, `schema_not_found`, `type_mismatch`,
    /// `null_in_required`, `unknown_operation`, `delete_without_key`, `no_after`.
    pub fn decode(&mut self, record: &Record) -> Result<Decoded, Unread> {
        if self.writers.any_missing() && self.asking.as_ref() != Some(&record.position) {
            self.writers.forget_missing();
        }
        let internal = shape::internal(&record.position.topic, None, None).is_some();
        let value = match record.value.as_deref() {
            _ if internal => Document::null(),
            None => Document::null(),
            Some([]) => return Err(Fault::new("empty_value", "the value has no bytes; a tombstone is null").into()),
            Some(bytes) => match self.document(record, Part::Value, bytes, Extent::Needed) {
                Ok(document) => document,
                Err(Unread::Fault(fault)) => match numeral(record, bytes) {
                    Some(text) => Document { value: text, schema: None },
                    None => return Err(fault.into()),
                },
                Err(unread) => return Err(unread),
            },
        };
        let key = if internal { Key::default() } else { self.key(record)? };
        let mut decoded = self.interpret(record, key.document, value)?;
        if let Decoded::Event(event) = &mut decoded {
            event.wire.key_unread = key.unread;
        }
        Ok(decoded)
    }

    /// The answer to [`Unread::Schema`]: the schema, or why there is none, which then is the fault of the record.
    /// It holds for records of that topic.
    pub fn learn(&mut self, topic: &Arc<str>, id: SchemaRef, schema: Result<Arc<WriterSchema>, Fault>) {
        self.writers.learn(topic, id, schema);
    }

    fn document(&mut self, record: &Record, part: Part, bytes: &[u8], extent: Extent) -> Result<Document, Unread> {
        let format = self.format(part);
        let framed = match format {
            Format::Auto | Format::Avro => framing::locate(record, part, bytes, self.avro),
            Format::Json => Framed::No,
            Format::Bytes => return Ok(Document { value: Value::Bytes(bytes.into()), schema: None }),
        };
        match framed {
            Framed::No if format == Format::Avro => {
                let why = format!("{part} names no schema, and the configuration says that it is avro");
                Err(Unread::Fault(Fault::new("undecodable", why)))
            }
            Framed::No => Document::json(bytes, &mut self.schemas).map_err(Unread::Fault),
            Framed::Avro { schema, body } => match self.writers.get(&record.position.topic, part, schema) {
                Some(Ok(writer)) => writer.read_as(body, extent).map_err(Unread::Fault),
                Some(Err(fault)) => Err(Unread::Fault(fault.clone())),
                None => {
                    self.asking = Some(record.position.clone());
                    Err(Unread::Schema(schema))
                }
            },
            Framed::Misfit(why) => Err(Unread::Setup(why)),
        }
    }

    fn format(&self, part: Part) -> Format {
        match part {
            Part::Key => self.key_format,
            Part::Value => self.value_format,
        }
    }

    /// The key. One that cannot be read is text, or bytes: it never spoils a good value.
    fn key(&mut self, record: &Record) -> Result<Key, Unread> {
        let Some(bytes) = record.key.as_deref() else { return Ok(Key::default()) };
        let why = match self.document(record, Part::Key, bytes, Extent::Needed) {
            Ok(document) => return Ok(Key { document: Some(document), unread: None }),
            Err(unread @ Unread::Schema(_)) => return Err(unread),
            Err(Unread::Setup(why)) => Some(why),
            Err(Unread::Fault(fault)) => {
                // Neither Avro nor JSON, and nobody said that it would be.
                let plain = self.key_format == Format::Auto
                    && framing::locate(record, Part::Key, bytes, self.avro) == Framed::No;
                (!plain).then(|| format!("the key cannot be read ({fault}); {}", Part::Key.or_no_avro()))
            }
        };
        let document = Document { value: Value::of_bytes(bytes), schema: None };
        Ok(Key { document: Some(document), unread: why.map(String::into_boxed_str) })
    }

    /// The value alone as it came, for whoever shows it: coordinates and internal records are not kept in an event.
    pub fn content(&mut self, record: &Record) -> Option<Value> {
        let bytes = record.value.as_deref()?;
        self.document(record, Part::Value, bytes, Extent::Whole).ok().map(|document| document.value)
    }

    /// What a record says, its key and value read from whatever format. A null document is no key, or a tombstone.
    pub fn interpret(&self, record: &Record, key: Option<Document>, value: Document) -> Result<Decoded, Fault> {
        let decoded = self.read(record, key, value, Strictness::Full)?;
        if let Decoded::Event(event) = &decoded {
            check(event)?;
        }
        Ok(decoded)
    }

    /// What can still be said about a record that [`Decoder::decode`] refused: enough, perhaps, for its route and its
    /// id. Values that do not fit their schema are left out as unknown. `None` if the bytes cannot be read at all.
    pub fn salvage(&mut self, record: &Record) -> Option<ChangeEvent> {
        let value = self.document(record, Part::Value, record.value.as_deref()?, Extent::Needed).ok()?;
        let key = self.key(record).ok()?;
        match self.read(record, key.document, value, Strictness::Salvage).ok()? {
            Decoded::Event(mut event) => {
                event.wire.key_unread = key.unread;
                Some(*event)
            }
            Decoded::Tombstone { .. } | Decoded::Skip(_) => None,
        }
    }

    /// The delete that a tombstone is in a flattened topic without delete records (`tombstone = "delete"`): its key
    /// is the Kafka key, its coordinates are in the headers if anywhere (`add.headers`).
    pub fn tombstone_delete(&mut self, record: &Record) -> Result<ChangeEvent, Unread> {
        let Key { document, unread } = self.key(record)?;
        let (wire_key, key) = read_key(document.filter(|key| key.value != Value::Null));
        let source = flattened::metadata(record, &Row::new()).and_then(|metadata| metadata.source);
        let mut event = ChangeEvent::change(Shape::Flattened, Operation::Delete, source);
        event.key = key;
        event.wire.key = wire_key;
        event.wire.key_unread = unread;
        check(&event)?;
        Ok(event)
    }

    fn read(
        &self,
        record: &Record,
        key: Option<Document>,
        value: Document,
        strictness: Strictness,
    ) -> Result<Decoded, Fault> {
        let key = key.filter(|key| key.value != Value::Null);
        let row = match &value.value {
            Value::Struct(row) => Some(row),
            _ => None,
        };
        if let Some(reason) = shape::internal(&record.position.topic, key.as_ref().map(|key| &key.value), row) {
            return Ok(Decoded::Skip(reason));
        }
        let key_schema = key.as_ref().and_then(|key| key.schema.clone());
        let (wire_key, key) = read_key(key);
        let Document { value, schema } = value;
        let reading = Reading {
            placeholder: &self.placeholder,
            schema: schema.as_deref(),
            strictness,
            keyless: wire_key.is_none(),
        };
        let mut event = match value {
            Value::Null => return Ok(Decoded::Tombstone { key }),
            Value::Struct(row) if is_change(record, &row) => reading.envelope(row)?,
            Value::Struct(row) if cloud_event::is_change(record, &row) => reading.cloud_event(record, row)?,
            Value::Struct(row) if cloud_event::is_avro_change(&row) => {
                let why = "the data of the CloudEvent is Avro: set `data.serializer.type=json` in its converter";
                return Err(Fault::new("undecodable", why));
            }
            Value::Struct(row) if shape::is_unknown_operation(&row) => {
                return Err(Fault::new("unknown_operation", "the envelope's op is none of r, c, u, d, t, m"));
            }
            Value::Struct(row) => match flattened::metadata(record, &row) {
                Some(metadata) => reading.flattened(row, metadata)?,
                None => reading.plain(record, Value::Struct(row))?,
            },
            scalar => reading.plain(record, scalar)?,
        };
        event.key = key;
        event.wire.key = wire_key;
        event.typed |= schema.is_some();
        event.key_change = key_change(record, event.op, key_schema.as_deref());
        Ok(Decoded::Event(Box::new(event)))
    }
}

/// A record's key.
#[derive(Default)]
struct Key {
    document: Option<Document>,
    /// Why it stands as the bytes that came, where it should be more than that.
    unread: Option<Box<str>>,
}

/// How one value is read.
struct Reading<'a> {
    placeholder: &'a Placeholder,
    schema: Option<&'a Schema>,
    strictness: Strictness,
    keyless: bool,
}

impl Reading<'_> {
    fn envelope(&self, mut row: Row) -> Result<ChangeEvent, Fault> {
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
        let mut event = ChangeEvent::change(Shape::Envelope, op, source);
        if op == Operation::Message {
            event.after = Some(logical_message(part("message"))?);
            return Ok(event);
        }
        let (before, after) = (state(row.remove("before"), "before")?, state(row.remove("after"), "after")?);
        if op == Operation::Update && after.is_none() && is_description(&row) && self.strictness != Strictness::Salvage
        {
            return Err(Fault::new("no_after", DESCRIPTION_ALONE));
        }
        event.wire.row = self.wire_row(op, after.as_ref().or(before.as_ref()));
        let field = |name: &str| self.schema.and_then(|schema| schema.field(0, name));
        event.before = before.map(|row| self.row(row, field("before"), self.leniently())).transpose()?;
        event.after = after.map(|row| self.row(row, field("after"), self.strictness)).transpose()?;
        Ok(event)
    }

    fn cloud_event(&self, record: &Record, row: Row) -> Result<ChangeEvent, Fault> {
        let change = cloud_event::take(record, row)?;
        let schema = change.schema.as_ref().or_else(|| self.schema.and_then(|schema| schema.field(0, "data")));
        let mut event = Reading { schema, ..*self }.envelope(change.envelope)?;
        event.typed = schema.is_some();
        event.attributes = change.attributes.map(Box::new);
        Ok(event)
    }

    fn flattened(&self, row: Row, metadata: flattened::Metadata) -> Result<ChangeEvent, Fault> {
        let mut event = ChangeEvent::change(Shape::Flattened, metadata.op, metadata.source);
        let row = flattened::without_metadata(row);
        event.wire.row = self.wire_row(metadata.op, Some(&row));
        if metadata.op == Operation::Delete {
            event.before = Some(self.row(row, self.schema, self.leniently())?);
        } else {
            event.after = Some(self.row(row, self.schema, self.strictness)?);
        }
        Ok(event)
    }

    /// An outbox payload, or any other value. A row of a flattened topic without metadata looks the same.
    fn plain(&self, record: &Record, value: Value) -> Result<ChangeEvent, Fault> {
        let shape = if has_id_header(record) { Shape::Outbox } else { Shape::Plain };
        let value = match (value, self.schema) {
            (Value::Struct(row), schema) => Value::Struct(self.row(row, schema, self.strictness)?),
            (scalar, Some(schema)) => convert::value(scalar, schema, self.strictness)?,
            (scalar, None) => scalar,
        };
        Ok(ChangeEvent::message(shape, None, value))
    }

    fn row(&self, row: Row, schema: Option<&Schema>, strictness: Strictness) -> Result<Row, Fault> {
        convert::row(row, schema, strictness, self.placeholder)
    }

    /// An old state is what the origin happened to log of it: with default replica identity little more than the key.
    fn leniently(&self) -> Strictness {
        match self.strictness {
            Strictness::Full | Strictness::Nulls => Strictness::Nulls,
            Strictness::Salvage => Strictness::Salvage,
        }
    }

    /// The row's digest where an id derived from coordinates needs it.
    fn wire_row(&self, op: Operation, row: Option<&Row>) -> Option<CompactString> {
        let row = row.filter(|_| self.keyless || op == Operation::Read)?;
        Some(render::hex(&Sha256::digest(render::canonical_row(row))).into())
    }
}

/// The wire form and the typed form. A key's nulls are never a fault: a key is only ever compared.
fn read_key(key: Option<Document>) -> (Option<CompactString>, Option<Value>) {
    let Some(Document { value, schema }) = key else {
        return (None, None);
    };
    let wire = CompactString::from(render::canonical(&value));
    let typed = match &schema {
        // A key that does not fit its own schema is used as it came.
        Some(schema) => convert::value(value.clone(), schema, Strictness::Nulls).unwrap_or(value),
        None => value,
    };
    (Some(wire), Some(typed))
}

/// An outbox payload of someone's own may have an `op` and an `after`; only Debezium's envelope has a source block.
fn is_change(record: &Record, row: &Row) -> bool {
    shape::is_envelope(row) && (matches!(row.get("source"), Some(Value::Struct(_))) || !has_id_header(record))
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

fn key_change(record: &Record, op: Option<Operation>, schema: Option<&Schema>) -> Option<KeyChange> {
    let other = |name: &str| record.header_values(name).flatten().next().and_then(|key| header::key(key, schema));
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
            let mongodb = event.source.as_ref().is_some_and(|source| source.connector == "mongodb");
            Err(Fault::new(
                "no_after",
                match mongodb {
                    true => "the envelope has no after; set the connector's capture.mode to one with full documents",
                    false => "the envelope has no after",
                },
            ))
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

#[cfg(test)]
mod tests;
