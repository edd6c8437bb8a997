use super::*;
use crate::debezium::{json, render};
use crate::route::TimeUnit;

const DEBEZIUM: Origin = Origin { shape: Shape::Envelope, typed: false };
const PLAIN: Origin = Origin { shape: Shape::Plain, typed: false };

fn read(column: ColumnType, value: &str, origin: Origin) -> Result<String, Fault> {
    let Ok(Value::Struct(mut row)) = json::parse_text(&format!("{{\"f\":{value}}}")) else { panic!("{value}") };
    apply(&[("f".into(), column)], &mut row, origin)?;
    Ok(render::json(row.get("f").unwrap()))
}

fn decimal(precision: u32, scale: u32) -> ColumnType {
    ColumnType::Decimal { precision, scale }
}

#[test]
fn declared_types_read_debezium_wire_forms() {
    let uuid = "\"7b0c8f52-3d0e-4e4b-9a51-0f2d5c6a7e90\"";
    for (column, value, text) in [
        (ColumnType::Bool, "1", "true"),
        (ColumnType::Bool, "false", "false"),
        (ColumnType::Int, "7", "7"),
        (ColumnType::Int, "\"-7\"", "-7"),
        (ColumnType::Uint, "-1", "18446744073709551615"),
        (ColumnType::Uint, "\"AP//////////\"", "18446744073709551615"),
        (ColumnType::Uint, "18446744073709551615", "18446744073709551615"),
        (ColumnType::Float, "1", "1.0"),
        (ColumnType::Float, "\"NaN\"", "\"NaN\""),
        (ColumnType::Text, "1.50", "\"1.50\""),
        (ColumnType::Bytes, "\"3q2+7wA=\"", "\"3q2+7wA=\""),
        (ColumnType::Bits(12), "\"Awo=\"", "\"101000000011\""),
        (ColumnType::Bits(1), "true", "true"),
        (decimal(12, 2), "\"BBo=\"", "\"10.50\""),
        (decimal(12, 2), "\"AA==\"", "\"0.00\""),
        (decimal(12, 2), "\"10.5\"", "\"10.50\""),
        (decimal(12, 2), "99.99", "\"99.99\""),
        (decimal(38, 0), "\"CUmw9vACMxPESZBQ3jjzTg==\"", "\"12345678901234567890123456789012345678\""),
        (ColumnType::Date, "-1", "\"1969-12-31\""),
        (ColumnType::Date, "-2147472692", "\"infinity\""),
        (ColumnType::Date, "\"2026-11-29\"", "\"2026-11-29\""),
        (ColumnType::Time(TimeUnit::Micros), "-45296000000", "\"-12:34:56\""),
        (ColumnType::Timestamp(TimeUnit::Millis), "1795955696000", "\"2026-11-29T12:34:56\""),
        (ColumnType::Timestamp(TimeUnit::Micros), "9223372036825200000", "\"infinity\""),
        (ColumnType::TimestampTz, "\"2026-11-29T14:34:56+02:00\"", "\"2026-11-29T12:34:56Z\""),
        (ColumnType::Uuid, "\"7B0C8F52-3D0E-4E4B-9A51-0F2D5C6A7E90\"", uuid),
        (ColumnType::Uuid, "\"ewyPUj0OTkuaUQ8tXGp+kA==\"", uuid),
        (ColumnType::Json, "\"{\\\"b\\\":1, \\\"a\\\":2.50}\"", "{\"b\":1,\"a\":2.50}"),
        (ColumnType::Json, "{\"b\":1}", "{\"b\":1}"),
    ] {
        assert_eq!(read(column, value, DEBEZIUM).unwrap(), text, "{column} {value}");
        assert_eq!(read(column, "null", DEBEZIUM).unwrap(), "null");
    }
}

#[test]
fn what_does_not_fit_is_a_fault_that_names_the_column() {
    for (column, value) in [
        (ColumnType::Bool, "2"),
        (ColumnType::Int, "1.5"),
        (ColumnType::Uint, "-1.0"),
        (ColumnType::Uint, "\"/w==\""),
        (ColumnType::Float, "\"x\""),
        (ColumnType::Text, "[1]"),
        (ColumnType::Bytes, "\"!\""),
        (decimal(4, 2), "\"AIAAAAA=\""),
        (decimal(12, 2), "1.005"),
        (decimal(12, 2), "\"x\""),
        (decimal(12, 0), "\"123\""),
        (ColumnType::Date, "\"2031-07-00\""),
        (ColumnType::Date, "9999999999"),
        (ColumnType::Time(TimeUnit::Millis), "\"noon\""),
        (ColumnType::Timestamp(TimeUnit::Millis), "true"),
        (ColumnType::TimestampTz, "5"),
        (ColumnType::Uuid, "\"AA==\""),
        (ColumnType::Json, "\"{\""),
    ] {
        let fault = read(column, value, DEBEZIUM).unwrap_err();
        assert!(fault.code == "type_mismatch" && fault.detail.contains("column f"), "{fault}");
    }
}

#[test]
fn outside_debezium_rows_a_number_as_text_is_that_number() {
    for (text, decimal_text) in [("\"1000\"", "\"1000.00\""), ("\"10.00\"", "\"10.00\""), ("\"BBo=\"", "\"10.50\"")] {
        assert_eq!(read(decimal(12, 2), text, PLAIN).unwrap(), decimal_text);
    }
    assert_ne!(read(decimal(12, 2), "\"1000\"", DEBEZIUM).unwrap(), "\"1000.00\"");
}

#[test]
fn a_schema_decides_except_where_it_cannot_say() {
    let typed = Origin { typed: true, ..DEBEZIUM };
    assert_eq!(read(decimal(12, 2), "\"BBo=\"", typed).unwrap(), "\"BBo=\"");
    assert_eq!(read(ColumnType::Date, "5", typed).unwrap(), "5");
    assert_eq!(read(ColumnType::Uint, "-1", typed).unwrap(), "18446744073709551615");
    let mut row: Row = [("f".into(), Value::Bytes([0x7b; 16].into()))].into_iter().collect();
    apply(&[("f".into(), ColumnType::Uuid)], &mut row, typed).unwrap();
    assert_eq!(render::row_json(&row), r#"{"f":"7b7b7b7b-7b7b-7b7b-7b7b-7b7b7b7b7b7b"}"#);
}

#[test]
fn absent_and_unknown_columns_stay_so() {
    let mut row: Row = [("u".into(), Value::Unavailable)].into_iter().collect();
    let before = row.clone();
    apply(
        &[("u".into(), ColumnType::Int), ("none".into(), ColumnType::Date), ("a.b".into(), ColumnType::Date)],
        &mut row,
        PLAIN,
    )
    .unwrap();
    assert_eq!(row, before);
}

#[test]
fn nested_fields_are_named_by_their_path() {
    let Ok(Value::Struct(mut row)) = json::parse_text(r#"{"a":{"b":5}}"#) else { panic!() };
    apply(&[("a.b".into(), ColumnType::Date)], &mut row, PLAIN).unwrap();
    assert_eq!(render::row_json(&row), r#"{"a":{"b":"1970-01-06"}}"#);
}
