//! `[registry]`.

use std::path::PathBuf;

use url::Url;

use super::Check;
use crate::config::options::{Flavour, Framing, RegistryAuth, RegistryOptions};
use crate::config::raw::RawRegistry;
use crate::config::secret::Secret;
use crate::registry::{NO_ADDRESS, Options, percent_decoded, url_of};

impl Check<'_> {
    pub(super) fn registry(&mut self, raw: RawRegistry) -> Option<RegistryOptions> {
        let ca_file = raw.ca_file.map(PathBuf::from);
        if ca_file.as_ref().is_some_and(|file| !file.is_file()) {
            let quoted = self.quote("registry.ca_file");
            self.fault("registry.ca_file", format!("{quoted} is no file: name a PEM file"));
        }
        let Ok(mut url) = url_of(&raw.url.unwrap_or_default()) else {
            self.fault("registry.url", NO_ADDRESS);
            return None;
        };
        if url.query().is_some() || url.fragment().is_some() {
            self.fault("registry.url", "has `?` or `#`, behind which a registry has no address: leave it out");
        }
        let flavour = raw.flavour.unwrap_or_default();
        self.registry_path(&url, flavour);
        let framing = raw.framing.unwrap_or_default();
        if flavour == Flavour::Confluent {
            if raw.ids.is_some() {
                self.fault(
                    "registry.ids",
                    "is about Apicurio's ids: set registry.flavour = \"apicurio\", or leave it out",
                );
            }
            if framing == Framing::EightByte {
                self.fault("registry.framing", "only Apicurio has 8-byte ids: set registry.flavour = \"apicurio\"");
            }
        }
        let timeout = self.duration("registry.timeout", raw.timeout, Options::DEFAULT_TIMEOUT);
        let username = raw.username.or_else(|| Some(percent_decoded(url.username())).filter(|user| !user.is_empty()));
        let password = raw.password.or_else(|| url.password().map(percent_decoded));
        let auth = self.registry_auth(username, password, raw.token);
        // These fail only for addresses without a host, which http and https do not allow.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Some(RegistryOptions {
            url: url.as_str().trim_end_matches('/').to_owned(),
            flavour,
            ids: raw.ids,
            framing,
            auth,
            ca_file,
            timeout,
        })
    }

    /// Apicurio has all its APIs at one host, so that a path may name another one than meant.
    fn registry_path(&mut self, url: &Url, flavour: Flavour) {
        let path = url.path();
        let fault = match flavour {
            Flavour::Confluent if path.contains("/apis/registry") => {
                "is Apicurio's own API: set registry.flavour = \"apicurio\", or end it with /apis/ccompat/v7"
            }
            Flavour::Apicurio if path.contains("/apis/ccompat") => {
                "is Confluent's API of Apicurio: set registry.flavour = \"confluent\", or cut off /apis and what follows"
            }
            Flavour::Confluent | Flavour::Apicurio => return,
        };
        self.fault("registry.url", fault);
    }

    fn registry_auth(
        &mut self,
        username: Option<String>,
        password: Option<String>,
        token: Option<String>,
    ) -> RegistryAuth {
        match (username, password, token) {
            (None, None, None) => RegistryAuth::None,
            (None, None, Some(token)) => {
                if token.trim().is_empty() {
                    self.fault("registry.token", "is empty: set it, or leave it out");
                } else if !token.trim().bytes().all(|byte| byte.is_ascii_graphic()) {
                    self.fault("registry.token", "has characters that no header can carry: correct it");
                }
                RegistryAuth::Bearer(Secret::new(token))
            }
            (Some(username), password, None) => {
                if username.contains(':') {
                    self.fault("registry.username", "has a colon, which basic authentication does not allow");
                }
                RegistryAuth::Basic { username, password: Secret::new(password.unwrap_or_default()) }
            }
            (None, Some(_), None) => {
                self.fault("registry.password", "has no registry.username: set both, or registry.token alone");
                RegistryAuth::None
            }
            (_, _, Some(_)) => {
                self.fault("registry.token", "stands beside a user name or password: keep one way to log in");
                RegistryAuth::None
            }
        }
    }
}
