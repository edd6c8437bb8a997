//! A table with every column type, mirrored from each source into each target in each wire format, and compared with
//! `SELECT` on both sides, column by column.

use crate::column::{Table, word};
use crate::daemon::Daemon;
use crate::database::{Database, Kind};
use crate::kafka;
use crate::view::View;
use crate::wire::{Format, connector};
use crate::world::{World, holds, until};
use std::collections::{BTreeMap, BTreeSet};

const ROUTE: &str = r#"
[[route]]
name = "mirror"
message_id = "source"
truncate = "apply"
[route.effect]
kind = "table"
table = "every_type"
key = ["id"]
guard = "source"
"#;

/// Rows with a value alone have ids from here on, moved ones from 1000 on.
const ALONE: usize = 100;

struct Mirror {
    format: Format,
    target: Database,
    daemon: Daemon,
}

/// What the source logs of a row as it was before a change. MariaDB logs all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Default,
    Full,
}

/// One pair of databases a format: enough for every wire form and every database's binding.
#[test]
fn every_type_arrives_from_mariadb() {
    let pairs =
        [(Format::Json, Kind::Postgres), (Format::Confluent, Kind::MariaDb), (Format::ApicurioHeaders, Kind::Sqlite)];
    mirror("types_mariadb", Kind::MariaDb, Identity::Full, &pairs);
}

#[test]
fn every_type_arrives_from_postgres() {
    mirror(
        "types_postgres",
        Kind::Postgres,
        Identity::Default,
        &[(Format::Json, Kind::MariaDb), (Format::Apicurio8, Kind::Postgres)],
    );
}

#[test]
fn every_type_arrives_from_postgres_with_whole_rows() {
    let pairs = [(Format::Json, Kind::Postgres), (Format::Confluent, Kind::Sqlite)];
    mirror("types_postgres_full", Kind::Postgres, Identity::Full, &pairs);
}

/// Every pair in every format, minutes of work: `tests/matrix.sh`, which can choose by the environment.
#[test]
#[ignore = "tests/matrix.sh runs it"]
fn matrix() {
    let chosen =
        |variable: &str, word: &str| std::env::var(variable).is_ok_and(|words| words.split(',').any(|w| w == word));
    let all = |variable: &str| std::env::var(variable).is_ok_and(|words| words == "all");
    let formats = Format::ALL.into_iter().filter(|f| all("MATRIX_FORMATS") || chosen("MATRIX_FORMATS", f.word()));
    let targets = [Kind::Postgres, Kind::MariaDb, Kind::Sqlite];
    let pairs: Vec<_> = formats.flat_map(|format| targets.map(|target| (format, target))).collect();
    let sources = [
        ("mariadb", Kind::MariaDb, Identity::Full),
        ("postgres", Kind::Postgres, Identity::Default),
        ("postgres_full", Kind::Postgres, Identity::Full),
    ];
    let mut failed = Vec::new();
    for (name, kind, identity) in sources {
        if all("MATRIX_SOURCES") || chosen("MATRIX_SOURCES", name) {
            let run = || mirror(&format!("matrix_{name}"), kind, identity, &pairs);
            failed.extend(std::panic::catch_unwind(run).is_err().then_some(name));
        }
    }
    assert!(failed.is_empty(), "not all arrived from {failed:?}, see above");
}

