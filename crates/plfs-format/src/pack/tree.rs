//! `names`: the files of a pack, sorted (FORMAT.md section 12). Header, covers and blocks; what is
//! in which block is up to who makes the tree.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::decode::Of;
use super::{FileId, NAME_MAX, Record, decode_records, encode_records};
use crate::index_log::{decode_references, encode_references};
use crate::name::SegmentRef;
use crate::{Bad, Uuid, crc};

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Bytes of a block at most, so that damaged lengths cannot make a reader allocate much.
pub const BLOCK_MAX: usize = 16 << 20;
/// Levels of inner blocks at most.
pub const LEVELS_MAX: u32 = 16;
/// Bytes of one cover.
pub const COVER_BYTES: usize = size_of::<RawCover>();

const MAGIC: [u8; 8] = *b"PLFSNAM1";
const SUMMED_AT: usize = 12;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    crc: U32,
    covers_crc: U32,
    uuid: [u8; 16],
    stamp: U64,
    clear: U64,
    files: U64,
    length: U64,
    root: RawBlock,
    levels: U32,
    covers: U32,
    covers_at: U64,
    zero: [u8; 32],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawBlock {
    at: U64,
    bytes: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCover {
    set: U32,
    zero: U32,
    bytes: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLeaf {
    records: U32,
    references: U16,
    zero: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInner {
    children: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChild {
    block: RawBlock,
    key_bytes: U16,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Offset in the file.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
    /// CRC-32C of it.
    pub crc: u32,
}

/// What the tree is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The container.
    pub uuid: Uuid,
    /// Largest stamp of a block of a log in it.
    pub stamp: u64,
    /// Largest stamp of a [`Record::Clear`] in it.
    pub clear: u64,
    /// How many files it has.
    pub files: u64,
    /// Bytes of the whole file.
    pub length: u64,
    /// Its root; `None`: it has no files.
    pub root: Option<BlockRef>,
    /// Levels of inner blocks above the leaves.
    pub levels: u32,
    /// Number of covers.
    pub covers: u32,
    /// Where they are.
    pub covers_at: u64,
    /// CRC-32C of them.
    pub covers_crc: u32,
}

impl BlockRef {
    fn raw(self) -> RawBlock {
        RawBlock { at: self.at.into(), bytes: self.bytes.into(), crc: self.crc.into() }
    }

    /// Whether it lies between the header and the end of a file of `length` bytes, and is no longer
    /// than a block may be.
    fn is_in(self, length: u64) -> bool {
        let end = self.at.checked_add(self.bytes.into());
        self.at >= HEADER_BYTES as u64
            && end.is_some_and(|end| end <= length)
            && (self.bytes as usize) <= BLOCK_MAX
            && self.bytes > 0
            && self.bytes.is_multiple_of(8)
    }

    /// Whether these are the bytes of the block.
    pub fn fits(self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes as usize && crc(bytes) == self.crc
    }
}

impl From<RawBlock> for BlockRef {
    fn from(raw: RawBlock) -> BlockRef {
        BlockRef { at: raw.at.get(), bytes: raw.bytes.get(), crc: raw.crc.get() }
    }
}

/// The key of an entry in the tree: a name, or what no name can be.
pub fn key_by_id(id: FileId) -> Vec<u8> {
    let mut key = vec![0];
    key.extend_from_slice(&id.stamp.to_be_bytes());
    key.extend_from_slice(&id.set.to_be_bytes());
    key
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawHeader {
            magic: MAGIC,
            crc: 0.into(),
            covers_crc: self.covers_crc.into(),
            uuid: self.uuid.0,
            stamp: self.stamp.into(),
            clear: self.clear.into(),
            files: self.files.into(),
            length: self.length.into(),
            root: self.root.unwrap_or_default().raw(),
            levels: self.levels.into(),
            covers: self.covers.into(),
            covers_at: self.covers_at.into(),
            zero: [0; 32],
        };
        raw.crc = crc(&raw.as_bytes()[SUMMED_AT..]).into();
        raw.as_bytes().to_vec()
    }

    /// Reads the header of the tree of `uuid` from the start of a file that is `length` bytes long.
    pub fn decode(bytes: &[u8], uuid: Uuid, length: u64) -> Result<Header, Bad> {
        let bad = |at, what| Err(Bad::new(at, what));
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return bad(bytes.len() as u64, "the header of the names is cut off");
        };
        if raw.magic != MAGIC {
            return bad(0, "the names begin with PLFSNAM1");
        }
        if raw.crc != crc(&raw.as_bytes()[SUMMED_AT..]) {
            return bad(8, "the checksum of the header does not match");
        }
        if raw.uuid != uuid.0 {
            return bad(16, "the names are of another container");
        }
        let header = Header {
            uuid,
            stamp: raw.stamp.get(),
            clear: raw.clear.get(),
            files: raw.files.get(),
            length: raw.length.get(),
            root: Some(BlockRef::from(raw.root)).filter(|root| root.bytes > 0),
            levels: raw.levels.get(),
            covers: raw.covers.get(),
            covers_at: raw.covers_at.get(),
            covers_crc: raw.covers_crc.get(),
        };
        let covers_end =
            header.covers_at.checked_add(u64::from(header.covers) * COVER_BYTES as u64);
        if header.length != length
            || covers_end.is_none_or(|end| end > length)
            || header.covers_at < HEADER_BYTES as u64
            || header.levels > LEVELS_MAX
            || header.root.is_some_and(|root| !root.is_in(length))
        {
            return bad(56, "the names are not as long as they say");
        }
        Ok(header)
    }
}

/// The bytes of covers: of each log set how much of its index log is in the tree.
pub fn encode_covers(covers: &[(u32, u64)]) -> Vec<u8> {
    let raw = |(set, bytes): &(u32, u64)| RawCover {
        set: (*set).into(),
        zero: 0.into(),
        bytes: (*bytes).into(),
    };
    covers.iter().flat_map(|cover| raw(cover).as_bytes().to_vec()).collect()
}

/// Reads the covers of a tree with this header.
pub fn decode_covers(header: &Header, bytes: &[u8]) -> Result<Vec<(u32, u64)>, Bad> {
    let bad = |what| Err(Bad::new(header.covers_at, what));
    if crc(bytes) != header.covers_crc {
        return bad("the checksum of the covers does not match");
    }
    let Ok((raws, [])) = <[RawCover]>::ref_from_prefix_with_elems(bytes, header.covers as usize)
    else {
        return bad("the covers are cut off");
    };
    Ok(raws.iter().map(|raw| (raw.set.get(), raw.bytes.get())).collect())
}

/// The bytes of a leaf.
pub fn encode_leaf(segments: &[SegmentRef], records: &[Record]) -> Result<Vec<u8>, Bad> {
    let Ok(references) = u16::try_from(segments.len()) else {
        return Err(Bad::new(4, "a leaf has too many segment references"));
    };
    let raw = RawLeaf {
        records: (records.len() as u32).into(),
        references: references.into(),
        zero: 0.into(),
    };
    let mut out = raw.as_bytes().to_vec();
    encode_references(segments, &mut out);
    encode_records(records, &mut out)?;
    match out.len() > BLOCK_MAX {
        true => Err(Bad::new(0, "the block is too long")),
        false => Ok(out),
    }
}

/// Reads a leaf that lies at `at`, of a tree whose header says `stamp`: what segments mean, and the
/// records.
pub fn decode_leaf(
    bytes: &[u8],
    at: u64,
    stamp: u64,
) -> Result<(Vec<SegmentRef>, Vec<Record>), Bad> {
    let Ok((raw, rest)) = RawLeaf::ref_from_prefix(bytes) else {
        return Err(Bad::new(at, "a leaf is cut off"));
    };
    let (segments, records) = decode_references(rest, raw.references.get().into(), at + 8)?;
    let begin = at + (bytes.len() - records.len()) as u64;
    let records =
        decode_records(records, begin, segments.len(), raw.records.get(), stamp, Of::Leaf)?;
    Ok((segments, records))
}

/// The bytes of an inner block: its children and the first key in each.
pub fn encode_inner(children: &[(Vec<u8>, BlockRef)]) -> Vec<u8> {
    let raw = RawInner { children: (children.len() as u32).into(), zero: 0.into() };
    let mut out = raw.as_bytes().to_vec();
    for (key, block) in children {
        let raw = RawChild { block: block.raw(), key_bytes: (key.len() as u16).into() };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(key);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

/// Reads an inner block that lies at `at` of a file that is `length` bytes long.
pub fn decode_inner(bytes: &[u8], at: u64, length: u64) -> Result<Vec<(Vec<u8>, BlockRef)>, Bad> {
    let bad = |what| Err(Bad::new(at, what));
    let Ok((raw, mut rest)) = RawInner::ref_from_prefix(bytes) else {
        return bad("an inner block is cut off");
    };
    let mut children: Vec<(Vec<u8>, BlockRef)> = Vec::new();
    for _ in 0..raw.children.get() {
        let Ok((raw, behind)) = RawChild::ref_from_prefix(rest) else {
            return bad("an inner block is cut off");
        };
        let n = usize::from(raw.key_bytes.get());
        let used = (size_of::<RawChild>() + n).next_multiple_of(8);
        let (Some(key), true) = (behind.get(..n), used <= rest.len()) else {
            return bad("an inner block is cut off");
        };
        let block = BlockRef::from(raw.block);
        // A child lies in front of who names it: so nothing leads round in a circle.
        if !block.is_in(length) || block.at >= at || key.is_empty() || n > NAME_MAX {
            return bad("a child of an inner block is not in the file");
        }
        if children.last().is_some_and(|(last, _)| last.as_slice() >= key) {
            return bad("the keys of an inner block do not ascend");
        }
        children.push((key.to_vec(), block));
        rest = &rest[used..];
    }
    if children.is_empty() || !rest.is_empty() {
        return bad("an inner block has no children, or goes on behind them");
    }
    Ok(children)
}
