//! Records as the pipeline knows them, for the crate's own functions: made once, looked up by every step.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::debezium::event::{ChangeEvent, Shape};
use countersign::debezium::value::Value;
use countersign::gate::{GateKey, Mark};
use countersign::message::{Digest, Message, MessageId, inbox_key};
use countersign::pipeline::attempt::Lane;
use countersign::pipeline::batch::{Entry, Item};
use countersign::pipeline::judge::{Judgement, judge};
use countersign::pipeline::marks::valid_marks;
use countersign::pipeline::tenure::Trace;
use countersign::record::{Record, RecordPosition};
use countersign::store::inbox::{Seen, Status};
use countersign::store::lanes::{LaneKey, LaneRow};

/// The messages: `a` and `b`.
pub const KEYS: usize = 2;
pub const IDS: [&str; KEYS] = ["a", "b"];
/// Names for the lives of a store; the empty one is what an operator's reset leaves.
pub const EPOCHS: [&str; 16] =
    ["", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9", "e10", "e11", "e12", "e13", "e14", "e15"];

/// One record of a log: which message, with which content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    pub key: usize,
    pub content: u8,
}

pub const A: Told = Told { key: 0, content: 1 };
pub const B: Told = Told { key: 1, content: 1 };
/// The id of `a` again, with other content.
pub const A_OTHER: Told = Told { key: 0, content: 2 };

/// What the gate holds of a key, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortMark {
    pub epoch: u8,
    pub content: u8,
    pub lane: u8,
    pub offset: i8,
}

/// An inbox row, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortRow {
    pub content: u8,
    /// Inserted by the transaction that reads it.
    pub own: bool,
    pub lane: u8,
    pub offset: i8,
}

/// What a record turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    First,
    Duplicate,
    Conflict,
}

/// The records of all lanes.
pub struct Records {
    lanes: Vec<(Lane, Vec<Item>)>,
}

impl Records {
    pub fn new(logs: &[Vec<Told>]) -> Self {
        let keys = IDS.map(|id| inbox_key("p", "", &MessageId::new(id)));
        let lanes = logs.iter().enumerate().map(|(partition, log)| {
            let lane = LaneKey { pipeline: "p".into(), topic: "t".into(), partition: partition as i32 };
            let items = log.iter().enumerate().map(|(offset, told)| item(&keys, partition, offset, *told)).collect();
            (Lane { key: lane, generation: 0, tenure: None }, items)
        });
        Self { lanes: lanes.collect() }
    }

    /// Whether the gate's mark counts for this record, by the crate's rule.
    pub fn counts(&self, (lane, offset): (usize, usize), mark: ShortMark, row: &LaneRow) -> bool {
        let (lane, items) = &self.lanes[lane];
        let items = &items[offset..=offset];
        let Entry::Message { key, .. } = &items[0].entry else { unreachable!("all are messages") };
        !valid_marks(items, &HashMap::from([(key.clone(), long_mark(key, mark))]), lane, row).is_empty()
    }

    /// What a record is, by the crate's rule, once the inbox has answered with this row.
    pub fn judge(&self, (lane, offset): (usize, usize), row: Option<ShortRow>) -> Option<Found> {
        let items = &self.lanes[lane].1[offset..=offset];
        let seen: Vec<Seen> = row.map(|row| self.seen(&items[0], row)).into_iter().collect();
        let judged = judge(items, &[true], &HashMap::new(), Some(&seen), 1).ok()?;
        judged.first().map(found)
    }

    /// The same for a whole log as one batch: rows that the inbox has, and new ones for the rest.
    pub fn judge_all(&self, lane: usize, rows: [Option<ShortRow>; KEYS]) -> Vec<Found> {
        let items = &self.lanes[lane].1;
        let mut seen: Vec<Seen> = Vec::new();
        for (offset, item) in items.iter().enumerate() {
            let Entry::Message { key, message } = &item.entry else { unreachable!("all are messages") };
            if seen.iter().any(|row| row.key == *key) {
                continue;
            }
            let at = IDS.iter().position(|id| *id == message.id.as_str()).unwrap();
            let content = message.digest.as_str().trim_start_matches("1:").parse().unwrap();
            let own = ShortRow { content, own: true, lane: lane as u8, offset: offset as i8 };
            seen.push(self.seen(item, rows[at].unwrap_or(own)));
        }
        let judged = |seen: Option<&[Seen]>| -> Vec<Found> {
            judge(items, &[true], &HashMap::new(), seen, 1).unwrap().iter().map(found).collect()
        };
        let answer = judged(Some(&seen));
        if rows.iter().all(Option::is_none) {
            assert_eq!(judged(None), answer, "an insert that says that all are new says as much as the rows");
        }
        answer
    }

    fn seen(&self, item: &Item, row: ShortRow) -> Seen {
        let Entry::Message { key, message } = &item.entry else { unreachable!("all are messages") };
        Seen {
            key: key.clone(),
            message_id: Some(message.id.as_str().to_owned()),
            status: Status::Success,
            digest: Some(digest(row.content)),
            token: i64::from(row.own),
            topic: "t".to_owned(),
            partition: i64::from(row.lane),
            offset: i64::from(row.offset),
            received_ms: 0,
        }
    }
}

fn found(judgement: &Judgement<'_>) -> Found {
    match judgement {
        Judgement::First { .. } => Found::First,
        Judgement::Duplicate { .. } => Found::Duplicate,
        Judgement::Conflict(_) => Found::Conflict,
        other => unreachable!("{other:?}"),
    }
}

fn long_mark(key: &[u8], mark: ShortMark) -> Mark {
    Mark {
        store_epoch: EPOCHS[usize::from(mark.epoch)].to_owned(),
        key_hash: GateKey::new(key).hash,
        digest: digest(mark.content),
        topic: "t".to_owned(),
        generation: 0,
        partition: i32::from(mark.lane),
        offset: i64::from(mark.offset),
    }
}

fn digest(content: u8) -> String {
    format!("1:{content}")
}

fn item(keys: &[Vec<u8>; KEYS], partition: usize, offset: usize, told: Told) -> Item {
    let position = RecordPosition { topic: "t".into(), partition: partition as i32, offset: offset as i64 };
    let message = Message {
        id: MessageId::new(Arc::from(IDS[told.key])),
        derived_id: false,
        digest: Digest::from_stored(&digest(told.content)),
        correlation_id: None,
        source_app: None,
        position: position.clone(),
        route: 0,
        event: ChangeEvent::message(Shape::Plain, None, Value::Null),
    };
    let record = Record { position, timestamp_ms: None, headers: Vec::new(), key: None, value: None };
    Item { record, entry: Entry::Message { key: keys[told.key].clone(), message: Box::new(message) } }
}

/// A lane row for the crate's functions.
pub fn lane_row(epoch: u8, owner: u8, next: i8, seen: u8, store_epoch: u8) -> LaneRow {
    LaneRow {
        epoch: i64::from(epoch),
        owner: owner.to_string(),
        next_offset: i64::from(next),
        records_seen: i64::from(seen),
        store_epoch: EPOCHS[usize::from(store_epoch)].to_owned(),
        ..LaneRow::unassigned(0, String::new())
    }
}

/// What an owner knows of its own commits.
pub fn known(next: i8) -> Trace {
    Trace { next_offset: i64::from(next), records_seen: 0 }
}
