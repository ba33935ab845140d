//! L6: what the handles of one process on one logical file share. Joins a writer and an index; own
//! writes are visible at once.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use plfs_format::summary::Summary;
use plfs_format::superblock::FILE_BYTES;
use plfs_index::{Run, Stamped};

use crate::autocommit;
use crate::catalog::{self, Index, Totalizer, Totals};
use crate::compact;
use crate::config::Config;
use crate::container::{self, Container};
use crate::error::{At, Error, Result};
use crate::in_place::InPlace;
use crate::lifecycle::{self, Hold};
use crate::log::{self, CommitHorizon, Durability, LogSet, Wanted};
use crate::read::SegmentFiles;
use crate::sessions::Sessions;
use crate::store::{Bytes, Errno, Links, StoreFile, Time};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, lock, pause,
};
use crate::write::{Ahead, Committing, Identity, Resize, Writer, Written};

/// How long an append on storage where each look travels relies on the last one.
const APPEND_LOOK: Duration = pause(Duration::from_millis(10));

/// Bytes a second of a file that is written slowly.
const SLOW: u64 = 1 << 20;

/// How often a file is made longer that others cut at the same time.
const GROW_TRIES: usize = 3;

/// What became of a file's times since it was opened here.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Times {
    /// They are as they should be.
    AsFound,
    /// Data was written: the modification time is to be moved.
    Written,
    /// They were set, after the last write.
    Set,
}

/// How far this process has come with a file. It only goes forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    /// It created the file, and nothing was asked of it yet: there is nothing of others to know.
    Created,
    /// Others may have written the file.
    Shared,
    /// It has joined a log set: there may be a writer. For good, because a writer that left may
    /// come back. Reads of files that are only read do without the writer's lock.
    Joined,
}

/// What the handles of one process on one logical file share.
///
/// The flags do not exclude each other: what was read may be `stale` at any stage, a name may go
/// (`nameless`) with or without a writer, `watched` is about what waits for a commit, `finished`
/// about handles.
#[derive(Debug)]
pub(crate) struct LogicalFile {
    pub(crate) container: Arc<Container>,
    pub(crate) config: Arc<Config>,
    /// The name that it was opened by.
    name: Arc<Path>,
    /// The summary as it was when the file was opened, and the index logs read since.
    totals: Mutex<Totalizer>,
    /// `None` until the first read. Boxed: a file that is only opened does not move its kilobyte.
    index: RwLock<Option<Box<Index>>>,
    /// Someone opened the file after the index was loaded: look again before the next read.
    stale: AtomicBool,
    /// Counts who opened the file, or locked it: what is written from then on is younger than what
    /// was there, and appends go behind it.
    acquired: AtomicU64,
    /// What `acquired` was when the writer was told last what is there. Changes with the lock.
    ordered: AtomicU64,
    ordering: Mutex<()>,
    pub(crate) segments: SegmentFiles,
    writer: RwLock<Option<Arc<Writer>>>,
    /// A [`Stage`].
    stage: AtomicU8,
    /// The superblock, open for writing, if this process created it with a mode that would not let
    /// it open it again.
    creation: Mutex<Option<Arc<dyn StoreFile>>>,
    /// Held with a shared lock while the file is open, so that unlink in another process leaves
    /// the container to us. The founder of a log set in a crowd does without it: its mark does.
    guard: Mutex<Guard>,
    /// For the child of a fork: why it lacks what its parent had written before.
    lacks: OnceLock<Error>,
    /// This process removed a name of the file while it was open.
    pub(crate) nameless: AtomicBool,
    /// A [`Times`].
    times: AtomicU8,
    /// What this process has written past what the logs say, once it had a writer.
    ahead: OnceLock<Arc<Ahead>>,
    /// What this process wrote to files that it has closed since.
    sessions: Arc<Sessions>,
    finished: bool,
    /// When an append looked for truncates last, and the time of the container's directory that it
    /// saw.
    append_look: Mutex<Option<(Time, Instant)>>,
    /// The thread of `autocommit` will commit it.
    pub(crate) watched: AtomicBool,
    pace: Mutex<Pace>,
    /// So much waits for a commit that there is to be one before the next write: the last failed.
    overdue: AtomicBool,
    /// Held by that thread as long as it uses the file, and by who must be the last to use it. Not
    /// there as long as the thread has never heard of the file.
    pub(crate) committing: OnceLock<Arc<Mutex<()>>>,
    /// Handles of the process on plain files, for a file that was one.
    pub(crate) in_place: OnceLock<Arc<InPlace>>,
    /// What another process said that it has seen, which the first write need not look for then.
    pub(crate) given_horizon: Mutex<Option<CommitHorizon>>,
}

/// What keeps a container's data while a process has it open.
#[derive(Debug, Default)]
struct Guard {
    hold: Option<Hold>,
    /// The process has forked: the child has the lock too, and relies on nothing else.
    is_forked: bool,
    /// Why what was written before the last fork is not in the logs.
    uncommitted: Option<Error>,
}

