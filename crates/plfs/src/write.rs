//! L4: the writing side of one open logical file in one process.
//!
//! A [`Writer`] gets bytes into data logs and remembers where they went as folded runs. A commit hands the bytes to the store first and appends the index block after, so
//! an index block never points at bytes that the store has not been given. After a failure it refuses to go on.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plfs_format::index_log::Record;
use plfs_format::name::SegmentRef;
use plfs_index::{Committed, Folder, Fresh, HOLE, PENDING_RECORDS, Run, Stamped, block_of, in_blocks};

use crate::config::Config;
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::log::{DataLog, LogSet};
use crate::store::machine::{host_name, random_u64};
use crate::store::{self, Errno, Time};
use crate::sync::lock;

/// Who this process is, for people who read the index.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Random number that the run records carry.
    pub writer: u32,
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// When it attached, ns since 1970 UTC.
    pub attached_ns: u64,
    /// Host name.
    pub host: String,
}

impl Identity {
    /// This process, writing as user `uid`.
    pub fn of_this_process(uid: u32) -> Identity {
        let host = host_name().to_string_lossy().into_owned();
        Identity { writer: random_u64() as u32, pid: std::process::id(), uid, attached_ns: Time::now().ns() as u64, host }
    }

    /// What an open mark says.
    pub fn mark(&self) -> String {
        format!("host {}\npid {}\nuid {}\nattached_ns {}\n", self.host, self.pid, self.uid, self.attached_ns)
    }

    /// What an index log says.
    pub fn record(&self) -> Record {
        let Identity { writer, pid, uid, attached_ns, host } = self.clone();
        Record::Writer { writer, pid, uid, attached_ns, host }
    }
}

/// How far a process has written past what its commits say. Outlives the writer, under whose lock it changes; read without one.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Largest logical end of what no index log has yet; 0 if there is none.
    end: AtomicU64,
    /// Commits and truncates that took that into the logs.
    taken: AtomicU64,
}

impl Ahead {
    /// What the logs say, and the end of what they do not have. `logs` is asked again if a commit came between the two.
    pub fn beside<T>(&self, logs: impl Fn() -> Result<T>) -> Result<(T, u64)> {
        loop {
            let taken = self.taken.load(Ordering::Acquire);
            let said = logs()?;
            let end = self.end.load(Ordering::Acquire);
            if self.taken.load(Ordering::Acquire) == taken {
                return Ok((said, end));
            }
        }
    }

    fn reach(&self, end: u64) {
        if self.end.load(Ordering::Relaxed) < end {
            self.end.store(end, Ordering::Release);
        }
    }

    /// The logs have it all.
    fn take(&self) {
        if self.end.load(Ordering::Relaxed) > 0 {
            // First: who sees no end must know that it was not so all the time.
            self.taken.fetch_add(1, Ordering::AcqRel);
            self.end.store(0, Ordering::Release);
        }
    }
}

/// One process's writing side of a container.
pub struct Writer {
    set: Arc<LogSet>,
    ahead: Arc<Ahead>,
    identity: Identity,
    dirty: AtomicBool,
    /// Whether the node's append position has this process's blessing: see [`Writer::append_position`].
    knows_end: Mutex<bool>,
    state: Mutex<State>,
}

struct State {
    data: DataLog,
    folder: Folder,
    /// Records that readers of this process have and no index log has yet.
    frozen: Vec<Stamped>,
    announced: bool,
    /// Index blocks were appended since the last sync.
    index_dirty: bool,
    poison: Option<Error>,
}

/// What a write did.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Bytes taken; fewer than given only if the store had no room for the rest.
    pub bytes: usize,
    /// Largest logical end of what was taken.
    pub end: u64,
    /// So many records wait that the caller should commit.
    pub crowded: bool,
}

