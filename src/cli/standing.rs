//! What a replay stands at: said at once, and given up after a while. Nothing is lost by that: it can be run again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Failure;
use crate::app::Replayer;
use crate::pipeline::replay::Replay;
use crate::pipeline::status::{LaneState, Lanes};

const LOOK: Duration = Duration::from_millis(100);
/// A hiccup that is over before this is nobody's business.
const TELL: Duration = Duration::from_secs(1);
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Looks at the work from beside it.
pub(super) struct Watch {
    lanes: Lanes,
    reading: std::sync::Arc<AtomicBool>,
    /// How long a dependency may be away.
    patience: Duration,
    since: Option<Instant>,
    told: Option<Instant>,
}

impl Watch {
    pub fn new(replay: &Replay, patience: Duration) -> Self {
        Self { lanes: replay.lanes(), reading: replay.reading(), patience, since: None, told: None }
    }

    /// Ends when only somebody else can change what stands in the way, or a dependency was away for too long.
    pub async fn gives_up(mut self, replayer: &Replayer) -> Failure {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(why) = (match self.state() {
                LaneState::Stopped(why) => return Failure::Failed(why),
                LaneState::Retrying(why) | LaneState::Paused(why) => Some(why),
                LaneState::Starting | LaneState::Running => None,
            }) else {
                if self.told.is_some() {
                    eprintln!("countersign: it answers again, going on");
                }
                (self.since, self.told) = (None, None);
                continue;
            };
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.patience && self.away(replayer).await {
                return Failure::Unreachable(format!("{why}; run it again: what is done then counts as duplicate"));
            }
            let due = self.told.map_or(since.elapsed() >= TELL, |told| told.elapsed() >= TELL_AGAIN);
            if due {
                self.told = Some(Instant::now());
                eprintln!("countersign: waiting, {} s at most: {why}", self.patience.as_secs());
            }
        }
    }

    /// The state of the one partition that does not run, if there is one.
    fn state(&self) -> LaneState {
        let states = self.lanes.reports().into_iter().map(|(_, report)| report.state);
        let mut states = states.filter(|state| !matches!(state, LaneState::Starting | LaneState::Running));
        states.next().unwrap_or(LaneState::Running)
    }

    /// Whether it is a dependency that is away: a database that answers may take its time over a statement.
    async fn away(&self, replayer: &Replayer) -> bool {
        self.reading.load(Ordering::Relaxed) || replayer.reach().await.is_err()
    }
}
