//! A database of one test's own on a real server, or a file.

use countersign::store::{Store, StoreOptions};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    MariaDb,
    Sqlite,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MariaDb, Self::Sqlite];

    /// A commit as it stands in the protocol, which "READ COMMITTED" is not.
    #[allow(dead_code, reason = "the crash suite takes its answers away")]
    pub fn commit(self) -> &'static str {
        match self {
            Self::Postgres => "COMMIT\0",
            Self::MariaDb => "\u{3}COMMIT",
            Self::Sqlite => unreachable!("there is no way to a file"),
        }
    }

    /// The server's address, without the database.
    fn server(self) -> String {
        let (variable, default) = match self {
            Self::Postgres => {
                ("COUNTERSIGN_POSTGRES_URL", "postgres://countersign:countersign@127.0.0.1:15432/countersign")
            }
            Self::MariaDb => {
                ("COUNTERSIGN_MARIADB_URL", "mariadb://countersign:countersign@127.0.0.1:13306/countersign")
            }
            Self::Sqlite => return String::new(),
        };
        std::env::var(variable).unwrap_or_else(|_| default.to_owned())
    }
}

pub struct Database {
    pub engine: Engine,
    pub url: String,
    /// For what the test itself writes and reads.
    pub store: Store,
    name: String,
    /// The server's address, without the database.
    server: String,
    /// Files of the test, the SQLite database among them.
    pub dir: TempDir,
}

pub fn open(url: &str) -> Store {
    let transaction_timeout = std::time::Duration::from_secs(30);
    Store::open(&StoreOptions { url: url.to_owned(), pool: 4, transaction_timeout, pooler: false }).unwrap()
}

impl Database {
    pub async fn create(engine: Engine, name: &str) -> Self {
        Self::create_on(&engine.server(), engine, name).await
    }

    /// On a server of the caller's own.
    pub async fn create_on(address: &str, engine: Engine, name: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let url = match engine {
            Engine::Sqlite => format!("sqlite:{}", dir.path().join("it.db").display()),
            Engine::Postgres | Engine::MariaDb => {
                let server = open(address);
                let made = server.write(&format!("CREATE DATABASE {name}"), Vec::new()).await;
                made.unwrap_or_else(|error| panic!("{engine:?} at {address}: {error}"));
                server.close().await;
                with_database(address, name)
            }
        };
        let store = open(&url);
        store.migrate(&format!("epoch-of-{name}")).await.unwrap();
        Self { engine, url, store, name: name.to_owned(), server: address.to_owned(), dir }
    }

    pub async fn remove(&self) {
        self.store.close().await;
        let force = match self.engine {
            Engine::Postgres => " WITH (FORCE)",
            Engine::MariaDb => "",
            Engine::Sqlite => return,
        };
        let server = open(&self.server);
        server.write(&format!("DROP DATABASE {}{force}", self.name), Vec::new()).await.unwrap();
        server.close().await;
    }

    /// Statements in one transaction. `{serial}` is a column that numbers the rows in the order of their inserts.
    pub async fn run(&self, sql: &str) {
        let serial = match self.engine {
            Engine::Postgres => "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            Engine::MariaDb => "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            Engine::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
        };
        let sql = sql.replace("{serial}", serial);
        let mut tx = self.store.begin().await.unwrap();
        tx.batch(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        tx.commit().await.unwrap();
    }

    /// The columns of each row as text with `|` between them; a null is `-`.
    pub async fn rows(&self, columns: &str, from: &str) -> Vec<String> {
        let text = if self.engine == Engine::MariaDb { "CHAR" } else { "text" };
        let columns: Vec<String> = columns.split(", ").map(|column| format!("CAST({column} AS {text})")).collect();
        let sql = format!("SELECT {} {from}", columns.join(", "));
        let rows = self.store.read(&sql, Vec::new()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let cell = |row: &countersign::store::StoreRow, n| row.opt_text(n).unwrap().unwrap_or_else(|| "-".to_owned());
        rows.iter().map(|row| (0..columns.len()).map(|n| cell(row, n)).collect::<Vec<_>>().join("|")).collect()
    }

    /// Makes rows of this table as old as this many days, in these columns.
    pub async fn age(&self, table: &str, columns: &[&str], condition: &str, days: u32) {
        let old = match self.engine {
            Engine::Postgres => format!("now() - interval '{days} days'"),
            Engine::MariaDb => format!("UTC_TIMESTAMP(6) - INTERVAL {days} DAY"),
            Engine::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{days} days')"),
        };
        let set: Vec<String> = columns.iter().map(|column| format!("{column} = {old}")).collect();
        self.run(&format!("UPDATE countersign_{table} SET {} WHERE {condition};", set.join(", "))).await;
    }

    pub async fn count(&self, from: &str) -> i64 {
        let rows = self.store.read(&format!("SELECT COUNT(*) {from}"), Vec::new()).await.unwrap();
        rows[0].int(0).unwrap()
    }
}

fn with_database(url: &str, name: &str) -> String {
    let mut url = url::Url::parse(url).unwrap();
    url.set_path(name);
    url.to_string()
}
