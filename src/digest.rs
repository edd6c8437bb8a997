//! The digest of a message: SHA-256 over its canonical business content.
//!
//! Two deliveries of one intent must have one digest, whoever serialised them; two intents under one id must not.
//! Left out, because they change between deliveries of one intent (the exact list): of an envelope everything but
//! op, key and row, so `ts_ms`, `ts_us`, `ts_ns`, `source`, `transaction` and the `before` of an update; of a
//! flattened row every `__` field; all headers, trace headers among them; of a plain or outbox record the Kafka key.

use std::fmt::Write;

use sha2::{Digest as _, Sha256};

use crate::debezium::event::{ChangeEvent, Operation};
use crate::debezium::render;
use crate::message::Digest;
use crate::record::Record;
use crate::route::{DigestRule, Route};

/// Version of the algorithm; it is the first character of every rule id.
const VERSION: char = '2';

/// The digest of `event` as `route` sees it.
///
/// The rule id is the version, `t` or `u` for values that are typed by a schema or not (the same row reads
/// differently), and where the route has an include list or column types eight hex digits of their hash.
///
/// | content      | covered |
/// |--------------|---------|
/// | include list | each path in order, with its value, or that it is absent (which is not null) |
/// | change       | op (a snapshot's `r` counts as `c`: both say what the row is), key, row (`after`, for a delete `before`) |
/// | other        | the value |
pub fn digest(event: &ChangeEvent, route: &Route) -> Digest {
    let mut content = String::with_capacity(512);
    match &route.digest {
        DigestRule::Include(paths) => {
            for path in paths {
                render::write_text(&mut content, path);
                match event.field(path) {
                    Some(value) => drop(write!(content, "={};", render::canonical(value))),
                    None => content.push(';'),
                }
            }
        }
        DigestRule::Whole => {
            if let Some(op) = event.op {
                let key = event.wire.key.as_deref().unwrap_or("null");
                for part in [counted(op).letter(), " ", key, " "] {
                    content.push_str(part);
                }
            }
            match (event.row(), &event.scalar) {
                (Some(row), _) => render::write_canonical_row(&mut content, row),
                (None, Some(scalar)) => render::write_canonical(&mut content, scalar),
                (None, None) => content.push_str("null"),
            }
        }
    }
    let hash = Sha256::digest(&content);
    // In the same text: it is as long as it will be.
    content.clear();
    push_rule(&mut content, event, route);
    content.push(':');
    render::push_hex(&mut content, &hash);
    Digest::from_stored(&content)
}

fn counted(op: Operation) -> Operation {
    match op {
        Operation::Read | Operation::Create => Operation::Create,
        Operation::Update => Operation::Update,
        Operation::Delete => Operation::Delete,
        Operation::Truncate => Operation::Truncate,
        Operation::Message => Operation::Message,
    }
}

fn push_rule(rule: &mut String, event: &ChangeEvent, route: &Route) {
    rule.push(VERSION);
    rule.push(if event.typed { 't' } else { 'u' });
    if matches!(route.digest, DigestRule::Whole) && route.columns.is_empty() {
        return;
    }
    let mut parts = Vec::new();
    if let DigestRule::Include(paths) = &route.digest {
        parts.push("include".to_owned());
        parts.extend(paths.iter().cloned());
    }
    if !route.columns.is_empty() {
        parts.push("columns".to_owned());
        parts.extend(route.columns.iter().flat_map(|(name, column)| [name.clone(), column.to_string()]));
    }
    let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(format!("{}:{part}", part.len())));
    render::push_hex(rule, &hash.finalize()[..4]);
}

/// The digest of a value that could not be decoded: of its bytes.
pub fn raw(record: &Record) -> Digest {
    Digest::new(RAW, &render::hex(&Sha256::digest(record.value.as_deref().unwrap_or_default())))
}

