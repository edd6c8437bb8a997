//! The `sql` effect: the steps of a route, with values bound from the message.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;

use super::binding::{Unbindable, resolve};
use super::spec::{Answer, SqlStep, Violations};
use super::template::{Param, Part, Template};
use super::{Delivery, Effect};
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::receipt::code;
use crate::store::{Bind, Dialect, Meaning, StoreError, Tx};

pub struct SqlEffect {
    steps: Vec<SqlStep>,
    dialect: Dialect,
    /// The steps' statements for this database, learned at their first use.
    prepared: RwLock<Option<Arc<Prepared>>>,
    /// The single step is a plain `INSERT … VALUES`: many rows in one statement come to the same.
    insert: Option<InsertShape>,
}

/// The statements as this database takes them.
struct Prepared {
    steps: Vec<String>,
    /// Postgres: the set-based form of the only step.
    many: Option<String>,
}

/// Where the parts of `INSERT INTO t (…) VALUES (…)` stand.
#[derive(Clone, Debug, PartialEq)]
struct InsertShape {
    head: String,
    values: Vec<Part>,
}

/// Bytes of values in one multi-row statement; MariaDB's and MySQL's `max_allowed_packet` is 16 MiB or more.
const MAX_STATEMENT_BYTES: usize = 4 << 20;
const SAVEPOINT: &str = "countersign_step";

impl SqlEffect {
    pub fn new(steps: Vec<SqlStep>, dialect: Dialect) -> Self {
        let insert = match &steps[..] {
            [step] if set_based(step) => insert_shape(&step.sql),
            _ => None,
        };
        Self { steps, dialect, prepared: RwLock::new(None), insert }
    }

    async fn prepared(&self, tx: &mut Tx) -> Result<Arc<Prepared>, StoreError> {
        if let Some(prepared) = &*self.prepared.read().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Ok(Arc::clone(prepared));
        }
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut many = None;
        for step in &self.steps {
            let place = |index: usize, _: &Param| self.dialect.placeholder(index);
            let plain = step.sql.render(place);
            match self.dialect {
                Dialect::Postgres => {
                    let types = tx.parameter_types(&plain).await?;
                    steps.push(step.sql.render(|n, _| format!("CAST(CAST(${} AS text) AS {})", n + 1, types[n])));
                    many = self.insert.as_ref().map(|insert| insert.unnest(&types));
                }
                Dialect::MySql | Dialect::Sqlite => steps.push(plain),
            }
        }
        let prepared = Arc::new(Prepared { steps, many });
        *self.prepared.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::clone(&prepared));
        Ok(prepared)
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
        let may_ignore =
            [violations.on_unique, violations.on_foreign_key, violations.on_check].contains(&Answer::Ignore);
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

    /// True if every row went in; a trigger or rule may have kept some out, and which is not known.
    async fn insert_many(&self, tx: &mut Tx, insert: &InsertShape, rows: Vec<Vec<Bind>>) -> Result<bool, StoreError> {
        let mut all = true;
        let width = insert.width();
        if self.dialect == Dialect::Postgres && width > 0 {
            let prepared = self.prepared(tx).await?;
            let sql = prepared.many.as_deref().ok_or_else(|| StoreError::Unexpected("no set-based form".to_owned()))?;
            for chunk in chunks(rows, usize::MAX) {
                let count = chunk.len() as u64;
                let mut columns = vec![Vec::with_capacity(chunk.len()); width];
                for row in chunk {
                    for (column, bind) in columns.iter_mut().zip(row) {
                        column.push(match bind {
                            Bind::Text(text) => Some(text),
                            _ => None,
                        });
                    }
                }
                all &= tx.execute(sql, columns.into_iter().map(Bind::Texts).collect()).await? == count;
            }
            return Ok(all);
        }
        for chunk in chunks(rows, self.dialect.max_binds() / width.max(1)) {
            let (count, sql) = (chunk.len() as u64, insert.value_rows(chunk.len(), self.dialect));
            all &= tx.execute(&sql, chunk.into_iter().flatten().collect()).await? == count;
        }
        Ok(all)
    }
}

