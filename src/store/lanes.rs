//! Lane rows: who owns a partition's work and how far it is done.
//!
//! The row is locked by the first statement of each of the lane's transactions and until its end (the fence), so
//! that a worker that lost the partition cannot commit after the new owner has begun.
//!
//! Slices of one lane fence side by side, with a lock that they share and a takeover does not, and each writes the row at
//! its end. On PostgreSQL that is one row: FOR KEY SHARE goes with an update, and not with FOR UPDATE; an advisory lock stands
//! before it, for nobody waits behind a row lock that is wanted, and a takeover would be passed over without end. InnoDB knows
//! no such locks; there slices share a lock of a row in `countersign_meta` instead, which each takeover writes.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::meta::{clock, of_pipeline, time_text};
use super::{Bind, Dialect, Sql, Store, StoreError, StoreRow, Tx};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey {
    pub pipeline: Arc<str>,
    pub topic: Arc<str>,
    pub partition: i32,
}

/// A lane row as a fence or a look-up read it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneRow {
    /// Raised at each assignment; a worker with another one is not the owner.
    pub epoch: i64,
    pub owner: String,
    /// Raised when the topic was made anew.
    pub generation: i64,
    /// Everything below has a durable outcome. Only grows within one generation.
    pub next_offset: i64,
    /// Records with an outcome, ever.
    pub records_seen: i64,
    /// `records_seen` at each of the last parks, parted by commas: the window of the systemic pause.
    pub recent_parks: String,
    /// Why the lane stands, if it was paused.
    pub paused: Option<String>,
    /// Records below this offset are parked by an operator's wish; [`SKIP_NEXT`] means the next record alone.
    pub skip_to: Option<i64>,
    pub store_epoch: String,
    /// The database's clock at the time of reading.
    pub now: String,
}

/// What a lane's transaction leaves in its row.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneAdvance {
    pub next_offset: i64,
    pub records_seen: i64,
    pub recent_parks: String,
    pub paused: Option<String>,
    pub skip_to: Option<i64>,
}

/// A lane for people.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneStatus {
    pub topic: String,
    pub partition: i64,
    pub epoch: i64,
    pub owner: String,
    pub generation: i64,
    pub next_offset: i64,
    pub records_seen: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// What an operator wants parked: everything below this offset, or with -1 the next record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_to: Option<i64>,
    /// Why the lane stands, if it does and its owner could say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<String>,
    pub updated_at: String,
}

/// `skip_to` of a lane whose next record is to be parked, wherever it stands: behind a gap its offset is not known.
pub const SKIP_NEXT: i64 = -1;

const COLUMNS: &str = "epoch, owner, CAST(generation AS {int}), next_offset, records_seen, recent_parks, paused, skip_to, \
     (SELECT value FROM countersign_meta WHERE name = 'store_epoch')";

const ACQUIRE: Sql = Sql {
    postgres: "INSERT INTO countersign_lanes (pipeline, topic, kafka_partition, epoch, owner, next_offset, updated_at) \
        VALUES ($1, $2, CAST($3 AS integer), 1, $4, CAST($5 AS bigint), now()) \
        ON CONFLICT (pipeline, topic, kafka_partition) \
        DO UPDATE SET epoch = countersign_lanes.epoch + 1, owner = excluded.owner, updated_at = now()",
    mysql: "INSERT INTO countersign_lanes (pipeline, topic, kafka_partition, epoch, owner, next_offset, recent_parks, updated_at) \
        VALUES (?, ?, ?, 1, ?, ?, '', UTC_TIMESTAMP(6)) \
        ON DUPLICATE KEY UPDATE epoch = epoch + 1, owner = VALUES(owner), updated_at = UTC_TIMESTAMP(6)",
    sqlite: "INSERT INTO countersign_lanes (pipeline, topic, kafka_partition, epoch, owner, next_offset, updated_at) \
        VALUES (?, ?, ?, 1, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) \
        ON CONFLICT (pipeline, topic, kafka_partition) \
        DO UPDATE SET epoch = epoch + 1, owner = excluded.owner, updated_at = excluded.updated_at",
};

