//! Records that real connectors wrote in every wire format, decoded. No broker, database or registry: the fixtures have
//! the schemas. `tests/capture-fixtures.sh` says what is in which file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use countersign::debezium::avro::{AvroOptions, Framing, IdKind, SchemaId, SchemaRef, Width, WriterSchema};
use countersign::debezium::envelope::{DecodeOptions, Decoder, Unread};
use countersign::debezium::event::{ChangeEvent, Decoded, Operation};
use countersign::debezium::source::source_id;
use countersign::debezium::value::Value;
use countersign::digest::digest;
use countersign::route::Route;

use crate::fixtures::{path, records, schemas};

/// The writers' schemas by the kind of their ids, as a registry would give them.
static SCHEMAS: LazyLock<HashMap<String, HashMap<u64, Arc<WriterSchema>>>> = LazyLock::new(|| {
    let compiled = |(id, schema): (u64, serde_json::Value)| {
        (id, Arc::new(WriterSchema::compile(&schema.to_string(), &[]).unwrap()))
    };
    schemas().into_iter().map(|(kind, schemas)| (kind, schemas.into_iter().map(compiled).collect())).collect()
});

fn schema(id: SchemaRef) -> Arc<WriterSchema> {
    let (kind, number) = match id {
        SchemaRef::Id(SchemaId::Confluent(number)) => ("confluent", number.into()),
        SchemaRef::Id(SchemaId::Global(number)) => ("global", number),
        SchemaRef::Number { number, width: Width::Four } => ("confluent", number),
        SchemaRef::Number { number, width: Width::Eight } => ("global", number),
        SchemaRef::Id(SchemaId::Content(_)) => panic!("no fixture has {id}"),
    };
    SCHEMAS[kind].get(&number).unwrap_or_else(|| panic!("registry.json has no {id} in {kind}")).clone()
}

fn decode(file: &str) -> Vec<Decoded> {
    let avro = Some(AvroOptions { framing: Framing::Any, ids: IdKind::Open });
    let mut decoder = Decoder::new(DecodeOptions { avro, ..DecodeOptions::default() });
    let decoded = records(file).into_iter().map(|record| {
        loop {
            match decoder.decode(&record) {
                Ok(decoded) => return decoded,
                Err(Unread::Schema(id)) => decoder.learn(&record.position.topic, id, Ok(schema(id))),
                Err(unread) => panic!("{file}, offset {}: {unread:?}", record.position.offset),
            }
        }
    });
    decoded.collect()
}

/// The changes of a file; the rest are tombstones.
fn changes(file: &str) -> Vec<ChangeEvent> {
    let decoded = decode(file).into_iter().filter_map(|decoded| match decoded {
        Decoded::Event(event) => Some(*event),
        Decoded::Tombstone { .. } => None,
        Decoded::Skip(reason) => panic!("{file}: {reason:?}"),
    });
    decoded.collect()
}

/// Of the same change all is the same, but the name of the connector in what speaks of it.
#[test]
fn the_same_change_reads_the_same_in_every_wire_format() {
    let files = |table: &str, end: &str| {
        ["mariadb", "postgres"].map(|database| {
            ["schema", "confluent", "headers", "eight"].map(|format| format!("{database}-{table}-{format}.jsonl{end}"))
        })
    };
    for files in [files("shop", ""), files("types", ".gz")].concat() {
        let [plain, avro @ ..] = files.each_ref().map(|file| changes(file));
        assert!(plain.len() >= 6, "{}: {} changes", files[0], plain.len());
        for (file, events) in files[1..].iter().zip(avro) {
            assert_eq!(events.len(), plain.len(), "{file}");
            for (number, (expected, mut event)) in plain.iter().zip(events).enumerate() {
                assert!(event.typed);
                let ids = [expected, &event].map(|event| source_id(event).unwrap());
                assert_ne!(ids[0], ids[1], "{file}, {number}: one id for changes of two connectors");
                let name = &expected.source.as_ref().unwrap().name;
                event.source.as_mut().unwrap().name.clone_from(name);
                assert_eq!(ids[0], source_id(&event).unwrap(), "{file}, {number}");
                compare(&format!("{file}, {number}"), expected, &event);
                assert_eq!(digest(&event, &Route::default()), digest(expected, &Route::default()), "{file}, {number}");
            }
        }
    }
}

