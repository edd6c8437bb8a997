//! The target database: one transaction holds the fence, the dedup rows, the effect, the receipts and the
//! lane's offset.
//!
//! This folder knows SQL and nothing of Kafka, routes or effects. What must commit together takes `&mut Tx`,
//! so that it cannot be called outside a transaction. Each dialect's statements stand side by side at the head
//! of the file that runs them.

pub mod bind;
pub mod column;
pub mod dead_letters;
mod describe;
pub mod dialect;
pub mod error;
pub mod inbox;
pub mod inbox_entries;
pub mod inspect;
pub mod lanes;
pub mod lease;
pub mod meta;
pub mod migrate;
pub mod outbox;
pub mod probe;
pub mod purge;
pub mod queues;
pub mod reconcile;
pub mod redrive;
pub mod row_versions;
mod tx;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool,
};
use tracing::log::LevelFilter;

pub use bind::{Bind, StoreRow};
pub use column::{Column, Holds};
pub use dialect::Dialect;
pub use error::{Meaning, StoreError};
pub use tx::Tx;

/// How to reach the database.
#[derive(Clone)]
pub struct StoreOptions {
    pub url: String,
    /// Connections at most. SQLite has one writer, whatever this says.
    pub pool: u32,
    /// Server-side limit of a statement, a lock wait and an idle transaction, so that a dead host's locks go.
    pub transaction_timeout: Duration,
    /// A transaction pooler stands between: no named prepared statements, no session settings.
    pub pooler: bool,
}

/// A pool of connections to one database.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    transaction_timeout: Duration,
    pooler: bool,
    /// `max_allowed_packet` of MySQL and MariaDB, as the last new connection found it.
    packet: Arc<AtomicUsize>,
}

#[derive(Clone)]
enum Pools {
    Postgres(PgPool),
    MySql(MySqlPool),
    Sqlite { writer: SqlitePool, readers: SqlitePool },
}

enum Conn {
    Postgres(PoolConnection<Postgres>),
    MySql(PoolConnection<MySql>),
    Sqlite(PoolConnection<Sqlite>),
}

/// Waiting for a connection of the pool, or for a new one.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The server ends a transaction that asks nothing for this long. There is only memory to look at between two
/// statements: whoever takes longer is stopped, or gone without a word, and must not keep its locks from others.
const BETWEEN_STATEMENTS: Duration = Duration::from_secs(5);

/// What a statement has beside a record's bytes: its text, and values that are bounded.
const BESIDE_RECORD: usize = 64 * 1024;

/// Finding out why there was none.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// An unused connection is closed before the server does it.
const IDLE: Duration = Duration::from_secs(60);

/// Strict, so that nothing is cut or clamped silently; `\` is no escape, `||` joins texts, 0 is 0 in an AUTO_INCREMENT
/// column: as in standard SQL and as on the two other databases. Set at each connection, whatever the server's own mode.
const MYSQL_SESSION: &str = "SET SESSION sql_mode = \
     'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_AUTO_VALUE_ON_ZERO', \
     time_zone = '+00:00'";
/// A plan that was made while a table was small would be kept when it is large, and read all of it for each row: tables of
/// this program are empty at first, and the outbox now and then.
const POSTGRES_PLANS: &str = "SET plan_cache_mode = force_custom_plan";
const MYSQL_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

