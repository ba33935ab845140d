//! Names in flat directories, which the system does not find (preload/)
//!
//! What concerns one name is a call of the system on the place where the name lies
//! ([`plfs_door_place`]); what makes, renames or removes one is a call here. A directory in a flat
//! one is where its name lies, so the system says a path of it that programs do not know: it is
//! turned back.

use std::borrow::Cow;
use std::ffi::{CString, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use libc::{mode_t, size_t, ssize_t};
use plfs_core::store::{Errno, Kind, Links};
use plfs_core::{Ending, Error, Place, Plfs};
use rustix::fs::{Access, CWD, FileType, Mode};

use crate::door::{At, Before, open_at};
use crate::handle::PlfsFile;
use crate::managed::{managed_dirs, managed_name};
use crate::path::{must_be_no_dir, refused_dir};
use crate::room::Room;
use crate::{Failure, Result, absolute, call, has_parent, link_of, path_arg, plfs, plfs_if_there};

/// What calls on names say of those in flat directories: no negative errno.
pub const PLFS_IS_FLAT: c_int = -5005;

/// What calls of this section say of names that are in none, and as the system knows them.
pub const PLFS_NOT_FLAT: c_int = -5006;

/// In the environment of a program: the path of its working directory, if that is in a flat one.
const CWD_VARIABLE: &str = "PLFS_FLAT_CWD";

/// Whether a directory lies in a shadow. Cheap.
pub(crate) fn is_in_shadow(dir: &[u8]) -> bool {
    // Most paths end here.
    let Some(at) = dir.windows(2).position(|two| two == b"/.") else { return false };
    plfs_core::is_in_shadow(Path::new(OsStr::from_bytes(&dir[at..])))
}

/// Whether a path may be what [`plfs_door_place`] gave.
pub(crate) fn is_place(path: &[u8]) -> bool {
    plfs_if_there().is_some_and(Plfs::knows_flat) && is_in_shadow(path)
}

/// The path by which programs know a directory that the system says is at `dir`.
pub(crate) fn named(dir: PathBuf) -> Result<PathBuf> {
    if !is_in_shadow(dir.as_os_str().as_bytes()) {
        return Ok(dir);
    }
    // The parent process knew its own, and shells know where they are.
    let hints = || {
        let said = [CWD_VARIABLE, "PWD"].into_iter().filter_map(std::env::var_os);
        said.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
    };
    Ok(plfs()?.name_of_dir(&dir, hints)?)
}

/// Whether `path` is taken from a directory in a flat one.
pub(crate) fn is_moved(dirfd: c_int, path: &Path) -> Result<bool> {
    if path.is_absolute() || !plfs()?.knows_flat() {
        return Ok(false);
    }
    Ok(is_in_shadow(dir_of(dirfd)?.as_os_str().as_bytes()))
}

/// Where the system says that a directory is.
fn dir_of(dirfd: c_int) -> Result<PathBuf> {
    match dirfd {
        libc::AT_FDCWD => {
            let here = rustix::process::getcwd(Vec::new())?;
            Ok(PathBuf::from(OsStr::from_bytes(here.as_bytes())))
        }
        _ => link_of(dirfd),
    }
}

/// The path of a name that the system does not find by the one that the program gave: it lies below
/// a flat directory, or is taken from one (`is_moved`). Links of directories that lead out are
/// followed.
pub(crate) fn settled(at: &Path, is_moved: bool) -> Result<Option<PathBuf>> {
    let plfs = plfs()?;
    if plfs_door_has_flat() == 0 || !plfs.is_below_flat(at)? {
        return Ok(is_moved.then(|| at.to_path_buf()));
    }
    match plfs.is_flat(at.parent().unwrap_or(Path::new("/")))? {
        true => Ok(Some(at.to_path_buf())),
        false => Ok(Some(plfs.real(at, Links::Stay)?)),
    }
}

/// EPERM for a name that no program sees.
fn must_be_seen(at: &Path) -> Result<()> {
    match at.file_name().is_some_and(plfs_core::is_hidden) {
        true => Err(Errno::PERM.into()),
        false => Ok(()),
    }
}

/// [`settled`], or a directory that is flat itself.
pub(crate) fn settled_or_dir(at: &Path, is_moved: bool) -> Result<Option<PathBuf>> {
    match settled(at, is_moved)? {
        None if plfs_door_has_flat() == 1 && plfs()?.is_flat(at)? => Ok(Some(at.to_path_buf())),
        other => Ok(other),
    }
}

/// A name as a program gave it.
struct Name {
    /// [`settled`], if it is in a flat directory.
    at: PathBuf,
    ending: Ending,
}

/// Runs `body` on a name for which [`settled`] has a path; else PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn on_flat(
    dirfd: c_int,
    path: *const c_char,
    body: impl FnOnce(&Plfs, Name) -> Result<i64>,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { on_name(dirfd, path, settled, body) }
}

