//! Calls on names of any file, where PLFS files are recognised (preload/, mpi/)

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::{gid_t, mode_t, uid_t};
use plfs_core::pack::PackStat;
use plfs_core::store::{
    Errno, Kind, Links, OpenDir, Passing, PosixFile, Stat, StoreFile, fd_path, stat_of,
};
use plfs_core::{Ending, OpenOptions, SUPERBLOCK_BEGINS, SUPERBLOCK_BYTES};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};

use crate::attributes::{BLOCK_BYTES, taken_stat};
use crate::flat;
use crate::managed::{managed_path, plfs_door_fd_below_managed};
use crate::packed::{must_not_be_in_file, must_not_lead_through_file};
use crate::path::{
    may_change_names, may_chown, may_rename, must_be_no_dir, must_own, packed_if, refused_dir,
    truncate,
};
use crate::{
    Failure, Result, absolute, borrow, call, has_parent, here, link_of, path_arg, plfs,
    plfs_if_there,
};

/// What [`plfs_door_unlink_managed`] says of other paths: no negative errno.
pub const PLFS_NOT_MANAGED: c_int = -5000;

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
        let stat = taken_stat(st);
        // SAFETY: the caller's promise.
        let fixed = if path.is_null() || unsafe { *path } == 0 {
            plfs()?.resolve_via(Path::new(&fd_path(dirfd)), &link_of(dirfd)?, stat)?
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
        let is_in_dir = dirfd >= 0 && !path.as_os_str().as_bytes().contains(&b'/');
        return Ok(plfs.unlink_at(is_in_dir.then(|| OpenDir::of(dir)), at).map(|()| 0)?);
    }
    if plfs.is_changing(at)? {
        must_be_no_dir(path)?;
        return Ok(plfs.unlink(at).map(|()| 0)?);
    }
    let container = plfs.container_to_remove(at);
    match rustix::fs::unlinkat(dir, path, AtFlags::empty()) {
        // It was packed at this moment.
        Err(Errno::NOENT) if plfs.packed_stat(at)?.is_some() => {
            return Ok(plfs.unlink(at).map(|()| 0)?);
        }
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
            let (from, to) = (flat_from.map_or(from, Cow::Owned), flat_to.map_or(to, Cow::Owned));
            return flat::rename((&from, old), (&to, new), flags);
        }
        let (source, target) = (plfs()?.packed_stat(&from)?, plfs()?.packed_stat(&to)?);
        if plfs()?.knows_packs() {
            must_not_be_in_file(&from)?;
            must_not_be_in_file(&to)?;
        }
        let is_one = source.is_some() || target.is_some();
        if source.is_some() {
            must_be_no_dir(old)?;
        }
        if is_one {
            must_be_no_dir(new)?;
        }
        if is_one || plfs()?.is_changing(&from)? || plfs()?.is_changing(&to)? {
            return rename_packed((&from, source), (&to, target), flags);
        }
        if !comes_along(&from, &to)? || exchanges(flags) && !comes_along(&to, &from)? {
            return Err(Errno::XDEV.into());
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
        match plfs()?.rename_with(&from, &to, rename) {
            // It was packed at this moment.
            Err(error)
                if error.errno() == Errno::NOENT && plfs()?.packed_stat(&from)?.is_some() =>
            {
                let packed = |path: &Path| plfs()?.packed_stat(path).map_err(Failure::from);
                return rename_packed((&from, packed(&from)?), (&to, packed(&to)?), flags);
            }
            Err(error) if error.errno() == Errno::NOENT => {
                must_not_lead_through_file(&from)?;
                must_not_lead_through_file(&to)?;
                return Err(error.into());
            }
            other => other?,
        }
        plfs()?.was_renamed(&from, &to);
        Ok(0)
    }) as c_int
}

fn exchanges(flags: c_uint) -> bool {
    RenameFlags::from_bits_retain(flags).contains(RenameFlags::EXCHANGE)
}

/// Whether what is named `from` keeps its data as `to`. A container stays in its root: outside of
/// the managed directory its name is a superblock for who comes without PLFS, and lost when that
/// directory is removed. Who renames copies then, as between file systems. Costs nothing within a
/// managed directory; of a directory that leaves one a look at each file with a superblock's length
/// or several links in it.
fn comes_along(from: &Path, to: &Path) -> Result<bool> {
    let plfs = plfs()?;
    let leaves =
        |mount: &PathBuf| from != mount && from.starts_with(mount) && !to.starts_with(mount);
    Ok(!plfs.config().mounts.iter().any(leaves) || !plfs.leaves_data(from)?)
}

/// A file has come to `path`, in a managed directory, from outside: by rename(2) or link(2). Who
/// opened it there, or opens it by the name that it keeps there, is not known; if there may be such
/// a one the file stays plain. Not those that lie below a directory that comes.
///
/// A look at each descriptor of the process, an open and a lease.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_came_in(dirfd: c_int, path: *const c_char) -> c_int {
    const WHY: &str = "open when it came into the directory";
    call(|| {
        // SAFETY: the caller's promises.
        let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
        let _passing = Passing::new();
        let stat = stat_of(&rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)?);
        // A superblock has no use for it.
        if stat.kind != Kind::File || stat.len == SUPERBLOCK_BYTES as u64 {
            return Ok(0);
        }
        let (file, is_own) = own_or_opened(&stat, dir, path, OFlags::NOFOLLOW)?;
        if is_own || stat.nlink > 1 || file.is_open_elsewhere() {
            plfs()?.pin(&file, WHY);
        }
        Ok(0)
    }) as c_int
}

