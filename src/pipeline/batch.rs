//! A batch: the records of a lane, each with what could be made of it, before any I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use super::settle::OPERATOR;
use crate::debezium::avro::{SchemaRef, WriterSchema};
use crate::debezium::envelope::{DecodeOptions, Decoder, Unread};
use crate::debezium::event::{Decoded, Fault, SkipReason};
use crate::digest;
use crate::message::{Digest, Message, MessageId, inbox_key, synthetic_key};
use crate::receipt::code;
use crate::record::Record;
use crate::route::identify::{Unusable, examine, examine_faulty};
use crate::route::matching::{select, select_faulty, unrouted};
use crate::route::policy::{Admission, admit};
use crate::route::{Route, TombstonePolicy};

/// A record and what it is.
#[derive(Debug)]
pub struct Item {
    pub record: Record,
    pub entry: Entry,
}

#[derive(Debug)]
pub enum Entry {
    Skip(SkipReason),
    Message { key: Vec<u8>, message: Box<Message> },
    Faulty(Box<Faulty>),
}

/// A record to park, with what is known of it.
#[derive(Clone, Debug)]
pub struct Faulty {
    /// The inbox key: the message's, or a synthetic one of the record's place.
    pub key: Vec<u8>,
    pub class: &'static str,
    pub fault: Fault,
    pub id: Option<MessageId>,
    pub correlation_id: Option<Arc<str>>,
    pub source_app: Option<Arc<str>>,
    pub route: Option<usize>,
    /// The id was derived from `source`.
    pub derived_id: bool,
    pub digest: Digest,
}

/// Why a record is parked that an operator gave up.
pub(super) fn skipped() -> Fault {
    Fault::new(code::SKIPPED_BY_OPERATOR, "skipped by an operator")
}

/// Why a record cannot be read yet; nothing is known to be wrong with it.
#[derive(Debug)]
pub(super) enum Unready {
    Schema(SchemaRef),
    Setup(String),
}

impl Unready {
    /// The record's own fault, if it has one.
    fn unless_fault(unread: Unread) -> Result<Fault, Self> {
        match unread {
            Unread::Fault(fault) => Ok(fault),
            Unread::Schema(id) => Err(Self::Schema(id)),
            Unread::Setup(why) => Err(Self::Setup(why)),
        }
    }
}

/// Everything that makes messages of records. Pure but for the cache of schemas that it keeps.
pub struct Reader {
    decoder: Decoder,
    settings: Arc<ReaderSettings>,
    /// The topic of the last record that was read as an event.
    reads: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct ReaderSettings {
    pub pipeline: Arc<str>,
    pub routes: Vec<Route>,
    /// Per route: its effect is a `table`.
    pub table_effects: Vec<bool>,
    pub park_unrouted: bool,
    pub decode: DecodeOptions,
}

impl Reader {
    pub fn new(settings: Arc<ReaderSettings>) -> Self {
        Self { decoder: Decoder::new(settings.decode.clone()), settings, reads: None }
    }

    /// What a record is. `generation` tells records of a topic that was made anew from those of its former life.
    ///
    /// # Errors
    /// The record cannot be read yet; [`super::intake`] knows what to do then.
    pub(super) fn entry(&mut self, record: &Record, generation: i64) -> Result<Entry, Unready> {
        let settings = Arc::clone(&self.settings);
        let decoded = match self.decoder.decode(record) {
            Ok(decoded) => decoded,
            Err(unread) => {
                return match Unready::unless_fault(unread) {
                    Ok(fault) => Ok(self.undecodable(record, generation, fault)),
                    // Nobody waits for a schema to find out that no route wants the record.
                    Err(_) if select_faulty(&settings.routes, record, None).is_none() => {
                        Ok(settings.unrouted(record, generation, SkipReason::NoRoute))
                    }
                    Err(unready) => Err(unready),
                };
            }
        };
        let topic = &record.position.topic;
        if matches!(decoded, Decoded::Event(_)) && self.reads.as_ref().is_none_or(|read| !Arc::ptr_eq(read, topic)) {
            self.reads = Some(Arc::clone(topic));
        }
        self.routed(record, generation, decoded, &settings)
    }

    /// A record that cannot be decoded: what was salvaged of it finds its route and its id, perhaps.
    pub(crate) fn undecodable(&mut self, record: &Record, generation: i64, fault: Fault) -> Entry {
        let settings = Arc::clone(&self.settings);
        let salvaged = self.decoder.salvage(record);
        match select_faulty(&settings.routes, record, salvaged.as_ref()) {
            Some(index) => {
                let unusable = examine_faulty(&settings.routes[index], record, salvaged.as_ref(), fault);
                settings.faulty(record, generation, Some(index), unusable)
            }
            None if settings.park_unrouted => {
                settings.faulty(record, generation, None, Unusable::unknown(record, fault))
            }
            None => Entry::Skip(SkipReason::NoRoute),
        }
    }

    /// Whether other records of the first one's topic can be read: then what hinders the first is its own fault, and
    /// it must not hold up the rest; else it is the configuration's.
    pub(super) fn reads_beside(&mut self, records: &VecDeque<Record>, generation: i64) -> bool {
        let mut records = records.iter();
        let Some(first) = records.next() else { return false };
        let topic = &first.position.topic;
        self.reads.as_ref() == Some(topic)
            || records.any(|record| {
                record.position.topic == *topic && matches!(self.entry(record, generation), Ok(Entry::Message { .. }))
            })
    }

