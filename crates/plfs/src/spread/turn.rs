//! Locks that reach all nodes, and end with their process.

use std::path::Path;
use std::time::Duration;

use plfs_format::spread as format;

use super::{Names, new_uuid};
use crate::error::{At, Error, Result};
use crate::store::{Errno, Open, StoreFile};
use crate::sync::{Arc, thread};

/// How often somebody asks for his turn, a millisecond apart.
const TURN_TRIES: u32 = 30_000;

/// While it lives, others wait who ask for the same. It ends with the process at the latest.
pub(crate) struct Turn(pub(super) Arc<dyn StoreFile>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.leave_gate();
    }
}

impl Turn {
    /// Waits for the gate of a file. `None`: there are no locks there.
    pub(crate) fn wait_for(file: Arc<dyn StoreFile>, path: &Path) -> Result<Option<Turn>> {
        for _ in 0..TURN_TRIES {
            match file.try_gate() {
                Ok(true) => return Ok(Some(Turn(file))),
                Ok(false) => thread::sleep(Duration::from_millis(1)),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => {
                    return Ok(None);
                }
                Err(errno) => return Err(errno).at("lock", path),
            }
        }
        Err(Error::refused(Errno::BUSY, "lock", path, "another process has it for long"))
    }
}

impl Names<'_> {
    /// Waits until nobody else has this turn. `None`: there are no locks there.
    pub(super) fn turn(&self, base: &Path, name: &str) -> Result<Option<Turn>> {
        let path = base.with_file_name(name);
        let file = match self.store.open(&path, Open::READ_WRITE.briefly()) {
            Err(Errno::NOENT) => self.make_lock(&path)?,
            other => other.at("open", &path)?,
        };
        Turn::wait_for(file, &path)
    }

    /// A file that everybody may lock, who or whatever made it.
    pub(super) fn make_lock(&self, path: &Path) -> Result<Arc<dyn StoreFile>> {
        let store = self.store;
        let tmp = path.with_file_name(format!("{}{}", format::LOCK_TMP, format::hex(&new_uuid())));
        let made = (|| {
            drop(store.open(&tmp, Open::create_new(0o666).briefly()).at("create", &tmp)?);
            store.chmod(&tmp, 0o666).at("set the mode of", &tmp)?;
            match store.link(&tmp, path) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno).at("create", path),
            }
            store.open(path, Open::READ_WRITE.briefly()).at("open", path)
        })();
        let _ = store.unlink(&tmp);
        made
    }
}
