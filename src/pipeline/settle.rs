//! Writes what became of each record: states that differ from plain success, dead letters, receipts.

use std::collections::HashMap;

use super::Shared;
use super::attempt::{Attempt, Recorded};
use super::batch::{Entry, Faulty, Item};
use super::judge::{Conflict, Judgement};
use super::letter::{Kept, dead_letter_key, waiting_line};
use super::queue::order_key;
use crate::debezium::event::SkipReason;
use crate::decision::{Outcome, RecordOutcome, RefusalKind};
use crate::gate::{GateKey, Mark};
use crate::message::{Message, MessageId};
use crate::receipt::{Receipt, ReceiptKind, ReceiptPosition, ReceiptStatus, code, receipt_id};
use crate::store::dead_letters::NewDeadLetter;
use crate::store::inbox::{Seen, Status, Verdict};
use crate::store::inbox_entries::Waiting;
use crate::store::lanes::{LaneKey, LaneRow};
use crate::store::outbox::{NewReceipt, PendingReceipt};
use crate::store::{StoreError, Tx};

pub(super) struct Settled {
    pub recorded: Vec<Recorded>,
    pub marks: Vec<Mark>,
    /// Receipts issued, pushed or not.
    pub receipts: usize,
    /// Those of this lane that are in the outbox, if their numbers are known.
    pub enqueued: Vec<PendingReceipt>,
}

/// Settles every record of a slice, in order.
pub(super) async fn settle(
    attempt: &Attempt<'_>,
    tx: &mut Tx,
    row: &LaneRow,
    judgements: &[Judgement<'_>],
    outcomes: &HashMap<usize, Outcome>,
) -> Result<Settled, StoreError> {
    let lane = &attempt.lane.key;
    let mut desk = Desk::new(attempt.shared, tx, &row.now, 1);
    if attempt.lane.tenure.is_some() {
        // Of a group that was set back the row is ahead.
        let next = attempt.next_offset.max(row.next_offset);
        desk.marking = Some(Marking { lane, store_epoch: &row.store_epoch, generation: row.generation, next });
    }
    let outcome_of = |index: &usize| {
        outcomes.get(index).ok_or_else(|| StoreError::Unexpected("an effect without an outcome".to_owned()))
    };
    for (index, judgement) in judgements.iter().enumerate() {
        let item = &attempt.items[index];
        match judgement {
            Judgement::Skip(reason) => desk.count(RecordOutcome::Skipped, Some(reason.as_str())),
            Judgement::First { key, message } => {
                desk.first(&Subject::of_message(item, key, message), outcome_of(&index)?).await?;
            }
            Judgement::Unrecorded { .. } => desk.unrecorded(item, outcome_of(&index)?).await?,
            Judgement::Park(faulty) => desk.park(item, faulty).await?,
            Judgement::Duplicate { seen, note } => {
                if let Some(seen) = seen {
                    desk.mark_seen(seen);
                }
                desk.recorded.push(Recorded {
                    outcome: RecordOutcome::Duplicate,
                    reason: None,
                    first_seen_ms: seen.as_ref().map(|seen| seen.received_ms),
                    note: *note,
                });
            }
            Judgement::Conflict(conflict) => desk.conflict(item, conflict).await?,
        }
    }
    let Desk { recorded, marks, receipts, elsewhere, told, .. } = desk;
    let pipeline = &attempt.shared.pipeline;
    // Also without an assignment: the lane's owner, or whoever takes its place, delivers them in order.
    let enqueued = tx.enqueue_receipts(pipeline, Some((&lane.topic, lane.partition)), &row.now, receipts).await?;
    for (topic, partition, receipt) in elsewhere {
        tx.enqueue_receipts(pipeline, Some((&topic, partition)), &row.now, vec![receipt]).await?;
    }
    Ok(Settled { recorded, marks, receipts: told, enqueued })
}

/// Settles one message outside its lane, after this many tries. Its receipt goes the way of its first one: a message is
/// set aside where it was first seen, and its record says where that was.
pub(crate) async fn settle_alone(
    shared: &Shared,
    tx: &mut Tx,
    item: &Item,
    outcome: &Outcome,
    attempts: i64,
    waiting: &Waiting,
) -> Result<(), StoreError> {
    let subject = match &item.entry {
        Entry::Message { key, message } => Subject::of_message(item, key, message),
        Entry::Faulty(faulty) => Subject::of_faulty(item, faulty, Some(faulty.digest.as_str())),
        Entry::Skip(_) => return Ok(()),
    };
    let now = tx.now().await?;
    if *outcome == Outcome::Applied {
        // The row says WAITING; a lane's own rows say SUCCESS from their insert on.
        tx.finish_inbox(subject.key, &Verdict { status: Status::Success, code: None, reason: None }, &now).await?;
    }
    let mut desk = Desk::new(shared, tx, &now, attempts);
    let subject = Subject {
        correlation_id: waiting.correlation_id.as_deref(),
        source_app: waiting.source_app.as_deref(),
        received_at: Some(&waiting.received_at),
        ..subject
    };
    desk.first(&subject, outcome).await?;
    let receipts = desk.receipts;
    let position = &item.record.position;
    tx.enqueue_receipts(&shared.pipeline, Some((&position.topic, position.partition)), &now, receipts).await.map(drop)
}

/// Whom receipts and dead letters speak of.
struct Subject<'a> {
    item: &'a Item,
    key: &'a [u8],
    id: Option<&'a MessageId>,
    correlation_id: Option<&'a str>,
    source_app: Option<&'a str>,
    route: Option<usize>,
    digest: Option<&'a str>,
    /// When the message was first seen, if that was before this transaction.
    received_at: Option<&'a str>,
}