impl Store {
    /// Prepares the pool; connections are opened when they are needed.
    pub fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let dialect = Dialect::from_url(&options.url)
            .ok_or_else(|| StoreError::Setup("`[store] url` begins with no known scheme".to_owned()))?;
        let setup = |error: sqlx::Error| StoreError::from_sqlx(dialect, error);
        let packet = Arc::new(AtomicUsize::new(usize::MAX));
        let pools = match dialect {
            Dialect::Postgres => {
                let mut connect = PgConnectOptions::from_str(&options.url)
                    .map_err(setup)?
                    .application_name("countersign")
                    .log_statements(LevelFilter::Trace)
                    .log_slow_statements(LevelFilter::Debug, Duration::from_secs(5));
                if options.pooler {
                    connect = connect.statement_cache_capacity(0);
                }
                let pooler = options.pooler;
                Pools::Postgres(
                    PgPoolOptions::new()
                        .max_connections(options.pool)
                        .acquire_timeout(ACQUIRE_TIMEOUT)
                        .test_before_acquire(false)
                        .after_connect(move |connection, _| {
                            Box::pin(async move {
                                // Behind a pooler statements have no names, and are planned each time anyway.
                                if !pooler {
                                    connection.execute(POSTGRES_PLANS).await?;
                                }
                                Ok(())
                            })
                        })
                        .connect_lazy_with(connect),
                )
            }
            Dialect::MySql => {
                let url = options.url.replacen("mariadb://", "mysql://", 1);
                let connect = MySqlConnectOptions::from_str(&url)
                    .map_err(setup)?
                    .pipes_as_concat(false)
                    .no_engine_substitution(false)
                    .timezone(None)
                    .log_statements(LevelFilter::Trace)
                    .log_slow_statements(LevelFilter::Debug, Duration::from_secs(5));
                let limit = options.transaction_timeout.as_secs().max(1);
                // MySQL has no limit for an idle transaction but that of an idle session.
                let idle = limit + IDLE.as_secs();
                let session = format!("{MYSQL_SESSION}, innodb_lock_wait_timeout = {limit}, wait_timeout = {idle}");
                let between = limit.min(BETWEEN_STATEMENTS.as_secs());
                let mariadb = format!("SET SESSION max_statement_time = {limit}, idle_transaction_timeout = {between}");
                let packet = Arc::clone(&packet);
                Pools::MySql(
                    MySqlPoolOptions::new()
                        .max_connections(options.pool)
                        .acquire_timeout(ACQUIRE_TIMEOUT)
                        .test_before_acquire(false)
                        .idle_timeout(IDLE)
                        .after_connect(move |connection, _| {
                            let (session, mariadb, packet) = (session.clone(), mariadb.clone(), Arc::clone(&packet));
                            Box::pin(async move {
                                connection.execute(AssertSqlSafe(session)).await?;
                                connection.execute(MYSQL_ISOLATION).await?;
                                let (version, largest): (String, u64) =
                                    sqlx::query_as("SELECT VERSION(), CAST(@@max_allowed_packet AS UNSIGNED)")
                                        .fetch_one(&mut *connection)
                                        .await?;
                                packet.store(usize::try_from(largest).unwrap_or(usize::MAX), Ordering::Relaxed);
                                if version.contains("MariaDB") {
                                    connection.execute(AssertSqlSafe(mariadb)).await?;
                                }
                                Ok(())
                            })
                        })
                        .connect_lazy_with(connect),
                )
            }
            Dialect::Sqlite => {
                let connect = SqliteConnectOptions::new()
                    .filename(sqlite_path(&options.url))
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(Duration::from_secs(5))
                    .log_statements(LevelFilter::Trace)
                    .log_slow_statements(LevelFilter::Debug, Duration::from_secs(5));
                let pool = |size| {
                    SqlitePoolOptions::new()
                        .max_connections(size)
                        .acquire_timeout(options.transaction_timeout)
                        .connect_lazy_with(connect.clone())
                };
                Pools::Sqlite { writer: pool(1), readers: pool(options.pool.clamp(1, 4)) }
            }
        };
        Ok(Self { pools, transaction_timeout: options.transaction_timeout, pooler: options.pooler, packet })
    }

    /// The most bytes of a statement with its values. Known once there was a connection; a gigabyte on PostgreSQL and
    /// SQLite, which no broker takes.
    fn packet(&self) -> usize {
        self.packet.load(Ordering::Relaxed)
    }

    /// The most bytes that a record may have, for a statement to carry all of it.
    pub fn largest_record(&self) -> usize {
        self.packet().saturating_sub(BESIDE_RECORD)
    }

    fn on(&self, conn: Conn, pooler: bool) -> Tx {
        Tx::new(conn, pooler, self.limit(), self.packet())
    }

    pub fn dialect(&self) -> Dialect {
        match self.pools {
            Pools::Postgres(_) => Dialect::Postgres,
            Pools::MySql(_) => Dialect::MySql,
            Pools::Sqlite { .. } => Dialect::Sqlite,
        }
    }

    /// Begins a transaction at READ COMMITTED; on SQLite with the write lock taken at once, for a lock taken later
    /// fails with SQLITE_BUSY without waiting.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let conn = self.acquire(true).await?;
        let mut tx = self.on(conn, self.pooler);
        match self.dialect() {
            Dialect::Postgres => {
                let limit = self.transaction_timeout.as_millis();
                let between = self.transaction_timeout.min(BETWEEN_STATEMENTS).as_millis();
                // LOCAL settings hold behind a pooler too. tcp_user_timeout lets a vanished peer's locks go.
                tx.batch(&format!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {limit}; \
                     SET LOCAL lock_timeout = {limit}; SET LOCAL idle_in_transaction_session_timeout = {between}; \
                     SET LOCAL tcp_user_timeout = {limit}"
                ))
                .await?;
            }
            Dialect::MySql => tx.batch("START TRANSACTION").await?,
            Dialect::Sqlite => tx.batch("BEGIN IMMEDIATE").await?,
        }
        tx.begun();
        Ok(tx)
    }

    /// Reads outside a transaction.
    pub async fn read(&self, sql: &str, binds: Vec<Bind>) -> Result<Vec<StoreRow>, StoreError> {
        if self.pooler {
            // Each round trip outside a transaction may reach another server connection.
            let mut tx = self.begin().await?;
            let rows = tx.fetch(sql, binds).await?;
            tx.commit().await?;
            return Ok(rows);
        }
        let mut tx = self.on(self.acquire(false).await?, false);
        let rows = tx.fetch(sql, binds).await?;
        tx.release();
        Ok(rows)
    }

    /// One statement that is a transaction of its own.
    pub async fn write(&self, sql: &str, binds: Vec<Bind>) -> Result<u64, StoreError> {
        if self.pooler {
            let mut tx = self.begin().await?;
            let rows = tx.execute(sql, binds).await?;
            tx.commit().await?;
            return Ok(rows);
        }
        let mut tx = self.on(self.acquire(true).await?, false);
        let rows = tx.execute(sql, binds).await?;
        tx.release();
        Ok(rows)
    }

    /// Answers if the database can be reached and lets us in.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.read("SELECT 1", Vec::new()).await.map(drop)
    }

    pub async fn close(&self) {
        match &self.pools {
            Pools::Postgres(pool) => pool.close().await,
            Pools::MySql(pool) => pool.close().await,
            Pools::Sqlite { writer, readers } => {
                writer.close().await;
                readers.close().await;
            }
        }
    }

    /// Longer than the server's own limits, which answer first if the server is there.
    fn limit(&self) -> Duration {
        self.transaction_timeout + Duration::from_secs(5)
    }

    async fn acquire(&self, write: bool) -> Result<Conn, StoreError> {
        let acquired = match &self.pools {
            Pools::Postgres(pool) => pool.acquire().await.map(Conn::Postgres),
            Pools::MySql(pool) => pool.acquire().await.map(Conn::MySql),
            Pools::Sqlite { writer, readers } => {
                let pool = if write { writer } else { readers };
                pool.acquire().await.map(Conn::Sqlite)
            }
        };
        match acquired {
            Ok(conn) => Ok(conn),
            // The pool tries again by itself and tells no more than that the time is up.
            Err(sqlx::Error::PoolTimedOut) => {
                let why = self.hindrance().await.unwrap_or(sqlx::Error::PoolTimedOut);
                Err(StoreError::from_sqlx(self.dialect(), why))
            }
            Err(error) => Err(StoreError::from_sqlx(self.dialect(), error)),
        }
    }

    /// What keeps a new connection from being made; `None` if nothing does, and those of the pool are all in use.
    async fn hindrance(&self) -> Option<sqlx::Error> {
        let tried = match &self.pools {
            Pools::Postgres(pool) if pool.size() < pool.options().get_max_connections() => {
                let options = pool.connect_options();
                tokio::time::timeout(LOOK_TIMEOUT, async { options.connect().await?.close().await }).await
            }
            Pools::MySql(pool) if pool.size() < pool.options().get_max_connections() => {
                let options = pool.connect_options();
                tokio::time::timeout(LOOK_TIMEOUT, async { options.connect().await?.close().await }).await
            }
            // One more than the pool allows would say nothing about the pool. A file is there or not.
            Pools::Postgres(_) | Pools::MySql(_) | Pools::Sqlite { .. } => return None,
        };
        match tried {
            Ok(connected) => connected.err(),
            Err(_) => Some(sqlx::Error::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "no answer: the host is away, or packets to its port are dropped",
            ))),
        }
    }
}

/// The file of `sqlite:PATH` and `sqlite://PATH`. Parameters after a `?` are left out: the settings are ours.
pub fn sqlite_path(url: &str) -> &str {
    let path = url.trim_start_matches("sqlite:").trim_start_matches("//");
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// The SQL of one statement in the three dialects.
#[derive(Clone, Copy)]
pub struct Sql {
    pub postgres: &'static str,
    pub mysql: &'static str,
    pub sqlite: &'static str,
}

impl Sql {
    pub fn of(self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Postgres => self.postgres,
            Dialect::MySql => self.mysql,
            Dialect::Sqlite => self.sqlite,
        }
    }
}
