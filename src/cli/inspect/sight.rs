//! What is seen of one record: its content, and with a configuration what the pipeline would make of it.

use std::sync::Arc;

use super::super::Failure;
use crate::app::{open_registry, reader_settings};
use crate::config::Config;
use crate::debezium::avro::{AvroOptions, Framing, IdKind};
use crate::debezium::envelope::{DecodeOptions, Decoder, Unread};
use crate::debezium::event::{ChangeEvent, Decoded, Fault, Operation, Shape, SkipReason};
use crate::debezium::render;
use crate::debezium::value::{Row, Value};
use crate::pipeline::batch::{Entry, Faulty, Reader, ReaderSettings};
use crate::pipeline::intake::{self, Hindrance};
use crate::record::Record;
use crate::registry::{Options, Registry, RegistryError};
use crate::route::identify::{Unusable, examine};
use crate::route::matching::select;
use crate::route::{IdRule, Place, Route};

/// A record as it is shown. Texts are JSON in the forms of the README; absent parts are left out.
pub struct Sight {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub kind: &'static str,
    pub op: Option<&'static str>,
    pub db: Option<String>,
    pub schema: Option<String>,
    pub table: Option<String>,
    pub key: Option<Value>,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub unavailable: Vec<String>,
    pub source: Option<Value>,
    pub message_id: Option<String>,
    pub correlation_id: Option<String>,
    pub digest: Option<String>,
    pub route: Option<Arc<str>>,
    pub error: Option<Trouble>,
    pub verdict: Verdict,
}

/// Why a record is undecodable, or would be parked.
pub struct Trouble {
    pub class: &'static str,
    pub code: String,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Read,
    Undecodable,
    NoRegistry,
}

/// Looks at records one after the other.
pub struct Eye {
    decoder: Decoder,
    registry: Option<Registry>,
    pipeline: Option<Pipeline>,
    /// By shape, where no configuration says how ids are made.
    by_source: Route,
    by_header: Route,
}

struct Pipeline {
    settings: Arc<ReaderSettings>,
    reader: Reader,
}

impl Eye {
    /// A registry that is named besides the configuration goes before the configuration's.
    pub async fn new(config: Option<&Config>, registry: Option<&str>) -> Result<Self, Failure> {
        let (registry, found) = match (registry, config) {
            (Some(url), _) => {
                let registry = Registry::discover(&Options::new(url)?).await?;
                (Some(registry), Some(AvroOptions { framing: Framing::Any, ids: IdKind::Open }))
            }
            (None, Some(config)) => (open_registry(config)?, None),
            (None, None) => (None, None),
        };
        let by = |rule| Route { message_id: vec![rule], ..Route::default() };
        let pipeline = config.map(|config| {
            let mut settings = reader_settings(config);
            settings.decode.avro = found.or(settings.decode.avro);
            let settings = Arc::new(settings);
            Pipeline { reader: Reader::new(Arc::clone(&settings)), settings }
        });
        let options = match &pipeline {
            Some(pipeline) => pipeline.settings.decode.clone(),
            None => DecodeOptions { avro: found, ..DecodeOptions::default() },
        };
        Ok(Self {
            decoder: Decoder::new(options),
            registry,
            pipeline,
            by_source: by(IdRule::Source),
            by_header: by(IdRule::Place(Place::Header("id".to_owned()))),
        })
    }

    /// # Errors
    /// The registry does not answer, or cannot be used: no other record would fare better.
    pub async fn look(&mut self, record: &Record) -> Result<Sight, Failure> {
        let mut sight = Sight::of(record);
        let decoded = match self.decode(record).await? {
            Ok(decoded) => decoded,
            Err((fault, verdict)) => {
                sight.undecodable(&fault, verdict);
                self.salvage(record, &mut sight).await;
                return Ok(sight);
            }
        };
        let content = self.decoder.content(record);
        sight.show(&decoded, content);
        match self.pipeline {
            Some(_) => self.as_configured(record, &decoded, &mut sight).await,
            None => self.as_found(record, decoded, &mut sight),
        }
        Ok(sight)
    }

    /// The one place where a record is decoded.
    async fn decode(&mut self, record: &Record) -> Result<Result<Decoded, (Fault, Verdict)>, Failure> {
        loop {
            let schema = match self.decoder.decode(record) {
                Ok(decoded) => return Ok(Ok(decoded)),
                Err(Unread::Fault(fault)) => return Ok(Err((fault, Verdict::Undecodable))),
                Err(Unread::Setup(why)) => return Ok(Err((Fault::new("no_registry", why), Verdict::NoRegistry))),
                Err(Unread::Schema(schema)) => schema,
            };
            let Some(registry) = &self.registry else {
                let fault = Fault::new("no_registry", format!("{schema} is needed"));
                return Ok(Err((fault, Verdict::NoRegistry)));
            };
            match intake::ask(registry, schema, &record.position.topic).await {
                Ok(answer) => self.decoder.learn(&record.position.topic, schema, answer),
                Err(Hindrance::Ambiguous(why)) => {
                    return Ok(Err((Fault::new("schema_ambiguous", why), Verdict::Undecodable)));
                }
                Err(Hindrance::Outage { reason, .. }) => return Err(Failure::Unreachable(reason)),
                Err(Hindrance::Setup(reason)) => return Err(Failure::Usage(reason)),
            }
        }
    }

