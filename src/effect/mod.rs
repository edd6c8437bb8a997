//! Effects: what a message does to the business tables.
//!
//! This folder knows messages and transactions. It does not know Kafka, the inbox, or what is done with its answers.

mod binding;
mod culprit;
mod fit;
mod insert;
mod learned;
pub mod spec;
mod sql;
mod table;
mod targets;
pub mod template;

use std::sync::Arc;

use async_trait::async_trait;

use crate::decision::Outcome;
use crate::message::Message;
use crate::record::Record;
use crate::store::{Dialect, StoreError, Tx};

pub use sql::SqlEffect;
pub use table::TableEffect;

/// A message with the record that brought it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub message: &'a Message,
    pub record: &'a Record,
}

/// A business effect.
///
/// Calls for different lanes come concurrently, calls for one lane one after the other and in order. `Ok` means:
/// all that the message asks for stands in the transaction, which commits together with the message's dedup row, or
/// not at all. The same message may come again after a rollback, so nothing may be done outside the transaction
/// that could not bear being done twice.
#[async_trait]
pub trait Effect: Send + Sync {
    /// Applies one message. After `Err`, and after a refusal that is not clean, the caller undoes what was written.
    async fn apply(&self, tx: &mut Tx, delivery: &Delivery<'_>) -> Result<Outcome, StoreError>;

    /// Applies many consecutive messages at once, with the very result of `apply` on each in turn, one outcome for
    /// each. None if this effect must go message by message.
    async fn apply_all(&self, _tx: &mut Tx, _run: &[Delivery<'_>]) -> Option<Result<Vec<Outcome>, StoreError>> {
        None
    }

    /// What a constraint that was checked after `apply` means for the message; None if it is nothing of this effect's.
    fn violated(&self, _error: &StoreError) -> Option<Outcome> {
        None
    }

    /// The column or parameter whose value the database refuses, where its error does not say. Asked on Postgres
    /// alone, after the message was undone; whatever is tried here is undone as well, also after `Err`.
    async fn culprit(&self, _tx: &mut Tx, _delivery: &Delivery<'_>) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// A statement or table changed underneath: what was learned about it is forgotten.
    fn forget(&self) {}

    /// How it runs, for `check`.
    fn describe(&self) -> String {
        "message by message".to_owned()
    }
}

/// The effect of a route that wants the dedup row and the receipt alone.
pub struct NoEffect;

#[async_trait]
impl Effect for NoEffect {
    async fn apply(&self, _tx: &mut Tx, _delivery: &Delivery<'_>) -> Result<Outcome, StoreError> {
        Ok(Outcome::Applied)
    }

    async fn apply_all(&self, _tx: &mut Tx, run: &[Delivery<'_>]) -> Option<Result<Vec<Outcome>, StoreError>> {
        Some(Ok(vec![Outcome::Applied; run.len()]))
    }

    fn describe(&self) -> String {
        "none".to_owned()
    }
}

/// The effect that a route's configuration asks for.
pub fn build(spec: &spec::EffectSpec, pipeline: &str, dialect: Dialect) -> Arc<dyn Effect> {
    match spec {
        spec::EffectSpec::Sql(steps) => Arc::new(SqlEffect::new(steps.clone(), dialect)),
        spec::EffectSpec::Table(table) => Arc::new(TableEffect::new(table.clone(), pipeline)),
        spec::EffectSpec::None => Arc::new(NoEffect),
    }
}
