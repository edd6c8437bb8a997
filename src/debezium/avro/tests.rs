use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::framing::{Framed, locate};
use super::*;
use crate::debezium::document::{Document, SchemaCache};
use crate::debezium::envelope::{DecodeOptions, Decoder, Unread};
use crate::debezium::event::{ChangeEvent, Decoded, Fault};
use crate::debezium::format::Format;
use crate::debezium::render;
use crate::debezium::schema::Kind;
use crate::debezium::source_id::source_id;
use crate::debezium::value::Value;
use crate::record::Record;

fn compile(schema: &serde_json::Value) -> WriterSchema {
    WriterSchema::compile(&schema.to_string(), &[]).unwrap()
}

fn encode(schema: &serde_json::Value, value: Avro) -> Vec<u8> {
    super::names::accept_any();
    let schema = apache_avro::Schema::parse_str(&schema.to_string()).unwrap();
    GenericDatumWriter::builder(&schema).build().unwrap().write_value_to_vec(value).unwrap()
}

/// What the crate read, as the wire values that a record gives here.
fn wire(value: &Avro) -> Value {
    match value {
        Avro::Null => Value::Null,
        Avro::Boolean(bool) => Value::Bool(*bool),
        Avro::Int(int) | Avro::Date(int) | Avro::TimeMillis(int) => Value::Int(i64::from(*int)),
        Avro::Long(long)
        | Avro::TimeMicros(long)
        | Avro::TimestampMillis(long)
        | Avro::TimestampMicros(long)
        | Avro::LocalTimestampMicros(long) => Value::Int(*long),
        Avro::Float(float) => Value::Float(format!("{float}").parse().unwrap()),
        Avro::Double(double) => Value::Float(*double),
        Avro::Bytes(bytes) | Avro::Fixed(_, bytes) => Value::Bytes(bytes.as_slice().into()),
        Avro::Decimal(decimal) => Value::Bytes(Vec::<u8>::try_from(decimal).unwrap().into()),
        Avro::String(text) | Avro::Enum(_, text) => Value::Text(text.into()),
        Avro::Uuid(uuid) => Value::Text(uuid.to_string().into()),
        Avro::Union(_, inner) => wire(inner),
        Avro::Array(items) => Value::Array(items.iter().map(wire).collect()),
        Avro::Record(fields) => Value::Struct(fields.iter().map(|(name, value)| (name.into(), wire(value))).collect()),
        other => panic!("{other:?}"),
    }
}

/// A random schema, and a value of it.
fn sample(rng: &mut StdRng, depth: usize, names: &mut usize) -> (serde_json::Value, Avro) {
    let kinds = if depth > 3 { 14 } else { 19 };
    match rng.random_range(0..kinds) {
        0 => (json!("null"), Avro::Null),
        1 => (json!("boolean"), Avro::Boolean(rng.random())),
        2 => (json!({"type": "int", "connect.type": "int16"}), Avro::Int(rng.random())),
        3 => (json!("long"), Avro::Long(long(rng))),
        4 => (json!("float"), Avro::Float(f32::from_bits(rng.random::<u32>() & 0xbfff_ffff))),
        5 => (json!("double"), Avro::Double(f64::from_bits(rng.random::<u64>() & 0xbfff_ffff_ffff_ffff))),
        6 => (json!({"type": "bytes", "connect.name": "io.debezium.data.Bits"}), Avro::Bytes(bytes(rng))),
        7 => (json!("string"), Avro::String(text(rng))),
        8 => (json!({"type": "int", "logicalType": "date"}), Avro::Date(rng.random())),
        9 => (json!({"type": "long", "logicalType": "timestamp-micros"}), Avro::TimestampMicros(long(rng))),
        10 => (json!({"type": "long", "logicalType": "local-timestamp-micros"}), Avro::LocalTimestampMicros(long(rng))),
        11 => {
            let unscaled: Vec<u8> = vec![rng.random_range(1..127), rng.random()];
            let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4});
            (decimal, Avro::Decimal(unscaled.into()))
        }
        12 => {
            *names += 1;
            let at: u32 = rng.random_range(0..3);
            let symbols = ["a", "b-c", "2"];
            let schema = json!({"type": "enum", "name": format!("E{names}"), "symbols": symbols});
            (schema, Avro::Enum(at, symbols[at as usize].to_owned()))
        }
        13 => {
            *names += 1;
            let size = rng.random_range(0..20);
            let fixed: Vec<u8> = (0..size).map(|_| rng.random()).collect();
            (json!({"type": "fixed", "name": format!("F{names}"), "size": size}), Avro::Fixed(size, fixed))
        }
        14 | 15 => {
            let (inner, value) = loop {
                let inner = sample(rng, depth + 1, names);
                if inner.0 != json!("null") && !inner.0.is_array() {
                    break inner;
                }
            };
            let null_first = rng.random();
            let schema = if null_first { json!(["null", inner]) } else { json!([inner, "null"]) };
            let (at, value) =
                if rng.random() { (u32::from(!null_first), Avro::Null) } else { (u32::from(null_first), value) };
            (schema, Avro::Union(at, Box::new(value)))
        }
        16 => {
            let (items, value) = sample(rng, depth + 1, names);
            let count = rng.random_range(0..4);
            (json!({"type": "array", "items": items}), Avro::Array(vec![value; count]))
        }
        _ => {
            *names += 1;
            let name = format!("my-app.shop{names}.R-{names}");
            let (mut fields, mut values) = (Vec::new(), Vec::new());
            for at in 0..rng.random_range(0..6) {
                let (schema, value) = sample(rng, depth + 1, names);
                fields.push(json!({"name": format!("{at}-field"), "type": schema}));
                values.push((format!("{at}-field"), value));
            }
            (json!({"type": "record", "name": name, "fields": fields}), Avro::Record(values))
        }
    }
}

