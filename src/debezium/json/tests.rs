use super::*;
use crate::debezium::render;

#[test]
fn accepts_and_refuses_what_serde_json_does() {
    let texts = [
        "{}",
        "[]",
        "null",
        "true",
        "nul",
        "tru e",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        "1e",
        "1e5",
        "1E+5",
        "1e-05",
        ".5",
        "+1",
        "\"\"",
        "\"a",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ud83dx\"",
        "\"\\ude00\"",
        "\"\\x\"",
        "\"\u{1}\"",
        "\"\t\"",
        "{\"a\":1}",
        "{\"a\":1,}",
        "{a:1}",
        "[1,2,]",
        "[1 2]",
        "{\"a\" : [ 1 , 2 ] }",
        " 1 ",
        "1 2",
        "",
        " ",
        "NaN",
        "Infinity",
        "[,]",
        "{\"a\"}",
        "{\"a\":}",
        "\"\\/\\b\\f\\n\\r\\t\\\\\\\"\"",
        "[[[]]]",
        "{\"a\":{\"b\":{}}}",
        "[1]]",
        "12345678901234567890123456789",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "\"\u{7f}é世\"",
    ];
    for text in texts {
        let ours = parse_text(text);
        let theirs = serde_json::from_str::<serde_json::Value>(text);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{text}: {ours:?}");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            assert_eq!(serde_json::from_str::<serde_json::Value>(&render::json(&ours)).unwrap(), theirs, "{text}");
        }
    }
}

#[test]
fn every_cut_of_a_document_is_refused() {
    let text = r#"{"a":[1,-2.5e3,"x\n\u00e9\ud83d\ude00",true,false,null],"b":{"c":""}}"#;
    assert!(parse_text(text).is_ok());
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
        assert!(parse_text(&text[..end]).is_err(), "{}", &text[..end]);
    }
}

#[test]
fn digits_are_kept() {
    for digits in ["18446744073709551615", "0.10", "1.0", "1e400", "-0", "-0.0", "3.141592653589793238462643383279"] {
        assert_eq!(parse_text(digits), Ok(Value::Number(digits.into())));
    }
    assert_eq!(parse_text("-9223372036854775808"), Ok(Value::Int(i64::MIN)));
}

#[test]
fn of_repeated_names_the_last_wins() {
    for width in [0, 30] {
        let filler: String = (0..width).map(|i| format!("\"f{i}\":0,")).collect();
        let Ok(Value::Struct(row)) = parse_text(&format!("{{\"a\":1,{filler}\"b\":2,\"a\":3,\"a\":4}}")) else {
            panic!()
        };
        assert_eq!(row.len(), width + 2);
        assert_eq!(row.get("a"), Some(&Value::Int(4)));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse_text(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(parse_text(&nested(MAX_DEPTH + 1)), Err(JsonError::Depth));
    assert_eq!(parse_text(&"{\"a\":".repeat(100_000)), Err(JsonError::Depth));
}

#[test]
fn bytes_must_be_utf8() {
    assert_eq!(parse(b"\"\xff\""), Err(JsonError::Utf8(1)));
}
