//! A node's log set: the one index log and the few data logs that the processes of a node write a container with (docs/decisions/0002).
//!
//! What the processes share are numbers in a page of memory: tails of the streams, the hybrid logical clock, the append position. Regions are reserved by one
//! compare-and-swap on a tail; nobody waits for anybody's data. Index blocks are appended under the page's lock, which the kernel releases when
//! its holder dies.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use plfs_format::index_log::{Record, align_up, encode_block};
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::superblock::STREAMS_MAX;
use plfs_index::{REGION_ALIGN, next_region};

use crate::config::Config;
use crate::container::Container;
use crate::container::{publish, read_clock};
use crate::error::{At, Error, Result};
use crate::store::machine::random_u64;
use crate::store::shm::{PageGuard, SharedPage, WORDS};
use crate::store::{self, Errno, Open, StoreFile, Time};
use crate::sync::lock;

/// An index log longer than this is not taken over: whoever does reads it. 1 MiB: some 5,000 short sessions.
const TAKEOVER_MAX_BYTES: u64 = 1 << 20;

// Places in the shared page. Word 0 is 0 until the owner has set the page up.
const SET: usize = 0;
const CLOCK: usize = 1;
const NEXT_STREAM: usize = 2;
const EOF: usize = 3;
const SYNCED: usize = 4;
const INDEX_NAMED: usize = 5;
/// Where the last block that a process of the node appended ends.
const INDEX_END: usize = 8;
/// The index log is durable up to here.
const INDEX_SYNCED: usize = 9;
/// All data that blocks below this offset of the index log point to is durable.
const DATA_DURABLE: usize = 10;
const TAILS: usize = 16;
/// For each stream what was written and is not durable yet: see [`Unsynced`].
const UNSYNCED: usize = TAILS + STREAMS_MAX as usize;
const _: () = assert!(UNSYNCED + STREAMS_MAX as usize <= WORDS);
/// Word 0 = this bit + the set's number: set 0 is a valid number.
const READY: u64 = 1 << 32;
/// A tail is segment << 48 | offset.
const OFFSET_BITS: u32 = 48;

/// What the node's processes wrote to a stream and nobody has made durable: a word of the page.
///
/// A process sets it after its bytes are with the store and before an index block points to them. Whoever syncs clears it after the sync, unless it was set anew meanwhile: so
/// nobody finds it clear while another process's sync is still under way, and a process that dies in a sync leaves it set.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Unsynced(u64);

impl Unsynced {
    const SEGMENT_BITS: u32 = 33;
    const NEW_NAME: u64 = 1 << Unsynced::SEGMENT_BITS;
    const TURN: u64 = Unsynced::NEW_NAME << 1;

    /// The lowest segment with such bytes; `None`: all is durable.
    fn first(self) -> Option<u32> {
        (self.0 & (Unsynced::NEW_NAME - 1)).checked_sub(1).map(|first| first as u32)
    }

    /// A segment's file is new, and its name perhaps not durable.
    fn has_new_name(self) -> bool {
        self.0 & Unsynced::NEW_NAME != 0
    }

    fn with(self, segment: u32, new_name: bool) -> Unsynced {
        let first = self.first().map_or(segment, |first| first.min(segment));
        let named = if new_name || self.has_new_name() { Unsynced::NEW_NAME } else { 0 };
        Unsynced((self.0 & !(Unsynced::TURN - 1)).wrapping_add(Unsynced::TURN) | named | (u64::from(first) + 1))
    }

    fn without(self) -> Unsynced {
        Unsynced(self.0 & !(Unsynced::TURN - 1))
    }
}

enum Shared {
    Page(SharedPage),
    Private(Box<Private>),
}

/// What a process has that shares with nobody.
struct Private {
    words: [AtomicU64; WORDS],
    short: Mutex<()>,
    gate: Mutex<()>,
}

/// Holds a lock of a page or of what stands for one.
#[allow(dead_code, reason = "held for its drop")]
enum Guard<'a> {
    Page(PageGuard<'a>),
    Private(MutexGuard<'a, ()>),
}

impl Shared {
    fn words(&self) -> &[AtomicU64; WORDS] {
        match self {
            Shared::Page(page) => page.words(),
            Shared::Private(private) => &private.words,
        }
    }

    /// The short lock: one append at a time.
    fn lock(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.lock().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.short))),
        }
    }

    fn gate(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.gate().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.gate))),
        }
    }
}

