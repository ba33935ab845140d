//! One entry of a flat index, which is also how a map holds a run: 72 bytes that may be anybody's.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Order, Run};

/// One run with its order, as it lies in a flat index (FORMAT.md section 6): 72 bytes,
/// little-endian, no alignment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Entry {
    /// Lowest logical byte.
    pub first: U64,
    /// One past the highest logical byte.
    pub end: U64,
    /// Largest `end` in the subtree of which this entry is the root.
    pub max_end: U64,
    /// Bytes in a piece.
    pub length: U64,
    /// Logical distance from a piece to the next; negative if piece 0 is the highest; 0 for a
    /// single piece.
    pub stride: I64,
    /// Offset of piece 0 in the segment.
    pub physical: U64,
    /// Stamp of the block.
    pub stamp: U64,
    /// Log set that wrote it.
    pub set: U32,
    /// 0, or how the pieces lie: the number of a shape of the flat index, counted from 1. Then
    /// `stride` is 0 and `count` is 1.
    pub shape: U32,
    /// Number of pieces.
    pub count: U32,
    /// Index into the table of segments.
    pub segment: U32,
}

impl Entry {
    /// Makes the entry of a valid run. Its `max_end` is its own end until it gets a place in a
    /// level.
    pub fn new(run: Run, order: Order) -> Entry {
        Entry {
            first: run.first().into(),
            end: run.end().into(),
            max_end: run.end().into(),
            length: run.length.into(),
            stride: run.stride.into(),
            physical: run.physical.into(),
            stamp: order.stamp.into(),
            set: order.set.into(),
            shape: 0.into(),
            count: run.count.into(),
            segment: run.segment.into(),
        }
    }

    /// Gives the order of the record.
    pub fn order(&self) -> Order {
        Order { stamp: self.stamp.get(), set: self.set.get() }
    }

    /// Gives the run. It is valid if the entry [is sound](Entry::is_sound); of others it is any
    /// run, but no panic.
    pub fn run(&self) -> Run {
        let stride = self.stride.get();
        let length = self.length.get();
        Run {
            logical: if stride >= 0 {
                self.first.get()
            } else {
                self.end.get().wrapping_sub(length)
            },
            length,
            stride,
            count: self.count.get(),
            segment: self.segment.get(),
            physical: self.physical.get(),
        }
    }

    /// Tells whether the run is valid and `first` and `end` are its bounds, for an entry without a
    /// shape. Entries from a file may be anything.
    pub fn is_sound(&self) -> bool {
        let run = self.run();
        self.shape.get() == 0
            && run.is_valid()
            && run.first() == self.first.get()
            && run.end() == self.end.get()
    }

    pub(super) fn key(&self) -> (u64, Order) {
        (self.first.get(), self.order())
    }

    /// Calls `f(start, end, shift)` for the part of each piece inside `[from, to)`, ascending;
    /// logical byte b lies at physical b + shift (wrapping).
    #[inline]
    pub(super) fn pieces(&self, from: u64, to: u64, mut f: impl FnMut(u64, u64, u64)) {
        let first = self.first.get();
        let lo = from.max(first);
        let hi = to.min(self.end.get());
        if lo >= hi {
            return;
        }
        let stride = self.stride.get();
        let physical = self.physical.get();
        if stride == 0 {
            return f(lo, hi, physical.wrapping_sub(first));
        }
        let (step, length, count) =
            (stride.unsigned_abs(), self.length.get(), u64::from(self.count.get()));
        let (mut k, mut start) = self.piece_reaching(lo);
        while start < hi {
            // k < count, because start < hi <= end.
            let i = if stride > 0 { k } else { count - 1 - k };
            f(start.max(lo), (start + length).min(hi), (physical + i * length).wrapping_sub(start));
            k += 1;
            start += step;
        }
    }

    /// No more pieces than so many have a byte in `[from, to)`, if the entry is sound, whatever its
    /// shape.
    pub(super) fn pieces_at_most(&self, from: u64, to: u64) -> u64 {
        let bytes = to.min(self.end.get()).saturating_sub(from.max(self.first.get()));
        let step = self.stride.get().unsigned_abs().max(self.length.get()).max(1);
        match bytes {
            0 => 0,
            _ if self.shape.get() == 0 => (bytes / step + 2).min(self.count.get().into()),
            _ => bytes / step + 2,
        }
    }

    /// Index (ascending) and start of the first piece that ends past `from`, where first <= from <
    /// end and the entry is a run of several pieces.
    fn piece_reaching(&self, from: u64) -> (u64, u64) {
        let step = self.stride.get().unsigned_abs();
        let k = (from - self.first.get()) / step;
        let start = self.first.get() + k * step;
        if from < start + self.length.get() { (k, start) } else { (k + 1, start + step) }
    }

    /// Lowest byte of a piece in `[from, to)`.
    pub(super) fn next_byte(&self, from: u64, to: u64) -> Option<u64> {
        let lo = from.max(self.first.get());
        let hi = to.min(self.end.get());
        if lo >= hi {
            return None;
        }
        let byte = if self.stride.get() == 0 { lo } else { self.piece_reaching(lo).1.max(lo) };
        (byte < hi).then_some(byte)
    }
}
