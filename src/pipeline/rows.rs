//! The inbox rows of a batch.

use std::collections::HashMap;

use super::Shared;
use super::attempt::Attempt;
use super::batch::{Entry, Item};
use crate::gate::Mark;
use crate::store::inbox::{NewRow, Status};

impl Attempt<'_> {
    /// The rows to insert if absent, sorted by their keys.
    pub(super) fn rows(&self, marks: &HashMap<&[u8], &Mark>) -> Vec<NewRow<'_>> {
        let mut rows: Vec<NewRow<'_>> = Vec::with_capacity(self.items.len());
        for item in self.items {
            if let Some(row) = new_row(self.shared, item).filter(|row| !marks.contains_key(row.key)) {
                rows.push(row);
            }
        }
        // Stable: of several records with one key the first stays.
        rows.sort_by(|a, b| a.key.cmp(b.key));
        rows.dedup_by(|later, first| later.key == first.key);
        rows
    }
}

/// A record's row, inserted in its final state: what turns out otherwise is updated before the commit.
pub(crate) fn new_row<'i>(shared: &'i Shared, item: &'i Item) -> Option<NewRow<'i>> {
    let routes = &shared.reader.routes;
    let position = &item.record.position;
    Some(match &item.entry {
        Entry::Skip(_) => return None,
        Entry::Message { message, .. } if !shared.inbox[message.route] => return None,
        Entry::Message { key, message } => NewRow {
            key,
            scope: &routes[message.route].scope,
            route: &routes[message.route].name,
            message_id: Some(message.id.as_str()),
            status: Status::Success,
            code: None,
            reason: None,
            digest: Some(message.digest.as_str()),
            correlation_id: message.correlation_id.as_deref(),
            source_app: message.source_app.as_deref(),
            receipt_key: message.correlation_id.as_deref().unwrap_or(message.id.as_str()),
            offset: position.offset,
            source_instance: message.event.source.as_ref().map(|source| &*source.name),
        },
        Entry::Faulty(faulty) => NewRow {
            key: &faulty.key,
            scope: faulty.route.map_or("", |index| &routes[index].scope),
            route: shared.route_name(faulty.route),
            message_id: faulty.id.as_ref().map(|id| id.as_str()),
            status: Status::Failed,
            code: Some(faulty.fault.code),
            reason: Some(&faulty.fault.detail),
            digest: Some(faulty.digest.as_str()),
            correlation_id: faulty.correlation_id.as_deref(),
            source_app: faulty.source_app.as_deref(),
            receipt_key: faulty.receipt_key(),
            offset: position.offset,
            source_instance: None,
        },
    })
}
