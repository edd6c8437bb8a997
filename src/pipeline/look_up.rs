//! What became of a commit that was not answered.

use std::time::Duration;

use rand::Rng as _;
use tracing::warn;

use super::attempt::Attempt;
use super::tenure::Trace;
use crate::store::inbox::{BatchHead, NewRow};
use crate::store::{Meaning, StoreError};

impl Attempt<'_> {
    /// A commit without an answer: the lane row tells. Reading it under the fence waits for the end of the
    /// transaction in doubt, if the server is still at it.
    pub(super) async fn look_up(&self, left: Trace, error: StoreError) -> Result<bool, StoreError> {
        warn!(%error, topic = %self.lane.key.topic, partition = self.lane.key.partition, "looking the outcome up");
        let mut wait = Duration::from_millis(50);
        loop {
            let looked = async {
                let mut tx = self.shared.store.begin().await?;
                // Slices at work are not waited for: what they do is not in question.
                let row = match self.slices {
                    None => tx.fence(&self.lane.key).await?,
                    Some(_) => tx.lock_lane(&self.lane.key).await?,
                };
                tx.rollback().await;
                Ok::<_, StoreError>(row)
            };
            match looked.await {
                Ok(row) => {
                    let tenure = self.lane.tenure.as_ref();
                    return Ok(row
                        .zip(tenure)
                        .is_some_and(|(row, tenure)| tenure.committed(&row, self.known.get(), left)));
                }
                Err(error) if error.meaning() == Meaning::Fatal => return Err(error),
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(Duration::from_secs(2));
        }
    }

    /// The same for work without a lane: the inbox rows tell. Inserting them once more waits for the end of the
    /// transaction in doubt; a row that bears its token then is committed. Where it inserted none, it is run again,
    /// which changes nothing.
    pub(super) async fn look_up_rows(
        &self,
        head: &BatchHead<'_>,
        rows: &[NewRow<'_>],
        error: StoreError,
    ) -> Result<bool, StoreError> {
        warn!(%error, topic = %self.lane.key.topic, partition = self.lane.key.partition, "looking the outcome up");
        let mut wait = Duration::from_millis(50);
        loop {
            let looked = async {
                let mut tx = self.shared.store.begin().await?;
                let probe = BatchHead { token: rand::rng().random::<i64>(), ..head.clone() };
                let known = tx.record_inbox(&probe, rows).await?;
                tx.rollback().await;
                Ok::<_, StoreError>(known)
            };
            match looked.await {
                Ok(known) => return Ok(known.rows.iter().flatten().any(|row| row.token == head.token)),
                Err(error) if error.meaning() == Meaning::Fatal => return Err(error),
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(Duration::from_secs(2));
        }
    }
}
