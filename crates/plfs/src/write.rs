//! L4: the writing side of one open logical file in one process.
//!
//! A [`Writer`] gets bytes into data logs and remembers where they went as folded runs. A commit
//! hands the bytes to the store first and appends the index block after, so an index block never
//! points at bytes that the store has not been given. After a failure it refuses to go on.

use plfs_format::MAX_OFFSET;
use plfs_format::index_log::Record;
use plfs_format::mark::Mark;
use plfs_format::name::SegmentRef;
use plfs_index::{
    Committed, Fresh, HOLE, PENDING_RECORDS, Run, Stamped, Stretch, block_of, in_blocks,
};
use std::collections::HashMap;

use crate::config::Config;
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::log::{DataLog, Durability, Era, Journal, LogSet, Moved, Placed, Records, TakenTo};
use crate::store::machine::{ProcessFacts, boot_id, host_name, random_u64};
use crate::store::{self, Time};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, lock};

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
    /// Which boot of the host it runs in; 0: unknown.
    pub boot_id: u64,
    /// Host name.
    pub host: String,
}

impl Identity {
    /// This process, writing as user `uid`.
    pub fn of_this_process(uid: u32) -> Identity {
        let host = host_name().to_string_lossy().into_owned();
        Identity {
            writer: random_u64() as u32,
            pid: std::process::id(),
            uid,
            attached_ns: Time::now().ns() as u64,
            boot_id: boot_id(),
            host,
        }
    }

    /// A mark that says that this process owns a log set, in a tenancy of its own. Two small reads
    /// of /proc.
    pub fn mark(&self) -> Mark {
        let ProcessFacts { boot, machine, start, pid_namespace } = ProcessFacts::of_this_process();
        let Identity { pid, uid, host, .. } = self.clone();
        Mark { nonce: random_u64(), boot, machine, pid_namespace, place: 0, pid, start, uid, host }
    }

    /// What an index log says.
    pub fn record(&self) -> Record {
        let Identity { writer, pid, uid, attached_ns, boot_id, host } = self.clone();
        Record::Writer { writer, pid, uid, attached_ns, boot_id, host }
    }
}

/// How far a process has written past what its commits say. Outlives the writer, under whose lock
/// it changes; read without one.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Largest logical end of what no commit has begun to take; 0 if there is none.
    end: AtomicU64,
    /// Largest logical end of what a commit is taking into the logs; 0 if there is none.
    under_way: AtomicU64,
    /// Commits and truncates that took something into the logs.
    taken: AtomicU64,
}

impl Ahead {
    /// What the logs say, and the end of what they do not have. `logs` is asked again if a commit
    /// came between the two.
    pub fn beside<T>(
        ahead: &OnceLock<Arc<Ahead>>,
        logs: impl Fn() -> Result<T>,
    ) -> Result<(T, u64)> {
        let has = |word: fn(&Ahead) -> &AtomicU64| {
            ahead.get().map_or(0, |ahead| word(ahead).load(Ordering::Acquire))
        };
        loop {
            let taken = has(|ahead| &ahead.taken);
            let said = logs()?;
            // In the order in which a commit changes them, the other way round.
            let end = has(|ahead| &ahead.end).max(has(|ahead| &ahead.under_way));
            if has(|ahead| &ahead.taken) == taken {
                return Ok((said, end));
            }
        }
    }

    /// The child of a fork has written nothing; what its parent could not commit is not its own.
    pub fn forget(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
        self.under_way.store(0, Ordering::Release);
        self.end.store(0, Ordering::Release);
    }

    fn reach(&self, end: u64) {
        if self.end.load(Ordering::Relaxed) < end {
            self.end.store(end, Ordering::Release);
        }
    }

    /// A commit begins to take what there is.
    fn begin(&self) {
        let end = self.end.load(Ordering::Relaxed);
        if end > 0 {
            self.under_way
                .store(self.under_way.load(Ordering::Relaxed).max(end), Ordering::Release);
            self.end.store(0, Ordering::Release);
        }
    }

