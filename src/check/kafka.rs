//! Kafka: reachable, the topics there, kept no longer than the inbox remembers, and nobody else in the group.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Check, late, within};
use crate::check::topics::{message_size, retention};
use crate::config::{Config, ReceiptOptions};
use crate::kafka::client::{Connection, TopicInfo};
use crate::kafka::inspect::{Cluster, GroupInfo, Questions, Settings, Unanswered, broker_settings, topic_settings};
use crate::route::TopicPattern;

/// Wrong SASL or TLS settings may show in nothing but silence.
const REACH: Duration = Duration::from_secs(12);
const ASK: Duration = Duration::from_secs(4);
/// What the limits above leave to the client's own start and end.
const SPARE: Duration = Duration::from_secs(2);

type Group = Result<Option<GroupInfo>, Unanswered>;

pub(super) async fn checks(config: &Config, connection: &Connection) -> Vec<Check> {
    let (asked, group) = (connection.clone(), config.kafka.group.clone());
    let answer = tokio::task::spawn_blocking(move || {
        let questions = Questions::new(&asked)?;
        let cluster = questions.cluster(REACH)?;
        let group = questions.group(&group, ASK);
        Ok((cluster, group))
    });
    let limit = REACH + ASK + SPARE;
    let (cluster, group) = match tokio::time::timeout(limit, answer).await {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Ok(Err(why))) => return vec![not_reached(config, &why)],
        Ok(Err(_)) | Err(_) => return vec![late("kafka", limit)],
    };
    let brokers = cluster.brokers.len();
    let plural = if brokers == 1 { "broker answers" } else { "brokers answer" };
    let mut checks = vec![Check::ok("kafka", format!("{brokers} {plural} at {}", config.kafka.brokers))];
    checks.extend(topics(config, &cluster.topics));
    let inputs = inputs(config, &cluster.topics);
    checks.extend(pool(config, &inputs));
    let kept = settings(config, connection, &inputs, &cluster).await;
    checks.extend(retained(config, &inputs, &kept));
    checks.extend(receipts(config, connection, &cluster, &kept).await);
    checks.push(members(&config.kafka.group, &group));
    checks
}

/// What the topics keep against what the inbox remembers, and nothing else; nothing where nobody answers.
pub(super) async fn window(config: &Config, connection: &Connection) -> Vec<Check> {
    let asked = connection.clone();
    let answer = tokio::task::spawn_blocking(move || Questions::new(&asked)?.cluster(REACH));
    let Ok(Ok(Ok(cluster))) = tokio::time::timeout(REACH + SPARE, answer).await else { return Vec::new() };
    let inputs = inputs(config, &cluster.topics);
    retained(config, &inputs, &settings(config, connection, &inputs, &cluster).await)
}

fn not_reached(config: &Config, why: &Unanswered) -> Check {
    let brokers = &config.kafka.brokers;
    match why {
        Unanswered::Refused(reason) => Check::fail(
            "kafka",
            format!("the broker at {brokers} was reached and did not let us in: {reason}"),
            "correct `security.protocol`, `sasl.*` and `ssl.*` in [kafka.options]: user, password, mechanism, authority",
        ),
        Unanswered::Setup(reason) => {
            Check::fail("kafka", format!("no client can be made: {reason}"), "correct [kafka.options]")
        }
        Unanswered::Unreachable(reason) | Unanswered::Unsupported(reason) => Check::unreachable(
            "kafka",
            format!("no answer from {brokers}: {reason}"),
            "check `[kafka] brokers`, and that `security.protocol` in [kafka.options] is that of the listener: a broker \
             that expects TLS or SASL stays silent to a client without",
        ),
    }
}

fn inputs<'a>(config: &Config, topics: &'a [TopicInfo]) -> Vec<&'a TopicInfo> {
    topics.iter().filter(|topic| config.kafka.topics.iter().any(|pattern| pattern.matches(&topic.name))).collect()
}

