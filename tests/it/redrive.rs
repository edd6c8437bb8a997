//! `dead-letters redrive` and `discard`: a parked record is applied once, whoever asks and how often.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign::app::Replayer;
use countersign::redrive::{Fate, Wish};
use countersign::store::dead_letters::Filter;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::broker::Rec;
use crate::command_line::run;
use crate::constraints::{TABLES as FAMILY, child, children, routes};
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::proxy::Proxy;
use crate::world::{World, everywhere, on, parse};

/// A child without its parent is parked at once.
const PARK: &str = ", on_foreign_key = \"park\"";

impl World {
    /// Exit code and report of `dead-letters VERB`.
    fn decide(&self, config: &str, verb: &str, arguments: &[&str]) -> (i32, Value) {
        let file = self.file(&self.config(config));
        let head = ["dead-letters", verb, "-c", file.to_str().unwrap(), "--output", "json"];
        let (code, stdout, stderr) = run(&[&head, arguments].concat());
        let report =
            serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{verb} {arguments:?}: {code} {stdout}{stderr}"));
        (code, report)
    }

    /// Exit code and `ID FATE CODE vVERSION` of each letter.
    fn redrive(&self, config: &str, arguments: &[&str]) -> (i32, Vec<String>) {
        let (code, report) = self.decide(config, "redrive", arguments);
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let short = |letter: &Value| {
            let version = letter["version"].as_i64().map_or_else(|| "-".to_owned(), |version| format!("v{version}"));
            format!("{} {} {} {version}", text(&letter["messageId"]), text(&letter["fate"]), text(&letter["code"]))
        };
        (code, report["letters"].as_array().unwrap().iter().map(short).collect())
    }

    /// `OFFSET|STATUS|CODE|ATTEMPTS` of all dead letters.
    async fn letters(&self) -> Vec<String> {
        self.db
            .rows("kafka_offset, status, code, attempts", "FROM countersign_dead_letters ORDER BY kafka_offset, id")
            .await
    }

    async fn letter_id(&self, offset: i64) -> String {
        let from = format!("FROM countersign_dead_letters WHERE kafka_offset = {offset} ORDER BY id DESC");
        self.db.rows("id", &from).await.remove(0)
    }

    async fn versions(&self) -> Vec<String> {
        self.db.rows("message_id, status, code, version", "FROM countersign_inbox ORDER BY message_id").await
    }

    /// Parks and stops.
    async fn parked(&self, config: &str, records: &[Rec], outcomes: &str) {
        self.send(records).await;
        let running = self.start(config).await;
        running.outcomes(records.len(), outcomes).await;
        running.stop().await;
    }
}

