//! The managed directory that nobody has named (preload/)
//!
//! `plfs run` takes ./plfs.d then. Where it is not there as yet it is made when a program makes
//! something in it, or asks for the directory itself, so that programs that have nothing to do with
//! it leave nothing behind.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use plfs_core::environment;
use plfs_core::prepare;
use plfs_core::store::Errno;
use rustix::fs::{AtFlags, CWD, Mode};

use crate::{Result, borrow, call, plfs};

/// The variable by which `plfs run` says which it is, if it was not there.
const VARIABLE: &str = "PLFS_DEFAULT_DIR";

/// The path is that of the directory itself, and the call is about that.
pub const PLFS_NAMES_DIR: c_int = 1;

/// The call makes something at the path, which may lie below the directory.
pub const PLFS_MAKES_BELOW: c_int = 2;

/// Nobody has to look any more: there is no such directory, or it is there.
static SETTLED: AtomicBool = AtomicBool::new(false);

fn default_dir() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = PathBuf::from(environment::variable(VARIABLE)?);
        (dir.is_absolute() && dir.file_name().is_some()).then_some(dir)
    });
    dir.as_deref()
}

/// Before a call on `path`, taken from `dirfd`, by which a program may want the directory that
/// `plfs run` takes if nobody names one: makes that, if it is not there. `how` is PLFS_NAMES_DIR,
/// PLFS_MAKES_BELOW or both. 1 if no further call needs to ask, else 0.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_before(dirfd: c_int, path: *const c_char, how: c_int) -> c_int {
    if SETTLED.load(Ordering::Relaxed) || path.is_null() {
        return 1;
    }
    // SAFETY: not NULL; the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    call(|| {
        before(dirfd, path, how)?;
        Ok(i64::from(SETTLED.load(Ordering::Relaxed)))
    }) as c_int
}

/// [`plfs_door_before`] of an open.
pub(crate) fn before_open(path: &Path, creates: bool) -> Result<()> {
    let how = PLFS_NAMES_DIR | if creates { PLFS_MAKES_BELOW } else { 0 };
    before(libc::AT_FDCWD, path.as_os_str().as_bytes(), how)
}

fn before(dirfd: c_int, path: &[u8], how: c_int) -> Result<()> {
    if SETTLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(dir) = default_dir() else {
        SETTLED.store(true, Ordering::Relaxed);
        return Ok(());
    };
    if leads_to(dir, dirfd, path, how)? {
        make(dir);
    }
    Ok(())
}

/// Whether the path is one of the directory, or for who makes something one below it, whatever
/// links it goes through before.
fn leads_to(dir: &Path, dirfd: c_int, path: &[u8], how: c_int) -> Result<bool> {
    let (Some(name), Some(above)) = (dir.file_name(), dir.parent()) else { return Ok(false) };
    let mut at = 0;
    for part in path.split(|byte| *byte == b'/') {
        let (begin, end) = (at, at + part.len());
        at = end + 1;
        if part != name.as_bytes() {
            continue;
        }
        let is_itself =
            path[end..].split(|byte| *byte == b'/').all(|part| part.is_empty() || part == b".");
        if how & if is_itself { PLFS_NAMES_DIR } else { PLFS_MAKES_BELOW } == 0 {
            continue;
        }
        let before = if begin == 0 { b".".as_slice() } else { &path[..begin] };
        let from = if path.starts_with(b"/") { libc::AT_FDCWD } else { dirfd };
        // SAFETY: the number is used in this call only; a closed one makes it fail.
        let from = unsafe { borrow(from) }?;
        let (here, there) = (
            rustix::fs::statat(from, OsStr::from_bytes(before), AtFlags::empty()),
            rustix::fs::statat(CWD, above, AtFlags::empty()),
        );
        if let (Ok(here), Ok(there)) = (here, there)
            && (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes it ready as `plfs run` would have. What is wrong is told once, and the call goes on: it
/// fails because the directory is not there, or says by itself what cannot be.
fn make(dir: &Path) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let wrong = match rustix::fs::mkdirat(CWD, dir, Mode::from_raw_mode(0o777)) {
        Ok(()) => plfs().map_err(|failure| failure.text).and_then(|plfs| {
            let backends = plfs.config().backends_of(&dir.join("file"));
            prepare(plfs.store(), plfs.config(), &[dir], backends)
                .map_err(|error| error.to_string())
        }),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(format!(
            "cannot create the directory {}: {}; name another with plfs run --mount DIR",
            dir.display(),
            std::io::Error::from(errno).kind()
        )),
    };
    if rustix::fs::statat(CWD, dir, AtFlags::empty()).is_ok() {
        SETTLED.store(true, Ordering::Relaxed);
    }
    if let Err(wrong) = wrong
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        let line = format!("plfs: {wrong}\n");
        // By a system call: write(2) may be the preload library's.
        // SAFETY: the number is used in this call only; a closed one makes it fail.
        let _ = unsafe { borrow(libc::STDERR_FILENO) }
            .map(|stderr| rustix::io::write(stderr, line.as_bytes()));
    }
}
