//! `receipts` and `explain`: what became of a message.

use clap::{Args, Subcommand};

use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::{lookup, open_store};
use crate::lookup::Story;
use crate::receipt::Receipt;

#[derive(Subcommand)]
pub enum ReceiptsCommand {
    /// The receipt of one message.
    Get(GetArgs),
    /// The receipts of one correlation id, the newest first.
    List(ListArgs),
}

#[derive(Args)]
pub struct GetArgs {
    /// The message id.
    id: String,
    /// Which route scope, if several know the id.
    #[arg(long)]
    scope: Option<String>,
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct ListArgs {
    #[arg(long)]
    correlation_id: String,
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// The message id.
    id: String,
    /// Which route scope, if several know the id.
    #[arg(long)]
    scope: Option<String>,
    #[command(flatten)]
    one: OneConfig,
}

pub async fn run(command: &ReceiptsCommand) -> Done {
    match command {
        ReceiptsCommand::Get(args) => get(args).await,
        ReceiptsCommand::List(args) => list(args).await,
    }
}

fn unknown(id: &str) -> Failure {
    Failure::Failed(format!("no message with id {id} is known: it was not received yet, or its row was purged"))
}

async fn get(args: &GetArgs) -> Done {
    let config = load_one(&args.one)?;
    let lookup = lookup(&config, open_store(&config)?);
    let mut receipts = lookup.receipts(&args.id, args.scope.as_deref()).await?;
    match (receipts.len(), args.one.output) {
        (0, _) => Err(unknown(&args.id)),
        (1, _) => {
            let receipt = receipts.remove(0);
            match args.one.output {
                Output::Json => output::json(&receipt),
                Output::Text => output::table(HEAD, &[row(&receipt)]),
            }
            Ok(())
        }
        (_, _) => Err(Failure::Usage("several scopes know this id: say which with `--scope`".to_owned())),
    }
}

async fn list(args: &ListArgs) -> Done {
    let config = load_one(&args.one)?;
    let lookup = lookup(&config, open_store(&config)?);
    let receipts = lookup.by_correlation(&args.correlation_id, i64::from(args.limit)).await?;
    match args.one.output {
        Output::Json => output::json(&receipts),
        Output::Text => output::table(HEAD, &receipts.iter().map(row).collect::<Vec<_>>()),
    }
    Ok(())
}

const HEAD: &[&str] = &["MESSAGE", "STATUS", "CODE", "VERSION", "RECEIVED", "POSITION", "REASON"];

fn row(receipt: &Receipt) -> Vec<String> {
    let position = &receipt.position;
    vec![
        receipt.message_id.clone().unwrap_or_default(),
        format!("{:?}", receipt.status).to_uppercase(),
        receipt.code.clone().unwrap_or_default(),
        receipt.version.to_string(),
        receipt.received_at.clone(),
        format!("{}/{}/{}", position.topic, position.partition, position.offset),
        receipt.reason.clone().unwrap_or_default(),
    ]
}

pub async fn explain(args: &ExplainArgs) -> Done {
    let config = load_one(&args.one)?;
    let lookup = lookup(&config, open_store(&config)?);
    let stories = lookup.stories(&args.id, args.scope.as_deref()).await?;
    if stories.is_empty() {
        return Err(unknown(&args.id));
    }
    match args.one.output {
        Output::Json => output::json(&stories),
        Output::Text => stories.iter().for_each(tell),
    }
    Ok(())
}

fn tell(story: &Story) {
    let receipt = &story.receipt;
    output::print(&format!("message {} (route {}, scope {:?})", story.message_id, story.route, story.scope));
    output::print(&format!(
        "  state {}{} version {} attempts {}",
        format!("{:?}", receipt.status).to_uppercase(),
        receipt.code.as_ref().map_or_else(String::new, |code| format!(" {code}")),
        receipt.version,
        story.attempts
    ));
    output::print(&format!("  receipt {}", receipt.receipt_id));
    for event in &story.events {
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let mut line = format!("  {}  {}", text("at").unwrap_or_default(), text("event").unwrap_or_default());
        if let (Some(topic), Some(partition), Some(offset)) =
            (text("topic"), event["partition"].as_i64(), event["offset"].as_i64())
        {
            line.push_str(&format!(" at {topic}/{partition}/{offset}"));
        }
        if let Some(letter) = event["deadLetter"].as_i64() {
            line.push_str(&format!(", dead letter {letter}"));
        }
        for name in ["code", "reason", "digest", "status", "receipt", "by", "why"] {
            if let Some(value) = text(name) {
                line.push_str(&format!(", {name} {value}"));
            }
        }
        output::print(&line);
    }
    output::print("  repeats of the same content leave no row: records_total{outcome=\"duplicate\"} counts them");
}