const ADVANCE: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET next_offset = GREATEST(next_offset, $1), records_seen = $2, recent_parks = $3, \
        paused = $4, skip_to = $5, updated_at = now() WHERE pipeline = $6 AND topic = $7 AND kafka_partition = CAST($8 AS integer)",
    mysql: "UPDATE countersign_lanes SET next_offset = GREATEST(next_offset, ?), records_seen = ?, recent_parks = ?, \
        paused = ?, skip_to = ?, updated_at = UTC_TIMESTAMP(6) WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
    sqlite: "UPDATE countersign_lanes SET next_offset = MAX(next_offset, ?), records_seen = ?, recent_parks = ?, \
        paused = ?, skip_to = ?, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
};

const REGENERATE: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET generation = generation + 1, next_offset = $1, skip_to = NULL \
        WHERE pipeline = $2 AND topic = $3 AND kafka_partition = CAST($4 AS integer)",
    mysql: "UPDATE countersign_lanes SET generation = generation + 1, next_offset = ?, skip_to = NULL \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
    sqlite: "UPDATE countersign_lanes SET generation = generation + 1, next_offset = ?, skip_to = NULL \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
};

const STANDS: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET standing = $1 WHERE pipeline = $2 AND topic = $3 AND kafka_partition = CAST($4 AS integer) AND owner = $5",
    mysql: "UPDATE countersign_lanes SET standing = ? WHERE pipeline = ? AND topic = ? AND kafka_partition = ? AND owner = ?",
    sqlite: "UPDATE countersign_lanes SET standing = ? WHERE pipeline = ? AND topic = ? AND kafka_partition = ? AND owner = ?",
};

const PAUSE: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET paused = $1 WHERE pipeline = $2 AND topic = $3 AND kafka_partition = CAST($4 AS integer)",
    mysql: "UPDATE countersign_lanes SET paused = ? WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
    sqlite: "UPDATE countersign_lanes SET paused = ? WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
};

/// Resuming forgets the window too, for the parks that paused the lane would pause it again at the next one, and a
/// skip that is not used up.
const RESUME: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET paused = NULL, recent_parks = '', skip_to = NULL \
        WHERE pipeline = $1 AND topic = $2 AND kafka_partition = CAST($3 AS integer)",
    mysql: "UPDATE countersign_lanes SET paused = NULL, recent_parks = '', skip_to = NULL \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
    sqlite: "UPDATE countersign_lanes SET paused = NULL, recent_parks = '', skip_to = NULL \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
};

const SKIP: Sql = Sql {
    postgres: "UPDATE countersign_lanes SET skip_to = CAST($1 AS bigint), paused = NULL, recent_parks = '' \
        WHERE pipeline = $2 AND topic = $3 AND kafka_partition = CAST($4 AS integer)",
    mysql: "UPDATE countersign_lanes SET skip_to = ?, paused = NULL, recent_parks = '' \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
    sqlite: "UPDATE countersign_lanes SET skip_to = ?, paused = NULL, recent_parks = '' \
        WHERE pipeline = ? AND topic = ? AND kafka_partition = ?",
};

impl LaneRow {
    /// What work without an assignment goes by instead of a row: no mark of the gate counts against it, nothing pauses it.
    pub fn unassigned(generation: i64, now: String) -> Self {
        Self {
            epoch: 0,
            owner: String::new(),
            generation,
            next_offset: 0,
            records_seen: 0,
            recent_parks: String::new(),
            paused: None,
            skip_to: None,
            store_epoch: String::new(),
            now,
        }
    }
}

impl LaneKey {
    fn binds(&self) -> [Bind; 3] {
        [Bind::text(&*self.pipeline), Bind::text(&*self.topic), Bind::Int(i64::from(self.partition))]
    }

    /// Of the advisory lock that slices share on PostgreSQL.
    fn fence_number(&self) -> i64 {
        let hash: [u8; 32] = Sha256::digest(self.fence_name()).into();
        i64::from_be_bytes(std::array::from_fn(|n| hash[n]))
    }

    /// Of the row whose lock slices share on InnoDB.
    fn fence_name(&self) -> String {
        of_pipeline("lane_fence", &format!("{}\n{}\n{}", self.pipeline, self.topic, self.partition))
    }
}

/// How a lane's row is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    None,
    /// Nobody else has it.
    Alone,
    /// Slices may hold the fence.
    BesideFences,
    /// What slices share.
    Shared,
}

