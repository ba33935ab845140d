//! Files of packs, which have no inode of their own (preload/)
//!
//! Calls on names say [`PLFS_NOT_PACKED`] of what is no name of a pack, and PLFS_NOT_MANAGED of
//! what does not lie below a managed directory; then the system's call is the right one. A
//! descriptor on such a file is a placeholder, open for reading on the name of the pack, as
//! decision 0019 says.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::{DT_REG, mode_t, timespec};
use plfs_core::pack::{FileId, PackStat};
use plfs_core::store::{Entry, Errno, Kind, Links, Stat, fd_path, own_proc, stat_of, tell_umask};
use plfs_core::{
    Access, Ending, OpenOptions, PACK_NAME, PackPlace, Plfs, STAND_IN_BEGINS, STAND_IN_BYTES,
    STAND_IN_HEAD, Small, StandIn, Writers,
};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::attributes::{put_stat, times_arg};
use crate::dir::PlfsDir;
use crate::door::KEPT;
use crate::flat::{self, PLFS_IS_FLAT};
use crate::handle::{PlfsFile, access_of, handle};
use crate::managed::managed_path;
use crate::names::{PLFS_NOT_MANAGED, links_of};
use crate::path::{may_access, may_change_names, may_set_times, must_be_no_dir};
use crate::room::Room;
use crate::{
    Failure, Result, above, absolute, borrow, call, here, link_of, path_arg, plfs, plfs_if_there,
};

/// What readdir says of a kind.
fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::File => DT_REG,
        Kind::Dir => libc::DT_DIR,
        Kind::Symlink => libc::DT_LNK,
        _ => libc::DT_UNKNOWN,
    }
}

/// What calls on names say of those that are in no pack: no negative errno.
pub const PLFS_NOT_PACKED: c_int = -5002;

/// What plfs_door_open says of a name of a pack that is to be made: to be opened there.
pub const PLFS_IS_PACKED: c_int = -5003;

/// Which file of its pack a handle is on, for a program that inherits the placeholder.
#[repr(C)]
pub struct plfs_packed {
    /// Device of the pack's name, on which the placeholder is open.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// The file's id: the place of its creation.
    pub stamp: u64,
    /// The same.
    pub set: u32,
    /// Bytes of `name`; 0: the handle is on no file of a pack.
    pub length: u32,
    /// A name that it had; not ended by a zero.
    pub name: [u8; 256],
}

/// A call on a name of a pack, or on what leads to one by links if `links` says so: what `body`
/// gives; PLFS_IS_FLAT, PLFS_NOT_PACKED, or PLFS_NOT_MANAGED, of others. ENOTDIR if it has to be a
/// directory.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn on_packed(
    dirfd: c_int,
    path: *const c_char,
    links: Links,
    body: impl FnOnce(&Plfs, &Path, &Stat) -> Result<i64>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(at) = (unsafe { managed_path(dirfd, path) }) else { return PLFS_NOT_MANAGED };
    call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { path_arg(path) }?;
        match plfs()?.behind(&at?, links)? {
            (at, Some(stat)) => {
                must_be_no_dir(name)?;
                must_be_no_dir(&at)?;
                body(plfs()?, &at, &stat)
            }
            (at, None) => {
                // Links are followed for who has asked the kernel, which has nothing.
                if matches!(links, Links::Follow) || Ending::of(name) == Ending::Dot {
                    must_not_lead_through_file(&at)?;
                }
                elsewhere(&at)
            }
        }
    }) as c_int
}

/// What is said of a name that no pack has: PLFS_NOT_PACKED, or PLFS_IS_FLAT; an error if the file
/// system cannot have it either, ENOTDIR below a file of a pack.
fn elsewhere(path: &Path) -> Result<i64> {
    if plfs()?.knows_packs() {
        must_not_be_in_file(path)?;
    }
    let is_flat = plfs()?.is_below_flat(path)?;
    Ok(i64::from(if is_flat { PLFS_IS_FLAT } else { PLFS_NOT_PACKED }))
}

