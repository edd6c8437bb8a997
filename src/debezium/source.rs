//! Debezium's `source` block: where in the origin's log a change stands.

/// The coordinates of a change in its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// `mysql`, `mariadb`, `postgresql`, ...
    pub connector: Box<str>,
    /// The connector's logical name (`topic.prefix`).
    pub name: Box<str>,
    pub snapshot: Snapshot,
    pub db: Box<str>,
    pub schema: Option<Box<str>>,
    pub table: Box<str>,
    /// Milliseconds since 1970-01-01 UTC at which the origin committed (to its own precision).
    pub ts_ms: Option<i64>,
    pub position: Position,
    /// `transaction.id` of the envelope.
    pub transaction: Option<Box<str>>,
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
        gtid: Option<Box<str>>,
        file: Box<str>,
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
