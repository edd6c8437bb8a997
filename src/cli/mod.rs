//! The command line.

mod capture;
mod check;
mod dead_letters;
mod demo;
mod input;
mod inspect;
mod lanes;
mod migrate;
mod output;
mod progress;
mod purge;
mod receipts;
mod reconcile;
mod replay;
mod run;
mod standing;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::config::{self, Config, Host};
use crate::kafka::client::check_option;
use crate::store::{Meaning, StoreError};

/// Each Debezium change event takes effect once, in the same database transaction as its dedup row; each message gets
/// one terminal receipt.
#[derive(Parser)]
#[command(name = "countersign", version, about, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the daemon: consumes, applies, issues receipts.
    Run(ConfigArgs),
    /// Shows the main job on recorded events, with no services at all.
    Demo(demo::DemoArgs),
    /// Checks everything that a run needs, one line each with the remedy.
    Check(check::CheckArgs),
    /// Creates or upgrades the tables.
    Migrate(migrate::MigrateArgs),
    /// Decodes records and prints a line for each; writes nothing anywhere.
    Inspect(inspect::InspectArgs),
    /// Writes a window of a topic as record lines.
    Capture(capture::CaptureArgs),
    /// Sends record lines, or a window of a topic, through the pipeline: what was done before is not done again.
    Replay(replay::ReplayArgs),
    /// Tells the whole story of one message.
    Explain(receipts::ExplainArgs),
    /// Receipts by message or correlation id.
    #[command(subcommand)]
    Receipts(receipts::ReceiptsCommand),
    /// Records that were parked.
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Takes rows out that are older than the retention, as the daemon does by itself.
    Purge(purge::PurgeArgs),
    /// Compares every record of a window of a topic with the inbox, the dead letters and the receipts.
    Reconcile(reconcile::ReconcileArgs),
    /// What each partition is doing, and why it stands.
    #[command(subcommand)]
    Lanes(lanes::LanesCommand),
    /// The configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Prints what a shell needs to complete this program's commands and options.
    Completions(CompletionsArgs),
}

#[derive(Args)]
struct CompletionsArgs {
    /// Which shell.
    shell: clap_complete::Shell,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Prints the JSON Schema of the file.
    Schema,
}

/// Which configuration.
#[derive(Args, Clone)]
pub struct ConfigArgs {
    /// Configuration file, or a folder of them: one pipeline each.
    #[arg(short, long = "config", value_name = "FILE", required = true)]
    config: Vec<PathBuf>,
}

/// One pipeline's configuration, and how to print.
#[derive(Args, Clone)]
struct OneConfig {
    #[command(flatten)]
    config: ConfigArgs,
    /// Which pipeline, if there are several.
    #[arg(long)]
    pipeline: Option<String>,
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
}

/// Why a command ends, as its exit code.
pub enum Failure {
    /// 1: the work found problems. What they are has been printed.
    Problems,
    /// 2: usage or configuration.
    Usage(String),
    /// 3: a dependency is not reachable.
    Unreachable(String),
    /// 1, with a text.
    Failed(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let text = error.with_advice();
        match (&error, error.meaning()) {
            (StoreError::Setup(_), _) => Self::Usage(text),
            (_, Meaning::Transient) => Self::Unreachable(text),
            (_, Meaning::Unique | Meaning::ForeignKey | Meaning::Check | Meaning::Poison | Meaning::Fatal) => {
                Self::Failed(text)
            }
        }
    }
}

pub type Done = Result<(), Failure>;

/// Runs the command line; the exit code is 0 done, 1 the work found problems, 2 usage or configuration, 3 a dependency
/// is not reachable.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("countersign: no threads can be started: {error}");
            return ExitCode::from(1);
        }
    };
    let done = runtime.block_on(command(cli.command));
    // A blocking question to a broker that is away must not hold up the end.
    runtime.shutdown_background();
    let (code, text) = match done {
        Ok(()) => (0, None),
        Err(Failure::Problems) => (1, None),
        Err(Failure::Failed(text)) => (1, Some(text)),
        Err(Failure::Usage(text)) => (2, Some(text)),
        Err(Failure::Unreachable(text)) => (3, Some(text)),
    };
    if let Some(text) = text {
        eprintln!("countersign: {text}");
    }
    ExitCode::from(code)
}

async fn command(command: Command) -> Done {
    match command {
        Command::Run(args) => run::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Check(args) => check::run(&args).await,
        Command::Migrate(args) => migrate::run(&args).await,
        Command::Inspect(args) => inspect::run(&args).await,
        Command::Capture(args) => capture::run(&args).await,
        Command::Replay(args) => replay::run(&args).await,
        Command::Explain(args) => receipts::explain(&args).await,
        Command::Receipts(command) => receipts::run(&command).await,
        Command::DeadLetters(command) => dead_letters::run(&command).await,
        Command::Purge(args) => purge::run(&args).await,
        Command::Reconcile(args) => reconcile::run(&args).await,
        Command::Lanes(command) => lanes::run(&command).await,
        Command::Config(ConfigCommand::Schema) => {
            output::json(&config::schema());
            Ok(())
        }
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), env!("CARGO_PKG_NAME"), &mut script);
            output::print(String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
    }
}

fn load(args: &ConfigArgs) -> Result<Vec<Config>, Failure> {
    load_configs(&args.config)
}

fn load_configs(files: &[PathBuf]) -> Result<Vec<Config>, Failure> {
    let env = |name: &str| std::env::var(name).ok();
    config::load(files, Host { env: &env, kafka_option: &check_option })
        .map_err(|faults| Failure::Usage(format!("the configuration has faults:\n{faults}")))
}

/// The one pipeline that a command is about.
fn load_one(args: &OneConfig) -> Result<Config, Failure> {
    only(load(&args.config)?, args.pipeline.as_deref())
}

fn only(mut configs: Vec<Config>, pipeline: Option<&str>) -> Result<Config, Failure> {
    if let Some(name) = pipeline {
        configs.retain(|config| config.pipeline.name == name);
    }
    match configs.len() {
        1 => Ok(configs.remove(0)),
        0 => Err(Failure::Usage("no such pipeline in the configuration".to_owned())),
        _ => Err(Failure::Usage("several pipelines: say which with `--pipeline`".to_owned())),
    }
}

/// Logs on standard error; what the command prints stays clean.
fn start_logs(log: &config::LogOptions) {
    use tracing_subscriber::EnvFilter;
    let filter = std::env::var("RUST_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = filter.or_else(|| EnvFilter::try_new(&log.level).ok()).unwrap_or_else(|| EnvFilter::new("info"));
    // Complaining about a closed standard error on standard error would panic in the middle of a lane.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // A second start in one process (tests) keeps the first one's logs.
    let _ = match log.format {
        config::LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        config::LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
