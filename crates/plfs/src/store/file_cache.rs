//! Log files that stay open between two uses: a bounded number in the whole process.
//!
//! A process may have hundreds of logical files open, and each has logs that it writes or reads. To
//! open a log at each use would be slow, to keep all open takes the descriptors that the program
//! needs. So each log has a [`CachedFile`], and when more of them are open than [`limit`], or the
//! system refuses another descriptor, some are closed; their next use opens them again.
//!
//! Which ones: those that were not used since the cache looked last (a use costs one flag, not a
//! lock of all), and logs that are read before those that are written, as long as there are more of
//! the former than their share. Whoever writes has less to hope for from another open: the file's
//! mode or the process's user may have changed since the first one (EACCES), and a POSIX writer
//! would go on. A file in use is never closed.
//!
//! What closing would say is not lost: on a network file system (EDQUOT, EIO) it is asked for, and
//! fails whatever is done with the log next, [`CachedFile::failure`] included. That a local write
//! failed after its descriptor was closed is told to the next one who syncs (Linux keeps it in the
//! inode), as long as the inode stays in memory.
//!
//! Files without a descriptor, of stores in memory, stay open.
//!
//! Locks: a file's own, then the queue's. Whoever has the queue's lock takes no other, and whoever
//! wants to close a file only tries its lock.

use super::{Errno, Result, StoreFile, posix};
use crate::sync::atomic::AtomicBool;
use crate::sync::plain::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, Weak, lock, plain};
use std::collections::VecDeque;

/// Descriptors that open logs may take: an eighth of what the process may have, which leaves room
/// for 400 logical files (two descriptors each) below the usual 1,024. At least 16, the logs that a
/// few threads use at the same time; at most 4,096.
fn limit() -> usize {
    (posix::soft_limit() / 8).clamp(16, 4096) as usize
}

/// What a log is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Write {
        /// Closing can be an error.
        is_told_at_close: bool,
    },
}

/// A log that is open at times.
#[derive(Debug)]
pub struct CachedFile {
    what_for: Use,
    /// It was used since the cache looked last.
    used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<Arc<dyn StoreFile>>,
    /// It is in the cache's queue, and counts.
    is_counted: bool,
    /// Device and inode of the file when it was closed, if it is for writing.
    closed: Option<(u64, u64)>,
    /// What closing it said.
    failed: Option<Errno>,
}

/// Logs that are open for one purpose, in the order in which they are to be looked at.
struct Queue {
    files: plain::Mutex<Files>,
    /// How many are open.
    open: AtomicUsize,
}

struct Files {
    order: VecDeque<Weak<CachedFile>>,
    /// Entries at which those of dropped files go.
    limit: usize,
}

/// Entries of dropped files that are not worth a look.
const DROPPED_MAX: usize = 64;

impl Queue {
    const fn new() -> Queue {
        Queue {
            files: plain::Mutex::new(Files { order: VecDeque::new(), limit: DROPPED_MAX }),
            open: AtomicUsize::new(0),
        }
    }

    fn push(&self, file: Weak<CachedFile>) {
        let mut files = plain::lock(&self.files);
        if files.order.len() >= files.limit {
            files.order.retain(|file| file.strong_count() > 0);
            files.limit = (2 * files.order.len()).max(DROPPED_MAX);
        }
        files.order.push_back(file);
    }

    /// Closes one that is not in use and was not used of late, if there is one.
    fn close_one(&self) -> bool {
        // The first time round may find all used.
        let tries = 2 * plain::lock(&self.files).order.len();
        for _ in 0..tries {
            let Some(first) = plain::lock(&self.files).order.pop_front() else { return false };
            let Some(file) = first.upgrade() else { continue };
            if file.close_unless_used() {
                self.open.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
            self.push(first);
        }
        false
    }
}

static READ: Queue = Queue::new();
static WRITTEN: Queue = Queue::new();

/// Open logs that do not go for the sake of files that are opened: those must not take the last
/// descriptors by which others that are open already can be written. 8: data and index log of four
/// threads.
const RESERVED: usize = 8;

/// Open logs that do not go for descriptors of a moment of open files either, as a sync needs them:
/// the program may take what becomes free after it, and each file can be written and committed as
/// long as a data log and an index log can be open.
const LAST: usize = 2;

fn open_logs() -> usize {
    READ.open.load(Ordering::Relaxed) + WRITTEN.open.load(Ordering::Relaxed)
}

/// Closes a log that nobody uses at this moment, unless only `leave` are open. Whether it did.
fn close_one(leave: usize) -> bool {
    if open_logs() <= leave {
        return false;
    }
    // Readers keep a quarter: beside many writers they would else open a log for each piece.
    let (first, then) = match READ.open.load(Ordering::Relaxed) > limit() / 4 {
        true => (&READ, &WRITTEN),
        false => (&WRITTEN, &READ),
    };
    first.close_one() || then.close_one()
}

/// Calls what needs a descriptor for a moment, for a file that is open; if there is none left,
/// again after an open log was closed.
pub(super) fn with_room<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    with_room_but(LAST, call)
}

