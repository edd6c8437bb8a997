//! Whole files: what is accepted, and every kind of fault.

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
    let kafka = &config.kafka;
    assert_eq!((kafka.session_timeout, kafka.heartbeat_interval), (seconds(10), seconds(3)));
    assert_eq!((kafka.max_poll_interval, kafka.start), (seconds(300), Start::Earliest));
    assert_eq!((kafka.buffer, kafka.buffer_records), (64 << 20, 10_000));
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
fn a_gate_section_without_an_address_is_in_memory() {
    let config = parse(&format!("{SMALL}\n[gate]\nclaim_ttl = \"5m\"")).expect("parses");
    assert_eq!((config.gate.backend, config.gate.claim_ttl), (GateBackend::Memory, Duration::from_secs(300)));
}

#[test]
fn five_faults_in_one_run_with_their_lines() {
    let text = r#"[pipeline]
name = "Pay"
[kafka]
broker = "k:9092"
brokers = "k:9092"
topics = "t"
[store]
url = "sqlite:a.db"
retentoin = "3d"
[shutdown]
drain = "1m"
[[route]]
name = "r"
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [
  { sql = "SELECT :a" },
  { sql = "SELECT ?", otherwise = "reject" },
]
[[route]]
name = "q"
effect = { kind = "http" }
"#;
    let found = faults(text);
    for (line, wanted) in [
        "a.toml:2: pipeline.name: `Pay` is no name",
        "a.toml:4: kafka.broker: unknown key: do you mean `brokers`?",
        "a.toml:6: kafka.topics: must be a list, not a text",
        "a.toml:9: store.retentoin: unknown key: do you mean `retention`?",
        "a.toml:11: shutdown.drain: 1m is not below the session time-out of 10s",
        "a.toml:19: route[0].effect.steps[1].otherwise: has nothing to compare with",
        "a.toml:19: route[0].effect.steps[1].sql: `?` and `$n` cannot be used",
        "a.toml:21: route[1].message_id: is missing: Where the MessageId stands",
        "a.toml:23: route[1].effect.kind: `http` is not available in this version: use sql, table or none",
    ]
    .iter()
    .enumerate()
    {
        assert!(found.get(line).is_some_and(|found| found.starts_with(wanted)), "{wanted}\n{found:#?}");
    }
    assert_eq!(found.len(), 9, "{found:#?}");
}

