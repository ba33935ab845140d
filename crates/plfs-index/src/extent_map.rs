//! All runs of all writers of a file, with their order, and exact lookups in them.
//!
//! **Shape.** Below, perhaps, a *base*: a flat index (FORMAT.md section 6) that somebody mapped,
//! used without parsing. On it *levels*, each at least [`GROWTH`] times as long as the next: a
//! `Vec` of entries, sorted by (first byte, order) and made an implicit interval tree by `max_end`.
//! And a small unsorted buffer. A full buffer is merged with the levels that are not much longer,
//! so an insert costs O(log n) amortised moves and a map has O(log n) levels.
//! [`image`](ExtentMap::image) merges all of it into the parts of a new flat index, which also
//! is how many records are held in little memory: [`Bulk`] packs them as they are read.
//!
//! **Lookups** ask the base and each level's tree for the entries that reach into the range,
//! enumerate by arithmetic the pieces inside it, and let the newest win in a sweep. A run is never
//! expanded outside the range. A level of long interleaved runs, one or more a rank, is also sorted
//! by phase, so that a lookup does not ask each rank.
//!
//! **Garbage.** A merge cuts single extents where newer ones hide them, does the same for runs on
//! one lattice (equal length, stride and phase), drops runs that newer singles hide, and applies
//! truncates for good. So what overwrites itself stays as small as what is visible of it.
//!
//! **Truncates** arrive before or after the records they cut. A record is cut at the smallest new
//! size of the truncates later in the order, its *clip*. The map keeps the truncates that can still
//! cut something: those with no later one of the same or a smaller size. So their sizes rise with
//! their order, a clip is one binary search, and the file's size depends on the last truncate and
//! the runs after it alone.

mod base;
mod bulk;
mod entry;
mod fold;
mod image;
mod level;
mod merge;
mod row;
mod shape;

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use base::{Base, Bytes, ReadAt};
pub use bulk::Bulk;
pub use entry::Entry;
pub use image::{Image, Numbers};
use level::{Level, largest_end};
use merge::{Span, clip_of, merge, sweep};
pub use row::Row;

use crate::{HOLE, Order, Run};

/// Entries in the unsorted buffer. A lookup scans it: 64 entries are 4.5 KiB, about as dear as one
/// level's tree.
const BUFFER: usize = 64;

/// How many times longer a level is than the next. Larger makes lookups faster (fewer levels) and
/// inserts slower (more merges).
const GROWTH: usize = 4;

/// Pieces of a run that are looked up in a base one by one, to see whether they lie over something.
const BELOW_PIECES: u32 = 4096;

/// `ExtentMap::eof` when it must be searched for.
const UNKNOWN: u64 = u64::MAX;

/// Pieces in a scratch that a thread keeps between lookups; larger ones are given back. 64 Ki
/// pieces are 3 MiB.
const SCRATCH_KEPT: usize = 1 << 16;

/// A visible part of the file: `length` logical bytes at `logical` lie at `physical` of segment
/// `segment`, all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Logical offset.
    pub logical: u64,
    /// Bytes, at least 1.
    pub length: u64,
    /// Index into the owner's table of segments.
    pub segment: u32,
    /// Offset in the segment.
    pub physical: u64,
}

/// Where a piece's bytes are: segment, and physical minus logical offset, wrapping.
type Place = (u32, u64);

/// Memory that lookups use again, so that a lookup allocates nothing once it has grown.
#[derive(Debug, Default)]
pub struct Scratch {
    pieces: Vec<Span<Place>>,
    heap: BinaryHeap<Span<Place>>,
}

impl Scratch {
    /// Makes an empty scratch. Allocates nothing.
    pub const fn new() -> Scratch {
        Scratch { pieces: Vec::new(), heap: BinaryHeap::new() }
    }
}

/// All runs of all writers of a file. Lookups are exact; the newest record wins a byte (FORMAT.md
/// section 4).
///
/// Memory is 72 bytes an entry, up to twice that during a merge and for levels of interleaved runs
/// that were read. Records may come in any order, truncates too, and twice.
pub struct ExtentMap {
    base: Option<Base>,
    levels: Vec<Level>,
    buffer: Vec<Entry>,
    buffer_max: usize,
    /// Truncates that can still cut something: orders and sizes both ascend.
    truncates: Vec<(Order, u64)>,
    /// True if a truncate came after entries that it may cut, and no merge of everything has cut
    /// them.
    unclipped: bool,
    /// The file's size, or UNKNOWN. A cache of a pure function of the rest, so that relaxed loads
    /// and stores are enough.
    eof: AtomicU64,
    max_order: Order,
}

thread_local! {
    /// Which of [`SCRATCHES`] this thread takes, and one; 0: none yet. Without a destructor: to
    /// register one libc calls malloc, which a handler of a signal may have interrupted, and waits
    /// for the dynamic linker, which a constructor may hold that waits for this thread.
    static OURS: Cell<usize> = const { Cell::new(0) };
}

/// Shared by the threads of the process. 16: more threads than that seldom read at one moment.
static SCRATCHES: [Mutex<Scratch>; 16] = [const { Mutex::new(Scratch::new()) }; 16];

