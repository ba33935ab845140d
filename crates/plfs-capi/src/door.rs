//! Opens of any file, where PLFS files are recognised (preload/, mpi/)

use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::mode_t;
use plfs_core::store::{
    Errno, Kind, Open, PosixFile, PosixStore, Stat, StoreFile, fd_path, learn_size_limit, stat_of,
};
use plfs_core::{
    ATTRIBUTE_NAME, Decision, Ending, File, NameFile, OpenOptions, Opened, Plfs, SUPERBLOCK_BYTES,
    Workload, Writers, is_layout, may_be_logical,
};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::{DupFlags, retry_on_intr};
use syscalls::{Sysno, syscall2};

use crate::attributes::{
    adopt_flock_fd, adopt_lock_fd, flock_fd, kept_lock_fd, process_lock_fd, taken_stat,
};
use crate::handle::{PlfsFile, access_of, handle, open_for};
use crate::io::seek;
use crate::managed::{manages_device, plfs_door_fd_below_managed};
use crate::names::PLFS_NOT_MANAGED;
use crate::packed::{PLFS_IS_PACKED, open_passed, stand_in_of};
use crate::room::Room;
use crate::{
    Failure, LEAVE, Result, absolute, at_the_end, borrow, call, has_parent, here, link_of,
    path_arg, plfs,
};

/// Flags that are set on the placeholder, where F_GETFL and F_GETFD read them.
pub(crate) const KEPT: c_int = libc::O_CLOEXEC | libc::O_APPEND | libc::O_NONBLOCK;

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
        let stat = stat_of(&rustix::fs::statat(dir, path, AtFlags::empty())?);
        if !may_be_logical(&stat) {
            return Ok(0);
        }
        let at = absolute(dirfd, path)?;
        match plfs()?.is_logical(&at) {
            Ok(false) => Ok(0),
            // Who may only write it. What has such writers gets no container (S36).
            Err(error)
                if error.errno() == Errno::ACCESS
                    && stat.len != SUPERBLOCK_BYTES as u64
                    && !plfs()?.is_mounted(&at) =>
            {
                Ok(0)
            }
            // A damaged superblock counts as well: opened as a plain file, it would be overwritten.
            _ => Ok(1),
        }
    }) as c_int
}

/// [`plfs_door_open`]: nobody has opened the path.
pub const PLFS_NOT_OPENED: c_int = -5001;

/// [`plfs_door_open`]: nobody has opened the path, and nothing may be there. Said back: something
/// is, or a new file is no plain one; so open it first.
pub const PLFS_PERHAPS_NEW: c_int = -5004;

/// What a first open of a path gave.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plfs_first_open {
    /// A descriptor, a negative errno, or a word of [`plfs_door_open`].
    pub fd: c_int,
    /// What fstat(2) has said of the descriptor since; or NULL.
    pub stat: *const libc::stat,
    /// Descriptors that the files need that are open; 0 if all are plain. They have to be left
    /// behind the one that is given, and if that is a placeholder, at least PLFS_LOG_DESCRIPTORS
    /// and what its file needs.
    pub spare: c_uint,
}

/// What a path led to, and its stat if somebody has asked.
type Found = (OwnedFd, Option<Stat>);

/// What is known of an open before.
pub(crate) struct Before {
    /// What a first open gave; `None`: nobody has tried.
    first: Option<std::result::Result<Found, Errno>>,
    /// That is a guess.
    is_guess: bool,
    room: Room,
}

