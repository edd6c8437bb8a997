//! Names, generated columns, absent fields, and what a database session makes of texts and times.

use serde_json::{Value, json};

use super::sent;
use crate::broker::Rec;
use crate::database::Engine;
use crate::rows::change;
use crate::world::{everywhere, on};

const NULL: Value = Value::Null;

fn route(table: &str, more: &str) -> String {
    format!(
        "[[route]]\nname = \"mirror\"\nmatch = {{ topic = \"TOPIC\" }}\nmessage_id = \"source\"\n[route.effect]\n\
         kind = \"table\"\ntable = \"{table}\"\nkey = [\"id\"]\n{more}"
    )
}

#[test]
fn names_are_quoted_whatever_they_are() {
    everywhere(|world| async move {
        let quote = if world.db.engine == Engine::MariaDb { "`" } else { "\"" };
        let ddl = "CREATE TABLE \"order\" (id BIGINT PRIMARY KEY, \"select\" INT, \"with space\" TEXT, \"CamelCase\" TEXT, \
                   \"größe\" TEXT, \"3d_model\" TEXT, \"unit-price\" DECIMAL(6,2), \"a:b?$1\" INT);";
        world.db.run(&ddl.replace('"', quote)).await;
        let row = json!({
            "id": 1, "select": 2, "with space": "s", "CamelCase": "c", "größe": "XL", "_3d_model": "m-1",
            "unit-price": 9.90, "a:b?$1": 7,
        });
        let other = json!({ "id": 1, "select": 3, "with space": "t", "CamelCase": null, "größe": "L", "_3d_model": "m-2",
            "unit-price": 9.95, "a:b?$1": 8 });
        world.send(&[change("c", 1, NULL, row), change("u", 2, json!({"id": 1}), other)]).await;
        let running = world.start(&route("order", "rename = { \"3d_model\" = \"_3d_model\" }\n")).await;
        running.outcomes(2, "applied=2").await;
        let columns = "\"select\", \"with space\", \"CamelCase\", \"größe\", \"3d_model\", \"unit-price\", \"a:b?$1\"";
        let rows = world.db.rows(&columns.replace('"', quote), &"FROM \"order\"".replace('"', quote)).await;
        assert_eq!(rows, ["3|t|-|L|m-2|9.95|8"]);
        running.stop().await;
    });
}

#[test]
fn a_field_that_is_absent_leaves_its_column_alone_and_a_named_one_parks() {
    everywhere(|world| async move {
        world.db.run("CREATE TABLE w (id BIGINT PRIMARY KEY, a TEXT, b TEXT, model TEXT);").await;
        world
            .send(&[
                change("c", 1, NULL, json!({"id": 1, "a": "x", "b": "y", "_3d": "m"})),
                change("u", 2, json!({"id": 1}), json!({"id": 1, "a": "z", "_3d": "m"})),
                change("u", 3, json!({"id": 1}), json!({"id": 1, "b": null, "_3d": "n"})),
                // The connector's older version adjusts the name in another way.
                change("c", 4, NULL, json!({"id": 2, "a": "x", "b": "y", "_d": "m"})),
                change("u", 5, NULL, json!({"id": 1, "a": "__debezium_unavailable_value", "b": "w", "_3d": "n"})),
                change("u", 6, NULL, json!({"id": 3, "a": "__debezium_unavailable_value", "b": "w", "_3d": "n"})),
            ])
            .await;
        let running = world.start(&route("w", "rename = { model = \"_3d\" }\n")).await;
        running.outcomes(6, "applied=4 parked=2").await;
        assert_eq!(world.db.rows("id, a, b, model", "FROM w ORDER BY id").await, ["1|z|w|n"]);
        let letters = world.db.rows("code, reason", "FROM countersign_dead_letters ORDER BY kafka_offset").await;
        assert!(letters[0].starts_with("missing_field|") && letters[0].contains("_3d"), "{letters:?}");
        assert!(letters[1].starts_with("unavailable|") && letters[1].contains(" a "), "{letters:?}");
        running.stop().await;
    });
}

#[test]
fn generated_columns_are_left_to_the_database_and_numbers_of_the_source_kept() {
    everywhere(|world| async move {
        let (identity, generated) = match world.db.engine {
            Engine::Postgres => {
                ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BIGINT GENERATED ALWAYS AS (a * 2) STORED")
            }
            Engine::MariaDb => ("BIGINT AUTO_INCREMENT PRIMARY KEY", "BIGINT AS (a * 2) STORED"),
            Engine::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS (a * 2) VIRTUAL"),
        };
        world.db.run(&format!("CREATE TABLE w (id {identity}, a BIGINT, twice {generated});")).await;
        world
            .send(&[
                // Zero is a number like others, also where AUTO_INCREMENT would count on.
                change("c", 1, NULL, json!({"id": 0, "a": 1, "twice": 2})),
                change("c", 2, NULL, json!({"id": 7, "a": 2, "twice": 4})),
                change("u", 3, json!({"id": 7}), json!({"id": 7, "a": 5, "twice": 10})),
            ])
            .await;
        let running = world.start(&route("w", "")).await;
        running.outcomes(3, "applied=3").await;
        assert_eq!(world.db.rows("id, a, twice", "FROM w ORDER BY id").await, ["0|1|2", "7|5|10"]);
        let mut tx = world.db.store.begin().await.unwrap();
        tx.probe_target(&["w".to_owned()], &["id", "a"], Some("a")).await.expect("`check` finds it in order");
        tx.rollback().await;
        running.stop().await;
    });
}

