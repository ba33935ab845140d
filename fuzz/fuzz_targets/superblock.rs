//! Superblocks, summaries and clocks that may be anything: no panic, with any checksum; a clock is its stamp's or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::clock;
use plfs_format::summary::Summary;
use plfs_format::superblock::Superblock;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(stamp) = clock::decode(bytes) {
        assert_eq!(bytes[..20], clock::encode(stamp)[..20]);
    }
    let mut bytes = bytes.to_vec();
    bytes.resize(plfs_format::superblock::FILE_BYTES, 0);
    let _ = Superblock::decode(&bytes);
    // With magic, version and a right checksum the decoder goes on.
    bytes[64..72].copy_from_slice(b"\x89PLFS\r\n\x1a");
    bytes[76..78].copy_from_slice(&1u16.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[76..3072]);
    bytes[72..76].copy_from_slice(&sum.to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&bytes) {
        let _ = Summary::decode(&bytes[3072..3200], &superblock.uuid);
    }
});
