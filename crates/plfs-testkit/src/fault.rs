//! A store that fails on demand, and remembers what it was asked.
//!
//! [`FaultStore`] passes every call on to another store, unless one of the [`Fault`]s put into it
//! says otherwise. A call that fails here does not reach the store below and has no effect, except
//! that a write may be cut short. All clones of a [`FaultStore`], and all files opened through it,
//! share one set of faults, one count and one log.
//!
//! Not counted, as they change nothing: `is_local`, `boot`, `reach`, `next_data`, `forget_cached`,
//! `fd`, and closing.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::explored;
use plfs::store::{
    Bytes, Entry, Errno, Keep, Links, LockKind, Open, Place, Result, Size, Space, Stat, Store,
    StoreFile, Time,
};

/// The calls of [`Store`] and [`StoreFile`] that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Store::open`]
    Open,
    /// [`Store::stat`]
    Stat,
    /// [`Store::list`]
    List,
    /// [`Store::mkdir`]
    Mkdir,
    /// [`Store::rmdir`]
    Rmdir,
    /// [`Store::unlink`]
    Unlink,
    /// [`Store::rename`]
    Rename,
    /// [`Store::link`]
    Link,
    /// [`Store::link_open`]
    LinkOpen,
    /// [`Store::symlink`]
    Symlink,
    /// [`Store::readlink`]
    Readlink,
    /// [`Store::chmod`]
    Chmod,
    /// [`Store::chown`]
    Chown,
    /// [`Store::set_times`]
    SetTimes,
    /// [`Store::sync_dir`]
    SyncDir,
    /// [`Store::space`]
    Space,
    /// [`StoreFile::read_at`]
    ReadAt,
    /// [`StoreFile::write_at`]
    WriteAt,
    /// [`StoreFile::stat`]
    FileStat,
    /// [`StoreFile::set_len`]
    SetLen,
    /// [`StoreFile::punch`]
    Punch,
    /// [`StoreFile::allocate`]
    Allocate,
    /// [`StoreFile::append`]
    Append,
    /// [`StoreFile::sync_data`]
    SyncData,
    /// [`StoreFile::sync_all`]
    SyncAll,
    /// [`StoreFile::attribute`]
    Attribute,
    /// [`StoreFile::set_new_attribute`]
    SetAttribute,
    /// [`StoreFile::try_gate`]
    TryGate,
    /// [`StoreFile::try_lock`]
    TryLock,
    /// [`StoreFile::map`]
    Map,
    /// [`StoreFile::flush`]
    Flush,
    /// [`StoreFile::write_back`]
    WriteBack,
}

impl Op {
    /// True if the call changes what the store holds or makes it durable; a crash before such a
    /// call differs from one after it.
    pub fn changes(self) -> bool {
        match self {
            Op::Mkdir
            | Op::Rmdir
            | Op::Unlink
            | Op::Rename
            | Op::Link
            | Op::LinkOpen
            | Op::Punch
            | Op::Allocate
            | Op::Append
            | Op::SyncAll
            | Op::SetAttribute
            | Op::TryGate
            | Op::Symlink
            | Op::Chmod
            | Op::Chown
            | Op::SetTimes
            | Op::SyncDir => true,
            // Opening may create.
            Op::Open | Op::WriteAt | Op::SetLen | Op::SyncData => true,
            Op::Stat
            | Op::List
            | Op::Readlink
            | Op::Space
            | Op::ReadAt
            | Op::FileStat
            | Op::Attribute
            | Op::TryLock
            | Op::Map
            | Op::Flush
            | Op::WriteBack => false,
        }
    }

    /// Whether a file system that is full may refuse the call. Not so `Open`, which creates files
    /// where there are inodes left.
    fn takes_room(self) -> bool {
        match self {
            Op::Mkdir
            | Op::Rename
            | Op::Link
            | Op::LinkOpen
            | Op::Symlink
            | Op::WriteAt
            | Op::Allocate
            | Op::Append
            | Op::SetAttribute => true,
            // Network file systems find room for what was written when it is synced.
            Op::SyncData | Op::SyncAll => true,
            _ => false,
        }
    }
}

