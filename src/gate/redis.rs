//! The gate on Redis: `SET key value NX PX`, one round trip a batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::sync::OnceCell;
use tracing::{debug, warn};

use super::{Gate, GateAnswer, GateKey, Mark, Stored};

pub struct RedisGate {
    client: redis::Client,
    connection: OnceCell<ConnectionManager>,
    pipeline: String,
    options: RedisOptions,
    healthy: AtomicBool,
}

#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub claim_ttl: Duration,
    pub confirm_ttl: Duration,
    /// How long a batch waits for Redis before it goes on without it.
    pub timeout: Duration,
}

/// Deletes a claim if it is still ours. A script, for between a GET and a DEL somebody else may have claimed.
pub(super) const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

impl RedisGate {
    /// Does not connect yet. The address's user, password and `/DB` are honoured.
    pub fn new(url: &str, pipeline: &str, options: RedisOptions) -> Result<Self, redis::RedisError> {
        Ok(Self {
            client: redis::Client::open(url)?,
            connection: OnceCell::new(),
            pipeline: pipeline.to_owned(),
            options,
            healthy: AtomicBool::new(true),
        })
    }

    fn key(&self, hash: &[u8; 32]) -> String {
        // Half of the hash is enough for a name: the mark inside carries the whole and is compared.
        format!("countersign:{}:{}", self.pipeline, crate::debezium::render::hex(&hash[..16]))
    }

    async fn connection(&self) -> Result<ConnectionManager, redis::RedisError> {
        let connect = || async {
            let config = ConnectionManagerConfig::new()
                .set_connection_timeout(Some(self.options.timeout))
                .set_response_timeout(Some(self.options.timeout))
                .set_number_of_retries(0);
            self.client.get_connection_manager_with_config(config).await
        };
        self.connection.get_or_try_init(connect).await.cloned()
    }

    /// Runs a pipeline within the time-out; None if it did not get through, which is a verdict and no error.
    async fn run<T: redis::FromRedisValue>(&self, commands: &redis::Pipeline) -> Option<T> {
        let work = async { commands.query_async::<T>(&mut self.connection().await?).await };
        let answer = match tokio::time::timeout(self.options.timeout, work).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                debug!(code = error.code(), category = error.category(), "redis did not do as asked");
                None
            }
            Err(_) => None,
        };
        let healthy = answer.is_some();
        if self.healthy.swap(healthy, Ordering::Relaxed) != healthy {
            if healthy {
                tracing::info!("redis answers again");
            } else {
                warn!("redis does not answer: the inbox does its work meanwhile");
            }
        }
        answer
    }
}

#[async_trait]
impl Gate for RedisGate {
    async fn claim(&self, keys: &[GateKey], token: u64) -> Vec<GateAnswer> {
        if keys.is_empty() {
            return Vec::new();
        }
        let value = Stored::Claim(token).encode();
        let ttl = self.options.claim_ttl.as_millis() as u64;
        let names: Vec<String> = keys.iter().map(|key| self.key(&key.hash)).collect();
        let mut commands = redis::pipe();
        for name in &names {
            commands.cmd("SET").arg(name).arg(&value).arg("NX").arg("PX").arg(ttl).ignore();
        }
        // Whose value stands there now tells whether our SET went through.
        commands.cmd("MGET").arg(&names);
        let Some((values,)) = self.run::<(Vec<Option<Vec<u8>>>,)>(&commands).await else {
            return vec![GateAnswer::Unavailable; keys.len()];
        };
        let mut values = values.into_iter();
        keys.iter()
            .map(|key| {
                let stored = values.next().flatten();
                let stored = stored.and_then(|bytes| Stored::decode(std::str::from_utf8(&bytes).ok()?));
                match stored {
                    Some(Stored::Claim(owner)) if owner == token => GateAnswer::Claimed,
                    Some(Stored::Mark(mark)) if mark.key_hash == key.hash => GateAnswer::Confirmed(mark),
                    Some(Stored::Claim(_) | Stored::Mark(_)) | None => GateAnswer::Busy,
                }
            })
            .collect()
    }

    async fn confirm(&self, marks: &[Mark]) {
        if marks.is_empty() {
            return;
        }
        let ttl = self.options.confirm_ttl.as_millis() as u64;
        let mut commands = redis::pipe();
        for mark in marks {
            let value = Stored::Mark(mark.clone()).encode();
            commands.cmd("SET").arg(self.key(&mark.key_hash)).arg(value).arg("PX").arg(ttl).ignore();
        }
        self.run::<()>(&commands).await;
    }

    async fn release(&self, keys: &[GateKey], token: u64) {
        if keys.is_empty() {
            return;
        }
        let value = Stored::Claim(token).encode();
        let mut commands = redis::pipe();
        for key in keys {
            commands.cmd("EVAL").arg(RELEASE).arg(1).arg(self.key(&key.hash)).arg(&value).ignore();
        }
        self.run::<()>(&commands).await;
    }

    async fn probe(&self) {
        // A write, for a replica and a Redis that is full answer a PING and take no claim.
        let name = format!("countersign:{}:probe", self.pipeline);
        let ttl = self.options.claim_ttl.as_millis() as u64;
        self.run::<()>(redis::pipe().cmd("SET").arg(name).arg("").arg("PX").arg(ttl).ignore()).await;
    }

    fn healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }
}