impl Lock {
    fn clause(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            // The whole file is locked by BEGIN IMMEDIATE.
            (Self::None, _) | (_, Dialect::Sqlite) => "",
            (Self::Alone, _) | (Self::BesideFences, Dialect::MySql) => " FOR UPDATE",
            (Self::BesideFences, Dialect::Postgres) => " FOR NO KEY UPDATE",
            (Self::Shared, Dialect::Postgres) => " FOR KEY SHARE",
            // It is another row that is locked.
            (Self::Shared, Dialect::MySql) => "",
        }
    }
}

fn select(dialect: Dialect, lock: Lock) -> String {
    let int = match dialect {
        Dialect::Postgres => "bigint",
        Dialect::MySql => "SIGNED",
        Dialect::Sqlite => "INTEGER",
    };
    let lock = lock.clause(dialect);
    let condition = match dialect {
        Dialect::Postgres => "pipeline = $1 AND topic = $2 AND kafka_partition = CAST($3 AS integer)",
        Dialect::MySql | Dialect::Sqlite => "pipeline = ? AND topic = ? AND kafka_partition = ?",
    };
    let columns = COLUMNS.replace("{int}", int);
    format!("SELECT {columns}, {} FROM countersign_lanes WHERE {condition}{lock}", clock(dialect))
}

fn lane_row(row: &StoreRow) -> Result<LaneRow, StoreError> {
    Ok(LaneRow {
        epoch: row.int(0)?,
        owner: row.text(1)?,
        generation: row.int(2)?,
        next_offset: row.int(3)?,
        records_seen: row.int(4)?,
        recent_parks: row.text(5)?,
        paused: row.opt_text(6)?,
        skip_to: row.opt_int(7)?,
        store_epoch: row
            .opt_text(8)?
            .ok_or_else(|| StoreError::Setup("the store has no epoch: run `countersign migrate`".to_owned()))?,
        now: row.text(9)?,
    })
}

impl Tx {
    /// The fence: reads the lane row and locks it until the end of the transaction. The caller compares epoch
    /// and owner with its own. Must be the transaction's first statement.
    pub async fn fence(&mut self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        self.read_lane(lane, Lock::Alone).await
    }

    /// The fence of a slice: other slices hold it at the same time, and a takeover waits for all of them. Must be the
    /// transaction's first statement. None also where no takeover has left what slices lock.
    pub async fn fence_slice(&mut self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        match self.dialect() {
            Dialect::Postgres => {
                let lock = "SELECT 1 FROM pg_advisory_xact_lock_shared($1)";
                self.fetch(lock, vec![Bind::Int(lane.fence_number())]).await.map(drop)?;
            }
            Dialect::MySql => {
                let lock = "SELECT 1 FROM countersign_meta WHERE name = ? LOCK IN SHARE MODE";
                if self.fetch(lock, vec![Bind::Text(lane.fence_name())]).await?.is_empty() {
                    return Ok(None);
                }
            }
            Dialect::Sqlite => {}
        }
        self.read_lane(lane, Lock::Shared).await
    }

    /// The row as it is now, for the slice that is about to write it and has fenced before.
    pub async fn lock_lane(&mut self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        self.read_lane(lane, Lock::BesideFences).await
    }

    async fn read_lane(&mut self, lane: &LaneKey, lock: Lock) -> Result<Option<LaneRow>, StoreError> {
        let rows = self.fetch(&select(self.dialect(), lock), lane.binds().into()).await?;
        rows.first().map(lane_row).transpose()
    }

    /// Takes the lane over, once no slice of its former owner is at work: the epoch goes up by one, and every worker with
    /// an older one is fenced off.
    pub async fn acquire_lane(&mut self, lane: &LaneKey, owner: &str, next_offset: i64) -> Result<LaneRow, StoreError> {
        match self.dialect() {
            Dialect::Postgres => {
                let lock = "SELECT 1 FROM pg_advisory_xact_lock($1)";
                self.fetch(lock, vec![Bind::Int(lane.fence_number())]).await.map(drop)?;
                // A row that is not there has no slices.
                self.fence(lane).await.map(drop)?;
            }
            Dialect::MySql => self.set_meta(&lane.fence_name(), owner).await?,
            Dialect::Sqlite => {}
        }
        let mut binds = Vec::from(lane.binds());
        binds.push(Bind::text(owner));
        binds.push(Bind::Int(next_offset));
        self.execute(ACQUIRE.of(self.dialect()), binds).await?;
        self.fence(lane).await?.ok_or_else(|| StoreError::Unexpected("a lane row vanished".to_owned()))
    }

