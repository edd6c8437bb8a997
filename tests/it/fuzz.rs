//! Damaged input of every kind: real records with bytes changed, cut, doubled and spliced must be read or refused, never
//! panic, and whatever is read must print as JSON.
//!
//! `COUNTERSIGN_FUZZ_SECONDS` says for how long (10 by default), `COUNTERSIGN_FUZZ_SEED` repeats a run; a failure
//! prints both and the record as a line that `countersign inspect` takes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::config::{Config, Host};
use countersign::debezium::avro::{AvroOptions, Framing, IdKind, SchemaId, SchemaRef, WriterSchema};
use countersign::debezium::envelope::{DecodeOptions, Decoder, Unread};
use countersign::debezium::event::{Decoded, Fault};
use countersign::debezium::render;
use countersign::record::Record;
use countersign::record_line;
use countersign::route::Route;
use countersign::route::identify::{examine, examine_faulty};
use countersign::route::matching::select;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, RngCore as _, SeedableRng};

use crate::fixtures::{path, records, schemas};

/// Pieces that mean something to one of the decoders.
const TOKENS: [&[u8]; 24] = [
    b"\"schema\":",
    b"\"payload\":",
    b"{\"before\":null,\"after\":",
    b"\"op\":\"t\"",
    b"\"op\":\"m\"",
    b"null",
    b"-0",
    b"1e999999999",
    b"9223372036854775808",
    b"\\ud800",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    b"__debezium_unavailable_value",
    b"\"scale\":2147483647",
    b"\"type\":\"struct\"",
    b"org.apache.kafka.connect.data.Decimal",
    b"io.debezium.time.NanoTimestamp",
    b"io.debezium.data.Bits",
    b"\x00\x00\x00\x00\x01",
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
    b"\xc3\x28",
    b"",
];

struct Corpus {
    records: Vec<Record>,
    schemas: BTreeMap<u64, String>,
    routes: Vec<Route>,
}

const CONFIG: &str = include_str!("../../docker/countersign.toml");

fn corpus() -> Corpus {
    let mut recorded = Vec::new();
    for file in std::fs::read_dir(path("")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let lines = name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
        if lines && !name.contains("golden") && !name.contains("repeated") {
            recorded.extend(records(&name).into_iter().take(40));
        }
    }
    let schemas = schemas().into_values().flatten().map(|(id, schema)| (id, schema.to_string())).collect();
    let source = "[[route]]\nname = \"all\"\nmatch = { topic = \"^.*\" }\nmessage_id = [\"header:id\", \"source\", \"value:id\"]\n\
        correlation_id = \"value:orderId\"\n[route.effect]\nkind = \"none\"\n";
    let text = format!(
        "[pipeline]\nname = \"fuzz\"\n[kafka]\nbrokers = \"h:1\"\ntopics = [\"^.*\"]\n[store]\nurl = \"sqlite:x.db\"\n\
         retention = \"forever\"\n{source}"
    );
    Corpus {
        records: recorded,
        schemas,
        routes: parse(&text).unwrap().routes.into_iter().map(|route| route.route).collect(),
    }
}

fn parse(text: &str) -> Result<Config, String> {
    let host = Host { env: &|_| None, kafka_option: &|_, _| Ok(()) };
    Config::parse(text, "fuzz.toml", host).map_err(|faults| faults.to_string())
}

