//! A database server of one test's own, on a port and in a folder that go with it: to be killed, filled, and put back.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use countersign::store::Store;
use tempfile::TempDir;

use crate::database::{Engine, open};
use crate::installed::{as_user, binary, children, copy, give, is_root, runs, signal};
use crate::ports::free_port;
use crate::proxy::Proxy;
use crate::wait::PATIENCE;
use crate::world::{World, on_each};

/// Engines that have a server.
pub const SERVERS: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

/// Who may do everything, and who works: owner of its databases and nothing more.
const ADMIN: &str = "countersign";
const WORKER: &str = "app";

pub struct Server {
    pub engine: Engine,
    pub port: u16,
    dir: TempDir,
    child: Option<Child>,
    options: Vec<String>,
    number: u32,
    /// Bytes of the log before the last start.
    logged: usize,
}

/// Runs a property on each of these engines at once, each with a server and a world of its own. Test and daemon reach
/// the server by way of a proxy, so that another one can take its place.
pub fn with_servers<F, W>(engines: &[Engine], property: F)
where
    F: Fn(Rc<World>, Server, Rc<Proxy>) -> W + Sync,
    W: Future<Output = ()>,
{
    on_each(engines, |engine| alone(engine, &property));
}

fn alone<F, W>(engine: Engine, property: &F)
where
    F: Fn(Rc<World>, Server, Rc<Proxy>) -> W,
    W: Future<Output = ()>,
{
    let server = Server::start(engine);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let way = Rc::new(runtime.block_on(Proxy::before(server.host())));
    let world = runtime.block_on(World::on_server(&way.instead_of(&server.url()), engine));
    let test = property(Rc::new(world), server, Rc::clone(&way));
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
    if ended.is_err() {
        eprintln!("^ on {engine:?}");
    }
    runtime.shutdown_timeout(Duration::from_secs(2));
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
}

impl Server {
    pub fn start(engine: Engine) -> Self {
        let mut server = Self::folder(engine, None);
        copy(&template(engine), &server.data());
        server.up();
        server
    }

    /// Its data on a file system of so many megabytes of its own.
    pub fn start_within(engine: Engine, megabytes: u32) -> Self {
        let mut server = Self::folder(engine, Some(megabytes));
        copy(&template(engine).join("."), &server.data());
        server.up();
        server
    }

    fn folder(engine: Engine, megabytes: Option<u32>) -> Self {
        let dir = TempDir::new().unwrap();
        // The server's user passes through it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = Self { engine, port: free_port(), dir, child: None, options: Vec::new(), number: 1, logged: 0 };
        fs::create_dir(server.temporary()).unwrap();
        give(engine, &server.temporary());
        if let Some(megabytes) = megabytes {
            // Not under the log as well: it says that the server is about to die of it.
            fs::create_dir(server.data()).unwrap();
            let size = format!("size={megabytes}m");
            let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(server.data()).status();
            assert!(mounted.unwrap().success(), "a small file system can be mounted");
        }
        server
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// MariaDB that starts removes temporary tables of all others from a folder that they share, and those crash.
    fn temporary(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    fn url_of(&self, user: &str) -> String {
        let (scheme, database) = match self.engine {
            Engine::Postgres => ("postgres", "postgres"),
            Engine::MariaDb => ("mariadb", "mysql"),
            Engine::Sqlite => unreachable!("a file has no server"),
        };
        format!("{scheme}://{user}@{}/{database}", self.host())
    }

    /// For the daemon and the test's own tables.
    pub fn url(&self) -> String {
        self.url_of(WORKER)
    }

    /// One statement of somebody who may do everything.
    pub async fn admin(&self, sql: &str) {
        let store = self.open_admin();
        store.write(sql, Vec::new()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        store.close().await;
    }

    pub fn open_admin(&self) -> Store {
        open(&self.url_of(ADMIN))
    }

    /// Of somebody who may do everything.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN)
    }

    /// The same for a world's database, not by way of the proxy.
    pub fn database(&self, world: &World) -> String {
        let mut url = url::Url::parse(&self.admin_url()).unwrap();
        url.set_path(url::Url::parse(&world.db.url).unwrap().path());
        url.to_string()
    }

    /// MariaDB answers for seconds while it writes down of what it is dying.
    pub fn lives(&mut self) -> bool {
        let dying = self.whole_log()[self.logged..].contains("got signal");
        let lives = self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none() && !dying);
        if !lives {
            self.kill();
        }
        lives
    }

    /// Options for the next start.
    pub fn options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
    }

