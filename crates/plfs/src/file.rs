//! L5: one open logical file. Joins a writer and an index; own writes are visible at once.
//!
//! All handles of a process on one file share a [`LogicalFile`]; a [`File`] is one handle with its own access mode and read-ahead.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use plfs_format::summary::Summary;
use plfs_format::superblock::FILE_BYTES;
use plfs_format::{Bad, MAX_OFFSET, name};

use crate::config::Config;
use crate::container::{self, Container, Hold, Totalizer, Totals};
use crate::error::{At, Error, Result};
use crate::index::{Found, Index, Run, store_flat};
use crate::log::{LogSet, Seen, lock};
use crate::read::{Prefetch, SegmentFiles, fetch};
use crate::store::{Bytes, Errno, Open, Stat, StoreFile, Time};
use crate::ticker;
use crate::write::{Identity, Writer};

/// What the handles of one process on one logical file share.
#[derive(Debug)]
pub(crate) struct LogicalFile {
    pub(crate) container: Arc<Container>,
    config: Arc<Config>,
    /// The directory of the name that it was opened by.
    name_dir: Option<PathBuf>,
    /// The summary as it was when the file was opened, and the index logs read since.
    totals: Mutex<Totalizer>,
    /// `None` until the first read.
    index: RwLock<Option<Index>>,
    /// Someone opened the file after the index was loaded: look again before the next read.
    stale: AtomicBool,
    /// Someone opened the file after the writer joined: what is written from now on is younger than what is there now, and appends go behind it.
    unordered: AtomicBool,
    segments: SegmentFiles,
    writer: RwLock<Option<Arc<Writer>>>,
    /// There may be a writer: spares reads of files that are only read a lock.
    joined: AtomicBool,
    /// The superblock, open for writing, if this process created it with a mode that would not let it open it again.
    creation: Mutex<Option<Arc<dyn StoreFile>>>,
    /// Held with a shared lock while the file is open, so that unlink in another process leaves the container to us.
    guard: Mutex<Option<Hold>>,
    /// This process removed a name of the file while it was open.
    pub(crate) nameless: AtomicBool,
    /// Data was written since the last explicit setting of the times.
    touched: AtomicBool,
    /// The times were set explicitly since.
    times_set: AtomicBool,
    /// Largest logical end written through this process.
    written_end: AtomicU64,
    finished: bool,
    /// The ticker will commit it.
    pub(crate) watched: AtomicBool,
    /// Created by this process, and nothing was asked of it yet: there is nothing of others to know.
    is_new: AtomicBool,
    /// What another process said that it has seen, which the first write need not look for then.
    told: Mutex<Option<Seen>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("set", self.set()).finish_non_exhaustive()
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl LogicalFile {
    /// A file that this process has just created, with its superblock if it could not open that again.
    pub(crate) fn created(container: Arc<Container>, config: Arc<Config>, creation: Option<Arc<dyn StoreFile>>, name: &Path) -> LogicalFile {
        let file = LogicalFile::new(container, config, None, name);
        file.is_new.store(true, Ordering::Release);
        *lock(&file.creation) = creation;
        file
    }

    /// A file that was opened as `name`.
    pub(crate) fn new(container: Arc<Container>, config: Arc<Config>, summary: Option<Summary>, name: &Path) -> LogicalFile {
        LogicalFile {
            name_dir: name.parent().map(Path::to_path_buf),
            is_new: AtomicBool::new(false),
            told: Mutex::new(None),
            watched: AtomicBool::new(false),
            container,
            config,
            totals: Mutex::new(Totalizer::new(summary)),
            index: RwLock::new(None),
            stale: AtomicBool::new(false),
            unordered: AtomicBool::new(false),
            segments: SegmentFiles::default(),
            writer: RwLock::new(None),
            joined: AtomicBool::new(false),
            creation: Mutex::new(None),
            guard: Mutex::new(None),
            nameless: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            times_set: AtomicBool::new(false),
            written_end: AtomicU64::new(0),
            finished: false,
        }
    }

    /// The next read looks for others' commits.
    pub(crate) fn acquire(&self) {
        self.stale.store(true, Ordering::Release);
        self.unordered.store(true, Ordering::Release);
        self.is_new.store(false, Ordering::Release);
    }

    /// The writer, ready to write behind everything that was there at the last acquire.
    fn ordered_writer(&self, fresh: bool) -> Result<Arc<Writer>> {
        let writer = self.writer(fresh)?;
        if self.unordered.load(Ordering::Acquire) && self.unordered.swap(false, Ordering::AcqRel) {
            match self.totals() {
                Ok(totals) => {
                    writer.set().observe(totals.max_hlc);
                    writer.set().reached(totals.size);
                    writer.seal();
                }
                Err(error) => {
                    self.unordered.store(true, Ordering::Release);
                    return Err(error);
                }
            }
        }
        Ok(writer)
    }

    /// Keeps the data while a process uses it, though another removes the last name.
    pub(crate) fn hold(&self) -> Result<()> {
        let mut guard = lock(&self.guard);
        if guard.is_none() {
            *guard = Some(Hold::take(&self.container, self.config.shared_memory.as_deref())?);
        }
        Ok(())
    }

    /// The index, with everything in it that a read must see.
    fn index(&self) -> Result<RwLockReadGuard<'_, Option<Index>>> {
        let dirty = || self.joined.load(Ordering::Acquire) && read(&self.writer).as_ref().is_some_and(|writer| writer.is_dirty());
        let index = read(&self.index);
        if index.is_some() && !self.stale.load(Ordering::Acquire) && !dirty() {
            return Ok(index);
        }
        drop(index);
        self.hold()?;
        {
            let mut slot = write(&self.index);
            let stale = self.stale.swap(false, Ordering::AcqRel);
            if let Err(error) = self.look(&mut slot, stale) {
                self.stale.store(true, Ordering::Release);
                return Err(self.gone_or(error));
            }
        }
        Ok(read(&self.index))
    }

