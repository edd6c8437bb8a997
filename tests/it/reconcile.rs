//! `reconcile`: what the tables say of a window of a topic, and that nothing is said which is merely on its way.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use countersign::app::{Reconciler, Scope};
use countersign::kafka::window::Bound;
use countersign::reconcile::{Kind, Report};
use countersign::record::{Header, Record, RecordPosition};
use countersign::store::meta::purge_horizon;
use countersign::store::reconcile::{NewBatch, NewDiff};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::broker::Rec;
use crate::command_line::run;
use crate::daemon::program;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment, payments};
use crate::rows::{TABLE, change, route};
use crate::world::{World, everywhere, on, parse};

/// Exit code and report, whose outcomes add up.
fn reconcile(world: &World, rest: &str, more: &[&str]) -> (i32, Value) {
    let file = world.file(&world.config(rest));
    let arguments = ["reconcile", "-c", file.to_str().unwrap(), "--topic", &world.topic, "--output", "json"];
    let (code, stdout, stderr) = run(&[&arguments[..], more].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{code}: {stdout}{stderr}"));
    let sum: u64 = report["outcomes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(report["checked"], sum, "{report:#}");
    (code, report)
}

/// What is not zero, as `matched=3 differing=1`.
fn counts(counts: &Value) -> String {
    let counts = counts.as_object().unwrap().iter().filter(|(_, n)| n.as_u64().is_some_and(|n| n > 0));
    let mut counts: Vec<String> = counts.map(|(name, n)| format!("{name}={n}")).collect();
    counts.sort();
    counts.join(" ")
}

/// Each difference as `KIND ID OFFSET`.
fn diffs(report: &Value) -> Vec<String> {
    let text = |diff: &Value| {
        let id = diff["messageId"].as_str().unwrap_or("-");
        format!("{} {id} {}", diff["kind"].as_str().unwrap(), diff["offset"])
    };
    report["diffs"].as_array().unwrap().iter().map(text).collect()
}

/// Everything that a topic can have, each at partition 0: 60 payments, repeats, refusals, poison, conflicts, tombstones.
fn mixed() -> Vec<Rec> {
    let mut records = Vec::new();
    for n in 0..60 {
        records.push(payment(&format!("m-{n:02}"), "bob", 1));
        match n {
            10 | 20 => records.push(payment(&format!("m-{n:02}"), "bob", 1)),
            30 => records.push(payment("m-30", "bob", 99)),
            31 => records.push(payment("poor", "poor", 1)),
            32 => records.push(Rec::bare("{broken")),
            33 => records.push(Rec::new("bad", "{broken too").key("bob")),
            34 => records.push(Rec::tombstone("k")),
            35 => records.push(Rec::new("", r#"{"orderId":"x","account":"bob","amount":1}"#)),
            _ => {}
        }
    }
    records
}

const MIXED: &str = "applied=60 duplicate=2 skipped=1 rejected=1 parked=3 conflict=1";
const SOUND: &str = "conflict=1 matched=63 parked=3 skipped=1";

async fn applied(world: &World) {
    world.db.run(TABLES).await;
    world.send(&mixed()).await;
    let running = world.start(CHARGE).await;
    running.outcomes(68, MIXED).await;
    world.pushed().await;
    running.stop().await;
}

fn ms(world: &World, past: bool) -> &'static str {
    match (world.db.engine, past) {
        (Engine::Sqlite, true) => "2020-01-01T00:00:00.000Z",
        (Engine::Sqlite, false) => "2999-01-01T00:00:00.000Z",
        (Engine::Postgres | Engine::MariaDb, true) => "2020-01-01 00:00:00",
        (Engine::Postgres | Engine::MariaDb, false) => "2999-01-01 00:00:00",
    }
}

#[test]
fn where_nothing_is_wrong_nothing_differs_and_each_run_is_a_batch_of_its_own() {
    everywhere(|world| async move {
        applied(&world).await;
        let (code, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, SOUND), "{report:#}");
        assert_eq!((&report["status"], &report["diffs"]), (&json!("clean"), &json!([])));
        // 60 payments, a refusal, three parked, a conflict.
        let receipts = json!({"expected": 65, "delivered": 65, "pending": 0, "outside": 0, "differing": 0});
        assert_eq!(report["receipts"], receipts);
        let (code, again) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&again["outcomes"]).as_str()), (0, SOUND));
        assert!(again.get("receipts").is_none() && again["batch"].as_i64() > report["batch"].as_i64());
        let rows = "FROM countersign_reconcile_batches WHERE finished_at IS NOT NULL ORDER BY id";
        let batches = world.db.rows("status, checked, differences", rows).await;
        assert_eq!(batches, ["clean|68|0", "clean|68|0"]);
        assert_eq!(world.db.count("FROM countersign_reconcile_diffs").await, 0);
        let file = world.file(&world.config(CHARGE));
        let (code, text, _) = run(&["reconcile", "-c", file.to_str().unwrap(), "--topic", &world.topic]);
        assert!(
            code == 0 && text.contains("68 records of") && text.contains("\n0 differences; batch "),
            "{code} {text}"
        );
    });
}

