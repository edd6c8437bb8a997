//! What is allowed but probably not meant.

use super::{SMALL, parse};

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let warnings = |text: &str| -> Vec<String> {
        let config = parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        config.warnings.iter().map(ToString::to_string).collect()
    };
    assert!(warnings(SMALL).is_empty());
    let found = warnings(&SMALL.replace("effect =", "match = { topic = \"x\" }\neffect ="));
    assert!(found[0].starts_with("a.toml:12: route[0].match.topic: can match none of kafka.topics"), "{found:#?}");
    let sql = "effect = { kind = \"sql\", steps = [{ sql = \"SELECT 1\" }] }";
    let source = SMALL.replace("effect = { kind = \"none\" }", sql).replace("header:id", "source");
    assert!(warnings(&source)[0].contains("snapshot reads are skipped"), "{source}");
    assert!(warnings(&source.replace(sql, &format!("snapshot = \"skip\"\n{sql}"))).is_empty());
    let twice = format!("{SMALL}\n[[route]]\nname = \"s\"\nmessage_id = \"key\"\neffect = {{ kind = \"none\" }}");
    assert!(warnings(&twice)[0].contains("route[1].scope: is the same as that of route r"));
    assert!(warnings(&format!("{twice}\n[route.x]").replace("[route.x]", "scope = \"s\"")).is_empty());
    let open = SMALL.replace("[[route]]", "[http]\nlisten = \"0.0.0.0:8080\"\n[[route]]");
    assert!(warnings(&open)[0].contains("reachable from other machines"));
}

#[test]
fn a_pool_smaller_than_the_lanes_is_told() {
    let config = parse(&SMALL.replace("sqlite:a.db", "mysql://u@h/d")).expect("parses");
    assert_eq!(config.check_pool(8), None);
    assert!(config.check_pool(9).is_some_and(|text| text.contains("set it to 11 or more")));
    assert_eq!(parse(SMALL).expect("parses").check_pool(100), None);
}
