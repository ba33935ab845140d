//! The real file system, through system calls of rustix alone.
//!
//! The preload shim puts itself between a program and libc, so nothing here may go through libc's
//! file calls: PLFS would call itself. That covers closing, too: dropping an [`OwnedFd`] calls
//! libc's close, therefore every descriptor of this module is closed by [`rustix::io::close`], a
//! bare system call.
//!
//! Descriptors that PLFS keeps for itself stay out of the low numbers, which programs expect to get
//! from their own open calls (and which some close in bulk or replace by dup2). They are recorded,
//! so that the shim can tell them from the program's ([`owns_fd`]) without a lock. Descriptors that
//! are meant for the program ([`PosixFile::open`], [`PosixFile::from_fd`]) keep the number they
//! have and are not recorded.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use rustix::fs::{
    Advice, AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, SeekFrom,
    StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use rustix::io::{DupFlags, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

use super::beneath::{Dir, Inside, Kept, READ_DIR, Spot, beneath, chmod};
use super::file_cache::{with_room, with_room_to_keep};
use super::machine;
use super::{
    Bytes, Entry, Errno, Keep, Kind, Links, LockKind, Open, Place, Result, Space, Stat, Store,
    StoreFile, Time,
};
use crate::sync::plain::atomic::{AtomicU64, Ordering};
use crate::sync::plain::{Mutex, lock};
use crate::sync::{Arc, OnceLock};

/// Descriptor numbers that can be recorded: twice the highest base, so that 65,536 descriptors fit
/// above it.
const RECORDED_FDS: usize = 131_072;

/// The highest number above which PLFS moves its descriptors. Linux gives 1,048,576 as the usual
/// hard limit of open files, so there is room above it for both.
const BASE_MAX: u64 = 65_536;

/// The lowest such number: with fewer than 128 descriptors allowed, keeping clear of a program's
/// first 64 is still possible.
const BASE_MIN: u64 = 64;

/// Room for directory entries per system call, as glibc's readdir takes.
const LIST_BUFFER_BYTES: usize = 32 * 1024;
/// The same for the first two calls: who looks at a few hundred names of ten thousand does not wait
/// for 900. On tmpfs 1,000 names take 0.2 ms, on ext4 0.5.
const FIRST_LIST_BUFFER_BYTES: usize = 8 * 1024;

/// The first number that is not standard input, output or error. A program that has closed one of
/// those and prints there all the same must not write into a file of ours.
pub const BEHIND_STANDARD: RawFd = 3;

/// One bit per descriptor number, set while the descriptor is PLFS's own.
static OWN: [AtomicU64; RECORDED_FDS / 64] = [const { AtomicU64::new(0) }; RECORDED_FDS / 64];

fn bit_of(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OWN.get(fd / 64)?, 1 << (fd % 64)))
}

/// True if the descriptor number `fd` is PLFS's own and none of the program's business. Takes no
/// lock and makes no system call; safe in signal handlers and after fork.
pub fn owns_fd(fd: RawFd) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

static BASE: OnceLock<RawFd> = OnceLock::new();

/// The number from which PLFS's own descriptors start: half of the soft limit of open files, within
/// [`BASE_MIN`] and [`BASE_MAX`].
fn base_fd() -> RawFd {
    // A limit that changes later moves later descriptors of a process that asks again: too rare to
    // pay for at each open.
    *BASE.get_or_init(ask_base_fd)
}

fn ask_base_fd() -> RawFd {
    (soft_limit() / 2).clamp(BASE_MIN, BASE_MAX) as RawFd
}

/// How many files this process may have open, as it was when it was asked first.
pub(super) fn soft_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// A descriptor that is closed by a system call of our own rather than libc's close.
#[derive(Debug)]
pub(super) struct BareFd(ManuallyDrop<OwnedFd>);

impl BareFd {
    pub(super) fn new(fd: OwnedFd) -> BareFd {
        BareFd(ManuallyDrop::new(fd))
    }

