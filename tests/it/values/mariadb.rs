//! Values into MariaDB columns.

use serde_json::json;

use super::sent::*;
use super::{Case, compare, kept, null, parked};
use crate::database::Engine;
use crate::world::on;

const EXTENDED: &str = "0101000020e610000000000000000012400000000000204a40";

fn numbers() -> Vec<Case> {
    vec![
        kept("DECIMAL(24,4)", decimal("-73.0512"), "-73.0512"),
        kept("DECIMAL(24,4)", decimal("12345678901234567890.1234"), "12345678901234567890.1234"),
        kept("DECIMAL(10,2)", decimal("12.3400"), "12.34"),
        parked("DECIMAL(10,2)", decimal("12.345"), "out_of_range"),
        parked("DECIMAL(6,2)", decimal("12345.00"), "out_of_range"),
        kept("DECIMAL(38,30)", any_scale("0.000000000012345678901234567890"), "0.000000000012345678901234567890"),
        kept("DECIMAL(10,2)", text("12.30"), "12.30"),
        parked("DECIMAL(10,2)", text("twelve"), "type_mismatch"),
        parked("DECIMAL(10,2)", double(json!("NaN")), "out_of_range"),
        kept("DECIMAL(10,3)", real(json!(0.1)), "0.100"),
        kept("TINYINT", int(-128), "-128"),
        parked("TINYINT", int(128), "out_of_range"),
        kept("TINYINT UNSIGNED", int(255), "255"),
        parked("INT UNSIGNED", int(-1), "out_of_range"),
        kept("MEDIUMINT", int(-8_388_608), "-8388608"),
        kept("INT", decimal("12.00"), "12"),
        parked("INT", decimal("12.50"), "out_of_range"),
        parked("INT", double(json!(1.5)), "out_of_range"),
        kept("INT", double(json!(3.0)), "3"),
        kept("TINYINT(1)", boolean(true), "1"),
        kept("TINYINT(1)", int(-128), "-128"),
        parked("TINYINT", boolean(true), "type_mismatch"),
        parked("INT", boolean(true), "type_mismatch"),
        parked("INT", text("x"), "type_mismatch"),
        kept("BIGINT", int(i64::MIN), "-9223372036854775808"),
        kept("BIGINT UNSIGNED", unsigned(u64::MAX), "18446744073709551615"),
        parked("BIGINT", unsigned(u64::MAX), "out_of_range"),
        parked("BIGINT UNSIGNED", int(-1), "out_of_range"),
        kept("FLOAT", real(json!(0.1)), "0.1"),
        parked("FLOAT", double(json!(1.234567890123)), "out_of_range"),
        kept("DOUBLE", double(json!(2.5e100)), "2.5e100"),
        parked("DOUBLE", double(json!("Infinity")), "out_of_range"),
        parked("DOUBLE", decimal("12345678901234567890.12"), "out_of_range"),
        parked("DOUBLE(8,2)", double(json!(1.255)), "out_of_range"),
        kept("BIT(12)", bits("101000000011"), "2563"),
        parked("BIT(11)", bits("101000000011"), "out_of_range"),
        kept("BIT(64)", bits(&"1".repeat(64)), "18446744073709551615"),
        kept("BIT(1)", boolean(true), "1"),
        kept("BIT(16)", bits("101000000011"), "2563"),
        kept("YEAR", int(2026), "2026"),
        parked("YEAR", int(26), "out_of_range"),
        parked("YEAR", int(3000), "out_of_range"),
        parked("DECIMAL(10,2)", bare(json!("1234")), "type_mismatch"),
        kept("BIGINT", bits("101000000011"), "2563"),
    ]
}

