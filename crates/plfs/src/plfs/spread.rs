//! Names in directories of the workload flat (docs/decisions/0022): the calls of [`Plfs`] with a
//! path there are calls on the path where the name lies.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use plfs_format::layout::{Backends, Layout, Workload};
use plfs_format::name::ROOT_DIR;
use plfs_format::spread::Target;

use super::in_place::is_young;
use super::{FileStat, OpenOptions, Opened, Plfs, may_be_logical};
use crate::container;
use crate::ending::Ending;
use crate::error::{At, Error, Result};
use crate::federation::{self, Drained, Left, Progress};
use crate::spread::{
    Dir, Drain, Drained as Moved, FlatDir, FlatReport, Found, How, Line, Names, Walked,
};
use crate::store::{Errno, Kind, Links, Stat};
use crate::sync::{Arc, thread};

/// Symbolic links that lead to each other at most, as Linux has it (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// How often a name is looked up that moves.
const TRIES: usize = 100;

/// What a path is for who makes the system calls himself.
#[derive(Debug)]
pub enum Place {
    /// What it is for the file system.
    Ordinary,
    /// The same as this path, which is one of the file system: links lead out of flat directories.
    Out(PathBuf),
    /// A name in a flat directory.
    There {
        /// What has the name has this path on the storage; it may be elsewhere a moment later.
        place: PathBuf,
        /// The name, without the links that were followed.
        name: PathBuf,
        /// What it is.
        kind: Kind,
    },
    /// Nothing has this name of a flat directory.
    Nothing(PathBuf),
}

