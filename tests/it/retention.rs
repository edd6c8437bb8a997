//! Retention: what is old goes in portions, what is not done with stays, and what cannot be proved new is not applied.

use std::io::BufRead as _;
use std::time::Duration;

use countersign::app::purger;
use countersign::metrics::Metrics;
use countersign::purge::{Purged, Purger};
use countersign::store::inbox::{BatchHead, NewRow, Status};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::broker::Rec;
use crate::command_line::run;
use crate::constraints::{TABLES as FAMILY, child, routes};
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::rows::{TABLE, change, route};
use crate::wait::until;
use crate::world::{Running, World, everywhere, on, parse};

const DAY_MS: i64 = 86_400_000;

impl World {
    fn keeping(&self, days: &str, rest: &str) -> String {
        self.config(rest).replace("[store]\n", &format!("[store]\nretention = \"{days}\"\n"))
    }

    async fn age_inbox(&self, condition: &str, days: u32) {
        self.db.age("inbox", &["received_at", "finished_at"], condition, days).await;
    }

    fn purger(&self, config: &str) -> Purger {
        purger(&parse(config), self.db.store.clone(), Metrics::new())
    }

    async fn purge(&self, config: &str) -> Purged {
        self.purger(config).round(&CancellationToken::new()).await.unwrap()
    }

    /// Exit code, report and standard error of `purge`.
    fn purge_command(&self, config: &str, arguments: &[&str]) -> (i32, Value, String) {
        let file = self.file(config);
        let head = ["purge", "-c", file.to_str().unwrap(), "--output", "json"];
        let (code, stdout, stderr) = run(&[&head, arguments].concat());
        (code, serde_json::from_str(&stdout).unwrap_or_default(), stderr)
    }

    async fn ids(&self) -> Vec<String> {
        self.db.rows("message_id", "FROM countersign_inbox ORDER BY message_id").await
    }
}

fn days_ago(days: i64) -> i64 {
    Timestamp::now().as_millisecond() - days * DAY_MS
}

#[test]
fn old_rows_go_and_what_is_young_waiting_undecided_or_untold_stays() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let retry = "[retry]\nattempts = 1000\ndelay = \"1h\"\nmax_delay = \"1h\"\n";
        let rest = format!("{retry}{}", routes(""));
        let records: Vec<Rec> = (10..16).map(|n| child(n, 1, 10)).collect();
        let waits = child(20, 70, 10);
        let parked = [child(30, 1, -1), child(31, 1, -1), child(32, 1, -1)];
        world.send(&records).await;
        world.send(&[waits]).await;
        world.send(&parked).await;
        let config = world.keeping("7d", &rest);
        let running = Running::start(&config);
        running.outcomes(10, "applied=6 parked=4").await;
        world.pushed().await;
        running.stop().await;
        world.age_inbox("message_id LIKE 'child-%'", 8).await;
        world.db.age("inbox", &["finished_at"], "message_id = 'child-11-1-10'", 1).await;
        world.age_inbox("message_id = 'child-12-1-10'", 6).await;
        world.db.age("dead_letters", &["updated_at"], "message_id LIKE 'child-3%'", 8).await;
        world
            .db
            .run(
                "UPDATE countersign_dead_letters SET status = 'discarded' WHERE message_id = 'child-31-1--1';
             UPDATE countersign_dead_letters SET status = 'discarded' WHERE message_id = 'child-32-1--1';",
            )
            .await;
        world.db.age("dead_letters", &["updated_at"], "message_id = 'child-32-1--1'", 1).await;
        // A receipt that is not delivered yet.
        let receipt = countersign::receipt::receipt_id(
            &countersign::message::inbox_key(&world.name, "", &countersign_id(&world, "child-13-1-10").await),
            countersign::receipt::ReceiptKind::Terminal { version: 1 },
        );
        world.db.run(&format!(
            "INSERT INTO countersign_outbox (pipeline, topic, kafka_partition, receipt_id, receipt_key, receipt, created_at) \
             VALUES ('{}', NULL, NULL, '{receipt}', 'k', '{{}}', '2026-01-01 00:00:00');", world.name
        )).await;
        if world.db.engine == Engine::Sqlite {
            world.db.run("UPDATE countersign_outbox SET created_at = '2026-01-01T00:00:00.000Z';").await;
        }

        let before = world.ids().await;
        let (code, counted, _) = world.purge_command(&config, &["--dry-run"]);
        assert_eq!((code, &counted["inbox"], &counted["dryRun"]), (0, &5.into(), &true.into()), "{counted}");
        assert_eq!(counted["kept"], json!({"unfinished": 2, "openDeadLetter": 1, "receiptPending": 1, "locked": 0}));
        assert_eq!(world.ids().await, before);
        assert_eq!(counted["horizon"], Value::Null);

        let (code, purged, _) = world.purge_command(&config, &[]);
        assert_eq!((code, &purged["inbox"], &purged["deadLetters"]), (0, &5.into(), &1.into()), "{purged}");
        assert_eq!(purged["kept"], counted["kept"]);
        assert_eq!(
            world.ids().await,
            ["child-11-1-10", "child-12-1-10", "child-13-1-10", "child-20-70-10", "child-30-1--1"],
            "finished within the window, young, untold, waiting, undecided"
        );
        let letters = world.db.rows("message_id", "FROM countersign_dead_letters ORDER BY id").await;
        assert_eq!(
            letters,
            ["child-30-1--1", "child-32-1--1"],
            "an open one is never purged, a closed one in its time"
        );
        let again = world.purge(&config).await;
        assert_eq!((again.inbox, again.horizon.as_deref()), (0, purged["horizon"].as_str()));
    });
}

