//! Retention: takes rows out that nobody needs any more, in small portions with pauses between them.
//!
//! An inbox row may go when it was received and finished before the window, has no open dead letter and no receipt on
//! its way. Before it goes the purge horizon is raised behind it, in a transaction of its own: whoever finds the row
//! gone finds the horizon raised. The horizon is never raised further than what really goes: a topic with old records
//! that is read for the first time is not taken for one that was read before.

mod archive;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::failpoint;
use crate::metrics::Metrics;
use crate::receipt::{ReceiptKind, receipt_id};
use crate::store::meta::{instant, of_pipeline};
use crate::store::purge::{InboxPlace, OldRow, Stays, VersionPlace};
use crate::store::{Meaning, Store, StoreError};
use archive::Archive;

/// Purges what one pipeline left.
pub struct Purger {
    pub pipeline: Arc<str>,
    pub store: Store,
    /// How old what goes must be at least; None is for ever.
    pub window: Option<Duration>,
    /// Where inbox rows are written to before they are deleted.
    pub archive: Option<PathBuf>,
    /// Letters and digits that no other process has.
    pub owner: String,
    pub metrics: Metrics,
    /// Where the walks through the other tables stand.
    pub walks: Walks,
}

#[derive(Default)]
pub struct Walks(Mutex<Places>);

#[derive(Default)]
struct Places {
    dead_letter: i64,
    version: VersionPlace,
}

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Purged {
    /// What was received before this instant is old.
    pub before: Option<String>,
    pub inbox: u64,
    pub dead_letters: u64,
    pub row_versions: u64,
    pub reconcile_batches: u64,
    pub kept: Kept,
    /// What is older than this can be proved new no more.
    pub horizon: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
}

/// Old inbox rows that had to stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub unfinished: u64,
    pub open_dead_letter: u64,
    pub receipt_pending: u64,
    /// In use by somebody else at that moment.
    pub locked: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("archive {path}: {source}: nothing of this portion was deleted")]
    Archive { path: String, source: std::io::Error },
    #[error("another process purges this pipeline at the moment: wait for it to end")]
    Busy,
}

/// Rows that are looked at, locked and deleted together.
const PORTION: usize = 1000;
/// With an archive: it is written while the rows are locked, and the server ends a transaction that says nothing for long.
const ARCHIVED: usize = 200;
/// Portions of the other tables in one round.
const WALK: usize = 20;
/// A purge is at work for at most this share of the time.
const PAUSE: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_secs(30);
/// Clocks of sources may be ahead of the database's by this much: rows are kept so much longer than the horizon says.
const SKEW: Duration = Duration::from_secs(300);
/// More receipts on their way than this from before the window: the broker is away, and all rows stay.
const MOST_PENDING: usize = 100_000;

/// Between two rounds of a daemon.
fn interval(window: Duration) -> Duration {
    (window / 20).clamp(Duration::from_secs(1), Duration::from_secs(60))
}

/// Short windows have short clocks.
fn skew(window: Duration) -> Duration {
    SKEW.min(window / 10)
}

