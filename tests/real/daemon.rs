//! The built binary: its configuration, its life and death, and what its metrics and commands say.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::ports::free_port;
use crate::world::{env, holds, run, until};

pub const BINARY: &str = env!("CARGO_BIN_EXE_countersign");

/// What goes into the configuration file.
#[derive(Clone)]
pub struct Config {
    pub name: String,
    pub topics: Vec<String>,
    /// `[kafka] start`
    pub start: &'static str,
    pub store: String,
    pub retention: String,
    pub gate: String,
    pub receipts: String,
    /// `[kafka.options]`
    pub options: Vec<(&'static str, String)>,
    pub routes: String,
    pub folder: PathBuf,
}

impl Config {
    pub fn option(mut self, name: &'static str, value: &str) -> Self {
        self.options.push((name, value.to_owned()));
        self
    }

    /// The file, with an address of its own for the HTTP side.
    fn write(&self) -> (PathBuf, String) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}-{number}.toml", self.name));
        let listen = format!("127.0.0.1:{}", free_port());
        let Self { name, topics, start, store, retention, gate, receipts, options, routes, folder: _ } = self;
        let options: String = options.iter().map(|(key, value)| format!("\"{key}\" = \"{value}\"\n")).collect();
        let brokers = env("COUNTERSIGN_KAFKA");
        let text = format!(
            r#"
[pipeline]
name = "{name}"
[kafka]
brokers = "{brokers}"
topics = {topics:?}
start = "{start}"
[kafka.options]
{options}
[store]
url = "{store}"
retention = "{retention}"
[gate]
url = "{gate}"
[receipts]
topic = "{receipts}"
[http]
listen = "{listen}"
{routes}"#
        );
        fs::write(&path, text).unwrap();
        (path, format!("http://{listen}"))
    }

    /// Runs a command of the binary with this configuration; it must succeed.
    pub fn command(&self, arguments: &[&str]) -> String {
        let (path, _) = self.write();
        run(Command::new(BINARY).args(arguments).arg("-c").arg(path))
    }

    /// The same, for its exit code and what it printed on standard output.
    pub fn outcome(&self, arguments: &[&str]) -> (i32, String) {
        let (path, _) = self.write();
        let done = Command::new(BINARY).args(arguments).arg("-c").arg(path).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap())
    }

    pub fn migrate(&self) {
        self.command(&["migrate"]);
    }
}

/// A running daemon; killed when the test ends.
pub struct Daemon {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Daemon {
    pub fn start(config: &Config) -> Self {
        let (path, url) = config.write();
        let log = path.with_extension("log");
        let out = File::create(&log).unwrap();
        let child = Command::new(BINARY).arg("run").arg("-c").arg(&path).stdout(Stdio::null()).stderr(out).spawn();
        Self { child: child.unwrap(), url, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nothing is finished and nothing is said to anyone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]));
    }

    /// Asks it to stop; it has this long.
    pub fn terminate(mut self, seconds: u64) -> (ExitStatus, Duration) {
        let asked = Instant::now();
        self.signal("TERM");
        (self.until_ended(seconds), asked.elapsed())
    }

    /// Waits until it ends by itself.
    pub fn until_ended(&mut self, seconds: u64) -> ExitStatus {
        until(seconds, "the daemon to end", || {
            self.child.try_wait().unwrap().ok_or_else(|| format!("still running\n{}", self.last_words()))
        })
    }

    fn get(&self, path: &str) -> Option<String> {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        agent.get(format!("{}{path}", self.url)).call().ok()?.body_mut().read_to_string().ok()
    }

    /// Metrics of this name whose labels include these, added up. None while nothing answers.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let text = self.get("/metrics")?;
        let wanted = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
        };
        let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
        Some(text.lines().filter(wanted).map(value).sum())
    }

    /// Records of this process by outcome; those that never happened are left out.
    pub fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        let outcomes = ["applied", "duplicate", "skipped", "rejected", "parked", "conflict"];
        let counted = outcomes.into_iter().filter_map(|outcome| {
            let count = self.metric("countersign_records_total", &[("outcome", outcome)])? as u64;
            (count > 0).then_some((outcome, count))
        });
        counted.collect()
    }

    /// Changes of a key that was given up, where the row's new key came first from another partition.
    pub fn stale(&self) -> u64 {
        self.metric("countersign_skipped_total", &[("reason", "stale")]).unwrap_or_default() as u64
    }

    pub fn consumed(&self) -> u64 {
        self.metric("countersign_records_total", &[]).unwrap_or(0.0) as u64
    }

    /// Partitions that it works on now, as its readiness tells.
    pub fn lanes(&self) -> u64 {
        let report = self.get("/readyz").and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
        report.and_then(|report| report["pipelines"][0]["lanes"].as_u64()).unwrap_or(0)
    }

    /// Waits until it has given this many records an outcome, and sees that it is alive.
    pub fn until_consumed(&mut self, seconds: u64, records: u64) {
        until(seconds, "records to be consumed", || {
            self.assert_alive();
            let outcomes = self.outcomes();
            let consumed: u64 = outcomes.values().sum();
            holds(consumed >= records, || format!("{consumed} of {records}: {outcomes:?}"))
        });
    }

    pub fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.last_words());
    }

    /// Waits for the gauge, which follows some seconds behind.
    pub fn until_no_lag(&self, seconds: u64) {
        until(seconds, "the lag to be 0", || {
            let lag = self.metric("countersign_lag_records", &[]);
            holds(lag == Some(0.0), || format!("{lag:?}"))
        });
    }

    /// What it warned of: nothing, where nothing went wrong.
    pub fn warnings(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap();
        let lines = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        lines.map(str::to_owned).collect()
    }

    fn last_words(&self) -> String {
        last_lines(&self.log, 40)
    }
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the daemon's last words:\n{}", self.last_words());
        }
    }
}
