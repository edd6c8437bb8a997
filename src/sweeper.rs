//! The sweeper: finishes messages that were set aside.
//!
//! It works without an assignment: the inbox row is its fence. Taking a row compares the attempt, so that of two
//! sweepers only one runs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use rand::Rng as _;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::debezium::event::Fault;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::Delivery;
use crate::message::{Digest, MessageId};
use crate::pipeline::Shared;
use crate::pipeline::alone::apply_alone;
use crate::pipeline::batch::{Entry, Faulty, Item, Reader};
use crate::pipeline::intake::{self, Hindrance};
use crate::pipeline::queue::waits;
use crate::pipeline::settle::settle_alone;
use crate::receipt::code;
use crate::record::Record;
use crate::record_line;
use crate::registry::Registry;
use crate::store::inbox_entries::{InboxEntry, Waiting};
use crate::store::{Meaning, StoreError, Tx};

pub struct Sweeper {
    pub shared: Arc<Shared>,
}

const LOOK: Duration = Duration::from_millis(500);
const ROUND: i64 = 100;
/// Messages that are tried side by side.
const AT_ONCE: usize = 4;

/// Why a message was not tried, or not to an end.
pub enum Untried {
    Unread(Hindrance),
    Failed(StoreError),
}

impl From<StoreError> for Untried {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Sweeper {
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let more = match self.round().await {
                Ok(more) => more,
                Err(error) => {
                    debug!(%error, "messages set aside wait on");
                    false
                }
            };
            if !more {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    }

    /// Tries every message whose time has come; true if more of them may be due at once. Several at a time, for one whose
    /// row is locked must not hold up the others: of one queue there is only the first among them.
    pub async fn round(&self) -> Result<bool, StoreError> {
        let queues = self.shared.has_queues();
        let due = self.shared.store.due_waiting(&self.shared.pipeline, queues, ROUND).await?;
        let any = !due.is_empty();
        let round = Round {
            more: AtomicBool::new(due.len() == ROUND as usize),
            down: AtomicBool::new(false),
            due: Mutex::new(due.into_iter()),
            queues,
        };
        try_join_all((0..AT_ONCE).map(|_| self.work(&round))).await?;
        if any {
            self.shared.receipts.of_any();
        }
        Ok(round.more.into_inner())
    }

    async fn work(&self, round: &Round) -> Result<(), StoreError> {
        let mut reader = Reader::new(Arc::clone(&self.shared.reader));
        while let Some(key) = round.next() {
            // One at a time, for they may be large; of a queue another one may have become the first meanwhile.
            let found = self.shared.store.waiting(&key, round.queues).await?;
            let Some((waiting, true)) = found else { continue };
            let down = round.down.load(Ordering::Relaxed);
            let registry = self.shared.registry.as_ref().filter(|_| !down);
            match self.try_once(&mut reader, registry, &waiting).await {
                Ok(outcome) => {
                    // Whoever stands behind it in the queue of its key comes next.
                    if round.queues && outcome.is_some_and(|outcome| !outcome.is_retry()) {
                        round.more.store(true, Ordering::Relaxed);
                    }
                    continue;
                }
                // What was asked for it would be asked for the others too: not in this round.
                Err(Untried::Unread(hindrance @ Hindrance::Outage { .. })) => {
                    round.down.store(true, Ordering::Relaxed);
                    warn!("messages set aside wait for a schema: {}", hindrance.into_reason());
                }
                Err(Untried::Unread(_)) if down => {}
                Err(Untried::Unread(hindrance)) => {
                    warn!("a message set aside could not be tried: {}", hindrance.into_reason());
                }
                Err(Untried::Failed(error)) => warn!(%error, "a message set aside could not be tried"),
            }
            // One that cannot be tried must not hold up the others: it comes again later.
            let delay = self.shared.options.retry.delay_after(waiting.attempts).as_millis() as i64;
            self.shared.store.postpone(&waiting, delay).await?;
        }
        Ok(())
    }

    /// Tries a message now; None if another one has it.
    pub async fn try_once(
        &self,
        reader: &mut Reader,
        registry: Option<&Registry>,
        waiting: &Waiting,
    ) -> Result<Option<Outcome>, Untried> {
        let item = item(reader, registry, waiting).await?;
        match &item.entry {
            Entry::Message { key, .. } if *key == waiting.key => {}
            Entry::Message { .. } => return self.changed(item, waiting, "it has another id now").await,
            Entry::Faulty(faulty) => {
                let why = faulty.fault.to_string();
                return self.changed(item, waiting, &why).await;
            }
            Entry::Skip(reason) => {
                let why = format!("it would be skipped now: {}", reason.as_str());
                return self.changed(item, waiting, &why).await;
            }
        }
        match self.apply(&item, waiting).await {
            // A definite answer of the COMMIT, or of a constraint that no step has.
            Err(error)
                if matches!(
                    error.meaning(),
                    Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison
                ) =>
            {
                self.changed(item, waiting, &error.for_people()).await
            }
            other => Ok(other?),
        }
    }

