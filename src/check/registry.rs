//! The schema registry: reachable, our credentials accepted, and the API the one that the configuration says.

use std::time::Duration;

use super::{Check, within};
use crate::config::{Config, RegistryAuth, RegistryOptions};
use crate::registry::{Api, Facts, Registry, RegistryError};

const NAME: &str = "registry";
/// Of the requests that one look takes, each of which has the limit of the configuration.
const REQUESTS: u32 = 3;
const SPARE: Duration = Duration::from_secs(1);

/// Nothing without `[registry]`: only Avro needs one.
pub(super) async fn checks(config: &Config) -> Vec<Check> {
    match &config.registry {
        None => Vec::new(),
        Some(options) => {
            let limit = options.timeout * REQUESTS + SPARE;
            vec![within(NAME, limit, Box::pin(look(options))).await]
        }
    }
}

async fn look(options: &RegistryOptions) -> Check {
    let registry = match Registry::new(&options.client()) {
        Ok(registry) => registry,
        Err(error) => return Check::fail(NAME, error.to_string(), "correct `[registry]`"),
    };
    match registry.probe().await {
        Ok(facts) => Check::ok(NAME, reached(registry.address(), &facts, &options.auth)),
        Err(error) => refused(&error, found_instead(options, &error).await),
    }
}

fn reached(address: &str, facts: &Facts, auth: &RegistryAuth) -> String {
    let login = match auth {
        RegistryAuth::None => "without a log-in",
        RegistryAuth::Basic { .. } => "user and password accepted",
        RegistryAuth::Bearer(_) => "token accepted",
    };
    let software = facts.version.as_ref().map_or_else(String::new, |version| format!(" (apicurio {version})"));
    format!("{} answers at {address}{software}, {login}", facts.api)
}

/// What stands there if it is not what the configuration says.
async fn found_instead(options: &RegistryOptions, error: &RegistryError) -> Option<Api> {
    match error {
        RegistryError::Misconfigured { .. } => Registry::discover(&options.client()).await.ok()?.api().await.ok(),
        RegistryError::NotFound { .. }
        | RegistryError::BadSchema(_)
        | RegistryError::Unavailable { .. }
        | RegistryError::Denied { .. }
        | RegistryError::Ambiguous { .. } => None,
    }
}

fn refused(error: &RegistryError, instead: Option<Api>) -> Check {
    let detail = error.to_string();
    match (error, instead) {
        (RegistryError::Unavailable { .. }, _) => Check::unreachable(
            NAME,
            detail,
            "correct `[registry] url`, or start the registry: records in Avro wait for it",
        ),
        (RegistryError::Denied { status: 403, .. }, _) => {
            Check::fail(NAME, detail, "give the user of `[registry]` the right to read schemas")
        }
        (RegistryError::Denied { .. }, _) => {
            Check::fail(NAME, detail, "correct username and password, or token, in `[registry]`")
        }
        (_, Some(api)) => {
            let flavour = match api {
                Api::Confluent => "confluent",
                Api::ApicurioV2 | Api::ApicurioV3 => "apicurio",
            };
            let remedy = format!("set `[registry] flavour = \"{flavour}\"`: {api} answers there");
            Check::fail(NAME, detail, remedy)
        }
        (
            RegistryError::Misconfigured { .. }
            | RegistryError::Ambiguous { .. }
            | RegistryError::NotFound { .. }
            | RegistryError::BadSchema(_),
            None,
        ) => Check::fail(NAME, detail, "correct `[registry]` url and flavour"),
    }
}
