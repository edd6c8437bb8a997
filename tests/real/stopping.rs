//! SIGTERM in the middle of a stream.

use std::time::Duration;

use crate::daemon::Daemon;
use crate::kafka::{self, Producer};
use crate::killed_daemon::{ROUTE, check_ledger, ledger, pay};
use crate::world::{World, holds, until};

const MESSAGES: u64 = 60_000;
const DRAIN: Duration = Duration::from_secs(8);

#[test]
fn sigterm_in_mid_stream_leaves_nothing_to_be_redelivered() {
    let world = World::new("stopping");
    let bank = ledger(&world);
    let topic = world.topic("payment.events");
    kafka::create(&topic, 6, &[]);
    kafka::create(&world.topic("receipts"), 3, &[]);
    let config = world.pipeline(&bank, &[&topic], ROUTE);
    config.migrate();
    let producer = Producer::new(&[]);
    (0..MESSAGES).for_each(|number| pay(&producer, &topic, number));
    producer.flush();

    let mut done = 0;
    for stop in 1..=3 {
        let daemon = Daemon::start(&config);
        until(30, "the middle of the stream", || {
            let progress = bank.progress();
            holds(progress > done + 3000, || format!("{progress}"))
        });
        let outcomes = daemon.outcomes();
        let (status, took) = daemon.terminate(20);
        assert!(status.success(), "{status}");
        assert!(took < DRAIN, "{took:?} to stop");
        let committed: i64 = kafka::committed(&world.name, &topic).iter().filter(|offset| **offset > 0).sum();
        done = bank.progress();
        println!("stop {stop} took {took:?} with {done} records done, {outcomes:?}");
        assert_eq!(committed as u64, done, "offsets committed (left) and effects committed (right)");
        assert_eq!(bank.number("SELECT COUNT(*) FROM ledger"), done);
        assert!(done < MESSAGES, "too late to be the middle");
    }
    let mut daemon = Daemon::start(&config);
    daemon.until_consumed(60, MESSAGES - done);
    assert_eq!(daemon.outcomes(), [("applied", MESSAGES - done)].into_iter().collect());
    check_ledger(&bank, MESSAGES);
    kafka::until_committed(20, &world.name, &topic);
}
