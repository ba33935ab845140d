//! The flat index (FORMAT.md section 6): all index logs of a container merged, used where it lies.
//!
//! This module knows the header, the tables, shapes and blocks of extents. Looking things up in
//! them is the index layer's work.

use std::collections::HashMap;

use crate::bytes::{Fields, put};
use crate::column::Column;
use crate::index_log::ALIGN;
use crate::name::SegmentRef;
use crate::{Bad, MAX_OFFSET, Uuid, crc};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 128;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 72;
/// Bytes of a fence.
pub const FENCE_BYTES: usize = 16;
/// Extents in a block at most. A lookup goes through a half of them: 128 cost about 0.2 us.
pub const BLOCK_EXTENTS: usize = 128;
/// Bytes of a block at most: six columns of the widest fields.
const BLOCK_BYTES_MAX: usize = (2 + 6 * (2 + 8 + 8 * BLOCK_EXTENTS)).next_multiple_of(BLOCK_ALIGN);
/// Axes of a shape at most: three of a writer's own, three of where it lies in a row of writers,
/// and two for where its log lies.
pub const AXES_MAX: usize = 8;
/// What a flat index begins with.
pub const MAGIC: [u8; 8] = *b"PLFSFLT4";
/// The same of one that may have left its truncates out.
const MAGIC_BEFORE: [u8; 8] = *b"PLFSFLT3";
/// Log sets at most, 4 million: a column of equal numbers has no bytes for each, so what lies on
/// disk must not say how much memory they take.
pub const SETS_MAX: usize = 1 << 22;
/// Segments at most, 16 million: four for each log set.
pub const SEGMENTS_MAX: usize = 1 << 24;
/// The segment number of an extent that is a hole.
pub const HOLE: u32 = u32::MAX;
const AXIS_BYTES: usize = 32;
const TRUNCATE_BYTES: usize = 24;
const FLAG_TABLED: u32 = 1;
const FLAG_ORDERED: u8 = 1;
/// Blocks begin at multiples of this, which is the unit of a fence's offset.
const BLOCK_ALIGN: usize = 8;

/// An index log and how much of it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Log set.
    pub set: u32,
    /// Blocks from this offset on are in: 0 in a container's flat index; more in a part that was
    /// loaded past one. A multiple of 64.
    pub from: u64,
    /// Blocks below this offset are in.
    pub bytes: u64,
}

/// A segment that entries name, or that lost all its bytes to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which.
    pub at: SegmentRef,
    /// Largest physical end of a merged run in it, bytes.
    pub bytes: u64,
}

/// A truncate that late blocks must still be clipped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// Order: stamp.
    pub stamp: u64,
    /// Order: log set.
    pub set: u32,
    /// New size.
    pub size: u64,
}

/// One direction in which the pieces of an entry repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Logical distance from one to the next, bytes.
    pub stride: u64,
    /// Distance in the segment, bytes.
    pub physical: i64,
    /// Distance in the numbers of segments.
    pub segment: i64,
    /// How many, at least 2.
    pub count: u32,
    /// Whether a table says where the pieces lie that differ in this direction.
    pub tabled: bool,
}

/// How the pieces of an entry lie: along up to eight axes, the longest stride first. Each stride is
/// at least what the axes behind it span, so pieces never overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The axes; at least one.
    pub axes: Vec<Axis>,
    /// Segment and physical offset to add, by the place in the tabled axes (the last of them
    /// counts fastest).
    pub table: Option<Table>,
}

/// Two columns that lie in the flat index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Numbers of segments.
    pub segment: Column,
    /// Physical offsets.
    pub physical: Column,
}

/// A shape to be written: axes, and segments and physical offsets for the table if an axis is
/// tabled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NewShape {
    /// As in [`Shape`].
    pub axes: Vec<Axis>,
    /// Numbers of segments, as many as the tabled axes have places.
    pub segments: Vec<u64>,
    /// Physical offsets, as many.
    pub physicals: Vec<u64>,
}

/// One piece in a block: disjoint from all others there, ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Logical offset, bytes.
    pub logical: u64,
    /// Bytes, at least 1.
    pub length: u64,
    /// Index into the table of segments, or [`HOLE`].
    pub segment: u32,
    /// Index into the table of sets: who wrote it. 0 in blocks without orders.
    pub set: u32,
    /// Offset in the segment, bytes; of a hole its logical offset.
    pub physical: u64,
    /// Order: stamp. 0 in blocks without orders.
    pub stamp: u64,
}

