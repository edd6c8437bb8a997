//! One transaction about one dead letter.

use std::collections::HashMap;

use super::course::{Course, Facts, Read, Refused, Row, course};
use super::{Fate, LOOK_UP, Redriven, Wish, fate, id_of};
use crate::decision::{Outcome, Refusal};
use crate::effect::Delivery;
use crate::failpoint;
use crate::lookup::receipt_of;
use crate::message::{Digest, DigestMatch, Message};
use crate::pipeline::Shared;
use crate::pipeline::alone::apply_alone;
use crate::pipeline::batch::{Entry, Item};
use crate::pipeline::judge::compare;
use crate::pipeline::late::outside_window;
use crate::pipeline::processor::backoff;
use crate::pipeline::rows::new_row;
use crate::receipt::code;
use crate::store::dead_letters::DeadLetterRecord;
use crate::store::inbox::{BatchHead, Status, Verdict};
use crate::store::inbox_entries::InboxEntry;
use crate::store::outbox::NewReceipt;
use crate::store::redrive::{Content, Decision, NextVersion};
use crate::store::{Meaning, StoreError, Tx};

pub(super) struct Attempt<'a> {
    pub shared: &'a Shared,
    pub letter: &'a DeadLetterRecord,
    pub item: &'a Item,
    pub wish: &'a Wish,
    pub token: i64,
    /// What its effect is known to come to: the database said so when it was to commit.
    pub refused: Option<Outcome>,
}

const SAVEPOINT: &str = "countersign_redrive";

