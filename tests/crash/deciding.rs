//! What an operator starts dies, hangs or loses an answer: `dead-letters redrive` and `purge`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broker::Rec;
use crate::daemon::program;
use crate::payments::{CHARGE, TABLES, payment};
use crate::world::{Running, World, everywhere};

const FAMILY: &str = "
    CREATE TABLE parents (id BIGINT PRIMARY KEY);
    CREATE TABLE children (id BIGINT NOT NULL, parent BIGINT NOT NULL, FOREIGN KEY (parent) REFERENCES parents (id));
";
const CHILD: &str = r#"
[[route]]
name = "child"
match = { topic = "TOPIC" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO children (id, parent) VALUES (:id, :parent)", on_foreign_key = "park" }]
"#;
const LETTERS: usize = 40;
const OLD: usize = 900;

fn begin(file: &Path, arguments: &[&str], points: &str) -> Child {
    let mut command: Command = program();
    command.args(arguments).args(["-c", file.to_str().unwrap(), "--output", "json"]).env("FAILPOINTS", points);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Its exit code; none if it died. One that hangs is killed: what it has to do takes less than a second.
fn end(mut child: Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap().code()
}

/// Every letter is applied and closed with its answer, or is open and nothing of it was done.
async fn each_is_done_or_open(world: &World) -> i64 {
    let done = world.db.count("FROM children").await;
    assert_eq!(world.db.count("FROM countersign_inbox WHERE status = 'SUCCESS' AND version = 2").await, done);
    assert_eq!(world.db.count("FROM countersign_dead_letters WHERE status = 'redriven'").await, done);
    assert_eq!(world.db.count("FROM countersign_dead_letters WHERE status = 'open'").await, LETTERS as i64 - done);
    done
}

#[test]
fn a_redrive_that_dies_hangs_or_loses_its_answer_applies_each_letter_once() {
    everywhere(|world| async move {
        world.db.run(FAMILY).await;
        let records: Vec<Rec> =
            (0..LETTERS).map(|n| Rec::new(format!("c-{n:02}"), format!(r#"{{"id":{n},"parent":70}}"#))).collect();
        world.send(&records).await;
        let text = format!("{}\n[pause]\nparks = 1000\nwindow = 1000\nratio = 1.0\n", world.config(CHILD));
        let running = Running::start(&text);
        running.outcomes(LETTERS, &format!("parked={LETTERS}")).await;
        running.stop().await;
        world.db.run("INSERT INTO parents VALUES (70);").await;
        let file = world.file(&text);
        let redrive = |points: &str| end(begin(&file, &["dead-letters", "redrive", "--class", "poison"], points));
        let mut done = 0;
        for point in ["before-redrive", "after-redrive"] {
            for (number, action) in ["die", "hang"].into_iter().enumerate() {
                let code = redrive(&format!("{point}={}*off->1*return({action})", number + 3));
                assert_eq!(code, None, "{point} {action}");
                let now = each_is_done_or_open(&world).await;
                assert!(now > done, "{point} {action}: none of them got through");
                done = now;
            }
        }
        // It dies with its receipts in the outbox.
        let lost = "before-redrive=20%return(lose);after-redrive=20%return(lose);before-produce=1*return(die)";
        assert_eq!(redrive(lost), None);
        assert!(each_is_done_or_open(&world).await > done);
        redrive("");
        assert_eq!(each_is_done_or_open(&world).await, LETTERS as i64);
        // A daemon delivers what the dead ones left: one receipt of each version.
        let running = Running::start(&text);
        let mut told: Vec<(String, i64)> =
            world.pushed().await.into_iter().map(|receipt| (receipt.message_id.unwrap(), receipt.version)).collect();
        running.stop().await;
        told.sort();
        told.dedup();
        let expected = (0..LETTERS).flat_map(|n| [(format!("c-{n:02}"), 1), (format!("c-{n:02}"), 2)]);
        assert_eq!(told, expected.collect::<Vec<_>>());
    });
}

/// The ids in all archives of a folder, the unfinished ones of the dead among them.
fn archived(folder: &Path) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let file = std::fs::File::open(entry.unwrap().path()).unwrap();
        let lines = BufReader::new(zstd::Decoder::new(file).unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let row: Value = serde_json::from_str(&line).unwrap();
            ids.insert(row["messageId"].as_str().unwrap().to_owned());
        }
    }
    ids
}

#[test]
fn a_purge_that_dies_hangs_or_loses_its_answer_loses_no_row_and_makes_no_old_message_new() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let folder = world.db.dir.path().join("archive");
        let store = format!("[store]\nretention = \"7d\"\narchive = \"{}\"\n", folder.display());
        let text = format!("{}\n[pause]\nparks = 100000\nwindow = 100000\nratio = 1.0\n", world.config(CHARGE));
        let text = text.replace("[store]\n", &store);
        let stamp = jiff::Timestamp::now().as_millisecond() - 10 * 86_400_000;
        let records: Vec<Rec> =
            (0..OLD).map(|n| payment(&format!("m-{n:03}"), "bob", 1).at(stamp).on(n as i32 % 2)).collect();
        world.send(&records).await;
        let running = Running::start(&text);
        running.outcomes(OLD, &format!("applied={OLD}")).await;
        world.pushed().await;
        running.stop().await;
        world.db.age("inbox", &["received_at", "finished_at"], "message_id LIKE 'm-%'", 9).await;
        let all: BTreeSet<String> = (0..OLD).map(|n| format!("m-{n:03}")).collect();
        let file = world.file(&text);
        for point in ["after-horizon", "after-archive", "after-purge"] {
            for action in ["die", "lose", "hang"] {
                // As after thirty seconds: the lease of the one that died before.
                world.db.run("UPDATE countersign_meta SET value = '' WHERE name LIKE '%purge%';").await;
                let code = end(begin(&file, &["purge"], &format!("{point}=return({action})")));
                assert_eq!(code.is_none(), action != "lose", "{point} {action}: {code:?}");
                let left: BTreeSet<String> =
                    world.db.rows("message_id", "FROM countersign_inbox").await.into_iter().collect();
                let lost: Vec<_> = all.iter().filter(|id| !left.contains(*id)).collect();
                let kept = archived(&folder);
                assert!(lost.iter().all(|id| kept.contains(*id)), "{point} {action}: deleted and not archived");
            }
        }
        // Those whose rows are gone are not applied again, and neither are the others.
        world.send(&records).await;
        let running = Running::start(&text);
        let seen = running.seen(OLD).await;
        assert!(seen.iter().all(|one| matches!(one.outcome.as_str(), "duplicate" | "parked")));
        assert_eq!(world.db.count("FROM ledger").await, OLD as i64);
        running.stop().await;
        world.db.run("UPDATE countersign_meta SET value = '' WHERE name LIKE '%purge%';").await;
        assert_eq!(end(begin(&file, &["purge"], "")), Some(0));
        assert_eq!(archived(&folder), all);
    });
}
