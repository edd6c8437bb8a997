use std::collections::HashSet;

use super::*;
use crate::debezium::envelope::{DecodeOptions, Decoder};
use crate::debezium::event::Decoded;
use crate::record::Record;

const PG: &str = r#"{"connector":"postgresql","name":"wh1","snapshot":"false","db":"depot","schema":"public","table":"load","txId":9100,"lsn":700900,"ts_ms":1}"#;
const MY: &str = r#"{"connector":"mysql","name":"wm1","snapshot":"false","db":"depot","table":"load","server_id":41,"gtid":null,"file":"binlog.000112","pos":4411,"row":0,"ts_ms":1}"#;

const MSSQL: &str = r#"{"connector":"sqlserver","name":"ws1","snapshot":"false","db":"depot","schema":"dbo","table":"load","change_lsn":"00000027:00000758:0003","commit_lsn":"00000027:00000758:0005","event_serial_no":1,"ts_ms":1}"#;
const DB2: &str = r#"{"connector":"db2","name":"wd1","snapshot":"false","db":"depot","schema":"DB2INST1","table":"load","change_lsn":"00000000:0000062c:00000000:00003d1a","commit_lsn":"00000000:0000062c:00000000:00003e00","ts_ms":1}"#;
const ORACLE: &str = r#"{"connector":"oracle","name":"wo1","snapshot":"false","db":"depot","schema":"APP","table":"load","txId":"6.28.807","scn":"2122185","commit_scn":"2122190","lcr_position":null,"rs_id":" 0x00002c.00003c9b.0010 ","ssn":0,"redo_thread":1,"user_name":"APP","txSeq":1,"ts_ms":1}"#;
const XSTREAM: &str = r#"{"connector":"oracle","name":"wo1","snapshot":"false","db":"depot","schema":"APP","table":"load","txId":"6.28.807","scn":"2122185","lcr_position":"0000000000206189","ts_ms":1}"#;
const MONGO: &str = r#"{"connector":"mongodb","name":"wg1","snapshot":"false","db":"depot","collection":"load","ord":31,"lsid":null,"txnNumber":null,"wallTime":1767225600123,"ts_ms":1767225600123}"#;
const VITESS: &str = r#"{"connector":"vitess","name":"wv1","snapshot":"false","db":"","keyspace":"depot","table":"load","vgtid":"[{\"keyspace\":\"depot\",\"shard\":\"0\",\"gtid\":\"MySQL56/x:1-9\"}]","ts_ms":1}"#;

fn decode(record: &Record) -> ChangeEvent {
    match Decoder::new(DecodeOptions::default()).decode(record) {
        Ok(Decoded::Event(event)) => *event,
        other => panic!("{other:?}"),
    }
}

fn envelope(key: Option<&str>, op: &str, row: &str, source: &str) -> ChangeEvent {
    let rows =
        if op == "d" { format!("\"before\":{row},\"after\":null") } else { format!("\"before\":null,\"after\":{row}") };
    decode(&Record::sample(
        key,
        Some(&format!("{{{rows},\"source\":{source},\"op\":\"{op}\",\"ts_ms\":{}}}", op.len())),
    ))
}

fn id(key: Option<&str>, op: &str, row: &str, source: &str) -> String {
    source_id(&envelope(key, op, row, source)).unwrap()
}

/// Never change these: they are the keys under which users' inboxes know what was applied. A new recipe gets a new
/// prefix, and the old one goes on to be made for what came before.
#[test]
fn golden() {
    let wal = id(Some("{\"id\":100,\"b\":\"é\"}"), "c", "{\"id\":1}", PG);
    let binlog = id(Some("{\"id\":1}"), "u", "{\"id\":1}", MY);
    let gtid = id(Some("{\"id\":1}"), "d", "{\"id\":1}", &MY.replace("null", "\"0-41-17\""));
    let keyless = id(None, "c", "{\"a\":1,\"b\":\"x\"}", PG);
    let snapshot = id(Some("{\"id\":1}"), "r", "{\"id\":1}", &MY.replace("\"false\"", "\"last\""));
    assert_eq!([&*wal, &*binlog, &*gtid, &*keyless, &*snapshot], GOLDEN);
}

