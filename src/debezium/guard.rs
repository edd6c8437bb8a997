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

/// A sign that no position has, and that sorts behind all that they have.
const BEHIND: char = '~';

/// What to do with a state that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardVerdict {
    Newer,
    /// The same position or an older one, or a snapshot read of a row that the log has spoken about.
    Stale,
    /// Another log: it wins by its arrival, and is worth a line in ours.
    OtherLineage,
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

    /// Behind every earlier position of its lineage and before this one: for a row of which one half of a change is
    /// known, and the other half is to come. `None` for a read by a snapshot, which has no place in the log.
    pub fn just_before(&self) -> Option<Self> {
        let last = self.position.chars().last().filter(char::is_ascii_hexdigit)?;
        let stem = &self.position[..self.position.len() - 1];
        // Positions are of equal length: between two of them there is room behind the last sign.
        let position = format!("{stem}{}{BEHIND}", char::from(last as u8 - 1));
        Some(Self { lineage: self.lineage.clone(), position })
    }

    pub fn is_just_before(&self) -> bool {
        self.position.ends_with(BEHIND)
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
/// | SQL Server            | `c:` name, database       | commit LSN, change LSN, serial |
/// | Db2                   | `c:` name, database       | commit LSN, change LSN |
/// | Oracle by LogMiner    | `r:` name                 | commit SCN, SCN, address of the redo record |
/// | snapshot reads        | `snapshot`                | empty |
///
/// One LSN is shared by rows of different keys only, and row locks order the LSNs of one key as they commit.
/// File and pos differ between servers; behind a transaction number they order what is inside one transaction.
/// SQL Server's, Db2's and Oracle's orders are those by which their connectors go on after a restart (from Debezium's
/// source, not run here): a row's lock is held until the commit, so that commits of one row come one after the other.
/// Oracle by XStream, MongoDB (its source block tells the wall clock, not the cluster time) and Vitess give no order.
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
        Position::Capture { commit_lsn, change_lsn, serial } => {
            let place = format!("{}.{}.{:019}", lsn(commit_lsn)?, lsn(change_lsn.as_deref()?)?, serial.unwrap_or(0));
            (format!("c:{}/{}", source.name, source.db), place)
        }
        Position::Redo { scn, commit_scn, rs_id, lcr_position: None, .. } => {
            let place =
                format!("{}.{}.{}", scn_number(commit_scn.as_deref()?)?, scn_number(scn)?, address(rs_id.as_deref()?)?);
            (format!("r:{}", source.name), place)
        }
        Position::Wal { lsn: None, .. }
        | Position::Redo { lcr_position: Some(_), .. }
        | Position::Oplog { .. }
        | Position::Vgtid
        | Position::Unknown => return None,
    };
    Some(GuardPosition { lineage, position })
}

/// An LSN of hex groups, all of one width: `00000027:00000758:0005`. Db2's are longer; neither reaches 40 digits.
fn lsn(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
    let hex = (1..=40).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| format!("{digits:0>40}"))
}

/// An SCN in decimal digits, beyond 64 bits in some releases.
fn scn_number(text: &str) -> Option<String> {
    let number = (1..=39).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    number.then(|| format!("{text:0>39}"))
}

