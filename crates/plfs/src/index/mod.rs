//! L2: where every logical byte lives. Pure: no I/O, no clock, no paths.
//!
//! [`Folder`] turns a stream of writes into few [`Run`]s as they happen; [`ExtentMap`] holds runs of all writers and answers lookups exactly, newest write first,
//! without expanding a run; `load` (the only part that does I/O) fills one from index logs, `flatten` makes a flat index of it.

mod extent_map;
mod pattern;

pub use extent_map::{ExtentMap, Found};
pub use pattern::Folder;

/// A place in the total order of all records of a file: larger wins (FORMAT.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Stamp of the block.
    pub hlc: u64,
    /// Log set that wrote it.
    pub set: u32,
    /// Position of the record in its block.
    pub seq: u32,
}

/// `count` pieces of `length` bytes: piece i covers logical bytes `[logical + i*stride, … + length)` and lies at `physical + i*length` of segment `segment`.
///
/// Invariants: `count >= 1`, `length >= 1`, `stride == 0` iff `count == 1`, `|stride| >= length` otherwise; all ends fit in 2^63-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Logical offset of piece 0, bytes.
    pub logical: u64,
    /// Bytes in a piece.
    pub length: u64,
    /// Logical distance from a piece to the next, bytes; negative for a program that writes backwards.
    pub stride: i64,
    /// Number of pieces.
    pub count: u32,
    /// Index into the owner's table of segments.
    pub segment: u32,
    /// Offset of piece 0 in the segment, bytes.
    pub physical: u64,
}

impl Run {
    /// One piece.
    pub fn single(logical: u64, length: u64, segment: u32, physical: u64) -> Run {
        Run { logical, length, stride: 0, count: 1, segment, physical }
    }

    /// Lowest logical byte.
    pub fn first(&self) -> u64 {
        if self.stride >= 0 { self.logical } else { self.logical - (self.count as u64 - 1) * self.stride.unsigned_abs() }
    }

    /// One past the highest logical byte.
    pub fn end(&self) -> u64 {
        if self.stride >= 0 { self.logical + (self.count as u64 - 1) * self.stride as u64 + self.length } else { self.logical + self.length }
    }

    /// Bytes in all pieces.
    pub fn bytes(&self) -> u64 {
        self.length * self.count as u64
    }
}