fn long(rng: &mut StdRng) -> i64 {
    let bits: i64 = rng.random();
    bits >> rng.random_range(0..64)
}

fn bytes(rng: &mut StdRng) -> Vec<u8> {
    (0..rng.random_range(0..40)).map(|_| rng.random()).collect()
}

fn text(rng: &mut StdRng) -> String {
    (0..rng.random_range(0..40)).map(|_| rng.random::<char>()).collect()
}

#[test]
fn the_plan_reads_what_the_crate_reads() {
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..3000 {
        let (schema, value) = sample(&mut rng, 0, &mut 0);
        let bytes = encode(&schema, value);
        let parsed = apache_avro::Schema::parse_str(&schema.to_string()).unwrap();
        let theirs = GenericDatumReader::builder(&parsed).build().unwrap().read_value(&mut bytes.as_slice()).unwrap();
        let ours = compile(&schema).read(&bytes).unwrap();
        let (ours, theirs) = (render::canonical(&ours.value), render::canonical(&wire(&theirs)));
        assert_eq!(ours, theirs, "round {round}: {schema}");
    }
}

#[test]
fn no_damage_to_the_bytes_is_more_than_a_fault() {
    let mut rng = StdRng::seed_from_u64(8);
    for _ in 0..3000 {
        let (schema, value) = sample(&mut rng, 0, &mut 0);
        let mut bytes = encode(&schema, value);
        let writer = compile(&schema);
        if !bytes.is_empty() {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
            let _ = writer.read(&bytes);
            bytes.truncate(at);
            if let Err(fault) = writer.read(&bytes) {
                assert_eq!(fault.code, "undecodable");
            }
        }
        bytes.push(0);
        let _ = writer.read(&bytes);
    }
}

#[test]
fn counts_and_depths_are_bounded_by_the_bytes() {
    let nulls = compile(&json!({"type": "array", "items": "null"}));
    // A block of 2^62 nulls.
    let mut bomb = vec![0x80; 8];
    bomb.extend([0x80, 0x01, 0x00]);
    assert_eq!(nulls.read(&bomb).unwrap_err().code, "undecodable");
    let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0];
    assert_eq!(nulls.read(&least).unwrap_err().code, "undecodable");
    let list = compile(&json!({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}));
    assert_eq!(render::json(&list.read(&[2, 2, 0]).unwrap().value), r#"{"next":{"next":{"next":null}}}"#);
    assert_eq!(list.read(&[2; 10_000]).unwrap_err().code, "undecodable");
    let endless = compile(&json!({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}));
    assert_eq!(endless.read(&[]).unwrap_err().code, "undecodable");
}

