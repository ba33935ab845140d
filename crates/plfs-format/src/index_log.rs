//! Blocks and records of an index log (FORMAT.md section 3): how they lie, what they mean, and what
//! runs and nests may be.

mod decode;
mod encode;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use decode::decode_references;
pub use decode::{At, begins_at, block_at, decode_block, header_at, is_torn};
pub use encode::encode_block;
pub(crate) use encode::{encode_payload, encode_references};

use crate::name::SegmentRef;
use crate::{MAX_OFFSET, Uuid};

/// Blocks start at multiples of this. It is the unit of `durable`, too.
pub const ALIGN: u64 = 64;
/// Bytes of a block header.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// A block's payload is at most this long, so that damaged lengths cannot make a reader allocate
/// much.
pub const PAYLOAD_MAX: usize = 16 << 20;
/// Bytes of a run record.
pub const RUN_BYTES: usize = size_of::<RawRun>();
/// Bytes of a nest record.
pub const NEST_BYTES: usize = size_of::<RawNest>();
/// Runs of a nest at most.
pub const NEST_RUNS_MAX: u32 = 1 << 16;
/// Runs of all nests of a block at most, so that damaged counts cannot make a reader allocate much.
pub const BLOCK_NEST_RUNS_MAX: u32 = 1 << 20;
/// Bytes of a hole record.
pub const HOLE_BYTES: usize = size_of::<RawHole>();
/// Sums in a sums record at most: its length must fit in a byte, in units of 8.
pub const SUMS_MAX: usize = (255 * 8 - size_of::<RawSums>()) / 4;
/// Bytes of a truncate record.
pub const TRUNCATE_BYTES: usize = size_of::<RawTruncate>();
const MAGIC: [u8; 4] = *b"PLIX";
const REF_BYTES: usize = size_of::<RawReference>();
/// What the CRC of a header covers begins here.
const SUMMED_AT: usize = 8;
const FLAG_TRUNCATE: u16 = 1;
const FLAG_DATA_DURABLE: u16 = 2;
/// The largest segment: its name has eight hex digits.
pub const SEGMENT_MAX: u32 = u32::MAX;

/// Kind of a reference to the file `base`.
const REFERENCE_BASE: u8 = 1;

const KIND_RUN: u8 = 1;
const KIND_TRUNCATE: u8 = 2;
const KIND_NEST: u8 = 3;
const KIND_HOLE: u8 = 4;
const KIND_WRITER: u8 = 128;
const KIND_SUMS: u8 = 129;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    header_crc: U32,
    payload_crc: U32,
    payload_bytes: U32,
    uuid: U64,
    stamp: U64,
    offset: U64,
    eof: U64,
    set: U32,
    records: U32,
    references: U16,
    flags: U16,
    durable: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReference {
    set: U32,
    segment: U32,
    stream: U16,
    backend: U16,
    kind: u8,
    codec: u8,
    zero: U16,
}

/// What every record begins with.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    kind: u8,
    units: u8,
    segment: U16,
    count: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRun {
    record: RawRecord,
    logical: U64,
    length: U64,
    stride: I64,
    physical: U64,
    writer: U32,
    zero: U32,
    stamp: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNest {
    run: RawRun,
    row_stride: I64,
    plane_stride: I64,
    rows: U32,
    planes: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHole {
    record: RawRecord,
    logical: U64,
    length: U64,
    writer: U32,
    zero: U32,
    stamp: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTruncate {
    record: RawRecord,
    size: U64,
    stamp: U64,
}

/// The host name follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWriter {
    record: RawRecord,
    writer: U32,
    pid: U32,
    uid: U32,
    zero: U32,
    attached_ns: U64,
    boot_id: U64,
    host_bytes: U16,
}

/// The sums follow, four bytes each.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSums {
    record: RawRecord,
    boot: U64,
    physical: U64,
    length: U64,
    unit: U32,
    zero: U32,
}

impl RawRecord {
    /// `bytes` is the length of the whole record, a multiple of 8 below 2,048.
    fn new(kind: u8, bytes: usize, segment: u16, count: u32) -> RawRecord {
        RawRecord { kind, units: (bytes / 8) as u8, segment: segment.into(), count: count.into() }
    }
}

/// The next place where a block can start, at or after `offset`.
pub fn align_up(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}

/// How often something recurs, and how far apart, logically. In the segment one follows the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Logical distance; 0 if `count` is 1.
    pub stride: i64,
    /// How many, at least 1.
    pub count: u32,
}

