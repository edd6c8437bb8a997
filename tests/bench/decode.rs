//! Decoding on one core: from a record's bytes to a message with its id and its digest.
//!
//! `cargo bench --bench decode`. Throughput is in bytes of the records' values for JSON and in records for Avro, so
//! that both can be held against each other's bounds; each stands beside what the usual crate does for the same work.

use std::hint::black_box;
use std::sync::Arc;

use apache_avro::reader::datum::GenericDatumReader;
use countersign::config::{Config, Host};
use countersign::debezium::avro::{AvroOptions, Framing, IdKind, SchemaId, SchemaRef, WriterSchema};
use countersign::debezium::envelope::{DecodeOptions, Decoder};
use countersign::debezium::event::Decoded;
use countersign::record::Record;
use countersign::record_line;
use countersign::route::Route;
use countersign::route::identify::identify;
use countersign::route::matching::select;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

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

criterion_group!(benches, json, avro);
criterion_main!(benches);
