//! `replay`: record lines, or a window of a topic, through the pipeline, without its group.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::input::{Incoming, Input, WindowArgs};
use super::progress::Progress;
use super::run::no_signals;
use super::standing::Watch;
use super::summary::Summary;
use super::{Done, Failure, OneConfig, Output, load_one, output, start_logs};
use crate::app::{Replayer, Unready, connection};
use crate::config::{self, Config, LogOptions};
use crate::decision::{ParkWindow, PausePolicy, RecordOutcome};
use crate::pipeline::attempt::Committed;
use crate::pipeline::processor::Halt;
use crate::pipeline::replay::Replay;
use crate::record::Record;
use crate::store::inspect::Distrust;

#[derive(Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    one: OneConfig,
    /// Files of record lines, also `.gz` and `.zst`; `-` is standard input.
    #[arg(value_name = "INPUT", required_unless_present = "topic", conflicts_with = "topic")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    window: WindowArgs,
    /// Ends where a lane of the daemon would pause, after too many parked records (`[pause]`).
    #[arg(long)]
    stop_on_pause: bool,
    /// How long to wait for a registry or a database that is away, before it ends with exit code 3.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    wait: Duration,
}

fn wait(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "no duration such as `500ms`, `30s` or `2h`".to_owned())
}

/// Records that are taken apart by their partitions at once.
const GROUP: usize = 4000;
const GROUP_BYTES: usize = 32 << 20;
/// How long the receipts may take at the end: longer than the lease of a replay that was killed.
const RECEIPTS: Duration = Duration::from_secs(20);
/// What takes longer than this is said.
const AT_ONCE: Duration = Duration::from_secs(1);

pub async fn run(args: &ReplayArgs) -> Done {
    let config = load_one(&args.one)?;
    // What is tried again and why; a user's own filter in RUST_LOG goes before.
    start_logs(&LogOptions { level: "warn,librdkafka=error".to_owned(), ..config.log.clone() });
    let stop = CancellationToken::new();
    let replayer = Replayer::new(&config, stop.clone())?;
    replayer.ready().await?;
    let mut input = match &args.window.topic {
        Some(topic) => Input::topic(&args.window, topic, connection(&config)).await?,
        None => Input::files(&args.inputs, args.window.limit)?,
    };
    let signals = Signals::new(&stop)?;
    let relay_stop = CancellationToken::new();
    let relay = replayer.relay(relay_stop.clone());

    let mut work = Work::new(args, replayer.replay(), Progress::new(input.meter.clone(), "done", false));
    let began = Instant::now();
    let ended = work.run(&mut input, &replayer).await;
    work.progress.finish();
    let interrupted = signals.first.is_cancelled();
    last_receipts(&replayer, &config, &signals, (relay, &relay_stop)).await;
    replayer.close().await;
    let Work { mut summary, bad, .. } = work;
    summary.took(began.elapsed().as_secs_f64());
    match args.one.output {
        Output::Json => output::print(&summary.json()),
        Output::Text => output::print(&summary.text()),
    }
    ended?;
    if interrupted {
        return Err(Failure::Failed(
            "interrupted: run it again for the rest, what is done then counts as duplicate".to_owned(),
        ));
    }
    if bad > 0 {
        return Err(Failure::Failed(format!("{bad} lines were no record lines")));
    }
    // A rejection is an answer.
    if summary.parked + summary.conflict > 0 { Err(Failure::Problems) } else { Ok(()) }
}

impl From<Unready> for Failure {
    fn from(error: Unready) -> Self {
        match error {
            Unready::Store(error) => error.into(),
            Unready::Tables(Distrust::Outdated) => Self::Usage(error.to_string()),
            Unready::Tables(Distrust::Keys(_)) => Self::Failed(error.to_string()),
        }
    }
}

/// Waits for the receipts of work without a lane, and ends their relay.
pub(super) async fn last_receipts(
    replayer: &Replayer,
    config: &Config,
    signals: &Signals,
    (relay, stop): (Option<JoinHandle<()>>, &CancellationToken),
) {
    if relay.is_some() {
        deliver(replayer, config, signals).await;
    }
    stop.cancel();
    if let Some(relay) = relay {
        let _ = tokio::time::timeout(Duration::from_secs(1), relay).await;
    }
}

