//! Records for the commands that take them: lines of files and of standard input, or a window of a topic. Read by a
//! thread of its own, a bounded number ahead.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use tokio::sync::mpsc;

use super::Failure;
use crate::config;
use crate::kafka::client::Connection;
use crate::kafka::window::{Bound, Window, WindowError, WindowOptions};
use crate::record::Record;
use crate::record_line;

/// A window of a topic.
#[derive(Args, Clone)]
pub struct WindowArgs {
    /// Reads this topic, without a group.
    #[arg(long)]
    pub topic: Option<String>,
    /// One partition alone.
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
    /// The first record: an offset, a time (RFC 3339, milliseconds since 1970, or how long ago, such as `2h`),
    /// `beginning` or `end`. Numbers from 1000000000000 on are times; `offset:N` and `ms:N` say which.
    #[arg(long, requires = "topic", default_value = "beginning", value_parser = bound)]
    pub from: Bound,
    /// Where to end; what it names is outside. Never later than the end of the topic as it is now.
    #[arg(long, requires = "topic", default_value = "end", value_parser = bound)]
    pub to: Bound,
    /// Records at most, all partitions together.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// What comes in.
#[derive(Debug)]
pub enum Incoming {
    Record(Record),
    /// A line that is none.
    Bad {
        place: String,
        why: String,
    },
}

/// Records in the order in which they stand.
pub struct Input {
    chunks: mpsc::Receiver<Result<Vec<Incoming>, Failure>>,
    pub meter: Arc<Meter>,
}

/// How far the input is read.
#[derive(Debug, Default)]
pub struct Meter {
    /// Bytes of files, or offsets of a window, done and in all; in all 0 if that is not known.
    pub done: AtomicU64,
    pub total: AtomicU64,
}

/// A line longer than this is none of ours: Kafka's own records are smaller by far.
const LONGEST_LINE: usize = 64 << 20;
/// Handed over together at most.
const CHUNK: usize = 1000;
const CHUNK_BYTES: usize = 4 << 20;
/// Chunks that wait.
const AHEAD: usize = 2;
const BUFFER: usize = 256 << 10;
/// From here on a bare number is a time: 2001-09-09, and more records than a partition has.
const TIMES: i64 = 1_000_000_000_000;

fn bound(text: &str) -> Result<Bound, String> {
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
    let fault = || "neither an offset, a time, a duration such as `2h`, `beginning` nor `end`".to_owned();
    match text.split_once(':') {
        _ if text == "beginning" => Ok(Bound::Beginning),
        _ if text == "end" => Ok(Bound::End),
        Some(("offset", offset)) => number(offset).map(Bound::Offset).ok_or_else(fault),
        Some(("ms", time)) => number(time).map(Bound::Time).ok_or_else(fault),
        _ => match number(text) {
            Some(time) if time >= TIMES => Ok(Bound::Time(time)),
            Some(offset) => Ok(Bound::Offset(offset)),
            None => time(text).map(|time| Bound::Time(time.as_millisecond())).ok_or_else(fault),
        },
    }
}

/// A time, or how long ago it was.
fn time(text: &str) -> Option<jiff::Timestamp> {
    match config::duration(text) {
        Some(ago) => jiff::Timestamp::now().checked_sub(ago).ok(),
        None => text.parse().ok(),
    }
}

impl Input {
    /// The next records, or why there are no more.
    pub async fn next(&mut self) -> Option<Result<Vec<Incoming>, Failure>> {
        self.chunks.recv().await
    }

    /// More, if it is there already.
    pub fn try_next(&mut self) -> Option<Result<Vec<Incoming>, Failure>> {
        self.chunks.try_recv().ok()
    }

