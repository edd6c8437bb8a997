//! Empty topics, large records, records of other kinds, no receipts topic.

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment, payments};
use crate::wait::{stays, until};
use crate::world::{Running, World, everywhere};
use countersign::store::dead_letters::Filter;
use countersign::supervisor::Readiness;

#[test]
fn an_empty_topic_is_ready_and_its_first_record_is_applied() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        until("both lanes", || async { (running.view.lanes.assigned().len() == 2).then_some(()) }).await;
        stays(std::time::Duration::from_secs(1), "ready", || async { running.reasons().0 == Readiness::Ready }).await;
        assert_eq!(running.counted(), "");
        world.send(&[payment("m-0", "bob", 1).on(1)]).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

/// The mock keeps 5 MB of a partition; the real suite has larger ones.
#[test]
fn a_record_of_four_megabytes_is_applied_and_its_neighbours_too() {
    everywhere(|world| async move {
        let long = if world.db.engine == Engine::MariaDb { "LONGTEXT" } else { "TEXT" };
        world.db.run(&format!("CREATE TABLE texts (n {{serial}}, id VARCHAR(20), body {long})")).await;
        let text =
            |id: &str, count: usize| Rec::new(id, format!(r#"{{"id":"{id}","body":"{}"}}"#, "\u{e9}x'".repeat(count)));
        let route = BOOK.replace(
            "INSERT INTO ledger (order_id, account, amount) VALUES (:orderId, :account, :amount)",
            "INSERT INTO texts (id, body) VALUES (:id, :body)",
        );
        let running = world.start(&route).await;
        for (n, record) in [text("small", 10), text("large", 1_000_000), text("after", 10)].into_iter().enumerate() {
            world.send(&[record]).await;
            running.outcomes(n + 1, &format!("applied={}", n + 1)).await;
        }
        let length = if world.db.engine == Engine::MariaDb { "char_length" } else { "length" };
        let rows = world.db.rows(&format!("id, {length}(body)"), "FROM texts ORDER BY n").await;
        assert_eq!(rows, ["small|30", "large|3000000", "after|30"]);
        running.stop().await;
    });
}

/// Record 40 of the 61 in each lane has 3.2 MiB; in one of them it cannot be read.
async fn a_large_record_in_each_lane(world: &World, config: &str) {
    world.db.run(TABLES).await;
    let filler = "x".repeat(3_355_443);
    let value = |id: &str| format!(r#"{{"orderId":"order-{id}","account":"bob","amount":1,"filler":"{filler}"}}"#);
    let (whole, mut broken) = (value("m-0080"), value("m-0081"));
    broken.pop();
    let mut records = payments(0..122);
    records[80].value = Some(whole.into_bytes());
    records[81].value = Some(broken.clone().into_bytes());
    world.send(&records).await;
    let running = Running::start(config);
    running.outcomes(122, "applied=121 parked=1").await;
    for partition in [0, 1] {
        assert_eq!(world.lane(partition).await.unwrap().next_offset, 61);
    }
    let mut ledger = world.ledger().await;
    ledger.sort();
    let booked = (0..122).filter(|n| *n != 81).map(|n| format!("order-m-{n:04}"));
    assert_eq!(ledger, booked.collect::<Vec<_>>());
    assert_eq!(world.dead_letters().await, ["40|m-0081|poison|undecodable"]);

    let store = &running.view.lookup.store;
    let letters = store.dead_letters(&world.name, &Filter { limit: 9, ..Filter::default() }).await.unwrap();
    let kept = store.dead_letter(&world.name, letters[0].id).await.unwrap().unwrap().value.unwrap();
    // Nobody wants to see what differs.
    assert!(kept == broken.as_bytes(), "{} of {} bytes", kept.len(), broken.len());
    let told = world.pushed_in_short().await;
    assert_eq!(told.len(), 122);
    assert_eq!(told[80..82], ["m-0080 SUCCESS -", "m-0081 FAILED undecodable"]);
    running.stop().await;
    assert_eq!([0, 1].map(|partition| world.committed(partition).unwrap().0), [61, 61]);
}

#[test]
fn a_large_record_is_applied_or_parked_with_all_its_bytes_and_its_neighbours_are_applied() {
    everywhere(|world| async move { a_large_record_in_each_lane(&world, &world.config(CHARGE)).await });
}

/// They bound what is fetched and committed beside it.
#[test]
fn limits_below_the_size_of_a_record_do_not_keep_it_out() {
    everywhere(|world| async move {
        let config = world
            .config(CHARGE)
            .replace("[kafka]\n", "[kafka]\nbuffer = \"64KiB\"\nbuffer_records = 10\n")
            .replace(
                "[kafka.options]\n",
                "[kafka.options]\n\"fetch.max.bytes\" = 1000000\n\"fetch.message.max.bytes\" = 100000\n",
            )
            .replace("[store]\n", "[store]\nbatch_bytes = \"64KiB\"\n");
        a_large_record_in_each_lane(&world, &config).await;
    });
}

#[test]
fn offsets_that_are_gone_from_the_broker_are_named_and_passed_over_or_stop_the_lane() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
        // The mock drops the start of its log for these; they were never read.
        let big = Rec::tombstone(vec![b'x'; 900_000]);
        world.send(&vec![big; 8]).await;
        world.send(&[payment("m-1", "bob", 1)]).await;

        let stop = world.config(CHARGE).replace("[kafka]\n", "[kafka]\non_lost_offsets = \"stop\"\n");
        let running = Running::start(&stop);
        running.stands(Readiness::Degraded, "are gone from the broker and were never processed").await;
        assert_eq!(running.counted(), "");
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 1);

        let running = world.start(CHARGE).await;
        until("the payment", || async { (world.ledger().await == ["order-m-0", "order-m-1"]).then_some(()) }).await;
        assert_eq!(running.metric("offset_events_total", "data_lost"), 1.0);
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 10);
    });
}

