//! Gate, inbox, and a database that goes back in time: what is known where, and what must hold.
//!
//! One worker a lane reads its log record by record: asks the gate, then in one transaction fences, inserts if absent,
//! judges and applies, commits, and confirms. Redis forgets or comes back as it was before; the database is restored
//! from a backup under the running workers; the log loses its start; an operator resets the group's offset. A quiet
//! partition is assumed to get a record of some kind now and then (a heartbeat), with which its worker meets its fence.

use std::fmt;
use std::sync::Arc;

use countersign::invariants::{Doubt, Invariant, LaneSeen, MarkSeen, MessageSeen, Observation, RowState, Violation};
use countersign::pipeline::tenure::Tenure;
use countersign::store::lanes::LaneRow;
use stateright::{Model, Property};

use super::explore::Judged;
use super::gate_actions::Action;
use super::records::{EPOCHS, Found, IDS, KEYS, Records, ShortMark, ShortRow, Told, lane_row};

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A mark counts in every life of the store.
    MarkWithoutEpoch,
    /// A mark counts wherever the lane stands.
    MarkWithoutPosition,
    /// A mark of another lane counts.
    MarkOfAnyLane,
    /// A mark counts for any content.
    MarkWithoutDigest,
    /// A claim that somebody has is taken for a duplicate.
    ClaimIsProof,
    /// The mark is set before the commit.
    ConfirmBeforeCommit,
    /// Insert and read in one statement, and what is in neither answer is taken for new.
    OneStatement,
    /// A row that is there is taken for the own one.
    OwnTokenNotCompared,
    /// The commit to Kafka does not carry the store's epoch.
    CommitWithoutEpoch,
    /// The fence does not compare what this owner has committed already.
    ForgetsOwnCommits,
    /// Offsets that are lost leave the store's epoch as it is.
    LostKeepsEpoch,
    /// The lane row that is locked is not held against the one that the start was decided by.
    StartNotHeld,
    /// A renewal ends the adoption of other epochs' offsets, also where an adopted one is the reason for it.
    AdoptionEnds,
    /// An epoch that is not the one to be renewed is taken for one that another lane has renewed.
    RenewalGuessed,
    /// A lane without records never meets its fence.
    QuietLaneNeverLooks,
    /// A commit without an answer is taken for done.
    CutIsDone,
    /// A commit without an answer is taken for failed: the message is told as failed, and the lane goes on.
    CutIsFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Crash,
    LostAnswer,
    /// The backup may be taken at any time; without this it is that of the beginning.
    LateBackup,
    Redis,
    Restore,
    Retention,
    Reset,
}

#[derive(Clone)]
pub struct Gate {
    pub records: Arc<Records>,
    pub logs: Vec<Vec<Told>>,
    pub faults: &'static [Fault],
    pub budget: u8,
    pub has_gate: bool,
    /// The lanes have rows from the beginning, as of an earlier assignment.
    pub known_lanes: bool,
    pub mutation: Mutation,
}

pub const OWNER: u8 = 1;
pub const FORMER_OWNER: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub owner: u8,
    pub next: i8,
    pub seen: u8,
}

/// What the database holds, and a backup of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Db {
    pub inbox: [Option<ShortRow>; KEYS],
    pub effects: [u8; KEYS],
    /// Contents of `a` and `b` that were parked as conflicts, or told as failed: bits.
    pub parked: [u8; KEYS],
    pub lanes: Vec<Option<Row>>,
    pub store_epoch: u8,
    /// Former epochs: bits.
    pub former: u16,
    pub adopting: u8,
}

/// Where a take-over has decided to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub from: i8,
    pub renews: bool,
    pub epoch: u8,
    pub lane_next: Option<i8>,
    /// It passes over records, and says so.
    pub passes: bool,
    pub adopts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    pub mark: Option<ShortMark>,
    pub found: Found,
    pub by_mark: bool,
    /// The row that this transaction inserted or found.
    pub row: Option<ShortRow>,
    pub store_epoch: u8,
    pub seen: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started, or fenced off: a take-over is due.
    Down,
    Planned(Plan),
    Refused,
    Idle,
    Claimed(Option<ShortMark>),
    /// Only where insert and read are one statement: what it saw when it began.
    Begun(Option<ShortMark>, bool),
    Worked(Work),
    InDoubt(Work, bool),
    Committed(Work),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub phase: Phase,
    pub pos: i8,
    pub known_next: i8,
    /// What is to be committed to Kafka, and what was sent last.
    pub progress: Option<(i8, u8)>,
    pub sent: i8,
    /// A commit without an answer: what happened, and what it was taken for.
    pub doubt: Option<(bool, bool)>,
}