/// When the file is committed next, if nobody does it before.
#[derive(Debug)]
struct Pace {
    wait: Duration,
    /// [`Writer::written`] at the last commit.
    written: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { wait: autocommit::FIRST, written: 0 }
    }
}

impl Pace {
    /// A commit by itself begins. A file that is written slowly, as a log is, is committed again as
    /// soon: who watches it sees it, and a block of the index, of some 100 bytes, is small beside
    /// what people can read. For others each wait is twice the one before.
    fn step(&mut self, written: u64) {
        // Another writer begins anew.
        let bytes = written.checked_sub(self.written).unwrap_or(written);
        let is_slow = u128::from(bytes) * 1000 <= u128::from(SLOW) * self.wait.as_millis();
        let wait = if is_slow { autocommit::FIRST } else { self.wait * 2 };
        *self = Pace { wait: wait.min(autocommit::LAST), written };
    }
}

impl autocommit::Autocommit for LogicalFile {
    fn committing(&self) -> &Arc<Mutex<()>> {
        self.committing.get_or_init(Arc::default)
    }

    fn every(&self) -> Duration {
        lock(&self.pace).wait
    }

    fn autocommit(&self) -> bool {
        let uncommitted =
            read(&self.writer).as_ref().is_some_and(|writer| writer.has_uncommitted());
        if !uncommitted {
            lock(&self.pace).wait = autocommit::FIRST;
            self.watched.store(false, Ordering::Release);
            // Written between the look and the store: it would be forgotten.
            if !read(&self.writer).as_ref().is_some_and(|writer| writer.has_uncommitted())
                || self.watched.swap(true, Ordering::AcqRel)
            {
                return false;
            }
        }
        if let Some(writer) = read(&self.writer).as_ref() {
            lock(&self.pace).step(writer.written());
        }
        // An error shows at the next call: the writer is poisoned, or has no room for more.
        let _ = self.commit(Durability::Visible);
        true
    }
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
    /// A file that this process has just created, with its superblock if it could not open that
    /// again.
    pub(crate) fn created(
        container: Arc<Container>,
        config: Arc<Config>,
        sessions: Arc<Sessions>,
        creation: Option<Arc<dyn StoreFile>>,
        name: &Arc<Path>,
    ) -> Arc<LogicalFile> {
        let file = LogicalFile::new(container, config, sessions, None, name);
        file.stage.store(Stage::Created as u8, Ordering::Release);
        *lock(&file.creation) = creation;
        file
    }

    /// A file that was opened as `name`. Shared from the start: its kilobyte is moved once.
    pub(crate) fn new(
        container: Arc<Container>,
        config: Arc<Config>,
        sessions: Arc<Sessions>,
        summary: Option<Summary>,
        name: &Arc<Path>,
    ) -> Arc<LogicalFile> {
        Arc::new(LogicalFile {
            name: name.clone(),
            in_place: OnceLock::new(),
            given_horizon: Mutex::new(None),
            watched: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            pace: Mutex::default(),
            committing: OnceLock::new(),
            container,
            config,
            totals: Mutex::new(Totalizer::new(summary)),
            index: RwLock::new(None),
            stale: AtomicBool::new(false),
            acquired: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            ordering: Mutex::default(),
            segments: SegmentFiles::default(),
            writer: RwLock::new(None),
            stage: AtomicU8::new(Stage::Shared as u8),
            creation: Mutex::new(None),
            guard: Mutex::default(),
            lacks: OnceLock::new(),
            nameless: AtomicBool::new(false),
            times: AtomicU8::new(Times::AsFound as u8),
            ahead: OnceLock::new(),
            sessions,
            append_look: Mutex::default(),
            finished: false,
        })
    }