#[test]
fn a_lost_message_is_missing_and_a_replay_brings_its_effect_back_once() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..200)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(200, "applied=200").await;
        world.pushed().await;
        running.stop().await;
        // As if they had never been: neither row nor effect.
        world
            .db
            .run(
                "DELETE FROM countersign_inbox WHERE message_id IN ('m-0007', 'm-0100', 'm-0199');
                 DELETE FROM ledger WHERE order_id IN ('order-m-0007', 'order-m-0100', 'order-m-0199');
                 UPDATE accounts SET balance = balance + 3 WHERE id = 'bob'",
            )
            .await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (1, "differing=3 matched=197"));
        assert_eq!(counts(&report["differences"]), "missing=3");
        let expected = ["missing m-0100 50", "missing m-0007 3", "missing m-0199 99"];
        assert_eq!(diffs(&report), expected, "{report:#}");
        let columns = "message_id, kafka_partition, kafka_offset, kind";
        let recorded = world.db.rows(columns, "FROM countersign_reconcile_diffs ORDER BY id").await;
        assert_eq!(recorded, ["m-0100|0|50|missing", "m-0007|1|3|missing", "m-0199|1|99|missing"]);
        assert_eq!(world.ledger().await.len(), 197, "nothing is repaired unasked");

        let lanes = world.db.rows("next_offset, epoch", "FROM countersign_lanes ORDER BY kafka_partition").await;
        let (code, report) = reconcile(&world, CHARGE, &["--repair", "replay", "--receipts"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=200"), "{report:#}");
        assert_eq!((&report["status"], &report["repaired"]), (&json!("repaired"), &json!(3)));
        assert!(report["diffs"].as_array().unwrap().iter().all(|diff| diff["repaired"] == true), "{report:#}");
        let mut ledger = world.ledger().await;
        ledger.sort();
        assert_eq!(ledger, (0..200).map(|n| format!("order-m-{n:04}")).collect::<Vec<_>>());
        assert_eq!(world.balance("bob").await, 100_000 - 200);
        assert_eq!(world.db.rows("next_offset, epoch", "FROM countersign_lanes ORDER BY kafka_partition").await, lanes);
        let repaired =
            world.db.count("FROM countersign_reconcile_diffs WHERE detail LIKE '%repaired by a replay'").await;
        assert_eq!(repaired, 3);
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0, "their receipts are delivered");
        let (code, report) = reconcile(&world, CHARGE, &["--repair", "replay", "--receipts"]);
        assert_eq!((code, report["status"].as_str()), (0, Some("clean")));
        assert_eq!(world.balance("bob").await, 100_000 - 200);
    });
}

