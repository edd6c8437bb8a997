//! Constraint violations, and messages that come before the one that they need.

use std::time::Duration;

use countersign::pipeline::Observed;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{BOOK, payment};
use crate::wait::until;
use crate::world::{World, everywhere, on};

pub const TABLES: &str = "
    CREATE TABLE parents (id BIGINT PRIMARY KEY);
    CREATE TABLE children (n {serial}, id BIGINT NOT NULL UNIQUE, parent BIGINT NOT NULL, amount BIGINT NOT NULL CHECK (amount > 0),
        FOREIGN KEY (parent) REFERENCES parents (id));
    INSERT INTO parents VALUES (1);
";

/// Routes by the header `kind`: a parent, and children under these overrides.
pub fn routes(overrides: &str) -> String {
    let route = |kind: &str, sql: &str, overrides: &str| {
        format!(
            "[[route]]\nname = \"{kind}\"\nmatch = {{ topic = \"TOPIC\", header.kind = \"{kind}\" }}\n\
             message_id = \"header:id\"\n[route.effect]\nkind = \"sql\"\nsteps = [{{ sql = \"{sql}\"{overrides} }}]\n"
        )
    };
    let child = "INSERT INTO children (id, parent, amount) VALUES (:id, :parent, :amount)";
    let parent = "INSERT INTO parents (id) VALUES (:id)";
    [route("parent", parent, ""), route("child", child, overrides)].concat()
}

fn parent(id: i64) -> Rec {
    Rec::new(format!("parent-{id}"), format!(r#"{{"id":{id}}}"#)).header("kind", "parent")
}

pub fn child(id: i64, parent: i64, amount: i64) -> Rec {
    let value = format!(r#"{{"id":{id},"parent":{parent},"amount":{amount}}}"#);
    Rec::new(format!("child-{id}-{parent}-{amount}"), value).header("kind", "child")
}

pub async fn children(world: &World) -> Vec<String> {
    world.db.rows("id", "FROM children ORDER BY n").await
}

#[test]
fn by_default_unique_rejects_and_a_check_parks() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[child(1, 1, 10), child(1, 1, 11), child(2, 1, 10), child(3, 1, -1), child(4, 1, 10)]).await;
        let running = world.start(&routes("")).await;
        running.outcomes(5, "applied=3 rejected=1 parked=1").await;
        assert_eq!(children(&world).await, ["1", "2", "4"]);
        assert_eq!(
            world.inbox().await,
            [
                "child-1-1-10|SUCCESS|-",
                "child-1-1-11|FAILED|UNIQUE",
                "child-2-1-10|SUCCESS|-",
                "child-3-1--1|FAILED|CHECK",
                "child-4-1-10|SUCCESS|-",
            ]
        );
        assert_eq!(world.dead_letters().await, ["3|child-3-1--1|poison|CHECK"]);
        running.stop().await;
    });
}

#[test]
fn each_kind_of_violation_can_be_answered_otherwise() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[child(1, 1, 10), child(1, 1, 11), child(2, 99, 10), child(3, 1, -1), child(4, 1, 10)]).await;
        let overrides = r#", on_unique = "ignore", on_foreign_key = "reject", on_check = "reject""#;
        let running = world.start(&routes(overrides)).await;
        running.outcomes(5, "applied=3 rejected=2").await;
        assert_eq!(children(&world).await, ["1", "4"]);
        assert_eq!(
            world.pushed_in_short().await,
            [
                "child-1-1-10 SUCCESS -",
                "child-1-1-11 SUCCESS IGNORED",
                "child-2-99-10 FAILED FOREIGN_KEY",
                "child-3-1--1 FAILED CHECK",
                "child-4-1-10 SUCCESS -",
            ]
        );
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;

        // The same again under `park`, with new ids.
        let again: Vec<Rec> = [child(1, 1, 12), child(5, 98, 10), child(6, 1, -2)].into();
        world.send(&again).await;
        let overrides = r#", on_unique = "park", on_foreign_key = "park", on_check = "park""#;
        let running = world.start(&routes(overrides)).await;
        running.outcomes(3, "parked=3").await;
        assert_eq!(
            world.dead_letters().await,
            ["5|child-1-1-12|poison|UNIQUE", "6|child-5-98-10|poison|FOREIGN_KEY", "7|child-6-1--2|poison|CHECK"]
        );
        running.stop().await;
    });
}

