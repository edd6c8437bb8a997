//! Inbox rows on their way out, as lines of JSON in files that are packed with zstd.
//!
//! Each portion is a frame of its own that is on the disk before its rows are deleted. After a crash between the two a
//! portion stands in two files; none is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::PurgeError;
use crate::store::inbox_entries::InboxEntry;

const LEVEL: i32 = 3;

/// One file a round, made with its first portion.
pub(super) struct Archive {
    path: PathBuf,
    begun: bool,
}

impl Archive {
    pub fn new(folder: PathBuf, pipeline: &str) -> Self {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%6fZ");
        let name = format!("{pipeline}-inbox-{now}-{}.jsonl.zst", std::process::id());
        Self { path: folder.join(name), begun: false }
    }

    /// The file, if there is anything in it.
    pub fn written(&self) -> Option<String> {
        self.begun.then(|| self.path.display().to_string())
    }

    /// Writes rows, and waits until the disk has them.
    pub async fn append(&mut self, entries: &[InboxEntry]) -> Result<(), PurgeError> {
        let mut lines = Vec::new();
        for entry in entries {
            lines.extend_from_slice(line(entry).as_bytes());
            lines.push(b'\n');
        }
        let (path, begun) = (self.path.clone(), self.begun);
        let written = tokio::task::spawn_blocking(move || write(&path, begun, &lines)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|source| PurgeError::Archive { path: self.path.display().to_string(), source })?;
        self.begun = true;
        Ok(())
    }
}

fn write(path: &PathBuf, begun: bool, lines: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = match begun {
        true => OpenOptions::new().append(true).open(path)?,
        false => {
            std::fs::create_dir_all(folder)?;
            OpenOptions::new().append(true).create_new(true).open(path)?
        }
    };
    file.write_all(&zstd::encode_all(lines, LEVEL)?)?;
    file.sync_all()?;
    if !begun {
        // The name too must survive.
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn line(entry: &InboxEntry) -> String {
    json!({
        "messageId": entry.message_id,
        "pipeline": entry.pipeline,
        "scope": entry.scope,
        "route": entry.route,
        "inboxKey": STANDARD.encode(&entry.key),
        "status": entry.status.as_str(),
        "code": entry.code,
        "reason": entry.reason,
        "digest": entry.digest,
        "version": entry.version,
        "attempts": entry.attempts,
        "correlationId": entry.correlation_id,
        "sourceApp": entry.source_app,
        "receiptKey": entry.receipt_key,
        "position": { "topic": entry.topic, "partition": entry.partition, "offset": entry.offset },
        "sourceInstance": entry.source_instance,
        "result": entry.result,
        "receivedAt": entry.received_at,
        "finishedAt": entry.finished_at,
    })
    .to_string()
}
