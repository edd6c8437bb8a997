//! One question over HTTP: bounded in time and size, and its answer told for what it is.

use std::error::Error as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Certificate, Client, Response, redirect};

use super::address::{Api, Base};
use super::answer::{self, Answer, Refusal};
use super::error::RegistryError;
use super::options::{Auth, Options};

pub(super) struct Http {
    client: Client,
    address: String,
    timeout: Duration,
    connect_timeout: Duration,
    /// Until when the registry asked to be left alone, and with what it did.
    quiet: Mutex<Option<(Instant, String)>>,
}

/// An answer with status 200.
pub(super) struct Body {
    pub bytes: Vec<u8>,
    pub content_type: Option<String>,
    /// Apicurio's word for the kind of schema.
    pub kind: Option<String>,
}

/// Why there is no such answer. What was asked for is known one floor up.
pub(super) enum Failed {
    Missing,
    Other(RegistryError),
}

/// Of one answer. A registry takes no schemas of that size; a web page may have it.
const MOST_BYTES: usize = 8 << 20;
/// Of a refusal only the beginning counts.
const MOST_REFUSAL_BYTES: usize = 64 << 10;
const ARTIFACT_TYPE: &str = "x-registry-artifacttype";

impl Http {
    pub fn new(options: &Options) -> Result<Self, RegistryError> {
        let base = Base::parse(&options.url)?;
        let wrong = |reason: String| RegistryError::Misconfigured { address: base.shown(), reason };
        // The same provider as for databases and Redis; whoever embeds us may have chosen one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        if let Some(login) = login(&options.auth) {
            let mut login = HeaderValue::from_str(&login)
                .map_err(|_| wrong("the token has characters that no header can carry: correct it".to_owned()))?;
            login.set_sensitive(true);
            headers.insert(AUTHORIZATION, login);
        }
        let mut builder = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .timeout(options.timeout)
            // Credentials stay with the host that they are for.
            .redirect(redirect::Policy::none());
        let authorities = options.ca_file.as_deref().map(authorities).transpose().map_err(wrong)?;
        builder = match authorities {
            Some(authorities) => builder.tls_certs_merge(authorities),
            // Without TLS a system without authorities does as well.
            None if !base.is_https() => builder.tls_certs_only([]),
            None => builder,
        };
        if base.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| wrong(format!("no client: {}", innermost(&error))))?;
        Ok(Self {
            client,
            address: base.shown(),
            timeout: options.timeout,
            connect_timeout: options.connect_timeout,
            quiet: Mutex::new(None),
        })
    }

    /// Of one question.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks for an address of this registry.
    pub async fn get(&self, api: Api, address: &str) -> Result<Body, Failed> {
        if let Some((left, reason)) = self.left_alone() {
            return Err(Failed::Other(self.unavailable(reason, Some(left))));
        }
        let asked = self.client.get(address).header(ACCEPT, accepted(api)).send().await;
        let mut response = asked.map_err(|error| self.broken(&error))?;
        let status = response.status().as_u16();
        if status == 200 {
            let bytes = self.read(&mut response, MOST_BYTES).await?;
            let header = |name: HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            return match bytes {
                Some(bytes) => Ok(Body {
                    bytes,
                    content_type: header(CONTENT_TYPE),
                    kind: header(HeaderName::from_static(ARTIFACT_TYPE)),
                }),
                None => Err(self.misconfigured(format!("its answer is longer than {} MiB", MOST_BYTES >> 20))),
            };
        }
        // The status alone says most of it, so that a body that does not come takes nothing away.
        let body = self.read(&mut response, MOST_REFUSAL_BYTES).await.unwrap_or_default().unwrap_or_default();
        let header = |name: HeaderName| response.headers().get(name)?.to_str().ok();
        let answer = Answer { status, location: header(LOCATION), retry_after: header(RETRY_AFTER), body: &body };
        Err(match answer::refusal(api, &answer, Timestamp::now()) {
            Refusal::Missing => Failed::Missing,
            Refusal::Denied => Failed::Other(RegistryError::Denied { address: self.address.clone(), status }),
            Refusal::Misconfigured(reason) => self.misconfigured(reason),
            Refusal::Unavailable { reason, retry_after } => {
                if let Some(wait) = retry_after {
                    self.leave_alone(wait, &reason);
                }
                Failed::Other(self.unavailable(reason, retry_after))
            }
        })
    }

    /// The body; `None` if it is longer than allowed.
    async fn read(&self, response: &mut Response, most: usize) -> Result<Option<Vec<u8>>, Failed> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if bytes.len() + chunk.len() > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    fn left_alone(&self) -> Option<(Duration, String)> {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, reason) = quiet.as_ref()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *quiet = None;
            return None;
        }
        Some((left, reason.clone()))
    }

    fn leave_alone(&self, wait: Duration, reason: &str) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        *quiet = Some((Instant::now() + wait, reason.to_owned()));
    }

    pub fn unavailable(&self, reason: String, retry_after: Option<Duration>) -> RegistryError {
        RegistryError::Unavailable { address: self.address.clone(), reason, retry_after }
    }

    pub fn misconfigured(&self, reason: String) -> Failed {
        Failed::Other(RegistryError::Misconfigured { address: self.address.clone(), reason })
    }

    /// No answer, or only a part of one.
    fn broken(&self, error: &reqwest::Error) -> Failed {
        let reason = if error.is_timeout() {
            let limit = if error.is_connect() { self.connect_timeout } else { self.timeout };
            format!("no answer within {limit:?}")
        } else {
            let hint = if is_untrusted(error) {
                ": name its authority in `[registry] ca_file`, or correct its certificate"
            } else {
                ""
            };
            format!("{}{hint}", innermost(error))
        };
        Failed::Other(self.unavailable(reason, None))
    }
}

fn login(auth: &Auth) -> Option<String> {
    use base64::Engine as _;
    match auth {
        Auth::None => None,
        Auth::Basic { username, password } => {
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
            Some(format!("Basic {pair}"))
        }
        Auth::Bearer(token) => Some(format!("Bearer {}", token.trim())),
    }
}

fn accepted(api: Api) -> HeaderValue {
    HeaderValue::from_static(match api {
        Api::Confluent => "application/vnd.schemaregistry.v1+json, application/json",
        Api::ApicurioV2 | Api::ApicurioV3 => "*/*",
    })
}

/// The authorities of a PEM file.
fn authorities(file: &Path) -> Result<Vec<Certificate>, String> {
    let shown = file.display();
    let pem = std::fs::read(file).map_err(|error| format!("`[registry] ca_file` {shown} cannot be read: {error}"))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(authorities) if !authorities.is_empty() => Ok(authorities),
        Ok(_) | Err(_) => Err(format!("`[registry] ca_file` {shown} holds no certificate in PEM form")),
    }
}

/// The cause behind the wrappings, which say no more than that a request failed. The address is left out.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.source().is_none() { "the request failed".to_owned() } else { cause.to_string() }
}

/// A certificate that was refused, not a connection that failed.
fn is_untrusted(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // An io::Error hands out its inner error's source, not the inner error.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}
