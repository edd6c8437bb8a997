//! Which registry stands at an address, and which version of Apicurio's API it has.

use tokio::sync::OnceCell;

use super::address::{Api, Base, Node};
use super::answer::{Unusable, apicurio_version, confluent_text};
use super::error::RegistryError;
use super::http::{Body, Failed, Http};
use super::options::Options;
use super::{Meaning, Registry};
use crate::debezium::avro::SchemaId;

/// Apicurio's own API; its version is found out when it is needed.
pub(super) struct Native {
    prefix: Base,
    api: OnceCell<Api>,
}

/// What a registry says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub api: Api,
    /// Of the software; Confluent's does not tell.
    pub version: Option<String>,
}

impl Native {
    pub fn below(prefix: Base) -> Self {
        Self { prefix, api: OnceCell::new() }
    }

    pub fn known(prefix: &Base, api: Option<Api>) -> Self {
        Self { prefix: prefix.clone(), api: OnceCell::new_with(api) }
    }

    pub fn base(&self, api: Api) -> Base {
        self.prefix.native(api)
    }

    /// Asked once; an outage is no answer.
    pub async fn api(&self, http: &Http) -> Result<Api, RegistryError> {
        let find = || async {
            match native_at(&self.prefix, http).await? {
                Probed::Is((api, _)) => Ok(api),
                Probed::IsNot(Some(error)) => Err(error),
                Probed::IsNot(None) => Err(RegistryError::Misconfigured {
                    address: self.prefix.shown(),
                    reason: "it has no API of Apicurio: correct `[registry] url` or `flavour`".to_owned(),
                }),
            }
        };
        self.api.get_or_try_init(find).await.copied()
    }
}

/// What a look at an address came to.
enum Probed<T> {
    Is(T),
    /// With what kept us from seeing it, if something did.
    IsNot(Option<RegistryError>),
}

/// An id that no registry has given yet: the question that a record puts, without a record.
const NO_ID: u32 = i32::MAX as u32;
const NO_LONG_ID: u64 = i64::MAX as u64;

impl Registry {
    /// Finds out what stands at an address: the options' flavour does not count. By the path, or else by asking.
    ///
    /// # Errors
    /// No registry that is known answers there, or none at all.
    pub async fn discover(options: &Options) -> Result<Self, RegistryError> {
        let base = Base::parse(&options.url)?;
        let place = base.place();
        let http = Http::new(options)?;
        let prefix = place.prefix.unwrap_or_else(|| base.clone());
        let (confluent, native) = match place.api {
            Some(Api::Confluent) => (base, Some(Native::below(prefix))),
            Some(api @ (Api::ApicurioV2 | Api::ApicurioV3)) => {
                (prefix.confluent(), Some(Native::known(&prefix, Some(api))))
            }
            None => match native_at(&prefix, &http).await? {
                Probed::Is((api, _)) => (prefix.confluent(), Some(Native::known(&prefix, Some(api)))),
                Probed::IsNot(before) => match confluent_at(&base, &http).await? {
                    Probed::Is(()) => (base, None),
                    Probed::IsNot(Some(error @ RegistryError::Denied { .. })) => return Err(error),
                    Probed::IsNot(after) => return Err(before.or(after).unwrap_or_else(|| nothing_at(&base))),
                },
            },
        };
        Self::with(options, http, Some(confluent), native, Meaning::Open)
    }

    /// The API of ids in front of values.
    ///
    /// # Errors
    /// Apicurio's version is found out by asking, which may fail.
    pub async fn api(&self) -> Result<Api, RegistryError> {
        match (self.0.meaning, &self.0.native) {
            (Meaning::Apicurio(_) | Meaning::Open, Some(native)) => native.api(&self.0.http).await,
            (Meaning::Confluent, _) | (Meaning::Apicurio(_) | Meaning::Open, None) => Ok(Api::Confluent),
        }
    }

