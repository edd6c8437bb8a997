//! `countersign run` as a child of the test; the broker stays with the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_port;
use crate::wait::PATIENCE;
use crate::world::World;

/// The program under test, without the settings of whoever runs the tests.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.env_remove("RUST_LOG").env_remove("FAILPOINTS");
    command
}

/// Records of a batch of [`Daemon::start`].
pub const BATCH: i64 = 100;

/// Whatever happened to it.
const MOST_MEMORY: u64 = 200 << 20;

pub struct Daemon {
    pub child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn start(world: &World, rest: &str) -> Self {
        Self::start_with(world, rest, |_| {})
    }

    /// `change` may set its environment and where its log goes.
    pub fn start_with(world: &World, rest: &str, change: impl FnOnce(&mut Command)) -> Self {
        let config = world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{rest}", free_port()));
        // Small enough for the drain time, which the short session of these tests leaves at 2.4 s.
        let file = world.file(&config.replace("[store]\n", &format!("[store]\nbatch = {BATCH}\n")));
        Self::run(world, &file, change)
    }

    pub fn run(world: &World, file: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = program();
        let log = world.db.dir.path().join("log");
        let appended = File::options().create(true).append(true).open(&log).unwrap();
        command.args(["run", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(appended);
        change(&mut command);
        Self { child: command.spawn().unwrap(), log }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap()
    }

    /// Its exit code; None if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        self.ended().code()
    }

    /// Asks it to end and looks that it does so in order, and that it never took more memory than it may.
    pub fn end(mut self) {
        let peak = self.peak_memory();
        assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);
        self.terminate();
        let code = self.wait();
        assert_eq!(code, Some(0), "{}", self.last_words());
    }

    /// The most bytes it had resident.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// The end of its log, which it may share with others.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.wait(), None, "it was killed, it did not end by itself");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's last words:\n{}", self.last_words());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