#[test]
fn what_is_missing_is_named_with_its_meaning() {
    let found = faults("[kafka]\n");
    for wanted in
        ["pipeline: is missing", "kafka.brokers: is missing", "kafka.topics", "store: is missing", "route: is missing"]
    {
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{wanted} {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn settings_of_the_wrong_form() {
    assert_fault("name = \"p\"", "name = \"p\"\nmax_id_bytes = 0", "must be from 1 to 16384");
    assert_fault("name = \"p\"", "name = 7", "pipeline.name: must be a text, not an integer");
    assert_fault("name = \"p\"", "name = \"p\"\nunrouted = \"drop\"", "write skip or park");
    assert_fault("[\"t\"]", "[]", "kafka.topics: must have at least one entry");
    assert_fault("[\"t\"]", "[\"t\", 7]", "kafka.topics[1]: must be a text, not an integer");
    assert_fault("[\"t\"]", "[\"t\", \"a b\"]", "`a b` is no topic name");
    assert_fault("[\"t\"]", "[\"t\", \"t\"]", "listed twice");
    assert_fault("[\"t\"]", "[\"^t(\"]", "`^t(` is no regular expression: unclosed group");
    assert_fault("k:9092", "k:x", "is no list of brokers");
    assert_fault("[store]", "group = \"\"\n[store]", "kafka.group: is empty");
    assert_fault("[store]", "start = \"2026-11-29T12:34:56\"\n[store]", "is no start");
    assert_fault("[store]", "start = \"yesterday\"\n[store]", "`yesterday` is no start");
    assert_fault("[store]", "buffer = \"64MB\"\n[store]", "`64MB` is no size");
    assert_fault("[store]", "buffer = 1000\n[store]", "kafka.buffer: is too small");
    assert_fault("[store]", "on_lost_offsets = \"latest\"\n[store]", "write earliest or stop");
    assert_fault("sqlite:a.db", "sqlite::memory:", "store.url: keeps the database in memory");
    assert_fault("sqlite:a.db", "postgres://u:hunter2#@h/d", "store.url: is no address");
    assert_fault("[[route]]", "retention = \"soon\"\n[[route]]", "`soon` is no retention");
    assert_fault("[[route]]", "pool = \"ten\"\n[[route]]", "store.pool: must be an integer, not a text");
    assert_fault("[[route]]", "transaction_timeout = \"5\"\n[[route]]", "`5` is no duration");
    assert_fault("[[route]]", "[gate]\nurl = \"http://hunter2\"\n[[route]]", "gate.url: is no gate");
    assert_fault("[[route]]", "[registry]\nurl = \"x\"\n[[route]]", "registry.url: is no address of a registry");
    assert_fault("[[route]]", "[receipts]\nformat = \"avro\"\n[[route]]", "`avro` is not available in this version");
    assert_fault("[[route]]", "[http]\nlisten = \":80\"\n[[route]]", "`:80` is no address to listen at");
    assert_fault("[[route]]", "[http]\nread_token = \"${NO:-}\"\n[[route]]", "http.read_token: is empty");
    assert_fault("[[route]]", "[log]\nlevel = \"a=b=c\"\n[[route]]", "`a=b=c` is no filter");
    assert_fault("[[route]]", "[pause]\nratio = 2\n[[route]]", "must be from 0.001 to 1");
    assert_fault("[[route]]", "[pause]\nparks = 501\n[[route]]", "is above pause.window");
    assert_fault("[[route]]", "[retry]\nmax_delay = \"10ms\"\n[[route]]", "10ms is below retry.delay = 1s");
    assert_fault("[[route]]", "[decode]\nplaceholder = \"\"\n[[route]]", "decode.placeholder: is empty");
    assert_fault("[[route]]", "[route]", "route: must be a list, not a table");
}

#[test]
fn routes_of_the_wrong_form() {
    let route = "message_id = \"header:id\"";
    let with = |more: &str| format!("{route}\n{more}");
    assert_fault(route, "", "route[0].message_id: is missing");
    assert_fault(route, "message_id = []", "message_id: must have at least one entry");
    assert_fault(route, "message_id = [\"header:id\", \"id\"]", "message_id[1]: `id` is no place of an id");
    assert_fault(route, &with("correlation_id = \"source\""), "`source` is no place");
    assert_fault(route, &with("order = \"key\""), "`key` is not available in this version: use partition");
    assert_fault(route, &with("columns = { a = \"money\" }"), "route[0].columns.a: `money` is no type");
    assert_fault(route, &with("match = { op = [\"c\", \"x\"] }"), "match.op[1]: `x` is no operation");
    assert_fault(route, &with("match = { table = \"a..b\" }"), "match.table: is no table");
    assert_fault(route, &with("match = { topic = \"^(\" }"), "match.topic: `^(` is no regular expression");
    assert_fault(route, &with("digest = { include = [\"a..b\"] }"), "digest.include[0]: `a..b` is no path");
    assert_fault(route, &with("snapshot = \"never\""), "write apply or skip");
    assert_fault("name = \"r\"", "name = \"R!\"", "`R!` is no name");
    let second = "[[route]]\nname = \"r\"\nmessage_id = \"source\"\neffect = { kind = \"none\" }\n[[route]]";
    assert_fault("[[route]]", second, "route[1].name: `r` is the name of an earlier route");
}

#[test]
fn effects_of_the_wrong_form() {
    let none = "{ kind = \"none\" }";
    assert_fault(none, "{ }", "route[0].effect.kind: is missing: one of sql, table, none");
    assert_fault(none, "{ kind = \"sql\" }", "effect.steps: is missing");
    assert_fault(none, "{ kind = \"sql\", steps = [] }", "effect.steps: must have at least one entry");
    assert_fault(none, "{ kind = \"sql\", steps = [{ sql = \"SELECT 1; SELECT 2\" }] }", "a step is one statement");
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\", code = \"a b\", expect_rows = 1 }] }",
        "is no code",
    );
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\", on_check = \"drop\" }] }",
        "reject, ignore, retry or park",
    );
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\" }], guard = \"source\" }",
        "effect.guard: unknown key",
    );
    let table = |more: &str| format!("{{ kind = \"table\", table = \"t\", key = [\"id\"]{more} }}");
    assert_fault(none, &table(", inbox = false"), "effect.inbox: may be false only with guard");
    assert_fault(none, &table(", rename = { a = \"x\", b = \"x\" }"), "rename.b: takes a field that fills another");
    assert_fault(none, &table("").replace("\"t\"", "\"a.b.c\""), "more than two parts");
    assert_fault(none, &table("").replace("\"t\"", "\"countersign_inbox\""), "countersign's own tables");
    assert_fault(none, &table("").replace("\"id\"", "\"i`d\""), "effect.key[0]: is no identifier");
    assert!(parse(&SMALL.replace(none, &table(", inbox = false, guard = \"source\""))).is_ok());
}