impl Before {
    /// Nothing.
    pub(crate) fn of_new(room: Room) -> Before {
        Before { first: None, is_guess: false, room }
    }
}

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
/// `first.fd` is what openat(2) gave the caller for the same path and flags, but without O_CREAT,
/// O_EXCL and O_TRUNC: a descriptor, which is taken over, or a negative errno; or PLFS_NOT_OPENED.
/// The open of a FIFO waits for the other end, and what waits should not be here. With
/// PLFS_PERHAPS_NEW and O_CREAT a new plain file costs no such open, an existing one two.
///
/// -EMFILE if too few descriptors would be left: then nothing is made or cut.
///
/// # Safety
/// `path` is a C string, `first` points to what it says, with a descriptor that is nobody else's;
/// `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    first: *const plfs_first_open,
    out: *mut *mut PlfsFile,
) -> c_int {
    // SAFETY: the caller's promise.
    let &plfs_first_open { fd, stat, spare } = unsafe { &*first };
    call(|| {
        // SAFETY: the caller's promises.
        let (at, out) = unsafe { (At::new(dirfd, path_arg(path)?)?, out.as_mut()) };
        let is_guess = fd == PLFS_PERHAPS_NEW;
        let first = match fd {
            PLFS_NOT_OPENED => None,
            PLFS_PERHAPS_NEW => Some(Err(Errno::NOENT)),
            0.. => {
                // SAFETY: the caller's promises.
                let (fd, stat) = unsafe { (OwnedFd::from_raw_fd(fd), stat.as_ref()) };
                Some(Ok((fd, stat.map(taken_stat))))
            }
            _ => Some(Err(Errno::from_raw_os_error(-fd))),
        };
        let before = Before { first, is_guess, room: Room(spare) };
        // SAFETY: the caller's promise.
        unsafe { open_at(dirfd, path_arg(path)?, at, (flags, mode), before, out) }
    }) as c_int
}

/// [`plfs_door_open`] for a file that openat(2) has found by a path outside of all managed
/// directories, with exactly `flags`, but for O_CREAT, O_EXCL and O_TRUNC: a symbolic link may have
/// led into one. It is opened as by its own path.
///
/// PLFS_NOT_MANAGED: it lies on no file system of a managed directory, and `first.fd`, which needs
/// its stat, stays the caller's; cut, if that was to be. A readlink of /proc tells the other files.
///
/// # Safety
/// As [`plfs_door_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open_linked(
    flags: c_int,
    first: *const plfs_first_open,
    out: *mut *mut PlfsFile,
) -> c_int {
    // SAFETY: the caller's promises.
    let (&plfs_first_open { fd, stat, spare }, out) = unsafe { (&*first, &mut *out) };
    *out = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    let Some(stat) = (unsafe { stat.as_ref() }) else { return -libc::EFAULT };
    let may_be_managed = manages_device(stat.st_dev);
    if !may_be_managed && flags & libc::O_TRUNC == 0 {
        return PLFS_NOT_MANAGED;
    }
    call(|| {
        // SAFETY: the caller gives it away, if this is no error.
        let opened = unsafe { OwnedFd::from_raw_fd(fd) };
        if may_be_managed && plfs_door_fd_below_managed(fd) == 1 {
            let path = link_of(fd)?;
            let found = (opened, Some(taken_stat(stat)));
            return existing(found, &mut At::place(&path), flags, Room(spare), out).map(i64::from);
        }
        let (writes, is_file) =
            (access_of(flags).write, stat.st_mode & libc::S_IFMT == libc::S_IFREG);
        // Who has just made it, read-only, may not cut it by its name.
        let may_be_new = flags & libc::O_CREAT != 0 && stat.st_size == 0;
        if flags & libc::O_TRUNC != 0 && is_file && (writes || !may_be_new) {
            cut_in_place(fd, writes)?;
        }
        let fd = opened.into_raw_fd();
        Ok(i64::from(if may_be_managed { fd } else { PLFS_NOT_MANAGED }))
    }) as c_int
}

/// The absolute path of a file that is opened.
pub(crate) struct At<'a> {
    dirfd: c_int,
    path: &'a Path,
    absolute: Cow<'a, Path>,
    /// It is good enough for a handle on a plain file, and nothing else ([`here`]).
    is_believed: bool,
}

