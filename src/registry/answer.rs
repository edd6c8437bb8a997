//! What answers mean. Pure: bytes and headers in, meaning out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::address::{Api, Node};

/// A schema's text with the names of what it refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub schema: String,
    pub references: Vec<Node>,
}

/// Why an answer with status 200 is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// No registry answers like this.
    NotARegistry(&'static str),
    /// A registry's answer, but no Avro schema.
    NotAvro(String),
}

/// An answer other than 200.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The registry itself says that it has no such thing.
    Missing,
    Unavailable {
        reason: String,
        retry_after: Option<Duration>,
    },
    Denied,
    Misconfigured(String),
}

/// The parts of an answer other than 200 that count.
pub(super) struct Answer<'a> {
    pub status: u16,
    pub location: Option<&'a str>,
    pub retry_after: Option<&'a str>,
    pub body: &'a [u8],
}

/// Longer wishes are cut: somebody may have mended it meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

const NO_JSON: &str = "its answer is no JSON, as from a proxy or a web page: correct `[registry] url`";
const NO_SCHEMA: &str = "its answer is JSON without a schema: correct `[registry] url`";
const NO_REFERENCES: &str = "its answer is no list of references: correct `[registry] url`";

#[derive(Deserialize)]
struct ConfluentSchema {
    schema: String,
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    references: Option<Vec<ConfluentReference>>,
}

#[derive(Deserialize)]
struct ConfluentReference {
    subject: String,
    version: i64,
}

/// Confluent's answer about an id or a version of a subject.
pub(super) fn confluent_text(body: &[u8]) -> Result<Text, Unusable> {
    let answer: ConfluentSchema = serde_json::from_slice(body)
        .map_err(|error| Unusable::NotARegistry(if error.is_data() { NO_SCHEMA } else { NO_JSON }))?;
    avro(answer.kind.as_deref())?;
    let references = answer.references.unwrap_or_default().into_iter();
    let references = references.map(|ConfluentReference { subject, version }| Node::Subject { subject, version });
    Ok(Text { schema: answer.schema, references: references.collect() })
}

