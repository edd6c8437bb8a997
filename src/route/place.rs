//! Reading a text from its place in a record.

use super::Place;
use crate::debezium::event::{ChangeEvent, Fault};
use crate::debezium::header;
use crate::debezium::value::Value;
use crate::record::Record;

/// What a text is read for; it names the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Id,
    CorrelationId,
    SourceApp,
}

/// A value at its place.
pub(super) struct Found {
    pub value: Value,
    /// It came in a header as a JSON text in quotes, which is how a converter sends bytes.
    pub quoted: bool,
}

impl Role {
    fn noun(self) -> &'static str {
        match self {
            Self::Id => "the message id",
            Self::CorrelationId => "the correlation id",
            Self::SourceApp => "the source app",
        }
    }

    pub fn not_text(self, why: &str) -> Fault {
        let code = match self {
            Self::Id => "id_not_text",
            Self::CorrelationId => "correlation_id_not_text",
            Self::SourceApp => "source_app_not_text",
        };
        Fault::new(code, format!("{} cannot be used: {why}", self.noun()))
    }

    fn too_long(self, bytes: usize, most: usize) -> Fault {
        let code = match self {
            Self::Id => "id_too_long",
            Self::CorrelationId => "correlation_id_too_long",
            Self::SourceApp => "source_app_too_long",
        };
        Fault::new(code, format!("{} has {bytes} bytes, at most {most} are allowed", self.noun()))
    }

    fn ambiguous(self, header: &str) -> Fault {
        let code = match self {
            Self::Id => "id_ambiguous",
            Self::CorrelationId => "correlation_id_ambiguous",
            Self::SourceApp => "source_app_ambiguous",
        };
        Fault::new(code, format!("header {header} stands several times and differs"))
    }

    /// A text that every database can hold as text, within the limit.
    pub fn checked(self, text: String, most: usize) -> Result<String, Fault> {
        if text.contains('\0') {
            Err(self.not_text("it contains a NUL"))
        } else if text.len() > most {
            Err(self.too_long(text.len(), most))
        } else {
            Ok(text)
        }
    }
}

/// The value at a place; `None` where it is absent or null. Of an event that could not be decoded (`None`) only
/// headers are asked, everything else is absent.
pub(super) fn at_place(
    place: &Place,
    record: &Record,
    event: Option<&ChangeEvent>,
    role: Role,
) -> Result<Option<Found>, Fault> {
    let value = match (place, event) {
        (Place::Header(name), _) => return at_header(record, name, role),
        (Place::Key(None), Some(event)) => event.key.as_ref(),
        (Place::Key(Some(path)), Some(event)) => match &event.key {
            Some(Value::Struct(key)) => key.path(path),
            _ => None,
        },
        (Place::Value(path), Some(event)) => event.value_at(path),
        (Place::Key(_) | Place::Value(_), None) => None,
    };
    Ok(value.filter(|value| **value != Value::Null).map(|value| Found { value: value.clone(), quoted: false }))
}

/// A header may stand several times if all of them say the same: taking the first or the last would be luck.
fn at_header(record: &Record, name: &str, role: Role) -> Result<Option<Found>, Fault> {
    let mut found: Option<Found> = None;
    for bytes in record.header_values(name).flatten() {
        let value = header::read(bytes).unwrap_or_else(|| Value::Bytes(bytes.into()));
        if value == Value::Null {
            continue;
        }
        let quoted = bytes.starts_with(b"\"") || bytes.starts_with(b"{");
        match &found {
            Some(earlier) if earlier.value != value => return Err(role.ambiguous(name)),
            Some(_) => {}
            None => found = Some(Found { value, quoted }),
        }
    }
    Ok(found)
}

/// Exact digits of numbers; nothing for bytes, nested values and booleans, which name nothing.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Null
        | Value::Unavailable
        | Value::Bool(_)
        | Value::Bytes(_)
        | Value::Geometry { .. }
        | Value::Array(_)
        | Value::Struct(_) => None,
        Value::Int(_)
        | Value::Number(_)
        | Value::Decimal(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Date(_)
        | Value::Time(_)
        | Value::TimeTz(_)
        | Value::Timestamp(_)
        | Value::TimestampTz(_)
        | Value::Interval(_)
        | Value::Bits(_)
        | Value::Uuid(_)
        | Value::Json(_) => value.as_text().map(|text| text.into_owned()),
    }
}
