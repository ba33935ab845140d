//! Turns the writes of one process into few records as they happen.
//!
//! The [`Folder`] keeps the records that are finished and one *piece* that still grows: writes that continue it, logically and physically, only make it longer.
//! A piece is complete when a write comes that does not continue it; only then is it known how long it is, and only then does it fold with the records before it.
//! So a program that writes its pieces in small contiguous steps folds as well as one that writes each piece in one call.
//!
//! **Order.** Later records win over earlier ones, so no write may move in front of another one that it overlaps. A piece only ever joins the *last* records
//! (the last run, or the last two singles), so nothing lies between the records that become one; and the pieces of one run never overlap, because a fold wants
//! |distance| >= length. So a fold changes no byte of the file.

use super::Run;

/// What a [`Folder`] hands out, in the order of the writes: later items win over earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Pieces that were written.
    Run(Run),
    /// The file was cut, or grown, to this size in bytes.
    Truncate(u64),
}

/// Folds a stream of writes into runs: constant time a write, and no allocation for a write that folds.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    items: Vec<Item>,
    /// The piece that the next write may still extend; always a single.
    piece: Option<Run>,
    eof: u64,
}

impl Folder {
    /// Makes an empty folder. Allocates nothing.
    pub fn new() -> Folder {
        Folder::default()
    }

    /// Adds one write: `length` bytes at `logical` of the file lie at `physical` of segment `segment`. A write of 0 bytes changes nothing.
    ///
    /// Both ends must be at most 2^63-1; the caller refuses longer writes with EFBIG before any byte is stored.
    pub fn push(&mut self, logical: u64, length: u64, segment: u32, physical: u64) {
        if length == 0 {
            return;
        }
        let write = Run::single(logical, length, segment, physical);
        debug_assert!(write.is_valid(), "{write:?}");
        self.eof = self.eof.max(write.end());
        match &mut self.piece {
            Some(p) if p.segment == segment && p.logical + p.length == logical && p.physical + p.length == physical => p.length += length,
            _ => {
                self.finish();
                self.piece = Some(write);
            }
        }
    }

    /// Adds a marker between the writes before it and those after it: the file got this size, in bytes. Nothing folds across it.
    pub fn truncate(&mut self, size: u64) {
        self.finish();
        self.items.push(Item::Truncate(size));
    }

    /// Returns the number of records that [`take`](Folder::take) would give now. It can go down: three singles become one run.
    pub fn len(&self) -> usize {
        let (kept, last) = self.tail();
        kept + usize::from(last.is_some())
    }

