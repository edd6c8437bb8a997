//! A lane that stands says why: to its process, and in its row for whoever has no view of that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use super::processor::{Halt, Processor};
use super::status::{LaneName, LaneState};

/// How long a lane that stands tries to say so in its row, and how soon it says something else.
const TELL: Duration = Duration::from_secs(1);
const TOLD: Duration = Duration::from_secs(2);

/// What people were told last of why a lane stands, and when. Its slices know it together.
#[derive(Default)]
pub struct Told {
    last: Mutex<Option<(String, Instant)>>,
    turn: tokio::sync::Mutex<()>,
}

impl Told {
    /// A former owner may have stood for a reason that is gone.
    pub(super) fn begin() -> Self {
        Self { last: Mutex::new(Some((String::new(), Instant::now()))), ..Self::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing has to be told: a reason is told when it is new, and not too often.
    fn is_true(&self, state: &LaneState) -> bool {
        match (state, &*self.last()) {
            (LaneState::Running, last) => last.is_none(),
            (LaneState::Starting | LaneState::Paused(_), _) => true,
            (LaneState::Retrying(_) | LaneState::Stopped(_), None) => false,
            (LaneState::Retrying(why) | LaneState::Stopped(why), Some((last, at))) => {
                last == why || (!last.is_empty() && at.elapsed() < TOLD)
            }
        }
    }

    /// What has to be told, which is taken for told then: why the lane stands, or that it works.
    fn news(&self, state: &LaneState) -> Option<Option<String>> {
        if self.is_true(state) {
            return None;
        }
        let why = match state {
            LaneState::Retrying(why) | LaneState::Stopped(why) => Some(why.clone()),
            LaneState::Starting | LaneState::Running | LaneState::Paused(_) => None,
        };
        *self.last() = why.clone().map(|why| (why, Instant::now()));
        Some(why)
    }
}

impl Processor {
    /// Waits until this lane may have a batch in its hands.
    pub(super) async fn take_slot(&self) -> Result<(), Halt> {
        if self.slot().is_some() {
            return Ok(());
        }
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Stopped),
            // Never closed: an error would mean nothing else.
            slot = Arc::clone(&self.shared.slots).acquire_owned() => {
                *self.slot() = slot.ok();
                Ok(())
            }
        }
    }

    pub(super) fn leave_slot(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lane_name(&self) -> LaneName {
        (Arc::clone(&self.lane.key.topic), self.lane.key.partition)
    }

    /// The lane goes on.
    pub(super) async fn works(&self) {
        self.show(LaneState::Running);
        self.tell().await;
    }

    /// Shows the state of the lane, which is the worst one of its slices.
    pub(super) fn show(&self, state: LaneState) {
        let state = match &self.slice {
            None => state,
            Some(slice) => slice.state(state),
        };
        self.lanes.set(&self.lane_name(), state);
    }

    /// Notes in the lane's row why it stands, for whoever has no view of this process. As good as the database is.
    async fn tell(&self) {
        let Some(tenure) = &self.lane.tenure else { return };
        if self.told.is_true(&self.shown()) {
            return;
        }
        let told = async {
            // One after the other, each with what is true then: the last word stays.
            let _turn = self.told.turn.lock().await;
            let Some(news) = self.told.news(&self.shown()) else { return Ok(()) };
            self.shared.store.lane_stands(&self.lane.key, &tenure.owner, news.as_deref()).await
        };
        if !matches!(tokio::time::timeout(TELL, told).await, Ok(Ok(()))) {
            debug!(topic = %self.lane.key.topic, partition = self.lane.key.partition, "nobody is told that it stands");
        }
    }

    fn shown(&self) -> LaneState {
        self.lanes.state(&self.lane_name()).unwrap_or(LaneState::Running)
    }

    /// Stands still for a while, unless the lane is asked to end. The group membership is kept by the polling thread.
    pub(super) async fn stand(&self, state: LaneState, wait: Duration) -> Result<(), Halt> {
        self.leave_slot();
        self.show(state);
        tokio::select! {
            () = self.stop.cancelled() => return Err(Halt::Stopped),
            () = self.tell() => {}
        }
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Stopped),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }
}
