//! Shapes of records that people met: tombstones of every kind, wrappers, flattened rows, outbox payloads, CloudEvents.

use serde_json::{Value, json};

use crate::broker::Rec;
use crate::rows::{TABLE, change, route};
use crate::world::everywhere;

const NULL: Value = Value::Null;

/// A table of texts by id, and a route of one insert into it.
const NOTES: &str = "CREATE TABLE notes (n {serial}, id VARCHAR(80), body VARCHAR(200));";

fn notes(id: &str, values: &str, more: &str) -> String {
    format!(
        "[[route]]\nname = \"notes\"\nmatch = {{ topic = \"TOPIC\" }}\nmessage_id = \"{id}\"\n{more}\n[route.effect]\n\
         kind = \"sql\"\nsteps = [{{ sql = \"INSERT INTO notes (id, body) VALUES ({values})\" }}]\n"
    )
}

fn row(id: i64) -> Value {
    json!({"id": id, "status": "a", "note": "n", "amount": id})
}

fn wrapped(record: &Rec, schema: &Value) -> Rec {
    let payload: Value = record.value.as_deref().map_or(NULL, |value| serde_json::from_slice(value).unwrap());
    Rec { value: Some(json!({"schema": schema, "payload": payload}).to_string().into()), ..record.clone() }
}

fn codes(letters: &[String]) -> Vec<&str> {
    letters.iter().map(|letter| letter.rsplit('|').next().unwrap()).collect()
}

#[test]
fn a_null_in_any_dress_is_a_tombstone_and_no_bytes_are_poison() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let schema = json!({"type": "struct", "fields": [], "optional": true, "name": "x.Envelope"});
        let key = |id: i64| format!("{{\"id\":{id}}}");
        let records = [
            change("c", 10, NULL, row(12)),
            change("d", 20, row(12), NULL),
            Rec::tombstone(key(12)),
            Rec::bare("").key(key(13)),
            Rec::bare("null").key(key(14)),
            Rec::bare(" null\n").key(key(14)),
            Rec::bare(r#"{"schema":null,"payload":null}"#).key(r#"{"schema":null,"payload":{"id":15}}"#),
            wrapped(&Rec::tombstone(key(16)), &schema),
            change("c", 30, NULL, row(17)),
        ];
        world.send(&records).await;
        let running = world.start(&route("")).await;
        let seen = running.outcomes(9, "applied=3 skipped=5 parked=1").await;
        assert_eq!(seen.iter().filter(|one| one.reason.as_deref() == Some("tombstone")).count(), 5);
        assert_eq!(world.db.rows("id", "FROM orders_copy").await, ["17"]);
        assert_eq!(codes(&world.dead_letters().await), ["empty_value"]);
        assert_eq!(world.pushed().await.len(), 4);
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 9);
    });
}

#[test]
fn in_a_flattened_topic_the_tombstone_can_be_the_delete() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let flat = |id: i64, lsn: i64| {
            json!({"id": id, "status": "a", "__op": "c", "__table": "orders", "__lsn": lsn}).to_string()
        };
        let context = |record: Rec| {
            record
                .header("__debezium.context.connectorName", "postgresql")
                .header("__debezium.context.connectorLogicalName", "p")
        };
        let tombstone = |key: &str| context(Rec::tombstone(key)).header("__table", "orders").header("__lsn", "30");
        let records = [
            context(Rec::bare(flat(1, 10)).key("{\"id\":1}")),
            context(Rec::bare(flat(2, 20)).key("{\"id\":2}")),
            context(Rec::bare(flat(3, 21)).key("{\"id\":3}")),
            tombstone("{\"id\":1}"),
            tombstone(r#"{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":2}}"#),
            tombstone("{\"id\":1}"),
        ];
        world.send(&records).await;
        let running = world.start(&route("tombstone = \"delete\"---")).await;
        running.outcomes(6, "applied=5 duplicate=1").await;
        assert_eq!(world.db.rows("id", "FROM orders_copy").await, ["3"]);
        running.stop().await;
    });
}

#[test]
fn one_change_in_three_wrappers_is_one_message() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let bare = change("c", 10, NULL, json!({"id": 3, "status": "blue", "note": "text", "amount": 1}));
        let schema = json!({"type": "struct", "name": "x.Envelope", "fields": []});
        let payload: Value = serde_json::from_slice(bare.value.as_deref().unwrap()).unwrap();
        let alone = Rec { value: Some(json!({"payload": payload}).to_string().into()), ..bare.clone() };
        world.send(&[wrapped(&bare, &schema), wrapped(&bare, &NULL), bare.clone(), alone, bare]).await;
        let running = world.start(&route("")).await;
        running.outcomes(5, "applied=1 duplicate=4").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy").await, ["3|blue"]);
        running.stop().await;
    });
}

