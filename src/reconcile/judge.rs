//! Asks the tables about many records at once, and holds the answers against what the pipeline makes of each record.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::ReconcileError;
use super::receipts::Expected;
use super::verdict::{Facts, Kind, Letter, Read, Row, State, Verdict, verdict};
use crate::debezium::event::Fault;
use crate::digest;
use crate::message::{Digest, DigestMatch, synthetic_key};
use crate::pipeline::Shared;
use crate::pipeline::batch::{Entry, Item, Reader};
use crate::pipeline::intake::{self, Hindrance};
use crate::pipeline::judge::compare;
use crate::pipeline::letter::dead_letter_key;
use crate::receipt::{ReceiptKind, ReceiptStatus, code};
use crate::record::Record;
use crate::store::inbox::Status;
use crate::store::lanes::LaneKey;
use crate::store::reconcile::KnownRow;

/// What was found out about a record.
pub(super) struct Finding {
    pub item: Item,
    pub verdict: Verdict,
    /// What differs, for people; empty where nothing does.
    pub detail: String,
    /// The receipt that says what became of it.
    pub receipt: Option<Expected>,
}

/// How far a lane is.
#[derive(Clone, Copy, Debug, Default)]
struct LaneFacts {
    /// Everything below has its outcome.
    next: i64,
    generation: i64,
}

pub(super) struct Judge {
    shared: Arc<Shared>,
    reader: Reader,
    topic: Arc<str>,
    /// Partitions whose lane rows speak of the topic as it was before it was made anew.
    stale: HashSet<i32>,
}

/// Whoever has to finish a message is late after this; the sweeper looks twice a second.
const GRACE: Duration = Duration::from_secs(60);
/// Why the same content may have been parked.
const CLASSES: [&str; 3] = ["poison", "retries", "operator"];
/// Codes that parked messages alone have.
const PARKED: [&str; 3] = [code::DATA_REFUSED, code::TOO_LARGE, code::SKIPPED_BY_OPERATOR];

/// The rows and dead letters that a few records may have.
#[derive(Default)]
struct Tables {
    rows: HashMap<Vec<u8>, KnownRow>,
    letters: HashSet<Vec<u8>>,
    /// Inbox keys under which anything was parked.
    parked: HashSet<Vec<u8>>,
}

impl Judge {
    pub fn new(shared: Arc<Shared>, topic: Arc<str>) -> Self {
        let reader = Reader::new(Arc::clone(&shared.reader));
        Self { shared, reader, topic, stale: HashSet::new() }
    }

    /// Compares the lanes' offsets with the ends of the logs, which were asked for after this: a lane that is past its
    /// log's end speaks of a former topic of this name, and its daemon has not noticed yet.
    pub fn compare_ends(&mut self, lanes: &BTreeMap<i32, i64>, ends: &BTreeMap<i32, i64>) {
        let past = lanes.iter().filter(|(partition, next)| ends.get(partition).is_some_and(|end| *next > end));
        self.stale = past.map(|(partition, _)| *partition).collect();
    }

    /// Judges these records, in order.
    ///
    /// The lanes are asked first: what stands below their next offsets was committed before, so that the look at the
    /// inbox that follows must see it, however many daemons work meanwhile.
    pub async fn judge(&mut self, records: Vec<Record>) -> Result<Vec<Finding>, ReconcileError> {
        let lanes = self.lanes(&records).await?;
        let lane = |record: &Record| lanes.get(&record.position.partition).copied().unwrap_or_default();
        let mut items = Vec::with_capacity(records.len());
        for record in records {
            let entry = self.entry(&record, lane(&record).generation).await?;
            items.push(Item { record, entry });
        }
        let tables = self.tables(&items, &lane).await?;
        let mut judged = Vec::with_capacity(items.len());
        let mut horizon = None;
        for item in items {
            let LaneFacts { next, generation } = lane(&item.record);
            let done = item.record.position.offset < next;
            let sight = self.sight(&item, generation, &tables);
            let mut facts = Facts { read: sight.read, row: sight.place, letter: sight.letter, done, old: false };
            if let Verdict::Differs(kind) = verdict(&facts)
                && kind != Kind::Stuck
            {
                // After the rows: a purge raises the horizon in the transaction that deletes.
                let known = match horizon {
                    Some(known) => known,
                    None => {
                        let horizon = self.shared.store.purge_horizon(&self.shared.pipeline).await?;
                        horizon.map(|horizon| horizon.as_millisecond())
                    }
                };
                horizon = Some(known);
                facts.old = known.is_some_and(|known| item.record.timestamp_ms.is_none_or(|ms| ms < known));
            }
            let verdict = verdict(&facts);
            let detail = match verdict {
                Verdict::Differs(kind) => detail(kind, &item, &sight, next),
                _ => String::new(),
            };
            let receipt = self.receipt(&item, verdict, sight.row);
            judged.push(Finding { item, verdict, detail, receipt });
        }
        Ok(judged)
    }

