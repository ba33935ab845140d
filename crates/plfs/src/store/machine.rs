//! What a process asks its machine besides files: randomness and a name.

use std::ffi::CString;

use super::Errno;

/// Random bytes from the kernel.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            // A kernel without getrandom(2) is older than Rust supports; the hasher's keys are random as well.
            Err(_) => {
                use std::hash::{BuildHasher, Hasher};
                for byte in &mut bytes[done..] {
                    *byte = std::hash::RandomState::new().build_hasher().finish() as u8;
                }
                return;
            }
        }
    }
}

/// A random number.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// The name of this host.
pub(crate) fn host_name() -> CString {
    rustix::system::uname().nodename().to_owned()
}
