//! `message_id = "source"`: an id from the coordinates of a change.
//!
//! It survives a connector restart and a re-emission at another Kafka offset, and tells apart several rows of one
//! statement, the delete and the create of a key change, and one key changed twice in a transaction. So it is
//! never made from `ts_ms` (new at each emission), a Kafka offset, an LSN alone (rows of one COPY share it) or
//! `transaction.total_order` (begins again at 1 when a connector restarts inside a transaction).

use sha2::{Digest, Sha256};

use super::decimal::push_padded;
use super::event::{ChangeEvent, Fault, Operation};
use super::guard::file_number;
use super::render::push_hex;
use super::source::{Position, Source};

/// The recipe. An id, once made, keeps its meaning for ever: another recipe is another prefix.
const RECIPE: &str = "s1";

/// Table names longer than this are cut in the readable part; the whole name is hashed.
const SHOWN_TABLE: usize = 32;

/// A locus is a number or an LSN; nothing longer is repeated.
const MOST_LOCUS: usize = 40;

/// `s1:LOCUS:OP:TABLE:HASH`, at most 120 bytes of ASCII.
///
/// The hash (128 bits of SHA-256) covers, each with its length before it: connector name, database, schema, table,
/// key (or the row's digest where there is none), op, and the position:
///
/// | connector      | position |
/// |----------------|----------|
/// | MySQL, MariaDB | GTID, else server id; file, pos, row |
/// | PostgreSQL     | lsn, txId |
/// | SQL Server     | commit_lsn, change_lsn, event_serial_no |
/// | Db2            | commit_lsn, change_lsn |
/// | Oracle         | scn, txId, rs_id and without a key row_id (LogMiner); scn, lcr_position (XStream) |
/// | MongoDB        | the oplog entry's time and ord, outside multi-document transactions |
///
/// The first two were measured against killed connectors; the others are read from Debezium's documentation and source
/// and were not run here. All of theirs are addresses inside the origin's log, which a connector that starts again
/// reads again as they are:
///
/// - SQL Server's and Db2's change tables hold both LSNs of each change; the serial, which SQL Server's connector counts
///   from 1 for what shares the two, is the offset by which it goes on.
/// - Oracle's `rs_id` is the redo record's own address. `txSeq` is left out, for it counts what the connector captures and
///   moves with its table list; `ssn` is always 0; `row_id` tells apart rows of one array insert, which a key does too,
///   and is new in some release. OpenLogReplicator sends neither `rs_id` nor `lcr_position`: no safe id.
/// - MongoDB's `source.ts_ms` is the oplog's time, not the connector's. Changes of one multi-document transaction have
///   one time and one ord, and may be of one document: no safe id.
/// - Vitess gives all changes of a transaction one `vgtid`, whose other shards differ from one emission to the next: no
///   safe id.
///
/// The locus repeats the position so that ids made one after the other stand beside each other in an index. Snapshot
/// reads are `s1:snapshot:r:TABLE:HASH` over connector name, database, schema, table, key, snapshot position and the
/// row's digest: a repeated snapshot is new.
///
/// Key and row count as they came on the wire, so the id does not depend on the schema wrapper.
///
/// # Errors
/// `no_safe_id` where the coordinates do not suffice.
pub fn source_id(event: &ChangeEvent) -> Result<String, Fault> {
    let source = event.source.as_ref().ok_or_else(|| no_safe_id("the record carries no source coordinates"))?;
    let op = event.op.ok_or_else(|| no_safe_id("the record carries no operation"))?;
    if source.name.is_empty() {
        return Err(no_safe_id("the source has no connector name"));
    }
    if source.table.is_empty() && op != Operation::Message {
        return Err(no_safe_id("the source has no table"));
    }
    if let Some(why) = &event.wire.key_unread {
        return Err(Fault::new("key_undecodable", format!("{why}; no id can be derived without the key")));
    }
    let mut coordinates = Coordinates::new(source);
    match &event.wire.key {
        Some(key) => coordinates.add("key", key),
        None => coordinates.add("row", event.wire.row.as_deref().unwrap_or_default()),
    }
    let snapshot = op == Operation::Read;
    let locus = coordinates.add_position(event, source, snapshot)?;
    if snapshot {
        coordinates.add("snapshot", event.wire.row.as_deref().unwrap_or_default());
    } else {
        coordinates.add("op", op.letter());
    }
    let mut id = String::with_capacity(120);
    for part in [RECIPE, &locus, op.letter(), &shown(&source.table)] {
        id.push_str(part);
        id.push(':');
    }
    push_hex(&mut id, &Sha256::digest(coordinates.0)[..16]);
    Ok(id)
}

/// The parts, hashed at the end.
struct Coordinates(String);

