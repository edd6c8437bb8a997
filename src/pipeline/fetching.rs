//! Records of a lane as they come, and what says that they do not go on: the end of an assignment, an error of the broker, a
//! gap in the log, a row that is another's.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::gaps::{Breaks, breaks};
use super::lane::{RETRY, Work};
use super::processor::{Halt, Processor};
use super::status::LaneState;
use crate::kafka::Fetched;
use crate::record::Record;
use crate::store::lanes::LaneRow;

/// A lane without records looks this often whether its row is as it left it.
const QUIET_LOOK: Duration = Duration::from_secs(5);

/// Records that came, and what stands behind them.
pub(super) struct Batch {
    pub records: VecDeque<Record>,
    /// The offset behind them, or the end of the log.
    pub end: i64,
    /// What follows does not go on from there: the lane is to be taken over anew.
    pub broken: bool,
}

/// How a lane's reading stands between two batches.
pub(super) struct Intake {
    look: Interval,
    troubled: bool,
    /// Taken before its turn, and not looked at.
    pub fetched: Option<Fetched>,
}

impl Intake {
    pub fn new() -> Self {
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + QUIET_LOOK, QUIET_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { look, troubled: false, fetched: None }
    }
}

impl Work<'_> {
    /// Waits for records from `next` on. None where there are none to speak of yet.
    pub(super) async fn next_batch(
        &self,
        intake: &mut Intake,
        processor: &Processor,
        next: i64,
        most: usize,
    ) -> Result<Option<Batch>, Halt> {
        let bytes = self.shared.options.batch_bytes;
        let ahead = intake.fetched.take();
        let fetch = async {
            match ahead {
                Some(fetched) => fetched,
                None => self.reader.fetch(next, most, bytes).await,
            }
        };
        let mut fetched = tokio::select! {
            // Asked first: after the end nothing may be taken from a queue that may be another lane's by then.
            biased;
            () = processor.stop.cancelled() => return Err(Halt::Stopped),
            fetched = fetch => fetched,
            () = self.dispossessed(processor, &mut intake.look) => return Err(Halt::Fenced),
        };
        if let Some(error) = fetched.error {
            if !std::mem::replace(&mut intake.troubled, true) {
                warn!(topic = %self.key.topic, partition = self.key.partition, error, "nothing can be fetched");
            }
            processor.show(LaneState::Retrying(error));
            self.fetch_anew(next, &processor.stop).await;
            return Ok(None);
        }
        if std::mem::take(&mut intake.troubled) {
            processor.show(LaneState::Running);
        }
        if !fetched.records.is_empty() {
            processor.take_slot().await?;
            // As above: the lane may have ended while it waited.
            if processor.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            // The more lanes there are that wait for each other, the larger are their batches.
            self.reader.top_up(&mut fetched, most, bytes);
        }
        // What stands before the break is processed; then the lane is taken over anew, which says what is gone.
        let broken = self.broken(&fetched, next, processor).await;
        fetched.records.truncate(broken.unwrap_or(usize::MAX));
        if broken == Some(0) {
            return Err(Halt::Fenced);
        }
        let end = fetched.records.last().map(|record| record.position.offset + 1).or(fetched.end);
        Ok(end.map(|end| Batch { records: VecDeque::from(fetched.records), end, broken: broken.is_some() }))
    }

    /// A pause is obeyed with the next record; it is to be seen before.
    fn show_pause(&self, paused: Option<String>) {
        self.lanes.update(&self.name, |report| match (paused, &report.state) {
            (Some(reason), LaneState::Running) => report.state = LaneState::Paused(reason),
            (None, LaneState::Paused(_)) => report.state = LaneState::Running,
            (_, _) => {}
        });
    }

    /// After an error, which is told once and not taken back: the client says anew where the log ends, or what is wrong.
    async fn fetch_anew(&self, next: i64, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
            match self.reader.seek(next).await {
                Ok(()) => return,
                Err(error) => debug!(%error, "fetching anew"),
            }
        }
    }

    /// The first of these records, or their end, that does not go on where the one before it ended: offsets begin again,
    /// or the log's start has overtaken the lane while it read what had been fetched ahead, or before it read at all. A gap
    /// alone is a compaction or a transaction's marker, and only the broker can tell.
    async fn broken(&self, fetched: &Fetched, next: i64, processor: &Processor) -> Option<usize> {
        let offsets = fetched.records.iter().map(|record| record.position.offset);
        let Breaks { gaps, again } = breaks(offsets.chain(fetched.end), next);
        if let Some(offset) = again.and_then(|at| fetched.records.get(at)).map(|record| record.position.offset) {
            warn!(topic = %self.key.topic, partition = self.key.partition, offset, "offsets began again: has the topic been made anew?");
        }
        let low = loop {
            if gaps.is_empty() || processor.stop.is_cancelled() {
                return again;
            }
            // The broker may take its time.
            processor.leave_slot();
            match self.reader.watermarks().await {
                Ok((low, _)) => break low,
                Err(error) => debug!(%error, "a gap in the log is looked at again"),
            }
            tokio::time::sleep(RETRY).await;
        };
        gaps.into_iter().find(|gap| gap.from < low && low <= gap.to).map(|gap| gap.at).or(again)
    }

    /// Ends once the lane's row is another's, or behind what was committed. A lane at work learns that from its fence;
    /// while no record comes nobody else looks, and what a restored database has lost would be missing until one does.
    async fn dispossessed(&self, processor: &Processor, look: &mut Interval) {
        loop {
            look.tick().await;
            let known = processor.known.get();
            let tenure = processor.lane.tenure.as_ref();
            let ours = |row: &LaneRow| tenure.is_some_and(|tenure| tenure.owns(row, known));
            match self.shared.store.lane(&self.key).await {
                Ok(Some(row)) if ours(&row) => self.show_pause(row.paused),
                Ok(_) => return,
                Err(error) => debug!(%error, "a quiet lane could not look at its row"),
            }
        }
    }
}
