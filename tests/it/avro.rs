//! Avro through a whole pipeline: framings, writers that take turns, and a registry that does not answer.

use std::time::Duration;

use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use countersign::supervisor::Readiness;
use serde_json::{Value, json};

use crate::broker::Rec;
use crate::database::Engine;
use crate::registry_server::{Kind, RegistryServer, Trouble};
use crate::wait::until;
use crate::world::{World, everywhere, on};

const LEDGER: &str = "CREATE TABLE ledger (n {serial}, id VARCHAR(50) NOT NULL, amount BIGINT, note VARCHAR(50));";

const BOOK: &str = r#"
[[route]]
name = "book"
match = { topic = "TOPIC" }
message_id = "value:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO ledger (id, amount) VALUES (:id, :amount)" }]
"#;

fn booking() -> Value {
    json!({"type": "record", "name": "Booking", "namespace": "my-bank.v1", "fields": [
        {"name": "id", "type": "string"}, {"name": "amount", "type": "long"}]})
}

/// A booking in Avro, without any frame.
fn body(id: &str, amount: i64) -> Vec<u8> {
    encode(&booking(), &[("id", Avro::String(id.to_owned())), ("amount", Avro::Long(amount))])
}

fn encode(schema: &Value, fields: &[(&str, Avro)]) -> Vec<u8> {
    // Namespaces with a hyphen are legal to the crate only after countersign has told it so.
    countersign::debezium::avro::WriterSchema::compile(&schema.to_string(), &[]).unwrap();
    let schema = apache_avro::Schema::parse_str(&schema.to_string()).unwrap();
    let record = Avro::Record(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect());
    GenericDatumWriter::builder(&schema).build().unwrap().write_value_to_vec(record).unwrap()
}

fn four(id: u32, body: &[u8]) -> Rec {
    Rec::bare([&[0][..], &id.to_be_bytes(), body].concat())
}

fn eight(id: u64, body: &[u8]) -> Rec {
    Rec::bare([&[0][..], &id.to_be_bytes(), body].concat())
}

fn with(registry: &RegistryServer, settings: &str) -> String {
    format!("[registry]\nurl = \"{}\"\n{settings}\n{BOOK}", registry.url)
}

async fn ledger(world: &World) -> Vec<String> {
    world.db.rows("id, amount", "FROM ledger ORDER BY n").await
}

/// One registry answers for every framing; an id counts as what its place says it is.
#[test]
fn every_framing_and_json_beside_it_are_read_in_one_topic() {
    everywhere(|world| async move {
        world.db.run(LEDGER).await;
        let registry = RegistryServer::start(Kind::Apicurio2).await;
        // Another schema stands under the number that is this one's of the other kind.
        registry.schema(7, &booking().to_string()).schema(9, r#"{"type":"record","name":"X","fields":[]}"#);
        registry.global(9, 7).global(7, 9);
        let running = world.start(&with(&registry, "flavour = \"apicurio\"")).await;
        world
            .send(&[
                Rec::bare(body("in-headers", 1)).header("apicurio.value.globalId", 9u64.to_be_bytes()),
                Rec::bare(body("by-content", 2)).header("apicurio.value.contentId", 7u64.to_be_bytes()),
                eight(9, &body("eight", 3)),
                four(9, &body("four", 4)),
                Rec::bare(r#"{"id":"json","amount":5}"#),
                eight(9, &body("eight", 3)),
                // The same message from another converter.
                Rec::bare(r#"{"id":"four","amount":4}"#),
                four(9, &body("four", 5)),
            ])
            .await;
        running.outcomes(8, "applied=5 duplicate=2 conflict=1").await;
        assert_eq!(ledger(&world).await, ["in-headers|1", "by-content|2", "eight|3", "four|4", "json|5"]);
        running.stop().await;
    });
}

#[test]
fn an_id_that_nobody_knows_parks_its_records_and_holds_up_no_other() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(57, &booking().to_string());
        let running = world.start(&with(&registry, "")).await;
        world
            .send(&[four(57, &body("a", 1)), four(58, &body("b", 2)), four(58, &body("c", 3)), four(57, &body("d", 4))])
            .await;
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(ledger(&world).await, ["a|1", "d|4"]);
        assert_eq!(world.dead_letters().await, ["1|-|poison|schema_not_found", "2|-|poison|schema_not_found"]);
        assert_eq!(registry.count("/schemas/ids/58"), 5, "asked some times, once for both");
        running.stop().await;
    });
}

