//! What can happen to gate, inbox and database, step by step.

use countersign::offsets::{LostOffsets, Start, StartFacts, decide_start};
use countersign::pipeline::tenure::Trace;

use super::gate::{DOWN, FORMER_OWNER, Fault, Gate, Held, Mutation, OWNER, Phase, Plan, Row, State, Work};
use super::records::{EPOCHS, Found, KEYS, ShortMark, ShortRow, known};

/// A step; the number is the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads what Kafka and the store say of the start.
    Look(usize),
    /// Locks the lane row and makes it the worker's.
    Acquire(usize),
    Claim(usize),
    /// Only where insert and read are one statement.
    Begin(usize),
    /// Fence, insert if absent, read, judge, apply.
    Work(usize),
    Commit(usize),
    /// The connection is cut at the commit; `happened` tells whether the server did it.
    CommitCut {
        lane: usize,
        happened: bool,
    },
    LookUp(usize),
    Confirm(usize),
    /// A record of some kind comes to a quiet lane, whose fence fails; or the log's start has overtaken it.
    Notice(usize),
    CommitOffset(usize),
    Crash(usize),
    Backup,
    Restore,
    RedisForgets,
    RedisComesBackOld,
    LogLosesItsStart(usize),
    OperatorResets {
        lane: usize,
        to: i8,
    },
    /// `migrate --restored`
    OperatorSaysRestored,
}

impl Gate {
    fn allows(&self, state: &State, fault: Fault) -> bool {
        state.budget > 0 && self.faults.contains(&fault)
    }