/// Calls on names, which are found by descriptors of directories.
const ON_NAMES: [Op; 15] = [
    Op::Open,
    Op::Stat,
    Op::List,
    Op::Mkdir,
    Op::Rmdir,
    Op::Unlink,
    Op::Rename,
    Op::Link,
    Op::Symlink,
    Op::Readlink,
    Op::Chmod,
    Op::Chown,
    Op::SetTimes,
    Op::SyncDir,
    Op::Space,
];

/// One call, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which call.
    pub op: Op,
    /// The path it names, or by which its file was opened.
    pub path: PathBuf,
    /// The second path of `rename` and `link`.
    pub to: Option<PathBuf>,
    /// Offset of a read or write; the length for `set_len`; else 0.
    pub offset: u64,
    /// Bytes asked to be read or written; else 0.
    pub len: usize,
    /// The error it gave, injected or not. For `None` it succeeded, though a write perhaps in
    /// part.
    pub error: Option<Errno>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.op, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " -> {}", to.display())?;
        }
        match self.op {
            Op::ReadAt | Op::WriteAt => write!(f, " @{}+{}", self.offset, self.len)?,
            Op::SetLen => write!(f, " {}", self.offset)?,
            _ => {}
        }
        match self.error {
            Some(errno) => write!(f, ": {errno}"),
            None => Ok(()),
        }
    }
}

/// What goes wrong, and when. Counting starts when the fault is put in; 1 is the next call, and 0
/// is taken as 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The `n`-th call fails, once.
    FailAt {
        /// Which call.
        n: u64,
        /// With what.
        errno: Errno,
    },
    /// The `n`-th write (other calls do not count) writes no more than `bytes`, once. With 0 bytes
    /// it returns 0.
    ShortWriteAt {
        /// Which write.
        n: u64,
        /// How much of it is written.
        bytes: usize,
    },
    /// The device has room for so many more bytes: the write that crosses the edge is short, those
    /// after it fail with ENOSPC. Overwriting counts as well.
    FullAfter {
        /// Part of the paths that are on it; the empty one is in all.
        path: String,
        /// Room left.
        bytes: u64,
    },
    /// The device is full from the `n`-th call on that takes room: that one and all later ones fail
    /// with ENOSPC.
    FullAt {
        /// Part of the paths that are on it; the empty one is in all.
        path: String,
        /// Which of those calls.
        n: u64,
    },
    /// The process has no descriptor left for `calls` calls, from the `n`-th one on that takes one:
    /// they fail with EMFILE.
    NoDescriptor {
        /// Which of those calls.
        n: u64,
        /// How many.
        calls: u64,
    },
    /// Each call whose path (or either path) contains `path` fails.
    FailMatching {
        /// Part of the path; the empty one is in all.
        path: String,
        /// Only this call; `None` for all.
        op: Option<Op>,
        /// With what.
        errno: Errno,
    },
    /// The file system of a path that contains `path` says that it has so much room.
    Room {
        /// Part of the path.
        path: String,
        /// Bytes free.
        available: u64,
    },
    /// The process is dead from the `n`-th call on: that one and all later ones fail with EIO and
    /// have no effect.
    KillAt {
        /// Which call.
        n: u64,
    },
}

/// What somebody else does just before a call.
struct Turn {
    path: String,
    /// Any, for `None`.
    op: Option<Op>,
    /// Before which of these calls, from 1 on.
    n: u64,
    act: Box<dyn FnOnce() + Send>,
}

impl Turn {
    /// Whether it is its turn before this call; counts the call.
    fn is_due(&mut self, call: &Call) -> bool {
        self.op.is_none_or(|op| op == call.op)
            && is_on(&call.path, &self.path)
            && !counted_down(&mut self.n, || {})
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before call {} of {:?} on {}", self.n, self.op, self.path)
    }
}

/// Calls that do not return until somebody lets them go on.
#[derive(Debug)]
struct Hang {
    path: String,
    ops: Vec<Op>,
    /// From which of these calls on, counted from 1.
    n: u64,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Whether it is open, and how many wait.
    state: Mutex<(bool, usize)>,
    opened: Condvar,
}

