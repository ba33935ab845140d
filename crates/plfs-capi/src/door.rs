//! System calls on any file, where PLFS files are recognised (preload/, mpi/)

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};

use libc::{gid_t, mode_t, uid_t};
use plfs_core::config::managed_dirs as managed_dirs_of_process;
use plfs_core::pack::PackStat;
use plfs_core::store::{
    Errno, Kind, Links, Open, PosixFile, PosixStore, Stat, StoreFile, Time, learn_size_limit,
    stat_of,
};
use plfs_core::{
    Entry, File, LOOK_BYTES, NameFile, OpenOptions, Opened, Plfs, SUPERBLOCK_BYTES, Workload,
    Writers, Written, is_layout, may_be_logical,
};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::DupFlags;
use syscalls::{Sysno, syscall2};

use crate::attributes::{BLOCK_BYTES, process_lock_fd};
use crate::flat;
use crate::handle::{PlfsFile, access_of, handle, open_for};
use crate::io::seek;
use crate::packed::{PLFS_IS_PACKED, must_not_lead_through_file, open_passed, stand_in_of};
use crate::path::{
    may_change_names, may_chown, may_rename, must_be_no_dir, must_own, packed_if, truncate,
};
use crate::{
    Failure, LEAVE, Result, absolute, borrow, call, has_parent, here, link_of, path_arg, plfs,
    plfs_if_there, protect_heap, where_it_leads,
};

/// Flags that are set on the placeholder, where F_GETFL and F_GETFD read them.
pub(crate) const KEPT: c_int = libc::O_CLOEXEC | libc::O_APPEND | libc::O_NONBLOCK;

/// Room on the stack for the directory that a relative path begins at. Every open and stat of a
/// program comes here, signal handlers' and those of threads with 16 KiB of stack, too; a longer
/// path goes to the heap.
const DIR_ROOM: usize = 256;

/// Does a path that has these parts lie in `dir`, a normal path (empty for the root), or is it
/// `dir`? By its text: `.` and empty parts vanish, `..` takes the part before it away.
fn lies_below<'a>(dir: &[u8], parts: impl Iterator<Item = &'a [u8]>) -> bool {
    // Of the path's parts so far, those that are left, and those at its beginning that are `dir`'s,
    // which end at `at`.
    let (mut left, mut same, mut at) = (0, 0, 0);
    for part in parts {
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
                let rest = dir[at..].strip_prefix(b"/").and_then(|rest| rest.strip_prefix(part));
                if same == left
                    && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
                {
                    same += 1;
                    at += 1 + part.len();
                }
                left += 1;
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
        protect_heap();
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
    let moves = here::moves();
    let keep = |dir: &[u8], _: &[u8]| match dirfd {
        // What is made in a flat directory is looked up each time.
        libc::AT_FDCWD if !dir.is_empty() && !flat::is_in_shadow(dir) => {
            here::keep(dir, is_below(dir, b""), moves);
        }
        _ => {}
    };
    // SAFETY: the caller's promise.
    c_int::from(unsafe { below_managed(dirfd, path, keep) }.is_some())
}

/// The working directory may have been changed, or a directory renamed.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_moved() {
    here::moved();
    if let Some(plfs) = plfs_if_there() {
        plfs.forget_packs_seen();
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
fn is_below(from: &[u8], path: &[u8]) -> bool {
    managed_dirs().iter().any(|dir| lies_below(dir, parts(from).chain(parts(path))))
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
        0.. => rustix::fs::readlink(format!("/proc/self/fd/{dirfd}"), Vec::new()),
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
    let named = flat::named(dir).and_then(|dir| where_it_leads(dir.join(path)));
    Some(named.map(|at| (at, is_in_flat)))
}

/// The path of an open descriptor, without allocating.
fn link_into(fd: c_int, dir: &mut [MaybeUninit<u8>]) -> Option<&[u8]> {
    let mut name = [0u8; 32];
    let rest = {
        let mut room = &mut name[..];
        write!(room, "/proc/self/fd/{fd}").ok()?;
        room.len()
    };
    let used = name.len() - rest;
    let name = CStr::from_bytes_until_nul(&name[..used + 1]).ok()?;
    let (link, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, dir).ok()?;
    Some(link)
}

/// 1 if `path`, followed through links, is a PLFS file, 0 if it is anything else, -ENOENT if
/// nothing is there.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_plfs(dirfd: c_int, path: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
        if !may_be_logical(&stat_of(&rustix::fs::statat(dir, path, AtFlags::empty())?)) {
            return Ok(0);
        }
        // A damaged superblock counts as well: opened as a plain file, it would be overwritten.
        Ok(i64::from(!matches!(plfs()?.is_logical(&absolute(dirfd, path)?), Ok(false))))
    }) as c_int
}

/// [`plfs_door_open`]: nobody has opened the path.
pub const PLFS_NOT_OPENED: c_int = -5001;

/// [`plfs_door_open`]: nobody has opened the path, and nothing may be there. Said back: something
/// is, or a new file is no plain one; so open it first.
pub const PLFS_PERHAPS_NEW: c_int = -5004;

