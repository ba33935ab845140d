//! All names of a directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::{Names, TRIES, is_gone};
use crate::error::{At, Result};
use crate::store::{Entry, Errno, Kind, Links};

impl Names<'_> {
    /// What the directory has, in no order. `None`: it is not spread.
    pub(crate) fn list(&self, path: &Path) -> Result<Option<Vec<Entry>>> {
        let entry = |(entry, _)| entry;
        Ok(self.list_with_dev(path)?.map(|all| all.into_iter().map(entry).collect()))
    }

    /// [`Names::list`], each with its file system's number.
    pub(crate) fn list_with_dev(&self, path: &Path) -> Result<Option<Vec<(Entry, u64)>>> {
        for _ in 0..TRIES {
            let Some(dir) = self.dir_now(path)? else { return Ok(None) };
            let (mut names, mut missing) = (BTreeMap::<OsString, (Entry, u64)>::new(), false);
            for (base, shadow) in dir.shadows() {
                let entries = match self.store.list(&shadow) {
                    Err(errno) if is_gone(errno) => {
                        self.must_be_there(&dir, base)?;
                        // From an old one all have gone, or will be told by the next map.
                        missing = true;
                        continue;
                    }
                    other => other.at("list", &shadow)?,
                };
                let dev = self.store.stat(&shadow, Links::Stay).map_or(0, |stat| stat.dev);
                for entry in entries {
                    let name = entry.name.clone();
                    let is_plain = matches!(entry.kind, Some(Kind::File | Kind::Dir | Kind::Other));
                    if is_plain {
                        names.insert(name, (entry, dev));
                        continue;
                    }
                    if let Some(stat) = self.look_name(&dir, &name, false)?.stat {
                        let found = Entry { name, kind: Some(stat.kind), ino: stat.ino };
                        names.insert(found.name.clone(), (found, stat.dev));
                    }
                }
            }
            if missing || dir.number.is_none() {
                self.cache.forget();
                let fresh = self.dir(path)?;
                if !fresh.is_some_and(|fresh| fresh.is_same(&dir)) {
                    continue;
                }
            }
            return Ok(Some(names.into_values().collect()));
        }
        Err(Errno::BUSY).at("list", path)
    }

    /// Calls `change` on a directory itself and on all its shadows.
    pub(crate) fn on_all(
        &self,
        path: &Path,
        change: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<bool> {
        let Some(dir) = self.dir_now(path)? else { return Ok(false) };
        change(&dir.home)?;
        for (base, shadow) in dir.shadows() {
            match change(&shadow) {
                Err(error) if is_gone(error.errno()) => self.must_be_there(&dir, base)?,
                other => other?,
            }
        }
        Ok(true)
    }
}
