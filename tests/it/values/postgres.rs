//! Values into Postgres columns.

use serde_json::{Value, json};

use super::sent::*;
use super::{Case, compare, kept, null, parked};
use crate::database::Engine;
use crate::world::on;

fn numbers() -> Vec<Case> {
    vec![
        kept("NUMERIC(24,4)", decimal("-73.0512"), "-73.0512"),
        kept("NUMERIC(24,4)", decimal("12345678901234567890.1234"), "12345678901234567890.1234"),
        kept("NUMERIC(10,2)", decimal("12.3400"), "12.34"),
        parked("NUMERIC(10,2)", decimal("12.345"), "out_of_range"),
        parked("NUMERIC(6,2)", decimal("12345.00"), "out_of_range"),
        kept("NUMERIC", any_scale("0.000000000012345678901234567890"), "0.000000000012345678901234567890"),
        kept("NUMERIC(5,-2)", int(1234500), "1234500"),
        parked("NUMERIC(5,-2)", int(1234567), "out_of_range"),
        kept("NUMERIC(10,2)", text("12.30"), "12.30"),
        parked("NUMERIC(10,2)", text("twelve"), "type_mismatch"),
        kept("NUMERIC(10,2)", double(json!("NaN")), "NaN"),
        parked("NUMERIC(10,2)", double(json!("Infinity")), "out_of_range"),
        kept("NUMERIC(10,3)", real(json!(0.1)), "0.100"),
        kept("MONEY", decimal("12.34"), "$12.34"),
        parked("MONEY", decimal("12.345"), "out_of_range"),
        kept("SMALLINT", int(-32768), "-32768"),
        parked("SMALLINT", int(32768), "out_of_range"),
        kept("INTEGER", decimal("12.00"), "12"),
        parked("INTEGER", decimal("12.50"), "out_of_range"),
        parked("INTEGER", double(json!(1.5)), "out_of_range"),
        kept("INTEGER", double(json!(3.0)), "3"),
        parked("INTEGER", boolean(true), "type_mismatch"),
        parked("NUMERIC(10,2)", boolean(true), "type_mismatch"),
        parked("INTEGER", text("x"), "type_mismatch"),
        kept("BIGINT", int(i64::MIN), "-9223372036854775808"),
        parked("BIGINT", unsigned(u64::MAX), "out_of_range"),
        kept("NUMERIC(20,0)", unsigned(u64::MAX), "18446744073709551615"),
        kept("BIGINT", int(-1), "-1"),
        kept("REAL", real(json!(0.1)), "0.1"),
        parked("REAL", double(json!(1.234567890123)), "out_of_range"),
        kept("DOUBLE PRECISION", double(json!(2.5e100)), "2.5e+100"),
        kept("DOUBLE PRECISION", double(json!("-Infinity")), "-Infinity"),
        kept("REAL", real(json!("NaN")), "NaN"),
        parked("DOUBLE PRECISION", decimal("12345678901234567890.12"), "out_of_range"),
        parked("DOUBLE PRECISION", int(9007199254740993), "out_of_range"),
        kept("BOOLEAN", boolean(false), "false"),
        kept("BOOLEAN", int(1), "true"),
        parked("BOOLEAN", int(2), "out_of_range"),
        parked("BOOLEAN", text("perhaps"), "data_refused"),
        kept("OID", int(4294967295), "4294967295"),
        kept("BIT(12)", bits("101000000011"), "101000000011"),
        parked("BIT(11)", bits("101000000011"), "out_of_range"),
        parked("BIT(16)", bits("101000000011"), "out_of_range"),
        kept("BIT(1)", boolean(true), "1"),
        kept("VARBIT(20)", bits("1011"), "1011"),
        kept("BIGINT", bits("101000000011"), "2563"),
        parked("NUMERIC(10,2)", bare(json!("1234")), "type_mismatch"),
        kept("NUMERIC(10,2)", bare(json!("123.45")), "123.45"),
        kept("positive_money", decimal("3.10"), "3.10"),
        parked("positive_money", decimal("3.101"), "out_of_range"),
    ]
}

