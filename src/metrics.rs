//! Metrics for Prometheus: every name and every label in one place.
//!
//! Labels are bounded: pipeline, topic, partition, route, outcome, class, verdict and reason names of this program;
//! never an id, a key, an offset or a text from outside.

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::decision::RecordOutcome;

/// All metrics of one process.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    /// Records with their one outcome.
    pub records: IntCounterVec,
    /// Skipped records by reason.
    pub skipped: IntCounterVec,
    /// Parked records by reason.
    pub parked: IntCounterVec,
    pub conflicts: IntCounterVec,
    /// Duplicates whose digests were made by different rules.
    pub incomparable: IntCounterVec,
    /// Derived ids that came again with another digest of the same rule.
    pub differing: IntCounterVec,
    pub gate: IntCounterVec,
    /// Source commit to our commit.
    pub end_to_end: HistogramVec,
    pub transaction_seconds: HistogramVec,
    pub transaction_messages: HistogramVec,
    pub retries: IntCounterVec,
    pub lag: IntGaugeVec,
    /// Records taken from the queue and not committed.
    pub in_flight: IntGaugeVec,
    pub receipts_pending: IntGaugeVec,
    pub receipts_delivered: IntCounterVec,
    pub receipt_delivery: HistogramVec,
    pub relay_errors: IntCounterVec,
    /// First sighting to redelivery.
    pub redelivery_distance: HistogramVec,
    pub inbox_oldest: GaugeVec,
    /// Rows that retention took out, by table.
    pub purged: IntCounterVec,
    pub lane_paused: IntGaugeVec,
    pub dead_letters_open: IntGaugeVec,
    /// Topics made anew, stores that went back, lost ranges.
    pub offset_events: IntCounterVec,
    pub gate_up: IntGaugeVec,
}

