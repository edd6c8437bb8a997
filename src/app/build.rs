//! From a checked configuration to the parts of a pipeline; nothing is connected yet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::AppError;
use super::running::Running;
use crate::config::{self, Config, GateBackend};
use crate::debezium::avro::{AvroOptions, Framing, IdKind};
use crate::debezium::envelope::DecodeOptions;
use crate::decision::PausePolicy;
use crate::effect;
use crate::effect::spec::EffectSpec;
use crate::gate::memory::MemoryGate;
use crate::gate::redis::{RedisGate, RedisOptions};
use crate::gate::{Gate, Off};
use crate::kafka::client::Connection;
use crate::lookup::Lookup;
use crate::metrics::Metrics;
use crate::pipeline::batch::ReaderSettings;
use crate::pipeline::status::Lanes;
use crate::pipeline::{Observed, PipelineOptions, RetryPolicy, Shared, Turns, unique_word};
use crate::purge::{Purger, Walks};
use crate::registry::{Flavour, Ids, Registry};
use crate::relay;
use crate::route::TopicPattern;
use crate::store::{Dialect, Store, StoreError, StoreOptions};
use crate::supervisor::{Health, PipelineView};

/// A pipeline of one configuration, not started yet.
pub struct Pipeline {
    config: Config,
    shared: Shared,
    view: PipelineView,
}
pub fn connection(config: &Config) -> Connection {
    let options = config.kafka.options.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    Connection { brokers: config.kafka.brokers.clone(), options: options.collect() }
}

pub fn open_store(config: &Config) -> Result<Store, StoreError> {
    Store::open(&StoreOptions {
        url: config.store.url.expose().to_owned(),
        pool: config.store.pool,
        transaction_timeout: config.store.transaction_timeout,
        pooler: config.store.pooler,
    })
}

pub fn lookup(config: &Config, store: Store) -> Lookup {
    let scopes: BTreeSet<Arc<str>> = config.routes.iter().map(|route| Arc::clone(&route.route.scope)).collect();
    Lookup { pipeline: Arc::from(config.pipeline.name.as_str()), store, scopes: scopes.into_iter().collect() }
}

/// What keeps the tables of a pipeline from growing for ever.
pub fn purger(config: &Config, store: Store, metrics: Metrics) -> Purger {
    Purger {
        pipeline: Arc::from(config.pipeline.name.as_str()),
        store,
        window: config.store.retention.window(),
        archive: config.store.archive.clone(),
        owner: unique_word(),
        metrics,
        walks: Walks::default(),
    }
}

/// How records become messages.
pub fn reader_settings(config: &Config) -> ReaderSettings {
    let is_table = |route: &config::RouteConfig| matches!(route.effect, EffectSpec::Table(_));
    ReaderSettings {
        pipeline: Arc::from(config.pipeline.name.as_str()),
        routes: config.routes.iter().map(|route| route.route.clone()).collect(),
        table_effects: config.routes.iter().map(is_table).collect(),
        park_unrouted: config.pipeline.unrouted == config::Unrouted::Park,
        decode: decode_options(config),
    }
}

/// With no more connections than the relay may use, one lane at a time.
fn slots(config: &Config) -> usize {
    (config.store.pool as usize).saturating_sub(relay::AT_ONCE).max(1)
}

/// SQLite has one writer at a time: side by side would be one behind the other.
fn slices(config: &Config, dialect: Dialect) -> usize {
    let ordered = config.routes.iter().all(|route| route.order == config::Order::Partition);
    if ordered || dialect == Dialect::Sqlite { 1 } else { config.pipeline.slices.min(slots(config)) }
}

fn open_gate(config: &Config) -> Result<Arc<dyn Gate>, AppError> {
    let options = &config.gate;
    Ok(match &options.backend {
        GateBackend::Off => Arc::new(Off),
        GateBackend::Memory => Arc::new(MemoryGate::new(options.memory_bytes, options.claim_ttl, options.confirm_ttl)),
        GateBackend::Redis(url) => {
            let redis = RedisOptions {
                claim_ttl: options.claim_ttl,
                confirm_ttl: options.confirm_ttl,
                timeout: options.timeout,
            };
            Arc::new(RedisGate::new(url.expose(), &config.pipeline.name, redis).map_err(AppError::Gate)?)
        }
    })
}

pub fn open_registry(config: &Config) -> Result<Option<Registry>, AppError> {
    let registry = config.registry.as_ref().map(|options| Registry::new(&options.client()));
    registry.transpose().map_err(AppError::Registry)
}

