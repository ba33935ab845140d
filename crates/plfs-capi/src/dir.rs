//! Directories

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use plfs_core::store::Errno;

use crate::path::on_path;
use crate::{Failure, absolute, call, path_arg, plfs};

/// An open directory listing.
pub struct PlfsDir {
    names: Vec<(CString, u64, u8)>,
    next: usize,
}

impl PlfsDir {
    /// Of names, inode numbers and what readdir says of kinds; a name with a zero byte is none.
    pub(crate) fn new(names: impl Iterator<Item = (Vec<u8>, u64, u8)>) -> *mut PlfsDir {
        let entry = |(name, ino, kind)| Some((CString::new(name).ok()?, ino, kind));
        Box::into_raw(Box::new(PlfsDir { names: names.filter_map(entry).collect(), next: 0 }))
    }

    pub(crate) fn name(&self, number: usize) -> Option<&(CString, u64, u8)> {
        self.names.get(number)
    }
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
        let entries = plfs()?.list(&path)?;
        let names = entries.into_iter().map(|entry| (entry.name.into_vec(), 0, 0));
        // SAFETY: not NULL; the caller's promise.
        unsafe { *out = PlfsDir::new(names) };
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
    dir.next += 1;
    dir.name(dir.next - 1).map_or(std::ptr::null(), |(name, ..)| name.as_ptr())
}

/// Makes the directory `path`, which has to be empty, a flat one: the names of files in it, and in
/// directories that are made in it, are spread over all backends of its root, so that creates do
/// not wait for one metadata server. From then on its names are found by these functions and by
/// programs under `plfs run`, not by the system's calls, nor in a mount, which refuses them.
/// -ENOTEMPTY if it is not empty. Durable on return; other processes know it within a second.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_make_flat(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            let own = plfs()?.own_layout(path)?.unwrap_or_default();
            Ok(plfs()?.make_flat(path, &own).map(|()| 0)?)
        })
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