    /// Puts the question that a record puts, for an id that is not there: reachable, the credentials accepted, the API
    /// the configured one.
    ///
    /// # Errors
    /// What a record would meet.
    pub async fn probe(&self) -> Result<Facts, RegistryError> {
        let inner = &self.0;
        let api = self.api().await?;
        let id = match api {
            Api::Confluent => SchemaId::Confluent(NO_ID),
            Api::ApicurioV2 | Api::ApicurioV3 => SchemaId::Global(NO_LONG_ID),
        };
        let (api, base) = inner.way_to(id).await?;
        if let Some(address) = api.text_of(&base, &Node::Id(id)) {
            match inner.http.get(api, &address).await {
                Ok(body) => self.recognise(api, &body)?,
                Err(Failed::Missing) => {}
                Err(Failed::Other(error)) => return Err(error),
            }
        }
        let version = match &inner.native {
            Some(native) => match native_at(&native.prefix, &inner.http).await {
                Ok(Probed::Is((_, version))) => Some(version),
                Ok(Probed::IsNot(_)) | Err(_) => None,
            },
            None => None,
        };
        Ok(Facts { api, version })
    }
}

impl Registry {
    /// Whether an answer to the question for an id that is not there can be a registry's at all.
    fn recognise(&self, api: Api, body: &Body) -> Result<(), RegistryError> {
        let reason = match api {
            Api::Confluent => match confluent_text(&body.bytes) {
                Ok(_) | Err(Unusable::NotAvro(_)) => return Ok(()),
                Err(Unusable::NotARegistry(reason)) => reason,
            },
            // Its answer is the bare text, and this id is beyond all that it gives.
            Api::ApicurioV2 | Api::ApicurioV3 => {
                "it has an answer to every question, as a web page or a proxy: correct `[registry] url`"
            }
        };
        Err(self.0.misconfigured(reason.to_owned()))
    }
}

/// The newest of Apicurio's own APIs below a prefix, with the version of the software.
async fn native_at(prefix: &Base, http: &Http) -> Result<Probed<(Api, String)>, RegistryError> {
    let mut hindrance = None;
    for api in [Api::ApicurioV3, Api::ApicurioV2] {
        match http.get(api, &prefix.native(api).at(&["system", "info"], "")).await {
            Ok(body) => {
                if let Some(version) = apicurio_version(&body.bytes) {
                    return Ok(Probed::Is((api, version)));
                }
            }
            Err(failed) => hindrance = hindrance.or(hindered(failed)?),
        }
    }
    Ok(Probed::IsNot(hindrance))
}

async fn confluent_at(base: &Base, http: &Http) -> Result<Probed<()>, RegistryError> {
    let Some(address) = Api::Confluent.text_of(base, &Node::Id(SchemaId::Confluent(NO_ID))) else {
        return Ok(Probed::IsNot(None));
    };
    match http.get(Api::Confluent, &address).await {
        Ok(body) if confluent_text(&body.bytes).is_ok() => Ok(Probed::Is(())),
        Ok(_) => Ok(Probed::IsNot(None)),
        Err(Failed::Missing) => Ok(Probed::Is(())),
        Err(failed) => Ok(Probed::IsNot(hindered(failed)?)),
    }
}

/// An address that is not there is an answer; one that is closed to us is remembered; an outage ends the search.
fn hindered(failed: Failed) -> Result<Option<RegistryError>, RegistryError> {
    match failed {
        Failed::Missing | Failed::Other(RegistryError::Misconfigured { .. }) => Ok(None),
        Failed::Other(error @ RegistryError::Denied { .. }) => Ok(Some(error)),
        Failed::Other(error) => Err(error),
    }
}

fn nothing_at(base: &Base) -> RegistryError {
    RegistryError::Misconfigured {
        address: base.shown(),
        reason: "neither Confluent's API nor Apicurio's answers there: correct the address and its path".to_owned(),
    }
}
