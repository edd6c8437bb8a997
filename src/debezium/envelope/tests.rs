use super::*;
use crate::debezium::event::SkipReason;
use crate::debezium::source::{Position, Snapshot};

fn fault(unread: Unread) -> Fault {
    match unread {
        Unread::Fault(fault) => fault,
        other => panic!("{other:?}"),
    }
}

fn decode(record: &Record) -> Result<Decoded, Fault> {
    Decoder::new(DecodeOptions::default()).decode(record).map_err(fault)
}

fn event(record: &Record) -> ChangeEvent {
    match decode(record) {
        Ok(Decoded::Event(event)) => *event,
        other => panic!("{other:?}"),
    }
}

fn value(key: Option<&str>, value: &str) -> ChangeEvent {
    event(&Record::sample(key, Some(value)))
}

fn shown(row: &Option<Row>) -> Option<String> {
    row.as_ref().map(render::row_json)
}

const SOURCE: &str = r#"{"connector":"postgresql","name":"wh1","snapshot":"false","db":"d","schema":"public","table":"paint","txId":9001,"lsn":700100,"ts_ms":5}"#;

#[test]
fn nulls_of_every_kind_are_tombstones_and_no_bytes_are_a_fault() {
    let wrapped = r#"{"schema":{"type":"string","optional":true},"payload":null}"#;
    for bytes in [None, Some("null"), Some(r#"{"schema":null,"payload":null}"#), Some(wrapped)] {
        let decoded = decode(&Record::sample(Some("{\"id\":12}"), bytes)).unwrap();
        assert!(matches!(decoded, Decoded::Tombstone { key: Some(_) }), "{bytes:?}");
    }
    assert_eq!(decode(&Record::sample(Some("1"), Some(""))).unwrap_err().code, "empty_value");
}

#[test]
fn the_wrapper_does_not_change_an_event() {
    let payload = format!(
        r#"{{"before":null,"after":{{"id":3,"schema":"blue","payload":"text"}},"source":{SOURCE},"op":"c","ts_ms":1,"transaction":{{"id":"7:8"}}}}"#
    );
    let bare = value(Some("{\"id\":3}"), &payload);
    let schema = r#"{"type":"struct","name":"x.Envelope","fields":[]}"#;
    let forms = [
        format!("{{\"schema\":null,\"payload\":{payload}}}"),
        format!("{{\"payload\":{payload}}}"),
        format!("{{\"schema\":{schema},\"payload\":{payload}}}"),
    ];
    for form in forms {
        let wrapped = value(Some(r#"{"schema":null,"payload":{"id":3}}"#), &form);
        assert_eq!(ChangeEvent { typed: bare.typed, ..wrapped }, bare);
    }
    let source = bare.source.unwrap();
    assert_eq!((&*source.name, &*source.table, source.ts_ms), ("wh1", "paint", Some(5)));
    assert_eq!((source.snapshot, source.transaction.as_deref()), (Snapshot::No, Some("7:8")));
    assert_eq!(source.position, Position::Wal { lsn: Some(700_100), tx_id: Some(9001) });
}

#[test]
fn a_row_with_columns_named_schema_and_payload_stays() {
    let row = value(None, r#"{"schema":"blue","payload":"text","id":3,"__op":"c"}"#);
    assert_eq!((row.shape, row.op), (Shape::Flattened, Some(Operation::Create)));
    assert_eq!(shown(&row.after).unwrap(), r#"{"schema":"blue","payload":"text","id":3}"#);
}

#[test]
fn flattened_rows_with_complete_incomplete_and_no_metadata() {
    let rows = [
        (r#"{"id":1,"__op":"c","__deleted":"false"}"#, Some(Operation::Create)),
        (r#"{"id":1,"__op":"d","__deleted":"true"}"#, Some(Operation::Delete)),
        (r#"{"id":1,"__deleted":true}"#, Some(Operation::Delete)),
        (r#"{"id":1,"__deleted":"true","__op":"u"}"#, Some(Operation::Delete)),
        (r#"{"id":1,"__deleted":"false"}"#, Some(Operation::Read)),
        (r#"{"id":1,"__op":"r","__deleted":"false"}"#, Some(Operation::Read)),
        (r#"{"id":1,"__table":"t","__source_ts_ms":1,"__lsn":5}"#, Some(Operation::Read)),
        (r#"{"id":1}"#, None),
    ];
    for (text, op) in rows {
        let event = value(None, text);
        assert_eq!(event.op, op, "{text}");
        assert_eq!(event.shape, if op.is_some() { Shape::Flattened } else { Shape::Plain });
        let (there, empty) =
            if op == Some(Operation::Delete) { (&event.before, &event.after) } else { (&event.after, &event.before) };
        assert_eq!((shown(there).as_deref(), shown(empty)), (Some("{\"id\":1}"), None), "{text}");
    }
    let by_header = event(&Record::sample(None, Some("{\"id\":5}")).with_header("__op", "d"));
    assert_eq!((by_header.op, shown(&by_header.before).as_deref()), (Some(Operation::Delete), Some("{\"id\":5}")));
}

#[test]
fn flattened_coordinates_come_from_fields_headers_and_context() {
    let flat = r#"{"id":1,"__op":"u","__table":"orders","__source_file":"b.000001","__source_pos":9,"__source_row":2,"__source_ts_ms":7,"__ts_ms":8}"#;
    let record = Record::sample(None, Some(flat))
        .with_header("__debezium.context.connectorName", "mariadb")
        .with_header("__debezium.context.connectorLogicalName", "m")
        .with_header("__source_server_id", "3");
    let source = event(&record).source.unwrap();
    assert_eq!((&*source.connector, &*source.name, &*source.table, source.ts_ms), ("mariadb", "m", "orders", Some(7)));
    let position = Position::Binlog { server_id: 3, gtid: None, file: "b.000001".into(), pos: 9, row: 2 };
    assert_eq!(source.position, position);
    assert_eq!(value(None, "{\"id\":1,\"__op\":\"c\"}").source, None);
    let read = event(&Record::sample(None, Some("{\"id\":1,\"__op\":\"r\",\"__lsn\":5}")));
    assert_eq!(read.source.unwrap().snapshot, Snapshot::Yes);
}

#[test]
fn outbox_payloads_are_told_by_their_id_header() {
    let outbox = event(&Record::sample(Some("\"1\""), Some("{\"orderId\":1}")).with_header("id", "e-1"));
    assert_eq!(
        (outbox.shape, outbox.op, shown(&outbox.after).as_deref()),
        (Shape::Outbox, None, Some("{\"orderId\":1}"))
    );
    let envelope = format!("{{\"op\":\"c\",\"after\":{{\"id\":1}},\"source\":{SOURCE}}}");
    assert_eq!(event(&Record::sample(None, Some(&envelope)).with_header("id", "e-1")).shape, Shape::Envelope);
    let likeness = "{\"op\":\"c\",\"after\":{\"id\":1}}";
    assert_eq!(event(&Record::sample(None, Some(likeness)).with_header("id", "e-1")).shape, Shape::Outbox);
    assert_eq!(value(None, likeness).shape, Shape::Envelope);
    for (text, scalar) in
        [("12", Value::Int(12)), ("\"0012\"", Value::Text("0012".into())), ("0012", Value::Text("0012".into()))]
    {
        assert_eq!(event(&Record::sample(None, Some(text)).with_header("id", "e-1")).scalar, Some(scalar));
    }
    for text in ["plain words", "{\"a\":", "0012"] {
        assert_eq!(decode(&Record::sample(None, Some(text))).unwrap_err().code, "undecodable");
    }
}

#[test]
fn an_undecodable_key_does_not_spoil_a_value() {
    for (key, read) in [
        (&b"order-7"[..], Value::Text("order-7".into())),
        (b"\xff\x00", Value::Bytes([255, 0].into())),
        (b"7", Value::Int(7)),
        (b"", Value::Text("".into())),
    ] {
        let mut record = Record::sample(None, Some("{\"a\":1}"));
        record.key = Some(key.to_vec());
        assert_eq!(event(&record).key, Some(read));
    }
}

#[test]
fn a_wrapped_null_key_is_no_key() {
    for key in [None, Some("null"), Some(r#"{"schema":null,"payload":null}"#)] {
        let event = value(key, &format!("{{\"op\":\"c\",\"after\":{{\"n\":1}},\"source\":{SOURCE}}}"));
        assert_eq!((event.key, event.wire.key), (None, None));
        assert!(event.wire.row.is_some());
    }
}

#[test]
fn deletes_need_a_key_or_a_before() {
    let delete = |key: Option<&str>, before: &str| {
        decode(&Record::sample(
            key,
            Some(&format!("{{\"op\":\"d\",\"before\":{before},\"after\":null,\"source\":{SOURCE}}}")),
        ))
    };
    assert_eq!(delete(None, "null").unwrap_err().code, "delete_without_key");
    assert!(delete(None, "{\"id\":1}").is_ok());
    let Ok(Decoded::Event(by_key)) = delete(Some("{\"id\":32}"), "null") else { panic!() };
    assert_eq!(by_key.field("id"), Some(&Value::Int(32)));
    assert_eq!(by_key.before, None);
}

#[test]
fn before_may_be_what_the_origin_happened_to_log() {
    let schema = r#"{"type":"struct","fields":[{"type":"struct","optional":true,"field":"before","fields":[{"type":"int64","field":"id"},{"type":"string","field":"name"}]},{"type":"struct","optional":true,"field":"after","fields":[{"type":"int64","field":"id"},{"type":"string","field":"name"}]}]}"#;
    let wrapped = |before: &str, after: &str, op: &str| {
        format!(
            r#"{{"schema":{schema},"payload":{{"before":{before},"after":{after},"op":"{op}","source":{SOURCE}}}}}"#
        )
    };
    let delete = value(Some("{\"id\":31}"), &wrapped(r#"{"id":31,"name":null}"#, "null", "d"));
    assert_eq!(shown(&delete.before).unwrap(), r#"{"id":31,"name":null}"#);
    let create = Record::sample(Some("{\"id\":3}"), Some(&wrapped("null", r#"{"id":3,"name":null}"#, "c")));
    let fault = decode(&create).unwrap_err();
    assert_eq!((fault.code, fault.detail.contains("name")), ("null_in_required", true));
    let salvaged = Decoder::new(DecodeOptions::default()).salvage(&create).unwrap();
    assert_eq!(salvaged.field("id"), Some(&Value::Int(3)));
}

#[test]
fn states_without_an_after_are_faults() {
    for op in ["c", "r", "u"] {
        let text = format!("{{\"op\":\"{op}\",\"before\":null,\"after\":null,\"source\":{SOURCE}}}");
        assert_eq!(decode(&Record::sample(Some("1"), Some(&text))).unwrap_err().code, "no_after");
    }
    let truncate = value(None, &format!("{{\"op\":\"t\",\"before\":null,\"after\":null,\"source\":{SOURCE}}}"));
    assert_eq!((truncate.op, truncate.row()), (Some(Operation::Truncate), None));
    let unknown = format!("{{\"op\":\"x\",\"before\":null,\"after\":{{}},\"source\":{SOURCE}}}");
    assert_eq!(decode(&Record::sample(None, Some(&unknown))).unwrap_err().code, "unknown_operation");
}

#[test]
fn halves_of_a_key_change_name_each_other() {
    let record = |op: &str, header: &str, key: &str| {
        let rows = if op == "c" { "\"after\":{\"id\":3}" } else { "\"before\":{\"id\":2},\"after\":null" };
        Record::sample(Some("{\"id\":1}"), Some(&format!("{{\"op\":\"{op}\",{rows},\"source\":{SOURCE}}}")))
            .with_header(header, key)
    };
    let id = |id| Value::Struct([("id".into(), Value::Int(id))].into_iter().collect());
    let created = event(&record("c", "__debezium.oldkey", "{\"id\":2}"));
    assert_eq!(created.key_change, Some(KeyChange::CreatedFrom(id(2))));
    let wrapped = r#"{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":3}}"#;
    let deleted = event(&record("d", "__debezium.newkey", wrapped));
    assert_eq!(deleted.key_change, Some(KeyChange::MovedTo(id(3))));
    assert_eq!(event(&record("c", "__debezium.newkey", "{\"id\":2}")).key_change, None);
}

#[test]
fn logical_messages_are_prefix_and_bytes() {
    let text = format!(r#"{{"op":"m","source":{SOURCE},"message":{{"prefix":"audit","content":"aGVsbG8="}}}}"#);
    let message = value(Some("{\"prefix\":\"audit\"}"), &text);
    assert_eq!(shown(&message.after).unwrap(), r#"{"prefix":"audit","content":"aGVsbG8="}"#);
    assert_eq!(message.field("content"), Some(&Value::Bytes((*b"hello").into())));
}

#[test]
fn unchanged_toast_is_unavailable_with_and_without_a_schema() {
    let text = format!(
        r#"{{"op":"u","before":null,"after":{{"id":77,"manual":"__debezium_unavailable_value","tags":["__debezium_unavailable_value"],"note":"the words __debezium_unavailable_value inside"}},"source":{SOURCE}}}"#
    );
    let row = value(Some("{\"id\":77}"), &text).after.unwrap();
    assert_eq!(render::unavailable(&row).collect::<Vec<_>>(), ["manual", "tags"]);
    let mut other = Decoder::new(DecodeOptions { placeholder: Some("gone".into()), ..DecodeOptions::default() });
    let record =
        Record::sample(None, Some(r#"{"op":"u","after":{"a":"gone","b":"__debezium_unavailable_value"},"source":{}}"#));
    let Ok(Decoded::Event(event)) = other.decode(&record) else { panic!() };
    assert_eq!(render::unavailable(event.row().unwrap()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn records_of_debezium_itself_are_skipped() {
    let mut heartbeat = Record::sample(None, Some("not even json"));
    heartbeat.position.topic = "__debezium-heartbeat.wh1".into();
    assert_eq!(decode(&heartbeat), Ok(Decoded::Skip(SkipReason::Heartbeat)));
    let transaction = r#"{"status":"END","id":"597:700300","ts_ms":2,"event_count":0,"data_collections":[]}"#;
    assert_eq!(decode(&Record::sample(None, Some(transaction))), Ok(Decoded::Skip(SkipReason::Transaction)));
}

#[test]
fn a_tombstone_can_be_a_delete() {
    let mut decoder = Decoder::new(DecodeOptions::default());
    let record = Record::sample(Some("{\"id\":12}"), None).with_header("__table", "t").with_header("__lsn", "7");
    let delete = decoder.tombstone_delete(&record).unwrap();
    assert_eq!((delete.op, delete.field("id")), (Some(Operation::Delete), Some(&Value::Int(12))));
    assert_eq!(delete.source.unwrap().position, Position::Wal { lsn: Some(7), tx_id: None });
    assert_eq!(fault(decoder.tombstone_delete(&Record::sample(None, None)).unwrap_err()).code, "delete_without_key");
}

/// As the header converters write a key that is a struct.
#[test]
fn keys_in_headers_are_read_as_every_converter_writes_them() {
    let schema = r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"a"},{"type":"string","optional":true,"field":"b"}]}"#;
    let key = Value::Struct([("a".into(), Value::Int(7)), ("b".into(), Value::Text("x".into()))].into_iter().collect());
    for header in [
        r#"{"a":7,"b":"x"}"#.to_owned(),
        r#"{"schema":null,"payload":{"a":7,"b":"x"}}"#.to_owned(),
        format!(r#"{{"schema":{schema},"payload":{{"a":7,"b":"x"}}}}"#),
    ] {
        for (op, name, rows) in [
            ("c", "__debezium.oldkey", "\"before\":null,\"after\":{\"a\":8,\"b\":\"x\"}"),
            ("d", "__debezium.newkey", "\"before\":{\"a\":8,\"b\":\"x\"},\"after\":null"),
        ] {
            let record = Record::sample(
                Some(r#"{"a":8,"b":"x"}"#),
                Some(&format!("{{{rows},\"op\":\"{op}\",\"source\":{SOURCE}}}")),
            );
            let change = event(&record.with_header(name, header.as_str())).key_change;
            let expected = match op {
                "c" => KeyChange::CreatedFrom(key.clone()),
                _ => KeyChange::MovedTo(key.clone()),
            };
            assert_eq!(change, Some(expected), "{header}");
        }
    }
    // What is no key says nothing; the change itself is as good as ever.
    let record =
        Record::sample(Some("1"), Some(&format!("{{\"op\":\"c\",\"after\":{{\"id\":1}},\"source\":{SOURCE}}}")));
    assert_eq!(event(&record.with_header("__debezium.oldkey", "Struct{a=7")).key_change, None);
}

/// `SimpleHeaderConverter` writes a key without its schema, and a decimal as the number that it is.
#[test]
fn a_key_in_a_header_has_the_types_of_the_records_key() {
    let decimal =
        r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"no"}"#;
    let day = r#"{"type":"int32","name":"io.debezium.time.Date","field":"day"}"#;
    let of = |header: &str| {
        let key = format!(
            r#"{{"schema":{{"type":"struct","fields":[{decimal},{day}]}},"payload":{{"no":"BMw=","day":20786}}}}"#
        );
        let value = format!(r#"{{"op":"d","before":null,"after":null,"source":{SOURCE}}}"#);
        let deleted = event(&Record::sample(Some(&key), Some(&value)).with_header("__debezium.newkey", header));
        (deleted.key, deleted.key_change)
    };
    let typed = |no: &str, day: &str| {
        let fields = [("no".into(), Value::Decimal(no.into())), ("day".into(), Value::Date(day.into()))];
        Value::Struct(fields.into_iter().collect())
    };
    let (key, change) = of(r#"{"no":12.30,"day":20787}"#);
    assert_eq!(key, Some(typed("12.28", "2026-11-29")));
    assert_eq!(change, Some(KeyChange::MovedTo(typed("12.30", "2026-11-30"))));
    // No key of that schema.
    assert_eq!(of(r#"{"no":12.30,"day":"tomorrow"}"#).1, None);
}

#[test]
fn documents_of_mongodb_are_rows_and_without_one_it_is_said_what_to_set() {
    let source =
        r#"{"connector":"mongodb","name":"m","snapshot":"false","db":"shop","collection":"orders","ord":3,"ts_ms":5}"#;
    let of = |op: &str, before: &str, after: &str| {
        Record::sample(
            Some(r#"{"id":"{\"$oid\":\"65\"}"}"#),
            Some(&format!(
                r#"{{"before":{before},"after":{after},"updateDescription":{{"updatedFields":"{{}}"}},"op":"{op}","source":{source}}}"#
            )),
        )
    };
    let document = r#""{\"_id\":{\"$oid\":\"65\"},\"n\":12345678901234567890}""#;
    let created = event(&of("c", "null", document));
    assert_eq!(shown(&created.after).unwrap(), r#"{"_id":{"$oid":"65"},"n":12345678901234567890}"#);
    let source = created.source.unwrap();
    assert_eq!((&*source.db, &*source.table), ("shop", "orders"));
    assert_eq!(event(&of("d", "null", "null")).op, Some(Operation::Delete));
    let fault = decode(&of("u", "null", "null")).unwrap_err();
    assert!(fault.code == "no_after" && fault.detail.contains("capture.mode"), "{fault}");
    for broken in ["\"{\"", "\"[1]\"", "7"] {
        assert_eq!(decode(&of("c", "null", broken)).unwrap_err().code, "type_mismatch");
    }
}

const CLOUD: &str = r#""id":"e-1","source":"/debezium/postgresql/wh1","specversion":"1.0","type":"io.debezium.connector.postgresql.DataChangeEvent","time":"2031-03-09T04:05:06.123Z""#;

/// An update by its fields is no row, and no delete either.
#[test]
fn an_update_that_names_its_fields_alone_is_parked_with_what_to_set() {
    let source = r#"{"connector":"mongodb","name":"m","db":"d","collection":"c","ord":1,"ts_ms":1}"#;
    let described = r#"{"removedFields":null,"updatedFields":"{\"name\": \"x\"}","truncatedArrays":null}"#;
    let update = |after: &str| {
        let text =
            format!(r#"{{"op":"u","before":null,"after":{after},"updateDescription":{described},"source":{source}}}"#);
        Record::sample(Some(r#"{"id":"1"}"#), Some(&text))
    };
    let fault = decode(&update("null")).unwrap_err();
    assert_eq!(fault.code, "no_after");
    assert!(fault.detail.contains("updateDescription") && fault.detail.contains("capture.mode"), "{fault}");
    // Its id is known all the same.
    let salvaged = Decoder::new(DecodeOptions::default()).salvage(&update("null")).unwrap();
    assert_eq!((salvaged.op, salvaged.after), (Some(Operation::Update), None));
    let full = event(&update(r#""{\"_id\": 1, \"name\": \"x\"}""#));
    assert_eq!(shown(&full.after).unwrap(), r#"{"_id":1,"name":"x"}"#);
}

#[test]
fn avro_inside_a_cloud_event_is_told_from_a_plain_value() {
    let text = r#"{"id":"1","source":"/debezium/postgresql/p","specversion":"1.0","datacontenttype":"application/avro",
        "type":"io.debezium.connector.postgresql.DataChangeEvent","iodebeziumop":"c","data":"AAAAAAEAAgICAg=="}"#;
    let fault = decode(&Record::sample(None, Some(text))).unwrap_err();
    assert!(fault.code == "undecodable" && fault.detail.contains("data.serializer.type=json"), "{fault}");
    // Somebody else's is a value like any other.
    let foreign = text
        .replace("io.debezium.connector.postgresql.DataChangeEvent", "org.example.Paid")
        .replace("iodebeziumop", "op");
    assert_eq!(event(&Record::sample(None, Some(&foreign))).shape, Shape::Plain);
}

#[test]
fn a_cloud_event_gives_its_change_with_source_and_attributes() {
    let extensions = r#""iodebeziumop":"u","iodebeziumconnector":"postgresql","iodebeziumname":"wh1","iodebeziumsnapshot":"false","iodebeziumdb":"depot","iodebeziumschema":"public","iodebeziumtable":"load","iodebeziumtxid":"9100","iodebeziumlsn":"700900","iodebeziumtsms":"5""#;
    let cloud =
        value(Some("1"), &format!(r#"{{{CLOUD},{extensions},"data":{{"before":null,"after":{{"id":7,"n":"a"}}}}}}"#));
    assert_eq!((cloud.shape, cloud.op), (Shape::Envelope, Some(Operation::Update)));
    let bare = r#"{"connector":"postgresql","name":"wh1","snapshot":"false","db":"depot","schema":"public","table":"load","txId":9100,"lsn":700900,"ts_ms":5}"#;
    let envelope =
        value(Some("1"), &format!(r#"{{"before":null,"after":{{"id":7,"n":"a"}},"source":{bare},"op":"u"}}"#));
    assert_eq!(cloud.source, envelope.source);
    assert_eq!((&cloud.after, &cloud.wire), (&envelope.after, &envelope.wire));
    assert_eq!(cloud.field("id"), Some(&Value::Int(7)));
    for (path, text) in [("id", "e-1"), ("iodebeziumop", "u"), ("data.after.id", "7"), ("n", "a")] {
        assert_eq!(cloud.value_at(path).unwrap().as_text().unwrap(), text, "{path}");
    }
    assert_eq!(cloud.value_at("data.before.id"), None);
}

#[test]
fn a_cloud_event_without_extensions_says_by_its_states_what_happened() {
    for (data, op) in [
        (r#"{"before":null,"after":{"id":1}}"#, Some(Operation::Update)),
        (r#"{"before":{"id":1},"after":{"id":1}}"#, Some(Operation::Update)),
        (r#"{"before":{"id":1},"after":null}"#, Some(Operation::Delete)),
        (
            r#"{"schema":{"type":"struct","fields":[]},"payload":{"before":{"id":1},"after":null}}"#,
            Some(Operation::Delete),
        ),
        (r#"{"op":"c","before":null,"after":{"id":1}}"#, Some(Operation::Create)),
        // About something else.
        (r#"{"orderId":1}"#, None),
        (r#"{"before":"noon","after":"one"}"#, None),
        (r#""text""#, None),
        ("null", None),
        ("[1]", None),
    ] {
        let event = value(Some("1"), &format!("{{{CLOUD},\"data\":{data}}}"));
        assert_eq!(event.op, op, "{data}");
        assert_eq!(event.value_at("id"), Some(&Value::Text("e-1".into())));
        assert_eq!(event.shape == Shape::Plain, op.is_none(), "{data}");
    }
    let other = value(
        None,
        r#"{"id":"e-1","specversion":"1.0","type":"OrderPlaced","source":"/shop","data":{"after":{"id":1}}}"#,
    );
    assert_eq!((other.op, other.value_at("data.after.id")), (None, Some(&Value::Int(1))));
}

#[test]
fn marks_of_a_snapshot_do_not_change_what_a_read_is() {
    for mark in ["true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental"] {
        let source = SOURCE.replace("\"false\"", &format!("\"{mark}\"")).replace("700100", "null");
        let read = value(
            Some("{\"id\":6}"),
            &format!("{{\"before\":null,\"after\":{{\"id\":6}},\"op\":\"r\",\"source\":{source}}}"),
        );
        assert!(read.is_snapshot_read() && read.wire.row.is_some(), "{mark}");
        let expected = if mark == "incremental" { Snapshot::Incremental } else { Snapshot::Yes };
        assert_eq!(read.source.unwrap().snapshot, expected);
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let seeds = [
        format!(
            r#"{{"schema":{{"type":"struct","fields":[]}},"payload":{{"op":"u","before":null,"after":{{"id":1}},"source":{SOURCE}}}}}"#
        ),
        r#"{"op":"m","message":{"prefix":1},"source":{}}"#.to_owned(),
        format!(
            r#"{{{CLOUD},"iodebeziumop":"c","data":{{"schema":null,"payload":{{"before":null,"after":{{"id":1}}}}}}}}"#
        ),
        r#"{"id":1,"__op":"d","__deleted":"true","__lsn":"x"}"#.to_owned(),
    ];
    let mut state = 7u64;
    for seed in seeds {
        for _ in 0..3000 {
            let mut bytes = seed.clone().into_bytes();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = b"{}[]\":,0a\\\xffnu-"[(state >> 20) as usize % 14];
            }
            let record = Record { key: Some(bytes.clone()), value: Some(bytes), ..Record::sample(None, None) };
            let _ = decode(&record);
            let _ = Decoder::new(DecodeOptions::default()).salvage(&record);
        }
    }
}
