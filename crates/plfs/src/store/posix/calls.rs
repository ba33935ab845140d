//! System calls in our words: what opens a file so, what a stat says, which names a directory has.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, OFlags, RawDir, Timespec, UTIME_OMIT};

use crate::store::{Entry, Errno, Kind, Open, Result, Stat, Time};

/// Room for directory entries per system call, as glibc's readdir takes.
const LIST_BUFFER_BYTES: usize = 32 * 1024;
/// The same for the first two calls: who looks at a few hundred names of ten thousand does not wait
/// for 900. On tmpfs 1,000 names take 0.2 ms, on ext4 0.5.
const FIRST_LIST_BUFFER_BYTES: usize = 8 * 1024;

/// Calls `open` with the flags and the mode that open a file so.
pub(super) fn open_fd(
    how: Open,
    open: impl Fn(OFlags, Mode) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let mut flags = OFlags::NOCTTY;
    flags |= match (how.read, how.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    if how.create {
        flags |= OFlags::CREATE;
        if how.exclusive {
            flags |= OFlags::EXCL;
        }
    }
    if !how.write && !how.create {
        // Looking at a superblock or a log is not the program's reading. Only a file's owner may
        // leave its access time alone.
        match open(flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => {}
            other => return other,
        }
    }
    open(flags, if how.create { mode_bits(how.mode) } else { Mode::empty() })
}

pub(super) fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

/// What the system says of a file, in our form: for doors that have asked it by themselves.
// The types of the fields differ from architecture to architecture.
#[allow(clippy::unnecessary_cast)]
pub fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    let time = |sec, nsec| Time { sec, nsec };
    Stat {
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        mode: stat.st_mode as u32 & 0o7777,
        nlink: stat.st_nlink as u64,
        uid: stat.st_uid,
        gid: stat.st_gid,
        len: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime as i64, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
    }
}

pub(super) fn timespec(time: Option<Time>) -> Result<Timespec> {
    match time {
        // The kernel takes some numbers above this range as commands.
        Some(time) if time.nsec > 999_999_999 => Err(Errno::INVAL),
        Some(time) => Ok(Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() }),
        None => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
    }
}

pub(in crate::store) fn visit_fd(
    dir: BorrowedFd<'_>,
    visit: &mut dyn FnMut(&Entry) -> ControlFlow<()>,
) -> Result<()> {
    let mut buffer = Vec::with_capacity(LIST_BUFFER_BYTES);
    for calls in [1, 1, usize::MAX] {
        let room = buffer.spare_capacity_mut();
        let room = if calls == 1 { &mut room[..FIRST_LIST_BUFFER_BYTES] } else { room };
        let mut entries = RawDir::new(dir, room);
        let mut called = 0;
        while called < calls || !entries.is_buffer_empty() {
            called += usize::from(entries.is_buffer_empty());
            let entry = match entries.next() {
                None => return Ok(()),
                Some(Err(Errno::INTR)) => continue,
                Some(entry) => entry?,
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                kind => Some(kind_of(kind)),
            };
            let (name, ino) = (OsStr::from_bytes(name).to_owned(), entry.ino());
            if visit(&Entry { name, kind, ino }).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
