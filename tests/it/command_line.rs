//! The built program: what it prints and how it ends.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::broker::Rec;
use crate::daemon::program;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::{everywhere, on};

/// The program's answer: exit code, standard output, standard error.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}

fn done(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
    stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&[arguments, &["--output", "json"]].concat())).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_demo_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let summary = json(&["demo", "--dir", text(dir.path())]);
    let count = |name: &str| summary[name].as_u64().unwrap();
    let outcomes = ["applied", "duplicate", "skipped", "rejected", "parked", "conflict"];
    assert_eq!(count("consumed"), outcomes.iter().map(|name| count(name)).sum::<u64>(), "{summary}");
    for name in ["applied", "duplicate", "rejected", "parked", "conflict"] {
        assert!(count(name) > 0, "{name}: {summary}");
    }
    let receipts = std::fs::read_to_string(dir.path().join("receipts.jsonl")).unwrap();
    assert_eq!(receipts.lines().count() as u64, count("receipts"));
    // The folder can be asked afterwards.
    let file = dir.path().join("countersign.toml");
    let letters = json(&["dead-letters", "list", "-c", text(&file)]);
    assert_eq!(letters.as_array().unwrap().len() as u64, count("parked") + count("conflict"));
    done(&["demo", "--dir", text(dir.path())]);
}

#[test]
fn faults_of_usage_and_configuration_exit_with_2_and_name_every_fault_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    let config = "[pipeline]\nname = \"Bad Name\"\n[kafka]\nbrokers = \"b\"\ntopics = []\n[kafka.options]\n\
                  \"enable.auto.commit\" = true\n[store]\nurl = \"oracle://app:hunter2@db/x\"\nretentoin = \"1d\"\n\
                  [[route]]\nname = \"r\"\nmessage_id = \"body:id\"\neffect = { kind = \"none\" }\n";
    std::fs::write(&file, config).unwrap();
    for arguments in [&["run"][..], &["migrate"], &["lanes", "list"], &["explain", "x"]] {
        let (code, _, stderr) = run(&[arguments, &["-c", text(&file)]].concat());
        assert_eq!(code, 2, "{arguments:?}");
        for fault in ["pipeline.name", "enable.auto.commit", "retentoin", "message_id", "topics"] {
            assert!(stderr.contains(fault), "{fault} is missing in:\n{stderr}");
        }
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
    assert_eq!(run(&["run"]).0, 2);
    assert_eq!(run(&["nonsense"]).0, 2);
    assert_eq!(run(&["run", "-c", "/nowhere/x.toml"]).0, 2);
    assert_eq!(run(&["--help"]).0, 0);
    assert_eq!(run(&["--version"]).0, 0);
    let schema: Value = serde_json::from_str(&done(&["config", "schema"])).unwrap();
    assert!(schema["properties"]["route"].is_object());
}

#[test]
fn a_database_that_cannot_be_reached_is_exit_3() {
    on(&[Engine::Postgres], |world| async move {
        for url in
            ["postgres://a:hunter2@127.0.0.1:1/x", "mariadb://a:hunter2@127.0.0.1:1/x", "sqlite:/nowhere/at/all.db"]
        {
            let file = world.file(&world.config(CHARGE).replace(&world.db.url, url));
            for command in [
                &["migrate"][..],
                &["receipts", "get", "m-1"],
                &["lanes", "list"],
                &["dead-letters", "list"],
                &["explain", "m-1"],
            ] {
                let (code, stdout, stderr) = run(&[command, &["-c", text(&file)]].concat());
                assert_eq!(code, 3, "{url} {command:?}: {stdout}{stderr}");
                assert!(!stderr.is_empty() && !stderr.contains("hunter2"), "{stderr}");
                let refused = stderr.contains("onnection refused") && stderr.contains("`[store] url`");
                assert!(url.starts_with("sqlite") || refused, "{stderr}");
            }
        }
    });
}