    /// The next read looks for others' commits.
    pub(crate) fn acquire(&self) {
        self.stale.store(true, Ordering::Release);
        self.acquired.fetch_add(1, Ordering::AcqRel);
        self.advance(Stage::Shared);
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    /// Goes to a stage, if that is ahead. Whether the file was [new](Stage::Created) until now.
    fn advance(&self, to: Stage) -> bool {
        self.stage.fetch_max(to as u8, Ordering::AcqRel) == Stage::Created as u8
    }

    /// The writer, ready to write behind everything that was there at the last acquire.
    pub(crate) fn ordered_writer(&self, wanted: Wanted) -> Result<Arc<Writer>> {
        let writer = self.writer(wanted)?;
        if self.is_ordered() {
            return Ok(writer);
        }
        // Who finds another thread at it waits: its write must not go where the file ended before.
        let _turn = lock(&self.ordering);
        if !self.is_ordered() {
            let acquired = self.acquired.load(Ordering::Acquire);
            // Clocks cost the same however many log sets there are. What was committed ahead of the
            // machine's is in the file's.
            let seen = match (self.clock()?, container::read_clock(&self.container)) {
                (Some(now), Ok(clock)) => now.max(clock.stamp),
                _ => self.totals()?.max_stamp,
            };
            writer.set().observe(seen);
            writer.forget_end();
            writer.seal();
            self.ordered.store(acquired, Ordering::Release);
        }
        Ok(writer)
    }

    /// Writes with the writer, if it is there and [ordered](LogicalFile::ordered_writer), without
    /// counting one more who uses it: a word that all threads change costs more than the lock of
    /// small pieces. Who wants to leave the log set waits so long.
    fn with_writer<T>(&self, write: impl FnOnce(&Writer) -> Result<T>) -> Result<T> {
        {
            let slot = read(&self.writer);
            if let Some(writer) = slot.as_ref()
                && self.is_ordered()
            {
                return write(writer);
            }
        }
        write(self.ordered_writer(Wanted::Any)?.as_ref())
    }

    /// Whether what the writer writes is behind all that was there at the last acquire.
    fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Acquire) == self.acquired.load(Ordering::Acquire)
    }

    /// Keeps the data while a process uses it, though another removes the last name.
    pub(crate) fn hold(&self) -> Result<()> {
        if self.is_held_by_mark() { Ok(()) } else { self.lock_container(&mut lock(&self.guard)) }
    }

    fn is_held_by_mark(&self) -> bool {
        self.is_at(Stage::Joined)
            && read(&self.writer).as_ref().is_some_and(|writer| writer.set().is_of_crowd())
            && !lock(&self.guard).is_forked
    }

    fn lock_container(&self, guard: &mut Guard) -> Result<()> {
        if guard.hold.is_none() {
            guard.hold = Some(Hold::take(&self.container, self.config.shared_memory.as_deref())?);
        }
        Ok(())
    }

    /// An error in the child of a fork, if its parent had written what is not in the logs.
    #[inline]
    fn must_have_all(&self) -> Result<()> {
        self.lacks.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The index, with everything in it that a read must see.
    pub(crate) fn index(&self) -> Result<RwLockReadGuard<'_, Option<Box<Index>>>> {
        self.must_have_all()?;
        // What a failure took is in no log: without it older bytes would show.
        let dirty = || match self.is_at(Stage::Joined) {
            true => read(&self.writer)
                .as_ref()
                .map_or(Ok(false), |writer| writer.check().map(|()| writer.is_dirty())),
            false => Ok(false),
        };
        let index = read(&self.index);
        if !dirty()? && index.is_some() && !self.stale.load(Ordering::Acquire) {
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
        if error.errno() == Errno::NOENT && self.container.store.list(dir) == Err(Errno::NOENT) {
            return Error::refused(Errno::STALE, "use", dir, "it was removed");
        }
        error
    }

    fn look(&self, slot: &mut Option<Box<Index>>, stale: bool) -> Result<()> {
        let begun = match slot.as_mut() {
            None => {
                let index = Index::load_summed_up(&self.container, self.settled()?)?;
                *slot = Some(Box::new(index));
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
            self.rebuild_index(index, Some(writer))?;
            if stale || begun {
                writer.set().observe(index.max_stamp());
                writer.seal();
            }
        }
        Ok(())
    }

    /// Does without a flat index in which a block was found damaged.
    pub(crate) fn do_without_flat(&self) -> Result<()> {
        let mut slot = write(&self.index);
        match slot.as_mut() {
            Some(index) => self.rebuild_index(index, read(&self.writer).as_deref()),
            None => Ok(()),
        }
    }

    /// Does without a flat index that has data which is missing, if the logs may know better.
    /// Whether they may.
    pub(crate) fn doubt_flat(&self) -> Result<bool> {
        let doubted = write(&self.index).as_mut().is_some_and(|index| index.doubt());
        if doubted {
            self.do_without_flat()?;
        }
        Ok(doubted)
    }

    /// Reads the logs instead, if what is known is not to be believed, and adds what is in none of
    /// them.
    fn rebuild_index(&self, index: &mut Index, writer: Option<&Writer>) -> Result<()> {
        let Some(why) = index.is_broken() else { return Ok(()) };
        index.rebuild_from_logs(&self.container, why)?;
        if let Some(writer) = writer {
            index.add_own(&writer.frozen());
        }
        Ok(())
    }

    /// The summary, if it counts at this moment.
    pub(crate) fn settled(&self) -> Result<Option<Summary>> {
        lock(&self.totals).settled(&self.container)
    }

    /// Reads by an index that processes have loaded together; what this process wrote and has not
    /// committed is added.
    pub(crate) fn use_index(&self, bytes: Bytes) -> Result<()> {
        self.hold()?;
        let mut slot = write(&self.index);
        let generation = slot.as_ref().map_or(0, |index| index.generation() + 1);
        self.stale.store(false, Ordering::Release);
        let mut index =
            Index::use_encoded(&self.container, bytes, lock(&self.totals).summary(), generation)?;
        if let Some(writer) = read(&self.writer).as_ref() {
            index.add_own(&writer.frozen());
            self.rebuild_index(&mut index, Some(writer))?;
            writer.set().observe(index.max_stamp());
            writer.seal();
        }
        *slot = Some(Box::new(index));
        Ok(())
    }

    /// Totals as of the last commits, by summary or index logs.
    pub(crate) fn totals(&self) -> Result<Totals> {
        lock(&self.totals).look(&self.container)
    }

    fn writer(&self, wanted: Wanted) -> Result<Arc<Writer>> {
        if let Some(writer) = read(&self.writer).as_ref() {
            return Ok(writer.clone());
        }
        // The index is locked before the writer, or not at the same time.
        let was_read = read(&self.index).as_ref().map_or(0, |index| index.max_stamp());
        let mut slot = write(&self.writer);
        if let Some(writer) = slot.as_ref() {
            return Ok(writer.clone());
        }
        self.lock_container(&mut lock(&self.guard))?;
        let given_horizon = lock(&self.given_horizon).take();
        let seen = match (self.advance(Stage::Shared), given_horizon) {
            (true, _) => CommitHorizon { max_stamp: 0, is_new: true },
            (false, Some(seen)) => seen,
            // A clock is ahead of all that was committed before: this costs the same whether there
            // are a hundred log sets or ten thousand. What this process has read counts all the
            // same.
            (false, None) => match self.clock()? {
                Some(clock) => {
                    let summary = lock(&self.totals).summary().map_or(0, |known| known.max_stamp);
                    CommitHorizon { max_stamp: clock.max(was_read).max(summary), is_new: false }
                }
                None => self.commit_horizon()?,
            },
        };
        let identity = Identity::of_this_process(self.container.store.user());
        let set = LogSet::join(
            self.container.clone(),
            &self.config,
            seen,
            wanted,
            || identity.mark(),
            catalog::complete,
        )?;
        let writer = Arc::new(Writer::new(
            self.container.clone(),
            set,
            &self.config,
            identity,
            self.ahead.get_or_init(Arc::default).clone(),
        )?);
        *slot = Some(writer.clone());
        self.advance(Stage::Joined);
        let mut guard = lock(&self.guard);
        if writer.set().is_of_crowd() && !guard.is_forked {
            guard.hold = None;
        }
        drop(guard);
        Ok(writer)
    }

    /// A stamp that no commit which was acknowledged before exceeds, if there is a clock that
    /// says one: the machine's, or the file's.
    fn clock(&self) -> Result<Option<u64>> {
        match container::goes_by_wall_clock(&self.container)? {
            true => Ok(Some(container::wall_clock())),
            false => log::horizon(&self.container, &self.config),
        }
    }

    /// The log set of this process's writer, if it has one.
    pub(crate) fn set_id(&self) -> Option<u32> {
        read(&self.writer).as_ref().map(|writer| writer.set().id())
    }

    pub(crate) fn commit_horizon(&self) -> Result<CommitHorizon> {
        if self.is_at(Stage::Created) {
            return Ok(CommitHorizon { max_stamp: 0, is_new: true });
        }
        let totals = self.totals()?;
        Ok(CommitHorizon { max_stamp: totals.max_stamp, is_new: totals.log_sets == 0 })
    }

    fn written(&self) {
        // Looked at first: all threads that write would take the word from each other.
        if self.times.load(Ordering::Relaxed) != Times::Written as u8 {
            self.times.store(Times::Written as u8, Ordering::Release);
        }
    }

    /// Whether data was written since the times were set or moved last; they are to be moved then.
    pub(crate) fn owes_times(&self) -> bool {
        let (written, done) = (Times::Written as u8, Times::AsFound as u8);
        let (then, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        self.times.compare_exchange(written, done, then, otherwise).is_ok()
    }

    /// The times were set explicitly: they stay until more is written.
    pub(crate) fn times_were_set(&self) {
        self.times.store(Times::Set as u8, Ordering::Release);
    }

    /// Size with this process's own writes, and the totals as of the last commits.
    pub(crate) fn size(&self) -> Result<(u64, Totals)> {
        self.must_have_all()?;
        let (mut totals, mut end) = Ahead::beside(&self.ahead, || self.totals())?;
        let writer = if end > totals.size { read(&self.writer).clone() } else { None };
        if writer.is_some_and(|writer| !matches!(writer.is_cut(), Ok(false))) {
            // What is not committed may be cut: only the logs can tell.
            self.commit(Durability::Visible)?;
            (totals, end) = Ahead::beside(&self.ahead, || self.totals())?;
        }
        Ok((totals.size.max(end), totals))
    }

    pub(crate) fn commit(&self, promise: Durability) -> Result<()> {
        self.commit_stamped(promise, None).map(drop)
    }

    /// Gives the stamp of what made the file another size; `None` if there was no descriptor for
    /// what is to follow.
    ///
    /// Neither readers nor writers of this process wait for a sync: the index and the writer are
    /// locked while records are frozen and appended only.
    fn commit_stamped(
        &self,
        promise: Durability,
        resize: Option<Resize<'_>>,
    ) -> Result<Option<u64>> {
        let sync = promise == Durability::Durable;
        if sync {
            self.must_have_all()?;
        }
        let Some(writer) = read(&self.writer).clone() else {
            if sync {
                self.sessions.sync(&self.container, None)?;
                catalog::sync_logs(&self.container, None)?;
                let (created, named) = (lock(&self.creation).clone(), self.name.parent());
                catalog::sync_names(&self.container, created.as_deref(), named)?;
            }
            return Ok(None);
        };
        let mut commit = writer.begin_commit();
        commit.write_out()?;
        let all_at_once = !sync || resize.is_some();
        if sync {
            let mut slot = write(&self.index);
            freeze(&mut commit, &mut slot)?;
            drop(slot);
            commit.sync_data()?;
        }
        let (mut stamp, mut reserved) = (None, Ok(()));
        let appended = !all_at_once || resize.is_some() || writer.has_uncommitted();
        if appended {
            let _gate = all_at_once.then(|| writer.set().gate()).transpose()?;
            // The index is locked first, as in `index`: a read that follows sees what was
            // committed.
            let mut slot = write(&self.index);
            if all_at_once {
                freeze(&mut commit, &mut slot)?;
            }
            let cut = match resize {
                Some(Resize::To(size)) => Some(size),
                _ => None,
            };
            stamp = append(&mut commit, &mut slot, cut)?;
            if let Some(Resize::AtLeast { size, now }) = resize {
                match reserve(&mut commit, &mut slot, size, now) {
                    Ok(hole) => stamp = hole,
                    // What the commit took is in the logs all the same.
                    Err(error) => reserved = Err(error),
                }
            }
            if stamp.is_some() {
                // Whoever appends looks at this time: from now on, whatever becomes of a sync.
                container::touch_dir(&self.container);
            }
        }
        let synced = match sync {
            true => self.sync_committed(&commit, &writer, resize),
            false => Ok(()),
        };
        let ended = synced.and_then(|()| match sync || appended {
            true => commit.finish(),
            // Nothing waits also if another thread has found that it is lost.
            false => writer.check(),
        });
        match ended {
            // The file has its size. What was to follow waits for the next commit.
            Err(error) if stamp.is_some() && error.is_passing() => stamp = None,
            ended => ended?,
        }
        reserved.map(|()| stamp)
    }

    /// Makes durable what is in the logs, and their names.
    fn sync_committed(
        &self,
        commit: &Committing<'_>,
        writer: &Writer,
        resize: Option<Resize<'_>>,
    ) -> Result<()> {
        commit.sync_index()?;
        writer.set().sync_names_once(|| {
            let (created, named) = (lock(&self.creation).clone(), self.name.parent());
            self.container.sync_names(created.as_deref(), named)
        })?;
        // What was written in earlier sessions, and closed without a sync, counts as well; unless
        // all of it is cut.
        if !matches!(resize, Some(Resize::To(0))) {
            if self.sessions.left(&self.container, writer.set().id()) {
                writer.set().sync_index(u64::MAX)?;
            }
            self.sessions.sync(&self.container, Some(writer.set().id()))?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, size: u64) -> Result<()> {
        // With a writer about, somebody may have written what is not committed, and this cuts it.
        // Looked for first: who leaves meanwhile has committed before the look at the size.
        if read(&self.writer).is_none()
            && !catalog::has_owner(&self.container.list_until_marks(1)?)
            && self.totals()?.size == size
        {
            return Ok(());
        }
        let to_nothing = size == 0;
        // The old logs may go only when the truncate is durable: or a power cut would bring back a
        // part of the old bytes.
        let (wanted, promise) = match to_nothing {
            true => (Wanted::New, Durability::Durable),
            false => (Wanted::Any, Durability::Visible),
        };
        let writer = self.ordered_writer(wanted)?;
        let stamp = self.commit_stamped(promise, Some(Resize::To(size)))?;
        self.written();
        if to_nothing && let Some(stamp) = stamp {
            // Else the next cut removes them, or a compaction.
            let set = writer.set().id();
            Error::unless_passing(lifecycle::remove_stale_sets(&self.container, set, stamp))?;
        }
        Ok(())
    }

    /// Makes the file reach `size` at least. What others write past it meanwhile stays.
    pub(crate) fn grow(&self, size: u64) -> Result<()> {
        // Again if others have cut the file meanwhile, or made it longer, but not so long.
        for _ in 0..GROW_TRIES {
            if self.size()?.0 >= size {
                return Ok(());
            }
            self.look_for_truncates()?;
            // Held until it is said: else another thread could let the process leave in between.
            let writer = self.ordered_writer(Wanted::Any)?;
            writer.know_end(|| self.size_and_cut())?;
            // Asked while nobody of the node cuts the file: the size from above is old.
            let now = || {
                let totals = self.totals()?;
                // When the summary was written nobody had anything that was not committed.
                let summed_up = lock(&self.totals).summary().map_or(0, |known| known.max_stamp);
                Ok((totals.size, totals.cut.max(summed_up)))
            };
            let resize = Resize::AtLeast { size, now: &now };
            self.commit_stamped(Durability::Visible, Some(resize))?;
            self.written();
            drop(writer);
        }
        Ok(())
    }

    /// Looks whether somebody has cut the file, for an append: then the next write is ordered
    /// behind that.
    fn look_for_truncates(&self) -> Result<()> {
        let mut seen = lock(&self.append_look);
        if !self.container.local && seen.is_some_and(|(_, when)| when.elapsed() < APPEND_LOOK) {
            return Ok(());
        }
        let time = self.container.time()?;
        if seen.replace((time, Instant::now())).is_some_and(|(before, _)| before != time) {
            self.acquire();
        }
        Ok(())
    }

    pub(crate) fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.record(|writer| writer.write(offset, bytes))
    }

    pub(crate) fn write_pieces(self: &Arc<Self>, run: Run, bytes: &[u8]) -> Result<usize> {
        self.record(|writer| writer.write_pieces(run, bytes))
    }

    /// Takes over what this process wrote in place before it knew of the container: commits it as
    /// records with the stamps that it had. Its bytes are durable in the base, and the writes have
    /// moved the file's times: who has set them since finds what he has set.
    pub(crate) fn adopt(&self, runs: Vec<Stamped>) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let writer = self.ordered_writer(Wanted::Any)?;
        {
            let mut slot = write(&self.index);
            let fresh = writer.adopt(runs)?;
            if let Some(index) = slot.as_mut() {
                index.add_own(&fresh);
            }
        }
        // Durable: the block says that its data is, because nothing sums that up.
        self.commit(Durability::Durable)
    }

    /// Makes the part of `[offset, end)` that is in the file, as everybody's commits and this
    /// process's writes have it, a hole.
    pub(crate) fn punch(self: &Arc<Self>, offset: u64, end: u64) -> Result<()> {
        let (mut size, totals) = self.size()?;
        if size > totals.size && end > totals.size {
            // Others may have cut what this process has not committed: only the logs can tell.
            self.commit(Durability::Visible)?;
            size = self.totals()?.size;
        }
        let end = end.min(size);
        if offset < end {
            self.record(|writer| writer.punch(offset, end - offset))?;
        }
        Ok(())
    }

    /// Writes `bytes` at the end of the file: gives where, and how many were taken.
    pub(crate) fn append(self: &Arc<Self>, bytes: &[u8]) -> Result<(u64, usize)> {
        self.commit_overdue()?;
        self.look_for_truncates()?;
        let size = || self.size_and_cut();
        let (offset, written) = self.ordered_writer(Wanted::Any)?.append(bytes, size)?;
        Ok((offset, self.recorded(written)?))
    }

    /// As the logs say them.
    fn size_and_cut(&self) -> Result<(u64, u64)> {
        self.totals().map(|totals| (totals.size, totals.cut))
    }

    fn record(self: &Arc<Self>, write: impl FnOnce(&Writer) -> Result<Written>) -> Result<usize> {
        self.commit_overdue()?;
        let written = self.with_writer(write)?;
        self.recorded(written)
    }

    /// Without it who never finds a descriptor for the index log would write until there is no
    /// memory.
    fn commit_overdue(&self) -> Result<()> {
        if self.overdue.load(Ordering::Relaxed) {
            self.commit(Durability::Visible)?;
            self.overdue.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn recorded(self: &Arc<Self>, written: Written) -> Result<usize> {
        // What waits for a commit is not forgotten. Behind the write: if the thread of `autocommit`
        // has not found it, this finds that nobody watches.
        if !self.watched.load(Ordering::Acquire) && !self.watched.swap(true, Ordering::AcqRel) {
            autocommit::watch(self);
        }
        self.written();
        if written.should_commit
            && let Err(error) = self.commit(Durability::Visible)
        {
            if read(&self.writer).as_ref().is_none_or(|writer| writer.check().is_err()) {
                return Err(error);
            }
            // Without room for a commit, that shows at the next call: these bytes were taken.
            self.overdue.store(true, Ordering::Relaxed);
        }
        Ok(written.bytes)
    }

    /// Commits, and holds the container by a lock from now on: a child inherits that, and not the
    /// mark. What was not used yet it holds if it can: the child may remove its last name.
    pub(crate) fn before_fork(&self) -> Result<()> {
        let committed = self.commit(Durability::Visible);
        let mut guard = lock(&self.guard);
        guard.is_forked = true;
        guard.uncommitted = committed.as_ref().err().cloned();
        let held = self.lock_container(&mut guard);
        match self.is_at(Stage::Joined) {
            true => committed.and(held),
            false => committed,
        }
    }

    /// Forgets the writer without leaving its log set: the child of a fork, whose parent goes on
    /// with it.
    pub(crate) fn forget_writer(&self) {
        // The lock, which it shares with its parent, is there: see `before_fork`.
        self.advance(Stage::Shared);
        self.watched.store(false, Ordering::Release);
        if let Some(ahead) = self.ahead.get() {
            ahead.forget();
        }
        if let Some(writer) = write(&self.writer).take() {
            // Only the parent has it, and may commit it later, or not.
            if let Some(error) = lock(&self.guard).uncommitted.take()
                && (writer.has_uncommitted() || writer.check().is_err())
            {
                let _ = self.lacks.set(error);
            }
            // What was written before the fork counts for a sync of the child.
            if writer.is_unsynced() {
                self.sessions.leave_unsynced(&self.container, writer.set().id());
            }
            // Its memory is shared history: dropping it would close descriptors that are the
            // child's own copies, which is right, and unlock nothing, because flock locks belong to
            // the parent's descriptors too.
            drop(writer);
        }
    }

    /// Commits and gives up the log set; the next write joins again.
    pub(crate) fn leave(&self) -> Result<()> {
        let _alone = self.committing.get().map(|committing| lock(committing));
        self.leave_alone()
    }

    /// The same for a process that is about to end: what it finds no descriptor to commit with its
    /// journal keeps for who comes next.
    pub(crate) fn leave_at_end(&self) -> Result<()> {
        let is_kept = || read(&self.writer).as_ref().is_none_or(|writer| writer.has_journal());
        match self.leave() {
            Err(error) if error.is_passing() && is_kept() => Ok(()),
            left => left,
        }
    }

    /// [`LogicalFile::leave`] while the thread of `autocommit` is kept away.
    fn leave_alone(&self) -> Result<()> {
        if read(&self.writer).is_none() {
            return Ok(());
        }
        // The work, while others read and write.
        let promise = Durability::on_close(&self.config);
        let committed = self.commit(promise);
        let mut index = write(&self.index);
        let mut slot = write(&self.writer);
        let Some(writer) = slot.take() else { return committed };
        let writer = match Arc::try_unwrap(writer) {
            Ok(writer) => writer,
            Err(busy) => {
                // Another thread is writing or commits: it goes on with the set.
                *slot = Some(busy);
                return committed;
            }
        };
        // From here on nobody writes: what came since the commit belongs to this one.
        let mut rest = committed
            .and_then(|()| commit_rest(&writer, &mut index, promise))
            .and_then(|()| writer.close_logs());
        if rest.is_err() && !self.finished {
            // Its bytes are lost, and each later call on the file has to say so.
            *slot = Some(Arc::new(writer));
            return rest;
        }
        if writer.set().is_of_crowd() && !self.finished {
            // Before the mark goes.
            rest = rest.and(self.lock_container(&mut lock(&self.guard)));
        }
        if writer.is_unsynced() {
            self.sessions.leave_unsynced(&self.container, writer.set().id());
        }
        let (rest, left) = writer.leave(rest);
        drop(slot);
        drop(index);
        // The bytes are in the logs, or `rest` says that they are not. What is left to tidy up the
        // next writer does.
        rest.and(Error::unless_passing(left.and_then(|last| self.sum_up(last))))
    }

    /// Sets owner and group through `container`, which may act as somebody else than this file's
    /// store does.
    pub(crate) fn chown_by(
        &self,
        container: &Container,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        // The log set is the old owner's: the new one goes on with another.
        let store = &self.container.store;
        if uid.is_some_and(|uid| uid != store.user() && store.for_owner(uid, u32::MAX).is_some()) {
            self.leave()?;
        }
        container::chown(container, uid, gid)?;
        store.owner_changed(uid, gid);
        Ok(())
    }

    /// The last handle of the process is gone: commit, leave the log set, sum up, remove what has
    /// no name. With a [passing](Error::is_passing) error the bytes are not in the logs, but left
    /// for who opens the file next.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let result = match writer {
            None => Ok(()),
            Some(_) => {
                let is_held_by_mark = self.is_held_by_mark();
                let left = self.leave_alone();
                if is_held_by_mark {
                    self.nameless.store(true, Ordering::Release);
                }
                left
            }
        };
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner);
        let held = guard.hold.take().is_some();
        result.and(Error::unless_passing(self.remove_if_left_nameless(held)))
    }

    /// Of a container that a plain file has got: who removed the name before he knew of it left it
    /// to those who have it open. A stat.
    pub(crate) fn look_for_name(&self) {
        if !self.has_name() {
            self.nameless.store(true, Ordering::Release);
        }
    }

    /// Whether there is a name, as far as one can know. A stat.
    pub(crate) fn has_name(&self) -> bool {
        let stat = self.container.store.stat(&self.container.inode_path(), Links::Stay);
        !stat.is_ok_and(|stat| stat.nlink <= 1)
    }

    /// Removes the container if its last name went while this process had it open and nobody else
    /// has.
    pub(crate) fn remove_if_nameless(&self) -> Result<()> {
        // Whoever removed the last name while we held the container left it to us; if we never held
        // it, they removed it themselves. Our own claim goes first: who removes the name after we
        // have looked must not leave the data to us.
        let held = lock(&self.guard).hold.take().is_some();
        self.remove_if_left_nameless(held)
    }

    /// [`LogicalFile::remove_if_nameless`] by who has given up the claim that it `held`.
    fn remove_if_left_nameless(&self, held: bool) -> Result<()> {
        if self.in_place.get().is_some_and(|all| all.has(self.container.identity)) {
            // Another handle of the process takes the file for a plain one. It looks again when it
            // is used or closed, and does this.
            return Ok(());
        }
        let may_be_nameless = held || self.nameless.load(Ordering::Acquire);
        if may_be_nameless && !self.container.copied && !self.has_name() {
            // What was read of the base is open still, which looks like somebody who writes it in
            // place.
            self.segments.clear();
            lifecycle::remove_if_nameless(&self.container, self.config.shared_memory.as_deref())?;
        }
        Ok(())
    }

    /// The node's last writer has left: if it was the last of all, it writes the summary, which
    /// also moves the modification time. Others leave both to the last one.
    fn sum_up(&self, last: bool) -> Result<()> {
        if !last {
            return Ok(());
        }
        // Of many log sets, whose owners leave one after the other, each looks at a few.
        let mut names = self.container.list_until_marks(lifecycle::LOOK_MAX)?;
        if catalog::has_owner(&names) {
            if !lifecycle::end_the_dead(&self.container, &self.config, &names)? {
                return Ok(());
            }
            names = self.container.list()?;
            if catalog::has_owner(&names) {
                return Ok(());
            }
        }
        let times = self.times.swap(Times::AsFound as u8, Ordering::AcqRel);
        let path = self.container.inode_path();
        let before = match self.container.store.stat(&path, Links::Stay) {
            // Removed under us: nothing to sum up.
            Err(Errno::NOENT) => return Ok(()),
            other => other.at("stat", &path)?,
        };
        let creation = lock(&self.creation).take();
        let mut summed_up = None;
        // A summary that this user may not write costs the next stat a look at the logs, nothing
        // else.
        if let Ok(file) = creation.map_or_else(|| catalog::open_super(&self.container), Ok) {
            summed_up = match catalog::write_summary(&self.container, file.as_ref(), &names) {
                // Only the owner sets the directory's time.
                Err(error) if matches!(error.errno(), Errno::PERM | Errno::ACCESS) => None,
                other => other?,
            };
            // Other clients look at the superblock first of all: they should not wait for what this
            // one changed in it.
            container::publish((!self.container.local).then_some(file.as_ref()));
        }
        // A summary is written to the inode that has the times, unless that is a base.
        match summed_up.is_some() && !self.container.superblock.has_base {
            false if times == Times::Written as u8 => self.touch(),
            // Times that were set after the last write stay.
            true if times == Times::Set as u8 => self
                .container
                .store
                .set_times(&path, Some(before.atime), Some(before.mtime))
                .or(Ok(())),
            _ => Ok(()),
        }?;
        if summed_up.is_some_and(|totals| compact::is_worth(&self.container, &self.config, &totals))
        {
            // What ends it leaves the file as it was: the next last writer tries again.
            let _ = match self.finished {
                true => compact::compact(&self.container, &self.config, &mut |_| {
                    ControlFlow::Continue(())
                }),
                false => compact::compact_in_use(&self.container, &self.config),
            };
            self.acquire();
        }
        Ok(())
    }

    /// Sets the modification time to now.
    pub(crate) fn touch(&self) -> Result<()> {
        let path = self.container.inode_path();
        match self.container.store.set_times(&path, None, Some(Time::now())) {
            // Only the owner may set times; whoever may write can change an unused byte, which does
            // the same.
            Err(Errno::PERM | Errno::ACCESS) => {
                if let Ok(file) = catalog::open_super(&self.container) {
                    let _ = file.write_at(&[0], FILE_BYTES as u64 - 1);
                }
                Ok(())
            }
            other => other.at("set the times of", &path),
        }
    }
}

