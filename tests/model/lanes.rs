//! Lanes, offsets and the fence, with a zombie owner.
//!
//! Two tasks and one partition: the group gives it to one of them while the other may not know yet, whether both live
//! in one process or not. Each transaction locks the lane row, applies one record, and commits; a commit may be cut
//! while the server is still at it. Kafka takes offsets of the assigned task alone.

use std::fmt;
use std::sync::Arc;

use countersign::invariants::{Doubt, Invariant, LaneSeen, MessageSeen, Observation, RowState, TenureSeen, Violation};
use countersign::offsets::{LostOffsets, StartFacts, decide_start};
use countersign::pipeline::tenure::{Tenure, Trace};
use stateright::{Model, Property};

use super::explore::{Judged, breaks, holds};
use super::records::{A, B, Found, IDS, KEYS, Records, ShortRow, Told, known, lane_row};

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A new assignment finds its lane row as an earlier task of the process left it, and keeps epoch and owner.
    NoNewEpoch,
    /// The fence reads the row without a lock.
    FenceWithoutLock,
    /// The fence is met once, when the lane is taken over.
    FenceOnlyAtStart,
    /// An offset goes to Kafka before its transaction is committed.
    OffsetBeforeCommit,
    /// A lane starts at its row's next offset if that is further.
    SeekForward,
    /// A task whose partition was revoked still hands offsets to the consumer.
    OffsetAfterRevoke,
    /// A cut commit is looked up without waiting for the transaction in doubt.
    LookUpWithoutLock,
    /// A cut commit is taken for rolled back without looking.
    CutIsFailure,
}

#[derive(Clone)]
struct Lanes {
    records: Arc<Records>,
    budget: u8,
    mutation: Mutation,
}

const LOG: [Told; 2] = [A, B];
const TASKS: usize = 2;
const END: i8 = LOG.len() as i8;
const EPOCH: &str = "e1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    epoch: u8,
    owner: u8,
    next: i8,
    seen: u8,
}

/// What a transaction would commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    first: bool,
    pos: i8,
    seen: u8,
    tenure: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Gone,
    Assigned,
    Planned { from: i8, lane_next: Option<i8> },
    Idle,
    InTx(Work),
    InDoubt(Work),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Task {
    phase: Phase,
    epoch: u8,
    owner: u8,
    /// Counted by the observer, whatever the row says.
    tenure: u8,
    pos: i8,
    known_next: i8,
    progress: Option<i8>,
    sent: i8,
    /// A cut commit: whether it happened, once that is known to the server, and what it was taken for.
    doubt: Option<(Option<bool>, Option<bool>)>,
}

const GONE: Task = Task {
    phase: Phase::Gone,
    epoch: 0,
    owner: 0,
    tenure: 0,
    pos: 0,
    known_next: 0,
    progress: None,
    sent: -1,
    doubt: None,
};

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    inbox: [bool; KEYS],
    effects: [u8; KEYS],
    row: Option<Row>,
    /// Whose transaction holds the row, and what the server would commit if the client has gone.
    lock: Option<usize>,
    cut: Option<(usize, Work)>,
    tasks: [Task; TASKS],
    assigned: Option<usize>,
    /// The group's offset, and whether it carries the store's epoch: an operator's reset does not.
    committed: Option<(i8, bool)>,
    budget: u8,
    tenures: u8,
    owner: u8,
    /// The tenure of the last commit since the lane was acquired last.
    last_commit: Option<u8>,
    /// The last offset came from a task that the partition is not assigned to.
    stale_offset: bool,
    excused: u8,
    started_past: bool,
}

/// A step; the number is the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Assign(usize),
    /// The partition goes to this task; the other one does not know yet.
    Rebalance(usize),
    Look(usize),
    Acquire(usize),
    /// Fence, inbox, effect.
    Begin(usize),
    Commit(usize),
    /// The connection breaks at the commit, the server is still at it.
    CommitCut(usize),
    ServerEnds {
        happened: bool,
    },
    /// The connection breaks before the commit.
    Cut(usize),
    LookUp(usize),
    CommitOffset(usize),
    /// The task hears that its partition is gone.
    Ends(usize),
    /// A record of some kind comes, and the fence fails.
    Notice(usize),
    Crash(usize),
    OperatorResets(i8),
}