/// The topics of the configuration and its routes held against those that exist.
fn topics(config: &Config, existing: &[TopicInfo]) -> Vec<Check> {
    let name = "kafka topics";
    let mut checks = Vec::new();
    for pattern in &config.kafka.topics {
        if existing.iter().any(|topic| pattern.matches(&topic.name)) {
            continue;
        }
        checks.push(match pattern {
            TopicPattern::Name(topic) => Check::fail(
                name,
                format!("there is no topic {topic}"),
                "correct `[kafka] topics`, start the connector that writes it, or let this user describe it",
            ),
            TopicPattern::Regex(regex) => Check::warn(
                name,
                format!("no topic matches {}", regex.as_str()),
                "correct `[kafka] topics`, unless the topics come later: they are found when they are there",
            ),
        });
    }
    let inputs = inputs(config, existing);
    for route in &config.routes {
        let Some(wanted) = &route.route.matcher.topic else { continue };
        if !inputs.iter().any(|topic| wanted.matches(&topic.name)) {
            checks.push(Check::warn(
                format!("route {} topic", route.route.name),
                format!("match.topic = {} takes no topic that exists among the inputs", wanted.as_str()),
                "correct it, or wait for the topic: until then this route takes nothing",
            ));
        }
    }
    let taken = |topic: &TopicInfo| {
        let takes = |pattern: &Option<TopicPattern>| pattern.as_ref().is_none_or(|p| p.matches(&topic.name));
        config.routes.iter().any(|route| takes(&route.route.matcher.topic))
    };
    let idle: Vec<&str> = inputs.iter().filter(|topic| !taken(topic)).map(|topic| topic.name.as_str()).collect();
    if !idle.is_empty() {
        let detail = format!("no route takes {}: records there are read for nothing", idle.join(", "));
        checks.push(Check::warn(name, detail, "add a route, or leave the topic out of `[kafka] topics`"));
    }
    if checks.is_empty() {
        let partitions: usize = inputs.iter().map(|topic| topic.partitions).sum();
        checks.push(Check::ok(name, format!("{} to read, {partitions} partitions", inputs.len())));
    }
    checks
}

fn pool(config: &Config, inputs: &[&TopicInfo]) -> Option<Check> {
    let lanes = inputs.iter().map(|topic| topic.partitions).sum();
    let warning = config.check_pool(lanes)?;
    let (detail, remedy) = warning.rsplit_once(": ").unwrap_or((&warning, "raise `[store] pool`"));
    Some(Check::warn("store pool", detail, format!("{remedy}, or run more instances")))
}

