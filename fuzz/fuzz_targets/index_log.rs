//! Index logs that may be anything: blocks with right checksums, whatever is in them, give runs
//! that keep the limits, or an error; and what is no block is judged without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::index_log::{
    ALIGN, At, HEADER_BYTES, LogId, Record, SUMS_MAX, begins_at, block_at, decode_block, header_at,
    is_torn, run_end,
};
use plfs_format::{MAX_OFFSET, Uuid};
use plfs_fuzz::seal;

/// Length without the zeros at the end.
fn written(bytes: &[u8]) -> u64 {
    (bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count()) as u64
}

fuzz_target!(|bytes: &[u8]| {
    let log = LogId { uuid: Uuid([7; 16]), set: 9 };
    let mut bytes = bytes.to_vec();
    // What the pieces are that no block explains: any answer will do.
    for at in (0..bytes.len())
        .step_by(ALIGN as usize)
        .filter(|at| *at == 0 || begins_at(log, *at as u64, &bytes[*at..]))
    {
        is_torn(log, at as u64, &bytes[at..], written(&bytes[at..]));
    }
    if bytes.len() >= HEADER_BYTES {
        seal(&mut bytes, log);
        assert!(
            header_at(log, 0, &bytes[..HEADER_BYTES])
                .is_some_and(|header| header.bytes() == bytes.len())
        );
    }
    for at in (0..bytes.len()).step_by(ALIGN as usize) {
        let At::Block(header) = block_at(log, at as u64, &bytes[at..]) else { continue };
        let Ok(block) = decode_block(header, at as u64, &bytes[at..]) else { continue };
        assert!(
            header.durable <= at as u64
                && block.segments.iter().all(|segment| segment.stream < 256)
        );
        for (_, record) in &block.records {
            match record {
                Record::Run(run) => {
                    assert!(
                        run.end().expect("a run keeps the limits") <= header.eof
                            && run.stamp <= header.stamp
                            && usize::from(run.segment) < block.segments.len()
                    );
                }
                Record::Hole { logical, length, stamp, .. } => {
                    let end = run_end(*logical, *length, 0, 1, 0).expect("a hole keeps the limits");
                    assert!(end <= header.eof && *stamp <= header.stamp);
                }
                Record::Truncate { size, .. } => assert!(*size <= MAX_OFFSET),
                Record::Writer { .. } => {}
                Record::Sums { segment, physical, length, unit, sums, .. } => {
                    let (end, unit) = (physical + length, u64::from(*unit));
                    assert!(end <= MAX_OFFSET && sums.len() <= SUMS_MAX);
                    let parts = end.div_ceil(unit) - physical / unit;
                    assert_eq!(sums.len() as u64, if *length == 0 { 0 } else { parts });
                    assert!(sums.is_empty() || usize::from(*segment) < block.segments.len());
                }
            }
        }
    }
    // A whole block whose payload is cut is torn, wherever.
    if bytes.len() > HEADER_BYTES {
        let cut = HEADER_BYTES + (bytes.len() - HEADER_BYTES) / 2;
        assert!(is_torn(log, 0, &bytes[..cut], written(&bytes[..cut])));
    }
});
