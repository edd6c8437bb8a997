//! `reconcile`: a window of a topic against the tables and the receipts; differences are recorded and told.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::input::{Incoming, Input, WindowArgs};
use super::progress::Progress;
use super::run::no_signals;
use super::{Done, Failure, OneConfig, Output, load_one, output, start_logs};
use crate::app::{NotBegun, Reconciler, Scope, connection};
use crate::config::LogOptions;
use crate::reconcile::{Reconcile, ReconcileError, Report};

#[derive(Args)]
pub struct ReconcileArgs {
    #[command(flatten)]
    one: OneConfig,
    #[command(flatten)]
    window: WindowArgs,
    /// Compares the receipts topic too: every finished message has its receipt there or in the outbox.
    #[arg(long)]
    receipts: bool,
    /// What to do about missing messages. `replay` sends them through the pipeline, which applies them once.
    #[arg(long, value_enum, value_name = "HOW")]
    repair: Option<RepairBy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RepairBy {
    Replay,
}

/// How long the receipts of what was repaired may take.
const RECEIPTS: Duration = Duration::from_secs(20);

pub async fn run(args: &ReconcileArgs) -> Done {
    let config = load_one(&args.one)?;
    start_logs(&LogOptions { level: "warn,librdkafka=error".to_owned(), ..config.log.clone() });
    let Some(topic) = &args.window.topic else {
        return Err(Failure::Usage("say which topic: `--topic T`".to_owned()));
    };
    let stop = CancellationToken::new();
    let repairs = args.repair == Some(RepairBy::Replay);
    let reconciler = Reconciler::new(&config, repairs, stop.clone())?;
    reconciler.replayer.ready().await?;
    let mut input = Input::topic(&args.window, topic, connection(&config)).await?;
    let scope = Scope { topic: topic.clone(), from: args.window.from, to: args.window.to, receipts: args.receipts };
    // Listened to before there is a batch, which would be left without an end.
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut reconcile = reconciler.begin(&scope).await?;
    let relay_stop = CancellationToken::new();
    let relay = repairs.then(|| reconciler.replayer.relay(relay_stop.clone())).flatten();
    let mut progress = Progress::new(input.meter.clone(), "compared", false);
    let ended = tokio::select! {
        ended = compare(&mut reconcile, &mut input, &mut progress) => ended,
        _ = interrupt.recv() => Err(interrupted()),
        _ = terminate.recv() => Err(interrupted()),
    };
    progress.finish();
    stop.cancel();
    let report = match ended {
        Ok(report) => report,
        Err((status, failure)) => {
            // A database that is away cannot be told; the first error is the one that counts.
            let _ = tokio::time::timeout(Duration::from_secs(5), reconcile.abandon(status)).await;
            return Err(failure);
        }
    };
    if relay.is_some() && report.repaired > 0 {
        let left = reconciler.replayer.delivered(RECEIPTS).await;
        if let Some(left) = left.ok().filter(|left| *left > 0) {
            eprintln!("countersign: {left} receipts wait in the outbox: a running daemon delivers them");
        }
    }
    relay_stop.cancel();
    if let Some(relay) = relay {
        let _ = tokio::time::timeout(Duration::from_secs(1), relay).await;
    }
    reconciler.replayer.close().await;
    match args.one.output {
        Output::Json => output::json(&report),
        Output::Text => tell(&report),
    }
    if report.left() > 0 { Err(Failure::Problems) } else { Ok(()) }
}

/// How the batch is marked, and what is said.
type Abandoned = (&'static str, Failure);

async fn compare(reconcile: &mut Reconcile, input: &mut Input, progress: &mut Progress) -> Result<Report, Abandoned> {
    let failed = |failure: Failure| ("failed", failure);
    while let Some(chunk) = input.next().await {
        let chunk = chunk.map_err(failed)?;
        // A topic has no lines that could be bad.
        let records: Vec<_> = chunk
            .into_iter()
            .filter_map(|incoming| match incoming {
                Incoming::Record(record) => Some(record),
                Incoming::Bad { .. } => None,
            })
            .collect();
        let count = records.len();
        reconcile.records(records).await.map_err(|error| failed(error.into()))?;
        progress.add(count, "");
    }
    reconcile.finish().await.map_err(|error| failed(error.into()))
}

fn interrupted() -> Abandoned {
    let text = "interrupted: what was compared so far is in the batch, run it again for the rest";
    ("interrupted", Failure::Failed(text.to_owned()))
}

impl From<ReconcileError> for Failure {
    fn from(error: ReconcileError) -> Self {
        let text = error.to_string();
        match error {
            ReconcileError::Store(error) => error.into(),
            ReconcileError::Receipts(error) => error.into(),
            ReconcileError::Outage(_) => Self::Unreachable(text),
            ReconcileError::Repair(_) | ReconcileError::Failed(_) => Self::Failed(text),
        }
    }
}

impl From<NotBegun> for Failure {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::Reconcile(error) => error.into(),
            NotBegun::Window(error) => error.into(),
            NotBegun::NoReceipts => Self::Usage(error.to_string()),
        }
    }
}

fn tell(report: &Report) {
    if !report.diffs.is_empty() {
        let rows: Vec<Vec<String>> = report
            .diffs
            .iter()
            .map(|diff| {
                vec![
                    diff.kind.as_str().to_owned(),
                    diff.message_id.clone().unwrap_or_default(),
                    format!("{}/{}/{}", diff.topic, diff.partition, diff.offset),
                    diff.detail.clone(),
                ]
            })
            .collect();
        output::table(&["DIFFERENCE", "MESSAGE", "POSITION", "DETAIL"], &rows);
    }
    if report.diffs_left_out > 0 {
        eprintln!("countersign: {} more differences are counted and not listed", report.diffs_left_out);
    }
    let outcomes = serde_json::to_value(report.outcomes).unwrap_or_default();
    let counts = |counts: &mut dyn Iterator<Item = (String, u64)>| {
        let counts = counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}"));
        counts.collect::<Vec<_>>().join(" + ")
    };
    let outcomes = counts(
        &mut outcomes
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())),
    );
    output::print(&format!("{} records of {} = {outcomes}", report.checked, report.topic));
    if let Some(receipts) = report.receipts {
        output::print(&format!(
            "{} receipts = {} delivered + {} pending + {} outside + {} differing",
            receipts.expected, receipts.delivered, receipts.pending, receipts.outside, receipts.differing
        ));
    }
    let found = counts(&mut report.differences.iter().map(|(kind, count)| ((*kind).to_owned(), *count)));
    let found = if found.is_empty() { String::new() } else { format!(" ({found}; {} repaired)", report.repaired) };
    output::print(&format!(
        "{} differences{found}; batch {}: {}; {:.1} s",
        report.left(),
        report.batch,
        report.status,
        report.seconds
    ));
}