    /// What is missing because another node took the whole container away is ESTALE, as on NFS.
    fn gone_or(&self, error: Error) -> Error {
        let dir = &self.container.dir;
        if error.errno() == Errno::NOENT && self.container.store.stat(dir, false) == Err(Errno::NOENT) {
            return Error::Io { op: "use, because it was removed,", path: dir.clone(), errno: Errno::STALE };
        }
        error
    }

    fn look(&self, slot: &mut Option<Index>, stale: bool) -> Result<()> {
        let begun = match slot.as_mut() {
            None => {
                *slot = Some(Index::load_summed_up(&self.container, self.settled()?)?);
                true
            }
            Some(index) => stale && index.refresh(&self.container)?,
        };
        if let (Some(index), Some(writer)) = (slot.as_mut(), read(&self.writer).as_ref()) {
            if begun {
                index.add_own(&writer.frozen());
            }
            if writer.is_dirty() {
                index.add_own(&writer.freeze()?);
            }
            self.mend(index, Some(writer))?;
            if stale || begun {
                writer.set().observe(index.max_hlc());
                writer.seal();
            }
        }
        Ok(())
    }

    /// Does without a flat index in which a block was found damaged.
    fn do_without_flat(&self) -> Result<()> {
        let mut slot = write(&self.index);
        match slot.as_mut() {
            Some(index) => self.mend(index, read(&self.writer).as_deref()),
            None => Ok(()),
        }
    }

    /// Reads the logs instead, if what is known is not to be believed, and adds what is in none of them.
    fn mend(&self, index: &mut Index, writer: Option<&Writer>) -> Result<()> {
        let Some(why) = index.is_broken() else { return Ok(()) };
        index.begin_anew(&self.container, why)?;
        if let Some(writer) = writer {
            index.add_own(&writer.frozen());
        }
        Ok(())
    }

    /// The summary, if it counts at this moment.
    fn settled(&self) -> Result<Option<Summary>> {
        lock(&self.totals).settled(&self.container)
    }

    /// Reads by an index that processes have loaded together; what this process wrote and has not committed is added.
    fn use_index(&self, bytes: Bytes) -> Result<()> {
        self.hold()?;
        let mut slot = write(&self.index);
        let generation = slot.as_ref().map_or(0, |index| index.generation() + 1);
        self.stale.store(false, Ordering::Release);
        let mut index = Index::use_encoded(&self.container, bytes, lock(&self.totals).summary(), generation)?;
        if let Some(writer) = read(&self.writer).as_ref() {
            index.add_own(&writer.frozen());
            self.mend(&mut index, Some(writer))?;
            writer.set().observe(index.max_hlc());
            writer.seal();
        }
        *slot = Some(index);
        Ok(())
    }

    /// Totals as of the last commits, by summary or index logs.
    fn totals(&self) -> Result<Totals> {
        lock(&self.totals).look(&self.container)
    }

    fn writer(&self, fresh: bool) -> Result<Arc<Writer>> {
        if let Some(writer) = read(&self.writer).as_ref() {
            return Ok(writer.clone());
        }
        let mut slot = write(&self.writer);
        if let Some(writer) = slot.as_ref() {
            return Ok(writer.clone());
        }
        self.hold()?;
        let told = lock(&self.told).take();
        let seen = match (self.is_new.swap(false, Ordering::AcqRel), told) {
            (true, _) => Seen { max_hlc: 0, is_new: true },
            (false, Some(seen)) => seen,
            (false, None) => self.seen()?,
        };
        let identity = Identity::of_this_process(self.container.store.user());
        let set = LogSet::join(self.container.clone(), &self.config, seen, fresh, &identity.mark())?;
        let writer = Arc::new(Writer::new(self.container.clone(), set, &self.config, identity));
        *slot = Some(writer.clone());
        // For good: a writer that left may come back.
        self.joined.store(true, Ordering::Release);
        Ok(writer)
    }

