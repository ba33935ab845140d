//! Memory that outlives the process which writes it: a file in a memory file system, mapped, with a
//! lock that the kernel releases when its holder dies. Whoever gets the lock then is the heir of
//! what is there.
//!
//! The lock is that of flock(2), and only the map keeps its open file: so it takes no descriptor.
//! An exec ends it. After a fork it lasts until parent and child have both dropped the value, which
//! the child does before it writes anything.
//!
//! As a page of numbers ([`super::shm`]) the file is used only if it is a regular file of its user,
//! which nobody else may open. Memory is allocated before it is touched: where there is none, that
//! is an error and no SIGBUS.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux_raw_sys::general as linux;
use rustix::fs::{CWD, FallocateFlags, FlockOperation, FsWord, Mode, OFlags, RenameFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::file_cache::with_room_to_keep;
use super::limit::may_extend;
use super::machine::{ProcessFacts, has_ended};
use super::posix::BareFd;
use super::shm::{flock, is_private_file, same_file};
use super::{Errno, Result};
use crate::sync::plain::atomic::{AtomicU64, Ordering};
use crate::sync::plain::{Mutex, lock};
use crate::sync::{Arc, Word, thread};

/// Numbers are in the first so many bytes; what lies behind is for [parts](Part).
pub const NUMBERS_BYTES: usize = 4096;
/// The last number says whose it is: process id, and pid namespace.
const HOLDER_AT: usize = NUMBERS_BYTES - 8;

/// How long an heir waits for the lock of a process that has ended, a millisecond at a time: who
/// looks at it in /proc keeps its memory, and with that the lock, for a moment.
const ENDED_TRIES: u32 = 1000;

/// Such a file, locked and mapped; see above.
#[derive(Debug)]
pub struct LockedMemory {
    start: *mut u8,
    /// Bytes of the map. The file may be shorter, and have holes.
    mapped: usize,
    path: Mutex<PathBuf>,
    identity: (u64, u64),
    /// Begin and end of the parts that somebody has.
    taken: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: the map has no ties to a thread; numbers are atomics, and of the rest each byte is in one
// part at most.
unsafe impl Send for LockedMemory {}
// SAFETY: as above.
unsafe impl Sync for LockedMemory {}

/// Bytes of a [`LockedMemory`] that nobody else of this process has. No other process has them,
/// because the memory is locked.
#[derive(Debug)]
pub struct Part {
    memory: Arc<LockedMemory>,
    from: usize,
    length: usize,
}

impl Part {
    /// `[at, at + length)` of it, which must be allocated.
    #[inline]
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        self.check(at, length);
        // SAFETY: in the map and in this part, as was just checked; so nobody writes there without
        // a &mut of it.
        unsafe { std::slice::from_raw_parts(self.memory.start.add(self.from + at), length) }
    }

    /// Copies `bytes` to `at`, which must be allocated.
    #[inline]
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: in the map and in this part, as was just checked; nobody has references into it,
        // because self is borrowed mutably.
        unsafe {
            let to = self.memory.start.add(self.from + at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Puts a number at `at`, a multiple of 8 that must be allocated: whoever inherits the memory
    /// finds it whole or not at all, and only with what was put there before it.
    #[inline]
    pub fn put_word(&mut self, at: usize, number: u64) {
        self.check(at, 8);
        assert!((self.from + at).is_multiple_of(8), "{at}: no number is there");
        // SAFETY: in the map and in this part, as was just checked, and aligned, as the map is;
        // nobody has references into it, because self is borrowed mutably.
        unsafe {
            let to = self.memory.start.add(self.from + at).cast::<AtomicU64>();
            (*to).store(number, Ordering::Release);
        }
    }

    #[inline]
    fn check(&self, at: usize, length: usize) {
        let end = at.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{at}, {length}: not in the part");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        lock(&self.memory.taken).retain(|taken| *taken != (self.from, self.from + self.length));
    }
}

/// What is at a path.
#[derive(Debug)]
pub enum Inherited<T> {
    /// Nothing is there.
    Nothing,
    /// Its process lives, or another heir has it.
    Held,
    /// It is the caller's.
    Left(T),
}

impl LockedMemory {
    /// Makes a file at `path`, locked, of which `first` bytes are there and `most` may be. A file
    /// that a dead process left there goes.
    ///
    /// EXIST if somebody has one there; OPNOTSUPP where the map would not keep the lock; NOSPC if
    /// there is no memory. Costs some ten system calls.
    pub fn create(path: &Path, uid: u32, first: usize, most: usize) -> Result<LockedMemory> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::CREATE;
        let open = || {
            let mode = Mode::RUSR | Mode::WUSR;
            with_room_to_keep(|| rustix::fs::open(path, flags | OFlags::EXCL, mode))
        };
        let mut tries = 0;
        let file = loop {
            let open = || BareFd::open(open);
            let file = match open() {
                Err(Errno::EXIST) => {
                    match LockedMemory::inherit(path, uid)? {
                        Inherited::Held => return Err(Errno::EXIST),
                        Inherited::Left(left) => left.remove(),
                        Inherited::Nothing => {}
                    }
                    open()
                }
                other => other,
            };
            let file = file?;
            // Whoever looks for what the dead have left has it locked for a moment, and removes it
            // as that of one who died here.
            let locked = loop {
                match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::AGAIN) if tries < ENDED_TRIES => {
                        thread::sleep(Duration::from_micros(100));
                        tries += 1;
                    }
                    other => break other,
                }
            };
            if let Err(errno) = locked {
                let _ = rustix::fs::unlink(path);
                return Err(errno);
            }
            if same_file(file.as_fd(), path) {
                break file;
            }
            tries += 1;
            if tries > ENDED_TRIES {
                return Err(Errno::AGAIN);
            }
        };
        let made = (|| {
            // Overlays map the file that is below, and say nothing of its lock.
            if rustix::fs::fstatfs(file.as_fd())?.f_type != FsWord::from(linux::TMPFS_MAGIC) {
                return Err(Errno::OPNOTSUPP);
            }
            allocate(&file, 0, first.max(NUMBERS_BYTES))?;
            let memory = LockedMemory::map(&file, path, most)?;
            let holder = u64::from(ProcessFacts::of_this_process().pid_namespace) << 32
                | u64::from(std::process::id());
            memory.word(HOLDER_AT).store(holder, Ordering::Release);
            Ok(memory)
        })();
        if made.is_err() {
            let _ = rustix::fs::unlink(path);
        }
        made
    }

    /// What a process has left at `path` that is dead.
    ///
    /// PERM if something is there that is not the user's.
    pub fn inherit(path: &Path, uid: u32) -> Result<Inherited<LockedMemory>> {
        let file = match LockedMemory::lock(path, uid)? {
            Inherited::Left(file) => file,
            Inherited::Held => return Ok(Inherited::Held),
            Inherited::Nothing => return Ok(Inherited::Nothing),
        };
        let bytes = rustix::fs::fstat(file.as_fd())?.st_size as usize;
        match bytes {
            // Its process died before anything was there.
            0 => {
                let _ = rustix::fs::unlink(path);
                Ok(Inherited::Nothing)
            }
            _ => LockedMemory::map(&file, path, bytes).map(Inherited::Left),
        }
    }

    /// [`LockedMemory::inherit`], but nothing is anybody's after it. Four system calls.
    pub fn look(path: &Path, uid: u32) -> Result<Inherited<()>> {
        LockedMemory::lock(path, uid).map(|found| match found {
            Inherited::Left(_) => Inherited::Left(()),
            Inherited::Held => Inherited::Held,
            Inherited::Nothing => Inherited::Nothing,
        })
    }

    fn lock(path: &Path, uid: u32) -> Result<Inherited<BareFd>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let file = match BareFd::open(|| with_room_to_keep(open)) {
            Err(Errno::NOENT) => return Ok(Inherited::Nothing),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(Errno::PERM),
            other => other?,
        };
        if !is_private_file(&rustix::fs::fstat(file.as_fd())?, uid) {
            return Err(Errno::PERM);
        }
        let mut tries = 0;
        let locked = loop {
            match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) if tries < ENDED_TRIES && has_ended_holder(&file) => {
                    thread::sleep(Duration::from_millis(1));
                    tries += 1;
                }
                other => break other,
            }
        };
        match locked {
            Err(Errno::AGAIN) => Ok(Inherited::Held),
            // Another heir may have removed it between the open and the lock.
            Ok(()) if same_file(file.as_fd(), path) => Ok(Inherited::Left(file)),
            Ok(()) => Ok(Inherited::Nothing),
            Err(errno) => Err(errno),
        }
    }

    fn map(file: &BareFd, path: &Path, bytes: usize) -> Result<LockedMemory> {
        let stat = rustix::fs::fstat(file.as_fd())?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice overlays nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        Ok(LockedMemory {
            start: start.cast(),
            mapped: bytes,
            path: Mutex::new(path.to_path_buf()),
            identity: (stat.st_dev, stat.st_ino),
            taken: Mutex::default(),
        })
    }

    /// Bytes of the map. Of one that was [made](LockedMemory::create) only those may be touched
    /// that were allocated; of one that was inherited all may be, and what was not is zeros.
    pub fn len(&self) -> usize {
        self.mapped
    }

    /// Allocates `[from, from + bytes)`. NOSPC if there is no memory, STALE if somebody has removed
    /// the file: what is there stays in both cases. Three system calls, and the zeroing.
    pub fn allocate(&self, from: usize, bytes: usize) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.path();
        let open = || rustix::fs::open(&path, flags, Mode::empty());
        let file = match BareFd::open(|| with_room_to_keep(open)) {
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(Errno::STALE);
            }
            other => other?,
        };
        let stat = rustix::fs::fstat(file.as_fd())?;
        if (stat.st_dev, stat.st_ino) != self.identity {
            return Err(Errno::STALE);
        }
        allocate(&file, from, bytes)
    }

    /// The number at byte `at`, a multiple of 8 below [`NUMBERS_BYTES`].
    #[inline]
    pub fn word(&self, at: usize) -> &Word {
        let is_number = at.is_multiple_of(8) && at + 8 <= NUMBERS_BYTES.min(self.mapped);
        assert!(is_number, "{at}: no number is there");
        // SAFETY: in the map, as was just checked, and aligned, as the map is; the map lives as
        // long as self, and all access words as atomics.
        unsafe { &*self.start.add(at).cast::<Word>() }
    }

    /// `[from, from + length)`, behind the numbers; `None` if somebody has some of it, or it is not
    /// in the map.
    pub fn take(self: &Arc<Self>, from: usize, length: usize) -> Option<Part> {
        let end = from.checked_add(length).filter(|end| *end <= self.mapped)?;
        let mut taken = lock(&self.taken);
        if from < NUMBERS_BYTES || taken.iter().any(|(a, b)| from < *b && *a < end) {
            return None;
        }
        taken.push((from, end));
        Some(Part { memory: self.clone(), from, length })
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        lock(&self.path).clone()
    }

    /// Gives the file another path, at which nothing may be: EXIST. STALE if it is not at its own
    /// any more.
    pub fn rename(&self, to: &Path) -> Result<()> {
        if !self.is_at_its_path() {
            return Err(Errno::STALE);
        }
        let mut path = lock(&self.path);
        rustix::fs::renameat_with(CWD, &*path, CWD, to, RenameFlags::NOREPLACE)?;
        *path = to.to_path_buf();
        Ok(())
    }

    fn is_at_its_path(&self) -> bool {
        rustix::fs::lstat(self.path()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }

    /// Removes the file, if it is still the one at its path.
    pub fn remove(&self) {
        if self.is_at_its_path() {
            let _ = rustix::fs::unlink(self.path());
        }
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.mapped) };
    }
}