    /// Without a configuration the shape says where an id would stand. None is ever made up.
    fn as_found(&self, record: &Record, decoded: Decoded, sight: &mut Sight) {
        let Decoded::Event(event) = decoded else { return };
        let route = match event.shape {
            Shape::Envelope | Shape::Flattened => &self.by_source,
            Shape::Outbox | Shape::Plain => &self.by_header,
        };
        let outbox = event.shape == Shape::Outbox;
        match examine(route, 0, record, *event) {
            Ok(message) => {
                sight.message_id = Some(message.id.as_str().to_owned());
                sight.digest = Some(message.digest.as_str().to_owned());
            }
            Err(unusable) => {
                sight.digest = Some(unusable.digest.as_str().to_owned());
                // A change without coordinates and a value without an id are nothing bad where nobody asks for one.
                if outbox {
                    sight.error = Some(Trouble::of("poison", &unusable.fault));
                }
            }
        }
    }

    /// What the pipeline would do with it.
    async fn as_configured(&mut self, record: &Record, decoded: &Decoded, sight: &mut Sight) {
        let Some(pipeline) = &mut self.pipeline else { return };
        let routes = &pipeline.settings.routes;
        let selected = select(routes, record, decoded);
        sight.route = selected.map(|index| Arc::clone(&routes[index].name));
        let entry = match intake::entry(&mut pipeline.reader, record, 0, self.registry.as_ref()).await {
            Ok(entry) => entry,
            Err(hindrance) => {
                sight.error = Some(Trouble {
                    class: "transient",
                    code: "no_registry".to_owned(),
                    detail: hindrance.into_reason(),
                });
                return;
            }
        };
        match entry {
            Entry::Message { message, .. } => {
                sight.identified(message.id.as_str(), message.correlation_id.as_deref(), message.digest.as_str());
                sight.content(&message.event);
            }
            Entry::Faulty(faulty) => {
                sight.faulty(&faulty);
                sight.error = Some(Trouble::of(faulty.class, &faulty.fault));
            }
            // Skipped by a policy of its route, it is a message all the same.
            Entry::Skip(_) => {
                if let (Some(index), Decoded::Event(event)) = (selected, decoded)
                    && let Ok(message) = examine(&routes[index], index, record, ChangeEvent::clone(event))
                {
                    sight.identified(message.id.as_str(), message.correlation_id.as_deref(), message.digest.as_str());
                    sight.content(&message.event);
                }
            }
        }
    }

    /// What is known of a record that cannot be decoded.
    async fn salvage(&mut self, record: &Record, sight: &mut Sight) {
        if let Some(event) = self.decoder.salvage(record) {
            sight.key = event.key;
        } else if let Some(key) = &record.key {
            sight.key = Some(Value::of_bytes(key));
        }
        let Some(pipeline) = &mut self.pipeline else {
            sight.digest = Some(Unusable::unknown(record, Fault::new("undecodable", "")).digest.as_str().to_owned());
            return;
        };
        if let Ok(Entry::Faulty(faulty)) = intake::entry(&mut pipeline.reader, record, 0, self.registry.as_ref()).await
        {
            sight.route = faulty.route.map(|index| Arc::clone(&pipeline.settings.routes[index].name));
            sight.faulty(&faulty);
        }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        let text = error.to_string();
        match error {
            RegistryError::Unavailable { .. } => Self::Unreachable(text),
            RegistryError::NotFound { .. }
            | RegistryError::BadSchema(_)
            | RegistryError::Denied { .. }
            | RegistryError::Misconfigured { .. }
            | RegistryError::Ambiguous { .. } => Self::Usage(text),
        }
    }
}

impl Trouble {
    fn of(class: &'static str, fault: &Fault) -> Self {
        Self { class, code: fault.code.to_owned(), detail: fault.detail.clone() }
    }
}

impl Sight {
    fn of(record: &Record) -> Self {
        Self {
            topic: Arc::clone(&record.position.topic),
            partition: record.position.partition,
            offset: record.position.offset,
            kind: "plain",
            op: None,
            db: None,
            schema: None,
            table: None,
            key: None,
            before: None,
            after: None,
            unavailable: Vec::new(),
            source: None,
            message_id: None,
            correlation_id: None,
            digest: None,
            route: None,
            error: None,
            verdict: Verdict::Read,
        }
    }

    fn undecodable(&mut self, fault: &Fault, verdict: Verdict) {
        self.kind = "undecodable";
        self.verdict = verdict;
        self.error = Some(Trouble::of("poison", fault));
    }

    fn identified(&mut self, id: &str, correlation_id: Option<&str>, digest: &str) {
        self.message_id = Some(id.to_owned());
        self.correlation_id = correlation_id.map(str::to_owned);
        self.digest = Some(digest.to_owned());
    }