const OBEYED: &str = "a lane starts where the group's offset says";
const COMPLETE: &str = "at rest, everything is there";

impl Lanes {
    fn new(budget: u8) -> Self {
        Self { records: Arc::new(Records::new(&[LOG.to_vec()])), budget, mutation: Mutation::None }
    }

    fn without(mutation: Mutation) -> Self {
        Self { mutation, ..Self::new(2) }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    fn owns(&self, state: &State, task: usize) -> bool {
        let Task { known_next, .. } = state.tasks[task];
        state.long_row().is_some_and(|row| state.tasks[task].tenure().owns(&row, known(known_next)))
    }

    fn locked(&self, state: &State) -> bool {
        state.lock.is_some() && !self.is(Mutation::FenceWithoutLock)
    }

    fn possible(&self, state: &State, task: usize, actions: &mut Vec<Action>) {
        let zombie = state.assigned != Some(task);
        let fault = state.budget > 0;
        let Task { phase, pos, progress, sent, .. } = state.tasks[task];
        match phase {
            Phase::Gone => {}
            // One that was fenced off and does not know better takes the lane over once more; how often is bounded.
            Phase::Assigned if !zombie || fault => actions.push(Action::Look(task)),
            Phase::Assigned => {}
            Phase::Planned { .. } if !self.locked(state) => actions.push(Action::Acquire(task)),
            Phase::Planned { .. } => {}
            Phase::Idle if pos < END && !self.locked(state) => actions.push(Action::Begin(task)),
            Phase::Idle if pos >= END && !self.owns(state, task) => actions.push(Action::Notice(task)),
            Phase::Idle => {}
            Phase::InTx(_) => {
                actions.push(Action::Commit(task));
                if fault {
                    actions.push(Action::CommitCut(task));
                    actions.push(Action::Cut(task));
                }
            }
            Phase::InDoubt(_) => {
                let waits = self.locked(state) && !self.is(Mutation::LookUpWithoutLock);
                if !waits || self.is(Mutation::CutIsFailure) {
                    actions.push(Action::LookUp(task));
                }
            }
        }
        let due = progress.is_some_and(|next| next != sent);
        let beyond = self.is(Mutation::OffsetBeforeCommit) && matches!(phase, Phase::InTx(_));
        if (due || beyond) && phase != Phase::Gone && (!zombie || self.is(Mutation::OffsetAfterRevoke)) {
            actions.push(Action::CommitOffset(task));
        }
        if zombie && phase != Phase::Gone {
            actions.push(Action::Ends(task));
        }
        if fault && phase != Phase::Gone && !zombie {
            actions.push(Action::Crash(task));
        }
    }

    fn commit(&self, state: &mut State, task: usize, work: Work) {
        let key = LOG[work.pos as usize].key;
        if work.first {
            state.effects[key] += 1;
            state.inbox[key] = true;
        }
        if let Some(row) = &mut state.row {
            row.next = row.next.max(work.pos + 1);
            row.seen = work.seen + 1;
        }
        state.last_commit = Some(work.tenure);
        if state.lock == Some(task) {
            state.lock = None;
        }
    }

    fn done(&self, task: &mut Task) {
        task.pos += 1;
        task.known_next = task.known_next.max(task.pos);
        task.progress = Some(task.pos);
        task.phase = Phase::Idle;
    }

    fn look(&self, state: &mut State, task: usize) {
        if state.assigned != Some(task) {
            state.budget -= 1;
        }
        let lane_next = state.row.map(|row| row.next);
        let facts = StartFacts {
            committed: state.committed.map(|(offset, ours)| (i64::from(offset), if ours { EPOCH } else { "" })),
            low: 0,
            high: i64::from(END),
            lane_next: lane_next.map(i64::from),
            store_epoch: EPOCH,
            former_epochs: &[],
            adopts: false,
            policy_offset: 0,
            lost: LostOffsets::Earliest,
        };
        let Some(from) = decide_start(&facts).from() else { return };
        let mut from = from as i8;
        if self.is(Mutation::SeekForward) {
            from = from.max(lane_next.unwrap_or(0));
        }
        let committed = state.committed.map_or(0, |(offset, _)| offset);
        state.started_past |= from > committed;
        state.tasks[task].phase = Phase::Planned { from, lane_next };
    }

    fn acquire(&self, state: &mut State, task: usize) {
        let Phase::Planned { from, lane_next } = state.tasks[task].phase else { return };
        let next = state.row.map_or(from, |row| row.next);
        for offset in next..from {
            // An operator's reset.
            state.excused |= 1 << offset;
        }
        debug_assert!(lane_next.is_none_or(|seen| next >= seen), "this store does not go back");
        state.tenures += 1;
        let fresh = Row { epoch: 0, owner: 0, next: from, seen: 0 };
        let mut row = state.row.unwrap_or(fresh);
        if !(self.is(Mutation::NoNewEpoch) && state.row.is_some()) {
            row.epoch += 1;
            row.owner = state.tenures;
        }
        state.row = Some(row);
        state.owner = state.tenures;
        state.last_commit = None;
        let of = &mut state.tasks[task];
        *of = Task { epoch: row.epoch, owner: row.owner, tenure: state.tenures, pos: from, phase: Phase::Idle, ..*of };
        of.known_next = 0;
        of.doubt = None;
        if row.next >= from {
            of.progress = Some(from);
        }
    }

    fn begin(&self, state: &mut State, task: usize) {
        if !self.owns(state, task) && !self.is(Mutation::FenceOnlyAtStart) {
            state.tasks[task].phase = Phase::Assigned;
            return;
        }
        let of = state.tasks[task];
        let key = LOG[of.pos as usize].key;
        let row = ShortRow { content: 1, own: !state.inbox[key], lane: 0, offset: 0 };
        let found = self.records.judge((0, of.pos as usize), Some(row));
        let seen = state.row.map_or(0, |row| row.seen);
        let work = Work { first: found == Some(Found::First), pos: of.pos, seen, tenure: of.tenure };
        state.lock = Some(task);
        state.tasks[task].doubt = None;
        state.tasks[task].phase = Phase::InTx(work);
    }

    fn look_up(&self, state: &mut State, task: usize) {
        let of = state.tasks[task];
        let Phase::InDoubt(work) = of.phase else { return };
        let trace = Trace { records_seen: i64::from(work.seen) + 1, next_offset: i64::from(work.pos) + 1 };
        let known = known(of.known_next);
        let committed = state.long_row().is_some_and(|row| of.tenure().committed(&row, known, trace));
        let committed = committed && !self.is(Mutation::CutIsFailure);
        let ours = self.owns(state, task);
        let of = &mut state.tasks[task];
        if let Some((_, taken)) = &mut of.doubt {
            // Of a lane that is another's by now nothing is said.
            *taken = ours.then_some(committed);
        }
        if committed {
            self.done(of);
        } else {
            of.phase = Phase::Idle;
        }
    }

    fn observe(&self, state: &State, rule: Invariant) -> Observation<&'static str> {
        let mut seen = Observation::default();
        match rule {
            Invariant::OneEffect => {
                let message = |key: usize| MessageSeen {
                    key: IDS[key],
                    rows: state.inbox[key].then_some(RowState::Applied).into_iter().collect(),
                    effects: usize::from(state.effects[key]),
                    version: 1,
                    told: false,
                };
                seen.messages = (0..KEYS).map(message).collect();
            }
            Invariant::OffsetsTrailOutcomes => {
                let due = |offset: usize| {
                    (state.excused & (1 << offset) == 0).then(|| (offset as i64, state.inbox[LOG[offset].key]))
                };
                let committed = state.committed.filter(|(_, ours)| *ours).map(|(offset, _)| i64::from(offset));
                seen.lanes = state
                    .row
                    .map(|row| LaneSeen {
                        name: "t/0".to_owned(),
                        next: i64::from(row.next),
                        committed,
                        records: (0..LOG.len()).filter_map(due).collect(),
                    })
                    .into_iter()
                    .collect();
            }
            Invariant::Fenced => {
                let committed =
                    state.last_commit.map(|tenure| TenureSeen::Committed { lane: 0, assignment: u64::from(tenure) });
                seen.tenures = vec![TenureSeen::Acquired { lane: 0, assignment: u64::from(state.owner) }];
                seen.tenures.extend(committed);
                // What Kafka is told, by its own assignment.
                let assignment = u64::from(!state.stale_offset);
                seen.tenures.push(TenureSeen::Acquired { lane: 1, assignment: 1 });
                seen.tenures.push(TenureSeen::Committed { lane: 1, assignment });
            }
            Invariant::UnknownIsNotFailure => {
                let doubts = state.tasks.iter().enumerate().filter_map(|(task, of)| match of.doubt? {
                    (Some(happened), taken_for) => Some(Doubt { key: ["task 0", "task 1"][task], happened, taken_for }),
                    (None, _) => None,
                });
                seen.doubts = doubts.collect();
            }
            // Receipts, the gate and counts are not part of this model.
            Invariant::OneReceipt | Invariant::GateNeverLies | Invariant::AllAccounted => {}
        }
        seen
    }

