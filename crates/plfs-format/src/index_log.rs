//! Blocks and records of an index log (FORMAT.md section 3).

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::name::SegmentRef;
use crate::{Bad, MAX_OFFSET, Uuid, crc};

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
/// Streams that a reference can name: two hex digits.
const STREAMS_MAX: u16 = 256;
const KIND_RUN: u8 = 1;
const KIND_TRUNCATE: u8 = 2;
const KIND_NEST: u8 = 3;
const KIND_HOLE: u8 = 4;
const KIND_WRITER: u8 = 128;
const KIND_SUMS: u8 = 129;
/// Bytes of a host name that are kept: the record's length must fit in a byte, in units of 8.
const HOST_BYTES_MAX: usize = 255;

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

/// One index record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// `count` pieces: piece i covers `[logical + i*stride, … + length)` and lies at `physical +
    /// i*length` of segment reference `segment`.
    Run {
        /// Offset of piece 0 in the file.
        logical: u64,
        /// Bytes in a piece, at least 1.
        length: u64,
        /// Distance from a piece to the next; 0 if `count` is 1.
        stride: i64,
        /// Number of pieces, at least 1.
        count: u32,
        /// Index into the block's segment references.
        segment: u16,
        /// Offset of piece 0 in the segment.
        physical: u64,
        /// Who wrote it: the number of a [`Record::Writer`].
        writer: u32,
        /// When its first piece was written; orders it.
        stamp: u64,
        /// How the run recurs: the second repeats what the first makes of it. Such a run is
        /// written as a nest; decoding gives each run of a nest as a record of its own.
        repeat: [Repeat; 2],
    },
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
    pub hlc: u64,
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
    /// the position in the block is given with each. The runs of a nest have its position.
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

/// Encodes one block of `log`, padded to [`ALIGN`].
///
/// Errors if records and references are more than [`PAYLOAD_MAX`] bytes, or a truncate is not alone
/// (writer records may be with it).
pub fn encode_block(
    log: LogId,
    append: Append,
    segments: &[SegmentRef],
    records: &[Record],
) -> Result<Vec<u8>, Bad> {
    let bad = |what| Err(Bad::new(append.offset, what));
    let mut out = vec![0; HEADER_BYTES];
    for at in segments {
        let (set, segment, stream, backend) =
            (at.set.into(), at.segment.into(), at.stream.into(), at.backend.into());
        out.extend_from_slice(
            RawReference { set, segment, stream, backend, kind: 0, codec: 0, zero: 0.into() }
                .as_bytes(),
        );
    }
    let (mut eof, mut truncates, mut runs, mut nested) = (0, 0, 0, 0);
    for record in records {
        match record {
            Record::Run {
                logical,
                length,
                stride,
                count,
                segment,
                physical,
                writer,
                stamp,
                repeat,
            } => {
                let [inner, outer] = *repeat;
                let Some(end) = nest_end(*logical, *length, *stride, *count, *physical, *repeat)
                else {
                    return bad("a run leaves the file's range");
                };
                eof = end.max(eof);
                runs += 1;
                let is_nest = inner.count > 1;
                let (kind, bytes) =
                    if is_nest { (KIND_NEST, NEST_BYTES) } else { (KIND_RUN, RUN_BYTES) };
                let run = RawRun {
                    record: RawRecord::new(kind, bytes, *segment, *count),
                    logical: (*logical).into(),
                    length: (*length).into(),
                    stride: (*stride).into(),
                    physical: (*physical).into(),
                    writer: (*writer).into(),
                    zero: 0.into(),
                    stamp: (*stamp).into(),
                };
                if !is_nest {
                    out.extend_from_slice(run.as_bytes());
                    continue;
                }
                nested += inner.count * outer.count;
                if nested > BLOCK_NEST_RUNS_MAX {
                    return bad("the nests of a block have too many runs");
                }
                let (row_stride, plane_stride) = (inner.stride.into(), outer.stride.into());
                let nest = RawNest {
                    run,
                    row_stride,
                    plane_stride,
                    rows: inner.count.into(),
                    planes: outer.count.into(),
                };
                out.extend_from_slice(nest.as_bytes());
            }
            Record::Hole { logical, length, writer, stamp } => {
                let Some(end) = run_end(*logical, *length, 0, 1, 0) else {
                    return bad("a hole leaves the file's range");
                };
                eof = end.max(eof);
                runs += 1;
                let record = RawRecord::new(KIND_HOLE, HOLE_BYTES, 0, 0);
                let (logical, length, writer, stamp) =
                    ((*logical).into(), (*length).into(), (*writer).into(), (*stamp).into());
                out.extend_from_slice(
                    RawHole { record, logical, length, writer, zero: 0.into(), stamp }.as_bytes(),
                );
            }
            Record::Truncate { size, stamp } => {
                eof = *size;
                truncates += 1;
                let record = RawRecord::new(KIND_TRUNCATE, TRUNCATE_BYTES, 0, 0);
                out.extend_from_slice(
                    RawTruncate { record, size: (*size).into(), stamp: (*stamp).into() }.as_bytes(),
                );
            }
            Record::Writer { writer, pid, uid, attached_ns, boot_id, host } => {
                let host = &host.as_bytes()[..host.len().min(HOST_BYTES_MAX)];
                let bytes = (size_of::<RawWriter>() + host.len()).next_multiple_of(8);
                let raw = RawWriter {
                    record: RawRecord::new(KIND_WRITER, bytes, 0, 0),
                    writer: (*writer).into(),
                    pid: (*pid).into(),
                    uid: (*uid).into(),
                    zero: 0.into(),
                    attached_ns: (*attached_ns).into(),
                    boot_id: (*boot_id).into(),
                    host_bytes: (host.len() as u16).into(),
                };
                let end = out.len() + bytes;
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(host);
                out.resize(end, 0);
            }
            Record::Sums { segment, boot, physical, length, unit, sums } => {
                if !are_sums_valid(*physical, *length, *unit, sums.len()) {
                    return bad("sums do not fit their stretch");
                }
                let bytes = (size_of::<RawSums>() + 4 * sums.len()).next_multiple_of(8);
                let raw = RawSums {
                    record: RawRecord::new(KIND_SUMS, bytes, *segment, sums.len() as u32),
                    boot: (*boot).into(),
                    physical: (*physical).into(),
                    length: (*length).into(),
                    unit: (*unit).into(),
                    zero: 0.into(),
                };
                let end = out.len() + bytes;
                out.extend_from_slice(raw.as_bytes());
                sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
                out.resize(end, 0);
            }
        }
    }
    if truncates > 0 && (truncates > 1 || runs > 0) {
        return bad("a truncate shares its block");
    }
    let (payload, references) = (out.len() - HEADER_BYTES, u16::try_from(segments.len()));
    let Some(references) = references.ok().filter(|_| payload <= PAYLOAD_MAX) else {
        return bad("the block is too long");
    };
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let mut header = RawHeader {
        magic: MAGIC,
        header_crc: 0.into(),
        payload_crc: crc(&out[HEADER_BYTES..]).into(),
        payload_bytes: (payload as u32).into(),
        uuid: log.uuid.low().into(),
        stamp: append.stamp.into(),
        offset: append.offset.into(),
        eof: eof.into(),
        set: log.set.into(),
        records: (records.len() as u32).into(),
        references: references.into(),
        flags: (flag(truncates > 0, FLAG_TRUNCATE)
            | flag(append.is_data_durable, FLAG_DATA_DURABLE))
        .into(),
        // In a log past 256 GiB less is said than is known.
        durable: u32::try_from(append.durable.min(append.offset) / ALIGN)
            .unwrap_or(u32::MAX)
            .into(),
    };
    header.header_crc = crc(&header.as_bytes()[SUMMED_AT..]).into();
    out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    out.resize(align_up(out.len() as u64) as usize, 0);
    Ok(out)
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

/// What stands at one place of an index log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A valid block.
    Block(Header),
    /// No valid block starts here: torn, damaged, or not there yet.
    Nothing,
}