#[test]
fn a_parked_message_is_applied_once_when_its_cause_is_mended_and_its_receipt_gets_the_next_version() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        world.parked(&config, &[child(5, 70, 10), child(6, 1, 10)], "applied=1 parked=1").await;
        let id = "child-5-70-10";

        // In vain: its parent is still not there.
        let (code, told) = world.redrive(&config, &["--message-id", id]);
        assert_eq!((code, told), (1, vec![format!("{id} failed FOREIGN_KEY v2")]));
        assert_eq!(
            world.versions().await,
            [format!("{id}|FAILED|FOREIGN_KEY|2"), "child-6-1-10|SUCCESS|-|1".to_owned()]
        );
        assert_eq!(world.letters().await, ["0|open|FOREIGN_KEY|2"]);

        world.db.run("INSERT INTO parents VALUES (70);").await;
        let (code, told) = world.redrive(&config, &["--class", "poison", "--why", "the parent came", "--by", "ann"]);
        assert_eq!((code, told), (0, vec![format!("{id} applied - v3")]));
        assert_eq!(children(&world).await, ["6", "5"]);
        assert_eq!(world.versions().await[0], format!("{id}|SUCCESS|-|3"));
        assert_eq!(world.letters().await, ["0|redriven|FOREIGN_KEY|3"]);
        let said = world.db.rows("decided_by, decided_why", "FROM countersign_dead_letters").await;
        assert_eq!(said, ["ann|the parent came"]);
        let file = world.file(&world.config(&config));
        let (_, story, _) = run(&["explain", id, "-c", file.to_str().unwrap()]);
        assert!(story.contains("redriven, dead letter ") && story.contains(", by ann, why the parent came"), "{story}");

        // It delivered its own receipts: one of each version, under one key.
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0);
        let receipts: Vec<_> =
            world.pushed().await.into_iter().filter(|r| r.message_id.as_deref() == Some(id)).collect();
        let mut versions: Vec<(i64, String)> =
            receipts.iter().map(|r| (r.version, format!("{:?}", r.status))).collect();
        versions.sort();
        assert_eq!(versions, [(1, "Failed".to_owned()), (2, "Failed".to_owned()), (3, "Success".to_owned())]);
        let ids: HashSet<&str> = receipts.iter().map(|receipt| receipt.receipt_id.as_str()).collect();
        assert_eq!(ids.len(), 3);
        let keys: HashSet<Option<Vec<u8>>> = world
            .broker
            .read_all(&world.receipts, 2)
            .into_iter()
            .filter(|r| r.value.as_ref().is_some_and(|v| String::from_utf8_lossy(v).contains(id)))
            .map(|r| r.key)
            .collect();
        assert_eq!(keys.len(), 1);

        // Again: by its number it is told, by a filter it is no open one any more.
        let number = world.letter_id(0).await;
        let (code, told) = world.redrive(&config, &[&number]);
        assert_eq!((code, told), (1, vec![format!("{id} closed closed -")]));
        assert_eq!(world.redrive(&config, &["--all"]), (0, Vec::new()));
        assert_eq!(world.redrive(&config, &["999999"]).0, 1);
        let (code, _, stderr) =
            run(&["dead-letters", "redrive", "-c", world.file(&world.config(&config)).to_str().unwrap()]);
        assert!(code == 2 && stderr.contains("--all"), "{code} {stderr}");

        // The record comes once more.
        world.send(&[child(5, 70, 10)]).await;
        let running = world.start(&config).await;
        running.outcomes(1, "duplicate=1").await;
        running.stop().await;
        assert_eq!(children(&world).await, ["6", "5"]);
        assert!(world.db.count("FROM countersign_lanes").await <= 2, "no more than there are partitions");
    });
}

#[test]
fn a_key_keeps_its_order_and_the_rest_of_it_is_held_after_a_failure() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        let records = [
            child(1, 70, 1).key("k"),
            child(2, 71, 1).key("k"),
            child(3, 70, 1).key("k"),
            child(4, 70, 1).key("other"),
            child(5, 70, 1).key("k").on(1),
            child(6, 71, 1),
            child(7, 70, 1),
        ];
        world.parked(&config, &records, "parked=7").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let (code, told) = world.redrive(&config, &["--all", "--rate", "200/s"]);
        assert_eq!(code, 1);
        assert_eq!(
            told,
            [
                "child-1-70-1 applied - v2",
                "child-2-71-1 failed FOREIGN_KEY v2",
                "child-3-70-1 held held -",
                "child-4-70-1 applied - v2",
                "child-6-71-1 failed FOREIGN_KEY v2",
                "child-7-70-1 applied - v2",
                "child-5-70-1 applied - v2",
            ],
            "one partition after the other; no key, no order"
        );
        assert_eq!(world.letters().await.iter().filter(|letter| letter.contains("|open|")).count(), 3);
        world.db.run("INSERT INTO parents VALUES (71);").await;
        let (code, told) = world.redrive(&config, &["--key", "k"]);
        assert_eq!(
            (code, told),
            (0, vec!["child-2-71-1 applied - v3".to_owned(), "child-3-70-1 applied - v2".to_owned()])
        );
        assert_eq!(children(&world).await, ["1", "4", "7", "5", "2", "3"]);
    });
}

