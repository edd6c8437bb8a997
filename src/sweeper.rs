//! The sweeper: finishes messages that were set aside.
//!
//! It works without an assignment: the inbox row is its fence. Taking a row compares the attempt, so that of two
//! sweepers only one runs it.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::Delivery;
use crate::pipeline::Shared;
use crate::pipeline::alone::apply_alone;
use crate::pipeline::apply::is_retry;
use crate::pipeline::batch::{Entry, Item, Reader};
use crate::pipeline::intake::{self, Hindrance};
use crate::pipeline::settle::settle_alone;
use crate::record_line;
use crate::registry::Registry;
use crate::store::StoreError;
use crate::store::inbox_entries::Waiting;

pub struct Sweeper {
    pub shared: Arc<Shared>,
}

const LOOK: Duration = Duration::from_millis(500);
const ROUND: i64 = 100;

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

    /// Tries every message whose time has come; true if more of them may be due at once.
    pub async fn round(&self) -> Result<bool, StoreError> {
        let queues = self.shared.by_key.contains(&true);
        let due = self.shared.store.due_waiting(&self.shared.pipeline, queues, ROUND).await?;
        let mut more = due.len() == ROUND as usize;
        let mut reader = Reader::new(Arc::clone(&self.shared.reader));
        let mut registry = self.shared.registry.as_ref();
        let mut down = false;
        for waiting in &due {
            match self.try_once(&mut reader, registry, waiting).await {
                Ok(outcome) => {
                    // Whoever stands behind it in the queue of its key comes next.
                    more |= queues && outcome.is_some_and(|outcome| !is_retry(&outcome));
                    continue;
                }
                // What was asked for it would be asked for the others too: not in this round.
                Err(Untried::Unread(hindrance @ Hindrance::Outage { .. })) => {
                    (registry, down) = (None, true);
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
            self.shared.store.postpone(waiting, delay).await?;
        }
        if !due.is_empty() {
            self.shared.receipts.notify_one();
        }
        Ok(more)
    }

    /// Tries a message now; None if another one has it.
    pub async fn try_once(
        &self,
        reader: &mut Reader,
        registry: Option<&Registry>,
        waiting: &Waiting,
    ) -> Result<Option<Outcome>, Untried> {
        let item = item(reader, registry, waiting).await?;
        let unexpected = |what: &str| StoreError::Unexpected(what.to_owned());
        let Entry::Message { key, message } = &item.entry else {
            return Err(unexpected("a message set aside is none any more: has its route changed?").into());
        };
        if *key != waiting.key {
            return Err(unexpected("a message set aside has another id now").into());
        }
        let mut tx = self.shared.store.begin().await?;
        let token = rand::rng().random::<i64>();
        if !tx.take_waiting(waiting, token).await? {
            tx.rollback().await;
            return Ok(None);
        }
        let delivery = Delivery { message, record: &item.record };
        let outcome = match apply_alone(&self.shared, &mut tx, &delivery).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tx.rollback().await;
                return Err(error.into());
            }
        };
        let attempts = waiting.attempts + 1;
        let outcome = self.bounded(outcome, attempts);
        settle_alone(&self.shared, &mut tx, &item, &outcome, (attempts, &waiting.received_at)).await?;
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

async fn item(reader: &mut Reader, registry: Option<&Registry>, waiting: &Waiting) -> Result<Item, Untried> {
    let line = std::str::from_utf8(&waiting.record)
        .map_err(|_| StoreError::Unexpected("a record line is not UTF-8".into()))?;
    let record = record_line::read(line).map_err(|error| StoreError::Unexpected(format!("a record line: {error}")))?;
    // The topic's generation stands in the keys of records without an id alone, and those are never set aside.
    let entry = intake::entry(reader, &record, 0, registry).await.map_err(Untried::Unread)?;
    Ok(Item { record, entry })
}
