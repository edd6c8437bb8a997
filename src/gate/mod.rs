//! The gate: a shortcut that saves database work. It never proves anything.
//!
//! A claim that is not granted, an error, a time-out, a mark that does not match in every part: each leads to the
//! inbox, which decides. This folder knows nothing of the store.

pub mod inspect;
pub mod memory;
pub mod redis;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

/// What is asked about one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GateKey {
    /// SHA-256 of the inbox key.
    pub hash: [u8; 32],
}

impl GateKey {
    pub fn new(inbox_key: &[u8]) -> Self {
        Self { hash: Sha256::digest(inbox_key).into() }
    }
}

/// Written after commit by whoever knows the committed row. It counts only if every part matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub store_epoch: String,
    pub key_hash: [u8; 32],
    pub digest: String,
    pub topic: String,
    pub generation: i64,
    pub partition: i32,
    pub offset: i64,
}

/// What a mark is held against: the lane as its fence read it, and the message at hand.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    pub store_epoch: &'a str,
    pub topic: &'a str,
    pub partition: i32,
    pub generation: i64,
    pub next_offset: i64,
    /// None where the id alone says that the content is the same.
    pub digest: Option<&'a str>,
}

impl Mark {
    /// Whether the mark stands for a committed row: written by this lane, in this life of the store and of the topic,
    /// for the same content, at an offset that the lane is past. A mark of a lost future thus counts for nothing.
    pub fn counts(&self, standing: &Standing<'_>) -> bool {
        self.store_epoch == standing.store_epoch
            && self.topic == standing.topic
            && self.partition == standing.partition
            && self.generation == standing.generation
            && self.offset < standing.next_offset
            && standing.digest.is_none_or(|digest| self.digest == digest)
    }
}

/// What the gate answered for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// Nobody had it; it is ours until the claim's time is over.
    Claimed,
    /// Another one has a claim, or something is there that is no mark of ours.
    Busy,
    /// Somebody says that it is committed.
    Confirmed(Mark),
    /// The gate did not answer.
    Unavailable,
}

impl GateAnswer {
    /// The `verdict` label of the metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Busy => "busy",
            Self::Confirmed(_) => "confirmed",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A gate. All calls may be made concurrently, none returns an error, none takes longer than the gate's time-out,
/// and each must bear repetition.
#[async_trait]
pub trait Gate: Send + Sync {
    /// One answer a key, in order.
    async fn claim(&self, keys: &[GateKey], token: u64) -> Vec<GateAnswer>;

    /// Sets the marks, whatever stands there.
    async fn confirm(&self, marks: &[Mark]);

    /// Takes back claims that still carry this token.
    async fn release(&self, keys: &[GateKey], token: u64);

    /// Finds out whether the gate answers while there is no work for it.
    async fn probe(&self) {}

    /// False while the last call did not get through.
    fn healthy(&self) -> bool;
}

/// No gate: everything asks the inbox.
pub struct Off;

#[async_trait]
impl Gate for Off {
    async fn claim(&self, keys: &[GateKey], _token: u64) -> Vec<GateAnswer> {
        vec![GateAnswer::Claimed; keys.len()]
    }

    async fn confirm(&self, _marks: &[Mark]) {}

    async fn release(&self, _keys: &[GateKey], _token: u64) {}

    fn healthy(&self) -> bool {
        true
    }
}

/// The two values that a key can have. They cannot be mistaken for each other: a placeholder is no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Claim(u64),
    Mark(Mark),
}

const CLAIM: &str = "claim1";
const MARK: &str = "mark1";

impl Stored {
    fn encode(&self) -> String {
        match self {
            Self::Claim(token) => format!("{CLAIM} {token}"),
            Self::Mark(mark) => format!(
                "{MARK} {} {} {} {} {} {} {}",
                mark.store_epoch,
                crate::debezium::render::hex(&mark.key_hash),
                mark.digest,
                mark.topic,
                mark.generation,
                mark.partition,
                mark.offset
            ),
        }
    }

    /// None for everything that is not one of ours, whole: it is then worth nothing.
    fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let stored = match words.next()? {
            CLAIM => Self::Claim(words.next()?.parse().ok()?),
            MARK => Self::Mark(Mark {
                store_epoch: words.next()?.to_owned(),
                key_hash: unhex(words.next()?)?,
                digest: words.next()?.to_owned(),
                topic: words.next()?.to_owned(),
                generation: words.next()?.parse().ok()?,
                partition: words.next()?.parse().ok()?,
                offset: words.next()?.parse().ok()?,
            }),
            _ => return None,
        };
        words.next().is_none().then_some(stored)
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mark(key: &GateKey) -> Mark {
        Mark {
            store_epoch: "e1".into(),
            key_hash: key.hash,
            digest: "1:ab".into(),
            topic: "shop.orders".into(),
            generation: 2,
            partition: 3,
            offset: 44,
        }
    }

    #[test]
    fn claims_and_marks_come_back_as_they_were_and_damage_counts_for_nothing() {
        let marked = Stored::Mark(mark(&GateKey::new(b"a")));
        let claimed = Stored::Claim(u64::MAX);
        for stored in [marked.clone(), claimed] {
            assert_eq!(Stored::decode(&stored.encode()), Some(stored));
        }
        let whole = marked.encode();
        for end in 0..whole.len() {
            if let Some(Stored::Mark(cut)) = Stored::decode(&whole[..end]) {
                assert_ne!(cut, mark(&GateKey::new(b"a")), "a cut mark is no whole one");
            }
        }
        for text in ["", "1", "OK", "mark1", "mark2 a b", &format!("{whole} x")] {
            assert_eq!(Stored::decode(text), None, "{text}");
        }
    }
}
