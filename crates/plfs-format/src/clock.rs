//! `clock` (FORMAT.md section 4): a stamp that the next owners of log sets start behind.

use crate::bytes::{Fields, put};
use crate::{Bad, crc};

/// Length in bytes.
pub const BYTES: usize = 24;

/// What a clock says of the commits that were acknowledged before it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Of some commits that their stamps are not larger. Only the logs know of all.
    Some,
    /// The same, and somebody is about to find out about the rest: each commit raises the clock.
    Begun,
    /// Of all commits that their stamps are not larger, and each commit keeps it so.
    All,
}

impl Covers {
    const MAGICS: [(Covers, [u8; 8]); 3] =
        [(Covers::Some, *b"PLFSCLK1"), (Covers::Begun, *b"PLFSCLK2"), (Covers::All, *b"PLFSCLK3")];
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Whoever comes starts behind it.
    pub stamp: u64,
    /// What that means for commits.
    pub covers: Covers,
}

impl Clock {
    /// The file's bytes.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        for (_, magic) in Covers::MAGICS.iter().filter(|(covers, _)| *covers == self.covers) {
            put(&mut out, 0, magic);
        }
        put(&mut out, 8, &self.stamp.to_le_bytes());
        let sum = crc(&out[..16]);
        put(&mut out, 16, &sum.to_le_bytes());
        out
    }

    /// What the bytes say.
    pub fn decode(bytes: &[u8]) -> Result<Clock, Bad> {
        let bad = |at_bytes, what| Err(Bad::new(at_bytes, what));
        let Some(bytes) = bytes.get(..BYTES) else {
            return bad(bytes.len() as u64, "a clock file has 24 bytes");
        };
        match Covers::MAGICS.iter().find(|(_, magic)| bytes[..8] == *magic) {
            None => bad(0, "a clock file begins with PLFSCLK and 1, 2 or 3"),
            Some(_) if Fields(bytes).u32(16) != crc(&bytes[..16]) => {
                bad(16, "the checksum does not match")
            }
            Some((covers, _)) => Ok(Clock { stamp: Fields(bytes).u64(8), covers: *covers }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_what_was_written_or_nothing() {
        for covers in [Covers::Some, Covers::Begun, Covers::All] {
            let clock = Clock { stamp: 0x0123_4567_89ab_cdef, covers };
            let bytes = clock.encode();
            assert_eq!(Clock::decode(&bytes), Ok(clock));
            for bit in 0..20 * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Clock::decode(&bytes).is_err(), "bit {bit}");
            }
            assert!((0..BYTES).all(|n| Clock::decode(&bytes[..n]).is_err()));
        }
    }
}
