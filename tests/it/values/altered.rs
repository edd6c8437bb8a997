//! The target table is altered while the pipeline runs: what was learned of it is learned anew.

use countersign::app::open_store;
use countersign::config::{Config, Host};
use countersign::debezium::envelope::{DecodeOptions, Decoder};
use countersign::debezium::event::Decoded;
use countersign::decision::Outcome;
use countersign::effect::{self, Delivery};
use countersign::message::Message;
use countersign::record::Record;
use countersign::record_line;
use countersign::route::identify::identify;
use serde_json::{Value, json};

use crate::broker::Rec;
use crate::database::Engine;
use crate::rows::change;
use crate::world::{World, on};

/// The table and what is done to it: widened, a column added and one changed, a column gone and come back.
fn alterations(engine: Engine) -> [&'static str; 4] {
    match engine {
        Engine::Postgres => [
            "CREATE TABLE w (id BIGINT PRIMARY KEY, n INT, s VARCHAR(3), d NUMERIC(6,1), t TIMESTAMP(0));",
            "ALTER TABLE w ALTER COLUMN n TYPE BIGINT, ALTER COLUMN s TYPE TEXT, ALTER COLUMN d TYPE NUMERIC(8,3), ALTER COLUMN t TYPE TIMESTAMP(6);",
            "ALTER TABLE w ADD COLUMN extra INT, ALTER COLUMN s TYPE VARCHAR(40);",
            "ALTER TABLE w DROP COLUMN n; ALTER TABLE w ADD COLUMN n NUMERIC(30,0);",
        ],
        Engine::MariaDb => [
            "CREATE TABLE w (id BIGINT PRIMARY KEY, n INT, s VARCHAR(3), d DECIMAL(6,1), t DATETIME(0));",
            "ALTER TABLE w MODIFY n BIGINT, MODIFY s TEXT, MODIFY d DECIMAL(8,3), MODIFY t DATETIME(6);",
            "ALTER TABLE w ADD COLUMN extra INT, MODIFY s VARCHAR(40);",
            "ALTER TABLE w DROP COLUMN n; ALTER TABLE w ADD COLUMN n DECIMAL(30,0);",
        ],
        Engine::Sqlite => [
            "CREATE TABLE w (id BIGINT PRIMARY KEY, n INT, s TEXT, d NUMERIC, t TEXT);",
            "ALTER TABLE w DROP COLUMN n; ALTER TABLE w ADD COLUMN n BIGINT;",
            "ALTER TABLE w ADD COLUMN extra INT;",
            "ALTER TABLE w DROP COLUMN n; ALTER TABLE w ADD COLUMN n TEXT;",
        ],
    }
}

/// Rows that fit the table only as it is in each phase.
fn row(phase: usize, id: i64) -> Value {
    match phase {
        0 => json!({ "id": id, "n": id, "s": "abc", "d": 1.5, "t": "2026-11-29T12:00:00" }),
        1 => {
            json!({ "id": id, "n": 9_000_000_000_i64 + id, "s": "longer than three", "d": 1.125, "t": "2026-11-29T12:00:00.123456" })
        }
        2 => {
            json!({ "id": id, "n": 9_000_000_000_i64 + id, "s": "again", "d": 1.125, "t": "2026-11-29T12:00:00", "extra": 5 })
        }
        _ => {
            json!({ "id": id, "n": 18_446_744_073_709_551_615_u64, "s": "again", "d": 1.125, "t": "2026-11-29T12:00:00", "extra": 6 })
        }
    }
}

async fn altered_meanwhile(world: &World, route: &str, record: impl Fn(usize, i64) -> Rec) {
    let phases = alterations(world.db.engine);
    let running = {
        world.db.run(phases[0]).await;
        world.start(route).await
    };
    for (phase, alteration) in phases.iter().enumerate() {
        if phase > 0 {
            world.db.run(alteration).await;
        }
        let records: Vec<Rec> = (0..5).map(|n| record(phase, (phase * 10 + n) as i64)).collect();
        world.send(&records).await;
        let applied = (phase + 1) * 5;
        running.outcomes(applied, &format!("applied={applied}")).await;
    }
    let rows = world.db.rows("id, s, extra", "FROM w WHERE id IN (0, 14, 24, 34) ORDER BY id").await;
    assert_eq!(rows, ["0|abc|-", "14|longer than three|-", "24|again|5", "34|again|6"]);
    let wide = world.db.rows("n, d", "FROM w WHERE id = 34").await;
    assert_eq!(wide, ["18446744073709551615|1.125"]);
    assert_eq!(world.dead_letters().await, [""; 0]);
    running.stop().await;
}

