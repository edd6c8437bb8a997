//! Message ids are byte-exact, of any length that is allowed, and separated by scope and pipeline.

use std::time::Duration;

use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::command_line::run;
use crate::database::Engine;
use crate::gate::redis_url;
use crate::payments::{BOOK, TABLES, payment};
use crate::wait::stays;
use crate::world::{Running, World, everywhere};

fn record(id: &str) -> Rec {
    Rec::new(id, r#"{"orderId":"o","account":"bob","amount":1}"#)
}

/// Ids that a collation would join are different messages, and each is known when it comes again. The answer is the
/// pipeline, still at work.
async fn told_apart(world: &World, routes: &str) -> Running {
    world.db.run(TABLES).await;
    let ids = [
        "ev_4qDz",
        "ev_4qdz",
        "ev_4qDz ",
        "ev_4qDz\t",
        "\u{e9}v_4qDz",
        "e\u{301}v_4qDz",
        "EV_4QDZ",
        " ev_4qDz",
        "ev_4qDz\u{200b}",
        "stra\u{df}e",
        "strasse",
        "\u{1f600}",
        "\u{1f601}",
        "'; DROP TABLE ledger; --",
        "%",
        "_",
        "\\",
        "\u{ffff}",
    ];
    let records: Vec<Rec> = ids.iter().map(|id| record(id)).collect();
    world.send(&records).await;
    let running = world.start(routes).await;
    running.outcomes(18, "applied=18").await;
    world.send(&records).await;
    running.outcomes(36, "applied=18 duplicate=18").await;
    assert_eq!(world.ledger().await.len(), 18);
    assert_eq!(world.db.count("FROM countersign_inbox").await, 18);
    for id in ids {
        let found = running.view.lookup.receipts(id, None).await.unwrap();
        assert_eq!(found.len(), 1, "{id:?}");
        assert_eq!(found[0].message_id.as_deref(), Some(id));
    }
    running
}

#[test]
fn ids_that_a_collation_would_join_are_different_messages() {
    everywhere(|world| async move { told_apart(&world, BOOK).await.stop().await });
}

#[test]
fn so_they_are_to_redis() {
    everywhere(|world| async move {
        let routes = format!("[gate]\nurl = \"{}\"\ntimeout = \"2s\"\n{BOOK}", redis_url());
        let running = told_apart(&world, &routes).await;
        for verdict in ["claimed", "confirmed"] {
            assert_eq!(running.metric("gate_total", verdict), 18.0, "{verdict}");
        }
        running.stop().await;
    });
}

/// Where somebody has made texts of the keys, nothing is read before they are bytes again.
#[test]
fn nothing_starts_on_keys_that_are_not_compared_byte_for_byte() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[record("ev_4qDz")]).await;
        let running = world.start(BOOK).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
        let (spoil, mend, said) = match world.db.engine {
            Engine::Postgres => (
                "ALTER TABLE countersign_inbox ALTER COLUMN inbox_key TYPE text USING encode(inbox_key, 'hex')",
                "ALTER TABLE countersign_inbox ALTER COLUMN inbox_key TYPE bytea USING decode(inbox_key, 'hex')",
                "countersign_inbox.inbox_key is text",
            ),
            Engine::MariaDb => (
                "ALTER TABLE countersign_inbox MODIFY inbox_key VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL",
                "ALTER TABLE countersign_inbox MODIFY inbox_key VARBINARY(320) NOT NULL",
                "countersign_inbox.inbox_key is varchar with collation utf8mb4_general_ci",
            ),
            // A copy of the rows has neither the type nor the key.
            Engine::Sqlite => (
                "ALTER TABLE countersign_inbox RENAME TO kept; CREATE TABLE countersign_inbox AS SELECT * FROM kept",
                "DROP TABLE countersign_inbox; ALTER TABLE kept RENAME TO countersign_inbox",
                "countersign_inbox.inbox_key is ",
            ),
        };
        world.db.run(spoil).await;
        world.send(&[record("ev_4qdz"), record("ev_4qDz"), record("ev_4qDz ")]).await;

        let running = world.start(BOOK).await;
        running.stands(Readiness::Unready, said).await;
        let file = world.file(&world.config(BOOK));
        let (code, printed, errors) = run(&["check", "-c", file.to_str().unwrap()]);
        assert_eq!(code, 1, "{printed}{errors}");
        assert!(printed.contains(&format!("fail  store keys: {said}")), "{printed}");
        stays(Duration::from_secs(2), "nothing is read", || async {
            let rows = world.db.count("FROM countersign_inbox").await;
            running.counted().is_empty() && rows == 1 && world.lane(0).await.unwrap().next_offset == 1
        })
        .await;
        running.stands(Readiness::Unready, said).await;

        world.db.run(mend).await;
        running.outcomes(3, "applied=2 duplicate=1").await;
        running.ready().await;
        assert_eq!(world.ledger().await.len(), 3);
        running.stop().await;
    });
}