#[test]
fn every_kind_of_difference_is_found_by_its_name() {
    everywhere(|world| async move {
        applied(&world).await;
        let (past, future) = (ms(&world, true), ms(&world, false));
        let waiting = |id: &str, next: &str, record: &str| {
            format!(
                "UPDATE countersign_inbox SET status = 'WAITING', finished_at = NULL, next_try_at = '{next}', \
                 waiting_record = {record} WHERE message_id = '{id}';"
            )
        };
        // The bytes need not be a record: nobody sweeps here.
        let bytes = "inbox_key";
        world
            .db
            .run(
                &[
                    "UPDATE countersign_inbox SET digest = REPLACE(digest, 'a', 'b') WHERE message_id = 'm-05';"
                        .to_owned(),
                    "UPDATE countersign_inbox SET digest = '9z:00' WHERE message_id = 'm-06';".to_owned(),
                    "DELETE FROM countersign_dead_letters WHERE class = 'conflict';".to_owned(),
                    "DELETE FROM countersign_dead_letters WHERE message_id = 'bad';".to_owned(),
                    "DELETE FROM countersign_inbox WHERE message_id IS NULL AND code = 'undecodable';".to_owned(),
                    waiting("m-07", past, bytes),
                    waiting("m-08", future, bytes),
                    // Nobody could finish it.
                    waiting("m-09", future, "NULL"),
                    "UPDATE countersign_inbox SET status = 'PROCESSING', finished_at = NULL, lease_until = NULL \
                     WHERE message_id = 'm-11';"
                        .to_owned(),
                    format!("UPDATE countersign_inbox SET received_at = '{past}' WHERE message_id = 'm-11'"),
                ]
                .concat(),
            )
            .await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!(code, 1);
        let expected = [
            "digest_differs m-05 5",
            "stuck m-07 7",
            "stuck m-09 9",
            "stuck m-11 12",
            "digest_differs m-30 33",
            "not_parked - 37",
            "not_parked bad 39",
        ];
        assert_eq!(diffs(&report), expected, "{report:#}");
        assert_eq!(counts(&report["differences"]), "digest_differs=2 not_parked=2 stuck=3");
        let outcomes = "differing=7 incomparable=1 matched=57 parked=1 skipped=1 waiting=1";
        assert_eq!(counts(&report["outcomes"]), outcomes);
        let details = report["diffs"].to_string();
        assert!(!details.contains("broken") && !details.contains("orderId"), "no values: {details}");
        // What cannot be repaired by a replay is left alone.
        let (code, again) = reconcile(&world, CHARGE, &["--repair", "replay"]);
        assert_eq!((code, diffs(&again)), (1, diffs(&report)));
        assert_eq!(world.balance("bob").await, 100_000 - 60);
    });
}

/// What stands behind a message of its key that waits is not late before that one is.
#[test]
fn of_a_queue_that_stands_the_head_alone_is_stuck() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..6)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(6, "applied=6").await;
        running.stop().await;
        let (past, future) = (ms(&world, true), ms(&world, false));
        let waits = |next: &str, ids: &str| {
            format!(
                "UPDATE countersign_inbox SET status = 'WAITING', finished_at = NULL, waiting_record = inbox_key, \
                 order_key = CAST('k' AS BINARY), next_try_at = '{next}' WHERE message_id IN ({ids});"
            )
            .replace("CAST('k' AS BINARY)", if world.db.engine == Engine::Postgres { "'k'" } else { "X'6B'" })
        };
        world.db.run(&(waits(future, "'m-0000'") + &waits(past, "'m-0002', 'm-0004'"))).await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=3 waiting=3"));
        world.db.run(&waits(past, "'m-0000'")).await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, diffs(&report)), (1, vec!["stuck m-0000 0".to_owned()]));
    });
}

#[test]
fn what_is_not_processed_yet_is_pending_with_and_without_a_lane() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..10)).await;
        let (code, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "pending=10"));
        // A replay needs no lane.
        let file = world.file(&world.config(CHARGE));
        let replayed = run(&["replay", "-c", file.to_str().unwrap(), "--topic", &world.topic, "--partition", "0"]);
        assert_eq!(replayed.0, 0);
        let (code, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=5 pending=5"));
        let running = world.start(CHARGE).await;
        running.seen(10).await;
        running.stop().await;
        world.send(&payments(10..13)).await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=10 pending=3"));
        // A lane past the end of its log speaks of a topic that is no more.
        world.db.run("UPDATE countersign_lanes SET next_offset = 1000 WHERE kafka_partition = 0").await;
        let (code, report) = reconcile(&world, CHARGE, &["--to", "6"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=10 pending=2"), "{report:#}");
        world.db.run("UPDATE countersign_lanes SET next_offset = 7 WHERE kafka_partition = 0").await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, diffs(&report)), (1, vec!["missing m-0010 5".to_owned(), "missing m-0012 6".to_owned()]));
    });
}

