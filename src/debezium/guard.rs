//! `guard = "source"`: which of two states of a row is the newer one, by the origin's log.
//!
//! Never by `ts_ms`: an incremental snapshot stamps an old state with a new time.

use std::cmp::Ordering;

use super::source::{Position, Snapshot, Source};

/// What stands beside a row in `row_versions`, as two short texts.
///
/// Within one lineage positions are of equal length, so that their byte order is their order, in SQL too. The
/// lineage of a read by a snapshot is [`GuardPosition::SNAPSHOT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardPosition {
    /// The log in which `position` counts: positions of two logs say nothing about each other.
    pub lineage: String,
    pub position: String,
}

/// What to do with a state that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardVerdict {
    Newer,
    /// The same position or an older one, or a snapshot read of a row that the log has spoken about.
    Stale,
    /// Another log: it wins by its arrival, and is worth a line in ours.
    OtherLineage,
}

/// The verdict together with what is to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardDecision {
    /// Write, and remember the position; without one nothing is known about the order, the last to arrive writes.
    Apply(Option<GuardPosition>),
    Stale,
}

/// Whether a change from `source` is written over what is known of its row (lineage and position).
pub fn guard_decision(source: Option<&Source>, known: Option<(&str, &str)>) -> GuardDecision {
    let Some(arriving) = source.and_then(guard_position) else { return GuardDecision::Apply(None) };
    let known = known.map(|(lineage, position)| GuardPosition { lineage: lineage.into(), position: position.into() });
    match arriving.judge(known.as_ref()) {
        GuardVerdict::Stale => GuardDecision::Stale,
        GuardVerdict::Newer | GuardVerdict::OtherLineage => GuardDecision::Apply(Some(arriving)),
    }
}

impl GuardPosition {
    pub const SNAPSHOT: &'static str = "snapshot";

    /// Whether a state at `self` replaces the one at `stored`.
    ///
    /// | arrives  | stored             | verdict |
    /// |----------|--------------------|---------|
    /// | any      | nothing            | Newer |
    /// | log      | snapshot           | Newer |
    /// | log      | same lineage       | Newer if beyond, else Stale |
    /// | log      | another lineage    | OtherLineage |
    /// | snapshot | snapshot           | Newer: by arrival |
    /// | snapshot | log                | Stale: its lsn or pos says when it read, not how old the row is; `guard reset` lets a snapshot repair |
    pub fn judge(&self, stored: Option<&Self>) -> GuardVerdict {
        let Some(stored) = stored else {
            return GuardVerdict::Newer;
        };
        match (self.is_snapshot(), stored.is_snapshot()) {
            (_, true) => GuardVerdict::Newer,
            (true, false) => GuardVerdict::Stale,
            (false, false) => match self.compare(stored) {
                None => GuardVerdict::OtherLineage,
                Some(Ordering::Greater) => GuardVerdict::Newer,
                Some(Ordering::Equal | Ordering::Less) => GuardVerdict::Stale,
            },
        }
    }

    /// `None`: of different lineages.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        (self.lineage == other.lineage).then(|| self.position.cmp(&other.position))
    }

    pub fn is_snapshot(&self) -> bool {
        self.lineage == Self::SNAPSHOT
    }
}

/// The guard position of a change; `None` where the connector's coordinates give no order.
///
/// | source                | lineage                   | position |
/// |-----------------------|---------------------------|----------|
/// | MySQL with GTID       | `g:` uuid (and tag)       | transaction number, file number, pos, row |
/// | MariaDB with GTID     | `d:` name, domain         | sequence number, file number, pos, row |
/// | binlog without GTID   | `f:` name, server id      | file number, pos, row |
/// | PostgreSQL            | `w:` name                 | lsn |
/// | snapshot reads        | `snapshot`                | empty |
///
/// One LSN is shared by rows of different keys only, and row locks order the LSNs of one key as they commit.
/// File and pos differ between servers; behind a transaction number they order what is inside one transaction.
pub fn guard_position(source: &Source) -> Option<GuardPosition> {
    if source.snapshot != Snapshot::No {
        return Some(GuardPosition { lineage: GuardPosition::SNAPSHOT.to_owned(), position: String::new() });
    }
    let (lineage, position) = match &source.position {
        Position::Binlog { server_id, gtid, file, pos, row } => {
            let place = format!("{:010}.{:019}.{:010}", file_number(file)?, *pos, *row);
            match gtid.as_deref().and_then(|gtid| transaction(gtid, &source.name)) {
                Some((lineage, number)) => (lineage, format!("{number:020}.{place}")),
                None => (format!("f:{}/{server_id}", source.name), place),
            }
        }
        Position::Wal { lsn: Some(lsn), .. } => (format!("w:{}", source.name), format!("{:020}", lsn.cast_unsigned())),
        Position::Wal { lsn: None, .. } | Position::Unknown => return None,
    };
    Some(GuardPosition { lineage, position })
}

/// The number at the end of a binlog's name: `binlog.000112` is 112. Names sort wrongly once the digits overflow.
pub(super) fn file_number(file: &str) -> Option<u32> {
    file.rsplit_once('.')?.1.parse().ok()
}

