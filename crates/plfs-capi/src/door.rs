//! System calls on any file, where PLFS files are recognised (preload/, mpi/)

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libc::{gid_t, mode_t, uid_t};
use plfs_core::config::managed_dirs as managed_dirs_of_process;
use plfs_core::store::{
    BEHIND_STANDARD, Errno, Kind, Links, Open, PosixFile, PosixStore, Stat, StoreFile, Time,
};
use plfs_core::{File, NameFile, OpenOptions, SUPERBLOCK_BYTES};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::DupFlags;

use crate::attributes::BLOCK_BYTES;
use crate::handle::{PlfsFile, access_of, handle, offset_arg};
use crate::io::seek;
use crate::{Failure, Result, absolute, borrow, call, link_of, path_arg, plfs};

/// Flags that are set on the placeholder, where F_GETFL and F_GETFD read them.
const KEPT: c_int = libc::O_CLOEXEC | libc::O_APPEND | libc::O_NONBLOCK;

/// Longest path looked at, with its directory. The kernel refuses paths of half of it (PATH_MAX is
/// 4,096).
const PATH_ROOM: usize = 8192;

/// A normal absolute path under construction, without a slash at the end; empty for the root. On
/// the stack, as signal handlers may open files.
struct Normal {
    /// The first `len` are written. Not cleared, as every open and stat of a program comes here.
    bytes: [MaybeUninit<u8>; PATH_ROOM],
    len: usize,
}

impl Normal {
    const fn root() -> Normal {
        Normal { bytes: [const { MaybeUninit::uninit() }; PATH_ROOM], len: 0 }
    }

    /// Follows `path` by its text: `.` and empty parts vanish, `..` takes the last part away. False
    /// if there is no room.
    fn follow(&mut self, path: &[u8]) -> bool {
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    self.len = self.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0)
                }
                _ if self.len + 1 + part.len() > PATH_ROOM => return false,
                _ => {
                    for (at, byte) in
                        self.bytes[self.len..].iter_mut().zip([b'/'].iter().chain(part))
                    {
                        at.write(*byte);
                    }
                    self.len += 1 + part.len();
                }
            }
        }
        true
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `follow` has written the first `len`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }
}

/// The managed directories, as normal paths. Read from the environment, or plfsrc if that names
/// none, and not from [`plfs`], which a process that only asks here should not have to set up.
fn managed_dirs() -> &'static [Vec<u8>] {
    static MANAGED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    MANAGED.get_or_init(|| {
        let paths = managed_dirs_of_process();
        let normal = |path: &PathBuf| {
            let mut normal = Normal::root();
            // A relative path would change its meaning with the current directory.
            (path.is_absolute() && normal.follow(path.as_os_str().as_bytes()))
                .then(|| normal.as_bytes().to_vec())
        };
        paths.iter().filter_map(normal).collect()
    })
}