impl Repeat {
    /// Once.
    pub const ONCE: Repeat = Repeat { stride: 0, count: 1 };
}

/// `count` pieces: piece i covers `[logical + i*stride, … + length)` and lies at `physical +
/// i*length` of segment reference `segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Offset of piece 0 in the file.
    pub logical: u64,
    /// Bytes in a piece, at least 1.
    pub length: u64,
    /// Distance from a piece to the next; 0 if `count` is 1.
    pub stride: i64,
    /// Number of pieces, at least 1.
    pub count: u32,
    /// Index into the block's segment references.
    pub segment: u16,
    /// Offset of piece 0 in the segment.
    pub physical: u64,
    /// Who wrote it: the number of a [`Record::Writer`].
    pub writer: u32,
    /// When its first piece was written; orders it.
    pub stamp: u64,
    /// How the run recurs: the second repeats what the first makes of it. In the segment all
    /// follow each other. A run that recurs is written as a nest.
    pub repeat: [Repeat; 2],
}

impl RunRecord {
    /// Its [`nest_end`].
    pub fn end(&self) -> Option<u64> {
        let RunRecord { logical, length, stride, count, physical, repeat, .. } = *self;
        nest_end(logical, length, stride, count, physical, repeat)
    }

    /// How many runs it is.
    fn runs(&self) -> u32 {
        self.repeat[0].count * self.repeat[1].count
    }

    /// One past its last byte in its segment. Only of what was decoded: its numbers do not
    /// overflow.
    pub fn physical_end(&self) -> u64 {
        self.physical + self.length * u64::from(self.count) * u64::from(self.runs())
    }
}

/// One index record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Bytes of a segment.
    Run(RunRecord),
    /// These bytes are zeros, and no segment has them.
    Hole {
        /// Offset in the file.
        logical: u64,
        /// Bytes, at least 1.
        length: u64,
        /// Who made it: the number of a [`Record::Writer`].
        writer: u32,
        /// When; orders it.
        stamp: u64,
    },
    /// The file's size became this; what earlier records wrote past it is gone.
    Truncate {
        /// The new size.
        size: u64,
        /// When; orders it.
        stamp: u64,
    },
    /// Says who a writer number is. For people.
    Writer {
        /// The number used in runs.
        writer: u32,
        /// Process id on its host.
        pid: u32,
        /// User id.
        uid: u32,
        /// When it attached, nanoseconds since 1970 UTC.
        attached_ns: u64,
        /// Which boot of its host it ran in; 0: unknown.
        boot_id: u64,
        /// Host name.
        host: String,
    },
    /// What data of this block must look like that may not be durable, or, without sums, only
    /// which boot the block is from.
    Sums {
        /// Index into the block's segment references; 0 if there are no sums.
        segment: u16,
        /// Which boot of which machine holds the data as long as it is not durable; 0: unknown.
        boot: u64,
        /// Where the stretch begins in the segment.
        physical: u64,
        /// Bytes of the stretch; 0 if there are no sums.
        length: u64,
        /// A sum is of what the stretch has between two neighbouring multiples of this, at least
        /// 1.
        unit: u32,
        /// CRC-32C of each such part, [`SUMS_MAX`] at most.
        sums: Vec<u32>,
    },
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Stamp; orders the block among all blocks of the container.
    pub stamp: u64,
    /// Largest logical end of the runs and holes, or the new size of a truncate block.
    pub eof: u64,
    /// True if the block is a truncate.
    pub truncates: bool,
    /// Number of records.
    pub records: u32,
    /// Bytes from the block's start to where the next block may start.
    pub block_bytes: u64,
    /// All data that blocks of this log below this offset point to was durable before this block
    /// was appended.
    pub durable: u64,
    /// The data that its own records point to was durable before it was appended.
    pub is_data_durable: bool,
    payload_bytes: u32,
    payload_crc: u32,
    references: u16,
    flags: u16,
}