const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const DISTANCE: &[f64] = &[0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0, 1_209_600.0];
const SIZES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let metrics = Self {
            records: counter(
                &registry,
                "records_total",
                "Records by outcome; consumed is their sum.",
                &["pipeline", "topic", "outcome"],
            ),
            skipped: counter(
                &registry,
                "skipped_total",
                "Skipped records by reason.",
                &["pipeline", "topic", "reason"],
            ),
            parked: counter(&registry, "parked_total", "Parked records by reason.", &["pipeline", "reason"]),
            conflicts: counter(&registry, "conflicts_total", "Same id with other content.", &["pipeline", "route"]),
            incomparable: counter(
                &registry,
                "incomparable_digests_total",
                "Duplicates whose digests come from different rules.",
                &["pipeline"],
            ),
            differing: counter(
                &registry,
                "differing_digests_total",
                "Same source coordinates with other content: something is wrong with the connector.",
                &["pipeline"],
            ),
            gate: counter(&registry, "gate_total", "Answers of the gate.", &["pipeline", "verdict"]),
            end_to_end: histogram(
                &registry,
                "end_to_end_seconds",
                "From the commit at the origin to the commit here.",
                &["pipeline"],
                SECONDS,
            ),
            transaction_seconds: histogram(
                &registry,
                "transaction_seconds",
                "Begin to commit of a batch.",
                &["pipeline"],
                SECONDS,
            ),
            transaction_messages: histogram(
                &registry,
                "transaction_messages",
                "Records in a transaction.",
                &["pipeline"],
                SIZES,
            ),
            retries: counter(&registry, "retries_total", "Attempts that were run again.", &["pipeline", "class"]),
            lag: gauge(
                &registry,
                "lag_records",
                "Records not committed yet, up to the last stable offset.",
                &["pipeline", "topic", "partition"],
            ),
            in_flight: gauge(&registry, "in_flight", "Records taken and not committed.", &["pipeline"]),
            receipts_pending: gauge(&registry, "receipts_pending", "Receipts not delivered yet.", &["pipeline"]),
            receipts_delivered: counter(
                &registry,
                "receipts_delivered_total",
                "Receipts acknowledged by the broker.",
                &["pipeline"],
            ),
            receipt_delivery: histogram(
                &registry,
                "receipt_delivery_seconds",
                "From commit to acknowledgement.",
                &["pipeline"],
                SECONDS,
            ),
            relay_errors: counter(&registry, "relay_errors_total", "Rounds of the relay that failed.", &["pipeline"]),
            redelivery_distance: histogram(
                &registry,
                "redelivery_distance_seconds",
                "From the first sighting to a redelivery.",
                &["pipeline"],
                DISTANCE,
            ),
            inbox_oldest: gauge_f(&registry, "inbox_oldest_seconds", "Age of the oldest inbox row.", &["pipeline"]),
            purged: counter(&registry, "purged_rows_total", "Rows that retention took out.", &["pipeline", "table"]),
            lane_paused: gauge(
                &registry,
                "lane_paused",
                "1 while the lane stands.",
                &["pipeline", "topic", "partition"],
            ),
            dead_letters_open: gauge(&registry, "dead_letters_open", "Open dead letters.", &["pipeline"]),
            offset_events: counter(
                &registry,
                "offset_events_total",
                "Lost ranges, recreated topics, stores that went back.",
                &["pipeline", "kind"],
            ),
            gate_up: gauge(&registry, "gate_up", "0 while the gate does not answer.", &["pipeline"]),
            registry,
        };
        let build = Gauge::with_opts(
            Opts::new("countersign_build_info", "Version of this program.")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        );
        let build = register(&metrics.registry, build);
        build.set(1.0);
        metrics
    }

    /// Shows the series of a pipeline from the start, so that an alert on one does not wait for its first count.
    pub fn begin(&self, pipeline: &str, topics: &[&str]) {
        for topic in topics {
            for outcome in RecordOutcome::ALL {
                self.records.with_label_values(&[pipeline, *topic, outcome.as_str()]);
            }
        }
        for class in ["transient", "fatal"] {
            self.retries.with_label_values(&[pipeline, class]);
        }
        for verdict in ["claimed", "busy", "confirmed", "unavailable"] {
            self.gate.with_label_values(&[pipeline, verdict]);
        }
        for counter in [&self.incomparable, &self.differing, &self.receipts_delivered, &self.relay_errors] {
            counter.with_label_values(&[pipeline]);
        }
        self.parked.with_label_values(&[pipeline, "waiting"]);
        self.conflicts.with_label_values(&[pipeline, ""]);
        self.receipts_pending.with_label_values(&[pipeline]);
        self.in_flight.with_label_values(&[pipeline]);
        self.inbox_oldest.with_label_values(&[pipeline]);
        for histogram in [
            &self.end_to_end,
            &self.transaction_seconds,
            &self.transaction_messages,
            &self.receipt_delivery,
            &self.redelivery_distance,
        ] {
            histogram.with_label_values(&[pipeline]);
        }
    }

    /// In the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory fails only for metrics without a name.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names and labels are constants of this file");
    registry.register(Box::new(metric.clone())).expect("each name stands once in this file");
    metric
}

fn name(name: &str) -> String {
    format!("countersign_{name}")
}

fn counter(registry: &Registry, metric: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name(metric), help), labels))
}

fn gauge(registry: &Registry, metric: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name(metric), help), labels))
}

fn gauge_f(registry: &Registry, metric: &str, help: &str, labels: &[&str]) -> GaugeVec {
    register(registry, GaugeVec::new(Opts::new(name(metric), help), labels))
}

fn histogram(registry: &Registry, metric: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    register(registry, HistogramVec::new(HistogramOpts::new(name(metric), help).buckets(buckets.to_vec()), labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_rendered_with_their_prefix() {
        let metrics = Metrics::new();
        metrics.records.with_label_values(&["p", "t", "applied"]).inc();
        let text = metrics.render();
        assert!(text.contains(r#"countersign_records_total{outcome="applied",pipeline="p",topic="t"} 1"#), "{text}");
        assert!(text.contains("countersign_build_info{version="));
    }
}
