//! What is installed here, as whom it runs, and what has become of it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::database::Engine;

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn user(engine: Engine) -> &'static str {
    if engine == Engine::Postgres { "postgres" } else { "mysql" }
}

/// PostgreSQL refuses root; started by root, the servers run as the users that their packages made.
pub fn as_user(engine: Engine, program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let user = user(engine);
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--init-groups"]).arg(program);
    command
}

pub fn give(engine: Engine, path: &Path) {
    if is_root() {
        assert!(Command::new("chown").args(["-R", user(engine)]).arg(path).status().unwrap().success());
    }
}

pub fn binary(engine: Engine, name: &str) -> PathBuf {
    let name = if name == "server" && engine == Engine::Postgres { "postgres" } else { name };
    if engine != Engine::Postgres {
        let found = ["/usr/sbin/mariadbd", "/usr/libexec/mariadbd", "/usr/bin/mariadbd"];
        let found = found.into_iter().map(PathBuf::from).find(|path| path.exists());
        return found.expect("mariadbd is installed, as for the test stack");
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed, as for the test stack");
    let newest = versions.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    PathBuf::from(format!("/usr/lib/postgresql/{}/bin/{name}", newest.unwrap()))
}

pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} to {}", from.display(), to.display());
}

/// Where tools find the server.
pub fn tool(name: &str) -> Command {
    let postgres = name.starts_with("pg_");
    Command::new(if postgres { binary(Engine::Postgres, name) } else { PathBuf::from(name) })
}

pub fn signal(name: &str, ids: &[u32]) {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    // A child may have ended meanwhile.
    let _ = Command::new("kill").arg(format!("-{name}")).args(ids).stderr(Stdio::null()).status().unwrap();
}

/// State and parent of a process.
fn stat(id: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

pub fn runs(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

pub fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, its)| its == parent)).collect()
}