    fn seen(&self) -> Result<Seen> {
        if self.is_new.load(Ordering::Acquire) {
            return Ok(Seen { max_hlc: 0, is_new: true });
        }
        let totals = self.totals()?;
        Ok(Seen { max_hlc: totals.max_hlc, is_new: totals.log_sets == 0 })
    }

    /// The times were set explicitly: they stay until more is written.
    pub(crate) fn times_were_set(&self) {
        self.touched.store(false, Ordering::Release);
        self.times_set.store(true, Ordering::Release);
    }

    /// Size with this process's own writes, and the totals as of the last commits.
    pub(crate) fn size(&self) -> Result<(u64, Totals)> {
        loop {
            let before = self.written_end.load(Ordering::Acquire);
            let totals = self.totals()?;
            // Own commits are in both. Truncates commit at once and reset the second.
            let end = self.written_end.load(Ordering::Acquire);
            if end >= before {
                return Ok((totals.size.max(end), totals));
            }
            // A commit has moved the end into the logs since; the totals may be from before.
        }
    }

    pub(crate) fn commit(&self, sync: bool, truncate: Option<u64>) -> Result<()> {
        self.commit_stamped(sync, truncate).map(drop)
    }

    /// Gives the truncate's stamp.
    fn commit_stamped(&self, sync: bool, truncate: Option<u64>) -> Result<Option<u64>> {
        let Some(writer) = read(&self.writer).clone() else {
            if sync {
                container::sync_logs(&self.container, None)?;
                self.sync_names()?;
            }
            return Ok(None);
        };
        // The index is locked first, as in `index`: a read that follows sees what was committed.
        let mut slot = write(&self.index);
        let end = self.written_end.load(Ordering::Acquire);
        let committed = writer.commit(sync, truncate)?;
        if let Some(index) = slot.as_mut() {
            index.add_committed(&committed);
        }
        drop(slot);
        // From now on the logs say it, and truncates by others count.
        let _ = self.written_end.compare_exchange(end, 0, Ordering::AcqRel, Ordering::Relaxed);
        if sync {
            // What was written in earlier sessions, and closed without a sync, counts as well.
            writer.set().sync_names_once(|| {
                container::sync_logs(&self.container, Some(writer.set().id()))?;
                self.sync_names()
            })?;
        }
        Ok(committed.truncate.map(|(stamp, _)| stamp))
    }

