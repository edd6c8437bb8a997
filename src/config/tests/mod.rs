//! Whole files: what is accepted, and what it becomes. Every kind of fault is in the files below.

mod route_faults;
mod section_faults;
mod several_files;
mod warnings;

use std::time::Duration;

use super::*;
use crate::effect::spec::{Answer, EffectSpec, Guard};
use crate::route::{ColumnType, DigestRule, IdRule, Place};

const EXAMPLE: &str = r#"
[pipeline]
name = "payments"                          # scope of dedup, default Kafka group

[kafka]
brokers = "localhost:9092"
topics  = ["shop.payment.events", "^shop\\.orders$"]
[kafka.options]                            # librdkafka pass-through
sasl.mechanism = "SCRAM-SHA-512"
"security.protocol" = "SASL_SSL"
sasl.username = "u"
sasl.password = "${KAFKA_PW}"
socket.timeout.ms = 30000
socket.keepalive.enable = true

[registry]                                 # only for Avro
url = "http://reader:${REGISTRY_PW}@localhost:8081/"
flavour = "confluent"                      # or "apicurio"

[store]
url = "postgres://app:${DB_PW}@localhost/bank"
retention = "14d"

[gate]
url = "redis://:${REDIS_PW}@localhost:6379"
claim_ttl = "15m"
confirm_ttl = "1h"

[receipts]
topic = "payments.receipts"
format = "json"

[http]
listen = "127.0.0.1:8080"
operate_token = "${TOKEN}"

[[route]]
name  = "charge"
match = { topic = "shop.payment.events", header.eventType = "PaymentRequested" }
message_id     = "header:id"
correlation_id = "value:orderId"
source_app     = "header:source"
digest         = { include = ["orderId", "account", "amount"] }

[route.effect]                             # one of: sql, table, http, none
kind = "sql"
steps = [
  { sql = "INSERT INTO ledger(order_id, account, amount) VALUES (:orderId, :account, :amount)" },
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :account AND balance >= :amount", expect_rows = 1, otherwise = "reject" },
]

[[route]]
name  = "orders-mirror"
match = { topic = "shop.orders" }
message_id = "source"
columns = { amount = "decimal(12,2)" }
[route.effect]
kind  = "table"
table = "orders_copy"
key   = ["id"]
guard = "source"
"#;

const SMALL: &str = r#"
[pipeline]
name = "p"
[kafka]
brokers = "k:9092"
topics = ["t"]
[store]
url = "sqlite:a.db"
[[route]]
name = "r"
message_id = "header:id"
effect = { kind = "none" }
"#;

fn env(name: &str) -> Option<String> {
    match name {
        "KAFKA_PW" | "REGISTRY_PW" | "DB_PW" | "REDIS_PW" | "TOKEN" => Some("hunter2".to_owned()),
        "POOL" => Some("7".to_owned()),
        _ => None,
    }
}

fn librdkafka(name: &str, value: &str) -> Result<(), String> {
    match name {
        "securty.protocol" => Err(format!("No such configuration property: \"{name}\"")),
        "socket.timeout.ms" if value == "hunter2" => Err(format!("Invalid value \"{value}\" for property \"{name}\"")),
        _ => Ok(()),
    }
}

const HOST: Host<'static> = Host { env: &env, kafka_option: &librdkafka };

fn parse(text: &str) -> Result<Config, Faults> {
    Config::parse(text, "a.toml", HOST)
}

fn faults(text: &str) -> Vec<String> {
    let faults = parse(text).map(|_| ()).expect_err("has faults");
    let text = faults.to_string();
    assert!(!text.contains("hunter2"), "a secret is shown: {text}");
    text.lines().map(str::to_owned).collect()
}

/// The faults of the small file after one text was replaced.
fn faults_with(from: &str, to: &str) -> Vec<String> {
    assert!(SMALL.contains(from), "{from}");
    faults(&SMALL.replacen(from, to, 1))
}

#[track_caller]
fn assert_fault(from: &str, to: &str, wanted: &str) {
    let found = faults_with(from, to);
    assert!(found.len() == 1 && found[0].contains(wanted), "wanted `{wanted}`, found {found:#?}");
}