    pub(super) fn into_owned(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the descriptor has one owner as before.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl AsFd for BareFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for BareFd {
    fn drop(&mut self) {
        // SAFETY: this is the drop of the value that holds the descriptor; nothing uses it
        // afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: into_raw_fd gave up the descriptor, so this is its only close.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

/// A descriptor that PLFS keeps for itself: out of the program's low numbers where the limit
/// allows, and known to [`owns_fd`].
#[derive(Debug)]
pub struct HighFd(BareFd);

impl HighFd {
    /// Takes `fd` over, moves it up and records it. If there is no room above the base, it keeps
    /// its number, or takes the first behind standard error.
    pub fn new(fd: OwnedFd) -> HighFd {
        if fd.as_raw_fd() >= base_fd() {
            return HighFd::recorded(fd);
        }
        let low = BareFd::new(fd);
        match HighFd::new_number(low.as_fd()) {
            Some(high) => HighFd::recorded(high),
            None if low.as_fd().as_raw_fd() >= BEHIND_STANDARD => {
                HighFd::recorded(low.into_owned())
            }
            // Without any number left it has to stay where it is.
            None => HighFd::recorded(
                rustix::io::fcntl_dupfd_cloexec(&low, BEHIND_STANDARD)
                    .unwrap_or_else(|_| low.into_owned()),
            ),
        }
    }

    /// Another number above the base. `None` if there is no room: the limit is below the base
    /// (EINVAL), or all numbers above it are taken (EMFILE); then a low one serves.
    fn new_number(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
        let high = BareFd::new(rustix::io::fcntl_dupfd_cloexec(fd, base_fd()).ok()?);
        // A number too high to be recorded is worse than a low one.
        bit_of(high.as_fd().as_raw_fd()).map(|_| high.into_owned())
    }

    fn recorded(fd: OwnedFd) -> HighFd {
        let fd = BareFd::new(fd);
        if let Some((word, bit)) = bit_of(fd.as_fd().as_raw_fd()) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        HighFd(fd)
    }

    /// Another number for what is open as `fd`.
    pub fn copy_of(fd: BorrowedFd<'_>) -> Result<HighFd> {
        HighFd::new_number(fd)
            .map_or_else(|| rustix::io::fcntl_dupfd_cloexec(fd, BEHIND_STANDARD), Ok)
            .map(HighFd::recorded)
    }

    /// Puts what is open as `other` in the place of what was open under this number, which is
    /// closed at that. Calls of other threads find the one or the other.
    pub(super) fn replace(&self, other: BareFd) -> Result<()> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: the number is open as long as self, whose it is. The value is never dropped, so
        // it does not close it.
        let mut this = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        retry_on_intr(|| rustix::io::dup3(&other, &mut this, DupFlags::CLOEXEC))
    }

    fn forget_number(&self) {
        if let Some((word, bit)) = bit_of(self.0.as_fd().as_raw_fd()) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    fn into_owned(self) -> OwnedFd {
        self.forget_number();
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the BareFd read out of it is the only
        // one.
        unsafe { std::ptr::read(&this.0) }.into_owned()
    }
}

impl AsFd for HighFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for HighFd {
    fn drop(&mut self) {
        // Before the close, which follows in BareFd: from then on the kernel may give the number to
        // another thread.
        self.forget_number();
    }
}

/// The file system of this machine.
#[derive(Clone, Debug, Default)]
pub struct PosixStore {
    /// See [`Store::inside`].
    inside: Option<Arc<Inside>>,
    walk: bool,
}

impl PosixStore {
    /// The one there is.
    pub const fn new() -> PosixStore {
        PosixStore { inside: None, walk: false }
    }

    /// The same, as on a kernel without openat2(2), or in a sandbox that refuses it.
    pub const fn without_openat2() -> PosixStore {
        PosixStore { inside: None, walk: true }
    }

    /// [`Store::inside`] for who has roots of the places open.
    pub fn inside_of(
        &self,
        places: Vec<Place>,
        roots: Vec<Option<Kept>>,
        keep: Keep,
    ) -> PosixStore {
        match &self.inside {
            Some(inside) if inside.is(&places, keep) => self.clone(),
            Some(inside) if keep.is_to_stay() => {
                let inside = inside.kept(places, roots, keep);
                PosixStore { inside: Some(Arc::new(inside)), walk: self.walk }
            }
            _ => PosixStore {
                inside: Some(Arc::new(Inside::new(places, roots, keep, self.walk))),
                walk: self.walk,
            },
        }
    }

    /// Opens `path` below the directory `base`, following no symbolic link: a link is ELOOP. The
    /// descriptor has the lowest free number.
    pub fn open_beneath(
        &self,
        base: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        beneath(base, path, flags, Mode::empty(), self.walk)
    }

    /// Where `path` lies in a place in which links are not followed.
    fn spot<'a>(&'a self, path: &'a Path) -> Option<Spot<'a>> {
        self.inside.as_ref()?.find(path)
    }

    fn open_fd(&self, path: &Path, how: Open) -> Result<OwnedFd> {
        open_fd(how, |flags, mode| self.open_at(path, flags, mode))
    }

    /// Opens a file or directory.
    fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        match self.spot(path) {
            Some(spot) => spot.open(flags, mode),
            None => with_room_to_keep(|| {
                retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, mode))
            }),
        }
    }

    /// For programs that know PLFS, as its command and its daemon do: descriptors keep the numbers
    /// they get, which spares two system calls at each open. To be called before the first.
    pub fn keep_fd_numbers() {
        let _ = BASE.set(0);
    }

    /// True if the descriptor number `fd` is PLFS's own, rather than one of the program's. Takes no
    /// lock and makes no system call.
    pub fn owns_fd(fd: RawFd) -> bool {
        owns_fd(fd)
    }
}

#[derive(Debug)]
enum Fd {
    Own(HighFd),
    /// Of the program, or open for a moment.
    Brief(BareFd),
}

/// An open file of a [`PosixStore`].
#[derive(Debug)]
pub struct PosixFile(Fd);

impl PosixFile {
    /// Opens a file for the program: the descriptor has the lowest free number, as POSIX promises,
    /// and PLFS does not claim it. [`Store::open`] is for files that PLFS keeps.
    pub fn open(path: &Path, how: Open) -> Result<PosixFile> {
        PosixStore::new().open_fd(path, how).map(PosixFile::from_fd)
    }