/// Opens `path` as openat(2), except that a regular file that it creates is a PLFS file, or will be
/// one when others write it. Gives a descriptor, which is the caller's.
///
/// `*out` is NULL for what is no business of PLFS: the descriptor was opened with exactly `flags`.
/// Else `*out` is a handle. On a plain file ([`plfs_door_is_plain`]) it uses the descriptor, which
/// was opened with `flags` too: close the handle first, and if the number goes while the handle
/// stays, say so before ([`plfs_door_own`]). On a file with a container the descriptor is a
/// placeholder: open for reading on the file's inode, it holds the number and answers stat, locks
/// and F_GETFL; close both.
///
/// `first` is what openat(2) gave the caller for the same path and flags, but without O_CREAT,
/// O_EXCL and O_TRUNC: a descriptor, which is taken over, or a negative errno; or PLFS_NOT_OPENED.
/// The open of a FIFO waits for the other end, and what waits should not be here. With
/// PLFS_PERHAPS_NEW and O_CREAT a new plain file costs no such open, an existing one two.
///
/// # Safety
/// `path` is a C string, `out` a place for a pointer; `first` is nobody else's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    first: c_int,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (at, out) = unsafe { (At::new(dirfd, path_arg(path)?)?, out.as_mut()) };
        let is_guess = first == PLFS_PERHAPS_NEW;
        let first = match first {
            PLFS_NOT_OPENED => None,
            PLFS_PERHAPS_NEW => Some(Err(Errno::NOENT)),
            // SAFETY: the caller's promise.
            0.. => Some(Ok(unsafe { OwnedFd::from_raw_fd(first) })),
            _ => Some(Err(Errno::from_raw_os_error(-first))),
        };
        // SAFETY: the caller's promise.
        unsafe { open_at(dirfd, path, at, flags, mode, (first, is_guess), out) }
    }) as c_int
}

/// The absolute path of a file that is opened.
pub(crate) struct At<'a> {
    dirfd: c_int,
    path: &'a Path,
    absolute: PathBuf,
    /// It is good enough for a handle on a plain file, and nothing else ([`here`]).
    is_believed: bool,
}

impl At<'_> {
    /// Of a name in a shadow.
    pub(crate) fn place(path: &Path) -> At<'_> {
        At { dirfd: libc::AT_FDCWD, path, absolute: path.to_path_buf(), is_believed: false }
    }

    fn new(dirfd: c_int, path: &Path) -> Result<At<'_>> {
        // Where `..` leads to the kernel says.
        let is_below = path.is_relative() && !has_parent(path);
        let known = match dirfd {
            libc::AT_FDCWD if is_below => here::join(path),
            _ => None,
        };
        let (is_believed, absolute) = match known {
            Some(known) => (true, known),
            None => (false, absolute(dirfd, path)?),
        };
        Ok(At { dirfd, path, absolute, is_believed })
    }

    /// As the kernel says it now.
    fn ask(&mut self) -> Result<&Path> {
        if std::mem::take(&mut self.is_believed) {
            self.absolute = absolute(self.dirfd, self.path)?;
        }
        Ok(&self.absolute)
    }
}

/// What [`plfs_door_unlink_managed`] says of other paths: no negative errno.
pub const PLFS_NOT_MANAGED: c_int = -5000;