/// A few bytes must not ask for much memory, however the nothing is wrapped.
#[test]
fn what_takes_no_bytes_is_bounded_by_the_bytes_that_are_there() {
    let hollow = json!({"type": "record", "name": "H", "fields":
        (0..30).map(|at| json!({"name": format!("f{at}"), "type": "null"})).collect::<Vec<_>>()});
    let inner = json!({"type": "record", "name": "I", "fields": []});
    let fixed = json!({"type": "fixed", "name": "F", "size": 0});
    let outer = json!({"type": "record", "name": "O", "fields": [{"name": "a", "type": inner.clone()}]});
    for items in [json!("null"), hollow, inner, fixed, outer] {
        let array = compile(&json!({"type": "array", "items": items}));
        assert!(array.read(&[4, 0]).is_ok(), "{items}");
        // A block of 8192 items.
        let fault = array.read(&[0x80, 0x80, 0x01, 0]).unwrap_err();
        assert_eq!(fault.code, "undecodable", "{items}");
    }
    // Optional columns that are null take a byte each.
    let optional = compile(&json!({"type": "array", "items": ["null", "int"]}));
    let mut bytes = vec![0x80, 0x80, 0x01];
    bytes.extend([0; 8193]);
    assert!(optional.read(&bytes).is_ok());
}

#[test]
fn an_int_has_32_bits() {
    for schema in [
        json!("int"),
        json!({"type": "int", "logicalType": "date"}),
        json!({"type": "enum", "name": "E",
        "symbols": ["a"]}),
    ] {
        let writer = compile(&schema);
        for bytes in [
            // 2^31, -2^31 - 1, and nought in six bytes.
            &[0x80, 0x80, 0x80, 0x80, 0x10][..],
            &[0x81, 0x80, 0x80, 0x80, 0x10],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
        ] {
            assert_eq!(writer.read(bytes).unwrap_err().code, "undecodable", "{schema} {bytes:?}");
        }
    }
    let int = compile(&json!("int"));
    for (bytes, value) in [([0xfe, 0xff, 0xff, 0xff, 0x0f], i32::MAX), ([0xff, 0xff, 0xff, 0xff, 0x0f], i32::MIN)] {
        assert_eq!(int.read(&bytes).unwrap().value, Value::Int(value.into()));
    }
    let long = compile(&json!("long"));
    assert_eq!(long.read(&[0x80, 0x80, 0x80, 0x80, 0x10]).unwrap().value, Value::Int(1 << 31));
}

