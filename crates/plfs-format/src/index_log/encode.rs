//! Writes a block of an index log from records.

use zerocopy::IntoBytes;

use super::{
    ALIGN, Append, BLOCK_NEST_RUNS_MAX, FLAG_DATA_DURABLE, FLAG_TRUNCATE, HEADER_BYTES, HOLE_BYTES,
    KIND_HOLE, KIND_NEST, KIND_RUN, KIND_SUMS, KIND_TRUNCATE, KIND_WRITER, LogId, MAGIC,
    NEST_BYTES, PAYLOAD_MAX, REFERENCE_BASE, RUN_BYTES, RawHeader, RawHole, RawNest, RawRecord,
    RawReference, RawRun, RawSums, RawTruncate, RawWriter, Record, RunRecord, SUMMED_AT,
    TRUNCATE_BYTES, align_up, are_sums_valid, run_end,
};
use crate::name::SegmentRef;
use crate::{Bad, crc};

/// Bytes of a host name that are kept: the record's length must fit in a byte, in units of 8.
const HOST_BYTES_MAX: usize = 255;

impl RawRun {
    /// `kind` and `bytes` are those of the record that it is, or begins.
    fn of(kind: u8, bytes: usize, run: &RunRecord) -> RawRun {
        RawRun {
            record: RawRecord::new(kind, bytes, run.segment, run.count),
            logical: run.logical.into(),
            length: run.length.into(),
            stride: run.stride.into(),
            physical: run.physical.into(),
            writer: run.writer.into(),
            zero: 0.into(),
            stamp: run.stamp.into(),
        }
    }
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
    encode_references(segments, &mut out);
    let (mut eof, mut truncates, mut runs, mut nested) = (0, 0, 0, 0);
    for record in records {
        match record {
            Record::Run(run) => {
                let [inner, outer] = run.repeat;
                let Some(end) = run.end() else {
                    return bad("a run leaves the file's range");
                };
                eof = end.max(eof);
                runs += 1;
                if inner.count == 1 {
                    out.extend_from_slice(RawRun::of(KIND_RUN, RUN_BYTES, run).as_bytes());
                    continue;
                }
                nested += run.runs();
                if nested > BLOCK_NEST_RUNS_MAX {
                    return bad("the nests of a block have too many runs");
                }
                let nest = RawNest {
                    run: RawRun::of(KIND_NEST, NEST_BYTES, run),
                    row_stride: inner.stride.into(),
                    plane_stride: outer.stride.into(),
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
    let flags = if truncates > 0 { FLAG_TRUNCATE } else { 0 };
    frame(log, append, segments.len(), records.len() as u32, eof, flags, out)
}

/// Appends segment references.
pub(crate) fn encode_references(segments: &[SegmentRef], out: &mut Vec<u8>) {
    for at in segments {
        let (kind, backend) =
            if *at == SegmentRef::BASE { (REFERENCE_BASE, 0) } else { (0, at.backend) };
        let (set, segment, stream, backend) =
            (at.set.into(), at.segment.into(), at.stream.into(), backend.into());
        out.extend_from_slice(
            RawReference { set, segment, stream, backend, kind, codec: 0, zero: 0.into() }
                .as_bytes(),
        );
    }
}

/// A block of the records that `write` appends, of kinds that have no end of file; it gives their
/// number.
pub(crate) fn encode_payload(
    log: LogId,
    append: Append,
    segments: &[SegmentRef],
    write: impl FnOnce(&mut Vec<u8>) -> Result<u32, Bad>,
) -> Result<Vec<u8>, Bad> {
    let mut out = vec![0; HEADER_BYTES];
    encode_references(segments, &mut out);
    let records = write(&mut out)?;
    frame(log, append, segments.len(), records, 0, 0, out)
}

/// Puts the header in front of a payload, for which `out` has room, and pads the block.
fn frame(
    log: LogId,
    append: Append,
    references: usize,
    records: u32,
    eof: u64,
    flags: u16,
    mut out: Vec<u8>,
) -> Result<Vec<u8>, Bad> {
    let (payload, references) = (out.len() - HEADER_BYTES, u16::try_from(references));
    let Some(references) = references.ok().filter(|_| payload <= PAYLOAD_MAX) else {
        return Err(Bad::new(append.offset, "the block is too long"));
    };
    let durable = if append.is_data_durable { FLAG_DATA_DURABLE } else { 0 };
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
        records: records.into(),
        references: references.into(),
        flags: (flags | durable).into(),
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

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, LOG, SEGMENT, decode, encode, hole, run};
    use super::super::{REF_BYTES, Repeat, RunRecord};
    use super::*;

    #[test]
    fn the_worked_example_of_the_document() {
        let run = Record::Run(RunRecord {
            logical: 0,
            length: 3,
            stride: 10,
            count: 3,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        });
        let bytes = encode(0, 1, &[SEGMENT], &[run]);
        assert_eq!(bytes[64..80], [0xfe, 0xca, 0xad, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], [1, 7, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn a_truncate_is_alone() {
        let run = Record::Run(RunRecord {
            logical: 0,
            length: 3,
            stride: 0,
            count: 1,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: 1,
            repeat: [Repeat::ONCE; 2],
        });
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
}