const GOLDEN: [&str; 5] = [
    "s1:00000000000ab1e4:c:load:d6e94665179e0f6668dd8711c667bc02",
    "s1:000112.0000004411.0:u:load:1bbfbb2e17152c67ead87097d34c039b",
    "s1:000112.0000004411.0:d:load:3d3014611dfd63c94037bdeccb9e2062",
    "s1:00000000000ab1e4:c:load:3dadf1ddf6dfc0e64c3df7cda226fc5f",
    "s1:snapshot:r:load:048a8f516e466514272216e2465a5899",
];

#[test]
fn golden_of_connectors_that_were_not_run_here() {
    let ids = [MSSQL, DB2, ORACLE, XSTREAM, MONGO].map(|source| id(Some("{\"id\":1}"), "u", "{\"id\":1}", source));
    let keyless = id(None, "c", "{\"id\":1}", &ORACLE.replace("\"rs_id\"", "\"row_id\":\"AAAR3\",\"rs_id\""));
    let snapshot = id(Some("{\"id\":1}"), "r", "{\"id\":1}", MSSQL);
    let ids: Vec<&str> = ids.iter().chain([&keyless, &snapshot]).map(String::as_str).collect();
    assert_eq!(ids, GOLDEN_UNRUN);
}

const GOLDEN_UNRUN: [&str; 7] = [
    "s1:00000027000007580005:u:load:2f65adaa3406cdebced065792d7a4847",
    "s1:000000000000062c0000000000003e00:u:load:b9fc64aac4c1953a07e0a53804372f98",
    "s1:0000000002122185:u:load:0c63ec58e8d90576ce4c35ecb5452b74",
    "s1:0000000002122185:u:load:0dd73e22f79ae25a43f0cfb2a643563d",
    "s1:1767225600123.0000000031:u:load:4708bcd7a77bcfa23737cf10d0220537",
    "s1:0000000002122185:c:load:c4725276a37cb0d2bcb29d05198769a6",
    "s1:snapshot:r:load:aa66845d6e167255bb3e55f4577e5377",
];

/// What a connector stamps anew, or counts from where it happened to begin, is no coordinate.
#[test]
fn emission_does_not_count_for_any_connector() {
    let key = Some("{\"id\":1}");
    for (source, from, to) in [
        (MSSQL, "\"ts_ms\":1", "\"ts_ms\":2,\"ts_us\":2000"),
        (DB2, "\"ts_ms\":1", "\"ts_ms\":2"),
        (ORACLE, "\"txSeq\":1", "\"txSeq\":7,\"commit_ts_ms\":5,\"start_scn\":\"1\",\"redo_sql\":\"x\""),
        (ORACLE, "\"commit_scn\":\"2122190\",", ""),
        (ORACLE, "\"ssn\":0", "\"row_id\":\"AAAR3sAAGAAAACHAAB\",\"ssn\":0"),
        (XSTREAM, "\"ts_ms\":1", "\"ts_ms\":9"),
    ] {
        for op in ["c", "u", "d"] {
            let again = source.replace(from, to);
            assert_ne!(again, source);
            assert_eq!(id(key, op, "{\"id\":1}", source), id(key, op, "{\"id\":1}", &again), "{again}");
        }
    }
}

