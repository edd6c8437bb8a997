//! The configuration file: read once, checked as a whole, then trusted.
//!
//! A file becomes a tree with lines (`document`), is held against the schema made from the `raw` structs
//! (`shape`), and then checked for meaning (`check`); every step adds to one list of faults. This folder knows
//! no Kafka client and no database: librdkafka's opinion on an option comes through a hook.

mod check;
mod document;
mod fault;
mod node;
mod options;
mod quantity;
mod raw;
mod secret;
mod shape;
mod spelling;
mod substitute;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use self::check::Check;
use self::document::Document;
pub use self::fault::{Fault, Faults};
pub use self::options::*;
pub use self::quantity::duration;
use self::raw::RawConfig;
pub use self::secret::Secret;

/// One file: one pipeline. Debug prints no secret.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file, as it was named.
    pub origin: String,
    pub pipeline: PipelineOptions,
    pub kafka: KafkaOptions,
    pub registry: Option<RegistryOptions>,
    pub store: StoreOptions,
    pub gate: GateOptions,
    pub receipts: ReceiptOptions,
    pub http: HttpOptions,
    pub pause: PauseOptions,
    pub shutdown: ShutdownOptions,
    pub retry: RetryOptions,
    pub log: LogOptions,
    pub decode: DecodeOptions,
    /// In the order in which they are tried.
    pub routes: Vec<RouteConfig>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Fault>,
    /// Which of the sections that hold for the process this file has.
    said: check::ProcessSections,
}

/// What the configuration asks of the world around it.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// The environment, for `${NAME}`.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// librdkafka's opinion on a name and a value of `[kafka.options]`.
    pub kafka_option: &'a dyn Fn(&str, &str) -> Result<(), String>,
}

/// Reads files, and the `*.toml` of folders: one pipeline each. What is wrong in any of them is reported at once.
pub fn load(paths: &[PathBuf], host: Host<'_>) -> Result<Vec<Config>, Faults> {
    let mut faults = Faults::default();
    let mut configs = Vec::new();
    for file in files(paths, &mut faults) {
        let origin = file.display().to_string();
        match std::fs::read_to_string(&file) {
            Ok(text) => match Config::parse(&text, &origin, host) {
                Ok(config) => configs.push(config),
                Err(more) => faults.append(more),
            },
            Err(error) => faults.push(no_file(&file, format!("cannot be read: {error}"))),
        }
    }
    check::together(&mut configs, &mut faults);
    if faults.is_empty() { Ok(configs) } else { Err(faults) }
}

impl Config {
    /// Checks the text of one file. `origin` is its name in messages.
    pub fn parse(text: &str, origin: &str, host: Host<'_>) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let (document, tree) = Document::read(text, origin, host.env, &mut faults);
        let Some(mut tree) = tree else { return Err(faults) };
        let settled = shape::fit(&mut tree, &raw::schema(), &document, &mut faults);
        let raw = tree.into_value().map(RawConfig::deserialize);
        let Some(Ok(raw)) = raw else {
            // Serde's own text is left out: it may quote values.
            if faults.is_empty() {
                faults.push(document.fault("", "does not fit the configuration's schema: run `config schema`"));
            }
            return Err(faults);
        };
        Check::new(&document, settled, faults).config(raw, host.kafka_option, origin)
    }

    /// See [`StoreOptions::check_pool`].
    pub fn check_pool(&self, lanes: usize) -> Option<String> {
        self.store.check_pool(lanes)
    }
}

/// The JSON Schema of the file.
pub fn schema() -> serde_json::Value {
    raw::schema_for_editors()
}

/// Folders are not searched deeply, and names that begin with a dot are left out: a mounted Kubernetes
/// ConfigMap holds its files a second time under `..data`.
fn files(paths: &[PathBuf], faults: &mut Faults) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        match toml_files(path) {
            Ok(found) if found.is_empty() => faults.push(no_file(path, "this folder has no file *.toml")),
            Ok(found) => files.extend(found),
            Err(error) => faults.push(no_file(path, format!("cannot be read: {error}"))),
        }
    }
    if paths.is_empty() {
        faults.push(no_file(Path::new("configuration"), "no file is named: use -c FILE"));
    }
    files
}

fn toml_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn no_file(path: &Path, message: impl Into<String>) -> Fault {
    Fault { file: path.display().to_string(), line: None, path: String::new(), message: message.into() }
}

#[cfg(test)]
mod tests;