/// Opens `path`, whose absolute path is `at`. `first`: what an open of it gave; `is_guess`: nobody
/// has tried.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn open_at(
    dirfd: c_int,
    path: *const c_char,
    mut at: At<'_>,
    flags: c_int,
    mode: mode_t,
    (mut first, is_guess): (Option<std::result::Result<OwnedFd, Errno>>, bool),
    out: Option<&mut *mut PlfsFile>,
) -> Result<i64> {
    let out = out.ok_or_else(|| Failure::new(Errno::FAULT, "the place for the handle is NULL"))?;
    *out = std::ptr::null_mut();
    // SAFETY: the caller's promises.
    let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
    let native = |flags: c_int| -> std::result::Result<OwnedFd, Errno> {
        let how = OFlags::from_bits_retain(flags as u32);
        loop {
            match rustix::fs::openat(dir, path, how, Mode::from_raw_mode(mode)) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    };
    if flags & (libc::O_PATH | libc::O_DIRECTORY) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
    {
        return Ok(native(flags)?.into_raw_fd() as i64);
    }
    let (create, exclusive) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
    loop {
        if !(create && exclusive) {
            // Without O_TRUNC: it may be a superblock.
            let how = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
            match first.take().unwrap_or_else(|| native(how)) {
                Ok(fd) => match existing(fd, &mut at, flags, &native, out)? {
                    Some(fd) => return Ok(fd),
                    // It got a container at this moment.
                    None => continue,
                },
                Err(Errno::NOENT) if create => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Ok(native(flags)?.into_raw_fd() as i64);
        }
        let options = OpenOptions {
            access: access_of(flags),
            create,
            exclusive,
            truncate: false,
            mode: mode & 0o7777,
            writers: Writers::Unknown,
        };
        // Quicker than to take the path apart.
        let has_dot = at.absolute.as_os_str().as_bytes().windows(2).any(|two| two == b"/.");
        let is_layout = has_dot && at.absolute.file_name().is_some_and(is_layout);
        // Of a new file the door asks packs only where new files are not known to be plain.
        let is_born_plain = match known_workload(plfs()?, dirfd, path, &at.absolute)? {
            Some(workload) => workload == Workload::Auto,
            None if plfs()?.packed_stat(&at.absolute)?.is_some() => {
                return Ok(i64::from(PLFS_IS_PACKED));
            }
            None => match plfs()?.workload_of(&at.absolute)? {
                // An ordinary file or a link that was there a moment ago is gone, or is there.
                Workload::Small if create => match is_link_at(dir, path) {
                    false => return Ok(i64::from(PLFS_IS_PACKED)),
                    true if exclusive => return Err(Errno::EXIST.into()),
                    true => false,
                },
                workload => workload == Workload::Auto,
            },
        };
        if is_born_plain && !is_layout {
            match native(flags | libc::O_EXCL) {
                Ok(fd) => return created_plain(fd, at, flags, options, out),
                Err(Errno::EXIST) if is_guess => return Ok(i64::from(PLFS_PERHAPS_NEW)),
                Err(Errno::EXIST) if !exclusive && !is_link_at(dir, path) => continue,
                // A dangling link, below.
                Err(Errno::EXIST) if !exclusive => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if is_guess {
            return Ok(i64::from(PLFS_PERHAPS_NEW));
        }
        let was_believed = at.is_believed;
        let at = at.ask()?;
        if was_believed && !plfs()?.is_mounted(at) {
            return Ok(native(flags)?.into_raw_fd() as i64);
        }
        match plfs()?.create_with_name(at, options) {
            Ok(file) => return created(file, flags, out),
            Err(error) if error.errno() == Errno::EXIST && !exclusive => {
                let is_link = is_link_at(dir, path);
                if is_link && flags & libc::O_NOFOLLOW == 0 {
                    // A dangling link: its target is to be created.
                    let target =
                        at.parent().unwrap_or(Path::new("/")).join(plfs()?.store().readlink(at)?);
                    if plfs()?.is_mounted(&target) {
                        if plfs()?.small(&target, true, true)?.is_some() {
                            return Ok(i64::from(PLFS_IS_PACKED));
                        }
                        match plfs()?.create_with_name(&target, options) {
                            Ok(file) => return created(file, flags, out),
                            Err(error) if error.errno() == Errno::EXIST => continue,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    return Ok(native(flags)?.into_raw_fd() as i64);
                }
                if is_link {
                    return Err(Errno::LOOP.into());
                }
            }
            // Nobody makes a container in a small directory. There was a link a moment ago.
            Err(error) if error.errno() == Errno::OPNOTSUPP && !is_link_at(dir, path) => {
                match plfs()?.workload_of(at)? {
                    Workload::Small => return Ok(i64::from(PLFS_IS_PACKED)),
                    _ => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// plfs_open by one of several processes that will write the file: it gets a container at once, if
/// it can have one.
///
/// # Safety
/// As plfs_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open_shared(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    out: *mut *mut PlfsFile,
) -> c_int {
    // SAFETY: the caller's promises.
    call(|| unsafe { open_for(path, flags, mode, Writers::Several, out) }) as c_int
}

/// What new files beside `path`, which leads to `at`, are, and that no pack has it: as this process
/// found out half a second ago at most, and finds out now. `None` if packs have to be asked: files
/// there go to one, or the process has found a pack.
fn known_workload(plfs: &Plfs, dirfd: c_int, path: &Path, at: &Path) -> Result<Option<Workload>> {
    if dirfd != libc::AT_FDCWD || plfs.knows_packs() {
        return Ok(None);
    }
    let workload = here::workload(path.as_os_str().as_bytes(), || match plfs.packed_stat(at)? {
        Some(_) => Ok(Workload::Small),
        None => plfs.workload_of(at),
    })?;
    Ok(Some(workload).filter(|workload| *workload != Workload::Small))
}

fn is_link_at(dir: BorrowedFd<'_>, path: &Path) -> bool {
    rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK)
}

/// `None`: to be opened again.
fn existing(
    fd: OwnedFd,
    at: &mut At<'_>,
    flags: c_int,
    native: &dyn Fn(c_int) -> std::result::Result<OwnedFd, Errno>,
    out: &mut *mut PlfsFile,
) -> Result<Option<i64>> {
    // A PosixFile is closed when it is dropped, by system call and not through libc; only the last
    // return gives it away.
    let opened = PosixFile::from_fd(fd);
    let stat = opened.stat()?;
    let (regular, access, truncate) =
        (stat.kind == Kind::File, access_of(flags), flags & libc::O_TRUNC != 0);
    if stat.kind == Kind::Dir && flags & libc::O_CREAT != 0 {
        return Err(Errno::ISDIR.into());
    }
    if may_be_logical(&stat) || access.write || truncate {
        at.ask()?;
    }
    let (is_believed, at) = (at.is_believed, &at.absolute);
    if may_be_logical(&stat) {
        // A superblock cannot be read through O_DIRECT either, which needs an aligned buffer.
        let readable = match access.write || flags & libc::O_DIRECT != 0 {
            true => match reopen(opened.as_fd(), flags).map(PosixFile::from_fd) {
                Ok(readable) => Some(readable),
                // Nobody can tell whether it is a PLFS file.
                Err(error) if !access.read => return Err(error),
                Err(_) => None,
            },
            false => None,
        };
        let name = readable.as_ref().unwrap_or(&opened);
        if let Some(file) = plfs()?.adopt_known(name, NameFile::Stays, at, &stat, access)? {
            match truncate {
                true if access.write => file.set_len(0)?,
                // As Linux does it: it needs the right to write the file, not a writer.
                true => plfs()?.truncate(at, 0)?,
                false => {}
            }
            *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
            return with_placeholder(opened, readable, flags).map(Some);
        }
    }
    if regular && (is_believed || plfs()?.is_mounted(at)) {
        let appends = access.write && flags & libc::O_APPEND != 0;
        if appends && plfs()?.pin(&opened, "opened with O_APPEND") {
            // The kernel appends, and better than we do.
        } else if access.write || !truncate {
            // It is decided that the file has a container. Who decided it may have died: then it is
            // made now. Of a copy, which has the attribute as well, none is.
            let writers = if appends { Writers::Several } else { Writers::Unknown };
            let options = OpenOptions { access, truncate, writers, ..OpenOptions::read() };
            let number = opened.as_fd().as_raw_fd();
            // SAFETY: the caller has the descriptor as long as the handle.
            let lent = Arc::new(unsafe { PosixFile::lent(number) });
            match plfs()?.opened_plain(lent, &stat, at, options)? {
                Opened::Plain(file) => {
                    *out = PlfsFile::new(file, appends);
                    return Ok(Some(opened.into_fd().into_raw_fd() as i64));
                }
                Opened::Logical(file) => {
                    *out = PlfsFile::new(file, appends);
                    let readable = reopen(opened.as_fd(), flags).map(PosixFile::from_fd).ok();
                    return with_placeholder(opened, readable, flags).map(Some);
                }
            }
        }
    }
    if truncate && regular {
        match access.write {
            true => opened.set_len(0)?,
            false => {
                drop(opened);
                return Ok(Some(native(flags & !libc::O_CREAT)?.into_raw_fd() as i64));
            }
        }
    }
    Ok(Some(opened.into_fd().into_raw_fd() as i64))
}

/// The placeholder, which can only read, takes the number of the first open: the lowest free one,
/// as open(2) promises.
fn with_placeholder(opened: PosixFile, readable: Option<PosixFile>, flags: c_int) -> Result<i64> {
    let mut fd = opened.into_fd();
    if let Some(readable) = readable {
        let close = match flags & libc::O_CLOEXEC {
            0 => DupFlags::empty(),
            _ => DupFlags::CLOEXEC,
        };
        rustix::io::dup3(&readable, &mut fd, close)?;
    }
    Ok(fd.into_raw_fd() as i64)
}

/// A plain file that was created a moment ago.
fn created_plain(
    fd: OwnedFd,
    mut at: At<'_>,
    flags: c_int,
    options: OpenOptions,
    out: &mut *mut PlfsFile,
) -> Result<i64> {
    let opened = PosixFile::from_fd(fd);
    if options.access.write && flags & libc::O_APPEND != 0 {
        if plfs()?.is_mounted(at.ask()?) {
            plfs()?.pin(&opened, "opened with O_APPEND");
        }
    } else {
        let stat = opened.stat()?;
        // SAFETY: the caller has the descriptor as long as the handle.
        let lent = Arc::new(unsafe { PosixFile::lent(opened.as_fd().as_raw_fd()) });
        *out = PlfsFile::new(plfs()?.created_plain(lent, &stat, &at.absolute, options), false);
    }
    Ok(opened.into_fd().into_raw_fd() as i64)
}

/// A handle on a plain file that only reads, for a descriptor that was opened so: it is lent `fd`,
/// which stays open as long as the handle, and looks at its first call whether the file has a
/// container.
///
/// # Safety
/// `fd` is open, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_read_in_place(fd: c_int, out: *mut *mut PlfsFile) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (lent, out) = unsafe { (Arc::new(PosixFile::lent(fd)), out.as_mut()) };
        let out = out.ok_or_else(|| Failure::from(Errno::FAULT))?;
        let stat = lent.stat()?;
        let file = plfs()?.opened_plain(lent, &stat, &link_of(fd)?, OpenOptions::read())?.file();
        file.look_first();
        *out = PlfsFile::new(file, false);
        Ok(0)
    }) as c_int
}

/// A plain file that the preload library has made, and writes in place without a handle: by the
/// rules of one (docs/decisions/0013), of which this is what has to be known.
#[repr(C)]
pub struct plfs_in_place {
    /// Device and inode.
    pub dev: u64,
    /// The same.
    pub ino: u64,
    /// Not 0 there: the next call must look, as somebody has said that there is a container. NULL:
    /// the process is not in the node's table for it, and a handle is to be made.
    pub flag: *const u64,
    /// Which entry of the table.
    pub slot: usize,
    /// The same.
    pub key: u64,
    /// The same.
    pub me: u64,
    /// What was written since the last look: from where on.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
    /// From when on: nanoseconds since 1970, asked for before the first of them was written.
    pub since_ns: u64,
    /// Not 0: something was written, be it before the last look.
    pub is_written: c_int,
    /// Not 0: the next call must look.
    pub must_look: c_int,
}

impl plfs_in_place {
    fn entry(&self) -> Option<Entry> {
        let Self { slot, key, me, .. } = *self;
        (!self.flag.is_null()).then_some(Entry { slot, key, me })
    }
}

/// Bytes after which who writes in place looks.
pub const PLFS_LOOK_BYTES: u64 = 1 << 20;

const _: () = assert!(PLFS_LOOK_BYTES == LOOK_BYTES);

/// Enters the process in the node's table as the writer of a plain file that it has made, of which
/// `at` has device and inode, and nothing else yet. 0: it needs a handle, as the first one of the
/// process. Some atomic operations, behind no gate.
///
/// # Safety
/// `at` points to a plfs_in_place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_enter(at: *mut plfs_in_place) -> c_int {
    // SAFETY: the caller's promise.
    let Some((plfs, at)) = plfs_if_there().zip(unsafe { at.as_mut() }) else { return 0 };
    let Some(entry) = plfs.enter_in_place((at.dev, at.ino)) else { return 0 };
    (at.slot, at.key, at.me) = (entry.slot, entry.key, entry.me);
    at.flag = plfs.flag_in_place(entry);
    1
}

/// The file is closed, and there is nothing to be handed over. Takes no lock.
///
/// # Safety
/// `at` points to a plfs_in_place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_leave(at: *const plfs_in_place) {
    // SAFETY: the caller's promise.
    let entry = unsafe { at.as_ref() }.and_then(plfs_in_place::entry);
    if let Some((plfs, entry)) = plfs_if_there().zip(entry) {
        plfs.leave_in_place(entry);
    }
}

/// A handle on the file of `at`, which is open as `fd` with these flags: it is lent `fd`, as by
/// plfs_door_open, and goes on from what was written. `at` is of no use any more.
///
/// # Safety
/// `fd` is open, `at` points to a plfs_in_place, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_write_in_place(
    fd: c_int,
    flags: c_int,
    at: *const plfs_in_place,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (lent, at, out) = unsafe { (Arc::new(PosixFile::lent(fd)), at.as_ref(), out.as_mut()) };
        let (at, out) = at.zip(out).ok_or_else(|| Failure::from(Errno::FAULT))?;
        let written = Written {
            entry: at.entry(),
            start: at.start,
            bytes: at.bytes,
            since_ns: at.since_ns,
            is_written: at.is_written != 0,
            must_look: at.must_look != 0,
        };
        let (identity, path) = ((at.dev, at.ino), link_of(fd)?);
        let file = plfs()?.written_in_place(lent, identity, &path, access_of(flags), &written);
        *out = PlfsFile::new(file, false);
        Ok(0)
    }) as c_int
}

/// 1 if this machine is the only client of the file system `dev`, on which `fd` is open.
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_local(fd: c_int, dev: u64) -> c_int {
    call(|| Ok(i64::from(plfs()?.is_local(dev, &link_of(fd)?)))) as c_int
}

/// 1 once this process has used a container that was a plain file: its descriptors on such files
/// may be on one. Cheap.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_uses_bases() -> c_int {
    plfs_if_there().map_or(0, |plfs| c_int::from(plfs.uses_bases()))
}

