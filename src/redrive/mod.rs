//! Redrive: an operator's decision that a parked record is to be tried again.
//!
//! It works without an assignment: no lane row is read or written, the message's inbox row is the fence. One
//! transaction locks the inbox row and the dead letter, in the order in which lanes take them, applies the effect,
//! writes the row's next version with its receipt, and closes the letter. Of two operators the second one waits, and
//! finds the letter closed.

mod attempt;
mod course;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use serde::Serialize;
use tracing::warn;

use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::lookup::receipt_of;
use crate::message::MessageId;
use crate::pipeline::alone::data_refused;
use crate::pipeline::batch::{Entry, Item, Reader};
use crate::pipeline::intake::{self, Hindrance};
use crate::pipeline::{Shared, processor};
use crate::receipt::code;
use crate::record::{Record, RecordPosition};
use crate::record_line::{NOT_KEPT, read_headers};
use crate::store::dead_letters::{DeadLetterRecord, Place};
use crate::store::inbox_entries::InboxEntry;
use crate::store::{Meaning, StoreError};
use crate::sweeper::{Sweeper, Untried};
use attempt::Attempt;

/// What an operator wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Takes the place of the record's value.
    pub edited: Option<Vec<u8>>,
    pub by: String,
    pub why: Option<String>,
    /// All is tried and undone.
    pub dry_run: bool,
}

/// What became of one dead letter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Redriven {
    /// None for a message that was set aside, which has no dead letter.
    pub id: Option<i64>,
    pub message_id: Option<String>,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    pub fate: Fate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the receipt that was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    Applied,
    /// A step said that there was nothing to do.
    Ignored,
    /// A newer change of the row had been applied.
    Stale,
    /// The message itself was there: nothing was done, the letter is closed.
    Duplicate,
    /// A business refusal: an answer, so that the letter is closed.
    Rejected,
    /// Tried in vain: the letter stays open.
    Failed,
    /// Not to be tried: nothing was changed.
    Refused,
    /// An earlier record of its key failed before: not tried.
    Held,
    /// Somebody else decided meanwhile.
    Closed,
    /// There is no such dead letter.
    Missing,
}

impl Fate {
    pub const ALL: [Self; 10] = [
        Self::Applied,
        Self::Ignored,
        Self::Stale,
        Self::Duplicate,
        Self::Rejected,
        Self::Failed,
        Self::Refused,
        Self::Held,
        Self::Closed,
        Self::Missing,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Ignored => "ignored",
            Self::Stale => "stale",
            Self::Duplicate => "duplicate",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Held => "held",
            Self::Closed => "closed",
            Self::Missing => "missing",
        }
    }

    /// The letter is open no more, by this redrive.
    pub fn is_done(self) -> bool {
        match self {
            Self::Applied | Self::Ignored | Self::Stale | Self::Duplicate | Self::Rejected => true,
            Self::Failed | Self::Refused | Self::Held | Self::Closed | Self::Missing => false,
        }
    }
}

/// Why nothing could be said about a dead letter; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RedriveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A dependency is away.
    #[error("{0}")]
    Unreachable(String),
    /// Somebody must look.
    #[error("{0}")]
    Setup(String),
}

impl From<Hindrance> for RedriveError {
    fn from(hindrance: Hindrance) -> Self {
        match hindrance {
            Hindrance::Outage { reason, .. } => Self::Unreachable(reason),
            Hindrance::Setup(reason) | Hindrance::Ambiguous(reason) => Self::Setup(reason),
        }
    }
}

pub struct Redriver {
    shared: Arc<Shared>,
    reader: Reader,
}

/// Attempts at one letter while what hinders it may pass.
const ATTEMPTS: u32 = 6;
/// How long a commit without an answer is looked up.
const LOOK_UP: Duration = Duration::from_secs(30);

impl Redriver {
    pub fn new(shared: Arc<Shared>) -> Self {
        let reader = Reader::new(Arc::clone(&shared.reader));
        Self { shared, reader }
    }

    /// Redrives one dead letter.
    ///
    /// # Errors
    /// Something that may pass, or that somebody has to mend, was in the way, and the letter is as it was.
    pub async fn redrive(&mut self, place: &Place, wish: &Wish) -> Result<Redriven, RedriveError> {
        let found = self.shared.store.dead_letter(&self.shared.pipeline, place.id).await?;
        let Some(letter) = found else { return Ok(answer(place, Fate::Missing, None)) };
        let mut record = record(&letter, wish.edited.as_deref())?;
        let whole = record.headers.len();
        record.headers.retain(|header| header.name != NOT_KEPT);
        if record.headers.len() < whole && wish.edited.is_none() {
            let reason = "it was too large to be kept whole: get it from Kafka, and give it with `--payload`";
            return Ok(answer(place, Fate::Refused, Some((code::TOO_LARGE.to_owned(), reason.to_owned()))));
        }
        let entry = match intake::entry(&mut self.reader, &record, 0, self.shared.registry.as_ref()).await {
            Ok(entry) => entry,
            Err(hindrance) => return Err(hindrance.into()),
        };
        let item = Item { record, entry };
        let mut failures = 0;
        let mut refused = None;
        loop {
            let token = rand::rng().random::<i64>();
            let attempt =
                Attempt { shared: &self.shared, letter: &letter, item: &item, wish, token, refused: refused.take() };
            let forced = attempt.refused.is_some();
            let error = match attempt.run().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match error.meaning() {
                Meaning::Transient if failures < ATTEMPTS => {
                    warn!(%error, dead_letter = place.id, "trying again");
                    tokio::time::sleep(processor::backoff(failures)).await;
                    failures += 1;
                }
                Meaning::Transient | Meaning::Fatal => return Err(error.into()),
                Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison if forced => {
                    return Err(error.into());
                }
                // A constraint that is checked at COMMIT alone.
                Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison => {
                    refused = Some(data_refused(&error));
                }
            }
        }
    }

