//! A message: what a route made of an event.

use std::sync::Arc;

use crate::debezium::event::ChangeEvent;
use crate::record::RecordPosition;

/// The call id that the producer made when the business intent was formed. Opaque, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// The caller has checked it: not blank, no NUL, not over the limit.
    pub(crate) fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// `RULE:HEX`: SHA-256 over the canonical business content, prefixed with the id of the rule it was made by
/// (algorithm version, include list, value form). Digests of different rules are not comparable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Digest(Arc<str>);

/// How two digests under one id relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMatch {
    Same,
    Different,
    /// Made by different rules: nothing can be said.
    Incomparable,
}

impl Digest {
    pub fn new(rule: &str, hex: &str) -> Self {
        Self(format!("{rule}:{hex}").into())
    }

    /// From the inbox, as stored.
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn rule(&self) -> &str {
        self.0.split_once(':').map_or("", |(rule, _)| rule)
    }

    pub fn compare(&self, other: &Self) -> DigestMatch {
        if self.rule() != other.rule() {
            DigestMatch::Incomparable
        } else if self.0 == other.0 {
            DigestMatch::Same
        } else {
            DigestMatch::Different
        }
    }
}

/// An identified message.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: MessageId,
    /// The id came from `source` coordinates: its digest is kept but not compared.
    pub derived_id: bool,
    pub digest: Digest,
    pub correlation_id: Option<Arc<str>>,
    pub source_app: Option<Arc<str>>,
    pub position: RecordPosition,
    /// Index into the pipeline's routes.
    pub route: usize,
    pub event: ChangeEvent,
}
