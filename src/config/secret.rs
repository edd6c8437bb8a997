//! A value that must not be seen.

use std::fmt;

use url::Url;

/// A password, a token, or an address that may carry one. Debug and Display print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that hands it on.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// An address for people: without the password of its user info and without the parameters that carry one.
    /// What is no address prints as `***`.
    pub fn redacted_url(&self) -> String {
        // Up to the last `@`: a password with an unescaped `@` or `/` would otherwise show its rest as host or path.
        let hidden = match (self.0.split_once("://"), self.0.rfind('@')) {
            (Some((scheme, rest)), Some(at)) if at > scheme.len() + 2 => {
                let user = rest[..at - scheme.len() - 3].split(':').next().unwrap_or_default();
                let has_password = rest[..at - scheme.len() - 3].contains(':');
                let mask = if has_password { format!(":{HIDDEN}") } else { String::new() };
                format!("{scheme}://{user}{mask}{}", &self.0[at..])
            }
            _ => self.0.clone(),
        };
        let Ok(mut url) = Url::parse(&hidden) else {
            return HIDDEN.to_owned();
        };
        if url.query_pairs().any(|(name, _)| is_telling(&name)) {
            let shown: Vec<(String, String)> = url
                .query_pairs()
                .map(|(name, value)| {
                    let value = if is_telling(&name) { HIDDEN.to_owned() } else { value.into_owned() };
                    (name.into_owned(), value)
                })
                .collect();
            url.query_pairs_mut().clear().extend_pairs(shown);
        }
        url.into()
    }
}

const HIDDEN: &str = "***";

fn is_telling(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    ["pass", "pwd", "secret", "token", "key"].iter().any(|word| parameter.contains(word))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_an_unescaped_password_shows() {
        for url in
            ["postgres://u:p@Hunter2/x@host:5432/db", "postgres://u:p/Hunter2@host/db", "redis://:Hunter2@host:6379/1"]
        {
            let shown = Secret::new(url).redacted_url();
            assert!(!shown.contains("Hunter2") && shown.contains("host"), "{shown}");
        }
        assert_eq!(Secret::new("postgres://u@host/db").redacted_url(), "postgres://u@host/db");
    }

    #[test]
    fn a_secret_prints_stars() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)), "*** *** Some(\n    ***,\n)");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |text: &str| Secret::new(text).redacted_url();
        assert_eq!(shown("postgres://app:hunter2@db:5432/bank"), "postgres://app:***@db:5432/bank");
        assert_eq!(shown("redis://:hunter2@cache/1"), "redis://:***@cache/1");
        assert_eq!(shown("postgres://app@db/bank"), "postgres://app@db/bank");
        assert_eq!(shown("postgres:///b?host=/run&password=hunter2"), "postgres:///b?host=%2Frun&password=***");
        assert_eq!(shown("sqlite:/var/lib/a.db"), "sqlite:/var/lib/a.db");
        assert_eq!(shown("postgres://app:hunter2#x@db/bank"), "postgres://app:***@db/bank");
        assert_eq!(shown("hunter2"), "***");
    }
}
