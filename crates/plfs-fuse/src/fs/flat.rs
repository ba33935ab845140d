//! Flat directories (docs/decisions/0022): a name there is a file, a link or a directory at some
//! place on a backend, which the engine knows. All else is as with other files, at that place.
//!
//! A directory in a flat one is flat as well, and its inode says so. What changes names is done as
//! the daemon, because slots and shadows are their directory's, whoever makes them: the kernel has
//! checked the rights. New files are the caller's.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{FileAttr, FileType};
use plfs_core::store::{Errno, Kind, PosixFile, StoreFile};
use plfs_core::{Error, File, FlatDir, FlatLine, OpenOptions, link_text_of};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};

use super::{
    Door, Entry, Listing, Result, SET_GROUP_ID, birth_at, dir_of, errno_of, key_of, may_be_name,
    type_of,
};
use crate::creds::{Acting, Caller, as_caller, as_caller_with_groups};
use crate::inode::{Inode, Name, lock, number_in_flat};
use crate::store::reach;

/// How long a directory is believed to be flat, or not: as the engine does.
const BELIEVED: Duration = Duration::from_millis(500);
/// Directories that may lie in each other, as far as they are followed: those of a path of 4,096
/// bytes.
const LINE_MAX: usize = 2048;
/// How often a name is looked for that moves.
const TRIES: usize = 100;

/// Where a name is: a path from a directory that is open.
pub(super) struct Place<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) path: Cow<'a, Path>,
}

fn io<T>(done: Result<T>, op: &'static str, path: &Path) -> plfs_core::Result<T> {
    done.map_err(|errno| Error::Io { op, path: path.to_path_buf(), errno })
}

impl Door {
    /// The flat directory that this one is; `None`: an ordinary one.
    pub(super) fn flat(&self, dir: &Inode) -> Result<Option<FlatDir>> {
        dir_of(dir)?;
        if let Some(flat) = &dir.flat {
            return Ok(Some(flat.at(self.home_of(dir)?)));
        }
        let known = lock(&dir.flatness).clone();
        let flat = match known {
            Some((until, flat)) if Instant::now() < until => flat,
            _ => {
                let _acting = Acting::as_daemon();
                let flat = self.plfs.flat_dir(&self.home_of(dir)?).map_err(errno_of)?;
                *lock(&dir.flatness) = Some((Instant::now() + BELIEVED, flat.clone()));
                flat
            }
        };
        // It may have been renamed.
        flat.map(|flat| Ok(flat.at(self.home_of(dir)?))).transpose()
    }

    fn home_of(&self, dir: &Inode) -> Result<PathBuf> {
        let path = self.dir_path(dir)?;
        if path.starts_with(self.root.path.join("..")) {
            // By the number of a descriptor, which may be another directory's in a moment.
            self.plfs.forget_flat();
        }
        Ok(path)
    }

    /// Whether an inode is a flat directory.
    pub(crate) fn is_flat(&self, id: u64) -> Result<bool> {
        let inode = self.inode(id)?;
        Ok(inode.dir.is_some() && self.flat(&inode)?.is_some())
    }

    /// What was believed of a directory is not so.
    pub(super) fn is_not_as_believed(&self, dir: &Inode) {
        *lock(&dir.flatness) = None;
        self.plfs.forget_flat();
    }

