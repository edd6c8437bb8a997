//! What stands before the first I/O, on one core: from a record's bytes to a message with its id and its digest, and from a
//! batch of messages and the inbox's answer to what each of them is.
//!
//! `cargo bench --bench decode`. Throughput is in bytes of the records' values for JSON and in records for Avro, so
//! that both can be held against each other's bounds; each stands beside what the usual crate does for the same work.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use apache_avro::reader::datum::GenericDatumReader;
use countersign::config::{Config, Host};
use countersign::debezium::avro::{AvroOptions, Framing, IdKind, SchemaId, SchemaRef, WriterSchema};
use countersign::debezium::envelope::{DecodeOptions, Decoder};
use countersign::debezium::event::Decoded;
use countersign::digest::digest;
use countersign::gate::{GateKey, Mark};
use countersign::message::{Message, MessageId, inbox_key};
use countersign::pipeline::attempt::Lane;
use countersign::pipeline::batch::{Entry, Item};
use countersign::pipeline::judge::judge;
use countersign::pipeline::marks::valid_marks;
use countersign::record::Record;
use countersign::record_line;
use countersign::route::Route;
use countersign::route::identify::identify;
use countersign::route::matching::select;
use countersign::store::inbox::{Seen, Status};
use countersign::store::lanes::{LaneKey, LaneRow};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sha2::{Digest as _, Sha256};

mod orders;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn routes() -> Vec<Route> {
    let config = r#"
        [pipeline]
        name = "bench"
        [kafka]
        brokers = "localhost:9092"
        topics = ["^.*"]
        [store]
        url = "sqlite:bench.db"
        retention = "forever"
        [[route]]
        name = "orders"
        match = { topic = "^.*" }
        message_id = "source"
        [route.effect]
        kind = "table"
        table = "orders_copy"
        key = ["id"]
        guard = "source"
    "#;
    let host = Host { env: &|_| None, kafka_option: &|_, _| Ok(()) };
    let config = Config::parse(config, "bench.toml", host).unwrap_or_else(|faults| panic!("{faults}"));
    config.routes.into_iter().map(|route| route.route).collect()
}

fn fixture(name: &str) -> Vec<Record> {
    let path = format!("{}/tests/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a fixture");
    let records = text.lines().map(|line| record_line::read(line).expect("a record line"));
    records.filter(|record| record.value.is_some()).collect()
}

/// Everything that stands before the first I/O for a record.
fn work(decoder: &mut Decoder, routes: &[Route], record: &Record) {
    let decoded = decoder.decode(record).expect("a good record");
    let route = select(routes, record, &decoded).expect("a route");
    let Decoded::Event(event) = decoded else { panic!("no change") };
    black_box(identify(&routes[route], route, record, *event).expect("a message"));
}