/// 1 if `path`, taken from `dirfd` (AT_FDCWD included) if it is relative, is a managed directory or
/// lies below one (PLFS_MOUNTS), by its text; else 0. Opens and allocates nothing after
/// the first call: safe in signal handlers.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_below_managed(dirfd: c_int, path: *const c_char) -> c_int {
    let managed = managed_dirs();
    // SAFETY: the caller's promise.
    if managed.is_empty() || path.is_null() || unsafe { *path } == 0 {
        return 0;
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut full = Normal::root();
    if path[0] != b'/' {
        let mut dir = [0u8; PATH_ROOM / 2];
        let len = if dirfd == libc::AT_FDCWD {
            // SAFETY: the buffer has that room.
            let known = unsafe { libc::getcwd(dir.as_mut_ptr().cast(), dir.len()) };
            if known.is_null() {
                return 0;
            }
            dir.iter().position(|byte| *byte == 0).unwrap_or(0)
        } else {
            match link_into(dirfd, &mut dir) {
                Some(len) => len,
                None => return 0,
            }
        };
        if dir[0] != b'/' || !full.follow(&dir[..len]) {
            return 0;
        }
    }
    if !full.follow(path) {
        return 0;
    }
    let below = |dir: &Vec<u8>| {
        full.as_bytes()
            .strip_prefix(dir.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    c_int::from(managed.iter().any(below))
}

/// The path of an open descriptor, without allocating.
fn link_into(fd: c_int, dir: &mut [u8]) -> Option<usize> {
    let mut name = [0u8; 32];
    let rest = {
        let mut room = &mut name[..];
        write!(room, "/proc/self/fd/{fd}").ok()?;
        room.len()
    };
    let used = name.len() - rest;
    let name = CStr::from_bytes_until_nul(&name[..used + 1]).ok()?;
    rustix::fs::readlinkat_raw(rustix::fs::CWD, name, dir).ok()
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
        let stat = rustix::fs::statat(dir, path, AtFlags::empty())?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_size != SUPERBLOCK_BYTES as i64 {
            return Ok(0);
        }
        // A damaged superblock counts as well: opened as a plain file, it would be overwritten.
        Ok(i64::from(!matches!(plfs()?.is_logical(&absolute(dirfd, path)?), Ok(false))))
    }) as c_int
}

/// Opens `path` as openat(2), except that a regular file that it creates is a PLFS file. Gives a
/// descriptor, which is the caller's.
///
/// `*out` is NULL for anything but a PLFS file: the descriptor was opened with exactly `flags`.
/// Else `*out` is a handle and the descriptor a placeholder: open for reading on the superblock, it
/// holds the number and answers stat, locks and F_GETFL; close both.
///
/// # Safety
/// `path` is a C string, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_open(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    out: *mut *mut PlfsFile,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { out.as_mut() }
            .ok_or_else(|| Failure::new(Errno::FAULT, "the place for the handle is NULL"))?;
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
        if flags & (libc::O_PATH | libc::O_DIRECTORY) != 0
            || flags & libc::O_TMPFILE == libc::O_TMPFILE
        {
            return Ok(native(flags)?.into_raw_fd() as i64);
        }
        let (create, exclusive) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
        loop {
            if !(create && exclusive) {
                // Without O_TRUNC: it may be a superblock.
                match native(flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC)) {
                    Ok(fd) => return existing(fd, dirfd, path, flags, &native, out),
                    Err(Errno::NOENT) if create => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                return Ok(native(flags)?.into_raw_fd() as i64);
            }
            let at = absolute(dirfd, path)?;
            let options = OpenOptions {
                access: access_of(flags),
                create,
                exclusive,
                truncate: false,
                mode: mode & 0o7777,
            };
            match plfs()?.create_with_name(&at, options) {
                Ok(file) => return created(file, flags, out),
                Err(error) if error.errno() == Errno::EXIST && !exclusive => {
                    let is_link = rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK);
                    if is_link && flags & libc::O_NOFOLLOW == 0 {
                        // A dangling link: its target is to be created.
                        let target = at
                            .parent()
                            .unwrap_or(Path::new("/"))
                            .join(plfs()?.store().readlink(&at)?);
                        if plfs()?.is_mounted(&target) {
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
                Err(error) => return Err(error.into()),
            }
        }
    }) as c_int
}

