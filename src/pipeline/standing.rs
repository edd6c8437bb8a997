//! A lane that stands says why: to its process, and in its row for whoever has no view of that.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use super::processor::{Halt, Processor};
use super::status::{LaneName, LaneState};

/// How long a lane that stands tries to say so in its row, and how soon it says something else.
const TELL: Duration = Duration::from_secs(1);
const TOLD: Duration = Duration::from_secs(2);

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
        let works = self.show(LaneState::Running) == LaneState::Running;
        let stood = self.told.lock().unwrap_or_else(PoisonError::into_inner).take();
        if stood.is_some() && works {
            self.tell(None).await;
        }
    }

    /// Shows the state of the lane, which is the worst one of its slices. The answer is what is shown.
    pub(super) fn show(&self, state: LaneState) -> LaneState {
        let state = match &self.slice {
            None => state,
            Some(slice) => slice.state(state),
        };
        self.lanes.set(&self.lane_name(), state.clone());
        state
    }

    /// Notes in the lane's row why it stands, for whoever has no view of this process. As good as the database is.
    async fn tell(&self, why: Option<&str>) {
        let Some(tenure) = &self.lane.tenure else { return };
        let told = self.shared.store.lane_stands(&self.lane.key, &tenure.owner, why);
        if !matches!(tokio::time::timeout(TELL, told).await, Ok(Ok(()))) {
            debug!(topic = %self.lane.key.topic, partition = self.lane.key.partition, "nobody is told that it stands");
        }
    }

    /// What of a state has to be told: a reason that is new, now and then.
    fn news(&self, state: &LaneState) -> Option<String> {
        let why = match state {
            LaneState::Retrying(why) | LaneState::Stopped(why) => why.clone(),
            LaneState::Starting | LaneState::Running | LaneState::Paused(_) => return None,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |last: &str, at: &Instant| last == why || (!last.is_empty() && at.elapsed() < TOLD);
        if told.as_ref().is_some_and(|(last, at)| fresh(last, at)) {
            return None;
        }
        *told = Some((why.clone(), Instant::now()));
        Some(why)
    }

    /// Stands still for a while, unless the lane is asked to end. The group membership is kept by the polling thread.
    pub(super) async fn stand(&self, state: LaneState, wait: Duration) -> Result<(), Halt> {
        self.leave_slot();
        let news = self.news(&state);
        self.show(state);
        if let Some(why) = news {
            tokio::select! {
                () = self.stop.cancelled() => return Err(Halt::Stopped),
                () = self.tell(Some(&why)) => {}
            }
        }
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Stopped),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }
}
