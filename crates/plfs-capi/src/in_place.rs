//! Plain files that are used through the kernel (preload/, mpi/)

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use plfs_core::store::{Errno, PosixFile, StoreFile};
use plfs_core::{Entry, LOOK_BYTES, OpenOptions, Written};

use crate::handle::{PlfsFile, access_of, handle};
use crate::{Failure, borrow, call, link_of, plfs, plfs_if_there};

/// A handle on a plain file that only reads, for a descriptor that was opened so: it is lent `fd`,
/// which stays open as long as the handle, and looks at its first call whether the file has a
/// container.
///
/// # Safety
/// `fd` is open, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_read_in_place(fd: c_int, out: *mut *mut PlfsFile) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (lent, out) = unsafe { (Arc::new(PosixFile::lent(fd)), out.as_mut()) };
        let out = out.ok_or_else(|| Failure::from(Errno::FAULT))?;
        let stat = lent.stat()?;
        let file = plfs()?.opened_plain(lent, &stat, &link_of(fd)?, OpenOptions::read())?.file();
        file.look_first();
        *out = PlfsFile::new(file, false);
        Ok(0)
    }) as c_int
}

/// A plain file that the preload library has made, and writes in place without a handle: by the
/// rules of one (docs/decisions/0013), of which this is what has to be known.
#[repr(C)]
pub struct plfs_in_place {
    /// Device and inode.
    pub dev: u64,
    /// The same.
    pub ino: u64,
    /// Not 0 there: the next call must look, as somebody has said that there is a container. NULL:
    /// the process is not in the node's table for it, and a handle is to be made.
    pub flag: *const u64,
    /// Which entry of the table.
    pub slot: usize,
    /// The same.
    pub key: u64,
    /// The same.
    pub me: u64,
    /// What was written since the last look: from where on.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
    /// From when on: nanoseconds since 1970, asked for before the first of them was written.
    pub since_ns: u64,
    /// Not 0: something was written, be it before the last look.
    pub is_written: c_int,
    /// Not 0: the next call must look.
    pub must_look: c_int,
}

impl plfs_in_place {
    fn entry(&self) -> Option<Entry> {
        let Self { slot, key, me, .. } = *self;
        (!self.flag.is_null()).then_some(Entry { slot, key, me })
    }
}

/// Bytes after which who writes in place looks.
pub const PLFS_LOOK_BYTES: u64 = 1 << 20;

const _: () = assert!(PLFS_LOOK_BYTES == LOOK_BYTES);

/// Enters the process in the node's table as the writer of a plain file that it has made, of which
/// `at` has device and inode, and nothing else yet. 0: it needs a handle, as the first one of the
/// process. Some atomic operations, behind no gate.
///
/// # Safety
/// `at` points to a plfs_in_place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_enter(at: *mut plfs_in_place) -> c_int {
    // SAFETY: the caller's promise.
    let Some((plfs, at)) = plfs_if_there().zip(unsafe { at.as_mut() }) else { return 0 };
    let Some(entry) = plfs.enter_in_place((at.dev, at.ino)) else { return 0 };
    (at.slot, at.key, at.me) = (entry.slot, entry.key, entry.me);
    at.flag = plfs.flag_in_place(entry);
    1
}

/// The file is closed, and there is nothing to be handed over. Takes no lock.
///
/// # Safety
/// `at` points to a plfs_in_place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_leave(at: *const plfs_in_place) {
    // SAFETY: the caller's promise.
    let entry = unsafe { at.as_ref() }.and_then(plfs_in_place::entry);
    if let Some((plfs, entry)) = plfs_if_there().zip(entry) {
        plfs.leave_in_place(entry);
    }
}

/// A handle on the file of `at`, which is open as `fd` with these flags: it is lent `fd`, as by
/// plfs_door_open, and goes on from what was written. `at` is of no use any more.
///
/// # Safety
/// `fd` is open, `at` points to a plfs_in_place, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_write_in_place(
    fd: c_int,
    flags: c_int,
    at: *const plfs_in_place,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (lent, at, out) = unsafe { (Arc::new(PosixFile::lent(fd)), at.as_ref(), out.as_mut()) };
        let (at, out) = at.zip(out).ok_or_else(|| Failure::from(Errno::FAULT))?;
        let written = Written {
            entry: at.entry(),
            start: at.start,
            bytes: at.bytes,
            since_ns: at.since_ns,
            is_written: at.is_written != 0,
            must_look: at.must_look != 0,
        };
        let (identity, path) = ((at.dev, at.ino), link_of(fd)?);
        let file = plfs()?.written_in_place(lent, identity, &path, access_of(flags), &written);
        *out = PlfsFile::new(file, false);
        Ok(0)
    }) as c_int
}

/// 1 if this machine is the only client of the file system `dev`, on which `fd` is open.
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_local(fd: c_int, dev: u64) -> c_int {
    call(|| Ok(i64::from(plfs()?.is_local(dev, &link_of(fd)?)))) as c_int
}

/// 1 if each open of a path on the file system of `fd` asks the servers for attributes and leaves
/// them with the kernel, where statx(2) with AT_STATX_DONT_SYNC finds them right after it.
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open_asks(fd: c_int) -> c_int {
    call(|| Ok(i64::from(plfs()?.store().open_asks(&link_of(fd)?)))) as c_int
}