/// Whether the process that made the file is dead.
fn has_ended_holder(file: &BareFd) -> bool {
    let mut holder = [0; 8];
    let is_there = rustix::io::pread(file.as_fd(), &mut holder, HOLDER_AT as u64) == Ok(8);
    let holder = u64::from_le_bytes(holder);
    is_there && has_ended(holder as u32, (holder >> 32) as u32)
}

fn allocate(file: &BareFd, from: usize, bytes: usize) -> Result<()> {
    may_extend((from + bytes) as u64, || Ok(0))?;
    rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), from as u64, bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::machine::random_u64;
    use crate::sync::plain::atomic::AtomicBool;

    fn path() -> PathBuf {
        PathBuf::from(format!("/dev/shm/plfs-test-locked-{:016x}", random_u64()))
    }

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A `plfs run` looked for what the dead had left, between the open and the lock of a new file:
    /// so one of 3,000 files that a process wrote had no journal, and SIGKILL lost it.
    #[test]
    fn one_is_made_though_somebody_looks_at_it() {
        let path = path();
        let ends = Arc::new(AtomicBool::new(false));
        let looks = [false, true].map(|inherits| {
            let (path, ends) = (path.clone(), ends.clone());
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    match inherits {
                        true => drop(LockedMemory::inherit(&path, me()).unwrap()),
                        false => drop(LockedMemory::look(&path, me()).unwrap()),
                    }
                }
            })
        });
        for _ in 0..3000 {
            let memory = LockedMemory::create(&path, me(), 4096, 1 << 20).unwrap();
            assert!(memory.is_at_its_path());
            memory.remove();
        }
        ends.store(true, Ordering::Relaxed);
        for thread in looks {
            thread.join().unwrap();
        }
    }

    #[test]
    fn who_lives_keeps_it_and_who_comes_after_has_what_was_there() {
        let path = path();
        let memory = Arc::new(LockedMemory::create(&path, me(), 4096, 1 << 20).unwrap());
        memory.word(8).store(7, Ordering::SeqCst);
        memory.allocate(1 << 19, 4096).unwrap();
        let mut part = memory.take(1 << 19, 4096).unwrap();
        part.put(1, b"left");
        for (from, length) in [(1 << 19, 1), ((1 << 19) - 1, 2), (0, 8), (1 << 20, 1)] {
            assert!(memory.take(from, length).is_none(), "{from}, {length}");
        }
        assert!(matches!(LockedMemory::inherit(&path, me()).unwrap(), Inherited::Held));
        assert_eq!(
            LockedMemory::create(&path, me(), 4096, 4096).map(drop).unwrap_err(),
            Errno::EXIST
        );
        drop((memory, part));
        let Inherited::Left(left) = LockedMemory::inherit(&path, me()).unwrap() else {
            panic!("nobody holds it");
        };
        let left = Arc::new(left);
        assert_eq!(left.word(8).load(Ordering::SeqCst), 7);
        assert_eq!(left.len(), (1 << 19) + 4096);
        assert_eq!(left.take(1 << 19, 4096).unwrap().bytes(0, 6), b"\0left\0");
        left.remove();
        assert!(matches!(LockedMemory::inherit(&path, me()).unwrap(), Inherited::Nothing));
        assert_eq!(left.allocate(0, 8192), Err(Errno::STALE));
    }
}
