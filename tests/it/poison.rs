//! Records that cannot be applied are parked by themselves, with all that came; everything around them goes on.

use countersign::record_line::read_headers;
use countersign::store::dead_letters::Filter;

use crate::broker::Rec;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::world::everywhere;

#[test]
fn undecodable_bytes_are_parked_byte_for_byte_and_once() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let bytes = b"\x00\xff{\"orderId\": \xfe".to_vec();
        let poison = Rec::bare(bytes.clone()).key(&b"\x01\x80key"[..]).header("trace", &b"\xc3\x28"[..]);
        world.send(&[payment("m-0", "bob", 1), poison.clone(), payment("m-1", "bob", 1)]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(3, "applied=2 parked=1").await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-1"]);
        let letters =
            running.view.lookup.store.dead_letters(&world.name, &Filter { limit: 9, ..Filter::default() }).await;
        let letter = letters.unwrap().remove(0);
        assert_eq!((letter.offset, letter.message_id, letter.status.as_str()), (1, None, "open"));
        let kept = running.view.lookup.store.dead_letter(&world.name, letter.id).await.unwrap().unwrap();
        assert_eq!(kept.value, Some(bytes));
        assert_eq!(kept.key.as_deref(), Some(&b"\x01\x80key"[..]));
        let headers = read_headers(&kept.headers).unwrap();
        assert_eq!((headers[0].name.as_str(), headers[0].value.as_deref()), ("trace", Some(&b"\xc3\x28"[..])));

        let receipts = world.pushed().await;
        let parked: Vec<_> = receipts.iter().filter(|receipt| receipt.message_id.is_none()).collect();
        assert_eq!(parked.len(), 1);
        assert_eq!(parked[0].position.offset, 1);
        running.stop().await;
        let committed = world.committed(0).unwrap();
        assert_eq!(committed.0, 3, "the offset goes on");

        // An operator reads the log again: the same place is the same poison.
        world.broker.commit(&world.name, &world.topic, 0, 0, "");
        let running = world.start(CHARGE).await;
        running.outcomes(3, "duplicate=3").await;
        assert_eq!(world.dead_letters().await.len(), 1);
        assert_eq!(world.pushed().await.len(), 3);
        running.stop().await;
    });
}

#[test]
fn ids_that_cannot_be_used_park_their_records_alone() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let value = r#"{"orderId":"o","account":"bob","amount":1}"#;
        let bad: Vec<(Rec, &str)> = vec![
            (Rec::bare(value), "id_missing"),
            (Rec::new("", value), "id_empty"),
            (Rec::new(" \t ", value), "id_blank"),
            (Rec::new("x".repeat(1001), value), "id_too_long"),
            (Rec::new("a\0b", value), "id_not_text"),
            (Rec::new(&b"\xff\xfe"[..], value), "id_not_text"),
            (Rec::new("a", value).header("id", "b"), "id_ambiguous"),
        ];
        let mut records = Vec::new();
        for (n, (record, _)) in bad.iter().enumerate() {
            records.push(payment(&format!("m-{n}"), "bob", 1));
            records.push(record.clone());
        }
        world.send(&records).await;
        let running = world.start(CHARGE).await;
        running.outcomes(14, "applied=7 parked=7").await;
        let expected: Vec<String> =
            bad.iter().enumerate().map(|(n, (_, code))| format!("{}|-|poison|{code}", 2 * n + 1)).collect();
        assert_eq!(world.dead_letters().await, expected);
        assert_eq!(world.ledger().await, (0..7).map(|n| format!("order-m-{n}")).collect::<Vec<_>>());
        let receipts = world.pushed().await;
        assert_eq!(receipts.len(), 14);
        assert_eq!(receipts.iter().filter(|receipt| receipt.message_id.is_none()).count(), 7);
        let mut ids: Vec<&str> = receipts.iter().map(|receipt| receipt.receipt_id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 14, "records without an id are told apart");
        running.stop().await;
    });
}

/// Values that the column cannot hold, in the middle of a batch of 500; once set-based and once message by message.
#[test]
fn a_value_that_the_column_cannot_hold_is_parked_and_the_batch_is_applied_in_order() {
    everywhere(|world| async move {
        world
            .db
            .run(
                "CREATE TABLE ledger (n {serial}, order_id VARCHAR(20) NOT NULL CHECK (length(order_id) <= 20), \
                 account VARCHAR(50) NOT NULL, amount BIGINT NOT NULL CHECK (amount < 1000));
                 CREATE TABLE accounts (id VARCHAR(50) PRIMARY KEY, balance BIGINT NOT NULL);
                 INSERT INTO accounts VALUES ('bob', 100000), ('carol', 100000);",
            )
            .await;
        let value = |n: usize, account: &str| match n {
            250 => format!(r#"{{"orderId":"{}","account":"{account}","amount":1}}"#, "y".repeat(21)),
            251 => r#"{"orderId":"o","account":null,"amount":1}"#.to_owned(),
            333 => format!(r#"{{"orderId":"o","account":"{account}","amount":5000}}"#),
            _ => format!(r#"{{"orderId":"{n}","account":"{account}","amount":1}}"#),
        };
        let records: Vec<Rec> = (0..500).map(|n| Rec::new(format!("m-{n}"), value(n, "bob"))).collect();
        let by_steps: Vec<Rec> =
            (0..500).map(|n| Rec::new(format!("s-{n}"), value(n, "carol")).on(1).header("kind", "s")).collect();
        world.send(&records).await;
        world.send(&by_steps).await;
        let steps = CHARGE.replace("topic = \"TOPIC\"", "topic = \"TOPIC\", header.kind = \"s\"");
        let running = world.start(&[steps.as_str(), BOOK].concat()).await;
        running.outcomes(1000, "applied=994 parked=6").await;
        let good: Vec<String> = (0..500).filter(|n| ![250, 251, 333].contains(n)).map(|n| n.to_string()).collect();
        for account in ["bob", "carol"] {
            let booked =
                world.db.rows("order_id", &format!("FROM ledger WHERE account = '{account}' ORDER BY n")).await;
            assert_eq!(booked, good, "{account}");
        }
        let mut letters = world.dead_letters().await;
        letters.sort();
        let offsets: Vec<&str> = letters.iter().map(|letter| letter.split('|').next().unwrap()).collect();
        assert_eq!(offsets, ["250", "250", "251", "251", "333", "333"]);
        for partition in [0, 1] {
            assert_eq!(world.lane(partition).await.unwrap().next_offset, 500);
        }
        running.stop().await;
    });
}
