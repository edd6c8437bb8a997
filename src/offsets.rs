//! Where a lane starts, and whether its store or its topic went back in time; what of it is done.

pub mod outstanding;

/// What Kafka and the store know when a partition is assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFacts<'a> {
    /// The group's committed offset and the metadata that came with it.
    pub committed: Option<(i64, &'a str)>,
    /// First offset that the broker still has, and the one after its last.
    pub low: i64,
    pub high: i64,
    /// `next_offset` of the lane row, if there is one.
    pub lane_next: Option<i64>,
    pub store_epoch: &'a str,
    /// Epochs that this store had before.
    pub former_epochs: &'a [String],
    /// An operator has said that this store was restored: offsets of an epoch that it has forgotten are its own.
    pub adopts: bool,
    /// Where a group without offsets begins.
    pub policy_offset: i64,
    pub lost: LostOffsets,
}

/// `[kafka] on_lost_offsets`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostOffsets {
    #[default]
    Earliest,
    Stop,
}

/// Where to start, and what must be said and done before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    At(i64),
    /// An operator moved the group forward, past what this store has seen: obeyed, with a new store epoch, so
    /// that the gap is not taken for a store that went back.
    ResetForward(i64),
    /// The committed offset carries our epoch and is past the lane row: the store went back. Re-read from the row,
    /// with a new store epoch.
    StoreWentBack {
        from: i64,
        committed: i64,
    },
    /// The log ends before the committed offset: the topic was made anew.
    TopicRecreated {
        from: i64,
        committed: i64,
    },
    /// Records that nobody here has seen are gone from the broker.
    Lost {
        from: i64,
        lost_from: i64,
    },
    /// Nothing is done until somebody decides; the text says what and how.
    Refused(String),
}

impl StartFacts<'_> {
    /// Whether they hold still for the lane row as it was locked afterwards, none if it was not there: with a row that
    /// went back or away in between, the start that they led to would pass over records.
    pub fn hold(&self, locked_next: Option<i64>) -> bool {
        self.lane_next.is_none_or(|next| locked_next.is_some_and(|locked| locked >= next))
    }

    /// Whether the store gets a new epoch with this start. Marks of the gate rest on every record below the row's next
    /// offset having been processed in this life of the store: who passes over records ends that life.
    ///
    /// A committed offset of another epoch than the present one was left behind when an operator or another lane
    /// renewed it for the same reason: once is enough.
    pub fn renew(&self, start: &Start) -> bool {
        match start {
            Start::ResetForward(_) | Start::Lost { .. } => true,
            Start::StoreWentBack { .. } => self.committed.is_none_or(|(_, metadata)| metadata == self.store_epoch),
            // Its generation tells the marks apart.
            Start::TopicRecreated { .. } | Start::At(_) | Start::Refused(_) => false,
        }
    }
}

impl Start {
    /// The first offset to read; none where nothing may be read.
    pub fn from(&self) -> Option<i64> {
        match self {
            Self::At(from) | Self::ResetForward(from) => Some(*from),
            Self::StoreWentBack { from, .. } | Self::TopicRecreated { from, .. } | Self::Lost { from, .. } => {
                Some(*from)
            }
            Self::Refused(_) => None,
        }
    }
}

