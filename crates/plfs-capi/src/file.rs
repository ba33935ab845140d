//! Handles: open, read, write, make visible, make durable.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libc::{iovec, mode_t, off_t, size_t, ssize_t, timespec};
use plfs_core::store::{Errno, Open, Stat, StoreFile, Time};
use plfs_core::{Access, File, OpenOptions, Opened};

use crate::{EXITING, Failure, Result, absolute, call, path_arg, plfs};

/// An open PLFS file.
pub struct PlfsFile {
    pub(crate) file: File,
    pub(crate) append: bool,
    position: Mutex<u64>,
    lock_file: OnceLock<Arc<dyn StoreFile>>,
}

impl PlfsFile {
    pub(crate) fn new(file: File, append: bool) -> *mut PlfsFile {
        Box::into_raw(Box::new(PlfsFile {
            file,
            append,
            position: Mutex::new(0),
            lock_file: OnceLock::new(),
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
unsafe fn bytes_mut<'a>(buf: *mut c_void, n: size_t) -> Result<&'a mut [u8]> {
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
unsafe fn vectors<'a>(iov: *const iovec, n: c_int) -> Result<&'a [iovec]> {
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

/// Opens a PLFS file; O_CREAT makes one if nothing is there. `flags` and `mode` as open(2). The
/// handle goes to `*out`; close it with plfs_close.
///
/// -EMEDIUMTYPE if the path names a file that is not PLFS's. Cost: three calls on the name, one on
/// the container.
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
    call(|| {
        if out.is_null() {
            return Err(Failure::new(Errno::FAULT, "the place for the handle is NULL"));
        }
        // SAFETY: the caller's promise.
        let path = absolute(libc::AT_FDCWD, unsafe { path_arg(path) }?)?;
        let options = OpenOptions {
            access: access_of(flags),
            create: flags & libc::O_CREAT != 0,
            exclusive: flags & libc::O_EXCL != 0,
            truncate: flags & libc::O_TRUNC != 0,
            mode: mode & 0o7777,
        };
        match plfs()?.open(&path, options)? {
            Opened::Logical(file) => {
                // SAFETY: not NULL; the caller's promise.
                unsafe { *out = PlfsFile::new(file, flags & libc::O_APPEND != 0) };
                Ok(0)
            }
            Opened::Plain(_) => Err(plfs_core::Error::NotAContainer { path }.into()),
        }
    }) as c_int
}

pub(crate) fn access_of(flags: c_int) -> Access {
    let mode = flags & libc::O_ACCMODE;
    Access { read: mode != libc::O_WRONLY, write: mode != libc::O_RDONLY }
}

/// Commits and closes. The handle is gone even if an error is returned; an error means that bytes
/// written through it may be lost.
///
/// # Safety
/// `file` is a handle, not used afterwards, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_close(file: *mut PlfsFile) -> c_int {
    call(|| {
        if file.is_null() {
            return Err(Failure::new(Errno::FAULT, "the handle is NULL"));
        }
        // SAFETY: made by Box::into_raw in PlfsFile::new; the caller gives it up.
        let handle = unsafe { Box::from_raw(file) };
        handle.file.close()?;
        Ok(0)
    }) as c_int
}

/// Reads up to `n` bytes at `offset`. 0 at the end of the file.
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

/// Writes `n` bytes at `offset`; gives the bytes written, fewer only if the storage is full behind
/// them.
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

/// plfs_pread into `n` vectors, at most 1,024.
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

/// plfs_pwrite from `n` vectors, at most 1,024.
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
        let write = |one: &iovec, done| {
            // SAFETY: each vector points to its bytes.
            let bytes = unsafe { bytes(one.iov_base, one.iov_len) }?;
            Ok(file.file.write_at(bytes, offset + done as u64)?)
        };
        written(each(vectors, |one| one.iov_len, write)?)
    }) as ssize_t
}

/// What every write ends with: `n`, and while the process exits a commit, because no later moment
/// may come.
pub(crate) fn written(n: i64) -> Result<i64> {
    if EXITING.load(Ordering::Relaxed) {
        plfs()?.leave_all()?;
    }
    Ok(n)
}

/// Moves pieces one after the other with `step(piece, bytes moved before)`, which gives the bytes
/// that it moved. Stops at the first that is not moved whole; an error counts only if nothing was
/// moved before it: else it comes at the next call, which begins there.
fn each<T>(
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

/// Writes `count` pieces of `length` bytes, one after the other from `buf`: piece i goes to `offset
/// + i * stride`. Gives the bytes written, as plfs_pwrite.
///
/// `stride` is in bytes and may be negative. -EINVAL if there are several pieces and its magnitude
/// is less than `length`, or if a piece would begin before the file; -EFBIG if one would end past
/// 2^63-1; then nothing is written. Costs what one plfs_pwrite of `length * count` bytes costs,
/// whatever `count` is: the bytes go to the storage in one piece, and the index gets one record,
/// which a call that goes on with the pattern of the one before makes longer.
///
/// # Safety
/// `file` is a handle, `buf` has `length * count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_pwrite_strided(
    file: *mut PlfsFile,
    buf: *const c_void,
    length: size_t,
    stride: i64,
    count: size_t,
    offset: i64,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, buf) = unsafe { (handle(file)?, bytes(buf, strided_bytes(length, count)?)?) };
        written(file.file.write_strided(buf, length, stride, offset_arg(offset)?)? as i64)
    }) as ssize_t
}

