//! Programs are exchanged before tables: what runs on the tables of the version before.

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::everywhere;

const FIRST: [(Engine, &str); 3] = [
    (Engine::Postgres, include_str!("../../schemas/postgres/0001_tables.sql")),
    (Engine::MariaDb, include_str!("../../schemas/mysql/0001_tables.sql")),
    (Engine::Sqlite, include_str!("../../schemas/sqlite/0001_tables.sql")),
];

const ALL: [&str; 8] =
    ["inbox", "outbox", "dead_letters", "lanes", "row_versions", "reconcile_diffs", "reconcile_batches", "meta"];

#[test]
fn a_daemon_works_on_the_tables_of_the_version_before_and_migrate_brings_them_up() {
    everywhere(|world| async move {
        let drop: Vec<String> = ALL.iter().map(|table| format!("DROP TABLE countersign_{table};")).collect();
        world.db.run(&drop.concat()).await;
        let (_, first) = FIRST.into_iter().find(|(engine, _)| *engine == world.db.engine).unwrap();
        world.db.run(first).await;
        world
            .db
            .run("INSERT INTO countersign_meta (name, value) VALUES ('schema_version', '1'), ('store_epoch', 'e')")
            .await;
        world.db.run(TABLES).await;
        world
            .send(&[
                payment("m-1", "bob", 1),
                payment("m-2", "poor", 1),
                Rec::new("m-3", "{"),
                payment("m-1", "bob", 1),
            ])
            .await;
        let running = world.start(CHARGE).await;
        running.outcomes(4, "applied=1 duplicate=1 rejected=1 parked=1").await;
        until("its receipts", || async { (world.pushed().await.len() == 3).then_some(()) }).await;
        running.stop().await;

        let keyed = CHARGE.replace("message_id", "order = \"key\"\nmessage_id");
        let running = world.start(&keyed).await;
        running.stands(countersign::supervisor::Readiness::Unready, "migrate").await;
        world.db.store.migrate("unused").await.unwrap();
        world.send(&[payment("m-4", "bob", 1)]).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
        assert_eq!(world.ledger().await, ["order-m-1", "order-m-4"]);
    });
}
