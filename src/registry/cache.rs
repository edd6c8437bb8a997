//! What a registry has told, and the questions that are under way.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use lru::LruCache;

use super::error::RegistryError;
use crate::debezium::avro::{SchemaId, WriterSchema};
use crate::debezium::event::Fault;

pub(super) type Answer = Result<Arc<WriterSchema>, RegistryError>;
pub(super) type Flight = BoxFuture<'static, Answer>;

/// Bounded by count. Schemas stand until they are pushed out, for an id never changes its meaning; "there is no such
/// id" stands for a while; outages are not kept.
pub(super) struct Cache {
    state: Mutex<State>,
    remember: Duration,
}

struct State {
    schemas: LruCache<SchemaId, Result<Arc<WriterSchema>, Fault>>,
    missing: LruCache<SchemaId, (Instant, RegistryError)>,
    /// Whoever asks holds the question and drives it; when the last one is dropped, it ends.
    flights: HashMap<SchemaId, WeakShared<Flight>>,
}

/// What is there for one who asks.
pub(super) enum Found {
    Answer(Answer),
    Flight(Shared<Flight>),
}

impl Cache {
    pub fn new(capacity: usize, remember: Duration) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let state =
            State { schemas: LruCache::new(capacity), missing: LruCache::new(capacity), flights: HashMap::new() };
        Self { state: Mutex::new(state), remember }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn schema(&self, id: SchemaId) -> Option<Result<Arc<WriterSchema>, Fault>> {
        self.with(|state| state.schemas.get(&id).cloned())
    }

    /// The answer that is known, or the question that is under way, or a new one.
    pub fn look_up(&self, id: SchemaId, start: impl FnOnce() -> Flight) -> Found {
        self.with(|state| {
            if let Some(known) = state.schemas.get(&id) {
                return Found::Answer(known.clone().map_err(RegistryError::BadSchema));
            }
            if let Some((until, error)) = state.missing.get(&id) {
                if Instant::now() < *until {
                    return Found::Answer(Err(error.clone()));
                }
                state.missing.pop(&id);
            }
            if let Some(flight) = state.flights.get(&id).and_then(WeakShared::upgrade) {
                return Found::Flight(flight);
            }
            state.flights.retain(|_, flight| flight.upgrade().is_some());
            let flight = start().shared();
            // A question that nobody has polled yet can always be shared.
            if let Some(weak) = flight.downgrade() {
                state.flights.insert(id, weak);
            }
            Found::Flight(flight)
        })
    }

    /// A question has its answer.
    pub fn landed(&self, id: SchemaId, answer: &Answer) {
        self.with(|state| {
            state.flights.remove(&id);
            match answer {
                Ok(schema) => {
                    state.schemas.put(id, Ok(Arc::clone(schema)));
                }
                Err(RegistryError::BadSchema(fault)) => {
                    state.schemas.put(id, Err(fault.clone()));
                }
                Err(error @ RegistryError::NotFound { .. }) => {
                    state.missing.put(id, (Instant::now() + self.remember, error.clone()));
                }
                Err(
                    RegistryError::Unavailable { .. }
                    | RegistryError::Denied { .. }
                    | RegistryError::Misconfigured { .. }
                    | RegistryError::Ambiguous { .. },
                ) => {}
            }
        });
    }
}
