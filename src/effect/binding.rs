//! Values on their way into a statement, each in the exact text or type that the database reads.

use crate::debezium::value::Value;
use crate::effect::Delivery;
use crate::effect::template::{Meta, Param};
use crate::store::{Bind, Dialect};

/// Why a value cannot be bound: the message is parked with this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unbindable {
    pub code: &'static str,
    pub reason: String,
}

/// The value that a parameter names.
pub(super) fn resolve(delivery: &Delivery<'_>, param: &Param, dialect: Dialect) -> Result<Bind, Unbindable> {
    let message = delivery.message;
    let event = &message.event;
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
                None => Ok(Bind::Null),
                Some(Ok(text)) => Ok(Bind::text(text)),
                Some(Err(_)) => {
                    Err(Unbindable { code: "header_not_text", reason: format!("header {name} is not UTF-8") })
                }
            };
        }
        Param::Meta(meta) => return Ok(resolve_meta(delivery, *meta, dialect)),
    };
    bind(found, dialect).map_err(|mut unbindable| {
        unbindable.reason = format!("{}: {}", param_name(param), unbindable.reason);
        unbindable
    })
}

fn param_name(param: &Param) -> &str {
    match param {
        Param::Field(name) | Param::Before(name) | Param::Key(name) | Param::Header(name) => name,
        Param::Meta(_) => "meta",
    }
}

fn resolve_meta(delivery: &Delivery<'_>, meta: Meta, dialect: Dialect) -> Bind {
    let message = delivery.message;
    let int = |value: i64| match dialect {
        // All Postgres parameters are texts that the statement casts.
        Dialect::Postgres => Bind::text(value.to_string()),
        Dialect::MySql | Dialect::Sqlite => Bind::Int(value),
    };
    match meta {
        Meta::MessageId => Bind::text(message.id.as_str()),
        Meta::CorrelationId => Bind::opt_text(message.correlation_id.as_deref()),
        Meta::Topic => Bind::text(&*message.position.topic),
        Meta::Partition => int(i64::from(message.position.partition)),
        Meta::Offset => int(message.position.offset),
        Meta::Op => Bind::opt_text(message.event.op.map(|op| op.letter())),
        // Milliseconds since 1970 at the origin, else the record's own timestamp.
        Meta::SourceTime => {
            let at = message.event.source.as_ref().and_then(|source| source.ts_ms).or(delivery.record.timestamp_ms);
            at.map_or(Bind::Null, int)
        }
    }
}

/// A value as a bind. Postgres gets every value as text, which the statement casts to the type of its place: the
/// server's own input function reads it exactly. MySQL gets numbers as numbers, for it computes with strings as
/// doubles. SQLite keeps what it gets, by the affinity of the column.
pub(super) fn bind(value: &Value, dialect: Dialect) -> Result<Bind, Unbindable> {
    let unbindable = |reason: &str| Unbindable { code: "type_mismatch", reason: reason.to_owned() };
    if dialect == Dialect::Postgres {
        return Ok(match value {
            Value::Null => Bind::Null,
            Value::Bytes(bytes) => Bind::Text(format!("\\x{}", crate::debezium::render::hex(bytes))),
            Value::Geometry { wkb, .. } => Bind::Text(crate::debezium::render::hex(wkb)),
            Value::Interval(text) => Bind::Text(postgres_interval(text)),
            Value::Array(items) => Bind::Text(postgres_array(items)),
            Value::Unavailable => return Err(unavailable()),
            other => Bind::opt_text(other.as_text()),
        });
    }
    Ok(match value {
        Value::Null => Bind::Null,
        Value::Bool(value) => Bind::Int(i64::from(*value)),
        Value::Int(value) => Bind::Int(*value),
        Value::Float(value) if value.is_finite() => Bind::Float(*value),
        Value::Float(_) => return Err(unbindable("neither NaN nor infinity can be stored there")),
        Value::Number(text) | Value::Decimal(text) => match dialect {
            // An exponent form is no DECIMAL literal; its text is still read exactly.
            Dialect::MySql if !text.contains(['e', 'E']) => Bind::Decimal(text.to_string()),
            _ => Bind::text(&**text),
        },
        Value::Bytes(bytes) => Bind::Bytes(bytes.to_vec()),
        Value::Geometry { wkb, .. } => Bind::Bytes(wkb.to_vec()),
        Value::Timestamp(text) if dialect == Dialect::MySql => Bind::Text(text.replacen('T', " ", 1)),
        // The session runs in UTC, so that DATETIME and TIMESTAMP both take the instant as it is.
        Value::TimestampTz(text) if dialect == Dialect::MySql => {
            Bind::Text(text.trim_end_matches('Z').replacen('T', " ", 1))
        }
        Value::Bits(text) if dialect == Dialect::MySql => match u64::from_str_radix(text, 2) {
            Ok(bits) => Bind::Decimal(bits.to_string()),
            Err(_) => return Err(unbindable("more than 64 bits")),
        },
        Value::Unavailable => return Err(unavailable()),
        Value::Text(_)
        | Value::Date(_)
        | Value::Time(_)
        | Value::TimeTz(_)
        | Value::Timestamp(_)
        | Value::TimestampTz(_)
        | Value::Interval(_)
        | Value::Bits(_)
        | Value::Uuid(_)
        | Value::Json(_)
        | Value::Array(_)
        | Value::Struct(_) => Bind::opt_text(value.as_text()),
    })
}

