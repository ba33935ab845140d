//! Files by name
//!
//! These work on any file: a PLFS file gets its logical answers, any other the system's.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use libc::{gid_t, mode_t, size_t, ssize_t, timespec, uid_t};
use plfs_core::Ending;
use plfs_core::pack::PackStat;
use plfs_core::store::{Errno, Kind, Links, Stat};
use rustix::fs::{Access, AtFlags, CWD, Gid};

use crate::attributes::{put_stat, times_arg};
use crate::handle::offset_arg;
use crate::{Failure, absolute, call, path_arg, plfs};

/// Runs `body` on an absolute path.
///
/// # Safety
/// `path` is NULL or a C string.
pub(crate) unsafe fn on_path(
    path: *const c_char,
    body: impl FnOnce(&Path) -> crate::Result<i64>,
) -> c_int {
    // SAFETY: the caller's promise.
    call(|| body(&absolute(libc::AT_FDCWD, unsafe { path_arg(path) }?)?)) as c_int
}

/// Fills `*out` for `path`, following links, as plfs_fstat. Cost for a PLFS file: one read of its
/// summary; while it is being written, of the block headers of its index logs.
///
/// # Safety
/// `path` is a C string, `out` a place for a struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_stat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { on_path(path, |path| put_stat(&plfs()?.stat(path, Links::Follow)?.stat, out)) }
}

/// plfs_stat that does not follow a link at the end of the path.
///
/// # Safety
/// As plfs_stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_lstat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { on_path(path, |path| put_stat(&plfs()?.stat(path, Links::Stay)?.stat, out)) }
}

/// 0 if this user, by the effective ids, may read (R_OK), write (W_OK) or execute (X_OK) the file,
/// or if it exists (F_OK); else a negative error number as access(2).
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_access(path: *const c_char, mode: c_int) -> c_int {
    let access = Access::from_bits_truncate(mode as u32);
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            if let Some((_, stat)) = plfs()?.packed_behind(path, Links::Follow)? {
                return may_access(&stat, mode as u32, AtFlags::EACCESS);
            }
            let path = plfs()?.placed(path, Links::Follow)?;
            Ok(rustix::fs::accessat(CWD, &*path, access, AtFlags::EACCESS).map(|()| 0)?)
        })
    }
}

/// access(2) of a file of a pack, whose mode the kernel does not know. It is what the file says:
/// who may write the pack may all the same.
pub(crate) fn may_access(stat: &Stat, wanted: u32, at_flags: AtFlags) -> crate::Result<i64> {
    use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
    let effective = at_flags.contains(AtFlags::EACCESS);
    let user = if effective { geteuid() } else { getuid() };
    let in_group = || {
        let group = if effective { getegid() } else { getgid() };
        let is_his = |known: &Gid| known.as_raw() == stat.gid;
        is_his(&group) || getgroups().is_ok_and(|groups| groups.iter().any(is_his))
    };
    let granted = match () {
        () if user.is_root() => 6 | u32::from(stat.mode & 0o111 != 0),
        () if user.as_raw() == stat.uid => stat.mode >> 6,
        () if in_group() => stat.mode >> 3,
        () => stat.mode,
    };
    match wanted & !granted & 7 {
        0 => Ok(0),
        _ => Err(Errno::ACCESS.into()),
    }
}

/// EPERM unless this process may change what only the owner of a file of a pack may: its mode.
pub(crate) fn must_own(stat: &Stat) -> crate::Result<()> {
    let user = rustix::process::geteuid();
    match user.is_root() || user.as_raw() == stat.uid {
        true => Ok(()),
        false => Err(Errno::PERM.into()),
    }
}

/// EPERM unless this process may give a file of a pack this owner and this group, as chown(2): the
/// owner may give it to a group of his.
pub(crate) fn may_chown(stat: &Stat, uid: Option<u32>, gid: Option<u32>) -> crate::Result<()> {
    use rustix::process::{getegid, geteuid, getgroups};
    if geteuid().is_root() || (uid, gid) == (None, None) {
        return Ok(());
    }
    must_own(stat)?;
    let is_his = |gid: u32| {
        gid == stat.gid
            || gid == getegid().as_raw()
            || getgroups().is_ok_and(|groups| groups.iter().any(|known| known.as_raw() == gid))
    };
    match uid.is_none_or(|uid| uid == stat.uid) && gid.is_none_or(is_his) {
        true => Ok(()),
        false => Err(Errno::PERM.into()),
    }
}