/// The same for a descriptor that an open file keeps, or that is needed to open one.
pub(super) fn with_room_to_keep<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    with_room_but(RESERVED, call)
}

fn with_room_but<T>(leave: usize, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) if close_one(leave) => {}
            other => return other,
        }
    }
}

impl CachedFile {
    /// A log that will be opened for reading.
    pub fn for_reading() -> Arc<CachedFile> {
        CachedFile::new(Use::Read)
    }

    /// A log that will be opened for writing, on a file system of this machine or not.
    pub fn for_writing(is_local: bool) -> Arc<CachedFile> {
        CachedFile::new(Use::Write { is_told_at_close: !is_local })
    }

    fn new(what_for: Use) -> Arc<CachedFile> {
        Arc::new(CachedFile { what_for, used: AtomicBool::new(false), state: Mutex::default() })
    }

    fn queue(&self) -> &'static Queue {
        match self.what_for {
            Use::Read => &READ,
            Use::Write { .. } => &WRITTEN,
        }
    }

    /// The file, if it is open. It stays open as long as the result lives.
    pub fn get(&self) -> Option<Arc<dyn StoreFile>> {
        let file = lock(&self.state).file.clone()?;
        self.mark_used();
        Some(file)
    }

    fn mark_used(&self) {
        // Most are, and a line of memory that is only read stays in each processor's cache.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// The file, which `open` opens if it is not. It is told whether the file was open before: then
    /// it must not be created, and ESTALE says that it is not the same one.
    pub fn get_or_open(
        self: &Arc<Self>,
        mut open: impl FnMut(bool) -> Result<Arc<dyn StoreFile>>,
    ) -> Result<Arc<dyn StoreFile>> {
        let mut state = lock(&self.state);
        if let Some(errno) = state.failed {
            return Err(errno);
        }
        if let Some(file) = &state.file {
            self.mark_used();
            return Ok(file.clone());
        }
        let file = with_room_but(0, || open(state.closed.is_some()))?;
        if let Some(closed) = state.closed {
            let found = file.stat()?;
            if (found.dev, found.ino) != closed {
                return Err(Errno::STALE);
            }
        }
        state.file = Some(file.clone());
        if file.fd().is_none() {
            return Ok(file);
        }
        state.is_counted = true;
        drop(state);
        let queue = self.queue();
        queue.open.fetch_add(1, Ordering::Relaxed);
        queue.push(Arc::downgrade(self));
        let limit = limit();
        while close_one(limit) {}
        Ok(file)
    }

    /// False if it is closed and nobody opens it now.
    pub fn may_be_open(&self) -> bool {
        self.state.try_lock().map_or(true, |state| state.file.is_some())
    }

    /// What closing it said, if it was closed between two uses and that failed: bytes that were
    /// written to it are lost.
    pub fn failure(&self) -> Result<()> {
        lock(&self.state).failed.map_or(Ok(()), Err)
    }

    /// Says what close(2) would say, now or when it was closed.
    pub fn flush(&self) -> Result<()> {
        self.failure()?;
        self.get().map_or(Ok(()), |file| file.flush())
    }

    /// Closes it, if nobody uses it and it was not used since the last call.
    fn close_unless_used(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Ok(mut state) = self.state.try_lock() else { return false };
        let Some(file) = &state.file else { return false };
        if Arc::strong_count(file) > 1 {
            return false;
        }
        if let Use::Write { is_told_at_close } = self.what_for {
            let Ok(found) = file.stat() else { return false };
            match if is_told_at_close { file.flush() } else { Ok(()) } {
                Ok(()) => {}
                // To ask takes a descriptor.
                Err(Errno::MFILE | Errno::NFILE) => return false,
                Err(errno) => state.failed = Some(errno),
            }
            state.closed = Some((found.dev, found.ino));
        }
        (state.file, state.is_counted) = (None, false);
        true
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if lock(&self.state).is_counted {
            self.queue().open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