fn unavailable() -> Unbindable {
    Unbindable {
        code: "unavailable",
        reason: "the connector did not send the value of this unchanged column (TOAST)".to_owned(),
    }
}

/// Postgres puts the sign inside: `PT-0.5S`, where Debezium's and ISO 8601-2's form is `-PT0.5S`.
fn postgres_interval(text: &str) -> String {
    let Some(positive) = text.strip_prefix('-') else { return text.to_owned() };
    let mut signed = String::with_capacity(text.len() + 4);
    let mut number_before = false;
    for c in positive.chars() {
        let number = c.is_ascii_digit() || c == '.';
        if number && !number_before {
            signed.push('-');
        }
        number_before = number;
        signed.push(c);
    }
    signed
}

/// An array literal; every element quoted, so that none can be taken for syntax or NULL.
fn postgres_array(items: &[Value]) -> String {
    let mut literal = String::from("{");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            literal.push(',');
        }
        match item {
            Value::Array(inner) => literal.push_str(&postgres_array(inner)),
            Value::Null | Value::Unavailable => literal.push_str("NULL"),
            other => {
                let text = match other {
                    Value::Bytes(bytes) => format!("\\x{}", crate::debezium::render::hex(bytes)),
                    scalar => scalar.as_text().unwrap_or_default().into_owned(),
                };
                literal.push('"');
                literal.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
                literal.push('"');
            }
        }
    }
    literal.push('}');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_reach_mysql_as_decimals_and_postgres_as_text() {
        let amount = Value::Decimal("12345678901234567890.123456789".into());
        let exact = "12345678901234567890.123456789".to_owned();
        assert_eq!(bind(&amount, Dialect::MySql).unwrap(), Bind::Decimal(exact.clone()));
        assert_eq!(bind(&amount, Dialect::Postgres).unwrap(), Bind::Text(exact));
    }

    #[test]
    fn an_unavailable_value_is_never_bound() {
        for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite] {
            assert_eq!(bind(&Value::Unavailable, dialect).unwrap_err().code, "unavailable");
        }
    }

    #[test]
    fn array_elements_cannot_leave_their_quotes() {
        let array = Value::Array(vec![Value::Text("a\"},\\".into()), Value::Null, Value::Text("NULL".into())]);
        assert_eq!(bind(&array, Dialect::Postgres).unwrap(), Bind::text(r#"{"a\"},\\",NULL,"NULL"}"#));
    }

    #[test]
    fn a_negative_interval_is_written_as_postgres_reads_it() {
        assert_eq!(postgres_interval("-PT1H0.000001S"), "PT-1H-0.000001S");
        assert_eq!(postgres_interval("PT12H"), "PT12H");
    }
}