/// The file at `path`, in a managed directory, is about to get a name outside: by link(2), or with
/// `moves` by rename(2), after which it has no other. Who opens it by that is not known. So it
/// stays plain, or is a container before it has the name: one that somebody is making at this
/// moment would get what is written by descriptors from before, and who opened the new name
/// meanwhile would have what is in place. A file that moves and that nobody has open is left alone.
///
/// An open, a look at each descriptor of the process, and a call on the attribute or a lease.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_goes_out(
    dirfd: c_int,
    path: *const c_char,
    at_flags: c_int,
    moves: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promises.
        let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
        let _passing = Passing::new();
        // One whose close drops no locks.
        let named = match at_flags & libc::AT_EMPTY_PATH {
            0 => {
                let links = match at_flags & libc::AT_SYMLINK_FOLLOW {
                    0 => OFlags::NOFOLLOW,
                    _ => OFlags::empty(),
                };
                rustix::fs::openat(
                    dir,
                    path,
                    OFlags::PATH | OFlags::CLOEXEC | links,
                    Mode::empty(),
                )?
            }
            _ => rustix::io::fcntl_dupfd_cloexec(dir, 0)?,
        };
        let stat = stat_of(&rustix::fs::fstat(&named)?);
        let number = named.as_raw_fd();
        if stat.kind != Kind::File
            || stat.len == SUPERBLOCK_BYTES as u64
            || plfs_door_fd_below_managed(number) != 1
        {
            return Ok(0);
        }
        let opened_at = fd_path(number);
        let (file, is_own) =
            own_or_opened(&stat, rustix::fs::CWD, Path::new(&opened_at), OFlags::empty())?;
        if moves != 0 && !is_own && !file.is_open_elsewhere() {
            return Ok(0);
        }
        let opened =
            plfs()?.opened_plain(Arc::new(file), &stat, &link_of(number)?, OpenOptions::read())?;
        opened.file().pin("it has a name outside of the directory")?;
        Ok(0)
    }) as c_int
}

/// The file with that stat, by a descriptor of the process if there is one, else opened at `path`;
/// and whether it is the process's. To open and close a file that the process has open would drop
/// its record locks.
fn own_or_opened(
    stat: &Stat,
    dir: BorrowedFd<'_>,
    path: &Path,
    links: OFlags,
) -> Result<(PosixFile, bool)> {
    if let Some(number) = open_here(stat)? {
        // SAFETY: nobody closes it here.
        return Ok((unsafe { PosixFile::lent(number) }, true));
    }
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | links;
    Ok((PosixFile::from_fd(rustix::fs::openat(dir, path, how, Mode::empty())?), false))
}

/// A descriptor of this process on the file with that stat.
fn open_here(stat: &Stat) -> Result<Option<c_int>> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let all = rustix::fs::open("/proc/self/fd", how, Mode::empty())?;
    for entry in Dir::read_from(&all)? {
        let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // SAFETY: it is used for a stat only, and may be gone.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let is_it = rustix::fs::fstat(fd)
            .is_ok_and(|found| found.st_ino == stat.ino && found.st_dev == stat.dev);
        if is_it && !rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::PATH)) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Renames where a pack has one of the names.
fn rename_packed(
    (from, source): (&Path, Option<PackStat>),
    (to, target): (&Path, Option<PackStat>),
    flags: c_uint,
) -> Result<i64> {
    let flags = RenameFlags::from_bits_retain(flags);
    if flags.contains(RenameFlags::NOREPLACE) {
        let is_ordinary = || plfs().is_ok_and(|plfs| plfs.store().stat(to, Links::Stay).is_ok());
        if target.is_some() || is_ordinary() {
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
        let at = flat::settled(&at, is_moved)?.map_or(at, Cow::Owned);
        let done = match Ending::of(path) {
            Ending::Name => truncate(&at, size),
            _ => refused_dir(&at, Errno::ISDIR),
        };
        match done {
            Err(failure) if failure.errno == Errno::NOENT => {
                must_not_lead_through_file(&at)?;
                Err(failure)
            }
            other => other,
        }
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
            None => {
                let flags = AtFlags::from_bits_retain(at_flags as u32);
                rustix::fs::chmodat(dir, path, Mode::from_raw_mode(mode), flags)?;
                plfs.inode_has_changed(&at, links_of(at_flags))?;
            }
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
        let at = flat::settled(&at, flat::is_moved(dirfd, path)?)?.map_or(at, Cow::Owned);
        let (links, uid, gid) = (links_of(at_flags), some(uid), some(gid));
        let packed = packed_if(&at, links, |stat| may_chown(stat, uid, gid))?;
        plfs()?.chown(&packed.map_or(at, Cow::Owned), uid, gid, links)?;
        Ok(0)
    }) as c_int
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

/// The first eight bytes of a superblock file, `PLFS con`, as a little-endian number.
pub const PLFS_SUPER_BEGINS: u64 = 0x6e6f_6320_5346_4c50;

const _: () = assert!(PLFS_SUPER_BEGINS == u64::from_le_bytes(SUPERBLOCK_BEGINS));
