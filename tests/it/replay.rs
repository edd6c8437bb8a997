//! `replay`: record lines, or a window of a topic, through the pipeline; the inbox row is the fence.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use countersign::record::{Header, Record, RecordPosition};
use countersign::record_line;
use serde_json::Value;

use crate::broker::Rec;
use crate::command_line::run;
use crate::daemon::program;
use crate::database::Engine;
use crate::payments::{BOOK, CHARGE, TABLES, payment};
use crate::proxy::Proxy;
use crate::registry_server::{Kind, RegistryServer};
use crate::wait::{PATIENCE, until};
use crate::world::{World, everywhere, on};

/// The lines of records as they would stand in the topic, the partitions mixed.
fn lines(world: &World, records: &[Rec]) -> String {
    let mut next = [0_i64; 2];
    let line = |record: &Rec| {
        let partition = usize::try_from(record.partition).unwrap();
        let offset = next[partition];
        next[partition] += 1;
        record_line::write(&Record {
            position: RecordPosition { topic: world.topic.as_str().into(), partition: record.partition, offset },
            timestamp_ms: Some(1_796_000_000_000),
            headers: record
                .headers
                .iter()
                .map(|(name, value)| Header { name: name.clone(), value: Some(value.clone()) })
                .collect(),
            key: record.key.clone(),
            value: record.value.clone(),
        }) + "\n"
    };
    records.iter().map(line).collect()
}

fn input(world: &World, records: &[Rec]) -> PathBuf {
    let file = world.db.dir.path().join("records.jsonl");
    std::fs::write(&file, lines(world, records)).unwrap();
    file
}

/// Exit code and summary, whose outcomes add up.
fn replay(arguments: &[&str]) -> (i32, String, Value) {
    let (code, stdout, stderr) = run(&[&["replay", "--output", "json"], arguments].concat());
    let summary: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    let names = ["applied", "duplicate", "skipped", "rejected", "parked", "conflict"];
    let sum: u64 = names.iter().map(|name| summary[name].as_u64().unwrap()).sum();
    assert_eq!(summary["consumed"], sum, "{summary}");
    let keys: Vec<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, [&["consumed"], &names[..], &["receipts", "seconds"]].concat());
    (code, in_short(&summary), summary)
}

fn in_short(summary: &Value) -> String {
    let counts = summary.as_object().unwrap().iter().skip(1).filter(|(_, n)| n.as_u64().is_some_and(|n| n > 0));
    counts.map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>().join(" ")
}

/// Two thousand records: 1,700 payments, some of which come again, some with other content, some that are none.
fn mixed() -> (Vec<Rec>, usize) {
    let mut records = Vec::new();
    for n in 0..1700 {
        let partition = n % 2;
        records.push(payment(&format!("m-{n:04}"), "bob", 1).on(partition));
        if n % 10 == 3 {
            records.push(payment(&format!("m-{n:04}"), "bob", 1).on(partition));
        }
        if n % 20 == 7 {
            records.push(payment(&format!("m-{n:04}"), "bob", 99).on(partition));
        }
        if n % 100 == 50 {
            records.push(Rec::bare(format!("{{broken {n}")).on(partition));
        }
        if n % 100 == 60 {
            records.push(payment(&format!("poor-{n}"), "poor", 1).on(partition));
        }
        if n % 100 == 70 {
            records.push(Rec::tombstone("k").on(partition));
        }
    }
    (records, 1700)
}

#[test]
fn a_file_is_applied_once_however_often_it_is_replayed_and_no_lane_row_is_touched() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let (records, count) = mixed();
        assert!(records.len() > 2000);
        let lines = input(&world, &records);
        let config = world.file(&world.config(CHARGE));
        let arguments = ["-c", config.to_str().unwrap(), lines.to_str().unwrap()];
        let (code, short, summary) = replay(&arguments);
        // A record without an id that is set aside gets its receipt as well.
        let expected = "applied=1700 duplicate=170 skipped=17 rejected=17 parked=17 conflict=85 receipts=1819";
        assert_eq!((code, short.as_str()), (1, expected), "{summary}");
        world.booked_once(count).await;
        assert_eq!(world.db.count("FROM countersign_outbox").await, 0, "the replay delivered its own receipts");
        assert_eq!(world.pushed().await.len(), 1819);
        assert_eq!(world.db.count("FROM countersign_lanes").await, 0);
        assert_eq!(world.db.count("FROM countersign_dead_letters").await, 17 + 85);
        assert_eq!(world.committed(0), None);

        let (code, short, _) = replay(&arguments);
        assert_eq!((code, short.as_str()), (1, "duplicate=1904 skipped=17 conflict=85"));
        world.booked_once(count).await;
        assert_eq!(world.pushed().await.len(), 1819);
        assert_eq!(world.db.count("FROM countersign_dead_letters").await, 17 + 85);
    });
}

