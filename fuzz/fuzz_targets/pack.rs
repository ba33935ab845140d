//! Blocks, leaves and inner blocks of packs that may be anything: with right checksums they give
//! records that can be written again and read as the same, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::Uuid;
use plfs_format::index_log::{Append, At, HEADER_BYTES, LogId, block_at};
use plfs_format::pack::tree::{Header, decode_inner, decode_leaf, encode_inner, encode_leaf};
use plfs_format::pack::{decode_block, encode_block};
use plfs_fuzz::{put, seal};

fuzz_target!(|bytes: &[u8]| {
    let log = LogId { uuid: Uuid([7; 16]), set: 9 };
    if let Ok((segments, records)) = decode_leaf(bytes, 128, u64::MAX) {
        let again = encode_leaf(&segments, &records).expect("what was read can be written");
        assert_eq!(decode_leaf(&again, 128, u64::MAX), Ok((segments, records)));
    }
    if let Ok(children) = decode_inner(bytes, 1 << 40, 1 << 41) {
        assert_eq!(decode_inner(&encode_inner(&children), 1 << 40, 1 << 41), Ok(children));
    }
    let _ = Header::decode(bytes, log.uuid, bytes.len() as u64);
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut bytes = bytes.to_vec();
    // Blocks of packs have no end of a file.
    put(&mut bytes, 40, &[0; 8]);
    seal(&mut bytes, log);
    let At::Block(header) = block_at(log, 0, &bytes) else { return };
    let Ok(block) = decode_block(header, 0, &bytes) else { return };
    let append = Append { offset: 0, stamp: header.stamp, ..Append::default() };
    let again = encode_block(log, append, &block.segments, &block.records)
        .expect("what was read can be written");
    let At::Block(header) = block_at(log, 0, &again) else { panic!("the block is whole") };
    assert_eq!(decode_block(header, 0, &again).map(|again| again.records), Ok(block.records));
});
