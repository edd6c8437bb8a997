//! Rules about the source tree that no compiler checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers: a file imports from its own layer and from those below, never upwards.
const LAYERS: &[(u8, &[&str])] = &[
    (
        0,
        &[
            "debezium",
            "message",
            "digest",
            "record",
            "record_line",
            "receipt",
            "decision",
            "offsets",
            "invariants",
            "route",
            "metrics",
        ],
    ),
    (1, &["store", "gate", "failpoint"]),
    (2, &["kafka", "effect", "registry"]),
    (3, &["pipeline", "relay", "sweeper", "lookup", "purge", "reconcile", "redrive"]),
    (4, &["config", "http", "supervisor", "check"]),
    (5, &["app", "cli", "lib", "main"]),
];

/// What the pure layer must not know. `metrics` stands there because everything may count, and is no part of it.
const IMPURE: &[&str] =
    &["tokio", "sqlx", "rdkafka", "redis", "rand", "jiff", "std::time::Instant", "SystemTime", "async "];

/// A file beyond this has more than one purpose, unless it is a table or mostly tests.
const MOST_LINES: usize = 400;

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    files.sort();
    files
}

fn module(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// The code of a file without its tests and comments.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn files_import_only_downwards() {
    let layers: BTreeMap<&str, u8> =
        LAYERS.iter().flat_map(|(layer, modules)| modules.iter().map(|module| (*module, *layer))).collect();
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let module = module(&path);
        let Some(layer) = layers.get(module.as_str()) else {
            faults.push(format!("{}: module {module} has no layer", path.display()));
            continue;
        };
        for (at, _) in code(&text).match_indices("crate::") {
            let name: String = code(&text)[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if layers.get(name.as_str()).is_some_and(|other| other > layer) {
                faults.push(format!("{}: layer {layer} imports crate::{name}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_pure_layer_knows_no_clock_no_io_and_no_async() {
    let pure = LAYERS[0].1;
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_test || !pure.contains(&module(&path).as_str()) || module(&path) == "metrics" {
            continue;
        }
        let code = code(&text);
        for word in IMPURE.iter().filter(|word| code.contains(**word)) {
            faults.push(format!("{}: {word}", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_keeps_to_it() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path != Path::new("main.rs") && !text.starts_with("//!") {
            faults.push(format!("{}: no module documentation", path.display()));
        }
        let lines = code(&text).lines().count();
        if lines > MOST_LINES {
            faults.push(format!("{}: {lines} lines of code, {MOST_LINES} at most", path.display()));
        }
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["utils", "util", "common", "types", "helper", "helpers", "manager"].contains(&stem.as_str()) {
            faults.push(format!("{}: a name that says nothing", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The configurations that people copy: the README's and the one of the compose file.
#[test]
fn the_examples_are_valid_configurations() {
    use countersign::config::{Config, Host};
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let examples: Vec<&str> = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    let compose = fs::read_to_string(root.join("docker/countersign.toml")).unwrap();
    let host = Host { env: &|_| Some("x".to_owned()), kafka_option: &countersign::kafka::client::check_option };
    for text in examples.into_iter().chain([compose.as_str()]) {
        if let Err(faults) = Config::parse(text, "example", host) {
            panic!("{faults}\n{text}");
        }
    }
}
