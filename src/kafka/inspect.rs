//! Questions to the brokers before anything runs: who is there, how topics are kept, who reads with a group.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use tracing::debug;

use super::client::{Connection, TopicInfo};

/// Why a question has no answer. The texts hold no option values: librdkafka's own error about an option quotes it.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// A broker was reached and did not let us in, or the two sides do not speak the same protocol.
    #[error("{0}")]
    Refused(String),
    /// No broker was reached.
    #[error("{0}")]
    Unreachable(String),
    /// The settings make no client.
    #[error("{0}")]
    Setup(String),
    /// The brokers answer, but not to this question.
    #[error("{0}")]
    Unsupported(String),
}

/// What the brokers say of themselves.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub brokers: Vec<i32>,
    pub topics: Vec<TopicInfo>,
}

/// The settings of a topic or a broker, by name.
pub type Settings = BTreeMap<String, String>;

/// Who reads with a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    pub state: String,
    /// Client ids of the members.
    pub members: Vec<String>,
}

/// A client that hears why it gets no answer: a failed handshake is told by an event alone, the question itself only
/// times out.
pub struct Questions {
    producer: BaseProducer<Listener>,
}

#[derive(Default)]
struct Listener {
    refused: Mutex<Option<String>>,
    last: Mutex<Option<String>>,
}

/// One attempt of a question; between two of them events are heard.
const ATTEMPT: Duration = Duration::from_secs(1);
const HEAR: Duration = Duration::from_millis(50);

impl ClientContext for Listener {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        debug!(target: "librdkafka", facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let place = match code {
            Some(
                RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL | RDKafkaErrorCode::SaslAuthenticationFailed,
            ) => &self.refused,
            // Says only that the others said something.
            Some(RDKafkaErrorCode::AllBrokersDown) => return,
            _ => &self.last,
        };
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl ProducerContext for Listener {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &DeliveryResult<'_>, _opaque: ()) {}
}

impl Listener {
    fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Questions {
    pub fn new(connection: &Connection) -> Result<Self, Unanswered> {
        let producer = connection.config().create_with_context(Listener::default()).map_err(setup)?;
        Ok(Self { producer })
    }

    /// All brokers and topics. Blocks for `limit` at most: not for the async runtime's threads.
    pub fn cluster(&self, limit: Duration) -> Result<Cluster, Unanswered> {
        let until = Instant::now() + limit;
        loop {
            let answer = self.producer.client().fetch_metadata(None, ATTEMPT);
            self.producer.poll(HEAR);
            let error = match answer {
                Ok(metadata) => {
                    let topics = metadata.topics().iter();
                    return Ok(Cluster {
                        brokers: metadata.brokers().iter().map(|broker| broker.id()).collect(),
                        topics: topics
                            .map(|t| TopicInfo { name: t.name().to_owned(), partitions: t.partitions().len() })
                            .collect(),
                    });
                }
                Err(error) => error,
            };
            let listener = self.producer.context();
            if let Some(reason) = listener.refused() {
                return Err(Unanswered::Refused(reason));
            }
            if Instant::now() >= until {
                return Err(Unanswered::Unreachable(listener.last().unwrap_or_else(|| told(&error))));
            }
            if error.rdkafka_error_code() == Some(RDKafkaErrorCode::BrokerTransportFailure) {
                // Comes at once while every broker is down.
                std::thread::sleep(HEAR);
            }
        }
    }

    /// None if nobody has read with this group yet. Blocks for `limit` at most.
    pub fn group(&self, group: &str, limit: Duration) -> Result<Option<GroupInfo>, Unanswered> {
        let list = self.producer.client().fetch_group_list(Some(group), limit).map_err(unanswered)?;
        let found = list.groups().iter().find(|found| found.name() == group);
        Ok(found.filter(|found| found.state() != "Dead").map(|found| GroupInfo {
            state: found.state().to_owned(),
            members: found.members().iter().map(|member| member.client_id().to_owned()).collect(),
        }))
    }
}

/// The settings of topics, by name. A topic whose settings this user may not see is left out.
pub async fn topic_settings(
    connection: &Connection,
    topics: &[String],
    limit: Duration,
) -> Result<BTreeMap<String, Settings>, Unanswered> {
    let wanted: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let described = describe(connection, &wanted, limit).await?;
    let named = described.into_iter().filter_map(|resource| match &resource.specifier {
        OwnedResourceSpecifier::Topic(name) => Some((name.clone(), settings(&resource))),
        OwnedResourceSpecifier::Group(_) | OwnedResourceSpecifier::Broker(_) => None,
    });
    Ok(named.collect())
}

/// The settings of one broker, which hold for topics that are made later.
pub async fn broker_settings(connection: &Connection, broker: i32, limit: Duration) -> Result<Settings, Unanswered> {
    let described = describe(connection, &[ResourceSpecifier::Broker(broker)], limit).await?;
    Ok(described.first().map(settings).unwrap_or_default())
}

async fn describe(
    connection: &Connection,
    wanted: &[ResourceSpecifier<'_>],
    limit: Duration,
) -> Result<Vec<ConfigResource>, Unanswered> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let admin: AdminClient<DefaultClientContext> = connection.config().create().map_err(setup)?;
    let options = AdminOptions::new().request_timeout(Some(limit));
    let answers = admin.describe_configs(wanted, &options).await.map_err(unanswered)?;
    let mut described = Vec::with_capacity(answers.len());
    let mut refused = None;
    for answer in answers {
        match answer {
            Ok(resource) => described.push(resource),
            Err(code) => refused = Some(code),
        }
    }
    match refused {
        Some(code) if described.is_empty() => Err(Unanswered::Refused(code.to_string())),
        Some(_) | None => Ok(described),
    }
}

fn settings(resource: &ConfigResource) -> Settings {
    let shown = resource.entries.iter().filter(|entry| !entry.is_sensitive);
    shown.filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?))).collect()
}

fn setup(error: KafkaError) -> Unanswered {
    Unanswered::Setup(told(&error))
}

fn unanswered(error: KafkaError) -> Unanswered {
    let text = told(&error);
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::TopicAuthorizationFailed,
        ) => Unanswered::Refused(text),
        Some(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion) => {
            Unanswered::Unsupported(text)
        }
        _ => Unanswered::Unreachable(text),
    }
}

/// The error without the value of an option, which may be a secret.
fn told(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, _, name, _) => format!("librdkafka does not take the value of {name}"),
        other => other.to_string(),
    }
}