/// Lineage and number of a GTID: `uuid:number` or `uuid:tag:number` of MySQL, `domain-server-sequence` of MariaDB.
/// The server of a MariaDB GTID is not part of the lineage: a domain goes on numbering after a failover.
fn transaction(gtid: &str, name: &str) -> Option<(String, u64)> {
    if let Some((origin, number)) = gtid.rsplit_once(':') {
        return Some((format!("g:{origin}"), number.parse().ok()?));
    }
    let mut parts = gtid.split('-');
    let (domain, _server, sequence) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || domain.parse::<u32>().is_err() {
        return None;
    }
    Some((format!("d:{name}/{domain}"), sequence.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binlog(gtid: Option<&str>, file: &str, pos: i64, row: i64) -> Source {
        let position = Position::Binlog { server_id: 7, gtid: gtid.map(Into::into), file: file.into(), pos, row };
        Source { name: "n".into(), position, ..Source::default() }
    }

    fn wal(lsn: Option<i64>, snapshot: Snapshot) -> Source {
        Source { name: "n".into(), snapshot, position: Position::Wal { lsn, tx_id: None }, ..Source::default() }
    }

    #[test]
    fn log_order_is_position_order() {
        let ascending = [
            vec![
                binlog(None, "b.000009", 99, 0),
                binlog(None, "b.000010", 4, 0),
                binlog(None, "b.000010", 4, 1),
                binlog(None, "b.000010", 4, 10),
                binlog(None, "b.000010", 30, 0),
                binlog(None, "b.999999", 4, 0),
                binlog(None, "b.1000000", 4, 0),
            ],
            vec![
                binlog(Some("0-1-9"), "b.000009", 99, 0),
                binlog(Some("0-1-9"), "b.000009", 99, 1),
                binlog(Some("0-2-10"), "b.000001", 4, 0),
            ],
            vec![binlog(Some("3e11fa47:99"), "b.000009", 9, 0), binlog(Some("3e11fa47:100"), "b.000001", 4, 0)],
            vec![wal(Some(9), Snapshot::No), wal(Some(10), Snapshot::No), wal(Some(1 << 40), Snapshot::No)],
        ];
        for chain in ascending {
            let positions: Vec<_> = chain.iter().map(|source| guard_position(source).unwrap()).collect();
            for (i, a) in positions.iter().enumerate() {
                for (j, b) in positions.iter().enumerate() {
                    assert_eq!(a.compare(b), Some(i.cmp(&j)));
                    let verdict = if i > j { GuardVerdict::Newer } else { GuardVerdict::Stale };
                    assert_eq!(a.judge(Some(b)), verdict);
                }
                assert_eq!(a.judge(None), GuardVerdict::Newer);
            }
        }
    }

    #[test]
    fn a_snapshot_read_never_replaces_what_the_log_said() {
        let log = guard_position(&wal(Some(700_400), Snapshot::No)).unwrap();
        for read in [wal(None, Snapshot::Incremental), wal(Some(900_000), Snapshot::Yes)] {
            let read = guard_position(&read).unwrap();
            assert_eq!(read.judge(Some(&log)), GuardVerdict::Stale);
            assert_eq!(read.judge(None), GuardVerdict::Newer);
            assert_eq!(read.judge(Some(&read)), GuardVerdict::Newer);
            assert_eq!(log.judge(Some(&read)), GuardVerdict::Newer);
        }
    }

    #[test]
    fn logs_of_different_origins_are_not_compared() {
        let origins = [
            binlog(Some("uuid-a:1"), "b.000001", 4, 0),
            binlog(Some("uuid-b:1"), "b.000001", 4, 0),
            binlog(Some("0-1-1"), "b.000001", 4, 0),
            binlog(Some("1-1-1"), "b.000001", 4, 0),
            binlog(None, "b.000001", 4, 0),
            wal(Some(1), Snapshot::No),
        ];
        let positions: Vec<_> = origins.iter().map(|source| guard_position(source).unwrap()).collect();
        for (i, a) in positions.iter().enumerate() {
            for b in &positions[..i] {
                assert_eq!(a.judge(Some(b)), GuardVerdict::OtherLineage);
            }
        }
    }

    #[test]
    fn a_decision_remembers_what_it_applied() {
        let source = wal(Some(700_400), Snapshot::No);
        let position = guard_position(&source).unwrap();
        assert_eq!(guard_decision(Some(&source), None), GuardDecision::Apply(Some(position.clone())));
        let known = Some((position.lineage.as_str(), position.position.as_str()));
        assert_eq!(guard_decision(Some(&source), known), GuardDecision::Stale);
        assert_eq!(guard_decision(Some(&wal(None, Snapshot::Incremental)), known), GuardDecision::Stale);
        assert_eq!(guard_decision(None, known), GuardDecision::Apply(None));
    }

    #[test]
    fn no_order_without_coordinates() {
        assert_eq!(guard_position(&wal(None, Snapshot::No)), None);
        assert_eq!(guard_position(&binlog(None, "binlog", 4, 0)), None);
        assert_eq!(guard_position(&Source::default()), None);
    }
}