/// 1 if the file of a handle is plain, as far as this process knows: what is in the descriptor is
/// the file. It can become one with a container at any call but never the other way.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_is_plain(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { file.as_ref() }.map_or(-libc::EFAULT, |handle| c_int::from(handle.file.is_plain()))
}

/// Decides that a plain file stays plain for ever, because it is written from now on in a way that
/// PLFS does not see; `why` is for people. 1 if it is plain then, 0 if it has a container.
///
/// # Safety
/// `file` is a handle, `why` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_pin(file: *mut PlfsFile, why: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (file, why) = unsafe { (handle(file)?, CStr::from_ptr(why)) };
        Ok(i64::from(file.file.pin(&why.to_string_lossy())?))
    }) as c_int
}

/// A handle that was opened on a plain file gets a descriptor of its own, a copy of `fd`: from now
/// on the number that it was opened with may go before the handle does. Waits for calls that use
/// that. A negative `fd`: it gets none, and what needs one fails with EBADF. Error: -EMFILE, and
/// then nothing has changed.
///
/// # Safety
/// `file` is a handle that uses `fd`, which is open or negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_own(file: *mut PlfsFile, fd: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(file)? };
        if !handle.file.was_plain() {
            return Ok(0);
        }
        // Another thread that comes meanwhile waits until the number is used no more.
        let mut owns = handle.owns.lock().unwrap_or_else(PoisonError::into_inner);
        if !*owns {
            let own = match fd {
                // SAFETY: the caller's promise.
                0.. => PosixFile::copy_of(unsafe { borrow(fd)? })?,
                // SAFETY: no limit lets a process have this number.
                _ => unsafe { PosixFile::lent(c_int::MAX) },
            };
            drop(handle.file.replace_open(Arc::new(own)));
            *owns = true;
        }
        Ok(0)
    }) as c_int
}

