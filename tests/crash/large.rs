//! Records that are larger than what the database takes.

use crate::broker::Rec;
use crate::daemon::{Daemon, program};
use crate::database::Engine;
use crate::server::with_servers;
use crate::service::reconnect;
use crate::wait::until;
use crate::world::World;

const TABLES: &str = "
    CREATE TABLE parents (id BIGINT PRIMARY KEY);
    CREATE TABLE notes (id VARCHAR(50) PRIMARY KEY, parent BIGINT NOT NULL, body LONGTEXT NOT NULL,
        FOREIGN KEY (parent) REFERENCES parents (id));
    INSERT INTO parents VALUES (1);
";

const NOTE: &str = r#"
[[route]]
name = "note"
match = { topic = "TOPIC" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [{ sql = "INSERT INTO notes (id, parent, body) VALUES (:id, :parent, :body)" }]
"#;

const MEGABYTE: usize = 1 << 20;

fn note(id: &str, parent: u8, body: &str) -> Rec {
    Rec::new(id, format!(r#"{{"id":"{id}","parent":{parent},"body":"{body}"}}"#)).on(0)
}

/// One after the other: the broker in this process keeps five megabytes, and a small one between two large ones.
async fn take(world: &World, records: &[Rec]) {
    for record in records {
        let next = world.lane(0).await.map_or(0, |row| row.next_offset);
        world.send(std::slice::from_ref(record)).await;
        let passed = || async { world.lane(0).await.filter(|row| row.next_offset > next).map(drop) };
        until("the record to have an outcome", passed).await;
    }
}

/// Its connection would be closed for it again and again, and the lane stand for ever.
#[test]
fn a_record_that_no_statement_can_carry_is_parked_without_what_is_too_large() {
    with_servers(&[Engine::MariaDb], |world, mut server, _way| async move {
        server.stop();
        server.options(&["--max-allowed-packet=2M"]);
        server.up();
        reconnect(&world).await;
        world.db.run(TABLES).await;
        let large = "x".repeat(3 * MEGABYTE);
        // It fits, but not the line of text in which it would wait for its parent.
        let quotes = "\\\"".repeat(MEGABYTE * 6 / 10);
        let small = |n: u8| note(&format!("small-{n}"), 1, "x");
        let records = [
            small(0),
            note("large", 1, &large),
            small(1),
            Rec::new("broken", format!("{{{large}")).on(0),
            small(2),
            note("waits", 9, &quotes),
            small(3),
            // Nothing of the header goes into the table.
            note("header", 1, "x").header("trace", large.as_str()),
            small(4),
            Rec::new("headers", "{broken").header("trace", large.as_str()).header("call", "4711").on(0),
            note("fits", 1, &"x".repeat(MEGABYTE * 19 / 10)),
        ];
        let daemon = Daemon::start(&world, NOTE);
        take(&world, &records).await;
        let letters = [
            "1|large|poison|too_large",
            "3|broken|poison|undecodable",
            "5|waits|poison|too_large",
            "9|headers|poison|undecodable",
        ];
        assert_eq!(world.dead_letters().await, letters);
        let kept = world.db.rows("LENGTH(record_value)", "FROM countersign_dead_letters ORDER BY id").await;
        assert_eq!(kept[..2], ["-", "-"]);
        assert!(kept[2].parse::<usize>().unwrap() > MEGABYTE, "{kept:?}");
        assert_eq!(world.db.count("FROM countersign_dead_letters WHERE LENGTH(digest) > 30").await, 4);
        let kept = world.db.rows("headers", "FROM countersign_dead_letters ORDER BY id").await;
        assert!(kept[3].contains("4711") && kept[3].contains("\"id\"") && kept[3].len() < 500, "{kept:?}");
        let notes = ["fits", "header", "small-0", "small-1", "small-2", "small-3", "small-4"];
        assert_eq!(world.db.rows("id", "FROM notes ORDER BY id").await, notes);
        let told = world.pushed_in_short().await;
        for (id, code) in [("large", "too_large"), ("broken", "undecodable"), ("waits", "too_large")] {
            assert!(told.contains(&format!("{id} FAILED {code}")), "{told:?}");
        }
        // Many of them would not fit into one statement either.
        let many: Vec<Rec> = (0..1500).map(|n| note(&format!("many-{n}"), 1, &"x".repeat(2000))).collect();
        world.send(&many).await;
        until("all of them", || async {
            (world.db.count("FROM notes WHERE id LIKE 'many-%'").await == 1500).then_some(())
        })
        .await;
        assert_eq!(world.dead_letters().await, letters);
        daemon.end();

        server.admin("SET GLOBAL max_allowed_packet = 67108864").await;
        let daemon = Daemon::start(&world, NOTE);
        take(&world, &[note("large-too", 1, &large)]).await;
        assert_eq!(world.db.count("FROM notes WHERE LENGTH(body) > 3000000").await, 1);
        assert_eq!(world.dead_letters().await, letters);
        daemon.end();

        // Without its value it would be a tombstone.
        let number = &world.db.rows("id", "FROM countersign_dead_letters WHERE message_id = 'large'").await[0];
        let config = world.file(&world.config(NOTE));
        let redrive = |rest: &[&str]| {
            let start = ["dead-letters", "redrive", "-c", config.to_str().unwrap(), number.as_str()];
            let ended = program().args(start).args(rest).output().unwrap();
            String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr)
        };
        let said = redrive(&[]);
        assert!(said.contains("refused") && said.contains("--payload"), "{said}");
        assert_eq!(world.dead_letters().await, letters);
        let file = world.db.dir.path().join("value");
        std::fs::write(&file, note("large", 1, &large).value.unwrap()).unwrap();
        let said = redrive(&["--payload", file.to_str().unwrap()]);
        assert!(said.contains("applied"), "{said}");
        assert_eq!(world.db.count("FROM notes WHERE id = 'large'").await, 1);
    });
}
