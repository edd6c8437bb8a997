//! Questions to Redis before anything runs: does it do what the gate asks, and how much can it remember.

use std::time::Duration;

use redis::{AsyncConnectionConfig, ErrorKind, InfoDict, RedisError};

use super::redis::RELEASE;

/// What Redis says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisFacts {
    pub version: String,
    /// Bytes; 0 is no limit.
    pub max_memory: u64,
    pub used_memory: u64,
    /// What goes when the memory is full: `noeviction`, `allkeys-lru`, `volatile-ttl`, ...
    pub policy: String,
    pub replica: bool,
    pub replicas: u64,
    pub cluster: bool,
    /// Why the gate's own commands did not go through; None if they did.
    pub refused: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RedisUnanswered {
    #[error("{0}")]
    Unreachable(String),
    /// It was reached and did not let us in.
    #[error("{0}")]
    Refused(String),
}

/// Connects, asks, and tries the gate's commands on two keys of its own, which expire.
pub async fn inspect(url: &str, pipeline: &str, limit: Duration) -> Result<RedisFacts, RedisUnanswered> {
    let client = redis::Client::open(url).map_err(|error| unanswered(&error))?;
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(Some(limit));
    let connected = client.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connected.map_err(|error| unanswered(&error))?;
    let info: InfoDict = redis::cmd("INFO").query_async(&mut connection).await.map_err(|error| unanswered(&error))?;
    let text = |name: &str| info.get::<String>(name).unwrap_or_default();
    let number = |name: &str| info.get::<u64>(name).unwrap_or_default();
    let names = ["a", "b"].map(|name| format!("countersign:{pipeline}:check:{name}"));
    let mut commands = redis::pipe();
    for name in &names {
        commands.cmd("SET").arg(name).arg("check").arg("NX").arg("PX").arg(limit.as_millis() as u64).ignore();
    }
    commands.cmd("MGET").arg(&names).ignore();
    for name in &names {
        commands.cmd("EVAL").arg(RELEASE).arg(1).arg(name).arg("check").ignore();
    }
    let refused = match commands.query_async::<()>(&mut connection).await {
        Ok(()) => None,
        Err(error) => Some(told(&error)),
    };
    Ok(RedisFacts {
        version: text("redis_version"),
        max_memory: number("maxmemory"),
        used_memory: number("used_memory"),
        policy: text("maxmemory_policy"),
        replica: text("role") == "slave",
        replicas: number("connected_slaves"),
        cluster: text("cluster_enabled") == "1",
        refused,
    })
}

fn unanswered(error: &RedisError) -> RedisUnanswered {
    let text = told(error);
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_) | ErrorKind::InvalidClientConfig => {
            RedisUnanswered::Refused(text)
        }
        _ => RedisUnanswered::Unreachable(text),
    }
}

/// Redis's own text: it names commands and keys, never a password.
fn told(error: &RedisError) -> String {
    error.to_string()
}