/// Waits for the receipts of this replay, and says so if that takes its time.
async fn deliver(replayer: &Replayer, config: &Config, signals: &Signals) {
    let mut left = replayer.delivered(AT_ONCE).await;
    if let (Ok(1..), Some(topic)) = (&left, &config.receipts.topic) {
        let (brokers, most) = (&config.kafka.brokers, RECEIPTS.as_secs());
        eprintln!("countersign: waiting, {most} s at most, until {brokers} has the receipts for topic {topic}");
        // Whoever interrupted the work wants its receipts still, whoever interrupts this does not.
        let enough = if signals.first.is_cancelled() { &signals.second } else { &signals.first };
        left = tokio::select! {
            left = replayer.delivered(RECEIPTS) => left,
            () = enough.cancelled() => left,
        };
    }
    if let Ok(left @ 1..) = left {
        eprintln!(
            "countersign: {left} receipts wait in the outbox: a running daemon, or another replay, delivers them"
        );
    }
}

/// The first signal ends the work after the batch at hand, the second one the wait for its receipts.
pub(super) struct Signals {
    pub first: CancellationToken,
    second: CancellationToken,
}

impl Signals {
    pub fn new(stop: &CancellationToken) -> Result<Self, Failure> {
        let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let signals = Self { first: CancellationToken::new(), second: CancellationToken::new() };
        let (stop, first, second) = (stop.clone(), signals.first.clone(), signals.second.clone());
        tokio::spawn(async move {
            for told in [first, second] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                told.cancel();
                stop.cancel();
            }
        });
        Ok(signals)
    }
}

struct Work {
    replay: Replay,
    progress: Progress,
    summary: Summary,
    bad: usize,
    parks: ParkWindow,
    policy: PausePolicy,
    stop_on_pause: bool,
    patience: Duration,
}

impl Work {
    fn new(args: &ReplayArgs, replay: Replay, progress: Progress) -> Self {
        let policy = replay.shared.options.pause;
        let (summary, parks) = (Summary::default(), ParkWindow::default());
        Self {
            replay,
            progress,
            summary,
            bad: 0,
            parks,
            policy,
            stop_on_pause: args.stop_on_pause,
            patience: args.wait,
        }
    }

    async fn run(&mut self, input: &mut Input, replayer: &Replayer) -> Done {
        let stop = self.replay.stop.clone();
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                next = input.next() => next,
            };
            let Some(first) = next else { return Ok(()) };
            let mut records = Vec::new();
            let mut bytes = self.take(first?, &mut records);
            let mut failed = None;
            while records.len() < GROUP && bytes < GROUP_BYTES {
                match input.try_next() {
                    Some(Ok(chunk)) => bytes += self.take(chunk, &mut records),
                    Some(Err(failure)) => {
                        failed = Some(failure);
                        break;
                    }
                    None => break,
                }
            }
            self.apply(records, replayer).await?;
            if let Some(failure) = failed {
                return Err(failure);
            }
        }
    }

    fn take(&mut self, chunk: Vec<Incoming>, records: &mut Vec<Record>) -> usize {
        let mut bytes = 0;
        for incoming in chunk {
            match incoming {
                Incoming::Record(record) => {
                    bytes += record.size();
                    records.push(record);
                }
                Incoming::Bad { place, why } => {
                    self.bad += 1;
                    eprintln!("countersign: {place}: {why}");
                }
            }
        }
        bytes
    }

    /// Applies records, and looks now and then whether something stands in the way that only somebody else can move.
    async fn apply(&mut self, records: Vec<Record>, replayer: &Replayer) -> Done {
        let Self { replay, progress, summary, parks, policy, stop_on_pause, .. } = self;
        let (watch, stop) = (Watch::new(replay, self.patience), replay.stop.clone());
        let mut paused = false;
        let applying = replay.apply(records, |committed| {
            paused |= count(committed, summary, parks, policy);
            progress.add(committed.outcomes.len(), "");
            if paused && *stop_on_pause {
                stop.cancel();
            }
        });
        let ended = tokio::select! {
            ended = applying => ended,
            why = watch.gives_up(replayer) => return Err(why),
        };
        match ended {
            Ok(()) | Err(Halt::Stopped | Halt::Fenced) if paused && *stop_on_pause => Err(Failure::Failed(format!(
                "stopped: too many parked records among the last {}; see `dead-letters list`",
                policy.window
            ))),
            Ok(()) | Err(Halt::Stopped) => Ok(()),
            Err(Halt::Fenced) => Err(Failure::Failed("work without a lane was fenced off".to_owned())),
        }
    }
}

/// True if a lane would pause now.
fn count(committed: &Committed, summary: &mut Summary, parks: &mut ParkWindow, policy: &PausePolicy) -> bool {
    let mut paused = false;
    for recorded in &committed.outcomes {
        summary.count(recorded.outcome);
        let parked = matches!(recorded.outcome, RecordOutcome::Parked | RecordOutcome::Conflict) && !recorded.waits();
        paused |= parks.record(parked, policy);
    }
    summary.receipts += committed.receipts;
    paused
}
