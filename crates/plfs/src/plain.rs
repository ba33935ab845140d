//! L6: a plain file that this process has open, and that may become a container at any time
//! (docs/decisions/0013).
//!
//! As long as the file is plain its bytes are written in place, and what was written is noted as
//! runs with stamps, as a writer of logs does. A *look* asks the file's attribute whether it has a
//! container. If not, the runs are forgotten: all logs to come are later. If it has, the runs
//! become records that point into the base ([`LogicalFile::adopt`]), and the process goes on in the
//! container. Commits, acquires and truncates look; so does a writer for each MiB.
//!
//! Handles bring the open file themselves: that of a program keeps its own descriptor.

use std::path::Path;
use std::time::{Duration, Instant};

use plfs_format::attribute::Decision;
use plfs_index::{Folder, Run, Stamped};

use crate::container::{base, find_root, wall_clock, wall_clock_at};
use crate::error::{At, Error, Result};
use crate::logical::LogicalFile;
use crate::process::Process;
use crate::store::writers::{Entry, Writing};
use crate::store::{self, Errno, Size, StoreFile};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak, lock, thread};
use crate::write::BASE;

/// Bytes that are written in place without a look: 1 MiB, which takes some hundred times as long as
/// one on all file systems that were measured.
pub const LOOK_BYTES: u64 = 1 << 20;
/// Runs that are noted without a look: 4,096, some 400 kB.
const LOOK_RUNS: usize = 4096;

/// How often who may not finish a container looks, a millisecond apart, whether its owner has: a
/// living one takes some twelve calls.
const FINISH_TRIES: u32 = 100;
/// And how long in all: each try waits for who makes it.
const FINISH_TIME: Duration = Duration::from_secs(2);

/// Why a look fails that may not read the attribute.
const UNREADABLE: &str =
    "the right to read it was taken away, and with it whether others go on in a container";

/// Where a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// To the file itself.
    Here,
    /// To its container.
    Container,
}

/// An open file, and its path.
type Opened = (Weak<dyn StoreFile>, Arc<Path>);

/// A plain file, for all handles of the process.
#[derive(Debug)]
pub(crate) struct PlainFile {
    /// Device and inode: a number that a program lent may mean another file by now.
    identity: (u64, u64),
    /// Locked for reading by who writes in place, for writing by who goes on in the container.
    place: RwLock<Place>,
    /// It stays plain for ever: nothing is noted, and nobody looks.
    is_pinned: AtomicBool,
    noted: Mutex<Noted>,
    /// A look has waited for who made the container, or had no need to.
    has_waited: AtomicBool,
    /// One look at a time: what it has taken of `noted` is in nobody's log before it is done.
    looking: Mutex<()>,
    /// Threads share the descriptor that carries the gate, so that does not part them.
    cutting: Mutex<()>,
    /// The open files of it, and their paths, for who ends the process. Any of them will do, but
    /// each may be closed before the others.
    opened: Mutex<Vec<Opened>>,
    /// The process is in the node's table as a writer of the file.
    writing: Entered,
}

/// What was written in place since the last look.
#[derive(Debug, Default)]
struct Noted {
    folder: Folder,
    bytes: u64,
    last_stamp: u64,
    /// Taken by a look that failed.
    kept: Vec<Stamped>,
}

impl Noted {
    /// Bytes at `offset` were written at `wall`, a stamp of the clock.
    fn push(&mut self, offset: u64, bytes: u64, wall: u64) {
        let last = &mut self.last_stamp;
        self.folder.push(offset, bytes, BASE, offset, || {
            *last = wall.max(last.saturating_add(1));
            *last
        });
        self.bytes += bytes;
    }

    fn take(&mut self) -> Vec<Stamped> {
        self.bytes = 0;
        let last = &mut self.last_stamp;
        let runs = self.folder.take(|| {
            *last = wall_clock().max(last.saturating_add(1));
            *last
        });
        let mut all = std::mem::take(&mut self.kept);
        all.extend(runs);
        all
    }

    fn is_empty(&self) -> bool {
        self.folder.is_empty() && self.kept.is_empty()
    }

    fn is_due(&self) -> bool {
        self.bytes >= LOOK_BYTES || self.folder.len() >= LOOK_RUNS
    }
}

/// What somebody has done without a handle to a plain file that he had made: entered it in the
/// node's table, and written one piece since his last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// `None`: there was no room, or it is another process's.
    pub entry: Option<Entry>,
    /// Where the piece begins.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// When it was begun, before its first byte: in nanoseconds since 1970.
    pub since_ns: u64,
    /// Something was written, be it before the look.
    pub is_written: bool,
    /// The next call must look.
    pub must_look: bool,
}