/// Calls `f` with a scratch: one that nobody has at this moment, or a new one.
fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    if OURS.get() == 0 {
        OURS.set(1 + THREADS.fetch_add(1, Ordering::Relaxed) % SCRATCHES.len());
    }
    let mut scratch = match SCRATCHES[OURS.get() - 1].try_lock() {
        Ok(scratch) => scratch,
        // Another thread reads, or this one, in what a handler of a signal has interrupted; or
        // there was a panic.
        Err(_) => return f(&mut Scratch::new()),
    };
    let result = f(&mut scratch);
    if scratch.pieces.capacity() > SCRATCH_KEPT {
        *scratch = Scratch::new();
    }
    result
}

impl Default for ExtentMap {
    fn default() -> ExtentMap {
        ExtentMap::new()
    }
}

impl fmt::Debug for ExtentMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<usize> = self.levels.iter().map(Level::len).collect();
        f.debug_struct("ExtentMap")
            .field("base", &self.base.as_ref().map(Base::len))
            .field("levels", &levels)
            .field("buffer", &self.buffer.len())
            .field("truncates", &self.truncates)
            .finish_non_exhaustive()
    }
}

impl ExtentMap {
    /// Makes an empty map. Allocates nothing.
    pub fn new() -> ExtentMap {
        ExtentMap::with_buffer(BUFFER)
    }

    /// Makes an empty map that merges after each `entries` inserts (at least 1) instead of 64. For
    /// tests, which want many merges of few records.
    pub fn with_buffer(entries: usize) -> ExtentMap {
        ExtentMap {
            base: None,
            levels: Vec::new(),
            buffer: Vec::new(),
            buffer_max: entries.max(1),
            truncates: Vec::new(),
            unclipped: false,
            eof: AtomicU64::new(0),
            max_order: Order::default(),
        }
    }

    /// Makes a map on a flat index. O(truncates): its entries and blocks are used where they are,
    /// and inserts never copy them.
    ///
    /// Entries that break an invariant are passed over; entries that are not sorted or have a wrong
    /// max_end give wrong lookups but no panic. A block that does not fit its checksum is passed
    /// over, and from then on [`is_damaged`](ExtentMap::is_damaged).
    pub fn with_base(base: Base) -> ExtentMap {
        let mut map = ExtentMap::new();
        let flat = base.flat();
        map.max_order = Order { stamp: flat.max_stamp, set: u32::MAX };
        map.eof = AtomicU64::new(flat.size);
        // A file may say anything; what is kept must have orders and sizes that ascend.
        for cut in &flat.truncates {
            let order = Order { stamp: cut.stamp, set: cut.set };
            if map.truncates.last().is_none_or(|last| last.0 < order && last.1 < cut.size)
                && order <= map.max_order
            {
                map.truncates.push((order, cut.size));
            }
        }
        map.base = (base.len() > 0).then_some(base);
        map
    }

    /// The map, if the size in its base's header is only a part of the truth: what lies past it
    /// counts.
    pub fn grown(self) -> ExtentMap {
        let mut size = self.eof();
        if let Some(base) = &self.base {
            base.largest_end(self.truncates.last().map(|last| last.0), &mut size);
        }
        self.eof.store(size, Ordering::Relaxed);
        self
    }

    /// The flat index below, unless it was empty.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Whether a block of the base was found damaged: what was looked up is not to be believed.
    pub fn is_damaged(&self) -> bool {
        self.base.as_ref().is_some_and(Base::is_damaged)
    }

    /// Adds a valid run, which the caller has checked with [`Run::is_valid`]. What later truncates
    /// that are known cut away is not kept.
    ///
    /// O(log n) amortised; now and then a call merges the whole map. Records loaded in bulk go
    /// faster through [`extend`](ExtentMap::extend).
    pub fn insert(&mut self, run: Run, order: Order) {
        for run in self.admit(run, order) {
            if self.buffer.len() >= self.buffer_max {
                let full = std::mem::take(&mut self.buffer);
                self.buffer = self.cascade(full);
            }
            self.buffer.push(Entry::new(run, order));
        }
    }

    /// Adds many valid runs at once, as [`insert`](ExtentMap::insert) adds one: one sort and one
    /// merge.
    pub fn extend(&mut self, records: impl IntoIterator<Item = (Run, Order)>) {
        let mut batch = std::mem::take(&mut self.buffer);
        for (run, order) in records {
            batch.extend(self.admit(run, order).map(|run| Entry::new(run, order)));
        }
        if batch.len() > self.buffer_max {
            batch = self.cascade(batch);
        }
        self.buffer = batch;
    }

    /// Adds a truncate: bytes from `size` on of all records earlier in the order are gone, whether
    /// they are here or come later.
    pub fn insert_truncate(&mut self, order: Order, size: u64) {
        let is_newest = order > self.max_order;
        self.max_order = self.max_order.max(order);
        let at = self.truncates.partition_point(|t| t.0 < order);
        if self.truncates.get(at).is_some_and(|later| later.1 <= size) {
            return;
        }
        let keep = self.truncates[..at].partition_point(|t| t.1 < size);
        let is_last = at == self.truncates.len();
        self.truncates.splice(keep..at, [(order, size)]);
        self.unclipped = !self.is_empty();
        if is_newest {
            *self.eof.get_mut() = size;
            self.forget_past(size);
        } else if is_last {
            *self.eof.get_mut() = UNKNOWN;
        }
    }

    /// Gives the visible pieces in `[from, to)`, ascending and disjoint, holes left out, whether
    /// they have a record or not; `out` is cleared first. Pieces that continue each other logically
    /// and physically are one.
    ///
    /// Costs O(levels * log n) and the runs and pieces that reach into the range; allocates only
    /// while `out` and the thread's scratch grow.
    pub fn lookup(&self, from: u64, to: u64, out: &mut Vec<Found>) {
        with_scratch(|scratch| self.lookup_with(from, to, scratch, out));
    }

