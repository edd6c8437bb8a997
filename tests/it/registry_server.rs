//! A schema registry in this process: Confluent's API, or Apicurio's of version 2 or 3 with its Confluent API beside
//! it. It answers as the real ones do, missing things and unknown paths included, and can be told to fail.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::serve::Listener;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Whose registry this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Confluent,
    Apicurio2,
    /// Has version 2 of the API as well.
    Apicurio3,
}

/// What the next request meets instead of an answer.
#[derive(Clone, Debug)]
pub enum Trouble {
    Status(u16),
    /// Status and Retry-After.
    Busy(u16, String),
    /// Status, content type, body.
    Says(u16, &'static str, Vec<u8>),
    /// Status and Location.
    Elsewhere(u16, String),
    /// "There is no such schema" in this registry's words.
    Missing,
    /// The good answer, but late.
    Late(Duration),
    /// Nothing at all, and no end.
    Stalls,
    /// A beginning, and the connection ends.
    Cut,
}

#[derive(Clone, Debug)]
pub struct Asked {
    /// As it came, with query.
    pub path: String,
    pub authorization: Option<String>,
}

pub struct RegistryServer {
    /// `http://127.0.0.1:PORT`, or `https://localhost:PORT`.
    pub url: String,
    pub port: u16,
    shared: Arc<Mutex<Shelf>>,
    /// Of its own, so that with it every open connection ends too.
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Shelf {
    kind: Option<Kind>,
    /// By content id, which is what Confluent's API goes by.
    schemas: BTreeMap<u64, Schema>,
    /// Content ids by global id.
    globals: BTreeMap<u64, u64>,
    /// Content ids by subject and version. Apicurio: the artifact, or `group::artifact`.
    subjects: HashMap<(String, i64), u64>,
    script: VecDeque<Trouble>,
    authorization: Option<String>,
    asked: Vec<Asked>,
}

#[derive(Clone)]
struct Schema {
    text: String,
    kind: &'static str,
    references: Vec<(String, i64)>,
}

impl RegistryServer {
    pub async fn start(kind: Kind) -> Self {
        let runtime = runtime();
        let (listener, port) = listen(&runtime, 0).await;
        Self::serve(kind, runtime, listener, format!("http://127.0.0.1:{port}"), port)
    }

    /// With TLS under a certificate for `localhost`, whose authority is `ca.pem` in this folder.
    pub async fn start_tls(kind: Kind, folder: &Path) -> Self {
        make_certificates(folder);
        let runtime = runtime();
        let (tcp, port) = listen(&runtime, 0).await;
        let listener = TlsListener { tcp, acceptor: acceptor(folder) };
        Self::serve(kind, runtime, listener, format!("https://localhost:{port}"), port)
    }

    fn serve<L: Listener>(kind: Kind, runtime: Runtime, listener: L, url: String, port: u16) -> Self
    where
        L::Addr: std::fmt::Debug,
    {
        let shared = Arc::new(Mutex::new(Shelf { kind: Some(kind), ..Shelf::default() }));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, port, shared, runtime: Some(runtime) }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shared.lock().unwrap()
    }

    /// A schema under a content id, which is the id of Confluent's API.
    pub fn schema(&self, id: u64, text: &str) -> &Self {
        self.schema_with(id, text, &[])
    }

    /// A schema that refers to subjects with their versions.
    pub fn schema_with(&self, id: u64, text: &str, references: &[(&str, i64)]) -> &Self {
        let references = references.iter().map(|(subject, version)| ((*subject).to_owned(), *version)).collect();
        self.shelf().schemas.insert(id, Schema { text: text.to_owned(), kind: "AVRO", references });
        self
    }

    /// A schema of another kind than Avro.
    pub fn foreign(&self, id: u64, kind: &'static str, text: &str) -> &Self {
        self.shelf().schemas.insert(id, Schema { text: text.to_owned(), kind, references: Vec::new() });
        self
    }

    pub fn subject(&self, subject: &str, version: i64, id: u64) -> &Self {
        self.shelf().subjects.insert((subject.to_owned(), version), id);
        self
    }

    /// Apicurio's global id of what has this content id.
    pub fn global(&self, global: u64, content: u64) -> &Self {
        self.shelf().globals.insert(global, content);
        self
    }

    /// The next requests, one each.
    pub fn script(&self, troubles: impl IntoIterator<Item = Trouble>) {
        self.shelf().script.extend(troubles);
    }

    /// Requests without this `Authorization` meet 401.
    pub fn require(&self, authorization: &str) {
        self.shelf().authorization = Some(authorization.to_owned());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shelf().asked.clone()
    }

