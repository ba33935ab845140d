//! Levels of a map: sorted entries as an implicit interval tree, and for long interleaved runs a
//! second way in, by phase.

use std::sync::OnceLock;

use super::entry::Entry;
use crate::Order;

/// Entries that a level has at least before its runs are sorted by phase: below, the tree is as
/// fast.
const LATTICE_ENTRIES: usize = 32;

/// Phases that a group of runs of equal length and stride has at least.
const LATTICE_PHASES: usize = 8;

/// Sorted entries that are an implicit interval tree: the root of `[a, b)` is entry (a+b)/2
/// (FORMAT.md section 6).
pub(super) struct Level {
    entries: Vec<Entry>,
    lattices: OnceLock<Option<Box<Lattices>>>,
}

/// Makes sorted entries an implicit interval tree and returns the largest end.
pub(super) fn make_tree(entries: &mut [Entry]) -> u64 {
    if entries.is_empty() {
        return 0;
    }
    // a + (b-a)/2 is (a+b)/2, also when rounded down.
    let m = entries.len() / 2;
    let (left, rest) = entries.split_at_mut(m);
    let (root, right) = rest.split_first_mut().expect("m < len");
    let max = root.end.get().max(make_tree(left)).max(make_tree(right));
    root.max_end = max.into();
    max
}

/// The largest end of entries, if each says that of its subtree.
pub(super) fn tree_end(entries: &[Entry]) -> Option<u64> {
    let m = entries.len() / 2;
    let Some(root) = entries.get(m) else { return Some(0) };
    let most = root.end.get().max(tree_end(&entries[..m])?).max(tree_end(&entries[m + 1..])?);
    (root.max_end.get() == most).then_some(most)
}

impl Level {
    /// Makes the level of sorted entries.
    pub(super) fn new(mut entries: Vec<Entry>) -> Level {
        debug_assert!(entries.is_sorted_by_key(Entry::key));
        make_tree(&mut entries);
        Level { entries, lattices: OnceLock::new() }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops the entries from `kept` on.
    pub(super) fn truncate(&mut self, kept: usize) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.truncate(kept);
        entries.shrink_to_fit();
        *self = Level::new(entries);
    }

    /// Calls `f(entry, to)` for the entries that reach into `[from, to)`, ascending. `f` may lower
    /// `to` on the way.
    #[inline]
    pub(super) fn visit(&self, from: u64, to: u64, mut f: impl FnMut(&Entry, &mut u64)) {
        walk(&self.entries, from, &mut { to }, &mut f);
    }

    /// Calls `f` for all entries that have a piece in `[from, to)`, and few others, in no
    /// particular order.
    #[inline]
    pub(super) fn visit_pieces(&self, from: u64, to: u64, mut f: impl FnMut(&Entry)) {
        match self.lattices.get_or_init(|| Lattices::new(&self.entries)) {
            Some(lattices) => lattices.visit(from, to, f),
            None => self.visit(from, to, |e, _| f(e)),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let lattices = self.lattices.get().and_then(|l| l.as_ref()).map_or(0, |l| l.heap_bytes());
        self.entries.capacity() * size_of::<Entry>() + lattices
    }
}

/// Long runs that interleave, by where they lie in their period. In the tree each of the runs of a
/// thousand ranks reaches into each range; here a lookup asks only for those whose phase has a
/// piece there.
pub(super) struct Lattices {
    groups: Vec<Group>,
    /// The entries of no group, as a level has them.
    rest: Vec<Entry>,
}

/// Runs of one length and stride.
struct Group {
    length: u64,
    step: u64,
    first: u64,
    end: u64,
    /// Phases (first modulo step), ascending, each with the index of its first run. The runs of a
    /// phase are a tree.
    phases: Vec<(u64, usize)>,
    runs: Vec<Entry>,
}

impl Lattices {
    /// Whether lattices are worth trying: many entries, and going by 256 of them most are runs.
    pub(super) fn if_likely(entries: &[Entry]) -> bool {
        let sample = || entries.iter().step_by(entries.len().div_ceil(256));
        entries.len() >= LATTICE_ENTRIES
            && sample().filter(|e| e.count.get() > 1).count() * 2 >= sample().count()
    }

