//! Values that people lost: decimals, unsigned integers, zero dates, nulls with a default, unchanged TOAST columns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::broker::Rec;
use crate::database::Engine;
use crate::rows::{change, route};
use crate::wait::until;
use crate::world::{World, everywhere, on};

const NULL: Value = Value::Null;

/// A create (or another change) of one row whose columns have these Connect schemas.
fn typed(op: &str, lsn: i64, row: Value, columns: &[(&str, Value)]) -> Rec {
    let record = change(op, lsn, NULL, row);
    let field = |(name, schema): &(&str, Value)| {
        let mut schema = schema.clone();
        schema["field"] = json!(name);
        schema
    };
    let row = |name: &str| {
        let mut fields = vec![json!({"type": "int64", "optional": false, "field": "id"})];
        fields.extend(columns.iter().map(field));
        json!({"type": "struct", "optional": true, "field": name, "fields": fields})
    };
    let schema = json!({"type": "struct", "name": "x.Envelope", "fields": [row("before"), row("after"), {"type": "string", "field": "op"}]});
    let payload: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
    Rec { value: Some(json!({"schema": schema, "payload": payload}).to_string().into()), ..record }
}

fn named(base: &str, name: &str, parameters: Value) -> Value {
    json!({"type": base, "optional": true, "name": name, "version": 1, "parameters": parameters})
}

fn decimal(scale: i32) -> Value {
    named("bytes", "org.apache.kafka.connect.data.Decimal", json!({"scale": scale.to_string()}))
}

fn optional(base: &str) -> Value {
    json!({"type": base, "optional": true})
}

async fn table(world: &World, columns: &str) {
    world.db.run(&format!("CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, {columns});")).await;
}

fn codes(letters: &[String]) -> Vec<&str> {
    letters.iter().map(|letter| letter.rsplit('|').next().unwrap()).collect()
}

/// The shortest big-endian two's complement, as Java's `BigInteger.toByteArray` has it.
fn unscaled(number: i128) -> String {
    let bytes = number.to_be_bytes();
    let spare = |at: usize| {
        let filler = if number < 0 { 0xff } else { 0 };
        bytes[at] == filler && (bytes[at + 1] & 0x80 == 0) == (filler == 0)
    };
    let mut from = 0;
    while from < 15 && spare(from) {
        from += 1;
    }
    STANDARD.encode(&bytes[from..])
}

#[test]
fn decimals_arrive_to_the_last_digit() {
    everywhere(|world| async move {
        // Text keeps every digit in SQLite, which has no decimals.
        let number = if world.db.engine == Engine::Sqlite { "TEXT" } else { "NUMERIC(38,4)" };
        table(&world, &format!("rate {number}, whole {}", number.replace(",4", ",0"))).await;
        let cases: [(i128, i128); 8] = [
            (-730_512, 12),
            (0, 0),
            (2_147_483_648, 128),
            (-10_000, -128),
            (9_999_999_999_999_999_999_999_999_999_999_999_999, 99_999_999_999_999_999_999_999_999_999_999_999_999),
            (-9_999_999_999_999_999_999_999_999_999_999_999_999, -170_000_000_000_000_000_000),
            (1, 18_446_744_073_709_551_615),
            (-1, -9_223_372_036_854_775_808),
        ];
        let records: Vec<Rec> = (1i64..)
            .zip(cases)
            .map(|(id, (rate, whole))| {
                let row = json!({"id": id, "rate": unscaled(rate), "whole": unscaled(whole)});
                typed("c", id, row, &[("rate", decimal(4)), ("whole", decimal(0))])
            })
            .collect();
        world.send(&records).await;
        let running = world.start(&route("")).await;
        running.outcomes(8, "applied=8").await;
        let expected: Vec<String> = cases
            .iter()
            .map(|(rate, whole)| {
                let sign = if *rate < 0 { "-" } else { "" };
                let digits = rate.unsigned_abs();
                format!("{sign}{}.{:04}|{whole}", digits / 10_000, digits % 10_000)
            })
            .collect();
        assert_eq!(world.db.rows("rate, whole", "FROM orders_copy ORDER BY orders_copy.id").await, expected);
        running.stop().await;
    });
}