/// 1 once the process has found a pack. Cheap. As long as it has not, a name that the file system
/// has is not looked for in packs.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_knows_packs() -> c_int {
    plfs_if_there().map_or(0, |plfs| c_int::from(plfs.knows_packs()))
}

/// The umask is `mask` from now on; -1: as it is, and later calls tell each change.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_umask(mask: c_int) {
    tell_umask(u32::try_from(mask).ok());
}

/// The directory of /proc that has what this process has open, as `fd/3`, also once main has left
/// by pthread_exit: `/proc/thread-self`, or what there is before Linux 3.17.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_own_proc() -> *const c_char {
    own_proc().as_ptr()
}

/// How a file of a pack is opened.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plfs_packed_how {
    /// As of openat(2).
    pub flags: c_int,
    /// As of openat(2), of a new file.
    pub mode: mode_t,
    /// Not 0 where the file system has nothing at the path: then links that lead to nothing are
    /// followed, too.
    pub follow: c_int,
    /// Descriptors that the files need that are open; 0 if all are plain. They have to be left, or
    /// PLFS_LOG_DESCRIPTORS if they are fewer.
    pub spare: c_uint,
}

/// openat(2) of a file of a pack, or a new one: gives the placeholder, and the handle in `*out`.
/// PLFS_NOT_PACKED: it is none, and goes to none; PLFS_IS_FLAT: it is in a flat directory.
/// -EMFILE if too few descriptors would be left: then nothing is made or cut.
///
/// # Safety
/// `path` is a C string, `how` points to what it says, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_open(
    dirfd: c_int,
    path: *const c_char,
    how: *const plfs_packed_how,
    out: *mut *mut PlfsFile,
) -> c_int {
    // SAFETY: the caller's promise.
    let &plfs_packed_how { flags, mode, follow, spare } = unsafe { &*how };
    // SAFETY: the caller's promise.
    let Some(at) = (unsafe { managed_path(dirfd, path) }) else { return PLFS_NOT_MANAGED };
    call(|| {
        // SAFETY: the caller's promises.
        let (name, out) = unsafe { (path_arg(path)?, out.as_mut()) };
        let out = out.ok_or_else(|| Failure::from(Errno::FAULT))?;
        let (mut at, mut ending) = (at?, Ending::of(name));
        // The kernel says EISDIR by the path alone.
        let is_refused = |ending| {
            ending == Ending::Slash && flags & (libc::O_CREAT | libc::O_PATH) == libc::O_CREAT
        };
        if follow != 0 && !is_refused(ending) {
            match plfs()?.end_of_links(&at) {
                Some(end) if flags & (libc::O_NOFOLLOW | libc::O_EXCL) == 0 => {
                    ending = ending.behind_links(&end);
                    at = end;
                }
                _ => {
                    must_not_lead_through_file(&at)?;
                    return Ok(i64::from(PLFS_NOT_PACKED));
                }
            }
        }
        if is_refused(ending) {
            must_not_lead_through_file(at.components().as_path())?;
            return Ok(i64::from(PLFS_NOT_PACKED));
        }
        if ending == Ending::Dot {
            must_not_lead_through_file(&at)?;
        }
        match open(&at, ending.is_for_directory(), (flags, mode, Room(spare)), out) {
            Err(failure) if failure.errno == Errno::NOENT => {
                must_not_lead_through_file(&at)?;
                Err(failure)
            }
            other => {
                let fd = other?;
                if fd == i64::from(PLFS_NOT_PACKED) && dirfd == libc::AT_FDCWD {
                    // SAFETY: the caller's promise.
                    unsafe { learn_of_directory(path, &at) };
                }
                Ok(fd)
            }
        }
    }) as c_int
}

/// Finds out what new files beside `path` are for, so that the next open need not ask packs.
///
/// # Safety
/// `path` is a C string.
unsafe fn learn_of_directory(path: *const c_char, at: &Path) {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if let Ok(plfs) = plfs() {
        let _ = here::workload(path, || plfs.workload_of(at));
    }
}

