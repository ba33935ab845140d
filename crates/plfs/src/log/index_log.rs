//! Reading index logs: whole, or from where the last look ended (FORMAT.md section 3, "Torn tails").

use plfs_format::index_log::{ALIGN, At as Place, HEADER_BYTES, Header, LogId, align_up, block_at};
use plfs_format::{Bad, name};

use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::{self, Errno, Open};

/// The bytes of an index log from `offset` on, none if it is not longer; `None` if there is no such log: nothing was appended yet, or the set is gone. A new listing tells which.
pub fn read_index_log_from(container: &Container, set: u32, offset: u64) -> Result<Option<Vec<u8>>> {
    let path = container.path(&name::index_log(set));
    // Where lookups travel, only an open makes sure that what is known of a file is not old.
    if container.local && offset > 0 && container.store.stat(&path, true).is_ok_and(|stat| stat.len <= offset) {
        return Ok(Some(Vec::new()));
    }
    let file = match container.store.open(&path, Open::READ) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.at("open the index log", &path)?,
    };
    let len = file.stat().at("stat the index log", &path)?.len;
    let mut bytes = vec![0; usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX)];
    let n = store::read_full(file.as_ref(), &mut bytes, offset).at("read the index log", &path)?;
    bytes.truncate(n);
    Ok(Some(bytes))
}

/// Calls `visit(offset, header, bytes from the block on)` for every valid block in `bytes`, which lie at `offset` of `log`. Gives where the log ends for now:
/// a later look starts there. Torn bytes in front of a valid block are skipped.
pub fn scan(log: LogId, offset: u64, bytes: &[u8], mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>) -> Result<u64> {
    let (mut at, mut end) = (0, offset);
    while at < bytes.len() {
        match block_at(log, offset + at as u64, &bytes[at..]) {
            Place::Block(header) => {
                visit(offset + at as u64, header, &bytes[at..])?;
                at += header.block_bytes as usize;
                end = offset + at as u64;
            }
            Place::Nothing => at += ALIGN as usize,
        }
    }
    // The last block's padding may be cut off; the next block starts aligned all the same.
    Ok(align_up(end))
}

/// [`scan`] for who relies on the records: also fails, with Corrupt, where a block is damaged that was whole once, or is not younger than the one before it in `bytes`. What a
/// crash tore is skipped as ever.
pub fn scan_whole(container: &Container, set: u32, offset: u64, bytes: &[u8], mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>) -> Result<u64> {
    let log = container.log_id(set);
    let corrupt = |at_bytes, what| Error::Corrupt { path: container.path(&name::index_log(set)), bad: Bad { at_bytes, what } };
    let (mut at, mut damaged, mut youngest) = (offset, None, None);
    let mut look = |from: u64, to: u64| {
        let region = &bytes[(from - offset) as usize..(to - offset) as usize];
        damaged = damaged.or(judge(log, from, region).into_iter().find(|(_, _, torn)| !torn).map(|(at, _, _)| at));
    };
    let end = scan(log, offset, bytes, |block, header, rest| {
        if block > at {
            look(at, block);
        }
        if youngest.replace(header.hlc) >= Some(header.hlc) {
            return Err(corrupt(block, "an index block is not younger than the one before it"));
        }
        at = block + header.block_bytes;
        visit(block, header, rest)
    })?;
    let len = offset + bytes.len() as u64;
    if at < len {
        look(at, len);
    }
    match damaged {
        Some(at) => Err(corrupt(at, "an index block does not match its checksum; the writes that it recorded are lost")),
        None => Ok(end),
    }
}

/// Says what the bytes of `region`, in which no valid block starts, once were: pieces as (offset, length, whether a crash tore them).
///
/// An append is a block written from its start: what a crash leaves of it is a beginning, or, after a power cut, pages of zeros. Bytes that are neither were whole once.
pub fn judge(log: LogId, offset: u64, region: &[u8]) -> Vec<(u64, usize, bool)> {
    let starts: Vec<usize> = (0..region.len()).step_by(ALIGN as usize).filter(|&i| i == 0 || header_fits(log, offset + i as u64, &region[i..])).collect();
    let piece = |(n, &start): (usize, &usize)| {
        let piece = &region[start..starts.get(n + 1).copied().unwrap_or(region.len())];
        let at = offset + start as u64;
        (at, piece.len(), is_torn(log, at, piece))
    };
    starts.iter().enumerate().map(piece).collect()
}

/// Whether a header stands here that belongs here, whatever its checksum says. `bytes` may be cut.
fn header_fits(log: LogId, offset: u64, bytes: &[u8]) -> bool {
    let number = |at: usize| bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes);
    let set = bytes.get(12..16).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes);
    bytes.starts_with(b"PLIX") && set == Some(log.set) && number(16) == Some(log.uuid.low()) && number(40) == Some(offset)
}

fn is_torn(log: LogId, offset: u64, piece: &[u8]) -> bool {
    let header = &piece[..piece.len().min(HEADER_BYTES)];
    if header.iter().all(|byte| *byte == 0) {
        return true;
    }
    let written = piece.len() - piece.iter().rev().take_while(|byte| **byte == 0).count();
    if written < HEADER_BYTES - 2 {
        // The fields that a beginning of a header would have, up to where it was cut. (Its last bytes, flags, are zero.)
        let expected =
            [(0, b"PLIX".to_vec()), (12, log.set.to_le_bytes().to_vec()), (16, log.uuid.low().to_le_bytes().to_vec()), (40, offset.to_le_bytes().to_vec())];
        return expected.iter().all(|(at, field)| piece.iter().skip(*at).take(written.saturating_sub(*at)).zip(field).all(|(a, b)| a == b));
    }
    if !header_fits(log, offset, piece) {
        return false;
    }
    let payload = u32::from_le_bytes([piece[8], piece[9], piece[10], piece[11]]);
    let declared = (HEADER_BYTES as u64 + u64::from(payload)) as usize;
    // If the block is whole with another length, then the length is what was damaged.
    let mut fixed = piece.to_vec();
    let whole = (0..32).any(|bit| {
        fixed[8..12].copy_from_slice(&(payload ^ 1 << bit).to_le_bytes());
        matches!(block_at(log, offset, &fixed), Place::Block(_))
    });
    if whole || declared > piece.len() {
        return !whole;
    }
    // All of it seems to be there. A cut inside the last 64 bytes was padded by the next append; a power cut leaves zeros in whole sectors.
    const SECTOR: usize = 512;
    let first = (SECTOR - offset as usize % SECTOR) % SECTOR;
    let sectors = piece.get(first..declared).unwrap_or_default().chunks_exact(SECTOR);
    piece[declared - 2..declared] == [0, 0] || sectors.clone().any(|sector| sector.iter().all(|byte| *byte == 0))
}