/// The rule of [`raw`].
pub const RAW: &str = "raw";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::envelope::{DecodeOptions, Decoder};
    use crate::debezium::event::Decoded;
    use crate::message::DigestMatch;
    use crate::record::{Record, RecordPosition};
    use crate::route::ColumnType;

    fn event(key: Option<&str>, value: &str) -> ChangeEvent {
        let record = Record {
            position: RecordPosition { topic: "t".into(), partition: 0, offset: 0 },
            timestamp_ms: None,
            headers: Vec::new(),
            key: key.map(|key| key.as_bytes().to_vec()),
            value: Some(value.as_bytes().to_vec()),
        };
        match Decoder::new(DecodeOptions::default()).decode(&record) {
            Ok(Decoded::Event(event)) => *event,
            other => panic!("{other:?}"),
        }
    }

    fn compare(a: &str, b: &str, route: &Route) -> DigestMatch {
        digest(&event(Some("{\"id\":1}"), a), route).compare(&digest(&event(Some("{\"id\":1}"), b), route))
    }

    #[test]
    fn serialisation_and_volatile_fields_do_not_count() {
        let route = Route::default();
        for (a, b) in [
            (r#"{"amount":"10.00","to":"A"}"#, r#"{ "to":"A", "amount":"10.00" }"#),
            (r#"{"amount":10.0}"#, r#"{"amount":1e1}"#),
            (
                r#"{"op":"c","after":{"id":1},"source":{"name":"a","ts_ms":1},"ts_ms":1,"transaction":{"id":"1"}}"#,
                r#"{"op":"r","before":null,"after":{"id":1},"source":{"name":"a","ts_ms":2},"ts_ms":2}"#,
            ),
            (r#"{"id":1,"__op":"c","__source_ts_ms":1}"#, r#"{"id":1,"__op":"c","__source_ts_ms":2}"#),
            (
                r#"{"op":"u","before":null,"after":{"id":1},"source":{}}"#,
                r#"{"op":"u","before":{"id":1,"n":2},"after":{"id":1},"source":{}}"#,
            ),
        ] {
            assert_eq!(compare(a, b, &route), DigestMatch::Same, "{a}");
        }
    }

    #[test]
    fn business_content_counts() {
        let route = Route::default();
        for (a, b) in [
            (r#"{"amount":"10.00"}"#, r#"{"amount":"99.00"}"#),
            (r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"op":"c","after":{"id":1}}"#, r#"{"op":"u","after":{"id":1}}"#),
            (r#"{"op":"c","after":{"id":1}}"#, r#"{"op":"d","before":{"id":1},"after":null}"#),
            ("1", "2"),
        ] {
            assert_eq!(compare(a, b, &route), DigestMatch::Different, "{a}");
        }
    }

    #[test]
    fn an_include_list_covers_its_paths_and_tells_absent_from_null() {
        let route = Route { digest: DigestRule::Include(vec!["a".into(), "b.c".into()]), ..Route::default() };
        assert_eq!(
            compare(r#"{"a":1,"b":{"c":2},"x":3}"#, r#"{"b":{"c":2.0,"d":1},"a":1}"#, &route),
            DigestMatch::Same
        );
        assert_eq!(compare(r#"{"a":1,"b":{"c":null}}"#, r#"{"a":1,"b":{}}"#, &route), DigestMatch::Different);
        assert_eq!(compare(r#"{"a":1,"b":{"c":2}}"#, r#"{"a":2,"b":{"c":1}}"#, &route), DigestMatch::Different);
    }

    #[test]
    fn digests_of_different_rules_are_not_compared() {
        let bare = r#"{"a":"x"}"#;
        let wrapped = r#"{"schema":{"type":"struct","fields":[{"type":"string","field":"a"}]},"payload":{"a":"x"}}"#;
        assert_eq!(compare(bare, wrapped, &Route::default()), DigestMatch::Incomparable);
        let include = Route { digest: DigestRule::Include(vec!["a".into()]), ..Route::default() };
        let columns = Route { columns: vec![("a".into(), ColumnType::Text)], ..Route::default() };
        let digests = [Route::default(), include, columns].map(|route| digest(&event(None, bare), &route));
        for (i, a) in digests.iter().enumerate() {
            for b in &digests[..i] {
                assert_eq!(a.compare(b), DigestMatch::Incomparable);
            }
        }
    }

    /// One column of every kind whose text took thought.
    fn typed() -> ChangeEvent {
        let column = |name: &str, kind: &str, rest: &str| {
            format!(r#"{{"type":"{kind}","optional":true,"field":"{name}"{rest}}}"#)
        };
        let named = |name: &str, kind: &str, semantic: &str| column(name, kind, &format!(r#","name":"{semantic}""#));
        let columns = [
            named("day", "int32", "io.debezium.time.Date"),
            named("never", "int32", "io.debezium.time.Date"),
            named("at", "int64", "io.debezium.time.MicroTimestamp"),
            named("zoned", "string", "io.debezium.time.ZonedTimestamp"),
            named("took", "int64", "io.debezium.time.MicroDuration"),
            column("single", "float", ""),
            column("double", "double", ""),
            named("bits", "bytes", "io.debezium.data.Bits").replace('}', r#","parameters":{"length":"12"}}"#),
            named("amount", "bytes", "org.apache.kafka.connect.data.Decimal")
                .replace('}', r#","parameters":{"scale":"2"}}"#),
            named("parts", "struct", "io.debezium.time.StructuredDate").replace('}', r#","fields":[]}"#),
            named("doc", "string", "io.debezium.data.Json"),
            column("toast", "string", ""),
        ];
        let row = r#"{"day":20000,"never":2147483647,"at":1796000000123400,"zoned":"2026-11-29T12:34:56.1+02:00",
            "took":3600000001,"single":0.1,"double":0.1,"bits":"DQo=","amount":"/zY=",
            "parts":{"year":2026,"month":11,"day":29},"doc":"{\"b\": 1.0, \"a\": null}",
            "toast":"__debezium_unavailable_value"}"#;
        let after = format!(r#"{{"type":"struct","field":"after","optional":true,"fields":[{}]}}"#, columns.join(","));
        let schema = format!(r#"{{"type":"struct","fields":[{after}]}}"#);
        let payload = format!(r#"{{"op":"u","before":null,"after":{row},"source":{{}}}}"#);
        event(Some("{\"id\":1}"), &format!(r#"{{"schema":{schema},"payload":{payload}}}"#))
    }

    /// Changing these breaks the comparison with digests in the inboxes of users: raise [`VERSION`] instead.
    #[test]
    fn frozen() {
        let change = event(Some("1"), r#"{"op":"c","after":{"id":1,"n":"a","f":1.50,"z":100}}"#);
        let plain = event(None, r#"{"b":[1,{"c":"é\n"}],"a":null}"#);
        let scalar = event(None, "[1.0,2]");
        let include = Route { digest: DigestRule::Include(vec!["id".into(), "no".into()]), ..Route::default() };
        let columns = Route { columns: vec![("n".into(), ColumnType::Text)], ..Route::default() };
        let digests = [
            digest(&change, &Route::default()),
            digest(&plain, &Route::default()),
            digest(&scalar, &Route::default()),
            digest(&typed(), &Route::default()),
            digest(&change, &include),
            digest(&change, &columns),
        ];
        assert_eq!(digests.each_ref().map(Digest::as_str), FROZEN);
        let shown = render::row_json(typed().after.as_ref().unwrap());
        assert_eq!(shown, TYPED, "as frozen, so that it is seen what changed");
    }

    const TYPED: &str = concat!(
        r#"{"day":"2024-10-04","never":"infinity","at":"2026-11-30T00:53:20.1234","zoned":"2026-11-29T10:34:56.1Z","#,
        r#""took":"PT1H0.000001S","single":0.1,"double":0.1,"bits":"101000001101","amount":"-2.02","#,
        r#""parts":"2026-11-29","doc":{"b":1.0,"a":null}}"#
    );
    const FROZEN: [&str; 6] = [
        "2u:a6a8fe5aca843144c4e18cbe53f16ab93846eab6c46648bb8ddf1cbe357f985f",
        "2u:033ff934474f12885f2e277df33729fc0e2ce05c85ed4a29e11bdf8a61d01d01",
        "2u:49a64717d5d4cb19952e6eac2946415cf6879adacf9908e7d872332d32c6e684",
        "2t:046c7fb3512ea34448715c8d8905c63d263667968f1338f0103ebfbc382ae637",
        "2u34924375:c38efd2e3e01708ee3d1a01ed1e7b2f6ec4fd1d671b05e29dffcf5ae33cc697f",
        "2u5ce42e9c:a6a8fe5aca843144c4e18cbe53f16ab93846eab6c46648bb8ddf1cbe357f985f",
    ];
}
