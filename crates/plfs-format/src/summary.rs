//! The summary in the superblock file (FORMAT.md section 5): what `stat` needs without opening a log, and for many files all that a reader does.

use std::sync::Arc;

use crate::bytes::{Fields, put};
use crate::superblock::FILE_BYTES;
use crate::{Uuid, crc};

/// Offset of the summary in the superblock file.
pub const OFFSET: u64 = 3072;
/// Length in bytes, without the flat index behind it.
pub const BYTES: usize = 128;
/// Offset of the flat index in the superblock file, if it lies there.
pub const FLAT_OFFSET: u64 = OFFSET + BYTES as u64;
/// Bytes that it may take there: all but the file's last.
pub const FLAT_BYTES: usize = FILE_BYTES - 1 - FLAT_OFFSET as usize;
const MAGIC: [u8; 4] = *b"PLSM";

/// Totals of a container while nobody writes. Counts only if the container directory's modification time equals the token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// That flat index, if it lies here: [`FLAT_BYTES`] at most, unchecked. Empty: it is a file.
    pub flat_index: Arc<[u8]>,
}

impl Summary {
    /// Bytes to be written at [`OFFSET`]. A flat index without room is a mistake of the caller's; it is left out.
    pub fn encode(&self, uuid: &Uuid) -> Vec<u8> {
        let flat_index = if self.flat_index.len() <= FLAT_BYTES { &self.flat_index[..] } else { &[] };
        let mut out = vec![0; BYTES];
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
        put(&mut out, 80, &(flat_index.len() as u16).to_le_bytes());
        let sum = crc(&out[8..]);
        put(&mut out, 4, &sum.to_le_bytes());
        out.extend_from_slice(flat_index);
        out
    }

    /// The summary at the beginning of `bytes`, or `None` if there is none or it is damaged: both mean that the index logs must be read.
    pub fn decode(bytes: &[u8], uuid: &Uuid) -> Option<Summary> {
        let (bytes, behind) = bytes.split_at_checked(BYTES)?;
        let fields = Fields(bytes);
        let valid = bytes[..4] == MAGIC && fields.u32(4) == crc(&bytes[8..]) && fields.u64(8) == uuid.low() && fields.u64(32) <= crate::MAX_OFFSET;
        let flat_index = behind.get(..fields.u16(80).into());
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
            flat_index: flat_index.unwrap_or_default().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let uuid = Uuid([9; 16]);
        let flat_index = vec![9; FLAT_BYTES].into();
        let summary = Summary {
            token_sec: -5,
            token_nsec: 6,
            log_sets: 1,
            data_logs: 7,
            size: 2,
            stored_bytes: 3,
            max_hlc: 4,
            index_bytes: 5,
            records: 6,
            flat: 8,
            flat_index,
        };
        let mut bytes = summary.encode(&uuid);
        assert_eq!(Summary::decode(&bytes, &uuid), Some(summary.clone()));
        assert_eq!(OFFSET as usize + bytes.len(), FILE_BYTES - 1, "the file's last byte is not the summary's");
        bytes.pop();
        let cut = Summary { flat_index: [].into(), ..summary.clone() };
        assert_eq!(Summary::decode(&bytes, &uuid), Some(cut.clone()), "a flat index that is not all there is none");
        let long = Summary { flat_index: vec![9; FLAT_BYTES + 1].into(), ..summary };
        assert_eq!(Summary::decode(&long.encode(&uuid), &uuid), Some(cut));
        assert_eq!(Summary::decode(&bytes, &Uuid([8; 16])), None);
        assert_eq!(Summary::decode(&[0; BYTES], &uuid), None);
        for bit in 0..BYTES * 8 {
            let mut hurt = bytes.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Summary::decode(&hurt, &uuid), None);
        }
    }
}
