//! The `sql` effect: the steps of a route, with values bound from the message.

use std::sync::Arc;

use async_trait::async_trait;

use super::binding::{Unbindable, resolve};
use super::insert::{InsertShape, insert_shape};
use super::learned::Learned;
use super::spec::{Answer, SqlStep, Violations};
use super::targets::{Name, targets};
use super::{Delivery, Effect, culprit};
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::receipt::code;
use crate::store::bind::cut;
use crate::store::{Bind, Column, Dialect, Meaning, StoreError, Tx, column};

pub struct SqlEffect {
    steps: Vec<SqlStep>,
    dialect: Dialect,
    /// The steps' statements for this database, learned at their first use.
    prepared: Learned<Prepared>,
    /// The single step is a plain `INSERT … VALUES`: many rows in one statement come to the same.
    insert: Option<InsertShape>,
}

/// The binds of a message's steps.
type Bound = Result<Vec<Vec<Bind>>, Unbindable>;

/// The statements as this database takes them.
struct Prepared {
    steps: Vec<PreparedStep>,
    /// Postgres: the set-based form of the only step.
    many: Option<String>,
}

struct PreparedStep {
    sql: String,
    /// What is known of each parameter: the column that takes it, else on Postgres the type that the server infers.
    places: Vec<Option<Column>>,
}

const SAVEPOINT: &str = "countersign_step";

impl SqlEffect {
    pub fn new(steps: Vec<SqlStep>, dialect: Dialect) -> Self {
        let insert = match &steps[..] {
            [step] if set_based(step) => insert_shape(&step.sql),
            _ => None,
        };
        Self { steps, dialect, prepared: Learned::default(), insert }
    }

    /// What is known, and whether it was asked for just now.
    async fn prepared(&self, tx: &mut Tx) -> Result<(Arc<Prepared>, bool), StoreError> {
        match self.prepared.known() {
            Some(prepared) => Ok((prepared, false)),
            None => Ok((self.prepare(tx).await?, true)),
        }
    }

    async fn prepare(&self, tx: &mut Tx) -> Result<Arc<Prepared>, StoreError> {
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut many = None;
        for step in &self.steps {
            let plain = step.sql.render(|index, _| self.dialect.placeholder(index));
            let mut places = self.columns(tx, step).await?;
            let mut sql = plain.clone();
            if self.dialect == Dialect::Postgres {
                let parameters = tx.parameters(&plain).await?;
                sql = step.sql.render(|n, _| self.dialect.cast(&format!("${}", n + 1), &parameters[n].cast));
                many = self.insert.as_ref().map(|insert| insert.unnest(&parameters));
                for (place, parameter) in places.iter_mut().zip(parameters) {
                    *place = Some(match place.take() {
                        Some(column) => Column { cast: parameter.cast, ..column },
                        None => parameter,
                    });
                }
            }
            steps.push(PreparedStep { sql, places });
        }
        Ok(self.prepared.learn(Prepared { steps, many }))
    }

    /// The column that each parameter of a step goes to, where the statement says so.
    async fn columns(&self, tx: &mut Tx, step: &SqlStep) -> Result<Vec<Option<Column>>, StoreError> {
        let targets = targets(&step.sql);
        if targets.columns.iter().all(Option::is_none) {
            return Ok(vec![None; targets.columns.len()]);
        }
        let folded = |name: &Name| match self.dialect {
            Dialect::Postgres if !name.quoted => name.text.to_lowercase(),
            Dialect::Postgres | Dialect::MySql | Dialect::Sqlite => name.text.clone(),
        };
        let table: Vec<String> = targets.table.iter().map(folded).collect();
        let known = tx.columns(&table).await?;
        let find = |name: Name| column::find(&known, &folded(&name), self.dialect).cloned();
        Ok(targets.columns.into_iter().map(|name| name.and_then(find)).collect())
    }

    /// Every parameter of every step, in its order.
    fn bind(&self, prepared: &Prepared, delivery: &Delivery<'_>) -> Result<Vec<Vec<Bind>>, Unbindable> {
        let steps = self.steps.iter().zip(&prepared.steps);
        let bound = steps.map(|(step, known)| {
            let params = step.sql.params().zip(&known.places);
            params.map(|(param, place)| resolve(delivery, param, place.as_ref(), self.dialect)).collect()
        });
        bound.collect()
    }

