//! `[registry]`.

use std::path::PathBuf;

use url::Url;

use super::Check;
use crate::config::options::{RegistryAuth, RegistryOptions};
use crate::config::raw::RawRegistry;
use crate::config::secret::Secret;

impl Check<'_> {
    pub(super) fn registry(&mut self, raw: RawRegistry) -> Option<RegistryOptions> {
        let ca_file = raw.ca_file.map(PathBuf::from);
        if ca_file.as_ref().is_some_and(|file| !file.is_file()) {
            let quoted = self.quote("registry.ca_file");
            self.fault("registry.ca_file", format!("{quoted} is no file: name a PEM file"));
        }
        let mut url = match Url::parse(&raw.url.unwrap_or_default()) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            Ok(_) | Err(_) => {
                self.fault("registry.url", "is no address of a registry: write http://host:port or https://host:port");
                return None;
            }
        };
        let username = raw.username.or_else(|| Some(decoded(url.username())).filter(|user| !user.is_empty()));
        let password = raw.password.or_else(|| url.password().map(decoded));
        let auth = self.registry_auth(username, password, raw.token);
        // These fail only for addresses without a host, which http and https do not allow.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Some(RegistryOptions {
            url: url.as_str().trim_end_matches('/').to_owned(),
            flavour: raw.flavour.unwrap_or_default(),
            auth,
            ca_file,
        })
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
                }
                RegistryAuth::Bearer(Secret::new(token))
            }
            (Some(username), password, None) => {
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

/// Percent-decoded user info; a form would also read `+` as a space.
fn decoded(text: &str) -> String {
    let form = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
    url::form_urlencoded::parse(form.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_is_decoded() {
        assert_eq!(decoded("p%40s%25+%2Bs&x=y"), "p@s%++s&x=y");
        assert_eq!(decoded(""), "");
    }
}