    /// Takes over a descriptor of the program. It keeps its number and PLFS does not claim it.
    pub fn from_fd(fd: OwnedFd) -> PosixFile {
        PosixFile(Fd::Brief(BareFd::new(fd)))
    }

    /// Gives the descriptor away; PLFS no longer claims it. Mind that dropping an [`OwnedFd`] calls
    /// libc's close.
    pub fn into_fd(self) -> OwnedFd {
        match self.0 {
            Fd::Own(fd) => fd.into_owned(),
            Fd::Brief(fd) => fd.into_owned(),
        }
    }
}

impl AsFd for PosixFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Fd::Own(fd) => fd.as_fd(),
            Fd::Brief(fd) => fd.as_fd(),
        }
    }
}

/// Calls `open` with the flags and the mode that open a file so.
fn open_fd(how: Open, open: impl Fn(OFlags, Mode) -> Result<OwnedFd>) -> Result<OwnedFd> {
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

/// Where a call that does not follow a last link looks `path` up: in which directory, by which
/// name.
fn parent<'a>(spot: &'a Option<Spot<'_>>, path: &'a Path) -> Result<(Dir<'a>, &'a Path)> {
    spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::parent)
}

fn mode_bits(mode: u32) -> Mode {
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

fn timespec(time: Option<Time>) -> Result<Timespec> {
    match time {
        // The kernel takes some numbers above this range as commands.
        Some(time) if time.nsec > 999_999_999 => Err(Errno::INVAL),
        Some(time) => Ok(Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() }),
        None => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
    }
}

