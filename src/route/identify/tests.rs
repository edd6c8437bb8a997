use super::*;
use crate::debezium::envelope::{DecodeOptions, Decoder};
use crate::debezium::event::Decoded;
use crate::route::{ColumnType, IdFormat, Matcher};

const UUID: &str = "7b0c8f52-3d0e-4e4b-9a51-0f2d5c6a7e90";
const RAW: [u8; 16] = [0x7b, 0x0c, 0x8f, 0x52, 0x3d, 0x0e, 0x4e, 0x4b, 0x9a, 0x51, 0x0f, 0x2d, 0x5c, 0x6a, 0x7e, 0x90];

fn header(name: &str) -> IdRule {
    IdRule::Place(Place::Header(name.into()))
}

fn value(path: &str) -> IdRule {
    IdRule::Place(Place::Value(path.into()))
}

fn key(path: Option<&str>) -> IdRule {
    IdRule::Place(Place::Key(path.map(Into::into)))
}

fn route(rules: &[IdRule]) -> Route {
    Route { message_id: rules.to_vec(), ..Route::default() }
}

fn read(route: &Route, record: &Record) -> Result<Message, Box<Unusable>> {
    match Decoder::new(DecodeOptions::default()).decode(record) {
        Ok(Decoded::Event(event)) => examine(route, 0, record, *event),
        other => panic!("{other:?}"),
    }
}

fn id(route: &Route, record: &Record) -> Result<String, &'static str> {
    read(route, record).map(|message| message.id.to_string()).map_err(|unusable| unusable.fault.code)
}

fn with_id(bytes: impl Into<Vec<u8>>) -> Record {
    Record::sample(Some("{\"k\":7}"), Some("{\"a\":1}")).with_header("id", bytes)
}

#[test]
fn header_encodings_meet_in_one_id() {
    let wrapped = format!("{{\"schema\": {{\"type\": \"string\", \"optional\": false}}, \"payload\": \"{UUID}\"}}");
    for format in [IdFormat::Text, IdFormat::Uuid, IdFormat::UuidBytes] {
        let route = Route { id_format: format, ..route(&[header("id")]) };
        for bytes in [UUID.to_owned(), format!("\"{UUID}\""), wrapped.clone()] {
            assert_eq!(id(&route, &with_id(bytes)).as_deref(), Ok(UUID));
        }
    }
}

#[test]
fn uuid_bytes_are_read_only_where_configured() {
    let base64 = "ewyPUj0OTkuaUQ8tXGp+kA==";
    let bytes_wrapped = format!("{{\"schema\":{{\"type\":\"bytes\"}},\"payload\":\"{base64}\"}}");
    let forms = [RAW.to_vec(), format!("\"{base64}\"").into_bytes(), bytes_wrapped.into_bytes()];
    for form in forms {
        assert_eq!(id(&route(&[header("id")]), &with_id(form.clone())), Err("id_not_text"));
        let configured = Route { id_format: IdFormat::UuidBytes, ..route(&[header("id")]) };
        assert_eq!(id(&configured, &with_id(form)).as_deref(), Ok(UUID));
    }
    let configured = Route { id_format: IdFormat::UuidBytes, ..route(&[header("id")]) };
    assert_eq!(id(&configured, &with_id("short")), Err("id_not_uuid"));
}

#[test]
fn letter_case_is_folded_only_for_uuids() {
    let upper = UUID.to_uppercase();
    assert_eq!(id(&route(&[header("id")]), &with_id(upper.clone())).as_deref(), Ok(&*upper));
    let folded = Route { id_format: IdFormat::Uuid, ..route(&[header("id")]) };
    for form in [upper, UUID.replace('-', ""), format!("{{{UUID}}}"), format!("urn:uuid:{UUID}")] {
        assert_eq!(id(&folded, &with_id(form)).as_deref(), Ok(UUID));
    }
    for form in [
        "x",
        "7b0c8f52-3d0e-4e4b-9a51-0f2d5c6a7e9",
        "7b0c8f523d0e-4e4b-9a51-0f2d-5c6a7e90",
        "+b0c8f523d0e4e4b9a510f2d5c6a7e90",
    ] {
        assert_eq!(id(&folded, &with_id(form)), Err("id_not_uuid"), "{form}");
    }
}

#[test]
fn opaque_ids_are_kept_byte_for_byte() {
    let mut seen = std::collections::HashSet::new();
    for text in ["ev_4qDz", "ev_4qdz", "ev_4qDz ", "ev_4qDz\t", "\u{e9}v_4qDz", "007", "7", "{\"a\":1}", "a\"b"] {
        let id = id(&route(&[header("id")]), &with_id(text)).unwrap();
        assert_eq!(id, text);
        assert!(seen.insert(id));
    }
}

