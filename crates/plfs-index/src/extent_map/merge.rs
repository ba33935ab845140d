//! Merging levels: the newest wins each byte for good, and what can never be seen again is left
//! out.

use std::collections::BinaryHeap;

use super::entry::Entry;
use super::level::Level;
use crate::{Order, Run};

/// A stretch `[start, end)` of something ordered. `tag` stays the same when it is cut, so it holds
/// what does not depend on the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span<T> {
    /// First, so that a heap gives the newest.
    pub(super) order: Order,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) tag: T,
}

/// Goes through `spans`, ascending by start, and gives `emit` the disjoint parts that the newest
/// wins, ascending. `heap` comes and goes empty.
///
/// Spans that start together may come in any order. O(n log n), O(n) if nothing overlaps.
#[inline]
pub(super) fn sweep<T: Copy + Ord>(
    spans: impl Iterator<Item = Span<T>>,
    heap: &mut BinaryHeap<Span<T>>,
    mut emit: impl FnMut(Span<T>),
) {
    // The winner from its `start` on. All in the heap are older than it or end later, and started
    // before.
    let mut winner: Option<Span<T>> = None;
    // What wins from `pos` on among those that started before.
    let next_from = |heap: &mut BinaryHeap<Span<T>>, pos: u64| {
        while let Some(span) = heap.pop() {
            if span.end > pos {
                return Some(Span { start: pos, ..span });
            }
        }
        None
    };
    for span in spans {
        while let Some(w) = winner.filter(|w| w.end <= span.start) {
            emit(w);
            winner = next_from(heap, w.end);
        }
        match &mut winner {
            Some(w) if span.order > w.order => {
                if w.start < span.start {
                    emit(Span { end: span.start, ..*w });
                }
                if w.end > span.end {
                    heap.push(*w);
                }
                *w = span;
            }
            Some(w) => {
                if span.end > w.end {
                    heap.push(span);
                }
            }
            None => winner = Some(span),
        }
    }
    while let Some(w) = winner {
        emit(w);
        winner = next_from(heap, w.end);
    }
}

/// The first byte that a record of this order cannot hold, because a later truncate cut it away.
#[inline]
pub(super) fn clip_of(truncates: &[(Order, u64)], order: Order) -> u64 {
    match truncates.last() {
        Some(last) if order < last.0 => truncates[truncates.partition_point(|t| t.0 <= order)].1,
        _ => u64::MAX,
    }
}

/// Gives the entries of several sorted levels in one ascending sequence.
struct Ascending<'a> {
    /// What is left of each level that is not used up, with the key of its next entry. The level
    /// that comes next is last; the longest level is nearly always the one again, so that a step
    /// is one comparison.
    heads: Vec<((u64, Order), &'a [Entry])>,
}

impl<'a> Ascending<'a> {
    fn new(sources: impl Iterator<Item = &'a [Entry]>) -> Ascending<'a> {
        let mut heads: Vec<_> = sources.filter_map(|s| Some((s.first()?.key(), s))).collect();
        heads.sort_unstable_by_key(|head| std::cmp::Reverse(head.0));
        Ascending { heads }
    }
}

impl<'a> Iterator for Ascending<'a> {
    type Item = &'a Entry;

    #[inline]
    fn next(&mut self) -> Option<&'a Entry> {
        let head = self.heads.last_mut()?;
        let (entry, rest) = head.1.split_first()?;
        match rest.first() {
            None => drop(self.heads.pop()),
            Some(following) => {
                *head = (following.key(), rest);
                let mut i = self.heads.len() - 1;
                while i > 0 && self.heads[i - 1].0 < self.heads[i].0 {
                    self.heads.swap(i - 1, i);
                    i -= 1;
                }
            }
        }
        Some(entry)
    }
}