    /// Calls `call` with the place of a name, which moves while it is looked for.
    pub(super) fn at_place<T>(
        &self,
        parent: &Inode,
        name: &OsStr,
        call: impl Fn(&Place<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(flat) = self.flat(parent)? else {
            let path = Cow::Borrowed(Path::new(name));
            return call(&Place { dir: dir_of(parent)?.as_fd(), path });
        };
        for _ in 0..TRIES {
            let place = self.plfs.place_in(&flat, name).map_err(errno_of)?;
            let path = Cow::Owned(reach(&self.roots, &place));
            match call(&Place { dir: CWD, path }) {
                Err(Errno::NOENT) => {}
                other => return other,
            }
        }
        Err(Errno::NOENT)
    }

    /// The stat of a name. Of a symbolic link in a flat directory that of the program's.
    pub(super) fn stat_of_name(&self, parent: &Inode, name: &OsStr) -> Result<Stat> {
        let is_flat = self.flat(parent)?.is_some();
        self.at_place(parent, name, |place| {
            let mut stat = rustix::fs::statat(place.dir, &*place.path, AtFlags::SYMLINK_NOFOLLOW)?;
            if is_flat && type_of(stat.st_mode) == FileType::Symlink {
                let text = rustix::fs::readlinkat(place.dir, &*place.path, Vec::new())?;
                stat.st_size = link_text_of(text.as_bytes()).len() as _;
            }
            Ok(stat)
        })
    }

    /// A path for calls of this process that leads to the name.
    pub(super) fn way_of_name(&self, name: &Name) -> Result<PathBuf> {
        match self.flat(&name.parent)? {
            None => Ok(super::magic(dir_of(&name.parent)?).join(&name.name)),
            Some(flat) => {
                let place = self.plfs.place_in(&flat, &name.name).map_err(errno_of)?;
                Ok(reach(&self.roots, &place))
            }
        }
    }

    /// The text of a symbolic link that is `text` on the storage.
    pub(super) fn text_of(&self, inode: &Inode, text: Vec<u8>) -> Result<Vec<u8>> {
        for name in inode.names() {
            if self.flat(&name.parent)?.is_some() {
                return Ok(link_text_of(&text));
            }
        }
        Ok(text)
    }

    /// [`Door::look_up_in`] of a name in a flat directory.
    pub(super) fn look_up_in_flat(
        &self,
        parent: &Arc<Inode>,
        flat: &FlatDir,
        name: &OsStr,
    ) -> Result<FileAttr> {
        let (stat, birth, fd) = self.at_place(parent, name, |place| {
            let stat = rustix::fs::statat(place.dir, &*place.path, AtFlags::SYMLINK_NOFOLLOW)?;
            if type_of(stat.st_mode) != FileType::Directory {
                return Ok((stat, birth_at(place.dir, &place.path, key_of(&stat)), None));
            }
            let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(place.dir, &*place.path, how, Mode::empty())?;
            Ok((rustix::fs::fstat(&fd)?, None, Some(fd)))
        })?;
        let kind = type_of(stat.st_mode);
        let below = fd.is_some().then(|| flat.clone());
        let key = key_of(&stat);
        let inode = self.inodes.look_up_in_flat(key, birth, kind, below, || Ok::<_, Errno>(fd))?;
        inode.add_name(parent, name);
        let attr = match kind {
            FileType::Symlink => self
                .stat_of_name(parent, name)
                .and_then(|stat| self.attr(&inode, &stat, || self.path_of(parent, name))),
            _ => self.attr(&inode, &stat, || self.path_of(parent, name)),
        };
        if attr.is_err() {
            self.inodes.forget(inode.id, 1);
        }
        attr
    }

    /// Does something with names: as the daemon, or where that has no rights as the caller.
    fn on_names<T>(&self, caller: Caller, call: impl Fn() -> plfs_core::Result<T>) -> Result<T> {
        let done = {
            let _acting = Acting::as_daemon();
            call()
        };
        match done {
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => {
                as_caller(caller, || call().map_err(errno_of))
            }
            other => other.map_err(errno_of),
        }
    }

    /// Creates a file as the caller.
    pub(super) fn make_in_flat(
        &self,
        caller: Caller,
        flat: &FlatDir,
        name: &OsStr,
        (mode, umask): (u32, u32),
        options: OpenOptions,
    ) -> Result<(File, plfs_core::store::Stat)> {
        let as_given = Mode::from_raw_mode(mode & 0o7777 & !umask);
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        self.make_at(caller, flat, name, mode, |place, path| {
            let fd = rustix::fs::open(path, how, as_given)?;
            let file = Arc::new(PosixFile::from_fd(fd));
            let stat = file.stat()?;
            Ok((self.plfs.created_plain(file, &stat, place, options), stat))
        })
    }

    /// Makes something new as the caller. `make` gets its path on the storage, and the way to that.
    pub(super) fn make_at<T>(
        &self,
        caller: Caller,
        flat: &FlatDir,
        name: &OsStr,
        mode: u32,
        make: impl Fn(&Path, &Path) -> Result<T>,
    ) -> Result<T> {
        let _acting = Acting::as_daemon();
        let mut at = |place: &Path| {
            let path = reach(&self.roots, place);
            // Without the caller's groups the backend would take the set-group-ID bit away.
            let made = match mode & SET_GROUP_ID {
                0 => as_caller(caller, || make(place, &path)),
                _ => as_caller_with_groups(caller, || make(place, &path)),
            };
            io(made, "create", place)
        };
        self.plfs.make_in(flat, name, &mut at).map_err(errno_of)
    }

    /// Adds a name to a file that has one in a flat directory.
    pub(super) fn link_in_flat(
        &self,
        caller: Caller,
        inode: &Inode,
        flat: &FlatDir,
        new_name: &OsStr,
    ) -> Result<()> {
        let (name, _) = self.name_of(inode)?.ok_or(Errno::STALE)?;
        let from = self.flat(&name.parent)?.ok_or(Errno::XDEV)?;
        self.on_names(caller, || self.plfs.link_in((&from, &name.name), (flat, new_name)))
    }

    /// Whether a file has a name in a flat directory.
    pub(super) fn is_in_flat(&self, inode: &Inode) -> Result<bool> {
        for name in inode.names() {
            if self.flat(&name.parent)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a name of something that is no directory.
    pub(super) fn unlink_in_flat(
        &self,
        caller: Caller,
        parent: &Inode,
        flat: &FlatDir,
        name: &OsStr,
    ) -> Result<()> {
        let stat = self.stat_of_name(parent, name)?;
        let links = self.links_of(parent, name, &stat);
        self.on_names(caller, || self.plfs.unlink_in(flat, name))?;
        self.name_is_gone(parent, name, &stat, links);
        Ok(())
    }

    /// Links that a file has when it loses its last name: a container has one more.
    fn links_of(&self, parent: &Inode, name: &OsStr, stat: &Stat) -> u64 {
        let has_container = may_be_name(stat)
            && self
                .path_of(parent, name)
                .is_ok_and(|path| matches!(self.plfs.container(&path), Ok(Some(_))));
        if has_container { 2 } else { 1 }
    }

    /// Removes an empty directory in a flat one.
    pub(super) fn rmdir_in_flat(
        &self,
        caller: Caller,
        parent: &Inode,
        flat: &FlatDir,
        name: &OsStr,
    ) -> Result<()> {
        let stat = self.stat_of_name(parent, name)?;
        self.on_names(caller, || self.plfs.rmdir_in(flat, name))?;
        self.name_is_gone(parent, name, &stat, 0);
        Ok(())
    }

    /// Removes a directory that is flat by its own layout, if it is; `false`: it is an ordinary
    /// one.
    pub(super) fn rmdir_flat(&self, caller: Caller, path: &Path) -> Result<bool> {
        let _acting = Acting::as_daemon();
        self.plfs.forget_flat();
        if self.plfs.flat_dir(path).map_err(errno_of)?.is_none() {
            return Ok(false);
        }
        self.on_names(caller, || self.plfs.rmdir(path)).map(|()| true)
    }

    /// How a flat directory was found; `None`: not by names.
    fn line_to(&self, dir: &Arc<Inode>) -> Result<Option<FlatLine>> {
        let (mut at, mut names) = (dir.clone(), Vec::new());
        while at.flat.is_some() {
            let Some(name) = lock(&at.found_as).clone() else { return Ok(None) };
            names.push(name.name);
            // Those that somebody has moved meanwhile may seem to lie in each other.
            if names.len() > LINE_MAX {
                return Ok(None);
            }
            at = name.parent;
        }
        names.reverse();
        Ok(self.flat(&at)?.map(|top| (top, names)))
    }

    /// Renames from one flat directory to another.
    pub(super) fn rename_in_flat(
        &self,
        caller: Caller,
        (from_dir, from, name): (&Arc<Inode>, &FlatDir, &OsStr),
        (to_dir, to, new_name): (&Arc<Inode>, &FlatDir, &OsStr),
    ) -> Result<()> {
        let before = self.stat_of_name(from_dir, name)?;
        let replaced = match self.stat_of_name(to_dir, new_name) {
            Err(Errno::NOENT) => None,
            other => {
                let stat = other?;
                Some((stat, self.links_of(to_dir, new_name, &stat)))
            }
        };
        let line = self.line_to(to_dir)?;
        self.on_names(caller, || self.plfs.rename_in((from, name), (to, new_name), line.as_ref()))?;
        if replaced.as_ref().map(|(stat, _)| key_of(stat)) == Some(key_of(&before)) {
            return Ok(());
        }
        if let Some((replaced, links)) = &replaced {
            self.name_is_gone(to_dir, new_name, replaced, *links);
        }
        if let Some(inode) = self.inodes.find(key_of(&before)) {
            inode.remove_name(from_dir.id, name);
            inode.add_name(to_dir, new_name);
        }
        Ok(())
    }

    /// The shadows of a flat directory get its mode and owner.
    pub(super) fn shadows_follow(&self, caller: Caller, dir: &Inode) -> Result<()> {
        let Some(flat) = self.flat(dir)? else { return Ok(()) };
        let stat = rustix::fs::fstat(dir_of(dir)?)?;
        self.on_names(caller, || {
            self.plfs.like_home(&flat, stat.st_mode & 0o3777, (stat.st_uid, stat.st_gid))
        })
    }

    /// All names of a flat directory.
    pub(super) fn list_flat(&self, dir: &Inode, flat: &FlatDir) -> Result<Listing> {
        let mut listing = Listing::default();
        for name in [".", ".."] {
            listing.push(Entry { name: OsStr::new(name), ino: dir.id, kind: FileType::Directory });
        }
        for (found, dev) in self.plfs.list_in(flat).map_err(errno_of)? {
            let kind = match found.kind {
                Some(Kind::File) => FileType::RegularFile,
                Some(Kind::Dir) => FileType::Directory,
                Some(Kind::Symlink) => FileType::Symlink,
                // A pipe, a socket or a device, or not told.
                Some(Kind::Other) | None => match self.stat_of_name(dir, &found.name) {
                    Ok(stat) => type_of(stat.st_mode),
                    Err(_) => continue,
                },
            };
            let ino = number_in_flat(self.inodes.root_dev, (dev, found.ino));
            listing.push(Entry { name: &found.name, ino, kind });
        }
        Ok(listing)
    }

    /// Makes the names of a flat directory durable.
    pub(super) fn sync_flat(&self, flat: &FlatDir) -> Result<()> {
        let store = self.plfs.store();
        let sync = |path: &Path| io(store.sync_dir(path), "sync", path);
        self.plfs.on_flat(flat, sync).map_err(errno_of)
    }
}