/// Hands what was written so far to the store, and its records to the index.
fn freeze(commit: &mut Committing<'_>, index: &mut Option<Box<Index>>) -> Result<()> {
    let fresh = commit.freeze()?;
    if let Some(index) = index.as_mut() {
        index.add_own(&fresh);
    }
    Ok(())
}

/// Appends what is frozen, and cuts the file: gives the stamp of that. The index need not read it
/// then.
fn append(
    commit: &mut Committing<'_>,
    index: &mut Option<Box<Index>>,
    cut: Option<u64>,
) -> Result<Option<u64>> {
    let committed = commit.append(cut)?;
    if let Some(index) = index.as_mut() {
        index.add_committed(&committed);
    }
    Ok(committed.truncate.map(|(stamp, _)| stamp))
}

/// Appends that the file reaches `size` at least, if it does not: gives the stamp of that.
fn reserve(
    commit: &mut Committing<'_>,
    index: &mut Option<Box<Index>>,
    size: u64,
    now: &dyn Fn() -> Result<(u64, u64)>,
) -> Result<Option<u64>> {
    let committed = commit.reserve(size, now)?;
    if let Some(index) = index.as_mut() {
        index.add_committed(&committed);
    }
    Ok(committed.room.map(|hole| hole.stamp))
}

/// Commits what a writer has that nobody writes with any more.
fn commit_rest(writer: &Writer, index: &mut Option<Box<Index>>, promise: Durability) -> Result<()> {
    writer.check()?;
    if !writer.has_uncommitted() {
        return Ok(());
    }
    let mut commit = writer.begin_commit();
    freeze(&mut commit, index)?;
    if promise == Durability::Durable {
        commit.sync_data()?;
    }
    let gate = writer.set().gate()?;
    append(&mut commit, index, None)?;
    drop(gate);
    if promise == Durability::Durable {
        commit.sync_index()?;
    }
    commit.finish()
}

impl Drop for LogicalFile {
    fn drop(&mut self) {
        // `File::close` has finished already, unless someone who only looked was the last to let
        // go.
        let _ = self.finish();
    }
}
