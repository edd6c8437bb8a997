//! A rejection is an answer: it undoes its own message and nothing else.

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::world::everywhere;

#[test]
fn a_rejection_undoes_its_own_message_and_the_neighbours_are_applied_in_order() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let payments = [
            payment("m-0", "bob", 1),
            payment("m-1", "poor", 5),
            payment("m-2", "bob", 2),
            payment("m-3", "nobody", 5),
            payment("m-4", "bob", 3),
        ];
        world.send(&payments).await;
        let running = world.start(CHARGE).await;
        running.outcomes(5, "applied=3 rejected=2").await;
        assert_eq!(
            world.ledger().await,
            ["order-m-0", "order-m-2", "order-m-4"],
            "the insert of a rejected one is undone"
        );
        assert_eq!(world.balance("bob").await, 100_000 - 6);
        assert_eq!(world.balance("poor").await, 0);
        assert_eq!(
            world.pushed_in_short().await,
            [
                "m-0 SUCCESS -",
                "m-1 FAILED INSUFFICIENT_FUNDS",
                "m-2 SUCCESS -",
                "m-3 FAILED INSUFFICIENT_FUNDS",
                "m-4 SUCCESS -",
            ]
        );
        assert_eq!(world.dead_letters().await, [""; 0], "an answer is no fault");
        // The answer stands: once more, with money on the account by now, it is a duplicate.
        world.db.run("UPDATE accounts SET balance = 50 WHERE id = 'poor'").await;
        world.send(&payments).await;
        running.outcomes(10, "applied=3 duplicate=5 rejected=2").await;
        assert_eq!(world.balance("poor").await, 50);
        assert_eq!(world.pushed().await.len(), 5);
        running.stop().await;
    });
}

#[test]
fn more_rejections_than_one_transaction_takes_savepoints_for_are_all_answered() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let who = |n: usize| if n % 3 == 1 { "poor" } else { "bob" };
        let payments: Vec<Rec> = (0..240).map(|n| payment(&format!("m-{n:03}"), who(n), 1)).collect();
        world.send(&payments).await;
        let running = world.start(CHARGE).await;
        running.outcomes(240, "applied=160 rejected=80").await;
        let booked: Vec<String> = (0..240).filter(|n| who(*n) == "bob").map(|n| format!("order-m-{n:03}")).collect();
        assert_eq!(world.ledger().await, booked);
        assert_eq!(world.balance("bob").await, 100_000 - 160);
        assert_eq!(world.pushed().await.len(), 240);
        assert_eq!(world.db.count("FROM countersign_inbox WHERE status = 'FAILED'").await, 80);
        running.stop().await;
    });
}

#[test]
fn two_payments_on_one_account_in_one_batch_book_twice_and_the_second_sees_the_first() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        // Alice has 1000: the third of these cannot be covered, the fourth can.
        world
            .send(&[
                payment("m-0", "alice", 400),
                payment("m-1", "alice", 500),
                payment("m-2", "alice", 200),
                payment("m-3", "alice", 100),
            ])
            .await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=3 rejected=1").await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-1", "order-m-3"]);
        assert_eq!(world.balance("alice").await, 0);
        running.stop().await;
    });
}

#[test]
fn otherwise_park_and_ignore_differ_from_reject_in_the_receipt_and_the_dead_letter() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let route = |name: &str, otherwise: &str| {
            format!(
                "[[route]]\nname = \"{name}\"\nmatch = {{ topic = \"TOPIC\", header.kind = \"{name}\" }}\n\
                 message_id = \"header:id\"\n[route.effect]\nkind = \"sql\"\n\
                 steps = [{{ sql = \"UPDATE accounts SET balance = balance + 1 WHERE id = :account\", \
                 expect_rows = 1, otherwise = \"{otherwise}\" }}, \
                 {{ sql = \"INSERT INTO ledger (order_id, account, amount) VALUES (:account, :account, 1)\" }}]\n"
            )
        };
        let routes = [route("rejects", "reject"), route("parks", "park"), route("ignores", "ignore")].concat();
        let to = |kind: &str, account: &str| {
            Rec::new(format!("{kind}-{account}"), format!(r#"{{"account":"{account}"}}"#)).header("kind", kind)
        };
        let kinds = ["rejects", "parks", "ignores"];
        let records: Vec<Rec> = kinds.iter().flat_map(|kind| [to(kind, "nobody"), to(kind, "bob")]).collect();
        world.send(&records).await;
        let running = world.start(&routes).await;
        running.outcomes(6, "applied=4 rejected=1 parked=1").await;
        assert_eq!(
            world.pushed_in_short().await,
            [
                "ignores-bob SUCCESS -",
                "ignores-nobody SUCCESS IGNORED",
                "parks-bob SUCCESS -",
                "parks-nobody FAILED ROWS",
                "rejects-bob SUCCESS -",
                "rejects-nobody FAILED ROWS",
            ]
        );
        assert_eq!(world.dead_letters().await, ["2|parks-nobody|poison|ROWS"]);
        assert_eq!(world.ledger().await, ["bob", "bob", "bob"], "later steps of an ignored one are not run");
        running.stop().await;
    });
}
