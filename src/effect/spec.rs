//! What a route's effect is, as checked configuration.

use super::template::Template;

/// `[route.effect]`
#[derive(Clone, Debug, PartialEq)]
pub enum EffectSpec {
    Sql(Vec<SqlStep>),
    Table(TableSpec),
    /// Only the dedup row and the receipt.
    None,
}

/// One statement of a `sql` effect.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlStep {
    pub sql: Template,
    /// Rows that the statement must touch; otherwise `otherwise` holds.
    pub expect_rows: Option<u64>,
    pub otherwise: Answer,
    /// The `code` of the receipt if `otherwise` is reached; `ROWS` by default.
    pub code: Option<String>,
    pub violations: Violations,
}

/// What becomes of a message whose step did not do what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A FAILED receipt; the message's other steps are undone. An answer, not a fault.
    Reject,
    /// SUCCESS, noted as IGNORED; the message's later steps are not run.
    Ignore,
    /// Out of order: set aside and tried again, bounded, then parked.
    Retry,
    Park,
}

/// What a constraint violation means for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violations {
    pub on_unique: Answer,
    pub on_foreign_key: Answer,
    pub on_check: Answer,
}

impl Violations {
    /// A business key that is there already refuses the request.
    pub const SQL: Self = Self { on_unique: Answer::Reject, on_foreign_key: Answer::Retry, on_check: Answer::Park };
    /// A mirror has no business to refuse: somebody else wrote to its table.
    pub const TABLE: Self = Self { on_unique: Answer::Park, on_foreign_key: Answer::Retry, on_check: Answer::Park };

    /// Whether any is passed over, so that its statement has to be undone alone.
    pub fn may_ignore(&self) -> bool {
        [self.on_unique, self.on_foreign_key, self.on_check].contains(&Answer::Ignore)
    }
}

/// A `table` effect: changes of a source table applied to a target table by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// `table` or `schema.table`; each part is an identifier.
    pub table: Vec<String>,
    /// Columns of the target that identify a row.
    pub key: Vec<String>,
    /// Target column and the field that fills it; every other field keeps its name.
    pub rename: Vec<(String, String)>,
    pub guard: Guard,
    pub unknown_columns: UnknownColumns,
    pub violations: Violations,
    /// False gives up the dedup row and the receipts; only with a guard.
    pub inbox: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// The last one to arrive writes.
    #[default]
    None,
    /// An older source position never overwrites a newer row.
    Source,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownColumns {
    /// A field that the target lacks stops the lane: dropping it would be loss.
    #[default]
    Fail,
    Ignore,
}
