//! An allocator that counts: how much memory a test's process has in use, and the most it had
//! while something ran.
// Each test that counts is a program of its own and uses a part of this.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static ASKED_FOR: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(in_use, Ordering::Relaxed);
    ASKED_FOR.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: passes every call on to the system's allocator, with the same arguments.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    // The default of the trait writes the zeros, and so touches pages that the system's allocator
    // gives untouched.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes that the process has allocated and not freed.
pub fn bytes_in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// The bytes that the process has ever allocated.
pub fn bytes_asked_for() -> usize {
    ASKED_FOR.load(Ordering::Relaxed)
}

/// Begins to watch how many bytes are in use at most.
pub fn watch() -> Watch {
    let before = bytes_in_use();
    MOST.store(before, Ordering::Relaxed);
    Watch { before }
}

pub struct Watch {
    before: usize,
}

impl Watch {
    /// The most bytes in use at one time since [`watch`], beyond those that were in use then.
    pub fn most(&self) -> usize {
        MOST.load(Ordering::Relaxed) - self.before
    }
}

/// Waits until no other test of the program counts. To be held while a test runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
