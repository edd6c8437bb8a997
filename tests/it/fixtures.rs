//! What `tests/capture-fixtures.sh` took from real connectors.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;

use countersign::record::Record;
use countersign::record_line;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

pub fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file)
}

pub fn records(file: &str) -> Vec<Record> {
    let mut text = String::new();
    let mut opened = File::open(path(file)).unwrap();
    let read = if file.ends_with(".gz") {
        MultiGzDecoder::new(opened).read_to_string(&mut text)
    } else {
        opened.read_to_string(&mut text)
    };
    read.unwrap();
    text.lines().map(|line| record_line::read(line).unwrap()).collect()
}

/// The writers' schemas by the kind of their ids, as a registry would give them.
pub fn schemas() -> BTreeMap<String, BTreeMap<u64, Value>> {
    serde_json::from_str(&fs::read_to_string(path("registry.json")).unwrap()).unwrap()
}