/// Holds back whoever makes the index log durable, until an append of what is not durable itself is over: see [`LogSet::gate`].
pub struct Gate<'a>(#[allow(dead_code, reason = "held for its drop")] Guard<'a>);

/// This process's membership in its node's log set of one container.
pub struct LogSet {
    container: Arc<Container>,
    shared: Shared,
    set: u32,
    /// Opened by the first append: a node that has nothing to say yet leaves nothing for others to read.
    index: OnceLock<Arc<dyn StoreFile>>,
    index_path: PathBuf,
    /// The container's directory on a file system with other clients, to publish through.
    dir: Option<Arc<dyn StoreFile>>,
}

impl std::fmt::Debug for LogSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSet").field("set", &self.set).field("index", &self.index_path).finish_non_exhaustive()
    }
}

/// What was known about the container when the process joined.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Largest stamp in any index log.
    pub max_hlc: u64,
    /// No set was there to take over.
    pub is_new: bool,
}

impl LogSet {
    /// Joins the node's log set, or founds it: takes over a set that nobody owns (unless `fresh`), else makes a new one.
    ///
    /// `complete` is asked of a set before it is taken over: `None` if nobody may append to it, else a
    /// stamp that none of its blocks exceeds.
    ///
    /// Founding costs a listing, the creation of the open mark and of the index log; joining costs opening the index log.
    pub fn join(
        container: Arc<Container>,
        config: &Config,
        seen: Seen,
        fresh: bool,
        mark_text: &str,
        complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
    ) -> Result<LogSet> {
        let page = match &config.shared_memory {
            Some(dir) => {
                let path = page_path(&container, dir);
                let _acting = container.store.act();
                match SharedPage::join(&path, container.store.user()) {
                    // Without shared memory a process has a set of its own: slower to read, never wrong. So too if it is full, or something else is in the way.
                    Err(
                        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NODEV | Errno::NOSPC | Errno::DQUOT | Errno::NOMEM,
                    ) => None,
                    other => Some(other.at("share memory through", &path)?),
                }
            }
            None => None,
        };
        let shared = match page {
            Some(page) => Shared::Page(page),
            None => Shared::Private(Box::new(Private { words: [const { AtomicU64::new(0) }; WORDS], short: Mutex::default(), gate: Mutex::default() })),
        };
        // Opened before anything is created in it: looking it up afterwards could wait for what we created.
        let dir = (!container.local).then(|| container.store.open(&container.dir, Open::READ)).transpose().at("open", &container.dir)?;
        let guard = shared.lock().at("lock the shared page of", &container.dir)?;
        let words = shared.words();
        words[CLOCK].fetch_max(seen.max_hlc, Ordering::SeqCst);
        let ready = words[SET].load(Ordering::SeqCst);
        let mark = |set: u32| container.path(&name::open_mark(set));
        let set = if ready != 0 && container.store.stat(&mark(ready as u32), true).is_ok() {
            ready as u32
        } else {
            let (set, youngest) = found(&container, fresh || seen.is_new, mark_text, complete)?;
            // Only now that the mark is there: who found none takes it that we know.
            let clock = read_clock(&container).or_else(|error| remove_mark(&container, set).and(Err(error)))?;
            words[CLOCK].fetch_max(youngest.unwrap_or(0).max(clock), Ordering::SeqCst);
            words[EOF].store(0, Ordering::SeqCst);
            words[SYNCED].store(0, Ordering::SeqCst);
            for word in [INDEX_NAMED, INDEX_END, INDEX_SYNCED, DATA_DURABLE].into_iter().chain(UNSYNCED..WORDS) {
                words[word].store(0, Ordering::SeqCst);
            }
            let tails = if youngest.is_none() { vec![0; container.superblock.streams as usize] } else { tails(&container, set)? };
            for (stream, tail) in tails.into_iter().enumerate() {
                words[TAILS + stream].store(tail, Ordering::SeqCst);
                // What earlier owners left may not be durable, and the next sync makes durable what points to it.
                let unsynced = if tail == 0 { Unsynced(0) } else { Unsynced(0).with(0, true) };
                words[UNSYNCED + stream].store(unsynced.0, Ordering::SeqCst);
            }
            words[SET].store(READY | set as u64, Ordering::SeqCst);
            publish(dir.as_deref());
            set
        };
        drop(guard);
        let index_path = container.path(&name::index_log(set));
        Ok(LogSet { container, shared, set, index: OnceLock::new(), index_path, dir })
    }