    /// The logs have what the commit took. If they have a truncate behind it, that is behind all
    /// that was written meanwhile as well.
    fn done(&self, truncated: bool) {
        let cut = truncated && self.end.load(Ordering::Relaxed) > 0;
        if cut || self.under_way.load(Ordering::Relaxed) > 0 {
            // First: who sees no end must know that it was not so all the time.
            self.taken.fetch_add(1, Ordering::AcqRel);
            self.under_way.store(0, Ordering::Release);
            if cut {
                self.end.store(0, Ordering::Release);
            }
        }
    }
}

/// The segment number, in records of a writer, of the plain file that its file was before.
pub const BASE: u32 = HOLE - 1;

/// Bytes of sums that a writer may hold before it commits on its own. 4 MiB: with as many records
/// as it may hold far below what a block can have.
const PENDING_SUMS_BYTES: usize = 4 << 20;

/// One process's writing side of a container.
pub struct Writer {
    set: Arc<LogSet>,
    /// See [`Store::boot`](store::Store::boot).
    boot: Option<u64>,
    ahead: Arc<Ahead>,
    identity: Identity,
    dirty: AtomicBool,
    /// There is a [`State::poison`].
    failed: Arc<AtomicBool>,
    /// The node's end of file is at least what the file's was when this process joined: see
    /// [`Writer::append`].
    knows_end: Mutex<bool>,
    /// Held by the thread that commits: one at a time, and without the lock of the state while it
    /// waits for storage.
    committing: Mutex<()>,
    /// Has what no commit has, for an heir.
    journal: Option<Arc<Journal>>,
    state: Mutex<State>,
}

struct State {
    data: DataLog,
    records: Records,
    /// Records that readers of this process have and no index log has yet.
    frozen: Vec<Stamped>,
    /// Sums of the data that the commit under way takes.
    sums: Vec<Stretch>,
    /// A block of this process has sums of data, and no later one says that it is durable.
    is_doubtful: bool,
    announced: bool,
    /// Where the last block ends that this process appended and has not made durable; 0 if there
    /// is none.
    index_unsynced: u64,
    /// A block of this process was appended, and not yet [confirmed](Committing::finish).
    is_unconfirmed: bool,
    poison: Option<Error>,
    /// [`Writer::failed`].
    failed: Arc<AtomicBool>,
    /// When the records under way were begun, and [`LogSet::appended`] then.
    era: Era,
    appended: u64,
    /// Bytes of all writes.
    written: u64,
}

/// What a write did.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Bytes taken; fewer than given only if the store had no room for the rest.
    pub bytes: usize,
    /// So many records wait that the caller should commit.
    pub should_commit: bool,
}

impl Writer {
    /// A writer in the node's log set, which notes in `ahead` how far it has written. A
    /// [passing](Error::is_passing) error if there is no descriptor for its journal.
    pub fn new(
        container: Arc<Container>,
        set: LogSet,
        config: &Config,
        identity: Identity,
        ahead: Arc<Ahead>,
    ) -> Result<Writer> {
        let begun = set.begin_journal(identity.writer, config.buffer_bytes);
        let set = Arc::new(set);
        let boot = container.store.boot(container.root());
        let failed = Arc::new(AtomicBool::new(false));
        let mut data = DataLog::new(container, set.clone(), config.buffer_bytes);
        let kept = begun.and_then(|journal| {
            let Some(journal) = journal else { return Ok(None) };
            match data.keep_in(&journal) {
                Ok(()) => Ok(Some(journal)),
                Err(errno) => {
                    let path = journal.path();
                    set.end_journal(journal);
                    LogSet::does_without_journal(errno, &path).map(|()| None)
                }
            }
        });
        let journal = match kept {
            Ok(journal) => journal,
            Err(error) => {
                drop(data);
                let _ = Arc::into_inner(set).map(LogSet::leave);
                return Err(error);
            }
        };
        let state = State {
            data,
            records: Records::new(journal.clone()),
            frozen: Vec::new(),
            sums: Vec::new(),
            is_doubtful: false,
            announced: false,
            index_unsynced: 0,
            is_unconfirmed: false,
            poison: None,
            failed: failed.clone(),
            era: Era::default(),
            appended: 0,
            written: 0,
        };
        Ok(Writer {
            set,
            boot,
            ahead,
            identity,
            dirty: AtomicBool::new(false),
            failed,
            knows_end: Mutex::new(false),
            committing: Mutex::default(),
            journal,
            state: Mutex::new(state),
        })
    }

