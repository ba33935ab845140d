//! L1: the one narrow way to the outside world.
//!
//! A [`Store`] is a tree of files and directories named by absolute paths; a [`StoreFile`] is one
//! open file, read and written at offsets. Everything that PLFS keeps goes through these two
//! traits, so a store that forgets, fails or counts is just another implementation: [`PosixStore`]
//! is the real one; `plfs-testkit` has one in memory that can forget what was not synced, and one
//! that injects errors.
//!
//! Errors are plain errno values ([`Errno`]); the layers above add what was attempted and on which
//! path.

mod beneath;
mod file_cache;
mod history;
mod limit;
pub(crate) mod locked_memory;
mod lustre;
pub(crate) mod machine;
pub(crate) mod posix;
pub(crate) mod probe;
pub(crate) mod rates;
pub(crate) mod shm;
pub(crate) mod site;
mod targets;
pub(crate) mod writers;

pub use beneath::Kept;
pub(crate) use file_cache::CachedFile;
pub use history::{Latencies, Probe};
pub use limit::learn_size_limit;
pub(crate) use limit::size_limit;
pub use machine::{OpenDir, fd_path, own_proc, tell_umask};
pub use posix::{BEHIND_STANDARD, Passing, PosixFile, PosixStore, stat_of};
pub use site::{SiteRate, SiteRates, SiteRefused, read_site};
pub use targets::{Directories, PlainDirectory, StorageTarget, TARGET_MAX, TargetProvider};

use std::any::Any;
use std::ffi::OsString;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::sync::{self, Arc};

/// An error number as the operating system gives it.
pub type Errno = rustix::io::Errno;

/// What a store call gives.
pub type Result<T> = std::result::Result<T, Errno>;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Allow `read_at`.
    pub read: bool,
    /// Allow `write_at` and `set_len`.
    pub write: bool,
    /// Create the file if it is missing, with `mode` less the process's umask.
    pub create: bool,
    /// With `create`: fail with EEXIST if it exists.
    pub exclusive: bool,
    /// Permission bits for a created file.
    pub mode: u32,
    /// Which number its descriptor has.
    pub number: Number,
}

/// The number of a descriptor. The kernel gives the lowest, which the program counts on. To be
/// clear of its numbers costs two system calls, one of which closes the file under the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Number {
    /// A high one.
    #[default]
    High,
    /// The file is closed before the call returns that opens it: any. One for writing is high all
    /// the same.
    Brief,
    /// A high one, without a close of the file: the process has record locks on it, which it would
    /// lose. Dear.
    Unmoved,
}

impl Open {
    /// Read only.
    pub const READ: Open = Open {
        read: true,
        write: false,
        create: false,
        exclusive: false,
        mode: 0,
        number: Number::High,
    };
    /// Read and write, no creation.
    pub const READ_WRITE: Open = Open {
        read: true,
        write: true,
        create: false,
        exclusive: false,
        mode: 0,
        number: Number::High,
    };
    /// The same, for a file that is closed again soon.
    pub const fn briefly(self) -> Open {
        Open { number: Number::Brief, ..self }
    }
    /// The same, at its number from the start.
    pub const fn unmoved(self) -> Open {
        Open { number: Number::Unmoved, ..self }
    }
    /// Read and write a file that must not exist yet.
    pub const fn create_new(mode: u32) -> Open {
        Open { read: true, write: true, create: true, exclusive: true, mode, number: Number::High }
    }
    /// Read and write, created if missing.
    pub const fn create(mode: u32) -> Open {
        Open { read: true, write: true, create: true, exclusive: false, mode, number: Number::High }
    }
}

/// What kind of thing a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Pipe, socket or device.
    Other,
}

/// A point in time: seconds since 1970 UTC (may be negative) and nanoseconds (0 to 999,999,999).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub sec: i64,
    /// Nanoseconds past `sec`.
    pub nsec: u32,
}

impl Time {
    /// This machine's time.
    pub fn now() -> Time {
        if let Some(ns) = sync::time_of_run_ns() {
            return Time { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as u32 };
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
    }

    /// Nanoseconds since 1970.
    pub fn ns(self) -> i128 {
        i128::from(self.sec) * 1_000_000_000 + i128::from(self.nsec)
    }

    /// Whether a file that changed at this time has not changed for so long, a second, that what is
    /// found in it now may be remembered by it: whatever changes it later, or takes its inode, then
    /// has another time, even where the file system's clock ticks coarsely.
    pub fn is_long_past(self) -> bool {
        Time::now().ns() - self.ns() > 1_000_000_000
    }
}

/// What `stat` says of a file, directory or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device of the file system; different for two client mounts of one file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub len: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without `.` and `..`.
    pub name: OsString,
    /// Its kind, if the store knows it without a stat.
    pub kind: Option<Kind>,
    /// Its inode's number, which a mount point below hides; 0 if the store does not tell.
    pub ino: u64,
}

