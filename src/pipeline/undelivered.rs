//! What the relay is told: which lanes have receipts that it has not looked for yet.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::status::LaneName;

/// Lanes with new receipts.
#[derive(Debug, Default)]
pub struct Undelivered {
    lanes: Mutex<Lanes>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Lanes {
    some: HashSet<LaneName>,
    any: bool,
}

impl Undelivered {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit of this lane left receipts.
    pub fn of(&self, lane: &LaneName) {
        let mut lanes = self.lock();
        if !lanes.some.contains(lane) {
            lanes.some.insert(lane.clone());
        }
        drop(lanes);
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

    /// What was told since the last time: these lanes, or None for all of them.
    pub fn take(&self) -> Option<HashSet<LaneName>> {
        let Lanes { some, any } = std::mem::take(&mut *self.lock());
        (!any).then_some(some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_told_is_taken_once() {
        let undelivered = Undelivered::default();
        let lane = |partition| ("t".into(), partition);
        undelivered.of(&lane(1));
        undelivered.of(&lane(2));
        undelivered.of(&lane(1));
        undelivered.told().await;
        assert_eq!(undelivered.take(), Some(HashSet::from([lane(1), lane(2)])));
        assert_eq!(undelivered.take(), Some(HashSet::new()));
        undelivered.of(&lane(1));
        undelivered.of_any();
        assert_eq!(undelivered.take(), None);
        assert_eq!(undelivered.take(), Some(HashSet::new()));
    }
}