    /// A transaction in which the message is this one's; None if another one has it or it waits no more.
    async fn take(&self, waiting: &Waiting) -> Result<Option<Tx>, StoreError> {
        let mut tx = self.shared.store.begin().await?;
        let token = rand::rng().random::<i64>();
        if tx.take_waiting(waiting, token).await? {
            return Ok(Some(tx));
        }
        tx.rollback().await;
        Ok(None)
    }

    async fn apply(&self, item: &Item, waiting: &Waiting) -> Result<Option<Outcome>, StoreError> {
        let Entry::Message { message, .. } = &item.entry else { return Ok(None) };
        let Some(mut tx) = self.take(waiting).await? else { return Ok(None) };
        let delivery = Delivery { message, record: &item.record };
        let outcome = match apply_alone(&self.shared, &mut tx, &delivery).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tx.rollback().await;
                return Err(error);
            }
        };
        self.settled(tx, item, outcome, waiting).await
    }

    /// A message that is none any more, by a change of the configuration or of its schema, or that the database refuses
    /// without saying which step: it counts as a try, and is parked at the bound.
    async fn changed(&self, item: Item, waiting: &Waiting, why: &str) -> Result<Option<Outcome>, Untried> {
        Ok(self.untried(item.record, waiting, waits(code::DATA_REFUSED, why)).await?)
    }

    /// Parks a message that waits, as an operator wants it; None if another one has it or it waits no more.
    pub async fn park(&self, waiting: &Waiting) -> Result<Option<Outcome>, StoreError> {
        let reason = "given up by an operator while it waited".to_owned();
        let code = code::SKIPPED_BY_OPERATOR.to_owned();
        let refusal = Refusal { kind: RefusalKind::Park, code, reason, clean: true };
        self.untried(record_of(waiting)?, waiting, Outcome::Refused(refusal)).await
    }

    /// Settles a message by its row, without its effect.
    async fn untried(
        &self,
        record: Record,
        waiting: &Waiting,
        outcome: Outcome,
    ) -> Result<Option<Outcome>, StoreError> {
        let rows = self.shared.store.inbox_entries(vec![waiting.key.clone()]).await?;
        let (Some(row), Outcome::Refused(refusal)) = (rows.into_iter().next(), &outcome) else { return Ok(None) };
        let Some(tx) = self.take(waiting).await? else { return Ok(None) };
        let entry = Entry::Faulty(Box::new(faulty_of(&self.shared, &row, &refusal.reason)));
        self.settled(tx, &Item { record, entry }, outcome, waiting).await
    }

    async fn settled(
        &self,
        mut tx: Tx,
        item: &Item,
        outcome: Outcome,
        waiting: &Waiting,
    ) -> Result<Option<Outcome>, StoreError> {
        let attempts = waiting.attempts + 1;
        let outcome = self.bounded(outcome, attempts);
        settle_alone(&self.shared, &mut tx, item, &outcome, attempts, waiting).await?;
        match tx.commit().await {
            // Unknown: the row tells at the next look, for it is either still waiting or finished.
            Err(error @ StoreError::CommitUnknown(_)) => {
                warn!(%error, "a message set aside is looked at again");
                Ok(None)
            }
            other => {
                other?;
                Ok(Some(outcome))
            }
        }
    }

    /// A message that was tried as often as allowed is parked.
    fn bounded(&self, outcome: Outcome, attempts: i64) -> Outcome {
        match outcome {
            Outcome::Refused(refusal)
                if refusal.kind == RefusalKind::Retry && attempts >= self.shared.options.retry.attempts =>
            {
                let reason = format!("tried {attempts} times: {}", refusal.reason);
                Outcome::Refused(Refusal { kind: RefusalKind::Park, reason, ..refusal })
            }
            other => other,
        }
    }
}

/// What a round has to do, shared by those who do it.
struct Round {
    due: Mutex<std::vec::IntoIter<Vec<u8>>>,
    queues: bool,
    more: AtomicBool,
    /// The registry is away.
    down: AtomicBool,
}

impl Round {
    fn next(&self) -> Option<Vec<u8>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// A message by its row, where its record makes none any more. What receipts say besides, the row itself tells.
fn faulty_of(shared: &Shared, row: &InboxEntry, why: &str) -> Faulty {
    Faulty {
        key: row.key.clone(),
        class: "retries",
        fault: Fault::new(code::DATA_REFUSED, why),
        id: row.message_id.clone().map(MessageId::new),
        correlation_id: None,
        source_app: None,
        route: shared.reader.routes.iter().position(|route| *route.name == *row.route),
        derived_id: false,
        digest: Digest::from_stored(row.digest.as_deref().unwrap_or_default()),
    }
}

fn record_of(waiting: &Waiting) -> Result<Record, StoreError> {
    let line = std::str::from_utf8(&waiting.record)
        .map_err(|_| StoreError::Unexpected("a record line is not UTF-8".into()))?;
    record_line::read(line).map_err(|error| StoreError::Unexpected(format!("a record line: {error}")))
}

async fn item(reader: &mut Reader, registry: Option<&Registry>, waiting: &Waiting) -> Result<Item, Untried> {
    let record = record_of(waiting)?;
    // The topic's generation stands in the keys of records without an id alone, and those are never set aside.
    let entry = intake::entry(reader, &record, 0, registry).await.map_err(Untried::Unread)?;
    Ok(Item { record, entry })
}
