//! Receipts: what became of a message, for those who sent it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::debezium::render::hex;

/// The state that a receipt tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ReceiptStatus {
    Processing,
    Success,
    Failed,
}

/// A receipt as it is served and pushed. Times are of the database's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub receipt_id: String,
    /// Null where the record had no usable id.
    pub message_id: Option<String>,
    pub pipeline: String,
    pub status: ReceiptStatus,
    pub code: Option<String>,
    pub reason: Option<String>,
    pub version: i64,
    pub correlation_id: Option<String>,
    pub source_app: Option<String>,
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    pub received_at: String,
    pub finished_at: Option<String>,
    pub position: ReceiptPosition,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiptPosition {
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
}

impl Receipt {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a receipt has string keys only")
    }
}

/// Which receipt of a message: a receipt that is sent again has the same id, another state has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptKind<'a> {
    /// The one terminal receipt of this version.
    Terminal { version: i64 },
    /// The message was set aside; it never stands for its final state.
    Processing { version: i64 },
    /// Another content under the same id; told apart by that content's digest.
    Conflict { digest: &'a str },
}

/// 32 hexadecimal digits, the same for the same receipt: consumers drop repeats by them.
pub fn receipt_id(inbox_key: &[u8], kind: ReceiptKind<'_>) -> String {
    let (name, detail) = match kind {
        ReceiptKind::Terminal { version } => ("terminal", version.to_string()),
        ReceiptKind::Processing { version } => ("processing", version.to_string()),
        ReceiptKind::Conflict { digest } => ("conflict", digest.to_owned()),
    };
    let mut hash = Sha256::new();
    // The length tells where the key ends, so that no two parts can be shifted into each other.
    hash.update((inbox_key.len() as u64).to_be_bytes());
    hash.update(inbox_key);
    hash.update(name);
    hash.update([0]);
    hash.update(detail);
    hex(&hash.finalize()[..16])
}

/// Codes that a receipt of ours can have besides those of `code` in a step.
pub mod code {
    pub const CONFLICT: &str = "CONFLICT";
    pub const IGNORED: &str = "IGNORED";
    pub const STALE: &str = "STALE";
    /// `otherwise` was reached without a code of its own.
    pub const ROWS: &str = "ROWS";
    pub const UNIQUE: &str = "UNIQUE";
    pub const FOREIGN_KEY: &str = "FOREIGN_KEY";
    pub const CHECK: &str = "CHECK";
    /// The database refuses the data of a message that is parked for it.
    pub const DATA_REFUSED: &str = "data_refused";
    pub const WAITING: &str = "WAITING";
    /// A redriven record whose message was there already; no receipt has it.
    pub const DUPLICATE: &str = "duplicate";
    /// Older than what the inbox remembers, and not to be proved new.
    pub const OUTSIDE_WINDOW: &str = "outside_window";
    /// Set aside as often as allowed, and still not possible.
    pub const RETRIES: &str = "RETRIES";
    pub const SKIPPED_BY_OPERATOR: &str = "SKIPPED_BY_OPERATOR";
    /// No statement of the database can carry the record.
    pub const TOO_LARGE: &str = "too_large";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_receipt_of_a_message_has_its_own_id_and_keeps_it() {
        let kinds = [
            ReceiptKind::Terminal { version: 1 },
            ReceiptKind::Terminal { version: 2 },
            ReceiptKind::Processing { version: 1 },
            ReceiptKind::Conflict { digest: "1:ab" },
        ];
        let ids: std::collections::HashSet<_> =
            [b"a".as_slice(), b"b"].iter().flat_map(|key| kinds.map(|kind| receipt_id(key, kind))).collect();
        assert_eq!(ids.len(), 8);
        assert_eq!(receipt_id(b"a", kinds[0]), receipt_id(b"a", kinds[0]));
        assert_eq!(receipt_id(b"a", kinds[0]).len(), 32);
    }

    #[test]
    fn a_receipt_comes_back_as_it_was() {
        let receipt = Receipt {
            receipt_id: "x".into(),
            message_id: Some("m".into()),
            pipeline: "p".into(),
            status: ReceiptStatus::Failed,
            code: Some("ROWS".into()),
            reason: None,
            version: 1,
            correlation_id: None,
            source_app: None,
            digest: None,
            result: None,
            received_at: "2026-11-30T00:00:00Z".into(),
            finished_at: None,
            position: ReceiptPosition { topic: "t".into(), partition: 0, offset: 7 },
        };
        let text = receipt.to_json();
        assert!(text.contains(r#""status":"FAILED""#) && text.contains(r#""messageId":"m""#));
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    }
}
