//! Codes with which a database answers while nothing is wrong with the message: what passes is run again, what lasts
//! holds up its own lane alone, and neither parks anything. Beside them a record that is wrong by itself.

use std::time::Duration;

use countersign::supervisor::Readiness;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment, payments};
use crate::wait::{stays, until};
use crate::world::{Running, World, everywhere, on};

const SERVERS: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

const INBOX: &str = "INSERT ON countersign_inbox";
const LEDGER: &str = "INSERT ON ledger";
const ACCOUNTS: &str = "UPDATE ON accounts";

/// A trigger with which the database answers as the test wants it.
struct Fault<'a> {
    at: &'a str,
    /// Which rows.
    of: &'a str,
    code: &'a str,
}

impl Fault<'_> {
    /// For so many attempts. A sequence counts them: no rollback sets it back.
    async fn begin(&self, world: &World, times: u32) {
        world.db.run("CREATE SEQUENCE tries").await;
        let number = by_engine(world, "nextval('tries')", "NEXTVAL(tries)");
        self.begin_while(world, &format!("{number} <= {times}")).await;
    }

    async fn begin_while(&self, world: &World, condition: &str) {
        let Self { at, of, code } = self;
        // The daemon goes by the number, not by the SQLSTATE, which is HY000 for most of them.
        let raise = by_engine(
            world,
            &format!("RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = 'wanted'"),
            &format!("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'wanted'"),
        )
        .to_owned();
        let body = format!("IF {of} THEN IF {condition} THEN {raise}; END IF; END IF;");
        let sql = by_engine(
            world,
            &format!(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
                 CREATE TRIGGER fail BEFORE {at} FOR EACH ROW EXECUTE FUNCTION fail();"
            ),
            &format!("CREATE TRIGGER fail BEFORE {at} FOR EACH ROW BEGIN {body} END"),
        )
        .to_owned();
        world.db.run(&sql).await;
    }
}

fn by_engine<'a>(world: &World, postgres: &'a str, mariadb: &'a str) -> &'a str {
    match world.db.engine {
        Engine::Postgres => postgres,
        Engine::MariaDb => mariadb,
        Engine::Sqlite => unreachable!("a file has no such codes"),
    }
}

/// Has a daemon take these records while the fault lasts for so many attempts. Nothing is parked, and each message has
/// one receipt.
async fn passes(world: &World, fault: &Fault<'_>, times: u32, records: &[Rec], expected: &str) {
    fault.begin(world, times).await;
    world.send(records).await;
    let running = world.start(CHARGE).await;
    running.outcomes(records.len(), expected).await;
    let tries = running.metric("retries_total", "transient");
    assert!(tries >= f64::from(times), "{} at {}: run again {tries} times", fault.code, fault.at);
    assert_eq!(world.dead_letters().await, [""; 0]);
    assert_eq!(world.receipt_ids().await.len() as i64, world.db.count("FROM countersign_inbox").await);
    running.stop().await;
    let end = by_engine(world, "DROP FUNCTION fail() CASCADE", "DROP TRIGGER fail");
    world.db.run(&format!("{end}; DROP SEQUENCE tries")).await;
}

/// Where, with which code and how often a transaction fails before it goes through. Two failures leave a batch whole,
/// at the third it is taken apart.
const ON_POSTGRES: &[(&str, &str, u32)] = &[
    (LEDGER, "40001", 2),
    (ACCOUNTS, "40P01", 1),
    (LEDGER, "55P03", 5),
    (LEDGER, "57014", 1),
    (ACCOUNTS, "53300", 2),
    (LEDGER, "25006", 3),
    (INBOX, "40001", 1),
    (INBOX, "40P01", 4),
];
const ON_MARIADB: &[(&str, &str, u32)] = &[
    (LEDGER, "1213", 2),
    (ACCOUNTS, "1213", 1),
    (LEDGER, "1205", 5),
    (ACCOUNTS, "1205", 2),
    (LEDGER, "1290", 3),
    (INBOX, "1213", 1),
    (INBOX, "1205", 4),
];

