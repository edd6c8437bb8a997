//! Kafka Connect, through `tests/stack/connect.sh`.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{env, run};

fn script(arguments: &[&str]) -> String {
    run(Command::new("tests/stack/connect.sh").args(arguments))
}

pub fn register(file: &str, name: &str, settings: &[(&str, &str)]) {
    let path = format!("debezium/{file}.json");
    let mut pairs = vec![format!("name={name}")];
    if file.starts_with("mariadb") {
        // Two connectors with one number throw each other out of the server.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = 1_000_000 + std::process::id() * 20 + NUMBER.fetch_add(1, Ordering::Relaxed);
        pairs.push(format!("database.server.id={number}"));
        pairs.push(format!("schema.history.internal.kafka.topic=schema-history.{name}"));
    } else {
        pairs.push(format!("slot.name={}", name.replace('-', "_")));
        pairs.push(format!("publication.name={}", name.replace('-', "_")));
    }
    pairs.extend(settings.iter().map(|(key, value)| format!("{key}={value}")));
    let arguments: Vec<&str> = ["register", &path].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    script(&arguments);
}

/// Until it streams: what is written before that arrives as a snapshot.
pub fn wait(name: &str) {
    script(&["wait", name]);
}

/// Stores where the connector stands, so that a kill emits what comes now once more.
pub fn checkpoint(name: &str) {
    script(&["checkpoint", name]);
}

pub fn delete(name: &str) {
    script(&["delete", name]);
}

/// SIGKILL: no offset is flushed.
pub fn kill() {
    script(&["kill"]);
}

pub fn start() {
    script(&["start"]);
}

pub fn list() -> Vec<String> {
    let url = format!("{}/connectors", env("COUNTERSIGN_CONNECT_URL"));
    ureq::get(url).call().unwrap().body_mut().read_json().unwrap()
}
