//! Where things stand in each API: Confluent's, and Apicurio's of version 2 and 3. Pure.

use std::fmt;

use url::Url;

use super::error::RegistryError;
use crate::debezium::avro::SchemaId;

/// An API of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    Confluent,
    ApicurioV2,
    ApicurioV3,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confluent => "Confluent's API",
            Self::ApicurioV2 => "Apicurio's API version 2",
            Self::ApicurioV3 => "Apicurio's API version 3",
        })
    }
}

/// A text in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Id(SchemaId),
    /// Confluent's reference.
    Subject {
        subject: String,
        version: i64,
    },
    /// Apicurio's reference.
    Artifact {
        group: String,
        artifact: String,
        version: String,
    },
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Subject { subject, version } => write!(f, "subject {subject:?} version {version}"),
            Self::Artifact { group, artifact, version } => {
                write!(f, "artifact {artifact:?} of group {group:?} version {version:?}")
            }
        }
    }
}

/// An address below which an API stands, without user info and without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base(String);

/// What an address's path says about the API there.
pub(super) struct Place {
    pub api: Option<Api>,
    /// What stands before `/apis/`, if that is Apicurio's.
    pub prefix: Option<Base>,
}

/// An address as people write it.
pub fn url_of(text: &str) -> Result<Url, RegistryError> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| RegistryError::Misconfigured { address: "this".to_owned(), reason: format!("it {NO_ADDRESS}") })
}

/// What an address is that cannot be asked.
pub const NO_ADDRESS: &str = "is no address of a registry: write http://host:port or https://host:port";

