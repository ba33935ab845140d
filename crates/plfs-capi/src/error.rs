//! Errors and version

use std::ffi::c_char;

use crate::LAST_ERROR;

/// The sentence of this thread's last call that failed; empty if none did. It names the file, the
/// offset and the cause. Valid until the thread's next call that fails; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.as_ptr().cast())
}

/// The version, such as "0.1.0". Static.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
