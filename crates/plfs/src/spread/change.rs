//! Changing: names are made, removed and renamed.

use std::path::Path;

use super::{How, MAP_NS, MISSING_MAX, Names, TRIES, Via, is_gone};
use crate::error::{At, Result};
use crate::store::machine::boot_time_ns;
use crate::store::{Errno, Kind};

impl Names<'_> {
    /// Makes something new at `path` by `make`, which gets its path on the storage and fails with
    /// EEXIST if there is something. `None`: its directory is not spread.
    ///
    /// Costs nothing but `make` and [`Names::dir_now`], if the directory is known.
    pub(crate) fn create<T>(
        &self,
        path: &Path,
        make: &mut dyn FnMut(&Path) -> Result<T>,
    ) -> Result<Option<T>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let mut missing = 0;
        for _ in 0..TRIES {
            let Some(dir) = self.dir_now(parent)? else { return Ok(None) };
            if dir.number.is_none() {
                self.renew(&dir)?;
                continue;
            }
            if dir.is_closed(name) {
                self.wait_for_map(&dir)?;
                continue;
            }
            if dir.is_drained() && self.look_name(&dir, name, true)?.stat.is_some() {
                return Err(Errno::EXIST).at("create", path);
            }
            let place = dir.place(name);
            match make(&place.path) {
                Err(error) if error.errno() == Errno::EXIST => {
                    let found = self.look_name(&dir, name, true)?;
                    if found.stat.is_some() {
                        return Err(Errno::EXIST).at("create", path);
                    }
                    if found.spot.path == place.path {
                        continue;
                    }
                    match make(&found.spot.path) {
                        Err(error) if error.errno() == Errno::EXIST => {}
                        Err(error) if is_gone(error.errno()) => {}
                        other => return other.map(Some),
                    }
                }
                Err(error) if error.errno() == Errno::NOENT && missing < MISSING_MAX => {
                    missing += 1;
                    self.renew(&dir)?;
                }
                other => return other.map(Some),
            }
        }
        Err(Errno::BUSY).at("create", path)
    }

    /// Removes a name of something that is no directory. Whether its directory is spread.
    pub(crate) fn unlink(&self, path: &Path) -> Result<bool> {
        for _ in 0..TRIES {
            let Some((dir, found)) = self.find(path, true)? else { return Ok(false) };
            match found.stat {
                None => return Err(Errno::NOENT).at("remove", path),
                Some(stat) if stat.kind == Kind::Dir => {
                    return Err(Errno::ISDIR).at("remove", path);
                }
                Some(_) => {}
            }
            match (self.remove)(found.path()) {
                // It is elsewhere by now, or gone.
                Err(error) if error.errno() == Errno::NOENT => continue,
                other => other?,
            }
            self.tidy(&dir, &found.via)?;
            return Ok(true);
        }
        Err(Errno::BUSY).at("remove", path)
    }

    /// Removes a directory in a spread directory, if it is empty. Whether it was in one.
    pub(crate) fn rmdir(&self, path: &Path) -> Result<bool> {
        for _ in 0..TRIES {
            let Some((above, found)) = self.find(path, true)? else { return Ok(false) };
            match found.stat {
                None => return Err(Errno::NOENT).at("remove the directory", path),
                Some(stat) if stat.kind != Kind::Dir => {
                    return Err(Errno::NOTDIR).at("remove the directory", path);
                }
                Some(_) => {}
            }
            let home = found.spot.path.clone();
            let dir = match self.load_in(&above, home.clone()) {
                Err(error) if is_gone(error.errno()) => continue,
                other => other?,
            };
            self.empty(&dir, path)?;
            match self.store.rmdir(&home) {
                Err(errno) if is_gone(errno) => continue,
                other => other.at("remove the directory", path)?,
            }
            self.cache.forget();
            self.tidy(&above, &found.via)?;
            return Ok(true);
        }
        Err(Errno::BUSY).at("remove the directory", path)
    }

    /// Gives what is at `from` the name `to` as well, or instead. `rename` is the ordinary rename
    /// of two paths on the storage that lie beside each other. Whether one of the two directories
    /// is spread.
    pub(crate) fn rename(
        &self,
        from: &Path,
        to: &Path,
        how: How,
        rename: &dyn Fn(&Path, &Path) -> Result<()>,
    ) -> Result<bool> {
        let mut durable = None;
        let op = if how == How::Link { "link" } else { "rename" };
        let refuse = |errno: Errno, path: &Path| Err(errno).at(op, path);
        for _ in 0..TRIES {
            let (source, target) = match (self.find(from, true)?, self.find(to, true)?) {
                (None, None) => return Ok(false),
                (Some(source), Some(target)) => (source, target),
                // As between two file systems; most often it is so.
                _ => return refuse(Errno::XDEV, from),
            };
            let (above, source) = source;
            let (dir, target) = target;
            if above.root != dir.root {
                // The backends of each have ids of its own.
                return refuse(Errno::XDEV, from);
            }
            let Some(stat) = source.stat else { return refuse(Errno::NOENT, from) };
            if how == How::Link {
                if source.is_dir() {
                    return refuse(Errno::PERM, from);
                }
                if target.stat.is_some() {
                    return refuse(Errno::EXIST, to);
                }
            }
            // As the kernel has it, one directory at a time gets into another one: two of them
            // would each get into the other.
            if source.is_dir() && above.id != dir.id {
                if !self.is_alone {
                    return self.rename_alone(&dir.root, from, to, rename);
                }
                if self.has_in_it(&self.load_in(&above, source.spot.path.clone())?, &dir)? {
                    return refuse(Errno::INVAL, to);
                }
            }
            if let Some(there) = target.stat {
                if (there.dev, there.ino) == (stat.dev, stat.ino) {
                    return Ok(true);
                }
                match (source.is_dir(), target.is_dir()) {
                    (true, false) => return refuse(Errno::NOTDIR, to),
                    (false, true) => return refuse(Errno::ISDIR, to),
                    (true, true) => {
                        // An empty one goes first.
                        match self.rmdir(to) {
                            Err(error) if error.errno() == Errno::NOENT => {}
                            other => drop(other?),
                        }
                        continue;
                    }
                    // Once: it may take long, and then all is looked at again.
                    (false, false) if durable == Some((stat.dev, stat.ino, stat.mtime)) => {}
                    (false, false) => {
                        (self.make_durable)(source.path(), target.path())?;
                        durable = Some((stat.dev, stat.ino, stat.mtime));
                    }
                }
            } else if !target.via.is_empty() {
                self.tidy(&dir, &target.via)?;
                continue;
            }
            if dir.number.is_none() {
                self.renew(&dir)?;
                continue;
            }
            let name = to.file_name().unwrap_or_default();
            if dir.is_closed(name) {
                self.wait_for_map(&dir)?;
                continue;
            }
            if boot_time_ns().saturating_sub(dir.read_ns) > MAP_NS {
                self.cache.forget();
                continue;
            }
            // What is in an old shadow is no longer seen when the name is at its place.
            let replaces_old = target.is_old;
            let target = match replaces_old {
                true => target.hidden(),
                false => target,
            };
            let place = dir.place(name);
            let done = match (source.spot.base == place.base, how) {
                (true, How::Rename) => {
                    let Some(_turn) = self.turn_at(&place, &target)? else { continue };
                    rename(source.path(), &place.path).map(|()| true)
                }
                (true, How::Link) => {
                    self.store.link(source.path(), &place.path).at(op, from).map(|()| true)
                }
                (false, how) => self.move_across(&dir, &source, &place, &target, how),
            };
            match done {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) if error.errno() == Errno::NOENT => {
                    self.renew(&dir)?;
                    continue;
                }
                Err(error) if error.errno() == Errno::EXIST && how == How::Link => continue,
                other => drop(other?),
            }
            if source.spot.base == place.base && !target.via.is_empty() {
                // The link that led to what was there is replaced.
                if target.stat.is_some() {
                    // That is on another file system: a power cut must not bring the link back
                    // where it leads to nothing.
                    let shadow = place.path.parent().unwrap_or(&dir.home);
                    self.store.sync_dir(shadow).at("sync", shadow)?;
                    self.remove_gone(target.path())?;
                }
                for Via { at, moved } in target.via.iter().rev() {
                    let slot = self.base(&dir, moved.backend, false)?.at(&moved.slot);
                    let _ = self.store.rmdir(&slot);
                    let _ = self.store.rmdir(&at.base.at(&moved.aside));
                }
            }
            if replaces_old {
                self.drop_hidden(&dir, name)?;
            }
            if how == How::Rename {
                self.tidy(&above, &source.via)?;
            }
            return Ok(true);
        }
        refuse(Errno::BUSY, from)
    }
}
