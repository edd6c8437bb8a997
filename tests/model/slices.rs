//! Keyed lanes: two slices of one lane at work side by side, a rival that takes the lane over, and a database that goes back
//! in time.
//!
//! Each transaction shares the fence with those of the other slice, applies one record, and ends alone: it looks at the lane's
//! row once more, writes the contiguous mark and commits. A commit may be cut while the server is still at it.

use std::fmt;

use countersign::invariants::{Invariant, LaneSeen, MessageSeen, Observation, RowState, Violation};
use countersign::offsets::outstanding::Outstanding;
use countersign::offsets::{LostOffsets, StartFacts, decide_start};
use countersign::pipeline::tenure::{Tenure, Trace};
use stateright::{Model, Property};

use super::explore::{Judged, breaks, holds};
use super::records::lane_row;

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A takeover does not wait for the slices of the former owner, which looked at the fence and at nothing later.
    TakeoverDoesNotWait,
    /// A slice writes the offset behind its own record.
    MarkPassesOthers,
    /// That the row's count went back is no sign of anything.
    CountIsIgnored,
    /// A slice ends without its turn: the mark is that of another moment than the commit.
    EndsWithoutTurn,
}

#[derive(Clone)]
struct Slices {
    budget: u8,
    mutation: Mutation,
}

