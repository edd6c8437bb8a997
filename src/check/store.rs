//! The store: reachable, its tables there and byte-exact, writable, with the session that transactions rest on.

use std::time::Duration;

use jiff::Timestamp;

use super::{Check, Outcome, targets, within};
use crate::config::Config;
use crate::store::migrate::VERSION;
use crate::store::probe::PROBES;
use crate::store::{Dialect, Store, StoreError};

const LIMIT: Duration = Duration::from_secs(10);
/// Waiting for a first connection; the pool's own limit is below.
const REACH: Duration = Duration::from_secs(8);
/// Beyond this a lease or a window means something else to a person with a watch.
const SKEW: Duration = Duration::from_secs(5);

pub(super) async fn checks(config: &Config, store: &Result<Store, StoreError>) -> Vec<Check> {
    let address = config.store.url.redacted_url();
    let store = match store {
        Ok(store) => store,
        Err(error) => return vec![Check::refused("store", &format!("{address} cannot be opened"), error)],
    };
    if let Some(missing) = no_file(config) {
        return vec![missing];
    }
    let reached = within("store", REACH, reach(store, &address)).await;
    if reached.outcome != Outcome::Ok {
        return vec![reached];
    }
    let mut checks = vec![reached];
    let tables = within("store tables", LIMIT, tables(store)).await;
    let ready = tables.outcome <= Outcome::Warn;
    checks.push(tables);
    let keys = within("store keys", LIMIT, keys(store)).await;
    if ready || keys.outcome != Outcome::Ok {
        // Of tables that are not there nothing can be said, of some that are there already something bad.
        checks.push(keys);
    }
    if ready {
        checks.push(within("store privileges", 2 * LIMIT, privileges(store)).await);
    }
    checks.push(within("store isolation", LIMIT, isolation(store)).await);
    checks.push(within("store durability", LIMIT, durability(store)).await);
    match store.dialect() {
        Dialect::Postgres => checks.push(within("store clock", LIMIT, clock(store)).await),
        Dialect::MySql => {
            checks.push(within("store clock", LIMIT, clock(store)).await);
            checks.push(within("store session", LIMIT, session(store)).await);
        }
        // Its clock is this host's, and its file has one daemon.
        Dialect::Sqlite => checks.push(lock(&sqlite_path(config))),
    }
    checks.extend(targets::checks(config, store).await);
    checks
}

async fn reach(store: &Store, address: &str) -> Check {
    match store.ping().await {
        Ok(()) => Check::ok("store", format!("{} answers at {address}", store.dialect().name())),
        Err(ref error @ StoreError::Connection(ref reason)) => {
            let advice = error.advice().unwrap_or("start the database, or correct host and port in `[store] url`");
            Check::unreachable("store", format!("no connection to {address}: {reason}"), advice)
        }
        Err(error) => Check::refused("store", &format!("{address} did not let us in"), &error),
    }
}

/// A look at a file must not make it.
fn no_file(config: &Config) -> Option<Check> {
    if config.store.dialect != Dialect::Sqlite || std::path::Path::new(&sqlite_path(config)).exists() {
        return None;
    }
    let detail = format!("there is no file {} yet", config.store.url.redacted_url());
    Some(Check::fail("store", detail, "run `countersign migrate`: it makes the file and its tables"))
}

fn sqlite_path(config: &Config) -> String {
    config.store.url.expose().trim_start_matches("sqlite:").trim_start_matches("//").to_owned()
}

/// The daemon holds this lock as long as it lives. It is taken for a moment, shared, so that two checks do not see
/// each other.
fn lock(path: &str) -> Check {
    let name = "store lock";
    let Ok(file) = std::fs::File::open(format!("{path}.lock")) else {
        return Check::ok(name, "no daemon has worked on this file yet");
    };
    match file.try_lock_shared() {
        Ok(()) => Check::ok(name, "no other daemon works on this file"),
        Err(std::fs::TryLockError::WouldBlock) => Check::warn(
            name,
            "a daemon works on this file",
            "stop it before you start another: SQLite takes one daemon a file",
        ),
        Err(std::fs::TryLockError::Error(error)) => {
            Check::fail(name, format!("{path}.lock cannot be locked: {error}"), "use a file system with locks")
        }
    }
}

