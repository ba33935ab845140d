//! Background writing: full buffers go to storage while the application computes. One queue and two
//! threads a process, a bounded number of bytes.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use super::journal::{Buffer, Journal};
use crate::error::{At, Error, Result};
use crate::store::rates::{self, Rates};
use crate::store::{self, StoreFile};
use crate::sync::{Arc, Condvar, Mutex, OfProcess, PoisonError, lock, plain, spawn_for_ever};

/// Threads that write. Two: one waits for storage while the other copies; more gain nothing against
/// one storage system and disturb the application.
const THREADS: usize = 2;

/// What one writer has under way, and its first failure.
#[derive(Debug, Default)]
pub struct InFlight {
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: usize,
    failed: Option<Error>,
    spare: Vec<Vec<u8>>,
    refused: Vec<Refused>,
}

/// A buffer for which the store had no room.
#[derive(Debug)]
pub(super) struct Refused {
    /// The owner's number of the segment.
    pub segment: u32,
    pub offset: u64,
    pub bytes: Buffer,
    pub error: Error,
}

/// Where a buffer goes.
pub(super) struct Target {
    pub file: Arc<dyn StoreFile>,
    pub path: Arc<Path>,
    /// The owner's number of the segment, if it has other places for what finds no room.
    pub segment: Option<u32>,
    pub offset: u64,
    /// Who is told how long it took.
    pub rate: Option<(Arc<Rates>, rates::Target)>,
}

struct Job {
    target: Target,
    bytes: Buffer,
    owner: Arc<InFlight>,
}

struct Flusher {
    queue: Mutex<Queue>,
    work: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    threads: usize,
}

/// Buffers that no data log uses now.
static SPARE: OfProcess<plain::Mutex<Vec<Vec<u8>>>> = OfProcess::new();

/// So many are kept: a process writes few files at a time, and 16 MiB are little beside the budget.
const SPARE_BUFFERS: usize = 4;

/// Shorter ones cost little to make.
pub(super) const SPARE_BYTES: usize = 64 << 10;

fn spare_buffers() -> &'static plain::Mutex<Vec<Vec<u8>>> {
    SPARE.get(Default::default)
}

/// An empty buffer, used before if there is one.
pub(super) fn spare_buffer() -> Vec<u8> {
    plain::lock(spare_buffers()).pop().unwrap_or_default()
}

/// Keeps the memory of an empty buffer for the next [`spare_buffer`], or frees it.
pub(super) fn keep_buffer(buffer: Buffer) {
    if let Some(buffer) = buffer.into_private().filter(|bytes| bytes.capacity() >= SPARE_BYTES) {
        let mut spare = plain::lock(spare_buffers());
        if spare.len() < SPARE_BUFFERS {
            spare.push(buffer);
        }
    }
}

impl InFlight {
    /// Waits until nothing is under way; gives the first failure since the beginning, for ever.
    pub fn wait(&self) -> Result<()> {
        let mut state = lock(&self.state);
        while state.jobs > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// The first failure so far, without waiting.
    pub fn failure(&self) -> Result<()> {
        lock(&self.state).failed.clone().map_or(Ok(()), Err)
    }

    /// A buffer that found no room, and has other places to go.
    pub(super) fn take_refused(&self) -> Option<Refused> {
        lock(&self.state).refused.pop()
    }

    /// Bytes are lost: this is the failure, if it is the first.
    pub(super) fn fail(&self, error: Error) {
        lock(&self.state).failed.get_or_insert(error);
    }

    /// An empty buffer of the journal: waits until the store has what is in one, if all are used.
    /// `None`: what they have the store has refused.
    pub(super) fn next_of(&self, journal: &Arc<Journal>) -> Option<Buffer> {
        let mut state = lock(&self.state);
        loop {
            let next = Buffer::of(journal);
            if next.is_some() || state.jobs == 0 {
                return next;
            }
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An empty buffer, used before if there is one.
    pub fn spare(&self) -> Vec<u8> {
        lock(&self.state).spare.pop().unwrap_or_else(spare_buffer)
    }

    /// Gives others the buffer that was used before.
    pub fn give_up_spare(&self) {
        if let Some(buffer) = lock(&self.state).spare.pop() {
            keep_buffer(Buffer::private(buffer));
        }
    }
}

/// Queues `bytes` to be written there. Waits while more than `budget_bytes` are under way in this
/// process.
pub(super) fn write_behind(
    target: Target,
    bytes: Buffer,
    owner: &Arc<InFlight>,
    budget_bytes: usize,
) {
    let flusher = flusher();
    lock(&owner.state).jobs += 1;
    let mut queue = lock(&flusher.queue);
    while queue.bytes > 0 && queue.bytes + bytes.len() > budget_bytes {
        queue = flusher.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    queue.bytes += bytes.len();
    queue.jobs.push_back(Job { target, bytes, owner: owner.clone() });
    if queue.threads < THREADS {
        queue.threads += usize::from(spawn_for_ever("plfs-flush", move || run(flusher)));
        if queue.threads == 0 {
            // No thread to be had: the caller is one.
            if let Some(job) = queue.jobs.pop_back() {
                queue.bytes -= job.bytes.len();
                drop(queue);
                finish(job);
            }
            return;
        }
    }
    drop(queue);
    flusher.work.notify_one();
}

/// The process's flusher. Threads do not survive fork, so a child gets a new one; the old one is
/// idle then, because fork commits first.
fn flusher() -> &'static Flusher {
    static FLUSHER: OfProcess<Flusher> = OfProcess::new();
    FLUSHER.get(|| Flusher { queue: Mutex::default(), work: Condvar::new(), room: Condvar::new() })
}

fn run(flusher: &'static Flusher) {
    loop {
        let mut queue = lock(&flusher.queue);
        let job = loop {
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None => queue = flusher.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        let bytes = job.bytes.len();
        finish(job);
        lock(&flusher.queue).bytes -= bytes;
        flusher.room.notify_all();
    }
}

fn finish(mut job: Job) {
    let Target { file, path, segment, offset, rate } = &job.target;
    let begun = Instant::now();
    let result =
        store::write_full(file.as_ref(), job.bytes.bytes(), *offset).at("write the data log", path);
    if let (Ok(()), Some((rates, target))) = (&result, rate) {
        let took = begun.elapsed();
        rates.took(*target, took);
        rates.note(*target, job.bytes.len() as u64, took);
    }
    let mut bytes = std::mem::take(&mut job.bytes);
    let mut state = lock(&job.owner.state);
    match (result, segment) {
        (Ok(()), _) => {
            bytes.clear();
            match bytes.into_private() {
                Some(memory) if state.spare.is_empty() && memory.capacity() > 0 => {
                    state.spare.push(memory);
                }
                Some(memory) => keep_buffer(Buffer::private(memory)),
                None => {}
            }
        }
        (Err(error), Some(segment)) if error.is_full() => {
            state.refused.push(Refused { segment: *segment, offset: *offset, bytes, error });
        }
        (Err(error), _) => {
            bytes.keep();
            state.failed.get_or_insert(error);
        }
    }
    state.jobs -= 1;
    job.owner.idle.notify_all();
}
