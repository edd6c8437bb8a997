//! Lanes that write the same rows in different orders deadlock with each other, batch after batch, and every time the
//! server lets a second pass before it says so. After a deadlock they take turns for a while: slower than side by side,
//! and far faster than one deadlock after the other.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How long after the last deadlock the lanes take turns.
const CONTENDED: Duration = Duration::from_secs(60);

/// The turns of one pipeline's lanes in this process. Lanes of other processes are met at a lock in the database.
pub struct Turns {
    one: Semaphore,
    until: Mutex<Option<Instant>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { one: Semaphore::new(1), until: Mutex::new(None) }
    }
}

impl Turns {
    /// Two transactions waited for each other.
    pub fn deadlocked(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + CONTENDED);
    }

    /// Waits for this lane's turn; None where none is needed.
    pub async fn take(&self) -> Option<SemaphorePermit<'_>> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_none_or(|until| Instant::now() >= until) {
            return None;
        }
        // Never closed: an error would mean nothing else.
        self.one.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_are_taken_after_a_deadlock_only() {
        let turns = Turns::default();
        assert!(turns.take().await.is_none());
        turns.deadlocked();
        let first = turns.take().await;
        assert!(first.is_some());
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, turns.take()).await.is_err(), "two at once");
        drop(first);
        assert!(turns.take().await.is_some());
    }
}