impl Plfs {
    fn with_names<T>(&self, call: impl FnOnce(&Names<'_>) -> Result<T>) -> Result<T> {
        self.with_names_of(&[], call)
    }

    fn with_names_of<T>(
        &self,
        open: &[FlatDir],
        call: impl FnOnce(&Names<'_>) -> Result<T>,
    ) -> Result<T> {
        call(&Names {
            store: self.process.store.as_ref(),
            cache: &self.process.spread,
            mounts: &self.process.config.mounts,
            open,
            line: None,
            is_alone: false,
            remove: &|path| self.unlink(path),
            make_durable: &|path, to| {
                let replaced = self.container_to_change(to, Links::Stay).unwrap_or(None);
                self.make_durable(path, replaced.is_some())
            },
        })
    }

    /// Whether the names of the directory `dir` are spread over backends: then only libplfs finds
    /// them. Costs a stat for each directory above it, and nothing for half a second after that.
    pub fn is_flat(&self, dir: &Path) -> Result<bool> {
        self.with_names(|names| names.dir(dir)).map(|dir| dir.is_some())
    }

    /// Whether the process has found a flat directory yet.
    pub fn knows_flat(&self) -> bool {
        self.process.spread.any()
    }

    /// Whether `path` lies, by its text, below a flat directory. An error if nobody can tell.
    pub fn is_below_flat(&self, path: &Path) -> Result<bool> {
        // Most are told by this, which creates have found out already.
        if matches!(self.workload_of(path), Ok(said) if said != Workload::Flat) {
            return Ok(false);
        }
        let mut unknown = None;
        for dir in path.ancestors().skip(1) {
            match self.is_flat(dir) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => match error.errno() {
                    // There is a flat directory above, or none.
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {}
                    _ => unknown = Some(error),
                },
            }
        }
        unknown.map_or(Ok(false), Err)
    }

    /// What `path` is; with `all` also if it is a link of the file system to a name in a flat
    /// directory.
    pub fn place(&self, path: &Path, links: Links, all: bool) -> Result<Place> {
        let mut at = Cow::Borrowed(path);
        for _ in 0..=LINKS_MAX {
            let Some((dir, found)) = self.with_names(|names| names.find(&at, false))? else {
                if self.is_below_flat(&at)? {
                    // A directory above is a link that leads out.
                    at = Cow::Owned(self.real(&at, Links::Stay)?);
                    if !self.is_flat(at.parent().unwrap_or(Path::new("/")))? {
                        return Ok(Place::Out(at.into_owned()));
                    }
                    continue;
                }
                match self.target_of(&at) {
                    Some(target) if all && links == Links::Follow => at = Cow::Owned(target),
                    _ if matches!(at, Cow::Borrowed(_)) => return Ok(Place::Ordinary),
                    _ => return Ok(Place::Out(at.into_owned())),
                }
                continue;
            };
            let above = at.parent().unwrap_or(Path::new("/"));
            match (&found.link, found.stat) {
                (Some(text), _) if links == Links::Follow => {
                    at = Cow::Owned(self.with_names(|names| names.target(above, text))?);
                }
                (_, None) => return Ok(Place::Nothing(at.into_owned())),
                (_, Some(stat)) => {
                    let cache = &self.process.spread;
                    if let Some(shadow) = found.path().parent()
                        && dir.has_shadow(shadow)
                    {
                        cache.remember(shadow, above);
                    }
                    if stat.kind == Kind::Dir {
                        // By a name without links, which may go while the directory stays.
                        let name = match cache.name_of(&dir.home) {
                            Some(name) if name == above => at.to_path_buf(),
                            _ => self.real(&at, Links::Stay)?,
                        };
                        cache.remember(&dir.home, name.parent().unwrap_or(above));
                        cache.remember(found.path(), &name);
                    }
                    let (place, name) = (found.path().to_path_buf(), at.into_owned());
                    return Ok(Place::There { place, name, kind: stat.kind });
                }
            }
        }
        Err(Errno::LOOP).at("open", path)
    }

    /// `path` without links and `..`; a link at its end stays if `links` says so, or nothing.
    pub fn real(&self, path: &Path, links: Links) -> Result<PathBuf> {
        self.with_names(|names| names.real(path, links))
    }

    /// The path by which programs know a directory in a flat one that is at `place` on the storage,
    /// as this process found it, or `hints` say. ESTALE if it has another one by now.
    pub fn name_of_dir(
        &self,
        place: &Path,
        hints: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<PathBuf> {
        let cached = self.process.spread.name_of(place);
        for name in cached.map_or_else(hints, |name| vec![name]) {
            let dir = self.with_names(|names| names.dir(&name));
            match dir {
                Ok(Some(dir)) if dir.home == place => {
                    self.process.spread.remember(place, &name);
                    return Ok(name);
                }
                Err(error) if error.errno() != Errno::NOENT => return Err(error),
                _ => {}
            }
        }
        match self.process.store.stat(place, Links::Stay) {
            Err(errno @ Errno::NOENT) => Err(errno).at("open", place),
            Ok(stat) if stat.kind != Kind::Dir => Err(Errno::NOTDIR).at("open", place),
            _ => Err(Error::refused(
                Errno::STALE,
                "use",
                place,
                "it is a directory in a flat one, and was renamed, or opened by a program that is \
                 not this one",
            )),
        }
    }

    /// The name of what is at `place` in a shadow, as far as this process knows.
    pub fn name_of(&self, place: &Path) -> Option<PathBuf> {
        if let Ok(name) = self.name_of_dir(place, Vec::new) {
            return Some(name);
        }
        let name = self.process.spread.name_of(place.parent()?)?.join(place.file_name()?);
        match self.place(&name, Links::Stay, false) {
            Ok(Place::There { place: found, .. }) if found == place => Some(name),
            _ => None,
        }
    }

    /// Makes something new at `path` by `make`, which gets its path on the storage and fails with
    /// EEXIST if there is something. `None`: its directory is not flat.
    pub fn create_flat<T>(
        &self,
        path: &Path,
        make: &mut dyn FnMut(&Path) -> Result<T>,
    ) -> Result<Option<T>> {
        let above = path.parent().unwrap_or(Path::new("/"));
        let mut make_known = |place: &Path| {
            let made = make(place)?;
            if let Some(shadow) = place.parent() {
                self.process.spread.remember(shadow, above);
            }
            Ok(made)
        };
        self.with_names(|names| names.create(path, &mut make_known))
    }

    /// Makes the names of a flat directory durable. Whether it is one.
    pub fn sync_flat(&self, dir: &Path) -> Result<bool> {
        let mut sync = |dir: &Path| self.process.store.sync_dir(dir).at("sync", dir);
        self.with_names(|names| names.on_all(dir, &mut sync))
    }

    /// The next look at a flat directory asks the storage: one was renamed, or another program is
    /// about to begin, which may rename or replace them.
    pub fn forget_flat(&self) {
        self.process.spread.forget();
        if self.knows_flat() {
            self.process.layouts.forget();
        }
    }

    /// A directory was renamed by somebody who has asked the system.
    pub fn was_renamed(&self, from: &Path, to: &Path) {
        if self.knows_flat() {
            self.process.spread.renamed(from, to);
        }
    }

    /// Makes the empty directory `dir` one of the workload flat. So are those that are made in it.
    /// Durable on return; other processes know it within a second.
    pub fn make_flat(&self, dir: &Path, layout: &Layout) -> Result<()> {
        let refuse = |errno, why| Err(Error::refused(errno, "make flat", dir, why));
        self.process.spread.forget();
        if dir.parent().is_some_and(|above| matches!(self.is_flat(above), Ok(true))) {
            return refuse(Errno::INVAL, "the directory above it is flat, and so is it");
        }
        if self.own_layout(dir)?.is_none_or(|own| own.workload != Some(Workload::Flat))
            && !self.list(dir)?.is_empty()
        {
            return refuse(Errno::NOTEMPTY, "it has files, which would not be found any more");
        }
        // Who looks at directories without shadows here need not ask each what it is.
        let root = self.root_for(&dir.join("file"))?;
        self.with_names(|names| names.make_base(&root))?;
        let layout = Layout { workload: Some(Workload::Flat), ..layout.clone() };
        self.put_layout(dir, Some(&layout))
    }

    /// Before the layout of `dir` says something other than flat: an error if it has names, which
    /// nobody would find.
    pub(super) fn must_not_be_flat(&self, dir: &Path) -> Result<()> {
        self.process.spread.forget();
        self.with_names(|names| match names.dir(dir)? {
            Some(flat) if flat.home == dir => match names.empty(&flat, dir) {
                Err(error) if error.errno() == Errno::NOTEMPTY => Err(Error::refused(
                    Errno::NOTEMPTY,
                    "set the layout of",
                    dir,
                    "it is flat and has files, which would not be found any more",
                )),
                other => other,
            },
            Some(_) => Err(Error::refused(
                Errno::INVAL,
                "set the layout of",
                dir,
                "it lies in a flat directory, and has the layout of that",
            )),
            None => Ok(()),
        })
    }

    /// What a name of a flat directory is, and the path of it, which is another if `links` are
    /// followed. `None`: the path leads out of all flat directories, to `Err(path)`.
    fn followed(
        &self,
        path: &Path,
        links: Links,
    ) -> Result<Option<std::result::Result<(PathBuf, Found), PathBuf>>> {
        let mut at = Cow::Borrowed(path);
        for _ in 0..=LINKS_MAX {
            match self.with_names(|names| names.find(&at, false))? {
                None if matches!(at, Cow::Borrowed(_)) => return Ok(None),
                None => return Ok(Some(Err(at.into_owned()))),
                Some((_, found)) => match &found.link {
                    Some(text) if links == Links::Follow => {
                        let above = at.parent().unwrap_or(Path::new("/"));
                        at = Cow::Owned(self.with_names(|names| names.target(above, text))?);
                    }
                    // What links lead to may have to be a directory.
                    _ if Ending::of(&at).is_for_directory() && !found.is_a(Kind::Dir) => {
                        let errno = match found.stat {
                            Some(_) => Errno::NOTDIR,
                            None => Errno::NOENT,
                        };
                        return Err(errno).at("open", &at);
                    }
                    _ => return Ok(Some(Ok((at.into_owned(), found)))),
                },
            }
        }
        Err(Errno::LOOP).at("open", path)
    }

    /// The path on the storage of what has the name `path`: another one if that is in a flat
    /// directory. ENOENT if nothing has it. It may be elsewhere a moment later.
    pub fn placed<'a>(&self, path: &'a Path, links: Links) -> Result<Cow<'a, Path>> {
        match self.followed(path, links)? {
            None => Ok(Cow::Borrowed(path)),
            Some(Err(out)) => Ok(Cow::Owned(out)),
            Some(Ok((_, found))) if found.stat.is_some() => {
                Ok(Cow::Owned(found.path().to_path_buf()))
            }
            Some(Ok(_)) => Err(Errno::NOENT).at("open", path),
        }
    }