/// ENOTDIR if the directory of a path is a file of a pack. Costs no call where packs were looked
/// for a moment ago.
pub(crate) fn must_not_be_in_file(path: &Path) -> Result<()> {
    match path.parent().map(|dir| plfs()?.packed_stat(dir).map_err(Failure::from)).transpose()? {
        Some(Some(_)) => Err(Errno::NOTDIR.into()),
        _ => Ok(()),
    }
}

/// ENOTDIR if a path, where the file system has nothing, goes on behind a file of a pack, or behind
/// a link to one. Costs a stat where the directory is there.
pub(crate) fn must_not_lead_through_file(path: &Path) -> Result<()> {
    for dir in iter::successors(above(path), |dir| above(dir)) {
        if rustix::fs::stat(dir).is_ok() {
            break;
        }
        if plfs()?.packed_behind(dir, Links::Follow)?.is_some() {
            return Err(Errno::NOTDIR.into());
        }
    }
    Ok(())
}

fn open(
    at: &Path,
    is_dir: bool,
    (flags, mode, room): (c_int, mode_t, Room),
    out: &mut *mut PlfsFile,
) -> Result<i64> {
    *out = std::ptr::null_mut();
    let plfs = plfs()?;
    let create = flags & libc::O_CREAT != 0 && flags & libc::O_PATH == 0;
    let access = access_of(flags);
    let writes = (access.write || flags & libc::O_TRUNC != 0) && flags & libc::O_PATH == 0;
    let small = match plfs.small(at, create && !is_dir && plfs.is_mounted(at), writes) {
        Err(error) if plfs.forgets_gone(&error) => {
            return open(at, is_dir, (flags, mode, room), out);
        }
        small => small?,
    };
    let Some(small) = small else { return elsewhere(at) };
    if is_dir || flags & libc::O_DIRECTORY != 0 {
        return Err(Errno::NOTDIR.into());
    }
    if flags & libc::O_PATH != 0 {
        return Err(Failure::new(
            Errno::OPNOTSUPP,
            "a file of a pack has no inode that O_PATH could name",
        ));
    }
    let options = OpenOptions {
        access,
        create,
        exclusive: flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        mode: mode & 0o7777,
        writers: Writers::Unknown,
    };
    if let Some(stat) = small.stat() {
        if create && options.exclusive {
            return Err(Errno::EXIST.into());
        }
        must_be_allowed(&stat.stat((0, 0)), options.access, options.truncate)?;
    } else {
        may_change_names(at, None)?;
    }
    // Before the file is made or cut: a process that has no descriptor left changes nothing.
    let (fd, stand_in) = placeholder(&small, flags)?;
    room.for_packed(fd.as_raw_fd())?;
    let is_new = small.stat().is_none();
    let file = match plfs.open_small(small, options) {
        // Somebody has made another kind of file meanwhile.
        Err(error) if is_new && !options.exclusive && error.errno() == Errno::EXIST => {
            return elsewhere(at);
        }
        Err(error) if plfs.forgets_gone(&error) => {
            return open(at, is_dir, (flags, mode, room), out);
        }
        other => other?,
    };
    *out = PlfsFile::with_placeholder(file, flags & libc::O_APPEND != 0, stand_in);
    Ok(i64::from(fd.into_raw_fd()))
}

/// EACCES unless this user may open the file so, by its mode.
fn must_be_allowed(stat: &Stat, access: Access, truncate: bool) -> Result<()> {
    let writes = access.write || truncate;
    let wanted = if access.read { 4 } else { 0 } | if writes { 2 } else { 0 };
    may_access(stat, wanted, AtFlags::EACCESS).map(drop)
}

fn placeholder(small: &Small<'_>, flags: c_int) -> Result<(OwnedFd, Option<Arc<StandIn>>)> {
    if let Some(file) = small.stand_in() {
        let path = fd_path(file.as_fd().as_raw_fd());
        let how = kept_flags(flags) - OFlags::NOFOLLOW;
        // Without /proc the pack's own name does it.
        if let Ok(fd) = rustix::fs::open(path, how, Mode::empty()) {
            return Ok((fd, Some(file)));
        }
    }
    Ok((rustix::fs::open(small.pack_name(), kept_flags(flags), Mode::empty())?, None))
}