/// What [`FaultStore::hang`] gives: those calls go on when it is dropped.
#[derive(Debug)]
pub struct Hanging(Arc<Gate>);

impl Hanging {
    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().1
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.lock().0 = true;
        self.0.opened.notify_all();
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, (bool, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.1 += 1;
        while !state.0 {
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.1 -= 1;
    }
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    turns: Vec<Turn>,
    hangs: Vec<Hang>,
    log: Vec<Call>,
    dead: bool,
    /// How often a fault made a call fail or shortened it, and how often it killed the process:
    /// what the test explored.
    struck: u64,
    killed: u64,
}

impl Drop for State {
    fn drop(&mut self) {
        explored(self.struck, "faults");
        explored(self.killed, "crash points");
    }
}

impl State {
    /// Decides what becomes of a call: an error, or the bytes that a write may write.
    fn next(&mut self, call: &Call) -> Result<usize> {
        let lived = !self.dead;
        let decided = self.decide(call);
        if lived && self.dead {
            self.killed += 1;
        } else if lived && decided.map_or(true, |room| room < call.len) {
            self.struck += 1;
        }
        decided
    }

    fn decide(&mut self, call: &Call) -> Result<usize> {
        if self.dead {
            return Err(Errno::IO);
        }
        let mut error = None;
        let mut room = call.len;
        let mut dead = false;
        let writes = call.op == Op::WriteAt;
        self.faults.retain_mut(|fault| match fault {
            Fault::FailAt { n, errno } => counted_down(n, || error = error.or(Some(*errno))),
            Fault::ShortWriteAt { n, bytes } => {
                !writes || counted_down(n, || room = room.min(*bytes))
            }
            Fault::KillAt { n } => counted_down(n, || dead = true),
            Fault::FailMatching { path, op, errno } => {
                let hit = |candidate: &Path| candidate.to_string_lossy().contains(path.as_str());
                if op.is_none_or(|op| op == call.op)
                    && (hit(&call.path) || call.to.as_deref().is_some_and(hit))
                {
                    error = error.or(Some(*errno));
                }
                true
            }
            Fault::FullAt { path, n } => {
                let to = call.to.as_deref().unwrap_or(&call.path);
                if call.op.takes_room() && is_on(to, path) {
                    *n = n.saturating_sub(1);
                    if *n == 0 {
                        error = error.or(Some(Errno::NOSPC));
                    }
                }
                true
            }
            Fault::NoDescriptor { n, calls } => {
                if ON_NAMES.contains(&call.op) && !counted_down(n, || ()) && *calls > 0 {
                    *calls -= 1;
                    error = error.or(Some(Errno::MFILE));
                }
                *calls > 0
            }
            Fault::FullAfter { .. } | Fault::Room { .. } => true,
        });
        self.dead = dead;
        if dead {
            return Err(Errno::IO);
        }
        if let Some(errno) = error {
            return Err(errno);
        }
        if writes && call.len > 0 {
            let left = self
                .faults
                .iter()
                .filter_map(|fault| match fault {
                    Fault::FullAfter { path, bytes } if is_on(&call.path, path) => Some(*bytes),
                    _ => None,
                })
                .min();
            match left {
                Some(0) => return Err(Errno::NOSPC),
                Some(left) => room = room.min(usize::try_from(left).unwrap_or(usize::MAX)),
                None => {}
            }
            // Taken at once, so that writes of other threads cannot have the same room; what is not
            // used comes back.
            self.for_rooms(&call.path, |bytes| *bytes -= room as u64);
        }
        Ok(room)
    }

    fn for_rooms(&mut self, of: &Path, act: impl Fn(&mut u64)) {
        for fault in &mut self.faults {
            match fault {
                Fault::FullAfter { path, bytes } if is_on(of, path) => act(bytes),
                _ => {}
            }
        }
    }
}

fn is_on(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

/// Counts one call off; at the end runs `strike` and returns false: the fault is used up.
fn counted_down(n: &mut u64, strike: impl FnOnce()) -> bool {
    *n = n.saturating_sub(1);
    if *n > 0 {
        return true;
    }
    strike();
    false
}

/// A store that fails on demand; see the module's head.
#[derive(Clone, Debug)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    state: Arc<Mutex<State>>,
    user: Option<u32>,
    /// What is below does not outlive the machine.
    in_memory: Option<PathBuf>,
}

impl FaultStore {
    /// Wraps `inner`, without faults.
    pub fn new(inner: Arc<dyn Store>) -> FaultStore {
        FaultStore { inner, state: Arc::default(), user: None, in_memory: None }
    }

