//! A pipeline at work, from joining the group to leaving it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{AppError, connection, purger};
use crate::check;
use crate::config::{self, Config};
use crate::gate::Gate;
use crate::kafka::client::topics;
use crate::kafka::{Assigned, Consumer, ConsumerOptions, KafkaPublisher, Publisher, StartPolicy};
use crate::metrics::Metrics;
use crate::offsets::LostOffsets;
use crate::pipeline::lane::{self, LaneOptions};
use crate::pipeline::{Shared, unique_word};
use crate::relay::Relay;
use crate::store::meta::of_pipeline;
use crate::store::migrate::VERSION;
use crate::supervisor::{PipelineView, observe};
use crate::sweeper::Sweeper;

const LOOK: Duration = Duration::from_secs(2);
const LAST_ROUND: Duration = Duration::from_secs(1);
/// Partitions to share the buffer among, as long as fewer are known.
const LIKELY_PARTITIONS: usize = 6;
const ASK: Duration = Duration::from_secs(5);
/// A pipeline at work.
pub(super) struct Running {
    pub config: Config,
    pub shared: Arc<Shared>,
    pub view: PipelineView,
}

/// Why a member of the group is not followed any more.
enum Followed {
    Stopped,
    Stuck,
}

impl Running {
    pub async fn run(self, stop: CancellationToken) -> Result<(), AppError> {
        if !self.await_tables(&stop).await {
            return Ok(());
        }
        let Some(mut joined) = self.join_group(&stop).await? else { return Ok(()) };
        let parts = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Sweeper { shared: Arc::clone(&self.shared) }.run(parts.clone()));
        tasks.spawn(purger(&self.config, self.shared.store.clone(), self.shared.metrics.clone()).run(parts.clone()));
        tasks.spawn(warn_of_window(self.config.clone(), parts.clone()));
        // Apart from the rest: a database that does not answer must not hold up an assignment or the end.
        tasks.spawn(watch(
            self.view.clone(),
            Arc::clone(&self.shared.gate),
            self.shared.metrics.clone(),
            parts.clone(),
        ));
        let publisher = self.publisher()?;
        let relay_stop = CancellationToken::new();
        let mut relaying = JoinSet::new();
        if let Some(publisher) = publisher {
            let relay = Relay {
                pipeline: Arc::clone(&self.shared.pipeline),
                store: self.shared.store.clone(),
                publisher: publisher as Arc<dyn Publisher>,
                lanes: self.view.lanes.clone(),
                owner: unique_word(),
                metrics: self.shared.metrics.clone(),
                undelivered: Arc::clone(&self.shared.receipts),
            };
            let stop = relay_stop.clone();
            relaying.spawn(async move { relay.run(stop).await });
        }
        let mut lanes = JoinSet::new();
        let mut ending = JoinSet::new();
        let followed = loop {
            let (consumer, assigned) = joined;
            let followed = self.follow(&consumer, assigned, (&mut lanes, &mut tasks, &mut relaying), &stop).await;
            ending.spawn(consumer.stop());
            if !matches!(followed, Ok(Followed::Stuck)) {
                break followed.map(drop);
            }
            warn!(pipeline = %self.shared.pipeline, "the group's client is stuck: another one takes its place");
            match self.join_group(&stop).await {
                Ok(Some(another)) => joined = another,
                ended => break ended.map(drop),
            }
        };
        self.view.health.stopping();
        info!(pipeline = %self.shared.pipeline, "stopping");
        while ending.join_next().await.is_some() {}
        while lanes.join_next().await.is_some() {}
        parts.cancel();
        relay_stop.cancel();
        while tasks.join_next().await.is_some() {}
        // What the last batches left; the next owner delivers what does not go through now.
        let _ = tokio::time::timeout(LAST_ROUND, async { while relaying.join_next().await.is_some() {} }).await;
        self.shared.store.close().await;
        info!(pipeline = %self.shared.pipeline, "stopped");
        followed
    }

    /// Takes what the group assigns and watches over the rest.
    async fn follow(
        &self,
        consumer: &Consumer,
        mut assigned: mpsc::UnboundedReceiver<Assigned>,
        (lanes, tasks, relaying): (&mut JoinSet<()>, &mut JoinSet<()>, &mut JoinSet<()>),
        stop: &CancellationToken,
    ) -> Result<Followed, AppError> {
        let options = LaneOptions {
            lost: match self.config.kafka.on_lost_offsets {
                config::LostOffsets::Earliest => LostOffsets::Earliest,
                config::LostOffsets::Stop => LostOffsets::Stop,
            },
        };
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(Followed::Stopped),
                Some(partition) = assigned.recv() => {
                    self.view.health.topics(None);
                    let (shared, lanes_view) = (Arc::clone(&self.shared), self.view.lanes.clone());
                    lanes.spawn(lane::run(shared, lanes_view, partition, options));
                }
                Some(ended) = lanes.join_next(), if !lanes.is_empty() => {
                    if let Err(error) = ended {
                        // Its partition is still assigned and nobody reads it: better to end, and let others have it.
                        return Err(AppError::Lane(error));
                    }
                }
                // Without it messages would wait, or receipts pile up, and nobody would hear of it.
                Some(Err(error)) = tasks.join_next(), if !tasks.is_empty() => return Err(AppError::Task(error)),
                Some(Err(error)) = relaying.join_next(), if !relaying.is_empty() => return Err(AppError::Task(error)),
                _ = look.tick() => {
                    let state = consumer.state();
                    self.view.health.kafka(state.trouble);
                    if let Some(fatal) = state.fatal {
                        return Err(AppError::Group(fatal));
                    }
                    if state.stuck {
                        return Ok(Followed::Stuck);
                    }
                    let gate = &self.shared.gate;
                    let up = gate.healthy();
                    self.shared.metrics.gate_up.with_label_values(&[&*self.shared.pipeline]).set(i64::from(up));
                    self.view.health.gate((!up).then(|| "the gate does not answer: the inbox does its work".to_owned()));
                }
            }
        }
    }

    /// Waits until the database has tables that can be trusted. False if it was stopped before.
    async fn await_tables(&self, stop: &CancellationToken) -> bool {
        // The version before will do, so that programs can be exchanged before the tables are; it has no queues.
        let needed = if self.shared.has_queues() { VERSION } else { VERSION - 1 };
        loop {
            let fault = match self.shared.store.distrust(needed).await {
                Ok(None) => return true,
                Ok(Some(distrust)) => distrust.to_string(),
                Err(error) => error.with_advice(),
            };
            warn!(pipeline = %self.shared.pipeline, "not started yet: {fault}");
            self.view.health.starting(Some(fault));
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// The partitions with which this group began, as the first of its members found them. None if it was stopped.
    async fn begun_with(
        &self,
        found: &BTreeMap<String, usize>,
        stop: &CancellationToken,
    ) -> Option<HashMap<String, i32>> {
        let name = of_pipeline("begun", &format!("{} {}", self.shared.pipeline, self.config.kafka.group));
        let now = serde_json::json!(found).to_string();
        loop {
            let first = self.shared.store.keep_first(&name, &now).await;
            match first.map(|first| serde_json::from_str(&first)) {
                Ok(Ok(first)) => return Some(first),
                Ok(Err(error)) => warn!(%error, name, "countersign_meta has something else there"),
                Err(error) => {
                    warn!(%error, "waiting for the database");
                    self.view.health.starting(Some(error.with_advice()));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return None,
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
        let found = loop {
            let asked = connection.clone();
            let answer = tokio::select! {
                () = stop.cancelled() => return Ok(None),
                answer = tokio::task::spawn_blocking(move || topics(&asked, ASK)) => answer,
            };
            match answer {
                Ok(Ok(found)) => {
                    let wanted = |name: &str| kafka.topics.iter().any(|topic| topic.matches(name));
                    let found = found.into_iter().filter(|topic| wanted(&topic.name));
                    break found.map(|topic| (topic.name, topic.partitions)).collect::<BTreeMap<String, usize>>();
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
        let partitions = found.values().sum();
        let Some(begun_with) = self.begun_with(&found, stop).await else { return Ok(None) };
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
            begun_with,
            session_timeout: kafka.session_timeout,
            heartbeat_interval: kafka.heartbeat_interval,
            max_poll_interval: kafka.max_poll_interval,
            // Topics that are made later have partitions too.
            partition_bytes: kafka.buffer / partitions.max(LIKELY_PARTITIONS),
            partition_records: kafka.buffer_records,
            drain: self.config.shutdown.drain,
        };
        let joined = Consumer::start(&options)?;
        self.view.health.starting(None);
        let none = "none of the topics is there yet: correct `[kafka] topics`, or wait for them";
        self.view.health.topics((partitions == 0).then(|| none.to_owned()));
        info!(pipeline = %self.shared.pipeline, partitions, "joining the group {}", kafka.group);
        Ok(Some(joined))
    }

    fn publisher(&self) -> Result<Option<Arc<KafkaPublisher>>, AppError> {
        let Some(topic) = &self.config.receipts.topic else { return Ok(None) };
        Ok(Some(Arc::new(KafkaPublisher::new(&connection(&self.config), topic)?)))
    }
}

/// An inbox that forgets sooner than Kafka delivers again is said once, at the start; `check` says it with exit 1.
async fn warn_of_window(config: Config, stop: CancellationToken) {
    let connection = connection(&config);
    let found = stop.run_until_cancelled(check::window(&config, &connection)).await;
    for finding in found.unwrap_or_default() {
        if finding.outcome != check::Outcome::Ok {
            let remedy = finding.remedy.unwrap_or_default();
            warn!(pipeline = %config.pipeline.name, "{}: {}; {remedy}", finding.name, finding.detail);
        }
    }
}

/// Brings the gauges and the health of the store up to date until it is stopped.
async fn watch(view: PipelineView, gate: Arc<dyn Gate>, metrics: Metrics, stop: CancellationToken) {
    let look = async {
        loop {
            gate.probe().await;
            observe(&view, &metrics).await;
            tokio::time::sleep(LOOK).await;
        }
    };
    stop.run_until_cancelled(look).await;
}
