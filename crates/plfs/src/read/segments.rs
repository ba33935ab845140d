//! Data logs open for reading, at most a bounded number.

use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::name::{self, SegmentRef};

use crate::container::Container;
use crate::error::{Error, Result};
use crate::store::{self, Errno, Open, StoreFile};
use crate::sync::{Arc, Mutex, lock};

/// Data logs that one logical file keeps open for reading. 64: a node's eight streams of eight
/// nodes; far below the usual limit of 1,024 descriptors, at which the original died with EMFILE.
const OPEN_MAX: usize = 64;

/// The open data logs of one logical file. Those that were read last stay open: a reader that goes
/// round among more logs than [`OPEN_MAX`] opens one for each that it comes to, one that reads
/// mostly from a few never opens those again.
#[derive(Debug)]
pub struct SegmentFiles {
    open: Mutex<LruCache<SegmentRef, Arc<dyn StoreFile>>>,
}

impl Default for SegmentFiles {
    fn default() -> SegmentFiles {
        SegmentFiles { open: Mutex::new(LruCache::unbounded()) }
    }
}

impl SegmentFiles {
    /// Reads all of `buf` at `physical` of a segment. Fewer bytes are there only if they were never
    /// made durable or were damaged: MissingData.
    pub fn read(
        &self,
        container: &Container,
        at: SegmentRef,
        physical: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let found = self.read_some(container, at, physical, buf)?;
        if found < buf.len() {
            let path = container.segment_path(&at)?;
            return Err(missing(path, physical, buf.len(), found, Errno::IO));
        }
        Ok(())
    }

    /// Reads as much of `buf` as the segment has.
    pub fn read_some(
        &self,
        container: &Container,
        at: SegmentRef,
        physical: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let known = lock(&self.open).get(&at).cloned();
        if let Some(Ok(found)) = known.map(|file| store::read_full(file.as_ref(), buf, physical)) {
            return Ok(found);
        }
        let mut path = container.segment_path(&at)?;
        let file = match self.file(container, at, &path) {
            Err(Errno::NOENT | Errno::NOTDIR) if at.backend > 0 => {
                // The backend may have moved, or be gone.
                path = container.backend_dir_again(at.backend)?.join(name::data_log(&at));
                self.file(container, at, &path)
            }
            other => other,
        };
        let read = file.and_then(|file| store::read_full(file.as_ref(), buf, physical));
        read.map_err(|errno| missing(path, physical, buf.len(), 0, errno))
    }

    fn file(
        &self,
        container: &Container,
        at: SegmentRef,
        path: &Path,
    ) -> store::Result<Arc<dyn StoreFile>> {
        let mut open = lock(&self.open);
        if let Some(file) = open.get(&at) {
            return Ok(file.clone());
        }
        let file = match container.store.open(path, Open::READ) {
            // Out of descriptors: ours are the ones to give up.
            Err(Errno::MFILE | Errno::NFILE) if !open.is_empty() => {
                open.clear();
                container.store.open(path, Open::READ)?
            }
            other => other?,
        };
        open.put(at, file.clone());
        if open.len() > OPEN_MAX {
            open.pop_lru();
        }
        Ok(file)
    }

    /// Closes all.
    pub fn clear(&self) {
        lock(&self.open).clear();
    }
}

fn missing(path: PathBuf, at_bytes: u64, wanted: usize, found: usize, errno: Errno) -> Error {
    Error::MissingData {
        path,
        at_bytes,
        wanted_bytes: wanted as u64,
        found_bytes: found as u64,
        errno,
    }
}
