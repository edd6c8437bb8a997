//! Who a message is: its id, its correlation, its digest. Nothing here is ever made up.

use std::sync::Arc;

use super::columns::{self, Origin};
use super::{IdFormat, IdRule, Place, Route};
use crate::debezium::event::{ChangeEvent, Fault, Operation, Shape};
use crate::debezium::value::{Row, Value};
use crate::debezium::{convert, header, json, source_id};
use crate::digest;
use crate::message::{Message, MessageId};
use crate::record::Record;

/// A record that its route cannot make a message of, with what could be found out: it is parked under its id if it has
/// one, and its receipt goes where the correlation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub fault: Fault,
    pub id: Option<MessageId>,
    pub correlation_id: Option<Arc<str>>,
    pub source_app: Option<Arc<str>>,
}

/// [`examine`], where the fault alone matters.
pub fn identify(route: &Route, index: usize, record: &Record, event: ChangeEvent) -> Result<Message, Fault> {
    examine(route, index, record, event).map_err(|unusable| unusable.fault)
}

/// Makes a message of a routed event: gives its values their declared types, reads id, correlation id and source app,
/// and takes the digest.
///
/// # Errors
/// Of the id: `id_missing`, `id_empty`, `id_blank`, `id_not_text`, `id_not_uuid`, `id_too_long`, `id_ambiguous`,
/// `no_safe_id`. Of the content: `type_mismatch`, `empty_value`. Of correlation and source app:
/// `correlation_id_not_text`, `correlation_id_too_long`, `source_app_not_text`, `source_app_too_long`.
pub fn examine(route: &Route, index: usize, record: &Record, mut event: ChangeEvent) -> Result<Message, Box<Unusable>> {
    let prepared = prepare(route, &mut event);
    let id = message_id(route, record, Some(&event));
    let correlation_id = tag(route, &route.correlation_id, "correlation_id", record, Some(&event));
    let source_app = tag(route, &route.source_app, "source_app", record, Some(&event));
    let unusable = |fault: Fault| {
        Box::new(Unusable {
            fault,
            id: id.as_ref().ok().map(|(id, _)| id.clone()),
            correlation_id: correlation_id.clone().unwrap_or_default(),
            source_app: source_app.clone().unwrap_or_default(),
        })
    };
    // The id first: without one nothing else about the message can be told to anybody.
    let (id, derived_id) = id.clone().map_err(unusable)?;
    prepared.map_err(unusable)?;
    let correlation_id = correlation_id.clone().map_err(unusable)?;
    let source_app = source_app.clone().map_err(unusable)?;
    Ok(Message {
        id,
        derived_id,
        digest: digest::digest(&event, route),
        correlation_id,
        source_app,
        position: record.position.clone(),
        route: index,
        event,
    })
}

/// What can be said about a record that could not be decoded, from its headers and what was salvaged of it
/// ([`crate::debezium::envelope::Decoder::salvage`]).
pub fn examine_faulty(route: &Route, record: &Record, salvaged: Option<&ChangeEvent>, fault: Fault) -> Unusable {
    Unusable {
        fault,
        id: message_id(route, record, salvaged).ok().map(|(id, _)| id),
        correlation_id: tag(route, &route.correlation_id, "correlation_id", record, salvaged).unwrap_or_default(),
        source_app: tag(route, &route.source_app, "source_app", record, salvaged).unwrap_or_default(),
    }
}

