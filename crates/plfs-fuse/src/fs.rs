//! What each request does, by inode and handle; of FUSE only the types of attributes are used. The
//! kernel checks permissions before (default_permissions); what changes the tree is still done as
//! the caller, so that the caller owns new files, and backends that check permissions themselves
//! agree.

mod attributes;
mod contended;
mod files;
mod flat;
mod names;
mod small;

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use fuser::{BackingId, FileType};
use plfs_core::store::{BEHIND_STANDARD, Errno, PosixStore, Store, StoreFile, Time, stat_of};
use plfs_core::{Access, File, Plfs, may_be_logical};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};

use crate::creds::{Acting, Caller, as_caller, as_caller_with_groups};
use crate::inode::{Birth, Inode, Inodes, Name, OpenState, ROOT_ID, lock};
use crate::store::{MountStore, Root, root_of};

pub use names::bare_attr;

/// What a request gives: the errno goes to the kernel as it is.
pub type Result<T> = std::result::Result<T, Errno>;

/// Preferred size of I/O on logical files, as the other doors say: 1 MiB, the largest request.
const BLOCK_BYTES: u32 = 1 << 20;
/// Bytes that one copy_file_range moves at most: a request should not hold a worker for long.
const COPY_MAX_BYTES: u64 = 16 << 20;
/// Longer paths are taken from an open directory: the way through the backend's descriptor is
/// longer than the backend's path, and the system takes 4,095 bytes.
const PATH_BYTES_MAX: usize = 3900;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// How a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Each call of the program is a request.
    Direct,
    /// The kernel caches; it must drop what it has.
    Fresh,
    /// The kernel caches; what it has is still valid.
    Keep,
}

/// What the kernel does by itself with an open file, without a request for each call.
#[derive(Debug)]
pub enum Passthrough {
    /// Nothing.
    None,
    /// It may read this plain file, if nothing else is open.
    Begins(Arc<Inode>, Arc<dyn StoreFile>),
    /// It does already for other handles, so it must know the same of this one. [`Cache::Direct`]
    /// says that this handle's calls are requests all the same.
    GoesOn(Arc<BackingId>),
}

/// One open file or directory.
#[derive(Debug)]
pub enum Handle {
    /// A regular file, which the engine reads and writes: in place as long as it is plain.
    File {
        /// Where the bytes are.
        file: Arc<File>,
        /// What was opened.
        inode: Arc<Inode>,
        /// May write.
        writes: bool,
        /// Capabilities of the file were looked for since it was opened.
        stripped: AtomicBool,
    },
    /// A directory, and what was in it at the last rewind.
    Dir {
        /// What was opened.
        inode: Arc<Inode>,
        /// Names.
        entries: Mutex<Listing>,
    },
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a OsStr,
    /// Its number on the backend.
    pub ino: u64,
    /// What it is.
    pub kind: FileType,
}

/// The names in a directory, one behind the other: a large directory's take a few allocations, not
/// one each.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    /// Where each name ends, and the rest of its [`Entry`].
    rest: Vec<(usize, u64, FileType)>,
}

impl Listing {
    fn push(&mut self, entry: Entry) {
        self.names.extend_from_slice(entry.name.as_bytes());
        self.rest.push((self.names.len(), entry.ino, entry.kind));
    }

    /// The entries from the `first` on, each with its position.
    fn entries(&self, first: usize) -> impl Iterator<Item = (usize, Entry<'_>)> {
        let mut start = first
            .checked_sub(1)
            .and_then(|before| self.rest.get(before))
            .map_or(0, |(end, ..)| *end);
        self.rest.iter().enumerate().skip(first).map(move |(at, (end, ino, kind))| {
            let name = OsStr::from_bytes(&self.names[std::mem::replace(&mut start, *end)..*end]);
            (at, Entry { name, ino: *ino, kind: *kind })
        })
    }
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
    /// The file has another size than the kernel was told, so it must ask again.
    pub resized: bool,
    /// What the kernel does by itself.
    pub kernel: Passthrough,
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
    /// How many of them, from the first on, new containers are spread over.
    given: usize,
    /// How long the kernel may believe names and attributes.
    pub ttl: Duration,
    /// The first backend is a file system of this machine.
    pub local: bool,
    /// The backends can take files.
    prepared: AtomicBool,
    /// What the kernel knows.
    pub inodes: Inodes,
    handles: Vec<RwLock<HashMap<u64, Arc<Handle>>>>,
    next_handle: AtomicU64,
    contended: Mutex<Vec<contended::Contended>>,
    packs: small::Numbers,
    /// Open handles.
    pub open_handles: AtomicU64,
}

