//! Settings of one file held against each other.

use super::Check;
use crate::config::options::{
    GateBackend, GateOptions, KafkaOptions, ReceiptOptions, Retention, RouteConfig, StoreOptions,
};
use crate::config::quantity::show;
use crate::effect::spec::EffectSpec;
use crate::route::{IdRule, SnapshotPolicy, TopicPattern};

impl Check<'_> {
    /// Each time-out must fit into the next longer one; drain against session is checked with its section.
    pub(super) fn cross_timeouts(&mut self, kafka: &KafkaOptions, store: Option<&StoreOptions>, gate: &GateOptions) {
        if kafka.heartbeat_interval >= kafka.session_timeout {
            let message = format!(
                "{} is not below the session time-out of {}: a third of it is usual",
                show(kafka.heartbeat_interval),
                show(kafka.session_timeout)
            );
            self.fault("kafka.options.heartbeat.interval.ms", message);
        }
        if kafka.session_timeout >= kafka.max_poll_interval {
            let message = format!(
                "{} is not below max.poll.interval.ms, which is {}: lower it, or raise that",
                show(kafka.session_timeout),
                show(kafka.max_poll_interval)
            );
            self.fault("kafka.options.session.timeout.ms", message);
        }
        let Some(store) = store else { return };
        if gate.backend == GateBackend::Off {
            return;
        }
        if gate.claim_ttl <= store.transaction_timeout {
            let message = format!(
                "{} is not above store.transaction_timeout = {}: a claim must outlive its transaction, raise it",
                show(gate.claim_ttl),
                show(store.transaction_timeout)
            );
            self.fault("gate.claim_ttl", message);
        }
        match store.retention {
            Retention::For(retention) if retention < gate.confirm_ttl => {
                let message = format!(
                    "{} is below gate.confirm_ttl = {}: the gate must not remember longer than the inbox, raise it",
                    show(retention),
                    show(gate.confirm_ttl)
                );
                self.fault("store.retention", message);
            }
            Retention::For(_) | Retention::Forever => {}
        }
    }

    pub(super) fn cross_topics(
        &mut self,
        kafka: &KafkaOptions,
        receipts: &ReceiptOptions,
        routes: &[Option<RouteConfig>],
    ) {
        if let Some(topic) = &receipts.topic
            && let Some(input) = kafka.topics.iter().find(|input| input.matches(topic))
        {
            let input = match input {
                TopicPattern::Name(_) => "is one of kafka.topics",
                TopicPattern::Regex(_) => "is matched by a regex of kafka.topics",
            };
            let message = format!("{input}: receipts would be read as messages again, name another topic");
            self.fault("receipts.topic", message);
        }
        for (n, route) in routes.iter().enumerate() {
            let topic = route.as_ref().and_then(|route| route.route.matcher.topic.as_ref());
            if topic.is_some_and(|topic| !can_match(topic, &kafka.topics)) {
                let message = "can match none of kafka.topics, so this route takes nothing: correct one of the two";
                self.warn(&format!("route[{n}].match.topic"), message);
            }
        }
    }

    pub(super) fn cross_routes(&mut self, routes: &[Option<RouteConfig>]) {
        let mut scopes: Vec<(&str, &str)> = Vec::new();
        for (n, config) in routes.iter().enumerate() {
            let Some(config) = config else { continue };
            let route = &config.route;
            let snapshot_is_skipped = match (&config.effect, route.snapshot) {
                (EffectSpec::Sql(_), SnapshotPolicy::Auto) => route.message_id.contains(&IdRule::Source),
                (EffectSpec::Sql(_), SnapshotPolicy::Apply | SnapshotPolicy::Skip) => false,
                (EffectSpec::Table(_) | EffectSpec::None, _) => false,
            };
            if snapshot_is_skipped {
                let message = "is `source` with a sql effect, so snapshot reads are skipped: a repeated snapshot would \
                               apply them again; say snapshot = \"skip\" or \"apply\"";
                self.warn(&format!("route[{n}].message_id"), message);
            }
            if route.message_id.iter().any(|rule| matches!(rule, IdRule::Place(_))) {
                match scopes.iter().find(|(scope, _)| *scope == &*route.scope) {
                    Some((_, earlier)) => {
                        let message = format!(
                            "is the same as that of route {earlier}: equal ids of the two would count as one message; \
                             give each its own scope unless that is meant"
                        );
                        self.warn(&format!("route[{n}].scope"), message);
                    }
                    None => scopes.push((&route.scope, &route.name)),
                }
            }
        }
    }
}

/// Whether a route may see a topic of the list; of two regular expressions nobody can tell.
fn can_match(wanted: &TopicPattern, topics: &[TopicPattern]) -> bool {
    topics.iter().any(|topic| match (wanted, topic) {
        (TopicPattern::Name(name), topic) => topic.matches(name),
        (TopicPattern::Regex(_), TopicPattern::Name(name)) => wanted.matches(name),
        (TopicPattern::Regex(_), TopicPattern::Regex(_)) => true,
    })
}