#[test]
fn columns_named_schema_and_payload_are_columns() {
    everywhere(|world| async move {
        world
            .db
            .run("CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, payload VARCHAR(20), schema VARCHAR(20));")
            .await;
        let inside = change("c", 10, NULL, json!({"id": 1, "schema": "blue", "payload": "text"}));
        let flat = |value: &str| Rec::bare(value).header("id", value.as_bytes().to_vec());
        world
            .send(&[
                inside.header("id", "a"),
                flat(r#"{"schema":"blue","payload":"text","id":2,"__op":"c"}"#),
                flat(r#"{"payload":"x","schema":"red","id":3}"#),
            ])
            .await;
        let config = route("").replace("\"source\"", "\"header:id\"");
        let running = world.start(&config).await;
        running.outcomes(3, "applied=3").await;
        let rows = world.db.rows("id, payload", "FROM orders_copy ORDER BY id").await;
        assert_eq!(rows, ["1|text", "2|text", "3|x"]);
        running.stop().await;
    });
}

#[test]
fn flattened_rows_are_deleted_and_upserted_whatever_says_so() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        world.db.run("INSERT INTO orders_copy VALUES (2, 'x', 'n', 1), (5, 'x', 'n', 1), (7, 'x', 'n', 1)").await;
        let flat = |n: usize, text: &str| Rec::bare(text).header("id", format!("f-{n}"));
        let texts = [
            r#"{"id":1,"status":"a","__op":"c","__deleted":"false"}"#,
            r#"{"id":1,"status":"a","__op":"d","__deleted":"true"}"#,
            r#"{"id":2,"status":"b","__deleted":true}"#,
            r#"{"id":3,"status":"c","__deleted":"false","__source_ts_ms":7,"__table":"t"}"#,
            r#"{"id":4,"status":"d"}"#,
            r#"{"id":6,"status":"f","__op":"r","__deleted":"false"}"#,
            r#"{"id":7,"status":null,"note":null,"amount":null,"__deleted":"true"}"#,
        ];
        let mut records: Vec<Rec> = texts.iter().enumerate().map(|(n, text)| flat(n, text)).collect();
        records.push(flat(9, r#"{"id":5,"status":"e"}"#).header("__op", "d"));
        records.push(flat(10, r#"{"id":8,"status":"e"}"#).header("__op", "\"u\""));
        world.send(&records).await;
        let running = world.start(&route("").replace("\"source\"", "\"header:id\"")).await;
        running.outcomes(9, "applied=9").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy ORDER BY id").await, ["3|c", "4|d", "6|f", "8|e"]);
        running.stop().await;
    });
}

#[test]
fn records_of_debezium_itself_are_told_by_their_shape_in_any_topic() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let source = json!({"connector": "mysql", "name": "wm1", "file": "binlog.000112", "pos": 4411, "row": 0});
        let ddl = |more: Value| {
            let mut value = json!({"source": source, "ts_ms": 1, "databaseName": "depot", "schemaName": null,
                "ddl": "ALTER TABLE crate ADD colour INT", "tableChanges": []});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Rec::bare(value.to_string()).key(r#"{"databaseName":"depot"}"#)
        };
        let boundary = |status: &str, count: Value| {
            let value = json!({"status": status, "id": "597:700300", "ts_ms": 1, "event_count": count, "data_collections": null});
            Rec::bare(value.to_string()).key(r#"{"id":"597:700300"}"#)
        };
        let schema = json!({"type": "struct", "fields": []});
        let internal = [
            Rec::bare(r#"{"ts_ms":1931000000000}"#).key(r#"{"serverName":"wh1"}"#),
            ddl(json!({})),
            ddl(json!({"ddl": null})),
            boundary("BEGIN", NULL),
            boundary("END", json!(0)),
            boundary("END", json!(7)),
        ];
        let mut records: Vec<Rec> = internal.to_vec();
        records.extend(internal.iter().map(|record| wrapped(record, &schema)));
        records.push(change("c", 10, NULL, row(4)));
        world.send(&records).await;
        let running = world.start(&route("")).await;
        let seen = running.outcomes(13, "applied=1 skipped=12").await;
        for (reason, count) in [("heartbeat", 2), ("schema_change", 4), ("transaction", 6)] {
            assert_eq!(seen.iter().filter(|one| one.reason.as_deref() == Some(reason)).count(), count, "{reason}");
        }
        assert_eq!(world.db.count("FROM countersign_inbox").await, 1);
        assert_eq!(world.pushed().await.len(), 1);
        running.stop().await;
    });
}

#[test]
fn counters_that_begin_again_inside_a_transaction_join_no_changes() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let with_transaction = |lsn: i64, id: i64, order: i64| {
            let record = change("c", lsn, NULL, row(id));
            let mut value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            value["transaction"] = json!({"id": "598:700310", "total_order": order, "data_collection_order": order});
            Rec { value: Some(value.to_string().into()), ..record }
        };
        // The connector began again at the third, with another count for what it had emitted already.
        let records = [
            with_transaction(301, 12, 1),
            with_transaction(305, 10, 2),
            with_transaction(305, 10, 1),
            with_transaction(306, 11, 2),
        ];
        world.send(&records).await;
        let running = world.start(&route("")).await;
        running.outcomes(4, "applied=3 duplicate=1").await;
        assert_eq!(world.db.rows("id", "FROM orders_copy ORDER BY id").await, ["10", "11", "12"]);
        running.stop().await;
    });
}

