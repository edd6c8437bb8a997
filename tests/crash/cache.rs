//! A Redis of one test's own, that can be filled, stopped, and led astray.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::wait::until;

pub struct Cache {
    pub port: u16,
    dir: TempDir,
    child: Child,
    connection: Option<MultiplexedConnection>,
}

impl Cache {
    pub async fn start() -> Self {
        let (port, dir) = (free_port(), TempDir::new().unwrap());
        let child = serve(port, &dir, &[]);
        let mut cache = Self { port, dir, child, connection: None };
        cache.connect().await;
        cache
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Stops it, without a word to anybody, and starts it again with these arguments.
    pub fn restart(&mut self, arguments: &[&str]) {
        self.connection = None;
        let _ = self.child.kill();
        self.child.wait().unwrap();
        self.child = serve(self.port, &self.dir, arguments);
    }

    /// Waits until it lets somebody in and has its data.
    pub async fn connect(&mut self) {
        let client = redis::Client::open(self.url()).unwrap();
        let connected = until("redis", || async {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("PING").exec_async(&mut connection).await.ok()?;
            connection.set_response_timeout(Duration::from_secs(30));
            Some(connection)
        });
        self.connection = Some(connected.await);
    }

    /// A command in words.
    pub async fn run(&mut self, command: &str) {
        let mut words = command.split(' ');
        let mut asked = redis::cmd(words.next().unwrap());
        for word in words {
            asked.arg(word);
        }
        let done = asked.exec_async(self.connection.as_mut().unwrap()).await;
        done.unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    /// With a plan for snapshots it refuses writes after one that failed.
    pub async fn save_after(&mut self, plan: &str) {
        let mut asked = redis::cmd("CONFIG");
        asked.arg("SET").arg("save").arg(plan).exec_async(self.connection.as_mut().unwrap()).await.unwrap();
    }

    /// A number of `INFO`.
    pub async fn info(&mut self, name: &str) -> Option<String> {
        let connection = self.connection.as_mut().unwrap();
        let text: String = redis::cmd("INFO").arg("everything").query_async(connection).await.unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    }

    pub async fn until_info(&mut self, name: &str, value: &str) {
        for _ in 0..1000 {
            if self.info(name).await.as_deref() == Some(value) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{name} is {:?}, not {value}", self.info(name).await);
    }
}

fn serve(port: u16, dir: &TempDir, arguments: &[&str]) -> Child {
    let port = port.to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"]);
    command.arg("--dir").arg(dir.path()).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("redis-server is installed, as for the test stack")
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
