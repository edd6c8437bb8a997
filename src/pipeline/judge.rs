//! First, duplicate or conflict: what the inbox's answer means for each record of a batch.

use std::collections::HashMap;

use super::batch::{Entry, Faulty, Item};
use super::settle::OPERATOR;
use crate::debezium::event::{Fault, SkipReason};
use crate::digest;
use crate::gate::Mark;
use crate::message::{Digest, DigestMatch, Message};
use crate::store::StoreError;
use crate::store::inbox::Seen;

/// What a record is, once the inbox was asked.
#[derive(Debug)]
pub enum Judgement<'a> {
    Skip(SkipReason),
    /// Its row was inserted by this transaction: its effect is due.
    First {
        key: &'a [u8],
        message: &'a Message,
    },
    /// Its route keeps no inbox rows: its effect is due.
    Unrecorded {
        message: &'a Message,
    },
    /// Its row was inserted by this transaction, as FAILED.
    Park(&'a Faulty),
    Duplicate {
        seen: Option<Seen>,
        note: Option<DigestMatch>,
    },
    /// The id is known with other content.
    Conflict(Conflict),
}

#[derive(Debug)]
pub struct Conflict {
    pub faulty: Faulty,
    /// The digest of the content that came now.
    pub digest: String,
    /// Topic and partition of the one that came first.
    pub first: (String, i64),
}

/// Judges all records of a batch in order. `seen` is what the inbox knows of their keys, None where all of them were
/// new to it; `own` is this attempt's token.
pub fn judge<'a>(
    items: &'a [Item],
    inbox: &[bool],
    marks: &HashMap<&[u8], &Mark>,
    seen: Option<&[Seen]>,
    own: i64,
) -> Result<Vec<Judgement<'a>>, StoreError> {
    let rows: Option<HashMap<&[u8], &Seen>> =
        seen.map(|seen| seen.iter().map(|row| (row.key.as_slice(), row)).collect());
    let mut first: HashMap<&[u8], &Item> = HashMap::with_capacity(items.len());
    let mut judgements: Vec<Judgement<'a>> = Vec::with_capacity(items.len());
    for item in items {
        let key = match &item.entry {
            Entry::Skip(reason) => {
                judgements.push(Judgement::Skip(*reason));
                continue;
            }
            Entry::Message { message, .. } if !inbox[message.route] => {
                judgements.push(Judgement::Unrecorded { message });
                continue;
            }
            Entry::Message { key, .. } => key.as_slice(),
            Entry::Faulty(faulty) => faulty.key.as_slice(),
        };
        if marks.contains_key(key) {
            judgements.push(Judgement::Duplicate { seen: None, note: None });
            continue;
        }
        let former = match first.get(key) {
            Some(before) => Some(Former::in_batch(before)),
            None => match &rows {
                None => None,
                // A key in neither answer is run again, never guessed: a rival's row may have come and gone in between.
                Some(rows) => {
                    let row = rows
                        .get(key)
                        .ok_or_else(|| StoreError::Unexpected("an inbox row is neither new nor there".to_owned()))?;
                    (row.token != own).then(|| Former::in_inbox(row))
                }
            },
        };
        judgements.push(match (former, &item.entry) {
            (_, Entry::Skip(reason)) => Judgement::Skip(*reason),
            (Some(former), _) if former.id != id_of(&item.entry) => {
                return Err(StoreError::Unexpected("two message ids share one inbox key".to_owned()));
            }
            (Some(former), _) => repeated(item, &former),
            (None, entry) => {
                first.insert(key, item);
                match entry {
                    Entry::Message { key, message } => Judgement::First { key, message },
                    Entry::Faulty(faulty) => Judgement::Park(faulty),
                    Entry::Skip(reason) => Judgement::Skip(*reason),
                }
            }
        });
    }
    Ok(judgements)
}

fn id_of(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::Message { message, .. } => Some(message.id.as_str()),
        Entry::Faulty(faulty) => faulty.id.as_ref().map(|id| id.as_str()),
        Entry::Skip(_) => None,
    }
}

