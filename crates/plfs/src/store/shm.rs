//! A page of atomic numbers that the processes of a node share, with locks that the kernel releases when their holder dies.
//!
//! The page is a small file in a memory file system, mapped by all. Its first bytes carry the locks, as open file description locks (fcntl(2)): byte 0 says who is alive
//! ([`SharedPage::try_be_last`]), byte 1 serialises short critical sections ([`SharedPage::lock`]), byte 2 lets one process at a time make the index log durable
//! ([`SharedPage::gate`]). One descriptor carries all three. Threads of one process exclude each other by mutexes, because they share that descriptor.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linux_raw_sys::general as linux;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use syscalls::Sysno;

use super::posix::{HighFd, PosixStore};
use super::{Errno, Result, Store};

/// Numbers in a page.
pub const WORDS: usize = 1024;
const BYTES: usize = WORDS * 8;

/// A byte of the page that carries a lock.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Alive = 0,
    Short = 1,
    Gate = 2,
}

/// The shared page of one container on one node. Dropping it releases its locks.
#[derive(Debug)]
pub struct SharedPage {
    words: *const AtomicU64,
    file: HighFd,
    path: PathBuf,
    short: Mutex<()>,
    gate: Mutex<()>,
}

// SAFETY: `words` points to a shared mapping that lives as long as the page and is only accessed as atomics.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

/// Holds one of the page's locks.
pub struct PageGuard<'a> {
    fd: BorrowedFd<'a>,
    lock: Lock,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for PageGuard<'_> {
    fn drop(&mut self) {
        // Unlocking a descriptor that is locked cannot fail; the kernel would unlock at close anyway.
        let _ = set_lock(self.fd, self.lock, linux::F_UNLCK, false);
    }
}

impl SharedPage {
    /// Maps the page at `path`, creating it with zeros, and marks this process as alive.
    pub fn join(path: &Path) -> Result<SharedPage> {
        loop {
            let page = match SharedPage::open(path, true)? {
                Some(page) => page,
                None => continue,
            };
            let guard = page.lock()?;
            // The last one out removes the file under the lock: what we locked must still be the file that others will find.
            if !same_file(page.file.as_fd(), path) {
                drop(guard);
                continue;
            }
            set_lock(page.file.as_fd(), Lock::Alive, linux::F_RDLCK, true)?;
            drop(guard);
            return Ok(page);
        }
    }

    /// The page at `path` if no live process has joined it, locked, with `heir` in its place: it may read the numbers and remove the page. `None` if there is none, somebody lives
    /// there, or somebody else is about to find out.
    pub fn inherit<T>(path: &Path, heir: impl FnOnce(&SharedPage) -> T) -> Result<Option<T>> {
        let Some(page) = SharedPage::open(path, false)? else { return Ok(None) };
        if set_lock(page.file.as_fd(), Lock::Short, linux::F_WRLCK, false).is_err() || !page.try_be_last() || !same_file(page.file.as_fd(), path) {
            return Ok(None);
        }
        // Dropping the page releases both locks.
        Ok(Some(heir(&page)))
    }

    /// The page at `path`, to be looked at and not to be joined.
    pub fn peek(path: &Path) -> Result<Option<SharedPage>> {
        SharedPage::open(path, false)
    }

    /// For a page that was [looked at](SharedPage::peek): whether a live process has joined it. True too if that cannot be found out.
    pub fn has_members(&self) -> bool {
        // Asked without taking it: a leaver at this moment must not take us for a member.
        let mut range = lock_range(Lock::Alive, linux::F_WRLCK);
        match fcntl_lock(self.file.as_fd(), linux::F_OFD_GETLK, &mut range) {
            Ok(()) => u32::try_from(range.l_type) != Ok(linux::F_UNLCK),
            Err(_) => true,
        }
    }

