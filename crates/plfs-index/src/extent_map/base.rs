//! A flat index used where it lies, under a map's levels.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use plfs_format::Bad;
use plfs_format::column::Column;
use plfs_format::flat_index::{self, Axis, BlocksView, Extent, FlatIndex, Shape};
use zerocopy::FromBytes;

use super::entry::Entry;
use super::level::{Lattices, tree_end, walk};
use super::merge::{Span, clip_of};
use super::shape::{Piece, Shaped, Spans};
use super::{Place, Row};
use crate::{HOLE, MAX_END, Order, Run};

/// Bytes that stay valid as long as this value lives: a file map or memory.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A decoded flat index and the bytes it lies in, which must not change. They may say anything.
///
/// The blocks of a long one stay in its file, and each is read when it is asked for. They are not
/// mapped: a file that somebody cuts would take the program down with it, and any other node can do
/// that (docs/decisions/0012).
pub struct Base {
    /// The file, or if `blocks` is there all in front of the blocks.
    bytes: Bytes,
    blocks: Option<BlockFile>,
    flat: FlatIndex,
    lattices: OnceLock<Option<Box<Lattices>>>,
    /// For each shape what its axes span, with pieces of the length that the first entry asked
    /// for.
    spans: Vec<OnceLock<Spans>>,
    /// A block did not fit its checksum, or something contradicts the document: what was looked up
    /// since is not to be believed.
    damaged: AtomicBool,
}

impl Base {
    /// A flat index that [`flat_index::decode`] found in `bytes`.
    pub fn new(bytes: Bytes, flat: FlatIndex) -> Base {
        let spans = flat.shapes.iter().map(|_| OnceLock::new()).collect();
        Base {
            bytes,
            blocks: None,
            flat,
            lattices: OnceLock::new(),
            spans,
            damaged: AtomicBool::new(false),
        }
    }

    /// One whose blocks lie in a file of `file_bytes` bytes; [`flat_index::decode_head`] found the
    /// rest in `head`.
    pub fn in_file(head: Bytes, file: ReadAt, file_bytes: u64, flat: FlatIndex) -> Base {
        let length = usize::try_from(file_bytes.saturating_sub(flat.blocks_at as u64)).unwrap_or(0);
        let blocks =
            BlockFile { file, at: flat.blocks_at as u64, length, window: Mutex::default() };
        Base { blocks: Some(blocks), ..Base::new(head, flat) }
    }

    /// Header and tables.
    pub fn flat(&self) -> &FlatIndex {
        &self.flat
    }

