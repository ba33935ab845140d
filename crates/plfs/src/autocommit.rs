//! L5: commits on its own what programs write and do not commit, so that a killed program loses
//! seconds, not everything, and others can watch a file grow.
//!
//! One thread a process, started by the first write. A file is looked at [`FIRST`] after a write;
//! as long as the file is written, each wait is twice as long as the one before, up to [`LAST`]: a
//! long run of writes stays a few records.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::{Duration, Instant};

use crate::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak, lock, thread};

/// Time from a write to its commit, at first. 1 s: what people take for "now" when they watch a
/// log.
const FIRST: Duration = Duration::from_secs(1);
/// The same for a file that is written all the time. 30 s: when Linux writes dirty pages back
/// (vm.dirty_expire_centisecs).
const LAST: Duration = Duration::from_secs(30);

/// Whoever forks holds it alone, so that the thread holds no lock of a file at that moment.
pub static FORK_GATE: RwLock<()> = RwLock::new(());

/// A file that may have something to commit.
pub(crate) trait Tick: Send + Sync {
    /// Held while the file is used here, and by who must be the last to use it.
    fn ticking(&self) -> &Arc<Mutex<()>>;
    /// Commits if anything was written since the last commit; else the next write is to be watched
    /// anew. Whether it did.
    fn tick(&self) -> bool;
}

struct Watched {
    file: Weak<dyn Tick>,
    /// [`Tick::ticking`].
    ticking: Arc<Mutex<()>>,
    due: Instant,
    wait: Duration,
}

/// Ordered by when it is due, the next one first in a heap.
struct ByDue(Watched);

impl Ord for ByDue {
    fn cmp(&self, other: &ByDue) -> Ordering {
        other.0.due.cmp(&self.0.due)
    }
}

impl PartialOrd for ByDue {
    fn partial_cmp(&self, other: &ByDue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByDue {
    fn eq(&self, other: &ByDue) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByDue {}

struct Ticker {
    /// Process that the thread lives in; a child of fork starts its own.
    pid: u32,
    watched: BinaryHeap<ByDue>,
    /// When the thread looks again by itself. `None`: when it is woken.
    wakes: Option<Instant>,
}

static TICKER: Mutex<Option<Ticker>> = Mutex::new(None);
static WORK: Condvar = Condvar::new();

/// Commits `file` a while from now. Called for the first write after each commit of the ticker.
///
/// Does not wake the thread unless it would sleep too long: a program that writes thousands of
/// small files pays for an entry in a heap each.
pub(crate) fn watch<F: Tick + 'static>(file: &Arc<F>) {
    let (mut ticker, pid) = (lock(&TICKER), std::process::id());
    if ticker.as_ref().is_none_or(|ticker| ticker.pid != pid) {
        // Without a thread nothing is lost that close and sync would not commit.
        if thread::Builder::new().name("plfs-commit".into()).spawn(run).is_err() {
            return;
        }
        *ticker = Some(Ticker { pid, watched: BinaryHeap::new(), wakes: None });
    }
    let due = Instant::now() + FIRST;
    let mut sleeps_too_long = false;
    if let Some(ticker) = ticker.as_mut() {
        ticker.watched.push(ByDue(Watched {
            file: Arc::downgrade(file) as Weak<dyn Tick>,
            ticking: file.ticking().clone(),
            due,
            wait: FIRST,
        }));
        sleeps_too_long = ticker.wakes.is_none_or(|wakes| due < wakes);
        if sleeps_too_long {
            ticker.wakes = Some(due);
        }
    }
    drop(ticker);
    if sleeps_too_long {
        WORK.notify_one();
    }
}

fn run() {
    let mut slot = lock(&TICKER);
    loop {
        let Some(ticker) = slot.as_mut() else { return };
        ticker.wakes = ticker.watched.peek().map(|next| next.0.due);
        let Some(next) = ticker.wakes else {
            slot = WORK.wait(slot).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = Instant::now();
        if next > now {
            slot = WORK.wait_timeout(slot, next - now).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let mut due = Vec::new();
        while let Some(next) = ticker.watched.peek_mut().filter(|next| next.0.due <= now) {
            due.push(PeekMut::pop(next).0);
        }
        drop(slot);
        let again: Vec<Watched> = due.into_iter().filter_map(commit).collect();
        slot = lock(&TICKER);
        if let Some(ticker) = slot.as_mut() {
            ticker.watched.extend(again.into_iter().map(ByDue));
        }
    }
}

/// Commits if anything was written; gives the file back if so, for it will probably be written
/// again.
fn commit(watched: Watched) -> Option<Watched> {
    let _gate = FORK_GATE.read().unwrap_or_else(PoisonError::into_inner);
    let ticking = lock(&watched.ticking);
    let file = watched.file.upgrade()?;
    let ticked = file.tick();
    // In this order: who closes the file waits for us, and is the last.
    drop(file);
    drop(ticking);
    if !ticked {
        return None;
    }
    let wait = (watched.wait * 2).min(LAST);
    Some(Watched { due: Instant::now() + wait, wait, ..watched })
}
