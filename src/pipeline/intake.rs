//! Records into items, with the schemas that they need. The registry may be down for hours: the records wait, and the
//! lane says why.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::batch::{Entry, Item, Reader, Unready};
use super::processor::{Halt, Processor, backoff};
use super::status::LaneState;
use crate::debezium::avro::{SchemaRef, WriterSchema};
use crate::debezium::event::Fault;
use crate::record::Record;
use crate::registry::{Registry, RegistryError};
use crate::store::lanes::LaneKey;

/// Why a record cannot be read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It will pass.
    Outage { reason: String, retry_after: Option<Duration> },
    /// Somebody must look.
    Setup(String),
}

impl Hindrance {
    pub fn into_reason(self) -> String {
        match self {
            Self::Outage { reason, .. } | Self::Setup(reason) => reason,
        }
    }
}

/// What only somebody else can change is looked at this often.
const SETUP_LOOK: Duration = Duration::from_secs(5);

impl Processor {
    /// Reads what can be read from the front of the records; waits while that is none of them.
    pub async fn read(&self, reader: &mut Reader, records: &mut VecDeque<Record>) -> Result<Vec<Item>, Halt> {
        let mut failures = 0;
        loop {
            let read = tokio::select! {
                () = self.stop.cancelled() => return Err(Halt::Stopped),
                read = ready(reader, records, self.lane.generation, self.shared.registry.as_ref()) => read,
            };
            let hindrance = match read {
                Ok(items) => {
                    if failures > 0 {
                        self.lanes.set(&self.lane_name(), LaneState::Running);
                    }
                    return Ok(items);
                }
                Err(hindrance) => hindrance,
            };
            let (state, wait) = match hindrance {
                Hindrance::Outage { reason, retry_after } => {
                    let wait = backoff(failures);
                    (LaneState::Retrying(reason), retry_after.map_or(wait, |wanted| wanted.max(wait)))
                }
                Hindrance::Setup(reason) => (LaneState::Stopped(self.placed(reason, records)), SETUP_LOOK),
            };
            if failures == 0 {
                let LaneKey { topic, partition, .. } = &self.lane.key;
                warn!(%topic, partition, ?state, "the lane waits for a schema");
            }
            failures += 1;
            self.stand(state, wait).await?;
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

/// Reads records from the front until one has to wait. An error says why the first of them has to.
async fn ready(
    reader: &mut Reader,
    records: &mut VecDeque<Record>,
    generation: i64,
    registry: Option<&Registry>,
) -> Result<Vec<Item>, Hindrance> {
    let mut items = Vec::with_capacity(records.len());
    while let Some(record) = records.front() {
        match entry(reader, record, generation, registry).await {
            Ok(entry) => items.extend(records.pop_front().map(|record| Item { record, entry })),
            Err(hindrance) if items.is_empty() => return Err(hindrance),
            // What stands before it need not wait.
            Err(_) => break,
        }
    }
    Ok(items)
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
        reader.learn(schema, answer);
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
        Err(error @ RegistryError::NotFound { .. }) => Ok(Err(Fault::new("schema_not_found", error.to_string()))),
        Err(RegistryError::BadSchema(fault)) => Ok(Err(fault)),
        Err(error @ RegistryError::Unavailable { .. }) => {
            Err(Hindrance::Outage { retry_after: error.retry_after(), reason: error.to_string() })
        }
        Err(error @ (RegistryError::Denied { .. } | RegistryError::Misconfigured { .. })) => {
            Err(Hindrance::Setup(error.to_string()))
        }
    }
}