/// Whether this process may set the times of a file of a pack, as utimensat(2): who may write it
/// may say that it is now.
///
/// # Safety
/// `times` is NULL or points to two timespecs.
pub(crate) unsafe fn may_set_times(stat: &Stat, times: *const timespec) -> crate::Result<()> {
    // SAFETY: the caller's promise.
    let times = (!times.is_null()).then(|| unsafe { std::slice::from_raw_parts(times, 2) });
    let all = |nsec| times.is_some_and(|times| times.iter().all(|time| time.tv_nsec == nsec));
    match times.is_none() || all(libc::UTIME_NOW) {
        _ if all(libc::UTIME_OMIT) => Ok(()),
        true if must_own(stat).is_err() => may_access(stat, 2, AtFlags::EACCESS).map(|_| ()),
        _ => must_own(stat),
    }
}

/// Whether this process may make a name in the directory of `path`, or take the name of a file
/// away that `of` owns. The kernel knows the directory and not the pack's names.
pub(crate) fn may_change_names(path: &Path, of: Option<u32>) -> crate::Result<()> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    if of.is_none_or(|of| of == user.as_raw()) {
        return Ok(());
    }
    let stat = rustix::fs::statat(CWD, dir, AtFlags::empty())?;
    match stat.st_mode & libc::S_ISVTX != 0 && stat.st_uid != user.as_raw() {
        true => Err(Errno::PERM.into()),
        false => Ok(()),
    }
}

/// [`may_change_names`] of a rename, with what a pack has by the names; nothing if it has none.
pub(crate) fn may_rename(
    (from, source): (&Path, Option<PackStat>),
    (to, target): (&Path, Option<PackStat>),
) -> crate::Result<()> {
    if source.is_none() && target.is_none() {
        return Ok(());
    }
    may_change_names(from, source.map(|stat| stat.uid))?;
    may_change_names(to, target.map(|stat| stat.uid))
}

/// Of a path that leads to a file of a pack: ENOTDIR if it ends as that of a directory.
pub(crate) fn must_be_no_dir(path: &Path) -> crate::Result<()> {
    match Ending::of(path) {
        Ending::Name => Ok(()),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// What a call says of a path that asks for a directory, and that it refuses: `errno` if it is one,
/// else ENOTDIR or ENOENT.
pub(crate) fn refused_dir(path: &Path, errno: Errno) -> crate::Result<i64> {
    match plfs()?.stat(path, Links::Follow)?.stat.kind {
        Kind::Dir => Err(errno.into()),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// The name of a pack that links at `path` lead to, if this process may do with it what `may` says.
/// `None`: it is none.
pub(crate) fn packed_if(
    path: &Path,
    links: Links,
    may: impl FnOnce(&Stat) -> crate::Result<()>,
) -> crate::Result<Option<PathBuf>> {
    let Some((packed, stat)) = plfs()?.packed_behind(path, links)? else { return Ok(None) };
    must_be_no_dir(path)?;
    must_be_no_dir(&packed)?;
    may(&stat)?;
    Ok(Some(packed))
}

/// EEXIST if a pack has the name.
fn must_be_free(path: &Path) -> crate::Result<()> {
    match plfs()?.packed_stat(path)? {
        Some(_) => Err(Errno::EXIST.into()),
        None => Ok(()),
    }
}

/// [`packed_if`] behind links, or `path`.
fn behind_links(
    path: &Path,
    may: impl FnOnce(&Stat) -> crate::Result<()>,
) -> crate::Result<PathBuf> {
    Ok(packed_if(path, Links::Follow, may)?.unwrap_or_else(|| path.to_path_buf()))
}

/// truncate(2).
pub(crate) fn truncate(path: &Path, size: i64) -> crate::Result<i64> {
    let size = offset_arg(size)?;
    let may = |stat: &Stat| may_access(stat, 2, AtFlags::EACCESS).map(|_| ());
    Ok(plfs()?.truncate(&behind_links(path, may)?, size).map(|()| 0)?)
}

/// plfs_ftruncate of the file `path`, followed by a commit.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_truncate(path: *const c_char, size: i64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(path, |path| truncate(path, size)) }
}

/// Sets the permission bits, as chmod(2).
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            Ok(plfs()?.chmod(&behind_links(path, must_own)?, mode & 0o7777).map(|()| 0)?)
        })
    }
}

/// Sets owner and group, as chown(2); -1 leaves one as it is. Follows links.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            let (uid, gid) = (some(uid), some(gid));
            let path = behind_links(path, |stat| may_chown(stat, uid, gid))?;
            Ok(plfs()?.chown(&path, uid, gid, Links::Follow).map(|()| 0)?)
        })
    }
}