    /// Calls `call` with the path on the storage of a name in a flat directory, until that stays
    /// where it was found. `None`: it is in none.
    pub(super) fn at_place<T>(
        &self,
        path: &Path,
        links: Links,
        mut call: impl FnMut(&Path) -> Result<T>,
    ) -> Result<Option<T>> {
        for _ in 0..TRIES {
            match self.placed(path, links)? {
                Cow::Borrowed(_) => return Ok(None),
                Cow::Owned(place) => match call(&place) {
                    Err(error) if error.errno() == Errno::NOENT => {}
                    other => return other.map(Some),
                },
            }
        }
        Err(Errno::NOENT).at("open", path)
    }

    /// [`Plfs::open`] of a name in a flat directory.
    pub(super) fn open_flat(&self, path: &Path, options: OpenOptions) -> Result<Option<Opened>> {
        let existing = OpenOptions { create: false, exclusive: false, ..options };
        let new = OpenOptions { create: true, exclusive: true, ..options };
        for _ in 0..TRIES {
            let mut at = Cow::Borrowed(path);
            if !(options.create && options.exclusive) {
                match self.followed(path, Links::Follow)? {
                    None => return Ok(None),
                    Some(Err(out)) => return self.open(&out, options).map(Some),
                    Some(Ok((_, found))) if found.is_a(Kind::Dir) && options.access.write => {
                        return Err(Errno::ISDIR).at("open", path);
                    }
                    Some(Ok((_, found))) if found.stat.is_some() => {
                        match self.open(found.path(), existing) {
                            Err(error) if error.errno() == Errno::NOENT => continue,
                            other => return other.map(Some),
                        }
                    }
                    Some(Ok((target, _))) => at = Cow::Owned(target),
                }
                if !options.create {
                    return Err(Errno::NOENT).at("open", path);
                }
            }
            let made = self.with_names(|names| names.create(&at, &mut |path| self.open(path, new)));
            match made {
                Err(error) if error.errno() == Errno::EXIST && !options.exclusive => {}
                other => return other,
            }
        }
        Err(Errno::NOENT).at("open", path)
    }