/// Reads `count` pieces of `length` bytes, one after the other into `buf`: piece i comes from
/// `offset + i * stride`. Gives the bytes read; stops at the first piece that the file does not
/// fill, or that cannot be read when others before it were: then the next call that begins there
/// gives the error.
///
/// Arguments and errors are plfs_pwrite_strided's. Costs one lookup in the index for each piece;
/// pieces that were written one after the other are fetched together.
///
/// # Safety
/// `file` is a handle, `buf` has room for `length * count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_pread_strided(
    file: *mut PlfsFile,
    buf: *mut c_void,
    length: size_t,
    stride: i64,
    count: size_t,
    offset: i64,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, buf) =
            unsafe { (handle(file)?, bytes_mut(buf, strided_bytes(length, count)?)?) };
        Ok(file.file.read_strided(buf, length, stride, offset_arg(offset)?)? as i64)
    }) as ssize_t
}

fn strided_bytes(length: size_t, count: size_t) -> Result<usize> {
    let bytes = length.checked_mul(count).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| {
        Failure::new(Errno::INVAL, format!("{count} pieces of {length} bytes are no buffer"))
    })
}

/// Writes `n` vectors at the end of the file, as one piece, atomically among the processes of this
/// node. `*at` (may be NULL) gets the offset.
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
        let (offset, written) = match vectors {
            // SAFETY: as above.
            [one] => file.file.append(unsafe { bytes(one.iov_base, one.iov_len) }?)?,
            many => {
                let mut all = Vec::new();
                for vector in many {
                    // SAFETY: as above.
                    all.extend_from_slice(unsafe { bytes(vector.iov_base, vector.iov_len) }?);
                }
                file.file.append(&all)?
            }
        };
        if !at.is_null() {
            // SAFETY: not NULL; the caller's promise.
            unsafe { *at = offset as i64 };
        }
        crate::file::written(written as i64)
    }) as ssize_t
}

/// One piece of a list: bytes [offset, offset + length) of the file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlfsExtent {
    /// Offset in the file.
    pub offset: i64,
    /// Bytes.
    pub length: size_t,
}

/// Reads `n` pieces of the file, one after the other into `buf`. Gives the bytes read; stops at the
/// first piece that the file does not fill, or that fails when others before it were read: then the
/// next call that begins there gives the error.
///
/// # Safety
/// `file` is a handle, `list` points to `n` extents, `buf` has room for all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_read_list(
    file: *mut PlfsFile,
    list: *const PlfsExtent,
    n: size_t,
    buf: *mut c_void,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, list) = unsafe { (handle(file)?, extents(list, n)?) };
        let read = |extent: &PlfsExtent, done| {
            // SAFETY: the buffer has room for all extents, and `done` is the sum of those before.
            let into =
                unsafe { bytes_mut(buf.cast::<u8>().wrapping_add(done).cast(), extent.length) }?;
            Ok(file.file.read_at(into, offset_arg(extent.offset)?)?)
        };
        each(list, |extent| extent.length, read)
    }) as ssize_t
}

/// Writes `n` pieces of the file, one after the other from `buf`. Gives the bytes written; stops at
/// the first piece for which the storage is full, or that fails when others before it were written:
/// then the next call that begins there gives the error. Pieces at regular distances cost less with
/// plfs_pwrite_strided.
///
/// # Safety
/// `file` is a handle, `list` points to `n` extents, `buf` has the bytes of all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_write_list(
    file: *mut PlfsFile,
    list: *const PlfsExtent,
    n: size_t,
    buf: *const c_void,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, list) = unsafe { (handle(file)?, extents(list, n)?) };
        let write = |extent: &PlfsExtent, done| {
            // SAFETY: the buffer has the bytes of all extents, and `done` is the sum of those
            // before.
            let from = unsafe { bytes(buf.cast::<u8>().wrapping_add(done).cast(), extent.length) }?;
            Ok(file.file.write_at(from, offset_arg(extent.offset)?)?)
        };
        written(each(list, |extent| extent.length, write)?)
    }) as ssize_t
}

