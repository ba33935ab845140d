//! Size, attributes and locks of an open file

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use libc::{mode_t, off_t, timespec};
use plfs_core::store::{Errno, Kind, Links, Open, PosixFile, Size, Stat, StoreFile, Time};
use plfs_core::{Container, File};
use rustix::io::FdFlags;

use crate::handle::{PlfsFile, handle, offset_arg};
use crate::path::{may_chown, may_set_times, must_own};
use crate::{Failure, Result, borrow, call};

/// Fills `*out` for the file: st_size is the logical size in bytes with this process's writes,
/// st_blocks what the logs take, in units of 512 bytes, st_blksize 1 MiB; mode, owner and times as
/// stat(2) gives them.
///
/// # Safety
/// `file` is a handle, `out` a place for a struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_fstat(file: *mut PlfsFile, out: *mut libc::stat) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let stat = unsafe { handle(file) }?.file.stat()?;
        // SAFETY: the caller's promise.
        unsafe { put_stat(&stat, out) }
    }) as c_int
}

/// What the caller's stat(2) has said.
// The types of the fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub(crate) fn taken_stat(st: &libc::stat) -> Stat {
    Stat {
        dev: st.st_dev,
        ino: st.st_ino,
        kind: match st.st_mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => Kind::Symlink,
            _ => Kind::Other,
        },
        mode: st.st_mode & 0o7777,
        nlink: st.st_nlink as u64,
        uid: st.st_uid,
        gid: st.st_gid,
        len: st.st_size as u64,
        blocks: st.st_blocks as u64,
        atime: Time { sec: st.st_atime, nsec: st.st_atime_nsec as u32 },
        mtime: Time { sec: st.st_mtime, nsec: st.st_mtime_nsec as u32 },
        // Distinguishes a file from an earlier one with the same inode number.
        ctime: Time { sec: st.st_ctime, nsec: st.st_ctime_nsec as u32 },
    }
}

/// # Safety
/// `out` is NULL or a place for a struct stat.
pub(crate) unsafe fn put_stat(stat: &Stat, out: *mut libc::stat) -> Result<i64> {
    // SAFETY: the caller's promise.
    let out = unsafe { out.as_mut() }
        .ok_or_else(|| Failure::new(Errno::FAULT, "the place for the stat is NULL"))?;
    // SAFETY: struct stat is plain numbers; zeros are valid.
    *out = unsafe { std::mem::zeroed() };
    let kind = match stat.kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Other => 0,
    };
    out.st_dev = stat.dev;
    out.st_ino = stat.ino;
    out.st_mode = kind | stat.mode;
    out.st_nlink = stat.nlink as _;
    out.st_uid = stat.uid;
    out.st_gid = stat.gid;
    out.st_size = stat.len as off_t;
    out.st_blocks = stat.blocks as _;
    out.st_blksize = BLOCK_BYTES;
    (out.st_atime, out.st_atime_nsec) = (stat.atime.sec, stat.atime.nsec as _);
    (out.st_mtime, out.st_mtime_nsec) = (stat.mtime.sec, stat.mtime.nsec as _);
    (out.st_ctime, out.st_ctime_nsec) = (stat.ctime.sec, stat.ctime.nsec as _);
    Ok(0)
}

/// st_blksize: 1 MiB, which saves calls and is small enough for a buffer of stdio.
pub(crate) const BLOCK_BYTES: libc::blksize_t = 1 << 20;

/// Sets the size to `size` bytes: cuts, or extends with a hole. Visible and durable as a write is.
/// Errors: -EBADF if the handle is not open for writing, -EINVAL for a negative size. Cost: one
/// record in the index; the bytes cut take room until a compaction, or until the size is set to 0.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_ftruncate(file: *mut PlfsFile, size: i64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        file.file.set_len(offset_arg(size)?).map(|()| 0).map_err(Failure::from)
    }) as c_int
}

