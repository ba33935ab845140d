//! L5: commits on its own what programs write and do not commit, so that a killed program loses
//! seconds, not everything, and others can watch a file grow.
//!
//! One thread a process, started by the first write. A file is looked at [`FIRST`] after a write;
//! as long as the file is written, each wait is twice as long as the one before, up to [`LAST`]: a
//! long run of writes stays a few records.

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

struct Ticker {
    /// Process that the thread lives in; a child of fork starts its own.
    pid: u32,
    watched: Vec<Watched>,
}

static TICKER: Mutex<Option<Ticker>> = Mutex::new(None);
static WORK: Condvar = Condvar::new();

/// Commits `file` a while from now. Called for the first write after each commit of the ticker.
pub(crate) fn watch<F: Tick + 'static>(file: &Arc<F>) {
    let (mut ticker, pid) = (lock(&TICKER), std::process::id());
    if ticker.as_ref().is_none_or(|ticker| ticker.pid != pid) {
        // Without a thread nothing is lost that close and sync would not commit.
        if thread::Builder::new().name("plfs-commit".into()).spawn(run).is_err() {
            return;
        }
        *ticker = Some(Ticker { pid, watched: Vec::new() });
    }
    if let Some(ticker) = ticker.as_mut() {
        ticker.watched.push(Watched {
            file: Arc::downgrade(file) as Weak<dyn Tick>,
            ticking: file.ticking().clone(),
            due: Instant::now() + FIRST,
            wait: FIRST,
        });
    }
    drop(ticker);
    WORK.notify_one();
}

fn run() {
    let mut ticker = lock(&TICKER);
    loop {
        let Some(next) = ticker
            .as_ref()
            .and_then(|ticker| ticker.watched.iter().map(|watched| watched.due).min())
        else {
            ticker = WORK.wait(ticker).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = Instant::now();
        if next > now {
            ticker =
                WORK.wait_timeout(ticker, next - now).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let mut due = Vec::new();
        if let Some(ticker) = ticker.as_mut() {
            let (ready, later) = std::mem::take(&mut ticker.watched)
                .into_iter()
                .partition(|watched| watched.due <= now);
            (due, ticker.watched) = (ready, later);
        }
        drop(ticker);
        let again: Vec<Watched> = due.into_iter().filter_map(commit).collect();
        ticker = lock(&TICKER);
        if let Some(ticker) = ticker.as_mut() {
            ticker.watched.extend(again);
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
