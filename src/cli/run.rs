//! `run`: the daemon.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{ConfigArgs, Done, Failure, load, start_logs};
use crate::app::{self, AppError};

pub async fn run(args: &ConfigArgs) -> Done {
    let configs = load(args)?;
    let Some(first) = configs.first() else {
        return Err(Failure::Usage("no configuration file was found".to_owned()));
    };
    start_logs(&first.log);
    let drain = configs.iter().map(|config| config.shutdown.drain).max().unwrap_or_default();
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let running = app::run(configs, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        done = &mut running => return done.map_err(Failure::from),
        _ = terminate.recv() => info!("SIGTERM: finishing what is at hand"),
        _ = interrupt.recv() => info!("SIGINT: finishing what is at hand"),
    }
    stop.cancel();
    tokio::select! {
        done = &mut running => done.map_err(Failure::from),
        // What is left is undone by the database and comes again: nothing is lost by going now.
        () = tokio::time::sleep(drain) => {
            warn!("not everything ended in time; what is left comes again");
            Ok(())
        }
    }
}

pub(super) fn no_signals(error: std::io::Error) -> Failure {
    Failure::Failed(format!("signals cannot be received: {error}"))
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Store(error) => error.into(),
            AppError::Gate(_) | AppError::Registry(_) => Self::Usage(error.to_string()),
            AppError::Listen { .. }
            | AppError::Kafka(_)
            | AppError::Group(_)
            | AppError::Lane(_)
            | AppError::Task(_)
            | AppError::Locked { .. } => Self::Failed(error.to_string()),
        }
    }
}