#[test]
fn a_child_before_its_parent_waits_and_is_applied_when_the_parent_comes() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = format!("[retry]\nattempts = 1000\ndelay = \"200ms\"\nmax_delay = \"500ms\"\n{}", routes(""));
        let running = world.start(&config).await;
        world.send(&[child(7, 70, 10), child(1, 1, 10)]).await;
        let seen = running.outcomes(2, "applied=1 parked=1").await;
        assert_eq!(seen[0].reason.as_deref(), Some("waiting"));
        assert_eq!(children(&world).await, ["1"], "the lane goes on");
        assert_eq!(world.lane(0).await.unwrap().next_offset, 2);
        let waiting = world.db.rows("message_id, status", "FROM countersign_inbox WHERE status = 'WAITING'").await;
        assert_eq!(waiting, ["child-7-70-10|WAITING"]);
        until("a PROCESSING receipt", || async {
            world.pushed_in_short().await.contains(&"child-7-70-10 PROCESSING WAITING".to_owned()).then_some(())
        })
        .await;
        let standing = running.view.lookup.receipts("child-7-70-10", None).await.unwrap();
        assert_eq!(crate::world::in_short(&standing[0]), "child-7-70-10 PROCESSING WAITING");

        // A copy that meets it is a duplicate; the parent stands behind it in the same partition.
        world.send(&[child(7, 70, 10), parent(70)]).await;
        until("the child", || async { (children(&world).await == ["1", "7"]).then_some(()) }).await;
        running.outcomes(4, "applied=2 duplicate=1 parked=1").await;
        until("its receipt", || async {
            world.pushed_in_short().await.contains(&"child-7-70-10 SUCCESS -".to_owned()).then_some(())
        })
        .await;
        assert_eq!(
            world.pushed_in_short().await,
            [
                "child-1-1-10 SUCCESS -",
                "child-7-70-10 PROCESSING WAITING",
                "child-7-70-10 SUCCESS -",
                "parent-70 SUCCESS -",
            ]
        );
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}

#[test]
fn a_child_whose_parent_never_comes_is_parked_at_the_bound() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = format!("[retry]\nattempts = 3\ndelay = \"100ms\"\nmax_delay = \"100ms\"\n{}", routes(""));
        world.send(&[child(7, 70, 10), child(1, 1, 10)]).await;
        let running = world.start(&config).await;
        running.outcomes(2, "applied=1 parked=1").await;
        until("the dead letter", || async { (world.dead_letters().await.len() == 1).then_some(()) }).await;
        assert_eq!(world.dead_letters().await, ["0|child-7-70-10|retries|FOREIGN_KEY"]);
        assert_eq!(world.db.rows("attempts", "FROM countersign_dead_letters").await, ["3"]);
        until("its receipt", || async {
            world.pushed_in_short().await.contains(&"child-7-70-10 FAILED FOREIGN_KEY".to_owned()).then_some(())
        })
        .await;
        let rows = world.inbox().await;
        assert!(rows.contains(&"child-7-70-10|FAILED|FOREIGN_KEY".to_owned()), "{rows:?}");
        // It is terminal: a parent that comes now does not wake it.
        world.send(&[parent(70), child(7, 70, 10)]).await;
        running.outcomes(4, "applied=2 duplicate=1 parked=1").await;
        crate::wait::stays(Duration::from_millis(800), "no child", || async { children(&world).await == ["1"] }).await;
        running.stop().await;
    });
}