/// Sets access and modification time, as utimensat(2) with AT_FDCWD and no flags; `times` as
/// plfs_futimens.
///
/// # Safety
/// `path` is a C string, `times` is NULL or points to two timespecs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_utimens(path: *const c_char, times: *const timespec) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        on_path(path, |path| {
            let [atime, mtime] = times_arg(times)?;
            let path = behind_links(path, |stat| may_set_times(stat, times))?;
            Ok(plfs()?.set_times(&path, atime, mtime).map(|()| 0)?)
        })
    }
}

/// Removes a name, as unlink(2). The data goes with the last name, when nobody has the file open
/// any more. Cost for a PLFS file: the removal of its logs, if this was the last name.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            if let Some(stat) = plfs()?.packed_stat(path)? {
                may_change_names(path, Some(stat.uid))?;
            }
            Ok(plfs()?.unlink(path).map(|()| 0)?)
        })
    }
}

/// Renames, as rename(2): a file at `to` is replaced atomically.
///
/// # Safety
/// `from` and `to` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        on_path(from, |from| {
            let to = absolute(libc::AT_FDCWD, path_arg(to)?)?;
            let (source, target) = (plfs()?.packed_stat(from)?, plfs()?.packed_stat(&to)?);
            may_rename((from, source), (&to, target))?;
            Ok(plfs()?.rename(from, &to).map(|()| 0)?)
        })
    }
}

/// Adds the name `to` for `from` (a hard link), as link(2). -EPERM for a file of a pack, which has
/// one name.
///
/// # Safety
/// `from` and `to` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        on_path(from, |from| {
            let to = absolute(libc::AT_FDCWD, path_arg(to)?)?;
            if plfs()?.packed_stat(from)?.is_some() {
                return Err(Failure::new(Errno::PERM, "a file of a pack has one name"));
            }
            must_be_free(&to)?;
            Ok(plfs()?.link(from, &to).map(|()| 0)?)
        })
    }
}

/// Makes a symbolic link at `path` with the text `target`.
///
/// # Safety
/// `target` and `path` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        on_path(path, |path| {
            must_be_free(path)?;
            Ok(plfs()?.symlink(path_arg(target)?, path).map(|()| 0)?)
        })
    }
}

/// Puts the text of a symbolic link in `buf`, cut at `n` bytes and without a zero at the end. Gives
/// the bytes put there.
///
/// # Safety
/// `path` is a C string, `buf` has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_readlink(
    path: *const c_char,
    buf: *mut c_char,
    n: size_t,
) -> ssize_t {
    use std::os::unix::ffi::OsStrExt;
    let read = |path: &Path| {
        if plfs()?.packed_stat(path)?.is_some() {
            return Err(Errno::INVAL.into());
        }
        let target = plfs()?.readlink(path)?;
        let text = target.as_os_str().as_bytes();
        let n = n.min(text.len());
        if buf.is_null() {
            return Err(Failure::new(Errno::FAULT, "the buffer is NULL"));
        }
        // SAFETY: not NULL; the caller promises room for n bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n) };
        Ok(n as i64)
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(path, read) as ssize_t }
}

/// Makes a directory; the umask counts, as for mkdir(2).
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(path, |path| {
            must_be_free(path)?;
            Ok(plfs()?.mkdir(path, mode & 0o7777).map(|()| 0)?)
        })
    }
}

/// Removes an empty directory.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(path, |path| Ok(plfs()?.rmdir(path).map(|()| 0)?)) }
}

/// Fills `*out` with the size and free space of the file system that `path` is on, as statvfs(3).
/// Backends elsewhere are not counted.
///
/// # Safety
/// `path` is a C string, `out` a place for a struct statvfs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_statvfs(path: *const c_char, out: *mut libc::statvfs) -> c_int {
    let fill = |path: &Path| {
        let dir = path.parent().filter(|_| {
            plfs().is_ok_and(|plfs| matches!(plfs.packed_behind(path, Links::Stay), Ok(Some(_))))
        });
        let room = rustix::fs::statvfs(&*plfs()?.placed(dir.unwrap_or(path), Links::Follow)?)?;
        // SAFETY: the caller's promise.
        let out = unsafe { out.as_mut() }
            .ok_or_else(|| Failure::new(Errno::FAULT, "the place for the answer is NULL"))?;
        // SAFETY: struct statvfs is plain numbers; zeros are valid.
        *out = unsafe { std::mem::zeroed() };
        (out.f_bsize, out.f_frsize, out.f_blocks, out.f_bfree, out.f_bavail) =
            (room.f_bsize, room.f_frsize, room.f_blocks, room.f_bfree, room.f_bavail);
        (out.f_files, out.f_ffree, out.f_favail, out.f_fsid, out.f_namemax) =
            (room.f_files, room.f_ffree, room.f_favail, room.f_fsid, room.f_namemax);
        Ok(0)
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(path, fill) }
}
