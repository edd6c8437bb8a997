//! Others at work in the same database, with no regard for anybody.

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use crate::database::Engine;

/// A session of its own with the server's own settings.
pub enum Rival {
    Postgres(PgConnection),
    MariaDb(MySqlConnection),
}

impl Rival {
    pub async fn enter(engine: Engine, url: &str) -> Result<Self, sqlx::Error> {
        Ok(match engine {
            Engine::Postgres => Self::Postgres(url.parse::<PgConnectOptions>()?.connect().await?),
            _ => {
                let url = url.replacen("mariadb://", "mysql://", 1);
                Self::MariaDb(url.parse::<MySqlConnectOptions>()?.connect().await?)
            }
        })
    }

    pub async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let text = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Postgres(connection) => connection.execute(text).await.map(drop),
            Self::MariaDb(connection) => connection.execute(text).await.map(drop),
        }
    }

    pub async fn leave(self) {
        let _ = match self {
            Self::Postgres(connection) => connection.close().await,
            Self::MariaDb(connection) => connection.close().await,
        };
    }

    /// Runs these statements in a transaction again and again for a while; the answer is how many were refused.
    pub async fn insist(&mut self, time: Duration, begin: &str, statements: &[&str]) -> usize {
        let until = tokio::time::Instant::now() + time;
        let mut refused = 0;
        while tokio::time::Instant::now() < until {
            self.run(begin).await.unwrap();
            for statement in statements {
                if self.run(statement).await.is_err() {
                    refused += 1;
                    break;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            if self.run("COMMIT").await.is_err() {
                refused += 1;
            }
        }
        refused
    }
}

/// Takes every connection that the server gives, its clients' among them.
pub async fn crowd(engine: Engine, url: &str) -> Vec<Rival> {
    let mut rivals = Vec::new();
    let mut refusals = 0;
    // The clients come back for theirs, and are thrown out again, until they have none.
    while refusals < 40 {
        match Rival::enter(engine, url).await {
            Ok(mut rival) => {
                let out = match engine {
                    Engine::Postgres => "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'",
                    _ => "KILL USER app",
                };
                rival.run(out).await.unwrap();
                rivals.push(rival);
                refusals = 0;
            }
            Err(_) => {
                refusals += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
                if refusals == 20
                    && let Some(rival) = rivals.first_mut()
                {
                    let _ = rival.run("SELECT 1").await;
                }
            }
        }
    }
    rivals
}