async fn countersign_id(world: &World, id: &str) -> countersign::message::MessageId {
    let running = countersign::app::lookup(&parse(&world.config(CHARGE)), world.db.store.clone());
    assert_eq!(running.entries(id, None).await.unwrap().len(), 1);
    countersign::route::identify::usable_id(id, 1000).unwrap()
}

#[test]
fn the_horizon_is_raised_no_further_than_what_goes_and_old_records_of_a_new_topic_are_applied() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = world.keeping("7d", CHARGE);
        world.send(&[payment("old-1", "bob", 1).at(days_ago(400)), payment("new-1", "bob", 1)]).await;
        let running = Running::start(&config);
        running.outcomes(2, "applied=2").await;
        let purged = world.purge(&config).await;
        assert_eq!((purged.inbox, purged.horizon), (0, None), "nothing went, nothing is unsure");

        world.age_inbox("message_id = 'old-1'", 8).await;
        let purged = world.purge(&config).await;
        assert_eq!(purged.inbox, 1);
        let horizon: Timestamp = purged.horizon.unwrap().parse().unwrap();
        let age = Timestamp::now().duration_since(horizon).as_secs();
        assert!((8 * 86_400 - 600..=8 * 86_400).contains(&age), "{age}");

        // Seen before and purged: cannot be told from one that was never seen.
        let records = [
            payment("old-1", "bob", 1).at(days_ago(400)),
            payment("old-2", "bob", 1).at(days_ago(9)),
            payment("new-2", "bob", 1).at(days_ago(7)),
            payment("new-1", "bob", 1).at(days_ago(400)),
        ];
        world.send(&records).await;
        let seen = running.outcomes(6, "applied=3 duplicate=1 parked=2").await;
        assert_eq!(seen[2].reason.as_deref(), Some("outside_window"));
        assert_eq!(running.metric("parked_total", "outside_window"), 2.0);
        assert_eq!(world.ledger().await, ["order-old-1", "order-new-1", "order-new-2"]);
        let letters = world.dead_letters().await;
        assert_eq!(letters, ["2|old-1|poison|outside_window", "3|old-2|poison|outside_window"]);
        let told = world.pushed_in_short().await;
        assert!(told.contains(&"old-2 FAILED outside_window".to_owned()), "{told:?}");
        running.stop().await;

        // An operator knows that the second one is new; the first one is not.
        let file = world.file(&config);
        let number = world.db.rows("id", "FROM countersign_dead_letters WHERE message_id = 'old-2'").await.remove(0);
        let (code, out, err) = run(&["dead-letters", "redrive", &number, "-c", file.to_str().unwrap()]);
        assert_eq!(code, 0, "{out}{err}");
        assert_eq!(world.ledger().await.last().unwrap(), "order-old-2");
        let late = config.replace("message_id = \"header:id\"", "message_id = \"header:id\"\nlate = \"apply\"");
        world.send(&[payment("old-3", "bob", 1).at(days_ago(30))]).await;
        let running = Running::start(&late);
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