/// As in JSON: the last value, at the place of the first.
#[test]
fn of_a_name_that_a_map_repeats_the_last_value_counts() {
    let map = json!({"type": "map", "values": "int"});
    // Two blocks, a 1, b 2, then a 3.
    let bytes = [4, 2, b'a', 2, 2, b'b', 4, 2, 2, b'a', 6, 0];
    assert_eq!(render::json(&compile(&map).read(&bytes).unwrap().value), r#"{"a":3,"b":2}"#);
    let parsed = apache_avro::Schema::parse_str(&map.to_string()).unwrap();
    let theirs = GenericDatumReader::builder(&parsed).build().unwrap().read_value(&mut bytes.as_slice()).unwrap();
    let Avro::Map(theirs) = theirs else { panic!("{theirs:?}") };
    assert_eq!((theirs.len(), &theirs["a"], &theirs["b"]), (2, &Avro::Int(3), &Avro::Int(2)));
    let entry = json!({"type": "record", "name": "MapEntry", "connect.internal.type": "MapEntry", "fields":
        [{"name": "key", "type": "string"}, {"name": "value", "type": "int"}]});
    let entries = compile(&json!({"type": "array", "items": entry}));
    assert_eq!(render::json(&entries.read(&bytes).unwrap().value), r#"{"a":3,"b":2}"#);
}

/// What damaged bytes are read as is what the crate reads, or they are refused.
#[test]
fn damaged_bytes_are_refused_or_read_as_the_crate_reads_them() {
    let mut rng = StdRng::seed_from_u64(9);
    let mut read = 0;
    for round in 0..6000 {
        let (schema, value) = sample(&mut rng, 0, &mut 0);
        let mut bytes = encode(&schema, value);
        if bytes.is_empty() {
            continue;
        }
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random();
        let Ok(ours) = compile(&schema).read(&bytes) else { continue };
        let parsed = apache_avro::Schema::parse_str(&schema.to_string()).unwrap();
        let mut left = bytes.as_slice();
        let theirs = GenericDatumReader::builder(&parsed).build().unwrap().read_value(&mut left);
        let theirs = theirs.unwrap_or_else(|error| panic!("round {round}: {schema} {bytes:?}: {error}"));
        assert!(left.is_empty(), "round {round}: {schema} {bytes:?}");
        assert_eq!(render::canonical(&ours.value), render::canonical(&wire(&theirs)), "round {round}: {schema}");
        read += 1;
    }
    assert!(read > 1000, "{read}");
}

/// Read for an event or read whole, an envelope has the same in it but for what no event is made of.
#[test]
fn what_an_event_needs_is_read_as_it_is_in_the_whole() {
    let row = json!({"type": "record", "name": "Value", "fields": [{"name": "ts_ms", "type": "long"},
        {"name": "version", "type": "string"}]});
    let source = json!({"type": "record", "name": "Source", "fields": [{"name": "version", "type": "string"},
        {"name": "lsn", "type": ["null", "long"]}, {"name": "sequence", "type": ["null", "string"]},
        {"name": "schema", "type": "string"}, {"name": "xmin", "type": ["null", "long"]}]});
    let envelope = |op: &str| {
        json!({"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source}, {"name": "op", "type": op}, {"name": "ts_ms", "type": ["null", "long"]},
        {"name": "ts_us", "type": "long"}]})
    };
    let text = |text: &str| Avro::String(text.to_owned());
    let fields = |fields: Vec<(&str, Avro)>| {
        Avro::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let some = |value: Avro| Avro::Union(1, Box::new(value));
    let none = || Avro::Union(0, Box::new(Avro::Null));
    let value = |op: Avro| {
        fields(vec![
            ("before", none()),
            ("after", some(fields(vec![("ts_ms", Avro::Long(7)), ("version", text("v"))]))),
            (
                "source",
                fields(vec![
                    ("version", text("3")),
                    ("lsn", some(Avro::Long(5))),
                    ("sequence", some(text("[]"))),
                    ("schema", text("s")),
                    ("xmin", none()),
                ]),
            ),
            ("op", op),
            ("ts_ms", some(Avro::Long(9))),
            ("ts_us", Avro::Long(9000)),
        ])
    };
    let bytes = encode(&envelope("string"), value(text("c")));
    let writer = compile(&envelope("string"));
    let shown = |extent| render::json(&writer.read_as(&bytes, extent).unwrap().value);
    let whole = r#"{"before":null,"after":{"ts_ms":7,"version":"v"},"source":{"version":"3","lsn":5,"sequence":"[]","schema":"s","xmin":null},"op":"c","ts_ms":9,"ts_us":9000}"#;
    assert_eq!(shown(Extent::Whole), whole);
    let needed = r#"{"before":null,"after":{"ts_ms":7,"version":"v"},"source":{"lsn":5,"schema":"s"},"op":"c"}"#;
    assert_eq!(shown(Extent::Needed), needed);
    for at in 0..bytes.len() {
        assert_eq!(writer.read_as(&bytes[..at], Extent::Needed).unwrap_err().code, "undecodable", "{at}");
    }
    // What merely resembles an envelope is somebody's own.
    let own = compile(&envelope("int"));
    let bytes = encode(&envelope("int"), value(Avro::Int(1)));
    assert_eq!(render::json(&own.read_as(&bytes, Extent::Needed).unwrap().value), whole.replace("\"c\"", "1"));
}

#[test]
fn a_schema_that_grows_without_bound_is_refused() {
    let mut texts = vec![json!({"type": "record", "name": "T0", "fields": [{"name": "a", "type": "int"}]}).to_string()];
    for at in 1..40 {
        let below = format!("T{}", at - 1);
        let fields = json!([{"name": "a", "type": below}, {"name": "b", "type": below}]);
        texts.push(json!({"type": "record", "name": format!("T{at}"), "fields": fields}).to_string());
    }
    assert_eq!(WriterSchema::compile("\"T39\"", &texts).unwrap_err().code, "bad_schema");
    let deep = format!("{}\"int\"{}", "{\"type\":\"array\",\"items\":".repeat(100), "}".repeat(100));
    assert_eq!(WriterSchema::compile(&deep, &[]).unwrap_err().code, "bad_schema");
    for text in ["", "{", "17", "\"T9\"", "{\"type\":\"record\",\"name\":\"x\"}", "nothing"] {
        assert_eq!(WriterSchema::compile(text, &[]).unwrap_err().code, "bad_schema", "{text}");
    }
}

#[test]
fn references_are_resolved_whatever_their_order() {
    let source = json!({"type": "record", "name": "Source", "namespace": "io.debezium.connector.mysql", "fields":
        [{"name": "file", "type": "string"}, {"name": "block", "type": ["null", "event.block"]}]});
    let block =
        json!({"type": "record", "name": "block", "namespace": "event", "fields": [{"name": "id", "type": "string"}]});
    let envelope = json!({"type": "record", "name": "Envelope", "namespace": "a.b", "fields": [
        {"name": "source", "type": "io.debezium.connector.mysql.Source"}, {"name": "transaction", "type": ["null", "event.block"]}]});
    let mut references = vec![source.to_string(), block.to_string()];
    for _ in 0..2 {
        let schema = WriterSchema::compile(&envelope.to_string(), &references).unwrap();
        assert_eq!(schema.name(), Some("a.b.Envelope"));
        let document = schema.read(&[2, b'f', 2, 2, b'1', 2, 2, b'2']).unwrap();
        assert_eq!(
            render::json(&document.value),
            r#"{"source":{"file":"f","block":{"id":"1"}},"transaction":{"id":"2"}}"#
        );
        references.reverse();
    }
    assert_eq!(WriterSchema::compile(&envelope.to_string(), &references[..1]).unwrap_err().code, "bad_schema");
}

/// Connect's attributes on primitives and inside unions decide what a value means.
#[test]
fn a_value_means_what_its_connect_name_says() {
    let optional = |inner: serde_json::Value| json!(["null", inner]);
    let decimal = json!({"type": "bytes", "scale": 4, "precision": 20, "connect.version": 1,
        "connect.parameters": {"scale": "4", "connect.decimal.precision": "20"},
        "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal"});
    let timestamp = json!({"type": "long", "connect.name": "org.apache.kafka.connect.data.Timestamp",
        "logicalType": "timestamp-millis"});
    let unsigned = json!({"type": "long", "connect.parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}});
    let variable = json!({"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields":
        [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        "connect.name": "io.debezium.data.VariableScaleDecimal"});
    let row = json!({"type": "record", "name": "Value", "namespace": "my-app.t", "fields": [
        {"name": "dec", "type": optional(decimal), "default": null},
        {"name": "ts", "type": timestamp, "default": "no long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "big", "type": optional(unsigned)},
        {"name": "any", "type": optional(variable)},
        {"name": "id", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
        {"name": "either", "type": ["null", "string", {"type": "int", "logicalType": "date"}]},
        {"name": "pairs", "type": {"type": "array", "items": {"type": "record", "name": "MapEntry",
            "namespace": "io.confluent.connect.avro", "connect.internal.type": "MapEntry", "fields":
            [{"name": "key", "type": ["null", "string"]}, {"name": "value", "type": "int"}]}}},
        {"name": "small", "type": "float"},
    ]});
    let mut bytes = vec![2, 6, 0xf4, 0xda, 0x68];
    bytes.extend([1, 0xd0, 0x0f]);
    bytes.extend([2, 1]);
    bytes.extend([2, 0x0a, 2, 0x7b]);
    bytes.extend([0x12; 16]);
    bytes.extend([4, 2]);
    bytes.extend([2, 2, 2, b'k', 14, 0]);
    bytes.extend(0.1f32.to_le_bytes());
    let record = Record::sample(None, None).with_header("apicurio.value.globalId", 7u64.to_be_bytes());
    let record = Record { value: Some(bytes), ..record };
    let event = decode(&record, Framing::Any, IdKind::Global, &[(SchemaId::Global(7), &row)]);
    assert_eq!(
        render::row_json(event.after.as_ref().unwrap()),
        concat!(
            r#"{"dec":"-73.0520","ts":"1969-12-31T23:59:59.999","at":"1970-01-01T00:00:01Z","#,
            r#""big":18446744073709551615,"any":"0.00123","id":"12121212-1212-1212-1212-121212121212","#,
            r#""either":"1970-01-02","pairs":{"k":7},"small":0.1}"#
        )
    );
}

fn decode(record: &Record, framing: Framing, ids: IdKind, schemas: &[(SchemaId, &serde_json::Value)]) -> ChangeEvent {
    let mut decoder =
        Decoder::new(DecodeOptions { avro: Some(AvroOptions { framing, ids }), ..DecodeOptions::default() });
    loop {
        match decoder.decode(record) {
            Ok(Decoded::Event(event)) => return *event,
            Err(Unread::Schema(id)) => {
                let known = schemas.iter().find(|(known, _)| SchemaRef::Id(*known) == id).map(|(_, schema)| schema);
                let none = || Fault::new("schema_not_found", id.to_string());
                decoder.learn(
                    &record.position.topic,
                    id,
                    known.map(|schema| std::sync::Arc::new(compile(schema))).ok_or_else(none),
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_width_of_an_id_is_seen_and_a_wrong_one_is_named() {
    let four = [&[0, 0, 0, 0, 13][..], &[2, 6, 97, 98, 99]].concat();
    let eight = [&[0, 0, 0, 0, 0, 0, 0, 0, 15][..], &[2, 6, 97, 98, 99]].concat();
    let at = |bytes: &[u8], framing, ids| match locate(
        &Record::sample(None, None),
        Part::Value,
        bytes,
        Some(AvroOptions { framing, ids }),
    ) {
        Framed::Avro { schema: SchemaRef::Id(id), body } => Ok((id, body.len())),
        Framed::Avro { schema: SchemaRef::Number { number, width }, body } => {
            Err(format!("{number} {width:?} {}", body.len()))
        }
        Framed::Misfit(why) => Err(why),
        Framed::No => Err(String::new()),
    };
    assert_eq!(at(&four, Framing::Any, IdKind::Confluent), Ok((SchemaId::Confluent(13), 5)));
    assert_eq!(at(&four, Framing::Any, IdKind::Global), Ok((SchemaId::Global(13), 5)));
    assert_eq!(at(&four, Framing::FourByte, IdKind::Content), Ok((SchemaId::Content(13), 5)));
    assert_eq!(at(&eight, Framing::Any, IdKind::Global), Ok((SchemaId::Global(15), 5)));
    assert_eq!(at(&eight, Framing::EightByte, IdKind::Confluent), Ok((SchemaId::Global(15), 5)));
    assert_eq!(at(&eight, Framing::Any, IdKind::Content), Ok((SchemaId::Content(15), 5)));
    assert_eq!(at(&four, Framing::Any, IdKind::Open), Err("13 Four 5".to_owned()));
    assert_eq!(at(&eight, Framing::Any, IdKind::Open), Err("15 Eight 5".to_owned()));
    for (bytes, framing, ids, readings) in [
        (&four, Framing::EightByte, IdKind::Global, ["13,", "55868547426"]),
        (&eight, Framing::Any, IdKind::Confluent, ["is 0,", "is 15"]),
        (&eight, Framing::FourByte, IdKind::Global, ["is 0,", "is 15"]),
    ] {
        let why = at(bytes, framing, ids).unwrap_err();
        assert!(readings.iter().all(|reading| why.contains(reading)), "{why}");
    }
    assert_eq!(at(b"{\"a\":1}", Framing::Any, IdKind::Confluent), Err(String::new()));
    assert_eq!(at(&four, Framing::Header, IdKind::Global), Err(String::new()));
}

/// Bare values begin with 00 whenever their first field is zero or absent.
#[test]
fn an_id_in_a_header_goes_before_what_the_bytes_look_like() {
    let schema = json!({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]},
        {"name": "b", "type": "int"}, {"name": "c", "type": "int"}, {"name": "d", "type": "int"}, {"name": "e", "type": "int"}]});
    for (header, id) in
        [("apicurio.value.globalId", SchemaId::Global(9)), ("apicurio.value.contentId", SchemaId::Content(9))]
    {
        let record = Record::sample(None, None).with_header(header, 9u64.to_be_bytes());
        let record = Record { value: Some(vec![0, 0, 0, 0, 26]), ..record };
        let event = decode(&record, Framing::Any, IdKind::Global, &[(id, &schema)]);
        assert_eq!(render::row_json(event.after.as_ref().unwrap()), r#"{"a":null,"b":0,"c":0,"d":0,"e":13}"#);
    }
    let short = Record::sample(None, None).with_header("apicurio.value.globalId", vec![0, 0, 0, 9]);
    let options = Some(AvroOptions { framing: Framing::Any, ids: IdKind::Global });
    assert!(matches!(locate(&short, Part::Value, &[0], options), Framed::Misfit(_)));
}

#[test]
fn without_a_registry_avro_is_a_matter_of_the_configuration() {
    let avro = Record { value: Some(vec![0, 0, 0, 0, 13, 2, 6]), ..Record::sample(None, None) };
    assert!(matches!(Decoder::new(DecodeOptions::default()).decode(&avro), Err(Unread::Setup(_))));
    // The payload of an outbox may be any bytes.
    let outbox = avro.with_header("id", "m-1");
    assert!(matches!(Decoder::new(DecodeOptions::default()).decode(&outbox), Err(Unread::Fault(_))));
}

#[test]
fn a_key_without_its_schema_spoils_the_derived_id_alone() {
    let value = json!({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]});
    let record =
        Record { key: Some(vec![0, 0, 0, 0, 1, 2]), value: Some(vec![0, 0, 0, 0, 2, 8]), ..Record::sample(None, None) };
    let event = decode(&record, Framing::Any, IdKind::Confluent, &[(SchemaId::Confluent(2), &value)]);
    assert_eq!(render::row_json(event.after.as_ref().unwrap()), r#"{"a":4}"#);
    assert!(event.wire.key_unread.is_some());
    // The next record asks again: the registry may know it by then.
    let mut decoder = Decoder::new(DecodeOptions {
        avro: Some(AvroOptions { framing: Framing::Any, ids: IdKind::Confluent }),
        ..DecodeOptions::default()
    });
    decoder.learn(
        &record.position.topic,
        SchemaRef::Id(SchemaId::Confluent(2)),
        Ok(std::sync::Arc::new(compile(&value))),
    );
    for offset in 0..3 {
        let mut record = record.clone();
        record.position.offset = offset;
        assert_eq!(decoder.decode(&record), Err(Unread::Schema(SchemaRef::Id(SchemaId::Confluent(1)))));
        decoder.learn(
            &record.position.topic,
            SchemaRef::Id(SchemaId::Confluent(1)),
            Err(Fault::new("schema_not_found", "1")),
        );
        assert!(decoder.decode(&record).is_ok());
    }
}

/// Raw numbers and uuids are keys, too, and some look like Avro.
#[test]
fn a_key_that_looks_like_avro_and_is_none_gives_no_derived_id() {
    let value = br#"{"op":"c","after":{"id":1},"source":{"connector":"postgresql","name":"n","table":"t","lsn":5}}"#;
    let registry = Some(AvroOptions { framing: Framing::Any, ids: IdKind::Confluent });
    let event = |key: &[u8], options: DecodeOptions| {
        let record = Record { key: Some(key.to_vec()), value: Some(value.to_vec()), ..Record::sample(None, None) };
        let mut decoder = Decoder::new(options);
        loop {
            match decoder.decode(&record) {
                Ok(Decoded::Event(event)) => return *event,
                Err(Unread::Schema(id)) => {
                    let none = Fault::new("schema_not_found", format!("{id} is not there"));
                    decoder.learn(&record.position.topic, id, Err(none));
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let five = 5_i64.to_be_bytes();
    let uuid = [0, 0, 0, 0, 9, 0x12, 0x4a, 0xbc, 0x80, 1, 2, 3, 4, 5, 6, 7];
    let large = 0x0000_0007_0000_0001_i64.to_be_bytes();
    for (key, avro) in [(&five[..], registry), (&uuid, registry), (&uuid, None), (&large, registry), (&large, None)] {
        let seen = event(key, DecodeOptions { avro, ..DecodeOptions::default() });
        assert_eq!(render::row_json(seen.after.as_ref().unwrap()), r#"{"id":1}"#);
        let fault = source_id(&seen).unwrap_err();
        assert_eq!(fault.code, "key_undecodable", "{key:?}");
        assert!(fault.detail.contains("`key_format = \"bytes\"`"), "{fault}");
        // Who knows what it is says so.
        let bytes = |key: &[u8]| {
            let seen = event(key, DecodeOptions { avro, key_format: Format::Bytes, ..DecodeOptions::default() });
            assert_eq!(seen.key, Some(Value::Bytes(key.into())));
            source_id(&seen).unwrap()
        };
        let mut other = key.to_vec();
        other[7] ^= 1;
        assert_ne!(bytes(key), bytes(&other));
    }
    // What never looks like Avro is a key as it always was, with a registry and without.
    for key in [&b"k-1"[..], &7_i32.to_be_bytes()] {
        let ids =
            [registry, None].map(|avro| source_id(&event(key, DecodeOptions { avro, ..DecodeOptions::default() })));
        assert!(ids[0].is_ok() && ids[0] == ids[1], "{ids:?}");
    }
    // A format that is said and not kept is no key either.
    for (key, key_format) in [(&b"k-1"[..], Format::Json), (b"{\"id\":1}", Format::Avro)] {
        let seen = event(key, DecodeOptions { avro: registry, key_format, ..DecodeOptions::default() });
        assert_eq!(source_id(&seen).unwrap_err().code, "key_undecodable");
    }
    let json = DecodeOptions { avro: registry, key_format: Format::Json, ..DecodeOptions::default() };
    assert_eq!(source_id(&event(b"{\"id\":1}", json)), source_id(&event(b"{ \"id\": 1 }", DecodeOptions::default())));
}

#[test]
fn an_unread_key_is_no_key_of_a_tombstone_or_of_a_record_to_park_either() {
    let key = Some(vec![0, 0, 0, 0, 9, 1, 2, 3]);
    let mut decoder = Decoder::new(DecodeOptions::default());
    let tombstone = Record { key: key.clone(), ..Record::sample(None, None) };
    assert!(decoder.tombstone_delete(&tombstone).unwrap().wire.key_unread.is_some());
    let text = r#"{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}]},"payload":{"id":"x"}}"#;
    let faulty = Record { key, ..Record::sample(None, Some(text)) };
    assert!(decoder.decode(&faulty).is_err());
    assert!(decoder.salvage(&faulty).unwrap().wire.key_unread.is_some());
}

#[test]
fn a_value_is_read_in_the_format_that_is_said() {
    let avro = Some(AvroOptions { framing: Framing::Any, ids: IdKind::Confluent });
    let decode = |value: &[u8], value_format| {
        let record = Record { value: Some(value.to_vec()), ..Record::sample(None, None) };
        Decoder::new(DecodeOptions { avro, value_format, ..DecodeOptions::default() }).decode(&record)
    };
    let framed = [0, 0, 0, 0, 9, 1];
    assert!(matches!(decode(&framed, Format::Auto), Err(Unread::Schema(_))));
    assert!(matches!(decode(&framed, Format::Avro), Err(Unread::Schema(_))));
    assert!(matches!(decode(&framed, Format::Json), Err(Unread::Fault(_))));
    let Ok(Decoded::Event(event)) = decode(&framed, Format::Bytes) else { panic!("no event") };
    assert_eq!(event.scalar, Some(Value::Bytes(framed.into())));
    let fault = decode(b"{}", Format::Avro);
    assert!(matches!(&fault, Err(Unread::Fault(fault)) if fault.code == "undecodable"), "{fault:?}");
    assert!(decode(b"{}", Format::Json).is_ok());
}

/// One number, two topics, two schemas: the reader of many topics at once must not mix them.
#[test]
fn what_a_bare_number_means_is_known_for_its_topic_alone() {
    let options = AvroOptions { framing: Framing::Any, ids: IdKind::Open };
    let mut decoder = Decoder::new(DecodeOptions { avro: Some(options), ..DecodeOptions::default() });
    let schema = |field: &str| json!({"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]});
    let record = |topic: &str| {
        let mut record = Record { value: Some(vec![0, 0, 0, 0, 7, 2]), ..Record::sample(None, None) };
        record.position.topic = topic.into();
        record
    };
    let mut seen = Vec::new();
    for topic in ["a", "b", "a", "b"] {
        let record = record(topic);
        loop {
            match decoder.decode(&record) {
                Ok(Decoded::Event(event)) => break seen.push(render::row_json(event.after.as_ref().unwrap())),
                Err(Unread::Schema(id)) => {
                    decoder.learn(&record.position.topic, id, Ok(std::sync::Arc::new(compile(&schema(topic)))));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(seen, [r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1}"#, r#"{"b":1}"#]);
}

#[test]
fn json_and_avro_of_one_row_read_the_same() {
    let connect = r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"},"field":"amount"},{"type":"float","optional":true,"field":"f"}],"optional":false}"#;
    let json_text = format!("{{\"schema\":{connect},\"payload\":{{\"id\":5,\"amount\":\"/zY=\",\"f\":1.0E10}}}}");
    let json = Document::json(json_text.as_bytes(), &mut SchemaCache::default()).unwrap();
    let avro = compile(&json!({"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal",
            "connect.parameters": {"scale": "2"}}]},
        {"name": "f", "type": ["null", "float"]}]}));
    let mut bytes = vec![10, 2, 4, 0xff, 0x36, 2];
    bytes.extend(1.0e10f32.to_le_bytes());
    let avro = avro.read(&bytes).unwrap();
    assert_eq!(render::canonical(&json.value), render::canonical(&avro.value));
    let (Kind::Struct(json), Kind::Struct(avro)) = (&json.schema.unwrap().kind, &avro.schema.unwrap().kind) else {
        panic!("rows")
    };
    assert_eq!(json, avro);
}