    fn faulty(&mut self, faulty: &Faulty) {
        self.message_id = faulty.id.as_ref().map(|id| id.as_str().to_owned());
        self.correlation_id = faulty.correlation_id.as_deref().map(str::to_owned);
        self.digest = Some(faulty.digest.as_str().to_owned());
    }

    /// `content` is the value as it came.
    fn show(&mut self, decoded: &Decoded, content: Option<Value>) {
        match decoded {
            Decoded::Event(event) => {
                self.kind = match (event.op, event.shape) {
                    (Some(Operation::Message), _) => "message",
                    (_, Shape::Outbox) => "outbox",
                    (_, Shape::Envelope | Shape::Flattened) => "change",
                    (_, Shape::Plain) => "plain",
                };
                if let (Shape::Envelope, Some(Value::Struct(mut envelope))) = (event.shape, content) {
                    self.source = envelope.remove("source").filter(|source| matches!(source, Value::Struct(_)));
                    self.source.iter_mut().for_each(super::view::say_snapshot);
                }
                self.content(event);
            }
            Decoded::Tombstone { key } => {
                self.kind = "tombstone";
                self.key = key.clone();
            }
            Decoded::Skip(reason) => {
                self.kind = match reason {
                    SkipReason::Heartbeat => "heartbeat",
                    SkipReason::Transaction => "transaction",
                    SkipReason::SchemaChange => "schema-change",
                    SkipReason::Tombstone => "tombstone",
                    SkipReason::LogicalMessage => "message",
                    SkipReason::NoRoute | SkipReason::Truncate | SkipReason::Snapshot | SkipReason::Stale => "plain",
                };
                self.internal(content);
            }
        }
    }

    /// A record of Debezium's own: its fields as they came.
    fn internal(&mut self, content: Option<Value>) {
        let Some(Value::Struct(mut row)) = content else {
            self.after = content;
            return;
        };
        if self.kind == "schema-change" {
            self.source = row.remove("source");
            let name = |row: &Row, name: &str| row.get(name).and_then(Value::as_text).map(|text| text.into_owned());
            self.db = name(&row, "databaseName");
            self.schema = name(&row, "schemaName");
        }
        self.after = Some(Value::Struct(row));
    }

    fn content(&mut self, event: &ChangeEvent) {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.op = event.op.map(Operation::letter);
        if let Some(source) = &event.source {
            self.db = text(&source.db);
            self.schema = source.schema.as_deref().and_then(text);
            self.table = text(&source.table);
        }
        self.key = event.key.clone();
        self.before = event.before.clone().map(Value::Struct);
        self.after = event.after.clone().map(Value::Struct).or_else(|| event.scalar.clone());
        self.unavailable.clear();
        for row in [&event.after, &event.before].into_iter().flatten() {
            for name in render::unavailable(row) {
                if !self.unavailable.iter().any(|known| known == name) {
                    self.unavailable.push(name.to_owned());
                }
            }
        }
    }

    /// One JSON object, without a line break.
    pub fn line(&self) -> String {
        let mut out = String::with_capacity(512);
        out.push_str("{\"topic\":");
        render::write_text(&mut out, &self.topic);
        out.push_str(&format!(",\"partition\":{},\"offset\":{}", self.partition, self.offset));
        write_member(&mut out, "kind", Some(self.kind));
        write_member(&mut out, "op", self.op);
        write_member(&mut out, "db", self.db.as_deref());
        write_member(&mut out, "schema", self.schema.as_deref());
        write_member(&mut out, "table", self.table.as_deref());
        for (name, value) in [("key", &self.key), ("before", &self.before), ("after", &self.after)] {
            if let Some(value) = value {
                begin(&mut out, name);
                out.push_str(&render::json(value));
            }
        }
        if !self.unavailable.is_empty() {
            begin(&mut out, "unavailable");
            let names = self.unavailable.iter().map(|name| Value::Text(name.as_str().into()));
            out.push_str(&render::json(&Value::Array(names.collect())));
        }
        if let Some(source) = &self.source {
            begin(&mut out, "source");
            out.push_str(&render::json(source));
        }
        write_member(&mut out, "messageId", self.message_id.as_deref());
        write_member(&mut out, "correlationId", self.correlation_id.as_deref());
        write_member(&mut out, "digest", self.digest.as_deref());
        write_member(&mut out, "route", self.route.as_deref());
        if let Some(Trouble { class, code, detail }) = &self.error {
            begin(&mut out, "error");
            for (before, text) in [("{\"class\":", *class), (",\"code\":", code), (",\"detail\":", detail)] {
                out.push_str(before);
                render::write_text(&mut out, text);
            }
            out.push('}');
        }
        out.push('}');
        out
    }
}

fn begin(out: &mut String, name: &str) {
    out.push(',');
    render::write_text(out, name);
    out.push(':');
}

fn write_member(out: &mut String, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        begin(out, name);
        render::write_text(out, text);
    }
}
