//! What a process remembers of directories.

use std::path::{Path, PathBuf};

use lru::LruCache;

use super::Dir;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// Directories that are remembered. 4,096: some MB.
const DIRS_MAX: usize = 4096;
/// Directories on the storage whose names are remembered, for who comes back with a descriptor of
/// one, or works in it. 65,536: some 20 MB.
const NAMED_MAX: usize = 65_536;

/// What a directory was found to be, and when; `None`: an ordinary one, or none.
type Seen = (u64, Option<Arc<Dir>>);

/// The directories that a process knows.
#[derive(Debug)]
pub(crate) struct NameCache {
    pub(super) dirs: Mutex<LruCache<PathBuf, Seen>>,
    /// Some were spread.
    pub(super) any: AtomicBool,
    /// By the path on the storage of a directory in a spread one, or of a shadow: the path that
    /// programs know it by, or whose shadow it is. It may be of something else by now.
    named: Mutex<LruCache<PathBuf, PathBuf>>,
}

impl Default for NameCache {
    fn default() -> NameCache {
        NameCache {
            dirs: Mutex::new(LruCache::unbounded()),
            any: AtomicBool::new(false),
            named: Mutex::new(LruCache::unbounded()),
        }
    }
}

impl NameCache {
    /// The next look asks the storage.
    pub(crate) fn forget(&self) {
        lock(&self.dirs).clear();
    }

    pub(super) fn put(&self, path: &Path, now: u64, found: Option<Arc<Dir>>) {
        let mut dirs = lock(&self.dirs);
        dirs.put(path.to_path_buf(), (now, found));
        if dirs.len() > DIRS_MAX {
            dirs.pop_lru();
        }
    }

    /// Whether there has been a spread directory.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// What was last at `place` has the path `name`.
    pub(crate) fn remember(&self, place: &Path, name: &Path) {
        let mut named = lock(&self.named);
        if named.get(place).is_some_and(|known| known == name) {
            return;
        }
        named.put(place.to_path_buf(), name.to_path_buf());
        if named.len() > NAMED_MAX {
            named.pop_lru();
        }
    }

    /// The path that [`NameCache::remember`] was given for `place`.
    pub(crate) fn name_of(&self, place: &Path) -> Option<PathBuf> {
        lock(&self.named).get(place).cloned()
    }

    /// The directory `from` is `to` now, with all below it.
    pub(crate) fn renamed(&self, from: &Path, to: &Path) {
        self.forget();
        for (_, name) in lock(&self.named).iter_mut() {
            if let Ok(rest) = name.strip_prefix(from) {
                *name = match rest.as_os_str().is_empty() {
                    true => to.to_path_buf(),
                    false => to.join(rest),
                };
            }
        }
    }
}
