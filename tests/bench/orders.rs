//! The same work with the usual crates, and the orders of the fixtures as Avro.

use std::collections::BTreeMap;
use std::hint::black_box;

use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use countersign::record::{Record, RecordPosition};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What decoding, routing and identifying come to through documents of `serde_json`: one for the key, one for the
/// value, an id over the coordinates and a digest over the sorted row.
pub fn by_serde_json(record: &Record) {
    let parse = |bytes: Option<&[u8]>| serde_json::from_slice::<Value>(bytes.unwrap_or(b"null")).expect("json");
    let (key, value) = (parse(record.key.as_deref()), parse(record.value.as_deref()));
    let op = value["op"].as_str().expect("an op");
    let source = &value["source"];
    let row = if value["after"].is_null() { &value["before"] } else { &value["after"] };
    let mut id = Sha256::new();
    for part in ["name", "db", "schema", "table", "gtid", "file", "pos", "row", "lsn", "txId"] {
        id.update(format!("{part}:{};", source[part]));
    }
    id.update(sorted(&key));
    id.update(op);
    let content = format!("{op} {} {}", sorted(&key), sorted(row));
    black_box((format!("{:x}", id.finalize()), format!("{:x}", Sha256::digest(content))));
}

fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => serde_json::to_string(&fields.iter().collect::<BTreeMap<_, _>>()),
        other => serde_json::to_string(other),
    }
    .expect("json")
}

/// Key and value, as a converter registers them.
pub fn schemas() -> (String, String) {
    let optional = |inner: &str| json!(["null", inner]);
    let decimal = json!({"type": "bytes", "scale": 2, "precision": 12, "connect.version": 1, "logicalType": "decimal",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
        "connect.name": "org.apache.kafka.connect.data.Decimal"});
    let timestamp = json!({"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"});
    let row = json!({"type": "record", "name": "Value", "connect.name": "bench.shop.orders.Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "amount", "type": decimal},
        {"name": "status", "type": "string"}, {"name": "updated_at", "type": timestamp}]});
    let source = json!({"type": "record", "name": "Source", "namespace": "io.debezium.connector.mariadb", "fields": [
        {"name": "version", "type": "string"}, {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"}, {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [{"type": "string", "connect.name": "io.debezium.data.Enum"}, "null"]},
        {"name": "db", "type": "string"}, {"name": "sequence", "type": optional("string")},
        {"name": "ts_us", "type": optional("long")}, {"name": "ts_ns", "type": optional("long")},
        {"name": "table", "type": optional("string")}, {"name": "server_id", "type": "long"},
        {"name": "gtid", "type": optional("string")}, {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"}, {"name": "row", "type": "int"}, {"name": "thread", "type": optional("long")},
        {"name": "query", "type": optional("string")}],
        "connect.name": "io.debezium.connector.mariadb.Source"});
    let block = json!({"type": "record", "name": "block", "namespace": "event", "fields": [
        {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"}], "connect.name": "event.block"});
    let envelope = json!({"type": "record", "name": "Envelope", "namespace": "bench.shop.orders", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": optional("Value")},
        {"name": "source", "type": source}, {"name": "transaction", "type": ["null", block]},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": optional("long")},
        {"name": "ts_us", "type": optional("long")}, {"name": "ts_ns", "type": optional("long")}],
        "connect.version": 2, "connect.name": "bench.shop.orders.Envelope"});
    let key = json!({"type": "record", "name": "Key", "namespace": "bench.shop.orders",
        "fields": [{"name": "id", "type": "long"}], "connect.name": "bench.shop.orders.Key"});
    (key.to_string(), envelope.to_string())
}

/// Creates, updates and deletes in the ratio 10 : 5 : 1, in Confluent's framing.
pub fn avro_records() -> Vec<Record> {
    let (key_schema, value_schema) = schemas();
    let parse = |text: &str| apache_avro::Schema::parse_str(text).expect("a schema");
    let (key_schema, value_schema) = (parse(&key_schema), parse(&value_schema));
    (0..160).map(|n| record(n, &key_schema, &value_schema)).collect()
}

fn record(n: i64, key_schema: &apache_avro::Schema, value_schema: &apache_avro::Schema) -> Record {
    let some = |value: Avro| Avro::Union(1, Box::new(value));
    let none = || Avro::Union(0, Box::new(Avro::Null));
    let text = |text: &str| Avro::String(text.to_owned());
    let fields = |fields: Vec<(&str, Avro)>| {
        Avro::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let row = |status: &str| {
        some(fields(vec![
            ("id", Avro::Long(n)),
            ("customer", text(&format!("customer-{}", n * 7919 % 1000))),
            ("amount", Avro::Decimal(vec![0x12, 0x34, n as u8].into())),
            ("status", text(status)),
            ("updated_at", Avro::Long(1_795_955_696_123_456 + n)),
        ]))
    };
    let (op, before, after) = match n % 16 {
        0..10 => ("c", none(), row("NEW")),
        10..15 => ("u", row("NEW"), row("PAID")),
        _ => ("d", row("PAID"), none()),
    };
    let source = fields(vec![
        ("version", text("3.5.0.Final")),
        ("connector", text("mariadb")),
        ("name", text("bench")),
        ("ts_ms", Avro::Long(1_795_991_153_000)),
        ("snapshot", Avro::Union(0, Box::new(text("false")))),
        ("db", text("shop")),
        ("sequence", none()),
        ("ts_us", some(Avro::Long(1_795_991_153_000_000))),
        ("ts_ns", some(Avro::Long(1_795_991_153_000_000_000))),
        ("table", some(text("orders"))),
        ("server_id", Avro::Long(1)),
        ("gtid", some(text(&format!("0-1-{n}")))),
        ("file", text("binlog.000001")),
        ("pos", Avro::Long(8000 + 200 * n)),
        ("row", Avro::Int(0)),
        ("thread", some(Avro::Long(9))),
        ("query", none()),
    ]);
    let value = fields(vec![
        ("before", before),
        ("after", after),
        ("source", source),
        ("transaction", none()),
        ("op", text(op)),
        ("ts_ms", some(Avro::Long(1_795_991_153_321))),
        ("ts_us", some(Avro::Long(1_795_991_153_321_000))),
        ("ts_ns", some(Avro::Long(1_795_991_153_321_000_000))),
    ]);
    let framed = |id: u8, schema: &apache_avro::Schema, value: Avro| {
        let writer = GenericDatumWriter::builder(schema).build().expect("a writer");
        [vec![0, 0, 0, 0, id], writer.write_value_to_vec(value).expect("a value of its schema")].concat()
    };
    Record {
        position: RecordPosition { topic: "bench.shop.orders".into(), partition: 0, offset: n },
        timestamp_ms: Some(1_795_991_153_400),
        headers: Vec::new(),
        key: Some(framed(1, key_schema, fields(vec![("id", Avro::Long(n))]))),
        value: Some(framed(2, value_schema, value)),
    }
}