/// How records are decoded.
pub fn decode_options(config: &Config) -> DecodeOptions {
    let avro = config.registry.as_ref().map(|options| AvroOptions {
        framing: match options.framing {
            config::Framing::Auto => Framing::Any,
            config::Framing::Header => Framing::Header,
            config::Framing::FourByte => Framing::FourByte,
            config::Framing::EightByte => Framing::EightByte,
        },
        ids: match (options.flavour, options.ids) {
            (Flavour::Confluent, _) => IdKind::Confluent,
            (Flavour::Apicurio, Some(Ids::Global)) => IdKind::Global,
            (Flavour::Apicurio, Some(Ids::Content)) => IdKind::Content,
            (Flavour::Apicurio, None) => IdKind::Open,
        },
    });
    DecodeOptions {
        placeholder: Some(config.decode.placeholder.clone()),
        avro,
        key_format: config.decode.key_format,
        value_format: config.decode.value_format,
    }
}

impl Pipeline {
    /// Prepares a pipeline; nothing is connected yet.
    pub fn new(config: Config, metrics: Metrics) -> Result<Self, AppError> {
        let store = open_store(&config)?;
        let dialect = store.dialect();
        let build = |route: &config::RouteConfig| effect::build(&route.effect, &config.pipeline.name, dialect);
        let effects = config.routes.iter().map(build).collect();
        Self::with_effects(config, metrics, store, effects)
    }

    /// Prepares a pipeline with effects of your own, one for each route in the order of the configuration.
    pub fn with_effects(
        config: Config,
        metrics: Metrics,
        store: Store,
        effects: Vec<Arc<dyn effect::Effect>>,
    ) -> Result<Self, AppError> {
        let reader = reader_settings(&config);
        let keeps_inbox = |route: &config::RouteConfig| match &route.effect {
            EffectSpec::Table(table) => table.inbox,
            EffectSpec::Sql(_) | EffectSpec::None => true,
        };
        let shared = Shared {
            pipeline: Arc::clone(&reader.pipeline),
            store: store.clone(),
            gate: open_gate(&config)?,
            reader: Arc::new(reader),
            registry: open_registry(&config)?,
            effects,
            inbox: config.routes.iter().map(keeps_inbox).collect(),
            late: config.routes.iter().map(|route| route.late == config::Late::Apply).collect(),
            order: config.routes.iter().map(|route| route.order).collect(),
            slices: slices(&config, store.dialect()),
            options: pipeline_options(&config),
            metrics,
            turns: Turns::default(),
            slots: Arc::new(Semaphore::new(slots(&config))),
            unrouted: Mutex::default(),
            receipts: Arc::default(),
            observer: None,
        };
        let view = PipelineView { lookup: lookup(&config, store), lanes: Lanes::default(), health: Health::default() };
        let names = config.kafka.topics.iter().filter(|topic| matches!(topic, TopicPattern::Name(_)));
        let names: Vec<&str> = names.map(TopicPattern::as_str).collect();
        shared.metrics.begin(&config.pipeline.name, &names);
        view.health.starting(Some("starting".to_owned()));
        Ok(Self { config, shared, view })
    }

    /// Tells of every record's outcome after its commit.
    pub fn observe(&mut self, observer: mpsc::UnboundedSender<Observed>) {
        self.shared.observer = Some(observer);
    }

    /// What its lanes would share, for work without any.
    pub(super) fn into_shared(self) -> Shared {
        self.shared
    }

    pub fn view(&self) -> &PipelineView {
        &self.view
    }

    /// Runs until it is stopped. The end, in this order: the consumer stops reading and its lanes finish the batch at
    /// hand; their offsets are committed and the group is left; the sweeper ends; the relay delivers once more.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AppError> {
        let Self { config, shared, view } = self;
        Running { config, shared: Arc::new(shared), view }.run(stop).await
    }
}
fn pipeline_options(config: &Config) -> PipelineOptions {
    PipelineOptions {
        batch: config.store.batch,
        batch_bytes: config.store.batch_bytes,
        pause: PausePolicy { parks: config.pause.parks, ratio: config.pause.ratio, window: config.pause.window as i64 },
        retry: RetryPolicy {
            attempts: i64::from(config.retry.attempts),
            delay: config.retry.delay,
            max_delay: config.retry.max_delay,
        },
        push_receipts: config.receipts.topic.is_some(),
    }
}
