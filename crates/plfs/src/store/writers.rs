//! Which processes of a node have which plain files open for writing: a table in shared memory of
//! the user's processes. What it says of them is a hint: it decides when a file is promoted, never
//! what a byte is. But a flag tells each of them that the file has a container, so that processes
//! of a node are ordered as they wrote (docs/decisions/0013).

use std::path::Path;

use super::Result;
use super::machine::{boot_time_ns, is_dead, start_of_process};
use super::shm::{PageWords, SharedPage, WORDS};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, plain};

/// Words of an entry: which file, which process, whether the file has a container, and when a
/// process of this node made it (boot time, ns; 0: none that is known).
const ENTRY: usize = 4;
const FLAG: usize = 2;
const MADE: usize = 3;
const ENTRIES: usize = WORDS / ENTRY;
/// Entries in which one file can be: those behind the one that its number means.
const SLOTS_OF_FILE: usize = 8;
/// The owner of an entry whose file was written by a process of this node, and closed.
const CLOSED: u64 = 1;

/// The table of a user's processes on this node.
#[derive(Debug)]
pub(crate) struct Writers {
    page: PageWords,
}

/// Whether another process of the node writes a file, as far as the table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherWriter {
    /// One has it open for writing.
    Open,
    /// One had it open, and has closed it.
    Closed,
    /// The table has no entry of one.
    Unknown,
}

/// An entry of this process.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its first word.
    pub slot: usize,
    /// A number of the file.
    pub key: u64,
    /// The process.
    pub me: u64,
}

/// A sign that this process writes a file. Dropping it says that the file is closed.
#[derive(Debug)]
pub(crate) struct Writing {
    writers: Arc<Writers>,
    entry: Entry,
}

impl Writers {
    /// The table in the directory of shared memory `dir`, made if it is not there. Some ten system
    /// calls, once in the life of a process. It takes no descriptor on a tmpfs: every process that
    /// has written a plain file has it.
    pub(crate) fn join(dir: &Path, uid: u32) -> Result<Writers> {
        let page = SharedPage::join(&dir.join(format!("plfs-writers4-{uid}")), uid)?;
        Ok(Writers { page: page.into_words() })
    }

    /// Enters this process for a file, which it `has_made` or not; `None` if there is no room. Then
    /// says who else is there.
    pub(crate) fn enter(
        self: &Arc<Self>,
        file: (u64, u64),
        has_made: bool,
    ) -> (Option<Writing>, OtherWriter) {
        let (key, me) = (key_of(file), me());
        let (entry, was_closed) = self.take(key, me, has_made, is_of_the_dead);
        // Of two that enter at once, one sees the other.
        let other = match (self.is_open(key, |owner| owner != me), was_closed) {
            (true, _) => OtherWriter::Open,
            (false, true) => OtherWriter::Closed,
            (false, false) => OtherWriter::Unknown,
        };
        (entry.map(|entry| self.writing(entry)), other)
    }

    /// [`Writers::enter`] for a file that this process has made. `None` also if the process has
    /// another entry of the file: of two threads of it that enter at once, one sees the other. Some
    /// atomic operations: `None`, too, if there is nothing but the places of the dead, or the
    /// process does not know its number yet.
    pub(crate) fn enter_once(&self, file: (u64, u64)) -> Option<Entry> {
        let (key, me) = (key_of(file), Some(ME.load(Ordering::Relaxed)).filter(|me| *me != 0)?);
        let entry = self.take(key, me, true, |_| false).0?;
        let words = self.page.words();
        let is_mine = |at: &usize| {
            words[*at].load(Ordering::SeqCst) == key && words[at + 1].load(Ordering::SeqCst) == me
        };
        if self.slots_of(key).filter(is_mine).count() > 1 {
            self.leave(entry);
            return None;
        }
        Some(entry)
    }

    /// The owner of an entry.
    pub(crate) fn writing(self: &Arc<Self>, entry: Entry) -> Writing {
        Writing { writers: self.clone(), entry }
    }

    /// The file of an entry is closed.
    pub(crate) fn leave(&self, Entry { slot, key, me }: Entry) {
        let words = self.page.words();
        if words[slot].load(Ordering::SeqCst) == key {
            let order = Ordering::SeqCst;
            let _ = words[slot + 1].compare_exchange(me, CLOSED, order, order);
        }
    }

    /// What is not 0 once somebody has said that the file of an entry has a container.
    pub(crate) fn flag_of(&self, entry: Entry) -> &plain::atomic::AtomicU64 {
        &self.page.words()[entry.slot + FLAG]
    }