#[test]
fn every_coordinate_of_other_connectors_counts() {
    let mut ids = HashSet::new();
    let mut fresh = |key: Option<&str>, op: &str, row: &str, source: &str| {
        let id = id(key, op, row, source);
        assert!(id.len() <= 120 && id.bytes().all(|b| b.is_ascii_graphic()), "{id}");
        assert!(ids.insert(id.clone()), "{id} {source}");
    };
    let (one, two) = (Some("{\"id\":1}"), Some("{\"id\":2}"));
    for source in [MSSQL, DB2, ORACLE, XSTREAM, MONGO] {
        for op in ["c", "u", "d", "r"] {
            fresh(one, op, "{\"id\":1}", source);
            fresh(two, op, "{\"id\":1}", source);
            fresh(None, op, "{\"id\":1}", source);
            fresh(None, op, "{\"id\":2}", source);
        }
        for (from, to) in [("\"load\"", "\"other\""), ("\"depot\"", "\"shard\""), ("\"name\":\"w", "\"name\":\"x")] {
            fresh(one, "c", "{\"id\":1}", &source.replace(from, to));
        }
    }
    for (source, from, to) in [
        (MSSQL, "0758:0003", "0758:0004"),
        (MSSQL, "0758:0005", "0758:0006"),
        (MSSQL, "\"event_serial_no\":1", "\"event_serial_no\":2"),
        (DB2, "3d1a", "3d1b"),
        (DB2, "3e00", "3e01"),
        (ORACLE, "2122185", "2122186"),
        (ORACLE, "6.28.807", "6.28.808"),
        (ORACLE, "9b.0010", "9b.0020"),
        (XSTREAM, "6189", "618a"),
        (MONGO, "\"ord\":31", "\"ord\":32"),
        (MONGO, "\"ts_ms\":1767225600123", "\"ts_ms\":1767225600124"),
    ] {
        fresh(one, "u", "{\"id\":1}", &source.replace(from, to));
    }
    // Equal rows of one array insert into a table without a key.
    for row_id in ["AAAR3sAAGAAAACHAAB", "AAAR3sAAGAAAACHAAC"] {
        fresh(None, "c", "{\"id\":1}", &ORACLE.replace("\"ssn\"", &format!("\"row_id\":\"{row_id}\",\"ssn\"")));
    }
}

#[test]
fn emission_does_not_count() {
    for source in [PG, MY] {
        let again =
            source.replace("\"ts_ms\":1", "\"ts_ms\":99,\"ts_us\":99000,\"sequence\":\"[null]\",\"version\":\"9\"");
        for op in ["c", "u", "d", "r"] {
            assert_eq!(
                id(Some("{\"id\":1}"), op, "{\"id\":1}", source),
                id(Some("{\"id\":1}"), op, "{\"id\":1}", &again)
            );
            assert_eq!(id(None, op, "{\"id\":1}", source), id(None, op, "{\"id\":1}", &again));
        }
        let plain =
            Record::sample(Some("1"), Some(&format!("{{\"op\":\"c\",\"after\":{{\"id\":1}},\"source\":{source}}}")));
        let mut moved = plain.clone();
        moved.position.offset = 77;
        moved.position.partition = 5;
        assert_eq!(source_id(&decode(&plain)), source_id(&decode(&moved)));
    }
}

#[test]
fn every_coordinate_counts() {
    let key = Some("{\"id\":1}");
    let mut ids = HashSet::new();
    let mut fresh = |id: String| assert!(ids.insert(id.clone()), "{id}");
    for source in [PG, MY] {
        for op in ["c", "u", "d", "r"] {
            fresh(id(key, op, "{\"id\":1}", source));
            // One statement or COPY, several rows.
            fresh(id(Some("{\"id\":2}"), op, "{\"id\":2}", source));
            fresh(id(None, op, "{\"id\":1}", source));
            fresh(id(None, op, "{\"id\":2}", source));
        }
        for (from, to) in [("\"load\"", "\"other\""), ("\"depot\"", "\"shard\""), ("\"name\":\"w", "\"name\":\"x")] {
            fresh(id(key, "c", "{\"id\":1}", &source.replace(from, to)));
        }
    }
    fresh(id(key, "c", "{\"id\":1}", &PG.replace("public", "private")));
    // One key twice in a transaction.
    fresh(id(key, "c", "{\"id\":1}", &PG.replace("700900", "700901")));
    fresh(id(key, "c", "{\"id\":1}", &PG.replace("9100", "9101")));
    for (from, to) in [
        ("000112", "000113"),
        ("4411", "4412"),
        ("\"row\":0", "\"row\":1"),
        ("\"server_id\":41", "\"server_id\":42"),
        ("\"gtid\":null", "\"gtid\":\"0-41-17\""),
        ("\"gtid\":null", "\"gtid\":\"0-41-18\""),
    ] {
        fresh(id(key, "c", "{\"id\":1}", &MY.replace(from, to)));
    }
    // A snapshot that finds the row changed, and a repeated one.
    fresh(id(key, "r", "{\"id\":1,\"n\":2}", MY));
    fresh(id(key, "r", "{\"id\":1}", &MY.replace("4411", "9999")));
}