impl Writer {
    /// A writer in the node's log set, which notes in `ahead` how far it has written.
    pub fn new(container: Arc<Container>, set: LogSet, config: &Config, identity: Identity, ahead: Arc<Ahead>) -> Writer {
        let set = Arc::new(set);
        let state = State {
            data: DataLog::new(container, set.clone(), config.buffer_bytes),
            folder: Folder::new(),
            frozen: Vec::new(),
            announced: false,
            index_dirty: false,
            poison: None,
        };
        Writer { set, ahead, identity, dirty: AtomicBool::new(false), knows_end: Mutex::new(false), state: Mutex::new(state) }
    }

    /// The node's log set.
    pub fn set(&self) -> &LogSet {
        &self.set
    }

    /// Writes `bytes` as the pieces of `run`, whose segment and physical offset mean nothing: it gets them here.
    ///
    /// Short writes are copied and acknowledged before storage has them; a failure then shows at a later call and at commit. Pieces cost nothing each: the bytes travel as
    /// one piece of the log, and are one record.
    pub fn write(&self, run: Run, bytes: &[u8]) -> Result<Written> {
        debug_assert_eq!(run.bytes(), bytes.len() as u64);
        let mut state = lock(&self.state);
        state.check()?;
        let mut written = bytes.len();
        let (segment, physical) = if state.data.is_direct(bytes.len()) {
            let place = state.data.place(bytes.len() as u64)?;
            drop(state);
            // Large writes of several threads go to storage side by side.
            written = write_some(place.file.as_ref(), bytes, place.physical).at("write the data log", &place.path)?;
            state = lock(&self.state);
            (place.segment, place.physical)
        } else {
            match state.data.buffer(bytes) {
                Ok(place) => place,
                Err(error) => return Err(state.poison(error)),
            }
        };
        let mut end = 0;
        for part in taken(Run { segment, physical, ..run }, written as u64).into_iter().flatten() {
            end = part.end().max(end);
            state.folder.push_run(part, || self.set.tick());
        }
        Ok(self.wrote(&state, written, end))
    }

    /// Makes `[logical, logical + length)` a hole, behind all that was written before. Constant time and nothing to storage: the next commit says it in one record.
    pub fn punch(&self, logical: u64, length: u64) -> Result<Written> {
        let mut state = lock(&self.state);
        state.check()?;
        state.folder.push(logical, length, HOLE, logical, || self.set.tick());
        Ok(self.wrote(&state, 0, logical + length))
    }

    fn wrote(&self, state: &State, bytes: usize, end: u64) -> Written {
        self.ahead.reach(end);
        self.dirty.store(true, Ordering::Release);
        Written { bytes, end, crowded: state.folder.len() + state.frozen.len() >= PENDING_RECORDS }
    }

    /// Where an O_APPEND write of `bytes` goes. The first one of a writer asks for the `size` of the file: after joining the log set, so that what processes that left it before
    /// have appended counts; those that are in it move the position themselves.
    pub fn append_position(&self, bytes: u64, size: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let mut knows_end = lock(&self.knows_end);
        if !*knows_end {
            self.set.reached(size()?);
            *knows_end = true;
        }
        Ok(self.set.append_position(bytes))
    }

    /// Whether there are writes that readers of this process do not have.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Whether there are records that no index log has.
    pub fn has_uncommitted(&self) -> bool {
        let state = lock(&self.state);
        state.poison.is_none() && !(state.folder.is_empty() && state.frozen.is_empty())
    }

    /// Hands all bytes to the store and gives the records that readers of this process do not have yet.
    pub fn freeze(&self) -> Result<Fresh> {
        let mut state = lock(&self.state);
        state.check()?;
        if let Err(error) = state.data.flush() {
            return Err(state.poison(error));
        }
        self.dirty.store(false, Ordering::Release);
        let runs = state.folder.take(|| self.set.tick());
        state.frozen.extend_from_slice(&runs);
        Ok(self.fresh(&state, runs))
    }

    /// The records that were frozen and are in no index log yet, for readers that start anew.
    pub fn frozen(&self) -> Fresh {
        let state = lock(&self.state);
        self.fresh(&state, state.frozen.clone())
    }

    /// What is written from now on is younger than everything seen until now.
    pub fn seal(&self) {
        lock(&self.state).folder.seal(|| self.set.tick());
    }

