use super::*;
use crate::debezium::render;

/// A struct schema of these fields, each `(name, the rest of its schema)`.
fn schema(fields: &[(&str, &str)]) -> Schema {
    let fields: Vec<String> = fields.iter().map(|(name, rest)| format!("{{{rest},\"field\":\"{name}\"}}")).collect();
    match json::parse_text(&format!("{{\"type\":\"struct\",\"fields\":[{}]}}", fields.join(","))).unwrap() {
        Value::Struct(row) => Schema::compile(&row).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn parse(text: &str) -> Row {
    match json::parse_text(text).unwrap() {
        Value::Struct(row) => row,
        other => panic!("{other:?}"),
    }
}

/// One optional field by its schema, as it prints.
fn shown(rest: &str, value: &str) -> Result<String, Fault> {
    let schema = schema(&[("f", &format!("{rest},\"optional\":true"))]);
    let row = row(parse(&format!("{{\"f\":{value}}}")), Some(&schema), Strictness::Full, &Placeholder::default())?;
    Ok(render::json(row.get("f").unwrap()))
}

fn named(base: &str, name: &str) -> String {
    format!("\"type\":\"{base}\",\"name\":\"{name}\",\"version\":1")
}

#[test]
fn decimals_are_exact_and_keep_their_scale() {
    let decimal = |scale: i32| {
        let name = named("bytes", "org.apache.kafka.connect.data.Decimal");
        format!("{name},\"parameters\":{{\"scale\":\"{scale}\"}}")
    };
    for (scale, value, text) in [
        (4, "\"9Npw\"", "\"-73.0512\""),
        (2, "\"AA==\"", "\"0.00\""),
        (4, "\"AIAAAAA=\"", "\"214748.3648\""),
        (0, "\"DA==\"", "\"12\""),
        (2, "\"nA==\"", "\"-1.00\""),
        (0, "\"AP//////////\"", "\"18446744073709551615\""),
        // decimal.format=NUMERIC
        (2, "10.5", "\"10.50\""),
        (2, "10.50", "\"10.50\""),
        (2, "7", "\"7.00\""),
        (4, "0E-10", "\"0.0000\""),
    ] {
        assert_eq!(shown(&decimal(scale), value).unwrap(), text, "{value}");
    }
    let variable = format!("{},\"fields\":[]", named("struct", "io.debezium.data.VariableScaleDecimal"));
    assert_eq!(shown(&variable, r#"{"scale":12,"value":"BrFOn35PWlB7"}"#).unwrap(), "\"123456789.000000000123\"");
    for bad in ["\"\"", "\"!\"", "true", "{}"] {
        assert_eq!(shown(&decimal(2), bad).unwrap_err().code, "type_mismatch");
        assert_eq!(shown(&variable, bad).unwrap_err().code, "type_mismatch");
    }
}

#[test]
fn temporal_types_by_name() {
    for (base, name, value, text) in [
        ("int32", "io.debezium.time.Date", "-1", "\"1969-12-31\""),
        ("int32", "org.apache.kafka.connect.data.Date", "0", "\"1970-01-01\""),
        ("int32", "io.debezium.time.Date", "-2147472691", "\"-infinity\""),
        ("int32", "io.debezium.time.Time", "45296123", "\"12:34:56.123\""),
        ("int32", "org.apache.kafka.connect.data.Time", "0", "\"00:00:00\""),
        ("int64", "io.debezium.time.MicroTime", "-3020399000000", "\"-838:59:59\""),
        ("int64", "io.debezium.time.NanoTime", "1", "\"00:00:00.000000001\""),
        ("int64", "io.debezium.time.Timestamp", "1795955696789", "\"2026-11-29T12:34:56.789\""),
        ("int64", "org.apache.kafka.connect.data.Timestamp", "1795955696000", "\"2026-11-29T12:34:56\""),
        ("int64", "io.debezium.time.MicroTimestamp", "9223372036825200000", "\"infinity\""),
        ("int64", "io.debezium.time.NanoTimestamp", "1", "\"1970-01-01T00:00:00.000000001\""),
        ("string", "io.debezium.time.ZonedTimestamp", "\"2031-03-09T06:05:06.50+02:00\"", "\"2031-03-09T04:05:06.5Z\""),
        ("string", "io.debezium.time.ZonedTime", "\"06:05:06+02:00\"", "\"04:05:06Z\""),
        ("string", "io.debezium.time.IsoDate", "\"2026-11-29Z\"", "\"2026-11-29\""),
        ("string", "io.debezium.time.IsoTime", "\"12:34:56Z\"", "\"12:34:56\""),
        ("string", "io.debezium.time.IsoTimestamp", "\"2026-11-29T12:34:56Z\"", "\"2026-11-29T12:34:56\""),
        ("int64", "io.debezium.time.MicroDuration", "-1", "\"-PT0.000001S\""),
        ("int64", "io.debezium.time.NanoDuration", "1", "\"PT0.000000001S\""),
        ("string", "io.debezium.time.Interval", "\"P1Y2M3DT4H5M6S\"", "\"P1Y2M3DT4H5M6S\""),
        ("int32", "io.debezium.time.Year", "2026", "2026"),
    ] {
        assert_eq!(shown(&named(base, name), value).unwrap(), text, "{name}");
        assert_eq!(shown(&named(base, name), "null").unwrap(), "null", "{name}");
        let wrong = if base == "string" { "1" } else { "\"x\"" };
        assert_eq!(shown(&named(base, name), wrong).unwrap_err().code, "type_mismatch", "{name}");
    }
}

#[test]
fn bits_are_little_endian_and_padded() {
    let bits = |length: &str| {
        format!("{},\"parameters\":{{\"length\":\"{length}\"}}", named("bytes", "io.debezium.data.Bits"))
    };
    assert_eq!(shown(&bits("12"), "\"Awo=\"").unwrap(), "\"101000000011\"");
    assert_eq!(shown(&bits("64"), "\"AQAAAAAAAIA=\"").unwrap(), format!("\"1{}1\"", "0".repeat(62)));
    assert_eq!(shown(&bits("20"), "\"Cw==\"").unwrap(), "\"00000000000000001011\"");
    assert_eq!(shown(&bits("2147483647"), "\"Cw==\"").unwrap(), "\"1011\"");
    assert_eq!(shown("\"type\":\"boolean\"", "true").unwrap(), "true");
}

/// Little-endian bytes of any number, in any width that holds it.
#[test]
fn bits_of_any_width_read_as_their_number() {
    let mut state = 9u64;
    for _ in 0..2000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let width = (state >> 58) as usize + 1;
        let number = (state ^ state >> 31) & (u64::MAX >> (64 - width));
        let bytes = &number.to_le_bytes()[..width.div_ceil(8)];
        assert_eq!(bits(bytes, Some(width)), format!("{number:0>width$b}"));
        let trimmed: Vec<u8> =
            bytes.iter().rev().skip_while(|byte| **byte == 0).copied().collect::<Vec<_>>().into_iter().rev().collect();
        assert_eq!(bits(&trimmed, Some(width)), format!("{number:0>width$b}"));
        assert_eq!(bits(bytes, None), format!("{number:b}"));
    }
}

#[test]
fn unsigned_only_where_the_column_type_says_so() {
    let of =
        |column: &str| format!("\"type\":\"int64\",\"parameters\":{{\"__debezium.source.column.type\":\"{column}\"}}");
    for column in ["BIGINT UNSIGNED", "bigint unsigned", "BIGINT UNSIGNED ZEROFILL"] {
        assert_eq!(shown(&of(column), "-1").unwrap(), "18446744073709551615");
        assert_eq!(shown(&of(column), "-9223372036854775808").unwrap(), "9223372036854775808");
        assert_eq!(shown(&of(column), "7").unwrap(), "7");
    }
    assert_eq!(shown(&of("BIGINT"), "-1").unwrap(), "-1");
    assert_eq!(shown("\"type\":\"int64\"", "-1").unwrap(), "-1");
}

#[test]
fn plain_and_nested_types() {
    for (rest, value, text) in [
        ("\"type\":\"float\"", "1.1", "1.1"),
        ("\"type\":\"double\"", "\"NaN\"", "\"NaN\""),
        ("\"type\":\"double\"", "\"-Infinity\"", "\"-Infinity\""),
        ("\"type\":\"double\"", "3", "3.0"),
        ("\"type\":\"bytes\"", "\"3q2+7wA=\"", "\"3q2+7wA=\""),
        ("\"type\":\"array\",\"items\":{\"type\":\"int32\",\"optional\":true}", "[1,2,null]", "[1,2,null]"),
        (
            "\"type\":\"map\",\"keys\":{\"type\":\"string\"},\"values\":{\"type\":\"int32\",\"name\":\"io.debezium.time.Date\"}",
            "{\"a\":0}",
            "{\"a\":\"1970-01-01\"}",
        ),
        (
            "\"type\":\"map\",\"keys\":{\"type\":\"int32\"},\"values\":{\"type\":\"string\"}",
            "[[1,\"a\"]]",
            "[[1,\"a\"]]",
        ),
        (
            "\"type\":\"struct\",\"fields\":[{\"type\":\"int32\",\"name\":\"io.debezium.time.Date\",\"field\":\"d\"}]",
            "{\"d\":0,\"x\":1}",
            "{\"d\":\"1970-01-01\",\"x\":1}",
        ),
    ] {
        assert_eq!(shown(rest, value).unwrap(), text);
    }
    let json = named("string", "io.debezium.data.Json");
    assert_eq!(shown(&json, r#""{\"b\": 2.50}""#).unwrap(), r#"{"b":2.50}"#);
    assert_eq!(shown(&json, "\"{broken\"").unwrap(), "\"{broken\"");
    let uuid = named("string", "io.debezium.data.Uuid");
    assert_eq!(
        shown(&uuid, "\"123E4567-E89B-12D3-A456-426614174000\"").unwrap(),
        "\"123e4567-e89b-12d3-a456-426614174000\""
    );
}

#[test]
fn labels_of_enums_and_sets_are_not_checked() {
    let labels = "\"parameters\":{\"allowed\":\"a\\\\,b,c,it's,back\\\\\\\\slash,\"}";
    for name in ["io.debezium.data.Enum", "io.debezium.data.EnumSet", "io.debezium.data.Xml", "someone.Else"] {
        for value in ["\"a,b\"", "\"\"", "\"not in the list any more\"", "\"2\"", "\"\\\"q\\\"\""] {
            assert_eq!(shown(&format!("{},{labels}", named("string", name)), value).unwrap(), value);
        }
    }
}

#[test]
fn geometry_is_bytes_and_srid() {
    for name in ["Geometry", "Geography", "Point"] {
        let geometry = format!("{},\"fields\":[]", named("struct", &format!("io.debezium.data.geometry.{name}")));
        let ewkb = "AQEAACDmEAAAAAAAAAAAEkAAAAAAACBKQA==";
        let with = shown(&geometry, &format!("{{\"x\":4.5,\"y\":1.0,\"wkb\":\"{ewkb}\",\"srid\":4326}}")).unwrap();
        assert_eq!(with, format!("{{\"wkb\":\"{ewkb}\",\"srid\":4326}}"));
        let without = shown(&geometry, &format!("{{\"wkb\":\"{ewkb}\",\"srid\":null}}")).unwrap();
        assert_eq!(without, format!("{{\"wkb\":\"{ewkb}\"}}"));
        assert_eq!(shown(&geometry, "\"POINT(1 1)\"").unwrap_err().code, "type_mismatch");
    }
}

#[test]
fn null_is_null_absent_is_absent_and_required_is_required() {
    let schema = schema(&[
        ("tier", "\"type\":\"string\",\"optional\":true,\"default\":\"standard\""),
        ("shipped_on", "\"type\":\"int32\",\"optional\":false,\"default\":0,\"name\":\"io.debezium.time.Date\""),
    ]);
    let read = |text: &str, strictness| row(parse(text), Some(&schema), strictness, &Placeholder::default());
    let kept = read(r#"{"tier":null,"shipped_on":0}"#, Strictness::Full).unwrap();
    assert_eq!(render::row_json(&kept), r#"{"tier":null,"shipped_on":"1970-01-01"}"#);
    assert_eq!(read("{}", Strictness::Full).unwrap(), Row::new());
    let fault = read(r#"{"shipped_on":null}"#, Strictness::Full).unwrap_err();
    assert_eq!(fault, Fault::new("null_in_required", "field shipped_on: null in a required field"));
    assert_eq!(render::row_json(&read(r#"{"shipped_on":null}"#, Strictness::Nulls).unwrap()), r#"{"shipped_on":null}"#);
    assert!(read(r#"{"shipped_on":"x"}"#, Strictness::Nulls).is_err());
    let salvaged = read(r#"{"tier":"a","shipped_on":"x"}"#, Strictness::Salvage).unwrap();
    assert_eq!((render::row_json(&salvaged).as_str(), salvaged.len()), (r#"{"tier":"a"}"#, 2));
}

#[test]
fn a_fault_names_the_nested_field_and_no_value() {
    let nested = "\"type\":\"struct\",\"fields\":[{\"type\":\"int64\",\"optional\":true,\"field\":\"inner\"}]";
    let fault = shown(nested, "{\"inner\":\"secret\"}").unwrap_err();
    assert_eq!(fault, Fault::new("type_mismatch", "field f.inner: no integer"));
}

#[test]
fn a_placeholder_is_seen_before_the_type_is() {
    for rest in [
        named("string", "io.debezium.data.Json"),
        "\"type\":\"bytes\"".to_owned(),
        format!("{},\"parameters\":{{\"scale\":\"2\"}}", named("bytes", "org.apache.kafka.connect.data.Decimal")),
        "\"type\":\"array\",\"items\":{\"type\":\"int32\"}".to_owned(),
    ] {
        for value in ["\"__debezium_unavailable_value\"", "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\""] {
            let schema = schema(&[("f", &rest)]);
            let row =
                row(parse(&format!("{{\"f\":{value}}}")), Some(&schema), Strictness::Full, &Placeholder::default());
            assert_eq!(row.unwrap().get("f"), Some(&Value::Unavailable));
        }
    }
}

#[test]
fn bytes_need_no_base64_where_the_format_has_bytes() {
    let schema = schema(&[
        ("d", "\"type\":\"bytes\",\"name\":\"org.apache.kafka.connect.data.Decimal\",\"parameters\":{\"scale\":\"2\"}"),
        ("b", "\"type\":\"bytes\""),
    ]);
    let mut raw = Row::new();
    raw.push("d", Value::Bytes([0x9c].into()));
    raw.push("b", Value::Bytes([0, 255].into()));
    let row = row(raw, Some(&schema), Strictness::Full, &Placeholder::default()).unwrap();
    assert_eq!(render::row_json(&row), r#"{"d":"-1.00","b":"AP8="}"#);
}

#[test]
fn broken_schemas_are_named_as_such() {
    for text in [
        "{}",
        r#"{"type":"int128"}"#,
        r#"{"type":"struct"}"#,
        r#"{"type":"struct","fields":[{"type":"string"}]}"#,
        r#"{"type":"array"}"#,
        r#"{"type":"map","keys":{"type":"string"}}"#,
        r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal"}"#,
    ] {
        assert_eq!(Schema::compile(&parse(text)).unwrap_err().code, "bad_schema", "{text}");
    }
}
