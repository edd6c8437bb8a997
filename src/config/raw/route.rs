//! `[[route]]` as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, Scalar};
use crate::config::options::{Late, Order};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawRoute {
    /// Unique; `[a-z0-9_-]{1,64}`
    #[schemars(required)]
    pub name: Option<String>,
    /// Which records; what is left out matches everything
    #[serde(rename = "match")]
    pub matcher: Option<RawMatch>,
    /// Where the MessageId stands: "header:NAME", "key:PATH", "value:PATH" or "source"; of a list the first that is
    /// present counts
    #[schemars(required)]
    pub message_id: Option<OneOrMany>,
    /// Default "text"
    pub id_format: Option<RawIdFormat>,
    /// "header:NAME", "key:PATH" or "value:PATH"
    pub correlation_id: Option<String>,
    /// "header:NAME", "key:PATH" or "value:PATH"
    pub source_app: Option<String>,
    /// What the digest covers; default the whole business content
    pub digest: Option<RawDigest>,
    /// Types for JSON without a schema, by field: bool int uint float string bytes bits(n) decimal(p,s) date
    /// time(ms|us|ns) timestamp(ms|us|ns) timestamptz uuid json
    pub columns: Option<BTreeMap<String, String>>,
    /// Separates equal ids of different handlers; default ""
    pub scope: Option<String>,
    /// The value is JSON inside a JSON string; default false
    pub double_encoded: Option<bool>,
    /// What a truncate does; default "skip"
    pub truncate: Option<RawTruncate>,
    /// What a tombstone is; "delete" for flattened topics; default "skip"
    pub tombstone: Option<RawTombstone>,
    /// Whether snapshot reads are applied; default: yes, except with `source` ids and a `sql` effect
    pub snapshot: Option<RawSnapshot>,
    /// Default "partition"
    pub order: Option<Order>,
    /// What becomes of a new message from before the inbox window; default "park", with `guard = "source"` "apply"
    pub late: Option<Late>,
    /// What is done, once
    #[schemars(required)]
    pub effect: Option<RawEffect>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawMatch {
    /// A name, or `^regex`
    pub topic: Option<String>,
    /// `table`, `schema.table` or `db.schema.table`
    pub table: Option<String>,
    /// Debezium's letters: r, c, u, d, t, m
    pub op: Option<OneOrMany>,
    /// Text that a header must have: `header.NAME = "text"`
    pub header: Option<BTreeMap<String, Scalar>>,
    /// Value that a field must have: `value.PATH = "text"`
    pub value: Option<BTreeMap<String, Scalar>>,
    /// Prefix of logical decoding messages
    pub prefix: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawDigest {
    /// Dotted paths of the value
    #[schemars(length(min = 1))]
    pub include: Option<Vec<String>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum RawIdFormat {
    Text,
    Uuid,
    UuidBytes,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawTruncate {
    Skip,
    Apply,
    Park,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawTombstone {
    Skip,
    Delete,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawSnapshot {
    Apply,
    Skip,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(in crate::config) enum RawEffect {
    /// Statements with parameters
    Sql {
        /// Statements, in order
        #[schemars(required, length(min = 1))]
        steps: Option<Vec<RawStep>>,
    },
    /// Changes applied to a table by its key
    Table(RawTable),
    /// Only the dedup row and the receipt
    None {},
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawStep {
    /// One statement; `:field`, `:key.f`, `:before.f`, `:header.NAME` and `:meta.…` are bound
    #[schemars(required)]
    pub sql: Option<String>,
    /// Rows that it must touch
    #[schemars(range(min = 0))]
    pub expect_rows: Option<u64>,
    /// What becomes of the message if it touches others; default "park"
    pub otherwise: Option<RawAnswer>,
    /// Code of the receipt then; default "ROWS"
    pub code: Option<String>,
    /// Default "reject"
    pub on_unique: Option<RawAnswer>,
    /// Default "retry"
    pub on_foreign_key: Option<RawAnswer>,
    /// Default "park"
    pub on_check: Option<RawAnswer>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawTable {
    /// `table` or `schema.table`
    #[schemars(required)]
    pub table: Option<String>,
    /// Columns of the target that identify a row
    #[schemars(required, length(min = 1))]
    pub key: Option<Vec<String>>,
    /// Target column and the field that fills it
    pub rename: Option<BTreeMap<String, String>>,
    /// "source": older source positions never overwrite newer rows; default "none"
    pub guard: Option<RawGuard>,
    /// What a field does that the target lacks; default "fail": the lane stops
    pub unknown_columns: Option<RawUnknownColumns>,
    /// false gives up the dedup row and the receipts; only with a guard; default true
    pub inbox: Option<bool>,
    /// Default "park"
    pub on_unique: Option<RawAnswer>,
    /// Default "retry"
    pub on_foreign_key: Option<RawAnswer>,
    /// Default "park"
    pub on_check: Option<RawAnswer>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawAnswer {
    Reject,
    Ignore,
    Retry,
    Park,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawGuard {
    None,
    Source,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum RawUnknownColumns {
    Fail,
    Ignore,
}