/// How the process is known to others of its node.
#[derive(Debug)]
pub(crate) enum Entered {
    /// By this entry of their table.
    As(Writing),
    /// The table has no room for it.
    NoRoom,
    /// It is a node of its own, or writes nothing.
    Alone,
}

/// What a look found.
pub(crate) enum Found {
    /// The file is plain, and stays so for now or for ever.
    Plain,
    /// The process goes on in the container.
    Container(Arc<LogicalFile>),
}

/// What became of a call in place.
pub(crate) enum Done<T> {
    /// It was done.
    InPlace(T),
    /// Another thread has gone on to the container: nothing was done.
    Left,
}

impl PlainFile {
    pub(crate) fn new(identity: (u64, u64), writing: Entered) -> PlainFile {
        PlainFile {
            identity,
            place: RwLock::new(Place::Here),
            is_pinned: AtomicBool::new(false),
            noted: Mutex::default(),
            has_waited: AtomicBool::new(false),
            looking: Mutex::default(),
            cutting: Mutex::default(),
            opened: Mutex::default(),
            writing,
        }
    }

    fn place(&self) -> RwLockReadGuard<'_, Place> {
        self.place.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process has gone on to the container.
    fn has_left(&self) -> bool {
        *self.place() == Place::Container
    }

    /// Whether it has gone on in a container, as far as one knows without waiting.
    pub(crate) fn has_surely_left(&self) -> bool {
        self.place.try_read().is_ok_and(|place| *place == Place::Container)
    }

    pub(crate) fn has_left_or_must_look(&self) -> bool {
        self.has_left() || self.must_look()
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.is_pinned.load(Ordering::Acquire)
    }

    /// Whether the next call must look first: somebody of the node has said that there is a
    /// container, or could not say it to this process.
    fn must_look(&self) -> bool {
        !self.is_pinned()
            && match &self.writing {
                Entered::As(writing) => writing.is_flagged(),
                Entered::NoRoom => true,
                Entered::Alone => false,
            }
    }

    /// Changes bytes in place by `write`, which gives how many at `offset`; then says whether a
    /// look is due.
    pub(crate) fn write(
        &self,
        offset: u64,
        write: impl FnOnce() -> store::Result<usize>,
    ) -> store::Result<Done<(usize, bool)>> {
        let place = self.place();
        if *place == Place::Container {
            return Ok(Done::Left);
        }
        if self.is_pinned() {
            return Ok(Done::InPlace((write()?, false)));
        }
        // Before the write: a floor by the file's modification time has it then.
        let wall = wall_clock();
        let written = write()?;
        let mut noted = lock(&self.noted);
        noted.push(offset, written as u64, wall);
        Ok(Done::InPlace((written, noted.is_due())))
    }

    /// Makes `[offset, offset + length)` zeros, as far as the file reaches.
    pub(crate) fn punch(
        &self,
        file: &dyn StoreFile,
        path: &Path,
        offset: u64,
        length: u64,
    ) -> Result<Done<()>> {
        let end = offset.saturating_add(length).min(file.stat().at("stat", path)?.len);
        let bytes = end.saturating_sub(offset);
        let punch = || file.punch(offset, bytes).map(|()| bytes as usize);
        match self.write(offset, punch).at("punch a hole into", path)? {
            Done::Left => Ok(Done::Left),
            Done::InPlace(_) => Ok(Done::InPlace(())),
        }
    }