    fn fresh(&self, state: &State, runs: Vec<Stamped>) -> Fresh {
        Fresh { set: self.set.id(), runs, segments: state.data.segments().collect() }
    }

    /// Makes everything written so far visible to all who open, refresh or lock the file from now on; with `sync` also durable.
    ///
    /// `truncate` adds a truncate to that size behind what was written. Costs one append to the index log if there is anything to say.
    pub fn commit(&self, sync: bool, truncate: Option<u64>) -> Result<Committed> {
        let mut state = lock(&self.state);
        state.check()?;
        self.dirty.store(false, Ordering::Release);
        match self.try_commit(&mut state, sync, truncate) {
            Ok(committed) => Ok(committed),
            Err(error) => Err(state.poison(error)),
        }
    }

    fn try_commit(&self, state: &mut State, sync: bool, truncate: Option<u64>) -> Result<Committed> {
        state.data.flush()?;
        if sync {
            state.data.sync()?;
        }
        let fresh = state.folder.take(|| self.set.tick());
        let mut runs = std::mem::take(&mut state.frozen);
        runs.extend_from_slice(&fresh);
        let segments: Vec<SegmentRef> = state.data.segments().collect();
        let mut blocks = Vec::new();
        for runs in in_blocks(&runs) {
            blocks.push(self.append_runs(state, &segments, runs)?);
        }
        let truncate = truncate.map(|size| (self.set.tick(), size));
        if let Some((stamp, size)) = truncate {
            blocks.push(self.append_block(state, &[], vec![Record::Truncate { size, stamp }])?);
        }
        // From now on the logs say it, and truncates by others count.
        self.ahead.take();
        if sync && state.index_dirty {
            self.set.sync_index()?;
            state.index_dirty = false;
        }
        Ok(Committed { fresh: self.fresh(state, fresh), truncate, blocks })
    }

    fn append_runs(&self, state: &mut State, all: &[SegmentRef], runs: &[Stamped]) -> Result<u64> {
        let (segments, records) = block_of(all, runs, self.identity.writer);
        self.append_block(state, &segments, records)
    }

    fn append_block(&self, state: &mut State, segments: &[SegmentRef], mut records: Vec<Record>) -> Result<u64> {
        if !state.announced {
            records.insert(0, self.identity.record());
        }
        let stamp = self.set.append_index(segments, &records)?;
        state.announced = true;
        state.index_dirty = true;
        Ok(stamp)
    }

    /// Leaves the log set; true if this was the node's last writer. Commit first: what was not committed is dropped.
    pub fn leave(self) -> Result<bool> {
        drop(self.state);
        match Arc::into_inner(self.set) {
            Some(set) => set.leave(),
            None => Ok(false),
        }
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.poison {
            Some(first) => Err(Error::Poisoned { first: Box::new(first.clone()) }),
            None => Ok(()),
        }
    }

    fn poison(&mut self, error: Error) -> Error {
        self.poison.get_or_insert(error.clone());
        error
    }
}

/// What the first `bytes` of a run's bytes are: whole pieces, and a part of the next.
fn taken(run: Run, bytes: u64) -> [Option<Run>; 2] {
    if bytes == run.bytes() {
        return [Some(run), None];
    }
    let (whole, rest) = ((bytes / run.length) as u32, bytes % run.length);
    let pieces = (whole > 0).then_some(Run { stride: if whole == 1 { 0 } else { run.stride }, count: whole, ..run });
    // A piece of the run: it begins inside the file.
    let next = (run.logical as i64 + i64::from(whole) * run.stride) as u64;
    let part = (rest > 0).then(|| Run::single(next, rest, run.segment, run.physical + bytes - rest));
    [pieces, part]
}

/// Writes as much as the store takes: an error only if it took nothing.
fn write_some(file: &dyn store::StoreFile, bytes: &[u8], offset: u64) -> store::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) if done == 0 => return Err(Errno::NOSPC),
            Ok(0) => break,
            Ok(n) => done += n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