impl<'a> Subject<'a> {
    fn of_message(item: &'a Item, key: &'a [u8], message: &'a Message) -> Self {
        Self {
            item,
            key,
            id: Some(&message.id),
            correlation_id: message.correlation_id.as_deref(),
            source_app: message.source_app.as_deref(),
            route: Some(message.route),
            digest: Some(message.digest.as_str()),
            received_at: None,
        }
    }

    fn of_faulty(item: &'a Item, faulty: &'a Faulty, digest: Option<&'a str>) -> Self {
        Self {
            item,
            key: &faulty.key,
            id: faulty.id.as_ref(),
            correlation_id: faulty.correlation_id.as_deref(),
            source_app: faulty.source_app.as_deref(),
            route: faulty.route,
            digest,
            received_at: None,
        }
    }

    fn receipt_key(&self) -> &'a str {
        self.correlation_id.or(self.id.map(MessageId::as_str)).unwrap_or("")
    }
}

/// A name for programs and a text for people.
#[derive(Clone, Copy)]
struct Why<'a> {
    code: &'a str,
    reason: &'a str,
}

/// What a mark of the gate says besides the message.
struct Marking<'a> {
    lane: &'a LaneKey,
    store_epoch: &'a str,
    generation: i64,
    /// What the lane's row will say.
    next: i64,
}

struct Desk<'a, 't> {
    shared: &'a Shared,
    tx: &'t mut Tx,
    now: &'a str,
    attempts: i64,
    /// None where nothing is marked: a mark counts in its own lane alone.
    marking: Option<Marking<'a>>,
    recorded: Vec<Recorded>,
    marks: Vec<Mark>,
    receipts: Vec<NewReceipt>,
    /// Receipts of messages that were first seen in another lane, and that lane.
    elsewhere: Vec<(String, i32, NewReceipt)>,
    told: usize,
}

impl<'a, 't> Desk<'a, 't> {
    fn new(shared: &'a Shared, tx: &'t mut Tx, now: &'a str, attempts: i64) -> Self {
        let (recorded, marks, receipts, elsewhere) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { shared, tx, now, attempts, marking: None, recorded, marks, receipts, elsewhere, told: 0 }
    }

    fn count(&mut self, outcome: RecordOutcome, reason: Option<&str>) {
        self.recorded.push(Recorded { outcome, reason: reason.map(str::to_owned), first_seen_ms: None, note: None });
    }

    async fn first(&mut self, subject: &Subject<'_>, outcome: &Outcome) -> Result<(), StoreError> {
        let terminal = ReceiptKind::Terminal { version: 1 };
        match outcome {
            // The row was inserted as SUCCESS.
            Outcome::Applied => {
                self.tell(subject, ReceiptStatus::Success, None, terminal);
                self.count(RecordOutcome::Applied, None);
            }
            Outcome::Ignored { reason } => {
                let why = Why { code: code::IGNORED, reason };
                self.finish(subject, Status::Success, why).await?;
                self.tell(subject, ReceiptStatus::Success, Some(why), terminal);
                self.count(RecordOutcome::Applied, Some("ignored"));
            }
            Outcome::Stale => {
                let why = Why { code: code::STALE, reason: "a newer change of the row was applied before" };
                self.finish(subject, Status::Success, why).await?;
                self.tell(subject, ReceiptStatus::Success, Some(why), terminal);
                self.count(RecordOutcome::Skipped, Some(SkipReason::Stale.as_str()));
            }
            Outcome::Refused(refusal) => {
                let why = Why { code: &refusal.code, reason: &refusal.reason };
                match refusal.kind {
                    RefusalKind::Reject => {
                        self.finish(subject, Status::Failed, why).await?;
                        self.tell(subject, ReceiptStatus::Failed, Some(why), terminal);
                        self.count(RecordOutcome::Rejected, Some(why.code));
                    }
                    RefusalKind::Park => self.give_up(subject, why).await?,
                    RefusalKind::Retry => {
                        let most = self.shared.store.largest_record();
                        if let Some(line) = waiting_line(&subject.item.record, most) {
                            return self.set_aside(subject, why, line).await;
                        }
                        let reason = format!("too large to wait: {}", why.reason);
                        self.give_up(subject, Why { code: code::TOO_LARGE, reason: &reason }).await?;
                    }
                }
            }
        }
        self.mark(subject.key, subject.digest, subject.item.record.position.offset);
        Ok(())
    }

