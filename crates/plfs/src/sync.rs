//! Locks, atomics and threads: all that the engine takes of them comes from here.
//!
//! They are the standard library's. In a build with the feature `shuttle` they are those of the
//! crate `shuttle`, which runs all threads of a test in turn and decides at each of these calls who
//! goes on: `tests/schedules.rs` explores what can come of that. There each run counts as a process
//! of its own, and time and randomness come from the schedule too, so that it can be repeated.
//!
//! What is in [`plain`] is the standard library's in both builds: memory that is shared with other
//! processes, and what outlives a run. Nobody holds such a lock while he takes one of the others,
//! or his thread would stop all; but for the gate of forks, which no schedule closes.

pub(crate) use std::sync::{Arc, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread,
};

#[cfg(not(feature = "shuttle"))]
mod pthread;

/// The standard library's, whatever is explored.
pub(crate) mod plain {
    pub(crate) use std::sync::{Mutex, RwLock, atomic, mpsc};

    use std::sync::{MutexGuard, PoisonError};

    /// [`lock`](super::lock) for these.
    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock whose holders cannot leave bad state behind: a panic while holding it is no reason to
/// stop others.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number in memory that processes share.
#[cfg(not(feature = "shuttle"))]
pub(crate) use plain::atomic::AtomicU64 as Word;

/// A number in memory that processes share: those of `shuttle` are larger than what is there.
/// Others may run before each access.
#[cfg(feature = "shuttle")]
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word(plain::atomic::AtomicU64);

#[cfg(feature = "shuttle")]
impl Word {
    pub(crate) const fn new(number: u64) -> Word {
        Word(plain::atomic::AtomicU64::new(number))
    }
}

#[cfg(feature = "shuttle")]
impl std::ops::Deref for Word {
    type Target = plain::atomic::AtomicU64;

    fn deref(&self) -> &plain::atomic::AtomicU64 {
        atomic::AtomicBool::new(false).load(atomic::Ordering::Relaxed);
        &self.0
    }
}

/// Threads that take turns in one: whoever waits for something lets all others go first.
#[cfg(feature = "shuttle")]
pub(crate) mod thread {
    pub(crate) use shuttle::thread::*;

    pub(crate) fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// What `call` gives, which waits in the kernel for another process if it is told to. Where the
/// processes of a schedule are in one the kernel must not wait: `call` gives nothing until it can.
pub(crate) fn wait_for<T>(mut call: impl FnMut(bool) -> Option<T>) -> T {
    loop {
        if let Some(done) = call(cfg!(not(feature = "shuttle"))) {
            return done;
        }
        thread::yield_now();
    }
}

/// Starts a thread that nobody joins, and that the end of the process ends wherever it is. Whether
/// there is one.
pub(crate) fn spawn_for_ever(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    #[cfg(not(feature = "shuttle"))]
    return pthread::start(name, Box::new(run));
    // A run ends when its threads have, but for its tasks.
    #[cfg(feature = "shuttle")]
    {
        let _ = name;
        drop(shuttle::future::spawn(async { run() }));
        true
    }
}

/// What the clocks say in a schedule, if one is explored: it decides whether they go on, by a
/// millisecond, between one look at them and the next.
#[inline]
pub(crate) fn time_of_run_ns() -> Option<u64> {
    #[cfg(not(feature = "shuttle"))]
    return None;
    #[cfg(feature = "shuttle")]
    {
        use shuttle::rand::RngCore;
        shuttle::lazy_static! {
            static ref NOW: plain::atomic::AtomicU64 =
                plain::atomic::AtomicU64::new(1_800_000_000_000_000_000);
        }
        let step = u64::from(shuttle::rand::thread_rng().next_u64() & 1 != 0) * 1_000_000;
        Some(NOW.fetch_add(step, plain::atomic::Ordering::Relaxed))
    }
}

/// Fills in random bytes that are the same when a schedule comes again; false if none is explored.
#[inline]
pub(crate) fn fill_by_run(bytes: &mut [u8]) -> bool {
    #[cfg(feature = "shuttle")]
    shuttle::rand::RngCore::fill_bytes(&mut shuttle::rand::thread_rng(), bytes);
    #[cfg(not(feature = "shuttle"))]
    let _ = bytes;
    cfg!(feature = "shuttle")
}

/// How long something waits that goes by the time of day. Where schedules are explored all of it is
/// over as soon as the schedule says so.
pub(crate) const fn pause(time: Duration) -> Duration {
    if cfg!(feature = "shuttle") { Duration::ZERO } else { time }
}

/// Something of which each process has one, for ever. The child of a fork makes a new one: threads
/// of the parent are not there, and what they held they hold for ever.
pub(crate) struct OfProcess<T: 'static>(plain::Mutex<Vec<(u64, &'static T)>>);

impl<T> OfProcess<T> {
    pub(crate) const fn new() -> OfProcess<T> {
        OfProcess(plain::Mutex::new(Vec::new()))
    }

    /// This process's, which `new` makes if there is none yet.
    pub(crate) fn get(&self, new: impl FnOnce() -> T) -> &'static T {
        let process = this_process();
        let mut known = plain::lock(&self.0);
        if let Some((_, it)) = known.iter().rev().find(|(of, _)| *of == process) {
            return it;
        }
        // An ancestor's number can come again. Runs of several tests go on side by side.
        if cfg!(not(feature = "shuttle")) {
            known.clear();
        }
        let it = &*Box::leak(Box::new(new()));
        known.push((process, it));
        it
    }
}

#[cfg(not(feature = "shuttle"))]
fn this_process() -> u64 {
    std::process::id().into()
}

#[cfg(feature = "shuttle")]
fn this_process() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    shuttle::lazy_static! {
        static ref RUN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    *RUN
}
