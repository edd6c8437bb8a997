//! Which value of a message the database refuses: Postgres does not say which column it was for.

use crate::decision::Outcome;
use crate::effect::{Delivery, Effect};
use crate::receipt::code;
use crate::store::{Dialect, StoreError, Tx};

const BLAME: &str = "countersign_blame";

/// Adds to a refusal which value it speaks of. Learning what the columns are is a statement too, whose failure
/// would abort the transaction: all of it is undone.
///
/// # Errors
/// The transaction was interrupted: nothing is known of the value, and the message is to be run again.
pub(crate) async fn blame(
    effect: &dyn Effect,
    tx: &mut Tx,
    delivery: &Delivery<'_>,
    outcome: &mut Outcome,
) -> Result<(), StoreError> {
    let Outcome::Refused(refusal) = outcome else { return Ok(()) };
    if refusal.code != code::DATA_REFUSED || tx.dialect() != Dialect::Postgres {
        return Ok(());
    }
    tx.savepoint(BLAME).await?;
    let found = effect.culprit(tx, delivery).await;
    tx.rollback_to(BLAME).await?;
    match found {
        Ok(Some(place)) => refusal.reason = format!("{place}: {}", refusal.reason),
        Err(error) if error.is_interruption() => return Err(error),
        Ok(None) | Err(_) => {}
    }
    Ok(())
}
