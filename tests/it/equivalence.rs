//! Set-based execution is a shortcut: it must come to the same as message by message.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::broker::Rec;
use crate::database::Engine;
use crate::rows::change;
use crate::world::{Running, World, everywhere, on, tally};

const TABLES: &str = "
    CREATE TABLE rows_a (n {serial}, k BIGINT NOT NULL UNIQUE, v VARCHAR(10) NOT NULL CHECK (length(v) <= 10), w BIGINT);
    CREATE TABLE rows_b (n {serial}, k BIGINT NOT NULL UNIQUE, v VARCHAR(10) NOT NULL CHECK (length(v) <= 10), w BIGINT);
    CREATE TABLE spare (id BIGINT);
";

fn route(table: &str, extra_step: &str) -> String {
    format!(
        "[[route]]\nname = \"{table}\"\nscope = \"{table}\"\nmatch = {{ topic = \"TOPIC\", header.to = \"{table}\" }}\n\
         message_id = \"header:id\"\n[route.effect]\nkind = \"sql\"\n\
         steps = [{{ sql = \"INSERT INTO {table} (k, v, w) VALUES (:k, :v, :w)\" }}{extra_step}]\n"
    )
}

/// Random messages: repeated ids, repeated rows, values that do not fit, absent fields, other content under an id.
fn messages(seed: u64, count: usize) -> Vec<Rec> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count)
        .map(|_| {
            let (id, k) = (rng.random_range(0..count * 2 / 3), rng.random_range(0..count));
            let w = if k % 7 == 0 { "null".to_owned() } else { (k * 3).to_string() };
            let value = match rng.random_range(0..25) {
                0 => format!(r#"{{"k":{k},"v":"much too long","w":{w}}}"#),
                1 => format!(r#"{{"k":{k},"w":{w}}}"#),
                2 => format!(r#"{{"k":{k},"v":null,"w":{w}}}"#),
                3 => "{\"k\":".to_owned(),
                4 => format!(r#"{{"k":{id},"v":"again","w":{w}}}"#),
                _ => format!(r#"{{"k":{id},"v":"v{id}","w":{id}}}"#),
            };
            Rec::new(format!("m-{id}"), value)
        })
        .collect()
}

async fn compare(world: &World, seed: u64) {
    world.db.run(TABLES).await;
    let records = messages(seed, 300);
    let to = |table: &str, partition: i32| -> Vec<Rec> {
        records.iter().map(|record| record.clone().header("to", table).on(partition)).collect()
    };
    world.send(&to("rows_a", 0)).await;
    world.send(&to("rows_b", 1)).await;
    // The second step makes the route go message by message and does nothing.
    let harmless = ", { sql = \"UPDATE spare SET id = 1 WHERE id = :k\" }";
    let pause = "[pause]\nparks = 100000\nratio = 1.0\nwindow = 100000\n";
    let running = world.start(&[pause, &route("rows_a", ""), &route("rows_b", harmless)].concat()).await;
    let seen = running.seen(600).await;
    let of = |partition: i32| -> Vec<_> {
        let mut mine: Vec<_> = seen.iter().filter(|one| one.position.partition == partition).cloned().collect();
        mine.sort_by_key(|one| one.position.offset);
        mine
    };
    let (a, b) = (of(0), of(1));
    for (a, b) in a.iter().zip(&b) {
        assert_eq!((a.outcome, &a.reason), (b.outcome, &b.reason), "seed {seed}, offset {}", a.position.offset);
    }
    assert_eq!(tally(&a), tally(&b));
    let rows = async |table: &str| world.db.rows("k, v, w", &format!("FROM {table} ORDER BY n")).await;
    let (rows_a, rows_b) = (rows("rows_a").await, rows("rows_b").await);
    assert!(rows_a.len() > 50, "the messages do something: {}", tally(&a));
    assert_eq!(rows_a, rows_b, "seed {seed}");
    let inbox = async |scope: &str| {
        let from = format!("FROM countersign_inbox WHERE scope = '{scope}' ORDER BY kafka_offset");
        world.db.rows("message_id, status, code, kafka_offset", &from).await
    };
    assert_eq!(inbox("rows_a").await, inbox("rows_b").await, "seed {seed}");
    running.stop().await;
}

#[test]
fn set_based_and_message_by_message_come_to_the_same_on_random_batches() {
    everywhere(|world| async move {
        let seed = match world.db.engine {
            Engine::Postgres => 1,
            Engine::MariaDb => 2,
            Engine::Sqlite => 3,
        };
        compare(&world, seed).await;
    });
}

#[test]
fn and_on_other_batches() {
    everywhere(|world| async move { compare(&world, 42).await });
}

/// Changes of few rows, many of each: whole ones, partial ones, such that were not sent in full (TOAST), values that the
/// target cannot hold, deletes and new lives; and rows whose every change the target refuses. (Of a row that is refused
/// once and written again, nobody sees in a folded batch that it was.)
fn changes(seed: u64, count: i64) -> Vec<Rec> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count)
        .map(|n| {
            let (id, lsn) = (rng.random_range(0..22_i64), 1000 + 10 * n - if rng.random_bool(0.05) { 300 } else { 0 });
            let after = match rng.random_range(0..20) {
                _ if id >= 20 => json!({"id": id, "status": "refused", "note": "n", "amount": 19 - id}),
                0..=2 => return change("d", lsn, json!({ "id": id }), Value::Null),
                3 => json!({"id": id, "status": "too long for it by far", "note": "n", "amount": n}),
                4 => json!({"id": id, "status": "s", "note": "__debezium_unavailable_value", "amount": n}),
                5 => json!({"id": id, "amount": n}),
                6 => json!({"id": id, "status": format!("p{n}"), "note": null}),
                _ => json!({"id": id, "status": format!("s{n}"), "note": format!("n{n}"), "amount": n}),
            };
            change("u", lsn, Value::Null, after)
        })
        .collect()
}

async fn compare_changes(world: &World, seed: u64, rest: &str) {
    // A column of the target's own, which a new life of a row must not inherit, and a unique one beside the key.
    world
        .db
        .run(
            "CREATE TABLE copy_1 (id BIGINT PRIMARY KEY, status VARCHAR(20), note VARCHAR(50), amount BIGINT UNIQUE, own VARCHAR(5) DEFAULT 'none');
             INSERT INTO copy_1 (id, amount) VALUES (101, -1), (102, -2);
             CREATE TABLE copy_2 (id BIGINT PRIMARY KEY, status VARCHAR(20), note VARCHAR(50), amount BIGINT UNIQUE, own VARCHAR(5) DEFAULT 'none');
             INSERT INTO copy_2 (id, amount) VALUES (101, -1), (102, -2)",
        )
        .await;
    let records = changes(seed, 400);
    world.send(&records[..200]).await;
    world.send(&records[200..]).await;
    let mut outcomes = Vec::new();
    for (n, batch) in [(1, 1), (2, 400)] {
        let route = format!(
            "[pause]\nparks = 100000\nratio = 1.0\nwindow = 100000\n[[route]]\nname = \"mirror\"\nmatch = {{ topic = \"TOPIC\" }}\n\
             message_id = \"source\"\n[route.effect]\nkind = \"table\"\ntable = \"copy_{n}\"\nkey = [\"id\"]\n{rest}"
        );
        let name = format!("[pipeline]\nname = \"{}_{n}\"", world.name);
        let text = world.config(&route).replace(&format!("[pipeline]\nname = \"{}\"", world.name), &name);
        let running = Running::start(&text.replace("[store]\n", &format!("[store]\nbatch = {batch}\n")));
        let mut seen = running.seen(400).await;
        seen.sort_by_key(|one| one.position.offset);
        outcomes.push(seen.into_iter().map(|one| (one.position.offset, one.outcome, one.reason)).collect::<Vec<_>>());
        running.stop().await;
    }
    for (alone, together) in outcomes[0].iter().zip(&outcomes[1]) {
        assert_eq!(alone, together, "seed {seed}");
    }
    let rows =
        async |n: u8| world.db.rows("id, status, note, amount, own", &format!("FROM copy_{n} ORDER BY id")).await;
    let (alone, together) = (rows(1).await, rows(2).await);
    assert!(alone.len() > 5, "{alone:?}");
    assert_eq!(alone, together, "seed {seed}");
    if !rest.is_empty() {
        let versions = async |n: u8| {
            let from = format!(
                "FROM countersign_row_versions WHERE table_name = 'copy_{n}' AND lineage <> '' ORDER BY key_hash"
            );
            world.db.rows("position, deleted", &from).await
        };
        assert_eq!(versions(1).await, versions(2).await, "seed {seed}");
    }
}

#[test]
fn changes_of_rows_come_to_the_same_one_by_one_and_folded() {
    everywhere(|world| async move { compare_changes(&world, 3, "").await });
}

#[test]
fn changes_of_guarded_rows_come_to_the_same_one_by_one_and_folded() {
    for _ in 0..3 {
        let seed = rand::rng().random();
        println!("seed {seed}");
        everywhere(|world| async move { compare_changes(&world, seed, "guard = \"source\"\n").await });
    }
}

/// To this table two keys are one that are two to whoever reads the topic.
#[test]
fn keys_that_a_collation_takes_for_one_are_written_one_after_the_other() {
    on(&[Engine::Postgres], |world| async move {
        world
            .db
            .run(
                "CREATE COLLATION IF NOT EXISTS caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                 CREATE TABLE orders_copy (id TEXT COLLATE caseless PRIMARY KEY, status TEXT)",
            )
            .await;
        let of = |lsn: i64, id: &str| change("c", lsn, Value::Null, json!({"id": id, "status": format!("s{lsn}")}));
        world.send(&[of(10, "a"), of(20, "b"), of(30, "A"), of(40, "c")]).await;
        let running = world.start(&crate::rows::route("")).await;
        running.outcomes(4, "applied=4").await;
        let rows = world.db.rows("id, status", "FROM orders_copy ORDER BY id").await;
        assert_eq!(rows, ["a|s30", "b|s20", "c|s40"]);
        running.stop().await;
    });
}

/// Rows of other keys may hang on it.
#[test]
fn a_delete_keeps_its_place_among_the_changes_of_other_rows() {
    everywhere(|world| async move {
        world
            .db
            .run(
                "CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, status VARCHAR(20), \
                 amount BIGINT REFERENCES orders_copy (id) ON DELETE CASCADE)",
            )
            .await;
        let row = |id: i64, status: &str, of: Option<i64>| json!({"id": id, "status": status, "amount": of});
        let running = world.start(&crate::rows::route("")).await;
        world.send(&[change("c", 10, Value::Null, row(1, "a", None))]).await;
        running.outcomes(1, "applied=1").await;
        running.stop().await;
        world
            .send(&[
                change("d", 20, json!({"id": 1}), Value::Null),
                change("c", 30, Value::Null, row(1, "b", None)),
                change("c", 40, Value::Null, row(2, "c", Some(1))),
                change("u", 50, Value::Null, row(1, "d", None)),
            ])
            .await;
        let running = world.start(&crate::rows::route("")).await;
        running.outcomes(4, "applied=4").await;
        let rows = world.db.rows("id, status, amount", "FROM orders_copy ORDER BY id").await;
        assert_eq!(rows, ["1|d|-", "2|c|1"]);
        running.stop().await;
    });
}
