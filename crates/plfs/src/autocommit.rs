//! L5: commits on its own what programs write and do not commit, so that a killed program loses
//! seconds, not everything, and others can watch a file grow.
//!
//! One thread a process, started by the first write. A file is looked at [`FIRST`] after a write.
//! As long as much is written, each wait is twice as long as the one before, up to [`LAST`]: a long
//! run of writes stays a few records.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::{Duration, Instant};

use crate::sync::{
    Arc, Condvar, Mutex, OfProcess, PoisonError, Weak, lock, pause, plain, spawn_for_ever,
};

/// Time from a write to its commit, at first. 0.5 s: who watches a log, and looks once a second as
/// tail does, has it within a second and a half; what people take for "now".
pub(crate) const FIRST: Duration = pause(Duration::from_millis(500));
/// The same for a file that is written all the time. 30 s: when Linux writes dirty pages back
/// (vm.dirty_expire_centisecs).
pub(crate) const LAST: Duration = pause(Duration::from_secs(30));

/// The thread rests so many times as long as its last round took, where files wait [`FIRST`] or
/// more: a process that writes hundreds of files on storage where a commit travels spends a tenth
/// of a processor, and of what the storage does, at most.
const RESTS_TIMES: u32 = 10;

/// Whoever forks holds it alone, so that the thread holds no lock of a file at that moment.
pub static FORK_GATE: plain::RwLock<()> = plain::RwLock::new(());

/// A file that may have something to commit.
pub(crate) trait Autocommit: Send + Sync {
    /// Held while the file is used here, and by who must be the last to use it.
    fn committing(&self) -> &Arc<Mutex<()>>;
    /// Commits if anything was written since the last commit; else the next write is to be watched
    /// anew. Whether it did.
    fn autocommit(&self) -> bool;
    /// How long from now until it wants to be asked.
    fn every(&self) -> Duration;
}

struct Watched {
    file: Weak<dyn Autocommit>,
    /// [`Autocommit::committing`].
    committing: Arc<Mutex<()>>,
    due: Instant,
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

#[derive(Default)]
struct Committer {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    has_thread: bool,
    watched: BinaryHeap<ByDue>,
    /// When the thread looks again by itself. `None`: when it is woken.
    wakes: Option<Instant>,
}

/// The child of a fork, in which there is no thread, starts its own.
static COMMITTER: OfProcess<Committer> = OfProcess::new();

/// Commits `file` a while from now. Called for the first write after each commit of the thread.
///
/// Does not wake the thread unless it would sleep too long: a program that writes thousands of
/// small files pays for an entry in a heap each. False: there is no thread.
pub(crate) fn watch<F: Autocommit + 'static>(file: &Arc<F>) -> bool {
    let committer = COMMITTER.get(Committer::default);
    let mut state = lock(&committer.state);
    if !state.has_thread {
        // Without a thread nothing is lost that close and sync would not commit.
        if !spawn_for_ever("plfs-commit", || run(committer)) {
            return false;
        }
        state.has_thread = true;
    }
    let due = Instant::now() + file.every();
    state.watched.push(ByDue(Watched {
        file: Arc::downgrade(file) as Weak<dyn Autocommit>,
        committing: file.committing().clone(),
        due,
    }));
    let sleeps_too_long = state.wakes.is_none_or(|wakes| due < wakes);
    if sleeps_too_long {
        state.wakes = Some(due);
    }
    drop(state);
    if sleeps_too_long {
        committer.work.notify_one();
    }
    true
}

fn run(committer: &'static Committer) {
    let mut state = lock(&committer.state);
    loop {
        state.wakes = state.watched.peek().map(|next| next.0.due);
        let Some(next) = state.wakes else {
            state = committer.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = Instant::now();
        if next > now {
            let (woken, _) = committer
                .work
                .wait_timeout(state, next - now)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            continue;
        }
        let mut due = Vec::new();
        while let Some(next) = state.watched.peek_mut().filter(|next| next.0.due <= now) {
            due.push(PeekMut::pop(next).0);
        }
        drop(state);
        let again: Vec<(Watched, Duration)> = due.into_iter().filter_map(commit).collect();
        let rest = now.elapsed() * RESTS_TIMES;
        let now = Instant::now();
        let again = again.into_iter().map(|(watched, every)| {
            let wait = if every < FIRST { every } else { every.max(rest) };
            ByDue(Watched { due: now + wait, ..watched })
        });
        state = lock(&committer.state);
        state.watched.extend(again);
    }
}

/// Commits if anything was written; gives the file back if so, for it will probably be written
/// again, and when it wants to be asked.
fn commit(watched: Watched) -> Option<(Watched, Duration)> {
    let _gate = FORK_GATE.read().unwrap_or_else(PoisonError::into_inner);
    let committing = lock(&watched.committing);
    let file = watched.file.upgrade()?;
    let (committed, every) = (file.autocommit(), file.every());
    // In this order: who closes the file waits for us, and is the last.
    drop(file);
    drop(committing);
    if !committed {
        return None;
    }
    Some((watched, every))
}
