//! The checked settings: one small struct for each component, which it can be given without the rest.
//!
//! Nothing here knows files, texts or faults; every value is usable as it stands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::secret::Secret;
pub use crate::debezium::format::Format;
use crate::effect::spec::EffectSpec;
pub use crate::registry::{Flavour, Ids};
pub use crate::route::Order;
use crate::route::{Route, TopicPattern};
pub use crate::store::dialect::Dialect;

/// `[pipeline]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineOptions {
    pub name: String,
    pub unrouted: Unrouted,
    /// Bytes of UTF-8; each route carries it too.
    pub max_id_bytes: usize,
    /// Transactions at work side by side in one partition, where routes ask for less than its order.
    pub slices: usize,
}

/// What becomes of a record that no route takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unrouted {
    #[default]
    Skip,
    Park,
}

/// `[kafka]`
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// `bootstrap.servers`
    pub brokers: String,
    pub topics: Vec<TopicPattern>,
    /// `group.id`
    pub group: String,
    pub start: Start,
    pub on_lost_offsets: LostOffsets,
    /// `session.timeout.ms`; librdkafka's own default is 45 s, which holds up a takeover for as long.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`
    pub max_poll_interval: Duration,
    /// Bytes fetched ahead over all assigned partitions; librdkafka's queue limit holds per partition.
    pub buffer: usize,
    /// Records fetched ahead per partition.
    pub buffer_records: usize,
    /// librdkafka settings of consumer and producer. None of those that the fields above or safety rest on.
    pub options: BTreeMap<String, Secret>,
}

/// Where a group without offsets begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
    /// The first record of each partition at or after this time, in milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
}

/// What to do when a committed offset is out of the log's range; alarmed either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LostOffsets {
    #[default]
    Earliest,
    Stop,
}

/// `[registry]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryOptions {
    /// http or https, without user info and without a slash at its end.
    pub url: String,
    pub flavour: Flavour,
    /// What Apicurio's ids in front of a value mean; None: what its version does by default.
    pub ids: Option<Ids>,
    pub framing: Framing,
    pub auth: RegistryAuth,
    /// PEM; trusted besides the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// Of one request.
    pub timeout: Duration,
}

/// Where the id of a value's schema stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Framing {
    /// In the headers if they have one, else in front of the value.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "header")]
    Header,
    #[serde(rename = "4-byte")]
    FourByte,
    #[serde(rename = "8-byte")]
    EightByte,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAuth {
    None,
    Basic { username: String, password: Secret },
    Bearer(Secret),
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    pub url: Secret,
    pub dialect: Dialect,
    pub retention: Retention,
    /// Folder to which inbox rows are written before they are deleted.
    pub archive: Option<PathBuf>,
    /// Connections at most.
    pub pool: u32,
    /// For server-side limits (statement, lock, idle in transaction).
    pub transaction_timeout: Duration,
    /// Messages in one transaction at most.
    pub batch: usize,
    /// Bytes of messages in one transaction at most.
    pub batch_bytes: usize,
    /// A transaction pooler stands before the database: no named prepared statements.
    pub pooler: bool,
}

/// How long inbox rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    For(Duration),
    Forever,
}

impl Retention {
    /// None is for ever.
    pub fn window(self) -> Option<Duration> {
        match self {
            Self::For(window) => Some(window),
            Self::Forever => None,
        }
    }
}

/// `[gate]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateOptions {
    pub backend: GateBackend,
    pub claim_ttl: Duration,
    pub confirm_ttl: Duration,
    /// Of one round trip; after it the inbox is asked.
    pub timeout: Duration,
    /// Bound of the memory gate.
    pub memory_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateBackend {
    Off,
    Memory,
    /// `redis://` or `rediss://`; a `/DB` is part of it.
    Redis(Secret),
}

/// `[receipts]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptOptions {
    /// None: receipts are kept and served, not pushed.
    pub topic: Option<String>,
    pub format: ReceiptFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReceiptFormat {
    #[default]
    Json,
}

/// `[http]`, one for the process
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    pub listen: SocketAddr,
    pub read_token: Option<Secret>,
    pub operate_token: Option<Secret>,
}

/// `[pause]`: the systemic pause of a lane
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PauseOptions {
    pub parks: usize,
    /// Above 0, at most 1.
    pub ratio: f64,
    /// Records.
    pub window: usize,
}

/// `[shutdown]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// Below the session time-out, for a revoke waits as long. By default 80% of it and at most 10 s, which
    /// is 8 s with the default session.
    pub drain: Duration,
}

/// `[retry]`: messages set aside as WAITING
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    pub attempts: u32,
    pub delay: Duration,
    /// At least `delay`.
    pub max_delay: Duration,
}

/// `[log]`, one for the process
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub format: LogFormat,
    /// A filter as tracing reads it.
    pub level: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `[decode]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Debezium's `unavailable.value.placeholder`.
    pub placeholder: String,
    pub key_format: Format,
    pub value_format: Format,
}

/// `[[route]]` with its effect
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    pub route: Route,
    pub effect: EffectSpec,
    pub order: Order,
    pub late: Late,
}

/// What becomes of a message that is new to the inbox but older than its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Late {
    #[default]
    Park,
    Apply,
}

impl RegistryOptions {
    /// For the client: its own defaults for what the file does not say.
    pub fn client(&self) -> crate::registry::Options {
        use crate::registry::Auth;
        let auth = match &self.auth {
            RegistryAuth::None => Auth::None,
            RegistryAuth::Basic { username, password } => {
                Auth::Basic { username: username.clone(), password: password.expose().to_owned() }
            }
            RegistryAuth::Bearer(token) => Auth::Bearer(token.expose().to_owned()),
        };
        let mut options = crate::registry::Options::at(self.url.clone());
        options.flavour = self.flavour;
        options.ids = self.ids;
        options.auth = auth;
        options.ca_file.clone_from(&self.ca_file);
        options.connect_timeout = options.connect_timeout.min(self.timeout);
        options.timeout = self.timeout;
        options
    }
}

impl StoreOptions {
    /// What is wrong with the pool for so many lanes, each of which holds a connection while it writes;
    /// two more serve relay, sweeper and look-ups. SQLite has one writer whatever the pool is.
    pub fn check_pool(&self, lanes: usize) -> Option<String> {
        let wanted = lanes + SPARE_CONNECTIONS;
        match self.dialect {
            Dialect::Sqlite => None,
            Dialect::Postgres | Dialect::MySql if self.pool as usize >= wanted => None,
            Dialect::Postgres | Dialect::MySql => Some(format!(
                "store.pool = {} is too small for {lanes} lanes, they will wait for each other: \
                 set it to {wanted} or more",
                self.pool
            )),
        }
    }
}

const SPARE_CONNECTIONS: usize = 2;
