//! An open file, as the store or the program has it, and maps of files.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;

use linux_raw_sys::general as linux;
use plfs_format::attribute;
use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags, XattrFlags,
};
use rustix::io::{ReadWriteFlags, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags};
use syscalls::Sysno;

use super::PosixStore;
use super::calls::stat_of;
use super::fd::{BEHIND_STANDARD, BareFd, ClosedBare, HighFd, base_fd};
use super::file_system::{mounts, type_of_mount};
use crate::store::beneath::PlaceFd;
use crate::store::limit::{may_extend, may_write_at, size_limit};
use crate::store::shm::{fcntl_lock, fcntl_number};
use crate::store::{
    Bytes, Errno, LockKind, Open, Result, Size, Stat, StoreFile, Time, resize_only, write_zeros,
};
use crate::sync::Arc;

#[derive(Debug)]
pub(super) enum Fd {
    Own(HighFd),
    /// Open for a moment.
    Brief(BareFd),
    /// Of the program.
    Taken(ClosedBare),
    /// Of the program, which closes it.
    Lent(RawFd),
    /// A view's directory, which the view has open as well.
    View(Arc<PlaceFd>),
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

    /// Takes the lowest free number, until it is dropped.
    pub fn hold_number() -> Result<PosixFile> {
        let root = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        BareFd::open(root).map(|fd| PosixFile(Fd::Brief(fd)))
    }

    /// Takes over a descriptor of the program. It keeps its number and PLFS does not claim it.
    pub fn from_fd(fd: OwnedFd) -> PosixFile {
        PosixFile(Fd::Taken(ClosedBare::new(fd)))
    }

    /// Uses a descriptor of the program, which keeps it.
    ///
    /// # Safety
    /// `fd` stays open as long as the value is used.
    pub unsafe fn lent(fd: RawFd) -> PosixFile {
        PosixFile(Fd::Lent(fd))
    }

    /// The same open file by a descriptor of PLFS's own, whatever the program does with `fd`.
    pub fn copy_of(fd: BorrowedFd<'_>) -> Result<PosixFile> {
        HighFd::copy_of(fd).map(|fd| PosixFile(Fd::Own(fd)))
    }

    /// The extended attribute of what `path` leads to, which is not opened.
    pub fn attribute_at(path: &Path, name: &str) -> Result<Vec<u8>> {
        let mut room = [MaybeUninit::uninit(); attribute::BYTES_MAX];
        retry_on_intr(|| {
            rustix::fs::getxattr(path, name, &mut room).map(|(value, _)| value.to_vec())
        })
    }

    /// Takes over a descriptor of PLFS's own, with its number.
    pub fn own(fd: OwnedFd) -> PosixFile {
        PosixFile(Fd::Own(HighFd::recorded(fd)))
    }

    /// Gives the descriptor away; PLFS no longer claims it. Mind that dropping an [`OwnedFd`] calls
    /// libc's close.
    pub fn into_fd(self) -> OwnedFd {
        match self.0 {
            Fd::Own(fd) => fd.into_owned(),
            Fd::Taken(fd) => fd.into_owned(),
            Fd::Brief(fd) => fd.into_owned(),
            // SAFETY: who lent it said that it is open. The caller gets what the program has.
            Fd::Lent(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            Fd::View(_) => unreachable!("programs get what open and from_fd give"),
        }
    }
}

impl AsFd for PosixFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Fd::Own(fd) => fd.as_fd(),
            Fd::Taken(fd) => fd.as_fd(),
            Fd::Brief(fd) => fd.as_fd(),
            // SAFETY: who lent it said that it is open as long as this is used.
            Fd::Lent(fd) => unsafe { BorrowedFd::borrow_raw(*fd) },
            Fd::View(fd) => fd.as_fd(),
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

    fn read_once(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        retry_on_intr(|| rustix::io::pread(self.as_fd(), &mut *buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        may_write_at(offset)?;
        retry_on_intr(|| rustix::io::pwrite(self.as_fd(), buf, offset))
    }

    fn append(&self, buf: &[u8]) -> Result<usize> {
        if size_limit() < u64::MAX {
            may_write_at(StoreFile::stat(self)?.len)?;
        }
        let parts = [IoSlice::new(buf)];
        retry_on_intr(|| rustix::io::pwritev2(self.as_fd(), &parts, 0, ReadWriteFlags::APPEND))
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length).min(StoreFile::stat(self)?.len);
        if offset >= end {
            return Ok(());
        }
        let punch =
            |how| retry_on_intr(|| rustix::fs::fallocate(self.as_fd(), how, offset, end - offset));
        match punch(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, offset, end),
            other => other,
        }
    }

