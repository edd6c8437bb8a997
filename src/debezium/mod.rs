//! Debezium and plain records, decoded. Pure: this folder knows no clock, no I/O and no configuration file.

pub mod event;
pub mod source;
pub mod value;
