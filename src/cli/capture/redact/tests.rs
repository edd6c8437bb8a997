use super::*;

fn redacted(targets: &[&str], key: Option<&str>, value: &str) -> Result<Record, String> {
    let targets: Vec<Target> = targets.iter().map(|text| Target::parse(text).unwrap()).collect();
    let mut record = Record::sample(key, Some(value)).with_header("mail", "ann@example.org").with_header("id", "7");
    Redactor::new(&targets).redact(&mut record).map(|()| record)
}

/// The stand-ins are random: each becomes `R`.
fn value(targets: &[&str], text: &str) -> String {
    let record = redacted(targets, None, text).unwrap();
    let text = String::from_utf8(record.value.unwrap()).unwrap();
    regex::Regex::new("redacted-[0-9a-f]{8}").unwrap().replace_all(&text, "R").into_owned()
}

#[test]
fn stand_ins_have_the_type_of_what_they_stand_for_and_the_rest_keeps_its_digits_and_order() {
    let text =
        r#"{ "z":18446744073709551615.10, "email":"ann@example.org", "age":41, "ok":true, "none":null, "a":1e400 }"#;
    assert_eq!(
        value(&["email", "age", "ok", "none"], text),
        r#"{"z":18446744073709551615.10,"email":"R","age":0,"ok":false,"none":null,"a":1e400}"#
    );
}

