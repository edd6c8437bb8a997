//! How the process stands: what each pipeline does, for `/readyz` and for the gauges.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::lookup::Lookup;
use crate::metrics::Metrics;
use crate::pipeline::status::{LaneState, Lanes};

/// One pipeline, seen from outside.
#[derive(Clone)]
pub struct PipelineView {
    pub lookup: Lookup,
    pub lanes: Lanes,
    pub health: Health,
}

/// What was last heard of the pipeline's dependencies.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Facts>>);

#[derive(Clone, Debug, Default)]
struct Facts {
    /// Why the pipeline has not started yet.
    starting: Option<String>,
    topics: Option<String>,
    kafka: Option<String>,
    store: Option<String>,
    gate: Option<String>,
    stopping: bool,
}

impl Health {
    fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn facts(&self) -> Facts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn starting(&self, why: Option<String>) {
        self.change(|facts| facts.starting = why);
    }

    /// What is wrong with the topics, as far as the pipeline can do without them.
    pub fn topics(&self, trouble: Option<String>) {
        self.change(|facts| facts.topics = trouble);
    }

    pub fn kafka(&self, trouble: Option<String>) {
        self.change(|facts| facts.kafka = trouble);
    }

    pub fn store(&self, trouble: Option<String>) {
        self.change(|facts| facts.store = trouble);
    }

    pub fn gate(&self, trouble: Option<String>) {
        self.change(|facts| facts.gate = trouble);
    }

    pub fn stopping(&self) {
        self.change(|facts| facts.stopping = true);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    Ready,
    /// Works, but not as it should.
    Degraded,
    Unready,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub status: Readiness,
    pub pipelines: Vec<PipelineReport>,
}

#[derive(Debug, Serialize)]
pub struct PipelineReport {
    pub pipeline: String,
    pub status: Readiness,
    pub lanes: usize,
    pub reasons: Vec<String>,
}

/// Readiness fails only where a whole pipeline stands. No assigned lane is no fault: there may be more instances than
/// partitions.
pub fn report(pipelines: &[PipelineView]) -> Report {
    let pipelines: Vec<PipelineReport> = pipelines.iter().map(pipeline_report).collect();
    let status = pipelines.iter().map(|pipeline| pipeline.status).max().unwrap_or(Readiness::Ready);
    Report { status, pipelines }
}

fn pipeline_report(view: &PipelineView) -> PipelineReport {
    let facts = view.health.facts();
    let lanes = view.lanes.reports();
    let mut reasons = Vec::new();
    let mut status = Readiness::Ready;
    for unready in [facts.starting, facts.kafka, facts.store].into_iter().flatten() {
        reasons.push(unready);
        status = Readiness::Unready;
    }
    if facts.stopping {
        reasons.push("stopping".to_owned());
        status = Readiness::Unready;
    }
    for degraded in [facts.topics, facts.gate].into_iter().flatten() {
        reasons.push(degraded);
        status = status.max(Readiness::Degraded);
    }
    let standing: Vec<String> = lanes
        .iter()
        .filter_map(|((topic, partition), lane)| Some(format!("{topic}/{partition} {}", lane.standing()?)))
        .collect();
    if !standing.is_empty() {
        status = status.max(if standing.len() == lanes.len() { Readiness::Unready } else { Readiness::Degraded });
    }
    // Enough to see what it is, not a list of a thousand lanes.
    reasons.extend(standing.into_iter().take(20));
    PipelineReport { pipeline: view.lookup.pipeline.to_string(), status, lanes: lanes.len(), reasons }
}

/// Brings the gauges up to date.
pub async fn observe(view: &PipelineView, metrics: &Metrics) {
    let pipeline = &*view.lookup.pipeline;
    let mut in_flight = 0;
    for ((topic, partition), lane) in view.lanes.reports() {
        let partition = partition.to_string();
        let labels = &[pipeline, &*topic, &*partition];
        if let Some(lag) = lane.lag() {
            metrics.lag.with_label_values(labels).set(lag);
        }
        let stands = matches!(lane.state, LaneState::Paused(_) | LaneState::Stopped(_) | LaneState::Retrying(_));
        metrics.lane_paused.with_label_values(labels).set(i64::from(stands));
        in_flight += lane.in_flight;
    }
    metrics.in_flight.with_label_values(&[pipeline]).set(in_flight as i64);
    let store = &view.lookup.store;
    let counted = async {
        metrics.receipts_pending.with_label_values(&[pipeline]).set(store.count_pending(pipeline).await?);
        metrics.dead_letters_open.with_label_values(&[pipeline]).set(store.count_open_dead_letters(pipeline).await?);
        let oldest = store.oldest_received(pipeline).await?;
        let now = store.now().await?;
        let age = match (oldest.map(|text| text.parse::<jiff::Timestamp>()), now.parse::<jiff::Timestamp>()) {
            (Some(Ok(oldest)), Ok(now)) => now.duration_since(oldest).as_secs_f64().max(0.0),
            _ => 0.0,
        };
        metrics.inbox_oldest.with_label_values(&[pipeline]).set(age);
        Ok::<_, crate::store::StoreError>(())
    };
    match counted.await {
        Ok(()) => view.health.store(None),
        Err(error) => view.health.store(Some(error.with_advice())),
    }
}
