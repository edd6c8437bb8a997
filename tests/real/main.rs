//! The real suite: real Kafka, real Connect with Debezium, real databases and Redis, the built binary.
//!
//! `tests/stack/up.sh all` starts what it needs; a service that is missing fails the run. The tests share one Connect,
//! which two of them kill, so they run one at a time:
//! `cargo test --release --test real -- --test-threads=1`
#![allow(clippy::unwrap_used)]

mod broker;
mod broker_faults;
mod checklist;
mod column;
mod connect;
mod daemon;
mod database;
mod inspecting;
mod journeys;
mod kafka;
mod killed_connect;
mod killed_daemon;
mod matrix;
#[path = "../it/ports.rs"]
mod ports;
mod reconciling;
mod registry;
mod schemas;
mod shop;
mod stopping;
mod throughput;
mod view;
mod windows;
mod wire;
mod world;