pub const DOWN: Worker = Worker { phase: Phase::Down, pos: 0, known_next: 0, progress: None, sent: -1, doubt: None };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneState {
    pub worker: Worker,
    /// The group's offset and the epoch in its metadata.
    pub committed: Option<(i8, u8)>,
    /// First offset of the log.
    pub low: i8,
    /// Offsets that an operator passed over, or that were gone: bits.
    pub excused: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    Nothing,
    Claim,
    Mark(ShortMark),
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub db: Db,
    pub backup: Db,
    pub backed_up: bool,
    pub lanes: Vec<LaneState>,
    pub redis: [Held; KEYS],
    /// What stood there before: a replica that is late, a snapshot that was loaded.
    pub redis_before: [Held; KEYS],
    pub budget: u8,
    pub epochs_made: u8,
    /// An operator has said that the store was restored, and a lane was refused after that.
    pub told: bool,
    pub refused_though_told: bool,
}

impl Gate {
    pub fn new(logs: &[&[Told]], faults: &'static [Fault], budget: u8) -> Self {
        let logs: Vec<Vec<Told>> = logs.iter().map(|log| log.to_vec()).collect();
        Self {
            records: Arc::new(Records::new(&logs)),
            logs,
            faults,
            budget,
            has_gate: true,
            known_lanes: false,
            mutation: Mutation::None,
        }
    }

    pub fn without(&self, mutation: Mutation) -> Self {
        Self { mutation, ..self.clone() }
    }

    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    pub fn high(&self, lane: usize) -> i8 {
        self.logs[lane].len() as i8
    }

    /// The fence, by the crate's rule.
    pub fn owns(&self, state: &State, lane: usize) -> bool {
        let worker = &state.lanes[lane].worker;
        let known = if self.is(Mutation::ForgetsOwnCommits) { 0 } else { worker.known_next };
        state.long_row(lane).is_some_and(|row| worker.tenure().owns(&row, super::records::known(known)))
    }

    /// A lane without records to read: some record comes, and the fence fails; or the log's start has overtaken it.
    pub fn notices(&self, state: &State, lane: usize) -> bool {
        let of = &state.lanes[lane];
        let quiet = of.worker.pos >= self.high(lane) && !self.is(Mutation::QuietLaneNeverLooks);
        of.worker.pos < of.low || (quiet && !self.owns(state, lane))
    }

    /// Whether a mark counts, by the crate's rule as far as it is not left out.
    pub fn counts(&self, state: &State, (lane, offset): (usize, usize), mark: ShortMark) -> bool {
        let Some(row) = state.long_row(lane) else { return false };
        let mut mark = mark;
        match self.mutation {
            Mutation::MarkWithoutEpoch => mark.epoch = state.db.store_epoch,
            Mutation::MarkWithoutPosition => mark.offset = -1,
            Mutation::MarkOfAnyLane => mark.lane = lane as u8,
            Mutation::MarkWithoutDigest => mark.content = self.logs[lane][offset].content,
            _ => {}
        }
        self.records.counts((lane, offset), mark, &row)
    }

    fn has_outcome(&self, db: &Db, told: Told) -> bool {
        let row = db.inbox[told.key].is_some_and(|row| row.content == told.content);
        row || db.parked[told.key] & (1 << told.content) != 0
    }

    /// Nothing is left to do without another fault.
    fn at_rest(&self, state: &State) -> bool {
        (0..self.logs.len()).all(|lane| {
            let worker = &state.lanes[lane].worker;
            let sent = worker.progress.is_none_or(|(next, _)| next == worker.sent);
            worker.phase == Phase::Idle && worker.pos >= self.high(lane) && sent && !self.notices(state, lane)
        })
    }

    fn all_there(&self, state: &State) -> bool {
        self.logs.iter().enumerate().all(|(lane, log)| {
            let LaneState { low, excused, .. } = state.lanes[lane];
            log.iter().enumerate().all(|(offset, told)| {
                (offset as i8) < low || excused & (1 << offset) != 0 || self.has_outcome(&state.db, *told)
            })
        })
    }

