//! The receipts of a window: each must be on the receipts topic or on its way there, and say what the inbox says.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use serde::{Deserialize, Serialize};

use super::ReconcileError;
use super::report::Diff;
use super::verdict::Kind;
use crate::kafka::client::Connection;
use crate::kafka::window::{Bound, Span, Window, WindowError, WindowOptions};
use crate::pipeline::batch::{Entry, Item};
use crate::receipt::{ReceiptKind, ReceiptStatus, receipt_id};
use crate::store::Store;
use crate::store::reconcile::KnownRow;

/// Where receipts are pushed to.
#[derive(Clone, Debug)]
pub struct ReceiptsTopic {
    pub connection: Connection,
    pub topic: String,
}

/// A receipt that must be there.
pub(super) struct Expected {
    id: u128,
    status: ReceiptStatus,
    code: Option<Box<str>>,
    message_id: Option<Box<str>>,
    partition: i32,
    offset: i64,
    /// It was issued at or after this, in milliseconds since 1970.
    since_ms: i64,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nowhere,
    /// In the outbox.
    OnItsWay,
    OnTopic,
    /// On the topic, and it says something else.
    Differs,
}

/// How many receipts there were to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceiptCounts {
    pub expected: u64,
    pub delivered: u64,
    /// In the outbox.
    pub pending: u64,
    /// Not on the topic, whose log begins after they were issued.
    pub outside: u64,
    /// Neither here nor there, or with other content: differences.
    pub differing: u64,
}

pub(super) struct Receipts {
    at: ReceiptsTopic,
    expected: HashMap<u128, Expected>,
    pub counts: ReceiptCounts,
}

/// Receipts that are looked for in one pass over the topic: about 80 MB.
const PASS: usize = 500_000;
/// How far the clocks of the database and of the producer of receipts may be apart.
const SKEW_MS: i64 = 3_600_000;
const OUTBOX_PAGE: usize = 10_000;

impl Expected {
    pub fn new(item: &Item, row: &KnownRow, kind: ReceiptKind<'_>, status: ReceiptStatus, code: Option<&str>) -> Self {
        let position = &item.record.position;
        let id = match &item.entry {
            Entry::Message { message, .. } => Some(message.id.as_str()),
            Entry::Faulty(faulty) => faulty.id.as_ref().map(|id| id.as_str()),
            Entry::Skip(_) => None,
        };
        Self {
            id: number(&receipt_id(&row.key, kind)).unwrap_or_default(),
            status,
            code: code.map(Into::into),
            message_id: id.map(Into::into),
            partition: position.partition,
            offset: position.offset,
            since_ms: row.received_ms,
            found: Found::Nowhere,
        }
    }
}

/// A receipt's id is 32 hexadecimal digits.
fn number(id: &str) -> Option<u128> {
    u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)
}

/// What of a receipt is compared.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    receipt_id: String,
    status: ReceiptStatus,
    code: Option<String>,
}

impl Receipts {
    pub fn new(at: ReceiptsTopic) -> Self {
        Self { at, expected: HashMap::new(), counts: ReceiptCounts::default() }
    }

    /// Notes a receipt; true if it is time for a pass.
    pub fn expect(&mut self, expected: Expected) -> bool {
        // A duplicate of the same message asks for the same receipt.
        if let Slot::Vacant(slot) = self.expected.entry(expected.id) {
            slot.insert(expected);
            self.counts.expected += 1;
        }
        self.expected.len() >= PASS
    }

