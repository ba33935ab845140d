//! Descriptors that an open has to leave (preload/)
//!
//! They are counted before it makes or cuts a file: what fails for want of them changes nothing. A
//! cut itself fails before it has cut, or not at all.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd};

use plfs_core::Access;
use plfs_core::store::{Errno, PosixFile};
use rustix::process::{Resource, getrlimit};
use syscalls::{Sysno, syscall2};

use crate::{Failure, Result};

/// Descriptors that logs need at least; those of all files share them.
pub const PLFS_LOG_DESCRIPTORS: c_uint = 16;

/// Numbers below which nobody counts what is left.
const FEW: c_int = 16;

/// 1 if `spare` descriptors are left behind `fd`, which was the lowest that was free; else 0. With
/// -1 for `fd`: behind the next one that is opened.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_has_room(fd: c_int, spare: c_uint) -> c_int {
    if spare == 0 || (0..FEW).contains(&fd) {
        return 1;
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return 1 };
    let is_left = |fd: c_int| u64::from(fd.unsigned_abs()) + 1 + u64::from(spare) <= limit;
    let has_room = match fd {
        0.. => is_left(fd),
        // The next one is no higher than any that is free. To ask is a call, to take one two.
        _ => {
            let last = limit.saturating_sub(1 + u64::from(spare)) as usize;
            is_free(last) || next_number().is_some_and(|fd| fd < FEW || is_left(fd))
        }
    };
    c_int::from(has_room)
}

/// By system call: libc's fcntl is a cancellation point.
fn is_free(fd: usize) -> bool {
    // SAFETY: it only asks.
    unsafe { syscall2(Sysno::fcntl, fd, libc::F_GETFD as usize) }.is_err()
}

fn next_number() -> Option<c_int> {
    PosixFile::hold_number().ok().map(|held| held.as_fd().as_raw_fd())
}

/// What an open has to leave: what the files need that are open.
#[derive(Clone, Copy)]
pub(crate) struct Room(pub c_uint);

impl Room {
    /// EMFILE without room behind `fd`, or -1 for the next one, for a plain file, which needs
    /// nothing itself.
    pub fn for_plain(self, fd: c_int) -> Result<()> {
        must_have(fd, self.0)
    }

    /// The same for a file with a container.
    pub fn for_container(self, fd: c_int, access: Access) -> Result<()> {
        must_have(fd, self.0.max(PLFS_LOG_DESCRIPTORS) + if access.write { 2 } else { 1 })
    }

    /// The same for a file of a pack.
    pub fn for_packed(self, fd: c_int) -> Result<()> {
        must_have(fd, self.0.max(PLFS_LOG_DESCRIPTORS))
    }

    /// The number for the descriptor of a new file with a container, which is to be let go when
    /// that is made.
    pub fn hold(self, access: Access) -> Result<PosixFile> {
        let held = PosixFile::hold_number()?;
        self.for_container(held.as_fd().as_raw_fd(), access)?;
        Ok(held)
    }
}

fn must_have(fd: c_int, spare: c_uint) -> Result<()> {
    match plfs_door_has_room(fd, spare) {
        0 => Err(Failure::new(
            Errno::MFILE,
            format!("{spare} descriptors that open files need would not be left"),
        )),
        _ => Ok(()),
    }
}