/// Batches are small and many, so that every look falls between a lane's commits.
#[test]
fn beside_a_daemon_at_work_there_is_no_false_alarm() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let rest = format!("[gate]\nurl = \"memory\"\n{CHARGE}");
        let text = world.config(&rest).replace("[store]\n", "[store]\nbatch = 7\n");
        let running = crate::world::Running::start(&text);
        let done = AtomicBool::new(false);
        let load = async {
            let mut sent = 0;
            // The mock cluster's log is short.
            while !done.load(Ordering::Relaxed) && sent < 2400 {
                let mut records = payments(sent..sent + 40);
                records.push(payment(&format!("m-{sent:04}"), "bob", 1));
                records.push(payment(&format!("m-{:04}", sent + 2), "bob", 9));
                records.push(Rec::new(format!("bad-{sent}"), "{broken").on(1));
                records.push(payment(&format!("poor-{sent}"), "poor", 1).on(1));
                world.send(&records).await;
                sent += 40;
                tokio::time::sleep(std::time::Duration::from_millis(40)).await;
            }
            sent
        };
        let looks = async {
            let mut seen = Vec::new();
            running.seen(1).await;
            for _ in 0..4 {
                let file = world.file(&world.config(&rest));
                let (file, topic) = (file.to_str().unwrap().to_owned(), world.topic.clone());
                let look = tokio::task::spawn_blocking(move || {
                    run(&["reconcile", "-c", &file, "--topic", &topic, "--receipts", "--output", "json"])
                });
                let (code, stdout, stderr) = look.await.unwrap();
                assert_eq!(code, 0, "{stdout}{stderr}");
                let report: Value = serde_json::from_str(&stdout).unwrap();
                assert_eq!(report["status"], "clean", "{report:#}");
                seen.push(report["outcomes"]["matched"].as_u64().unwrap());
            }
            done.store(true, Ordering::Relaxed);
            seen
        };
        let (sent, seen) = tokio::join!(load, looks);
        assert!(seen.is_sorted() && seen[0] < seen[3], "it looks on while the lanes go on: {seen:?}");
        running.seen(sent / 40 * 44).await;
        running.stop().await;
        let (code, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!(code, 0, "{report:#}");
        assert_eq!((&report["outcomes"]["pending"], &report["receipts"]["pending"]), (&json!(0), &json!(0)));
        assert_eq!(report["outcomes"]["matched"], sent / 40 * 42);
    });
}

#[test]
fn only_the_window_is_compared() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..40)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(40, "applied=40").await;
        running.stop().await;
        world.db.run("DELETE FROM countersign_inbox WHERE message_id = 'm-0020'").await;
        let checked = |more: &[&str]| {
            let (code, report) = reconcile(&world, CHARGE, more);
            (code, report["checked"].as_u64().unwrap())
        };
        assert_eq!(checked(&[]), (1, 40));
        assert_eq!(checked(&["--partition", "1"]), (0, 20));
        assert_eq!(checked(&["--to", "10"]), (0, 20));
        assert_eq!(checked(&["--from", "10", "--to", "11"]), (1, 2));
        assert_eq!(checked(&["--from", "11"]), (0, 18));
        assert_eq!(checked(&["--limit", "5"]), (0, 5));
        // The mock cluster knows no times.
        assert_eq!(checked(&["--from", "1h"]).0, 0);
        let bounds = world.db.rows("from_ms, to_ms", "FROM countersign_reconcile_batches ORDER BY id").await;
        assert_eq!(bounds[3], "-|-", "offsets are no times");
        let since: i64 = bounds.last().unwrap().split('|').next().unwrap().parse().unwrap();
        assert!(since > 1_700_000_000_000);
    });
}

#[test]
fn of_what_is_older_than_the_purge_horizon_nothing_is_said() {
    everywhere(|world| async move {
        applied(&world).await;
        world
            .db
            .run(
                "DELETE FROM countersign_inbox WHERE message_id IN ('m-01', 'bad');
                 DELETE FROM countersign_dead_letters",
            )
            .await;
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&report["differences"]).as_str()), (1, "digest_differs=1 missing=1 not_parked=3"));
        let mut tx = world.db.store.begin().await.unwrap();
        tx.set_meta(&purge_horizon(&world.name), "2999-01-01T00:00:00Z").await.unwrap();
        tx.commit().await.unwrap();
        let (code, report) = reconcile(&world, CHARGE, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=62 outside=5 skipped=1"));
    });
}

