//! The source positions that rows have reached, while a run is applied.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::key::RowKey;
use crate::debezium::guard::GuardPosition;
use crate::store::row_versions::RowVersion;
use crate::store::{StoreError, Tx};

/// Of one pipeline and table: read and locked before the run, written after it.
#[derive(Default)]
pub(super) struct Versions {
    known: HashMap<[u8; 32], RowVersion>,
    changed: HashMap<[u8; 32], RowVersion>,
    /// What rows that were new have in the table already: what they will have reached if all goes well.
    written: HashMap<[u8; 32], RowVersion>,
}

/// The rows whose versions a run asks for, and which ones they would have at its end if they had none before.
#[derive(Default)]
pub(super) struct Expected(HashMap<[u8; 32], RowVersion>);

impl Expected {
    /// The run changes the row, and nobody can tell before what it will have reached.
    pub fn unknown(&mut self, key: &RowKey) {
        self.0.insert(key.hash, RowVersion::default());
    }

    /// The run brings the row to this position, if nothing keeps it from that.
    pub fn reach(&mut self, key: &RowKey, position: &GuardPosition, deleted: bool) {
        let version = RowVersion { lineage: position.lineage.clone(), position: position.position.clone(), deleted };
        match self.0.entry(key.hash) {
            Entry::Vacant(entry) => drop(entry.insert(version)),
            // Once unknown it stays so; of an order that is not plain nothing is expected.
            Entry::Occupied(mut entry) => {
                let known = entry.get();
                let newer = !known.lineage.is_empty()
                    && GuardPosition { lineage: known.lineage.clone(), position: known.position.clone() }
                        .compare(position)
                        .is_some_and(std::cmp::Ordering::is_lt);
                entry.insert(if newer { version } else { RowVersion::default() });
            }
        }
    }
}

impl Versions {
    pub async fn lock(tx: &mut Tx, pipeline: &str, table: &str, expected: Expected) -> Result<Self, StoreError> {
        if expected.0.is_empty() {
            return Ok(Self::default());
        }
        let mut rows: Vec<_> = expected.0.into_iter().collect();
        rows.sort_unstable_by_key(|(hash, _)| *hash);
        let locked = tx.row_versions(pipeline, table, &rows).await?;
        rows.retain(|(hash, _)| locked.new.contains(hash));
        Ok(Self { known: locked.known, changed: HashMap::new(), written: rows.into_iter().collect() })
    }

    pub async fn store(self, tx: &mut Tx, pipeline: &str, table: &str) -> Result<(), StoreError> {
        let Self { mut changed, written, .. } = self;
        for (hash, version) in written {
            // What was expected and not reached is taken back.
            if *changed.entry(hash).or_default() == version {
                changed.remove(&hash);
            }
        }
        let mut changed: Vec<_> = changed.into_iter().collect();
        changed.sort_unstable_by_key(|(hash, _)| *hash);
        tx.set_row_versions(pipeline, table, &changed).await
    }

    pub fn position(&self, key: &RowKey) -> Option<GuardPosition> {
        let version = self.known.get(&key.hash)?;
        Some(GuardPosition { lineage: version.lineage.clone(), position: version.position.clone() })
    }

    /// Whether the row has heard of this position or of a later one.
    pub fn reaches(&self, key: &RowKey, position: &GuardPosition) -> bool {
        self.position(key).and_then(|known| known.compare(position)).is_some_and(std::cmp::Ordering::is_ge)
    }

    /// A half of a change of this key is to come, and it is not this one: until then nobody knows all of the row.
    pub fn awaits_half(&self, key: &RowKey, this: Option<&GuardPosition>) -> bool {
        let position = self.position(key).filter(|position| position.is_just_before() && Some(position) != this);
        position.is_some() && self.known.get(&key.hash).is_some_and(|version| !version.deleted)
    }

    pub fn set(&mut self, key: &RowKey, position: &GuardPosition, deleted: bool) {
        let version = RowVersion { lineage: position.lineage.clone(), position: position.position.clone(), deleted };
        self.known.insert(key.hash, version.clone());
        self.changed.insert(key.hash, version);
    }
}