    /// Looks whether the file has a container, and goes on in it then. One call if it has none.
    pub(crate) fn look(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
    ) -> Result<Found> {
        if self.is_pinned() && !self.has_left() {
            return Ok(Found::Plain);
        }
        let _alone = lock(&self.looking);
        // What is written from now on was perhaps written after somebody else's commit, and must
        // not be forgotten.
        let runs = lock(&self.noted).take();
        let found = match base::look(file) {
            Ok(Some(Decision::Plain(_))) => {
                self.is_pinned.store(true, Ordering::Release);
                Ok(None)
            }
            Ok(Some(decision)) => file.stat().at("stat", path).and_then(|stat| {
                let mounts = &process.config.mounts;
                if (stat.dev, stat.ino) != self.identity {
                    return Ok(None);
                }
                let store = &process.store;
                let find = || base::find_decided(store, &decision, &stat, path, mounts);
                // Who makes it has the processor meanwhile, and what would be written in place has
                // to be handed over.
                let is_waited_for = self.has_waited.swap(true, Ordering::Relaxed);
                let is_begun =
                    || !is_waited_for && base::is_being_made(store.as_ref(), &decision, &stat);
                let found = base::when_made(find, is_begun)?;
                // Without `base`, too, it had a container. What is in P would be old bytes.
                let is_its = matches!(decision, Decision::Container { ino, .. } if ino == stat.ino);
                let is_nameless = is_its && stat.nlink == 0;
                if found.is_none() && is_nameless && !process.is_local(stat.dev, path) {
                    return Err(Error::refused(Errno::STALE, "use", path, "it was removed"));
                }
                Ok(found)
            }),
            Ok(None) => Ok(None),
            // Who may write it may read it when it is promoted. If the right to read was taken
            // away since, the second link says that it may have a container.
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                file.stat().at("stat", path).and_then(|stat| match stat.nlink {
                    0 | 1 => Ok(None),
                    _ => Err(Error::refused(errno, "write in place", path, UNREADABLE)),
                })
            }
            Err(errno) => Err(errno).at("read the attribute user.plfs of", path),
        };
        let (container, summary) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Found::Plain),
            Err(error) => {
                self.keep(runs);
                return Err(error);
            }
        };
        let (uid, gid) = (container.superblock.uid, container.superblock.gid);
        let container = Arc::new(container.configured(&process.config).opened(uid, gid));
        let logical = process.share(container, summary, &Arc::from(path));
        // The descriptor alone has kept the file until now, with a name or without.
        if let Err(error) = logical.hold() {
            self.keep(runs);
            return Err(error);
        }
        // From here on nobody writes in place.
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = runs;
        all.extend(lock(&self.noted).take());
        if let Err(error) = adopt(&logical, file, path, all.clone()) {
            self.keep(all);
            return Err(error);
        }
        *place = Place::Container;
        Ok(Found::Container(logical))
    }

    /// The file is open as `file`, for [`PlainFile::look_by_itself`].
    pub(crate) fn opened_as(&self, file: &Arc<dyn StoreFile>, path: &Arc<Path>) {
        let mut opened = lock(&self.opened);
        opened.retain(|(file, _)| file.strong_count() > 0);
        opened.push((Arc::downgrade(file), path.clone()));
    }

    /// [`PlainFile::look`] for who has no handle: commits what was written, if the file has a
    /// container.
    pub(crate) fn look_by_itself(&self, process: &Process) -> Result<()> {
        let open = |(file, path): &Opened| Some((file.upgrade()?, path.clone()));
        let found = lock(&self.opened).iter().rev().find_map(open);
        match found {
            Some((file, path)) => self.look(process, file.as_ref(), &path).map(drop),
            None => Ok(()),
        }
    }

    /// Notes what was written without a handle. It has its place in the order, whatever was noted
    /// meanwhile.
    pub(crate) fn take_over(&self, written: &Written) {
        if written.bytes > 0 {
            let stamp = wall_clock_at(written.since_ns.into());
            let run = Run::single(written.start, written.bytes, BASE, written.start);
            let mut noted = lock(&self.noted);
            noted.kept.push(Stamped::new(run, stamp));
            noted.bytes += written.bytes;
            noted.last_stamp = noted.last_stamp.max(stamp);
        }
    }

    /// Whether something was written that no look has taken.
    pub(crate) fn has_noted(&self) -> bool {
        !lock(&self.noted).is_empty()
    }

    /// In the child of a fork: what the parent wrote the parent hands over.
    pub(crate) fn forget(&self) {
        lock(&self.noted).take();
    }

    /// What a look took that failed is for the next one.
    fn keep(&self, runs: Vec<Stamped>) {
        let mut noted = lock(&self.noted);
        noted.kept.splice(0..0, runs);
    }

    /// Decides that the file stays plain, if nothing else is decided. A file that becomes a
    /// container is one afterwards.
    pub(crate) fn pin(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
        why: &str,
    ) -> Result<Found> {
        match base::pin(file, why) {
            // A copy of a superblock is a plain file, and can never be anything else.
            Ok(Decision::Plain(_) | Decision::Superblock(_)) => {
                self.is_pinned.store(true, Ordering::Release);
                lock(&self.noted).take();
                Ok(Found::Plain)
            }
            Ok(Decision::Container { ino, .. }) => match self.look(process, file, path)? {
                Found::Plain => self.finish(process, file, path, ino),
                found => Ok(found),
            },
            // Who may not set it may not promote the file either; nor may anybody where there are
            // no attributes.
            Err(Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP | Errno::ROFS | Errno::BADF) => {
                Ok(Found::Plain)
            }
            Err(errno) => Err(errno).at("set the attribute user.plfs of", path),
        }
    }

    /// Goes on in the container of inode `ino`, which somebody decided and has not made whole:
    /// killed, or just now at it. A copy of the file, and one that has no name any more, stay
    /// plain, as nobody makes it whole. BUSY if it cannot be finished now: only its owner can.
    fn finish(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
        ino: u64,
    ) -> Result<Found> {
        let stat = file.stat().at("stat", path)?;
        let owner = process.store.for_owner(stat.uid, stat.gid);
        let store = owner.as_ref().unwrap_or(&process.store);
        if stat.ino != ino || stat.nlink == 0 {
            return Ok(Found::Plain);
        }
        let find = || find_root(store.as_ref(), path, &process.config.mounts);
        let mut root = (stat.uid == store.user()).then(find).transpose()?;
        let begun = Instant::now();
        for tries in 0..=FINISH_TRIES {
            if tries > 0 && begun.elapsed() > FINISH_TIME {
                break;
            }
            if tries > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            if let Some(root_of_own) = &root {
                let Process { config, layouts, .. } = process;
                match base::promote(store, config, layouts, file, path, root_of_own, || ()) {
                    // Who only reads it cannot lock the gate, and waits for who makes it.
                    Err(error) if error.errno() == Errno::BADF => root = None,
                    other => drop(other?),
                }
            }
            match self.look(process, file, path)? {
                Found::Plain => {}
                found => return Ok(found),
            }
        }
        // What is written in place from here on would be hidden once it is whole.
        let why = "a container of it was begun and not finished; the next of its owner's programs \
                   that writes it finishes it";
        Err(Error::refused(Errno::BUSY, "write in place", path, why))
    }

    /// Sets the length of the file, or goes on in its container, where nothing is done yet.
    pub(crate) fn set_len(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
        len: u64,
    ) -> Result<Found> {
        self.resize(process, file, path, || file.set_len(len).at("set the size of", path))
    }

    /// Reserves room in the file, or goes on in its container, where nothing is done yet.
    pub(crate) fn allocate(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
        (offset, length): (u64, u64),
        size: Size,
    ) -> Result<Found> {
        let allocate = || file.allocate(offset, length, size).at("reserve room for", path);
        self.resize(process, file, path, allocate)
    }

    /// Does what changes the size in place, while nobody makes the container whole.
    fn resize(
        &self,
        process: &Process,
        file: &dyn StoreFile,
        path: &Path,
        resize: impl Fn() -> Result<()>,
    ) -> Result<Found> {
        let _alone = lock(&self.cutting);
        if !self.is_pinned() {
            let done = base::through_gate(file, path, || {
                let found = self.look(process, file, path)?;
                if let Found::Plain = found {
                    resize()?;
                }
                Ok(found)
            });
            match done {
                // Another thread has gone on, and may have put another descriptor in this place.
                Err(_) if self.has_left() => {}
                // A program keeps the gate shut, or there are no locks: nobody promotes it then.
                Err(error) if is_shut(&error) => {
                    if let Found::Container(logical) =
                        self.pin(process, file, path, "truncated beside a lock to its end")?
                    {
                        return Ok(Found::Container(logical));
                    }
                }
                done => return done,
            }
        }
        if self.has_left() {
            return self.look(process, file, path);
        }
        resize().map(|()| Found::Plain)
    }
}

fn is_shut(error: &Error) -> bool {
    matches!(error.errno(), Errno::BUSY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)
}

/// Hands what was written in place over to the container, as far as the file reaches: what is past
/// its end was cut while it was plain. The data first: records must not point to what a power cut
/// can take, because they hide what is older.
fn adopt(
    logical: &Arc<LogicalFile>,
    file: &dyn StoreFile,
    path: &Path,
    runs: Vec<Stamped>,
) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let len = file.stat().at("stat", path)?.len;
    let left = |item: &Stamped| {
        let stamp = item.stamp;
        item.each()
            .flat_map(move |run| run.clipped(len))
            .flatten()
            .map(move |run| Stamped::new(run, stamp))
    };
    let runs: Vec<Stamped> = runs.iter().flat_map(left).collect();
    if runs.is_empty() {
        return Ok(());
    }
    file.sync_data().at("sync", path)?;
    logical.adopt(runs)
}
