//! One index for many processes that open or close a file together (mpi/)

use std::ffi::{c_int, c_void};

use libc::{size_t, ssize_t};
use plfs_core::CommitHorizon;
use plfs_core::store::{Errno, Open, fd_path};

use crate::handle::{PlfsFile, bytes, handle};
use crate::{Result, call, plfs};

/// The bytes of index logs that the first read of the file would load, so that processes can decide
/// whether to load them together. 0 if a flat index has everything.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_pending(file: *mut PlfsFile) -> i64 {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { handle(file) }?.file.index_pending()?.min(i64::MAX as u64) as i64))
}

/// For processes that load an index together: the share `part` of `parts` (counted from 0), every
/// parts-th index log, as bytes that plfs_door_index_merge takes. All shares merged are everything
/// that was committed before the first call. Part 0 contains the flat index; the others may be
/// nearly empty. Gives the length. Shares may be merged if not one of them is doubtful and one (the
/// same or another) durable: bits 0 and 1 of `*standing`.
///
/// # Safety
/// `file` is a handle, `out` a place for a pointer; free it with plfs_door_free. `standing` is a
/// place for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_part(
    file: *mut PlfsFile,
    part: u32,
    parts: u32,
    standing: *mut c_int,
    out: *mut *mut c_void,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        not_null(out)?;
        not_null(standing)?;
        let (bytes, found) = file.file.index_part(part, parts)?;
        // SAFETY: the caller's promise.
        unsafe {
            *standing = c_int::from(found.is_doubtful) | c_int::from(found.is_durable) << 1;
            give(bytes, out)
        }
    }) as ssize_t
}

/// For processes that close a file together: what this node's processes committed and no flat index
/// has yet, as bytes that plfs_door_index_merge takes; if `with_base` is not 0, the flat index as
/// well. To be called by one process of each node, with the base by one of all. Gives the length.
/// `*doubtful` is not 0 if some of the data may not be durable: if that is so for any part, all are
/// to be merged as such. -EAGAIN if only who has the whole index can tell what it is worth.
///
/// # Safety
/// As plfs_door_index_part; `doubtful` is a place for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_own(
    file: *mut PlfsFile,
    with_base: c_int,
    doubtful: *mut c_int,
    out: *mut *mut c_void,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        not_null(out)?;
        not_null(doubtful)?;
        let (bytes, standing) = file.file.index_own(with_base != 0)?;
        // SAFETY: the caller's promise.
        unsafe {
            *doubtful = c_int::from(standing.is_doubtful);
            give(bytes, out)
        }
    }) as ssize_t
}

/// Merges `n` parts of the index of `file`; regular patterns stay patterns. Gives the length. -EIO
/// if a part is damaged or of another file. If `doubtful` is not 0, -EAGAIN if the parts may have a
/// byte of the file in common.
///
/// # Safety
/// `parts` and `lengths` have `n` elements, part i has lengths[i] bytes; `file` and `out` as for
/// plfs_door_index_part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_merge(
    file: *mut PlfsFile,
    parts: *const *const c_void,
    lengths: *const size_t,
    n: u32,
    doubtful: c_int,
    out: *mut *mut c_void,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        not_null(out)?;
        not_null(parts)?;
        not_null(lengths)?;
        // SAFETY: the caller's promise.
        let (parts, lengths) = unsafe {
            (
                std::slice::from_raw_parts(parts, n as usize),
                std::slice::from_raw_parts(lengths, n as usize),
            )
        };
        // SAFETY: the caller's promise.
        let parts = parts
            .iter()
            .zip(lengths)
            .map(|(part, length)| unsafe { bytes(*part, *length) })
            .collect::<Result<Vec<_>>>()?;
        let merged = match doubtful {
            0 => file.file.index_merge(&parts)?,
            _ => file.file.index_merge_apart(&parts)?,
        };
        // SAFETY: the caller's promise.
        unsafe { give(merged, out) }
    }) as ssize_t
}

/// Makes the handle read by a merged index that lies in the file `fd`, from its start to its end:
/// of a node's processes one writes it (to a memfd, or below /dev/shm) and all map it. The caller
/// closes `fd`; the file must not change. Refreshing later reads what was committed since.
///
/// # Safety
/// `file` is a handle, `fd` is open for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_use(file: *mut PlfsFile, fd: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        let path = std::path::PathBuf::from(fd_path(fd));
        let map = plfs()?.store().open(&path, Open::READ)?.map()?;
        file.file.index_use(map)?;
        Ok(0)
    }) as c_int
}

/// Stores a merged index in the container as its flat index. Atomic. What is committed later is
/// read from the logs, so it does not become wrong. Not forced to storage.
///
/// # Safety
/// `file` is a handle open for writing, `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_index_store(
    file: *mut PlfsFile,
    data: *const c_void,
    length: size_t,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (handle(file)?, bytes(data, length)?) };
        file.file.index_store(data)?;
        Ok(0)
    }) as c_int
}

/// Frees what plfs_door_index_part, plfs_door_index_own and plfs_door_index_merge gave. NULL:
/// nothing.
///
/// # Safety
/// `bytes` came from one of them and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_free(bytes: *mut c_void) {
    // SAFETY: the caller's promise; `give` took it from malloc.
    unsafe { libc::free(bytes) }
}

/// Hands `bytes` to the caller, who frees them with plfs_door_free.
unsafe fn give(bytes: Vec<u8>, out: *mut *mut c_void) -> Result<i64> {
    // SAFETY: malloc has no conditions; never 0 bytes, so that NULL is a failure.
    let copy = unsafe { libc::malloc(bytes.len().max(1)) };
    if copy.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: fresh memory of that length; the caller promises a place for the pointer.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast::<u8>(), bytes.len());
        *out = copy;
    }
    Ok(bytes.len() as i64)
}

fn not_null<T>(pointer: *const T) -> Result<()> {
    if pointer.is_null() { Err(Errno::FAULT.into()) } else { Ok(()) }
}

/// Up to where others have committed: what a writer must know before its first write.
#[repr(C)]
pub struct PlfsHorizon {
    /// Largest stamp of a commit.
    pub stamp: u64,
    /// Not 0 if nothing was ever written.
    pub is_new: c_int,
}

/// For processes that open a file together to write: reads from all index logs what a writer must
/// know. One process does so and sends the result to the others, which pass it to
/// plfs_door_horizon_set and read no logs.
///
/// # Safety
/// `file` is a handle, `out` a place for a plfs_horizon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_horizon_get(
    file: *mut PlfsFile,
    out: *mut PlfsHorizon,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        not_null(out)?;
        let seen = file.file.commit_horizon()?;
        // SAFETY: not NULL, and the caller's promise.
        unsafe { out.write(PlfsHorizon { stamp: seen.max_stamp, is_new: seen.is_new.into() }) };
        Ok(0)
    }) as c_int
}

/// Orders what this process writes behind the commits that another process has read
/// (plfs_door_horizon_get). To be called before the first write through any handle of the file;
/// later it has no effect.
///
/// # Safety
/// `file` is a handle, `seen` points to a plfs_horizon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_horizon_set(
    file: *mut PlfsFile,
    seen: *const PlfsHorizon,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file) }?;
        not_null(seen)?;
        // SAFETY: not NULL, and the caller's promise.
        let seen = unsafe { &*seen };
        file.file
            .set_commit_horizon(CommitHorizon { max_stamp: seen.stamp, is_new: seen.is_new != 0 });
        Ok(0)
    }) as c_int
}
