//! A node's log set: the one index log and the few data logs that the processes of a node write a container with (docs/decisions/0002).
//!
//! What the processes share are numbers in a page of memory: tails of the streams, the hybrid logical clock, the append position. Regions are reserved by one
//! compare-and-swap on a tail; nobody waits for anybody's data. Index blocks are appended under the page's lock, which the kernel releases when
//! its holder dies.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use plfs_format::index_log::{Record, align_up, decode_block, encode_block};
use plfs_format::name::{self, Name, SegmentRef};

use super::index_log::scan_whole;
use super::regions::{REGION_ALIGN, next_region};
use crate::config::Config;
use crate::container::Container;
use crate::container::{publish, random_u64, read_clock};
use crate::error::{At, Error, Result};
use crate::index::Index;
use crate::store::shm::{SharedPage, WORDS};
use crate::store::{self, Errno, Open, StoreFile};

/// An index log longer than this is not taken over: whoever does reads it. 1 MiB: some 5,000 short sessions.
const TAKEOVER_MAX_BYTES: u64 = 1 << 20;

// Places in the shared page. Word 0 is 0 until the owner has set the page up.
const SET: usize = 0;
const CLOCK: usize = 1;
const NEXT_STREAM: usize = 2;
const EOF: usize = 3;
const SYNCED: usize = 4;
const INDEX_NAMED: usize = 5;
const TAILS: usize = 8;
/// Word 0 = this bit + the set's number: set 0 is a valid number.
const READY: u64 = 1 << 32;
/// A tail is segment << 48 | offset.
const OFFSET_BITS: u32 = 48;

enum Shared {
    Page(SharedPage),
    Private(Box<[AtomicU64; WORDS]>, Mutex<()>),
}