    /// Whether something was found that contradicts the document.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn file(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> usize {
        self.file().len() + self.blocks.as_ref().map_or(0, |blocks| blocks.length)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.file()
            .get(self.flat.entries_at..self.flat.fences_at)
            .and_then(|bytes| <[Entry]>::ref_from_bytes(bytes).ok())
            .unwrap_or_default()
    }

    pub(super) fn blocks(&self) -> BlocksView<'_> {
        match &self.blocks {
            Some(blocks) => flat_index::blocks_elsewhere(&self.flat, self.file(), blocks.length),
            None => flat_index::blocks(&self.flat, self.file()),
        }
    }

    /// Entries and extents.
    pub(super) fn len(&self) -> usize {
        self.flat.entries as usize + self.flat.extents as usize
    }

    /// No more pieces than so many have a byte in `[from, to)`.
    pub(super) fn pieces_at_most(&self, from: u64, to: u64) -> u64 {
        let mut sum = 0u64;
        walk(self.entries(), from, &mut { to }, &mut |entry: &Entry, _: &mut u64| {
            sum = sum.saturating_add(entry.pieces_at_most(from, to));
        });
        let blocks = self.blocks();
        let within = blocks.reaching(from).take_while(|i| blocks.first(*i) < to).count();
        sum.saturating_add((within * flat_index::BLOCK_EXTENTS) as u64)
    }

    /// The place in the order of all that has none of its own.
    pub(super) fn order(&self) -> Order {
        Order { stamp: self.flat.floor, set: u32::MAX }
    }

    pub(super) fn order_of(&self, entry: &Entry) -> Order {
        if entry.shape.get() == 0 { entry.order() } else { self.order() }
    }

    fn extent_order(&self, of: Option<(u64, u32)>) -> Order {
        match of {
            Some((stamp, set)) => Order {
                stamp,
                set: self.flat.covered.get(set as usize).map_or(u32::MAX, |covered| covered.set),
            },
            None => self.order(),
        }
    }

    pub(super) fn shaped<'a>(&'a self, entry: &'a Entry) -> Option<Shaped<'a>> {
        let i = (entry.shape.get() as usize).checked_sub(1)?;
        let shape = self.flat.shapes.get(i)?;
        Some(Shaped { entry, shape, file: self.file(), spans: self.spans.get(i) })
    }

    /// Whether the entry keeps the limits.
    pub fn is_sound(&self, entry: &Entry) -> bool {
        match entry.shape.get() {
            0 => entry.is_sound(),
            _ => self.shaped(entry).is_some_and(|shaped| shaped.is_sound()),
        }
    }

    /// Calls for the pieces in `[from, to)`, in no particular order.
    #[inline]
    pub(super) fn gather(
        &self,
        from: u64,
        to: u64,
        truncates: &[(Order, u64)],
        pieces: &mut Vec<Span<Place>>,
    ) {
        // What has a shape shares no byte with anything else here: if it has the whole range, that
        // is all.
        let mut whole = false;
        let segments = self.flat.segments.len();
        let mut add = |entry: &Entry, whole: &mut bool| {
            if *whole {
                return;
            }
            let order = self.order_of(entry);
            let all = to;
            let to = to.min(clip_of(truncates, order));
            match entry.shape.get() {
                0 if entry.is_sound() && (entry.segment.get() as usize) < segments => {
                    let segment = entry.segment.get();
                    entry.pieces(from, to, |start, end, shift| {
                        pieces.push(Span { order, start, end, tag: (segment, shift) })
                    });
                }
                0 => self.mark_corrupt(),
                _ => {
                    let mut add = |(start, end, segment, shift): Piece| {
                        if segment as usize >= segments {
                            self.mark_corrupt();
                        }
                        *whole |= start == from && end == all;
                        pieces.push(Span { order, start, end, tag: (segment, shift) });
                    };
                    if !self.shaped(entry).is_some_and(|shaped| shaped.pieces(from, to, &mut add)) {
                        self.mark_corrupt();
                    }
                }
            }
        };
        let entries = self.entries();
        if !entries.is_empty() {
            let sound = || {
                let sound: Vec<Entry> =
                    entries.iter().filter(|entry| self.is_sound(entry)).copied().collect();
                if sound.len() < entries.len() {
                    self.mark_corrupt();
                }
                sound
            };
            match self.lattices.get_or_init(|| {
                Lattices::if_likely(entries).then(|| Lattices::new(&sound())).flatten()
            }) {
                Some(lattices) => lattices.visit(from, to, |entry| add(entry, &mut whole)),
                None => walk(entries, from, &mut { to }, &mut |entry: &Entry, to: &mut u64| {
                    add(entry, &mut whole);
                    if whole {
                        *to = 0;
                    }
                }),
            }
        }
        if whole {
            return;
        }
        self.extents(from, to, |start, end, order, place| {
            let end = end.min(clip_of(truncates, order));
            if start < end {
                pieces.push(Span {
                    order,
                    start,
                    end,
                    tag: (place.0, place.1.wrapping_sub(start)),
                });
            }
        });
    }

    /// The row of an entry with a shape, whose pieces share no byte with anything else here.
    pub(super) fn row(
        &self,
        from: u64,
        to: u64,
        stride: u64,
        truncates: &[(Order, u64)],
    ) -> Option<Row> {
        // So many interleaved runs have no shape.
        if self.lattices.get().is_some_and(Option::is_some) {
            return None;
        }
        let mut row = None;
        walk(self.entries(), from, &mut { to }, &mut |entry: &Entry, to: &mut u64| {
            if entry.end.get() > clip_of(truncates, self.order_of(entry)) {
                return;
            }
            row = self.shaped(entry).and_then(|shaped| shaped.row(from, stride));
            if row.is_some() {
                *to = 0;
            }
        });
        row.filter(|row| {
            to <= row.piece.logical + row.piece.length
                && (row.piece.segment as usize) < self.flat.segments.len()
        })
    }

    /// Calls for the extents in `[from, to)`, clipped to it, ascending: start, end, order, segment
    /// and physical offset of the start.
    #[inline]
    fn extents(&self, from: u64, to: u64, mut f: impl FnMut(u64, u64, Order, (u32, u64))) {
        let blocks = self.blocks();
        for i in blocks.reaching(from) {
            if blocks.first(i) >= to {
                return;
            }
            let Some(held) = self.held(&blocks, i) else { continue };
            let Some(block) = self.block(&blocks, i, &held) else { continue };
            self.visit(&blocks, i, &block, from, |j, start, end| {
                if start >= to {
                    return false;
                }
                let (segment, physical) = block.place(j);
                let skipped = from.saturating_sub(start);
                // A place past the end of what a segment can be is nobody's.
                let place = if self.is_place(start, end, (segment, physical)) {
                    (segment, physical + skipped)
                } else {
                    self.no_place(start + skipped)
                };
                f(start + skipped, end.min(to), self.extent_order(block.order(j)), place);
                true
            });
        }
    }

    /// Calls for the extents of block `i` that end past `from`, ascending, until `f` returns false.
    /// Each must have a byte, and end before the next block begins.
    #[inline]
    fn visit(
        &self,
        blocks: &BlocksView<'_>,
        i: usize,
        block: &flat_index::Extents<'_>,
        from: u64,
        mut f: impl FnMut(usize, u64, u64) -> bool,
    ) {
        let most = if i + 1 < blocks.len() { blocks.first(i + 1) } else { MAX_END };
        let mut fits = true;
        let sound = block.visit(from, |j, start, end| {
            fits = end <= most;
            fits && f(j, start, end)
        });
        if !sound || !fits {
            self.mark_corrupt();
        }
    }

    /// Whether segment and physical offset can be those of an extent.
    #[inline]
    fn is_place(&self, start: u64, end: u64, (segment, physical): (u32, u64)) -> bool {
        match segment {
            HOLE => physical == start && end <= MAX_END,
            _ => {
                (segment as usize) < self.flat.segments.len() && physical <= MAX_END - (end - start)
            }
        }
    }

    /// What stands for a place that contradicts the document: nothing is believed then.
    #[cold]
    fn no_place(&self, start: u64) -> (u32, u64) {
        self.mark_corrupt();
        (HOLE, start)
    }

    /// Whether everything keeps to the document: looks at all of it.
    pub fn check(&self) -> Result<(), Bad> {
        let sets = self.flat.covered.len();
        let reaches: Vec<Option<Reach>> =
            self.flat.shapes.iter().map(|shape| Reach::of(shape, self.file())).collect();
        let entries = self.entries();
        for (i, entry) in entries.iter().enumerate() {
            let at_bytes = (self.flat.entries_at + i * size_of::<Entry>()) as u64;
            let reach = match (entry.shape.get() as usize).checked_sub(1) {
                None => Some(Reach::default()),
                Some(shape) => reaches.get(shape).copied().flatten(),
            };
            let is_there = |reach: Reach| reach.is_there(entry, self.flat.segments.len());
            if !self.is_sound(entry) || !reach.is_some_and(is_there) {
                return Err(Bad::new(
                    at_bytes,
                    "an entry of the flat index contradicts the format",
                ));
            }
            if i > 0 && entries[i - 1].first.get() > entry.first.get() {
                return Err(Bad::new(at_bytes, "the entries of the flat index are not sorted"));
            }
        }
        if tree_end(entries).is_none() {
            return Err(Bad::new(
                self.flat.entries_at as u64,
                "the entries of the flat index are no interval tree: a largest end is wrong",
            ));
        }
        let blocks = self.blocks();
        let (mut behind, mut extents) = (0, 0);
        for i in 0..blocks.len() {
            let wrong = |what| {
                Err(Bad::new((self.flat.fences_at + i * flat_index::FENCE_BYTES) as u64, what))
            };
            let at = |bad: Bad| Bad { at_bytes: self.flat.blocks_at as u64 + bad.at_bytes, ..bad };
            let held = self.hold(&blocks, i).map_err(at)?;
            let block = blocks.decode(i, held.bytes()).map_err(at)?;
            let (mut seen, mut fits) = (0, blocks.first(i) >= behind);
            block.visit(0, |j, start, end| {
                behind = end;
                seen += 1;
                fits &= self.is_place(start, end, block.place(j))
                    && block.order(j).is_none_or(|(_, set)| (set as usize) < sets);
                true
            });
            if !fits || seen != block.len() {
                return wrong("a block of the flat index contradicts the format");
            }
            extents += seen as u64;
        }
        if extents != self.flat.extents {
            return Err(Bad::new(96, "the flat index has another number of extents than it says"));
        }
        Ok(())
    }

    /// The bytes of block `i`.
    #[inline]
    fn hold(&self, blocks: &BlocksView<'_>, i: usize) -> Result<Held<'_>, Bad> {
        let place = blocks.place(i)?;
        let at_bytes = place.start as u64;
        match &self.blocks {
            Some(file) => file.read(place).ok_or(Bad::new(at_bytes, "a block cannot be read")),
            None => {
                let (from, to) =
                    (self.flat.blocks_at + place.start, self.flat.blocks_at + place.end);
                self.file()
                    .get(from..to)
                    .map(Held::Here)
                    .ok_or(Bad::new(at_bytes, "a block leaves the file"))
            }
        }
    }

    fn held(&self, blocks: &BlocksView<'_>, i: usize) -> Option<Held<'_>> {
        self.hold(blocks, i).inspect_err(|_| self.mark_corrupt()).ok()
    }

    fn block<'a>(
        &self,
        blocks: &BlocksView<'_>,
        i: usize,
        held: &'a Held<'_>,
    ) -> Option<flat_index::Extents<'a>> {
        blocks.decode(i, held.bytes()).inspect_err(|_| self.mark_corrupt()).ok()
    }

    /// Something here contradicts the document.
    #[cold]
    fn mark_corrupt(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Lowers `best` to the lowest byte at or past `from` that something here holds which is later
    /// in the order than `after`, if that is below `best`.
    pub(super) fn next_byte(
        &self,
        from: u64,
        after: Option<Order>,
        truncates: &[(Order, u64)],
        best: &mut u64,
    ) {
        walk(self.entries(), from, best, &mut |entry: &Entry, best: &mut u64| {
            if !self.is_sound(entry) {
                return self.mark_corrupt();
            }
            if Some(self.order_of(entry)) <= after {
                return;
            }
            let to = clip_of(truncates, self.order_of(entry)).min(*best);
            let byte = match entry.shape.get() {
                0 => entry.next_byte(from, to),
                _ => self.shaped(entry).and_then(|shaped| shaped.next_byte(from, to)),
            };
            if let Some(byte) = byte {
                *best = byte;
            }
        });
        let blocks = self.blocks();
        for i in blocks.reaching(from) {
            if blocks.first(i) >= *best {
                return;
            }
            let Some(held) = self.held(&blocks, i) else { continue };
            let Some(block) = self.block(&blocks, i, &held) else { continue };
            let mut found = false;
            self.visit(&blocks, i, &block, from, |j, start, end| {
                let (byte, order) = (start.max(from), self.extent_order(block.order(j)));
                found = byte >= *best
                    || Some(order) > after && byte < end.min(clip_of(truncates, order));
                if found {
                    *best = byte.min(*best);
                }
                !found
            });
            if found {
                return;
            }
        }
    }

    /// The hole that has this byte: its order and where it ends.
    pub(super) fn hole_at(&self, at: u64, truncates: &[(Order, u64)]) -> Option<(Order, u64)> {
        let (blocks, mut hole) = (self.blocks(), None);
        for i in blocks.reaching(at).take_while(|i| blocks.first(*i) <= at) {
            let Some(held) = self.held(&blocks, i) else { continue };
            let Some(block) = self.block(&blocks, i, &held) else { continue };
            self.visit(&blocks, i, &block, at, |j, start, end| {
                let order = self.extent_order(block.order(j));
                let end = end.min(clip_of(truncates, order));
                if start <= at && at < end && block.place(j).0 == HOLE {
                    hole = hole.max(Some((order, end)));
                }
                start <= at
            });
        }
        hole
    }

    /// The largest end of what is later in the order than `after`, or `best` if that is larger.
    pub(super) fn largest_end(&self, after: Option<Order>, best: &mut u64) {
        if Some(Order { stamp: self.flat.max_stamp, set: u32::MAX }) <= after {
            return;
        }
        for entry in self.entries() {
            if entry.end.get() > *best && Some(self.order_of(entry)) > after && self.is_sound(entry)
            {
                *best = entry.end.get();
            }
        }
        let blocks = self.blocks();
        for i in (0..blocks.len()).rev() {
            let Some(held) = self.held(&blocks, i) else { continue };
            let Some(block) = self.block(&blocks, i, &held) else { continue };
            let mut last = 0;
            self.visit(&blocks, i, &block, 0, |j, _, end| {
                if Some(self.extent_order(block.order(j))) > after {
                    last = end;
                }
                true
            });
            if last > 0 {
                *best = last.max(*best);
                return;
            }
        }
    }

    /// Adds the extents of block `i` to `out`, with their orders and the numbers of their sets
    /// here.
    pub(super) fn extents_of(&self, i: usize, out: &mut Vec<(Extent, Order)>) {
        let blocks = self.blocks();
        let Some(held) = self.held(&blocks, i) else { return };
        let Some(block) = self.block(&blocks, i, &held) else { return };
        self.visit(&blocks, i, &block, 0, |j, start, end| {
            let (place, of) = (block.place(j), block.order(j));
            let order = self.extent_order(of);
            let set = of.map_or(0, |of| of.1);
            let (segment, physical) =
                if self.is_place(start, end, place) { place } else { self.no_place(start) };
            out.push((
                Extent {
                    logical: start,
                    length: end - start,
                    segment,
                    set,
                    physical,
                    stamp: order.stamp,
                },
                order,
            ));
            true
        });
    }

    /// Calls for all pieces of an entry as runs, along the axis that a writer wrote in one go, or
    /// as singles if there is none. What contradicts the document is left out, and damage.
    pub(super) fn expand(&self, entry: &Entry, f: &mut impl FnMut(Run)) {
        let mut listed = |run: Run| match (run.segment as usize) < self.flat.segments.len() {
            true => f(run),
            false => self.mark_corrupt(),
        };
        let is_whole = match self.shaped(entry) {
            None if entry.is_sound() => {
                listed(entry.run());
                true
            }
            Some(shaped) if shaped.is_sound() => shaped.expand(&mut listed),
            _ => false,
        };
        if !is_whole {
            self.mark_corrupt();
        }
    }
}