#[test]
fn a_database_that_refuses_us_says_why() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        let address = |change: &dyn Fn(&mut url::Url)| {
            let mut address = url::Url::parse(&world.db.url).unwrap();
            change(&mut address);
            address.to_string()
        };
        for (url, why, what) in [
            (address(&|url| url.set_password(Some("hunter2")).unwrap()), ["28P01", "1045"], "user and password"),
            (address(&|url| url.set_path("/no_such_database")), ["3D000", "104"], "`[store] url` does not exist"),
            (
                address(&|url| url.set_host(Some("no-such-host.invalid")).unwrap()),
                ["lookup", "lookup"],
                "host and port",
            ),
        ] {
            let file = world.file(&world.config(CHARGE).replace(&world.db.url, &url));
            let (code, stdout, stderr) = run(&["receipts", "get", "m-1", "-c", text(&file)]);
            assert!(code == 1 || code == 3, "{code} {stdout}{stderr}");
            let why = why[usize::from(world.db.engine == Engine::MariaDb)];
            assert!(stderr.contains(why) && !stderr.contains("hunter2"), "{why}: {stderr}");
            // Without rights on it MariaDB does not tell whether a database exists.
            assert!(stderr.contains(what) || stderr.contains("1044"), "{what}: {stderr}");
        }
    });
}

#[test]
fn shells_get_their_completions() {
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef countersign"), ("fish", "complete -c countersign")]
    {
        let script = done(&["completions", shell]);
        for word in [part, "dead-letters", "stop-on-pause"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "nonsense"]).0, 2);
}

#[test]
fn a_position_below_zero_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("records.jsonl");
    let line = |partition: i32, offset: i64| {
        format!(r#"{{"topic":"t","partition":{partition},"offset":{offset},"value":"{{}}"}}"#)
    };
    std::fs::write(&file, [line(0, 0), line(-1, 0), line(0, -1)].join("\n")).unwrap();
    let (code, _, stderr) = run(&["inspect", text(&file)]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("records.jsonl:2: no record line: `partition` is negative"), "{stderr}");
    assert!(stderr.contains("records.jsonl:3: no record line: `offset` is negative"), "{stderr}");
}

