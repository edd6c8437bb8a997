//! `inspect`: what records say, one line each. Nothing is written anywhere.

mod sight;
mod view;

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::sight::{Eye, Verdict};
use self::view::View;
use super::input::{Incoming, Input, WindowArgs};
use super::progress::Progress;
use super::{Done, Failure, Output, load_configs, only};
use crate::app::connection;
use crate::config::Config;
use crate::kafka::client::Connection;

#[derive(Args)]
pub struct InspectArgs {
    /// Files of record lines, also `.gz` and `.zst`; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "topic", conflicts_with = "topic")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Schema registry for Avro; its kind and the framing are found out.
    #[arg(long, value_name = "URL")]
    registry: Option<String>,
    /// One JSON object a line, or columns for people; by default columns on a terminal.
    #[arg(long, value_enum)]
    output: Option<Output>,
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

/// A configuration, or brokers without one.
#[derive(Args)]
pub struct SourceArgs {
    /// Configuration: its brokers, and for `inspect` its routes.
    #[arg(short, long = "config", value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Which pipeline of the configuration, if there are several.
    #[arg(long, requires = "config")]
    pipeline: Option<String>,
    /// Kafka, `host:port[,…]`; with a configuration its brokers unless this says otherwise.
    #[arg(long, value_name = "LIST")]
    brokers: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

impl SourceArgs {
    pub fn load(&self) -> Result<Option<Config>, Failure> {
        if self.config.is_empty() {
            return Ok(None);
        }
        only(load_configs(&self.config)?, self.pipeline.as_deref()).map(Some)
    }

    pub fn connection(&self, config: Option<&Config>) -> Result<Connection, Failure> {
        let configured = config.map(connection);
        match (&self.brokers, configured) {
            (None, Some(configured)) => Ok(configured),
            (Some(brokers), configured) => {
                Ok(Connection { brokers: brokers.clone(), ..configured.unwrap_or_default() })
            }
            (None, None) => Err(Failure::Usage("say where Kafka is: `--brokers` or `-c FILE`".to_owned())),
        }
    }
}

pub async fn run(args: &InspectArgs) -> Done {
    let config = args.source.load()?;
    let mut input = match &args.window.topic {
        Some(topic) => Input::topic(&args.window, topic, args.source.connection(config.as_ref())?).await?,
        None => Input::files(&args.files, args.window.limit)?,
    };
    let terminal = std::io::stdout().is_terminal();
    let columns = match args.output {
        Some(output) => output == Output::Text,
        None => terminal,
    };
    let colored = match args.color {
        Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        Color::Always => true,
        Color::Never => false,
    };
    let mut view = columns.then(|| View::new(colored));
    let mut eye = Eye::new(config.as_ref(), args.registry.as_deref()).await?;
    let mut progress = Progress::new(input.meter.clone(), "read", terminal);
    let mut tally = Tally::default();
    // Written chunk by chunk; whoever reads the pipe may go at any time.
    let mut out = std::io::stdout().lock();
    while let Some(chunk) = input.next().await {
        let chunk = chunk?;
        let mut lines = String::new();
        let records = chunk.len();
        let mut ended = Ok(());
        for incoming in chunk {
            let record = match incoming {
                Incoming::Record(record) => record,
                Incoming::Bad { place, why } => {
                    eprintln!("countersign: {place}: {why}");
                    tally.bad += 1;
                    continue;
                }
            };
            let sight = match eye.look(&record).await {
                Ok(sight) => sight,
                Err(failure) => {
                    ended = Err(failure);
                    break;
                }
            };
            match sight.verdict {
                Verdict::Read => {}
                Verdict::Undecodable => tally.undecodable += 1,
                Verdict::NoRegistry => tally.no_registry += 1,
            }
            match &mut view {
                Some(view) => view.add(&sight),
                None => {
                    lines.push_str(&sight.line());
                    lines.push('\n');
                }
            }
        }
        if let Some(view) = &mut view {
            view.print(&mut lines);
        }
        progress.add(records, "");
        match out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::Failed(format!("standard output: {error}"))),
        }
        ended?;
    }
    progress.finish();
    tally.done()
}

#[derive(Default)]
struct Tally {
    bad: usize,
    undecodable: usize,
    no_registry: usize,
}

impl Tally {
    fn done(&self) -> Done {
        let Self { bad, undecodable, no_registry } = *self;
        if no_registry > 0 {
            let how = "name its registry with `--registry URL`, or a configuration with `[registry]`";
            return Err(Failure::Usage(format!("{no_registry} records are Avro that could not be read: {how}")));
        }
        if bad + undecodable > 0 {
            return Err(Failure::Failed(format!("{undecodable} records are undecodable, {bad} lines are none")));
        }
        Ok(())
    }
}