#[test]
fn recorded_events_are_replayed_from_standard_input_and_a_rejection_is_an_answer() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let config = world.file(&world.config(CHARGE));
        let text = lines(&world, &[payment("m-0", "bob", 1), payment("m-1", "poor", 1)]);
        let mut command = program();
        command.args(["replay", "-c", config.to_str().unwrap(), "--output", "json", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0));
        let summary: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(in_short(&summary), "applied=1 rejected=1 receipts=2");
        // The text for people says the same.
        let lines = input(&world, &[payment("m-0", "bob", 1)]);
        let (code, text, _) = run(&["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert!(code == 0 && text.starts_with("1 records = 0 applied + 1 duplicate"), "{code} {text}");
        // A line that is none is named, the rest is done, and the end says so.
        std::fs::write(&lines, format!("nothing\n{}", self::lines(&world, &[payment("m-9", "bob", 1)]))).unwrap();
        let (code, text, stderr) = run(&["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert!(code == 1 && text.starts_with("1 records = 1 applied"), "{code} {text}");
        assert!(stderr.contains("records.jsonl:1: "), "{stderr}");
    });
}

#[test]
fn the_fixtures_are_replayed_twice_with_every_shape_by_its_id() {
    everywhere(|world| async move {
        let none = |name: &str, matcher: &str, id: &str| {
            format!(
                "[[route]]\nname = \"{name}\"\nmatch = {{ {matcher} }}\nmessage_id = \"{id}\"\neffect = {{ kind = \"none\" }}\n"
            )
        };
        let routes = [
            none("payments", "topic = \"shop.payment.events\"", "header:id"),
            none("rest", "topic = \"^.*orders.*\"", "source"),
        ];
        let config = world.file(&world.config(&routes.concat()));
        let files = ["demo.jsonl", "mariadb-orders.jsonl", "postgres-orders.jsonl"].map(crate::inspect::fixture);
        let mut arguments = vec!["-c", config.to_str().unwrap()];
        arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
        let (_, first, summary) = replay(&arguments);
        assert!(first.starts_with("applied=") && summary["consumed"] == 57 + 26 + 26, "{summary}");
        let rows = world.db.count("FROM countersign_inbox").await;
        let (_, second, again) = replay(&arguments);
        assert_eq!((again["applied"].as_u64(), again["parked"].as_u64()), (Some(0), Some(0)), "{first}, then {second}");
        assert_eq!(world.db.count("FROM countersign_inbox").await, rows);
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_in_the_middle_and_run_again_every_effect_is_there_once() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let records: Vec<Rec> = (0..4000).map(|n| payment(&format!("m-{n:04}"), "bob", 1).on(n % 2)).collect();
        let lines = input(&world, &records);
        let config = world.file(&world.config(CHARGE).replace("[store]\n", "[store]\nbatch = 100\n"));
        let arguments = ["-c", config.to_str().unwrap(), lines.to_str().unwrap()];
        for round in 1..3 {
            let mut command = program();
            command.arg("replay").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = Killed(command.spawn().unwrap());
            world.booked(400 * round + 1).await;
            child.0.kill().unwrap();
            child.0.wait().unwrap();
            assert!(world.ledger().await.len() < 4000, "it was killed too late to show anything");
        }
        let (code, short, summary) = replay(&arguments);
        assert_eq!((code, &summary["consumed"]), (0, &4000.into()), "{short}");
        world.booked_once(4000).await;
        assert_eq!(world.receipt_ids().await.len(), 4000, "also those that the killed ones left");
    });
}

#[test]
fn an_interrupt_ends_it_after_the_batch_at_hand_with_a_summary() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        let records: Vec<Rec> = (0..6000).map(|n| payment(&format!("m-{n:04}"), "bob", 1)).collect();
        let lines = input(&world, &records);
        let config = world.file(&world.config(CHARGE).replace("[store]\n", "[store]\nbatch = 50\n"));
        let mut command = program();
        command.args(["replay", "-c", config.to_str().unwrap(), "--output", "json", lines.to_str().unwrap()]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        world.booked(200 + 1).await;
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let began = Instant::now();
        let ended = child.wait_with_output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(ended.status.code(), Some(1));
        let summary: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let applied = world.ledger().await.len();
        assert_eq!(summary["applied"], applied, "{summary}");
        assert!(applied < 6000);
        assert!(String::from_utf8(ended.stderr).unwrap().contains("interrupted"));
        replay(&["-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        world.booked_once(6000).await;
    });
}

#[test]
fn beside_the_daemon_on_the_same_records_each_effect_is_there_once() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let records: Vec<Rec> = (0..1500).map(|n| payment(&format!("m-{n:04}"), "bob", 1).on(n % 2)).collect();
        world.send(&records).await;
        let text = world.config(&format!("[gate]\nurl = \"memory\"\n{CHARGE}"));
        let text = text.replace("[store]\n", "[store]\nbatch = 40\n");
        let config = world.file(&text);
        let running = crate::world::Running::start(&text);
        let config = config.to_str().unwrap().to_owned();
        let topic = world.topic.clone();
        // Each of them meets the other somewhere in the topic.
        let replays: Vec<_> = (0..2)
            .map(|_| {
                let (config, topic) = (config.clone(), topic.clone());
                std::thread::spawn(move || replay(&["-c", &config, "--topic", &topic]))
            })
            .collect();
        let seen = running.seen(1500).await;
        let mut applied = seen.iter().filter(|one| one.outcome.as_str() == "applied").count() as u64;
        for replay in replays {
            let (code, short, summary) = replay.join().unwrap();
            assert_eq!((code, summary["consumed"].as_u64()), (0, Some(1500)), "{short}");
            applied += summary["applied"].as_u64().unwrap();
        }
        assert_eq!(applied, 1500, "each was first once");
        world.booked_once(1500).await;
        let receipts = world.pushed().await;
        let mut ids: Vec<&str> = receipts.iter().map(|receipt| receipt.receipt_id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1500);
        for partition in [0, 1] {
            assert_eq!(world.lane(partition).await.unwrap().next_offset, 750);
        }
        // Marks of the gate that the lane left afterwards are true.
        world.send(&records[..100]).await;
        let again = running.seen(1600).await;
        assert!(again[1500..].iter().all(|one| one.outcome.as_str() == "duplicate"));
        running.stop().await;
        world.booked_once(1500).await;
    });
}

