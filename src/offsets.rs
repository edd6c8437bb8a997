//! Where a lane starts, and whether its store or its topic went back in time.

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

/// Kafka's committed offset decides; the lane row only tells whether the store went back.
///
/// | committed | metadata | lane row | log | start |
/// |---|---|---|---|---|
/// | none | – | any | any | policy |
/// | c | any | any | high < c | `TopicRecreated` at low |
/// | c | any | any | c < low | `Lost` at low, or `Refused` |
/// | c | ours or a former one of ours | next < c, or no row | | `StoreWentBack` at next (low without a row) |
/// | c | ours or a former one of ours | next >= c | | c |
/// | c | another's | any | | `Refused` |
/// | c | empty | next < c | | `ResetForward` at c |
/// | c | empty | next >= c, or no row | | c |
pub fn decide_start(facts: &StartFacts<'_>) -> Start {
    let Some((committed, metadata)) = facts.committed else {
        return Start::At(facts.policy_offset);
    };
    if committed > facts.high {
        return Start::TopicRecreated { from: facts.low, committed };
    }
    let ours = metadata == facts.store_epoch || facts.former_epochs.iter().any(|epoch| epoch == metadata);
    if !ours && !metadata.is_empty() {
        return Start::Refused(format!(
            "the group's offsets were committed with another store (epoch {metadata}): if this store was restored from \
             a backup run `countersign migrate --restored`, else use another `[kafka] group`"
        ));
    }
    let next = facts.lane_next;
    if ours && next.is_none_or(|next| next < committed) {
        let from = next.unwrap_or(facts.low).max(facts.low);
        return Start::StoreWentBack { from, committed };
    }
    if committed < facts.low {
        return match facts.lost {
            LostOffsets::Earliest => Start::Lost { from: facts.low, lost_from: committed },
            LostOffsets::Stop => Start::Refused(format!(
                "offsets {committed} to {} are gone from the broker and were never processed: reset the group's offset \
                 to go on without them, or set `[kafka] on_lost_offsets = \"earliest\"`",
                facts.low - 1
            )),
        };
    }
    match next {
        Some(next) if next < committed => Start::ResetForward(committed),
        Some(_) | None => Start::At(committed),
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
            policy_offset: 0,
            lost: LostOffsets::Earliest,
        }
    }

    #[test]
    fn a_group_without_offsets_follows_the_policy() {
        assert_eq!(decide_start(&StartFacts { committed: None, policy_offset: 7, ..facts() }), Start::At(7));
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
    }

    #[test]
    fn offsets_of_another_store_are_refused() {
        let other = StartFacts { committed: Some((50, "other")), ..facts() };
        assert!(matches!(decide_start(&other), Start::Refused(_)));
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
