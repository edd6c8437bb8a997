//! Routes: which records a handler takes, and how a message is read from one.
//!
//! Everything here is checked configuration and pure functions; nothing knows where effects go.

pub mod columns;
mod id_format;
pub mod identify;
pub mod matching;
mod order;
mod place;
pub mod policy;
mod prepare;

use std::fmt;
use std::sync::Arc;

use crate::debezium::event::Operation;
pub use crate::debezium::temporal::TimeUnit;
pub use order::Order;

/// `max_id_bytes`, where it is not configured.
pub const DEFAULT_MAX_ID_BYTES: usize = 1000;

/// One `[[route]]`. Routes are tried in the order of the file; the first match takes the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub name: Arc<str>,
    /// Separates equal ids of different handlers inside a pipeline; empty by default.
    pub scope: Arc<str>,
    pub matcher: Matcher,
    /// The first rule whose place is present counts. Empty for no rule at all: such a route never matches.
    pub message_id: Vec<IdRule>,
    pub id_format: IdFormat,
    /// Bytes of UTF-8; longer ids are parked.
    pub max_id_bytes: usize,
    pub correlation_id: Option<Place>,
    pub source_app: Option<Place>,
    pub digest: DigestRule,
    /// Types for schemaless JSON, by field name; with a schema the schema decides.
    pub columns: Vec<(String, ColumnType)>,
    /// Undo one level of JSON inside a JSON string.
    pub double_encoded: bool,
    pub truncate: TruncatePolicy,
    pub tombstone: TombstonePolicy,
    pub snapshot: SnapshotPolicy,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            name: "".into(),
            scope: "".into(),
            matcher: Matcher::default(),
            message_id: Vec::new(),
            id_format: IdFormat::default(),
            max_id_bytes: DEFAULT_MAX_ID_BYTES,
            correlation_id: None,
            source_app: None,
            digest: DigestRule::default(),
            columns: Vec::new(),
            double_encoded: false,
            truncate: TruncatePolicy::default(),
            tombstone: TombstonePolicy::default(),
            snapshot: SnapshotPolicy::default(),
        }
    }
}

/// What a record must look like. Absent parts match everything; all present parts must match.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    pub topic: Option<TopicPattern>,
    /// `table`, `schema.table` or `db.schema.table` of the source block.
    pub table: Option<String>,
    /// Empty: every operation.
    pub ops: Vec<Operation>,
    /// Header name and the text that one of its values must equal.
    pub headers: Vec<(String, String)>,
    /// Dotted path and the canonical text that the value must equal.
    pub values: Vec<(String, String)>,
    /// Prefix of a logical decoding message; without it logical messages are skipped.
    pub prefix: Option<String>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.topic.as_ref().map(TopicPattern::as_str) == other.topic.as_ref().map(TopicPattern::as_str)
            && self.table == other.table
            && self.ops == other.ops
            && self.headers == other.headers
            && self.values == other.values
            && self.prefix == other.prefix
    }
}

/// A topic by name, or by `^regex` as librdkafka reads it.
#[derive(Clone, Debug)]
pub enum TopicPattern {
    Name(String),
    Regex(regex::Regex),
}

impl TopicPattern {
    /// `^…` is a regular expression, everything else a name.
    pub fn parse(text: &str) -> Result<Self, regex::Error> {
        if text.starts_with('^') { regex::Regex::new(text).map(Self::Regex) } else { Ok(Self::Name(text.to_owned())) }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Regex(regex) => regex.as_str(),
        }
    }

    pub fn matches(&self, topic: &str) -> bool {
        match self {
            Self::Name(name) => name == topic,
            Self::Regex(regex) => regex.is_match(topic),
        }
    }
}

/// Where a text is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `header:NAME`
    Header(String),
    /// `key:PATH`; the bare `key` is a scalar key.
    Key(Option<String>),
    /// `value:PATH`
    Value(String),
}

/// One entry of `message_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdRule {
    Place(Place),
    /// `source`: derived from connector coordinates.
    Source,
}

/// How the id stands at its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdFormat {
    /// Opaque text, byte for byte.
    #[default]
    Text,
    /// A UUID as text: letter case is folded.
    Uuid,
    /// A UUID as 16 raw bytes, or those in base64.
    UuidBytes,
}

/// What of a message's content its digest covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DigestRule {
    /// The whole business content.
    #[default]
    Whole,
    /// These dotted paths of the value.
    Include(Vec<String>),
}

/// A declared column type for JSON without a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Bool,
    Int,
    Uint,
    Float,
    Text,
    Bytes,
    Bits(u32),
    Decimal { precision: u32, scale: u32 },
    Date,
    Time(TimeUnit),
    Timestamp(TimeUnit),
    TimestampTz,
    Uuid,
    Json,
}

/// As it is written in the configuration.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |unit: &TimeUnit| match unit {
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Nanos => "ns",
        };
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Float => f.write_str("float"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Bits(length) => write!(f, "bits({length})"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Date => f.write_str("date"),
            Self::Time(u) => write!(f, "time({})", unit(u)),
            Self::Timestamp(u) => write!(f, "timestamp({})", unit(u)),
            Self::TimestampTz => f.write_str("timestamptz"),
            Self::Uuid => f.write_str("uuid"),
            Self::Json => f.write_str("json"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TruncatePolicy {
    #[default]
    Skip,
    Apply,
    Park,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TombstonePolicy {
    #[default]
    Skip,
    /// Flattened topics whose deletes are tombstones.
    Delete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotPolicy {
    /// Skip snapshot reads whose id is derived from `source`, unless the effect is a `table`.
    #[default]
    Auto,
    Apply,
    Skip,
}