/// # Safety
/// `path` is NULL or a C string.
unsafe fn on_name(
    dirfd: c_int,
    path: *const c_char,
    settle: impl FnOnce(&Path, bool) -> Result<Option<PathBuf>>,
    body: impl FnOnce(&Plfs, Name) -> Result<i64>,
) -> i64 {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { managed_name(dirfd, path) }) else {
        return i64::from(PLFS_NOT_FLAT);
    };
    call(|| {
        let (at, is_moved) = name?;
        let Some(at) = settle(&at, is_moved)? else { return Ok(i64::from(PLFS_NOT_FLAT)) };
        // SAFETY: what is managed is a C string.
        let ending = Ending::of(unsafe { path_arg(path) }?);
        body(plfs()?, Name { at, ending })
    })
}

fn put_text(text: Vec<u8>, out: *mut *mut c_char) -> Result<()> {
    // SAFETY: the callers promise a place for a pointer.
    let out = unsafe { out.as_mut() }.ok_or_else(|| Failure::from(Errno::FAULT))?;
    *out = CString::new(text).map_err(|_| Failure::from(Errno::INVAL))?.into_raw();
    Ok(())
}

/// Frees a text that a function of this section gave.
///
/// # Safety
/// `text` is one, not used afterwards, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_free_text(text: *mut c_char) -> c_int {
    if !text.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(text) });
    }
    0
}

/// 1 once the process has found a flat directory. Cheap. As long as it has not, a name that the
/// file system has is not looked for in one.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_knows_flat() -> c_int {
    c_int::from(plfs_if_there().is_some_and(Plfs::knows_flat))
}

/// Another program is about to begin, which may rename or replace flat directories.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_flat_forget() -> c_int {
    call(|| {
        plfs()?.forget_flat();
        Ok(0)
    }) as c_int
}

/// For [`plfs_door_place`]: links at the end of the path are followed.
pub const PLFS_PLACE_FOLLOW: c_int = 1;
/// For [`plfs_door_place`]: the file system has found nothing, so that its links are looked at.
pub const PLFS_PLACE_ALL: c_int = 2;

/// Where a name of a flat directory lies: 0, and a path in `*out` by which the system finds what
/// the name is, for plfs_door_free_text. It may be elsewhere a moment later, and then the system
/// says ENOENT: ask again. 1: links lead to that path, which is in no flat directory. -ENOENT:
/// nothing has the name. PLFS_NOT_FLAT: it is in no flat directory, nor leads to one.
///
/// # Safety
/// `path` is NULL or a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_place(
    dirfd: c_int,
    path: *const c_char,
    how: c_int,
    out: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { managed_name(dirfd, path) }) else { return PLFS_NOT_FLAT };
    call(|| {
        let (at, is_moved) = name?;
        let (plfs, all) = (plfs()?, how & PLFS_PLACE_ALL != 0);
        let is_below = plfs.is_below_flat(&at)?;
        if !is_below && !is_moved && !all {
            return Ok(i64::from(PLFS_NOT_FLAT));
        }
        // SAFETY: the caller's promise.
        let path = unsafe { path_arg(path) }?;
        let mut ending = Ending::of(path);
        // As for the system, what has to be a directory is not the link to it.
        let links = match ending.is_for_directory() || how & PLFS_PLACE_FOLLOW != 0 {
            true => Links::Follow,
            false => Links::Stay,
        };
        let (place, said) = match plfs.place(&at, links, all)? {
            Place::There { place, name, .. } => {
                ending = ending.behind_links(&name);
                (place, 0)
            }
            Place::Out(out) => (out, 1),
            Place::Nothing(_) => return Err(Errno::NOENT.into()),
            // The kernel knows it by this path: not by the other, which goes through a directory
            // in a flat one.
            Place::Ordinary if is_moved || all && has_parent(path) => (at.clone(), 1),
            Place::Ordinary => return Ok(i64::from(PLFS_NOT_FLAT)),
        };
        let mut place = place.into_os_string().into_vec();
        match ending {
            Ending::Name => {}
            Ending::Slash => place.push(b'/'),
            Ending::Dot | Ending::Parent => place.extend_from_slice(b"/."),
        }
        put_text(place, out).map(|()| said)
    }) as c_int
}