/// fallocate(2) for `len` bytes at `offset`. Mode 0 makes the file reach the end of the range, and
/// FALLOC_FL_KEEP_SIZE leaves its size as it is; both reserve room for a plain file, if the storage
/// can, and none in a log; with FALLOC_FL_PUNCH_HOLE or FALLOC_FL_ZERO_RANGE the
/// range becomes a hole. -EOPNOTSUPP for other modes, -EBADF if the handle is not open for writing.
///
/// Cost: one record in the index, whatever the length. The bytes hidden take room until a
/// compaction.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_fallocate(
    file: *mut PlfsFile,
    mode: c_int,
    offset: i64,
    len: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = &unsafe { handle(file) }?.file;
        if offset < 0 || len <= 0 {
            return Err(Failure::new(
                Errno::INVAL,
                "fallocate needs an offset from 0 and a length from 1",
            ));
        }
        if offset.checked_add(len).is_none() {
            return Err(Failure::new(Errno::FBIG, "a file ends at 2^63-1 bytes"));
        }
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zero = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => false,
            libc::FALLOC_FL_PUNCH_HOLE if keep => true,
            libc::FALLOC_FL_ZERO_RANGE => true,
            _ => {
                return Err(Failure::new(
                    Errno::OPNOTSUPP,
                    format!("fallocate mode {mode:#x} is not supported"),
                ));
            }
        };
        if !file.access().write {
            return Err(Failure::new(Errno::BADF, "the file is not open for writing"));
        }
        if zero {
            file.zero(offset as u64, len as u64)?;
        }
        if !(zero && keep) {
            let size = if keep { Size::Stays } else { Size::Grows };
            file.allocate(offset as u64, len as u64, size)?;
        }
        Ok(0)
    }) as c_int
}

/// Whether this process may do with a file of a pack what `may` says, as the kernel would ask of
/// others: who has it open need not own it.
fn if_packed(file: &File, may: impl FnOnce(&Stat) -> Result<()>) -> Result<()> {
    if file.packed_id().is_some() { may(&file.stat()?) } else { Ok(()) }
}

/// Sets the permission bits, as fchmod(2).
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_fchmod(file: *mut PlfsFile, mode: mode_t) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = &unsafe { handle(file) }?.file;
        if_packed(file, must_own)?;
        Ok(file.chmod(mode & 0o7777).map(|()| 0)?)
    }) as c_int
}

/// fchmod(2) or fchown(2) was called for a descriptor that was taken for that of a plain file: a
/// container that the file has got meanwhile lets in whom its mode and owner let in now. A stat of
/// a plain file.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_inode_has_changed(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { handle(file) }?.file.inode_has_changed().map(|()| 0)?)) as c_int
}

/// Sets owner and group, as fchown(2); -1 leaves one as it is.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_fchown(
    file: *mut PlfsFile,
    uid: libc::uid_t,
    gid: libc::gid_t,
) -> c_int {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    call(|| {
        // SAFETY: the caller's promise.
        let file = &unsafe { handle(file) }?.file;
        let (uid, gid) = (some(uid), some(gid));
        if_packed(file, |stat| may_chown(stat, uid, gid))?;
        Ok(file.chown(uid, gid).map(|()| 0)?)
    }) as c_int
}

/// Sets access and modification time, as futimens(2): `times` NULL means now, tv_nsec may be
/// UTIME_NOW or UTIME_OMIT.
///
/// # Safety
/// `file` is a handle, `times` is NULL or points to two timespecs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_futimens(file: *mut PlfsFile, times: *const timespec) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, to) = unsafe { (&handle(file)?.file, times_arg(times)?) };
        // SAFETY: the caller's promise.
        if_packed(file, |stat| unsafe { may_set_times(stat, times) })?;
        file.set_times(to[0], to[1])?;
        Ok(0)
    }) as c_int
}

