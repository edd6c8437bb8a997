//! The gate: reachable, fit for its commands, and large enough for what it is to remember.
//!
//! It proves nothing, so nothing here can cost an effect or make a second one; what is found costs speed.

use std::time::Duration;

use super::span::{bytes, show};
use super::{Check, within};
use crate::config::{Config, GateBackend, GateOptions};
use crate::gate::inspect::{RedisFacts, RedisUnanswered, inspect};

const ASK: Duration = Duration::from_secs(5);
/// A confirmed key with its mark and what Redis keeps about both, measured on Redis 7.
const KEY_BYTES: u64 = 250;

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let options = &config.gate;
    match &options.backend {
        GateBackend::Off => vec![Check::ok("gate", "off: every message asks the inbox")],
        GateBackend::Memory => vec![Check::ok("gate", memory(options))],
        GateBackend::Redis(url) => {
            let mut rest = Vec::new();
            let first = within("gate", 2 * ASK, async {
                match inspect(url.expose(), &config.pipeline.name, ASK).await {
                    Ok(facts) => {
                        rest = judged(options, &facts);
                        Check::ok("gate", reached(&url.redacted_url(), &facts))
                    }
                    Err(why) => not_reached(&url.redacted_url(), &why),
                }
            });
            let first = first.await;
            std::iter::once(first).chain(rest).collect()
        }
    }
}

fn memory(options: &GateOptions) -> String {
    let fits = rate(options.memory_bytes as u64, options.confirm_ttl);
    format!(
        "in this process's memory, {}: room for {fits} messages per second over {}; each instance has its own, so that \
         with several a redis:// gate saves more",
        bytes(options.memory_bytes as u64),
        show(options.confirm_ttl),
    )
}

fn reached(address: &str, facts: &RedisFacts) -> String {
    let replicas = match facts.replicas {
        0 => String::new(),
        n => format!(", {n} replicas: what a failover loses is asked from the inbox"),
    };
    format!("redis {} answers at {address}{replicas}", facts.version)
}

fn not_reached(address: &str, why: &RedisUnanswered) -> Check {
    match why {
        RedisUnanswered::Unreachable(reason) => Check::unreachable(
            "gate",
            format!("no answer from {address}: {reason}"),
            "correct `[gate] url`, start Redis, or set it to \"off\": until then the inbox does all the work",
        ),
        RedisUnanswered::Refused(reason) => Check::fail(
            "gate",
            format!("redis at {address} did not let us in: {reason}"),
            "correct user, password and database in `[gate] url`",
        ),
    }
}

fn judged(options: &GateOptions, facts: &RedisFacts) -> Vec<Check> {
    let mut checks = vec![commands(facts)];
    checks.push(eviction(facts));
    checks.push(capacity(options, facts));
    checks
}

fn commands(facts: &RedisFacts) -> Check {
    let name = "gate commands";
    let Some(refused) = &facts.refused else {
        return Check::ok(name, "SET, MGET and EVAL go through");
    };
    let remedy = if facts.cluster {
        "use a Redis without cluster mode: one question is about keys of many slots"
    } else if facts.replica {
        "name the primary in `[gate] url`: this is a replica"
    } else {
        "allow the user SET, MGET and EVAL on keys that begin with countersign:, and free memory if it is full"
    };
    Check::fail(name, format!("redis does not do what the gate asks: {refused}"), remedy)
}

/// All keys of the gate expire, so that the `volatile-` policies evict them as the `allkeys-` ones do.
fn eviction(facts: &RedisFacts) -> Check {
    let name = "gate eviction";
    let policy = &facts.policy;
    if facts.max_memory == 0 {
        return Check::ok(name, "no maxmemory: nothing is evicted, keys go when they expire");
    }
    if policy == "noeviction" {
        return Check::ok(name, "noeviction: a full Redis takes no more claims, and the inbox is asked instead");
    }
    Check::warn(
        name,
        format!(
            "maxmemory-policy is {policy}: claims and marks may be evicted; each costs a question to the inbox, none an effect"
        ),
        "set maxmemory-policy to noeviction, or give Redis enough memory that nothing is evicted",
    )
}

fn capacity(options: &GateOptions, facts: &RedisFacts) -> Check {
    let name = "gate memory";
    let ttl = show(options.confirm_ttl);
    if facts.max_memory == 0 {
        let need = options.confirm_ttl.as_secs().saturating_mul(1000 * KEY_BYTES);
        let detail = format!("no maxmemory; 1000 messages per second over confirm_ttl = {ttl} take {}", bytes(need));
        return Check::ok(name, detail);
    }
    let free = facts.max_memory.saturating_sub(facts.used_memory);
    let fits = rate(free, options.confirm_ttl);
    let detail = format!(
        "{} of {} free: room for {fits} messages per second over confirm_ttl = {ttl}",
        bytes(free),
        bytes(facts.max_memory)
    );
    if fits == 0 {
        return Check::warn(name, detail, "raise maxmemory or shorten `[gate] confirm_ttl`");
    }
    Check::ok(name, detail)
}

/// Confirmed messages per second whose keys fit until they expire.
fn rate(room: u64, ttl: Duration) -> u64 {
    room / KEY_BYTES / ttl.as_secs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Outcome;

    fn facts(policy: &str, max_memory: u64) -> RedisFacts {
        RedisFacts {
            version: "7".to_owned(),
            max_memory,
            used_memory: 0,
            policy: policy.to_owned(),
            replica: false,
            replicas: 0,
            cluster: false,
            refused: None,
        }
    }

    #[test]
    fn whatever_evicts_is_a_warning() {
        for (policy, max_memory, outcome) in [
            ("noeviction", 1 << 30, Outcome::Ok),
            ("allkeys-lru", 1 << 30, Outcome::Warn),
            ("volatile-ttl", 1 << 30, Outcome::Warn),
            ("allkeys-lru", 0, Outcome::Ok),
        ] {
            assert_eq!(eviction(&facts(policy, max_memory)).outcome, outcome, "{policy} {max_memory}");
        }
    }

    #[test]
    fn the_rate_that_fits_is_told() {
        assert_eq!(rate(900_000_000, Duration::from_secs(3600)), 1000);
    }

    #[test]
    fn a_cluster_that_refuses_is_named() {
        let refused = RedisFacts { cluster: true, refused: Some("CROSSSLOT".to_owned()), ..facts("noeviction", 0) };
        let check = commands(&refused);
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.remedy.unwrap().contains("without cluster mode"));
    }
}
