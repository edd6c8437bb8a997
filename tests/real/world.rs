//! A test's own names, and the end of everything that bears them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use regex::Regex;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::connect;
use crate::daemon::Config;
use crate::database::{Database, Kind, admin};
use crate::kafka;
use crate::schemas;

/// The stack's addresses: `tests/stack/env.sh` with what the environment overrides.
pub fn env(name: &str) -> &'static str {
    static ENV: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
        let text = run(Command::new("bash").args(["-c", ". tests/stack/env.sh && env"]));
        text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    });
    ENV.get(name).unwrap_or_else(|| panic!("tests/stack/env.sh sets no {name}"))
}

/// The tests are plain functions; what is asynchronous runs here.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(future)
}

/// Runs a command in the repository's folder and returns what it printed. Anything but success is a failure.
pub fn run(command: &mut Command) -> String {
    let done = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}: {}\n{text}{}", done.status, String::from_utf8_lossy(&done.stderr));
    text
}

/// Looks until there is an answer. The error says how things stand, and is what the failure shows at the deadline.
pub fn until<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(state) => assert!(Instant::now() < deadline, "gave up after {seconds} s waiting for {what}: {state}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `Ok` if it holds, for `until`.
pub fn holds(condition: bool, state: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(state()) }
}

/// One test: its name stands in the name of everything it makes, and when it ends all of that goes.
pub struct World {
    /// `real_<test>_<process>`: database, pipeline, group, prefix of topics.
    pub name: String,
    scratch: TempDir,
    connectors: RefCell<Vec<String>>,
}

impl World {
    pub fn new(test: &str) -> Self {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        Self {
            name: format!("real_{test}_{}", std::process::id()),
            scratch: TempDir::new().unwrap(),
            connectors: RefCell::default(),
        }
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    pub fn database(&self, kind: Kind, role: &str) -> Database {
        Database::create(kind, &format!("{}_{role}", self.name), self.scratch())
    }

    /// Registers a file of `debezium/` with these settings changed. It does not stream yet when this returns.
    pub fn connector(&self, file: &str, settings: &[(&str, &str)]) -> String {
        self.connector_for(file, "", settings)
    }

    /// The same; `role` tells several connectors of one file apart.
    pub fn connector_for(&self, file: &str, role: &str, settings: &[(&str, &str)]) -> String {
        let name = format!("{}_{file}{role}", self.name);
        self.connectors.borrow_mut().push(name.clone());
        connect::register(file, &name, settings);
        name
    }

    /// A pipeline of this test's name, with the receipts in a topic of its own and Redis as its gate.
    pub fn pipeline(&self, store: &Database, topics: &[&str], routes: &str) -> Config {
        Config {
            name: self.name.clone(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            start: "earliest",
            store: store.url(),
            retention: "forever".to_owned(),
            gate: env("COUNTERSIGN_REDIS_URL").to_owned(),
            receipts: self.topic("receipts"),
            options: Vec::new(),
            routes: routes.to_owned(),
            folder: self.scratch().to_owned(),
        }
    }
}

impl Drop for World {
    /// In this order: a slot can be dropped once its connector is gone, a database once its slot is.
    fn drop(&mut self) {
        let name = self.name.clone();
        let connectors = self.connectors.take();
        let cleaned = std::panic::catch_unwind(move || {
            connectors.iter().for_each(|connector| connect::delete(connector));
            clean(&name);
        });
        // A second panic would abort the run and hide the first.
        assert!(cleaned.is_ok() || std::thread::panicking(), "the test's leavings could not be removed");
    }
}

/// Removes what runs left that did not come to their end.
fn sweep() {
    static OURS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"real_[a-z_]+_([0-9]+)").unwrap());
    let mut names = connect::list();
    names.extend(kafka::topics());
    names.extend(schemas::list());
    for kind in [Kind::Postgres, Kind::MariaDb] {
        names.extend(Database::list(kind));
    }
    let gone = |process: &str| !Path::new("/proc").join(process).exists();
    let mut stale: Vec<&str> = names
        .iter()
        .filter_map(|name| OURS.captures(name))
        .filter(|found| gone(&found[1]))
        .map(|found| found.get(0).unwrap().as_str())
        .collect();
    stale.sort_unstable();
    stale.dedup();
    for name in stale {
        names.iter().filter(|other| connect::list().contains(other) && other.starts_with(name)).for_each(|connector| {
            connect::delete(connector);
        });
        clean(name);
    }
}

fn clean(name: &str) {
    let postgres = admin(Kind::Postgres);
    let slots = format!("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{name}%'");
    for slot in postgres.texts(&slots) {
        // The server may notice only now that its client has left.
        until(20, "the replication slot to be free", || {
            postgres.try_run(&format!("SELECT pg_drop_replication_slot('{slot}')")).map(drop)
        });
    }
    for kind in [Kind::Postgres, Kind::MariaDb] {
        for database in Database::list(kind).iter().filter(|database| database.starts_with(name)) {
            Database::remove(kind, database);
        }
    }
    kafka::delete(name);
    schemas::delete(name);
    let mut redis = redis::Client::open(env("COUNTERSIGN_REDIS_URL")).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("countersign:{name}*")).query(&mut redis).unwrap();
    for some in keys.chunks(1000) {
        redis::cmd("UNLINK").arg(some).exec(&mut redis).unwrap();
    }
}
