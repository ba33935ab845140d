//! `clock` (FORMAT.md section 4): a stamp that the next owners of log sets start behind.

use crate::bytes::{Fields, put};
use crate::{Bad, crc};

/// Length in bytes.
pub const BYTES: usize = 24;
const MAGIC: [u8; 8] = *b"PLFSCLK1";

/// The file's bytes.
pub fn encode(stamp: u64) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &stamp.to_le_bytes());
    let sum = crc(&out[..16]);
    put(&mut out, 16, &sum.to_le_bytes());
    out
}

/// The stamp.
pub fn decode(bytes: &[u8]) -> Result<u64, Bad> {
    let bad = |at_bytes, what| Err(Bad::new(at_bytes, what));
    match bytes.get(..BYTES) {
        None => bad(bytes.len() as u64, "a clock file has 24 bytes"),
        Some(bytes) if bytes[..8] != MAGIC => bad(0, "a clock file begins with PLFSCLK1"),
        Some(bytes) if Fields(bytes).u32(16) != crc(&bytes[..16]) => {
            bad(16, "the checksum does not match")
        }
        Some(bytes) => Ok(Fields(bytes).u64(8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_what_was_written_or_nothing() {
        let stamp = 0x0123_4567_89ab_cdef;
        let bytes = encode(stamp);
        assert_eq!(decode(&bytes), Ok(stamp));
        for bit in 0..20 * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
        assert!((0..BYTES).all(|n| decode(&bytes[..n]).is_err()));
    }
}