    /// Gives up a message that waits: it is parked, with its FAILED receipt. False if it waits no more.
    pub async fn park(&self, entry: &InboxEntry) -> Result<bool, RedriveError> {
        let Some((waiting, _)) = self.shared.store.waiting(&entry.key, true).await? else { return Ok(false) };
        Ok(Sweeper { shared: Arc::clone(&self.shared) }.park(&waiting).await?.is_some())
    }

    /// Tries a message now that was set aside; None if it is not waiting.
    pub async fn try_now(&mut self, entry: &InboxEntry, wish: &Wish) -> Result<Option<Redriven>, RedriveError> {
        let place = Place {
            id: 0,
            message_id: entry.message_id.clone(),
            topic: entry.topic.clone(),
            partition: entry.partition,
            offset: entry.offset,
            key: None,
        };
        let answer = |fate, why| Some(Redriven { id: None, ..answer(&place, fate, why) });
        let Some((waiting, first)) = self.shared.store.waiting(&entry.key, true).await? else { return Ok(None) };
        if wish.dry_run || !first {
            let why = entry.code.clone().zip(entry.reason.clone());
            return Ok(answer(Fate::Held, why));
        }
        let sweeper = Sweeper { shared: Arc::clone(&self.shared) };
        let registry = self.shared.registry.as_ref();
        let outcome = match sweeper.try_once(&mut self.reader, registry, &waiting).await {
            Ok(outcome) => outcome,
            Err(Untried::Unread(hindrance)) => return Err(hindrance.into()),
            Err(Untried::Failed(error)) => return Err(error.into()),
        };
        let rows = self.shared.store.inbox_entries(vec![entry.key.clone()]).await?;
        let (Some(outcome), Some(row)) = (outcome, rows.first()) else { return Ok(answer(Fate::Closed, None)) };
        let done = answer(fate(&outcome), row.code.clone().zip(row.reason.clone()));
        let receipt_id = Some(receipt_of(row).receipt_id);
        Ok(done.map(|done| Redriven { version: Some(row.version), receipt_id, ..done }))
    }
}

fn fate(outcome: &Outcome) -> Fate {
    match outcome {
        Outcome::Applied => Fate::Applied,
        Outcome::Ignored { .. } => Fate::Ignored,
        Outcome::Stale => Fate::Stale,
        // An answer, not a fault.
        Outcome::Refused(Refusal { kind: RefusalKind::Reject, .. }) => Fate::Rejected,
        Outcome::Refused(Refusal { kind: RefusalKind::Park | RefusalKind::Retry, .. }) => Fate::Failed,
    }
}

/// What a letter's record was, with the value that is wanted for it now.
fn record(letter: &DeadLetterRecord, edited: Option<&[u8]>) -> Result<Record, RedriveError> {
    let unreadable = |what: &str| {
        RedriveError::Setup(format!("dead letter {}: its {what} cannot be read: was the row edited?", letter.letter.id))
    };
    let headers = match letter.headers.is_empty() {
        true => Vec::new(),
        false => read_headers(&letter.headers).map_err(|_| unreadable("headers"))?,
    };
    Ok(Record {
        position: RecordPosition {
            topic: Arc::from(letter.letter.topic.as_str()),
            partition: i32::try_from(letter.letter.partition).map_err(|_| unreadable("partition"))?,
            offset: letter.letter.offset,
        },
        timestamp_ms: letter.timestamp_ms,
        headers,
        key: letter.key.clone(),
        value: edited.map(<[u8]>::to_vec).or_else(|| letter.value.clone()),
    })
}

fn answer(place: &Place, fate: Fate, why: Option<(String, String)>) -> Redriven {
    let (code, reason) = why.unzip();
    Redriven {
        id: Some(place.id),
        message_id: place.message_id.clone(),
        topic: place.topic.clone(),
        partition: place.partition,
        offset: place.offset,
        fate,
        code,
        reason,
        version: None,
        receipt_id: None,
    }
}

/// An earlier one of its key failed: the order of the key is kept.
pub fn held(place: &Place) -> Redriven {
    let reason = "an earlier record of its key failed again: redrive them in order, or discard that one";
    answer(place, Fate::Held, Some(("held".to_owned(), reason.to_owned())))
}

/// The message id of the record as it is read now.
fn id_of(entry: &Entry) -> Option<&MessageId> {
    match entry {
        Entry::Message { message, .. } => Some(&message.id),
        Entry::Faulty(faulty) => faulty.id.as_ref(),
        Entry::Skip(_) => None,
    }
}