    /// The message is parked.
    async fn give_up(&mut self, subject: &Subject<'_>, why: Why<'_>) -> Result<(), StoreError> {
        self.finish(subject, Status::Failed, why).await?;
        let class = if self.attempts == 1 { "poison" } else { "retries" };
        self.dead_letter(subject, class, why).await?;
        self.tell(subject, ReceiptStatus::Failed, Some(why), ReceiptKind::Terminal { version: 1 });
        self.count(RecordOutcome::Parked, Some(why.code));
        Ok(())
    }

    /// The message waits with all that is needed to finish it, and the lane goes on.
    async fn set_aside(&mut self, subject: &Subject<'_>, why: Why<'_>, record: Vec<u8>) -> Result<(), StoreError> {
        let delay = self.shared.options.retry.delay_after(self.attempts).as_millis() as i64;
        self.tx.set_aside(subject.key, (why.code, why.reason), record, self.attempts, (self.now, delay)).await?;
        let queue = subject.route.and_then(|route| order_key(self.shared, route, &subject.item.record));
        if let Some(order_key) = queue {
            self.tx.enqueue(subject.key, order_key).await?;
        }
        if self.attempts == 1 {
            let waiting = Why { code: code::WAITING, reason: why.reason };
            self.tell(subject, ReceiptStatus::Processing, Some(waiting), ReceiptKind::Processing { version: 1 });
        }
        self.count(RecordOutcome::Parked, Some(WAITING));
        Ok(())
    }

    /// Without an inbox row there is nothing to write but a dead letter.
    async fn unrecorded(&mut self, item: &Item, outcome: &Outcome) -> Result<(), StoreError> {
        let Entry::Message { key, message } = &item.entry else { return Ok(()) };
        match outcome {
            Outcome::Applied | Outcome::Ignored { .. } => self.count(RecordOutcome::Applied, None),
            Outcome::Stale => self.count(RecordOutcome::Skipped, Some(SkipReason::Stale.as_str())),
            Outcome::Refused(refusal) => {
                // Nothing could finish a message set aside without its row: it is parked instead.
                let why = Why { code: &refusal.code, reason: &refusal.reason };
                self.dead_letter(&Subject::of_message(item, key, message), "poison", why).await?;
                self.count(RecordOutcome::Parked, Some(&refusal.code));
            }
        }
        Ok(())
    }

    async fn park(&mut self, item: &Item, faulty: &Faulty) -> Result<(), StoreError> {
        let subject = Subject::of_faulty(item, faulty, Some(faulty.digest.as_str()));
        let why = Why { code: faulty.fault.code, reason: &faulty.fault.detail };
        self.dead_letter(&subject, faulty.class, why).await?;
        self.tell(&subject, ReceiptStatus::Failed, Some(why), ReceiptKind::Terminal { version: 1 });
        let reason = if faulty.class == OPERATOR { OPERATOR } else { faulty.fault.code };
        self.count(RecordOutcome::Parked, Some(reason));
        Ok(())
    }

    /// The first one's row stays as it is; another content is parked and told once.
    async fn conflict(&mut self, item: &Item, conflict: &Conflict) -> Result<(), StoreError> {
        let subject = Subject::of_faulty(item, &conflict.faulty, Some(&conflict.digest));
        let others = self.tx.count_conflicts(subject.key).await?;
        let detail = format!("this id came with {others} other contents before: is `message_id` the right place?");
        let (name, reason) = match others {
            0..CONSTANT => ("conflict", conflict.faulty.fault.detail.as_str()),
            _ => ("id_constant", detail.as_str()),
        };
        if self.dead_letter(&subject, "conflict", Why { code: name, reason }).await? {
            let why = Why { code: code::CONFLICT, reason };
            self.tell(&subject, ReceiptStatus::Failed, Some(why), ReceiptKind::Conflict { digest: &conflict.digest });
            let position = &subject.item.record.position;
            let (topic, partition) = &conflict.first;
            if (&*position.topic, i64::from(position.partition)) != (topic, *partition) {
                // Behind what the first one was told.
                let partition = i32::try_from(*partition)
                    .map_err(|_| StoreError::Unexpected("an inbox row without a partition".to_owned()))?;
                self.elsewhere.extend(self.receipts.pop().map(|receipt| (topic.clone(), partition, receipt)));
            }
        }
        self.count(RecordOutcome::Conflict, Some(name));
        Ok(())
    }