#[test]
fn the_documented_example_parses() {
    let config = parse(EXAMPLE).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(config.pipeline.name, "payments");
    assert_eq!(config.kafka.group, "payments");
    assert_eq!(config.kafka.topics.len(), 2);
    assert_eq!(config.kafka.options["sasl.password"].expose(), "hunter2");
    assert_eq!(config.kafka.options["socket.timeout.ms"].expose(), "30000");
    assert_eq!(config.kafka.options["socket.keepalive.enable"].expose(), "true");
    let registry = config.registry.as_ref().expect("has a registry");
    assert_eq!(registry.url, "http://localhost:8081");
    let password = Secret::new("hunter2");
    assert_eq!(registry.auth, RegistryAuth::Basic { username: "reader".into(), password });
    assert_eq!(config.store.url.redacted_url(), "postgres://app:***@localhost/bank");
    assert_eq!(config.store.dialect, Dialect::Postgres);
    assert_eq!(config.store.retention, Retention::For(Duration::from_secs(14 * 86_400)));
    assert!(matches!(&config.gate.backend, GateBackend::Redis(url) if url.expose().contains("hunter2")));
    assert_eq!(config.receipts.topic.as_deref(), Some("payments.receipts"));
    let [charge, mirror] = config.routes.as_slice() else { panic!("two routes") };
    assert_eq!(charge.route.matcher.headers, [("eventType".to_owned(), "PaymentRequested".to_owned())]);
    assert_eq!(charge.route.message_id, [IdRule::Place(Place::Header("id".into()))]);
    assert_eq!(charge.route.digest, DigestRule::Include(vec!["orderId".into(), "account".into(), "amount".into()]));
    let EffectSpec::Sql(steps) = &charge.effect else { panic!("sql") };
    assert_eq!((steps[1].expect_rows, steps[1].otherwise), (Some(1), Answer::Reject));
    assert_eq!(mirror.route.columns, [("amount".to_owned(), ColumnType::Decimal { precision: 12, scale: 2 })]);
    let EffectSpec::Table(table) = &mirror.effect else { panic!("table") };
    assert_eq!((table.guard, table.inbox, table.key.as_slice()), (Guard::Source, true, &["id".to_owned()][..]));
    assert_eq!(config.warnings, []);
}

#[test]
fn no_secret_is_printed_with_the_configuration() {
    let printed = format!("{:#?}", parse(EXAMPLE).expect("parses"));
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(SMALL).unwrap_or_else(|faults| panic!("{faults}"));
    let seconds = Duration::from_secs;
    assert_eq!((config.pipeline.unrouted, config.pipeline.max_id_bytes), (Unrouted::Skip, 1000));
    assert_eq!(config.pipeline.slices, 8);
    let kafka = &config.kafka;
    assert_eq!((kafka.session_timeout, kafka.heartbeat_interval), (seconds(10), seconds(3)));
    assert_eq!((kafka.max_poll_interval, kafka.start), (seconds(300), Start::Earliest));
    assert_eq!((kafka.buffer, kafka.buffer_records), (64 << 20, 1000));
    assert_eq!(kafka.on_lost_offsets, LostOffsets::Earliest);
    let store = &config.store;
    assert_eq!((store.pool, store.batch, store.batch_bytes, store.pooler), (10, 1000, 8 << 20, false));
    assert_eq!(store.transaction_timeout, seconds(30));
    assert_eq!(config.gate.backend, GateBackend::Off);
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.shutdown.drain, seconds(8));
    assert_eq!((config.retry.attempts, config.retry.delay, config.retry.max_delay), (10, seconds(1), seconds(300)));
    assert_eq!((config.pause.parks, config.pause.ratio, config.pause.window), (50, 0.2, 500));
    assert_eq!((config.log.format, config.log.level.as_str()), (LogFormat::Text, "info"));
    assert_eq!(config.decode.placeholder, "__debezium_unavailable_value");
    assert_eq!((config.routes[0].order, config.routes[0].late), (Order::Partition, Late::Park));
}

#[test]
fn a_registry_reaches_its_client_as_configured() {
    let registry = |rest: &str| {
        let config = parse(&format!("{SMALL}\n[registry]\nurl = \"https://an%40n:${{REGISTRY_PW}}@r/x/\"\n{rest}"));
        config.unwrap_or_else(|faults| panic!("{faults}")).registry.expect("a registry")
    };
    let plain = registry("");
    assert_eq!((plain.flavour, plain.ids, plain.framing), (Flavour::Confluent, None, Framing::Auto));
    assert_eq!((plain.url.as_str(), plain.timeout), ("https://r/x", Duration::from_secs(5)));
    let full = registry("flavour = \"apicurio\"\nids = \"content\"\nframing = \"8-byte\"\ntimeout = \"2s\"");
    assert_eq!((full.ids, full.framing), (Some(Ids::Content), Framing::EightByte));
    let client = full.client();
    assert_eq!(
        (client.flavour, client.ids, client.url.as_str()),
        (Flavour::Apicurio, Some(Ids::Content), "https://r/x")
    );
    assert_eq!((client.timeout, client.connect_timeout), (Duration::from_secs(2), Duration::from_secs(2)));
    let (username, password) = ("an@n".to_owned(), "hunter2".to_owned());
    assert_eq!(client.auth, crate::registry::Auth::Basic { username, password });
    assert!(!format!("{full:?} {client:?}").contains("hunter2"));
}

