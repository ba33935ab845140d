//! The start of a process (preload/)

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use plfs_core::environment;

/// What is left to do where the constructors of libraries run.
static LATER: OnceLock<extern "C" fn()> = OnceLock::new();

/// The process begins, with the environment `envp`: what the program takes away of that counts for
/// settings as it was. `later`, if not NULL, is called when libplfs's constructor runs: after the
/// program's `.preinit_array`, and before any constructor of its own. The first call counts.
///
/// # Safety
/// `envp` is NULL, or a list of C strings that ends with NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_start(
    envp: *const *const c_char,
    later: Option<extern "C" fn()>,
) {
    if let Some(later) = later {
        let _ = LATER.set(later);
    }
    let mut at = envp;
    environment::keep(std::iter::from_fn(|| {
        if at.is_null() {
            return None;
        }
        // SAFETY: the caller's promise, and nothing is read behind NULL.
        let word = unsafe { *at };
        if word.is_null() {
            return None;
        }
        // SAFETY: the list goes on at least to its NULL.
        at = unsafe { at.add(1) };
        // SAFETY: the caller's promise.
        Some(unsafe { CStr::from_ptr(word) }.to_bytes())
    }));
}

extern "C" fn construct() {
    if let Some(later) = LATER.get() {
        later();
    }
}

// SAFETY: the section is a list of functions that the dynamic linker calls.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;
