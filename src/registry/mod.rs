//! The schema registry's client: which schema a record was written with.
//!
//! Confluent's API and both of Apicurio's. An id never changes its meaning, so that a schema is asked for once and then
//! served from memory, also while the registry is away. A registry that says "there is no such id" is told from one
//! that is away, from wrong credentials, and from an address where no registry stands: only the first is a fault of
//! the record. This folder knows no Avro bytes, no lanes and no configuration file; it waits no longer than a few
//! seconds, and who asks decides what an outage means.

mod address;
mod answer;
mod cache;
mod discover;
mod error;
mod fetch;
mod http;
mod options;

use std::sync::Arc;

use crate::debezium::avro::{SchemaId, SchemaRef, Width, WriterSchema};
use crate::debezium::event::Fault;

pub use self::address::Api;
use self::address::{Base, Node};
pub(crate) use self::address::{NO_ADDRESS, url_of};
use self::cache::{Cache, Flight, Found};
pub use self::discover::Facts;
use self::discover::Native;
pub use self::error::RegistryError;
use self::fetch::{MOST_TIMEOUTS, Patience, Way};
use self::http::Http;
pub(crate) use self::options::percent_decoded;
pub use self::options::{Auth, Flavour, Ids, Missing, Options};

/// A registry and what it has told so far. Clones share both.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    http: Http,
    /// As shown to people: without user info.
    address: String,
    confluent: Option<Base>,
    native: Option<Native>,
    meaning: Meaning,
    missing: Missing,
    cache: Cache,
}

/// What the bare numbers in front of values mean.
#[derive(Clone, Copy)]
enum Meaning {
    /// Ids of Confluent's API.
    Confluent,
    /// Ids of Apicurio's own API; which of both depends on its version unless it is set.
    Apicurio(Option<Ids>),
    /// Nobody said: whatever the registry can resolve.
    Open,
}

impl Registry {
    /// A client for the API that the options name. Nothing is asked yet.
    ///
    /// # Errors
    /// `Misconfigured`: an address, an authority file or a token that cannot be used.
    pub fn new(options: &Options) -> Result<Self, RegistryError> {
        let base = Base::parse(&options.url)?;
        let place = base.place();
        let (confluent, native, meaning) = match options.flavour {
            Flavour::Confluent => {
                // Apicurio under its Confluent API: ids in record headers are those of its own.
                let native = place.prefix.filter(|_| place.api == Some(Api::Confluent)).map(Native::below);
                (Some(base), native, Meaning::Confluent)
            }
            Flavour::Apicurio => {
                let prefix = place.prefix.unwrap_or_else(|| base.clone());
                let native = Native::known(&prefix, place.api.filter(|api| *api != Api::Confluent));
                (Some(prefix.confluent()), Some(native), Meaning::Apicurio(options.ids))
            }
        };
        Self::with(options, Http::new(options)?, confluent, native, meaning)
    }

