//! Names: looked up, made, moved, removed, listed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use fuser::{FileAttr, FileType, INodeNo};
use plfs_core::store::{Errno, PosixFile, StoreFile};
use plfs_core::{File, OpenOptions, Writers, flat_text, is_hidden, is_layout, is_map};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, RenameFlags, Stat};

use super::attributes::logical_attr;
use super::{
    Door, Entry, Handle, Listing, Opened, READ_WRITE, Result, SET_GROUP_ID, birth_at, dir_of,
    errno_of, key_of, magic, may_be_name, type_of,
};
use crate::acl;
use crate::creds::{Caller, as_caller, as_caller_with_groups};
use crate::inode::{Inode, OpenState, lock};

impl Door {
    /// [`Door::look_up_in`], for programs.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        self.look_up_in(&parent, visible(name)?)
    }

    /// [`Door::look_up_in`] without regard to contended names.
    pub(super) fn look_up_once(&self, parent: &Arc<Inode>, name: &OsStr) -> Result<FileAttr> {
        if let Some(flat) = self.flat(parent)? {
            return self.look_up_in_flat(parent, &flat, name);
        }
        if let Some(attr) = self.look_up_in_pack(parent, name)? {
            return Ok(attr);
        }
        let dir = dir_of(parent)?;
        let mut stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut fd = None;
        if type_of(stat.st_mode) == FileType::Directory && self.inodes.find(key_of(&stat)).is_none()
        {
            let opened = rustix::fs::openat(
                dir,
                name,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            stat = rustix::fs::fstat(&opened)?;
            fd = Some(opened);
        }
        let directory = type_of(stat.st_mode) == FileType::Directory;
        let (key, kind) = (key_of(&stat), type_of(stat.st_mode));
        let birth = if directory { None } else { birth_at(dir, Path::new(name), key) };
        let inode = self.inodes.look_up(key, birth, kind, || match fd {
            // Forgotten since we looked.
            None if directory => Ok(Some(rustix::fs::openat(
                dir,
                name,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?)),
            fd => Ok::<_, Errno>(fd),
        })?;
        inode.add_name(parent, name);
        let attr = self.attr(&inode, &stat, || self.path_of(parent, name));
        if attr.is_err() {
            self.inodes.forget(inode.id, 1);
        }
        attr
    }

    /// The kernel forgets `n` lookups.
    pub fn forget(&self, id: u64, n: u64) {
        self.inodes.forget(id, n);
    }

    /// The text of a symbolic link.
    pub fn readlink(&self, id: u64) -> Result<Vec<u8>> {
        let inode = self.inode(id)?;
        let found = self.find(&inode, &OpenState::default())?;
        let text = rustix::fs::readlinkat(&*found.fd, "", Vec::new())?.into_bytes();
        self.text_of(&inode, text)
    }

    /// Creates a file as the caller, plain or with a container, as its directory says. Gives its
    /// stat, too.
    fn make(
        &self,
        caller: Caller,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<(File, plfs_core::store::Stat)> {
        creatable(name)?;
        self.prepare().map_err(|(errno, text)| {
            log::error!("{text}");
            errno
        })?;
        let options = OpenOptions {
            access: READ_WRITE,
            create: true,
            exclusive: true,
            truncate: false,
            mode,
            writers: Writers::Unknown,
        };
        if let Some(flat) = self.flat(parent)? {
            return self.make_in_flat(caller, &flat, name, (mode, umask), options);
        }
        if self.is_in_pack(parent, name)? {
            return Err(Errno::EXIST);
        }
        let path = self.path_of(parent, name)?;
        if self.plfs.is_born_packed(&path).map_err(errno_of)? {
            let file = self.make_in_pack(caller, parent, &path, options, umask)?;
            let stat = file.stat().map_err(errno_of)?;
            return Ok((file, stat));
        }
        if !self.plfs.is_born_plain(&path, options).map_err(errno_of)? {
            let file = self.make_container(caller, parent, &path, options, umask)?;
            let stat = file.stat().map_err(errno_of)?;
            return Ok((file, stat));
        }
        let (dir, as_given) = (dir_of(parent)?, Self::backend_mode(parent, mode, umask)?);
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(dir, name, how, as_given);
        // Without the caller's groups the backend would take this bit away, silently.
        let fd = match mode & SET_GROUP_ID {
            0 => as_caller(caller, create)?,
            _ => as_caller_with_groups(caller, create)?,
        };
        let file = Arc::new(PosixFile::from_fd(fd));
        let stat = file.stat()?;
        Ok((self.plfs.created_plain(file, &stat, &path, options), stat))
    }

    /// Creates a file with a container as the caller, with what its directory says.
    fn make_container(
        &self,
        caller: Caller,
        parent: &Inode,
        path: &Path,
        options: OpenOptions,
        umask: u32,
    ) -> Result<File> {
        let NewFile { gid, mode, list } = new_file(caller, parent, options.mode, umask)?;
        let options = OpenOptions { mode, ..options };
        let file =
            self.as_caller_in_engine(Caller { gid, ..caller }, mode & SET_GROUP_ID != 0, || {
                self.plfs.create(path, options)
            })?;
        if let Some(list) = list {
            let set = self.way_to(&file).and_then(|way| {
                rustix::fs::setxattr(&way.path, acl::ACCESS, &list, rustix::fs::XattrFlags::empty())
            });
            if let Err(errno) = set {
                log::warn!("{} does not get its directory's access list: {errno}", path.display());
            }
        }
        Ok(file)
    }

    /// The mode of something that the backend creates; the backend applies access lists itself.
    fn backend_mode(parent: &Inode, mode: u32, umask: u32) -> Result<Mode> {
        let mode = mode & 0o7777;
        Ok(Mode::from_raw_mode(if acl::has_default(dir_of(parent)?) {
            mode
        } else {
            mode & !umask
        }))
    }

    /// Creates a file and opens it. EEXIST if the name is taken.
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(FileAttr, Opened)> {
        let parent = self.inode(parent)?;
        let (file, stat) = match self.make(caller, &parent, name, mode, umask) {
            Err(Errno::EXIST) if flags & libc::O_EXCL == 0 => {
                let attr = self.look_up_in(&parent, name)?;
                return match self.open(caller, attr.ino.0, flags) {
                    Ok(opened) => Ok((attr, opened)),
                    Err(errno) => {
                        self.inodes.forget(attr.ino.0, 1);
                        Err(errno)
                    }
                };
            }
            other => other?,
        };
        let is_flat = self.flat(&parent)?.is_some();
        let (key, kind) = ((stat.dev, stat.ino), FileType::RegularFile);
        let none = || Ok::<_, Errno>(None);
        let birth = match file.plain_file().as_ref().and_then(|plain| plain.fd()) {
            Some(fd) => birth_at(fd, Path::new(""), key),
            None => None,
        };
        let inode = match file.packed_id() {
            None if is_flat => self.inodes.look_up_in_flat(key, birth, kind, None, none)?,
            Some((pack, id)) => self.inodes.look_up_in_pack(self.packs.key(pack, id), stat.ino),
            None => self.inodes.look_up(key, birth, kind, none)?,
        };
        inode.add_name(&parent, name);
        inode.mode.store(stat.mode, Ordering::Relaxed);
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let opened = self.opened(&inode, lock(&inode.open), Arc::new(file), writes);
        Ok((logical_attr(&inode, &stat), opened))
    }

    /// Makes a node: a file, a pipe, a socket, a device.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<FileAttr> {
        let dir = self.inode(parent)?;
        creatable(name)?;
        let kind = mode & libc::S_IFMT;
        if kind == libc::S_IFREG || kind == 0 {
            self.make(caller, &dir, name, mode & !libc::S_IFMT, umask)?
                .0
                .close()
                .map_err(errno_of)?;
        } else if let Some(flat) = self.flat(&dir)? {
            let (given, kind) = (mode & 0o7777 & !umask, rustix::fs::FileType::from_raw_mode(kind));
            self.make_at(caller, &flat, name, mode, |_, path| {
                let mode = Mode::from_raw_mode(given);
                rustix::fs::mknodat(CWD, path, kind, mode, rdev.into())
            })?;
        } else {
            self.must_be_free(&dir, name)?;
            let (parent, mode) = (dir_of(&dir)?, Self::backend_mode(&dir, mode, umask)?);
            let kind = rustix::fs::FileType::from_raw_mode(kind);
            as_caller(caller, || rustix::fs::mknodat(parent, name, kind, mode, rdev.into()))?;
        }
        self.look_up_in(&dir, name)
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        creatable(name)?;
        if let Some(flat) = self.flat(&parent)? {
            let given = Mode::from_raw_mode(mode & 0o7777 & !umask);
            self.make_at(caller, &flat, name, mode, |_, path| rustix::fs::mkdir(path, given))?;
            return self.look_up_in(&parent, name);
        }
        let (dir, mode) = (dir_of(&parent)?, Self::backend_mode(&parent, mode, umask)?);
        self.must_be_free(&parent, name)?;
        as_caller(caller, || rustix::fs::mkdirat(dir, name, mode))?;
        self.look_up_in(&parent, name)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        target: &Path,
    ) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        let dir = dir_of(&parent)?;
        creatable(name)?;
        if let Some(flat) = self.flat(&parent)? {
            let text = flat_text(target);
            self.make_at(caller, &flat, name, 0, |_, path| rustix::fs::symlink(&text, path))?;
            return self.look_up_in(&parent, name);
        }
        self.must_be_free(&parent, name)?;
        as_caller(caller, || rustix::fs::symlinkat(target, dir, name))?;
        self.look_up_in(&parent, name)
    }

    /// Adds a name to a file.
    pub fn link(&self, caller: Caller, id: u64, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let (inode, parent) = (self.inode(id)?, self.inode(parent)?);
        let dir = dir_of(&parent)?;
        creatable(name)?;
        if inode.is_packed() {
            return Err(Errno::PERM);
        }
        if let Some(flat) = self.flat(&parent)? {
            self.link_in_flat(caller, &inode, &flat, name)?;
            return self.look_up_in(&parent, name);
        }
        self.must_be_free(&parent, name)?;
        if self.is_in_flat(&inode)? {
            return Err(Errno::XDEV);
        }
        let found = self.find(&inode, &lock(&inode.open))?;
        let from = magic(&*found.fd);
        as_caller(caller, || rustix::fs::linkat(CWD, &from, dir, name, AtFlags::SYMLINK_FOLLOW))?;
        self.look_up_in(&parent, name)
    }

    /// Removes a name.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<()> {
        let parent = self.inode(parent)?;
        let dir = dir_of(&parent)?;
        visible(name)?;
        if let Some(flat) = self.flat(&parent)? {
            return self.unlink_in_flat(caller, &parent, &flat, name);
        }
        if self.unlink_in_pack(&parent, name)? {
            return Ok(());
        }
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        // A name that cannot be understood can still be removed; what it leaves is garbage for
        // `plfs check`.
        let container = match may_be_name(&stat) {
            true => self.plfs.container(&self.path_of(&parent, name)?).unwrap_or(None),
            false => None,
        };
        as_caller(caller, || rustix::fs::unlinkat(dir, name, AtFlags::empty()))?;
        let names = if container.is_some() { 2 } else { 1 };
        self.name_is_gone(&parent, name, &stat, names);
        // The name is gone: what cannot be removed is garbage, and no error of this call.
        if let Err(error) = self.plfs.drop_container(container) {
            log::warn!(
                "what {} leaves must be removed by `plfs check --repair`: {error}",
                name.to_string_lossy()
            );
        }
        Ok(())
    }

    pub(super) fn name_is_gone(&self, parent: &Inode, name: &OsStr, stat: &Stat, last_links: u64) {
        let key = key_of(stat);
        if let Some(inode) = self.inodes.find(key) {
            inode.remove_name(parent.id, name);
            #[allow(clippy::unnecessary_cast)]
            let last = stat.st_nlink as u64 <= last_links || inode.kind == FileType::Directory;
            if last {
                self.inodes.lost_its_names(key);
            }
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<()> {
        let parent = self.inode(parent)?;
        let dir = dir_of(&parent)?;
        visible(name)?;
        if let Some(flat) = self.flat(&parent)? {
            return self.rmdir_in_flat(caller, &parent, &flat, name);
        }
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let path = self.path_of(&parent, name)?;
        let remove = || rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR);
        match as_caller(caller, remove) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.rmdir_flat(caller, &path)? => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => as_caller(caller, || {
                self.remove_pack(&path)?;
                remove_layout(dir, name)?;
                remove()
            })?,
            other => other?,
        }
        self.name_is_gone(&parent, name, &stat, 0);
        Ok(())
    }

    /// Renames; with flags as renameat2(2).
    pub fn rename(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: u32,
    ) -> Result<()> {
        let (from_dir, to_dir) = (self.inode(parent)?, self.inode(new_parent)?);
        let (from, to) = (dir_of(&from_dir)?, dir_of(&to_dir)?);
        visible(name)?;
        creatable(new_name)?;
        let flags = RenameFlags::from_bits_retain(flags);
        match (self.flat(&from_dir)?, self.flat(&to_dir)?) {
            (None, None) => {}
            (Some(from), Some(to)) if flags.is_empty() => {
                let (from, to) = ((&from_dir, &from, name), (&to_dir, &to, new_name));
                return self.rename_in_flat(caller, from, to);
            }
            // No file system need have them, and programs do without.
            (Some(_), Some(_)) => return Err(Errno::INVAL),
            // As between two file systems.
            _ => return Err(Errno::XDEV),
        }
        if self.is_in_pack(&from_dir, name)?
            || self.is_in_pack(&to_dir, new_name)?
            || self.is_changing(&from_dir)?
            || self.is_changing(&to_dir)?
        {
            return self.rename_in_pack(caller, (&from_dir, name), (&to_dir, new_name), flags);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let before = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let replaced = rustix::fs::statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let rename = || {
            as_caller(caller, || match flags.is_empty() {
                true => rustix::fs::renameat(from, name, to, new_name),
                false => rustix::fs::renameat_with(from, name, to, new_name, flags),
            })
        };
        let mut has_container = false;
        if replaced.as_ref().is_some_and(may_be_name) && !exchange {
            let (source, target) =
                (self.path_of(&from_dir, name)?, self.path_of(&to_dir, new_name)?);
            let io = |errno| plfs_core::Error::Io { op: "rename", path: target.clone(), errno };
            // A container has a name more than programs see.
            has_container = before_last(replaced.as_ref())
                && self.plfs.container(&target).is_ok_and(|found| found.is_some());
            self.plfs.rename_with(&source, &target, || rename().map_err(io)).map_err(errno_of)?;
        } else {
            rename()?;
        }
        let is_dir = |stat: &Stat| type_of(stat.st_mode) == FileType::Directory;
        if is_dir(&before) || replaced.as_ref().is_some_and(is_dir) {
            self.plfs.forget_flat();
            self.plfs.forget_packs_seen();
        }
        if replaced.as_ref().map(key_of) == Some(key_of(&before)) {
            // Two names of one file: nothing happened.
            return Ok(());
        }
        if let Some(replaced) = &replaced
            && !exchange
        {
            self.name_is_gone(&to_dir, new_name, replaced, if has_container { 2 } else { 1 });
        }
        if let Some(inode) = self.inodes.find(key_of(&before)) {
            inode.remove_name(from_dir.id, name);
            inode.add_name(&to_dir, new_name);
        }
        if let Some(inode) =
            replaced.filter(|_| exchange).and_then(|stat| self.inodes.find(key_of(&stat)))
        {
            inode.remove_name(to_dir.id, new_name);
            inode.add_name(&from_dir, name);
        }
        Ok(())
    }

    /// Opens a directory.
    pub fn opendir(&self, id: u64) -> Result<u64> {
        let inode = self.inode(id)?;
        dir_of(&inode)?;
        Ok(self.add_handle(Handle::Dir { inode, entries: Mutex::default() }))
    }

    /// Closes a directory.
    pub fn releasedir(&self, fh: u64) {
        self.take_handle(fh);
    }

    /// Calls `visit` with the names from position `offset` on, and the position behind each, until
    /// it says that it has no more room.
    pub fn readdir(
        &self,
        caller: Caller,
        fh: u64,
        offset: u64,
        mut visit: impl FnMut(&Arc<Inode>, Entry, u64) -> bool,
    ) -> Result<()> {
        let handle = self.handle(fh)?;
        let Handle::Dir { inode, entries } = &*handle else { return Err(Errno::NOTDIR) };
        let mut entries = lock(entries);
        if offset == 0 {
            // Permission was checked at the open; the rights may have changed since.
            *entries = match self.list_ordinary(caller, inode)? {
                Some(listing) => listing,
                None => {
                    let flat = self.flat(inode)?.ok_or(Errno::OPNOTSUPP)?;
                    self.list_flat(inode, &flat)?
                }
            };
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.entries(from) {
            if !visit(inode, entry, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    /// What an ordinary directory has; `None` of a flat one.
    fn list_ordinary(&self, caller: Caller, inode: &Inode) -> Result<Option<Listing>> {
        if self.flat(inode)?.is_some() {
            return Ok(None);
        }
        let listed = match list(inode) {
            Err(Errno::ACCESS) => as_caller(caller, || list(inode)),
            other => other,
        };
        match listed {
            Err(Errno::OPNOTSUPP) => {
                // It has a map: it became flat a moment ago.
                self.is_not_as_believed(inode);
                Ok(None)
            }
            other => {
                let mut listing = other?;
                self.list_pack(inode, &mut listing)?;
                Ok(Some(listing))
            }
        }
    }

    /// A name found by readdir, looked up; `None` if it has gone since. An error: nobody can tell
    /// now what it is.
    pub fn look_up_entry(&self, parent: &Arc<Inode>, entry: Entry) -> Result<Option<FileAttr>> {
        match self.look_up_in(parent, entry.name) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// Whether the file has two links, so that it may be about to lose the last that programs see.
#[allow(clippy::unnecessary_cast)]
fn before_last(stat: Option<&Stat>) -> bool {
    stat.is_some_and(|stat| stat.st_nlink as u64 == 2)
}

/// Removes the layout of a directory that has nothing else in it: it is empty to programs.
fn remove_layout(dir: impl AsFd, name: &OsStr) -> Result<()> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, how, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?.file_name().to_owned();
        match entry.to_bytes() {
            b"." | b".." => {}
            bytes if is_layout(OsStr::from_bytes(bytes)) => names.push(entry),
            _ => return Err(Errno::NOTEMPTY),
        }
    }
    names.iter().try_for_each(|name| rustix::fs::unlinkat(&fd, name, AtFlags::empty()))
}

/// The name, if programs may use it.
fn visible(name: &OsStr) -> Result<&OsStr> {
    if is_hidden(name) { Err(Errno::NOENT) } else { Ok(name) }
}

fn creatable(name: &OsStr) -> Result<&OsStr> {
    if is_hidden(name) { Err(Errno::PERM) } else { Ok(name) }
}

/// What a directory says of a file that is made in it.
pub(super) struct NewFile {
    pub(super) gid: u32,
    pub(super) mode: u32,
    /// An access list, if the mode does not express it.
    pub(super) list: Option<Vec<u8>>,
}

/// Of a file that the engine makes for the caller, with a mode that a program asked for: the
/// directory's group, if it has the set-group-ID bit, and its list for new files, instead of the
/// umask. A backend does the same for what it creates itself.
pub(super) fn new_file(caller: Caller, parent: &Inode, mode: u32, umask: u32) -> Result<NewFile> {
    let (dir, mode) = (dir_of(parent)?, mode & 0o7777);
    let stat = rustix::fs::fstat(dir)?;
    let gid = if stat.st_mode & SET_GROUP_ID != 0 { stat.st_gid } else { caller.gid };
    let (mode, list) = acl::of_new_file(dir, mode).unwrap_or((mode & !umask, None));
    Ok(NewFile { gid, mode, list })
}

/// All names in a directory that programs should see.
fn list(inode: &Inode) -> Result<Listing> {
    let open = |how: OFlags| {
        rustix::fs::open(
            magic(dir_of(inode)?),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | how,
            Mode::empty(),
        )
    };
    let fd = open(OFlags::empty())?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut raw = RawDir::new(fd.as_fd() as BorrowedFd<'_>, buffer.spare_capacity_mut());
    let mut listing = Listing::default();
    while let Some(entry) = raw.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            entry => entry?,
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_map(name) {
            // The map of a flat directory, whose names are elsewhere.
            return Err(Errno::OPNOTSUPP);
        }
        if is_hidden(name) {
            continue;
        }
        let kind = match entry.file_type() {
            rustix::fs::FileType::Unknown => type_of(
                rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(0, |stat| stat.st_mode),
            ),
            kind => type_of(kind.as_raw_mode()),
        };
        listing.push(Entry { name, ino: entry.ino(), kind });
    }
    Ok(listing)
}

/// The attributes of a name that are known without a stat.
pub fn bare_attr(entry: Entry) -> FileAttr {
    FileAttr {
        ino: INodeNo(entry.ino.max(1)),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: entry.kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}
