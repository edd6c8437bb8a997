//! Load with random faults for as long as one likes: `tests/soak.sh 1800`. What was done and what was found is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::Rng as _;

use crate::business::Business;
use crate::cache::Cache;
use crate::outages::seeded;
use crate::proxy::Proxy;
use crate::server::{SERVERS, Server, with_servers};
use crate::service::{Plan, Service, reconnect};
use crate::world::World;

/// Worlds are made anew after so long: the broker in this process keeps only so many records.
const EPOCH: Duration = Duration::from_secs(120);
/// Rounds after which everything has to come to rest.
const REST: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    None,
    DaemonKilled,
    DaemonSuspended,
    DaemonReplaced,
    ThirdDaemon,
    ServerKilled,
    ServerRestarted,
    WayCut,
    WayStalled,
    CommitRobbed,
    MarkRobbed,
    CacheFlushed,
    CacheEmptied,
    CacheSlow,
}

const FAULTS: [Fault; 14] = [
    Fault::None,
    Fault::DaemonKilled,
    Fault::DaemonSuspended,
    Fault::DaemonReplaced,
    Fault::ThirdDaemon,
    Fault::ServerKilled,
    Fault::ServerRestarted,
    Fault::WayCut,
    Fault::WayStalled,
    Fault::CommitRobbed,
    Fault::MarkRobbed,
    Fault::CacheFlushed,
    Fault::CacheEmptied,
    Fault::CacheSlow,
];

#[test]
#[ignore = "for as long as it is told: tests/soak.sh"]
fn soak() {
    let seconds = std::env::var("COUNTERSIGN_SOAK_SECONDS").map_or(60, |seconds| seconds.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now()).min(EPOCH);
        with_servers(&SERVERS, |world, server, _way| epoch(world, server, left));
    }
}

async fn epoch(world: Rc<World>, mut server: Server, time: Duration) {
    let mut rng = seeded();
    let end = Instant::now() + time;
    let mut done: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut business = Business::begin(&world).await;
    let (store, mut cache) = (Proxy::before(server.host()).await, Cache::start().await);
    let (url, gate) = (store.instead_of(&world.db.url), cache.url());
    let start = || {
        let limits = "batch = 20\ntransaction_timeout = \"2s\"\n";
        Plan { gate: &gate, store: Some(url.clone()), limits, ..Plan::default() }.start(&world)
    };
    let mut services = vec![start(), start()];
    let (mut round, mut looks) = (0, 0);
    while Instant::now() < end {
        round += 1;
        let messages = rng.random_range(10..80);
        business.send(&world, messages).await;
        if business.messages() > 40 {
            let from = rng.random_range(0..business.messages() - 20);
            business.repeat(&world, from..from + 20).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..300))).await;
        let fault = FAULTS[rng.random_range(0..FAULTS.len())];
        *done.entry(fault).or_default() += 1;
        let some = rng.random_range(0..services.len());
        let moment = Duration::from_millis(rng.random_range(10..1500));
        match fault {
            Fault::None => {}
            Fault::DaemonKilled => {
                services[some].daemon.kill();
                services[some] = start();
            }
            Fault::DaemonSuspended => {
                services[some].daemon.signal("STOP");
                // Beyond its session, or not.
                tokio::time::sleep(moment * 4).await;
                services[some].daemon.signal("CONT");
            }
            Fault::DaemonReplaced => std::mem::replace(&mut services[some], start()).end(),
            Fault::ThirdDaemon => {
                let third = start();
                tokio::time::sleep(moment * 3).await;
                third.end();
            }
            Fault::ServerKilled | Fault::ServerRestarted => {
                if fault == Fault::ServerKilled {
                    server.kill();
                } else {
                    server.stop();
                }
                tokio::time::sleep(moment).await;
                server.up();
                reconnect(&world).await;
            }
            Fault::WayCut => {
                store.cut(true);
                tokio::time::sleep(moment).await;
                store.cut(false);
            }
            Fault::WayStalled => {
                store.stall(true);
                tokio::time::sleep(moment).await;
                store.stall(false);
            }
            Fault::CommitRobbed => store.rob(world.db.engine.commit()),
            Fault::MarkRobbed => store.rob("countersign_outbox"),
            Fault::CacheFlushed => cache.run("FLUSHALL").await,
            Fault::CacheEmptied => {
                cache.restart(&[]);
                cache.connect().await;
            }
            Fault::CacheSlow => cache.run(&format!("CLIENT PAUSE {}", moment.as_millis())).await,
        }
        if round % REST == 0 {
            business.finished(&world).await;
            business.holds(&world).await;
            looks += 1;
        }
    }
    business.proves_right(&world).await;
    let ledger = world.ledger().await;
    let pushed: Vec<String> = world.pushed().await.into_iter().map(|receipt| receipt.receipt_id).collect();
    let different = |texts: &[String]| texts.iter().collect::<BTreeSet<_>>().len();
    services.into_iter().for_each(Service::end);
    println!(
        "{:?}: {} messages in {} records through {round} rounds with {done:?}; looked at {looks} times, no rule broken; \
         at the end {} effects, {} of them different, {} receipts pushed, {} of them different",
        world.db.engine,
        business.messages(),
        business.records(),
        ledger.len(),
        different(&ledger),
        pushed.len(),
        different(&pushed),
    );
}