impl At<'_> {
    /// As the kernel says it, be it in a shadow.
    pub(crate) fn place(path: &Path) -> At<'_> {
        At { dirfd: libc::AT_FDCWD, path, absolute: path.into(), is_believed: false }
    }

    fn new(dirfd: c_int, path: &Path) -> Result<At<'_>> {
        // Where `..` leads to the kernel says.
        let is_below = path.is_relative() && !has_parent(path);
        let known = match dirfd {
            libc::AT_FDCWD if is_below => here::join(path),
            _ => None,
        };
        let (is_believed, absolute) = match known {
            Some(known) => (true, known.into()),
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

/// Links that an open follows in a row. 40, as Linux (MAXSYMLINKS).
const LINKS: usize = 40;

/// What an open came to.
enum Came {
    To(c_int),
    /// A new file is to be made there: a dangling link leads to it.
    ToLink(PathBuf),
}

impl From<OwnedFd> for Came {
    fn from(fd: OwnedFd) -> Came {
        Came::To(fd.into_raw_fd())
    }
}

/// Opens `path`, whose absolute path is `at`.
///
/// # Safety
/// `dirfd` is open.
pub(crate) unsafe fn open_at(
    dirfd: c_int,
    path: &Path,
    at: At<'_>,
    how: (c_int, mode_t),
    before: Before,
    out: Option<&mut *mut PlfsFile>,
) -> Result<i64> {
    let out = out.ok_or_else(|| Failure::new(Errno::FAULT, "the place for the handle is NULL"))?;
    *out = std::ptr::null_mut();
    let room = before.room;
    // SAFETY: the caller's promise.
    let mut came = unsafe { open_name(dirfd, path, at, how, before, out)? };
    for links in 0.. {
        let target = match came {
            Came::To(fd) => return Ok(i64::from(fd)),
            Came::ToLink(_) if links == LINKS => break,
            Came::ToLink(target) => target,
        };
        let (here, at) = (libc::AT_FDCWD, At::new(libc::AT_FDCWD, &target)?);
        came = if plfs()?.is_mounted(&at.absolute) {
            // SAFETY: it is the working directory.
            unsafe { open_name(here, &target, at, how, Before::of_new(room), out)? }
        } else if is_link_at(rustix::fs::CWD, &target) {
            Came::ToLink(behind(&target)?)
        } else {
            native(rustix::fs::CWD, &target, how)?.into()
        };
    }
    Err(Errno::LOOP.into())
}

/// What an open with `flags`, O_CREAT among them, comes to at a dangling link.
fn dangling(link: &Path, flags: c_int) -> Result<Came> {
    match flags & libc::O_NOFOLLOW {
        0 => behind(link).map(Came::ToLink),
        _ => Err(Errno::LOOP.into()),
    }
}

/// Where a symbolic link leads.
fn behind(link: &Path) -> Result<PathBuf> {
    Ok(link.parent().unwrap_or(Path::new("/")).join(plfs()?.store().readlink(link)?))
}

/// openat(2).
fn native(
    dir: BorrowedFd<'_>,
    path: &Path,
    (flags, mode): (c_int, mode_t),
) -> std::result::Result<OwnedFd, Errno> {
    let how = OFlags::from_bits_retain(flags as u32);
    retry_on_intr(|| rustix::fs::openat(dir, path, how, Mode::from_raw_mode(mode)))
}

/// [`open_at`], but for a dangling link, which it does not follow.
///
/// # Safety
/// `dirfd` is open.
unsafe fn open_name(
    dirfd: c_int,
    path: &Path,
    mut at: At<'_>,
    (flags, mode): (c_int, mode_t),
    before: Before,
    out: &mut *mut PlfsFile,
) -> Result<Came> {
    let Before { mut first, is_guess, room } = before;
    // SAFETY: the caller's promise.
    let dir = unsafe { borrow(dirfd)? };
    let native = |flags| native(dir, path, (flags, mode));
    if flags & (libc::O_PATH | libc::O_DIRECTORY) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
    {
        return Ok(native(flags)?.into());
    }
    let (create, exclusive) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
    loop {
        if !(create && exclusive) {
            // Without O_TRUNC: it may be a superblock.
            let how = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
            match first.take().unwrap_or_else(|| native(how).map(|fd| (fd, None))) {
                Ok(found) => return existing(found, &mut at, flags, room, out).map(Came::To),
                Err(errno)
                    if create && (errno == Errno::NOENT || Ending::of(path).is_for_directory()) => {
                }
                // Of a file by a link to a directory it has not heard of O_CREAT.
                Err(Errno::NOTDIR)
                    if create
                        && plfs()?
                            .end_of_links(at.ask()?)
                            .is_some_and(|end| Ending::of(&end) == Ending::Slash) =>
                {
                    return Err(Errno::ISDIR.into());
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        if Ending::of(path).is_for_directory() {
            // No file is made by it. The kernel says why.
            return Ok(native(flags)?.into());
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
                return Ok(Came::To(PLFS_IS_PACKED));
            }
            None => match plfs()?.workload_of(&at.absolute)? {
                // An ordinary file or a link that was there a moment ago is gone, or is there.
                Workload::Small if create => match is_link_at(dir, path) {
                    false => return Ok(Came::To(PLFS_IS_PACKED)),
                    true if exclusive => return Err(Errno::EXIST.into()),
                    true => false,
                },
                workload => workload == Workload::Auto,
            },
        };
        if is_born_plain && !is_layout {
            room.for_plain(-1)?;
            match native(flags | libc::O_EXCL) {
                Ok(fd) => return created_plain(fd, at, flags, options, out).map(Came::To),
                Err(Errno::EXIST) if is_guess => return Ok(Came::To(PLFS_PERHAPS_NEW)),
                Err(Errno::EXIST) if !exclusive && !is_link_at(dir, path) => continue,
                Err(Errno::EXIST) if !exclusive => return dangling(at.ask()?, flags),
                Err(errno) => return Err(errno.into()),
            }
        }
        if is_guess {
            return Ok(Came::To(PLFS_PERHAPS_NEW));
        }
        let may_be_elsewhere = at.is_believed || has_parent(path);
        let at = at.ask()?;
        if may_be_elsewhere && !plfs()?.is_mounted(at) {
            return Ok(native(flags)?.into());
        }
        let held = room.hold(options.access)?;
        match plfs()?.create_with_name(at, options) {
            Ok(made) => return created((made, held), at, flags, out).map(Came::To),
            Err(error) if error.errno() == Errno::EXIST && !exclusive => {
                if is_link_at(dir, path) {
                    return dangling(at, flags);
                }
            }
            // Nobody makes a container in a small directory. There was a link a moment ago.
            Err(error) if error.errno() == Errno::OPNOTSUPP && !is_link_at(dir, path) => {
                match plfs()?.workload_of(at)? {
                    Workload::Small => return Ok(Came::To(PLFS_IS_PACKED)),
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

/// The descriptor of a file that was there; what it is for is in `*out`.
fn existing(
    (fd, stat): Found,
    at: &mut At<'_>,
    flags: c_int,
    room: Room,
    out: &mut *mut PlfsFile,
) -> Result<c_int> {
    // A PosixFile is closed when it is dropped, by system call and not through libc; only the last
    // return gives it away.
    let opened = PosixFile::from_fd(fd);
    let stat = stat.map_or_else(|| opened.stat(), Ok)?;
    let number = opened.as_fd().as_raw_fd();
    let (regular, access, truncate) =
        (stat.kind == Kind::File, access_of(flags), flags & libc::O_TRUNC != 0);
    if stat.kind == Kind::Dir && (flags & libc::O_CREAT != 0 || truncate) {
        return Err(Errno::ISDIR.into());
    }
    if may_be_logical(&stat) || access.write || truncate {
        at.ask()?;
    }
    let (is_believed, at) = (at.is_believed, &at.absolute);
    if may_be_logical(&stat) && !is_write_only_elsewhere(opened.as_fd(), &stat, at, flags)? {
        // A superblock cannot be read through O_DIRECT either, which needs an aligned buffer.
        let readable = match access.write || flags & libc::O_DIRECT != 0 {
            true => match reopen(opened.as_fd(), flags) {
                // Nobody can tell whether it is a PLFS file.
                Err(failure) if !access.read => return Err(failure),
                other => unless_full(other)?,
            },
            false => None,
        };
        let name = readable.as_ref().unwrap_or(&opened);
        if let Some(file) = plfs()?.adopt_known(name, NameFile::Stays, at, &stat, access)? {
            room.for_container(number, access)?;
            match truncate {
                true if access.write => file.set_len(0)?,
                true => cut_container(name, at)?,
                false => {}
            }
            *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
            return with_placeholder(opened, readable, flags);
        }
    }
    if regular && (is_believed || plfs()?.is_mounted(at)) {
        let appends = access.write && flags & libc::O_APPEND != 0;
        if appends && plfs()?.pin(&opened, "opened with O_APPEND") {
            // The kernel appends, and better than we do.
        } else {
            room.for_plain(number)?;
            let is_cut = truncate && !access.write;
            let (truncate, stat) = match is_cut {
                true => {
                    cut(number)?;
                    (false, opened.stat()?)
                }
                false => (truncate, stat),
            };
            // It is decided that the file has a container. Who decided it may have died: then it is
            // made now. Of a copy, which has the attribute as well, none is.
            let writers = if appends { Writers::Several } else { Writers::Unknown };
            let options = OpenOptions { access, truncate, writers, ..OpenOptions::read() };
            // SAFETY: the caller has the descriptor as long as the handle.
            let lent = Arc::new(unsafe { PosixFile::lent(number) });
            match plfs()?.opened_plain(lent, &stat, at, options)? {
                Opened::Plain(file) => {
                    // It looks: what has become a container meanwhile is cut as one, too.
                    if is_cut && file.stat().is_ok() && !file.is_plain() {
                        cut_container(&opened, at)?;
                    }
                    *out = PlfsFile::new(file, appends);
                    return Ok(opened.into_fd().into_raw_fd());
                }
                Opened::Logical(file) => {
                    let readable = unless_full(reopen(opened.as_fd(), flags))?;
                    *out = PlfsFile::new(file, appends);
                    return with_placeholder(opened, readable, flags);
                }
            }
        }
    }
    if truncate && regular {
        cut_in_place(number, access.write)?;
    }
    Ok(opened.into_fd().into_raw_fd())
}

/// Cuts the container of the file that is open as `name`, and not what is at its path by now, as an
/// open with O_RDONLY and O_TRUNC does: it needs the right to write the file.
fn cut_container(name: &PosixFile, at: &Path) -> Result<()> {
    let path = fd_path(name.as_fd().as_raw_fd());
    rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
    let both = plfs_core::Access { read: true, write: true };
    if let Some(file) = plfs()?.adopt_known(name, NameFile::Stays, at, &name.stat()?, both)? {
        file.set_len(0)?;
        file.close()?;
    }
    Ok(())
}

/// Whether it is a file outside of all managed directories with several names, which this user may
/// write and not read: what has such writers gets no container (S36).
fn is_write_only_elsewhere(
    opened: BorrowedFd<'_>,
    stat: &Stat,
    at: &Path,
    flags: c_int,
) -> Result<bool> {
    if access_of(flags).read || stat.len == SUPERBLOCK_BYTES as u64 || plfs()?.is_mounted(at) {
        return Ok(false);
    }
    Ok(reopen(opened, flags).is_err_and(|failure| failure.errno == Errno::ACCESS))
}

/// Cuts the plain file that is open as `number`, perhaps for writing, as an open with O_TRUNC does.
fn cut_in_place(number: c_int, writes: bool) -> Result<()> {
    match writes {
        // SAFETY: the caller has the descriptor.
        true => Ok(unsafe { PosixFile::lent(number) }.set_len(0)?),
        false => cut(number),
    }
}

/// Cuts the plain file that is open as `number` to nothing, as an open with O_RDONLY and O_TRUNC
/// does: it needs the right to write the file, and neither that of the descriptor nor another one.
fn cut(number: c_int) -> Result<()> {
    let path = CString::new(fd_path(number)).map_err(|_| Failure::from(Errno::INVAL))?;
    // SAFETY: the path is a C string.
    let done = unsafe { syscall2(Sysno::truncate, path.as_ptr() as usize, 0) };
    done.map(drop).map_err(|errno| Errno::from_raw_os_error(errno.into_raw()).into())
}

/// The placeholder, which can only read, takes the number of the first open: the lowest free one,
/// as open(2) promises.
fn with_placeholder(opened: PosixFile, readable: Option<PosixFile>, flags: c_int) -> Result<c_int> {
    let mut fd = opened.into_fd();
    if let Some(readable) = readable {
        let close = match flags & libc::O_CLOEXEC {
            0 => DupFlags::empty(),
            _ => DupFlags::CLOEXEC,
        };
        rustix::io::dup3(&readable, &mut fd, close)?;
    }
    Ok(fd.into_raw_fd())
}

/// A plain file that was created a moment ago.
fn created_plain(
    fd: OwnedFd,
    mut at: At<'_>,
    flags: c_int,
    options: OpenOptions,
    out: &mut *mut PlfsFile,
) -> Result<c_int> {
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
    Ok(opened.into_fd().into_raw_fd())
}

/// `held` has the number that the placeholder gets.
fn created(
    ((file, name), held): ((File, Arc<dyn StoreFile>), PosixFile),
    path: &Path,
    flags: c_int,
    out: &mut *mut PlfsFile,
) -> Result<c_int> {
    let container = file.container().ok_or(Errno::STALE)?;
    drop(held);
    let reopened = || name.fd().and_then(|fd| reopen(fd, flags).ok());
    let fd = match by_name(path, container.identity, flags).or_else(reopened) {
        Some(fd) => fd,
        // The mode of the new file may forbid its owner to open it again.
        None => {
            let dir = container.store.open(&container.dir, Open::READ)?;
            reopen(dir.fd().ok_or(Errno::NOTSUP)?, flags)?
        }
    };
    *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
    Ok(fd.into_raw_fd())
}

/// [`reopen`] of a new file by its name, which is what /proc says of the descriptor then; the file
/// was opened in its container. `None`: something else has got the name.
fn by_name(path: &Path, identity: (u64, u64), flags: c_int) -> Option<OwnedFd> {
    let how = OFlags::from_bits_retain((flags & KEPT) as u32) | OFlags::RDONLY | OFlags::NOFOLLOW;
    let opened = PosixFile::from_fd(rustix::fs::open(path, how, Mode::empty()).ok()?);
    let stat = opened.stat().ok()?;
    ((stat.dev, stat.ino) == identity).then(|| opened.into_fd())
}

/// A second descriptor on the file of `fd` that can only read.
fn reopen(fd: BorrowedFd<'_>, flags: c_int) -> Result<OwnedFd> {
    let how = OFlags::from_bits_retain((flags & KEPT) as u32) | OFlags::RDONLY;
    let open = |how| rustix::fs::open(fd_path(fd.as_raw_fd()), how, Mode::empty());
    // Looking at a superblock is not the program's reading (calls.rs of the store).
    match open(how | OFlags::NOATIME) {
        Err(Errno::PERM) => Ok(open(how)?),
        other => Ok(other?),
    }
}

/// What [`reopen`] gave. `None`: it cannot be, as where there is no /proc. Not for want of a
/// descriptor: a program would get one that may write the superblock.
fn unless_full(reopened: Result<OwnedFd>) -> Result<Option<PosixFile>> {
    match reopened {
        Ok(fd) => Ok(Some(PosixFile::from_fd(fd))),
        Err(failure) if matches!(failure.errno, Errno::MFILE | Errno::NFILE) => Err(failure),
        Err(_) => Ok(None),
    }
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
                fd_path(fd),
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

/// 1 if the descriptor number is one of PLFS's own, which a program must not close or replace.
/// Cheap; safe in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_owns_fd(fd: c_int) -> c_int {
    c_int::from(PosixStore::owns_fd(fd))
}

/// For who is to dup2 to a number of the program's choice, which may be free: waits until libplfs
/// has no descriptors at such numbers for a moment, and lets it have none until
/// [`plfs_door_release_numbers`]. Handlers of signals must not run meanwhile. 0: some are still
/// there after ten seconds, and nothing is to be released.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_hold_numbers() -> c_int {
    c_int::from(PosixStore::hold_numbers())
}

/// Ends what [`plfs_door_hold_numbers`] began.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_release_numbers() {
    PosixStore::release_numbers();
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

/// What plfs_lock_fd gave for this handle, if it was called, else -ENOLCK.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_kept_lock_fd(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| kept_lock_fd(unsafe { handle(file) }?)) as c_int
}

/// `fd` was left open by the program before exec, and may be what plfs_lock_fd, or with
/// `of_process` plfs_door_process_lock_fd, gave it for this file. 1: it is, and belongs to the
/// handle from now on. 0: it is another file.
///
/// # Safety
/// `file` is a handle, and nobody uses `fd` for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_adopt_lock_fd(
    file: *mut PlfsFile,
    fd: c_int,
    of_process: c_int,
) -> c_int {
    // SAFETY: the caller's promises.
    call(|| adopt_lock_fd(unsafe { handle(file) }?, fd, of_process != 0)) as c_int
}

/// What has the locks of flock(2) of a handle on a container, if the program's descriptor was open
/// for writing on the plain file before, and a placeholder has come in its place: what
/// plfs_door_own gave, on the old description. -ENOLCK: there is none.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_flock_fd(file: *mut PlfsFile) -> c_int {
    // SAFETY: the caller's promise.
    call(|| flock_fd(unsafe { handle(file) }?)) as c_int
}

/// `fd` was left open by the program before exec, as its plfs_door_flock_fd. 1: it belongs to the
/// handle from now on. 0: that has one.
///
/// # Safety
/// `file` is a handle, and nobody uses `fd` for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_adopt_flock_fd(file: *mut PlfsFile, fd: c_int) -> c_int {
    // SAFETY: the caller's promises.
    call(|| adopt_flock_fd(unsafe { handle(file) }?, fd)) as c_int
}

/// 1 if the file that `path` leads to, a link of an open descriptor below /proc, is plain and stays
/// so for ever. Opens nothing.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_stays_plain(path: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path_arg(path) }?;
        Ok(i64::from(match PosixFile::attribute_at(path, ATTRIBUTE_NAME) {
            Ok(text) => matches!(Decision::decode(&text), Some(Decision::Plain(_))),
            // Nobody makes containers of plain files there.
            Err(Errno::OPNOTSUPP) => !may_be_logical(&stat_of(&rustix::fs::stat(path)?)),
            Err(_) => false,
        }))
    }) as c_int
}

/// exit(3) calls `leave` in place of plfs_exit, which `leave` is to call: the caller chooses the
/// stack, and sees to it that no handler of a signal runs meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_at_exit(leave: extern "C" fn()) {
    // The first one stays.
    let _ = LEAVE.set(leave);
}

/// plfs_exit for a signal that ends the process: all calls that have begun end before, and all
/// others wait for ever. So nothing is written that is lost, and the caller has to end the process.
/// -EBUSY if one that has begun does not end in 5 s.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_end() -> c_int {
    at_the_end(|| plfs()?.exit().map(|()| 0).map_err(Failure::from)) as c_int
}

/// The process is about to start a program, which may remove the last name of a file that is open
/// here: that one keeps its data.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_hold_all() -> c_int {
    call(|| {
        plfs()?.hold_all();
        Ok(0)
    }) as c_int
}

/// The program has changed RLIMIT_FSIZE.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_size_limit_changed() {
    learn_size_limit();
}

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
