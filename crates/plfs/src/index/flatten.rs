//! Makes the flat index (FORMAT.md section 6): everything committed, sorted, in one file that readers map.

use plfs_format::flat_index;
use plfs_format::name::{self, Name};

use super::load::Index;
use crate::container::{Container, has_owner, put_file};
use crate::error::{Error, Result};

/// What flattening made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flattened {
    /// Entries and extents in the flat index.
    pub entries: u64,
    /// Bytes of the flat index.
    pub bytes: u64,
}

/// Writes a flat index of everything committed so far. Atomic: readers see the old one or the new one; durable on return.
pub fn flatten(container: &Container) -> Result<Flattened> {
    let settled = !has_owner(&container.list()?);
    let mut index = Index::load(container)?;
    let bytes = match index.encode(container, settled) {
        // The old flat index was found damaged: the logs have all that it has.
        Err(_) if index.is_broken().is_some() => {
            index.begin_anew(container, index.is_broken().unwrap_or_default())?;
            index.encode(container, settled)?
        }
        encoded => encoded?,
    };
    store_flat(container, &bytes, true)?;
    let flat = flat_index::decode(&bytes, &container.superblock.uuid).map_err(|bad| Error::Corrupt { path: container.path(name::FLAT), bad })?;
    Ok(Flattened { entries: flat.entries + flat.extents, bytes: bytes.len() as u64 })
}

/// Bytes of index that a last closer merges without being asked. 8 MiB are 150,000 records: a few tenths of a second.
const CHEAP_BYTES: u64 = 8 << 20;
/// Bytes in index logs from which on a flat index pays for a single log: 1,000 records.
const WORTH_BYTES: u64 = 64 << 10;

/// Writes a flat index if that spares readers more than it costs; `index` has read everything. Not forced to storage: one that a power cut tears does not count.
///
/// It pays where readers would have to open several logs, which other clients wrote; and where a long log would be replayed again and again, by whoever opens or closes the file. A
/// flat index is written anew when the logs have grown by a quarter of what it covers, so that n closes cost O(n) in all, not O(n^2).
pub(crate) fn flatten_if_worth(container: &Container, index: &mut Index) {
    let (logs, bytes) = index.uncovered();
    let covered = index.totals().index_bytes.saturating_sub(bytes);
    let least = if logs >= 2 { 1 } else { WORTH_BYTES };
    if bytes >= (covered / 4).clamp(least, CHEAP_BYTES / 2) {
        let stored = index.encode(container, true).and_then(|flat| store_flat(container, &flat, false));
        if stored.is_err() {
            index.forget_flat();
        }
    }
}

/// The index, if it is cheap to load: most of the logs is in a flat index, or there is not much of them. `None` too if some of it cannot be read.
pub(crate) fn load_if_cheap(container: &Container, names: &[Name]) -> Option<Index> {
    let mut index = Index::begin(container, names).ok()?;
    (index.unread_bytes(container, names) <= CHEAP_BYTES).then_some(())?;
    index.finish(container, names).ok()?.then_some(index)
}

/// Puts an encoded flat index in its place, atomically.
pub(crate) fn store_flat(container: &Container, bytes: &[u8], durable: bool) -> Result<()> {
    put_file(container, name::FLAT, name::FLAT_TMP, bytes, durable)
}