/// Room on a store, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size in bytes.
    pub total: u64,
    /// Bytes free for ordinary users.
    pub available: u64,
}

/// A directory in which others may plant links: a container, or the directory of all containers of
/// a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A directory above it that a user named. Its own path may lead over symbolic links.
    pub root: PathBuf,
    /// The directory, below `root`. No part of its path behind that may be a link, nor of what
    /// lies in it.
    pub dir: PathBuf,
}

/// Which descriptors a view of [`Place`]s keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None: it looks up each path from the root on.
    Nothing,
    /// One of each place's directory, from its first use on: for a view that does not outlive the
    /// call that makes it.
    WhenUsed,
    /// The same, and that of the first place at once: whatever is renamed above it from now on, its
    /// files are found. For a view that is kept.
    Now,
    /// The same, and the first one can carry a lock: [`Store::hold`]. For file systems where a
    /// directory is opened for reading as fast as it is looked up: local ones.
    ToHold,
    /// For a view of one place: as [`ToHold`](Keep::ToHold), but from the first use on. The
    /// directory has a file with this device and inode as its superblock, and the process has that
    /// file open by another name as long as the view lives. So the directory is known when it is
    /// found, also if one above it has been renamed by then.
    Later {
        /// Device of the superblock.
        dev: u64,
        /// Inode of the superblock.
        ino: u64,
    },
}

impl Keep {
    /// Whether the view outlives the call that makes it, with a descriptor of the first place.
    fn is_to_stay(self) -> bool {
        matches!(self, Keep::Now | Keep::ToHold | Keep::Later { .. })
    }

    /// Whether the first descriptor can carry a lock.
    fn is_to_hold(self) -> bool {
        matches!(self, Keep::ToHold | Keep::Later { .. })
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// The call is about what the link leads to.
    Follow,
    /// The call is about the link itself.
    Stay,
}

/// Which others a lock on a file keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Those who want it exclusively.
    Shared,
    /// All others.
    Exclusive,
}

/// What becomes of a file's size when room is reserved behind its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The file reaches to the end of the room.
    Grows,
    /// It is as it was (FALLOC_FL_KEEP_SIZE).
    Stays,
}