/// A replay whose broker is away leaves its receipts to a daemon; of lanes that nobody is assigned to, too.
#[test]
fn receipts_of_no_lane_and_of_topics_that_nobody_consumes_are_delivered_by_a_running_daemon() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let route = BOOK.replace("match = { topic = \"TOPIC\" }\n", "");
        let running = world.start(&route).await;
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        let receipt = |id: &str| {
            format!(
                r#"{{"receiptId":"{id}","messageId":"{id}","pipeline":"p","status":"SUCCESS","code":null,"reason":null,"version":1,"correlationId":null,"sourceApp":null,"digest":null,"receivedAt":"2026-11-30T00:00:00Z","finishedAt":null,"position":{{"topic":"t","partition":0,"offset":0}}}}"#
            )
        };
        let row = |id: &str, lane: &str| {
            format!(
                "INSERT INTO countersign_outbox (pipeline, topic, kafka_partition, receipt_id, receipt_key, receipt, created_at) \
                 VALUES ('{}', {lane}, '{id}', '{id}', '{}', '2026-11-30 00:00:00');",
                world.name,
                receipt(id)
            )
        };
        let gone = format!("'{}', 7", world.topic);
        let rows = [row("none", "NULL, NULL"), row("elsewhere", "'not.consumed', 4"), row("gone", &gone)];
        world.db.run(&rows.concat()).await;
        assert_eq!(world.pushed_in_short().await, ["elsewhere SUCCESS -", "gone SUCCESS -", "none SUCCESS -"]);
        running.stop().await;
    });
}