fn created(
    (file, name): (File, Arc<dyn StoreFile>),
    flags: c_int,
    out: &mut *mut PlfsFile,
) -> Result<i64> {
    let fd = match name.fd().map(|fd| reopen(fd, flags)) {
        Some(Ok(fd)) => fd,
        // The mode of the new file may forbid its owner to open it again.
        _ => {
            let container = file.container().ok_or(Errno::STALE)?;
            let dir = container.store.open(&container.dir, Open::READ)?;
            reopen(dir.fd().ok_or(Errno::NOTSUP)?, flags)?
        }
    };
    *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
    Ok(fd.into_raw_fd() as i64)
}

/// A second descriptor on the file of `fd` that can only read.
fn reopen(fd: BorrowedFd<'_>, flags: c_int) -> Result<OwnedFd> {
    let how = OFlags::from_bits_retain((flags & KEPT) as u32) | OFlags::RDONLY;
    Ok(rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), how, Mode::empty())?)
}

/// Makes a handle for `fd` if it is open on a PLFS file: 1 and the handle in `*out`; 0 for any
/// other. The access mode is `flags`'s, as is O_APPEND. `fd` stays the caller's.
///
/// # Safety
/// `fd` is open, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_adopt(
    fd: c_int,
    flags: c_int,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (out, of) =
            unsafe { (out.as_mut().ok_or_else(|| Failure::from(Errno::FAULT))?, borrow(fd)?) };
        *out = std::ptr::null_mut();
        let stat = stat_of(&rustix::fs::fstat(of)?);
        if stat.kind != Kind::File {
            return Ok(0);
        }
        if let Some(place) = stand_in_of(of)? {
            let why = "nobody has said which file of a pack it is";
            let file = open_passed(of, &place, flags)?;
            *out = file.ok_or_else(|| Failure::new(Errno::OPNOTSUPP, why))?;
            return Ok(1);
        }
        // Of a file that is not one by its stat the attribute says all. Of others an inherited
        // descriptor may be one that this user could not open; one that cannot read, or only into
        // aligned buffers, must be opened again.
        let can_read = !may_be_logical(&stat)
            || rustix::fs::fcntl_getfl(of).is_ok_and(|how| {
                how & OFlags::ACCMODE != OFlags::WRONLY && !how.contains(OFlags::DIRECT)
            });
        let reader = match can_read {
            // SAFETY: the caller has the descriptor as long as this call.
            true => unsafe { PosixFile::lent(fd) },
            false => PosixFile::from_fd(rustix::fs::open(
                format!("/proc/self/fd/{fd}"),
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?),
        };
        let (path, access) = (link_of(fd)?, access_of(flags));
        match plfs()?.adopt_known(&reader, NameFile::Closes, &path, &stat, access)? {
            Some(file) => {
                *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
                Ok(1)
            }
            None => Ok(0),
        }
    }) as c_int
}

