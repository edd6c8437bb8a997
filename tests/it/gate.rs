//! The gate saves work and proves nothing: whatever it says or forgets, nothing is lost and nothing doubled.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use countersign::debezium::render::hex;
use countersign::gate::redis::{RedisGate, RedisOptions};
use countersign::gate::{Gate as _, GateAnswer, GateKey, Mark};
use countersign::supervisor::Readiness;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::{stays, until};
use crate::world::{PARTITIONS, Running, World, everywhere, on};

pub fn redis_url() -> String {
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
        let mut server = OwnRedis::start(crate::ports::free_port());
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

/// The marks of [`payments`] expire, and not at once.
async fn expire(world: &World, ids: std::ops::Range<usize>) {
    let mut connection = redis(&redis_url()).await;
    for n in ids {
        let key = redis_key(world, &format!("m-{n}")).0;
        let ttl: i64 = redis::cmd("TTL").arg(key).query_async(&mut connection).await.unwrap();
        assert!((3000..=3600).contains(&ttl), "{ttl}");
    }
}

/// The marks are long gone, and so are the hours of the first receipts: nothing is done or told a second time.
#[test]
fn a_group_that_is_set_back_after_the_marks_have_expired_brings_duplicates_and_no_receipts() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(&gate(&redis_url())).await;
        world.send(&payments(0..1000)).await;
        running.outcomes(1000, "applied=1000").await;
        let told = world.pushed().await;
        running.stop().await;
        let mut connection = redis(&redis_url()).await;
        let marks: Vec<String> = (0..1000).map(|n| redis_key(&world, &format!("m-{n}")).0).collect();
        let gone: i64 = redis::cmd("DEL").arg(&marks).query_async(&mut connection).await.unwrap();
        assert!(gone > 900, "{gone} marks");
        world.broker.commit(&world.name, &world.topic, 0, 0, "");
        let running = world.start(&gate(&redis_url())).await;
        running.outcomes(1000, "duplicate=1000").await;
        running.stop().await;
        assert_eq!(world.ledger().await.len(), 1000);
        assert_eq!(world.balance("bob").await, 100_000 - 1000);
        assert_eq!(world.pushed().await, told);
    });
}

/// A replay wrote it, or a former life of the topic. Of such a row no mark is made: if the database lost it, the lane
/// would pass that offset one day, and the mark count.
#[test]
fn a_repeat_of_a_message_whose_row_stands_ahead_of_the_lane_is_a_duplicate_without_a_mark() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(&gate("memory")).await;
        world.send(&payments(0..10)).await;
        running.outcomes(10, "applied=10").await;
        world.db.run("UPDATE countersign_inbox SET kafka_offset = 5000 WHERE message_id = 'm-3'").await;
        running.stop().await;
        let running = world.start(&gate("memory")).await;
        for round in 1..=3 {
            world.send(&payments(0..10)).await;
            running.outcomes(10 * round, &format!("duplicate={}", 10 * round)).await;
        }
        // The others were marked by the first round.
        assert!(running.metric("gate_total", "confirmed") >= 18.0, "{}", running.metric("gate_total", "confirmed"));
        assert_eq!(world.ledger().await.len(), 10);
        running.ready().await;
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
        expire(&world, 0..3).await;
    });
}

/// A worker's way to Redis, without the worker.
fn redis_gate(world: &World) -> RedisGate {
    let options = RedisOptions {
        claim_ttl: Duration::from_secs(15 * 60),
        confirm_ttl: Duration::from_secs(3600),
        timeout: Duration::from_secs(2),
    };
    RedisGate::new(&redis_url(), &world.name, options).unwrap()
}

/// A worker claims its messages and dies. Nobody waits for the quarter of an hour that its claims live.
#[test]
fn claims_of_the_dead_hold_up_nobody() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(&gate(&redis_url())).await;
        world.send(&payments(0..1)).await;
        running.outcomes(1, "applied=1").await;
        let keys: Vec<GateKey> = (1..11).map(|n| redis_key(&world, &format!("m-{n}")).1).collect();
        assert_eq!(redis_gate(&world).claim(&keys, 17).await, vec![GateAnswer::Claimed; 10]);
        let began = Instant::now();
        world.send(&payments(1..11)).await;
        running.outcomes(11, "applied=11").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(running.metric("gate_total", "verdict=\"busy\""), 10.0);
        // In the place of the claims there are marks now.
        world.send(&payments(0..11)).await;
        running.outcomes(22, "applied=11 duplicate=11").await;
        assert_eq!(running.metric("gate_total", "verdict=\"confirmed\""), 11.0);
        assert_eq!(world.ledger().await.len(), 11);
        running.stop().await;
    });
}