/// No log has such a place; whatever says so is not taken for the place without the sign.
#[test]
fn a_sign_counts_in_the_hash_and_in_the_locus() {
    let at = |pos: &str, row: &str| {
        let source = MY.replace("4411", pos).replace("\"row\":0", &format!("\"row\":{row}"));
        id(Some("1"), "c", "{\"id\":1}", &source)
    };
    let locus = |id: &str| id.split(':').nth(1).unwrap().to_owned();
    for (one, other) in [(at("5", "0"), at("-5", "0")), (at("5", "1"), at("5", "-1"))] {
        assert_ne!(one.rsplit(':').next(), other.rsplit(':').next());
        assert_ne!(locus(&one), locus(&other));
    }
    assert_eq!(locus(&at("-5", "-1")), "000112.-0000000005.-1");
}

#[test]
fn parts_do_not_run_into_each_other() {
    let of = |db: &str, table: &str| {
        id(
            Some("1"),
            "c",
            "{\"id\":1}",
            &MY.replace("\"depot\"", &format!("\"{db}\"")).replace("\"load\"", &format!("\"{table}\"")),
        )
    };
    assert_ne!(of("ab", "c"), of("a", "bc"));
    assert_ne!(of("a:3:x", "c"), of("a", "3:x:c"));
}