fn moments() -> Vec<Case> {
    vec![
        kept("DATE", date(-1), "1969-12-31"),
        parked("DATE", date(-735160), "out_of_range"),
        parked("DATE", date(3_672_925), "out_of_range"),
        parked("DATE", date(-2_147_472_692), "out_of_range"),
        parked("DATE", int(20261129), "type_mismatch"),
        parked("DATE", text("0000-00-00"), "type_mismatch"),
        parked("DATE", text("2031-07-00"), "type_mismatch"),
        parked("DATE", timestamp(1_795_955_696_123_456), "out_of_range"),
        kept("TIME", time(86_400_000_000), "24:00:00"),
        kept("TIME", time(3_020_399_000_000), "838:59:59"),
        kept("TIME", time(-3_020_399_000_000), "-838:59:59"),
        kept("TIME", time(-1_000_000), "-00:00:01"),
        parked("TIME", time(3_020_400_000_000), "out_of_range"),
        parked("TIME(6)", time(3_020_399_999_999), "out_of_range"),
        parked("TIME(3)", time(45_296_123_456), "out_of_range"),
        kept("TIME(6)", time(45_296_123_456), "12:34:56.123456"),
        parked("TIME(6)", nano_time(45_296_123_456_789), "out_of_range"),
        kept("DATETIME(6)", timestamp(1_795_955_696_123_456), "2026-11-29 12:34:56.123456"),
        parked("DATETIME(3)", timestamp(1_795_955_696_123_456), "out_of_range"),
        parked("DATETIME", timestamp(1_795_955_696_500_000), "out_of_range"),
        kept("DATETIME", timestamp(1_795_955_696_000_000), "2026-11-29 12:34:56"),
        parked("DATETIME(6)", nano_timestamp(1_795_955_696_123_456_789), "out_of_range"),
        parked("DATETIME", timestamp(9_223_372_036_825_200_000), "out_of_range"),
        kept("DATETIME", zoned("2026-11-29T12:34:56+02:00"), "2026-11-29 10:34:56"),
        kept("TIMESTAMP NULL", zoned("2026-03-29T01:30:00+02:00"), "2026-03-28 23:30:00"),
        parked("TIMESTAMP NULL", zoned("1969-12-31T23:59:59Z"), "data_refused"),
        parked("TIMESTAMP NULL", zoned("2138-01-19T03:14:08Z"), "data_refused"),
        null("TIMESTAMP NULL", none(zoned(""))),
        kept("VARCHAR(40)", duration(45_296_123_456), "PT12H34M56.123456S"),
        kept("VARCHAR(40)", timestamp(1_795_955_696_123_456), "2026-11-29T12:34:56.123456"),
        kept("VARCHAR(40)", named("time.ZonedTime", "10:34:56.123456Z"), "10:34:56.123456Z"),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        kept("VARCHAR(5)", text("héllo"), "héllo"),
        parked("VARCHAR(5)", text("héllo "), "out_of_range"),
        kept("CHAR(5)", text("ab"), "ab"),
        kept("TEXT", text("C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"), "C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"),
        null("TEXT", none(text(""))),
        kept("TEXT", text(""), ""),
        kept("TEXT", decimal("0.10"), "0.10"),
        kept("VARCHAR(5)", boolean(true), "true"),
        parked("VARCHAR(5) CHARACTER SET latin1", text("😀"), "data_refused"),
        parked("TINYTEXT", text(&"é".repeat(128)), "out_of_range"),
        parked("TEXT", bytes(b"\xde\xad"), "type_mismatch"),
        kept("BLOB", bytes(b"\xde\xad\0\\"), "DEAD005C"),
        kept("BLOB", text("é"), "C3A9"),
        parked("BLOB", bare(json!("3q0=")), "type_mismatch"),
        kept("BINARY(4)", bytes(b"\0\xff\0\0"), "00FF0000"),
        parked("BINARY(4)", bytes(b"\0\xff"), "out_of_range"),
        parked("VARBINARY(2)", bytes(b"\0\xff\0"), "out_of_range"),
        parked("BINARY(16)", named("data.Uuid", "123e4567-e89b-12d3-a456-426614174000"), "type_mismatch"),
        kept(
            "CHAR(36)",
            named("data.Uuid", "123e4567-e89b-12d3-a456-426614174000"),
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        kept(
            "UUID",
            named("data.Uuid", "123e4567-e89b-12d3-a456-426614174000"),
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        parked("UUID", text("no uuid"), "data_refused"),
        kept(
            "JSON",
            json_text(r#"{"b":1,"a":[1,2.50,12345678901234567890.123456789]}"#),
            r#"{"b":1,"a":[1,2.50,12345678901234567890.123456789]}"#,
        ),
        parked("JSON", text("plain"), "type_mismatch"),
        kept("JSON", struct_of(json!({"street": "a\"b", "number": 5})), r#"{"street":"a\"b","number":5}"#),
        parked("INT", struct_of(json!({"street": "x", "number": 5})), "type_mismatch"),
        kept("JSON", array(vec![decimal("1.10"), none(decimal("1.10"))]), r#"["1.10",null]"#),
        kept("ENUM('0','1','2')", text("2"), "2"),
        kept("ENUM('a,b','it''s','back\\\\slash')", text("it's"), "it's"),
        parked("ENUM('a','b')", text("1"), "out_of_range"),
        parked("ENUM('a','b')", text("c"), "data_refused"),
        parked("ENUM('a','b')", text(""), "data_refused"),
        kept("SET('red','blue')", text("red,blue"), "red,blue"),
        kept("SET('red','blue')", text(""), ""),
        parked("SET('red','blue')", text("1"), "out_of_range"),
        kept("INET6", text("2001:db8::1"), "2001:db8::1"),
        kept("POINT", geometry("Point", POINT, None), "POINT(4.5 52.25) 0"),
        kept("GEOMETRY", geometry("Geometry", EXTENDED, Some(4326)), "POINT(4.5 52.25) 4326"),
        kept("GEOMETRY", geometry("Geometry", POINT, Some(4326)), "POINT(4.5 52.25) 4326"),
        parked("GEOMETRY", text("POINT(1 1)"), "type_mismatch"),
        kept("BLOB", geometry("Geometry", POINT, None), "010100000000000000000012400000000000204A40"),
    ]
}

fn shown(column: &str, of: &str) -> String {
    match of.split(['(', ' ']).next().unwrap() {
        "BLOB" | "BINARY" | "VARBINARY" => format!("HEX({column})"),
        "BIT" => format!("CAST(CAST({column} AS UNSIGNED) AS CHAR)"),
        "POINT" | "GEOMETRY" => format!("CONCAT(ST_AsText({column}), ' ', ST_SRID({column}))"),
        _ => format!("CAST({column} AS CHAR)"),
    }
}

#[test]
fn mariadb_keeps_every_value_or_parks_it_with_its_column() {
    on(&[Engine::MariaDb], |world| async move {
        let cases: Vec<Case> = numbers().into_iter().chain(moments()).chain(texts()).collect();
        compare(&world, &cases, "", shown).await;
    });
}
