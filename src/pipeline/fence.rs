//! By what right a transaction runs: the lane's row under its lock, or none where the inbox row is the fence.

use super::attempt::{Attempt, Attempted};
use super::batch::{Entry, Item};
use super::settle::OPERATOR;
use crate::store::lanes::{LaneRow, SKIP_NEXT};
use crate::store::{StoreError, Tx};

impl Attempt<'_> {
    /// What of an operator's skip is still to come after this slice.
    pub(super) fn skip_left(&self, row: &LaneRow) -> Option<i64> {
        let to = row.skip_to?;
        let left = if to == SKIP_NEXT { !self.items.iter().any(by_operator) } else { to > self.next_offset };
        left.then_some(to)
    }

    /// The fence; None if another owner has the lane.
    pub(super) async fn enter(&self, tx: &mut Tx) -> Result<Option<LaneRow>, StoreError> {
        match self.lane.tenure {
            Some(_) => Ok(tx.fence(&self.lane.key).await?.filter(|row| self.owns(row))),
            None => Ok(Some(LaneRow::unassigned(self.lane.generation, tx.now().await?))),
        }
    }

    pub(super) fn owns(&self, row: &LaneRow) -> bool {
        self.lane.tenure.as_ref().is_some_and(|tenure| tenure.owns(row, self.known_next))
    }

    pub(super) fn stop(&self, row: &LaneRow) -> Option<Attempted> {
        if let Some(reason) = &row.paused {
            return Some(Attempted::Paused(reason.clone()));
        }
        let to = match row.skip_to? {
            SKIP_NEXT => {
                let item = self.items.iter().find(|item| !matches!(item.entry, Entry::Skip(_)))?;
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
