//! The `table` effect: the changes of a source table applied to a target table by its key.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::binding::Unbindable;
use super::culprit;
use super::learned::Learned;
use super::spec::{Guard, TableSpec};
use super::sql::{parked, violation};
use super::table_columns::{Cell, Cells, Columns};
use super::{Delivery, Effect};
use crate::debezium::event::{ChangeEvent, Operation};
use crate::debezium::guard::{GuardPosition, GuardVerdict, guard_position};
use crate::debezium::value::{Row, Value};
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::store::column::Written;
use crate::store::row_versions::RowVersion;
use crate::store::{Bind, Dialect, StoreError, Tx};

pub struct TableEffect {
    spec: TableSpec,
    pipeline: String,
    columns: Learned<Columns>,
}

const SAVEPOINT: &str = "countersign_row";

/// The key of one row of the target.
struct RowKey {
    cells: Vec<Cell>,
    hash: [u8; 32],
}

/// A row to be written, or deleted where there are no cells.
struct Change {
    key: RowKey,
    cells: Option<Cells>,
}

/// None for a truncate.
type Wanted = Option<Result<Change, Unbindable>>;

fn updatable(columns: &Columns, cell: &Cell) -> bool {
    !columns.written(&cell.column, Written::Identity)
}

impl TableEffect {
    pub fn new(spec: TableSpec, pipeline: &str) -> Self {
        Self { spec, pipeline: pipeline.to_owned(), columns: Learned::default() }
    }

