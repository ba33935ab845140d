//! Writes records of a pack.

use zerocopy::IntoBytes;

use super::{
    Attributes, GONE_MAX, KIND_ATTRIBUTES, KIND_BY_ID, KIND_CLEAR, KIND_CUT, KIND_END, KIND_FILE,
    KIND_GONE, KIND_WRITE, NAME_MAX, PIECES_MAX, RawAttributes, RawById, RawClear, RawCut, RawFile,
    RawHead, RawId, RawPiece, RawWrite, Record, SET_ATIME, SET_GID, SET_MODE, SET_MTIME, SET_UID,
    is_file_valid, is_name, is_piece_valid,
};
use crate::index_log::{Append, LogId, encode_payload};
use crate::name::SegmentRef;
use crate::{Bad, MAX_OFFSET};

/// The record that ends a payload which would end with zeros: a block that was cut is told from one
/// that is damaged by its last bytes.
const END: [u8; 8] = [KIND_END, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// Encodes one block of `log`, padded to 64 bytes.
///
/// Errors if records and references are more than 16 MiB, or a record breaks a rule of section 12.
pub fn encode_block(
    log: LogId,
    append: Append,
    segments: &[SegmentRef],
    records: &[Record],
) -> Result<Vec<u8>, Bad> {
    encode_payload(log, append, segments, |out| {
        encode_records(records, out)?;
        let is_cut_seen = !out.ends_with(&[0, 0]);
        if !is_cut_seen {
            out.extend_from_slice(&END);
        }
        Ok(records.len() as u32 + u32::from(!is_cut_seen))
    })
}

/// Cuts pieces into as many as a record can have.
pub fn pieces_in_record<T>(pieces: &[T]) -> std::slice::Chunks<'_, T> {
    pieces.chunks(PIECES_MAX)
}

/// Appends records to `out`.
pub(crate) fn encode_records(records: &[Record], out: &mut Vec<u8>) -> Result<(), Bad> {
    for record in records {
        encode(record, out).map_err(|what| Bad::new(out.len() as u64, what))?;
    }
    Ok(())
}

fn head(kind: u8, bytes: usize, segment: u16, count: u32) -> RawHead {
    RawHead { kind, units: (bytes / 8) as u8, segment: segment.into(), count: count.into() }
}

fn encode(record: &Record, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let begin = out.len();
    let bytes = match record {
        Record::File { id, bound, mode, uid, gid, name, former } => {
            if !is_file_valid(*id, *bound, name, former) || *mode > 0o7777 {
                return Err("a file has no name, or is renamed before it is created");
            }
            let bytes = (size_of::<RawFile>() + name.len() + former.len()).next_multiple_of(8);
            let raw = RawFile {
                head: head(KIND_FILE, bytes, 0, 0),
                id_stamp: id.stamp.into(),
                id_set: id.set.into(),
                mode: (*mode).into(),
                bound_stamp: bound.stamp.into(),
                bound_set: bound.set.into(),
                uid: (*uid).into(),
                gid: (*gid).into(),
                name_bytes: (name.len() as u16).into(),
                former_bytes: (former.len() as u16).into(),
            };
            out.extend_from_slice(raw.as_bytes());
            out.extend_from_slice(name);
            out.extend_from_slice(former);
            bytes
        }
        Record::Write { id, set, boot, segment, pieces } => {
            if !(1..=PIECES_MAX).contains(&pieces.len()) || !pieces.iter().all(is_piece_valid) {
                return Err("a record of a write has no pieces, too many, or too long ones");
            }
            let bytes = size_of::<RawWrite>() + pieces.len() * size_of::<RawPiece>();
            let raw = RawWrite {
                head: head(KIND_WRITE, bytes, *segment, pieces.len() as u32),
                id_stamp: id.stamp.into(),
                id_set: id.set.into(),
                set: (*set).into(),
                boot: (*boot).into(),
            };
            out.extend_from_slice(raw.as_bytes());
            for piece in pieces {
                let raw = RawPiece {
                    logical: piece.logical.into(),
                    physical: piece.physical.into(),
                    stamp: piece.stamp.into(),
                    length: piece.length.into(),
                    crc: piece.crc.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            bytes
        }
        Record::Cut { id, place, size } => {
            if *size > MAX_OFFSET {
                return Err("a size is past the largest offset");
            }
            let raw = RawCut {
                head: head(KIND_CUT, size_of::<RawCut>(), 0, 0),
                id_stamp: id.stamp.into(),
                id_set: id.set.into(),
                set: place.set.into(),
                stamp: place.stamp.into(),
                size: (*size).into(),
            };
            out.extend_from_slice(raw.as_bytes());
            size_of::<RawCut>()
        }
        Record::Attributes { id, place, set } => {
            let Attributes { mode, uid, gid, mtime, atime } = *set;
            let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
            let flags = flag(mode.is_some(), SET_MODE)
                | flag(uid.is_some(), SET_UID)
                | flag(gid.is_some(), SET_GID)
                | flag(mtime.is_some(), SET_MTIME)
                | flag(atime.is_some(), SET_ATIME);
            let (mtime, atime) = (mtime.unwrap_or_default(), atime.unwrap_or_default());
            if flags == 0
                || mode.is_some_and(|mode| mode > 0o7777)
                || mtime.nsec.max(atime.nsec) >= 1_000_000_000
            {
                return Err("attributes are none, or no such");
            }
            let raw = RawAttributes {
                head: head(KIND_ATTRIBUTES, size_of::<RawAttributes>(), 0, flags),
                id_stamp: id.stamp.into(),
                id_set: id.set.into(),
                set: place.set.into(),
                stamp: place.stamp.into(),
                mode: mode.unwrap_or(0).into(),
                uid: uid.unwrap_or(0).into(),
                gid: gid.unwrap_or(0).into(),
                zero: 0.into(),
                mtime: mtime.sec.into(),
                atime: atime.sec.into(),
                mtime_ns: mtime.nsec.into(),
                atime_ns: atime.nsec.into(),
            };
            out.extend_from_slice(raw.as_bytes());
            size_of::<RawAttributes>()
        }
        Record::Gone { ids } => {
            if !(1..=GONE_MAX).contains(&ids.len()) {
                return Err("a record of removed files has none, or too many");
            }
            let bytes = size_of::<RawHead>() + ids.len() * size_of::<RawId>();
            out.extend_from_slice(head(KIND_GONE, bytes, 0, ids.len() as u32).as_bytes());
            for id in ids {
                let raw = RawId { stamp: id.stamp.into(), set: id.set.into(), zero: 0.into() };
                out.extend_from_slice(raw.as_bytes());
            }
            bytes
        }
        Record::ById { id, name } => {
            if name.len() > NAME_MAX || !(name.is_empty() || is_name(name)) {
                return Err("a file has no such name");
            }
            let bytes = (size_of::<RawById>() + name.len()).next_multiple_of(8);
            let raw = RawById {
                head: head(KIND_BY_ID, bytes, 0, 0),
                id_stamp: id.stamp.into(),
                id_set: id.set.into(),
                name_bytes: (name.len() as u16).into(),
                zero: 0.into(),
            };
            out.extend_from_slice(raw.as_bytes());
            out.extend_from_slice(name);
            bytes
        }
        Record::Clear { stamp } => {
            let raw = RawClear {
                head: head(KIND_CLEAR, size_of::<RawClear>(), 0, 0),
                stamp: (*stamp).into(),
            };
            out.extend_from_slice(raw.as_bytes());
            size_of::<RawClear>()
        }
    };
    out.resize(begin + bytes, 0);
    Ok(())
}
