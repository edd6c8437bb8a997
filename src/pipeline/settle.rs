//! Writes what became of each record: states that differ from plain success, dead letters, receipts.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::attempt::{Attempt, Recorded};
use super::batch::{Entry, Faulty, Item};
use super::judge::{Conflict, Judgement};
use crate::debezium::event::SkipReason;
use crate::decision::{Outcome, RecordOutcome, RefusalKind};
use crate::gate::{GateKey, Mark};
use crate::message::{Message, MessageId};
use crate::receipt::{Receipt, ReceiptKind, ReceiptPosition, ReceiptStatus, code, receipt_id};
use crate::record_line;
use crate::store::dead_letters::NewDeadLetter;
use crate::store::inbox::{Status, Verdict};
use crate::store::lanes::LaneRow;
use crate::store::outbox::NewReceipt;
use crate::store::{StoreError, Tx};

pub(super) struct Settled {
    pub recorded: Vec<Recorded>,
    pub marks: Vec<Mark>,
    pub receipts: usize,
}

/// Settles every record of a slice, in order.
pub(super) async fn settle(
    attempt: &Attempt<'_>,
    tx: &mut Tx,
    row: &LaneRow,
    judgements: &[Judgement<'_>],
    outcomes: &HashMap<usize, Outcome>,
) -> Result<Settled, StoreError> {
    let mut desk = Desk { attempt, tx, row, recorded: Vec::with_capacity(judgements.len()), marks: Vec::new(), receipts: Vec::new() };
    for (index, judgement) in judgements.iter().enumerate() {
        let item = &attempt.items[index];
        match judgement {
            Judgement::Skip(reason) => desk.count(RecordOutcome::Skipped, Some(reason.as_str())),
            Judgement::First { key, message } => {
                let outcome = outcomes.get(&index).ok_or_else(|| StoreError::Unexpected("no outcome".to_owned()))?;
                desk.first(&Subject::of_message(item, key, message), outcome).await?;
            }
            Judgement::Unrecorded { .. } => {
                let outcome = outcomes.get(&index).ok_or_else(|| StoreError::Unexpected("no outcome".to_owned()))?;
                desk.unrecorded(item, outcome).await?;
            }
            Judgement::Park(faulty) => desk.park(item, faulty).await?,
            Judgement::Duplicate { seen, incomparable } => {
                if let Some(seen) = seen.as_ref().filter(|seen| *seen.topic == *attempt.lane.key.topic) {
                    desk.mark(&seen.key, seen.digest.as_deref(), seen.partition, seen.offset);
                }
                desk.recorded.push(Recorded {
                    outcome: RecordOutcome::Duplicate,
                    reason: None,
                    first_seen_ms: seen.as_ref().map(|seen| seen.received_ms),
                    incomparable: *incomparable,
                });
            }
            Judgement::Conflict(conflict) => desk.conflict(item, conflict).await?,
        }
    }
    let Desk { recorded, marks, receipts, .. } = desk;
    let count = receipts.len();
    let lane = &attempt.lane.key;
    tx.enqueue_receipts(&attempt.shared.pipeline, Some((&lane.topic, lane.partition)), &row.now, receipts).await?;
    Ok(Settled { recorded, marks, receipts: count })
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

struct Desk<'a, 't> {
    attempt: &'a Attempt<'a>,
    tx: &'t mut Tx,
    row: &'a LaneRow,
    recorded: Vec<Recorded>,
    marks: Vec<Mark>,
    receipts: Vec<NewReceipt>,
}

impl Desk<'_, '_> {
    fn count(&mut self, outcome: RecordOutcome, reason: Option<&str>) {
        self.recorded.push(Recorded {
            outcome,
            reason: reason.map(str::to_owned),
            first_seen_ms: None,
            incomparable: false,
        });
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
                    RefusalKind::Park => {
                        self.finish(subject, Status::Failed, why).await?;
                        self.dead_letter(subject, "poison", why).await?;
                        self.tell(subject, ReceiptStatus::Failed, Some(why), terminal);
                        self.count(RecordOutcome::Parked, Some(why.code));
                    }
                    RefusalKind::Retry => {
                        self.set_aside(subject, why).await?;
                        return Ok(());
                    }
                }
            }
        }
        let position = &subject.item.record.position;
        self.mark(subject.key, subject.digest, i64::from(position.partition), position.offset);
        Ok(())
    }

    /// The message waits with all that is needed to finish it, and the lane goes on.
    async fn set_aside(&mut self, subject: &Subject<'_>, why: Why<'_>) -> Result<(), StoreError> {
        let record = record_line::write(&subject.item.record).into_bytes();
        let delay = self.attempt.shared.options.retry.delay_after(1).as_millis() as i64;
        self.tx.set_aside(subject.key, (why.code, why.reason), record, 1, (&self.row.now, delay)).await?;
        let waiting = Why { code: code::WAITING, reason: why.reason };
        self.tell(subject, ReceiptStatus::Processing, Some(waiting), ReceiptKind::Processing { version: 1 });
        self.count(RecordOutcome::Parked, Some("waiting"));
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
        let subject = Subject::of_faulty(item, faulty, None);
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
        let why = Why { code: code::CONFLICT, reason: &conflict.faulty.fault.detail };
        if self.dead_letter(&subject, "conflict", why).await? {
            let kind = ReceiptKind::Conflict { digest: &conflict.digest };
            self.tell(&subject, ReceiptStatus::Failed, Some(why), kind);
        }
        self.count(RecordOutcome::Conflict, Some("conflict"));
        Ok(())
    }

    async fn finish(&mut self, subject: &Subject<'_>, status: Status, why: Why<'_>) -> Result<(), StoreError> {
        let verdict = Verdict { status, code: Some(why.code), reason: Some(why.reason) };
        self.tx.finish_inbox(subject.key, &verdict, &self.row.now).await
    }

    async fn dead_letter(&mut self, subject: &Subject<'_>, class: &str, why: Why<'_>) -> Result<bool, StoreError> {
        let record = &subject.item.record;
        let letter = NewDeadLetter {
            dead_letter_key: dead_letter_key(subject, class),
            pipeline: &self.attempt.shared.pipeline,
            route: subject.route.map(|index| &*self.attempt.shared.reader.routes[index].name),
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
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: record_line::write_headers(&record.headers),
            attempts: 1,
        };
        self.tx.park(&letter, &self.row.now).await
    }

    /// Notes that the gate may know of a committed row. Only rows of this lane: a mark of another one counts nowhere.
    fn mark(&mut self, key: &[u8], digest: Option<&str>, partition: i64, offset: i64) {
        let lane = &self.attempt.lane.key;
        if partition != i64::from(lane.partition) {
            return;
        }
        self.marks.push(Mark {
            store_epoch: self.row.store_epoch.clone(),
            key_hash: GateKey::new(key).hash,
            digest: digest.unwrap_or("-").to_owned(),
            topic: lane.topic.to_string(),
            generation: self.row.generation,
            partition: lane.partition,
            offset,
        });
    }

    fn tell(&mut self, subject: &Subject<'_>, status: ReceiptStatus, why: Option<Why<'_>>, kind: ReceiptKind<'_>) {
        if !self.attempt.shared.options.push_receipts {
            return;
        }
        let position = &subject.item.record.position;
        let finished = match status {
            ReceiptStatus::Success | ReceiptStatus::Failed => Some(self.row.now.clone()),
            ReceiptStatus::Processing => None,
        };
        let receipt = Receipt {
            receipt_id: receipt_id(subject.key, kind),
            message_id: subject.id.map(|id| id.as_str().to_owned()),
            pipeline: self.attempt.shared.pipeline.to_string(),
            status,
            code: why.map(|why| why.code.to_owned()),
            reason: why.map(|why| why.reason.to_owned()),
            version: 1,
            correlation_id: subject.correlation_id.map(str::to_owned),
            source_app: subject.source_app.map(str::to_owned),
            digest: subject.digest.map(str::to_owned),
            result: None,
            received_at: self.row.now.clone(),
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

/// The reason and the class of what an operator skipped.
pub(super) const OPERATOR: &str = "operator";

/// The same for the same fault of the same content: a redelivery is not parked again.
fn dead_letter_key(subject: &Subject<'_>, class: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [subject.key, class.as_bytes(), subject.digest.unwrap_or("").as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
