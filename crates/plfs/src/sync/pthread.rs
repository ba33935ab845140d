//! Threads of libc's. To start one the standard library registers destructors for who starts it,
//! and asks for a symbol: both wait for the dynamic linker, whose lock somebody may hold in a
//! constructor that waits for the caller.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// pthread_attr_t: at most 64 bytes, on all machines of 64 bits.
type Attributes = [u64; 8];
/// The standard library's.
const STACK_BYTES: usize = 2 << 20;

unsafe extern "C" {
    fn pthread_attr_init(attributes: *mut Attributes) -> c_int;
    fn pthread_attr_setstacksize(attributes: *mut Attributes, bytes: usize) -> c_int;
    fn pthread_attr_destroy(attributes: *mut Attributes) -> c_int;
    fn pthread_create(
        thread: *mut usize,
        attributes: *const Attributes,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_detach(thread: usize) -> c_int;
    fn pthread_self() -> usize;
    fn pthread_setname_np(thread: usize, name: *const c_char) -> c_int;
}

type Run = Box<dyn FnOnce() + Send>;

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the box of `start`, which has given it away.
    let run = unsafe { Box::from_raw(argument.cast::<Run>()) };
    // The panic's hook has told it.
    let _ = catch_unwind(AssertUnwindSafe(run));
    std::ptr::null_mut()
}

pub(super) fn start(name: &str, run: Run) -> bool {
    // By itself: for another thread libc opens a file, at a number that the program may use.
    let name = CString::new(name).ok();
    let run: Run = Box::new(move || {
        if let Some(name) = name {
            // SAFETY: the name is a C string.
            unsafe { pthread_setname_np(pthread_self(), name.as_ptr()) };
        }
        run();
    });
    let argument = Box::into_raw(Box::new(run));
    let (mut attributes, mut thread) = (Attributes::default(), 0);
    // SAFETY: the attributes are there from init to destroy, and there is room for them. `main`
    // takes the box; nobody does if there is no thread.
    unsafe {
        pthread_attr_init(&mut attributes);
        pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        let failed = pthread_create(&mut thread, &attributes, main, argument.cast()) != 0;
        pthread_attr_destroy(&mut attributes);
        if failed {
            drop(Box::from_raw(argument));
            return false;
        }
        pthread_detach(thread);
    }
    true
}
