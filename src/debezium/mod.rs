//! Debezium and plain records, decoded. Pure: this folder knows no clock, no I/O and no configuration file.
//!
//! Bytes become a [`document::Document`] (JSON here; another format may build its own), a document becomes
//! [`event::Decoded`] by its shape, and an event with its coordinates becomes an id or a guard position.

pub mod avro;
pub mod cloud_event;
pub mod convert;
pub mod decimal;
pub mod document;
pub mod envelope;
pub mod event;
pub mod flattened;
pub mod format;
pub mod guard;
pub mod header;
pub mod json;
mod parts;
pub mod placeholder;
pub mod render;
pub mod schema;
pub mod shape;
pub mod source;
pub mod source_id;
pub mod structured;
pub mod temporal;
pub mod value;