#[test]
fn receipts_that_are_missing_or_say_something_else_are_differences() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..6)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(6, "applied=6").await;
        world.pushed().await;
        running.stop().await;
        // Three more are finished without receipts, and one of these has its receipt on the way.
        world.send(&payments(6..9)).await;
        let silent = world.config(CHARGE).replace("[receipts]\n", "[receipts]\n#");
        let silent = crate::world::Running::start(&silent);
        silent.seen(3).await;
        silent.stop().await;
        world
            .db
            .run("UPDATE countersign_inbox SET status = 'FAILED', code = 'OTHER' WHERE message_id = 'm-0002'")
            .await;
        let (code, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!(code, 1);
        let expected =
            ["receipt_differs m-0002 1", "no_receipt m-0006 3", "no_receipt m-0008 4", "no_receipt m-0007 3"];
        assert_eq!(diffs(&report), expected, "{report:#}");
        assert_eq!(counts(&report["receipts"]), "delivered=5 differing=4 expected=9");
        let detail = report["diffs"][1]["detail"].as_str().unwrap();
        let id = detail.split(' ').nth(1).unwrap();
        world
            .db
            .run(&format!(
                "INSERT INTO countersign_outbox (pipeline, receipt_id, receipt_key, receipt, created_at) \
                 VALUES ('{}', '{id}', 'k', '{{}}', '{}')",
                world.name,
                ms(&world, true)
            ))
            .await;
        let (_, report) = reconcile(&world, CHARGE, &["--receipts"]);
        assert_eq!(counts(&report["receipts"]), "delivered=5 differing=3 expected=9 pending=1");
        // Without being asked nobody reads receipts.
        assert_eq!(reconcile(&world, CHARGE, &[]).0, 0);
    });
}

#[test]
fn changes_by_their_coordinates_are_not_compared_by_content_and_without_an_inbox_not_at_all() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let row = |status: &str| json!({"id": 1, "status": status, "note": "n", "amount": 1});
        world.send(&[change("c", 100, Value::Null, row("a")), change("u", 200, Value::Null, row("b"))]).await;
        let mirror = route("---guard = \"source\"\n");
        let running = world.start(&mirror).await;
        running.outcomes(2, "applied=2").await;
        running.stop().await;
        world.db.run("UPDATE countersign_inbox SET digest = REPLACE(digest, 'a', 'b')").await;
        let (code, report) = reconcile(&world, &mirror, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "matched=2"));
        let without = route("---guard = \"source\"\ninbox = false\n");
        let (code, report) = reconcile(&world, &without, &[]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "unchecked=2"));
    });
}

#[test]
fn what_an_operator_skipped_has_its_outcome() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(BOOK).await;
        running.ready().await;
        crate::wait::until("both lanes", || async {
            (world.db.count("FROM countersign_lanes").await == 2).then_some(())
        })
        .await;
        assert!(world.db.store.pause_lane(&world.lane_key(0), "test").await.unwrap());
        world.send(&[payment("m-0", "bob", 1), payment("m-1", "bob", 1), Rec::bare("{broken")]).await;
        assert!(world.db.store.skip_lane(&world.lane_key(0), 3).await.unwrap());
        running.outcomes(3, "parked=3").await;
        running.stop().await;
        let (code, report) = reconcile(&world, BOOK, &["--receipts"]);
        assert_eq!((code, counts(&report["outcomes"]).as_str()), (0, "parked=3"), "{report:#}");
        world.db.run("DELETE FROM countersign_dead_letters WHERE message_id = 'm-1'").await;
        let (code, report) = reconcile(&world, BOOK, &[]);
        assert_eq!((code, diffs(&report)), (1, vec!["not_parked m-1 1".to_owned()]));
    });
}

