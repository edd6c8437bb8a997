//! `[kafka]` and `[receipts]`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client_options::{self, Trouble};
use super::{Check, OptionHook};
use crate::config::options::{KafkaOptions, PipelineOptions, ReceiptOptions, Start};
use crate::config::raw::{RawKafka, RawReceipts, RawSize, Scalar};
use crate::config::secret::Secret;
use crate::route::TopicPattern;

const SESSION: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(3);
const MAX_POLL: Duration = Duration::from_secs(300);

impl Check<'_> {
    pub(super) fn kafka(&mut self, raw: RawKafka, pipeline: &PipelineOptions, hook: OptionHook<'_>) -> KafkaOptions {
        let brokers = raw.brokers.unwrap_or_default();
        if brokers.split(',').any(|broker| !is_broker(broker.trim())) {
            self.fault("kafka.brokers", "is no list of brokers: write `host:port`, several with commas");
        }
        let mut options = raw.options.unwrap_or_default();
        let session_timeout = self.millis(&mut options, "session.timeout.ms").unwrap_or(SESSION);
        let heartbeat = self.millis(&mut options, "heartbeat.interval.ms");
        let max_poll_interval = self.millis(&mut options, "max.poll.interval.ms").unwrap_or(MAX_POLL);
        KafkaOptions {
            brokers,
            topics: self.topics(raw.topics.unwrap_or_default()),
            group: self.group(raw.group, pipeline),
            start: raw.start.map_or(Start::Earliest, |text| self.start(&text)),
            on_lost_offsets: raw.on_lost_offsets.unwrap_or_default(),
            session_timeout,
            // The broker hears of a live consumer three times a session, as the Kafka documentation advises.
            heartbeat_interval: heartbeat.unwrap_or_else(|| HEARTBEAT.min(session_timeout / 3)),
            max_poll_interval,
            buffer: self.buffer(raw.buffer),
            buffer_records: raw.buffer_records.map_or(1000, |n| n as usize),
            options: self.client_options(options, hook),
        }
    }

    pub(super) fn receipts(&mut self, raw: RawReceipts) -> ReceiptOptions {
        if let Some(topic) = &raw.topic
            && !is_topic_name(topic)
        {
            let quoted = self.quote("receipts.topic");
            self.fault(
                "receipts.topic",
                format!("{quoted} is no topic name: use 1 to 249 of a-z, A-Z, 0-9, `.`, `_`, `-`"),
            );
        }
        ReceiptOptions { topic: raw.topic, format: raw.format.unwrap_or_default() }
    }

    fn topics(&mut self, texts: Vec<String>) -> Vec<TopicPattern> {
        let mut topics: Vec<TopicPattern> = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            let path = format!("kafka.topics[{n}]");
            if topics.iter().any(|topic| topic.as_str() == text) {
                self.fault(&path, "is listed twice: leave one out");
            } else if let Some(topic) = self.topic(&path, text) {
                topics.push(topic);
            }
        }
        topics
    }

    /// A topic by name or `^regex`.
    pub(super) fn topic(&mut self, path: &str, text: &str) -> Option<TopicPattern> {
        let quoted = self.quote(path);
        match TopicPattern::parse(text) {
            Ok(TopicPattern::Name(name)) if !is_topic_name(&name) => {
                let message =
                    "is no topic name: use 1 to 249 of a-z, A-Z, 0-9, `.`, `_`, `-`, or begin a regex with `^`";
                self.fault(path, format!("{quoted} {message}"));
                None
            }
            Ok(topic) => Some(topic),
            Err(error) => {
                // The last line says why; those before it repeat the pattern.
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                self.fault(path, format!("{quoted} is no regular expression: {why}"));
                None
            }
        }
    }

    fn group(&mut self, group: Option<String>, pipeline: &PipelineOptions) -> String {
        match group {
            None => pipeline.name.clone(),
            Some(group) => {
                if group.trim().is_empty() {
                    self.fault("kafka.group", "is empty: name the group, or leave it out to use the pipeline's name");
                }
                group
            }
        }
    }

    fn start(&mut self, text: &str) -> Start {
        match text {
            "earliest" => Start::Earliest,
            "latest" => Start::Latest,
            time => match time.parse::<jiff::Timestamp>() {
                Ok(time) => Start::Timestamp(time.as_millisecond()),
                Err(_) => {
                    let quoted = self.quote("kafka.start");
                    let message = "is no start: write earliest, latest or a time with its zone, \
                                   like \"2026-11-29T12:00:00Z\"";
                    self.fault("kafka.start", format!("{quoted} {message}"));
                    Start::Earliest
                }
            },
        }
    }

    fn buffer(&mut self, raw: Option<RawSize>) -> usize {
        let buffer = self.size("kafka.buffer", raw, 64 << 20);
        if buffer < 64 << 10 {
            self.fault("kafka.buffer", "is too small to fetch into: give it 64KiB or more");
        }
        buffer
    }

    /// A time setting of our own that is written among the options under librdkafka's name.
    fn millis(&mut self, options: &mut BTreeMap<String, Scalar>, name: &str) -> Option<Duration> {
        let text = options.remove(name)?.into_text();
        let millis = text.parse::<u64>().ok().filter(|millis| (1..=86_400_000).contains(millis));
        if millis.is_none() {
            self.fault(&client_options::path(name), "must be a number of milliseconds from 1 to 86400000");
        }
        millis.map(Duration::from_millis)
    }

    fn client_options(&mut self, options: BTreeMap<String, Scalar>, hook: OptionHook<'_>) -> BTreeMap<String, Secret> {
        let mut passed = BTreeMap::new();
        let mut whole = !self.settled.iter().any(|path| path.starts_with("kafka.options."));
        for (name, value) in options {
            let value = value.into_text();
            match client_options::judge(&name, &value, hook) {
                Err(why) => {
                    whole = false;
                    self.fault(&client_options::path(&name), why);
                }
                // An empty instance id means dynamic membership, as if it were not set.
                Ok(()) if name == "group.instance.id" && value.is_empty() => {}
                Ok(()) => {
                    passed.insert(name, Secret::new(value));
                }
            }
        }
        // Whether options fit together can be told only of all of them.
        if whole {
            for trouble in client_options::combined(&passed) {
                match trouble {
                    Trouble::Fault(name, why) => self.fault(&client_options::path(&name), why),
                    Trouble::Warning(name, why) => self.warn(&client_options::path(&name), why),
                }
            }
        }
        passed
    }
}

/// `[PROTOCOL://]host[:port]`.
fn is_broker(text: &str) -> bool {
    let host = text.split_once("://").map_or(text, |(_, host)| host);
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    let port = match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
        _ => true,
    };
    !host.is_empty() && !host.starts_with(':') && host.chars().all(plain) && port
}

/// Kafka's rule for topic names (org.apache.kafka.common.internals.Topic).
fn is_topic_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_hosts_with_ports() {
        for broker in ["localhost:9092", "kafka", "SSL://b-1.x:9094", "[::1]:9092", "10.0.0.1:9092"] {
            assert!(is_broker(broker), "{broker}");
        }
        for broker in ["", ":9092", "a:b", "a b:1", "a:99999", "u:p@host:9092", "host:9092/path"] {
            assert!(!is_broker(broker), "{broker}");
        }
    }
}
