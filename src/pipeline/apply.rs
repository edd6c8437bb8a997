//! The effects of a batch: route by route in order, set-based where that is the same, with a savepoint each where one
//! must be undone by itself.

use std::collections::HashMap;

use super::alone::poison_code;
use super::attempt::{Attempt, Failure, Mode};
use super::blame::blame;
use super::judge::Judgement;
use super::queue::{self, Queues};
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::Delivery;
use crate::route::Order;
use crate::store::{Meaning, StoreError, Tx};

const SAVEPOINT: &str = "countersign_message";

pub(super) enum Applied {
    Outcomes(HashMap<usize, Outcome>),
    NeedsSavepoints,
}

impl Attempt<'_> {
    pub(super) async fn apply(
        &self,
        tx: &mut Tx,
        judgements: &[Judgement<'_>],
        late: HashMap<usize, Outcome>,
        mut queues: Queues,
    ) -> Result<Applied, Failure> {
        let mut outcomes = HashMap::with_capacity(judgements.len());
        let mut held = Vec::new();
        let due = judgements.iter().enumerate().filter_map(|(index, judgement)| match judgement {
            Judgement::First { .. } if late.contains_key(&index) => None,
            Judgement::First { message, .. } | Judgement::Unrecorded { message } => {
                let delivery = Delivery { message, record: &self.items[index].record };
                match self
                    .aside
                    .map(|why| queue::waits("transient", why))
                    .or_else(|| queues.behind(self.order_key(&delivery)))
                {
                    Some(outcome) => {
                        held.push((index, outcome));
                        None
                    }
                    None => Some((index, delivery)),
                }
            }
            Judgement::Skip(_) | Judgement::Park(_) | Judgement::Duplicate { .. } | Judgement::Conflict(_) => None,
        });
        let due: Vec<_> = due.collect();
        let mut due = due.into_iter();
        outcomes.extend(held);
        // What cannot be proved new is settled without its effect.
        outcomes.extend(late);
        let mut next = due.next();
        while let Some((first, delivery)) = next.take() {
            let route = delivery.message.route;
            let (mut indices, mut run) = (vec![first], vec![delivery]);
            for (index, delivery) in due.by_ref() {
                if delivery.message.route != route {
                    next = Some((index, delivery));
                    break;
                }
                indices.push(index);
                run.push(delivery);
            }
            match self.apply_run(tx, route, (&indices, &run), &mut queues).await? {
                Some(done) => outcomes.extend(indices.into_iter().zip(done)),
                None => return Ok(Applied::NeedsSavepoints),
            }
        }
        Ok(Applied::Outcomes(outcomes))
    }

    /// None if a message must be undone by itself.
    async fn apply_run(
        &self,
        tx: &mut Tx,
        route: usize,
        (indices, run): (&[usize], &[Delivery<'_>]),
        queues: &mut Queues,
    ) -> Result<Option<Vec<Outcome>>, Failure> {
        let effect = &self.shared.effects[route];
        let behind = run.iter().any(|delivery| queues.behind(self.order_key(delivery)).is_some());
        if self.mode == Mode::Plain
            && !behind
            && let Some(done) = effect.apply_all(tx, run).await
        {
            let outcomes = done?;
            // Whether a message waits is known only now, and what stands behind it was applied.
            let overtaken = |outcome: &Outcome| self.shared.order[route] == Order::Key && outcome.is_retry();
            return Ok((!outcomes.iter().any(|outcome| outcome.needs_undo() || overtaken(outcome))).then_some(outcomes));
        }
        let mut outcomes = Vec::with_capacity(run.len());
        for (index, delivery) in indices.iter().zip(run) {
            let at = |error| Failure { at: Some(*index), error };
            let order_key = self.order_key(delivery);
            if let Some(waits) = queues.behind(order_key) {
                outcomes.push(waits);
                continue;
            }
            if self.mode == Mode::Plain {
                let outcome = effect.apply(tx, delivery).await.map_err(at)?;
                if outcome.needs_undo() {
                    return Ok(None);
                }
                queues.note(order_key, &outcome);
                outcomes.push(outcome);
                continue;
            }
            tx.savepoint(SAVEPOINT).await?;
            let mut applied = effect.apply(tx, delivery).await;
            if applied.as_ref().is_ok_and(|outcome| !outcome.needs_undo()) {
                // What a deferred constraint would say at COMMIT, where nobody could tell whose answer it is.
                applied = match tx.check_deferred().await {
                    Ok(()) => applied,
                    // The transaction is aborted: even what is ignored must be undone.
                    Err(error) => match effect.violated(&error) {
                        Some(outcome) => {
                            tx.rollback_to(SAVEPOINT).await?;
                            queues.note(order_key, &outcome);
                            outcomes.push(outcome);
                            continue;
                        }
                        None => Err(error),
                    },
                };
            }
            let mut outcome = match applied {
                Ok(outcome) => outcome,
                Err(error) => match refusal(&error) {
                    Some(refusal) => Outcome::Refused(refusal),
                    None => return Err(at(error)),
                },
            };
            if outcome.needs_undo() {
                tx.rollback_to(SAVEPOINT).await?;
                blame(&**effect, tx, delivery, &mut outcome).await.map_err(at)?;
            } else {
                tx.release_savepoint(SAVEPOINT).await?;
            }
            queues.note(order_key, &outcome);
            outcomes.push(outcome);
        }
        Ok(Some(outcomes))
    }
}

/// A definite answer of the database about this message alone.
fn refusal(error: &StoreError) -> Option<Refusal> {
    let code = match error.meaning() {
        Meaning::Poison => poison_code(error),
        Meaning::Unique => "unique_violation",
        Meaning::ForeignKey => "foreign_key_violation",
        Meaning::Check => "check_violation",
        Meaning::Transient | Meaning::Fatal => return None,
    };
    Some(Refusal { kind: RefusalKind::Park, code: code.to_owned(), reason: error.for_people(), clean: false })
}
