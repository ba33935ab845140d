//! Directories

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use plfs_core::store::Errno;

use crate::{Failure, absolute, call, path_arg, plfs};

/// An open directory listing.
pub struct PlfsDir {
    names: std::vec::IntoIter<CString>,
    current: CString,
}

/// Lists the directory `path` as of now, in no order, without `.`, `..` and PLFS's own directory.
/// `*out` gets the listing, which plfs_closedir frees. Memory: all names.
///
/// # Safety
/// `path` is a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_opendir(path: *const c_char, out: *mut *mut PlfsDir) -> c_int {
    call(|| {
        if out.is_null() {
            return Err(Failure::new(Errno::FAULT, "the place for the listing is NULL"));
        }
        // SAFETY: the caller's promise.
        let path = absolute(libc::AT_FDCWD, unsafe { path_arg(path) }?)?;
        let entries = plfs()?.store().list(&path).map_err(|errno| {
            Failure::new(errno, format!("cannot list {}: {errno}", path.display()))
        })?;
        let names = entries
            .into_iter()
            .filter(|entry| !plfs_core::is_hidden(&entry.name))
            .filter_map(|entry| CString::new(entry.name.into_vec()).ok());
        let listing =
            PlfsDir { names: names.collect::<Vec<_>>().into_iter(), current: CString::default() };
        // SAFETY: not NULL; the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(listing)) };
        Ok(0)
    }) as c_int
}

/// Gives the next name, or NULL after the last one. Valid until the next call on the listing, which
/// one thread uses at a time.
///
/// # Safety
/// `dir` is a listing that one thread uses at a time, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_readdir(dir: *mut PlfsDir) -> *const c_char {
    // SAFETY: the caller's promise.
    let Some(dir) = (unsafe { dir.as_mut() }) else { return std::ptr::null() };
    match dir.names.next() {
        Some(name) => {
            dir.current = name;
            dir.current.as_ptr()
        }
        None => std::ptr::null(),
    }
}

/// Frees a listing.
///
/// # Safety
/// `dir` is a listing, not used afterwards, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_closedir(dir: *mut PlfsDir) -> c_int {
    if dir.is_null() {
        return -libc::EFAULT;
    }
    // SAFETY: made by Box::into_raw in plfs_opendir; the caller gives it up.
    drop(unsafe { Box::from_raw(dir) });
    0
}