    /// [`Plfs::stat`] of a name in a flat directory.
    pub(super) fn stat_flat(&self, path: &Path, links: Links) -> Result<Option<FileStat>> {
        for _ in 0..TRIES {
            let found = match self.followed(path, links)? {
                None => return Ok(None),
                Some(Err(out)) => return self.stat(&out, links).map(Some),
                Some(Ok((_, found))) => found,
            };
            let Some(stat) = found.stat else { break };
            let text = found.link.as_ref().map(|text| text.len() as u64);
            let stat = Stat { len: text.unwrap_or(stat.len), ..stat };
            match self.resolve(found.path(), stat) {
                // It was replaced meanwhile, and is looked into because it had a second link.
                Err(error) if error.errno() == Errno::NOENT => {}
                other => return other.map(Some),
            }
        }
        Err(Errno::NOENT).at("stat", path)
    }

    pub(super) fn list_flat(&self, dir: &Path) -> Result<Option<Vec<crate::store::Entry>>> {
        let at = match self.followed(dir, Links::Follow)? {
            Some(Ok((at, _)) | Err(at)) => Cow::Owned(at),
            None => Cow::Borrowed(dir),
        };
        let listed = self.with_names(|names| names.list(&at))?;
        match (listed, at) {
            // A link led out of it.
            (None, Cow::Owned(at)) => self.list(&at).map(Some),
            (listed, _) => Ok(listed),
        }
    }