    async fn lanes(&self, records: &[Record]) -> Result<HashMap<i32, LaneFacts>, ReconcileError> {
        let mut lanes = HashMap::new();
        let partitions: BTreeSet<i32> = records.iter().map(|record| record.position.partition).collect();
        for partition in partitions {
            let key =
                LaneKey { pipeline: Arc::clone(&self.shared.pipeline), topic: Arc::clone(&self.topic), partition };
            if let Some(row) = self.shared.store.lane(&key).await? {
                let next = if self.stale.contains(&partition) { 0 } else { row.next_offset };
                lanes.insert(partition, LaneFacts { next, generation: row.generation });
            }
        }
        Ok(lanes)
    }

    async fn entry(&mut self, record: &Record, generation: i64) -> Result<Entry, ReconcileError> {
        match intake::entry(&mut self.reader, record, generation, self.shared.registry.as_ref()).await {
            Ok(entry) => Ok(entry),
            Err(Hindrance::Outage { reason, .. }) => Err(ReconcileError::Outage(reason)),
            // As in a lane that can read what stands beside it; another one stands before it.
            Err(Hindrance::Setup(why) | Hindrance::Ambiguous(why)) => {
                Ok(self.reader.undecodable(record, generation, Fault::new("undecodable", why)))
            }
        }
    }

    /// Everything that the tables know of these records, in a handful of statements.
    async fn tables(&self, items: &[Item], lane: &impl Fn(&Record) -> LaneFacts) -> Result<Tables, ReconcileError> {
        let store = &self.shared.store;
        let mut tables = Tables::default();
        let keys: BTreeSet<&[u8]> = items.iter().filter_map(|item| self.key(item)).collect();
        self.add_rows(&mut tables, &keys).await?;
        // What is not there under its own key may have been parked as a bare record.
        let absent = |item: &&Item| self.key(item).is_some_and(|key| !tables.rows.contains_key(key));
        let places: Vec<Vec<u8>> = items
            .iter()
            .filter(absent)
            .filter(|item| item.record.position.offset < lane(&item.record).next)
            .flat_map(|item| self.bare_keys(&item.record, lane(&item.record).generation))
            .collect();
        self.add_rows(&mut tables, &places.iter().map(Vec::as_slice).collect()).await?;

        let mut letters: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut parked: BTreeSet<Vec<u8>> = BTreeSet::new();
        for item in items {
            let generation = lane(&item.record).generation;
            let (Some(key), Some(digest)) = (self.key(item), digest_of(&item.entry)) else { continue };
            let row = tables.rows.get(key);
            let needed = match (&item.entry, row) {
                (Entry::Skip(_), _) => false,
                (Entry::Faulty(_), _) | (Entry::Message { .. }, None) => true,
                (Entry::Message { .. }, Some(row)) => {
                    content(item, row) == DigestMatch::Different || state(row) == State::Parked
                }
            };
            if needed {
                let under = row.map_or_else(|| key.to_vec(), |row| row.key.clone());
                letters.extend(letter_keys(&under, digest).into_iter().map(|(key, _)| key));
                parked.insert(under);
                parked.extend(self.bare_keys(&item.record, generation).filter(|key| tables.rows.contains_key(key)));
            }
        }
        tables.letters = store.known_dead_letters(&letters.iter().map(Vec::as_slice).collect::<Vec<_>>()).await?;
        tables.parked = store.parked_keys(&parked.iter().map(Vec::as_slice).collect::<Vec<_>>()).await?;
        Ok(tables)
    }

    async fn add_rows(&self, tables: &mut Tables, keys: &BTreeSet<&[u8]>) -> Result<(), ReconcileError> {
        let keys: Vec<&[u8]> = keys.iter().copied().collect();
        let rows = self.shared.store.known_rows(&keys, GRACE).await?;
        tables.rows.extend(rows.into_iter().map(|row| (row.key.clone(), row)));
        Ok(())
    }

