//! Reads blocks of an index log: finds them, tells torn ones from damaged ones, and decodes their
//! records.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    ALIGN, BLOCK_NEST_RUNS_MAX, Block, FLAG_DATA_DURABLE, FLAG_TRUNCATE, HEADER_BYTES, Header,
    KIND_HOLE, KIND_NEST, KIND_RUN, KIND_SUMS, KIND_TRUNCATE, KIND_WRITER, LogId, MAGIC,
    PAYLOAD_MAX, REF_BYTES, REFERENCE_BASE, RawHeader, RawHole, RawNest, RawRecord, RawReference,
    RawRun, RawSums, RawTruncate, RawWriter, Record, Repeat, RunRecord, SUMMED_AT, align_up,
    are_sums_valid, run_end,
};
use crate::name::{BACKEND_MAX, SegmentRef};
use crate::{Bad, MAX_OFFSET, crc};

/// Streams that a reference can name: two hex digits.
const STREAMS_MAX: u16 = 256;

/// What stands at one place of an index log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A valid block.
    Block(Header),
    /// No valid block starts here: torn, damaged, or not there yet.
    Nothing,
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
        stamp: raw.stamp.get(),
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

impl RawRun {
    fn decoded(&self, repeat: [Repeat; 2]) -> RunRecord {
        RunRecord {
            logical: self.logical.get(),
            length: self.length.get(),
            stride: self.stride.get(),
            count: self.record.count.get(),
            segment: self.record.segment.get(),
            physical: self.physical.get(),
            writer: self.writer.get(),
            stamp: self.stamp.get(),
            repeat,
        }
    }
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
    header.must_be_known(offset)?;
    let payload = &bytes[HEADER_BYTES..header.bytes()];
    let (segments, records_part) = decode_references(payload, header.references.into(), place(0))?;
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
        let is_young = |stamp: &U64| stamp.get() > header.stamp;
        let names_none = head.segment == 0 && head.count == 0;
        // A run, alone or the first of a nest.
        let mut push_runs = |run: &RawRun, repeat: [Repeat; 2]| {
            let run = run.decoded(repeat);
            match run.end() {
                Some(end) if end <= header.eof => eof = end.max(eof),
                _ => {
                    return Err(
                        "a run or nest leaves the file's range, or its pieces could overlap",
                    );
                }
            }
            nested += if repeat[0].count > 1 { run.runs() } else { 0 };
            if nested > BLOCK_NEST_RUNS_MAX {
                return Err("the nests of a block have too many runs");
            }
            if run.stamp > header.stamp {
                return Err("a record is younger than its block");
            }
            if run.segment >= header.references {
                return Err("a run names a segment that the block does not list");
            }
            records.push((position, Record::Run(run)));
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

impl Header {
    /// Number of segment references.
    pub(crate) fn references(&self) -> u16 {
        self.references
    }

    /// Refuses what a later version may have written, and what contradicts the block's place.
    pub(crate) fn must_be_known(&self, offset: u64) -> Result<(), Bad> {
        if self.flags & !(FLAG_TRUNCATE | FLAG_DATA_DURABLE) != 0 {
            return Err(Bad::newer(
                offset + 58,
                "the block has flags that this version does not know",
            ));
        }
        if self.durable > offset {
            return Err(Bad::new(
                offset + 60,
                "the block says that data was durable which blocks behind it point to",
            ));
        }
        Ok(())
    }
}

/// The first `count` segment references of a payload that lies at `at` of its file, and the rest.
pub(crate) fn decode_references(
    payload: &[u8],
    count: usize,
    at: u64,
) -> Result<(Vec<SegmentRef>, &[u8]), Bad> {
    let Ok((table, rest)) = <[RawReference]>::ref_from_prefix_with_elems(payload, count) else {
        return Err(Bad::new(at, "the block ends inside its segment references"));
    };
    let mut segments = Vec::with_capacity(table.len());
    for (i, raw) in table.iter().enumerate() {
        let at = at + (i * REF_BYTES) as u64;
        if raw.kind == REFERENCE_BASE && raw.codec == 0 {
            if [raw.set.get(), raw.segment.get()] != [0; 2]
                || [raw.stream.get(), raw.backend.get()] != [0; 2]
            {
                return Err(Bad::new(at, "a reference to the base names a data log as well"));
            }
            segments.push(SegmentRef::BASE);
            continue;
        }
        if raw.kind != 0 || raw.codec != 0 {
            return Err(Bad::newer(
                at + 12,
                "a segment reference has a kind or codec that this version does not know",
            ));
        }
        let found = SegmentRef {
            set: raw.set.get(),
            stream: raw.stream.get(),
            segment: raw.segment.get(),
            backend: raw.backend.get(),
        };
        if found.backend > BACKEND_MAX {
            return Err(Bad::new(at + 10, "there is no backend ffff"));
        }
        if found.stream >= STREAMS_MAX {
            return Err(Bad::new(at, "a segment reference names a stream that has no name"));
        }
        segments.push(found);
    }
    Ok((segments, rest))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        FIRST, LOG, SEGMENT, decode, encode, hole, nest, put, run, sample, sums, used,
    };
    use super::super::{Append, RUN_BYTES, encode_block};
    use super::*;

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

    /// Makes both CRCs of a block that takes all of `bytes` right.
    fn seal(bytes: &mut [u8]) {
        let sum = crc(&bytes[HEADER_BYTES..]);
        put(bytes, 8, &sum.to_le_bytes());
        let sum = crc(&bytes[8..HEADER_BYTES]);
        put(bytes, 4, &sum.to_le_bytes());
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
                        if let Record::Run(run) = record {
                            assert!(run.end().is_some() && run.segment == 0);
                        }
                    }
                }
            }
        }
    }

    fn cut(size: u64) -> Record {
        Record::Truncate { size, stamp: 1 }
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
        let changes: [(usize, u8); 8] = [
            (58, 4),
            (59, 0x80),
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
    fn a_reference_to_the_base_names_no_data_log() {
        let all = [SegmentRef::BASE, SEGMENT];
        let records = [run(0), run(1)];
        assert_eq!(after(&all, &records, |_| {}).unwrap().segments, all);
        for at in [0, 4, 8, 10] {
            let bad = after(&all, &records, |b| b[HEADER_BYTES + at] = 1).unwrap_err();
            assert!(!bad.newer && bad.what.contains("names a data log as well"), "{at}: {bad}");
        }
        let bad = after(&[SEGMENT], &[run(0)], |b| b[HEADER_BYTES + 10..][..2].fill(255));
        assert!(bad.unwrap_err().what.contains("no backend ffff"));
    }

    /// A header that is right by itself is believed, whatever became of the payload; one that only
    /// looks like a header is not.
    #[test]
    fn a_header_is_right_or_not_by_itself() {
        let bytes = encode(0, 42, &[SEGMENT], &sample());
        let header = header_at(LOG, 0, &bytes[..HEADER_BYTES]).unwrap();
        assert_eq!((header.bytes(), header.stamp), (used(&bytes), 42));
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
}