/// How far the pieces of a shape lie from what its entries say: the least and the most.
#[derive(Clone, Copy, Default)]
struct Reach {
    segment: (i64, i64),
    physical: (i64, i64),
}

impl Reach {
    /// `None` if no segment reaches so far.
    fn of(shape: &Shape, file: &[u8]) -> Option<Reach> {
        let tabled = shape.axes.iter().filter(|axis| axis.tabled);
        let places = tabled.map(|axis| axis.count as usize).product();
        let ends = |step: fn(&Axis) -> i64, column: Option<Column>| {
            let (mut least, mut most) = (0i64, 0i64);
            for axis in &shape.axes {
                let reach = step(axis).checked_mul(i64::from(axis.count) - 1)?;
                (least, most) = (least.checked_add(reach.min(0))?, most.checked_add(reach.max(0))?);
            }
            if let Some(column) = column {
                let (mut low, mut high) = (i64::MAX, 0);
                for i in 0..places {
                    let value = i64::try_from(column.get(file, i)).ok()?;
                    (low, high) = (low.min(value), high.max(value));
                }
                (least, most) = (least.checked_add(low)?, most.checked_add(high)?);
            }
            Some((least, most))
        };
        Some(Reach {
            segment: ends(|axis| axis.segment, shape.table.map(|table| table.segment))?,
            physical: ends(|axis| axis.physical, shape.table.map(|table| table.physical))?,
        })
    }

