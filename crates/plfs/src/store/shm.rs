//! A page of atomic numbers that the processes of a node share, with two locks that the kernel releases when their holder dies.
//!
//! The page is a small file in a memory file system, mapped by all. One lock says who is alive ([`SharedPage::try_be_last`]), one serialises short
//! critical sections ([`SharedPage::lock`]). Both are flock(2) on descriptors of this module, so two holders in one process exclude each other too.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::posix::HighFd;
use super::{Errno, Result};

/// Numbers in a page.
pub const WORDS: usize = 512;
const BYTES: usize = WORDS * 8;

/// The shared page of one container on one node. Dropping it releases its locks.
#[derive(Debug)]
pub struct SharedPage {
    words: *const AtomicU64,
    alive: HighFd,
    mutex: HighFd,
    paths: [PathBuf; 2],
}

// SAFETY: `words` points to a shared mapping that lives as long as the page and is only accessed as atomics.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

/// Holds the page's short lock.
pub struct PageGuard<'a>(BorrowedFd<'a>);

impl Drop for PageGuard<'_> {
    fn drop(&mut self) {
        // Unlocking a descriptor that is locked cannot fail; the kernel would unlock at close anyway.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

impl SharedPage {
    /// Maps the page at `path`, creating it with zeros, and marks this process as alive. `path` + `.lock` carries the short lock.
    pub fn join(path: &Path) -> Result<SharedPage> {
        let lock_path = lock_path(path);
        loop {
            let mutex = open(&lock_path)?;
            flock(mutex.as_fd(), FlockOperation::LockExclusive)?;
            // The last one out removes both files under the lock: what we locked must still be the file that others will find.
            if !same_file(mutex.as_fd(), &lock_path) {
                continue;
            }
            let alive = open(path)?;
            if rustix::fs::fstat(alive.as_fd())?.st_size < BYTES as i64 {
                rustix::fs::ftruncate(alive.as_fd(), BYTES as u64)?;
            }
            flock(alive.as_fd(), FlockOperation::LockShared)?;
            // SAFETY: a fresh shared mapping of a file that is BYTES long and that nobody shortens; it is unmapped in drop only.
            let words = unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, alive.as_fd(), 0)? };
            let page = SharedPage { words: words.cast::<AtomicU64>(), alive, mutex, paths: [path.to_path_buf(), lock_path] };
            rustix::fs::flock(page.mutex.as_fd(), FlockOperation::Unlock)?;
            return Ok(page);
        }
    }

    /// The numbers. Zero at first.
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping is BYTES long, page-aligned, lives as long as self, and all processes access it only as atomics.
        unsafe { &*self.words.cast::<[AtomicU64; WORDS]>() }
    }

    /// Takes the short lock; waits for its holder. The kernel releases it if the holder dies.
    pub fn lock(&self) -> Result<PageGuard<'_>> {
        flock(self.mutex.as_fd(), FlockOperation::LockExclusive)?;
        Ok(PageGuard(self.mutex.as_fd()))
    }

    /// True if no other live process has joined. Call with the short lock held, which keeps others out, and only to leave: after it this process may no
    /// longer count as alive.
    pub fn try_be_last(&self) -> bool {
        // Turning the shared lock into an exclusive one may lose it for a moment; nobody else looks without the short lock.
        flock(self.alive.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Removes the files of the page at `path`, which nobody will join any more.
    pub fn remove_files(path: &Path) {
        for path in [path, &lock_path(path)] {
            let _ = rustix::fs::unlink(path);
        }
    }

    /// Removes the page's files. Only for the last process, with the short lock held.
    pub fn remove(&self) {
        for path in &self.paths {
            // A page left behind is found again by the next process of the node; it does no harm.
            let _ = rustix::fs::unlink(path);
        }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped in join with this length; no reference into it outlives self.
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
    let file = open(&dir.join(format!("plfs-{uid}-turn-{:02x}", key % 64))).ok()?;
    flock(file.as_fd(), FlockOperation::LockExclusive).ok()?;
    Some(file)
}

fn lock_path(page: &Path) -> PathBuf {
    let mut path = page.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

fn open(path: &Path) -> Result<HighFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
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
