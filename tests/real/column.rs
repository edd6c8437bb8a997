//! Tables with every type: `tests/types/*.toml` read, as statements and as what must come of them.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::database::Kind;
use crate::view::View;

/// See the head of `tests/types/mariadb.toml` for what the fields mean.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    declared: String,
    postgres: Option<String>,
    mariadb: Option<String>,
    sqlite: String,
    #[serde(default)]
    pub view: View,
    values: Vec<String>,
    #[serde(default)]
    alone: Vec<String>,
    #[serde(default)]
    refused: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    arrives: BTreeMap<String, String>,
    #[serde(default)]
    pub big: bool,
    #[serde(default)]
    full: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    #[serde(skip, default = "mariadb")]
    pub source: Kind,
    /// What has to be there before the table, in PostgreSQL.
    #[serde(default)]
    pub types: Vec<String>,
    pub columns: Vec<Column>,
}

fn mariadb() -> Kind {
    Kind::MariaDb
}

/// A row that has one value only, and whether it can be stored elsewhere.
pub struct Alone<'a> {
    pub id: usize,
    pub column: &'a Column,
    pub value: &'a str,
}

impl Alone<'_> {
    pub fn refused_by(&self, target: Kind) -> bool {
        let refused = self.column.refused.get(word(target));
        refused.is_some_and(|values| values.iter().any(|value| value == self.value))
    }

    /// The literal of what arrives instead, where the connector cannot say what the source holds.
    pub fn arrives(&self) -> Option<&str> {
        self.column.arrives.get(self.value).map(String::as_str)
    }
}

pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "postgres",
        Kind::MariaDb => "mariadb",
        Kind::Sqlite => "sqlite",
    }
}

impl Table {
    /// `full` if the source logs whole rows as they were before a change.
    pub fn read(source: Kind, full: bool) -> Self {
        let text = fs::read_to_string(format!("tests/types/{}.toml", word(source))).unwrap();
        let mut table = Self { source, ..toml::from_str(&text).unwrap() };
        table.columns.retain(|column| full || !column.full);
        // To look behind a fault that stops everything.
        let left_out = std::env::var("MATRIX_WITHOUT").unwrap_or_default();
        table.columns.retain(|column| !left_out.split(',').any(|name| name == column.name));
        table
    }

    /// `CREATE TABLE` for the source, or for a target of this kind.
    pub fn create(&self, kind: Kind) -> String {
        let columns = self.columns.iter().map(|column| {
            let declared = match kind {
                Kind::Sqlite => &column.sqlite,
                Kind::Postgres => column.postgres.as_ref().unwrap_or(&column.declared),
                Kind::MariaDb => column.mariadb.as_ref().unwrap_or(&column.declared),
            };
            let declared = if kind == self.source { &column.declared } else { declared };
            format!(", {} {declared}", column.name)
        });
        let mut sql = format!("CREATE TABLE every_type (id BIGINT PRIMARY KEY{});", columns.collect::<String>());
        if kind == Kind::Postgres && kind == self.source {
            // What is big is to be out of line, whatever it compresses to, and nothing else is.
            let storage = |column: &Column| if column.big { "EXTERNAL" } else { "PLAIN" };
            let columns = self.columns.iter();
            sql.extend(columns.map(|c| format!("ALTER TABLE every_type ALTER {} SET STORAGE {};", c.name, storage(c))));
        }
        sql
    }

    /// As many rows as the column with the most values needs to show them all.
    pub fn height(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).max().unwrap()
    }

    /// A row with a value in every column: the `round`th of each.
    pub fn insert(&self, id: i64, round: usize) -> String {
        let names: String = self.columns.iter().map(|column| format!(", {}", column.name)).collect();
        let values: String = self.columns.iter().map(|column| format!(", {}", column.value(round))).collect();
        format!("INSERT INTO every_type (id{names}) VALUES ({id}{values});")
    }

    pub fn update(&self, id: i64, round: usize) -> String {
        let set: Vec<_> = self.columns.iter().map(|c| format!("{} = {}", c.name, c.value(round))).collect();
        format!("UPDATE every_type SET {} WHERE id = {id};", set.join(", "))
    }

    pub fn update_to_null(&self, id: i64) -> String {
        let set: Vec<_> = self.columns.iter().map(|column| format!("{} = NULL", column.name)).collect();
        format!("UPDATE every_type SET {} WHERE id = {id};", set.join(", "))
    }

    /// An update that leaves all but the first column alone.
    pub fn touch(&self, id: i64) -> String {
        format!("UPDATE every_type SET {} = 7 WHERE id = {id};", self.columns[0].name)
    }

    /// Rows of one value each, from this id on.
    pub fn alone(&self, first: usize) -> Vec<Alone<'_>> {
        let values = self.columns.iter().flat_map(|column| {
            // The values that full rows have as well: what goes wrong shows where, and not only that a row is missing.
            column.values.iter().chain(&column.alone).map(move |value| (column, value))
        });
        values.enumerate().map(|(n, (column, value))| Alone { id: first + n, column, value }).collect()
    }
}

impl Column {
    fn value(&self, round: usize) -> &str {
        &self.values[round % self.values.len()]
    }
}
