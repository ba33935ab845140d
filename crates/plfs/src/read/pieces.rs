//! Pieces of a logical file that a handle has looked up and may want again.

use plfs_index::{ExtentMap, Found, Row};

/// Generation and end of file of an index. While both stay the same a read finds the same bytes.
pub type IndexState = (u64, u64);

/// Where small reads follow each other, so many are looked up at once: a lookup decodes a block of
/// the index, which takes longer than to copy 64 bytes.
const READS_AHEAD: u64 = 16;

/// Reads of this many bytes are looked up alone: their copy takes longer than that, and what is
/// remembered stays small (4 MiB if each byte is a piece).
const LARGE: u64 = 8 << 10;

/// The last lookup of one handle.
#[derive(Debug, Default)]
pub struct Pieces {
    state: IndexState,
    /// `found` is all that the index has in `[from, to)`.
    from: u64,
    to: u64,
    found: Vec<Found>,
    /// `found` is the first piece of it, whole.
    row: Option<Row>,
    /// Where the last read ended.
    next: u64,
    /// Where the last read began that did not go on there, how far that is from the one before it,
    /// and how many in succession were that far apart.
    began: u64,
    stride: u64,
    strides: u32,
}

/// An index, as far as pieces are looked up in it.
pub trait Lookup {
    /// The pieces in `[from, to)`, ascending.
    fn lookup(&self, from: u64, to: u64, found: &mut Vec<Found>);
    /// Pieces that are `stride` apart, the first of which has all of `[from, to)`.
    fn row(&self, from: u64, to: u64, stride: u64) -> Option<Row>;
}

impl Lookup for ExtentMap {
    fn lookup(&self, from: u64, to: u64, found: &mut Vec<Found>) {
        self.lookup(from, to, found);
    }

    fn row(&self, from: u64, to: u64, stride: u64) -> Option<Row> {
        self.row(from, to, stride)
    }
}

impl Pieces {
    /// The pieces in `[from, to)`, cut there, by an index in this state, which is asked if it must
    /// be.
    #[inline]
    pub fn get(
        &mut self,
        state: IndexState,
        (from, to): (u64, u64),
        index: &impl Lookup,
    ) -> impl Iterator<Item = Found> {
        let is_same = self.state == state;
        if !is_same || from < self.from || to > self.to {
            match &mut self.row {
                Some(row) if is_same && row.next_has(from, to) => {
                    row.advance();
                    let piece = row.piece;
                    (self.began, self.strides) = (from, 0);
                    (self.from, self.to) = (piece.logical, piece.logical + piece.length);
                    self.found[0] = piece;
                }
                _ => self.ask(state, from, to, index),
            }
        }
        self.next = to;
        let first = self.found.partition_point(|piece| piece.logical + piece.length <= from);
        self.found[first..].iter().take_while(move |piece| piece.logical < to).map(move |piece| {
            let start = piece.logical.max(from);
            let end = (piece.logical + piece.length).min(to);
            Found {
                logical: start,
                length: end - start,
                physical: piece.physical + (start - piece.logical),
                ..*piece
            }
        })
    }

