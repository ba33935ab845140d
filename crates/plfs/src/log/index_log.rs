//! Reading index logs: whole, or from where the last look ended (FORMAT.md section 3, "Torn tails").

use plfs_format::index_log::{ALIGN, At as Place, Header, LogId, align_up, block_at, judge};
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
    let corrupt = |at_bytes, what| Error::Corrupt { path: container.path(&name::index_log(set)), bad: Bad::new(at_bytes, what) };
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
