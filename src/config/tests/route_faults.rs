//! Every kind of fault of a route and its effect.

use super::{SMALL, assert_fault, parse};

#[test]
fn routes_of_the_wrong_form() {
    let route = "message_id = \"header:id\"";
    let with = |more: &str| format!("{route}\n{more}");
    assert_fault(route, "", "route[0].message_id: is missing");
    assert_fault(route, "message_id = []", "message_id: must have at least one entry");
    assert_fault(route, "message_id = [\"header:id\", \"id\"]", "message_id[1]: `id` is no place of an id");
    assert_fault(route, &with("correlation_id = \"source\""), "`source` is no place");
    assert_fault(route, &with("order = \"random\""), "`random` is unknown: write partition, key or none");
    assert_fault(route, &with("columns = { a = \"money\" }"), "route[0].columns.a: `money` is no type");
    assert_fault(route, &with("match = { op = [\"c\", \"x\"] }"), "match.op[1]: `x` is no operation");
    assert_fault(route, &with("match = { table = \"a..b\" }"), "match.table: is no table");
    assert_fault(route, &with("match = { topic = \"^(\" }"), "match.topic: `^(` is no regular expression");
    assert_fault(route, &with("digest = { include = [\"a..b\"] }"), "digest.include[0]: `a..b` is no path");
    assert_fault(route, &with("snapshot = \"never\""), "write apply or skip");
    assert_fault("name = \"r\"", "name = \"R!\"", "`R!` is no name");
    let second = "[[route]]\nname = \"r\"\nmessage_id = \"source\"\neffect = { kind = \"none\" }\n[[route]]";
    assert_fault("[[route]]", second, "route[1].name: `r` is the name of an earlier route");
}

#[test]
fn effects_of_the_wrong_form() {
    let none = "{ kind = \"none\" }";
    assert_fault(none, "{ }", "route[0].effect.kind: is missing: one of sql, table, none");
    assert_fault(none, "{ kind = \"sql\" }", "effect.steps: is missing");
    assert_fault(none, "{ kind = \"sql\", steps = [] }", "effect.steps: must have at least one entry");
    assert_fault(none, "{ kind = \"sql\", steps = [{ sql = \"SELECT 1; SELECT 2\" }] }", "a step is one statement");
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\", code = \"a b\", expect_rows = 1 }] }",
        "is no code",
    );
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\", on_check = \"drop\" }] }",
        "reject, ignore, retry or park",
    );
    assert_fault(
        none,
        "{ kind = \"sql\", steps = [{ sql = \"SELECT 1\" }], guard = \"source\" }",
        "effect.guard: unknown key",
    );
    let table = |more: &str| format!("{{ kind = \"table\", table = \"t\", key = [\"id\"]{more} }}");
    assert_fault(none, &table(", inbox = false"), "effect.inbox: may be false only with guard");
    assert_fault(none, &table(", rename = { a = \"x\", b = \"x\" }"), "rename.b: takes a field that fills another");
    assert_fault(none, &table("").replace("\"t\"", "\"a.b.c\""), "more than two parts");
    assert_fault(none, &table("").replace("\"t\"", "\"countersign_inbox\""), "countersign's own tables");
    assert_fault(none, &table("").replace("\"id\"", "\"i`d\""), "effect.key[0]: is no identifier");
    assert!(parse(&SMALL.replace(none, &table(", inbox = false, guard = \"source\""))).is_ok());
}