impl Base {
    /// An address as configured. Query and fragment have no meaning here.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let mut url = url_of(text)?;
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }

    pub fn shown(&self) -> String {
        self.0.clone()
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The machine itself: no proxy leads there.
    pub fn is_loopback(&self) -> bool {
        let host = Url::parse(&self.0).ok();
        match host.as_ref().and_then(Url::host) {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// The address of something below. The segments are encoded, the query is taken as it is.
    pub fn at(&self, segments: &[&str], query: &str) -> String {
        let mut address = self.0.clone();
        for segment in segments {
            address.push('/');
            encode(segment, &mut address);
        }
        if !query.is_empty() {
            address.push('?');
            address.push_str(query);
        }
        address
    }

    fn below(&self, path: &str) -> Self {
        Self(format!("{}{path}", self.0))
    }

    /// Confluent's API of the Apicurio at this prefix.
    pub fn confluent(&self) -> Self {
        self.below("/apis/ccompat/v7")
    }

    /// Apicurio's own API of this version.
    pub fn native(&self, api: Api) -> Self {
        self.below(match api {
            Api::ApicurioV3 => "/apis/registry/v3",
            Api::ApicurioV2 | Api::Confluent => "/apis/registry/v2",
        })
    }

    pub fn place(&self) -> Place {
        let path_at = self.0.find("://").map_or(0, |at| at + 3);
        let Some(at) =
            self.0[path_at..].find("/apis/").or_else(|| self.0[path_at..].strip_suffix("/apis").map(str::len))
        else {
            return Place { api: None, prefix: None };
        };
        let (prefix, path) = self.0.split_at(path_at + at);
        let api = match path.split('/').skip(2).collect::<Vec<_>>().as_slice() {
            ["ccompat", ..] => Some(Api::Confluent),
            ["registry", "v2", ..] => Some(Api::ApicurioV2),
            ["registry", "v3", ..] => Some(Api::ApicurioV3),
            _ => None,
        };
        Place { api, prefix: Some(Self(prefix.to_owned())) }
    }
}

impl Api {
    /// Where a text stands. `None` if its name cannot be written as an address: no registry has it there.
    pub(super) fn text_of(self, base: &Base, node: &Node) -> Option<String> {
        match (self, node) {
            (_, Node::Id(SchemaId::Confluent(id))) => Some(base.at(&["schemas", "ids", &id.to_string()], "")),
            // The text as it was registered, by default: with the references put in it may differ from what was
            // written with.
            (_, Node::Id(SchemaId::Global(id))) => Some(base.at(&["ids", "globalIds", &id.to_string()], "")),
            (_, Node::Id(SchemaId::Content(id))) => Some(base.at(&["ids", "contentIds", &id.to_string()], "")),
            (_, Node::Subject { subject, version }) => subject_at(base, subject, *version, ""),
            (Self::ApicurioV3, Node::Artifact { group, artifact, version }) => named(&[group, artifact, version])
                .then(|| base.at(&["groups", group, "artifacts", artifact, "versions", version, "content"], "")),
            (Self::ApicurioV2 | Self::Confluent, Node::Artifact { group, artifact, version }) => {
                named(&[group, artifact, version])
                    .then(|| base.at(&["groups", group, "artifacts", artifact, "versions", version], ""))
            }
        }
    }

    /// Where a text stands that was deleted since, which may still be what a schema was written with.
    pub(super) fn deleted_text_of(self, base: &Base, node: &Node) -> Option<String> {
        match node {
            Node::Subject { subject, version } => subject_at(base, subject, *version, "deleted=true"),
            Node::Id(_) | Node::Artifact { .. } => None,
        }
    }

    /// Where the references of a text stand; `None` where they come with the text.
    pub(super) fn references_of(self, base: &Base, node: &Node) -> Option<String> {
        match node {
            Node::Id(SchemaId::Confluent(_)) | Node::Subject { .. } => None,
            Node::Id(SchemaId::Global(id)) => Some(base.at(&["ids", "globalIds", &id.to_string(), "references"], "")),
            Node::Id(SchemaId::Content(id)) => Some(base.at(&["ids", "contentIds", &id.to_string(), "references"], "")),
            Node::Artifact { group, artifact, version } => {
                let segments = ["groups", group, "artifacts", artifact, "versions", version, "references"];
                Some(base.at(&segments, ""))
            }
        }
    }
}

fn subject_at(base: &Base, subject: &str, version: i64, query: &str) -> Option<String> {
    named(&[subject]).then(|| base.at(&["subjects", subject, "versions", &version.to_string()], query))
}

/// Names that a path can carry: dots alone are steps, however they are encoded.
fn named(segments: &[&str]) -> bool {
    segments.iter().all(|segment| !matches!(*segment, "" | "." | ".."))
}

/// RFC 3986: all but the unreserved characters.
fn encode(segment: &str, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Base {
        Base::parse(text).unwrap()
    }

    #[test]
    fn a_base_keeps_its_path_and_loses_what_has_no_place() {
        assert_eq!(base("http://u:p@h:8081/a/b/?q=1#f").shown(), "http://h:8081/a/b");
        assert_eq!(base("https://h").at(&["schemas", "ids", "7"], ""), "https://h/schemas/ids/7");
        assert!(Base::parse("ftp://h").is_err() && Base::parse("h:8081").is_err());
    }

    #[test]
    fn names_are_encoded_once_and_steps_are_no_names() {
        let node = Node::Subject { subject: ":.ctx:a/b c%2F\u{fc}?#..".to_owned(), version: 3 };
        let address = Api::Confluent.text_of(&base("http://h/x"), &node).unwrap();
        let wanted = "http://h/x/subjects/%3A.ctx%3Aa%2Fb%20c%252F%C3%BC%3F%23../versions/3";
        assert_eq!(address, wanted);
        // As it goes out: the URL parser leaves it as it is.
        assert_eq!(Url::parse(&address).unwrap().as_str(), wanted);
        for subject in ["", ".", ".."] {
            let node = Node::Subject { subject: subject.to_owned(), version: 1 };
            assert_eq!(Api::Confluent.text_of(&base("http://h"), &node), None, "{subject:?}");
        }
    }

    #[test]
    fn each_api_has_its_own_addresses() {
        let (v2, v3) = (base("http://h").native(Api::ApicurioV2), base("http://h").native(Api::ApicurioV3));
        let at = |api: Api, base: &Base, node: &Node| (api.text_of(base, node).unwrap(), api.references_of(base, node));
        let global = Node::Id(SchemaId::Global(9));
        assert_eq!(at(Api::ApicurioV2, &v2, &global).0, "http://h/apis/registry/v2/ids/globalIds/9");
        assert_eq!(at(Api::ApicurioV3, &v3, &global).0, "http://h/apis/registry/v3/ids/globalIds/9");
        let content = at(Api::ApicurioV3, &v3, &Node::Id(SchemaId::Content(9)));
        assert_eq!(content.0, "http://h/apis/registry/v3/ids/contentIds/9");
        assert_eq!(content.1.unwrap(), "http://h/apis/registry/v3/ids/contentIds/9/references");
        let node = Node::Artifact { group: "g/1".to_owned(), artifact: "a".to_owned(), version: "1".to_owned() };
        let text = at(Api::ApicurioV3, &v3, &node).0;
        assert_eq!(text, "http://h/apis/registry/v3/groups/g%2F1/artifacts/a/versions/1/content");
        let text = at(Api::ApicurioV2, &v2, &node).0;
        assert_eq!(text, "http://h/apis/registry/v2/groups/g%2F1/artifacts/a/versions/1");
    }

    #[test]
    fn a_path_tells_the_api() {
        for (address, api, prefix) in [
            ("http://h/apis/ccompat/v7", Some(Api::Confluent), Some("http://h")),
            ("http://h/apis/ccompat/v6/", Some(Api::Confluent), Some("http://h")),
            ("http://h/x/apis/registry/v2", Some(Api::ApicurioV2), Some("http://h/x")),
            ("http://h/apis/registry/v3/", Some(Api::ApicurioV3), Some("http://h")),
            ("http://h/apis/registry", None, Some("http://h")),
            ("http://h/apis", None, Some("http://h")),
            ("http://apis/registry/v2", None, None),
            ("http://h", None, None),
            ("http://h/base", None, None),
        ] {
            let place = base(address).place();
            assert_eq!((place.api, place.prefix.map(|base| base.0).as_deref()), (api, prefix), "{address}");
        }
    }

    #[test]
    fn the_machine_itself_is_known() {
        for (address, loopback) in [
            ("http://localhost:1", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:8081/a", true),
            ("http://127.0.0.1.example.org", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(base(address).is_loopback(), loopback, "{address}");
        }
    }
}