    pub async fn advance_lane(&mut self, lane: &LaneKey, advance: &LaneAdvance) -> Result<(), StoreError> {
        let mut binds = vec![
            Bind::Int(advance.next_offset),
            Bind::Int(advance.records_seen),
            Bind::text(&advance.recent_parks),
            Bind::opt_text(advance.paused.as_deref()),
            Bind::opt_int(advance.skip_to),
        ];
        binds.extend(lane.binds());
        self.execute(ADVANCE.of(self.dialect()), binds).await.map(drop)
    }

    /// The topic was made anew: offsets begin again, and synthetic keys of the old life must not meet new ones.
    pub async fn regenerate_lane(&mut self, lane: &LaneKey, next_offset: i64) -> Result<(), StoreError> {
        let mut binds = vec![Bind::Int(next_offset)];
        binds.extend(lane.binds());
        self.execute(REGENERATE.of(self.dialect()), binds).await.map(drop)
    }
}

impl Store {
    pub async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        let rows = self.read(&select(self.dialect(), Lock::None), lane.binds().into()).await?;
        rows.first().map(lane_row).transpose()
    }

    pub async fn lanes(&self, pipeline: &str) -> Result<Vec<LaneStatus>, StoreError> {
        let dialect = self.dialect();
        let int = dialect.bigint();
        let sql = format!(
            "SELECT topic, CAST(kafka_partition AS {int}), epoch, owner, CAST(generation AS {int}), next_offset, records_seen, \
             paused, skip_to, {}, standing FROM countersign_lanes WHERE pipeline = {} ORDER BY topic, kafka_partition",
            time_text(dialect, "updated_at"),
            dialect.placeholder(0),
        );
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.iter()
            .map(|row| {
                Ok(LaneStatus {
                    topic: row.text(0)?,
                    partition: row.int(1)?,
                    epoch: row.int(2)?,
                    owner: row.text(3)?,
                    generation: row.int(4)?,
                    next_offset: row.int(5)?,
                    records_seen: row.int(6)?,
                    paused: row.opt_text(7)?,
                    skip_to: row.opt_int(8)?,
                    updated_at: row.text(9)?,
                    standing: row.opt_text(10)?,
                })
            })
            .collect()
    }

    /// Notes for people why a lane of this owner stands, or that it works.
    pub async fn lane_stands(&self, lane: &LaneKey, owner: &str, why: Option<&str>) -> Result<(), StoreError> {
        let mut binds = vec![Bind::opt_text(why)];
        binds.extend(lane.binds());
        binds.push(Bind::text(owner));
        self.write(STANDS.of(self.dialect()), binds).await.map(drop)
    }

    /// False where there is no such lane.
    pub async fn pause_lane(&self, lane: &LaneKey, reason: &str) -> Result<bool, StoreError> {
        let mut binds = vec![Bind::text(reason)];
        binds.extend(lane.binds());
        Ok(self.write(PAUSE.of(self.dialect()), binds).await? > 0)
    }

    pub async fn resume_lane(&self, lane: &LaneKey) -> Result<bool, StoreError> {
        Ok(self.write(RESUME.of(self.dialect()), lane.binds().into()).await? > 0)
    }

    /// Parks the record at which a lane stands, and lets it go on; false if it has gone on by itself.
    pub async fn skip_record(&self, lane: &LaneKey, offset: i64) -> Result<bool, StoreError> {
        self.order_skip(lane, SKIP_NEXT, &format!(" AND next_offset = {offset}")).await
    }

    /// Parks what stands below `to`, and lets the lane go on.
    pub async fn skip_lane(&self, lane: &LaneKey, to: i64) -> Result<bool, StoreError> {
        self.order_skip(lane, to, "").await
    }

    async fn order_skip(&self, lane: &LaneKey, to: i64, condition: &str) -> Result<bool, StoreError> {
        let mut binds = vec![Bind::Int(to)];
        binds.extend(lane.binds());
        Ok(self.write(&format!("{}{condition}", SKIP.of(self.dialect())), binds).await? > 0)
    }
}