    /// An entry for a file, if there is room; and whether it was one of the file's.
    fn take(
        &self,
        key: u64,
        me: u64,
        has_made: bool,
        is_of_the_dead: fn(u64) -> bool,
    ) -> (Option<Entry>, bool) {
        let words = self.page.words();
        let made = if has_made { boot_time_ns().max(1) } else { 0 };
        let mut slot = self.slots_of(key).find(|slot| {
            words[*slot].load(Ordering::SeqCst) == key
                && words[slot + 1]
                    .compare_exchange(CLOSED, me, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
        });
        let was_closed = slot.is_some();
        if let Some(slot) = slot {
            words[slot + FLAG].store(0, Ordering::SeqCst);
            // Who goes on with a file makes it no older.
            words[slot + MADE].fetch_max(made, Ordering::SeqCst);
        }
        // Free ones first, then those of files that are closed, then those of the dead.
        for may_go in [|owner: u64| owner == 0, |owner| owner == CLOSED, is_of_the_dead] {
            slot = slot.or_else(|| {
                self.slots_of(key).find(|slot| {
                    let owner = words[slot + 1].load(Ordering::SeqCst);
                    let takes = |owner| {
                        words[slot + 1]
                            .compare_exchange(owner, me, Ordering::SeqCst, Ordering::SeqCst)
                            .is_ok()
                    };
                    let is_taken = may_go(owner) && takes(owner);
                    if is_taken {
                        words[*slot].store(key, Ordering::SeqCst);
                        words[slot + FLAG].store(0, Ordering::SeqCst);
                        words[slot + MADE].store(made, Ordering::SeqCst);
                    }
                    is_taken
                })
            });
        }
        (slot.map(|slot| Entry { slot, key, me }), was_closed)
    }

    /// Whether a process of the node has the file open for writing, be it this one.
    pub(crate) fn has(&self, file: (u64, u64)) -> bool {
        self.is_open(key_of(file), |_| true)
    }

    fn is_open(&self, key: u64, counts: impl Fn(u64) -> bool) -> bool {
        let words = self.page.words();
        self.slots_of(key).any(|at| {
            let owner = words[at + 1].load(Ordering::SeqCst);
            words[at].load(Ordering::SeqCst) == key
                && owner > CLOSED
                && counts(owner)
                && !is_of_the_dead(owner)
        })
    }

    /// Tells all processes of the node that write the plain file that it has a container.
    pub(crate) fn flag(&self, file: (u64, u64)) {
        let (key, words) = (key_of(file), self.page.words());
        let entries = self.slots_of(key).filter(|at| words[*at].load(Ordering::SeqCst) == key);
        entries.for_each(|at| words[at + FLAG].store(1, Ordering::SeqCst));
    }

    /// Whether a process of the node has made the file within this time.
    pub(crate) fn was_made_within(&self, file: (u64, u64), time_ns: u64) -> bool {
        let (key, words, now) = (key_of(file), self.page.words(), boot_time_ns());
        self.slots_of(key).any(|at| {
            let made = words[at + MADE].load(Ordering::SeqCst);
            words[at].load(Ordering::SeqCst) == key && made != 0 && now.abs_diff(made) < time_ns
        })
    }

    /// Where the table may have entries of the file.
    fn slots_of(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let first = key as usize % ENTRIES;
        (0..SLOTS_OF_FILE).map(move |i| (first + i) % ENTRIES * ENTRY)
    }
}

impl Writing {
    /// Whether somebody has said that the file has a container. A load.
    pub(crate) fn is_flagged(&self) -> bool {
        self.writers.flag_of(self.entry).load(Ordering::SeqCst) != 0
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // In the child of a fork, the entry is the parent's.
        if self.entry.me == me() {
            self.writers.leave(self.entry);
        }
    }
}

/// A number of a file, never 0.
fn key_of((dev, ino): (u64, u64)) -> u64 {
    let mixed = (dev.rotate_left(32) ^ ino).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).max(1)
}

/// This process: its number and when it began; 0 before somebody asked, and after a fork.
static ME: plain::atomic::AtomicU64 = plain::atomic::AtomicU64::new(0);

pub(super) fn me() -> u64 {
    match ME.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            let me = u64::from(pid) << 32 | u64::from(start_of_process(pid));
            ME.store(me, Ordering::Relaxed);
            me
        }
        me => me,
    }
}

/// In the child of a fork, which is another process.
pub(crate) fn forget_process() {
    ME.store(0, Ordering::Relaxed);
}

pub(super) fn is_of_the_dead(owner: u64) -> bool {
    let (pid, start) = ((owner >> 32) as u32, owner as u32);
    owner > CLOSED && (is_dead(pid) || start_of_process(pid) != start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_sees_the_first() {
        let dir = std::path::PathBuf::from("/dev/shm");
        let at = dir.join(format!("plfs-writers-test-{}", std::process::id()));
        let uid = rustix::process::geteuid().as_raw();
        let page = SharedPage::join(&at, uid).unwrap();
        let writers = Arc::new(Writers { page: page.into_words() });
        let (first, seen) = writers.enter((1, 2), false);
        assert_eq!(seen, OtherWriter::Unknown);
        // A process that lives, and is not this one.
        let slot = first.as_ref().unwrap().entry.slot;
        let other = 1_u64 << 32 | u64::from(start_of_process(1));
        writers.page.words()[slot + 1].store(other, Ordering::SeqCst);
        let (second, seen) = writers.enter((1, 2), true);
        assert_eq!(seen, OtherWriter::Open);
        assert!(writers.was_made_within((1, 2), u64::MAX));
        assert!(!writers.was_made_within((1, 2), 0) && !writers.was_made_within((1, 3), u64::MAX));
        drop(second);
        // One that is dead.
        writers.page.words()[slot + 1].store(other + 1, Ordering::SeqCst);
        assert_eq!(writers.enter((1, 2), false).1, OtherWriter::Closed);
        assert!(writers.was_made_within((1, 2), u64::MAX));
        assert_eq!(writers.enter((1, 3), false).1, OtherWriter::Unknown);
        assert!(!writers.was_made_within((1, 3), u64::MAX));
        drop(first);
        // However many files there are, there is no more than a page.
        let all: Vec<_> = (0..5000).map(|ino| writers.enter((7, ino), false).0).collect();
        assert!(all.iter().flatten().count() <= ENTRIES);
        // The table's file is kept, and locked, without a descriptor.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
        let is_it = |fd: std::path::PathBuf| std::fs::read_link(fd).is_ok_and(|to| to == at);
        assert_eq!(open.filter(|fd| is_it(fd.clone())).count(), 0);
        let page = SharedPage::peek(&at, uid).unwrap().unwrap();
        assert!(page.has_members());
        drop((all, writers));
        assert!(!page.has_members());
        page.remove();
    }
}
