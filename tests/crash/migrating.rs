//! `migrate` dies after every one of its statements.

use crate::daemon::program;
use crate::payments::CHARGE;
use crate::world::everywhere;

const TABLES: [&str; 5] = ["inbox", "outbox", "dead_letters", "lanes", "meta"];

#[test]
fn a_migration_that_dies_anywhere_is_finished_by_the_next() {
    everywhere(|world| async move {
        let made = world.db.countersign_tables().await;
        assert!(TABLES.iter().all(|table| made.contains(&format!("countersign_{table}"))), "{made:?}");
        for table in &made {
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
        assert_eq!(world.db.countersign_tables().await, made);
        assert_eq!(migrate("").status.code(), Some(0), "a second one finds nothing to do");
    });
}
