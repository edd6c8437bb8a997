//! Counts the outcomes of a committed slice, and tells whoever watches.

use tracing::warn;

use super::Observed;
use super::attempt::{Committed, Recorded};
use super::batch::{Entry, Item};
use super::processor::Processor;
use crate::debezium::event::SkipReason;
use crate::decision::RecordOutcome;
use crate::message::DigestMatch;

impl Processor {
    pub(super) fn count(&self, items: &[Item], committed: &Committed) {
        let metrics = &self.shared.metrics;
        let pipeline = &*self.shared.pipeline;
        let now: Option<jiff::Timestamp> = committed.now.parse().ok();
        let now_ms = now.map(|now| now.as_millisecond());
        for (item, recorded) in items.iter().zip(&committed.outcomes) {
            let topic = &*item.record.position.topic;
            if let Some(observer) = &self.shared.observer {
                // Whoever asked may have gone.
                let _ = observer.send(observed(item, recorded));
            }
            metrics.records.with_label_values(&[pipeline, topic, recorded.outcome.as_str()]).inc();
            let reason = recorded.reason.as_deref().unwrap_or("");
            match recorded.outcome {
                RecordOutcome::Skipped => {
                    metrics.skipped.with_label_values(&[pipeline, topic, reason]).inc();
                    let unrouted = reason == SkipReason::NoRoute.as_str();
                    if unrouted && self.shared.first_unrouted(&item.record.position.topic) {
                        warn!(position = %item.record.position, "no route takes this record: such records of this topic are passed over and counted");
                    }
                }
                RecordOutcome::Parked => metrics.parked.with_label_values(&[pipeline, reason]).inc(),
                RecordOutcome::Conflict => {
                    let route = route_of(&item.entry).map_or("", |index| self.shared.route_name(Some(index)));
                    metrics.conflicts.with_label_values(&[pipeline, route]).inc();
                    let id = observed(item, recorded).message_id.unwrap_or_default();
                    warn!(position = %item.record.position, id, "conflict: an id was used again with other content");
                }
                RecordOutcome::Duplicate => {
                    if let (Some(now), Some(first)) = (now_ms, recorded.first_seen_ms) {
                        let distance = (now - first).max(0) as f64 / 1000.0;
                        metrics.redelivery_distance.with_label_values(&[pipeline]).observe(distance);
                    }
                    match recorded.note {
                        Some(DigestMatch::Incomparable) => metrics.incomparable.with_label_values(&[pipeline]).inc(),
                        // Only with a derived id, for another content under a producer's id is a conflict.
                        Some(DigestMatch::Different) => metrics.differing.with_label_values(&[pipeline]).inc(),
                        Some(DigestMatch::Same) | None => {}
                    }
                }
                RecordOutcome::Applied => {
                    let source = match &item.entry {
                        Entry::Message { message, .. } => message.event.source.as_ref().and_then(|s| s.ts_ms),
                        Entry::Skip(_) | Entry::Faulty(_) => None,
                    };
                    if let (Some(now), Some(source)) = (now_ms, source.or(item.record.timestamp_ms)) {
                        let seconds = (now - source).max(0) as f64 / 1000.0;
                        metrics.end_to_end.with_label_values(&[pipeline]).observe(seconds);
                    }
                }
                RecordOutcome::Rejected => {}
            }
        }
    }
}

fn observed(item: &Item, recorded: &Recorded) -> Observed {
    let (id, op) = match &item.entry {
        Entry::Message { message, .. } => (Some(&message.id), message.event.op.map(|op| op.letter())),
        Entry::Faulty(faulty) => (faulty.id.as_ref(), None),
        Entry::Skip(_) => (None, None),
    };
    Observed {
        position: item.record.position.clone(),
        message_id: id.map(|id| id.as_str().to_owned()),
        op,
        outcome: recorded.outcome,
        reason: recorded.reason.clone(),
    }
}

fn route_of(entry: &Entry) -> Option<usize> {
    match entry {
        Entry::Message { message, .. } => Some(message.route),
        Entry::Faulty(faulty) => faulty.route,
        Entry::Skip(_) => None,
    }
}