/// The settings of the inputs and of the receipts' topic, all in one question.
async fn settings(
    config: &Config,
    connection: &Connection,
    inputs: &[&TopicInfo],
    cluster: &Cluster,
) -> Result<BTreeMap<String, Settings>, String> {
    let mut names: Vec<String> = inputs.iter().map(|topic| topic.name.clone()).collect();
    names.extend(config.receipts.topic.iter().filter(|topic| exists(cluster, topic)).cloned());
    match tokio::time::timeout(ASK + SPARE, topic_settings(connection, &names, ASK)).await {
        Ok(answer) => answer.map_err(|why| why.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn exists(cluster: &Cluster, topic: &str) -> bool {
    cluster.topics.iter().any(|existing| existing.name == topic)
}

/// What the inputs' own settings say.
fn retained(config: &Config, inputs: &[&TopicInfo], kept: &Result<BTreeMap<String, Settings>, String>) -> Vec<Check> {
    let names: Vec<&str> = inputs.iter().map(|topic| topic.name.as_str()).collect();
    match kept {
        Ok(found) => judged(config, &names, found),
        Err(why) => vec![Check::warn(
            "kafka retention",
            format!("the brokers do not tell how long the topics are kept: {why}"),
            "allow this user DescribeConfigs on the topics, or see yourself that `[store] retention` covers their \
             retention.ms + segment.ms",
        )],
    }
}

fn judged(config: &Config, names: &[&str], found: &BTreeMap<String, Settings>) -> Vec<Check> {
    let mut checks = Vec::new();
    for name in names {
        match found.get(*name) {
            Some(settings) => checks.extend(retention(config, name, settings)),
            None => checks.push(Check::warn(
                "kafka retention",
                format!("the brokers do not tell how long {name} is kept"),
                "allow this user DescribeConfigs on it",
            )),
        }
    }
    if checks.is_empty() && !names.is_empty() {
        checks.push(Check::ok("kafka retention", "the inbox remembers as long as the topics can redeliver"));
    }
    checks.extend(message_size(config, found.iter().filter(|(topic, _)| names.contains(&topic.as_str()))));
    checks
}

/// Receipts need a topic to go to, which is none of the inputs and keeps every receipt.
async fn receipts(
    config: &Config,
    connection: &Connection,
    cluster: &Cluster,
    kept: &Result<BTreeMap<String, Settings>, String>,
) -> Vec<Check> {
    let name = "kafka receipts";
    let ReceiptOptions { topic, .. } = &config.receipts;
    let Some(topic) = topic else {
        return vec![Check::ok(name, "not pushed: they are kept in the inbox and served over HTTP")];
    };
    if config.kafka.topics.iter().any(|input| input.matches(topic)) {
        let detail = format!("{topic} is among the inputs: receipts would be read as messages");
        return vec![Check::fail(name, detail, "name another topic in [receipts]")];
    }
    if exists(cluster, topic) {
        // Where the brokers do not tell, the check of retention has said so.
        let policy = kept.as_ref().ok().and_then(|found| found.get(topic)?.get("cleanup.policy"));
        let compacted = policy.is_some_and(|policy| policy.contains("compact"));
        if compacted {
            let detail =
                format!("{topic} is compacted: of the receipts of one correlation id only the last would stay");
            return vec![Check::warn(name, detail, "set cleanup.policy=delete on it")];
        }
        return vec![Check::ok(name, format!("{topic} is there"))];
    }
    let broker = cluster.brokers.first().copied().unwrap_or(0);
    let made = within(name, ASK + SPARE, async {
        let create = "create it with the partitions and the retention that its readers need";
        match broker_settings(connection, broker, ASK).await {
            Ok(settings) if settings.get("auto.create.topics.enable").is_some_and(|value| value == "true") => {
                let detail =
                    format!("{topic} does not exist: the broker makes it at the first receipt, with its defaults");
                Check::warn(name, detail, create)
            }
            Ok(_) => Check::fail(name, format!("{topic} does not exist, and the broker makes no topics"), create),
            Err(why) => {
                let detail = format!("{topic} does not exist, and the broker does not tell if it makes topics: {why}");
                Check::fail(name, detail, create)
            }
        }
    });
    vec![made.await]
}

/// Whoever else reads with the group gets a part of the records.
fn members(group: &str, answer: &Group) -> Check {
    let name = "kafka group";
    match answer {
        Ok(None) => Check::ok(name, format!("{group} is new")),
        Ok(Some(info)) => {
            let strangers: Vec<&str> =
                info.members.iter().map(String::as_str).filter(|client| !client.starts_with("countersign")).collect();
            if strangers.is_empty() {
                Check::ok(name, format!("{group} is {}, {} members", info.state, info.members.len()))
            } else {
                Check::warn(
                    name,
                    format!("{group} is used by another program: client.id {}", strangers.join(", ")),
                    "give this pipeline a group of its own in `[kafka] group`, or stop the other: each would get a part",
                )
            }
        }
        Err(why) => {
            let remedy = match why {
                Unanswered::Unsupported(_) => "see yourself that no other program reads with it",
                Unanswered::Refused(_) | Unanswered::Unreachable(_) | Unanswered::Setup(_) => {
                    "allow this user Describe and Read on the group: without them it cannot join"
                }
            };
            Check::warn(name, format!("the brokers do not tell about {group}: {why}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_in_the_group_is_named() {
        let group = |members: &[&str]| {
            let members = members.iter().map(|&client| client.to_owned()).collect();
            members_check(Some(GroupInfo { state: "Stable".to_owned(), members }))
        };
        fn members_check(info: Option<GroupInfo>) -> Check {
            members("g", &Ok(info))
        }
        assert_eq!(group(&["countersign", "countersign"]), Check::ok("kafka group", "g is Stable, 2 members"));
        assert!(group(&["countersign", "sink-7"]).detail.ends_with("client.id sink-7"));
        assert_eq!(members_check(None).detail, "g is new");
    }
}