#[test]
fn unusable_ids_are_named() {
    let route = route(&[header("id")]);
    let long = "x".repeat(1001);
    for (bytes, code) in [
        (&b""[..], "id_empty"),
        (b"\"\"", "id_empty"),
        (b" \t", "id_blank"),
        ("\u{3000}".as_bytes(), "id_blank"),
        (b"\xff\x80", "id_not_text"),
        (b"a\0b", "id_not_text"),
        (b"\"a\\u0000b\"", "id_not_text"),
        (long.as_bytes(), "id_too_long"),
        (b"null", "id_missing"),
    ] {
        assert_eq!(id(&route, &with_id(bytes)), Err(code));
    }
    assert!(id(&route, &with_id("x".repeat(1000))).is_ok());
    assert_eq!(id(&route, &Record::sample(None, Some("{}"))), Err("id_missing"));
}

#[test]
fn several_id_headers_must_agree() {
    let route = route(&[header("id")]);
    assert_eq!(id(&route, &with_id("a").with_header("id", "b")), Err("id_ambiguous"));
    assert_eq!(id(&route, &with_id("a").with_header("id", "\"a\"")).as_deref(), Ok("a"));
    let mut null = with_id("a");
    null.headers.push(crate::record::Header { name: "id".into(), value: None });
    assert_eq!(id(&route, &null).as_deref(), Ok("a"));
}

