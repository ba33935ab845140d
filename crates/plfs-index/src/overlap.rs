//! Whether runs lie over others, by arithmetic: no run is expanded into its pieces.
//!
//! [`Overlaps`] is given runs in the order of their records and says of each in which part of the
//! file it may lie over what came before. It may say too much, never too little: single pieces and
//! runs of one stride are told apart exactly, other runs by the range that they span.

use std::collections::{BTreeMap, HashMap};

use crate::Run;

/// Looks at stretches and columns, for each run that is added, before an answer is given by the
/// range that a run spans. 256: an interleaved checkpoint takes one or two.
const LOOKS: usize = 256;

/// A set of bytes, as ranges that do not touch each other.
#[derive(Clone, Debug, Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds `[from, to)`. Amortised O(log n).
    pub fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        while let Some((&start, &end)) =
            self.0.range(..=to).next_back().filter(|(_, end)| **end >= from)
        {
            (from, to) = (from.min(start), to.max(end));
            self.0.remove(&start);
        }
        self.0.insert(from, to);
    }

    /// The ranges that share a byte with `[from, to)`, ascending.
    pub fn within(&self, from: u64, to: u64) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let before = self.0.range(..from).next_back().filter(|(_, end)| **end > from);
        let start = before.map_or(from, |(start, _)| *start);
        self.0.range(start.min(to)..to).map(|(start, end)| (*start, *end))
    }

    /// What of `[from, to)` is not in the set, ascending.
    pub fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (mut gaps, mut at) = (Vec::new(), from);
        for (start, end) in self.within(from, to) {
            if at < start {
                gaps.push((at, start));
            }
            at = at.max(end);
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }
}

/// Runs of one stride: in rows as long as that, the pieces of a run are a column.
#[derive(Debug, Default)]
struct Lattice {
    /// The range that all its runs span.
    from: u64,
    to: u64,
    /// By where columns begin and end: the rows that they have.
    columns: BTreeMap<(u64, u64), Ranges>,
    /// The widest column.
    width: u64,
}

impl Lattice {
    /// The rows in which a column of `[left, right)` has something among `rows`; `None` if that
    /// takes too long.
    fn rows(
        &self,
        (left, right): (u64, u64),
        rows: (u64, u64),
        looks: &mut usize,
    ) -> Option<Option<(u64, u64)>> {
        let mut hit = None;
        let first = (left.saturating_sub(self.width), 0);
        for ((_, _), taken) in
            self.columns.range(first..(right, 0)).filter(|((_, end), _)| *end > left)
        {
            *looks = looks.checked_sub(1)?;
            let mut taken = taken.within(rows.0, rows.1);
            let Some((from, to)) = taken.next() else { continue };
            let to = taken.next_back().map_or(to, |(_, to)| to);
            hit = union(hit, Some((from.max(rows.0), to.min(rows.1))));
        }
        Some(hit)
    }
}

