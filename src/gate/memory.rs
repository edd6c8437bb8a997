//! A gate inside the process: an LRU with a bound in bytes.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lru::LruCache;

use super::{Gate, GateAnswer, GateKey, Mark, Stored};

/// About what one entry takes: key, mark with its texts, list and map nodes.
const ENTRY_BYTES: usize = 512;

pub struct MemoryGate {
    entries: Mutex<LruCache<[u8; 32], (Stored, Instant)>>,
    claim_ttl: Duration,
    confirm_ttl: Duration,
}

impl MemoryGate {
    /// Holds at most about `bytes` bytes; the entries that were used least are forgotten first.
    pub fn new(bytes: usize, claim_ttl: Duration, confirm_ttl: Duration) -> Self {
        let entries = NonZeroUsize::new(bytes / ENTRY_BYTES).unwrap_or(NonZeroUsize::MIN);
        Self { entries: Mutex::new(LruCache::new(entries)), claim_ttl, confirm_ttl }
    }

    fn with_entries<T>(&self, work: impl FnOnce(&mut LruCache<[u8; 32], (Stored, Instant)>) -> T) -> T {
        // A panic inside the short sections below cannot leave an entry half-written.
        work(&mut self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[async_trait]
impl Gate for MemoryGate {
    async fn claim(&self, keys: &[GateKey], token: u64) -> Vec<GateAnswer> {
        let now = Instant::now();
        self.with_entries(|entries| {
            let mut answer = |key: &GateKey| {
                let live = entries.get(&key.hash).filter(|(_, until)| *until > now);
                match live {
                    Some((Stored::Mark(mark), _)) => GateAnswer::Confirmed(mark.clone()),
                    Some((Stored::Claim(_), _)) => GateAnswer::Busy,
                    None => {
                        entries.put(key.hash, (Stored::Claim(token), now + self.claim_ttl));
                        GateAnswer::Claimed
                    }
                }
            };
            keys.iter().map(&mut answer).collect()
        })
    }

    async fn confirm(&self, marks: &[Mark]) {
        let until = Instant::now() + self.confirm_ttl;
        self.with_entries(|entries| {
            for mark in marks {
                entries.put(mark.key_hash, (Stored::Mark(mark.clone()), until));
            }
        });
    }

    async fn release(&self, keys: &[GateKey], token: u64) {
        self.with_entries(|entries| {
            for key in keys {
                if matches!(entries.peek(&key.hash), Some((Stored::Claim(owner), _)) if *owner == token) {
                    entries.pop(&key.hash);
                }
            }
        });
    }

    fn healthy(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mark;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_claim_is_granted_once_and_released_by_its_owner_alone() {
        let gate = MemoryGate::new(1 << 20, LONG, LONG);
        let key = [GateKey::new(b"a")];
        assert_eq!(gate.claim(&key, 1).await, [GateAnswer::Claimed]);
        assert_eq!(gate.claim(&key, 2).await, [GateAnswer::Busy]);
        gate.release(&key, 2).await;
        assert_eq!(gate.claim(&key, 2).await, [GateAnswer::Busy]);
        gate.release(&key, 1).await;
        assert_eq!(gate.claim(&key, 2).await, [GateAnswer::Claimed]);
    }

    #[tokio::test]
    async fn a_confirmed_key_shows_its_mark_and_a_release_leaves_it() {
        let gate = MemoryGate::new(1 << 20, LONG, LONG);
        let key = GateKey::new(b"a");
        gate.claim(std::slice::from_ref(&key), 1).await;
        gate.confirm(&[mark(&key)]).await;
        gate.release(std::slice::from_ref(&key), 1).await;
        assert_eq!(gate.claim(std::slice::from_ref(&key), 2).await, [GateAnswer::Confirmed(mark(&key))]);
    }

    #[tokio::test]
    async fn what_is_over_time_or_over_the_bound_is_forgotten() {
        let gate = MemoryGate::new(1 << 20, Duration::ZERO, LONG);
        let key = [GateKey::new(b"a")];
        gate.claim(&key, 1).await;
        assert_eq!(gate.claim(&key, 2).await, [GateAnswer::Claimed]);
        let small = MemoryGate::new(ENTRY_BYTES, LONG, LONG);
        small.claim(&[GateKey::new(b"a")], 1).await;
        small.claim(&[GateKey::new(b"b")], 1).await;
        assert_eq!(small.claim(&[GateKey::new(b"a")], 2).await, [GateAnswer::Claimed]);
    }
}