/// Turns an engine's error into its errno. Errors that the caller cannot have caused are logged
/// with the file.
pub fn errno_of(error: plfs_core::Error) -> Errno {
    let errno = error.errno();
    match errno {
        Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::OPNOTSUPP | Errno::ROFS => {
            log::error!("{error}")
        }
        // The kernel repeats an open that fails so, with a new lookup.
        Errno::STALE => log::warn!("{error}"),
        _ => log::debug!("{error}"),
    }
    errno
}

/// When what is at a path was made, or the descriptor's file if the path is empty, as far as the
/// backend says; nothing unless it has this key.
fn birth_at(dir: impl AsFd, path: &Path, key: (u64, u64)) -> Birth {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(dir, path, how, StatxFlags::BTIME | StatxFlags::INO).ok()?;
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let is_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0 && (dev, stat.stx_ino) == key;
    is_known.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

fn magic(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

fn dir_of(inode: &Inode) -> Result<&OwnedFd> {
    inode.dir.as_ref().ok_or(Errno::NOTDIR)
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

// The types of the fields differ from architecture to architecture.
#[allow(clippy::unnecessary_cast)]
fn key_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

fn may_be_name(stat: &Stat) -> bool {
    may_be_logical(&stat_of(stat))
}

const READ_WRITE: Access = Access { read: true, write: true };

impl Door {
    /// The file system of the first of these directories. Data of new files is spread over all of
    /// them; the `others` may have names of flat directories.
    pub fn new(
        roots: Vec<Root>,
        others: Vec<Root>,
        mut config: plfs_core::Config,
        ttl: Duration,
    ) -> Result<Door> {
        let given = roots.len();
        let roots: Arc<[Arc<Root>]> = roots.into_iter().chain(others).map(Arc::new).collect();
        let root = roots.first().ok_or(Errno::INVAL)?.clone();
        config.mounts = vec![root.path.clone()];
        // Its backends are those that it was given.
        config.managed.clear();
        config.backends = roots[1..given].iter().map(|root| root.path.clone()).collect();
        let stat = rustix::fs::fstat(root.fd())?;
        let own = rustix::io::fcntl_dupfd_cloexec(root.fd(), 0)?;
        let store: Arc<dyn Store> = Arc::new(MountStore::new(roots.clone()));
        let local = store.is_local(&root.path);
        Ok(Door {
            plfs: Plfs::new(store, config),
            inodes: Inodes::new(key_of(&stat), own),
            root,
            roots,
            given,
            ttl,
            local,
            prepared: AtomicBool::new(false),
            handles: (0..64).map(|_| RwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            contended: Mutex::default(),
            packs: small::Numbers::default(),
            open_handles: AtomicU64::new(0),
        })
    }

    /// Makes the backends ready for new files: once, by the daemon, because the users of a mount
    /// need not have the right. A mount that begins read-only does it when it is remounted and the
    /// first file comes.
    pub fn prepare(&self) -> std::result::Result<(), (Errno, String)> {
        if !self.prepared.load(Ordering::Relaxed) {
            let _acting = Acting::as_daemon();
            let given = self.roots[..self.given].iter().cloned().collect();
            crate::store::prepare(self.plfs.config(), &given)?;
            self.prepared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    // Inodes and handles

    pub(crate) fn inode(&self, id: u64) -> Result<Arc<Inode>> {
        self.inodes.get(id).ok_or(Errno::STALE)
    }

    fn handle(&self, fh: u64) -> Result<Arc<Handle>> {
        self.handles[fh as usize % 64]
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&fh)
            .cloned()
            .ok_or(Errno::BADF)
    }

    fn add_handle(&self, handle: Handle) -> u64 {
        let fh = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles[fh as usize % 64]
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(fh, Arc::new(handle));
        self.open_handles.fetch_add(1, Ordering::Relaxed);
        fh
    }

    fn take_handle(&self, fh: u64) -> Option<Arc<Handle>> {
        let handle = self.handles[fh as usize % 64]
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&fh)?;
        self.open_handles.fetch_sub(1, Ordering::Relaxed);
        Some(handle)
    }

    /// Where a name in a directory is now, for the engine.
    fn path_of(&self, dir: &Inode, name: &OsStr) -> Result<PathBuf> {
        match self.flat(dir)? {
            Some(flat) => self.plfs.place_in(&flat, name).map_err(errno_of),
            None => self.path_below(dir, name),
        }
    }

    /// [`Door::path_of`] of what lies in the directory itself.
    fn path_below(&self, dir: &Inode, name: &OsStr) -> Result<PathBuf> {
        if dir.id == ROOT_ID {
            return Ok(self.root.path.join(name));
        }
        let fd = dir_of(dir)?;
        let path = rustix::fs::readlink(magic(fd), Vec::new())
            .map(|text| PathBuf::from(OsString::from_vec(text.into_bytes())).join(name));
        match path {
            Ok(path) if path.as_os_str().len() <= PATH_BYTES_MAX => Ok(path),
            _ => Ok(self.root.by_fd(fd, name)),
        }
    }

    /// A descriptor of the file that allows nothing but to name it.
    fn find(&self, inode: &Inode, open: &OpenState) -> Result<Found> {
        let plain = open.file.as_ref().and_then(|file| file.plain_file());
        let opened = match (&open.path_fd, plain.as_ref().and_then(|file| file.fd())) {
            (Some(fd), _) => Some(fd.clone()),
            (None, Some(fd)) => {
                Some(Arc::new(rustix::io::fcntl_dupfd_cloexec(fd, BEHIND_STANDARD)?))
            }
            (None, None) => None,
        };
        if let Some(fd) = opened {
            let stat = rustix::fs::fstat(&*fd)?;
            return Ok(Found { fd, stat, name: self.name_of(inode)?.map(|(name, _)| name) });
        }
        for name in inode.names() {
            let found = self.at_place(&name.parent, &name.name, |place| {
                rustix::fs::openat(
                    place.dir,
                    &*place.path,
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )
            });
            if let Ok(fd) = found {
                let stat = rustix::fs::fstat(&fd)?;
                if key_of(&stat) == inode.key() {
                    return Ok(Found { fd: Arc::new(fd), stat, name: Some(name) });
                }
            }
            inode.remove_name(name.parent.id, &name.name);
        }
        Err(Errno::STALE)
    }

    /// A name that leads to the file at this moment, and the file's stat; `None` if none of those
    /// that it was found by does. One call, as a rule.
    fn name_of(&self, inode: &Inode) -> Result<Option<(Name, Stat)>> {
        for name in inode.names() {
            match self.stat_of_name(&name.parent, &name.name) {
                Ok(stat) if key_of(&stat) == inode.key() => return Ok(Some((name, stat))),
                _ => inode.remove_name(name.parent.id, &name.name),
            }
        }
        Ok(None)
    }

    /// Path of the file for the engine: by its name, else through its descriptor.
    fn engine_path(&self, found: &Found) -> Result<PathBuf> {
        match &found.name {
            Some(name) => self.path_of(&name.parent, &name.name),
            None => Ok(magic(&*found.fd)),
        }
    }

    /// A call of the engine as the caller; again with all groups if it is refused.
    fn as_caller_in_engine<T>(
        &self,
        caller: Caller,
        groups: bool,
        call: impl Fn() -> plfs_core::Result<T>,
    ) -> Result<T> {
        let run = || {
            call().map_err(|error| match error.errno() {
                refused @ (Errno::ACCESS | Errno::PERM) => refused,
                _ => errno_of(error),
            })
        };
        if groups { as_caller_with_groups(caller, run) } else { as_caller(caller, run) }
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

    /// Does something with a path that leads to the file itself; the second argument is whether it
    /// is a link of /proc to be followed. `call` must change nothing: the name of a file that is
    /// not open is used without a check for as long as the kernel caches it.
    pub(crate) fn ask<T>(&self, id: u64, call: impl Fn(&Path, bool) -> Result<T>) -> Result<T> {
        let inode = self.inode(id)?;
        if inode.is_packed() {
            return Err(Errno::OPNOTSUPP);
        }
        if let Some(name) = inode.believed_name(self.ttl)
            && !lock(&inode.open).is_open()
            && let Ok(path) = self.way_of_name(&name)
        {
            match call(&path, false) {
                Err(Errno::NOENT | Errno::STALE) => {}
                other => return other,
            }
        }
        let way = self.way(id)?;
        call(&way.path, way.follow)
    }

    /// A way to the file itself. Costs one stat for a file that is not open, one open for a PLFS
    /// file that is.
    pub(crate) fn way(&self, id: u64) -> Result<Way> {
        let inode = self.inode(id)?;
        if let Some(dir) = &inode.dir {
            return Ok(Way { path: magic(dir), follow: true, kept: None });
        }
        if inode.is_packed() {
            return Err(Errno::OPNOTSUPP);
        }
        let (file, fd) = {
            let open = lock(&inode.open);
            (open.file.clone(), open.path_fd.clone())
        };
        if let Some(file) = file.filter(|file| !file.is_packed()) {
            return self.way_to(&file);
        }
        if let Some(fd) = fd {
            return Ok(Way { path: magic(&*fd), follow: true, kept: Some(Box::new(fd)) });
        }
        let (name, _) = self.name_of(&inode)?.ok_or(Errno::STALE)?;
        Ok(Way { path: self.way_of_name(&name)?, follow: false, kept: None })
    }

    /// The logical file of an inode, opened if it is not.
    pub(crate) fn logical(&self, id: u64) -> Result<Option<Arc<File>>> {
        let inode = self.inode(id)?;
        if inode.kind != FileType::RegularFile || inode.is_packed() {
            return Ok(None);
        }
        let open = lock(&inode.open);
        match &open.file {
            Some(file) => Ok(Some(file.clone())),
            None => Ok(self.adopt(&self.find(&inode, &open)?)?.map(Arc::new)),
        }
    }

    /// A way to the inode of an open file, which may have no name. One with a container has it
    /// there, where the file's owner can put links: none is followed.
    fn way_to(&self, file: &File) -> Result<Way> {
        let plain = file.plain_file();
        if let Some(path) = plain.as_ref().and_then(|plain| plain.fd()).map(magic) {
            return Ok(Way { path, follow: true, kept: Some(Box::new(plain)) });
        }
        let path = file.container().ok_or(Errno::STALE)?.inode_path();
        let open = |root: &OwnedFd, inside: &Path| {
            PosixStore::new().open_beneath(root.as_fd(), inside, OFlags::PATH)
        };
        let fd = match root_of(&self.roots, &path) {
            Some(root) => {
                open(root.fd(), path.strip_prefix(&root.path).map_err(|_| Errno::STALE)?)?
            }
            // Of a flat directory's file on a backend that the mount has not been given.
            None => {
                let own = |dir: &&Path| dir.file_name().is_some_and(|name| name == ".plfs");
                let root = path.ancestors().find(own).and_then(Path::parent);
                let root = root.ok_or(Errno::STALE)?;
                let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let fd = rustix::fs::open(root, how, Mode::empty())?;
                open(&fd, path.strip_prefix(root).map_err(|_| Errno::STALE)?)?
            }
        };
        Ok(Way { path: magic(&fd), follow: true, kept: Some(Box::new(fd)) })
    }

    /// Ends: everything is committed and closed.
    pub fn end(&self) {
        self.keep_nothing();
        if let Err(error) = self.plfs.exit() {
            errno_of(error);
        }
    }
}

/// A file that was found, and the name by which.
struct Found {
    fd: Arc<OwnedFd>,
    stat: Stat,
    name: Option<Name>,
}

/// A path that leads to a file.
pub(crate) struct Way {
    pub path: PathBuf,
    /// Whether the path is a link of /proc, to be followed.
    pub follow: bool,
    /// What the link of /proc leads to, as long as it is open.
    #[allow(dead_code)]
    kept: Option<Box<dyn Any>>,
}
