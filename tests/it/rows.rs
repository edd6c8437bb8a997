//! The `table` effect: changes of a source table applied to a target by its key.

use serde_json::{Value, json};

use crate::broker::Rec;
use crate::wait::until;
use crate::world::everywhere;

/// A change of the source table `shop.orders` at this place of the origin's log.
pub fn change(op: &str, lsn: i64, before: Value, after: Value) -> Rec {
    change_of("shop-pg", op, lsn, before, after)
}

pub fn change_of(connector: &str, op: &str, lsn: i64, before: Value, after: Value) -> Rec {
    let snapshot = if op == "r" { "true" } else { "false" };
    let row = if after.is_null() { &before } else { &after };
    let key = row.get("id").map(|id| json!({ "id": id }));
    let value = json!({
        "op": op, "before": before, "after": after, "ts_ms": 1_796_000_000_000_i64 + lsn,
        "source": {
            "version": "3.3.2.Final", "connector": "postgresql", "name": connector, "ts_ms": 1_796_000_000_000_i64,
            "snapshot": snapshot, "db": "shop", "schema": "public", "table": "orders", "txId": lsn, "lsn": lsn,
        },
    });
    let record = Rec::bare(value.to_string());
    match key {
        Some(key) => record.key(key.to_string()),
        None => record,
    }
}

pub const TABLE: &str =
    "CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, status VARCHAR(20), note VARCHAR(50), amount BIGINT);";

pub fn route(more: &str) -> String {
    format!(
        "[[route]]\nname = \"mirror\"\nmatch = {{ topic = \"TOPIC\" }}\nmessage_id = \"source\"\n{}\n[route.effect]\n\
         kind = \"table\"\ntable = \"orders_copy\"\nkey = [\"id\"]\n{}",
        more.split("---").next().unwrap(),
        more.split("---").nth(1).unwrap_or_default()
    )
}

const NULL: Value = Value::Null;

#[test]
fn reads_creates_updates_and_deletes_are_applied_by_key() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        world
            .send(&[
                change("r", 10, NULL, json!({"id": 1, "status": "old", "note": "n", "amount": 5})),
                change("c", 20, NULL, json!({"id": 2, "status": "new", "note": "n", "amount": 6})),
                change("u", 30, json!({"id": 1}), json!({"id": 1, "status": "paid", "note": "n", "amount": 5})),
                change("c", 40, NULL, json!({"id": 3, "status": "new", "note": null, "amount": null})),
                change("d", 50, json!({"id": 2, "status": null, "note": null, "amount": null}), NULL),
                Rec::tombstone(r#"{"id":2}"#),
                // An update of a row that is not there is its first sight.
                change("u", 60, NULL, json!({"id": 4, "status": "late", "note": "x", "amount": 1})),
            ])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(7, "applied=6 skipped=1").await;
        let rows = world.db.rows("id, status, note, amount", "FROM orders_copy ORDER BY id").await;
        assert_eq!(rows, ["1|paid|n|5", "3|new|-|-", "4|late|x|1"]);
        assert_eq!(world.pushed().await.len(), 6);
        running.stop().await;
    });
}

#[test]
fn a_connector_that_emits_everything_again_changes_nothing() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        // Three rows of one statement share an LSN.
        let row = |id: i64| json!({"id": id, "status": "a", "note": "n", "amount": id});
        let records = [change("c", 20, NULL, row(1)), change("c", 20, NULL, row(2)), change("c", 20, NULL, row(3))];
        world.send(&records).await;
        let running = world.start(&route("")).await;
        running.outcomes(3, "applied=3").await;
        world.db.run("UPDATE orders_copy SET status = 'touched'").await;
        let again: Vec<Rec> = records
            .iter()
            .map(|record| {
                let text = String::from_utf8(record.value.clone().unwrap()).unwrap();
                Rec { value: Some(text.replace("1796000000020", "1796000999999").into()), ..record.clone() }
            })
            .collect();
        world.send(&again).await;
        running.outcomes(6, "applied=3 duplicate=3").await;
        assert_eq!(world.db.count("FROM orders_copy WHERE status = 'touched'").await, 3);
        running.stop().await;
    });
}

#[test]
fn an_absent_field_and_an_unavailable_one_leave_their_columns_alone() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let toast = "__debezium_unavailable_value";
        world
            .send(&[
                change("c", 10, NULL, json!({"id": 1, "status": "new", "note": "long text", "amount": 5})),
                change("u", 20, NULL, json!({"id": 1, "status": "paid", "note": toast, "amount": 6})),
                change("u", 30, NULL, json!({"id": 1, "amount": 7})),
                // Not there: the value is nowhere to be had.
                change("u", 40, NULL, json!({"id": 2, "status": "x", "note": toast, "amount": 6})),
                change("u", 50, NULL, json!({"id": 1, "status": "of __debezium_u"})),
            ])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(5, "applied=4 parked=1").await;
        let rows = world.db.rows("id, status, note, amount", "FROM orders_copy ORDER BY id").await;
        assert_eq!(rows, ["1|of __debezium_u|long text|7"]);
        assert!(world.dead_letters().await[0].ends_with("|poison|unavailable"));
        running.stop().await;
    });
}

