//! Database servers that die, stop, fill up, or are busy with others, under a daemon at work.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::business::Business;
use crate::database::Engine;
use crate::rivals::{Rival, crowd};
use crate::server::{SERVERS, Server, with_servers};
use crate::service::{Plan, RECOVERY, Service, reconnect, recovers};
use crate::wait::{PATIENCE, until};
use crate::world::{World, on};
use crate::zombie::asleep;

/// Printed, so that a failure can be had again: `SEED=n`.
pub fn seeded() -> StdRng {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    StdRng::seed_from_u64(seed)
}

#[test]
fn a_server_killed_again_and_again_under_commits_loses_and_doubles_nothing() {
    with_servers(&SERVERS, |world, mut server, _way| async move {
        let mut rng = seeded();
        let mut business = Business::begin(&world).await;
        let service = Plan { limits: "batch = 5\ntransaction_timeout = \"2s\"\n", ..Plan::default() }.start(&world);
        business.send(&world, 20).await;
        business.finished(&world).await;
        for round in 0..6 {
            business.send(&world, 150).await;
            tokio::time::sleep(Duration::from_millis(rng.random_range(5..250))).await;
            server.kill();
            server.up();
            reconnect(&world).await;
            recovers(&world, &business, &format!("death {round}")).await;
        }
        business.proves_right(&world).await;
        service.end();
    });
}

#[test]
fn a_commit_in_doubt_when_the_server_died_is_looked_up() {
    with_servers(&SERVERS, |world, mut server, _way| async move {
        let mut business = Business::begin(&world).await;
        // Not done: the server dies right before it is asked.
        for commits in [1, 4] {
            let points = format!("before-commit={commits}*off->1*return(stop)");
            let service = Plan { points: &points, ..Plan::default() }.start(&world);
            business.send(&world, 120).await;
            asleep(&service.daemon).await;
            server.kill();
            server.up();
            service.daemon.signal("CONT");
            reconnect(&world).await;
            recovers(&world, &business, "a death before the commit").await;
            service.end();
        }
        // Done: the server dies with its answer.
        let answers = crate::proxy::Proxy::before(server.host()).await;
        let store = Some(answers.instead_of(&world.db.url));
        let repeats = business.repeats;
        let service = Plan { store, ..Plan::default() }.start(&world);
        business.send(&world, 20).await;
        business.finished(&world).await;
        for death in 1..=2 {
            answers.rob_and_hold(world.db.engine.commit());
            business.send(&world, 60).await;
            answers.until_robbed(death).await;
            server.kill();
            server.up();
            reconnect(&world).await;
            recovers(&world, &business, "a death after the commit").await;
        }
        // What was looked up counts as applied, and was not tried again.
        let duplicates = service.metric("records_total", "duplicate").await;
        assert_eq!(duplicates, (business.repeats - repeats) as f64);
        business.proves_right(&world).await;
        service.end();
    });
}

#[test]
fn a_server_that_refuses_for_a_while_is_waited_for_and_nothing_is_parked_for_it() {
    with_servers(&SERVERS, |world, mut server, _way| async move {
        server.stop();
        let few = if world.db.engine == Engine::Postgres {
            ["-c", "max_connections=25"]
        } else {
            ["--max-connections=25"; 2]
        };
        server.options(&few);
        server.up();
        reconnect(&world).await;
        let mut business = Business::begin(&world).await;
        let service = Service::start(&world);
        business.send(&world, 50).await;
        business.finished(&world).await;
        restarted(&world, &mut server, &mut business).await;
        read_only(&world, &server, &service, &mut business).await;
        without_connections(&world, &server, &service, &mut business).await;
        held_up(&world, &server, &service, &mut business).await;
        in_deadlock(&world, &server, &service, &mut business).await;
        serializable(&world, &server, &mut business).await;
        business.proves_right(&world).await;
        service.says(200, "").await;
        service.end();
    });
}

async fn restarted(world: &World, server: &mut Server, business: &mut Business) {
    for _ in 0..2 {
        business.send(world, 120).await;
        server.stop();
        server.up();
        reconnect(world).await;
        recovers(world, business, "a restart in order").await;
    }
}

async fn read_only(world: &World, server: &Server, service: &Service, business: &mut Business) {
    let set = async |on: bool| match world.db.engine {
        Engine::Postgres => {
            server.admin(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}")).await;
            let admin = server.open_admin();
            admin.read("SELECT pg_reload_conf()", Vec::new()).await.unwrap();
            admin.close().await;
        }
        _ => server.admin(&format!("SET GLOBAL read_only = {on}")).await,
    };
    set(true).await;
    let before = service.metric("retries_total", "transient").await;
    business.send(world, 60).await;
    until("several tries", || async {
        (service.metric("retries_total", "transient").await >= before + 4.0).then_some(())
    })
    .await;
    service.says(503, "retrying").await;
    business.holds(world).await;
    set(false).await;
    recovers(world, business, "read-only").await;
}

async fn without_connections(world: &World, server: &Server, service: &Service, business: &mut Business) {
    let rivals = crowd(world.db.engine, &server.admin_url()).await;
    assert!(rivals.len() >= 20, "{}", rivals.len());
    business.send(world, 60).await;
    service.says(503, "").await;
    for rival in rivals {
        rival.leave().await;
    }
    reconnect(world).await;
    recovers(world, business, "no connections").await;
}