    /// Requests whose path holds this.
    pub fn count(&self, part: &str) -> usize {
        self.shelf().asked.iter().filter(|asked| asked.path.contains(part)).count()
    }

    pub fn forget_requests(&self) {
        self.shelf().asked.clear();
    }

    /// Nobody listens any more, and open connections are cut off.
    pub async fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5))).await.unwrap();
        }
    }

    /// After a stop: listens again at the same port, with the same schemas.
    pub async fn resume(&mut self) {
        assert!(self.runtime.is_none(), "it was not stopped");
        let runtime = runtime();
        let (listener, _) = listen(&runtime, self.port).await;
        let router = Router::new().fallback(answer).with_state(Arc::clone(&self.shared));
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        self.runtime = Some(runtime);
    }
}

impl Drop for RegistryServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn listen(runtime: &Runtime, port: u16) -> (TcpListener, u16) {
    let bound = runtime.spawn(async move { TcpListener::bind(("127.0.0.1", port)).await.unwrap() });
    let listener = bound.await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn answer(State(shared): State<Arc<Mutex<Shelf>>>, uri: Uri, headers: HeaderMap) -> Response {
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let path = uri.path_and_query().map_or("", |path| path.as_str()).to_owned();
    let (trouble, kind) = {
        let mut shelf = shared.lock().unwrap();
        shelf.asked.push(Asked { path, authorization: authorization.clone() });
        if shelf.authorization.is_some() && shelf.authorization != authorization {
            let kind = shelf.kind.unwrap();
            return said(401, "application/json", error(kind, uri.path(), 401, 40101, "NotAuthorizedException"));
        }
        let next = shelf.script.pop_front();
        (next, shelf.kind.unwrap())
    };
    match trouble {
        None => {}
        Some(Trouble::Status(status)) => return said(status, "text/plain", b"in trouble".to_vec()),
        Some(Trouble::Busy(status, wait)) => {
            let mut response = said(status, "text/plain", Vec::new());
            response.headers_mut().insert("retry-after", wait.parse().unwrap());
            return response;
        }
        Some(Trouble::Says(status, kind, body)) => return said(status, kind, body),
        Some(Trouble::Elsewhere(status, place)) => {
            let mut response = said(status, "text/html", b"<html>moved</html>".to_vec());
            response.headers_mut().insert("location", place.parse().unwrap());
            return response;
        }
        Some(Trouble::Missing) => return missing(kind, uri.path(), 40403, "ContentNotFoundException"),
        Some(Trouble::Late(wait)) => tokio::time::sleep(wait).await,
        Some(Trouble::Stalls) => std::future::pending::<()>().await,
        Some(Trouble::Cut) => {
            let parts = [Ok(r#"{"schema":"#), Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))];
            return said(200, "application/json", Body::from_stream(futures::stream::iter(parts)));
        }
    }
    good(&shared.lock().unwrap(), kind, uri.path())
}

fn said(status: u16, content_type: &str, body: impl Into<Body>) -> Response {
    Response::builder().status(status).header("content-type", content_type).body(body.into()).unwrap()
}

fn json_of(value: &Value) -> Response {
    said(200, "application/json", value.to_string())
}

/// An error in the words of the API at this path.
fn error(kind: Kind, path: &str, status: u16, confluent: i64, name: &str) -> Vec<u8> {
    let value = match kind {
        Kind::Confluent => json!({"error_code": confluent, "message": "not as asked"}),
        _ if path.starts_with("/apis/ccompat") => json!({"error_code": confluent, "message": "not as asked"}),
        Kind::Apicurio2 => json!({"error_code": status, "name": name, "message": "not as asked", "detail": name}),
        Kind::Apicurio3 => json!({"status": status, "name": name, "title": "not as asked", "detail": name}),
    };
    value.to_string().into_bytes()
}

fn missing(kind: Kind, path: &str, confluent: i64, name: &str) -> Response {
    said(404, "application/json", error(kind, path, 404, confluent, name))
}

fn no_path(kind: Kind, path: &str) -> Response {
    let code = if kind == Kind::Confluent { 404 } else { 0 };
    missing(kind, path, code, "NotFoundException")
}

fn good(shelf: &Shelf, kind: Kind, path: &str) -> Response {
    let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (kind, segments.as_slice()) {
        (Kind::Confluent, rest) => confluent(shelf, kind, path, rest),
        (_, ["apis", "ccompat", "v7", rest @ ..]) => confluent(shelf, kind, path, rest),
        (Kind::Apicurio3, ["apis", "registry", "v3", rest @ ..]) => apicurio(shelf, kind, path, rest, true),
        (_, ["apis", "registry", "v2", rest @ ..]) => apicurio(shelf, kind, path, rest, false),
        _ => no_path(kind, path),
    }
}

fn confluent(shelf: &Shelf, kind: Kind, path: &str, rest: &[&str]) -> Response {
    let told = |id: u64, schema: &Schema| {
        let references = schema.references.iter();
        let references: Vec<Value> = references
            .map(|(subject, version)| json!({"name": subject, "subject": subject, "version": version}))
            .collect();
        let mut answer = json!({"schema": schema.text, "id": id});
        if schema.kind != "AVRO" {
            answer["schemaType"] = schema.kind.into();
        }
        if !references.is_empty() {
            answer["references"] = references.into();
        }
        json_of(&answer)
    };
    match rest {
        ["schemas", "ids", id] => match id.parse::<i32>() {
            Ok(id) => match shelf.schemas.get(&(id as u64)) {
                Some(schema) => told(id as u64, schema),
                None => missing(kind, path, 40403, ""),
            },
            Err(_) => no_path(kind, path),
        },
        ["subjects", subject, "versions", version] => {
            let id = shelf.subjects.get(&((*subject).to_owned(), version.parse().unwrap_or(0)));
            match id.and_then(|id| Some((*id, shelf.schemas.get(id)?))) {
                Some((id, schema)) => told(id, schema),
                None => missing(kind, path, 40401, ""),
            }
        }
        _ => no_path(kind, path),
    }
}

fn apicurio(shelf: &Shelf, kind: Kind, path: &str, rest: &[&str], v3: bool) -> Response {
    let text = |id: Option<u64>| match id.and_then(|id| shelf.schemas.get(&id)) {
        Some(schema) => {
            let mut response = said(200, "application/octet-stream", schema.text.clone());
            if v3 {
                response.headers_mut().insert("X-Registry-ArtifactType", schema.kind.parse().unwrap());
            }
            response
        }
        None => missing(kind, path, 0, "ArtifactNotFoundException"),
    };
    let references = |id: Option<u64>| match id.and_then(|id| shelf.schemas.get(&id)) {
        Some(schema) => {
            let list = schema.references.iter().map(|(subject, version)| match subject.split_once("::") {
                Some((group, artifact)) => {
                    json!({"groupId": group, "artifactId": artifact, "version": version.to_string(), "name": artifact})
                }
                None => json!({"artifactId": subject, "version": version.to_string(), "name": subject}),
            });
            json_of(&list.collect())
        }
        None => missing(kind, path, 0, "ArtifactNotFoundException"),
    };
    let global = |id: &str| shelf.globals.get(&id.parse().unwrap_or(0)).copied();
    let artifact = |group: &str, artifact: &str, version: &str| {
        let name = if group == "default" { artifact.to_owned() } else { format!("{group}::{artifact}") };
        shelf.subjects.get(&(name, version.parse().unwrap_or(0))).copied()
    };
    match rest {
        ["system", "info"] => {
            let version = if kind == Kind::Apicurio3 { "3.1.0" } else { "2.6.13.Final" };
            json_of(&json!({"name": "apicurio-registry", "version": version}))
        }
        ["ids", "globalIds", id] => text(global(id)),
        ["ids", "globalIds", id, "references"] => references(global(id)),
        ["ids", "contentIds", id] => text(id.parse().ok()),
        ["ids", "contentIds", id, "references"] => references(id.parse().ok()),
        ["groups", group, "artifacts", name, "versions", version] if !v3 => text(artifact(group, name, version)),
        ["groups", group, "artifacts", name, "versions", version, "content"] if v3 => {
            text(artifact(group, name, version))
        }
        ["groups", group, "artifacts", name, "versions", version, "references"] => {
            references(artifact(group, name, version))
        }
        _ => no_path(kind, path),
    }
}

fn decoded(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            // A client that does not trust us breaks off.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// `ca.pem` and, signed by it, `server.pem` with `server.key` for `localhost`.
fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("server.ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for command in [
        format!("req -x509 {key} -days 2 -subj /CN=registry-test-ca -keyout ca.key -out ca.pem"),
        format!("req {key} -subj /CN=localhost -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem"
            .to_owned(),
    ] {
        let done = Command::new("openssl").current_dir(folder).args(command.split(' ')).output().expect("openssl");
        assert!(done.status.success(), "openssl {command}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = vec![CertificateDer::from_pem_file(folder.join("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}