#[test]
fn a_gate_section_without_an_address_is_in_memory() {
    let config = parse(&format!("{SMALL}\n[gate]\nclaim_ttl = \"5m\"")).expect("parses");
    assert_eq!((config.gate.backend, config.gate.claim_ttl), (GateBackend::Memory, Duration::from_secs(300)));
}

#[test]
fn the_environment_fills_numbers_too() {
    let config = parse(&SMALL.replace("[[route]]", "pool = \"${POOL}\"\nbatch = \"${N:-5}\"\n[[route]]"));
    let store = config.unwrap_or_else(|faults| panic!("{faults}")).store;
    assert_eq!((store.pool, store.batch), (7, 5));
    assert_fault("\"p\"", "\"${NAME}\"", "pipeline.name: the environment has no `NAME`");
}

#[test]
fn a_session_is_taken_from_the_options_and_drain_follows_it() {
    let config =
        parse(&SMALL.replace("[store]", "[kafka.options]\nsession.timeout.ms = \"6000\"\n[store]")).expect("parses");
    assert_eq!(config.kafka.session_timeout, Duration::from_secs(6));
    assert_eq!(config.kafka.heartbeat_interval, Duration::from_secs(2));
    assert_eq!(config.shutdown.drain, Duration::from_millis(4800));
    assert!(config.kafka.options.is_empty());
}

#[test]
fn an_empty_instance_id_means_dynamic_membership() {
    let with = |id: &str| {
        let text = format!("[kafka.options]\ngroup.instance.id = \"{id}\"\n[store]");
        parse(&SMALL.replace("[store]", &text)).expect("parses").kafka.options
    };
    assert!(with("").is_empty());
    assert_eq!(with("worker-0")["group.instance.id"].expose(), "worker-0");
}

#[test]
fn times_to_start_from_are_texts_or_toml_dates() {
    for start in ["\"2026-11-29T12:34:56.123Z\"", "2026-11-29T12:34:56.123Z", "2026-11-29 14:34:56.123+02:00"] {
        let config = parse(&SMALL.replace("[store]", &format!("start = {start}\n[store]"))).expect("parses");
        assert_eq!(config.kafka.start, Start::Timestamp(1_795_955_696_123));
    }
}

#[test]
fn the_schema_knows_every_section_and_no_null() {
    let schema = schema();
    let sections: Vec<&String> = schema["properties"].as_object().expect("an object").keys().collect();
    assert_eq!(sections.len(), 13, "{sections:?}");
    assert_eq!(schema["required"].as_array().map(Vec::len), Some(4));
    assert_eq!(schema["properties"]["store"]["properties"]["pool"]["type"], "integer");
    assert!(!schema.to_string().contains("null"), "{schema:#}");
}

/// What a careless hand does to a file never ends in a panic, and never shows a secret.
#[test]
fn no_damage_to_a_file_shows_a_secret() {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let shown = |lines: &[&str]| match parse(&lines.join("\n")) {
        Ok(config) => format!("{config:?}"),
        Err(faults) => faults.to_string(),
    };
    for n in 0..lines.len() {
        let mut damaged = lines.clone();
        damaged.remove(n);
        assert!(!shown(&damaged).contains("hunter2"), "without line {n}: {}", lines[n]);
        let Some((key, value)) = lines[n].split_once('=') else { continue };
        for other in
            [" 7", " true", " []", " {}", " \"\"", " \"${DB_PW}\"", " \"x ${DB_PW}\"", " hunter2", " \"hunter2"]
        {
            let line = format!("{key}={other}");
            damaged = lines.clone();
            damaged[n] = &line;
            let secret_stays_hidden = !shown(&damaged).contains("hunter2");
            let is_no_secret = other.contains("DB_PW") && !value.contains("_PW") && parse(&damaged.join("\n")).is_ok();
            assert!(secret_stays_hidden || is_no_secret, "{line}: {}", shown(&damaged));
        }
    }
}
