//! Superblocks, summaries, clocks and the texts of the table of backends and of layouts that may be
//! anything: no panic, with any checksum; a clock is its stamp's or none, an entry or a layout that
//! is one comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::backend::{Backend, Identity};
use plfs_format::clock::Clock;
use plfs_format::layout::Layout;
use plfs_format::summary::Summary;
use plfs_format::superblock::Superblock;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(clock) = Clock::decode(bytes) {
        assert_eq!(bytes[..20], clock.encode()[..20]);
    }
    for text in [bytes, &[b"plfs-backend 1\n", bytes].concat()] {
        if let Ok(backend) = Backend::decode(text) {
            assert_eq!(Backend::decode(&backend.encode().expect("what was decoded")), Ok(backend));
        }
    }
    for text in [bytes, &[b"plfs-layout 1\n", bytes].concat()] {
        if let Ok(layout) = Layout::decode(text) {
            assert_eq!(Layout::decode(&layout.encode().expect("what was decoded")), Ok(layout));
        }
    }
    if let Ok(identity) = Identity::decode(&[b"plfs-identity 1\n", bytes].concat()) {
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
    let mut bytes = bytes.to_vec();
    bytes.resize(plfs_format::superblock::FILE_BYTES, 0);
    let _ = Superblock::decode(&bytes);
    // With magic, version and a right checksum the decoder goes on.
    bytes[64..72].copy_from_slice(b"\x89PLFS\r\n\x1a");
    bytes[76..78].copy_from_slice(&1u16.to_le_bytes());
    bytes[132..134].copy_from_slice(&1u16.to_le_bytes());
    bytes[138..140].copy_from_slice(&1u16.to_le_bytes());
    // Of the features, of which a set bit that is unknown ends it, only the lowest.
    bytes[80] &= 1;
    bytes[81..88].fill(0);
    let sum = crc32c::crc32c(&bytes[76..3072]);
    bytes[72..76].copy_from_slice(&sum.to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&bytes) {
        assert_eq!(
            Superblock::decode(&superblock.encode().expect("what was decoded")),
            Ok(superblock.clone())
        );
        let _ = Summary::decode(&bytes[3072..3200], &superblock.uuid);
    }
});