    /// Whether all pieces of an entry are in one of so many segments, and not behind the end of
    /// what one can be.
    fn is_there(self, entry: &Entry, segments: usize) -> bool {
        let fits = |own: u64, (least, most): (i64, i64), limit: u64| {
            let end = |reach: i64| i128::from(own) + i128::from(reach);
            end(least) >= 0 && end(most) <= i128::from(limit)
        };
        let last = (segments as u64).checked_sub(1);
        last.is_some_and(|last| fits(entry.segment.get().into(), self.segment, last))
            && MAX_END
                .checked_sub(entry.length.get())
                .is_some_and(|limit| fits(entry.physical.get(), self.physical, limit))
    }
}

/// The bytes of a block.
enum Held<'a> {
    Here(&'a [u8]),
    Read(Arc<[u8]>, Range<usize>),
}

impl Held<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Held::Here(bytes) => bytes,
            Held::Read(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// Bytes of blocks that are read at once by who goes through them one after the other. 64 KiB: some
/// 150 blocks, 20,000 extents.
const WINDOW_BYTES: usize = 64 << 10;

/// Reads so many bytes at an offset of a file; fewer at its end, `None` if it cannot.
pub type ReadAt = Box<dyn Fn(u64, usize) -> Option<Vec<u8>> + Send + Sync>;

/// Blocks that lie in a file.
struct BlockFile {
    file: ReadAt,
    /// Where the first begins.
    at: u64,
    /// Bytes of all.
    length: usize,
    /// What was read last, and where it begins.
    window: Mutex<(usize, Arc<[u8]>)>,
}

impl BlockFile {
    /// `None` if it cannot be read, or is not there any more.
    fn read(&self, place: Range<usize>) -> Option<Held<'static>> {
        let (start, bytes) = self.window.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = start + bytes.len();
        if start <= place.start && place.end <= end {
            return Some(Held::Read(bytes, place.start - start..place.end - start));
        }
        let most = if place.start == end { place.len().max(WINDOW_BYTES) } else { place.len() };
        let fresh = (self.file)(self.at + place.start as u64, most.min(self.length - place.start))?;
        if fresh.len() < place.len() {
            return None;
        }
        let fresh: Arc<[u8]> = fresh.into();
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = (place.start, fresh.clone());
        Some(Held::Read(fresh, 0..place.len()))
    }
}
