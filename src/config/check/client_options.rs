//! `[kafka.options]`: what may be passed on to librdkafka.
//!
//! Architecture invariant: nothing a user writes here is applied after, or instead of, what the offsets, the
//! fence and the order of receipts rest on. Names: librdkafka's CONFIGURATION.md.

use std::collections::BTreeMap;

use super::OptionHook;
use super::option_names::{FREQUENT, JAVA_ONLY, OWNED};
use crate::config::secret::Secret;
use crate::config::spelling::nearest;

/// A fault or warning that several options together give, under the name of the one to change.
pub(super) enum Trouble {
    Fault(String, String),
    Warning(String, String),
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
    if matches!(name, "sasl.mechanism" | "sasl.mechanisms")
        && !MECHANISMS.iter().any(|known| known.eq_ignore_ascii_case(value))
    {
        return Err(format!("is no mechanism of this build: use {}", MECHANISMS.join(", ")));
    }
    hook(name, value).map_err(|why| {
        let why = without_values(&why, name, value);
        match nearest(name, FREQUENT.iter().copied()).filter(|close| *close != name) {
            Some(close) => format!("librdkafka refuses it: {why}; do you mean `{close}`?"),
            None => format!("librdkafka refuses it: {why}"),
        }
    })
}

/// What librdkafka has without libsasl2 (Kerberos) and without curl (tokens). It says so only when a client is
/// made, and then takes the whole client down.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// TLS and SASL settings that do not fit together end in an error without a reason, or in silence.
pub(super) fn combined(options: &BTreeMap<String, Secret>) -> Vec<Trouble> {
    let get = |name: &str| options.get(name).map(Secret::expose);
    let protocol = get("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
    let (sasl, tls) = (protocol.starts_with("sasl"), protocol.ends_with("ssl"));
    let mut troubles = Vec::new();
    if !tls && let Some(name) = options.keys().find(|name| name.starts_with("ssl.")) {
        let why = "has no effect without security.protocol = \"SSL\" or \"SASL_SSL\"";
        troubles.push(Trouble::Warning(name.clone(), why.to_owned()));
    }
    if !sasl {
        if let Some(name) = options.keys().find(|name| name.starts_with("sasl.")) {
            let why = "has no effect without security.protocol = \"SASL_SSL\" or \"SASL_PLAINTEXT\"";
            troubles.push(Trouble::Warning(name.clone(), why.to_owned()));
        }
        return troubles;
    }
    let fault = |why: String| Trouble::Fault("security.protocol".to_owned(), why);
    if get("sasl.mechanism").or(get("sasl.mechanisms")).is_none() {
        troubles.push(fault(format!("needs sasl.mechanism: set it to one of {}", MECHANISMS.join(", "))));
    }
    for wanted in ["sasl.username", "sasl.password"] {
        if get(wanted).is_none_or(str::is_empty) {
            troubles.push(fault(format!("needs {wanted}, which is missing or empty: set it")));
        }
    }
    troubles
}

/// librdkafka quotes values, or parts of them; of what it quotes only the option's name stays.
fn without_values(why: &str, name: &str, value: &str) -> String {
    let why = why.replace(&format!("\"{value}\""), "\"***\"");
    let parts = why.split('"').enumerate();
    let parts: Vec<&str> = parts.map(|(n, part)| if n % 2 == 0 || part == name { part } else { "***" }).collect();
    let why = parts.join("\"");
    // A short value is looked for as a word only, or every letter of a sentence might be one.
    if value.len() > 3 {
        return why.replace(value, "***");
    }
    let hidden = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()) == value;
    why.split(' ').map(|word| if hidden(word) { "***" } else { word }).collect::<Vec<_>>().join(" ")
}

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
            Some("use sasl.mechanism with sasl.username and sasl.password")
        } else if beginning("metrics.") || beginning("metric.") || beginning("auto.include.") {
            Some("leave it out, metrics are served under /metrics")
        } else {
            None
        }
    })
}

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
        let words = without_values("Invalid value \"a\"b1234\" for \"x\"", "x", "a\"b1234");
        assert_eq!(words, "Invalid value \"***\" for \"x\"");
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
        let alone = troubles(&[("security.protocol", "sasl_ssl"), login[0], login[1]]);
        assert!(alone[0].starts_with("fault security.protocol needs sasl.mechanism"), "{alone:?}");
        assert!(troubles(&login)[0].starts_with("warning sasl.password has no effect"));
        assert!(troubles(&[("ssl.ca.location", "x")])[0].starts_with("warning ssl.ca.location has no effect"));
        for mechanism in ["GSSAPI", "OAUTHBEARER", "SCRAM-SHA512"] {
            assert!(judged("sasl.mechanism", mechanism).starts_with("is no mechanism of this build"), "{mechanism}");
        }
        assert!(troubles(&[("security.protocol", "ssl")]).is_empty());
    }
}