pub(super) fn visit_fd(
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
            if visit(&Entry { name: OsStr::from_bytes(name).to_owned(), kind }).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Store for PosixStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let fd = self.open_fd(path, how)?;
        // What a thread of the program writes to a number that it believes to be its log, or that it
        // closed twice, must not go to a file of ours, nor what we write to one of the program's.
        Ok(Arc::new(PosixFile(match how.brief && !how.write {
            true => Fd::Brief(BareFd::new(fd)),
            false => Fd::Own(HighFd::new(fd)),
        })))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        let Some(spot) = self.spot(path) else {
            let flags = match links {
                Links::Follow => AtFlags::empty(),
                Links::Stay => AtFlags::SYMLINK_NOFOLLOW,
            };
            return retry_on_intr(|| rustix::fs::statat(CWD, path, flags))
                .map(|stat| stat_of(&stat));
        };
        let stat = if let Some(stat) = spot.found_before(links) {
            stat
        } else if spot.is_near() {
            let (dir, name) = match spot.at() {
                // A link where the directory should be that is to be kept.
                Err(Errno::LOOP) if links == Links::Stay => spot.parent(),
                other => other,
            }?;
            match name.as_os_str() == "." {
                true => retry_on_intr(|| rustix::fs::fstat(&dir))?,
                false => {
                    retry_on_intr(|| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW))?
                }
            }
        } else {
            let fd = BareFd::new(spot.open(OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?);
            let stat = retry_on_intr(|| rustix::fs::fstat(&fd))?;
            spot.note_found(&stat);
            stat
        };
        match stat_of(&stat) {
            // A directory that was removed lives on behind its descriptor.
            stat if stat.nlink == 0 && spot.is_kept() => Err(Errno::NOENT),
            stat if stat.kind == Kind::Symlink && links == Links::Follow => Err(Errno::LOOP),
            stat => Ok(stat),
        }
    }

    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.inside_of(places, Vec::new(), keep)))
    }

    fn again(&self, keep: Keep) -> Option<Arc<dyn Store>> {
        let inside = Some(Arc::new(self.inside.as_ref()?.again(keep)));
        Some(Arc::new(PosixStore { inside, walk: self.walk }))
    }

    fn hold(&self) -> Option<Result<Box<dyn Any + Send + Sync>>> {
        self.inside.as_ref()?.hold().map(|held| held.map(|held| Box::new(held) as _))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        self.visit(path, &mut |entry| {
            found.push(entry.clone());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn visit(&self, path: &Path, visit: &mut dyn FnMut(&Entry) -> ControlFlow<()>) -> Result<()> {
        visit_fd(BareFd::new(self.open_at(path, READ_DIR, Mode::empty())?).as_fd(), visit)
    }

    /// From one descriptor of the directory.
    fn unlink_files(&self, dir: &Path, but: &str) -> Result<Vec<Entry>> {
        let dir = BareFd::new(self.open_at(dir, READ_DIR, Mode::empty())?);
        let mut entries = Vec::new();
        visit_fd(dir.as_fd(), &mut |entry| {
            entries.push(entry.clone());
            ControlFlow::Continue(())
        })?;
        let mut failed = None;
        entries.retain(|entry| {
            let is_file = matches!(entry.kind, Some(Kind::File | Kind::Symlink));
            if entry.name == but || !is_file || failed.is_some() {
                return true;
            }
            let unlink = || rustix::fs::unlinkat(&dir, &entry.name, AtFlags::empty());
            match retry_on_intr(unlink) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => failed = Some(errno),
            }
            false
        });
        failed.map_or(Ok(entries), Err)
    }

    /// The kernel applies the umask, which belongs to the whole process and is not ours to change;
    /// bits it cut are put back by a chmod. Bits it added stay: a directory below one with the
    /// set-group-ID bit inherits it, as from mkdir(2).
    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::mkdirat(&dir, name, mode_bits(mode)))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::unlinkat(&dir, name, AtFlags::empty()))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from_spot, to_spot) = (self.spot(from), self.spot(to));
        let ((from_dir, from), (to_dir, to)) = (parent(&from_spot, from)?, parent(&to_spot, to)?);
        retry_on_intr(|| rustix::fs::renameat(&from_dir, from, &to_dir, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from_spot, to_spot) = (self.spot(from), self.spot(to));
        let ((from_dir, from), (to_dir, to)) = (parent(&from_spot, from)?, parent(&to_spot, to)?);
        retry_on_intr(|| rustix::fs::linkat(&from_dir, from, &to_dir, to, AtFlags::empty()))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::symlinkat(target, &dir, name))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        let text = retry_on_intr(|| rustix::fs::readlinkat(&dir, name, Vec::new()))?;
        Ok(OsString::from_vec(text.into_bytes()).into())
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        match self.spot(path) {
            Some(spot) => chmod(&spot, mode_bits(mode)),
            None => retry_on_intr(|| rustix::fs::chmod(path, mode_bits(mode))),
        }
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        // chown(2) takes the number -1 as "leave as it is", which is what None says.
        let uid = uid.filter(|&id| id != u32::MAX).map(Uid::from_raw);
        let gid = gid.filter(|&id| id != u32::MAX).map(Gid::from_raw);
        let spot = self.spot(path);
        if links == Links::Follow
            && spot.is_some()
            && self.stat(path, Links::Stay)?.kind == Kind::Symlink
        {
            return Err(Errno::LOOP);
        }
        let (dir, name) = spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::at)?;
        let flags = match links {
            Links::Follow if spot.is_none() => AtFlags::empty(),
            _ => AtFlags::SYMLINK_NOFOLLOW,
        };
        retry_on_intr(|| rustix::fs::chownat(&dir, name, uid, gid, flags))
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        if atime.is_none() && mtime.is_none() {
            // With nothing to set, utimensat(2) does not even look whether the path exists.
            return self.stat(path, Links::Follow).map(drop);
        }
        let times =
            Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
        let spot = self.spot(path);
        let (dir, name) = spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::at)?;
        let flags = if spot.is_some() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        retry_on_intr(|| rustix::fs::utimensat(&dir, name, &times, flags))
    }

    /// A file system that does not know fsync on directories (EINVAL) has nothing to offer here and
    /// counts as done.
    fn sync_dir(&self, path: &Path) -> Result<()> {
        let above = || self.inside.as_ref().and_then(|inside| inside.above(path, READ_DIR));
        let dir = match with_room(|| above().transpose())? {
            Some(dir) => BareFd::new(dir),
            None => BareFd::new(self.open_at(path, READ_DIR, Mode::empty())?),
        };
        match retry_on_intr(|| rustix::fs::fsync(&dir)) {
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = retry_on_intr(|| rustix::fs::statvfs(path))?;
        Ok(Space {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    /// Asks the nearest ancestor that exists. False if that cannot be asked.
    fn is_local(&self, path: &Path) -> bool {
        file_system(path).local
    }

    /// Asks the nearest ancestor that exists. `None` if that cannot be asked.
    fn close_to_open(&self, path: &Path) -> Option<String> {
        file_system(path).close_to_open
    }

    fn boot(&self, path: &Path) -> Option<u64> {
        (!file_system(path).volatile).then(machine::boot_id)
    }
}

/// What is asked of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileSystem {
    /// See [`Store::is_local`].
    local: bool,
    /// See [`Store::close_to_open`].
    close_to_open: Option<String>,
    /// It is in memory: see [`Store::boot`].
    volatile: bool,
}

fn file_system(path: &Path) -> FileSystem {
    // Asked for the same few roots again and again; on a network file system a statfs can wait for
    // other clients.
    static KNOWN: Mutex<BTreeMap<PathBuf, FileSystem>> = Mutex::new(BTreeMap::new());
    let mut known = lock(&KNOWN);
    if let Some(found) = known.get(path) {
        return found.clone();
    }
    let found = ask_file_system(path);
    if known.len() >= 1024 {
        known.clear();
    }
    known.insert(path.to_path_buf(), found.clone());
    found
}

fn ask_file_system(path: &Path) -> FileSystem {
    for path in path.ancestors() {
        let mount = mount_of(path);
        // The daemon of a FUSE file system would have to answer a statfs, which may ask servers in
        // turn: 5 to 10 ms on CephFS when several clients open at once.
        if let Some((kind, options)) = mount.as_ref().filter(|(kind, _)| is_fuse(kind)) {
            return of_type(kind, options);
        }
        // The magic numbers are 32 bits wide; the field is signed or not, wider or not, depending on
        // the architecture.
        let magic = retry_on_intr(|| rustix::fs::statfs(path)).map(|found| found.f_type as u32);
        if let Some(found) = of_answer(magic, mount.as_ref()) {
            return found;
        }
    }
    FileSystem::default()
}

/// By the answer of statfs(2), if there is a file system; by the table of mounts if a server does
/// not answer now: it is one all the same.
fn of_answer(magic: Result<u32>, mount: Option<&(String, String)>) -> Option<FileSystem> {
    match (magic, mount) {
        (Ok(magic), mount) => Some(of_magic(magic, mount)),
        (Err(Errno::NOENT | Errno::NOTDIR), _) => None,
        (Err(_), Some((kind, options))) => Some(of_type(kind, options)),
        (Err(_), None) => Some(FileSystem::default()),
    }
}

/// By `f_type` of statfs(2), and by type and options where they are known.
fn of_magic(magic: u32, mount: Option<&(String, String)>) -> FileSystem {
    if let Some(&(_, kind)) = LOCAL_MAGIC.iter().find(|&&(local, _)| local == magic) {
        let volatile = ["tmpfs", "ramfs"].contains(&kind);
        return FileSystem { local: true, close_to_open: None, volatile };
    }
    if let Some((kind, options)) = mount {
        return of_type(kind, options);
    }
    // Without /proc.
    let kind = CLOSE_TO_OPEN_MAGIC.iter().find(|&&(other, _)| other == magic);
    FileSystem { close_to_open: kind.map(|&(_, kind)| kind.to_string()), ..FileSystem::default() }
}

/// By type and options as the table of mounts has them, of file systems that are not local.
fn of_type(kind: &str, options: &str) -> FileSystem {
    let caches = match kind {
        // Without its option `cache` a 9p client keeps nothing.
        "9p" => options.split(',').any(|option| {
            option.strip_prefix("cache=").is_some_and(|how| !["none", "0"].contains(&how))
        }),
        _ if is_fuse(kind) => !COHERENT_FUSE.contains(&kind),
        _ => CLOSE_TO_OPEN.contains(&kind),
    };
    FileSystem { close_to_open: caches.then(|| kind.to_string()), ..FileSystem::default() }
}

/// Stands for the type of a file system on a block device: this machine is its only client, or it
/// is a cluster's (GFS2, OCFS2), which has locks for that. `fuseblk` is one, too.
const ON_A_DEVICE: &str = "a device";

/// Whether a daemon serves file systems of this type, and nothing else.
fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind.starts_with("fuse.")
}

/// Type and options of the file system at `path`, by the kernel's table of mounts, which asks
/// nobody else. [`ON_A_DEVICE`] for what has one. `None` if it cannot be told.
fn mount_of(path: &Path) -> Option<(String, String)> {
    let found = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID).ok()?;
    if found.stx_dev_major != 0 {
        return Some((ON_A_DEVICE.into(), String::new()));
    }
    // Linux before 5.8 does not know the number of the mount. One device is one file system.
    let id = (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id);
    let device = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
    let mounts = mounts()?;
    let (kind, options) = type_of_mount(&mounts, id, &device)?;
    Some((kind.to_string(), options.to_string()))
}

