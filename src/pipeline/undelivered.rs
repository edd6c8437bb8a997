//! What the relay is told: which lanes have receipts that it has not looked for yet, and the receipts themselves as
//! long as they are few.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::status::LaneName;
use crate::store::outbox::PendingReceipt;

/// Lanes with new receipts.
#[derive(Debug, Default)]
pub struct Undelivered {
    told: Mutex<Told>,
    notify: Notify,
}

/// What was told since the last time.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    /// The lanes' new receipts in the order in which they were enqueued, or none where they are to be looked for.
    pub lanes: HashMap<LaneName, Vec<PendingReceipt>>,
    /// Any lane may have some.
    pub any: bool,
    /// Of the receipts that are kept.
    bytes: usize,
}

/// Bytes of receipts that are kept for a relay that lags behind. What is more is read from the outbox.
const MOST_BYTES: usize = 8 << 20;

impl Undelivered {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit of this lane left receipts.
    pub fn of(&self, lane: &LaneName) {
        self.hand(lane, Vec::new());
    }

    /// A commit of this lane left these receipts, or others if there are none of them.
    pub fn hand(&self, lane: &LaneName, receipts: Vec<PendingReceipt>) {
        let mut told = self.lock();
        let told = &mut *told;
        let bytes = size(&receipts);
        let fits = told.bytes + bytes <= MOST_BYTES;
        let lane = told.lanes.entry(lane.clone());
        match lane {
            Entry::Vacant(lane) => {
                told.bytes += if fits { bytes } else { 0 };
                lane.insert(if fits { receipts } else { Vec::new() });
            }
            Entry::Occupied(mut lane) if fits && !lane.get().is_empty() && !receipts.is_empty() => {
                told.bytes += bytes;
                lane.get_mut().extend(receipts);
            }
            // None is missing among those that are kept: then all of them are looked for.
            Entry::Occupied(mut lane) => {
                told.bytes -= size(lane.get());
                lane.insert(Vec::new());
            }
        }
        self.notify.notify_one();
    }

    /// Some commit left receipts, of whatever lane.
    pub fn of_any(&self) {
        self.lock().any = true;
        self.notify.notify_one();
    }

    /// Waits until there is something to look for.
    pub async fn told(&self) {
        self.notify.notified().await;
    }

    /// What was told since the last time.
    pub fn take(&self) -> Told {
        std::mem::take(&mut *self.lock())
    }
}

fn size(receipts: &[PendingReceipt]) -> usize {
    receipts.iter().map(|receipt| size_of::<PendingReceipt>() + receipt.receipt.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(partition: i32) -> LaneName {
        ("t".into(), partition)
    }

    fn receipts(ids: std::ops::Range<i64>) -> Vec<PendingReceipt> {
        let receipt = |id| PendingReceipt {
            id,
            receipt_id: format!("r-{id}"),
            receipt_key: String::new(),
            receipt: String::new(),
            created_ms: 0,
        };
        ids.map(receipt).collect()
    }

    #[tokio::test]
    async fn what_was_told_is_taken_once() {
        let undelivered = Undelivered::default();
        undelivered.of(&lane(1));
        undelivered.hand(&lane(2), receipts(1..3));
        undelivered.of(&lane(1));
        undelivered.hand(&lane(2), receipts(3..5));
        undelivered.told().await;
        let lanes = HashMap::from([(lane(1), Vec::new()), (lane(2), receipts(1..5))]);
        assert_eq!(undelivered.take().lanes, lanes);
        assert_eq!(undelivered.take(), Told::default());
        undelivered.of_any();
        assert_eq!(undelivered.take(), Told { any: true, ..Told::default() });
        assert_eq!(undelivered.take(), Told::default());
    }

    #[test]
    fn what_is_not_handed_over_or_too_much_is_looked_for() {
        let undelivered = Undelivered::default();
        let handed = |parts: [std::ops::Range<i64>; 3]| {
            for part in parts {
                undelivered.hand(&lane(1), receipts(part));
            }
            undelivered.take().lanes.remove(&lane(1)).unwrap().len()
        };
        assert_eq!(handed([1..2, 2..3, 3..4]), 3);
        assert_eq!(handed([1..2, 0..0, 3..4]), 0);
        assert_eq!(handed([0..0, 2..3, 3..4]), 0);
        let most = (MOST_BYTES / size_of::<PendingReceipt>()) as i64;
        assert_eq!(handed([0..2000, 2000..most, most..most + 1]), 0);
        assert_eq!(handed([0..2000, 2000..most - 1, most - 1..most]), most as usize);
    }
}
