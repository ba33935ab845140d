//! Reading index logs: whole, or from where the last look ended (FORMAT.md section 3, "Torn tails").

use plfs_format::index_log::{ALIGN, At as Place, Header, LogId, align_up, block_at};
use plfs_format::{Uuid, name};

use crate::container::Container;
use crate::error::{At, Result};
use crate::store::{self, Errno, Open};

/// The bytes of an index log from `offset` on; none if it is gone or not longer.
pub fn read_index_log_from(container: &Container, set: u32, offset: u64) -> Result<Vec<u8>> {
    let path = container.path(&name::index_log(set));
    let file = match container.store.open(&path, Open::READ) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other.at("open the index log", &path)?,
    };
    let len = file.stat().at("stat the index log", &path)?.len;
    let mut bytes = vec![0; usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX)];
    let n = store::read_full(file.as_ref(), &mut bytes, offset).at("read the index log", &path)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Calls `visit(offset, header, bytes from the block on)` for every valid block in `bytes`, which lie at `offset` of the log of `set`. Gives where the log ends for now:
/// a later look starts there. Torn bytes in front of a valid block are skipped.
pub fn scan(uuid: Uuid, set: u32, offset: u64, bytes: &[u8], mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>) -> Result<u64> {
    let log = LogId { uuid, set };
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
