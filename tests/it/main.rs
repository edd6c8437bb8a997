//! The quick suite: real databases and Redis, Kafka as librdkafka's in-process mock cluster.
//!
//! Each property runs in worlds of its own (`world`), on all three databases where the database matters. The servers
//! are those of `tests/stack`; one that is missing fails the tests.
#![allow(clippy::unwrap_used)]

mod avro;
mod broker;
mod capture;
mod check;
mod codes;
mod command_line;
mod constraints;
mod daemon;
mod database;
mod edges;
mod epochs;
mod equivalence;
mod fence;
mod field_shapes;
mod field_types;
mod fixtures;
mod fuzz;
mod gate;
mod guard;
mod http_side;
mod ids;
mod inspect;
mod kafka_faults;
mod keyed;
mod moves;
mod offsets;
mod once;
mod parked_ids;
mod pause;
mod payments;
mod poison;
mod ports;
mod process;
#[allow(dead_code, reason = "the crash suite has more use for it")]
mod proxy;
mod reconcile;
mod redrive;
mod registry;
mod registry_server;
mod rejection;
mod relaying;
mod replay;
mod retention;

mod rows;
mod slices;
mod sweeping;
mod tidy;
mod trouble;
mod values;
mod versions;
mod wait;
mod wire_formats;
mod world;
