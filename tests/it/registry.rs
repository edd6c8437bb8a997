//! The registry's client: an unknown id, an outage and wrong credentials are three things; a schema is asked for once.

use std::time::{Duration, Instant};

use countersign::debezium::avro::SchemaId::{self, Confluent, Content, Global};
use countersign::debezium::avro::{SchemaRef, Width};
use countersign::registry::{Api, Auth, Flavour, Ids, Missing, Options, Registry, RegistryError};

use crate::registry_server::{Kind, RegistryServer, Trouble};

const INT: &str = r#"{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}"#;
const LEAF: &str = r#"{"type":"record","name":"a.Leaf","fields":[{"name":"n","type":"long"}]}"#;
const MID: &str = r#"{"type":"record","name":"a.Mid","fields":[{"name":"leaf","type":"a.Leaf"}]}"#;
const TOP: &str =
    r#"{"type":"record","name":"a.Top","fields":[{"name":"m","type":"a.Mid"},{"name":"l","type":"a.Leaf"}]}"#;

/// Impatient, so that a test of what never comes ends soon.
const MISSING: Missing = Missing { tries: 4, pause: Duration::from_millis(10), remember: Duration::from_millis(400) };

fn options(url: &str) -> Options {
    let mut options = Options::new(url).unwrap();
    options.missing = MISSING;
    options.timeout = Duration::from_secs(5);
    options
}

fn client(server: &RegistryServer) -> Registry {
    Registry::new(&options(&server.url)).unwrap()
}

fn apicurio(server: &RegistryServer) -> Registry {
    let options = Options { flavour: Flavour::Apicurio, ..options(&server.url) };
    Registry::new(&options).unwrap()
}

fn number(number: u64, width: Width) -> SchemaRef {
    SchemaRef::Number { number, width }
}

async fn error(registry: &Registry, id: SchemaId) -> RegistryError {
    registry.writer_schema(id).await.expect_err("no schema")
}

/// Case A, and how long the answer stands.
#[tokio::test]
async fn an_unknown_id_is_asked_for_a_few_times_and_then_not_again_for_a_while() {
    for (kind, id, path) in [
        (Kind::Confluent, Confluent(58), "/schemas/ids/58"),
        (Kind::Apicurio2, Global(58), "/apis/registry/v2/ids/globalIds/58"),
        (Kind::Apicurio2, Content(7_000_000_000), "/apis/registry/v2/ids/contentIds/7000000000"),
        (Kind::Apicurio3, Global(58), "/apis/registry/v3/ids/globalIds/58"),
        (Kind::Apicurio3, Confluent(58), "/apis/ccompat/v7/schemas/ids/58"),
    ] {
        let server = RegistryServer::start(kind).await;
        let registry = if kind == Kind::Confluent { client(&server) } else { apicurio(&server) };
        let asked = Instant::now();
        let missing = error(&registry, id).await;
        assert!(matches!(&missing, RegistryError::NotFound { tries: 4, .. }), "{missing:?}");
        assert!(missing.to_string().contains(&id.to_string()), "{missing}");
        assert!(asked.elapsed() >= Duration::from_millis(55), "without a pause: {:?}", asked.elapsed());
        assert_eq!(server.count(path), 4, "{kind:?} {:?}", server.asked());
        for _ in 0..20 {
            assert_eq!(error(&registry, id).await, missing);
        }
        assert_eq!(server.count(path), 4);
        tokio::time::sleep(MISSING.remember).await;
        error(&registry, id).await;
        assert_eq!(server.count(path), 8, "it may be there by now");
    }
}

/// Case B: connections refused, then an answer.
#[tokio::test]
async fn an_outage_is_no_answer_and_is_not_remembered() {
    let mut server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT);
    let registry = client(&server);
    server.stop().await;
    for _ in 0..3 {
        let away = error(&registry, Confluent(58)).await;
        assert!(matches!(&away, RegistryError::Unavailable { retry_after: None, .. }), "{away:?}");
        assert!(away.to_string().contains("refused"), "{away}");
    }
    server.resume().await;
    registry.writer_schema(Confluent(58)).await.unwrap();
}

