//! `ExtractNewRecordState`: the row alone, with metadata in fields and headers that begin with `__`.

use super::event::Operation;
use super::header;
use super::source::{self, Snapshot, Source};
use super::value::{Row, Value};
use crate::record::Record;

/// What the `__` fields and headers say.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// A row whose metadata is incomplete is a state to be upserted: read.
    pub op: Operation,
    /// Present where at least the table or a position is named.
    pub source: Option<Source>,
}

/// `add.fields` and `add.headers` name a field of the source block with or without `source.` before it.
const PREFIX: &str = "__";
const SOURCE_PREFIX: &str = "__source_";

/// Names that a row of someone's own is not taken for flattened by accident: what the transformation itself adds,
/// and the fields of the source block by which a change is found.
const KNOWN: [&str; 14] = [
    "__op",
    "__deleted",
    "__table",
    "__collection",
    "__db",
    "__schema",
    "__lsn",
    "__txId",
    "__file",
    "__pos",
    "__gtid",
    "__scn",
    "__change_lsn",
    "__commit_lsn",
];

/// Field of the source block, header that says the same.
const CONTEXT: [(&str, &str); 2] =
    [("connector", "__debezium.context.connectorName"), ("name", "__debezium.context.connectorLogicalName")];

/// The metadata of a flattened record; `None` if there is none at all, in the value or in the headers.
pub fn metadata(record: &Record, row: &Row) -> Option<Metadata> {
    // Most names are somebody's own, and told apart by their first two bytes.
    let marked = |name: &str| name.starts_with(PREFIX) && (KNOWN.contains(&name) || name.starts_with(SOURCE_PREFIX));
    let found = row.iter().any(|(name, _)| marked(name)) || record.headers.iter().any(|header| marked(&header.name));
    if !found {
        return None;
    }
    let mut op = field(record, row, "__op").and_then(|op| Operation::from_letter(&op)).unwrap_or(Operation::Read);
    // `delete.tombstone.handling.mode=rewrite` says it in a text; a boolean by a cast in between.
    if field(record, row, "__deleted").is_some_and(|deleted| deleted == "true") {
        op = Operation::Delete;
    }
    Some(Metadata { op, source: source(record, row, op) })
}

/// The row without its metadata: `__` fields are never columns.
pub fn without_metadata(mut row: Row) -> Row {
    row.retain(|name, _| !name.starts_with(PREFIX));
    row
}

fn field(record: &Record, row: &Row, name: &str) -> Option<String> {
    match row.get(name) {
        Some(value) => value.as_text().map(|text| text.into_owned()),
        None => record.header_values(name).flatten().find_map(header::text),
    }
}

/// A source block out of what was added. Connector and logical name come from the context headers of Debezium 3.
fn source(record: &Record, row: &Row, op: Operation) -> Option<Source> {
    let mut block = Row::new();
    for prefix in [SOURCE_PREFIX, PREFIX] {
        for (name, value) in row.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            add(&mut block, prefix, name, || Some(value.clone()));
        }
        for header in &record.headers {
            add(&mut block, prefix, &header.name, || header::read(header.value.as_deref()?));
        }
    }
    if ["table", "collection", "lsn", "file", "scn", "commit_lsn"].iter().all(|name| block.get(name).is_none()) {
        return None;
    }
    for (name, header) in CONTEXT {
        let found = record.header_values(header).flatten().find_map(header::text);
        if let (None, Some(text)) = (block.get(name), found) {
            block.push(name, Value::Text(text.into()));
        }
    }
    let transaction = field(record, row, "__transaction_id").map(|id| Value::Text(id.into()));
    let transaction = Row::from_iter(transaction.map(|id| ("id".into(), id)));
    let mut source = Source::read(&block, Some(&transaction));
    if op == Operation::Read && source.snapshot == Snapshot::No {
        source.snapshot = Snapshot::Yes;
    }
    Some(source)
}

/// Adds a metadata field under its name in the source block, unless that is there already.
fn add(block: &mut Row, prefix: &str, name: &str, value: impl FnOnce() -> Option<Value>) {
    let Some(name) = name.strip_prefix(prefix).filter(|name| source::FIELDS.contains(name)) else { return };
    // The bare `__ts_ms` is the envelope's: when the connector saw the change.
    if block.get(name).is_some() || (name == "ts_ms" && prefix == PREFIX) {
        return;
    }
    if let Some(value) = value().filter(|value| *value != Value::Null) {
        block.push(name, value);
    }
}
