//! Databases that go back in time: a backup put back, a late replica promoted, everything emptied. Redis keeps the marks
//! of the time that was lost.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use countersign::store::sqlite_path;

use crate::broker::Rec;
use crate::business::{Business, PARTITIONS};
use crate::daemon::program;
use crate::database::{Engine, open};
use crate::installed::tool;
use crate::payments::{CHARGE, TABLES, payment};
use crate::points::redis;
use crate::proxy::Proxy;
use crate::server::{SERVERS, Server, with_servers};
use crate::service::{Plan, Service, reconnect, recovers};
use crate::wait::{stays, until};
use crate::world::{World, on};

fn service(world: &World, gate: &str) -> Service {
    Plan { gate, ..Plan::default() }.start(world)
}

async fn alarms(service: &Service) -> f64 {
    service.metric("offset_events_total", "store_went_back").await
}

/// `countersign migrate` with these arguments.
fn migrate(world: &World, arguments: &[&str]) {
    let file = world.file(&world.config(CHARGE));
    let done = program().args(["migrate", "-c", file.to_str().unwrap()]).args(arguments).output().unwrap();
    succeeded(&done);
}

fn succeeded(done: &Output) {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Puts the files of another hour in the place of the data.
async fn put_back(world: &World, server: &mut Server, backup: &Path) {
    server.stop();
    server.restore(backup);
    server.up();
    reconnect(world).await;
}

async fn back_up(world: &World, server: &mut Server) -> PathBuf {
    server.stop();
    let backup = server.back_up();
    server.up();
    reconnect(world).await;
    backup
}

#[test]
fn a_backup_that_is_put_back_is_noticed_and_brought_up_to_date() {
    with_servers(&SERVERS, |world, mut server, _way| async move {
        let gate = redis();
        let mut business = Business::begin(&world).await;
        let first = service(&world, &gate);
        business.send(&world, 100).await;
        business.finished(&world).await;
        let old = back_up(&world, &mut server).await;
        business.send(&world, 100).await;
        business.repeat(&world, 0..30).await;
        business.finished(&world).await;
        first.end();

        // While nobody is there.
        business.went_back = true;
        put_back(&world, &mut server, &old).await;
        business.send(&world, 30).await;
        let second = service(&world, &gate);
        recovers(&world, &business, "a restore while nobody was there").await;
        assert!((1.0..=f64::from(PARTITIONS)).contains(&alarms(&second).await));
        assert!(second.daemon.last_words().contains("the database went back in time"));

        // Under a daemon at work, and nothing new comes that would show it.
        let newer = back_up(&world, &mut server).await;
        business.send(&world, 100).await;
        business.finished(&world).await;
        let before = alarms(&second).await;
        put_back(&world, &mut server, &newer).await;
        recovers(&world, &business, "a restore under a quiet daemon").await;
        assert!(alarms(&second).await > before);
        business.send(&world, 30).await;
        business.repeat(&world, 100..160).await;
        business.finished(&world).await;
        second.end();

        // With the group's offsets set back by hand, to the rows and to the beginning.
        for to_the_beginning in [false, true] {
            let newer = back_up(&world, &mut server).await;
            let third = service(&world, &gate);
            business.send(&world, 60).await;
            business.finished(&world).await;
            third.end();
            put_back(&world, &mut server, &newer).await;
            business.set_offsets_back(&world, to_the_beginning).await;
            let third = service(&world, &gate);
            recovers(&world, &business, "a restore with its offsets").await;
            assert_eq!(alarms(&third).await, 0.0, "the operator knew");
            business.repeat(&world, 200..260).await;
            business.finished(&world).await;
            third.end();
        }
        business.proves_right(&world).await;

        // The first backup once more: it knows nothing of the epoch with which the offsets were committed since.
        put_back(&world, &mut server, &old).await;
        let fourth = service(&world, &gate);
        fourth.says(503, "another store").await;
        let rows = world.db.count("FROM countersign_inbox").await;
        stays(Duration::from_secs(1), "untouched", || async { world.db.count("FROM countersign_inbox").await == rows })
            .await;
        migrate(&world, &["--restored"]);
        recovers(&world, &business, "a restore that somebody answered for").await;
        fourth.says(200, "").await;
        business.proves_right(&world).await;
        fourth.end();
    });
}

#[test]
fn a_late_replica_that_is_promoted_under_a_daemon_is_brought_up_to_date() {
    with_servers(&SERVERS, |world, mut server, way| async move {
        let gate = redis();
        let mut business = Business::begin(&world).await;
        let link = Proxy::before(server.host()).await;
        let mut replica = server.replica(link.port).await;
        reconnect(&world).await;
        let running = service(&world, &gate);
        business.send(&world, 100).await;
        business.finished(&world).await;
        // The replica has a part of it, at a moment of its own.
        let copy = open(&replica.database(&world));
        until("the replica to follow", || async {
            let rows = copy.read("SELECT COUNT(*) FROM countersign_inbox", Vec::new()).await;
            rows.is_ok_and(|rows| rows[0].int(0).unwrap() >= 100).then_some(())
        })
        .await;
        business.send(&world, 80).await;
        link.cut(true);
        business.send(&world, 80).await;
        business.finished(&world).await;
        let late = copy.read("SELECT COUNT(*) FROM countersign_inbox", Vec::new()).await.unwrap()[0].int(0).unwrap();
        assert!(late < 260, "it is not late");
        copy.close().await;

        server.kill();
        replica.promote().await;
        way.lead_to(replica.host()).await;
        reconnect(&world).await;
        business.went_back = true;
        recovers(&world, &business, "a failover").await;
        assert!(alarms(&running).await >= 1.0);
        business.send(&world, 30).await;
        business.repeat(&world, 90..250).await;
        business.proves_right(&world).await;
        running.end();
    });
}

#[test]
fn an_emptied_database_under_the_same_group_is_said_and_filled_again_at_a_word() {
    on(&SERVERS, |world| async move {
        let gate = redis();
        let mut business = Business::begin(&world).await;
        let running = service(&world, &gate);
        business.send(&world, 150).await;
        business.finished(&world).await;
        let mut tables = crate::migrating::tables(&world.db).await;
        tables.extend(["ledger".to_owned(), "accounts".to_owned()]);
        // What refers to another table stands behind it.
        for table in tables.iter().rev() {
            world.db.run(&format!("DROP TABLE {table};")).await;
        }
        migrate(&world, &[]);
        world.db.run(TABLES).await;
        running.says(503, "another store").await;
        business.send(&world, 30).await;
        stays(Duration::from_secs(1), "empty", || async { world.db.count("FROM countersign_inbox").await == 0 }).await;
        migrate(&world, &["--restored"]);
        business.went_back = true;
        recovers(&world, &business, "an emptied database").await;
        assert!(alarms(&running).await >= 1.0);
        business.proves_right(&world).await;
        running.end();
    });
}

/// The tools of the database itself. A dump is restored at once or, where that cannot be had, while nobody is there.
#[test]
fn a_dump_that_was_taken_under_load_and_restored_is_brought_up_to_date() {
    with_servers(&SERVERS, |world, server, _way| async move {
        let gate = redis();
        let mut business = Business::begin(&world).await;
        let running = service(&world, &gate);
        business.send(&world, 60).await;
        business.finished(&world).await;
        business.send(&world, 200).await;
        let url = server.database(&world);
        let name = url.rsplit('/').next().unwrap();
        let file = server.data().with_file_name("dump");
        let (port, database) = (server.port.to_string(), name.to_owned());
        let mariadb = |program: &str| {
            let mut command = tool(program);
            command.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", "countersign"]);
            command
        };
        match world.db.engine {
            Engine::Postgres => {
                succeeded(&tool("pg_dump").args(["-Fc", "-d", &url, "-f"]).arg(&file).output().unwrap());
            }
            _ => {
                let mut dump = mariadb("mariadb-dump");
                dump.args(["--single-transaction", &database]).stdout(File::create(&file).unwrap());
                succeeded(&dump.output().unwrap());
            }
        }
        business.finished(&world).await;
        business.send(&world, 100).await;
        business.finished(&world).await;
        business.went_back = true;
        let running = match world.db.engine {
            Engine::Postgres => {
                let restore = || {
                    let mut restore = tool("pg_restore");
                    restore.args(["--clean", "--if-exists", "--single-transaction", "-d", &url]).arg(&file);
                    restore.output().unwrap().status.success().then_some(())
                };
                until("a restore between the transactions", || async { restore() }).await;
                running
            }
            _ => {
                running.end();
                succeeded(&mariadb("mariadb").arg(&database).stdin(File::open(&file).unwrap()).output().unwrap());
                service(&world, &gate)
            }
        };
        recovers(&world, &business, "a restored dump").await;
        assert!(alarms(&running).await >= 1.0);
        business.send(&world, 30).await;
        business.repeat(&world, 50..300).await;
        business.proves_right(&world).await;
        running.end();
    });
}

/// The topic's retention was faster than the restore: what is gone is named, and what comes again is applied, though
/// Redis has marks for it from the time that was lost.
#[test]
fn marks_of_a_lost_time_count_for_nothing_where_the_records_are_lost_too() {
    on(&SERVERS, |world| async move {
        world.db.run(TABLES).await;
        let payments =
            |ids: std::ops::Range<usize>| ids.map(|n| payment(&format!("m-{n}"), "bob", 1)).collect::<Vec<_>>();
        let gate = redis();
        let first = service(&world, &gate);
        world.send(&payments(0..10)).await;
        world.booked(10).await;
        first.end();
        world
            .db
            .run(
                "DELETE FROM ledger WHERE order_id >= 'order-m-5'; UPDATE accounts SET balance = 99995 WHERE id = 'bob';
                 DELETE FROM countersign_inbox WHERE kafka_offset >= 5; UPDATE countersign_lanes SET next_offset = 5;",
            )
            .await;
        // The mock keeps five megabytes a partition.
        let filler = "x".repeat(400_000);
        let big = |n| format!(r#"{{"orderId":"big-{n}","account":"poor","amount":1,"filler":"{filler}"}}"#);
        let others: Vec<Rec> = (0..20).map(|n| Rec::new(format!("big-{n}"), big(n))).collect();
        world.send(&others).await;
        world.send(&payments(0..10)).await;
        let second = service(&world, &gate);
        world.booked(10).await;
        assert!(second.metric("offset_events_total", "data_lost").await >= 1.0);
        until("the end", || async { (world.lane(0).await?.next_offset == 40).then_some(()) }).await;
        assert_eq!(world.balance("bob").await, 100_000 - 10);
        second.end();
    });
}

/// SQLite's file, or what stands beside it.
fn file(world: &World, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", sqlite_path(&world.db.url)))
}

/// Works on the file while the test itself has no connection: an open one would go on with the file that was there.
async fn closed<T>(world: &mut World, work: impl FnOnce(&World) -> T) -> T {
    world.db.store.close().await;
    let done = work(world);
    world.db.store = open(&world.db.url);
    done
}

fn copy_of_file(world: &World) -> PathBuf {
    assert!(!file(world, "-wal").exists(), "whoever closes it last writes everything into it");
    let copies = std::fs::read_dir(world.db.dir.path()).unwrap().count();
    let copy = file(world, &format!(".{copies}"));
    std::fs::copy(file(world, ""), &copy).unwrap();
    copy
}

/// With what belongs to it alone: a log that is newer than its file spoils it.
fn remove_file(world: &World) {
    for end in ["", "-wal", "-shm"] {
        let removed = std::fs::remove_file(file(world, end));
        assert!(removed.is_ok() || !end.is_empty(), "{removed:?}");
    }
}

fn put_file_back(world: &World, copy: &Path) {
    remove_file(world);
    std::fs::copy(copy, file(world, "")).unwrap();
}

/// A world on a file that the test may take away from under itself.
async fn on_file() -> World {
    World::on_server("", Engine::Sqlite).await
}

/// Until nothing is on its way to Kafka, so that a death leaves the offsets where the rows are.
async fn committed(world: &World) {
    for partition in 0..PARTITIONS {
        until("the group's offset", || async {
            let next = world.lane(partition).await?.next_offset;
            (world.committed(partition)?.0 == next).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_put_back_is_noticed_and_brought_up_to_date() {
    let mut world = on_file().await;
    let gate = redis();
    let mut business = Business::begin(&world).await;
    let first = service(&world, &gate);
    business.send(&world, 100).await;
    business.finished(&world).await;
    first.end();
    let old = closed(&mut world, copy_of_file).await;
    let mut second = service(&world, &gate);
    business.send(&world, 100).await;
    business.repeat(&world, 0..30).await;
    business.finished(&world).await;
    committed(&world).await;

    // The offsets stand. It dies with a log beside the file.
    business.went_back = true;
    closed(&mut world, |world| {
        second.daemon.kill();
        assert!(file(world, "-wal").exists());
        put_file_back(world, &old);
    })
    .await;
    business.send(&world, 30).await;
    let third = service(&world, &gate);
    recovers(&world, &business, "a file that was put back").await;
    assert!((1.0..=f64::from(PARTITIONS)).contains(&alarms(&third).await));
    assert!(third.daemon.last_words().contains("the database went back in time"));
    third.end();

    // The group's offsets are set back by hand as well, to the rows and to the beginning.
    for to_the_beginning in [false, true] {
        let newer = closed(&mut world, copy_of_file).await;
        let later = service(&world, &gate);
        business.send(&world, 60).await;
        business.finished(&world).await;
        later.end();
        closed(&mut world, |world| put_file_back(world, &newer)).await;
        business.set_offsets_back(&world, to_the_beginning).await;
        let later = service(&world, &gate);
        recovers(&world, &business, "a file with its offsets").await;
        assert_eq!(alarms(&later).await, 0.0, "the operator knew");
        business.repeat(&world, 170..230).await;
        business.finished(&world).await;
        later.end();
    }

    // The first copy once more: it knows nothing of the epoch with which the offsets were committed since.
    closed(&mut world, |world| put_file_back(world, &old)).await;
    let last = service(&world, &gate);
    last.says(503, "another store").await;
    let rows = world.db.count("FROM countersign_inbox").await;
    stays(Duration::from_secs(1), "untouched", || async { world.db.count("FROM countersign_inbox").await == rows })
        .await;
    migrate(&world, &["--restored"]);
    recovers(&world, &business, "a file that somebody answered for").await;
    last.says(200, "").await;
    business.proves_right(&world).await;
    last.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_is_said_and_filled_again_at_a_word() {
    let mut world = on_file().await;
    let gate = redis();
    let mut business = Business::begin(&world).await;
    let first = service(&world, &gate);
    business.send(&world, 150).await;
    business.finished(&world).await;
    first.end();
    closed(&mut world, remove_file).await;
    let second = service(&world, &gate);
    second.says(503, "run `countersign migrate`").await;
    migrate(&world, &[]);
    world.db.run(TABLES).await;
    second.says(503, "another store").await;
    business.send(&world, 30).await;
    stays(Duration::from_secs(1), "empty", || async { world.db.count("FROM countersign_inbox").await == 0 }).await;
    migrate(&world, &["--restored"]);
    business.went_back = true;
    recovers(&world, &business, "a file that was gone").await;
    assert!(alarms(&second).await >= 1.0);
    second.says(200, "").await;
    business.proves_right(&world).await;
    second.end();
}
