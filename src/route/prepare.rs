//! From what a record says to what its route means by it.

use super::Route;
use super::columns::{self, Origin};
use crate::debezium::event::{ChangeEvent, Fault, KeyChange, Operation, Shape};
use crate::debezium::json::{self, JsonError};
use crate::debezium::value::Value;

/// Turns the decoded event into what the route means: a logical message's JSON is its value, double encoding is undone
/// where that is configured, declared column types are applied.
pub(super) fn prepare(route: &Route, event: &mut ChangeEvent) -> Result<(), Fault> {
    if event.op == Some(Operation::Message) && route.matcher.prefix.is_some() {
        unpack_content(event)?;
    }
    if matches!(event.shape, Shape::Outbox | Shape::Plain) {
        unpack_text(route, event)?;
    }
    let origin = Origin { shape: event.shape, typed: event.typed };
    let deleted = event.after.is_none();
    if let Some(after) = &mut event.after {
        columns::apply(&route.columns, after, origin)?;
    }
    if let Some(before) = &mut event.before {
        let applied = columns::apply(&route.columns, before, origin);
        // An old state that does not fit is nobody's business while there is a new one.
        if deleted {
            applied?;
        }
    }
    if let Some(Value::Struct(key)) = &mut event.key {
        let _ = columns::apply(&route.columns, key, origin);
    }
    if let Some(KeyChange::CreatedFrom(Value::Struct(key)) | KeyChange::MovedTo(Value::Struct(key))) =
        &mut event.key_change
    {
        let _ = columns::apply(&route.columns, key, origin);
    }
    Ok(())
}

/// Content that is no JSON stays as it is: `prefix` and `content`.
fn unpack_content(event: &mut ChangeEvent) -> Result<(), Fault> {
    let Some(Value::Bytes(content)) = event.field("content") else {
        return Ok(());
    };
    let Ok(text) = std::str::from_utf8(content) else {
        return Ok(());
    };
    match json::parse_unique(text) {
        Ok(Value::Struct(row)) => event.after = Some(row),
        Ok(scalar) => {
            event.after = None;
            event.scalar = Some(scalar);
        }
        Err(error @ JsonError::Repeated(_)) => {
            return Err(Fault::new("undecodable", format!("the json in the message is ambiguous: {error}")));
        }
        Err(_) => {}
    }
    Ok(())
}

/// A JSON text around a JSON document is either undone by configuration or a mistake: expanding it unasked would
/// change a value that was meant as text.
fn unpack_text(route: &Route, event: &mut ChangeEvent) -> Result<(), Fault> {
    let Some(Value::Text(text)) = &event.scalar else {
        return Ok(());
    };
    if text.is_empty() {
        return Err(Fault::new("empty_value", "the value is an empty text"));
    }
    let inner = json::parse_unique(text);
    match (route.double_encoded, inner) {
        (true, Ok(Value::Struct(row))) => {
            event.after = Some(row);
            event.scalar = None;
        }
        (true, Ok(inner)) => event.scalar = Some(inner),
        (true, Err(error @ JsonError::Repeated(_))) => {
            return Err(Fault::new("type_mismatch", format!("the json in the text is ambiguous: {error}")));
        }
        (true, Err(_)) => return Err(Fault::new("type_mismatch", "the value is a text that holds no json")),
        (false, Ok(Value::Struct(_) | Value::Array(_))) => {
            let detail = "the value is a json document inside a json text; set double_encoded to undo it";
            return Err(Fault::new("type_mismatch", detail));
        }
        (false, Ok(_) | Err(_)) => {}
    }
    Ok(())
}
