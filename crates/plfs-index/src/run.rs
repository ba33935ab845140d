//! Runs, and the order of records.

use crate::HOLE;

/// The largest offset one past a byte, logical or physical: 2^63-1, because off_t is signed
/// (FORMAT.md section 3).
pub(crate) const MAX_END: u64 = i64::MAX as u64;

/// A number that no segment has: no file has as many.
const UNLISTED: u32 = HOLE - 1;

/// The number that a segment has in `numbers`. A hole keeps its own. A damaged flat index may name
/// any segment: one that is not listed there is in no table.
pub fn renumbered(segment: u32, numbers: &[u32]) -> u32 {
    match segment {
        HOLE => HOLE,
        _ => numbers.get(segment as usize).copied().unwrap_or(UNLISTED),
    }
}

/// A place in the total order of all records of a file: larger wins (FORMAT.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Stamp of the record.
    pub stamp: u64,
    /// Log set that wrote it; stamps of one log set are unique.
    pub set: u32,
}

/// `count` pieces of `length` bytes: piece i covers logical bytes `[logical + i*stride, … +
/// length)` and lies at `physical + i*length` of segment `segment`.
///
/// Invariants: `count >= 1`, `length >= 1`, `stride == 0` iff `count == 1`, `|stride| >= length`
/// otherwise; all ends fit in 2^63-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Logical offset of piece 0, bytes.
    pub logical: u64,
    /// Bytes in a piece.
    pub length: u64,
    /// Logical distance from a piece to the next, bytes; negative for a program that writes
    /// backwards.
    pub stride: i64,
    /// Number of pieces.
    pub count: u32,
    /// Index into the owner's table of segments, or [`HOLE`].
    pub segment: u32,
    /// Offset of piece 0 in the segment, bytes; of a hole its logical offset, so that holes side
    /// by side go on with each other.
    pub physical: u64,
}

impl Run {
    /// One piece.
    pub fn single(logical: u64, length: u64, segment: u32, physical: u64) -> Run {
        Run { logical, length, stride: 0, count: 1, segment, physical }
    }

    /// Zeros that no segment has: a piece in all but what a lookup gives for it, which is nothing.
    pub fn hole(logical: u64, length: u64) -> Run {
        Run::single(logical, length, HOLE, logical)
    }

    /// Lowest logical byte.
    pub fn first(&self) -> u64 {
        if self.stride >= 0 {
            self.logical
        } else {
            self.logical - (self.count as u64 - 1) * self.stride.unsigned_abs()
        }
    }

    /// One past the highest logical byte.
    pub fn end(&self) -> u64 {
        if self.stride >= 0 {
            self.logical + (self.count as u64 - 1) * self.stride as u64 + self.length
        } else {
            self.logical + self.length
        }
    }

    /// Bytes in all pieces.
    pub fn bytes(&self) -> u64 {
        self.length * self.count as u64
    }

    /// The bytes [from, to) of its [bytes](Run::bytes), counted as they lie in the segment: whole
    /// pieces, and parts of one before and behind.
    pub fn part(&self, from: u64, to: u64) -> impl Iterator<Item = Run> + use<> {
        let (run, length) = (*self, self.length);
        let some = |piece: u64, from: u64, to: u64| {
            let logical =
                run.logical.wrapping_add_signed((piece as i64).wrapping_mul(run.stride)) + from;
            let physical = run.physical + piece * length + from;
            (from < to).then(|| Run::single(logical, to - from, run.segment, physical))
        };
        let (first, last) = (from.div_ceil(length), to / length);
        let parts = if from >= to {
            [None; 3]
        } else if first > last {
            // Inside of one piece.
            [some(last, from % length, to % length), None, None]
        } else {
            let whole = (last - first) as u32;
            let stride = if whole == 1 { 0 } else { run.stride };
            let pieces = some(first, 0, length).filter(|_| whole > 0);
            let before =
                (from < first * length).then(|| some(first - 1, from % length, length)).flatten();
            [
                before,
                pieces.map(|piece| Run { stride, count: whole, ..piece }),
                some(last, 0, to % length),
            ]
        };
        parts.into_iter().flatten()
    }

    /// Tells whether the invariants hold: those of the type, and both ends at most 2^63-1. A
    /// decoder asks this before it believes a record.
    pub fn is_valid(&self) -> bool {
        let steps = u128::from(self.count.saturating_sub(1));
        let reach = steps * u128::from(self.stride.unsigned_abs());
        let ahead = if self.stride > 0 { reach } else { 0 };
        self.count >= 1
            && self.length >= 1
            && (self.stride == 0) == (self.count == 1)
            && (self.count == 1 || self.stride.unsigned_abs() >= self.length)
            && (self.stride >= 0 || u128::from(self.logical) >= reach)
            && u128::from(self.logical) + ahead + u128::from(self.length) <= u128::from(MAX_END)
            && u128::from(self.physical) + u128::from(self.length) * u128::from(self.count)
                <= u128::from(MAX_END)
    }

