//! What a route does with a record that is no ordinary change.

use super::{Route, SnapshotPolicy, TruncatePolicy};
use crate::debezium::event::{ChangeEvent, Operation, SkipReason};

/// Whether a routed event goes on to its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Apply,
    Skip(SkipReason),
    /// Parked under this code.
    Park(&'static str),
}

/// The policies of a route, for an event that has an id. `derived_id`: the id was made from `source`;
/// `table_effect`: the effect is a `table`, which applies snapshot reads under its guard.
///
/// | event         | policy               | admission |
/// |---------------|----------------------|-----------|
/// | truncate      | `skip` (default)     | Skip(Truncate) |
/// | truncate      | `apply`              | Apply |
/// | truncate      | `park`               | Park |
/// | snapshot read | `skip`               | Skip(Snapshot) |
/// | snapshot read | `apply`              | Apply |
/// | snapshot read | default, id derived, effect no table | Skip(Snapshot): the same row is a new message at every snapshot |
/// | snapshot read | default, otherwise   | Apply |
/// | anything else |                      | Apply |
pub fn admit(route: &Route, event: &ChangeEvent, derived_id: bool, table_effect: bool) -> Admission {
    match event.op {
        Some(Operation::Truncate) => match route.truncate {
            TruncatePolicy::Skip => Admission::Skip(SkipReason::Truncate),
            TruncatePolicy::Apply => Admission::Apply,
            TruncatePolicy::Park => Admission::Park("truncate"),
        },
        Some(Operation::Read) if event.is_snapshot_read() => match route.snapshot {
            SnapshotPolicy::Skip => Admission::Skip(SkipReason::Snapshot),
            SnapshotPolicy::Apply => Admission::Apply,
            SnapshotPolicy::Auto if derived_id && !table_effect => Admission::Skip(SkipReason::Snapshot),
            SnapshotPolicy::Auto => Admission::Apply,
        },
        Some(Operation::Read | Operation::Create | Operation::Update | Operation::Delete | Operation::Message)
        | None => Admission::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::event::Shape;
    use crate::debezium::value::Value;

    fn event(op: Option<Operation>) -> ChangeEvent {
        ChangeEvent { op, ..ChangeEvent::message(Shape::Envelope, None, Value::Null) }
    }

    #[test]
    fn the_table_holds() {
        let skip = Admission::Skip(SkipReason::Snapshot);
        let read = event(Some(Operation::Read));
        for (snapshot, derived, table, admission) in [
            (SnapshotPolicy::Auto, true, false, skip),
            (SnapshotPolicy::Auto, true, true, Admission::Apply),
            (SnapshotPolicy::Auto, false, false, Admission::Apply),
            (SnapshotPolicy::Apply, true, false, Admission::Apply),
            (SnapshotPolicy::Skip, false, true, skip),
        ] {
            assert_eq!(admit(&Route { snapshot, ..Route::default() }, &read, derived, table), admission);
        }
        for (truncate, admission) in [
            (TruncatePolicy::Skip, Admission::Skip(SkipReason::Truncate)),
            (TruncatePolicy::Apply, Admission::Apply),
            (TruncatePolicy::Park, Admission::Park("truncate")),
        ] {
            assert_eq!(
                admit(&Route { truncate, ..Route::default() }, &event(Some(Operation::Truncate)), true, false),
                admission
            );
        }
        let strict = Route { truncate: TruncatePolicy::Park, snapshot: SnapshotPolicy::Skip, ..Route::default() };
        for op in
            [None, Some(Operation::Create), Some(Operation::Update), Some(Operation::Delete), Some(Operation::Message)]
        {
            assert_eq!(admit(&strict, &event(op), true, false), Admission::Apply);
        }
    }

    #[test]
    fn a_flattened_row_without_metadata_is_no_snapshot_read() {
        let bare = ChangeEvent { shape: Shape::Flattened, ..event(Some(Operation::Read)) };
        let route = Route { snapshot: SnapshotPolicy::Skip, ..Route::default() };
        assert_eq!(admit(&route, &bare, true, false), Admission::Apply);
    }
}
