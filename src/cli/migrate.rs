//! `migrate`: creates or upgrades the tables.

use clap::Args;

use super::{Done, Failure, OneConfig, Output, load_one, output};
use crate::app::open_store;
use crate::pipeline::unique_word;
use crate::store::meta::ADOPTING_EPOCH;
use crate::store::migrate::{VERSION, script};

#[derive(Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    one: OneConfig,
    /// Prints the SQL for the DBA and changes nothing.
    #[arg(long)]
    print: bool,
    /// The database was restored from a backup: gives the store a new epoch, so that offsets and gate marks of the
    /// lost time do not count.
    #[arg(long, conflicts_with = "print")]
    restored: bool,
}

pub async fn run(args: &MigrateArgs) -> Done {
    let config = load_one(&args.one)?;
    if args.print {
        output::print(&script(config.store.dialect));
        return Ok(());
    }
    let store = open_store(&config)?;
    let migrated = store.migrate(&unique_word()).await?;
    if args.restored {
        let mut tx = store.begin().await?;
        let epoch = tx.renew_store_epoch(&unique_word(), None).await?;
        tx.set_meta(ADOPTING_EPOCH, &epoch).await?;
        tx.commit().await?;
        if store.lanes(&config.pipeline.name).await?.is_empty() {
            eprintln!(
                "countersign: this store has no history: all that Kafka still has will be applied. If the business tables \
                 have it already, stop here and restore both from one backup"
            );
        }
    }
    if migrated.from > VERSION {
        let text = format!("the tables have version {}, newer than this program's {VERSION}", migrated.from);
        return Err(Failure::Failed(text));
    }
    let restored = if args.restored { ", with a new store epoch" } else { "" };
    match args.one.output {
        Output::Json => output::json(&serde_json::json!({
            "from": migrated.from, "to": migrated.to, "restored": args.restored,
        })),
        Output::Text if migrated.from == migrated.to => {
            output::print(&format!("the tables have version {} already{restored}", migrated.to));
        }
        Output::Text => output::print(&format!("tables at version {}{restored}", migrated.to)),
    }
    store.close().await;
    Ok(())
}