/// Corrects what a stat of the system gave for `path` (NULL or empty: for `dirfd` itself) if that
/// is a PLFS file: size, blocks, block size, link count; then 1, else 0. Only regular files of
/// PLFS_SUPER_BYTES can be.
///
/// # Safety
/// `path` is NULL or a C string, `st` points to a filled struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_fix_stat(
    dirfd: c_int,
    path: *const c_char,
    at_flags: c_int,
    st: *mut libc::stat,
) -> c_int {
    let _ = at_flags;
    call(|| {
        // SAFETY: the caller's promise.
        let st = unsafe { st.as_mut() }.ok_or_else(|| Failure::from(Errno::FAULT))?;
        // Most files are told apart by this alone.
        let has_length = st.st_size == SUPERBLOCK_BYTES as i64;
        if st.st_mode & libc::S_IFMT != libc::S_IFREG || !has_length && st.st_nlink <= 1 {
            return Ok(0);
        }
        // The type of st_nlink differs between architectures.
        #[allow(clippy::unnecessary_cast)]
        let stat = Stat {
            dev: st.st_dev,
            ino: st.st_ino,
            kind: Kind::File,
            mode: st.st_mode & 0o7777,
            nlink: st.st_nlink as u64,
            uid: st.st_uid,
            gid: st.st_gid,
            len: st.st_size as u64,
            blocks: st.st_blocks as u64,
            atime: Time { sec: st.st_atime, nsec: st.st_atime_nsec as u32 },
            mtime: Time { sec: st.st_mtime, nsec: st.st_mtime_nsec as u32 },
            // Distinguishes a file from an earlier one with the same inode number.
            ctime: Time { sec: st.st_ctime, nsec: st.st_ctime_nsec as u32 },
        };
        // SAFETY: the caller's promise.
        let fixed = if path.is_null() || unsafe { *path } == 0 {
            plfs()?.resolve_via(
                Path::new(&format!("/proc/self/fd/{dirfd}")),
                &link_of(dirfd)?,
                stat,
            )?
        } else {
            // SAFETY: the caller's promise.
            plfs()?.resolve(&absolute(dirfd, unsafe { path_arg(path) }?)?, stat)?
        };
        if fixed.totals.is_none() {
            return Ok(0);
        }
        st.st_size = fixed.stat.len as i64;
        st.st_blocks = fixed.stat.blocks as _;
        st.st_nlink = fixed.stat.nlink as _;
        st.st_blksize = BLOCK_BYTES;
        Ok(1)
    }) as c_int
}

/// unlinkat(2) without flags, for any file; the data of a PLFS file goes with its last name.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_unlink(dirfd: c_int, path: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        unsafe { unlink_at(dirfd, path, &absolute(dirfd, path_arg(path)?)?) }
    }) as c_int
}

