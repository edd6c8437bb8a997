//! Debezium's `source` block: where in the origin's log a change stands.

pub use super::guard::{GuardPosition, GuardVerdict, guard_position};
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

/// The fields of a source block that are read here, of whatever connector.
pub const FIELDS: [&str; 29] = [
    "connector",
    "name",
    "db",
    "schema",
    "table",
    "ts_ms",
    "snapshot",
    "server_id",
    "gtid",
    "file",
    "pos",
    "row",
    "lsn",
    "txId",
    "change_lsn",
    "commit_lsn",
    "event_serial_no",
    "scn",
    "commit_scn",
    "rs_id",
    "row_id",
    "lcr_position",
    "collection",
    "ord",
    "lsid",
    "txnNumber",
    "keyspace",
    "shard",
    "vgtid",
];

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
    /// SQL Server and Db2: LSNs of the commit and of the change, as texts; SQL Server numbers what shares both.
    Capture {
        commit_lsn: CompactString,
        change_lsn: Option<CompactString>,
        serial: Option<i64>,
    },
    /// Oracle, by LogMiner (`rs_id`, the address of the redo record) or XStream (`lcr_position`).
    Redo {
        scn: CompactString,
        commit_scn: Option<CompactString>,
        tx_id: Option<CompactString>,
        rs_id: Option<CompactString>,
        row_id: Option<CompactString>,
        lcr_position: Option<CompactString>,
    },
    /// MongoDB: the time of the oplog entry and its ordinal in that second.
    Oplog {
        ts_ms: i64,
        ord: i64,
        /// One of several changes of a transaction, which all have the one oplog time.
        in_transaction: bool,
    },
    /// Vitess: the `vgtid` of the transaction, which all its changes share.
    Vgtid,
    /// A connector whose coordinates are not known here.
    #[default]
    Unknown,
}

impl Source {
    /// From a `source` block. What a connector does not send stays empty; a position that lacks a part that
    /// ordering or identity rests on is [`Position::Unknown`].
    pub fn read(block: &Row, transaction: Option<&Row>) -> Self {
        let text = |name: &str| text(block, name);
        let connector = text("connector").unwrap_or_default();
        Self {
            snapshot: Snapshot::read(block.get("snapshot")),
            name: text("name").unwrap_or_default(),
            // Vitess leaves `db` empty and names its keyspace.
            db: text("db").or_else(|| text("keyspace")).unwrap_or_default(),
            schema: text("schema"),
            // MongoDB's tables are collections.
            table: text("table").or_else(|| text("collection")).unwrap_or_default(),
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
            "sqlserver" | "db2" => Self::capture(block),
            "oracle" => Self::redo(block),
            "mongodb" => Self::oplog(block),
            "vitess" => text(block, "vgtid").map(|_| Self::Vgtid),
            "" if block.get("lsn").is_some() => Some(Self::wal(block)),
            "" => Self::binlog(block),
            _ => None,
        };
        kind.unwrap_or(Self::Unknown)
    }

    fn binlog(block: &Row) -> Option<Self> {
        Some(Self::Binlog {
            server_id: int(block, "server_id").unwrap_or(0),
            gtid: text(block, "gtid"),
            file: text(block, "file")?,
            pos: int(block, "pos")?,
            row: int(block, "row").unwrap_or(0),
        })
    }

    fn wal(block: &Row) -> Self {
        Self::Wal { lsn: int(block, "lsn"), tx_id: int(block, "txId") }
    }

    fn capture(block: &Row) -> Option<Self> {
        Some(Self::Capture {
            commit_lsn: text(block, "commit_lsn")?,
            change_lsn: text(block, "change_lsn"),
            serial: int(block, "event_serial_no"),
        })
    }

    fn redo(block: &Row) -> Option<Self> {
        // LogMiner pads the record's address with spaces.
        let trimmed = |name: &str| {
            text(block, name).map(|text| text.trim().into()).filter(|text: &CompactString| !text.is_empty())
        };
        Some(Self::Redo {
            scn: trimmed("scn")?,
            commit_scn: trimmed("commit_scn"),
            tx_id: trimmed("txId"),
            rs_id: trimmed("rs_id"),
            row_id: trimmed("row_id"),
            lcr_position: trimmed("lcr_position"),
        })
    }

    fn oplog(block: &Row) -> Option<Self> {
        let in_transaction = int(block, "txnNumber").is_some() || text(block, "lsid").is_some();
        Some(Self::Oplog { ts_ms: int(block, "ts_ms")?, ord: int(block, "ord")?, in_transaction })
    }
}

fn text(block: &Row, name: &str) -> Option<CompactString> {
    match block.get(name) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
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
        for block in [
            r#"{"connector":"oracle","lsn":1}"#,
            r#"{"connector":"sqlserver","change_lsn":"00000027:00000758:0003"}"#,
            r#"{"connector":"mongodb","ord":1}"#,
            r#"{"connector":"vitess","vgtid":""}"#,
            r#"{"connector":"spanner","lsn":1,"file":"f","pos":1}"#,
        ] {
            assert_eq!(source(block).position, Position::Unknown, "{block}");
        }
        assert_eq!(
            source(r#"{"connector":"postgresql","lsn":null}"#).position,
            Position::Wal { lsn: None, tx_id: None }
        );
        assert_eq!(source(r#"{"lsn":"7","txId":"8"}"#).position, Position::Wal { lsn: Some(7), tx_id: Some(8) });
    }

    #[test]
    fn coordinates_of_other_connectors() {
        let capture = source(
            r#"{"connector":"sqlserver","change_lsn":"27:758:3","commit_lsn":"27:758:5","event_serial_no":"1"}"#,
        );
        let expected =
            Position::Capture { commit_lsn: "27:758:5".into(), change_lsn: Some("27:758:3".into()), serial: Some(1) };
        assert_eq!(capture.position, expected);
        let redo = source(
            r#"{"connector":"oracle","scn":"2122184","commit_scn":"2122185","txId":"6.28.807","rs_id":" 0x00002c.00003c9b.0010 ","ssn":0}"#,
        );
        let expected = Position::Redo {
            scn: "2122184".into(),
            commit_scn: Some("2122185".into()),
            tx_id: Some("6.28.807".into()),
            rs_id: Some("0x00002c.00003c9b.0010".into()),
            row_id: None,
            lcr_position: None,
        };
        assert_eq!(redo.position, expected);
        let oplog = source(
            r#"{"connector":"mongodb","db":"shop","collection":"orders","ts_ms":9,"ord":31,"lsid":null,"txnNumber":null}"#,
        );
        assert_eq!((&*oplog.db, &*oplog.table), ("shop", "orders"));
        assert_eq!(oplog.position, Position::Oplog { ts_ms: 9, ord: 31, in_transaction: false });
        let vitess = source(r#"{"connector":"vitess","db":"","keyspace":"commerce","table":"t","vgtid":"[]"}"#);
        assert_eq!((&*vitess.db, vitess.position), ("commerce", Position::Vgtid));
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