    /// Returns true if nothing was pushed since the last [`take`](Folder::take).
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.piece.is_none()
    }

    /// Returns the bytes of memory that this folder occupies, about.
    pub fn bytes(&self) -> usize {
        size_of::<Folder>() + self.items.capacity() * size_of::<Item>()
    }

    /// Returns the largest logical end of the writes since the last [`take`](Folder::take), 0 if there were none. Truncates do not change it.
    pub fn eof(&self) -> u64 {
        self.eof
    }

    /// Takes all records, the unfinished piece included, and leaves the folder empty.
    pub fn take(&mut self) -> Vec<Item> {
        self.finish();
        self.eof = 0;
        std::mem::take(&mut self.items)
    }

    /// Iterates over the records from index `i` on as [`take`](Folder::take) would give them now; none if `i` is past the last. Changes nothing.
    pub fn snapshot_from(&self, i: usize) -> impl Iterator<Item = Item> {
        let (kept, last) = self.tail();
        self.items[i.min(kept)..kept].iter().copied().chain(last.filter(|_| i <= kept))
    }

    /// Returns how many leading records no later push changes. A reader may keep a copy of them and ask only for [the rest](Folder::snapshot_from),
    /// which is at most two records and the unfinished piece.
    pub fn stable_len(&self) -> usize {
        let may_change = match self.items.as_slice() {
            [.., Item::Truncate(_)] | [] => 0,
            [.., Item::Run(a), Item::Run(b)] if a.count == 1 && b.count == 1 => 2,
            [.., Item::Run(_)] => 1,
        };
        self.items.len() - may_change
    }

    /// The finished piece folds here and nowhere else.
    fn finish(&mut self) {
        let (kept, last) = self.tail();
        if let Some(item) = last {
            self.items.truncate(kept);
            self.items.push(item);
            self.piece = None;
        }
    }

    /// The records as they would be if the piece were finished now: the first `kept` items, then `last`.
    fn tail(&self) -> (usize, Option<Item>) {
        let n = self.items.len();
        let Some(p) = self.piece else {
            return (n, None);
        };
        match self.items.as_slice() {
            [.., Item::Run(r)] if r.count > 1 => {
                let expected = i128::from(r.logical) + i128::from(r.count) * i128::from(r.stride);
                if p.segment == r.segment
                    && p.length == r.length
                    && r.count < u32::MAX
                    && p.physical == r.physical + r.bytes()
                    && i128::from(p.logical) == expected
                {
                    return (n - 1, Some(Item::Run(Run { count: r.count + 1, ..*r })));
                }
            }
            // Three, not two: any two writes have a distance, so pairs of random writes would fold by accident and gain nothing.
            [.., Item::Run(a), Item::Run(b)] if a.count == 1 && b.count == 1 => {
                let follows = |x: &Run, y: &Run| x.segment == y.segment && x.length == y.length && x.physical + x.length == y.physical;
                // Offsets are at most 2^63-1, so the differences fit.
                let stride = p.logical as i64 - b.logical as i64;
                if follows(a, b) && follows(b, &p) && b.logical as i64 - a.logical as i64 == stride && stride.unsigned_abs() >= p.length {
                    return (n - 2, Some(Item::Run(Run { stride, count: 3, ..*a })));
                }
            }
            _ => {}
        }
        (n, Some(Item::Run(p)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(writes: &[(u64, u64)]) -> Vec<Item> {
        let mut folder = Folder::new();
        let mut physical = 0;
        for &(logical, length) in writes {
            folder.push(logical, length, 0, physical);
            physical += length;
        }
        folder.take()
    }

    fn run(logical: u64, length: u64, stride: i64, count: u32, physical: u64) -> Item {
        Item::Run(Run { logical, length, stride, count, segment: 0, physical })
    }

    #[test]
    fn a_million_strided_writes_are_one_record() {
        let mut folder = Folder::new();
        for i in 0..1_000_000u64 {
            folder.push(7 + i * 47_001 * 64, 47_001, 3, 100 + i * 47_001);
            assert!(folder.len() <= 2 && folder.stable_len() == 0);
        }
        assert_eq!(folder.eof(), 7 + 999_999 * 47_001 * 64 + 47_001);
        let expected = Run { logical: 7, length: 47_001, stride: 47_001 * 64, count: 1_000_000, segment: 3, physical: 100 };
        assert_eq!(folder.take(), [Item::Run(expected)]);
        assert!(folder.is_empty() && folder.eof() == 0);
    }

    #[test]
    fn contiguous_writes_are_one_piece() {
        assert_eq!(fold(&[(5, 1), (6, 10), (16, 4)]), [run(5, 15, 0, 1, 0)]);
    }

    #[test]
    fn pieces_written_in_small_steps_fold() {
        let writes: Vec<_> = (0..10u64).flat_map(|piece| (0..5).map(move |step| (piece * 1_000_000 + step * 10_240, 10_240))).collect();
        assert_eq!(fold(&writes), [run(0, 51_200, 1_000_000, 10, 0)]);
    }

    #[test]
    fn a_tail_that_grows_leaves_the_run() {
        assert_eq!(fold(&[(0, 2), (10, 2), (20, 2), (30, 2), (32, 1)]), [run(0, 2, 10, 3, 0), run(30, 3, 0, 1, 6)]);
        let mut folder = Folder::new();
        for (i, at) in [0, 10, 20].into_iter().enumerate() {
            folder.push(at, 2, 0, i as u64 * 2);
        }
        assert_eq!(folder.snapshot_from(0).collect::<Vec<_>>(), [run(0, 2, 10, 3, 0)]);
        folder.push(22, 1, 0, 6);
        assert_eq!(folder.snapshot_from(0).collect::<Vec<_>>(), [run(0, 2, 0, 1, 0), run(10, 2, 0, 1, 2), run(20, 3, 0, 1, 4)]);
    }

    #[test]
    fn backwards_writes_fold() {
        assert_eq!(fold(&[(30, 10), (20, 10), (10, 10), (0, 10)]), [run(30, 10, -10, 4, 0)]);
    }

    #[test]
    fn overlapping_distances_do_not_fold() {
        let items = fold(&[(0, 4), (3, 4), (6, 4), (9, 4)]);
        assert_eq!(items.len(), 4);
        assert_eq!(fold(&[(5, 4), (5, 4), (5, 4)]).len(), 3);
    }

    #[test]
    fn nothing_folds_across_a_truncate_or_a_segment_or_a_gap() {
        let mut folder = Folder::new();
        folder.push(0, 1, 0, 0);
        folder.push(10, 1, 0, 1);
        folder.truncate(3);
        folder.push(20, 1, 0, 2);
        folder.push(30, 1, 1, 0);
        folder.push(40, 1, 1, 5);
        assert_eq!(folder.stable_len(), 2 + 1);
        assert_eq!(folder.len(), 6);
        assert_eq!(folder.take()[2], Item::Truncate(3));
    }

    #[test]
    fn a_full_count_starts_a_new_run() {
        let full = Run { logical: 0, length: 1, stride: 2, count: u32::MAX, segment: 0, physical: 0 };
        let mut folder = Folder { items: vec![Item::Run(full)], piece: None, eof: 0 };
        let n = u64::from(u32::MAX);
        for i in n..n + 3 {
            folder.push(i * 2, 1, 0, i);
        }
        assert_eq!(folder.take(), [Item::Run(full), run(n * 2, 1, 2, 3, n)]);
    }

    #[test]
    fn a_write_of_no_bytes_changes_nothing() {
        assert!(fold(&[(5, 0)]).is_empty());
    }
}
