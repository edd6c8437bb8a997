//! How bytes are read: one flat list of steps that point at each other, so that a recursive type is no special case.

use compact_str::CompactString;

use crate::debezium::schema::Schema;
use crate::debezium::source;

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
    Record(Vec<FieldStep>),
    /// Not compiled yet.
    Pending,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldStep {
    pub name: CompactString,
    pub step: StepId,
    /// No event is made of it: it is stepped over unless the whole value is wanted.
    pub unused: bool,
}

/// When the connector saw the change, in three units: new at each emission.
const STAMPS: [&str; 3] = ["ts_ms", "ts_us", "ts_ns"];

impl Plan {
    /// Marks what is unused of an envelope: its stamps, and what a source block says beside its coordinates. Records of
    /// this form are changes or faults, never a value of someone's own, of which everything counts.
    pub fn mark_unused(&mut self) -> Result<(), std::num::TryFromIntError> {
        let Some(Step::Record(root)) = self.steps.get(self.root as usize) else { return Ok(()) };
        let find = |name: &str| root.iter().position(|field| &*field.name == name);
        let (Some(op), Some(source), Some(_), Some(_)) = (find("op"), find("source"), find("before"), find("after"))
        else {
            return Ok(());
        };
        let (Some(Step::Text), Some(Step::Record(block))) =
            (self.steps.get(root[op].step as usize), self.steps.get(root[source].step as usize))
        else {
            return Ok(());
        };
        // Copies: what else is of these types is read whole.
        let (mut root, mut block) = (root.clone(), block.clone());
        for field in &mut block {
            field.unused = !source::FIELDS.contains(&&*field.name);
        }
        for field in &mut root {
            field.unused = STAMPS.contains(&&*field.name);
        }
        root[source].step = StepId::try_from(self.steps.len())?;
        self.root = StepId::try_from(self.steps.len() + 1)?;
        self.steps.extend([Step::Record(block), Step::Record(root)]);
        Ok(())
    }
}