/// The smallest range that has both.
fn union(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// Beginning and end.
type Span = (u64, u64);

/// Columns and rows of a run in a lattice of its stride: two, if its pieces go over the end of a
/// row.
fn columns(run: &Run) -> [Option<(Span, Span)>; 2] {
    let (stride, first) = (run.stride.unsigned_abs(), run.first());
    let (row, left) = (first / stride, first % stride);
    let (right, rows) = (left + run.length, u64::from(run.count));
    let inside = ((left, right.min(stride)), (row, row + rows));
    let over = (right > stride).then(|| ((0, right - stride), (row + 1, row + 1 + rows)));
    [Some(inside), over]
}

/// What was added so far.
#[derive(Debug, Default)]
pub struct Overlaps {
    singles: Ranges,
    lattices: HashMap<u64, Lattice>,
    /// The range that the runs of all lattices span.
    spanned: Option<Span>,
}

impl Overlaps {
    /// Where a run may lie over those that were [added](Overlaps::add): outside of this range it
    /// does not, and something was added that reaches to its end at least.
    pub fn over(&self, run: &Run) -> Option<(u64, u64)> {
        let run = solid(*run);
        let (first, end) = (run.first(), run.end());
        let mut looks = LOOKS;
        let mut hit = self.over_singles(&run, &mut looks);
        if self.lattices.len() > LOOKS {
            let within = self.spanned.map(|(from, to)| (first.max(from), end.min(to)));
            return union(hit, within.filter(|(from, to)| from < to));
        }
        for (stride, lattice) in &self.lattices {
            let (from, to) = (first.max(lattice.from), end.min(lattice.to));
            if from >= to {
                continue;
            }
            let rows = if run.count == 1 {
                rows_of_single(lattice, *stride, (from, to), &mut looks)
            } else if run.stride.unsigned_abs() == *stride {
                columns(&run).into_iter().flatten().try_fold(None, |hit, (column, rows)| {
                    Some(union(hit, lattice.rows(column, rows, &mut looks)?))
                })
            } else {
                None
            };
            let new = match rows {
                None => Some((from, to)),
                Some(None) => None,
                Some(Some((low, high))) => {
                    Some((from.max(low * stride), to.min(high.saturating_mul(*stride))))
                }
            };
            hit = union(hit, new.filter(|(from, to)| from < to));
        }
        hit
    }

    fn over_singles(&self, run: &Run, looks: &mut usize) -> Option<(u64, u64)> {
        let (first, end) = (run.first(), run.end());
        let mut taken = self.singles.within(first, end);
        if run.count == 1 {
            let low = taken.next()?;
            let high = taken.next_back().unwrap_or(low);
            return Some((low.0.max(first), high.1.min(end)));
        }
        let (mut hit, stride) = (None, run.stride.unsigned_abs());
        for (from, to) in taken {
            let (from, to) = (from.max(first), to.min(end));
            *looks = match looks.checked_sub(1) {
                Some(left) => left,
                // Somewhere up to the last of them.
                None => {
                    let last = self.singles.within(first, end).next_back();
                    return union(hit, last.map(|(_, to)| (from, to.min(end))));
                }
            };
            let past = (from - first) % stride;
            // It begins inside a piece, or reaches the next one.
            if past < run.length || from + (stride - past) < to {
                hit = union(hit, Some((from, to)));
            }
        }
        hit
    }

    /// Adds a run. Amortised O(log n).
    pub fn add(&mut self, run: &Run) {
        let run = solid(*run);
        let (first, end) = (run.first(), run.end());
        if run.count == 1 {
            return self.singles.add(first, end);
        }
        self.spanned = union(self.spanned, Some((first, end)));
        let lattice = self.lattices.entry(run.stride.unsigned_abs()).or_insert_with(|| Lattice {
            from: first,
            to: end,
            ..Lattice::default()
        });
        (lattice.from, lattice.to) = (lattice.from.min(first), lattice.to.max(end));
        for (column, rows) in columns(&run).into_iter().flatten() {
            lattice.width = lattice.width.max(column.1 - column.0);
            lattice.columns.entry(column).or_default().add(rows.0, rows.1);
        }
    }
}

/// Pieces without gaps are one piece.
fn solid(run: Run) -> Run {
    match run.count > 1 && run.stride.unsigned_abs() == run.length {
        true => Run { logical: run.first(), length: run.bytes(), stride: 0, count: 1, ..run },
        false => run,
    }
}

/// The rows of a lattice in which something of it lies in `[from, to)`; `None` if that takes too
/// long.
fn rows_of_single(
    lattice: &Lattice,
    stride: u64,
    (from, to): (u64, u64),
    looks: &mut usize,
) -> Option<Option<(u64, u64)>> {
    let (low, high) = (from / stride, (to - 1) / stride);
    let (left, right) = (from % stride, (to - 1) % stride + 1);
    if low == high {
        return lattice.rows((left, right), (low, low + 1), looks);
    }
    let parts = [
        ((left, stride), (low, low + 1)),
        ((0, stride), (low + 1, high)),
        ((0, right), (high, high + 1)),
    ];
    parts
        .into_iter()
        .filter(|(_, rows)| rows.0 < rows.1)
        .try_fold(None, |hit, (column, rows)| Some(union(hit, lattice.rows(column, rows, looks)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(run: &Run) -> Vec<u64> {
        (0..u64::from(run.count))
            .flat_map(|i| {
                let at = run.logical.wrapping_add_signed(i as i64 * run.stride);
                at..at + run.length
            })
            .collect()
    }

    /// Random runs on few bytes: no byte that lies over another is left out, all said is inside
    /// what was added before, and of one stride or of single pieces nothing is said that is not so.
    #[test]
    fn no_overlap_is_missed() {
        let mut state = 88172645463325252u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for round in 0..20_000 {
            let (mut overlaps, mut taken, mut end) = (Overlaps::default(), [false; 800], 0);
            for _ in 0..=below(8) {
                let length = 1 + below(6);
                let count = if below(2) == 0 { 1 } else { 2 + below(6) as u32 };
                let stride = if round % 2 == 0 { 12 } else { (length + below(12)) as i64 };
                let stride = if count == 1 { 0 } else { stride };
                let logical = 100 + below(200);
                let run = match below(3) {
                    0 if count > 1 => Run {
                        logical: logical + u64::from(count - 1) * stride as u64,
                        length,
                        stride: -stride,
                        count,
                        segment: 0,
                        physical: 0,
                    },
                    _ => Run { logical, length, stride, count, segment: 0, physical: 0 },
                };
                assert!(run.is_valid());
                let hits: Vec<u64> =
                    bytes(&run).into_iter().filter(|byte| taken[*byte as usize]).collect();
                let over = overlaps.over(&run);
                for hit in &hits {
                    let (from, to) = over.unwrap_or_else(|| panic!("{round}: {run:?} {hit}"));
                    assert!((from..to).contains(hit), "{round}: {run:?} {hit} {from} {to}");
                }
                if let Some((from, to)) = over {
                    assert!(from < to && to <= end && run.first() <= from && to <= run.end());
                    assert!(round % 2 == 1 || !hits.is_empty(), "{round}: {run:?} {over:?}");
                }
                overlaps.add(&run);
                bytes(&run).into_iter().for_each(|byte| taken[byte as usize] = true);
                end = end.max(run.end());
            }
        }
    }

    #[test]
    fn gaps_are_what_is_not_there() {
        let mut ranges = Ranges::default();
        for (from, to) in [(10, 20), (30, 40), (20, 25), (0, 0)] {
            ranges.add(from, to);
        }
        assert_eq!(ranges.gaps(0, 50), [(0, 10), (25, 30), (40, 50)]);
        assert_eq!(ranges.gaps(12, 24), []);
        assert_eq!(ranges.within(24, 31).collect::<Vec<_>>(), [(10, 25), (30, 40)]);
        ranges.add(5, 100);
        assert_eq!(ranges.gaps(0, 101), [(0, 5), (100, 101)]);
    }
}
