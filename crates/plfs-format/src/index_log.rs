//! Blocks and records of an index log (FORMAT.md section 3).

use crate::bytes::{Fields, put};
use crate::name::SegmentRef;
use crate::{Bad, MAX_OFFSET, Uuid, crc};

/// Blocks start at multiples of this.
pub const ALIGN: u64 = 64;
/// Bytes of a block header.
pub const HEADER_BYTES: usize = 64;
/// A block's payload is at most this long, so that damaged lengths cannot make a reader allocate much.
pub const PAYLOAD_MAX: usize = 16 << 20;
/// Bytes of a run record.
pub const RUN_BYTES: usize = 56;
/// Bytes of a nest record.
pub const NEST_BYTES: usize = 80;
/// Runs of a nest at most.
pub const NEST_RUNS_MAX: u32 = 1 << 16;
/// Runs of all nests of a block at most, so that damaged counts cannot make a reader allocate much.
pub const BLOCK_NEST_RUNS_MAX: u32 = 1 << 20;
/// Bytes of a hole record.
pub const HOLE_BYTES: usize = 40;
/// Bytes of a truncate record.
pub const TRUNCATE_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"PLIX";
const REF_BYTES: usize = 16;
const FLAG_TRUNCATE: u16 = 1;
/// The largest segment: its name has four hex digits.
pub const SEGMENT_MAX: u32 = 0xffff;

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
    /// `count` pieces: piece i covers `[logical + i*stride, … + length)` and lies at `physical + i*length` of segment reference `segment`.
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
        /// How the run recurs: the second repeats what the first makes of it. Such a run is written as a nest; decoding gives each run of a nest as a record of its own.
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
        /// Host name.
        host: String,
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
    segments: u16,
    payload_bytes: u32,
}

/// A block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Header.
    pub header: Header,
    /// What runs' segment numbers mean.
    pub segments: Vec<SegmentRef>,
    /// The records in order; unknown kinds from 128 on are left out but keep their position, so the position in the block is given with each. The runs of a nest have its position.
    pub records: Vec<(u32, Record)>,
}

/// Where an index log belongs; blocks that say otherwise are not valid. And what its superblock says about segments; blocks that name others are corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId {
    /// The container.
    pub uuid: Uuid,
    /// The log set.
    pub set: u32,
    /// Streams that a log set may have.
    pub streams: u16,
    /// Number of backends, at least 1.
    pub backends: u16,
}