/// # Safety
/// `times` is NULL or points to two timespecs.
pub(crate) unsafe fn times_arg(times: *const timespec) -> Result<[Option<Time>; 2]> {
    if times.is_null() {
        return Ok([Some(now()), Some(now())]);
    }
    // SAFETY: not NULL, and the caller's promise.
    let times = unsafe { std::slice::from_raw_parts(times, 2) };
    let mut out = [None; 2];
    for (out, time) in out.iter_mut().zip(times) {
        *out = match time.tv_nsec {
            libc::UTIME_NOW => Some(now()),
            libc::UTIME_OMIT => None,
            0..1_000_000_000 => Some(Time { sec: time.tv_sec, nsec: time.tv_nsec as u32 }),
            _ => {
                return Err(Failure::new(Errno::INVAL, "tv_nsec is not between 0 and 999,999,999"));
            }
        };
    }
    Ok(out)
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

/// Gives a descriptor on which fcntl(2) record locks of this file are to be taken. It belongs to
/// the handle and is closed with it: do not close it. Another handle has another one, and as with
/// every file, where one is opened or closed the process loses its locks of F_SETLK; those of
/// F_OFD_SETLK stay.
///
/// Taking a lock through it changes nothing about what is visible: call plfs_refresh after a lock
/// is granted, and plfs_commit before it is released.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_lock_fd(file: *mut PlfsFile) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file) }?;
        lock_fd(handle, &handle.lock_file, |container| {
            let uuid = container.superblock.uuid.0;
            let all = PROCESS_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            // The process may have locks of F_SETLK, of `plfs run`.
            let keep = all.iter().any(|(of, file)| *of == uuid && file.strong_count() > 0);
            drop(all);
            open_lock_file(container, keep)
        })
    }) as c_int
}

/// The descriptor for the locks of the process. If there is none one is opened, if `open` says so.
pub(crate) fn process_lock_fd(handle: &PlfsFile, open: bool) -> Result<i64> {
    let kept = &handle.process_lock_file;
    if open {
        return lock_fd(handle, kept, |container| {
            process_lock_file(container, |container| open_lock_file(container, false))
        });
    }
    let none = || Failure::from(Errno::NOLCK);
    if kept.get().is_none()
        && let Some(container) = handle.file.container()
    {
        let _ = kept.set(process_lock_file(container, |_| Err(none()))?);
    }
    let fd = kept.get().and_then(|file| file.fd()).ok_or_else(none)?;
    Ok(fd.as_raw_fd() as i64)
}

/// The descriptor of [`plfs_lock_fd`], if it is open.
pub(crate) fn kept_lock_fd(handle: &PlfsFile) -> Result<i64> {
    let fd = handle.lock_file.get().and_then(|file| file.fd());
    Ok(fd.ok_or(Failure::from(Errno::NOLCK))?.as_raw_fd() as i64)
}

/// The descriptor of [`crate::door::plfs_door_flock_fd`].
pub(crate) fn flock_fd(handle: &PlfsFile) -> Result<i64> {
    let owns = *handle.owns.lock().unwrap_or_else(PoisonError::into_inner);
    let own = || handle.file.opened_file().filter(|_| owns && !handle.file.is_plain());
    let file = handle.flock_file.get().cloned().or_else(own);
    let fd = file.as_ref().and_then(|file| file.fd()).map(|fd| fd.as_raw_fd());
    // Or there was none for it.
    Ok(fd.filter(|fd| *fd != c_int::MAX).ok_or(Failure::from(Errno::NOLCK))?.into())
}

/// The program before exec has left `fd` open, on the inode of the file's name. It belongs to the
/// handle from now on, if that has none.
pub(crate) fn adopt_flock_fd(handle: &PlfsFile, fd: RawFd) -> Result<i64> {
    if handle.flock_file.get().is_some() {
        return Ok(0);
    }
    // SAFETY: the caller has found it open.
    rustix::io::fcntl_setfd(unsafe { borrow(fd)? }, FdFlags::CLOEXEC)?;
    // SAFETY: it was the program's before, and is of no other use to this one.
    let file = PosixFile::own(unsafe { OwnedFd::from_raw_fd(fd) });
    let _ = handle.flock_file.set(Arc::new(file));
    Ok(1)
}

