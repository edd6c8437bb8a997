//! Missing messages through the pipeline, as a replay does it: the inbox row is the fence, no lane row is touched.

use std::time::Duration;

use super::ReconcileError;
use crate::pipeline::processor::Halt;
use crate::pipeline::replay::Replay;
use crate::pipeline::status::{LaneState, Lanes};
use crate::record::Record;

pub struct Repair(pub Replay);

const LOOK: Duration = Duration::from_millis(100);

impl Repair {
    pub(super) async fn replay(&mut self, records: Vec<Record>) -> Result<(), ReconcileError> {
        let lanes = self.0.lanes();
        let ended = tokio::select! {
            ended = self.0.apply(records, |_| {}) => ended,
            why = standing(&lanes) => return Err(ReconcileError::Repair(why)),
        };
        match ended {
            Ok(()) => Ok(()),
            Err(Halt::Stopped) => Err(ReconcileError::Repair("interrupted".to_owned())),
            Err(Halt::Fenced) => Err(ReconcileError::Repair("work without a lane was fenced off".to_owned())),
        }
    }
}

/// Why the work stands until something is changed from outside: whoever repairs is there to be told.
async fn standing(lanes: &Lanes) -> String {
    loop {
        tokio::time::sleep(LOOK).await;
        for (_, report) in lanes.reports() {
            if let LaneState::Stopped(why) = report.state {
                return why;
            }
        }
    }
}
