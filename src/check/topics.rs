//! How a topic is kept, against what the inbox remembers and what the client can fetch.

use std::time::Duration;

use super::{Check, span};
use crate::config::{Config, Retention};
use crate::effect::spec::{EffectSpec, Guard};
use crate::kafka::inspect::Settings;

/// How old a record may be when Kafka delivers it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// `retention.ms + segment.ms`: a segment is deleted as a whole, when its youngest record is old enough.
    For(Duration),
    Unlimited,
    /// The last record of a key is kept for ever.
    Compacted,
}

const NAME: &str = "kafka retention";

fn kept(settings: &Settings) -> Option<Kept> {
    if !settings.get("cleanup.policy")?.split(',').any(|policy| policy.trim() == "delete") {
        return Some(Kept::Compacted);
    }
    let millis = |name: &str| settings.get(name)?.parse::<i64>().ok();
    let Ok(retention) = u64::try_from(millis("retention.ms")?) else { return Some(Kept::Unlimited) };
    let segment = millis("segment.ms").and_then(|segment| u64::try_from(segment).ok()).unwrap_or(0);
    Some(Kept::For(Duration::from_millis(retention.saturating_add(segment))))
}

/// What is wrong with the window for this topic.
///
/// | kept | window covers it | all routes are guarded tables | outcome |
/// |---|---|---|---|
/// | any       | `forever` | any | – |
/// | for a time | yes      | any | – |
/// | for a time | no       | yes | warn: a second receipt, no second effect |
/// | for a time | no       | no  | fail |
/// | for ever  | –         | yes | – |
/// | for ever  | –         | no  | fail |
pub(super) fn retention(config: &Config, topic: &str, settings: &Settings) -> Option<Check> {
    let window = match config.store.retention {
        Retention::Forever => return None,
        Retention::For(window) => window,
    };
    let Some(kept) = kept(settings) else {
        let detail = format!("the brokers do not tell how long {topic} is kept");
        return Some(Check::warn(NAME, detail, "see yourself that `[store] retention` covers it"));
    };
    let guarded = guarded(config, topic);
    let ours = span::show(window);
    match (kept, guarded) {
        (Kept::For(time), _) if time <= window => None,
        (Kept::For(time), guarded) => {
            let shown = span::show(time);
            let detail =
                format!("{topic} can redeliver for {shown} (retention.ms + segment.ms), the inbox remembers {ours}");
            let remedy = format!(
                "set `[store] retention` to {shown} or more, or shorten the topic's retention.ms or segment.ms"
            );
            Some(if guarded {
                let detail = format!("{detail}: the guard keeps the rows right, but late records get a second receipt");
                Check::warn(NAME, detail, remedy)
            } else {
                Check::fail(NAME, detail, remedy)
            })
        }
        (Kept::Unlimited | Kept::Compacted, true) => None,
        (Kept::Unlimited, false) => Some(Check::fail(
            NAME,
            format!("{topic} is kept for ever (retention.ms = -1), the inbox remembers {ours}"),
            "set `[store] retention = \"forever\"`, or give the topic a retention, or let guarded table routes alone take it",
        )),
        (Kept::Compacted, false) => Some(Check::fail(
            NAME,
            format!("{topic} is compacted, its records can come again at any age; the inbox remembers {ours}"),
            "set `[store] retention = \"forever\"`, or let only `table` routes with guard = \"source\" take it",
        )),
    }
}

/// Whether every route that may take the topic is a guarded `table`, for which an old record changes nothing.
fn guarded(config: &Config, topic: &str) -> bool {
    let takes = |pattern: &Option<crate::route::TopicPattern>| pattern.as_ref().is_none_or(|p| p.matches(topic));
    let mut routes = config.routes.iter().filter(|route| takes(&route.route.matcher.topic));
    routes.all(|route| match &route.effect {
        EffectSpec::Table(table) => table.guard == Guard::Source,
        EffectSpec::Sql(_) | EffectSpec::None => false,
    })
}