/// A block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Header.
    pub header: Header,
    /// What runs' segment numbers mean.
    pub segments: Vec<SegmentRef>,
    /// The records in order; unknown kinds from 128 on are left out but keep their position, so
    /// the position in the block is given with each.
    pub records: Vec<(u32, Record)>,
}

/// Where an index log belongs; blocks that say otherwise are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId {
    /// The container.
    pub uuid: Uuid,
    /// The log set.
    pub set: u32,
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Where the block will lie in its log, a multiple of [`ALIGN`].
    pub offset: u64,
    /// Its stamp.
    pub stamp: u64,
    /// All data that blocks of this log below this offset point to is durable. At most `offset`; 0
    /// if nothing is known.
    pub durable: u64,
    /// The data that its own records point to is durable.
    pub is_data_durable: bool,
}

/// Whether `n` sums are those of a stretch, as section 3 has it.
fn are_sums_valid(physical: u64, length: u64, unit: u32, n: usize) -> bool {
    let Some(end) = physical.checked_add(length).filter(|end| *end <= MAX_OFFSET) else {
        return false;
    };
    let unit = u64::from(unit);
    n <= SUMS_MAX
        && unit > 0
        && n as u64 == if length == 0 { 0 } else { end.div_ceil(unit) - physical / unit }
}

/// One past the last logical byte of a run, or `None` if it breaks an invariant of section 3.
pub fn run_end(logical: u64, length: u64, stride: i64, count: u32, physical: u64) -> Option<u64> {
    let steps = u64::from(count.checked_sub(1)?);
    if length == 0 || (steps == 0) != (stride == 0) || (steps > 0 && stride.unsigned_abs() < length)
    {
        return None;
    }
    let reach = stride.unsigned_abs().checked_mul(steps)?;
    let last = if stride < 0 {
        logical.checked_sub(reach).map(|_| logical)?
    } else {
        logical.checked_add(reach)?
    };
    let end = last.checked_add(length)?;
    let physical_end = length.checked_mul(u64::from(count))?.checked_add(physical)?;
    (end <= MAX_OFFSET && physical_end <= MAX_OFFSET).then_some(end)
}

/// [`run_end`] of a run that recurs, or `None` if it breaks an invariant of section 3: then a run
/// in it would leave the file's range, pieces could overlap, or there are too many.
pub fn nest_end(
    logical: u64,
    length: u64,
    stride: i64,
    count: u32,
    physical: u64,
    repeat: [Repeat; 2],
) -> Option<u64> {
    let [inner, outer] = repeat;
    if repeat.iter().any(|repeat| repeat.count == 0 || (repeat.count == 1) != (repeat.stride == 0))
        || (outer.count > 1 && inner.count == 1)
    {
        return None;
    }
    if inner.count == 1 {
        return run_end(logical, length, stride, count, physical);
    }
    if count == 1 || inner.count.checked_mul(outer.count)? > NEST_RUNS_MAX {
        return None;
    }
    let mut axes = [Repeat { stride, count }, inner, outer];
    axes.sort_unstable_by_key(|axis| axis.stride.unsigned_abs());
    // Each step is at least what the shorter ones span.
    let (mut span, mut below, mut above) = (length, 0u64, 0u64);
    for axis in axes.into_iter().filter(|axis| axis.count > 1) {
        let step = axis.stride.unsigned_abs();
        let reach = step.checked_mul(u64::from(axis.count) - 1)?;
        if step < span {
            return None;
        }
        span = span.checked_add(reach)?;
        match axis.stride > 0 {
            true => above = above.checked_add(reach)?,
            false => below = below.checked_add(reach)?,
        }
    }
    let bytes =
        length.checked_mul(count.into())?.checked_mul((inner.count * outer.count).into())?;
    logical.checked_sub(below)?;
    let end = logical.checked_add(above)?.checked_add(length)?;
    (length > 0 && end <= MAX_OFFSET && physical.checked_add(bytes)? <= MAX_OFFSET).then_some(end)
}

