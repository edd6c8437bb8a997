//! A pooler that gives out server connections per transaction stands between: pgbouncer, with two for all.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::business::Business;
use crate::database::Engine;
use crate::installed::{as_user, give};
use crate::ports::free_port;
use crate::server::{Server, with_servers};
use crate::service::{Plan, Service};
use crate::wait::{PATIENCE, until};
use crate::world::World;

struct Pooler {
    port: u16,
    dir: TempDir,
    child: Child,
}

impl Pooler {
    fn before(server: &Server) -> Self {
        let (dir, port) = (TempDir::new().unwrap(), free_port());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("ini");
        // auth_type=any takes everybody and needs a user to be named.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=app\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n\
             ignore_startup_parameters = extra_float_digits\nlogfile = {}\n",
            server.port,
            dir.path().join("log").display()
        );
        fs::write(&file, text).unwrap();
        give(Engine::Postgres, dir.path());
        let child = as_user(Engine::Postgres, Path::new("/usr/sbin/pgbouncer"))
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "pgbouncer does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { port, dir, child }
    }

    /// The world's database by way of it.
    fn url(&self, world: &World) -> String {
        let mut url = url::Url::parse(&world.db.url).unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.to_string()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two daemons share two server connections.
fn pair(world: &World, pooler: &Pooler, pooled: bool) -> [Service; 2] {
    let limits = format!("pooler = {pooled}\nbatch = 20\n");
    [(); 2].map(|()| Plan { store: Some(pooler.url(world)), limits: &limits, ..Plan::default() }.start(world))
}

#[test]
fn behind_a_transaction_pooler_the_switch_makes_it_work_and_without_it_the_remedy_is_named() {
    with_servers(&[Engine::Postgres], |world, server, _way| async move {
        let mut business = Business::begin(&world).await;
        let pooler = Pooler::before(&server);
        let services = pair(&world, &pooler, true);
        business.send(&world, 2000).await;
        business.finished(&world).await;
        for service in services {
            let words = service.daemon.last_words();
            assert!(!words.contains("42P05") && !words.contains("26000"), "{words}\n{}", pooler.log());
            service.end();
        }
        business.holds(&world).await;

        // Names of prepared statements meet, or are gone: trouble of the set-up, and never of a message.
        let services = pair(&world, &pooler, false);
        business.send(&world, 600).await;
        until("the remedy", || async {
            for service in &services {
                if service.get("/readyz").await.1.contains("pooler = true") {
                    return Some(());
                }
            }
            None
        })
        .await;
        business.holds(&world).await;
        for mut service in services {
            service.daemon.kill();
        }
        let services = pair(&world, &pooler, true);
        business.proves_right(&world).await;
        services.into_iter().for_each(Service::end);
    });
}
