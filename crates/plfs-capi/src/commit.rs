//! Make visible, make durable, close

use std::ffi::c_int;

use plfs_core::store::Errno;

use crate::handle::{PlfsFile, handle};
use crate::{Failure, call, plfs};

/// Makes everything that this process wrote to the file visible to every later acquire, on every
/// node. Not forced to storage: a power loss may take it (plfs_sync).
///
/// Errors: -EIO, -ENOSPC, -EDQUOT if bytes could not be stored; -ESTALE if somebody declared this
/// node dead (`plfs check --clear-marks`) while it wrote: what it wrote since its last commit is
/// lost. Cost: one append to the index log, after the buffered data.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_commit(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.commit().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Makes everything that this process wrote to the file visible and durable, also through other
/// handles, and the file's name if it is new. It is an acquire as well: later reads see what others
/// committed until now.
///
/// Errors as plfs_commit. Cost: one fsync of each data log with new bytes and one of the index log;
/// processes of a node that sync at once share them. Other threads read and write meanwhile.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_sync(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.sync().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Lets later reads see what others committed until now (an acquire). Cost: one look at each index
/// log of the file, and a read of what is new.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_refresh(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(file) }?.file.refresh().map(|()| 0).map_err(Failure::from)) as c_int
}

/// Commits what was written through the handle, and frees it. Later opens by anybody see the bytes;
/// as with close(2) they need not be durable (plfs_sync, or PLFS_SYNC_ON_CLOSE=1).
///
/// The handle is gone even if an error is returned. An error (-EIO, -ENOSPC, -EDQUOT, -ESTALE) says
/// that bytes written through it may be lost.
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
        let mut handle = unsafe { Box::from_raw(file) };
        handle.file.end()?;
        Ok(0)
    }) as c_int
}

/// plfs_commit for every open file of the process, and gives up its place among the node's writers
/// until the next write; handles stay usable. For the moment before exec or _exit, where nothing
/// would commit: exit(3) and fork(2) do this by themselves, and exit(3) says on stderr if bytes are
/// lost. Gives the first error.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_commit_all() -> c_int {
    call(|| plfs()?.leave_all().map(|()| 0).map_err(Failure::from)) as c_int
}

/// plfs_commit_all, and removes the data of open files whose last name is gone. exit(3) does this
/// by itself; for the moment before _exit.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_exit() -> c_int {
    call(|| plfs()?.exit().map(|()| 0).map_err(Failure::from)) as c_int
}
