//! libplfs.so: the C API. Raw pointers live in this crate; every export runs inside the panic
//! boundary of [`call`], checks for NULL and says who owns what.
//!
//! plfs.h has what is for programs, in the order in which they use it, plfs_door.h what preload/,
//! mpi/ and netcdf/ need beyond it. `plfs-headers` has the list of the files of each; the first
//! line of a file is the title of its section.
#![allow(non_camel_case_types)]

mod attributes;
mod commit;
mod default_dir;
mod dir;
mod door;
mod error;
mod flat;
mod handle;
mod heap;
mod here;
mod in_place;
mod index;
mod io;
mod layout;
mod managed;
mod names;
mod packed;
mod path;
mod pieces;
mod room;
mod start;
mod targets;

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

use plfs_core::store::{Errno, Links, Passing, PosixStore, fd_path};
use plfs_core::{Config, Error, FORK_GATE, Plfs};
use rustix::fs::{AtFlags, Mode, OFlags};

/// A failed call: error number and sentence.
pub(crate) struct Failure {
    errno: Errno,
    text: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { errno: error.errno(), text: error.to_string() }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, text: errno.to_string() }
    }
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Failure {
        Failure { errno, text: text.into() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Longest sentence kept, in bytes: a path of 4,096 (PATH_MAX) is cut.
const SENTENCE_MAX: usize = 1024;

thread_local! {
    /// A C string. Without a destructor, which would be registered with libc's malloc.
    pub(crate) static LAST_ERROR: Cell<[u8; SENTENCE_MAX]> = const { Cell::new([0; SENTENCE_MAX]) };
}

/// Runs the body of an export: behind the fork gate, inside the panic boundary. Gives the value or
/// the negative error number, and keeps the sentence.
pub(crate) fn call(body: impl FnOnce() -> Result<i64>) -> i64 {
    if ENDING.load(Ordering::Relaxed) {
        wait_for_the_end();
    }
    // Every call holds the gate shared; fork takes it alone, so that no lock of ours is held by a
    // thread that the child does not have.
    let _gate = FORK_GATE.read().unwrap_or_else(PoisonError::into_inner);
    behind_gate(body)
}

/// A signal ends the process: see [`door::plfs_door_end`].
static ENDING: AtomicBool = AtomicBool::new(false);

/// How long the calls that have begun may take then, on storage that is slow. One that the signal
/// has interrupted never ends: libplfs was not called through the preload library, which waits for
/// the end of a call.
const END_WAIT: Duration = Duration::from_secs(5);

#[cold]
fn wait_for_the_end() {
    while ENDING.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps all calls out that have not begun, for ever, and does `body` when the others have ended.
/// EBUSY if they do not.
pub(crate) fn at_the_end(body: impl FnOnce() -> Result<i64>) -> i64 {
    // Another thread has such a signal, too: its commit is this one's.
    while ENDING.swap(true, Ordering::Relaxed) {
        wait_for_the_end();
    }
    let begun = Instant::now();
    let gate = loop {
        match FORK_GATE.try_write() {
            Ok(gate) => break gate,
            Err(TryLockError::Poisoned(gate)) => break gate.into_inner(),
            Err(TryLockError::WouldBlock) if begun.elapsed() > END_WAIT => {
                ENDING.store(false, Ordering::Relaxed);
                let text = "a call did not end";
                return behind_gate(|| Err(Failure::new(Errno::BUSY, text)));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    std::mem::forget(gate);
    behind_gate(body)
}

/// [`call`] by who has the gate.
fn behind_gate(body: impl FnOnce() -> Result<i64>) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            Errno::IO,
            "PLFS has a bug and stopped this call; please report what it printed",
        ),
    };
    keep_sentence(&failure.text);
    -i64::from(failure.errno.raw_os_error())
}

/// Apart, so that calls which succeed have no room for it on their stack.
#[cold]
#[inline(never)]
fn keep_sentence(text: &str) {
    let mut sentence = [0; SENTENCE_MAX];
    for (at, byte) in sentence[..SENTENCE_MAX - 1].iter_mut().zip(text.bytes()) {
        *at = if byte == 0 { b' ' } else { byte };
    }
    LAST_ERROR.set(sentence);
}

static PLFS: OnceLock<std::result::Result<Plfs, String>> = OnceLock::new();

/// The process's PLFS, if a call has set it up.
pub(crate) fn plfs_if_there() -> Option<&'static Plfs> {
    PLFS.get()?.as_ref().ok()
}

/// The process's PLFS, set up at the first call from the environment.
pub(crate) fn plfs() -> Result<&'static Plfs> {
    let plfs = PLFS.get_or_init(|| {
        heap::protect();
        let plfs = Config::from_env().map(Plfs::posix);
        if plfs.is_ok() {
            // SAFETY: the handlers are plain functions that stay loaded as long as this library,
            // which is never unloaded once it has threads.
            unsafe {
                libc::pthread_atfork(
                    Some(before_fork),
                    Some(after_fork),
                    Some(after_fork_in_child),
                );
                libc::atexit(at_exit);
            }
        }
        plfs
    });
    plfs.as_ref().map_err(|text| Failure::new(Errno::INVAL, text.clone()))
}

/// The gate, held over a fork by the thread that forks.
static HELD: std::sync::Mutex<Option<Held>> = std::sync::Mutex::new(None);

struct Held(#[allow(dead_code)] RwLockWriteGuard<'static, ()>);

// SAFETY: the guard is put in by `before_fork` and taken out by the same thread in `after_fork` or
// `after_fork_in_child`: it never changes threads.
unsafe impl Send for Held {}

extern "C" fn before_fork() {
    // What is not committed would be written by both or by neither.
    call(|| plfs()?.before_fork().map(|()| 0).map_err(Failure::from));
    let held = Held(FORK_GATE.write().unwrap_or_else(PoisonError::into_inner));
    // And the little that others have written meanwhile, now that nobody does.
    behind_gate(|| plfs()?.before_fork_alone().map(|()| 0).map_err(Failure::from));
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
}

extern "C" fn after_fork() {
    drop(HELD.lock().unwrap_or_else(PoisonError::into_inner).take());
}

extern "C" fn after_fork_in_child() {
    ENDING.store(false, Ordering::Relaxed);
    // Threads that the child does not have may have had some for a moment.
    PosixStore::release_numbers();
    after_fork();
    call(|| {
        plfs()?.after_fork_in_child();
        Ok(0)
    });
}

/// Set once exit handlers run: stdio flushes its buffers after them, so from then on every write is
/// committed by itself.
pub(crate) static EXITING: AtomicBool = AtomicBool::new(false);

/// What exit calls in place of [`leave`]: see [`door::plfs_door_at_exit`].
pub(crate) static LEAVE: OnceLock<extern "C" fn()> = OnceLock::new();

extern "C" fn at_exit() {
    EXITING.store(true, Ordering::Release);
    LEAVE.get().copied().unwrap_or(leave)();
}

extern "C" fn leave() {
    call(|| {
        let ended = plfs()?.exit();
        if let Err(error) = &ended {
            // Nobody is left to be told otherwise. By a system call: write(2) may be the preload
            // library's.
            let line = format!("plfs: bytes that were written are lost: {error}\n");
            // SAFETY: the number is used in this call only; a closed one makes it fail.
            let _ = unsafe { borrow(libc::STDERR_FILENO) }
                .map(|stderr| rustix::io::write(stderr, line.as_bytes()));
        }
        ended.map(|()| 0).map_err(Failure::from)
    });
}

/// # Safety
/// `path` is NULL or a C string.
pub(crate) unsafe fn path_arg<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Failure::new(Errno::FAULT, "a path is NULL"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() {
        return Err(Failure::new(Errno::NOENT, "a path is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// `path` as seen from `dirfd` (AT_FDCWD included), absolute. Layouts are those of the directories
/// above: where `..` leads to, the kernel is asked.
pub(crate) fn absolute(dirfd: c_int, path: &Path) -> Result<Cow<'_, Path>> {
    where_it_leads(joined(dirfd, path)?)
}

/// The path of the directory that has the last part of `path`, by its text; `None`: it is the root,
/// or the working directory.
pub(crate) fn above(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').filter(|end| *end > 0)?;
    Some(Path::new(OsStr::from_bytes(&bytes[..end])))
}

/// Whether a part of the path is `..`.
pub(crate) fn has_parent(path: &Path) -> bool {
    // Quicker than to take it apart: most have no dot, and that is soon seen.
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: it looks at these bytes.
    let dot = unsafe { libc::memchr(bytes.as_ptr().cast(), i32::from(b'.'), bytes.len()) };
    let may_have = !dot.is_null() && bytes.windows(2).any(|two| two == b"..");
    may_have && path.components().any(|part| part == Component::ParentDir)
}

/// An absolute path without `..`, if the directory above is there. Of a directory in a flat one it
/// is the path that programs know.
pub(crate) fn where_it_leads(at: Cow<'_, Path>) -> Result<Cow<'_, Path>> {
    if !has_parent(&at) {
        return Ok(at);
    }
    let (dir, name) = match at.file_name() {
        Some(name) => (at.parent().unwrap_or(&at), Some(name)),
        None => (&*at, None),
    };
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let _passing = Passing::new();
    let dir = match rustix::fs::open(dir, how, Mode::empty()) {
        Ok(opened) => flat::named(link_of(opened.as_raw_fd())?)?,
        // The system does not find what is below a flat one.
        Err(_) if plfs_if_there().is_some_and(Plfs::knows_flat) => {
            plfs()?.real(dir, Links::Follow)?
        }
        // One that is not there is an error of the call's own.
        Err(_) => match plfs()?.is_below_flat(dir) {
            Ok(true) => plfs()?.real(dir, Links::Follow)?,
            _ => return Ok(at),
        },
    };
    Ok(match name {
        Some(name) => dir.join(name),
        None => dir,
    }
    .into())
}

fn joined(dirfd: c_int, path: &Path) -> Result<Cow<'_, Path>> {
    if path.is_absolute() {
        return Ok(path.into());
    }
    let dir = match dirfd {
        libc::AT_FDCWD => {
            PathBuf::from(OsStr::from_bytes(rustix::process::getcwd(Vec::new())?.as_bytes()))
        }
        _ => link_of(dirfd)?,
    };
    Ok(flat::named(dir)?.join(path).into())
}

/// The path of an open descriptor.
pub(crate) fn link_of(fd: c_int) -> Result<PathBuf> {
    let link =
        rustix::fs::readlink(fd_path(fd), Vec::new()).map_err(|_| Failure::from(Errno::BADF))?;
    let bytes = link.as_bytes();
    // The end of a name, perhaps, and then there is something.
    let gone = bytes
        .strip_suffix(b" (deleted)")
        .filter(|_| rustix::fs::statat(rustix::fs::CWD, bytes, AtFlags::SYMLINK_NOFOLLOW).is_err());
    Ok(PathBuf::from(OsStr::from_bytes(gone.unwrap_or(bytes))))
}

/// A descriptor number of the caller's.
///
/// # Safety
/// The caller keeps `fd` open while the result lives.
pub(crate) unsafe fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    match fd {
        libc::AT_FDCWD => Ok(rustix::fs::CWD.as_fd()),
        // SAFETY: not -1, and open by the caller's promise; a closed number makes system calls fail
        // with EBADF, nothing worse.
        0.. => Ok(unsafe { BorrowedFd::borrow_raw(fd) }),
        _ => Err(Failure::from(Errno::BADF)),
    }
}