fn damage(rng: &mut StdRng, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = rng.random(),
            2 => bytes.truncate(at),
            3 => drop(bytes.splice(at..at, TOKENS.choose(rng).unwrap().iter().copied())),
            4 => {
                let end = (at + rng.random_range(0..64)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            5 => {
                let piece = bytes[at..(at + rng.random_range(0..200)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            6 if !other.is_empty() => {
                let from = rng.random_range(0..other.len());
                let piece = other[from..(from + rng.random_range(1..300)).min(other.len())].to_vec();
                let end = (at + piece.len()).min(bytes.len());
                drop(bytes.splice(at..end, piece));
            }
            _ => {
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
                if let Some(digit) = digit {
                    bytes[at + digit] = b"0123456789.-e"[rng.random_range(0..13)];
                }
            }
        }
    }
    bytes.truncate(1 << 20);
}

fn damaged(rng: &mut StdRng, corpus: &Corpus) -> Record {
    let mut record = corpus.records.choose(rng).unwrap().clone();
    let other = corpus.records.choose(rng).unwrap();
    let other = other.value.as_deref().unwrap_or_default();
    match rng.random_range(0..6) {
        0 => damage(rng, record.key.get_or_insert_default(), other),
        1 if !record.headers.is_empty() => {
            let header = rng.random_range(0..record.headers.len());
            damage(rng, record.headers[header].value.get_or_insert_default(), b"true\x00\x00\x00\x00\x00\x00\x00\x01");
        }
        _ => damage(rng, record.value.get_or_insert_default(), other),
    }
    record
}

/// Reads a record as the pipeline does. Schemas are damaged now and then, too.
fn read(rng: &mut StdRng, corpus: &Corpus, record: &Record) {
    let framing = *[Framing::Any, Framing::Header, Framing::FourByte, Framing::EightByte].choose(rng).unwrap();
    let ids = *[IdKind::Confluent, IdKind::Global, IdKind::Content, IdKind::Open].choose(rng).unwrap();
    let avro = rng.random_bool(0.8).then_some(AvroOptions { framing, ids });
    let mut decoder = Decoder::new(DecodeOptions { avro, ..DecodeOptions::default() });
    for asked in 0.. {
        assert!(asked < 3, "a decoder asks for a schema again that it was told");
        let decoded = match decoder.decode(record) {
            Ok(decoded) => decoded,
            Err(Unread::Schema(schema)) => {
                decoder.learn(&record.position.topic, schema, schema_of(rng, corpus, schema));
                continue;
            }
            Err(Unread::Setup(_)) => return,
            Err(Unread::Fault(fault)) => {
                let salvaged = decoder.salvage(record);
                examine_faulty(&corpus.routes[0], record, salvaged.as_ref(), fault);
                return;
            }
        };
        let route = select(&corpus.routes, record, &decoded);
        let Decoded::Event(event) = decoded else { return };
        for row in [&event.before, &event.after].into_iter().flatten() {
            let text = render::row_json(row);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "no JSON: {text}");
        }
        if let Some(route) = route {
            drop(examine(&corpus.routes[route], route, record, *event));
        }
        return;
    }
}

fn schema_of(rng: &mut StdRng, corpus: &Corpus, schema: SchemaRef) -> Result<Arc<WriterSchema>, Fault> {
    let id = match schema {
        SchemaRef::Id(SchemaId::Confluent(id)) => u64::from(id),
        SchemaRef::Id(SchemaId::Global(id) | SchemaId::Content(id)) => id,
        SchemaRef::Number { number, .. } => number,
    };
    let any = || corpus.schemas.values().nth(id as usize % corpus.schemas.len());
    let text = corpus.schemas.get(&id).or_else(any).expect("schemas");
    let text = if rng.random_bool(0.2) {
        let mut bytes = text.clone().into_bytes();
        damage(rng, &mut bytes, b"{\"type\":\"record\",\"name\":\"Value\",\"fields\":[]}");
        String::from_utf8_lossy(&bytes).into_owned()
    } else {
        text.clone()
    };
    WriterSchema::compile(&text, &[]).map(Arc::new)
}

#[test]
fn no_damage_to_a_record_a_schema_or_a_configuration_is_more_than_a_fault() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seconds = number("COUNTERSIGN_FUZZ_SECONDS").unwrap_or(10);
    let seed = number("COUNTERSIGN_FUZZ_SEED").unwrap_or_else(|| rand::rng().next_u64());
    let corpus = corpus();
    let mut rng = StdRng::seed_from_u64(seed);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0_u64;
    while Instant::now() < deadline {
        rounds += 1;
        let record = damaged(&mut rng, &corpus);
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&mut rng, &corpus, &record)));
        assert!(outcome.is_ok(), "COUNTERSIGN_FUZZ_SEED={seed} round {rounds}\n{}", record_line::write(&record));
        let mut line = record_line::write(&record).into_bytes();
        damage(&mut rng, &mut line, b"{\"base64\":\"AA==\"}");
        drop(record_line::read(&String::from_utf8_lossy(&line)));
        if rounds.is_multiple_of(16) {
            let mut config = CONFIG.as_bytes().to_vec();
            damage(&mut rng, &mut config, b"steps = [{ sql = \"UPDATE t SET a = :a WHERE b = ':c' -- :d\" }]");
            let text = String::from_utf8_lossy(&config).into_owned();
            let outcome = catch_unwind(AssertUnwindSafe(|| drop(parse(&text))));
            assert!(outcome.is_ok(), "COUNTERSIGN_FUZZ_SEED={seed} round {rounds}\n{text}");
        }
    }
    eprintln!("{rounds} damaged records in {seconds} s, seed {seed}");
}