#[test]
fn settings_that_do_not_fit_together() {
    let options = |text: &str| format!("[kafka.options]\n{text}\n[store]");
    assert_fault("[store]", &options("session.timeout.ms = 6000\nheartbeat.interval.ms = 6000"), "6s is not below");
    assert_fault("[store]", &options("max.poll.interval.ms = 10000"), "session.timeout.ms: 10s is not below");
    assert_fault("[[route]]", "[shutdown]\ndrain = \"10s\"\n[[route]]", "10s is not below the session time-out");
    assert_fault("[[route]]", "[gate]\nclaim_ttl = \"30s\"\n[[route]]", "30s is not above store.transaction_timeout");
    assert_fault(
        "[[route]]",
        "retention = \"30m\"\n[gate]\nurl = \"memory\"\n[[route]]",
        "30m is below gate.confirm_ttl",
    );
    assert_fault("[[route]]", "[receipts]\ntopic = \"t\"\n[[route]]", "receipts.topic: is one of kafka.topics");
    let matched =
        faults(&SMALL.replace("[\"t\"]", "[\"^r\"]").replace("[[route]]", "[receipts]\ntopic = \"r.1\"\n[[route]]"));
    assert!(matched[0].contains("matched by a regex"), "{matched:#?}");
}

#[test]
fn options_that_librdkafka_or_safety_refuse() {
    let found = faults_with(
        "[store]",
        "[kafka.options]\nenable.auto.commit = true\nsasl.jaas.config = \"x hunter2\"\nsecurty.protocol = \"hunter2\"\n\
         socket.timeout.ms = \"hunter2\"\nsession.timeout.ms = \"hunter2\"\n[store]",
    );
    assert_eq!(found.len(), 5, "{found:#?}");
    for (n, wanted) in [
        "a.toml:8: kafka.options.enable.auto.commit: cannot be set",
        "a.toml:9: kafka.options.sasl.jaas.config: is a setting of Java clients",
        "a.toml:10: kafka.options.securty.protocol: librdkafka refuses it",
        "a.toml:11: kafka.options.socket.timeout.ms: librdkafka refuses it",
        "a.toml:12: kafka.options.session.timeout.ms: must be a number of milliseconds",
    ]
    .iter()
    .enumerate()
    {
        assert!(found[n].starts_with(wanted), "{wanted}\n{found:#?}");
    }
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let warnings = |text: &str| -> Vec<String> {
        let config = parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        config.warnings.iter().map(ToString::to_string).collect()
    };
    assert!(warnings(SMALL).is_empty());
    let found = warnings(&SMALL.replace("effect =", "match = { topic = \"x\" }\neffect ="));
    assert!(found[0].starts_with("a.toml:12: route[0].match.topic: can match none of kafka.topics"), "{found:#?}");
    let sql = "effect = { kind = \"sql\", steps = [{ sql = \"SELECT 1\" }] }";
    let source = SMALL.replace("effect = { kind = \"none\" }", sql).replace("header:id", "source");
    assert!(warnings(&source)[0].contains("snapshot reads are skipped"), "{source}");
    assert!(warnings(&source.replace(sql, &format!("snapshot = \"skip\"\n{sql}"))).is_empty());
    let twice = format!("{SMALL}\n[[route]]\nname = \"s\"\nmessage_id = \"key\"\neffect = {{ kind = \"none\" }}");
    assert!(warnings(&twice)[0].contains("route[1].scope: is the same as that of route r"));
    assert!(warnings(&format!("{twice}\n[route.x]").replace("[route.x]", "scope = \"s\"")).is_empty());
    let open = SMALL.replace("[[route]]", "[http]\nlisten = \"0.0.0.0:8080\"\n[[route]]");
    assert!(warnings(&open)[0].contains("reachable from other machines"));
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
fn times_to_start_from_are_texts_or_toml_dates() {
    for start in ["\"2026-11-29T12:34:56.123Z\"", "2026-11-29T12:34:56.123Z", "2026-11-29 14:34:56.123+02:00"] {
        let config = parse(&SMALL.replace("[store]", &format!("start = {start}\n[store]"))).expect("parses");
        assert_eq!(config.kafka.start, Start::Timestamp(1_795_955_696_123));
    }
}

#[test]
fn a_pool_smaller_than_the_lanes_is_told() {
    let config = parse(&SMALL.replace("sqlite:a.db", "mysql://u@h/d")).expect("parses");
    assert_eq!(config.check_pool(8), None);
    assert!(config.check_pool(9).is_some_and(|text| text.contains("set it to 11 or more")));
    assert_eq!(parse(SMALL).expect("parses").check_pool(100), None);
}

/// A folder of its own for each test.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("countersign-config-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

#[test]
fn a_folder_is_a_pipeline_a_file() {
    let second = SMALL.replace("\"p\"", "\"q\"");
    let with_http = format!("{SMALL}\n[http]\nlisten = \"127.0.0.1:9\"");
    let folder = folder("several", &[("b.toml", &second), ("a.toml", &with_http), (".c.toml", "x"), ("d.txt", "x")]);
    let configs = load(std::slice::from_ref(&folder), HOST);
    std::fs::remove_dir_all(&folder).expect("removed");
    let configs = configs.unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(configs.iter().map(|config| config.pipeline.name.as_str()).collect::<Vec<_>>(), ["p", "q"]);
    assert!(configs.iter().all(|config| config.http.listen.port() == 9), "one HTTP side for the process");
}

#[test]
fn files_are_checked_together() {
    let other = SMALL.replace("\"p\"", "\"q\"").replace("topics", "group = \"p\"\ntopics");
    let http =
        |port: u16| format!("{SMALL}\n[http]\nlisten = \"127.0.0.1:{port}\"").replace("\"p\"", &format!("\"h{port}\""));
    let files = [
        ("a.toml", SMALL),
        ("b.toml", SMALL),
        ("c.toml", &other),
        ("d.toml", &http(1)),
        ("e.toml", &http(2)),
        ("f.toml", "x"),
    ];
    let folder = folder("together", &files);
    let found = load(&[folder.clone(), folder.join("none.toml")], HOST).map(|_| ()).expect_err("has faults");
    std::fs::remove_dir_all(&folder).expect("removed");
    let text = found.to_string();
    for wanted in [
        "b.toml: pipeline.name: `p` is the pipeline of",
        "c.toml: kafka.group: is the group of pipeline `p` too",
        "e.toml: http: differs from that of another file",
        "f.toml:1: not valid TOML",
        "none.toml: cannot be read",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(load(&[], HOST).is_err());
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
