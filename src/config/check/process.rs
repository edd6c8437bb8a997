//! The small sections: `[http]`, `[pause]`, `[shutdown]`, `[retry]`, `[log]`, `[decode]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Check;
use crate::config::options::{
    DecodeOptions, Format, HttpOptions, LogOptions, PauseOptions, RetryOptions, ShutdownOptions,
};
use crate::config::quantity::show;
use crate::config::raw::{RawDecode, RawHttp, RawLog, RawPause, RawRetry, RawShutdown};
use crate::config::secret::Secret;

/// Which of the sections that hold for the whole process a file has.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct ProcessSections {
    pub http: bool,
    pub log: bool,
}

impl Check<'_> {
    pub(super) fn http(&mut self, raw: RawHttp) -> HttpOptions {
        let listen = raw.listen.map_or(DEFAULT_LISTEN, |text| self.listen(&text));
        let read_token = self.token("http.read_token", raw.read_token);
        let operate_token = self.token("http.operate_token", raw.operate_token);
        if !listen.ip().is_loopback() && operate_token.is_none() {
            let message =
                "is reachable from other machines without a token: set http.read_token and http.operate_token";
            self.warn("http.listen", message);
        }
        HttpOptions { listen, read_token, operate_token }
    }

    fn listen(&mut self, text: &str) -> SocketAddr {
        let local = text.replace("localhost:", "127.0.0.1:");
        local.parse().unwrap_or_else(|_| {
            let quoted = self.quote("http.listen");
            let message = "is no address to listen at: write IP:PORT, like 127.0.0.1:8080 or [::]:8080";
            self.fault("http.listen", format!("{quoted} {message}"));
            DEFAULT_LISTEN
        })
    }

    /// An empty variable must not become a token that everybody has.
    fn token(&mut self, path: &str, raw: Option<String>) -> Option<Secret> {
        let token = raw?;
        if token.trim().is_empty() || token.contains(char::is_whitespace) {
            self.fault(path, "is empty or has spaces, and no client could send it: set it, or leave it out");
        }
        Some(Secret::new(token))
    }

    pub(super) fn pause(&mut self, raw: RawPause) -> PauseOptions {
        let pause = PauseOptions {
            parks: raw.parks.map_or(50, |parks| parks as usize),
            ratio: raw.ratio.unwrap_or(0.2),
            window: raw.window.map_or(500, |window| window as usize),
        };
        if pause.parks > pause.window {
            let message = format!("is above pause.window = {}, and would never be reached: lower it", pause.window);
            self.fault("pause.parks", message);
        }
        pause
    }

    /// A revoke waits for the lanes as long as a stop, and the group must not expire meanwhile.
    pub(super) fn shutdown(&mut self, raw: RawShutdown, session: Duration) -> ShutdownOptions {
        let default = (session * 4 / 5).min(Duration::from_secs(10));
        let drain = self.duration("shutdown.drain", raw.drain, default);
        if drain >= session {
            let message = format!(
                "{} is not below the session time-out of {}: lower it, or raise kafka.options.session.timeout.ms",
                show(drain),
                show(session)
            );
            self.fault("shutdown.drain", message);
        }
        ShutdownOptions { drain }
    }

    pub(super) fn retry(&mut self, raw: RawRetry) -> RetryOptions {
        let delay = self.duration("retry.delay", raw.delay, Duration::from_secs(1));
        let max_delay = self.duration("retry.max_delay", raw.max_delay, Duration::from_secs(300));
        if max_delay < delay {
            let message = format!("{} is below retry.delay = {}: raise it", show(max_delay), show(delay));
            self.fault("retry.max_delay", message);
        }
        let attempts = raw.attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(10);
        RetryOptions { attempts, delay, max_delay }
    }

    pub(super) fn log(&mut self, raw: RawLog) -> LogOptions {
        let level = raw.level.unwrap_or_else(|| "info".to_owned());
        if level.trim().is_empty() || tracing_subscriber::EnvFilter::builder().parse(&level).is_err() {
            let quoted = self.quote("log.level");
            let message = "is no filter: write error, warn, info, debug or trace, or like \"info,countersign=debug\"";
            self.fault("log.level", format!("{quoted} {message}"));
        }
        LogOptions { format: raw.format.unwrap_or_default(), level }
    }

    pub(super) fn decode(&mut self, raw: RawDecode, registry: bool) -> DecodeOptions {
        let placeholder = raw.placeholder.unwrap_or_else(|| "__debezium_unavailable_value".to_owned());
        if placeholder.is_empty() {
            self.fault("decode.placeholder", "is empty, and would hide every empty text: leave it out");
        }
        for (key, format) in [("decode.key_format", raw.key_format), ("decode.value_format", raw.value_format)] {
            if format == Some(Format::Avro) && !registry {
                self.fault(key, "is \"avro\", whose schemas are in a registry: set registry.url");
            }
        }
        DecodeOptions {
            placeholder,
            key_format: raw.key_format.unwrap_or_default(),
            value_format: raw.value_format.unwrap_or_default(),
        }
    }
}

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
