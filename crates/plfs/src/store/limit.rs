//! RLIMIT_FSIZE: how long a file may be that this process writes.
//!
//! It is meant for the program's files. What PLFS keeps must not meet it: the kernel would send
//! SIGXFSZ, which ends most programs, for a log that nobody has asked about. So data logs go on in
//! another segment before they are so long, and what cannot be in several files, such as an index
//! log, fails with EFBIG where the kernel would send the signal.

use rustix::process::{Resource, getrlimit};

use super::{Errno, Result};
use crate::sync::plain::atomic::{AtomicU64, Ordering};

/// As it was when it was asked for last: a system call for each write would be a tenth of it.
static SIZE: AtomicU64 = AtomicU64::new(u64::MAX);

/// Asks the kernel. For who has changed it; whoever begins to write a file does so as well.
pub fn learn_size_limit() {
    SIZE.store(getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The length that no file of this process may pass.
#[inline]
pub(crate) fn size_limit() -> u64 {
    SIZE.load(Ordering::Relaxed)
}

/// Whether a write may begin at `offset`. What of it is past the limit the kernel leaves out.
pub(super) fn may_write_at(offset: u64) -> Result<()> {
    match size_limit() {
        // The kernel says what it thinks of offsets that no file has.
        u64::MAX => Ok(()),
        limit if offset < limit => Ok(()),
        _ => Err(Errno::FBIG),
    }
}

/// Whether a file may become `len` bytes long, which is `now` so long.
pub(super) fn may_extend(len: u64, now: impl FnOnce() -> Result<u64>) -> Result<()> {
    if len <= size_limit() || len <= now()? { Ok(()) } else { Err(Errno::FBIG) }
}
