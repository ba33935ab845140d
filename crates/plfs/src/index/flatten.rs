//! Makes the flat index (FORMAT.md section 6): everything committed, sorted, in one file that readers map.

use plfs_format::flat_index::{self, Covered, FlatIndex, Truncate};
use plfs_format::name;

use super::load::Index;
use crate::container::{Container, Totalizer, random_u64};
use crate::error::{At, Result};
use crate::store::{self, Open};

/// What flattening made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flattened {
    /// Entries in the flat index.
    pub entries: u64,
    /// Bytes of the flat index.
    pub bytes: u64,
}

/// Writes a flat index of everything committed so far. Atomic: readers see the old one or the new one; durable on return.
pub fn flatten(container: &Container) -> Result<Flattened> {
    let mut index = Index::load(container)?;
    let entries = index.merged_entries();
    let mut covered: Vec<Covered> = index.scanned().map(|(set, bytes)| Covered { set, bytes }).collect();
    covered.sort_by_key(|covered| covered.set);
    let truncates = index.extents().truncates().iter().map(|(order, size)| Truncate { hlc: order.hlc, set: order.set, seq: order.seq, size: *size }).collect();
    let flat = FlatIndex {
        uuid: container.superblock.uuid,
        size: index.eof(),
        stored_bytes: Totalizer::default().look(container)?.stored_bytes,
        max_hlc: index.max_hlc(),
        covered,
        segments: index.segments().to_vec(),
        truncates,
        entries: 0,
        entries_at: 0,
    };
    let bytes = flat_index::encode(&flat, &entries);
    let tmp = container.path(&format!("{}{:08x}", name::FLAT_TMP, random_u64() as u32));
    let path = container.path(name::FLAT);
    let written = (|| {
        let file = container.store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
        store::write_full(file.as_ref(), &bytes, 0).at("write", &tmp)?;
        file.sync_data().at("sync", &tmp)?;
        container.store.rename(&tmp, &path).at("rename", &tmp)?;
        container.store.sync_dir(&container.dir).at("sync", &container.dir)
    })();
    if written.is_err() {
        let _ = container.store.unlink(&tmp);
    }
    written.map(|()| Flattened { entries: (entries.len() / flat_index::ENTRY_BYTES) as u64, bytes: bytes.len() as u64 })
}