    /// The part of the observation that a rule is about.
    fn observe(&self, state: &State, invariant: Invariant) -> Observation<&'static str> {
        let mut seen = Observation::default();
        match invariant {
            Invariant::OneEffect => {
                let message = |key: usize| MessageSeen {
                    key: IDS[key],
                    rows: state.db.inbox[key].map(|_| RowState::Applied).into_iter().collect(),
                    effects: usize::from(state.db.effects[key]),
                    version: 1,
                    told: false,
                };
                seen.messages = (0..KEYS).map(message).collect();
            }
            Invariant::OffsetsTrailOutcomes => {
                seen.lanes = (0..self.logs.len()).filter_map(|lane| self.observe_lane(state, lane)).collect();
            }
            Invariant::GateNeverLies => {
                for (lane, log) in self.logs.iter().enumerate() {
                    for (offset, told) in log.iter().enumerate() {
                        if let Held::Mark(mark) = state.redis[told.key]
                            && self.counts(state, (lane, offset), mark)
                        {
                            // Its outcome may also be that of a conflict, which a further copy would not add to.
                            let proven = self.has_outcome(&state.db, *told);
                            seen.marks.push(MarkSeen { key: IDS[told.key], proven });
                        }
                    }
                }
            }
            Invariant::UnknownIsNotFailure => {
                let doubts = state.lanes.iter().enumerate().filter_map(|(lane, of)| {
                    let (happened, taken) = of.worker.doubt?;
                    Some(Doubt { key: ["lane 0", "lane 1"][lane], happened, taken_for: Some(taken) })
                });
                seen.doubts = doubts.collect();
            }
            // Receipts, counts and rivals are not part of this model.
            Invariant::OneReceipt | Invariant::AllAccounted | Invariant::Fenced => {}
        }
        seen
    }

    fn observe_lane(&self, state: &State, lane: usize) -> Option<LaneSeen> {
        let row = state.db.lanes[lane]?;
        let LaneState { low, excused, .. } = state.lanes[lane];
        let due = |(offset, told): (usize, &Told)| {
            let passed = excused & (1 << offset) != 0 || (offset as i8) < low;
            (!passed).then(|| (offset as i64, self.has_outcome(&state.db, *told)))
        };
        Some(LaneSeen {
            name: format!("t/{lane}"),
            next: i64::from(row.next),
            // Between a restore and its discovery Kafka may be ahead, which is how it is discovered.
            committed: None,
            records: self.logs[lane].iter().enumerate().filter_map(due).collect(),
        })
    }
}

pub const COMPLETE: &str = "at rest, everything is there";
pub const SAID_ONCE: &str = "after `migrate --restored` no lane is refused";

impl Model for Gate {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let known = self.known_lanes.then_some(Row { owner: FORMER_OWNER, next: 0, seen: 0 });
        let db = Db {
            inbox: [None; KEYS],
            effects: [0; KEYS],
            parked: [0; KEYS],
            lanes: vec![known; self.logs.len()],
            store_epoch: 1,
            former: 0,
            adopting: 0,
        };
        vec![State {
            backup: db.clone(),
            db,
            backed_up: false,
            lanes: vec![LaneState { worker: DOWN, committed: None, low: 0, excused: 0 }; self.logs.len()],
            redis: [Held::Nothing; KEYS],
            redis_before: [Held::Nothing; KEYS],
            budget: self.budget,
            epochs_made: 1,
            told: false,
            refused_though_told: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.possible(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties: Vec<Property<Self>> = vec![
            Property::always("I1 one effect", |model, state| model.keeps(state, Invariant::OneEffect)),
            Property::always("I3 offsets trail outcomes", |model, state| {
                model.keeps(state, Invariant::OffsetsTrailOutcomes)
            }),
            Property::always("I4 the gate never lies", |model, state| model.keeps(state, Invariant::GateNeverLies)),
            Property::always("I7 unknown is not failure", |model, state| {
                model.keeps(state, Invariant::UnknownIsNotFailure)
            }),
            Property::always(COMPLETE, |model, state| !model.at_rest(state) || model.all_there(state)),
            Property::always(SAID_ONCE, |_, state: &State| !state.refused_though_told),
            Property::sometimes("at rest with everything there", |model, state| {
                model.at_rest(state) && model.all_there(state)
            }),
        ];
        if self.faults.contains(&Fault::Restore) {
            properties.push(Property::sometimes("a store that went back is read again", |_, state: &State| {
                let ahead = |lane: &LaneState| match lane.worker.phase {
                    Phase::Planned(plan) => lane.committed.is_some_and(|(committed, _)| plan.from < committed),
                    _ => false,
                };
                state.lanes.iter().any(ahead)
            }));
        }
        properties
    }
}

impl Gate {
    fn keeps(&self, state: &State, invariant: Invariant) -> bool {
        self.observe(state, invariant).check(invariant).is_ok()
    }
}

impl Judged for Gate {
    fn faults(&self, state: &State) -> Vec<Violation> {
        Invariant::ALL.into_iter().filter_map(|rule| self.observe(state, rule).check(rule).err()).collect()
    }
}

impl State {
    pub fn long_row(&self, lane: usize) -> Option<LaneRow> {
        let row = self.db.lanes[lane]?;
        Some(lane_row(1, row.owner, row.next, row.seen, self.db.store_epoch))
    }
}

impl Worker {
    pub fn tenure(&self) -> Tenure {
        Tenure { epoch: 1, owner: OWNER.to_string() }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = EPOCHS[usize::from(self.db.store_epoch)];
        write!(f, "store {epoch}: inbox {:?} effects {:?} rows {:?}", self.db.inbox, self.db.effects, self.db.lanes)?;
        write!(f, "; redis {:?}; lanes {:?}; backup {:?}", self.redis, self.lanes, self.backup)
    }
}
