//! Descriptors that PLFS keeps for itself. They stay out of the low numbers, which programs expect
//! to get from their own open calls (and which some close in bulk or replace by dup2), and are
//! recorded, so that the shim can tell them from the program's ([`owns_fd`]) without a lock.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, retry_on_intr};
use rustix::process::Resource;

use crate::store::Result;
use crate::sync::OnceLock;
use crate::sync::plain::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// How many descriptors of PLFS have low numbers for a moment, or get one now; [`ALONE`] while a
/// thread of the program puts one there.
static PASSING: AtomicU32 = AtomicU32::new(0);

const ALONE: u32 = 1 << 31;

/// How long that thread waits. 10 s: an open that makes a file waits for what others sync, for more
/// than a second on a busy disk. Longer than that only on storage that hangs, and there what the
/// thread does is better done.
const ALONE_WAIT: Duration = Duration::from_secs(10);

/// Who has, or is about to get, a descriptor at a number that the program expects to be free, says
/// so. A program may put a file of its own at such a number, by dup2: without a word it would be
/// used in the place of PLFS's, and closed.
#[derive(Debug)]
pub struct Passing(());

impl Passing {
    /// Says so until it is dropped. Waits for a dup2 of the program that is under way.
    #[expect(clippy::new_without_default)]
    pub fn new() -> Passing {
        let mut now = PASSING.load(Ordering::Relaxed);
        loop {
            let next = now & !ALONE;
            let order = (Ordering::Acquire, Ordering::Relaxed);
            match PASSING.compare_exchange_weak(next, next + 1, order.0, order.1) {
                Ok(_) => return Passing(()),
                Err(other) => now = other,
            }
            if now & ALONE != 0 {
                rustix::thread::sched_yield();
            }
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASSING.fetch_sub(1, Ordering::Release);
    }
}

/// [`PosixStore::hold_numbers`](super::PosixStore::hold_numbers).
pub(super) fn hold_numbers() -> bool {
    let order = (Ordering::Acquire, Ordering::Relaxed);
    let mut begun = None;
    while PASSING.compare_exchange(0, ALONE, order.0, order.1).is_err() {
        if begun.get_or_insert_with(Instant::now).elapsed() > ALONE_WAIT {
            return false;
        }
        rustix::thread::sched_yield();
    }
    true
}

/// [`PosixStore::release_numbers`](super::PosixStore::release_numbers).
pub(super) fn release_numbers() {
    PASSING.store(0, Ordering::Release);
}

/// A descriptor that is closed by a system call of our own rather than libc's close.
#[derive(Debug)]
pub(super) struct ClosedBare(ManuallyDrop<OwnedFd>);

impl ClosedBare {
    pub(super) fn new(fd: OwnedFd) -> ClosedBare {
        ClosedBare(ManuallyDrop::new(fd))
    }

    pub(super) fn into_owned(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the descriptor has one owner as before.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl AsFd for ClosedBare {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ClosedBare {
    fn drop(&mut self) {
        // SAFETY: this is the drop of the value that holds the descriptor; nothing uses it
        // afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: into_raw_fd gave up the descriptor, so this is its only close.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

/// A descriptor of PLFS's for a moment, whatever number it has.
#[derive(Debug)]
pub(in crate::store) struct BareFd {
    fd: ClosedBare,
    _passing: Passing,
}

impl BareFd {
    /// What `open` gives.
    pub(in crate::store) fn open(open: impl FnOnce() -> Result<OwnedFd>) -> Result<BareFd> {
        let passing = Passing::new();
        Ok(BareFd { fd: ClosedBare::new(open()?), _passing: passing })
    }

    /// A descriptor that is not new.
    pub(in crate::store) fn new(fd: OwnedFd) -> BareFd {
        BareFd { fd: ClosedBare::new(fd), _passing: Passing::new() }
    }

    /// For who goes on being [`Passing`].
    pub(in crate::store) fn into_owned(self) -> OwnedFd {
        self.fd.into_owned()
    }
}

impl AsFd for BareFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor that PLFS keeps for itself: out of the program's low numbers where the limit
/// allows, and known to [`owns_fd`].
#[derive(Debug)]
pub struct HighFd(ManuallyDrop<ClosedBare>);

impl HighFd {
    /// What `open` gives, as [`HighFd::new`].
    pub(in crate::store) fn open(open: impl FnOnce() -> Result<OwnedFd>) -> Result<HighFd> {
        let _passing = Passing::new();
        open().map(HighFd::new)
    }

    /// Takes `fd` over, moves it up and records it. If there is no room above the base, it keeps
    /// its number, or takes the first behind standard error.
    pub fn new(fd: OwnedFd) -> HighFd {
        if fd.as_raw_fd() >= base_fd() {
            return HighFd::recorded(fd);
        }
        let low = ClosedBare::new(fd);
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

    /// Takes over what `open` gives, which is not closed, and is above the base all the same: the
    /// numbers below are taken meanwhile. Behind standard error at least, if the limit is low.
    pub(super) fn unmoved(open: impl FnOnce() -> Result<OwnedFd>) -> Result<HighFd> {
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let base = base_fd();
        let least = if (base as u64) < limit { base } else { BEHIND_STANDARD };
        let root = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let mut taken: Vec<BareFd> = Vec::new();
        loop {
            let next = match taken.first() {
                None => root(),
                Some(first) => rustix::io::fcntl_dupfd_cloexec(first, 0),
            };
            match next {
                Ok(fd) if fd.as_raw_fd() < least => taken.push(BareFd::new(fd)),
                Ok(high) => {
                    drop(BareFd::new(high));
                    break;
                }
                // All numbers: the highest of these is the best there is.
                Err(_) => {
                    drop(taken.pop());
                    break;
                }
            }
        }
        open().map(HighFd::recorded)
    }

    /// Another number above the base. `None` if there is no room: the limit is below the base
    /// (EINVAL), or all numbers above it are taken (EMFILE); then a low one serves.
    fn new_number(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
        let high = ClosedBare::new(rustix::io::fcntl_dupfd_cloexec(fd, base_fd()).ok()?);
        // A number too high to be recorded is worse than a low one.
        bit_of(high.as_fd().as_raw_fd()).map(|_| high.into_owned())
    }

    /// Takes `fd` over with its number, and records it.
    pub(super) fn recorded(fd: OwnedFd) -> HighFd {
        let fd = ClosedBare::new(fd);
        if let Some((word, bit)) = bit_of(fd.as_fd().as_raw_fd()) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        HighFd(ManuallyDrop::new(fd))
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
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the descriptor has one owner as before.
        unsafe { ManuallyDrop::take(&mut this.0) }.into_owned()
    }
}

impl AsFd for HighFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for HighFd {
    fn drop(&mut self) {
        // Where the limit left it no other number, it is one that the program expects to be free.
        let _passing = (self.0.as_fd().as_raw_fd() < base_fd()).then(Passing::new);
        // Before the close: from then on the kernel may give the number to another thread.
        self.forget_number();
        // SAFETY: this is the drop of the value, which is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
