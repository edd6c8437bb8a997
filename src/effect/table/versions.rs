//! The source positions that rows have reached, while a run is applied.

use std::collections::HashMap;

use super::key::RowKey;
use crate::debezium::guard::GuardPosition;
use crate::store::row_versions::RowVersion;
use crate::store::{StoreError, Tx};

/// Of one pipeline and table: read and locked before the run, written after it.
#[derive(Default)]
pub(super) struct Versions {
    known: HashMap<[u8; 32], RowVersion>,
    changed: HashMap<[u8; 32], RowVersion>,
}

impl Versions {
    pub async fn lock(tx: &mut Tx, pipeline: &str, table: &str, mut hashes: Vec<[u8; 32]>) -> Result<Self, StoreError> {
        if hashes.is_empty() {
            return Ok(Self::default());
        }
        hashes.sort_unstable();
        hashes.dedup();
        Ok(Self { known: tx.row_versions(pipeline, table, &hashes).await?, changed: HashMap::new() })
    }

    pub async fn store(self, tx: &mut Tx, pipeline: &str, table: &str) -> Result<(), StoreError> {
        let mut changed: Vec<_> = self.changed.into_iter().collect();
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
