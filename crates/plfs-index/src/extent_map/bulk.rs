//! Many records on their way into an index, in little memory.

use std::collections::{BinaryHeap, HashMap};

use plfs_format::Bad;
use plfs_format::flat_index::{BLOCK_EXTENTS, Blocks, Extent};
use plfs_format::name::SegmentRef;

use super::merge::{Span, sweep};
use crate::{Order, Run};

/// Singles that are sorted and packed at once: 2^20 are 40 MiB before and some 10 MiB after.
const BATCH: usize = 1 << 20;

/// Segment, physical minus logical offset, number of the set.
pub(super) type Source = (u32, u64, u32);

/// Records of several index logs. Singles are packed as they become many; which of them hide others
/// is decided then and when all is merged. One thread fills one; several are merged.
pub struct Bulk {
    /// What set numbers mean here.
    pub(super) sets: Vec<u32>,
    set_numbers: HashMap<u32, u32>,
    /// What segment numbers mean here.
    segments: Vec<SegmentRef>,
    numbers: HashMap<SegmentRef, u32>,
    pub(super) singles: Vec<Extent>,
    pub(super) packed: Vec<Blocks>,
    pub(super) runs: Vec<(Run, Order)>,
    pub(super) truncates: Vec<(Order, u64)>,
    records: u64,
    oldest: u64,
    newest: u64,
}

impl std::fmt::Debug for Bulk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bulk").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Default for Bulk {
    fn default() -> Bulk {
        Bulk {
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            segments: Vec::new(),
            numbers: HashMap::new(),
            singles: Vec::new(),
            packed: Vec::new(),
            runs: Vec::new(),
            truncates: Vec::new(),
            records: 0,
            oldest: u64::MAX,
            newest: 0,
        }
    }
}

impl Bulk {
    /// An empty one that numbers log sets like this list.
    pub(super) fn numbered(sets: &[u32]) -> Bulk {
        let set_numbers = sets.iter().enumerate().map(|(i, set)| (*set, i as u32)).collect();
        Bulk { sets: sets.to_vec(), set_numbers, ..Bulk::default() }
    }

    /// The number of a segment here.
    pub fn number(&mut self, at: SegmentRef) -> u32 {
        *self.numbers.entry(at).or_insert_with(|| {
            self.segments.push(at);
            self.segments.len() as u32 - 1
        })
    }

    /// What segment numbers mean here.
    pub fn segments(&self) -> &[SegmentRef] {
        &self.segments
    }

    /// Adds a valid run.
    pub fn push(&mut self, run: Run, order: Order) {
        self.records += 1;
        (self.oldest, self.newest) = (self.oldest.min(order.stamp), self.newest.max(order.stamp));
        // Pieces without gaps are one piece.
        if run.count > 1 && run.stride != run.length as i64 {
            return self.runs.push((run, order));
        }
        let set = match self.sets.last() {
            Some(set) if *set == order.set => self.sets.len() as u32 - 1,
            _ => *self.set_numbers.entry(order.set).or_insert_with(|| {
                self.sets.push(order.set);
                self.sets.len() as u32 - 1
            }),
        };
        self.singles.push(Extent {
            logical: run.logical,
            length: run.bytes(),
            segment: run.segment,
            set,
            physical: run.physical,
            stamp: order.stamp,
        });
        if self.singles.len() >= BATCH {
            self.pack();
        }
    }

    /// Adds a truncate.
    pub fn push_truncate(&mut self, size: u64, order: Order) {
        (self.oldest, self.newest) = (self.oldest.min(order.stamp), self.newest.max(order.stamp));
        self.truncates.push((order, size));
    }

    /// The truncates.
    pub fn truncates(&self) -> &[(Order, u64)] {
        &self.truncates
    }

    /// The smallest stamp; the largest number if there is none.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Number of runs that were added.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The largest stamp, 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// All runs, in no particular order. Those that were packed may come in parts.
    pub fn into_runs(self) -> impl Iterator<Item = (Run, Order)> {
        let mut singles = self.singles;
        for blocks in &self.packed {
            let view = blocks.view();
            (0..view.len())
                .filter_map(|i| view.block(i).ok())
                .for_each(|block| block.collect_into(&mut singles));
        }
        let sets = self.sets;
        let singles = singles.into_iter().map(move |e| {
            (
                Run::single(e.logical, e.length, e.segment, e.physical),
                Order { stamp: e.stamp, set: sets[e.set as usize] },
            )
        });
        singles.chain(self.runs)
    }

