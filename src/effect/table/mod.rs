//! The `table` effect: the changes of a source table applied to a target table by its key.

mod columns;
mod gathered;
mod key;
mod moves;
mod versions;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use tracing::warn;

use self::columns::{Cells, Columns};
use self::gathered::Gathered;
use self::key::{Other, RowKey};
use self::moves::Halves;
use self::versions::{Expected, Versions};
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
    /// A connector whose coordinates give no order writes by arrival; `check` says so.
    position: Option<GuardPosition>,
}

/// How far a run has come.
struct State<'a> {
    columns: &'a Columns,
    versions: &'a mut Versions,
    gathered: Gathered,
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
        let position = event.source.as_ref().and_then(guard_position);
        if event.op == Some(Operation::Delete) {
            return Ok(Ok(Change { key, cells: None, other, position }));
        }
        let Some(after) = &event.after else {
            return Ok(Err(Unbindable { code: "no_after", reason: "the change has no row after it".to_owned() }));
        };
        let cells = columns.cells(&self.spec, after, dialect, event)?;
        Ok(cells.map(|cells| Change { key, cells: Some(cells), other, position }))
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
        let mut versions = Versions::lock(tx, &self.pipeline, &table, self.expected(&changes)).await?;
        let mut outcomes = Vec::with_capacity(run.len());
        let mut state = State { columns: &columns, versions: &mut versions, gathered: Gathered::default() };
        for change in changes {
            outcomes.push(match change {
                None => {
                    self.flush(tx, &columns, &mut state.gathered).await?;
                    self.empty(tx).await?;
                    Outcome::Applied
                }
                Some(Err(unbindable)) => parked(unbindable),
                Some(Ok(change)) => self.one(tx, change, &mut state).await?,
            });
        }
        self.flush(tx, &columns, &mut state.gathered).await?;
        versions.store(tx, &self.pipeline, &table).await?;
        Ok(outcomes)
    }

    /// The rows whose versions matter: all with a guard, without one those whose key changes.
    fn expected(&self, changes: &[Wanted]) -> Expected {
        let mut expected = Expected::default();
        let guarded = self.spec.guard == Guard::Source;
        for Change { key, cells, other, position } in changes.iter().flatten().flatten() {
            let whole = cells.as_ref().is_none_or(|cells| cells.unavailable.is_empty());
            match (other, position) {
                (Other::None, Some(position)) if guarded && whole => expected.reach(key, position, cells.is_none()),
                (Other::None, _) if guarded => expected.unknown(key),
                (Other::None, _) => {}
                (Other::SameRow, _) if guarded => expected.unknown(key),
                (Other::SameRow, _) => {}
                (Other::Row(other), _) => {
                    expected.unknown(key);
                    expected.unknown(other);
                }
            }
        }
        expected
    }

    async fn one(&self, tx: &mut Tx, change: Change, state: &mut State<'_>) -> Result<Outcome, StoreError> {
        let Change { key, cells, other, position } = change;
        let (columns, versions) = (state.columns, &mut *state.versions);
        let guarded = position.as_ref().filter(|_| self.spec.guard == Guard::Source);
        if guarded.is_some_and(|position| self.is_stale(position, versions.position(&key).as_ref())) {
            return Ok(Outcome::Stale);
        }
        // Without an order nobody knows which half came first.
        let just_before = position.as_ref().and_then(GuardPosition::just_before);
        if let (Other::Row(other), Some(position), Some(just_before)) = (&other, &position, &just_before) {
            // The rows as they are, for which a move asks the table.
            self.flush(tx, columns, &mut state.gathered).await?;
            let halves = |old, new| Halves { old, new, position, just_before };
            return match &cells {
                None => self.delete_half(tx, columns, halves(&key, other), versions).await,
                Some(cells) => self.create_half(tx, columns, halves(other, &key), cells, versions).await,
            };
        }
        let deleted = cells.is_none();
        let outcome = match (cells, other) {
            // The create at the same position says what becomes of the row.
            (None, Other::SameRow) => return Ok(Outcome::Applied),
            (None, Other::None | Other::Row(_)) => {
                state.gathered.delete(&key);
                Outcome::Applied
            }
            (Some(cells), _)
                if self.may_wait() && !cells.unavailable.is_empty() && versions.awaits_half(&key, None) =>
            {
                let missing = cells.unavailable.join(", ");
                let reason =
                    format!("the connector did not send {missing} (TOAST), and a change of the row's key is half done");
                return Ok(moves::wait("unavailable", reason));
            }
            (Some(cells), _) => match state.gathered.there(&key) {
                // The delete keeps its place among the changes of other rows, which it may take along (a foreign key).
                Some(false) if cells.unavailable.is_empty() => {
                    self.flush(tx, columns, &mut state.gathered).await?;
                    state.gathered.write(&key, cells.cells);
                    Outcome::Applied
                }
                known if known == Some(true) || cells.unavailable.is_empty() => {
                    state.gathered.write(&key, cells.cells);
                    Outcome::Applied
                }
                // Only the table knows whether there is a row that has what was not sent.
                _ => {
                    self.flush(tx, columns, &mut state.gathered).await?;
                    self.write(tx, columns, &key, &cells).await?
                }
            },
        };
        if let (Outcome::Applied, Some(position)) = (&outcome, guarded) {
            versions.set(&key, position, deleted);
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
        Some(self.run(tx, run).await.or_else(|error| match culprit::to_be_told_apart(&error) {
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
        format!("table {}, {guard}; changes of a row folded within a batch", self.spec.table.join("."))
    }
}
