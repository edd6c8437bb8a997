//! `capture`: records as lines, byte for byte, or with nothing left of what was to be redacted.

use countersign::record_line;

use crate::broker::Rec;
use crate::command_line::run;
use crate::daemon::program;
use crate::database::Engine;
use crate::payments::CHARGE;
use crate::world::{World, on};

fn capture(world: &World, more: &[&str]) -> (i32, String, String) {
    let brokers = world.broker.address();
    run(&[&["capture", "--brokers", &brokers, "--topic", &world.topic], more].concat())
}

fn strange() -> Vec<Rec> {
    vec![
        Rec::bare(&b"\x00\xff\x80 \n"[..]).key(&b"\xc3\x28"[..]).header("id", "a").header("id", &b"\xfe"[..]),
        Rec::tombstone("k"),
        Rec::bare("").header("empty", ""),
        Rec::bare(" { \"a\" : 1.50, \"b\":\"\\u00fc ü\" } ").on(1),
        Rec::bare("tab\tquote\"back\\slash\u{2028}\u{7f}"),
    ]
}

#[test]
fn what_is_captured_is_what_the_topic_has_byte_for_byte() {
    on(&[Engine::Sqlite], |world| async move {
        let records = strange();
        world.send(&records).await;
        let (code, stdout, stderr) = capture(&world, &[]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let captured: Vec<_> = stdout.lines().map(|line| record_line::read(line).unwrap()).collect();
        let positions: Vec<_> = captured.iter().map(|r| (r.position.partition, r.position.offset)).collect();
        assert_eq!(positions, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
        let mut expected: Vec<&Rec> = records.iter().collect();
        expected.sort_by_key(|record| record.partition);
        for (captured, sent) in captured.iter().zip(expected) {
            assert_eq!((&captured.key, &captured.value), (&sent.key, &sent.value));
            let headers: Vec<(String, Vec<u8>)> =
                captured.headers.iter().map(|h| (h.name.clone(), h.value.clone().unwrap_or_default())).collect();
            assert_eq!(headers, sent.headers);
            assert!(captured.timestamp_ms.is_some_and(|ms| ms > 1_600_000_000_000));
        }
        // Into files, and back through the reader of lines.
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
            let file = dir.path().join(name);
            let (code, nothing, _) = capture(&world, &["--out", file.to_str().unwrap()]);
            assert_eq!((code, nothing.as_str()), (0, ""));
            let bytes = std::fs::read(&file).unwrap();
            let plain = match name.rsplit('.').next().unwrap() {
                "gz" => std::io::read_to_string(flate2::read::GzDecoder::new(&bytes[..])).unwrap(),
                "zst" => String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap(),
                _ => String::from_utf8(bytes).unwrap(),
            };
            assert_eq!(plain, stdout, "{name}");
        }
        // No group was made.
        assert_eq!(world.broker.committed("countersign-window", &world.topic, 0), None);
        let file = world.file(&world.config(CHARGE));
        let (_, limited, _) =
            run(&["capture", "-c", file.to_str().unwrap(), "--topic", &world.topic, "--from", "1", "--limit", "2"]);
        assert_eq!(limited.lines().collect::<Vec<_>>(), stdout.lines().skip(1).take(2).collect::<Vec<_>>());
        assert_eq!(run(&["capture", "--topic", "t", "--brokers", "127.0.0.1:1"]).0, 3);
    });
}

#[test]
fn a_window_ends_where_the_topic_ended_when_it_was_opened() {
    on(&[Engine::Sqlite], |world| async move {
        let many: Vec<Rec> = (0..3000).map(|n| Rec::bare(format!("{n:0>500}")).on(n % 2)).collect();
        world.send(&many).await;
        let mut child = program();
        child.args(["capture", "--brokers", &world.broker.address(), "--topic", &world.topic]);
        let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
        // Somebody writes on and on.
        let ended = std::thread::spawn(move || child.wait_with_output().unwrap());
        let mut later = 0;
        let deadline = std::time::Instant::now() + crate::wait::PATIENCE;
        while !ended.is_finished() {
            assert!(std::time::Instant::now() < deadline, "it follows the writer");
            world.send(&[Rec::bare("later").on(0), Rec::bare("later").on(1)]).await;
            later += 1;
        }
        let ended = ended.join().unwrap();
        assert!(ended.status.success());
        let lines = String::from_utf8(ended.stdout).unwrap();
        let count = lines.lines().count();
        assert!((3000..3000 + 2 * later).contains(&count), "{count} of 3000 and {later} pairs");
    });
}

#[test]
fn nothing_is_left_of_what_is_redacted_and_what_cannot_be_read_is_left_out_loudly() {
    on(&[Engine::Sqlite], |world| async move {
        let mail = "ann@example.org";
        let envelope = |before: &str, after: &str| {
            format!(r#"{{"before":{before},"after":{after},"source":{{"name":"s"}},"op":"u"}}"#)
        };
        let row = format!(r#"{{"id":12345678901234567890,"email":"{mail}"}}"#);
        let wrapped = format!(r#"{{"schema":null,"payload":{}}}"#, envelope(&row, &row));
        let records = [
            Rec::bare(envelope("null", &row)).key(format!(r#"{{"email":"{mail}"}}"#)),
            Rec::bare(wrapped).header("user", mail).header("user", mail),
            Rec::bare([&b"\0\0\0\0\x01"[..], mail.as_bytes()].concat()),
            Rec::bare(format!(r#"{{"email":"{mail}""#)),
            Rec::tombstone(format!(r#"{{"email":"{mail}"}}"#)),
            Rec::bare(r#"{"n":1}"#),
        ];
        world.send(&records).await;
        let redact = ["--redact", "email", "--redact", "key:email", "--redact", "header:user"];
        let (code, stdout, stderr) = capture(&world, &redact);
        assert_eq!(code, 1, "{stderr}");
        for trace in ["ann@", "example"] {
            assert!(!stdout.contains(trace) && !stderr.contains(trace), "{stdout}{stderr}");
        }
        assert_eq!(stdout.lines().count(), 4);
        for offset in [2, 3] {
            assert!(stderr.contains(&format!("{}/0/{offset}: left out", world.topic)), "{stderr}");
        }
        assert!(stdout.contains("12345678901234567890"), "digits are kept: {stdout}");
        assert_eq!(stdout.matches("redacted-").count(), 1 + 1 + 2 + 2 + 1);
        let (code, _, stderr) = capture(&world, &["--redact", "n", "--redact", "emial"]);
        assert!(code == 1 && stderr.contains("nothing was redacted at value:emial"), "{stderr}");
        for path in ["", "a..b", "body:x"] {
            assert_eq!(capture(&world, &["--redact", path]).0, 2, "{path}");
        }
    });
}

#[test]
fn a_topic_that_cannot_be_redacted_is_not_named_record_by_record() {
    on(&[Engine::Sqlite], |world| async move {
        let avro: Vec<Rec> = (0..50).map(|_| Rec::bare(&b"\0\0\0\0\x01ann@example.org"[..])).collect();
        world.send(&avro).await;
        let (code, stdout, stderr) = capture(&world, &["--redact", "email"]);
        assert!(code == 1 && stdout.is_empty(), "{stdout}{stderr}");
        assert_eq!(stderr.matches(": left out").count(), 20, "{stderr}");
        assert!(stderr.contains("50 records were left out") && stderr.contains("Avro"), "{stderr}");
    });
}
