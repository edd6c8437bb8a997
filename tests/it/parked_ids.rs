//! An id that came with a record which could not be read is taken: by its bytes, as any other id by its content.

use crate::broker::Rec;
use crate::payments::{CHARGE, TABLES, payment};
use crate::world::{Running, World, everywhere, in_short};
use countersign::store::dead_letters::Filter;

/// The values of all dead letters, in the order of their parking.
async fn kept(world: &World) -> Vec<Vec<u8>> {
    let letters = world.db.store.dead_letters(&world.name, &Filter { limit: 99, ..Filter::default() }).await.unwrap();
    let mut ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    ids.sort_unstable();
    let mut values = Vec::new();
    for id in ids {
        values.push(world.db.store.dead_letter(&world.name, id).await.unwrap().unwrap().value.unwrap());
    }
    values
}

async fn standing(running: &Running, id: &str) -> Vec<String> {
    running.view.lookup.receipts(id, None).await.unwrap().iter().map(in_short).collect()
}

#[test]
fn good_content_under_the_id_of_a_broken_record_is_a_conflict_and_the_broken_bytes_again_a_duplicate() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let broken = Rec::new("m-1", &b"{\"orderId\": \xff"[..]);
        let running = world.start(CHARGE).await;
        world.send(std::slice::from_ref(&broken)).await;
        running.outcomes(1, "parked=1").await;
        let good = payment("m-1", "bob", 1);
        world.send(&[good.clone(), payment("m-2", "bob", 1)]).await;
        running.outcomes(3, "applied=1 parked=1 conflict=1").await;
        world.send(&[broken.clone(), good.clone()]).await;
        let seen = running.seen(5).await;
        let outcomes: Vec<&str> = seen.iter().map(|one| one.outcome.as_str()).collect();
        assert_eq!(outcomes, ["parked", "conflict", "applied", "duplicate", "conflict"]);

        assert_eq!(world.ledger().await, ["order-m-2"]);
        assert_eq!(kept(&world).await, [broken.value.unwrap(), good.value.unwrap()], "each content once");
        let letters = world.dead_letters().await;
        assert!(letters[0].starts_with("0|m-1|poison|"), "{letters:?}");
        assert!(letters[1].starts_with("1|m-1|conflict|"), "{letters:?}");
        let receipts = world.pushed().await;
        let of_the_id: Vec<_> = receipts.iter().filter(|r| r.message_id.as_deref() == Some("m-1")).collect();
        assert_eq!(of_the_id.len(), 2, "{of_the_id:#?}");
        assert_ne!(of_the_id[0].receipt_id, of_the_id[1].receipt_id);
        assert_eq!(of_the_id.iter().filter(|receipt| in_short(receipt) == "m-1 FAILED CONFLICT").count(), 1);
        // What stands is the answer to the first one.
        let standing = standing(&running, "m-1").await;
        assert!(standing[0].starts_with("m-1 FAILED ") && standing[0] != "m-1 FAILED CONFLICT", "{standing:?}");
        running.stop().await;
    });
}

#[test]
fn two_broken_contents_under_one_id_in_one_batch_are_both_kept() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let first = Rec::new("m-1", &b"{\"a\": \x00\xff"[..]);
        let second = Rec::new("m-1", &b"{\"a\": \x00\xfe"[..]);
        world.send(&[first.clone(), payment("m-2", "bob", 1), second.clone(), first.clone()]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=1 duplicate=1 parked=1 conflict=1").await;
        assert_eq!(kept(&world).await, [first.value.unwrap(), second.value.unwrap()]);
        let letters = world.dead_letters().await;
        assert!(letters[0].starts_with("0|m-1|poison|") && letters[1].starts_with("2|m-1|conflict|"), "{letters:?}");
        let receipts = world.pushed_in_short().await;
        assert_eq!(receipts.iter().filter(|short| short.starts_with("m-1 FAILED ")).count(), 2, "{receipts:?}");
        running.stop().await;
    });
}

/// Of `{"id":1,"id":2}` nobody can say which one counts: none is taken, and neither message is harmed.
#[test]
fn a_name_that_stands_twice_gives_no_id_and_is_parked() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let value = |text: &str| Rec::bare(text.to_owned());
        world
            .send(&[
                value(r#"{"orderId":"m-1","account":"bob","amount":1,"orderId":"m-2"}"#),
                value(r#"{"orderId":"m-3","account":"bob","amount":1,"amount":100}"#),
                value(r#"{"orderId":"m-4","account":"bob","amount":1,"note":{"a":1,"a":1}}"#),
                value(r#"{"orderId":"m-2","account":"bob","amount":1}"#),
                // In a text it is the text's business.
                value(r#"{"orderId":"m-5","account":"bob","amount":1,"note":"{\"a\":1,\"a\":2}"}"#),
            ])
            .await;
        let running = world.start(&CHARGE.replace("header:id", "value:orderId")).await;
        running.outcomes(5, "applied=2 parked=3").await;
        let letters = world.dead_letters().await;
        assert!(letters.iter().all(|letter| letter.contains("undecodable") && !letter.contains("m-")), "{letters:?}");
        assert_eq!(world.ledger().await, ["m-2", "m-5"]);
        running.stop().await;
    });
}
