//! The superblock file (FORMAT.md section 2).

use crate::bytes::{Fields, put};
use crate::name::Uuid;
use crate::{Bad, crc};

/// Length of a superblock file in bytes: a prime just below a page, so that a stat shows almost surely whether a file can be a name.
pub const FILE_BYTES: usize = 4093;
/// Bytes that never change after creation; the CRC covers them from 76 on.
pub const FIXED_BYTES: usize = 3072;
/// What a person sees who opens a name without PLFS. 63 characters and a line feed.
pub const BANNER: &str = "PLFS container: read this file with PLFS, e.g. plfs cat FILE";
/// First bytes of the binary part; the line ends show damage by text-mode copies, as in PNG.
pub const MAGIC: [u8; 8] = *b"\x89PLFS\r\n\x1a";
/// Offset of [`MAGIC`].
pub const MAGIC_AT: usize = 64;
/// The major version that this crate writes and the only one that it reads.
pub const MAJOR: u16 = 1;
/// Incompatible features that this crate knows: none.
pub const KNOWN_FEATURES: u64 = 0;
const TABLE_AT: usize = 154;
const TABLE_BYTES_MAX: usize = FIXED_BYTES - TABLE_AT;
/// Streams a log set may have at most: two hex digits.
pub const STREAMS_MAX: u16 = 256;

/// What a superblock says. Immutable once its file has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity; names the container's directory.
    pub uuid: Uuid,
    /// Creation time, nanoseconds since 1970 UTC.
    pub created_ns: u64,
    /// Permission bits at creation; the inode has today's.
    pub mode: u32,
    /// Owner at creation.
    pub uid: u32,
    /// Group at creation.
    pub gid: u32,
    /// Data logs per log set at most, 1 to 256.
    pub streams: u16,
    /// Length past which a stream goes on to its next segment.
    pub segment_bytes: u64,
    /// Absolute paths of the backends; the first is the root at creation, a hint only.
    pub backends: Vec<Vec<u8>>,
}

/// Why bytes are no superblock that we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperError {
    /// No magic: some other file.
    NotASuperblock,
    /// Made by a newer PLFS: major version and incompatible features found.
    Unknown {
        /// Major version found.
        major: u16,
        /// Incompatible features found.
        features: u64,
    },
    /// A superblock, damaged.
    Bad(Bad),
}

/// True if the file starts like a superblock. Needs the first 72 bytes.
pub fn has_magic(start: &[u8]) -> bool {
    start.get(MAGIC_AT..MAGIC_AT + 8) == Some(&MAGIC)
}

impl Superblock {
    /// The whole file, with an empty summary.
    ///
    /// Errors if the backends' paths do not fit in 2,918 bytes or a number is out of range.
    pub fn encode(&self) -> Result<Vec<u8>, Bad> {
        let mut out = vec![0; FILE_BYTES];
        put(&mut out, 0, format!("{BANNER:<63}\n").as_bytes());
        put(&mut out, MAGIC_AT, &MAGIC);
        put(&mut out, 76, &MAJOR.to_le_bytes());
        put(&mut out, 96, &self.uuid.0);
        put(&mut out, 112, &self.created_ns.to_le_bytes());
        put(&mut out, 120, &self.mode.to_le_bytes());
        put(&mut out, 124, &self.uid.to_le_bytes());
        put(&mut out, 128, &self.gid.to_le_bytes());
        put(&mut out, 132, &1u16.to_le_bytes());
        put(&mut out, 134, &self.streams.to_le_bytes());
        put(&mut out, 136, &1u16.to_le_bytes());
        put(&mut out, 138, &(self.backends.len() as u16).to_le_bytes());
        put(&mut out, 144, &self.segment_bytes.to_le_bytes());
        let mut table = Vec::new();
        for path in &self.backends {
            let len = u16::try_from(path.len()).map_err(|_| Bad { at_bytes: TABLE_AT as u64, what: "a backend's path is longer than 65,535 bytes" })?;
            table.extend_from_slice(&len.to_le_bytes());
            table.extend_from_slice(path);
        }
        if table.len() > TABLE_BYTES_MAX {
            return Err(Bad { at_bytes: TABLE_AT as u64, what: "the backends' paths are longer than 2,918 bytes together" });
        }
        put(&mut out, 152, &(table.len() as u16).to_le_bytes());
        put(&mut out, TABLE_AT, &table);
        let sum = crc(&out[76..FIXED_BYTES]);
        put(&mut out, 72, &sum.to_le_bytes());
        Superblock::decode(&out).map_err(|_| Bad { at_bytes: 0, what: "a field of the superblock is out of range" })?;
        Ok(out)
    }