    /// The answer to [`Unready::Schema`].
    pub(super) fn learn(&mut self, topic: &Arc<str>, id: SchemaRef, schema: Result<Arc<WriterSchema>, Fault>) {
        self.decoder.learn(topic, id, schema);
    }

    fn routed(
        &mut self,
        record: &Record,
        generation: i64,
        decoded: Decoded,
        settings: &ReaderSettings,
    ) -> Result<Entry, Unready> {
        let routes = &settings.routes;
        let Some(index) = select(routes, record, &decoded) else {
            return Ok(settings.unrouted(record, generation, unrouted(&decoded)));
        };
        let route = &routes[index];
        let event = match decoded {
            Decoded::Event(event) => *event,
            Decoded::Tombstone { .. } => match route.tombstone {
                TombstonePolicy::Skip => return Ok(Entry::Skip(SkipReason::Tombstone)),
                TombstonePolicy::Delete => match self.decoder.tombstone_delete(record) {
                    Ok(event) => event,
                    Err(unread) => {
                        let unusable = Unusable::unknown(record, Unready::unless_fault(unread)?);
                        return Ok(settings.faulty(record, generation, Some(index), unusable));
                    }
                },
            },
            Decoded::Skip(reason) => return Ok(Entry::Skip(reason)),
        };
        Ok(match examine(route, index, record, event) {
            Ok(message) => match admit(route, &message.event, message.derived_id, settings.table_effects[index]) {
                Admission::Apply => {
                    let key = inbox_key(&settings.pipeline, &route.scope, &message.id);
                    Entry::Message { key, message: Box::new(message) }
                }
                Admission::Skip(reason) => Entry::Skip(reason),
                Admission::Park(code) => {
                    let unusable = Unusable {
                        fault: Fault::new(code, "the route parks these changes"),
                        id: Some(message.id),
                        correlation_id: message.correlation_id,
                        source_app: message.source_app,
                        derived_id: message.derived_id,
                        digest: message.digest,
                    };
                    settings.faulty(record, generation, Some(index), unusable)
                }
            },
            Err(unusable) => settings.faulty(record, generation, Some(index), *unusable),
        })
    }
}

impl ReaderSettings {
    /// A record that an operator has given up before anybody could read it.
    pub(super) fn given_up(&self, record: &Record, generation: i64) -> Entry {
        Entry::Faulty(Box::new(Faulty { class: OPERATOR, ..self.bare(record, generation, skipped()) }))
    }

    /// A record that no route takes.
    fn unrouted(&self, record: &Record, generation: i64, reason: SkipReason) -> Entry {
        if reason == SkipReason::NoRoute && self.park_unrouted {
            let fault = Fault::new("no_route", "no route takes this record");
            return self.faulty(record, generation, None, Unusable::unknown(record, fault));
        }
        Entry::Skip(reason)
    }

    fn faulty(&self, record: &Record, generation: i64, route: Option<usize>, unusable: Unusable) -> Entry {
        let Unusable { fault, id, correlation_id, source_app, derived_id, digest } = unusable;
        let key = self.park_key(record, generation, route, id.as_ref());
        let class = "poison";
        Entry::Faulty(Box::new(Faulty { key, class, fault, id, correlation_id, source_app, route, derived_id, digest }))
    }

    fn park_key(&self, record: &Record, generation: i64, route: Option<usize>, id: Option<&MessageId>) -> Vec<u8> {
        let scope = route.map_or("", |index| &self.routes[index].scope);
        let position = &record.position;
        match id {
            Some(id) => inbox_key(&self.pipeline, scope, id),
            None => {
                let topic_id = format!("{}#{generation}", position.topic);
                synthetic_key(&self.pipeline, scope, &topic_id, position.partition, position.offset)
            }
        }
    }

    /// The same record as one to park, for a reason that was found later or by an operator.
    pub fn to_park(&self, item: &Item, generation: i64, class: &'static str, fault: Fault) -> Faulty {
        let unusable = match &item.entry {
            Entry::Message { message, .. } => Unusable {
                fault,
                id: Some(message.id.clone()),
                correlation_id: message.correlation_id.clone(),
                source_app: message.source_app.clone(),
                derived_id: message.derived_id,
                digest: message.digest.clone(),
            },
            Entry::Faulty(faulty) => return Faulty { class, fault, ..Faulty::clone(faulty) },
            Entry::Skip(_) => Unusable::unknown(&item.record, fault),
        };
        let route = match &item.entry {
            Entry::Message { message, .. } => Some(message.route),
            Entry::Faulty(_) | Entry::Skip(_) => None,
        };
        let key = self.park_key(&item.record, generation, route, unusable.id.as_ref());
        let Unusable { fault, id, correlation_id, source_app, derived_id, digest } = unusable;
        Faulty { key, class, fault, id, correlation_id, source_app, route, derived_id, digest }
    }

    /// The record alone, without its id: that could not be stored.
    pub fn bare(&self, record: &Record, generation: i64, fault: Fault) -> Faulty {
        Faulty {
            key: self.park_key(record, generation, None, None),
            class: "poison",
            fault,
            id: None,
            correlation_id: None,
            source_app: None,
            route: None,
            derived_id: false,
            digest: digest::raw(record),
        }
    }
}
