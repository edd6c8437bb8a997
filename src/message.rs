//! A message: what a route made of an event.

use std::sync::Arc;

use sha2::Digest as _;

use crate::debezium::event::ChangeEvent;
use crate::record::RecordPosition;

/// The call id that the producer made when the business intent was formed. Opaque, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// The caller has checked it: not blank, no NUL, not over the limit.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
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
        Self([rule, ":", hex].concat().into())
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

/// Longest inbox key that holds its id itself; longer ones hold a hash.
pub const MAX_PLAIN_KEY: usize = 300;

/// The inbox key of a message, byte-exact: `pipeline NUL scope NUL id`, or for long ids `pipeline NUL scope NUL NUL h`
/// and the SHA-256 of the id. Pipeline, scope and id hold no NUL and an id is never empty, so no two messages share a
/// key, and the three forms (the third is [`synthetic_key`]) never meet. The bound keeps index entries of every
/// database in reach as long as pipeline and scope together stay below 260 bytes.
pub fn inbox_key(pipeline: &str, scope: &str, id: &MessageId) -> Vec<u8> {
    let mut key = prefix(pipeline, scope);
    if key.len() + id.as_str().len() <= MAX_PLAIN_KEY {
        key.extend_from_slice(id.as_str().as_bytes());
    } else {
        key.extend_from_slice(b"\0h");
        key.extend_from_slice(&sha2::Sha256::digest(id.as_str()));
    }
    key
}

/// The key of a record without a usable id: where it stands in the topic. `topic_id` tells a recreated topic from
/// the old one.
pub fn synthetic_key(pipeline: &str, scope: &str, topic_id: &str, partition: i32, offset: i64) -> Vec<u8> {
    let mut key = prefix(pipeline, scope);
    let place = format!("{topic_id}/{partition}/{offset}");
    if key.len() + 2 + place.len() <= MAX_PLAIN_KEY {
        key.extend_from_slice(format!("\0@{place}").as_bytes());
    } else {
        key.extend_from_slice(b"\0#");
        key.extend_from_slice(&sha2::Sha256::digest(place));
    }
    key
}

fn prefix(pipeline: &str, scope: &str) -> Vec<u8> {
    debug_assert!(!pipeline.contains('\0') && !scope.contains('\0'), "names are checked when they are configured");
    [pipeline.as_bytes(), b"\0", scope.as_bytes(), b"\0"].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_messages_have_different_keys() {
        let long = "x".repeat(400);
        let names = ["", "a", "b", "a:b", "ab", "h"];
        let ids = ["a", "b", "b:c", "c", "h", "@t/0/0", "\u{e9}", "A", "a ", "a\t", &long, &(long.clone() + "y")];
        let mut keys = HashSet::new();
        for pipeline in &names[1..] {
            for scope in names {
                for id in ids {
                    assert!(keys.insert(inbox_key(pipeline, scope, &MessageId::new(id))), "{pipeline} {scope} {id}");
                }
                for (partition, offset) in [(0, 0), (0, 10), (1, 0), (10, 0)] {
                    assert!(keys.insert(synthetic_key(pipeline, scope, "t", partition, offset)));
                }
            }
        }
        assert!(keys.iter().all(|key| key.len() <= MAX_PLAIN_KEY));
    }

    #[test]
    fn an_id_stands_in_its_key_up_to_the_bound() {
        for (len, plain) in [(1, true), (MAX_PLAIN_KEY - 4, true), (MAX_PLAIN_KEY - 3, false), (1000, false)] {
            let id = MessageId::new("i".repeat(len));
            assert_eq!(inbox_key("p", "s", &id).ends_with(id.as_str().as_bytes()), plain);
        }
        assert_eq!(inbox_key("p", "s", &MessageId::new("7")), b"p\0s\x007");
    }
}