/// Longer than the limit of the daemon's own patience with a lock.
async fn held_up(world: &World, server: &Server, service: &Service, business: &mut Business) {
    let mut rival = Rival::enter(world.db.engine, &server.database(world)).await.unwrap();
    rival.run("BEGIN").await.unwrap();
    rival.run("UPDATE accounts SET balance = balance - 0 WHERE id = 'bob'").await.unwrap();
    rival.run("SELECT * FROM accounts WHERE id = 'bob' FOR UPDATE").await.unwrap();
    let before = service.metric("retries_total", "transient").await;
    business.send(world, 60).await;
    until("lock time-outs", || async {
        (service.metric("retries_total", "transient").await >= before + 2.0).then_some(())
    })
    .await;
    business.holds(world).await;
    rival.run("ROLLBACK").await.unwrap();
    rival.leave().await;
    recovers(world, business, "a row that was held").await;
}

async fn in_deadlock(world: &World, server: &Server, service: &Service, business: &mut Business) {
    let mut rival = Rival::enter(world.db.engine, &server.database(world)).await.unwrap();
    let before = service.metric("retries_total", "transient").await;
    business.send(world, 400).await;
    // The daemon takes them the other way round.
    let locks =
        ["SELECT * FROM accounts WHERE id = 'bob' FOR UPDATE", "SELECT * FROM countersign_lanes ORDER BY 3 FOR UPDATE"];
    let refused = rival.insist(Duration::from_secs(3), "BEGIN", &locks).await;
    let retried = service.metric("retries_total", "transient").await - before;
    assert!(refused as f64 + retried > 0.0, "there was no deadlock");
    println!("{:?}: deadlocks: {refused} of the rival, {retried} tries of the daemon", world.db.engine);
    rival.leave().await;
    recovers(world, business, "deadlocks").await;
}

/// The daemon's own transactions say READ COMMITTED; single statements outside of them go by the server's setting.
async fn serializable(world: &World, server: &Server, business: &mut Business) {
    let (begin, out) = match world.db.engine {
        Engine::Postgres => {
            let database = world.db.url.rsplit('/').next().unwrap();
            server
                .admin(&format!("ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"))
                .await;
            (
                "BEGIN ISOLATION LEVEL SERIALIZABLE",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'",
            )
        }
        _ => {
            server.admin("SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE").await;
            ("BEGIN", "KILL USER app")
        }
    };
    let mut rival = Rival::enter(world.db.engine, &server.database(world)).await.unwrap();
    // The setting is for new sessions.
    rival.run(out).await.unwrap();
    reconnect(world).await;
    business.send(world, 300).await;
    let writes = [
        "SELECT SUM(balance), (SELECT COUNT(*) FROM ledger) FROM accounts",
        "UPDATE accounts SET balance = balance + 0 WHERE id = 'bob'",
        "UPDATE accounts SET balance = balance + 0 WHERE id = 'alice'",
    ];
    let refused = rival.insist(Duration::from_secs(3), begin, &writes).await;
    println!("{:?}: {refused} serialization failures of the rival", world.db.engine);
    rival.leave().await;
    recovers(world, business, "a serializable rival").await;
}

#[test]
fn a_full_disk_under_the_database_is_waited_for() {
    // No world's own server: its file system is small.
    on(&SERVERS, |world| async move {
        let engine = world.db.engine;
        let mut server = Server::start_within(engine, 200);
        if engine == Engine::MariaDb {
            // It waits a minute at a time for room for its log.
            server.stop();
            server.options(&["--skip-log-bin"]);
            server.up();
        }
        let full = World::on_server(&server.url(), engine).await;
        let mut business = Business::begin(&full).await;
        let service = Service::start(&full);
        business.send(&full, 50).await;
        business.finished(&full).await;
        for round in 0..2 {
            let ballast = server.data().join("ballast");
            let mut file = File::create(&ballast).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
            drop(file);
            let before = service.metric("retries_total", "transient").await;
            let mut fed = 0;
            while service.metric("retries_total", "transient").await < before + 3.0 {
                assert!(fed < 60, "the disk does not get full");
                // Pages that are there take some rows yet.
                if fed * 200 < business.messages() + 4000 {
                    business.send(&full, 200).await;
                }
                fed += 1;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            std::fs::remove_file(&ballast).unwrap();
            // It may die of it a moment later, too.
            let room = Instant::now();
            while room.elapsed() < PATIENCE {
                if !server.lives() {
                    println!("{engine:?} died of it");
                    server.up();
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                if full.db.store.ping().await.is_ok() {
                    break;
                }
            }
            reconnect(&full).await;
            // The promise is about work that goes on: how much of it has piled up is the test's own doing.
            let began = Instant::now();
            business.goes_on(&full).await;
            println!("{engine:?}: {:.1} s after full disk {round}", began.elapsed().as_secs_f64());
            assert!(began.elapsed() < RECOVERY, "{:?}", began.elapsed());
            business.finished(&full).await;
            business.holds(&full).await;
        }
        business.proves_right(&full).await;
        service.end();
        drop(server);
    });
}
