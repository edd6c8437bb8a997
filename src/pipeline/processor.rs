//! Takes a batch to its committed outcomes: tries again what is transient, takes apart what is not.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::Shared;
use super::attempt::{Attempt, Attempted, Committed, Failure, Lane, MAX_SAVEPOINTS, MOST_WAITING, Mode};
use super::batch::{Entry, Item, skipped};
use super::letter::waiting_line;
use super::settle::OPERATOR;
use super::slices::Slice;
use super::standing::Told;
use super::status::{LaneState, Lanes};
use super::tenure::Known;
use crate::debezium::event::Fault;
use crate::decision::RecordOutcome;
use crate::failpoint;
use crate::gate::{GateAnswer, GateKey, Mark};
use crate::receipt::code;
use crate::route::Order;
use crate::store::lanes::LaneKey;
use crate::store::queues::QueuePlace;
use crate::store::{Meaning, StoreError};

/// Why a lane does not go on with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Another owner has the lane.
    Fenced,
    /// The lane is asked to end; what is not committed comes again.
    Stopped,
}

/// One lane's processor.
pub struct Processor {
    pub shared: Arc<Shared>,
    pub lane: Lane,
    pub lanes: Lanes,
    pub stop: CancellationToken,
    /// What this owner has committed; its slices know it together.
    pub known: Arc<Known>,
    /// Where it is one of several at work in its lane.
    pub slice: Option<Slice>,
    pub told: Arc<Told>,
    /// Held while there is a batch, and not while the lane stands.
    pub slot: Mutex<Option<OwnedSemaphorePermit>>,
}

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A paused lane looks this often whether it may go on.
pub(super) const PAUSED_LOOK: Duration = Duration::from_millis(500);
/// So does one that may set no more messages aside.
const FULL_LOOK: Duration = Duration::from_secs(2);
/// So does one that was stopped by something fatal.
const STOPPED_LOOK: Duration = Duration::from_secs(10);
/// Failures at one place, with a database that answers, after which the batch is taken apart.
const STUBBORN: u32 = 3;

/// What the gate was asked for, and the marks that it had.
pub(super) struct Claims {
    keys: Vec<Vec<u8>>,
    marks: HashMap<Vec<u8>, Mark>,
    token: u64,
}

/// A part of the batch that is to be run.
struct Piece {
    range: Range<usize>,
    mode: Mode,
    failures: u32,
    /// Why its one message is set aside untried.
    aside: Option<String>,
}

impl Piece {
    fn new(range: Range<usize>, mode: Mode) -> Self {
        Self { range, mode, failures: 0, aside: None }
    }
}

impl Processor {
    /// Takes all items to their outcomes, in order. `done` is told after each commit.
    pub async fn process(
        &self,
        items: &mut [Item],
        next_offset: i64,
        done: impl FnMut(&Committed),
    ) -> Result<(), Halt> {
        let claims = self.claim(items).await;
        self.process_claimed(items, claims, next_offset, done).await
    }

    /// The same, for what has been claimed before.
    pub(super) async fn process_claimed(
        &self,
        items: &mut [Item],
        claims: Claims,
        next_offset: i64,
        mut done: impl FnMut(&Committed),
    ) -> Result<(), Halt> {
        // A claim is nobody's proof: an answer about it that is lost is none that anybody needs.
        let _ = failpoint::at("after-claim").await;
        let answer = self.pieces(items, next_offset, &claims.marks, &mut done).await;
        if answer.is_err() {
            self.release(claims).await;
        }
        answer
    }

    /// What was confirmed is no claim any more; what was not is free for the next owner.
    pub(super) async fn release(&self, claims: Claims) {
        let keys: Vec<GateKey> = claims.keys.iter().map(|key| GateKey::new(key)).collect();
        self.shared.gate.release(&keys, claims.token).await;
    }

    fn tell_relay(&self, committed: &mut Committed) {
        let conflict = committed.outcomes.iter().any(|recorded| recorded.outcome == RecordOutcome::Conflict);
        if conflict {
            // Its receipt may go the way of another lane.
            self.shared.receipts.of_any();
        } else if committed.receipts > 0 {
            let lane = (Arc::clone(&self.lane.key.topic), self.lane.key.partition);
            self.shared.receipts.hand(&lane, std::mem::take(&mut committed.enqueued));
        }
    }