    pub fn up(&mut self) {
        self.logged = self.whole_log().len();
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = self.command();
        command.args(&self.options).stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        self.answers();
    }

    fn command(&self) -> Command {
        let (data, port, dir) = (self.data(), self.port, self.dir.path().display());
        let mut command = as_user(self.engine, &binary(self.engine, "server"));
        match self.engine {
            // What a killed process has written is the kernel's: only a machine that dies needs fsync.
            Engine::Postgres => command.arg("-D").arg(data).args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                &format!("port={port}"),
                "-c",
                "unix_socket_directories=",
                "-c",
                "fsync=off",
                "-c",
                "wal_level=replica",
                "-c",
                "shared_buffers=16MB",
                "-c",
                "restart_after_crash=off",
            ]),
            _ => command.arg("--no-defaults").arg(format!("--datadir={}", data.display())).args([
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--character-set-server=utf8mb4",
                "--innodb-flush-method=nosync",
                "--log-bin=binlog",
                "--binlog-format=ROW",
                &format!("--server-id={}", self.number),
                &format!("--port={port}"),
                &format!("--socket={dir}/data/sock"),
                &format!("--pid-file={dir}/data/pid"),
                &format!("--tmpdir={}", self.temporary().display()),
                MARIADB_LOG,
            ]),
        };
        command
    }

    fn answers(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "{:?} does not start: {}", self.engine, self.log());
            if self.greets() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asked without a runtime: the caller may be inside one.
    fn greets(&self) -> bool {
        let port = self.port.to_string();
        let mut command = match self.engine {
            Engine::Postgres => {
                let mut command = Command::new(binary(self.engine, "pg_isready"));
                command.args(["-q", "-h", "127.0.0.1", "-p", &port]);
                command
            }
            _ => {
                let mut command = Command::new("mariadb-admin");
                command.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", ADMIN, "ping"]);
                command
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn whole_log(&self) -> String {
        fs::read(self.dir.path().join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    pub fn log(&self) -> String {
        let log = self.whole_log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// SIGKILL for the server and all of its processes, in the middle of whatever they do.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let id = child.id();
        // So that it begins no new one meanwhile.
        signal("STOP", &[id]);
        let mut family = children(id);
        family.push(id);
        signal("KILL", &family);
        child.wait().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while family.iter().any(|id| runs(*id)) {
            assert!(Instant::now() < deadline, "killed processes are still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// An orderly end that does not wait for clients.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let how = if self.engine == Engine::Postgres { "INT" } else { "TERM" };
        signal(how, &[child.id()]);
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{:?} does not end: {}", self.engine, self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A copy of the data of a server that is down.
    pub fn back_up(&self) -> PathBuf {
        assert!(self.child.is_none(), "files of a server at work are no backup");
        let number = fs::read_dir(self.dir.path()).unwrap().count();
        let backup = self.dir.path().join(format!("backup-{number}"));
        copy(&self.data(), &backup);
        backup
    }

    /// Puts the copy back in the place of the data.
    pub fn restore(&self, backup: &Path) {
        assert!(self.child.is_none());
        fs::remove_dir_all(self.data()).unwrap();
        copy(backup, &self.data());
    }

    /// A second server that follows this one by way of `link`, begun with the data of this one.
    pub async fn replica(&mut self, link: u16) -> Self {
        self.stop();
        let mut replica = Self::folder(self.engine, None);
        copy(&self.data(), &replica.data());
        self.up();
        replica.number = self.number + 1;
        match self.engine {
            Engine::Postgres => {
                let file = replica.data().join("standby.signal");
                File::create(&file).unwrap();
                give(self.engine, &file);
                let primary =
                    format!("primary_conninfo=host=127.0.0.1 port={link} user={ADMIN} application_name=replica");
                replica.options(&["-c", &primary]);
                replica.up();
            }
            _ => {
                // Events that this server has written since the copy was made are after the start of its last file.
                let admin = self.open_admin();
                let status = admin.read("SHOW MASTER STATUS", Vec::new()).await.unwrap();
                let file = status[0].text(0).unwrap();
                admin.close().await;
                replica.up();
                let change = format!(
                    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={link}, MASTER_USER='{ADMIN}', \
                     MASTER_LOG_FILE='{file}', MASTER_LOG_POS=4, MASTER_CONNECT_RETRY=1"
                );
                replica.admin(&change).await;
                replica.admin("START SLAVE").await;
            }
        }
        replica
    }

    /// Makes a replica the master of its data, as late as it is.
    pub async fn promote(&mut self) {
        match self.engine {
            Engine::Postgres => {
                let admin = self.open_admin();
                admin.read("SELECT pg_promote(true, 30)", Vec::new()).await.unwrap();
                admin.close().await;
            }
            _ => {
                self.admin("STOP SLAVE").await;
                self.admin("RESET SLAVE ALL").await;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lives = self.lives();
            eprintln!("{:?}, alive: {lives}: {}", self.engine, self.log());
        }
        self.kill();
        // Fails where nothing is mounted.
        let _ = Command::new("umount").arg("-q").arg(self.data()).stderr(Stdio::null()).status();
    }
}

/// Small, for it is copied for each test.
const MARIADB_LOG: &str = "--innodb-log-file-size=16M";

/// The data of a new server, made once and kept beside the test programs.
fn template(engine: Engine) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{engine:?}-template-1"));
    if template.exists() {
        return template;
    }
    let mut server = Server::folder(engine, None);
    let data = server.data();
    let log = File::create(server.dir.path().join("made")).unwrap();
    if is_root() {
        fs::create_dir(&data).unwrap();
        give(engine, &data);
    }
    let mut make = match engine {
        Engine::Postgres => {
            let mut make = as_user(engine, &binary(engine, "initdb"));
            make.arg("-D").arg(&data).args(["-U", ADMIN, "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"]);
            make
        }
        _ => {
            let mut make = as_user(engine, Path::new("mariadb-install-db"));
            make.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
            make.args(["--auth-root-authentication-method=normal", "--skip-test-db", MARIADB_LOG]);
            make.env("TMPDIR", server.temporary());
            make
        }
    };
    let made = make.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
    let said = || fs::read_to_string(server.dir.path().join("made")).unwrap();
    assert!(made.success(), "{engine:?}: {}", said());
    let users = server.dir.path().join("users.sql");
    match engine {
        Engine::Postgres => {
            server.up();
            let sql = format!("CREATE ROLE {WORKER} LOGIN CREATEDB");
            let made = Command::new("psql").args([&server.url_of(ADMIN), "-Xqc", &sql]).status().unwrap();
            assert!(made.success());
        }
        _ => {
            // The anonymous users of a fresh MariaDB would shadow the others.
            let sql = format!(
                "DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n\
                 CREATE USER '{ADMIN}'@'%';\nGRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'%' WITH GRANT OPTION;\n\
                 CREATE USER '{WORKER}'@'%';\nGRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, \
                 REFERENCES, LOCK TABLES ON *.* TO '{WORKER}'@'%';\n"
            );
            fs::write(&users, sql).unwrap();
            server.options(&[&format!("--init-file={}", users.display())]);
            server.up();
        }
    }
    server.stop();
    // Whole or not at all, whoever else makes one.
    let unfinished = template.with_extension(free_port().to_string());
    copy(&data, &unfinished);
    if fs::rename(&unfinished, &template).is_err() {
        fs::remove_dir_all(&unfinished).unwrap();
    }
    template
}