/// Case C, with more of what an overloaded server or a proxy before it says.
#[tokio::test]
async fn a_busy_registry_is_away_and_its_wish_is_told() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT);
    let registry = client(&server);
    let html = || b"<html>Bad Gateway</html>".to_vec();
    server.script([
        Trouble::Status(503),
        Trouble::Status(503),
        Trouble::Says(502, "text/html", html()),
        Trouble::Says(500, "application/json", br#"{"error_code":50001,"message":"Error in the backend"}"#.to_vec()),
        Trouble::Status(408),
        Trouble::Status(400),
        Trouble::Cut,
        Trouble::Busy(429, "1".to_owned()),
    ]);
    for _ in 0..7 {
        let away = error(&registry, Confluent(58)).await;
        assert!(matches!(&away, RegistryError::Unavailable { retry_after: None, .. }), "{away:?}");
    }
    let busy = error(&registry, Confluent(58)).await;
    assert_eq!(busy.retry_after(), Some(Duration::from_secs(1)), "{busy:?}");
    assert_eq!(server.count("/58"), 8);
    // Whoever asks too soon, and for whatever, is told without a request how long is left.
    let left = error(&registry, Confluent(59)).await.retry_after().unwrap();
    assert!(left <= Duration::from_secs(1) && server.asked().len() == 8, "{left:?}");
    tokio::time::sleep(left).await;
    registry.writer_schema(Confluent(58)).await.unwrap();
    assert_eq!(server.count("/58"), 9);
}

/// Case D.
#[tokio::test]
async fn refused_credentials_are_no_outage_and_mend_without_a_new_client() {
    for status in [401, 403] {
        let server = RegistryServer::start(Kind::Confluent).await;
        server.schema(58, INT).script([Trouble::Status(status), Trouble::Status(status)]);
        let registry = client(&server);
        for _ in 0..2 {
            let denied = error(&registry, Confluent(58)).await;
            assert!(matches!(denied, RegistryError::Denied { status: found, .. } if found == status), "{denied:?}");
        }
        assert_eq!(server.count("/58"), 2, "asking again at once does not help");
        registry.writer_schema(Confluent(58)).await.unwrap();
    }
}

/// Case E, for the schema and for what it refers to.
#[tokio::test]
async fn a_replica_that_is_behind_is_waited_for() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT).script([Trouble::Missing, Trouble::Missing]);
    let registry = client(&server);
    registry.writer_schema(Confluent(58)).await.unwrap();
    assert_eq!(server.count("/58"), 3);
    server.schema_with(60, MID, &[("leaf", 1)]).schema(61, LEAF).subject("leaf", 1, 61);
    server.forget_requests();
    let two = registry.clone();
    let asked = tokio::spawn(async move { two.writer_schema(Confluent(60)).await });
    // One 404 for the schema, and one for the reference: the schema itself is not asked for again.
    server.script([Trouble::Missing]);
    asked.await.unwrap().unwrap();
    assert_eq!((server.count("/schemas/ids/60") + server.count("/subjects/leaf/")), 3, "{:?}", server.asked());
}

/// An outage in the middle of the tries is an outage: nothing may be parked for it.
#[tokio::test]
async fn a_registry_that_goes_away_between_the_tries_has_not_said_no() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.script([Trouble::Missing, Trouble::Missing, Trouble::Missing, Trouble::Status(503)]);
    let registry = client(&server);
    assert!(matches!(error(&registry, Confluent(58)).await, RegistryError::Unavailable { .. }));
    server.schema(58, INT);
    registry.writer_schema(Confluent(58)).await.unwrap();
}

/// Case F: what is in memory needs no registry, however long it is away.
#[tokio::test]
async fn known_schemas_are_served_while_the_registry_is_away() {
    let mut server = RegistryServer::start(Kind::Confluent).await;
    for id in 1..=50u32 {
        server.schema(u64::from(id), INT);
    }
    let registry = client(&server);
    for id in 1..=50 {
        registry.writer_schema(Confluent(id)).await.unwrap();
    }
    assert!(registry.known(Confluent(7)).unwrap().is_ok() && registry.known(Confluent(51)).is_none());
    server.stop().await;
    for id in 1..=50 {
        registry.clone().writer_schema(Confluent(id)).await.unwrap();
    }
    assert!(matches!(error(&registry, Confluent(51)).await, RegistryError::Unavailable { .. }));
    assert_eq!(server.asked().len(), 50);
}