/// librdkafka's default of `receive.message.max.bytes`, and what a response has besides its records.
const RECEIVE_BYTES: u64 = 100_000_000;
const FRAME_BYTES: u64 = 512;

/// A batch that is larger than a response may be is never fetched: the partition would stand for ever.
pub(super) fn message_size<'a>(
    config: &Config,
    topics: impl Iterator<Item = (&'a String, &'a Settings)>,
) -> Option<Check> {
    let option = config.kafka.options.get("receive.message.max.bytes");
    let most = option.and_then(|value| value.expose().parse().ok()).unwrap_or(RECEIVE_BYTES);
    let size = |settings: &Settings| settings.get("max.message.bytes")?.parse::<u64>().ok();
    let (topic, size) = topics.filter_map(|(topic, s)| Some((topic, size(s)?))).max_by_key(|(_, size)| *size)?;
    (size + FRAME_BYTES > most).then(|| {
        Check::fail(
            "kafka message size",
            format!("{topic} takes batches of {size} bytes, a response may have {most}"),
            format!("set \"receive.message.max.bytes\" in [kafka.options] to {} or more", size + FRAME_BYTES),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::check::Outcome;
    use crate::config::Host;

    const GUARDED: &str = "kind = \"table\"\ntable = \"t\"\nkey = [\"id\"]\nguard = \"source\"";
    const SQL: &str = "kind = \"sql\"\nsteps = [{ sql = \"DELETE FROM t WHERE id = :id\" }]";

    fn config(retention: &str, effect: &str) -> Config {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[kafka]\nbrokers = \"b:9092\"\ntopics = [\"shop\"]\n[store]\nurl = \"sqlite:x.db\"\n\
             retention = \"{retention}\"\n[[route]]\nname = \"r\"\nmatch = {{ topic = \"shop\" }}\nmessage_id = \"header:id\"\n\
             [route.effect]\n{effect}\n"
        );
        let host = Host { env: &|_| None, kafka_option: &|_, _| Ok(()) };
        Config::parse(&text, "p.toml", host).unwrap()
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const WEEK: &str = "604800000";

    #[test]
    fn the_window_covers_retention_and_one_segment() {
        let week = settings(&[("cleanup.policy", "delete"), ("retention.ms", WEEK), ("segment.ms", WEEK)]);
        assert_eq!(retention(&config("14d", SQL), "shop", &week), None);
        let short = retention(&config("13d", SQL), "shop", &week).unwrap();
        assert_eq!(short.outcome, Outcome::Fail);
        assert!(short.detail.contains("can redeliver for 14d") && short.detail.contains("remembers 13d"), "{short:?}");
        assert_eq!(retention(&config("13d", GUARDED), "shop", &week).unwrap().outcome, Outcome::Warn);
    }

    #[test]
    fn what_is_kept_for_ever_needs_an_inbox_for_ever_or_a_guard() {
        let compacted = settings(&[("cleanup.policy", "compact"), ("retention.ms", WEEK)]);
        let unlimited = settings(&[("cleanup.policy", "delete"), ("retention.ms", "-1"), ("segment.ms", WEEK)]);
        for kept in [compacted, unlimited] {
            assert_eq!(retention(&config("14d", SQL), "shop", &kept).unwrap().outcome, Outcome::Fail);
            assert_eq!(retention(&config("forever", SQL), "shop", &kept), None);
            assert_eq!(retention(&config("14d", GUARDED), "shop", &kept), None);
        }
        let both = settings(&[("cleanup.policy", "compact,delete"), ("retention.ms", WEEK), ("segment.ms", "0")]);
        assert_eq!(retention(&config("14d", SQL), "shop", &both), None);
    }

    #[test]
    fn a_batch_larger_than_a_response_is_found() {
        let config = config("14d", SQL);
        let sized = |bytes: &str| {
            let topics = BTreeMap::from([("shop".to_owned(), settings(&[("max.message.bytes", bytes)]))]);
            message_size(&config, topics.iter())
        };
        assert_eq!(sized("1048588"), None);
        assert_eq!(sized("100000000").unwrap().outcome, Outcome::Fail);
    }
}
