//! Messages that seem new and are older than what the inbox remembers.

use std::collections::HashMap;

use super::attempt::Attempt;
use super::judge::Judgement;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::message::Message;
use crate::receipt::code;
use crate::record::Record;

impl Attempt<'_> {
    /// First-seen messages that cannot be proved new, with their outcome: their rows may have been purged.
    pub(super) fn late(&self, judgements: &[Judgement<'_>], horizon_ms: Option<i64>) -> HashMap<usize, Outcome> {
        let Some(horizon) = horizon_ms else { return HashMap::new() };
        let late = judgements.iter().enumerate().filter_map(|(index, judgement)| match judgement {
            Judgement::First { message, .. } if !self.shared.late[message.route] => {
                Some((index, outside_window(message, &self.items[index].record, horizon)?))
            }
            Judgement::First { .. }
            | Judgement::Skip(_)
            | Judgement::Unrecorded { .. }
            | Judgement::Park(_)
            | Judgement::Duplicate { .. }
            | Judgement::Conflict(_) => None,
        });
        late.collect()
    }
}

/// What to do with a first-seen message if it is from before the horizon; None if it is proved new.
///
/// Its time is that of its commit at the source, which a connector that sends it again repeats; else the record's own.
/// Without either nothing can be proved.
pub(crate) fn outside_window(message: &Message, record: &Record, horizon_ms: i64) -> Option<Outcome> {
    let source = message.event.source.as_ref().and_then(|source| source.ts_ms);
    let reason = match source.or(record.timestamp_ms) {
        Some(time) if time >= horizon_ms => return None,
        Some(_) => "it is older than what the inbox remembers: it may have been applied before its row was purged",
        None => "it has no time, and rows were purged: it may have been applied before",
    };
    let (kind, code) = (RefusalKind::Park, code::OUTSIDE_WINDOW.to_owned());
    Some(Outcome::Refused(Refusal { kind, code, reason: reason.to_owned(), clean: true }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::event::{ChangeEvent, Shape};
    use crate::debezium::source::Source;
    use crate::debezium::value::Value;
    use crate::message::{Digest, MessageId};

    #[test]
    fn the_time_of_the_source_goes_before_that_of_the_record_and_none_is_no_proof() {
        for (source, record, late) in [
            (Some(99), Some(500), true),
            (Some(100), Some(1), false),
            (None, Some(99), true),
            (None, Some(100), false),
            (None, None, true),
        ] {
            let mut event = ChangeEvent::message(Shape::Plain, None, Value::Null);
            event.source = source.map(|ts_ms| Source { ts_ms: Some(ts_ms), ..Source::default() });
            let mut sample = Record::sample(None, None);
            sample.timestamp_ms = record;
            let message = Message {
                id: MessageId::new("m"),
                derived_id: false,
                digest: Digest::from_stored("1:a"),
                correlation_id: None,
                source_app: None,
                position: sample.position.clone(),
                route: 0,
                event,
            };
            assert_eq!(outside_window(&message, &sample, 100).is_some(), late, "{source:?} {record:?}");
        }
    }
}
