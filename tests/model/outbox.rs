//! Outbox and relay with two owners, and messages that were set aside.
//!
//! The lane sets `a` aside and applies `b`; the sweepers of two processes finish `a`; the relay of the lane's owner
//! takes receipts to the broker, all under one Kafka key, while the former owner's relay may still have a round in
//! flight. Process 0 is always the lane's owner: a rebalance changes their names.

use std::fmt;
use std::sync::Arc;

use countersign::invariants::{Invariant, MessageSeen, Observation, ReceiptSeen, ReceiptState, RowState, Violation};
use countersign::receipt::{ReceiptKind, receipt_id};
use stateright::{Model, Property};

use super::explore::{Judged, breaks, holds};
use super::records::{A, B, Found, IDS, KEYS, Records, ShortRow, Told};

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A receipt is marked as delivered before it is produced.
    MarkBeforeProduce,
    /// Pending is what has a higher number than the last one that was delivered.
    PendingAboveLast,
    /// Several receipts of one key are in flight at once.
    SeveralFlights,
    /// What was delivered is deleted by its number alone.
    DeleteByNumber,
    /// Each issue of a receipt has an id of its own.
    RandomReceiptId,
    /// A message set aside is taken over whatever became of it since.
    TakeoverWithoutAttempt,
    /// A delivery of a known message sets its row to PROCESSING.
    ProcessingOverTerminal,
    /// A message is set aside without what is needed to finish it.
    WaitingWithoutRecord,
}

#[derive(Clone)]
struct Outbox {
    records: Arc<Records>,
    budget: u8,
    mutation: Mutation,
}

