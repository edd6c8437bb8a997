//! The gate saves work and proves nothing: whatever it says or forgets, nothing is lost and nothing doubled.

use std::process::{Child, Command, Stdio};

use countersign::debezium::render::hex;
use countersign::gate::GateKey;
use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::{World, everywhere, on};

fn redis_url() -> String {
    std::env::var("COUNTERSIGN_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned())
}

fn gate(url: &str) -> String {
    format!("[gate]\nurl = \"{url}\"\ntimeout = \"2s\"\n{CHARGE}")
}

fn payments(ids: std::ops::Range<usize>) -> Vec<Rec> {
    ids.map(|n| payment(&format!("m-{n}"), "bob", 1)).collect()
}

async fn redis(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap_or_else(|error| panic!("redis of the test stack: {error}"))
}

/// Confirmed duplicates are answered although their rows are gone: so the inbox was not asked.
async fn confirmed_marks_save_the_inbox(world: &World, url: &str) {
    world.db.run(TABLES).await;
    world.send(&payments(0..50)).await;
    let running = world.start(&gate(url)).await;
    running.outcomes(50, "applied=50").await;
    world.db.run("DELETE FROM countersign_inbox").await;
    world.send(&payments(0..50)).await;
    running.outcomes(100, "applied=50 duplicate=50").await;
    assert_eq!(running.metric("gate_total", "verdict=\"confirmed\""), 50.0);
    assert_eq!(running.metric("gate_total", "verdict=\"claimed\""), 50.0);
    assert_eq!(world.db.count("FROM countersign_inbox").await, 0);
    assert_eq!(world.ledger().await.len(), 50);
    assert_eq!(world.lane(0).await.unwrap().next_offset, 100);
    running.stop().await;
}

#[test]
fn redis_marks_answer_for_duplicates_without_the_inbox() {
    everywhere(|world| async move { confirmed_marks_save_the_inbox(&world, &redis_url()).await });
}

#[test]
fn so_do_marks_in_memory() {
    everywhere(|world| async move { confirmed_marks_save_the_inbox(&world, "memory").await });
}

#[test]
fn a_mark_of_other_content_does_not_hide_a_conflict() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        let running = world.start(&gate(&redis_url())).await;
        world.send(&payments(0..3)).await;
        running.outcomes(3, "applied=3").await;
        world.send(&[payment("m-1", "bob", 99), payment("m-2", "bob", 1), payment("m-2", "bob", 98)]).await;
        running.outcomes(6, "applied=3 duplicate=1 conflict=2").await;
        running.stop().await;
    });
}

#[test]
fn a_redis_that_forgets_everything_in_mid_stream_changes_nothing() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        // Databases of their own, so that other tests keep their marks.
        let number = match world.db.engine {
            Engine::Postgres => 11,
            Engine::MariaDb => 12,
            Engine::Sqlite => 13,
        };
        let url = format!("{}/{number}", redis_url().trim_end_matches('/'));
        let mut connection = redis(&url).await;
        let running = world.start(&gate(&url)).await;
        for round in 0..10 {
            let new = payments(round * 10..round * 10 + 10);
            let old = payments(0..round * 10 + 10);
            world.send(&[new, old].concat()).await;
            redis::cmd("FLUSHDB").exec_async(&mut connection).await.unwrap();
        }
        running.outcomes(650, "applied=100 duplicate=550").await;
        assert_eq!(world.ledger().await.len(), 100);
        assert_eq!(world.balance("bob").await, 100_000 - 100);
        assert_eq!(world.pushed().await.len(), 100);
        running.stop().await;
    });
}

#[test]
fn a_redis_that_cannot_be_reached_is_said_and_the_inbox_does_its_work() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[payments(0..20), payments(0..20)].concat()).await;
        let running = world.start(&gate("redis://127.0.0.1:1")).await;
        running.outcomes(40, "applied=20 duplicate=20").await;
        running.stands(Readiness::Degraded, "the gate does not answer").await;
        assert_eq!(running.metric("gate_total", "verdict=\"unavailable\""), 20.0);
        running.stop().await;
    });
}

/// A Redis of the test's own, to be stopped.
struct OwnRedis {
    child: Child,
    port: u16,
}

