//! Which of the gate's marks count.

use std::collections::{HashMap, HashSet};

use super::attempt::Lane;
use super::batch::{Entry, Item};
use crate::gate::{Mark, Standing};
use crate::message::Message;
use crate::store::lanes::LaneRow;

/// The marks that count: written by this lane, in this life of the store and the topic, for the same content, at an
/// offset that the lane row, read under the fence, is past. A mark of a lost future thus counts for nothing.
pub fn valid_marks<'a>(
    items: &'a [Item],
    marks: &'a HashMap<Vec<u8>, Mark>,
    lane: &Lane,
    row: &LaneRow,
) -> HashMap<&'a [u8], &'a Mark> {
    let mut valid: HashMap<&[u8], &Mark> = HashMap::new();
    // A key with a second content in the same batch asks the inbox for all of its records.
    let mut doubtful: HashSet<&[u8]> = HashSet::new();
    for item in items {
        let (key, mark) = match &item.entry {
            Entry::Skip(_) => continue,
            Entry::Faulty(faulty) => (faulty.key.as_slice(), None),
            Entry::Message { key, message } => {
                (key.as_slice(), marks.get(key).filter(|mark| counts(mark, lane, row, message)))
            }
        };
        match mark {
            Some(mark) => {
                valid.insert(key, mark);
            }
            None => {
                doubtful.insert(key);
            }
        }
    }
    valid.retain(|key, _| !doubtful.contains(key));
    valid
}

fn counts(mark: &Mark, lane: &Lane, row: &LaneRow, message: &Message) -> bool {
    mark.counts(&Standing {
        store_epoch: &row.store_epoch,
        topic: &lane.key.topic,
        partition: lane.key.partition,
        generation: row.generation,
        next_offset: row.next_offset,
        digest: (!message.derived_id).then(|| message.digest.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::event::{ChangeEvent, Fault, Shape};
    use crate::debezium::value::Value;
    use crate::message::{Digest, MessageId};
    use crate::pipeline::batch::Faulty;
    use crate::pipeline::tenure::Tenure;
    use crate::record::{Record, RecordPosition};
    use crate::store::lanes::LaneKey;

    fn message(digest: &str) -> Item {
        let position = RecordPosition { topic: "t".into(), partition: 0, offset: 9 };
        let message = Message {
            id: MessageId::new("m"),
            derived_id: false,
            digest: Digest::from_stored(digest),
            correlation_id: None,
            source_app: None,
            position: position.clone(),
            route: 0,
            event: ChangeEvent::message(Shape::Plain, None, Value::Null),
        };
        let record = Record { position, timestamp_ms: None, headers: Vec::new(), key: None, value: None };
        Item { record, entry: Entry::Message { key: b"k".to_vec(), message: Box::new(message) } }
    }

    fn lane() -> Lane {
        let key = LaneKey { pipeline: "p".into(), topic: "t".into(), partition: 0 };
        Lane { key, generation: 2, tenure: Some(Tenure { epoch: 1, owner: "o".into() }) }
    }

    fn row() -> LaneRow {
        LaneRow {
            epoch: 1,
            owner: "o".into(),
            generation: 2,
            next_offset: 5,
            records_seen: 0,
            recent_parks: String::new(),
            paused: None,
            skip_to: None,
            store_epoch: "e".into(),
            now: String::new(),
        }
    }

    fn mark() -> Mark {
        let (topic, digest) = ("t".to_owned(), "1:a".to_owned());
        Mark { store_epoch: "e".into(), key_hash: [0; 32], digest, topic, generation: 2, partition: 0, offset: 4 }
    }

    fn counting(items: &[Item], mark: Mark) -> usize {
        valid_marks(items, &HashMap::from([(b"k".to_vec(), mark)]), &lane(), &row()).len()
    }

    #[test]
    fn a_mark_counts_only_if_every_part_matches() {
        let items = [message("1:a")];
        assert_eq!(counting(&items, mark()), 1);
        for other in [
            Mark { store_epoch: "f".into(), ..mark() },
            Mark { topic: "u".into(), ..mark() },
            Mark { partition: 1, ..mark() },
            Mark { generation: 1, ..mark() },
            Mark { offset: 5, ..mark() },
            Mark { digest: "1:b".into(), ..mark() },
        ] {
            assert_eq!(counting(&items, other.clone()), 0, "{other:?}");
        }
    }

    #[test]
    fn a_second_content_in_the_batch_voids_the_mark_for_both() {
        assert_eq!(counting(&[message("1:a"), message("1:b")], mark()), 0);
        let faulty = Faulty {
            key: b"k".to_vec(),
            class: "poison",
            fault: Fault::new("undecodable", ""),
            id: None,
            correlation_id: None,
            source_app: None,
            route: None,
            derived_id: false,
            digest: Digest::from_stored("raw:0"),
        };
        let broken = Item { record: message("1:a").record, entry: Entry::Faulty(Box::new(faulty)) };
        assert_eq!(counting(&[message("1:a"), broken], mark()), 0);
    }
}