impl Attempt<'_> {
    pub async fn run(&self) -> Result<Redriven, StoreError> {
        let mut tx = self.shared.store.begin().await?;
        let mut rows = HashMap::new();
        for key in self.keys() {
            if let Some(row) = tx.lock_inbox(key).await? {
                rows.insert(key, row);
            }
        }
        let Some((status, attempts)) = tx.lock_dead_letter(self.letter.letter.id).await? else {
            tx.rollback().await;
            return Ok(self.told(Fate::Missing, None, None));
        };
        if status != "open" {
            tx.rollback().await;
            let reason = format!("it was {status} meanwhile");
            return Ok(self.told(Fate::Closed, Some(("closed", &reason)), None));
        }
        let now = tx.now().await?;
        let row = rows.get(self.key());
        let (done, written) = match course(self.facts(row)) {
            Course::Refuse(why) => {
                tx.rollback().await;
                return Ok(self.refused(why));
            }
            Course::Duplicate => {
                let why = (code::DUPLICATE, "the message was received by itself before");
                self.close(&mut tx, None, &now).await?;
                (self.told(Fate::Duplicate, Some(why), None), None)
            }
            Course::Fail => self.fail(&mut tx, rows.get(&*self.letter.inbox_key), &self.fault(), &now).await?,
            at @ (Course::Next | Course::First | Course::Guarded) => match self.apply(&mut tx, at, &now).await? {
                Applied::Answered(done, key) => (done, key),
                Applied::Late(reason) => {
                    tx.rollback().await;
                    return Ok(self.told(Fate::Refused, Some((code::OUTSIDE_WINDOW, &reason)), None));
                }
                Applied::Refused(refusal) => {
                    let own = rows.get(&*self.letter.inbox_key);
                    self.fail(&mut tx, own, &(refusal.code, refusal.reason), &now).await?
                }
            },
        };
        if self.wish.dry_run {
            tx.rollback().await;
            return Ok(Redriven { version: None, receipt_id: None, ..done });
        }
        failpoint::at("before-redrive").await?;
        match tx.commit_before("after-redrive").await {
            Err(error @ StoreError::CommitUnknown(_)) => match self.look_up(written.as_deref(), attempts).await? {
                true => Ok(done),
                false => Err(error),
            },
            other => other.map(|()| done),
        }
    }

    /// The keys of the rows to lock, sorted: two redrives that meet wait for each other.
    fn keys(&self) -> Vec<&[u8]> {
        let mut keys = vec![self.letter.inbox_key.as_slice(), self.key()];
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Of the message that the record holds now; of its letter where it holds none.
    fn key(&self) -> &[u8] {
        match &self.item.entry {
            Entry::Message { key, .. } => key,
            Entry::Faulty(_) | Entry::Skip(_) => &self.letter.inbox_key,
        }
    }

    fn is_conflict(&self) -> bool {
        self.letter.letter.class == "conflict"
    }

    fn facts(&self, row: Option<&InboxEntry>) -> Facts {
        let (read, row) = match &self.item.entry {
            Entry::Skip(_) => (Read::Skipped, Row::Absent),
            Entry::Faulty(_) => (Read::Faulty, Row::Absent),
            Entry::Message { message, .. } if !self.shared.inbox[message.route] => (Read::Message, Row::Unkept),
            Entry::Message { message, .. } => {
                let there = |row: &InboxEntry| {
                    let stored = row.digest.as_deref().map(Digest::from_stored);
                    let relation = match compare(stored.as_ref(), &message.digest, self.item) {
                        // Coordinates say that it is the same change.
                        DigestMatch::Different if message.derived_id => DigestMatch::Incomparable,
                        // It differed when both were read by one rule.
                        DigestMatch::Incomparable if self.is_conflict() && self.wish.edited.is_none() => {
                            DigestMatch::Different
                        }
                        relation => relation,
                    };
                    Row::There(row.status, relation)
                };
                (Read::Message, row.map_or(Row::Absent, there))
            }
        };
        Facts {
            read,
            row,
            own_row: self.key() == self.letter.inbox_key.as_slice(),
            edited: self.wish.edited.is_some(),
            had_id: self.letter.letter.message_id.is_some(),
        }
    }

    async fn apply(&self, tx: &mut Tx, at: Course, now: &str) -> Result<Applied, StoreError> {
        let Entry::Message { key, message } = &self.item.entry else {
            return Err(StoreError::Unexpected("a record without a message was to be applied".to_owned()));
        };
        tx.savepoint(SAVEPOINT).await?;
        if at == Course::First
            && let Some(reason) = self.insert(tx, message, now).await?
        {
            return Ok(Applied::Late(reason));
        }
        let outcome = match &self.refused {
            Some(outcome) => outcome.clone(),
            None => apply_alone(self.shared, tx, &Delivery { message, record: &self.item.record }).await?,
        };
        let fate = fate(&outcome);
        let (status, why) = match &outcome {
            Outcome::Applied => (Status::Success, None),
            Outcome::Ignored { reason } => (Status::Success, Some((code::IGNORED, reason.as_str()))),
            Outcome::Stale => (Status::Success, Some((code::STALE, "a newer change of the row was applied before"))),
            Outcome::Refused(refusal) if fate == Fate::Rejected => {
                (Status::Failed, Some((refusal.code.as_str(), refusal.reason.as_str())))
            }
            Outcome::Refused(refusal) => {
                tx.rollback_to(SAVEPOINT).await?;
                return Ok(Applied::Refused(refusal.clone()));
            }
        };
        let verdict = Verdict { status, code: why.map(|(code, _)| code), reason: why.map(|(_, reason)| reason) };
        match at {
            Course::Next => {
                let content = Content {
                    route: self.shared.route_name(Some(message.route)),
                    digest: message.digest.as_str(),
                    correlation_id: message.correlation_id.as_deref(),
                    source_app: message.source_app.as_deref(),
                };
                tx.next_version(key, &NextVersion { verdict, content: Some(content), token: self.token }, now).await?;
            }
            Course::First if why.is_some() => tx.finish_inbox(key, &verdict, now).await?,
            Course::First | Course::Guarded | Course::Duplicate | Course::Fail | Course::Refuse(_) => {}
        }
        self.close(tx, None, now).await?;
        let receipt = match at {
            Course::Guarded => None,
            _ => Some(self.tell(tx, key, now).await?),
        };
        let written = (at != Course::Guarded).then(|| key.clone());
        Ok(Applied::Answered(self.told(fate, why, receipt), written))
    }

    /// The row of a message that is new; a reason if it cannot be proved to be.
    async fn insert(&self, tx: &mut Tx, message: &Message, now: &str) -> Result<Option<String>, StoreError> {
        let position = &self.item.record.position;
        let head = BatchHead {
            pipeline: &self.shared.pipeline,
            topic: &position.topic,
            partition: position.partition,
            token: self.token,
            now,
        };
        let row = new_row(self.shared, self.item)
            .ok_or_else(|| StoreError::Unexpected("a message without a row was to be inserted".to_owned()))?;
        let known = tx.record_inbox(&head, std::slice::from_ref(&row)).await?;
        if known.rows.is_some_and(|rows| rows.first().is_none_or(|row| row.token != self.token)) {
            return Err(StoreError::Unexpected("its inbox row came at this very moment".to_owned()));
        }
        let late = known.horizon_ms.and_then(|horizon| outside_window(message, &self.item.record, horizon));
        Ok(match late {
            Some(Outcome::Refused(refusal)) if !self.shared.late[message.route] => Some(refusal.reason),
            Some(_) | None => None,
        })
    }

    /// It was tried in vain: the row with which it was parked says so in its next version, the letter stays open.
    async fn fail(
        &self,
        tx: &mut Tx,
        own: Option<&InboxEntry>,
        (code, reason): &(String, String),
        now: &str,
    ) -> Result<(Redriven, Option<Vec<u8>>), StoreError> {
        let mut receipt = None;
        // A conflict's row is that of the content that came first, and its receipt that one's answer.
        let own = own.filter(|row| row.status == Status::Failed && self.letter.letter.class != "conflict");
        if let Some(row) = own {
            let verdict = Verdict { status: Status::Failed, code: Some(code), reason: Some(reason) };
            tx.next_version(&row.key, &NextVersion { verdict, content: None, token: self.token }, now).await?;
            receipt = Some(self.tell(tx, &row.key, now).await?);
        }
        self.close(tx, Some((code, reason)), now).await?;
        let written = receipt.is_some().then(|| self.letter.inbox_key.clone());
        Ok((self.told(Fate::Failed, Some((code, reason)), receipt), written))
    }

    /// Why a record that cannot be read cannot be read.
    fn fault(&self) -> (String, String) {
        match &self.item.entry {
            Entry::Faulty(faulty) => (faulty.fault.code.to_owned(), faulty.fault.detail.clone()),
            Entry::Message { .. } | Entry::Skip(_) => (code::DATA_REFUSED.to_owned(), String::new()),
        }
    }

    /// Closes the letter; with a fault it stays open.
    async fn close(&self, tx: &mut Tx, fault: Option<(&str, &str)>, now: &str) -> Result<(), StoreError> {
        let decision = Decision {
            status: if fault.is_some() { "open" } else { "redriven" },
            fault,
            edited_value: self.wish.edited.as_deref(),
            by: &self.wish.by,
            why: self.wish.why.as_deref(),
        };
        tx.decide(self.letter.letter.id, &decision, now).await
    }

    /// Enqueues the receipt for which the row stands now, on the way that the first one took.
    async fn tell(&self, tx: &mut Tx, key: &[u8], now: &str) -> Result<(i64, String), StoreError> {
        let row = tx.lock_inbox(key).await?;
        let row = row.ok_or_else(|| StoreError::Unexpected("an inbox row vanished under its lock".to_owned()))?;
        let receipt = receipt_of(&row);
        let (version, receipt_id) = (receipt.version, receipt.receipt_id.clone());
        if self.shared.options.push_receipts {
            let partition = i32::try_from(row.partition)
                .map_err(|_| StoreError::Unexpected("an inbox row without a partition".to_owned()))?;
            let receipt_key = row.receipt_key;
            let new = NewReceipt { receipt_id: receipt_id.clone(), receipt_key, receipt: receipt.to_json() };
            tx.enqueue_receipts(&self.shared.pipeline, Some((&row.topic, partition)), now, vec![new]).await?;
        }
        Ok((version, receipt_id))
    }

    fn refused(&self, why: Refused) -> Redriven {
        let code = match (&self.item.entry, why) {
            (Entry::Skip(reason), Refused::Skipped) => reason.as_str(),
            _ => why.code(),
        };
        self.told(Fate::Refused, Some((code, why.reason())), None)
    }

    fn told(&self, fate: Fate, why: Option<(&str, &str)>, receipt: Option<(i64, String)>) -> Redriven {
        let letter = &self.letter.letter;
        let (version, receipt_id) = receipt.unzip();
        Redriven {
            id: Some(letter.id),
            message_id: id_of(&self.item.entry).map(|id| id.to_string()).or_else(|| letter.message_id.clone()),
            topic: letter.topic.clone(),
            partition: letter.partition,
            offset: letter.offset,
            fate,
            code: why.map(|(code, _)| code.to_owned()),
            reason: why.map(|(_, reason)| reason.to_owned()),
            version,
            receipt_id,
        }
    }

    /// What became of a commit without an answer. Locking the row waits for the end of the transaction in doubt.
    async fn look_up(&self, written: Option<&[u8]>, attempts: i64) -> Result<bool, StoreError> {
        let until = tokio::time::Instant::now() + LOOK_UP;
        let mut failures = 0;
        loop {
            let looked = async {
                let mut tx = self.shared.store.begin().await?;
                let committed = match written {
                    Some(key) => tx.inbox_token(key).await? == Some(self.token),
                    None => tx.lock_dead_letter(self.letter.letter.id).await?.is_some_and(|(_, now)| now > attempts),
                };
                tx.rollback().await;
                Ok::<_, StoreError>(committed)
            };
            match looked.await {
                Err(error) if error.meaning() == Meaning::Transient && tokio::time::Instant::now() < until => {
                    tokio::time::sleep(backoff(failures)).await;
                    failures += 1;
                }
                other => return other,
            }
        }
    }
}

enum Applied {
    /// With the key of the row that was written, if one was.
    Answered(Redriven, Option<Vec<u8>>),
    Refused(Refusal),
    /// New, and from before the purge horizon.
    Late(String),
}