/// The one that came first under a key.
struct Former<'a> {
    id: Option<&'a str>,
    digest: Option<Digest>,
    topic: &'a str,
    partition: i64,
    /// None if it stands in this very batch: its final state is not known yet.
    seen: Option<&'a Seen>,
}

impl<'a> Former<'a> {
    fn in_batch(item: &'a Item) -> Self {
        let digest = match &item.entry {
            Entry::Message { message, .. } => Some(message.digest.clone()),
            Entry::Faulty(faulty) => Some(faulty.digest.clone()),
            Entry::Skip(_) => None,
        };
        let position = &item.record.position;
        let partition = i64::from(position.partition);
        Self { id: id_of(&item.entry), digest, topic: &position.topic, partition, seen: None }
    }

    fn in_inbox(row: &'a Seen) -> Self {
        let digest = row.digest.as_deref().map(Digest::from_stored);
        Self { id: row.message_id.as_deref(), digest, topic: &row.topic, partition: row.partition, seen: Some(row) }
    }
}

fn repeated<'a>(item: &'a Item, former: &Former<'_>) -> Judgement<'a> {
    let duplicate = |note| Judgement::Duplicate { seen: former.seen.cloned(), note: Some(note) };
    let stored = &former.digest;
    let conflict = |faulty: Faulty, digest: &Digest| {
        let fault = Fault::new("conflict", "this id was used before with other content");
        let faulty = Faulty { class: "conflict", fault, ..faulty };
        let first = (former.topic.to_owned(), former.partition);
        Judgement::Conflict(Conflict { faulty, digest: digest.as_str().to_owned(), first })
    };
    match &item.entry {
        Entry::Skip(reason) => Judgement::Skip(*reason),
        // Coordinates say that it is the same change; the same row reads differently with and without a schema.
        Entry::Message { message, .. } if message.derived_id => {
            duplicate(stored.as_ref().map_or(DigestMatch::Incomparable, |stored| stored.compare(&message.digest)))
        }
        Entry::Faulty(faulty) if faulty.derived_id || faulty.class == OPERATOR => duplicate(DigestMatch::Same),
        Entry::Message { key, message } => match compare(stored.as_ref(), &message.digest, item) {
            DigestMatch::Same => duplicate(DigestMatch::Same),
            DigestMatch::Incomparable => duplicate(DigestMatch::Incomparable),
            DigestMatch::Different => {
                let faulty = Faulty {
                    key: key.clone(),
                    class: "conflict",
                    fault: Fault::new("conflict", ""),
                    id: Some(message.id.clone()),
                    correlation_id: message.correlation_id.clone(),
                    source_app: message.source_app.clone(),
                    route: Some(message.route),
                    derived_id: false,
                    digest: message.digest.clone(),
                };
                conflict(faulty, &message.digest)
            }
        },
        Entry::Faulty(faulty) => match compare(stored.as_ref(), &faulty.digest, item) {
            DigestMatch::Same => duplicate(DigestMatch::Same),
            DigestMatch::Incomparable => duplicate(DigestMatch::Incomparable),
            DigestMatch::Different => conflict(Faulty::clone(faulty), &faulty.digest),
        },
    }
}

/// How the content at hand relates to the one that the inbox knows. A digest of bytes is compared with the bytes: what
/// could not be decoded before and can be now (after a change of the configuration, say) is the same content still.
pub(crate) fn compare(stored: Option<&Digest>, digest: &Digest, item: &Item) -> DigestMatch {
    let Some(stored) = stored else { return DigestMatch::Incomparable };
    if stored.rule() == digest::RAW && digest.rule() != digest::RAW {
        return match stored.compare(&digest::raw(&item.record)) {
            DigestMatch::Same => DigestMatch::Same,
            DigestMatch::Different | DigestMatch::Incomparable => DigestMatch::Different,
        };
    }
    if digest.rule() == digest::RAW && stored.rule() != digest::RAW {
        // It was decodable then and is not now: other bytes.
        return DigestMatch::Different;
    }
    stored.compare(digest)
}