    /// The key from the row after the change, else the one before it, else the record's key: a delete may come
    /// without a `before`, and the key columns of `before` are there even where the others are not.
    fn key(
        &self,
        event: &ChangeEvent,
        columns: &Columns,
        dialect: Dialect,
    ) -> Result<Result<RowKey, Unbindable>, StoreError> {
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
                return Ok(Err(Unbindable { code: "missing_key", reason }));
            };
            let cell = match columns.cell(&self.spec, (column, value), dialect, event)? {
                Ok(cell) => cell,
                Err(unbindable) => return Ok(Err(unbindable)),
            };
            let text = value.as_text().unwrap_or_default();
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
            cells.push(cell);
        }
        Ok(Ok(RowKey { cells, hash: hash.finalize().into() }))
    }

    fn table(&self, dialect: Dialect) -> String {
        dialect.quote_path(&self.spec.table)
    }

    async fn write(&self, tx: &mut Tx, columns: &Columns, change: &Change) -> Result<Outcome, StoreError> {
        let dialect = tx.dialect();
        let Change { key, cells: Some(cells) } = change else {
            let (condition, binds) = change.key.condition(dialect, columns, 0);
            tx.execute(&format!("DELETE FROM {} WHERE {condition}", self.table(dialect)), binds).await?;
            return Ok(Outcome::Applied);
        };
        let is_key = |cell: &Cell| key.cells.iter().any(|of_key| of_key.column == cell.column);
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
        self.upsert(tx, columns, key, &values).await?;
        Ok(Outcome::Applied)
    }

    /// False if the row is not there.
    async fn update(&self, tx: &mut Tx, columns: &Columns, values: &[&Cell], key: &RowKey) -> Result<bool, StoreError> {
        let dialect = tx.dialect();
        let values: Vec<&Cell> = values.iter().copied().filter(|cell| updatable(columns, cell)).collect();
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

    async fn upsert(&self, tx: &mut Tx, columns: &Columns, key: &RowKey, values: &[&Cell]) -> Result<(), StoreError> {
        let dialect = tx.dialect();
        let cells: Vec<&Cell> = key.cells.iter().chain(values.iter().copied()).collect();
        let names = cells.iter().map(|cell| dialect.quote(&cell.column)).collect::<Vec<_>>().join(", ");
        let places = cells.iter().enumerate().map(|(n, cell)| columns.place(dialect, &cell.column, n));
        let places = places.collect::<Vec<_>>().join(", ");
        // The source numbered its rows; a number of the target's own would be another.
        let identity = cells.iter().any(|cell| columns.written(&cell.column, Written::Identity));
        let overriding = if identity { " OVERRIDING SYSTEM VALUE" } else { "" };
        let mut sql = format!("INSERT INTO {} ({names}){overriding} VALUES ({places})", self.table(dialect));
        if dialect != Dialect::MySql {
            let key = key.cells.iter().map(|cell| dialect.quote(&cell.column)).collect::<Vec<_>>().join(", ");
            let set = values.iter().filter(|cell| updatable(columns, cell)).map(|cell| {
                let name = dialect.quote(&cell.column);
                format!("{name} = excluded.{name}")
            });
            let set = set.collect::<Vec<_>>().join(", ");
            let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
            sql.push_str(&format!(" ON CONFLICT ({key}) DO {action}"));
        }
        tx.execute(&sql, cells.iter().map(|cell| cell.bind.clone()).collect()).await.map(drop)
    }

    /// What an event asks for, every value fitted into its column.
    fn change(
        &self,
        event: &ChangeEvent,
        columns: &Columns,
        dialect: Dialect,
    ) -> Result<Result<Change, Unbindable>, StoreError> {
        let key = match self.key(event, columns, dialect)? {
            Ok(key) => key,
            Err(unbindable) => return Ok(Err(unbindable)),
        };
        if event.op == Some(Operation::Delete) {
            return Ok(Ok(Change { key, cells: None }));
        }
        let Some(after) = &event.after else {
            return Ok(Err(Unbindable { code: "no_after", reason: "the change has no row after it".to_owned() }));
        };
        let cells = columns.cells(&self.spec, after, dialect, event)?;
        Ok(cells.map(|cells| Change { key, cells: Some(cells) }))
    }

    /// What is known, and whether it was asked for just now.
    async fn known(&self, tx: &mut Tx) -> Result<(Arc<Columns>, bool), StoreError> {
        match self.columns.known() {
            Some(columns) => Ok((columns, false)),
            None => Ok((self.learn(tx).await?, true)),
        }
    }

    async fn learn(&self, tx: &mut Tx) -> Result<Arc<Columns>, StoreError> {
        Ok(self.columns.learn(Columns::of(tx, &self.spec.table).await?))
    }

    /// The changes of a run; None for a truncate. What does not fit is tried with newly learned columns before it is
    /// believed: the table may have been altered.
    async fn changes(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<(Arc<Columns>, Vec<Wanted>), StoreError> {
        let dialect = tx.dialect();
        let (mut columns, mut new) = self.known(tx).await?;
        let mut changes = Vec::with_capacity(run.len());
        for delivery in run {
            let event = &delivery.message.event;
            if event.op == Some(Operation::Truncate) {
                changes.push(None);
                continue;
            }
            let mut change = self.change(event, &columns, dialect);
            if !new && !matches!(change, Ok(Ok(_))) {
                (columns, new) = (self.learn(tx).await?, true);
                change = self.change(event, &columns, dialect);
            }
            changes.push(Some(change?));
        }
        Ok((columns, changes))
    }

    async fn run(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let dialect = tx.dialect();
        let (columns, changes) = self.changes(tx, run).await?;
        let mut versions = self.versions(tx, &changes).await?;
        let mut changed: HashMap<[u8; 32], RowVersion> = HashMap::new();
        let mut outcomes = Vec::with_capacity(run.len());
        for (delivery, change) in run.iter().zip(changes) {
            let event = &delivery.message.event;
            outcomes.push(match change {
                None => {
                    tx.execute(&format!("DELETE FROM {}", self.table(dialect)), Vec::new()).await?;
                    Outcome::Applied
                }
                Some(Err(unbindable)) => parked(unbindable),
                Some(Ok(change)) => {
                    let hash = change.key.hash;
                    let version = match self.guard(event, versions.get(&hash)) {
                        Guarded::Stale => {
                            outcomes.push(Outcome::Stale);
                            continue;
                        }
                        Guarded::Apply(version) => version,
                    };
                    let outcome = self.write(tx, &columns, &change).await?;
                    if let (Outcome::Applied, Some(version)) = (&outcome, version) {
                        versions.insert(hash, version.clone());
                        changed.insert(hash, version);
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

    async fn versions(&self, tx: &mut Tx, changes: &[Wanted]) -> Result<HashMap<[u8; 32], RowVersion>, StoreError> {
        if self.spec.guard == Guard::None {
            return Ok(HashMap::new());
        }
        let mut hashes: Vec<[u8; 32]> = changes.iter().flatten().flatten().map(|change| change.key.hash).collect();
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
        let may_ignore = self.spec.violations.may_ignore();
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
                if let Some(refused) = culprit::unreadable(&error) {
                    return Ok(refused);
                }
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
        Some(self.run(tx, run).await.or_else(|error| match culprit::unreadable(&error) {
            // Told apart message by message.
            Some(refused) => Ok(vec![refused; run.len()]),
            None => Err(error),
        }))
    }

    fn violated(&self, error: &StoreError) -> Option<Outcome> {
        violation(error, self.spec.violations)
    }

    async fn culprit(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Option<String>, StoreError> {
        let (columns, mut changes) = self.changes(tx, std::slice::from_ref(delivery)).await?;
        let Some(Some(Ok(change))) = changes.pop() else { return Ok(None) };
        let cells = change.key.cells.iter().chain(change.cells.iter().flat_map(|cells| &cells.cells));
        let tries = cells.filter_map(|cell| {
            let column = columns.find(&cell.column, tx.dialect())?;
            Some((format!("column {}", column.name), column.cast.clone(), cell.bind.clone()))
        });
        let tries: Vec<_> = tries.collect();
        culprit::find(tx, tries).await
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
