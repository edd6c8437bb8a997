//! The work that goes on while everything breaks, and the oracle that says whether it came out right.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use countersign::invariants::{
    LaneSeen, MessageSeen, ReceiptSeen, ReceiptState, RowState, offsets_trail_outcomes, one_effect, one_receipt,
};
use countersign::receipt::{Receipt, ReceiptStatus};

use crate::broker::Rec;
use crate::daemon::program;
use crate::payments::{CHARGE, TABLES, payment};
use crate::wait::until;
use crate::world::World;

/// What has to become of a message, whatever happens to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Booked,
    /// The account does not cover it.
    Rejected,
    /// Its value is no JSON.
    Parked,
}

/// Everything that was sent.
#[derive(Default)]
pub struct Business {
    fates: BTreeMap<String, Fate>,
    /// Each message as it was sent first.
    sent: Vec<Rec>,
    conflicts: usize,
    records: usize,
    /// Copies of messages among the records.
    pub repeats: usize,
    /// The database lost outcomes that it had: they come a second time, at another hour.
    pub went_back: bool,
}

pub const PARTITIONS: i32 = 2;

/// Version and state of each message of the inbox.
async fn inbox(world: &World) -> BTreeMap<String, (i64, RowState)> {
    let rows = world.db.rows("message_id, status, version", "FROM countersign_inbox").await;
    let message = |row: String| {
        let mut words = row.split('|');
        let mut word = || words.next().unwrap().to_owned();
        let (key, status, version) = (word(), word(), word());
        let state = match status.as_str() {
            "SUCCESS" => RowState::Applied,
            "FAILED" => RowState::Failed,
            "PROCESSING" => RowState::Processing,
            _ => RowState::Waiting { complete: true },
        };
        (key, (version.parse().unwrap(), state))
    };
    rows.into_iter().map(message).collect()
}

/// Every message with its effects. A daemon is at work: what was final before the ledger was read has its effect in it,
/// and what is in it is in the inbox afterwards.
async fn messages(world: &World) -> Vec<MessageSeen<String>> {
    let before = inbox(world).await;
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for order in world.ledger().await {
        *effects.entry(order.trim_start_matches("order-").to_owned()).or_default() += 1;
    }
    let after = inbox(world).await;
    let final_before = |key: &String| before.get(key).filter(|(_, state)| state.is_final());
    let keys: BTreeSet<&String> =
        before.keys().filter(|key| final_before(key).is_some()).chain(effects.keys()).collect();
    let message = |key: &String| {
        let row = final_before(key).or_else(|| after.get(key));
        let (version, rows) = row.map_or((0, Vec::new()), |(version, state)| (*version, vec![*state]));
        MessageSeen { key: key.clone(), rows, effects: effects.get(key).copied().unwrap_or(0), version, told: true }
    };
    keys.into_iter().map(message).collect()
}

fn seen(receipt: &Receipt) -> ReceiptSeen<String> {
    let state = match (receipt.code.as_deref(), receipt.status) {
        (Some("CONFLICT"), _) => ReceiptState::Conflict,
        (_, ReceiptStatus::Processing) => ReceiptState::Processing,
        (_, ReceiptStatus::Success) => ReceiptState::Success,
        (_, ReceiptStatus::Failed) => ReceiptState::Failed,
    };
    let key = receipt.message_id.clone().unwrap_or_default();
    let Receipt { receipt_id, version, .. } = receipt;
    ReceiptSeen { id: receipt_id.clone(), key, version: *version, state, delivered: true, lost: false }
}

impl Business {
    pub async fn begin(world: &World) -> Self {
        world.db.run(TABLES).await;
        Self::default()
    }

    /// Parks are rare enough not to be taken for a systemic trouble.
    pub fn config(gate: &str) -> String {
        format!("[gate]\nurl = \"{gate}\"\n{CHARGE}")
    }

