//! The databases: sources that Debezium reads and targets that the daemon writes, asked in plain SQL and answered in
//! plain text.

use std::path::Path;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _, raw_sql};

use crate::world::{RUNTIME, block_on, env};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
    Sqlite,
}

#[derive(Clone)]
pub struct Database {
    pub kind: Kind,
    pub name: String,
    url: String,
    pool: Pool,
}

#[derive(Clone)]
enum Pool {
    Postgres(PgPool),
    MariaDb(MySqlPool),
    Sqlite(SqlitePool),
}

/// One row, every column as the text that the server prints.
pub type Row = Vec<Option<String>>;

/// A connection as the stack's own user, for what concerns the whole server.
pub fn admin(kind: Kind) -> Database {
    let url = match kind {
        Kind::Postgres => env("COUNTERSIGN_POSTGRES_URL"),
        Kind::MariaDb => env("COUNTERSIGN_MARIADB_URL"),
        Kind::Sqlite => unreachable!("SQLite has no server"),
    };
    Database::open(kind, "", url.to_owned())
}

impl Database {
    /// A new, empty one.
    pub fn create(kind: Kind, name: &str, folder: &Path) -> Self {
        let url = match kind {
            Kind::Sqlite => format!("sqlite:{}", folder.join(name).with_extension("db").display()),
            Kind::Postgres | Kind::MariaDb => {
                let admin = admin(kind);
                admin.run(&format!("CREATE DATABASE {name}"));
                let (server, _) = admin.url.rsplit_once('/').unwrap();
                format!("{server}/{name}")
            }
        };
        Self::open(kind, name, url)
    }

    fn open(kind: Kind, name: &str, url: String) -> Self {
        let _entered = RUNTIME.enter();
        let pool = match kind {
            Kind::Postgres => Pool::Postgres(PgPoolOptions::new().max_connections(3).connect_lazy(&url).unwrap()),
            Kind::MariaDb => {
                let url = url.replacen("mariadb://", "mysql://", 1);
                Pool::MariaDb(MySqlPoolOptions::new().max_connections(3).connect_lazy(&url).unwrap())
            }
            Kind::Sqlite => {
                let url = format!("{url}?mode=rwc");
                Pool::Sqlite(SqlitePoolOptions::new().max_connections(1).connect_lazy(&url).unwrap())
            }
        };
        Self { kind, name: name.to_owned(), url, pool }
    }

    pub fn list(kind: Kind) -> Vec<String> {
        admin(kind).texts(match kind {
            Kind::Postgres => "SELECT datname FROM pg_database",
            Kind::MariaDb => "SHOW DATABASES",
            Kind::Sqlite => unreachable!("SQLite has no server"),
        })
    }

    pub fn remove(kind: Kind, name: &str) {
        let force = if kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        admin(kind).run(&format!("DROP DATABASE IF EXISTS {name}{force}"));
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Runs statements and returns how many rows they touched.
    pub fn run(&self, sql: &str) -> u64 {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    pub fn try_run(&self, sql: &str) -> Result<u64, String> {
        let sql = raw_sql(AssertSqlSafe(sql.to_owned()));
        let done = block_on(async {
            match &self.pool {
                Pool::Postgres(pool) => sql.execute(pool).await.map(|done| done.rows_affected()),
                Pool::MariaDb(pool) => sql.execute(pool).await.map(|done| done.rows_affected()),
                Pool::Sqlite(pool) => sql.execute(pool).await.map(|done| done.rows_affected()),
            }
        });
        done.map_err(|error| error.to_string())
    }

    pub fn rows(&self, query: &str) -> Vec<Row> {
        // Without a prepared statement the servers answer in text, whatever the types of the columns are.
        macro_rules! texts {
            ($pool:expr) => {{
                let rows = raw_sql(AssertSqlSafe(query.to_owned())).fetch_all($pool).await;
                let rows = rows.unwrap_or_else(|error| panic!("{error}: {query}"));
                let cells = rows.iter().map(|row| (0..row.len()).map(|n| row.try_get_unchecked(n).unwrap()).collect());
                cells.collect()
            }};
        }
        block_on(async {
            match &self.pool {
                Pool::Postgres(pool) => texts!(pool),
                Pool::MariaDb(pool) => texts!(pool),
                Pool::Sqlite(pool) => texts!(pool),
            }
        })
    }

    /// The first column.
    pub fn texts(&self, query: &str) -> Vec<String> {
        self.rows(query).into_iter().map(|mut row| row.swap_remove(0).unwrap_or_default()).collect()
    }

    /// A query for one number; of no row it is 0.
    pub fn number(&self, query: &str) -> u64 {
        self.texts(query).first().map_or(0, |text| text.parse().unwrap_or_else(|_| panic!("{text:?}: {query}")))
    }

    /// Records with a committed outcome, by the lanes' offsets: cheap enough to be asked all the time.
    pub fn progress(&self) -> u64 {
        self.number("SELECT COALESCE(SUM(next_offset), 0) FROM countersign_lanes")
    }
}
