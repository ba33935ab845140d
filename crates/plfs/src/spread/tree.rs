//! Directories that are moved to others, one at a time, so that none gets into itself.

use std::collections::HashSet;
use std::path::Path;

use plfs_format::name;
use plfs_format::spread as format;

use super::{Above, Dir, How, NameCache, Names, Tree, is_gone};
use crate::error::{At, Error, Result};
use crate::store::{Errno, Kind};
use crate::sync::Arc;

impl Names<'_> {
    /// [`Names::rename`] of a directory to another one, while nobody else does such a thing.
    pub(super) fn rename_alone(
        &self,
        root: &Path,
        from: &Path,
        to: &Path,
        rename: &dyn Fn(&Path, &Path) -> Result<()>,
    ) -> Result<bool> {
        let base = root.join(name::ROOT_DIR).join(format::DIR);
        let turn = self.turn(&base, format::TREE_LOCK)?;
        let Some(_turn) = turn.filter(|turn| turn.0.locks_are_shared()) else {
            return Err(Error::refused(
                Errno::XDEV,
                "rename",
                from,
                "a directory is moved to another one where all nodes know of locks: see flock in \
                 the options of the file system that the root is on; copy it",
            ));
        };
        // What was believed before is of before.
        let cache = NameCache::default();
        let done = Names { cache: &cache, is_alone: true, ..*self };
        let done = done.rename(from, to, How::Rename, rename);
        self.cache.forget();
        done
    }

    /// Whether `dir` is `moved`, or lies in it, while nobody moves directories.
    pub(super) fn has_in_it(&self, moved: &Arc<Dir>, dir: &Dir) -> Result<bool> {
        let is_moved = |dir: &Dir| dir.id == moved.id;
        let is_known =
            |dir: &Dir| dir.and_above().last().is_some_and(|last| matches!(last.above, Above::Top));
        if is_known(dir) || dir.and_above().any(is_moved) {
            return Ok(dir.and_above().any(is_moved));
        }
        if let Some(found) = self.down_the_line()?
            && found.id == dir.id
            && is_known(&found)
        {
            return Ok(found.and_above().any(is_moved));
        }
        // Somebody else has renamed one of them.
        self.any_below(moved.clone(), &mut |below| below.id == dir.id)
    }

    /// The directory to which `line` leads.
    pub(super) fn down_the_line(&self) -> Result<Option<Arc<Dir>>> {
        let Some((top, names)) = self.line else { return Ok(None) };
        let Tree { root, dev, backends } = top.tree.as_ref();
        let mut at = self.load(top.home.clone(), Above::Top, root, *dev, backends.clone())?;
        for name in names {
            let found = match at.number {
                Some(_) => self.look_name(&at, name, false)?,
                None => return Ok(None),
            };
            if !found.is_dir() {
                return Ok(None);
            }
            at = self.load_in(&at, found.spot.path)?;
        }
        Ok(Some(at))
    }

    /// Whether `test` says so of `dir` or of a directory in it. Costs a listing of all of them.
    pub(super) fn any_below(
        &self,
        dir: Arc<Dir>,
        test: &mut dyn FnMut(&Dir) -> bool,
    ) -> Result<bool> {
        let (mut todo, mut seen) = (vec![dir], HashSet::new());
        while let Some(dir) = todo.pop() {
            // Those that lie in each other, which were made before renames looked for that, end.
            if !seen.insert(dir.id) {
                continue;
            }
            if test(&dir) {
                return Ok(true);
            }
            for (base, shadow) in dir.shadows() {
                let entries = match self.store.list(&shadow) {
                    Err(errno) if is_gone(errno) => {
                        self.must_be_there(&dir, base)?;
                        continue;
                    }
                    other => other.at("list", &shadow)?,
                };
                for entry in entries {
                    if matches!(entry.kind, Some(Kind::File | Kind::Other)) {
                        continue;
                    }
                    let found = self.look_name(&dir, &entry.name, false)?;
                    if found.is_dir() {
                        match self.load_in(&dir, found.spot.path) {
                            Ok(below) => todo.push(below),
                            // Removed meanwhile.
                            Err(error) if is_gone(error.errno()) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(false)
    }
}
