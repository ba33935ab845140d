//! Where files may be written: only on file systems whose clients see at once what others did
//! (docs/decisions/0014).
//!
//! Who owns a log set, and what was committed, is said by names, links and lengths. A client that
//! believes what it has cached appends to a set that others have fenced and removed, and takes for
//! new what others have written.

use std::path::Path;

use super::layout::Container;
use crate::config::{CloseToOpen, Config};
use crate::error::{Error, Result};
use crate::store::{Errno, Store};

/// [`Error::CloseToOpen`] if files below `dir` must not be written by this process.
pub(super) fn must_be_coherent(store: &dyn Store, config: &Config, dir: &Path) -> Result<()> {
    match (config.close_to_open, store.close_to_open(dir)) {
        (CloseToOpen::Refuse, Some(kind)) => {
            Err(Error::CloseToOpen { path: dir.to_path_buf(), kind })
        }
        _ => Ok(()),
    }
}

impl Container {
    /// [`Error::CloseToOpen`] if this process must not write the file, because of its root or of a
    /// backend; EROFS if its backends are those of another file ([`Container::original`]). Costs
    /// nothing for a root on a local file system.
    pub fn must_be_coherent(&self, config: &Config) -> Result<()> {
        if let Some(original) = self.original() {
            let why = "this file came with a copy of the tree, and its data on other backends is \
                       the original's (`plfs cp` makes a file of its own; if the original is not \
                       needed any more, move it away)";
            return Err(Error::refused(Errno::ROFS, "write a copy of a file of", original, why));
        }
        if !self.local {
            must_be_coherent(self.store.as_ref(), config, self.root())?;
        }
        for backend in self.superblock.backends.iter().filter(|backend| **backend > 0) {
            // One that is not there says so when it is needed.
            if let Ok(dir) = self.backend_root(*backend) {
                must_be_coherent(self.store.as_ref(), config, &dir)?;
            }
        }
        Ok(())
    }
}