    /// The same store, which says that it acts as the user `uid`; who may do what stays `inner`'s
    /// to say.
    pub fn acting_as(&self, uid: u32) -> FaultStore {
        FaultStore { user: Some(uid), ..self.clone() }
    }

    /// The same store, which says that what is below `path` does not outlive the machine.
    pub fn in_memory_below(&self, path: &str) -> FaultStore {
        FaultStore { in_memory: Some(path.into()), ..self.clone() }
    }

    /// Puts a fault in, beside those that are there.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// The `n`-th call from now fails with `errno`.
    pub fn fail_at(&self, n: u64, errno: Errno) {
        self.inject(Fault::FailAt { n, errno });
    }

    /// The `n`-th write from now writes no more than `bytes`.
    pub fn short_write_at(&self, n: u64, bytes: usize) {
        self.inject(Fault::ShortWriteAt { n, bytes });
    }

    /// After `bytes` more bytes the device is full.
    pub fn full_after(&self, bytes: u64) {
        self.full_below("", bytes);
    }

    /// After `bytes` more bytes the device is full that has all paths which contain `path`.
    pub fn full_below(&self, path: &str, bytes: u64) {
        self.inject(Fault::FullAfter { path: path.to_owned(), bytes });
    }

    /// From the `n`-th call from now on that takes room on the device of all paths which contain
    /// `path`, it is full.
    pub fn full_at(&self, path: &str, n: u64) {
        self.inject(Fault::FullAt { path: path.to_owned(), n });
    }

    /// Each call `op` (or any, for `None`) on a path that contains `path` fails with `errno`.
    pub fn fail_matching(&self, path: &str, op: impl Into<Option<Op>>, errno: Errno) {
        self.inject(Fault::FailMatching { path: path.to_owned(), op: op.into(), errno });
    }

    /// Before the next call `op` on a path that contains `path`, `act` runs, once: another process
    /// is faster.
    pub fn before(&self, path: &str, op: Op, act: impl FnOnce() + Send + 'static) {
        let (path, op) = (path.to_owned(), Some(op));
        self.state().turns.push(Turn { path, op, n: 1, act: Box::new(act) });
    }

    /// From the `n`-th of these calls on a path that contains `path` on, they hang until the value
    /// is dropped; then they do what they were to do.
    pub fn hang(&self, path: &str, ops: &[Op], n: u64) -> Hanging {
        let gate: Arc<Gate> = Arc::default();
        let (path, ops) = (path.to_owned(), ops.to_vec());
        self.state().hangs.push(Hang { path, ops, n, gate: gate.clone() });
        Hanging(gate)
    }

    /// Before the `n`-th call from now, `act` runs, once.
    pub fn before_call(&self, n: u64, act: impl FnOnce() + Send + 'static) {
        let path = String::new();
        self.state().turns.push(Turn { path, op: None, n, act: Box::new(act) });
    }

    /// From the `n`-th call from now on, all fail with EIO.
    pub fn kill_at(&self, n: u64) {
        self.inject(Fault::KillAt { n });
    }

    /// Takes out all faults and empties the log; the count starts again.
    pub fn reset(&self) {
        *self.state() = State::default();
    }

    /// Calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// Calls `op` so far, failed ones included.
    pub fn calls_of(&self, op: Op) -> u64 {
        self.state().log.iter().filter(|call| call.op == op).count() as u64
    }

