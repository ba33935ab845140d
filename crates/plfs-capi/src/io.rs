//! Read and write

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{iovec, size_t, ssize_t};
use plfs_core::File;
use plfs_core::store::Errno;

use crate::handle::{PlfsFile, bytes, bytes_mut, handle, offset_arg, vectors};
use crate::{EXITING, Failure, Result, call, plfs};

/// Vectors of so many bytes are copied together and are one write. 1 MiB: copying that costs some
/// 0.1 ms, which a write of as much hides.
const GATHERED_BYTES: usize = 1 << 20;

/// Reads up to `n` bytes at `offset` into `buf`. Gives the bytes read: fewer than `n` only if the
/// file ends there, or the next ones cannot be read, which a call that begins there says; 0 at the
/// end. Holes read as zeros.
///
/// Sees all writes of this process, and the commits of others as of the last acquire (plfs_open,
/// plfs_sync, plfs_refresh) or read at the end of the file. Errors: -EBADF if the handle is not
/// open for reading, -EINVAL for a negative offset, -EIO if data or index cannot be read or are
/// damaged. The first read loads the index.
///
/// # Safety
/// `file` is a handle, `buf` has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_pread(
    file: *mut PlfsFile,
    buf: *mut c_void,
    n: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller's promises.
    call(|| unsafe {
        Ok(handle(file)?.file.read_at(bytes_mut(buf, n)?, offset_arg(offset)?)? as i64)
    }) as ssize_t
}

/// Writes `n` bytes from `buf` at `offset`. Gives the bytes written: fewer than `n` only if the
/// storage is full behind them.
///
/// This process sees the bytes at once; others see them after a commit (plfs_commit, plfs_sync,
/// plfs_close), or when the background commit took them, about a second later. Errors: -EBADF if
/// the handle is not open for writing, -EINVAL for a negative offset, -EFBIG past 2^63-1, -ENOSPC,
/// -EDQUOT, -EIO. If bytes that an earlier call accepted could not be stored, every later call on
/// the file gives that error. Cost: one append to a log, which may be buffered; nothing depends on
/// the offset.
///
/// # Safety
/// `file` is a handle, `buf` has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_pwrite(
    file: *mut PlfsFile,
    buf: *const c_void,
    n: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller's promises.
    call(|| unsafe {
        written(handle(file)?.file.write_at(bytes(buf, n)?, offset_arg(offset)?)? as i64)
    }) as ssize_t
}

/// plfs_pread at the handle's position, which moves by the bytes read. The position belongs to the
/// handle and begins at 0.
///
/// # Safety
/// As plfs_pread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_read(file: *mut PlfsFile, buf: *mut c_void, n: size_t) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, buf) = unsafe { (handle(file)?, bytes_mut(buf, n)?) };
        let mut position = file.position.lock().unwrap_or_else(PoisonError::into_inner);
        let n = file.file.read_at(buf, *position)?;
        *position += n as u64;
        Ok(n as i64)
    }) as ssize_t
}

/// plfs_pwrite at the handle's position, or with O_APPEND plfs_append, and moves the position
/// behind the bytes written.
///
/// # Safety
/// As plfs_pwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_write(file: *mut PlfsFile, buf: *const c_void, n: size_t) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, buf) = unsafe { (handle(file)?, bytes(buf, n)?) };
        let mut position = file.position.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, n) = if file.append {
            file.file.append(buf)?
        } else {
            (*position, file.file.write_at(buf, *position)?)
        };
        *position = at + n as u64;
        written(n as i64)
    }) as ssize_t
}

/// Moves the handle's position, as lseek(2): `whence` is SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or
/// SEEK_HOLE. Gives the new position in bytes.
///
/// Errors: -EINVAL for a negative position or another `whence`, -EOVERFLOW past 2^63-1, -ENXIO for
/// SEEK_DATA and SEEK_HOLE at or past the end.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_lseek(file: *mut PlfsFile, offset: i64, whence: c_int) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        let mut position = file.position.lock().unwrap_or_else(PoisonError::into_inner);
        let new = seek(&file.file, *position as i64, offset, whence)?;
        *position = new as u64;
        Ok(new)
    })
}

pub(crate) fn seek(file: &File, position: i64, offset: i64, whence: c_int) -> Result<i64> {
    let nothing = || Failure::new(Errno::NXIO, "the offset is past the end of the file");
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => position,
        libc::SEEK_END => file.len()? as i64,
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let from = u64::try_from(offset).map_err(|_| nothing())?;
            if from >= file.len()? {
                return Err(nothing());
            }
            file.refresh()?;
            let found = if whence == libc::SEEK_DATA {
                file.next_data(from)?
            } else {
                Some(file.next_hole(from)?)
            };
            return found.map(|at| at as i64).ok_or_else(nothing);
        }
        _ => return Err(Failure::new(Errno::INVAL, format!("whence {whence} is unknown"))),
    };
    let new = base
        .checked_add(offset)
        .ok_or(Failure::new(Errno::OVERFLOW, "the position would pass 2^63-1"))?;
    if new < 0 {
        Err(Failure::new(Errno::INVAL, "the position would be negative"))
    } else {
        Ok(new)
    }
}