/// The purge commits between the fence of a lane and its insert: the row is gone, and the horizon that the fence could
/// have read is not the one that says so.
#[test]
fn a_purge_between_fence_and_insert_does_not_make_an_old_message_new() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let config = world.keeping("7d", CHARGE);
        world.send(&[payment("m-1", "bob", 1)]).await;
        let running = Running::start(&config);
        running.outcomes(1, "applied=1").await;
        world.pushed().await;
        running.stop().await;
        world.age_inbox("message_id = 'm-1'", 8).await;

        let mut tx = world.db.store.begin().await.unwrap();
        let fenced = tx.fence(&world.lane_key(0)).await.unwrap().unwrap();
        let purged = world.purge(&config).await;
        assert_eq!(purged.inbox, 1, "a purge waits for no lane");
        let key = countersign::message::inbox_key(
            &world.name,
            "",
            &countersign::route::identify::usable_id("m-1", 99).unwrap(),
        );
        let head = BatchHead { pipeline: &world.name, topic: &world.topic, partition: 0, token: 77, now: &fenced.now };
        let row = NewRow {
            key: &key,
            scope: "",
            route: "charge",
            message_id: Some("m-1"),
            status: Status::Success,
            code: None,
            reason: None,
            digest: None,
            correlation_id: None,
            source_app: None,
            offset: 1,
            source_instance: None,
        };
        let known = tx.record_inbox(&head, &[row]).await.unwrap();
        assert!(known.rows.is_none_or(|rows| rows[0].token == 77), "it looks new");
        let horizon = known.horizon_ms.expect("the horizon of the purge that took its row");
        assert!(horizon > days_ago(8) - 60_000, "{horizon}");
        tx.rollback().await;
    });
}

/// The same by load: records come again and again while their rows are purged under them.
#[test]
fn redeliveries_beside_a_purge_are_never_applied_again() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config =
            format!("{}\n[pause]\nparks = 100000\nwindow = 100000\nratio = 1.0\n", world.keeping("7d", CHARGE));
        let stamp = days_ago(10);
        let records: Vec<Rec> = (0..300).map(|n| payment(&format!("m-{n:03}"), "bob", 1).at(stamp).on(n % 2)).collect();
        world.send(&records).await;
        let running = Running::start(&config);
        running.outcomes(300, "applied=300").await;
        world.pushed().await;
        world.age_inbox("message_id LIKE 'm-%'", 9).await;
        let purger = world.purger(&config);
        let stop = CancellationToken::new();
        let purging = async {
            while world.db.count("FROM countersign_inbox WHERE status = 'SUCCESS'").await > 0 {
                purger.round(&stop).await.unwrap();
            }
        };
        let sending = async {
            for chunk in records.chunks(60) {
                world.send(chunk).await;
            }
            running.seen(600).await
        };
        let ((), seen) = tokio::join!(purging, sending);
        let applied = seen.iter().filter(|one| one.outcome.as_str() == "applied").count();
        assert_eq!(applied, 300);
        assert_eq!(world.balance("bob").await, 100_000 - 300);
        running.stop().await;
    });
}

#[test]
fn a_row_that_somebody_holds_is_left_and_a_purge_does_not_wait() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let config = world.keeping("7d", CHARGE);
        world.send(&(0..5).map(|n| payment(&format!("m-{n}"), "bob", 1)).collect::<Vec<_>>()).await;
        let running = Running::start(&config);
        running.outcomes(5, "applied=5").await;
        world.pushed().await;
        running.stop().await;
        world.age_inbox("message_id LIKE 'm-%'", 8).await;
        let mut holder = world.db.store.begin().await.unwrap();
        holder.batch("UPDATE countersign_inbox SET attempts = attempts WHERE message_id = 'm-2'").await.unwrap();
        let purged = tokio::time::timeout(Duration::from_secs(10), world.purge(&config)).await.unwrap();
        assert_eq!((purged.inbox, purged.kept.locked), (4, 1));
        holder.rollback().await;
        assert_eq!(world.purge(&config).await.inbox, 1);
        // Of two at once one is told.
        let other = world.purger(&config);
        let held = world
            .db
            .store
            .take_lease(&countersign::store::meta::of_pipeline("purge", &world.name), "x", Duration::from_secs(60))
            .await;
        assert!(held.unwrap() && other.round(&CancellationToken::new()).await.is_err());
    });
}