fn kept_flags(flags: c_int) -> OFlags {
    OFlags::from_bits_retain((flags & KEPT) as u32) | OFlags::RDONLY | OFlags::NOFOLLOW
}

/// Which file of its pack a handle is on: 1, and it is in `*out`; 0: it is on no file of a pack.
///
/// # Safety
/// `file` is a handle, `out` a place for a plfs_packed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed(file: *mut PlfsFile, out: *mut plfs_packed) -> c_int {
    // SAFETY: the caller's promises.
    if let (Some(file), Some(out)) = unsafe { (file.as_ref(), out.as_mut()) }
        && !file.file.is_packed()
    {
        out.length = 0;
        return 0;
    }
    call(|| {
        // SAFETY: the caller's promises.
        let (file, out) =
            unsafe { (handle(file)?, out.as_mut().ok_or_else(|| Failure::from(Errno::FAULT))?) };
        out.length = 0;
        let Some((id, name)) = file.file.packed_name() else { return Ok(0) };
        (out.dev, out.ino) = file.file.packed_id().map_or((0, 0), |(identity, _)| identity);
        (out.stamp, out.set, out.length) = (id.stamp, id.set, name.len() as u32);
        out.name[..name.len()].copy_from_slice(name);
        Ok(1)
    }) as c_int
}

/// A handle for an inherited placeholder: 1 and the handle in `*out`. -ESTALE or -ENOENT if the
/// pack does not have the file any more.
///
/// # Safety
/// `fd` is open on the name of a pack, `which` points to what [`plfs_door_packed`] gave for it in
/// another process, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_adopt(
    fd: c_int,
    flags: c_int,
    which: *const plfs_packed,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (of, which, out) = unsafe { (borrow(fd)?, which.as_ref(), out.as_mut()) };
        let (Some(which), Some(out)) = (which, out) else { return Err(Errno::FAULT.into()) };
        let name = which.name.get(..which.length as usize);
        let name = name.ok_or_else(|| Failure::from(Errno::INVAL))?;
        let place = match stand_in_of(of)? {
            Some(place) => place,
            None => {
                let (stat, name) = (stat_of(&rustix::fs::fstat(of)?), link_of(fd)?);
                let dir = name.parent().unwrap_or(Path::new("/")).to_path_buf();
                let identity = (stat.dev, stat.ino);
                // The kernel has the name of the directory.
                PackPlace { identity, dir, container: PathBuf::new() }
            }
        };
        let file = plfs()?.open_inherited(
            &place,
            (FileId { stamp: which.stamp, set: which.set }, name),
            access_of(flags),
        )?;
        *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
        Ok(1)
    }) as c_int
}

/// The place of the pack that a placeholder in memory stands for; `None`: it is another file.
pub(crate) fn stand_in_of(of: BorrowedFd<'_>) -> Result<Option<PackPlace>> {
    let stat = rustix::fs::fstat(of)?;
    if stat.st_nlink != 0 || stat.st_size != PLFS_STAND_IN_BYTES as i64 {
        return Ok(None);
    }
    let mut bytes = [0; STAND_IN_HEAD];
    let n = rustix::io::pread(of, &mut bytes, 0)?;
    Ok(PackPlace::read(&bytes[..n]))
}

/// Length of a placeholder in memory; no arena of the preload library is as long.
pub const PLFS_STAND_IN_BYTES: usize = 192 << 10;
const _: () = assert!(PLFS_STAND_IN_BYTES == STAND_IN_BYTES);

/// The first eight bytes of one, `PLFSPACK`, as a little-endian number.
pub const PLFS_STAND_IN_BEGINS: u64 = 0x4b43_4150_5346_4c50;
const _: () = assert!(PLFS_STAND_IN_BEGINS == u64::from_le_bytes(STAND_IN_BEGINS));

