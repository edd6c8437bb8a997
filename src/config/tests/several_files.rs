//! Folders, and files that one process runs together.

use std::path::PathBuf;

use super::{HOST, SMALL};
use crate::config::load;

/// A folder of its own for each test.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("countersign-config-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

#[test]
fn a_folder_is_a_pipeline_a_file() {
    let second = SMALL.replace("\"p\"", "\"q\"");
    let with_http = format!("{SMALL}\n[http]\nlisten = \"127.0.0.1:9\"");
    let folder = folder("several", &[("b.toml", &second), ("a.toml", &with_http), (".c.toml", "x"), ("d.txt", "x")]);
    let configs = load(std::slice::from_ref(&folder), HOST);
    std::fs::remove_dir_all(&folder).expect("removed");
    let configs = configs.unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(configs.iter().map(|config| config.pipeline.name.as_str()).collect::<Vec<_>>(), ["p", "q"]);
    assert!(configs.iter().all(|config| config.http.listen.port() == 9), "one HTTP side for the process");
}

#[test]
fn files_are_checked_together() {
    let other = SMALL.replace("\"p\"", "\"q\"").replace("topics", "group = \"p\"\ntopics");
    let http =
        |port: u16| format!("{SMALL}\n[http]\nlisten = \"127.0.0.1:{port}\"").replace("\"p\"", &format!("\"h{port}\""));
    let files = [
        ("a.toml", SMALL),
        ("b.toml", SMALL),
        ("c.toml", &other),
        ("d.toml", &http(1)),
        ("e.toml", &http(2)),
        ("f.toml", "x"),
    ];
    let folder = folder("together", &files);
    let found = load(&[folder.clone(), folder.join("none.toml")], HOST).map(|_| ()).expect_err("has faults");
    std::fs::remove_dir_all(&folder).expect("removed");
    let text = found.to_string();
    for wanted in [
        "b.toml: pipeline.name: `p` is the pipeline of",
        "c.toml: kafka.group: is the group of pipeline `p` too",
        "e.toml: http: differs from that of another file",
        "f.toml:1: not valid TOML",
        "none.toml: cannot be read",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(load(&[], HOST).is_err());
}