    /// What does not fit is tried with what is learned anew before it is believed: a table may have been altered.
    async fn bound(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Result<(Arc<Prepared>, Vec<Bound>), StoreError> {
        let bind = |prepared: &Prepared| run.iter().map(|delivery| self.bind(prepared, delivery)).collect();
        let (mut prepared, new) = self.prepared(tx).await?;
        let mut all: Vec<Bound> = bind(&prepared);
        if !new && all.iter().any(Result::is_err) {
            prepared = self.prepare(tx).await?;
            // All of them: one statement takes values of one form.
            all = bind(&prepared);
        }
        Ok((prepared, all))
    }

    /// One step: None if it did what was expected.
    async fn step(
        &self,
        tx: &mut Tx,
        (step, sql): (&SqlStep, &str),
        binds: Vec<Bind>,
        clean: bool,
    ) -> Result<Option<Outcome>, StoreError> {
        let violations = step.violations;
        let may_ignore = violations.may_ignore();
        if may_ignore {
            tx.savepoint(SAVEPOINT).await?;
        }
        let done = tx.execute(sql, binds).await;
        let rows = match done {
            Ok(rows) => {
                if may_ignore {
                    tx.release_savepoint(SAVEPOINT).await?;
                }
                rows
            }
            Err(error) => {
                if let Some(refused) = culprit::unreadable(&error) {
                    return Ok(Some(refused));
                }
                let Some((answer, code)) = violation_answer(error.meaning(), violations) else { return Err(error) };
                if answer == Answer::Ignore {
                    tx.rollback_to(SAVEPOINT).await?;
                }
                // On Postgres the failed statement has aborted the transaction: never clean.
                return Ok(Some(answered(
                    answer,
                    step.code.as_deref().unwrap_or(code),
                    constraint_text(&error),
                    false,
                )));
            }
        };
        match step.expect_rows {
            Some(expected) if rows != expected => {
                let reason = format!("expected {expected} rows, the statement touched {rows}");
                let code = step.code.as_deref().unwrap_or(code::ROWS);
                Ok(Some(answered(step.otherwise, code, reason, clean && rows == 0)))
            }
            Some(_) | None => Ok(None),
        }
    }

    async fn all(&self, tx: &mut Tx, insert: &InsertShape, run: &[Delivery<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let (prepared, bound) = self.bound(tx, run).await?;
        let mut outcomes = Vec::with_capacity(run.len());
        let mut rows = Vec::with_capacity(run.len());
        for bound in bound {
            outcomes.push(match bound {
                Ok(steps) => {
                    rows.extend(steps);
                    Outcome::Applied
                }
                Err(unbindable) => parked(unbindable),
            });
        }
        let expected = self.steps.first().and_then(|step| step.expect_rows).is_some();
        let inserted = match self.insert_many(tx, (insert, &prepared), rows).await {
            Ok(all) => all,
            // Told apart message by message, as below.
            Err(error) => match culprit::unreadable(&error) {
                Some(refused) => return Ok(vec![refused; outcomes.len()]),
                None => return Err(error),
            },
        };
        if !inserted && expected {
            let reason = "not every row went in".to_owned();
            return Ok(vec![answered(Answer::Park, code::ROWS, reason, false); outcomes.len()]);
        }
        Ok(outcomes)
    }

    /// True if every row went in; a trigger or rule may have kept some out, and which is not known.
    async fn insert_many(
        &self,
        tx: &mut Tx,
        (insert, prepared): (&InsertShape, &Prepared),
        rows: Vec<Vec<Bind>>,
    ) -> Result<bool, StoreError> {
        let mut all = true;
        let width = insert.width();
        if self.dialect == Dialect::Postgres && width > 0 {
            let sql = prepared.many.as_deref().ok_or_else(|| StoreError::Unexpected("no set-based form".to_owned()))?;
            for chunk in cut(rows, usize::MAX, tx.statement_bytes()) {
                all &= tx.execute(sql, Bind::texts_by_column(&chunk)?).await? == chunk.len() as u64;
            }
            return Ok(all);
        }
        for chunk in cut(rows, self.dialect.max_binds() / width.max(1), tx.statement_bytes()) {
            let (count, sql) = (chunk.len() as u64, insert.value_rows(chunk.len(), self.dialect));
            all &= tx.execute(&sql, chunk.into_iter().flatten().collect()).await? == count;
        }
        Ok(all)
    }
}

#[async_trait]
impl Effect for SqlEffect {
    async fn apply(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
        let (prepared, mut bound) = self.bound(tx, std::slice::from_ref(delivery)).await?;
        let bound = match bound.pop() {
            Some(Ok(bound)) => bound,
            Some(Err(unbindable)) => return Ok(parked(unbindable)),
            None => Vec::new(),
        };
        let mut clean = true;
        for ((step, known), binds) in self.steps.iter().zip(&prepared.steps).zip(bound) {
            if let Some(outcome) = self.step(tx, (step, &known.sql), binds, clean).await? {
                return Ok(outcome);
            }
            clean = false;
        }
        Ok(Outcome::Applied)
    }

    async fn apply_all(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Option<Result<Vec<Outcome>, StoreError>> {
        Some(self.all(tx, self.insert.as_ref()?, run).await)
    }

    /// Which step it was is not known: the first one that has a say on this kind of constraint answers.
    fn violated(&self, error: &StoreError) -> Option<Outcome> {
        self.steps.iter().find_map(|step| violation(error, step.violations))
    }

    async fn culprit(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Option<String>, StoreError> {
        let (prepared, mut bound) = self.bound(tx, std::slice::from_ref(delivery)).await?;
        let Some(Ok(bound)) = bound.pop() else { return Ok(None) };
        let steps = self.steps.iter().zip(&prepared.steps).zip(bound);
        let tries = steps.flat_map(|((step, known), binds)| {
            let places = step.sql.params().zip(&known.places).zip(binds);
            places.filter_map(|((param, place), bind)| {
                Some((format!("parameter {param}"), place.as_ref()?.cast.clone(), bind))
            })
        });
        let tries: Vec<_> = tries.collect();
        culprit::find(tx, tries).await
    }

    fn forget(&self) {
        self.prepared.forget();
    }

    fn describe(&self) -> String {
        match &self.insert {
            Some(_) => "set-based: one INSERT for many messages".to_owned(),
            None => format!("message by message, {} statements each", self.steps.len()),
        }
    }
}

/// Whether many messages may go through in one statement: only if that is provably the same as one by one.
fn set_based(step: &SqlStep) -> bool {
    step.expect_rows.is_none_or(|rows| rows == 1)
}

fn violation_answer(meaning: Meaning, violations: Violations) -> Option<(Answer, &'static str)> {
    match meaning {
        Meaning::Unique => Some((violations.on_unique, code::UNIQUE)),
        Meaning::ForeignKey => Some((violations.on_foreign_key, code::FOREIGN_KEY)),
        Meaning::Check => Some((violations.on_check, code::CHECK)),
        Meaning::Transient | Meaning::Poison | Meaning::Fatal => None,
    }
}

pub(super) fn violation(error: &StoreError, violations: Violations) -> Option<Outcome> {
    let (answer, code) = violation_answer(error.meaning(), violations)?;
    Some(answered(answer, code, constraint_text(error), false))
}

fn constraint_text(error: &StoreError) -> String {
    match error {
        StoreError::Answer { constraint: Some(name), code, .. } => format!("constraint {name} (code {code})"),
        StoreError::Answer { column: Some(name), code, .. } => format!("constraint on column {name} (code {code})"),
        StoreError::Answer { code, .. } => format!("a constraint (code {code})"),
        StoreError::Connection(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Unexpected(_)
        | StoreError::TooLarge { .. }
        | StoreError::Setup(_) => error.to_string(),
    }
}

fn answered(answer: Answer, code: &str, reason: String, clean: bool) -> Outcome {
    let kind = match answer {
        Answer::Ignore => return Outcome::Ignored { reason },
        Answer::Reject => RefusalKind::Reject,
        Answer::Retry => RefusalKind::Retry,
        Answer::Park => RefusalKind::Park,
    };
    Outcome::Refused(Refusal { kind, code: code.to_owned(), reason, clean })
}

pub(super) fn parked(unbindable: Unbindable) -> Outcome {
    let Unbindable { code, reason } = unbindable;
    Outcome::Refused(Refusal { kind: RefusalKind::Park, code: code.to_owned(), reason, clean: true })
}
