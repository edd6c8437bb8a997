//! `order = "key"`: a message that cannot be applied holds up those of its own record key, and no others.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::{Running, World, everywhere};

/// A payment whose account may come later.
const BOOK: &str = r#"
[retry]
attempts = 1000
delay = "100ms"
max_delay = "200ms"
[[route]]
name = "book"
match = { topic = "TOPIC", header.kind = "book" }
message_id = "header:id"
order = "key"
[route.effect]
kind = "sql"
steps = [
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :account", expect_rows = 1, otherwise = "retry" },
  { sql = "INSERT INTO ledger (order_id, account, amount) VALUES (:orderId, :account, :amount)" },
]
[[route]]
name = "open"
match = { topic = "TOPIC", header.kind = "open" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO accounts (id, balance) VALUES (:account, 0)" }]
"#;

fn book(id: &str, account: &str) -> Rec {
    payment(id, account, 1).header("kind", "book")
}

/// Under a key of its own: it would wait behind those that wait for it.
fn open(account: &str) -> Rec {
    Rec::new(format!("open-{account}"), format!(r#"{{"account":"{account}"}}"#)).header("kind", "open")
}

async fn booked(world: &World, account: &str) -> Vec<String> {
    world.db.rows("order_id", &format!("FROM ledger WHERE account = '{account}' ORDER BY n")).await
}

#[test]
fn those_behind_a_message_that_waits_follow_it_in_order_and_no_other_key_waits() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(BOOK).await;
        world.send(&[book("a1", "late"), book("b1", "bob"), book("a2", "late"), book("b2", "bob")]).await;
        running.outcomes(4, "applied=2 parked=2").await;
        world.send(&[book("a3", "late"), book("b3", "bob"), book("a1", "late")]).await;
        running.outcomes(7, "applied=3 duplicate=1 parked=3").await;
        assert_eq!(world.ledger().await, ["order-b1", "order-b2", "order-b3"]);
        running.stop().await;

        let running = world.start(BOOK).await;
        world.send(&[open("late"), book("a4", "late")]).await;
        until("all of the account", || async { (booked(&world, "late").await.len() == 4).then_some(()) }).await;
        assert_eq!(booked(&world, "late").await, ["order-a1", "order-a2", "order-a3", "order-a4"]);
        assert_eq!(world.balance("late").await, -4);
        assert_eq!(world.dead_letters().await, [""; 0]);
        let last = world.pushed_in_short().await;
        for id in ["a1", "a2", "a3", "a4"] {
            assert!(last.contains(&format!("{id} SUCCESS -")), "{last:?}");
        }
        running.stop().await;
    });
}

/// Of one batch, the route that waits goes message by message, the other one set-based.
#[test]
fn a_key_is_held_up_across_routes() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.db.run("CREATE TABLE notes (n {serial}, id VARCHAR(20) NOT NULL)").await;
        let note = r#"
[[route]]
name = "note"
match = { topic = "TOPIC", header.kind = "note" }
message_id = "header:id"
order = "key"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO notes (id) VALUES (:meta.messageId)" }]
"#;
        let noted = |id: &str, key: &str| Rec::new(id, "{}").key(key).header("kind", "note");
        world.send(&[book("a1", "late"), noted("n1", "late"), noted("n2", "bob"), book("b1", "bob")]).await;
        let running = world.start(&[BOOK, note].concat()).await;
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(world.db.rows("id", "FROM notes").await, ["n2"]);
        world.send(&[open("late")]).await;
        until("the note", || async { (world.db.count("FROM notes").await == 2).then_some(()) }).await;
        assert_eq!(booked(&world, "late").await, ["order-a1"]);
        running.stop().await;
    });
}

