//! What the routes write to: the tables of `table` effects, the statements of `sql` effects.

use std::time::Duration;

use super::{Check, within};
use crate::config::Config;
use crate::effect::spec::{EffectSpec, SqlStep, TableSpec};
use crate::store::column::Written;
use crate::store::inspect::has_key;
use crate::store::{Dialect, Store, StoreError};

const LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn checks(config: &Config, store: &Store) -> Vec<Check> {
    let mut checks = Vec::new();
    for route in &config.routes {
        let route_name = &route.route.name;
        match &route.effect {
            EffectSpec::Table(spec) => {
                let name = format!("route {route_name} table");
                checks.push(within(&name, LIMIT, table(&name, spec, store)).await);
            }
            EffectSpec::Sql(steps) => {
                for (index, step) in steps.iter().enumerate() {
                    let name = format!("route {route_name} step {}", index + 1);
                    checks.push(within(&name, LIMIT, statement(&name, step, store)).await);
                }
            }
            EffectSpec::None => {}
        }
    }
    checks
}

async fn table(name: &str, spec: &TableSpec, store: &Store) -> Check {
    let shown = spec.table.join(".");
    let key = spec.key.join(", ");
    let asked = async {
        let mut tx = store.begin().await?;
        let mut columns = tx.columns(&spec.table).await?;
        columns.retain(|column| column.written != Written::Generated);
        let keys = tx.unique_keys(&spec.table).await?;
        tx.rollback().await;
        Ok::<_, StoreError>((columns, keys))
    };
    let (columns, keys) = match asked.await {
        Ok(found) => found,
        Err(error) => return Check::refused(name, &format!("{shown} cannot be looked at"), &error),
    };
    if columns.is_empty() {
        let remedy = match store.dialect() {
            Dialect::Postgres => "create it, correct `table`, or put its schema into the user's search_path",
            Dialect::MySql | Dialect::Sqlite => "create it, or correct `table`",
        };
        return Check::fail(name, format!("there is no table {shown}"), remedy);
    }
    let has = |wanted: &str| columns.iter().any(|column| column.name == wanted);
    let named = spec.key.iter().chain(spec.rename.iter().map(|(target, _)| target));
    let lacking: Vec<&str> = named.map(String::as_str).filter(|column| !has(column)).collect();
    if !lacking.is_empty() {
        let detail = format!("{shown} has no column {} that can be written", lacking.join(", "));
        return Check::fail(name, detail, "add the column, or correct `key` and `rename`: letter case counts");
    }
    if !has_key(&keys, &spec.key) {
        return Check::fail(
            name,
            format!("{shown} has no unique key ({key}): one row could be written twice"),
            format!("make ({key}) its primary key or a unique index, whole and not deferrable, or correct `key`"),
        );
    }
    let freely = columns.iter().filter(|column| column.written == Written::Freely);
    let other = freely.map(|column| column.name.as_str()).find(|column| !spec.key.iter().any(|k| k == column));
    let tried = async {
        let mut tx = store.begin().await?;
        let all: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let tried = tx.probe_target(&spec.table, &all, other).await;
        tx.rollback().await;
        tried
    };
    match tried.await {
        Ok(()) => Check::ok(name, format!("{shown} by ({key}), {} columns", columns.len())),
        Err(error) => Check::refused(name, &format!("{shown} cannot be written"), &error),
    }
}

async fn statement(name: &str, step: &SqlStep, store: &Store) -> Check {
    let parameters = step.sql.params().count();
    let tried = async {
        let mut tx = store.begin().await?;
        let tried = tx.probe_statement(parameters, |place| step.sql.render(|index, _| place(index))).await;
        tx.rollback().await;
        tried
    };
    match tried.await {
        Ok(()) => Check::ok(name, format!("the database takes it, {parameters} parameters")),
        Err(error) => {
            let check = Check::refused(name, "the database does not take it", &error);
            match error.advice() {
                Some(_) => check,
                None => Check { remedy: Some(correct(store.dialect()).to_owned()), ..check },
            }
        }
    }
}

fn correct(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "correct the statement: tables, columns, and types, which a CAST can say",
        Dialect::MySql | Dialect::Sqlite => "correct the statement: tables, columns, spelling",
    }
}
