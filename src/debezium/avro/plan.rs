//! How bytes are read: one flat list of steps that point at each other, so that a recursive type is no special case.

use compact_str::CompactString;

use crate::debezium::schema::Schema;

/// Index into [`Plan::steps`].
pub(super) type StepId = u32;

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub steps: Vec<Step>,
    pub root: StepId,
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Null,
    Bool,
    /// Of 32 bits.
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<CompactString>),
    Array(StepId),
    /// Connect's map with other keys than texts: an array of records of `key` and `value`.
    Entries {
        record: StepId,
        /// With text keys it is an object all the same, as in the JSON converter's output.
        text_keys: bool,
    },
    Map(StepId),
    /// `["null", X]` or `[X, "null"]`.
    Optional {
        null_branch: i64,
        inner: StepId,
    },
    /// Any other union: only here is the meaning applied while reading, for it depends on the branch.
    Union(Vec<(StepId, Schema)>),
    Record(Vec<(CompactString, StepId)>),
    /// Not compiled yet.
    Pending,
}
