//! Every kind of fault of a section, and of sections held against each other.

use super::{SMALL, assert_fault, faults, faults_with};

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
        "a.toml:21: route[1].message_id: is missing: set it (where the MessageId stands: \"header:NAME\"",
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
fn a_fault_is_one_line_whatever_a_key_holds() {
    let found = faults_with("[store]", "\"a\\nb\" = 1\noptions.debug = {}\n[store]");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("a.toml:7: kafka.a b: unknown key"), "{found:#?}");
    assert!(found[1].contains("kafka.options.debug: must be a text"), "{found:#?}");
}

#[test]
fn what_is_missing_is_named_with_its_meaning() {
    let found = faults("[kafka]\n");
    for wanted in [
        "pipeline: is missing: add [pipeline] (who this pipeline is)",
        "kafka.brokers: is missing: set it (`host:port`, several with commas)",
        "kafka.topics: is missing",
        "store: is missing",
        "route: is missing: add a [[route]] (which records",
    ] {
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{wanted} {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn settings_of_the_wrong_form() {
    assert_fault("name = \"p\"", "name = \"p\"\nmax_id_bytes = 0", "must be from 1 to 16384");
    assert_fault("name = \"p\"", "name = \"p\"\nslices = 65", "must be from 1 to 64");
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
    assert_fault("[[route]]", "[decode]\nkey_format = \"avro\"\n[[route]]", "decode.key_format: is \"avro\", whose");
    assert_fault(
        "[[route]]",
        "[decode]\nvalue_format = \"avro\"\n[[route]]",
        "decode.value_format: is \"avro\", whose",
    );
    assert_fault("[[route]]", "[decode]\nvalue_format = \"text\"\n[[route]]", "decode.value_format: `text` is unknown");
    assert_fault("[[route]]", "[route]", "route: must be a list, not a table");
}

#[test]
fn a_registry_that_cannot_be_meant() {
    let found = |rest: &str| faults_with("[[route]]", &format!("[registry]\n{rest}\n[[route]]"));
    for (rest, wanted) in [
        ("url = \"http://r/?token=hunter2\"", "registry.url: has `?` or `#`"),
        ("url = \"http://r/apis/registry/v2\"", "registry.url: is Apicurio's own API: set registry.flavour"),
        ("url = \"http://r/apis/ccompat/v7\"\nflavour = \"apicurio\"", "registry.url: is Confluent's API of Apicurio"),
        ("url = \"http://r\"\nids = \"global\"", "registry.ids: is about Apicurio's ids"),
        ("url = \"http://r\"\nflavour = \"apicurio\"\nids = \"both\"", "write global or content"),
        ("url = \"http://r\"\nframing = \"8-byte\"", "registry.framing: only Apicurio has 8-byte ids"),
        ("url = \"http://r\"\nframing = \"5-byte\"", "registry.framing: `5-byte` is unknown"),
        ("url = \"http://r\"\ntimeout = \"5\"", "registry.timeout: `5` is no duration"),
        ("url = \"http://r\"\ntoken = \"hunter2 \u{fc}\"", "registry.token: has characters that no header"),
        ("url = \"http://r\"\nusername = \"hunter2:x\"", "registry.username: has a colon"),
    ] {
        let found = found(rest);
        assert!(found.len() == 1 && found[0].contains(wanted), "{rest}\n{found:#?}");
        assert!(!found[0].contains("hunter2"), "{found:#?}");
    }
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
fn an_option_that_could_not_be_read_is_not_called_missing() {
    let sasl = "security.protocol = \"SASL_SSL\"\nsasl.mechanism = \"PLAIN\"\nsasl.username = \"u\"\n";
    let found = faults_with("[store]", &format!("[kafka.options]\n{sasl}sasl.password = \"${{NO_PW}}\"\n[store]"));
    assert!(found.len() == 1 && found[0].contains("the environment has no `NO_PW`"), "{found:#?}");
    assert_fault("[store]", &format!("[kafka.options]\n{sasl}[store]"), "needs sasl.password");
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
