//! A change of a primary key, which Debezium sends as a delete of the old key and a create of the new one, applied as
//! one move of the row: what the create does not bring (TOAST, columns of the target's own) must not die with the
//! delete.
//!
//! The halves have different Kafka keys, so they may be in different lanes and come in either order. Which of them
//! came first is read off `row_versions`, with or without a guard: both lock the versions of both keys, and so come one
//! after the other even in two transactions. They share one position `p`.
//!
//! | comes            | the other half  | row of the new key | done |
//! |------------------|-----------------|--------------------|------|
//! | delete half      | came            | any                | the old row is deleted if it is still there |
//! | delete half      | to come         | none               | the row is moved; the new key is just before `p`, so that earlier changes of it are stale and the create is not |
//! | delete half      | to come         | of an earlier life | waits until that has ended; the old row is deleted where it cannot wait |
//! | create half      | came            | none, or moved     | written as any create |
//! | create half      | came            | of an earlier life | the same if it is whole; else parked, for the old row was overwritten while its move waited |
//! | create half      | to come, whole  | none               | the row is moved with its new values; the old key is just before `p`, so that earlier changes of it are stale |
//! | create half      | to come, whole  | of an earlier life | the old row is deleted, then written as any create |
//! | create half      | to come, partly | any                | waits for the delete half, for the old row may not be complete before it; moved or written as it stands where it cannot wait |
//!
//! Waiting (set aside and tried again) is for guarded routes with an inbox: elsewhere a later change would be
//! overtaken. Meanwhile the version of its key is just before `p`, too. What stands under a key of which a half is to come
//! is not whole, or not the row that it will be: changes that do not bring all columns wait as well, and so does the
//! next move.

use super::TableEffect;
use super::columns::{Cells, Columns};
use super::key::RowKey;
use super::versions::Versions;
use super::write::Moved;
use crate::debezium::guard::GuardPosition;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::effect::spec::Guard;
use crate::store::{StoreError, Tx};

/// The other half of the change, and where in the origin's log both stand.
#[derive(Clone, Copy)]
pub(super) struct Halves<'a> {
    pub old: &'a RowKey,
    pub new: &'a RowKey,
    pub position: &'a GuardPosition,
    pub just_before: &'a GuardPosition,
}

impl TableEffect {
    /// Whether a message may be set aside without harm: what overtakes it is not overwritten when it is tried again.
    pub(super) fn may_wait(&self) -> bool {
        self.spec.guard == Guard::Source && self.spec.inbox
    }

    pub(super) async fn delete_half(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        halves: Halves<'_>,
        versions: &mut Versions,
    ) -> Result<Outcome, StoreError> {
        let Halves { old, new, position, just_before } = halves;
        if versions.reaches(new, position) {
            self.delete_but(tx, columns, (old, new)).await?;
        } else if self.may_wait() && versions.awaits_half(old, Some(just_before)) {
            return Ok(wait("key_change", "the row is to move on before the create that gave it its key".to_owned()));
        } else {
            match self.move_row(tx, columns, (old, new), None).await? {
                Moved::Yes => versions.set(new, just_before, false),
                Moved::Absent => {}
                Moved::Taken if self.may_wait() && versions.position(new).is_some() => {
                    versions.set(old, just_before, false);
                    let reason = "the new key is still another row's: its delete is to come".to_owned();
                    return Ok(wait("key_change", reason));
                }
                Moved::Taken => self.delete_but(tx, columns, (old, new)).await?,
            }
        }
        if !versions.reaches(old, position) {
            versions.set(old, position, true);
        }
        Ok(Outcome::Applied)
    }

    pub(super) async fn create_half(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        halves: Halves<'_>,
        cells: &Cells,
        versions: &mut Versions,
    ) -> Result<Outcome, StoreError> {
        let Halves { old, new, position, just_before } = halves;
        let mut outcome = None;
        if !versions.reaches(old, position) {
            let (whole, taken) = (cells.unavailable.is_empty(), self.taken(tx, columns, (new, old)).await?);
            if !whole && self.may_wait() {
                if !taken {
                    versions.set(new, just_before, false);
                }
                let missing = cells.unavailable.join(", ");
                return Ok(wait(
                    "unavailable",
                    format!(
                        "the connector did not send {missing} (TOAST), and the delete of the row's old key is to come"
                    ),
                ));
            }
            if whole && taken {
                self.delete_but(tx, columns, (old, new)).await?;
            }
            if !taken && self.move_row(tx, columns, (old, new), Some(cells)).await? == Moved::Yes {
                outcome = Some(Outcome::Applied);
            }
            if whole || outcome.is_some() {
                versions.set(old, just_before, true);
            }
        } else if !cells.unavailable.is_empty()
            && versions.position(new).is_some_and(|at| at != *just_before)
            && self.taken(tx, columns, (new, old)).await?
        {
            // The delete half was overtaken by a new life of the old key while it waited.
            let missing = cells.unavailable.join(", ");
            let reason = format!(
                "the row of the new key is one of an earlier life, and the connector did not send {missing} (TOAST)"
            );
            return Ok(refused(RefusalKind::Park, "unavailable", reason));
        }
        let outcome = match outcome {
            Some(moved) => moved,
            None => self.write(tx, columns, new, cells).await?,
        };
        if outcome == Outcome::Applied && !versions.reaches(new, position) {
            versions.set(new, position, false);
        }
        Ok(outcome)
    }
}

/// The message is set aside and tried again.
pub(super) fn wait(code: &str, reason: String) -> Outcome {
    refused(RefusalKind::Retry, code, reason)
}

/// Nothing was written but versions, which hold all the same.
fn refused(kind: RefusalKind, code: &str, reason: String) -> Outcome {
    Outcome::Refused(Refusal { kind, code: code.to_owned(), reason, clean: true })
}
