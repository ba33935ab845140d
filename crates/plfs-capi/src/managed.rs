//! Which paths lie in managed directories (preload/, mpi/)

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use plfs_core::Workload;
use plfs_core::config::managed_dirs as managed_dirs_of_process;
use plfs_core::store::{fd_path, own_proc};
use syscalls::{Sysno, syscall2};

use crate::flat;
use crate::{Result, call, heap, here, link_of, plfs_if_there, where_it_leads};

/// Room on the stack for the directory that a relative path begins at. Every open and stat of a
/// program comes here, signal handlers' and those of threads with 16 KiB of stack, too; a longer
/// path goes to the heap.
const DIR_ROOM: usize = 256;

/// Does `path`, taken from `from`, lie in `dir`, a normal path (empty for the root), or is it
/// `dir`? By its text: `.` and empty parts vanish, `..` takes the part before it away.
fn lies_below(dir: &[u8], from: &[u8], path: &[u8]) -> bool {
    // Of the parts so far, those that are left, and those at the beginning that are `dir`'s, which
    // end at `at`.
    let (mut left, mut same, mut at) = (0, 0, 0);
    for path in [from, path] {
        for part in parts(path) {
            match part {
                b"" | b"." => {}
                b".." if left > 0 => {
                    left -= 1;
                    if same > left {
                        same = left;
                        at = dir[..at].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    }
                }
                b".." => {}
                _ => {
                    let end = at + 1 + part.len();
                    if same == left
                        && dir.get(at + 1..end) == Some(part)
                        && matches!(dir.get(end), None | Some(b'/'))
                    {
                        same += 1;
                        at = end;
                    }
                    left += 1;
                }
            }
        }
    }
    at == dir.len()
}

/// `path`, which is absolute, as a normal path.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                normal.truncate(normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            }
            _ => {
                normal.push(b'/');
                normal.extend_from_slice(part);
            }
        }
    }
    normal
}

/// The managed directories, as normal paths. Read from the environment, or plfsrc if that names
/// none, and not from [`plfs`], which a process that only asks here should not have to set up.
pub(crate) fn managed_dirs() -> &'static [Vec<u8>] {
    static MANAGED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    MANAGED.get_or_init(|| {
        heap::protect();
        here::know_the_clock();
        let paths = managed_dirs_of_process();
        // A relative path would change its meaning with the current directory.
        let absolute = paths.iter().filter(|path| path.is_absolute());
        absolute.map(|path| normal(path.as_os_str().as_bytes())).collect()
    })
}

/// 1 if `path`, taken from `dirfd` (AT_FDCWD included) if it is relative, is a managed directory or
/// lies below one (PLFS_MOUNTS), by its text; else 0. After the first call it opens nothing, and
/// uses less than 700 bytes of stack.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_below_managed(dirfd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { below_managed(dirfd, path, |_, _| ()) }.is_some())
}

/// [`plfs_door_below_managed`] of the name of an open file; 1 as well if it lies where flat
/// directories keep it.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_fd_below_managed(fd: c_int) -> c_int {
    let Ok(path) = link_of(fd) else { return 0 };
    let path = path.as_os_str().as_bytes();
    c_int::from(is_below(b"", path) || flat::is_in_shadow(path))
}

/// Does a managed directory lie on the device `dev`, or can nobody know that? A stat for each of
/// them, once.
pub(crate) fn manages_device(dev: u64) -> bool {
    static DEVICES: OnceLock<Option<Vec<u64>>> = OnceLock::new();
    let devices = DEVICES.get_or_init(|| {
        let dirs = managed_dirs().iter().map(|dir| OsStr::from_bytes(dir));
        dirs.map(|dir| rustix::fs::stat(dir).ok().map(|stat| stat.st_dev)).collect()
    });
    devices.as_ref().is_none_or(|devices| devices.contains(&dev))
}

/// What [`plfs_door_opens_managed`] says of a path beside which new files are known to be plain.
pub const PLFS_OPENS_PLAIN: c_int = 2;