/// [`plfs_door_unlink`] of a path that [lies below](plfs_door_below_managed) a managed directory;
/// PLFS_NOT_MANAGED for others, which are not touched.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_unlink_managed(dirfd: c_int, path: *const c_char) -> c_int {
    if dirfd == libc::AT_FDCWD && !path.is_null() {
        const LOOK_IT_UP: i64 = 1;
        // SAFETY: not NULL; the caller's promise.
        let name = unsafe { CStr::from_ptr(path) };
        let done = call(|| match is_barren(name.to_bytes()).then(|| rustix::fs::unlink(name)) {
            // What it does not find packs may have.
            None | Some(Err(Errno::NOENT)) => Ok(LOOK_IT_UP),
            Some(done) => Ok(done.map(|()| 0)?),
        });
        if done != LOOK_IT_UP {
            return done as c_int;
        }
    }
    // SAFETY: the caller's promise.
    let Some(at) = (unsafe { managed_path(dirfd, path) }) else { return PLFS_NOT_MANAGED };
    // SAFETY: the caller's promise.
    call(|| unsafe { unlink_at(dirfd, path, &at?) }) as c_int
}

/// Whether a file at `path` has neither a container nor a place in a pack, for all that is believed
/// of its directory. Where that is wrong, as another directory has come to that path without this
/// process, what the name leaves is garbage for `plfs check`: no byte of a file depends on it.
fn is_barren(path: &[u8]) -> bool {
    let Some(plfs) = plfs_if_there().filter(|plfs| !plfs.knows_packs()) else { return false };
    here::is_barren(path, plfs.made(), || {
        let path = Path::new(OsStr::from_bytes(path));
        let at = match path.is_absolute() {
            true => Some(path.to_path_buf()),
            false => here::join(path),
        };
        at.is_some_and(|at| !has_parent(&at) && plfs.is_barren(&at))
    })
}

/// # Safety
/// `path` is a C string.
unsafe fn unlink_at(dirfd: c_int, path: *const c_char, at: &Path) -> Result<i64> {
    // SAFETY: the caller's promises.
    let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
    let plfs = plfs()?;
    if let Some(at) = flat::settled(at, flat::is_moved(dirfd, path)?)? {
        must_be_no_dir(path)?;
        return Ok(plfs.unlink(&at).map(|()| 0)?);
    }
    if let Some(stat) = plfs.packed_stat(at)? {
        must_be_no_dir(path)?;
        may_change_names(at, Some(stat.uid))?;
        return Ok(plfs.unlink(at).map(|()| 0)?);
    }
    if plfs.is_changing(at)? {
        must_be_no_dir(path)?;
        return Ok(plfs.unlink(at).map(|()| 0)?);
    }
    let container = plfs.container_to_remove(at);
    match rustix::fs::unlinkat(dir, path, AtFlags::empty()) {
        Err(Errno::NOENT) => {
            must_not_lead_through_file(at)?;
            return Err(Errno::NOENT.into());
        }
        other => other?,
    }
    plfs.drop_container(container)?;
    Ok(0)
}

/// renameat2(2), for any file; the data of a PLFS file that it replaces goes if that was the last
/// name.
///
/// # Safety
/// The paths are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_rename(
    olddirfd: c_int,
    old: *const c_char,
    newdirfd: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (old, olddir, new, newdir) =
            unsafe { (path_arg(old)?, borrow(olddirfd)?, path_arg(new)?, borrow(newdirfd)?) };
        let (from, to) = (absolute(olddirfd, old)?, absolute(newdirfd, new)?);
        let flat_from = flat::settled(&from, flat::is_moved(olddirfd, old)?)?;
        let flat_to = flat::settled(&to, flat::is_moved(newdirfd, new)?)?;
        if flat_from.is_some() || flat_to.is_some() {
            let (from, to) = (flat_from.unwrap_or(from), flat_to.unwrap_or(to));
            return flat::rename((&from, old), (&to, new), flags);
        }
        let (source, target) = (plfs()?.packed_stat(&from)?, plfs()?.packed_stat(&to)?);
        if plfs()?.knows_packs() {
            must_not_lead_through_file(&from)?;
            must_not_lead_through_file(&to)?;
        }
        let is_one = source.is_some() || target.is_some();
        if is_one || plfs()?.is_changing(&from)? || plfs()?.is_changing(&to)? {
            return rename_packed((&from, source), (&to, target), flags);
        }
        let rename = || {
            let done = match flags {
                0 => rustix::fs::renameat(olddir, old, newdir, new),
                _ => rustix::fs::renameat_with(
                    olddir,
                    old,
                    newdir,
                    new,
                    RenameFlags::from_bits_retain(flags),
                ),
            };
            done.map_err(|errno| plfs_core::Error::Io {
                op: "rename",
                path: old.to_path_buf(),
                errno,
            })
        };
        plfs()?.rename_with(&from, &to, rename)?;
        plfs()?.was_renamed(&from, &to);
        Ok(0)
    }) as c_int
}

/// Renames where a pack has one of the names.
fn rename_packed(
    (from, source): (&Path, Option<PackStat>),
    (to, target): (&Path, Option<PackStat>),
    flags: c_uint,
) -> Result<i64> {
    let (is_source, is_target) = (source.is_some(), target.is_some());
    let ends = |path: &Path| path.as_os_str().as_bytes().ends_with(b"/");
    if is_source && (ends(from) || ends(to)) || is_target && ends(to) {
        return Err(Errno::NOTDIR.into());
    }
    let flags = RenameFlags::from_bits_retain(flags);
    if flags.contains(RenameFlags::NOREPLACE) {
        let is_ordinary = || plfs().is_ok_and(|plfs| plfs.store().stat(to, Links::Stay).is_ok());
        if is_target || is_ordinary() {
            return Err(Errno::EXIST.into());
        }
    }
    if !(flags - RenameFlags::NOREPLACE).is_empty() {
        return Err(Failure::new(Errno::INVAL, "names of a pack cannot be exchanged"));
    }
    may_rename((from, source), (to, target))?;
    plfs()?.rename(from, to)?;
    plfs()?.was_renamed(from, to);
    Ok(0)
}