/// Retention took all that there was: there is no record whose offset would show the gap.
#[test]
fn a_log_that_is_emptied_under_a_running_lane_is_a_loss_that_is_named() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        let large = |id: &str| payment(id, "bob", 1).header("trace", vec![b'x'; 3_000_000]);
        world.send(&[large("m-0")]).await;
        running.outcomes(1, "applied=1").await;
        // The mock drops all of its log for this one, itself included.
        world.send(&[large("m-1")]).await;
        until("the loss", || async { (running.metric("offset_events_total", "data_lost") == 1.0).then_some(()) }).await;
        world.send(&[payment("m-2", "bob", 1)]).await;
        running.outcomes(2, "applied=2").await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-2"]);
        running.ready().await;
        running.stop().await;
        assert_eq!(world.committed(0).unwrap().0, 3);
    });
}

#[test]
fn records_that_are_no_business_events_are_skipped_without_receipts_or_rows() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let records = [
            Rec::tombstone("k"),
            Rec::bare(r#"{"ts_ms":1796000000000}"#).key(r#"{"serverName":"shop"}"#),
            Rec::bare(r#"{"status":"BEGIN","id":"5:9","event_count":null,"data_collections":null,"ts_ms":1}"#),
            payment("m-0", "bob", 1).header("kind", "x"),
            payment("m-1", "bob", 1).header("kind", "other"),
        ];
        world.send(&records).await;
        let running = world.start(&CHARGE.replace("\"TOPIC\" }", "\"TOPIC\", header.kind = \"x\" }")).await;
        let seen = running.outcomes(5, "applied=1 skipped=4").await;
        let mut reasons: Vec<&str> = seen.iter().filter_map(|one| one.reason.as_deref()).collect();
        reasons.sort_unstable();
        assert_eq!(reasons, ["heartbeat", "no_route", "tombstone", "transaction"]);
        assert_eq!(world.db.count("FROM countersign_inbox").await, 1);
        assert_eq!(world.pushed().await.len(), 1);
        running.stop().await;
    });
}

#[test]
fn unrouted_records_are_parked_where_the_pipeline_says_so() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[payment("m-0", "bob", 1).header("kind", "x"), payment("m-1", "bob", 1)]).await;
        let route = CHARGE.replace("\"TOPIC\" }", "\"TOPIC\", header.kind = \"x\" }");
        let text = world.config(&route).replace("[pipeline]\n", "[pipeline]\nunrouted = \"park\"\n");
        let running = Running::start(&text);
        running.outcomes(2, "applied=1 parked=1").await;
        assert_eq!(world.dead_letters().await, ["1|-|poison|no_route"]);
        running.stop().await;
    });
}

#[test]
fn without_a_receipts_topic_receipts_are_kept_and_served_and_not_pushed() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[payment("m-0", "bob", 1), payment("m-1", "poor", 1)]).await;
        let text = world.config(CHARGE).replace(&format!("[receipts]\ntopic = \"{}\"\n", world.receipts), "");
        let running = Running::start(&text);
        running.outcomes(2, "applied=1 rejected=1").await;
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0);
        assert_eq!(world.pushed().await, []);
        let receipt = running.view.lookup.receipts("m-1", None).await.unwrap().remove(0);
        assert_eq!(crate::world::in_short(&receipt), "m-1 FAILED INSUFFICIENT_FUNDS");
        running.stop().await;
    });
}
