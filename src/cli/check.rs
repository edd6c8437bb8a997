//! `check`: the pre-launch checklist.

use clap::Args;

use super::{Done, OneConfig};

#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    one: OneConfig,
}

pub async fn run(args: &CheckArgs) -> Done {
    super::load_one(&args.one).map(drop)
}
