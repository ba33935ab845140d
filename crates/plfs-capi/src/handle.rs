//! Open
//!
//! and what all exports on handles need: the handle, and checks of arguments.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use libc::{iovec, mode_t, size_t};
use plfs_core::store::{Errno, Kind, StoreFile};
use plfs_core::{Access, File, OpenOptions, StandIn, Writers};

use crate::default_dir::before_open;
use crate::{Failure, Result, absolute, call, path_arg, plfs};

/// An open PLFS file.
pub struct PlfsFile {
    pub(crate) file: File,
    pub(crate) append: bool,
    pub(crate) position: Mutex<u64>,
    pub(crate) lock_file: OnceLock<Arc<dyn StoreFile>>,
    pub(crate) process_lock_file: OnceLock<Arc<dyn StoreFile>>,
    pub(crate) flock_file: OnceLock<Arc<dyn StoreFile>>,
    /// A handle on a plain file has a descriptor of its own.
    pub(crate) owns: Mutex<bool>,
    /// Of a file of a pack: what its placeholder is open on, if this process made that.
    pub(crate) stand_in: Option<Arc<StandIn>>,
}

impl PlfsFile {
    #[inline]
    pub(crate) fn new(file: File, append: bool) -> *mut PlfsFile {
        PlfsFile::with_placeholder(file, append, None)
    }

    #[inline]
    pub(crate) fn with_placeholder(
        file: File,
        append: bool,
        stand_in: Option<Arc<StandIn>>,
    ) -> *mut PlfsFile {
        Box::into_raw(Box::new(PlfsFile {
            file,
            append,
            position: Mutex::new(0),
            lock_file: OnceLock::new(),
            process_lock_file: OnceLock::new(),
            flock_file: OnceLock::new(),
            owns: Mutex::new(false),
            stand_in,
        }))
    }
}

/// # Safety
/// `file` is NULL or a handle that is not closed.
pub(crate) unsafe fn handle<'a>(file: *const PlfsFile) -> Result<&'a PlfsFile> {
    // SAFETY: the caller's promise.
    unsafe { file.as_ref() }.ok_or_else(|| Failure::new(Errno::FAULT, "the handle is NULL"))
}

pub(crate) fn offset_arg(offset: i64) -> Result<u64> {
    u64::try_from(offset)
        .map_err(|_| Failure::new(Errno::INVAL, format!("the offset {offset} is negative")))
}

/// # Safety
/// `buf` points to `n` readable bytes, or `n` is 0.
pub(crate) unsafe fn bytes<'a>(buf: *const c_void, n: size_t) -> Result<&'a [u8]> {
    if n == 0 {
        return Ok(&[]);
    }
    if buf.is_null() {
        return Err(Failure::new(Errno::FAULT, "the buffer is NULL"));
    }
    // SAFETY: not NULL, and the caller's promise. Lengths past isize::MAX cannot be one object.
    Ok(unsafe { std::slice::from_raw_parts(buf.cast(), n.min(isize::MAX as usize)) })
}

/// # Safety
/// `buf` points to `n` writable bytes that nobody else uses, or `n` is 0.
pub(crate) unsafe fn bytes_mut<'a>(buf: *mut c_void, n: size_t) -> Result<&'a mut [u8]> {
    if n == 0 {
        return Ok(&mut []);
    }
    if buf.is_null() {
        return Err(Failure::new(Errno::FAULT, "the buffer is NULL"));
    }
    // SAFETY: as above. The bytes may be uninitialised for Rust, but are only written, as u8,
    // before they are read.
    Ok(unsafe { std::slice::from_raw_parts_mut(buf.cast(), n.min(isize::MAX as usize)) })
}

/// # Safety
/// `iov` points to `n` vectors.
pub(crate) unsafe fn vectors<'a>(iov: *const iovec, n: c_int) -> Result<&'a [iovec]> {
    let n = usize::try_from(n).ok().filter(|n| *n <= 1024).ok_or_else(|| {
        Failure::new(Errno::INVAL, "the number of vectors is not between 0 and 1,024")
    })?;
    if n == 0 {
        return Ok(&[]);
    }
    if iov.is_null() {
        return Err(Failure::new(Errno::FAULT, "the vectors are NULL"));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(iov, n) })
}

/// Opens the file `path`, or with O_CREAT makes it if nothing is there. `flags` and `mode` are
/// those of open(2); O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC and O_APPEND have a
/// meaning, others are ignored. `*out` gets the handle, which plfs_close frees.
///
/// An open is an acquire: the handle sees what every process has committed until now.
///
/// Errors: those of open(2), and -EMEDIUMTYPE if the path names something that is not a regular
/// file.
/// Cost: three system calls on the name and one on the container; the index is loaded by the first
/// read.
///
/// # Safety
/// `path` is a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_open(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    out: *mut *mut PlfsFile,
) -> c_int {
    // SAFETY: the caller's promises.
    call(|| unsafe { open_for(path, flags, mode, Writers::Unknown, out) }) as c_int
}

/// # Safety
/// As plfs_open.
pub(crate) unsafe fn open_for(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    writers: Writers,
    out: *mut *mut PlfsFile,
) -> Result<i64> {
    if out.is_null() {
        return Err(Failure::new(Errno::FAULT, "the place for the handle is NULL"));
    }
    // SAFETY: the caller's promise.
    let path = absolute(libc::AT_FDCWD, unsafe { path_arg(path) }?)?;
    before_open(&path, flags & libc::O_CREAT != 0)?;
    let options = OpenOptions {
        access: access_of(flags),
        create: flags & libc::O_CREAT != 0,
        exclusive: flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        mode: mode & 0o7777,
        writers,
    };
    let file = plfs()?.open(&path, options)?.file();
    if file.plain_file().is_some() {
        let kind = file.stat()?.kind;
        if kind != Kind::File {
            return Err(plfs_core::Error::NotAContainer { path: path.into_owned() }.into());
        }
    }
    // SAFETY: not NULL; the caller's promise.
    unsafe { *out = PlfsFile::new(file, flags & libc::O_APPEND != 0) };
    Ok(0)
}

pub(crate) fn access_of(flags: c_int) -> Access {
    let mode = flags & libc::O_ACCMODE;
    Access { read: mode != libc::O_WRONLY, write: mode != libc::O_RDONLY }
}