fn mirror(test: &str, kind: Kind, identity: Identity, pairs: &[(Format, Kind)]) {
    let world = World::new(test);
    let table = Table::read(kind, identity == Identity::Full);
    let source = world.database(kind, "source");
    table.types.iter().for_each(|sql| _ = source.run(sql));
    source.run(&table.create(kind));
    if kind == Kind::Postgres && identity == Identity::Full {
        source.run("ALTER TABLE every_type REPLICA IDENTITY FULL");
    }
    let height = table.height() as i64;
    let half = height / 2;
    let insert = |from: i64, to: i64| (from..to).map(|id| table.insert(id, id as usize)).collect::<String>();
    source.run("INSERT INTO every_type (id) VALUES (0)");
    source.run(&insert(1, half));

    let formats: BTreeSet<&str> = pairs.iter().map(|(format, _)| format.word()).collect();
    let formats = || Format::ALL.into_iter().filter(|format| formats.contains(format.word()));
    let topics: BTreeMap<&str, String> = formats().map(|f| (f.word(), connector(&world, &source, f))).collect();
    for topic in topics.values() {
        until(60, "the connectors to make their topics", || holds(!kafka::ends(topic).is_empty(), || topic.clone()));
    }
    let mut mirrors: Vec<Mirror> =
        pairs.iter().map(|(format, target)| start(&world, &table, *format, *target, &topics[format.word()])).collect();

    source.run(&insert(half, height + 1));
    let alone = table.alone(ALONE);
    let rows =
        alone.iter().map(|a| format!("INSERT INTO every_type (id, {}) VALUES ({}, {});", a.column.name, a.id, a.value));
    let lenient = if kind == Kind::MariaDb { "SET sql_mode = '';" } else { "" };
    let strict = if kind == Kind::MariaDb { "SET sql_mode = DEFAULT;" } else { "" };
    source.run(&format!("{lenient}{}{strict}", rows.collect::<String>()));
    change(&source, &table, height);
    source.run("INSERT INTO every_type (id) VALUES (-1)");
    let mut wrong = Vec::new();
    for mirror in &mut mirrors {
        mirror.until_there(-1);
        wrong.extend(mirror.differences(&source, &table));
    }

    source.run(&format!("TRUNCATE TABLE every_type; INSERT INTO every_type (id) VALUES (-2); {}", table.insert(1, 1)));
    source.run("INSERT INTO every_type (id) VALUES (-3)");
    for mirror in &mut mirrors {
        mirror.until_there(-3);
        wrong.extend(mirror.differences(&source, &table).iter().map(|wrong| format!("{wrong} (after the truncate)")));
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

fn change(source: &Database, table: &Table, height: i64) {
    // A new value in every column, in half of the rows; then in the first column alone, in all.
    (1..=height).step_by(2).for_each(|id| _ = source.run(&table.update(id, id as usize + 1)));
    (1..=height).for_each(|id| _ = source.run(&table.touch(id)));
    source.run(&table.update(0, 1));
    source.run(&format!("BEGIN; {} {} COMMIT;", table.update_to_null(2), table.touch(2)));
    source.run(&format!("BEGIN; {} {} COMMIT;", table.update_to_null(3), table.update(3, 0)));
    source.run("UPDATE every_type SET id = id + 1000 WHERE id IN (1, 4)");
    source.run(&table.update(1001, 2));
    source.run("DELETE FROM every_type WHERE id IN (3, 5)");
    source.run(&table.insert(5, 1));
}

fn start(world: &World, table: &Table, format: Format, kind: Kind, topic: &str) -> Mirror {
    let role = format!("{}_{}", format.word(), word(kind));
    let target = world.database(kind, &role);
    if kind == Kind::Postgres {
        table.types.iter().for_each(|sql| _ = target.run(sql));
    }
    target.run(&table.create(kind));
    let mut config = world.pipeline(&target, &[topic], &(format.registry() + ROUTE));
    config.name = format!("{}_{role}", world.name);
    config.receipts = world.topic(&format!("receipts_{role}"));
    kafka::create(&config.receipts, 1, &[]);
    config.migrate();
    let daemon = Daemon::start(&config);
    Mirror { format, target, daemon }
}

impl Mirror {
    /// Until the row of this id, which was the last one, has arrived.
    fn until_there(&mut self, id: i64) {
        until(90, "the last row", || {
            self.daemon.assert_alive();
            let there = self.target.number(&format!("SELECT COUNT(*) FROM every_type WHERE id = {id}"));
            holds(there == 1, || format!("{:?} {:?}: {:?}", self.format, self.target.kind, self.daemon.outcomes()))
        });
    }

    fn differences(&self, source: &Database, table: &Table) -> Vec<String> {
        let pair = format!("{} {} -> {}", self.format.word(), word(source.kind), word(self.target.kind));
        let alone = table.alone(ALONE);
        let same = source.kind == self.target.kind;
        let mut expected = rows(source, table, same);
        let found = rows(&self.target, table, same);
        let mut wrong = Vec::new();

        // What cannot be held is parked, each with the name of its column.
        let reasons = self.target.texts("SELECT reason FROM countersign_dead_letters ORDER BY kafka_offset");
        let mut unexplained: Vec<&String> = reasons.iter().collect();
        for value in &alone {
            let row = expected.get_mut(&(value.id as i64));
            if let (Some(row), Some(arrives)) = (row, value.arrives()) {
                let at = table.columns.iter().position(|column| column.name == value.column.name).unwrap();
                let shown = value.column.view.expression(source.kind, &format!("({arrives})"), same);
                row[at] = source.rows(&format!("SELECT {shown}")).remove(0).remove(0);
            }
            if value.refused_by(self.target.kind) {
                expected.remove(&(value.id as i64));
                match unexplained.iter().position(|reason| names(reason, &value.column.name)) {
                    Some(at) => drop(unexplained.remove(at)),
                    None => wrong.push(format!(
                        "{pair}: {} of {} is not parked with the column's name",
                        value.value, value.column.name
                    )),
                }
            }
        }
        wrong.extend(unexplained.iter().map(|reason| format!("{pair}: parked: {reason}")));

        for (id, row) in &expected {
            let Some(copy) = found.get(id) else {
                let what = alone.iter().find(|value| value.id as i64 == *id).map(|v| (&v.column.name, v.value));
                wrong.push(format!("{pair}: row {id} is missing {what:?}"));
                continue;
            };
            for ((column, expected), found) in table.columns.iter().zip(row).zip(copy) {
                let (expected, found) =
                    (self.shown(source, column.view, expected, same), self.shown(source, column.view, found, same));
                if expected != found {
                    let cut = |text: Option<String>| text.map(|text| text.chars().take(150).collect::<String>());
                    wrong.push(format!(
                        "{pair}: row {id}, {}: expected {:?}, found {:?}",
                        column.name,
                        cut(expected),
                        cut(found)
                    ));
                }
            }
        }
        let extra = found.keys().filter(|id| !expected.contains_key(*id));
        wrong.extend(extra.map(|id| format!("{pair}: row {id} should not be there")));
        // Warnings are not looked at: a dozen daemons on a few cores make each other slow.
        let unasked = self
            .daemon
            .outcomes()
            .into_iter()
            .filter(|(outcome, _)| !["applied", "skipped", "parked"].contains(outcome));
        wrong.extend(unasked.map(|(outcome, count)| format!("{pair}: {count} records are {outcome}")));
        wrong
    }

    fn shown(&self, source: &Database, view: View, text: &Option<String>, same: bool) -> Option<String> {
        let text = text.as_deref()?;
        Some(match view {
            _ if same => text.to_owned(),
            // The server that has the type reads the ISO form.
            View::Interval if source.kind == Kind::Postgres => {
                source.texts(&format!("SELECT '{text}'::interval")).remove(0)
            }
            _ => view.canonical(text),
        })
    }
}

/// The reason speaks of this column, as a word.
fn names(reason: &str, column: &str) -> bool {
    reason.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == column)
}

fn rows(database: &Database, table: &Table, same: bool) -> BTreeMap<i64, Vec<Option<String>>> {
    let columns: Vec<String> =
        table.columns.iter().map(|column| column.view.expression(database.kind, &column.name, same)).collect();
    let rows = database.rows(&format!("SELECT id, {} FROM every_type", columns.join(", ")));
    let rows = rows.into_iter().map(|mut row| {
        let cells = row.split_off(1);
        (row[0].as_deref().unwrap().parse().unwrap(), cells)
    });
    rows.collect()
}