#[test]
fn a_dry_run_tells_what_would_happen_and_changes_nothing() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        world.parked(&config, &[child(1, 70, 1), child(2, 71, 1)], "parked=2").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let before = (world.letters().await, world.versions().await);
        let (code, told) = world.redrive(&config, &["--all", "--dry-run"]);
        assert_eq!(
            (code, told),
            (1, vec!["child-1-70-1 applied - -".to_owned(), "child-2-71-1 failed FOREIGN_KEY -".to_owned()])
        );
        let (code, report) = world.decide(&config, "discard", &["--all", "--dry-run", "--why", "x"]);
        assert_eq!((code, &report["discarded"]), (0, &2.into()));
        assert_eq!((world.letters().await, world.versions().await), before);
        assert!(children(&world).await.is_empty());
        assert_eq!(world.pushed().await.len(), 2);
    });
}

#[test]
fn what_is_applied_stays_against_a_conflict_and_discarding_it_says_who_when_and_why() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let records = [payment("m-1", "bob", 5), payment("m-1", "bob", 6), payment("m-1", "bob", 7)];
        world.parked(CHARGE, &records, "applied=1 conflict=2").await;
        let (code, told) = world.redrive(CHARGE, &["--class", "conflict"]);
        assert_eq!(code, 1);
        assert_eq!(told, ["m-1 refused already_applied -"; 2]);
        assert_eq!(world.letters().await, ["1|open|conflict|1", "2|open|conflict|1"], "nothing was tried");
        assert_eq!(world.versions().await, ["m-1|SUCCESS|-|1"]);

        let first = world.letter_id(1).await;
        let (code, report) = world.decide(CHARGE, "discard", &[&first, "--by", "ann", "--why", "sent twice"]);
        assert_eq!((code, &report["discarded"]), (0, &1.into()));
        assert_eq!(world.letters().await, ["1|discarded|conflict|1", "2|open|conflict|1"]);
        let (_, shown) = world.decide(CHARGE, "show", &[&first]);
        assert_eq!((&shown["decidedBy"], &shown["decidedWhy"]), (&"ann".into(), &"sent twice".into()));
        assert!(shown["updatedAt"].as_str() > shown["createdAt"].as_str());
        // Not twice, and not a redrive after it.
        assert_eq!(world.decide(CHARGE, "discard", &[&first, "--why", "again"]).0, 1);
        assert_eq!(world.redrive(CHARGE, &[&first]), (1, vec!["m-1 closed closed -".to_owned()]));
        assert_eq!(world.ledger().await, ["order-m-1"]);
        assert_eq!(world.balance("bob").await, 99_995);
    });
}

#[test]
fn another_content_under_the_id_of_a_failure_is_taken_by_a_redrive_and_is_the_message_from_then_on() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let broken = Rec::new("m-1", &b"{\"orderId\": \xff"[..]);
        let good = payment("m-1", "bob", 6);
        world.parked(CHARGE, &[broken.clone(), good.clone()], "parked=1 conflict=1").await;
        let conflict = world.letter_id(1).await;
        assert_eq!(world.redrive(CHARGE, &[&conflict]), (0, vec!["m-1 applied - v2".to_owned()]));
        assert_eq!(world.ledger().await, ["order-m-1"]);
        // The broken one is the other content now.
        assert_eq!(world.redrive(CHARGE, &["--class", "poison"]).1[0].split(' ').nth(1), Some("failed"));
        assert_eq!(world.versions().await, ["m-1|SUCCESS|-|2"], "a success is not written over");
        let running = world.start(CHARGE).await;
        world.send(&[good, broken]).await;
        running.outcomes(2, "duplicate=1 conflict=1").await;
        running.stop().await;
        assert_eq!(world.ledger().await, ["order-m-1"]);
    });
}

