//! Avro as Debezium's converters write it: an id in front of the bytes or in a header names the writer's schema,
//! which a registry keeps. Nothing here asks the registry: a decoder says which schema it needs and is told it.
//!
//! A schema is parsed by `apache-avro` and compiled once, into a plan by which the bytes are read and into the
//! Connect schema that says what the values mean. Reading gives the same wire values as the JSON converter's text
//! (bytes where that has base64), so that both formats share everything behind.

pub mod framing;
mod names;
mod plan;
mod read;
mod writer;
mod writers;

pub use framing::{AvroOptions, Framing, IdKind, Part};
pub(super) use read::Extent;
pub use writer::WriterSchema;
pub(super) use writers::Writers;

/// Where a registry keeps the schema that a record was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaId {
    /// The id of Confluent's API.
    Confluent(u32),
    /// Apicurio: one for each artifact version.
    Global(u64),
    /// Apicurio: one for each text of a schema.
    Content(u64),
}

/// What a record says of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaRef {
    Id(SchemaId),
    /// A number in front of the bytes; what it counts is the registry's matter.
    Number {
        number: u64,
        width: Width,
    },
}

/// The width of an id in front of a value, after the byte 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    Four,
    Eight,
}

impl std::fmt::Display for Width {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Four => "4 bytes",
            Self::Eight => "8 bytes",
        })
    }
}

impl std::fmt::Display for SchemaRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Number { number, .. } => write!(f, "schema {number}"),
        }
    }
}

impl std::fmt::Display for SchemaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Confluent(id) => write!(f, "schema id {id}"),
            Self::Global(id) => write!(f, "schema with global id {id}"),
            Self::Content(id) => write!(f, "schema with content id {id}"),
        }
    }
}

#[cfg(test)]
mod tests;