    /// The keys of messages that have inbox rows, each once.
    fn claimable(&self, items: &[Item]) -> Vec<Vec<u8>> {
        let mut seen = HashSet::new();
        let keys = items.iter().filter_map(|item| match &item.entry {
            Entry::Message { key, message } if self.shared.inbox[message.route] => Some(key),
            Entry::Message { .. } | Entry::Skip(_) | Entry::Faulty(_) => None,
        });
        keys.filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// Asks the gate for all of them at once.
    pub(super) async fn claim(&self, items: &[Item]) -> Claims {
        // Without an assignment no mark counts and none is left: the inbox is asked.
        let keys = if self.lane.tenure.is_some() { self.claimable(items) } else { Vec::new() };
        let (token, mut marks) = (rand::rng().random::<u64>(), HashMap::new());
        if !keys.is_empty() {
            let gate_keys: Vec<GateKey> = keys.iter().map(|key| GateKey::new(key)).collect();
            let answers = self.shared.gate.claim(&gate_keys, token).await;
            for (key, answer) in keys.iter().zip(answers) {
                self.shared.metrics.gate.with_label_values(&[&*self.shared.pipeline, answer.label()]).inc();
                if let GateAnswer::Confirmed(mark) = answer {
                    marks.insert(key.clone(), mark);
                }
            }
        }
        Claims { keys, marks, token }
    }

    async fn pieces(
        &self,
        items: &mut [Item],
        next_offset: i64,
        marks: &HashMap<Vec<u8>, Mark>,
        done: &mut impl FnMut(&Committed),
    ) -> Result<(), Halt> {
        let mut todo = vec![Piece::new(0..items.len(), Mode::Plain)];
        while let Some(piece) = todo.pop() {
            if self.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            let Range { start, end } = piece.range.clone();
            let next = self.next_offset(items, end, next_offset);
            self.take_slot().await?;
            let turn = tokio::select! {
                () = self.stop.cancelled() => return Err(Halt::Stopped),
                turn = self.shared.turns.take() => turn,
            };
            let attempt = Attempt {
                shared: &self.shared,
                lane: &self.lane,
                items: &items[start..end],
                known: &self.known,
                slices: self.slice.as_ref().map(|slice| &*slice.of),
                next_offset: next,
                mode: piece.mode,
                alone: turn.is_some(),
                marks,
                aside: piece.aside.as_deref(),
            };
            let attempted = attempt.run().await;
            drop(turn);
            match attempted {
                Ok(Attempted::Committed(mut committed)) => {
                    self.works().await;
                    self.shared.gate.confirm(&committed.marks).await;
                    let _ = failpoint::at("after-confirm").await;
                    self.count(&items[start..end], &committed);
                    if let Some(reason) = &committed.paused {
                        error!(topic = %self.lane.key.topic, partition = self.lane.key.partition, "the lane pauses: {reason}");
                    }
                    self.tell_relay(&mut committed);
                    done(&committed);
                }
                Ok(Attempted::NeedsSavepoints) => push_chunks(&mut todo, start..end),
                Ok(Attempted::CutAt(at)) => {
                    todo.push(Piece::new(start + at..end, piece.mode));
                    todo.push(Piece::new(start..start + at, piece.mode));
                }
                Ok(Attempted::Fenced) => return Err(Halt::Fenced),
                Ok(Attempted::Full(waiting)) => {
                    let what =
                        format!("{waiting} messages of this partition wait: what comes next waits with the lane");
                    self.stand(LaneState::Retrying(what), FULL_LOOK).await?;
                    todo.push(piece);
                }
                Ok(Attempted::Paused(reason)) => {
                    self.stand(LaneState::Paused(reason), PAUSED_LOOK).await?;
                    todo.push(piece);
                }
                Ok(Attempted::Skip { to }) => {
                    self.skip(&mut items[start..end], to);
                    // By itself: what stands behind it may be refused still, and this is to be done with.
                    let at = start + items[start..end].partition_point(|item| item.record.position.offset < to);
                    if at < end {
                        todo.push(Piece::new(at..end, piece.mode));
                    }
                    todo.push(Piece::new(start..at, piece.mode));
                }
                Err(failure) => self.failed(items, piece, failure, &mut todo).await?,
            }
        }
        Ok(())
    }

    /// The lane's next offset behind the items up to `end`. Between those of a slice stand others, which are done or not.
    fn next_offset(&self, items: &[Item], end: usize, of_all: i64) -> i64 {
        match (&self.slice, items.get(end)) {
            (None, Some(item)) => item.record.position.offset,
            (Some(_), Some(_)) => items[..end].last().map_or(of_all, |item| item.record.position.offset + 1),
            (_, None) => of_all,
        }
    }

    /// Marks everything below `to` as skipped by an operator.
    fn skip(&self, items: &mut [Item], to: i64) {
        for item in items.iter_mut().filter(|item| item.record.position.offset < to) {
            if !matches!(item.entry, Entry::Skip(_)) {
                item.entry = Entry::Faulty(Box::new(self.shared.reader.to_park(
                    item,
                    self.lane.generation,
                    OPERATOR,
                    skipped(),
                )));
            }
        }
    }

    async fn failed(
        &self,
        items: &mut [Item],
        mut piece: Piece,
        failure: Failure,
        todo: &mut Vec<Piece>,
    ) -> Result<(), Halt> {
        for effect in &self.shared.effects {
            effect.forget();
        }
        let Failure { at, error } = failure;
        let length = piece.range.len();
        match error.meaning() {
            Meaning::Transient => {
                piece.failures += 1;
                self.retry(&error, "transient");
                if error.is_deadlock() {
                    self.shared.turns.deadlocked();
                }
                let stubborn = piece.failures >= STUBBORN && matches!(error, StoreError::Answer { .. });
                let lasting = stubborn && self.shared.store.ping().await.is_ok();
                if lasting && length > 1 {
                    match at {
                        Some(at) => push_around(todo, &piece, at),
                        None => push_halves(todo, &piece),
                    }
                    return Ok(());
                }
                if lasting && piece.aside.is_none() && self.may_be_set_aside(&items[piece.range.start]).await {
                    let item = &items[piece.range.start];
                    warn!(position = %item.record.position, %error, "set aside: it fails again and again, and other keys need not wait");
                    piece.aside = Some(error.for_people());
                    todo.push(piece);
                    return Ok(());
                }
                let what = match (length, stubborn) {
                    (1, true) => format!("record {}: {error}", items[piece.range.start].record.position),
                    _ => error.to_string(),
                };
                self.stand(LaneState::Retrying(what), backoff(piece.failures)).await?;
                todo.push(piece);
            }
            Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison => {
                debug!(%error, length, "taking the batch apart");
                if piece.mode == Mode::Plain || length > 1 {
                    take_apart(todo, &piece, at);
                } else {
                    // Not the effect, which has its savepoint: a constraint that is checked at COMMIT alone, or the
                    // record's own bookkeeping, which cannot be stored.
                    let item = &mut items[piece.range.start];
                    warn!(position = %item.record.position, %error, "parked: the transaction of this record alone is refused");
                    let fault = Fault::new(code::DATA_REFUSED, error.for_people());
                    let generation = self.lane.generation;
                    item.entry = Entry::Faulty(Box::new(match error.meaning() {
                        Meaning::Poison => self.shared.reader.bare(&item.record, generation, fault),
                        _ => self.shared.reader.to_park(item, generation, "poison", fault),
                    }));
                    piece.failures += 1;
                    if piece.failures > 1 {
                        self.stand(LaneState::Retrying(error.to_string()), backoff(piece.failures)).await?;
                    }
                    todo.push(piece);
                }
            }
            Meaning::Fatal => {
                self.retry(&error, "fatal");
                let text = error.with_advice();
                error!(topic = %self.lane.key.topic, partition = self.lane.key.partition, "the lane stops: {text}");
                self.stand(LaneState::Stopped(text), STOPPED_LOOK).await?;
                todo.push(piece);
            }
        }
        Ok(())
    }

    /// Whether a message that fails by itself may wait outside the lane, with those of its key behind it. Many that do
    /// are no trouble of their own: then the lane waits. So it does where no statement could set the message aside.
    async fn may_be_set_aside(&self, item: &Item) -> bool {
        let LaneKey { pipeline, topic, partition } = &self.lane.key;
        let place = QueuePlace { pipeline, topic, partition: *partition };
        matches!(&item.entry, Entry::Message { message, .. } if self.shared.order[message.route] != Order::Partition && self.shared.inbox[message.route])
            && waiting_line(&item.record, self.shared.store.largest_record()).is_some()
            && self.shared.store.count_waiting(place).await.is_ok_and(|waiting| waiting < MOST_WAITING)
    }

    fn retry(&self, error: &StoreError, class: &str) {
        self.shared.metrics.retries.with_label_values(&[&*self.shared.pipeline, class]).inc();
        warn!(%error, class, topic = %self.lane.key.topic, partition = self.lane.key.partition, "trying again");
    }
}

/// What becomes of a piece that something in it spoils: with savepoints it is found where it is. Of few bad records it
/// takes few attempts, O(bad · log n) where nobody says which one it was.
fn take_apart(todo: &mut Vec<Piece>, piece: &Piece, at: Option<usize>) {
    match (piece.mode, at) {
        (Mode::Plain, Some(at)) if piece.range.len() > MAX_SAVEPOINTS => push_from(todo, piece, at),
        (Mode::Plain, _) if piece.range.len() <= MAX_SAVEPOINTS => push_chunks(todo, piece.range.clone()),
        _ => push_halves(todo, piece),
    }
}

/// What stands before the bad one, as many from there on as take savepoints, and the rest.
fn push_from(todo: &mut Vec<Piece>, piece: &Piece, at: usize) {
    let Range { start, end } = piece.range;
    let (from, to) = (start + at, (start + at + MAX_SAVEPOINTS).min(end));
    let parts = [(to..end, Mode::Plain), (from..to, Mode::Savepoints), (start..from, Mode::Plain)];
    todo.extend(parts.into_iter().filter(|(range, _)| !range.is_empty()).map(|(range, mode)| Piece::new(range, mode)));
}

/// Pieces small enough for savepoints, the first one on top.
fn push_chunks(todo: &mut Vec<Piece>, range: Range<usize>) {
    let starts: Vec<usize> = range.clone().step_by(MAX_SAVEPOINTS).collect();
    for start in starts.into_iter().rev() {
        let end = (start + MAX_SAVEPOINTS).min(range.end);
        todo.push(Piece::new(start..end, Mode::Savepoints));
    }
}

/// The one that fails by itself, and what stands before and behind it.
fn push_around(todo: &mut Vec<Piece>, piece: &Piece, at: usize) {
    let Range { start, end } = piece.range;
    let at = start + at;
    for range in [at + 1..end, at..at + 1, start..at] {
        if !range.is_empty() {
            todo.push(Piece::new(range, piece.mode));
        }
    }
}

fn push_halves(todo: &mut Vec<Piece>, piece: &Piece) {
    let Range { start, end } = piece.range;
    let middle = start + piece.range.len() / 2;
    todo.push(Piece::new(middle..end, piece.mode));
    todo.push(Piece::new(start..middle, piece.mode));
}

/// Exponential with full jitter, so that lanes do not come back all at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let most = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
    rand::rng().random_range(FIRST_WAIT..=most.max(FIRST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn few_bad_records_take_few_attempts(
            length in 1_usize..1500,
            places in proptest::collection::btree_set(0_usize..1500, 0..20),
            said in proptest::bool::ANY,
        ) {
            let bad: Vec<usize> = places.into_iter().filter(|at| *at < length).collect();
            let mut todo = vec![Piece::new(0..length, Mode::Plain)];
            let (mut attempts, mut done) = (0, 0);
            while let Some(piece) = todo.pop() {
                attempts += 1;
                let first = bad.iter().find(|at| piece.range.contains(*at));
                match (piece.mode, first) {
                    (Mode::Plain, Some(at)) => take_apart(&mut todo, &piece, said.then_some(at - piece.range.start)),
                    _ => {
                        proptest::prop_assert_eq!(piece.range.start, done, "in order");
                        done = piece.range.end;
                    }
                }
            }
            proptest::prop_assert_eq!(done, length);
            let halvings = length.div_ceil(MAX_SAVEPOINTS).next_power_of_two().ilog2() as usize;
            let most = if said { 3 } else { 2 * (halvings + 1) };
            proptest::prop_assert!(attempts <= 1 + bad.len() * most, "{} of {} in {}", attempts, bad.len(), length);
        }
    }

    #[test]
    fn pieces_keep_the_order_of_the_records() {
        let mut todo = Vec::new();
        push_chunks(&mut todo, 0..130);
        let halves = todo.pop().unwrap();
        push_halves(&mut todo, &halves);
        let around = todo.pop().unwrap();
        push_around(&mut todo, &around, 7);
        for end in [0, around.range.len() - 1] {
            let piece = todo.pop().unwrap();
            push_around(&mut todo, &piece, end.min(piece.range.len() - 1));
        }
        let mut order = Vec::new();
        while let Some(piece) = todo.pop() {
            assert!(piece.range.len() <= MAX_SAVEPOINTS);
            order.extend(piece.range);
        }
        assert_eq!(order, (0..130).collect::<Vec<_>>());
    }

    #[test]
    fn waiting_grows_to_a_bound() {
        for failures in 0..40 {
            assert!(backoff(failures) <= LONGEST_WAIT);
        }
    }
}