    /// Number of the set.
    pub fn id(&self) -> u32 {
        self.set
    }

    /// The stream that this process shall write: round robin over the node's processes.
    pub fn next_stream(&self) -> u16 {
        let turn = self.shared.words()[NEXT_STREAM].fetch_add(1, Ordering::Relaxed);
        (turn % self.container.superblock.streams as u64) as u16
    }

    /// Reserves `bytes` (rounded up to whole regions of 4 KiB) of a stream for the caller alone: segment and offset in it.
    pub fn reserve(&self, stream: u16, bytes: u64) -> (u32, u64) {
        let bytes = bytes.next_multiple_of(REGION_ALIGN);
        let tail = &self.shared.words()[TAILS + stream as usize];
        let mut now = tail.load(Ordering::Relaxed);
        loop {
            let end = ((now >> OFFSET_BITS) as u32, now & ((1 << OFFSET_BITS) - 1));
            let (segment, offset) = next_region(end, bytes, self.container.superblock.segment_bytes);
            match tail.compare_exchange_weak(now, u64::from(segment) << OFFSET_BITS | (offset + bytes), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (segment, offset),
                Err(other) => now = other,
            }
        }
    }

    /// Takes note of a stamp: later ones of this node will be larger.
    pub fn observe(&self, hlc: u64) {
        self.shared.words()[CLOCK].fetch_max(hlc, Ordering::SeqCst);
    }

    /// Where the next O_APPEND write of `bytes` bytes goes: the node's end of file, moved on in the same step. It is 0 in a new page until someone has said how far the
    /// file [reaches](LogSet::reached).
    pub fn append_position(&self, bytes: u64) -> u64 {
        self.shared.words()[EOF].fetch_add(bytes, Ordering::SeqCst)
    }

    /// Says that the file reaches `end` at least.
    pub fn reached(&self, end: u64) {
        let eof = &self.shared.words()[EOF];
        if eof.load(Ordering::Relaxed) < end {
            eof.fetch_max(end, Ordering::SeqCst);
        }
    }

    /// Says that the file was truncated to `size`.
    pub fn truncated(&self, size: u64) {
        self.shared.words()[EOF].store(size, Ordering::SeqCst);
    }

    /// Says that this process has given bytes to a segment of a stream, which are not durable; with `new_name` the segment's file is new. Call it when the store has them, and before a
    /// block points to them.
    pub fn mark_unsynced(&self, stream: u16, segment: u32, new_name: bool) {
        let set = |now| Some(Unsynced(now).with(segment, new_name).0);
        // The closure never says None, so this never fails.
        let _ = self.shared.words()[UNSYNCED + stream as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, set);
    }

    /// Makes durable what any process of the node has given to the set's data logs, as far as it was [marked](LogSet::mark_unsynced) before the call. Costs a sync for each segment
    /// with such bytes, and none if there are none.
    pub fn sync_data(&self) -> Result<()> {
        let words = self.shared.words();
        let end = words[INDEX_END].load(Ordering::SeqCst);
        for stream in 0..self.container.superblock.streams {
            let word = &words[UNSYNCED + stream as usize];
            let seen = Unsynced(word.load(Ordering::SeqCst));
            let Some(first) = seen.first() else { continue };
            let last = (words[TAILS + stream as usize].load(Ordering::SeqCst) >> OFFSET_BITS) as u32;
            for segment in first..=last {
                self.sync_segment(stream, segment, seen.has_new_name())?;
            }
            // Set again meanwhile: it stays, for whoever set it.
            let _ = word.compare_exchange(seen.0, seen.without().0, Ordering::SeqCst, Ordering::SeqCst);
        }
        words[DATA_DURABLE].fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    fn sync_segment(&self, stream: u16, segment: u32, new_name: bool) -> Result<()> {
        let at = SegmentRef { set: self.set, stream, segment, backend: self.container.backend_of(self.set, stream) };
        let path = self.container.segment_path(&at);
        let store = &self.container.store;
        match store.open(&path, Open::READ) {
            Ok(file) => file.sync_data().at("sync the data log", &path)?,
            // Reserved by a process that has not made it yet, or died before.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno).at("open the data log", &path),
        }
        if new_name {
            // On the root backend the directories above are the container's, which a sync makes durable; on others they came with the first segment.
            let dirs = if at.backend > 0 { 5 } else { 1 };
            for dir in path.ancestors().skip(1).take(dirs) {
                store.sync_dir(dir).at("sync the directory", dir)?;
            }
        }
        Ok(())
    }

    /// Keeps others from making the index log durable while the result lives. Hold it over an [append](LogSet::append_index) of a block whose data is not durable: a sync of another
    /// process must not make the block durable without its data. Take it before any lock that readers or writers of this process need: it waits for a sync that is under way.
    pub fn gate(&self) -> Result<Gate<'_>> {
        self.shared.gate().map(Gate).at("lock the shared page of", &self.container.dir)
    }

