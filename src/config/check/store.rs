//! `[store]` and `[gate]`.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::Check;
use crate::config::options::{Dialect, GateBackend, GateOptions, Retention, StoreOptions};
use crate::config::quantity;
use crate::config::raw::{RawGate, RawStore};
use crate::config::secret::Secret;

const DAY: Duration = Duration::from_secs(86_400);

impl Check<'_> {
    pub(super) fn store(&mut self, raw: RawStore) -> Option<StoreOptions> {
        let retention = match raw.retention.as_deref() {
            None => Retention::For(14 * DAY),
            Some("forever") => Retention::Forever,
            Some(text) => quantity::duration(text).map_or_else(
                || {
                    let quoted = self.quote("store.retention");
                    let message = "is no retention: write it like \"14d\", or \"forever\"";
                    self.fault("store.retention", format!("{quoted} {message}"));
                    Retention::Forever
                },
                Retention::For,
            ),
        };
        let transaction_timeout =
            self.duration("store.transaction_timeout", raw.transaction_timeout, Duration::from_secs(30));
        if transaction_timeout < Duration::from_secs(1) {
            self.fault("store.transaction_timeout", "is below 1s, which no batch can keep: set it to 1s or more");
        }
        let archive = raw.archive.map(PathBuf::from);
        if let Some(archive) = &archive {
            if archive.as_os_str().is_empty() {
                self.fault("store.archive", "names no folder: write its path, or leave the setting out");
            }
            if retention == Retention::Forever {
                self.warn("store.archive", "has no effect with retention = \"forever\": nothing is purged");
            }
        }
        let batch_bytes = self.size("store.batch_bytes", raw.batch_bytes, 8 << 20);
        let pooler = raw.pooler.unwrap_or(false);
        let url = raw.url.unwrap_or_default();
        let dialect = match dialect(&url) {
            Ok(dialect) => dialect,
            Err(why) => {
                self.fault("store.url", why);
                return None;
            }
        };
        if pooler && dialect != Dialect::Postgres {
            self.warn("store.pooler", format!("has no effect with {}: it is for pgbouncer", dialect.name()));
        }
        Some(StoreOptions {
            url: Secret::new(url),
            dialect,
            retention,
            archive,
            pool: raw.pool.and_then(|pool| u32::try_from(pool).ok()).unwrap_or(10),
            transaction_timeout,
            batch: raw.batch.map_or(1000, |batch| batch as usize),
            batch_bytes,
            pooler,
        })
    }

    /// Without the section there is no gate; with it, the one in memory unless an address says otherwise.
    pub(super) fn gate(&mut self, raw: Option<RawGate>) -> GateOptions {
        let default = if raw.is_some() { GateBackend::Memory } else { GateBackend::Off };
        let raw = raw.unwrap_or_default();
        let backend = match raw.url.as_deref() {
            None => default,
            Some("memory") => GateBackend::Memory,
            Some("off") => GateBackend::Off,
            Some(url) => {
                if let Err(why) = check_redis(url) {
                    self.fault("gate.url", why);
                }
                GateBackend::Redis(Secret::new(url))
            }
        };
        GateOptions {
            backend,
            claim_ttl: self.duration("gate.claim_ttl", raw.claim_ttl, Duration::from_secs(15 * 60)),
            confirm_ttl: self.duration("gate.confirm_ttl", raw.confirm_ttl, Duration::from_secs(3600)),
            timeout: self.duration("gate.timeout", raw.timeout, Duration::from_millis(200)),
            memory_bytes: self.size("gate.memory_bytes", raw.memory_bytes, 64 << 20),
        }
    }
}

/// Addresses are never repeated in a message: the password stands in them.
fn dialect(url: &str) -> Result<Dialect, String> {
    let Some(dialect) = Dialect::from_url(url) else {
        return Err("is no database address: begin it with postgres://, mysql://, mariadb:// or sqlite:".to_owned());
    };
    match dialect {
        Dialect::Sqlite => check_sqlite(url)?,
        Dialect::Postgres | Dialect::MySql => {
            if !url.contains("://") {
                return Err("is no database address: write scheme://user@host/database".to_owned());
            }
            let parsed = Url::parse(url).map_err(|why| format!("is no address ({why}): {ENCODE}"))?;
            if dialect == Dialect::MySql && parsed.path().trim_matches('/').is_empty() {
                return Err("names no database: write mysql://user@host/database".to_owned());
            }
        }
    }
    Ok(dialect)
}

const ENCODE: &str = "in user names and passwords write the characters / ? # @ : % as %2F %3F %23 %40 %3A %25";

fn check_sqlite(url: &str) -> Result<(), String> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    let (file, parameters) = path.split_once('?').unwrap_or((path, ""));
    if file.is_empty() {
        return Err("names no file: write sqlite:PATH".to_owned());
    }
    if file.contains(":memory:") || parameters.split('&').any(|parameter| parameter == "mode=memory") {
        return Err("keeps the database in memory, and the record of what was applied would end with the process: \
                    write sqlite:PATH"
            .to_owned());
    }
    if parameters.split('&').any(|parameter| parameter == "mode=ro" || parameter == "immutable=true") {
        return Err("opens the file for reading only: leave that parameter out".to_owned());
    }
    Ok(())
}

fn check_redis(url: &str) -> Result<(), String> {
    let parsed = match Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "redis" | "rediss") => parsed,
        Ok(_) => {
            return Err("is no gate: write redis://host:port, rediss://host:port, \"memory\" or \"off\"".to_owned());
        }
        Err(_) if !url.contains("://") => {
            return Err("is no gate: write redis://host:port, rediss://host:port, \"memory\" or \"off\"".to_owned());
        }
        Err(why) => return Err(format!("is no address ({why}): {ENCODE}")),
    };
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err("names no host: write redis://host:port".to_owned());
    }
    let database = parsed.path().trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("ends in no database number: write redis://host:port/0".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_says_the_dialect() {
        for (url, wanted) in [
            ("postgres://app@localhost/bank", Dialect::Postgres),
            ("postgresql:///bank?host=/run/postgresql", Dialect::Postgres),
            ("mysql://app:pw@localhost:3306/bank", Dialect::MySql),
            ("mariadb://app@localhost/bank", Dialect::MySql),
            ("sqlite:bank.db", Dialect::Sqlite),
            ("sqlite:///var/lib/bank.db", Dialect::Sqlite),
            ("sqlite:bank.db?mode=rwc", Dialect::Sqlite),
        ] {
            assert_eq!(dialect(url), Ok(wanted), "{url}");
        }
    }

    #[test]
    fn addresses_that_cannot_serve_are_refused_without_being_repeated() {
        for url in [
            "",
            "hunter2",
            "oracle://hunter2@db/x",
            "postgres:hunter2",
            "postgres://app:hunter2#x@db/bank",
            "mysql://app:hunter2@db",
            "sqlite:",
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite:hunter2?mode=memory",
            "sqlite:hunter2?mode=ro",
        ] {
            let why = dialect(url).expect_err(url);
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn redis_addresses_may_name_a_database() {
        for url in ["redis://localhost", "rediss://:hunter2@cache:6380/3", "redis://[::1]:6379/"] {
            assert_eq!(check_redis(url), Ok(()), "{url}");
        }
        for url in ["redis://", "http://x", "redis", "redis://x/hunter2", "redis://:hunter2#@x"] {
            let why = check_redis(url).expect_err(url);
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