/// Everything in a flat index but its entries and blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlatIndex {
    /// Container.
    pub uuid: Uuid,
    /// Size of the logical file when it was made.
    pub size: u64,
    /// Records merged, of all kinds.
    pub records: u64,
    /// Largest stamp merged.
    pub max_stamp: u64,
    /// Orders up to this stamp were left out: it counts only while all records that it does not
    /// have are younger. 0: none was left out.
    pub floor: u64,
    /// What is merged. A log with nothing merged is there for its segments.
    pub covered: Vec<Covered>,
    /// What entries' segment numbers mean.
    pub segments: Vec<Segment>,
    /// Truncates in order.
    pub truncates: Vec<Truncate>,
    /// The file may have been cut, and no truncate is listed: so builds of before made it.
    pub may_lack_cut: bool,
    /// Shapes; an entry names one by its index plus 1.
    pub shapes: Vec<Shape>,
    /// Number of entries.
    pub entries: u64,
    /// Offset of the first entry in the file.
    pub entries_at: usize,
    /// Extents in the blocks.
    pub extents: u64,
    /// Number of blocks, each with a fence.
    pub blocks: usize,
    /// Offset of the first fence in the file.
    pub fences_at: usize,
    /// Offset of the first block in the file.
    pub blocks_at: usize,
    /// A checksum of everything in it, by which a summary names it: bytes 8 to 11 of the file.
    pub id: u32,
}

/// Blocks of extents with their fences, as they grow.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// First logical byte, offset in `bytes` in units of 8, CRC of each block.
    fences: Vec<u8>,
    /// The blocks.
    bytes: Vec<u8>,
    /// Extents in them.
    extents: u64,
}

impl Blocks {
    /// Appends a block of 1 to [`BLOCK_EXTENTS`] extents, ascending and behind those that are
    /// there, with their orders or without. Errors past 32 GiB of blocks.
    pub fn push(&mut self, extents: &[Extent], ordered: bool) -> Result<(), Bad> {
        debug_assert!((1..=BLOCK_EXTENTS).contains(&extents.len()));
        let at = self.bytes.len();
        let Ok(offset) = u32::try_from(at / BLOCK_ALIGN) else {
            return Err(Bad::new(at as u64, "the blocks are too long"));
        };
        let first = extents[0].logical;
        let mut column = [0; BLOCK_EXTENTS];
        let mut put_column = |out: &mut Vec<u8>, value: &dyn Fn(usize) -> u64| {
            for (i, of) in column[..extents.len()].iter_mut().enumerate() {
                *of = value(i);
            }
            Column::write(&column[..extents.len()], out);
        };
        let out = &mut self.bytes;
        out.push((extents.len() - 1) as u8);
        out.push(if ordered { FLAG_ORDERED } else { 0 });
        put_column(out, &|i| {
            if i == 0 {
                0
            } else {
                extents[i].logical - extents[i - 1].logical - extents[i - 1].length
            }
        });
        put_column(out, &|i| extents[i].length);
        put_column(out, &|i| extents[i].segment.into());
        put_column(out, &|i| extents[i].physical);
        if ordered {
            put_column(out, &|i| extents[i].stamp);
            put_column(out, &|i| extents[i].set.into());
        }
        out.resize(out.len().next_multiple_of(BLOCK_ALIGN), 0);
        let sum = crc(&out[at..]);
        self.fences.extend_from_slice(&first.to_le_bytes());
        self.fences.extend_from_slice(&offset.to_le_bytes());
        self.fences.extend_from_slice(&sum.to_le_bytes());
        self.extents += extents.len() as u64;
        Ok(())
    }

    /// Bytes that they occupy.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.fences.len()
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.fences.len() / FENCE_BYTES
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    /// Number of extents.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// To look at.
    pub fn view(&self) -> BlocksView<'_> {
        BlocksView { fences: &self.fences, bytes: &self.bytes, length: self.bytes.len() }
    }
}

/// Blocks where they lie. They may say anything.
#[derive(Clone, Copy, Debug)]
pub struct BlocksView<'a> {
    fences: &'a [u8],
    /// The blocks, or nothing if they lie elsewhere.
    bytes: &'a [u8],
    /// Bytes of all blocks.
    length: usize,
}

impl<'a> BlocksView<'a> {
    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.fences.len() / FENCE_BYTES
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    /// First logical byte of block `i`.
    #[inline]
    pub fn first(&self, i: usize) -> u64 {
        Fields(self.fences).u64(i * FENCE_BYTES)
    }

    /// Number of blocks that begin before `logical`.
    #[inline]
    pub fn before(&self, logical: u64) -> usize {
        let (mut low, mut len) = (0, self.len());
        while len > 0 {
            let half = len / 2;
            let is_before = self.first(low + half) < logical;
            low = if is_before { low + half + 1 } else { low };
            len = if is_before { len - half - 1 } else { half };
        }
        low
    }

    /// The blocks that may have bytes from `logical` on: the last that begins at or before it may
    /// reach there.
    #[inline]
    pub fn reaching(&self, logical: u64) -> std::ops::Range<usize> {
        self.before(logical.saturating_add(1)).saturating_sub(1)..self.len()
    }

