//! The door without FUSE: what each request does, by inode and handle. The kernel checks permissions before (default_permissions); what changes the tree is done as the caller
//! all the same, so that new files are the caller's and backends that check on their own agree.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use plfs_core::store::{Errno, PosixFile, Store, Time, stat_of};
use plfs_core::{Access, File, OpenOptions, Plfs, SUPERBLOCK_BYTES, is_hidden};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use crate::acl;
use crate::creds::{Acting, Caller, as_caller, as_caller_with_groups};
use crate::inode::{Inode, Inodes, OpenState, ROOT_ID, Version, lock};
use crate::store::{MountStore, Root};

/// What a request gives: the errno goes to the kernel as it is.
pub type Result<T> = std::result::Result<T, Errno>;

/// Preferred size of I/O on logical files, as the other doors say: 1 MiB, the largest request.
const BLOCK_BYTES: u32 = 1 << 20;
/// Bytes that one copy_file_range moves at most: a request should not hold a worker for long.
const COPY_MAX_BYTES: u64 = 16 << 20;
/// Longer paths are taken from an open directory: the way through the backend's descriptor is longer than the backend's path, and the system takes 4,095 bytes.
const PATH_BYTES_MAX: usize = 3900;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// How a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Each call of the program is a request.
    Direct,
    /// The kernel caches; what it has is old.
    Fresh,
    /// The kernel caches; what it has is still right.
    Keep,
    /// A plain file: the kernel may read and write it by itself.
    Plain,
}

/// One open file or directory.
#[derive(Debug)]
pub enum Handle {
    /// A logical file.
    Logical {
        /// Where the bytes are.
        file: Arc<File>,
        /// What was opened.
        inode: Arc<Inode>,
        /// May write.
        writes: bool,
        /// Capabilities of the file were looked for since it was opened.
        stripped: AtomicBool,
    },
    /// Any other regular file.
    Plain {
        /// Opened as asked.
        fd: Arc<OwnedFd>,
        /// What was opened.
        inode: Arc<Inode>,
        /// May write.
        writes: bool,
    },
    /// A directory, and what was in it at the last rewind.
    Dir {
        /// What was opened.
        inode: Arc<Inode>,
        /// Names.
        entries: Mutex<Vec<Entry>>,
    },
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// Its number on the backend.
    pub ino: u64,
    /// What it is.
    pub kind: FileType,
}

/// What to change of a file; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<When>,
    /// Modification time.
    pub mtime: Option<When>,
}

/// A time to set.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// The clock's.
    Now,
    /// This one.
    At(Time),
}

/// A new open handle.
#[derive(Debug)]
pub struct Opened {
    /// Its number.
    pub fh: u64,
    /// How the kernel may cache.
    pub cache: Cache,
    /// The plain file that the kernel may use by itself.
    pub plain: Option<(Arc<Inode>, Arc<OwnedFd>)>,
}

/// The file system of one mount.
#[derive(Debug)]
pub struct Door {
    /// The engine.
    pub plfs: Plfs,
    /// The backend directory that is shown.
    pub root: Arc<Root>,
    /// All backends; the first is the one above.
    roots: Arc<[Arc<Root>]>,
    /// The backends can take files.
    prepared: AtomicBool,
    /// What the kernel knows.
    pub inodes: Inodes,
    handles: Vec<RwLock<HashMap<u64, Arc<Handle>>>>,
    next_handle: AtomicU64,
    /// Open handles.
    pub open_handles: AtomicU64,
}

/// Turns an engine's error into its errno; what a user cannot have caused is logged with its file.
pub fn errno_of(error: plfs_core::Error) -> Errno {
    let errno = error.errno();
    match errno {
        Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::STALE | Errno::OPNOTSUPP | Errno::ROFS => log::error!("{error}"),
        _ => log::debug!("{error}"),
    }
    errno
}

fn magic(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

fn dir_of(inode: &Inode) -> Result<&OwnedFd> {
    inode.dir.as_ref().ok_or(Errno::NOTDIR)
}

/// The name, if programs may use it.
fn visible(name: &OsStr) -> Result<&OsStr> {
    if is_hidden(name) { Err(Errno::NOENT) } else { Ok(name) }
}

fn creatable(name: &OsStr) -> Result<&OsStr> {
    if is_hidden(name) { Err(Errno::PERM) } else { Ok(name) }
}

fn type_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn system_time(sec: i64, nsec: u32) -> SystemTime {
    let whole = Duration::from_secs(sec.unsigned_abs());
    let base = if sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nsec.into()))).unwrap_or(UNIX_EPOCH)
}