    /// Makes the superblock durable, the directories between it and the root, and the name.
    fn sync_names(&self) -> Result<()> {
        let store = &self.container.store;
        let path = self.container.path(name::SUPER);
        store.open(&path, Open::READ).at("open", &path)?.sync_data().at("sync", &path)?;
        let above: Vec<&Path> = self.container.dir.ancestors().take(4).collect();
        let below = self.name_dir.as_deref().filter(|dir| !above.contains(dir));
        for dir in above.iter().copied().chain(below) {
            match store.sync_dir(dir) {
                // A directory that we may not open was made by someone else, before; and the name may have moved.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM) => {}
                Err(Errno::NOENT | Errno::NOTDIR) if Some(dir) == below => {}
                Err(errno) => return Err(errno).at("sync", dir),
            }
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        if read(&self.writer).is_none() && self.totals()?.size == size {
            return Ok(());
        }
        let to_nothing = size == 0;
        let writer = self.ordered_writer(to_nothing)?;
        // The old logs may go only when the truncate is durable: or a power cut would bring back a part of the old bytes.
        let stamp = self.commit_stamped(to_nothing, Some(size))?;
        self.written_end.store(0, Ordering::Release);
        writer.set().truncated(size);
        self.touched.store(true, Ordering::Release);
        if to_nothing && let Some(stamp) = stamp {
            container::remove_stale_sets(&self.container, writer.set().id(), stamp)?;
        }
        Ok(())
    }

    fn write(self: &Arc<Self>, run: Run, bytes: &[u8]) -> Result<usize> {
        if !self.watched.swap(true, Ordering::AcqRel) {
            ticker::watch(self);
        }
        let writer = self.ordered_writer(false)?;
        let written = writer.write(run, bytes)?;
        let end = written.end;
        if self.written_end.load(Ordering::Relaxed) < end {
            self.written_end.fetch_max(end, Ordering::AcqRel);
        }
        writer.set().reached(end);
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Release);
        }
        if written.crowded {
            self.commit(false, None)?;
        }
        Ok(written.bytes)
    }

    /// Commits if anything was written since the last commit; else the next write is to be watched anew. Whether it did.
    pub(crate) fn tick(&self) -> bool {
        let uncommitted = read(&self.writer).as_ref().is_some_and(|writer| writer.has_uncommitted());
        if !uncommitted {
            self.watched.store(false, Ordering::Release);
            // Written between the look and the store: it would be forgotten.
            if !read(&self.writer).as_ref().is_some_and(|writer| writer.has_uncommitted()) || self.watched.swap(true, Ordering::AcqRel) {
                return false;
            }
        }
        // An error poisons the writer and shows at its next call.
        let _ = self.commit(false, None);
        true
    }

    /// Forgets the writer without leaving its log set: the child of a fork, whose parent goes on with it.
    pub(crate) fn forget_writer(&self) {
        self.is_new.store(false, Ordering::Release);
        self.watched.store(false, Ordering::Release);
        if let Some(writer) = write(&self.writer).take() {
            // Its memory is shared history: dropping it would close descriptors that are the child's own copies, which is right, and unlock
            // nothing, because flock locks belong to the parent's descriptors too.
            drop(writer);
        }
    }

    /// Commits and gives up the log set; the next write joins again.
    pub(crate) fn leave(&self) -> Result<()> {
        if read(&self.writer).is_none() {
            return Ok(());
        }
        let committed = self.commit(self.config.sync_on_close, None);
        let mut slot = write(&self.writer);
        let Some(writer) = slot.take() else { return committed };
        let left = match Arc::try_unwrap(writer) {
            Ok(writer) => writer.leave(),
            Err(busy) => {
                // Another thread is writing: it goes on with the set.
                *slot = Some(busy);
                return committed;
            }
        };
        drop(slot);
        committed.and(left.and_then(|last| self.sum_up(last)))
    }

    /// Sets owner and group through `container`, which may act as somebody else than this file's store does.
    pub(crate) fn chown_by(&self, container: &Container, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        // The log set is the old owner's: the new one goes on with another.
        let store = &self.container.store;
        if uid.is_some_and(|uid| uid != store.user() && store.for_owner(uid, u32::MAX).is_some()) {
            self.leave()?;
        }
        container::chown(container, uid, gid)?;
        store.owner_changed(uid, gid);
        Ok(())
    }

    /// The last handle of the process is gone: commit, leave the log set, sum up, remove what has no name.
    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let result = self.leave();
        let removed = self.remove_if_nameless();
        result.and(removed)
    }

    /// Removes the container if its last name went while this process had it open and nobody else has.
    pub(crate) fn remove_if_nameless(&self) -> Result<()> {
        // Whoever removed the last name while we held the container left it to us; if we never held it, they removed it themselves.
        if lock(&self.guard).is_some() || self.nameless.load(Ordering::Acquire) {
            let super_path = self.container.path(name::SUPER);
            if !self.container.copied && self.container.store.stat(&super_path, false).is_ok_and(|stat| stat.nlink <= 1) {
                // Our own claim goes first.
                drop(lock(&self.guard).take());
                container::remove_if_nameless(&self.container, self.config.shared_memory.as_deref())?;
            }
        }
        Ok(())
    }

    /// The node's last writer has left: if it was the last of all, it writes the summary, which also moves the modification time. Others leave both to the last one.
    fn sum_up(&self, last: bool) -> Result<()> {
        if !last {
            return Ok(());
        }
        let names = self.container.list()?;
        if container::has_owner(&names) {
            return Ok(());
        }
        let (touched, set) = (self.touched.swap(false, Ordering::AcqRel), self.times_set.swap(false, Ordering::AcqRel));
        let path = self.container.path(name::SUPER);
        let before = match self.container.store.stat(&path, false) {
            // Removed under us: nothing to sum up.
            Err(Errno::NOENT) => return Ok(()),
            other => other.at("stat", &path)?,
        };
        let creation = lock(&self.creation).take();
        let mut rewrote = false;
        // A summary that this user may not write costs the next stat a look at the logs, nothing else.
        if let Ok(file) = creation.map_or_else(|| container::open_super(&self.container), Ok) {
            rewrote = container::write_summary(&self.container, file.as_ref(), &names)?;
            // Other clients look at the superblock first of all: they should not wait for what this one changed in it.
            container::publish((!self.container.local).then_some(file.as_ref()));
        }
        match (touched, rewrote) {
            (true, false) => self.touch(),
            // Times that were set after the last write stay.
            (false, true) if set => self.container.store.set_times(&path, Some(before.atime), Some(before.mtime)).or(Ok(())),
            _ => Ok(()),
        }
    }

    /// Sets the modification time to now.
    fn touch(&self) -> Result<()> {
        let path = self.container.path(name::SUPER);
        match self.container.store.set_times(&path, None, Some(now())) {
            // Only the owner may set times; whoever may write can change an unused byte, which does the same.
            Err(Errno::PERM | Errno::ACCESS) => {
                if let Ok(file) = container::open_super(&self.container) {
                    let _ = file.write_at(&[0], FILE_BYTES as u64 - 1);
                }
                Ok(())
            }
            other => other.at("set the times of", &path),
        }
    }
}