#[test]
fn bytes_without_a_type_are_no_number_and_declared_ones_are() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        table(&world, "rate NUMERIC(12,4)").await;
        let rate = |id: i64, lsn: i64| change("c", lsn, NULL, json!({"id": id, "rate": "9Npw"}));
        world.send(&[rate(1, 10), change("c", 20, NULL, json!({"id": 2, "rate": 1.5}))]).await;
        let running = world.start(&route("")).await;
        running.outcomes(2, "applied=1 parked=1").await;
        assert_eq!(world.db.rows("id, rate", "FROM orders_copy").await, ["2|1.5000"]);
        running.stop().await;
        world.send(&[rate(3, 30)]).await;
        let running = world.start(&route("columns = { rate = \"decimal(12,4)\" }---")).await;
        running.outcomes(1, "applied=1").await;
        assert_eq!(
            world.db.rows("id, rate", "FROM orders_copy ORDER BY orders_copy.id").await,
            ["2|1.5000", "3|-73.0512"]
        );
        running.stop().await;
    });
}

#[test]
fn zero_dates_are_what_was_sent_or_parked_with_their_field() {
    everywhere(|world| async move {
        table(&world, "shipped_on DATE").await;
        let day = |optional: bool| json!({"type": "int32", "optional": optional, "name": "io.debezium.time.Date", "default": 0});
        let iso = named("string", "io.debezium.time.IsoDate", json!({}));
        let shipped = |id: i64, value: Value, schema: Value| {
            typed("c", id, json!({"id": id, "shipped_on": value}), &[("shipped_on", schema)])
        };
        world
            .send(&[
                shipped(1, NULL, day(true)),
                shipped(2, json!(0), day(false)),
                shipped(3, NULL, day(false)),
                shipped(4, json!("2031-07-00"), iso.clone()),
                shipped(5, json!("0000-00-00"), iso.clone()),
                shipped(6, json!("2024-02-29Z"), iso),
                shipped(7, json!(-1), day(false)),
            ])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(7, "applied=4 parked=3").await;
        let rows = world.db.rows("id, shipped_on", "FROM orders_copy ORDER BY orders_copy.id").await;
        assert_eq!(rows, ["1|-", "2|1970-01-01", "6|2024-02-29", "7|1969-12-31"]);
        assert_eq!(codes(&world.dead_letters().await), ["null_in_required", "type_mismatch", "type_mismatch"]);
        for reason in world.db.rows("reason", "FROM countersign_dead_letters").await {
            assert!(reason.contains("shipped_on") && !reason.contains("-00"), "{reason}");
        }
        running.stop().await;
    });
}

/// Without schema, declared as a date: the same answer.
#[test]
fn a_declared_date_that_is_none_parks_its_record_alone() {
    everywhere(|world| async move {
        table(&world, "shipped_on DATE").await;
        let shipped = |id: i64, value: Value| change("c", id, NULL, json!({"id": id, "shipped_on": value}));
        let values = [json!("2031-07-00"), json!("2031-02-29"), json!("soon"), json!(true), json!(0), NULL];
        world.send(&(1i64..).zip(values).map(|(id, value)| shipped(id, value)).collect::<Vec<_>>()).await;
        let running = world.start(&route("columns = { shipped_on = \"date\" }---")).await;
        running.outcomes(6, "applied=2 parked=4").await;
        assert_eq!(
            world.db.rows("id, shipped_on", "FROM orders_copy ORDER BY orders_copy.id").await,
            ["5|1970-01-01", "6|-"]
        );
        running.stop().await;
    });
}

