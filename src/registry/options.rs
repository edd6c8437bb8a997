//! What a client needs to know; defaults for all but the address.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::address::url_of;
use super::error::RegistryError;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where a registry is and how it is asked. Debug prints no secret.
#[derive(Clone)]
pub struct Options {
    /// http or https; a path is kept. User info here is left out of every message and every request.
    pub url: String,
    pub flavour: Flavour,
    /// What Apicurio's ids in front of a value mean; `None`: what its version does by default.
    pub ids: Option<Ids>,
    pub auth: Auth,
    /// PEM; trusted besides the system's authorities.
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Of one request with its whole answer.
    pub timeout: Duration,
    pub missing: Missing,
    /// Schemas kept in memory.
    pub capacity: usize,
}

/// How long an id is asked for that the registry says it does not have: it may come from a replica that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Requests in all.
    pub tries: u32,
    /// Before the second of them; doubled each time.
    pub pause: Duration,
    /// How long the answer then stands without asking again.
    pub remember: Duration,
}

impl Missing {
    /// What all pauses can come to.
    pub(super) fn longest(&self) -> Duration {
        let doublings = self.tries.saturating_sub(1).min(16);
        self.pause * (2_u32.pow(doublings) - 1) * 2
    }
}

impl Default for Missing {
    /// Five tries over four and a half seconds.
    fn default() -> Self {
        Self { tries: 5, pause: Duration::from_millis(300), remember: Duration::from_secs(30) }
    }
}

/// Whose API a registry speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    #[default]
    Confluent,
    Apicurio,
}

/// Apicurio's two kinds of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// One for each version of an artifact: the default of its serialisers up to 2.x.
    Global,
    /// One for each text: the default from 3.0 on, and what its Confluent API goes by.
    Content,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    None,
    Basic { username: String, password: String },
    Bearer(String),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic(***)",
            Self::Bearer(_) => "Bearer(***)",
        })
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, flavour, ids, auth, ca_file, connect_timeout, timeout, missing, capacity } = self;
        f.debug_struct("Options")
            .field("flavour", flavour)
            .field("ids", ids)
            .field("auth", auth)
            .field("ca_file", ca_file)
            .field("connect_timeout", connect_timeout)
            .field("timeout", timeout)
            .field("missing", missing)
            .field("capacity", capacity)
            .finish_non_exhaustive()
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CAPACITY: usize = 2000;

impl Options {
    /// One request with its whole answer.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// For an address as people write it: user info in it is used to log in.
    ///
    /// # Errors
    /// `Misconfigured`: no http or https address.
    pub fn new(url: &str) -> Result<Self, RegistryError> {
        let mut parsed = url_of(url)?;
        let auth = match parsed.username() {
            "" => Auth::None,
            user => Auth::Basic {
                username: percent_decoded(user),
                password: parsed.password().map(percent_decoded).unwrap_or_default(),
            },
        };
        // These fail only for addresses without a host, which http and https do not allow.
        let _ = parsed.set_username("");
        let _ = parsed.set_password(None);
        Ok(Self { auth, ..Self::at(parsed.to_string()) })
    }

    /// Everything by default, for an address that was looked at before.
    pub fn at(url: String) -> Self {
        Self {
            url,
            flavour: Flavour::default(),
            ids: None,
            auth: Auth::None,
            ca_file: None,
            connect_timeout: CONNECT_TIMEOUT,
            timeout: Self::DEFAULT_TIMEOUT,
            missing: Missing::default(),
            capacity: CAPACITY,
        }
    }
}

/// Percent-decoded user info; a form would also read `+` as a space.
pub(crate) fn percent_decoded(text: &str) -> String {
    let form = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
    url::form_urlencoded::parse(form.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_is_decoded() {
        assert_eq!(percent_decoded("p%40s%25+%2Bs&x=y"), "p@s%++s&x=y");
        assert_eq!(percent_decoded(""), "");
        let options = Options::new("https://an%40n:p%2F%3Aw@host:8081/base/").unwrap();
        assert_eq!(options.auth, Auth::Basic { username: "an@n".to_owned(), password: "p/:w".to_owned() });
        assert_eq!(options.url, "https://host:8081/base/");
        assert_eq!(Options::new("http://host").unwrap().auth, Auth::None);
    }

    #[test]
    fn no_secret_is_printed() {
        let mut options = Options::new("http://u:hunter2@host").unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
        options.auth = Auth::Bearer("hunter2".to_owned());
        options.url = "http://u:hunter2@host".to_owned();
        assert!(!format!("{options:#?}").contains("hunter2"));
        let error = Options::new("htp://u:hunter2@host").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
