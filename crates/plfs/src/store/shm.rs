//! A page of atomic numbers that the processes of a node share, with locks that the kernel releases
//! when their holder dies.
//!
//! The page is a small file in a memory file system, mapped by all. Its first bytes carry the
//! locks, as open file description locks (fcntl(2)): byte 0 says who is alive
//! ([`SharedPage::try_be_last`]), byte 1 serialises short critical sections ([`SharedPage::lock`]),
//! byte 2 lets one process at a time make the index log durable ([`SharedPage::gate`]), byte 3 is
//! for who truncates the file ([`SharedPage::cut`]), byte 4 for who is the heir of what a dead
//! process has left beside it ([`SharedPage::heir`]). One descriptor carries them all. Threads of
//! one process exclude each other by mutexes, because they share that descriptor.
//!
//! The directory is everybody's, and names in it can be guessed. So a page is used only if it is a
//! regular file of its user, which nobody else may open, with one name and the length of
//! a page, and if the memory for it is there: a page without memory would be SIGBUS at the first
//! use. Then only processes of the same user (and root) can hold its locks, or cut it; whoever does
//! the latter takes down the user's own processes, and the files of a memory file system cannot be
//! sealed against it. Whoever finds a page that is no good does without one.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use linux_raw_sys::general as linux;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, FsWord, MemfdFlags, Mode, OFlags, SealFlags,
};
use rustix::mm::{MapFlags, ProtFlags};
use syscalls::Sysno;

use super::file_cache::{with_room, with_room_to_keep};
use super::limit::may_extend;
use super::machine::fd_path;
use super::posix::{BareFd, HighFd, Passing, PosixStore};
use super::{Errno, Result, Store};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard, PoisonError, Word, thread, wait_for};

/// Numbers in a page.
pub const WORDS: usize = 1024;
const BYTES: usize = WORDS * 8;

/// Bytes behind the numbers of a page with a tray (docs/decisions/0023). 512 KiB: what a node says
/// in 0.1 s that makes 4,000 files of 1 KiB a second.
pub const TRAY_BYTES: usize = 512 << 10;

/// A byte of the page that carries a lock.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Alive = 0,
    Short = 1,
    Gate = 2,
    Cut = 3,
    Heir = 4,
}

/// The shared page of one container on one node. Dropping it releases its locks.
#[derive(Debug)]
pub struct SharedPage {
    map: PageMap,
    file: HighFd,
    path: PathBuf,
    short: Mutex<()>,
    gate: Mutex<()>,
    cut: Mutex<()>,
    heir: Mutex<()>,
}

/// What is mapped of a page.
#[derive(Debug)]
struct PageMap {
    words: *const Word,
    /// Its length: [`BYTES`], and [`TRAY_BYTES`] more if there is a tray.
    mapped: usize,
}

// SAFETY: `words` points to a shared mapping that lives as long as the value and is only accessed
// as atomics.
unsafe impl Send for PageMap {}
// SAFETY: as above.
unsafe impl Sync for PageMap {}

impl PageMap {
    fn words(&self) -> &[Word; WORDS] {
        // SAFETY: the mapping is BYTES long, page-aligned, lives as long as self, and all processes
        // access it only as atomics.
        unsafe { &*self.words.cast::<[Word; WORDS]>() }
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        // SAFETY: mapped in `SharedPage::open` with this length; no reference into it outlives
        // self.
        let _ = unsafe { rustix::mm::munmap(self.words.cast_mut().cast(), self.mapped) };
    }
}

/// The numbers of a page that this process has joined, for who needs none of its locks. On a tmpfs
/// it takes no descriptor: see [`Presence`].
#[derive(Debug)]
pub struct PageWords {
    map: PageMap,
    _kept: Option<HighFd>,
}

impl PageWords {
    /// See [`SharedPage::words`].
    pub fn words(&self) -> &[Word; WORDS] {
        self.map.words()
    }
}

/// Holds one of the page's locks.
pub struct PageGuard<'a> {
    fd: BorrowedFd<'a>,
    lock: Lock,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for PageGuard<'_> {
    fn drop(&mut self) {
        // Unlocking a descriptor that is locked cannot fail; the kernel would unlock at close
        // anyway.
        let _ = set_lock(self.fd, self.lock, linux::F_UNLCK, false);
    }
}

impl SharedPage {
    /// Maps the page of user `uid` at `path`, creating it with zeros, and marks this process as
    /// alive.
    ///
    /// PERM if there is something there that is not the user's page; NOSPC if there is no memory
    /// for it.
    pub fn join(path: &Path, uid: u32) -> Result<SharedPage> {
        SharedPage::join_with(path, uid, |_| Ok(()))
    }

