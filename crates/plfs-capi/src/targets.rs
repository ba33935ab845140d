//! Which storage targets to use (netcdf/)

use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use libc::AT_FDCWD;
use plfs_core::choose_dirs;
use plfs_core::store::Errno;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::AsRawFd;

use crate::{Failure, Result, absolute, call, link_of, path_arg, plfs};

/// Chooses between `n` directories, each a storage target, for files that are alike in size: as
/// many as the measured rates say, or `wanted`, if that is not 0. Gives how many, and puts their
/// places into `chosen`, ascending. `bytes_s` gets what one writer more can expect of each of the
/// `n`; 0: it cannot be measured, and is not chosen unless nothing can, or so many are wanted.
///
/// Rates are those of this node's writers and probes; where there is none of the last 30 s the
/// target is probed, all at once, which takes 0.3 s; a second more if one has stalled.
///
/// # Safety
/// `dirs` has `n` C strings, `chosen` and `bytes_s` have room for `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_choose_dirs(
    dirs: *const *const c_char,
    n: usize,
    wanted: usize,
    chosen: *mut u32,
    bytes_s: *mut f64,
) -> c_int {
    call(|| {
        if dirs.is_null() || chosen.is_null() || bytes_s.is_null() {
            return Err(Failure::new(Errno::FAULT, "an argument is NULL"));
        }
        // SAFETY: the caller's promises.
        let (texts, chosen, bytes_s) = unsafe {
            (
                std::slice::from_raw_parts(dirs, n),
                std::slice::from_raw_parts_mut(chosen, n),
                std::slice::from_raw_parts_mut(bytes_s, n),
            )
        };
        // SAFETY: the caller's promise.
        let dirs = texts
            .iter()
            .map(|text| named(absolute(AT_FDCWD, unsafe { path_arg(*text) }?)?.into_owned()));
        let dirs = dirs.collect::<Result<Vec<PathBuf>>>()?;
        let plfs = plfs()?;
        let (places, expected) =
            choose_dirs(plfs.store(), plfs.config(), &dirs, Some(wanted).filter(|n| *n > 0));
        for (to, place) in chosen.iter_mut().zip(&places) {
            *to = *place as u32;
        }
        for (to, expected) in bytes_s.iter_mut().zip(expected) {
            *to = expected.unwrap_or(0.0);
        }
        Ok(places.len() as i64)
    }) as c_int
}

/// The path without links, by which rates of a directory are known. What cannot be opened is left
/// to who measures it.
fn named(dir: PathBuf) -> Result<PathBuf> {
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, &dir, how, Mode::empty()) {
        Ok(opened) => link_of(opened.as_raw_fd()),
        Err(_) => Ok(dir),
    }
}