    fn with(
        options: &Options,
        http: Http,
        confluent: Option<Base>,
        native: Option<Native>,
        meaning: Meaning,
    ) -> Result<Self, RegistryError> {
        let address = Base::parse(&options.url)?.shown();
        let inner = Inner {
            http,
            address,
            confluent,
            native,
            meaning,
            missing: options.missing,
            cache: Cache::new(options.capacity, options.missing.remember),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The address, without user info.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// A schema that is in memory, or why the text under this id is none; `None` if the registry must be asked.
    pub fn known(&self, id: SchemaId) -> Option<Result<Arc<WriterSchema>, Fault>> {
        self.0.cache.schema(id)
    }

    /// The schema of this id with all that it refers to.
    ///
    /// Any number of callers may ask for one id at once: the registry is asked once. A caller may be dropped at any
    /// time, the others get their answer all the same. An outage is told at once; an id that the registry does not
    /// know is asked for again for some seconds, for a replica may be behind.
    ///
    /// # Errors
    /// See [`RegistryError`]: only `NotFound` and `BadSchema` are faults of the record.
    pub async fn writer_schema(&self, id: SchemaId) -> Result<Arc<WriterSchema>, RegistryError> {
        let inner = &self.0;
        let start = || -> Flight {
            let inner = Arc::clone(inner);
            Box::pin(async move {
                let answer = Box::pin(inner.ask(id)).await;
                inner.cache.landed(id, &answer);
                answer
            })
        };
        match inner.cache.look_up(id, start) {
            Found::Answer(answer) => answer,
            Found::Flight(flight) => flight.await,
        }
    }

    /// The schema that a record of this topic names.
    ///
    /// Where a bare number may mean several schemas, the one that has the topic's name is it. Otherwise bytes would
    /// be read by what they were not written with: nothing is taken for likelier.
    ///
    /// # Errors
    /// As for [`Registry::writer_schema`]; `NotFound` if the number means nothing here, `Ambiguous` if it may mean more
    /// than one schema.
    pub async fn schema_of(&self, schema: SchemaRef, topic: &str) -> Result<Arc<WriterSchema>, RegistryError> {
        let (number, width) = match schema {
            SchemaRef::Id(id) => return self.writer_schema(id).await,
            SchemaRef::Number { number, width } => (number, width),
        };
        let mut readings: Vec<(SchemaId, Arc<WriterSchema>)> = Vec::new();
        let mut none = None;
        for id in self.candidates(number, width).await? {
            match self.writer_schema(id).await {
                // One schema under two kinds of ids is one reading.
                Ok(schema) if readings.iter().any(|(_, known)| *known == schema) => {}
                Ok(schema) => readings.push((id, schema)),
                Err(why @ (RegistryError::NotFound { .. } | RegistryError::BadSchema(_))) => {
                    none.get_or_insert(why);
                }
                // Not every reading could be tried: nothing is known about the record.
                Err(away) => return Err(away),
            }
        }
        if readings.len() > 1 {
            let named = readings.iter().filter(|(_, schema)| schema.is_of(topic)).count();
            if named != 1 {
                return Err(self.ambiguous((number, width), topic, &readings));
            }
            readings.retain(|(_, schema)| schema.is_of(topic));
        }
        match (readings.pop(), none) {
            (Some((_, schema)), _) => Ok(schema),
            (None, Some(why)) => Err(why),
            (None, None) => {
                let known = match width {
                    Width::Four => 8,
                    Width::Eight => 4,
                };
                let what = format!("schema {number} (its id has {width}, the ids of this registry have {known})");
                Err(RegistryError::NotFound { what, address: self.0.address.clone(), tries: 0 })
            }
        }
    }

    fn ambiguous(
        &self,
        (number, width): (u64, Width),
        topic: &str,
        readings: &[(SchemaId, Arc<WriterSchema>)],
    ) -> RegistryError {
        let reading =
            |(id, schema): &(SchemaId, Arc<WriterSchema>)| format!("{id} ({})", schema.name().unwrap_or("no name"));
        let readings = readings.iter().map(reading).collect::<Vec<_>>().join(" and as ");
        RegistryError::Ambiguous {
            address: self.0.address.clone(),
            what: format!("number {number} of {width} in topic {topic:?} can be read as {readings}"),
        }
    }

    /// What the number in front of a value may mean here. There is more than one only where the registry's kind was
    /// found out and not set; none where this registry has no ids of that width.
    ///
    /// # Errors
    /// As for [`Registry::api`].
    async fn candidates(&self, number: u64, width: Width) -> Result<Vec<SchemaId>, RegistryError> {
        let confluent = u32::try_from(number).ok().map(SchemaId::Confluent);
        let own = |ids: Ids| match ids {
            Ids::Global => SchemaId::Global(number),
            Ids::Content => SchemaId::Content(number),
        };
        Ok(match (self.0.meaning, width) {
            (Meaning::Confluent, Width::Four) => confluent.into_iter().collect(),
            (Meaning::Confluent, Width::Eight) => Vec::new(),
            (Meaning::Apicurio(Some(ids)), Width::Four | Width::Eight) => vec![own(ids)],
            (Meaning::Apicurio(None), Width::Four | Width::Eight) => vec![own(self.0.default_ids().await?)],
            (Meaning::Open, Width::Four | Width::Eight) if self.0.native.is_none() => {
                confluent.filter(|_| width == Width::Four).into_iter().collect()
            }
            (Meaning::Open, Width::Four) => {
                confluent.into_iter().chain([own(Ids::Global), own(Ids::Content)]).collect()
            }
            (Meaning::Open, Width::Eight) => vec![own(Ids::Global), own(Ids::Content)],
        })
    }
}

impl Inner {
    /// Asks the registry, whatever is in memory.
    async fn ask(&self, id: SchemaId) -> Result<Arc<WriterSchema>, RegistryError> {
        if let Some(why) = impossible(id) {
            return Err(RegistryError::NotFound {
                what: format!("{id} ({why})"),
                address: self.address.clone(),
                tries: 0,
            });
        }
        let (api, base) = self.way_to(id).await?;
        let way = Way { http: &self.http, api, base: &base };
        let mut patience = Patience::new(&self.missing);
        let limit = self.http.timeout() * MOST_TIMEOUTS + self.missing.longest();
        let Ok(texts) = tokio::time::timeout(limit, Box::pin(way.collect(Node::Id(id), &mut patience))).await else {
            return Err(self.http.unavailable(format!("{id} and what it refers to took longer than {limit:?}"), None));
        };
        let texts = texts?;
        let schema = WriterSchema::compile(&texts.schema, &texts.references);
        schema.map(Arc::new).map_err(|fault| RegistryError::bad_schema(id, fault))
    }

    /// The API that resolves ids of this kind.
    async fn way_to(&self, id: SchemaId) -> Result<(Api, Base), RegistryError> {
        match (id, &self.confluent, &self.native) {
            (SchemaId::Confluent(_), Some(base), _) => Ok((Api::Confluent, base.clone())),
            (SchemaId::Global(_) | SchemaId::Content(_), _, Some(native)) => {
                let api = native.api(&self.http).await?;
                Ok((api, native.base(api)))
            }
            (SchemaId::Global(_) | SchemaId::Content(_), _, None) => Err(self.misconfigured(format!(
                "it has Confluent's API, which knows no {id}: name Apicurio's address and set `[registry] flavour = \
                 \"apicurio\"`"
            ))),
            (SchemaId::Confluent(_), None, _) => {
                Err(self.misconfigured(format!("it has no Confluent API, which {id} needs")))
            }
        }
    }

    /// What Apicurio's serialisers put in front of a value unless they are told otherwise.
    async fn default_ids(&self) -> Result<Ids, RegistryError> {
        let Some(native) = &self.native else { return Ok(Ids::Global) };
        Ok(match native.api(&self.http).await? {
            Api::ApicurioV3 => Ids::Content,
            Api::ApicurioV2 | Api::Confluent => Ids::Global,
        })
    }

    fn misconfigured(&self, reason: String) -> RegistryError {
        RegistryError::Misconfigured { address: self.address.clone(), reason }
    }
}

/// Ids that no registry gives, and whose question would be answered like a wrong address.
fn impossible(id: SchemaId) -> Option<&'static str> {
    const WIDTH: &str = "registries count from 1 to 2147483647: is the id 8 bytes wide?";
    match id {
        SchemaId::Confluent(0) => Some(WIDTH),
        SchemaId::Confluent(id) if i32::try_from(id).is_err() => Some(WIDTH),
        SchemaId::Global(0) | SchemaId::Content(0) => Some("registries count from 1"),
        SchemaId::Global(id) | SchemaId::Content(id) if i64::try_from(id).is_err() => {
            Some("registries count in 63 bits")
        }
        SchemaId::Confluent(_) | SchemaId::Global(_) | SchemaId::Content(_) => None,
    }
}
