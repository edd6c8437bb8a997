//! By what right a transaction runs: the lane's row under its lock, or none where the inbox row is the fence.

use super::attempt::{Attempt, Attempted};
use super::batch::{Entry, Item};
use super::settle::OPERATOR;
use super::tenure::Trace;
use crate::store::lanes::{LaneRow, SKIP_NEXT};
use crate::store::{StoreError, Tx};

impl Attempt<'_> {
    /// What of an operator's skip is still to come once the lane has come to `next_offset`.
    pub(super) fn skip_left(&self, row: &LaneRow, next_offset: i64) -> Option<i64> {
        let to = row.skip_to?;
        let left = if to == SKIP_NEXT { !self.items.iter().any(by_operator) } else { to > next_offset };
        left.then_some(to)
    }

    /// The fence; None if another owner has the lane.
    pub(super) async fn enter(&self, tx: &mut Tx) -> Result<Option<LaneRow>, StoreError> {
        match self.lane.tenure {
            Some(_) => {
                // Before the row is read: another slice may commit behind that, and the row would seem to have gone back.
                let known = self.known.get();
                let row = match self.slices {
                    None => tx.fence(&self.lane.key).await?,
                    Some(_) => tx.fence_slice(&self.lane.key).await?,
                };
                Ok(row.filter(|row| self.owns(row, known)))
            }
            None => Ok(Some(LaneRow::unassigned(self.lane.generation, tx.now().await?))),
        }
    }

    pub(super) fn owns(&self, row: &LaneRow, known: Trace) -> bool {
        self.lane.tenure.as_ref().is_some_and(|tenure| tenure.owns(row, known))
    }

    /// The first record of the lane that something is to be done for, where others are at work beside. To be asked before the
    /// row is read: a skip that the row still wants may be about one that is done a moment later.
    pub(super) fn first_due(&self) -> Option<i64> {
        self.slices.and_then(|slices| slices.outstanding().first_due())
    }

    pub(super) fn stop(&self, row: &LaneRow, first_due: Option<i64>) -> Option<Attempted> {
        if let Some(reason) = &row.paused {
            return Some(Attempted::Paused(reason.clone()));
        }
        let to = match row.skip_to? {
            SKIP_NEXT => {
                let item = self.items.iter().find(|item| !matches!(item.entry, Entry::Skip(_)))?;
                // Of several slices it is the one at whose record the lane stands.
                if self.slices.is_some() && first_due != Some(item.record.position.offset) {
                    return None;
                }
                item.record.position.offset + 1
            }
            to => to,
        };
        let skips = |item: &Item| {
            item.record.position.offset < to && !by_operator(item) && !matches!(item.entry, Entry::Skip(_))
        };
        self.items.iter().any(skips).then_some(Attempted::Skip { to })
    }
}

fn by_operator(item: &Item) -> bool {
    matches!(&item.entry, Entry::Faulty(faulty) if faulty.class == OPERATOR)
}
