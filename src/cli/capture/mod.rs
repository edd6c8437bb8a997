//! `capture`: a window of a topic as record lines, byte for byte, or with values made unreadable.

mod packed;
mod redact;

use std::path::PathBuf;

use clap::Args;

use self::packed::Out;
use self::redact::{Redactor, Target};
use super::input::{Incoming, Input, WindowArgs};
use super::inspect::SourceArgs;
use super::progress::Progress;
use super::{Done, Failure};
use crate::record_line;

#[derive(Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Writes here instead of to standard output; `.gz` and `.zst` are packed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replaces a value by a stand-in of its type: `value:after.email`, or `email` wherever a row has it; `key:id`, or
    /// `key` for all of it; `header:NAME`. `*` is any name at its level. Equal values stay equal within one capture.
    /// Records that are not JSON are left out then.
    #[arg(long, value_name = "PATH", value_parser = Target::parse)]
    redact: Vec<Target>,
}

/// Records that are left out are named up to this many.
const NAMED: u64 = 20;
const MORE: u64 = NAMED + 1;

pub async fn run(args: &CaptureArgs) -> Done {
    let Some(topic) = &args.window.topic else {
        return Err(Failure::Usage("say which topic: `--topic T`".to_owned()));
    };
    let config = args.source.load()?;
    let mut input = Input::topic(&args.window, topic, args.source.connection(config.as_ref())?).await?;
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", name(args)));
    let mut out = Out::open(args.out.as_deref()).map_err(failed)?;
    let redactor = (!args.redact.is_empty()).then(|| Redactor::new(&args.redact));
    let mut progress = Progress::new(input.meter.clone(), "written", false);
    let (mut written, mut left_out, mut interrupted) = (0_u64, 0_u64, false);
    loop {
        let next = tokio::select! {
            next = input.next() => next,
            // What is written so far is a whole file all the same.
            _ = tokio::signal::ctrl_c() => {
                interrupted = true;
                break;
            }
        };
        let Some(chunk) = next else { break };
        let chunk = chunk?;
        let records = chunk.len();
        let mut lines = String::new();
        for incoming in chunk {
            // A topic has no lines that could be bad.
            let Incoming::Record(mut record) = incoming else { continue };
            if let Some(redactor) = &redactor
                && let Err(why) = redactor.redact(&mut record)
            {
                left_out += 1;
                // A topic in Avro would name every record that it has.
                match left_out {
                    ..=NAMED => eprintln!("countersign: {}: left out: {why}", record.position),
                    MORE => eprintln!("countersign: more are left out, and counted at the end"),
                    _ => {}
                }
                continue;
            }
            lines.push_str(&record_line::write(&record));
            lines.push('\n');
            written += 1;
        }
        match out.write(lines.as_bytes()) {
            Ok(()) => {}
            Err(error) if args.out.is_none() && error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
        progress.add(records, "");
    }
    out.finish().map_err(failed)?;
    progress.finish();
    if args.out.is_some() {
        eprintln!("countersign: {written} records of {topic} are in {}", name(args));
    }
    if interrupted {
        return Err(Failure::Failed(format!("interrupted after {written} records")));
    }
    if let Some(redactor) = redactor.filter(|_| written > 0) {
        let unmet: Vec<String> = redactor.unmet().map(ToString::to_string).collect();
        if !unmet.is_empty() {
            let unmet = unmet.join(", ");
            return Err(Failure::Failed(format!(
                "nothing was redacted at {unmet} in {written} records: is it spelled right?"
            )));
        }
    }
    if left_out > 0 {
        return Err(Failure::Failed(format!(
            "{left_out} records were left out: what is to be redacted in them cannot be found, for they are not JSON \
             (Avro is captured byte for byte, without `--redact`)"
        )));
    }
    Ok(())
}

fn name(args: &CaptureArgs) -> String {
    args.out.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string())
}