    /// Makes the lattices of sound entries, None if they would not help. O(n log n), and a look at
    /// 256 entries if they are mostly singles.
    pub(super) fn new(entries: &[Entry]) -> Option<Box<Lattices>> {
        if !Lattices::if_likely(entries) {
            return None;
        }
        let is_run = |e: &&Entry| e.count.get() > 1;
        let (runs, mut rest): (Vec<Entry>, Vec<Entry>) =
            entries.iter().copied().partition(|e| is_run(&e));
        let key = |e: &Entry| (e.length.get(), e.stride.get().unsigned_abs());
        let mut sorted: Vec<_> =
            runs.into_iter().map(|e| (key(&e), e.first.get() % key(&e).1, e)).collect();
        sorted.sort_unstable_by_key(|(key, phase, e)| (*key, *phase, e.key()));
        let mut groups = Vec::new();
        for of_group in sorted.chunk_by(|a, b| a.0 == b.0) {
            let mut phases = Vec::new();
            let mut runs = Vec::with_capacity(of_group.len());
            for of_phase in of_group.chunk_by(|a, b| a.1 == b.1) {
                let at = runs.len();
                phases.push((of_phase[0].1, at));
                runs.extend(of_phase.iter().map(|run| run.2));
                make_tree(&mut runs[at..]);
            }
            if phases.len() < LATTICE_PHASES {
                rest.extend(runs);
                continue;
            }
            let first = runs.iter().map(|e| e.first.get()).min().unwrap_or(0);
            let end = runs.iter().map(|e| e.end.get()).max().unwrap_or(0);
            let (length, step) = of_group[0].0;
            groups.push(Group { length, step, first, end, phases, runs });
        }
        if groups.is_empty() {
            return None;
        }
        rest.sort_unstable_by_key(Entry::key);
        make_tree(&mut rest);
        Some(Box::new(Lattices { groups, rest }))
    }

    /// Calls `f` for all entries that have a piece in `[from, to)`, and few others, in no
    /// particular order.
    pub(super) fn visit(&self, from: u64, to: u64, mut f: impl FnMut(&Entry)) {
        let mut f = |e: &Entry, _: &mut u64| f(e);
        walk(&self.rest, from, &mut { to }, &mut f);
        for group in &self.groups {
            let (from, mut to) = (from.max(group.first), to.min(group.end));
            if from >= to {
                continue;
            }
            // Where the pieces start that reach into the range.
            let (lo, hi) = ((from + 1).saturating_sub(group.length), to - 1);
            let mut visit_phases = |range: std::ops::Range<usize>| {
                for i in range {
                    let end = group.phases.get(i + 1).map_or(group.runs.len(), |next| next.1);
                    walk(&group.runs[group.phases[i].1..end], from, &mut to, &mut f);
                }
            };
            let n = group.phases.len();
            if hi - lo >= group.step - 1 {
                visit_phases(0..n);
                continue;
            }
            let (a, b) = (lo % group.step, hi % group.step);
            let (from_a, past_b) = (
                group.phases.partition_point(|p| p.0 < a),
                group.phases.partition_point(|p| p.0 <= b),
            );
            if a <= b {
                visit_phases(from_a..past_b);
            } else {
                visit_phases(0..past_b);
                visit_phases(from_a..n);
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let groups = self.groups.iter().map(|g| {
            g.runs.capacity() * size_of::<Entry>() + g.phases.capacity() * size_of::<(u64, usize)>()
        });
        groups.sum::<usize>() + self.rest.capacity() * size_of::<Entry>()
    }
}

/// Visits the tree `entries` from left to right, without the subtrees that end before `from` or
/// start at `to` or later.
pub(super) fn walk<F: FnMut(&Entry, &mut u64)>(
    mut entries: &[Entry],
    from: u64,
    to: &mut u64,
    f: &mut F,
) {
    while !entries.is_empty() {
        let m = entries.len() / 2;
        let root = &entries[m];
        if root.max_end.get() <= from {
            return;
        }
        if root.first.get() >= *to {
            entries = &entries[..m];
            continue;
        }
        walk(&entries[..m], from, to, f);
        if root.first.get() < *to && root.end.get() > from {
            f(root, to);
        }
        entries = &entries[m + 1..];
    }
}

/// Raises `best` to the largest end of the entries later than `after`.
pub(super) fn largest_end(mut entries: &[Entry], after: Option<Order>, best: &mut u64) {
    while !entries.is_empty() {
        let m = entries.len() / 2;
        let root = &entries[m];
        if root.max_end.get() <= *best {
            return;
        }
        if Some(root.order()) > after && root.end.get() > *best {
            *best = root.end.get();
        }
        largest_end(&entries[m + 1..], after, best);
        entries = &entries[..m];
    }
}
