//! `message_id = "source"`: an id from the coordinates of a change.
//!
//! It survives a connector restart and a re-emission at another Kafka offset, and tells apart several rows of one
//! statement, the delete and the create of a key change, and one key changed twice in a transaction. So it is
//! never made from `ts_ms` (new at each emission), a Kafka offset, an LSN alone (rows of one COPY share it) or
//! `transaction.total_order` (begins again at 1 when a connector restarts inside a transaction).

use sha2::{Digest, Sha256};

use super::event::{ChangeEvent, Fault, Operation};
use super::guard::file_number;
use super::render::hex;
use super::source::{Position, Source};

/// The recipe. An id, once made, keeps its meaning for ever: another recipe is another prefix.
const RECIPE: &str = "s1";

/// Table names longer than this are cut in the readable part; the whole name is hashed.
const SHOWN_TABLE: usize = 32;

/// `s1:LOCUS:OP:TABLE:HASH`, at most 120 bytes of ASCII.
///
/// The hash (128 bits of SHA-256) covers, each with its length before it: connector name, database, schema, table,
/// key (or the row's digest where there is none), op, and the position: GTID where present, else server id, then
/// file, pos and row; for PostgreSQL lsn and txId. The locus repeats the position so that ids made one after the other
/// stand beside each other in an index. Snapshot reads are `s1:snapshot:r:TABLE:HASH` over connector name, database,
/// schema, table, key, snapshot position and the row's digest: a repeated snapshot is new.
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
    if event.wire.key_unread {
        return Err(Fault::new("key_undecodable", "the key is Avro that cannot be read with its schema"));
    }
    let mut coordinates = Coordinates::new(source);
    match &event.wire.key {
        Some(key) => coordinates.add("key", key),
        None => coordinates.add("row", event.wire.row.as_deref().unwrap_or_default()),
    }
    let snapshot = op == Operation::Read;
    let locus = coordinates.add_position(&source.position, snapshot, source)?;
    if snapshot {
        coordinates.add("snapshot", event.wire.row.as_deref().unwrap_or_default());
    } else {
        coordinates.add("op", op.letter());
    }
    Ok(format!("{RECIPE}:{locus}:{}:{}:{}", op.letter(), shown(&source.table), coordinates.hash()))
}

struct Coordinates(Sha256);

impl Coordinates {
    fn new(source: &Source) -> Self {
        let mut coordinates = Self(Sha256::new());
        coordinates.add("name", &source.name);
        coordinates.add("db", &source.db);
        coordinates.add("schema", source.schema.as_deref().unwrap_or_default());
        coordinates.add("table", &source.table);
        coordinates
    }

    /// Lengths before the parts: no two lists of parts hash the same bytes.
    fn add(&mut self, label: &str, part: &str) {
        self.0.update(format!("{label}:{}:", part.len()));
        self.0.update(part);
    }

    fn number(&mut self, label: &str, number: i64) {
        self.add(label, &number.to_string());
    }

    /// Adds the position and returns the locus.
    fn add_position(&mut self, position: &Position, snapshot: bool, source: &Source) -> Result<String, Fault> {
        let locus = match position {
            Position::Binlog { server_id, gtid, file, pos, row } => {
                match gtid {
                    Some(gtid) => self.add("gtid", gtid),
                    None => self.number("server_id", *server_id),
                }
                self.add("file", file);
                self.number("pos", *pos);
                self.number("row", *row);
                format!("{:06}.{pos:010}.{row}", file_number(file).unwrap_or(0))
            }
            Position::Wal { lsn: Some(lsn), tx_id } => {
                self.number("lsn", *lsn);
                self.add("txId", &tx_id.map_or_else(String::new, |id| id.to_string()));
                format!("{lsn:016x}")
            }
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

    fn hash(self) -> String {
        hex(&self.0.finalize()[..16])
    }
}

fn known(source: &Source) -> bool {
    matches!(&*source.connector, "mysql" | "mariadb" | "postgresql" | "")
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
