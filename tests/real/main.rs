//! The real suite: real Kafka, real Connect with Debezium, the built binary.
#![allow(clippy::unwrap_used)]