/// `0x00002c.00003c9b.0010`: log sequence, block and byte of a redo record. One transaction writes one thread's redo.
fn address(rs_id: &str) -> Option<String> {
    let mut parts = rs_id.trim().strip_prefix("0x")?.split('.');
    let mut part = |width: usize| {
        let part = parts.next()?;
        let hex = (1..=width).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
        hex.then(|| format!("{:0>width$}", part.to_ascii_lowercase()))
    };
    let address = format!("{}.{}.{}", part(12)?, part(12)?, part(8)?);
    parts.next().is_none().then_some(address)
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

    fn capture(commit: &str, change: &str, serial: Option<i64>) -> Source {
        let position = Position::Capture { commit_lsn: commit.into(), change_lsn: Some(change.into()), serial };
        Source { name: "n".into(), db: "d".into(), position, ..Source::default() }
    }

    fn redo(commit: &str, scn: &str, rs_id: &str) -> Source {
        let position = Position::Redo {
            scn: scn.into(),
            commit_scn: Some(commit.into()),
            tx_id: Some("6.28.807".into()),
            rs_id: Some(rs_id.into()),
            row_id: None,
            lcr_position: None,
        };
        Source { name: "n".into(), position, ..Source::default() }
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
            vec![
                capture("00000027:00000758:0005", "00000027:00000758:0003", Some(1)),
                capture("00000027:00000758:0005", "00000027:00000758:0003", Some(10)),
                capture("00000027:00000758:0005", "00000027:00000758:0004", Some(1)),
                capture("00000027:00000ac0:0007", "00000027:00000100:0002", Some(2)),
                capture("0000002A:00000000:0001", "00000027:00000100:0002", None),
            ],
            vec![
                redo("99", "98", "0x00002c.00003c9b.0010"),
                redo("100", "7", "0x00002c.00003c9b.0010"),
                redo("100", "98", "0x00002c.00003c9b.0010"),
                redo("100", "98", "0x00002c.00003c9b.0020"),
                redo("100", "98", "0x00002d.00000001.0010"),
                redo("100", "98", "0x100002d.00000001.0010"),
                redo("340282366920938463463", "1", "0x00002c.00003c9b.0010"),
            ],
            vec![wal(Some(9), Snapshot::No), wal(Some(10), Snapshot::No), wal(Some(1 << 40), Snapshot::No)],
        ];
        for chain in ascending {
            let positions: Vec<_> = chain.iter().map(|source| guard_position(source).unwrap()).collect();
            for (i, a) in positions.iter().enumerate() {
                for (j, b) in positions.iter().enumerate() {
                    assert_eq!(a.compare(b), Some(i.cmp(&j)));
                    let verdict = if i > j { GuardVerdict::Newer } else { GuardVerdict::Stale };
                    assert_eq!(a.judge(Some(b)), verdict);
                    let before = b.just_before().unwrap();
                    assert!(before.is_just_before() && !b.is_just_before());
                    let verdict = if i >= j { GuardVerdict::Newer } else { GuardVerdict::Stale };
                    assert_eq!(a.judge(Some(&before)), verdict, "{a:?} and just before {b:?}");
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
            assert_eq!(read.just_before(), None);
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
            capture("1", "1", None),
            Source { db: "other".into(), ..capture("1", "1", None) },
            redo("1", "1", "0x1.1.1"),
        ];
        let positions: Vec<_> = origins.iter().map(|source| guard_position(source).unwrap()).collect();
        for (i, a) in positions.iter().enumerate() {
            for b in &positions[..i] {
                assert_eq!(a.judge(Some(b)), GuardVerdict::OtherLineage);
            }
        }
    }

    #[test]
    fn no_order_without_coordinates() {
        assert_eq!(guard_position(&wal(None, Snapshot::No)), None);
        assert_eq!(guard_position(&binlog(None, "binlog", 4, 0)), None);
        assert_eq!(guard_position(&Source::default()), None);
        for (commit, scn, rs_id) in [
            ("1,2", "1", "0x1.2.3"),
            ("1", "-1", "0x1.2.3"),
            ("1", "1", "1.2.3"),
            ("1", "1", "0x1.2.3.4"),
            ("1", "1", ""),
        ] {
            assert_eq!(guard_position(&redo(commit, scn, rs_id)), None);
        }
        for (commit, change) in [("x", "1"), ("1", ""), (&*"0".repeat(41), "1")] {
            assert_eq!(guard_position(&capture(commit, change, None)), None);
        }
        for position in [Position::Oplog { ts_ms: 1, ord: 1, in_transaction: false }, Position::Vgtid] {
            assert_eq!(guard_position(&Source { position, ..Source::default() }), None);
        }
    }
}
