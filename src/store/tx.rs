//! A connection in use, and the transaction on it.

use std::time::Duration;

use futures::TryStreamExt;
use sqlx::{AssertSqlSafe, Executor};

use super::Conn;
use super::bind::{Bind, StoreRow, mysql_arguments, pg_arguments, sqlite_arguments};
use super::dialect::Dialect;
use super::error::StoreError;
use crate::failpoint;

/// Enough for a statement to be worth its round trip; `max_allowed_packet` was 4 MiB by default in MySQL 5.7, and is more
/// since.
const MOST_BYTES: usize = 2 << 20;
/// The length and the type that go with a value.
const BESIDE_VALUE: usize = 11;

/// An open transaction. Dropped without commit or rollback, or after an error of the connection, it closes its
/// connection: the server rolls back, and no half-read answer reaches the next user of a pooled connection.
pub struct Tx {
    conn: Option<Conn>,
    state: State,
    persistent: bool,
    /// After this a server that should have given up by itself is taken for gone: a vanished host never answers.
    limit: Duration,
    /// The most bytes of a statement with its values.
    packet: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No transaction; fit for the pool once the statement at hand has ended.
    Idle,
    Open,
    /// In the middle of something, or the connection is in doubt.
    Unfit,
}

impl Tx {
    pub(super) fn new(conn: Conn, pooler: bool, limit: Duration, packet: usize) -> Self {
        Self { conn: Some(conn), state: State::Unfit, persistent: !pooler, limit, packet }
    }

    /// Bytes of values that a statement of many rows may have.
    pub fn statement_bytes(&self) -> usize {
        MOST_BYTES.min(self.packet / 2)
    }

    pub(super) fn begun(&mut self) {
        self.state = State::Open;
    }

    /// Gives the connection back after work outside a transaction.
    pub(super) fn release(mut self) {
        self.state = State::Idle;
    }

    pub fn dialect(&self) -> Dialect {
        match self.conn {
            Some(Conn::Postgres(_)) | None => Dialect::Postgres,
            Some(Conn::MySql(_)) => Dialect::MySql,
            Some(Conn::Sqlite(_)) => Dialect::Sqlite,
        }
    }

