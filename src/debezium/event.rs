//! What a record says happened.

use super::source::Source;
use super::value::{Row, Value};
use compact_str::CompactString;

/// Debezium's `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Read,
    Create,
    Update,
    Delete,
    Truncate,
    Message,
}

impl Operation {
    /// Debezium's letter.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Truncate => "t",
            Self::Message => "m",
        }
    }

    pub fn from_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "r" => Self::Read,
            "c" => Self::Create,
            "u" => Self::Update,
            "d" => Self::Delete,
            "t" => Self::Truncate,
            "m" => Self::Message,
            _ => return None,
        })
    }
}

/// The shape in which an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Debezium's envelope.
    Envelope,
    /// `ExtractNewRecordState`: the row with `__` metadata.
    Flattened,
    /// The outbox event router: the payload alone, its id in a header.
    Outbox,
    /// Any other value.
    Plain,
}

/// One change, or one plain message.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeEvent {
    pub shape: Shape,
    /// Absent for plain and outbox values.
    pub op: Option<Operation>,
    /// Absent for plain and outbox values, and for flattened rows without metadata.
    pub source: Option<Source>,
    /// The record's key; a scalar key stands as it is.
    pub key: Option<Value>,
    pub before: Option<Row>,
    /// The row after the change; for plain and outbox records the value itself where it is an object.
    pub after: Option<Row>,
    /// A plain or outbox value that is no object (text, number, array).
    pub scalar: Option<Value>,
    /// `__debezium.oldkey` / `__debezium.newkey`: this record is one half of a change of key.
    pub key_change: Option<KeyChange>,
    /// The types of the values come from a schema.
    pub typed: bool,
    /// What derived ids are made of.
    pub wire: Wire,
    /// A CloudEvent's context attributes, where the change stood in its `data`.
    pub attributes: Option<Box<Row>>,
}

/// Key and row as they came on the wire, before any schema was applied: the same change has the same here with and
/// without the schema wrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Canonical JSON of the key; absent where there is none.
    pub key: Option<CompactString>,
    /// Why the key could not be read, where it should be more than bytes: they may differ where the key does not (with
    /// the id of another schema in front), so no id is derived from them.
    pub key_unread: Option<Box<str>>,
    /// SHA-256 in hex of the row's canonical JSON, taken where a derived id needs it: without a key, and for
    /// snapshot reads.
    pub row: Option<CompactString>,
}

impl ChangeEvent {
    /// A change that says nothing yet.
    pub fn change(shape: Shape, op: Operation, source: Option<Source>) -> Self {
        Self { op: Some(op), source, scalar: None, ..Self::message(shape, None, Value::Null) }
    }

    /// A value that is no change of a row: `after` if it is an object, else `scalar`.
    pub fn message(shape: Shape, key: Option<Value>, value: Value) -> Self {
        let (after, scalar) = match value {
            Value::Struct(row) => (Some(row), None),
            value => (None, Some(value)),
        };
        Self {
            shape,
            op: None,
            source: None,
            key,
            before: None,
            after,
            scalar,
            key_change: None,
            typed: false,
            wire: Wire::default(),
            attributes: None,
        }
    }

    /// The row that this event is about: `after`; for a delete `before`, or where the origin logged none, the key.
    pub fn row(&self) -> Option<&Row> {
        match (&self.after, &self.before, &self.key) {
            (Some(after), _, _) => Some(after),
            (None, Some(before), _) => Some(before),
            (None, None, Some(Value::Struct(key))) if self.op == Some(Operation::Delete) => Some(key),
            (None, None, _) => None,
        }
    }

    /// A field of [`ChangeEvent::row`] by its dotted path. Of a CloudEvent its attributes too, and its rows where they
    /// stood (`data.after.id`).
    pub fn field(&self, path: &str) -> Option<&Value> {
        self.row().and_then(|row| row.path(path)).or_else(|| self.attribute(path))
    }

    /// The same where the value itself is asked: a CloudEvent's own `id` goes before a column of that name.
    pub fn value_at(&self, path: &str) -> Option<&Value> {
        self.attribute(path).or_else(|| self.field(path))
    }

    fn attribute(&self, path: &str) -> Option<&Value> {
        let attributes = self.attributes.as_ref()?;
        attributes.path(path).or_else(|| match path.strip_prefix("data.")?.split_once('.')? {
            ("before", path) => self.before.as_ref()?.path(path),
            ("after", path) => self.after.as_ref()?.path(path),
            _ => None,
        })
    }

    /// A read of existing data, not a change: an initial, repeated or incremental snapshot.
    pub fn is_snapshot_read(&self) -> bool {
        // A flattened row without coordinates merely looks like one: it is upserted.
        self.op == Some(Operation::Read) && (self.source.is_some() || self.shape == Shape::Envelope)
    }
}

/// One half of a primary key change.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyChange {
    /// This is the create under the new key; the old key stands here.
    CreatedFrom(Value),
    /// This is the delete of the old key; the new key stands here.
    MovedTo(Value),
}

/// Why a record is no business event. Each is counted under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    Tombstone,
    Heartbeat,
    Transaction,
    SchemaChange,
    /// A logical decoding message (`pg_logical_emit_message`) that no route asks for.
    LogicalMessage,
    NoRoute,
    Truncate,
    Snapshot,
    Stale,
}

impl SkipReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Heartbeat => "heartbeat",
            Self::Transaction => "transaction",
            Self::SchemaChange => "schema_change",
            Self::LogicalMessage => "message",
            Self::NoRoute => "no_route",
            Self::Truncate => "truncate",
            Self::Snapshot => "snapshot",
            Self::Stale => "stale",
        }
    }
}

/// What decoding found.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    Event(Box<ChangeEvent>),
    /// A null value: a tombstone, or in a flattened topic the delete itself; the route decides.
    Tombstone {
        key: Option<Value>,
    },
    Skip(SkipReason),
}

/// Why a record cannot be used: it is parked with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Fault {
    /// A stable name in lower snake case, the same on every engine and in every format.
    pub code: &'static str,
    /// What and where; no row values, no secrets.
    pub detail: String,
}

impl Fault {
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}