#[test]
fn a_composite_key_and_renamed_columns() {
    everywhere(|world| async move {
        world
            .db
            .run("CREATE TABLE orders_copy (shop BIGINT, no BIGINT, state VARCHAR(20), PRIMARY KEY (shop, no));")
            .await;
        let row = |shop: i64, no: i64, status: &str| json!({"shop": shop, "id": no, "status": status});
        world
            .send(&[
                change("c", 10, NULL, row(1, 1, "a")),
                change("c", 20, NULL, row(1, 2, "b")),
                change("c", 30, NULL, row(2, 1, "c")),
                change("u", 40, NULL, row(1, 2, "d")),
                change("d", 50, row(2, 1, "c"), NULL),
            ])
            .await;
        let config =
            route("---rename = { no = \"id\", state = \"status\" }\n").replace("[\"id\"]", "[\"shop\", \"no\"]");
        let running = world.start(&config).await;
        running.outcomes(5, "applied=5").await;
        assert_eq!(world.db.rows("shop, no, state", "FROM orders_copy ORDER BY shop, no").await, ["1|1|a", "1|2|d"]);
        running.stop().await;
    });
}

#[test]
fn a_delete_needs_no_row_before_it_but_a_key() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        world.db.run("INSERT INTO orders_copy VALUES (1, 'a', 'n', 1), (2, 'a', 'n', 1), (3, 'a', 'n', 1)").await;
        let keyless = Rec { key: None, ..change("d", 30, NULL, NULL) };
        world
            .send(&[
                change("d", 10, NULL, NULL).key(r#"{"id":1}"#),
                change("d", 20, json!({"id": 2, "status": null, "note": null, "amount": null}), NULL),
                keyless,
            ])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(3, "applied=2 parked=1").await;
        assert_eq!(world.db.rows("id", "FROM orders_copy").await, ["3"]);
        running.stop().await;
    });
}

#[test]
fn a_column_that_the_target_lacks_stops_the_lane_until_it_is_added_or_is_passed_over() {
    everywhere(|world| async move {
        world.db.run("CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, status VARCHAR(20));").await;
        world.send(&[change("c", 10, NULL, json!({"id": 1, "status": "a", "note": "n", "amount": 5}))]).await;
        let running = world.start(&route("---unknown_columns = \"ignore\"\n")).await;
        running.outcomes(1, "applied=1").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy").await, ["1|a"]);
        running.stop().await;
        let running = world.start(&route("")).await;
        world.send(&[change("u", 20, NULL, json!({"id": 1, "status": "b", "note": "m", "amount": 6}))]).await;
        until("a stopped lane", || async { running.reasons().1.iter().any(|r| r.contains("note")).then_some(()) })
            .await;
        assert_eq!(world.dead_letters().await, [""; 0]);
        world.db.run("ALTER TABLE orders_copy ADD COLUMN note VARCHAR(50); ALTER TABLE orders_copy ADD COLUMN amount BIGINT;").await;
        running.outcomes(1, "applied=1").await;
        assert_eq!(world.db.rows("id, status, note, amount", "FROM orders_copy").await, ["1|b|m|6"]);
        running.stop().await;
    });
}

#[test]
fn a_truncate_does_what_its_policy_says_and_once() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let row = |id: i64| json!({"id": id, "status": "a", "note": "n", "amount": 1});
        let truncate = |lsn: i64| Rec { key: None, ..change("t", lsn, NULL, NULL) };
        let running = world.start(&route("")).await;
        world.send(&[change("c", 10, NULL, row(1)), truncate(20), change("c", 30, NULL, row(2))]).await;
        running.outcomes(3, "applied=2 skipped=1").await;
        assert_eq!(world.db.count("FROM orders_copy").await, 2);
        running.stop().await;

        let running = world.start(&route("truncate = \"apply\"---")).await;
        world.send(&[truncate(40), change("c", 50, NULL, row(3)), truncate(40)]).await;
        running.outcomes(3, "applied=2 duplicate=1").await;
        assert_eq!(world.db.rows("id", "FROM orders_copy").await, ["3"]);
        running.stop().await;

        let running = world.start(&route("truncate = \"park\"---")).await;
        world.send(&[truncate(60), change("c", 70, NULL, row(4)), truncate(60)]).await;
        running.outcomes(3, "applied=1 duplicate=1 parked=1").await;
        assert_eq!(world.db.count("FROM orders_copy").await, 2);
        running.stop().await;
    });
}

#[test]
fn a_row_that_meets_another_unique_column_is_passed_over_where_that_is_ignored() {
    everywhere(|world| async move {
        world.db.run("CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, status VARCHAR(20) UNIQUE);").await;
        let row = |id: i64, status: &str| json!({"id": id, "status": status});
        world
            .send(&[
                change("c", 10, NULL, row(1, "a")),
                change("c", 20, NULL, row(2, "a")),
                change("c", 30, NULL, row(3, "b")),
                change("u", 40, NULL, row(3, "a")),
                change("c", 50, NULL, row(4, "c")),
            ])
            .await;
        let running = world.start(&route("---guard = \"source\"\non_unique = \"ignore\"\n")).await;
        running.outcomes(5, "applied=5").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy ORDER BY id").await, ["1|a", "3|b", "4|c"]);
        let inbox = world.db.rows("kafka_offset, status, code", "FROM countersign_inbox ORDER BY kafka_offset").await;
        assert_eq!(inbox, ["0|SUCCESS|-", "1|SUCCESS|IGNORED", "2|SUCCESS|-", "3|SUCCESS|IGNORED", "4|SUCCESS|-"]);
        let ignored = world.pushed_in_short().await.iter().filter(|short| short.ends_with(" SUCCESS IGNORED")).count();
        assert_eq!(ignored, 2);
        assert_eq!(world.dead_letters().await, [""; 0]);
        world.send(&[change("c", 60, NULL, row(5, "d"))]).await;
        running.outcomes(6, "applied=6").await;
        running.ready().await;
        running.stop().await;
    });
}