    /// Runs one statement; the answer is the number of rows that it touched (matched, on MySQL).
    pub async fn execute(&mut self, sql: &str, binds: Vec<Bind>) -> Result<u64, StoreError> {
        self.fits(sql, &binds)?;
        let (persistent, dialect, limit) = (self.persistent, self.dialect(), self.limit);
        let before = std::mem::replace(&mut self.state, State::Unfit);
        let answer = match self.conn() {
            Conn::Postgres(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), pg_arguments(binds)?).persistent(persistent);
                within(limit, query.execute(&mut **conn)).await.map(|done| done.rows_affected())
            }
            Conn::MySql(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), mysql_arguments(binds)?);
                within(limit, query.execute(&mut **conn)).await.map(|done| done.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), sqlite_arguments(binds)?);
                within(limit, query.execute(&mut **conn)).await.map(|done| done.rows_affected())
            }
        };
        self.settle(before, answer.map_err(|error| StoreError::from_sqlx(dialect, error)))
    }

    pub async fn fetch(&mut self, sql: &str, binds: Vec<Bind>) -> Result<Vec<StoreRow>, StoreError> {
        self.fits(sql, &binds)?;
        let (persistent, dialect, limit) = (self.persistent, self.dialect(), self.limit);
        let before = std::mem::replace(&mut self.state, State::Unfit);
        let answer = match self.conn() {
            Conn::Postgres(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), pg_arguments(binds)?).persistent(persistent);
                within(limit, query.fetch(&mut **conn).map_ok(StoreRow::Postgres).try_collect()).await
            }
            Conn::MySql(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), mysql_arguments(binds)?);
                within(limit, query.fetch(&mut **conn).map_ok(StoreRow::MySql).try_collect()).await
            }
            Conn::Sqlite(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), sqlite_arguments(binds)?);
                within(limit, query.fetch(&mut **conn).map_ok(StoreRow::Sqlite).try_collect()).await
            }
        };
        self.settle(before, answer.map_err(|error| StoreError::from_sqlx(dialect, error)))
    }

    /// Runs text without parameters, several statements included.
    pub async fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        let (dialect, limit) = (self.dialect(), self.limit);
        let before = std::mem::replace(&mut self.state, State::Unfit);
        let text = sqlx::raw_sql(AssertSqlSafe(sql));
        let answer = match self.conn() {
            Conn::Postgres(conn) => within(limit, (&mut **conn).execute(text)).await.map(drop),
            Conn::MySql(conn) => within(limit, (&mut **conn).execute(text)).await.map(drop),
            Conn::Sqlite(conn) => within(limit, (&mut **conn).execute(text)).await.map(drop),
        };
        self.settle(before, answer.map_err(|error| StoreError::from_sqlx(dialect, error)))
    }

    /// A point to come back to. The name is a constant of the caller.
    pub async fn savepoint(&mut self, name: &'static str) -> Result<(), StoreError> {
        self.batch(&format!("SAVEPOINT {name}")).await
    }

    /// Undoes what came after the point, and the point too: a transaction that went back to many of them would carry
    /// them all.
    pub async fn rollback_to(&mut self, name: &'static str) -> Result<(), StoreError> {
        self.batch(&format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")).await
    }

    pub async fn release_savepoint(&mut self, name: &'static str) -> Result<(), StoreError> {
        self.batch(&format!("RELEASE SAVEPOINT {name}")).await
    }

    /// Has deferred constraints checked now, and leaves them deferred for what comes behind: the answer of a constraint
    /// that is violated aborts the transaction up to the caller's savepoint. SQLite has no way to ask; there they answer
    /// at COMMIT.
    pub async fn check_deferred(&mut self) -> Result<(), StoreError> {
        match self.dialect() {
            Dialect::Postgres => {
                self.batch(
                    "SAVEPOINT countersign_deferred; SET CONSTRAINTS ALL IMMEDIATE; \
                     ROLLBACK TO SAVEPOINT countersign_deferred; RELEASE SAVEPOINT countersign_deferred",
                )
                .await
            }
            // InnoDB checks each row at once.
            Dialect::MySql | Dialect::Sqlite => Ok(()),
        }
    }

    /// The same with nothing left for COMMIT, which then waits for nobody.
    pub async fn check_for_good(&mut self) -> Result<(), StoreError> {
        match self.dialect() {
            Dialect::Postgres => self.batch("SET CONSTRAINTS ALL IMMEDIATE").await,
            Dialect::MySql | Dialect::Sqlite => Ok(()),
        }
    }

    /// Says that this transaction is alive: servers end one that is idle for too long.
    pub async fn stay(&mut self) -> Result<(), StoreError> {
        self.batch("SELECT 1").await
    }

    /// Commits. An answer of the server is definite, deferred constraints included; no answer means unknown:
    /// look the row up.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        match self.batch("COMMIT").await {
            Ok(()) => {
                self.state = State::Idle;
                Ok(())
            }
            Err(error @ (StoreError::Connection(_) | StoreError::Unexpected(_))) => {
                Err(StoreError::CommitUnknown(Box::new(error)))
            }
            Err(error) => {
                // 08007 and 40003 say themselves that the outcome is unknown; 57P01…03 may cut it short.
                let unknown = matches!(&error, StoreError::Answer { dialect: Dialect::Postgres, code, .. }
                    if code.starts_with("08") || code.starts_with("57P") || code == "40003")
                    || matches!(&error, StoreError::Answer { dialect: Dialect::MySql, code, .. }
                    if matches!(code.as_str(), "1053" | "1079" | "1152" | "1927" | "2006" | "2013"));
                Err(if unknown { StoreError::CommitUnknown(Box::new(error)) } else { error })
            }
        }
    }

    /// [`Tx::commit`] before a named point at which its answer can be lost.
    pub async fn commit_before(self, point: &'static str) -> Result<(), StoreError> {
        self.commit().await?;
        failpoint::at(point).await.map_err(|lost| StoreError::CommitUnknown(Box::new(lost)))
    }

    /// Undoes everything. An error is of no interest: the connection is closed, which comes to the same.
    pub async fn rollback(mut self) {
        if self.batch("ROLLBACK").await.is_ok() {
            self.state = State::Idle;
        }
    }

    fn fits(&self, sql: &str, binds: &[Bind]) -> Result<(), StoreError> {
        if self.packet == usize::MAX {
            return Ok(());
        }
        let bytes = sql.len() + binds.iter().map(|bind| bind.size() + BESIDE_VALUE).sum::<usize>();
        if bytes > self.packet {
            return Err(StoreError::TooLarge { bytes, most: self.packet });
        }
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("the connection is taken in drop alone")
    }

    /// After an answer of the server the connection is as fit as before; after anything else it is in doubt.
    fn settle<T>(&mut self, before: State, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(answer, Ok(_) | Err(StoreError::Answer { .. })) {
            self.state = before;
        }
        answer
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.state == State::Idle {
            return;
        }
        match &mut self.conn {
            Some(Conn::Postgres(conn)) => conn.close_on_drop(),
            Some(Conn::MySql(conn)) => conn.close_on_drop(),
            Some(Conn::Sqlite(conn)) => conn.close_on_drop(),
            None => {}
        }
    }
}