    /// [`SharedPage::join`] of a page that gets a tray if this process makes it. It appears whole
    /// or not at all: versions that know nothing of trays find something of another length, and
    /// keep away from it.
    pub fn join_with_tray(path: &Path, uid: u32) -> Result<SharedPage> {
        SharedPage::join_with(path, uid, |path| match make_with_tray(path) {
            // Another process was faster, or this one or the file system cannot: then the page has
            // none.
            Err(
                Errno::EXIST
                | Errno::ACCESS
                | Errno::PERM
                | Errno::FBIG
                | Errno::OPNOTSUPP
                | Errno::ISDIR
                | Errno::INVAL
                | Errno::NOSYS,
            ) => Ok(()),
            other => other,
        })
    }

    fn join_with(path: &Path, uid: u32, make: impl Fn(&Path) -> Result<()>) -> Result<SharedPage> {
        loop {
            if rustix::fs::lstat(path).is_err() {
                make(path)?;
            }
            if let Some(page) = SharedPage::open(path, true, uid)?
                && page.begin_to_live()?
            {
                return Ok(page);
            }
        }
    }

    /// [`SharedPage::join`] of a page that is there; `None` if there is none.
    pub fn join_if_there(path: &Path, uid: u32) -> Result<Option<SharedPage>> {
        match SharedPage::open(path, false, uid)? {
            Some(page) if page.begin_to_live()? => Ok(Some(page)),
            _ => Ok(None),
        }
    }

    /// Marks this process as alive. False if the page is not the one at its path any more: the last
    /// one out removes the file under the lock.
    fn begin_to_live(&self) -> Result<bool> {
        let _short = self.lock()?;
        if !same_file(self.file.as_fd(), &self.path) {
            return Ok(false);
        }
        set_lock(self.file.as_fd(), Lock::Alive, linux::F_RDLCK, true).map(|()| true)
    }

    /// The page of user `uid` at `path` if no live process has joined it, locked, with `heir` in
    /// its place: it may read the numbers and remove the page. `None` if there is none, somebody
    /// lives there, or somebody else is about to find out.
    pub fn inherit<T>(
        path: &Path,
        uid: u32,
        heir: impl FnOnce(&SharedPage) -> T,
    ) -> Result<Option<T>> {
        let Some(page) = SharedPage::open(path, false, uid)? else { return Ok(None) };
        if set_lock(page.file.as_fd(), Lock::Short, linux::F_WRLCK, false).is_err()
            || !page.try_be_last()
            || !same_file(page.file.as_fd(), path)
        {
            return Ok(None);
        }
        // Dropping the page releases both locks.
        Ok(Some(heir(&page)))
    }

    /// The page of user `uid` at `path`, to be looked at and not to be joined.
    pub fn peek(path: &Path, uid: u32) -> Result<Option<SharedPage>> {
        SharedPage::open(path, false, uid)
    }

    /// [`SharedPage::peek`] for who tells a file that was never finished from none (NOENT).
    pub fn find_file(path: &Path, uid: u32) -> Result<Option<SharedPage>> {
        SharedPage::map(open(path, false, uid)?, path, false)
    }

    /// For a page that was [looked at](SharedPage::peek): whether a live process has joined it.
    /// True too if that cannot be found out.
    pub fn has_members(&self) -> bool {
        // Asked without taking it: a leaver at this moment must not take us for a member.
        self.is_locked(Lock::Alive)
    }

    fn is_locked(&self, lock: Lock) -> bool {
        let mut range = lock_range(lock, linux::F_WRLCK);
        match fcntl_lock(self.file.as_fd(), linux::F_OFD_GETLK, &mut range) {
            Ok(()) => u32::try_from(range.l_type) != Ok(linux::F_UNLCK),
            Err(_) => true,
        }
    }