#[tokio::test]
async fn the_memory_is_bounded_and_the_least_used_goes_first() {
    let server = RegistryServer::start(Kind::Confluent).await;
    for id in 1..=4 {
        server.schema(id, INT);
    }
    let registry = Registry::new(&Options { capacity: 3, ..options(&server.url) }).unwrap();
    for id in [1, 2, 3, 1, 4, 1, 3, 4, 2] {
        registry.writer_schema(Confluent(id)).await.unwrap();
    }
    for (id, times) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        assert_eq!(server.count(&format!("/ids/{id}")), times, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once_make_one_request() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema_with(58, MID, &[("leaf", 1)]).schema(59, LEAF).subject("leaf", 1, 59);
    server.script([Trouble::Late(Duration::from_millis(200))]);
    let registry = client(&server);
    let ask = |_| {
        let registry = registry.clone();
        tokio::spawn(async move { registry.writer_schema(Confluent(58)).await.unwrap() })
    };
    let asked: Vec<_> = (0..100).map(ask).collect();
    let mut schemas = Vec::new();
    for task in asked {
        schemas.push(task.await.unwrap());
    }
    assert!(schemas.iter().all(|schema| std::sync::Arc::ptr_eq(schema, &schemas[0])));
    assert_eq!(server.asked().len(), 2, "{:?}", server.asked());
    // An error is shared as well, and not a request more than its tries.
    server.forget_requests();
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let registry = registry.clone();
            tokio::spawn(async move { registry.writer_schema(Confluent(404)).await.unwrap_err() })
        })
        .collect();
    for task in asked {
        assert!(matches!(task.await.unwrap(), RegistryError::NotFound { .. }));
    }
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_dropped_takes_nothing_from_the_others() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT).script([Trouble::Late(Duration::from_millis(300))]);
    let registry = client(&server);
    let ask = || {
        let registry = registry.clone();
        tokio::spawn(async move { registry.writer_schema(Confluent(58)).await })
    };
    let first = ask();
    crate::wait::until("the request", || async { (server.asked().len() == 1).then_some(()) }).await;
    let others: Vec<_> = (0..10).map(|_| ask()).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    for other in &others[..5] {
        other.abort();
    }
    for other in others.into_iter().skip(5) {
        other.await.unwrap().unwrap();
    }
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_question_that_everybody_gave_up_is_put_anew() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT).script([Trouble::Stalls]);
    let registry = client(&server);
    let given_up = tokio::time::timeout(Duration::from_millis(200), registry.writer_schema(Confluent(58))).await;
    assert!(given_up.is_err());
    registry.writer_schema(Confluent(58)).await.unwrap();
    assert_eq!(server.asked().len(), 2);
}

/// References: nested, shared, under names that need encoding, each asked for once.
#[tokio::test]
async fn references_are_followed_and_each_is_asked_for_once() {
    let leaf = ":.ctx:io/debezium %2F Quelle-\u{fc}?#";
    for kind in [Kind::Confluent, Kind::Apicurio2, Kind::Apicurio3] {
        let server = RegistryServer::start(kind).await;
        let mid = if kind == Kind::Confluent { "mid" } else { "my/group::mid" };
        server
            .schema_with(8, TOP, &[(mid, 3), (leaf, 1)])
            .schema_with(9, MID, &[(leaf, 1)])
            .schema(10, LEAF)
            .subject(mid, 3, 9)
            .subject(leaf, 1, 10)
            .global(80, 8);
        if kind == Kind::Confluent {
            client(&server).writer_schema(Confluent(8)).await.unwrap();
            assert_eq!(server.asked().len(), 3, "{:?}", server.asked());
            assert_eq!(server.count("/subjects/mid/versions/3"), 1);
            continue;
        }
        for id in [Global(80), Content(8)] {
            server.forget_requests();
            apicurio(&server).writer_schema(id).await.unwrap();
            let api = if kind == Kind::Apicurio2 { "/v2/" } else { "/v3/" };
            assert_eq!(server.count(&format!("{api}groups/my%2Fgroup/artifacts/mid/versions/3")), 2);
            assert_eq!(server.count(&format!("{api}groups/default/artifacts/%3A.ctx")), 2);
            assert_eq!(server.count(&format!("{api}ids/")), 2, "{:?}", server.asked());
        }
    }
}

