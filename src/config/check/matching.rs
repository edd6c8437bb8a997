//! How a route finds its records and reads them: `match`, places, column types.

use super::Check;
use crate::config::raw::{OneOrMany, RawMatch, Scalar};
use crate::debezium::event::Operation;
use crate::route::{ColumnType, IdRule, Matcher, Place, TimeUnit};

impl Check<'_> {
    pub(super) fn matcher(&mut self, path: &str, raw: RawMatch) -> Matcher {
        let topic = raw.topic.and_then(|text| self.topic(&format!("{path}.topic"), &text));
        if raw.table.as_ref().is_some_and(|table| {
            !(1..=3).contains(&table.split('.').filter(|part| !part.is_empty()).count())
                || table.split('.').any(str::is_empty)
        }) {
            self.fault(&format!("{path}.table"), "is no table: write table, schema.table or db.schema.table");
        }
        if raw.prefix.as_ref().is_some_and(String::is_empty) {
            self.fault(
                &format!("{path}.prefix"),
                "is empty: write the prefix of the logical messages, or leave it out",
            );
        }
        Matcher {
            topic,
            table: raw.table,
            ops: raw.op.map_or_else(Vec::new, |ops| self.operations(&format!("{path}.op"), ops)),
            headers: texts(raw.header),
            values: texts(raw.value),
            prefix: raw.prefix,
        }
    }

    fn operations(&mut self, path: &str, raw: OneOrMany) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (path, text) in raw.entries(path) {
            match Operation::from_letter(&text) {
                Some(operation) => operations.push(operation),
                None => {
                    let quoted = self.quote(&path);
                    let message = "is no operation: write r (read), c (create), u (update), d (delete), t (truncate) \
                                   or m (message)";
                    self.fault(&path, format!("{quoted} {message}"));
                }
            }
        }
        operations
    }

    pub(super) fn id_rules(&mut self, path: &str, raw: OneOrMany) -> Vec<IdRule> {
        let mut rules = Vec::new();
        for (path, text) in raw.entries(path) {
            if rules.last() == Some(&IdRule::Source) {
                self.warn(&path, "comes after `source`, which nearly every change has: it will hardly be reached");
            }
            let rule = if text == "source" { Some(IdRule::Source) } else { place(&text).map(IdRule::Place) };
            match rule {
                Some(rule) if rules.contains(&rule) => self.fault(&path, "is listed twice: leave one out"),
                Some(rule) => rules.push(rule),
                None => {
                    let quoted = self.quote(&path);
                    let message = "is no place of an id: write header:NAME, key:PATH, value:PATH or source";
                    self.fault(&path, format!("{quoted} {message}"));
                }
            }
        }
        rules
    }

    pub(super) fn place(&mut self, path: &str, raw: Option<String>) -> Option<Place> {
        let place = place(&raw?);
        if place.is_none() {
            let quoted = self.quote(path);
            self.fault(path, format!("{quoted} is no place: write header:NAME, key:PATH or value:PATH"));
        }
        place
    }

    pub(super) fn column(&mut self, path: &str, text: &str) -> Option<ColumnType> {
        let column = column(text);
        if column.is_none() {
            let quoted = self.quote(path);
            let message = "is no type: write bool, int, uint, float, string, bytes, bits(n), decimal(p,s), date, \
                           time(ms|us|ns), timestamp(ms|us|ns), timestamptz, uuid or json";
            self.fault(path, format!("{quoted} {message}"));
        }
        column
    }
}

fn texts(raw: Option<std::collections::BTreeMap<String, Scalar>>) -> Vec<(String, String)> {
    raw.into_iter().flatten().map(|(name, value)| (name, value.into_text())).collect()
}

fn place(text: &str) -> Option<Place> {
    if text == "key" {
        return Some(Place::Key(None));
    }
    let (kind, name) = text.split_once(':')?;
    match kind {
        "header" if !name.is_empty() => Some(Place::Header(name.to_owned())),
        "key" if is_path(name) => Some(Place::Key(Some(name.to_owned()))),
        "value" if is_path(name) => Some(Place::Value(name.to_owned())),
        _ => None,
    }
}

/// Dotted, without empty parts.
pub(super) fn is_path(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.trim() == part)
}

fn column(text: &str) -> Option<ColumnType> {
    let text = text.trim();
    let (name, arguments) = match text.split_once('(') {
        Some((name, rest)) => (name.trim_end(), rest.strip_suffix(')')?.split(',').map(str::trim).collect()),
        None => (text, Vec::new()),
    };
    Some(match (name, arguments.as_slice()) {
        ("bool", []) => ColumnType::Bool,
        ("int", []) => ColumnType::Int,
        ("uint", []) => ColumnType::Uint,
        ("float", []) => ColumnType::Float,
        ("string", []) => ColumnType::Text,
        ("bytes", []) => ColumnType::Bytes,
        ("bits", [length]) => ColumnType::Bits(length.parse().ok().filter(|length| *length > 0)?),
        ("decimal", [precision, scale]) => {
            let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
            if precision == 0 || scale > precision {
                return None;
            }
            ColumnType::Decimal { precision, scale }
        }
        ("date", []) => ColumnType::Date,
        ("time", []) => ColumnType::Time(TimeUnit::Micros),
        ("time", [unit]) => ColumnType::Time(time_unit(unit)?),
        ("timestamp", []) => ColumnType::Timestamp(TimeUnit::Micros),
        ("timestamp", [unit]) => ColumnType::Timestamp(time_unit(unit)?),
        ("timestamptz", []) => ColumnType::TimestampTz,
        ("uuid", []) => ColumnType::Uuid,
        ("json", []) => ColumnType::Json,
        _ => return None,
    })
}

fn time_unit(text: &str) -> Option<TimeUnit> {
    match text {
        "ms" => Some(TimeUnit::Millis),
        "us" => Some(TimeUnit::Micros),
        "ns" => Some(TimeUnit::Nanos),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!(place("header:id"), Some(Place::Header("id".into())));
        assert_eq!(place("header:ce:id"), Some(Place::Header("ce:id".into())));
        assert_eq!(place("key"), Some(Place::Key(None)));
        assert_eq!(place("key:id"), Some(Place::Key(Some("id".into()))));
        assert_eq!(place("value:a.b"), Some(Place::Value("a.b".into())));
        for text in ["", "id", "header:", "key:", "value:", "value:a..b", "value:.a", "offset:x", "source"] {
            assert_eq!(place(text), None, "{text}");
        }
    }

    #[test]
    fn column_types_are_read() {
        assert_eq!(column("decimal(12,2)"), Some(ColumnType::Decimal { precision: 12, scale: 2 }));
        assert_eq!(column("decimal( 12 , 2 )"), Some(ColumnType::Decimal { precision: 12, scale: 2 }));
        assert_eq!(column("bits(9)"), Some(ColumnType::Bits(9)));
        assert_eq!(column("time"), Some(ColumnType::Time(TimeUnit::Micros)));
        assert_eq!(column("timestamp(ns)"), Some(ColumnType::Timestamp(TimeUnit::Nanos)));
        assert_eq!(column("timestamptz"), Some(ColumnType::TimestampTz));
        assert_eq!(column("string"), Some(ColumnType::Text));
        for text in
            ["", "text", "decimal", "decimal(2)", "decimal(2,3)", "bits(0)", "bits", "time(s)", "int()", "int(4)"]
        {
            assert_eq!(column(text), None, "{text}");
        }
    }
}