#[test]
fn a_daemon_purges_by_itself_in_portions_and_keeps_what_guards_living_rows() {
    everywhere(|world| async move {
        world.db.run(TABLE).await;
        let row = |id: i64| json!({"id": id, "status": "s", "note": "n", "amount": 1});
        let mut records: Vec<Rec> = (0..1500).map(|id| change("c", 10 + id, Value::Null, row(id))).collect();
        records.push(change("d", 5000, row(7), Value::Null));
        records.push(change("d", 5001, row(8), Value::Null));
        world.send(&records).await;
        let rest = route("---guard = \"source\"\n");
        let config = world.keeping("7d", &rest);
        let running = Running::start(&config);
        running.outcomes(1502, "applied=1502").await;
        world.pushed().await;
        running.stop().await;
        world.age_inbox("1 = 1", 8).await;
        world.db.age("row_versions", &["updated_at"], "1 = 1", 8).await;
        world.db.age("row_versions", &["updated_at"], &hash_of_newest_delete(&world), 1).await;

        let running = Running::start(&config);
        until("an empty inbox", || async { (world.db.count("FROM countersign_inbox").await == 0).then_some(()) }).await;
        until("the version of a deleted row to go", || async {
            (world.db.count("FROM countersign_row_versions").await == 1499).then_some(())
        })
        .await;
        assert_eq!(world.db.count("FROM countersign_row_versions WHERE deleted").await, 1, "one was deleted lately");
        until("the counter", || async { (running.metric("purged_rows_total", "inbox") == 1502.0).then_some(()) }).await;
        until("no oldest row", || async { (running.metric("inbox_oldest_seconds", "").abs() < 1.0).then_some(()) })
            .await;
        // By default a guarded table takes what is late: the guard knows the row.
        world.send(&[change("u", 9, Value::Null, row(3)), change("u", 6000, Value::Null, row(4))]).await;
        running.outcomes(2, "applied=1 skipped=1").await;
        running.stop().await;
    });
}

/// One of the two versions of deleted rows.
fn hash_of_newest_delete(world: &World) -> String {
    let newest = "SELECT MAX(key_hash) FROM countersign_row_versions WHERE deleted";
    match world.db.engine {
        // An UPDATE may not read its own table there, but for a derived one.
        Engine::MariaDb => {
            "key_hash = (SELECT h FROM (SELECT MAX(key_hash) AS h FROM countersign_row_versions WHERE deleted) AS d)"
                .to_owned()
        }
        Engine::Postgres => {
            "key_hash = (SELECT key_hash FROM countersign_row_versions WHERE deleted ORDER BY key_hash DESC LIMIT 1)"
                .to_owned()
        }
        Engine::Sqlite => format!("key_hash = ({newest})"),
    }
}

#[test]
fn rows_stand_in_the_archive_before_they_go_and_stay_if_they_cannot() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let folder = world.db.dir.path().join("old rows");
        let archive = format!("[store]\narchive = \"{}\"\n", folder.display());
        let config = world.keeping("7d", CHARGE).replace("[store]\n", &archive);
        world.send(&(0..1200).map(|n| payment(&format!("m-{n:04}"), "bob", 1)).collect::<Vec<_>>()).await;
        let running = Running::start(&config);
        running.outcomes(1200, "applied=1200").await;
        world.pushed().await;
        running.stop().await;
        world.age_inbox("message_id LIKE 'm-%'", 8).await;

        // A file stands where the folder should.
        std::fs::write(&folder, "").unwrap();
        let (code, _, stderr) = world.purge_command(&config, &[]);
        assert!(code == 1 && stderr.contains("old rows"), "{code} {stderr}");
        assert_eq!(world.ids().await.len(), 1200);
        std::fs::remove_file(&folder).unwrap();

        let (code, purged, stderr) = world.purge_command(&config, &[]);
        assert_eq!((code, &purged["inbox"]), (0, &1200.into()), "{stderr}");
        let file = std::fs::File::open(purged["archive"].as_str().unwrap()).unwrap();
        let lines = std::io::BufReader::new(zstd::Decoder::new(file).unwrap()).lines();
        let mut ids: Vec<String> = lines
            .map(|line| {
                let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
                assert_eq!((&row["status"], &row["version"]), (&"SUCCESS".into(), &1.into()), "{row}");
                row["messageId"].as_str().unwrap().to_owned()
            })
            .collect();
        ids.sort();
        assert_eq!(ids, (0..1200).map(|n| format!("m-{n:04}")).collect::<Vec<_>>(), "each once");
    });
}

#[test]
fn a_window_that_was_promised_is_not_cut_by_hand() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let (code, _, stderr) = world.purge_command(&world.keeping("forever", CHARGE), &[]);
        assert!(code == 2 && stderr.contains("forever"), "{stderr}");
        let (code, _, stderr) = world.purge_command(&world.keeping("7d", CHARGE), &["--older-than", "6d"]);
        assert!(code == 2 && stderr.contains("--older-than"), "{stderr}");
        assert_eq!(world.purge_command(&world.keeping("7d", CHARGE), &["--older-than", "soon"]).0, 2);
        assert_eq!(world.purge_command(&world.keeping("7d", CHARGE), &["--older-than", "8d"]).0, 0);
        let away = world.keeping("7d", CHARGE).replace(&world.db.url, "postgres://a:hunter2@127.0.0.1:1/x");
        let (code, _, stderr) = world.purge_command(&away, &[]);
        assert!(code == 3 && !stderr.contains("hunter2"), "{stderr}");
    });
}