impl Coordinates {
    fn new(source: &Source) -> Self {
        let mut coordinates = Self(String::with_capacity(256));
        coordinates.add("name", &source.name);
        coordinates.add("db", &source.db);
        coordinates.add("schema", source.schema.as_deref().unwrap_or_default());
        coordinates.add("table", &source.table);
        coordinates
    }

    /// Lengths before the parts: no two lists of parts hash the same bytes.
    fn add(&mut self, label: &str, part: &str) {
        self.0.push_str(label);
        self.0.push(':');
        self.0.push_str(itoa::Buffer::new().format(part.len()));
        self.0.push(':');
        self.0.push_str(part);
    }

    fn number(&mut self, label: &str, number: i64) {
        self.add(label, itoa::Buffer::new().format(number));
    }

    /// Adds the position and returns the locus.
    fn add_position(&mut self, event: &ChangeEvent, source: &Source, snapshot: bool) -> Result<String, Fault> {
        let locus = match &source.position {
            Position::Binlog { server_id, gtid, file, pos, row } => {
                match gtid {
                    Some(gtid) => self.add("gtid", gtid),
                    None => self.number("server_id", *server_id),
                }
                self.add("file", file);
                self.number("pos", *pos);
                self.number("row", *row);
                let mut locus = String::with_capacity(24);
                push_padded(&mut locus, file_number(file).unwrap_or(0).into(), 6);
                for (number, width) in [(pos, 10), (row, 1)] {
                    locus.push_str(if *number < 0 { ".-" } else { "." });
                    push_padded(&mut locus, number.unsigned_abs(), width);
                }
                locus
            }
            Position::Wal { lsn: Some(lsn), tx_id } => {
                self.number("lsn", *lsn);
                self.add("txId", &tx_id.map_or_else(String::new, |id| id.to_string()));
                format!("{lsn:016x}")
            }
            Position::Capture { commit_lsn, change_lsn, serial } => {
                if change_lsn.is_none() && !snapshot {
                    return Err(no_safe_id("the source has no change_lsn"));
                }
                self.add("commit_lsn", commit_lsn);
                self.add("change_lsn", change_lsn.as_deref().unwrap_or_default());
                self.add("serial", &serial.map_or_else(String::new, |serial| serial.to_string()));
                commit_lsn.chars().filter(char::is_ascii_alphanumeric).take(MOST_LOCUS).collect()
            }
            Position::Redo { scn, tx_id, rs_id, row_id, lcr_position, commit_scn: _ } => {
                self.add("scn", scn);
                match (lcr_position, rs_id, tx_id) {
                    (Some(position), ..) => self.add("lcr_position", position),
                    (None, Some(rs_id), Some(tx_id)) => {
                        self.add("txId", tx_id);
                        self.add("rs_id", rs_id);
                        if event.wire.key.is_none() {
                            self.add("row_id", row_id.as_deref().unwrap_or_default());
                        }
                    }
                    _ if snapshot => {}
                    _ => return Err(no_safe_id("the source has neither lcr_position nor rs_id and txId")),
                }
                format!("{:0>16}", shown(scn))
            }
            Position::Oplog { in_transaction: true, .. } if !snapshot => {
                return Err(no_safe_id("the changes of a multi-document transaction share their coordinates"));
            }
            Position::Oplog { ts_ms, ord, .. } => {
                self.number("ts_ms", *ts_ms);
                self.number("ord", *ord);
                format!("{ts_ms:013}.{ord:010}")
            }
            Position::Vgtid if !snapshot => {
                return Err(no_safe_id("the changes of a transaction share their vgtid, which a restart may change"));
            }
            Position::Vgtid => String::new(),
            // An incremental snapshot reads outside the log.
            Position::Wal { lsn: None, .. } | Position::Unknown if snapshot && known(source) => {
                self.add("lsn", "");
                String::new()
            }
            Position::Wal { lsn: None, .. } => return Err(no_safe_id("the source has no lsn")),
            Position::Unknown if known(source) => return Err(no_safe_id("the source has no position in the log")),
            Position::Unknown => {
                let connector = &source.connector;
                return Err(no_safe_id(&format!("the coordinates of connector {connector:?} are not known here")));
            }
        };
        Ok(if snapshot { "snapshot".to_owned() } else { locus })
    }
}

fn known(source: &Source) -> bool {
    matches!(
        &*source.connector,
        "mysql" | "mariadb" | "postgresql" | "sqlserver" | "db2" | "oracle" | "mongodb" | "vitess" | ""
    )
}

fn shown(table: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$') { c } else { '_' }
    };
    table.chars().take(SHOWN_TABLE).map(plain).collect()
}

fn no_safe_id(why: &str) -> Fault {
    Fault::new("no_safe_id", format!("{why}; choose a message_id from header, key or value"))
}

#[cfg(test)]
mod tests;