/// Encodes one block for offset `offset` of its log, padded to [`ALIGN`].
///
/// Errors if records and references are more than [`PAYLOAD_MAX`] bytes, or a truncate is not alone (writer records may be with it).
pub fn encode_block(log: LogId, offset: u64, hlc: u64, segments: &[SegmentRef], records: &[Record]) -> Result<Vec<u8>, Bad> {
    let bad = |what| Err(Bad { at_bytes: offset, what });
    let mut out = vec![0; HEADER_BYTES];
    for at in segments {
        let mut field = [0; REF_BYTES];
        put(&mut field, 0, &at.set.to_le_bytes());
        put(&mut field, 4, &at.stream.to_le_bytes());
        put(&mut field, 6, &at.backend.to_le_bytes());
        put(&mut field, 8, &at.segment.to_le_bytes());
        out.extend_from_slice(&field);
    }
    let (mut eof, mut truncates, mut runs, mut nested) = (0, 0, 0, 0);
    for record in records {
        match record {
            Record::Run { logical, length, stride, count, segment, physical, writer, stamp, repeat } => {
                let [inner, outer] = *repeat;
                let Some(end) = nest_end(*logical, *length, *stride, *count, *physical, *repeat) else { return bad("a run leaves the file's range") };
                eof = end.max(eof);
                runs += 1;
                let is_nest = inner.count > 1;
                let mut field = vec![0; if is_nest { NEST_BYTES } else { RUN_BYTES }];
                field[0] = if is_nest { 3 } else { 1 };
                field[1] = (field.len() / 8) as u8;
                put(&mut field, 2, &segment.to_le_bytes());
                put(&mut field, 4, &count.to_le_bytes());
                put(&mut field, 8, &logical.to_le_bytes());
                put(&mut field, 16, &length.to_le_bytes());
                put(&mut field, 24, &stride.to_le_bytes());
                put(&mut field, 32, &physical.to_le_bytes());
                put(&mut field, 40, &writer.to_le_bytes());
                put(&mut field, 48, &stamp.to_le_bytes());
                if is_nest {
                    nested += inner.count * outer.count;
                    if nested > BLOCK_NEST_RUNS_MAX {
                        return bad("the nests of a block have too many runs");
                    }
                    put(&mut field, 56, &inner.stride.to_le_bytes());
                    put(&mut field, 64, &outer.stride.to_le_bytes());
                    put(&mut field, 72, &inner.count.to_le_bytes());
                    put(&mut field, 76, &outer.count.to_le_bytes());
                }
                out.extend_from_slice(&field);
            }
            Record::Hole { logical, length, writer, stamp } => {
                let Some(end) = run_end(*logical, *length, 0, 1, 0) else { return bad("a hole leaves the file's range") };
                eof = end.max(eof);
                runs += 1;
                let mut field = [0; HOLE_BYTES];
                field[0] = 4;
                field[1] = (HOLE_BYTES / 8) as u8;
                put(&mut field, 8, &logical.to_le_bytes());
                put(&mut field, 16, &length.to_le_bytes());
                put(&mut field, 24, &writer.to_le_bytes());
                put(&mut field, 32, &stamp.to_le_bytes());
                out.extend_from_slice(&field);
            }
            Record::Truncate { size, stamp } => {
                eof = *size;
                truncates += 1;
                let mut field = [0; TRUNCATE_BYTES];
                field[0] = 2;
                field[1] = (TRUNCATE_BYTES / 8) as u8;
                put(&mut field, 8, &size.to_le_bytes());
                put(&mut field, 16, &stamp.to_le_bytes());
                out.extend_from_slice(&field);
            }
            Record::Writer { writer, pid, uid, attached_ns, host } => {
                let host = &host.as_bytes()[..host.len().min(255)];
                let len = (34 + host.len()).next_multiple_of(8);
                let mut field = vec![0; len];
                field[0] = 128;
                field[1] = (len / 8) as u8;
                put(&mut field, 8, &writer.to_le_bytes());
                put(&mut field, 12, &pid.to_le_bytes());
                put(&mut field, 16, &uid.to_le_bytes());
                put(&mut field, 24, &attached_ns.to_le_bytes());
                put(&mut field, 32, &(host.len() as u16).to_le_bytes());
                put(&mut field, 34, host);
                out.extend_from_slice(&field);
            }
        }
    }
    if truncates > 0 && (truncates > 1 || runs > 0) {
        return bad("a truncate shares its block");
    }
    let payload = out.len() - HEADER_BYTES;
    if payload > PAYLOAD_MAX || segments.len() > u16::MAX as usize {
        return bad("the block is too long");
    }
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &(payload as u32).to_le_bytes());
    put(&mut out, 12, &log.set.to_le_bytes());
    put(&mut out, 16, &log.uuid.low().to_le_bytes());
    put(&mut out, 24, &hlc.to_le_bytes());
    put(&mut out, 40, &offset.to_le_bytes());
    put(&mut out, 48, &eof.to_le_bytes());
    put(&mut out, 56, &(records.len() as u32).to_le_bytes());
    put(&mut out, 60, &(segments.len() as u16).to_le_bytes());
    put(&mut out, 62, &(if truncates > 0 { FLAG_TRUNCATE } else { 0 }).to_le_bytes());
    let sum = crc(&out[8..]);
    put(&mut out, 4, &sum.to_le_bytes());
    out.resize(align_up(out.len() as u64) as usize, 0);
    Ok(out)
}

/// One past the last logical byte of a run, or `None` if it breaks an invariant of section 3.
pub fn run_end(logical: u64, length: u64, stride: i64, count: u32, physical: u64) -> Option<u64> {
    let steps = u64::from(count.checked_sub(1)?);
    if length == 0 || (steps == 0) != (stride == 0) || (steps > 0 && stride.unsigned_abs() < length) {
        return None;
    }
    let reach = stride.unsigned_abs().checked_mul(steps)?;
    let last = if stride < 0 { logical.checked_sub(reach).map(|_| logical)? } else { logical.checked_add(reach)? };
    let end = last.checked_add(length)?;
    let physical_end = length.checked_mul(u64::from(count))?.checked_add(physical)?;
    (end <= MAX_OFFSET && physical_end <= MAX_OFFSET).then_some(end)
}