    /// Appends one block to the index log. Gives its stamp and where it ends.
    pub fn append_index(&self, segments: &[SegmentRef], records: &[Record]) -> Result<(u64, u64)> {
        let _short = self.shared.lock().at("lock the shared page of", &self.index_path)?;
        let index = self.index()?;
        let offset = align_up(index.stat().at("stat the index log", &self.index_path)?.len);
        let hlc = self.tick();
        let block = encode_block(self.container.log_id(self.set), offset, hlc, segments, records)
            .map_err(|bad| Error::Corrupt { path: self.index_path.clone(), bad })?;
        store::write_full(index.as_ref(), &block, offset).at("append to the index log", &self.index_path)?;
        let end = offset + block.len() as u64;
        self.shared.words()[INDEX_END].store(end, Ordering::SeqCst);
        Ok((hlc, end))
    }

    /// Makes the index log durable up to `end` (u64::MAX: all of it, again), and before it all data that its blocks point to, whoever of the node wrote them.
    ///
    /// Processes that sync at once wait for each other, and one does it for all that have appended until then: 128 of them pay for two syncs.
    pub fn sync_index(&self, end: u64) -> Result<()> {
        let _gate = self.gate()?;
        let words = self.shared.words();
        if words[INDEX_SYNCED].load(Ordering::SeqCst) >= end && words[INDEX_NAMED].load(Ordering::SeqCst) == 1 {
            return Ok(());
        }
        // With the gate held, all that comes now has durable data already.
        let upto = words[INDEX_END].load(Ordering::SeqCst);
        self.sync_data()?;
        self.index()?.sync_data().at("sync the index log", &self.index_path)?;
        // Its name too, once: what was found under no name after a power loss would be found by nobody.
        if words[INDEX_NAMED].load(Ordering::SeqCst) == 0 {
            let dir = self.index_path.parent().unwrap_or(&self.container.dir);
            self.container.store.sync_dir(dir).at("sync the directory", dir)?;
            words[INDEX_NAMED].store(1, Ordering::SeqCst);
        }
        words[INDEX_SYNCED].fetch_max(upto, Ordering::SeqCst);
        Ok(())
    }