#[tokio::test]
async fn a_missing_reference_is_a_missing_schema_and_names_both() {
    for kind in [Kind::Confluent, Kind::Apicurio2, Kind::Apicurio3] {
        let server = RegistryServer::start(kind).await;
        server.schema_with(8, MID, &[("gone.Leaf", 2)]).global(8, 8);
        let (registry, id) = match kind {
            Kind::Confluent => (client(&server), Confluent(8)),
            Kind::Apicurio2 | Kind::Apicurio3 => (apicurio(&server), Global(8)),
        };
        let missing = error(&registry, id).await;
        assert!(matches!(&missing, RegistryError::NotFound { tries: 4, .. }), "{missing:?}");
        let text = missing.to_string();
        assert!(text.contains("gone.Leaf") && text.contains(&id.to_string()), "{text}");
        // A subject may be there as one that was deleted since: that is asked for, too.
        let times = if kind == Kind::Confluent { 8 } else { 4 };
        assert_eq!(server.count("gone.Leaf"), times, "{:?}", server.asked());
        let again = error(&registry, id).await;
        assert_eq!((again, server.count("gone.Leaf")), (missing, times));
    }
}

#[tokio::test]
async fn circles_and_endless_references_end() {
    let server = RegistryServer::start(Kind::Confluent).await;
    // A circle: each defines its own type, the first refers to itself by way of the second.
    server.schema_with(1, MID, &[("leaf", 1)]).schema_with(2, LEAF, &[("mid", 1), ("leaf", 1)]);
    server.subject("leaf", 1, 2).subject("mid", 1, 1);
    let registry = client(&server);
    registry.writer_schema(Confluent(1)).await.unwrap();
    assert_eq!(server.asked().len(), 3, "{:?}", server.asked());
    // More than anybody registers.
    let names: Vec<String> = (0..600).map(|n| format!("s{n}")).collect();
    let references: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    server.schema_with(3, INT, &references);
    let bad = error(&registry, Confluent(3)).await;
    assert!(matches!(&bad, RegistryError::BadSchema(fault) if fault.detail.contains("more than 500")), "{bad:?}");
    assert_eq!(server.count("/subjects/s"), 0);
    // A name that no address can carry is not asked for at its parent's address.
    server.schema_with(4, MID, &[("..", 1)]);
    assert!(matches!(error(&registry, Confluent(4)).await, RegistryError::BadSchema(_)));
}

#[tokio::test]
async fn what_is_no_avro_schema_is_told_once_and_for_all() {
    for (kind, flavour) in [(Kind::Confluent, "4"), (Kind::Apicurio3, "8")] {
        let server = RegistryServer::start(kind).await;
        server
            .foreign(4, "PROTOBUF", "syntax = \"proto3\";")
            .foreign(5, "JSON", "{}")
            .schema(6, "{\"type\":\"recrd\"}");
        server.global(4, 4).global(5, 5).global(6, 6);
        let id = |id: u32| if flavour == "4" { Confluent(id) } else { Global(u64::from(id)) };
        let registry = if flavour == "4" { client(&server) } else { apicurio(&server) };
        for (n, word) in [(4, "PROTOBUF"), (5, "JSON"), (6, "")] {
            let bad = error(&registry, id(n)).await;
            let RegistryError::BadSchema(fault) = &bad else { panic!("{bad:?}") };
            assert!(fault.code == "bad_schema" && fault.detail.contains(word), "{fault}");
            assert!(fault.detail.contains(&format!("id {n}")), "{fault}");
            let asked = server.asked().len();
            assert_eq!((error(&registry, id(n)).await, server.asked().len()), (bad, asked));
        }
    }
}