    fn keeps(&self, state: &State, rule: Invariant) -> bool {
        self.observe(state, rule).check(rule).is_ok()
    }

    fn at_rest(&self, state: &State) -> bool {
        state.assigned.is_some_and(|task| {
            let of = &state.tasks[task];
            let sent = of.progress.is_none_or(|next| next == of.sent);
            of.phase == Phase::Idle && of.pos >= END && sent && self.owns(state, task)
        })
    }

    fn all_there(&self, state: &State) -> bool {
        (0..LOG.len()).all(|offset| state.excused & (1 << offset) != 0 || state.inbox[LOG[offset].key])
    }
}

impl Model for Lanes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            inbox: [false; KEYS],
            effects: [0; KEYS],
            row: None,
            lock: None,
            cut: None,
            tasks: [GONE; TASKS],
            assigned: None,
            committed: None,
            budget: self.budget,
            tenures: 0,
            owner: 0,
            last_commit: None,
            stale_offset: false,
            excused: 0,
            started_past: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for task in 0..TASKS {
            self.possible(state, task, actions);
        }
        let free = (0..TASKS).find(|task| state.tasks[*task].phase == Phase::Gone);
        match (state.assigned, free) {
            (None, Some(task)) => actions.push(Action::Assign(task)),
            (Some(_), Some(task)) if state.budget > 0 => actions.push(Action::Rebalance(task)),
            _ => {}
        }
        if state.cut.is_some() {
            actions.push(Action::ServerEnds { happened: true });
            actions.push(Action::ServerEnds { happened: false });
        }
        if state.budget > 0 && state.assigned.is_none() && state.row.is_some() {
            actions.extend((0..=END).map(Action::OperatorResets));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let state = &mut next;
        match action {
            Action::Assign(task) | Action::Rebalance(task) => {
                state.budget -= u8::from(matches!(action, Action::Rebalance(_)));
                state.assigned = Some(task);
                state.tasks[task].phase = Phase::Assigned;
            }
            Action::Look(task) => self.look(state, task),
            Action::Acquire(task) => self.acquire(state, task),
            Action::Begin(task) => self.begin(state, task),
            Action::Commit(task) => {
                let Phase::InTx(work) = state.tasks[task].phase else { return None };
                self.commit(state, task, work);
                self.done(&mut state.tasks[task]);
            }
            Action::CommitCut(task) => {
                let Phase::InTx(work) = state.tasks[task].phase else { return None };
                if state.cut.is_some() {
                    return None;
                }
                state.budget -= 1;
                state.cut = Some((task, work));
                state.tasks[task].doubt = Some((None, None));
                state.tasks[task].phase = Phase::InDoubt(work);
            }
            Action::ServerEnds { happened } => {
                let (task, work) = state.cut.take()?;
                if happened {
                    self.commit(state, task, work);
                } else if state.lock == Some(task) {
                    state.lock = None;
                }
                if let Some((is, _)) = &mut state.tasks[task].doubt {
                    *is = Some(happened);
                }
            }
            Action::Cut(task) => {
                state.budget -= 1;
                state.release(task);
                state.tasks[task].phase = Phase::Idle;
            }
            Action::LookUp(task) => self.look_up(state, task),
            Action::CommitOffset(task) => {
                let of = &mut state.tasks[task];
                let next = match of.phase {
                    Phase::InTx(work) if self.is(Mutation::OffsetBeforeCommit) => work.pos + 1,
                    _ => of.progress?,
                };
                of.sent = next;
                state.stale_offset = state.assigned != Some(task);
                state.committed = Some((next, true));
            }
            Action::Ends(task) => {
                state.release(task);
                state.tasks[task] = GONE;
            }
            Action::Notice(task) => state.tasks[task].phase = Phase::Assigned,
            Action::Crash(task) => {
                state.budget -= 1;
                state.release(task);
                state.tasks[task] = GONE;
                state.assigned = None;
            }
            Action::OperatorResets(to) => {
                state.budget -= 1;
                state.committed = Some((to, false));
            }
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("I1 one effect", |model, state| model.keeps(state, Invariant::OneEffect)),
            Property::always("I3 offsets trail outcomes", |model, state| {
                model.keeps(state, Invariant::OffsetsTrailOutcomes)
            }),
            Property::always("I6 fenced", |model, state| model.keeps(state, Invariant::Fenced)),
            Property::always("I7 unknown is not failure", |model, state| {
                model.keeps(state, Invariant::UnknownIsNotFailure)
            }),
            Property::always(OBEYED, |_, state: &State| !state.started_past),
            Property::always(COMPLETE, |model: &Self, state| !model.at_rest(state) || model.all_there(state)),
            Property::sometimes("at rest with everything there", |model: &Self, state| {
                model.at_rest(state) && model.all_there(state)
            }),
            Property::sometimes("a zombie waits for the lock", |_, state: &State| {
                let zombie = state.assigned.map(|task| 1 - task);
                state.lock.is_some() && state.lock == zombie
            }),
        ]
    }
}