impl Purger {
    pub async fn run(self, stop: CancellationToken) {
        let Some(window) = self.window else { return };
        loop {
            match self.round(&stop).await {
                Ok(purged) if purged.inbox > 0 => {
                    info!(pipeline = %self.pipeline, rows = purged.inbox, horizon = purged.horizon, "purged");
                }
                Ok(_) | Err(PurgeError::Busy) => {}
                Err(error @ PurgeError::Archive { .. }) => warn!(%error, "old rows stay"),
                Err(PurgeError::Store(error)) if error.meaning() == Meaning::Transient => {
                    debug!(%error, "old rows stay for now");
                }
                Err(PurgeError::Store(error)) => warn!(error = error.with_advice(), "old rows stay"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(interval(window)) => {}
            }
        }
    }

    /// Takes out all that may go now. Ends between two portions when it is stopped.
    ///
    /// # Errors
    /// What went before is gone, the rest stays.
    pub async fn round(&self, stop: &CancellationToken) -> Result<Purged, PurgeError> {
        let Some((before, window)) = self.before().await? else { return Ok(Purged::default()) };
        self.lease().await?;
        let done = self.leased_round(before, window, stop).await;
        let released = self.store.release_lease(&self.lease_name(), &self.owner).await;
        let purged = done?;
        released?;
        Ok(purged)
    }

    /// What a round would do to the inbox.
    pub async fn count(&self) -> Result<Purged, PurgeError> {
        let Some((before, window)) = self.before().await? else { return Ok(Purged::default()) };
        let mut purged = Purged { before: Some(before.to_string()), ..Purged::default() };
        let pending = self.pending(before).await?;
        let mut place = InboxPlace::default();
        loop {
            let rows = self.store.old_inbox_rows(&self.pipeline, before - skew(window), &place, PORTION).await?;
            let Some(last) = rows.last() else { break };
            place = InboxPlace::behind(last);
            purged.inbox += self.free(&rows, pending.as_ref(), &mut purged.kept).len() as u64;
        }
        purged.horizon = self.horizon().await?;
        Ok(purged)
    }

    async fn before(&self) -> Result<Option<(Timestamp, Duration)>, PurgeError> {
        let Some(window) = self.window else { return Ok(None) };
        let now = instant(&self.store.now().await?)?;
        // Longer than time is: nothing is that old.
        Ok(now.checked_sub(window).ok().map(|before| (before, window)))
    }

    async fn leased_round(
        &self,
        before: Timestamp,
        window: Duration,
        stop: &CancellationToken,
    ) -> Result<Purged, PurgeError> {
        let mut purged = Purged { before: Some(before.to_string()), ..Purged::default() };
        let pending = self.pending(before).await?;
        let mut archive = self.archive.as_ref().map(|folder| Archive::new(folder.clone(), &self.pipeline));
        let mut place = InboxPlace::default();
        while !stop.is_cancelled() {
            let began = Instant::now();
            let portion = if archive.is_some() { ARCHIVED } else { PORTION };
            let rows = self.store.old_inbox_rows(&self.pipeline, before - skew(window), &place, portion).await?;
            let Some(last) = rows.last() else { break };
            place = InboxPlace::behind(last);
            let free = self.free(&rows, pending.as_ref(), &mut purged.kept);
            if !free.is_empty() {
                let gone = self.portion(&free, (before, window), archive.as_mut()).await?;
                purged.inbox += gone;
                purged.kept.locked += free.len() as u64 - gone;
                self.count_gone("inbox", gone);
            }
            self.lease().await?;
            pause(began).await;
        }
        if !stop.is_cancelled() {
            // Versions and letters outlive the rows that they belong to.
            self.other_tables(before - skew(window), &mut purged).await?;
        }
        purged.horizon = self.horizon().await?;
        purged.archive = archive.and_then(|archive| archive.written());
        Ok(purged)
    }

    /// Deletes rows of one portion: first the horizon, then the archive, then the rows.
    async fn portion(
        &self,
        free: &[&OldRow],
        (before, window): (Timestamp, Duration),
        archive: Option<&mut Archive>,
    ) -> Result<u64, PurgeError> {
        let Some(newest) = free.last() else { return Ok(0) };
        // The next instant, for what was received at this very one goes too.
        let horizon = instant(&newest.received_at)? + skew(window) + Duration::from_millis(1);
        self.store.raise_purge_horizon(&self.pipeline, horizon).await?;
        failpoint::at("after-horizon").await?;
        let mut tx = self.store.begin().await?;
        let keys: Vec<&[u8]> = free.iter().map(|row| row.key.as_slice()).collect();
        let entries = tx.lock_old_rows(&keys, before).await?;
        if entries.is_empty() {
            tx.rollback().await;
            return Ok(0);
        }
        if let Some(archive) = archive {
            archive.append(&entries).await?;
        }
        failpoint::at("after-archive").await?;
        let keys: Vec<&[u8]> = entries.iter().map(|entry| entry.key.as_slice()).collect();
        let gone = tx.delete_inbox(&keys).await?;
        tx.commit().await?;
        failpoint::at("after-purge").await?;
        Ok(gone)
    }

    /// The rows of a portion that may go.
    fn free<'r>(&self, rows: &'r [OldRow], pending: Option<&HashSet<String>>, kept: &mut Kept) -> Vec<&'r OldRow> {
        let mut free = Vec::with_capacity(rows.len());
        for row in rows {
            match row.stays {
                Some(Stays::Unfinished) => kept.unfinished += 1,
                Some(Stays::OpenDeadLetter) => kept.open_dead_letter += 1,
                None if pending.is_none_or(|pending| is_pending(row, pending)) => kept.receipt_pending += 1,
                None => free.push(row),
            }
        }
        free
    }

    /// Receipts from before the window that wait still; None if they are too many to be told apart.
    async fn pending(&self, before: Timestamp) -> Result<Option<HashSet<String>>, StoreError> {
        // Ids of the outbox are given out in about the order of time: as a rule the oldest one settles it.
        let old = |oldest: Timestamp| oldest < before + Duration::from_secs(3600);
        if !self.store.oldest_pending().await?.is_some_and(old) {
            return Ok(Some(HashSet::new()));
        }
        let ids = self.store.old_pending_receipts(&self.pipeline, before, MOST_PENDING + 1).await?;
        Ok((ids.len() <= MOST_PENDING).then(|| ids.into_iter().collect()))
    }

    /// Walks on through the tables that have no index by time: a part of them each round.
    async fn other_tables(&self, before: Timestamp, purged: &mut Purged) -> Result<(), PurgeError> {
        let mut places = self.walks.0.lock().await;
        for _ in 0..WALK {
            let began = Instant::now();
            let portion = self.store.old_dead_letters(&self.pipeline, before, places.dead_letter, PORTION).await?;
            if !portion.old.is_empty() {
                purged.dead_letters += self.store.delete_dead_letters(&portion.old, before).await?;
            }
            places.dead_letter = portion.next.unwrap_or(0);
            if portion.next.is_none() {
                break;
            }
            pause(began).await;
        }
        for _ in 0..WALK {
            let began = Instant::now();
            let portion = self.store.old_row_versions(&self.pipeline, before, &places.version, PORTION).await?;
            if !portion.old.is_empty() {
                purged.row_versions += self.store.delete_row_versions(&self.pipeline, &portion.old, before).await?;
            }
            let more = portion.next.is_some();
            places.version = portion.next.unwrap_or_default();
            if !more {
                break;
            }
            pause(began).await;
        }
        for _ in 0..WALK {
            let began = Instant::now();
            let (gone, more) = self.store.delete_reconcile_batches(&self.pipeline, before, PORTION).await?;
            purged.reconcile_batches += gone;
            if !more {
                break;
            }
            pause(began).await;
        }
        self.count_gone("dead_letters", purged.dead_letters);
        self.count_gone("row_versions", purged.row_versions);
        self.count_gone("reconcile_batches", purged.reconcile_batches);
        Ok(())
    }

    fn count_gone(&self, table: &str, rows: u64) {
        self.metrics.purged.with_label_values(&[&*self.pipeline, table]).inc_by(rows);
    }

    async fn horizon(&self) -> Result<Option<String>, StoreError> {
        Ok(self.store.purge_horizon(&self.pipeline).await?.map(|horizon| horizon.to_string()))
    }

    async fn lease(&self) -> Result<(), PurgeError> {
        match self.store.take_lease(&self.lease_name(), &self.owner, LEASE).await? {
            true => Ok(()),
            false => Err(PurgeError::Busy),
        }
    }

    fn lease_name(&self) -> String {
        of_pipeline("purge", &self.pipeline)
    }
}

fn is_pending(row: &OldRow, pending: &HashSet<String>) -> bool {
    let sent = |version| {
        let kinds = [ReceiptKind::Terminal { version }, ReceiptKind::Processing { version }];
        kinds.iter().any(|kind| pending.contains(&receipt_id(&row.key, *kind)))
    };
    !pending.is_empty() && (1..=row.version).any(sent)
}

/// As long as the portion took, so that lanes have the database for themselves half of the time.
async fn pause(began: Instant) {
    tokio::time::sleep(began.elapsed().max(PAUSE)).await;
}