#[test]
fn a_stale_read_of_a_later_snapshot_does_not_undo_a_newer_change() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        // An incremental snapshot has a new time, no place in the log, and an old state.
        let read = |id: i64, amount: i64| {
            let record = change("r", 20, NULL, json!({"id": id, "status": "a", "note": "n", "amount": amount}));
            let mut value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            let source = value["source"].as_object_mut().unwrap();
            source.extend(
                [
                    ("snapshot", json!("incremental")),
                    ("lsn", NULL),
                    ("txId", NULL),
                    ("ts_ms", json!(1_999_000_000_000_i64)),
                ]
                .map(|(name, value)| (name.to_owned(), value)),
            );
            Rec { value: Some(value.to_string().into()), ..record }
        };
        let update = change("u", 10, NULL, json!({"id": 6, "status": "a", "note": "n", "amount": 510}));
        world.send(&[update, read(6, 70), read(7, 70), read(7, 71), read(7, 70)]).await;
        let running = world.start(&route("---guard = \"source\"\n")).await;
        let seen = running.outcomes(5, "applied=3 duplicate=1 skipped=1").await;
        assert_eq!(seen.iter().filter(|one| one.reason.as_deref() == Some("stale")).count(), 1);
        assert_eq!(world.db.rows("id, amount", "FROM orders_copy ORDER BY orders_copy.id").await, ["6|510", "7|71"]);
        running.stop().await;
    });
}

