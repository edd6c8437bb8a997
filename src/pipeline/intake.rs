//! Records into items, with the schemas that they need. The registry may be down for hours: the records wait, and the
//! lane says why.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::batch::{Entry, Item, Reader, Unready};
use super::processor::{Halt, PAUSED_LOOK, Processor, backoff};
use super::status::LaneState;
use crate::debezium::avro::{SchemaId, SchemaRef, WriterSchema};
use crate::debezium::event::Fault;
use crate::record::Record;
use crate::registry::{Registry, RegistryError};
use crate::store::lanes::{LaneKey, SKIP_NEXT};

/// Why a record cannot be read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It will pass.
    Outage { reason: String, retry_after: Option<Duration> },
    /// Somebody must look.
    Setup(String),
    /// The same, for the sake of this record's schema alone: others may be read.
    Ambiguous(String),
}

impl Hindrance {
    pub fn into_reason(self) -> String {
        match self {
            Self::Outage { reason, .. } | Self::Setup(reason) | Self::Ambiguous(reason) => reason,
        }
    }
}

/// What only somebody else can change is looked at this often.
const SETUP_LOOK: Duration = Duration::from_secs(5);
/// However long a registry asks to be left alone, an operator is heard this soon.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// What an operator wants of a lane that waits.
enum Wish {
    None,
    Paused(String),
    SkipBelow(i64),
}

impl Processor {
    /// Reads what can be read from the front of the records; waits while that is none of them. While it waits it obeys
    /// `lanes pause` and `lanes skip`, for no transaction comes along that would.
    pub async fn read(&self, reader: &mut Reader, records: &mut VecDeque<Record>) -> Result<Vec<Item>, Halt> {
        let mut failures = 0;
        let mut told = None;
        let mut skip_below = None;
        loop {
            let read = tokio::select! {
                () = self.stop.cancelled() => return Err(Halt::Stopped),
                read = self.ready(reader, records, skip_below) => read,
            };
            let hindrance = match read {
                Ok(items) => {
                    if told.is_some() {
                        self.works().await;
                    }
                    return Ok(items);
                }
                Err(hindrance) => hindrance,
            };
            let (state, wait) = match self.wish(records).await {
                Wish::Paused(reason) => (LaneState::Paused(reason), PAUSED_LOOK),
                Wish::SkipBelow(offset) => {
                    skip_below = Some(offset);
                    continue;
                }
                Wish::None => match hindrance {
                    Hindrance::Outage { reason, retry_after } => {
                        let wait = backoff(failures);
                        failures += 1;
                        (LaneState::Retrying(reason), retry_after.map_or(wait, |wanted| wanted.max(wait)))
                    }
                    Hindrance::Setup(reason) | Hindrance::Ambiguous(reason) => {
                        (LaneState::Stopped(self.placed(reason, records)), SETUP_LOOK)
                    }
                },
            };
            if told.as_ref() != Some(&state) {
                let LaneKey { topic, partition, .. } = &self.lane.key;
                warn!(%topic, partition, ?state, "the lane waits before a record that it cannot read");
                told = Some(state.clone());
            }
            self.stand(state, wait.min(LONGEST_LOOK)).await?;
        }
    }

    /// Reads records from the front until one has to wait. An error says why the first of them has to. What stands
    /// below `skip_below` need not be read: an operator has given it up.
    async fn ready(
        &self,
        reader: &mut Reader,
        records: &mut VecDeque<Record>,
        skip_below: Option<i64>,
    ) -> Result<Vec<Item>, Hindrance> {
        let generation = self.lane.generation;
        let registry = self.shared.registry.as_ref();
        let mut items = Vec::with_capacity(records.len());
        while let Some(record) = records.front() {
            let given_up = skip_below.is_some_and(|below| record.position.offset < below);
            let entry = match reader.entry(record, generation) {
                Ok(entry) => entry,
                Err(_) if given_up => self.shared.reader.given_up(record, generation),
                // What stands before it need not wait for an answer: only the first one asks.
                Err(_) if !items.is_empty() => break,
                Err(Unready::Setup(why)) if reader.reads_beside(records, generation) => {
                    reader.undecodable(record, generation, Fault::new("undecodable", why))
                }
                Err(_) => entry(reader, record, generation, registry).await?,
            };
            items.extend(records.pop_front().map(|record| Item { record, entry }));
        }
        Ok(items)
    }