    pub fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        for lane in 0..self.logs.len() {
            self.possible_in(state, lane, actions);
        }
        if self.allows(state, Fault::Restore) {
            if self.faults.contains(&Fault::LateBackup) && !state.backed_up && state.db != state.backup {
                actions.push(Action::Backup);
            }
            if state.db != state.backup {
                actions.push(Action::Restore);
            }
        }
        if self.allows(state, Fault::Redis) {
            if state.redis != [Held::Nothing; KEYS] {
                actions.push(Action::RedisForgets);
            }
            if state.redis != state.redis_before && state.redis_before != [Held::Nothing; KEYS] {
                actions.push(Action::RedisComesBackOld);
            }
        }
        if state.lanes.iter().any(|lane| lane.worker.phase == Phase::Refused) {
            actions.push(Action::OperatorSaysRestored);
        }
    }

    fn possible_in(&self, state: &State, lane: usize, actions: &mut Vec<Action>) {
        let of = &state.lanes[lane];
        let worker = &of.worker;
        match worker.phase {
            Phase::Down | Phase::Refused => actions.push(Action::Look(lane)),
            Phase::Planned(_) => actions.push(Action::Acquire(lane)),
            Phase::Idle => {
                if self.notices(state, lane) {
                    actions.push(Action::Notice(lane));
                } else if worker.pos < self.high(lane) {
                    if self.has_gate {
                        actions.push(Action::Claim(lane));
                    } else if !self.waits(state, lane) {
                        actions.push(Action::Work(lane));
                    }
                }
            }
            Phase::Claimed(_) if self.is(Mutation::OneStatement) => actions.push(Action::Begin(lane)),
            Phase::Claimed(_) | Phase::Begun(..) => {
                if !self.waits(state, lane) {
                    actions.push(Action::Work(lane));
                }
            }
            Phase::Worked(_) => {
                actions.push(Action::Commit(lane));
                if self.allows(state, Fault::LostAnswer) {
                    actions.push(Action::CommitCut { lane, happened: true });
                    actions.push(Action::CommitCut { lane, happened: false });
                }
            }
            Phase::InDoubt(..) => actions.push(Action::LookUp(lane)),
            Phase::Committed(_) => actions.push(Action::Confirm(lane)),
        }
        // Nobody but this lane's next take-over asks what is committed: later than before the next record it may be,
        // and makes no difference. Nor does a crash where nothing would be lost that the last step had not.
        let between = worker.phase == Phase::Idle;
        if between && worker.progress.is_some_and(|(next, _)| next != worker.sent) {
            actions.push(Action::CommitOffset(lane));
        }
        let matters = match worker.phase {
            Phase::Idle | Phase::InDoubt(..) | Phase::Committed(_) => true,
            Phase::Claimed(_) | Phase::Worked(_) => {
                self.is(Mutation::ClaimIsProof) || self.is(Mutation::ConfirmBeforeCommit)
            }
            Phase::Down | Phase::Planned(_) | Phase::Refused | Phase::Begun(..) => false,
        };
        if matters && self.allows(state, Fault::Crash) {
            actions.push(Action::Crash(lane));
        }
        if self.allows(state, Fault::Retention) && lane == 0 && of.low < self.high(lane) {
            actions.push(Action::LogLosesItsStart(lane));
        }
        // Kafka takes no reset while the group has members.
        if self.allows(state, Fault::Reset) && *worker == DOWN {
            for to in of.low..=self.high(lane) {
                actions.push(Action::OperatorResets { lane, to });
            }
        }
    }

    /// A rival's transaction has inserted the key and is not done.
    fn waits(&self, state: &State, lane: usize) -> bool {
        let worker = &state.lanes[lane].worker;
        let key = self.logs[lane][worker.pos as usize].key;
        state.lanes.iter().enumerate().any(|(other, of)| match of.worker.phase {
            Phase::Worked(work) if other != lane => {
                work.row.is_some_and(|row| row.own) && self.logs[other][of.worker.pos as usize].key == key
            }
            _ => false,
        })
    }

    pub fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Look(lane) => self.look(state, lane),
            Action::Acquire(lane) => self.acquire(state, lane),
            Action::Claim(lane) => {
                let key = self.logs[lane][state.lanes[lane].worker.pos as usize].key;
                let mark = match state.redis[key] {
                    Held::Mark(mark) => Some(mark),
                    // Who has a claim is of no interest to anybody: it is left out where nobody looks.
                    Held::Claim | Held::Nothing => None,
                };
                let busy = state.redis[key] == Held::Claim;
                if self.is(Mutation::ClaimIsProof) && mark.is_none() {
                    set(state, key, Held::Claim);
                }
                state.lanes[lane].worker.doubt = None;
                state.lanes[lane].worker.phase = Phase::Claimed(mark);
                if busy {
                    // Taken for somebody's finished work.
                    let worker = &mut state.lanes[lane].worker;
                    let seen = state.db.lanes[lane].map_or(0, |row| row.seen);
                    let store_epoch = state.db.store_epoch;
                    let found = Found::Duplicate;
                    let work = Work { mark, found, by_mark: true, row: None, store_epoch, seen };
                    worker.phase = Phase::Worked(work);
                }
            }
            Action::Begin(lane) => {
                let worker = state.lanes[lane].worker;
                let key = self.logs[lane][worker.pos as usize].key;
                let saw = state.db.inbox[key].is_some();
                let Phase::Claimed(mark) = worker.phase else { return };
                let fenced = !self.owns(state, lane);
                state.lanes[lane].worker.phase = if fenced { Phase::Down } else { Phase::Begun(mark, saw) };
            }
            Action::Work(lane) => self.work(state, lane),
            Action::Commit(lane) => {
                let Phase::Worked(work) = state.lanes[lane].worker.phase else { return };
                self.commit(state, lane, work);
                state.lanes[lane].worker.phase = Phase::Committed(work);
            }
            Action::CommitCut { lane, happened } => {
                let Phase::Worked(work) = state.lanes[lane].worker.phase else { return };
                state.budget -= 1;
                if happened {
                    self.commit(state, lane, work);
                }
                state.lanes[lane].worker.phase = Phase::InDoubt(work, happened);
            }
            Action::LookUp(lane) => self.look_up(state, lane),
            Action::Confirm(lane) => {
                let Phase::Committed(work) = state.lanes[lane].worker.phase else { return };
                if self.has_gate {
                    self.confirm(state, lane, work);
                }
                let worker = &mut state.lanes[lane].worker;
                worker.pos += 1;
                worker.known_next = worker.known_next.max(worker.pos);
                worker.progress = Some((worker.pos, work.store_epoch));
                worker.phase = Phase::Idle;
            }
            Action::Notice(lane) => state.lanes[lane].worker.phase = Phase::Down,
            Action::CommitOffset(lane) => {
                let of = &mut state.lanes[lane];
                let Some((next, epoch)) = of.worker.progress else { return };
                of.committed = Some((next, if self.is(Mutation::CommitWithoutEpoch) { 0 } else { epoch }));
                of.worker.sent = next;
            }
            Action::Crash(lane) => {
                state.budget -= 1;
                state.lanes[lane].worker = DOWN;
            }
            Action::Backup => {
                state.backed_up = true;
                state.backup = state.db.clone();
            }
            Action::Restore => {
                state.budget -= 1;
                state.told = false;
                state.db = state.backup.clone();
                for (of, row) in state.lanes.iter_mut().zip(&state.db.lanes) {
                    // Open transactions are gone; the attempt is run again with the marks that it was given.
                    of.worker.phase = match of.worker.phase {
                        Phase::Worked(Work { mark, .. }) | Phase::Begun(mark, _) => Phase::Claimed(mark),
                        Phase::InDoubt(work, done) => {
                            Phase::InDoubt(work, done && row.is_some_and(|row| row.seen == work.seen + 1))
                        }
                        other => other,
                    };
                    of.worker.doubt = None;
                }
            }
            Action::RedisForgets => {
                state.budget -= 1;
                state.redis = [Held::Nothing; KEYS];
            }
            Action::RedisComesBackOld => {
                state.budget -= 1;
                state.redis = state.redis_before;
            }
            Action::LogLosesItsStart(lane) => {
                state.budget -= 1;
                state.lanes[lane].low += 1;
            }
            Action::OperatorResets { lane, to } => {
                state.budget -= 1;
                state.lanes[lane].committed = Some((to, 0));
            }
            Action::OperatorSaysRestored => {
                renew(state);
                state.db.adopting = state.db.store_epoch;
                state.told = true;
                for of in &mut state.lanes {
                    if of.worker.phase == Phase::Refused {
                        of.worker.phase = Phase::Down;
                    }
                }
            }
        }
    }

    fn look(&self, state: &mut State, lane: usize) {
        let of = state.lanes[lane];
        let former: Vec<String> = EPOCHS
            .iter()
            .enumerate()
            .filter(|(at, _)| state.db.former & (1 << at) != 0)
            .map(|(_, name)| (*name).to_owned())
            .collect();
        let lane_next = state.db.lanes[lane].map(|row| row.next);
        let facts = StartFacts {
            committed: of.committed.map(|(offset, epoch)| (i64::from(offset), EPOCHS[usize::from(epoch)])),
            low: i64::from(of.low),
            high: i64::from(self.high(lane)),
            lane_next: lane_next.map(i64::from),
            store_epoch: EPOCHS[usize::from(state.db.store_epoch)],
            former_epochs: &former,
            adopts: state.db.adopting == state.db.store_epoch,
            policy_offset: i64::from(of.low),
            lost: LostOffsets::Earliest,
        };
        let start = decide_start(&facts);
        let Some(from) = start.from() else {
            state.refused_though_told |= state.told;
            state.lanes[lane].worker.phase = Phase::Refused;
            return;
        };
        let mut renews = facts.renew(&start);
        let foreign = of.committed.is_some_and(|(_, epoch)| {
            epoch != 0 && epoch != state.db.store_epoch && state.db.former & (1 << epoch) == 0
        });
        match self.mutation {
            Mutation::LostKeepsEpoch if matches!(start, Start::Lost { .. }) => renews = false,
            Mutation::AdoptionEnds => renews |= foreign && matches!(start, Start::StoreWentBack { .. }),
            _ => {}
        }
        let by_operator = of.committed.is_some_and(|(_, epoch)| epoch == 0);
        let passes =
            matches!(start, Start::ResetForward(_) | Start::Lost { .. }) || (by_operator && lane_next.is_none());
        // What an operator did not ask for is no excuse.
        let passes = passes && !self.is(Mutation::CommitWithoutEpoch);
        let adopts = facts.adopts;
        let plan = Plan { from: from as i8, renews, epoch: state.db.store_epoch, lane_next, passes, adopts };
        state.lanes[lane].worker.phase = Phase::Planned(plan);
    }

    fn acquire(&self, state: &mut State, lane: usize) {
        let Phase::Planned(plan) = state.lanes[lane].worker.phase else { return };
        let row = state.db.lanes[lane].unwrap_or(Row { owner: OWNER, next: plan.from, seen: 0 });
        let facts = StartFacts {
            committed: None,
            low: 0,
            high: 0,
            lane_next: plan.lane_next.map(i64::from),
            store_epoch: "",
            former_epochs: &[],
            adopts: false,
            policy_offset: 0,
            lost: LostOffsets::Earliest,
        };
        let forgotten = plan.epoch != state.db.store_epoch && state.db.former & (1 << plan.epoch) == 0;
        if plan.renews && forgotten && !self.is(Mutation::RenewalGuessed) {
            state.lanes[lane].worker.phase = Phase::Down;
            return;
        }
        if !facts.hold(state.db.lanes[lane].map(|row| i64::from(row.next))) && !self.is(Mutation::StartNotHeld) {
            state.lanes[lane].worker.phase = Phase::Down;
            return;
        }
        // Former owners are all alike: there are no zombies here, and a backup remembers only that it was another.
        if let Some(row) = &mut state.backup.lanes[lane] {
            row.owner = FORMER_OWNER;
        }
        let row = Row { owner: OWNER, seen: 0, ..row };
        state.db.lanes[lane] = Some(row);
        if plan.renews && state.db.store_epoch == plan.epoch {
            renew(state);
            if plan.adopts && !self.is(Mutation::AdoptionEnds) {
                state.db.adopting = state.db.store_epoch;
            }
        }
        let of = &mut state.lanes[lane];
        if plan.passes {
            for offset in plan.lane_next.unwrap_or(0)..plan.from {
                of.excused |= 1 << offset;
            }
        }
        let worker = &mut of.worker;
        if row.next >= plan.from {
            worker.progress = Some((plan.from, state.db.store_epoch));
        }
        worker.pos = plan.from;
        worker.known_next = 0;
        worker.doubt = None;
        worker.phase = Phase::Idle;
    }

    fn work(&self, state: &mut State, lane: usize) {
        let worker = state.lanes[lane].worker;
        let (mark, saw) = match worker.phase {
            Phase::Idle => (None, true),
            Phase::Claimed(mark) => (mark, true),
            Phase::Begun(mark, saw) => (mark, saw),
            _ => return,
        };
        if !self.owns(state, lane) {
            state.lanes[lane].worker.phase = Phase::Down;
            return;
        }
        let offset = worker.pos as usize;
        let told = self.logs[lane][offset];
        let seen = state.db.lanes[lane].map_or(0, |row| row.seen);
        let store_epoch = state.db.store_epoch;
        let work = if mark.is_some_and(|mark| self.counts(state, (lane, offset), mark)) {
            Work { mark, found: Found::Duplicate, by_mark: true, row: None, store_epoch, seen }
        } else {
            let own = ShortRow { content: told.content, own: true, lane: lane as u8, offset: worker.pos };
            let (row, visible) = match state.db.inbox[told.key] {
                None => (own, true),
                Some(row) => (row, saw),
            };
            let read = ShortRow { own: row.own || self.is(Mutation::OwnTokenNotCompared), ..row };
            let found = match self.records.judge((lane, offset), visible.then_some(read)) {
                Some(found) => found,
                // In neither answer, and guessed.
                None => Found::First,
            };
            if self.is(Mutation::ConfirmBeforeCommit) && found == Found::First {
                let mark =
                    ShortMark { epoch: store_epoch, content: told.content, lane: lane as u8, offset: worker.pos };
                set(state, told.key, Held::Mark(mark));
            }
            Work { mark, found, by_mark: false, row: Some(row), store_epoch, seen }
        };
        state.lanes[lane].worker.phase = Phase::Worked(work);
    }

    fn commit(&self, state: &mut State, lane: usize, work: Work) {
        let worker = &state.lanes[lane].worker;
        let told = self.logs[lane][worker.pos as usize];
        match work.found {
            Found::First => {
                state.db.effects[told.key] += 1;
                state.db.inbox[told.key] = work.row.map(|row| ShortRow { own: false, ..row });
            }
            Found::Conflict => state.db.parked[told.key] |= 1 << told.content,
            Found::Duplicate => {}
        }
        let next = worker.pos + 1;
        if let Some(row) = &mut state.db.lanes[lane] {
            row.next = row.next.max(next);
            row.seen = work.seen + 1;
        }
    }

    fn look_up(&self, state: &mut State, lane: usize) {
        let worker = state.lanes[lane].worker;
        let Phase::InDoubt(work, happened) = worker.phase else { return };
        let told = self.logs[lane][worker.pos as usize];
        let trace = Trace { records_seen: i64::from(work.seen) + 1, next_offset: i64::from(worker.pos) + 1 };
        let row = state.long_row(lane);
        let ours = row.as_ref().is_some_and(|row| worker.tenure().owns(row, known(worker.known_next)));
        let committed = match self.mutation {
            Mutation::CutIsDone => true,
            Mutation::CutIsFailed => false,
            _ => row.is_some_and(|row| worker.tenure().committed(&row, known(worker.known_next), trace)),
        };
        if self.is(Mutation::CutIsFailed) {
            // As if the effect had been refused: the lane goes on behind a FAILED receipt.
            state.db.parked[told.key] |= 1 << told.content;
        }
        let worker = &mut state.lanes[lane].worker;
        // Of a lane that is another's by now nothing is said.
        worker.doubt = ours.then_some((happened, committed));
        worker.phase = if committed { Phase::Committed(work) } else { Phase::Claimed(work.mark) };
    }

    /// What the gate may know, as the pipeline's desk decides it: a row that this lane committed.
    fn confirm(&self, state: &mut State, lane: usize, work: Work) {
        let key = self.logs[lane][state.lanes[lane].worker.pos as usize].key;
        let known = work.row.filter(|row| usize::from(row.lane) == lane && work.found != Found::Conflict);
        if let Some(row) = known {
            let mark = ShortMark { epoch: work.store_epoch, content: row.content, lane: row.lane, offset: row.offset };
            set(state, key, Held::Mark(mark));
        }
    }
}

fn set(state: &mut State, key: usize, held: Held) {
    if state.redis[key] != held {
        state.redis_before[key] = state.redis[key];
        state.redis[key] = held;
    }
}

fn renew(state: &mut State) {
    state.db.former |= 1 << state.db.store_epoch;
    state.epochs_made += 1;
    state.db.store_epoch = state.epochs_made;
}