const LOG: [Told; 2] = [A, B];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Receipt {
    key: usize,
    processing: bool,
    /// Always the same, but where ids are random.
    nonce: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Inbox {
    Nothing,
    Processing,
    Waiting { attempt: u8, complete: bool },
    Applied,
}

/// An open transaction: the number of its receipt is given out already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Tx {
    number: u8,
    /// None for a duplicate, which writes nothing.
    row: Option<Inbox>,
    receipt: Option<Receipt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Sweeper {
    Idle,
    Saw { attempt: u8 },
    InTx(Tx),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Round {
    Idle,
    /// `lost`: the store went back since.
    Read {
        round: Vec<(u8, Receipt)>,
        lost: bool,
    },
    Acknowledged(Vec<(u8, Receipt)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Db {
    inbox: [Inbox; KEYS],
    effects: [u8; KEYS],
    lane_next: u8,
    outbox: Vec<(u8, Receipt)>,
    /// A sequence: not undone by a rollback.
    numbers: u8,
    /// Only where pending is what is above it.
    last: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    db: Db,
    lane_pos: u8,
    lane_tx: Option<Tx>,
    sweepers: [Sweeper; 2],
    relays: [Round; 2],
    /// First appearances, in order: readers drop repeats. Each with whether it is of a state of the store that is lost.
    topic: Vec<(Receipt, bool)>,
    budget: u8,
}

/// A step; the number is the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    LaneBegins,
    LaneCommits,
    SweeperLooks(usize),
    /// Takes the row, applies the effect; or finds once more that it has to wait.
    SweeperTakes {
        process: usize,
        waits: bool,
    },
    SweeperCommits(usize),
    /// No answer; the row tells at the next look.
    SweeperCut {
        process: usize,
        happened: bool,
    },
    RelayReads,
    Produces(usize),
    /// The broker has it, and the answer is lost.
    AnswerLost(usize),
    /// Of a round of several, the first is refused and the others are taken.
    FirstRefused(usize),
    Marks(usize),
    Rebalance,
    Crash(usize),
    Restore,
}

const DELIVERED: &str = "at rest, every receipt was delivered";
const RECEIPT: &str = "I2 one receipt";
const EFFECT: &str = "I1 one effect";

impl Outbox {
    fn new(budget: u8) -> Self {
        Self { records: Arc::new(Records::new(&[LOG.to_vec()])), budget, mutation: Mutation::None }
    }

    fn without(mutation: Mutation) -> Self {
        Self { mutation, ..Self::new(2) }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    fn receipt(&self, key: usize, processing: bool, number: u8) -> Receipt {
        Receipt { key, processing, nonce: if self.is(Mutation::RandomReceiptId) { number } else { 0 } }
    }

    fn first_db() -> Db {
        Db { inbox: [Inbox::Nothing; KEYS], effects: [0; KEYS], lane_next: 0, outbox: Vec::new(), numbers: 0, last: 0 }
    }

    /// What the lane does with its next record: by the crate's rule new or known.
    fn lane_tx(&self, state: &mut State) -> Tx {
        let pos = usize::from(state.lane_pos);
        let key = LOG[pos].key;
        let known = state.db.inbox[key] != Inbox::Nothing;
        let row = ShortRow { content: 1, own: !known, lane: 0, offset: 0 };
        if self.records.judge((0, pos), Some(row)) != Some(Found::First) {
            let row = self.is(Mutation::ProcessingOverTerminal).then_some(Inbox::Processing);
            return Tx { number: 0, row, receipt: None };
        }
        state.db.numbers += 1;
        let number = state.db.numbers;
        let complete = !self.is(Mutation::WaitingWithoutRecord);
        let row = if key == 0 { Inbox::Waiting { attempt: 1, complete } } else { Inbox::Applied };
        Tx { number, row: Some(row), receipt: Some(self.receipt(key, key == 0, number)) }
    }

    fn commit(&self, state: &mut State, key: usize, tx: Tx) {
        if let Some(row) = tx.row {
            if row == Inbox::Applied {
                state.db.effects[key] += 1;
            }
            state.db.inbox[key] = row;
        }
        if let Some(receipt) = tx.receipt {
            state.db.outbox.push((tx.number, receipt));
            state.db.outbox.sort_unstable();
        }
    }

    fn pending(&self, db: &Db) -> Vec<(u8, Receipt)> {
        let above = |number: u8| !self.is(Mutation::PendingAboveLast) || number > db.last;
        db.outbox.iter().copied().filter(|(number, _)| above(*number)).collect()
    }

    /// The next round: of each key the oldest alone.
    fn round(&self, db: &Db) -> Vec<(u8, Receipt)> {
        let mut pending = self.pending(db);
        if !self.is(Mutation::SeveralFlights) {
            pending.truncate(1);
        }
        pending
    }

    fn mark(&self, db: &mut Db, delivered: &[(u8, Receipt)]) {
        if self.is(Mutation::PendingAboveLast) {
            db.last = delivered.iter().map(|(number, _)| *number).max().unwrap_or(0).max(db.last);
            return;
        }
        let by_number = self.is(Mutation::DeleteByNumber);
        let gone = |row: &(u8, Receipt)| delivered.iter().any(|of| of.0 == row.0 && (by_number || of.1 == row.1));
        db.outbox.retain(|row| !gone(row));
    }

    fn observe(&self, state: &State, rule: Invariant) -> Observation<&'static str> {
        let mut seen = Observation::default();
        let row = |key: usize| match state.db.inbox[key] {
            Inbox::Nothing => None,
            Inbox::Processing => Some(RowState::Processing),
            Inbox::Waiting { complete, .. } => Some(RowState::Waiting { complete }),
            Inbox::Applied => Some(RowState::Applied),
        };
        let message = |key: usize| MessageSeen {
            key: IDS[key],
            rows: row(key).into_iter().collect(),
            effects: usize::from(state.db.effects[key]),
            version: 1,
            told: true,
        };
        seen.messages = (0..KEYS).map(message).collect();
        if rule == Invariant::OneReceipt {
            let pending = self.pending(&state.db);
            let delivered = state.topic.iter().map(|(receipt, lost)| ReceiptSeen {
                delivered: true,
                lost: *lost,
                ..long_receipt(*receipt)
            });
            seen.receipts = delivered.chain(pending.iter().map(|(_, receipt)| long_receipt(*receipt))).collect();
        }
        seen
    }

    fn keeps(&self, state: &State, rule: Invariant) -> bool {
        self.observe(state, rule).check(rule).is_ok()
    }

    fn at_rest(&self, state: &State) -> bool {
        let idle = state.relays.iter().all(|relay| *relay == Round::Idle) && state.lane_tx.is_none();
        idle && state.lane_pos == 2 && state.db.inbox == [Inbox::Applied; KEYS] && self.pending(&state.db).is_empty()
    }
}

/// A receipt as a reader knows it, with the crate's own id.
fn long_receipt(receipt: Receipt) -> ReceiptSeen<&'static str> {
    let Receipt { key, processing, nonce } = receipt;
    let kind = if processing { ReceiptKind::Processing { version: 1 } } else { ReceiptKind::Terminal { version: 1 } };
    let id = receipt_id(&[IDS[key].as_bytes(), &vec![b'+'; usize::from(nonce)]].concat(), kind);
    let state = if processing { ReceiptState::Processing } else { ReceiptState::Success };
    ReceiptSeen { id, key: IDS[key], version: 1, state, delivered: false, lost: false }
}

impl Model for Outbox {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            db: Self::first_db(),
            lane_pos: 0,
            lane_tx: None,
            sweepers: [Sweeper::Idle; 2],
            relays: [Round::Idle, Round::Idle],
            topic: Vec::new(),
            budget: self.budget,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let fault = state.budget > 0;
        match state.lane_tx {
            Some(_) => actions.push(Action::LaneCommits),
            None if state.lane_pos < 2 && !row_is_locked(state, LOG[usize::from(state.lane_pos)].key) => {
                actions.push(Action::LaneBegins);
            }
            None => {}
        }
        for process in 0..2 {
            match state.sweepers[process] {
                Sweeper::Idle if matches!(state.db.inbox[0], Inbox::Waiting { complete: true, .. }) => {
                    actions.push(Action::SweeperLooks(process));
                }
                Sweeper::Idle => {}
                Sweeper::Saw { attempt } if !row_is_locked(state, 0) => {
                    actions.push(Action::SweeperTakes { process, waits: false });
                    if attempt == 1 {
                        actions.push(Action::SweeperTakes { process, waits: true });
                    }
                }
                Sweeper::Saw { .. } => {}
                Sweeper::InTx(_) => {
                    actions.push(Action::SweeperCommits(process));
                    if fault {
                        actions.push(Action::SweeperCut { process, happened: true });
                        actions.push(Action::SweeperCut { process, happened: false });
                    }
                }
            }
            match &state.relays[process] {
                Round::Idle if process == 0 && !self.round(&state.db).is_empty() => actions.push(Action::RelayReads),
                Round::Idle => {}
                Round::Read { round, .. } => {
                    actions.push(Action::Produces(process));
                    if fault {
                        actions.push(Action::AnswerLost(process));
                        if round.len() > 1 {
                            actions.push(Action::FirstRefused(process));
                        }
                    }
                }
                Round::Acknowledged(_) => actions.push(Action::Marks(process)),
            }
            // A sweeper that dies is one whose commit is cut and did not happen.
            let working = state.relays[process] != Round::Idle;
            if fault && (working || (process == 0 && state.lane_pos > 0)) {
                actions.push(Action::Crash(process));
            }
        }
        // With nothing under way a new owner begins as after a crash.
        if fault && (state.relays[0] != Round::Idle || state.lane_tx.is_some()) {
            actions.push(Action::Rebalance);
        }
        if fault && state.db != Self::first_db() {
            actions.push(Action::Restore);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let state = &mut next;
        match action {
            Action::LaneBegins => state.lane_tx = Some(self.lane_tx(state)),
            Action::LaneCommits => {
                let tx = state.lane_tx.take()?;
                self.commit(state, LOG[usize::from(state.lane_pos)].key, tx);
                state.lane_pos += 1;
                state.db.lane_next = state.db.lane_next.max(state.lane_pos);
            }
            Action::SweeperLooks(process) => {
                let Inbox::Waiting { attempt, .. } = state.db.inbox[0] else { return None };
                state.sweepers[process] = Sweeper::Saw { attempt };
            }
            Action::SweeperTakes { process, waits } => {
                let Sweeper::Saw { attempt } = state.sweepers[process] else { return None };
                let same = state.db.inbox[0] == Inbox::Waiting { attempt, complete: true };
                if !same && !self.is(Mutation::TakeoverWithoutAttempt) {
                    state.sweepers[process] = Sweeper::Idle;
                } else if waits {
                    let row = Some(Inbox::Waiting { attempt: attempt + 1, complete: true });
                    state.sweepers[process] = Sweeper::InTx(Tx { number: 0, row, receipt: None });
                } else {
                    state.db.numbers += 1;
                    let number = state.db.numbers;
                    let receipt = Some(self.receipt(0, false, number));
                    state.sweepers[process] = Sweeper::InTx(Tx { number, row: Some(Inbox::Applied), receipt });
                }
            }
            Action::SweeperCommits(process) | Action::SweeperCut { process, .. } => {
                let Sweeper::InTx(tx) = state.sweepers[process] else { return None };
                state.budget -= u8::from(matches!(action, Action::SweeperCut { .. }));
                if !matches!(action, Action::SweeperCut { happened: false, .. }) {
                    self.commit(state, 0, tx);
                }
                state.sweepers[process] = Sweeper::Idle;
            }
            Action::RelayReads => {
                let round = self.round(&state.db);
                if self.is(Mutation::MarkBeforeProduce) {
                    self.mark(&mut state.db, &round);
                }
                state.relays[0] = Round::Read { round, lost: false };
            }
            Action::Produces(process) | Action::AnswerLost(process) | Action::FirstRefused(process) => {
                let Round::Read { mut round, lost } = state.relays[process].clone() else { return None };
                if matches!(action, Action::FirstRefused(_)) {
                    round.remove(0);
                }
                for (_, receipt) in &round {
                    match state.topic.iter_mut().find(|(known, _)| known == receipt) {
                        Some((_, was_lost)) => *was_lost &= lost,
                        None => state.topic.push((*receipt, lost)),
                    }
                }
                state.budget -= u8::from(!matches!(action, Action::Produces(_)));
                let silent = matches!(action, Action::AnswerLost(_)) || self.is(Mutation::MarkBeforeProduce);
                state.relays[process] = if silent { Round::Idle } else { Round::Acknowledged(round) };
            }
            Action::Marks(process) => {
                let Round::Acknowledged(round) = state.relays[process].clone() else { return None };
                self.mark(&mut state.db, &round);
                state.relays[process] = Round::Idle;
            }
            Action::Rebalance => {
                state.budget -= 1;
                // The former owner's lane is fenced off, its relay goes on with the round that it is in.
                state.relays.swap(0, 1);
                state.lane_tx = None;
                state.lane_pos = 0;
            }
            Action::Crash(process) => {
                state.budget -= 1;
                state.relays[process] = Round::Idle;
                if process == 0 {
                    state.lane_tx = None;
                    // Nothing was committed to Kafka yet: all comes again.
                    state.lane_pos = 0;
                }
            }
            Action::Restore => {
                state.budget -= 1;
                state.db = Self::first_db();
                for (_, lost) in &mut state.topic {
                    *lost = true;
                }
                for relay in &mut state.relays {
                    if let Round::Read { lost, .. } = relay {
                        *lost = true;
                    }
                }
                state.lane_tx = None;
                state.lane_pos = 0;
                for sweeper in &mut state.sweepers {
                    if matches!(sweeper, Sweeper::InTx(_)) {
                        *sweeper = Sweeper::Idle;
                    }
                }
            }
        }
        // Which sweeper is which makes no difference.
        next.sweepers.sort_unstable();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EFFECT, |model: &Self, state| model.keeps(state, Invariant::OneEffect)),
            Property::always(RECEIPT, |model: &Self, state| model.keeps(state, Invariant::OneReceipt)),
            Property::always(DELIVERED, |model: &Self, state| !model.at_rest(state) || state.topic.len() >= 3),
            Property::sometimes("at rest with everything delivered", |model: &Self, state| {
                model.at_rest(state) && state.topic.len() == 3
            }),
            Property::sometimes("two relays are in flight", |_, state: &State| {
                state.relays.iter().all(|relay| *relay != Round::Idle)
            }),
        ]
    }
}

