//! The data logs that a logical file is read from.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plfs_format::name::{self, SegmentRef};

use crate::container::Container;
use crate::error::{Error, Result, is_of_the_moment};
use crate::store::{self, CachedFile, Errno, Open, StoreFile};
use crate::sync::{Arc, Mutex, lock};

/// Data logs of one logical file that are remembered: twice as many as can be open, so that to
/// forget the others is worth its time.
const REMEMBERED_MAX: usize = 8192;

/// The data logs that were read of one logical file. How many of all files stay open is bounded
/// (the original died with EMFILE at 1,024 of one file): a reader that goes round among more opens
/// one for each that it comes to, one that reads mostly from a few never opens those again.
#[derive(Debug, Default)]
pub struct SegmentFiles {
    read: Mutex<HashMap<SegmentRef, Arc<CachedFile>>>,
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
        if at == SegmentRef::BASE {
            // Programs without PLFS may have cut it: what is gone is zeros, and hides what is older
            // all the same.
            buf[found..].fill(0);
            return Ok(());
        }
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
        let known = lock(&self.read).get(&at).cloned().and_then(|file| file.get());
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
        read.map_err(|errno| match is_of_the_moment(errno) {
            true => Error::Io { op: "open the data log", path, errno },
            false => missing(path, physical, buf.len(), 0, errno),
        })
    }

    fn file(
        &self,
        container: &Container,
        at: SegmentRef,
        path: &Path,
    ) -> store::Result<Arc<dyn StoreFile>> {
        let mut read = lock(&self.read);
        if read.len() >= REMEMBERED_MAX {
            read.retain(|_, file| file.may_be_open());
        }
        let file = read.entry(at).or_insert_with(CachedFile::for_reading).clone();
        drop(read);
        file.get_or_open(|_| container.store.open(path, Open::READ))
    }

    /// Closes all.
    pub fn clear(&self) {
        lock(&self.read).clear();
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