impl Drop for LogicalFile {
    fn drop(&mut self) {
        // `File::close` has finished already, unless someone who only looked was the last to let go.
        let _ = self.finish();
    }
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

pub(crate) fn now_ns() -> u64 {
    let now = now();
    now.sec as u64 * 1_000_000_000 + now.nsec as u64
}

/// What a handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
}

/// One visible piece of a logical file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the data log.
    pub physical: u64,
    /// The data log.
    pub data_log: PathBuf,
}

/// One handle on a logical file. Thread-safe; calls name their offsets.
///
/// Closing commits. Dropping closes too, but nobody hears of its errors.
#[derive(Debug)]
pub struct File {
    logical: Option<Arc<LogicalFile>>,
    path: PathBuf,
    access: Access,
    reader: Mutex<Reader>,
    wrote: AtomicBool,
}

#[derive(Debug)]
struct Reader {
    prefetch: Prefetch,
    pieces: Vec<Found>,
}

impl File {
    pub(crate) fn new(logical: Arc<LogicalFile>, path: PathBuf, access: Access) -> File {
        let reader = Reader { prefetch: Prefetch::new(logical.container.local), pieces: Vec::new() };
        File { logical: Some(logical), path, access, reader: Mutex::new(reader), wrote: AtomicBool::new(false) }
    }

    pub(crate) fn logical(&self) -> &Arc<LogicalFile> {
        // INVARIANT: `logical` is taken by close and drop only, which end the handle.
        self.logical.as_ref().expect("an open handle has its logical file")
    }

    /// The container, for tools.
    pub fn container(&self) -> &Container {
        &self.logical().container
    }

