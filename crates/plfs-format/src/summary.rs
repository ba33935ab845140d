//! The summary in the superblock file (FORMAT.md section 5): what `stat` needs without opening a
//! log, and for many files all that a reader does.

use std::sync::Arc;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::superblock::FILE_BYTES;
use crate::{Uuid, crc};

/// Offset of the summary in the superblock file.
pub const OFFSET: u64 = 3072;
/// Length in bytes, without the flat index behind it.
pub const BYTES: usize = size_of::<RawSummary>();
/// Offset of the flat index in the superblock file, if it lies there.
pub const FLAT_OFFSET: u64 = OFFSET + BYTES as u64;
/// Bytes that it may take there: all but the file's last.
pub const FLAT_BYTES: usize = FILE_BYTES - 1 - FLAT_OFFSET as usize;
const MAGIC: [u8; 4] = *b"PLSM";
/// What the CRC covers begins here.
const SUMMED_AT: usize = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSummary {
    magic: [u8; 4],
    crc: U32,
    uuid: U64,
    token_sec: I64,
    token_nsec: U32,
    index_logs: U32,
    size: U64,
    stored_bytes: U64,
    stamp: U64,
    index_bytes: U64,
    records: U64,
    data_logs: U32,
    flat: U32,
    flat_bytes: U16,
    zero: [u8; 46],
}

/// Totals of a container while nobody writes. Counts only if the container directory's modification
/// time equals the token.
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
    pub max_stamp: u64,
    /// Bytes of all index logs.
    pub index_bytes: u64,
    /// Number of records in all index logs.
    pub records: u64,
    /// Which flat index has all that the logs have: its
    /// [`FlatIndex::id`](crate::flat_index::FlatIndex::id). 0: none.
    pub flat: u32,
    /// That flat index, if it lies here: [`FLAT_BYTES`] at most, unchecked. Empty: it is a file.
    pub flat_index: Arc<[u8]>,
}

impl Summary {
    /// Bytes to be written at [`OFFSET`]. A flat index without room is a mistake of the caller's;
    /// it is left out.
    pub fn encode(&self, uuid: &Uuid) -> Vec<u8> {
        let flat_index =
            if self.flat_index.len() <= FLAT_BYTES { &self.flat_index[..] } else { &[] };
        let mut raw = RawSummary {
            magic: MAGIC,
            uuid: uuid.low().into(),
            token_sec: self.token_sec.into(),
            token_nsec: self.token_nsec.into(),
            index_logs: self.log_sets.into(),
            size: self.size.into(),
            stored_bytes: self.stored_bytes.into(),
            stamp: self.max_stamp.into(),
            index_bytes: self.index_bytes.into(),
            records: self.records.into(),
            data_logs: self.data_logs.into(),
            flat: self.flat.into(),
            flat_bytes: (flat_index.len() as u16).into(),
            ..RawSummary::new_zeroed()
        };
        raw.crc = crc(&raw.as_bytes()[SUMMED_AT..]).into();
        let mut out = raw.as_bytes().to_vec();
        out.extend_from_slice(flat_index);
        out
    }

    /// The summary at the beginning of `bytes`, or `None` if there is none or it is damaged: both
    /// mean that the index logs must be read.
    pub fn decode(bytes: &[u8], uuid: &Uuid) -> Option<Summary> {
        let (raw, behind) = RawSummary::ref_from_prefix(bytes).ok()?;
        let valid = raw.magic == MAGIC
            && raw.crc == crc(&raw.as_bytes()[SUMMED_AT..])
            && raw.uuid == uuid.low()
            && raw.size <= crate::MAX_OFFSET;
        let flat_index = behind.get(..raw.flat_bytes.get().into());
        valid.then(|| Summary {
            token_sec: raw.token_sec.get(),
            token_nsec: raw.token_nsec.get(),
            log_sets: raw.index_logs.get(),
            data_logs: raw.data_logs.get(),
            size: raw.size.get(),
            stored_bytes: raw.stored_bytes.get(),
            max_stamp: raw.stamp.get(),
            index_bytes: raw.index_bytes.get(),
            records: raw.records.get(),
            flat: raw.flat.get(),
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
            max_stamp: 4,
            index_bytes: 5,
            records: 6,
            flat: 8,
            flat_index,
        };
        let mut bytes = summary.encode(&uuid);
        assert_eq!(Summary::decode(&bytes, &uuid), Some(summary.clone()));
        assert_eq!(
            OFFSET as usize + bytes.len(),
            FILE_BYTES - 1,
            "the file's last byte is not the summary's"
        );
        bytes.pop();
        let cut = Summary { flat_index: [].into(), ..summary.clone() };
        assert_eq!(
            Summary::decode(&bytes, &uuid),
            Some(cut.clone()),
            "a flat index that is not all there is none"
        );
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
