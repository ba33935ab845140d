//! Flat indexes that may be anything, with right checksums: lookups give pieces of the range that
//! was asked for, ascending, or say that the index is damaged.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use plfs_format::Uuid;
use plfs_format::flat_index::{self, FENCE_BYTES, HEADER_BYTES, MAGIC};
use plfs_index::{Base, ExtentMap, Numbers};

fn field(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Makes magic, uuid and checksums right, as far as the header says where they belong.
fn seal(bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[16..32].fill(0);
    let blocks = field(bytes, 104).min(bytes.len() - HEADER_BYTES);
    let blocks_at = bytes.len() - blocks;
    let n = field(bytes, 88).min((blocks_at - HEADER_BYTES) / FENCE_BYTES);
    for i in 0..n {
        let fence = blocks_at - FENCE_BYTES * (n - i);
        let start = |fence: usize| {
            if fence < blocks_at {
                field(bytes, fence + 8).saturating_mul(8).min(blocks)
            } else {
                blocks
            }
        };
        let (from, to) = (start(fence), start(fence + FENCE_BYTES));
        if from < to {
            let sum = crc32c::crc32c(&bytes[blocks_at + from..blocks_at + to]);
            bytes[fence + 12..fence + 16].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum = crc32c::crc32c(&bytes[HEADER_BYTES..blocks_at]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[12..HEADER_BYTES]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let Ok(flat) = flat_index::decode(&bytes, &Uuid::default()) else { return };
    let segments = flat.segments.len();
    let base = Base::new(Arc::new(bytes), flat);
    let sound = base.check().is_ok();
    let map = ExtentMap::with_base(base);
    let mut found = Vec::new();
    for (from, to) in [
        (0, 100),
        (7, 8),
        (1000, 5000),
        (1 << 40, (1 << 40) + 10),
        (i64::MAX as u64 - 10, i64::MAX as u64),
    ] {
        map.lookup(from, to, &mut found);
        let mut at = from;
        for piece in &found {
            assert!(piece.logical >= at && piece.length > 0 && piece.logical + piece.length <= to);
            assert!(!sound || (piece.segment as usize) < segments);
            at = piece.logical + piece.length;
        }
        if let Some(data) = map.next_data(from) {
            map.lookup(data, data + 1, &mut found);
            assert!(data >= from && found.len() == 1);
        }
    }
    if sound {
        assert!(!map.is_damaged());
        let set_of = vec![0; segments];
        let _ = map.image(Vec::new(), &Numbers { set_of: &set_of, sets: &[0] }, true);
    }
});