/// What stands between us and the registry, or instead of it, says nothing about a record.
#[tokio::test]
async fn an_answer_that_is_not_the_registry_s_is_no_missing_schema() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT);
    let registry = client(&server);
    let page = |status| Trouble::Says(status, "text/html", b"<html><h1>Not Found</h1></html>".to_vec());
    let says = |status, text: &str| Trouble::Says(status, "application/json", text.as_bytes().to_vec());
    for trouble in [
        page(404),
        page(200),
        Trouble::Status(404),
        says(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#),
        says(404, r#"{"message":"no Route matched with those values"}"#),
        says(200, r#"{"login":"please"}"#),
        says(200, r#"{"schema":"#),
        Trouble::Says(200, "application/json", vec![b'x'; 9 << 20]),
    ] {
        server.script([trouble.clone()]);
        let odd = error(&registry, Confluent(58)).await;
        assert!(matches!(&odd, RegistryError::Misconfigured { .. }), "{odd:?}");
        assert!(odd.to_string().len() < 300, "{odd}");
    }
    let asked = server.asked().len();
    registry.writer_schema(Confluent(58)).await.unwrap();
    assert_eq!((asked, server.asked().len()), (8, 9), "each was asked for once, and remembered not at all");
    let wrong = Registry::new(&options(&format!("{}/nowhere", server.url))).unwrap();
    assert!(matches!(error(&wrong, Confluent(58)).await, RegistryError::Misconfigured { .. }));
    for (kind, flavour) in [(Kind::Apicurio2, Flavour::Confluent), (Kind::Confluent, Flavour::Apicurio)] {
        let other = RegistryServer::start(kind).await;
        let registry = Registry::new(&Options { flavour, ..options(&other.url) }).unwrap();
        let id = if flavour == Flavour::Confluent { Confluent(58) } else { Global(58) };
        let odd = error(&registry, id).await;
        assert!(matches!(&odd, RegistryError::Misconfigured { .. }), "{odd:?}");
        assert!(odd.to_string().contains("flavour"), "{odd}");
    }
}

#[tokio::test]
async fn a_slow_registry_is_away() {
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT).script([Trouble::Stalls, Trouble::Late(Duration::from_secs(3))]);
    let registry = Registry::new(&Options { timeout: Duration::from_millis(300), ..options(&server.url) }).unwrap();
    for _ in 0..2 {
        let began = Instant::now();
        let away = error(&registry, Confluent(58)).await;
        assert!(matches!(&away, RegistryError::Unavailable { .. }), "{away:?}");
        assert!(away.to_string().contains("300ms"), "{away}");
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    registry.writer_schema(Confluent(58)).await.unwrap();
    // A host that takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let registry = Registry::new(&Options { timeout: Duration::from_millis(200), ..options(&url) }).unwrap();
    assert!(matches!(error(&registry, Confluent(1)).await, RegistryError::Unavailable { .. }));
}

#[tokio::test]
async fn ids_that_no_registry_gives_are_not_asked_for() {
    let server = RegistryServer::start(Kind::Confluent).await;
    let registry = client(&server);
    for id in [Confluent(0), Confluent(1 << 31), Confluent(u32::MAX), Global(0), Content(u64::MAX)] {
        let missing = error(&registry, id).await;
        assert!(matches!(&missing, RegistryError::NotFound { tries: 0, .. }), "{missing:?}");
    }
    assert!(error(&registry, Confluent(0)).await.to_string().contains("8 bytes wide"));
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn credentials_go_to_the_registry_and_nowhere_else() {
    let basic = "Basic YW5AbjpwLzp3JSsgw7w=";
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(58, INT).require(basic);
    let url = server.url.replace("http://", "http://an%40n:p%2F%3Aw%25+%20%C3%BC@");
    Registry::new(&options(&url)).unwrap().writer_schema(Confluent(58)).await.unwrap();
    let wrong = Registry::new(&options(&server.url.replace("http://", "http://an%40n:hunter2@"))).unwrap();
    let denied = error(&wrong, Confluent(58)).await;
    assert!(matches!(denied, RegistryError::Denied { status: 401, .. }), "{denied:?}");
    server.require("Bearer t.o-k_en");
    let bearer = Options { auth: Auth::Bearer("t.o-k_en".to_owned()), ..options(&server.url) };
    let bearer = Registry::new(&bearer).unwrap();
    bearer.writer_schema(Confluent(58)).await.unwrap();
    // A redirect, to another host and to this one: it is told and not followed.
    let other = RegistryServer::start(Kind::Confluent).await;
    other.schema(59, INT);
    for (status, place) in [
        (302, format!("{}/schemas/ids/59", other.url)),
        (307, format!("{}/schemas/ids/59", other.url.replace("http://", "http://x:hunter2@"))),
        (308, format!("{}/schemas/ids/58?ticket=hunter2", server.url)),
    ] {
        server.script([Trouble::Elsewhere(status, place)]);
        let elsewhere = error(&bearer, Confluent(59)).await;
        assert!(matches!(&elsewhere, RegistryError::Misconfigured { .. }), "{elsewhere:?}");
        let text = elsewhere.to_string();
        assert!(text.contains("/schemas/ids/") && !text.contains("hunter2"), "{text}");
    }
    assert!(other.asked().is_empty(), "{:?}", other.asked());
    assert!(server.asked().iter().all(|asked| asked.authorization.is_some()));
}

/// Whatever goes wrong, no message and no debug text shows a password or a token.
#[tokio::test]
async fn no_error_shows_a_secret() {
    let mut server = RegistryServer::start(Kind::Confluent).await;
    let url = server.url.replace("http://", "http://hunter1:hunter2@");
    let echo = b"{\"error_code\":40301,\"message\":\"Basic aHVudGVyMTpodW50ZXIy hunter2\"}".to_vec();
    server.script([
        Trouble::Says(403, "application/json", echo.clone()),
        Trouble::Says(404, "application/json", echo.clone()),
        Trouble::Says(500, "application/json", echo.clone()),
        Trouble::Says(200, "application/json", echo),
        Trouble::Status(401),
    ]);
    let options = options(&url);
    let registry = Registry::new(&options).unwrap();
    let mut shown = format!("{options:?} {}", registry.address());
    for id in 1..=6 {
        let error = error(&registry, Confluent(id)).await;
        shown += &format!("{error} {error:?}\n");
    }
    server.stop().await;
    let away = error(&registry, Confluent(9)).await;
    shown += &format!("{away} {away:?}\n");
    let unusable = Options { auth: Auth::Bearer("hunter2\nx".to_owned()), ..options };
    shown += &Registry::new(&unusable).err().expect("no header can carry it").to_string();
    for secret in ["hunter", "aHVudGVy"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains(&format!("127.0.0.1:{}", server.port)));
}

#[tokio::test]
async fn an_authority_of_one_s_own_is_trusted_when_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = RegistryServer::start_tls(Kind::Confluent, folder.path()).await;
    server.schema(58, INT);
    let ca_file = folder.path().join("ca.pem");
    let with = |ca_file: Option<std::path::PathBuf>, url: &str| Registry::new(&Options { ca_file, ..options(url) });
    with(Some(ca_file.clone()), &server.url).unwrap().writer_schema(Confluent(58)).await.unwrap();
    // A bundle of several.
    let bundle = folder.path().join("bundle.pem");
    let text = std::fs::read_to_string(&ca_file).unwrap();
    std::fs::write(&bundle, format!("# our own\n{text}\n{text}")).unwrap();
    with(Some(bundle), &server.url).unwrap().writer_schema(Confluent(58)).await.unwrap();
    let untrusted = error(&with(None, &server.url).unwrap(), Confluent(58)).await;
    assert!(matches!(&untrusted, RegistryError::Unavailable { .. }), "{untrusted:?}");
    assert!(untrusted.to_string().contains("ca_file"), "{untrusted}");
    // The certificate is for another name.
    let url = server.url.replace("localhost", "127.0.0.1");
    let other_name = error(&with(Some(ca_file), &url).unwrap(), Confluent(58)).await;
    assert!(matches!(&other_name, RegistryError::Unavailable { .. }), "{other_name:?}");
    for (name, content) in [("empty.pem", ""), ("key.pem", "-----BEGIN NONSENSE-----\nAAAA\n-----END NONSENSE-----\n")]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        let unusable = with(Some(file), &server.url).err().expect("no authority in it");
        assert!(unusable.to_string().contains(name), "{unusable}");
    }
    assert!(with(Some(folder.path().join("none.pem")), &server.url).is_err());
    // Plain HTTP at a port that speaks TLS, and the other way round.
    let plain = Registry::new(&options(&server.url.replace("https", "http"))).unwrap();
    assert!(matches!(error(&plain, Confluent(58)).await, RegistryError::Unavailable { .. }));
}

#[tokio::test]
async fn what_stands_at_an_address_is_found_out() {
    let confluent = RegistryServer::start(Kind::Confluent).await;
    let (two, three) = (RegistryServer::start(Kind::Apicurio2).await, RegistryServer::start(Kind::Apicurio3).await);
    for server in [&confluent, &two, &three] {
        server.schema(5, INT).global(6, 5);
    }
    for (server, path, api) in [
        (&confluent, "", Api::Confluent),
        (&confluent, "/", Api::Confluent),
        (&two, "", Api::ApicurioV2),
        (&two, "/apis/registry/v2", Api::ApicurioV2),
        (&two, "/apis/registry/", Api::ApicurioV2),
        (&two, "/apis/ccompat/v7", Api::ApicurioV2),
        (&three, "", Api::ApicurioV3),
        (&three, "/apis/registry/v3/", Api::ApicurioV3),
        (&three, "/apis/registry/v2", Api::ApicurioV2),
    ] {
        let registry = Registry::discover(&options(&format!("{}{path}", server.url))).await.unwrap();
        assert_eq!(registry.api().await.unwrap(), api, "{path}");
        registry.writer_schema(Confluent(5)).await.unwrap();
        registry.schema_of(number(5, Width::Four), "t").await.unwrap();
        let wide = registry.schema_of(number(6, Width::Eight), "t").await;
        match api {
            Api::Confluent => assert!(matches!(wide, Err(RegistryError::NotFound { .. })), "{wide:?}"),
            // A global id that is no content id: found whichever is tried first.
            Api::ApicurioV2 | Api::ApicurioV3 => assert!(wide.is_ok(), "{wide:?}"),
        }
        if api != Api::Confluent {
            registry.writer_schema(Global(6)).await.unwrap();
            registry.writer_schema(Content(5)).await.unwrap();
        } else {
            assert!(matches!(error(&registry, Global(6)).await, RegistryError::Misconfigured { .. }));
        }
    }
    let nowhere = Registry::discover(&options(&format!("{}/x", confluent.url))).await.err().unwrap();
    assert!(matches!(nowhere, RegistryError::Misconfigured { .. }), "{nowhere:?}");
    confluent.require("Bearer x");
    let denied = Registry::discover(&options(&confluent.url)).await.err().unwrap();
    assert!(matches!(denied, RegistryError::Denied { .. }), "{denied:?}");
    let away = Registry::discover(&options("http://127.0.0.1:1")).await.err().unwrap();
    assert!(matches!(away, RegistryError::Unavailable { .. }), "{away:?}");
}

#[tokio::test]
async fn what_an_id_in_front_means_is_set_or_follows_the_version() {
    for (kind, ids, path) in [
        (Kind::Apicurio2, None, "/v2/ids/globalIds/7"),
        (Kind::Apicurio3, None, "/v3/ids/contentIds/7"),
        (Kind::Apicurio2, Some(Ids::Content), "/v2/ids/contentIds/7"),
        (Kind::Apicurio3, Some(Ids::Global), "/v3/ids/globalIds/7"),
    ] {
        let server = RegistryServer::start(kind).await;
        server.schema(7, INT).global(7, 7);
        let options = Options { flavour: Flavour::Apicurio, ids, ..options(&server.url) };
        for width in [Width::Four, Width::Eight] {
            server.forget_requests();
            Registry::new(&options).unwrap().schema_of(number(7, width), "t").await.unwrap();
            assert!(server.count(path) >= 1, "{kind:?} {ids:?} {:?}", server.asked());
            assert_eq!(server.count("Ids/"), 2, "the text and its references: {:?}", server.asked());
        }
    }
    let server = RegistryServer::start(Kind::Confluent).await;
    server.schema(7, INT);
    client(&server).schema_of(number(7, Width::Four), "t").await.unwrap();
    assert_eq!(server.count("/schemas/ids/7"), 1);
    // A version that is not known yet is an outage like any other, and found out later.
    let mut away = RegistryServer::start(Kind::Apicurio3).await;
    away.schema(7, INT);
    let registry = apicurio(&away);
    away.stop().await;
    let hindered = registry.schema_of(number(7, Width::Eight), "t").await;
    assert!(matches!(hindered, Err(RegistryError::Unavailable { .. })), "{hindered:?}");
    away.resume().await;
    registry.schema_of(number(7, Width::Eight), "t").await.unwrap();
    assert_eq!(away.count("/v3/ids/contentIds/7"), 2);
}

/// Where a number may be two things, the one that could not be looked at may be the right one.
#[tokio::test]
async fn a_reading_that_could_not_be_tried_is_no_missing_schema() {
    let server = RegistryServer::start(Kind::Apicurio2).await;
    server.global(6, 5).schema(5, INT);
    let registry = Registry::discover(&options(&server.url)).await.unwrap();
    let tries = MISSING.tries as usize;
    server.script(std::iter::repeat_n(Trouble::Missing, tries).chain([Trouble::Status(503)]));
    let hindered = registry.schema_of(number(6, Width::Eight), "t").await;
    assert!(matches!(hindered, Err(RegistryError::Unavailable { .. })), "{hindered:?}");
}

fn named(name: &str) -> String {
    format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"n","type":"int"}}]}}"#)
}