/// The kind of schema that a registry names; unnamed it is Avro.
pub(super) fn avro(kind: Option<&str>) -> Result<(), Unusable> {
    match kind {
        None => Ok(()),
        Some(kind) if kind.eq_ignore_ascii_case("avro") => Ok(()),
        Some(kind) => Err(Unusable::NotAvro(format!("is a schema of type {}, not AVRO", word(kind)))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApicurioReference {
    group_id: Option<String>,
    artifact_id: String,
    version: Option<String>,
}

/// Apicurio's list of references.
pub(super) fn apicurio_references(body: &[u8]) -> Result<Vec<Node>, Unusable> {
    let references: Vec<ApicurioReference> = serde_json::from_slice(body)
        .map_err(|error| Unusable::NotARegistry(if error.is_data() { NO_REFERENCES } else { NO_JSON }))?;
    references
        .into_iter()
        .map(|ApicurioReference { group_id, artifact_id, version }| match version {
            Some(version) => Ok(Node::Artifact {
                // What Apicurio calls its unnamed group in addresses.
                group: group_id.unwrap_or_else(|| "default".to_owned()),
                artifact: artifact_id,
                version,
            }),
            None => Err(Unusable::NotAvro(format!("refers to artifact {artifact_id:?} without a version"))),
        })
        .collect()
}

/// Apicurio's answer about a text is the text. A page that a proxy shows instead must not pass for a broken schema.
pub(super) fn apicurio_text(content_type: Option<&str>, body: Vec<u8>) -> Result<String, Unusable> {
    let html = content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("html"));
    match String::from_utf8(body) {
        Ok(text) if !html && !text.trim_start().starts_with('<') => Ok(text),
        Ok(_) => Err(Unusable::NotARegistry(NO_JSON)),
        Err(_) if html => Err(Unusable::NotARegistry(NO_JSON)),
        Err(_) => Err(Unusable::NotAvro("is no text".to_owned())),
    }
}

#[derive(Deserialize)]
struct SystemInfo {
    version: String,
}

/// The version in Apicurio's system info; `None` if it is none.
pub(super) fn apicurio_version(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<SystemInfo>(body).ok().map(|info| word(&info.version))
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    error_code: Option<i64>,
    /// The class of Apicurio's exception.
    name: Option<String>,
}

/// What an answer other than 200 means.
pub(super) fn refusal(api: Api, answer: &Answer<'_>, now: Timestamp) -> Refusal {
    let retry_after = answer.retry_after.and_then(|text| wait(text, now));
    let unavailable = |reason: String| Refusal::Unavailable { reason, retry_after };
    match answer.status {
        300..=399 => Refusal::Misconfigured(format!(
            "it redirects to {}, and credentials are not sent elsewhere: set `[registry] url` to where the registry is",
            answer.location.map_or_else(|| "nowhere".to_owned(), place)
        )),
        401 | 403 => Refusal::Denied,
        404 => not_found(api, answer.body),
        407 => Refusal::Misconfigured("a proxy before it wants credentials (status 407)".to_owned()),
        status => unavailable(format!("status {status}")),
    }
}

/// A missing schema is told from a wrong address by the body: every part of a path gives 404, and a proxy's does too.
///
/// Confluent: 40401 subject, 40402 version, 40403 schema; its unknown paths say 404, Apicurio's Confluent API says 0.
/// Apicurio (2 and 3): the class of the exception, such as `ArtifactNotFoundException`; `NotFoundException` alone is an
/// unknown path.
fn not_found(api: Api, body: &[u8]) -> Refusal {
    let Ok(error) = serde_json::from_slice::<ErrorBody>(body) else {
        return Refusal::Misconfigured(
            "status 404, but not as a registry says it: a proxy answers, or `[registry] url` has a wrong path"
                .to_owned(),
        );
    };
    let thing = |name: &str| name.ends_with("NotFoundException") && name != "NotFoundException";
    let missing = match api {
        Api::Confluent => error.error_code.is_some_and(|code| (40401..=40499).contains(&code)),
        Api::ApicurioV2 | Api::ApicurioV3 => error.name.as_deref().is_some_and(thing),
    };
    if missing {
        return Refusal::Missing;
    }
    let hint = match (api, error.name, error.error_code) {
        (Api::Confluent, Some(_), _) => {
            "; this looks like Apicurio: set `[registry] flavour = \"apicurio\"`, or end its url with /apis/ccompat/v7"
        }
        (Api::ApicurioV2 | Api::ApicurioV3, None, Some(_)) => {
            "; this looks like Confluent's API: set `[registry] flavour = \"confluent\"`"
        }
        _ => "",
    };
    Refusal::Misconfigured(format!("it knows no such path (status 404): correct `[registry] url`{hint}"))
}

/// RFC 9110, `Retry-After`: seconds or a date.
fn wait(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_or(LONGEST_WAIT, Duration::from_secs)
    } else {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Duration::from_millis(u64::try_from(at.as_millisecond().saturating_sub(now.as_millisecond())).unwrap_or(0))
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Where a redirect leads, without what may be secret in it.
fn place(location: &str) -> String {
    match url::Url::parse(location) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.into()
        }
        // A path on the same host; what stands behind `?` may be a ticket.
        Err(_) => word(location.split(['?', '#']).next().unwrap_or_default()),
    }
}

/// A foreign word that is to stand in a message: short, and nothing but visible ASCII.
fn word(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(api: Api, status: u16, body: &str) -> Refusal {
        let answer = Answer { status, location: None, retry_after: None, body: body.as_bytes() };
        refusal(api, &answer, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_the_registry_s_own_words_make_a_schema_missing() {
        use Api::{ApicurioV2, ApicurioV3, Confluent};
        for (api, body) in [
            (Confluent, r#"{"error_code":40403,"message":"Schema not found"}"#),
            (Confluent, r#"{"message":"x","error_code":40401}"#),
            (Confluent, r#"{"error_code":40402}"#),
            (ApicurioV2, r#"{"error_code":404,"name":"ArtifactNotFoundException"}"#),
            (ApicurioV2, r#"{"name":"ContentNotFoundException","detail":"x"}"#),
            (ApicurioV3, r#"{"title":"x","status":404,"name":"VersionNotFoundException"}"#),
            (ApicurioV3, r#"{"title":"x","status":404,"name":"GroupNotFoundException"}"#),
        ] {
            assert_eq!(refused(api, 404, body), Refusal::Missing, "{api} {body}");
        }
        for (api, body) in [
            (Confluent, "<html>not found</html>"),
            (Confluent, ""),
            (Confluent, "{}"),
            (Confluent, "null"),
            (Confluent, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#),
            (Confluent, r#"{"error_code":0,"message":"RESTEASY003210: Could not find resource"}"#),
            (Confluent, r#"{"error_code":"40403"}"#),
            (Confluent, r#"{"error_code":404,"name":"ArtifactNotFoundException"}"#),
            (ApicurioV2, r#"{"error_code":404,"name":"NotFoundException"}"#),
            (ApicurioV3, r#"{"title":"x","status":404,"name":"NotFoundException"}"#),
            (ApicurioV3, r#"{"error_code":40403,"message":"Schema not found"}"#),
            (ApicurioV2, "Not found"),
        ] {
            assert!(matches!(refused(api, 404, body), Refusal::Misconfigured(_)), "{api} {body}");
        }
        let Refusal::Misconfigured(hint) = refused(Confluent, 404, r#"{"error_code":404,"name":"NotFoundException"}"#)
        else {
            panic!("misconfigured")
        };
        assert!(hint.contains("/apis/ccompat/v7"), "{hint}");
    }

    #[test]
    fn other_answers_are_outages_unless_somebody_must_act() {
        for status in [400, 402, 405, 406, 408, 410, 425, 429, 500, 501, 502, 503, 504, 599, 100, 204, 206] {
            assert!(matches!(refused(Api::Confluent, status, ""), Refusal::Unavailable { .. }), "{status}");
        }
        for status in [401, 403] {
            assert_eq!(refused(Api::ApicurioV2, status, "{}"), Refusal::Denied);
        }
        for status in [301, 302, 303, 307, 308, 407] {
            assert!(matches!(refused(Api::Confluent, status, ""), Refusal::Misconfigured(_)), "{status}");
        }
    }

    #[test]
    fn a_redirect_is_told_without_its_secrets() {
        for (location, shown) in [
            ("https://u:hunter2@other/x?ticket=hunter2#hunter2", "https://other/x,"),
            ("/login?back=hunter2", "/login,"),
        ] {
            let answer = Answer { status: 302, location: Some(location), retry_after: None, body: b"" };
            let Refusal::Misconfigured(text) = refusal(Api::Confluent, &answer, Timestamp::UNIX_EPOCH) else {
                panic!("misconfigured")
            };
            assert!(text.contains(shown) && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn waits_are_seconds_or_dates_and_bounded() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        let seconds = |n| Some(Duration::from_secs(n));
        for (text, wanted) in [
            ("2", seconds(2)),
            (" 0 ", seconds(0)),
            ("99999999999999999999999", seconds(300)),
            ("86400", seconds(300)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", seconds(0)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", seconds(300)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(wait(text, now), wanted, "{text:?}");
        }
    }

    #[test]
    fn confluent_s_answer_is_read_with_and_without_its_optional_parts() {
        let text = |body: &str| confluent_text(body.as_bytes());
        let bare = Text { schema: "\"int\"".to_owned(), references: Vec::new() };
        assert_eq!(text(r#"{"schema":"\"int\""}"#), Ok(Text { ..bare }));
        let full = r#"{"subject":"s","id":4,"version":2,"schemaType":"AVRO","schema":"x","ruleSet":{"a":[]},
                       "references":[{"name":"n","subject":"s/t","version":3},{"version":1,"subject":"","name":""}]}"#;
        let references = text(full).unwrap().references;
        assert_eq!(references[0], Node::Subject { subject: "s/t".to_owned(), version: 3 });
        assert_eq!(references.len(), 2);
        assert_eq!(text(r#"{"schema":"x","references":null,"schemaType":null}"#).unwrap().references, []);
        for kind in ["PROTOBUF", "JSON"] {
            let answer = text(&format!(r#"{{"schema":"x","schemaType":"{kind}"}}"#));
            assert_eq!(answer, Err(Unusable::NotAvro(format!("is a schema of type {kind}, not AVRO"))));
        }
        for (body, why) in [
            ("<html>", NO_JSON),
            ("", NO_JSON),
            ("{\"schema\":", NO_JSON),
            ("[]", NO_SCHEMA),
            ("{}", NO_SCHEMA),
            ("{\"schema\":{}}", NO_SCHEMA),
        ] {
            assert_eq!(text(body), Err(Unusable::NotARegistry(why)), "{body}");
        }
    }

    #[test]
    fn apicurio_s_answers_are_read() {
        let references = br#"[{"groupId":"g","artifactId":"a","version":"1","name":"n"},
                              {"groupId":null,"artifactId":"b","version":"2.0","name":"n"},
                              {"artifactId":"c","version":"3"}]"#;
        let groups: Vec<String> = apicurio_references(references)
            .unwrap()
            .into_iter()
            .map(|node| match node {
                Node::Artifact { group, .. } => group,
                Node::Id(_) | Node::Subject { .. } => panic!("an artifact"),
            })
            .collect();
        assert_eq!(groups, ["g", "default", "default"]);
        assert!(matches!(apicurio_references(br#"[{"artifactId":"a"}]"#), Err(Unusable::NotAvro(_))));
        assert_eq!(apicurio_references(b"{}"), Err(Unusable::NotARegistry(NO_REFERENCES)));
        assert_eq!(apicurio_references(b"<html>"), Err(Unusable::NotARegistry(NO_JSON)));
        assert_eq!(apicurio_text(Some("application/octet-stream"), b"\"int\"".to_vec()).unwrap(), "\"int\"");
        assert_eq!(apicurio_text(None, b" <!doctype html>".to_vec()), Err(Unusable::NotARegistry(NO_JSON)));
        assert_eq!(apicurio_text(Some("Text/HTML"), b"hi".to_vec()), Err(Unusable::NotARegistry(NO_JSON)));
        assert!(matches!(apicurio_text(None, vec![0xff]), Err(Unusable::NotAvro(_))));
        assert_eq!(apicurio_version(br#"{"name":"x","version":"2.6.13.Final"}"#).as_deref(), Some("2.6.13.Final"));
        assert_eq!(apicurio_version(b"{}"), None);
    }
}
