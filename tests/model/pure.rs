//! The pure parts under random sequences, each against a reference that is too simple to be wrong.

use std::collections::{BTreeSet, HashMap};

use countersign::debezium::event::{ChangeEvent, Operation, Shape, SkipReason};
use countersign::debezium::value::Value;
use countersign::decision::{ParkWindow, PausePolicy};
use countersign::gate::{GateKey, Mark, Standing};
use countersign::offsets::{LostOffsets, Start, StartFacts, decide_start};
use countersign::receipt::{ReceiptKind, receipt_id};
use countersign::route::policy::{Admission, admit};
use countersign::route::{Route, SnapshotPolicy, TruncatePolicy};
use proptest::prelude::*;

use super::records::{Found, KEYS, Records, ShortRow, Told};

/// What happens to a lane, its store and its log.
#[derive(Clone, Debug)]
enum Event {
    /// Processes this many records; then Kafka is told or not.
    Process {
        records: i64,
        told: bool,
    },
    Restart,
    Backup,
    Restore,
    /// The log loses this many records from its start.
    Retention(i64),
    Append(i64),
    OperatorResets(i64),
    /// The group's offsets expire.
    OffsetsExpire,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (1..5i64, any::<bool>()).prop_map(|(records, told)| Event::Process { records, told }),
        4 => Just(Event::Restart),
        2 => Just(Event::Backup),
        2 => Just(Event::Restore),
        1 => (1..4i64).prop_map(Event::Retention),
        3 => (1..5i64).prop_map(Event::Append),
        1 => (0..20i64).prop_map(Event::OperatorResets),
        1 => Just(Event::OffsetsExpire),
    ];
    prop::collection::vec(event, 1..60)
}

#[derive(Clone, Default)]
struct Store {
    applied: BTreeSet<i64>,
    next: Option<i64>,
    epoch: usize,
    former: Vec<String>,
}

/// A lane that lives by the crate's decisions, and what is known to be gone for good.
struct Lane {
    store: Store,
    backup: Store,
    /// Of the committed offset: an epoch, none after an operator's reset.
    committed: Option<(i64, Option<usize>)>,
    low: i64,
    high: i64,
    at: Option<i64>,
    excused: BTreeSet<i64>,
    epochs: usize,
}

impl Lane {
    fn start(&mut self) {
        let epoch = format!("e{}", self.store.epoch);
        let metadata = self.committed.map(|(offset, epoch)| (offset, epoch.map_or(String::new(), |e| format!("e{e}"))));
        let facts = StartFacts {
            committed: metadata.as_ref().map(|(offset, metadata)| (*offset, metadata.as_str())),
            low: self.low,
            high: self.high,
            lane_next: self.store.next,
            store_epoch: &epoch,
            former_epochs: &self.store.former,
            // A store that has forgotten its epoch was restored, and its operator says so.
            adopts: true,
            policy_offset: self.low,
            lost: LostOffsets::Earliest,
        };
        let start = decide_start(&facts);
        let from = start.from().expect("everything is adopted, nothing is refused");
        assert!((self.low..=self.high).contains(&from), "{start:?} is outside of the log");
        let seen = self.store.next.unwrap_or(self.low);
        match start {
            // Both are said aloud.
            Start::ResetForward(to) => self.excused.extend(seen..to),
            Start::Lost { lost_from, .. } => assert!(lost_from < self.low),
            Start::At(_) if self.store.next.is_none() => self.excused.extend(self.low..from),
            Start::At(_) | Start::StoreWentBack { .. } | Start::TopicRecreated { .. } => {
                assert!(from <= seen || seen < self.low, "{start:?} passes over records from {seen} on in silence");
            }
            Start::Refused(_) => unreachable!(),
        }
        if facts.renew(&start) {
            self.store.former.insert(0, epoch);
            self.epochs += 1;
            self.store.epoch = self.epochs;
        }
        self.store.next = Some(self.store.next.unwrap_or(from));
        self.at = Some(from);
    }

