//! `inspect`: what it prints of records, from where, and how it ends.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::broker::Rec;
use crate::command_line::run;
use crate::daemon::program;
use crate::database::Engine;
use crate::payments::{CHARGE, payment};
use crate::registry_server::{Kind, RegistryServer};
use crate::world::on;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn shown(arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = run(&[&["inspect"], arguments].concat());
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    lines(&stdout)
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn fed(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = program();
    command.arg("inspect").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

fn record(value: &str, headers: &str) -> String {
    let value = serde_json::to_string(value).unwrap();
    format!(r#"{{"topic":"t","partition":0,"offset":5,"headers":[{headers}],"key":"k","value":{value}}}"#)
}

#[test]
fn every_kind_of_record_is_named_and_none_gets_an_id_that_it_does_not_have() {
    for (file, kind) in [
        ("mariadb-orders.jsonl", "change"),
        ("postgres-orders-flat.jsonl", "change or plain"),
        ("mariadb-heartbeat.jsonl", "heartbeat"),
        ("mariadb-schema-change.jsonl", "schema-change"),
        ("postgres-transaction.jsonl", "transaction"),
        ("postgres-message.jsonl", "message"),
        ("mariadb-outbox.jsonl", "outbox"),
    ] {
        let records = shown(&[fixture(file).to_str().unwrap()]);
        let lines = std::fs::read_to_string(fixture(file)).unwrap();
        assert_eq!(records.len(), lines.lines().count(), "{file}: one line a record");
        for (record, line) in records.iter().zip(lines.lines()) {
            let came: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["offset"], came["offset"]);
            let expected = if came["value"].is_null() { "tombstone" } else { kind };
            // A flattened row without metadata does not say that it is a change.
            let shown = record["kind"].as_str().unwrap();
            assert!(shown == "tombstone" || expected.split(" or ").any(|kind| kind == shown), "{file}: {record}");
            assert_eq!(record.get("error"), None, "{record}");
            let has_id = matches!(shown, "change" | "outbox" | "message");
            assert_eq!(record.get("messageId").is_some(), has_id, "{file}: {record}");
        }
    }
    let (code, stdout, _) = fed(&["-"], record(r#"{"a":1}"#, "").as_bytes());
    assert_eq!(code, 0);
    let plain = &lines(&stdout)[0];
    assert_eq!((&plain["kind"], plain.get("messageId")), (&"plain".into(), None));
}

#[test]
fn a_line_holds_the_fields_of_the_contract_in_their_order_with_all_digits() {
    let value = r#"{"before":null,"after":{"id":18446744073709551615,"amount":12.50,"note":"__debezium_unavailable_value"},"source":{"connector":"postgresql","name":"p","db":"shop","schema":"public","table":"orders","lsn":9,"txId":7,"extra":1e3},"op":"c","ts_ms":1}"#;
    let (code, stdout, stderr) = fed(&["-"], record(value, "").as_bytes());
    assert_eq!(code, 0, "{stderr}");
    let line = stdout.trim_end();
    assert!(
        line.starts_with(
            r#"{"topic":"t","partition":0,"offset":5,"kind":"change","op":"c","db":"shop","schema":"public","table":"orders","key":"k","after":{"id":18446744073709551615,"amount":12.50},"unavailable":["note"],"source":{"connector":"postgresql","name":"p","db":"shop","schema":"public","table":"orders","lsn":9,"txId":7,"extra":1e3},"messageId":"s1:0000000000000009:c:orders:"#
        ),
        "{line}"
    );
    assert!(line.contains(r#","digest":"2u:"#) && !line.contains("null") && !line.contains("route"), "{line}");
}

#[test]
fn files_by_name_packed_or_not_and_standard_input_show_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let plain = std::fs::read(fixture("demo.jsonl")).unwrap();
    let (half, rest) = plain.split_at(plain.iter().position(|b| *b == b'\n').unwrap() + 1);
    let gz = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    // Two members in one file, as `cat a.gz b.gz` makes it.
    std::fs::write(dir.path().join("a.jsonl.gz"), [gz(half), gz(rest)].concat()).unwrap();
    let zst = [zstd::encode_all(half, 1).unwrap(), zstd::encode_all(rest, 1).unwrap()].concat();
    std::fs::write(dir.path().join("a.zst"), zst).unwrap();
    let expected = run(&["inspect", fixture("demo.jsonl").to_str().unwrap()]);
    assert_eq!(expected.0, 0);
    assert_eq!(expected.1.lines().count(), 57);
    for name in ["a.jsonl.gz", "a.zst"] {
        let packed = run(&["inspect", dir.path().join(name).to_str().unwrap()]);
        assert_eq!((packed.0, &packed.1), (0, &expected.1), "{name}");
    }
    assert_eq!(fed(&["-"], &plain).1, expected.1);
    // A damaged file is no end of the input.
    let cut = gz(&plain);
    std::fs::write(dir.path().join("cut.gz"), &cut[..cut.len() / 2]).unwrap();
    let (code, _, stderr) = run(&["inspect", dir.path().join("cut.gz").to_str().unwrap()]);
    assert!(code == 1 && stderr.contains("cut.gz"), "{code} {stderr}");
    for missing in ["/nowhere.jsonl", dir.path().to_str().unwrap()] {
        assert_eq!(run(&["inspect", missing]).0, 2, "{missing}");
    }
}

#[test]
fn a_bad_line_is_named_by_its_number_and_the_rest_is_shown() {
    let good = record(r#"{"a":1}"#, "");
    let input = format!("{good}\n\nnot json\n{{\"topic\":\"t\"}}\n{}\n{good}", "{\"a\":\u{ff}");
    let (code, stdout, stderr) = fed(&["-"], input.as_bytes());
    assert_eq!((code, lines(&stdout).len()), (1, 2), "{stderr}");
    for number in [3, 4, 5] {
        assert!(stderr.contains(&format!("standard input:{number}: ")), "{number} in {stderr}");
    }
    let (code, stdout, _) = fed(&["-"], [record("{broken", "").as_bytes(), b"\n", good.as_bytes()].concat().as_slice());
    let seen = lines(&stdout);
    assert_eq!((code, seen.len()), (1, 2));
    assert_eq!((&seen[0]["kind"], &seen[0]["error"]["class"]), (&"undecodable".into(), &"poison".into()));
    assert_eq!(seen[0]["error"]["code"], "undecodable");
}

#[test]
fn a_line_beyond_all_bounds_is_refused_without_being_kept() {
    let (code, stdout, stderr) =
        fed(&["-"], [&vec![b'x'; (64 << 20) + 10][..], b"\n", record("1", "").as_bytes()].concat().as_slice());
    assert_eq!((code, lines(&stdout).len()), (1, 1), "{stderr}");
    assert!(stderr.contains("standard input:1: ") && stderr.len() < 1000, "{}", stderr.len());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.jsonl");
    std::fs::write(&file, format!("{}\n", record(r#"{"a":1}"#, "")).repeat(50_000)).unwrap();
    let mut child = program();
    child.arg("inspect").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(lines(&line)[0]["offset"], 5);
    drop(stdout);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn a_line_is_shown_when_it_comes_not_when_the_input_ends() {
    let mut command = program();
    command.args(["inspect", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", record("1", "")).unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(lines(&line)[0]["after"], 1);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn avro_without_a_registry_is_exit_2_and_does_not_hide_the_rest() {
    let avro = r#"{"topic":"t","partition":0,"offset":6,"value":{"base64":"AAAAAAECAg=="}}"#;
    let (code, stdout, stderr) = fed(&["-"], [avro.as_bytes(), b"\n", record("1", "").as_bytes()].concat().as_slice());
    assert_eq!((code, lines(&stdout).len()), (2, 2), "{stderr}");
    assert!(stderr.contains("--registry"), "{stderr}");
}

/// Exit 1, and every other record is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_cannot_be_told_is_the_fault_of_its_line() {
    let server = RegistryServer::start(Kind::Apicurio2).await;
    let schema = |name: &str| format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"n","type":"int"}}]}}"#);
    server.schema(1, &schema("x.A")).schema(2, &schema("x.B")).global(1, 2).global(2, 2);
    let avro = |offset: u8, body: &str| {
        format!(r#"{{"topic":"t","partition":0,"offset":{offset},"value":{{"base64":"{body}"}}}}"#)
    };
    // Numbers 1 and 2 of four bytes, then the value 1.
    let input = [avro(1, "AAAAAAEC"), avro(2, "AAAAAAIC")].join("\n");
    let url = server.url.clone();
    let run = tokio::task::spawn_blocking(move || fed(&["--registry", &url, "-"], input.as_bytes()));
    let (code, stdout, stderr) = run.await.unwrap();
    let lines = lines(&stdout);
    assert_eq!((code, lines.len()), (1, 2), "{stderr}");
    assert_eq!(lines[0]["error"]["code"], "schema_ambiguous");
    let detail = lines[0]["error"]["detail"].as_str().unwrap();
    assert!(detail.contains("x.A") && detail.contains("x.B") && detail.contains("`ids`"), "{detail}");
    assert_eq!(lines[1]["after"]["n"], 1);
}

#[test]
fn columns_are_for_people_and_color_only_where_it_is_wanted() {
    let file = fixture("mariadb-orders.jsonl");
    let file = file.to_str().unwrap();
    let (code, text, _) = run(&["inspect", "--output", "text", file]);
    assert_eq!(code, 0);
    let head = text.lines().next().unwrap();
    let at = head.find("KEY").unwrap();
    assert!(
        head.starts_with("RECORD") && text.lines().skip(1).all(|line| line.chars().nth(at - 1) == Some(' ')),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    assert!(run(&["inspect", "--output", "text", "--color", "always", file]).1.contains("\x1b[32mc\x1b[0m"));
    let hostile = record(r#"{"a":"\u001b[2J"}"#, "").replace("\"k\"", "\"\\u001b]0;x\\u0007\"");
    assert!(!fed(&["--output", "text", "-"], hostile.as_bytes()).1.contains('\x1b'));
}

#[test]
fn with_a_configuration_it_says_what_the_pipeline_would_make_of_a_record() {
    on(&[Engine::Sqlite], |world| async move {
        let route = CHARGE.replace("[route.effect]", "columns = { amount = \"decimal(9,2)\" }\n[route.effect]");
        let file = world.file(&world.config(&route));
        let config = file.to_str().unwrap();
        world
            .send(&[
                payment("m-1", "bob", 5),
                Rec::bare(r#"{"orderId":"o-2","account":"bob","amount":1}"#),
                Rec::new("a", "{}").header("id", "b"),
                Rec::new("m-3", "{broken"),
                payment("m-4", "bob", 1).on(1),
            ])
            .await;
        let (code, stdout, stderr) = run(&["inspect", "-c", config, "--topic", &world.topic]);
        assert_eq!(code, 1, "one is undecodable: {stderr}");
        let seen = lines(&stdout);
        let short: Vec<String> = seen
            .iter()
            .map(|line| {
                let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
                let texts = [&line["route"], &line["messageId"], &line["correlationId"], &line["error"]["code"]];
                format!("{} {}", line["offset"], texts.map(text).join(" "))
            })
            .collect();
        assert_eq!(
            short,
            [
                "0 charge m-1 order-m-1 -",
                "1 charge - o-2 id_missing",
                "2 charge - - id_ambiguous",
                "3 charge m-3 - undecodable",
                "0 charge m-4 order-m-4 -",
            ]
        );
        assert_eq!(seen[0]["after"]["amount"], "5.00", "the column has its type: {}", seen[0]);
        assert!(seen[1]["after"].is_object(), "the content beside the error: {}", seen[1]);
        // The digest is the one of the receipt.
        world.db.run(crate::payments::TABLES).await;
        let running = world.start(&route).await;
        running.outcomes(5, "applied=2 parked=3").await;
        let receipt = running.view.lookup.receipts("m-1", None).await.unwrap().remove(0);
        assert_eq!(seen[0]["digest"], receipt.digest.unwrap());
        running.stop().await;
        assert_eq!(world.db.count("FROM countersign_inbox").await, 5, "inspecting wrote nothing");

        // Windows of it.
        let count = |arguments: &[&str]| {
            let brokers = world.broker.address();
            let all = [&["inspect", "--brokers", &brokers, "--topic", &world.topic], arguments].concat();
            let (_, stdout, stderr) = run(&all);
            assert!(!stderr.contains("error"), "{stderr}");
            lines(&stdout).iter().map(|line| format!("{}/{}", line["partition"], line["offset"])).collect::<Vec<_>>()
        };
        assert_eq!(count(&["--partition", "1"]), ["1/0"]);
        assert_eq!(count(&["--from", "2"]), ["0/2", "0/3"]);
        assert_eq!(count(&["--from", "1", "--to", "3"]), ["0/1", "0/2"]);
        assert_eq!(count(&["--limit", "2"]), ["0/0", "0/1"]);
        assert_eq!(count(&["--from", "end"]), [""; 0]);
        for arguments in [&["--topic", "no.such"][..], &["--topic", &world.topic, "--partition", "9"]] {
            let all = [&["inspect", "-c", config], arguments].concat();
            assert_eq!(run(&all).0, 2, "{arguments:?}");
        }
        assert_eq!(run(&["inspect", "--brokers", "127.0.0.1:1", "--topic", "t"]).0, 3);
        assert_eq!(run(&["inspect", "--topic", "t"]).0, 2);
    });
}
