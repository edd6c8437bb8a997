//! `[route.effect]`.

use super::Check;
use super::matching::is_path;
use crate::config::raw::{RawAnswer, RawEffect, RawGuard, RawStep, RawTable, RawUnknownColumns};
use crate::effect::spec::{Answer, EffectSpec, Guard, SqlStep, TableSpec, UnknownColumns, Violations};
use crate::effect::template::Template;

impl Check<'_> {
    pub(super) fn effect(&mut self, path: &str, raw: RawEffect) -> Option<EffectSpec> {
        match raw {
            RawEffect::Sql { steps } => {
                let steps = steps.unwrap_or_default().into_iter().enumerate();
                let steps: Vec<_> = steps.map(|(n, step)| self.step(&format!("{path}.steps[{n}]"), step)).collect();
                steps.into_iter().collect::<Option<_>>().map(EffectSpec::Sql)
            }
            RawEffect::Table(table) => Some(EffectSpec::Table(self.table(path, table))),
            RawEffect::None {} => Some(EffectSpec::None),
        }
    }

    fn step(&mut self, path: &str, raw: RawStep) -> Option<SqlStep> {
        if raw.expect_rows.is_none() && raw.otherwise.is_some() {
            self.fault(&format!("{path}.otherwise"), "has nothing to compare with: set expect_rows too");
        }
        if raw.expect_rows.is_none() && raw.code.is_some() {
            self.warn(&format!("{path}.code"), "is never given: it goes with expect_rows and otherwise");
        }
        if let Some(code) = &raw.code {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if code.is_empty() || code.len() > 64 || !code.chars().all(plain) {
                let path = format!("{path}.code");
                let quoted = self.quote(&path);
                self.fault(&path, format!("{quoted} is no code: use 1 to 64 of A-Z, a-z, 0-9, `_`, `-`, `.`"));
            }
        }
        let template = raw.sql.and_then(|sql| {
            Template::parse(&sql).map_err(|why| self.fault(&format!("{path}.sql"), why.to_string())).ok()
        });
        Some(SqlStep {
            sql: template?,
            expect_rows: raw.expect_rows,
            otherwise: raw.otherwise.map_or(Answer::Park, answer),
            code: raw.code,
            violations: violations(raw.on_unique, raw.on_foreign_key, raw.on_check, Violations::SQL),
        })
    }

    fn table(&mut self, path: &str, raw: RawTable) -> TableSpec {
        let inbox = raw.inbox.unwrap_or(true);
        let guard = raw.guard.map_or_else(Guard::default, guard);
        if !inbox && guard == Guard::None {
            let message = "may be false only with guard = \"source\": without both, a repeat would write again";
            self.fault(&format!("{path}.inbox"), message);
        }
        let table: Vec<String> = raw.table.unwrap_or_default().split('.').map(str::to_owned).collect();
        self.target(&format!("{path}.table"), &table);
        let key = raw.key.unwrap_or_default();
        for (n, column) in key.iter().enumerate() {
            let path = format!("{path}.key[{n}]");
            self.identifier(&path, column);
            if key[..n].contains(column) {
                self.fault(&path, "is listed twice: leave one out");
            }
        }
        let rename: Vec<(String, String)> = raw.rename.into_iter().flatten().collect();
        for (n, (column, field)) in rename.iter().enumerate() {
            let path = format!("{path}.rename.{column}");
            self.identifier(&path, column);
            if !is_path(field) {
                self.fault(&path, "names no field: write column = \"field\"");
            }
            if rename[..n].iter().any(|(_, earlier)| earlier == field) {
                self.fault(&path, "takes a field that fills another column already: leave one out");
            }
        }
        TableSpec {
            table,
            key,
            rename,
            guard,
            unknown_columns: raw.unknown_columns.map_or_else(UnknownColumns::default, unknown_columns),
            violations: violations(raw.on_unique, raw.on_foreign_key, raw.on_check, Violations::TABLE),
            inbox,
        }
    }

    fn target(&mut self, path: &str, parts: &[String]) {
        if parts.len() > 2 {
            self.fault(path, "has more than two parts: write table or schema.table");
        }
        for part in parts {
            self.identifier(path, part);
        }
        if parts.last().is_some_and(|table| table.to_ascii_lowercase().starts_with("countersign_")) {
            self.fault(path, "is one of countersign's own tables: an effect must not write there");
        }
    }

    /// Identifiers are quoted wherever they stand, so only what quotes cannot hold is refused; 63 bytes is the
    /// limit of Postgres, beyond which it cuts names silently, 64 characters that of MySQL.
    fn identifier(&mut self, path: &str, name: &str) {
        let strange = |c: char| c.is_control() || matches!(c, '"' | '`' | '.' | ';');
        if name.trim() != name || name.is_empty() || name.len() > 63 || name.contains(strange) {
            self.fault(path, "is no identifier: use 1 to 63 bytes without quotes, dots and control characters");
        }
    }
}

fn answer(raw: RawAnswer) -> Answer {
    match raw {
        RawAnswer::Reject => Answer::Reject,
        RawAnswer::Ignore => Answer::Ignore,
        RawAnswer::Retry => Answer::Retry,
        RawAnswer::Park => Answer::Park,
    }
}

fn guard(raw: RawGuard) -> Guard {
    match raw {
        RawGuard::None => Guard::None,
        RawGuard::Source => Guard::Source,
    }
}

fn unknown_columns(raw: RawUnknownColumns) -> UnknownColumns {
    match raw {
        RawUnknownColumns::Fail => UnknownColumns::Fail,
        RawUnknownColumns::Ignore => UnknownColumns::Ignore,
    }
}

fn violations(
    on_unique: Option<RawAnswer>,
    on_foreign_key: Option<RawAnswer>,
    on_check: Option<RawAnswer>,
    default: Violations,
) -> Violations {
    Violations {
        on_unique: on_unique.map_or(default.on_unique, answer),
        on_foreign_key: on_foreign_key.map_or(default.on_foreign_key, answer),
        on_check: on_check.map_or(default.on_check, answer),
    }
}
