//! A Redis that forgets, refuses, is slow or old: the gate proves nothing, so nothing depends on it.

use std::time::Duration;

use countersign::debezium::render::hex;
use countersign::gate::GateKey;

use crate::business::Business;
use crate::cache::Cache;
use crate::database::Engine;
use crate::proxy::Proxy;
use crate::server::SERVERS;
use crate::service::{Plan, Service, recovers};
use crate::wait::until;
use crate::world::{World, on};

/// Everything around one Redis.
struct Scene<'a> {
    world: &'a World,
    business: Business,
    service: Service,
}

impl Scene<'_> {
    async fn begin<'a>(world: &'a World, gate: &str) -> Scene<'a> {
        let business = Business::begin(world).await;
        let plan = Plan { gate, ..Plan::default() };
        let mut scene = Scene { world, business, service: plan.start(world) };
        scene.work().await;
        scene.done("the start").await;
        scene
    }

    /// New messages, and old ones again.
    async fn work(&mut self) {
        self.business.send(self.world, 60).await;
        let messages = self.business.messages();
        self.business.repeat(self.world, messages - 60..messages - 30).await;
        self.business.repeat(self.world, 0..30).await;
    }

    async fn done(&mut self, after: &str) {
        recovers(self.world, &self.business, after).await;
    }

    async fn verdicts(&self, verdict: &str) -> f64 {
        self.service.metric("gate_total", &format!("verdict=\"{verdict}\"")).await
    }

    /// Work while Redis does not do as asked: the inbox does it alone, and everybody is told.
    async fn refused(&mut self, by: &str) {
        self.unheeded(by).await;
        self.service.says(200, "the gate does not answer").await;
        until("the gauge", || async { (self.service.metric("gate_up", "").await == 0.0).then_some(()) }).await;
    }

    /// The same with trouble that is over before anybody can look.
    async fn unheeded(&mut self, by: &str) {
        let before = self.verdicts("unavailable").await;
        self.work().await;
        until("work without a gate", || async { (self.verdicts("unavailable").await > before).then_some(()) }).await;
        self.done(by).await;
    }

    /// It works again by itself.
    async fn heeded(&mut self) {
        self.service.says(200, "\"ready\"").await;
        let before = self.verdicts("claimed").await;
        self.work().await;
        self.done("its return").await;
        assert!(self.verdicts("claimed").await > before);
    }

    async fn end(self) {
        // Nothing that came twice was applied twice, and nothing that came once was taken for a repeat.
        let (all, duplicates) =
            (self.service.metric("records_total", "").await, self.service.metric("records_total", "duplicate").await);
        assert_eq!((all, duplicates), (self.business.records() as f64, self.business.repeats as f64));
        self.business.proves_right(self.world).await;
        self.service.end();
    }
}

fn short(gate: &str) -> String {
    // It is quoted by whoever uses it, and another setting of the same section comes along.
    format!("{gate}\"\ntimeout = \"300ms")
}

#[test]
fn a_redis_that_forgets_changes_nothing() {
    on(&SERVERS, |world| async move {
        let mut cache = Cache::start().await;
        let mut scene = Scene::begin(&world, &short(&cache.url())).await;
        for _ in 0..3 {
            scene.work().await;
            cache.run("FLUSHALL").await;
            scene.work().await;
            cache.run("FLUSHALL ASYNC").await;
        }
        scene.done("FLUSHALL").await;
        // Room for a few keys more than there are: the rest is thrown out, claims among it.
        let used: u64 = cache.info("used_memory").await.unwrap().parse().unwrap();
        cache.run("CONFIG SET maxmemory-policy allkeys-lru").await;
        cache.run(&format!("CONFIG SET maxmemory {}", used + 8_000)).await;
        for _ in 0..4 {
            scene.work().await;
        }
        scene.done("eviction").await;
        assert_ne!(cache.info("evicted_keys").await.unwrap(), "0");
        cache.run("CONFIG SET maxmemory 0").await;
        scene.work().await;
        cache.restart(&[]);
        scene.work().await;
        scene.done("a restart of an empty one").await;
        cache.connect().await;
        scene.heeded().await;
        // Values of another type under keys that are about to be asked for.
        let next = scene.business.messages();
        for n in next..next + 60 {
            let key = GateKey::new(format!("{}\0\0m-{n:05}", world.name).as_bytes());
            cache.run(&format!("RPUSH countersign:{}:{} x", world.name, hex(&key.hash[..16]))).await;
        }
        let busy = scene.verdicts("busy").await;
        scene.work().await;
        scene.done("keys of another type").await;
        // All but the undecodable ones, of which nothing is asked.
        assert!(scene.verdicts("busy").await >= busy + 55.0);
        scene.end().await;
    });
}