impl Header {
    /// Bytes of the block without its padding: a reader needs as many to check it.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bad;

    pub(super) const LOG: LogId = LogId { uuid: Uuid([3; 16]), set: 0x0bad_cafe };
    pub(super) const SEGMENT: SegmentRef =
        SegmentRef { set: 0x0bad_cafe, stream: 0, segment: 0, backend: 0 };

    pub(super) fn sample() -> Vec<Record> {
        vec![
            Record::Writer {
                writer: 5,
                pid: 6,
                uid: 7,
                attached_ns: 8,
                boot_id: 9,
                host: "node1".into(),
            },
            Record::Run(RunRecord {
                logical: 0,
                length: 3,
                stride: 10,
                count: 3,
                segment: 0,
                physical: 0,
                writer: 5,
                stamp: 41,
                repeat: [Repeat::ONCE; 2],
            }),
            Record::Run(RunRecord {
                logical: 100,
                length: 3,
                stride: -10,
                count: 4,
                segment: 0,
                physical: 9,
                writer: 5,
                stamp: 41,
                repeat: [Repeat::ONCE; 2],
            }),
        ]
    }

    pub(super) fn sums(physical: u64, length: u64, unit: u32, sums: &[u32]) -> Record {
        Record::Sums { segment: 0, boot: 11, physical, length, unit, sums: sums.to_vec() }
    }

    #[test]
    fn sums_are_read_as_they_were_written() {
        let mut records = sample();
        records.extend([
            sums(0, 0, 1, &[]),
            sums(3, 30, 1 << 16, &[5]),
            sums((1 << 16) - 3, 30, 1 << 16, &[5, 6]),
            sums(77, SUMS_MAX as u64 - 1, 1, &vec![8; SUMS_MAX - 1]),
            sums(MAX_OFFSET - 1, 1, u32::MAX, &[9]),
        ]);
        let bytes = encode(0, 50, &[SEGMENT], &records);
        let At::Block(header) = block_at(LOG, 0, &bytes) else { panic!("no block") };
        let block = decode_block(header, 0, &bytes).unwrap();
        let all: Vec<Record> = block.records.into_iter().map(|(_, record)| record).collect();
        assert_eq!(all, records);
        assert_eq!(header.eof, 103);
    }

    pub(super) fn encode(
        offset: u64,
        stamp: u64,
        segments: &[SegmentRef],
        records: &[Record],
    ) -> Vec<u8> {
        encode_block(LOG, Append { offset, stamp, ..Append::default() }, segments, records).unwrap()
    }

    /// Bytes of the block at the start of `bytes`.
    pub(super) fn used(bytes: &[u8]) -> usize {
        HEADER_BYTES + bytes[12..16].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }

    pub(super) fn put(out: &mut [u8], at: usize, value: &[u8]) {
        out[at..at + value.len()].copy_from_slice(value);
    }

    pub(super) fn decode(bytes: &[u8], offset: u64) -> Option<Result<Block, Bad>> {
        match block_at(LOG, offset, bytes) {
            At::Block(header) => Some(decode_block(header, offset, bytes)),
            At::Nothing => None,
        }
    }

    #[test]
    fn round_trip() {
        let bytes = encode(128, 42, &[SEGMENT], &sample());
        assert_eq!(bytes.len() % ALIGN as usize, 0);
        let block = decode(&bytes, 128).unwrap().unwrap();
        assert_eq!(
            (block.header.stamp, block.header.eof, block.header.block_bytes),
            (42, 103, bytes.len() as u64)
        );
        assert_eq!(
            block.records.into_iter().map(|(_, record)| record).collect::<Vec<_>>(),
            sample()
        );
        assert_eq!(decode(&bytes, 64), None, "a block belongs to its place");
    }

    pub(super) fn run(logical: u64) -> Record {
        Record::Run(RunRecord {
            logical,
            length: 3,
            stride: 0,
            count: 1,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        })
    }