fn moments() -> Vec<Case> {
    vec![
        kept("DATE", date(-1), "1969-12-31"),
        kept("DATE", date(-735160), "0044-03-15 BC"),
        kept("DATE", date(-719528), "0001-01-01 BC"),
        kept("DATE", date(3_672_925), "12026-02-16"),
        kept("DATE", date(-2_147_472_692), "infinity"),
        parked("DATE", int(20261129), "type_mismatch"),
        parked("DATE", text("now"), "type_mismatch"),
        parked("DATE", timestamp(1_795_955_696_123_456), "out_of_range"),
        kept("DATE", timestamp(1_795_910_400_000_000), "2026-11-29"),
        kept("TIME", time(86_400_000_000), "24:00:00"),
        parked("TIME", time(3_020_399_000_000), "out_of_range"),
        parked("TIME", time(-1_000_000), "out_of_range"),
        parked("TIME(3)", time(45_296_123_456), "out_of_range"),
        kept("TIME(3)", time(45_296_123_000), "12:34:56.123"),
        parked("TIME", nano_time(45_296_123_456_789), "out_of_range"),
        kept("TIMETZ", named("time.ZonedTime", "10:34:56.123456Z"), "10:34:56.123456+00"),
        kept("TIMESTAMP", timestamp(1_795_955_696_123_456), "2026-11-29 12:34:56.123456"),
        parked("TIMESTAMP(3)", timestamp(1_795_955_696_123_456), "out_of_range"),
        parked("TIMESTAMP", nano_timestamp(1_795_955_696_123_456_789), "out_of_range"),
        kept("TIMESTAMP", nano_timestamp(1_795_955_696_123_456_000), "2026-11-29 12:34:56.123456"),
        kept("TIMESTAMP", timestamp(-63_517_824_000_000_000), "0044-03-15 00:00:00 BC"),
        kept("TIMESTAMP", timestamp(9_223_372_036_825_200_000), "infinity"),
        kept("TIMESTAMPTZ", zoned("2026-11-29T12:34:56.5+02:00"), "2026-11-29 10:34:56.5+00"),
        kept("TIMESTAMPTZ", zoned("-infinity"), "-infinity"),
        kept("TIMESTAMPTZ", zoned("-0043-03-15T10:00:00Z"), "0044-03-15 10:00:00+00 BC"),
        kept("TIMESTAMPTZ", timestamp(0), "1970-01-01 00:00:00+00"),
        kept("TIMESTAMP", zoned("2026-11-29T12:34:56+02:00"), "2026-11-29 10:34:56"),
        parked("TIMESTAMP", bare(json!(1_795_955_696_123_456_i64)), "type_mismatch"),
        kept("INTERVAL", duration(45_296_123_456), "0 0 0 45296.123456"),
        kept("INTERVAL", duration(-1), "0 0 0 -0.000001"),
        kept("INTERVAL", time(3_020_399_000_000), "0 0 0 3020399.000000"),
        kept("INTERVAL", named("time.Interval", "P1Y2M3DT4H5M6.78S"), "1 2 3 14706.780000"),
        parked("INTERVAL", int(5), "type_mismatch"),
        kept("TEXT", timestamp(1_795_955_696_123_456), "2026-11-29T12:34:56.123456"),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        kept("VARCHAR(5)", text("héllo"), "héllo"),
        parked("VARCHAR(5)", text("héllo "), "out_of_range"),
        kept("CHAR(5)", text("ab   "), "ab"),
        parked("NAME", text("0123456789012345678901234567890123456789012345678901234567890123"), "out_of_range"),
        parked("TEXT", text("a\0b"), "out_of_range"),
        kept("TEXT", text("C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"), "C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"),
        null("TEXT", none(text(""))),
        kept("TEXT", text(""), ""),
        kept("TEXT", decimal("0.10"), "0.10"),
        kept("CITEXT", text("CiText"), "CiText"),
        parked("TEXT", bytes(b"\xde\xad"), "type_mismatch"),
        kept("BYTEA", bytes(b"\xde\xad\0\\"), "\\xdead005c"),
        parked("BYTEA", text("\\x00"), "type_mismatch"),
        kept(
            "UUID",
            named("data.Uuid", "123E4567-e89b-12d3-a456-426614174000"),
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        parked("UUID", text("no uuid"), "data_refused"),
        kept(
            "JSONB",
            json_text(r#"{"b":1,"a":[1,2.50,12345678901234567890.123456789]}"#),
            r#"{"a": [1, 2.50, 12345678901234567890.123456789], "b": 1}"#,
        ),
        parked("JSONB", text("plain"), "type_mismatch"),
        parked("JSONB", json_text(r#"{"a":"\u0000"}"#), "data_refused"),
        kept("JSON", struct_of(json!({"street": "a\"b", "number": 5})), r#"{"street":"a\"b","number":5}"#),
        kept("TEXT", struct_of(json!({"street": null, "number": 5})), r#"{"street":null,"number":5}"#),
        parked("INTEGER", struct_of(json!({"street": "x", "number": 5})), "type_mismatch"),
        parked("INET", struct_of(json!({"street": "x", "number": 5})), "type_mismatch"),
        kept("XML", named("data.Xml", "<a>1</a>"), "<a>1</a>"),
        parked("XML", text("<a>"), "data_refused"),
        kept("INET", text("2001:db8::1"), "2001:db8::1/128"),
        parked("INET", text("nowhere"), "data_refused"),
        kept("CIDR", text("10.0.0.0/8"), "10.0.0.0/8"),
        kept("MACADDR", text("08:00:2b:01:02:03"), "08:00:2b:01:02:03"),
        kept("LTREE", text("a.b.c"), "a.b.c"),
        parked("LTREE", text("a b!"), "data_refused"),
        parked("TSQUERY", text("a & & b"), "data_refused"),
        parked("HSTORE", text("=>"), "type_mismatch"),
        parked("HSTORE", json_text("[1]"), "type_mismatch"),
        kept("INT4RANGE", text("[1,10)"), "[1,10)"),
        kept("TSVECTOR", text("'fat':2 'rat':3"), "'fat':2 'rat':3"),
        kept("PG_LSN", text("16/B374D848"), "16/B374D848"),
        kept("mood", text("so, so"), "so, so"),
        parked("mood", text("gone"), "data_refused"),
        kept("HSTORE", json_text(r#"{"k":"v\"","n":null}"#), r#""k"=>"v\"", "n"=>NULL"#),
        kept("POINT", geometry("Point", POINT, None), "(4.5,52.25)"),
        kept("BYTEA", geometry("Geometry", POINT, None), "\\x010100000000000000000012400000000000204a40"),
        parked("TEXT", geometry("Geometry", POINT, None), "type_mismatch"),
        kept("INTEGER[]", array(vec![int(1), none(int(0)), int(3)]), "{1,NULL,3}"),
        parked("SMALLINT[]", array(vec![int(1), int(70000)]), "out_of_range"),
        kept(
            "TEXT[]",
            array(vec![text("a,b"), text("NULL"), none(text("")), text("q\"\\")]),
            r#"{"a,b","NULL",NULL,"q\"\\"}"#,
        ),
        kept("NUMERIC(10,2)[]", array(vec![decimal("1.10"), decimal("2.20")]), "{1.10,2.20}"),
        parked("NUMERIC(10,1)[]", array(vec![decimal("1.10"), decimal("2.25")]), "out_of_range"),
        kept("TIMESTAMP[]", array(vec![timestamp(0)]), "{\"1970-01-01 00:00:00\"}"),
        kept("BYTEA[]", array(vec![bytes(b"\x01\\")]), r#"{"\\x015c"}"#),
        kept("INTEGER[]", array(vec![array(vec![int(1), int(2)]), array(vec![int(3), int(4)])]), "{{1,2},{3,4}}"),
        kept("JSONB", array(vec![int(1), int(2)]), "[1, 2]"),
        parked("INTEGER[]", int(1), "type_mismatch"),
        parked("short", text("too long"), "out_of_range"),
        Case { column: "DATE", sent: bare(Value::Null), expected: super::Expected::Null },
    ]
}

/// An interval in years, months, days and seconds, whatever the style of the session.
fn shown(column: &str, of: &str) -> String {
    match of {
        "INTERVAL" => {
            let field = |name: &str| format!("EXTRACT({name} FROM {column})");
            let seconds = format!("EXTRACT(epoch FROM {column} - date_trunc('day', {column}))");
            format!("concat_ws(' ', {}, {}, {}, {seconds})", field("year"), field("month"), field("day"))
        }
        _ => format!("CAST({column} AS text)"),
    }
}

#[test]
fn postgres_keeps_every_value_or_parks_it_with_its_column() {
    on(&[Engine::Postgres], |world| async move {
        let cases: Vec<Case> = numbers().into_iter().chain(moments()).chain(texts()).collect();
        let before = "CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
            CREATE TYPE mood AS ENUM ('so, so', 'ok'); CREATE DOMAIN short AS VARCHAR(3);
            CREATE DOMAIN positive_money AS NUMERIC(6,2) CHECK (VALUE > 0);
            DO $$ BEGIN
              EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Tokyo''', current_database());
              EXECUTE format('ALTER DATABASE %I SET datestyle = ''SQL, DMY''', current_database());
              EXECUTE format('ALTER DATABASE %I SET intervalstyle = ''sql_standard''', current_database());
            END $$;\n";
        compare(&world, &cases, before, shown).await;
    });
}
