//! A way to a server that can be cut, stalled, bent to another server, or robbed of an answer: for faults that no
//! shared server can be asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::wait::until;

/// What the proxy does with the ways that lead through it.
#[derive(Clone, Copy, Default)]
struct Traffic {
    /// All ways end at once, in the middle of whatever is said, and no new one begins.
    cut: bool,
    /// Nothing gets through, not even an end, until this is over.
    stalled: bool,
    /// Ways with a number below this stand still for ever, as when a host vanished.
    vanished: u64,
}

/// A request whose answer the client does not get.
#[derive(Default)]
struct Robbery {
    request: Option<Vec<u8>>,
    /// Once the server has answered: end the way, or leave the client waiting.
    then_cut: bool,
}

struct Ways {
    traffic: watch::Sender<Traffic>,
    server: Mutex<String>,
    robbery: Mutex<Robbery>,
    robbed: AtomicU64,
    number: AtomicU64,
}

pub struct Proxy {
    pub port: u16,
    ways: Arc<Ways>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Stands before a server at this address.
    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let ways = Arc::new(Ways {
            traffic: watch::Sender::new(Traffic::default()),
            server: Mutex::new(server),
            robbery: Mutex::default(),
            robbed: AtomicU64::new(0),
            number: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&ways)));
        Self { port, ways, task }
    }

    /// Stands before the server of this URL.
    pub async fn before_url(url: &str) -> Self {
        let url = url::Url::parse(url).unwrap();
        Self::before(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())).await
    }

    pub fn cut(&self, cut: bool) {
        self.ways.traffic.send_modify(|traffic| traffic.cut = cut);
    }

    /// Cuts what is there; new ways are open.
    pub async fn cut_once(&self) {
        self.cut(true);
        tokio::time::sleep(Duration::from_millis(30)).await;
        self.cut(false);
    }

    pub fn stall(&self, stalled: bool) {
        self.ways.traffic.send_modify(|traffic| traffic.stalled = stalled);
    }

    /// Whoever is on the way now is never heard of again, by neither side; new ways are open.
    pub fn vanish(&self) {
        let below = self.ways.number.load(Ordering::SeqCst);
        self.ways.traffic.send_modify(|traffic| traffic.vanished = below);
    }

    /// Leads to another server from now on. Ways that are there are cut.
    pub async fn lead_to(&self, server: String) {
        *self.ways.server.lock().unwrap() = server;
        self.cut_once().await;
    }

    /// The next request with this text reaches the server; its answer does not reach the client, whose way is then cut.
    pub fn rob(&self, request: &str) {
        *self.ways.robbery.lock().unwrap() = Robbery { request: Some(request.as_bytes().to_vec()), then_cut: true };
    }

    /// The same, but the client goes on waiting.
    pub fn rob_and_hold(&self, request: &str) {
        *self.ways.robbery.lock().unwrap() = Robbery { request: Some(request.as_bytes().to_vec()), then_cut: false };
    }

    /// How many answers were taken so far.
    pub fn robbed(&self) -> u64 {
        self.ways.robbed.load(Ordering::SeqCst)
    }

    pub async fn until_robbed(&self, times: u64) {
        until("an answer that was taken", || async { (self.robbed() >= times).then_some(()) }).await;
    }

    /// The same address by way of this proxy.
    pub fn instead_of(&self, url: &str) -> String {
        let mut url = url::Url::parse(url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.to_string()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ways {
    /// Whether this is the request whose answer is to be taken; it is one only once.
    fn robs(&self, bytes: &[u8]) -> bool {
        let mut robbery = self.robbery.lock().unwrap();
        let found = robbery.request.as_ref().is_some_and(|request| contains(bytes, request));
        if found {
            robbery.request = None;
        }
        found
    }
}

async fn accept(listener: TcpListener, ways: Arc<Ways>) {
    let mut traffic = ways.traffic.subscribe();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            changed = traffic.changed() => { changed.unwrap(); None }
            accepted = listener.accept() => accepted.ok(),
        };
        if traffic.borrow_and_update().cut {
            tasks.shutdown().await;
        } else if let Some((client, _)) = accepted {
            let number = ways.number.fetch_add(1, Ordering::SeqCst);
            tasks.spawn(lead(client, Arc::clone(&ways), number));
        }
    }
}

/// One client's way to the server, until one of them ends it.
async fn lead(client: TcpStream, ways: Arc<Ways>, number: u64) {
    passable(&ways, number).await;
    let address = ways.server.lock().unwrap().clone();
    // A server that is down refuses, and so does its proxy.
    let Ok(server) = TcpStream::connect(address).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let robbed = watch::Sender::new(false);
    tokio::select! {
        () = requests(from_client, to_server, &ways, number, &robbed) => {}
        () = answers(from_server, to_client, &ways, number, &robbed) => {}
    }
}

/// Waits while the way is stalled.
async fn passable(ways: &Ways, number: u64) {
    let mut traffic = ways.traffic.subscribe();
    let open = traffic.wait_for(|traffic| !traffic.stalled && number >= traffic.vanished).await;
    open.map(drop).unwrap();
}

async fn requests(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    ways: &Ways,
    number: u64,
    robbed: &watch::Sender<bool>,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let read = from.read(&mut bytes).await;
        // What was read when the stall began is held too, and so is the end.
        passable(ways, number).await;
        let Ok(length @ 1..) = read else { return };
        if ways.robs(&bytes[..length]) {
            robbed.send_replace(true);
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    ways: &Ways,
    number: u64,
    robbed: &watch::Sender<bool>,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let read = from.read(&mut bytes).await;
        passable(ways, number).await;
        let Ok(length @ 1..) = read else { return };
        if *robbed.borrow() {
            let then_cut = ways.robbery.lock().unwrap().then_cut;
            ways.robbed.fetch_add(1, Ordering::SeqCst);
            if then_cut {
                return;
            }
            // Until the server ends, or somebody cuts.
            while matches!(from.read(&mut bytes).await, Ok(1..)) {}
            return;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