impl Shared {
    fn words(&self) -> &[AtomicU64; WORDS] {
        match self {
            Shared::Page(page) => page.words(),
            Shared::Private(words, _) => words,
        }
    }
}

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
    /// Founding costs a listing, the creation of the open mark and of the index log; joining costs opening the index log.
    pub fn join(container: Arc<Container>, config: &Config, seen: Seen, fresh: bool, mark_text: &str) -> Result<LogSet> {
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
            None => Shared::Private(Box::new([const { AtomicU64::new(0) }; WORDS]), Mutex::new(())),
        };
        // Opened before anything is created in it: looking it up afterwards could wait for what we created.
        let dir = (!container.local).then(|| container.store.open(&container.dir, Open::READ)).transpose().at("open", &container.dir)?;
        let guard = match &shared {
            Shared::Page(page) => Some(page.lock().at("lock the shared page of", &container.dir)?),
            Shared::Private(..) => None,
        };
        let words = shared.words();
        words[CLOCK].fetch_max(seen.max_hlc, Ordering::SeqCst);
        let ready = words[SET].load(Ordering::SeqCst);
        let mark = |set: u32| container.path(&name::open_mark(set));
        let set = if ready != 0 && container.store.stat(&mark(ready as u32), true).is_ok() {
            ready as u32
        } else {
            let (set, youngest) = found(&container, fresh || seen.is_new, mark_text)?;
            // Only now that the mark is there: who found none takes it that we know.
            let clock = read_clock(&container).or_else(|error| remove_mark(&container, set).and(Err(error)))?;
            words[CLOCK].fetch_max(youngest.unwrap_or(0).max(clock), Ordering::SeqCst);
            words[EOF].store(0, Ordering::SeqCst);
            words[SYNCED].store(0, Ordering::SeqCst);
            words[INDEX_NAMED].store(0, Ordering::SeqCst);
            let tails = if youngest.is_none() { vec![0; container.superblock.streams as usize] } else { tails(&container, set)? };
            for (stream, tail) in tails.into_iter().enumerate() {
                words[TAILS + stream].store(tail, Ordering::SeqCst);
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

    /// Appends one block to the index log and gives its stamp. With `sync` it is durable on return.
    pub fn append_index(&self, segments: &[SegmentRef], records: &[Record]) -> Result<u64> {
        let _page;
        let _private;
        match &self.shared {
            Shared::Page(page) => _page = page.lock().at("lock the shared page of", &self.index_path)?,
            Shared::Private(_, mutex) => _private = mutex.lock(),
        }
        let index = self.index()?;
        let offset = align_up(index.stat().at("stat the index log", &self.index_path)?.len);
        let hlc = self.tick();
        let block = encode_block(self.container.log_id(self.set), offset, hlc, segments, records)
            .map_err(|bad| Error::Corrupt { path: self.index_path.clone(), bad })?;
        store::write_full(index.as_ref(), &block, offset).at("append to the index log", &self.index_path)?;
        Ok(hlc)
    }

    /// Makes the index log durable.
    pub fn sync_index(&self) -> Result<()> {
        self.index()?.sync_data().at("sync the index log", &self.index_path)?;
        // Its name too, once: what was found under no name after a power loss would be found by nobody.
        let named = &self.shared.words()[INDEX_NAMED];
        if named.load(Ordering::SeqCst) == 0 {
            let dir = self.index_path.parent().unwrap_or(&self.container.dir);
            self.container.store.sync_dir(dir).at("sync the directory", dir)?;
            named.store(1, Ordering::SeqCst);
        }
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
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall = (((now.tv_sec as u64) * 1000) << 16) + ((now.tv_nsec as u64) << 16) / 1_000_000;
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
        SharedPage::remove_files(&page_path(container, dir));
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
fn found(container: &Container, fresh: bool, mark_text: &str) -> Result<(u32, Option<u64>)> {
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

/// A stamp that no block of a set exceeds, if the data logs of the set are as long as its records say, and its index log as the flat index. After a power cut they may not be: what was
/// lost must not come back as other bytes or other blocks, so nobody appends there.
fn complete(container: &Container, set: u32) -> Result<Option<u64>> {
    // A flat index spares most of the log: a file that is opened and closed many times has a long one.
    let Some(index) = Index::flat_for(container, set) else { return Ok(None) };
    let ((mut ends, from), mut youngest) = (index.read_of(set), index.max_hlc());
    let scanned = scan_whole(container, set, from, |offset, header, at| {
        let path = container.path(&name::index_log(set));
        let block = decode_block(container.log_id(set), header, offset, at).map_err(|bad| Error::Corrupt { path, bad })?;
        youngest = youngest.max(header.hlc);
        for (_, record) in &block.records {
            if let Record::Run { segment, physical, length, count, .. } = record {
                let end: &mut u64 = ends.entry(block.segments[*segment as usize]).or_default();
                *end = (*end).max(physical + length * u64::from(*count));
            }
        }
        Ok(())
    });
    let are_whole = || ends.iter().all(|(at, end)| container.store.stat(&container.segment_path(at), true).is_ok_and(|stat| stat.len >= *end));
    Ok((scanned.is_ok() && are_whole()).then_some(youngest))
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
    use crate::store::{MemStore, Store};
    use crate::{OpenOptions, Opened, Plfs};

    fn container() -> (Config, Arc<Container>) {
        let memory = MemStore::new();
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        let config = Config { shared_memory: None, ..Config::default() };
        match Plfs::new(Arc::new(memory), config.clone()).open(Path::new("/m/f"), OpenOptions::create()).unwrap() {
            Opened::Logical(file) => (config, file.logical().container.clone()),
            Opened::Plain(_) => panic!("it is plain"),
        }
    }

    fn join(config: &Config, container: &Arc<Container>, seen: Seen) -> LogSet {
        LogSet::join(container.clone(), config, seen, false, "").unwrap()
    }

    /// A process looks at the logs, to take one over; before it does, another node whose clock is ahead takes it, appends and leaves. The stamps of the first went on from what it
    /// had seen, so the log's last block was older than the one before it, and what it wrote lost against what was there.
    #[test]
    fn who_takes_a_log_over_goes_on_behind_its_last_block() {
        let (config, container) = container();
        let old = join(&config, &container, Seen { max_hlc: 1 << 62, is_new: true });
        let cut = |set: &LogSet| set.append_index(&[], &[Record::Truncate { size: 1, stamp: 1 }]).unwrap();
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
        let (config, container) = container();
        let set = join(&config, &container, Seen { max_hlc: u64::MAX, is_new: true });
        assert_eq!(set.tick(), u64::MAX);
    }

    /// With the smallest segments a stream has 65,536 after 4 GiB. The number of the next did not fit: the stream went on in segment 0, over bytes that records pointed to.
    #[test]
    fn the_last_segment_takes_all_the_rest() {
        let (config, container) = container();
        let set = join(&config, &container, Seen { max_hlc: 0, is_new: true });
        let (limit, region) = (container.superblock.segment_bytes, REGION_ALIGN);
        set.shared.words()[TAILS].store((u64::from(SEGMENT_MAX) - 1) << OFFSET_BITS | limit, Ordering::SeqCst);
        assert_eq!(set.reserve(0, limit), (SEGMENT_MAX, 0));
        assert_eq!(set.reserve(0, 1), (SEGMENT_MAX, limit));
        assert_eq!(set.reserve(0, 1), (SEGMENT_MAX, limit + region));
    }
}