#[async_trait]
impl Effect for SqlEffect {
    async fn apply(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
        let mut bound = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            match step.sql.params().map(|param| resolve(delivery, param, self.dialect)).collect::<Result<Vec<_>, _>>() {
                Ok(binds) => bound.push(binds),
                Err(unbindable) => return Ok(parked(unbindable)),
            }
        }
        let prepared = self.prepared(tx).await?;
        let mut clean = true;
        for ((step, sql), binds) in self.steps.iter().zip(&prepared.steps).zip(bound) {
            if let Some(outcome) = self.step(tx, (step, sql), binds, clean).await? {
                return Ok(outcome);
            }
            clean = false;
        }
        Ok(Outcome::Applied)
    }

    async fn apply_all(&self, tx: &mut Tx, run: &[Delivery<'_>]) -> Option<Result<Vec<Outcome>, StoreError>> {
        let insert = self.insert.as_ref()?;
        let mut outcomes = Vec::with_capacity(run.len());
        let mut rows = Vec::with_capacity(run.len());
        for delivery in run {
            match insert.params().map(|param| resolve(delivery, param, self.dialect)).collect::<Result<Vec<_>, _>>() {
                Ok(binds) => {
                    rows.push(binds);
                    outcomes.push(Outcome::Applied);
                }
                Err(unbindable) => outcomes.push(parked(unbindable)),
            }
        }
        let expected = self.steps.first().and_then(|step| step.expect_rows).is_some();
        Some(match self.insert_many(tx, insert, rows).await {
            // Told apart message by message.
            Ok(false) if expected => {
                let reason = "not every row went in".to_owned();
                Ok(vec![answered(Answer::Park, code::ROWS, reason, false); outcomes.len()])
            }
            other => other.map(|_| outcomes),
        })
    }

    /// Which step it was is not known: the first one that has a say on this kind of constraint answers.
    fn violated(&self, error: &StoreError) -> Option<Outcome> {
        self.steps.iter().find_map(|step| violation(error, step.violations))
    }

    fn forget(&self) {
        *self.prepared.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
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
        StoreError::Connection(_) | StoreError::CommitUnknown(_) | StoreError::Unexpected(_) | StoreError::Setup(_) => {
            error.to_string()
        }
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

/// Cuts rows into statements by number of rows and by bytes.
fn chunks(rows: Vec<Vec<Bind>>, most: usize) -> Vec<Vec<Vec<Bind>>> {
    let mut chunks = Vec::new();
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let size: usize = row.iter().map(Bind::size).sum();
        if !chunk.is_empty() && (chunk.len() >= most || bytes + size > MAX_STATEMENT_BYTES) {
            chunks.push(std::mem::take(&mut chunk));
            bytes = 0;
        }
        bytes += size;
        chunk.push(row);
    }
    if !chunk.is_empty() {
        chunks.push(chunk);
    }
    chunks
}

/// Recognises `INSERT INTO name (columns) VALUES (parameters and constants)` and nothing more: no second row, no
/// subquery, no function, no `ON CONFLICT`, no `RETURNING`.
fn insert_shape(template: &Template) -> Option<InsertShape> {
    let [Part::Sql(first), rest @ ..] = template.parts() else { return None };
    let pattern = r#"(?is)^(\s*INSERT\s+INTO\s+[\w."`]+\s*\([\w\s,"`]+\)\s*)VALUES\s*\((.*)$"#;
    let captures = regex(pattern).captures(first)?;
    let head = captures.get(1)?.as_str().to_owned();
    let mut values = vec![Part::Sql(captures.get(2)?.as_str().to_owned())];
    values.extend(rest.iter().cloned());
    let Some(Part::Sql(last)) = values.last_mut() else { return None };
    *last = last.trim_end().strip_suffix(')')?.to_owned();
    let constants = regex(r"(?i)^(\s|,|[-+]?\d+(\.\d+)?|'[^']*'|NULL|TRUE|FALSE)*$");
    let simple = values.iter().all(|part| match part {
        Part::Sql(text) => constants.is_match(text),
        Part::Param(_) => true,
    });
    simple.then_some(InsertShape { head, values })
}

fn regex(pattern: &str) -> regex::Regex {
    regex::Regex::new(pattern).expect("a constant pattern")
}

impl InsertShape {
    fn params(&self) -> impl Iterator<Item = &Param> {
        self.values.iter().filter_map(|part| match part {
            Part::Param(param) => Some(param),
            Part::Sql(_) => None,
        })
    }

    fn width(&self) -> usize {
        self.params().count()
    }

    fn with_params(&self, mut param: impl FnMut(usize) -> String) -> String {
        let mut index = 0;
        self.values
            .iter()
            .map(|part| match part {
                Part::Sql(text) => text.clone(),
                Part::Param(_) => {
                    index += 1;
                    param(index - 1)
                }
            })
            .collect()
    }

    /// Postgres: one array a parameter, in the order of the messages.
    fn unnest(&self, types: &[String]) -> String {
        let select = self.with_params(|n| format!("CAST(u.p{n} AS {})", types[n]));
        let arrays = (1..=self.width()).map(|n| format!("CAST(${n} AS text[])")).collect::<Vec<_>>().join(", ");
        let names = (0..self.width()).map(|n| format!("p{n}")).collect::<Vec<_>>().join(", ");
        format!("{}SELECT {select} FROM unnest({arrays}) WITH ORDINALITY AS u({names}, n) ORDER BY u.n", self.head)
    }

    fn value_rows(&self, rows: usize, dialect: Dialect) -> String {
        let width = self.width();
        let row = |row: usize| format!("({})", self.with_params(|n| dialect.placeholder(row * width + n)));
        format!("{}VALUES {}", self.head, (0..rows).map(row).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sql: &str) -> Option<InsertShape> {
        insert_shape(&Template::parse(sql).unwrap())
    }

    #[test]
    fn only_a_plain_insert_runs_set_based() {
        assert!(shape("INSERT INTO ledger(order_id, amount, kind) VALUES (:orderId, :amount, 'x')").is_some());
        for other in [
            "INSERT INTO t (a) VALUES (:a) ON CONFLICT DO NOTHING",
            "INSERT INTO t (a) VALUES (:a) RETURNING a",
            "INSERT INTO t (a) VALUES (:a), (:b)",
            "INSERT INTO t (a) VALUES (lower(:a))",
            "INSERT INTO t (a) VALUES ((SELECT max(b) FROM s WHERE c = :c))",
            "INSERT INTO t (a) SELECT :a",
            "UPDATE t SET a = :a",
            "INSERT INTO t (a) VALUES (:a + 1)",
        ] {
            assert!(shape(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_set_based_forms_keep_constants_and_order() {
        let shape = shape("INSERT INTO t (a, k, b) VALUES (:a, 'x', :b)").unwrap();
        assert_eq!(
            shape.unnest(&["bigint".into(), "numeric".into()]),
            "INSERT INTO t (a, k, b) SELECT CAST(u.p0 AS bigint), 'x', CAST(u.p1 AS numeric) \
             FROM unnest(CAST($1 AS text[]), CAST($2 AS text[])) WITH ORDINALITY AS u(p0, p1, n) ORDER BY u.n"
        );
        assert_eq!(shape.value_rows(2, Dialect::MySql), "INSERT INTO t (a, k, b) VALUES (?, 'x', ?), (?, 'x', ?)");
    }

    #[test]
    fn statements_are_cut_by_bytes() {
        let row = |size: usize| vec![Bind::Text("x".repeat(size))];
        let cut = chunks(vec![row(3 << 20), row(3 << 20), row(1), row(1)], 2);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1]);
    }
}
