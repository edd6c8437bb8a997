//! The quick suite: real databases and Redis, Kafka as librdkafka's in-process mock cluster.
#![allow(clippy::unwrap_used)]

mod tidy;
