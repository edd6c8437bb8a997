//! `countersign`: each Debezium change event takes effect once.
pub mod store;
