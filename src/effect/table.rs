//! The `table` effect: the changes of a source table applied to a target table by its key.

use std::collections::HashMap;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::binding::{Unbindable, bind};
use super::spec::{Answer, Guard, TableSpec};
use super::sql::{parked, violation};
use super::table_columns::{Cell, ColumnCache, Columns};
use super::{Delivery, Effect};
use crate::debezium::event::{ChangeEvent, Operation};
use crate::debezium::guard::{GuardPosition, GuardVerdict, guard_position};
use crate::debezium::value::{Row, Value};
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::store::row_versions::RowVersion;
use crate::store::{Bind, Dialect, StoreError, Tx};

pub struct TableEffect {
    spec: TableSpec,
    pipeline: String,
    columns: ColumnCache,
}

const SAVEPOINT: &str = "countersign_row";

/// The key of one row of the target.
struct RowKey {
    cells: Vec<Cell>,
    hash: [u8; 32],
}

impl TableEffect {
    pub fn new(spec: TableSpec, pipeline: &str) -> Self {
        Self { spec, pipeline: pipeline.to_owned(), columns: ColumnCache::default() }
    }

    /// The key from the row after the change, else the one before it, else the record's key: a delete may come
    /// without a `before`, and the key columns of `before` are there even where the others are not.
    fn key(&self, event: &ChangeEvent, dialect: Dialect) -> Result<RowKey, Unbindable> {
        let record_key = match &event.key {
            Some(Value::Struct(row)) => Some(row),
            _ => None,
        };
        let mut cells = Vec::with_capacity(self.spec.key.len());
        let mut hash = Sha256::new();
        for column in &self.spec.key {
            let field = self.spec.rename.iter().find(|(target, _)| target == column).map_or(column, |(_, from)| from);
            let places = [event.after.as_ref(), event.before.as_ref(), record_key];
            let found = places.iter().flatten().find_map(|row: &&Row| row.get(field).filter(|v| **v != Value::Null));
            let Some(value) = found else {
                let reason = format!("neither the row nor the record's key has a value for key column {column}");
                return Err(Unbindable { code: "missing_key", reason });
            };
            let cell = Cell { column: column.clone(), bind: bind(value, dialect)? };
            let text = value.as_text().unwrap_or_default();
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
            cells.push(cell);
        }
        Ok(RowKey { cells, hash: hash.finalize().into() })
    }

    fn table(&self, dialect: Dialect) -> String {
        dialect.quote_path(&self.spec.table)
    }

    async fn write(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        event: &ChangeEvent,
        key: &RowKey,
    ) -> Result<Outcome, StoreError> {
        let dialect = tx.dialect();
        if event.op == Some(Operation::Delete) {
            let (condition, binds) = key.condition(dialect, columns, 0);
            tx.execute(&format!("DELETE FROM {} WHERE {condition}", self.table(dialect)), binds).await?;
            return Ok(Outcome::Applied);
        }
        let Some(after) = &event.after else {
            return Ok(parked(Unbindable { code: "no_after", reason: "the change has no row after it".to_owned() }));
        };
        let cells = match columns.cells(&self.spec, after, dialect)? {
            Ok(cells) => cells,
            Err(unbindable) => return Ok(parked(unbindable)),
        };
        let is_key = |cell: &Cell| self.spec.key.contains(&cell.column);
        let values: Vec<&Cell> = cells.cells.iter().filter(|cell| !is_key(cell)).collect();
        if !cells.unavailable.is_empty() || dialect == Dialect::MySql {
            // An upsert on MySQL would meet any unique key; an unavailable value must not be inserted anywhere.
            if self.update(tx, columns, &values, key).await? {
                return Ok(Outcome::Applied);
            }
        }
        if !cells.unavailable.is_empty() {
            return Ok(Outcome::Refused(Refusal {
                kind: RefusalKind::Park,
                code: "unavailable".to_owned(),
                reason: format!(
                    "the row is not there, and the connector did not send {} (TOAST)",
                    cells.unavailable.join(", ")
                ),
                clean: true,
            }));
        }
        self.upsert(tx, columns, &key.cells.iter().chain(values.iter().copied()).collect::<Vec<_>>()).await?;
        Ok(Outcome::Applied)
    }