    async fn finish(&mut self, subject: &Subject<'_>, status: Status, why: Why<'_>) -> Result<(), StoreError> {
        let verdict = Verdict { status, code: Some(why.code), reason: Some(why.reason) };
        self.tx.finish_inbox(subject.key, &verdict, self.now).await
    }

    async fn dead_letter(&mut self, subject: &Subject<'_>, class: &str, why: Why<'_>) -> Result<bool, StoreError> {
        let record = &subject.item.record;
        let kept = Kept::of(record, self.shared.store.largest_record());
        let letter = NewDeadLetter {
            dead_letter_key: dead_letter_key(subject.key, class, subject.digest),
            pipeline: &self.shared.pipeline,
            route: subject.route.map(|index| &*self.shared.reader.routes[index].name),
            inbox_key: subject.key,
            message_id: subject.id.map(MessageId::as_str),
            topic: &record.position.topic,
            partition: record.position.partition,
            offset: record.position.offset,
            timestamp_ms: record.timestamp_ms,
            class,
            code: why.code,
            reason: why.reason,
            digest: subject.digest,
            key: kept.key,
            value: kept.value,
            headers: kept.headers,
            attempts: self.attempts,
        };
        self.tx.park(&letter, self.now).await
    }

    /// The row of a duplicate, if this lane committed it and it is finished.
    fn mark_seen(&mut self, seen: &Seen) {
        let terminal = matches!(seen.status, Status::Success | Status::Failed);
        let ours = self.marking.as_ref().is_some_and(|marking| {
            *seen.topic == *marking.lane.topic && seen.partition == i64::from(marking.lane.partition)
        });
        if terminal && ours {
            self.mark(&seen.key, seen.digest.as_deref(), seen.offset);
        }
    }

    /// Notes that the gate may know of a row that this lane committed at this offset. A row may stand ahead of the lane: a
    /// replay wrote it, or the topic was made anew. If the database went back behind the replay, the lane would pass that
    /// offset one day, and a mark of it would count though the row is gone.
    fn mark(&mut self, key: &[u8], digest: Option<&str>, offset: i64) {
        let Some(marking) = self.marking.as_ref().filter(|marking| offset < marking.next) else { return };
        self.marks.push(Mark {
            store_epoch: marking.store_epoch.to_owned(),
            key_hash: GateKey::new(key).hash,
            digest: digest.unwrap_or("-").to_owned(),
            topic: marking.lane.topic.to_string(),
            generation: marking.generation,
            partition: marking.lane.partition,
            offset,
        });
    }

    fn tell(&mut self, subject: &Subject<'_>, status: ReceiptStatus, why: Option<Why<'_>>, kind: ReceiptKind<'_>) {
        self.told += 1;
        if !self.shared.options.push_receipts {
            return;
        }
        let position = &subject.item.record.position;
        let finished = match status {
            ReceiptStatus::Success | ReceiptStatus::Failed => Some(self.now.to_owned()),
            ReceiptStatus::Processing => None,
        };
        let receipt = Receipt {
            receipt_id: receipt_id(subject.key, kind),
            message_id: subject.id.map(|id| id.as_str().to_owned()),
            pipeline: self.shared.pipeline.to_string(),
            status,
            code: why.map(|why| why.code.to_owned()),
            reason: why.map(|why| why.reason.to_owned()),
            version: 1,
            correlation_id: subject.correlation_id.map(str::to_owned),
            source_app: subject.source_app.map(str::to_owned),
            digest: subject.digest.map(str::to_owned),
            result: None,
            received_at: subject.received_at.unwrap_or(self.now).to_owned(),
            finished_at: finished,
            position: ReceiptPosition {
                topic: position.topic.to_string(),
                partition: i64::from(position.partition),
                offset: position.offset,
            },
        };
        self.receipts.push(NewReceipt {
            receipt_id: receipt.receipt_id.clone(),
            receipt_key: subject.receipt_key().to_owned(),
            receipt: receipt.to_json(),
        });
    }
}

/// Contents under one id after which the id itself is the fault: it names no message.
const CONSTANT: i64 = 3;

/// The reason and the class of what an operator skipped.
pub(super) const OPERATOR: &str = "operator";

/// The reason of what was set aside.
pub(super) const WAITING: &str = "waiting";
