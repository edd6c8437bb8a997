//! One message by itself, outside its lane: set aside before, or redriven by an operator.

use super::Shared;
use super::blame::blame;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::Delivery;
use crate::receipt::code;
use crate::store::{Meaning, StoreError, Tx};

const SAVEPOINT: &str = "countersign_alone";

/// Applies one message. What is refused is undone, and all else in the transaction stays.
///
/// # Errors
/// Nothing is known about the message: the transaction is to be rolled back, and tried again later.
pub(crate) async fn apply_alone(shared: &Shared, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
    let effect = &shared.effects[delivery.message.route];
    tx.savepoint(SAVEPOINT).await?;
    let mut outcome = match effect.apply(tx, delivery).await {
        Ok(outcome) => outcome,
        Err(error) if matches!(error.meaning(), Meaning::Transient | Meaning::Fatal) => {
            effect.forget();
            return Err(error);
        }
        Err(error) => data_refused(&error),
    };
    if outcome.needs_undo() {
        tx.rollback_to(SAVEPOINT).await?;
        blame(&**effect, tx, delivery, &mut outcome).await?;
    } else if let Err(error) = tx.check_deferred().await {
        outcome = effect.violated(&error).ok_or(error)?;
        tx.rollback_to(SAVEPOINT).await?;
    } else {
        tx.release_savepoint(SAVEPOINT).await?;
    }
    Ok(outcome)
}

/// What it is called when a database does not take a message's data.
pub(super) fn poison_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::TooLarge { .. } => code::TOO_LARGE,
        StoreError::Answer { .. }
        | StoreError::Connection(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Unexpected(_)
        | StoreError::Setup(_) => code::DATA_REFUSED,
    }
}

/// What a definite answer of the database means for the message whose effect it refused.
pub(crate) fn data_refused(error: &StoreError) -> Outcome {
    Outcome::Refused(Refusal {
        kind: RefusalKind::Park,
        code: poison_code(error).to_owned(),
        reason: error.for_people(),
        clean: false,
    })
}
