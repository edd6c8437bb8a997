//! Set-based execution is a shortcut: it must come to the same as message by message.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::broker::Rec;
use crate::database::Engine;
use crate::world::{World, everywhere, tally};

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