async fn tables(store: &Store) -> Check {
    let name = "store tables";
    let version = match store.schema_version().await {
        Ok(version) => version,
        Err(error) => return Check::refused(name, "countersign_meta cannot be read", &error),
    };
    match missing(store).await {
        Ok(missing) if missing.len() == PROBES.len() => {
            Check::fail(name, "there are no tables yet", "run `countersign migrate`")
        }
        Ok(missing) if !missing.is_empty() => {
            Check::fail(name, format!("there is no {}", missing.join(", ")), "run `countersign migrate`")
        }
        Ok(_) if version == 0 => {
            Check::fail(name, "the tables are there, but no schema version", "run `countersign migrate`")
        }
        Ok(_) if version > VERSION => Check::fail(
            name,
            format!("the tables have version {version}, this program knows {VERSION}"),
            "use the newer program that made them",
        ),
        Ok(_) if version < VERSION => Check::warn(
            name,
            format!("the tables have version {version}, this program writes {VERSION}"),
            "run `countersign migrate`; the version before runs too",
        ),
        Ok(_) => Check::ok(name, format!("version {version}")),
        Err(error) => Check::refused(name, "the catalogue cannot be read", &error),
    }
}

async fn missing(store: &Store) -> Result<Vec<&'static str>, StoreError> {
    let mut tx = store.begin().await?;
    let mut missing = Vec::new();
    for probe in PROBES {
        if tx.column_facts(&[probe.table.to_owned()]).await?.is_empty() {
            missing.push(probe.table);
        }
    }
    tx.rollback().await;
    Ok(missing)
}

async fn keys(store: &Store) -> Check {
    let name = "store keys";
    match store.key_faults().await {
        Ok(faults) if faults.is_empty() => Check::ok(name, "compared byte for byte"),
        Ok(faults) => Check::fail(
            name,
            faults.join("; "),
            "change the columns to what `countersign migrate --print` shows, before anything runs",
        ),
        Err(error) => Check::refused(name, "the catalogue cannot be read", &error),
    }
}

/// Each table in a transaction of its own, so that one refusal does not hide the next.
async fn privileges(store: &Store) -> Check {
    let name = "store privileges";
    let mut refused = Vec::new();
    let mut first = None;
    for probe in PROBES {
        let tried = async {
            let mut tx = store.begin().await?;
            let tried = tx.probe(probe).await;
            tx.rollback().await;
            tried
        };
        if let Err(error) = tried.await {
            refused.push(format!("{}: {}", probe.table, error.for_people()));
            first.get_or_insert(error);
        }
    }
    let Some(first) = first else {
        return Check::ok(
            name,
            "rows can be inserted, updated, read and deleted in every table (tried and rolled back)",
        );
    };
    let advice = read_only(&first).or(first.advice());
    let advice = advice.unwrap_or("grant SELECT, INSERT, UPDATE and DELETE on the countersign_ tables");
    Check::fail(name, format!("not every table can be written: {}", refused.join("; ")), advice)
}

fn read_only(error: &StoreError) -> Option<&'static str> {
    let StoreError::Answer { dialect, code, .. } = error else { return None };
    let read_only = match dialect {
        Dialect::Postgres => code == "25006",
        Dialect::MySql => matches!(code.as_str(), "1290" | "1836"),
        Dialect::Sqlite => matches!(code.as_str(), "8" | "264" | "520" | "776" | "1032"),
    };
    read_only.then_some("the database can only be read: name the primary in `[store] url`, or make the file writable")
}

async fn isolation(store: &Store) -> Check {
    let name = "store isolation";
    let level = async {
        let mut tx = store.begin().await?;
        let level = tx.isolation().await?;
        tx.rollback().await;
        Ok::<_, StoreError>(level)
    };
    match (level.await, store.dialect()) {
        (Ok(_), Dialect::Sqlite) => Check::ok(name, "one writer at a time (BEGIN IMMEDIATE)"),
        (Ok(level), Dialect::Postgres | Dialect::MySql) if level == "READ COMMITTED" => {
            Check::ok(name, "transactions run at READ COMMITTED")
        }
        (Ok(level), Dialect::Postgres | Dialect::MySql) => Check::fail(
            name,
            format!("READ COMMITTED was asked for, transactions run at {level}"),
            "let the proxy before the database pass session settings on",
        ),
        (Err(error), _) => Check::refused(name, "no transaction can be begun", &error),
    }
}

