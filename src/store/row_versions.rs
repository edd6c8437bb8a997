//! The newest source position that was applied to each guarded row.

use std::collections::{HashMap, HashSet};

use super::bind::{Array, by_keys};
use super::{Bind, Dialect, StoreError, StoreRow, Tx};

/// What the guard knows of one row. It outlives the row's delete, so that a late update does not raise the dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowVersion {
    pub lineage: String,
    pub position: String,
    pub deleted: bool,
}

/// The versions of some rows, locked.
#[derive(Debug, Default)]
pub struct LockedVersions {
    /// Of rows that have one.
    pub known: HashMap<[u8; 32], RowVersion>,
    /// Rows that had none and were given the one of the call.
    pub new: HashSet<[u8; 32]>,
}

const COLUMNS: usize = 6;

impl Tx {
    /// Reads and locks the versions of these rows until the end of the transaction. A row without a version gets one first,
    /// for what is not there cannot be locked, and two lanes would both take themselves for the first: the one that is given
    /// here on PostgreSQL, which tells which rows were new, and an empty one on MySQL.
    pub async fn row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        rows: &[([u8; 32], RowVersion)],
    ) -> Result<LockedVersions, StoreError> {
        let dialect = self.dialect();
        debug_assert!(rows.is_sorted_by_key(|(hash, _)| hash), "two batches lock in the same order");
        let mut locked = LockedVersions::default();
        match dialect {
            Dialect::Postgres => locked.new = self.insert_row_versions(pipeline, table, rows).await?,
            Dialect::MySql => {
                let empty: Vec<_> = rows.iter().map(|(hash, _)| (*hash, RowVersion::default())).collect();
                self.write_row_versions(pipeline, table, &empty, false).await?;
            }
            Dialect::Sqlite => {}
        }
        let rows = rows.iter().map(|(hash, _)| *hash).filter(|hash| !locked.new.contains(hash)).collect::<Vec<_>>();
        locked.known = self.read_row_versions(pipeline, table, &rows).await?;
        Ok(locked)
    }

    /// Those of the rows that were new.
    async fn insert_row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        rows: &[([u8; 32], RowVersion)],
    ) -> Result<HashSet<[u8; 32]>, StoreError> {
        let mut new = HashSet::with_capacity(rows.len());
        let (sql, binds) = unnested(pipeline, table, rows, "ON CONFLICT DO NOTHING RETURNING key_hash");
        for row in self.fetch(&sql, binds).await? {
            new.insert(hash(&row)?);
        }
        Ok(new)
    }

    async fn read_row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        key_hashes: &[[u8; 32]],
    ) -> Result<HashMap<[u8; 32], RowVersion>, StoreError> {
        let dialect = self.dialect();
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
                let version = RowVersion { lineage: row.text(1)?, position: row.text(2)?, deleted: row.int(3)? != 0 };
                if !version.lineage.is_empty() {
                    versions.insert(hash(&row)?, version);
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
        self.write_row_versions(pipeline, table, versions, true).await
    }

    async fn write_row_versions(
        &mut self,
        pipeline: &str,
        table: &str,
        versions: &[([u8; 32], RowVersion)],
        overwrite: bool,
    ) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let update = match (dialect, overwrite) {
            (Dialect::Postgres | Dialect::Sqlite, true) => {
                "ON CONFLICT (pipeline, table_name, key_hash) DO UPDATE SET lineage = excluded.lineage, \
                 position = excluded.position, deleted = excluded.deleted, updated_at = excluded.updated_at"
            }
            (Dialect::Postgres | Dialect::Sqlite, false) => "ON CONFLICT DO NOTHING",
            (Dialect::MySql, true) => {
                "ON DUPLICATE KEY UPDATE lineage = VALUES(lineage), position = VALUES(position), \
                 deleted = VALUES(deleted), updated_at = VALUES(updated_at)"
            }
            (Dialect::MySql, false) => "ON DUPLICATE KEY UPDATE key_hash = key_hash",
        };
        for chunk in versions.chunks(dialect.max_binds() / COLUMNS) {
            let (sql, binds) = match dialect {
                Dialect::Postgres => unnested(pipeline, table, chunk, update),
                Dialect::MySql | Dialect::Sqlite => {
                    let rows = vec![format!("(?, ?, ?, ?, ?, ?, {})", dialect.now()); chunk.len()].join(", ");
                    let mut binds = Vec::with_capacity(chunk.len() * COLUMNS);
                    for (hash, version) in chunk {
                        binds.extend([
                            Bind::text(pipeline),
                            Bind::text(table),
                            Bind::Bytes(hash.to_vec()),
                            Bind::text(&version.lineage),
                            Bind::text(&version.position),
                            Bind::Int(i64::from(version.deleted)),
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
            self.execute(&sql, binds).await?;
        }
        Ok(())
    }
}

fn hash(row: &StoreRow) -> Result<[u8; 32], StoreError> {
    row.bytes(0)?.try_into().map_err(|_| StoreError::Unexpected("a key hash of 32 bytes".into()))
}

/// The insert of these rows on PostgreSQL, and what happens to those that are there.
fn unnested(pipeline: &str, table: &str, rows: &[([u8; 32], RowVersion)], there: &str) -> (String, Vec<Bind>) {
    let sql = format!(
        "INSERT INTO countersign_row_versions (pipeline, table_name, key_hash, lineage, position, deleted, updated_at) \
         SELECT $1, $2, u.key_hash, u.lineage, u.position, u.deleted <> 0, {} \
         FROM unnest(CAST($3 AS bytea[]), CAST($4 AS text[]), CAST($5 AS text[]), CAST($6 AS bigint[])) \
         AS u(key_hash, lineage, position, deleted) {there}",
        Dialect::Postgres.now()
    );
    let binds = vec![
        Bind::text(pipeline),
        Bind::text(table),
        Bind::Array(Array::blobs(rows.iter().map(|(hash, _)| Some(&hash[..])))),
        Bind::Array(Array::texts(rows.iter().map(|(_, version)| Some(&*version.lineage)))),
        Bind::Array(Array::texts(rows.iter().map(|(_, version)| Some(&*version.position)))),
        Bind::Array(Array::ints(rows.iter().map(|(_, version)| i64::from(version.deleted)))),
    ];
    (sql, binds)
}