#[test]
fn a_schema_that_a_replica_learns_late_is_waited_for() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(58, &booking().to_string()).script([Trouble::Missing, Trouble::Missing]);
        let running = world.start(&with(&registry, "")).await;
        world.send(&[four(58, &body("a", 1))]).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

#[test]
fn an_outage_parks_nothing_and_what_needs_no_registry_goes_on() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let mut registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(57, &booking().to_string()).schema(58, &booking().to_string());
        let running = world.start(&with(&registry, "timeout = \"500ms\"")).await;
        world.send(&[four(57, &body("a", 1))]).await;
        running.outcomes(1, "applied=1").await;
        registry.stop().await;
        // Schemas that are known do not need it; those that stand before the first unknown one do not wait.
        world.send(&[four(57, &body("b", 2)), Rec::bare(r#"{"id":"c","amount":3}"#), four(58, &body("d", 4))]).await;
        running.outcomes(3, "applied=3").await;
        running.stands(Readiness::Degraded, "does not answer").await;
        world.send(&[four(57, &body("e", 5))]).await;
        registry.script([Trouble::Status(503), Trouble::Busy(429, "1".to_owned())]);
        registry.resume().await;
        running.outcomes(5, "applied=5").await;
        assert_eq!(ledger(&world).await, ["a|1", "b|2", "c|3", "d|4", "e|5"]);
        assert!(world.dead_letters().await.is_empty());
        running.ready().await;
        until("all offsets", || async { (world.committed(0)?.0 == 5).then_some(()) }).await;
        running.stop().await;
    });
}

#[test]
fn a_registry_that_lets_nobody_in_stops_the_lane_and_parks_nothing() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(57, &booking().to_string());
        registry.require("Bearer right");
        let wrong = world.start(&with(&registry, "token = \"wr0ng-token\"")).await;
        world.send(&[four(57, &body("a", 1))]).await;
        wrong.stands(Readiness::Degraded, "401").await;
        assert!(!wrong.reasons().1.join(" ").contains("wr0ng"), "no secret in a reason");
        wrong.stop().await;
        assert!(world.dead_letters().await.is_empty());
        let right = world.start(&with(&registry, "token = \"right\"")).await;
        right.outcomes(1, "applied=1").await;
        right.stop().await;
    });
}

#[test]
fn ids_of_another_width_stop_the_lane_and_both_readings_are_named() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let registry = RegistryServer::start(Kind::Apicurio2).await;
        registry.schema(15, &booking().to_string()).global(15, 15);
        world.send(&[eight(15, &body("abc", 3)), eight(15, &body("abd", 3))]).await;
        let confluent = format!("[registry]\nurl = \"{}/apis/ccompat/v7\"\n{BOOK}", registry.url);
        let wrong = world.start(&confluent).await;
        wrong.stands(Readiness::Degraded, "8 bytes it is 15").await;
        wrong.stands(Readiness::Degraded, "4 bytes the schema id of the value is 0").await;
        wrong.stop().await;
        let wrong = world.start(&with(&registry, "flavour = \"apicurio\"\nframing = \"4-byte\"")).await;
        wrong.stands(Readiness::Degraded, "8-byte").await;
        wrong.stop().await;
        assert!(world.dead_letters().await.is_empty());
        let right = world.start(&with(&registry, "flavour = \"apicurio\"\nframing = \"8-byte\"")).await;
        right.outcomes(2, "applied=2").await;
        right.stop().await;
        world.send(&[four(15, &body("abe", 3))]).await;
        let wrong = world.start(&with(&registry, "flavour = \"apicurio\"\nframing = \"8-byte\"")).await;
        wrong.stands(Readiness::Degraded, "4-byte").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(world.dead_letters().await.is_empty());
        wrong.stop().await;
    });
}

