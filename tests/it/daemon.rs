//! `countersign run` as a child of the test; the broker stays with the test.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;
use crate::world::{World, free_port};

/// The program under test, without the settings of whoever runs the tests.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.env_remove("RUST_LOG").env_remove("FAILPOINTS");
    command
}

pub struct Daemon(pub Child);

impl Daemon {
    pub fn start(world: &World, rest: &str) -> Self {
        Self::start_with(world, rest, |_| {})
    }

    /// `change` may set its environment and where its log goes.
    pub fn start_with(world: &World, rest: &str, change: impl FnOnce(&mut Command)) -> Self {
        let config = world.config(&format!("[http]\nlisten = \"127.0.0.1:{}\"\n{rest}", free_port()));
        // Small enough for the drain time, which the short session of these tests leaves at 2.4 s.
        let file = world.file(&config.replace("[store]\n", "[store]\nbatch = 100\n"));
        let mut command = program();
        command.args(["run", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(log(&world
            .db
            .dir
            .path()
            .join("log")));
        change(&mut command);
        Self(command.spawn().unwrap())
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.wait().unwrap()
    }

    /// Its exit code; None if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        self.ended().code()
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        assert_eq!(self.wait(), None, "it was killed, it did not end by itself");
    }
}

fn log(path: &Path) -> std::fs::File {
    std::fs::File::options().create(true).append(true).open(path).unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