#[test]
fn a_vain_redrive_of_a_conflict_leaves_the_first_ones_answer_alone() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let refused = payment("m-1", "poor", 5);
        let other = Rec::new("m-1", r#"{"orderId":"order-m-1","account":null,"amount":7}"#);
        world.parked(CHARGE, &[refused, other], "rejected=1 conflict=1").await;
        let before = world.versions().await;
        assert_eq!(before, ["m-1|FAILED|INSUFFICIENT_FUNDS|1"]);
        let (code, fates) = world.redrive(CHARGE, &["--class", "conflict"]);
        assert_eq!((code, fates[0].split(' ').nth(1)), (1, Some("failed")), "{fates:?}");
        assert_eq!(world.versions().await, before, "a conflict never stands for the call");
        assert_eq!(world.letters().await, ["1|open|CHECK|2"]);
    });
}

#[test]
fn an_edited_value_is_applied_and_the_bytes_that_came_stay_as_evidence() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let broken = br#"{"orderId":"order-m-1","account":null,"amount":5}"#;
        world.parked(CHARGE, &[Rec::new("m-1", &broken[..]), payment("m-2", "bob", 1)], "applied=1 parked=1").await;
        let number = world.letter_id(0).await;
        let file = world.db.dir.path().join("edited.json");
        let file = file.to_str().unwrap();
        let edited = |account: &str| {
            let text = format!(r#"{{"orderId":"order-m-1","account":"{account}","amount":5}}"#);
            std::fs::write(file, &text).unwrap();
            text
        };
        // An edit that is of no avail is kept too.
        let in_vain = "{\"orderId\":";
        std::fs::write(file, in_vain).unwrap();
        let (code, told) = world.redrive(CHARGE, &[&number, "--payload", file]);
        assert!(code == 1 && told[0].starts_with("m-1 failed ") && told[0].ends_with(" v2"), "{told:?}");
        assert_eq!(world.decide(CHARGE, "show", &[&number]).1["editedValue"], in_vain);

        let text = edited("bob");
        assert_eq!(world.redrive(CHARGE, &[&number, "--payload", file]), (0, vec!["m-1 applied - v3".to_owned()]));
        assert_eq!(world.ledger().await, ["order-m-2", "order-m-1"]);
        let (_, shown) = world.decide(CHARGE, "show", &[&number]);
        assert_eq!(shown["value"].as_str().unwrap().as_bytes(), broken);
        assert_eq!((&shown["editedValue"], &shown["status"]), (&text.into(), &"redriven".into()));

        // For one letter alone, and never for another message.
        let refused = run(&[
            "dead-letters",
            "redrive",
            "--all",
            "--payload",
            file,
            "-c",
            world.file(&world.config(CHARGE)).to_str().unwrap(),
        ]);
        assert_eq!(refused.0, 2, "{}", refused.2);
        let by_value = CHARGE.replace("header:id", "value:orderId");
        world.parked(&by_value, &[Rec::bare(&br#"{"orderId":"o-9","account":null,"amount":5}"#[..])], "parked=1").await;
        let number = world.letter_id(2).await;
        edited("bob");
        assert_eq!(
            world.redrive(&by_value, &[&number, "--payload", file]),
            (1, vec!["order-m-1 refused id_edited -".to_owned()])
        );
        std::fs::write(file, r#"{"orderId":"o-9","account":"bob","amount":5}"#).unwrap();
        assert_eq!(world.redrive(&by_value, &[&number, "--payload", file]), (0, vec!["o-9 applied - v2".to_owned()]));
    });
}

#[test]
fn a_rejection_is_an_answer_that_closes_the_letter() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let broken = br#"{"orderId":"order-m-1","account":null,"amount":5}"#;
        world.parked(CHARGE, &[Rec::new("m-1", &broken[..])], "parked=1").await;
        let file = world.db.dir.path().join("edited.json");
        std::fs::write(&file, r#"{"orderId":"order-m-1","account":"poor","amount":5}"#).unwrap();
        let number = world.letter_id(0).await;
        let (code, told) = world.redrive(CHARGE, &[&number, "--payload", file.to_str().unwrap()]);
        assert_eq!((code, told), (0, vec!["m-1 rejected INSUFFICIENT_FUNDS v2".to_owned()]));
        assert_eq!(world.versions().await, ["m-1|FAILED|INSUFFICIENT_FUNDS|2"]);
        assert!(world.letters().await[0].starts_with("0|redriven|"));
        assert!(world.ledger().await.is_empty(), "its other step was undone");
        assert_eq!(world.pushed_in_short().await[1], "m-1 FAILED INSUFFICIENT_FUNDS");
    });
}

