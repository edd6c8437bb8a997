//! What stands in the parts of an envelope: states of a row, a logical message.

use super::event::Fault;
use super::value::{Row, Value};
use super::{convert, json};

/// A state of a row. MongoDB's connector sends it as JSON in a text.
pub(super) fn state(value: Option<Value>, name: &str) -> Result<Option<Row>, Fault> {
    let mismatch = || Fault::new("type_mismatch", format!("field {name}: no row"));
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Struct(row)) => Ok(Some(row)),
        Some(Value::Text(text)) => match json::parse_unique(&text) {
            Ok(Value::Struct(row)) => Ok(Some(row)),
            _ => Err(mismatch()),
        },
        Some(_) => Err(mismatch()),
    }
}

/// What MongoDB's connector says of an update whose document it does not look up, or finds deleted.
pub(super) const DESCRIPTION_ALONE: &str = "the update says which fields changed (updateDescription), not what the document is; set \
                                 the connector's capture.mode to one with full documents";

/// An update in words, where a document should be.
pub(super) fn is_description(row: &Row) -> bool {
    row.get("updateDescription").is_some_and(|described| *described != Value::Null)
}

/// `pg_logical_emit_message`: a prefix and bytes.
pub(super) fn logical_message(message: Option<&Row>) -> Result<Row, Fault> {
    let missing = |name: &str| Fault::new("type_mismatch", format!("field message.{name}: missing"));
    let message = message.ok_or_else(|| Fault::new("type_mismatch", "field message: missing"))?;
    let content = message.get("content").and_then(convert::bytes).ok_or_else(|| missing("content"))?;
    let mut row = Row::with_capacity(2);
    row.push("prefix", message.get("prefix").cloned().ok_or_else(|| missing("prefix"))?);
    row.push("content", Value::Bytes(content));
    Ok(row)
}
