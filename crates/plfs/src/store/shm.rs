//! A page of atomic numbers that the processes of a node share, with two locks that the kernel releases when their holder dies.
//!
//! The page is a small file in a memory file system, mapped by all. One lock says who is alive ([`SharedPage::try_be_last`]), one serialises short
//! critical sections ([`SharedPage::lock`]). Both are flock(2) on descriptors of this module, so two holders in one process exclude each other too.
//!
//! The directory is everybody's, and names in it can be guessed. So a page is used only if it is a regular file of its user, which nobody else may open, with one name and the length of
//! a page, and if the memory for it is there: a page without memory would be SIGBUS at the first use. Then only processes of the same user (and root) can hold its locks, or cut it; whoever
//! does the latter takes down the user's own processes, and the files of a memory file system cannot be sealed against it. Whoever finds a page that is no good does without one.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
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
    /// Maps the page of user `uid` at `path`, creating it with zeros, and marks this process as alive. `path` + `.lock` carries the short lock.
    ///
    /// PERM if there is something there that is not the user's page; NOSPC if there is no memory for it.
    pub fn join(path: &Path, uid: u32) -> Result<SharedPage> {
        let lock_path = lock_path(path);
        loop {
            let mutex = open(&lock_path, uid)?;
            flock(mutex.as_fd(), FlockOperation::LockExclusive)?;
            // The last one out removes both files under the lock: what we locked must still be the file that others will find.
            if !same_file(mutex.as_fd(), &lock_path) {
                continue;
            }
            let alive = open(path, uid)?;
            if let Err(errno) = allocate(alive.as_fd()) {
                // A new one for which there is no room: nobody has it.
                if rustix::fs::fstat(alive.as_fd()).is_ok_and(|stat| stat.st_size == 0) {
                    SharedPage::remove_files(path);
                }
                return Err(errno);
            }
            flock(alive.as_fd(), FlockOperation::LockShared)?;
            // SAFETY: a fresh shared mapping of a file that is BYTES long, with memory behind it, which only processes of this user can shorten, and none does; it is unmapped in
            // drop only.
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

/// How often a sign is tried that another process has locked, a millisecond apart.
const PRESENCE_TRIES: u32 = 100;

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
            // Of a pipe that somebody put there an open would wait for a writer.
            let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = HighFd::new(rustix::fs::open(path, flags, Mode::from_raw_mode(0o444))?);
            // All users share the sign, so anybody can lock it for ever. Whoever looks whether it is free has it for a moment.
            let mut tries = 0;
            while let Err(errno) = flock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
                if errno != Errno::AGAIN || tries == PRESENCE_TRIES {
                    return Err(errno);
                }
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            // The last user may have removed the file between our open and our lock.
            if same_file(file.as_fd(), path) {
                return Ok(Presence { file, path: path.to_path_buf() });
            }
        }
    }

    /// True if nobody has the sign up.
    pub fn is_free(path: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
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
/// `None` if there is no memory file system, or another user's file is in the way: then nobody waits. Only processes of the same user can make one wait.
pub fn turn(dir: &Path, key: u64) -> Option<impl Drop> {
    let uid = rustix::process::geteuid().as_raw();
    let file = open(&dir.join(format!("plfs-{uid}-turn-{:02x}", key % 64)), uid).ok()?;
    flock(file.as_fd(), FlockOperation::LockExclusive).ok()?;
    Some(file)
}

fn lock_path(page: &Path) -> PathBuf {
    let mut path = page.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Opens or makes a file of user `uid` that nobody else may open. PERM if there is something else.
fn open(path: &Path, uid: u32) -> Result<HighFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd: OwnedFd = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(Errno::PERM),
        other => other?,
    };
    let fd = HighFd::new(fd);
    let stat = rustix::fs::fstat(fd.as_fd())?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_ours = is_file && stat.st_uid == uid && stat.st_mode & 0o077 == 0;
    // 0: the last one out has just removed it; who locks it finds out.
    if is_ours && stat.st_nlink <= 1 { Ok(fd) } else { Err(Errno::PERM) }
}