#[test]
fn a_record_without_an_id_gets_its_own_when_the_configuration_is_mended() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let value = |id: &str| format!(r#"{{"orderId":"{id}","account":"bob","amount":1}}"#);
        let records = [Rec::bare(value("o-1")), Rec::bare(value("o-2")), Rec::bare(value("o-3"))];
        world.parked(CHARGE, &records, "parked=3").await;
        // Still none: tried in vain, under the place where it stood.
        let (code, told) = world.redrive(CHARGE, &["--reason", "id_missing", "--limit", "1"]);
        assert_eq!((code, told), (1, vec!["- failed id_missing v2".to_owned()]));

        let mended = CHARGE.replace("header:id", "value:orderId");
        // One of them came by itself meanwhile, and one with other content.
        let other = r#"{"orderId":"o-3","account":"bob","amount":2}"#;
        world.parked(&mended, &[Rec::bare(value("o-2")), Rec::bare(other)], "applied=2").await;
        let (code, told) = world.redrive(&mended, &["--all"]);
        assert_eq!(code, 1);
        assert_eq!(told, ["o-1 applied - v1", "o-2 duplicate duplicate -", "o-3 refused already_applied -"]);
        assert_eq!(world.ledger().await, ["o-2", "o-3", "o-1"]);
        assert_eq!(world.balance("bob").await, 100_000 - 4);
        let statuses: Vec<String> =
            world.letters().await.iter().map(|letter| letter.split('|').nth(1).unwrap().to_owned()).collect();
        assert_eq!(statuses, ["redriven", "redriven", "open"]);
        let receipts = world.pushed_in_short().await;
        assert_eq!(receipts.iter().filter(|short| *short == "o-1 SUCCESS -").count(), 1, "{receipts:?}");
        // The record comes again under the mended configuration.
        world.parked(&mended, &[Rec::bare(value("o-1"))], "duplicate=1").await;
    });
}

#[test]
fn what_no_route_takes_any_more_is_not_tried() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        world.parked(&config, &[child(1, 70, 1)], "parked=1").await;
        let other = config.replace("header.kind = \"child\"", "header.kind = \"kid\"");
        assert_eq!(world.redrive(&other, &["--all"]), (1, vec!["child-1-70-1 refused no_route -".to_owned()]));
        assert_eq!(world.letters().await, ["0|open|FOREIGN_KEY|1"]);
    });
}

#[test]
fn a_message_that_waits_is_tried_now() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = format!("[retry]\nattempts = 10\ndelay = \"1h\"\nmax_delay = \"1h\"\n{}", routes(""));
        world.parked(&config, &[child(1, 70, 1)], "parked=1").await;
        let id = ["--message-id", "child-1-70-1"];
        let (code, told) = world.redrive(&config, &id);
        assert_eq!((code, told), (1, vec!["child-1-70-1 failed FOREIGN_KEY v1".to_owned()]));
        world.db.run("INSERT INTO parents VALUES (70);").await;
        assert_eq!(world.redrive(&config, &id), (0, vec!["child-1-70-1 applied - v1".to_owned()]));
        assert_eq!(children(&world).await, ["1"]);
        assert_eq!(world.versions().await, ["child-1-70-1|SUCCESS|-|1"]);
    });
}