/// The row that the n-th payment writes there.
fn row_of(at: &str, n: usize) -> String {
    match at {
        LEDGER => format!("NEW.order_id = 'order-m-{n:04}'"),
        INBOX => format!("NEW.message_id = 'm-{n:04}'"),
        _ => "NEW.id = 'bob'".to_owned(),
    }
}

#[test]
fn a_transaction_that_fails_with_a_code_that_passes_is_run_again_and_books_once() {
    on(&SERVERS, |world| async move {
        world.db.run(TABLES).await;
        let faults = match world.db.engine {
            Engine::Postgres => ON_POSTGRES,
            Engine::MariaDb | Engine::Sqlite => ON_MARIADB,
        };
        for (round, &(at, code, times)) in faults.iter().enumerate() {
            let sent = round * 20;
            // Within its batch, the first of it, the last of it.
            let of = row_of(at, sent + [7, 0, 19][round % 3]);
            passes(&world, &Fault { at, of: &of, code }, times, &payments(sent..sent + 20), "applied=20").await;
            world.booked_once(sent + 20).await;
        }
    });
}

/// What aborted it was answered to nobody: all that is heard is that it is aborted.
#[test]
fn an_aborted_transaction_of_which_nobody_knows_the_cause_is_run_again() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        let of = row_of(LEDGER, 7);
        passes(&world, &Fault { at: LEDGER, of: &of, code: "25P02" }, 1, &payments(0..20), "applied=20").await;
        world.booked_once(20).await;
        // Behind a rejection the messages of a batch have a savepoint each.
        let records = [vec![payment("m-poor", "poor", 5).on(1)], payments(20..40)].concat();
        let of = row_of(LEDGER, 27);
        passes(&world, &Fault { at: LEDGER, of: &of, code: "25P02" }, 1, &records, "applied=20 rejected=1").await;
        world.booked_once(40).await;
    });
}

/// From now on the bookings of the orders that are listed in `faults` fail with this code.
async fn fail_as_listed(world: &World, code: &str) {
    world.db.run("CREATE TABLE faults (order_id VARCHAR(50) PRIMARY KEY)").await;
    let listed = "EXISTS (SELECT 1 FROM faults WHERE order_id = NEW.order_id)";
    Fault { at: LEDGER, of: listed, code }.begin_while(world, "TRUE").await;
}

#[test]
fn a_message_that_always_fails_is_found_and_named_and_goes_when_an_operator_skips_it() {
    for route in [CHARGE, BOOK] {
        on(&SERVERS, |world| async move {
            world.db.run(TABLES).await;
            fail_as_listed(&world, by_engine(&world, "40001", "1213")).await;
            world.db.run("INSERT INTO faults VALUES ('order-m-0007')").await;
            world.send(&payments(0..40)).await;
            let running = world.start(route).await;
            // It has offset 3 of partition 1: what stands before it, and the other partition.
            running.outcomes(23, "applied=23").await;
            let named = format!("record {}/1/3: ", world.topic);
            running.stands(Readiness::Degraded, &format!("{}/1 retrying: {named}", world.topic)).await;
            until("a row that says so", || async {
                let lanes = world.db.store.lanes(&world.name).await.unwrap();
                lanes[1].standing.as_deref().is_some_and(|why| why.contains(&named)).then_some(())
            })
            .await;
            // It is tried without end, at intervals that have one.
            let tries = || running.metric("retries_total", "transient");
            let before = tries();
            until("further tries", || async { (tries() >= before + 4.0).then_some(()) }).await;
            assert_eq!(running.counted(), "applied=23");
            assert_eq!(world.dead_letters().await, [""; 0]);
            assert_eq!(world.lane(1).await.unwrap().next_offset, 3);
            assert!(world.committed(1).is_none_or(|(offset, _)| offset <= 3), "{:?}", world.committed(1));

            assert!(world.skip_record(1).await);
            running.outcomes(40, "applied=39 parked=1").await;
            assert_eq!(world.dead_letters().await, ["3|m-0007|operator|SKIPPED_BY_OPERATOR"]);
            let mut ledger = world.ledger().await;
            ledger.sort();
            let others = (0..40).filter(|n| *n != 7).map(|n| format!("order-m-{n:04}"));
            assert_eq!(ledger, others.collect::<Vec<_>>());
            let taken = if route == CHARGE { 39 } else { 0 };
            assert_eq!(world.balance("bob").await, 100_000 - taken);
            assert!(world.pushed_in_short().await.contains(&"m-0007 FAILED SKIPPED_BY_OPERATOR".to_owned()));
            running.ready().await;
            running.stop().await;
        });
    }
}