#[test]
fn a_redis_that_refuses_is_said_and_done_without() {
    on(&SERVERS, |world| async move {
        let mut cache = Cache::start().await;
        let mut scene = Scene::begin(&world, &short(&cache.url())).await;

        cache.run("CONFIG SET maxmemory 1").await;
        scene.refused("OOM").await;
        cache.run("CONFIG SET maxmemory 0").await;
        scene.heeded().await;

        cache.run("CONFIG SET min-replicas-to-write 1").await;
        scene.refused("NOREPLICAS").await;
        cache.run("CONFIG SET min-replicas-to-write 0").await;

        // Nothing can be put in the place of a folder.
        let snapshot = cache.dir().join("dump.rdb");
        std::fs::create_dir(&snapshot).unwrap();
        cache.save_after("3600 1").await;
        cache.run("BGSAVE").await;
        cache.until_info("rdb_last_bgsave_status", "err").await;
        scene.refused("MISCONF").await;
        std::fs::remove_dir(&snapshot).unwrap();
        cache.run("BGSAVE").await;
        cache.until_info("rdb_last_bgsave_status", "ok").await;

        cache.run("REPLICAOF 127.0.0.1 1").await;
        scene.refused("READONLY").await;
        cache.run("REPLICAOF NO ONE").await;
        scene.heeded().await;

        for slow in ["CLIENT PAUSE 1500 ALL", "DEBUG SLEEP 1.5"] {
            let before = scene.verdicts("unavailable").await;
            // Its own answer waits, too.
            let (_, ()) = tokio::join!(cache.run(slow), scene.work());
            scene.done(slow).await;
            assert!(scene.verdicts("unavailable").await > before, "{slow}");
        }
        scene.heeded().await;

        // It has its marks on disk, and takes its time to read them.
        cache.run("SAVE").await;
        cache.restart(&["--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024"]);
        scene.unheeded("LOADING").await;
        cache.connect().await;
        scene.heeded().await;
        scene.end().await;
    });
}

#[test]
fn a_failover_to_a_replica_that_is_old_changes_nothing() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        let (mut master, mut replica) = (Cache::start().await, Cache::start().await);
        let way = Proxy::before(format!("127.0.0.1:{}", master.port)).await;
        let mut scene = Scene::begin(&world, &short(&way.instead_of(&master.url()))).await;
        replica.run(&format!("REPLICAOF 127.0.0.1 {}", master.port)).await;
        replica.until_info("master_link_status", "up").await;
        scene.work().await;
        scene.done("work before").await;
        replica.run("REPLICAOF NO ONE").await;
        for _ in 0..3 {
            scene.work().await;
        }
        // In the middle of it: the claims of these messages are unknown there.
        way.lead_to(format!("127.0.0.1:{}", replica.port)).await;
        scene.work().await;
        scene.done("the failover").await;
        // And back: what this one says is older still.
        way.lead_to(format!("127.0.0.1:{}", master.port)).await;
        scene.work().await;
        scene.done("the way back").await;
        // A replica that nobody has promoted refuses.
        replica.run(&format!("REPLICAOF 127.0.0.1 {}", master.port)).await;
        replica.until_info("master_link_status", "up").await;
        way.lead_to(format!("127.0.0.1:{}", replica.port)).await;
        scene.refused("a failover before the promotion").await;
        master.run("FLUSHALL").await;
        replica.run("REPLICAOF NO ONE").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        scene.heeded().await;
        scene.end().await;
    });
}