    /// Gives pieces `from` to `to` (exclusive) of this run as a run, where piece 0 is the one with
    /// the *lowest* logical offset, also if the stride is negative.
    ///
    /// `from < to <= count`.
    pub fn ascending(&self, from: u32, to: u32) -> Run {
        debug_assert!(from < to && to <= self.count);
        let skipped = if self.stride >= 0 { from } else { self.count - to };
        let skipped_distance = u64::from(skipped) * self.stride.unsigned_abs();
        Run {
            logical: if self.stride >= 0 {
                self.logical + skipped_distance
            } else {
                self.logical - skipped_distance
            },
            stride: if to - from == 1 { 0 } else { self.stride },
            count: to - from,
            physical: self.physical + u64::from(skipped) * self.length,
            ..*self
        }
    }

    /// Gives what is left of this run if the logical bytes from `size` on are gone: whole pieces,
    /// and a piece that was cut. Constant time.
    pub fn clipped(&self, size: u64) -> [Option<Run>; 2] {
        let first = self.first();
        if self.end() <= size {
            return [Some(*self), None];
        }
        if first >= size {
            return [None, None];
        }
        if self.count == 1 {
            return [None, Some(Run { length: size - first, ..*self })];
        }
        let step = self.stride.unsigned_abs();
        // Below count, because `end` is past `size`, so the last piece is not whole.
        let whole =
            if size < first + self.length { 0 } else { (size - first - self.length) / step + 1 }
                as u32;
        let next = first + u64::from(whole) * step;
        let cut =
            (next < size).then(|| Run { length: size - next, ..self.ascending(whole, whole + 1) });
        [(whole > 0).then(|| self.ascending(0, whole)), cut]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_runs_are_not_valid() {
        let good = Run { logical: 100, length: 10, stride: -20, count: 6, segment: 0, physical: 0 };
        assert!(good.is_valid() && good.first() == 0);
        assert!(Run::single(MAX_END - 1, 1, 0, MAX_END - 1).is_valid());
        let hostile = [
            Run { count: 0, ..good },
            Run { count: 7, ..good },
            Run { length: 0, ..good },
            Run { length: 21, ..good },
            Run { stride: 0, ..good },
            Run { stride: i64::MIN, ..good },
            Run { stride: i64::MAX, ..good },
            Run { stride: 1, count: 1, ..good },
            Run {
                count: u32::MAX,
                length: u64::MAX,
                stride: i64::MIN,
                logical: u64::MAX,
                physical: u64::MAX,
                segment: 0,
            },
            Run { physical: MAX_END - 59, ..good },
            Run::single(MAX_END, 1, 0, 0),
            Run::single(u64::MAX, 1, 0, 0),
            Run::single(0, u64::MAX, 0, 0),
            Run::single(0, 1, 0, u64::MAX),
        ];
        for run in hostile {
            assert!(!run.is_valid(), "{run:?}");
        }
    }

    #[test]
    fn a_slice_and_a_clip_keep_each_byte_in_its_place() {
        let bytes = |runs: &[Run]| {
            let mut all = Vec::new();
            for r in runs {
                assert!(r.is_valid(), "{r:?}");
                for i in 0..u64::from(r.count) {
                    let at = (r.logical as i64 + i as i64 * r.stride) as u64;
                    all.extend((0..r.length).map(|j| (at + j, r.physical + i * r.length + j)));
                }
            }
            all.sort_unstable();
            all
        };
        for (logical, stride) in [(2, 5), (17, -5), (2, 3), (11, -3)] {
            let run = Run { logical, length: 3, stride, count: 4, segment: 0, physical: 50 };
            for size in 0..25 {
                let kept: Vec<Run> = run.clipped(size).into_iter().flatten().collect();
                let mut expected = bytes(&[run]);
                expected.retain(|b| b.0 < size);
                assert_eq!(bytes(&kept), expected, "{run:?} {size}");
            }
            for from in 0..4 {
                for to in from + 1..=4 {
                    let expected = bytes(&[run])[from as usize * 3..to as usize * 3].to_vec();
                    assert_eq!(bytes(&[run.ascending(from, to)]), expected);
                }
            }
        }
    }
}
