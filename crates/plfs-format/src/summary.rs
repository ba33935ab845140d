//! The summary in the superblock file (FORMAT.md section 5): what `stat` needs without opening a log.

use crate::bytes::{Fields, put};
use crate::{Uuid, crc};

/// Offset of the summary in the superblock file.
pub const OFFSET: u64 = 3072;
/// Length in bytes.
pub const BYTES: usize = 128;
const MAGIC: [u8; 4] = *b"PLSM";

/// Totals of a container while nobody writes. Counts only if the container directory's modification time equals the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Token: seconds.
    pub token_sec: i64,
    /// Token: nanoseconds.
    pub token_nsec: u32,
    /// Number of log sets.
    pub log_sets: u32,
    /// Number of data logs.
    pub data_logs: u32,
    /// Size of the logical file, bytes.
    pub size: u64,
    /// Bytes of all data logs up to the last one that a record names.
    pub stored_bytes: u64,
    /// Largest stamp in any index log.
    pub max_hlc: u64,
    /// Bytes of all index logs.
    pub index_bytes: u64,
    /// Number of records in all index logs.
    pub records: u64,
    /// Which flat index has all that the logs have: its [`FlatIndex::id`](crate::flat_index::FlatIndex::id). 0: none.
    pub flat: u32,
}

impl Summary {
    /// Bytes to be written at [`OFFSET`].
    pub fn encode(&self, uuid: &Uuid) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &uuid.low().to_le_bytes());
        put(&mut out, 16, &self.token_sec.to_le_bytes());
        put(&mut out, 24, &self.token_nsec.to_le_bytes());
        put(&mut out, 28, &self.log_sets.to_le_bytes());
        for (i, value) in [self.size, self.stored_bytes, self.max_hlc, self.index_bytes, self.records].iter().enumerate() {
            put(&mut out, 32 + 8 * i, &value.to_le_bytes());
        }
        put(&mut out, 72, &self.data_logs.to_le_bytes());
        put(&mut out, 76, &self.flat.to_le_bytes());
        let sum = crc(&out[8..]);
        put(&mut out, 4, &sum.to_le_bytes());
        out
    }

    /// The summary, or `None` if there is none or it is damaged: both mean that the block headers must be read.
    pub fn decode(bytes: &[u8], uuid: &Uuid) -> Option<Summary> {
        let bytes = bytes.get(..BYTES)?;
        let fields = Fields(bytes);
        let valid = bytes[..4] == MAGIC && fields.u32(4) == crc(&bytes[8..]) && fields.u64(8) == uuid.low() && fields.u64(32) <= crate::MAX_OFFSET;
        valid.then(|| Summary {
            token_sec: fields.i64(16),
            token_nsec: fields.u32(24),
            log_sets: fields.u32(28),
            data_logs: fields.u32(72),
            size: fields.u64(32),
            stored_bytes: fields.u64(40),
            max_hlc: fields.u64(48),
            index_bytes: fields.u64(56),
            records: fields.u64(64),
            flat: fields.u32(76),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let uuid = Uuid([9; 16]);
        let summary =
            Summary { token_sec: -5, token_nsec: 6, log_sets: 1, data_logs: 7, size: 2, stored_bytes: 3, max_hlc: 4, index_bytes: 5, records: 6, flat: 8 };
        let bytes = summary.encode(&uuid);
        assert_eq!(Summary::decode(&bytes, &uuid), Some(summary));
        assert_eq!(Summary::decode(&bytes, &Uuid([8; 16])), None);
        assert_eq!(Summary::decode(&[0; BYTES], &uuid), None);
        for bit in 0..BYTES * 8 {
            let mut hurt = bytes;
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Summary::decode(&hurt, &uuid), None);
        }
    }
}