// The types of the fields differ from architecture to architecture.
#[allow(clippy::unnecessary_cast)]
fn key_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[allow(clippy::unnecessary_cast)]
fn attr_of(id: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: system_time(stat.st_atime as i64, stat.st_atime_nsec as u32),
        mtime: system_time(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        ctime: system_time(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        crtime: UNIX_EPOCH,
        kind: type_of(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn logical_attr(id: u64, stat: &plfs_core::store::Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(id),
        size: stat.len,
        blocks: stat.blocks,
        atime: system_time(stat.atime.sec, stat.atime.nsec),
        mtime: system_time(stat.mtime.sec, stat.mtime.nsec),
        ctime: system_time(stat.ctime.sec, stat.ctime.nsec),
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink as u32,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn may_be_name(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_size == SUPERBLOCK_BYTES as i64
}

const READ_WRITE: Access = Access { read: true, write: true };

impl Door {
    /// The file system of the first of these directories. Data of new files is spread over all.
    pub fn new(roots: Vec<Root>, mut config: plfs_core::Config) -> Result<Door> {
        let roots: Arc<[Arc<Root>]> = roots.into_iter().map(Arc::new).collect();
        let root = roots.first().ok_or(Errno::INVAL)?.clone();
        config.mounts = vec![root.path.clone()];
        config.backends = roots[1..].iter().map(|root| root.path.clone()).collect();
        let stat = rustix::fs::fstat(root.fd())?;
        let own = rustix::io::fcntl_dupfd_cloexec(root.fd(), 0)?;
        let store: Arc<dyn Store> = Arc::new(MountStore::new(roots.clone()));
        Ok(Door {
            plfs: Plfs::new(store, config),
            inodes: Inodes::new(key_of(&stat), own),
            root,
            roots,
            prepared: AtomicBool::new(false),
            handles: (0..64).map(|_| RwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            open_handles: AtomicU64::new(0),
        })
    }

    /// Makes the backends ready for new files: once, by the daemon, because the users of a mount need not have the right. A mount that begins read-only does it when it is
    /// remounted and the first file comes.
    pub fn prepare(&self) -> std::result::Result<(), (Errno, String)> {
        if !self.prepared.load(Ordering::Relaxed) {
            let _acting = Acting::as_daemon();
            crate::store::prepare(&self.roots)?;
            self.prepared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    // Inodes and handles

    fn inode(&self, id: u64) -> Result<Arc<Inode>> {
        self.inodes.get(id).ok_or(Errno::STALE)
    }

    fn handle(&self, fh: u64) -> Result<Arc<Handle>> {
        self.handles[fh as usize % 64].read().unwrap_or_else(PoisonError::into_inner).get(&fh).cloned().ok_or(Errno::BADF)
    }

    fn add_handle(&self, handle: Handle) -> u64 {
        let fh = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles[fh as usize % 64].write().unwrap_or_else(PoisonError::into_inner).insert(fh, Arc::new(handle));
        self.open_handles.fetch_add(1, Ordering::Relaxed);
        fh
    }

    fn take_handle(&self, fh: u64) -> Option<Arc<Handle>> {
        let handle = self.handles[fh as usize % 64].write().unwrap_or_else(PoisonError::into_inner).remove(&fh)?;
        self.open_handles.fetch_sub(1, Ordering::Relaxed);
        Some(handle)
    }

    /// Where a name in a directory is now, for the engine.
    fn path_of(&self, dir: &Inode, name: &OsStr) -> Result<PathBuf> {
        if dir.id == ROOT_ID {
            return Ok(self.root.path.join(name));
        }
        let fd = dir_of(dir)?;
        let path = rustix::fs::readlink(magic(fd), Vec::new()).map(|text| PathBuf::from(OsString::from_vec(text.into_bytes())).join(name));
        match path {
            Ok(path) if path.as_os_str().len() <= PATH_BYTES_MAX => Ok(path),
            _ => Ok(self.root.by_fd(fd, name)),
        }
    }

    /// A descriptor of the file that allows nothing but to name it.
    fn find(&self, inode: &Inode, open: &OpenState) -> Result<Found> {
        if let Some(fd) = &open.path_fd {
            return Ok(Found { fd: fd.clone(), name: inode.names().first().cloned() });
        }
        for name in inode.names() {
            let found = rustix::fs::openat(dir_of(&name.parent)?, &name.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            if let Ok(fd) = found
                && key_of(&rustix::fs::fstat(&fd)?) == inode.key
            {
                return Ok(Found { fd: Arc::new(fd), name: Some(name) });
            }
            inode.remove_name(name.parent.id, &name.name);
        }
        Err(Errno::STALE)
    }

    /// Path of the file for the engine: by its name, else through its descriptor.
    fn engine_path(&self, found: &Found) -> Result<PathBuf> {
        match &found.name {
            Some(name) => self.path_of(&name.parent, &name.name),
            None => Ok(magic(&*found.fd)),
        }
    }

    // Names

    /// What `name` in the directory is; counts as a lookup.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        self.look_up_in(&parent, visible(name)?)
    }

    fn look_up_in(&self, parent: &Arc<Inode>, name: &OsStr) -> Result<FileAttr> {
        let dir = dir_of(parent)?;
        let mut stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut fd = None;
        if type_of(stat.st_mode) == FileType::Directory && self.inodes.find(key_of(&stat)).is_none() {
            let opened = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            stat = rustix::fs::fstat(&opened)?;
            fd = Some(opened);
        }
        let directory = type_of(stat.st_mode) == FileType::Directory;
        let inode = self.inodes.look_up(key_of(&stat), type_of(stat.st_mode), || match fd {
            // Forgotten since we looked.
            None if directory => Ok(Some(rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)),
            fd => Ok::<_, Errno>(fd),
        })?;
        inode.add_name(parent, name);
        let attr = self.attr(&inode, &stat, || self.path_of(parent, name));
        if attr.is_err() {
            self.inodes.forget(inode.id, 1);
        }
        attr
    }

    /// Attributes of a file with this stat; asks the engine if it can be a logical one.
    fn attr(&self, inode: &Inode, stat: &Stat, path: impl FnOnce() -> Result<PathBuf>) -> Result<FileAttr> {
        inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
        if !may_be_name(stat) {
            return Ok(attr_of(inode.id, stat));
        }
        let file = lock(&inode.open).file.clone();
        if let Some(file) = file {
            return Ok(logical_attr(inode.id, &file.stat().map_err(errno_of)?));
        }
        match self.plfs.resolve(&path()?, stat_of(stat)) {
            Ok(found) if found.totals.is_some() => Ok(logical_attr(inode.id, &found.stat)),
            Ok(_) => Ok(attr_of(inode.id, stat)),
            Err(error) => {
                // A name whose container is gone or damaged is listed and can be removed; opening it gives the error.
                errno_of(error);
                Ok(attr_of(inode.id, stat))
            }
        }
    }

    /// The kernel forgets `n` lookups.
    pub fn forget(&self, id: u64, n: u64) {
        self.inodes.forget(id, n);
    }

    /// Attributes of a file.
    pub fn getattr(&self, id: u64) -> Result<FileAttr> {
        let inode = self.inode(id)?;
        if let Some(dir) = &inode.dir {
            let stat = rustix::fs::fstat(dir)?;
            inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
            return Ok(attr_of(inode.id, &stat));
        }
        let (file, fd) = {
            let open = lock(&inode.open);
            (open.file.clone(), open.path_fd.clone())
        };
        if let Some(file) = file {
            let stat = file.stat().map_err(errno_of)?;
            inode.mode.store(stat.mode, Ordering::Relaxed);
            return Ok(logical_attr(inode.id, &stat));
        }
        if let Some(fd) = fd {
            return Ok(attr_of(inode.id, &rustix::fs::fstat(&*fd)?));
        }
        for name in inode.names() {
            match rustix::fs::statat(dir_of(&name.parent)?, &name.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if key_of(&stat) == inode.key => return self.attr(&inode, &stat, || self.path_of(&name.parent, &name.name)),
                _ => inode.remove_name(name.parent.id, &name.name),
            }
        }
        Err(Errno::STALE)
    }

    /// Changes attributes.
    pub fn setattr(&self, caller: Caller, id: u64, fh: Option<u64>, changes: Changes) -> Result<FileAttr> {
        let inode = self.inode(id)?;
        if let Some(size) = changes.size {
            self.set_size(caller, &inode, fh, size)?;
        }
        if changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() || changes.atime.is_some() || changes.mtime.is_some() {
            self.set_meta(caller, &inode, changes)?;
        }
        self.getattr(id)
    }

    fn set_size(&self, caller: Caller, inode: &Inode, fh: Option<u64>, size: u64) -> Result<()> {
        if inode.dir.is_some() {
            return Err(Errno::ISDIR);
        }
        if let Some(handle) = fh.and_then(|fh| self.handle(fh).ok())
            && let Handle::Plain { fd, .. } = &*handle
        {
            return rustix::fs::ftruncate(&**fd, size);
        }
        let open = lock(&inode.open);
        let file = match &open.file {
            Some(file) => file.clone(),
            None => {
                let found = self.find(inode, &open)?;
                match self.adopt(&found)? {
                    Some(file) => Arc::new(file),
                    None => {
                        let fd = as_caller(caller, || rustix::fs::open(magic(&*found.fd), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()))?;
                        return rustix::fs::ftruncate(fd, size);
                    }
                }
            }
        };
        file.set_len(size).map_err(errno_of)?;
        if caller.uid != 0 {
            self.strip(inode, &file);
        }
        drop(open);
        if let Some(file) = Arc::into_inner(file) {
            file.close().map_err(errno_of)?;
        }
        Ok(())
    }

    fn set_meta(&self, caller: Caller, inode: &Inode, changes: Changes) -> Result<()> {
        let open = lock(&inode.open);
        let found = match &inode.dir {
            Some(dir) => Found { fd: Arc::new(rustix::io::fcntl_dupfd_cloexec(dir, 0)?), name: None },
            None => match (&open.file, self.find(inode, &open)) {
                (_, Ok(found)) => found,
                // Without a name the container has all.
                (Some(file), Err(_)) => return self.set_meta_nameless(file, changes),
                (None, Err(errno)) => return Err(errno),
            },
        };
        let (by_fd, file) = (magic(&*found.fd), open.file.clone());
        let engine = match found.name {
            Some(_) if may_be_name(&rustix::fs::fstat(&*found.fd)?) => Some(self.engine_path(&found)?),
            _ => None,
        };
        if changes.uid.is_some() || changes.gid.is_some() {
            match &engine {
                Some(path) => self.as_caller_in_engine(caller, true, || self.plfs.chown(path, changes.uid, changes.gid, false))?,
                None => {
                    let (uid, gid) = (changes.uid.map(rustix::fs::Uid::from_raw), changes.gid.map(rustix::fs::Gid::from_raw));
                    as_caller(caller, || rustix::fs::chownat(CWD, &by_fd, uid, gid, AtFlags::empty()))?;
                }
            }
        }
        if let Some(mode) = changes.mode {
            let mode = mode & 0o7777;
            // Without the caller's groups the backend would take this bit away, silently.
            let groups = mode & SET_GROUP_ID != 0;
            match &engine {
                Some(path) => self.as_caller_in_engine(caller, groups, || self.plfs.chmod(path, mode))?,
                None if groups => as_caller_with_groups(caller, || rustix::fs::chmod(&by_fd, Mode::from_raw_mode(mode)))?,
                None => as_caller(caller, || rustix::fs::chmod(&by_fd, Mode::from_raw_mode(mode)))?,
            }
            inode.mode.store(mode, Ordering::Relaxed);
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            match &file {
                Some(file) => set_file_times(file, changes)?,
                None => {
                    let times = Timestamps { last_access: timespec(changes.atime), last_modification: timespec(changes.mtime) };
                    as_caller(caller, || rustix::fs::utimensat(CWD, &by_fd, &times, AtFlags::empty()))?;
                }
            }
        }
        Ok(())
    }

    fn set_meta_nameless(&self, file: &File, changes: Changes) -> Result<()> {
        if changes.uid.is_some() || changes.gid.is_some() {
            file.chown(changes.uid, changes.gid).map_err(errno_of)?;
        }
        if let Some(mode) = changes.mode {
            file.chmod(mode & 0o7777).map_err(errno_of)?;
        }
        set_file_times(file, changes)
    }

    /// A call of the engine as the caller; again with all groups if it is refused.
    fn as_caller_in_engine<T>(&self, caller: Caller, groups: bool, call: impl Fn() -> plfs_core::Result<T>) -> Result<T> {
        let run = || {
            call().map_err(|error| match error.errno() {
                refused @ (Errno::ACCESS | Errno::PERM) => refused,
                _ => errno_of(error),
            })
        };
        if groups { as_caller_with_groups(caller, run) } else { as_caller(caller, run) }
    }

    /// Takes set-user-ID and set-group-ID away from a file that somebody else than root wrote to.
    fn strip(&self, inode: &Inode, file: &File) {
        let mode = inode.mode.load(Ordering::Relaxed);
        let group = if mode & 0o010 != 0 { SET_GROUP_ID } else { 0 };
        if mode & (SET_USER_ID | group) != 0 {
            let mode = mode & !(SET_USER_ID | group);
            match file.chmod(mode) {
                Ok(()) => inode.mode.store(mode, Ordering::Relaxed),
                Err(error) => drop(errno_of(error)),
            }
        }
    }

    /// The text of a symbolic link.
    pub fn readlink(&self, id: u64) -> Result<Vec<u8>> {
        let inode = self.inode(id)?;
        let found = self.find(&inode, &OpenState::default())?;
        Ok(rustix::fs::readlinkat(&*found.fd, "", Vec::new())?.into_bytes())
    }

    /// Creates a logical file as the caller, with what its directory says: the group, if it has the set-group-ID bit, and the access list, instead of the umask.
    fn make(&self, caller: Caller, parent: &Inode, name: &OsStr, mode: u32, umask: u32) -> Result<File> {
        let dir = dir_of(parent)?;
        let stat = rustix::fs::fstat(dir)?;
        let gid = if stat.st_mode & SET_GROUP_ID != 0 { stat.st_gid } else { caller.gid };
        let (mode, list) = match acl::of_new_file(dir, mode & 0o7777) {
            Some((mode, list)) => (mode, list),
            None => (mode & 0o7777 & !umask, None),
        };
        let path = self.path_of(parent, creatable(name)?)?;
        self.prepare().map_err(|(errno, text)| {
            log::error!("{text}");
            errno
        })?;
        let options = OpenOptions { access: READ_WRITE, create: true, exclusive: true, truncate: false, mode };
        let file = self.as_caller_in_engine(Caller { gid, ..caller }, mode & SET_GROUP_ID != 0, || self.plfs.create(&path, options))?;
        if let Some(list) = list {
            let set = rustix::fs::setxattr(magic_super(&self.root, &file), acl::ACCESS, &list, rustix::fs::XattrFlags::empty());
            if let Err(errno) = set {
                log::warn!("{} does not get its directory's access list: {errno}", path.display());
            }
        }
        Ok(file)
    }

    /// The mode of something that the backend creates by itself, which knows of access lists.
    fn backend_mode(parent: &Inode, mode: u32, umask: u32) -> Result<Mode> {
        let mode = mode & 0o7777;
        Ok(Mode::from_raw_mode(if acl::has_default(dir_of(parent)?) { mode } else { mode & !umask }))
    }

    /// Creates a logical file and opens it. EEXIST if the name is taken.
    pub fn create(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32, umask: u32, flags: i32) -> Result<(FileAttr, Opened)> {
        let parent = self.inode(parent)?;
        let file = match self.make(caller, &parent, name, mode, umask) {
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
        let stat = file.stat().map_err(errno_of)?;
        let inode = self.inodes.look_up((stat.dev, stat.ino), FileType::RegularFile, || Ok::<_, Errno>(None))?;
        inode.add_name(&parent, name);
        inode.mode.store(stat.mode, Ordering::Relaxed);
        let file = Arc::new(file);
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut open = lock(&inode.open);
        open.file.get_or_insert_with(|| file.clone());
        open.handles += 1;
        open.writers += u32::from(writes);
        let cache = if open.writers > 0 { Cache::Direct } else { Cache::Fresh };
        drop(open);
        let fh = self.add_handle(Handle::Logical { file, inode: inode.clone(), writes, stripped: AtomicBool::new(false) });
        Ok((logical_attr(inode.id, &stat), Opened { fh, cache, plain: None }))
    }

    /// Makes a node: a logical file, a pipe, a socket, a device.
    pub fn mknod(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> Result<FileAttr> {
        let dir = self.inode(parent)?;
        creatable(name)?;
        let kind = mode & libc::S_IFMT;
        if kind == libc::S_IFREG || kind == 0 {
            self.make(caller, &dir, name, mode, umask)?.close().map_err(errno_of)?;
        } else {
            let (parent, mode) = (dir_of(&dir)?, Self::backend_mode(&dir, mode, umask)?);
            let kind = rustix::fs::FileType::from_raw_mode(kind);
            as_caller(caller, || rustix::fs::mknodat(parent, name, kind, mode, rdev.into()))?;
        }
        self.look_up_in(&dir, name)
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32, umask: u32) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        let (dir, mode) = (dir_of(&parent)?, Self::backend_mode(&parent, mode, umask)?);
        creatable(name)?;
        as_caller(caller, || rustix::fs::mkdirat(dir, name, mode))?;
        self.look_up_in(&parent, name)
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, caller: Caller, parent: u64, name: &OsStr, target: &Path) -> Result<FileAttr> {
        let parent = self.inode(parent)?;
        let dir = dir_of(&parent)?;
        creatable(name)?;
        as_caller(caller, || rustix::fs::symlinkat(target, dir, name))?;
        self.look_up_in(&parent, name)
    }

    /// Adds a name to a file.
    pub fn link(&self, caller: Caller, id: u64, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let (inode, parent) = (self.inode(id)?, self.inode(parent)?);
        let dir = dir_of(&parent)?;
        creatable(name)?;
        let found = self.find(&inode, &lock(&inode.open))?;
        let from = magic(&*found.fd);
        as_caller(caller, || rustix::fs::linkat(CWD, &from, dir, name, AtFlags::SYMLINK_FOLLOW))?;
        self.look_up_in(&parent, name)
    }

    /// Removes a name.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<()> {
        let parent = self.inode(parent)?;
        let dir = dir_of(&parent)?;
        let stat = rustix::fs::statat(dir, visible(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        // A name that cannot be understood can still be removed; what it leaves is garbage for `plfs check`.
        let container = match may_be_name(&stat) {
            true => self.plfs.container(&self.path_of(&parent, name)?).unwrap_or(None),
            false => None,
        };
        as_caller(caller, || rustix::fs::unlinkat(dir, name, AtFlags::empty()))?;
        let names = if container.is_some() { 2 } else { 1 };
        self.name_is_gone(&parent, name, &stat, names);
        // The name is gone: what cannot be removed is garbage, and no error of this call.
        if let Err(error) = self.plfs.drop_container(container) {
            log::warn!("what {} leaves must be removed by `plfs check --repair`: {error}", name.to_string_lossy());
        }
        Ok(())
    }

    fn name_is_gone(&self, parent: &Inode, name: &OsStr, stat: &Stat, last_links: u64) {
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
        let stat = rustix::fs::statat(dir, visible(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        as_caller(caller, || rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))?;
        self.name_is_gone(&parent, name, &stat, 0);
        Ok(())
    }

    /// Renames; with flags as renameat2(2).
    pub fn rename(&self, caller: Caller, parent: u64, name: &OsStr, new_parent: u64, new_name: &OsStr, flags: u32) -> Result<()> {
        let (from_dir, to_dir) = (self.inode(parent)?, self.inode(new_parent)?);
        let (from, to) = (dir_of(&from_dir)?, dir_of(&to_dir)?);
        visible(name)?;
        creatable(new_name)?;
        let flags = RenameFlags::from_bits_retain(flags);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let before = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let replaced = rustix::fs::statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let rename = || {
            as_caller(caller, || match flags.is_empty() {
                true => rustix::fs::renameat(from, name, to, new_name),
                false => rustix::fs::renameat_with(from, name, to, new_name, flags),
            })
        };
        if replaced.as_ref().is_some_and(may_be_name) && !exchange {
            let target = self.path_of(&to_dir, new_name)?;
            let io = |errno| plfs_core::Error::Io { op: "rename", path: target.clone(), errno };
            self.plfs.rename_with(&target, || rename().map_err(io)).map_err(errno_of)?;
        } else {
            rename()?;
        }
        if replaced.as_ref().map(key_of) == Some(key_of(&before)) {
            // Two names of one file: nothing happened.
            return Ok(());
        }
        if let Some(replaced) = &replaced
            && !exchange
        {
            self.name_is_gone(&to_dir, new_name, replaced, if may_be_name(replaced) { 2 } else { 1 });
        }
        if let Some(inode) = self.inodes.find(key_of(&before)) {
            inode.remove_name(from_dir.id, name);
            inode.add_name(&to_dir, new_name);
        }
        if let Some(inode) = replaced.filter(|_| exchange).and_then(|stat| self.inodes.find(key_of(&stat))) {
            inode.remove_name(to_dir.id, new_name);
            inode.add_name(&from_dir, name);
        }
        Ok(())
    }

    // Files

    /// The logical file behind a descriptor, open for all; `None` if it is another file. The kernel has asked who may what.
    fn adopt(&self, found: &Found) -> Result<Option<File>> {
        let stat = rustix::fs::fstat(&*found.fd)?;
        if !may_be_name(&stat) {
            return Ok(None);
        }
        // Only its owner and root may leave the time of access alone.
        let open = |flags| rustix::fs::open(magic(&*found.fd), OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
        let fd = open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?;
        let path = self.engine_path(found)?;
        self.plfs.adopt_known(&PosixFile::from_fd(fd), &path, &stat_of(&stat), READ_WRITE).map_err(errno_of)
    }

    /// Opens a file.
    pub fn open(&self, caller: Caller, id: u64, flags: i32) -> Result<Opened> {
        let inode = self.inode(id)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut open = lock(&inode.open);
        let found = match (&open.file, self.find(&inode, &open)) {
            (_, Ok(found)) => found,
            // Without a name, through /proc.
            (Some(file), Err(_)) => {
                let file = file.clone();
                return Ok(self.opened(&inode, open, file, writes));
            }
            (None, Err(errno)) => return Err(errno),
        };
        if let Some(file) = self.adopt(&found)? {
            return Ok(self.opened(&inode, open, Arc::new(file), writes));
        }
        let how = OFlags::from_bits_retain((flags & (libc::O_ACCMODE | libc::O_APPEND)) as u32) | OFlags::CLOEXEC;
        let fd = Arc::new(as_caller(caller, || rustix::fs::open(magic(&*found.fd), how - OFlags::APPEND, Mode::empty()))?);
        open.path_fd.get_or_insert_with(|| found.fd.clone());
        open.handles += 1;
        open.writers += u32::from(writes);
        drop(open);
        let fh = self.add_handle(Handle::Plain { fd, inode: inode.clone(), writes });
        // By the descriptor that has no access of its own the kernel opens again what the program opened.
        let backing = Acting::as_daemon();
        let readable = rustix::fs::open(magic(&*found.fd), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        drop(backing);
        Ok(Opened { fh, cache: Cache::Plain, plain: readable.ok().map(|fd| (inode, Arc::new(fd))) })
    }

    fn opened(&self, inode: &Arc<Inode>, mut open: MutexGuard<'_, OpenState>, file: Arc<File>, writes: bool) -> Opened {
        open.handles += 1;
        open.writers += u32::from(writes);
        open.file.get_or_insert_with(|| file.clone());
        let cache = if open.writers > 0 {
            open.seen = None;
            Cache::Direct
        } else {
            let version = version_of(&file);
            let same = version.is_some() && open.seen == version;
            open.seen = version;
            if same { Cache::Keep } else { Cache::Fresh }
        };
        drop(open);
        let fh = self.add_handle(Handle::Logical { file, inode: inode.clone(), writes, stripped: AtomicBool::new(false) });
        Opened { fh, cache, plain: None }
    }

    /// Reads into `buf`; fewer bytes at the end of the file.
    pub fn read(&self, fh: u64, buf: &mut [u8], offset: u64) -> Result<usize> {
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => file.read_at(buf, offset).map_err(errno_of),
            Handle::Plain { fd, .. } => {
                let mut done = 0;
                while done < buf.len() {
                    match rustix::io::retry_on_intr(|| rustix::io::pread(&**fd, &mut buf[done..], offset + done as u64)) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(errno) if done == 0 => return Err(errno),
                        Err(_) => break,
                    }
                }
                Ok(done)
            }
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// Writes at `offset`, or with `append` at the end. With `strip` the writer may not keep set-user-ID bits and capabilities.
    pub fn write(&self, fh: u64, bytes: &[u8], offset: u64, append: bool, strip: bool) -> Result<usize> {
        let handle = self.handle(fh)?;
        match &*handle {
            Handle::Logical { file, inode, stripped, .. } => {
                if strip {
                    self.strip(inode, file);
                    if !stripped.swap(true, Ordering::Relaxed) {
                        let _ = rustix::fs::removexattr(magic_super(&self.root, file), "security.capability");
                    }
                }
                let (mut at, mut done) = (offset, 0);
                if append {
                    let (begin, n) = file.append(bytes).map_err(errno_of)?;
                    (at, done) = (begin + n as u64, n);
                }
                while done < bytes.len() {
                    match file.write_at(&bytes[done..], at) {
                        Ok(0) => break,
                        Ok(n) => (at, done) = (at + n as u64, done + n),
                        Err(error) if done == 0 => return Err(errno_of(error)),
                        Err(error) => {
                            errno_of(error);
                            break;
                        }
                    }
                }
                Ok(done)
            }
            Handle::Plain { fd, .. } => rustix::io::retry_on_intr(|| rustix::io::pwrite(&**fd, bytes, offset)),
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// A descriptor was closed: what was written is visible everywhere.
    pub fn flush(&self, fh: u64) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::Logical { file, writes: true, .. } => {
                let committed = if self.plfs.config().sync_on_close { file.sync() } else { file.commit() };
                committed.map_err(errno_of)
            }
            _ => Ok(()),
        }
    }

    /// The last descriptor of a handle was closed.
    pub fn release(&self, fh: u64) {
        let Some(handle) = self.take_handle(fh) else { return };
        let (inode, writes) = match &*handle {
            Handle::Logical { inode, writes, .. } | Handle::Plain { inode, writes, .. } => (inode.clone(), *writes),
            Handle::Dir { .. } => return,
        };
        let file = match Arc::into_inner(handle) {
            Some(Handle::Logical { file, .. }) => Some(file),
            _ => None,
        };
        let mut open = lock(&inode.open);
        open.handles = open.handles.saturating_sub(1);
        open.writers = open.writers.saturating_sub(u32::from(writes));
        let mut last = Vec::from_iter(file);
        if open.handles == 0 {
            last.extend(open.file.take());
            (open.path_fd, open.backing) = (None, None);
        }
        // Still under the file's lock: who opens it next finds it closed.
        for file in last {
            if let Some(file) = Arc::into_inner(file)
                && let Err(error) = file.close()
            {
                errno_of(error);
            }
        }
    }

    /// Makes a file durable.
    pub fn fsync(&self, fh: u64, data_only: bool) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => file.sync().map_err(errno_of),
            Handle::Plain { fd, .. } if data_only => rustix::fs::fdatasync(&**fd),
            Handle::Plain { fd, .. } => rustix::fs::fsync(&**fd),
            Handle::Dir { inode, .. } => {
                let fd = rustix::fs::open(magic(dir_of(inode)?), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                match rustix::fs::fsync(fd) {
                    // A file system that does not know it has nothing to offer.
                    Err(Errno::INVAL) => Ok(()),
                    other => other,
                }
            }
        }
    }

    /// Reserves, zeroes or punches.
    pub fn fallocate(&self, fh: u64, offset: u64, length: u64, mode: i32) -> Result<()> {
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => {
                let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
                let known = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
                if !known.contains(flags) {
                    return Err(Errno::OPNOTSUPP);
                }
                if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
                    file.zero(offset, length).map_err(errno_of)?;
                }
                if !flags.contains(FallocateFlags::KEEP_SIZE) && file.len().map_err(errno_of)? < end {
                    file.set_len(end).map_err(errno_of)?;
                }
                Ok(())
            }
            Handle::Plain { fd, .. } => rustix::fs::fallocate(&**fd, flags, offset, length),
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// SEEK_DATA and SEEK_HOLE.
    pub fn lseek(&self, fh: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => {
                if from >= file.len().map_err(errno_of)? {
                    return Err(Errno::NXIO);
                }
                let found = match whence {
                    libc::SEEK_DATA => file.next_data(from).map_err(errno_of)?.ok_or(Errno::NXIO)?,
                    libc::SEEK_HOLE => file.next_hole(from).map_err(errno_of)?,
                    _ => return Err(Errno::INVAL),
                };
                i64::try_from(found).map_err(|_| Errno::OVERFLOW)
            }
            Handle::Plain { fd, .. } => {
                let at = match whence {
                    libc::SEEK_DATA => SeekFrom::Data(from),
                    libc::SEEK_HOLE => SeekFrom::Hole(from),
                    _ => return Err(Errno::INVAL),
                };
                rustix::fs::seek(&**fd, at).map(|found| found as i64)
            }
            Handle::Dir { .. } => Err(Errno::INVAL),
        }
    }

    /// Copies inside the mount; gives how many bytes, which may be fewer.
    pub fn copy(&self, from: u64, from_offset: u64, to: u64, to_offset: u64, length: u64) -> Result<usize> {
        let mut buf = vec![0; length.min(u64::from(BLOCK_BYTES)) as usize];
        let length = length.min(COPY_MAX_BYTES);
        let mut done = 0;
        while done < length {
            let want = (length - done).min(buf.len() as u64) as usize;
            let step = self.read(from, &mut buf[..want], from_offset + done).and_then(|n| match n {
                0 => Ok(0),
                n => self.write(to, &buf[..n], to_offset + done, false, false),
            });
            match step {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done as usize)
    }

    // Directories

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

    /// Calls `visit` with the names from position `offset` on, and the position behind each, until it says that it has no more room.
    pub fn readdir(&self, caller: Caller, fh: u64, offset: u64, mut visit: impl FnMut(&Arc<Inode>, &Entry, u64) -> bool) -> Result<()> {
        let handle = self.handle(fh)?;
        let Handle::Dir { inode, entries } = &*handle else { return Err(Errno::NOTDIR) };
        let mut entries = lock(entries);
        if offset == 0 {
            // Whether the caller may, was asked at the open; the rights may be gone since.
            *entries = match list(inode) {
                Err(Errno::ACCESS) => as_caller(caller, || list(inode))?,
                other => other?,
            };
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(from) {
            if !visit(inode, entry, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    /// A name found by readdir, looked up; `None` if it has gone since.
    pub fn look_up_entry(&self, parent: &Arc<Inode>, entry: &Entry) -> Option<FileAttr> {
        self.look_up_in(parent, &entry.name).ok()
    }

    /// Room on all backends: those on one file system count once.
    pub fn statfs(&self) -> Result<rustix::fs::StatVfs> {
        let mut sum = rustix::fs::fstatvfs(self.root.fd())?;
        let unit = sum.f_frsize.max(1);
        let mut counted = vec![key_of(&rustix::fs::fstat(self.root.fd())?).0];
        for root in &self.roots[1..] {
            let dev = key_of(&rustix::fs::fstat(root.fd())?).0;
            if counted.contains(&dev) {
                continue;
            }
            counted.push(dev);
            let room = rustix::fs::fstatvfs(root.fd())?;
            let blocks = |n: u64| n.saturating_mul(room.f_frsize) / unit;
            sum.f_blocks = sum.f_blocks.saturating_add(blocks(room.f_blocks));
            sum.f_bfree = sum.f_bfree.saturating_add(blocks(room.f_bfree));
            sum.f_bavail = sum.f_bavail.saturating_add(blocks(room.f_bavail));
            sum.f_files = sum.f_files.saturating_add(room.f_files);
            sum.f_ffree = sum.f_ffree.saturating_add(room.f_ffree);
        }
        Ok(sum)
    }

    /// A path that leads to the file itself, and whether it is a link of /proc to be followed. Costs one stat for a file that is not open.
    pub(crate) fn place(&self, id: u64) -> Result<(PathBuf, bool)> {
        let inode = self.inode(id)?;
        if let Some(dir) = &inode.dir {
            return Ok((magic(dir), true));
        }
        let (file, fd) = {
            let open = lock(&inode.open);
            (open.file.clone(), open.path_fd.clone())
        };
        if let Some(file) = file {
            return Ok((magic_super(&self.root, &file), false));
        }
        if let Some(fd) = fd {
            return Ok((magic(&*fd), true));
        }
        for name in inode.names() {
            let dir = dir_of(&name.parent)?;
            match rustix::fs::statat(dir, &name.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if key_of(&stat) == inode.key => return Ok((magic(dir).join(&name.name), false)),
                _ => inode.remove_name(name.parent.id, &name.name),
            }
        }
        Err(Errno::STALE)
    }

    /// The logical file of an inode, opened if it is not.
    pub(crate) fn logical(&self, id: u64) -> Result<Option<Arc<File>>> {
        let inode = self.inode(id)?;
        if inode.kind != FileType::RegularFile {
            return Ok(None);
        }
        let open = lock(&inode.open);
        match &open.file {
            Some(file) => Ok(Some(file.clone())),
            None => Ok(self.adopt(&self.find(&inode, &open)?)?.map(Arc::new)),
        }
    }

    /// After the access rules of a file were changed by an attribute: its container follows.
    pub(crate) fn follow_mode(&self, id: u64) -> Result<()> {
        let inode = self.inode(id)?;
        if inode.kind != FileType::RegularFile {
            return Ok(());
        }
        let found = self.find(&inode, &lock(&inode.open))?;
        let stat = rustix::fs::fstat(&*found.fd)?;
        inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
        match may_be_name(&stat) && found.name.is_some() {
            true => self.plfs.chmod(&self.engine_path(&found)?, stat.st_mode & 0o7777).map_err(errno_of),
            false => Ok(()),
        }
    }

    /// Ends: everything is committed and closed.
    pub fn end(&self) {
        if let Err(error) = self.plfs.exit() {
            errno_of(error);
        }
    }
}

/// A file that was found, and the name by which.
struct Found {
    fd: Arc<OwnedFd>,
    name: Option<crate::inode::Name>,
}

/// The superblock of a file that has no name.
fn magic_super(root: &Root, file: &File) -> PathBuf {
    let path = file.container().dir.join("super");
    match path.strip_prefix(&root.path) {
        Ok(rest) => magic(root.fd()).join(rest),
        Err(_) => path,
    }
}

fn version_of(file: &File) -> Option<Version> {
    let (stat, totals) = (file.stat().ok()?, file.totals().ok()?);
    Some(Version { size: stat.len, mtime: (stat.mtime.sec, stat.mtime.nsec), ctime: (stat.ctime.sec, stat.ctime.nsec), stamp: totals.max_hlc })
}

fn timespec(when: Option<When>) -> Timespec {
    match when {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(When::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(When::At(time)) => Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    }
}

fn set_file_times(file: &File, changes: Changes) -> Result<()> {
    if changes.atime.is_none() && changes.mtime.is_none() {
        return Ok(());
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let time = |when: Option<When>| {
        when.map(|when| match when {
            When::Now => Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 },
            When::At(time) => time,
        })
    };
    file.set_times(time(changes.atime), time(changes.mtime)).map_err(errno_of)
}

/// All names in a directory that programs should see.
fn list(inode: &Inode) -> Result<Vec<Entry>> {
    let open = |how: OFlags| rustix::fs::open(magic(dir_of(inode)?), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | how, Mode::empty());
    let fd = open(OFlags::empty())?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut raw = RawDir::new(fd.as_fd() as BorrowedFd<'_>, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            entry => entry?,
        };
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if is_hidden(&name) {
            continue;
        }
        let kind = match entry.file_type() {
            rustix::fs::FileType::Unknown => type_of(rustix::fs::statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_mode)),
            kind => type_of(kind.as_raw_mode()),
        };
        entries.push(Entry { name, ino: entry.ino(), kind });
    }
    Ok(entries)
}

/// What is known of a name without a stat.
pub fn bare_attr(entry: &Entry) -> FileAttr {
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
