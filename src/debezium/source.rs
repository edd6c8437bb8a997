//! Debezium's `source` block: where in the origin's log a change stands.

pub use super::guard::{GuardDecision, GuardPosition, GuardVerdict, guard_decision, guard_position};
pub use super::source_id::source_id;
use super::value::{Row, Value};
use compact_str::CompactString;

/// The coordinates of a change in its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// `mysql`, `mariadb`, `postgresql`, ...
    pub connector: CompactString,
    /// The connector's logical name (`topic.prefix`).
    pub name: CompactString,
    pub snapshot: Snapshot,
    pub db: CompactString,
    pub schema: Option<CompactString>,
    pub table: CompactString,
    /// Milliseconds since 1970-01-01 UTC at which the origin committed (to its own precision).
    pub ts_ms: Option<i64>,
    pub position: Position,
    /// `transaction.id` of the envelope.
    pub transaction: Option<CompactString>,
}

/// `source.snapshot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    #[default]
    No,
    /// `true`, `first`, `first_in_data_collection`, `last_in_data_collection`, `last`.
    Yes,
    Incremental,
}

/// A position in the origin's log, by kind of connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Position {
    Binlog {
        server_id: i64,
        gtid: Option<CompactString>,
        file: CompactString,
        pos: i64,
        row: i64,
    },
    Wal {
        lsn: Option<i64>,
        tx_id: Option<i64>,
    },
    /// A connector whose coordinates are not known here.
    #[default]
    Unknown,
}

impl Source {
    /// From a `source` block. What a connector does not send stays empty; a position that lacks a part that
    /// ordering or identity rests on is [`Position::Unknown`].
    pub fn read(block: &Row, transaction: Option<&Row>) -> Self {
        let text = |name: &str| match block.get(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let connector = text("connector").unwrap_or_default();
        Self {
            snapshot: Snapshot::read(block.get("snapshot")),
            name: text("name").unwrap_or_default(),
            db: text("db").unwrap_or_default(),
            schema: text("schema"),
            table: text("table").unwrap_or_default(),
            ts_ms: int(block, "ts_ms"),
            position: Position::read(&connector, block),
            transaction: transaction.and_then(|block| match block.get("id") {
                Some(Value::Text(id)) => Some(id.clone()),
                _ => None,
            }),
            connector,
        }
    }
}

impl Snapshot {
    /// Text since Debezium 1.x (`io.debezium.data.Enum`), a boolean before.
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Text(text)) => match &**text {
                "false" => Self::No,
                "incremental" => Self::Incremental,
                // true, first, first_in_data_collection, last_in_data_collection, last
                _ => Self::Yes,
            },
            Some(Value::Bool(true)) => Self::Yes,
            _ => Self::No,
        }
    }
}

impl Position {
    /// Without a connector (a flattened row that does not say) the fields tell which kind it is.
    fn read(connector: &str, block: &Row) -> Self {
        let kind = match connector {
            "mysql" | "mariadb" => Self::binlog(block),
            "postgresql" => Some(Self::wal(block)),
            "" if block.get("lsn").is_some() => Some(Self::wal(block)),
            "" => Self::binlog(block),
            _ => None,
        };
        kind.unwrap_or(Self::Unknown)
    }

    fn binlog(block: &Row) -> Option<Self> {
        let text = |name: &str| match block.get(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        Some(Self::Binlog {
            server_id: int(block, "server_id").unwrap_or(0),
            gtid: text("gtid"),
            file: text("file")?,
            pos: int(block, "pos")?,
            row: int(block, "row").unwrap_or(0),
        })
    }

    fn wal(block: &Row) -> Self {
        Self::Wal { lsn: int(block, "lsn"), tx_id: int(block, "txId") }
    }
}

/// An integer, also as text: header values are text.
fn int(block: &Row, name: &str) -> Option<i64> {
    match block.get(name)? {
        Value::Int(int) => Some(*int),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::json::parse_text;

    fn source(text: &str) -> Source {
        match parse_text(text) {
            Ok(Value::Struct(row)) => Source::read(&row, None),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn positions_are_whole_or_unknown() {
        let binlog =
            source(r#"{"connector":"mysql","name":"n","server_id":1,"gtid":null,"file":"b.000001","pos":4,"row":2}"#);
        let expected = Position::Binlog { server_id: 1, gtid: None, file: "b.000001".into(), pos: 4, row: 2 };
        assert_eq!(binlog.position, expected);
        assert_eq!(source(r#"{"connector":"mysql","file":null,"pos":4}"#).position, Position::Unknown);
        assert_eq!(source(r#"{"connector":"mysql","file":"b.000001"}"#).position, Position::Unknown);
        assert_eq!(source(r#"{"connector":"oracle","lsn":1}"#).position, Position::Unknown);
        assert_eq!(
            source(r#"{"connector":"postgresql","lsn":null}"#).position,
            Position::Wal { lsn: None, tx_id: None }
        );
        assert_eq!(source(r#"{"lsn":"7","txId":"8"}"#).position, Position::Wal { lsn: Some(7), tx_id: Some(8) });
    }

    #[test]
    fn snapshot_marks_of_all_versions() {
        for (mark, snapshot) in [
            ("\"false\"", Snapshot::No),
            ("null", Snapshot::No),
            ("false", Snapshot::No),
            ("true", Snapshot::Yes),
            ("\"true\"", Snapshot::Yes),
            ("\"last_in_data_collection\"", Snapshot::Yes),
            ("\"incremental\"", Snapshot::Incremental),
        ] {
            assert_eq!(source(&format!("{{\"snapshot\":{mark}}}")).snapshot, snapshot);
        }
    }
}