#[test]
fn it_ends_with_2_for_what_cannot_be_and_with_3_for_what_is_away() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..2)).await;
        let with = |text: &str, more: &[&str]| {
            let file = world.file(text);
            let (code, _, stderr) = run(&[&["reconcile", "-c", file.to_str().unwrap()], more].concat());
            assert!(!stderr.contains("hunter2"), "{stderr}");
            code
        };
        let (config, topic) = (world.config(CHARGE), ["--topic", &world.topic]);
        assert_eq!(with(&config, &topic), 0);
        assert_eq!(with(&config, &[]), 2);
        assert_eq!(with(&config, &["--topic", "there.is.none"]), 2);
        assert_eq!(with(&config, &[&topic[..], &["--from", "yesterday"]].concat()), 2);
        let silent = config.replace("[receipts]\n", "[receipts]\n#");
        assert_eq!(with(&silent, &[&topic[..], &["--receipts"]].concat()), 2);
        assert_eq!(with(&config.replace(&world.broker.address(), "127.0.0.1:1"), &topic), 3);
        if world.db.engine != Engine::Sqlite {
            let away = config.replace(&world.db.url, "postgres://a:hunter2@127.0.0.1:1/x");
            assert_eq!(with(&away, &topic), 3);
        }
        // A schema that nobody gives: the batch says that it did not come to its end.
        world.send(&[Rec::new("avro", &b"\0\0\0\0\x01x"[..])]).await;
        let registry = config.replace("[store]\n", "[registry]\nurl = \"http://127.0.0.1:1\"\n[store]\n");
        assert_eq!(with(&registry, &topic), 3);
        let batches = world.db.rows("status", "FROM countersign_reconcile_batches ORDER BY id").await;
        assert_eq!(batches, ["clean", "failed"]);
        assert_eq!(world.db.count("FROM countersign_reconcile_batches WHERE finished_at IS NULL").await, 0);
    });
}

#[test]
fn an_interrupt_ends_the_batch_and_says_so() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..4000)).await;
        let running = world.start(BOOK).await;
        running.seen(4000).await;
        running.stop().await;
        // So much is wrong that every look is a second one.
        world.db.run("DELETE FROM countersign_inbox").await;
        let file = world.file(&world.config(BOOK));
        let mut command = program();
        command.args(["reconcile", "-c", file.to_str().unwrap(), "--topic", &world.topic]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let batches = "FROM countersign_reconcile_batches";
        crate::wait::until("a batch", || async { (world.db.count(batches).await == 1).then_some(()) }).await;
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let ended = world.db.rows("status, finished_at IS NULL", batches).await;
        assert!(ended[0].starts_with("interrupted|") && !ended[0].ends_with("true"), "{ended:?}");
    });
}

#[test]
fn only_the_newest_batches_are_kept() {
    everywhere(|world| async move {
        let store = &world.db.store;
        let mut batches = Vec::new();
        for pipeline in ["a", "b", "a", "a", "a"] {
            let batch = NewBatch { pipeline, topic: "t", from_ms: Some(5), to_ms: None };
            let batch = store.begin_reconcile(&batch).await.unwrap();
            let diff = NewDiff { message_id: None, topic: "t", partition: 0, offset: 1, kind: "missing", detail: "d" };
            store.record_diffs(batch, &vec![diff; 2500]).await.unwrap();
            store.end_reconcile(batch, "differences", 2500, 2500).await.unwrap();
            batches.push(batch);
        }
        store.forget_reconciles("a", 2).await.unwrap();
        let left = world.db.rows("id", "FROM countersign_reconcile_batches ORDER BY id").await;
        assert_eq!(left, [batches[1], batches[3], batches[4]].map(|id| id.to_string()));
        assert_eq!(world.db.count("FROM countersign_reconcile_diffs").await, 3 * 2500);
    });
}

/// As a library: whoever has the records gives them.
#[test]
fn records_may_come_from_anywhere() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        world.send(&payments(0..20)).await;
        let running = world.start(CHARGE).await;
        running.outcomes(20, "applied=20").await;
        running.stop().await;
        world.db.run("DELETE FROM countersign_inbox WHERE message_id = 'm-0013'").await;
        let config = parse(&world.config(CHARGE));
        let reconciler = Reconciler::new(&config, false, CancellationToken::new()).unwrap();
        let scope = Scope { topic: world.topic.clone(), from: Bound::Beginning, to: Bound::End, receipts: true };
        let mut reconcile = reconciler.begin(&scope).await.unwrap();
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        for record in payments(0..20) {
            let offset = next.entry(record.partition).or_default();
            let position =
                RecordPosition { topic: world.topic.as_str().into(), partition: record.partition, offset: *offset };
            *offset += 1;
            let headers = record.headers.into_iter().map(|(name, value)| Header { name, value: Some(value) });
            let headers = headers.collect();
            let record = Record { position, timestamp_ms: None, headers, key: record.key, value: record.value };
            reconcile.records(vec![record]).await.unwrap();
        }
        let report: Report = reconcile.finish().await.unwrap();
        assert_eq!((report.left(), report.checked, report.outcomes.matched), (1, 20, 19));
        assert_eq!((report.diffs[0].kind, report.diffs[0].message_id.as_deref()), (Kind::Missing, Some("m-0013")));
    });
}
