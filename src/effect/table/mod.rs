//! The `table` effect: the changes of a source table applied to a target table by its key.

mod columns;
mod key;
mod moves;
mod versions;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use tracing::warn;

use self::columns::{Cells, Columns};
use self::key::{Other, RowKey};
use self::moves::Halves;
use self::versions::Versions;
use super::binding::Unbindable;
use super::culprit;
use super::learned::Learned;
use super::spec::{Guard, TableSpec};
use super::sql::{parked, violation};
use super::{Delivery, Effect};
use crate::debezium::event::{ChangeEvent, Operation};
use crate::debezium::guard::{GuardPosition, GuardVerdict, guard_position};
use crate::decision::Outcome;
use crate::store::{Dialect, StoreError, Tx};

pub struct TableEffect {
    spec: TableSpec,
    pipeline: String,
    columns: Learned<Columns>,
}

const SAVEPOINT: &str = "countersign_row";

/// A row to be written, or deleted where there are no cells.
struct Change {
    key: RowKey,
    cells: Option<Cells>,
    /// The other half of a change of key.
    other: Other,
}

/// None for a truncate.
type Wanted = Option<Result<Change, Unbindable>>;

impl TableEffect {
    pub fn new(spec: TableSpec, pipeline: &str) -> Self {
        Self { spec, pipeline: pipeline.to_owned(), columns: Learned::default() }
    }

    /// What an event asks for, every value fitted into its column.
    fn change(
        &self,
        event: &ChangeEvent,
        columns: &Columns,
        dialect: Dialect,
    ) -> Result<Result<Change, Unbindable>, StoreError> {
        let key = match RowKey::of(&self.spec, columns, dialect, event)? {
            Ok(key) => key,
            Err(unbindable) => return Ok(Err(unbindable)),
        };
        let other = Other::of(&self.spec, columns, dialect, event, &key)?;
        if event.op == Some(Operation::Delete) {
            return Ok(Ok(Change { key, cells: None, other }));
        }
        let Some(after) = &event.after else {
            return Ok(Err(Unbindable { code: "no_after", reason: "the change has no row after it".to_owned() }));
        };
        let cells = columns.cells(&self.spec, after, dialect, event)?;
        Ok(cells.map(|cells| Change { key, cells: Some(cells), other }))
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

    /// The changes of a run; None for a truncate. If something does not fit, all are made again with newly learned
    /// columns before it is believed: the table may have been altered, and a run is of one generation.
    async fn changes(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<(Arc<Columns>, Vec<Wanted>), StoreError> {
        let dialect = tx.dialect();
        let (mut columns, new) = self.known(tx).await?;
        let mut changes = self.fitted(run, &columns, dialect);
        if !new && !changes.iter().all(|change| matches!(change, Ok(None | Some(Ok(_))))) {
            columns = self.learn(tx).await?;
            changes = self.fitted(run, &columns, dialect);
        }
        Ok((columns, changes.into_iter().collect::<Result<_, _>>()?))
    }

    fn fitted(&self, run: &[Delivery<'_>], columns: &Columns, dialect: Dialect) -> Vec<Result<Wanted, StoreError>> {
        let events = run.iter().map(|delivery| &delivery.message.event);
        let change = |event: &ChangeEvent| match event.op {
            Some(Operation::Truncate) => Ok(None),
            _ => self.change(event, columns, dialect).map(Some),
        };
        events.map(change).collect()
    }

    async fn run(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let (columns, changes) = self.changes(tx, run).await?;
        let table = self.spec.table.join(".");
        let mut versions = Versions::lock(tx, &self.pipeline, &table, self.versioned(&changes)).await?;
        let mut outcomes = Vec::with_capacity(run.len());
        for (delivery, change) in run.iter().zip(changes) {
            outcomes.push(match change {
                None => {
                    self.empty(tx).await?;
                    Outcome::Applied
                }
                Some(Err(unbindable)) => parked(unbindable),
                Some(Ok(change)) => self.one(tx, &columns, &delivery.message.event, &change, &mut versions).await?,
            });
        }
        versions.store(tx, &self.pipeline, &table).await?;
        Ok(outcomes)
    }

    /// The rows whose versions matter: all with a guard, without one those whose key changes.
    fn versioned(&self, changes: &[Wanted]) -> Vec<[u8; 32]> {
        let mut hashes = Vec::new();
        for change in changes.iter().flatten().flatten() {
            let other = change.other.row();
            if self.spec.guard == Guard::Source || other.is_some() {
                hashes.push(change.key.hash);
                hashes.extend(other.map(|other| other.hash));
            }
        }
        hashes
    }

    async fn one(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        event: &ChangeEvent,
        change: &Change,
        versions: &mut Versions,
    ) -> Result<Outcome, StoreError> {
        let Change { key, cells, other } = change;
        // A connector whose coordinates give no order writes by arrival; `check` says so.
        let position = event.source.as_ref().and_then(guard_position);
        let guarded = position.as_ref().filter(|_| self.spec.guard == Guard::Source);
        if guarded.is_some_and(|position| self.is_stale(position, versions.position(key).as_ref())) {
            return Ok(Outcome::Stale);
        }
        // Without an order nobody knows which half came first.
        let just_before = position.as_ref().and_then(GuardPosition::just_before);
        let halves =
            |old, new| Some(Halves { old, new, position: position.as_ref()?, just_before: just_before.as_ref()? });
        let outcome = match (cells, other) {
            // The create at the same position says what becomes of the row.
            (None, Other::SameRow) => return Ok(Outcome::Applied),
            (None, Other::None) => {
                self.delete(tx, columns, key).await?;
                Outcome::Applied
            }
            (None, Other::Row(new)) => match halves(key, new) {
                Some(halves) => return self.delete_half(tx, columns, halves, versions).await,
                None => {
                    self.delete(tx, columns, key).await?;
                    Outcome::Applied
                }
            },
            (Some(cells), Other::Row(old)) if let Some(halves) = halves(old, key) => {
                return self.create_half(tx, columns, halves, cells, versions).await;
            }
            (Some(cells), _) if self.may_wait() && !cells.unavailable.is_empty() && versions.awaits_half(key, None) => {
                let missing = cells.unavailable.join(", ");
                let reason =
                    format!("the connector did not send {missing} (TOAST), and a change of the row's key is half done");
                return Ok(moves::wait("unavailable", reason));
            }
            (Some(cells), _) => self.write(tx, columns, key, cells).await?,
        };
        if let (Outcome::Applied, Some(position)) = (&outcome, guarded) {
            versions.set(key, position, cells.is_none());
        }
        Ok(outcome)
    }

    fn is_stale(&self, position: &GuardPosition, known: Option<&GuardPosition>) -> bool {
        match position.judge(known) {
            GuardVerdict::Stale => true,
            GuardVerdict::Newer => false,
            GuardVerdict::OtherLineage => {
                warn!(table = self.spec.table.join("."), "a row changes its lineage: the newer arrival wins");
                false
            }
        }
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
        let keys = [Some(&change.key), change.other.row()].into_iter().flatten().flat_map(|key| &key.cells);
        let cells = keys.chain(change.cells.iter().flat_map(|cells| &cells.cells));
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