    /// The node's log set.
    pub fn set(&self) -> &LogSet {
        &self.set
    }

    /// Writes `bytes` at `offset`.
    ///
    /// Short writes are copied and acknowledged before storage has them; a failure then shows at a
    /// later call and at commit.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<Written> {
        let (mut state, Placed { segment, physical, length }) = self.place(bytes)?;
        let end = offset + length;
        self.record(&mut state, end, |state| {
            state.push_run(Run::single(offset, length, segment, physical), &self.set);
        })?;
        Ok(self.wrote(&mut state, length, end))
    }

    /// Writes `bytes` as the pieces of `run`, whose segment and physical offset mean nothing: it
    /// gets them here. Pieces cost nothing each: the bytes travel as one piece of the log, and are
    /// one record. Else as [`Writer::write`].
    pub fn write_pieces(&self, run: Run, bytes: &[u8]) -> Result<Written> {
        debug_assert_eq!(run.bytes(), bytes.len() as u64);
        let (mut state, Placed { segment, physical, length }) = self.place(bytes)?;
        let run = Run { segment, physical, ..run };
        if length == run.bytes() {
            let end = run.end();
            self.record(&mut state, end, |state| state.push_run(run, &self.set))?;
            return Ok(self.wrote(&mut state, length, end));
        }
        let parts = taken(run, length);
        let parts = || parts.iter().flatten();
        let end = parts().map(Run::end).max().unwrap_or(0);
        self.record(&mut state, end, |state| {
            parts().for_each(|part| state.push_run(*part, &self.set));
        })?;
        Ok(self.wrote(&mut state, length, end))
    }

    /// Makes sure that the node knows where the file ends: the first time, and after
    /// [`Writer::forget_end`], by the `size` of the file and its last cut. After joining the log
    /// set, so that what processes that left it before have appended counts; those that are in it
    /// move the end themselves.
    pub fn know_end(&self, size: impl FnOnce() -> Result<(u64, u64)>) -> Result<()> {
        let mut knows_end = lock(&self.knows_end);
        if !*knows_end {
            let (size, cut) = size()?;
            self.set.follow(size, cut)?;
            *knows_end = true;
        }
        Ok(())
    }

    /// Writes `bytes` at the end of the file, as [`Writer::write`] does; gives where. `size` is for
    /// [`Writer::know_end`].
    pub fn append(
        &self,
        bytes: &[u8],
        size: impl FnOnce() -> Result<(u64, u64)>,
    ) -> Result<(u64, Written)> {
        self.know_end(size)?;
        let (mut state, Placed { segment, physical, length }) = self.place(bytes)?;
        let eof = self.set.eof();
        let mut era = eof.era()?;
        loop {
            let (stamp, before) = self.set.stamp_of_append();
            let (offset, length) = eof.append_position(era, length, MAX_OFFSET);
            // A truncate that has begun meanwhile, and failed, has not touched the place.
            let now = match eof.is_still(era) {
                true => era,
                // Others go behind the place: it will be a gap, as of one who dies.
                false => eof.era().map_err(|error| state.poison(error))?,
            };
            if !now.is_uncut(era) {
                era = now;
                continue;
            }
            if length == 0 {
                return Err(Error::too_far());
            }
            // What this process appends is in the order of its records anyway.
            let known = state.appended;
            state.go_behind(now, known, &self.set);
            state.appended = if before == known { before + 1 } else { known };
            let (run, at) =
                (Run::single(offset, length, segment, physical), state.data.segment_at(segment));
            state.records.push_run(run, &at, || stamp);
            return Ok((offset, self.wrote(&mut state, length, offset + length)));
        }
    }

    /// Others may have moved the end of the file: the next append asks for it.
    pub fn forget_end(&self) {
        *lock(&self.knows_end) = false;
    }

    /// Gives `bytes` to the log. Inlined: the result of a short write is not copied.
    #[inline(always)]
    fn place(&self, bytes: &[u8]) -> Result<(MutexGuard<'_, State>, Placed)> {
        // Who must wait for a truncate waits here, where no reader waits for him.
        self.set.eof().let_cut_pass()?;
        let mut state = lock(&self.state);
        state.check()?;
        let length = bytes.len() as u64;
        if !state.data.is_direct(bytes.len()) {
            let State { data, records, .. } = &mut *state;
            let moved = &mut |moved| relocate(records, moved, &self.set);
            return match data.buffer(bytes, moved) {
                Ok(placed) => Ok((state, placed)),
                Err(error) => Err(state.poison_if_lost(error)),
            };
        }
        // Nothing of it goes by the threads, which may have lost what came before.
        if let Err(error) = state.data.check() {
            return Err(state.poison(error));
        }
        loop {
            let place = state.data.place(length)?;
            drop(state);
            // Large writes of several threads go to storage side by side.
            let written = store::write_some(place.file.as_ref(), bytes, place.physical)
                .at("write the data log", &place.path);
            state = lock(&self.state);
            let is_full = match &written {
                Ok(written) => (*written as u64) < length,
                Err(error) => error.is_full(),
            };
            // All of it elsewhere, so that it has one place.
            if is_full && state.data.leave_full(place.segment) {
                continue;
            }
            let written = written?;
            state.data.wrote(&place, &bytes[..written]);
            let (segment, physical) = (place.segment, place.physical);
            return Ok((state, Placed { segment, physical, length: written as u64 }));
        }
    }

    /// Records with `push` what reaches to `end`, so that the logs and those who append have it in
    /// the same place of the order.
    fn record(&self, state: &mut State, end: u64, push: impl Fn(&mut State)) -> Result<()> {
        let eof = self.set.eof();
        let mut era = eof.era()?;
        loop {
            eof.reached(era, end);
            state.go_behind(era, eof.appended(), &self.set);
            push(state);
            if eof.is_still(era) {
                return Ok(());
            }
            // The truncate may have come between any two of these. Behind it all is said again: the
            // same bytes at the same place, so that what was said before does no harm. Who cannot
            // say it again has a record that perhaps nobody knows.
            era = eof.era().map_err(|error| state.poison(error))?;
        }
    }

    /// Makes `[logical, logical + length)` a hole, behind all that was written before. Constant
    /// time and nothing to storage: the next commit says it in one record.
    pub fn punch(&self, logical: u64, length: u64) -> Result<Written> {
        self.set.eof().let_cut_pass()?;
        let mut state = lock(&self.state);
        state.check()?;
        let end = logical + length;
        let hole = Run::single(logical, length, HOLE, logical);
        self.record(&mut state, end, |state| state.push_run(hole, &self.set))?;
        Ok(self.wrote(&mut state, 0, end))
    }

    #[inline]
    fn wrote(&self, state: &mut State, bytes: u64, end: u64) -> Written {
        state.written += bytes;
        self.ahead.reach(end);
        self.dirty.store(true, Ordering::Release);
        if state.records.is_due() {
            state.fold_journal();
        }
        let should_commit = state.records.len() + state.frozen.len() >= PENDING_RECORDS
            || state.records.is_due()
            || state.data.sums_bytes() >= PENDING_SUMS_BYTES;
        Written { bytes: bytes as usize, should_commit }
    }

    /// Whether a process of the node has cut the file since this one wrote last.
    pub fn is_cut(&self) -> Result<bool> {
        Ok(!self.set.eof().era()?.is_uncut(lock(&self.state).era))
    }

    /// Whether there are writes that readers of this process do not have.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Whether there are records that no index log has, or a commit of which nobody knows that the
    /// node owned the log set still.
    pub fn has_uncommitted(&self) -> bool {
        let state = lock(&self.state);
        let has_records = !(state.records.is_empty() && state.frozen.is_empty());
        state.poison.is_none() && (has_records || state.is_unconfirmed)
    }

    /// How many bytes all writes had.
    pub fn written(&self) -> u64 {
        lock(&self.state).written
    }

    /// Hands all bytes to the store and gives the records that readers of this process do not have
    /// yet.
    pub fn freeze(&self) -> Result<Fresh> {
        self.freeze_locked(&mut lock(&self.state))
    }

    fn freeze_locked(&self, state: &mut State) -> Result<Fresh> {
        state.check()?;
        let State { data, records, .. } = &mut *state;
        let moved = &mut |moved| relocate(records, moved, &self.set);
        data.flush(moved).map_err(|error| state.poison_if_lost(error))?;
        self.dirty.store(false, Ordering::Release);
        let runs = state.records.take(|| self.set.tick());
        state.frozen.extend_from_slice(&runs);
        Ok(self.fresh(state, runs))
    }

    /// The records that were frozen and are in no index log yet, for readers that start anew.
    pub fn frozen(&self) -> Fresh {
        let state = lock(&self.state);
        self.fresh(&state, state.frozen.clone())
    }

    /// What is written from now on is younger than everything seen until now.
    pub fn seal(&self) {
        lock(&self.state).records.seal(|| self.set.tick());
    }

    fn fresh(&self, state: &State, runs: Vec<Stamped>) -> Fresh {
        let (segments, runs) = with_segments(state, runs);
        Fresh { set: self.set.id(), runs, segments }
    }

    /// Takes over records of what this process wrote in place (to segment [`BASE`]) before it knew
    /// that the file has a container, with the stamps that they had then. Its data is durable. What
    /// readers of this process must know; the next commit takes it to the log.
    pub fn adopt(&self, runs: Vec<Stamped>) -> Result<Fresh> {
        let mut state = lock(&self.state);
        state.check()?;
        let last = runs.iter().map(|item| item.stamp).max().unwrap_or(0);
        self.set.observe(last);
        state.frozen.extend_from_slice(&runs);
        Ok(self.fresh(&state, runs))
    }

    /// Begins a commit: no other thread of the process commits until the result is dropped.
    ///
    /// A commit has steps: [`Committing::write_out`], [`Committing::freeze`],
    /// [`Committing::sync_data`], [`Committing::append`], [`Committing::sync_index`]; one that is
    /// no sync goes without those of that name. What is frozen goes into the index of this process
    /// at once, and no reader may freeze between a freeze and an append that takes all. The first
    /// error poisons the writer, unless it is a [passing](Error::is_passing) one: then the next
    /// commit takes all that this one was to take.
    pub fn begin_commit(&self) -> Committing<'_> {
        let _turn = lock(&self.committing);
        Committing { writer: self, _turn, frozen: 0, taken: None, data: Durability::Visible }
    }

    fn append_runs(
        &self,
        state: &mut State,
        all: &[SegmentRef],
        runs: &[Stamped],
        data: Durability,
    ) -> Result<u64> {
        let (segments, runs_of) = block_of(all, runs, self.identity.writer);
        // In front: a block whose end a crash cut is told by its last bytes, and runs have a stamp
        // there.
        let mut records = match data {
            Durability::Visible => self.sums_of(state, all, &segments, runs),
            Durability::Durable => Vec::new(),
        };
        state.is_doubtful |= !records.is_empty();
        if data == Durability::Durable
            && let Some(boot) = self.boot
        {
            // No data of this boot that earlier blocks point to is in doubt from now on.
            let sums = Vec::new();
            records.push(Record::Sums { segment: 0, boot, physical: 0, length: 0, unit: 1, sums });
            state.is_doubtful = false;
        }
        records.extend(runs_of);
        self.append_block(state, &segments, records, data)
    }

    /// The sums of the data of `runs`, whose block has the references `segments`. Each block has
    /// its own, because a power cut can take one and leave another.
    fn sums_of(
        &self,
        state: &State,
        all: &[SegmentRef],
        segments: &[SegmentRef],
        runs: &[Stamped],
    ) -> Vec<Record> {
        let Some(boot) = self.boot else { return Vec::new() };
        // What the runs span in each segment, and where the block's table has that.
        let mut spans: HashMap<u32, (u64, u64)> = HashMap::new();
        for item in runs.iter().filter(|item| item.run.segment != HOLE) {
            let (from, run) = (item.run.physical, &item.run);
            let to = from + u64::from(item.runs()) * run.bytes();
            let span = spans.entry(run.segment).or_insert((from, to));
            *span = (span.0.min(from), span.1.max(to));
        }
        let record = |stretch: &Stretch| {
            let (from, to) = spans.get(&stretch.segment)?;
            let at = all.get(stretch.segment as usize)?;
            let segment = segments.iter().position(|segment| segment == at)? as u16;
            let Stretch { physical, length, unit, ref sums, .. } = *stretch;
            (physical < *to && stretch.end() > *from).then(|| Record::Sums {
                segment,
                boot,
                physical,
                length,
                unit,
                sums: sums.clone(),
            })
        };
        state.sums.iter().filter_map(record).collect()
    }

    fn append_block(
        &self,
        state: &mut State,
        segments: &[SegmentRef],
        mut records: Vec<Record>,
        data: Durability,
    ) -> Result<u64> {
        if !state.announced {
            records.insert(0, self.identity.record());
        }
        let (stamp, end) = self.set.append_index(segments, &records, data)?;
        state.announced = true;
        state.index_unsynced = end;
        state.is_unconfirmed = true;
        Ok(stamp)
    }

    /// Says what closing the logs would say: on a network file system that is where a full quota
    /// shows. Commit first. An error means that acknowledged bytes are lost.
    pub fn close_logs(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.check()?;
        state
            .data
            .close()
            .and_then(|()| self.set.close_index())
            .map_err(|error| state.poison_unless_passing(error))
    }

    /// Whether an heir has what no commit has.
    pub fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether index blocks of this process are not durable.
    pub fn is_unsynced(&self) -> bool {
        lock(&self.state).index_unsynced != 0
    }

    /// The error that poisoned it, if one did. A load if none has.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => lock(&self.state).check(),
            false => Ok(()),
        }
    }

    /// Leaves the log set after a last commit, which has ended as `committed` says. Gives how it
    /// has ended now, and whether this was the node's last writer.
    ///
    /// What found no descriptor stays as a process leaves it that dies: this one is its heir, or,
    /// if the error is a [passing](Error::is_passing) one still, who comes next on the node. What
    /// failed otherwise is dropped.
    pub fn leave(self, committed: Result<()>) -> (Result<()>, Result<bool>) {
        let stays = committed.as_ref().is_err_and(Error::is_passing)
            && self.has_uncommitted()
            && self.journal.is_some();
        drop(self.state);
        match self.journal {
            Some(journal) if !stays => self.set.end_journal(journal),
            // Who comes finds it when nobody has it.
            journal => drop(journal),
        }
        let Some(set) = Arc::into_inner(self.set) else { return (committed, Ok(false)) };
        match stays {
            true => match set.carry_left().and_then(|_| set.must_own()) {
                Ok(()) => (Ok(()), set.leave()),
                Err(error) => (Err(error), Ok(false)),
            },
            false => (committed, set.leave()),
        }
    }
}

