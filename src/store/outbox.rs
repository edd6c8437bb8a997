//! Receipts that are committed and not yet delivered.

use std::sync::Arc;
use std::time::Duration;

use super::bind::{Array, cut};
use super::lease::left;
use super::meta::{clock, instant_ms, time_bind};
use super::{Bind, Dialect, Store, StoreError, StoreRow, Tx};

/// A receipt on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReceipt {
    pub receipt_id: String,
    /// The Kafka key.
    pub receipt_key: String,
    pub receipt: String,
}

/// A receipt that waits for its delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingReceipt {
    pub id: i64,
    pub receipt_id: String,
    pub receipt_key: String,
    pub receipt: String,
    /// Milliseconds since 1970 by the database's clock.
    pub created_ms: i64,
}

/// The oldest receipts of a lane, and what is left of the lease that they were asked for with.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    pub receipts: Vec<PendingReceipt>,
    /// None if this owner does not hold the lease. Not known where nothing waits.
    pub lease: Option<Duration>,
}

/// Receipts of a lane that somebody asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontOf<'a> {
    pub topic: &'a str,
    pub partition: i32,
    /// Up to this number.
    pub last: i64,
    /// The name of the lane's lease.
    pub lease: String,
}

/// What stands at the front of a lane's receipts.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// The number of the oldest one.
    pub oldest: Option<i64>,
    /// How many wait, or one more than were asked for.
    pub waiting: i64,
    /// What is left of the lease; none if this owner does not hold it.
    pub lease: Option<Duration>,
}

const COLUMNS: usize = 7;

const INSERT_PG: &str = "WITH new AS (INSERT INTO countersign_outbox \
    (receipt_id, receipt_key, receipt, pipeline, topic, kafka_partition, created_at) \
    SELECT u.receipt_id, u.receipt_key, u.receipt, $4, $5, CAST($6 AS integer), CAST($7 AS timestamptz) \
    FROM unnest(CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[])) \
    WITH ORDINALITY AS u(receipt_id, receipt_key, receipt, n) ORDER BY u.n RETURNING id) \
    SELECT array_agg(id) FROM new";

/// Each row by its number. Of `receipt_id = ANY(…)` a prepared statement would look through the whole array for each row,
/// and a join it would plan by what it takes for the size of a table that is empty now and long a moment later.
const DELETE_PG: &str = "DELETE FROM countersign_outbox WHERE ctid = ANY(ARRAY(SELECT o.place \
    FROM unnest(CAST($1 AS bigint[]), CAST($2 AS text[])) AS d(id, receipt_id), LATERAL (SELECT ctid AS place \
    FROM countersign_outbox WHERE id = d.id AND receipt_id = d.receipt_id OFFSET 0) AS o))";

const INSERT_ROWS: &str = "INSERT INTO countersign_outbox \
    (receipt_id, receipt_key, receipt, pipeline, topic, kafka_partition, created_at) VALUES ";

impl Tx {
    /// Enqueues receipts in this order. `lane` is where their message was first seen, whoever works on it: all receipts
    /// of a message go one way, and so in the order in which they are enqueued. None only where it has no place.
    ///
    /// The answer are the same receipts with their numbers, if the database tells them with the insert; otherwise they
    /// are to be looked for.
    pub async fn enqueue_receipts(
        &mut self,
        pipeline: &str,
        lane: Option<(&str, i32)>,
        now: &str,
        receipts: Vec<NewReceipt>,
    ) -> Result<Vec<PendingReceipt>, StoreError> {
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let dialect = self.dialect();
        let head = [
            Bind::text(pipeline),
            Bind::opt_text(lane.map(|(topic, _)| topic)),
            Bind::opt_int(lane.map(|(_, partition)| i64::from(partition))),
            time_bind(dialect, now),
        ];
        if dialect == Dialect::Postgres {
            let texts = |field: fn(&NewReceipt) -> &str| {
                Bind::Array(Array::texts(receipts.iter().map(|receipt| Some(field(receipt)))))
            };
            let mut binds = vec![
                texts(|receipt| &receipt.receipt_id),
                texts(|receipt| &receipt.receipt_key),
                texts(|receipt| &receipt.receipt),
            ];
            binds.extend(head);
            let rows = self.fetch(INSERT_PG, binds).await?;
            let ids = rows.first().map(|row| row.ints(0)).transpose()?.unwrap_or_default();
            return numbered(receipts, ids, now);
        }
        let [pipeline, topic, partition, created] = head;
        let row = |new: NewReceipt| -> [Bind; COLUMNS] {
            let (id, key, text) = (Bind::Text(new.receipt_id), Bind::Text(new.receipt_key), Bind::Text(new.receipt));
            [id, key, text, pipeline.clone(), topic.clone(), partition.clone(), created.clone()]
        };
        let rows = receipts.into_iter().map(row).collect();
        for chunk in cut(rows, dialect.max_binds() / COLUMNS, self.statement_bytes()) {
            let sql = format!("{INSERT_ROWS}{}", dialect.value_rows(chunk.len(), COLUMNS));
            self.execute(&sql, chunk.into_iter().flatten().collect()).await?;
        }
        Ok(Vec::new())
    }
}

