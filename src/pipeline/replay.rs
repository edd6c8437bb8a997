//! Records from elsewhere than an assignment through the same pipeline: no lane row is written or locked, and the gate
//! is not asked. The inbox row is the fence, so that a replay may run beside the daemon and as often as one likes.
//!
//! Of a lane's row one thing is read, the topic's generation: a record without a usable id is known by its place, and
//! must be the same record for the daemon and for a replay. Records of a former life of the topic that was made anew
//! are taken for those that stand in their places now.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::Shared;
use super::attempt::{Committed, Lane};
use super::batch::Reader;
use super::processor::{Halt, Processor, backoff};
use super::status::{LaneName, LaneState, Lanes};
use crate::record::Record;
use crate::store::Meaning;
use crate::store::lanes::LaneKey;

pub struct Replay {
    pub shared: Arc<Shared>,
    pub stop: CancellationToken,
    lanes: Lanes,
    reader: Reader,
    reading: Arc<AtomicBool>,
    generations: HashMap<LaneName, i64>,
}

impl Replay {
    pub fn new(shared: Arc<Shared>, stop: CancellationToken) -> Self {
        let reader = Reader::new(Arc::clone(&shared.reader));
        let (lanes, reading, generations) = (Lanes::default(), Arc::default(), HashMap::new());
        Self { shared, stop, lanes, reader, reading, generations }
    }

    /// How the partition at hand stands, to be looked at while [`Replay::apply`] runs.
    pub fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    /// True while records are read: what they may wait for then is the registry, and not the database.
    pub fn reading(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reading)
    }

    /// Takes these records to their outcomes, in batches of one partition. The order within a partition is kept; as in
    /// Kafka nothing is promised between two partitions. `done` is told of every commit.
    pub async fn apply(&mut self, records: Vec<Record>, mut done: impl FnMut(&Committed)) -> Result<(), Halt> {
        for part in by_partition(records) {
            for batch in self.batches(part) {
                self.batch(batch, &mut done).await?;
            }
        }
        Ok(())
    }

    fn batches(&self, records: Vec<Record>) -> Vec<Vec<Record>> {
        let options = &self.shared.options;
        let mut batches: Vec<Vec<Record>> = Vec::new();
        let mut bytes = 0;
        for record in records {
            match batches.last_mut() {
                Some(batch) if batch.len() < options.batch && bytes < options.batch_bytes => {
                    bytes += record.size();
                    batch.push(record);
                }
                _ => {
                    bytes = record.size();
                    batches.push(vec![record]);
                }
            }
        }
        batches
    }

    async fn batch(&mut self, records: Vec<Record>, done: &mut impl FnMut(&Committed)) -> Result<(), Halt> {
        let Some(last) = records.last() else { return Ok(()) };
        let position = last.position.clone();
        let key = LaneKey {
            pipeline: Arc::clone(&self.shared.pipeline),
            topic: position.topic,
            partition: position.partition,
        };
        let name = (Arc::clone(&key.topic), key.partition);
        let mut processor = Processor {
            shared: Arc::clone(&self.shared),
            lane: Lane { key, generation: 0, tenure: None },
            lanes: self.lanes.clone(),
            stop: self.stop.clone(),
            known: Arc::default(),
            slice: None,
            told: Arc::default(),
            slot: Mutex::default(),
        };
        processor.lane.generation = match self.generations.get(&name) {
            Some(generation) => *generation,
            None => {
                let generation = processor.generation().await?;
                self.generations.insert(name.clone(), generation);
                generation
            }
        };
        let end = position.offset.saturating_add(1);
        let mut waiting = VecDeque::from(records);
        while !waiting.is_empty() {
            self.reading.store(true, Ordering::Relaxed);
            let read = processor.read(&mut self.reader, &mut waiting).await;
            self.reading.store(false, Ordering::Relaxed);
            let mut items = read?;
            let next = waiting.front().map_or(end, |record| record.position.offset);
            let ended = processor.process(&mut items, next, |committed| done(committed)).await;
            self.lanes.set(&name, LaneState::Running);
            ended?;
        }
        Ok(())
    }
}

impl Processor {
    /// The topic's generation as far as a lane knows of it; 0 where there has been none. Asked until there is an answer.
    async fn generation(&self) -> Result<i64, Halt> {
        let mut failures = 0;
        loop {
            let error = match self.shared.store.lane(&self.lane.key).await {
                Ok(row) => return Ok(row.map_or(0, |row| row.generation)),
                Err(error) => error,
            };
            failures += 1;
            let state = match error.meaning() {
                Meaning::Fatal => LaneState::Stopped(error.with_advice()),
                Meaning::Transient | Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison => {
                    LaneState::Retrying(error.to_string())
                }
            };
            self.stand(state, backoff(failures)).await?;
        }
    }
}

/// The records of each topic and partition, in the order in which the first of them came.
fn by_partition(records: Vec<Record>) -> Vec<Vec<Record>> {
    let mut places: HashMap<LaneName, usize> = HashMap::new();
    let mut parts: Vec<Vec<Record>> = Vec::new();
    for record in records {
        let place = (Arc::clone(&record.position.topic), record.position.partition);
        let at = *places.entry(place).or_insert_with(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        parts[at].push(record);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_within_a_partition_is_kept() {
        let record = |topic: &str, partition, offset| {
            let mut record = Record::sample(None, None);
            record.position = crate::record::RecordPosition { topic: topic.into(), partition, offset };
            record
        };
        let mixed = vec![record("a", 1, 7), record("b", 1, 0), record("a", 0, 3), record("a", 1, 5), record("a", 0, 4)];
        let parts = by_partition(mixed);
        let shown: Vec<Vec<String>> =
            parts.iter().map(|part| part.iter().map(|record| record.position.to_string()).collect()).collect();
        assert_eq!(shown, [vec!["a/1/7", "a/1/5"], vec!["b/1/0"], vec!["a/0/3", "a/0/4"]]);
    }
}
