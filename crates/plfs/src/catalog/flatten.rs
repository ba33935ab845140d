//! Makes the flat index (FORMAT.md section 6): everything committed, sorted, in one file that
//! readers map.

use plfs_format::name::{self, Name};
use plfs_format::{flat_index, summary};

use super::{Index, has_owner, sync_logs};
use crate::container::{Container, put_file};
use crate::error::{Error, Result};

/// What flattening made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flattened {
    /// Entries and extents in the flat index.
    pub entries: u64,
    /// Bytes of the flat index.
    pub bytes: u64,
}

/// Writes a flat index of everything committed so far. Atomic: readers see the old one or the new
/// one; durable on return.
pub fn flatten(container: &Container) -> Result<Flattened> {
    let settled = !has_owner(&container.list()?);
    let mut index = Index::load_to_last(container)?;
    if index.is_doubtful(settled) {
        // It outlasts what the page cache has. Of another boot nothing is in doubt any more: what
        // it left was looked at.
        sync_logs(container, None)?;
    }
    let bytes = match index.encode(container, settled) {
        // The old flat index was found damaged: the logs have all that it has.
        Err(_) if index.is_broken().is_some() => {
            index.rebuild_from_logs(container, index.is_broken().unwrap_or_default())?;
            sync_logs(container, None)?;
            index.encode(container, settled)?
        }
        encoded => encoded?,
    };
    store_flat(container, &bytes, true)?;
    let flat = flat_index::decode(&bytes, &container.superblock.uuid)
        .map_err(|bad| Error::Corrupt { path: container.path(name::FLAT), bad })?;
    Ok(Flattened { entries: flat.entries + flat.extents, bytes: bytes.len() as u64 })
}

/// Bytes of index that a last closer merges without being asked. 8 MiB are 150,000 records: a few
/// tenths of a second.
const CHEAP_BYTES: u64 = 8 << 20;
/// Bytes in index logs from which on a flat index pays for a single log: 1,000 records.
const WORTH_BYTES: u64 = 64 << 10;
/// Bytes in a single log from which on a flat index is written anew. 16 KiB: whoever opens, appends
/// and closes reads and replays them three times.
const WORTH_AGAIN_BYTES: u64 = 16 << 10;

/// A close makes data durable for the sake of readers once in so many sessions at most. 64: what
/// they have written in all is 64 times as much, so it is a small part of their time.
const SESSIONS: u64 = 64;

/// Makes a flat index if that spares readers more than it costs; `index` has read everything. One
/// that is short enough for it is given back, to go behind the summary; else empty. Not forced to
/// storage: one that a power cut tears does not count.
///
/// A file pays where readers would have to open several logs, which other clients wrote; and where
/// a long log would be replayed again and again, by whoever opens or closes the file. It is written
/// anew when the logs have grown by a quarter of what it covers, or by its own length: so what n
/// closes write and read is O(n) in all, not O(n^2), and none reads much where it is short. What
/// goes behind the summary costs no call; it pays always, but does not help who writes, because
/// then the summary is void: it spares the file only where the logs are short.
///
/// A flat index hides what was overwritten, and a power cut may take what is above it, so data that
/// nobody synced has to be made durable first: a close would cost what an fsync costs. It is worth
/// that where a session has little share in it, going by `last`, what the index logs had when the
/// one before ended: programs that open, overwrite and close read 64 KiB of index at each open
/// then, and pay for an fsync once in some 250 sessions; those whose sessions have more index once
/// in 64.
pub(crate) fn flatten_if_worth(container: &Container, index: &mut Index, last: u64) -> Vec<u8> {
    let (logs, bytes) = index.uncovered();
    let all = index.totals().index_bytes;
    let covered = all.saturating_sub(bytes);
    let least = match (logs, covered) {
        (2.., _) => 1,
        (_, 0) => WORTH_BYTES,
        _ => WORTH_AGAIN_BYTES,
    };
    let flat_bytes = index.extents().base().map_or(0, |base| base.file_bytes() as u64);
    let is_worth_a_file = bytes >= (covered / 4).min(flat_bytes).clamp(least, CHEAP_BYTES / 2);
    let are_logs_short = all < WORTH_BYTES;
    if !is_worth_a_file && !are_logs_short {
        return Vec::new();
    }
    if index.is_doubtful(true) {
        let is_share_small = all.saturating_sub(last) <= bytes / SESSIONS;
        let is_sync_worth = is_worth_a_file && bytes >= WORTH_BYTES && is_share_small;
        if !is_sync_worth || sync_logs(container, None).is_err() {
            return Vec::new();
        }
    }
    let before = index.swap_flat(None);
    let flat = index.encode(container, true).unwrap_or_default();
    let is_short = (1..=summary::FLAT_BYTES).contains(&flat.len());
    let is_stored = !flat.is_empty()
        && is_worth_a_file
        && !(is_short && are_logs_short)
        && store_flat(container, &flat, false).is_ok();
    match (is_short, is_stored) {
        (true, _) => flat,
        (false, true) => Vec::new(),
        (false, false) => {
            index.swap_flat(before);
            Vec::new()
        }
    }
}

/// The index, if it is cheap to load: most of the logs is in a flat index, or there is not much of
/// them. `None` too if some of it cannot be read.
pub(crate) fn load_if_cheap(container: &Container, names: &[Name]) -> Option<Index> {
    let mut index = Index::begin(container, names).ok()?.lasting();
    (index.unread_bytes(container, names) <= CHEAP_BYTES).then_some(())?;
    index.finish(container, names).ok()?.then_some(index)
}

/// Puts an encoded flat index in its place, atomically.
pub(crate) fn store_flat(container: &Container, bytes: &[u8], durable: bool) -> Result<()> {
    put_file(container, name::FLAT, name::FLAT_TMP, bytes, durable)
}