#[test]
fn the_schema_wrapper_does_not_count() {
    let key_schema = r#"{"type":"struct","fields":[{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"id"},{"type":"bytes","field":"b"}]}"#;
    let row_schema = r#"{"type":"struct","fields":[{"type":"struct","optional":true,"field":"after","fields":[{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"id"},{"type":"int32","name":"io.debezium.time.Date","field":"d"}]}]}"#;
    let (key, row) = (r#"{"id":"nA==","b":"AP8="}"#, r#"{"id":"nA==","d":3}"#);
    for (key, wrapped_key) in [
        (Some(key.to_owned()), Some(format!("{{\"schema\":{key_schema},\"payload\":{key}}}"))),
        (None, Some(r#"{"schema":null,"payload":null}"#.to_owned())),
    ] {
        for (op, source) in [("c", PG), ("c", MY), ("r", PG)] {
            let payload = format!("{{\"op\":\"{op}\",\"before\":null,\"after\":{row},\"source\":{source}}}");
            let wrapped = format!("{{\"schema\":{row_schema},\"payload\":{payload}}}");
            let (bare, typed) = (
                decode(&Record::sample(key.as_deref(), Some(&payload))),
                decode(&Record::sample(wrapped_key.as_deref(), Some(&wrapped))),
            );
            assert!(typed.typed && !bare.typed && typed.after != bare.after);
            assert_eq!(source_id(&typed), source_id(&bare));
        }
    }
}

#[test]
fn ids_are_short_plain_ascii() {
    let long = "Ü".repeat(300);
    for source in [PG, MY] {
        let source =
            source.replace("load", &long).replace("depot", &long).replace("\"name\":\"", &format!("\"name\":\"{long}"));
        let id = id(Some(&format!("\"{long}\"")), "c", "{\"id\":1}", &source);
        assert!(id.len() < 120 && id.bytes().all(|b| b.is_ascii_graphic()), "{id}");
    }
    let largest = MY.replace("4411", &i64::MAX.to_string()).replace("\"row\":0", &format!("\"row\":{}", i64::MIN));
    assert!(id(Some("1"), "c", "{\"id\":1}", &largest).len() < 120);
}

#[test]
fn no_id_is_made_up() {
    let fault = |source: &str, op: &str| source_id(&envelope(Some("1"), op, "{\"id\":1}", source)).unwrap_err();
    for (source, op) in [
        (&*PG.replace("700900", "null"), "c"),
        (&*MY.replace("\"file\":\"binlog.000112\"", "\"file\":null"), "c"),
        (&*PG.replace("\"wh1\"", "\"\""), "c"),
        (&*PG.replace("\"load\"", "null"), "c"),
        (&*PG.replace("postgresql", "spanner"), "c"),
        (&*PG.replace("postgresql", "spanner"), "r"),
        (&*PG.replace("postgresql", "oracle"), "c"),
        (&*MSSQL.replace("\"change_lsn\":\"00000027:00000758:0003\"", "\"change_lsn\":null"), "u"),
        (&*MSSQL.replace("\"commit_lsn\":\"00000027:00000758:0005\"", "\"commit_lsn\":null"), "u"),
        (&*ORACLE.replace("\" 0x00002c.00003c9b.0010 \"", "null"), "u"),
        (&*ORACLE.replace("\"6.28.807\"", "null"), "u"),
        (&*MONGO.replace("\"txnNumber\":null", "\"txnNumber\":3"), "u"),
        (&*MONGO.replace("\"lsid\":null", "\"lsid\":\"{}\""), "c"),
        (&*VITESS.to_owned(), "c"),
        ("{}", "c"),
    ] {
        assert_eq!(fault(source, op).code, "no_safe_id", "{source}");
    }
    assert!(fault(&PG.replace("postgresql", "spanner"), "c").detail.contains("spanner"));
    for (source, why) in [(VITESS, "vgtid"), (&MONGO.replace("\"txnNumber\":null", "\"txnNumber\":3"), "transaction")] {
        assert!(fault(source, "c").detail.contains(why));
    }
    for text in ["{\"id\":1}", "{\"id\":1,\"__op\":\"c\"}", "{\"id\":1,\"__op\":\"c\",\"__table\":\"t\"}"] {
        assert_eq!(source_id(&decode(&Record::sample(Some("1"), Some(text)))).unwrap_err().code, "no_safe_id");
    }
    // What has no safe id in the log is identified by its content in a snapshot.
    for source in [MSSQL, ORACLE, MONGO, VITESS] {
        assert!(source_id(&envelope(Some("1"), "r", "{\"id\":1}", source)).is_ok());
    }
    // An incremental snapshot has no lsn of its own, and needs none.
    assert!(
        source_id(&envelope(
            Some("1"),
            "r",
            "{\"id\":1}",
            &PG.replace("700900", "null").replace("false", "incremental")
        ))
        .is_ok()
    );
}

#[test]
fn flattened_rows_have_ids_where_enough_was_added() {
    let flat = |row: &str| {
        let record = Record::sample(Some("{\"id\":1}"), Some(row))
            .with_header("__debezium.context.connectorName", "postgresql")
            .with_header("__debezium.context.connectorLogicalName", "p");
        source_id(&decode(&record)).unwrap()
    };
    let created = flat(r#"{"id":1,"__op":"c","__table":"orders","__lsn":5}"#);
    assert_eq!(created, flat(r#"{"id":1,"n":2,"__op":"c","__table":"orders","__lsn":5,"__source_ts_ms":3}"#));
    assert_ne!(created, flat(r#"{"id":1,"__op":"d","__deleted":"true","__table":"orders","__lsn":5}"#));
    assert_ne!(created, flat(r#"{"id":1,"__op":"c","__table":"orders","__lsn":6}"#));
}