#[test]
fn of_many_operators_at_once_one_applies_and_the_others_are_told() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        let records: Vec<Rec> = (0..8).map(|n| child(n, 70, 1)).collect();
        world.parked(&config, &records, "parked=8").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let places =
            world.db.store.dead_letter_places(&world.name, &Filter { limit: 99, ..Filter::default() }).await.unwrap();
        let operators: Vec<_> = (0..4)
            .map(|n| {
                let replayer = Replayer::new(&parse(&world.config(&config)), CancellationToken::new()).unwrap();
                let (mut redriver, places) = (replayer.redriver(), places.clone());
                tokio::spawn(async move {
                    let wish = Wish { edited: None, by: format!("operator-{n}"), why: None, dry_run: false };
                    let mut fates = Vec::new();
                    for place in &places {
                        fates.push(redriver.redrive(place, &wish).await.unwrap().fate);
                    }
                    fates
                })
            })
            .collect();
        let mut all = Vec::new();
        for operator in operators {
            all.push(operator.await.unwrap());
        }
        for n in 0..8 {
            let fates: Vec<Fate> = all.iter().map(|fates| fates[n]).collect();
            assert_eq!(fates.iter().filter(|fate| **fate == Fate::Applied).count(), 1, "{fates:?}");
            assert_eq!(fates.iter().filter(|fate| **fate == Fate::Closed).count(), 3, "{fates:?}");
        }
        assert_eq!(children(&world).await.len(), 8);
        assert_eq!(world.db.count("FROM countersign_inbox WHERE version = 2 AND status = 'SUCCESS'").await, 8);
        let told =
            format!("FROM countersign_outbox WHERE topic = '{}' AND receipt LIKE '%\"version\":2%'", world.topic);
        assert_eq!(world.db.count(&told).await, 8, "one receipt each");
    });
}

#[test]
fn a_discard_and_a_redrive_of_one_letter_do_not_both_happen() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        let records: Vec<Rec> = (0..12).map(|n| child(n, 70, 1)).collect();
        world.parked(&config, &records, "parked=12").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let places =
            world.db.store.dead_letter_places(&world.name, &Filter { limit: 99, ..Filter::default() }).await.unwrap();
        let replayer = Replayer::new(&parse(&world.config(&config)), CancellationToken::new()).unwrap();
        let mut redriver = replayer.redriver();
        let wish = Wish { edited: None, by: "a".to_owned(), why: None, dry_run: false };
        for place in &places {
            let (redriven, discarded) =
                tokio::join!(redriver.redrive(place, &wish), world.db.store.discard(&world.name, place.id, "b", "no"));
            let applied = redriven.unwrap().fate == Fate::Applied;
            assert_ne!(applied, discarded.unwrap(), "{place:?}");
        }
        let applied = world.db.count("FROM countersign_dead_letters WHERE status = 'redriven'").await;
        assert_eq!(children(&world).await.len() as i64, applied);
    });
}

#[test]
fn what_stands_in_the_way_of_everything_changes_nothing_and_ends_the_redrive() {
    everywhere(|world| async move {
        let table = "CREATE TABLE ledger (n {serial}, order_id VARCHAR(50) NOT NULL, account VARCHAR(50) NOT NULL, amount BIGINT NOT NULL CHECK (amount < 100));";
        world.db.run(table).await;
        world.parked(BOOK, &[payment("m-1", "bob", 500), payment("m-2", "bob", 600)], "parked=2").await;
        let before = (world.letters().await, world.versions().await);
        world.db.run("ALTER TABLE ledger RENAME TO away;").await;
        let file = world.file(&world.config(BOOK));
        let (code, stdout, stderr) = run(&["dead-letters", "redrive", "--all", "-c", file.to_str().unwrap()]);
        assert_eq!(code, 1, "{stdout}{stderr}");
        assert!(stderr.contains("what stands behind it were not tried"), "{stderr}");
        assert_eq!((world.letters().await, world.versions().await), before);

        world.db.run(&table.replace(" CHECK (amount < 100)", "")).await;
        assert_eq!(world.redrive(BOOK, &["--all"]).0, 0);
        assert_eq!(world.ledger().await, ["order-m-1", "order-m-2"]);
        let unreachable = world.config(BOOK).replace(&world.db.url, "postgres://a:hunter2@127.0.0.1:1/x");
        let file = world.file(&unreachable);
        for verb in [&["redrive", "--all"][..], &["discard", "--all", "--why", "x"]] {
            let (code, _, stderr) = run(&[&["dead-letters"], verb, &["-c", file.to_str().unwrap()]].concat());
            assert!(code == 3 && !stderr.contains("hunter2"), "{code} {stderr}");
        }
    });
}

