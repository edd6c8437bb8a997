//! Every column of two real rows, captured from Debezium 3.6 over PostgreSQL 15 and 3.5 over MariaDB 10.11: schema, wire
//! value, and the text that it is. (Of MariaDB's `UUID` the connector makes other bytes; that is its fault, and kept.)

use super::*;
use crate::debezium::render;

pub(super) fn shown(schema: &str, value: &str) -> String {
    let Value::Struct(schema) = json::parse_text(schema).unwrap() else { panic!("{schema}") };
    let schema = Schema::compile(&schema).unwrap();
    let value = convert(json::parse_text(value).unwrap(), &schema, Strictness::Full);
    render::json(&value.unwrap_or_else(|mismatch| panic!("{}", mismatch.fault())))
}

#[test]
fn every_column_of_a_real_row() {
    for (name, schema, value, text) in POSTGRES.into_iter().chain(MARIADB) {
        assert_eq!(shown(schema, value), text, "{name}");
    }
}

const POSTGRES: [(&str, &str, &str, &str); 41] = [
    ("id", r#"{"type":"int64","optional":false,"default":0}"#, r#"1"#, r#"1"#),
    ("c_small", r#"{"type":"int16","optional":true}"#, r#"-32768"#, r#"-32768"#),
    ("c_int", r#"{"type":"int32","optional":true}"#, r#"-2147483648"#, r#"-2147483648"#),
    ("c_big", r#"{"type":"int64","optional":true}"#, r#"-9223372036854775808"#, r#"-9223372036854775808"#),
    ("c_real", r#"{"type":"float","optional":true}"#, r#"1.5"#, r#"1.5"#),
    ("c_double", r#"{"type":"double","optional":true}"#, r#"2.5e+100"#, r#"2.5e100"#),
    (
        "c_num",
        r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"4","connect.decimal.precision":"20"}}"#,
        r#""/1SrVnMU4PUu""#,
        r#""-1234567890123456.7890""#,
    ),
    (
        "c_numany",
        r#"{"type":"struct","fields":[{"type":"int32","optional":false,"field":"scale"},{"type":"bytes","optional":false,"field":"value"}],"optional":true,"name":"io.debezium.data.VariableScaleDecimal","version":1}"#,
        r#"{"scale":12,"value":"BrFOn35PWlB7"}"#,
        r#""123456789.000000000123""#,
    ),
    (
        "c_money",
        r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}}"#,
        r#""BNI=""#,
        r#""12.34""#,
    ),
    ("c_bool", r#"{"type":"boolean","optional":true}"#, r#"true"#, r#"true"#),
    ("c_bit1", r#"{"type":"boolean","optional":true}"#, r#"true"#, r#"true"#),
    (
        "c_bit12",
        r#"{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","version":1,"parameters":{"length":"12"}}"#,
        r#""qgo=""#,
        r#""101010101010""#,
    ),
    (
        "c_varbit",
        r#"{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","version":1,"parameters":{"length":"20"}}"#,
        r#""Cw==""#,
        r#""00000000000000001011""#,
    ),
    (
        "c_date",
        r#"{"type":"int32","optional":true,"name":"io.debezium.time.Date","version":1}"#,
        r#"-1"#,
        r#""1969-12-31""#,
    ),
    (
        "c_time",
        r#"{"type":"int64","optional":true,"name":"io.debezium.time.MicroTime","version":1}"#,
        r#"45296123456"#,
        r#""12:34:56.123456""#,
    ),
    (
        "c_timetz",
        r#"{"type":"string","optional":true,"name":"io.debezium.time.ZonedTime","version":1}"#,
        r#""10:34:56.123456Z""#,
        r#""10:34:56.123456Z""#,
    ),
    (
        "c_ts",
        r#"{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","version":1}"#,
        r#"1795955696123456"#,
        r#""2026-11-29T12:34:56.123456""#,
    ),
    (
        "c_ts3",
        r#"{"type":"int64","optional":true,"name":"io.debezium.time.Timestamp","version":1}"#,
        r#"1795955696789"#,
        r#""2026-11-29T12:34:56.789""#,
    ),
    (
        "c_tstz",
        r#"{"type":"string","optional":true,"name":"io.debezium.time.ZonedTimestamp","version":1}"#,
        r#""2026-11-29T10:34:56.123456Z""#,
        r#""2026-11-29T10:34:56.123456Z""#,
    ),
    (
        "c_interval",
        r#"{"type":"int64","optional":true,"name":"io.debezium.time.MicroDuration","version":1}"#,
        r#"37091106000000"#,
        r#""PT10303H5M6S""#,
    ),
    ("c_char", r#"{"type":"string","optional":true}"#, r#""ab   ""#, r#""ab   ""#),
    ("c_varchar", r#"{"type":"string","optional":true}"#, r#""héllo 世界 😀""#, r#""héllo 世界 😀""#),
    ("c_text", r#"{"type":"string","optional":true}"#, r#""line1\nline2 \"q\" \\""#, r#""line1\nline2 \"q\" \\""#),
    ("c_citext", r#"{"type":"string","optional":true}"#, r#""CiText""#, r#""CiText""#),
    ("c_bytea", r#"{"type":"bytes","optional":true}"#, r#""3q2+7wA=""#, r#""3q2+7wA=""#),
    (
        "c_uuid",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Uuid","version":1}"#,
        r#""123e4567-e89b-12d3-a456-426614174000""#,
        r#""123e4567-e89b-12d3-a456-426614174000""#,
    ),
    (
        "c_json",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}"#,
        r#""{\"b\":1, \"a\":[1,2.50,null,\"x\"]}""#,
        r#"{"b":1,"a":[1,2.50,null,"x"]}"#,
    ),
    (
        "c_jsonb",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}"#,
        r#""{\"a\": [1, 2.50, null, \"x\"], \"b\": 1}""#,
        r#"{"a":[1,2.50,null,"x"],"b":1}"#,
    ),
    (
        "c_xml",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Xml","version":1}"#,
        r#""<a>1</a>""#,
        r#""<a>1</a>""#,
    ),
    (
        "c_enum",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"new,paid,void"}}"#,
        r#""paid""#,
        r#""paid""#,
    ),
    (
        "c_hstore",
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}"#,
        r#""{\"k\":\"v\",\"n\":null}""#,
        r#"{"k":"v","n":null}"#,
    ),
    ("c_inet", r#"{"type":"string","optional":true}"#, r#""2001:db8::1""#, r#""2001:db8::1""#),
    ("c_cidr", r#"{"type":"string","optional":true}"#, r#""10.0.0.0/8""#, r#""10.0.0.0/8""#),
    ("c_mac", r#"{"type":"string","optional":true}"#, r#""08:00:2b:01:02:03""#, r#""08:00:2b:01:02:03""#),
    (
        "c_ints",
        r#"{"type":"array","items":{"type":"int32","optional":true},"optional":true}"#,
        r#"[1,2,null]"#,
        r#"[1,2,null]"#,
    ),
    (
        "c_texts",
        r#"{"type":"array","items":{"type":"string","optional":true},"optional":true}"#,
        r#"["a","b,c",null]"#,
        r#"["a","b,c",null]"#,
    ),
    (
        "c_nums",
        r#"{"type":"array","items":{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"10"}},"optional":true}"#,
        r#"["bg==","ANw="]"#,
        r#"["1.10","2.20"]"#,
    ),
    ("c_int4range", r#"{"type":"string","optional":true}"#, r#""[1,10)""#, r#""[1,10)""#),
    (
        "c_tsrange",
        r#"{"type":"string","optional":true}"#,
        r#""[\"2026-01-01 00:00:00+00\",infinity)""#,
        r#""[\"2026-01-01 00:00:00+00\",infinity)""#,
    ),
    (
        "c_point",
        r#"{"type":"struct","fields":[{"type":"double","optional":false,"field":"x"},{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}],"optional":true,"name":"io.debezium.data.geometry.Point","version":1}"#,
        r#"{"x":1.5,"y":-2.5,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA","srid":null}"#,
        r#"{"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA"}"#,
    ),
    ("c_ltree", r#"{"type":"string","optional":true}"#, r#""a.b.c""#, r#""a.b.c""#),
];
const MARIADB: [(&str, &str, &str, &str); 38] = [
    ("id", r#"{"type":"int64","optional":false}"#, r#"1"#, r#"1"#),
    ("c_tiny", r#"{"type":"int16","optional":true}"#, r#"-128"#, r#"-128"#),
    ("c_bool", r#"{"type":"int16","optional":true}"#, r#"1"#, r#"1"#),
    ("c_utiny", r#"{"type":"int16","optional":true}"#, r#"255"#, r#"255"#),
    ("c_small", r#"{"type":"int16","optional":true}"#, r#"-32768"#, r#"-32768"#),
    ("c_usmall", r#"{"type":"int32","optional":true}"#, r#"65535"#, r#"65535"#),
    ("c_med", r#"{"type":"int32","optional":true}"#, r#"-8388608"#, r#"-8388608"#),
    ("c_int", r#"{"type":"int32","optional":true}"#, r#"-2147483648"#, r#"-2147483648"#),
    ("c_uint", r#"{"type":"int64","optional":true}"#, r#"4294967295"#, r#"4294967295"#),
    ("c_big", r#"{"type":"int64","optional":true}"#, r#"-9223372036854775808"#, r#"-9223372036854775808"#),
    ("c_ubig", r#"{"type":"int64","optional":true}"#, r#"9223372036854775807"#, r#"9223372036854775807"#),
    (
        "c_dec",
        r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"4","connect.decimal.precision":"20"},"optional":true}"#,
        r#""/1SrVnMU4PUu""#,
        r#""-1234567890123456.7890""#,
    ),
    (
        "c_dec0",
        r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0","connect.decimal.precision":"38"},"optional":true}"#,
        r#""CUmw9vACMxPESZBQ3jjzTg==""#,
        r#""12345678901234567890123456789012345678""#,
    ),
    ("c_float", r#"{"type":"float","optional":true}"#, r#"1.5"#, r#"1.5"#),
    ("c_double", r#"{"type":"double","optional":true}"#, r#"2.5e+100"#, r#"2.5e100"#),
    ("c_bit1", r#"{"type":"boolean","optional":true}"#, r#"true"#, r#"true"#),
    (
        "c_bit12",
        r#"{"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"12"},"optional":true}"#,
        r#""qgo=""#,
        r#""101010101010""#,
    ),
    ("c_date", r#"{"type":"int32","name":"io.debezium.time.Date","optional":true}"#, r#"-1"#, r#""1969-12-31""#),
    (
        "c_time",
        r#"{"type":"int64","name":"io.debezium.time.MicroTime","optional":true}"#,
        r#"-45296000000"#,
        r#""-12:34:56""#,
    ),
    (
        "c_time6",
        r#"{"type":"int64","name":"io.debezium.time.MicroTime","optional":true}"#,
        r#"3020398999999"#,
        r#""838:59:58.999999""#,
    ),
    (
        "c_dt",
        r#"{"type":"int64","name":"io.debezium.time.Timestamp","optional":true}"#,
        r#"1795955696000"#,
        r#""2026-11-29T12:34:56""#,
    ),
    (
        "c_dt3",
        r#"{"type":"int64","name":"io.debezium.time.Timestamp","optional":true}"#,
        r#"1795955696789"#,
        r#""2026-11-29T12:34:56.789""#,
    ),
    (
        "c_dt6",
        r#"{"type":"int64","name":"io.debezium.time.MicroTimestamp","optional":true}"#,
        r#"-876544"#,
        r#""1969-12-31T23:59:59.123456""#,
    ),
    (
        "c_ts",
        r#"{"type":"string","name":"io.debezium.time.ZonedTimestamp","optional":true}"#,
        r#""2026-11-29T12:34:56Z""#,
        r#""2026-11-29T12:34:56Z""#,
    ),
    (
        "c_ts6",
        r#"{"type":"string","name":"io.debezium.time.ZonedTimestamp","optional":true}"#,
        r#""2026-11-29T12:34:56.123456Z""#,
        r#""2026-11-29T12:34:56.123456Z""#,
    ),
    ("c_year", r#"{"type":"int32","name":"io.debezium.time.Year","optional":true}"#, r#"2026"#, r#"2026"#),
    ("c_char", r#"{"type":"string","optional":true}"#, r#""ab""#, r#""ab""#),
    ("c_varchar", r#"{"type":"string","optional":true}"#, r#""héllo 世界 😀""#, r#""héllo 世界 😀""#),
    ("c_text", r#"{"type":"string","optional":true}"#, r#""line1\nline2 \"q\" \\""#, r#""line1\nline2 \"q\" \\""#),
    ("c_bin", r#"{"type":"bytes","optional":true}"#, r#""AP8AAA==""#, r#""AP8AAA==""#),
    ("c_varbin", r#"{"type":"bytes","optional":true}"#, r#""AP8Q""#, r#""AP8Q""#),
    ("c_blob", r#"{"type":"bytes","optional":true}"#, r#""3q2+7wA=""#, r#""3q2+7wA=""#),
    (
        "c_enum",
        r#"{"type":"string","name":"io.debezium.data.Enum","parameters":{"allowed":"new,paid,void"},"optional":true}"#,
        r#""paid""#,
        r#""paid""#,
    ),
    (
        "c_set",
        r#"{"type":"string","name":"io.debezium.data.EnumSet","parameters":{"allowed":"a,b,c"},"optional":true}"#,
        r#""a,c""#,
        r#""a,c""#,
    ),
    (
        "c_json",
        r#"{"type":"string","optional":true}"#,
        r#""{\"b\":1,\"a\":[1,2.50,null,\"x\"]}""#,
        r#""{\"b\":1,\"a\":[1,2.50,null,\"x\"]}""#,
    ),
    (
        "c_point",
        r#"{"type":"struct","name":"io.debezium.data.geometry.Point","fields":[{"type":"double","optional":false,"field":"x"},{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}],"optional":true}"#,
        r#"{"x":1.5,"y":-2.5,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA","srid":null}"#,
        r#"{"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA"}"#,
    ),
    (
        "c_geom",
        r#"{"type":"struct","name":"io.debezium.data.geometry.Geometry","fields":[{"type":"bytes","optional":false,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}],"optional":true}"#,
        r#"{"wkb":"AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=","srid":null}"#,
        r#"{"wkb":"AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8="}"#,
    ),
    (
        "c_uuid",
        r#"{"type":"string","name":"io.debezium.data.Uuid","optional":true}"#,
        r#""00123e45-67e8-9b12-d3a4-564266141740""#,
        r#""00123e45-67e8-9b12-d3a4-564266141740""#,
    ),
];