    /// False if the row is not there.
    async fn update(&self, tx: &mut Tx, columns: &Columns, values: &[&Cell], key: &RowKey) -> Result<bool, StoreError> {
        let dialect = tx.dialect();
        if values.is_empty() {
            let (condition, binds) = key.condition(dialect, columns, 0);
            let rows = tx.fetch(&format!("SELECT 1 FROM {} WHERE {condition}", self.table(dialect)), binds).await?;
            return Ok(!rows.is_empty());
        }
        let set = values
            .iter()
            .enumerate()
            .map(|(n, cell)| format!("{} = {}", dialect.quote(&cell.column), columns.place(dialect, &cell.column, n)));
        let set = set.collect::<Vec<_>>().join(", ");
        let (condition, key_binds) = key.condition(dialect, columns, values.len());
        let mut binds: Vec<Bind> = values.iter().map(|cell| cell.bind.clone()).collect();
        binds.extend(key_binds);
        let rows = tx.execute(&format!("UPDATE {} SET {set} WHERE {condition}", self.table(dialect)), binds).await?;
        Ok(rows > 0)
    }

    async fn upsert(&self, tx: &mut Tx, columns: &Columns, cells: &[&Cell]) -> Result<(), StoreError> {
        let dialect = tx.dialect();
        let names = cells.iter().map(|cell| dialect.quote(&cell.column)).collect::<Vec<_>>().join(", ");
        let places = cells.iter().enumerate().map(|(n, cell)| columns.place(dialect, &cell.column, n));
        let places = places.collect::<Vec<_>>().join(", ");
        let mut sql = format!("INSERT INTO {} ({names}) VALUES ({places})", self.table(dialect));
        if dialect != Dialect::MySql {
            let key = self.spec.key.iter().map(|column| dialect.quote(column)).collect::<Vec<_>>().join(", ");
            let set = cells.iter().filter(|cell| !self.spec.key.contains(&cell.column)).map(|cell| {
                let name = dialect.quote(&cell.column);
                format!("{name} = excluded.{name}")
            });
            let set = set.collect::<Vec<_>>().join(", ");
            let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
            sql.push_str(&format!(" ON CONFLICT ({key}) DO {action}"));
        }
        tx.execute(&sql, cells.iter().map(|cell| cell.bind.clone()).collect()).await.map(drop)
    }

    async fn run(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let dialect = tx.dialect();
        let columns = self.columns.get(tx, &self.spec.table).await?;
        let mut keys = Vec::with_capacity(run.len());
        for delivery in run {
            keys.push(match delivery.message.event.op {
                Some(Operation::Truncate) => None,
                _ => Some(self.key(&delivery.message.event, dialect)),
            });
        }
        let mut versions = self.versions(tx, &keys).await?;
        let mut changed: HashMap<[u8; 32], RowVersion> = HashMap::new();
        let mut outcomes = Vec::with_capacity(run.len());
        for (delivery, key) in run.iter().zip(keys) {
            let event = &delivery.message.event;
            outcomes.push(match key {
                None => {
                    tx.execute(&format!("DELETE FROM {}", self.table(dialect)), Vec::new()).await?;
                    Outcome::Applied
                }
                Some(Err(unbindable)) => parked(unbindable),
                Some(Ok(key)) => {
                    let version = match self.guard(event, versions.get(&key.hash)) {
                        Guarded::Stale => {
                            outcomes.push(Outcome::Stale);
                            continue;
                        }
                        Guarded::Apply(version) => version,
                    };
                    let outcome = self.write(tx, &columns, event, &key).await?;
                    if let (Outcome::Applied, Some(version)) = (&outcome, version) {
                        versions.insert(key.hash, version.clone());
                        changed.insert(key.hash, version);
                    }
                    outcome
                }
            });
        }
        let mut changed: Vec<_> = changed.into_iter().collect();
        changed.sort_unstable_by_key(|(hash, _)| *hash);
        tx.set_row_versions(&self.pipeline, &self.spec.table.join("."), &changed).await?;
        Ok(outcomes)
    }

