//! The model of the gate holds, and breaks where a rule is left out.

use super::explore::{breaks, holds};
use super::gate::{COMPLETE, Fault, Gate, Mutation, SAID_ONCE};
use super::records::{A, A_OTHER, B};

/// Two lanes that have one message in common.
fn shared_message() -> Gate {
    Gate::new(&[&[A, B], &[A]], &[Fault::Crash, Fault::LostAnswer, Fault::Redis], 2)
}

/// The same, with a database that goes back.
fn shared_and_restored() -> Gate {
    Gate::new(&[&[A], &[A]], &[Fault::Redis, Fault::Restore], 2)
}

/// Two contents under one id, on two lanes.
fn two_contents() -> Gate {
    Gate::new(&[&[A, B], &[A_OTHER]], &[Fault::Crash, Fault::LostAnswer], 2)
}

/// One lane whose log has a copy of its first record at its end.
fn copy_behind() -> Gate {
    let faults = &[
        Fault::Crash,
        Fault::LostAnswer,
        Fault::Redis,
        Fault::Restore,
        Fault::LateBackup,
        Fault::Retention,
        Fault::Reset,
    ];
    Gate { known_lanes: true, ..Gate::new(&[&[A, B, A]], faults, 2) }
}

/// The same, whose log loses its start while the database goes back and back again.
fn lost_start() -> Gate {
    let faults = &[Fault::Crash, Fault::Restore, Fault::Retention];
    Gate { known_lanes: true, ..Gate::new(&[&[A, B, A]], faults, 3) }
}

/// Two lanes whose database goes back twice.
fn twice_back() -> Gate {
    Gate { has_gate: false, ..Gate::new(&[&[A], &[B]], &[Fault::Restore], 2) }
}

#[test]
fn two_lanes_with_a_common_message_apply_it_once_whatever_the_gate_says() {
    holds("gate, common message", shared_message());
}

#[test]
fn a_mark_of_a_lost_future_counts_in_no_lane() {
    holds("gate, common message and a restore", shared_and_restored());
}

#[test]
fn two_contents_under_one_id_are_told_apart() {
    holds("gate, two contents", two_contents());
}

#[test]
fn a_copy_behind_a_lost_start_is_applied_after_a_restore() {
    holds("gate, a copy behind", copy_behind());
    holds("gate, a lost start", lost_start());
}

#[test]
fn a_store_that_goes_back_twice_is_read_again_twice() {
    holds("gate, twice back", twice_back());
}

#[test]
fn each_rule_of_the_gate_and_the_inbox_is_needed() {
    use Mutation as M;
    let effect = "I1 one effect";
    let offsets = "I3 offsets trail outcomes";
    let gate = "I4 the gate never lies";
    let unknown = "I7 unknown is not failure";
    for (mutation, model, rule) in [
        (M::MarkWithoutEpoch, copy_behind(), offsets),
        (M::MarkWithoutPosition, shared_and_restored(), offsets),
        (M::MarkOfAnyLane, copy_on_another_lane(), offsets),
        (M::MarkWithoutDigest, Gate::new(&[&[A, A_OTHER]], &[Fault::Crash], 1), gate),
        (M::ClaimIsProof, shared_message(), offsets),
        (M::ConfirmBeforeCommit, Gate { budget: 3, ..copy_behind() }, gate),
        (M::OneStatement, shared_message(), effect),
        (M::OwnTokenNotCompared, shared_message(), effect),
        (M::CommitWithoutEpoch, twice_back(), offsets),
        (M::ForgetsOwnCommits, copy_behind(), offsets),
        (M::LostKeepsEpoch, lost_start(), offsets),
        (M::StartNotHeld, crashed_and_back(), offsets),
        (M::AdoptionEnds, twice_back(), SAID_ONCE),
        (M::RenewalGuessed, lost_start(), gate),
        (M::QuietLaneNeverLooks, twice_back(), COMPLETE),
        (M::CutIsDone, shared_message(), unknown),
        (M::CutIsFailed, shared_message(), unknown),
    ] {
        breaks(&format!("{mutation:?}"), model.without(mutation), rule);
    }
}

/// A restart into a restore.
fn crashed_and_back() -> Gate {
    Gate { has_gate: false, ..Gate::new(&[&[A, B]], &[Fault::Restore, Fault::Crash], 2) }
}

/// Two lanes, the second with a copy of what the first one's lost future had.
fn copy_on_another_lane() -> Gate {
    Gate::new(&[&[A], &[B, A]], &[Fault::Restore], 1)
}