/// Turns the decoded event into what the route means: a logical message's JSON is its value, double encoding is undone
/// where that is configured, declared column types are applied.
fn prepare(route: &Route, event: &mut ChangeEvent) -> Result<(), Fault> {
    if event.op == Some(Operation::Message) && route.matcher.prefix.is_some() {
        unpack_content(event);
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
    Ok(())
}

/// Content that is no JSON stays as it is: `prefix` and `content`.
fn unpack_content(event: &mut ChangeEvent) {
    let Some(Value::Bytes(content)) = event.field("content") else {
        return;
    };
    match json::parse(content) {
        Ok(Value::Struct(row)) => event.after = Some(row),
        Ok(scalar) => {
            event.after = None;
            event.scalar = Some(scalar);
        }
        Err(_) => {}
    }
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
    let inner = json::parse_text(text);
    match (route.double_encoded, inner) {
        (true, Ok(Value::Struct(row))) => {
            event.after = Some(row);
            event.scalar = None;
        }
        (true, Ok(inner)) => event.scalar = Some(inner),
        (true, Err(_)) => return Err(Fault::new("type_mismatch", "the value is a text that holds no json")),
        (false, Ok(Value::Struct(_) | Value::Array(_))) => {
            let detail = "the value is a json document inside a json text; set double_encoded to undo it";
            return Err(Fault::new("type_mismatch", detail));
        }
        (false, Ok(_) | Err(_)) => {}
    }
    Ok(())
}

/// The id by the first rule whose place is present, and whether it was derived. Without an event (an undecodable
/// value) only headers are asked.
fn message_id(route: &Route, record: &Record, event: Option<&ChangeEvent>) -> Result<(MessageId, bool), Fault> {
    for rule in &route.message_id {
        let found = match rule {
            IdRule::Place(place) => at_place(place, record, event, "id")?,
            IdRule::Source => match event {
                Some(event) => return source_id::source_id(event).map(|id| (MessageId::new(id), true)),
                None => None,
            },
        };
        if let Some(found) = found {
            let id = id_text(found, route.id_format)?;
            return checked(id, route.max_id_bytes, "id").map(|id| (MessageId::new(id), false));
        }
    }
    Err(Fault::new("id_missing", format!("route {} finds no message id at any of its places", route.name)))
}

fn tag(
    route: &Route,
    place: &Option<Place>,
    what: &'static str,
    record: &Record,
    event: Option<&ChangeEvent>,
) -> Result<Option<Arc<str>>, Fault> {
    let Some(place) = place else { return Ok(None) };
    let Some(found) = at_place(place, record, event, what)? else {
        return Ok(None);
    };
    let text = scalar_text(&found.value).ok_or_else(|| not_text(what, "it is no text or number"))?;
    if text.is_empty() {
        return Ok(None);
    }
    checked(text, route.max_id_bytes, what).map(|text| Some(text.into()))
}

/// A value at its place.
struct Found {
    value: Value,
    /// It came in a header as a JSON text in quotes, which is how a converter sends bytes.
    quoted: bool,
}

/// `None` where the place is absent or null.
fn at_place(
    place: &Place,
    record: &Record,
    event: Option<&ChangeEvent>,
    what: &'static str,
) -> Result<Option<Found>, Fault> {
    let value = match (place, event) {
        (Place::Header(name), _) => return at_header(record, name, what),
        (Place::Key(None), Some(event)) => event.key.as_ref(),
        (Place::Key(Some(path)), Some(event)) => match &event.key {
            Some(Value::Struct(key)) => Row::path(key, path),
            _ => None,
        },
        (Place::Value(path), Some(event)) => event.field(path),
        (Place::Key(_) | Place::Value(_), None) => None,
    };
    Ok(value
        .filter(|value| !matches!(value, Value::Null | Value::Unavailable))
        .map(|value| Found { value: value.clone(), quoted: false }))
}

/// A header may stand several times if all of them say the same: taking the first or the last would be luck.
fn at_header(record: &Record, name: &str, what: &'static str) -> Result<Option<Found>, Fault> {
    let mut found: Option<Found> = None;
    for bytes in record.header_values(name).flatten() {
        let value = header::read(bytes).unwrap_or_else(|| Value::Bytes(bytes.into()));
        if value == Value::Null {
            continue;
        }
        let quoted = bytes.starts_with(b"\"") || bytes.starts_with(b"{");
        match &found {
            Some(earlier) if earlier.value != value => {
                return Err(Fault::new(ambiguous(what), format!("header {name} stands several times and differs")));
            }
            Some(_) => {}
            None => found = Some(Found { value, quoted }),
        }
    }
    Ok(found)
}

fn ambiguous(what: &str) -> &'static str {
    match what {
        "id" => "id_ambiguous",
        "correlation_id" => "correlation_id_ambiguous",
        _ => "source_app_ambiguous",
    }
}

fn not_text(what: &'static str, why: &str) -> Fault {
    let code = match what {
        "id" => "id_not_text",
        "correlation_id" => "correlation_id_not_text",
        _ => "source_app_not_text",
    };
    Fault::new(code, format!("the {} cannot be used: {why}", what.replace('_', " ")))
}

