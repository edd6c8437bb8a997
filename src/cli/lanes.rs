//! `lanes`: what each partition is doing, and the ways to stop it and let it go on.

use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::open_store;
use crate::store::Store;
use crate::store::lanes::LaneKey;

#[derive(Subcommand)]
pub enum LanesCommand {
    /// Lists the lanes with their offsets and why they stand.
    List(ListArgs),
    /// Stops a lane before its next batch.
    Pause(PauseArgs),
    /// Lets a paused lane go on.
    Resume(LaneArgs),
    /// Parks the record at which a lane stands, or all below an offset, and lets it go on.
    Skip(SkipArgs),
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct LaneArgs {
    topic: String,
    partition: i32,
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct PauseArgs {
    #[command(flatten)]
    lane: LaneArgs,
    /// Kept with the lane, for whoever finds it.
    #[arg(long, default_value = "paused by an operator")]
    reason: String,
}

#[derive(Args)]
pub struct SkipArgs {
    #[command(flatten)]
    lane: LaneArgs,
    /// Parks everything below this offset; by default the one record at which the lane stands.
    #[arg(long)]
    to: Option<i64>,
}

pub async fn run(command: &LanesCommand) -> Done {
    match command {
        LanesCommand::List(args) => list(args).await,
        LanesCommand::Pause(args) => {
            let (store, key) = lane(&args.lane)?;
            told(store.pause_lane(&key, &args.reason).await?, &args.lane, "paused")
        }
        LanesCommand::Resume(args) => {
            let (store, key) = lane(args)?;
            told(store.resume_lane(&key).await?, args, "resumed")
        }
        LanesCommand::Skip(args) => {
            let (store, key) = lane(&args.lane)?;
            told(store.skip_lane(&key, args.to).await?, &args.lane, "skipping")
        }
    }
}

fn lane(args: &LaneArgs) -> Result<(Store, LaneKey), Failure> {
    let config = load_one(&args.one)?;
    let key = LaneKey {
        pipeline: Arc::from(config.pipeline.name.as_str()),
        topic: Arc::from(args.topic.as_str()),
        partition: args.partition,
    };
    Ok((open_store(&config)?, key))
}

fn told(found: bool, args: &LaneArgs, what: &str) -> Done {
    if !found {
        return Err(Failure::Failed(format!("there is no lane {}/{}: see `lanes list`", args.topic, args.partition)));
    }
    match args.one.output {
        Output::Json => output::json(&serde_json::json!({
            "topic": args.topic, "partition": args.partition, "done": what,
        })),
        Output::Text => output::print(&format!("{}/{} {what}", args.topic, args.partition)),
    }
    Ok(())
}

async fn list(args: &ListArgs) -> Done {
    let config = load_one(&args.one)?;
    let lanes = open_store(&config)?.lanes(&config.pipeline.name).await?;
    match args.one.output {
        Output::Json => output::json(&lanes),
        Output::Text => {
            let rows = lanes.iter().map(|lane| {
                vec![
                    format!("{}/{}", lane.topic, lane.partition),
                    lane.next_offset.to_string(),
                    lane.records_seen.to_string(),
                    lane.epoch.to_string(),
                    lane.updated_at.clone(),
                    lane.paused.clone().map_or_else(|| "running".to_owned(), |reason| format!("paused: {reason}")),
                ]
            });
            output::table(&["LANE", "NEXT OFFSET", "RECORDS", "EPOCH", "UPDATED", "STATE"], &rows.collect::<Vec<_>>());
        }
    }
    Ok(())
}
