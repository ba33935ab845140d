//! Descriptors that PLFS keeps for itself. They stay out of the low numbers, which programs expect
//! to get from their own open calls (and which some close in bulk or replace by dup2), and are
//! recorded, so that the shim can tell them from the program's ([`owns_fd`]) without a lock.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{DupFlags, retry_on_intr};
use rustix::process::Resource;

use crate::store::Result;
use crate::sync::OnceLock;
use crate::sync::plain::atomic::{AtomicU64, Ordering};

/// Descriptor numbers that can be recorded, in 16 KiB. A descriptor that would get a higher one
/// stays low.
const RECORDED_FDS: usize = 131_072;

/// The highest number above which PLFS moves its descriptors: the first that select(2) cannot
/// watch. Not higher, because the kernel's table of a process has 8 bytes for each number below the
/// highest one, which the first open allocates and each fork copies: half a megabyte at 65,536. At
/// 10,000 the last of 10,000 processes paid three times the first for it (`bench/join.py`).
const BASE_MAX: u64 = 1024;

/// The lowest such number: with fewer than 128 descriptors allowed, keeping clear of a program's
/// first 64 is still possible.
const BASE_MIN: u64 = 64;

/// The first number that is not standard input, output or error. A program that has closed one of
/// those and prints there all the same must not write into a file of ours.
pub const BEHIND_STANDARD: RawFd = 3;

/// One bit per descriptor number, set while the descriptor is PLFS's own.
static OWN: [AtomicU64; RECORDED_FDS / 64] = [const { AtomicU64::new(0) }; RECORDED_FDS / 64];

fn bit_of(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OWN.get(fd / 64)?, 1 << (fd % 64)))
}

/// True if the descriptor number `fd` is PLFS's own and none of the program's business. Takes no
/// lock and makes no system call; safe in signal handlers and after fork.
pub fn owns_fd(fd: RawFd) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

pub(super) static BASE: OnceLock<RawFd> = OnceLock::new();

/// The number from which PLFS's own descriptors start: half of the soft limit of open files, within
/// [`BASE_MIN`] and [`BASE_MAX`].
pub(super) fn base_fd() -> RawFd {
    // A limit that changes later moves later descriptors of a process that asks again: too rare to
    // pay for at each open.
    *BASE.get_or_init(ask_base_fd)
}

fn ask_base_fd() -> RawFd {
    (soft_limit() / 2).clamp(BASE_MIN, BASE_MAX) as RawFd
}

/// How many files this process may have open, as it was when it was asked first.
pub(in crate::store) fn soft_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// A descriptor that is closed by a system call of our own rather than libc's close.
#[derive(Debug)]
pub(in crate::store) struct BareFd(ManuallyDrop<OwnedFd>);

impl BareFd {
    pub(in crate::store) fn new(fd: OwnedFd) -> BareFd {
        BareFd(ManuallyDrop::new(fd))
    }

    pub(in crate::store) fn into_owned(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the descriptor has one owner as before.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl AsFd for BareFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for BareFd {
    fn drop(&mut self) {
        // SAFETY: this is the drop of the value that holds the descriptor; nothing uses it
        // afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: into_raw_fd gave up the descriptor, so this is its only close.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

/// A descriptor that PLFS keeps for itself: out of the program's low numbers where the limit
/// allows, and known to [`owns_fd`].
#[derive(Debug)]
pub struct HighFd(BareFd);

impl HighFd {
    /// Takes `fd` over, moves it up and records it. If there is no room above the base, it keeps
    /// its number, or takes the first behind standard error.
    pub fn new(fd: OwnedFd) -> HighFd {
        if fd.as_raw_fd() >= base_fd() {
            return HighFd::recorded(fd);
        }
        let low = BareFd::new(fd);
        match HighFd::new_number(low.as_fd()) {
            Some(high) => HighFd::recorded(high),
            None if low.as_fd().as_raw_fd() >= BEHIND_STANDARD => {
                HighFd::recorded(low.into_owned())
            }
            // Without any number left it has to stay where it is.
            None => HighFd::recorded(
                rustix::io::fcntl_dupfd_cloexec(&low, BEHIND_STANDARD)
                    .unwrap_or_else(|_| low.into_owned()),
            ),
        }
    }

    /// Another number above the base. `None` if there is no room: the limit is below the base
    /// (EINVAL), or all numbers above it are taken (EMFILE); then a low one serves.
    fn new_number(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
        let high = BareFd::new(rustix::io::fcntl_dupfd_cloexec(fd, base_fd()).ok()?);
        // A number too high to be recorded is worse than a low one.
        bit_of(high.as_fd().as_raw_fd()).map(|_| high.into_owned())
    }

    /// Takes `fd` over with its number, and records it.
    pub(super) fn recorded(fd: OwnedFd) -> HighFd {
        let fd = BareFd::new(fd);
        if let Some((word, bit)) = bit_of(fd.as_fd().as_raw_fd()) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        HighFd(fd)
    }

    /// Another number for what is open as `fd`.
    pub fn copy_of(fd: BorrowedFd<'_>) -> Result<HighFd> {
        HighFd::new_number(fd)
            .map_or_else(|| rustix::io::fcntl_dupfd_cloexec(fd, BEHIND_STANDARD), Ok)
            .map(HighFd::recorded)
    }

    /// Puts what is open as `other` in the place of what was open under this number, which is
    /// closed at that. Calls of other threads find the one or the other.
    pub(in crate::store) fn replace(&self, other: BareFd) -> Result<()> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: the number is open as long as self, whose it is. The value is never dropped, so
        // it does not close it.
        let mut this = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        retry_on_intr(|| rustix::io::dup3(&other, &mut this, DupFlags::CLOEXEC))
    }

    fn forget_number(&self) {
        if let Some((word, bit)) = bit_of(self.0.as_fd().as_raw_fd()) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    pub(super) fn into_owned(self) -> OwnedFd {
        self.forget_number();
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the BareFd read out of it is the only
        // one.
        unsafe { std::ptr::read(&this.0) }.into_owned()
    }
}

impl AsFd for HighFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for HighFd {
    fn drop(&mut self) {
        // Before the close, which follows in BareFd: from then on the kernel may give the number to
        // another thread.
        self.forget_number();
    }
}
