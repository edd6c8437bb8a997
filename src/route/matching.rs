//! Which route takes a record.

use super::{Matcher, Route};
use crate::debezium::event::{ChangeEvent, Decoded, Operation, SkipReason};
use crate::debezium::header;
use crate::debezium::source::Source;
use crate::debezium::value::Value;
use crate::record::Record;

/// The first route, in the order of the file, that takes the record.
pub fn select(routes: &[Route], record: &Record, decoded: &Decoded) -> Option<usize> {
    routes.iter().position(|route| route.matches(record, decoded))
}

/// The first route for a record that could not be decoded: by what was salvaged of it, else as far as topic and headers
/// tell. It lends the scope, and perhaps the id, under which the record is parked.
pub fn select_faulty(routes: &[Route], record: &Record, salvaged: Option<&ChangeEvent>) -> Option<usize> {
    let outside = |route: &Route| !route.message_id.is_empty() && route.matcher.matches_outside(record);
    let by_event = |event| routes.iter().position(|route| outside(route) && route.matcher.matches_event(event));
    salvaged.and_then(by_event).or_else(|| routes.iter().position(outside))
}

/// Why a record that no route takes is skipped.
pub fn unrouted(decoded: &Decoded) -> SkipReason {
    match decoded {
        Decoded::Skip(reason) => *reason,
        Decoded::Tombstone { .. } => SkipReason::Tombstone,
        Decoded::Event(event) if event.op == Some(Operation::Message) => SkipReason::LogicalMessage,
        Decoded::Event(_) => SkipReason::NoRoute,
    }
}

impl Route {
    /// Whether this route takes the record: every part of the matcher that is present holds. A route without an id rule
    /// takes nothing.
    pub fn matches(&self, record: &Record, decoded: &Decoded) -> bool {
        if self.message_id.is_empty() || !self.matcher.matches_outside(record) {
            return false;
        }
        match decoded {
            Decoded::Event(event) => self.matcher.matches_event(event),
            Decoded::Tombstone { .. } => self.matcher.matches_tombstone(record),
            Decoded::Skip(_) => false,
        }
    }
}

impl Matcher {
    /// Topic and headers.
    fn matches_outside(&self, record: &Record) -> bool {
        self.topic.as_ref().is_none_or(|topic| topic.matches(&record.position.topic))
            && self.headers.iter().all(|(name, expected)| {
                let mut values = record.header_values(name).flatten();
                values.any(|value| header::text(value).as_ref() == Some(expected))
            })
    }

    fn matches_event(&self, event: &ChangeEvent) -> bool {
        let op_fits = self.ops.is_empty() || event.op.is_some_and(|op| self.ops.contains(&op));
        let table_fits =
            self.table.as_ref().is_none_or(|table| event.source.as_ref().is_some_and(|source| names(source, table)));
        let values_fit = self.values.iter().all(|(path, expected)| {
            event.value_at(path).and_then(Value::as_text).is_some_and(|text| text == expected.as_str())
        });
        op_fits && table_fits && values_fit && self.prefix_fits(event)
    }

    /// A logical message is taken only by a route that names its prefix, which takes nothing else.
    fn prefix_fits(&self, event: &ChangeEvent) -> bool {
        let prefix = match event.op {
            Some(Operation::Message) => event.field("prefix").and_then(Value::as_text),
            Some(Operation::Read | Operation::Create | Operation::Update | Operation::Delete | Operation::Truncate)
            | None => return self.prefix.is_none(),
        };
        self.prefix.as_deref().is_some_and(|expected| prefix.is_some_and(|prefix| prefix == expected))
    }

