//! Who a message is: its id, its correlation, its digest. Nothing here is ever made up.

use std::sync::Arc;

use super::id_format::id_text;
use super::place::{Role, at_place, scalar_text};
use super::prepare::prepare;
use super::{IdRule, Place, Route};
use crate::debezium::event::{ChangeEvent, Fault};
use crate::debezium::source_id;
use crate::debezium::value::Value;
use crate::digest;
use crate::message::{Digest, Message, MessageId};
use crate::record::Record;

/// A record that its route cannot make a message of, with what could be found out: it is parked under its id if it has
/// one, and its receipt goes where the correlation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub fault: Fault,
    pub id: Option<MessageId>,
    pub correlation_id: Option<Arc<str>>,
    pub source_app: Option<Arc<str>>,
    /// The id was derived from `source`: contents are not compared.
    pub derived_id: bool,
    /// Of the content as far as it was decoded; of the value's bytes if it was not.
    pub digest: Digest,
}

impl Unusable {
    /// A record of which nothing but its bytes is known.
    pub fn unknown(record: &Record, fault: Fault) -> Self {
        Self { fault, id: None, correlation_id: None, source_app: None, derived_id: false, digest: digest::raw(record) }
    }
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
    finish(route, index, record, event, id, prepared)
}

/// [`examine`] for a message whose id came another way: over HTTP, or with a redrive.
pub fn examine_with_id(
    route: &Route,
    index: usize,
    record: &Record,
    mut event: ChangeEvent,
    id: MessageId,
) -> Result<Message, Box<Unusable>> {
    let prepared = prepare(route, &mut event);
    finish(route, index, record, event, Ok((id, false)), prepared)
}

/// An id from outside a record, under the same rules.
pub fn usable_id(text: &str, max_bytes: usize) -> Result<MessageId, Fault> {
    let id = Role::Id.checked(text.to_owned(), max_bytes)?;
    if id.is_empty() {
        return Err(Fault::new("id_empty", "the message id is empty"));
    }
    if id.chars().all(char::is_whitespace) {
        return Err(Fault::new("id_blank", "the message id is nothing but white space"));
    }
    Ok(MessageId::new(id))
}

/// What can be said about a record that could not be decoded, from its headers and what was salvaged of it
/// ([`crate::debezium::envelope::Decoder::salvage`]).
pub fn examine_faulty(route: &Route, record: &Record, salvaged: Option<&ChangeEvent>, fault: Fault) -> Unusable {
    let id = message_id(route, record, salvaged).ok();
    Unusable {
        fault,
        derived_id: id.as_ref().is_some_and(|(_, derived)| *derived),
        id: id.map(|(id, _)| id),
        digest: salvaged.map_or_else(|| digest::raw(record), |event| digest::digest(event, route)),
        correlation_id: tag(route, &route.correlation_id, Role::CorrelationId, record, salvaged).unwrap_or_default(),
        source_app: tag(route, &route.source_app, Role::SourceApp, record, salvaged).unwrap_or_default(),
    }
}

/// The id first: without one nothing else about the message can be told to anybody.
fn finish(
    route: &Route,
    index: usize,
    record: &Record,
    event: ChangeEvent,
    id: Result<(MessageId, bool), Fault>,
    prepared: Result<(), Fault>,
) -> Result<Message, Box<Unusable>> {
    let correlation_id = tag(route, &route.correlation_id, Role::CorrelationId, record, Some(&event));
    let source_app = tag(route, &route.source_app, Role::SourceApp, record, Some(&event));
    let fault = [id.as_ref().err(), prepared.as_ref().err(), correlation_id.as_ref().err(), source_app.as_ref().err()];
    let fault = fault.into_iter().flatten().next().cloned();
    match (id, correlation_id, source_app, fault) {
        (Ok((id, derived_id)), Ok(correlation_id), Ok(source_app), None) => Ok(Message {
            id,
            derived_id,
            digest: digest::digest(&event, route),
            correlation_id,
            source_app,
            position: record.position.clone(),
            route: index,
            event,
        }),
        (id, correlation_id, source_app, fault) => Err(Box::new(Unusable {
            fault: fault.expect("one of the four failed"),
            derived_id: matches!(id, Ok((_, true))),
            id: id.ok().map(|(id, _)| id),
            correlation_id: correlation_id.unwrap_or_default(),
            source_app: source_app.unwrap_or_default(),
            digest: digest::digest(&event, route),
        })),
    }
}

/// The id by the first rule whose place is present, and whether it was derived.
///
/// Where a place cannot be looked at (an undecodable value, a column that the connector did not send), later rules are
/// not asked: the id may stand there, and another one would be made up.
fn message_id(route: &Route, record: &Record, event: Option<&ChangeEvent>) -> Result<(MessageId, bool), Fault> {
    for rule in &route.message_id {
        let place = match (rule, event) {
            (IdRule::Source, Some(event)) => return source_id::source_id(event).map(|id| (MessageId::new(id), true)),
            (IdRule::Source | IdRule::Place(Place::Key(_) | Place::Value(_)), None) => {
                return Err(Fault::new("id_missing", "the record that should hold the message id cannot be decoded"));
            }
            (IdRule::Place(place), _) => place,
        };
        let Some(found) = at_place(place, record, event, Role::Id)? else { continue };
        if found.value == Value::Unavailable {
            return Err(Fault::new("id_missing", "the connector did not send the value that holds the message id"));
        }
        let text = id_text(found, route.id_format)?;
        return usable_id(&text, route.max_id_bytes).map(|id| (id, false));
    }
    Err(Fault::new("id_missing", format!("route {} finds no message id at any of its places", route.name)))
}

/// A correlation id or source app: optional, empty is absent.
fn tag(
    route: &Route,
    place: &Option<Place>,
    role: Role,
    record: &Record,
    event: Option<&ChangeEvent>,
) -> Result<Option<Arc<str>>, Fault> {
    let Some(place) = place else { return Ok(None) };
    let found = at_place(place, record, event, role)?.filter(|found| found.value != Value::Unavailable);
    let Some(found) = found else { return Ok(None) };
    let text = scalar_text(&found.value).ok_or_else(|| role.not_text("it is neither text nor a number"))?;
    if text.is_empty() {
        return Ok(None);
    }
    role.checked(text, route.max_id_bytes).map(|text| Some(text.into()))
}

#[cfg(test)]
mod tests;
