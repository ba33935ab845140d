//! Reads records of a pack.

use zerocopy::FromBytes;
use zerocopy::little_endian::{I64, U32, U64};

use super::{
    Attributes, Block, FileId, GONE_MAX, KIND_ATTRIBUTES, KIND_BY_ID, KIND_CLEAR, KIND_CUT,
    KIND_FILE, KIND_GONE, KIND_WRITE, PIECES_MAX, Piece, Place, RawAttributes, RawById, RawClear,
    RawCut, RawFile, RawHead, RawId, RawPiece, RawWrite, Record, SET_ATIME, SET_GID, SET_MODE,
    SET_MTIME, SET_UID, When, is_file_valid, is_name, is_piece_valid,
};
use crate::index_log::{HEADER_BYTES, Header, decode_references};
use crate::{Bad, MAX_OFFSET};

/// Which records may be in what is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// An index log.
    Log,
    /// A leaf of the tree.
    Leaf,
}

/// Decodes the records of a block whose header
/// [`block_at`](crate::index_log::block_at) found at the start of `bytes`, which lie at `offset` of
/// an index log of a pack.
///
/// An error means that a block with right CRCs contradicts the document: corruption, or a newer
/// format (see [`Bad::newer`]), never a torn write.
pub fn decode_block(header: Header, offset: u64, bytes: &[u8]) -> Result<Block, Bad> {
    let payload = bytes
        .get(HEADER_BYTES..header.bytes())
        .ok_or(Bad::new(offset, "the block is not whole"))?;
    let at = offset + HEADER_BYTES as u64;
    header.must_be_known(offset)?;
    if header.eof != 0 || header.truncates {
        return Err(Bad::new(offset, "a block of a pack has an end of file"));
    }
    let (segments, rest) = decode_references(payload, header.references().into(), at)?;
    let at = at + (payload.len() - rest.len()) as u64;
    let references = segments.len();
    let records = decode_records(rest, at, references, header.records, header.stamp, Of::Log)?;
    Ok(Block { header, segments, records })
}

fn place(stamp: &U64, set: &U32) -> Place {
    Place { stamp: stamp.get(), set: set.get() }
}

/// Decodes `count` records that fill `bytes`, which lie at `at` of their file. None has a place
/// younger than `stamp`, or names a segment that is not below `references`.
pub(crate) fn decode_records(
    bytes: &[u8],
    at: u64,
    references: usize,
    count: u32,
    stamp: u64,
    of: Of,
) -> Result<Vec<Record>, Bad> {
    let mut rest = bytes;
    let mut records = Vec::new();
    for _ in 0..count {
        let at = at + (bytes.len() - rest.len()) as u64;
        let cut = Bad::new(at, "the block ends inside a record");
        let (head, _) = RawHead::ref_from_prefix(rest).map_err(|_| cut)?;
        let length = usize::from(head.units) * 8;
        if length == 0 || rest.len() < length {
            return Err(cut);
        }
        let record;
        (record, rest) = rest.split_at(length);
        if head.kind >= 128 {
            continue;
        }
        let known = decode(head, record, references, of).map_err(|what| match what {
            Wrong::Newer => Bad::newer(at, "a record is of a kind that this version does not know"),
            Wrong::Bad(what) => Bad::new(at, what),
        })?;
        if youngest(&known) > stamp {
            return Err(Bad::new(at, "a record is younger than its block"));
        }
        records.push(known);
    }
    if !rest.is_empty() {
        let at = at + (bytes.len() - rest.len()) as u64;
        return Err(Bad::new(at, "the payload goes on behind the last record"));
    }
    Ok(records)
}

/// The largest stamp of a place in a record.
fn youngest(record: &Record) -> u64 {
    match record {
        Record::File { bound, .. } => bound.stamp,
        Record::Write { id, pieces, .. } => {
            pieces.iter().map(|piece| piece.stamp).fold(id.stamp, u64::max)
        }
        Record::Cut { id, place, .. } | Record::Attributes { id, place, .. } => {
            place.stamp.max(id.stamp)
        }
        Record::Gone { ids } => ids.iter().map(|id| id.stamp).max().unwrap_or(0),
        Record::ById { id, .. } => id.stamp,
        Record::Clear { stamp } => *stamp,
    }
}

enum Wrong {
    Newer,
    Bad(&'static str),
}

impl From<&'static str> for Wrong {
    fn from(what: &'static str) -> Wrong {
        Wrong::Bad(what)
    }
}

const LENGTH: &str = "a record has the wrong length for its kind";

