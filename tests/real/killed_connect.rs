//! Connect dies under load and emits thousands of changes again, at new offsets.

use crate::connect;
use crate::daemon::Daemon;
use crate::database::Kind;
use crate::kafka;
use crate::shop::{Done, Shop};
use crate::world::{World, holds, until};

/// Starts the worker again if a test fails while it is down: the next one needs it.
struct Restart;

impl Drop for Restart {
    fn drop(&mut self) {
        if std::thread::panicking() {
            connect::start();
        }
    }
}

const ORDERS: u64 = 6000;
const DUPLICATES: u64 = 1000;

#[test]
fn what_connect_emits_again_has_no_second_effect() {
    let world = World::new("killed_connect");
    let _restart = Restart;
    let mut shops = [
        Shop::new(&world, Kind::MariaDb, Kind::Postgres, "_m"),
        Shop::new(&world, Kind::Postgres, Kind::MariaDb, "_p"),
    ];
    for shop in &mut shops {
        shop.connect(&world);
    }
    for connector in shops.iter().flat_map(|shop| &shop.connectors) {
        connect::checkpoint(connector);
    }
    let daemons = shops.each_ref().map(|shop| Daemon::start(&shop.config));
    let done = std::thread::scope(|scope| {
        let loads = shops.each_ref().map(|shop| scope.spawn(|| load(shop)));
        for round in 1..=2 {
            for shop in &shops {
                for topic in [&shop.orders_topic, &shop.payments_topic] {
                    until(60, "enough to be emitted again", || {
                        let there: i64 = kafka::ends(topic).iter().sum();
                        holds(there > round * 1500, || format!("{topic}: {there}"))
                    });
                }
            }
            connect::kill();
            connect::start();
            for connector in shops.iter().flat_map(|shop| &shop.connectors) {
                connect::wait(connector);
            }
        }
        loads.map(|load| load.join().unwrap())
    });
    for ((shop, mut daemon), done) in shops.iter().zip(daemons).zip(done) {
        until(90, "all messages", || {
            let found = shop.bank.number("SELECT COUNT(*) FROM countersign_inbox");
            holds(found >= done.messages(), || format!("{found} of {done:?}, {:?}", daemon.outcomes()))
        });
        for topic in [&shop.orders_topic, &shop.payments_topic] {
            kafka::until_committed(60, &shop.config.name, topic);
        }
        let records: i64 = [&shop.orders_topic, &shop.payments_topic].iter().flat_map(|topic| kafka::ends(topic)).sum();
        daemon.until_consumed(10, records as u64);
        let outcomes = daemon.outcomes();
        println!("{}: {done:?}, {outcomes:?}", shop.config.name);
        assert_eq!(shop.bank.number("SELECT COUNT(*) FROM countersign_inbox"), done.messages());
        assert_eq!(outcomes["applied"] + outcomes["rejected"] + daemon.stale(), done.messages());
        assert_eq!(outcomes["rejected"], done.refused);
        assert_eq!(outcomes.values().sum::<u64>(), records as u64, "consumed is the sum of the outcomes");
        assert!(outcomes["duplicate"] > DUPLICATES, "{outcomes:?}: the kill came too late to repeat anything");
        shop.compare();
        until(30, "the receipts to be delivered", || {
            let left = shop.bank.number("SELECT COUNT(*) FROM countersign_outbox");
            holds(left == 0, || format!("{left} left"))
        });
        shop.check_receipts(done);
    }
}

/// The changes of a busy shop, while Connect comes and goes.
fn load(shop: &Shop) -> Done {
    let mut done = Done::default();
    for from in (0..ORDERS).step_by(500) {
        done += shop.sell(from + 1..from + 501, 25);
        done += shop.change(from + 1, from + 501);
    }
    done
}