/// A new size of the file.
#[derive(Clone, Copy)]
pub enum Resize<'a> {
    /// This one: bytes behind it are cut.
    To(u64),
    /// This one, unless the file is longer.
    AtLeast {
        /// Bytes.
        size: u64,
        /// How long the logs say that the file is, and the stamp of the last cut in them, 0 if
        /// there is none.
        now: &'a dyn Fn() -> Result<(u64, u64)>,
    },
}

/// A commit under way.
pub struct Committing<'a> {
    writer: &'a Writer,
    _turn: MutexGuard<'a, ()>,
    /// Records of [`State::frozen`] that this commit takes.
    frozen: usize,
    /// What of the journal is about them.
    taken: Option<TakenTo>,
    /// Whether their data is durable.
    data: Durability,
}

impl Committing<'_> {
    /// Gets buffered bytes on their way and waits for them, so that the steps that hold locks find
    /// little to write.
    pub fn write_out(&self) -> Result<()> {
        let in_flight = {
            let mut state = lock(&self.writer.state);
            state.check()?;
            let State { data, records, .. } = &mut *state;
            let moved = &mut |moved| relocate(records, moved, &self.writer.set);
            data.begin_flush(moved).map_err(|error| state.poison_if_lost(error))?
        };
        in_flight.wait().map_err(|error| lock(&self.writer.state).poison(error))
    }

    /// [`Writer::freeze`]; what is frozen now is what the commit takes.
    pub fn freeze(&mut self) -> Result<Fresh> {
        let mut state = lock(&self.writer.state);
        let fresh = self.writer.freeze_locked(&mut state)?;
        self.writer.ahead.begin();
        // Only commits take frozen records away, and this is the one. So with their sums, which are
        // of all that was written until now.
        self.frozen = state.frozen.len();
        self.taken = Some(state.records.taken_to());
        let sums = state.data.take_sums();
        state.sums.extend(sums);
        self.data = Durability::Visible;
        Ok(fresh)
    }

    /// Makes the data of what the commit takes durable.
    pub fn sync_data(&mut self) -> Result<()> {
        let writer = self.writer;
        writer.set.sync_data().map_err(|error| lock(&writer.state).poison_unless_passing(error))?;
        self.data = Durability::Durable;
        Ok(())
    }

    /// Makes what the commit takes visible to all who open, refresh or lock the file from now on,
    /// and `cut`s the file behind it. Unless the data of it is durable, hold the
    /// [gate](LogSet::gate).
    ///
    /// Costs one append to the index log if there is anything to say.
    pub fn append(&mut self, cut: Option<u64>) -> Result<Committed> {
        let mut state = lock(&self.writer.state);
        state.check()?;
        let count = std::mem::take(&mut self.frozen);
        self.try_append(&mut state, count, cut).map_err(|error| state.poison_unless_passing(error))
    }

    /// Makes the file reach `size` at least, behind what the commit has taken; `now` as for
    /// [`Resize::AtLeast`]. An error has lost nothing and poisons nothing: if storage has the
    /// record all the same, it cuts nothing.
    pub fn reserve(
        &mut self,
        size: u64,
        now: &dyn Fn() -> Result<(u64, u64)>,
    ) -> Result<Committed> {
        let writer = self.writer;
        let mut state = lock(&writer.state);
        state.check()?;
        let _alone = writer.set.begin_growth(size)?;
        let (known, cut) = now()?;
        let (mut blocks, mut room) = (Vec::new(), None);
        if known < size {
            // A hole cuts nothing, and right behind the last cut it hides nothing that was written
            // since, by anybody. What was there before ends in front of it. A damaged log may say
            // that the cut is from the end of time.
            let hole = Stamped::new(Run::hole(size - 1, 1), cut.saturating_add(1));
            blocks.push(writer.append_runs(&mut state, &[], &[hole], self.data)?);
            room = Some(hole);
        }
        Ok(Committed { set: writer.set.id(), truncate: None, room, blocks })
    }

    fn try_append(
        &mut self,
        state: &mut State,
        count: usize,
        cut: Option<u64>,
    ) -> Result<Committed> {
        let writer = self.writer;
        let (segments, runs) = with_segments(state, state.frozen[..count].to_vec());
        let mut blocks = Vec::new();
        for runs in in_blocks(&runs) {
            blocks.push(writer.append_runs(state, &segments, runs, self.data)?);
        }
        // Not before: what did not get so far is said again, with the stamps that it has.
        state.frozen.drain(..count);
        state.sums.clear();
        if let Some(taken) = self.taken.take() {
            state.records.committed(taken);
        }
        if self.data == Durability::Durable && state.is_doubtful {
            // There was nothing new to say but that: what a program changes while it is written
            // may differ from its sum, and is durable all the same.
            blocks.push(writer.append_runs(state, &segments, &[], self.data)?);
        }
        let mut truncate = None;
        if let Some(size) = cut {
            let cutting = writer.set.begin_cut()?;
            // What was written since the freeze is cut; what goes on with it later must not be.
            state.records.seal(|| writer.set.tick());
            let stamp = writer.set.tick();
            let record = vec![Record::Truncate { size, stamp }];
            blocks.push(writer.append_block(state, &[], record, self.data)?);
            // Behind the block, whose stamp is that of now.
            writer.set.observe(stamp);
            cutting.done(size, stamp);
            truncate = Some((stamp, size));
        }
        // From now on the logs say it, and truncates by others count.
        writer.ahead.done(cut.is_some());
        Ok(Committed { set: writer.set.id(), truncate, room: None, blocks })
    }

    /// Ends a commit that appended or synced: an error if the node was declared dead meanwhile.
    ///
    /// Also if closing a log between two uses has failed: then a sync after it may have found
    /// nothing to say.
    pub fn finish(self) -> Result<()> {
        let owned = self.writer.set.must_own();
        let mut state = lock(&self.writer.state);
        owned
            .and_then(|()| state.data.failure())
            .and_then(|()| self.writer.set.index_failure())
            .map(|()| state.is_unconfirmed = false)
            .map_err(|error| state.poison_unless_passing(error))
    }

    /// Makes the index log durable as far as this process has appended to it, and the data that it
    /// points to.
    pub fn sync_index(&self) -> Result<()> {
        let end = {
            let state = lock(&self.writer.state);
            state.check()?;
            state.index_unsynced
        };
        if end == 0 {
            return Ok(());
        }
        let writer = self.writer;
        let synced = writer.set.sync_index(end);
        let mut state = lock(&writer.state);
        synced.map_err(|error| state.poison_unless_passing(error))?;
        state.index_unsynced = 0;
        Ok(())
    }
}

