//! An open file, as the store or the program has it, and maps of files.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{Advice, FlockOperation, SeekFrom};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};

use super::PosixStore;
use super::calls::stat_of;
use super::fd::{BEHIND_STANDARD, BareFd, HighFd, base_fd};
use super::file_system::{mounts, type_of_mount};
use crate::store::{Bytes, Errno, LockKind, Open, Result, Stat, StoreFile};
use crate::sync::Arc;

#[derive(Debug)]
pub(super) enum Fd {
    Own(HighFd),
    /// Of the program, or open for a moment.
    Brief(BareFd),
}

/// An open file of a [`PosixStore`].
#[derive(Debug)]
pub struct PosixFile(pub(super) Fd);

impl PosixFile {
    /// Opens a file for the program: the descriptor has the lowest free number, as POSIX promises,
    /// and PLFS does not claim it. [`Store::open`](crate::store::Store::open) is for
    /// files that PLFS keeps.
    pub fn open(path: &Path, how: Open) -> Result<PosixFile> {
        PosixStore::new().open_fd(path, how).map(PosixFile::from_fd)
    }

    /// Takes over a descriptor of the program. It keeps its number and PLFS does not claim it.
    pub fn from_fd(fd: OwnedFd) -> PosixFile {
        PosixFile(Fd::Brief(BareFd::new(fd)))
    }

    /// Gives the descriptor away; PLFS no longer claims it. Mind that dropping an [`OwnedFd`] calls
    /// libc's close.
    pub fn into_fd(self) -> OwnedFd {
        match self.0 {
            Fd::Own(fd) => fd.into_owned(),
            Fd::Brief(fd) => fd.into_owned(),
        }
    }
}

impl AsFd for PosixFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Fd::Own(fd) => fd.as_fd(),
            Fd::Brief(fd) => fd.as_fd(),
        }
    }
}

impl StoreFile for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            // One read(2) gives at most 0x7ffff000 bytes, and a network file system may give less
            // than there is: only 0 means the end.
            match rustix::io::pread(
                self.as_fd(),
                &mut buf[done..],
                offset.saturating_add(done as u64),
            ) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        retry_on_intr(|| rustix::io::pwrite(self.as_fd(), buf, offset))
    }

    fn stat(&self) -> Result<Stat> {
        retry_on_intr(|| rustix::fs::fstat(self.as_fd())).map(|stat| stat_of(&stat))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(self.as_fd(), len))
    }

    fn flush(&self) -> Result<()> {
        // Each close of a descriptor of the open file does it.
        let copy = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), base_fd())
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(self.as_fd(), BEHIND_STANDARD))?;
        // SAFETY: into_raw_fd gave up the descriptor, so this is its only close.
        unsafe { rustix::io::try_close(copy.into_raw_fd()) }
    }
    fn sync_data(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fdatasync(self.as_fd()))
    }

    /// A lock of flock(2) on the whole file or directory. It belongs to this open file:
    ///
    /// * Two opens exclude each other within a process as they do between processes.
    /// * The kernel releases it when the last descriptor of this open closes, at the latest when
    ///   the process dies. A child made by fork shares the open file and so the lock: it lasts
    ///   until parent and child have both closed it. The descriptor is close-on-exec, so a program
    ///   started by exec does not keep it.
    /// * The kind of lock can be changed, but not atomically, and a failed attempt (Ok(false))
    ///   loses the lock held before.
    /// * The descriptor may be open for reading, writing or both. NFS alone wants one open for
    ///   writing for an exclusive lock on a file, else EBADF.
    ///
    /// File systems without such locks (ENOSYS, EOPNOTSUPP; Lustre without `-o flock`) answer
    /// Ok(true).
    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        let how = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| rustix::fs::flock(self.as_fd(), how)) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn locks_are_shared(&self) -> bool {
        let shared = FlockOperation::NonBlockingLockShared;
        let has_locks = match retry_on_intr(|| rustix::fs::flock(self.as_fd(), shared)) {
            Ok(()) => retry_on_intr(|| rustix::fs::flock(self.as_fd(), FlockOperation::Unlock)),
            Err(Errno::AGAIN) => Ok(()),
            other => other,
        };
        // Lustre with `localflock` locks among the processes of a machine only, and FUSE does where
        // its daemon has no locks, which nobody can ask. That of CephFS has.
        has_locks.is_ok()
            && retry_on_intr(|| rustix::fs::fstat(self.as_fd())).is_ok_and(|stat| {
                let (major, minor) =
                    (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
                // What is in no table that could be read has not been asked.
                mounts().is_some_and(|mounts| {
                    let mount = type_of_mount(&mounts, None, &format!("{major}:{minor}"));
                    mount.is_none_or(|(kind, options)| {
                        let is_fuse = kind.starts_with("fuse") && kind != "fuse.ceph-fuse";
                        let local = ["localflock", "noflock", "local_lock"];
                        !is_fuse && !local.iter().any(|word| options.contains(word))
                    })
                })
            })
    }

    fn map(&self) -> Result<Bytes> {
        let len = usize::try_from(StoreFile::stat(self)?.len).map_err(|_| Errno::NOMEM)?;
        if len == 0 {
            return Ok(Arc::new([]));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                self.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::FAULT)?;
        Ok(Arc::new(Map { start, len }))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        match rustix::fs::seek(self.as_fd(), SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // Offsets past what the file system can have, and file systems that do not know holes.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(errno) => Err(errno),
        }
    }

    /// Clean pages go; such as another program has mapped stay.
    fn forget_cached(&self) {
        let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::DontNeed);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// A read-only map of a file, undone in drop. memmap2 would go through libc's mmap, which the shim
/// wraps.
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the map is read-only memory without ties to a thread.
unsafe impl Send for Map {}
// SAFETY: as above; all access is reading.
unsafe impl Sync for Map {}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped with this length until drop. That the bytes do not change or vanish is
        // what StoreFile::map asks of its caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by StoreFile::map with this length; references into it cannot outlive
        // self. Unmapping a valid range does not fail.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
