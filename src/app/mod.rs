//! Puts the parts together: from checked configuration to running pipelines, and their orderly end.

mod build;
mod reconcile;
mod replay;
mod running;

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::build::{Pipeline, connection, lookup, open_registry, open_store, purger, reader_settings};
pub use self::reconcile::{NotBegun, Reconciler, Scope};
pub use self::replay::{Replayer, Unready};
use crate::config::Config;
use crate::http::{self, HttpState};
use crate::metrics::Metrics;
use crate::registry::RegistryError;
use crate::store::{Dialect, StoreError, sqlite_path};

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("http: cannot listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("gate: {0}")]
    Gate(#[source] redis::RedisError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("a lane ended badly: {0}")]
    Lane(#[source] tokio::task::JoinError),
    #[error("a task beside the lanes ended badly: {0}")]
    Task(#[source] tokio::task::JoinError),
    #[error("kafka gave up: {0}")]
    Group(String),
    #[error("{path}: another daemon works on this file: {source}")]
    Locked { path: String, source: std::io::Error },
}

/// SQLite allows one daemon per file. The lock goes with the process, however it ends.
pub fn lock_files(configs: &[Config]) -> Result<Vec<File>, AppError> {
    let mut paths = BTreeSet::new();
    for config in configs {
        if config.store.dialect == Dialect::Sqlite {
            paths.insert(format!("{}.lock", sqlite_path(config.store.url.expose())));
        }
    }
    let mut locks = Vec::new();
    for path in paths {
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let locked = lock.and_then(|file| file.try_lock().map(|()| file).map_err(std::io::Error::from));
        locks.push(locked.map_err(|source| AppError::Locked { path, source })?);
    }
    Ok(locks)
}
/// The daemon: all pipelines and the HTTP side, until it is stopped.
pub async fn run(configs: Vec<Config>, stop: CancellationToken) -> Result<(), AppError> {
    let _locks = lock_files(&configs)?;
    let metrics = Metrics::new();
    let address = configs.first().map(|config| config.http.listen);
    let tokens = tokens(&configs);
    let mut pipelines = Vec::new();
    for config in configs {
        for warning in &config.warnings {
            warn!("{warning}");
        }
        pipelines.push(Pipeline::new(config, metrics.clone())?);
    }
    let views = pipelines.iter().map(|pipeline| pipeline.view().clone()).collect();
    let http_stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(address) = address {
        let listener = http::bind(address).await.map_err(|source| AppError::Listen { address, source })?;
        info!(%address, "http");
        let state = Arc::new(HttpState { pipelines: views, metrics, tokens });
        let stop = http_stop.clone();
        tasks.spawn(async move {
            if let Err(error) = http::serve(listener, state, stop).await {
                tracing::error!(%error, "http ended");
            }
        });
    }
    let mut running = JoinSet::new();
    for pipeline in pipelines {
        running.spawn(pipeline.run(stop.clone()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended.unwrap_or_else(|error| Err(AppError::Task(error))) {
            tracing::error!(%error, "a pipeline ended");
            outcome = Err(error);
            // The others end in order: whoever watches the process is to start it anew.
            stop.cancel();
        }
    }
    http_stop.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), async { while tasks.join_next().await.is_some() {} }).await;
    outcome
}

fn tokens(configs: &[Config]) -> Vec<String> {
    let http = configs.first().map(|config| &config.http);
    let tokens = http.into_iter().flat_map(|http| [http.read_token.as_ref(), http.operate_token.as_ref()]);
    tokens.flatten().map(|token| token.expose().to_owned()).collect()
}
