//! The parts of a reconciliation: a pipeline that reads as its lanes do, and a replay for what is to be repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{AppError, Replayer, connection};
use crate::config::Config;
use crate::kafka::client::Connection;
use crate::kafka::window::{Bound, Window, WindowError, WindowOptions};
use crate::reconcile::{ReceiptsTopic, Reconcile, ReconcileError, Repair, Subject};

/// Makes reconciliations of one pipeline.
pub struct Reconciler {
    /// Its relay runs only if something is to be repaired.
    pub replayer: Replayer,
    connection: Connection,
    receipts: Option<String>,
    repairs: bool,
}

/// Why a reconciliation does not begin.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    #[error(transparent)]
    Reconcile(#[from] ReconcileError),
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error("no receipts are pushed: set `[receipts] topic`, or leave `--receipts` out")]
    NoReceipts,
}

/// Which part of a topic, and what is compared with it.
#[derive(Clone, Debug)]
pub struct Scope {
    pub topic: String,
    pub from: Bound,
    pub to: Bound,
    pub receipts: bool,
}

impl Reconciler {
    /// `repairs`: what is missing is sent through the pipeline.
    pub fn new(config: &Config, repairs: bool, stop: CancellationToken) -> Result<Self, AppError> {
        let mut without = config.clone();
        if !repairs {
            // Nothing is produced.
            without.receipts.topic = None;
        }
        let replayer = Replayer::new(&without, stop)?;
        Ok(Self { replayer, connection: connection(config), receipts: config.receipts.topic.clone(), repairs })
    }

    /// Begins a batch: the records of the window are for the caller to give.
    pub async fn begin(&self, scope: &Scope) -> Result<Reconcile, NotBegun> {
        let receipts = match (&self.receipts, scope.receipts) {
            (Some(topic), true) => Some(ReceiptsTopic { connection: self.connection.clone(), topic: topic.clone() }),
            (None, true) => return Err(NotBegun::NoReceipts),
            (_, false) => None,
        };
        let time = |bound| match bound {
            Bound::Time(ms) => Some(ms),
            Bound::Beginning | Bound::End | Bound::Offset(_) => None,
        };
        let subject = Subject {
            topic: Arc::from(scope.topic.as_str()),
            from_ms: time(scope.from),
            to_ms: time(scope.to),
            receipts,
        };
        let repair = self.repairs.then(|| Repair(self.replayer.replay()));
        let mut reconcile = Reconcile::begin(Arc::clone(&self.replayer.shared), subject, repair).await?;
        match self.ends(&scope.topic).await {
            Ok(ends) => reconcile.compare_ends(&ends),
            Err(error) => {
                // Whatever becomes of that: the window's own error is what counts.
                let _ = reconcile.abandon("failed").await;
                return Err(error);
            }
        }
        Ok(reconcile)
    }

    /// Where the logs of a topic end now.
    async fn ends(&self, topic: &str) -> Result<BTreeMap<i32, i64>, NotBegun> {
        let options = WindowOptions {
            connection: self.connection.clone(),
            topic: topic.to_owned(),
            partition: None,
            from: Bound::End,
            to: Bound::End,
        };
        let opened = tokio::task::spawn_blocking(move || Window::open(&options)).await;
        let window = opened.map_err(|error| ReconcileError::Failed(error.to_string()))??;
        Ok(window.spans().iter().map(|span| (span.partition, span.to)).collect())
    }
}
