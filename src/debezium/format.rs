//! In which format a part of a record is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// `[decode] key_format`, `value_format`.
///
/// No bytes are safe to tell a format by: a number of eight bytes or a raw uuid may look like Avro with the id of a
/// schema before it. Where people know what stands there, they say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Avro where it looks like it, else JSON; a key that is neither is a text, or bytes.
    #[default]
    Auto,
    /// With the id of its schema in front or in a header.
    Avro,
    /// With or without the schema wrapper, whatever the bytes look like.
    Json,
    /// Nothing is read: the bytes are the value.
    Bytes,
}