/// Claims of a release that gave them no end, or wrote them in another way, would otherwise stand there for ever.
#[test]
fn claims_that_never_end_are_the_databases_to_decide_and_give_way_to_marks_that_do() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let mut connection = redis(&redis_url()).await;
        let values: [&[u8]; 6] = [
            b"claim1 17",
            b"claim0 17",
            b"claim1 17 host-3",
            b"PROCESSING",
            b"{\"owner\":\"host-3\",\"since\":1700000000}",
            b"\xff\xfe\x00claim",
        ];
        for (n, value) in values.into_iter().enumerate() {
            let key = redis_key(&world, &format!("m-{n}")).0;
            redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await.unwrap();
        }
        world.send(&[payments(0..6), payments(0..6)].concat()).await;
        let running = world.start(&gate(&redis_url())).await;
        running.outcomes(12, "applied=6 duplicate=6").await;
        assert_eq!(running.metric("gate_total", "verdict=\"busy\""), 6.0);
        assert_eq!(world.ledger().await.len(), 6);
        assert_eq!(world.balance("bob").await, 100_000 - 6);
        expire(&world, 0..6).await;
        running.stop().await;
    });
}

/// What stands there in Redis.
async fn stored(connection: &redis::aio::MultiplexedConnection, name: &str) -> Option<String> {
    redis::cmd("GET").arg(name).query_async(&mut connection.clone()).await.unwrap()
}

/// As after a transaction that took longer than a claim lives.
async fn runs_out(connection: &redis::aio::MultiplexedConnection, name: &str) {
    redis::cmd("PEXPIRE").arg(name).arg(1).exec_async(&mut connection.clone()).await.unwrap();
    until("the end of the claim", || async { stored(connection, name).await.is_none().then_some(()) }).await;
}

#[test]
fn a_claim_that_ran_out_is_anothers_and_its_first_owner_takes_nothing_back() {
    on(&[Engine::Sqlite], |world| async move {
        let connection = redis(&redis_url()).await;
        let gate = redis_gate(&world);
        let (name, key) = redis_key(&world, "m-0");
        let keys = [key];
        assert_eq!(gate.claim(&keys, 1).await, [GateAnswer::Claimed]);
        assert_eq!(gate.claim(&keys, 2).await, [GateAnswer::Busy]);
        runs_out(&connection, &name).await;
        assert_eq!(gate.claim(&keys, 2).await, [GateAnswer::Claimed]);
        gate.release(&keys, 1).await;
        assert_eq!(stored(&connection, &name).await.as_deref(), Some("claim1 2"));
        assert_eq!(gate.claim(&keys, 1).await, [GateAnswer::Busy], "it is the other one's");
        assert_eq!(gate.claim(&keys, 3).await, [GateAnswer::Busy]);
        // The slow one has committed after all: that stands, whoever had the claim and gives it back.
        let mark = Mark {
            store_epoch: "e".to_owned(),
            key_hash: keys[0].hash,
            digest: "1:ab".to_owned(),
            topic: world.topic.clone(),
            generation: 0,
            partition: 0,
            offset: 7,
        };
        gate.confirm(std::slice::from_ref(&mark)).await;
        gate.release(&keys, 1).await;
        gate.release(&keys, 2).await;
        assert_eq!(gate.claim(&keys, 3).await, [GateAnswer::Confirmed(mark)]);
        // Its own claim everybody gives back.
        let (name, key) = redis_key(&world, "m-1");
        let keys = [key];
        assert_eq!(gate.claim(&keys, 4).await, [GateAnswer::Claimed]);
        gate.release(&keys, 4).await;
        assert_eq!(stored(&connection, &name).await, None);
        assert!(gate.healthy());
    });
}