fn json(c: &mut Criterion) {
    let routes = routes();
    for name in ["mariadb-orders-plain", "postgres-orders-plain", "mariadb-orders", "mariadb-orders-flat"] {
        let mut records = fixture(name);
        if name.ends_with("plain") {
            // Updates, with both states of the row: about 1 KB each.
            records.retain(|record| record.value.as_ref().is_some_and(|value| value.len() > 900));
        }
        let bytes: usize = records.iter().map(|record| record.value.as_ref().map_or(0, Vec::len)).sum();
        let mut group = c.benchmark_group(format!("json/{name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        let mut decoder = Decoder::new(DecodeOptions::default());
        group.bench_function("countersign", |b| {
            b.iter(|| records.iter().for_each(|record| work(&mut decoder, &routes, record)));
        });
        if name.ends_with("plain") {
            group.bench_function("serde_json::Value", |b| {
                b.iter(|| records.iter().for_each(orders::by_serde_json));
            });
            group.bench_function("serde_json::Value, parsing alone", |b| {
                b.iter(|| {
                    for record in &records {
                        let value = record.value.as_deref().unwrap_or_default();
                        black_box(serde_json::from_slice::<serde_json::Value>(value).expect("json"));
                    }
                });
            });
        }
        group.finish();
    }
}

fn avro(c: &mut Criterion) {
    let routes = routes();
    let (key_schema, value_schema) = orders::schemas();
    let records = orders::avro_records();
    let options = AvroOptions { framing: Framing::Any, ids: IdKind::Confluent };
    let mut decoder = Decoder::new(DecodeOptions { avro: Some(options), ..DecodeOptions::default() });
    for (id, text) in [(1, &key_schema), (2, &value_schema)] {
        let schema = WriterSchema::compile(text, &[]).expect("a schema");
        decoder.learn(&records[0].position.topic, SchemaRef::Id(SchemaId::Confluent(id)), Ok(Arc::new(schema)));
    }
    let mut group = c.benchmark_group("avro/orders");
    group.throughput(Throughput::Elements(records.len() as u64));
    group.bench_function("countersign", |b| {
        b.iter(|| records.iter().for_each(|record| work(&mut decoder, &routes, record)));
    });
    let schema = WriterSchema::compile(&value_schema, &[]).expect("a schema");
    group.bench_function("countersign, decoding alone", |b| {
        b.iter(|| records.iter().for_each(|record| drop(black_box(decoder.decode(record).expect("a good record")))));
    });
    group.bench_function("countersign, reading the value alone", |b| {
        b.iter(|| {
            for record in &records {
                black_box(schema.read(&record.value.as_deref().unwrap_or_default()[5..]).expect("avro"));
            }
        });
    });
    let schema = apache_avro::Schema::parse_str(&value_schema).expect("a schema");
    group.bench_function("from_avro_datum, reading the value alone", |b| {
        b.iter(|| {
            for record in &records {
                let mut bytes = &record.value.as_deref().unwrap_or_default()[5..];
                #[allow(deprecated, reason = "it is what people use")]
                let read = apache_avro::from_avro_datum(&schema, &mut bytes, None);
                black_box(read.expect("avro"));
            }
        });
    });
    let reader = GenericDatumReader::builder(&schema).build().expect("a reader");
    group.bench_function("GenericDatumReader, reading the value alone", |b| {
        b.iter(|| {
            for record in &records {
                let mut bytes = &record.value.as_deref().unwrap_or_default()[5..];
                black_box(reader.read_value(&mut bytes).expect("avro"));
            }
        });
    });
    group.finish();
}

fn messages(records: &[Record], routes: &[Route]) -> Vec<Message> {
    let mut decoder = Decoder::new(DecodeOptions::default());
    let message = |record: &Record| match decoder.decode(record) {
        Ok(Decoded::Event(event)) => identify(&routes[0], 0, record, *event).expect("a message"),
        other => panic!("no change: {other:?}"),
    };
    records.iter().map(message).collect()
}

/// The digest of the whole content beside the hash of the bytes, which it cannot be faster than by much.
fn digests(c: &mut Criterion) {
    let routes = routes();
    let records = fixture("mariadb-orders-plain");
    let messages = messages(&records, &routes);
    let mut group = c.benchmark_group("digest/mariadb-orders-plain");
    group.throughput(Throughput::Elements(records.len() as u64));
    group.bench_function("of the content", |b| {
        b.iter(|| messages.iter().for_each(|message| drop(black_box(digest(&message.event, &routes[0])))));
    });
    group.bench_function("SHA-256 of the value's bytes", |b| {
        b.iter(|| {
            for record in &records {
                black_box(Sha256::digest(record.value.as_deref().unwrap_or_default()));
            }
        });
    });
    group.finish();
}

/// Batches of a thousand: all new, all known, and known to the gate.
fn plan(c: &mut Criterion) {
    let routes = routes();
    let records = fixture("mariadb-orders-plain");
    let items: Vec<Item> = (0..1000)
        .map(|n| {
            let record = records[n % records.len()].clone();
            let mut message = messages(std::slice::from_ref(&record), &routes).remove(0);
            message.id = MessageId::new(format!("{}-{n}", message.id.as_str()));
            let key = inbox_key("bench", "", &message.id);
            Item { record, entry: Entry::Message { key, message: Box::new(message) } }
        })
        .collect();
    let parts = |item: &Item| match &item.entry {
        Entry::Message { key, message } => (key.clone(), message.id.clone(), message.digest.as_str().to_owned()),
        Entry::Skip(_) | Entry::Faulty(_) => panic!("a message"),
    };
    let known = |token: i64| -> Vec<Seen> {
        let seen = |item: &Item| {
            let (key, id, digest) = parts(item);
            Seen {
                key,
                message_id: Some(id.as_str().to_owned()),
                status: Status::Success,
                digest: Some(digest),
                token,
                received_ms: 0,
                topic: "t".to_owned(),
                partition: 0,
                offset: 0,
            }
        };
        items.iter().map(seen).collect()
    };
    let (own, others) = (known(1), known(2));
    let marks: HashMap<Vec<u8>, Mark> = items
        .iter()
        .map(|item| {
            let (key, _, digest) = parts(item);
            let (topic, key_hash) = (item.record.position.topic.to_string(), GateKey::new(&key).hash);
            let mark =
                Mark { store_epoch: "e".into(), key_hash, digest, topic, generation: 0, partition: 0, offset: 1 };
            (key, mark)
        })
        .collect();
    let topic = Arc::clone(&items[0].record.position.topic);
    let lane = Lane { key: LaneKey { pipeline: "bench".into(), topic, partition: 0 }, generation: 0, tenure: None };
    let row = LaneRow { next_offset: 2, store_epoch: "e".to_owned(), ..LaneRow::unassigned(0, String::new()) };
    let (none, inbox) = (HashMap::new(), [true]);
    let mut group = c.benchmark_group("plan/1000 messages");
    group.throughput(Throughput::Elements(items.len() as u64));
    for (name, marks, seen) in [
        ("all new to the inbox", &none, None),
        ("all new, read back", &none, Some(own.as_slice())),
        ("all known to the inbox", &none, Some(others.as_slice())),
        ("all known to the gate", &marks, None),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let valid = valid_marks(&items, marks, &lane, &row);
                black_box(judge(&items, &inbox, &valid, seen, 1).expect("judgements"));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, json, avro, digests, plan);
criterion_main!(benches);