/// What it says where they are known to be containers.
pub const PLFS_OPENS_SHARED: c_int = 3;

/// [`plfs_door_below_managed`] for an open. Of a relative path a yes may be as old as a second, for
/// who moved without [`plfs_door_moved`]. PLFS_OPENS_PLAIN and PLFS_OPENS_SHARED say besides that
/// packs need not be asked before the kernel: this process has found none yet, and what new files
/// beside the path are it found out half a second ago at most.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_opens_managed(dirfd: c_int, path: *const c_char) -> c_int {
    if dirfd == libc::AT_FDCWD && !path.is_null() {
        // SAFETY: not NULL; the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let is_managed = match path.first() {
            None => Some(false),
            Some(b'/') => Some(is_below(b"", path) || flat::is_place(path)),
            // Of one that is not, the kernel is asked.
            Some(_) => here::with(|dir, is_managed| {
                is_managed && !parts(path).any(|part| part == b"..") || is_below(dir, path)
            })
            .filter(|is_managed| *is_managed),
        };
        if let Some(is_managed) = is_managed {
            let known = here::known_workload(path).filter(|_| is_managed);
            return match known {
                Some(_) if plfs_if_there().is_some_and(|plfs| plfs.knows_packs()) => 1,
                Some(Workload::Auto) => PLFS_OPENS_PLAIN,
                Some(Workload::Shared) => PLFS_OPENS_SHARED,
                _ => c_int::from(is_managed),
            };
        }
    }
    // SAFETY: the caller's promise.
    c_int::from(unsafe { looks_managed(dirfd, path) })
}

/// [`plfs_door_below_managed`], which keeps what the working directory is. By itself, because it
/// has room for that on the stack, which other opens shall not take.
///
/// # Safety
/// `path` is NULL or a C string.
#[inline(never)]
unsafe fn looks_managed(dirfd: c_int, path: *const c_char) -> bool {
    let moves = here::moves();
    let keep = |dir: &[u8], _: &[u8]| match dirfd {
        // What is made in a flat directory is looked up each time.
        libc::AT_FDCWD if !dir.is_empty() && !flat::is_in_shadow(dir) => {
            here::keep(dir, is_below(dir, b""), moves);
        }
        _ => {}
    };
    // SAFETY: the caller's promise.
    unsafe { below_managed(dirfd, path, keep) }.is_some()
}

/// The working directory may have been changed, or a directory renamed.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_moved() -> c_int {
    here::moved();
    match plfs_if_there().filter(|plfs| plfs.knows_packs()) {
        // As a call: a fork at this moment would leave its lock to a child that has no such thread.
        Some(plfs) => call(|| {
            plfs.forget_packs_seen();
            Ok(0)
        }) as c_int,
        None => 0,
    }
}