#[test]
fn a_waiting_message_outlives_a_restart() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = format!("[retry]\nattempts = 1000\ndelay = \"100ms\"\nmax_delay = \"200ms\"\n{}", routes(""));
        world.send(&[child(7, 70, 10)]).await;
        let running = world.start(&config).await;
        running.outcomes(1, "parked=1").await;
        running.stop().await;
        world.db.run("INSERT INTO parents VALUES (70)").await;
        let running = world.start(&config).await;
        until("the child", || async { (children(&world).await == ["7"]).then_some(()) }).await;
        running.stop().await;
    });
}

#[test]
fn a_deferred_foreign_key_makes_the_child_alone_wait_not_its_neighbours() {
    on(&[Engine::Postgres], |world| async move {
        let deferred = "REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED";
        world.db.run(&TABLES.replace("REFERENCES parents (id)", deferred)).await;
        let neighbours = (1..40).map(|id| child(id, 1, 10));
        // One whose parent is missing, and one whose parent stands behind it in the batch.
        let between = [child(70, 700, 10), child(80, 800, 10), parent(800)];
        world.send(&neighbours.clone().take(20).chain(between).chain(neighbours.skip(20)).collect::<Vec<_>>()).await;
        let config = format!("[retry]\nattempts = 1000\ndelay = \"200ms\"\nmax_delay = \"500ms\"\n{}", routes(""));
        let running = world.start(&config).await;
        let seen = running.seen(42).await;
        for one in seen.iter().filter(|one| !["child-70-700-10", "child-80-800-10"].contains(&id_of(one))) {
            assert_eq!(one.outcome.as_str(), "applied", "{one:?}");
        }
        let late = seen.iter().find(|one| id_of(one) == "child-70-700-10").unwrap();
        assert_eq!((late.outcome.as_str(), late.reason.as_deref()), ("parked", Some("waiting")));
        until("all others", || async { (children(&world).await.len() == 40).then_some(()) }).await;
        assert_eq!(world.db.count("FROM children WHERE id = 70").await, 0);

        world.send(&[parent(700)]).await;
        let finished = ["child-70-700-10|SUCCESS|-".to_owned()];
        until("the child", || async { (world.inbox().await.contains(&finished[0])).then_some(()) }).await;
        assert_eq!(world.db.count("FROM children WHERE id = 70").await, 1);
        assert_eq!(world.db.count("FROM children").await, 41);
        assert_eq!(world.db.count("FROM countersign_inbox WHERE status <> 'SUCCESS'").await, 0);
        assert_eq!(world.dead_letters().await, [""; 0]);
        running.stop().await;
    });
}

/// The check behind one message must not make constraints immediate for the next.
#[test]
fn a_constraint_stays_deferred_for_those_behind_a_message_that_was_undone() {
    on(&[Engine::Postgres], |world| async move {
        let deferred = "REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED";
        world.db.run(&TABLES.replace("REFERENCES parents (id)", deferred)).await;
        let route = r#"
[[route]]
name = "family"
match = { topic = "TOPIC" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [
  { sql = "INSERT INTO children (id, parent, amount) VALUES (:id, :parent, :amount)" },
  { sql = "INSERT INTO parents (id) VALUES (:parent)" },
]
"#;
        let records: Vec<Rec> = (1..20).map(|id| child(id, 100 + id, if id == 7 { -1 } else { 10 })).collect();
        world.send(&records).await;
        let running = world.start(route).await;
        running.outcomes(19, "applied=18 parked=1").await;
        assert_eq!(children(&world).await.len(), 18);
        running.stop().await;
    });
}

#[test]
fn a_message_that_waits_and_is_none_any_more_is_parked_at_the_bound() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let retry = "[retry]\nattempts = 4\ndelay = \"100ms\"\nmax_delay = \"100ms\"\n";
        let running = world.start(&format!("{}{}", retry.replace("100ms", "1h"), routes(""))).await;
        world.send(&[child(7, 70, 10), child(8, 80, 10)]).await;
        running.outcomes(2, "parked=2").await;
        running.stop().await;
        world.db.run("UPDATE countersign_inbox SET next_try_at = received_at WHERE status = 'WAITING'").await;
        let other = format!("{retry}{}", routes("").replace("header.kind = \"child\"", "header.kind = \"kid\""));
        let running = world.start(&other).await;
        until("two dead letters", || async { (world.dead_letters().await.len() == 2).then_some(()) }).await;
        let mut letters = world.dead_letters().await;
        letters.sort();
        assert_eq!(letters, ["0|child-7-70-10|retries|data_refused", "1|child-8-80-10|retries|data_refused"]);
        let rows = world.inbox().await;
        assert_eq!(rows, ["child-7-70-10|FAILED|data_refused", "child-8-80-10|FAILED|data_refused"]);
        until("its receipt", || async {
            world.pushed_in_short().await.contains(&"child-7-70-10 FAILED data_refused".to_owned()).then_some(())
        })
        .await;
        running.stop().await;
    });
}