/// Type and options of mount `id`, or of one of `device`, by a text as of proc_pid_mountinfo(5).
fn type_of_mount<'a>(mounts: &'a str, id: Option<u64>, device: &str) -> Option<(&'a str, &'a str)> {
    let id = id.map(|id| id.to_string());
    // Blanks in paths are written `\040`.
    let line = mounts.lines().find(|line| match &id {
        Some(id) => line.split(' ').next() == Some(id),
        None => line.split(' ').nth(2) == Some(device),
    })?;
    let mut fields = line.split_once(" - ")?.1.split(' ');
    let kind = fields.next()?;
    Some((kind, fields.nth(1).unwrap_or_default()))
}

fn mounts() -> Option<String> {
    let file = PosixFile(Fd::Own(HighFd::new(
        PosixStore::new().open_fd(Path::new("/proc/self/mountinfo"), Open::READ).ok()?,
    )));
    let (mut text, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        match file.read_at(&mut text[filled..], filled as u64).ok()? {
            0 => break,
            n => filled += n,
        }
        if filled == text.len() {
            text.resize(2 * filled, 0);
        }
    }
    text.truncate(filled);
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// `f_type` of the file systems whose writes end in this machine's page cache. All others count as
/// remote: FUSE, Ceph, NFS, Lustre, GPFS, BeeGFS and what we do not know. Numbers from Linux
/// include/uapi/linux/magic.h unless another source is named.
const LOCAL_MAGIC: [(u32, &str); 8] = [
    (0x0102_1994, "tmpfs"), // TMPFS_MAGIC
    (0x8584_58f6, "ramfs"), // RAMFS_MAGIC
    (0x0000_ef53, "ext4"),  // EXT4_SUPER_MAGIC; ext2 and ext3 have the same
    (0x5846_5342, "XFS"),   // XFS_SUPER_MAGIC
    (0x9123_683e, "Btrfs"), // BTRFS_SUPER_MAGIC
    (0xf2f5_2010, "F2FS"),  // F2FS_SUPER_MAGIC
    (0x2fc1_2fc1, "ZFS"),   // ZFS_SUPER_MAGIC in OpenZFS include/sys/fs/zfs.h
    (0x794c_7630, "overlayfs"), /* OVERLAYFS_SUPER_MAGIC; containers of the docker kind lie on a
                             * local file system */
];

/// Types of file systems whose clients cache as [`Store::close_to_open`] says, by the kernel's
/// names. What serves a virtual machine from its host caches as its daemon was told.
const CLOSE_TO_OPEN: [&str; 13] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "openafs",
    "auristorfs",
    "coda",
    "ncpfs",
    "virtiofs",
    "vboxsf",
    "prl_fs",
];

