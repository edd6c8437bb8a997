//! `inspect` on real topics.

use std::process::Command;

use serde_json::Value;

use crate::column::{Table, word};
use crate::daemon::BINARY;
use crate::database::Kind;
use crate::kafka;
use crate::wire::{Format, connector};
use crate::world::{World, env, holds, run, until};

/// The text of each change, but for what speaks of the connector: topic, name and times of the source, the id that is made of
/// its name.
#[test]
fn inspect_prints_the_same_of_every_wire_format() {
    for kind in [Kind::MariaDb, Kind::Postgres] {
        let world = World::new(&format!("inspect_{}", word(kind)));
        let table = Table::read(kind, false);
        let source = world.database(kind, "source");
        table.types.iter().for_each(|sql| _ = source.run(sql));
        source.run(&table.create(kind));
        source.run(&table.insert(1, 0)); // a read of the snapshot
        let topics = Format::ALL.map(|format| connector(&world, &source, format));
        source.run(&(2..=table.height() as i64).map(|id| table.insert(id, id as usize - 1)).collect::<String>());
        source.run(&table.update(1, 1));
        source.run(&table.touch(2));
        source.run("UPDATE every_type SET id = 1003 WHERE id = 3");
        source.run("DELETE FROM every_type WHERE id = 2");
        source.run("TRUNCATE TABLE every_type");
        // The read, the others, two updates, three records of the key change, two of the delete, the truncate.
        let records = table.height() as i64 + 8;
        let [json, avro @ ..] = topics.each_ref().map(|topic| {
            until(30, "all records", || holds(kafka::ends(topic) == [records], || format!("{:?}", kafka::ends(topic))));
            inspected(topic)
        });
        assert_eq!(json.len(), records as usize);
        assert!(json.iter().all(|line| line["kind"] != "undecodable" && line["error"].is_null()), "{json:#?}");
        for (topic, lines) in topics[1..].iter().zip(avro) {
            assert_eq!(lines.len(), json.len(), "{topic}");
            for (number, (expected, line)) in json.iter().zip(&lines).enumerate() {
                for part in ["before", "after"] {
                    for (column, value) in expected[part].as_object().into_iter().flatten() {
                        assert_eq!(line[part][column], *value, "{topic}, {number}: {column} in {part}");
                    }
                }
                assert_eq!(line.to_string(), expected.to_string(), "{topic}, {number}");
            }
        }
    }
}

/// What `inspect` prints of a topic. The order of names and the digits of numbers stay as they are printed.
fn inspected(topic: &str) -> Vec<Value> {
    let (brokers, registry) = (env("COUNTERSIGN_KAFKA"), env("COUNTERSIGN_REGISTRY_URL"));
    let mut command = Command::new(BINARY);
    command.args(["inspect", "--output", "json", "--topic", topic, "--brokers", brokers, "--registry", registry]);
    let lines = run(&mut command);
    let lines = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        assert_eq!(fields.remove("topic").unwrap(), topic);
        if fields["kind"] == "change" {
            assert!(fields.remove("messageId").is_some() && fields["digest"].is_string(), "{line}");
            if line["op"] == "r" {
                // Each connector takes its own snapshot, at a place of its own.
                line["source"] = Value::Null;
                return line;
            }
            let source = line["source"].as_object_mut().unwrap();
            assert!(source.remove("name").is_some());
            source.retain(|name, _| !name.starts_with("ts_"));
        }
        line
    });
    lines.collect()
}
