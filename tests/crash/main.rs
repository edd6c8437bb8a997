//! The crash suite: the daemon dies, stops, hangs or loses an answer at every named point, and an oracle looks at what
//! is left. Databases and Redis are real; Kafka is the mock of the quick suite, whose world this one shares.
//!
//! `cargo test --features failpoints --test crash`
#![allow(clippy::unwrap_used)]
// The quick suite uses more of the world than this one.
#![allow(dead_code)]

#[path = "../it/broker.rs"]
mod broker;
#[path = "../it/daemon.rs"]
mod daemon;
#[path = "../it/database.rs"]
mod database;
#[path = "../it/payments.rs"]
mod payments;
#[path = "../it/ports.rs"]
mod ports;
#[path = "../it/proxy.rs"]
mod proxy;
#[path = "../it/wait.rs"]
mod wait;
#[path = "../it/world.rs"]
mod world;

mod business;
mod cache;
mod deciding;
mod forgetful;
mod going_back;
mod installed;
mod large;
mod machine;
mod migrating;
mod network;
mod outages;
mod points;
mod pooler;
mod rivals;
mod server;
mod service;
mod soak;
mod zombie;
