//! Values into SQLite columns.

use serde_json::json;

use super::sent::*;
use super::{Case, compare, kept, null, parked};
use crate::database::Engine;
use crate::world::on;

/// The storage class stands before the value.
fn cases() -> Vec<Case> {
    vec![
        kept("DECIMAL(10,2)", decimal("12.50"), "real 12.5"),
        kept("DECIMAL(10,2)", decimal("12.00"), "integer 12"),
        kept("TEXT", decimal("12.00"), "text 12.00"),
        kept("TEXT", decimal("12345678901234567890.12"), "text 12345678901234567890.12"),
        parked("NUMERIC(30,2)", decimal("12345678901234567890.12"), "out_of_range"),
        parked("REAL", decimal("12345678901234567890.12"), "out_of_range"),
        kept("BLOB", decimal("12345678901234567890.12"), "text 12345678901234567890.12"),
        parked("NUMERIC", any_scale("0.123456789012345678901"), "out_of_range"),
        kept("NUMERIC", text("12.50"), "real 12.5"),
        parked("NUMERIC", bare(json!("1234")), "type_mismatch"),
        kept("NUMERIC", bare(json!("123.25")), "real 123.25"),
        kept("INTEGER", int(i64::MIN), "integer -9223372036854775808"),
        parked("INTEGER", unsigned(u64::MAX), "out_of_range"),
        parked("BIGINT UNSIGNED", unsigned(1 << 63), "out_of_range"),
        kept("BIGINT UNSIGNED", unsigned((1 << 63) - 1), "integer 9223372036854775807"),
        kept("TEXT", unsigned(u64::MAX), "text 18446744073709551615"),
        parked("NUMERIC(20)", unsigned(u64::MAX), "out_of_range"),
        kept("INTEGER", decimal("12.00"), "integer 12"),
        parked("INTEGER", decimal("12.50"), "out_of_range"),
        parked("INTEGER", double(json!(1.5)), "out_of_range"),
        kept("INTEGER", boolean(true), "integer 1"),
        kept("BOOLEAN", boolean(false), "integer 0"),
        parked("REAL", boolean(true), "type_mismatch"),
        parked("DECIMAL(10,2)", boolean(true), "type_mismatch"),
        parked("DECIMAL(10,2)", text("garbage"), "type_mismatch"),
        parked("NUMERIC", text("NaN"), "type_mismatch"),
        parked("INTEGER", text("x"), "type_mismatch"),
        kept("REAL", real(json!(0.1)), "real 0.1"),
        kept("DOUBLE", double(json!(2.5e100)), "real 2.5e+100"),
        kept("DOUBLE", int(3), "real 3.0"),
        parked("DOUBLE", int(9007199254740993), "out_of_range"),
        parked("REAL", double(json!("NaN")), "out_of_range"),
        parked("REAL", double(json!("Infinity")), "out_of_range"),
        kept("TEXT", double(json!("NaN")), "text NaN"),
        parked("REAL", text("x"), "type_mismatch"),
        kept("TEXT", bits("000000000011"), "text 000000000011"),
        kept("BIT(12)", bits("101000000011"), "integer 2563"),
        kept("TEXT", text("007"), "text 007"),
        kept("STRING", text("abc"), "text abc"),
        parked("JSON", json_text("1.50"), "out_of_range"),
        kept(
            "JSON",
            json_text(r#"{"a":[1,2.50,12345678901234567890.123456789]}"#),
            r#"text {"a":[1,2.50,12345678901234567890.123456789]}"#,
        ),
        kept("DATE", date(-1), "text 1969-12-31"),
        kept("DATE", date(-735160), "text -0043-03-15"),
        kept("TEXT", date(-2_147_472_692), "text infinity"),
        parked("INTEGER", date(-1), "type_mismatch"),
        kept("DATETIME", timestamp(1_795_955_696_123_456), "text 2026-11-29T12:34:56.123456"),
        kept("DATETIME", nano_timestamp(1_795_955_696_123_456_789), "text 2026-11-29T12:34:56.123456789"),
        kept("TIMESTAMP", zoned("2026-11-29T12:34:56+02:00"), "text 2026-11-29T10:34:56Z"),
        kept("TIME", time(-3_020_399_000_000), "text -838:59:59"),
        kept("INTERVAL", duration(45_296_123_456), "text PT12H34M56.123456S"),
        kept("TEXT", named("time.ZonedTime", "10:34:56.123456Z"), "text 10:34:56.123456Z"),
        kept("VARCHAR(5)", text("héllo wörld"), "text héllo wörld"),
        kept("TEXT", text("C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"), "text C:\\tmp 'q' \"d\" %s ? :x $1\n\t😀"),
        kept("TEXT", text(""), "text "),
        null("TEXT", none(text(""))),
        null("INTEGER", none(int(0))),
        kept("TEXT", int(5), "text 5"),
        parked("TEXT", bytes(b"\xde\xad"), "type_mismatch"),
        kept("BLOB", bytes(b"\xde\xad\0\\"), "blob DEAD005C"),
        kept("VARBINARY(4)", bytes(b"\xde\xad"), "blob DEAD"),
        parked("INTEGER", bytes(b"5"), "type_mismatch"),
        kept(
            "UUID",
            named("data.Uuid", "123E4567-e89b-12d3-a456-426614174000"),
            "text 123e4567-e89b-12d3-a456-426614174000",
        ),
        kept("TEXT", struct_of(json!({"street": "a\"b", "number": 5})), r#"text {"street":"a\"b","number":5}"#),
        parked("INTEGER", struct_of(json!({"street": "x", "number": 5})), "type_mismatch"),
        kept("TEXT", array(vec![int(1), none(int(0))]), "text [1,null]"),
        kept("BLOB", geometry("Geometry", POINT, None), "blob 010100000000000000000012400000000000204A40"),
        kept("POINT", geometry("Point", POINT, None), "blob 010100000000000000000012400000000000204A40"),
        parked("TEXT", geometry("Point", POINT, None), "type_mismatch"),
    ]
}

#[test]
fn sqlite_keeps_every_value_or_parks_it_with_its_column() {
    on(&[Engine::Sqlite], |world| async move {
        let shown = |column: &str, _: &str| {
            format!(
                "CASE typeof({column}) WHEN 'null' THEN NULL WHEN 'blob' THEN 'blob ' || hex({column}) \
                 ELSE typeof({column}) || ' ' || {column} END"
            )
        };
        compare(&world, &cases(), "", shown).await;
    });
}