/// What `found` makes of the directory that `path` is taken from (empty if it is absolute) and of
/// the path, if that is a managed directory or lies below one.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn below_managed<T>(
    dirfd: c_int,
    path: *const c_char,
    found: impl FnOnce(&[u8], &[u8]) -> T,
) -> Option<T> {
    let managed = managed_dirs();
    // SAFETY: the caller's promise.
    if managed.is_empty() || path.is_null() || unsafe { *path } == 0 {
        return None;
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path[0] == b'/' {
        return (is_below(b"", path) || flat::is_place(path)).then(|| found(b"", path));
    }
    let mut room = [const { MaybeUninit::<u8>::uninit() }; DIR_ROOM];
    let (known, long);
    let from = match short_dir(dirfd, &mut room) {
        Some(from) => {
            known = from;
            known
        }
        None => {
            long = long_dir(dirfd)?;
            long.as_slice()
        }
    };
    (from.first() == Some(&b'/') && (is_below(from, path) || flat::is_in_shadow(from)))
        .then(|| found(from, path))
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

/// Whether `path`, taken from `from`, is a managed directory or lies below one.
pub(crate) fn is_below(from: &[u8], path: &[u8]) -> bool {
    if from.is_empty() && is_normal(path) {
        return managed_dirs().iter().any(|dir| begins_with(path, dir));
    }
    managed_dirs().iter().any(|dir| lies_below(dir, from, path))
}

/// Whether an absolute path is certainly normal: it has neither an empty part nor one that begins
/// with a dot. All is looked at, many bytes at a time.
fn is_normal(path: &[u8]) -> bool {
    let pairs = path.iter().zip(path.iter().skip(1));
    let found = pairs.fold(false, |found, (a, b)| found | (*a == b'/') & matches!(b, b'/' | b'.'));
    path.first() == Some(&b'/') && !found
}

/// [`lies_below`] of a normal path.
fn begins_with(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// The directory that paths relative to `dirfd` begin at, if it fits into `room`.
fn short_dir(dirfd: c_int, room: &mut [MaybeUninit<u8>; DIR_ROOM]) -> Option<&[u8]> {
    if dirfd != libc::AT_FDCWD {
        // One that fills the room may be longer.
        return link_into(dirfd, room).filter(|link| link.len() < DIR_ROOM);
    }
    // Not by libc, whose getcwd takes a third of the stack that is for such a call.
    // SAFETY: the buffer has that room.
    unsafe { syscall2(Sysno::getcwd, room.as_mut_ptr() as usize, DIR_ROOM) }.ok()?;
    // SAFETY: the kernel has put a string there.
    Some(unsafe { CStr::from_ptr(room.as_ptr().cast()) }.to_bytes())
}

/// [`short_dir`] of any length. `None`: there is none.
fn long_dir(dirfd: c_int) -> Option<Vec<u8>> {
    match dirfd {
        libc::AT_FDCWD => rustix::process::getcwd(Vec::new()),
        0.. => rustix::fs::readlink(fd_path(dirfd), Vec::new()),
        _ => return None,
    }
    .map(|dir| dir.into_bytes())
    .ok()
}

/// [`absolute`] of a path that is a managed directory or lies below one.
///
/// # Safety
/// `path` is NULL or a C string.
pub(crate) unsafe fn managed_path(dirfd: c_int, path: *const c_char) -> Option<Result<PathBuf>> {
    // SAFETY: the caller's promise.
    let name = unsafe { managed_name(dirfd, path) }?;
    Some(name.map(|(at, _)| at))
}

/// [`managed_path`], and whether `dirfd` is a directory in a flat one: then the system takes `path`
/// from where that lies.
///
/// # Safety
/// `path` is NULL or a C string.
pub(crate) unsafe fn managed_name(
    dirfd: c_int,
    path: *const c_char,
) -> Option<Result<(PathBuf, bool)>> {
    let split = |dir: &[u8], path: &[u8]| {
        let (dir, path) = (OsStr::from_bytes(dir), OsStr::from_bytes(path));
        (PathBuf::from(dir), PathBuf::from(path))
    };
    // SAFETY: the caller's promise.
    let (dir, path) = unsafe { below_managed(dirfd, path, split) }?;
    let is_in_flat = flat::is_in_shadow(dir.as_os_str().as_bytes());
    let named = flat::named(dir).and_then(|dir| where_it_leads(dir.join(path).into()));
    Some(named.map(|at| (at.into_owned(), is_in_flat)))
}

/// The path of an open descriptor, without allocating.
fn link_into(fd: c_int, dir: &mut [MaybeUninit<u8>]) -> Option<&[u8]> {
    let mut name = [0u8; 32];
    let rest = {
        let mut room = &mut name[..];
        write!(room, "{}/fd/{fd}", own_proc().to_string_lossy()).ok()?;
        room.len()
    };
    let used = name.len() - rest;
    let name = CStr::from_bytes_until_nul(&name[..used + 1]).ok()?;
    let (link, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, dir).ok()?;
    Some(link)
}