    pub(super) fn hole(logical: u64) -> Record {
        Record::Hole { logical, length: 3, writer: 5, stamp: 1 }
    }

    /// Two planes of three rows of four pieces of three bytes.
    pub(super) fn nest() -> Record {
        let repeat = [Repeat { stride: 40, count: 3 }, Repeat { stride: 200, count: 2 }];
        Record::Run(RunRecord {
            logical: 7,
            length: 3,
            stride: 9,
            count: 4,
            segment: 0,
            physical: 100,
            writer: 0,
            stamp: 1,
            repeat,
        })
    }

    #[test]
    fn a_nest_is_one_record() {
        let bytes = encode(0, 42, &[SEGMENT], &[nest(), run(9)]);
        let block = decode(&bytes, 0).unwrap().unwrap();
        assert_eq!(
            (block.header.records, block.header.eof, block.records.len()),
            (2, 7 + 200 + 80 + 27 + 3, 2)
        );
        assert_eq!(block.records, [(0, nest()), (1, run(9))]);
        let Record::Run(nest) = nest() else { panic!("no run") };
        assert_eq!(nest.physical_end(), 100 + 6 * 4 * 3);
    }

    #[test]
    fn nests_stay_in_range_and_do_not_overlap() {
        let repeat = |stride, count| Repeat { stride, count };
        let end =
            |logical, stride, inner, outer| nest_end(logical, 3, stride, 4, 0, [inner, outer]);
        assert_eq!(end(0, 9, repeat(40, 3), Repeat::ONCE), Some(80 + 27 + 3));
        assert_eq!(end(0, 40, repeat(9, 4), Repeat::ONCE), Some(120 + 27 + 3), "columns first");
        assert_eq!(end(300, 9, repeat(-40, 3), repeat(-200, 2)), Some(330));
        assert_eq!(end(279, 9, repeat(-40, 3), repeat(-200, 2)), None, "before the file");
        assert_eq!(end(0, 9, repeat(30, 3), Repeat::ONCE), Some(60 + 30));
        assert_eq!(end(0, 9, repeat(29, 3), Repeat::ONCE), None);
        assert_eq!(end(0, 9, repeat(-2, 3), Repeat::ONCE), None);
        assert_eq!(end(0, 9, Repeat::ONCE, repeat(40, 2)), None);
        assert_eq!(end(0, 9, repeat(i64::MIN, 2), Repeat::ONCE), None);
        assert_eq!(end(0, 9, repeat(i64::MAX, 3), Repeat::ONCE), None);
        assert_eq!(end(0, 9, repeat(40, 256), repeat(20_000, 257)), None, "too many");
    }

    /// The first record of a block with one reference, and of a block with none.
    pub(super) const FIRST: usize = HEADER_BYTES + REF_BYTES;

    #[test]
    fn any_backend_and_segment_can_be_named() {
        let at = SegmentRef { set: u32::MAX, stream: 255, segment: SEGMENT_MAX, backend: 0xfffe };
        assert_eq!(decode(&encode(0, 42, &[at], &[run(0)]), 0).unwrap().unwrap().segments, [at]);
    }

    #[test]
    fn runs_stay_in_range() {
        assert_eq!(run_end(0, 1, 0, 1, 0), Some(1));
        assert_eq!(run_end(MAX_OFFSET - 1, 1, 0, 1, 0), Some(MAX_OFFSET));
        for (logical, length, stride, count, physical) in [
            (MAX_OFFSET, 1, 0, 1, 0),
            (0, 0, 0, 1, 0),
            (0, 1, 0, 0, 0),
            (0, 1, 0, 2, 0),
            (0, 1, 5, 1, 0),
            (0, 6, 5, 2, 0),
            (4, 1, -5, 2, 0),
            (0, 1, i64::MAX, 3, 0),
            (0, 1, i64::MIN, 2, 0),
            (0, 1, 0, 1, MAX_OFFSET),
        ] {
            assert_eq!(run_end(logical, length, stride, count, physical), None);
        }
    }
}
