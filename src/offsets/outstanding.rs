//! Records of a partition that are at work side by side, and the offset below which all of them are done.

use std::collections::VecDeque;

/// A window of records in the order of their offsets. It begins at the first one that is not done; what is done behind
/// that stays until everything before it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outstanding {
    window: VecDeque<Place>,
    /// The offset behind all that was admitted, or further: the end of the log, where only markers stand in between.
    end: i64,
    unfinished: usize,
    /// Of the unfinished ones.
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    offset: i64,
    bytes: usize,
    /// Something is to be done for it.
    due: bool,
    done: bool,
}

impl Outstanding {
    /// Nothing is at work; the next record is looked for from `next` on.
    pub fn new(next: i64) -> Self {
        Self { window: VecDeque::new(), end: next, unfinished: 0, bytes: 0 }
    }

    /// A record begins; its offset is behind all others. One that is not `due` is passed over.
    pub fn admit(&mut self, offset: i64, bytes: usize, due: bool) {
        debug_assert!(offset >= self.end, "{offset} stands before {}", self.end);
        self.window.push_back(Place { offset, bytes, due, done: false });
        self.end = offset + 1;
        self.unfinished += 1;
        self.bytes += bytes;
    }

    /// All below `end` was admitted, or never comes.
    pub fn reach(&mut self, end: i64) {
        self.end = self.end.max(end);
    }

    /// These are done. The offsets ascend.
    pub fn finish(&mut self, offsets: impl IntoIterator<Item = i64>) {
        for offset in offsets {
            let Ok(at) = self.window.binary_search_by_key(&offset, |place| place.offset) else { continue };
            let place = &mut self.window[at];
            if !std::mem::replace(&mut place.done, true) {
                self.unfinished -= 1;
                self.bytes -= place.bytes;
            }
        }
        while self.window.front().is_some_and(|place| place.done) {
            self.window.pop_front();
        }
    }

    /// Everything below is done.
    pub fn mark(&self) -> i64 {
        self.window.front().map_or(self.end, |place| place.offset)
    }

    /// The mark as it will be once these are done too. The offsets ascend.
    pub fn mark_with(&self, offsets: impl IntoIterator<Item = i64>) -> i64 {
        let mut offsets = offsets.into_iter().peekable();
        for place in &self.window {
            while offsets.next_if(|offset| *offset < place.offset).is_some() {}
            if !place.done && offsets.peek() != Some(&place.offset) {
                return place.offset;
            }
        }
        self.end
    }

    /// The first record that something is to be done for.
    pub fn first_due(&self) -> Option<i64> {
        self.window.iter().find(|place| place.due && !place.done).map(|place| place.offset)
    }

    /// Where the next record is looked for.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Records from the mark on, done or not: what comes again if everything stops here.
    pub fn len(&self) -> usize {
        self.window.len()
    }

    pub fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Bytes of the records that are not done.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside the plainest thing that could be right: a list of all offsets that were ever admitted.
        #[test]
        fn the_mark_is_the_first_offset_that_is_not_done(
            steps in proptest::collection::vec((0_u8..4, 0_i64..3, proptest::collection::vec(any::<prop::sample::Index>(), 0..4)), 0..60),
        ) {
            let mut outstanding = Outstanding::new(7);
            let (mut all, mut end): (BTreeMap<i64, bool>, i64) = (BTreeMap::new(), 7);
            for (step, gap, picks) in steps {
                match step {
                    0 | 1 => {
                        outstanding.admit(end + gap, 10, (end + gap) % 3 > 0);
                        all.insert(end + gap, false);
                        end += gap + 1;
                    }
                    2 => {
                        outstanding.reach(end + gap);
                        end += gap;
                    }
                    _ => {
                        let open: Vec<i64> = all.iter().filter(|(_, done)| !**done).map(|(offset, _)| *offset).collect();
                        let mut picked: Vec<i64> = picks.iter().filter(|_| !open.is_empty()).map(|pick| open[pick.index(open.len())]).collect();
                        picked.sort_unstable();
                        picked.dedup();
                        let before = outstanding.mark();
                        let told = outstanding.mark_with(picked.iter().copied());
                        outstanding.finish(picked.iter().copied());
                        all.extend(picked.iter().map(|offset| (*offset, true)));
                        prop_assert_eq!(told, outstanding.mark());
                        prop_assert!(told >= before);
                    }
                }
                let first = all.iter().find(|(_, done)| !**done).map_or(end, |(offset, _)| *offset);
                prop_assert_eq!(outstanding.mark(), first);
                let due = all.iter().find(|(offset, done)| !**done && **offset % 3 > 0).map(|(offset, _)| *offset);
                prop_assert_eq!(outstanding.first_due(), due);
                prop_assert_eq!(outstanding.end(), end);
                let open = all.values().filter(|done| !**done).count();
                prop_assert_eq!(outstanding.unfinished(), open);
                prop_assert_eq!(outstanding.bytes(), 10 * open);
                prop_assert_eq!(outstanding.len(), all.range(first..).count());
                prop_assert_eq!(outstanding.is_empty(), open == 0);
            }
        }
    }
}