#[test]
fn texts_and_instants_are_the_same_in_every_session() {
    everywhere(|world| async move {
        let (instant, local) = match world.db.engine {
            Engine::Postgres => ("TIMESTAMPTZ", "TIMESTAMP"),
            Engine::MariaDb => ("TIMESTAMP NULL", "DATETIME"),
            Engine::Sqlite => ("TEXT", "TEXT"),
        };
        world.db.run(&format!("CREATE TABLE w (id BIGINT PRIMARY KEY, s TEXT, t TEXT, i {instant}, l {local});")).await;
        let texts = [
            "C:\\dir\\new",
            "it's",
            "say \"no\"",
            "ends in \\",
            "\\'; DROP TABLE w; --",
            "%s ? :id $1",
            "a\nb\tc",
            "",
            "||",
        ];
        let zoned = ["2026-11-29T12:34:56Z", "2026-03-29T01:30:00+02:00", "1999-12-31T23:59:59Z"];
        let records: Vec<Rec> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| {
                let value = json!({"id": n, "s": text, "i": zoned[n % 3], "l": "2026-03-29T01:30:00"});
                Rec::new(format!("m-{n}"), value.to_string())
            })
            .collect();
        world.send(&records).await;
        let route = "[[route]]\nname = \"w\"\nmatch = { topic = \"TOPIC\" }\nmessage_id = \"header:id\"\n[route.effect]\n\
                     kind = \"sql\"\nsteps = [{ sql = '''INSERT INTO w (id, s, t, i, l) VALUES (:id, :s, 'C:\\' || :s || '!', :i, :l)''' }]\n";
        let running = world.start(route).await;
        running.outcomes(texts.len(), &format!("applied={}", texts.len())).await;
        for (n, text) in texts.iter().enumerate() {
            let rows = world.db.rows("s, t", &format!("FROM w WHERE id = {n}")).await;
            assert_eq!(rows, [format!("{text}|C:\\{text}!")]);
        }
        let times = world.db.rows("i, l", "FROM w WHERE id < 3 ORDER BY id").await;
        let expected = match world.db.engine {
            Engine::Postgres => ["2026-11-29 12:34:56+00", "2026-03-28 23:30:00+00", "1999-12-31 23:59:59+00"],
            Engine::MariaDb => ["2026-11-29 12:34:56", "2026-03-28 23:30:00", "1999-12-31 23:59:59"],
            // There they are texts, as they came.
            Engine::Sqlite => zoned,
        };
        let local = if world.db.engine == Engine::Sqlite { "2026-03-29T01:30:00" } else { "2026-03-29 01:30:00" };
        assert_eq!(times, expected.map(|instant| format!("{instant}|{local}")));
        running.stop().await;
    });
}

#[test]
fn a_statement_that_sets_a_column_is_held_to_what_the_column_keeps() {
    everywhere(|world| async move {
        world
            .db
            .run(
                "CREATE TABLE w (id BIGINT PRIMARY KEY, amount DECIMAL(8,2), n BIGINT);
                 INSERT INTO w (id, n) VALUES (1, 5), (2, 5), (3, 5);",
            )
            .await;
        let route = "[[route]]\nname = \"w\"\nmatch = { topic = \"TOPIC\" }\nmessage_id = \"header:id\"\n[route.effect]\n\
                     kind = \"sql\"\nsteps = [{ sql = \"UPDATE w SET amount = :amount, n = n + :n WHERE id = :id\", \
                     expect_rows = 1, otherwise = \"reject\" }]\n";
        let long = "0.12345678901234567890123";
        let records = [
            Rec::new("m-1", r#"{"id":1,"amount":12.50,"n":1}"#),
            Rec::new("m-2", format!(r#"{{"id":2,"amount":{long},"n":1}}"#)),
            Rec::new("m-3", r#"{"id":3,"amount":null,"n":9007199254740993}"#),
            Rec::new("m-4", r#"{"id":4,"amount":1,"n":1}"#),
        ];
        world.send(&records).await;
        let running = world.start(route).await;
        running.outcomes(4, "applied=2 rejected=1 parked=1").await;
        let rows = world.db.rows("id, n", "FROM w ORDER BY id").await;
        assert_eq!(rows, ["1|6", "2|5", "3|9007199254740998"]);
        assert_eq!(world.db.count("FROM w WHERE amount = 12.5").await, 1);
        let letters = world.db.rows("message_id, code, reason", "FROM countersign_dead_letters").await;
        assert!(letters[0].starts_with("m-2|out_of_range|parameter amount: column amount:"), "{letters:?}");
        running.stop().await;
    });
}

#[test]
fn null_is_null_where_a_column_would_put_the_present_in_its_place() {
    on(&[Engine::MariaDb], |world| async move {
        world.db.run("CREATE TABLE w (id BIGINT PRIMARY KEY, t TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);").await;
        world.send(&[sent::none(sent::zoned("")).record("m", 1, "t")]).await;
        let running = world.start(&route("w", "").replace("\"source\"", "\"header:id\"")).await;
        running.outcomes(1, "parked=1").await;
        let letters = world.db.rows("code, reason", "FROM countersign_dead_letters").await;
        assert!(letters[0].starts_with("null_in_required|column t:"), "{letters:?}");
        running.stop().await;
    });
}