/// A tree of files. All paths are absolute; final symlinks are followed unless a call says
/// otherwise.
pub trait Store: Send + Sync + Debug {
    /// Opens a file. Descriptors are close-on-exec.
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>>;
    /// Stat of what `path` leads to; with [`Links::Stay`], of the link itself.
    fn stat(&self, path: &Path, links: Links) -> Result<Stat>;
    /// All names in a directory, in any order.
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;
    /// Gives the names in a directory one by one, in any order, until `visit` has seen enough. What
    /// is left is not read.
    fn visit(&self, path: &Path, visit: &mut dyn FnMut(&Entry) -> ControlFlow<()>) -> Result<()> {
        let _ = self.list(path)?.iter().try_for_each(visit);
        Ok(())
    }
    /// Makes an empty file with `mode`, less the process's umask, which has no place on the storage
    /// yet where that is told (mknod). EXIST if something is there.
    fn make_node(&self, path: &Path, mode: u32) -> Result<()> {
        self.open(path, Open::create_new(mode)).map(drop)
    }
    /// What of the storage of a directory can be slow by itself. Costs nothing if it was asked
    /// before.
    fn targets(&self, dir: &Path) -> Arc<dyn TargetProvider> {
        Arc::new(PlainDirectory::new(dir))
    }
    /// Makes a directory with `mode`, less the process's umask.
    fn mkdir(&self, path: &Path, mode: u32) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &Path) -> Result<()>;
    /// Removes a name; the file lives on while it has other names or is open.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Removes all names in a directory but those of directories and `but`, and gives those. A name
    /// that goes meanwhile is no error.
    fn unlink_files(&self, dir: &Path, but: &str) -> Result<Vec<Entry>> {
        let mut left = Vec::new();
        for entry in self.list(dir)? {
            // Not every file system says what a name is of.
            if entry.name == but || !matches!(entry.kind, Some(Kind::File | Kind::Symlink)) {
                left.push(entry);
                continue;
            }
            match self.unlink(&dir.join(&entry.name)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(left)
    }
    /// Moves a name, replacing `to` atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Adds a name for the file `from` (a final symlink is not followed). EEXIST if `to` exists,
    /// dangling symlinks included.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Adds a name for an open file, whatever names it has; it must have one. Errors as
    /// [`Store::link`]; ENOENT too if it has no name any more. EOPNOTSUPP: the store cannot.
    fn link_open(&self, file: &dyn StoreFile, to: &Path) -> Result<()> {
        let _ = (file, to);
        Err(Errno::OPNOTSUPP)
    }
    /// Makes a symbolic link at `path` with text `target`.
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;
    /// The text of a symbolic link.
    fn readlink(&self, path: &Path) -> Result<PathBuf>;
    /// What is at `path`, open for nothing: its [`stat`](StoreFile::stat), and its descriptor, by
    /// whose path in /proc the other calls are on it, whatever has the name. `None`: the store has
    /// no descriptors.
    fn reach(&self, path: &Path, links: Links) -> Result<Option<Arc<dyn StoreFile>>> {
        let _ = (path, links);
        Ok(None)
    }
    /// Sets permission bits.
    fn chmod(&self, path: &Path, mode: u32) -> Result<()>;
    /// Sets owner and group; `None` leaves one as it is.
    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()>;
    /// Sets access and modification time; `None` leaves one as it is.
    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()>;
    /// Makes the names in a directory durable (fsync of the directory).
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Room left where `path` lies.
    fn space(&self, path: &Path) -> Result<Space>;
    /// True if writes at `path` go to a page cache on this machine at memory speed (tmpfs, ext4,
    /// XFS, Btrfs …), false if each write may travel (network and FUSE file systems, which gain
    /// from larger writes).
    fn is_local(&self, path: &Path) -> bool;
    /// The type of the file system at `path`, if its clients believe for a time what they have
    /// cached of names, attributes and bytes, and see for certain only at an open what another
    /// client closed before (close-to-open, as NFS has it); or if nobody can tell. `None` if each
    /// call sees what every call did that returned before, on whatever client.
    fn close_to_open(&self, path: &Path) -> Option<String> {
        let _ = path;
        None
    }
    /// True if each open of a path asks the servers for the attributes of what it finds and leaves
    /// them with the kernel: right after it statx(2) with AT_STATX_DONT_SYNC gives them as they
    /// were during the open, and asks nobody.
    fn open_asks(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
    /// Which memory holds what was written at `path` and is not durable: the same number as long as
    /// nothing of that was lost with a machine's power, 0 if nobody knows. `None`: nothing at all
    /// outlasts that there (tmpfs).
    fn boot(&self, path: &Path) -> Option<u64>;
    /// This store, for places that others can write to as well. For each path from a place's first
    /// directory below its root on, no call follows a symbolic link, whichever part of the path it
    /// is, nor leaves the place: ELOOP. Calls that act on a last link itself (`stat` and `chown`
    /// with [`Links::Stay`], `set_times`, removals, renames) do so. Where a descriptor of a place's
    /// directory is kept, everything in it is looked up from that, and is found even if directories
    /// above it are renamed, and so is what lies beside it, up to the place's first directory below
    /// its root. No link is followed either on any other path through a directory called `.plfs`,
    /// as those of other backends. Other paths are as before.
    ///
    /// `None`: the store has no such view, and is used as it is. What it keeps links from then is
    /// up to it.
    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        let _ = (places, keep);
        None
    }
    /// The view that this is, with descriptors of its own. `None`: it is none, or is made anew as
    /// well by [`Store::inside`].
    fn again(&self, keep: Keep) -> Option<Arc<dyn Store>> {
        let _ = keep;
        None
    }
    /// For a view that keeps a descriptor [`ToHold`](Keep::ToHold): takes a shared lock on the
    /// directory of its first place, by that descriptor, without waiting. AGAIN if somebody has
    /// the directory alone.
    ///
    /// The lock lasts until the value is dropped, and longer if the process has forked since it was
    /// taken: until the child has dropped it, too.
    ///
    /// `None`: the store cannot, or the view has the lock already. Then lock a file of your own
    /// ([`StoreFile::try_lock`]), which costs a descriptor.
    fn hold(&self) -> Option<Result<Box<dyn Any + Send + Sync>>> {
        None
    }
    /// For a view that keeps a descriptor from [`Now`](Keep::Now) on: the directory of its first
    /// place, open for reading, by that same descriptor.
    ///
    /// `None`: the store cannot. Then [open](Store::open) it, which costs a descriptor.
    fn kept_dir(&self) -> Option<Result<Arc<dyn StoreFile>>> {
        None
    }
    /// The user whom files belong to that are made through this store.
    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
    /// For stores that serve several users: this store, acting as the owner of a logical file, on
    /// whatever thread. `None`: it acts as the process does.
    fn for_owner(&self, uid: u32, gid: u32) -> Option<Arc<dyn Store>> {
        let _ = (uid, gid);
        None
    }
    /// For what [`Store::for_owner`] gave: the owner has changed.
    fn owner_changed(&self, uid: Option<u32>, gid: Option<u32>) {
        let _ = (uid, gid);
    }
    /// While the value lives, this thread acts as the store does in all else, shared memory above
    /// all.
    fn act(&self) -> Box<dyn Any> {
        Box::new(())
    }
}

/// One open file. Reads and writes name their offset; there is no position.
pub trait StoreFile: Send + Sync + Debug {
    /// Reads into `buf` at `offset`; returns the bytes read, less than asked only at the end of the
    /// file (0 at or past it). Interrupted calls are repeated.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// [`StoreFile::read_at`] by one call, which may give fewer bytes than there are.
    fn read_once(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buf, offset)
    }
    /// Writes at `offset`; returns the bytes written, which may be fewer than given. Interrupted
    /// calls are repeated.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize>;
    /// Writes at the end of the file as it is at that moment, whoever writes there; returns the
    /// bytes written.
    fn append(&self, buf: &[u8]) -> Result<usize> {
        self.write_at(buf, self.stat()?.len)
    }
    /// Makes `[offset, offset + length)`, as far as the file reaches, zeros, and gives the room
    /// back if the store can.
    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length).min(self.stat()?.len);
        write_zeros(self, offset, end)
    }
    /// Reserves room for `[offset, offset + length)` if the store can; with [`Size::Grows`] the
    /// file reaches its end at least. Bytes stay as they are.
    fn allocate(&self, offset: u64, length: u64, size: Size) -> Result<()> {
        resize_only(self, offset, length, size)
    }
    /// Says what close(2) would say: network file systems report there that earlier writes did not
    /// reach the server (EDQUOT, ENOSPC, EIO). The file stays open.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    /// Stat of the open file.
    fn stat(&self) -> Result<Stat>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Makes the bytes and the length durable (fdatasync).
    fn sync_data(&self) -> Result<()>;
    /// Gives `[offset, offset + length)` to the storage, as far as the system has kept it; or waits
    /// until that has it. A hint, which stores that keep nothing need not know: nothing is durable
    /// by it. An error is perhaps one that no sync tells again.
    fn write_back(&self, offset: u64, length: u64, waits: bool) -> Result<()> {
        let _ = (offset, length, waits);
        Ok(())
    }
    /// Makes bytes, length, attributes and owner durable (fsync).
    fn sync_all(&self) -> Result<()> {
        self.sync_data()
    }
    /// The extended attribute `name`; `None` if the file has none of that name. EOPNOTSUPP: the
    /// store has no attributes.
    fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let _ = name;
        Err(Errno::OPNOTSUPP)
    }
    /// Sets an attribute that the file does not have: EEXIST if it has. Of several that try at
    /// once, on whatever machine, one does it.
    fn set_new_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        let _ = (name, value);
        Err(Errno::OPNOTSUPP)
    }
    /// Takes the file's gate, without waiting: Ok(false) if somebody has it, by this open file or
    /// another, on this machine or another. A lock on one byte behind all that a file can have, for
    /// writers; it ends with [`StoreFile::leave_gate`], or when the process or its machine dies.
    /// Meets neither [`StoreFile::try_lock`] nor what programs lock of their bytes.
    fn try_gate(&self) -> Result<bool> {
        Err(Errno::OPNOTSUPP)
    }
    /// Ends what [`StoreFile::try_gate`] began.
    fn leave_gate(&self) {}
    /// Takes a lock on the whole file, without waiting: Ok(false) if another holder is in the way.
    /// Released when the last descriptor of this open closes. Stores that cannot lock answer
    /// Ok(true).
    fn try_lock(&self, kind: LockKind) -> Result<bool>;
    /// Whether another open of the file is there, on this machine, in whatever process. True too if
    /// that cannot be found out, as by who is not its owner.
    fn is_open_elsewhere(&self) -> bool {
        true
    }
    /// Whether [`StoreFile::try_lock`] keeps out processes of other machines too, as far as this
    /// one can know.
    fn locks_are_shared(&self) -> bool {
        true
    }
    /// A read-only map of the whole file as it is now, or its bytes in memory. The file must never
    /// shrink or change below its current length while the map lives.
    fn map(&self) -> Result<Bytes>;
    /// Where data begins at or after `offset`; `None` if only a hole of the file follows. Bytes in
    /// between are zeros. A store that does not know its holes says `offset`.
    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(Some(offset))
    }
    /// Where a hole begins at or after `offset`; the end of the file is one. A store that does not
    /// know its holes says the end.
    fn next_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.stat()?.len.max(offset))
    }
    /// When the file was made, where the file system knows it.
    fn birth(&self) -> Option<Time> {
        None
    }
    /// The next read asks the storage, not this machine's page cache, which may have bytes from
    /// before another machine changed them. Best effort.
    fn forget_cached(&self) {}
    /// The descriptor behind it, if there is one.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Gives a file the extended attributes of another one, where both have a descriptor. Those that