    pub(super) fn unlink_flat(&self, path: &Path) -> Result<bool> {
        self.with_names(|names| names.unlink(path))
    }

    /// Whether it was a directory in a flat one. The shadows of one that is flat by its own layout
    /// are gone then, if it has no names.
    pub(super) fn rmdir_flat(&self, path: &Path) -> Result<bool> {
        self.with_names(|names| {
            if names.rmdir(path)? {
                return Ok(true);
            }
            if let Some(dir) = names.dir(path)? {
                names.empty(&dir, path)?;
            }
            Ok(false)
        })
    }

    pub(super) fn rename_flat(&self, from: &Path, to: &Path, how: How) -> Result<bool> {
        let rename = |from: &Path, to: &Path| {
            self.rename_with(from, to, || self.process.store.rename(from, to).at("rename", from))
        };
        self.with_names(|names| names.rename(from, to, how, &rename))
    }

    /// Changes a directory that is flat, with its shadows.
    pub(super) fn change_flat(
        &self,
        path: &Path,
        mut change: impl FnMut(&Path) -> Result<()>,
    ) -> Result<bool> {
        let at = match self.followed(path, Links::Follow)? {
            Some(Ok((at, found))) if found.is_a(Kind::Dir) => at,
            Some(_) => return Ok(false),
            None => path.to_path_buf(),
        };
        self.with_names(|names| names.on_all(&at, &mut change))
    }