/// 1 if `path` lies below a flat directory, 2 if it is one itself, 0 if neither.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_flat(dirfd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { managed_name(dirfd, path) }) else { return 0 };
    call(|| {
        let (at, _) = name?;
        let plfs = plfs()?;
        match plfs.is_below_flat(&at)? {
            true => Ok(1 + i64::from(plfs.is_flat(&at).unwrap_or(false))),
            false => Ok(2 * i64::from(plfs.is_flat(&at)?)),
        }
    }) as c_int
}

/// 1 if there may be a flat directory: a managed one has shadows. Costs a call for each, and for
/// half a second after that nothing.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_has_flat() -> c_int {
    static NONE_UNTIL_MS: AtomicI64 = AtomicI64::new(0);
    if plfs_door_knows_flat() == 1 {
        return 1;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let now_ms = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    if now_ms < NONE_UNTIL_MS.load(Ordering::Relaxed) {
        return 0;
    }
    // A C string from the heap: any other path takes room on the caller's stack.
    let has_shadows = |dir: &Vec<u8>| {
        let shadows = CString::new([dir, &b"/.plfs/spread"[..]].concat());
        shadows.is_ok_and(|shadows| rustix::fs::access(&shadows, Access::EXISTS).is_ok())
    };
    if managed_dirs().iter().any(has_shadows) {
        return 1;
    }
    NONE_UNTIL_MS.store(now_ms + 500, Ordering::Relaxed);
    0
}

/// openat(2) with O_CREAT of a name in a flat directory that nothing has: a descriptor, and in
/// `*out` a handle or NULL, as plfs_door_open, with `spare` as there. -EEXIST: something has it.
///
/// # Safety
/// `path` is NULL or a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_create(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    spare: c_uint,
    out: *mut *mut PlfsFile,
) -> c_int {
    let create = |plfs: &Plfs, name: Name| {
        let follows = flags & (libc::O_EXCL | libc::O_NOFOLLOW) == 0;
        let at = match name.ending == Ending::Name && follows {
            true => match plfs.place(&name.at, Links::Follow, false)? {
                Place::Nothing(at) => at,
                _ => return Err(Errno::EXIST.into()),
            },
            false => name.at,
        };
        match name.ending.behind_links(&at) {
            Ending::Name => {}
            Ending::Slash => {
                // An error of the directories above goes first.
                plfs.place(&at, Links::Stay, false)?;
                return Err(Errno::ISDIR.into());
            }
            Ending::Dot | Ending::Parent => return refused_dir(&at, Errno::EXIST),
        }
        must_be_seen(&at)?;
        let flags = flags | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: the caller's promise.
        let out = unsafe { out.as_mut() }.ok_or_else(|| Failure::from(Errno::FAULT))?;
        let mut open = |place: &Path| {
            let failed = |errno| Error::Io { op: "create", path: at.clone(), errno };
            let (known, how) = (At::place(place), (flags, mode));
            let (before, out) = (Before::of_new(Room(spare)), Some(&mut *out));
            // SAFETY: it is the working directory.
            unsafe { open_at(libc::AT_FDCWD, place, known, how, before, out) }
                .map_err(|failure| failed(failure.errno))
        };
        Ok(plfs.create_flat(&at, &mut open)?.unwrap_or(i64::from(PLFS_NOT_FLAT)))
    };
    // SAFETY: the caller's promise.
    unsafe { on_flat(dirfd, path, create) as c_int }
}

