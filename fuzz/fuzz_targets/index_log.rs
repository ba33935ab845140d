//! Index logs that may be anything: blocks with right checksums, whatever is in them, give runs that keep the limits, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::index_log::{ALIGN, At, HEADER_BYTES, LogId, Record, block_at, decode_block, run_end};
use plfs_format::{MAX_OFFSET, Uuid};

fuzz_target!(|bytes: &[u8]| {
    let log = LogId { uuid: Uuid([7; 16]), set: 9, streams: 8, backends: 1 };
    let mut bytes = bytes.to_vec();
    // A header that belongs here, and a right checksum over as much as there is.
    if bytes.len() >= HEADER_BYTES {
        let payload = ((bytes.len() - HEADER_BYTES) as u32).to_le_bytes();
        let set = log.set.to_le_bytes();
        for (at, field) in [(0, &b"PLIX"[..]), (8, &payload), (12, &set), (16, &[7; 8]), (32, &[0; 8]), (40, &[0; 8])] {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        let sum = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    for at in (0..bytes.len()).step_by(ALIGN as usize) {
        let At::Block(header) = block_at(log, at as u64, &bytes[at..]) else { continue };
        let Ok(block) = decode_block(log, header, at as u64, &bytes[at..]) else { continue };
        for (_, record) in &block.records {
            match record {
                Record::Run { logical, length, stride, count, segment, physical, stamp, .. } => {
                    let end = run_end(*logical, *length, *stride, *count, *physical).expect("a run keeps the limits");
                    assert!(end <= header.eof && *stamp <= header.hlc && usize::from(*segment) < block.segments.len());
                }
                Record::Hole { logical, length, stamp, .. } => {
                    let end = run_end(*logical, *length, 0, 1, 0).expect("a hole keeps the limits");
                    assert!(end <= header.eof && *stamp <= header.hlc);
                }
                Record::Truncate { size, .. } => assert!(*size <= MAX_OFFSET),
                Record::Writer { .. } => {}
            }
        }
    }
});