/// Set in the kernel's position of a placeholder that went in a message. The access mode of the
/// file (O_ACCMODE) is above PLFS_PASSED_ACCESS, the number of the note that says which file of the
/// pack it is above PLFS_PASSED_NOTE, and the position itself below that.
pub const PLFS_PASSED: i64 = 0x4000_0000_0000_0000;
/// See [`PLFS_PASSED`].
pub const PLFS_PASSED_ACCESS: c_int = 60;
/// See [`PLFS_PASSED`]. Files of packs that go in messages end at 16 TiB.
pub const PLFS_PASSED_NOTE: c_int = 44;

/// Notes for other processes which file the placeholder `fd` is open on, that has these `flags`.
/// Gives what the kernel's position of `fd` is to be, whose own part is `position`.
///
/// Errors: -EOPNOTSUPP if there is no place for that: another process made the placeholder, or very
/// many of the pack were passed.
///
/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_pass(
    file: *mut PlfsFile,
    fd: c_int,
    flags: c_int,
    position: i64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let (handle, of) = unsafe { (handle(file)?, borrow(fd)?) };
        let cannot = |why: &str| Failure::new(Errno::OPNOTSUPP, format!("a file of a pack {why}"));
        let elsewhere = || cannot("that this process has not opened goes to no other by a message");
        let stand_in = handle.stand_in.as_ref().ok_or_else(elsewhere)?;
        let (own, its) = (rustix::fs::fstat(stand_in.as_ref())?, rustix::fs::fstat(of)?);
        if (own.st_dev, own.st_ino) != (its.st_dev, its.st_ino) {
            return Err(elsewhere());
        }
        if !(0..1 << PLFS_PASSED_NOTE).contains(&position) {
            return Err(cannot("goes to no other process at this position"));
        }
        let (id, name) = handle.file.packed_name().ok_or_else(|| Failure::from(Errno::BADF))?;
        let full = || cannot("goes to no other process: there is no room to say which");
        let note = i64::from(stand_in.note(id, name).ok_or_else(full)?);
        let access = i64::from(flags & libc::O_ACCMODE);
        Ok(PLFS_PASSED | access << PLFS_PASSED_ACCESS | note << PLFS_PASSED_NOTE | position)
    })
}

/// The file of the pack at `place` whose placeholder came in a message; `None`: nobody has said
/// which.
pub(crate) fn open_passed(
    of: BorrowedFd<'_>,
    place: &PackPlace,
    flags: c_int,
) -> Result<Option<*mut PlfsFile>> {
    let at = rustix::fs::tell(of)? as i64;
    if at & PLFS_PASSED == 0 {
        return Ok(None);
    }
    let number = (at >> PLFS_PASSED_NOTE) as u32 & 0xffff;
    let (from, length) = StandIn::place_of_note(number);
    let mut note = vec![0; length];
    let n = rustix::io::pread(of, &mut note, from)?;
    let Some((id, name)) = StandIn::read_note(&note[..n]) else { return Ok(None) };
    let file = plfs()?.open_inherited(place, (id, name), access_of(flags))?;
    Ok(Some(PlfsFile::new(file, flags & libc::O_APPEND != 0)))
}

/// The directory of the pack that has the file of a handle, in `out`, which has room for PATH_MAX
/// bytes.
///
/// # Safety
/// `file` is a handle on a file of a pack, `out` has room for PATH_MAX bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_dir(file: *mut PlfsFile, out: *mut c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let dir = unsafe { handle(file)? }.file.packed_dir();
        let dir = dir.ok_or_else(|| Failure::from(Errno::BADF))?;
        // SAFETY: as above.
        unsafe { put_path(&dir, out) }
    }) as c_int
}

/// Puts a path where there is room for PATH_MAX bytes.
///
/// # Safety
/// `out` has that room.
unsafe fn put_path(path: &Path, out: *mut c_char) -> Result<i64> {
    let text = path.as_os_str().as_bytes();
    if text.len() >= libc::PATH_MAX as usize {
        return Err(Errno::NAMETOOLONG.into());
    }
    // SAFETY: the caller promises room for PATH_MAX bytes, and the zero has one of them.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(0)
}