    /// Reads a superblock from the first [`FIXED_BYTES`] bytes of its file.
    pub fn decode(file: &[u8]) -> Result<Superblock, SuperError> {
        if !has_magic(file) {
            return Err(SuperError::NotASuperblock);
        }
        let bad = |at: usize, what| Err(SuperError::Bad(Bad { at_bytes: at as u64, what }));
        if file.len() < FIXED_BYTES {
            return bad(file.len(), "the superblock is cut off");
        }
        let fields = Fields(file);
        if fields.u32(72) != crc(&file[76..FIXED_BYTES]) {
            return bad(72, "the superblock's checksum does not match its bytes");
        }
        let (major, features) = (fields.u16(76), fields.u64(80));
        if major != MAJOR || features & !KNOWN_FEATURES != 0 {
            return Err(SuperError::Unknown { major, features });
        }
        let mut uuid = Uuid([0; 16]);
        uuid.0.copy_from_slice(&file[96..112]);
        let (streams, count, table_bytes) = (fields.u16(134), fields.u16(138), fields.u16(152) as usize);
        if streams == 0 || streams > STREAMS_MAX {
            return bad(134, "streams is not between 1 and 256");
        }
        if fields.u16(136) != 1 {
            return bad(136, "subdirs is not 1");
        }
        if count == 0 {
            return bad(138, "there is no backend");
        }
        if fields.u64(144) == 0 {
            return bad(144, "segment_bytes is 0");
        }
        if table_bytes > TABLE_BYTES_MAX {
            return bad(152, "the path table is too long");
        }
        let mut table = &file[TABLE_AT..TABLE_AT + table_bytes];
        let mut backends = Vec::new();
        for _ in 0..count {
            if table.len() < 2 {
                return bad(TABLE_AT, "the path table ends inside a length");
            }
            let len = Fields(table).u16(0) as usize;
            let Some(path) = table[2..].get(..len) else { return bad(TABLE_AT, "the path table ends inside a path") };
            if path.first() != Some(&b'/') || path.contains(&0) {
                return bad(TABLE_AT, "a backend's path is not absolute");
            }
            backends.push(path.to_vec());
            table = &table[2 + len..];
        }
        Ok(Superblock {
            uuid,
            created_ns: fields.u64(112),
            mode: fields.u32(120),
            uid: fields.u32(124),
            gid: fields.u32(128),
            streams,
            segment_bytes: fields.u64(144),
            backends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            uuid: Uuid([7; 16]),
            created_ns: 1,
            mode: 0o640,
            uid: 2,
            gid: 3,
            streams: 8,
            segment_bytes: 1 << 40,
            backends: vec![b"/a".to_vec(), b"/b/c".to_vec()],
        }
    }

    #[test]
    fn round_trip() {
        let file = sample().encode().unwrap();
        assert_eq!(file.len(), FILE_BYTES);
        assert_eq!(&file[..63].len(), &63);
        assert_eq!(file[63], b'\n');
        assert_eq!(Superblock::decode(&file), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = sample().encode().unwrap();
        for bit in MAGIC_AT * 8..FIXED_BYTES * 8 {
            let mut hurt = file.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&hurt).is_err(), "bit {bit}");
        }
        for len in 0..FIXED_BYTES {
            assert!(Superblock::decode(&file[..len]).is_err());
        }
    }

    #[test]
    fn a_newer_major_version_is_named() {
        let mut file = sample().encode().unwrap();
        put(&mut file, 76, &2u16.to_le_bytes());
        let sum = crc(&file[76..FIXED_BYTES]);
        put(&mut file, 72, &sum.to_le_bytes());
        assert_eq!(Superblock::decode(&file), Err(SuperError::Unknown { major: 2, features: 0 }));
    }

    #[test]
    fn too_many_backends_do_not_encode() {
        assert!(Superblock { backends: vec![vec![b'/'; 1500]; 2], ..sample() }.encode().is_err());
        assert!(Superblock { backends: vec![], ..sample() }.encode().is_err());
        assert!(Superblock { streams: 0, ..sample() }.encode().is_err());
    }
}