    /// Calls for all runs, in no particular order. What was packed may come in parts.
    pub fn for_each(&self, mut f: impl FnMut(Run, Order)) {
        let mut packed = Vec::new();
        let mut each = |e: &Extent| {
            let order = Order { stamp: e.stamp, set: self.sets[e.set as usize] };
            f(Run::single(e.logical, e.length, e.segment, e.physical), order)
        };
        self.singles.iter().for_each(&mut each);
        for blocks in &self.packed {
            let view = blocks.view();
            for block in (0..view.len()).filter_map(|i| view.block(i).ok()) {
                packed.clear();
                block.collect_into(&mut packed);
                packed.iter().for_each(&mut each);
            }
        }
        self.runs.iter().for_each(|(run, order)| f(*run, *order));
    }

    /// Sorts and packs the singles that wait.
    pub(super) fn pack(&mut self) {
        if self.singles.is_empty() {
            return;
        }
        let mut singles = std::mem::take(&mut self.singles);
        singles.sort_unstable_by_key(|e| e.logical);
        let sets = &self.sets;
        let spans = singles.iter().map(|e| Span {
            order: Order { stamp: e.stamp, set: sets[e.set as usize] },
            start: e.logical,
            end: e.logical + e.length,
            tag: (e.segment, e.physical.wrapping_sub(e.logical), e.set),
        });
        // A batch is at most 2^21 extents after the sweep, some 100 MiB: far below what blocks can
        // be.
        let blocks = sweep_into_blocks(spans, |_| true).expect("a batch fits into blocks");
        self.packed.push(blocks);
        singles.clear();
        self.singles = singles;
    }
}

/// The blocks of what the newest wins among `spans`, which ascend by their starts, as far as it is
/// to be kept. Errors past 32 GiB of blocks.
pub(super) fn sweep_into_blocks(
    spans: impl Iterator<Item = Span<Source>>,
    mut keep: impl FnMut(&Span<Source>) -> bool,
) -> Result<Blocks, Bad> {
    let mut packer = Packer::new(true);
    sweep(spans, &mut BinaryHeap::new(), |s| {
        if !keep(&s) {
            return;
        }
        packer.push(Extent {
            logical: s.start,
            length: s.end - s.start,
            segment: s.tag.0,
            set: s.tag.2,
            physical: s.tag.1.wrapping_add(s.start),
            stamp: s.order.stamp,
        });
    });
    packer.finish()
}

/// Puts ascending extents into blocks.
pub(super) struct Packer {
    blocks: Blocks,
    waiting: Vec<Extent>,
    ordered: bool,
    /// More bytes than blocks can have.
    is_too_long: bool,
}

impl Packer {
    pub(super) fn new(ordered: bool) -> Packer {
        Packer {
            blocks: Blocks::default(),
            waiting: Vec::with_capacity(BLOCK_EXTENTS),
            ordered,
            is_too_long: false,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, extent: Extent) {
        if self.waiting.len() == BLOCK_EXTENTS {
            self.flush(self.ordered);
        }
        self.waiting.push(extent);
    }

    /// The extents of the block that would be made now.
    pub(super) fn waiting(&mut self) -> &mut Vec<Extent> {
        &mut self.waiting
    }

    /// Makes a block of what waits.
    pub(super) fn flush(&mut self, ordered: bool) {
        if !self.waiting.is_empty() {
            self.is_too_long |= self.blocks.push(&self.waiting, ordered).is_err();
            self.waiting.clear();
        }
    }

    /// The blocks; an error if they became longer than blocks can be, the last one included.
    pub(super) fn finish(mut self) -> Result<Blocks, Bad> {
        self.flush(self.ordered);
        match self.is_too_long {
            true => Err(Bad::new(0, "the index is too long for a flat index")),
            false => Ok(self.blocks),
        }
    }
}
