//! `countersign`: each Debezium change event takes effect once, in the same database transaction as its dedup row, and
//! every message gets one terminal receipt.

pub mod config;
pub mod debezium;
pub mod decision;
pub mod digest;
pub mod effect;
pub mod gate;
pub mod kafka;
pub mod message;
pub mod metrics;
pub mod offsets;
pub mod pipeline;
pub mod receipt;
pub mod record;
pub mod record_line;
pub mod route;
pub mod store;
pub mod relay;
pub mod sweeper;
pub mod app;
pub mod http;
pub mod lookup;
pub mod supervisor;
pub mod cli;
