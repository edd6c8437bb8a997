//! `[kafka.options]`: what may be passed on to librdkafka.
//!
//! Architecture invariant: nothing a user writes here is applied after, or instead of, what the offsets, the
//! fence and the order of receipts rest on. Names: librdkafka's CONFIGURATION.md.

use std::collections::BTreeMap;

use super::OptionHook;
use crate::config::secret::Secret;
use crate::config::shape::nearest;

/// A fault or warning that several options together give, under the name of the one to change.
pub(super) enum Trouble {
    Fault(&'static str, String),
    Warning(&'static str, String),
}

pub(super) fn path(name: &str) -> String {
    format!("kafka.options.{name}")
}

/// Whether one option may be passed on; the reason names no value.
pub(super) fn judge(name: &str, value: &str, hook: OptionHook<'_>) -> Result<(), String> {
    if let Some((_, why)) = OWNED.iter().find(|(owned, _)| *owned == name) {
        return Err(format!("cannot be set: {why}"));
    }
    if let Some(instead) = java_only(name) {
        return Err(format!("is a setting of Java clients: {instead}"));
    }
    if name == "partitioner" && value == "random" {
        return Err("`random` would break the order of one key's receipts: use murmur2 or consistent_random".to_owned());
    }
    if matches!(name, "sasl.mechanism" | "sasl.mechanisms") && value.eq_ignore_ascii_case("GSSAPI") {
        return Err("this build has no Kerberos: use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER".to_owned());
    }
    hook(name, value).map_err(|why| {
        let why = without_values(&why, name, value);
        match nearest(name, FREQUENT.iter().copied()).filter(|close| *close != name) {
            Some(close) => format!("librdkafka refuses it: {why}; do you mean `{close}`?"),
            None => format!("librdkafka refuses it: {why}"),
        }
    })
}

/// SASL settings that do not fit together end in an error without a reason, or in silence.
pub(super) fn combined(options: &BTreeMap<String, Secret>) -> Vec<Trouble> {
    let get = |name: &str| options.get(name).map(Secret::expose);
    let sasl = get("security.protocol").is_some_and(|protocol| protocol.to_ascii_lowercase().starts_with("sasl"));
    let (name, mechanism) = match (get("sasl.mechanism"), get("sasl.mechanisms")) {
        (Some(mechanism), _) => ("sasl.mechanism", mechanism),
        (None, Some(mechanism)) => ("sasl.mechanisms", mechanism),
        (None, None) if sasl => {
            let why = "asks for SASL without a mechanism: set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 \
                       or OAUTHBEARER";
            return vec![Trouble::Fault("security.protocol", why.to_owned())];
        }
        (None, None) => return Vec::new(),
    };
    if !sasl {
        let why = "has no effect without security.protocol = \"SASL_SSL\" or \"SASL_PLAINTEXT\"";
        return vec![Trouble::Warning(name, why.to_owned())];
    }
    let mechanism = mechanism.to_ascii_uppercase();
    let with_password = mechanism == "PLAIN" || mechanism.starts_with("SCRAM-");
    ["sasl.username", "sasl.password"]
        .into_iter()
        .filter(|wanted| with_password && get(wanted).is_none_or(str::is_empty))
        .map(|wanted| Trouble::Fault(name, format!("needs {wanted}, which is missing")))
        .collect()
}

/// librdkafka quotes values; only the option's name may stay in its message.
fn without_values(why: &str, name: &str, value: &str) -> String {
    let quoted: Vec<&str> =
        why.split('"').enumerate().map(|(n, part)| if n % 2 == 0 || part == name { part } else { "***" }).collect();
    let why = quoted.join("\"");
    if value.is_empty() { why } else { why.replace(value, "***") }
}

const OFFSETS: &str = "offsets are stored after the commit in the database";
const OWN_SETTING: &str = "countersign sets it";
const ORDER: &str = "the order and the delivery of receipts rest on it";

/// Names that safety rests on, or that our own settings stand for, with the reason.
const OWNED: [(&str, &str); 44] = [
    ("bootstrap.servers", "use kafka.brokers"),
    ("metadata.broker.list", "use kafka.brokers"),
    ("test.mock.num.brokers", "it would replace the brokers by simulated ones"),
    ("group.id", "use kafka.group"),
    ("group.protocol", "fencing rests on the classic protocol"),
    ("group.protocol.type", "fencing rests on the classic protocol"),
    ("group.remote.assignor", "fencing rests on the classic protocol"),
    ("partition.assignment.strategy", "countersign uses cooperative-sticky"),
    ("topic.blacklist", "records would be left out without a trace: write kafka.topics so that they do not match"),
    ("enable.auto.commit", OFFSETS),
    ("auto.commit.enable", OFFSETS),
    ("auto.commit.interval.ms", OFFSETS),
    ("enable.auto.offset.store", OFFSETS),
    ("offset.store.method", OFFSETS),
    ("offset.store.path", OFFSETS),
    ("offset.store.sync.interval.ms", OFFSETS),
    ("auto.offset.reset", "use kafka.start and kafka.on_lost_offsets: a reset must never jump over records unseen"),
    ("isolation.level", "records of aborted transactions must not be applied"),
    ("enable.partition.eof", "gaps at the end of a partition are told by it"),
    ("queued.min.messages", "use kafka.buffer_records"),
    ("queued.max.messages.kbytes", "use kafka.buffer"),
    ("consume.callback.max.messages", OWN_SETTING),
    ("statistics.interval.ms", OWN_SETTING),
    ("enabled_events", OWN_SETTING),
    ("log.queue", OWN_SETTING),
    ("enable.random.seed", OWN_SETTING),
    ("internal.termination.signal", OWN_SETTING),
    ("enable.idempotence", ORDER),
    ("enable.gapless.guarantee", ORDER),
    ("acks", ORDER),
    ("request.required.acks", ORDER),
    ("max.in.flight", ORDER),
    ("max.in.flight.requests.per.connection", ORDER),
    ("retries", ORDER),
    ("message.send.max.retries", ORDER),
    ("message.timeout.ms", ORDER),
    ("delivery.timeout.ms", ORDER),
    ("queuing.strategy", ORDER),
    ("msg_order_cmp", ORDER),
    ("delivery.report.only.error", ORDER),
    ("produce.offset.report", ORDER),
    ("transactional.id", ORDER),
    ("transaction.timeout.ms", ORDER),
    ("api.version.request", "idempotence and record headers need it"),
];

/// What to write instead of a name that only Java clients know.
fn java_only(name: &str) -> Option<&'static str> {
    JAVA_ONLY.iter().find(|(java, _)| *java == name).map(|(_, instead)| *instead).or_else(|| {
        let beginning = |prefix: &str| name.starts_with(prefix);
        if beginning("ssl.truststore.") {
            Some("use ssl.ca.location, a PEM file with the authorities, or ssl.ca.pem")
        } else if beginning("key.") || beginning("value.") {
            Some("leave it out, countersign finds out the format itself ([registry] for Avro)")
        } else if beginning("schema.registry.") || beginning("basic.auth.") || beginning("bearer.auth.") {
            Some("use the section [registry]")
        } else if beginning("sasl.login.") || beginning("sasl.client.") || beginning("sasl.server.") {
            Some("use sasl.mechanism with sasl.username and sasl.password, or sasl.oauthbearer.*")
        } else if beginning("metrics.") || beginning("metric.") || beginning("auto.include.") {
            Some("leave it out, metrics are served under /metrics")
        } else {
            None
        }
    })
}

const JAVA_ONLY: [(&str, &str); 32] = [
    ("sasl.jaas.config", "use sasl.username and sasl.password"),
    ("sasl.oauthbearer.jwks.endpoint.url", "use sasl.oauthbearer.token.endpoint.url"),
    (
        "ssl.keystore.type",
        "leave it out: ssl.keystore.location is a PKCS#12 file, ssl.certificate.location and \
                           ssl.key.location are PEM files",
    ),
    ("ssl.keystore.key", "use ssl.key.pem"),
    ("ssl.keystore.certificate.chain", "use ssl.certificate.pem"),
    ("ssl.protocol", "leave it out, the newest protocol is agreed on"),
    ("ssl.enabled.protocols", "leave it out, the newest protocol is agreed on"),
    ("ssl.provider", "use ssl.providers"),
    ("ssl.keymanager.algorithm", "leave it out"),
    ("ssl.trustmanager.algorithm", "leave it out"),
    ("ssl.secure.random.implementation", "leave it out"),
    ("ssl.engine.factory.class", "leave it out"),
    ("ssl.client.auth", "leave it out, it is a setting of brokers"),
    ("security.providers", "leave it out"),
    ("max.poll.records", "use store.batch"),
    ("default.api.timeout.ms", "use socket.timeout.ms"),
    ("fetch.max.wait.ms", "use fetch.wait.max.ms"),
    ("receive.buffer.bytes", "use socket.receive.buffer.bytes"),
    ("send.buffer.bytes", "use socket.send.buffer.bytes"),
    ("socket.connection.setup.timeout.max.ms", "use socket.connection.setup.timeout.ms"),
    ("buffer.memory", "use queue.buffering.max.kbytes"),
    ("max.block.ms", "leave it out"),
    ("max.request.size", "use message.max.bytes"),
    ("metadata.max.idle.ms", "use metadata.max.age.ms"),
    ("exclude.internal.topics", "leave it out: name the topics in kafka.topics"),
    ("group.max.session.timeout.ms", "leave it out, it is a setting of brokers"),
    ("group.min.session.timeout.ms", "leave it out, it is a setting of brokers"),
    ("interceptor.classes", "leave it out"),
    ("internal.leave.group.on.close", "leave it out"),
    ("partitioner.class", "use partitioner, for example murmur2_random"),
    ("partitioner.ignore.keys", "leave it out, receipts go by their key"),
    ("config.providers", "leave it out: `${ENV}` and `file:/path` are understood in every setting here"),
];

/// Names that people misspell.
const FREQUENT: [&str; 34] = [
    "client.id",
    "client.rack",
    "compression.type",
    "connections.max.idle.ms",
    "debug",
    "enable.ssl.certificate.verification",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.instance.id",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.poll.interval.ms",
    "message.max.bytes",
    "metadata.max.age.ms",
    "partitioner",
    "receive.message.max.bytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "sasl.mechanism",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What librdkafka says, in its words.
    fn librdkafka(name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("security.protocol", "hunter2") => {
                Err("Invalid value \"hunter2\" for configuration property \"security.protocol\"".to_owned())
            }
            ("securty.protocol", _) => Err("No such configuration property: \"securty.protocol\"".to_owned()),
            ("socket.timeout.ms", "5") => {
                Err("Configuration property \"socket.timeout.ms\" value 5 is outside allowed range".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn judged(name: &str, value: &str) -> String {
        judge(name, value, &librdkafka).expect_err(name)
    }

    #[test]
    fn what_safety_rests_on_cannot_be_set() {
        for name in [
            "group.id",
            "bootstrap.servers",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
            "isolation.level",
            "enable.idempotence",
            "enable.partition.eof",
            "partition.assignment.strategy",
            "statistics.interval.ms",
            "queued.max.messages.kbytes",
            "queued.min.messages",
            "acks",
            "max.in.flight",
            "message.timeout.ms",
        ] {
            assert!(judged(name, "x").starts_with("cannot be set: "), "{name}");
        }
    }

    #[test]
    fn names_of_java_clients_are_translated() {
        for (name, instead) in [
            ("sasl.jaas.config", "sasl.username and sasl.password"),
            ("ssl.truststore.location", "ssl.ca.location"),
            ("ssl.truststore.password", "ssl.ca.location"),
            ("ssl.keystore.type", "ssl.certificate.location"),
            ("max.poll.records", "store.batch"),
            ("value.deserializer", "[registry]"),
        ] {
            let why = judged(name, "hf-secret-pw");
            assert!(why.starts_with("is a setting of Java clients: ") && why.contains(instead), "{why}");
            assert!(!why.contains("hf-secret-pw"), "{why}");
        }
        assert_eq!(judge("ssl.keystore.location", "a.p12", &librdkafka), Ok(()));
        assert_eq!(judge("group.instance.id", "worker-0", &librdkafka), Ok(()));
    }

    #[test]
    fn librdkafka_is_asked_and_its_words_lose_the_values() {
        assert!(judged("securty.protocol", "SSL").ends_with("do you mean `security.protocol`?"));
        for why in [judged("security.protocol", "hunter2"), judged("socket.timeout.ms", "5")] {
            assert!(why.contains("***") && !why.contains("hunter2") && !why.contains('5'), "{why}");
        }
    }

    #[test]
    fn sasl_settings_must_fit_together() {
        let troubles = |pairs: &[(&str, &str)]| {
            let options = pairs.iter().map(|(k, v)| ((*k).to_owned(), Secret::new(*v))).collect();
            combined(&options)
                .into_iter()
                .map(|trouble| match trouble {
                    Trouble::Fault(name, why) => format!("fault {name} {why}"),
                    Trouble::Warning(name, why) => format!("warning {name} {why}"),
                })
                .collect::<Vec<_>>()
        };
        let login = [("sasl.username", "u"), ("sasl.password", "p")];
        let plain = [("security.protocol", "SASL_SSL"), ("sasl.mechanism", "PLAIN")];
        assert!(troubles(&[plain.as_slice(), &login].concat()).is_empty());
        assert_eq!(troubles(&plain).len(), 2);
        assert!(troubles(&[("security.protocol", "sasl_ssl")])[0].starts_with("fault security.protocol asks for SASL"));
        assert!(troubles(&[("sasl.mechanism", "PLAIN")])[0].starts_with("warning sasl.mechanism has no effect"));
        assert!(troubles(&[("security.protocol", "ssl")]).is_empty());
    }
}
