//! `guard = "source"`: what is older at the origin never overwrites what is newer.

use std::time::Duration;

use countersign::store::row_versions::RowVersion;
use serde_json::{Value, json};

use crate::database::Engine;
use crate::rows::{TABLE, change, change_of, route};
use crate::world::{everywhere, on};

const NULL: Value = Value::Null;

fn row(id: i64, status: &str) -> Value {
    json!({"id": id, "status": status, "note": "n", "amount": 1})
}

#[test]
fn an_older_change_is_stale_whether_in_the_same_batch_or_later() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        world
            .send(&[
                change("c", 100, NULL, row(1, "first")),
                change("u", 300, NULL, row(1, "third")),
                change("u", 200, NULL, row(1, "second")),
                change("c", 150, NULL, row(2, "other row")),
            ])
            .await;
        let running = world.start(&route("---guard = \"source\"\n")).await;
        running.outcomes(4, "applied=3 skipped=1").await;
        world.send(&[change("u", 250, NULL, row(1, "late")), change("u", 400, NULL, row(1, "fourth"))]).await;
        let seen = running.outcomes(6, "applied=4 skipped=2").await;
        assert_eq!(seen[4].reason.as_deref(), Some("stale"));
        assert_eq!(world.db.rows("id, status", "FROM orders_copy ORDER BY id").await, ["1|fourth", "2|other row"]);
        let stale = world.pushed_in_short().await.into_iter().filter(|short| short.ends_with("SUCCESS STALE")).count();
        assert_eq!(stale, 2, "a stale change has its receipt");
        assert_eq!(world.db.count("FROM countersign_inbox WHERE code = 'STALE'").await, 2);
        running.stop().await;
    });
}

#[test]
fn a_late_change_does_not_raise_a_deleted_row() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let running = world.start(&route("---guard = \"source\"\n")).await;
        world.send(&[change("c", 100, NULL, row(1, "a")), change("d", 300, row(1, "a"), NULL)]).await;
        running.outcomes(2, "applied=2").await;
        // Late, and a snapshot read that was taken before the delete.
        world.send(&[change("u", 200, NULL, row(1, "late")), change("r", 250, NULL, row(1, "read"))]).await;
        running.outcomes(4, "applied=2 skipped=2").await;
        assert_eq!(world.db.count("FROM orders_copy").await, 0);
        // A new life of the key.
        world.send(&[change("c", 400, NULL, row(1, "again"))]).await;
        running.outcomes(5, "applied=3 skipped=2").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy").await, ["1|again"]);
        running.stop().await;
    });
}

#[test]
fn positions_of_another_log_are_not_compared() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let running = world.start(&route("---guard = \"source\"\n")).await;
        world
            .send(&[change_of("old", "c", 9000, NULL, row(1, "old")), change_of("new", "u", 5, NULL, row(1, "new"))])
            .await;
        running.outcomes(2, "applied=2").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy").await, ["1|new"]);
        running.stop().await;
    });
}

#[test]
fn without_an_inbox_the_guard_alone_keeps_a_repeat_from_writing() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let running = world.start(&route("---guard = \"source\"\ninbox = false\n")).await;
        let records = [
            change("c", 100, NULL, row(1, "a")),
            change("u", 200, NULL, row(1, "b")),
            change("c", 150, NULL, row(2, "c")),
        ];
        world.send(&records).await;
        running.outcomes(3, "applied=3").await;
        world.send(&records).await;
        running.outcomes(6, "applied=3 skipped=3").await;
        assert_eq!(world.db.rows("id, status", "FROM orders_copy ORDER BY id").await, ["1|b", "2|c"]);
        assert_eq!(world.db.count("FROM countersign_inbox").await, 0);
        assert_eq!(world.pushed().await, []);
        assert_eq!(world.lane(0).await.unwrap().next_offset, 6);
        running.stop().await;
    });
}

#[test]
fn two_transactions_that_are_both_the_first_to_see_a_row_wait_for_each_other() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        let hash = [7; 32];
        let hashes = [(hash, RowVersion::default())];
        let newest = RowVersion { lineage: "l".to_owned(), position: "p".to_owned(), deleted: false };
        let mut one = world.db.store.begin().await.unwrap();
        let before = one.row_versions(&world.name, "orders_copy", &hashes).await.unwrap();
        assert!(before.known.is_empty(), "{before:?}");
        let mut other = world.db.store.begin().await.unwrap();
        let found = {
            let asked = other.row_versions(&world.name, "orders_copy", &hashes);
            tokio::pin!(asked);
            let early = tokio::time::timeout(Duration::from_millis(500), &mut asked).await;
            assert!(early.is_err(), "the second one does not wait: {early:?}");
            one.set_row_versions(&world.name, "orders_copy", &[(hash, newest.clone())]).await.unwrap();
            one.commit().await.unwrap();
            asked.await.unwrap()
        };
        assert_eq!(found.known.get(&hash), Some(&newest));
        assert!(found.new.is_empty());
        other.rollback().await;
    });
}