/// open(2) of the path of a descriptor (/dev/stdin, /proc/self/fd/N) that has the placeholder `fd`
/// and the handle `file`: a placeholder and a handle of their own. `spare` as in plfs_packed_how.
///
/// # Safety
/// `file` is a handle on a file of a pack, `fd` its placeholder, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_reopen(
    file: *mut PlfsFile,
    fd: c_int,
    flags: c_int,
    spare: c_uint,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (handle, out) =
            unsafe { (handle(file)?, out.as_mut().ok_or_else(|| Failure::from(Errno::FAULT))?) };
        // Such a path is a link.
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(Errno::EXIST.into());
        }
        if flags & libc::O_NOFOLLOW != 0 {
            return Err(Errno::LOOP.into());
        }
        let (access, truncate) = (access_of(flags), flags & libc::O_TRUNC != 0);
        must_be_allowed(&handle.file.stat()?, access, truncate)?;
        let options = OpenOptions { access, truncate, ..OpenOptions::read() };
        let how = kept_flags(flags) - OFlags::NOFOLLOW;
        let again = rustix::fs::open(fd_path(fd), how, Mode::empty())?;
        Room(spare).for_packed(again.as_raw_fd())?;
        let file = plfs()?.open_again(&handle.file, options)?;
        let file = file.ok_or_else(|| Failure::from(Errno::BADF))?;
        let stand_in = handle.stand_in.clone();
        *out = PlfsFile::with_placeholder(file, flags & libc::O_APPEND != 0, stand_in);
        Ok(i64::from(again.into_raw_fd()))
    }) as c_int
}

/// fstatat(2) of a name of a pack: 0, or PLFS_NOT_PACKED. Links are followed as `at_flags` says.
///
/// # Safety
/// `path` is a C string, `st` a place for a struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_stat(
    dirfd: c_int,
    path: *const c_char,
    at_flags: c_int,
    st: *mut libc::stat,
) -> c_int {
    // SAFETY: the caller's promise.
    let fill = |_: &Plfs, _: &Path, stat: &Stat| unsafe { put_stat(stat, st) };
    // SAFETY: the caller's promise.
    unsafe { on_packed(dirfd, path, links_of(at_flags), fill) }
}

/// faccessat(2) of a name of a pack, by its mode: 0, or PLFS_NOT_PACKED.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_access(
    dirfd: c_int,
    path: *const c_char,
    mode: c_int,
    at_flags: c_int,
) -> c_int {
    let at = AtFlags::from_bits_truncate(at_flags as u32);
    let may = |_: &Plfs, _: &Path, stat: &Stat| may_access(stat, mode as u32, at);
    // SAFETY: the caller's promise.
    unsafe { on_packed(dirfd, path, links_of(at_flags), may) }
}

/// utimensat(2) of a name of a pack: 0, or PLFS_NOT_PACKED.
///
/// # Safety
/// `path` is a C string, `times` is NULL or points to two timespecs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_utimens(
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    at_flags: c_int,
) -> c_int {
    let set = |plfs: &Plfs, at: &Path, stat: &Stat| {
        // SAFETY: the caller's promise.
        let [atime, mtime] = unsafe { times_arg(times) }?;
        // SAFETY: the caller's promise.
        unsafe { may_set_times(stat, times) }?;
        Ok(plfs.set_times(at, atime, mtime).map(|()| 0)?)
    };
    // SAFETY: the caller's promise.
    unsafe { on_packed(dirfd, path, links_of(at_flags), set) }
}

/// 0 if `path` is a name of a pack, or leads to one as `at_flags` says; else PLFS_NOT_PACKED.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_is(
    dirfd: c_int,
    path: *const c_char,
    at_flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_packed(dirfd, path, links_of(at_flags), |_, _, _| Ok(0)) }
}

/// For who has just made `path`, which is to be no file of a pack: 0; or -EEXIST if one was made at
/// the same moment, and `path` is gone again. PLFS_NOT_MANAGED of what is in no managed directory.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_beside(dirfd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(at) = (unsafe { managed_path(dirfd, path) }) else { return PLFS_NOT_MANAGED };
    call(|| Ok(plfs()?.made_beside(&at?).map(|()| 0)?)) as c_int
}