/// mkdirat(2) in a flat directory, or PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_mkdir(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    let make = |plfs: &Plfs, name: Name| match name.ending == Ending::Dot {
        true => refused_dir(&name.at, Errno::EXIST),
        false => {
            must_be_seen(&name.at)?;
            Ok(plfs.mkdir(&name.at, mode & 0o7777).map(|()| 0)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { on_flat(dirfd, path, make) as c_int }
}

/// mknodat(2) in a flat directory of what is no regular file, or PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_mknod(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    dev: u64,
) -> c_int {
    let make = |plfs: &Plfs, name: Name| {
        if name.ending.is_for_directory() {
            return Err(Errno::NOENT.into());
        }
        must_be_seen(&name.at)?;
        let (kind, bits) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        let mut make = |place: &Path| {
            let failed = |errno| Error::Io { op: "create", path: name.at.clone(), errno };
            rustix::fs::mknodat(CWD, place, kind, bits, dev).map_err(failed)
        };
        match plfs.create_flat(&name.at, &mut make)? {
            Some(()) => Ok(0),
            None => Ok(make(&name.at).map(|()| 0)?),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { on_flat(dirfd, path, make) as c_int }
}

/// symlinkat(2) in a flat directory, or PLFS_NOT_FLAT.
///
/// # Safety
/// `target` is a C string, `path` one or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_symlink(
    target: *const c_char,
    dirfd: c_int,
    path: *const c_char,
) -> c_int {
    let make = |plfs: &Plfs, name: Name| match name.ending.is_for_directory() {
        true => Err(Errno::NOENT.into()),
        false => {
            must_be_seen(&name.at)?;
            // SAFETY: the caller's promise.
            Ok(plfs.symlink(unsafe { path_arg(target) }?, &name.at).map(|()| 0)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { on_flat(dirfd, path, make) as c_int }
}

/// linkat(2) where one of the names is in a flat directory, or PLFS_NOT_FLAT. `follow`: what a link
/// at `old` leads to.
///
/// # Safety
/// The paths are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_link(
    olddirfd: c_int,
    old: *const c_char,
    newdirfd: c_int,
    new: *const c_char,
    follow: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (old, new) = unsafe { (path_arg(old)?, path_arg(new)?) };
        let (from, to) = (absolute(olddirfd, old)?, absolute(newdirfd, new)?);
        let source = settled(&from, is_moved(olddirfd, old)?)?;
        let target = settled(&to, is_moved(newdirfd, new)?)?;
        if source.is_none() && target.is_none() {
            return Ok(i64::from(PLFS_NOT_FLAT));
        }
        let (mut from, to) = (source.map_or(from, Cow::Owned), target.map_or(to, Cow::Owned));
        must_be_seen(&to)?;
        must_be_no_dir(old)?;
        if Ending::of(new) == Ending::Slash {
            return Err(Errno::NOENT.into());
        }
        if follow != 0 {
            from = match plfs()?.place(&from, Links::Follow, true)? {
                Place::There { name, .. } | Place::Nothing(name) | Place::Out(name) => name.into(),
                Place::Ordinary => from,
            };
        }
        Ok(plfs()?.link(&from, &to).map(|()| 0)?)
    }) as c_int
}

/// Renames where one of the names is in a flat directory: its settled path, and as it was given.
pub(crate) fn rename(
    (from, old): (&Path, &Path),
    (to, new): (&Path, &Path),
    flags: c_uint,
) -> Result<i64> {
    let plfs = plfs()?;
    must_be_seen(to)?;
    if flags != 0 {
        plfs.stat(from, Links::Stay)?;
        let is_there = || plfs.stat(to, Links::Stay).is_ok();
        if flags == libc::RENAME_NOREPLACE && is_there() {
            return Err(Errno::EXIST.into());
        }
        // Somebody may make the name before the rename. Programs know it of other file systems.
        return Err(Failure::new(Errno::INVAL, "flat directories know plain renames only"));
    }
    let is_dir =
        matches!(plfs.place(from, Links::Stay, false)?, Place::There { kind: Kind::Dir, .. });
    if !is_dir && [old, new].into_iter().any(|path| Ending::of(path) == Ending::Slash) {
        // ENOENT goes first.
        plfs.stat(from, Links::Stay)?;
        return Err(Errno::NOTDIR.into());
    }
    for (at, name) in [(from, old), (to, new)] {
        if Ending::of(name) == Ending::Dot {
            return refused_dir(at, Errno::BUSY);
        }
    }
    plfs.rename(from, to)?;
    if is_dir {
        plfs.was_renamed(from, to);
        // Who works in it has moved with it.
        plfs.place(to, Links::Stay, false)?;
    }
    Ok(0)
}

/// rmdir(2) of a directory that is flat, or PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_rmdir(dirfd: c_int, path: *const c_char) -> c_int {
    let remove = |plfs: &Plfs, name: Name| match name.ending == Ending::Dot {
        true => Err(Errno::INVAL.into()),
        false => Ok(plfs.rmdir(&name.at).map(|()| 0)?),
    };
    // SAFETY: the caller's promise.
    unsafe { on_name(dirfd, path, settled_or_dir, remove) as c_int }
}