impl State {
    // The run is not copied.
    #[inline(always)]
    fn push_run(&mut self, run: Run, set: &LogSet) {
        let at = match run.segment {
            // It has no data.
            HOLE => SegmentRef::BASE,
            number => self.data.segment_at(number),
        };
        self.records.push_run(run, &at, || set.stamp());
    }

    #[cold]
    fn fold_journal(&mut self) {
        let State { records, data, frozen, .. } = self;
        records.fold(frozen, |number| match number {
            BASE => SegmentRef::BASE,
            number => data.segment_at(number),
        });
    }

    /// No record goes on over a truncate: it would be cut whole; also if the truncate has failed,
    /// which storage may yet have. Nor over what was `appended` meanwhile: it would be older.
    fn go_behind(&mut self, era: Era, appended: u64, set: &LogSet) {
        if self.era != era || self.appended != appended {
            self.records.seal(|| set.tick());
        }
        (self.era, self.appended) = (era, appended);
    }

    fn check(&self) -> Result<()> {
        match &self.poison {
            Some(first) => Err(Error::Poisoned { first: Box::new(first.clone()) }),
            None => Ok(()),
        }
    }

    /// What the data log still has, a later call can hand to the store.
    fn poison_if_lost(&mut self, error: Error) -> Error {
        if self.data.has_lost() { self.poison(error) } else { error }
    }