/// Merges sorted entries into a level and leaves out what can never be seen again (see the head of
/// the module).
pub(super) fn merge(sources: &[&[Entry]], truncates: &[(Order, u64)]) -> Level {
    let total = sources.iter().map(|s| s.len()).sum();
    let mut entries = Ascending::new(sources.iter().copied());

    // The singles go through the sweep; runs and the cut pieces of runs, which are not in order,
    // wait in `others`.
    let mut singles: Vec<Entry> = Vec::with_capacity(total);
    let mut others: Vec<(Run, Order)> = Vec::new();
    let spans = std::iter::from_fn(|| {
        loop {
            let entry = entries.next()?;
            let (run, order) = (entry.run(), entry.order());
            let clip = clip_of(truncates, order);
            if run.count > 1 {
                others.extend(run.clipped(clip).into_iter().flatten().map(|r| (r, order)));
            } else if run.logical < clip {
                let tag = (run.segment, run.physical.wrapping_sub(run.logical));
                return Some(Span { order, start: run.logical, end: run.end().min(clip), tag });
            }
        }
    });
    sweep(spans, &mut BinaryHeap::new(), |s| {
        let run = Run::single(s.start, s.end - s.start, s.tag.0, s.tag.1.wrapping_add(s.start));
        singles.push(Entry::new(run, s.order));
    });

    // Each run may look at a few singles on average, so that a merge stays linear whatever the runs
    // look like.
    let mut budget = 4 * total + 1024;
    let mut others = cut_on_lattices(others);
    others.retain(|(run, order)| {
        let mut rest = singles.as_slice();
        let behind = |pos: u64| {
            rest = &rest[rest.partition_point(|e| e.end.get() <= pos)..];
            rest.first().map(|e| (e.first.get(), e.end.get(), e.order()))
        };
        !is_hidden(behind, run, *order, &mut budget)
    });
    if !others.is_empty() {
        // Two ascending stretches: the stable sort merges them in one pass.
        let mut runs: Vec<Entry> =
            others.into_iter().map(|(run, order)| Entry::new(run, order)).collect();
        runs.sort_unstable_by_key(Entry::key);
        singles.append(&mut runs);
        singles.sort_by_key(Entry::key);
    }
    if singles.len() < singles.capacity() / 2 {
        singles.shrink_to_fit();
    }
    Level::new(singles)
}

/// Cuts runs where newer runs of equal length, stride and phase hide them. The pieces of such runs
/// are places on one lattice, so a run is an interval of places and the newest wins as with bytes.
/// A stride may be negative on one side: the places are the same.
pub(super) fn cut_on_lattices(runs: Vec<(Run, Order)>) -> Vec<(Run, Order)> {
    let lattice = |run: &Run| {
        let step = run.stride.unsigned_abs();
        (run.length, step, if step == 0 { 0 } else { run.first() % step })
    };
    let mut sorted: Vec<_> =
        runs.iter().enumerate().map(|(i, (run, _))| (lattice(run), run.first(), i)).collect();
    sorted.sort_unstable();
    let mut kept = Vec::with_capacity(runs.len());
    let mut heap = BinaryHeap::new();
    for group in sorted.chunk_by(|a, b| a.0 == b.0) {
        let step = group[0].0.1;
        if group.len() == 1 || step == 0 {
            kept.extend(group.iter().map(|g| runs[g.2]));
            continue;
        }
        let spans = group.iter().map(|&(_, first, i)| {
            let (run, order) = runs[i];
            Span { order, start: first / step, end: first / step + u64::from(run.count), tag: i }
        });
        sweep(spans, &mut heap, |s| {
            let (run, order) = runs[s.tag];
            let place = run.first() / step;
            // Both differences are at most the run's count.
            kept.push((run.ascending((s.start - place) as u32, (s.end - place) as u32), order));
        });
    }
    kept
}

/// Tells whether newer singles cover each piece of `run`; `behind` gives first byte, end and order
/// of the first one that ends behind a byte, which never goes back. Gives up, with false, when
/// `budget` steps are spent.
pub(super) fn is_hidden(
    mut behind: impl FnMut(u64) -> Option<(u64, u64, Order)>,
    run: &Run,
    order: Order,
    budget: &mut usize,
) -> bool {
    let step = run.stride.unsigned_abs();
    let (first, end) = (run.first(), run.end());
    let mut pos = first;
    loop {
        // `pos` is the lowest byte of the run that is not known to be hidden.
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        let Some((cover_first, cover_end, cover)) = behind(pos) else { return false };
        if cover_first > pos || cover < order {
            return false;
        }
        pos = cover_end;
        if pos >= end {
            return true;
        }
        if let Some(k) = (pos - first).checked_div(step) {
            // Skip the gap between two pieces.
            if pos >= first + k * step + run.length {
                pos = first + (k + 1) * step;
            }
        }
    }
}
