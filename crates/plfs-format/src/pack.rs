//! Packs (FORMAT.md section 12): records of the files of a directory, as blocks of index logs and
//! leaves of the sorted tree have them.
//!
//! The framing of a block is that of [`index_log`](crate::index_log); only its records differ. The
//! tree is in [`tree`].

mod decode;
mod encode;
pub mod tree;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use decode::decode_block;
pub(crate) use decode::decode_records;
pub(crate) use encode::encode_records;
pub use encode::{encode_block, pieces_in_record};

use crate::index_log::Header;
use crate::name::SegmentRef;

/// Name of a pack in its directory: the hard link to the superblock.
pub const NAME: &str = ".plfs-pack";
/// In the mode of that name: files of the directory move into the pack, or out of it, and ordinary
/// ones come first (FORMAT.md section 12).
pub const CHANGING: u32 = 0o1000;
/// Beside that name: the directory of plain files that go into the pack.
pub const IN: &str = ".plfs-pack.in";
/// The same of files that go out of it. While it is there, and the files move, nobody writes any
/// file of the pack.
pub const OUT: &str = ".plfs-pack.out";
/// Bytes of a name at most: NAME_MAX of Linux.
pub const NAME_MAX: usize = 255;
/// Pieces in a record at most: its length must fit in a byte, in units of 8.
pub const PIECES_MAX: usize = (RECORD_MAX - size_of::<RawWrite>()) / size_of::<RawPiece>();
/// Ids in a record of removed files at most.
pub const GONE_MAX: usize = 127;

const RECORD_MAX: usize = 255 * 8;
const KIND_FILE: u8 = 16;
const KIND_WRITE: u8 = 17;
const KIND_CUT: u8 = 18;
const KIND_ATTRIBUTES: u8 = 19;
const KIND_GONE: u8 = 20;
const KIND_BY_ID: u8 = 21;
const KIND_CLEAR: u8 = 22;
/// Readers skip it, as all from 128 on.
const KIND_END: u8 = 131;
const SET_MODE: u32 = 1;
const SET_UID: u32 = 2;
const SET_GID: u32 = 4;
const SET_MTIME: u32 = 8;
const SET_ATIME: u32 = 16;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    kind: u8,
    units: u8,
    segment: U16,
    count: U32,
}

/// The names follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFile {
    head: RawHead,
    id_stamp: U64,
    id_set: U32,
    mode: U32,
    bound_stamp: U64,
    bound_set: U32,
    uid: U32,
    gid: U32,
    name_bytes: U16,
    former_bytes: U16,
}

/// The pieces follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWrite {
    head: RawHead,
    id_stamp: U64,
    id_set: U32,
    set: U32,
    boot: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPiece {
    logical: U64,
    physical: U64,
    stamp: U64,
    length: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCut {
    head: RawHead,
    id_stamp: U64,
    id_set: U32,
    set: U32,
    stamp: U64,
    size: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAttributes {
    head: RawHead,
    id_stamp: U64,
    id_set: U32,
    set: U32,
    stamp: U64,
    mode: U32,
    uid: U32,
    gid: U32,
    zero: U32,
    mtime: I64,
    atime: I64,
    mtime_ns: U32,
    atime_ns: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawId {
    stamp: U64,
    set: U32,
    zero: U32,
}

/// The name follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawById {
    head: RawHead,
    id_stamp: U64,
    id_set: U32,
    name_bytes: U16,
    zero: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawClear {
    head: RawHead,
    stamp: U64,
}

/// A place in the one order of all that is said of a container: (stamp, log set).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// A stamp (FORMAT.md section 4).
    pub stamp: u64,
    /// Number of the log set.
    pub set: u32,
}

/// A file of a pack: the place of its creation.
pub type FileId = Place;

/// A point in time: seconds since 1970 UTC and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct When {
    /// Whole seconds.
    pub sec: i64,
    /// Nanoseconds past `sec`.
    pub nsec: u32,
}

/// Bytes of a file, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub logical: u64,
    /// Offset in the segment.
    pub physical: u64,
    /// Orders it, with the log set of its record.
    pub stamp: u64,
    /// Bytes, at least 1.
    pub length: u32,
    /// CRC-32C of the data.
    pub crc: u32,
}

/// What a record of attributes sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Modification time.
    pub mtime: Option<When>,
    /// Access time.
    pub atime: Option<When>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A file has this name since `bound`; if that is its id, it is created.
    File {
        /// Which file.
        id: FileId,
        /// Since when it has the name.
        bound: Place,
        /// Permission bits at creation.
        mode: u32,
        /// Owner at creation.
        uid: u32,
        /// Group at creation.
        gid: u32,
        /// The name: 1 to 255 bytes, none 0 or `/`, not `.` nor `..`.
        name: Box<[u8]>,
        /// The name before it; empty if and only if the file is created.
        former: Box<[u8]>,
    },
    /// Bytes of a file were written.
    Write {
        /// Which file.
        id: FileId,
        /// Log set of the pieces' places.
        set: u32,
        /// Which boot of which machine holds the data as long as it is not durable; 0: it is.
        boot: u64,
        /// Index into the block's segment references.
        segment: u16,
        /// 1 to [`PIECES_MAX`].
        pieces: Vec<Piece>,
    },
    /// The size became this; what was written past it before is gone.
    Cut {
        /// Which file.
        id: FileId,
        /// Orders it.
        place: Place,
        /// The new size.
        size: u64,
    },
    /// Attributes were set, at least one.
    Attributes {
        /// Which file.
        id: FileId,
        /// Orders it.
        place: Place,
        /// Which, and to what.
        set: Attributes,
    },
    /// These files are removed.
    Gone {
        /// 1 to [`GONE_MAX`].
        ids: Vec<FileId>,
    },
    /// In the tree only: where a renamed file is now.
    ById {
        /// Which file.
        id: FileId,
        /// Its name; empty: it is gone.
        name: Box<[u8]>,
    },
    /// Blocks of other log sets with stamps up to this say nothing any more.
    Clear {
        /// The stamp.
        stamp: u64,
    },
}

/// A block of an index log of a pack, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Header.
    pub header: Header,
    /// What the segment numbers of pieces mean.
    pub segments: Vec<SegmentRef>,
    /// The records in order; kinds that this version may skip are left out.
    pub records: Vec<Record>,
}

/// Whether a file of a pack can have this name.
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// A kind 16 with a former name if and only if it was renamed.
fn is_file_valid(id: FileId, bound: Place, name: &[u8], former: &[u8]) -> bool {
    is_name(name)
        && bound >= id
        && (former.is_empty() == (bound == id))
        && (former.is_empty() || is_name(former))
}

fn is_piece_valid(piece: &Piece) -> bool {
    let fits =
        |at: u64| at.checked_add(piece.length.into()).is_some_and(|end| end <= crate::MAX_OFFSET);
    piece.length > 0 && fits(piece.logical) && fits(piece.physical)
}

#[cfg(test)]
pub(crate) mod tests;