/// Sees to it that a page has its length and its memory. PERM if it has another length than a page.
fn allocate(fd: BorrowedFd<'_>) -> Result<()> {
    let stat = rustix::fs::fstat(fd)?;
    if stat.st_size != 0 && stat.st_size != BYTES as i64 {
        return Err(Errno::PERM);
    }
    if stat.st_size as usize == BYTES && stat.st_blocks as usize * 512 >= BYTES {
        return Ok(());
    }
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, BYTES as u64) {
        // Not all file systems can; bytes that were written are there.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if stat.st_size == 0 => match rustix::io::pwrite(fd, &[0; BYTES], 0)? {
            BYTES => Ok(()),
            _ => Err(Errno::NOSPC),
        },
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
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
    match (rustix::fs::fstat(fd), rustix::fs::lstat(path)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn path(name: &str) -> PathBuf {
        PathBuf::from(format!("/dev/shm/plfs-shm-test-{name}-{}", std::process::id()))
    }

    /// Whatever another user puts where a page should be, nobody maps it, waits for its lock, or follows it: a page that others may write has tails and clocks that they set, and one that
    /// was too short was SIGBUS.
    #[test]
    fn what_is_not_our_page_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let at = path("refused");
        let refused = |what: &str| {
            assert_eq!(SharedPage::join(&at, me()).err(), Some(Errno::PERM), "{what}");
            std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir(&at)).unwrap();
        };
        let target = path("target");
        std::fs::write(&target, [0; BYTES]).unwrap();
        symlink(&target, &at).unwrap();
        refused("a link");
        std::fs::hard_link(&target, &at).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
        refused("a file with another name");
        std::fs::create_dir(&at).unwrap();
        refused("a directory");
        std::fs::write(&at, [0; BYTES]).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o606)).unwrap();
        refused("a page that others may write");
        for len in [1, BYTES - 1, BYTES + 1] {
            std::fs::write(&at, vec![0; len]).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
            refused("a page of another length");
        }
        rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        refused("a pipe");
        assert!(Presence::is_free(&target));
        if me() == 0 {
            std::fs::write(&at, [0; BYTES]).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&at, Some(12345), None).unwrap();
            refused("another user's page");
        }
        for path in [target, lock_path(&at)] {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// The page was sparse: with /dev/shm full the first write to it was SIGBUS, in the middle of a program.
    #[test]
    fn a_page_has_its_memory_when_it_is_joined() {
        let at = path("allocated");
        let page = SharedPage::join(&at, me()).unwrap();
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= BYTES as i64);
        page.remove();
        // One that somebody left sparse.
        std::fs::write(&at, []).unwrap();
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::OpenOptions::new().write(true).open(&at).unwrap().set_len(BYTES as u64).unwrap();
        let page = SharedPage::join(&at, me()).unwrap();
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= BYTES as i64);
        page.remove();
    }

    /// The sign of a container is open to all users: one who locked it exclusively made everybody wait for ever who opened a file.
    #[test]
    fn a_sign_that_somebody_locks_does_not_hang() {
        let at = path("locked");
        std::fs::write(&at, []).unwrap();
        let theirs = std::fs::File::open(&at).unwrap();
        flock(theirs.as_fd(), FlockOperation::LockExclusive).unwrap();
        assert_eq!(Presence::join(&at).err(), Some(Errno::AGAIN));
        drop(theirs);
        drop(Presence::join(&at).unwrap());
        assert!(!at.exists());
    }

    #[test]
    fn processes_meet_and_the_last_one_knows() {
        let path = std::env::temp_dir().join(format!("plfs-shm-test-{}", std::process::id()));
        let first = SharedPage::join(&path, me()).unwrap();
        first.words()[3].store(7, Ordering::SeqCst);
        let second = SharedPage::join(&path, me()).unwrap();
        assert_eq!(second.words()[3].load(Ordering::SeqCst), 7);
        let guard = first.lock().unwrap();
        assert!(!first.try_be_last());
        drop(guard);
        drop(first);
        let guard = second.lock().unwrap();
        assert!(second.try_be_last());
        second.remove();
        drop(guard);
        let fresh = SharedPage::join(&path, me()).unwrap();
        assert_eq!(fresh.words()[3].load(Ordering::SeqCst), 0);
        fresh.remove();
    }
}