impl OwnRedis {
    fn start(port: u16) -> Self {
        let arguments = ["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--dir", "/tmp"];
        let mut command = Command::new("redis-server");
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { child: child.expect("redis-server is installed, as for the test stack"), port }
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_redis_that_goes_and_comes_back_degrades_readiness_and_nothing_else() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        let mut server = OwnRedis::start(crate::world::free_port());
        let url = format!("redis://127.0.0.1:{}", server.port);
        until("the own redis", || async { redis::Client::open(url.as_str()).unwrap().get_connection().ok().map(drop) })
            .await;
        let running = world.start(&gate(&url).replace("2s", "200ms")).await;
        world.send(&payments(0..20)).await;
        running.outcomes(20, "applied=20").await;
        running.ready().await;
        server.stop();
        world.send(&payments(0..40)).await;
        running.outcomes(60, "applied=40 duplicate=20").await;
        running.stands(Readiness::Degraded, "the gate does not answer").await;
        let server = OwnRedis::start(server.port);
        until("readiness again", || async {
            // Whether it answers is seen when it is asked.
            world.send(&payments(0..1)).await;
            (running.reasons().0 == Readiness::Ready).then_some(())
        })
        .await;
        assert_eq!(world.ledger().await.len(), 40);
        running.stop().await;
        drop(server);
    });
}

fn redis_key(world: &World, id: &str) -> (String, GateKey) {
    let key = GateKey::new(format!("{}\0\0{id}", world.name).as_bytes());
    (format!("countersign:{}:{}", world.name, hex(&key.hash[..16])), key)
}

#[test]
fn forged_and_damaged_values_count_for_nothing() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let mut connection = redis(&redis_url()).await;
        let running = world.start(&gate(&redis_url())).await;
        world.send(&payments(0..1)).await;
        running.outcomes(1, "applied=1").await;
        let real: String =
            redis::cmd("GET").arg(redis_key(&world, "m-0").0).query_async(&mut connection).await.unwrap();
        let (epoch, topic) = (world.lane(0).await.unwrap().store_epoch, &world.topic);
        assert!(real.starts_with("mark1 ") && real.contains(&epoch), "{real}");
        let digest = real.split(' ').nth(3).unwrap().to_owned();

        let mark = |id: &str, epoch: &str, digest: &str, topic: &str, generation: i64, partition: i32, offset: i64| {
            format!(
                "mark1 {epoch} {} {digest} {topic} {generation} {partition} {offset}",
                hex(&redis_key(&world, id).1.hash)
            )
        };
        let other_topic = format!("{topic}.x");
        let forged: Vec<(&str, String)> = vec![
            ("m-1", "1".to_owned()),
            ("m-2", "OK".to_owned()),
            ("m-3", String::new()),
            ("m-4", real.clone()),
            ("m-5", real[..real.len() - 1].to_owned()),
            ("m-6", mark("m-6", "another-epoch", &digest, topic, 0, 0, 0)),
            ("m-7", mark("m-7", &epoch, &digest, topic, 0, 0, 0)),
            ("m-8", mark("m-8", &epoch, &digest, topic, 0, 0, 1_000_000)),
            ("m-9", mark("m-9", &epoch, &digest, &other_topic, 0, 0, 0)),
            ("m-10", mark("m-10", &epoch, &digest, topic, 7, 0, 0)),
            ("m-11", mark("m-11", &epoch, &digest, topic, 0, 1, 0)),
            ("m-12", "claim1 17".to_owned()),
            ("m-13", "\u{fffd}\u{0}".to_owned()),
        ];
        for (id, value) in &forged {
            redis::cmd("SET").arg(redis_key(&world, id).0).arg(value).exec_async(&mut connection).await.unwrap();
        }
        redis::cmd("LPUSH").arg(redis_key(&world, "m-14").0).arg("x").exec_async(&mut connection).await.unwrap();
        world.send(&payments(1..15)).await;
        running.outcomes(15, "applied=15").await;
        world.send(&payments(0..15)).await;
        running.outcomes(30, "applied=15 duplicate=15").await;
        assert_eq!(world.ledger().await.len(), 15);
        running.stop().await;
    });
}

#[test]
fn marks_of_a_lost_future_count_for_nothing_after_the_database_was_emptied() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..30)).await;
        let running = world.start(&gate(&redis_url())).await;
        running.outcomes(30, "applied=30").await;
        running.stop().await;
        world
            .db
            .run(
                "DELETE FROM countersign_inbox; DELETE FROM countersign_outbox; DELETE FROM countersign_lanes; \
                 DELETE FROM ledger; UPDATE accounts SET balance = 100000;",
            )
            .await;
        let running = world.start(&gate(&redis_url())).await;
        running.outcomes(30, "applied=30").await;
        assert_eq!(running.metric("gate_total", "verdict=\"confirmed\""), 30.0, "redis still says so");
        assert_eq!(world.ledger().await.len(), 30);
        running.stop().await;
    });
}

#[test]
fn every_key_expires() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..3)).await;
        let running = world.start(&gate(&redis_url())).await;
        running.outcomes(3, "applied=3").await;
        running.stop().await;
        let mut connection = redis(&redis_url()).await;
        for n in 0..3 {
            let key = redis_key(&world, &format!("m-{n}")).0;
            let ttl: i64 = redis::cmd("TTL").arg(key).query_async(&mut connection).await.unwrap();
            assert!((3000..=3600).contains(&ttl), "{ttl}");
        }
    });
}
