//! Puts the parts together: from checked configuration to running pipelines, and their orderly end.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{self, Config, GateBackend};
use crate::decision::PausePolicy;
use crate::effect;
use crate::effect::spec::EffectSpec;
use crate::gate::memory::MemoryGate;
use crate::gate::redis::{RedisGate, RedisOptions};
use crate::gate::{Gate, Off};
use crate::http::{self, HttpState};
use crate::kafka::client::{Connection, topics};
use crate::kafka::{Assigned, Consumer, ConsumerOptions, KafkaPublisher, Publisher, StartPolicy};
use crate::lookup::Lookup;
use crate::metrics::Metrics;
use crate::offsets::LostOffsets;
use crate::pipeline::batch::ReaderSettings;
use crate::pipeline::lane::{self, LaneOptions};
use crate::pipeline::status::Lanes;
use crate::pipeline::{Observed, PipelineOptions, RetryPolicy, Shared, Turns};
use crate::relay::Relay;
use crate::store::migrate::VERSION;
use crate::store::{Dialect, Store, StoreError, StoreOptions, sqlite_path};
use crate::supervisor::{Health, PipelineView, observe};
use crate::sweeper::Sweeper;

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("http: cannot listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("gate: {0}")]
    Gate(#[source] redis::RedisError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("kafka gave up: {0}")]
    Group(String),
    #[error("{path}: another daemon works on this file: {source}")]
    Locked { path: String, source: std::io::Error },
}

/// A pipeline of one configuration, not started yet.
pub struct Pipeline {
    config: Config,
    shared: Shared,
    view: PipelineView,
}

const LOOK: Duration = Duration::from_secs(2);
const LAST_ROUND: Duration = Duration::from_secs(1);
const ASK: Duration = Duration::from_secs(5);

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
        let is_table = |route: &config::RouteConfig| matches!(route.effect, EffectSpec::Table(_));
        let reader = ReaderSettings {
            pipeline: Arc::from(config.pipeline.name.as_str()),
            routes: config.routes.iter().map(|route| route.route.clone()).collect(),
            table_effects: config.routes.iter().map(is_table).collect(),
            park_unrouted: config.pipeline.unrouted == config::Unrouted::Park,
            placeholder: Some(config.decode.placeholder.clone()),
        };
        let keeps_inbox = |route: &config::RouteConfig| match &route.effect {
            EffectSpec::Table(table) => table.inbox,
            EffectSpec::Sql(_) | EffectSpec::None => true,
        };
        let shared = Shared {
            pipeline: Arc::clone(&reader.pipeline),
            store: store.clone(),
            gate: open_gate(&config)?,
            reader: Arc::new(reader),
            effects,
            inbox: config.routes.iter().map(keeps_inbox).collect(),
            options: pipeline_options(&config),
            metrics,
            turns: Turns::default(),
            receipts: Arc::new(Notify::new()),
            observer: None,
        };
        let view = PipelineView { lookup: lookup(&config, store), lanes: Lanes::default(), health: Health::default() };
        view.health.starting(Some("starting".to_owned()));
        Ok(Self { config, shared, view })
    }

    /// Tells of every record's outcome after its commit.
    pub fn observe(&mut self, observer: mpsc::UnboundedSender<Observed>) {
        self.shared.observer = Some(observer);
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

/// A pipeline at work.
struct Running {
    config: Config,
    shared: Arc<Shared>,
    view: PipelineView,
}

impl Running {
    async fn run(self, stop: CancellationToken) -> Result<(), AppError> {
        if !self.await_tables(&stop).await {
            return Ok(());
        }
        let Some((consumer, assigned)) = self.join_group(&stop).await? else { return Ok(()) };
        let parts = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Sweeper { shared: Arc::clone(&self.shared) }.run(parts.clone()));
        let publisher = self.publisher()?;
        let relay_stop = CancellationToken::new();
        let relay = publisher.as_ref().map(|publisher| {
            Arc::new(Relay {
                pipeline: Arc::clone(&self.shared.pipeline),
                store: self.shared.store.clone(),
                publisher: Arc::clone(publisher) as Arc<dyn Publisher>,
                lanes: self.view.lanes.clone(),
                metrics: self.shared.metrics.clone(),
                wake: Arc::clone(&self.shared.receipts),
            })
        });
        let mut relaying = JoinSet::new();
        if let Some(relay) = &relay {
            let (relay, stop) = (Arc::clone(relay), relay_stop.clone());
            relaying.spawn(async move { relay.run(stop).await });
        }
        let mut lanes = JoinSet::new();
        let followed = self.follow(&consumer, assigned, &mut lanes, &stop).await;
        self.view.health.stopping();
        info!(pipeline = %self.shared.pipeline, "stopping");
        let owned = self.view.lanes.assigned();
        consumer.stop().await;
        while lanes.join_next().await.is_some() {}
        parts.cancel();
        relay_stop.cancel();
        while tasks.join_next().await.is_some() {}
        while relaying.join_next().await.is_some() {}
        if let Some(relay) = relay {
            // What the last batches left; the next owner delivers what does not go through now.
            let _ = tokio::time::timeout(LAST_ROUND, relay.round(&owned)).await;
        }
        self.shared.store.close().await;
        info!(pipeline = %self.shared.pipeline, "stopped");
        followed
    }

    /// Takes what the group assigns and watches over the rest.
    async fn follow(
        &self,
        consumer: &Consumer,
        mut assigned: mpsc::UnboundedReceiver<Assigned>,
        lanes: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> Result<(), AppError> {
        let options = LaneOptions {
            lost: match self.config.kafka.on_lost_offsets {
                config::LostOffsets::Earliest => LostOffsets::Earliest,
                config::LostOffsets::Stop => LostOffsets::Stop,
            },
        };
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(partition) = assigned.recv() => {
                    let (shared, lanes_view) = (Arc::clone(&self.shared), self.view.lanes.clone());
                    lanes.spawn(lane::run(shared, lanes_view, partition, options));
                }
                Some(ended) = lanes.join_next(), if !lanes.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a lane ended badly");
                    }
                }
                _ = look.tick() => {
                    let state = consumer.state();
                    self.view.health.kafka(state.trouble);
                    if let Some(fatal) = state.fatal {
                        return Err(AppError::Group(fatal));
                    }
                    let gate = &self.shared.gate;
                    let up = gate.healthy();
                    self.shared.metrics.gate_up.with_label_values(&[&*self.shared.pipeline]).set(i64::from(up));
                    self.view.health.gate((!up).then(|| "the gate does not answer: the inbox does its work".to_owned()));
                    observe(&self.view, &self.shared.metrics).await;
                }
            }
        }
    }

    /// Waits until the database has tables that can be trusted: with a collation that joins different ids, nothing may
    /// start. False if it was stopped before.
    async fn await_tables(&self, stop: &CancellationToken) -> bool {
        loop {
            let store = &self.shared.store;
            let fault = match store.schema_version().await {
                Ok(version) if version < VERSION => {
                    Some("the tables are missing or old: run `countersign migrate`".to_owned())
                }
                Ok(_) => match store.key_faults().await {
                    Ok(faults) => faults.into_iter().next(),
                    Err(error) => Some(error.with_advice()),
                },
                Err(error) => Some(error.with_advice()),
            };
            let Some(fault) = fault else { return true };
            warn!(pipeline = %self.shared.pipeline, "not started yet: {fault}");
            self.view.health.starting(Some(fault));
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Waits for the broker, then joins. None if it was stopped before.
    async fn join_group(
        &self,
        stop: &CancellationToken,
    ) -> Result<Option<(Consumer, mpsc::UnboundedReceiver<Assigned>)>, AppError> {
        let connection = connection(&self.config);
        let kafka = &self.config.kafka;
        let partitions = loop {
            let asked = connection.clone();
            let answer = tokio::select! {
                () = stop.cancelled() => return Ok(None),
                answer = tokio::task::spawn_blocking(move || topics(&asked, ASK)) => answer,
            };
            match answer {
                Ok(Ok(found)) => {
                    let wanted = |name: &str| kafka.topics.iter().any(|topic| topic.matches(name));
                    let partitions =
                        found.iter().filter(|topic| wanted(&topic.name)).map(|topic| topic.partitions).sum();
                    break partitions;
                }
                Ok(Err(error)) => {
                    warn!(%error, brokers = %kafka.brokers, "waiting for Kafka");
                    self.view.health.starting(Some(format!("waiting for Kafka at {}: {error}", kafka.brokers)));
                }
                Err(error) => warn!(%error, "the question for topics was not asked"),
            }
            observe(&self.view, &self.shared.metrics).await;
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        };
        if let Some(warning) = self.config.check_pool(partitions) {
            warn!("{warning}");
        }
        let options = ConsumerOptions {
            connection,
            group: kafka.group.clone(),
            topics: kafka.topics.iter().map(|topic| topic.as_str().to_owned()).collect(),
            start: match kafka.start {
                config::Start::Earliest => StartPolicy::Earliest,
                config::Start::Latest => StartPolicy::Latest,
                config::Start::Timestamp(ms) => StartPolicy::Timestamp(ms),
            },
            session_timeout: kafka.session_timeout,
            heartbeat_interval: kafka.heartbeat_interval,
            max_poll_interval: kafka.max_poll_interval,
            partition_bytes: kafka.buffer / partitions.max(1),
            partition_records: kafka.buffer_records,
            drain: self.config.shutdown.drain,
        };
        let joined = Consumer::start(&options)?;
        self.view.health.starting(None);
        info!(pipeline = %self.shared.pipeline, partitions, "joining the group {}", kafka.group);
        Ok(Some(joined))
    }

    fn publisher(&self) -> Result<Option<Arc<KafkaPublisher>>, AppError> {
        let Some(topic) = &self.config.receipts.topic else { return Ok(None) };
        Ok(Some(Arc::new(KafkaPublisher::new(&connection(&self.config), topic)?)))
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

/// SQLite allows one daemon per file. The lock goes with the process, however it ends.
pub fn lock_files(configs: &[Config]) -> Result<Vec<File>, AppError> {
    let mut paths = BTreeSet::new();
    for config in configs {
        if config.store.dialect == Dialect::Sqlite {
            paths.insert(format!("{}.lock", sqlite_path(config.store.url.expose())));
        }
    }
    let mut locks = Vec::new();
    for path in paths {
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let locked = lock.and_then(|file| file.try_lock().map(|()| file).map_err(std::io::Error::from));
        locks.push(locked.map_err(|source| AppError::Locked { path, source })?);
    }
    Ok(locks)
}

/// The daemon: all pipelines and the HTTP side, until it is stopped.
pub async fn run(configs: Vec<Config>, stop: CancellationToken) -> Result<(), AppError> {
    let _locks = lock_files(&configs)?;
    let metrics = Metrics::new();
    let address = configs.first().map(|config| config.http.listen);
    let tokens = tokens(&configs);
    let mut pipelines = Vec::new();
    for config in configs {
        for warning in &config.warnings {
            warn!("{warning}");
        }
        pipelines.push(Pipeline::new(config, metrics.clone())?);
    }
    let views = pipelines.iter().map(|pipeline| pipeline.view().clone()).collect();
    let http_stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(address) = address {
        let listener = http::bind(address).await.map_err(|source| AppError::Listen { address, source })?;
        info!(%address, "http");
        let state = Arc::new(HttpState { pipelines: views, metrics, tokens });
        let stop = http_stop.clone();
        tasks.spawn(async move {
            if let Err(error) = http::serve(listener, state, stop).await {
                tracing::error!(%error, "http ended");
            }
        });
    }
    let mut running = JoinSet::new();
    for pipeline in pipelines {
        running.spawn(pipeline.run(stop.clone()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // Other pipelines go on: each stands for itself.
                tracing::error!(%error, "a pipeline ended");
                outcome = Err(error);
            }
            Err(error) => tracing::error!(%error, "a pipeline ended badly"),
        }
    }
    http_stop.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), async { while tasks.join_next().await.is_some() {} }).await;
    outcome
}

fn tokens(configs: &[Config]) -> Vec<String> {
    let http = configs.first().map(|config| &config.http);
    let tokens = http.into_iter().flat_map(|http| [http.read_token.as_ref(), http.operate_token.as_ref()]);
    tokens.flatten().map(|token| token.expose().to_owned()).collect()
}