#[test]
fn migrate_runs_twice_keeps_the_epoch_and_prints_what_it_would_do() {
    everywhere(|world| async move {
        let tables = [
            "inbox",
            "outbox",
            "dead_letters",
            "lanes",
            "row_versions",
            "reconcile_diffs",
            "reconcile_batches",
            "meta",
        ];
        let drop: Vec<String> = tables.iter().map(|table| format!("DROP TABLE countersign_{table};")).collect();
        world.db.run(&drop.concat()).await;
        let file = world.file(&world.config(CHARGE));
        let script = done(&["migrate", "--print", "-c", text(&file)]);
        assert!(tables.iter().all(|table| script.contains(&format!("CREATE TABLE countersign_{table}"))), "{script}");
        assert_eq!(world.db.store.schema_version().await.unwrap(), 0, "nothing was changed");

        assert_eq!(json(&["migrate", "-c", text(&file)])["from"], 0);
        let epoch = world.db.rows("value", "FROM countersign_meta WHERE name = 'store_epoch'").await;
        assert_eq!(json(&["migrate", "-c", text(&file)])["from"], 2);
        assert_eq!(world.db.rows("value", "FROM countersign_meta WHERE name = 'store_epoch'").await, epoch);
        assert_eq!(json(&["migrate", "--restored", "-c", text(&file)])["restored"], true);
        assert_ne!(world.db.rows("value", "FROM countersign_meta WHERE name = 'store_epoch'").await, epoch);

        // The printed script does the same.
        world.db.run(&drop.concat()).await;
        world.db.run(&script).await;
        world.db.run(TABLES).await;
        world.send(&[payment("m-1", "bob", 1)]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
    });
}

#[test]
fn a_message_and_its_dead_letters_can_be_asked_for() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world
            .send(&[
                payment("m-1", "bob", 5),
                payment("m-1", "bob", 6),
                payment("m-2", "poor", 1),
                Rec::bare(&b"\xff\x00"[..]),
            ])
            .await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=1 rejected=1 parked=1 conflict=1").await;
        running.stop().await;
        let file = world.file(&world.config(CHARGE));
        let c = ["-c", text(&file)];

        let receipt = json(&[&["receipts", "get", "m-2"], &c[..]].concat());
        assert_eq!((&receipt["status"], &receipt["code"]), (&"FAILED".into(), &"INSUFFICIENT_FUNDS".into()));
        assert!(done(&[&["receipts", "get", "m-1"], &c[..]].concat()).contains("SUCCESS"));
        assert_eq!(run(&[&["receipts", "get", "nobody"], &c[..]].concat()).0, 1);
        let list = json(&[&["receipts", "list", "--correlation-id", "order-m-1"], &c[..]].concat());
        assert_eq!(list.as_array().unwrap().len(), 1);

        let story = json(&[&["explain", "m-1"], &c[..]].concat()).to_string();
        assert!(story.contains("received") && story.contains("parked (conflict)"), "{story}");
        // Its own receipt and the one of the other content, as they were pushed, in order.
        let pushed = world.pushed().await;
        let of = |code: Option<&str>| {
            let one = pushed.iter().find(|r| r.message_id.as_deref() == Some("m-1") && r.code.as_deref() == code);
            one.unwrap_or_else(|| panic!("{code:?} in {pushed:?}")).receipt_id.clone()
        };
        let (first, other) = (of(None), of(Some("CONFLICT")));
        let text = done(&[&["explain", "m-1"], &c[..]].concat());
        let at = |part: &str| text.rfind(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(at("received at") < at(&first) && at(&first) < at("parked (conflict)"), "{text}");
        assert!(at("parked (conflict)") < at(&other) && text.contains("dead letter "), "{text}");
        assert!(text.contains("repeats of the same content leave no row"), "{text}");
        assert!(story.contains(&other), "{story}");
        assert_eq!(run(&[&["explain", "nobody"], &c[..]].concat()).0, 1);

        let letters = json(&[&["dead-letters", "list"], &c[..]].concat());
        let letters = letters.as_array().unwrap();
        assert_eq!(letters.len(), 2);
        let conflicts = json(&[&["dead-letters", "list", "--message-id", "m-1"], &c[..]].concat());
        assert_eq!(conflicts.as_array().unwrap().len(), 1);
        let undecodable = letters.iter().find(|letter| letter["class"] == "poison").unwrap();
        let id = undecodable["id"].to_string();
        let shown = json(&[&["dead-letters", "show", &id], &c[..]].concat());
        assert_eq!(shown["value"]["base64"], "/wA=", "{shown}");
        assert_eq!(run(&[&["dead-letters", "show", "999999"], &c[..]].concat()).0, 1);

        let lanes = json(&[&["lanes", "list"], &c[..]].concat());
        assert_eq!(lanes[0]["nextOffset"], 4, "{lanes}");
        assert!(done(&[&["lanes", "list"], &c[..]].concat()).contains(&format!("{}/0", world.topic)));
    });
}

#[test]
fn lanes_are_paused_skipped_and_resumed_from_the_command_line() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[payment("m-0", "bob", 1)]).await;
        let running = world.start(CHARGE).await;
        running.outcomes(1, "applied=1").await;
        let file = world.file(&world.config(CHARGE));
        let lane = |verb: &str, more: &[&str]| {
            let arguments = [&["lanes", verb, &world.topic, "0", "-c", text(&file)], more].concat();
            run(&arguments)
        };
        let (code, _, stderr) = lane("skip", &[]);
        assert!(code == 2 && stderr.contains("works"), "{stderr}");
        assert_eq!(lane("pause", &["--reason", "a look"]).0, 0);
        world.send(&[payment("m-1", "bob", 1), payment("m-2", "bob", 1), payment("m-3", "bob", 1)]).await;
        until("a paused lane", || async { running.reasons().1.iter().any(|r| r.contains("a look")).then_some(()) })
            .await;
        assert_eq!(json(&["lanes", "list", "-c", text(&file)])[0]["paused"], "a look");
        assert_eq!(lane("skip", &["--to", "3"]).0, 0);
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(lane("pause", &[]).0, 0);
        world.send(&[payment("m-4", "bob", 1)]).await;
        until("paused again", || async { running.reasons().1.iter().any(|r| r.contains("operator")).then_some(()) })
            .await;
        assert_eq!(lane("resume", &[]).0, 0);
        running.outcomes(5, "applied=3 parked=2").await;
        running.stop().await;
        assert_eq!(world.ledger().await, ["order-m-0", "order-m-3", "order-m-4"]);
        let (code, _, stderr) = run(&["lanes", "pause", "no.such.topic", "0", "-c", text(&file)]);
        assert_eq!(code, 1, "{stderr}");
    });
}
