//! `lanes`: what each partition is doing, and the ways to stop it and let it go on.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::{connection, open_store};
use crate::kafka::client::end_of_log;
use crate::store::Store;
use crate::store::lanes::{LaneKey, LaneStatus, SKIP_NEXT};

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
            match args.to {
                Some(to) => {
                    within_log(&store, &key, &args.lane, to).await?;
                    told(store.skip_lane(&key, to).await?, &args.lane, "skipping")
                }
                None => skip_one(&store, &key, &args.lane).await,
            }
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

/// Skips the record at which a lane stands. One that works stands at none, and the next good one would be parked.
async fn skip_one(store: &Store, key: &LaneKey, args: &LaneArgs) -> Done {
    let lanes = store.lanes(&key.pipeline).await?;
    let lane = lanes.iter().find(|lane| *lane.topic == *key.topic && lane.partition == i64::from(key.partition));
    if lane.is_some_and(|lane| lane.paused.is_none() && lane.standing.is_none()) {
        let LaneKey { topic, partition, .. } = key;
        return Err(Failure::Usage(format!(
            "{topic}/{partition} works, so there is no record to skip: pause it first, or say how far with `--to OFFSET`"
        )));
    }
    // It may go on at this very moment.
    match lane {
        Some(lane) if !store.skip_record(key, lane.next_offset).await? => Err(Failure::Failed(format!(
            "{}/{} has gone on by itself meanwhile: look at `lanes list`",
            args.topic, args.partition
        ))),
        found => told(found.is_some(), args, "skipping"),
    }
}

/// Nobody means to park records that are not written yet, or those that have their outcome.
async fn within_log(store: &Store, key: &LaneKey, args: &LaneArgs, to: i64) -> Done {
    let next = store.lane(key).await?.map_or(0, |row| row.next_offset);
    let config = load_one(&args.one)?;
    let (connection, topic, partition) = (connection(&config), args.topic.clone(), args.partition);
    let asked = tokio::task::spawn_blocking(move || end_of_log(&connection, &topic, partition, ASK)).await;
    let end = match asked {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => return Err(Failure::Unreachable(format!("kafka: {error}"))),
        Err(error) => return Err(Failure::Failed(error.to_string())),
    };
    if to <= next || to > end {
        return Err(Failure::Usage(format!("--to {to}: the lane is at {next} and its log ends at {end}")));
    }
    Ok(())
}

const ASK: Duration = Duration::from_secs(10);

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

/// What the lane's row says. Why it stands is what its owner last could write there; `/readyz` is fresh.
fn state(lane: &LaneStatus) -> String {
    let skip = match lane.skip_to {
        Some(SKIP_NEXT) => ", the next record is to be skipped".to_owned(),
        Some(to) => format!(", everything below {to} is to be skipped"),
        None => String::new(),
    };
    match (&lane.paused, &lane.standing) {
        (Some(reason), _) => format!("paused{skip}: {reason}"),
        (None, Some(reason)) => format!("stands{skip}: {reason}"),
        (None, None) => format!("not paused{skip}"),
    }
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
                    state(lane),
                ]
            });
            output::table(&["LANE", "NEXT OFFSET", "RECORDS", "EPOCH", "UPDATED", "STATE"], &rows.collect::<Vec<_>>());
        }
    }
    Ok(())
}