    /// A tombstone has no row and no source: what asks for those does not take it, and the table is the topic's end.
    fn matches_tombstone(&self, record: &Record) -> bool {
        let topic = &record.position.topic;
        let table_fits = self.table.as_ref().is_none_or(|table| {
            topic.strip_suffix(table.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        table_fits
            && self.values.is_empty()
            && self.prefix.is_none()
            && (self.ops.is_empty() || self.ops.contains(&Operation::Delete))
    }
}

/// `table`, `schema.table` (`db.table` where there are no schemas) or `db.schema.table`.
fn names(source: &Source, expected: &str) -> bool {
    let Source { db, schema, table, .. } = source;
    if expected == &**table {
        return true;
    }
    match schema {
        Some(schema) => expected == format!("{schema}.{table}") || expected == format!("{db}.{schema}.{table}"),
        None => expected == format!("{db}.{table}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::envelope::{DecodeOptions, Decoder};
    use crate::route::{IdRule, TopicPattern};

    const ORDERS: &str = r#"{"op":"c","after":{"id":1,"kind":"a","n":{"m":10}},"source":{"connector":"postgresql","name":"p","db":"d","schema":"s","table":"orders"}}"#;

    fn route(matcher: Matcher) -> Route {
        Route { matcher, message_id: vec![IdRule::Source], ..Route::default() }
    }

    fn takes(matcher: Matcher, record: &Record) -> bool {
        let decoded = Decoder::new(DecodeOptions::default()).decode(record).unwrap();
        select(&[route(matcher)], record, &decoded) == Some(0)
    }

    #[test]
    fn every_part_must_hold() {
        let record = Record::sample(Some("1"), Some(ORDERS)).with_header("kind", "\"x\"");
        let topic = |text: &str| Some(TopicPattern::parse(text).unwrap());
        let values = |path: &str, text: &str| vec![(path.to_owned(), text.to_owned())];
        let base = Matcher::default;
        for (fits, matcher) in [
            (true, base()),
            (true, Matcher { topic: topic("t"), ..base() }),
            (true, Matcher { topic: topic("^t$"), ..base() }),
            (false, Matcher { topic: topic("tt"), ..base() }),
            (true, Matcher { table: Some("orders".into()), ..base() }),
            (true, Matcher { table: Some("s.orders".into()), ..base() }),
            (true, Matcher { table: Some("d.s.orders".into()), ..base() }),
            (false, Matcher { table: Some("d.orders".into()), ..base() }),
            (false, Matcher { table: Some("order".into()), ..base() }),
            (true, Matcher { ops: vec![Operation::Create, Operation::Update], ..base() }),
            (false, Matcher { ops: vec![Operation::Delete], ..base() }),
            (true, Matcher { headers: values("kind", "x"), ..base() }),
            (false, Matcher { headers: values("kind", "y"), ..base() }),
            (false, Matcher { headers: values("none", "x"), ..base() }),
            (true, Matcher { values: values("kind", "a"), ..base() }),
            (true, Matcher { values: values("n.m", "10"), ..base() }),
            (false, Matcher { values: values("n.x", "10"), ..base() }),
            (false, Matcher { topic: topic("t"), values: values("kind", "b"), ..base() }),
            (false, Matcher { prefix: Some("p".into()), ..base() }),
        ] {
            assert_eq!(takes(matcher.clone(), &record), fits, "{matcher:?}");
        }
    }

    #[test]
    fn the_first_route_of_the_file_takes_the_record() {
        let record = Record::sample(Some("1"), Some(ORDERS));
        let decoded = Decoder::new(DecodeOptions::default()).decode(&record).unwrap();
        let none = route(Matcher { table: Some("other".into()), ..Matcher::default() });
        let any = route(Matcher::default());
        let idless = Route { message_id: Vec::new(), ..any.clone() };
        assert_eq!(select(&[none, idless, any.clone(), any], &record, &decoded), Some(2));
        assert_eq!(select(&[], &record, &decoded), None);
        assert_eq!(unrouted(&decoded), SkipReason::NoRoute);
    }

    #[test]
    fn logical_messages_go_to_their_prefix_only() {
        let text = r#"{"op":"m","source":{},"message":{"prefix":"audit","content":"aGVsbG8="}}"#;
        let record = Record::sample(None, Some(text));
        for (prefix, fits) in [(None, false), (Some("other"), false), (Some("audit"), true)] {
            assert_eq!(takes(Matcher { prefix: prefix.map(Into::into), ..Matcher::default() }, &record), fits);
        }
        let decoded = Decoder::new(DecodeOptions::default()).decode(&record).unwrap();
        assert_eq!(unrouted(&decoded), SkipReason::LogicalMessage);
    }

    #[test]
    fn tombstones_match_by_topic_and_table_name() {
        let mut record = Record::sample(Some("1"), None);
        record.position.topic = "p.s.orders".into();
        for (matcher, fits) in [
            (Matcher::default(), true),
            (Matcher { table: Some("orders".into()), ..Matcher::default() }, true),
            (Matcher { table: Some("s.orders".into()), ..Matcher::default() }, true),
            (Matcher { table: Some("ders".into()), ..Matcher::default() }, false),
            (Matcher { ops: vec![Operation::Delete], ..Matcher::default() }, true),
            (Matcher { ops: vec![Operation::Create], ..Matcher::default() }, false),
            (Matcher { values: vec![("a".into(), "b".into())], ..Matcher::default() }, false),
        ] {
            assert_eq!(takes(matcher.clone(), &record), fits, "{matcher:?}");
        }
        assert_eq!(unrouted(&Decoded::Tombstone { key: None }), SkipReason::Tombstone);
    }

    #[test]
    fn a_faulty_record_finds_the_route_it_would_have_taken() {
        let record = Record::sample(Some("1"), Some("{broken"));
        let first = route(Matcher { topic: Some(TopicPattern::parse("x").unwrap()), ..Matcher::default() });
        let second = route(Matcher { table: Some("orders".into()), ..Matcher::default() });
        let third = route(Matcher::default());
        assert_eq!(select_faulty(&[first.clone(), second, third.clone()], &record, None), Some(1));
        let salvaged = Decoder::new(DecodeOptions::default()).salvage(&Record::sample(None, Some("{\"a\":1}")));
        assert_eq!(select_faulty(&[first, third], &record, salvaged.as_ref()), Some(1));
    }
}