fn existing(
    fd: OwnedFd,
    dirfd: c_int,
    path: &Path,
    flags: c_int,
    native: &dyn Fn(c_int) -> std::result::Result<OwnedFd, Errno>,
    out: &mut *mut PlfsFile,
) -> Result<i64> {
    // A PosixFile is closed when it is dropped, by system call and not through libc; only the last
    // return gives it away.
    let opened = PosixFile::from_fd(fd);
    let stat = opened.stat()?;
    let (regular, access, truncate) =
        (stat.kind == Kind::File, access_of(flags), flags & libc::O_TRUNC != 0);
    if regular && stat.len == SUPERBLOCK_BYTES as u64 {
        // A superblock cannot be read through O_DIRECT either, which needs an aligned buffer.
        let placeholder = match access.write || flags & libc::O_DIRECT != 0 {
            true => reopen(opened.as_fd(), flags).map(PosixFile::from_fd).ok(),
            false => None,
        };
        let name = placeholder.as_ref().unwrap_or(&opened);
        if let Some(file) =
            plfs()?.adopt_known(name, NameFile::Stays, &absolute(dirfd, path)?, &stat, access)?
        {
            if truncate && access.write {
                file.set_len(0)?;
            }
            *out = PlfsFile::new(file, flags & libc::O_APPEND != 0);
            let mut fd = opened.into_fd();
            if let Some(placeholder) = placeholder {
                // The placeholder, which is read-only, takes the number of the first open: the
                // lowest free one, as open(2) promises.
                let close = if flags & libc::O_CLOEXEC != 0 {
                    DupFlags::CLOEXEC
                } else {
                    DupFlags::empty()
                };
                rustix::io::dup3(&placeholder, &mut fd, close)?;
            }
            return Ok(fd.into_raw_fd() as i64);
        }
    }
    if truncate && regular {
        match access.write {
            true => opened.set_len(0)?,
            false => {
                drop(opened);
                return Ok(native(flags & !libc::O_CREAT)?.into_raw_fd() as i64);
            }
        }
    }
    Ok(opened.into_fd().into_raw_fd() as i64)
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
            let dir = file.container().store.open(&file.container().dir, Open::READ)?;
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
        let stat = rustix::fs::fstat(of)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_size != SUPERBLOCK_BYTES as i64 {
            return Ok(0);
        }
        // An inherited descriptor may be of a file that this user could not open; one that cannot
        // read, or only into aligned buffers, must be opened again.
        let can_read = rustix::fs::fcntl_getfl(of).is_ok_and(|how| {
            how & OFlags::ACCMODE != OFlags::WRONLY && !how.contains(OFlags::DIRECT)
        });
        let reader = match can_read {
            true => rustix::io::fcntl_dupfd_cloexec(of, BEHIND_STANDARD)?,
            false => rustix::fs::open(
                format!("/proc/self/fd/{fd}"),
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?,
        };
        match plfs()?.adopt(&PosixFile::from_fd(reader), &link_of(fd)?, access_of(flags))? {
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
        if st.st_mode & libc::S_IFMT != libc::S_IFREG || st.st_size != SUPERBLOCK_BYTES as i64 {
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
        let (path, dir) = unsafe { (path_arg(path)?, borrow(dirfd)?) };
        let plfs = plfs()?;
        let container =
            plfs.container_to_change(&absolute(dirfd, path)?, Links::Stay).unwrap_or(None);
        rustix::fs::unlinkat(dir, path, AtFlags::empty())?;
        plfs.drop_container(container)?;
        Ok(0)
    }) as c_int
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
        Ok(0)
    }) as c_int
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
        Ok(plfs()?.truncate(&absolute(libc::AT_FDCWD, path)?, offset_arg(size)?).map(|()| 0)?)
    }) as c_int
}

fn links_of(at_flags: c_int) -> Links {
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
        let at = absolute(dirfd, unsafe { path_arg(path) }?)?;
        plfs()?.chown(&at, some(uid), some(gid), links_of(at_flags))?;
        Ok(0)
    }) as c_int
}

/// 1 if the descriptor number is one of PLFS's own, which a program must not close or replace.
/// Cheap; safe in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn plfs_door_owns_fd(fd: c_int) -> c_int {
    c_int::from(PosixStore::owns_fd(fd))
}

/// 1 for directory entries that programs should not see.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plfs_door_hidden(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { path_arg(name) }.is_ok_and(|name| plfs_core::is_hidden(name.as_os_str())))
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