impl Header {
    /// Bytes of the block without its padding: a reader needs as many to check it.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

/// The header at the start of `bytes`, which lie at `offset` of `log`, if it is right by itself:
/// what it says about the payload may be believed, whether that is there or not. Costs a comparison
/// of four bytes where no header is.
pub fn header_at(log: LogId, offset: u64, bytes: &[u8]) -> Option<Header> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let (raw, _) = RawHeader::ref_from_prefix(bytes).ok()?;
    let belongs = raw.set == log.set
        && raw.uuid == log.uuid.low()
        && raw.offset == offset
        && raw.payload_bytes.get() as usize <= PAYLOAD_MAX;
    if !belongs || raw.header_crc != crc(&raw.as_bytes()[SUMMED_AT..]) {
        return None;
    }
    let (flags, payload_bytes) = (raw.flags.get(), raw.payload_bytes.get());
    Some(Header {
        hlc: raw.stamp.get(),
        eof: raw.eof.get(),
        truncates: flags & FLAG_TRUNCATE != 0,
        records: raw.records.get(),
        block_bytes: align_up(HEADER_BYTES as u64 + u64::from(payload_bytes)),
        durable: u64::from(raw.durable.get()) * ALIGN,
        is_data_durable: flags & FLAG_DATA_DURABLE != 0,
        payload_bytes,
        payload_crc: raw.payload_crc.get(),
        references: raw.references.get(),
        flags,
    })
}

/// Looks for a block at the start of `bytes`, which lie at `offset` of `log`. Checks both CRCs, so
/// `bytes` must reach to the block's end.
pub fn block_at(log: LogId, offset: u64, bytes: &[u8]) -> At {
    let header = header_at(log, offset, bytes);
    let valid = header.filter(|header| {
        bytes
            .get(HEADER_BYTES..header.bytes())
            .is_some_and(|payload| crc(payload) == header.payload_crc)
    });
    valid.map_or(At::Nothing, At::Block)
}

/// Whether `bytes`, which lie at `offset` of `log`, begin as a header there does, as far as they go
/// and whatever its checksum says.
fn begins(log: LogId, offset: u64, bytes: &[u8]) -> bool {
    let uuid = log.uuid.low().to_le_bytes();
    let fields: [(usize, &[u8]); 4] =
        [(0, &MAGIC), (16, &uuid), (32, &offset.to_le_bytes()), (48, &log.set.to_le_bytes())];
    fields.iter().all(|(at, field)| bytes.iter().skip(*at).zip(*field).all(|(a, b)| a == b))
}

