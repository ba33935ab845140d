//! The flat index (FORMAT.md section 6): all index logs of a container merged, used where it lies.
//!
//! This module knows the header, the tables and the entry's layout. Looking things up in entries is the index layer's work.

use crate::bytes::{Fields, put};
use crate::index_log::ALIGN;
use crate::name::SegmentRef;
use crate::{Bad, MAX_OFFSET, Uuid, crc};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 128;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 72;
const MAGIC: [u8; 8] = *b"PLFSFLAT";

/// An index log and how much of it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Log set.
    pub set: u32,
    /// Blocks from this offset on are in: 0 in a container's flat index; more in a part that was loaded past one. A multiple of 64.
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
    pub hlc: u64,
    /// Order: log set.
    pub set: u32,
    /// Order: position.
    pub seq: u32,
    /// New size.
    pub size: u64,
}

/// Everything in a flat index but its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatIndex {
    /// Container.
    pub uuid: Uuid,
    /// Size of the logical file when it was made.
    pub size: u64,
    /// Records merged, of all kinds.
    pub records: u64,
    /// Largest stamp merged.
    pub max_hlc: u64,
    /// What is merged.
    pub covered: Vec<Covered>,
    /// What entries' segment numbers mean.
    pub segments: Vec<Segment>,
    /// Truncates in order.
    pub truncates: Vec<Truncate>,
    /// Number of entries.
    pub entries: u64,
    /// Offset of the first entry in the file.
    pub entries_at: usize,
    /// A checksum of everything in it, by which a summary names it: bytes 8 to 11 of the file.
    pub id: u32,
}

/// Encodes a whole flat index file around entries that are already in their stored form (`entries.len()` is a multiple of [`ENTRY_BYTES`]).
/// `flat.entries`, `flat.entries_at` and `flat.id` are ignored.
pub fn encode(flat: &FlatIndex, entries: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.len() + 16 * flat.covered.len() + 24 * flat.segments.len() + 24 * flat.truncates.len());
    for covered in &flat.covered {
        body.extend_from_slice(&covered.set.to_le_bytes());
        body.extend_from_slice(&((covered.from / ALIGN) as u32).to_le_bytes());
        body.extend_from_slice(&covered.bytes.to_le_bytes());
    }
    for Segment { at, bytes } in &flat.segments {
        body.extend_from_slice(&at.set.to_le_bytes());
        body.extend_from_slice(&at.stream.to_le_bytes());
        body.extend_from_slice(&at.backend.to_le_bytes());
        body.extend_from_slice(&at.segment.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&bytes.to_le_bytes());
    }
    for cut in &flat.truncates {
        body.extend_from_slice(&cut.hlc.to_le_bytes());
        body.extend_from_slice(&cut.set.to_le_bytes());
        body.extend_from_slice(&cut.seq.to_le_bytes());
        body.extend_from_slice(&cut.size.to_le_bytes());
    }
    body.extend_from_slice(entries);
    let mut out = vec![0; HEADER_BYTES];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 12, &crc(&body).to_le_bytes());
    put(&mut out, 16, &flat.uuid.0);
    put(&mut out, 32, &flat.size.to_le_bytes());
    put(&mut out, 40, &flat.records.to_le_bytes());
    put(&mut out, 48, &flat.max_hlc.to_le_bytes());
    put(&mut out, 56, &(flat.covered.len() as u32).to_le_bytes());
    put(&mut out, 60, &(flat.segments.len() as u32).to_le_bytes());
    put(&mut out, 64, &(flat.truncates.len() as u32).to_le_bytes());
    put(&mut out, 72, &((entries.len() / ENTRY_BYTES) as u64).to_le_bytes());
    let sum = crc(&out[12..]);
    put(&mut out, 8, &sum.to_le_bytes());
    out.extend_from_slice(&body);
    out
}

/// The [`FlatIndex::id`] of an encoded flat index of at least [`HEADER_BYTES`].
pub fn id(file: &[u8]) -> u32 {
    Fields(file).u32(8)
}