/// the system keeps for itself are its own business, and what says that a file is to become a
/// container is of the file itself.
pub(crate) fn copy_attributes(from: &dyn StoreFile, to: &dyn StoreFile) -> Result<()> {
    match (from.fd(), to.fd()) {
        (Some(from), Some(to)) => posix::copy_attributes(from, to),
        _ => Ok(()),
    }
}

/// Whether somebody has given a file extended attributes, an access list or capabilities.
pub(crate) fn has_attributes(of: &dyn StoreFile) -> Result<bool> {
    of.fd().map_or(Ok(false), posix::has_attributes)
}

/// Bytes that stay valid as long as this value lives: a file map or memory.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Reads exactly `buf.len()` bytes at `offset`, or fewer at the end of the file; returns the bytes
/// read.
pub fn read_full(file: &dyn StoreFile, mut buf: &mut [u8], mut offset: u64) -> Result<usize> {
    let mut done = 0;
    while !buf.is_empty() {
        let n = file.read_at(buf, offset)?;
        if n == 0 {
            break;
        }
        done += n;
        offset += n as u64;
        buf = &mut buf[n..];
    }
    Ok(done)
}

/// What the storage said by a [`StoreFile::write_back`]. That a file cannot be given to it so is
/// nothing that it said.
pub fn heard(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::SPIPE) => Ok(()),
        other => other,
    }
}