/// Whether a header begins at the start of `bytes`, which lie at `offset` of `log`, whatever its
/// checksum says: there a piece begins that no valid block is. It may have been cut, so what counts
/// is what its first [`HEADER_BYTES`] have without their last zeros; `bytes` has them all, or ends
/// where the log does.
pub fn begins_at(log: LogId, offset: u64, bytes: &[u8]) -> bool {
    let line = &bytes[..bytes.len().min(HEADER_BYTES)];
    let written = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    written > 0 && begins(log, offset, &line[..written])
}

/// Whether a crash tore a piece of a log, which lies at `offset`; else it was a block once, and is
/// damaged. `written` is how long it is without its last zeros, and `head` its first bytes: all of
/// them, or at least [`HEADER_BYTES`] and those of the block if its header is right.
///
/// An append is a block written from its start: what a crash leaves of it is a beginning, or, after
/// a power cut, sectors of zeros. Bytes that are neither were whole once. The CRC of the header
/// tells a header that is right, whose length can be believed, from one that was cut or damaged.
pub fn is_torn(log: LogId, offset: u64, head: &[u8], written: u64) -> bool {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if is_zero(&head[..head.len().min(HEADER_BYTES)]) {
        return true;
    }
    let Some(header) = header_at(log, offset, head) else {
        // Cut inside the header, or damaged: behind a cut there is nothing.
        return written < HEADER_BYTES as u64
            && begins(log, offset, &head[..head.len().min(written as usize)]);
    };
    let Some(block) = head.get(..header.bytes()) else { return true };
    // All of it seems to be there. A cut inside the last 64 bytes was padded by the next append; a
    // power cut leaves zeros in whole sectors. Two bytes, because one bit of damage can
    // make one zero.
    const SECTOR: usize = 512;
    let first = (SECTOR - offset as usize % SECTOR) % SECTOR;
    block.ends_with(&[0, 0])
        || block.get(first..).unwrap_or_default().chunks_exact(SECTOR).any(is_zero)
}

