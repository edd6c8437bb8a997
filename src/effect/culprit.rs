//! Finds out which value a database refuses, where its error does not say.

use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::receipt::code;
use crate::store::{Bind, Meaning, StoreError, Tx};

const SAVEPOINT: &str = "countersign_culprit";

/// Casts each value by itself to the type of its place; the first one that the database refuses is it. Only for
/// Postgres: MySQL and SQLite name the column in their message.
///
/// # Errors
/// A question that got no answer of its own tells nothing of the value: a statement that was cancelled, say.
pub(super) async fn find(tx: &mut Tx, values: Vec<(String, String, Bind)>) -> Result<Option<String>, StoreError> {
    let dialect = tx.dialect();
    for (name, cast, bind) in values {
        if !matches!(bind, Bind::Text(_)) {
            continue;
        }
        tx.savepoint(SAVEPOINT).await?;
        let tried = tx.fetch(&format!("SELECT {} IS NULL", dialect.cast("$1", &cast)), vec![bind]).await;
        tx.rollback_to(SAVEPOINT).await?;
        match tried {
            Err(error) if error.is_unreadable() || matches!(error.meaning(), Meaning::Poison | Meaning::Check) => {
                return Ok(Some(name));
            }
            Err(error) if error.is_interruption() => return Err(error),
            Err(_) | Ok(_) => {}
        }
    }
    Ok(None)
}

/// A text that the type of its place cannot read, in a statement that was prepared before: a fault of the message and
/// not of the statement.
pub(super) fn unreadable(error: &StoreError) -> Option<Outcome> {
    error.is_unreadable().then(|| refused(error))
}

/// The same for many messages: none of them is to blame yet, and message by message it is told. So it is with two keys that
/// are one to the database, by a collation, in one upsert of many rows.
pub(super) fn to_be_told_apart(error: &StoreError) -> Option<Outcome> {
    (error.is_unreadable() || error.is_repeated_row()).then(|| refused(error))
}

fn refused(error: &StoreError) -> Outcome {
    let (code, reason) = (code::DATA_REFUSED.to_owned(), error.for_people());
    Outcome::Refused(Refusal { kind: RefusalKind::Park, code, reason, clean: false })
}
