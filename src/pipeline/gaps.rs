//! Where the offsets of fetched records do not follow each other. Pure.

/// Offsets that never came before the record at `at`: from `from` up to its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub at: usize,
    pub from: i64,
    pub to: i64,
}

/// Where offsets do not follow each other, up to where they begin again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Breaks {
    pub gaps: Vec<Gap>,
    pub again: Option<usize>,
}

pub(super) fn breaks(offsets: impl Iterator<Item = i64>, next: i64) -> Breaks {
    let (mut breaks, mut from) = (Breaks::default(), next);
    for (at, to) in offsets.enumerate() {
        if to < from {
            breaks.again = Some(at);
            break;
        }
        if to > from {
            breaks.gaps.push(Gap { at, from, to });
        }
        from = to + 1;
    }
    breaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_up_to_where_offsets_begin_again() {
        let of = |offsets: &[i64], next| breaks(offsets.iter().copied(), next);
        let gap = |at, from, to| Gap { at, from, to };
        assert_eq!(of(&[5, 6, 7], 5), Breaks::default());
        assert_eq!(of(&[7, 8, 11], 5), Breaks { gaps: vec![gap(0, 5, 7), gap(2, 9, 11)], again: None });
        assert_eq!(of(&[5, 7, 0, 1, 9], 5), Breaks { gaps: vec![gap(1, 6, 7)], again: Some(2) });
        assert_eq!(of(&[0, 1], 5), Breaks { gaps: vec![], again: Some(0) });
        assert_eq!(of(&[], 5), Breaks::default());
    }
}
