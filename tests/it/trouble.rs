//! Databases in trouble: what is transient is waited for and parks nothing, what is fatal stops the lane and says so.

use std::time::{Duration, Instant};

use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::proxy::Proxy;
use crate::wait::{PATIENCE, stays, until};
use crate::world::{Running, everywhere, on};

fn payments(ids: std::ops::Range<usize>) -> Vec<Rec> {
    ids.map(|n| payment(&format!("m-{n}"), "bob", 1)).collect()
}

#[test]
fn a_row_held_by_a_rival_is_waited_for_and_nothing_is_parked() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let text = world.config(CHARGE).replace("[store]\n", "[store]\ntransaction_timeout = \"1s\"\n");
        let running = Running::start(&text);
        world.send(&payments(0..1)).await;
        running.outcomes(1, "applied=1").await;
        let mut rival = world.db.store.begin().await.unwrap();
        rival.batch("UPDATE accounts SET balance = balance + 1000 WHERE id = 'bob'").await.unwrap();
        world.send(&payments(1..11)).await;
        // Several lock time-outs long, past the point at which a batch is taken apart.
        let began = Instant::now();
        while running.metric("retries_total", "transient") < 4.0 {
            assert!(began.elapsed() < PATIENCE, "four tries");
            // The server ends a transaction that asks nothing for some seconds.
            rival.batch("SELECT 1").await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(running.reasons().1.iter().any(|reason| reason.contains("retrying: ")), "{:?}", running.reasons());
        assert_eq!(running.counted(), "applied=1");
        rival.commit().await.unwrap();
        running.outcomes(11, "applied=11").await;
        assert_eq!(world.balance("bob").await, 101_000 - 11);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.ready().await;
        running.stop().await;
    });
}

#[test]
fn a_database_that_is_cut_off_again_and_again_loses_and_doubles_nothing() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let url = url::Url::parse(&world.db.url).unwrap();
        let proxy = Proxy::before(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())).await;
        let text = world.config(CHARGE).replace(&world.db.url, &proxy.instead_of(&world.db.url));
        let running = Running::start(&text);
        world.send(&payments(0..1)).await;
        running.outcomes(1, "applied=1").await;
        for round in 0..12 {
            world.send(&payments(1 + round * 50..51 + round * 50)).await;
            // At another moment of the batch each time.
            tokio::time::sleep(Duration::from_millis(3 * round as u64)).await;
            proxy.cut(true);
            tokio::time::sleep(Duration::from_millis(30)).await;
            proxy.cut(false);
        }
        running.outcomes(601, "applied=601").await;
        assert_eq!(world.ledger().await.len(), 601);
        assert_eq!(world.balance("bob").await, 100_000 - 601);
        assert_eq!(world.dead_letters().await, [""; 0]);
        assert_eq!(world.receipt_ids().await.len(), 601);

        proxy.cut(true);
        world.send(&payments(601..602)).await;
        until("unready", || async { (running.reasons().0 == Readiness::Unready).then_some(()) }).await;
        assert_eq!(running.counted(), "applied=601");
        proxy.cut(false);
        running.outcomes(602, "applied=602").await;
        running.ready().await;
        running.stop().await;
    });
}

#[test]
fn lanes_that_lock_the_same_rows_in_opposite_orders_lose_nothing_and_park_nothing() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        world.db.run("UPDATE accounts SET balance = 100000").await;
        let accounts = ["alice", "bob", "poor"];
        let records: Vec<Rec> = (0..1200)
            .map(|n| {
                let (partition, turn) = (n % 2, n / 2 % 3);
                let account = if partition == 0 { accounts[turn] } else { accounts[2 - turn] };
                payment(&format!("m-{n}"), account, 1).on(partition as i32)
            })
            .collect();
        world.send(&records).await;
        let text = world.config(CHARGE).replace("[store]\n", "[store]\nbatch = 20\n");
        let running = Running::start(&text);
        running.outcomes(1200, "applied=1200").await;
        for account in accounts {
            assert_eq!(world.balance(account).await, 100_000 - 400, "{account}");
        }
        assert_eq!(world.ledger().await.len(), 1200);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}

#[test]
fn a_missing_table_stops_the_lane_with_the_reason_and_once_it_is_there_the_lane_goes_on_by_itself() {
    everywhere(|world| async move {
        let port = crate::ports::free_port();
        let daemon = crate::http_side::Daemon::start(&world, &format!("[http]\nlisten = \"127.0.0.1:{port}\"\n{BOOK}"));
        let only_one = payments(0..3);
        world.send(&only_one).await;
        world.send(&only_one.iter().map(|record| record.clone().on(1)).collect::<Vec<_>>()).await;
        until("503 with the reason", || async {
            let (code, body) = daemon.get("/readyz").await;
            (code == 503 && body.contains("stopped: ") && body.contains("ledger")).then_some(())
        })
        .await;
        stays(Duration::from_secs(1), "alive, unready, nothing parked", || async {
            daemon.get("/livez").await.0 == 200
                && daemon.get("/readyz").await.0 == 503
                && world.dead_letters().await.is_empty()
        })
        .await;
        assert_eq!(world.db.count("FROM countersign_inbox").await, 0);
        world.db.run(TABLES).await;
        world.booked(3).await;
        until("200", || async { (daemon.get("/readyz").await.0 == 200).then_some(()) }).await;
        daemon.stop().await;
        assert_eq!(world.ledger().await.len(), 3);
    });
}