#[test]
fn an_outbox_payload_is_taken_as_it_was_meant() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let payload = |id: &str, value: &str| Rec::new(id, value);
        let records = [
            payload("text", r#"{"orderId":44,"note":"say \"hi\""}"#),
            payload("expanded", r#"{ "note": null, "orderId": 44 }"#),
            payload(
                "typed",
                r#"{"schema":{"type":"struct","fields":[{"type":"int64","field":"orderId"},{"type":"string","optional":true,"field":"note"}]},"payload":{"orderId":44,"note":"w"}}"#,
            ),
            payload("double", r#""{\"orderId\": 44,\"note\":\"d\"}""#),
            payload("words", "plain words"),
            payload("empty", "\"\""),
            payload("void", "null"),
        ];
        world.send(&records).await;
        let running = world.start(&notes("header:id", ":orderId, :note", "")).await;
        running.outcomes(7, "applied=3 skipped=1 parked=3").await;
        let rows = world.db.rows("id, body", "FROM notes ORDER BY n").await;
        assert_eq!(rows, ["44|say \"hi\"", "44|-", "44|w"]);
        assert_eq!(codes(&world.dead_letters().await), ["type_mismatch", "undecodable", "empty_value"]);
        running.stop().await;
        // The same once more, where one level of JSON inside JSON is undone.
        let again = [payload("double-2", r#""{\"orderId\": 45,\"note\":\"d\"}""#), payload("void-2", "null")];
        world.send(&again).await;
        let running = world.start(&notes("header:id", ":orderId, :note", "double_encoded = true")).await;
        running.outcomes(2, "applied=1 skipped=1").await;
        assert_eq!(world.db.rows("id, body", "FROM notes WHERE id = '45'").await, ["45|d"]);
        running.stop().await;
    });
}

#[test]
fn one_id_in_many_encodings_is_one_message() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let uuid = "7b0c8f52-3d0e-4e4b-9a51-0f2d5c6a7e90";
        let raw: [u8; 16] =
            [0x7b, 0x0c, 0x8f, 0x52, 0x3d, 0x0e, 0x4e, 0x4b, 0x9a, 0x51, 0x0f, 0x2d, 0x5c, 0x6a, 0x7e, 0x90];
        let value = r#"{"id":"a","note":"b"}"#;
        let wrapped = format!(r#"{{"schema": {{"type": "string", "optional": false}}, "payload": "{uuid}"}}"#);
        let base64 = "\"ewyPUj0OTkuaUQ8tXGp+kA==\"";
        let texts = [Rec::new(uuid, value), Rec::new(format!("\"{uuid}\""), value), Rec::new(wrapped, value)];
        let unfit = [
            Rec::new(raw, value),
            Rec::new(base64, value),
            Rec::new([0xff, 0x80], value),
            Rec::new(uuid, value).header("id", uuid.replace('0', "1")),
        ];
        world.send(&[texts.to_vec(), unfit.to_vec()].concat()).await;
        let running = world.start(&notes("header:id", ":id, :note", "")).await;
        running.outcomes(7, "applied=1 duplicate=2 parked=4").await;
        assert_eq!(codes(&world.dead_letters().await), ["id_not_text", "id_not_text", "id_not_text", "id_ambiguous"]);
        running.stop().await;

        world.send(&[Rec::new(raw, value), Rec::new(base64, value), Rec::new(uuid.to_uppercase(), value)]).await;
        let running = world.start(&notes("header:id", ":id, :note", "id_format = \"uuid-bytes\"")).await;
        running.outcomes(3, "duplicate=3").await;
        running.stop().await;
        world.send(&[Rec::new(uuid.to_uppercase(), value)]).await;
        let running = world.start(&notes("header:id", ":id, :note", "")).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

#[test]
fn rows_without_a_key_are_told_apart_by_their_place_in_the_log() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let keyless =
            |op: &str, lsn: i64, before: Value, after: Value| Rec { key: None, ..change(op, lsn, before, after) };
        let (one, two) = (json!({"code": "A", "n": 1}), json!({"code": "A", "n": 2}));
        let records = [
            keyless("c", 1000, NULL, one.clone()),
            keyless("u", 1001, one.clone(), two),
            keyless("c", 1002, NULL, one.clone()).key(r#"{"schema":null,"payload":null}"#),
            keyless("c", 1002, NULL, one.clone()),
            keyless("c", 1002, NULL, one.clone()).key("null"),
        ];
        world.send(&records).await;
        let running = world.start(&notes("source", ":code, :n", "")).await;
        running.outcomes(5, "applied=3 duplicate=2").await;
        assert_eq!(world.db.rows("id, body", "FROM notes ORDER BY n").await, ["A|1", "A|2", "A|1"]);
        running.stop().await;
        // By the key there is no id, and none is made up.
        world.send(&[keyless("c", 1003, NULL, one)]).await;
        let running = world.start(&notes("key:id", ":code, :n", "")).await;
        running.outcomes(1, "parked=1").await;
        assert_eq!(codes(&world.dead_letters().await), ["id_missing"]);
        running.stop().await;
    });
}

#[test]
fn an_outbox_envelope_with_fields_beside_the_payload_is_not_unwrapped() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let records = [
            Rec::new("a", r#"{"payload":{"orderId":1,"note":"x"},"eventType":"OrderPlaced","source_app":"shop"}"#),
            Rec::new("b", r#"{"payload":"{\"orderId\":2}","eventType":"OrderPlaced"}"#),
            Rec::new("c", r#"{"payload":null,"eventType":"OrderVoid","schema":"v2"}"#),
            Rec::new("d", r#"{"payload":{"orderId":4},"schema":"v2"}"#),
            Rec::new("e", &b"\x08\x80\xff\xfe\x00\x10\x80\x01\x22\x02hi"[..]),
            Rec::new("f", r#"{"payload":{"orderId":6},"eventType":null}"#),
        ];
        world.send(&records).await;
        let route = notes("header:id", ":meta.messageId, :payload", "");
        let running = world.start(&route).await;
        running.outcomes(6, "applied=5 parked=1").await;
        let bodies: Vec<String> = world.db.rows("body", "FROM notes ORDER BY n").await;
        let bodies: Vec<String> = bodies.iter().map(|body| body.replace(' ', "")).collect();
        assert_eq!(
            bodies,
            [r#"{"orderId":1,"note":"x"}"#, r#"{"orderId":2}"#, "-", r#"{"orderId":4}"#, r#"{"orderId":6}"#]
        );
        assert_eq!(codes(&world.dead_letters().await), ["undecodable"]);
        running.stop().await;
    });
}

fn cloud(lsn: i64, data: &str) -> Rec {
    Rec::bare(format!(
        r#"{{"id":"name:wh1;lsn:{lsn};txId:565","source":"/debezium/postgresql/wh1","specversion":"1.0","type":"io.debezium.connector.postgresql.DataChangeEvent","time":"2031-03-09T04:05:06.123Z","datacontenttype":"application/json","iodebeziumop":"c","iodebeziumconnector":"postgresql","iodebeziumname":"wh1","iodebeziumtable":"orders","iodebeziumlsn":"{lsn}","iodebeziumtxid":"565","data":{data}}}"#
    ))
}

#[test]
fn a_cloud_event_is_the_change_that_it_holds_under_its_own_id() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let records = [
            cloud(1, r#"{"before":null,"after":{"id":1,"n":"a"}}"#),
            // Debezium's id is the same for another row of the transaction.
            cloud(1, r#"{"before":null,"after":{"id":2,"n":"b"}}"#),
            cloud(2, r#"{"before":null,"after":{"id":3,"n":"c"}}"#),
            cloud(2, r#"{ "after":{"n":"c","id":3}, "before":null }"#),
            cloud(
                3,
                r#"{"schema":{"type":"struct","fields":[{"type":"struct","optional":true,"field":"after","fields":[{"type":"int64","field":"id"},{"type":"int32","name":"io.debezium.time.Date","field":"n"}]}]},"payload":{"before":null,"after":{"id":4,"n":0}}}"#,
            ),
        ];
        world.send(&records).await;
        let running = world.start(&notes("value:id", ":id, :n", "")).await;
        running.outcomes(5, "applied=3 duplicate=1 conflict=1").await;
        let rows = world.db.rows("id, body", "FROM notes ORDER BY n").await;
        assert_eq!(rows, ["1|a", "3|c", "4|1970-01-01"]);
        let ids = world.db.rows("message_id", "FROM countersign_inbox ORDER BY kafka_offset").await;
        assert_eq!(ids, ["name:wh1;lsn:1;txId:565", "name:wh1;lsn:2;txId:565", "name:wh1;lsn:3;txId:565"]);
        running.stop().await;
        // By where it stands in the log each is a message of its own, and its place can be asked for too.
        let keyed = |record: &Rec, key: &str| record.clone().key(key);
        world.send(&[keyed(&records[0], "1"), keyed(&records[1], "2"), keyed(&records[0], "1")]).await;
        let running = world.start(&notes("source", ":data.after.id, :type", "")).await;
        running.outcomes(3, "applied=2 duplicate=1").await;
        let rows = world.db.rows("id", "FROM notes ORDER BY n").await;
        assert_eq!(rows[3..], ["1", "2"]);
        running.stop().await;
    });
}

#[test]
fn in_binary_mode_id_and_route_of_a_cloud_event_come_from_its_headers() {
    everywhere(|world| async move {
        world.db.run(NOTES).await;
        let event = |id: &str, kind: &str, value: &str| {
            Rec::bare(value).header("ce_id", id).header("ce_specversion", "1.0").header("ce_type", kind)
        };
        let placed = "OrderPlaced";
        let records = [
            event("e-1", placed, r#"{"id":"1","n":"a"}"#),
            event("e-1", placed, r#"{"n":"a","id":"1"}"#),
            event("e-1", placed, r#"{"id":"1","n":"b"}"#),
            event("e-2", "OrderVoid", r#"{"id":"2","n":"a"}"#),
            event("e-3", placed, r#"{"before":null,"after":{"id":"3","n":"c"}}"#).header("ce_iodebeziumop", "c"),
        ];
        world.send(&records).await;
        let config = notes("header:ce_id", ":id, :n", "")
            .replace("topic = \"TOPIC\"", "topic = \"TOPIC\", header.ce_type = \"OrderPlaced\"");
        let running = world.start(&config).await;
        running.outcomes(5, "applied=2 duplicate=1 skipped=1 conflict=1").await;
        assert_eq!(world.db.rows("id, body", "FROM notes ORDER BY n").await, ["1|a", "3|c"]);
        running.stop().await;
    });
}