    /// The same in slices: by their ids, for all messages have the account's key.
    pub fn in_slices(gate: &str) -> String {
        Self::config(gate).replace("message_id", "order = \"none\"\nmessage_id")
    }

    /// Sends so many messages more, with repeats, refusals, poison and other contents under an id among them.
    pub async fn send(&mut self, world: &World, messages: usize) {
        let from = self.fates.len();
        let mut batch = Vec::new();
        for n in from..from + messages {
            let (id, on) = (format!("m-{n:05}"), n as i32 % PARTITIONS);
            let mut put = |record: Rec| {
                self.sent.push(record.clone().on(on));
                batch.push(record.on(on));
            };
            let fate = match n % 50 {
                17 => {
                    put(Rec::new(id.as_str(), "{broken").key("bob"));
                    Fate::Parked
                }
                13 | 36 => {
                    put(payment(&id, "poor", 1));
                    Fate::Rejected
                }
                _ => {
                    put(payment(&id, "bob", 1));
                    Fate::Booked
                }
            };
            if n % 8 == 5 {
                // As a connector that was killed sends it again.
                let again = batch.last().unwrap().clone();
                batch.push(again);
                self.repeats += 1;
            }
            if n % 50 == 41 {
                batch.push(payment(&id, "bob", 77).on(on));
                self.conflicts += 1;
            }
            self.fates.insert(id, fate);
        }
        self.records += batch.len();
        world.send(&batch).await;
    }

    /// Sends messages again that were sent before, at new offsets, as a connector does that lost its place.
    pub async fn repeat(&mut self, world: &World, messages: Range<usize>) {
        let batch = &self.sent[messages];
        self.records += batch.len();
        self.repeats += batch.len();
        world.send(batch).await;
    }

    pub fn messages(&self) -> usize {
        self.sent.len()
    }

    pub fn records(&self) -> usize {
        self.records
    }

    /// An operator's tool sets the group's offset of each partition back to the row's, or to the beginning.
    pub async fn set_offsets_back(&self, world: &World, to_the_beginning: bool) {
        for partition in 0..PARTITIONS {
            let next = world.lane(partition).await.map_or(0, |row| row.next_offset);
            let offset = if to_the_beginning { 0 } else { next };
            world.broker.commit(&world.name, &world.topic, partition, offset, "");
        }
    }

    fn count(&self, fate: Fate) -> usize {
        self.fates.values().filter(|known| **known == fate).count()
    }

    /// What must hold at every moment, in the middle of everything.
    pub async fn holds(&self, world: &World) {
        assert_eq!(one_effect(&messages(world).await), Ok(()));
        // Each account's balance is what its bookings say: no half of a message is there. In one statement, since a
        // daemon may be at work.
        let whole = "balance + (SELECT COALESCE(SUM(amount),0) FROM ledger WHERE account = accounts.id)";
        assert_eq!(world.db.rows(whole, "FROM accounts WHERE id = 'bob'").await, ["100000"]);
        let mut lanes = Vec::new();
        for partition in 0..PARTITIONS {
            // Asked first: the row may only have gone on since.
            if let Some((committed, _)) = world.committed(partition) {
                let next = world.lane(partition).await.expect("a lane whose offset is committed").next_offset;
                let name = format!("{}/{partition}", world.topic);
                lanes.push(LaneSeen { name, next, committed: Some(committed), records: Vec::new() });
            }
        }
        assert_eq!(offsets_trail_outcomes(&lanes), Ok(()));
    }

    /// Waits until every message has its outcome.
    pub async fn finished(&self, world: &World) {
        let (rows, letters) = (self.fates.len() as i64, (self.count(Fate::Parked) + self.conflicts) as i64);
        until(&format!("{rows} rows and {letters} dead letters"), || async {
            let done = world.db.count("FROM countersign_inbox WHERE status IN ('SUCCESS', 'FAILED')").await == rows
                && world.db.count("FROM countersign_dead_letters").await == letters
                && self.next_offsets(world).await == self.records as i64;
            done.then_some(())
        })
        .await;
    }