/// Writes all of `buf` at `offset`, going on after short writes. A write of 0 bytes is ENOSPC:
/// POSIX gives it for nothing else on a regular file.
pub fn write_full(file: &(impl StoreFile + ?Sized), mut buf: &[u8], mut offset: u64) -> Result<()> {
    while !buf.is_empty() {
        let n = file.write_at(buf, offset)?;
        if n == 0 {
            return Err(Errno::NOSPC);
        }
        offset += n as u64;
        buf = &buf[n..];
    }
    Ok(())
}

/// [`StoreFile::allocate`] where no room can be reserved.
pub(crate) fn resize_only(
    file: &(impl StoreFile + ?Sized),
    offset: u64,
    length: u64,
    size: Size,
) -> Result<()> {
    let end = offset.saturating_add(length);
    match size == Size::Grows && file.stat()?.len < end {
        true => file.set_len(end),
        false => Ok(()),
    }
}

/// Writes zeros to `[offset, end)`, 4 KiB at a time.
pub(crate) fn write_zeros(
    file: &(impl StoreFile + ?Sized),
    mut offset: u64,
    end: u64,
) -> Result<()> {
    let zeros = [0; 4096];
    while offset < end {
        let n = zeros.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        write_full(file, &zeros[..n], offset)?;
        offset += n as u64;
    }
    Ok(())
}

/// Writes as much of `bytes` as the store takes, and gives how much that is: an error only if it
/// took nothing.
pub fn write_some(file: &dyn StoreFile, bytes: &[u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) if done == 0 => return Err(Errno::NOSPC),
            Ok(0) => break,
            Ok(n) => done += n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
