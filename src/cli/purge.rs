//! `purge`: retention by hand; the daemon does the same by itself.

use std::time::{Duration, Instant};

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::replay::Signals;
use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::{open_store, purger};
use crate::config;
use crate::metrics::Metrics;
use crate::purge::{PurgeError, Purged};
use crate::store::inspect::Distrust;
use crate::store::migrate::VERSION;

#[derive(Args)]
pub struct PurgeArgs {
    /// Counts what would go, and deletes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Leaves what is younger than this, `30d` for one; at least `[store] retention`.
    #[arg(long, value_name = "TIME", value_parser = age)]
    older_than: Option<Duration>,
    #[command(flatten)]
    one: OneConfig,
}

fn age(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "write it like 30d, 12h or 90m".to_owned())
}

pub async fn run(args: &PurgeArgs) -> Done {
    let config = load_one(&args.one)?;
    let Some(window) = config.store.retention.window() else {
        let text = "`[store] retention` is \"forever\": nothing may be purged; set a time in the configuration first";
        return Err(Failure::Usage(text.to_owned()));
    };
    if args.older_than.is_some_and(|age| age < window) {
        let text = "`--older-than` is below `[store] retention`, which the daemon counts on: lower that first";
        return Err(Failure::Usage(text.to_owned()));
    }
    let store = open_store(&config)?;
    match store.distrust(VERSION).await? {
        Some(why @ Distrust::Outdated) => return Err(Failure::Usage(why.to_string())),
        Some(why @ Distrust::Keys(_)) => return Err(Failure::Failed(why.to_string())),
        None => {}
    }
    let mut purger = purger(&config, store.clone(), Metrics::new());
    purger.window = Some(args.older_than.unwrap_or(window));
    let stop = CancellationToken::new();
    let began = Instant::now();
    let purged = match args.dry_run {
        true => purger.count().await?,
        false => {
            let signals = Signals::new(&stop)?;
            let purged = purger.round(&stop).await?;
            if signals.first.is_cancelled() {
                eprintln!("countersign: interrupted: run it again for the rest");
            }
            purged
        }
    };
    store.close().await;
    print(args, &purged, began.elapsed().as_secs_f64());
    Ok(())
}

fn print(args: &PurgeArgs, purged: &Purged, seconds: f64) {
    if args.one.output == Output::Json {
        let mut document = serde_json::to_value(purged).unwrap_or_default();
        document["dryRun"] = args.dry_run.into();
        document["seconds"] = ((seconds * 1000.0).round() / 1000.0).into();
        return output::json(&document);
    }
    let Purged { before, inbox, dead_letters, row_versions, reconcile_batches, kept, horizon, archive } = purged;
    let before = before.as_deref().unwrap_or("the beginning");
    if args.dry_run {
        output::print(&format!("{inbox} inbox rows from before {before} would go; nothing was deleted (--dry-run)"));
    } else {
        output::print(&format!(
            "from before {before}: {inbox} inbox rows, {dead_letters} closed dead letters, {row_versions} versions of \
             deleted rows, {reconcile_batches} reconcile batches deleted in {seconds:.1} s"
        ));
    }
    let old = kept.unfinished + kept.open_dead_letter + kept.receipt_pending + kept.locked;
    if old > 0 {
        output::print(&format!(
            "{old} old inbox rows stay: {} not finished, {} with an open dead letter, {} with a receipt on its way, {} in use",
            kept.unfinished, kept.open_dead_letter, kept.receipt_pending, kept.locked
        ));
    }
    if let Some(archive) = archive {
        output::print(&format!("archived in {archive}"));
    }
    if let Some(horizon) = horizon {
        output::print(&format!(
            "new messages from before {horizon} can be proved new no more: parked as outside_window"
        ));
    }
}

impl From<PurgeError> for Failure {
    fn from(error: PurgeError) -> Self {
        match error {
            PurgeError::Store(error) => error.into(),
            PurgeError::Archive { .. } | PurgeError::Busy => Self::Failed(error.to_string()),
        }
    }
}