fn id_text(found: Found, format: IdFormat) -> Result<String, Fault> {
    match format {
        IdFormat::Text => {
            if let Value::Text(text) = &found.value
                && found.quoted
                && looks_like_uuid_bytes(text)
            {
                return Err(not_text(
                    "id",
                    "it looks like 16 bytes in base64; if they are a uuid, set id_format = \"uuid-bytes\"",
                ));
            }
            scalar_text(&found.value).ok_or_else(|| not_text("id", "it is neither text nor a number, or not utf-8"))
        }
        IdFormat::Uuid => scalar_text(&found.value).and_then(|text| uuid(&text)).ok_or_else(not_uuid),
        IdFormat::UuidBytes => uuid_of_bytes(&found.value).ok_or_else(not_uuid),
    }
}

/// Debezium passes the outbox's id column on in its own type: `BINARY(16)` becomes bytes, in JSON base64.
fn looks_like_uuid_bytes(text: &str) -> bool {
    text.len() == 24
        && text.ends_with("==")
        && convert::bytes(&Value::Text(text.into())).is_some_and(|bytes| bytes.len() == 16)
}

fn not_uuid() -> Fault {
    Fault::new("id_not_uuid", "the id is no uuid, which the route's id_format asks for")
}

/// Exact digits of numbers; nothing for bytes and nested values.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Null
        | Value::Unavailable
        | Value::Bytes(_)
        | Value::Geometry { .. }
        | Value::Array(_)
        | Value::Struct(_) => None,
        Value::Bool(_)
        | Value::Int(_)
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

/// With or without hyphens, braces or `urn:uuid:`, in lower case.
fn uuid(text: &str) -> Option<String> {
    let bare = text.strip_prefix("urn:uuid:").unwrap_or(text);
    let bare = bare.strip_prefix('{').and_then(|bare| bare.strip_suffix('}')).unwrap_or(bare);
    let hyphens: Vec<usize> = bare.bytes().enumerate().filter(|(_, b)| *b == b'-').map(|(at, _)| at).collect();
    let hex: String = bare.chars().filter(|c| *c != '-').collect();
    let shaped = hyphens.is_empty() || hyphens == [8, 13, 18, 23];
    if !shaped || hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let number = u128::from_str_radix(&hex, 16).ok()?;
    Some(convert::uuid_from_bytes(number.to_be_bytes()))
}

/// 16 raw bytes, those in base64, or the UUID's text: one topic may have seen several converters.
fn uuid_of_bytes(value: &Value) -> Option<String> {
    let text = match value {
        Value::Bytes(bytes) => return <[u8; 16]>::try_from(&**bytes).ok().map(convert::uuid_from_bytes),
        Value::Text(text) | Value::Uuid(text) => text,
        _ => return None,
    };
    if let Some(uuid) = uuid(text) {
        return Some(uuid);
    }
    if let Ok(raw) = <[u8; 16]>::try_from(text.as_bytes()) {
        return Some(convert::uuid_from_bytes(raw));
    }
    let bytes = convert::bytes(value)?;
    <[u8; 16]>::try_from(&*bytes).ok().map(convert::uuid_from_bytes)
}

/// Opaque, but it must be told from nothing, fit a text column of every database, and fit the limit.
fn checked(text: String, max_bytes: usize, what: &'static str) -> Result<String, Fault> {
    let code = |of_id: &'static str, of_correlation: &'static str, of_app: &'static str| match what {
        "id" => of_id,
        "correlation_id" => of_correlation,
        _ => of_app,
    };
    if text.is_empty() {
        return Err(Fault::new(code("id_empty", "correlation_id_empty", "source_app_empty"), "the id is empty"));
    }
    if what == "id" && text.chars().all(char::is_whitespace) {
        return Err(Fault::new("id_blank", "the id is nothing but white space"));
    }
    if text.contains('\0') {
        return Err(not_text(what, "it contains a NUL"));
    }
    if text.len() > max_bytes {
        let code = code("id_too_long", "correlation_id_too_long", "source_app_too_long");
        return Err(Fault::new(code, format!("{} bytes, at most {max_bytes} are allowed", text.len())));
    }
    Ok(text)
}