const LOG: usize = 3;
const END: i64 = LOG as i64;
const SLICES: usize = 2;
const OWNERS: usize = 2;
const EPOCH: &str = "e1";
const NAMES: [&str; LOG] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    epoch: u8,
    owner: u8,
    next: i8,
    seen: u8,
}

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Database {
    row: Option<Row>,
    /// Effects by record; its inbox row is there from the first on.
    effects: [u8; LOG],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    pos: usize,
    first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slice {
    Idle,
    InTx(Work),
    /// Without an answer to its commit, which would leave this row; nobody else of its owner ends meanwhile.
    InDoubt(Work, Row),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owner {
    epoch: u8,
    outstanding: Outstanding,
    slices: [Slice; SLICES],
    /// Of the row: next and seen.
    known: (i8, u8),
    written: i8,
    sent: i8,
    /// A slice was fenced off: no transaction begins, and the lane is taken over anew.
    ends: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    database: Database,
    backup: Option<Database>,
    /// A commit that the server is still at: whose, and what it would leave.
    cut: Option<(usize, usize, Work, Row)>,
    owners: [Option<Owner>; OWNERS],
    assigned: usize,
    committed: Option<i8>,
    budget: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    TakeOver(usize),
    Begin(usize, usize),
    Commit(usize, usize),
    CommitCut(usize, usize),
    ServerEnds {
        happened: bool,
    },
    LookUp(usize, usize),
    /// Its process dies.
    Dies(usize),
    /// The partition goes to the other one, and this one does not know yet.
    Rebalance,
    CommitOffset,
    Backup,
    /// Every connection breaks.
    Restore,
}

const COMPLETE: &str = "at rest, everything is there";

impl Slices {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    fn owns(&self, state: &State, owner: &Owner, index: usize) -> bool {
        let seen = if self.is(Mutation::CountIsIgnored) { 0 } else { owner.known.1 };
        state.database.row.is_some_and(|row| tenure(owner, index).owns(&long(row), trace(owner.known.0, seen)))
    }

    /// Locks of slices in open transactions, a cut one included.
    fn fenced_beside(&self, state: &State) -> bool {
        let open = |owner: &Owner| owner.slices.iter().any(|slice| matches!(slice, Slice::InTx(_)));
        state.cut.is_some() || state.owners.iter().flatten().any(open)
    }

    fn take_over(&self, state: &mut State, index: usize) {
        let facts = StartFacts {
            committed: state.committed.map(|offset| (i64::from(offset), EPOCH)),
            low: 0,
            high: END,
            lane_next: state.database.row.map(|row| i64::from(row.next)),
            store_epoch: EPOCH,
            former_epochs: &[],
            adopts: false,
            policy_offset: 0,
            lost: LostOffsets::Earliest,
        };
        let from = decide_start(&facts).from().unwrap_or(0);
        let fresh = Row { epoch: 0, owner: 0, next: from as i8, seen: 0 };
        let mut row = state.database.row.unwrap_or(fresh);
        row.epoch += 1;
        row.owner = index as u8;
        state.database.row = Some(row);
        let mut outstanding = Outstanding::new(from);
        (from..END).for_each(|offset| outstanding.admit(offset, 1, true));
        state.owners[index] = Some(Owner {
            epoch: row.epoch,
            outstanding,
            slices: [Slice::Idle; SLICES],
            known: (0, 0),
            written: from as i8,
            sent: -1,
            ends: false,
        });
    }

    fn begin(&self, state: &mut State, index: usize, slice: usize) -> Option<()> {
        let mut owner = state.owners[index].clone()?;
        let pos = next_of(&owner, slice)?;
        if self.owns(state, &owner, index) {
            let first = state.database.effects[pos] == 0;
            owner.slices[slice] = Slice::InTx(Work { pos, first });
        } else {
            owner.ends = true;
        }
        state.owners[index] = Some(owner);
        Some(())
    }

    /// The row that a slice would leave; none if the last look at it says that it is not ours.
    fn leaves(&self, state: &State, index: usize, work: Work) -> Option<Row> {
        let owner = state.owners[index].as_ref()?;
        let row = state.database.row?;
        if !self.is(Mutation::TakeoverDoesNotWait) && !self.owns(state, owner, index) {
            return None;
        }
        let mark = if self.is(Mutation::MarkPassesOthers) {
            work.pos as i64 + 1
        } else {
            owner.outstanding.mark_with([work.pos as i64])
        };
        Some(Row { next: row.next.max(mark as i8), seen: row.seen + 1, ..row })
    }

    fn commit(&self, state: &mut State, work: Work, row: Row) {
        state.database.row = Some(row);
        state.database.effects[work.pos] += u8::from(work.first);
    }

    fn done(&self, owner: &mut Owner, slice: usize, work: Work, row: Row) {
        owner.known = (owner.known.0.max(row.next), owner.known.1.max(row.seen));
        owner.outstanding.finish([work.pos as i64]);
        owner.written = owner.outstanding.mark() as i8;
        if self.is(Mutation::MarkPassesOthers) {
            owner.written = row.next;
        }
        owner.slices[slice] = Slice::Idle;
    }

    /// It has heard that it is fenced off, or a look at the row of its quiet lane says so.
    fn leaves_by_itself(&self, state: &State, owner: &Owner, index: usize) -> bool {
        let idle = owner.slices.iter().all(|slice| *slice == Slice::Idle);
        let lost = owner.outstanding.is_empty() && !self.owns(state, owner, index);
        idle && (owner.ends || lost)
    }

    fn at_rest(&self, state: &State) -> bool {
        state.owners[state.assigned].as_ref().is_some_and(|owner| {
            let idle = owner.slices.iter().all(|slice| *slice == Slice::Idle);
            idle && !owner.ends
                && owner.outstanding.is_empty()
                && owner.sent == owner.written
                && self.owns(state, owner, state.assigned)
        })
    }

    fn observe(&self, state: &State) -> Observation<&'static str> {
        let message = |pos: usize| MessageSeen {
            key: NAMES[pos],
            rows: (state.database.effects[pos] > 0).then_some(RowState::Applied).into_iter().collect(),
            effects: usize::from(state.database.effects[pos]),
            version: 1,
            told: false,
        };
        let lane = |row: Row| LaneSeen {
            name: "t/0".to_owned(),
            next: i64::from(row.next),
            // A database that went back stands behind the group for a while.
            committed: None,
            records: (0..LOG).map(|pos| (pos as i64, state.database.effects[pos] > 0)).collect(),
        };
        Observation {
            messages: (0..LOG).map(message).collect(),
            lanes: state.database.row.map(lane).into_iter().collect(),
            ..Observation::default()
        }
    }
}

/// Records 0 and 2 have one key, 1 has another.
fn next_of(owner: &Owner, slice: usize) -> Option<usize> {
    let done = |pos: &usize| {
        let at = *pos as i64;
        at < owner.outstanding.mark() || owner.outstanding.mark_with((0..END).filter(|other| *other != at)) != at
    };
    (0..LOG).filter(|pos| pos % SLICES == slice).find(|pos| !done(pos))
}

fn tenure(owner: &Owner, index: usize) -> Tenure {
    Tenure { epoch: i64::from(owner.epoch), owner: index.to_string() }
}

fn trace(next: i8, seen: u8) -> Trace {
    Trace { next_offset: i64::from(next), records_seen: i64::from(seen) }
}

fn long(row: Row) -> countersign::store::lanes::LaneRow {
    lane_row(row.epoch, row.owner, row.next, row.seen, 1)
}

impl Model for Slices {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            database: Database::default(),
            backup: None,
            cut: None,
            owners: [None, None],
            assigned: 0,
            committed: None,
            budget: self.budget,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let fault = state.budget > 0;
        for index in 0..OWNERS {
            let waits = self.fenced_beside(state) && !self.is(Mutation::TakeoverDoesNotWait);
            match &state.owners[index] {
                None if index == state.assigned && !waits => actions.push(Action::TakeOver(index)),
                None => {}
                Some(owner) => {
                    let doubt = owner.slices.iter().any(|slice| matches!(slice, Slice::InDoubt(_, _)));
                    let alone = !doubt || self.is(Mutation::EndsWithoutTurn);
                    for (slice, of) in owner.slices.iter().enumerate() {
                        match of {
                            Slice::Idle if !owner.ends && next_of(owner, slice).is_some() => {
                                actions.push(Action::Begin(index, slice));
                            }
                            Slice::Idle => {}
                            Slice::InTx(_) if alone => {
                                actions.push(Action::Commit(index, slice));
                                if fault && state.cut.is_none() {
                                    actions.push(Action::CommitCut(index, slice));
                                }
                            }
                            Slice::InTx(_) => {}
                            // Behind the lock of the transaction in doubt.
                            Slice::InDoubt(_, _) if state.cut.is_none() => actions.push(Action::LookUp(index, slice)),
                            Slice::InDoubt(_, _) => {}
                        }
                    }
                    if fault || index != state.assigned || self.leaves_by_itself(state, owner, index) {
                        actions.push(Action::Dies(index));
                    }
                }
            }
        }
        if state.owners[state.assigned].as_ref().is_some_and(|owner| owner.sent != owner.written) {
            actions.push(Action::CommitOffset);
        }
        if state.cut.is_some() {
            actions.extend([true, false].map(|happened| Action::ServerEnds { happened }));
        }
        if fault {
            actions.push(Action::Rebalance);
            match state.backup {
                None => actions.push(Action::Backup),
                Some(backup) if backup != state.database => actions.push(Action::Restore),
                Some(_) => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let state = &mut next;
        match action {
            Action::TakeOver(index) => self.take_over(state, index),
            Action::Begin(index, slice) => self.begin(state, index, slice)?,
            Action::Commit(index, slice) | Action::CommitCut(index, slice) => {
                let Slice::InTx(work) = state.owners[index].as_ref()?.slices[slice] else { return None };
                let leaves = self.leaves(state, index, work);
                if let (Some(row), Action::Commit(..)) = (leaves, action) {
                    self.commit(state, work, row);
                }
                let cut = matches!(action, Action::CommitCut(..));
                let owner = state.owners[index].as_mut()?;
                match leaves {
                    None => {
                        owner.slices[slice] = Slice::Idle;
                        owner.ends = true;
                    }
                    Some(row) if cut => {
                        owner.slices[slice] = Slice::InDoubt(work, row);
                        state.cut = Some((index, slice, work, row));
                        state.budget -= 1;
                    }
                    Some(row) => self.done(owner, slice, work, row),
                }
            }
            Action::ServerEnds { happened } => {
                let (_, _, work, row) = state.cut.take()?;
                if happened {
                    self.commit(state, work, row);
                }
            }
            Action::LookUp(index, slice) => {
                let owner = state.owners[index].clone()?;
                let Slice::InDoubt(work, row) = owner.slices[slice] else { return None };
                let left = trace(row.next, row.seen);
                let known = trace(owner.known.0, owner.known.1);
                let found =
                    state.database.row.is_some_and(|now| tenure(&owner, index).committed(&long(now), known, left));
                let owner = state.owners[index].as_mut()?;
                if found {
                    self.done(owner, slice, work, row);
                } else {
                    owner.slices[slice] = Slice::Idle;
                }
            }
            Action::Dies(index) => {
                let owner = state.owners[index].take()?;
                state.budget -= u8::from(index == state.assigned && !self.leaves_by_itself(last, &owner, index));
            }
            Action::Rebalance => {
                state.budget -= 1;
                state.assigned = 1 - state.assigned;
            }
            Action::CommitOffset => {
                let owner = state.owners[state.assigned].as_mut()?;
                owner.sent = owner.written;
                state.committed = Some(owner.written);
            }
            Action::Backup => state.backup = Some(state.database),
            Action::Restore => {
                state.budget -= 1;
                state.database = state.backup?;
                state.cut = None;
                for owner in state.owners.iter_mut().flatten() {
                    for slice in &mut owner.slices {
                        if matches!(slice, Slice::InTx(_)) {
                            *slice = Slice::Idle;
                        }
                    }
                }
            }
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("I1 one effect", |model: &Self, state| {
                model.observe(state).check(Invariant::OneEffect).is_ok()
            }),
            Property::always("I3 offsets trail outcomes", |model: &Self, state| {
                model.observe(state).check(Invariant::OffsetsTrailOutcomes).is_ok()
            }),
            Property::always(COMPLETE, |model: &Self, state: &State| {
                !model.at_rest(state) || state.database.effects.iter().all(|effects| *effects == 1)
            }),
            Property::sometimes("at rest", |model: &Self, state| model.at_rest(state)),
            Property::sometimes("done beyond the mark", |_, state: &State| {
                state.database.row.is_some_and(|row| row.next == 0) && state.database.effects[1] > 0
            }),
            Property::sometimes("both at work", |_, state: &State| {
                state.owners.iter().flatten().any(|owner| owner.slices.iter().all(|slice| *slice != Slice::Idle))
            }),
        ]
    }
}

impl Judged for Slices {
    fn faults(&self, state: &State) -> Vec<Violation> {
        Invariant::ALL.into_iter().filter_map(|rule| self.observe(state).check(rule).err()).collect()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "assigned {} committed {:?} {:?} backup {:?} ",
            self.assigned, self.committed, self.database, self.backup
        )?;
        write!(f, "cut {:?} owners {:?}", self.cut, self.owners)
    }
}

#[test]
fn slices_apply_each_record_once_whoever_takes_over_and_whatever_the_database_forgets() {
    holds("slices", Slices { budget: 2, mutation: Mutation::None });
}

#[test]
fn each_rule_of_the_slices_is_needed() {
    for (mutation, rule) in [
        (Mutation::TakeoverDoesNotWait, "I1 one effect"),
        (Mutation::MarkPassesOthers, "I3 offsets trail outcomes"),
        (Mutation::CountIsIgnored, "I3 offsets trail outcomes"),
        (Mutation::EndsWithoutTurn, "I3 offsets trail outcomes"),
    ] {
        breaks(&format!("{mutation:?}"), Slices { budget: 2, mutation }, rule);
    }
}
