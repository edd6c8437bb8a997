//! Every logical value reaches columns of many types exactly, or is parked with the column's name.
//!
//! A case is a column of its own in one table, and a record that fills only this column; the same cases go through a
//! `table` effect and through the parameters of a `sql` effect.

mod altered;
mod mariadb;
mod postgres;
mod sent;
mod session;
mod sqlite;

use std::collections::HashMap;
use std::fmt::Write as _;

use self::sent::Sent;
use crate::world::World;

/// What becomes of a value: the text that the database shows of it, or the code with which it is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Kept(&'static str),
    Null,
    Parked(&'static str),
}

struct Case {
    column: &'static str,
    sent: Sent,
    expected: Expected,
}

fn kept(column: &'static str, sent: Sent, text: &'static str) -> Case {
    Case { column, sent, expected: Expected::Kept(text) }
}

fn null(column: &'static str, sent: Sent) -> Case {
    Case { column, sent, expected: Expected::Null }
}

fn parked(column: &'static str, sent: Sent, code: &'static str) -> Case {
    Case { column, sent, expected: Expected::Parked(code) }
}

/// Texts with which a server names the column where the reason is its own.
fn names(reason: &str, column: &str) -> bool {
    let words: Vec<&str> = reason.split(|c: char| !c.is_alphanumeric()).collect();
    words.contains(&column)
}

/// Sends all cases through both effects and compares. `shown` puts a column into the text that is expected.
async fn compare(world: &World, cases: &[Case], before: &str, shown: impl Fn(&str, &str) -> String) {
    let mut tables = before.to_owned();
    for table in ["by_table", "by_sql"] {
        let columns: Vec<String> =
            cases.iter().enumerate().map(|(n, case)| format!("c{n} {}", case.column.trim_end())).collect();
        writeln!(tables, "CREATE TABLE {table} (id BIGINT PRIMARY KEY, {});", columns.join(", ")).unwrap();
    }
    world.db.run(&tables).await;
    let mut config = "[pause]\nparks = 100000\nratio = 1.0\nwindow = 100000\n".to_owned();
    config.push_str(
        "[[route]]\nname = \"mirror\"\nmatch = { topic = \"TOPIC\", header.to = \"table\" }\nmessage_id = \"header:id\"\n\
         [route.effect]\nkind = \"table\"\ntable = \"by_table\"\nkey = [\"id\"]\n",
    );
    let mut records = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        write!(
            config,
            "[[route]]\nname = \"c{n}\"\nmatch = {{ topic = \"TOPIC\", header.to = \"c{n}\" }}\nmessage_id = \"header:id\"\n\
             [route.effect]\nkind = \"sql\"\nsteps = [{{ sql = \"INSERT INTO by_sql (id, c{n}) VALUES (:id, :c{n})\" }}]\n"
        )
        .unwrap();
        let record = |prefix: &str| case.sent.record(&format!("{prefix}{n}"), n, &format!("c{n}"));
        records.push(record("t").header("to", "table"));
        records.push(record("s").header("to", format!("c{n}")));
    }
    world.send(&records).await;
    let running = world.start(&config).await;
    running.seen(records.len()).await;
    let letters = world.db.rows("message_id, code, reason", "FROM countersign_dead_letters").await;
    let letters: HashMap<&str, (&str, &str)> = letters
        .iter()
        .map(|row| {
            let mut parts = row.splitn(3, '|');
            (parts.next().unwrap(), (parts.next().unwrap(), parts.next().unwrap()))
        })
        .collect();
    let mut faults = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        for (table, prefix) in [("by_table", "t"), ("by_sql", "s")] {
            let place = format!("{table} {n} {} <- {}", case.column, case.sent.wire);
            let letter = letters.get(format!("{prefix}{n}").as_str());
            let column = shown(&format!("c{n}"), case.column);
            let sql = format!("SELECT {column} FROM {table} WHERE id = {n}");
            let rows = world.db.store.read(&sql, Vec::new()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let stored = rows.first().map(|row| row.opt_text(0).unwrap());
            let fault = match (&case.expected, letter, &stored) {
                (Expected::Kept(text), None, Some(Some(stored))) if stored == text => continue,
                (Expected::Null, None, Some(None)) => continue,
                (Expected::Parked(code), Some((found, reason)), None)
                    if code == found && names(reason, &format!("c{n}")) =>
                {
                    continue;
                }
                _ => format!("{place}: expected {:?}, stored {stored:?}, parked {letter:?}", case.expected),
            };
            faults.push(fault);
        }
    }
    running.stop().await;
    assert!(faults.is_empty(), "{} of {}\n{}", faults.len(), 2 * cases.len(), faults.join("\n"));
}