/// The same by `f_type`, for when the table of mounts is not there. Numbers from Linux
/// include/uapi/linux/magic.h unless another source is named.
const CLOSE_TO_OPEN_MAGIC: [(u32, &str); 10] = [
    (0x0000_6969, "nfs"),    // NFS_SUPER_MAGIC
    (0x0000_517b, "smbfs"),  // SMB_SUPER_MAGIC
    (0xff53_4d42, "cifs"),   // CIFS_SUPER_MAGIC
    (0xfe53_4d42, "smb3"),   // SMB2_SUPER_MAGIC
    (0x5346_414f, "afs"),    // AFS_SUPER_MAGIC
    (0x6b41_4653, "afs"),    // AFS_FS_MAGIC
    (0x7375_7245, "coda"),   // CODA_SUPER_MAGIC
    (0x0102_1997, "9p"),     // V9FS_MAGIC; its options cannot be asked
    (0x786f_4256, "vboxsf"), // VBOXSF_SUPER_MAGIC
    (0x6573_5546, "fuse"),   // FUSE_SUPER_MAGIC; fuseblk is not, it has a device
];

/// FUSE file systems whose clients tell each other (docs/decisions/0014). Of all others nobody can
/// tell: the daemon decides how long the kernel believes what it has cached.
const COHERENT_FUSE: [&str; 4] = [
    "fuse.ceph-fuse",      // capabilities of CephFS
    "fuse.ceph",           // the same, mounted by mount.fuse.ceph
    "fuse.glusterfs",      // names and attributes are cached for a second
    "fuse.fuse-overlayfs", // the root of containers of an ordinary user: one client
];

