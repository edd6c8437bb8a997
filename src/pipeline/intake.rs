//! Records into items, with the schemas that they need. The registry may be down for hours: the records wait, and the
//! lane says why.

use std::collections::VecDeque;
use std::time::Duration;

use super::batch::{Entry, Item, Reader, Unready};
use crate::record::Record;

/// Why the first of the records cannot be read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It will pass.
    Outage { reason: String, retry_after: Option<Duration> },
    /// Somebody must look.
    Setup(String),
}

/// Reads records from the front until one has to wait. An error says why the first of them has to.
pub async fn ready(
    reader: &mut Reader,
    records: &mut VecDeque<Record>,
    generation: i64,
) -> Result<Vec<Item>, Hindrance> {
    let mut items = Vec::with_capacity(records.len());
    while let Some(record) = records.front() {
        match entry(reader, record, generation).await {
            Ok(entry) => items.extend(records.pop_front().map(|record| Item { record, entry })),
            Err(hindrance) if items.is_empty() => return Err(hindrance),
            // What stands before it need not wait.
            Err(_) => break,
        }
    }
    Ok(items)
}

/// What one record is.
pub async fn entry(reader: &mut Reader, record: &Record, generation: i64) -> Result<Entry, Hindrance> {
    loop {
        match reader.entry(record, generation) {
            Ok(entry) => return Ok(entry),
            Err(Unready::Setup(why)) => return Err(Hindrance::Setup(why)),
            Err(Unready::Schema(id)) => {
                return Err(Hindrance::Setup(format!("{id} is needed and there is no registry")));
            }
        }
    }
}