    /// Waits until a lane gets further than it is now, or has nothing to do.
    pub async fn goes_on(&self, world: &World) {
        let now = self.next_offsets(world).await;
        until("work that goes on", || async {
            let next = self.next_offsets(world).await;
            (next > now || next == self.records as i64).then_some(())
        })
        .await;
    }

    /// Of all partitions together.
    async fn next_offsets(&self, world: &World) -> i64 {
        let mut next = 0;
        for partition in 0..PARTITIONS {
            next += world.lane(partition).await.map_or(0, |row| row.next_offset);
        }
        next
    }

    /// Nothing lost, nothing twice: ledger, balance, inbox, dead letters and receipts are exactly what was sent.
    pub async fn proves_right(&self, world: &World) {
        self.finished(world).await;
        self.holds(world).await;
        let mut ledger = world.ledger().await;
        ledger.sort();
        let booked = self.fates.iter().filter(|(_, fate)| **fate == Fate::Booked);
        assert_eq!(ledger, booked.map(|(id, _)| format!("order-{id}")).collect::<Vec<_>>());

        let inbox =
            world.db.rows("message_id, status, code, version", "FROM countersign_inbox ORDER BY message_id").await;
        let expected = self.fates.iter().map(|(id, fate)| match fate {
            Fate::Booked => format!("{id}|SUCCESS|-|1"),
            Fate::Rejected => format!("{id}|FAILED|INSUFFICIENT_FUNDS|1"),
            Fate::Parked => format!("{id}|FAILED|undecodable|1"),
        });
        assert_eq!(inbox, expected.collect::<Vec<_>>());

        let pushed = world.pushed().await;
        if !self.went_back {
            let told: Vec<ReceiptSeen<String>> = pushed.iter().map(seen).collect();
            assert_eq!(one_receipt(&messages(world).await, &told), Ok(()));
        }
        // Delivered at least once, and always the same. What was lost and found again has its hours anew.
        let mut receipts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut conflicts = BTreeSet::new();
        for mut receipt in pushed {
            if self.went_back {
                (receipt.received_at, receipt.finished_at) = (String::new(), None);
            }
            let Receipt { receipt_id, message_id, .. } = &receipt;
            let id = message_id.clone().unwrap_or_default();
            if receipt.code.as_deref() == Some("CONFLICT") {
                conflicts.insert(receipt_id.clone());
            } else {
                receipts.entry(id).or_default().insert(receipt.to_json());
            }
        }
        assert_eq!(conflicts.len(), self.conflicts, "each conflict has a receipt of its own");
        assert_eq!(receipts.keys().collect::<Vec<_>>(), self.fates.keys().collect::<Vec<_>>());
        for (id, texts) in &receipts {
            assert_eq!(texts.len(), 1, "one terminal receipt, however often delivered: {texts:?}");
            let status = if self.fates[id] == Fate::Booked { "SUCCESS" } else { "FAILED" };
            assert!(texts.iter().all(|text| text.contains(status)), "{id}: {texts:?}");
        }
        self.reconciled(world);
    }

    /// The product's own oracle agrees: every record of the topic has its outcome, and every outcome its receipt.
    fn reconciled(&self, world: &World) {
        let config = world.file(&world.config(CHARGE));
        let arguments = ["reconcile", "-c", config.to_str().unwrap(), "--topic", &world.topic, "--receipts"];
        let ended = program().args(arguments).args(["--output", "json"]).output().unwrap();
        let (report, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(0), "{report}{errors}");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["status"], &report["checked"]), (&"clean".into(), &self.records.into()), "{report:#}");
        // A conflict is none where its dead letter is; nothing waits, nothing is left to do.
        let done = ["matched", "parked", "conflict"].map(|outcome| report["outcomes"][outcome].as_u64().unwrap());
        assert_eq!(done.iter().sum::<u64>(), self.records as u64, "{report:#}");
    }
}