/// Where the file of a pack is that `path` is a name of, or leads to by links: 0, and its absolute
/// path in `out`, which has room for PATH_MAX bytes; or PLFS_NOT_PACKED.
///
/// # Safety
/// `path` is a C string, `out` has room for PATH_MAX bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_where(
    dirfd: c_int,
    path: *const c_char,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let tell = |_: &Plfs, at: &Path, _: &Stat| unsafe { put_path(at, out) };
    // SAFETY: the caller's promise.
    unsafe { on_packed(dirfd, path, Links::Follow, tell) }
}

/// 1 if the directory `dirfd` has a file by the name of a pack, else 0. One system call.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_has_pack(dirfd: c_int) -> c_int {
    if dirfd < 0 {
        return 0;
    }
    // SAFETY: the number is used for this one call, which fails if nothing is open by it.
    let dir = unsafe { BorrowedFd::borrow_raw(dirfd) };
    let stat = rustix::fs::statat(dir, PACK_NAME, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG).into()
}

/// The names that the pack of the directory `dirfd` has, for [`plfs_door_packed_name`];
/// plfs_closedir frees them. Those that ordinary files of the directory have as well are not among
/// them. With `whole`, or if the directory is flat, all of its names but "." and "..".
/// PLFS_NOT_PACKED: it has no pack.
///
/// # Safety
/// `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_list(
    dirfd: c_int,
    whole: c_int,
    out: *mut *mut PlfsDir,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { out.as_mut() }.ok_or_else(|| Failure::from(Errno::FAULT))?;
        let dir = flat::named(link_of(dirfd)?)?;
        if whole != 0 || plfs()?.is_flat(&dir)? {
            let kind = |entry: &Entry| entry.kind.map_or(libc::DT_UNKNOWN, type_of);
            let names = plfs()?.list(&dir)?.into_iter();
            let names = names.map(|entry| (kind(&entry), entry.ino.max(1), entry.name));
            *out = PlfsDir::new(names.map(|(kind, ino, name)| (name.into_vec(), ino, kind)));
            return Ok(0);
        }
        let Some(pack) = plfs()?.pack(&dir)? else { return Ok(i64::from(PLFS_NOT_PACKED)) };
        let ordinary = plfs()?.store().list(&dir)?;
        let both: std::collections::HashSet<&[u8]> =
            ordinary.iter().map(|entry| entry.name.as_bytes()).collect();
        let (names, of) = (pack.list(b"", usize::MAX)?, pack.container().identity);
        let names = names.into_iter().filter(|(name, _)| !both.contains(&**name));
        let entry = |(name, stat): (Box<[u8]>, PackStat)| (name.into_vec(), stat.ino(of), DT_REG);
        *out = PlfsDir::new(names.map(entry));
        Ok(0)
    }) as c_int
}

/// The name with this number, from 0, of a list, the number of its file in `*ino` and what readdir
/// says of its kind in `*kind`; NULL behind the last one. Valid as long as the list.
///
/// # Safety
/// `list` is a list; `ino` and `kind` are places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_name(
    list: *const PlfsDir,
    number: usize,
    ino: *mut u64,
    kind: *mut u8,
) -> *const c_char {
    // SAFETY: the caller's promises.
    let (list, places) = unsafe { (list.as_ref(), (ino.as_mut(), kind.as_mut())) };
    let (Some(list), (Some(ino), Some(kind))) = (list, places) else { return std::ptr::null() };
    list.name(number).map_or(std::ptr::null(), |(name, of, is)| {
        (*ino, *kind) = (*of, *is);
        CStr::as_ptr(name)
    })
}

/// Removes the pack of the directory `path`, which has to be empty, for who is about to remove the
/// directory. -ENOTEMPTY if it is not, -EBUSY if another process writes it.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_packed_remove(dirfd: c_int, path: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let at = absolute(dirfd, unsafe { path_arg(path) }?)?;
        Ok(plfs()?.remove_pack(&at).map(|()| 0)?)
    }) as c_int
}