    /// The pages of a user, or of all (`None`), in a directory of shared memory.
    pub fn find(dir: &Path, uid: Option<u32>) -> Result<Vec<PathBuf>> {
        let is_page = |name: &str| {
            let mut parts = name.split('-');
            let (plfs, user, dev, uuid) = (parts.next(), parts.next(), parts.next(), parts.next());
            let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
            plfs == Some("plfs")
                && user.and_then(|user| user.parse().ok()).is_some_and(|user: u32| uid.is_none_or(|uid| uid == user))
                && dev.is_some_and(hex)
                && uuid.is_some_and(|uuid| uuid.len() == 32 && hex(uuid))
                && parts.next().is_none()
        };
        let entries = PosixStore::new().list(dir)?;
        Ok(entries.iter().filter(|entry| entry.name.to_str().is_some_and(is_page)).map(|entry| dir.join(&entry.name)).collect())
    }

    /// `None` without `create` if there is no page, or it was never finished.
    fn open(path: &Path, create: bool) -> Result<Option<SharedPage>> {
        let file = match open(path, create) {
            Err(Errno::NOENT) if !create => return Ok(None),
            other => other?,
        };
        if rustix::fs::fstat(file.as_fd())?.st_size < BYTES as i64 {
            if !create {
                return Ok(None);
            }
            rustix::fs::ftruncate(file.as_fd(), BYTES as u64)?;
        }
        // SAFETY: a fresh shared mapping of a file that is BYTES long and that nobody shortens; it is unmapped in drop only.
        let words = unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file.as_fd(), 0)? };
        Ok(Some(SharedPage { words: words.cast::<AtomicU64>(), file, path: path.to_path_buf(), short: Mutex::default(), gate: Mutex::default() }))
    }

    /// The numbers. Zero at first.
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping is BYTES long, page-aligned, lives as long as self, and all processes access it only as atomics.
        unsafe { &*self.words.cast::<[AtomicU64; WORDS]>() }
    }

    /// Takes the short lock; waits for its holder. The kernel releases it if the holder dies.
    pub fn lock(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Short, &self.short)
    }

    /// Takes the gate: whoever makes the index log durable holds it, and whoever appends what is not durable yet.
    pub fn gate(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Gate, &self.gate)
    }

    fn take<'a>(&'a self, lock: Lock, thread: &'a Mutex<()>) -> Result<PageGuard<'a>> {
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        set_lock(self.file.as_fd(), lock, linux::F_WRLCK, true)?;
        Ok(PageGuard { fd: self.file.as_fd(), lock, _thread: thread })
    }

    /// True if no other live process has joined. Call with the short lock held, which keeps others out, and only to leave: after it nobody else counts this process as alive.
    pub fn try_be_last(&self) -> bool {
        set_lock(self.file.as_fd(), Lock::Alive, linux::F_WRLCK, false).is_ok()
    }

    /// This process stops counting as alive. By unlocking: a forked child keeps the file open.
    pub fn leave(&self) {
        let _ = set_lock(self.file.as_fd(), Lock::Alive, linux::F_UNLCK, false);
    }

    /// Device and inode of the directory that the page is in.
    pub fn place(&self) -> Result<(u64, u64)> {
        directory_identity(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// Removes the page at `path`, which nobody will join any more.
    pub fn remove_file(path: &Path) {
        let _ = rustix::fs::unlink(path);
    }

    /// Removes the page's file. Only for the last process, with the short lock held.
    pub fn remove(&self) {
        // If somebody removed it and others have made a new one, that is theirs.
        if same_file(self.file.as_fd(), &self.path) {
            // A page left behind is found again by the next process of the node; it does no harm.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Sets or releases a lock on one byte, and waits for it if it shall. EAGAIN or EACCES if it shall not and somebody else has it.
fn set_lock(fd: BorrowedFd<'_>, lock: Lock, kind: u32, wait: bool) -> Result<()> {
    let command = if wait { linux::F_OFD_SETLKW } else { linux::F_OFD_SETLK };
    fcntl_lock(fd, command, &mut lock_range(lock, kind))
}

fn lock_range(lock: Lock, kind: u32) -> linux::flock {
    // l_pid must be 0 for locks of open file descriptions.
    linux::flock { l_type: kind as _, l_whence: linux::SEEK_SET as _, l_start: lock as i64, l_len: 1, l_pid: 0 }
}

fn fcntl_lock(fd: BorrowedFd<'_>, command: u32, range: &mut linux::flock) -> Result<()> {
    loop {
        // SAFETY: the descriptor is borrowed for the call, and `range` is a struct flock, which the kernel reads, and writes for F_OFD_GETLK.
        match unsafe { syscalls::syscall3(Sysno::fcntl, fd.as_raw_fd() as usize, command as usize, (&raw mut *range) as usize) } {
            Ok(_) => return Ok(()),
            Err(syscalls::Errno::EINTR) => {}
            Err(errno) => return Err(Errno::from_raw_os_error(errno.into_raw())),
        }
    }
}

/// Device and inode of a directory of shared memory.
pub fn directory_identity(dir: &Path) -> Result<(u64, u64)> {
    let stat = rustix::fs::stat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped in open with this length; no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.words.cast_mut().cast(), BYTES) };
    }
}

/// A sign that this process uses something. Many may have it; the last one that drops it removes its file.
#[derive(Debug)]
pub struct Presence {
    file: HighFd,
    path: PathBuf,
}

impl Presence {
    /// Puts the sign up. All users of the node may share it.
    pub fn join(path: &Path) -> Result<Presence> {
        loop {
            let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = HighFd::new(rustix::fs::open(path, flags, Mode::from_raw_mode(0o444))?);
            flock(file.as_fd(), FlockOperation::LockShared)?;
            // The last user may have removed the file between our open and our lock.
            if same_file(file.as_fd(), path) {
                return Ok(Presence { file, path: path.to_path_buf() });
            }
        }
    }

    /// True if nobody has the sign up.
    pub fn is_free(path: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(path, flags, Mode::empty()).map(HighFd::new) {
            Ok(file) => flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => true,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if flock(self.file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Left behind, an empty file does no harm.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// One process of the node at a time, for things named by `key` (or, by chance, another key): waits for its turn, which ends when the result is dropped.
/// `None` if there is no memory file system: then nobody waits.
pub fn turn(dir: &Path, key: u64) -> Option<impl Drop> {
    let uid = rustix::process::geteuid().as_raw();
    let file = open(&dir.join(format!("plfs-{uid}-turn-{:02x}", key % 64)), true).ok()?;
    flock(file.as_fd(), FlockOperation::LockExclusive).ok()?;
    Some(file)
}

fn open(path: &Path, create: bool) -> Result<HighFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | if create { OFlags::CREATE } else { OFlags::empty() };
    let fd: OwnedFd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(HighFd::new(fd))
}

fn flock(fd: BorrowedFd<'_>, how: FlockOperation) -> Result<()> {
    loop {
        match rustix::fs::flock(fd, how) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn same_file(fd: BorrowedFd<'_>, path: &Path) -> bool {
    match (rustix::fs::fstat(fd), rustix::fs::stat(path)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn processes_meet_and_the_last_one_knows() {
        let path = std::env::temp_dir().join(format!("plfs-shm-test-{}", std::process::id()));
        let first = SharedPage::join(&path).unwrap();
        first.words()[3].store(7, Ordering::SeqCst);
        let second = SharedPage::join(&path).unwrap();
        assert_eq!(second.words()[3].load(Ordering::SeqCst), 7);
        let guard = first.lock().unwrap();
        assert!(!first.try_be_last());
        drop(guard);
        drop(first);
        let guard = second.lock().unwrap();
        assert!(second.try_be_last());
        second.remove();
        drop(guard);
        let fresh = SharedPage::join(&path).unwrap();
        assert_eq!(fresh.words()[3].load(Ordering::SeqCst), 0);
        fresh.remove();
    }
}
