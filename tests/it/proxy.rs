//! A way to a server that can be cut: for outages that no shared server can be asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub struct Proxy {
    pub port: u16,
    cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Stands before a server at this address.
    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        let task = tokio::spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let accepted = tokio::time::timeout(Duration::from_millis(5), listener.accept()).await;
                if is_cut.load(Ordering::SeqCst) {
                    // Both ends at once, in the middle of whatever is said.
                    ways.shutdown().await;
                } else if let Ok(Ok((mut client, _))) = accepted {
                    let server = server.clone();
                    ways.spawn(async move {
                        let mut server = TcpStream::connect(server).await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    });
                }
            }
        });
        Self { port, cut, task }
    }

    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
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