#[test]
fn avro_without_a_registry_stops_the_lane_and_says_what_is_missing() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        world.send(&[four(15, &body("abc", 3)), four(15, &body("abd", 4))]).await;
        let running = world.start(BOOK).await;
        running.stands(Readiness::Degraded, "looks like Avro: set `url` in [registry]").await;
        assert!(world.dead_letters().await.is_empty());
        running.stop().await;
    });
}

/// Any bytes may stand in a value. Where others are read, what looks like Avro is the record's trouble and not the
/// configuration's, whether it comes before them or after.
#[test]
fn a_record_that_looks_like_avro_holds_up_no_other() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let json = |id: &str| Rec::bare(format!(r#"{{"id":"{id}","amount":5}}"#));
        world.send(&[four(15, b"?"), json("a")]).await;
        let running = world.start(BOOK).await;
        running.outcomes(2, "applied=1 parked=1").await;
        world.send(&[four(16, b"?")]).await;
        running.outcomes(3, "applied=1 parked=2").await;
        world.send(&[json("b")]).await;
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(world.dead_letters().await, ["0|-|poison|undecodable", "2|-|poison|undecodable"]);
        running.stop().await;
    });
}

#[test]
fn a_lane_that_waits_for_a_schema_obeys_its_operator() {
    everywhere(|world| async move {
        world.db.run(LEDGER).await;
        let mut registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(58, &booking().to_string());
        registry.stop().await;
        let running = world.start(&with(&registry, "timeout = \"300ms\"")).await;
        world.send(&[four(57, &body("a", 1)), four(57, &body("b", 2)), four(57, &body("c", 3))]).await;
        world.send(&[four(58, &body("d", 4)), four(58, &body("e", 5))]).await;
        running.stands(Readiness::Degraded, "does not answer").await;
        let (store, lane) = (&world.db.store, world.lane_key(0));
        assert!(store.pause_lane(&lane, "looking").await.unwrap());
        running.stands(Readiness::Degraded, "looking").await;
        assert!(world.skip_record(0).await);
        running.outcomes(1, "parked=1").await;
        running.stands(Readiness::Degraded, "does not answer").await;
        let row = world.lane(0).await.unwrap();
        assert_eq!((row.skip_to, row.paused, row.next_offset), (None, None, 1), "one skip, one record");
        assert!(store.skip_lane(&lane, 3).await.unwrap());
        running.outcomes(3, "parked=3").await;
        registry.resume().await;
        running.outcomes(5, "applied=2 parked=3").await;
        assert_eq!(ledger(&world).await, ["d|4", "e|5"]);
        let letters = world.dead_letters().await;
        assert!(letters.iter().all(|letter| letter.contains("|operator|")), "{letters:?}");
        running.stop().await;
    });
}

#[test]
fn nobody_waits_for_the_schema_of_a_record_that_no_route_takes() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(LEDGER).await;
        let mut registry = RegistryServer::start(Kind::Confluent).await;
        registry.stop().await;
        let config = with(&registry, "").replace("{ topic = \"TOPIC\" }", "{ topic = \"TOPIC\", header.kind = \"x\" }");
        let running = world.start(&config).await;
        world.send(&[four(57, &body("a", 1)), four(57, &body("b", 1)).header("kind", "y")]).await;
        world.send(&[Rec::bare(r#"{"id":"c","amount":3}"#).header("kind", "x")]).await;
        running.outcomes(3, "applied=1 skipped=2").await;
        running.stop().await;
    });
}