    /// The path that the handle was opened with, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the handle may do.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Reads into `buf` at `offset`; returns the bytes read, fewer than asked only at the end of the file. Sees all own writes, and others' commits as of the last open,
    /// refresh or read at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.may_read()?;
        self.read_pieces(buf, buf.len(), 0, offset)
    }

    /// Reads pieces of `length` bytes into `buf`, one after the other: piece i comes from `offset + i * stride`. Returns the bytes read; stops at the first piece that the
    /// file does not fill, or that fails when others have been read: then the next call that begins there gives the error. Otherwise as [`read_at`](File::read_at).
    ///
    /// The arguments are [`write_strided`](File::write_strided)'s, with the same errors. Costs one lookup a piece; pieces that are neighbours in a data log are fetched together.
    pub fn read_strided(&self, buf: &mut [u8], length: usize, stride: i64, offset: u64) -> Result<usize> {
        self.may_read()?;
        if is_contiguous(buf.len(), length, stride, offset)? {
            return self.read_at(buf, offset);
        }
        self.read_pieces(buf, length, stride, offset)
    }

    fn read_pieces(&self, buf: &mut [u8], length: usize, stride: i64, offset: u64) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let n = self.read_known(buf, length, stride, offset)?;
        if n == buf.len() {
            return Ok(n);
        }
        // At the end: others may have gone on.
        self.logical().acquire();
        self.read_known(buf, length, stride, offset)
    }

    fn read_known(&self, buf: &mut [u8], length: usize, stride: i64, offset: u64) -> Result<usize> {
        match self.try_read(buf, length, stride, offset) {
            Err(_) if self.with_index(|index| index.is_broken().is_some())? => {
                self.logical().do_without_flat()?;
                self.try_read(buf, length, stride, offset)
            }
            // The logs were removed under us: after a truncate to nothing there are new ones.
            Err(Error::MissingData { errno: Errno::NOENT, .. }) => {
                self.logical().acquire();
                self.logical().segments.clear();
                self.try_read(buf, length, stride, offset)
            }
            other => other,
        }
    }

    fn try_read(&self, buf: &mut [u8], length: usize, stride: i64, offset: u64) -> Result<usize> {
        let index = self.logical().index()?;
        // INVARIANT: `index()` loads it.
        let known = index.as_ref().expect("the index is loaded");
        let mut reader = match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(reader)) => Some(reader.into_inner()),
            // Another thread is reading through this handle: side by side beats read-ahead.
            Err(TryLockError::WouldBlock) => None,
        };
        let (mut done, mut at) = (0, offset);
        for piece in buf.chunks_mut(length) {
            let n = match self.read_piece(known, reader.as_deref_mut(), piece, at) {
                Ok(n) => n,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += n;
            if n < piece.len() {
                break;
            }
            at = at.wrapping_add_signed(stride);
        }
        Ok(done)
    }

    fn read_piece(&self, known: &Index, reader: Option<&mut Reader>, buf: &mut [u8], offset: u64) -> Result<usize> {
        let logical = self.logical();
        let eof = known.eof();
        if offset >= eof {
            return Ok(0);
        }
        let n = buf.len().min(usize::try_from(eof - offset).unwrap_or(usize::MAX));
        let buf = &mut buf[..n];
        let lies =
            || Error::Corrupt { path: logical.container.path(name::FLAT), bad: Bad { at_bytes: 0, what: "an entry names a segment that is not listed" } };
        let sound = || match known.is_broken() {
            Some(what) => Err(Error::Corrupt { path: logical.container.path(name::FLAT), bad: Bad { at_bytes: 0, what } }),
            None => Ok(()),
        };
        let read = |piece: &Found, out: &mut [u8]| {
            let at = known.segment(piece.segment).ok_or_else(lies)?;
            logical.segments.read(&logical.container, at, piece.physical, out)
        };
        match reader {
            Some(Reader { prefetch, pieces }) => {
                known.lookup(offset, offset + n as u64, pieces);
                sound()?;
                fetch(offset, buf, pieces, |piece, out| {
                    let at = known.segment(piece.segment).ok_or_else(lies)?;
                    let ahead = |physical, buf: &mut [u8]| logical.segments.read_some(&logical.container, at, physical, buf);
                    match prefetch.read(known.generation(), piece, known.segment_end(piece.segment), out, ahead)? {
                        got if got < out.len() => read(piece, out),
                        _ => Ok(()),
                    }
                })?;
            }
            None => {
                let mut pieces = Vec::new();
                known.lookup(offset, offset + n as u64, &mut pieces);
                sound()?;
                fetch(offset, buf, &pieces, read)?;
            }
        }
        Ok(n)
    }

    /// Writes `buf` at `offset`; returns the bytes written. Visible to this process at once, to others after a commit.
    ///
    /// EFBIG past 2^63-1. A short count means that the store is full behind it.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.may_write()?;
        if buf.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_OFFSET {
            return Err(Error::invalid(Errno::FBIG, "a file ends at 2^63-1 bytes"));
        }
        let n = buf.len().min(usize::try_from(MAX_OFFSET - offset).unwrap_or(usize::MAX));
        self.mark_written();
        self.logical().write(Run::single(offset, n as u64, 0, 0), &buf[..n])
    }

    /// Writes `buf` as pieces of `length` bytes: piece i goes to `offset + i * stride`. Returns the bytes written, in the order of `buf`; otherwise as
    /// [`write_at`](File::write_at).
    ///
    /// `buf` is a whole number of pieces. `stride` may be negative; if there are several pieces its magnitude must be at least `length` (EINVAL). EINVAL if a piece would
    /// begin before the file, EFBIG if one would end past 2^63-1; then nothing is written. All pieces have the same place in the order of writes (SEMANTICS S9).
    ///
    /// Costs what one contiguous write of `buf` costs: the bytes go to the data log in one piece, and the index gets one record; a call that goes on with the pattern of the one
    /// before adds none.
    pub fn write_strided(&self, buf: &[u8], length: usize, stride: i64, offset: u64) -> Result<usize> {
        self.may_write()?;
        if is_contiguous(buf.len(), length, stride, offset)? {
            return self.write_at(buf, offset);
        }
        self.mark_written();
        let (mut done, mut logical) = (0, offset);
        // The count of a record is 32 bits.
        for part in buf.chunks(length.saturating_mul(u32::MAX as usize)) {
            let count = (part.len() / length) as u32;
            let run = Run { logical, length: length as u64, stride: if count == 1 { 0 } else { stride }, count, segment: 0, physical: 0 };
            let n = match self.logical().write(run, part) {
                Err(error) if done == 0 => return Err(error),
                result => result.unwrap_or(0),
            };
            done += n;
            if n < part.len() {
                break;
            }
            logical = logical.wrapping_add_signed(stride.wrapping_mul(i64::from(count)));
        }
        Ok(done)
    }

    /// Writes `buf` at the end of the file, atomically among the processes of this node; gives the offset where it went and the bytes written.
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.may_write()?;
        let writer = self.logical().ordered_writer(false)?;
        let offset = writer.append_position(buf.len() as u64, || Ok(self.logical().totals()?.size))?;
        drop(writer);
        Ok((offset, self.write_at(buf, offset)?))
    }

    fn mark_written(&self) {
        if !self.wrote.load(Ordering::Relaxed) {
            self.wrote.store(true, Ordering::Release);
        }
    }

    /// Makes all writes through this process visible to later opens and refreshes elsewhere. Not forced to storage.
    pub fn commit(&self) -> Result<()> {
        self.logical().commit(false, None)
    }

    /// Makes all writes through this process visible and durable. Later reads see what others have committed until now: processes that sync, meet, and read expect it.
    pub fn sync(&self) -> Result<()> {
        self.logical().commit(true, None)?;
        self.logical().stale.store(true, Ordering::Release);
        Ok(())
    }

    /// The next reads see what others have committed until now.
    pub fn refresh(&self) -> Result<()> {
        self.logical().acquire();
        self.logical().index().map(drop)
    }

    /// Sets the size: cuts, or extends with a hole. Visible at once everywhere.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.may_write()?;
        if size > MAX_OFFSET {
            return Err(Error::invalid(Errno::FBIG, "a file ends at 2^63-1 bytes"));
        }
        self.mark_written();
        self.logical().truncate(size)
    }

    /// Size of the logical file: all commits, and this process's own writes.
    pub fn len(&self) -> Result<u64> {
        Ok(self.logical().size()?.0)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Stat of the logical file.
    pub fn stat(&self) -> Result<Stat> {
        let path = self.container().path(name::SUPER);
        if self.logical().touched.swap(false, Ordering::AcqRel) {
            self.logical().touch()?;
        }
        let stat = self.container().store.stat(&path, false).at("stat", &path)?;
        let (size, totals) = self.logical().size()?;
        Ok(logical_stat(stat, size, totals.stored_bytes))
    }

    /// What the container's logs add up to.
    pub fn totals(&self) -> Result<Totals> {
        self.logical().totals()
    }

    /// Offset of the first written byte at or after `from` (SEEK_DATA); `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        self.with_sound_index(|index| index.next_data(from))
    }

    /// Offset of the first hole at or after `from` (SEEK_HOLE); the end of the file is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        self.with_sound_index(|index| index.next_hole(from))
    }

    /// Calls `visit` with the index as a read would use it.
    pub fn with_index<T>(&self, visit: impl FnOnce(&Index) -> T) -> Result<T> {
        let index = self.logical().index()?;
        // INVARIANT: `index()` loads it.
        Ok(visit(index.as_ref().expect("the index is loaded")))
    }

    /// [`with_index`](File::with_index), again without the flat index if `visit` came upon a damaged block of it.
    fn with_sound_index<T>(&self, visit: impl Fn(&Index) -> T) -> Result<T> {
        let (seen, broken) = self.with_index(|index| (visit(index), index.is_broken().is_some()))?;
        if !broken {
            return Ok(seen);
        }
        self.logical().do_without_flat()?;
        self.with_index(visit)
    }

    /// Bytes of index logs that a first read has to read, past what the flat index has. Costs a look at each log, not its contents.
    pub fn index_pending(&self) -> Result<u64> {
        Index::pending_bytes(self.container(), self.logical().settled()?)
    }

    /// What a process that writes must know of others' commits until now. For programs whose processes open a file together: one looks, the others are [told](File::tell), instead of
    /// each looking at all index logs.
    pub fn seen(&self) -> Result<Seen> {
        self.logical().seen()
    }

    /// This process writes behind what another process of the program has seen. Without effect once it has written.
    pub fn tell(&self, seen: Seen) {
        *lock(&self.logical().told) = Some(seen);
    }

    /// A share of the index for processes that load it together: every `parts`-th index log from the `part`-th on, encoded as a flat index. All of them merged are everything committed
    /// so far.
    pub fn index_part(&self, part: u32, parts: u32) -> Result<Vec<u8>> {
        if part >= parts {
            return Err(Error::invalid(Errno::INVAL, "a part of an index is counted from 0 and below the number of parts"));
        }
        let container = self.container();
        Index::load_part(container, self.logical().settled()?, part, parts)?.encode(container, false)
    }

    /// What this node's log set has that no flat index has, encoded as one; `with_base` adds the flat index.
    pub fn index_own(&self, with_base: bool) -> Result<Vec<u8>> {
        let set = read(&self.logical().writer).as_ref().map(|writer| writer.set().id());
        Index::load_own(self.container(), set, with_base)?.encode(self.container(), false)
    }

    /// One encoded index of several.
    pub fn index_merge(&self, parts: &[&[u8]]) -> Result<Vec<u8>> {
        Index::merge(self.container(), parts)?.encode(self.container(), false)
    }

    /// Reads by this encoded index, where it lies, until others' commits are looked for.
    pub fn index_use(&self, bytes: Bytes) -> Result<()> {
        self.may_read()?;
        self.logical().use_index(bytes)
    }

    /// Makes an encoded index the container's flat index, atomically; not forced to storage.
    pub fn index_store(&self, bytes: &[u8]) -> Result<()> {
        self.may_write()?;
        // What cannot be read back must not replace what can.
        let mut index = Index::merge(self.container(), &[bytes])?;
        index.must_be_whole()?;
        let bytes = index.encode(self.container(), true)?;
        store_flat(self.container(), &bytes, false)
    }

    /// Sets times; they stay as set until data is written again.
    pub fn set_times(&self, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let path = self.container().path(name::SUPER);
        self.container().store.set_times(&path, atime, mtime).at("set the times of", &path)?;
        if mtime.is_some() {
            self.logical().times_were_set();
        }
        Ok(())
    }

    /// Sets permission bits, of the superblock and of what lets users into the container.
    pub fn chmod(&self, mode: u32) -> Result<()> {
        container::chmod(self.container(), mode)
    }

    /// Sets owner and group, of the superblock and of the container; logs stay their writers'.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        container::chown(self.container(), uid, gid)
    }

    /// The visible pieces of `[from, to)`, ascending; what they leave out is holes.
    pub fn extents(&self, from: u64, to: u64) -> Result<Vec<Extent>> {
        self.with_sound_index(|index| {
            let mut pieces = Vec::new();
            index.lookup(from, to.min(index.eof()), &mut pieces);
            let extent = |piece: Found| {
                let data_log = index.segment(piece.segment).map(|at| self.container().segment_path(&at)).unwrap_or_default();
                Extent { logical: piece.logical, length: piece.length, physical: piece.physical, data_log }
            };
            pieces.into_iter().map(extent).collect()
        })
    }

    /// Makes `[offset, offset + length)` read as zeros, without changing the size.
    pub fn zero(&self, offset: u64, length: u64) -> Result<()> {
        // Zeros are bytes like others; only what is written already is worth overwriting.
        let zeros = vec![0; 256 << 10];
        for piece in self.extents(offset, offset.saturating_add(length))? {
            let mut at = piece.logical;
            while at < piece.logical + piece.length {
                let n = (piece.logical + piece.length - at).min(zeros.len() as u64) as usize;
                let written = self.write_at(&zeros[..n], at)?;
                at += written as u64;
            }
        }
        Ok(())
    }

    /// Commits and ends the handle; the last handle of the last process on the node also leaves a summary.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(logical) = self.logical.take() else { return Ok(()) };
        let committed = match self.wrote.load(Ordering::Acquire) {
            true => logical.commit(logical.config.sync_on_close, None),
            false => Ok(()),
        };
        let finished = match Arc::into_inner(logical) {
            Some(mut logical) => logical.finish(),
            None => Ok(()),
        };
        committed.and(finished)
    }

    fn may_read(&self) -> Result<()> {
        if self.access.read { Ok(()) } else { Err(Error::invalid(Errno::BADF, "the file is not open for reading")) }
    }

    fn may_write(&self) -> Result<()> {
        if self.access.write { Ok(()) } else { Err(Error::invalid(Errno::BADF, "the file is not open for writing")) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Checks the arguments of a strided call on `total` bytes. True if the pieces follow each other without gaps, or there is only one.
fn is_contiguous(total: usize, length: usize, stride: i64, offset: u64) -> Result<bool> {
    if total == 0 {
        return Ok(true);
    }
    if length == 0 || total % length != 0 {
        return Err(Error::invalid(Errno::INVAL, "the buffer is not a whole number of pieces"));
    }
    let (length, steps) = (length as u64, (total / length - 1) as u64);
    if steps == 0 {
        return Ok(true);
    }
    if stride.unsigned_abs() < length {
        return Err(Error::invalid(Errno::INVAL, "the pieces of a strided call overlap"));
    }
    let last = i128::from(offset) + i128::from(steps) * i128::from(stride);
    if last < 0 {
        return Err(Error::invalid(Errno::INVAL, "a piece begins before the file"));
    }
    if last.max(offset.into()) + i128::from(length) > MAX_OFFSET.into() {
        return Err(Error::invalid(Errno::FBIG, "a file ends at 2^63-1 bytes"));
    }
    Ok(stride == length as i64)
}

/// A name's stat, turned into the logical file's.
pub(crate) fn logical_stat(stat: Stat, size: u64, stored_bytes: u64) -> Stat {
    Stat { len: size, blocks: stored_bytes.div_ceil(512), nlink: stat.nlink.saturating_sub(1), ..stat }
}