#[test]
fn unsigned_integers_are_read_as_such_only_where_that_is_known() {
    everywhere(|world| async move {
        let wide = match world.db.engine {
            Engine::Postgres => "NUMERIC(20,0)",
            Engine::MariaDb => "BIGINT UNSIGNED",
            Engine::Sqlite => "TEXT",
        };
        table(&world, &format!("serial_no {wide}, delta BIGINT")).await;
        let known = json!({"type": "int64", "optional": true, "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}});
        let row = |id: i64, serial: Value| json!({"id": id, "serial_no": serial, "delta": -1});
        let of = |id: i64, serial: Value, schema: &Value| {
            typed("c", id, row(id, serial), &[("serial_no", schema.clone()), ("delta", optional("int64"))])
        };
        let records = [
            of(1, json!(-1), &known),
            of(2, json!(i64::MIN), &known),
            of(3, json!(7), &known),
            of(4, json!("AP//////////"), &decimal(0)),
            of(5, json!(-2), &optional("int64")),
            change("c", 6, NULL, row(6, json!(-1))),
        ];
        let expected = ["1|18446744073709551615|-1", "2|9223372036854775808|-1", "3|7|-1", "4|18446744073709551615|-1"];
        world.send(&records[..4]).await;
        let running = world.start(&route("")).await;
        running.outcomes(4, "applied=4").await;
        assert_eq!(world.db.rows("id, serial_no, delta", "FROM orders_copy ORDER BY orders_copy.id").await, expected);
        running.stop().await;
        // Known to the configuration alone, with a schema and without.
        world.send(&records[4..]).await;
        let running = world.start(&route("columns = { serial_no = \"uint\" }---")).await;
        running.outcomes(2, "applied=2").await;
        let rows = world
            .db
            .rows("serial_no, delta", "FROM orders_copy WHERE orders_copy.id > 4 ORDER BY orders_copy.id")
            .await;
        assert_eq!(rows, ["18446744073709551614|-1", "18446744073709551615|-1"]);
        running.stop().await;
        if world.db.engine == Engine::MariaDb {
            world.send(&[change("c", 7, NULL, row(7, json!(-1)))]).await;
            let running = world.start(&route("")).await;
            running.outcomes(1, "parked=1").await;
            running.stop().await;
        }
    });
}

#[test]
fn an_unchanged_column_is_left_alone_in_every_disguise() {
    everywhere(|world| async move {
        table(&world, "status VARCHAR(20), note VARCHAR(200)").await;
        world.db.run("INSERT INTO orders_copy VALUES (77, 'new', 'kept')").await;
        for (round, text) in ["__debezium_unavailable_value", "n/a?>>~~"].into_iter().enumerate() {
            let bytes = STANDARD.encode(text);
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            let codes: Vec<u8> = text.bytes().collect();
            let disguises = [
                json!(text),
                json!(bytes),
                json!(hex),
                json!([text]),
                json!([bytes]),
                json!(codes),
                json!({ text: text }),
                json!(json!({ text: text }).to_string()),
                json!({"wkb": bytes, "srid": null}),
            ];
            let count = disguises.len();
            let records: Vec<Rec> = (0i64..)
                .zip(disguises)
                .map(|(n, note)| {
                    change(
                        "u",
                        1000 * round as i64 + n,
                        NULL,
                        json!({"id": 77, "status": format!("s{n}"), "note": note}),
                    )
                })
                .collect();
            world.send(&records).await;
            let text_of = world.config(&route("")) + &format!("[decode]\nplaceholder = \"{text}\"\n");
            let running = crate::world::Running::start(&text_of);
            running.outcomes(count, &format!("applied={count}")).await;
            let rows = world.db.rows("status, note", "FROM orders_copy WHERE id = 77").await;
            assert_eq!(rows, [format!("s{}|kept", count - 1)]);
            // Not there to be updated: nowhere is the value to be had. Inside a sentence it is a text.
            let sentence = format!("the words {text} inside a sentence");
            let base = 1000 * round as i64 + 500;
            world
                .send(&[
                    change("u", base, NULL, json!({"id": 78, "status": "x", "note": text})),
                    change("c", base + 1, NULL, json!({"id": 79 + round, "status": "x", "note": sentence})),
                ])
                .await;
            running.outcomes(count + 2, &format!("applied={} parked=1", count + 1)).await;
            let noted = world.db.rows("note", &format!("FROM orders_copy WHERE id = {}", 79 + round)).await;
            assert_eq!(noted, [sentence]);
            running.stop().await;
        }
        assert_eq!(codes(&world.dead_letters().await), ["unavailable", "unavailable"]);
    });
}

#[test]
fn a_null_stays_null_whatever_its_default_and_an_absent_field_touches_nothing() {
    everywhere(|world| async move {
        table(&world, "tier VARCHAR(20) DEFAULT 'column', n BIGINT").await;
        world.db.run("INSERT INTO orders_copy VALUES (1, 'gold', 1), (2, 'gold', 2)").await;
        let tier = json!({"type": "string", "optional": true, "default": "standard"});
        let number = json!({"type": "int64", "optional": true, "default": 5});
        let columns = [("tier", tier), ("n", number)];
        world
            .send(&[
                typed("u", 10, json!({"id": 1, "tier": null, "n": null}), &columns),
                typed("u", 20, json!({"id": 2, "n": 3}), &columns),
                typed("c", 30, json!({"id": 3, "tier": null, "n": null}), &columns),
                change("u", 40, NULL, json!({"id": 2, "n": 4})),
            ])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(4, "applied=4").await;
        let rows = world.db.rows("id, tier, n", "FROM orders_copy ORDER BY orders_copy.id").await;
        assert_eq!(rows, ["1|-|-", "2|gold|4", "3|-|-"]);
        running.stop().await;
    });
}

#[test]
fn a_column_that_was_renamed_on_its_way_is_missed_and_not_null() {
    everywhere(|world| async move {
        table(&world, "model VARCHAR(20), price VARCHAR(20)").await;
        let config = "[[route]]\nname = \"m\"\nmatch = { topic = \"TOPIC\" }\nmessage_id = \"source\"\n[route.effect]\nkind = \"sql\"\n\
             steps = [{ sql = \"INSERT INTO orders_copy (id, model, price) VALUES (:id, :_3d_model, :unit_price)\" }]\n";
        world
            .send(&[
                change("c", 10, NULL, json!({"id": 1, "_3d_model": "m-1", "unit_price": "9.90"})),
                change("c", 20, NULL, json!({"id": 2, "_d_model": "m-1", "unit_price": "9.90"})),
                change("r", 30, NULL, json!({"id": 3, "_3d_model": "m-1", "unit-price": "9.90"})),
                change("c", 40, NULL, json!({"id": 4, "_3d_model": null, "unit_price": null})),
            ])
            .await;
        let running = world.start(&config.replace("\"source\"\n", "\"source\"\nsnapshot = \"apply\"\n")).await;
        running.outcomes(4, "applied=2 parked=2").await;
        assert_eq!(world.db.rows("id, model", "FROM orders_copy ORDER BY orders_copy.id").await, ["1|m-1", "4|-"]);
        let reasons = world.db.rows("reason", "FROM countersign_dead_letters ORDER BY id").await;
        assert!(reasons[0].contains("_3d_model") && reasons[1].contains("unit_price"), "{reasons:?}");
        running.stop().await;
    });
}

#[test]
fn labels_of_enums_and_sets_arrive_as_they_are() {
    everywhere(|world| async move {
        table(&world, "kind VARCHAR(40), opts VARCHAR(40)").await;
        let allowed = json!({"allowed": "a\\,b,c,it's,back\\\\slash,"});
        let columns = [
            ("kind", named("string", "io.debezium.data.Enum", allowed.clone())),
            ("opts", named("string", "io.debezium.data.EnumSet", allowed)),
        ];
        let labels = [
            ("a,b", "red"),
            ("it's", "red,blue,ish"),
            ("back\\slash", ""),
            ("", ""),
            ("not in the list any more", "red"),
            ("\"q\"", "0"),
            ("2", "1,2"),
        ];
        let row = |id: i64, (kind, opts): (&str, &str)| json!({"id": id, "kind": kind, "opts": opts});
        let mut records: Vec<Rec> =
            (1i64..).zip(labels).map(|(id, label)| typed("c", id, row(id, label), &columns)).collect();
        records.extend((11i64..).zip(labels).map(|(id, label)| change("c", id, NULL, row(id, label))));
        world.send(&records).await;
        let running = world.start(&route("")).await;
        running.outcomes(14, "applied=14").await;
        let expected: Vec<String> = labels.iter().map(|(kind, opts)| format!("{kind}|{opts}")).collect();
        let rows = world.db.rows("kind, opts", "FROM orders_copy ORDER BY orders_copy.id").await;
        assert_eq!((&rows[..7], &rows[7..]), (&expected[..], &expected[..]));
        running.stop().await;
    });
}

/// `true` is no 1: whoever means a number writes one. A column that databases keep booleans in takes it.
#[test]
fn a_boolean_is_in_no_column_of_numbers() {
    everywhere(|world| async move {
        let (number, flag) = match world.db.engine {
            Engine::Postgres => ("INTEGER", "BOOLEAN"),
            Engine::MariaDb => ("INTEGER", "TINYINT(1)"),
            Engine::Sqlite => ("DECIMAL(12,2)", "INTEGER"),
        };
        table(&world, &format!("number {number}, flag {flag}")).await;
        let row = |id: i64, number: Value, flag: Value| {
            change("c", id, NULL, json!({"id": id, "number": number, "flag": flag}))
        };
        world
            .send(&[row(1, json!(7), json!(true)), row(2, json!(true), json!(false)), row(3, json!(0), json!(1))])
            .await;
        let running = world.start(&route("")).await;
        running.outcomes(3, "applied=2 parked=1").await;
        assert_eq!(codes(&world.dead_letters().await), ["type_mismatch"]);
        let letters = world.db.rows("reason", "FROM countersign_dead_letters").await;
        assert!(letters[0].contains("number") && letters[0].contains("a boolean"), "{letters:?}");
        let truths =
            world.db.rows("orders_copy.id", "FROM orders_copy WHERE flag = (1 = 1) ORDER BY orders_copy.id").await;
        assert_eq!(truths, ["1", "3"]);
        running.stop().await;
    });
}

#[test]
fn a_column_of_numbers_takes_no_other_text_on_sqlite_either() {
    on(&[Engine::Sqlite], |world| async move {
        for strict in ["", " STRICT"] {
            let number = if strict.is_empty() { "NUMERIC" } else { "REAL" };
            world.db.run("DROP TABLE IF EXISTS orders_copy; DELETE FROM countersign_dead_letters").await;
            let columns = format!("id INTEGER PRIMARY KEY, price {number}, n INTEGER, note TEXT");
            world.db.run(&format!("CREATE TABLE orders_copy ({columns}){strict};")).await;
            let base = if strict.is_empty() { 0 } else { 10 };
            let row = |id: i64, price: Value, n: Value| {
                let (price, n) = (json!({"id": base + id, "price": price, "n": n, "note": "NaN"}), base + id);
                change("c", n, NULL, price)
            };
            world
                .send(&[
                    row(1, json!("garbage!"), json!(1)),
                    row(2, json!("NaN."), json!(1)),
                    row(3, json!(1.5), json!("seven")),
                    row(4, json!(1.5), json!(7)),
                ])
                .await;
            let running = world.start(&route("")).await;
            until("its four", || async {
                (world.db.count("FROM orders_copy").await + world.db.count("FROM countersign_dead_letters").await == 4)
                    .then_some(())
            })
            .await;
            running.stop().await;
            let reasons = world.db.rows("reason", "FROM countersign_dead_letters ORDER BY id").await;
            assert_eq!(reasons.len(), 3, "{reasons:?}");
            let named = reasons.iter().zip(["price", "price", "n"]).all(|(reason, column)| reason.contains(column));
            assert!(named && reasons.iter().all(|reason| !reason.contains("garbage")), "{reasons:?}");
            assert_eq!(world.db.rows("price, n, note", "FROM orders_copy").await, ["1.5|7|NaN"]);
        }
    });
}
