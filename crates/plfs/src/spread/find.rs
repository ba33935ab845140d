//! Finding: which directory a path leads to, and where what has a name is.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use plfs_format::layout::{Backends, Workload};
use plfs_format::name;
use plfs_format::spread::{self as format, Moved, Target};

use super::{
    Above, BELIEVED_NS, Base, Dir, FlatDir, Found, HOPS_MAX, LINKS_MAX, Names, PATH_MAX, Spot,
    Step, TRIES, Tree, Via, has_parent_dir, is_full, is_gone, is_own, steps,
};
use crate::container::{Table, find_root, is_hidden, is_map, own_layout};
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::{Errno, Kind, Links};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};

impl Names<'_> {
    /// The spread directory `path`; `None`: it is an ordinary one, or none. What it was half a
    /// second ago at most.
    ///
    /// Costs a stat for each directory above it, and for one that is spread a listing of it and a
    /// small read; for half a second after that nothing, but two calls for each symbolic link in a
    /// spread directory that the path leads through.
    pub(crate) fn dir(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        let mut at = Cow::Borrowed(path);
        for _ in 0..=LINKS_MAX {
            if let Some(open) = self.open.iter().find(|open| open.home == *at) {
                return self.dir_of(open).map(Some);
            }
            if is_own(&at) || at.as_os_str().len() > PATH_MAX {
                return Ok(None);
            }
            match self.dir_or_link(&at)? {
                Step::Dir(dir) => return Ok(dir),
                Step::Link(to) => at = Cow::Owned(to),
            }
        }
        Err(Errno::LOOP).at("open", path)
    }

    /// [`Names::dir`], and what it and those above it are was asked now.
    ///
    /// Costs a stat for each spread directory of the path.
    pub(super) fn dir_now(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        match self.dir(path) {
            Ok(Some(dir)) if !self.is_as_it_was(&dir) => {}
            Err(error) if is_gone(error.errno()) && !self.above_is_as_it_was(path) => {}
            other => return other,
        }
        self.cache.forget();
        self.dir(path)
    }

    pub(super) fn above_is_as_it_was(&self, path: &Path) -> bool {
        let above = path.ancestors().skip(1).find_map(|above| self.dir(above).ok());
        above.flatten().is_none_or(|dir| self.is_as_it_was(&dir))
    }

    pub(super) fn is_as_it_was(&self, dir: &Dir) -> bool {
        dir.and_above().all(|dir| {
            let stat = self.store.stat(&dir.home, Links::Follow);
            stat.is_ok_and(|stat| (stat.dev, stat.ino) == dir.id)
        })
    }

    /// A directory that is remembered. Paths that lead through links of spread directories never
    /// are: so whoever changes a link changes nothing that is remembered.
    pub(super) fn dir_or_link(&self, path: &Path) -> Result<Step> {
        let now = boot_time_ns();
        let (mut unknown, mut above) = (Vec::new(), None);
        for dir in path.ancestors() {
            match lock(&self.cache.dirs).get(dir) {
                Some((then, found)) if now.saturating_sub(*then) < BELIEVED_NS => {
                    above = found.clone();
                    break;
                }
                _ => unknown.push(dir),
            }
        }
        for dir in unknown.into_iter().rev() {
            above = match self.dir_in(above, dir)? {
                Step::Dir(found) => found,
                Step::Link(to) => {
                    let rest = path.strip_prefix(dir).unwrap_or(Path::new(""));
                    return Ok(Step::Link(to.join(rest)));
                }
            };
            self.cache.put(dir, now, above.clone());
        }
        Ok(Step::Dir(above))
    }

    pub(super) fn dir_of(&self, open: &FlatDir) -> Result<Arc<Dir>> {
        let now = boot_time_ns();
        if let Some((then, Some(found))) = lock(&self.cache.dirs).get(&open.home)
            && now.saturating_sub(*then) < BELIEVED_NS
        {
            return Ok(found.clone());
        }
        let Tree { root, dev, backends } = open.tree.as_ref();
        let dir = self.load(open.home.clone(), Above::Unknown, root, *dev, backends.clone())?;
        self.cache.put(&open.home, now, Some(dir.clone()));
        Ok(dir)
    }

    /// The directory `path`, that it lies in being known, or where a link there leads.
    pub(super) fn dir_in(&self, above: Option<Arc<Dir>>, path: &Path) -> Result<Step> {
        let (Some(above), Some(parent)) = (above, path.parent()) else {
            return self.top(path).map(Step::Dir);
        };
        let Some(name) = path.file_name() else {
            // It ends in `..`.
            return self.real(path, Links::Follow).map(Step::Link);
        };
        let (above, found) = self.find_in(above, parent, name, false)?;
        match (&found.link, found.stat) {
            (Some(text), _) => Ok(Step::Link(parent.join(OsStr::from_bytes(text)))),
            (None, None) => Err(Errno::NOENT).at("open", path),
            (None, Some(stat)) if stat.kind != Kind::Dir => Err(Errno::NOTDIR).at("open", path),
            (None, Some(_)) => {
                self.load_in(&above, found.spot.path).map(|dir| Step::Dir(Some(dir)))
            }
        }
    }

    /// What a link in the directory `above` with the text `text` leads to. A `..` is the directory
    /// above the one that the way before it leads to.
    pub(crate) fn target(&self, above: &Path, text: &[u8]) -> Result<PathBuf> {
        let target = above.join(OsStr::from_bytes(text));
        match has_parent_dir(&target) {
            true => self.real(&target, Links::Stay),
            false => Ok(target),
        }
    }

    /// `path` without links and `..`; a link at its end stays if `links` says so, or nothing.
    pub(crate) fn real(&self, path: &Path, links: Links) -> Result<PathBuf> {
        let (mut real, mut todo, mut followed) = (PathBuf::from("/"), steps(path), 0);
        while let Some(step) = todo.pop() {
            if step == ".." {
                self.must_be_dir(&real)?;
                real.pop();
                continue;
            }
            let next = real.join(&step);
            if todo.is_empty() && links == Links::Stay {
                return Ok(next);
            }
            let text = match self.readlink(&next) {
                Ok(text) => text,
                // No link.
                Err(error) if error.errno() == Errno::INVAL => {
                    real = next;
                    continue;
                }
                Err(error) => return Err(error),
            };
            followed += 1;
            if followed > LINKS_MAX {
                return Err(Errno::LOOP).at("open", path);
            }
            if text.is_absolute() {
                real = PathBuf::from("/");
            }
            todo.extend(steps(&text));
        }
        Ok(real)
    }

    /// ENOTDIR for a file.
    fn must_be_dir(&self, path: &Path) -> Result<()> {
        let kind = match self.find(path, false)? {
            Some((_, found)) => found.stat.map(|stat| stat.kind),
            None => self.store.stat(path, Links::Follow).ok().map(|stat| stat.kind),
        };
        match kind {
            None | Some(Kind::Dir) => Ok(()),
            Some(_) => Err(Errno::NOTDIR).at("open", path),
        }
    }

    /// The text of a symbolic link. EINVAL for what is none.
    pub(crate) fn readlink(&self, path: &Path) -> Result<PathBuf> {
        match self.find(path, false)? {
            None => self.store.readlink(path).at("read the link", path),
            Some((_, Found { link: Some(text), .. })) => Ok(OsString::from_vec(text).into()),
            Some((_, found)) => {
                let errno = if found.stat.is_some() { Errno::INVAL } else { Errno::NOENT };
                Err(errno).at("read the link", path)
            }
        }
    }

    /// The directory itself, if it has a layout that says flat.
    pub(super) fn top(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        let layout = match own_layout(self.store, path) {
            Ok(Some(layout)) if layout.workload == Some(Workload::Flat) => layout,
            Ok(_) => return Ok(None),
            // Of one that cannot be read nobody knows where its names are.
            Err(error) => match self.last_map(path) {
                Ok(None) => return Ok(None),
                Err(error) if is_gone(error.errno()) => return Ok(None),
                // Who may not read it has not made names in it.
                Err(no) if no.errno() == Errno::ACCESS && error.errno() == Errno::ACCESS => {
                    return Ok(None);
                }
                _ => return Err(error),
            },
        };
        // `plfs layout` asks for an empty directory; people may edit the file.
        let entries = self.store.list(path).at("list", path)?;
        if !entries.iter().any(|entry| is_map(&entry.name))
            && !entries.iter().all(|entry| is_hidden(&entry.name))
        {
            return Err(Error::refused(
                Errno::OPNOTSUPP,
                "use",
                path,
                "its layout says flat, and it has files that are not spread: move them away, or \
                 take the workload out of its .plfs-layout",
            ));
        }
        let root = find_root(self.store, &path.join(name::LAYOUT), self.mounts)?;
        let dev = self.store.stat(&root, Links::Follow).at("stat", &root)?.dev;
        let backends = layout.backends.unwrap_or(Backends::All);
        self.cache.any.store(true, Ordering::Relaxed);
        self.load(path.to_path_buf(), Above::Top, &root, dev, backends).map(Some)
    }

    pub(super) fn table<'b>(&'b self, dir: &'b Dir) -> Table<'b> {
        Table { store: self.store, root: &dir.root, dev: dir.dev }
    }

    /// Where a backend has what is spread. `again`: whether it is there is asked.
    pub(super) fn base(&self, dir: &Dir, backend: u16, again: bool) -> Result<Base> {
        let root = match backend {
            0 => dir.root.clone(),
            id if again => self.table(dir).find_again(id)?,
            id => self.table(dir).find(id)?,
        };
        Ok(Base { backend, path: root.join(name::ROOT_DIR).join(format::DIR) })
    }

    /// The name `path` and its directory, if that is spread. `settle`: for who changes something:
    /// what was begun by others and is not done is decided.
    pub(crate) fn find(&self, path: &Path, settle: bool) -> Result<Option<(Arc<Dir>, Found)>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let Some(dir) = self.dir_now(parent)? else { return Ok(None) };
        self.find_in(dir, parent, name, settle).map(Some)
    }

    /// [`Names::find`] in a directory that may be another by now.
    pub(super) fn find_in(
        &self,
        mut dir: Arc<Dir>,
        parent: &Path,
        name: &OsStr,
        settle: bool,
    ) -> Result<(Arc<Dir>, Found)> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG).at("open", &parent.join(name));
        }
        for _ in 0..TRIES {
            if dir.number.is_some() {
                let found = self.look_name(&dir, name, settle)?;
                if found.stat.is_some() || !found.via.is_empty() {
                    return Ok((dir, found));
                }
                // Nothing, or a shadow that is not there.
                let shadow = found.spot.path.parent().unwrap_or(&dir.home);
                match self.store.stat(shadow, Links::Stay) {
                    Ok(_) => return Ok((dir, found)),
                    Err(errno) if is_gone(errno) => {
                        self.base(&dir, found.spot.base.backend, true)?;
                    }
                    Err(errno) => return Err(errno).at("stat", shadow),
                }
            }
            self.cache.forget();
            let fresh = self.dir(parent)?;
            let fresh = fresh.map_or_else(|| Err(Errno::NOENT).at("open", parent), Ok)?;
            if fresh.is_same(&dir) {
                // It has no names yet, or not there: a removal has died half way.
                let spot = match dir.number {
                    Some(_) => dir.place(name),
                    None => Spot {
                        path: dir.home.join(name),
                        base: Base { backend: 0, path: PathBuf::new() },
                    },
                };
                let found = Found { spot, stat: None, link: None, via: Vec::new(), is_old: false };
                return Ok((dir, found));
            }
            dir = fresh;
        }
        Err(Errno::BUSY).at("look up", &parent.join(name))
    }

    /// What is at a place, or where the links there lead.
    pub(super) fn look(&self, dir: &Dir, place: Spot, settle: bool) -> Result<Found> {
        let (mut spot, mut via) = (place.clone(), Vec::<Via>::new());
        // Slots that were empty when they were looked at, to be looked at again.
        let mut empty = Vec::<PathBuf>::new();
        for _ in 0..HOPS_MAX {
            let stat = match self.store.stat(&spot.path, Links::Stay) {
                Ok(stat) => stat,
                Err(errno) if is_gone(errno) => {
                    // It may have come there between the looks, when what was before went; or the
                    // name has become something else.
                    let has_come = |entry: &PathBuf| self.store.stat(entry, Links::Stay).is_ok();
                    if empty.iter().any(has_come)
                        || via.first().is_some_and(|via| !self.leads(&via.at, &via.moved))
                    {
                        (spot, via, empty) = (place.clone(), Vec::new(), Vec::new());
                        continue;
                    }
                    return Ok(Found { spot, stat: None, link: None, via, is_old: false });
                }
                Err(errno) => return Err(errno).at("stat", &spot.path),
            };
            if stat.kind != Kind::Symlink {
                return Ok(Found { spot, stat: Some(stat), link: None, via, is_old: false });
            }
            let text = match self.store.readlink(&spot.path) {
                Ok(text) => text.into_os_string().into_vec(),
                // It is something else by now.
                Err(Errno::NOENT | Errno::INVAL) => continue,
                Err(errno) => return Err(errno).at("read the link", &spot.path),
            };
            let moved = match Target::decode(&text) {
                Target::Text(text) => {
                    return Ok(Found {
                        spot,
                        stat: Some(stat),
                        link: Some(text),
                        via,
                        is_old: false,
                    });
                }
                Target::Moved(moved) => moved,
            };
            let base = self.base(dir, moved.backend, false)?;
            let slot = base.at(&moved.slot);
            let entry = slot.join(format::ENTRY);
            let is_there = match self.store.stat(&entry, Links::Stay) {
                Ok(_) => true,
                Err(errno) if is_gone(errno) => false,
                Err(errno) => return Err(errno).at("stat", &entry),
            };
            let aside = spot.base.at(&moved.aside);
            if is_there {
                if settle {
                    self.drop_aside(dir, &spot.base, &aside, &slot)?;
                }
                via.push(Via { at: spot, moved });
                spot = Spot { path: entry, base };
                continue;
            }
            if !settle {
                self.must_be_there(dir, &base)?;
                empty.push(entry);
            } else {
                match self.store.rmdir(&slot) {
                    Ok(()) => {}
                    Err(errno) if is_gone(errno) => self.must_be_there(dir, &base)?,
                    // It has come.
                    Err(errno) if is_full(errno) => continue,
                    Err(errno) => return Err(errno).at("remove", &slot),
                }
                if self.store.stat(&aside, Links::Stay).is_err_and(is_gone) {
                    self.retire(dir, &spot, &moved)?;
                    (spot, via) = (place.clone(), Vec::new());
                    continue;
                }
            }
            let base = spot.base.clone();
            via.push(Via { at: spot, moved });
            spot = Spot { path: aside.join(format::ENTRY), base };
        }
        Err(Errno::LOOP).at("look up", &place.path)
    }

    /// Whether a link leads where it did.
    pub(super) fn leads(&self, at: &Spot, moved: &Moved) -> bool {
        let text = self.store.readlink(&at.path).map(|text| text.into_os_string().into_vec());
        text.is_ok_and(|text| Target::decode(&text) == Target::Moved(*moved))
    }

    /// Nothing was found on a backend: an error if that is not there.
    pub(super) fn must_be_there(&self, dir: &Dir, base: &Base) -> Result<()> {
        self.base(dir, base.backend, true).map(drop)
    }
}