/// Four writers take turns: each record has the names of its own schema, and a field that its writer lacks is absent
/// whatever default a later schema gives it.
#[test]
fn each_record_is_read_by_its_own_writers_schema() {
    everywhere(|world| async move {
        world.db.run("CREATE TABLE items (id BIGINT PRIMARY KEY, sku VARCHAR(20), article_no VARCHAR(20), tier VARCHAR(20) DEFAULT 'none');").await;
        let text = |text: &str| Avro::String(text.to_owned());
        let string = |name: &str| json!({"name": name, "type": "string"});
        let id = json!({"name": "id", "type": "long"});
        let tier = json!({"name": "tier", "type": "string", "default": "standard"});
        let article = json!({"name": "article_no", "type": "string", "aliases": ["sku"]});
        let maybe = json!({"name": "tier", "type": ["null", "string"], "default": null});
        let rows = [
            json!({"type": "record", "name": "Value", "fields": [id, string("sku")]}),
            json!({"type": "record", "name": "Value", "fields": [id, string("sku"), tier]}),
            json!({"type": "record", "name": "Article", "aliases": ["Value"], "fields": [id, article, maybe]}),
            json!({"type": "record", "name": "Value", "fields": [string("sku"), id]}),
        ];
        let registry = RegistryServer::start(Kind::Confluent).await;
        let envelopes: Vec<Value> = rows.iter().map(envelope).collect();
        for (at, envelope) in envelopes.iter().enumerate() {
            registry.schema(at as u64 + 1, &envelope.to_string());
        }
        let record = |schema: usize, id: i64, fields: Vec<(&str, Avro)>| {
            let mut row: Vec<(String, Avro)> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            row.push(("id".to_owned(), Avro::Long(id)));
            let fields = [
                ("before", Avro::Union(0, Box::new(Avro::Null))),
                ("after", Avro::Union(1, Box::new(Avro::Record(row)))),
                ("source", source(id)),
                ("op", text("c")),
            ];
            four(schema as u32, &encode(&envelopes[schema - 1], &fields)).key(format!("{{\"id\":{id}}}"))
        };
        let gold = Avro::Union(0, Box::new(Avro::Null));
        world
            .send(&[
                record(2, 1, vec![("sku", text("s1")), ("tier", text("gold"))]),
                record(1, 2, vec![("sku", text("s2"))]),
                record(3, 3, vec![("article_no", text("s3")), ("tier", gold)]),
                record(4, 4, vec![("sku", text("s4"))]),
                record(1, 5, vec![("sku", text("s5"))]),
            ])
            .await;
        let table = "[[route]]\nname = \"mirror\"\nmatch = { topic = \"TOPIC\" }\nmessage_id = \"source\"\n\
             [route.effect]\nkind = \"table\"\ntable = \"items\"\nkey = [\"id\"]\n";
        let running = world.start(&format!("[registry]\nurl = \"{}\"\n{table}", registry.url)).await;
        running.outcomes(5, "applied=5").await;
        let items = world.db.rows("id, sku, article_no, tier", "FROM items ORDER BY id").await;
        assert_eq!(items, ["1|s1|-|gold", "2|s2|-|none", "3|-|s3|-", "4|s4|-|none", "5|s5|-|none"]);
        running.stop().await;
    });
}

fn envelope(row: &Value) -> Value {
    let name = row["name"].clone();
    let source = json!({"type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql", "fields": [
        {"name": "connector", "type": "string"}, {"name": "name", "type": "string"},
        {"name": "snapshot", "type": [{"type": "string", "connect.name": "io.debezium.data.Enum"}, "null"], "default": "false"},
        {"name": "db", "type": "string"}, {"name": "schema", "type": "string"}, {"name": "table", "type": "string"},
        {"name": "txId", "type": ["null", "long"]}, {"name": "lsn", "type": ["null", "long"]}]});
    json!({"type": "record", "name": "Envelope", "namespace": "shop.item", "fields": [
        {"name": "before", "type": ["null", row], "default": null}, {"name": "after", "type": ["null", name]},
        {"name": "source", "type": source}, {"name": "op", "type": "string"}]})
}

fn source(lsn: i64) -> Avro {
    let text = |text: &str| Avro::String(text.to_owned());
    let long = |long: i64| Avro::Union(1, Box::new(Avro::Long(long)));
    let fields = [
        ("connector", text("postgresql")),
        ("name", text("shop")),
        ("snapshot", Avro::Union(0, Box::new(text("false")))),
        ("db", text("shop")),
        ("schema", text("public")),
        ("table", text("item")),
        ("txId", long(lsn)),
        ("lsn", long(lsn)),
    ];
    Avro::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
