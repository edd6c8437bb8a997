//! The quick suite: real databases and Redis, Kafka as librdkafka's in-process mock cluster.
//!
//! Each property runs in worlds of its own (`world`), on all three databases where the database matters. The servers
//! are those of `tests/stack`; one that is missing fails the tests.
#![allow(clippy::unwrap_used)]

mod broker;
mod check;
mod constraints;
mod database;
mod equivalence;
mod fence;
mod gate;
mod guard;
mod offsets;
mod once;
mod pause;
mod payments;
mod poison;
mod rejection;
mod rows;
mod tidy;
mod wait;
mod world;