async fn durability(store: &Store) -> Check {
    let name = "store durability";
    let asked = async {
        let mut tx = store.begin().await?;
        let found = tx.undurable().await?;
        tx.rollback().await;
        Ok::<_, StoreError>(found)
    };
    match asked.await {
        Ok(found) if found.is_empty() => Check::ok(name, "what is committed survives a crash"),
        Ok(found) => Check::warn(
            name,
            format!("{}: a crash may undo commits whose offsets Kafka has already", found.join(", ")),
            "set the server to durable commits; without them the daemon finds the gap at its next start and goes back",
        ),
        Err(error) => Check::refused(name, "the settings cannot be read", &error),
    }
}

/// Leases and windows go by the database's clock, source times by others: far apart, both mislead.
async fn clock(store: &Store) -> Check {
    let name = "store clock";
    let before = Timestamp::now();
    let theirs = match store.now().await {
        Ok(text) => text,
        Err(error) => return Check::refused(name, "the clock cannot be read", &error),
    };
    let after = Timestamp::now();
    let Ok(theirs) = theirs.parse::<Timestamp>() else {
        return Check::fail(name, format!("the database's time is no time: {theirs}"), "name a supported database");
    };
    judge_clock(before, theirs, after)
}

/// The answer was made at some time between question and arrival.
fn judge_clock(before: Timestamp, theirs: Timestamp, after: Timestamp) -> Check {
    let early = before.duration_since(theirs);
    let late = theirs.duration_since(after);
    let skew = early.max(late).as_millis().max(0);
    let name = "store clock";
    if skew <= SKEW.as_millis() as i128 {
        return Check::ok(name, format!("at most {skew} ms from this host's"));
    }
    let behind = if early > late { "behind" } else { "ahead of" };
    Check::warn(
        name,
        format!("the database's clock is {:.1} s {behind} this host's", skew as f64 / 1000.0),
        "synchronise both with NTP: times in receipts and metrics compare the two",
    )
}

/// Statements are cut at 4 MiB of values; what stands around them takes as much again at most.
const PACKET: u64 = 16 << 20;

async fn session(store: &Store) -> Check {
    let name = "store session";
    let asked = async {
        let mut tx = store.begin().await?;
        let session = tx.mysql_session().await?;
        tx.rollback().await;
        Ok::<_, StoreError>(session)
    };
    let session = match asked.await {
        Ok(session) => session,
        Err(error) => return Check::refused(name, "the session's settings cannot be read", &error),
    };
    let modes = ["STRICT_ALL_TABLES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT"];
    let lost: Vec<&str> = modes.into_iter().filter(|mode| !session.sql_mode.split(',').any(|m| m == *mode)).collect();
    if !lost.is_empty() || session.time_zone != "+00:00" {
        return Check::fail(
            name,
            format!(
                "the session lost its settings: sql_mode without {}, time_zone {}",
                lost.join(", "),
                session.time_zone
            ),
            "let the proxy before the database pass session settings on",
        );
    }
    if session.max_allowed_packet < PACKET {
        let detail =
            format!("max_allowed_packet is {} bytes: large batches may not go through", session.max_allowed_packet);
        return Check::warn(name, detail, format!("set max_allowed_packet to {PACKET} or more"));
    }
    Check::ok(name, "strict, in UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_slow_answer_is_no_skew() {
        assert_eq!(judge_clock(at(100), at(107), at(108)).outcome, Outcome::Ok);
        assert_eq!(judge_clock(at(100), at(108), at(101)).outcome, Outcome::Warn);
        let behind = judge_clock(at(100), at(90), at(101));
        assert!(behind.detail.contains("10.0 s behind"), "{behind:?}");
    }

    #[test]
    fn a_lock_that_is_held_is_seen_and_one_that_is_not_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db").display().to_string();
        assert_eq!(lock(&path).outcome, Outcome::Ok);
        let held = std::fs::File::create(format!("{path}.lock")).unwrap();
        assert_eq!(lock(&path).outcome, Outcome::Ok);
        held.try_lock().unwrap();
        assert_eq!(lock(&path).outcome, Outcome::Warn);
    }
}
