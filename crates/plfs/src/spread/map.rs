//! The shadows of a directory and the map of them: how they are read, made and taken away.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::backend::State;
use plfs_format::layout::Backends;
use plfs_format::name::{self, Uuid};
use plfs_format::spread::{self as format, Map, Move, Stage};

use super::{Above, Base, Dir, Names, TRIES, is_full, is_gone, new_uuid};
use crate::container::{make_shared, read_text};
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::{self, Errno, Links, Open, Stat};
use crate::sync::Arc;

/// The new shadow of a [`Move`] for the old one.
pub(super) fn exchange(shadows: &mut [(u16, Uuid)], of: &mut Move) {
    let new = (of.backend, of.shadow);
    (of.backend, of.shadow) = std::mem::replace(&mut shadows[of.index], new);
}

impl Names<'_> {
    /// The highest number of a map in `home`. A listing of something that has no other names.
    pub(super) fn last_map(&self, home: &Path) -> Result<Option<u32>> {
        let entries = self.store.list(home).at("list", home)?;
        Ok(entries.iter().filter_map(|entry| format::parse_map_name(entry.name.as_bytes())).max())
    }

    pub(super) fn read_map(&self, home: &Path) -> Result<(Option<u32>, Map)> {
        for _ in 0..TRIES {
            let Some(number) = self.last_map(home)? else { return Ok((None, Map::default())) };
            let path = home.join(format::map_name(number));
            let Some(text) = read_text(self.store, &path)? else { continue };
            let map = Map::decode(&text).map_err(|bad| Error::of_bytes(&path, bad))?;
            return Ok((Some(number), map));
        }
        Err(Errno::BUSY).at("read the map of", home)
    }

    pub(super) fn load(
        &self,
        home: PathBuf,
        above: Above,
        root: &Path,
        dev: u64,
        backends: Backends,
    ) -> Result<Arc<Dir>> {
        let read_ns = boot_time_ns();
        // Before the map: one that is put there meanwhile is not what is remembered.
        let stat = self.store.stat(&home, Links::Follow).at("open", &home)?;
        let (number, mut map) = self.read_map(&home)?;
        map.moves.iter_mut().filter(|of| of.stage == Stage::To).for_each(|of| {
            exchange(&mut map.shadows, of);
        });
        let (root, bases) = (root.to_path_buf(), Vec::new());
        let id = (stat.dev, stat.ino);
        let (other_bases, aside_bases) = (Vec::new(), Vec::new());
        let mut dir = Dir {
            home,
            id,
            above,
            root,
            dev,
            backends,
            number,
            map,
            bases,
            other_bases,
            aside_bases,
            read_ns,
        };
        let base = |backend| self.base(&dir, backend, false);
        let bases: Result<_> = dir.map.shadows.iter().map(|(backend, _)| base(*backend)).collect();
        let others: Result<_> = dir.map.moves.iter().map(|of| base(of.backend)).collect();
        let asides: Result<_> = dir.map.asides.iter().map(|(backend, _)| base(*backend)).collect();
        (dir.other_bases, dir.aside_bases) = (others?, asides?);
        dir.bases = bases?;
        Ok(Arc::new(dir))
    }

    /// The directory in `above` that is at `home`.
    pub(super) fn load_in(&self, above: &Arc<Dir>, home: PathBuf) -> Result<Arc<Dir>> {
        let Dir { root, dev, backends, .. } = above.as_ref();
        self.load(home, Above::In(above.clone()), root, *dev, backends.clone())
    }

    /// The directory, with a map.
    pub(crate) fn dir_with_shadows(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        match self.dir(path)? {
            Some(dir) if dir.number.is_none() => {
                self.renew(&dir)?;
                self.dir(path)
            }
            other => Ok(other),
        }
    }

    /// Makes the shadows of a directory that are not there, and a map with them. Whoever else does
    /// it at the same time: one map counts, and all look again.
    pub(super) fn renew(&self, dir: &Dir) -> Result<()> {
        let mut made = Vec::new();
        let renewed = self.renew_as(dir, &mut made);
        if !matches!(renewed, Ok(true)) {
            for shadow in made {
                let _ = self.store.rmdir(&shadow);
            }
        }
        self.cache.forget();
        renewed.map(drop)
    }

    /// Whether `made` is in the map.
    pub(super) fn renew_as(&self, dir: &Dir, made: &mut Vec<PathBuf>) -> Result<bool> {
        let store = self.store;
        let (number, old) = match self.read_map(&dir.home) {
            // It was removed.
            Err(error) if is_gone(error.errno()) => return Ok(true),
            other => other?,
        };
        let wanted = match number {
            Some(_) => old.shadows.clone(),
            None => {
                let ids = self.table(dir).of_layout(&dir.backends)?;
                ids.into_iter().map(|id| (id, new_uuid())).collect()
            }
        };
        let of_home = match store.stat(&dir.home, Links::Follow) {
            Err(errno) if is_gone(errno) => return Ok(true),
            other => other.at("stat", &dir.home)?,
        };
        let mut map = Map { shadows: Vec::new(), ..old };
        for (index, (backend, shadow)) in wanted.into_iter().enumerate() {
            let base = self.base(dir, backend, true)?;
            let is_there = number.is_some()
                && match store.stat(&base.at(&shadow), Links::Stay) {
                    Ok(_) => true,
                    Err(errno) if is_gone(errno) => false,
                    Err(errno) => return Err(errno).at("stat", &base.at(&shadow)),
                };
            map.shadows.push((backend, shadow));
            if is_there {
                continue;
            }
            // Nothing is missed there any more, and a backend that is drained gets nothing new.
            map.moves.retain(|of| of.index != index || of.stage == Stage::From);
            let backend = self.one_that_stays(dir, backend, index)?;
            let (base, shadow) = (self.base(dir, backend, true)?, new_uuid());
            map.shadows.pop();
            map.shadows.push((backend, shadow));
            let path = self.make(&base, &shadow, &of_home)?;
            made.push(path);
            self.sync_above(&base)?;
        }
        if made.is_empty() {
            return Ok(true);
        }
        self.publish(dir, number, &map)
    }

    /// Makes the names of shadows that were made durable.
    pub(super) fn sync_above(&self, base: &Base) -> Result<()> {
        for dir in base.path.ancestors().take(3) {
            match self.store.sync_dir(dir) {
                // Who may not open it has not made anything in it.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM) => {}
                Err(errno) => return Err(errno).at("sync", dir),
            }
        }
        Ok(())
    }

    /// `backend`, or if that takes nothing new another one, the same for each `index`.
    pub(super) fn one_that_stays(&self, dir: &Dir, backend: u16, index: usize) -> Result<u16> {
        let table = self.table(dir);
        if table.state(backend)? == State::Active {
            return Ok(backend);
        }
        let mut ids = match table.of_layout(&dir.backends) {
            Err(error) if error.errno() == Errno::NOSPC => table.active()?,
            other => other?,
        };
        if ids.is_empty() {
            ids.push(0);
        }
        Ok(ids[index % ids.len()])
    }

    /// Puts the map that follows `number`, durably. False: others have put one.
    pub(super) fn publish(&self, dir: &Dir, number: Option<u32>, map: &Map) -> Result<bool> {
        let store = self.store;
        let next = number.map_or(0, |number| number.saturating_add(1));
        if !self.put_map(dir, next, map)? {
            return Ok(false);
        }
        match self.last_map(&dir.home) {
            Ok(Some(last)) if last == next => {}
            // Others have gone on meanwhile.
            _ => {
                let _ = store.unlink(&dir.home.join(format::map_name(next)));
                return Ok(false);
            }
        }
        store.sync_dir(&dir.home).at("sync", &dir.home)?;
        if let Some(number) = number {
            let _ = store.unlink(&dir.home.join(format::map_name(number)));
        }
        Ok(true)
    }

    /// Whether there was no map with this number. Durable but for its name.
    pub(super) fn put_map(&self, dir: &Dir, number: u32, map: &Map) -> Result<bool> {
        let store = self.store;
        let path = dir.home.join(format::map_name(number));
        let text = map.encode().map_err(|bad| Error::of_bytes(&path, bad))?;
        let tmp = dir.home.join(format!("{}{}", format::MAP_TMP, format::hex(&new_uuid())));
        let put = (|| {
            let file = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
            store::write_full(file.as_ref(), &text, 0).at("write", &tmp)?;
            store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
            file.sync_data().at("sync", &tmp)?;
            match store.link(&tmp, &path) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => Err(errno).at("create", &path),
            }
        })();
        let _ = store.unlink(&tmp);
        match put {
            Err(error) if is_gone(error.errno()) => Ok(false),
            other => other,
        }
    }

    pub(super) fn make_shared_dirs(&self, base: &Path) -> Result<()> {
        if let Some(plfs) = base.parent() {
            make_shared(self.store, plfs)?;
        }
        make_shared(self.store, base)
    }

    /// Makes what a root has if there are flat directories.
    pub(crate) fn make_base(&self, root: &Path) -> Result<()> {
        self.make_shared_dirs(&root.join(name::ROOT_DIR).join(format::DIR))
    }

    /// Makes a shadow or a slot, with the mode and the owner of a directory.
    pub(super) fn make(&self, base: &Base, uuid: &Uuid, like: &Stat) -> Result<PathBuf> {
        let (store, path) = (self.store, base.at(uuid));
        self.make_shared_dirs(&base.path)?;
        store.mkdir(&path, like.mode & 0o3777).at("create", &path)?;
        store.chmod(&path, like.mode & 0o3777).at("set the mode of", &path)?;
        self.give(&path, like)?;
        Ok(path)
    }

    /// Gives what was made to the owner of another thing, if the process may.
    pub(super) fn give(&self, path: &Path, like: &Stat) -> Result<()> {
        let stat = self.store.stat(path, Links::Stay).at("stat", path)?;
        if (stat.uid, stat.gid) == (like.uid, like.gid) {
            return Ok(());
        }
        match self.store.chown(path, Some(like.uid), Some(like.gid), Links::Stay) {
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(errno).at("set the owner of", path),
        }
    }

    /// Takes the shadows and the map of a directory away that has no names; ENOTEMPTY if it has.
    /// Who makes a name there afterwards makes new ones.
    pub(crate) fn empty(&self, dir: &Dir, path: &Path) -> Result<()> {
        let not_empty = || Err(Errno::NOTEMPTY).at("remove the directory", path);
        for (base, shadow) in dir.shadows() {
            let entries = match self.store.list(&shadow) {
                Err(errno) if is_gone(errno) => {
                    self.must_be_there(dir, base)?;
                    continue;
                }
                other => other.at("list", &shadow)?,
            };
            for entry in entries {
                let found = self.look_name(dir, &entry.name, true)?;
                if found.stat.is_some() {
                    return not_empty();
                }
                self.tidy(dir, &found.via)?;
            }
        }
        for (_, shadow) in dir.shadows() {
            match self.store.rmdir(&shadow) {
                Ok(()) => {}
                Err(errno) if is_gone(errno) => {}
                Err(errno) if is_full(errno) => return not_empty(),
                Err(errno) => return Err(errno).at("remove", &shadow),
            }
        }
        self.cache.forget();
        for entry in self.store.list(&dir.home).at("list", &dir.home)? {
            let name = entry.name.as_bytes();
            let is_tmp = name.starts_with(format::MAP_TMP.as_bytes());
            // A later one has shadows.
            let is_map = format::parse_map_name(name).is_some_and(|it| dir.number >= Some(it));
            if is_tmp || is_map {
                let path = dir.home.join(&entry.name);
                match self.store.unlink(&path) {
                    Err(errno) if is_gone(errno) => {}
                    other => other.at("remove", &path)?,
                }
            }
        }
        Ok(())
    }
}
