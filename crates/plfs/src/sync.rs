//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose holders cannot leave bad state behind: a panic while holding it is no reason to
/// stop others.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
