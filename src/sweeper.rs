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
use crate::pipeline::attempt::blame;
use crate::pipeline::batch::{Entry, Item, Reader};
use crate::pipeline::intake;
use crate::pipeline::settle::settle_alone;
use crate::receipt::code;
use crate::record_line;
use crate::store::inbox_entries::Waiting;
use crate::store::{Meaning, StoreError};

pub struct Sweeper {
    pub shared: Arc<Shared>,
}

const LOOK: Duration = Duration::from_millis(500);
const ROUND: i64 = 100;
const SAVEPOINT: &str = "countersign_waiting";

impl Sweeper {
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let more = match self.round().await {
                Ok(count) => count == ROUND as usize,
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

    /// Tries every message whose time has come; the answer is how many there were.
    pub async fn round(&self) -> Result<usize, StoreError> {
        let due =
            self.shared.store.due_waiting(&self.shared.pipeline, self.shared.by_key.contains(&true), ROUND).await?;
        let mut reader = Reader::new(Arc::clone(&self.shared.reader));
        for waiting in &due {
            if let Err(error) = self.try_once(&mut reader, waiting).await {
                // One that cannot be tried must not hold up the others: it comes again later.
                warn!(%error, "a message set aside could not be tried");
                let delay = self.shared.options.retry.delay_after(waiting.attempts).as_millis() as i64;
                self.shared.store.postpone(waiting, delay).await?;
            }
        }
        if !due.is_empty() {
            self.shared.receipts.notify_one();
        }
        Ok(due.len())
    }

    async fn try_once(&self, reader: &mut Reader, waiting: &Waiting) -> Result<(), StoreError> {
        let item = self.item(reader, waiting).await?;
        let Entry::Message { key, message } = &item.entry else {
            return Err(StoreError::Unexpected(
                "a message set aside is none any more: has its route changed?".to_owned(),
            ));
        };
        if *key != waiting.key {
            return Err(StoreError::Unexpected("a message set aside has another id now".to_owned()));
        }
        let mut tx = self.shared.store.begin().await?;
        let token = rand::rng().random::<i64>();
        if !tx.take_waiting(waiting, token).await? {
            tx.rollback().await;
            return Ok(());
        }
        tx.savepoint(SAVEPOINT).await?;
        let delivery = Delivery { message, record: &item.record };
        let effect = &self.shared.effects[message.route];
        let mut outcome = match effect.apply(&mut tx, &delivery).await {
            Ok(outcome) => outcome,
            Err(error) if matches!(error.meaning(), Meaning::Transient | Meaning::Fatal) => {
                effect.forget();
                tx.rollback().await;
                return Err(error);
            }
            Err(error) => Outcome::Refused(Refusal {
                kind: RefusalKind::Park,
                code: code::DATA_REFUSED.to_owned(),
                reason: error.for_people(),
                clean: false,
            }),
        };
        let attempts = waiting.attempts + 1;
        if matches!(outcome, Outcome::Refused(_)) {
            tx.rollback_to(SAVEPOINT).await?;
            blame(&**effect, &mut tx, &delivery, &mut outcome).await;
        }
        let outcome = match tx.check_deferred().await {
            Ok(()) => outcome,
            Err(error) => {
                let outcome = effect.violated(&error).ok_or(error)?;
                tx.rollback_to(SAVEPOINT).await?;
                outcome
            }
        };
        let outcome = self.bounded(outcome, attempts);
        settle_alone(&self.shared, &mut tx, &item, &outcome, (attempts, &waiting.received_at)).await?;
        match tx.commit().await {
            // Unknown: the row tells at the next look, for it is either still waiting or finished.
            Err(error @ StoreError::CommitUnknown(_)) => {
                warn!(%error, "a message set aside is looked at again");
                Ok(())
            }
            other => other,
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

    async fn item(&self, reader: &mut Reader, waiting: &Waiting) -> Result<Item, StoreError> {
        let line = std::str::from_utf8(&waiting.record)
            .map_err(|_| StoreError::Unexpected("a record line is not UTF-8".into()))?;
        let record =
            record_line::read(line).map_err(|error| StoreError::Unexpected(format!("a record line: {error}")))?;
        match intake::entry(reader, &record, 0, self.shared.registry.as_ref()).await {
            Ok(entry) => Ok(Item { record, entry }),
            Err(hindrance) => Err(StoreError::Unexpected(hindrance.into_reason())),
        }
    }
}