    /// What an operator wants of a lane that cannot read its next record. The row is read without its lock: the
    /// transaction that carries the skip out stands behind the fence.
    async fn wish(&self, records: &VecDeque<Record>) -> Wish {
        let (Some(_), Some(front)) = (&self.lane.tenure, records.front()) else { return Wish::None };
        // What the slices have still to do stands before it, and the wish may be about that.
        let before = self.slice.as_ref().is_some_and(|slice| !slice.of.outstanding().is_empty());
        // A database that is away is for the transaction to report.
        let Ok(Some(row)) = self.shared.store.lane(&self.lane.key).await else { return Wish::None };
        let offset = front.position.offset;
        match (row.paused, row.skip_to) {
            (Some(reason), _) => Wish::Paused(reason),
            (None, Some(_)) if before => Wish::None,
            (None, Some(SKIP_NEXT)) => Wish::SkipBelow(offset + 1),
            (None, Some(to)) if to > offset => Wish::SkipBelow(to),
            (None, Some(_) | None) => Wish::None,
        }
    }

    /// A lane's report names its partition; of work without an assignment the reason has to say where it stands.
    fn placed(&self, reason: String, records: &VecDeque<Record>) -> String {
        match records.front() {
            Some(record) if self.lane.tenure.is_none() => format!("{}: {reason}", record.position),
            Some(_) | None => reason,
        }
    }
}

/// What one record is.
pub async fn entry(
    reader: &mut Reader,
    record: &Record,
    generation: i64,
    registry: Option<&Registry>,
) -> Result<Entry, Hindrance> {
    loop {
        let schema = match reader.entry(record, generation) {
            Ok(entry) => return Ok(entry),
            Err(Unready::Setup(why)) => return Err(Hindrance::Setup(why)),
            Err(Unready::Schema(schema)) => schema,
        };
        let Some(registry) = registry else {
            return Err(Hindrance::Setup(format!("{schema} is needed: set `url` in [registry]")));
        };
        let answer = ask(registry, schema, &record.position.topic).await?;
        reader.learn(&record.position.topic, schema, answer);
    }
}

/// What a decoder is to learn of a schema that a record of this topic names.
pub async fn ask(
    registry: &Registry,
    schema: SchemaRef,
    topic: &str,
) -> Result<Result<Arc<WriterSchema>, Fault>, Hindrance> {
    match registry.schema_of(schema, topic).await {
        Ok(writer) => Ok(Ok(writer)),
        // The registry is well, the record is not.
        Err(error @ RegistryError::NotFound { .. }) => {
            let detail = format!("{error}{}", other_ids(schema));
            Ok(Err(Fault::new("schema_not_found", detail)))
        }
        Err(RegistryError::BadSchema(fault)) => Ok(Err(fault)),
        Err(error @ RegistryError::Unavailable { .. }) => {
            Err(Hindrance::Outage { retry_after: error.retry_after(), reason: error.to_string() })
        }
        Err(error @ (RegistryError::Denied { .. } | RegistryError::Misconfigured { .. })) => {
            Err(Hindrance::Setup(error.to_string()))
        }
        Err(error @ RegistryError::Ambiguous { .. }) => Err(Hindrance::Ambiguous(error.to_string())),
    }
}

/// What a writer with another converter may have meant by the number.
fn other_ids(schema: SchemaRef) -> &'static str {
    match schema {
        SchemaRef::Id(SchemaId::Global(_)) => {
            "; if its writer puts content ids there, set `ids = \"content\"` in [registry]"
        }
        SchemaRef::Id(SchemaId::Content(_)) => {
            "; if its writer puts global ids there, set `ids = \"global\"` in [registry]"
        }
        SchemaRef::Id(SchemaId::Confluent(_)) => {
            "; if its writer puts Apicurio's global ids there, set `flavour = \"apicurio\"` in [registry]"
        }
        SchemaRef::Number { .. } => "",
    }
}
