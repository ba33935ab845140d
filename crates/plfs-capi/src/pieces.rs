//! Many pieces in one call: strided, or as a list

use std::ffi::c_void;

use libc::{size_t, ssize_t};
use plfs_core::store::Errno;

use crate::handle::{PlfsFile, bytes, bytes_mut, handle, offset_arg};
use crate::io::{each, written};
use crate::{Failure, Result, call};

/// Writes `count` pieces of `length` bytes each, which lie one after the other in `buf`: piece i
/// goes to `offset + i * stride`. Gives the bytes written, in the order of `buf`; otherwise as
/// plfs_pwrite.
///
/// `stride` is in bytes, from the start of one piece to the start of the next, and may be negative.
/// -EINVAL if there are several pieces and the magnitude of `stride` is less than `length`, or if a
/// piece would begin before the file; -EFBIG if one would end past 2^63-1; then nothing is written.
/// Cost: that of one plfs_pwrite of `length * count` bytes: one append to a log, and one record in
/// the index, which the next call that continues the pattern makes longer.
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

/// Reads `count` pieces of `length` bytes each, one after the other into `buf`: piece i comes from
/// `offset + i * stride`. Gives the bytes read. Stops at the first piece that the file does not
/// fill. An error is returned only if it concerns the first piece; otherwise the call stops before
/// it, and the next call that begins there returns it.
///
/// Arguments and their errors as plfs_pwrite_strided. Cost: one lookup in the index for each piece;
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

/// One piece of a list: bytes [offset, offset + length) of the file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlfsExtent {
    /// Where it begins in the file, in bytes.
    pub offset: i64,
    /// Its length in bytes.
    pub length: size_t,
}

/// Writes the `n` pieces of `list`, which lie one after the other in `buf`. Gives the bytes
/// written. Stops at the first piece for which the storage is full; errors as plfs_pread_strided.
/// Cost: a record in the index for each piece that continues no pattern. Pieces at equal distances
/// cost less with plfs_pwrite_strided.
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

/// Reads the `n` pieces of `list`, one after the other into `buf`. Gives the bytes read. Stops at
/// the first piece that the file does not fill; errors as plfs_pread_strided.
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