/// Decodes header and tables and verifies both checksums (one pass over the file at memory speed); entries stay where they are, and each is checked against its invariants.
pub fn decode(file: &[u8], uuid: &Uuid) -> Result<FlatIndex, Bad> {
    let bad = |at: usize, what| Err(Bad { at_bytes: at as u64, what });
    if file.len() < HEADER_BYTES || file[..8] != MAGIC {
        return bad(0, "not a flat index");
    }
    let fields = Fields(file);
    if fields.u32(8) != crc(&file[12..HEADER_BYTES]) {
        return bad(8, "the header's checksum does not match");
    }
    if file[16..32] != uuid.0 {
        return bad(16, "the flat index is of another container");
    }
    let (covered, segments, truncates, entries) = (fields.u32(56) as u64, fields.u32(60) as u64, fields.u32(64) as u64, fields.u64(72));
    let tables = HEADER_BYTES as u64 + 16 * covered + 24 * segments + 24 * truncates;
    if entries.checked_mul(ENTRY_BYTES as u64).and_then(|bytes| bytes.checked_add(tables)) != Some(file.len() as u64) {
        return bad(56, "the file's length does not match its header");
    }
    if fields.u32(12) != crc(&file[HEADER_BYTES..]) {
        return bad(12, "the checksum of the tables and entries does not match");
    }
    if fields.u64(32) > MAX_OFFSET {
        return bad(32, "the size is out of range");
    }
    let (mut at, mut flat) = (
        HEADER_BYTES,
        FlatIndex {
            uuid: *uuid,
            size: fields.u64(32),
            records: fields.u64(40),
            max_hlc: fields.u64(48),
            covered: Vec::new(),
            segments: Vec::new(),
            truncates: Vec::new(),
            entries,
            entries_at: tables as usize,
            id: id(file),
        },
    );
    for _ in 0..covered {
        flat.covered.push(Covered { set: fields.u32(at), from: u64::from(fields.u32(at + 4)) * ALIGN, bytes: fields.u64(at + 8) });
        at += 16;
    }
    for _ in 0..segments {
        let segment = SegmentRef { set: fields.u32(at), stream: fields.u16(at + 4), backend: fields.u16(at + 6), segment: fields.u32(at + 8) };
        flat.segments.push(Segment { at: segment, bytes: fields.u64(at + 16) });
        at += 24;
    }
    for _ in 0..truncates {
        flat.truncates.push(Truncate { hlc: fields.u64(at), set: fields.u32(at + 8), seq: fields.u32(at + 12), size: fields.u64(at + 16) });
        at += 24;
    }
    let lengths = flat.covered.iter().map(|covered| covered.bytes).chain(flat.segments.iter().map(|segment| segment.bytes));
    if lengths.chain(flat.truncates.iter().map(|cut| cut.size)).any(|bytes| bytes > MAX_OFFSET) {
        return bad(HEADER_BYTES, "a length in the tables is out of range");
    }
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let uuid = Uuid([1; 16]);
        let flat = FlatIndex {
            uuid,
            size: 10,
            records: 20,
            max_hlc: 30,
            covered: vec![Covered { set: 1, from: 128, bytes: 256 }],
            segments: vec![Segment { at: SegmentRef { set: 1, stream: 2, segment: 3, backend: 0 }, bytes: 8 }],
            truncates: vec![Truncate { hlc: 4, set: 5, seq: 6, size: 7 }],
            entries: 1,
            entries_at: 128 + 16 + 24 + 24,
            id: 0,
        };
        let file = encode(&flat, &[0x55; ENTRY_BYTES]);
        let flat = FlatIndex { id: id(&file), ..flat };
        assert_eq!(decode(&file, &uuid), Ok(flat));
        assert!(decode(&file, &Uuid([2; 16])).is_err());
        for bit in 0..file.len() * 8 {
            let mut hurt = file.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&hurt, &uuid).is_err(), "bit {bit}");
        }
        for len in 0..file.len() {
            assert!(decode(&file[..len], &uuid).is_err());
        }
    }

    /// Lengths past 2^63-1 overflowed where they were rounded up or added.
    #[test]
    fn lengths_out_of_range_are_refused() {
        let uuid = Uuid([1; 16]);
        let at = SegmentRef { set: 1, stream: 2, segment: 3, backend: 0 };
        let with = |covered, segment, cut| {
            let flat = FlatIndex {
                uuid,
                size: 0,
                records: 0,
                max_hlc: 0,
                covered: vec![Covered { set: 1, from: 0, bytes: covered }],
                segments: vec![Segment { at, bytes: segment }],
                truncates: vec![Truncate { hlc: 4, set: 5, seq: 6, size: cut }],
                entries: 0,
                entries_at: 0,
                id: 0,
            };
            decode(&encode(&flat, &[]), &uuid).map(drop).map_err(|bad| bad.what)
        };
        assert_eq!(with(MAX_OFFSET, MAX_OFFSET, MAX_OFFSET), Ok(()));
        for lengths in [(MAX_OFFSET + 1, 0, 0), (0, u64::MAX, 0), (0, 0, MAX_OFFSET + 1)] {
            assert_eq!(with(lengths.0, lengths.1, lengths.2), Err("a length in the tables is out of range"));
        }
    }
}