    /// The pages of a user, or of all (`None`), in a directory of shared memory, with whose they
    /// are by their names.
    pub fn find(dir: &Path, uid: Option<u32>) -> Result<Vec<(PathBuf, u32)>> {
        let owner_of = |name: &str| {
            let mut parts = name.split('-');
            let (plfs, user, dev, ino, uuid) =
                (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
            let user: u32 = user.parse().ok()?;
            let is_page = plfs == "plfs"
                && hex(dev)
                && hex(ino)
                && uuid.len() == 32
                && hex(uuid)
                && parts.next().is_none();
            (is_page && uid.is_none_or(|uid| uid == user)).then_some(user)
        };
        let entries = PosixStore::new().list(dir)?;
        Ok(entries
            .iter()
            .filter_map(|entry| Some((dir.join(&entry.name), owner_of(entry.name.to_str()?)?)))
            .collect())
    }

    /// `None` without `create` if there is no page, or it was never finished.
    fn open(path: &Path, create: bool, uid: u32) -> Result<Option<SharedPage>> {
        match open(path, create, uid) {
            Err(Errno::NOENT) if !create => Ok(None),
            other => SharedPage::map(other?, path, create),
        }
    }

    fn map(file: HighFd, path: &Path, create: bool) -> Result<Option<SharedPage>> {
        if !create && rustix::fs::fstat(file.as_fd())?.st_size == 0 {
            return Ok(None);
        }
        let mapped = match allocate(file.as_fd()) {
            Err(errno) => {
                // A new one for which there is no room: who has it open finds that it is not there
                // any more.
                if rustix::fs::fstat(file.as_fd()).is_ok_and(|stat| stat.st_size == 0) {
                    SharedPage::remove_file(path);
                }
                return Err(errno);
            }
            Ok(mapped) => mapped,
        };
        // SAFETY: a fresh shared mapping of a file that is so long, with memory behind it, which
        // only processes of this user can shorten, and none does; it is unmapped in drop only.
        let words = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        Ok(Some(SharedPage {
            map: PageMap { words: words.cast::<Word>(), mapped },
            file,
            path: path.to_path_buf(),
            short: Mutex::default(),
            gate: Mutex::default(),
            cut: Mutex::default(),
            heir: Mutex::default(),
        }))
    }

    /// The numbers. Zero at first.
    pub fn words(&self) -> &[Word; WORDS] {
        self.map.words()
    }

    /// Goes on as one that lives, without locks.
    pub fn into_words(self) -> PageWords {
        let keeps_file_open = is_on_tmpfs(self.file.as_fd());
        PageWords { map: self.map, _kept: (!keeps_file_open).then_some(self.file) }
    }

    /// Bytes of the tray; 0: the page has none.
    pub fn tray_bytes(&self) -> usize {
        self.map.mapped - BYTES
    }

    /// Copies from the tray. What lies outside of it is nothing: `None`. Others write there unless
    /// the caller holds the short lock.
    pub fn read_tray(&self, at: usize, bytes: &mut [u8]) -> Option<()> {
        let end = at.checked_add(bytes.len()).filter(|end| *end <= self.tray_bytes());
        end?;
        // SAFETY: the range lies in the mapping behind the words, as was just checked; nobody has
        // references into it.
        unsafe {
            let from = self.map.words.cast::<u8>().add(BYTES + at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        Some(())
    }

    /// Copies to the tray, with the short lock held; `None` as for [`SharedPage::read_tray`].
    pub fn write_tray(&self, at: usize, bytes: &[u8]) -> Option<()> {
        let end = at.checked_add(bytes.len()).filter(|end| *end <= self.tray_bytes());
        end?;
        // SAFETY: as above; the mapping may be written.
        unsafe {
            let to = self.map.words.cast_mut().cast::<u8>().add(BYTES + at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Some(())
    }

    /// Takes the short lock; waits for its holder. The kernel releases it if the holder dies.
    pub fn lock(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Short, &self.short)
    }

    /// Takes the gate: whoever makes the index log durable holds it, and whoever appends what is
    /// not durable yet.
    pub fn gate(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Gate, &self.gate)
    }

    /// Takes the lock of who truncates: before the short one, if both.
    pub fn cut(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Cut, &self.cut)
    }

    /// Takes the lock of who is the heir of what dead processes have left beside the page: before
    /// all others.
    pub fn heir(&self) -> Result<PageGuard<'_>> {
        self.take(Lock::Heir, &self.heir)
    }

    /// Whether somebody has that lock; true too if nobody can tell.
    pub fn has_heir(&self) -> bool {
        self.is_locked(Lock::Heir)
    }

    fn take<'a>(&'a self, lock: Lock, thread: &'a Mutex<()>) -> Result<PageGuard<'a>> {
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        wait_for(|wait| match set_lock(self.file.as_fd(), lock, linux::F_WRLCK, wait) {
            Err(Errno::AGAIN | Errno::ACCESS) if !wait => None,
            done => Some(done),
        })?;
        Ok(PageGuard { fd: self.file.as_fd(), lock, _thread: thread })
    }

    /// True if no other live process has joined. Call with the short lock held, which keeps others
    /// out, and only to leave: after it nobody else counts this process as alive.
    pub fn try_be_last(&self) -> bool {
        set_lock(self.file.as_fd(), Lock::Alive, linux::F_WRLCK, false).is_ok()
    }

    /// After [`SharedPage::try_be_last`], with the lock held still: it does not leave.
    pub fn stay(&self) -> Result<()> {
        set_lock(self.file.as_fd(), Lock::Alive, linux::F_RDLCK, true)
    }

    /// This process stops counting as alive. By unlocking: a forked child keeps the file open.
    pub fn leave(&self) {
        let _ = set_lock(self.file.as_fd(), Lock::Alive, linux::F_UNLCK, false);
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode of the directory that the page is in.
    pub fn place(&self) -> Result<(u64, u64)> {
        directory_identity(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// Removes the page at `path`, which nobody will join any more.
    pub fn remove_file(path: &Path) {
        let _ = rustix::fs::unlink(path);
    }

    /// Removes the page's file. Only for the last process, with the short lock held.
    pub fn remove(&self) {
        // If somebody removed it and others have made a new one, that is theirs.
        if same_file(self.file.as_fd(), &self.path) {
            // A page left behind is found again by the next process of the node; it does no harm.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Sets or releases a lock on one byte, and waits for it if it shall. EAGAIN or EACCES if it shall
/// not and somebody else has it.
fn set_lock(fd: BorrowedFd<'_>, lock: Lock, kind: u32, wait: bool) -> Result<()> {
    let command = if wait { linux::F_OFD_SETLKW } else { linux::F_OFD_SETLK };
    fcntl_lock(fd, command, &mut lock_range(lock, kind))
}

fn lock_range(lock: Lock, kind: u32) -> linux::flock {
    // l_pid must be 0 for locks of open file descriptions.
    linux::flock {
        l_type: kind as _,
        l_whence: linux::SEEK_SET as _,
        l_start: lock as i64,
        l_len: 1,
        l_pid: 0,
    }
}

pub(super) fn fcntl_lock(fd: BorrowedFd<'_>, command: u32, range: &mut linux::flock) -> Result<()> {
    loop {
        // SAFETY: the descriptor is borrowed for the call, and `range` is a struct flock, which the
        // kernel reads, and writes for F_OFD_GETLK.
        match unsafe {
            syscalls::syscall3(
                Sysno::fcntl,
                fd.as_raw_fd() as usize,
                command as usize,
                (&raw mut *range) as usize,
            )
        } {
            Ok(_) => return Ok(()),
            Err(syscalls::Errno::EINTR) => {}
            Err(errno) => return Err(Errno::from_raw_os_error(errno.into_raw())),
        }
    }
}

/// fcntl(2) with a number.
pub(super) fn fcntl_number(fd: BorrowedFd<'_>, command: u32, number: u32) -> Result<()> {
    // SAFETY: the descriptor is borrowed for the call, which reads and writes no memory.
    let done = unsafe {
        syscalls::syscall3(Sysno::fcntl, fd.as_raw_fd() as usize, command as usize, number as usize)
    };
    done.map(drop).map_err(|errno| Errno::from_raw_os_error(errno.into_raw()))
}

/// Device and inode of a directory of shared memory.
pub fn directory_identity(dir: &Path) -> Result<(u64, u64)> {
    let stat = rustix::fs::stat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// How often a sign is tried that another process has locked, a millisecond apart.
const PRESENCE_TRIES: u32 = 100;

/// A sign that this process uses something: a shared lock on a file. Many may have it; the last one
/// that drops it removes the file.
///
/// A process has one for each file that it has open on a network file system, so it takes no
/// descriptor: a map keeps the file open, and with it the lock of flock(2), which ends when the
/// open file does. After a fork it lasts until parent and child have both dropped it, as it would
/// with a descriptor, and an exec ends it.
#[derive(Debug)]
pub struct Presence {
    /// `None` when it is dropped.
    kept: Option<KeptOpen>,
    path: PathBuf,
}

/// What keeps a file open.
#[derive(Debug)]
#[allow(dead_code, reason = "held for its drop")]
enum KeptOpen {
    Map(EmptyMap),
    Descriptor(HighFd),
}

impl KeptOpen {
    fn new(fd: BareFd) -> KeptOpen {
        match EmptyMap::of(fd.as_fd()) {
            Some(map) => KeptOpen::Map(map),
            None => KeptOpen::Descriptor(HighFd::new(fd.into_owned())),
        }
    }
}

/// A map that nobody looks into.
#[derive(Debug)]
struct EmptyMap(NonNull<c_void>);

/// The least that can be mapped: the kernel takes a whole page, whatever that is here.
const EMPTY_MAP_BYTES: usize = 1;

// SAFETY: memory that may not be touched has no ties to a thread.
unsafe impl Send for EmptyMap {}
// SAFETY: as above.
unsafe impl Sync for EmptyMap {}

impl EmptyMap {
    /// `None` if it cannot be mapped, or the map would not keep the file open.
    fn of(fd: BorrowedFd<'_>) -> Option<EmptyMap> {
        if !is_on_tmpfs(fd) {
            return None;
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                EMPTY_MAP_BYTES,
                ProtFlags::empty(),
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        NonNull::new(start.ok()?).map(EmptyMap)
    }
}

/// Whether a map of this file keeps it open, and with it the locks of the open file (flock(2) and
/// F_OFD_SETLK): tmpfs does it so, overlayfs maps the file that is below. False if nobody knows.
fn is_on_tmpfs(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type == FsWord::from(linux::TMPFS_MAGIC))
}

impl Drop for EmptyMap {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length, and nobody has a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), EMPTY_MAP_BYTES) };
    }
}

impl Presence {
    /// Puts the sign up. All users of the node may share it.
    pub fn join(path: &Path) -> Result<Presence> {
        loop {
            // Of a pipe that somebody put there an open would wait for a writer.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let open = |how: OFlags| {
                with_room(|| rustix::fs::open(path, flags | how, Mode::from_raw_mode(0o444)))
            };
            // With O_CREAT the kernel refuses another user's file in a directory like /dev/shm
            // (fs.protected_regular).
            let file = BareFd::open(|| match open(OFlags::empty()) {
                Err(Errno::NOENT) => open(OFlags::CREATE),
                other => other,
            })?;
            // All users share the sign, so anybody can lock it for ever. Whoever looks whether it
            // is free has it for a moment.
            let mut tries = 0;
            while let Err(errno) = flock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
                if errno != Errno::AGAIN || tries == PRESENCE_TRIES {
                    return Err(errno);
                }
                tries += 1;
                thread::sleep(std::time::Duration::from_millis(1));
            }
            // The last user may have removed the file between our open and our lock.
            if same_file(file.as_fd(), path) {
                return Ok(Presence { kept: Some(KeptOpen::new(file)), path: path.to_path_buf() });
            }
        }
    }

    /// True if nobody has the sign up.
    pub fn is_free(path: &Path) -> bool {
        match Presence::look(path) {
            Ok(file) => flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(Errno::NOENT) => true,
            // Nobody knows: to leave garbage is better than to take data away that is in use.
            Err(_) => false,
        }
    }

    fn look(path: &Path) -> Result<BareFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        BareFd::open(|| with_room(|| rustix::fs::open(path, flags, Mode::empty())))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.kept = None;
        // Left behind, an empty file does no harm.
        let Ok(file) = Presence::look(&self.path) else { return };
        // Others may have come and gone meanwhile, and one may have come since: only a file that
        // nobody has locked and that is still found by this name is the last one's to remove. Who
        // comes now waits for this lock, and finds then that the file has gone.
        if flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
            && same_file(file.as_fd(), &self.path)
        {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// A file in memory for who opens it again by its descriptor's path in /proc. Nobody can change it
/// but who made it, and its children after fork: they add notes behind what it says. Costs a
/// descriptor.
#[derive(Debug)]
pub struct Notes {
    file: HighFd,
    /// `None` where the kernel has no seal that leaves this map (before Linux 5.1).
    map: Option<NonNull<c_void>>,
}

/// Bytes of such a file, of which only what is used takes memory, and of what it says first. The
/// last 8 of those are where the notes end.
pub const NOTES_BYTES: usize = 192 << 10;
const NOTES_HEAD: usize = 12 << 10;
/// The place of a note is a multiple of this, its number that many times less.
pub const NOTE_UNIT: usize = 16;

// SAFETY: the map has no ties to a thread, and is changed as `add` says only.
unsafe impl Send for Notes {}
// SAFETY: as above.
unsafe impl Sync for Notes {}

impl Notes {
    /// One that says `head`. RANGE if that is too long.
    pub fn new(name: &str, head: &[u8]) -> Result<Notes> {
        if head.len() > NOTES_HEAD - size_of::<Word>() {
            return Err(Errno::RANGE);
        }
        let how = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let _passing = Passing::new();
        let file = BareFd::new(with_room_to_keep(|| rustix::fs::memfd_create(name, how))?);
        may_extend(NOTES_BYTES as u64, || Ok(0))?;
        rustix::fs::ftruncate(file.as_fd(), NOTES_BYTES as u64)?;
        if rustix::io::pwrite(file.as_fd(), head, 0)? != head.len() {
            return Err(Errno::NOSPC);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing; the file
        // is so long, and cannot be shortened from here on.
        let map = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let at = std::ptr::null_mut();
            rustix::mm::mmap(at, NOTES_BYTES, access, MapFlags::SHARED, file.as_fd(), 0)?
        };
        let mut notes = Notes { file: HighFd::new(file.into_owned()), map: NonNull::new(map) };
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        let file = notes.file.as_fd();
        if rustix::fs::fcntl_add_seals(file, seals | SealFlags::FUTURE_WRITE).is_err() {
            notes.unmap();
            rustix::fs::fcntl_add_seals(notes.file.as_fd(), seals | SealFlags::WRITE)?;
        }
        Ok(notes)
    }

    /// Adds a note, which readers find at its number times [`NOTE_UNIT`]. `None`: there is no room.
    pub fn add(&self, note: &[u8]) -> Option<u32> {
        let (map, units) = (self.map?, note.len().div_ceil(NOTE_UNIT));
        let (first, end) = (NOTES_HEAD / NOTE_UNIT, NOTES_BYTES / NOTE_UNIT);
        let fits =
            |used: u64| Some(used + units as u64).filter(|used| *used <= (end - first) as u64);
        let used = self.used(map).fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        let number = first + used as usize;
        // SAFETY: the note fits, as was just checked, nobody else writes at its place, and nobody
        // has references into the map but to the word.
        unsafe {
            let to = map.cast::<u8>().add(number * NOTE_UNIT);
            std::ptr::copy_nonoverlapping(note.as_ptr(), to.as_ptr(), note.len());
        }
        Some(number as u32)
    }

    /// Whether half of the room for notes is used.
    pub fn is_half_full(&self) -> bool {
        self.map.is_some_and(|map| {
            let used = self.used(map).load(Ordering::Relaxed) as usize * NOTE_UNIT;
            used > (NOTES_BYTES - NOTES_HEAD) / 2
        })
    }

    /// Units of notes that there are.
    fn used(&self, map: NonNull<c_void>) -> &Word {
        // SAFETY: the word lies in the map, which lives as long as self, and is aligned, as the map
        // is; all processes access it as an atomic.
        unsafe { map.cast::<u8>().add(NOTES_HEAD - size_of::<Word>()).cast::<Word>().as_ref() }
    }

    fn unmap(&mut self) {
        if let Some(map) = self.map.take() {
            // SAFETY: mapped in `new` with this length, and nobody has a reference into it.
            let _ = unsafe { rustix::mm::munmap(map.as_ptr(), NOTES_BYTES) };
        }
    }
}

impl AsFd for Notes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// One process of the node at a time, for things named by `key` (or, by chance, another key): waits
/// for its turn, which ends when the result is dropped. `None` if there is no memory file system,
/// or another user's file is in the way: then nobody waits. Only processes of the same user can
/// make one wait.
pub fn turn(dir: &Path, key: u64) -> Option<impl AsFd> {
    let uid = rustix::process::geteuid().as_raw();
    let path = dir.join(format!("plfs-{uid}-turn-{:02x}", key % 64));
    let file = open_bare(&path, true, uid).ok()?;
    wait_for(|wait| match wait {
        true => Some(flock(file.as_fd(), FlockOperation::LockExclusive)),
        false => match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => None,
            done => Some(done),
        },
    })
    .ok()?;
    Some(file)
}

/// Opens a file of user `uid` that nobody else may open, made if it shall be. PERM if there is
/// something else.
fn open(path: &Path, create: bool, uid: u32) -> Result<HighFd> {
    HighFd::open(|| open_bare(path, create, uid).map(BareFd::into_owned))
}

fn open_bare(path: &Path, create: bool, uid: u32) -> Result<BareFd> {
    let create = if create { OFlags::CREATE } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | create;
    let open = || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let fd = match BareFd::open(|| with_room_to_keep(open)) {
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(Errno::PERM),
        other => other?,
    };
    if is_private_file(&rustix::fs::fstat(fd.as_fd())?, uid) { Ok(fd) } else { Err(Errno::PERM) }
}

/// Whether it is a regular file of this user, which nobody else may open.
pub(super) fn is_private_file(stat: &rustix::fs::Stat, uid: u32) -> bool {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // 0 names: the last one out has just removed it; who locks it finds out.
    is_file && stat.st_uid == uid && stat.st_mode & 0o077 == 0 && stat.st_nlink <= 1
}

/// Makes a page with a tray at `path`, with all its memory. EXIST if something is there.
fn make_with_tray(path: &Path) -> Result<()> {
    let bytes = (BYTES + TRAY_BYTES) as u64;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    let open = || rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
    let file = BareFd::open(|| with_room_to_keep(open))?;
    may_extend(bytes, || Ok(0))?;
    rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes)?;
    let of_file = fd_path(file.as_fd().as_raw_fd());
    let (cwd, follow) = (rustix::fs::CWD, AtFlags::SYMLINK_FOLLOW);
    match rustix::fs::linkat(cwd, of_file, cwd, path, follow) {
        // Without /proc there is no way to name it; and a process that has become another user's
        // may not look there.
        Err(Errno::NOENT) => Err(Errno::OPNOTSUPP),
        other => other,
    }
}

/// Sees to it that a page has its length and its memory: gives the length. PERM if it has another
/// length than a page.
fn allocate(fd: BorrowedFd<'_>) -> Result<usize> {
    let stat = rustix::fs::fstat(fd)?;
    let bytes = match usize::try_from(stat.st_size) {
        Ok(0) => BYTES,
        Ok(bytes) if bytes == BYTES || bytes == BYTES + TRAY_BYTES => bytes,
        _ => return Err(Errno::PERM),
    };
    if stat.st_size != 0 && stat.st_blocks as usize * 512 >= bytes {
        return Ok(bytes);
    }
    may_extend(bytes as u64, || Ok(0))?;
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes as u64) {
        // Not all file systems can; bytes that were written are there.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if stat.st_size == 0 => {
            match rustix::io::pwrite(fd, &[0; BYTES], 0)? {
                BYTES => Ok(bytes),
                _ => Err(Errno::NOSPC),
            }
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(bytes),
        other => other.map(|()| bytes),
    }
}

pub(super) fn flock(fd: BorrowedFd<'_>, how: FlockOperation) -> Result<()> {
    loop {
        match rustix::fs::flock(fd, how) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn same_file(fd: BorrowedFd<'_>, path: &Path) -> bool {
    match (rustix::fs::fstat(fd), rustix::fs::lstat(path)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::plain::atomic::Ordering;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn path(name: &str) -> PathBuf {
        PathBuf::from(format!("/dev/shm/plfs-shm-test-{name}-{}", std::process::id()))
    }

    /// Whatever another user puts where a page should be, nobody maps it, waits for its lock, or
    /// follows it: a page that others may write has tails and clocks that they set, and one that
    /// was too short was SIGBUS.
    #[test]
    fn what_is_not_our_page_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let at = path("refused");
        let refused = |what: &str| {
            assert_eq!(SharedPage::join(&at, me()).err(), Some(Errno::PERM), "{what}");
            std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir(&at)).unwrap();
        };
        let target = path("target");
        std::fs::write(&target, [0; BYTES]).unwrap();
        symlink(&target, &at).unwrap();
        refused("a link");
        std::fs::hard_link(&target, &at).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
        refused("a file with another name");
        std::fs::create_dir(&at).unwrap();
        refused("a directory");
        std::fs::write(&at, [0; BYTES]).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o606)).unwrap();
        refused("a page that others may write");
        for len in [1, BYTES - 1, BYTES + 1] {
            std::fs::write(&at, vec![0; len]).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
            refused("a page of another length");
        }
        rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        refused("a pipe");
        assert!(Presence::is_free(&target));
        if me() == 0 {
            std::fs::write(&at, [0; BYTES]).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&at, Some(12345), None).unwrap();
            refused("another user's page");
        }
        std::fs::remove_file(target).unwrap();
    }

    /// The page was sparse: with /dev/shm full the first write to it was SIGBUS, in the middle of a
    /// program.
    #[test]
    fn a_page_has_its_memory_when_it_is_joined() {
        let at = path("allocated");
        let page = SharedPage::join(&at, me()).unwrap();
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= BYTES as i64);
        page.remove();
        // The tray is part of it.
        let all = BYTES + TRAY_BYTES;
        let page = SharedPage::join_with_tray(&at, me()).unwrap();
        assert_eq!(page.tray_bytes(), TRAY_BYTES);
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= all as i64);
        page.remove();
        drop(page);
        std::fs::write(&at, []).unwrap();
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::OpenOptions::new().write(true).open(&at).unwrap().set_len(all as u64).unwrap();
        let page = SharedPage::join(&at, me()).unwrap();
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= all as i64);
        page.remove();
        drop(page);
        // One that somebody left sparse.
        std::fs::write(&at, []).unwrap();
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::OpenOptions::new().write(true).open(&at).unwrap().set_len(BYTES as u64).unwrap();
        let page = SharedPage::join(&at, me()).unwrap();
        assert!(rustix::fs::stat(&at).unwrap().st_blocks * 512 >= BYTES as i64);
        page.remove();
    }

    /// Another user put a file where processes of a node take turns, and locked it: everybody else
    /// waited for ever. What is not a file of one's own that nobody else may open is no turn to
    /// wait for.
    #[test]
    fn nobody_waits_for_a_turn_that_others_hold() {
        use crate::sync::Arc;
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let dir = path("turns");
        std::fs::create_dir(&dir).unwrap();
        let (at, target) = (dir.join(format!("plfs-{}-turn-07", me())), dir.join("target"));
        let waits_not = |what: &str, mode: u32, plant: &dyn Fn()| {
            std::fs::write(&target, []).unwrap();
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
            let theirs = std::fs::File::open(&target).unwrap();
            flock(theirs.as_fd(), FlockOperation::LockExclusive).unwrap();
            plant();
            // Who waits does so in a thread that this one does not wait for.
            let (told, dir) = (Arc::new(Mutex::new(None)), dir.clone());
            let tell = told.clone();
            thread::spawn(move || *tell.lock().unwrap() = Some(turn(&dir, 7).is_some()));
            for _ in 0..3000 {
                if told.lock().unwrap().is_some() {
                    break;
                }
                thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(*told.lock().unwrap(), Some(false), "{what}");
            std::fs::remove_file(&at).unwrap();
        };
        waits_not("a link", 0o600, &|| symlink(&target, &at).unwrap());
        waits_not("a file with another name", 0o600, &|| {
            std::fs::hard_link(&target, &at).unwrap();
        });
        for mode in [0o666, 0o640, 0o604] {
            waits_not("a file that others may open", mode, &|| {
                std::fs::rename(&target, &at).unwrap();
            });
        }
        if me() == 0 {
            waits_not("another user's file", 0o600, &|| {
                chown(&target, Some(12_345), None).unwrap();
                std::fs::rename(&target, &at).unwrap();
            });
        }
        // One's own is a turn.
        drop(turn(&dir, 7).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// The sign of a container is open to all users: one who locked it exclusively made everybody
    /// wait for ever who opened a file.
    #[test]
    fn a_sign_that_somebody_locks_does_not_hang() {
        let at = path("locked");
        std::fs::write(&at, []).unwrap();
        let theirs = std::fs::File::open(&at).unwrap();
        flock(theirs.as_fd(), FlockOperation::LockExclusive).unwrap();
        assert_eq!(Presence::join(&at).err(), Some(Errno::AGAIN));
        drop(theirs);
        drop(Presence::join(&at).unwrap());
        assert!(!at.exists());
    }

    /// A sign lasts as long as who has put it up, without a descriptor on a memory file system; the
    /// last one takes it down.
    #[test]
    fn a_sign_is_up_as_long_as_somebody_has_it() {
        let places = [path("sign"), std::env::temp_dir().join(format!("s{}", std::process::id()))];
        for at in places {
            let dir = std::fs::File::open(at.parent().unwrap()).unwrap();
            let is_memory =
                rustix::fs::fstatfs(&dir).unwrap().f_type == FsWord::from(linux::TMPFS_MAGIC);
            assert!(Presence::is_free(&at));
            let signs = [Presence::join(&at).unwrap(), Presence::join(&at).unwrap()];
            for sign in signs {
                assert!(!Presence::is_free(&at));
                assert!(at.exists());
                assert_eq!(matches!(sign.kept, Some(KeptOpen::Map(_))), is_memory);
                drop(sign);
            }
            assert!(Presence::is_free(&at));
            assert!(!at.exists());
        }
    }

    /// Somebody removed the sign's file and others have put up another of the same name: that is
    /// theirs, whoever goes.
    #[test]
    fn who_takes_a_sign_down_leaves_that_of_others() {
        let at = path("theirs");
        let old = Presence::join(&at).unwrap();
        std::fs::remove_file(&at).unwrap();
        let new = Presence::join(&at).unwrap();
        drop(old);
        assert!(!Presence::is_free(&at));
        drop(new);
        assert!(!at.exists());
    }

    #[test]
    fn processes_meet_and_the_last_one_knows() {
        let path = std::env::temp_dir().join(format!("plfs-shm-test-{}", std::process::id()));
        let first = SharedPage::join(&path, me()).unwrap();
        first.words()[3].store(7, Ordering::SeqCst);
        let second = SharedPage::join(&path, me()).unwrap();
        assert_eq!(second.words()[3].load(Ordering::SeqCst), 7);
        let guard = first.lock().unwrap();
        assert!(!first.try_be_last());
        drop(guard);
        drop(first);
        let guard = second.lock().unwrap();
        assert!(second.try_be_last());
        second.remove();
        drop(guard);
        let fresh = SharedPage::join(&path, me()).unwrap();
        assert_eq!(fresh.words()[3].load(Ordering::SeqCst), 0);
        fresh.remove();
    }
}