/// Holds bob's account until it is told to let go.
async fn rival(world: &World) -> (CancellationToken, JoinHandle<()>) {
    let mut tx = world.db.store.begin().await.unwrap();
    tx.batch("UPDATE accounts SET balance = balance WHERE id = 'bob'").await.unwrap();
    let let_go = CancellationToken::new();
    let told = let_go.clone();
    let holding = tokio::spawn(async move {
        // The server ends a transaction that asks nothing for some seconds.
        while told.run_until_cancelled(tokio::time::sleep(Duration::from_millis(200))).await.is_some() {
            tx.batch("SELECT 1").await.unwrap();
        }
        tx.commit().await.unwrap();
    });
    (let_go, holding)
}

/// The first copy stands in its transaction, for a rival has its account, when the second one comes by the other lane,
/// of the same worker or of another one. It is no duplicate before the first one is committed.
async fn a_second_copy_waits_for_the_first(world: &World, workers: usize, first_claim_runs_out: bool) {
    world.db.run(TABLES).await;
    let connection = redis(&redis_url()).await;
    let name = redis_key(world, "m-0").0;
    let text = world.config(&gate(&redis_url()));
    let running: Vec<Running> = (0..workers).map(|_| Running::start(&text)).collect();
    let lanes = PARTITIONS as usize / workers;
    until("the lanes of each worker", || async {
        running.iter().all(|one| one.view.lanes.assigned().len() == lanes).then_some(())
    })
    .await;
    world.send(&[payment("w-0", "alice", 1).on(0), payment("w-1", "alice", 1).on(1)]).await;
    world.booked(2).await;
    let sum = |metric: &str, label: &str| running.iter().map(|one| one.metric(metric, label)).sum::<f64>();

    let (let_go, holding) = rival(world).await;
    let first = payment("m-0", "bob", 1);
    world.send(std::slice::from_ref(&first)).await;
    until("the first one's claim", || async { stored(&connection, &name).await.map(drop) }).await;
    let stand = async |partition: i32| world.lane(partition).await.unwrap().next_offset == 1;
    // Time enough to come as far as its account.
    stays(Duration::from_secs(1), "the first one waits", || async { stand(0).await }).await;
    if first_claim_runs_out {
        runs_out(&connection, &name).await;
    }
    world.send(&[first.on(1)]).await;
    let (verdict, times) = if first_claim_runs_out { ("claimed", 4.0) } else { ("busy", 1.0) };
    until("the second one at the gate", || async {
        (sum("gate_total", &format!("verdict=\"{verdict}\"")) >= times).then_some(())
    })
    .await;
    stays(Duration::from_secs(2), "both wait", || async {
        stand(0).await && stand(1).await && world.committed(1).is_none_or(|(offset, _)| offset == 1)
    })
    .await;
    assert_eq!(sum("records_total", ""), 2.0, "neither has an outcome");
    assert_eq!(world.ledger().await.len(), 2);

    let_go.cancel();
    holding.await.unwrap();
    until("an outcome of each", || async {
        let outcomes = ["applied", "duplicate"].map(|outcome| sum("records_total", &format!("outcome=\"{outcome}\"")));
        (outcomes == [3.0, 1.0]).then_some(())
    })
    .await;
    for partition in [0, 1] {
        assert_eq!(world.lane(partition).await.unwrap().next_offset, 2);
    }
    assert_eq!(world.balance("bob").await, 100_000 - 1);
    assert_eq!(world.ledger().await.len(), 3);
    assert_eq!(world.db.count("FROM countersign_inbox").await, 3);
    assert!(stored(&connection, &name).await.is_some_and(|value| value.starts_with("mark1 ")));
    assert_eq!(world.receipt_ids().await.len(), 3);
    for one in running {
        one.stop().await;
    }
}

/// SQLite has one daemon a file.
const SHARED: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

#[test]
fn a_copy_that_comes_while_the_first_one_is_at_work_waits_for_its_commit() {
    everywhere(|world| async move { a_second_copy_waits_for_the_first(&world, 1, false).await });
    on(&SHARED, |world| async move { a_second_copy_waits_for_the_first(&world, 2, false).await });
}

#[test]
fn so_does_one_that_got_the_claim_of_a_first_one_that_was_too_slow() {
    everywhere(|world| async move { a_second_copy_waits_for_the_first(&world, 1, true).await });
    on(&SHARED, |world| async move { a_second_copy_waits_for_the_first(&world, 2, true).await });
}