    fn index(&self) -> Result<&Arc<dyn StoreFile>> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let index = self.container.store.open(&self.index_path, Open::create(0o644)).at("open the index log", &self.index_path)?;
        open_to_readers(&self.container, &self.index_path, 0o644)?;
        Ok(self.index.get_or_init(|| index))
    }

    /// Runs `sync`, which makes the container's names durable, unless some process of the node has done it.
    pub fn sync_names_once(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let synced = &self.shared.words()[SYNCED];
        if synced.load(Ordering::SeqCst) == 0 {
            sync()?;
            synced.store(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The next stamp: at least the wall clock, larger than every stamp seen on this node (FORMAT.md section 4).
    pub fn tick(&self) -> u64 {
        let now = Time::now();
        let wall = (((now.sec as u64) * 1000) << 16) + (u64::from(now.nsec) << 16) / 1_000_000;
        let clock = &self.shared.words()[CLOCK];
        let mut last = clock.load(Ordering::SeqCst);
        loop {
            // Only bytes that lie have the last stamp there is.
            let next = wall.max(last.saturating_add(1));
            match clock.compare_exchange_weak(last, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return next,
                Err(other) => last = other,
            }
        }
    }

    /// Removes what killed writers of a container left in shared memory. For a container that is gone.
    pub fn forget_page(container: &Container, dir: &Path) {
        SharedPage::remove_file(&page_path(container, dir));
    }

    /// Leaves the set. True if this was the node's last process: then the open mark is gone and the caller owes a summary.
    pub fn leave(self) -> Result<bool> {
        let mark = self.container.path(&name::open_mark(self.set));
        if let Shared::Page(page) = &self.shared {
            let _guard = page.lock().at("lock the shared page of", &self.container.dir)?;
            if !page.try_be_last() {
                return Ok(false);
            }
            // In this order: who dies in between leaves a set that the next process takes over, not a mark whose owner nobody knows.
            let left = self.unmark(&mark);
            page.remove();
            return left;
        }
        self.unmark(&mark)
    }

    fn unmark(&self, mark: &Path) -> Result<bool> {
        match self.container.store.unlink(mark) {
            Ok(()) => {
                publish(self.dir.as_deref());
                Ok(true)
            }
            // The container was removed, or somebody cleared the mark: nothing to sum up for us.
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).at("remove", mark),
        }
    }
}

/// Where the processes of this node and user meet for a container.
fn page_path(container: &Container, dir: &Path) -> PathBuf {
    let (dev, uid) = (container.identity.0, container.store.user());
    dir.join(format!("plfs-{uid}-{dev:x}-{}", container.superblock.uuid))
}

/// Becomes owner of a set: one without a mark whose index log this user may write, else (or if `fresh`) a new one. Gives the set and a stamp that none of its blocks exceeds;
/// `None` if it is new. Creating the mark exclusively is what makes us the owner.
fn found(container: &Container, fresh: bool, mark_text: &str, complete: impl Fn(&Container, u32) -> Result<Option<u64>>) -> Result<(u32, Option<u64>)> {
    let own = |set: u32| -> Result<bool> {
        let path = container.path(&name::open_mark(set));
        match container.store.open(&path, Open::create_new(0o644)) {
            Ok(file) => {
                let written = store::write_full(file.as_ref(), mark_text.as_bytes(), 0).at("write", &path);
                written.map(|()| true).or_else(|error| remove_mark(container, set).and(Err(error)))
            }
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).at("create", &path),
        }
    };
    let names = if fresh { Vec::new() } else { container.list()? };
    for name in &names {
        let Name::LogSet(set) = *name else { continue };
        if names.contains(&Name::OpenMark(set)) {
            continue;
        }
        let path = container.path(&name::index_log(set));
        let Ok(found) = container.store.open(&path, Open::READ_WRITE).and_then(|file| file.stat()) else { continue };
        let ours = found.uid == container.store.user() && found.len <= TAKEOVER_MAX_BYTES;
        // The look comes before the mark, because who dies in between leaves a mark whose owner nobody knows.
        if ours
            && let Some(youngest) = complete(container, set)?
            && own(set)?
        {
            // It may have gone, or got longer, before it was ours.
            let youngest = match container.store.stat(&path, true) {
                Ok(now) if now.len == found.len => Ok(Some(youngest)),
                Ok(_) => complete(container, set),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno).at("stat the index log", &path),
            };
            match youngest {
                Ok(Some(youngest)) => return Ok((set, Some(youngest))),
                Ok(None) => remove_mark(container, set)?,
                Err(error) => return remove_mark(container, set).and(Err(error)),
            }
        }
    }
    loop {
        let set = random_u64() as u32;
        if !own(set)? {
            continue;
        }
        let dir = container.path(&name::log_set(set));
        match container.store.mkdir(&dir, 0o755) {
            Ok(()) => {
                open_to_readers(container, &dir, 0o755)?;
                return Ok((set, None));
            }
            Err(Errno::EXIST) => remove_mark(container, set)?,
            Err(errno) => return remove_mark(container, set).and(Err(errno).at("create", &dir)),
        }
    }
}

/// Logs are there for all whom the container's directory lets in; a strict umask must not say otherwise.
pub(super) fn open_to_readers(container: &Container, path: &Path, mode: u32) -> Result<()> {
    let stat = container.store.stat(path, true).at("stat", path)?;
    if stat.mode & 0o044 != 0o044 && stat.uid == container.store.user() {
        container.store.chmod(path, mode).at("set the mode of", path)?;
    }
    Ok(())
}

fn remove_mark(container: &Container, set: u32) -> Result<()> {
    let path = container.path(&name::open_mark(set));
    container.store.unlink(&path).at("remove", &path)
}