#[test]
fn long_ids_are_told_apart_to_their_last_byte_and_longer_ones_are_parked() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let long = |end: &str| format!("{}{end}", "x".repeat(254));
        let ids = [
            long("-A"),
            long("-B"),
            "\u{e9}".repeat(255),
            "y".repeat(1000),
            format!("{}z", "y".repeat(999)),
            "x".repeat(254),
        ];
        let records: Vec<Rec> = ids.iter().map(|id| record(id)).chain([record(&"y".repeat(1001))]).collect();
        world.send(&records).await;
        let running = world.start(BOOK).await;
        running.outcomes(7, "applied=6 parked=1").await;
        world.send(&records[..6]).await;
        running.outcomes(13, "applied=6 duplicate=6 parked=1").await;
        for id in &ids {
            let found = running.view.lookup.receipts(id, None).await.unwrap();
            assert_eq!(found.iter().map(|r| r.message_id.as_deref()).collect::<Vec<_>>(), [Some(id.as_str())]);
        }
        assert_eq!(world.dead_letters().await, ["6|-|poison|id_too_long"]);
        running.stop().await;
    });
}

#[test]
fn scopes_and_pipelines_have_ids_of_their_own() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let scoped = |name: &str, scope: &str| {
            BOOK.replace("\"book\"", &format!("\"{name}\"")).replace(
                "{ topic = \"TOPIC\" }",
                &format!("{{ topic = \"TOPIC\", header.kind = \"{name}\" }}\nscope = \"{scope}\""),
            )
        };
        let routes = [scoped("crate", "a:b"), scoped("pallet", "a")].concat();
        let to = |kind: &str, id: &str| record(id).header("kind", kind);
        world
            .send(&[to("crate", "42"), to("pallet", "42"), to("crate", "c"), to("pallet", "b:c"), to("crate", "42")])
            .await;
        let text = world.config(&routes);
        let running = Running::start(&text);
        running.outcomes(5, "applied=4 duplicate=1").await;
        assert_eq!(running.view.lookup.receipts("42", None).await.unwrap().len(), 2);
        assert_eq!(running.view.lookup.receipts("42", Some("a")).await.unwrap().len(), 1);
        running.stop().await;

        // A second handler is a second pipeline on the same tables.
        let other = text.replace(&format!("[pipeline]\nname = \"{}\"", world.name), "[pipeline]\nname = \"stock\"");
        let running =
            Running::start(&other.replace("[kafka]\n", &format!("[kafka]\ngroup = \"{}-stock\"\n", world.name)));
        running.outcomes(5, "applied=4 duplicate=1").await;
        assert_eq!(world.ledger().await.len(), 8);
        running.stop().await;
    });
}

#[test]
fn an_id_may_stand_at_the_first_of_several_places_that_is_present() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let route =
            BOOK.replace("message_id = \"header:id\"", "message_id = [\"header:id\", \"key:id\", \"value:orderId\"]");
        let plain = |key: &str| Rec::bare(r#"{"orderId":"o-9","account":"bob","amount":1}"#).key(key);
        world
            .send(&[
                payment("h-1", "bob", 1),
                plain(r#"{"id":"k-1"}"#),
                plain(r#"{"other":1}"#),
                plain(r#"{"id":null}"#),
            ])
            .await;
        let running = world.start(&route).await;
        let seen = running.outcomes(4, "applied=3 duplicate=1").await;
        let ids: Vec<&str> = seen.iter().map(|one| one.message_id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["h-1", "k-1", "o-9", "o-9"]);
        running.stop().await;
    });
}