/// Numbers are given out in the order of the rows.
fn numbered(receipts: Vec<NewReceipt>, mut ids: Vec<i64>, now: &str) -> Result<Vec<PendingReceipt>, StoreError> {
    if ids.len() != receipts.len() {
        return Err(StoreError::Unexpected("receipts were enqueued without their numbers".to_owned()));
    }
    ids.sort_unstable();
    let created_ms = instant_ms(now)?;
    let numbered = receipts.into_iter().zip(ids).map(|(new, id)| PendingReceipt {
        id,
        receipt_id: new.receipt_id,
        receipt_key: new.receipt_key,
        receipt: new.receipt,
        created_ms,
    });
    Ok(numbered.collect())
}

impl Store {
    /// The oldest receipts of a lane, read together with the lease of whoever delivers them. "Not yet delivered" is
    /// "still there": never "above the last id", for ids are not given out in the order of commits.
    pub async fn pending_receipts(
        &self,
        pipeline: &str,
        lane: Option<(&str, i32)>,
        (lease, owner): (&str, &str),
        limit: usize,
    ) -> Result<Pending, StoreError> {
        let dialect = self.dialect();
        let (condition, mut binds) = lane_condition(dialect, pipeline, lane, 1);
        binds.insert(0, Bind::text(lease));
        let sql = format!(
            "SELECT id, receipt_key, receipt, {}, receipt_id, (SELECT value FROM countersign_meta WHERE name = {}), \
             (SELECT {}) FROM countersign_outbox WHERE {condition} ORDER BY id LIMIT {limit}",
            dialect.since_1970("created_at"),
            dialect.placeholder(0),
            clock(dialect),
        );
        let rows = self.read(&sql, binds).await?;
        let lease = match rows.last() {
            Some(row) => left(&row.opt_text(5)?.unwrap_or_default(), &row.text(6)?, owner)?,
            None => None,
        };
        let receipt = |row: &StoreRow| {
            Ok(PendingReceipt {
                id: row.int(0)?,
                receipt_key: row.text(1)?,
                receipt: row.text(2)?,
                created_ms: row.int(3)?,
                receipt_id: row.text(4)?,
            })
        };
        Ok(Pending { receipts: rows.iter().map(receipt).collect::<Result<_, StoreError>>()?, lease })
    }

    /// The lanes that have receipts waiting; None stands for receipts without a place. Each is found by the index, one
    /// after the other: of a long queue only the heads are looked at.
    pub async fn lanes_with_receipts(&self, pipeline: &str) -> Result<Vec<Option<(Arc<str>, i32)>>, StoreError> {
        let (mut lanes, mut last) = (Vec::new(), None);
        loop {
            let next = match &last {
                None => self.lane_behind(pipeline, "topic IS NOT NULL", Vec::new()).await?,
                Some((topic, partition)) => {
                    let place = |index| self.dialect().placeholder(index);
                    let topic = || Bind::text(topic);
                    let same = format!("topic = {} AND kafka_partition > {partition}", place(1));
                    match self.lane_behind(pipeline, &same, vec![topic()]).await? {
                        None => self.lane_behind(pipeline, &format!("topic > {}", place(1)), vec![topic()]).await?,
                        found => found,
                    }
                }
            };
            let Some((topic, partition)) = next else { break };
            lanes.push(Some((Arc::from(topic.as_str()), partition)));
            last = Some((topic, partition));
        }
        let place = self.dialect().placeholder(0);
        let nowhere =
            format!("SELECT id FROM countersign_outbox WHERE pipeline = {place} AND topic IS NULL ORDER BY id LIMIT 1");
        if !self.read(&nowhere, vec![Bind::text(pipeline)]).await?.is_empty() {
            lanes.push(None);
        }
        Ok(lanes)
    }

