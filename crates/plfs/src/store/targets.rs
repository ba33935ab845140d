//! Storage targets: what of a directory's storage can be slow by itself, and how a file is made on
//! one of them (docs/decisions/0028).
//!
//! A [`TargetProvider`] says it of a directory. There are three: a plain directory is one target; a
//! set of directories, as the backends of a file are, has those of each; and a directory on Lustre
//! has the targets (OSTs) of that file system, if it tells them.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use super::{Errno, Open, Result, Store, StoreFile};
use crate::sync::Arc;

/// One target of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StorageTarget {
    /// Its number with the provider, below [`TARGET_MAX`].
    pub number: u16,
    /// By which rates of it are known: the same for all directories that have it. Of a directory
    /// that is one target the directory.
    pub key: PathBuf,
}

/// Numbers of targets are below this: fifteen bits less one in a node's page.
pub const TARGET_MAX: u16 = 0x7fff;

/// Says what of a directory's storage can be slow by itself, and makes files on it.
pub trait TargetProvider: Send + Sync + Debug {
    /// A word for people: directory, directories or lustre.
    fn kind(&self) -> &'static str;

    /// The targets: one at least, in the same order in all processes.
    fn targets(&self) -> &[StorageTarget];

    /// Makes the file at `path` on a target, and opens it. A file that is there is opened as it is,
    /// and so is one of which the file system does not say where it shall be.
    fn create(
        &self,
        store: &dyn Store,
        path: &Path,
        how: Open,
        on: u16,
    ) -> Result<Arc<dyn StoreFile>>;

    /// The target that has the file, if the file system tells it.
    fn target_of(&self, file: &dyn StoreFile) -> Option<u16> {
        let _ = file;
        None
    }
}

/// A directory that is one target.
#[derive(Debug)]
pub struct PlainDirectory([StorageTarget; 1]);

impl PlainDirectory {
    /// The target at `dir`.
    pub fn new(dir: &Path) -> PlainDirectory {
        PlainDirectory([StorageTarget { number: 0, key: dir.to_path_buf() }])
    }
}

impl TargetProvider for PlainDirectory {
    fn kind(&self) -> &'static str {
        "directory"
    }

    fn targets(&self) -> &[StorageTarget] {
        &self.0
    }

    fn create(
        &self,
        store: &dyn Store,
        path: &Path,
        how: Open,
        _: u16,
    ) -> Result<Arc<dyn StoreFile>> {
        store.open(path, how)
    }

    fn target_of(&self, _: &dyn StoreFile) -> Option<u16> {
        Some(0)
    }
}

/// Several directories, each with the targets of its own provider: the backends of a file.
#[derive(Debug)]
pub struct Directories {
    parts: Vec<(PathBuf, Arc<dyn TargetProvider>)>,
    all: Vec<StorageTarget>,
    /// Of each of `all`, the place of its part and its number there.
    from: Vec<(usize, u16)>,
}

impl Directories {
    /// Those of these directories, in their order.
    pub fn new(parts: Vec<(PathBuf, Arc<dyn TargetProvider>)>) -> Directories {
        let (mut all, mut from) = (Vec::new(), Vec::new());
        for (place, (_, provider)) in parts.iter().enumerate() {
            for target in provider.targets() {
                let number = all.len().min(usize::from(TARGET_MAX - 1)) as u16;
                all.push(StorageTarget { number, key: target.key.clone() });
                from.push((place, target.number));
            }
        }
        Directories { parts, all, from }
    }

    /// The directory in which a target is, and its provider and number there.
    pub fn part_of(&self, number: u16) -> Option<(&Path, &Arc<dyn TargetProvider>, u16)> {
        let (place, inner) = self.from.get(usize::from(number))?;
        let (dir, provider) = self.parts.get(*place)?;
        Some((dir, provider, *inner))
    }
}

impl TargetProvider for Directories {
    fn kind(&self) -> &'static str {
        "directories"
    }

    fn targets(&self) -> &[StorageTarget] {
        &self.all
    }

    /// INVAL if the path is not below the target's directory.
    fn create(
        &self,
        store: &dyn Store,
        path: &Path,
        how: Open,
        on: u16,
    ) -> Result<Arc<dyn StoreFile>> {
        match self.part_of(on) {
            Some((dir, provider, inner)) if path.starts_with(dir) => {
                provider.create(store, path, how, inner)
            }
            _ => Err(Errno::INVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::PosixStore;

    #[test]
    fn directories_have_the_targets_of_each() {
        let dirs = ["/tmp", "/var/tmp"].map(PathBuf::from);
        let part = |dir: &PathBuf| {
            let provider: Arc<dyn TargetProvider> = Arc::new(PlainDirectory::new(dir));
            (dir.clone(), provider)
        };
        let all = Directories::new(dirs.iter().map(part).collect());
        let keys: Vec<_> = all.targets().iter().map(|one| (one.number, &one.key)).collect();
        assert_eq!(keys, [(0, &dirs[0]), (1, &dirs[1])]);
        let store = PosixStore::new();
        let name = format!("plfs-targets-test-{}", std::process::id());
        let path = dirs[0].join(name);
        let how = Open::create_new(0o600);
        assert_eq!(all.create(&store, &path, how, 1).unwrap_err(), Errno::INVAL);
        assert_eq!(all.create(&store, &path, how, 2).unwrap_err(), Errno::INVAL);
        all.create(&store, &path, how, 0).unwrap();
        store.unlink(&path).unwrap();
    }
}