#[test]
fn receipts_of_a_redrive_wait_in_the_outbox_while_the_broker_is_away_and_a_daemon_delivers_them() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        world.parked(&config, &[child(1, 70, 1)], "parked=1").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let places =
            world.db.store.dead_letter_places(&world.name, &Filter { limit: 9, ..Filter::default() }).await.unwrap();
        let replayer = Replayer::new(&parse(&world.config(&config)), CancellationToken::new()).unwrap();
        let wish = Wish { edited: None, by: "a".to_owned(), why: None, dry_run: false };
        let done = replayer.redriver().redrive(&places[0], &wish).await.unwrap();
        assert_eq!((done.fate, done.version), (Fate::Applied, Some(2)));
        assert_eq!(
            world.db.rows("receipt_id, topic", "FROM countersign_outbox").await,
            [format!("{}|{}", done.receipt_id.unwrap(), world.topic)],
            "on the way of the first one"
        );
        let running = world.start(&config).await;
        assert!(world.pushed_in_short().await.contains(&"child-1-70-1 SUCCESS -".to_owned()));
        running.stop().await;
    });
}

/// Whatever moment of a redrive the connection is cut at, the commit among them: it is looked up or tried again, and
/// what was told is what is there.
#[test]
fn a_database_that_is_cut_off_at_any_moment_leaves_one_effect_and_one_receipt_for_each_letter() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(FAMILY).await;
        let config = routes(PARK);
        let records: Vec<Rec> = (0..45).map(|n| child(n, 70, 1)).collect();
        world.parked(&config, &records, "parked=45").await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        world.db.run("DELETE FROM countersign_outbox;").await;
        let filter = Filter { limit: 99, ..Filter::default() };
        let places = world.db.store.dead_letter_places(&world.name, &filter).await.unwrap();
        let url = url::Url::parse(&world.db.url).unwrap();
        let proxy = Proxy::before(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())).await;
        let text = world.config(&config).replace(&world.db.url, &proxy.instead_of(&world.db.url));
        let replayer = Replayer::new(&parse(&text), CancellationToken::new()).unwrap();
        let mut redriver = replayer.redriver();
        let wish = Wish { edited: None, by: "a".to_owned(), why: None, dry_run: false };
        // On a slow machine nothing gets through between cuts that follow each other too soon.
        let in_vain = AtomicU64::new(0);
        let cutting = async {
            for round in 0_u64.. {
                let slower = in_vain.load(Ordering::Relaxed) * 40;
                tokio::time::sleep(Duration::from_millis(60 + round * 37 % 190 + slower)).await;
                proxy.cut(true);
                tokio::time::sleep(Duration::from_millis(15)).await;
                proxy.cut(false);
            }
        };
        let redriving = async {
            let (mut applied, mut hindered) = (0, 0);
            for place in &places {
                loop {
                    match redriver.redrive(place, &wish).await {
                        Ok(told) if told.fate == Fate::Applied => {
                            in_vain.store(0, Ordering::Relaxed);
                            applied += 1;
                        }
                        // An attempt that was told to have failed must not have taken place.
                        Ok(told) => panic!("{told:?}"),
                        Err(_) => {
                            hindered += 1;
                            in_vain.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            assert!(hindered < 500, "nothing gets through between the cuts");
                            continue;
                        }
                    }
                    break;
                }
            }
            applied
        };
        let redriving = tokio::time::timeout(Duration::from_secs(90), redriving);
        // The cutting has no end of its own if the redrive has none.
        let applied = tokio::select! {
            applied = redriving => applied.expect("the redrive to end"),
            () = cutting => panic!("cut for ever"),
        };
        assert_eq!(applied, 45);
        assert_eq!(children(&world).await.len(), 45);
        assert_eq!(world.db.count("FROM countersign_inbox WHERE version = 2 AND status = 'SUCCESS'").await, 45);
        assert_eq!(world.db.count("FROM countersign_outbox").await, 45);
    });
}