fn id_of(one: &Observed) -> &str {
    one.message_id.as_deref().unwrap()
}

#[test]
fn a_trigger_that_keeps_rows_out_of_a_set_based_insert_parks_their_messages_alone() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(crate::payments::TABLES).await;
        world
            .db
            .run(
                "CREATE FUNCTION keep_out() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN IF NEW.amount = 13 THEN RETURN NULL; END IF; RETURN NEW; END $$;
                 CREATE TRIGGER keep_out BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION keep_out();",
            )
            .await;
        let amount = |n: i64| if [30, 70, 71].contains(&n) { 13 } else { 1 };
        let records: Vec<Rec> = (0..100).map(|n| payment(&format!("m-{n}"), "bob", amount(n))).collect();
        for (otherwise, ids) in [("", "a"), (", otherwise = \"reject\"", "b")] {
            let of_this: Vec<Rec> = records
                .iter()
                .map(|record| {
                    let id = [ids.as_bytes(), &record.headers[0].1].concat();
                    Rec::new(id, record.value.clone().unwrap())
                })
                .collect();
            world.send(&of_this).await;
            let route = BOOK.replace(":amount)\"", &format!(":amount)\", expect_rows = 1{otherwise}"));
            let running = world.start(&route).await;
            let tally = if otherwise.is_empty() { "applied=97 parked=3" } else { "applied=97 rejected=3" };
            running.outcomes(100, tally).await;
            running.stop().await;
        }
        assert_eq!(
            world.dead_letters().await,
            ["30|am-30|poison|ROWS", "70|am-70|poison|ROWS", "71|am-71|poison|ROWS"]
        );
        let failed =
            world.db.rows("message_id", "FROM countersign_inbox WHERE code = 'ROWS' ORDER BY message_id").await;
        assert_eq!(failed, ["am-30", "am-70", "am-71", "bm-30", "bm-70", "bm-71"]);
        let good: Vec<String> = (0..100).filter(|n| amount(*n) == 1).map(|n| format!("order-m-{n}")).collect();
        assert_eq!(world.ledger().await, [good.clone(), good].concat());
    });
}

#[test]
fn going_back_to_a_savepoint_ends_it() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let mut tx = world.db.store.begin().await.unwrap();
        tx.execute("INSERT INTO parents VALUES (2)", Vec::new()).await.unwrap();
        tx.savepoint("one").await.unwrap();
        tx.execute("INSERT INTO parents VALUES (3)", Vec::new()).await.unwrap();
        tx.rollback_to("one").await.unwrap();
        tx.savepoint("two").await.unwrap();
        assert!(tx.rollback_to("one").await.is_err(), "it is there still");
        if world.db.engine == Engine::Postgres {
            tx.rollback_to("two").await.unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(world.db.rows("id", "FROM parents ORDER BY id").await, ["1", "2"]);
    });
}
