//! Where the bytes of a file are.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use plfs_core::store::Errno;

use crate::file::{PlfsFile, handle, offset_arg};
use crate::{Failure, call};

/// One visible piece of a file.
#[repr(C)]
pub struct PlfsMapping {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the data log.
    pub physical: u64,
    /// Path of the data log. Valid during the callback.
    pub data_log: *const c_char,
}

/// Calls `visit` for every piece of [offset, offset + length) that was written, ascending; what is left out is holes. A value other than 0 from `visit` ends the walk
/// and is returned.
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
        let mapping = PlfsMapping { logical: piece.logical, length: piece.length, physical: piece.physical, data_log: data_log.as_ptr() };
        // SAFETY: the caller's promise; the mapping lives through the call.
        let answer = unsafe { visit(&mapping, user) };
        if answer != 0 {
            return answer;
        }
    }
    0
}