    async fn versions(
        &self,
        tx: &mut Tx,
        keys: &[Option<Result<RowKey, Unbindable>>],
    ) -> Result<HashMap<[u8; 32], RowVersion>, StoreError> {
        if self.spec.guard == Guard::None {
            return Ok(HashMap::new());
        }
        let mut hashes: Vec<[u8; 32]> = keys.iter().flatten().flatten().map(|key| key.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        tx.row_versions(&self.pipeline, &self.spec.table.join("."), &hashes).await
    }

    fn guard(&self, event: &ChangeEvent, known: Option<&RowVersion>) -> Guarded {
        if self.spec.guard == Guard::None {
            return Guarded::Apply(None);
        }
        // A connector whose coordinates give no order writes by arrival; `check` says so.
        let Some(position) = event.source.as_ref().and_then(guard_position) else { return Guarded::Apply(None) };
        let known =
            known.map(|version| GuardPosition { lineage: version.lineage.clone(), position: version.position.clone() });
        match position.judge(known.as_ref()) {
            GuardVerdict::Stale => return Guarded::Stale,
            GuardVerdict::OtherLineage => {
                warn!(table = self.spec.table.join("."), "a row changes its lineage: the newer arrival wins");
            }
            GuardVerdict::Newer => {}
        }
        Guarded::Apply(Some(RowVersion {
            lineage: position.lineage,
            position: position.position,
            deleted: event.op == Some(Operation::Delete),
        }))
    }
}

enum Guarded {
    Stale,
    Apply(Option<RowVersion>),
}

impl RowKey {
    fn condition(&self, dialect: Dialect, columns: &Columns, from: usize) -> (String, Vec<Bind>) {
        let equal = self.cells.iter().enumerate().map(|(n, cell)| {
            format!("{} = {}", dialect.quote(&cell.column), columns.place(dialect, &cell.column, from + n))
        });
        (equal.collect::<Vec<_>>().join(" AND "), self.cells.iter().map(|cell| cell.bind.clone()).collect())
    }
}

#[async_trait]
impl Effect for TableEffect {
    async fn apply(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
        let answers = &self.spec.violations;
        let may_ignore = [answers.on_unique, answers.on_foreign_key, answers.on_check].contains(&Answer::Ignore);
        if may_ignore {
            tx.savepoint(SAVEPOINT).await?;
        }
        match self.run(tx, std::slice::from_ref(delivery)).await {
            Ok(mut outcomes) => {
                if may_ignore {
                    tx.release_savepoint(SAVEPOINT).await?;
                }
                outcomes.pop().ok_or_else(|| StoreError::Unexpected("an effect without an outcome".to_owned()))
            }
            Err(error) => {
                let outcome = violation(&error, self.spec.violations).ok_or(error)?;
                if matches!(outcome, Outcome::Ignored { .. }) {
                    // The statement has aborted the transaction on Postgres; what is ignored must not.
                    tx.rollback_to(SAVEPOINT).await?;
                }
                Ok(outcome)
            }
        }
    }

    async fn apply_all(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Option<Result<Vec<Outcome>, StoreError>> {
        Some(self.run(tx, run).await)
    }

    fn violated(&self, error: &StoreError) -> Option<Outcome> {
        violation(error, self.spec.violations)
    }

    fn forget(&self) {
        self.columns.forget();
    }

    fn describe(&self) -> String {
        let guard = match self.spec.guard {
            Guard::None => "the last one to arrive writes",
            Guard::Source => "guarded by source position",
        };
        format!("table {}, {guard}", self.spec.table.join("."))
    }
}