    /// Makes a directory, with `mode` less the umask.
    pub fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        let mut make =
            |path: &Path| self.process.store.mkdir(path, mode).at("make the directory", path);
        match self.with_names(|names| names.create(path, &mut make))? {
            Some(()) => Ok(()),
            None => make(path),
        }
    }

    /// Makes a symbolic link at `path` with the text `target`.
    pub fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let store = &self.process.store;
        let text = crate::spread::link_text(target);
        let mut make = |path: &Path| store.symlink(&text, path).at("make the link", path);
        match self.with_names(|names| names.create(path, &mut make))? {
            Some(()) => Ok(()),
            None => store.symlink(target, path).at("make the link", path),
        }
    }

    /// The text of a symbolic link. EINVAL for what is none.
    pub fn readlink(&self, path: &Path) -> Result<PathBuf> {
        self.with_names(|names| names.readlink(path))
    }

    /// Gives what is at `from`, a link itself, the name `to` as well. EPERM for a file of a pack.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        if self.packed_stat(from)?.is_some() {
            return Err(Errno::PERM).at("link", from);
        }
        if self.rename_flat(from, to, How::Link)? {
            return Ok(());
        }
        self.process.store.link(from, to).at("link", from)
    }

    /// Whether two new names of one directory are to lie beside each other, so that a rename is one
    /// call.
    pub fn is_beside(&self, one: &Path, two: &Path) -> Result<bool> {
        let Some((dir, name)) = one.parent().zip(one.file_name()) else { return Ok(true) };
        let dir = self.with_names(|names| names.dir_with_shadows(dir))?;
        let other = two.file_name().unwrap_or_default();
        Ok(dir.is_none_or(|dir| dir.is_beside(name, other)))
    }

    /// The backends that have the names of a directory, or would get them with this layout: each is
    /// there. The root is 0.
    pub fn backends_of_names(&self, dir: &Path, layout: &Layout) -> Result<Vec<(u16, PathBuf)>> {
        let flat = self.with_names(|names| names.dir(dir))?;
        if let Some(backends) = flat.as_ref().and_then(|flat| flat.backends_of_names()) {
            return Ok(backends);
        }
        let store = self.process.store.as_ref();
        let root = match &flat {
            Some(flat) => flat.root().to_path_buf(),
            None => self.root_for(&dir.join(plfs_format::name::LAYOUT))?,
        };
        let dev = store.stat(&root, Links::Follow).at("stat", &root)?.dev;
        let table = container::Table { store, root: &root, dev };
        let ids = table.of_layout(layout.backends.as_ref().unwrap_or(&Backends::All))?;
        let at = |id| match id {
            0 => Ok((0, root.clone())),
            id => table.find_again(id).map(|path| (id, path)),
        };
        ids.into_iter().map(at).collect()
    }

    /// Checks the flat directories at or below `top`, and what the backends of the roots below it
    /// have for such. With `repair`, an age in seconds, ends renames that have died, and removes
    /// what is empty and older.
    ///
    /// Costs a stat of each directory and of each name in a flat one.
    pub fn check_flat(&self, top: &Path, repair: Option<u64>) -> Result<FlatReport> {
        self.process.spread.forget();
        let mut walked = Walked::default();
        if let Some(dir) = self.with_names(|names| names.dir(top))? {
            self.with_names(|names| {
                names.walk(top, dir, repair.is_some(), &mut walked);
                Ok(())
            })?;
            return Ok(walked.found);
        }
        let (flat, roots) = self.flat_dirs_below(top)?;
        self.with_names(|names| {
            for (path, dir) in flat {
                match dir {
                    Ok(dir) => names.walk(&path, dir, repair.is_some(), &mut walked),
                    Err(error) => walked.fail(&path, &error),
                }
            }
            roots.iter().for_each(|root| names.unreached(root, repair, &mut walked));
            Ok(())
        })?;
        Ok(walked.found)
    }

    /// Moves the names that flat directories below the root `root` have on backend `id`, which is
    /// being drained, with their files, to the backends `to`; if that names none to those that new
    /// directories would use. Programs go on meanwhile; who makes a name waits `settles`
    /// ([`SETTLES`](crate::SETTLES)) once if it is to lie there.
    ///
    /// What cannot be moved now is told and stays; to call it again goes on, whatever ended it.
    /// Each name is what it was at each moment, or what others have made of it.
    pub fn drain_flat(
        &self,
        root: &Path,
        id: u16,
        to: &[u16],
        settles: Duration,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Drained> {
        let (store, config) = (&self.process.store, &self.process.config);
        let (ids, path) = federation::drained_ids(store, config, root, id)?;
        let drain = Drain {
            ids: &ids,
            to,
            is_in_use: &|file, stat, path| match self.process.is_local(stat.dev, path) {
                true => file.is_open_elsewhere(),
                false => is_young(stat),
            },
            is_shared: &|path, stat| Ok(may_be_logical(stat) && self.is_logical(path)?),
        };
        let (mut told, mut drained) = (Progress::default(), Drained::default());
        self.process.spread.forget();
        let (mut all, mut any_dir) = (Vec::new(), None);
        for (path, dir) in self.flat_dirs_below(root)?.0 {
            let dir = dir?;
            if dir.root() == root {
                any_dir = Some(dir.clone());
                all.extend(self.with_names(|names| names.all_below(&path, dir, &drain))?);
            }
        }
        self.with_names(|names| {
            let all: Vec<_> = all.into_iter().filter(|(.., is_there)| *is_there).collect();
            if !all.is_empty() {
                names.must_have_locks(root)?;
            }
            let mut waits = false;
            for (_, dir, _) in &all {
                waits |= names.begin_to_drain(dir, &drain)?;
            }
            if waits {
                thread::sleep(settles);
            }
            let mut moving = Vec::new();
            for (shown, dir, _) in &all {
                while !names.open_new_shadows(dir)? {}
                let dir = names.again(dir)?;
                let found = names.names_on(&dir, &drain)?;
                told.all_bytes += found.iter().map(|(_, bytes)| *bytes).sum::<u64>();
                moving.push((shown, dir, found));
            }
            let dirs = moving.iter().map(|(_, dir, _)| dir).chain(&any_dir);
            for dir in dirs {
                names.remove_copies(dir)?;
            }
            let mut kept = std::collections::HashSet::new();
            for (shown, dir, found) in moving {
                for (name, bytes) in found {
                    let begun = told.done_bytes;
                    let mut tell = |copied: u64| {
                        told.done_bytes = begun + copied.min(bytes);
                        match progress(told) {
                            ControlFlow::Continue(()) => Ok(()),
                            ControlFlow::Break(()) => Err(federation::interrupted()),
                        }
                    };
                    tell(0)?;
                    match names.drain_name(&dir, &name, &drain, &mut tell) {
                        Ok(Moved::Elsewhere) => {}
                        Ok(Moved::Away(copied)) => {
                            drained.files += 1;
                            drained.copied_bytes += copied;
                        }
                        Ok(Moved::Stays(bytes, why)) => drained.left.push(Left {
                            names: vec![shown.join(&name)],
                            container: shown.join(&name),
                            bytes,
                            why,
                        }),
                        Err(error) if error.errno() == Errno::INTR => return Err(error),
                        Err(why) => drained.left.push(Left {
                            names: vec![shown.join(&name)],
                            container: shown.join(&name),
                            bytes,
                            why,
                        }),
                    }
                    told.done_bytes = begun + bytes;
                }
                names.end_drain(&dir, &drain)?;
                kept.extend(names.again(&dir)?.shadows().map(|(_, shadow)| shadow));
            }
            let spread = path.join(ROOT_DIR).join(plfs_format::spread::DIR);
            if let Some(dir) = any_dir {
                names.sweep(&dir, &spread, &kept);
            }
            Ok(())
        })?;
        self.process.spread.forget();
        Ok(drained)
    }

    /// The directories at or below an ordinary one that are flat by their own layout, or cannot be
    /// looked into, and the roots there.
    #[allow(clippy::type_complexity)]
    fn flat_dirs_below(
        &self,
        top: &Path,
    ) -> Result<(Vec<(PathBuf, Result<Arc<Dir>>)>, Vec<PathBuf>)> {
        let store = &self.process.store;
        let dev = store.stat(top, Links::Follow).at("stat", top)?.dev;
        let (mut todo, mut roots) = (vec![top.to_path_buf()], Vec::new());
        let mut flat = Vec::new();
        while let Some(path) = todo.pop() {
            match self.with_names(|names| names.dir(&path)) {
                Ok(None) => {}
                Ok(Some(dir)) => flat.push((path.clone(), Ok(dir))),
                Err(error) => flat.push((path.clone(), Err(error))),
            }
            let entries = match store.list(&path) {
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    let error = Err::<(), _>(errno).at("list", &path).unwrap_err();
                    flat.push((path, Err(error)));
                    continue;
                }
                Ok(entries) => entries,
            };
            for entry in entries {
                let below = path.join(&entry.name);
                if !matches!(entry.kind, Some(Kind::Dir) | None) {
                    continue;
                }
                match store.stat(&below, Links::Stay).at("stat", &below) {
                    Ok(stat) if stat.kind == Kind::Dir && stat.dev == dev => {}
                    Err(error) if error.errno() != Errno::NOENT => {
                        flat.push((below, Err(error)));
                        continue;
                    }
                    _ => continue,
                }
                match entry.name == plfs_format::name::ROOT_DIR {
                    true => roots.push(path.clone()),
                    false => todo.push(below),
                }
            }
        }
        Ok((flat, roots))
    }

    // For doors that have directories open, which are known by their inodes: what a name is called
    // on the storage they may use as that of any file.

    /// The flat directory at `dir`, which is not in a shadow. `None`: it is an ordinary one.
    pub fn flat_dir(&self, dir: &Path) -> Result<Option<FlatDir>> {
        let found = self.with_names(|names| names.dir(dir))?;
        Ok(found.map(|found| FlatDir::of(&found)))
    }

    /// The path on the storage of what has the name. ENOENT if nothing has it. It may be elsewhere
    /// a moment later.
    pub fn place_in(&self, dir: &FlatDir, name: &OsStr) -> Result<PathBuf> {
        let path = dir.join(name);
        match self.with_names_of(from_ref(dir), |names| names.find(&path, false))? {
            Some((_, found)) if found.stat.is_some() => Ok(found.path().to_path_buf()),
            _ => Err(Errno::NOENT).at("open", &path),
        }
    }

    /// Makes something new by `make`, which gets a path on the storage and fails with EEXIST if
    /// there is something.
    pub fn make_in<T>(
        &self,
        dir: &FlatDir,
        name: &OsStr,
        make: &mut dyn FnMut(&Path) -> Result<T>,
    ) -> Result<T> {
        let path = dir.join(name);
        let made = self.with_names_of(from_ref(dir), |names| names.create(&path, make))?;
        made.map_or_else(|| Err(Errno::STALE).at("create", &path), Ok)
    }

    /// Removes a name of something that is no directory.
    pub fn unlink_in(&self, dir: &FlatDir, name: &OsStr) -> Result<()> {
        self.with_names_of(from_ref(dir), |names| names.unlink(&dir.join(name))).map(drop)
    }

    /// Removes a directory, if it is empty.
    pub fn rmdir_in(&self, dir: &FlatDir, name: &OsStr) -> Result<()> {
        self.with_names_of(from_ref(dir), |names| names.rmdir(&dir.join(name))).map(drop)
    }

    /// Renames, or replaces. `line` leads to the directory of `to`, if somebody knows; it may be
    /// elsewhere by now.
    pub fn rename_in(
        &self,
        from: (&FlatDir, &OsStr),
        to: (&FlatDir, &OsStr),
        line: Option<&Line>,
    ) -> Result<()> {
        self.rename_in_as(from, to, line, How::Rename)
    }

    /// Gives what has the name `from` another one as well.
    pub fn link_in(&self, from: (&FlatDir, &OsStr), to: (&FlatDir, &OsStr)) -> Result<()> {
        self.rename_in_as(from, to, None, How::Link)
    }

    fn rename_in_as(
        &self,
        (from, name): (&FlatDir, &OsStr),
        (to, new_name): (&FlatDir, &OsStr),
        line: Option<&Line>,
        how: How,
    ) -> Result<()> {
        let rename = |from: &Path, to: &Path| {
            self.rename_with(from, to, || self.process.store.rename(from, to).at("rename", from))
        };
        let (source, target) = (from.join(name), to.join(new_name));
        self.with_names_of(&[from.clone(), to.clone()], |names| {
            let names = Names { line, ..*names };
            names.rename(&source, &target, how, &rename).map(drop)
        })
    }

    /// What it has, in no order, each with its file system's number.
    pub fn list_in(&self, dir: &FlatDir) -> Result<Vec<(crate::store::Entry, u64)>> {
        let home = dir.at_home();
        let listed = self.with_names_of(from_ref(dir), |names| names.list_with_dev(home))?;
        Ok(listed.unwrap_or_default())
    }

    /// Gives its shadows this mode and owner.
    pub fn like_home(&self, dir: &FlatDir, mode: u32, (uid, gid): (u32, u32)) -> Result<()> {
        let store = &self.process.store;
        self.on_flat(dir, |path| {
            if path == dir.at_home() {
                return Ok(());
            }
            let stat = store.stat(path, Links::Stay).at("stat", path)?;
            if (stat.uid, stat.gid) != (uid, gid) {
                store
                    .chown(path, Some(uid), Some(gid), Links::Stay)
                    .at("set the owner of", path)?;
            }
            store.chmod(path, mode).at("set the mode of", path)
        })
    }

    /// Calls `change` on the directory itself and on all its shadows.
    pub fn on_flat(
        &self,
        dir: &FlatDir,
        mut change: impl FnMut(&Path) -> Result<()>,
    ) -> Result<()> {
        let home = dir.at_home();
        self.with_names_of(from_ref(dir), |names| names.on_all(home, &mut change)).map(drop)
    }
}

/// The text of a program's symbolic link in a flat directory, if that on the storage is `text`.
pub fn link_text_of(text: &[u8]) -> Vec<u8> {
    match Target::decode(text) {
        Target::Text(text) => text,
        Target::Moved(_) => text.to_vec(),
    }
}