/// truncate(2), for any file.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_truncate(path: *const c_char, size: i64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path_arg(path) }?;
        let at = absolute(libc::AT_FDCWD, path)?;
        let is_moved = flat::is_moved(libc::AT_FDCWD, path)?;
        truncate(&flat::settled(&at, is_moved)?.unwrap_or(at), size)
    }) as c_int
}

pub(crate) fn links_of(at_flags: c_int) -> Links {
    match at_flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => Links::Follow,
        _ => Links::Stay,
    }
}

/// fchmodat(2), for any file.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_chmod(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    at_flags: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
        let plfs = plfs()?;
        let at = absolute(dirfd, path)?;
        if let Some(packed) = packed_if(&at, links_of(at_flags), must_own)? {
            return Ok(plfs.chmod(&packed, mode & 0o7777).map(|()| 0)?);
        }
        if let Some(at) = flat::settled_or_dir(&at, flat::is_moved(dirfd, path)?)? {
            return Ok(plfs.chmod(&at, mode & 0o7777).map(|()| 0)?);
        }
        match plfs.container_to_change(&at, links_of(at_flags))? {
            Some(_) => plfs.chmod(&at, mode & 0o7777)?,
            None => rustix::fs::chmodat(
                dir,
                path,
                Mode::from_raw_mode(mode),
                AtFlags::from_bits_retain(at_flags as u32),
            )?,
        }
        Ok(0)
    }) as c_int
}

/// fchownat(2), for any file.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_chown(
    dirfd: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    at_flags: c_int,
) -> c_int {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path_arg(path) }?;
        let at = absolute(dirfd, path)?;
        let at = flat::settled(&at, flat::is_moved(dirfd, path)?)?.unwrap_or(at);
        let (links, uid, gid) = (links_of(at_flags), some(uid), some(gid));
        let packed = packed_if(&at, links, |stat| may_chown(stat, uid, gid))?;
        plfs()?.chown(&packed.unwrap_or(at), uid, gid, links)?;
        Ok(0)
    }) as c_int
}

/// 1 if the descriptor number is one of PLFS's own, which a program must not close or replace.
/// Cheap; safe in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_owns_fd(fd: c_int) -> c_int {
    c_int::from(PosixStore::owns_fd(fd))
}

/// plfs_lock_fd for locks of F_SETLK: all handles of a file have the same one, so none is lost.
/// Without `open` only if there is one, else -ENOLCK: then the process has no locks on the file.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_process_lock_fd(file: *mut PlfsFile, open: c_int) -> c_int {
    // SAFETY: the caller's promise.
    call(|| process_lock_fd(unsafe { handle(file) }?, open != 0)) as c_int
}

/// exit(3) calls `leave` in place of plfs_exit, which `leave` is to call: the caller chooses the
/// stack, and sees to it that no handler of a signal runs meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_at_exit(leave: extern "C" fn()) {
    // The first one stays.
    let _ = LEAVE.set(leave);
}

/// The program has changed RLIMIT_FSIZE.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_size_limit_changed() {
    learn_size_limit();
}

/// What [`plfs_door_hidden`] says of a directory's `.plfs`, and of its layout.
pub const PLFS_HIDDEN_STORE: c_int = 1;
/// See [`PLFS_HIDDEN_STORE`].
pub const PLFS_HIDDEN_LAYOUT: c_int = 2;

/// What [`plfs_door_hidden`] says of the name of a directory's pack, and of what lies beside it for
/// a moment.
pub const PLFS_HIDDEN_PACK: c_int = 3;
/// See [`PLFS_HIDDEN_PACK`].
pub const PLFS_HIDDEN_BESIDE_PACK: c_int = 4;

/// What [`plfs_door_hidden`] says of the map of a flat directory.
pub const PLFS_HIDDEN_MAP: c_int = 5;

/// Which of PLFS's own a directory entry is, that programs should not see; 0: it is none.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_hidden(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(name) = unsafe { path_arg(name) }.map(Path::as_os_str) else { return 0 };
    match () {
        () if !plfs_core::is_hidden(name) => 0,
        () if plfs_core::is_layout(name) => PLFS_HIDDEN_LAYOUT,
        () if plfs_core::is_map(name) => PLFS_HIDDEN_MAP,
        () if !plfs_core::is_of_pack(name) => PLFS_HIDDEN_STORE,
        () if plfs_core::is_pack(name) => PLFS_HIDDEN_PACK,
        () => PLFS_HIDDEN_BESIDE_PACK,
    }
}

/// Length of a superblock file: the st_size that the system gives for every PLFS file.
pub const PLFS_SUPER_BYTES: usize = 4093;

const _: () = assert!(PLFS_SUPER_BYTES == SUPERBLOCK_BYTES);

/// Where plfs_lseek would move a position that is `position`; changes nothing.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_seek(
    file: *mut PlfsFile,
    position: i64,
    offset: i64,
    whence: c_int,
) -> i64 {
    // SAFETY: the caller's promise.
    call(|| seek(&unsafe { handle(file) }?.file, position, offset, whence))
}
