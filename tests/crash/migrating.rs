//! `migrate` dies after every one of its statements.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::daemon::program;
use crate::database::{Database, Engine};
use crate::payments::CHARGE;
use crate::world::everywhere;

const TABLES: [&str; 5] = ["inbox", "outbox", "dead_letters", "lanes", "meta"];

/// The tables that `migrate` made, by name.
pub async fn tables(db: &Database) -> Vec<String> {
    let from = match db.engine {
        Engine::Postgres => "FROM information_schema.tables WHERE table_schema = current_schema()",
        Engine::MariaDb => "FROM information_schema.tables WHERE table_schema = DATABASE()",
        Engine::Sqlite => "FROM (SELECT name AS table_name FROM sqlite_master WHERE type = 'table') AS tables",
    };
    let mut tables = db.rows("table_name", from).await;
    tables.retain(|table| table.starts_with("countersign_"));
    tables.sort();
    tables
}

#[test]
fn a_migration_that_dies_anywhere_is_finished_by_the_next() {
    everywhere(|world| async move {
        let made = tables(&world.db).await;
        assert!(TABLES.iter().all(|table| made.contains(&format!("countersign_{table}"))), "{made:?}");
        // What refers to another table stands behind it.
        for table in made.iter().rev() {
            world.db.run(&format!("DROP TABLE {table};")).await;
        }
        let file = world.file(&world.config(CHARGE));
        let migrate = |points: &str| {
            let mut command = program();
            command.args(["migrate", "-c", file.to_str().unwrap()]).env("FAILPOINTS", points);
            command.output().unwrap()
        };
        let mut deaths = 0;
        loop {
            let output = migrate(&format!("in-migrate={deaths}*off->1*return(die)"));
            match output.status.code() {
                None => deaths += 1,
                Some(code) => {
                    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&output.stderr));
                    break;
                }
            }
            assert!(deaths < 100, "it never ends");
        }
        assert!(deaths >= made.len(), "only {deaths} deaths");
        assert_eq!(tables(&world.db).await, made);
        assert_eq!(migrate("").status.code(), Some(0), "a second one finds nothing to do");
        // One that hears nothing says so, and one that hangs holds up none that comes after it is gone.
        for n in [0, 1, deaths / 2, deaths - 1] {
            for table in made.iter().rev() {
                world.db.run(&format!("DROP TABLE {table};")).await;
            }
            let output = migrate(&format!("in-migrate={n}*off->1*return(lose)"));
            assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
            let mut hangs = program();
            hangs.args(["migrate", "-c", file.to_str().unwrap()]);
            hangs.env("FAILPOINTS", format!("in-migrate={n}*off->1*return(hang)")).stderr(Stdio::piped());
            let mut hangs = hangs.spawn().unwrap();
            let said = BufReader::new(hangs.stderr.take().unwrap()).lines().next();
            if let Some(said) = said {
                assert!(said.unwrap().contains("hangs at in-migrate"));
                hangs.kill().unwrap();
            }
            hangs.wait().unwrap();
            let output = migrate("");
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(tables(&world.db).await, made);
        }
        // The version is lost, the tables are not.
        world.db.run("DELETE FROM countersign_meta").await;
        let output = migrate("");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(tables(&world.db).await, made);
    });
}
