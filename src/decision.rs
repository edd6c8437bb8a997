//! Policy: what becomes of a message. Total functions from enums to enums; no clock, no I/O.

/// What an effect did for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    /// Nothing to do and nothing wrong: SUCCESS, noted as IGNORED.
    Ignored {
        reason: String,
    },
    /// A newer change of the row is there already: SUCCESS, noted as STALE.
    Stale,
    Refused(Refusal),
}

impl Outcome {
    /// The message waits.
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Refused(Refusal { kind: RefusalKind::Retry, .. }))
    }

    /// Something was written for a message that is not to be.
    pub fn needs_undo(&self) -> bool {
        matches!(self, Self::Refused(refusal) if !refusal.clean)
    }
}

/// An effect that did not take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Stable name, part of the receipt.
    pub code: String,
    /// For people; no row values.
    pub reason: String,
    /// Nothing was written for this message, so there is nothing to undo.
    pub clean: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// An answer: FAILED receipt, no dead letter.
    Reject,
    /// Out of order: set aside and tried again.
    Retry,
    /// A fault: FAILED receipt and a dead letter.
    Park,
}

/// The one outcome of a record, for the metrics: consumed is their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordOutcome {
    Applied,
    Duplicate,
    Skipped,
    Rejected,
    Parked,
    Conflict,
}

impl RecordOutcome {
    pub const ALL: [Self; 6] =
        [Self::Applied, Self::Duplicate, Self::Skipped, Self::Rejected, Self::Parked, Self::Conflict];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Skipped => "skipped",
            Self::Rejected => "rejected",
            Self::Parked => "parked",
            Self::Conflict => "conflict",
        }
    }
}

/// The systemic pause: many parks in a short while mean that something else is broken than the records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PausePolicy {
    /// Parks within the window that pause the lane.
    pub parks: usize,
    /// Share of the window that pauses it, whichever comes first.
    pub ratio: f64,
    /// Records that the window spans.
    pub window: i64,
}

/// The parks of the last `window` records of a lane, as kept in its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkWindow {
    seen: i64,
    parks: Vec<i64>,
}

impl ParkWindow {
    /// From the lane row; what cannot be read counts as no parks.
    pub fn from_stored(seen: i64, parks: &str) -> Self {
        Self { seen, parks: parks.split(',').filter_map(|text| text.parse().ok()).collect() }
    }

    pub fn stored(&self) -> (i64, String) {
        (self.seen, self.parks.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
    }

    /// Counts one record; true if its park reaches the limit.
    pub fn record(&mut self, parked: bool, policy: &PausePolicy) -> bool {
        self.seen += 1;
        if !parked {
            return false;
        }
        self.parks.push(self.seen);
        let from = self.seen - policy.window;
        self.parks.retain(|at| *at > from);
        self.parks.len() >= policy.parks || self.parks.len() as f64 > policy.ratio * policy.window as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: PausePolicy = PausePolicy { parks: 3, ratio: 1.0, window: 10 };

    #[test]
    fn parks_close_together_pause_and_parks_far_apart_do_not() {
        let mut window = ParkWindow::default();
        assert!(!window.record(true, &POLICY));
        assert!(!window.record(true, &POLICY));
        assert!(window.record(true, &POLICY));
        let mut window = ParkWindow::default();
        for index in 0..200 {
            assert!(!window.record(index % 5 == 0, &POLICY), "{index}");
        }
    }

    #[test]
    fn the_window_survives_a_restart() {
        let mut window = ParkWindow::default();
        window.record(true, &POLICY);
        window.record(true, &POLICY);
        let (seen, parks) = window.stored();
        assert!(ParkWindow::from_stored(seen, &parks).record(true, &POLICY));
    }

    #[test]
    fn a_share_of_the_window_pauses_too() {
        let policy = PausePolicy { parks: 1000, ratio: 0.2, window: 10 };
        let mut window = ParkWindow::default();
        assert!(!window.record(true, &policy));
        assert!(!window.record(true, &policy));
        assert!(window.record(true, &policy));
    }
}