    /// Looks for what is expected so far; the differences.
    ///
    /// The outbox first: what is no longer there was on the topic before, so that it stands below the end that the topic
    /// has afterwards.
    pub async fn pass(&mut self, store: &Store, pipeline: &str, of: &str) -> Result<Vec<Diff>, ReconcileError> {
        if self.expected.is_empty() {
            return Ok(Vec::new());
        }
        let mut expected = std::mem::take(&mut self.expected);
        let mut after = 0;
        loop {
            let page = store.waiting_receipts(pipeline, after, OUTBOX_PAGE).await?;
            for receipt in page.iter().filter_map(|(_, id)| number(id)) {
                if let Some(expected) = expected.get_mut(&receipt) {
                    expected.found = Found::OnItsWay;
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == OUTBOX_PAGE => after = *last,
                Some(_) | None => break,
            }
        }
        let at = self.at.clone();
        let read = tokio::task::spawn_blocking(move || read(&at, &mut expected).map(|begins| (expected, begins)));
        let (expected, begins) = read.await.map_err(|error| ReconcileError::Failed(error.to_string()))??;
        Ok(self.settle(expected, begins, of))
    }

    fn settle(&mut self, expected: HashMap<u128, Expected>, begins: Option<i64>, of: &str) -> Vec<Diff> {
        let mut diffs = Vec::new();
        let mut differs = |one: &Expected, kind, detail: String| {
            diffs.push(Diff {
                kind,
                message_id: one.message_id.as_deref().map(str::to_owned),
                topic: of.to_owned(),
                partition: one.partition,
                offset: one.offset,
                detail,
                repaired: false,
            });
        };
        let topic = &self.at.topic;
        let says = |one: &Expected| format!("{:?} {}", one.status, one.code.as_deref().unwrap_or("-")).to_uppercase();
        for one in expected.values() {
            match one.found {
                Found::OnItsWay => self.counts.pending += 1,
                Found::OnTopic => self.counts.delivered += 1,
                Found::Differs => {
                    self.counts.differing += 1;
                    let receipt = format!("{:032x}", one.id);
                    differs(
                        one,
                        Kind::ReceiptDiffers,
                        format!("receipt {receipt} on {topic} does not say {} everywhere", says(one)),
                    );
                }
                Found::Nowhere if begins.is_some_and(|begins| one.since_ms < begins) => self.counts.outside += 1,
                Found::Nowhere => {
                    self.counts.differing += 1;
                    let receipt = format!("{:032x}", one.id);
                    differs(
                        one,
                        Kind::NoReceipt,
                        format!("receipt {receipt} ({}) is neither on {topic} nor in the outbox", says(one)),
                    );
                }
            }
        }
        diffs.sort_by_key(|diff| (diff.partition, diff.offset));
        diffs
    }
}

/// Reads the topic from the time of the first receipt on. The answer is the time at which what is left of the topic
/// begins, if its beginning is gone already: what was issued before may be gone too.
fn read(at: &ReceiptsTopic, expected: &mut HashMap<u128, Expected>) -> Result<Option<i64>, WindowError> {
    let open = |from| {
        Window::open(&WindowOptions {
            connection: at.connection.clone(),
            topic: at.topic.clone(),
            partition: None,
            from,
            to: Bound::End,
        })
    };
    let since = expected.values().map(|one| one.since_ms).min().unwrap_or_default() - SKEW_MS;
    let whole = open(Bound::Offset(0))?;
    let starts: HashMap<i32, &Span> = whole.spans().iter().map(|span| (span.partition, span)).collect();
    let recent = open(Bound::Time(since.max(0)))?;
    // Nothing that late, although receipts were issued: the broker's times are not ours, and all of the topic is read.
    let nothing = recent.spans().iter().all(|span| span.from >= span.to);
    let spans = if nothing { whole.spans() } else { recent.spans() };
    // Partitions that lost their beginning, and of which what is left is read from its first record on.
    let is_cut =
        |span: &&Span| starts.get(&span.partition).is_some_and(|start| start.gone > 0 && start.from == span.from);
    let cut: HashMap<i32, i64> = spans.iter().filter(is_cut).map(|span| (span.partition, span.from)).collect();
    let emptied = spans.iter().any(|span| cut.contains_key(&span.partition) && span.from >= span.to);
    let mut begins = emptied.then_some(i64::MAX);
    let window = if nothing { whole } else { recent };
    window.read(&|| false, &mut |record| {
        let position = &record.position;
        if cut.get(&position.partition) == Some(&position.offset) {
            begins = begins.max(record.timestamp_ms.map(|ms| ms.saturating_add(SKEW_MS)));
        }
        let told = record.value.as_deref().and_then(|value| serde_json::from_slice::<Told>(value).ok());
        if let Some(told) = told
            && let Some(one) = number(&told.receipt_id).and_then(|id| expected.get_mut(&id))
        {
            let same = told.status == one.status && told.code.as_deref() == one.code.as_deref();
            if !same {
                one.found = Found::Differs;
            } else if one.found != Found::Differs {
                one.found = Found::OnTopic;
            }
        }
        true
    })?;
    Ok(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_receipt_is_a_number_of_32_digits() {
        let id = receipt_id(b"key", ReceiptKind::Terminal { version: 1 });
        assert_eq!(number(&id).map(|number| format!("{number:032x}")), Some(id));
        for text in ["", "12", "zz", &"g".repeat(32), &"a".repeat(33)] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