/// 1 once this process has used a container that was a plain file: its descriptors on such files
/// may be on one. Cheap.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_uses_bases() -> c_int {
    plfs_if_there().map_or(0, |plfs| c_int::from(plfs.uses_bases()))
}

/// 1 if this process has a file open whose container has the inode `ino` of the device `dev` as its
/// base. Only the paths of descriptors (/proc/self/fd/N, /dev/stdin) lead there. Cheap.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_has_base(dev: u64, ino: u64) -> c_int {
    plfs_if_there().map_or(0, |plfs| c_int::from(plfs.has_base(dev, ino)))
}

/// 1 if this process has had a plain file open on the device `dev`: somebody may have made a
/// container of it since. Cheap.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_knows_device(dev: u64) -> c_int {
    plfs_if_there().map_or(0, |plfs| c_int::from(plfs.knows_device(dev)))
}

/// 1 if the file of a handle is plain, as far as this process knows: what is in the descriptor is
/// the file. It can become one with a container at any call but never the other way.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_plain(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { file.as_ref() }.map_or(-libc::EFAULT, |handle| c_int::from(handle.file.is_plain()))
}

/// 1 if the last name of the file of a handle is gone, and it has a container that was a plain
/// file: a descriptor on what was that hinders the removal, so it goes before the handle does.
/// Looks whether the file is plain still.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_base_without_name(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| Ok(i64::from(unsafe { handle(file)? }.file.is_base_without_name()))) as c_int
}

/// Decides that a plain file stays plain for ever, because it is written from now on in a way that
/// PLFS does not see; `why` is for people. 1 if it is plain then, 0 if it has a container.
///
/// # Safety
/// `file` is a handle, `why` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_pin(file: *mut PlfsFile, why: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, why) = unsafe { (handle(file)?, CStr::from_ptr(why)) };
        Ok(i64::from(file.file.pin(&why.to_string_lossy())?))
    }) as c_int
}

/// A handle that was opened on a plain file gets a descriptor of its own, a copy of `fd`: from now
/// on the number that it was opened with may go before the handle does. Waits for calls that use
/// that. A negative `fd`: it gets none, and what needs one fails with EBADF. 1: it has got one, 0:
/// it needs none, or has one. Error: -EMFILE, and then nothing has changed.
///
/// # Safety
/// `file` is a handle that uses `fd`, which is open or negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_own(file: *mut PlfsFile, fd: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file)? };
        if !handle.file.was_plain() {
            return Ok(0);
        }
        // Another thread that comes meanwhile waits until the number is used no more.
        let mut owns = handle.owns.lock().unwrap_or_else(PoisonError::into_inner);
        if *owns {
            return Ok(0);
        }
        let own = match fd {
            // SAFETY: the caller's promise.
            0.. => PosixFile::copy_of(unsafe { borrow(fd)? })?,
            // SAFETY: no limit lets a process have this number.
            _ => unsafe { PosixFile::lent(c_int::MAX) },
        };
        drop(handle.file.replace_open(Arc::new(own)));
        *owns = true;
        Ok(1)
    }) as c_int
}

/// Where [`plfs_door_own`] finds no descriptor: the handle goes on with `fd`, as if it had been
/// opened with that number. `keeps` is not 0: the number is PLFS's from now on, and closed with the
/// handle. Waits for calls that use the other number. 1: it does, 0: it needs none, or has one of
/// its own.
///
/// # Safety
/// `file` is a handle, `fd` is open on its file by the same open. Unless it keeps the number that
/// stays open until plfs_door_own or this is called again; if it does, the program uses it no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_go_on(file: *mut PlfsFile, fd: c_int, keeps: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file)? };
        let mut owns = handle.owns.lock().unwrap_or_else(PoisonError::into_inner);
        if *owns || !handle.file.was_plain() {
            return Ok(0);
        }
        *owns = keeps != 0;
        let file = match *owns {
            true => {
                // SAFETY: the caller's promise.
                let kept = unsafe { OwnedFd::from_raw_fd(fd) };
                // Of an open descriptor that does not fail.
                let _ = rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::CLOEXEC);
                PosixFile::own(kept)
            }
            // SAFETY: the caller's promise.
            false => unsafe { PosixFile::lent(fd) },
        };
        drop(handle.file.replace_open(Arc::new(file)));
        Ok(1)
    }) as c_int
}

/// Takes back what [`plfs_door_own`] gave a handle on a file that is plain still: it uses `fd` as
/// if it had been opened with that. For who is about to take a lock of the process on the file,
/// which a close of any descriptor, by exec too, would drop.
///
/// # Safety
/// `file` is a handle, `fd` is open on its file by the same open, and stays so until plfs_door_own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_lend(file: *mut PlfsFile, fd: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file)? };
        let mut owns = handle.owns.lock().unwrap_or_else(PoisonError::into_inner);
        if *owns && handle.file.is_plain() {
            // SAFETY: the caller's promise.
            let lent = unsafe { PosixFile::lent(fd) };
            drop(handle.file.replace_open(Arc::new(lent)));
            *owns = false;
        }
        Ok(0)
    }) as c_int
}
