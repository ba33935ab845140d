//! The library's own heap. A handler of a signal may open a file while the thread that it
//! interrupted is in libc's malloc; in the middle of a call of ours no handler runs
//! (preload/signals.c).
//!
//! The allocator is dlmalloc. In front of it are *spares*, the short blocks that were freed last:
//! dlmalloc joins each free block with its neighbours, and takes them apart again. The lock round
//! it all is one atomic operation to take, and a store to give back. An open and a close of a file
//! allocate ten blocks, and take 0.2 us less by both (bench/micro.py, tmpfs).

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;
use syscalls::{Sysno, syscall2};

#[global_allocator]
static HEAP: Heap = Heap::new();

/// The child of a fork finds the heap unlocked. Called before anything else that asks for handlers
/// around a fork, so that the heap is locked last and unlocked first.
pub(crate) fn protect() {
    static DONE: Once = Once::new();
    extern "C" fn take() {
        HEAP.take();
    }
    extern "C" fn give_back() {
        HEAP.give_back();
    }
    DONE.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded (preload), or
        // not while a thread of it runs, and do nothing but atomic operations and sleep.
        unsafe { libc::pthread_atfork(Some(take), Some(give_back), Some(give_back)) };
    });
}

struct Heap {
    is_taken: AtomicBool,
    memory: UnsafeCell<Memory>,
}

// SAFETY: `memory` is used by who has taken the heap only.
unsafe impl Sync for Heap {}

/// Blocks of up to so many bytes may become spares.
const SPARE_BYTES: usize = 1024;
/// Their sizes are multiples of this, which is their alignment, too.
const STEP: usize = 16;
/// So many of each size are kept: at most 270 kB in all.
const SPARES: u32 = 8;

struct Memory {
    blocks: Dlmalloc,
    /// By size in steps: the spares, each of which begins with the address of the next one, and how
    /// many there are.
    spares: [(*mut Spare, u32); SPARE_BYTES / STEP + 1],
}

struct Spare {
    next: *mut Spare,
}

/// Of a block that may be a spare: its size in steps.
#[inline]
fn steps(layout: Layout) -> Option<usize> {
    let may = layout.size() <= SPARE_BYTES && layout.align() <= STEP;
    may.then(|| layout.size().div_ceil(STEP).max(1))
}

impl Memory {
    #[inline]
    unsafe fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(steps) = steps(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { self.blocks.malloc(layout.size(), layout.align()) };
        };
        let (first, count) = &mut self.spares[steps];
        if first.is_null() {
            // SAFETY: as above.
            return unsafe { self.blocks.malloc(steps * STEP, STEP) };
        }
        let block = *first;
        // SAFETY: it is a block that nobody has, and `dealloc` has put the address there.
        *first = unsafe { (*block).next };
        *count -= 1;
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&mut self, at: *mut u8, layout: Layout) {
        let Some(steps) = steps(layout) else {
            // SAFETY: the caller's promise: so it was allocated.
            return unsafe { self.blocks.free(at, layout.size(), layout.align()) };
        };
        let (first, count) = &mut self.spares[steps];
        if *count == SPARES {
            // SAFETY: as above.
            return unsafe { self.blocks.free(at, steps * STEP, STEP) };
        }
        let block: *mut Spare = at.cast();
        // SAFETY: the block is aligned, has room, and is nobody's from now on.
        unsafe { block.write(Spare { next: *first }) };
        (*first, *count) = (block, *count + 1);
    }
}

/// An allocation takes a tenth of a microsecond, so who waits longer waits for a thread that is not
/// running.
const SPINS: u32 = 100;

/// Sleeps for 20 us, so that threads of lower priority run, too. Not by libc, where a sleep is a
/// cancellation point.
fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    // SAFETY: the kernel reads the time, and writes nothing.
    let _ = unsafe { syscall2(Sysno::nanosleep, &raw const time as usize, 0) };
}

impl Heap {
    const fn new() -> Heap {
        let spares = [(null_mut(), 0); SPARE_BYTES / STEP + 1];
        let memory = Memory { blocks: Dlmalloc::new(), spares };
        Heap { is_taken: AtomicBool::new(false), memory: UnsafeCell::new(memory) }
    }

    #[inline]
    fn take(&self) {
        if self.is_taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut looks: u32 = 0;
        while self.is_taken.load(Ordering::Relaxed) || self.is_taken.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks.is_multiple_of(SPINS) { pause() } else { spin_loop() }
        }
    }

    #[inline]
    fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    #[inline]
    fn with<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        self.take();
        // SAFETY: nobody else has it until it is given back, and `work` does not come here again.
        let done = work(unsafe { &mut *self.memory.get() });
        self.give_back();
        done
    }
}

// SAFETY: a block is its caller's until that gives it back with the same layout; nothing unwinds.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|memory| unsafe { memory.alloc(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.with(|memory| unsafe { memory.dealloc(at, layout) });
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if steps(layout).is_none() {
            // Fresh memory is zero already.
            // SAFETY: the caller's promise.
            return self
                .with(|memory| unsafe { memory.blocks.calloc(layout.size(), layout.align()) });
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: it has that room, and is the caller's alone.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (steps(layout), steps(wanted)) {
            (Some(has), Some(wants)) if has == wants => at,
            // SAFETY: the caller's promise: so it was allocated.
            (None, None) => self.with(|memory| unsafe {
                memory.blocks.realloc(at, layout.size(), layout.align(), bytes)
            }),
            _ => {
                // SAFETY: the caller's promise.
                let block = unsafe { self.alloc(wanted) };
                if !block.is_null() {
                    // SAFETY: both are blocks of so many bytes, and the old one is given back once.
                    unsafe {
                        block.copy_from_nonoverlapping(at, layout.size().min(bytes));
                        self.dealloc(at, layout);
                    }
                }
                block
            }
        }
    }
}
