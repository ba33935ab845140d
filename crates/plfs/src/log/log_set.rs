//! A node's log set: the one index log and the few data logs that the processes of a node write a container with (docs/decisions/0002).
//!
//! What the processes share are numbers in a page of memory: tails of the streams, the hybrid logical clock, the append position. Regions are reserved by one
//! compare-and-swap on a tail; nobody waits for anybody's data. Index blocks are appended under the page's lock, which the kernel releases when
//! its holder dies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plfs_format::index_log::{LogId, Record, align_up, encode_block};
use plfs_format::name::{self, Name, SegmentRef};

use crate::config::Config;
use crate::container::Container;
use crate::container::random_u64;
use crate::error::{At, Error, Result};
use crate::store::shm::{SharedPage, WORDS};
use crate::store::{self, Errno, Open, StoreFile};

/// Regions start at multiples of this: a page of every common file system.
pub const REGION_ALIGN: u64 = 4096;

// Places in the shared page. Word 0 is 0 until the owner has set the page up.
const SET: usize = 0;
const CLOCK: usize = 1;
const NEXT_STREAM: usize = 2;
const EOF: usize = 3;
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
    index: Arc<dyn StoreFile>,
    index_path: PathBuf,
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
    /// Size of the logical file.
    pub size: u64,
}

impl LogSet {
    /// Joins the node's log set, or founds it: takes over a set that nobody owns (unless `fresh`), else makes a new one.
    ///
    /// Founding costs a listing, the creation of the open mark and of the index log; joining costs opening the index log.
    pub fn join(container: Arc<Container>, config: &Config, seen: Seen, fresh: bool, mark_text: &str) -> Result<LogSet> {
        let page = match &config.shared_memory {
            Some(dir) => {
                let (dev, uid) = (container.identity.0, rustix::process::geteuid().as_raw());
                let path = dir.join(format!("plfs-{uid}-{dev:x}-{}", container.superblock.uuid));
                // Without shared memory a process has a set of its own: slower to read, never wrong.
                SharedPage::join(&path).ok()
            }
            None => None,
        };
        let shared = match page {
            Some(page) => Shared::Page(page),
            None => Shared::Private(Box::new([const { AtomicU64::new(0) }; WORDS]), Mutex::new(())),
        };
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
            let set = found(&container, fresh, mark_text)?;
            words[EOF].store(0, Ordering::SeqCst);
            for (stream, tail) in tails(&container, set)?.into_iter().enumerate() {
                words[TAILS + stream].store(tail, Ordering::SeqCst);
            }
            words[SET].store(READY | set as u64, Ordering::SeqCst);
            set
        };
        words[EOF].fetch_max(seen.size, Ordering::SeqCst);
        drop(guard);
        let index_path = container.path(&name::index_log(set));
        let index = container.store.open(&index_path, Open::create(0o644)).at("open the index log", &index_path)?;
        Ok(LogSet { container, shared, set, index, index_path })
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
            let (mut segment, mut offset) = (now >> OFFSET_BITS, now & ((1 << OFFSET_BITS) - 1));
            if offset > 0 && offset + bytes > self.container.superblock.segment_bytes {
                (segment, offset) = (segment + 1, 0);
            }
            match tail.compare_exchange_weak(now, segment << OFFSET_BITS | (offset + bytes), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (segment as u32, offset),
                Err(other) => now = other,
            }
        }
    }

    /// Takes note of a stamp: later ones of this node will be larger.
    pub fn observe(&self, hlc: u64) {
        self.shared.words()[CLOCK].fetch_max(hlc, Ordering::SeqCst);
    }

    /// Where the next O_APPEND write of `bytes` bytes goes: the node's end of file, moved on in the same step.
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
        let offset = align_up(self.index.stat().at("stat the index log", &self.index_path)?.len);
        let hlc = self.tick();
        let log = LogId { uuid: self.container.superblock.uuid, set: self.set };
        let block = encode_block(log, offset, hlc, segments, records).map_err(|bad| Error::Corrupt { path: self.index_path.clone(), bad })?;
        store::write_full(self.index.as_ref(), &block, offset).at("append to the index log", &self.index_path)?;
        Ok(hlc)
    }

    /// Makes the index log durable.
    pub fn sync_index(&self) -> Result<()> {
        self.index.sync_data().at("sync the index log", &self.index_path)
    }

    /// The next stamp: at least the wall clock, larger than every stamp seen on this node (FORMAT.md section 4).
    pub fn tick(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall = (((now.tv_sec as u64) * 1000) << 16) + ((now.tv_nsec as u64) << 16) / 1_000_000;
        let clock = &self.shared.words()[CLOCK];
        let mut last = clock.load(Ordering::SeqCst);
        loop {
            let next = wall.max(last + 1);
            match clock.compare_exchange_weak(last, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return next,
                Err(other) => last = other,
            }
        }
    }

    /// Leaves the set. True if this was the node's last process: then the open mark is gone and the caller owes a summary.
    pub fn leave(self) -> Result<bool> {
        let mark = self.container.path(&name::open_mark(self.set));
        if let Shared::Page(page) = &self.shared {
            let _guard = page.lock().at("lock the shared page of", &self.container.dir)?;
            if !page.try_be_last() {
                return Ok(false);
            }
            page.remove();
            return unmark(&self.container, &mark);
        }
        unmark(&self.container, &mark)
    }
}

fn unmark(container: &Container, mark: &Path) -> Result<bool> {
    match container.store.unlink(mark) {
        Ok(()) => Ok(true),
        // The container was removed, or somebody cleared the mark: nothing to sum up for us.
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno).at("remove", mark),
    }
}

/// Becomes owner of a set: one without a mark whose index log this user may write, else a new one. Creating the mark exclusively is what makes us the owner.
fn found(container: &Container, fresh: bool, mark_text: &str) -> Result<u32> {
    let names = container.list()?;
    let own = |set: u32| -> Result<bool> {
        let path = container.path(&name::open_mark(set));
        match container.store.open(&path, Open::create_new(0o644)) {
            Ok(file) => store::write_full(file.as_ref(), mark_text.as_bytes(), 0).at("write", &path).map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).at("create", &path),
        }
    };
    let free = names.iter().filter_map(|name| match name {
        Name::IndexLog(set) if !fresh && !names.contains(&Name::OpenMark(*set)) => Some(*set),
        _ => None,
    });
    for set in free {
        let path = container.path(&name::index_log(set));
        let writable =
            container.store.open(&path, Open::READ_WRITE).is_ok_and(|file| file.stat().is_ok_and(|stat| stat.uid == rustix::process::geteuid().as_raw()));
        if writable && own(set)? {
            return Ok(set);
        }
    }
    loop {
        let set = random_u64() as u32;
        if !names.contains(&Name::IndexLog(set)) && own(set)? {
            return Ok(set);
        }
    }
}

/// Where each stream of a set goes on: behind the last byte of its last segment.
fn tails(container: &Container, set: u32) -> Result<Vec<u64>> {
    let mut last = vec![None; container.superblock.streams as usize];
    for backend in 0..container.superblock.backends.len() as u16 {
        let dir = container.backend_dir(backend);
        let entries = match container.store.list(&dir) {
            Err(Errno::NOENT) => continue,
            other => other.at("list", &dir)?,
        };
        for entry in entries {
            if let Some(Name::DataLog { set: of, stream, segment }) = entry.name.to_str().and_then(Name::parse)
                && of == set
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