#[test]
fn a_column_is_redacted_in_both_states_with_and_without_a_wrapper() {
    let envelope = r#"{"before":{"id":1,"email":"a"},"after":{"id":1,"email":"b"},"source":{"email":"c"},"op":"u"}"#;
    let both = r#"{"before":{"id":1,"email":"R"},"after":{"id":1,"email":"R"},"source":{"email":"c"},"op":"u"}"#;
    assert_eq!(value(&["email"], envelope), both);
    assert_eq!(value(&["value:*.email"], envelope), both.replace("\"c\"", "\"R\""));
    assert_eq!(value(&["after.email"], envelope), both.replacen("\"R\"", "\"a\"", 1));
    for schema in ["null", r#"{"type":"struct","fields":[]}"#] {
        let wrapped = format!(r#"{{"schema":{schema},"payload":{envelope}}}"#);
        assert_eq!(value(&["email"], &wrapped), format!(r#"{{"schema":{schema},"payload":{both}}}"#));
        assert_eq!(value(&["payload.before.email", "payload.after.email"], &wrapped), value(&["email"], &wrapped));
    }
}

#[test]
fn lists_texts_of_json_dotted_names_and_whole_objects_are_looked_into() {
    assert_eq!(
        value(&["items.name"], r#"{"items":[{"name":"x","n":1},{"name":"y"}]}"#),
        r#"{"items":[{"name":"R","n":1},{"name":"R"}]}"#
    );
    assert_eq!(value(&["tags.*"], r#"{"tags":["x",3]}"#), r#"{"tags":["R",0]}"#);
    assert_eq!(
        value(&["who"], r#"{"who":{"name":"x","born":{"year":1980}}}"#),
        r#"{"who":{"name":"R","born":{"year":0}}}"#
    );
    assert_eq!(value(&["a.b"], r#"{"a.b":"x","a":{"b":"y"}}"#), r#"{"a.b":"R","a":{"b":"R"}}"#);
    assert_eq!(
        value(&["name"], r#"{"op":"c","after":"{\"name\":\"x\"}"}"#),
        r#"{"op":"c","after":"{\"name\":\"R\"}"}"#
    );
    // The second one wins when it is read, and the first one is gone.
    assert_eq!(value(&["who.name"], r#"{"who":{"name":"x"},"who":{"n":1}}"#), r#"{"who":{"n":1}}"#);
}

#[test]
fn stand_ins_of_a_schema_can_be_read_by_it() {
    use crate::debezium::envelope::{DecodeOptions, Decoder};
    let field = |name: &str, kind: &str| format!(r#"{{"field":"{name}","type":{kind}}}"#);
    let fields = [
        field("d", r#""bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}"#),
        field("b", r#""bytes""#),
        field("u", r#""string","name":"io.debezium.data.Uuid""#),
        field("j", r#""string","name":"io.debezium.data.Json""#),
        field("z", r#""string","name":"io.debezium.time.ZonedTimestamp""#),
        field("t", r#""int64","name":"io.debezium.time.MicroTimestamp""#),
        field("n", r#""string""#),
    ];
    let text = format!(
        r#"{{"schema":{{"type":"struct","fields":[{}]}},"payload":{{"d":"TRE=","b":"AP8=","u":"7b0c8f52-0000-4000-8000-000000000001","j":"{{\"a\":1}}","z":"2026-11-30T00:00:00Z","t":1,"n":"x"}}}}"#,
        fields.join(",")
    );
    let record = redacted(&["*"], None, &text).unwrap();
    let shown = String::from_utf8(record.value.clone().unwrap()).unwrap();
    for secret in ["TRE=", "AP8=", "7b0c8f52", "\\\"a\\\"", "2026-11"] {
        assert!(text.contains(secret) && !shown.contains(secret), "{secret} in {shown}");
    }
    let decoded = Decoder::new(DecodeOptions::default()).decode(&record);
    assert!(decoded.is_ok(), "{decoded:?} of {shown}");
}

#[test]
fn equal_values_stay_equal_within_a_capture_and_not_beyond() {
    let text = r#"{"a":"same","b":"same","c":"other"}"#;
    let stand_ins = || {
        let record = redacted(&["*"], None, text).unwrap();
        let row: serde_json::Value = serde_json::from_slice(&record.value.unwrap()).unwrap();
        ["a", "b", "c"].map(|name| row[name].as_str().unwrap().to_owned())
    };
    let [a, b, c] = stand_ins();
    assert_eq!(a, b);
    assert_ne!(a, c);
    assert_ne!(a, stand_ins()[0]);
}

#[test]
fn keys_and_headers() {
    let record = redacted(&["key:id", "header:mail"], Some(r#"{"id":"ann","n":1}"#), "{ \"a\" : 1 }").unwrap();
    let key = String::from_utf8(record.key.unwrap()).unwrap();
    assert!(key.starts_with(r#"{"id":"redacted-"#) && key.ends_with(r#"","n":1}"#), "{key}");
    assert_eq!(record.value.as_deref(), Some(&b"{ \"a\" : 1 }"[..]), "not asked for, not touched");
    assert!(record.headers[0].value.as_deref().unwrap().starts_with(b"redacted-"));
    assert_eq!(record.headers[1].value.as_deref(), Some(&b"7"[..]));
    let record = redacted(&["key"], Some("ann@example.org"), "{}").unwrap();
    assert!(record.key.unwrap().starts_with(b"redacted-"));
}

#[test]
fn what_cannot_be_looked_into_is_refused() {
    assert!(redacted(&["email"], None, "\0\0\0\0\u{1}ann").is_err());
    assert!(redacted(&["email"], None, r#"{"email":"ann""#).is_err());
    assert!(redacted(&["key:id"], Some("ann"), "{}").is_err());
    let mut record = Record::sample(None, Some("0")).with_header("apicurio.value.globalId", vec![0; 8]);
    assert!(Redactor::new(&[Target::parse("x").unwrap()]).redact(&mut record).is_err());
    assert!(Redactor::new(&[Target::parse("header:x").unwrap()]).redact(&mut record).is_ok());
    let mut tombstone = Record::sample(None, None);
    assert!(Redactor::new(&[Target::parse("x").unwrap()]).redact(&mut tombstone).is_ok());
}

#[test]
fn paths_that_name_nothing_are_refused() {
    for text in ["", "a..b", "header:", "key:", "body:x", ".a"] {
        assert!(Target::parse(text).is_err(), "{text}");
    }
}