    #[inline(never)]
    fn ask(&mut self, state: IndexState, from: u64, to: u64, index: &impl Lookup) {
        (self.state, self.row) = (state, None);
        let goes_on = from == self.next;
        if !goes_on {
            let stride = from.wrapping_sub(self.began);
            self.strides = if stride == self.stride { self.strides.saturating_add(1) } else { 0 };
            (self.began, self.stride) = (from, stride);
            // A program that reads as one wrote, every other piece, in steps. Where that is nothing
            // to the index it is asked ever more rarely.
            if self.strides.is_power_of_two() {
                self.row = index.row(from, to, stride);
            }
        }
        if let Some(Row { piece, .. }) = self.row {
            (self.from, self.to) = (piece.logical, piece.logical + piece.length);
            self.found.clear();
            self.found.push(piece);
            return;
        }
        let length = to - from;
        let ahead = if goes_on && length < LARGE { length * READS_AHEAD } else { 0 };
        let (_, eof) = state;
        (self.from, self.to) = (from, (from + ahead).min(eof).max(to));
        index.lookup(self.from, self.to, &mut self.found);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Pieces of 10 bytes with a hole of 5 behind each, every other one in segment 1.
    fn pieces_in(from: u64, to: u64, found: &mut Vec<Found>) {
        found.clear();
        found.extend((0..1000).filter_map(|i| {
            let (start, end) = ((i * 15).max(from), (i * 15 + 10).min(to));
            (start < end).then(|| Found {
                logical: start,
                length: end - start,
                segment: (i % 2) as u32,
                physical: i * 10 + start - i * 15,
            })
        }));
    }

    /// An index of those pieces, which says what it was asked. It tells rows of up to 100 pieces.
    #[derive(Default)]
    struct Asked {
        lookups: RefCell<Vec<(u64, u64)>>,
        rows: Cell<u64>,
        tells_rows: bool,
    }

    impl Lookup for Asked {
        fn lookup(&self, from: u64, to: u64, found: &mut Vec<Found>) {
            assert!(to <= 15_000);
            self.lookups.borrow_mut().push((from, to));
            pieces_in(from, to, found);
        }

        fn row(&self, from: u64, to: u64, stride: u64) -> Option<Row> {
            self.rows.set(self.rows.get() + 1);
            let i = from / 15;
            let has_all = to <= i * 15 + 10;
            (self.tells_rows && has_all && stride == 30).then(|| Row {
                piece: Found {
                    logical: i * 15,
                    length: 10,
                    segment: (i % 2) as u32,
                    physical: i * 10,
                },
                stride,
                step: 20,
                more: 100.min((999 - i) / 2) as u32,
            })
        }
    }

    /// What `pieces` gives is what a lookup gives.
    fn read(pieces: &mut Pieces, from: u64, to: u64, index: &Asked) {
        let mut want = Vec::new();
        pieces_in(from, to, &mut want);
        let found = pieces.get((1, 15_000), (from, to), index);
        assert_eq!(found.collect::<Vec<_>>(), want);
    }

    #[test]
    fn what_was_looked_up_ahead_is_what_a_lookup_gives() {
        for length in [1, 4, 7, 40, 200] {
            let (mut pieces, index, mut reads) = (Pieces::default(), Asked::default(), 0);
            for from in (0..15_000 - length).step_by(length as usize) {
                read(&mut pieces, from, from + length, &index);
                reads += 1;
            }
            let asked = index.lookups.borrow().len();
            assert!(asked <= reads / READS_AHEAD as usize + 2, "{asked} of {reads}");
        }
    }

    #[test]
    fn nothing_is_looked_up_ahead_for_who_jumps_or_reads_much() {
        let (mut pieces, index) = (Pieces::default(), Asked::default());
        let reads = [(1000, 1001), (10, 20), (5000, 5001), (1, 2), (2, 2 + LARGE)];
        for (from, to) in reads {
            read(&mut pieces, from, to, &index);
        }
        assert_eq!(*index.lookups.borrow(), reads);
        assert_eq!(index.rows.get(), 0);
    }

    #[test]
    fn who_reads_in_steps_is_given_the_pieces_of_a_row() {
        // Whole pieces, parts of them, halves one after the other.
        for parts in [&[(0, 10)][..], &[(3, 7)], &[(0, 5), (5, 10)]] {
            let index = Asked { tells_rows: true, ..Asked::default() };
            let mut pieces = Pieces::default();
            for i in (100..900).step_by(2) {
                for (from, to) in parts {
                    read(&mut pieces, i * 15 + from, i * 15 + to, &index);
                }
            }
            // The third read begins a row, then each hundredth does; halves are looked up ahead.
            if parts.len() == 1 {
                assert_eq!((index.rows.get(), index.lookups.borrow().len()), (4, 2));
            }
            // Other steps, and back.
            for (i, to) in [(900, 10), (898, 10), (903, 10), (905, 30), (907, 12), (909, 1)] {
                read(&mut pieces, i * 15, i * 15 + to, &index);
            }
        }
    }

    #[test]
    fn an_index_without_rows_is_asked_for_them_ever_more_rarely() {
        let (mut pieces, index) = (Pieces::default(), Asked::default());
        for i in 0..500 {
            read(&mut pieces, i * 30, i * 30 + 10, &index);
        }
        assert!(index.rows.get() <= 9, "{:?}", index.rows);
    }

    #[test]
    fn an_index_in_another_state_is_asked_again() {
        struct Segment(u32);
        impl Lookup for Segment {
            fn lookup(&self, logical: u64, _: u64, found: &mut Vec<Found>) {
                *found = vec![Found { logical, length: 1, segment: self.0, physical: 0 }];
            }
            fn row(&self, logical: u64, _: u64, stride: u64) -> Option<Row> {
                let piece = Found { logical, length: 1, segment: self.0, physical: 0 };
                Some(Row { piece, stride, step: 1, more: 1000 })
            }
        }
        let mut pieces = Pieces::default();
        let mut ask = |state, segment, at| {
            let found = pieces.get(state, (at, at + 1), &Segment(segment)).next();
            found.map(|piece| piece.segment)
        };
        assert_eq!(ask((1, 200), 1, 100), Some(1));
        assert_eq!(ask((1, 200), 2, 100), Some(1));
        assert_eq!(ask((2, 200), 3, 100), Some(3));
        assert_eq!(ask((2, 201), 4, 100), Some(4));
        // Nor does a row outlive the state that it was told in.
        for at in [102, 104, 106, 108] {
            ask((2, 201), 5, at);
        }
        assert_eq!(ask((2, 201), 6, 110), Some(5));
        assert_eq!(ask((3, 201), 7, 112), Some(7));
    }
}
