//! The file as written: what may stand where, in which type. The JSON Schema is made from these structs, and
//! the doc comments are its descriptions.
//!
//! Everything is optional here, because the shape of a file is checked against the schema first, with all
//! faults at once; `#[schemars(required)]` is what makes a setting mandatory. No Debug: secrets stand here.

mod route;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;

pub(super) use self::route::*;
use super::options::{Flavour, Format, Framing, Ids, LogFormat, LostOffsets, ReceiptFormat, Unrouted};

/// The schema for people's editors: to TOML, dotted names are tables.
pub(super) fn schema_for_editors() -> serde_json::Value {
    let mut schema = schema();
    for place in [
        "/properties/kafka/properties/options",
        "/properties/route/items/properties/match/properties/header",
        "/properties/route/items/properties/match/properties/value",
    ] {
        if let Some(kinds) = schema.pointer_mut(&format!("{place}/additionalProperties/anyOf")) {
            kinds.as_array_mut().into_iter().for_each(|kinds| kinds.push(serde_json::json!({"type": "object"})));
        }
    }
    schema
}

/// The schema that a file is held against.
pub(super) fn schema() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.for_deserialize().into_generator().into_root_schema_for::<RawConfig>().to_value();
    tidy(&mut schema);
    schema
}

/// TOML has no null: an optional setting is absent or of its type. Descriptions lose their line breaks.
fn tidy(schema: &mut serde_json::Value) {
    use serde_json::Value;
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(keys) => {
            keys.retain(|key, value| key != "default" || !value.is_null());
            if let Some(Value::String(text)) = keys.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if let Some(Value::Array(kinds)) = keys.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [only] = kinds.as_slice() {
                    let only = only.clone();
                    keys.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(values)) = keys.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Value::Array(branches)) = keys.get_mut("anyOf") {
                branches.retain(|branch| branch["type"] != "null");
                if let [Value::Object(only)] = branches.as_mut_slice() {
                    let only = std::mem::take(only);
                    keys.remove("anyOf");
                    for (key, value) in only {
                        keys.entry(key).or_insert(value);
                    }
                }
            }
            keys.values_mut().for_each(tidy);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Configuration of one countersign pipeline. In any text `${ENV}` and `${ENV:-default}` are filled in, `$${` is `${`;
/// settings that hold secrets also take `file:/path`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "countersign")]
pub(super) struct RawConfig {
    /// Who this pipeline is
    #[schemars(required)]
    pub pipeline: Option<RawPipeline>,
    /// Where records come from
    #[schemars(required)]
    pub kafka: Option<RawKafka>,
    /// Schema registry; only for Avro
    pub registry: Option<RawRegistry>,
    /// The database that holds the inbox and the effects
    #[schemars(required)]
    pub store: Option<RawStore>,
    /// A shortcut before the database; without this section there is none
    pub gate: Option<RawGate>,
    /// Where receipts are pushed to; without a topic they are kept and served
    pub receipts: Option<RawReceipts>,
    /// The HTTP side, one for the process
    pub http: Option<RawHttp>,
    /// When many parks in a short while pause a lane
    pub pause: Option<RawPause>,
    /// How long stopping may take
    pub shutdown: Option<RawShutdown>,
    /// How messages that were set aside are tried again
    pub retry: Option<RawRetry>,
    /// What is logged, for the whole process
    pub log: Option<RawLog>,
    /// How records are read
    pub decode: Option<RawDecode>,
    /// Which records are taken and what is done, tried in order; the first match takes the record
    #[schemars(required, length(min = 1))]
    pub route: Option<Vec<RawRoute>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPipeline {
    /// Scope of dedup and default Kafka group; `[a-z0-9_-]{1,64}`
    #[schemars(required)]
    pub name: Option<String>,
    /// What becomes of a record that no route takes; default "skip"
    pub unrouted: Option<Unrouted>,
    /// Longest MessageId in bytes of UTF-8, longer ones are parked; default 1000
    #[schemars(range(min = 1, max = 16384))]
    pub max_id_bytes: Option<u64>,
    /// Transactions at work side by side in one partition where routes have `order = "key"` or `"none"`; default 8
    #[schemars(range(min = 1, max = 64))]
    pub slices: Option<u64>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKafka {
    /// `host:port`, several with commas
    #[schemars(required)]
    pub brokers: Option<String>,
    /// Names, or `^regex`
    #[schemars(required, length(min = 1))]
    pub topics: Option<Vec<String>>,
    /// Consumer group; default the pipeline's name
    pub group: Option<String>,
    /// Where a group without offsets begins: "earliest" (default), "latest" or an RFC 3339 time
    pub start: Option<String>,
    /// What to do when the committed offset is no longer there, alarmed either way; default "earliest"
    pub on_lost_offsets: Option<LostOffsets>,
    /// Bytes that may be fetched ahead over all partitions; default "64MiB"
    pub buffer: Option<RawSize>,
    /// Records that may be fetched ahead per partition; default 10000
    #[schemars(range(min = 1, max = 10_000_000))]
    pub buffer_records: Option<u64>,
    /// Passed on to librdkafka (TLS, SASL, ...); keys that safety rests on are refused
    pub options: Option<BTreeMap<String, Scalar>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRegistry {
    /// Base address; user info in it is used to log in
    #[schemars(required)]
    pub url: Option<String>,
    /// "confluent" (default) or "apicurio"
    pub flavour: Option<Flavour>,
    /// What the ids in front of Apicurio's values mean, "global" or "content"; default "global" for its API 2,
    /// "content" for 3
    pub ids: Option<Ids>,
    /// Where the id of a schema stands: "header", "4-byte" or "8-byte"; default "auto", header or front
    pub framing: Option<Framing>,
    /// User for basic authentication
    pub username: Option<String>,
    /// Password for basic authentication
    pub password: Option<String>,
    /// Bearer token
    pub token: Option<String>,
    /// PEM file with the authorities to trust besides the system's
    pub ca_file: Option<String>,
    /// Limit of one request; default "5s"
    pub timeout: Option<RawDuration>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    /// postgres://, mysql://, mariadb:// or sqlite:PATH
    #[schemars(required)]
    pub url: Option<String>,
    /// How long inbox rows are kept, or "forever"; must cover what Kafka can redeliver; default "14d"
    pub retention: Option<String>,
    /// Folder for inbox rows that are purged, as packed lines of JSON; default none
    pub archive: Option<String>,
    /// Connections at most; default 10
    #[schemars(range(min = 1, max = 10_000))]
    pub pool: Option<u64>,
    /// Limit of one transaction, kept by the server; default "30s"
    pub transaction_timeout: Option<RawDuration>,
    /// Messages in one transaction at most; default 1000
    #[schemars(range(min = 1, max = 100_000))]
    pub batch: Option<u64>,
    /// Bytes of messages in one transaction at most; default "8MiB"
    pub batch_bytes: Option<RawSize>,
    /// A pooler that gives out connections per transaction (pgbouncer) stands before the database: no named
    /// prepared statements; default false
    pub pooler: Option<bool>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGate {
    /// redis://, rediss://, "memory" (default) or "off"
    pub url: Option<String>,
    /// How long a claim holds; longer than a transaction; default "15m"
    pub claim_ttl: Option<RawDuration>,
    /// How long a finished message is remembered; default "1h"
    pub confirm_ttl: Option<RawDuration>,
    /// How long to wait for an answer before asking the inbox instead; default "200ms"
    pub timeout: Option<RawDuration>,
    /// Size of the "memory" gate; default "64MiB"
    pub memory_bytes: Option<RawSize>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReceipts {
    /// Topic to which receipts are pushed; without it they are kept and served
    pub topic: Option<String>,
    /// Default "json"
    pub format: Option<ReceiptFormat>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHttp {
    /// IP:PORT; default "127.0.0.1:8080"
    pub listen: Option<String>,
    /// Bearer token of the read role
    pub read_token: Option<String>,
    /// Bearer token of the operate role
    pub operate_token: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPause {
    /// Parks within the window that pause a lane; default 50
    #[schemars(range(min = 1, max = 1_000_000))]
    pub parks: Option<u64>,
    /// Share of parks within the window that pauses a lane; default 0.2
    #[schemars(range(min = 0.001, max = 1))]
    pub ratio: Option<f64>,
    /// Records in the window; default 500
    #[schemars(range(min = 1, max = 1_000_000))]
    pub window: Option<u64>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShutdown {
    /// Time to finish what is in flight, below the session time-out; default 80% of that, at most "10s"
    pub drain: Option<RawDuration>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetry {
    /// Tries before a message that was set aside is parked; default 10
    #[schemars(range(min = 1, max = 10_000))]
    pub attempts: Option<u64>,
    /// Wait before the first of them, doubled each time; default "1s"
    pub delay: Option<RawDuration>,
    /// Longest wait; default "5m"
    pub max_delay: Option<RawDuration>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLog {
    /// "text" (default) or "json"
    pub format: Option<LogFormat>,
    /// A level, or a filter such as "info,countersign=debug"; default "info"
    pub level: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDecode {
    /// Debezium's unavailable.value.placeholder; default "__debezium_unavailable_value"
    pub placeholder: Option<String>,
    /// What keys are: "auto" (default), "avro", "json" or "bytes"
    pub key_format: Option<Format>,
    /// What values are: "auto" (default), "avro", "json" or "bytes"
    pub value_format: Option<Format>,
}

/// A duration such as "500ms", "10s", "15m", "1h" or "14d"
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = r"^([0-9]+(ms|s|m|h|d)|.*\$\{.*)$"))]
pub(super) struct RawDuration(pub String);

/// Bytes: a number, or a text such as "512KiB" or "64MiB"
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RawSize {
    Bytes(#[schemars(range(min = 1))] u64),
    Text(#[schemars(extend("pattern" = r"^([0-9]+ ?(B|KiB|MiB|GiB)?|.*\$\{.*)$"))] String),
}

/// A text, a number or a boolean
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
}

impl Scalar {
    /// The text that librdkafka takes, and the canonical text of a value.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Boolean(boolean) => boolean.to_string(),
        }
    }
}

/// One text, or a list of them
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(#[schemars(length(min = 1))] Vec<String>),
}

impl OneOrMany {
    /// With the path of each entry: `path` itself, or `path[n]`.
    pub fn entries(self, path: &str) -> Vec<(String, String)> {
        match self {
            Self::One(text) => vec![(path.to_owned(), text)],
            Self::Many(texts) => {
                texts.into_iter().enumerate().map(|(n, text)| (format!("{path}[{n}]"), text)).collect()
            }
        }
    }
}
