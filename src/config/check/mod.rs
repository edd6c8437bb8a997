//! What the settings mean: texts become checked values, and settings are held against each other.

mod client_options;
mod cross;
mod effect;
mod kafka;
mod matching;
mod option_names;
mod process;
mod registry;
mod route;
mod store;
mod together;

use std::time::Duration;

pub(super) use self::process::ProcessSections;
pub(super) use self::together::together;
use super::Config;
use super::document::Document;
use super::fault::{Fault, Faults};
use super::options::PipelineOptions;
use super::quantity;
use super::raw::{RawConfig, RawDuration, RawPipeline, RawSize};
use crate::route::DEFAULT_MAX_ID_BYTES;

/// `slices`, where it is not configured.
const DEFAULT_SLICES: usize = 8;

/// librdkafka's opinion on a name and a value.
pub(super) type OptionHook<'a> = &'a dyn Fn(&str, &str) -> Result<(), String>;

/// One file under check: its faults and warnings so far.
pub(super) struct Check<'a> {
    document: &'a Document,
    /// Paths whose shape is wrong: nothing more is said about them.
    settled: Vec<String>,
    faults: Faults,
    warnings: Vec<Fault>,
}

impl<'a> Check<'a> {
    pub fn new(document: &'a Document, settled: Vec<String>, faults: Faults) -> Self {
        Self { document, settled, faults, warnings: Vec::new() }
    }

    /// Checks every section even after faults; a faulty value is replaced by its default meanwhile.
    pub fn config(mut self, raw: RawConfig, hook: OptionHook<'_>, origin: &str) -> Result<Config, Faults> {
        let said = ProcessSections { http: raw.http.is_some(), log: raw.log.is_some() };
        let pipeline = self.pipeline(raw.pipeline.unwrap_or_default());
        let kafka = self.kafka(raw.kafka.unwrap_or_default(), &pipeline, hook);
        let avro = raw.registry.is_some();
        let registry = raw.registry.and_then(|registry| self.registry(registry));
        let store = self.store(raw.store.unwrap_or_default());
        let gate = self.gate(raw.gate);
        let receipts = self.receipts(raw.receipts.unwrap_or_default());
        let http = self.http(raw.http.unwrap_or_default());
        let pause = self.pause(raw.pause.unwrap_or_default());
        let shutdown = self.shutdown(raw.shutdown.unwrap_or_default(), kafka.session_timeout);
        let retry = self.retry(raw.retry.unwrap_or_default());
        let log = self.log(raw.log.unwrap_or_default());
        let decode = self.decode(raw.decode.unwrap_or_default(), avro);
        let routes = self.routes(raw.route.unwrap_or_default(), &pipeline);
        self.cross_timeouts(&kafka, store.as_ref(), &gate);
        self.cross_topics(&kafka, &receipts, &routes);
        self.cross_routes(&routes);
        let mut faults = self.faults;
        faults.sort_by_line();
        match store {
            Some(store) if faults.is_empty() => Ok(Config {
                origin: origin.to_owned(),
                pipeline,
                kafka,
                registry,
                store,
                gate,
                receipts,
                http,
                pause,
                shutdown,
                retry,
                log,
                decode,
                routes: routes.into_iter().flatten().collect(),
                warnings: self.warnings,
                said,
            }),
            _ => Err(faults),
        }
    }

    fn pipeline(&mut self, raw: RawPipeline) -> PipelineOptions {
        let name = raw.name.unwrap_or_default();
        self.name("pipeline.name", &name);
        PipelineOptions {
            name,
            unrouted: raw.unrouted.unwrap_or_default(),
            max_id_bytes: raw.max_id_bytes.map_or(DEFAULT_MAX_ID_BYTES, |bytes| bytes as usize),
            slices: raw.slices.map_or(DEFAULT_SLICES, |slices| slices as usize),
        }
    }

    /// Names of pipelines and routes stand in keys, metrics and addresses.
    fn name(&mut self, path: &str, name: &str) {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let quoted = self.document.quote(path);
            self.fault(path, format!("{quoted} is no name: use 1 to 64 of a-z, 0-9, `_` and `-`"));
        }
    }

    fn duration(&mut self, path: &str, raw: Option<RawDuration>, default: Duration) -> Duration {
        let Some(RawDuration(text)) = raw else { return default };
        quantity::duration(&text).unwrap_or_else(|| {
            let quoted = self.document.quote(path);
            self.fault(
                path,
                format!(
                    "{quoted} is no duration above zero: write it like \"500ms\", \"10s\", \"15m\", \"1h\", \"14d\""
                ),
            );
            default
        })
    }

    fn size(&mut self, path: &str, raw: Option<RawSize>, default: usize) -> usize {
        let bytes = match raw {
            None => return default,
            Some(RawSize::Bytes(bytes)) => usize::try_from(bytes).ok(),
            Some(RawSize::Text(text)) => quantity::size(&text),
        };
        bytes.unwrap_or_else(|| {
            let quoted = self.document.quote(path);
            self.fault(
                path,
                format!("{quoted} is no size: write it like \"64MiB\", \"512KiB\", or as a number of bytes"),
            );
            default
        })
    }

    /// The text as written, without what came from the environment.
    fn quote(&self, path: &str) -> String {
        self.document.quote(path)
    }

    fn fault(&mut self, path: &str, message: impl Into<String>) {
        if !self.settled.iter().any(|settled| entangled(settled, path)) {
            self.faults.push(self.document.fault(path, message));
        }
    }

    fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(self.document.fault(path, message));
    }
}

/// Whether one path is the other or a part of it.
fn entangled(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