    /// All calls so far, oldest first. Calls of several threads are in the order in which they
    /// began.
    pub fn log(&self) -> Vec<Call> {
        self.state().log.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs `call` and, if no fault is in the way, runs `act` with the bytes that a write may
    /// write.
    fn run<T>(&self, call: Call, act: impl FnOnce(usize) -> Result<T>) -> Result<T> {
        let turn = {
            let mut state = self.state();
            let due = state.turns.iter_mut().position(|turn| turn.is_due(&call));
            due.map(|due| state.turns.remove(due))
        };
        if let Some(turn) = turn {
            (turn.act)();
        }
        let gates: Vec<Arc<Gate>> = {
            let mut state = self.state();
            let due = |hang: &mut Hang| {
                let is_it = hang.ops.contains(&call.op) && is_on(&call.path, &hang.path);
                (is_it && !counted_down(&mut hang.n, || {})).then(|| hang.gate.clone())
            };
            state.hangs.iter_mut().filter_map(due).collect()
        };
        gates.iter().for_each(|gate| gate.pass());
        let (place, verdict) = {
            let mut state = self.state();
            let verdict = state.next(&call);
            state.log.push(call);
            (state.log.len() - 1, verdict)
        };
        let result = verdict.and_then(act);
        if let Err(errno) = &result {
            // Missing if another thread has called reset.
            if let Some(call) = self.state().log.get_mut(place) {
                call.error = Some(*errno);
            }
        }
        result
    }

    fn on<T>(&self, op: Op, path: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run(
            Call { op, path: path.to_owned(), to: None, offset: 0, len: 0, error: None },
            |_| act(),
        )
    }

    fn on_two<T>(
        &self,
        op: Op,
        path: &Path,
        to: &Path,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.run(
            Call {
                op,
                path: path.to_owned(),
                to: Some(to.to_owned()),
                offset: 0,
                len: 0,
                error: None,
            },
            |_| act(),
        )
    }
}

impl Store for FaultStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let inner = self.on(Op::Open, path, || self.inner.open(path, how))?;
        Ok(Arc::new(FaultFile { store: self.clone(), path: path.to_owned(), inner }))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.on(Op::Stat, path, || self.inner.stat(path, links))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.on(Op::List, path, || self.inner.list(path))
    }

    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        self.on(Op::Mkdir, path, || self.inner.mkdir(path, mode))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        self.on(Op::Rmdir, path, || self.inner.rmdir(path))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.on(Op::Unlink, path, || self.inner.unlink(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.on_two(Op::Rename, from, to, || self.inner.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.on_two(Op::Link, from, to, || self.inner.link(from, to))
    }

    fn link_open(&self, file: &dyn StoreFile, to: &Path) -> Result<()> {
        self.on(Op::LinkOpen, to, || self.inner.link_open(file, to))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.on(Op::Symlink, path, || self.inner.symlink(target, path))
    }

    fn reach(&self, path: &Path, links: Links) -> Result<Option<Arc<dyn StoreFile>>> {
        self.inner.reach(path, links)
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        self.on(Op::Readlink, path, || self.inner.readlink(path))
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        self.on(Op::Chmod, path, || self.inner.chmod(path, mode))
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        self.on(Op::Chown, path, || self.inner.chown(path, uid, gid, links))
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.on(Op::SetTimes, path, || self.inner.set_times(path, atime, mtime))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.on(Op::SyncDir, path, || self.inner.sync_dir(path))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let space = self.on(Op::Space, path, || self.inner.space(path))?;
        let said = self.state().faults.iter().find_map(|fault| match fault {
            Fault::Room { path: part, available } if is_on(path, part) => Some(*available),
            _ => None,
        });
        Ok(Space { available: said.unwrap_or(space.available), ..space })
    }

    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        let inner = self.inner.inside(places, keep)?;
        Some(Arc::new(FaultStore { inner, ..self.clone() }))
    }

    fn is_local(&self, path: &Path) -> bool {
        self.inner.is_local(path)
    }

    fn close_to_open(&self, path: &Path) -> Option<String> {
        self.inner.close_to_open(path)
    }

    fn boot(&self, path: &Path) -> Option<u64> {
        let is_in_memory = self.in_memory.as_ref().is_some_and(|dir| path.starts_with(dir));
        self.inner.boot(path).filter(|_| !is_in_memory)
    }

    fn user(&self) -> u32 {
        self.user.unwrap_or_else(|| self.inner.user())
    }
}

/// An open file of a [`FaultStore`].
#[derive(Debug)]
struct FaultFile {
    store: FaultStore,
    path: PathBuf,
    inner: Arc<dyn StoreFile>,
}

impl FaultFile {
    fn call(&self, op: Op, offset: u64, len: usize) -> Call {
        Call { op, path: self.path.clone(), to: None, offset, len, error: None }
    }
}

impl StoreFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.store
            .run(self.call(Op::ReadAt, offset, buf.len()), |_| self.inner.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.store.run(self.call(Op::WriteAt, offset, buf.len()), |room| {
            if room == 0 && !buf.is_empty() {
                return Ok(0);
            }
            let result = self.inner.write_at(&buf[..room], offset);
            let unused = room - result.unwrap_or(0);
            if unused > 0 {
                self.store
                    .state()
                    .for_rooms(&self.path, |bytes| *bytes = bytes.saturating_add(unused as u64));
            }
            result
        })
    }

