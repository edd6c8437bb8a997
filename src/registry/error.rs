//! Why there is no schema.

use std::time::Duration;

use crate::debezium::avro::SchemaId;
use crate::debezium::event::Fault;

/// What came of a question instead of a schema. No message holds a secret.
///
/// `NotFound` and `BadSchema` are faults of the record that named the id. With all the others nothing is known about
/// the record, and it must wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The registry itself says so, each time it was asked.
    #[error("{what} is not in the registry at {address}{}", asked(*tries))]
    NotFound { what: String, address: String, tries: u32 },
    /// What is there is no Avro schema.
    #[error("{0}")]
    BadSchema(Fault),
    /// It is away or busy: asked again later it may answer.
    #[error("the registry at {address} does not answer: {reason}")]
    Unavailable {
        address: String,
        reason: String,
        /// The registry's own wish, bounded.
        retry_after: Option<Duration>,
    },
    /// It does not let us in: waiting does not help.
    #[error("the registry at {address} refuses our credentials (status {status}): {}", hint(*status))]
    Denied { address: String, status: u16 },
    /// Something answers, but not as the registry that the configuration says: somebody must look.
    #[error("{address} does not serve as a registry: {reason}")]
    Misconfigured { address: String, reason: String },
    /// Several schemas may be meant, and only somebody who knows the writer's converter can tell which.
    #[error(
        "{what} in the registry at {address}: say which ids its writer puts there, with `flavour`, `ids` and `framing` \
         in a configuration's [registry]"
    )]
    Ambiguous { address: String, what: String },
}

impl RegistryError {
    pub(super) fn bad_schema(id: SchemaId, fault: Fault) -> Self {
        Self::BadSchema(Fault { detail: format!("{id}: {}", fault.detail), ..fault })
    }

    /// How long the registry asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            Self::NotFound { .. }
            | Self::BadSchema(_)
            | Self::Denied { .. }
            | Self::Misconfigured { .. }
            | Self::Ambiguous { .. } => None,
        }
    }
}

fn asked(tries: u32) -> String {
    match tries {
        0 => String::new(),
        1 => " (asked once)".to_owned(),
        tries => format!(" (asked {tries} times)"),
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        403 => "give them the right to read schemas",
        _ => "correct username, password or token in `[registry]`",
    }
}
