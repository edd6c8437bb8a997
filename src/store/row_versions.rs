//! The newest source position that was applied to each guarded row.

use std::collections::HashMap;

use super::bind::{Array, by_keys};
use super::{Bind, Dialect, StoreError, Tx};

/// What the guard knows of one row. It outlives the row's delete, so that a late update does not raise the dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowVersion {
    pub lineage: String,
    pub position: String,
    pub deleted: bool,
}

const COLUMNS: usize = 6;

impl Tx {
    /// Reads and locks the versions of these rows until the end of the transaction. A row without a version gets an
    /// empty one first, for what is not there cannot be locked, and two lanes would both take themselves for the first.
    pub async fn row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        key_hashes: &[[u8; 32]],
    ) -> Result<HashMap<[u8; 32], RowVersion>, StoreError> {
        let dialect = self.dialect();
        debug_assert!(key_hashes.is_sorted(), "two batches lock in the same order");
        if dialect != Dialect::Sqlite {
            let empty = RowVersion { lineage: String::new(), position: String::new(), deleted: false };
            let rows: Vec<_> = key_hashes.iter().map(|hash| (*hash, empty.clone())).collect();
            let new = self.write_row_versions(pipeline, table, &rows, false).await?;
            // MySQL counts a row that is there like one that is new.
            if dialect == Dialect::Postgres && new == rows.len() as u64 {
                return Ok(HashMap::new());
            }
        }
        let int = if dialect == Dialect::MySql { "SIGNED" } else { "integer" };
        let mut versions = HashMap::with_capacity(key_hashes.len());
        for chunk in key_hashes.chunks(dialect.max_binds() - 2) {
            let mut binds = vec![Bind::text(pipeline), Bind::text(table)];
            let of = format!("pipeline = {} AND table_name = {} AND", dialect.placeholder(0), dialect.placeholder(1));
            let from = by_keys(dialect, &mut binds, ("countersign_row_versions", "key_hash"), &of, chunk, true);
            let sql = format!(
                "SELECT key_hash, lineage, position, CAST(CAST(deleted AS {int}) AS {}) {from}",
                dialect.bigint()
            );
            let rows = self.fetch(&sql, binds).await?;
            if dialect != Dialect::Sqlite && rows.len() < chunk.len() {
                // What is not there is not locked.
                return Err(StoreError::Unexpected("a row's version was purged at this very moment".to_owned()));
            }
            for row in rows {
                let hash =
                    row.bytes(0)?.try_into().map_err(|_| StoreError::Unexpected("a key hash of 32 bytes".into()))?;
                let version = RowVersion { lineage: row.text(1)?, position: row.text(2)?, deleted: row.int(3)? != 0 };
                if !version.lineage.is_empty() {
                    versions.insert(hash, version);
                }
            }
        }
        Ok(versions)
    }

    /// Writes the versions that a batch reached.
    pub async fn set_row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        versions: &[([u8; 32], RowVersion)],
    ) -> Result<(), StoreError> {
        self.write_row_versions(pipeline, table, versions, true).await.map(drop)
    }

    async fn write_row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        versions: &[([u8; 32], RowVersion)],
        overwrite: bool,
    ) -> Result<u64, StoreError> {
        let dialect = self.dialect();
        let mut touched = 0;
        let update = match (dialect, overwrite) {
            (Dialect::Postgres | Dialect::Sqlite, true) => {
                "ON CONFLICT (pipeline, table_name, key_hash) DO UPDATE SET lineage = excluded.lineage, \
                 position = excluded.position, deleted = excluded.deleted, updated_at = excluded.updated_at"
            }
            (Dialect::Postgres | Dialect::Sqlite, false) => "ON CONFLICT (pipeline, table_name, key_hash) DO NOTHING",
            (Dialect::MySql, true) => {
                "ON DUPLICATE KEY UPDATE lineage = VALUES(lineage), position = VALUES(position), \
                 deleted = VALUES(deleted), updated_at = VALUES(updated_at)"
            }
            (Dialect::MySql, false) => "ON DUPLICATE KEY UPDATE key_hash = key_hash",
        };
        for chunk in versions.chunks(dialect.max_binds() / COLUMNS) {
            let now = dialect.now();
            let deleted = |version: &RowVersion| i64::from(version.deleted);
            let (sql, binds) = match dialect {
                Dialect::Postgres => (
                    format!(
                        "INSERT INTO countersign_row_versions (pipeline, table_name, key_hash, lineage, position, deleted, updated_at) \
                         SELECT $1, $2, u.key_hash, u.lineage, u.position, u.deleted <> 0, {now} \
                         FROM unnest(CAST($3 AS bytea[]), CAST($4 AS text[]), CAST($5 AS text[]), CAST($6 AS bigint[])) \
                         AS u(key_hash, lineage, position, deleted) {update}"
                    ),
                    vec![
                        Bind::text(pipeline),
                        Bind::text(table),
                        Bind::Array(Array::blobs(chunk.iter().map(|(hash, _)| Some(&hash[..])))),
                        Bind::Array(Array::texts(chunk.iter().map(|(_, version)| Some(&*version.lineage)))),
                        Bind::Array(Array::texts(chunk.iter().map(|(_, version)| Some(&*version.position)))),
                        Bind::Array(Array::ints(chunk.iter().map(|(_, version)| deleted(version)))),
                    ],
                ),
                Dialect::MySql | Dialect::Sqlite => {
                    let rows = vec![format!("(?, ?, ?, ?, ?, ?, {now})"); chunk.len()].join(", ");
                    let mut binds = Vec::with_capacity(chunk.len() * COLUMNS);
                    for (hash, version) in chunk {
                        binds.extend([
                            Bind::text(pipeline),
                            Bind::text(table),
                            Bind::Bytes(hash.to_vec()),
                            Bind::text(&version.lineage),
                            Bind::text(&version.position),
                            Bind::Int(deleted(version)),
                        ]);
                    }
                    (
                        format!(
                            "INSERT INTO countersign_row_versions (pipeline, table_name, key_hash, lineage, position, deleted, updated_at) \
                             VALUES {rows} {update}"
                        ),
                        binds,
                    )
                }
            };
            touched += self.execute(&sql, binds).await?;
        }
        Ok(touched)
    }
}