/// [`run_end`] of a run that recurs, or `None` if it breaks an invariant of section 3: then a run in it would leave the file's range, pieces could overlap, or there are too many.
pub fn nest_end(logical: u64, length: u64, stride: i64, count: u32, physical: u64, repeat: [Repeat; 2]) -> Option<u64> {
    let [inner, outer] = repeat;
    if repeat.iter().any(|repeat| repeat.count == 0 || (repeat.count == 1) != (repeat.stride == 0)) || (outer.count > 1 && inner.count == 1) {
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
    let bytes = length.checked_mul(count.into())?.checked_mul((inner.count * outer.count).into())?;
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

/// Looks for a block at the start of `bytes`, which lie at `offset` of `log`. Checks the CRC over the whole block, so `bytes` must reach to its end.
pub fn block_at(log: LogId, offset: u64, bytes: &[u8]) -> At {
    if bytes.len() < HEADER_BYTES || bytes[..4] != MAGIC {
        return At::Nothing;
    }
    let fields = Fields(bytes);
    let payload = fields.u32(8) as usize;
    let fits = payload <= PAYLOAD_MAX && bytes.len() >= HEADER_BYTES + payload;
    if !fits || fields.u32(12) != log.set || fields.u64(16) != log.uuid.low() || fields.u64(40) != offset {
        return At::Nothing;
    }
    if fields.u32(4) != crc(&bytes[8..HEADER_BYTES + payload]) {
        return At::Nothing;
    }
    At::Block(Header {
        hlc: fields.u64(24),
        eof: fields.u64(48),
        truncates: fields.u16(62) & FLAG_TRUNCATE != 0,
        records: fields.u32(56),
        block_bytes: align_up((HEADER_BYTES + payload) as u64),
        segments: fields.u16(60),
        payload_bytes: payload as u32,
    })
}

/// Decodes the records of a block of `log` whose header [`block_at`] found at the start of `bytes`, which lie at `offset`.
///
/// An error means that a block with a right CRC contradicts the document: corruption or a newer format, never a torn write. What it cannot see is whether the block is
/// younger than the one before it.
pub fn decode_block(log: LogId, header: Header, offset: u64, bytes: &[u8]) -> Result<Block, Bad> {
    let bad = |at: usize, what| Err(Bad { at_bytes: offset + (HEADER_BYTES + at) as u64, what });
    let payload = &bytes[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize];
    let table = header.segments as usize * REF_BYTES;
    if payload.len() < table {
        return bad(0, "the block ends inside its segment references");
    }
    let segments = payload[..table]
        .chunks_exact(REF_BYTES)
        .map(|chunk| {
            let fields = Fields(chunk);
            SegmentRef { set: fields.u32(0), stream: fields.u16(4), backend: fields.u16(6), segment: fields.u32(8) }
        })
        .collect::<Vec<_>>();
    let fits = |at: &SegmentRef| {
        let backend = (u64::from(at.set) + u64::from(at.stream)) % u64::from(log.backends.max(1));
        at.stream < log.streams && at.segment <= SEGMENT_MAX && u64::from(at.backend) == backend
    };
    if let Some(wrong) = segments.iter().position(|at| !fits(at)) {
        return bad(wrong * REF_BYTES, "a segment reference names a segment that its superblock does not allow");
    }
    if Fields(bytes).u64(32) != 0 || Fields(bytes).u16(62) & !FLAG_TRUNCATE != 0 {
        return bad(0, "the block has a version or flags that this version does not know");
    }
    let mut records = Vec::new();
    let (mut at, mut eof, mut runs, mut truncates, mut nested) = (table, 0, 0, 0, 0);
    for position in 0..header.records {
        let rest = &payload[at..];
        let len = rest.get(1).map_or(0, |units| *units as usize * 8);
        if len < 8 || rest.len() < len {
            return bad(at, "the block ends inside a record");
        }
        let fields = Fields(&rest[..len]);
        match rest[0] {
            1 if len == RUN_BYTES => {
                let (logical, length, stride, count, physical) = (fields.u64(8), fields.u64(16), fields.i64(24), fields.u32(4), fields.u64(32));
                match run_end(logical, length, stride, count, physical) {
                    Some(end) if end <= header.eof => eof = end.max(eof),
                    _ => return bad(at, "a run leaves the file's range"),
                }
                runs += 1;
                if fields.u64(48) > header.hlc {
                    return bad(at, "a record is younger than its block");
                }
                if fields.u16(2) >= header.segments {
                    return bad(at, "a run names a segment that the block does not list");
                }
                let (segment, writer, stamp) = (fields.u16(2), fields.u32(40), fields.u64(48));
                records.push((position, Record::Run { logical, length, stride, count, segment, physical, writer, stamp, repeat: [Repeat::ONCE; 2] }));
            }
            3 if len == NEST_BYTES => {
                let (logical, length, stride, count, physical) = (fields.u64(8), fields.u64(16), fields.i64(24), fields.u32(4), fields.u64(32));
                let repeat = [Repeat { stride: fields.i64(56), count: fields.u32(72) }, Repeat { stride: fields.i64(64), count: fields.u32(76) }];
                let [inner, outer] = repeat;
                match nest_end(logical, length, stride, count, physical, repeat) {
                    Some(end) if end <= header.eof && inner.count > 1 => eof = end.max(eof),
                    _ => return bad(at, "a nest leaves the file's range, or its pieces could overlap"),
                }
                runs += 1;
                nested += inner.count * outer.count;
                if nested > BLOCK_NEST_RUNS_MAX {
                    return bad(at, "the nests of a block have too many runs");
                }
                if fields.u64(48) > header.hlc {
                    return bad(at, "a record is younger than its block");
                }
                if fields.u16(2) >= header.segments {
                    return bad(at, "a run names a segment that the block does not list");
                }
                let (segment, writer, stamp) = (fields.u16(2), fields.u32(40), fields.u64(48));
                for i in 0..outer.count * inner.count {
                    let moved = i64::from(i / inner.count) * outer.stride + i64::from(i % inner.count) * inner.stride;
                    let (logical, physical) = (logical.wrapping_add_signed(moved), physical + u64::from(i) * length * u64::from(count));
                    records.push((position, Record::Run { logical, length, stride, count, segment, physical, writer, stamp, repeat: [Repeat::ONCE; 2] }));
                }
            }
            2 if len == TRUNCATE_BYTES => {
                if !header.truncates || fields.u64(8) > MAX_OFFSET || fields.u64(8) != header.eof {
                    return bad(at, "a truncate record does not fit its block's header");
                }
                if fields.u16(2) != 0 || fields.u32(4) != 0 {
                    return bad(at, "a truncate record has a segment or a count");
                }
                (eof, truncates) = (header.eof, truncates + 1);
                if fields.u64(16) > header.hlc {
                    return bad(at, "a record is younger than its block");
                }
                records.push((position, Record::Truncate { size: fields.u64(8), stamp: fields.u64(16) }));
            }
            4 if len == HOLE_BYTES => {
                let (logical, length, writer, stamp) = (fields.u64(8), fields.u64(16), fields.u32(24), fields.u64(32));
                match run_end(logical, length, 0, 1, 0) {
                    Some(end) if end <= header.eof => eof = end.max(eof),
                    _ => return bad(at, "a hole leaves the file's range"),
                }
                runs += 1;
                if fields.u16(2) != 0 || fields.u32(4) != 0 {
                    return bad(at, "a hole record has a segment or a count");
                }
                if stamp > header.hlc {
                    return bad(at, "a record is younger than its block");
                }
                records.push((position, Record::Hole { logical, length, writer, stamp }));
            }
            128 if len >= 40 => {
                let Some(host) = rest[34..len].get(..fields.u16(32) as usize) else { return bad(at, "a writer record ends inside its host name") };
                let host = String::from_utf8_lossy(host).into_owned();
                records.push((position, Record::Writer { writer: fields.u32(8), pid: fields.u32(12), uid: fields.u32(16), attached_ns: fields.u64(24), host }));
            }
            1..=4 | 128 => return bad(at, "a record has the wrong length for its kind"),
            kind if kind < 128 => return bad(at, "a record of a kind that this version does not know"),
            _ => {}
        }
        at += len;
    }
    if at != payload.len() {
        return bad(at, "the payload goes on behind the last record");
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

    const LOG: LogId = LogId { uuid: Uuid([3; 16]), set: 0x0bad_cafe, streams: 4, backends: 1 };
    const SEGMENT: SegmentRef = SegmentRef { set: 0x0bad_cafe, stream: 0, segment: 0, backend: 0 };

    fn sample() -> Vec<Record> {
        vec![
            Record::Writer { writer: 5, pid: 6, uid: 7, attached_ns: 8, host: "node1".into() },
            Record::Run { logical: 0, length: 3, stride: 10, count: 3, segment: 0, physical: 0, writer: 5, stamp: 41, repeat: [Repeat::ONCE; 2] },
            Record::Run { logical: 100, length: 3, stride: -10, count: 4, segment: 0, physical: 9, writer: 5, stamp: 41, repeat: [Repeat::ONCE; 2] },
        ]
    }

    fn decode(bytes: &[u8], offset: u64) -> Option<Result<Block, Bad>> {
        match block_at(LOG, offset, bytes) {
            At::Block(header) => Some(decode_block(LOG, header, offset, bytes)),
            At::Nothing => None,
        }
    }

    #[test]
    fn round_trip() {
        let bytes = encode_block(LOG, 128, 42, &[SEGMENT], &sample()).unwrap();
        assert_eq!(bytes.len() % ALIGN as usize, 0);
        let block = decode(&bytes, 128).unwrap().unwrap();
        assert_eq!((block.header.hlc, block.header.eof, block.header.block_bytes), (42, 103, bytes.len() as u64));
        assert_eq!(block.records.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), sample());
        assert_eq!(decode(&bytes, 64), None, "a block belongs to its place");
    }

    #[test]
    fn the_worked_example_of_the_document() {
        let run = Record::Run { logical: 0, length: 3, stride: 10, count: 3, segment: 0, physical: 0, writer: 0, stamp: 1, repeat: [Repeat::ONCE; 2] };
        let bytes = encode_block(LOG, 0, 1, &[SEGMENT], &[run]).unwrap();
        assert_eq!(bytes[64..80], [0xfe, 0xca, 0xad, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], [1, 7, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = encode_block(LOG, 0, 42, &[SEGMENT], &sample()).unwrap();
        let used = HEADER_BYTES + Fields(&bytes).u32(8) as usize;
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
        let bytes = encode_block(LOG, 0, 42, &[SEGMENT], &sample()).unwrap();
        let used = HEADER_BYTES + Fields(&bytes).u32(8) as usize;
        for at in 24..used {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut hurt = bytes.clone();
                hurt[at] = value;
                let sum = crc(&hurt[8..used]);
                put(&mut hurt, 4, &sum.to_le_bytes());
                if let Some(Ok(block)) = decode(&hurt, 0) {
                    for (_, record) in block.records {
                        if let Record::Run { logical, length, stride, count, physical, segment, .. } = record {
                            assert!(run_end(logical, length, stride, count, physical).is_some() && segment == 0);
                        }
                    }
                }
            }
        }
    }

    fn run(logical: u64) -> Record {
        Record::Run { logical, length: 3, stride: 0, count: 1, segment: 0, physical: 0, writer: 0, stamp: 1, repeat: [Repeat::ONCE; 2] }
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
        Record::Run { logical: 7, length: 3, stride: 9, count: 4, segment: 0, physical: 100, writer: 0, stamp: 1, repeat }
    }

    #[test]
    fn a_hole_is_40_bytes_beside_runs() {
        let records = [run(9), hole(700), run(90)];
        let bytes = encode_block(LOG, 0, 42, &[SEGMENT], &records).unwrap();
        let block = decode(&bytes, 0).unwrap().unwrap();
        assert_eq!((block.header.eof, block.header.payload_bytes as usize), (703, REF_BYTES + 2 * RUN_BYTES + 40));
        assert_eq!(block.records.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), records);
        let at = FIRST + RUN_BYTES;
        assert_eq!(
            bytes[at..at + 40],
            [[4, 5, 0, 0, 0, 0, 0, 0], 700u64.to_le_bytes(), 3u64.to_le_bytes(), [5, 0, 0, 0, 0, 0, 0, 0], 1u64.to_le_bytes()].concat()
        );
    }

    #[test]
    fn a_nest_is_the_runs_in_it() {
        let bytes = encode_block(LOG, 0, 42, &[SEGMENT], &[nest(), run(9)]).unwrap();
        let block = decode(&bytes, 0).unwrap().unwrap();
        assert_eq!((block.header.records, block.header.eof, block.records.len()), (2, 7 + 200 + 80 + 27 + 3, 7));
        let found: Vec<(u32, u64, u64, u32)> = block.records[..6]
            .iter()
            .map(|(position, record)| match record {
                Record::Run { logical, physical, count, .. } => (*position, *logical, *physical, *count),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, [(0, 7, 100, 4), (0, 47, 112, 4), (0, 87, 124, 4), (0, 207, 136, 4), (0, 247, 148, 4), (0, 287, 160, 4)]);
        assert_eq!(block.records[6], (1, run(9)));
    }

    #[test]
    fn nests_stay_in_range_and_do_not_overlap() {
        let repeat = |stride, count| Repeat { stride, count };
        let end = |logical, stride, inner, outer| nest_end(logical, 3, stride, 4, 0, [inner, outer]);
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

    /// What the engine says to a block of `records` that was changed by hand and has a right checksum.
    fn after(segments: &[SegmentRef], records: &[Record], change: impl FnOnce(&mut Vec<u8>)) -> Result<Block, Bad> {
        let mut bytes = encode_block(LOG, 0, 42, segments, records).unwrap();
        let used = HEADER_BYTES + Fields(&bytes).u32(8) as usize;
        bytes.truncate(used);
        change(&mut bytes);
        let payload = (bytes.len() - HEADER_BYTES) as u32;
        put(&mut bytes, 8, &payload.to_le_bytes());
        let sum = crc(&bytes[8..]);
        put(&mut bytes, 4, &sum.to_le_bytes());
        decode(&bytes, 0).expect("the checksum is right")
    }

    /// The first record of a block with one reference, and of a block with none.
    const FIRST: usize = HEADER_BYTES + REF_BYTES;
    const ALONE: usize = HEADER_BYTES;

    /// A test for each block that contradicts section 3 of the document. `tests/decoder/agree.py` asks both readers about the same blocks.
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
        eof_past_the_runs: [SEGMENT], [run(0)], |b| put(b, 48, &[4]), "eof";
        eof_without_records: [], [], |b| put(b, 48, &[1]), "eof";
        run_past_eof: [SEGMENT], [run(0)], |b| put(b, 48, &[2]), "range";
        version_1: [SEGMENT], [run(0)], |b| put(b, 32, &[1]), "version";
        flag_2: [SEGMENT], [run(0)], |b| put(b, 62, &[2]), "flags";
        flag_1_without_a_truncate: [], [], |b| put(b, 62, &[1]), "not one truncate";
        flag_1_with_a_run: [SEGMENT], [run(0)], |b| put(b, 62, &[1]), "not one truncate";
        truncate_beside_a_run: [], [cut(9)], |b| {
            let one = encode_block(LOG, 0, 42, &[SEGMENT], &[run(0)]).unwrap();
            b.splice(ALONE..ALONE, one[HEADER_BYTES..FIRST + RUN_BYTES].iter().copied());
            put(b, 56, &[2, 0, 0, 0, 1]);
        }, "not one truncate";
        two_truncates: [], [cut(9)], |b| {
            b.extend_from_within(ALONE..);
            put(b, 56, &[2]);
        }, "not one truncate";
        truncate_without_flag_1: [], [cut(9)], |b| put(b, 62, &[0]), "truncate record does not fit";
        truncate_with_another_eof: [], [cut(9)], |b| put(b, 48, &[8]), "truncate record does not fit";
        truncate_with_a_segment: [], [cut(9)], |b| put(b, ALONE + 2, &[1]), "segment or a count";
        truncate_with_a_count: [], [cut(9)], |b| put(b, ALONE + 4, &[1]), "segment or a count";
        truncate_younger_than_its_block: [], [cut(9)], |b| put(b, ALONE + 16, &[43]), "younger";
        run_younger_than_its_block: [SEGMENT], [run(0)], |b| put(b, FIRST + 48, &[43]), "younger";
        run_in_no_listed_segment: [SEGMENT], [run(0)], |b| put(b, FIRST + 2, &[1]), "does not list";
        run_of_another_length: [SEGMENT], [run(0)], |b| {
            b.extend([0; 8]);
            put(b, FIRST + 1, &[8]);
        }, "wrong length";
        record_of_kind_5: [SEGMENT], [run(0)], |b| put(b, FIRST, &[5]), "kind";
        run_that_says_it_is_a_hole: [SEGMENT], [run(0)], |b| put(b, FIRST, &[4]), "wrong length";
        hole_of_no_bytes: [], [hole(0)], |b| put(b, ALONE + 16, &[0]), "range";
        hole_past_eof: [], [hole(0)], |b| put(b, ALONE + 16, &[4]), "range";
        hole_past_the_last_offset: [], [hole(0)], |b| {
            put(b, ALONE + 15, &[0x80]);
            put(b, 48, &[0xff; 8]);
        }, "range";
        hole_with_a_segment: [], [hole(0)], |b| put(b, ALONE + 2, &[1]), "segment or a count";
        hole_with_a_count: [], [hole(0)], |b| put(b, ALONE + 4, &[1]), "segment or a count";
        hole_younger_than_its_block: [], [hole(0)], |b| put(b, ALONE + 32, &[43]), "younger";
        flag_1_with_a_hole: [], [hole(0)], |b| put(b, 62, &[1]), "not one truncate";
        eof_past_the_holes: [], [hole(0)], |b| put(b, 48, &[4]), "eof";
        run_that_says_it_is_a_nest: [SEGMENT], [run(0)], |b| put(b, FIRST, &[3]), "wrong length";
        nest_of_one_run: [SEGMENT], [nest()], |b| put(b, FIRST + 72, &[1]), "nest";
        nest_of_no_plane: [SEGMENT], [nest()], |b| put(b, FIRST + 76, &[0]), "nest";
        nest_whose_runs_could_overlap: [SEGMENT], [nest()], |b| put(b, FIRST + 56, &[29]), "nest";
        nest_past_eof: [SEGMENT], [nest()], |b| put(b, FIRST + 76, &[3]), "nest";
        nest_of_too_many_runs: [SEGMENT], [nest()], |b| put(b, FIRST + 72, &[0, 0, 2]), "nest";
        record_of_no_length: [SEGMENT], [run(0)], |b| put(b, FIRST, &[200, 0]), "inside a record";
        records_that_do_not_fill_the_payload: [SEGMENT], [run(0)], |b| b.extend([200, 1, 0, 0, 0, 0, 0, 0]), "goes on behind";
        more_records_than_the_payload: [SEGMENT], [run(0)], |b| put(b, 56, &[2]), "inside a record";
        backend_that_the_stream_does_not_lie_on: [SEGMENT], [run(0)], |b| put(b, HEADER_BYTES + 6, &[1]), "superblock";
        stream_that_the_superblock_does_not_have: [SEGMENT], [run(0)], |b| put(b, HEADER_BYTES + 4, &[4]), "superblock";
        segment_without_a_name: [SEGMENT], [run(0)], |b| put(b, HEADER_BYTES + 8, &[0, 0, 1]), "superblock";
    }

    #[test]
    fn a_stream_lies_on_the_backend_of_its_set() {
        let log = LogId { backends: 3, ..LOG };
        for stream in 0..4 {
            for backend in 0..4 {
                let at = SegmentRef { set: u32::MAX, stream, segment: 1, backend };
                let bytes = encode_block(log, 0, 42, &[at], &[run(0)]).unwrap();
                let At::Block(header) = block_at(log, 0, &bytes) else { panic!("the checksum is right") };
                let right = (u64::from(u32::MAX) + u64::from(stream)) % 3 == u64::from(backend);
                assert_eq!(decode_block(log, header, 0, &bytes).is_ok(), right, "{at:?}");
            }
        }
    }

    #[test]
    fn a_truncate_is_alone() {
        let run = Record::Run { logical: 0, length: 3, stride: 0, count: 1, segment: 0, physical: 0, writer: 0, stamp: 1, repeat: [Repeat::ONCE; 2] };
        assert!(encode_block(LOG, 0, 1, &[SEGMENT], &[Record::Truncate { size: 1, stamp: 1 }, run]).is_err());
        let bytes = encode_block(LOG, 0, 1, &[], &[Record::Truncate { size: 77, stamp: 1 }]).unwrap();
        assert_eq!(decode(&bytes, 0).unwrap().unwrap().records, [(0, Record::Truncate { size: 77, stamp: 1 })]);
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