#[test]
fn an_altered_table_is_learned_anew_and_every_row_applied() {
    on(&Engine::ALL, |world| async move {
        let route = "[[route]]\nname = \"w\"\nmatch = { topic = \"TOPIC\" }\nmessage_id = \"source\"\n\
                     [route.effect]\nkind = \"table\"\ntable = \"w\"\nkey = [\"id\"]\n";
        altered_meanwhile(&world, route, |phase, id| change("c", 100 + id, Value::Null, row(phase, id))).await;
    });
}

#[test]
fn so_are_the_parameters_of_statements() {
    on(&Engine::ALL, |world| async move {
        // `extra` is in the later phases' statement alone, so that the first one can be prepared.
        let route = |name: &str, columns: &str, values: &str| {
            format!(
                "[[route]]\nname = \"{name}\"\nmatch = {{ topic = \"TOPIC\", header.to = \"{name}\" }}\n\
                 message_id = \"header:id\"\n[route.effect]\nkind = \"sql\"\n\
                 steps = [{{ sql = \"INSERT INTO w (id, n, s, d, t{columns}) VALUES (:id, :n, :s, :d, :t{values})\" }}]\n"
            )
        };
        let routes = [route("early", "", ""), route("late", ", extra", ", :extra")].concat();
        altered_meanwhile(&world, &routes, |phase, id| {
            let to = if phase < 2 { "early" } else { "late" };
            Rec::new(format!("m-{id}"), row(phase, id).to_string()).header("to", to)
        })
        .await;
    });
}

fn delivery((message, record): &(Message, Record)) -> Delivery<'_> {
    Delivery { message, record }
}

/// Values that fitted the table as it was are not kept beside those that fit it as it is.
#[tokio::test]
async fn the_values_of_one_statement_are_all_for_the_table_as_it_is_now() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[kafka]\nbrokers = \"localhost:9092\"\ntopics = [\"t\"]\n\
         [store]\nurl = \"sqlite:{}/v.db\"\nretention = \"forever\"\n\
         [[route]]\nname = \"v\"\nmatch = {{ topic = \"t\" }}\nmessage_id = \"header:id\"\n[route.effect]\nkind = \"sql\"\nsteps = [{{ sql = \"INSERT INTO v (id, v) VALUES (:id, :v)\" }}]\n",
        dir.path().display()
    );
    let host = Host { env: &|_| None, kafka_option: &|_, _| Ok(()) };
    let config = Config::parse(&text, "v.toml", host).unwrap_or_else(|faults| panic!("{faults}"));
    let store = open_store(&config).unwrap();
    let route = &config.routes[0];
    let effect = effect::build(&route.effect, "p", store.dialect());
    let messages = [("1", "1.50"), ("2", "1.50"), ("3", "99999999999999999.25")].map(|(id, v)| {
        let value = format!(r#"{{"id":{id},"v":{v}}}"#);
        let line = json!({"topic": "t", "partition": 0, "offset": 1, "headers": [["id", id]], "value": value});
        let record = record_line::read(&line.to_string()).unwrap();
        let Ok(Decoded::Event(event)) = Decoder::new(DecodeOptions::default()).decode(&record) else {
            panic!("no event")
        };
        (identify(&route.route, 0, &record, *event).unwrap(), record)
    });
    let [first, second, third] = &messages;
    let mut tx = store.begin().await.unwrap();
    tx.execute("CREATE TABLE v (id INT, v REAL)", vec![]).await.unwrap();
    let outcomes = effect.apply_all(&mut tx, &[delivery(first)]).await.unwrap().unwrap();
    assert_eq!(outcomes, [Outcome::Applied]);
    tx.execute("DROP TABLE v", vec![]).await.unwrap();
    tx.execute("CREATE TABLE v (id INT, v TEXT)", vec![]).await.unwrap();
    let run = [delivery(second), delivery(third)];
    let outcomes = effect.apply_all(&mut tx, &run).await.unwrap().unwrap();
    assert_eq!(outcomes, [Outcome::Applied, Outcome::Applied]);
    let rows = tx.fetch("SELECT v FROM v WHERE id > 1 ORDER BY id", vec![]).await.unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.text(0).unwrap()).collect();
    assert_eq!(texts, ["1.50", "99999999999999999.25"]);
}