#[test]
fn what_stands_behind_a_message_that_is_given_up_goes_on() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(&BOOK.replace("attempts = 1000", "attempts = 3")).await;
        world.send(&[book("a1", "late"), book("a2", "late"), book("b1", "bob")]).await;
        running.outcomes(3, "applied=1 parked=2").await;
        until("the first one's end", || async { (!world.dead_letters().await.is_empty()).then_some(()) }).await;
        world.send(&[open("late")]).await;
        until("an end", || async {
            (world.db.count("FROM countersign_inbox WHERE status = 'WAITING'").await == 0).then_some(())
        })
        .await;
        let inbox = world.inbox().await;
        assert!(inbox.iter().any(|row| row.starts_with("a1|FAILED")), "{inbox:?}");
        assert!(inbox.iter().any(|row| row.starts_with("a2|")), "{inbox:?}");
        running.stop().await;
    });
}

#[test]
fn a_row_that_a_rival_holds_holds_up_its_own_key_alone() {
    everywhere(|world| async move {
        if world.db.engine == crate::database::Engine::Sqlite {
            // One writer at a time: a rival holds up everything.
            return;
        }
        world.db.run(TABLES).await;
        let keyed = CHARGE.replace("message_id", "order = \"key\"\nmessage_id");
        let text = world.config(&keyed).replace(
            "[store]\n",
            "[retry]\ndelay = \"200ms\"\nmax_delay = \"300ms\"\n[store]\ntransaction_timeout = \"1s\"\n",
        );
        let mut rival = world.db.store.begin().await.unwrap();
        rival.batch("UPDATE accounts SET balance = balance + 1000 WHERE id = 'bob'").await.unwrap();
        let records: Vec<Rec> = (0..40)
            .map(|n| payment(&format!("m-{n:02}"), if n == 5 || n == 30 { "bob" } else { "alice" }, 1))
            .collect();
        world.send(&records).await;
        let running = Running::start(&text);
        let holding = async {
            // The server ends a transaction that asks nothing.
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                rival.batch("UPDATE accounts SET balance = balance WHERE id = 'bob'").await.unwrap();
            }
        };
        tokio::select! {
            () = holding => {}
            _ = running.outcomes(40, "applied=38 parked=2") => {}
        }
        assert_eq!(booked(&world, "alice").await.len(), 38);
        rival.commit().await.unwrap();
        until("those of bob", || async { (booked(&world, "bob").await.len() == 2).then_some(()) }).await;
        assert_eq!(booked(&world, "bob").await, ["order-m-05", "order-m-30"]);
        assert_eq!(world.balance("bob").await, 101_000 - 2);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.ready().await;
        running.stop().await;
    });
}

/// Accounts open and messages come in any order, batches begin and end anywhere, the daemon is started again: each
/// account's payments are booked in the order in which they were sent.
#[test]
fn every_key_keeps_its_order_whatever_waits() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut sent: Vec<Vec<String>> = vec![Vec::new(); 6];
        let mut unopened: Vec<usize> = (0..6).collect();
        for _ in 0..3 {
            let small = random.random_range(1..40);
            let text = world.config(BOOK).replace("[store]\n", &format!("[store]\nbatch = {small}\n"));
            let running = Running::start(&text);
            for _ in 0..4 {
                let mut batch = Vec::new();
                for _ in 0..20 {
                    let n = random.random_range(0..6);
                    let id = format!("k{n}-{}", sent[n].len());
                    batch.push(book(&id, &format!("acc{n}")));
                    sent[n].push(format!("order-{id}"));
                }
                world.send(&batch).await;
                tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
                if !unopened.is_empty() && random.random_bool(0.5) {
                    let n = unopened.remove(random.random_range(0..unopened.len()));
                    world.send(&[open(&format!("acc{n}"))]).await;
                }
            }
            running.stop().await;
        }
        let running = world.start(BOOK).await;
        world.send(&unopened.iter().map(|n| open(&format!("acc{n}"))).collect::<Vec<_>>()).await;
        world.booked(240).await;
        for (n, expected) in sent.iter().enumerate() {
            assert_eq!(booked(&world, &format!("acc{n}")).await, *expected);
        }
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}