/// # Safety
/// `list` points to `n` extents.
unsafe fn extents<'a>(list: *const PlfsExtent, n: size_t) -> Result<&'a [PlfsExtent]> {
    match n {
        0 => Ok(&[]),
        _ if list.is_null() => Err(Failure::new(Errno::FAULT, "the list is NULL")),
        // SAFETY: not NULL, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// Reads at the handle's position and moves it.
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

/// Writes at the handle's position, with O_APPEND at the end of the file, and moves it.
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

/// Moves the handle's position; SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE. Gives the new
/// one.
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

/// Where lseek would go from `position`; changes nothing. For callers that keep positions
/// themselves.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_seek(
    file: *mut PlfsFile,
    position: i64,
    offset: i64,
    whence: c_int,
) -> i64 {
    // SAFETY: the caller's promise.
    call(|| seek(&unsafe { handle(file) }?.file, position, offset, whence))
}

fn seek(file: &File, position: i64, offset: i64, whence: c_int) -> Result<i64> {
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

/// Makes everything that this process wrote to the file visible and durable; later reads see what
/// others committed until now.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_sync(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.sync().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Makes everything that this process wrote to the file visible to later opens and refreshes. Not
/// forced to storage.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_commit(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.commit().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Later reads see what others committed until now.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_refresh(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.refresh().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Commits every open file of the process, as closing would; handles stay usable. For the moments
/// before exec and _exit; exit(3) and fork(2) do it by themselves.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_commit_all() -> c_int {
    call(|| plfs()?.leave_all().map(|()| 0).map_err(Failure::from)) as c_int
}

/// What exit(3) does by itself, for the moment before _exit: commits every open file, and removes
/// the data of files that have no name any more.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_exit() -> c_int {
    call(|| plfs()?.exit().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Sets the size: cuts, or extends with a hole.
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

/// As fallocate(2): mode 0 extends the file (a log reserves no space), FALLOC_FL_KEEP_SIZE does
/// nothing, with PUNCH_HOLE or ZERO_RANGE the range becomes a hole, which costs no more than a
/// record in the index, however long it is; what it hides takes room until a compaction.
/// Other modes: -EOPNOTSUPP.
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
        let end = offset
            .checked_add(len)
            .ok_or(Failure::new(Errno::FBIG, "a file ends at 2^63-1 bytes"))?
            as u64;
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
        if !keep && end > file.len()? {
            file.set_len(end)?;
        }
        Ok(0)
    }) as c_int
}

/// Stat of the file.
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

/// # Safety
/// `out` is NULL or a place for a struct stat.
pub(crate) unsafe fn put_stat(stat: &Stat, out: *mut libc::stat) -> Result<i64> {
    use plfs_core::store::Kind;
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

/// What st_blksize tells programs to use: 1 MiB saves calls and still is a modest stdio buffer.
pub(crate) const BLOCK_BYTES: libc::blksize_t = 1 << 20;

/// Sets permission bits.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_fchmod(file: *mut PlfsFile, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.chmod(mode & 0o7777).map(|()| 0).map_err(Failure::from))
        as c_int
}

/// Sets owner and group; -1 leaves one as it is.
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
        let file = unsafe { handle(file) }?;
        file.file.chown(some(uid), some(gid)).map(|()| 0).map_err(Failure::from)
    }) as c_int
}

/// Sets access and modification time, as futimens(2): NULL means now, tv_nsec may be UTIME_NOW or
/// UTIME_OMIT.
///
/// # Safety
/// `file` is a handle, `times` is NULL or points to two timespecs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_futimens(file: *mut PlfsFile, times: *const timespec) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, times) = unsafe { (handle(file)?, times_arg(times)?) };
        file.file.set_times(times[0], times[1])?;
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

/// A descriptor on which fcntl(2) record locks of this file are to be taken. It belongs to the
/// handle and is closed with it.
///
/// The library does not hear of the locks: call plfs_refresh after a lock is granted and
/// plfs_commit before an unlock, else others' writes are not seen under the lock.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_lock_fd(file: *mut PlfsFile) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file) }?;
        if handle.lock_file.get().is_none() {
            let container = handle.file.container();
            let opened = container.store.open(&container.path("lock"), Open::create(0o666))?;
            let _ = handle.lock_file.set(opened);
        }
        let fd =
            handle.lock_file.get().and_then(|file| file.fd()).ok_or(Failure::from(Errno::NOLCK))?;
        Ok(fd.as_raw_fd() as i64)
    }) as c_int
}