    /// The key of a record that has to have an inbox row.
    fn key<'i>(&self, item: &'i Item) -> Option<&'i [u8]> {
        match &item.entry {
            Entry::Skip(_) => None,
            Entry::Message { message, .. } if !self.shared.inbox[message.route] => None,
            Entry::Message { key, .. } => Some(key),
            Entry::Faulty(faulty) => Some(&faulty.key),
        }
    }

    /// The keys of the record alone, without its id: in this life of its topic, and as a replay makes them, which knows
    /// of no life.
    fn bare_keys(&self, record: &Record, generation: i64) -> impl Iterator<Item = Vec<u8>> + use<'_> {
        let position = record.position.clone();
        let lives = BTreeSet::from([generation, 0]);
        let scopes: BTreeSet<&str> = self.shared.reader.routes.iter().map(|route| &*route.scope).chain([""]).collect();
        lives.into_iter().flat_map(move |life| {
            let (position, topic_id) = (position.clone(), format!("{}#{life}", position.topic));
            scopes.clone().into_iter().map(move |scope| {
                synthetic_key(&self.shared.pipeline, scope, &topic_id, position.partition, position.offset)
            })
        })
    }

    fn sight<'t>(&self, item: &Item, generation: i64, tables: &'t Tables) -> Sight<'t> {
        let read = match &item.entry {
            Entry::Skip(_) => Read::Skip,
            Entry::Message { message, .. } if !self.shared.inbox[message.route] => Read::Unrecorded,
            Entry::Message { .. } => Read::Message,
            Entry::Faulty(_) => Read::Faulty,
        };
        let Some(key) = self.key(item) else {
            return Sight { read, row: None, place: Row::None, letter: Letter::None };
        };
        let letter = |key: &[u8]| match digest_of(&item.entry) {
            Some(digest) => {
                let mut found = letter_keys(key, digest).into_iter().filter(|(key, _)| tables.letters.contains(key));
                let other = if tables.parked.contains(key) { Letter::Other } else { Letter::None };
                found.next().map_or(other, |(_, letter)| letter)
            }
            None => Letter::None,
        };
        if let Some(row) = tables.rows.get(key) {
            let (mut place, letter) = (place(item, row), letter(key));
            if let (Row::There { content, .. }, Letter::Other) = (&mut place, letter)
                && *content == DigestMatch::Different
                && row.version > 1
            {
                // An operator's redrive gave the message the content of a dead letter, or an edited one.
                *content = DigestMatch::Incomparable;
            }
            return Sight { read, row: Some(row), place, letter };
        }
        // Only if it is of this very content: a former life of the topic had other records at this place.
        let raw = digest::raw(&item.record);
        let same = |row: &&KnownRow| row.digest.as_deref() == Some(raw.as_str());
        let bare = self.bare_keys(&item.record, generation).find_map(|key| tables.rows.get(&key).filter(same));
        match bare {
            Some(row) => {
                let letter = if tables.parked.contains(&row.key) { Letter::Same } else { Letter::None };
                Sight { read, row: Some(row), place: Row::Bare, letter }
            }
            None => Sight { read, row: None, place: Row::None, letter: letter(key) },
        }
    }

    /// The receipt that must be there for a record that has its outcome.
    fn receipt(&self, item: &Item, verdict: Verdict, row: Option<&KnownRow>) -> Option<Expected> {
        let row = row?;
        let digest = digest_of(&item.entry)?;
        let (status, code, kind) = match verdict {
            Verdict::Conflict => {
                (ReceiptStatus::Failed, Some(code::CONFLICT), ReceiptKind::Conflict { digest: digest.as_str() })
            }
            Verdict::Matched | Verdict::Parked | Verdict::Incomparable => {
                let status = match row.status {
                    Status::Success => ReceiptStatus::Success,
                    Status::Failed => ReceiptStatus::Failed,
                    Status::Waiting | Status::Processing => return None,
                };
                (status, row.code.as_deref(), ReceiptKind::Terminal { version: row.version })
            }
            Verdict::Waiting
            | Verdict::Pending
            | Verdict::Skipped
            | Verdict::Unchecked
            | Verdict::Outside
            | Verdict::Differs(_) => return None,
        };
        Some(Expected::new(item, row, kind, status, code))
    }
}

/// What the tables show of one record.
struct Sight<'t> {
    read: Read,
    row: Option<&'t KnownRow>,
    place: Row,
    letter: Letter,
}

