//! The quick suite: real databases and Redis, Kafka as librdkafka's in-process mock cluster.
//!
//! Each property runs in worlds of its own (`world`), on all three databases where the database matters. The servers
//! are those of `tests/stack`; one that is missing fails the tests.
#![allow(clippy::unwrap_used)]

mod broker;
mod database;
mod once;
mod payments;
mod tidy;
mod wait;
mod world;
