//! An effect of your own: implement [`Effect`] and run the pipeline with it.
//!
//! Whatever is written through `tx` commits together with the message's dedup row, or not at all:
//! `cargo run --example custom_effect -- pipeline.toml`

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::app::{Pipeline, open_store};
use countersign::config::{Host, load};
use countersign::decision::Outcome;
use countersign::effect::{Delivery, Effect};
use countersign::kafka::client::check_option;
use countersign::metrics::Metrics;
use countersign::store::{Bind, StoreError, Tx};
use tokio_util::sync::CancellationToken;

/// Counts messages per operation in a table of its own.
struct CountOperations;

#[async_trait]
impl Effect for CountOperations {
    async fn apply(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
        let op = delivery.message.event.op.map_or("-", |op| op.letter());
        let placeholder = tx.dialect().placeholder(0);
        let count = format!("UPDATE operations SET messages = messages + 1 WHERE op = {placeholder}");
        let insert = format!("INSERT INTO operations (op, messages) VALUES ({placeholder}, 1)");
        if tx.execute(&count, vec![Bind::text(op)]).await? == 0 {
            tx.execute(&insert, vec![Bind::text(op)]).await?;
        }
        Ok(Outcome::Applied)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: custom_effect FILE")?;
    let env = |name: &str| std::env::var(name).ok();
    let mut configs = load(&[file], Host { env: &env, kafka_option: &check_option })?;
    let config = configs.pop().ok_or("no configuration")?;
    let store = open_store(&config)?;
    let effects = config.routes.iter().map(|_| Arc::new(CountOperations) as Arc<dyn Effect>).collect();
    let pipeline = Pipeline::with_effects(config, Metrics::new(), store, effects)?;
    let stop = CancellationToken::new();
    let until = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        until.cancel();
    });
    pipeline.run(stop).await?;
    Ok(())
}