/// Decodes the records of a block whose header [`block_at`] found at the start of `bytes`, which
/// lie at `offset`.
///
/// An error means that a block with right CRCs contradicts the document: corruption, or a newer
/// format (see [`Bad::newer`]), never a torn write. What it cannot see is whether the
/// block is younger than the one before it.
pub fn decode_block(header: Header, offset: u64, bytes: &[u8]) -> Result<Block, Bad> {
    let place = |at: usize| offset + (HEADER_BYTES + at) as u64;
    let bad = |at: usize, what| Err(Bad::new(place(at), what));
    let newer = |at: u64, what| Err(Bad::newer(at, what));
    if header.flags & !(FLAG_TRUNCATE | FLAG_DATA_DURABLE) != 0 {
        return newer(offset + 58, "the block has flags that this version does not know");
    }
    if header.durable > offset {
        return Err(Bad::new(
            offset + 60,
            "the block says that data was durable which blocks behind it point to",
        ));
    }
    let payload = &bytes[HEADER_BYTES..header.bytes()];
    let Ok((table, records_part)) =
        <[RawReference]>::ref_from_prefix_with_elems(payload, header.references.into())
    else {
        return bad(0, "the block ends inside its segment references");
    };
    let mut segments = Vec::with_capacity(table.len());
    for (i, raw) in table.iter().enumerate() {
        if raw.kind != 0 || raw.codec != 0 {
            return newer(
                place(i * REF_BYTES + 12),
                "a segment reference has a kind or codec that this version does not know",
            );
        }
        let at = SegmentRef {
            set: raw.set.get(),
            stream: raw.stream.get(),
            segment: raw.segment.get(),
            backend: raw.backend.get(),
        };
        if at.stream >= STREAMS_MAX {
            return bad(i * REF_BYTES, "a segment reference names a stream that has no name");
        }
        segments.push(at);
    }
    let (table, mut rest) = (payload.len() - records_part.len(), records_part);
    let mut records = Vec::new();
    let (mut eof, mut runs, mut truncates, mut nested) = (0, 0, 0, 0);
    for position in 0..header.records {
        let at = payload.len() - rest.len();
        let Ok((head, _)) = RawRecord::ref_from_prefix(rest) else {
            return bad(at, "the block ends inside a record");
        };
        let len = usize::from(head.units) * 8;
        if len == 0 || rest.len() < len {
            return bad(at, "the block ends inside a record");
        }
        let record;
        (record, rest) = rest.split_at(len);
        let is_young = |stamp: &U64| stamp.get() > header.hlc;
        let names_none = head.segment == 0 && head.count == 0;
        // A run, alone or the first of a nest.
        let mut push_runs = |run: &RawRun, repeat: [Repeat; 2]| {
            let (logical, length, stride, count, physical) = (
                run.logical.get(),
                run.length.get(),
                run.stride.get(),
                run.record.count.get(),
                run.physical.get(),
            );
            match nest_end(logical, length, stride, count, physical, repeat) {
                Some(end) if end <= header.eof => eof = end.max(eof),
                _ => {
                    return Err(
                        "a run or nest leaves the file's range, or its pieces could overlap",
                    );
                }
            }
            let [inner, outer] = repeat;
            nested += if inner.count > 1 { inner.count * outer.count } else { 0 };
            if nested > BLOCK_NEST_RUNS_MAX {
                return Err("the nests of a block have too many runs");
            }
            if is_young(&run.stamp) {
                return Err("a record is younger than its block");
            }
            let (segment, writer, stamp) =
                (run.record.segment.get(), run.writer.get(), run.stamp.get());
            if segment >= header.references {
                return Err("a run names a segment that the block does not list");
            }
            for i in 0..outer.count * inner.count {
                let moved = i64::from(i / inner.count) * outer.stride
                    + i64::from(i % inner.count) * inner.stride;
                let (logical, physical) = (
                    logical.wrapping_add_signed(moved),
                    physical + u64::from(i) * length * u64::from(count),
                );
                records.push((
                    position,
                    Record::Run {
                        logical,
                        length,
                        stride,
                        count,
                        segment,
                        physical,
                        writer,
                        stamp,
                        repeat: [Repeat::ONCE; 2],
                    },
                ));
            }
            runs += 1;
            Ok(())
        };
        const LENGTH: &str = "a record has the wrong length for its kind";
        match head.kind {
            KIND_RUN => {
                let Ok(run) = RawRun::ref_from_bytes(record) else { return bad(at, LENGTH) };
                push_runs(run, [Repeat::ONCE; 2]).map_err(|what| Bad::new(place(at), what))?;
            }
            KIND_NEST => {
                let Ok(nest) = RawNest::ref_from_bytes(record) else { return bad(at, LENGTH) };
                let inner = Repeat { stride: nest.row_stride.get(), count: nest.rows.get() };
                if inner.count < 2 {
                    return bad(at, "a nest is a single run");
                }
                push_runs(
                    &nest.run,
                    [inner, Repeat { stride: nest.plane_stride.get(), count: nest.planes.get() }],
                )
                .map_err(|what| Bad::new(place(at), what))?;
            }
            KIND_TRUNCATE => {
                let Ok(cut) = RawTruncate::ref_from_bytes(record) else { return bad(at, LENGTH) };
                let (size, stamp) = (cut.size.get(), cut.stamp.get());
                if !header.truncates || size > MAX_OFFSET || size != header.eof {
                    return bad(at, "a truncate record does not fit its block's header");
                }
                if !names_none {
                    return bad(at, "a truncate has a segment or a count");
                }
                if is_young(&cut.stamp) {
                    return bad(at, "a record is younger than its block");
                }
                (eof, truncates) = (size, truncates + 1);
                records.push((position, Record::Truncate { size, stamp }));
            }
            KIND_HOLE => {
                let Ok(hole) = RawHole::ref_from_bytes(record) else { return bad(at, LENGTH) };
                let (logical, length, writer, stamp) =
                    (hole.logical.get(), hole.length.get(), hole.writer.get(), hole.stamp.get());
                match run_end(logical, length, 0, 1, 0) {
                    Some(end) if end <= header.eof => eof = end.max(eof),
                    _ => return bad(at, "a hole leaves the file's range"),
                }
                if !names_none {
                    return bad(at, "a hole has a segment or a count");
                }
                if is_young(&hole.stamp) {
                    return bad(at, "a record is younger than its block");
                }
                runs += 1;
                records.push((position, Record::Hole { logical, length, writer, stamp }));
            }
            KIND_WRITER => {
                let Ok((writer, text)) = RawWriter::ref_from_prefix(record) else {
                    return bad(at, LENGTH);
                };
                let Some(host) = text.get(..writer.host_bytes.get().into()) else {
                    return bad(at, "a writer record ends inside its host name");
                };
                let host = String::from_utf8_lossy(host).into_owned();
                let (attached_ns, boot_id) = (writer.attached_ns.get(), writer.boot_id.get());
                records.push((
                    position,
                    Record::Writer {
                        writer: writer.writer.get(),
                        pid: writer.pid.get(),
                        uid: writer.uid.get(),
                        attached_ns,
                        boot_id,
                        host,
                    },
                ));
            }
            KIND_SUMS => {
                let Ok((raw, rest)) = RawSums::ref_from_prefix(record) else {
                    return bad(at, LENGTH);
                };
                let n = head.count.get() as usize;
                // The record is not longer than it must be: who believes n believes the length.
                if rest.len() != n.saturating_mul(4).next_multiple_of(8) {
                    return bad(at, LENGTH);
                }
                let (physical, length, unit) =
                    (raw.physical.get(), raw.length.get(), raw.unit.get());
                if !are_sums_valid(physical, length, unit, n) {
                    return bad(at, "sums do not fit their stretch");
                }
                let segment = head.segment.get();
                if n > 0 && segment >= header.references {
                    return bad(at, "sums name a segment that the block does not list");
                }
                let (chunks, _) = rest[..4 * n].as_chunks();
                let sums = chunks.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
                let boot = raw.boot.get();
                records
                    .push((position, Record::Sums { segment, boot, physical, length, unit, sums }));
            }
            kind if kind < 128 => {
                return newer(place(at), "a record is of a kind that this version does not know");
            }
            _ => {}
        }
    }
    if !rest.is_empty() {
        return bad(payload.len() - rest.len(), "the payload goes on behind the last record");
    }
    if header.truncates && (runs, truncates) != (0, 1) {
        return bad(table, "a truncate block has not one truncate record, or has a run or hole");
    }
    if eof != header.eof {
        return bad(table, "the block's eof is not the end of a run or hole");
    }
    Ok(Block { header, segments, records })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId { uuid: Uuid([3; 16]), set: 0x0bad_cafe };
    const SEGMENT: SegmentRef = SegmentRef { set: 0x0bad_cafe, stream: 0, segment: 0, backend: 0 };

    /// Says what the bytes of `region`, in which no valid block starts, once were: pieces as
    /// (offset, length, whether a crash tore them).
    fn skip_decisions(log: LogId, offset: u64, region: &[u8]) -> Vec<(u64, usize, bool)> {
        let starts_here = |i: &usize| *i == 0 || begins_at(log, offset + *i as u64, &region[*i..]);
        let starts: Vec<usize> =
            (0..region.len()).step_by(ALIGN as usize).filter(starts_here).collect();
        let piece = |(n, &start): (usize, &usize)| {
            let piece = &region[start..starts.get(n + 1).copied().unwrap_or(region.len())];
            let at = offset + start as u64;
            let written = piece.len() - piece.iter().rev().take_while(|byte| **byte == 0).count();
            (at, piece.len(), is_torn(log, at, piece, written as u64))
        };
        starts.iter().enumerate().map(piece).collect()
    }

    fn sample() -> Vec<Record> {
        vec![
            Record::Writer {
                writer: 5,
                pid: 6,
                uid: 7,
                attached_ns: 8,
                boot_id: 9,
                host: "node1".into(),
            },
            Record::Run {
                logical: 0,
                length: 3,
                stride: 10,
                count: 3,
                segment: 0,
                physical: 0,
                writer: 5,
                stamp: 41,
                repeat: [Repeat::ONCE; 2],
            },
            Record::Run {
                logical: 100,
                length: 3,
                stride: -10,
                count: 4,
                segment: 0,
                physical: 9,
                writer: 5,
                stamp: 41,
                repeat: [Repeat::ONCE; 2],
            },
        ]
    }

    fn sums(physical: u64, length: u64, unit: u32, sums: &[u32]) -> Record {
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

    #[test]
    fn hostile_sums_are_refused() {
        let good = encode(0, 50, &[SEGMENT], &[sums(65_530, 10, 1 << 16, &[5, 6])]);
        let at = HEADER_BYTES + REF_BYTES;
        let cases: [(usize, &[u8], &str); 10] = [
            (2, &[1, 0], "list"),
            (4, &[1, 0, 0, 0], "stretch"),
            (4, &[3, 0, 0, 0], "length"),
            (4, &[0xff; 4], "length"),
            (1, &[5], "length"),
            (16, &0u64.to_le_bytes(), "stretch"),
            (16, &u64::MAX.to_le_bytes(), "stretch"),
            (24, &u64::MAX.to_le_bytes(), "stretch"),
            (24, &0u64.to_le_bytes(), "stretch"),
            (32, &[0; 4], "stretch"),
        ];
        for (offset, field, what) in cases {
            let mut bytes = good[..used(&good)].to_vec();
            put(&mut bytes, at + offset, field);
            seal(&mut bytes);
            let At::Block(header) = block_at(LOG, 0, &bytes) else { panic!("no block") };
            let bad = decode_block(header, 0, &bytes).unwrap_err();
            assert!(bad.what.contains(what) && !bad.newer, "{offset} {field:?}: {bad}");
        }
        for record in [sums(0, 1, 1, &[]), sums(0, 1, 0, &[1]), sums(0, 500, 1, &[0; 501])] {
            assert!(encode_block(LOG, Append::default(), &[SEGMENT], &[record]).is_err());
        }
    }

    fn encode(offset: u64, stamp: u64, segments: &[SegmentRef], records: &[Record]) -> Vec<u8> {
        encode_block(LOG, Append { offset, stamp, ..Append::default() }, segments, records).unwrap()
    }

    /// Bytes of the block at the start of `bytes`.
    fn used(bytes: &[u8]) -> usize {
        HEADER_BYTES + bytes[12..16].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }

    fn put(out: &mut [u8], at: usize, value: &[u8]) {
        out[at..at + value.len()].copy_from_slice(value);
    }

    /// Makes both CRCs of a block that takes all of `bytes` right.
    fn seal(bytes: &mut [u8]) {
        let sum = crc(&bytes[HEADER_BYTES..]);
        put(bytes, 8, &sum.to_le_bytes());
        let sum = crc(&bytes[8..HEADER_BYTES]);
        put(bytes, 4, &sum.to_le_bytes());
    }

    fn decode(bytes: &[u8], offset: u64) -> Option<Result<Block, Bad>> {
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
            (block.header.hlc, block.header.eof, block.header.block_bytes),
            (42, 103, bytes.len() as u64)
        );
        assert_eq!(
            block.records.into_iter().map(|(_, record)| record).collect::<Vec<_>>(),
            sample()
        );
        assert_eq!(decode(&bytes, 64), None, "a block belongs to its place");
    }

    #[test]
    fn the_worked_example_of_the_document() {
        let run = Record::Run {
            logical: 0,
            length: 3,
            stride: 10,
            count: 3,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        };
        let bytes = encode(0, 1, &[SEGMENT], &[run]);
        assert_eq!(bytes[64..80], [0xfe, 0xca, 0xad, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], [1, 7, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = encode(0, 42, &[SEGMENT], &sample());
        let used = used(&bytes);
        for bit in 0..used * 8 {
            let mut hurt = bytes.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&hurt, 0), None, "bit {bit}");
        }
        for len in 0..used {
            assert_eq!(decode(&bytes[..len], 0), None);
        }
    }

    #[test]
    fn hostile_blocks_with_right_checksums_are_refused() {
        let bytes = encode(0, 42, &[SEGMENT], &sample());
        let used = used(&bytes);
        for at in 8..used {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut hurt = bytes.clone();
                hurt[at] = value;
                seal(&mut hurt[..used]);
                if let Some(Ok(block)) = decode(&hurt, 0) {
                    for (_, record) in block.records {
                        if let Record::Run {
                            logical,
                            length,
                            stride,
                            count,
                            physical,
                            segment,
                            ..
                        } = record
                        {
                            assert!(
                                run_end(logical, length, stride, count, physical).is_some()
                                    && segment == 0
                            );
                        }
                    }
                }
            }
        }
    }

    fn run(logical: u64) -> Record {
        Record::Run {
            logical,
            length: 3,
            stride: 0,
            count: 1,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        }
    }

    fn hole(logical: u64) -> Record {
        Record::Hole { logical, length: 3, writer: 5, stamp: 1 }
    }

    fn cut(size: u64) -> Record {
        Record::Truncate { size, stamp: 1 }
    }

    /// Two planes of three rows of four pieces of three bytes.
    fn nest() -> Record {
        let repeat = [Repeat { stride: 40, count: 3 }, Repeat { stride: 200, count: 2 }];
        Record::Run {
            logical: 7,
            length: 3,
            stride: 9,
            count: 4,
            segment: 0,
            physical: 100,
            writer: 0,
            stamp: 1,
            repeat,
        }
    }

    #[test]
    fn a_hole_is_40_bytes_beside_runs() {
        let records = [run(9), hole(700), run(90)];
        let bytes = encode(0, 42, &[SEGMENT], &records);
        let block = decode(&bytes, 0).unwrap().unwrap();
        assert_eq!(
            (block.header.eof, block.header.payload_bytes as usize),
            (703, REF_BYTES + 2 * RUN_BYTES + 40)
        );
        assert_eq!(
            block.records.into_iter().map(|(_, record)| record).collect::<Vec<_>>(),
            records
        );
        let at = FIRST + RUN_BYTES;
        assert_eq!(
            bytes[at..at + 40],
            [
                [4, 5, 0, 0, 0, 0, 0, 0],
                700u64.to_le_bytes(),
                3u64.to_le_bytes(),
                [5, 0, 0, 0, 0, 0, 0, 0],
                1u64.to_le_bytes()
            ]
            .concat()
        );
    }

    #[test]
    fn a_nest_is_the_runs_in_it() {
        let bytes = encode(0, 42, &[SEGMENT], &[nest(), run(9)]);
        let block = decode(&bytes, 0).unwrap().unwrap();
        assert_eq!(
            (block.header.records, block.header.eof, block.records.len()),
            (2, 7 + 200 + 80 + 27 + 3, 7)
        );
        let found: Vec<(u32, u64, u64, u32)> = block.records[..6]
            .iter()
            .map(|(position, record)| match record {
                Record::Run { logical, physical, count, .. } => {
                    (*position, *logical, *physical, *count)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            found,
            [
                (0, 7, 100, 4),
                (0, 47, 112, 4),
                (0, 87, 124, 4),
                (0, 207, 136, 4),
                (0, 247, 148, 4),
                (0, 287, 160, 4)
            ]
        );
        assert_eq!(block.records[6], (1, run(9)));
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

    /// What the engine says to a block of `records` that was changed by hand and has a right
    /// checksum.
    fn after(
        segments: &[SegmentRef],
        records: &[Record],
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Block, Bad> {
        let mut bytes = encode(0, 42, segments, records);
        bytes.truncate(used(&bytes));
        change(&mut bytes);
        let payload = (bytes.len() - HEADER_BYTES) as u32;
        put(&mut bytes, 12, &payload.to_le_bytes());
        seal(&mut bytes);
        decode(&bytes, 0).expect("the checksum is right")
    }

    /// The first record of a block with one reference, and of a block with none.
    const FIRST: usize = HEADER_BYTES + REF_BYTES;
    const ALONE: usize = HEADER_BYTES;

    /// A test for each block that contradicts section 3 of the document. `tests/decoder/agree.py`
    /// asks both readers about the same blocks.
    macro_rules! refused {
        ($($name:ident: $segments:expr, $records:expr, $change:expr, $why:literal;)*) => {
            $(#[test]
            fn $name() {
                after(&$segments, &$records, |_| {}).expect("the block that was changed is a good one");
                assert!(after(&$segments, &$records, $change).unwrap_err().what.contains($why));
            })*
        };
    }

    refused! {
        eof_past_the_runs: [SEGMENT], [run(0)], |b| put(b, 40, &[4]), "eof";
        eof_without_records: [], [], |b| put(b, 40, &[1]), "eof";
        run_past_eof: [SEGMENT], [run(0)], |b| put(b, 40, &[2]), "range";
        durable_past_the_block: [SEGMENT], [run(0)], |b| put(b, 60, &[1]), "durable";
        flag_1_without_a_truncate: [], [], |b| put(b, 58, &[1]), "not one truncate";
        flag_1_with_a_run: [SEGMENT], [run(0)], |b| put(b, 58, &[1]), "not one truncate";
        truncate_beside_a_run: [], [cut(9)], |b| {
            let one = encode(0, 42, &[SEGMENT], &[run(0)]);
            b.splice(ALONE..ALONE, one[HEADER_BYTES..FIRST + RUN_BYTES].iter().copied());
            put(b, 52, &[2, 0, 0, 0, 1]);
        }, "not one truncate";
        two_truncates: [], [cut(9)], |b| {
            b.extend_from_within(ALONE..);
            put(b, 52, &[2]);
        }, "not one truncate";
        truncate_without_flag_1: [], [cut(9)], |b| put(b, 58, &[0]), "truncate record does not fit";
        truncate_with_another_eof: [], [cut(9)], |b| put(b, 40, &[8]), "truncate record does not fit";
        truncate_with_a_segment: [], [cut(9)], |b| put(b, ALONE + 2, &[1]), "segment or a count";
        truncate_with_a_count: [], [cut(9)], |b| put(b, ALONE + 4, &[1]), "segment or a count";
        truncate_younger_than_its_block: [], [cut(9)], |b| put(b, ALONE + 16, &[43]), "younger";
        run_younger_than_its_block: [SEGMENT], [run(0)], |b| put(b, FIRST + 48, &[43]), "younger";
        run_in_no_listed_segment: [SEGMENT], [run(0)], |b| put(b, FIRST + 2, &[1]), "does not list";
        run_of_another_length: [SEGMENT], [run(0)], |b| {
            b.extend([0; 8]);
            put(b, FIRST + 1, &[8]);
        }, "wrong length";
        run_that_says_it_is_a_hole: [SEGMENT], [run(0)], |b| put(b, FIRST, &[4]), "wrong length";
        hole_of_no_bytes: [], [hole(0)], |b| put(b, ALONE + 16, &[0]), "range";
        hole_past_eof: [], [hole(0)], |b| put(b, ALONE + 16, &[4]), "range";
        hole_past_the_last_offset: [], [hole(0)], |b| {
            put(b, ALONE + 15, &[0x80]);
            put(b, 40, &[0xff; 8]);
        }, "range";
        hole_with_a_segment: [], [hole(0)], |b| put(b, ALONE + 2, &[1]), "segment or a count";
        hole_with_a_count: [], [hole(0)], |b| put(b, ALONE + 4, &[1]), "segment or a count";
        hole_younger_than_its_block: [], [hole(0)], |b| put(b, ALONE + 32, &[43]), "younger";
        flag_1_with_a_hole: [], [hole(0)], |b| put(b, 58, &[1]), "not one truncate";
        eof_past_the_holes: [], [hole(0)], |b| put(b, 40, &[4]), "eof";
        run_that_says_it_is_a_nest: [SEGMENT], [run(0)], |b| put(b, FIRST, &[3]), "wrong length";
        nest_of_one_run: [SEGMENT], [nest()], |b| put(b, FIRST + 72, &[1]), "nest";
        nest_of_no_plane: [SEGMENT], [nest()], |b| put(b, FIRST + 76, &[0]), "nest";
        nest_whose_runs_could_overlap: [SEGMENT], [nest()], |b| put(b, FIRST + 56, &[29]), "nest";
        nest_past_eof: [SEGMENT], [nest()], |b| put(b, FIRST + 76, &[3]), "nest";
        nest_of_too_many_runs: [SEGMENT], [nest()], |b| put(b, FIRST + 72, &[0, 0, 2]), "nest";
        record_of_no_length: [SEGMENT], [run(0)], |b| put(b, FIRST, &[200, 0]), "inside a record";
        records_that_do_not_fill_the_payload: [SEGMENT], [run(0)], |b| b.extend([200, 1, 0, 0, 0, 0, 0, 0]), "goes on behind";
        more_records_than_the_payload: [SEGMENT], [run(0)], |b| put(b, 52, &[2]), "inside a record";
        stream_without_a_name: [SEGMENT], [run(0)], |b| put(b, HEADER_BYTES + 9, &[1]), "stream";
    }

    /// What later versions may add is told from damage: FORMAT.md section 9.
    #[test]
    fn what_is_not_known_needs_a_newer_plfs() {
        let changes: [(usize, u8); 9] = [
            (58, 4),
            (59, 0x80),
            (HEADER_BYTES + 12, 1),
            (HEADER_BYTES + 12, 2),
            (HEADER_BYTES + 12, 255),
            (HEADER_BYTES + 13, 1),
            (FIRST, 0),
            (FIRST, 5),
            (FIRST, 127),
        ];
        for (at, value) in changes {
            let bad = after(&[SEGMENT], &[run(0)], |b| b[at] = value).unwrap_err();
            assert!(
                bad.newer && bad.what.contains("this version does not know"),
                "{at} {value}: {bad}"
            );
        }
        assert!(!after(&[SEGMENT], &[run(0)], |b| b[40] = 9).unwrap_err().newer);
    }

    #[test]
    fn any_backend_and_segment_can_be_named() {
        let at = SegmentRef { set: u32::MAX, stream: 255, segment: SEGMENT_MAX, backend: 0xfffe };
        assert_eq!(decode(&encode(0, 42, &[at], &[run(0)]), 0).unwrap().unwrap().segments, [at]);
    }

    #[test]
    fn a_block_says_what_was_durable() {
        let append =
            |durable, is_data_durable| Append { offset: 640, stamp: 42, durable, is_data_durable };
        for (durable, is_data_durable, found) in [
            (0, false, 0),
            (64, true, 64),
            (639, true, 576),
            (640, false, 640),
            (1 << 40, true, 640),
        ] {
            let bytes =
                encode_block(LOG, append(durable, is_data_durable), &[SEGMENT], &[run(0)]).unwrap();
            let header = decode(&bytes, 640).unwrap().unwrap().header;
            assert_eq!((header.durable, header.is_data_durable), (found, is_data_durable));
        }
        let far = Append { offset: 1 << 40, durable: 1 << 40, ..append(0, false) };
        let bytes = encode_block(LOG, far, &[SEGMENT], &[run(0)]).unwrap();
        assert_eq!(
            decode(&bytes, 1 << 40).unwrap().unwrap().header.durable,
            u64::from(u32::MAX) * ALIGN
        );
    }

    /// A header that is right by itself is believed, whatever became of the payload; one that only
    /// looks like a header is not.
    #[test]
    fn a_header_is_right_or_not_by_itself() {
        let bytes = encode(0, 42, &[SEGMENT], &sample());
        let header = header_at(LOG, 0, &bytes[..HEADER_BYTES]).unwrap();
        assert_eq!((header.bytes(), header.hlc), (used(&bytes), 42));
        let mut hurt = bytes.clone();
        hurt[100] ^= 1;
        assert_eq!(
            (header_at(LOG, 0, &hurt), block_at(LOG, 0, &hurt)),
            (Some(header), At::Nothing)
        );
        let mut long = bytes[..HEADER_BYTES].to_vec();
        put(&mut long, 12, &(PAYLOAD_MAX as u32 + 1).to_le_bytes());
        seal(&mut long);
        assert_eq!(header_at(LOG, 0, &long), None);
        assert!((0..HEADER_BYTES).all(|n| header_at(LOG, 0, &bytes[..n]).is_none()));
    }

    /// Every beginning of an append is torn, alone or with what the next append padded it with;
    /// every flipped bit of a whole block is damage.
    #[test]
    fn beginnings_are_torn_and_flipped_bits_are_damage() {
        let records: Vec<Record> = (0..30)
            .map(|i| run(i * 10))
            .chain([Record::Hole { logical: 1 << 20, length: 1, writer: 1, stamp: u64::MAX }])
            .collect();
        let bytes = encode(640, u64::MAX, &[SEGMENT], &records);
        let used = used(&bytes);
        let verdict = |piece: &[u8]| skip_decisions(LOG, 640, piece);
        for len in 1..used {
            let mut piece = bytes[..len].to_vec();
            assert_eq!(verdict(&piece), [(640, len, true)], "{len} bytes");
            piece.resize(align_up(len as u64) as usize, 0);
            // Without its last byte alone a block cannot be told from a damaged one.
            assert_eq!(
                verdict(&piece),
                [(640, piece.len(), len + 1 != used)],
                "{len} bytes, padded"
            );
        }
        for bit in 0..used * 8 {
            let mut hurt = bytes.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verdict(&hurt), [(640, hurt.len(), false)], "bit {bit}");
        }
        // A power cut took a sector: the file's, not the block's.
        for sector in [0..384, 384..896, 896..1408] {
            let mut torn = bytes.clone();
            torn[sector.clone()].fill(0);
            assert_eq!(verdict(&torn), [(640, torn.len(), true)], "{sector:?}");
            torn[1] ^= 1;
            assert_eq!(verdict(&torn), [(640, torn.len(), false)], "{sector:?}, and damaged");
        }
        let mut two = bytes.clone();
        two.extend_from_slice(
            &encode(640 + bytes.len() as u64, 1 << 60, &[SEGMENT], &records)[..100],
        );
        two[70] ^= 1;
        assert_eq!(
            verdict(&two),
            [(640, bytes.len(), false), (640 + bytes.len() as u64, 100, true)],
            "damage in front does not hide what is behind it"
        );
    }

    /// A crash cut an append, and a crash cut the next one, inside its header: the second beginning
    /// was taken for bytes behind the first, which made damage of both, and EIO of the file.
    #[test]
    fn a_cut_header_behind_a_cut_header_is_torn() {
        let bytes = encode(640, 1 << 60, &[SEGMENT], &[run(0)]);
        for first in 1..used(&bytes) - 1 {
            let padded = align_up(first as u64) as usize;
            let behind = encode(640 + padded as u64, 1 << 60, &[SEGMENT], &[run(0)]);
            for second in 1..used(&behind) - 1 {
                let mut torn = bytes[..first].to_vec();
                torn.resize(padded, 0);
                torn.extend_from_slice(&behind[..second]);
                let expect = [(640, padded, true), (640 + padded as u64, second, true)];
                assert_eq!(skip_decisions(LOG, 640, &torn), expect, "{first} and {second} bytes");
            }
        }
    }

    #[test]
    fn a_truncate_is_alone() {
        let run = Record::Run {
            logical: 0,
            length: 3,
            stride: 0,
            count: 1,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        };
        assert!(
            encode_block(
                LOG,
                Append::default(),
                &[SEGMENT],
                &[Record::Truncate { size: 1, stamp: 1 }, run]
            )
            .is_err()
        );
        let bytes = encode(0, 1, &[], &[Record::Truncate { size: 77, stamp: 1 }]);
        assert_eq!(
            decode(&bytes, 0).unwrap().unwrap().records,
            [(0, Record::Truncate { size: 77, stamp: 1 })]
        );
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