/// Writes `n` vectors (at most 1,024) at the end of the file, as one piece: appends of this node's
/// processes never overlap. `*at` gets the offset where the piece begins, unless `at` is NULL.
/// Gives the bytes written; errors as plfs_pwrite.
///
/// Appends of processes on different nodes can overlap. The end is where the last truncate by
/// anybody left it, on a network file system as of some 10 ms ago.
///
/// # Safety
/// `file` is a handle, `iov` points to `n` vectors, `at` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_append(
    file: *mut PlfsFile,
    iov: *const iovec,
    n: c_int,
    at: *mut i64,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, vectors) = unsafe { (handle(file)?, vectors(iov, n)?) };
        let (offset, n) = match vectors {
            // SAFETY: as above.
            [one] => file.file.append(unsafe { bytes(one.iov_base, one.iov_len) }?)?,
            // SAFETY: as above.
            many => file.file.append(&unsafe { gathered(many) }?)?,
        };
        if !at.is_null() {
            // SAFETY: not NULL; the caller's promise.
            unsafe { *at = offset as i64 };
        }
        written(n as i64)
    }) as ssize_t
}

/// plfs_pread into `n` vectors, one after the other. -EINVAL if there are more than 1,024.
///
/// # Safety
/// `file` is a handle, `iov` points to `n` vectors with room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_preadv(
    file: *mut PlfsFile,
    iov: *const iovec,
    n: c_int,
    offset: i64,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, vectors, offset) =
            unsafe { (handle(file)?, vectors(iov, n)?, offset_arg(offset)?) };
        each(
            vectors,
            |one| one.iov_len,
            |one, done| {
                // SAFETY: each vector has room.
                let bytes = unsafe { bytes_mut(one.iov_base, one.iov_len) }?;
                Ok(file.file.read_at(bytes, offset + done as u64)?)
            },
        )
    }) as ssize_t
}

/// plfs_pwrite from `n` vectors, one after the other. -EINVAL if there are more than 1,024. Up to
/// 1 MiB in all is one write, which is copied together; of more, each vector is a write of its own:
/// others may read the first without the second, and write between the two.
///
/// # Safety
/// `file` is a handle, `iov` points to `n` vectors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_pwritev(
    file: *mut PlfsFile,
    iov: *const iovec,
    n: c_int,
    offset: i64,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, vectors, offset) =
            unsafe { (handle(file)?, vectors(iov, n)?, offset_arg(offset)?) };
        let length = vectors.iter().fold(0, |sum: usize, one| sum.saturating_add(one.iov_len));
        if vectors.len() > 1 && length <= GATHERED_BYTES {
            // SAFETY: as above.
            return written(file.file.write_at(&unsafe { gathered(vectors) }?, offset)? as i64);
        }
        let write = |one: &iovec, done| {
            // SAFETY: each vector points to its bytes.
            let bytes = unsafe { bytes(one.iov_base, one.iov_len) }?;
            Ok(file.file.write_at(bytes, offset + done as u64)?)
        };
        written(each(vectors, |one| one.iov_len, write)?)
    }) as ssize_t
}

/// All bytes of the vectors, in one piece.
///
/// # Safety
/// Each vector points to its bytes.
unsafe fn gathered(vectors: &[iovec]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for vector in vectors {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { bytes(vector.iov_base, vector.iov_len) }?);
    }
    Ok(all)
}

/// How many writes of a process that exits give its log sets up as well: what stdio flushes at the
/// end, and some more. Each has to join again, which takes a hundred times as long as the commit: a
/// handler of a timer took longer than the timer then, and the process never ended. What is not
/// given up the next user of the node takes over, as after SIGKILL.
const LEAVES_AT_EXIT: u32 = 16;

static LEFT_AT_EXIT: AtomicU32 = AtomicU32::new(0);

/// The end of every write: gives `n`. While the process exits it commits first, because nothing may
/// commit later.
pub(crate) fn written(n: i64) -> Result<i64> {
    if EXITING.load(Ordering::Relaxed) {
        match LEFT_AT_EXIT.fetch_add(1, Ordering::Relaxed) < LEAVES_AT_EXIT {
            true => plfs()?.leave_all()?,
            false => plfs()?.commit_all()?,
        }
    }
    Ok(n)
}

/// Moves pieces one after the other with `step(piece, bytes moved before)`, which gives the bytes
/// that it moved. Stops at the first that is not moved completely. An error is returned only if
/// nothing was moved before it; otherwise the next call, which begins there, returns it.
pub(crate) fn each<T>(
    pieces: &[T],
    length: impl Fn(&T) -> usize,
    step: impl Fn(&T, usize) -> Result<usize>,
) -> Result<i64> {
    let mut done = 0;
    for piece in pieces {
        match step(piece, done) {
            Ok(n) => {
                done += n;
                if n < length(piece) {
                    break;
                }
            }
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
    }
    Ok(done as i64)
}