    fn allocate(&self, offset: u64, length: u64, size: Size) -> Result<()> {
        let how = match size {
            Size::Grows => FallocateFlags::empty(),
            Size::Stays => FallocateFlags::KEEP_SIZE,
        };
        match retry_on_intr(|| rustix::fs::fallocate(self.as_fd(), how, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => resize_only(self, offset, length, size),
            other => other,
        }
    }

    fn stat(&self) -> Result<Stat> {
        retry_on_intr(|| rustix::fs::fstat(self.as_fd())).map(|stat| stat_of(&stat))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        may_extend(len, || Ok(StoreFile::stat(self)?.len))?;
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

    fn sync_all(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsync(self.as_fd()))
    }

    fn write_back(&self, offset: u64, length: u64, waits: bool) -> Result<()> {
        retry_on_intr(|| sync_file_range(self.as_fd(), offset, length, waits))
    }

    fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        // Most files have none, and few a longer one.
        let mut room = [MaybeUninit::<u8>::uninit(); 256];
        let read = |room: &mut [MaybeUninit<u8>]| {
            retry_on_intr(|| {
                rustix::fs::fgetxattr(self.as_fd(), name, &mut *room)
                    .map(|(value, _)| value.to_vec())
            })
        };
        let value = match read(&mut room) {
            Err(Errno::RANGE) => read(&mut vec![MaybeUninit::uninit(); attribute::BYTES_MAX]),
            other => other,
        };
        match value {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            // None of ours is so long.
            Err(Errno::RANGE) => Ok(Some(Vec::new())),
            Err(errno) => Err(errno),
        }
    }

    fn set_new_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsetxattr(self.as_fd(), name, value, XattrFlags::CREATE))
    }

    fn try_gate(&self) -> Result<bool> {
        match set_gate(self.as_fd(), linux::F_WRLCK) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn leave_gate(&self) {
        // Nothing can fail that the process could do something about.
        let _ = set_gate(self.as_fd(), linux::F_UNLCK);
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

    fn is_open_elsewhere(&self) -> bool {
        // A lease is given if no other open file is there. Who opens the file as long as we have
        // it waits, and we get a signal: SIGIO, which ends a process, or one that we name.
        let ask = |how, what| fcntl_number(self.as_fd(), how, what);
        let is_alone = ask(linux::F_SETSIG, linux::SIGURG).is_ok()
            && ask(linux::F_SETLEASE, linux::F_WRLCK).is_ok();
        if is_alone {
            let _ = ask(linux::F_SETLEASE, linux::F_UNLCK);
        }
        !is_alone
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

    fn next_hole(&self, offset: u64) -> Result<u64> {
        match rustix::fs::seek(self.as_fd(), SeekFrom::Hole(offset)) {
            Ok(hole) => Ok(hole),
            Err(Errno::NXIO | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Ok(StoreFile::stat(self)?.len.max(offset))
            }
            Err(errno) => Err(errno),
        }
    }

    fn birth(&self) -> Option<Time> {
        let (flags, mask) = (AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BTIME);
        let stat = rustix::fs::statx(self.as_fd(), c"", flags, mask).ok()?;
        let time = Time { sec: stat.stx_btime.tv_sec, nsec: stat.stx_btime.tv_nsec };
        (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(time)
    }

    /// Clean pages go; such as another program has mapped stay.
    fn forget_cached(&self) {
        let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::DontNeed);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Locks or unlocks the gate: the last byte that a file could have.
fn set_gate(fd: BorrowedFd<'_>, kind: u32) -> Result<()> {
    let mut range = linux::flock {
        l_type: kind as _,
        l_whence: linux::SEEK_SET as _,
        l_start: i64::MAX - 1,
        l_len: 1,
        l_pid: 0,
    };
    fcntl_lock(fd, linux::F_OFD_SETLK, &mut range)
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

/// [`copy_attributes`](crate::store::copy_attributes) between descriptors.
pub(crate) fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<()> {
    let mut names = vec![0; ATTRIBUTES_BYTES];
    let length = match rustix::fs::flistxattr(from, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        other => other?,
    };
    let mut value = vec![0; ATTRIBUTES_BYTES];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name == attribute::NAME.as_bytes() || name.starts_with(b"security.selinux") {
            continue;
        }
        match rustix::fs::fgetxattr(from, name, value.as_mut_slice()) {
            // Removed meanwhile, or not for this user to see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            other => rustix::fs::fsetxattr(to, name, &value[..other?], XattrFlags::empty())?,
        }
    }
    Ok(())
}

/// [`has_attributes`](crate::store::has_attributes) of a descriptor.
pub(crate) fn has_attributes(of: BorrowedFd<'_>) -> Result<bool> {
    let mut names = vec![0; ATTRIBUTES_BYTES];
    let length = match rustix::fs::flistxattr(of, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => return Ok(false),
        other => other?,
    };
    Ok(names[..length].split(|byte| *byte == 0).any(|name| {
        name.starts_with(b"user.") && name != attribute::NAME.as_bytes()
            || name == b"system.posix_acl_access"
            || name == b"security.capability"
    }))
}

/// What all names of attributes of a file take at most, and one value.
const ATTRIBUTES_BYTES: usize = 64 << 10;

/// sync_file_range(2), of which the library has nothing. It tells of errors that this open file has
/// not been told of, and who opens the file after that is not told of them (errseq_t of Linux).
fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, length: u64, waits: bool) -> Result<()> {
    let waiting = linux::SYNC_FILE_RANGE_WAIT_BEFORE | linux::SYNC_FILE_RANGE_WAIT_AFTER;
    let flags = linux::SYNC_FILE_RANGE_WRITE | if waits { waiting } else { 0 };
    // SAFETY: the descriptor is borrowed for the call, which reads and writes no memory.
    let done = unsafe {
        syscalls::syscall4(
            Sysno::sync_file_range,
            fd.as_raw_fd() as usize,
            offset as usize,
            length as usize,
            flags as usize,
        )
    };
    done.map(drop).map_err(|errno| Errno::from_raw_os_error(errno.into_raw()))
}