/// Column by column, for a failure that can be read.
fn compare(place: &str, expected: &ChangeEvent, event: &ChangeEvent) {
    for (what, expected, found) in
        [("before", &expected.before, &event.before), ("after", &expected.after, &event.after)]
    {
        let (Some(expected), Some(found)) = (expected, found) else { continue };
        for (name, value) in expected.iter() {
            assert_eq!(found.get(name), Some(value), "{place}: {name} in {what}");
        }
    }
    assert_eq!(event, expected, "{place}");
}

#[test]
fn namespaces_that_are_no_legal_avro_are_read() {
    let schemas = fs::read_to_string(path("registry.json")).unwrap();
    assert!(schemas.contains(r#""namespace":"my-app.shop.orders""#), "the fixture is to have a hyphen");
    let (hyphen, expected) = (changes("mariadb-hyphen.jsonl"), changes("mariadb-shop-schema.jsonl"));
    assert_eq!(hyphen.len(), 6);
    for (event, expected) in hyphen.iter().zip(&expected) {
        assert_eq!(event.source.as_ref().unwrap().name, "my-app");
        assert_eq!((&event.key, &event.before, &event.after), (&expected.key, &expected.before, &expected.after));
        assert_eq!(digest(event, &Route::default()), digest(expected, &Route::default()));
    }
}

/// Reviewed by hand against the values in tests/types when it was taken.
#[test]
fn inspect_prints_every_type_as_the_golden_files_have_it() {
    for database in ["mariadb", "postgres"] {
        let mut inspect = Command::new(env!("CARGO_BIN_EXE_countersign"));
        let fixture = path(&format!("{database}-types-schema.jsonl.gz"));
        let done = inspect.args(["inspect", "--output", "json"]).arg(fixture).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let golden = fs::read_to_string(path(&format!("{database}-types.golden.jsonl"))).unwrap();
        let printed = String::from_utf8(done.stdout).unwrap();
        assert_eq!(printed.lines().count(), golden.lines().count());
        for (number, (printed, golden)) in printed.lines().zip(golden.lines()).enumerate() {
            assert_eq!(printed, golden, "{database}, line {number}");
        }
    }
}

/// As the script makes them; a change of primary key is a delete and a create.
const MOVES: usize = 160;
const CREATES: usize = 1001 + MOVES;
const UPDATES: usize = 660 + 2 * 340;
const DELETES: usize = 340 + MOVES;

#[test]
fn the_records_of_a_killed_connector_give_as_many_ids_as_there_were_changes() {
    for database in ["mariadb", "postgres"] {
        let events = changes(&format!("{database}-repeated.jsonl.gz"));
        let mut ids: BTreeMap<String, (Option<Value>, Option<Operation>)> = BTreeMap::new();
        for event in &events {
            let change = (event.key.clone(), event.op);
            let id = source_id(event).unwrap();
            let first = ids.entry(id.clone()).or_insert_with(|| change.clone());
            assert_eq!(*first, change, "{database}: two changes under {id}");
        }
        let count = |op| ids.values().filter(|(_, found)| *found == Some(op)).count();
        let counts = [Operation::Create, Operation::Update, Operation::Delete].map(count);
        assert_eq!(counts, [CREATES, UPDATES, DELETES], "{database}: ids of creates, updates and deletes");
        assert_eq!(ids.len(), CREATES + UPDATES + DELETES);
        assert!(events.len() > ids.len() + 500, "{database}: {} records, {} ids", events.len(), ids.len());
    }
}