#[test]
fn a_broker_that_is_away_leaves_the_receipts_in_the_outbox_and_the_effects_are_there() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let lines = input(&world, &[payment("m-0000", "bob", 1)]);
        let away = world.config(CHARGE).replace(&world.broker.address(), "127.0.0.1:1");
        let config = world.file(&away);
        let (code, text, stderr) = run(&["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert_eq!(code, 0, "{text}{stderr}");
        assert!(stderr.contains("1 receipts wait in the outbox"), "{stderr}");
        assert!(stderr.contains("waiting, 20 s at most, until 127.0.0.1:1 has the receipts"), "{stderr}");
        world.booked_once(1).await;
        let config = world.file(&world.config(CHARGE));
        replay(&["-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert_eq!(world.pushed_in_short().await, ["m-0000 SUCCESS -"]);
    });
}

#[test]
fn it_says_what_is_missing_and_stops_at_what_only_somebody_else_can_change() {
    everywhere(|world| async move {
        let lines = input(&world, &[payment("m-0000", "bob", 1)]);
        let config = world.file(&world.config(CHARGE));
        // The tables of the business are not there: fatal, and no reason to wait for ever.
        let began = Instant::now();
        let (code, stdout, stderr) = run(&["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert_eq!(code, 1, "{stderr}");
        assert!(began.elapsed() < PATIENCE && stdout.starts_with("0 records"), "{stdout}{stderr}");
        world.db.run(TABLES).await;
        assert_eq!(replay(&["-c", config.to_str().unwrap(), lines.to_str().unwrap()]).1, "applied=1 receipts=1");
        if world.db.engine == Engine::Sqlite {
            return;
        }
        let away = world.config(CHARGE).replace(&world.db.url, "postgres://a:hunter2@127.0.0.1:1/x");
        let config = world.file(&away);
        let (code, _, stderr) = run(&["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert!(code == 3 && !stderr.contains("hunter2"), "{code} {stderr}");
    });
}

#[test]
fn it_goes_on_past_many_parked_records_unless_it_is_told_to_stop() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let records: Vec<Rec> = (0..300).map(|n| Rec::bare(format!("{{broken {n}"))).collect();
        let lines = input(&world, &records);
        let config = world.file(&world.config(CHARGE).replace("[store]\n", "[store]\nbatch = 20\n"));
        let arguments = ["-c", config.to_str().unwrap(), lines.to_str().unwrap()];
        let (code, short, _) = replay(&[&arguments[..], &["--stop-on-pause"]].concat());
        assert_eq!((code, short.as_str()), (1, "parked=60 receipts=60"), "at the end of the batch with the 50th");
        let (code, short, _) = replay(&arguments);
        assert_eq!((code, short.as_str()), (1, "duplicate=60 parked=240 receipts=240"));
    });
}

#[test]
fn a_record_without_an_id_in_a_topic_that_was_made_anew_is_the_same_for_daemon_and_replay() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let running = world.start(CHARGE).await;
        until("both lanes", || async { (world.db.count("FROM countersign_lanes").await == 2).then_some(()) }).await;
        running.stop().await;
        world.db.run("UPDATE countersign_lanes SET generation = 3 WHERE kafka_partition = 0").await;
        world.send(&[Rec::bare("{broken"), Rec::bare("{broken too").on(1)]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(2, "parked=2").await;
        running.stop().await;
        let config = world.file(&world.config(CHARGE));
        let (code, short, _) = replay(&["-c", config.to_str().unwrap(), "--topic", &world.topic]);
        assert_eq!((code, short.as_str()), (0, "duplicate=2"));
        assert_eq!(world.db.count("FROM countersign_dead_letters").await, 2);
    });
}

#[test]
fn several_leases_are_taken_but_for_those_that_others_have() {
    everywhere(|world| async move {
        let store = &world.db.store;
        let names = |range: std::ops::Range<usize>| range.map(|n| format!("lease:{n:04}")).collect::<BTreeSet<_>>();
        let long = Duration::from_secs(60);
        assert_eq!(store.take_leases(&names(200..210), "a", long).await.unwrap(), names(200..210));
        let rest: BTreeSet<_> = names(0..1200).difference(&names(200..210)).cloned().collect();
        assert_eq!(store.take_leases(&names(0..1200), "b", long).await.unwrap(), rest);
        assert_eq!(store.take_leases(&names(100..300), "a", long).await.unwrap(), names(200..210));
        store.release_leases(&names(0..1200), "b").await.unwrap();
        assert_eq!(store.take_leases(&names(190..220), "c", long).await.unwrap().len(), 20);
        assert_eq!(store.take_leases(&BTreeSet::new(), "c", long).await.unwrap(), BTreeSet::new());
    });
}

