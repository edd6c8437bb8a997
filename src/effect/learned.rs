//! What an effect has learned of the database, for a while.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// It is looked at again after this: a column that was made narrower would round without an error.
const LEARNED_FOR: Duration = Duration::from_secs(10);

/// Learned at the first use, and anew when it is old or was forgotten.
pub(super) struct Learned<T>(RwLock<Option<(Arc<T>, Instant)>>);

impl<T> Learned<T> {
    pub fn known(&self) -> Option<Arc<T>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(_, at)| at.elapsed() < LEARNED_FOR).map(|(what, _)| Arc::clone(what))
    }

    pub fn learn(&self, what: T) -> Arc<T> {
        let what = Arc::new(what);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((Arc::clone(&what), Instant::now()));
        what
    }

    pub fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<T> Default for Learned<T> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}