/// `record` is as long as its head says.
fn decode(head: &RawHead, record: &[u8], references: usize, of: Of) -> Result<Record, Wrong> {
    let count = head.count.get() as usize;
    match head.kind {
        1..=4 => return Err("a pack has a record of a file that is not in one".into()),
        KIND_FILE..=KIND_CLEAR => {}
        _ => return Err(Wrong::Newer),
    }
    if head.kind != KIND_WRITE && head.segment != 0 {
        return Err("a record that has no data names a segment".into());
    }
    let is_alone = matches!(head.kind, KIND_FILE | KIND_CUT | KIND_BY_ID | KIND_CLEAR);
    if is_alone && count != 0 {
        return Err("a record has a count that has nothing to count".into());
    }
    let is_of = match head.kind {
        KIND_GONE | KIND_CLEAR => of == Of::Log,
        KIND_BY_ID => of == Of::Leaf,
        _ => true,
    };
    if !is_of {
        return Err("a record is where its kind is not".into());
    }
    match head.kind {
        KIND_FILE => {
            let (raw, names) = RawFile::ref_from_prefix(record).map_err(|_| LENGTH)?;
            let n = usize::from(raw.name_bytes.get());
            let end = n + usize::from(raw.former_bytes.get());
            if record.len() != (size_of::<RawFile>() + end).next_multiple_of(8) {
                return Err(LENGTH.into());
            }
            let (name, former) = (&names[..n], &names[n..end]);
            let (id, bound) =
                (place(&raw.id_stamp, &raw.id_set), place(&raw.bound_stamp, &raw.bound_set));
            if !is_file_valid(id, bound, name, former) {
                return Err("a file has no name, or is renamed before it is created".into());
            }
            let (mode, uid, gid) = (raw.mode.get(), raw.uid.get(), raw.gid.get());
            if mode > 0o7777 {
                return Err("a mode has more than permission bits".into());
            }
            let (name, former) = (name.into(), former.into());
            Ok(Record::File { id, bound, mode, uid, gid, name, former })
        }
        KIND_WRITE => {
            let (raw, rest) = RawWrite::ref_from_prefix(record).map_err(|_| LENGTH)?;
            if !(1..=PIECES_MAX).contains(&count) || rest.len() != count * size_of::<RawPiece>() {
                return Err(LENGTH.into());
            }
            let (raws, _) =
                <[RawPiece]>::ref_from_prefix_with_elems(rest, count).map_err(|_| LENGTH)?;
            let piece = |raw: &RawPiece| Piece {
                logical: raw.logical.get(),
                physical: raw.physical.get(),
                stamp: raw.stamp.get(),
                length: raw.length.get(),
                crc: raw.crc.get(),
            };
            let pieces: Vec<Piece> = raws.iter().map(piece).collect();
            if !pieces.iter().all(is_piece_valid) {
                return Err("a piece is empty, or leaves the file's range".into());
            }
            let segment = head.segment.get();
            if usize::from(segment) >= references {
                return Err("a write names a segment that the block does not list".into());
            }
            let (id, set) = (place(&raw.id_stamp, &raw.id_set), raw.set.get());
            Ok(Record::Write { id, set, boot: raw.boot.get(), segment, pieces })
        }
        KIND_CUT => {
            let raw = RawCut::ref_from_bytes(record).map_err(|_| LENGTH)?;
            let size = raw.size.get();
            if size > MAX_OFFSET {
                return Err("a size is past the largest offset".into());
            }
            let id = place(&raw.id_stamp, &raw.id_set);
            Ok(Record::Cut { id, place: place(&raw.stamp, &raw.set), size })
        }
        KIND_ATTRIBUTES => {
            let raw = RawAttributes::ref_from_bytes(record).map_err(|_| LENGTH)?;
            let flags = head.count.get();
            const ALL: u32 = SET_MODE | SET_UID | SET_GID | SET_MTIME | SET_ATIME;
            let has = |flag: u32| flags & flag != 0;
            let time = |flag: u32, sec: &I64, nsec: &U32| match (has(flag), nsec.get()) {
                (true, nsec @ 0..1_000_000_000) => Ok(Some(When { sec: sec.get(), nsec })),
                (true, _) => Err("a time has more than a second of nanoseconds"),
                (false, _) => Ok(None),
            };
            if flags == 0 || flags & !ALL != 0 {
                return Err("attributes are none, or some that nobody knows".into());
            }
            let set = Attributes {
                mode: has(SET_MODE).then_some(raw.mode.get()),
                uid: has(SET_UID).then_some(raw.uid.get()),
                gid: has(SET_GID).then_some(raw.gid.get()),
                mtime: time(SET_MTIME, &raw.mtime, &raw.mtime_ns)?,
                atime: time(SET_ATIME, &raw.atime, &raw.atime_ns)?,
            };
            if set.mode.is_some_and(|mode| mode > 0o7777) {
                return Err("a mode has more than permission bits".into());
            }
            let id = place(&raw.id_stamp, &raw.id_set);
            Ok(Record::Attributes { id, place: place(&raw.stamp, &raw.set), set })
        }
        KIND_GONE => {
            let rest = &record[size_of::<RawHead>()..];
            if !(1..=GONE_MAX).contains(&count) || rest.len() != count * size_of::<RawId>() {
                return Err(LENGTH.into());
            }
            let (raws, _) =
                <[RawId]>::ref_from_prefix_with_elems(rest, count).map_err(|_| LENGTH)?;
            let ids: Vec<FileId> = raws.iter().map(|raw| place(&raw.stamp, &raw.set)).collect();
            Ok(Record::Gone { ids })
        }
        KIND_BY_ID => {
            let (raw, rest) = RawById::ref_from_prefix(record).map_err(|_| LENGTH)?;
            let n = usize::from(raw.name_bytes.get());
            if record.len() != (size_of::<RawById>() + n).next_multiple_of(8) {
                return Err(LENGTH.into());
            }
            let name = &rest[..n];
            if !name.is_empty() && !is_name(name) {
                return Err("a file has no such name".into());
            }
            Ok(Record::ById { id: place(&raw.id_stamp, &raw.id_set), name: name.into() })
        }
        KIND_CLEAR => {
            let raw = RawClear::ref_from_bytes(record).map_err(|_| LENGTH)?;
            Ok(Record::Clear { stamp: raw.stamp.get() })
        }
        _ => Err(Wrong::Newer),
    }
}
