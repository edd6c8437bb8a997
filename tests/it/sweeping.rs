//! Messages that wait do not stand in the way of anything.

use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::constraints::{TABLES, child, children, routes};
use crate::database::Engine;
use crate::registry_server::{Kind, RegistryServer, Trouble};
use crate::wait::until;
use crate::world::{PARTITIONS, everywhere};

fn retry(delay: &str) -> String {
    format!("[retry]\nattempts = 1000\ndelay = \"{delay}\"\nmax_delay = \"{delay}\"\n{}", routes(""))
}

#[test]
fn a_waiting_message_that_cannot_be_tried_does_not_hold_up_the_others() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[child(5, 70, 10), child(6, 70, 10), child(7, 70, 10)]).await;
        let running = world.start(&retry("100ms")).await;
        running.outcomes(3, "parked=3").await;
        running.stop().await;
        // The first one to be looked at is not to be read any more.
        let (bytes, past) = match world.db.engine {
            Engine::Postgres => ("'\\x00ff'", "now() - interval '1 day'"),
            Engine::MariaDb => ("X'00ff'", "UTC_TIMESTAMP(6) - INTERVAL 1 DAY"),
            Engine::Sqlite => ("X'00ff'", "'2020-01-01T00:00:00.000Z'"),
        };
        let sql = format!(
            "UPDATE countersign_inbox SET waiting_record = {bytes}, next_try_at = {past} WHERE message_id = 'child-5-70-10';
             INSERT INTO parents VALUES (70);"
        );
        world.db.run(&sql).await;
        let running = world.start(&retry("100ms")).await;
        until("the others", || async { (world.db.count("FROM children").await == 2).then_some(()) }).await;
        // Tried side by side.
        let mut done = children(&world).await;
        done.sort();
        assert_eq!(done, ["6", "7"]);
        assert!(world.inbox().await.iter().any(|row| row.starts_with("child-5-70-10|WAITING")));
        running.stop().await;
    });
}

/// Thirty that need a schema stand before one that needs none.
#[test]
fn a_registry_that_is_away_is_asked_once_a_round_and_holds_up_only_those_that_need_it() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&(0..31).map(|id| child(id, 70, 10)).collect::<Vec<Rec>>()).await;
        let running = world.start(&retry("2s")).await;
        running.outcomes(31, "parked=31").await;
        running.stop().await;
        let past = |seconds: u32| match world.db.engine {
            Engine::Postgres => format!("now() - interval '{seconds} seconds'"),
            Engine::MariaDb => format!("UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND"),
            Engine::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{seconds} seconds')"),
        };
        let line = format!(
            r#"{{"topic":"{}","partition":0,"offset":0,"key":null,"value":{{"base64":"AAAAAE0CAg=="}},"headers":[["id","x"],["kind","child"]]}}"#,
            world.topic
        );
        let hex: String = line.bytes().map(|byte| format!("{byte:02x}")).collect();
        let bytes = match world.db.engine {
            Engine::Postgres => format!("'\\x{hex}'"),
            Engine::MariaDb | Engine::Sqlite => format!("X'{hex}'"),
        };
        let sql = format!(
            "UPDATE countersign_inbox SET waiting_record = {bytes}, next_try_at = {} WHERE message_id <> 'child-30-70-10';
             UPDATE countersign_inbox SET next_try_at = {} WHERE message_id = 'child-30-70-10';
             INSERT INTO parents VALUES (70);",
            past(90),
            past(60)
        );
        world.db.run(&sql).await;
        let registry = RegistryServer::start(Kind::Confluent).await;
        registry.script((0..10_000).map(|_| Trouble::Status(503)));
        let settings = format!("[registry]\nurl = \"{}\"\n{}", registry.url, retry("2s"));
        let running = world.start(&settings).await;
        until("the one that needs none", || async { (world.db.count("FROM children").await == 1).then_some(()) }).await;
        // One question has a few tries.
        assert!((1..=10).contains(&registry.asked().len()), "{}", registry.asked().len());
        running.stop().await;
    });
}

#[test]
fn any_number_of_waiting_messages_does_not_pause_their_lane() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let orphans = (100..230).map(|id| child(id, 70, 10));
        world.send(&orphans.chain([child(1, 1, 10)]).collect::<Vec<Rec>>()).await;
        let running = world.start(&retry("1h")).await;
        running.outcomes(131, "applied=1 parked=130").await;
        running.ready().await;
        assert_eq!(world.lane(0).await.unwrap().paused, None);
        assert_eq!(running.reasons().0, Readiness::Ready);
        assert_eq!(children(&world).await, ["1"]);
        running.stop().await;
    });
}

/// Whoever asked for a message waits for the answer where the first receipt came.
#[test]
fn the_last_receipt_goes_where_the_first_one_went_though_the_configuration_has_changed() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[child(5, 70, 10).header("call", "4711").header("from", "shop")]).await;
        let with = |fields: &str| {
            retry("100ms").replace("message_id = \"header:id\"\n", &format!("message_id = \"header:id\"\n{fields}"))
        };
        let fields = "correlation_id = \"header:call\"\nsource_app = \"header:from\"\n";
        let running = world.start(&with(fields)).await;
        running.outcomes(1, "parked=1").await;
        running.stop().await;
        let running = world.start(&with("")).await;
        world.db.run("INSERT INTO parents VALUES (70)").await;
        until("the child", || async { (world.db.count("FROM children").await == 1).then_some(()) }).await;
        let pushed = world.pushed().await;
        assert_eq!(pushed.len(), 2, "{pushed:?}");
        for receipt in &pushed {
            assert_eq!(
                (receipt.correlation_id.as_deref(), receipt.source_app.as_deref()),
                (Some("4711"), Some("shop"))
            );
        }
        let records = world.broker.read_all(&world.receipts, PARTITIONS);
        assert!(records.iter().all(|record| record.key.as_deref() == Some(b"4711")), "{records:?}");
        running.stop().await;
    });
}