impl StoreFile for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            // One read(2) gives at most 0x7ffff000 bytes, and a network file system may give less
            // than there is: only 0 means the end.
            match rustix::io::pread(
                self.as_fd(),
                &mut buf[done..],
                offset.saturating_add(done as u64),
            ) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        retry_on_intr(|| rustix::io::pwrite(self.as_fd(), buf, offset))
    }

    fn stat(&self) -> Result<Stat> {
        retry_on_intr(|| rustix::fs::fstat(self.as_fd())).map(|stat| stat_of(&stat))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(self.as_fd(), len))
    }

    fn flush(&self) -> Result<()> {
        // Each close of a descriptor of the open file does it.
        let copy = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), base_fd())
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(self.as_fd(), BEHIND_STANDARD))?;
        // SAFETY: into_raw_fd gave up the descriptor, so this is its only close.
        unsafe { rustix::io::try_close(copy.into_raw_fd()) }
    }
    fn sync_data(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fdatasync(self.as_fd()))
    }

    /// A lock of flock(2) on the whole file or directory. It belongs to this open file:
    ///
    /// * Two opens exclude each other within a process as they do between processes.
    /// * The kernel releases it when the last descriptor of this open closes, at the latest when
    ///   the process dies. A child made by fork shares the open file and so the lock: it lasts
    ///   until parent and child have both closed it. The descriptor is close-on-exec, so a program
    ///   started by exec does not keep it.
    /// * The kind of lock can be changed, but not atomically, and a failed attempt (Ok(false))
    ///   loses the lock held before.
    /// * The descriptor may be open for reading, writing or both. NFS alone wants one open for
    ///   writing for an exclusive lock on a file, else EBADF.
    ///
    /// File systems without such locks (ENOSYS, EOPNOTSUPP; Lustre without `-o flock`) answer
    /// Ok(true).
    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        let how = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| rustix::fs::flock(self.as_fd(), how)) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn locks_are_shared(&self) -> bool {
        let shared = FlockOperation::NonBlockingLockShared;
        let has_locks = match retry_on_intr(|| rustix::fs::flock(self.as_fd(), shared)) {
            Ok(()) => retry_on_intr(|| rustix::fs::flock(self.as_fd(), FlockOperation::Unlock)),
            Err(Errno::AGAIN) => Ok(()),
            other => other,
        };
        // Lustre with `localflock` locks among the processes of a machine only, and FUSE does where
        // its daemon has no locks, which nobody can ask. That of CephFS has.
        has_locks.is_ok()
            && retry_on_intr(|| rustix::fs::fstat(self.as_fd())).is_ok_and(|stat| {
                let (major, minor) =
                    (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
                // What is in no table that could be read has not been asked.
                mounts().is_some_and(|mounts| {
                    let mount = type_of_mount(&mounts, None, &format!("{major}:{minor}"));
                    mount.is_none_or(|(kind, options)| {
                        let is_fuse = kind.starts_with("fuse") && kind != "fuse.ceph-fuse";
                        let local = ["localflock", "noflock", "local_lock"];
                        !is_fuse && !local.iter().any(|word| options.contains(word))
                    })
                })
            })
    }

    fn map(&self) -> Result<Bytes> {
        let len = usize::try_from(StoreFile::stat(self)?.len).map_err(|_| Errno::NOMEM)?;
        if len == 0 {
            return Ok(Arc::new([]));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                self.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::FAULT)?;
        Ok(Arc::new(Map { start, len }))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        match rustix::fs::seek(self.as_fd(), SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // Offsets past what the file system can have, and file systems that do not know holes.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(errno) => Err(errno),
        }
    }

    /// Clean pages go; such as another program has mapped stay.
    fn forget_cached(&self) {
        let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::DontNeed);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// A read-only map of a file, undone in drop. memmap2 would go through libc's mmap, which the shim
/// wraps.
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the map is read-only memory without ties to a thread.
unsafe impl Send for Map {}
// SAFETY: as above; all access is reading.
unsafe impl Sync for Map {}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped with this length until drop. That the bytes do not change or vanish is
        // what StoreFile::map asks of its caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by StoreFile::map with this length; references into it cannot outlive
        // self. Unmapping a valid range does not fail.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_understood() {
        let text = "21 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n271 29 0:45 / \
                    /with\\040blank\\040-\\040x rw,relatime shared:5 master:1 - fuse.ceph-fuse \
                    ceph-fuse rw,user_id=0\n27 29 0:46 / /dev/shm rw - tmpfs tmpfs rw\n";
        let kind = |id| type_of_mount(text, Some(id), "").map(|(kind, _)| kind);
        assert_eq!(kind(271), Some("fuse.ceph-fuse"));
        assert_eq!(kind(27), Some("tmpfs"));
        assert_eq!(kind(2), None);
        assert_eq!(type_of_mount(text, Some(271), ""), Some(("fuse.ceph-fuse", "rw,user_id=0")));
        assert_eq!(type_of_mount(text, None, "0:46"), Some(("tmpfs", "rw")));
        assert_eq!(type_of_mount("27 no dash", Some(27), ""), None);
        assert!(mounts().is_some_and(|text| text.lines().count() > 0 && text.ends_with('\n')));
    }

    /// docs/decisions/0014
    #[test]
    fn file_systems_that_cache_are_told_from_those_that_do_not() {
        let caches = |kind: &str, options: &str| of_type(kind, options).close_to_open.is_some();
        for kind in ["nfs", "nfs4", "cifs", "smb3", "afs", "virtiofs", "fuse", "fuse.sshfs"] {
            assert!(caches(kind, "rw"), "{kind}");
        }
        for kind in ["ceph", "lustre", "gpfs", "beegfs", "fuseblk", "fuse.ceph-fuse", "new"] {
            assert!(!caches(kind, "rw"), "{kind}");
        }
        assert!(!caches("9p", "rw,trans=virtio") && !caches("9p", "rw,cache=none"));
        assert!(caches("9p", "rw,cache=f,trans=virtio") && caches("9p", "cache=loose"));
        let nfs = ("nfs4".to_string(), "rw,vers=4.2".to_string());
        assert_eq!(of_magic(0x6969, Some(&nfs)).close_to_open.as_deref(), Some("nfs4"));
        assert_eq!(of_magic(0x6969, None).close_to_open.as_deref(), Some("nfs"));
        // It was written to if the server did not answer at the first look.
        assert_eq!(of_answer(Err(Errno::STALE), Some(&nfs)), Some(of_magic(0x6969, Some(&nfs))));
        assert_eq!(of_answer(Err(Errno::NOENT), Some(&nfs)), None);
        assert_eq!(
            of_magic(0x0102_1994, None),
            FileSystem { local: true, volatile: true, ..FileSystem::default() }
        );
        let store = PosixStore::new();
        assert_eq!(store.close_to_open(Path::new("/dev/shm/a/b")), None);
        assert!(store.is_local(Path::new("/dev/shm/a/b")));
    }
}
