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
        let keyed = self.items.iter().filter_map(|item| match &item.entry {
            Entry::Skip(_) => None,
            Entry::Message { message, .. } if !self.shared.inbox[message.route] => None,
            Entry::Message { key, .. } => Some((key.as_slice(), item)),
            Entry::Faulty(faulty) => Some((faulty.key.as_slice(), item)),
        });
        let mut keyed: Vec<(&[u8], &Item)> = keyed.filter(|(key, _)| !marks.contains_key(key)).collect();
        // Stable: of several records with one key the first stays.
        keyed.sort_by_key(|(key, _)| *key);
        keyed.dedup_by(|(later, _), (first, _)| later == first);
        keyed.into_iter().filter_map(|(_, item)| new_row(self.shared, item)).collect()
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
            offset: position.offset,
            source_instance: None,
        },
    })
}
