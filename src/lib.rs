//! `countersign`: each Debezium change event takes effect once, in the same database transaction as its dedup row, and
//! every message gets one terminal receipt.

#![forbid(unsafe_code)]

pub mod app;
pub mod check;
pub mod cli;
pub mod config;
pub mod debezium;
pub mod decision;
pub mod digest;
pub mod effect;
pub mod failpoint;
pub mod gate;
pub mod http;
pub mod invariants;
pub mod kafka;
pub mod lookup;
pub mod message;
pub mod metrics;
pub mod offsets;
pub mod pipeline;
pub mod purge;
pub mod receipt;
pub mod reconcile;
pub mod record;
pub mod record_line;
pub mod redrive;
pub mod registry;
pub mod relay;
pub mod route;
pub mod store;
pub mod supervisor;
pub mod sweeper;