/// Global and content ids are counted apart: one number may be two schemas, and bytes read by the wrong one are a row
/// that nobody wrote.
#[tokio::test]
async fn a_number_that_may_be_two_schemas_is_the_topic_s_or_nothing() {
    for kind in [Kind::Apicurio2, Kind::Apicurio3] {
        for width in [Width::Four, Width::Eight] {
            let server = RegistryServer::start(kind).await;
            server.schema(7, &named("a.orders.Envelope")).schema(8, &named("a.stock.Envelope")).global(7, 8);
            server.schema(9, INT).global(9, 9);
            let registry = Registry::discover(&options(&server.url)).await.unwrap();
            for (topic, name) in [("a.orders", "a.orders.Envelope"), ("a.stock", "a.stock.Envelope")] {
                let schema = registry.schema_of(number(7, width), topic).await.unwrap();
                assert_eq!(schema.name(), Some(name), "{kind:?} {width:?}");
            }
            let ambiguous = registry.schema_of(number(7, width), "renamed").await.unwrap_err();
            assert!(matches!(ambiguous, RegistryError::Ambiguous { .. }), "{ambiguous:?}");
            let text = ambiguous.to_string();
            for part in [
                "number 7",
                "\"renamed\"",
                "id 7 (a.orders.Envelope)",
                "global id 7",
                "a.orders.Envelope",
                "a.stock.Envelope",
                "`flavour`",
                "`ids`",
                "`framing`",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
            // One schema under both kinds of ids is no question, whatever its name.
            registry.schema_of(number(9, width), "renamed").await.unwrap();
            // Two of the topic's own are one.
            server.schema(11, &named("a.orders.Key")).schema(12, &named("a.orders.Envelope")).global(11, 12);
            let both = registry.schema_of(number(11, width), "a.orders").await.unwrap_err();
            assert!(matches!(both, RegistryError::Ambiguous { .. }), "{both:?}");
        }
    }
}

#[tokio::test]
async fn a_probe_puts_the_question_of_a_record() {
    for (kind, path, api) in [
        (Kind::Confluent, "", Api::Confluent),
        (Kind::Apicurio2, "/apis/ccompat/v7", Api::Confluent),
        (Kind::Apicurio2, "", Api::ApicurioV2),
        (Kind::Apicurio3, "", Api::ApicurioV3),
    ] {
        let server = RegistryServer::start(kind).await;
        let flavour = if api == Api::Confluent { Flavour::Confluent } else { Flavour::Apicurio };
        let options = Options { flavour, ..options(&format!("{}{path}", server.url)) };
        let facts = Registry::new(&options).unwrap().probe().await.unwrap();
        assert_eq!((facts.api, facts.version.is_some()), (api, kind != Kind::Confluent), "{kind:?}");
        server.require("Basic eDp5");
        let denied = Registry::new(&options).unwrap().probe().await.unwrap_err();
        assert!(matches!(denied, RegistryError::Denied { .. }), "{denied:?}");
    }
}
