//! Each message takes effect once and gets one receipt, however often it comes.

use countersign::receipt::ReceiptStatus;

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::world::{everywhere, in_short};

#[test]
fn each_message_is_applied_once_with_one_receipt_on_the_topic_and_by_lookup() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let ids: Vec<String> = (0..40).map(|n| format!("m-{n:02}")).collect();
        let records: Vec<Rec> = ids.iter().enumerate().map(|(n, id)| payment(id, "bob", 7).on(n as i32 % 2)).collect();
        world.send(&records).await;
        let running = world.start(CHARGE).await;
        running.outcomes(40, "applied=40").await;

        let mut ledger = world.ledger().await;
        ledger.sort();
        assert_eq!(ledger, ids.iter().map(|id| format!("order-{id}")).collect::<Vec<_>>());
        assert_eq!(world.balance("bob").await, 100_000 - 40 * 7);

        let pushed = world.pushed().await;
        assert_eq!(pushed.len(), 40);
        for id in &ids {
            let mine: Vec<_> = pushed.iter().filter(|receipt| receipt.message_id.as_deref() == Some(id)).collect();
            assert_eq!(mine.len(), 1, "{id}");
            assert_eq!(mine[0].status, ReceiptStatus::Success);
            assert_eq!(mine[0].version, 1);
            assert_eq!(mine[0].correlation_id.as_deref(), Some(&*format!("order-{id}")));
            assert_eq!(mine[0].source_app.as_deref(), Some("shop"));
            let looked_up = running.view.lookup.receipts(id, None).await.unwrap();
            assert_eq!(looked_up, [(*mine[0]).clone()], "the row rebuilds the receipt that was pushed");
        }
        let by_order = running.view.lookup.by_correlation("order-m-07", 10).await.unwrap();
        assert_eq!(by_order.iter().map(in_short).collect::<Vec<_>>(), ["m-07 SUCCESS -"]);
        running.stop().await;
    });
}

#[test]
fn duplicates_at_new_offsets_apply_once_and_enqueue_nothing() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let first: Vec<Rec> = (0..20).map(|n| payment(&format!("m-{n}"), "bob", 5)).collect();
        // Within one batch, across batches, on another partition, and written otherwise with the same content.
        world.send(&first).await;
        world.send(&first).await;
        let running = world.start(CHARGE).await;
        running.outcomes(40, "applied=20 duplicate=20").await;
        assert_eq!(world.pushed().await.len(), 20);
        let elsewhere: Vec<Rec> = first.iter().map(|record| record.clone().on(1)).collect();
        world.send(&elsewhere).await;
        let reordered = r#" {"amount":5, "account":"bob", "orderId":"order-m-3"}"#;
        world.send(&[Rec::new("m-3", reordered)]).await;
        running.outcomes(61, "applied=20 duplicate=41").await;

        assert_eq!(world.ledger().await.len(), 20);
        assert_eq!(world.balance("bob").await, 100_000 - 20 * 5);
        assert_eq!(world.db.count("FROM countersign_inbox").await, 20);
        assert_eq!(world.pushed().await.len(), 20);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}

#[test]
fn the_same_id_with_other_content_is_a_conflict_that_is_told_and_parked_once() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-1", "bob", 10)]).await;
        running.outcomes(1, "applied=1").await;
        let before = world.db.rows("message_id, status, code, digest, kafka_offset", "FROM countersign_inbox").await;

        let other = payment("m-1", "bob", 99);
        world.send(&[other.clone(), other.clone(), payment("m-2", "bob", 1)]).await;
        running.outcomes(4, "applied=2 conflict=2").await;
        world.send(&[other.clone(), other.on(1), payment("m-1", "bob", 77)]).await;
        running.outcomes(7, "applied=2 conflict=5").await;

        assert_eq!(world.ledger().await, ["order-m-1", "order-m-2"]);
        assert_eq!(world.balance("bob").await, 100_000 - 11);
        let from = "FROM countersign_inbox WHERE message_id = 'm-1'";
        assert_eq!(world.db.rows("message_id, status, code, digest, kafka_offset", from).await, before);
        assert_eq!(world.dead_letters().await.len(), 2, "one for each other content");
        let pushed = world.pushed().await;
        let mut short: Vec<String> = pushed.iter().map(in_short).collect();
        short.sort();
        assert_eq!(short, ["m-1 FAILED CONFLICT", "m-1 FAILED CONFLICT", "m-1 SUCCESS -", "m-2 SUCCESS -"]);
        let mut ids: Vec<&str> = pushed.iter().map(|receipt| receipt.receipt_id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4, "a conflict's receipt has an id of its own");
        let standing = running.view.lookup.receipts("m-1", None).await.unwrap();
        assert_eq!(standing.iter().map(in_short).collect::<Vec<_>>(), ["m-1 SUCCESS -"]);
        running.stop().await;
    });
}

#[test]
fn a_conflict_inside_one_batch_is_judged_against_the_first_one() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world
            .send(&[
                payment("m-1", "bob", 10),
                payment("m-1", "bob", 99),
                payment("m-1", "bob", 10),
                payment("m-1", "bob", 99),
            ])
            .await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=1 duplicate=1 conflict=2").await;
        assert_eq!(world.balance("bob").await, 100_000 - 10);
        assert_eq!(world.dead_letters().await, ["1|m-1|conflict|conflict"]);
        assert_eq!(world.pushed_in_short().await, ["m-1 FAILED CONFLICT", "m-1 SUCCESS -"]);
        running.stop().await;
    });
}

#[test]
fn a_digest_over_named_fields_leaves_the_others_out() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let route =
            CHARGE.replace("[route.effect]", "digest = { include = [\"orderId\", \"amount\"] }\n[route.effect]");
        let running = world.start(&route).await;
        let value =
            |amount: i64, note: &str| format!(r#"{{"orderId":"o","account":"bob","amount":{amount},"note":"{note}"}}"#);
        world
            .send(&[Rec::new("m-1", value(3, "a")), Rec::new("m-1", value(3, "b")), Rec::new("m-1", value(4, "a"))])
            .await;
        running.outcomes(3, "applied=1 duplicate=1 conflict=1").await;
        running.stop().await;
    });
}
