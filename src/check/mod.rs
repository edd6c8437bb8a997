//! The pre-launch checklist: what a run needs from the world around it, as a list of findings.
//!
//! One file for each dependency. Nothing here prints, and nothing that it finds out is changed: what must be tried in
//! the database is tried in a transaction that is rolled back. Every question has a time limit, and one that finds no
//! answer does not keep the others from being asked.

mod gate;
mod kafka;
mod registry;
mod routes;
mod span;
mod store;
mod targets;
mod topics;

use std::future::Future;
use std::time::Duration;

use crate::config::{Config, Fault};
use crate::kafka::client::Connection;
use crate::store::{Store, StoreError};

/// What is checked, with the ways to reach it.
pub struct Subject<'a> {
    pub config: &'a Config,
    pub connection: Connection,
    pub store: Result<Store, StoreError>,
}

/// One line of the checklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// `kafka topics`, `store tables`, `route charge`: the same from run to run.
    pub name: String,
    pub outcome: Outcome,
    /// What was found. Addresses stand without their passwords.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How a check ended; a later variant is worse than an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Ok,
    /// It runs, but probably not as it is meant.
    Warn,
    /// It does not run, or does not keep its promise.
    Fail,
    /// A failure too: the dependency could not be asked at all.
    Unreachable,
}

impl Outcome {
    /// `ok`, `warn` or `fail`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail | Self::Unreachable => "fail",
        }
    }
}

impl Check {
    pub(crate) fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Ok, detail: detail.into(), remedy: None }
    }

    pub(crate) fn warn(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn fail(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Fail, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn unreachable(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Unreachable, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// What the database answered instead of doing as asked.
    pub(crate) fn refused(name: impl Into<String>, what: &str, error: &StoreError) -> Self {
        let detail = format!("{what}: {}", error.for_people());
        let advice = error.advice().unwrap_or("see what the database says, and run the check again");
        match error {
            StoreError::Connection(_) => {
                Self::unreachable(name, detail, "the connection was lost: run the check again")
            }
            StoreError::Answer { .. }
            | StoreError::CommitUnknown(_)
            | StoreError::Unexpected(_)
            | StoreError::TooLarge { .. }
            | StoreError::Setup(_) => Self::fail(name, detail, advice),
        }
    }
}

/// The worst of all outcomes; Ok if there are none.
pub fn worst(checks: &[Check]) -> Outcome {
    checks.iter().map(|check| check.outcome).max().unwrap_or(Outcome::Ok)
}

/// Runs the whole list. The dependencies are asked at the same time, the order of the answers is fixed.
pub async fn run(subject: Subject<'_>) -> Vec<Check> {
    let config = subject.config;
    let (kafka, registry, store, gate) = tokio::join!(
        Box::pin(kafka::checks(config, &subject.connection)),
        Box::pin(registry::checks(config)),
        Box::pin(store::checks(config, &subject.store)),
        Box::pin(gate::checks(config)),
    );
    let mut checks = configuration(&config.warnings);
    checks.extend(kafka);
    checks.extend(registry);
    checks.extend(store);
    checks.extend(gate);
    checks.extend(routes::checks(config));
    checks
}

/// How long the topics can redeliver, against what the inbox remembers.
pub async fn window(config: &Config, connection: &Connection) -> Vec<Check> {
    kafka::window(config, connection).await
}

fn configuration(warnings: &[Fault]) -> Vec<Check> {
    if warnings.is_empty() {
        return vec![Check::ok("configuration", "nothing to remark")];
    }
    let warned = |warning: &Fault| {
        let place = warning.line.map_or_else(|| warning.file.clone(), |line| format!("{}:{line}", warning.file));
        let detail = format!("{}: {}", warning.path, warning.message);
        // A configuration message says itself what to do.
        Check::warn("configuration", detail, format!("see {place}"))
    };
    warnings.iter().map(warned).collect()
}

/// A check that must answer in time.
async fn within(name: &str, limit: Duration, check: impl Future<Output = Check>) -> Check {
    tokio::time::timeout(limit, check).await.unwrap_or_else(|_| late(name, limit))
}

fn late(name: &str, limit: Duration) -> Check {
    let detail = format!("no answer within {}", span::show(limit));
    Check::unreachable(
        name,
        detail,
        "find out what holds it up: a lock, a network that drops packets, an overloaded server",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_decides_and_an_empty_list_is_well() {
        assert_eq!(worst(&[]), Outcome::Ok);
        let list = [Check::ok("a", ""), Check::unreachable("b", "", ""), Check::warn("c", "", "")];
        assert_eq!(worst(&list), Outcome::Unreachable);
        assert_eq!(worst(&list).label(), "fail");
        assert_eq!(worst(&[Check::fail("a", "", ""), Check::warn("b", "", "")]), Outcome::Fail);
    }

    #[tokio::test]
    async fn a_check_without_an_answer_ends_all_the_same() {
        let check = within("slow", Duration::from_millis(30), std::future::pending()).await;
        assert_eq!(check.outcome, Outcome::Unreachable);
        assert_eq!(check.detail, "no answer within 30ms");
    }
}