/// Where each stream of a set goes on: behind the last byte of its last segment.
fn tails(container: &Container, set: u32) -> Result<Vec<u64>> {
    let mut last = vec![None; container.superblock.streams as usize];
    for backend in 0..container.superblock.backends.len() as u16 {
        let dir = container.backend_dir(backend).join(name::log_set(set));
        let entries = match container.store.list(&dir) {
            Err(Errno::NOENT) => continue,
            other => other.at("list", &dir)?,
        };
        for entry in entries {
            if let Some((stream, segment)) = entry.name.to_str().and_then(name::parse_data_log)
                && let Some(last) = last.get_mut(stream as usize)
            {
                *last = (*last).max(Some((segment, backend)));
            }
        }
    }
    let mut tails = Vec::new();
    for (stream, last) in last.into_iter().enumerate() {
        tails.push(match last {
            Some((segment, backend)) => {
                let path = container.segment_path(&SegmentRef { set, stream: stream as u16, segment, backend });
                let len = container.store.stat(&path, true).at("stat the data log", &path)?.len;
                (segment as u64) << OFFSET_BITS | len.next_multiple_of(REGION_ALIGN)
            }
            None => 0,
        });
    }
    Ok(tails)
}

#[cfg(test)]
mod tests {
    use plfs_format::index_log::SEGMENT_MAX;

    use super::*;
    use crate::container::create;
    use crate::log::scan;
    use crate::store::{PosixStore, Store};

    /// A directory with a new container, that goes with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let dir = std::env::temp_dir().join(format!("plfs-log-set-{:016x}", random_u64()));
            std::fs::create_dir(&dir).unwrap();
            Scratch(dir)
        }

        fn container(&self) -> (Config, Arc<Container>) {
            let store: Arc<dyn Store> = Arc::new(PosixStore::new());
            let config = Config { shared_memory: None, ..Config::default() };
            let (container, _) = create(&store, &config, &self.0, &self.0.join("f"), 0o644, 0).unwrap();
            (config, Arc::new(container))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The takeover look without a look at the data.
    fn youngest(container: &Container, set: u32) -> Result<Option<u64>> {
        let mut youngest = 0;
        scan(container, set, 0, |_, header, _| {
            youngest = youngest.max(header.hlc);
            Ok(())
        })?;
        Ok(Some(youngest))
    }

    fn join(config: &Config, container: &Arc<Container>, seen: Seen) -> LogSet {
        LogSet::join(container.clone(), config, seen, false, "", youngest).unwrap()
    }

    /// A process looks at the logs, to take one over; before it does, another node whose clock is ahead takes it, appends and leaves. The stamps of the first went on from what it
    /// had seen, so the log's last block was older than the one before it, and what it wrote lost against what was there.
    #[test]
    fn who_takes_a_log_over_goes_on_behind_its_last_block() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let old = join(&config, &container, Seen { max_hlc: 1 << 62, is_new: true });
        let cut = |set: &LogSet| set.append_index(&[], &[Record::Truncate { size: 1, stamp: 1 }]).unwrap().0;
        let stamp = cut(&old);
        assert!(stamp > 1 << 62);
        let id = old.id();
        assert!(old.leave().unwrap());
        let new = join(&config, &container, Seen { max_hlc: 0, is_new: false });
        assert_eq!(new.id(), id);
        assert!(cut(&new) > stamp);
    }

    /// A log says that it was written at the end of time. The clock wrapped to 0 after that, or panicked.
    #[test]
    fn the_clock_does_not_wrap() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, Seen { max_hlc: u64::MAX, is_new: true });
        assert_eq!(set.tick(), u64::MAX);
    }

    /// With the smallest segments a stream has 65,536 after 4 GiB. The number of the next did not fit: the stream went on in segment 0, over bytes that records pointed to.
    #[test]
    fn the_last_segment_takes_all_the_rest() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, Seen { max_hlc: 0, is_new: true });
        let (limit, region) = (container.superblock.segment_bytes, REGION_ALIGN);
        set.shared.words()[TAILS].store((u64::from(SEGMENT_MAX) - 1) << OFFSET_BITS | limit, Ordering::SeqCst);
        assert_eq!(set.reserve(0, limit), (SEGMENT_MAX, 0));
        assert_eq!(set.reserve(0, 1), (SEGMENT_MAX, limit));
        assert_eq!(set.reserve(0, 1), (SEGMENT_MAX, limit + region));
    }
}
