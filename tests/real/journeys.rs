//! The whole way, from a row in one database to a row in another: MariaDB to PostgreSQL, back, and into a file.

use crate::daemon::Daemon;
use crate::database::Kind;
use crate::kafka;
use crate::shop::{Done, Shop};
use crate::world::{World, holds, until};

#[test]
fn mariadb_arrives_in_postgres() {
    travel("mariadb_postgres", Kind::MariaDb, Kind::Postgres);
}

#[test]
fn postgres_arrives_in_mariadb() {
    travel("postgres_mariadb", Kind::Postgres, Kind::MariaDb);
}

#[test]
fn mariadb_arrives_in_sqlite() {
    travel("mariadb_sqlite", Kind::MariaDb, Kind::Sqlite);
}

fn travel(test: &str, source: Kind, bank: Kind) {
    let world = World::new(test);
    let mut shop = Shop::new(&world, source, bank, "");
    let mut done = Done::default();
    done += shop.sell(1..21, 20); // arrive as reads of the snapshot
    shop.connect(&world);
    done += shop.sell(21..121, 10);
    for topic in [&shop.orders_topic, &shop.payments_topic] {
        // Debezium makes a topic with its first record; one that comes later is seen half a minute later.
        until(30, "the connectors to make their topics", || holds(!kafka::ends(topic).is_empty(), || topic.clone()));
    }
    let mut daemon = Daemon::start(&shop.config);
    done += shop.change(14, 40); // rows of the snapshot among them
    done += shop.sell(121..221, 1);
    done += shop.change(60, 221);

    daemon.until_consumed(60, done.records());
    let outcomes = daemon.outcomes();
    let stale = daemon.stale();
    let expected = [
        ("applied", done.messages() - done.refused - stale),
        ("rejected", done.refused),
        ("skipped", done.tombstones + stale),
    ];
    assert_eq!(outcomes, expected.into_iter().collect());
    shop.compare();
    assert_eq!(shop.bank.number("SELECT COUNT(*) FROM countersign_inbox"), done.messages());
    until(20, "the receipts to be delivered", || {
        let left = shop.bank.number("SELECT COUNT(*) FROM countersign_outbox");
        holds(left == 0, || format!("{left} left"))
    });
    shop.check_receipts(done);

    for topic in [&shop.orders_topic, &shop.payments_topic] {
        kafka::until_committed(20, &shop.config.name, topic);
    }
    daemon.until_no_lag(20);
    // Lanes that book on the same accounts may get into each other's way.
    let known = ["eadlock", "store.pool"];
    let warnings = daemon.warnings().into_iter().filter(|line| !known.iter().any(|known| line.contains(known)));
    assert_eq!(warnings.collect::<Vec<_>>(), [""; 0]);
    let (status, took) = daemon.terminate(20);
    assert!(status.success(), "{status} after {took:?}");
    shop.compare();
}
