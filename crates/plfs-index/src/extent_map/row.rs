//! Rows: what a program reads in equal steps is looked up once.

use super::entry::Entry;
use super::{ExtentMap, Found, clip_of};
use crate::{HOLE, Run};

/// Pieces of one segment that follow each other in equal steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The first.
    pub piece: Found,
    /// Logical bytes from the beginning of a piece to that of the next.
    pub stride: u64,
    /// The same in the segment.
    pub step: i64,
    /// How many pieces there are besides the first.
    pub more: u32,
}

impl Row {
    /// Whether there is a second piece and it has all of `[from, to)`.
    #[inline]
    pub fn next_has(&self, from: u64, to: u64) -> bool {
        let next = self.piece.logical.wrapping_add(self.stride);
        self.more > 0 && next <= from && from <= to && to - next <= self.piece.length
    }

    /// The row without its first piece. There are [more](Row::more).
    #[inline]
    pub fn advance(&mut self) {
        self.piece.logical = self.piece.logical.wrapping_add(self.stride);
        self.piece.physical = self.piece.physical.wrapping_add_signed(self.step);
        self.more -= 1;
    }
}

/// Entries that are looked at for one row.
const LOOKS: u32 = 1000;

/// Does an entry lie between the pieces of a run, as where processes write in turns?
fn is_between(e: &Entry, run: &Run) -> bool {
    let (stride, length) = (run.stride.unsigned_abs(), e.length.get());
    let gap = stride - run.length;
    let phase = e.first.get().wrapping_sub(run.first() + run.length) as i64;
    e.count.get() > 1
        && e.stride.get().unsigned_abs() == stride
        && length <= gap
        && phase.rem_euclid(stride as i64) as u64 <= gap - length
}

impl ExtentMap {
    /// The row of pieces that are `stride` bytes apart and begin with the one that has all of
    /// `[from, to)`: each is what a lookup finds there, as long as the map does not change. `None`
    /// where that cannot be told at once, as where something lies above the base.
    ///
    /// Costs what a lookup costs, and a look at 1,000 entries at most.
    pub fn row(&self, from: u64, to: u64, stride: u64) -> Option<Row> {
        match &self.base {
            Some(base) if self.levels.is_empty() && self.buffer.is_empty() => {
                base.row(from, to, stride, &self.truncates)
            }
            Some(_) => None,
            None => self.row_of_run(from, to, stride),
        }
    }

    /// The row of a run, as far as no newer entry reaches into it.
    fn row_of_run(&self, from: u64, to: u64, stride: u64) -> Option<Row> {
        let mut newest: Option<Entry> = None;
        let mut choose = |e: &Entry| {
            if e.next_byte(from, to).is_some() && newest.is_none_or(|n| n.order() < e.order()) {
                newest = Some(*e);
            }
        };
        self.levels.iter().for_each(|level| level.visit_pieces(from, to, &mut choose));
        self.buffer.iter().for_each(&mut choose);
        let entry = newest?;
        let (run, order) = (entry.run(), entry.order());
        if run.count < 2
            || u64::try_from(run.stride) != Ok(stride)
            || run.segment == HOLE
            || run.end() > clip_of(&self.truncates, order)
        {
            return None;
        }
        let index = from.checked_sub(run.first())? / stride;
        let logical = run.first() + index * stride;
        let (mut end, mut looks) = (run.end(), 0);
        let mut cut = |e: &Entry, to: &mut u64| {
            looks += 1;
            if looks > LOOKS || (e.order() > order && !is_between(e, &run)) {
                end = end.min(if looks > LOOKS { 0 } else { e.first.get() });
                *to = end;
            }
        };
        for level in &self.levels {
            level.visit(logical, run.end(), &mut cut);
        }
        for e in &self.buffer {
            if e.end.get() > logical {
                cut(e, &mut 0);
            }
        }
        // Pieces that end before a newer entry begins.
        let last = end.checked_sub(run.first() + run.length)? / stride;
        let more = last.checked_sub(index).filter(|more| *more > 0)?;
        let physical = run.physical + index * run.length;
        let piece = Found { logical, length: run.length, segment: run.segment, physical };
        (to <= logical + run.length).then_some(Row {
            piece,
            stride,
            step: run.length as i64,
            // Below count.
            more: more as u32,
        })
    }
}
