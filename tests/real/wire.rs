//! The wire formats, as converters of a connector and as a section of the daemon's configuration.

use crate::connect;
use crate::database::{Database, Kind};
use crate::world::{World, env};

/// How keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    /// `00` and a 4-byte id.
    Confluent,
    /// Ids in record headers.
    ApicurioHeaders,
    /// `00` and an 8-byte id.
    Apicurio8,
}

impl Format {
    pub const ALL: [Self; 4] = [Self::Json, Self::Confluent, Self::ApicurioHeaders, Self::Apicurio8];

    pub fn word(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Confluent => "confluent",
            Self::ApicurioHeaders => "headers",
            Self::Apicurio8 => "eight",
        }
    }

    /// The connector's converters.
    pub fn settings(self) -> Vec<(String, String)> {
        let framing: &[(&str, &str)] = match self {
            Self::Json => return Vec::new(), // as debezium/*.json have it: with schema
            Self::Confluent => &[("headers.enabled", "false"), ("as-confluent", "true"), ("use-id", "contentId")],
            Self::ApicurioHeaders => &[],
            Self::Apicurio8 => &[("headers.enabled", "false")],
        };
        let mut settings = vec![("schema.name.adjustment.mode".to_owned(), "avro".to_owned())];
        for part in ["key", "value"] {
            settings
                .push((format!("{part}.converter"), "io.apicurio.registry.utils.converter.AvroConverter".to_owned()));
            settings.push((format!("{part}.converter.schemas.enable"), String::new()));
            let mut set = |name: &str, value: &str| {
                settings.push((format!("{part}.converter.apicurio.registry.{name}"), value.to_owned()));
            };
            set("url", &format!("{}/apis/registry/v2", env("COUNTERSIGN_REGISTRY_URL")));
            set("auto-register", "true");
            framing.iter().for_each(|(name, value)| set(name, value));
        }
        settings
    }

    /// The daemon's `[registry]`.
    pub fn registry(self) -> String {
        let flavour = match self {
            Self::Json => return String::new(),
            Self::Confluent => "confluent",
            Self::ApicurioHeaders | Self::Apicurio8 => "apicurio",
        };
        let url = env("COUNTERSIGN_REGISTRY_URL");
        let url = if self == Self::Confluent { format!("{url}/apis/ccompat/v7") } else { url.to_owned() };
        format!("[registry]\nurl = \"{url}\"\nflavour = \"{flavour}\"\n")
    }
}

/// Registers the connector and waits until it streams; its topic.
pub fn connector(world: &World, source: &Database, format: Format) -> String {
    let prefix = world.topic(format.word());
    let (file, schema, database) = match source.kind {
        Kind::Postgres => ("postgres-source", "public", "database.dbname"),
        Kind::MariaDb | Kind::Sqlite => ("mariadb-source", source.name.as_str(), "database.include.list"),
    };
    let converters = format.settings();
    let table = format!("{schema}.every_type");
    let mut settings: Vec<(&str, &str)> =
        converters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    settings.extend([
        (database, source.name.as_str()),
        ("table.include.list", &table),
        ("topic.prefix", &prefix),
        // One partition: the truncate must keep its place among the rows.
        ("topic.creation.default.partitions", "1"),
        ("skipped.operations", "none"),
    ]);
    let name = world.connector_for(file, format.word(), &settings);
    connect::wait(&name);
    format!("{prefix}.{table}")
}