/// Kafka's committed offset decides; the lane row only tells whether the store went back.
///
/// | committed | metadata | lane row | log | start |
/// |---|---|---|---|---|
/// | none | – | none | any | policy |
/// | none | – | next > high | | `TopicRecreated` at low |
/// | none | – | next < low | | `Lost` at low, or `Refused` |
/// | none | – | next | | the earlier one of next and the policy |
/// | c | any | any | high < c | `TopicRecreated` at low |
/// | c | any | any | c < low | `Lost` at low, or `Refused`; of what our row has seen nothing is lost |
/// | c | ours or a former one of ours | next < c, or no row | low <= next | `StoreWentBack` at next (low without a row) |
/// | c | ours or a former one of ours | next < c | next < low | `Lost` at low, or `Refused` |
/// | c | ours or a former one of ours | next >= c | | c |
/// | c | another's | any | | `Refused`, or as ours if the store adopts them |
/// | c | empty | next < c | | `ResetForward` at c |
/// | c | empty | next >= c, or no row | | c |
pub fn decide_start(facts: &StartFacts<'_>) -> Start {
    let Some((committed, metadata)) = facts.committed else {
        // No commit yet, or the group's offsets have expired: records between the row and the policy are unseen.
        return match facts.lane_next {
            None => Start::At(facts.policy_offset),
            Some(next) if next > facts.high => Start::TopicRecreated { from: facts.low, committed: next },
            Some(next) if next < facts.low => lost(facts, next),
            Some(next) => Start::At(next.min(facts.policy_offset).max(facts.low)),
        };
    };
    if committed > facts.high {
        return Start::TopicRecreated { from: facts.low, committed };
    }
    let ours = metadata == facts.store_epoch || facts.former_epochs.iter().any(|epoch| epoch == metadata);
    let ours = ours || (facts.adopts && !metadata.is_empty());
    if !ours && !metadata.is_empty() {
        return Start::Refused(format!(
            "the group's offsets were committed with another store (epoch {metadata}): if this store was restored from \
             a backup run `countersign migrate --restored`, else use another `[kafka] group`"
        ));
    }
    let next = facts.lane_next;
    // A store without a row has seen nothing of this partition.
    let seen = next.unwrap_or(facts.low);
    let went_back = ours && seen < committed;
    let wanted = if went_back { seen } else { committed };
    if wanted < facts.low {
        // What the row has seen since the last commit of offsets is not lost; without a row nothing was.
        let unseen = next.filter(|_| ours).unwrap_or(wanted);
        return if unseen < facts.low { lost(facts, unseen) } else { Start::At(facts.low) };
    }
    if went_back {
        return Start::StoreWentBack { from: wanted, committed };
    }
    match next {
        Some(next) if next < committed => Start::ResetForward(committed),
        Some(_) | None => Start::At(committed),
    }
}

