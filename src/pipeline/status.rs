//! What each lane is doing, for readiness, metrics and people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::kafka::partition::Progress;

/// Why a lane works or stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "lowercase")]
pub enum LaneState {
    Starting,
    Running,
    /// Something does not answer; it is tried again without limit.
    Retrying(String),
    /// Paused by the systemic pause or by an operator.
    Paused(String),
    /// Nothing helps but a change from outside; it is looked at again now and then.
    Stopped(String),
}

#[derive(Clone, Debug, Serialize)]
pub struct LaneReport {
    #[serde(flatten)]
    pub state: LaneState,
    /// The lane's next offset.
    pub next: i64,
    /// Records taken and not committed.
    pub in_flight: usize,
    #[serde(skip)]
    pub progress: Option<Arc<Progress>>,
}

impl LaneReport {
    /// Records between the lane's next offset and the last stable one, if the broker said where that is.
    pub fn lag(&self) -> Option<i64> {
        self.progress.as_ref().and_then(|progress| progress.lag(self.next))
    }

    /// Why the lane does not work, if it does not.
    pub fn standing(&self) -> Option<String> {
        match &self.state {
            LaneState::Starting | LaneState::Running => None,
            LaneState::Retrying(why) => Some(format!("retrying: {why}")),
            LaneState::Paused(why) => Some(format!("paused: {why}")),
            LaneState::Stopped(why) => Some(format!("stopped: {why}")),
        }
    }
}

/// Topic and partition.
pub type LaneName = (Arc<str>, i32);

/// The lanes of one pipeline.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<BTreeMap<LaneName, LaneReport>>>);

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaneName, LaneReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn update(&self, lane: &LaneName, change: impl FnOnce(&mut LaneReport)) {
        let mut lanes = self.lock();
        let report = lanes.entry(lane.clone()).or_insert_with(|| LaneReport {
            state: LaneState::Starting,
            next: 0,
            in_flight: 0,
            progress: None,
        });
        change(report);
    }

    pub fn set(&self, lane: &LaneName, state: LaneState) {
        self.update(lane, |report| report.state = state);
    }

    pub fn state(&self, lane: &LaneName) -> Option<LaneState> {
        self.lock().get(lane).map(|report| report.state.clone())
    }

    /// Forgets a lane that has ended, unless a new assignment of the same partition has begun meanwhile.
    pub fn remove(&self, lane: &LaneName, progress: &Arc<Progress>) {
        let mut lanes = self.lock();
        let known = lanes.get(lane).and_then(|report| report.progress.as_ref());
        if known.is_some_and(|known| Arc::ptr_eq(known, progress)) {
            lanes.remove(lane);
        }
    }

    pub fn reports(&self) -> Vec<(LaneName, LaneReport)> {
        self.lock().iter().map(|(lane, report)| (lane.clone(), report.clone())).collect()
    }

    /// The assigned lanes, for the relay.
    pub fn assigned(&self) -> Vec<LaneName> {
        self.lock().keys().cloned().collect()
    }
}