    /// Files in this order; `-` is standard input, `.gz` and `.zst` are unpacked.
    pub fn files(paths: &[PathBuf], limit: Option<u64>) -> Result<Self, Failure> {
        let meter = Arc::new(Meter::default());
        let mut total = 0;
        for path in paths.iter().filter(|path| !is_stdin(path)) {
            let unusable = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
            let facts =
                File::open(path).and_then(|file| file.metadata()).map_err(|error| unusable(error.to_string()))?;
            if facts.is_dir() {
                return Err(unusable("is a folder; name the files in it".to_owned()));
            }
            total += facts.len();
        }
        match paths.iter().filter(|path| is_stdin(path)).count() {
            0 => meter.total.store(total, Ordering::Relaxed),
            1 => {}
            _ => return Err(Failure::Usage("standard input can be read once".to_owned())),
        }
        let (paths, read) = (paths.to_vec(), Arc::clone(&meter));
        let chunks = reading(move |sender| {
            let mut sink = Sink::new(sender, limit);
            for path in &paths {
                let lines = open(path, &read).map(|reader| Lines { reader, name: name(path), number: 0 });
                let ended = lines.and_then(|mut lines| lines.read(&mut sink));
                match ended {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        sink.flush();
                        sink.fail(Failure::Failed(format!("{}: {error}", name(path))));
                        break;
                    }
                }
            }
            sink.flush();
        });
        Ok(Self { chunks, meter })
    }

    /// A window of a topic. Its bounds are found out here.
    pub async fn topic(args: &WindowArgs, topic: &str, connection: Connection) -> Result<Self, Failure> {
        let options = WindowOptions {
            connection,
            topic: topic.to_owned(),
            partition: args.partition,
            from: args.from,
            to: args.to,
        };
        let opened = tokio::task::spawn_blocking(move || Window::open(&options)).await;
        let window = opened.map_err(|error| Failure::Failed(error.to_string()))??;
        let meter = Arc::new(Meter::default());
        let mut total: u64 = 0;
        for span in window.spans() {
            if span.gone > 0 {
                let (partition, from) = (span.partition, span.from);
                eprintln!("countersign: {topic}/{partition} begins at {from}: {} offsets before are gone", span.gone);
            }
            total += u64::try_from(span.to - span.from).unwrap_or(0);
        }
        meter.total.store(args.limit.map_or(total, |limit| total.min(limit)), Ordering::Relaxed);
        let (limit, read) = (args.limit, Arc::clone(&meter));
        let chunks = reading(move |sender| {
            let closed = sender.clone();
            let mut sink = Sink::new(sender, limit);
            let ended = window.read(&|| closed.is_closed(), &mut |record| {
                read.done.fetch_add(1, Ordering::Relaxed);
                let size = record.size();
                sink.push(Incoming::Record(record), size)
            });
            sink.flush();
            if let Err(error) = ended {
                sink.fail(error.into());
            }
        });
        Ok(Self { chunks, meter })
    }
}

impl From<WindowError> for Failure {
    fn from(error: WindowError) -> Self {
        let text = error.to_string();
        match error {
            WindowError::Unreachable(_) => Self::Unreachable(text),
            WindowError::Refused(_) | WindowError::Lost { .. } | WindowError::Open { .. } => Self::Failed(text),
            WindowError::Setup(_) | WindowError::NoTopic(_) | WindowError::NoPartition { .. } => Self::Usage(text),
        }
    }
}

type Sender = mpsc::Sender<Result<Vec<Incoming>, Failure>>;

fn reading(work: impl FnOnce(Sender) + Send + 'static) -> mpsc::Receiver<Result<Vec<Incoming>, Failure>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    // Ends with its input, or when nobody listens any more.
    tokio::task::spawn_blocking(move || work(sender));
    receiver
}

/// Collects what was read and hands it over.
struct Sink {
    sender: Sender,
    chunk: Vec<Incoming>,
    bytes: usize,
    left: Option<u64>,
}

impl Sink {
    fn new(sender: Sender, limit: Option<u64>) -> Self {
        Self { sender, chunk: Vec::new(), bytes: 0, left: limit }
    }

    /// False if nothing more is wanted.
    fn push(&mut self, incoming: Incoming, size: usize) -> bool {
        if self.left == Some(0) {
            return false;
        }
        if let (Some(left), Incoming::Record(_)) = (&mut self.left, &incoming) {
            *left -= 1;
        }
        self.chunk.push(incoming);
        self.bytes += size;
        let full = self.chunk.len() >= CHUNK || self.bytes >= CHUNK_BYTES;
        (!full || self.flush()) && self.left != Some(0)
    }