const LANES: usize = 10;
const EACH: usize = 500;

/// A server at REPEATABLE READ locks the gaps between keys too, so that new ones beside each other would meet.
#[test]
fn new_ids_beside_each_other_from_ten_lanes_are_all_applied() {
    on(&SERVERS, |world| async move {
        if world.db.engine == Engine::MariaDb {
            assert_eq!(world.db.rows("@@GLOBAL.tx_isolation", "").await, ["REPEATABLE-READ"]);
        }
        world.db.run(TABLES).await;
        world.db.run("CREATE UNIQUE INDEX orders ON ledger (order_id)").await;
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let wide = format!("{}.wide", world.name);
        world.broker.create_topic(&wide, LANES as i32);
        for lane in 0..LANES {
            let account = format!("lane-{lane}");
            world.db.run(&format!("INSERT INTO accounts VALUES ('{account}', 1000)")).await;
            // Each one's neighbours are other lanes'.
            let mut numbers: Vec<usize> = (0..EACH).map(|n| n * LANES + lane).collect();
            numbers.shuffle(&mut random);
            let new = |n: &usize| payment(&format!("m-{n:04}"), &account, 1).on(lane as i32);
            world.broker.send(&wide, &numbers.iter().map(new).collect::<Vec<Rec>>()).await;
        }
        let text = world.config(CHARGE).replace(&world.topic, &wide);
        let text = text.replace("[store]\n", "[store]\nbatch = 50\npool = 12\n");
        let running = Running::start(&text);
        running.outcomes(LANES * EACH, &format!("applied={}", LANES * EACH)).await;
        println!("{:?}: {} transactions were run again", world.db.engine, running.metric("retries_total", ""));
        let mut ledger = world.ledger().await;
        ledger.sort();
        assert_eq!(ledger, (0..LANES * EACH).map(|n| format!("order-m-{n:04}")).collect::<Vec<_>>());
        let balances = world.db.rows("balance", "FROM accounts WHERE id LIKE 'lane-%'").await;
        assert_eq!(balances, vec![(1000 - EACH).to_string(); LANES]);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}

/// Four orders of bob on one partition, one of alice on the other. Of bob's, the one with the round's number is for
/// this quantity.
fn orders(round: usize, quantity: &str) -> Vec<Rec> {
    let order = |n: usize, account: &str, quantity: &str| {
        let value = format!(r#"{{"orderId":"order-{round}-{n}","account":"{account}","qty":{quantity}}}"#);
        Rec::new(format!("{round}-{n}"), value).key(account).header("source", "shop")
    };
    let mut orders: Vec<Rec> = (0..4).map(|n| order(n, "bob", if n == round { quantity } else { "3" })).collect();
    orders.push(order(4, "alice", "3").on(1));
    orders
}

fn by_quantity(route: &str) -> String {
    route.replace(":amount", ":qty")
}

async fn orders_of(world: &World, account: &str) -> Vec<String> {
    world.db.rows("order_id", &format!("FROM ledger WHERE account = '{account}' ORDER BY n")).await
}

/// Both partitions are done with after so many rounds, and the group knows it.
async fn at_the_end(world: &World, rounds: usize) {
    for (partition, each) in [(0, 4), (1, 1)] {
        let end = (each * rounds) as i64;
        assert_eq!(world.lane(partition).await.unwrap().next_offset, end);
        let arrived = || async { world.committed(partition).filter(|(offset, _)| *offset == end).map(drop) };
        until("the group's offset", arrived).await;
    }
}

#[test]
fn a_text_for_a_number_is_parked_wherever_it_stands_and_all_around_it_is_applied() {
    for route in [CHARGE, BOOK] {
        everywhere(|world| async move {
            world.db.run(TABLES).await;
            let (mut letters, mut booked) = (Vec::new(), Vec::<String>::new());
            for round in 0..4_usize {
                world.send(&orders(round, "\"three\"")).await;
                let running = world.start(&by_quantity(route)).await;
                running.outcomes(5, "applied=4 parked=1").await;
                at_the_end(&world, round + 1).await;
                running.stop().await;
                letters.push(format!("{}|{round}-{round}|poison|type_mismatch", 4 * round + round));
                assert_eq!(world.dead_letters().await, letters);
                booked.extend((0..4).filter(|n| *n != round).map(|n| format!("order-{round}-{n}")));
                assert_eq!(orders_of(&world, "bob").await, booked);
            }
            assert_eq!(
                orders_of(&world, "alice").await,
                (0..4).map(|round| format!("order-{round}-4")).collect::<Vec<_>>()
            );
            for reason in world.db.rows("reason", "FROM countersign_dead_letters").await {
                assert!(reason.contains("qty") && reason.contains("amount"), "{reason}");
            }
            let (of_bob, of_alice) = if route == CHARGE { (12 * 3, 4 * 3) } else { (0, 0) };
            assert_eq!(world.balance("bob").await, 100_000 - of_bob);
            assert_eq!(world.balance("alice").await, 1000 - of_alice);
        });
    }
}

#[test]
fn a_record_that_fails_for_a_while_holds_up_what_stands_behind_it_and_nothing_else() {
    on(&SERVERS, |world| async move {
        world.db.run(TABLES).await;
        fail_as_listed(&world, by_engine(&world, "57014", "1317")).await;
        let (mut booked, mut taken) = (Vec::<String>::new(), 0);
        // Message by message, where the one that failed is known, and set-based, where it is not.
        for (round, route) in [CHARGE, BOOK, CHARGE, BOOK].into_iter().enumerate() {
            world.db.run(&format!("INSERT INTO faults VALUES ('order-{round}-{round}')")).await;
            world.send(&orders(round, "3")).await;
            let running = world.start(&by_quantity(route)).await;
            let (before, at) = (format!("applied={}", round + 1), (4 * round + round) as i64);
            running.outcomes(round + 1, &before).await;
            booked.extend((0..round).map(|n| format!("order-{round}-{n}")));
            running.stands(Readiness::Degraded, &format!("record {}/0/{at}: ", world.topic)).await;
            let alice = || async { world.committed(1).filter(|(offset, _)| *offset == round as i64 + 1).map(drop) };
            until("the other lane's end", alice).await;
            stays(Duration::from_secs(1), "nothing behind it is done, nothing is parked", || async {
                world.committed(0).is_none_or(|(offset, _)| offset <= at)
                    && world.lane(0).await.unwrap().next_offset == at
                    && orders_of(&world, "bob").await == booked
                    && world.dead_letters().await.is_empty()
                    && running.counted() == before
            })
            .await;
            world.db.run("DELETE FROM faults").await;
            running.outcomes(5, "applied=5").await;
            at_the_end(&world, round + 1).await;
            booked.extend((round..4).map(|n| format!("order-{round}-{n}")));
            assert_eq!(orders_of(&world, "bob").await, booked, "once each, and in order");
            taken += if route == CHARGE { 4 * 3 } else { 0 };
            assert_eq!(world.balance("bob").await, 100_000 - taken);
            running.ready().await;
            running.stop().await;
        }
        assert_eq!(
            orders_of(&world, "alice").await,
            (0..4).map(|round| format!("order-{round}-4")).collect::<Vec<_>>()
        );
        assert_eq!(world.dead_letters().await, [""; 0]);
    });
}
