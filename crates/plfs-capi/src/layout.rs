//! Where the bytes are, and how to put them in order

use std::ffi::{CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use plfs_core::store::Errno;

use crate::handle::{PlfsFile, handle, offset_arg};
use crate::path::on_path;
use crate::{Failure, call, plfs};

/// One visible piece of a file.
#[repr(C)]
pub struct PlfsMapping {
    /// Where it begins in the file, in bytes.
    pub logical: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Where it begins in the data log, in bytes.
    pub physical: u64,
    /// Path of the data log. Valid during the callback.
    pub data_log: *const c_char,
}

/// Calls `visit` for every piece of [offset, offset + length) that was written, in ascending order;
/// what is left out is holes. The walk ends when `visit` gives a value other than 0, and returns
/// that value. It shows the commits of others until now, and the process's own writes.
///
/// `piece` is valid during the call of `visit`, which may call any function of PLFS. Cost: the
/// loaded index; memory for all pieces of the range.
///
/// # Safety
/// `file` is a handle; `visit` may be called with `user` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_map(
    file: *mut PlfsFile,
    offset: i64,
    length: i64,
    visit: Option<unsafe extern "C" fn(piece: *const PlfsMapping, user: *mut c_void) -> c_int>,
    user: *mut c_void,
) -> c_int {
    let mut pieces = Vec::new();
    let looked = call(|| {
        // SAFETY: the caller's promise.
        let file = &unsafe { handle(file) }?.file;
        let (from, length) = (offset_arg(offset)?, offset_arg(length)?);
        if visit.is_none() {
            return Err(Failure::new(Errno::FAULT, "the callback is NULL"));
        }
        file.refresh()?;
        pieces = file.extents(from, from.saturating_add(length))?;
        Ok(0)
    });
    let (0, Some(visit)) = (looked, visit) else { return looked as c_int };
    // Outside of the call: the callback may call PLFS itself.
    for piece in pieces {
        let data_log = CString::new(piece.data_log.as_os_str().as_bytes()).unwrap_or_default();
        let mapping = PlfsMapping {
            logical: piece.logical,
            length: piece.length,
            physical: piece.physical,
            data_log: data_log.as_ptr(),
        };
        // SAFETY: the caller's promise; the mapping lives through the call.
        let answer = unsafe { visit(&mapping, user) };
        if answer != 0 {
            return answer;
        }
    }
    0
}

/// Merges the file's index logs into one flat index, which later opens map instead of reading the
/// logs. The last process that closes a file does this by itself where it is cheap. Readers and
/// writers are not disturbed. Not forced to storage: the flat index can be made again.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_flatten(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(path, |path| Ok(plfs()?.flatten(path).map(|_| 0)?)) }
}

/// Frees the bytes of a file that were overwritten or cut: copies what it has to new logs, in the
/// order of the file, and removes the old ones. The name, times and mode stay. Readers are not
/// disturbed, and writers may come meanwhile; -EBUSY if another process has the file open for
/// writing already.
///
/// Takes room for a second copy until it is done. Durable on return; an error or a crash leaves the
/// file as it was.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_compact(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| Ok(plfs()?.compact(path, |_| ControlFlow::Continue(())).map(|_| 0)?))
    }
}