    fn flush(&mut self) -> bool {
        self.bytes = 0;
        self.chunk.is_empty() || self.sender.blocking_send(Ok(std::mem::take(&mut self.chunk))).is_ok()
    }

    fn fail(&self, failure: Failure) {
        let _ = self.sender.blocking_send(Err(failure));
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// How a file is packed, by the end of its name: `gz`, `zst`, or not at all.
pub(super) fn packing(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

fn open(path: &Path, meter: &Arc<Meter>) -> std::io::Result<BufReader<Box<dyn Read>>> {
    if is_stdin(path) {
        return Ok(BufReader::with_capacity(BUFFER, Box::new(std::io::stdin())));
    }
    let file = Metered { file: File::open(path)?, meter: Arc::clone(meter) };
    let reader: Box<dyn Read> = match &*packing(path) {
        // Several members, one after the other, are one file.
        "gz" => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(file))),
        "zst" => Box::new(zstd::stream::read::Decoder::new(file)?),
        _ => Box::new(file),
    };
    Ok(BufReader::with_capacity(BUFFER, reader))
}

/// Counts what is read of a file, packed or not.
struct Metered {
    file: File,
    meter: Arc<Meter>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.meter.done.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

struct Lines {
    reader: BufReader<Box<dyn Read>>,
    name: String,
    number: u64,
}

impl Lines {
    /// Reads to the end; false if nothing more is wanted.
    fn read(&mut self, sink: &mut Sink) -> std::io::Result<bool> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut self.reader).take(LONGEST_LINE as u64 + 1);
            if bounded.read_until(b'\n', &mut line)? == 0 {
                return Ok(true);
            }
            self.number += 1;
            let incoming = if line.len() > LONGEST_LINE {
                self.pass_over()?;
                Some(self.bad(format!("longer than {} MiB", LONGEST_LINE >> 20)))
            } else {
                self.incoming(&line)
            };
            let wanted = incoming.is_none_or(|incoming| sink.push(incoming, line.len()));
            // Whoever writes a line at a time wants it seen at once.
            let more = self.reader.buffer().contains(&b'\n');
            if !wanted || (!more && !sink.flush()) {
                return Ok(false);
            }
        }
    }

    /// None for a line of nothing.
    fn incoming(&self, line: &[u8]) -> Option<Incoming> {
        let line = if self.number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        Some(match std::str::from_utf8(line).map(record_line::read) {
            Ok(Ok(record)) => Incoming::Record(record),
            Ok(Err(error)) => self.bad(format!("no record line: {error}")),
            Err(_) => self.bad("no record line: not utf-8".to_owned()),
        })
    }

    fn bad(&self, why: String) -> Incoming {
        Incoming::Bad { place: format!("{}:{}", self.name, self.number), why }
    }

    /// The rest of a line, without keeping it.
    fn pass_over(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let (end, used) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (true, at + 1),
                None => (buffer.is_empty(), buffer.len()),
            };
            self.reader.consume(used);
            if end {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_offsets_times_and_ends() {
        for (text, expected) in [
            ("beginning", Bound::Beginning),
            ("end", Bound::End),
            ("0", Bound::Offset(0)),
            ("999999999999", Bound::Offset(999_999_999_999)),
            ("1796000249165", Bound::Time(1_796_000_249_165)),
            ("offset:1796000249165", Bound::Offset(1_796_000_249_165)),
            ("ms:5", Bound::Time(5)),
            ("2026-11-30T00:00:00Z", Bound::Time(1_796_000_249_165 / 86_400_000 * 86_400_000)),
            ("2026-11-30T01:00:00+01:00", Bound::Time(1_795_996_800_000)),
        ] {
            assert_eq!(bound(text), Ok(expected), "{text}");
        }
        let Ok(Bound::Time(ago)) = bound("2h") else { panic!("two hours ago") };
        assert!((jiff::Timestamp::now().as_millisecond() - ago - 7_200_000).abs() < 60_000);
        for text in ["", "-1", "2 weeks", "yesterday", "offset:", "ms:x", "2026-11-30"] {
            assert!(bound(text).is_err(), "{text}");
        }
    }
}
