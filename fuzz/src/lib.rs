//! What several targets do to the bytes that they get.

use plfs_format::index_log::{HEADER_BYTES, LogId};

/// Puts `field` into `bytes`, which must reach so far.
pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Gives the bytes, a header's at least, the header of a block of `log` at offset 0 as far as a
/// decoder asks, and right checksums over as much as there is.
pub fn seal(bytes: &mut [u8], log: LogId) {
    let payload = ((bytes.len() - HEADER_BYTES) as u32).to_le_bytes();
    for (at, field) in [
        (0, &b"PLIX"[..]),
        (12, &payload),
        (16, &log.uuid.0[..8]),
        (32, &[0; 8]),
        (48, &log.set.to_le_bytes()),
    ] {
        put(bytes, at, field);
    }
    let sum = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    put(bytes, 8, &sum.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[8..HEADER_BYTES]);
    put(bytes, 4, &sum.to_le_bytes());
}
