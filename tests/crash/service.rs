//! A daemon whose health and numbers the test looks at.

use std::time::{Duration, Instant};

use crate::business::Business;
use crate::daemon::Daemon;
use crate::ports::free_port;
use crate::wait::PATIENCE;
use crate::world::World;

/// How a service is run.
pub struct Plan<'a> {
    pub gate: &'a str,
    /// By another way than the test's own.
    pub store: Option<String>,
    /// More lines of `[store]`.
    pub limits: &'a str,
    /// Named points with what happens there.
    pub points: &'a str,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        // Short, so that a dead way is given up and a rival's locks are seen to time out.
        Self { gate: "memory", store: None, limits: "batch = 20\ntransaction_timeout = \"2s\"\n", points: "" }
    }
}

impl Plan<'_> {
    /// The configuration, and where it listens.
    fn text(&self, world: &World) -> (String, String) {
        let listen = format!("127.0.0.1:{}", free_port());
        let rest = format!("[http]\nlisten = \"{listen}\"\n{}", Business::config(self.gate));
        let mut text = world.config(&rest).replace("[store]\n", &format!("[store]\n{}", self.limits));
        if let Some(store) = &self.store {
            text = text.replace(&world.db.url, store);
        }
        (text, listen)
    }

    pub fn start(&self, world: &World) -> Service {
        let (text, listen) = self.text(world);
        let daemon = Daemon::run(world, &world.file(&text), |command| {
            command.env("FAILPOINTS", self.points);
        });
        Service { daemon, address: format!("http://{listen}") }
    }
}

pub struct Service {
    pub daemon: Daemon,
    address: String,
}

impl Service {
    pub fn start(world: &World) -> Self {
        Plan::default().start(world)
    }

    /// Status and body; 0 while nobody answers.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.address);
        let asked = tokio::task::spawn_blocking(move || {
            let agent = ureq::Agent::config_builder().http_status_as_error(false);
            let agent = agent.timeout_global(Some(Duration::from_secs(5))).build().new_agent();
            match agent.get(&url).call() {
                Ok(mut answer) => (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap()),
                Err(_) => (0, String::new()),
            }
        });
        asked.await.unwrap()
    }

    /// The sum of all series of a metric whose labels contain this text.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let of_it = |line: &&str| {
            line.strip_prefix("countersign_")
                .and_then(|line| line.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
        };
        text.lines().filter(of_it).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Waits until readiness is this status with this text.
    pub async fn says(&self, status: u16, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (now, body) = self.get("/readyz").await;
            if now == status && body.contains(text) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not {status} with {text:?} but {now}: {body}\n{}",
                self.daemon.last_words()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn end(self) {
        self.daemon.end();
    }
}

/// From the return of a service to the last outcome; a bound that is promised.
pub const RECOVERY: Duration = Duration::from_secs(15);

/// Waits until everything has its outcome again, and looks that it did not take too long.
pub async fn recovers(world: &World, business: &Business, after: &str) {
    let began = Instant::now();
    business.finished(world).await;
    let took = began.elapsed();
    println!("{:?}: {:.1} s after {after}", world.db.engine, took.as_secs_f64());
    assert!(took < RECOVERY, "{took:?} after {after}");
    business.holds(world).await;
}

/// After a server was away: what the test itself holds of its connections is useless.
pub async fn reconnect(world: &World) {
    for _ in 0..8 {
        let _ = world.db.store.ping().await;
    }
    crate::wait::until("the database", || async { world.db.store.ping().await.ok() }).await;
}