/// The program before exec has left `fd` open, which may be the lock file of this container. 1: it
/// is, and belongs to the handle from now on. Closes nothing.
pub(crate) fn adopt_lock_fd(handle: &PlfsFile, fd: RawFd, of_process: bool) -> Result<i64> {
    let Some(container) = handle.file.container() else { return Ok(0) };
    // SAFETY: the caller has found it open.
    let borrowed = unsafe { borrow(fd)? };
    let (is, there) =
        (rustix::fs::fstat(borrowed)?, container.store.stat(&container.path("lock"), Links::Stay));
    if !there.is_ok_and(|there| (there.dev, there.ino) == (is.st_dev, is.st_ino)) {
        return Ok(0);
    }
    let adopt = || {
        rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
        // SAFETY: it was the program's before, and is of no other use to this one.
        Ok(Arc::new(PosixFile::own(unsafe { OwnedFd::from_raw_fd(fd) })) as Arc<dyn StoreFile>)
    };
    let slot = if of_process { &handle.process_lock_file } else { &handle.lock_file };
    if slot.get().is_some() {
        return Ok(0);
    }
    let file = match of_process {
        true => process_lock_file(container, |_| adopt())?,
        false => adopt()?,
    };
    let adopted = file.fd().is_some_and(|own| own.as_raw_fd() == fd);
    let _ = slot.set(file);
    Ok(i64::from(adopted))
}

fn lock_fd(
    handle: &PlfsFile,
    kept: &OnceLock<Arc<dyn StoreFile>>,
    open: impl FnOnce(&Container) -> Result<Arc<dyn StoreFile>>,
) -> Result<i64> {
    if kept.get().is_none()
        && handle.file.pin("record locks")?
        && let Some(plain) = handle.file.plain_file()
    {
        // Programs without PLFS see those of a plain file. Not kept: who lent the descriptor may
        // put another one in its place.
        return Ok(plain.fd().ok_or(Failure::from(Errno::NOLCK))?.as_raw_fd() as i64);
    }
    if kept.get().is_none()
        && let Some(container) = handle.file.container()
    {
        let _ = kept.set(open(container)?);
    }
    let fd = kept.get().and_then(|file| file.fd()).ok_or(Failure::from(Errno::NOLCK))?;
    Ok(fd.as_raw_fd() as i64)
}

/// `keep`: without a close of the file.
fn open_lock_file(container: &Container, keep: bool) -> Result<Arc<dyn StoreFile>> {
    let path = container.path("lock");
    let how = |how: Open| if keep { how.unmoved() } else { how };
    match container.store.open(&path, how(Open::create(0o666))) {
        // Who may only read gets locks for reading, once somebody has made the file.
        Err(error) if matches!(error, Errno::ACCESS | Errno::ROFS) => {
            Ok(container.store.open(&path, how(Open::READ)).map_err(|_| error)?)
        }
        other => Ok(other?),
    }
}

/// Lock files that handles of this process have for its own locks, by the uuid of the container.
static PROCESS_LOCKS: Mutex<Vec<LockFile>> = Mutex::new(Vec::new());

type LockFile = ([u8; 16], Weak<dyn StoreFile>);

/// The one that a handle of this process has on the container, or what `open` gives.
fn process_lock_file(
    container: &Container,
    open: impl FnOnce(&Container) -> Result<Arc<dyn StoreFile>>,
) -> Result<Arc<dyn StoreFile>> {
    let uuid = container.superblock.uuid.0;
    let mut all = PROCESS_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, file)| file.strong_count() > 0);
    let known = all.iter().find(|(of, _)| *of == uuid).and_then(|(_, file)| file.upgrade());
    if let Some(known) = known {
        return Ok(known);
    }
    let opened = open(container)?;
    all.push((uuid, Arc::downgrade(&opened)));
    Ok(opened)
}
