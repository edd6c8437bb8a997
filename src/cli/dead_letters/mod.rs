//! `dead-letters`: what was parked, why, and what an operator makes of it.

mod decide;

use clap::{Args, Subcommand};

use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::open_store;
use crate::record_line::{bytes_json, read_headers};
use crate::store::dead_letters::{DeadLetter, DeadLetterRecord, Filter};

#[derive(Subcommand)]
pub enum DeadLettersCommand {
    /// Lists parked records, the oldest first.
    List(ListArgs),
    /// Shows one with its key, value and headers.
    Show(ShowArgs),
    /// Tries parked records again, in the order of their records.
    Redrive(decide::RedriveArgs),
    /// Closes dead letters without applying them; their messages stay FAILED.
    Discard(decide::DiscardArgs),
}

/// Which dead letters; all that is given must hold.
#[derive(Args)]
struct FilterArgs {
    #[arg(long)]
    topic: Option<String>,
    #[arg(long)]
    partition: Option<i32>,
    /// The code with which they were parked.
    #[arg(long, visible_alias = "reason")]
    code: Option<String>,
    /// poison, conflict, retries or operator.
    #[arg(long)]
    class: Option<String>,
    #[arg(long)]
    route: Option<String>,
    #[arg(long)]
    message_id: Option<String>,
    /// The record's key, as text.
    #[arg(long)]
    key: Option<String>,
    /// Parked at this time or later (RFC 3339).
    #[arg(long, value_name = "TIME")]
    since: Option<jiff::Timestamp>,
    /// Parked before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
}

impl FilterArgs {
    fn filter(&self) -> Filter {
        Filter {
            topic: self.topic.clone(),
            partition: self.partition,
            code: self.code.clone(),
            class: self.class.clone(),
            route: self.route.clone(),
            message_id: self.message_id.clone(),
            key: self.key.clone().map(String::into_bytes),
            since: self.since,
            until: self.until,
            limit: i64::from(u32::MAX),
            ..Filter::default()
        }
    }

    fn is_empty(&self) -> bool {
        let texts = [&self.topic, &self.code, &self.class, &self.route, &self.message_id, &self.key];
        texts.iter().all(|text| text.is_none())
            && self.partition.is_none()
            && self.since.is_none()
            && self.until.is_none()
    }
}

#[derive(Args)]
pub struct ListArgs {
    /// open, redriven or discarded.
    #[arg(long)]
    status: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only those after this id.
    #[arg(long, default_value_t = 0)]
    after: i64,
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The dead letter's number.
    id: i64,
    #[command(flatten)]
    one: OneConfig,
}

pub async fn run(command: &DeadLettersCommand) -> Done {
    match command {
        DeadLettersCommand::List(args) => list(args).await,
        DeadLettersCommand::Show(args) => show(args).await,
        DeadLettersCommand::Redrive(args) => decide::redrive(args).await,
        DeadLettersCommand::Discard(args) => decide::discard(args).await,
    }
}

async fn list(args: &ListArgs) -> Done {
    let config = load_one(&args.one)?;
    let store = open_store(&config)?;
    let filter =
        Filter { status: args.status.clone(), after: args.after, limit: i64::from(args.limit), ..args.filter.filter() };
    let letters = store.dead_letters(&config.pipeline.name, &filter).await?;
    match args.one.output {
        Output::Json => output::json(&letters),
        Output::Text => {
            let head = &["ID", "STATUS", "CLASS", "CODE", "MESSAGE", "POSITION", "PARKED", "REASON"];
            output::table(head, &letters.iter().map(row).collect::<Vec<_>>());
            if letters.len() == args.limit as usize
                && let Some(last) = letters.last()
            {
                eprintln!("there may be more: --after {}, or a higher --limit", last.id);
            }
        }
    }
    Ok(())
}

fn row(letter: &DeadLetter) -> Vec<String> {
    vec![
        letter.id.to_string(),
        letter.status.clone(),
        letter.class.clone(),
        letter.code.clone(),
        letter.message_id.clone().unwrap_or_default(),
        format!("{}/{}/{}", letter.topic, letter.partition, letter.offset),
        letter.created_at.clone(),
        letter.reason.clone(),
    ]
}

async fn show(args: &ShowArgs) -> Done {
    let config = load_one(&args.one)?;
    let store = open_store(&config)?;
    let Some(found) = store.dead_letter(&config.pipeline.name, args.id).await? else {
        return Err(Failure::Failed(format!("there is no dead letter {}", args.id)));
    };
    let document = document(&found);
    match args.one.output {
        Output::Json => output::json(&document),
        Output::Text => {
            for (name, value) in document.as_object().into_iter().flatten() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                output::print(&format!("{name:<12} {text}"));
            }
        }
    }
    Ok(())
}

fn document(found: &DeadLetterRecord) -> serde_json::Value {
    let mut document = serde_json::to_value(&found.letter).unwrap_or_default();
    let headers = read_headers(&found.headers).unwrap_or_default();
    let headers: Vec<_> =
        headers.iter().map(|header| serde_json::json!([header.name, bytes_json(header.value.as_deref())])).collect();
    document["timestamp"] = serde_json::json!(found.timestamp_ms);
    document["headers"] = serde_json::json!(headers);
    document["key"] = bytes_json(found.key.as_deref());
    document["value"] = bytes_json(found.value.as_deref());
    if let Some(edited) = &found.edited_value {
        document["editedValue"] = bytes_json(Some(edited));
    }
    document
}
