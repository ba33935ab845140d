//! Attributes of plain files that may be anything: no panic, and a decision comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plfs_format::attribute::Decision;

fuzz_target!(|bytes: &[u8]| {
    let uuid: &[u8] = b"00112233445566778899aabbccddeeff";
    let forms: [&[&[u8]]; 4] = [
        &[bytes],
        &[b"plfs 1 p ", bytes],
        &[b"plfs 1 c ", bytes],
        &[b"plfs 1 c ", uuid, b" 7 ", bytes],
    ];
    for text in forms.map(|form| form.concat()) {
        if let Some(decision) = Decision::decode(&text) {
            assert_eq!(Decision::decode(&decision.encode()), Some(decision));
        }
    }
});
