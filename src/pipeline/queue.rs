//! With `order = "key"` a message that waits holds up those of its own key that come behind it, and no others.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use super::Shared;
use super::attempt::Attempt;
use super::judge::Judgement;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::Delivery;
use crate::record::Record;
use crate::route::Order;
use crate::store::queues::{OrderKey, QueuePlace};
use crate::store::{StoreError, Tx};

/// The keys of a batch that are held up.
#[derive(Debug, Default)]
pub(super) struct Queues(HashSet<OrderKey>);

impl Queues {
    /// What becomes of a message behind one that waits: it waits too.
    pub fn behind(&self, key: Option<OrderKey>) -> Option<Outcome> {
        self.0.contains(&key?).then(|| waits("behind", "an earlier message of its key waits"))
    }

    /// Notes that a message waits from now on.
    pub fn note(&mut self, key: Option<OrderKey>, outcome: &Outcome) {
        self.0.extend(key.filter(|_| outcome.is_retry()));
    }
}

/// The queue that a message stands in; none where its route has another order, or its record no key.
pub(super) fn order_key(shared: &Shared, route: usize, record: &Record) -> Option<OrderKey> {
    if shared.order[route] != Order::Key {
        return None;
    }
    record.key.as_deref().map(|key| Sha256::digest(key).into())
}

/// A message that nothing is written for now.
pub(crate) fn waits(code: &str, reason: &str) -> Outcome {
    let (code, reason) = (code.to_owned(), reason.to_owned());
    Outcome::Refused(Refusal { kind: RefusalKind::Retry, code, reason, clean: true })
}

impl Attempt<'_> {
    pub(super) fn order_key(&self, delivery: &Delivery<'_>) -> Option<OrderKey> {
        order_key(self.shared, delivery.message.route, delivery.record)
    }

    /// The keys of this batch for which a message waits already.
    pub(super) async fn queues(&self, tx: &mut Tx, judgements: &[Judgement<'_>]) -> Result<Queues, StoreError> {
        let mut keys: Vec<OrderKey> = Vec::new();
        for (item, judgement) in self.items.iter().zip(judgements) {
            if let Judgement::First { message, .. } = judgement {
                keys.extend(self.order_key(&Delivery { message, record: &item.record }));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() { Ok(Queues::default()) } else { tx.waiting_keys(self.place(), &keys).await.map(Queues) }
    }

    pub(super) fn place(&self) -> QueuePlace<'_> {
        let lane = &self.lane.key;
        QueuePlace { pipeline: &lane.pipeline, topic: &lane.topic, partition: lane.partition }
    }
}