    /// Block `i`, checked.
    #[inline]
    pub fn block(&self, i: usize) -> Result<Extents<'a>, Bad> {
        let place = self.place(i)?;
        match self.bytes.get(place.clone()) {
            Some(bytes) => self.decode(i, bytes),
            None => Err(Bad::new(place.start as u64, "a block leaves the file")),
        }
    }

    /// Where block `i` lies, counted from the first block.
    #[inline]
    pub fn place(&self, i: usize) -> Result<std::ops::Range<usize>, Bad> {
        let start = |i: usize| {
            self.fences
                .get(i * FENCE_BYTES..(i + 1) * FENCE_BYTES)
                .map(|fence| Fields(fence).u32(8) as usize * BLOCK_ALIGN)
        };
        let (from, to) = (start(i).unwrap_or(self.length), start(i + 1).unwrap_or(self.length));
        match from < to && to <= self.length && to - from <= BLOCK_BYTES_MAX {
            true => Ok(from..to),
            false => Err(Bad::new(from as u64, "a block leaves the file")),
        }
    }

    /// Block `i`, whose bytes are `bytes`, checked.
    #[inline]
    pub fn decode<'b>(&self, i: usize, bytes: &'b [u8]) -> Result<Extents<'b>, Bad> {
        let fence = Fields(&self.fences[i * FENCE_BYTES..][..FENCE_BYTES]);
        let at = fence.u32(8) as u64 * BLOCK_ALIGN as u64;
        if crc(bytes) != fence.u32(12) {
            return Err(Bad::new(at, "a block's checksum does not match"));
        }
        Extents::decode(fence.u64(0), bytes)
            .map_err(|bad| Bad { at_bytes: at + bad.at_bytes, ..bad })
    }
}

/// The extents of one block.
#[derive(Clone, Copy, Debug)]
pub struct Extents<'a> {
    bytes: &'a [u8],
    first: u64,
    count: usize,
    gap: Column,
    length: Column,
    segment: Column,
    physical: Column,
    order: Option<(Column, Column)>,
}