    /// The first lane with receipts of those that meet a condition.
    async fn lane_behind(
        &self,
        pipeline: &str,
        condition: &str,
        binds: Vec<Bind>,
    ) -> Result<Option<(String, i32)>, StoreError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT topic, CAST(kafka_partition AS {}) FROM countersign_outbox WHERE pipeline = {} AND {condition} \
             ORDER BY topic, kafka_partition LIMIT 1",
            dialect.bigint(),
            dialect.placeholder(0)
        );
        let binds = std::iter::once(Bind::text(pipeline)).chain(binds).collect();
        let rows = self.read(&sql, binds).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let partition = i32::try_from(row.int(1)?)
            .map_err(|_| StoreError::Unexpected("an outbox row without a partition".to_owned()))?;
        Ok(Some((row.text(0)?, partition)))
    }

    /// What stands at the front of each of these lanes. Not more than `most` and one are counted: a backlog may be long.
    pub async fn fronts(
        &self,
        pipeline: &str,
        lanes: &[FrontOf<'_>],
        most: usize,
        owner: &str,
    ) -> Result<Vec<Front>, StoreError> {
        let dialect = self.dialect();
        debug_assert_eq!(dialect, Dialect::Postgres, "no other tells the numbers of what is inserted");
        let sql = format!(
            "SELECT w.oldest, w.waiting, (SELECT value FROM countersign_meta WHERE name = l.lease), {} \
             FROM unnest(CAST($2 AS text[]), CAST($3 AS bigint[]), CAST($4 AS bigint[]), CAST($5 AS text[])) \
             WITH ORDINALITY AS l(topic, kafka_partition, last, lease, n), \
             LATERAL (SELECT MIN(f.id) AS oldest, COUNT(*) AS waiting FROM (SELECT o.id FROM countersign_outbox o \
             WHERE o.pipeline = $1 AND o.topic = l.topic AND o.kafka_partition = l.kafka_partition AND o.id <= l.last \
             ORDER BY o.id LIMIT $6) AS f) AS w ORDER BY l.n",
            clock(dialect)
        );
        let binds = vec![
            Bind::text(pipeline),
            Bind::Array(Array::texts(lanes.iter().map(|lane| Some(lane.topic)))),
            Bind::Array(Array::ints(lanes.iter().map(|lane| i64::from(lane.partition)))),
            Bind::Array(Array::ints(lanes.iter().map(|lane| lane.last))),
            Bind::Array(Array::texts(lanes.iter().map(|lane| Some(lane.lease.as_str())))),
            Bind::Int(most as i64 + 1),
        ];
        let rows = self.read(&sql, binds).await?;
        let front = |row: &StoreRow| {
            let lease = left(&row.opt_text(2)?.unwrap_or_default(), &row.text(3)?, owner)?;
            Ok(Front { oldest: row.opt_int(0)?, waiting: row.int(1)?, lease })
        };
        rows.iter().map(front).collect()
    }

    /// Removes receipts that the broker has acknowledged. Not by their numbers alone: a store that went back meanwhile
    /// gives the same numbers to others.
    pub async fn delivered(&self, receipts: &[&PendingReceipt]) -> Result<(), StoreError> {
        let dialect = self.dialect();
        for chunk in receipts.chunks(dialect.max_binds() / 4) {
            let numbers = chunk.iter().map(|receipt| receipt.id);
            let ids = chunk.iter().map(|receipt| receipt.receipt_id.as_str());
            let (sql, binds) = match dialect {
                Dialect::Postgres => (
                    DELETE_PG.to_owned(),
                    vec![Bind::Array(Array::ints(numbers)), Bind::Array(Array::texts(ids.map(Some)))],
                ),
                Dialect::MySql | Dialect::Sqlite => {
                    let list = dialect.value_rows(1, chunk.len());
                    (
                        format!("DELETE FROM countersign_outbox WHERE id IN {list} AND receipt_id IN {list}"),
                        numbers.map(Bind::Int).chain(ids.map(Bind::text)).collect(),
                    )
                }
            };
            self.write(&sql, binds).await?;
        }
        Ok(())
    }

    /// The newest receipt that waits.
    pub async fn newest_pending(&self, pipeline: &str) -> Result<Option<i64>, StoreError> {
        let sql = format!("SELECT MAX(id) FROM countersign_outbox WHERE pipeline = {}", self.dialect().placeholder(0));
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(None), |row| row.opt_int(0))
    }

    /// How many receipts up to this one wait.
    pub async fn count_pending_to(&self, pipeline: &str, id: i64) -> Result<i64, StoreError> {
        let place = self.dialect().placeholder(0);
        let sql = format!("SELECT COUNT(*) FROM countersign_outbox WHERE pipeline = {place} AND id <= {id}");
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    /// How many receipts of a pipeline wait.
    pub async fn count_pending(&self, pipeline: &str) -> Result<i64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM countersign_outbox WHERE pipeline = {}", self.dialect().placeholder(0));
        let rows = self.read(&sql, vec![Bind::text(pipeline)]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }
}

/// With its binds, which stand behind `before` others.
fn lane_condition(dialect: Dialect, pipeline: &str, lane: Option<(&str, i32)>, before: usize) -> (String, Vec<Bind>) {
    let place = |index| dialect.placeholder(before + index);
    match lane {
        Some((topic, partition)) => (
            format!("pipeline = {} AND topic = {} AND kafka_partition = {}", place(0), place(1), partition),
            vec![Bind::text(pipeline), Bind::text(topic)],
        ),
        None => (format!("pipeline = {} AND topic IS NULL", place(0)), vec![Bind::text(pipeline)]),
    }
}