#[test]
fn rules_are_tried_in_order_and_nothing_is_made_up() {
    let rules = route(&[header("id"), value("call.id"), key(Some("k")), key(None)]);
    let record = |key: Option<&str>, value: &str| Record::sample(key, Some(value));
    assert_eq!(
        id(&rules, &record(Some("{\"k\":7}"), r#"{"call":{"id":"c"}}"#).with_header("id", "h")).as_deref(),
        Ok("h")
    );
    assert_eq!(id(&rules, &record(Some("{\"k\":7}"), r#"{"call":{"id":"c"}}"#)).as_deref(), Ok("c"));
    assert_eq!(id(&rules, &record(Some("{\"k\":7}"), r#"{"call":{"id":null}}"#)).as_deref(), Ok("7"));
    assert_eq!(id(&rules, &record(Some("\"s\""), "{}")).as_deref(), Ok("s"));
    assert_eq!(id(&rules, &record(None, "{}")), Err("id_missing"));
    // A place that is present but bad is not passed over.
    assert_eq!(id(&rules, &record(Some("1"), "{}").with_header("id", "")), Err("id_empty"));
    assert_eq!(id(&rules, &record(Some("1"), r#"{"call":{"id":[1]}}"#)), Err("id_not_text"));
}

#[test]
fn an_id_that_the_connector_did_not_send_is_not_replaced() {
    let record = Record::sample(Some("1"), Some(r#"{"id":"__debezium_unavailable_value"}"#));
    assert_eq!(id(&route(&[value("id"), key(None)]), &record), Err("id_missing"));
}

#[test]
fn numbers_are_ids_by_their_digits() {
    for digits in ["18446744073709551615", "42", "-1", "1.0", "1.00", "1e3"] {
        assert_eq!(
            id(&route(&[value("id")]), &Record::sample(None, Some(&format!("{{\"id\":{digits}}}")))).as_deref(),
            Ok(digits)
        );
    }
}

#[test]
fn derived_ids_say_so() {
    let text =
        r#"{"op":"c","after":{"id":1},"source":{"connector":"postgresql","name":"p","table":"t","lsn":5,"txId":6}}"#;
    let message = read(&route(&[header("id"), IdRule::Source]), &Record::sample(Some("1"), Some(text))).unwrap();
    assert!(message.derived_id && message.id.as_str().starts_with("s1:"));
    let named =
        read(&route(&[header("id"), IdRule::Source]), &Record::sample(Some("1"), Some(text)).with_header("id", "x"));
    assert!(!named.unwrap().derived_id);
    assert_eq!(id(&route(&[IdRule::Source]), &Record::sample(None, Some("{}"))), Err("no_safe_id"));
}

#[test]
fn an_id_from_outside_obeys_the_same_rules() {
    let record = Record::sample(None, Some("{\"a\":1}"));
    let Ok(Decoded::Event(event)) = Decoder::new(DecodeOptions::default()).decode(&record) else { panic!() };
    let given = usable_id("given", 10).unwrap();
    let message = examine_with_id(&route(&[header("id")]), 3, &record, *event, given).unwrap();
    assert_eq!((message.id.as_str(), message.derived_id, message.route), ("given", false, 3));
    for (text, code) in [("", "id_empty"), (" ", "id_blank"), ("a\0", "id_not_text"), ("12345678901", "id_too_long")] {
        assert_eq!(usable_id(text, 10).unwrap_err().code, code);
    }
}

#[test]
fn deletes_are_identified_by_before_or_key() {
    let rules = route(&[value("id")]);
    let delete = |before: &str| format!(r#"{{"op":"d","before":{before},"after":null,"source":{{}}}}"#);
    assert_eq!(id(&rules, &Record::sample(Some("{\"id\":3}"), Some(&delete("{\"id\":4}")))).as_deref(), Ok("4"));
    assert_eq!(id(&rules, &Record::sample(Some("{\"id\":3}"), Some(&delete("null")))).as_deref(), Ok("3"));
}

#[test]
fn correlation_and_source_app_are_optional_but_not_damaged() {
    let tagged = Route {
        correlation_id: Some(Place::Value("order".into())),
        source_app: Some(Place::Header("app".into())),
        ..route(&[header("id")])
    };
    let record =
        |value: &str, app: &[u8]| Record::sample(None, Some(value)).with_header("id", "i").with_header("app", app);
    let message = read(&tagged, &record(r#"{"order":44}"#, b"\"shop\"")).unwrap();
    assert_eq!((message.correlation_id.as_deref(), message.source_app.as_deref()), (Some("44"), Some("shop")));
    let message = read(&tagged, &record(r#"{"order":null}"#, b"")).unwrap();
    assert_eq!((message.correlation_id, message.source_app), (None, None));
    let unusable = read(&tagged, &record(r#"{"order":[1]}"#, b"shop")).unwrap_err();
    assert_eq!((unusable.fault.code, unusable.source_app.as_deref()), ("correlation_id_not_text", Some("shop")));
    assert_eq!(unusable.id.unwrap().as_str(), "i");
    assert_eq!(read(&tagged, &record("{}", b"\xff")).unwrap_err().fault.code, "source_app_not_text");
}

#[test]
fn double_encoding_is_undone_only_where_configured() {
    let record = |text: &str| Record::sample(None, Some(text)).with_header("id", "i");
    let bare = route(&[header("id")]);
    let undo = Route { double_encoded: true, ..bare.clone() };
    let twice = r#""{\"orderId\": 44}""#;
    assert_eq!(id(&bare, &record(twice)), Err("type_mismatch"));
    let message = read(&undo, &record(twice)).unwrap();
    assert_eq!(message.event.field("orderId"), Some(&Value::Int(44)));
    assert_eq!(message.digest, read(&undo, &record(r#"{"orderId":44}"#)).unwrap().digest);
    assert_eq!(read(&bare, &record("\"0012\"")).unwrap().event.scalar, Some(Value::Text("0012".into())));
    assert_eq!(read(&bare, &record("\"plain words\"")).unwrap().event.scalar, Some(Value::Text("plain words".into())));
    for (route, text, code) in [(&bare, "\"\"", "empty_value"), (&undo, "\"plain\"", "type_mismatch")] {
        let unusable = read(route, &record(text)).unwrap_err();
        assert_eq!((unusable.fault.code, unusable.id.unwrap().as_str()), (code, "i"));
    }
}

#[test]
fn a_logical_message_is_its_json_content() {
    let route = Route { matcher: Matcher { prefix: Some("p".into()), ..Matcher::default() }, ..route(&[value("id")]) };
    let record = |content: &str| {
        let text = format!(r#"{{"op":"m","source":{{}},"message":{{"prefix":"p","content":"{content}"}}}}"#);
        Record::sample(Some("{\"prefix\":\"p\"}"), Some(&text))
    };
    assert_eq!(id(&route, &record("eyJpZCI6IngtMSJ9")).as_deref(), Ok("x-1"));
    assert_eq!(id(&route, &record("aGVsbG8=")), Err("id_missing"));
}

#[test]
fn declared_columns_are_typed_and_a_misfit_keeps_its_id() {
    let mirror = Route {
        columns: vec![("amount".into(), ColumnType::Decimal { precision: 12, scale: 2 })],
        ..route(&[key(Some("id"))])
    };
    let record = |amount: &str| {
        Record::sample(
            Some("{\"id\":9}"),
            Some(&format!(r#"{{"op":"u","before":{{"amount":"?"}},"after":{{"amount":{amount}}},"source":{{}}}}"#)),
        )
    };
    let message = read(&mirror, &record("\"BBo=\"")).unwrap();
    assert_eq!(message.event.field("amount"), Some(&Value::Decimal("10.50".into())));
    let unusable = read(&mirror, &record("true")).unwrap_err();
    assert!(unusable.fault.code == "type_mismatch" && unusable.fault.detail.contains("amount"));
    assert_eq!(unusable.id.unwrap().as_str(), "9");
}

#[test]
fn a_faulty_record_is_named_by_what_is_left_of_it() {
    let record = Record::sample(None, Some("{broken")).with_header("id", "h-1");
    let fault = Fault::new("undecodable", "not json");
    let unusable = examine_faulty(&route(&[header("id"), value("id")]), &record, None, fault.clone());
    assert_eq!(unusable.id.unwrap().as_str(), "h-1");
    for first in [value("id"), key(None), IdRule::Source] {
        let unknown = examine_faulty(&route(&[first, header("id")]), &record, None, fault.clone());
        assert_eq!(unknown.id, None);
    }
    let schema = r#"{"type":"struct","fields":[{"type":"int64","field":"id"},{"type":"int64","field":"n"}]}"#;
    let wrapped = Record::sample(None, Some(&format!(r#"{{"schema":{schema},"payload":{{"id":5,"n":null}}}}"#)));
    let salvaged = Decoder::new(DecodeOptions::default()).salvage(&wrapped);
    let by_path = |path: &str| examine_faulty(&route(&[value(path)]), &wrapped, salvaged.as_ref(), fault.clone()).id;
    assert_eq!(by_path("id").unwrap().as_str(), "5");
    assert_eq!(by_path("n"), None);
}