#[test]
fn a_lease_has_one_owner_at_a_time_until_it_is_given_back_or_runs_out() {
    everywhere(|world| async move {
        let store = &world.db.store;
        let long = Duration::from_secs(60);
        let take = |owner: &'static str, time| async move { store.take_lease("relay:x", owner, time).await.unwrap() };
        assert!(take("a", long).await);
        assert!(!take("b", long).await);
        assert!(take("a", long).await, "renewed");
        store.release_lease("relay:x", "b").await.unwrap();
        assert!(!take("b", long).await, "only its owner gives it back");
        store.release_lease("relay:x", "a").await.unwrap();
        assert!(take("b", Duration::from_millis(200)).await);
        until("the end of a lease that nobody renews", || async { take("a", long).await.then_some(()) }).await;
    });
}

/// An Avro record behind one that needs no schema.
fn avro_behind_json(world: &World) -> PathBuf {
    input(world, &[payment("m-0000", "bob", 1), Rec::new("m-0001", &b"\x00\x00\x00\x00\x07\x02"[..])])
}

#[test]
fn a_registry_that_is_away_is_said_at_once_and_ends_it_with_3() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let lines = avro_behind_json(&world);
        let config = world.file(&world.config(&format!("[registry]\nurl = \"http://127.0.0.1:1\"\n{CHARGE}")));
        let arguments = ["-c", config.to_str().unwrap(), "--wait", "3s", lines.to_str().unwrap()];
        let began = Instant::now();
        let (code, stdout, stderr) = run(&[&["replay"][..], &arguments].concat());
        assert_eq!(code, 3, "{stdout}{stderr}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(stdout.starts_with("1 records = 1 applied"), "what stands before it is done: {stdout}");
        let waiting = "countersign: waiting, 3 s at most: the registry at http://127.0.0.1:1 does not answer";
        assert!(stderr.contains(waiting) && stderr.contains("run it again"), "{stderr}");
        world.booked_once(1).await;
    });
}

#[test]
fn a_registry_that_comes_back_in_time_is_all_that_a_replay_waits_for() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let lines = avro_behind_json(&world);
        let mut registry = RegistryServer::start(Kind::Confluent).await;
        registry.schema(7, r#"{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}"#);
        let text = world.config(&format!("[registry]\nurl = \"{}\"\n{CHARGE}", registry.url));
        let config = world.file(&text);
        registry.stop().await;
        let mut command = program();
        command.args(["replay", "-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        world.booked(1).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        registry.resume().await;
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        // The record has none of the fields that the steps name: parked.
        assert_eq!(ended.status.code(), Some(1), "{stderr}");
        assert!(String::from_utf8(ended.stdout).unwrap().contains("1 parked"));
        assert!(stderr.contains("waiting, 30 s at most"), "{stderr}");
    });
}

#[test]
fn a_database_that_goes_away_in_the_middle_ends_it_with_3() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        world.db.run(TABLES).await;
        let server = url::Url::parse(&world.db.url).unwrap();
        let proxy = Proxy::before(format!("127.0.0.1:{}", server.port().unwrap())).await;
        let records: Vec<Rec> = (0..6000).map(|n| payment(&format!("m-{n:04}"), "bob", 1)).collect();
        let lines = input(&world, &records);
        let text = world.config(CHARGE).replace("[store]\n", "[store]\nbatch = 50\n");
        let config = world.file(&text.replace(&world.db.url, &proxy.instead_of(&world.db.url)));
        let mut command = program();
        command.args(["replay", "-c", config.to_str().unwrap(), "--wait", "2s", lines.to_str().unwrap()]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        world.booked(200 + 1).await;
        proxy.cut(true);
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("run it again"), "{stderr}");
        proxy.cut(false);
        let (code, short, _) = replay(&["-c", config.to_str().unwrap(), lines.to_str().unwrap()]);
        assert_eq!(code, 0, "{short}");
        world.booked_once(6000).await;
    });
}