/// fsync(2) of what the kernel does not know of a directory: those in which the names of a flat one
/// lie, and what this process has said to the pack.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_sync_directory(fd: c_int) -> c_int {
    call(|| {
        let dir = named(link_of(fd)?)?;
        if !plfs()?.sync_flat(&dir)?
            && let Some(pack) = plfs()?.pack(&dir)?
        {
            pack.sync()?;
        }
        Ok(0)
    }) as c_int
}

/// readlinkat(2) in a flat directory, or PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string, `buf` has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_readlink(
    dirfd: c_int,
    path: *const c_char,
    buf: *mut c_char,
    n: size_t,
) -> ssize_t {
    let read = |plfs: &Plfs, name: Name| {
        let text = match name.ending.is_for_directory() {
            true => {
                plfs.stat(&name.at, Links::Follow)?;
                return Err(Errno::INVAL.into());
            }
            false => plfs.readlink(&name.at)?,
        };
        let text = text.as_os_str().as_bytes();
        let n = n.min(text.len());
        // SAFETY: the caller promises room for n bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n) };
        Ok(n as i64)
    };
    // SAFETY: the caller's promise.
    unsafe { on_flat(dirfd, path, read) as ssize_t }
}

/// realpath(3) of what is in a flat directory: 0 and the path in `*out`, for plfs_door_free_text;
/// or PLFS_NOT_FLAT.
///
/// # Safety
/// `path` is NULL or a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_realpath(
    path: *const c_char,
    out: *mut *mut c_char,
) -> c_int {
    let tell = |plfs: &Plfs, name: Name| {
        let real = plfs.real(&name.at, Links::Follow)?;
        if name.ending.is_for_directory() && plfs.stat(&real, Links::Follow)?.stat.kind != Kind::Dir
        {
            return Err(Errno::NOTDIR.into());
        }
        put_text(real.into_os_string().into_vec(), out).map(|()| 0)
    };
    let settle = |at: &Path, is_moved| match settled_or_dir(at, is_moved)? {
        Some(at) => Ok(Some(at)),
        // A link of the system to something there.
        None => match plfs()?.place(at, Links::Follow, true)? {
            Place::There { name, .. } | Place::Nothing(name) => Ok(Some(name)),
            _ => Ok(None),
        },
    };
    // SAFETY: the caller's promise.
    unsafe { on_name(libc::AT_FDCWD, path, settle, tell) as c_int }
}

/// What programs call what the system says is at `path`, which is absolute: 1 and its name in
/// `*out`, for plfs_door_free_text, if it is in a flat directory; else 0. An error if it is, and
/// nobody knows its name.
///
/// # Safety
/// `path` is a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_name(path: *const c_char, out: *mut *mut c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path_arg(path) }?;
        if !is_in_shadow(path.as_os_str().as_bytes()) {
            return Ok(0);
        }
        let bytes = path.as_os_str().as_bytes();
        let is_gone = bytes.strip_suffix(b" (deleted)");
        let place = Path::new(OsStr::from_bytes(is_gone.unwrap_or(bytes)));
        let name = match plfs()?.name_of(place) {
            Some(name) => name,
            None => named(place.to_path_buf())?,
        };
        // It may have been found through links.
        let name = plfs()?.real(&name, Links::Stay).unwrap_or(name);
        let mut name = name.into_os_string().into_vec();
        if is_gone.is_some() {
            name.extend_from_slice(b" (deleted)");
        }
        put_text(name, out).map(|()| 1)
    }) as c_int
}

/// What a program that this one becomes, or starts in the directory `dirfd` (AT_FDCWD included),
/// has to find in its environment to know where it is: 1 and `NAME=VALUE` in `*out`, for
/// plfs_door_free_text; 0: nothing.
///
/// # Safety
/// `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flat_environment(dirfd: c_int, out: *mut *mut c_char) -> c_int {
    call(|| {
        let here = dir_of(dirfd)?;
        if !is_in_shadow(here.as_os_str().as_bytes()) {
            return Ok(0);
        }
        let name = named(here)?;
        let mut text = format!("{CWD_VARIABLE}=").into_bytes();
        text.extend_from_slice(name.as_os_str().as_bytes());
        put_text(text, out).map(|()| 1)
    }) as c_int
}
