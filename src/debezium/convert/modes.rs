//! Every mode in which Debezium sends a type, and the text that it is.

use super::captured::shown;

/// The modes and types of Debezium 3.6, by the names and forms in its source.
#[test]
fn every_mode_of_every_type() {
    let named = |base: &str, name: &str, more: &str| format!("{{\"type\":\"{base}\",\"name\":\"{name}\"{more}}}");
    let time = |base: &str, name: &str| named(base, &format!("io.debezium.time.{name}"), "");
    let connect = |base: &str, name: &str| named(base, &format!("org.apache.kafka.connect.data.{name}"), "");
    let data = |base: &str, name: &str, more: &str| named(base, &format!("io.debezium.data.{name}"), more);
    let column = |base: &str, kind: &str| {
        format!("{{\"type\":\"{base}\",\"parameters\":{{\"__debezium.source.column.type\":\"{kind}\"}}}}")
    };
    let bare = |base: &str| format!("{{\"type\":\"{base}\"}}");
    let list = |items: &str| format!("{{\"type\":\"array\",\"items\":{items}}}");
    let variable = data("struct", "VariableScaleDecimal", ",\"fields\":[]");
    let part = |base: &str, field: &str| format!("{{\"type\":\"{base}\",\"optional\":true,\"field\":\"{field}\"}}");
    let structured = named(
        "struct",
        "io.debezium.time.StructuredDate",
        &format!(",\"fields\":[{},{},{}]", part("int32", "year"), part("int8", "month"), part("int8", "day")),
    );
    let duration =
        |more: &str| named("struct", "io.debezium.time.StructuredDuration", &format!(",\"fields\":[]{more}"));
    let sparse = "{\"type\":\"struct\",\"name\":\"io.debezium.data.SparseDoubleVector\",\"fields\":[{\"type\":\"int16\",\"field\":\"dimensions\"},{\"type\":\"map\",\"keys\":{\"type\":\"int16\"},\"values\":{\"type\":\"double\"},\"field\":\"vector\"}]}";
    for (schema, value, text) in [
        // time.precision.mode: adaptive, connect, isostring, microseconds, nanoseconds, structured
        (time("int32", "Time"), "45296789", "\"12:34:56.789\""),
        (time("int64", "NanoTime"), "45296123456789", "\"12:34:56.123456789\""),
        (time("int64", "NanoTimestamp"), "-1", "\"1969-12-31T23:59:59.999999999\""),
        (time("int64", "NanoTimestamp"), "9223372036854775807", "\"infinity\""),
        (time("int64", "MicroTimestamp"), "-9223372036832400000", "\"-infinity\""),
        (time("int64", "Timestamp"), "-1", "\"1969-12-31T23:59:59.999\""),
        (connect("int32", "Date"), "20786", "\"2026-11-29\""),
        (connect("int32", "Time"), "86399999", "\"23:59:59.999\""),
        (connect("int64", "Timestamp"), "-62135596800000", "\"0001-01-01T00:00:00\""),
        (time("string", "IsoDate"), "\"2026-11-29Z\"", "\"2026-11-29\""),
        (time("string", "IsoTime"), "\"12:34:56.120Z\"", "\"12:34:56.12\""),
        (time("string", "IsoTimestamp"), "\"2026-11-29T12:34:56.100Z\"", "\"2026-11-29T12:34:56.1\""),
        (time("string", "ZonedTime"), "\"24:00:00Z\"", "\"24:00:00Z\""),
        (time("int32", "Year"), "1901", "1901"),
        (structured, r#"{"year":2026,"month":11,"day":29,"specialValue":null}"#, "\"2026-11-29\""),
        (duration(""), r#"{"hours":12,"minutes":34,"seconds":56,"nanos":0}"#, "\"PT12H34M56S\""),
        (
            duration(",\"parameters\":{\"__debezium.source.column.type\":\"TIME\"}"),
            r#"{"hours":-12,"minutes":-34,"seconds":-56,"nanos":0}"#,
            "\"-12:34:56\"",
        ),
        // interval.handling.mode
        (time("int64", "MicroDuration"), "-90000500000", "\"-PT25H0.5S\""),
        (time("int64", "NanoDuration"), "3600000000001", "\"PT1H0.000000001S\""),
        (time("string", "Interval"), "\"P1Y2M3DT4H5M6.78S\"", "\"P1Y2M3DT4H5M6.78S\""),
        // decimal.handling.mode: double and string have no name
        (bare("double"), "-73.0512", "-73.0512"),
        (bare("double"), "\"NaN\"", "\"NaN\""),
        (bare("string"), "\"-73.0512\"", "\"-73.0512\""),
        (bare("string"), "\"NaN\"", "\"NaN\""),
        (list(&variable), r#"[{"scale":2,"value":"BBo="},{"scale":0,"value":"nA=="}]"#, r#"["10.50","-100"]"#),
        // float32
        (bare("float"), "0.1", "0.1"),
        (bare("float"), "3.4028235E38", "3.4028235e38"),
        (bare("float"), "1.4E-45", "1e-45"),
        (bare("float"), "\"-Infinity\"", "\"-Infinity\""),
        (bare("double"), "4.9E-324", "5e-324"),
        // bigint.unsigned.handling.mode
        (column("int64", "BIGINT UNSIGNED"), "-9223372036854775808", "9223372036854775808"),
        (column("int64", "BIGINT UNSIGNED ZEROFILL"), "-1", "18446744073709551615"),
        (column("int64", "SERIAL"), "-1", "18446744073709551615"),
        (column("int64", "BIGINT"), "-1", "-1"),
        // binary.handling.mode: base64, base64-url-safe and hex are texts without a name
        (bare("bytes"), "\"+/8=\"", "\"+/8=\""),
        (bare("string"), "\"+/8=\"", "\"+/8=\""),
        (bare("string"), "\"-_8=\"", "\"-_8=\""),
        (bare("string"), "\"fbff\"", "\"fbff\""),
        // hstore.handling.mode
        (
            "{\"type\":\"map\",\"keys\":{\"type\":\"string\"},\"values\":{\"type\":\"string\",\"optional\":true}}"
                .to_owned(),
            r#"{"k":"v","n":null}"#,
            r#"{"k":"v","n":null}"#,
        ),
        (data("string", "Json", ""), r#""{\"k\":\"v\",\"n\":null}""#, r#"{"k":"v","n":null}"#),
        (data("string", "Json", ""), r#""{\"n\":12345678901234567890123.10}""#, r#"{"n":12345678901234567890123.10}"#),
        (data("string", "Xml", ""), r#""<a b=\"1\"/>""#, r#""<a b=\"1\"/>""#),
        (data("string", "Ltree", ""), "\"a.b.c\"", "\"a.b.c\""),
        (data("string", "Tsvector", ""), "\"'cat':3 'sat':4A\"", "\"'cat':3 'sat':4A\""),
        (data("array", "FloatVector", ",\"items\":{\"type\":\"float\"}"), "[0.1,-2.0,\"NaN\"]", "[0.1,-2.0,\"NaN\"]"),
        (data("array", "DoubleVector", ",\"items\":{\"type\":\"double\"}"), "[1,2.5E-7]", "[1.0,2.5e-7]"),
        (
            sparse.to_owned(),
            r#"{"dimensions":25,"vector":[[1,0.5],[7,2]]}"#,
            r#"{"dimensions":25,"vector":[[1,0.5],[7,2.0]]}"#,
        ),
        (list(&time("int64", "MicroTimestamp")), "[0,9223372036825200000]", r#"["1970-01-01T00:00:00","infinity"]"#),
        (list(&list(&bare("int32"))), "[[1],[2,3]]", "[[1],[2,3]]"),
        (
            list(&data("string", "Uuid", "")),
            "[\"123E4567-E89B-12D3-A456-426614174000\"]",
            "[\"123e4567-e89b-12d3-a456-426614174000\"]",
        ),
        (
            data("bytes", "Bits", ",\"parameters\":{\"length\":\"64\"}"),
            "\"AAAAAAAAAIA=\"",
            &format!("\"1{}\"", "0".repeat(63)),
        ),
        (data("bytes", "Bits", ",\"parameters\":{\"length\":\"9\"}"), "\"\"", "\"000000000\""),
        (
            data("bytes", "Bits", ",\"parameters\":{\"length\":\"20\",\"__debezium.source.column.type\":\"VARBIT\"}"),
            "\"Cw==\"",
            "\"1011\"",
        ),
    ] {
        assert_eq!(shown(&schema, value), text, "{schema} {value}");
    }
}