    fn process(&mut self, records: i64, told: bool) {
        let Some(at) = self.at.filter(|at| *at >= self.low) else { return };
        let to = (at + records).min(self.high);
        self.store.applied.extend(at..to);
        self.store.next = self.store.next.map(|next| next.max(to));
        self.at = Some(to);
        if told {
            self.committed = Some((to, Some(self.store.epoch)));
        }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Process { records, told } => self.process(records, told),
            Event::Restart => self.start(),
            Event::Backup => self.backup = self.store.clone(),
            Event::Restore => {
                self.store = self.backup.clone();
                self.at = None;
            }
            Event::Retention(records) => self.low = (self.low + records).min(self.high),
            Event::Append(records) => self.high += records,
            Event::OperatorResets(to) => {
                self.committed = Some((to.clamp(self.low, self.high), None));
                self.at = None;
            }
            Event::OffsetsExpire => {
                self.committed = None;
                self.at = None;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_a_restart_reads_all_that_the_store_lacks(events in events()) {
        let store = Store { epoch: 1, ..Store::default() };
        let (backup, high) = (store.clone(), 8);
        let mut lane =
            Lane { store, backup, committed: None, low: 0, high, at: None, excused: BTreeSet::new(), epochs: 1 };
        for event in &events {
            lane.happens(event);
        }
        lane.start();
        lane.process(i64::MAX / 2, true);
        let missing: Vec<i64> = (lane.low..lane.high)
            .filter(|offset| !lane.store.applied.contains(offset) && !lane.excused.contains(offset))
            .collect();
        prop_assert!(missing.is_empty(), "{missing:?} were never applied");
        prop_assert_eq!(lane.store.next, Some(lane.high.max(lane.store.next.unwrap_or(0))));
    }

    #[test]
    fn a_batch_is_judged_as_its_records_would_be_one_by_one(
        log in prop::collection::vec((0..KEYS, 1..4u8), 1..12),
        known in prop::collection::vec(prop::option::of(1..4u8), KEYS),
    ) {
        let log: Vec<Told> = log.into_iter().map(|(key, content)| Told { key, content }).collect();
        let mut rows = [None; KEYS];
        for (row, content) in rows.iter_mut().zip(&known) {
            *row = content.map(|content| ShortRow { content, own: false, lane: 1, offset: 7 });
        }
        let judged = Records::new(std::slice::from_ref(&log)).judge_all(0, rows);
        let mut contents: HashMap<usize, u8> = HashMap::new();
        for (key, content) in known.iter().enumerate().filter_map(|(key, content)| Some((key, (*content)?))) {
            contents.insert(key, content);
        }
        let expected: Vec<Found> = log.iter().map(|told| match contents.get(&told.key) {
            None => {
                contents.insert(told.key, told.content);
                Found::First
            }
            Some(content) if *content == told.content => Found::Duplicate,
            Some(_) => Found::Conflict,
        }).collect();
        prop_assert_eq!(judged, expected);
    }

    #[test]
    fn the_window_of_parks_counts_what_a_list_would(
        records in prop::collection::vec((prop::bool::weighted(0.3), prop::bool::weighted(0.1)), 1..120),
        parks in 1..12usize,
        ratio in 0.05..1.0f64,
        window in 1..40i64,
    ) {
        let policy = PausePolicy { parks, ratio, window };
        let mut counted = ParkWindow::default();
        let mut list: Vec<bool> = Vec::new();
        for (parked, restarted) in records {
            list.push(parked);
            let last = list.iter().rev().take(window as usize).filter(|parked| **parked).count();
            let pauses = parked && (last >= parks || last as f64 > ratio * window as f64);
            prop_assert_eq!(counted.record(parked, &policy), pauses, "after {:?}", list);
            if restarted {
                let (seen, stored) = counted.stored();
                prop_assert_eq!(seen, list.len() as i64);
                counted = ParkWindow::from_stored(seen, &stored);
            }
        }
    }

    #[test]
    fn receipts_share_an_id_only_if_they_are_the_same(
        kinds in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..4), 0..3u8, 1..4i64), 2..20),
    ) {
        let mut ids: HashMap<String, (Vec<u8>, u8, i64)> = HashMap::new();
        for (key, kind, version) in kinds {
            let digest = format!("1:{version}");
            let of = match kind {
                0 => ReceiptKind::Terminal { version },
                1 => ReceiptKind::Processing { version },
                _ => ReceiptKind::Conflict { digest: &digest },
            };
            let known = ids.entry(receipt_id(&key, of)).or_insert_with(|| (key.clone(), kind, version));
            prop_assert_eq!(&*known, &(key, kind, version));
        }
    }

    #[test]
    fn a_mark_counts_only_in_the_stretch_and_the_life_that_it_was_made_in(
        mark in (0..3u8, 0..3u8, 0..3i64, 0..3i32, 0..6i64, 0..3u8),
        here in (0..3u8, 0..3u8, 0..3i64, 0..3i32, 0..6i64, prop::option::of(0..3u8)),
    ) {
        let texts = ["x", "y", "z"].map(str::to_owned);
        let text = |index: u8| texts[usize::from(index)].clone();
        let made = Mark {
            store_epoch: text(mark.0),
            key_hash: GateKey::new(b"k").hash,
            digest: text(mark.5),
            topic: text(mark.1),
            generation: mark.2,
            partition: mark.3,
            offset: mark.4,
        };
        let digest = here.5.map(text);
        let standing = Standing {
            store_epoch: &text(here.0),
            topic: &text(here.1),
            partition: here.3,
            generation: here.2,
            next_offset: here.4,
            digest: digest.as_deref(),
        };
        let same = (mark.0, mark.1, mark.2, mark.3) == (here.0, here.1, here.2, here.3);
        let due = same && mark.4 < here.4 && here.5.is_none_or(|digest| digest == mark.5);
        prop_assert_eq!(made.counts(&standing), due);
    }

    #[test]
    fn only_truncates_and_snapshot_reads_are_ever_kept_from_their_effect(
        op in prop::option::of(prop::sample::select(&[
            Operation::Read,
            Operation::Create,
            Operation::Update,
            Operation::Delete,
            Operation::Truncate,
            Operation::Message,
        ])),
        truncate in prop::sample::select(&[TruncatePolicy::Skip, TruncatePolicy::Apply, TruncatePolicy::Park]),
        snapshot in prop::sample::select(&[SnapshotPolicy::Auto, SnapshotPolicy::Apply, SnapshotPolicy::Skip]),
        derived in any::<bool>(),
        table in any::<bool>(),
    ) {
        let route = Route { truncate, snapshot, ..Route::default() };
        let event = ChangeEvent { op, ..ChangeEvent::message(Shape::Envelope, None, Value::Null) };
        match admit(&route, &event, derived, table) {
            Admission::Apply => prop_assert!(op != Some(Operation::Truncate) || truncate == TruncatePolicy::Apply),
            Admission::Park(_) => {
                prop_assert!(op == Some(Operation::Truncate) && truncate == TruncatePolicy::Park);
            }
            Admission::Skip(SkipReason::Truncate) => {
                prop_assert!(op == Some(Operation::Truncate) && truncate == TruncatePolicy::Skip);
            }
            Admission::Skip(SkipReason::Snapshot) => {
                let auto = snapshot == SnapshotPolicy::Auto && derived && !table;
                prop_assert!(op == Some(Operation::Read) && (auto || snapshot == SnapshotPolicy::Skip));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