impl<'a> Extents<'a> {
    fn decode(first: u64, bytes: &'a [u8]) -> Result<Extents<'a>, Bad> {
        let (Some(count), Some(flags)) = (bytes.first(), bytes.get(1)) else {
            return Err(Bad::new(0, "a block has no header"));
        };
        let count = usize::from(*count) + 1;
        if count > BLOCK_EXTENTS || *flags & !FLAG_ORDERED != 0 {
            return Err(Bad::new(
                0,
                "a block has too many extents or a flag that this version does not know",
            ));
        }
        let mut used = 2;
        let mut next = || Column::read(bytes, &mut used, count);
        let (gap, length, segment, physical) = (next()?, next()?, next()?, next()?);
        let order = if *flags & FLAG_ORDERED != 0 { Some((next()?, next()?)) } else { None };
        if gap.get(bytes, 0) != 0 {
            return Err(Bad::new(2, "a block does not begin at its fence"));
        }
        if used.next_multiple_of(BLOCK_ALIGN) != bytes.len() {
            return Err(Bad::new(used as u64, "a block is longer than what it says"));
        }
        Ok(Extents { bytes, first, count, gap, length, segment, physical, order })
    }

    /// Number of extents.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether they have orders.
    pub fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// Calls `f(i, start, end)` for the extents that end past `from`, ascending, until it returns
    /// false. False if an extent has no byte or leaves the file's range: then nothing behind it can
    /// be told.
    #[inline]
    pub fn visit(&self, from: u64, mut f: impl FnMut(usize, u64, u64) -> bool) -> bool {
        let mut at = self.first;
        for i in 0..self.count {
            let start = at.wrapping_add(self.gap.get(self.bytes, i));
            let end = start.wrapping_add(self.length.get(self.bytes, i));
            if start < at || end <= start || end > MAX_OFFSET {
                return false;
            }
            if end > from && !f(i, start, end) {
                return true;
            }
            at = end;
        }
        true
    }

    /// Segment number and physical offset of extent `i`.
    #[inline]
    pub fn place(&self, i: usize) -> (u32, u64) {
        (self.segment.get(self.bytes, i) as u32, self.physical.get(self.bytes, i))
    }

    /// Stamp and number of the set of extent `i`, if the block has orders.
    #[inline]
    pub fn order(&self, i: usize) -> Option<(u64, u32)> {
        self.order.map(|(stamp, set)| (stamp.get(self.bytes, i), set.get(self.bytes, i) as u32))
    }

    /// All extents that keep the limits.
    pub fn collect_into(&self, out: &mut Vec<Extent>) {
        self.visit(0, |i, start, end| {
            let ((segment, physical), (stamp, set)) =
                (self.place(i), self.order(i).unwrap_or_default());
            out.push(Extent { logical: start, length: end - start, segment, set, physical, stamp });
            true
        });
    }
}

/// Encodes a whole flat index file around entries that are already in their stored form
/// (`entries.len()` is a multiple of [`ENTRY_BYTES`]). What is found by decoding (`shapes`, counts,
/// offsets, `id`) is ignored in `flat`. Every segment is of a set in `covered`; it is shorter if
/// those of a set follow each other.
pub fn encode(flat: &FlatIndex, shapes: &[NewShape], entries: &[u8], blocks: &Blocks) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    let column = |out: &mut Vec<u8>, values: &mut dyn Iterator<Item = u64>| {
        Column::write(&values.collect::<Vec<_>>(), out)
    };
    // Segments of one set that follow each other are one owner.
    let places: HashMap<u32, u64> =
        flat.covered.iter().enumerate().map(|(i, covered)| (covered.set, i as u64)).collect();
    let owners: Vec<(u64, u64)> = flat
        .segments
        .chunk_by(|a, b| a.at.set == b.at.set)
        .map(|of_set| {
            (
                places.get(&of_set[0].at.set).copied().unwrap_or(u64::from(u32::MAX)),
                of_set.len() as u64,
            )
        })
        .collect();
    column(&mut out, &mut flat.covered.iter().map(|covered| covered.set.into()));
    column(&mut out, &mut flat.covered.iter().map(|covered| covered.from / ALIGN));
    column(&mut out, &mut flat.covered.iter().map(|covered| covered.bytes));
    column(&mut out, &mut owners.iter().map(|owner| owner.0));
    column(&mut out, &mut owners.iter().map(|owner| owner.1));
    column(&mut out, &mut flat.segments.iter().map(|segment| segment.at.stream.into()));
    column(&mut out, &mut flat.segments.iter().map(|segment| segment.at.backend.into()));
    column(&mut out, &mut flat.segments.iter().map(|segment| segment.at.segment.into()));
    column(&mut out, &mut flat.segments.iter().map(|segment| segment.bytes));
    for cut in &flat.truncates {
        out.extend_from_slice(&cut.stamp.to_le_bytes());
        out.extend_from_slice(&cut.set.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&cut.size.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let tables = out.len() - HEADER_BYTES;
    for shape in shapes {
        let at = out.len();
        out.extend_from_slice(&(shape.axes.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for axis in &shape.axes {
            out.extend_from_slice(&axis.stride.to_le_bytes());
            out.extend_from_slice(&axis.physical.to_le_bytes());
            out.extend_from_slice(&axis.segment.to_le_bytes());
            out.extend_from_slice(&axis.count.to_le_bytes());
            out.extend_from_slice(&(if axis.tabled { FLAG_TABLED } else { 0 }).to_le_bytes());
        }
        if shape.axes.iter().any(|axis| axis.tabled) {
            Column::write(&shape.segments, &mut out);
            Column::write(&shape.physicals, &mut out);
        }
        out.resize(out.len().next_multiple_of(8), 0);
        let bytes = (out.len() - at) as u32;
        put(&mut out, at + 4, &bytes.to_le_bytes());
    }
    let shape_bytes = out.len() - HEADER_BYTES - tables;
    out.extend_from_slice(entries);
    out.extend_from_slice(&blocks.fences);
    let sum = crc(&out[HEADER_BYTES..]);
    put(&mut out, 0, if flat.may_lack_cut { &MAGIC_BEFORE } else { &MAGIC });
    put(&mut out, 12, &sum.to_le_bytes());
    put(&mut out, 16, &flat.uuid.0);
    put(&mut out, 32, &flat.size.to_le_bytes());
    put(&mut out, 40, &flat.records.to_le_bytes());
    put(&mut out, 48, &flat.max_stamp.to_le_bytes());
    put(&mut out, 56, &(flat.covered.len() as u32).to_le_bytes());
    put(&mut out, 60, &(flat.segments.len() as u32).to_le_bytes());
    put(&mut out, 64, &(flat.truncates.len() as u32).to_le_bytes());
    put(&mut out, 68, &(shapes.len() as u32).to_le_bytes());
    put(&mut out, 72, &((entries.len() / ENTRY_BYTES) as u64).to_le_bytes());
    put(&mut out, 80, &(shape_bytes as u64).to_le_bytes());
    put(&mut out, 88, &(blocks.len() as u32).to_le_bytes());
    put(&mut out, 92, &(owners.len() as u32).to_le_bytes());
    put(&mut out, 96, &blocks.extents.to_le_bytes());
    put(&mut out, 104, &(blocks.bytes.len() as u64).to_le_bytes());
    put(&mut out, 112, &(tables as u64).to_le_bytes());
    put(&mut out, 120, &flat.floor.to_le_bytes());
    let sum = crc(&out[12..HEADER_BYTES]);
    put(&mut out, 8, &sum.to_le_bytes());
    out.extend_from_slice(&blocks.bytes);
    out
}

/// The [`FlatIndex::id`] of an encoded flat index of at least [`HEADER_BYTES`].
pub fn id(file: &[u8]) -> u32 {
    Fields(file).u32(8)
}

/// Decodes header, tables and shapes, and verifies the checksums of all but the blocks; entries and
/// blocks stay where they are. Each entry is checked against its invariants, and each block against
/// its checksum, by who uses it.
pub fn decode(file: &[u8], uuid: &Uuid) -> Result<FlatIndex, Bad> {
    decode_head(file, file.len() as u64, uuid)
}

/// Checks that a header of this version stands here, for this container, and its checksum.
pub fn check_header(file: &[u8], uuid: &Uuid) -> Result<(), Bad> {
    let bad = |at_bytes, what| Err(Bad::new(at_bytes, what));
    if file.len() < HEADER_BYTES || (file[..8] != MAGIC && file[..8] != MAGIC_BEFORE) {
        return bad(0, "not a flat index of this version");
    }
    if Fields(file).u32(8) != crc(&file[12..HEADER_BYTES]) {
        return bad(8, "the header's checksum does not match");
    }
    match file[16..32] == uuid.0 {
        true => Ok(()),
        false => bad(16, "the flat index is of another container"),
    }
}

/// Bytes of all but the blocks, as the header says, which is not checked here. `None` if they are
/// more than a file can have, or this is no header.
pub fn head_bytes(header: &[u8]) -> Option<u64> {
    if header.len() < HEADER_BYTES {
        return None;
    }
    let fields = Fields(header);
    let lengths = [
        fields.u64(112),
        fields.u64(80),
        fields.u64(72).checked_mul(ENTRY_BYTES as u64)?,
        u64::from(fields.u32(88)) * FENCE_BYTES as u64,
    ];
    lengths
        .iter()
        .try_fold(HEADER_BYTES as u64, |sum, length| sum.checked_add(*length))
        .filter(|sum| *sum <= MAX_OFFSET)
}

/// [`decode`] of a file of `file_bytes` bytes of which `file` has [`head_bytes`] at least, perhaps
/// not the blocks.
pub fn decode_head(file: &[u8], file_bytes: u64, uuid: &Uuid) -> Result<FlatIndex, Bad> {
    let bad = |at: usize, what| Err(Bad::new(at as u64, what));
    check_header(file, uuid)?;
    let fields = Fields(file);
    let (covered, segments, truncates, shapes) =
        (fields.u32(56) as usize, fields.u32(60) as usize, fields.u32(64) as usize, fields.u32(68));
    let (entries, blocks) = (fields.u64(72), fields.u32(88) as usize);
    // Each is in the file, so that a sum of all lengths cannot overflow.
    let lengths = [
        fields.u64(112),
        fields.u64(80),
        entries.saturating_mul(ENTRY_BYTES as u64),
        (blocks * FENCE_BYTES) as u64,
        fields.u64(104),
    ];
    let mut ends = [HEADER_BYTES; 6];
    for (i, length) in lengths.iter().enumerate() {
        match usize::try_from(*length)
            .ok()
            .and_then(|length| ends[i].checked_add(length))
            .filter(|end| *end as u64 <= file_bytes)
        {
            Some(end) => ends[i + 1] = end,
            None => return bad(72, "the file's length does not match its header"),
        }
    }
    let [_, tables_end, entries_at, fences_at, blocks_at, end] = ends;
    if end as u64 != file_bytes || blocks_at > file.len() {
        return bad(72, "the file's length does not match its header");
    }
    if fields.u32(12) != crc(&file[HEADER_BYTES..blocks_at]) {
        return bad(12, "the checksum of the tables and entries does not match");
    }
    if fields.u64(32) > MAX_OFFSET {
        return bad(32, "the size is out of range");
    }
    if fields.u64(96) > (blocks * BLOCK_EXTENTS) as u64 {
        return bad(96, "more extents than the blocks can hold");
    }
    if fields.u64(96) < blocks as u64 {
        return bad(96, "fewer extents than blocks, each of which has one");
    }
    let mut flat = FlatIndex {
        uuid: *uuid,
        size: fields.u64(32),
        records: fields.u64(40),
        max_stamp: fields.u64(48),
        floor: fields.u64(120),
        covered: Vec::new(),
        segments: Vec::new(),
        truncates: Vec::new(),
        may_lack_cut: file[..8] == MAGIC_BEFORE,
        shapes: Vec::new(),
        entries,
        entries_at,
        extents: fields.u64(96),
        blocks,
        fences_at,
        blocks_at,
        id: id(file),
    };
    if shapes > 0 && flat.floor == 0 {
        return bad(120, "shapes without a floor");
    }
    let fences = &file[fences_at..blocks_at];
    let fence =
        |i: usize| (Fields(fences).u64(i * FENCE_BYTES), Fields(fences).u32(i * FENCE_BYTES + 8));
    if (1..blocks).any(|i| fence(i - 1).0 >= fence(i).0 || fence(i - 1).1 >= fence(i).1)
        || (blocks > 0 && fence(0).1 != 0)
    {
        return bad(fences_at, "the fences do not ascend");
    }
    let mut at = HEADER_BYTES;
    let tables = &file[..tables_end];
    // Logs differ in something: one bit each at least.
    let owners = fields.u32(92) as usize;
    let most = 8 * (tables_end - HEADER_BYTES);
    if covered > most.min(SETS_MAX) || segments > most.min(SEGMENTS_MAX) || owners > segments {
        return bad(56, "more logs than the tables can hold");
    }
    let mut next = |count| Column::read(tables, &mut at, count);
    let (sets, froms, bytes, owner_sets, owner_counts) =
        (next(covered)?, next(covered)?, next(covered)?, next(owners)?, next(owners)?);
    let (streams, backends, numbers, ends) =
        (next(segments)?, next(segments)?, next(segments)?, next(segments)?);
    for i in 0..covered {
        let Some(from) = froms.get(tables, i).checked_mul(ALIGN) else {
            return bad(HEADER_BYTES, "a length in the tables is out of range");
        };
        flat.covered.push(Covered {
            set: sets.get(tables, i) as u32,
            from,
            bytes: bytes.get(tables, i),
        });
    }
    for i in 0..owners {
        let (of, count) = (owner_sets.get(tables, i), owner_counts.get(tables, i));
        let Some(set) =
            usize::try_from(of).ok().and_then(|of| flat.covered.get(of)).map(|covered| covered.set)
        else {
            return bad(HEADER_BYTES, "segments belong to a set that is not listed");
        };
        let first = flat.segments.len();
        if count > (segments - first) as u64 {
            return bad(HEADER_BYTES, "the sets have more segments than there are");
        }
        for j in first..first + count as usize {
            let named = (
                u8::try_from(streams.get(tables, j)),
                u32::try_from(numbers.get(tables, j)),
                u16::try_from(backends.get(tables, j)),
            );
            let (Ok(stream), Ok(segment), Ok(backend)) = named else {
                return bad(HEADER_BYTES, "a segment has no name");
            };
            flat.segments.push(Segment {
                at: SegmentRef { set, stream: stream.into(), segment, backend },
                bytes: ends.get(tables, j),
            });
        }
    }
    if flat.segments.len() != segments {
        return bad(HEADER_BYTES, "a segment belongs to no set");
    }
    for _ in 0..truncates {
        let Some(cut) = tables.get(at..at + TRUNCATE_BYTES).map(Fields) else {
            return bad(at, "the tables end inside a truncate");
        };
        flat.truncates.push(Truncate { stamp: cut.u64(0), set: cut.u32(8), size: cut.u64(16) });
        at += TRUNCATE_BYTES;
    }
    if at.next_multiple_of(8) != tables_end {
        return bad(at, "the tables are longer than what they say");
    }
    let lengths = flat
        .covered
        .iter()
        .flat_map(|covered| [covered.bytes, covered.from])
        .chain(flat.segments.iter().map(|segment| segment.bytes));
    if lengths.chain(flat.truncates.iter().map(|cut| cut.size)).any(|bytes| bytes > MAX_OFFSET) {
        return bad(HEADER_BYTES, "a length in the tables is out of range");
    }
    let mut at = tables_end;
    for _ in 0..shapes {
        let (shape, next) = decode_shape(&file[..entries_at], at)?;
        flat.shapes.push(shape);
        at = next;
    }
    if at != entries_at {
        return bad(at, "the shapes are longer than what they say");
    }
    Ok(flat)
}

fn decode_shape(bytes: &[u8], start: usize) -> Result<(Shape, usize), Bad> {
    let bad = |what| Err(Bad::new(start as u64, what));
    let Some(header) = bytes.get(start..start + 8).map(Fields) else {
        return bad("the shapes end inside one");
    };
    let (axes, length) = (header.u32(0) as usize, header.u32(4) as usize);
    let Some(end) = start.checked_add(length).filter(|end| *end <= bytes.len() && length % 8 == 0)
    else {
        return bad("a shape leaves its section");
    };
    if !(1..=AXES_MAX).contains(&axes) || length < 8 + axes * AXIS_BYTES {
        return bad("a shape has no axis, or more than there can be");
    }
    let bytes = &bytes[..end];
    let mut shape = Shape::default();
    let mut places = 1usize;
    for i in 0..axes {
        let fields = Fields(&bytes[start + 8 + i * AXIS_BYTES..][..AXIS_BYTES]);
        let axis = Axis {
            stride: fields.u64(0),
            physical: fields.i64(8),
            segment: fields.i64(16),
            count: fields.u32(24),
            tabled: fields.u32(28) & FLAG_TABLED != 0,
        };
        if axis.count < 2 || axis.stride == 0 || axis.stride > MAX_OFFSET {
            return bad("an axis has no extent");
        }
        if axis.tabled {
            places = places.saturating_mul(axis.count as usize);
        }
        shape.axes.push(axis);
    }
    // Places differ in something, too.
    if places > 8 * length {
        return bad("a shape has more places than its table");
    }
    let mut at = start + 8 + axes * AXIS_BYTES;
    if shape.axes.iter().any(|axis| axis.tabled) {
        shape.table = Some(Table {
            segment: Column::read(bytes, &mut at, places)?,
            physical: Column::read(bytes, &mut at, places)?,
        });
    }
    if at.next_multiple_of(8) != end {
        return bad("a shape is longer than what it says");
    }
    Ok((shape, end))
}

/// The fences and blocks of a decoded flat index.
pub fn blocks<'a>(flat: &FlatIndex, file: &'a [u8]) -> BlocksView<'a> {
    // Bytes that shrink while they are used have no blocks.
    let part = |from: usize, to: usize| file.get(from..to).unwrap_or_default();
    let fences = part(flat.fences_at, flat.blocks_at);
    let bytes = if fences.is_empty() { &[] } else { part(flat.blocks_at, file.len()) };
    BlocksView { fences, bytes, length: bytes.len() }
}

/// [`blocks`] of a flat index of which only the head is at hand; the blocks have `length` bytes.
pub fn blocks_elsewhere<'a>(flat: &FlatIndex, head: &'a [u8], length: usize) -> BlocksView<'a> {
    BlocksView {
        fences: head.get(flat.fences_at..flat.blocks_at).unwrap_or_default(),
        bytes: &[],
        length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (FlatIndex, Vec<NewShape>, Blocks) {
        let uuid = Uuid([1; 16]);
        let segment = |set, stream| Segment {
            at: SegmentRef { set, stream, segment: 3, backend: 0 },
            bytes: 8 + u64::from(stream),
        };
        let flat = FlatIndex {
            uuid,
            size: 10,
            records: 20,
            max_stamp: 30,
            floor: 25,
            covered: vec![
                Covered { set: 9, from: 128, bytes: 256 },
                Covered { set: 1, from: 0, bytes: 0 },
            ],
            segments: vec![segment(9, 2), segment(9, 0), segment(1, 1), segment(9, 1)],
            truncates: vec![Truncate { stamp: 4, set: 5, size: 7 }],
            may_lack_cut: false,
            shapes: Vec::new(),
            entries: 1,
            entries_at: 0,
            extents: 0,
            blocks: 0,
            fences_at: 0,
            blocks_at: 0,
            id: 0,
        };
        let axis = |stride, count, tabled| Axis { stride, physical: -4, segment: 1, count, tabled };
        let shapes = vec![
            NewShape { axes: vec![axis(100, 3, false), axis(10, 2, false)], ..NewShape::default() },
            NewShape {
                axes: vec![axis(100, 3, true), axis(10, 2, true)],
                segments: vec![1, 0, 2, 2, 1, 1],
                physicals: (0..6).map(|i| i * 4096).collect(),
            },
        ];
        let mut blocks = Blocks::default();
        let extent = |i: u64| Extent {
            logical: i * 10,
            length: 1 + i % 7,
            segment: (i % 3) as u32,
            set: (i % 2) as u32,
            physical: i * 8,
            stamp: 1000 - i,
        };
        blocks.push(&(0..128).map(extent).collect::<Vec<_>>(), true).unwrap();
        blocks.push(&(128..130).map(extent).collect::<Vec<_>>(), false).unwrap();
        (flat, shapes, blocks)
    }

    #[test]
    fn round_trip_and_damage() {
        let (flat, shapes, new) = sample();
        let file = encode(&flat, &shapes, &[0x55; ENTRY_BYTES], &new);
        let found = decode(&file, &flat.uuid).unwrap();
        assert_eq!(
            (
                found.size,
                found.records,
                found.max_stamp,
                found.floor,
                found.entries,
                found.extents,
                found.blocks
            ),
            (10, 20, 30, 25, 1, 130, 2)
        );
        assert_eq!(
            (&found.covered, &found.segments, &found.truncates),
            (&flat.covered, &flat.segments, &flat.truncates)
        );
        assert!(!found.may_lack_cut);
        let before = FlatIndex { may_lack_cut: true, ..flat.clone() };
        let before = encode(&before, &shapes, &[0x55; ENTRY_BYTES], &new);
        assert!(decode(&before, &flat.uuid).unwrap().may_lack_cut);
        assert_eq!(file[found.entries_at..found.fences_at], [0x55; ENTRY_BYTES]);
        for (shape, new) in found.shapes.iter().zip(&shapes) {
            assert_eq!(shape.axes, new.axes);
            if let Some(table) = shape.table {
                assert_eq!(
                    (0..6).map(|i| table.segment.get(&file, i)).collect::<Vec<_>>(),
                    new.segments
                );
                assert_eq!(
                    (0..6).map(|i| table.physical.get(&file, i)).collect::<Vec<_>>(),
                    new.physicals
                );
            }
        }
        let view = blocks(&found, &file);
        let mut extents = Vec::new();
        (0..view.len()).for_each(|i| view.block(i).unwrap().collect_into(&mut extents));
        assert_eq!(extents.len(), 130);
        assert_eq!(
            (extents[127].logical, extents[127].stamp, extents[128].stamp, extents[129].physical),
            (1270, 873, 0, 1032)
        );
        assert_eq!(
            (
                view.before(0),
                view.before(1),
                view.before(1280),
                view.before(1281),
                view.before(u64::MAX)
            ),
            (0, 1, 1, 2, 2)
        );

        assert!(decode(&file, &Uuid([2; 16])).is_err());
        for bit in 0..file.len() * 8 {
            let mut hurt = file.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            let whole = decode(&hurt, &flat.uuid)
                .is_ok_and(|flat| (0..2).all(|i| blocks(&flat, &hurt).block(i).is_ok()));
            assert!(!whole, "bit {bit}");
        }
        for len in 0..file.len() {
            assert!(decode(&file[..len], &flat.uuid).is_err());
        }
    }

    /// Lengths past 2^63-1 overflowed where they were rounded up or added.
    #[test]
    fn lengths_out_of_range_are_refused() {
        let (flat, ..) = sample();
        let with = |covered, segment, cut| {
            let mut flat = flat.clone();
            (flat.covered[0].bytes, flat.segments[0].bytes, flat.truncates[0].size) =
                (covered, segment, cut);
            decode(&encode(&flat, &[], &[], &Blocks::default()), &flat.uuid)
                .map(drop)
                .map_err(|bad| bad.what)
        };
        assert_eq!(with(MAX_OFFSET, MAX_OFFSET, MAX_OFFSET), Ok(()));
        for lengths in [(MAX_OFFSET + 1, 0, 0), (0, u64::MAX, 0), (0, 0, MAX_OFFSET + 1)] {
            assert_eq!(
                with(lengths.0, lengths.1, lengths.2),
                Err("a length in the tables is out of range")
            );
        }
    }

    /// A header that said so had its blocks passed over, and what they have read as zeros.
    #[test]
    fn blocks_without_extents_are_refused() {
        let (flat, shapes, new) = sample();
        let file = encode(&flat, &shapes, &[0x55; ENTRY_BYTES], &new);
        for (extents, is_right) in [(130u64, true), (2, true), (1, false), (0, false), (257, false)]
        {
            let mut hurt = file.clone();
            put(&mut hurt, 96, &extents.to_le_bytes());
            let sum = crc(&hurt[12..HEADER_BYTES]);
            put(&mut hurt, 8, &sum.to_le_bytes());
            let found = decode(&hurt, &flat.uuid).map(drop).map_err(|bad| bad.at_bytes);
            assert_eq!(found, if is_right { Ok(()) } else { Err(96) }, "{extents}");
        }
    }

    /// Whoever can make a right checksum can say anything: every byte is changed, and the sums put
    /// right again.
    #[test]
    fn hostile_bytes_with_right_checksums_do_not_panic() {
        let (flat, shapes, new) = sample();
        let file = encode(&flat, &shapes, &[0x55; ENTRY_BYTES], &new);
        let found = decode(&file, &flat.uuid).unwrap();
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut hurt = file.clone();
                hurt[at] = value;
                for i in 0..found.blocks {
                    let fence = found.fences_at + i * FENCE_BYTES;
                    let from = found.blocks_at + Fields(&file).u32(fence + 8) as usize * 8;
                    let to = if i + 1 < found.blocks {
                        found.blocks_at + Fields(&file).u32(fence + FENCE_BYTES + 8) as usize * 8
                    } else {
                        file.len()
                    };
                    let sum = crc(&hurt[from..to]);
                    put(&mut hurt, fence + 12, &sum.to_le_bytes());
                }
                let sum = crc(&hurt[HEADER_BYTES..found.blocks_at]);
                put(&mut hurt, 12, &sum.to_le_bytes());
                let sum = crc(&hurt[12..HEADER_BYTES]);
                put(&mut hurt, 8, &sum.to_le_bytes());
                if let Ok(flat) = decode(&hurt, &flat.uuid) {
                    let view = blocks(&flat, &hurt);
                    let mut extents = Vec::new();
                    view.before(77);
                    (0..view.len())
                        .filter_map(|i| view.block(i).ok())
                        .for_each(|block| block.collect_into(&mut extents));
                    assert!(
                        extents.iter().all(|extent| extent.length > 0
                            && extent.logical + extent.length <= MAX_OFFSET)
                    );
                    for table in flat.shapes.iter().filter_map(|shape| shape.table) {
                        let _ = (table.segment.get(&hurt, 5), table.physical.get(&hurt, 5));
                    }
                }
            }
        }
    }
}
