//! First, duplicate or conflict: what the inbox's answer means for each record of a batch.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::batch::{Entry, Faulty, Item};
use crate::debezium::event::{Fault, SkipReason};
use crate::gate::Mark;
use crate::message::{Digest, DigestMatch, Message};
use crate::receipt::hex;
use crate::store::StoreError;
use crate::store::inbox::Seen;

/// What a record is, once the inbox was asked.
#[derive(Debug)]
pub(super) enum Judgement<'a> {
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
        incomparable: bool,
    },
    /// The id is known with other content.
    Conflict(Conflict),
}

#[derive(Debug)]
pub(super) struct Conflict {
    pub faulty: Faulty,
    /// The digest of the content that came now.
    pub digest: String,
}

/// Judges all records of a batch in order. `own` is this attempt's token.
pub(super) fn judge<'a>(
    items: &'a [Item],
    inbox: &[bool],
    marks: &HashMap<&[u8], &Mark>,
    seen: Vec<Seen>,
    own: i64,
) -> Result<Vec<Judgement<'a>>, StoreError> {
    let rows: HashMap<Vec<u8>, Seen> = seen.into_iter().map(|row| (row.key.clone(), row)).collect();
    let mut first: HashMap<&[u8], usize> = HashMap::new();
    let mut judgements: Vec<Judgement<'a>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let (key, id) = match &item.entry {
            Entry::Skip(reason) => {
                judgements.push(Judgement::Skip(*reason));
                continue;
            }
            Entry::Message { message, .. } if !inbox[message.route] => {
                judgements.push(Judgement::Unrecorded { message });
                continue;
            }
            Entry::Message { key, message } => (key.as_slice(), Some(&message.id)),
            Entry::Faulty(faulty) => (faulty.key.as_slice(), faulty.id.as_ref()),
        };
        if marks.contains_key(key) {
            judgements.push(Judgement::Duplicate { seen: None, incomparable: false });
            continue;
        }
        // A key in neither answer is run again, never guessed: a rival's row may have come and gone in between.
        let row =
            rows.get(key).ok_or_else(|| StoreError::Unexpected("an inbox row is neither new nor there".to_owned()))?;
        if row.message_id.as_deref() != id.map(|id| id.as_str()) {
            return Err(StoreError::Unexpected("two message ids share one inbox key".to_owned()));
        }
        let is_first = row.token == own && !first.contains_key(key);
        if is_first {
            first.insert(key, index);
            judgements.push(match &item.entry {
                Entry::Message { message, .. } => Judgement::First { key, message },
                Entry::Faulty(faulty) => Judgement::Park(faulty),
                Entry::Skip(reason) => Judgement::Skip(*reason),
            });
            continue;
        }
        judgements.push(repeated(item, row, row.token == own));
    }
    Ok(judgements)
}

/// `in_batch`: the first one stands in this very batch, so its final state is not known yet.
fn repeated<'a>(item: &'a Item, row: &Seen, in_batch: bool) -> Judgement<'a> {
    let duplicate = |incomparable| Judgement::Duplicate { seen: (!in_batch).then(|| row.clone()), incomparable };
    let stored = row.digest.as_deref().map(Digest::from_stored);
    match &item.entry {
        // Coordinates say that it is the same change; the same row reads differently with and without a schema.
        Entry::Message { message, .. } if message.derived_id => duplicate(false),
        Entry::Message { key, message } => match stored.map(|stored| stored.compare(&message.digest)) {
            Some(DigestMatch::Same) => duplicate(false),
            Some(DigestMatch::Incomparable) | None => duplicate(true),
            Some(DigestMatch::Different) => Judgement::Conflict(Conflict {
                faulty: Faulty {
                    key: key.clone(),
                    class: "conflict",
                    fault: Fault::new("conflict", "this id was used before with other content"),
                    id: Some(message.id.clone()),
                    correlation_id: message.correlation_id.clone(),
                    source_app: message.source_app.clone(),
                    route: Some(message.route),
                },
                digest: message.digest.as_str().to_owned(),
            }),
        },
        Entry::Faulty(faulty) => match stored {
            // The first one was parked as well: the same fault once more.
            None => duplicate(false),
            Some(_) => {
                let raw = Sha256::digest(item.record.value.as_deref().unwrap_or_default());
                let mut faulty = Faulty::clone(faulty);
                faulty.class = "conflict";
                Judgement::Conflict(Conflict { faulty, digest: format!("raw:{}", hex(&raw)) })
            }
        },
        Entry::Skip(reason) => Judgement::Skip(*reason),
    }
}
