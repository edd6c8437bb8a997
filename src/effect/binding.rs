//! Values on their way into a statement: what a parameter names, and in which form its place takes it.

use std::borrow::Cow;

use super::fit::{Misfit, anywhere, fit};
use crate::debezium::event::{ChangeEvent, Shape};
use crate::debezium::value::Value;
use crate::effect::Delivery;
use crate::effect::template::{Meta, Param};
use crate::store::{Bind, Column, Dialect};

/// Why a value cannot be bound: the message is parked with this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unbindable {
    pub code: &'static str,
    pub reason: String,
}

/// The value that a parameter names, for a place of which the column may be known.
pub(super) fn resolve(
    delivery: &Delivery<'_>,
    param: &Param,
    column: Option<&Column>,
    dialect: Dialect,
) -> Result<Bind, Unbindable> {
    let value = named(delivery, param)?;
    let bound = match column {
        Some(column) => into_column(&value, column, dialect, &delivery.message.event),
        None => anywhere(&value, dialect).map_err(|misfit| unbindable("", misfit)),
    };
    bound.map_err(|Unbindable { code, reason }| Unbindable { code, reason: format!("parameter {param}: {reason}") })
}

/// A value into a column, whose name is in the reason if it cannot.
pub(super) fn into_column(
    value: &Value,
    column: &Column,
    dialect: Dialect,
    event: &ChangeEvent,
) -> Result<Bind, Unbindable> {
    if *value == Value::Null && column.replaces_null {
        let reason = format!("column {}: it is NOT NULL, and would store a value of its own for NULL", column.name);
        return Err(Unbindable { code: "null_in_required", reason });
    }
    fit(value, &column.holds, dialect, opaque(event)).map_err(|misfit| match column.name.as_str() {
        "" => unbindable("", misfit),
        name => unbindable(&format!("column {name}: "), misfit),
    })
}

fn unbindable(place: &str, misfit: Misfit) -> Unbindable {
    Unbindable { code: misfit.code, reason: format!("{place}{}", misfit.reason) }
}

/// Debezium writes decimals and bytes as base64, and says so in the schema alone.
fn opaque(event: &ChangeEvent) -> bool {
    !event.typed && matches!(event.shape, Shape::Envelope | Shape::Flattened)
}

fn named<'a>(delivery: &Delivery<'a>, param: &Param) -> Result<Cow<'a, Value>, Unbindable> {
    let event = &delivery.message.event;
    let missing = |what: &str| Unbindable { code: "missing_field", reason: format!("the message has no {what}") };
    let found = match param {
        Param::Field(path) => event.field(path).ok_or_else(|| missing(&format!("field {path}")))?,
        Param::Before(path) => {
            let value = event.before.as_ref().and_then(|row| row.path(path));
            value.ok_or_else(|| missing(&format!("field {path} before the change")))?
        }
        Param::Key(path) => {
            let value = match &event.key {
                Some(Value::Struct(row)) => row.path(path),
                _ => None,
            };
            value.ok_or_else(|| missing(&format!("key field {path}")))?
        }
        Param::Header(name) => {
            let mut values = delivery.record.header_values(name);
            let value = values.next().ok_or_else(|| missing(&format!("header {name}")))?;
            return match value.map(std::str::from_utf8) {
                None => Ok(Cow::Owned(Value::Null)),
                Some(Ok(text)) => Ok(Cow::Owned(Value::Text(text.into()))),
                Some(Err(_)) => {
                    Err(Unbindable { code: "header_not_text", reason: format!("header {name} is not UTF-8") })
                }
            };
        }
        Param::Meta(meta) => return Ok(Cow::Owned(resolve_meta(delivery, *meta))),
    };
    Ok(Cow::Borrowed(found))
}

fn resolve_meta(delivery: &Delivery<'_>, meta: Meta) -> Value {
    let message = delivery.message;
    let text = |text: &str| Value::Text(text.into());
    match meta {
        Meta::MessageId => text(message.id.as_str()),
        Meta::CorrelationId => message.correlation_id.as_deref().map_or(Value::Null, text),
        Meta::Topic => text(&message.position.topic),
        Meta::Partition => Value::Int(i64::from(message.position.partition)),
        Meta::Offset => Value::Int(message.position.offset),
        Meta::Op => message.event.op.map_or(Value::Null, |op| text(op.letter())),
        // Milliseconds since 1970 at the origin, else the record's own timestamp.
        Meta::SourceTime => {
            let at = message.event.source.as_ref().and_then(|source| source.ts_ms).or(delivery.record.timestamp_ms);
            at.map_or(Value::Null, Value::Int)
        }
    }
}
