//! A plain `INSERT … VALUES`, which may run for many messages at once.

use super::template::{Param, Part, Template};
use crate::store::{Column, Dialect};

/// Where the parts of `INSERT INTO t (…) VALUES (…)` stand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InsertShape {
    head: String,
    values: Vec<Part>,
}

/// Recognises `INSERT INTO name (columns) VALUES (parameters and constants)` and nothing more: no second row, no
/// subquery, no function, no `ON CONFLICT`, no `RETURNING`.
pub(super) fn insert_shape(template: &Template) -> Option<InsertShape> {
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

    pub fn width(&self) -> usize {
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
    pub fn unnest(&self, parameters: &[Column]) -> String {
        let select = self.with_params(|n| Dialect::Postgres.cast(&format!("u.p{n}"), &parameters[n].cast));
        let arrays = (1..=self.width()).map(|n| format!("CAST(${n} AS text[])")).collect::<Vec<_>>().join(", ");
        let names = (0..self.width()).map(|n| format!("p{n}")).collect::<Vec<_>>().join(", ");
        format!("{}SELECT {select} FROM unnest({arrays}) WITH ORDINALITY AS u({names}, n) ORDER BY u.n", self.head)
    }

    pub fn value_rows(&self, rows: usize, dialect: Dialect) -> String {
        let width = self.width();
        let row = |row: usize| format!("({})", self.with_params(|n| dialect.placeholder(row * width + n)));
        format!("{}VALUES {}", self.head, (0..rows).map(row).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Holds;
    use crate::store::column::Written;

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
        let parameter = |cast: &str| Column {
            name: String::new(),
            cast: cast.to_owned(),
            holds: Holds::Other,
            written: Written::Freely,
            replaces_null: false,
        };
        let shape = shape("INSERT INTO t (a, k, b) VALUES (:a, 'x', :b)").unwrap();
        assert_eq!(
            shape.unnest(&[parameter("bigint"), parameter("numeric")]),
            "INSERT INTO t (a, k, b) SELECT CAST(CAST(u.p0 AS text) AS bigint), 'x', CAST(CAST(u.p1 AS text) AS numeric) \
             FROM unnest(CAST($1 AS text[]), CAST($2 AS text[])) WITH ORDINALITY AS u(p0, p1, n) ORDER BY u.n"
        );
        assert_eq!(shape.value_rows(2, Dialect::MySql), "INSERT INTO t (a, k, b) VALUES (?, 'x', ?), (?, 'x', ?)");
    }
}