    /// Does what [`lookup`](ExtentMap::lookup) does with the caller's scratch.
    pub fn lookup_with(&self, from: u64, to: u64, scratch: &mut Scratch, out: &mut Vec<Found>) {
        out.clear();
        let pieces = &mut scratch.pieces;
        self.gather(from, to, pieces);
        let mut push = |s: Span<Place>| {
            let physical = s.tag.1.wrapping_add(s.start);
            match out.last_mut() {
                _ if s.tag.0 == HOLE => {}
                Some(f)
                    if f.logical + f.length == s.start
                        && f.segment == s.tag.0
                        && f.physical + f.length == physical =>
                {
                    f.length += s.end - s.start
                }
                _ => out.push(Found {
                    logical: s.start,
                    length: s.end - s.start,
                    segment: s.tag.0,
                    physical,
                }),
            }
        };
        if let [one] = pieces.as_slice() {
            push(*one);
        } else {
            pieces.sort_unstable_by_key(|p| p.start);
            sweep(pieces.iter().copied(), &mut scratch.heap, push);
        }
    }

    /// Returns the exact size of the file, bytes (FORMAT.md section 4).
    ///
    /// O(1); after a truncate that did not come last in the order, the next call searches for the
    /// size, O(n) at worst.
    pub fn eof(&self) -> u64 {
        let known = self.eof.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known;
        }
        // Earlier records are clipped to at most the last truncate's size.
        let (after, mut best) = self.truncates.last().map_or((None, 0), |t| (Some(t.0), t.1));
        for e in self.buffer.iter().filter(|e| Some(e.order()) > after) {
            best = best.max(e.end.get());
        }
        for level in &self.levels {
            largest_end(level.entries(), after, &mut best);
        }
        if let Some(base) = &self.base {
            base.largest_end(after, &mut best);
        }
        self.eof.store(best, Ordering::Relaxed);
        best
    }

    /// Returns the lowest offset at or past `from` that holds data, as SEEK_DATA wants it; None if
    /// there is none.
    ///
    /// O(levels * log n) for each hole on the way, however many pieces they hide, and the entries
    /// that reach into them.
    pub fn next_data(&self, from: u64) -> Option<u64> {
        let mut found = Vec::new();
        let mut at = self.next_piece(from, u64::MAX, None)?;
        with_scratch(|scratch| {
            loop {
                self.lookup_with(at, at + 1, scratch, &mut found);
                if !found.is_empty() {
                    return Some(at);
                }
                // Nothing shows up to the end of this hole but what is newer. If that is hidden
                // again, then by another hole, so that each is met twice at most.
                let (order, end) = self.hole_at(at)?;
                at = match self.next_piece(at + 1, end, Some(order)) {
                    Some(newer) => newer,
                    None => self.next_piece(end, u64::MAX, None)?,
                };
            }
        })
    }

    /// The lowest byte in `[from, to)` of a piece that is later in the order than `after`, though a
    /// hole may hide it or be it.
    fn next_piece(&self, from: u64, to: u64, after: Option<Order>) -> Option<u64> {
        let mut best = to;
        let look = |e: &Entry, to: &mut u64| {
            if Some(e.order()) > after
                && let Some(byte) = e.next_byte(from, clip_of(&self.truncates, e.order()).min(*to))
            {
                *to = byte;
            }
        };
        for e in &self.buffer {
            look(e, &mut best);
        }
        for level in &self.levels {
            level.visit(from, best, |e, to| {
                look(e, to);
                best = *to;
            });
        }
        if let Some(base) = &self.base {
            base.next_byte(from, after, &self.truncates, &mut best);
        }
        (best < to).then_some(best)
    }

    /// The newest hole that has this byte, though newer data may lie there: its order and where it
    /// ends.
    fn hole_at(&self, at: u64) -> Option<(Order, u64)> {
        let mut newest = None;
        let mut look = |e: &Entry| {
            let end = e.end.get().min(clip_of(&self.truncates, e.order()));
            if e.segment.get() == HOLE && e.first.get() <= at && at < end {
                newest = newest.max(Some((e.order(), end)));
            }
        };
        self.buffer.iter().for_each(&mut look);
        self.levels.iter().for_each(|level| level.visit(at, at + 1, |e, _| look(e)));
        newest.max(self.base.as_ref().and_then(|base| base.hole_at(at, &self.truncates)))
    }

    /// Returns the lowest offset at or past `from` that is in a hole, as SEEK_HOLE wants it: the
    /// end of the file counts as one. None if `from` is at or past the end.
    ///
    /// Looks at all pieces up to there, in windows of a few thousand.
    pub fn next_hole(&self, from: u64) -> Option<u64> {
        let eof = self.eof();
        if from >= eof {
            return None;
        }
        let (mut covered, mut window, mut found) = (from, 1 << 16, Vec::new());
        with_scratch(|scratch| {
            while covered < eof {
                let end = eof.min(covered.saturating_add(window));
                let to = self.window(covered, end, 1 << 16);
                self.lookup_with(covered, to, scratch, &mut found);
                window = to - covered;
                for f in &found {
                    if f.logical == covered {
                        covered += f.length;
                    }
                }
                if covered < to {
                    break;
                }
                match scratch.pieces.len() {
                    0..1024 => window = window.saturating_mul(2),
                    1024..8192 => {}
                    _ => window = (window / 2).max(1),
                }
            }
            Some(covered)
        })
    }

    /// Where a window that begins at `from` ends, at most at `to`, so that a lookup of it gives
    /// some `most` pieces at most, and has no more to sort: what is memory for each.
    ///
    /// Costs the runs and blocks that reach into the range, whatever their pieces, several times.
    pub fn window(&self, from: u64, mut to: u64, most: u64) -> u64 {
        while to.saturating_sub(from) > most && self.pieces_at_most(from, to) > most {
            to = from + (to - from) / 2;
        }
        to
    }

    /// No more pieces than so many have a byte in `[from, to)`, hidden ones included.
    fn pieces_at_most(&self, from: u64, to: u64) -> u64 {
        let mut sum = 0u64;
        let mut add = |e: &Entry| sum = sum.saturating_add(e.pieces_at_most(from, to));
        self.levels.iter().for_each(|level| level.visit(from, to, |e, _| add(e)));
        self.buffer.iter().for_each(add);
        let base = self.base.as_ref().map_or(0, |base| base.pieces_at_most(from, to));
        sum.saturating_add(base)
    }

    /// Returns the number of entries, hidden ones that no merge has dropped included.
    pub fn len(&self) -> usize {
        self.base.as_ref().map_or(0, Base::len)
            + self.buffer.len()
            + self.levels.iter().map(Level::len).sum::<usize>()
    }

    /// Returns true if there is no entry. A truncate is none, so an empty map can have a size.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that this map occupies, a base not counted.
    pub fn heap_bytes(&self) -> usize {
        let levels = self.levels.iter().map(Level::heap_bytes).sum::<usize>();
        levels
            + self.buffer.capacity() * size_of::<Entry>()
            + self.truncates.capacity() * size_of::<(Order, u64)>()
    }

    /// Returns the largest stamp of all records that were ever added, 0 if there were none.
    pub fn max_stamp(&self) -> u64 {
        self.max_order.stamp
    }

    /// Calls for the runs that are kept, in no particular order. The parts of a run that was cut
    /// have its order; what the base holds without orders has its.
    pub fn for_each(&self, mut f: impl FnMut(Run, Order)) {
        self.levels
            .iter()
            .flat_map(Level::entries)
            .chain(&self.buffer)
            .for_each(|e| f(e.run(), e.order()));
        let Some(base) = &self.base else { return };
        for entry in base.entries() {
            let order = base.order_of(entry);
            base.expand(entry, &mut |run| f(run, order));
        }
        let mut extents = Vec::new();
        for i in 0..base.blocks().len() {
            base.extents_of(i, &mut extents);
            extents.drain(..).for_each(|(e, order)| {
                f(Run::single(e.logical, e.length, e.segment, e.physical), order)
            });
        }
    }

    /// [`for_each`](ExtentMap::for_each) without the base.
    pub fn for_each_above(&self, mut f: impl FnMut(Run, Order)) {
        let above = self.levels.iter().flat_map(Level::entries).chain(&self.buffer);
        above.for_each(|e| f(e.run(), e.order()));
    }

    /// Where a record of this place in the order is cut by the truncates that are known.
    pub fn clip(&self, order: Order) -> u64 {
        clip_of(&self.truncates, order)
    }

    /// A range outside of which no byte of `run` has anything in the base, and which does not go
    /// past the end of the file. It may be too large if the run has many pieces.
    pub fn base_below(&self, run: &Run) -> Option<(u64, u64)> {
        let base = self.base.as_ref()?;
        let end = self.eof().min(run.end());
        let first_in = |from: u64, to: u64| {
            let mut best = to;
            base.next_byte(from, None, &self.truncates, &mut best);
            (best < to).then_some(best)
        };
        let from = first_in(run.first(), end)?;
        if run.count > BELOW_PIECES {
            return Some((from, end));
        }
        let hits = |i: &u32| {
            let piece = run.ascending(*i, *i + 1);
            first_in(piece.logical, piece.end().min(end)).is_some()
        };
        let low = run.ascending(0, 1).logical.max(from);
        (0..run.count).any(|i| hits(&i)).then_some((low, end))
    }

    /// Gives the truncates that can still cut a record or that make the size, with their new sizes.
    /// Orders and sizes both ascend: a truncate with a later one of the same or a smaller size
    /// changes nothing and is not kept.
    pub fn truncates(&self) -> &[(Order, u64)] {
        &self.truncates
    }

    /// Merges all but the base, so that lookups have one tree to search, and gives what was merged.
    ///
    /// O(n) and a copy of the map while it runs; free if nothing was added since the last time.
    pub fn compact(&mut self) -> &[Entry] {
        if !self.buffer.is_empty() || self.levels.len() > 1 || self.unclipped {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.sort_unstable_by_key(Entry::key);
            self.merge_from(0, &buffer);
            // What the base holds stays as it is, and is clipped at each lookup.
            self.unclipped = self.base.is_some();
        }
        self.levels.first().map_or(&[], Level::entries)
    }

    /// Accounts for a new run and gives the parts of it that the truncates leave.
    #[inline]
    fn admit(&mut self, run: Run, order: Order) -> impl Iterator<Item = Run> + use<> {
        debug_assert!(run.is_valid(), "{run:?}");
        self.max_order = self.max_order.max(order);
        let eof = self.eof.get_mut();
        let kept = match self.truncates.last() {
            // The last truncate's size is at least the clip, so the run does not change the size of
            // the file.
            Some(last) if order < last.0 => run.clipped(clip_of(&self.truncates, order)),
            _ => {
                // UNKNOWN stays: it is the maximum.
                *eof = run.end().max(*eof);
                [Some(run), None]
            }
        };
        kept.into_iter().flatten().map(|run| {
            if run.count > 1 && run.stride.unsigned_abs() == run.length && run.stride > 0 {
                // Pieces without gaps are one piece; a merge can cut that.
                return Run { length: run.bytes(), stride: 0, count: 1, ..run };
            }
            run
        })
    }

    /// Calls for the pieces in `[from, to)`, clipped to it, in no particular order.
    fn gather(&self, from: u64, to: u64, pieces: &mut Vec<Span<Place>>) {
        pieces.clear();
        let mut add = |e: &Entry| {
            let order = e.order();
            let segment = e.segment.get();
            let to = to.min(clip_of(&self.truncates, order));
            e.pieces(from, to, |start, end, shift| {
                pieces.push(Span { order, start, end, tag: (segment, shift) })
            });
        };
        for level in &self.levels {
            level.visit_pieces(from, to, &mut add);
        }
        for e in &self.buffer {
            if e.first.get() < to && e.end.get() > from {
                add(e);
            }
        }
        if let Some(base) = &self.base {
            base.gather(from, to, &self.truncates, pieces);
        }
    }

    /// Merges a full buffer with the levels that are not much longer, and gives its memory back.
    fn cascade(&mut self, mut buffer: Vec<Entry>) -> Vec<Entry> {
        buffer.sort_unstable_by_key(Entry::key);
        let mut keep = self.levels.len();
        let mut total = buffer.len();
        while keep > 0 && self.levels[keep - 1].len() <= GROWTH * total {
            keep -= 1;
            total += self.levels[keep].len();
        }
        self.merge_from(keep, &buffer);
        buffer.clear();
        buffer.shrink_to(self.buffer_max);
        buffer
    }

    /// Replaces the levels from `keep` on and the sorted `buffer` by their merger.
    fn merge_from(&mut self, keep: usize, buffer: &[Entry]) {
        let sources: Vec<&[Entry]> =
            self.levels[keep..].iter().map(Level::entries).chain([buffer]).collect();
        let merged = merge(&sources, &self.truncates);
        self.levels.truncate(keep);
        if merged.len() > 0 {
            self.levels.push(merged);
        }
    }

    /// Drops entries that start at or past `size` where that is cheap, when all of them are older
    /// than a truncate to `size`.
    fn forget_past(&mut self, size: u64) {
        self.buffer.retain(|e| e.first.get() < size);
        for level in &mut self.levels {
            let kept = level.entries().partition_point(|e| e.first.get() < size);
            if kept <= level.len() / 2 {
                // Costs what is dropped.
                level.truncate(kept);
            }
        }
        self.levels.retain(|level| level.len() > 0);
        if size == 0 {
            self.base = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plfs_format::flat_index::{self, Axis, Covered, FlatIndex, NewShape, Segment, Truncate};
    use plfs_format::name::SegmentRef;
    use zerocopy::IntoBytes;

    use super::*;

    fn order(stamp: u64) -> Order {
        Order { stamp, set: 0 }
    }

    fn all(map: &ExtentMap) -> Vec<(Run, Order)> {
        let mut all = Vec::new();
        map.for_each(|run, order| all.push((run, order)));
        all
    }

    fn found(map: &ExtentMap, from: u64, to: u64) -> Vec<(u64, u64, u32, u64)> {
        let mut out = Vec::new();
        map.lookup(from, to, &mut out);
        out.into_iter().map(as_found).collect()
    }

    fn as_found(f: Found) -> (u64, u64, u32, u64) {
        (f.logical, f.length, f.segment, f.physical)
    }

    #[test]
    fn an_entry_is_72_bytes_as_in_the_format() {
        let run = Run { logical: 30, length: 2, stride: -10, count: 4, segment: 9, physical: 100 };
        let entry = Entry::new(run, Order { stamp: 5, set: 6 });
        assert_eq!(size_of::<Entry>(), 72);
        assert_eq!(
            (entry.run(), entry.order(), entry.first.get(), entry.end.get()),
            (run, Order { stamp: 5, set: 6 }, 0, 32)
        );
        let bytes = entry.as_bytes();
        assert_eq!(bytes[8..16], 32u64.to_le_bytes());
        assert_eq!(bytes[32..40], (-10i64).to_le_bytes());
        assert_eq!(bytes[60..72], [0, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0]);
    }

    #[test]
    fn the_newest_wins_and_continuations_are_one_piece() {
        let mut map = ExtentMap::new();
        map.insert(Run::single(0, 10, 0, 0), order(1));
        map.insert(Run::single(10, 10, 0, 10), order(2));
        assert_eq!(found(&map, 0, 100), [(0, 20, 0, 0)]);
        map.insert(Run::single(5, 3, 1, 70), order(3));
        map.insert(Run::single(4, 8, 2, 50), order(0));
        assert_eq!(found(&map, 0, 100), [(0, 5, 0, 0), (5, 3, 1, 70), (8, 12, 0, 8)]);
        assert_eq!(found(&map, 6, 9), [(6, 2, 1, 71), (8, 1, 0, 8)]);
        assert_eq!(found(&map, 9, 9), []);
        assert_eq!(found(&map, 9, 3), []);
    }

    #[test]
    fn interleaved_runs_answer_by_arithmetic() {
        let mut map = ExtentMap::new();
        for rank in 0..8u32 {
            map.insert(
                Run {
                    logical: u64::from(rank) * 100,
                    length: 100,
                    stride: 800,
                    count: 1_000_000,
                    segment: rank,
                    physical: 0,
                },
                order(1 + u64::from(rank)),
            );
        }
        assert_eq!(map.eof(), 800_000_000);
        let at = 800 * 123_456;
        assert_eq!(
            found(&map, at + 150, at + 250),
            [(at + 150, 50, 1, 12_345_650), (at + 200, 50, 2, 12_345_600)]
        );
        assert_eq!(map.next_hole(0), Some(800_000_000));
        assert_eq!(map.next_data(799_999_999), Some(799_999_999));
        assert_eq!(map.next_data(800_000_000), None);
    }

    #[test]
    fn a_truncate_cuts_what_is_earlier_in_the_order_whenever_it_comes() {
        let run = Run { logical: 0, length: 4, stride: 10, count: 5, segment: 0, physical: 0 };
        for truncate_first in [false, true] {
            let mut map = ExtentMap::new();
            if truncate_first {
                map.insert_truncate(order(5), 22);
            }
            map.insert(run, order(1));
            if !truncate_first {
                map.insert_truncate(order(5), 22);
            }
            map.insert(Run::single(50, 1, 1, 0), order(9));
            assert_eq!(
                found(&map, 0, 100),
                [(0, 4, 0, 0), (10, 4, 0, 4), (20, 2, 0, 8), (50, 1, 1, 0)]
            );
            assert_eq!(map.eof(), 51);
            assert_eq!(map.compact().len(), 3);
            assert_eq!(
                found(&map, 0, 100),
                [(0, 4, 0, 0), (10, 4, 0, 4), (20, 2, 0, 8), (50, 1, 1, 0)]
            );
        }
    }

    #[test]
    fn only_truncates_that_can_still_cut_are_kept() {
        let mut map = ExtentMap::new();
        map.insert_truncate(order(5), 100);
        map.insert_truncate(order(3), 100);
        map.insert_truncate(order(2), 10);
        map.insert_truncate(order(7), 200);
        assert_eq!(map.truncates(), [(order(2), 10), (order(5), 100), (order(7), 200)]);
        assert_eq!(map.eof(), 200);
        map.insert_truncate(order(6), 100);
        assert_eq!(map.truncates(), [(order(2), 10), (order(6), 100), (order(7), 200)]);
        let later = Order { set: 1, ..order(6) };
        map.insert_truncate(later, 0);
        assert_eq!(map.truncates(), [(later, 0), (order(7), 200)]);
        assert_eq!(map.max_stamp(), 7);
    }

    #[test]
    fn a_truncate_to_nothing_frees_everything() {
        let mut map = ExtentMap::new();
        map.extend((0..10_000).map(|i| (Run::single(i * 10, 5, 0, i), order(i))));
        map.insert_truncate(order(20_000), 0);
        assert!(map.is_empty() && map.heap_bytes() < 64 << 10, "{map:?}");
        assert_eq!((map.eof(), map.next_data(0), map.next_hole(0)), (0, None, None));
    }

    #[test]
    fn runs_that_are_overwritten_by_equal_runs_or_by_singles_are_dropped() {
        let run = |logical, count, stride: i64| Run {
            logical,
            length: 10,
            stride,
            count,
            segment: 0,
            physical: 0,
        };
        let mut map = ExtentMap::new();
        map.insert(run(5, 60, 100), order(1));
        map.insert(run(6005, 40, 100), order(2));
        map.insert(run(5, 30, 100), order(3));
        map.insert(run(9905, 70, -100), order(4));
        assert_eq!(map.compact().len(), 2);
        assert_eq!(
            all(&map).iter().map(|(run, _)| run.bytes()).sum::<u64>(),
            1000,
            "parts that are hidden were kept"
        );
        // Two singles that cover each piece, though not all bytes between.
        map.insert(Run::single(3005, 3400, 1, 0), order(5));
        map.insert(Run::single(6400, 5000, 1, 9000), order(6));
        map.insert(Run::single(0, 2920, 1, 20_000), order(7));
        assert_eq!(map.compact().len(), 3, "{:?}", all(&map));
        // An older single hides nothing.
        map.insert(run(5, 3, 100), order(8));
        map.insert(Run::single(0, 1000, 1, 50_000), order(0));
        assert_eq!(map.compact().len(), 4);
    }

    #[test]
    fn a_run_is_hidden_by_singles_that_cover_its_pieces_exactly() {
        let mut map = ExtentMap::new();
        map.insert(
            Run { logical: 400, length: 10, stride: -100, count: 5, segment: 0, physical: 0 },
            order(1),
        );
        for i in 0..5 {
            assert_eq!(map.compact().len(), 1 + i as usize);
            map.insert(Run::single(i * 100, 10, 1, i * 20), order(2 + i));
        }
        assert_eq!(map.compact().len(), 5);
    }

    #[test]
    fn a_run_is_cut_at_both_sides_by_newer_ones_on_its_lattice() {
        let run = |logical, count, physical| Run {
            logical,
            length: 10,
            stride: 100,
            count,
            segment: 0,
            physical,
        };
        let mut map = ExtentMap::new();
        map.insert(run(5, 100, 0), order(1));
        map.insert(run(5, 30, 5000), order(2));
        map.insert(run(8005, 20, 6000), order(3));
        map.compact();
        assert_eq!(
            all(&map).iter().map(|r| r.0).collect::<Vec<_>>(),
            [run(5, 30, 5000), run(3005, 50, 300), run(8005, 20, 6000)]
        );
    }

    #[test]
    fn a_map_is_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<ExtentMap>();
    }

    #[test]
    fn pieces_without_gaps_become_one_extent() {
        let mut map = ExtentMap::new();
        map.insert(
            Run { logical: 0, length: 10, stride: 10, count: 5, segment: 0, physical: 7 },
            order(1),
        );
        assert_eq!(all(&map), [(Run::single(0, 50, 0, 7), order(1))]);
        map.insert(
            Run { logical: 90, length: 10, stride: -10, count: 5, segment: 0, physical: 100 },
            order(2),
        );
        assert_eq!(map.next_hole(0), Some(100));
    }

    #[test]
    fn garbage_stays_bounded() {
        let mut map = ExtentMap::new();
        let mut x = 1u64;
        for i in 0..200_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            map.insert(
                Run::single((x >> 33) % (1 << 20), 1 + (x >> 20) % 8000, 0, i * 8000),
                order(i),
            );
            assert!(map.len() < 4000, "{i}: {map:?}");
        }
        assert!(map.heap_bytes() < 1 << 20, "{}", map.heap_bytes());
    }

    /// A damaged flat index may name any segment. What was left of such an entry, because it was
    /// cut or overwritten in part, ended the process of the next one who made a flat index.
    #[test]
    fn what_is_left_of_an_entry_with_a_segment_that_is_not_listed_is_refused() {
        for count in [2, 3] {
            let mut map = ExtentMap::new();
            let run = Run { logical: 0, length: 4, stride: 10, count, segment: 22, physical: 0 };
            map.insert(run, order(1));
            let mut map = reopened(&map, false);
            map.insert_truncate(order(2), 12);
            map.insert(Run::single(100, 4, 0, 0), order(3));
            let numbers = Numbers { set_of: &[0; 2], sets: &[0] };
            for settled in [false, true] {
                let bad = map.image(Vec::new(), &numbers, settled).unwrap_err();
                assert_eq!(bad.what, "an entry names a segment that is not listed");
            }
        }
    }

    /// A map on an image of this one, as a flat index is used.
    fn reopened(map: &ExtentMap, settled: bool) -> ExtentMap {
        let numbers = Numbers { set_of: &[0; 1000], sets: &[0] };
        let image = map.image(Vec::new(), &numbers, settled).unwrap();
        ExtentMap::with_base(base(map, &image, settled))
    }

    fn base(map: &ExtentMap, image: &Image, settled: bool) -> Base {
        let uuid = plfs_format::Uuid([0; 16]);
        let max_stamp = map.max_stamp();
        let segment = |old: &u32| Segment {
            at: SegmentRef { set: 0, stream: 0, segment: *old, backend: 0 },
            bytes: 0,
        };
        let flat = FlatIndex {
            uuid,
            size: map.eof(),
            max_stamp,
            floor: if settled { max_stamp } else { 0 },
            covered: vec![Covered { set: 0, from: 0, bytes: 0 }],
            segments: image.segments.iter().map(segment).collect(),
            truncates: map
                .truncates()
                .iter()
                .map(|(order, size)| Truncate { stamp: order.stamp, set: order.set, size: *size })
                .collect(),
            ..FlatIndex::default()
        };
        let bytes =
            flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
        let flat = flat_index::decode(&bytes, &uuid).unwrap();
        let base = Base::new(Arc::new(bytes), flat);
        base.check().unwrap();
        base
    }

    #[test]
    fn ranks_in_turns_are_a_few_bytes_and_answer_as_before() {
        let mut map = ExtentMap::new();
        let ranks = 1000u64;
        for rank in 0..ranks {
            let run = Run {
                logical: rank * 100,
                length: 100,
                stride: 100_000,
                count: 1000,
                segment: (rank / 10) as u32,
                physical: rank % 10 * (1 << 30),
            };
            map.insert(run, order(1 + rank));
        }
        let again = reopened(&map, true);
        assert_eq!((again.len(), again.eof()), (1, map.eof()));
        for at in [0, 150, 99_999, 77_777_777, 99_999_999] {
            assert_eq!(found(&again, at, at + 350), found(&map, at, at + 350));
        }
        assert_eq!((again.next_hole(0), again.next_data(5)), (map.next_hole(0), Some(5)));
        let base = again.base().unwrap();
        assert!(base.file_bytes() < 2000, "{}", base.file_bytes());
        let row = again.row(1_234_567_830, 1_234_567_840, 100_000);
        assert_eq!(row, None, "past the end");
        let mut row = again.row(11_234_570, 11_234_580, 100_000).unwrap();
        assert_eq!(row.more, 999 - 112);
        let mut at = 11_234_500;
        loop {
            assert_eq!(vec![as_found(row.piece)], found(&again, at, at + 100));
            at += 100_000;
            if !row.next_has(at + 3, at + 9) {
                break;
            }
            row.advance();
        }
        assert_eq!((at, row.more), (100_034_500, 0));
    }

    /// Processes that write in turns, and whose first pieces lie in a file that was plain then:
    /// each piece that was read was looked up (4 KiB reads took a fifth longer).
    #[test]
    fn a_run_that_is_not_flat_is_a_row_up_to_what_is_newer() {
        let mut map = ExtentMap::new();
        let piece = |logical, count| Run {
            logical,
            length: 100,
            stride: if count > 1 { 800 } else { 0 },
            count,
            segment: (logical % 800 / 100) as u32,
            physical: 5000,
        };
        for i in 0..50 {
            map.insert(piece(i * 800 + 300, 1), order(1 + i));
        }
        for rank in 0..8 {
            map.insert(piece(rank * 100, 1000), order(100 + rank));
        }
        let row = map.row(820, 900, 800).unwrap();
        assert_eq!((row.piece.logical, row.piece.physical, row.step), (800, 5100, 100));
        assert_eq!((row.more, map.row(1100, 1150, 800).unwrap().more), (998, 998));
        assert_eq!((map.row(820, 901, 800), map.row(820, 830, 900)), (None, None));
        map.insert(piece(80_050, 1), order(200));
        assert_eq!(map.row(820, 900, 800).unwrap().more, 98);
        assert_eq!((map.row(80_000, 80_001, 800), map.row(80_060, 80_070, 800)), (None, None));
        assert_eq!(map.row(81_000, 81_100, 800).unwrap().more, 1000 - 102);
    }

    /// Rows of all maps of a few runs, in shapes and not, with truncates and newer writes: what a
    /// row says of a piece is what a lookup says of it.
    #[test]
    fn a_row_says_what_lookups_say() {
        let mut rows = 0;
        for settled in [false, true] {
            for ranks in 1..5 {
                for cut in [u64::MAX, 0, 250, 900] {
                    let mut map = ExtentMap::new();
                    for rank in 0..ranks {
                        let run = Run {
                            logical: rank * 10,
                            length: 10,
                            stride: 10 * ranks as i64,
                            count: 40,
                            segment: (rank / 2) as u32,
                            physical: rank % 2 * 5000,
                        };
                        map.insert(run, order(1 + rank));
                    }
                    map.insert(Run::single(2000, 500, 9, 0), order(20));
                    if cut != u64::MAX {
                        map.insert_truncate(order(30), cut);
                        map.insert(Run::single(3000, 10, 0, 50_000), order(31));
                    }
                    let mut again = reopened(&map, settled);
                    let strides = [1, 5, 10, 20, 30, 40, 80];
                    for (from, stride) in (0..500).flat_map(|at| strides.map(|s| (at, s))) {
                        let Some(mut row) = again.row(from, from + 1, stride) else { continue };
                        rows += 1;
                        let mut at = from;
                        loop {
                            let p = as_found(row.piece);
                            assert_eq!(found(&again, p.0, p.0 + p.1), vec![p]);
                            assert!(p.0 <= at && at < p.0 + p.1);
                            at += stride;
                            if !row.next_has(at, at + 1) {
                                break;
                            }
                            row.advance();
                        }
                    }
                    again.insert(Run::single(33, 1, 7, 0), order(40));
                    assert_eq!(again.row(0, 10, 10 * ranks), None, "a newer write may hide it");
                }
            }
        }
        assert!(rows > 1000, "{rows}");
    }

    #[test]
    fn hostile_entries_do_not_panic() {
        let good = Entry::new(Run::single(10, 5, 0, 0), order(1));
        let mut x = 1u64;
        let mut random = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if x >> 62 == 0 { u64::MAX >> (x >> 40 & 63) } else { x >> (x >> 40 & 63) }
        };
        let axis = |stride, count, tabled| Axis { stride, physical: 7, segment: 1, count, tabled };
        for _ in 0..2000 {
            let mut entries = Vec::new();
            for i in 0..9 {
                let mut e = Entry { shape: (i % 3).into(), ..good };
                for word in e.as_mut_bytes().chunks_mut(8) {
                    if random() & 3 == 0 {
                        word.copy_from_slice(&random().to_le_bytes());
                    }
                }
                entries.push(e);
            }
            let shapes = vec![
                NewShape {
                    axes: vec![axis(1 + random() % 100, 2 + random() as u32 % 9, false)],
                    ..NewShape::default()
                },
                NewShape {
                    axes: vec![axis(random() >> 1 | 1, 2, true), axis(5, 3, true)],
                    segments: vec![1, 2, 3, 4, 5, random()],
                    physicals: (0..6).map(|_| random()).collect(),
                },
            ];
            let flat = FlatIndex { max_stamp: 5, floor: 5, ..FlatIndex::default() };
            let bytes = flat_index::encode(&flat, &shapes, entries.as_bytes(), &Default::default());
            let flat = flat_index::decode(&bytes, &plfs_format::Uuid::default()).unwrap();
            let base = Base::new(Arc::new(bytes), flat);
            let _ = base.check();
            let mut map = ExtentMap::with_base(base);
            for stride in [1, 5, 10, random()] {
                let _ = map.row(10, 11, stride).map(|row| row.next_has(random(), u64::MAX));
            }
            map.insert(Run::single(3, 20, 0, 0), order(7));
            map.insert_truncate(order(6), random() >> 1);
            found(&map, 0, 1000);
            let _ = (
                map.eof(),
                map.next_data(random()),
                map.next_data(4),
                map.next_hole(map.eof().saturating_sub(9)),
            );
            map.compact();
        }
    }
}
