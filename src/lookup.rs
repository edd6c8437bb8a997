//! What the tables know of a message: its receipt, and its whole story.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::message::{MessageId, inbox_key};
use crate::receipt::{Receipt, ReceiptKind, ReceiptPosition, ReceiptStatus, code, receipt_id};
use crate::store::dead_letters::{DeadLetter, Filter};
use crate::store::inbox::Status;
use crate::store::inbox_entries::InboxEntry;
use crate::store::{Store, StoreError};

/// Where to look.
#[derive(Clone)]
pub struct Lookup {
    pub pipeline: Arc<str>,
    pub store: Store,
    /// The scopes of the pipeline's routes, each once.
    pub scopes: Vec<Arc<str>>,
}

/// A message's story, in order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    pub message_id: String,
    pub pipeline: String,
    pub scope: String,
    pub receipt: Receipt,
    pub route: String,
    pub attempts: i64,
    pub source_instance: Option<String>,
    pub next_try_at: Option<String>,
    /// Every time that something with this id was parked: conflicts included.
    pub dead_letters: Vec<DeadLetter>,
    pub events: Vec<Value>,
}

impl Lookup {
    /// The entries of this id; more than one only if several scopes have it.
    pub async fn entries(&self, id: &str, scope: Option<&str>) -> Result<Vec<InboxEntry>, StoreError> {
        let id = MessageId::new(id);
        let scopes = self.scopes.iter().filter(|known| scope.is_none_or(|wanted| wanted == &***known));
        let keys = scopes.map(|scope| inbox_key(&self.pipeline, scope, &id)).collect();
        let mut entries = self.store.inbox_entries(keys).await?;
        // A long id's key holds a hash: the id itself decides.
        entries.retain(|entry| entry.message_id.as_deref() == Some(id.as_str()));
        Ok(entries)
    }

    pub async fn receipts(&self, id: &str, scope: Option<&str>) -> Result<Vec<Receipt>, StoreError> {
        Ok(self.entries(id, scope).await?.iter().map(receipt_of).collect())
    }

    pub async fn by_correlation(&self, correlation_id: &str, limit: i64) -> Result<Vec<Receipt>, StoreError> {
        let entries = self.store.inbox_by_correlation(&self.pipeline, correlation_id, limit).await?;
        Ok(entries.iter().map(receipt_of).collect())
    }

    pub async fn stories(&self, id: &str, scope: Option<&str>) -> Result<Vec<Story>, StoreError> {
        let mut stories = Vec::new();
        for entry in self.entries(id, scope).await? {
            let filter = Filter { inbox_key: Some(entry.key.clone()), limit: 100, ..Filter::default() };
            let dead_letters = self.store.dead_letters(&self.pipeline, &filter).await?;
            let conflicts = self.store.conflict_digests(&entry.key).await?;
            stories.push(story(entry, dead_letters, &conflicts));
        }
        Ok(stories)
    }
}

/// The receipt that an inbox row stands for: the row alone can rebuild it.
pub fn receipt_of(entry: &InboxEntry) -> Receipt {
    let (status, kind) = match entry.status {
        Status::Success => (ReceiptStatus::Success, ReceiptKind::Terminal { version: entry.version }),
        Status::Failed => (ReceiptStatus::Failed, ReceiptKind::Terminal { version: entry.version }),
        Status::Processing | Status::Waiting => {
            (ReceiptStatus::Processing, ReceiptKind::Processing { version: entry.version })
        }
    };
    let waiting = matches!(entry.status, Status::Waiting).then(|| code::WAITING.to_owned());
    Receipt {
        receipt_id: receipt_id(&entry.key, kind),
        message_id: entry.message_id.clone(),
        pipeline: entry.pipeline.clone(),
        status,
        code: waiting.or_else(|| entry.code.clone()),
        reason: entry.reason.clone(),
        version: entry.version,
        correlation_id: entry.correlation_id.clone(),
        source_app: entry.source_app.clone(),
        digest: entry.digest.clone(),
        result: entry.result.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        received_at: entry.received_at.clone(),
        finished_at: entry.finished_at.clone(),
        position: ReceiptPosition { topic: entry.topic.clone(), partition: entry.partition, offset: entry.offset },
    }
}

/// `conflicts`: the digests of other contents under this id, by the number of the dead letter.
fn story(entry: InboxEntry, dead_letters: Vec<DeadLetter>, conflicts: &HashMap<i64, String>) -> Story {
    let receipt = receipt_of(&entry);
    let mut events = vec![json!({
        "at": entry.received_at, "event": "received", "topic": entry.topic, "partition": entry.partition,
        "offset": entry.offset, "route": entry.route, "digest": entry.digest,
    })];
    if let Some(next) = &entry.next_try_at {
        events.push(json!({ "at": next, "event": "next try", "attempts": entry.attempts, "reason": entry.reason }));
    }
    if let Some(finished) = &entry.finished_at {
        events.push(json!({
            "at": finished, "event": entry.status.as_str(), "code": entry.code, "reason": entry.reason,
            "receipt": receipt.receipt_id,
        }));
    }
    events.extend(dead_letters.iter().map(|letter| {
        let mut event = json!({
            "at": letter.created_at, "event": format!("parked ({})", letter.class), "deadLetter": letter.id,
            "topic": letter.topic, "partition": letter.partition, "offset": letter.offset, "code": letter.code,
            "reason": letter.reason, "status": letter.status,
        });
        if let Some(digest) = conflicts.get(&letter.id) {
            // Another content has its own receipt beside the first one's.
            event["digest"] = digest.as_str().into();
            event["receipt"] = receipt_id(&entry.key, ReceiptKind::Conflict { digest }).into();
        }
        event
    }));
    events.extend(dead_letters.iter().filter(|letter| letter.decided_by.is_some()).map(|letter| {
        let event = if letter.status == "open" { "redriven in vain" } else { letter.status.as_str() };
        json!({
            "at": letter.updated_at, "event": event, "deadLetter": letter.id, "by": letter.decided_by,
            "why": letter.decided_why, "reason": (letter.status == "open").then_some(&letter.reason),
        })
    }));
    events.sort_by_key(|event| event["at"].as_str().unwrap_or_default().to_owned());
    Story {
        message_id: entry.message_id.unwrap_or_default(),
        pipeline: entry.pipeline,
        scope: entry.scope,
        receipt,
        route: entry.route,
        attempts: entry.attempts,
        source_instance: entry.source_instance,
        next_try_at: entry.next_try_at,
        dead_letters,
        events,
    }
}
