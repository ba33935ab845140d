//! Pieces of a logical file that a handle has looked up and may want again.

use plfs_index::Found;

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
    /// Where the last read ended.
    next: u64,
}

impl Pieces {
    /// The pieces in `[from, to)`, cut there, by an index in this state. `lookup(from, to, found)`
    /// asks it, if it must be asked.
    pub fn get(
        &mut self,
        state: IndexState,
        (from, to): (u64, u64),
        lookup: impl FnOnce(u64, u64, &mut Vec<Found>),
    ) -> impl Iterator<Item = Found> {
        if self.state != state || from < self.from || to > self.to {
            let length = to - from;
            let ahead = if from == self.next && length < LARGE { length * READS_AHEAD } else { 0 };
            let (_, eof) = state;
            (self.state, self.from, self.to) = (state, from, (from + ahead).min(eof).max(to));
            lookup(self.from, self.to, &mut self.found);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of 10 bytes with a hole of 5 behind each, every other one in segment 1.
    fn lookup(from: u64, to: u64, found: &mut Vec<Found>) {
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

    #[test]
    fn what_was_looked_up_ahead_is_what_a_lookup_gives() {
        for length in [1, 4, 7, 40, 200] {
            let (mut pieces, mut asked, mut reads) = (Pieces::default(), 0, 0);
            for from in (0..15_000 - length).step_by(length as usize) {
                let mut want = Vec::new();
                lookup(from, from + length, &mut want);
                let found = pieces.get((1, 15_000), (from, from + length), |from, to, found| {
                    assert!(to <= 15_000);
                    asked += 1;
                    lookup(from, to, found);
                });
                assert_eq!(found.collect::<Vec<_>>(), want);
                reads += 1;
            }
            assert!(asked <= reads / READS_AHEAD + 2, "{asked} of {reads}");
        }
    }

    #[test]
    fn nothing_is_looked_up_ahead_for_who_jumps_or_reads_much() {
        let mut pieces = Pieces::default();
        for (from, to) in [(1000, 1001), (10, 20), (5000, 5001), (1, 2), (2, 2 + LARGE)] {
            pieces
                .get((1, 1 << 30), (from, to), |a, b, found| {
                    assert_eq!((a, b), (from, to));
                    found.clear();
                })
                .for_each(drop);
        }
    }

    #[test]
    fn an_index_in_another_state_is_asked_again() {
        let mut pieces = Pieces::default();
        let mut ask = |state, segment| {
            let mut found = pieces.get(state, (100, 101), |logical, _, found| {
                *found = vec![Found { logical, length: 1, segment, physical: 0 }];
            });
            found.next().map(|piece| piece.segment)
        };
        assert_eq!(ask((1, 200), 1), Some(1));
        assert_eq!(ask((1, 200), 2), Some(1));
        assert_eq!(ask((2, 200), 3), Some(3));
        assert_eq!(ask((2, 201), 4), Some(4));
    }
}
