//! Locks, atomics and threads: all that the engine takes of them comes from here.

pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard,
    RwLockWriteGuard, TryLockError, Weak, atomic,
};
pub(crate) use std::thread;

/// A lock whose holders cannot leave bad state behind: a panic while holding it is no reason to
/// stop others.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