fn lost(facts: &StartFacts<'_>, wanted: i64) -> Start {
    match facts.lost {
        LostOffsets::Earliest => Start::Lost { from: facts.low, lost_from: wanted },
        LostOffsets::Stop => Start::Refused(format!(
            "offsets {wanted} to {} are gone from the broker and were never processed: reset the group's offset to go \
             on without them, or set `[kafka] on_lost_offsets = \"earliest\"`",
            facts.low - 1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> StartFacts<'static> {
        StartFacts {
            committed: Some((50, "e1")),
            low: 0,
            high: 100,
            lane_next: Some(50),
            store_epoch: "e1",
            former_epochs: &[],
            adopts: false,
            policy_offset: 0,
            lost: LostOffsets::Earliest,
        }
    }

    #[test]
    fn a_group_without_offsets_follows_the_policy_and_never_passes_over_what_the_row_has_not_seen() {
        let new = StartFacts { committed: None, lane_next: None, policy_offset: 7, ..facts() };
        assert_eq!(decide_start(&new), Start::At(7));
        let latest = StartFacts { committed: None, lane_next: Some(50), policy_offset: 100, ..facts() };
        assert_eq!(decide_start(&latest), Start::At(50));
        let earliest = StartFacts { committed: None, lane_next: Some(50), policy_offset: 0, ..facts() };
        assert_eq!(decide_start(&earliest), Start::At(0));
        let expired = StartFacts { committed: None, lane_next: Some(50), low: 60, policy_offset: 60, ..facts() };
        assert_eq!(decide_start(&expired), Start::Lost { from: 60, lost_from: 50 });
        let anew = StartFacts { committed: None, lane_next: Some(101), ..facts() };
        assert_eq!(decide_start(&anew), Start::TopicRecreated { from: 0, committed: 101 });
    }

    #[test]
    fn the_committed_offset_decides_and_the_lane_row_never_seeks_forward() {
        assert_eq!(decide_start(&facts()), Start::At(50));
        assert_eq!(decide_start(&StartFacts { lane_next: Some(90), ..facts() }), Start::At(50));
        assert_eq!(
            decide_start(&StartFacts { committed: Some((50, "")), lane_next: Some(90), ..facts() }),
            Start::At(50)
        );
        assert_eq!(decide_start(&StartFacts { committed: Some((50, "")), lane_next: None, ..facts() }), Start::At(50));
    }

    #[test]
    fn a_store_that_went_back_is_read_again_from_its_own_row() {
        let back = Start::StoreWentBack { from: 20, committed: 50 };
        assert_eq!(decide_start(&StartFacts { lane_next: Some(20), ..facts() }), back);
        let former = ["e1".to_owned()];
        let renewed = StartFacts { lane_next: Some(20), store_epoch: "e2", former_epochs: &former, ..facts() };
        assert_eq!(decide_start(&renewed), back);
        let emptied = StartFacts { lane_next: None, low: 5, ..facts() };
        assert_eq!(decide_start(&emptied), Start::StoreWentBack { from: 5, committed: 50 });
        let quiet = StartFacts { committed: Some((5, "e1")), ..emptied };
        assert_eq!(decide_start(&quiet), Start::At(5));
    }

    #[test]
    fn of_what_the_log_has_lost_only_the_unseen_is_named() {
        let eaten = StartFacts { committed: Some((50, "e1")), low: 70, ..facts() };
        let lost = |from| Start::Lost { from: 70, lost_from: from };
        assert_eq!(decide_start(&StartFacts { lane_next: Some(50), ..eaten.clone() }), lost(50));
        assert_eq!(decide_start(&StartFacts { lane_next: Some(60), ..eaten.clone() }), lost(60));
        assert_eq!(decide_start(&StartFacts { lane_next: Some(90), ..eaten.clone() }), Start::At(70));
        assert_eq!(decide_start(&StartFacts { lane_next: Some(20), ..eaten.clone() }), lost(20), "it went back");
        assert_eq!(decide_start(&StartFacts { lane_next: None, ..eaten.clone() }), lost(50), "nothing tells of any");
        let reset = StartFacts { committed: Some((50, "")), lane_next: Some(90), ..eaten };
        assert_eq!(decide_start(&reset), lost(50), "an operator wants them again");
    }

    #[test]
    fn who_passes_over_records_gives_the_store_a_new_epoch_and_a_renewal_is_not_repeated() {
        let renew = |facts: &StartFacts<'_>| facts.renew(&decide_start(facts));
        assert!(!renew(&facts()));
        let back = StartFacts { lane_next: Some(20), ..facts() };
        assert!(renew(&back));
        let former = ["e1".to_owned()];
        assert!(!renew(&StartFacts { store_epoch: "e2", former_epochs: &former, ..back.clone() }));
        assert!(!renew(&StartFacts { store_epoch: "e3", adopts: true, ..back.clone() }), "the operator has done so");
        assert!(renew(&StartFacts { committed: Some((80, "")), ..facts() }));
        assert!(renew(&StartFacts { low: 60, store_epoch: "e2", former_epochs: &former, ..back }));
    }

    #[test]
    fn a_start_holds_only_for_a_row_that_did_not_go_back() {
        assert!(facts().hold(Some(50)) && facts().hold(Some(51)));
        assert!(!facts().hold(Some(49)) && !facts().hold(None));
        let new = StartFacts { lane_next: None, ..facts() };
        assert!(new.hold(None) && new.hold(Some(0)));
    }

    #[test]
    fn offsets_of_another_store_are_refused() {
        let other = StartFacts { committed: Some((50, "other")), ..facts() };
        assert!(matches!(decide_start(&other), Start::Refused(_)));
        let adopted = StartFacts { adopts: true, lane_next: Some(20), ..other };
        assert_eq!(decide_start(&adopted), Start::StoreWentBack { from: 20, committed: 50 });
    }

    #[test]
    fn an_operators_reset_is_obeyed_both_ways() {
        let back = StartFacts { committed: Some((10, "")), lane_next: Some(50), ..facts() };
        assert_eq!(decide_start(&back), Start::At(10));
        let forward = StartFacts { committed: Some((80, "")), lane_next: Some(50), ..facts() };
        assert_eq!(decide_start(&forward), Start::ResetForward(80));
    }

    #[test]
    fn lost_records_are_named_and_a_new_topic_begins_at_its_start() {
        let lost = StartFacts { committed: Some((30, "e1")), low: 1200, high: 1300, lane_next: Some(30), ..facts() };
        assert_eq!(decide_start(&lost), Start::Lost { from: 1200, lost_from: 30 });
        assert!(matches!(decide_start(&StartFacts { lost: LostOffsets::Stop, ..lost }), Start::Refused(_)));
        let anew = StartFacts { committed: Some((10, "e1")), high: 5, lane_next: Some(10), ..facts() };
        assert_eq!(decide_start(&anew), Start::TopicRecreated { from: 0, committed: 10 });
    }
}