/// Somebody's transaction holds the row of this message.
fn row_is_locked(state: &State, key: usize) -> bool {
    let lane = state.lane_tx.is_some_and(|tx| tx.row.is_some() && LOG[usize::from(state.lane_pos)].key == key);
    lane || (key == 0 && state.sweepers.iter().any(|sweeper| matches!(sweeper, Sweeper::InTx(_))))
}

impl Judged for Outbox {
    fn faults(&self, state: &State) -> Vec<Violation> {
        Invariant::ALL.into_iter().filter_map(|rule| self.observe(state, rule).check(rule).err()).collect()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inbox {:?} effects {:?} outbox {:?}", self.db.inbox, self.db.effects, self.db.outbox)?;
        write!(f, "; topic {:?}; relays {:?} sweepers {:?}", self.topic, self.relays, self.sweepers)
    }
}

#[test]
fn two_relays_and_two_sweepers_deliver_every_receipt_and_finish_each_message_once() {
    holds("outbox", Outbox::new(2));
}

#[test]
fn each_rule_of_the_outbox_and_the_sweeper_is_needed() {
    for (mutation, rule) in [
        (Mutation::MarkBeforeProduce, RECEIPT),
        (Mutation::PendingAboveLast, RECEIPT),
        (Mutation::SeveralFlights, RECEIPT),
        (Mutation::DeleteByNumber, RECEIPT),
        (Mutation::RandomReceiptId, RECEIPT),
        (Mutation::TakeoverWithoutAttempt, EFFECT),
        (Mutation::ProcessingOverTerminal, RECEIPT),
        (Mutation::WaitingWithoutRecord, RECEIPT),
    ] {
        breaks(&format!("{mutation:?}"), Outbox::without(mutation), rule);
    }
}