    /// For who leaves all that there is as it was, if he fails.
    fn poison_unless_passing(&mut self, error: Error) -> Error {
        if error.is_passing() { error } else { self.poison(error) }
    }

    fn poison(&mut self, error: Error) -> Error {
        self.poison.get_or_insert(error.clone());
        self.failed.store(true, Ordering::Release);
        error
    }
}

/// What the segment numbers of records mean, of which [`BASE`] gets one of the others.
fn with_segments(state: &State, mut runs: Vec<Stamped>) -> (Vec<SegmentRef>, Vec<Stamped>) {
    let mut segments: Vec<SegmentRef> = state.data.segments().collect();
    let number = segments.len() as u32;
    for item in runs.iter_mut().filter(|item| item.run.segment == BASE) {
        item.run.segment = number;
        segments.truncate(number as usize);
        segments.push(SegmentRef::BASE);
    }
    (segments, runs)
}

/// Says in the records of a writer where bytes are that found no room where they were to be. No
/// index log has these records: what a commit has taken is with the store.
fn relocate(records: &mut Records, moved: Moved, set: &LogSet) {
    let Moved { from, length, to, segments: (at_from, at_to) } = moved;
    records.relocate(from, length, to, (&at_from, &at_to), || set.tick());
}

/// What the first `bytes` of a run's bytes are, fewer than it has: whole pieces, and a part of the
/// next.
#[cold]
fn taken(run: Run, bytes: u64) -> [Option<Run>; 2] {
    let (whole, rest) = ((bytes / run.length) as u32, bytes % run.length);
    let pieces = (whole > 0).then_some(Run {
        stride: if whole == 1 { 0 } else { run.stride },
        count: whole,
        ..run
    });
    // A piece of the run: it begins inside the file.
    let next = (run.logical as i64 + i64::from(whole) * run.stride) as u64;
    let part =
        (rest > 0).then(|| Run::single(next, rest, run.segment, run.physical + bytes - rest));
    [pieces, part]
}