fn place(item: &Item, row: &KnownRow) -> Row {
    let id = match &item.entry {
        Entry::Skip(_) => None,
        Entry::Message { message, .. } => Some(message.id.as_str()),
        Entry::Faulty(faulty) => faulty.id.as_ref().map(|id| id.as_str()),
    };
    if row.message_id.as_deref() != id {
        return Row::Foreign;
    }
    let position = &item.record.position;
    let own =
        (&*row.topic, row.partition, row.offset) == (&*position.topic, i64::from(position.partition), position.offset);
    let stored = row.digest.as_deref().map(Digest::from_stored);
    let rule = digest_of(&item.entry).map(Digest::rule);
    let read_otherwise = rule == Some(digest::RAW) && stored.is_some_and(|stored| stored.rule() != digest::RAW);
    Row::There { state: state(row), content: content(item, row), own, read_otherwise }
}

fn state(row: &KnownRow) -> State {
    match row.status {
        Status::Success => State::Success,
        Status::Failed if row.code.as_deref().is_some_and(|code| PARKED.contains(&code)) => State::Parked,
        Status::Failed => State::Failed,
        Status::Waiting | Status::Processing if row.overdue => State::Overdue,
        Status::Waiting | Status::Processing => State::Unfinished,
    }
}

fn content(item: &Item, row: &KnownRow) -> DigestMatch {
    let (derived, digest) = match &item.entry {
        Entry::Skip(_) => return DigestMatch::Same,
        Entry::Message { message, .. } => (message.derived_id, &message.digest),
        Entry::Faulty(faulty) => (faulty.derived_id, &faulty.digest),
    };
    // Coordinates say that it is the same change.
    if derived {
        return DigestMatch::Same;
    }
    compare(row.digest.as_deref().map(Digest::from_stored).as_ref(), digest, item)
}

fn digest_of(entry: &Entry) -> Option<&Digest> {
    match entry {
        Entry::Skip(_) => None,
        Entry::Message { message, .. } => Some(&message.digest),
        Entry::Faulty(faulty) => Some(&faulty.digest),
    }
}

/// The keys of the dead letters that this content may have.
fn letter_keys(key: &[u8], digest: &Digest) -> Vec<(Vec<u8>, Letter)> {
    let of = |class| dead_letter_key(key, class, Some(digest.as_str())).to_vec();
    let mut keys = vec![(of("conflict"), Letter::Conflict)];
    keys.extend(CLASSES.map(|class| (of(class), Letter::Same)));
    keys
}

fn detail(kind: Kind, item: &Item, sight: &Sight<'_>, next: i64) -> String {
    let below = format!("below the lane's next offset {next}");
    match (kind, sight.row) {
        (Kind::Missing, _) => format!("{below} without an inbox row and without a dead letter"),
        (Kind::NotParked, None) => {
            let fault = match &item.entry {
                Entry::Faulty(faulty) => faulty.fault.code,
                Entry::Message { .. } | Entry::Skip(_) => "",
            };
            match sight.letter {
                Letter::None => format!("{fault}: {below} without an inbox row and without a dead letter"),
                _ => format!("{fault}: {below}, its dead letter is there, its inbox row is not"),
            }
        }
        (Kind::NotParked, Some(row)) => {
            format!(
                "its inbox row says FAILED with code {}, its dead letter is gone",
                row.code.as_deref().unwrap_or("-")
            )
        }
        (Kind::DigestDiffers, Some(row)) => {
            let stored = row.digest.as_deref().unwrap_or("-");
            let here = digest_of(&item.entry).map_or("-", Digest::as_str);
            let place = format!("{}/{}/{}", row.topic, row.partition, row.offset);
            match sight.place {
                Row::Foreign => "its inbox key belongs to another message id".to_owned(),
                Row::There { own: true, .. } => format!("its own inbox row has digest {stored}, the record {here}"),
                Row::There { own: false, .. } | Row::Bare | Row::None => format!(
                    "the id came first at {place} with digest {stored}, here it has {here}, and no dead letter tells of a \
                     conflict"
                ),
            }
        }
        (Kind::Stuck, Some(row)) => format!(
            "{} with code {} and past its time: does the daemon run, and can it reach what the message waits for?",
            row.status.as_str(),
            row.code.as_deref().unwrap_or("-"),
        ),
        (Kind::DigestDiffers | Kind::Stuck | Kind::NoReceipt | Kind::ReceiptDiffers, _) => String::new(),
    }
}
