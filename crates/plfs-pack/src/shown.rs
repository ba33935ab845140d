//! The bytes of a file that show: what a reader looks into, and a write changes where it lies.

use std::collections::BTreeMap;

use plfs_format::name::SegmentRef;
use plfs_format::pack::Place;

use crate::Write;

/// A part of a file that shows bytes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Where they are.
    pub segment: SegmentRef,
    /// Offset there.
    pub physical: u64,
    /// When they were written.
    pub place: Place,
}

impl Extent {
    fn end(&self) -> u64 {
        self.logical + self.length
    }

    /// Its part from `from` to `to`, within it.
    fn part(&self, from: u64, to: u64) -> Extent {
        let physical = self.physical + (from - self.logical);
        Extent { logical: from, length: to - from, physical, ..*self }
    }
}

/// The extents of a file, by where they begin; what lies between is zero.
#[derive(Clone, Debug, Default)]
pub struct Shown(BTreeMap<u64, Extent>);

impl Shown {
    /// Those with bytes from `from` to `to`, ascending. Costs what they are.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Extent> {
        let before = self.0.range(..from).next_back().map(|(_, extent)| extent);
        let before = before.filter(|extent| extent.end() > from && from < to);
        let within = self.0.range(from..to.max(from)).map(|(_, extent)| extent);
        before.into_iter().chain(within)
    }

    /// All, ascending.
    pub fn all(&self) -> impl Iterator<Item = &Extent> {
        self.0.values()
    }

    /// The write shows up to `end`, but where a later one does.
    pub(crate) fn paint(&mut self, write: &Write, end: u64) {
        let begin = write.logical;
        if begin >= end {
            return;
        }
        let whole = Extent {
            logical: begin,
            length: end - begin,
            segment: write.segment,
            physical: write.physical,
            place: write.place,
        };
        let below: Vec<Extent> = self.within(begin, end).copied().collect();
        let mut at = begin;
        for known in below {
            if known.place > write.place {
                if known.logical > at {
                    self.put(whole.part(at, known.logical));
                }
                at = at.max(known.end());
                continue;
            }
            self.0.remove(&known.logical);
            if known.logical < begin {
                self.put(known.part(known.logical, begin));
            }
            if known.end() > end {
                self.put(known.part(end, known.end()));
            }
        }
        if at < end {
            self.put(whole.part(at, end));
        }
    }

    /// What was written before `place` ends at `size`.
    pub(crate) fn cut(&mut self, place: Place, size: u64) {
        let behind: Vec<Extent> = self.within(size, u64::MAX).copied().collect();
        for known in behind {
            if known.place < place {
                self.0.remove(&known.logical);
                if known.logical < size {
                    self.put(known.part(known.logical, size));
                }
            }
        }
    }

    fn put(&mut self, extent: Extent) {
        self.0.insert(extent.logical, extent);
    }
}
