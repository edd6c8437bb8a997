//! The registry's client against the real Apicurio: its own API and Confluent's, references, missing things.

use countersign::debezium::avro::SchemaId::{Confluent, Content, Global};
use countersign::registry::{Api, Flavour, Missing, Options, Registry, RegistryError};
use serde_json::{Value, json};

use crate::world::{block_on, env};

const LEAF: &str = r#"{"type":"record","name":"Leaf","namespace":"a.b","fields":[{"name":"n","type":"long"}]}"#;
const MID: &str = r#"{"type":"record","name":"Mid","namespace":"a.b","fields":[{"name":"leaf","type":"a.b.Leaf"}]}"#;
const TOP: &str = r#"{"type":"record","name":"Top","namespace":"a.b","fields":[{"name":"m","type":"Mid"},{"name":"l","type":"Leaf"}]}"#;

/// What goes again when the test ends.
struct Registered(Vec<String>);

impl Drop for Registered {
    fn drop(&mut self) {
        for url in self.0.iter().rev() {
            let _ = ureq::delete(url).call();
        }
    }
}

fn post(url: &str, content_type: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    let mut request = ureq::post(url).header("Content-Type", content_type);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.send(body.to_string()).unwrap_or_else(|error| panic!("{url}: {error}"));
    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
}

fn client(url: &str, flavour: Flavour) -> Registry {
    let mut options = Options::new(url).unwrap();
    options.flavour = flavour;
    options.missing = Missing { tries: 2, pause: std::time::Duration::from_millis(20), ..Missing::default() };
    Registry::new(&options).unwrap()
}

#[test]
fn schemas_with_references_are_read_by_every_api_of_apicurio() {
    let url = env("COUNTERSIGN_REGISTRY_URL");
    let name = format!("registry-client-{}", std::process::id());
    let mut registered = Registered(Vec::new());
    // By Apicurio's own API, in a group of its own and under a name that needs encoding.
    let group = format!("{url}/apis/registry/v2/groups/{name}/artifacts");
    registered.0.push(group.clone());
    let artifact = |id: &str, text: &str, references: &[&str]| {
        let references: Vec<Value> = references
            .iter()
            .map(|id| json!({"groupId": name, "artifactId": id, "version": "1", "name": id}))
            .collect();
        let headers = [("X-Registry-ArtifactId", id), ("X-Registry-ArtifactType", "AVRO")];
        let body = json!({"content": text, "references": references});
        let made = post(&group, "application/create.extended+json", &headers, &body);
        (made["globalId"].as_u64().unwrap(), made["contentId"].as_u64().unwrap())
    };
    artifact("leaf of-1", LEAF, &[]);
    artifact("mid", MID, &["leaf of-1"]);
    let (global, content) = artifact("top", TOP, &["mid", "leaf of-1"]);
    // By Confluent's API.
    let subjects = format!("{url}/apis/ccompat/v7/subjects");
    let mut subject = |subject: &str, text: &str, references: &[&str]| {
        let full = |subject: &str| format!("{name}/{subject}");
        let references: Vec<Value> =
            references.iter().map(|subject| json!({"name": subject, "subject": full(subject), "version": 1})).collect();
        let url = format!("{subjects}/{name}%2F{subject}");
        registered.0.push(url.clone());
        let body = json!({"schema": text, "references": references});
        let made = post(&format!("{url}/versions"), "application/vnd.schemaregistry.v1+json", &[], &body);
        u32::try_from(made["id"].as_u64().unwrap()).unwrap()
    };
    // Other texts than above, so that they have ids of their own.
    let other = |text: &str| text.replace("a.b", "c.d");
    subject("leaf", &other(LEAF), &[]);
    subject("mid", &other(MID), &["leaf"]);
    let top = subject("top", &other(TOP), &["mid", "leaf"]);
    let (confluent, native) = (format!("{url}/apis/ccompat/v7"), format!("{url}/apis/registry/v2"));
    block_on(async {
        let by_confluent = client(&confluent, Flavour::Confluent);
        let by_native = client(&native, Flavour::Apicurio);
        let found = Registry::discover(&Options::new(url).unwrap()).await.unwrap();
        assert_eq!(found.api().await.unwrap(), Api::ApicurioV2);
        for registry in [&by_confluent, &by_native, &found] {
            registry.writer_schema(Confluent(top)).await.unwrap();
            registry.writer_schema(Global(global)).await.unwrap();
            registry.writer_schema(Content(content)).await.unwrap();
            let facts = registry.probe().await.unwrap();
            assert!(facts.version.is_some_and(|version| version.starts_with("2.")));
        }
        for id in [Confluent(i32::MAX as u32), Global(i64::MAX as u64), Content(i64::MAX as u64)] {
            let missing = by_confluent.writer_schema(id).await.unwrap_err();
            assert!(matches!(&missing, RegistryError::NotFound { tries: 2, .. }), "{missing:?}");
        }
        // The bare address has no API of Confluent's: its 404 is no missing schema.
        let wrong = client(url, Flavour::Confluent).writer_schema(Confluent(top)).await.unwrap_err();
        assert!(matches!(&wrong, RegistryError::Misconfigured { .. }), "{wrong:?}");
    });
}