    fn stat(&self) -> Result<Stat> {
        self.store.run(self.call(Op::FileStat, 0, 0), |_| self.inner.stat())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.store.run(self.call(Op::SetLen, len, 0), |_| self.inner.set_len(len))
    }

    fn sync_data(&self) -> Result<()> {
        self.store.run(self.call(Op::SyncData, 0, 0), |_| self.inner.sync_data())
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.store.run(self.call(Op::Punch, offset, 0), |_| self.inner.punch(offset, length))
    }

    fn allocate(&self, offset: u64, length: u64, size: Size) -> Result<()> {
        let call = self.call(Op::Allocate, offset, 0);
        self.store.run(call, |_| self.inner.allocate(offset, length, size))
    }

    fn append(&self, buf: &[u8]) -> Result<usize> {
        self.store.run(self.call(Op::Append, 0, 0), |_| self.inner.append(buf))
    }

    fn sync_all(&self) -> Result<()> {
        self.store.run(self.call(Op::SyncAll, 0, 0), |_| self.inner.sync_all())
    }

    fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.run(self.call(Op::Attribute, 0, 0), |_| self.inner.attribute(name))
    }

    fn set_new_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        self.store.run(self.call(Op::SetAttribute, 0, value.len()), |_| {
            self.inner.set_new_attribute(name, value)
        })
    }

    fn flush(&self) -> Result<()> {
        self.store.run(self.call(Op::Flush, 0, 0), |_| self.inner.flush())
    }

    fn write_back(&self, offset: u64, length: u64, waits: bool) -> Result<()> {
        self.store.run(self.call(Op::WriteBack, offset, 0), |_| {
            self.inner.write_back(offset, length, waits)
        })
    }

    fn try_gate(&self) -> Result<bool> {
        self.store.run(self.call(Op::TryGate, 0, 0), |_| self.inner.try_gate())
    }

    fn is_open_elsewhere(&self) -> bool {
        self.inner.is_open_elsewhere()
    }

    fn leave_gate(&self) {
        // A dead process leaves it to the kernel, which does so when its files are closed.
        self.inner.leave_gate();
    }

    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        self.store.run(self.call(Op::TryLock, 0, 0), |_| self.inner.try_lock(kind))
    }

    fn map(&self) -> Result<Bytes> {
        self.store.run(self.call(Op::Map, 0, 0), |_| self.inner.map())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn forget_cached(&self) {
        self.inner.forget_cached();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemStore;
    use plfs::store::write_full;

    fn fixture() -> (MemStore, FaultStore, Arc<dyn StoreFile>) {
        let mem = MemStore::new();
        let store = FaultStore::new(Arc::new(mem.clone()));
        let file = store.open(Path::new("/log"), Open::create_new(0o600)).unwrap();
        store.reset();
        (mem, store, file)
    }

    fn content(mem: &MemStore) -> Vec<u8> {
        mem.open(Path::new("/log"), Open::READ).unwrap().map().unwrap().as_ref().as_ref().to_vec()
    }

    #[test]
    fn calls_are_counted_and_logged() {
        let (_, store, file) = fixture();
        file.write_at(b"abc", 7).unwrap();
        file.set_len(5).unwrap();
        store.rename(Path::new("/log"), Path::new("/gol")).unwrap();
        assert_eq!(store.unlink(Path::new("/log")), Err(Errno::NOENT));
        assert_eq!(
            (store.calls(), store.calls_of(Op::WriteAt), store.calls_of(Op::Open)),
            (4, 1, 0)
        );
        let log: Vec<String> = store.log().iter().map(Call::to_string).collect();
        assert_eq!(log[..3], ["WriteAt /log @7+3", "SetLen /log 5", "Rename /log -> /gol"]);
        assert_eq!((store.log()[3].op, store.log()[3].error), (Op::Unlink, Some(Errno::NOENT)));
        assert!(store.log().iter().all(|call| call.op.changes()));
        store.reset();
        assert_eq!((store.calls(), store.log()), (0, vec![]));
    }

    #[test]
    fn one_call_fails_without_effect() {
        let (mem, store, file) = fixture();
        store.fail_at(2, Errno::DQUOT);
        file.write_at(b"a", 0).unwrap();
        assert_eq!(file.write_at(b"b", 0), Err(Errno::DQUOT));
        assert_eq!(content(&mem), b"a");
        file.write_at(b"b", 0).unwrap();
        assert_eq!(content(&mem), b"b");
        assert_eq!(store.log()[1].error, Some(Errno::DQUOT));
    }

    #[test]
    fn one_write_is_short() {
        let (mem, store, file) = fixture();
        store.short_write_at(2, 3);
        file.write_at(b"....", 0).unwrap();
        file.stat().unwrap();
        assert_eq!(file.write_at(b"abcdef", 0), Ok(3));
        assert_eq!(content(&mem), b"abc.");
        assert_eq!(file.write_at(b"abcdef", 0), Ok(6));
        store.short_write_at(1, 0);
        assert_eq!(write_full(&*file, b"x", 0), Err(Errno::NOSPC));
    }

    #[test]
    fn the_device_fills_up_with_a_short_write_at_the_edge() {
        let (mem, store, file) = fixture();
        store.full_after(10);
        assert_eq!(file.write_at(b"12345678", 0), Ok(8));
        assert_eq!(file.write_at(b"abcd", 8), Ok(2));
        assert_eq!(file.write_at(b"cd", 10), Err(Errno::NOSPC));
        assert_eq!(file.write_at(b"", 10), Ok(0));
        assert_eq!(content(&mem), b"12345678ab");
        store.reset();
        assert_eq!(file.write_at(b"cd", 10), Ok(2));
    }

    #[test]
    fn calls_fail_by_path_and_kind() {
        let (_, store, file) = fixture();
        store.fail_matching("log", Op::SyncData, Errno::IO);
        store.fail_matching("secret", None, Errno::ACCESS);
        file.write_at(b"a", 0).unwrap();
        assert_eq!(file.sync_data(), Err(Errno::IO));
        assert_eq!(file.sync_data(), Err(Errno::IO));
        assert_eq!(store.stat(Path::new("/secret/x"), Links::Follow), Err(Errno::ACCESS));
        assert_eq!(store.rename(Path::new("/log"), Path::new("/secret")), Err(Errno::ACCESS));
        assert_eq!(store.rename(Path::new("/log"), Path::new("/other")), Ok(()));
    }

    #[test]
    fn a_dead_process_does_nothing_any_more() {
        let (mem, store, file) = fixture();
        store.inject(Fault::KillAt { n: 2 });
        file.write_at(b"a", 0).unwrap();
        assert_eq!(file.write_at(b"b", 0), Err(Errno::IO));
        assert_eq!(store.mkdir(Path::new("/d"), 0o700), Err(Errno::IO));
        assert_eq!(file.stat(), Err(Errno::IO));
        assert_eq!(content(&mem), b"a");
        assert_eq!(mem.stat(Path::new("/d"), Links::Follow), Err(Errno::NOENT));
        store.reset();
        assert_eq!(store.mkdir(Path::new("/d"), 0o700), Ok(()));
    }
}