impl Judged for Lanes {
    fn faults(&self, state: &State) -> Vec<Violation> {
        Invariant::ALL.into_iter().filter_map(|rule| self.observe(state, rule).check(rule).err()).collect()
    }
}

impl State {
    fn long_row(&self) -> Option<countersign::store::lanes::LaneRow> {
        self.row.map(|row| lane_row(row.epoch, row.owner, row.next, row.seen, 1))
    }

    /// The task's open transaction is rolled back. One that the server is committing is not the task's any more.
    fn release(&mut self, task: usize) {
        if self.lock == Some(task) && self.cut.is_none_or(|(cut, _)| cut != task) {
            self.lock = None;
        }
    }
}

impl Task {
    fn tenure(&self) -> Tenure {
        Tenure { epoch: i64::from(self.epoch), owner: self.owner.to_string() }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "assigned {:?} committed {:?} row {:?} lock {:?} ",
            self.assigned, self.committed, self.row, self.lock
        )?;
        write!(f, "inbox {:?} effects {:?} tasks {:?}", self.inbox, self.effects, self.tasks)
    }
}

#[test]
fn two_owners_of_one_lane_apply_each_record_once_and_the_old_one_commits_nothing() {
    holds("lanes", Lanes::new(2));
}

#[test]
fn each_rule_of_the_fence_and_the_offsets_is_needed() {
    for (mutation, rule) in [
        (Mutation::NoNewEpoch, "I6 fenced"),
        (Mutation::FenceWithoutLock, "I6 fenced"),
        (Mutation::FenceOnlyAtStart, "I6 fenced"),
        (Mutation::OffsetAfterRevoke, "I6 fenced"),
        (Mutation::OffsetBeforeCommit, "I3 offsets trail outcomes"),
        (Mutation::SeekForward, OBEYED),
        (Mutation::LookUpWithoutLock, "I7 unknown is not failure"),
        (Mutation::CutIsFailure, "I7 unknown is not failure"),
    ] {
        breaks(&format!("{mutation:?}"), Lanes::without(mutation), rule);
    }
}
