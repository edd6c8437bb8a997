//! How an id stands at its place: opaque text, a UUID, or a UUID's bytes.

use super::IdFormat;
use super::place::{Found, Role, scalar_text};
use crate::debezium::convert;
use crate::debezium::event::Fault;
use crate::debezium::value::Value;

/// The id's text by the route's format.
pub(super) fn id_text(found: Found, format: IdFormat) -> Result<String, Fault> {
    match format {
        IdFormat::Text => {
            if let Value::Text(text) = &found.value
                && found.quoted
                && looks_like_uuid_bytes(text)
            {
                return Err(Role::Id
                    .not_text("it looks like 16 bytes in base64; if they are a uuid, set id_format = \"uuid-bytes\""));
            }
            scalar_text(&found.value).ok_or_else(|| Role::Id.not_text("it is neither text nor a number, or not utf-8"))
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
