//! Background writing: full buffers go to storage while the application computes. One queue a
//! process, a bounded number of bytes, and two threads for each storage target.
//!
//! An append to a target of several may take for ever, and what a thread has begun nobody can end.
//! So who waits for one that takes longer than the deadline takes the bytes from it: they are
//! [`Refused`], as those are for which there is no room, and their log gives them to another
//! target. Who removes a job from the queue decides what becomes of it, once: the thread, when the
//! store has all of it, or who gives it up. What a thread comes back with after that changes
//! nothing; its bytes lie where no record points to (docs/decisions/0029).

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use plfs_index::{Stretch, Sums};

use super::LogSet;
use super::journal::{Buffer, Journal};
use crate::error::{At, Error, Result};
use crate::store::rates::{self, Rates, WINDOW};
use crate::store::{self, Errno, StoreFile};
use crate::sync::plain::mpsc::{Receiver, RecvTimeoutError, channel};
use crate::sync::{
    Arc, Condvar, Mutex, MutexGuard, OfProcess, PoisonError, Weak, lock, plain, spawn_for_ever,
};

/// Threads that write to one target, or to all of which nobody knows what they are. Two: one waits
/// for storage while the other copies; more gain nothing against one storage system and disturb the
/// application.
pub(super) const THREADS: usize = 2;

/// Who waits looks so many times in the time of a deadline whether it is over.
const LOOKS: u32 = 16;
/// And at least so often.
pub(super) const LOOKS_EVERY: Duration = Duration::from_secs(1);

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
    /// Segments that the store has bytes of, since the owner asked last.
    written: Vec<u32>,
    sums: Sums,
    /// How often to look for jobs that take too long.
    looks_every: Option<Duration>,
    /// A job was given up: its thread may have memory of the journal for ever.
    has_given_up: bool,
    /// One for each target.
    windows: Vec<Window>,
    is_measured: bool,
}

/// What a target took of one writer since it was measured last.
#[derive(Debug)]
struct Window {
    target: rates::Target,
    bytes: u64,
    /// While bytes were on their way to it.
    busy: Duration,
    /// When the last ones were there.
    until: Option<Instant>,
    /// A moment since which some were nearly always.
    since: Option<Moment>,
}

/// A moment, and what a target had got from all writers until then.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    got: u64,
}

impl Moment {
    fn now(job: &Job) -> Moment {
        let steered = job.target.steered.as_ref();
        let got = steered.map_or(0, |steered| steered.rates.bytes(steered.target));
        Moment { at: Instant::now(), got }
    }
}

/// A buffer that the store has not taken.
#[derive(Debug)]
pub(super) struct Refused {
    /// The owner's number of the segment.
    pub segment: u32,
    pub offset: u64,
    /// Who gave it up may still read it.
    pub bytes: Arc<Buffer>,
    /// There was no room, or no answer ([`Error::is_given_up`]).
    pub error: Error,
}

/// Where a buffer goes.
pub(super) struct Target {
    pub file: Arc<dyn StoreFile>,
    pub path: Arc<Path>,
    /// The owner's number of the segment.
    pub segment: u32,
    /// The owner has other places for what finds no room.
    pub has_choice: bool,
    pub offset: u64,
    /// Whether the bytes are to have sums.
    pub has_sums: bool,
    /// What of the segment is to be given to the storage, and waited for: from, and how much.
    pub pace: Option<(u64, u64)>,
    pub steered: Option<Steered>,
}

/// What is known of the storage target of a log that chooses between several.
#[derive(Clone)]
pub(super) struct Steered {
    pub rates: Arc<Rates>,
    pub target: rates::Target,
    /// How long it took says how fast the target is.
    pub is_measure: bool,
    /// It is given up when it takes longer.
    pub deadline: Option<Duration>,
    /// The other targets.
    pub others: Arc<[rates::Target]>,
    /// Where to note what the storage tells once.
    pub set: Weak<LogSet>,
}

impl Steered {
    fn has_other(&self) -> bool {
        self.rates.is_one_open(&self.others, Some(self.target))
    }
}

struct Job {
    target: Target,
    /// Until the store has them, or they were taken away.
    bytes: Mutex<Option<Arc<Buffer>>>,
    length: usize,
    owner: Arc<InFlight>,
}

impl Job {
    /// Jobs of one lane share two threads.
    fn lane(&self) -> Option<rates::Target> {
        self.target.steered.as_ref().map(|steered| steered.target)
    }

    fn take(&self) -> Option<Arc<Buffer>> {
        lock(&self.bytes).take()
    }
}

struct Running {
    job: Arc<Job>,
    begun: Instant,
}

/// What is done on a thread of its own.
type Call = Box<dyn FnOnce() + Send>;

struct Flusher {
    queue: Mutex<Queue>,
    work: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Job>>,
    running: Vec<Running>,
    calls: VecDeque<Call>,
    /// Of jobs that wait or run.
    bytes: usize,
    threads: usize,
    /// Threads that have nothing to do.
    idle: usize,
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
    /// Waits until nothing is under way that has not been given up; gives the first failure since
    /// the beginning, for ever.
    pub fn wait(&self) -> Result<()> {
        let mut state = lock(&self.state);
        while state.jobs > 0 {
            state = self.wait_on(state);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    fn wait_on<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(every) = state.looks_every else {
            return self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let (state, timeout) =
            self.idle.wait_timeout(state, every).unwrap_or_else(PoisonError::into_inner);
        if !timeout.timed_out() {
            return state;
        }
        drop(state);
        flusher().give_up();
        lock(&self.state)
    }

    /// The first failure so far, without waiting.
    pub fn failure(&self) -> Result<()> {
        lock(&self.state).failed.clone().map_or(Ok(()), Err)
    }

    /// How many bytes the sums take of what was written since the last [`InFlight::take_written`].
    pub(super) fn sums_bytes(&self) -> usize {
        lock(&self.state).sums.bytes()
    }

    /// A buffer that the store has not taken, and that has other places to go.
    pub(super) fn take_refused(&self) -> Option<Refused> {
        lock(&self.state).refused.pop()
    }

    /// There is no other place for it now.
    pub(super) fn put_back(&self, refused: Refused) {
        lock(&self.state).refused.push(refused);
    }

    /// Whether something waits for another place.
    pub(super) fn has_refused(&self) -> bool {
        !lock(&self.state).refused.is_empty()
    }

    /// Segments that the store has bytes of since the last call; and their sums.
    pub(super) fn take_written(&self) -> (Vec<u32>, Vec<Stretch>) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.written), state.sums.take())
    }

    /// Whether a target was measured since the last call.
    pub(super) fn take_measured(&self) -> bool {
        std::mem::take(&mut lock(&self.state).is_measured)
    }

    /// An empty buffer of the journal: waits until the store has what is in one, if all are used.
    /// `None`: what they have the store has refused.
    pub(super) fn next_of(&self, journal: &Arc<Journal>) -> Option<Buffer> {
        let mut state = lock(&self.state);
        loop {
            let next = Buffer::of(journal).ok();
            if next.is_some() || state.jobs == 0 {
                return next;
            }
            state = self.wait_on(state);
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

/// How often who waits looks whether a deadline is over.
pub(super) fn looks_every(deadline: Duration) -> Duration {
    (deadline / LOOKS).clamp(Duration::from_millis(1), LOOKS_EVERY)
}

/// Queues `bytes` to be written there. Waits while more than `budget_bytes` are under way in this
/// process.
pub(super) fn write_behind(
    target: Target,
    bytes: Arc<Buffer>,
    owner: &Arc<InFlight>,
    budget_bytes: usize,
) {
    let flusher = flusher();
    {
        let mut state = lock(&owner.state);
        state.jobs += 1;
        let deadline = target.steered.as_ref().and_then(|steered| steered.deadline);
        state.looks_every = state.looks_every.or(deadline.map(looks_every));
    }
    let length = bytes.len();
    let mut queue = lock(&flusher.queue);
    while queue.bytes > 0 && queue.bytes + length > budget_bytes {
        let (locked, timeout) =
            flusher.room.wait_timeout(queue, LOOKS_EVERY).unwrap_or_else(PoisonError::into_inner);
        queue = locked;
        if timeout.timed_out() {
            drop(queue);
            flusher.give_up();
            queue = lock(&flusher.queue);
        }
    }
    queue.bytes += length;
    let bytes = Mutex::new(Some(bytes));
    queue.waiting.push_back(Arc::new(Job { target, bytes, length, owner: owner.clone() }));
    flusher.staff(&mut queue);
    if queue.threads > 0 {
        return;
    }
    // No thread to be had: the caller is one.
    let job = queue.take_ready();
    drop(queue);
    if let Some(job) = job {
        flusher.run(job);
    }
}

/// How many buffers of this process are on their way to a target.
pub(super) fn jobs_at(target: rates::Target) -> usize {
    let queue = lock(&flusher().queue);
    let waiting = queue.waiting.iter().filter(|job| job.lane() == Some(target));
    waiting.count() + queue.running_in(Some(target)).count()
}

/// What a call gives that a thread of its own makes, which nobody ends.
pub(super) struct Aside<T>(Receiver<T>);

/// Begins a call on a thread of its own; on the caller's, if there is none to be had, or where
/// schedules are explored.
pub(super) fn aside<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Aside<T> {
    let (tell, hear) = channel();
    let call: Call = Box::new(move || drop(tell.send(call())));
    if cfg!(feature = "shuttle") {
        call();
        return Aside(hear);
    }
    let flusher = flusher();
    let mut queue = lock(&flusher.queue);
    queue.calls.push_back(call);
    flusher.staff(&mut queue);
    if queue.threads == 0 {
        let call = queue.calls.pop_back();
        drop(queue);
        call.into_iter().for_each(|call| call());
    }
    Aside(hear)
}

impl<T> Aside<T> {
    /// Waits for it. `None`: it was not there when `is_over` said so, which is asked again and
    /// again, or it panicked.
    pub(super) fn wait(self, every: Duration, is_over: impl Fn() -> bool) -> Option<T> {
        loop {
            match self.0.recv_timeout(every) {
                Ok(done) => return Some(done),
                Err(RecvTimeoutError::Timeout) if !is_over() => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for it so long.
    pub(super) fn wait_for(self, deadline: Duration) -> Option<T> {
        let begun = Instant::now();
        self.wait(looks_every(deadline), || begun.elapsed() >= deadline)
    }
}

/// The process's flusher. Threads do not survive fork, so a child gets a new one; the old one has
/// nothing that anybody waits for, because fork commits first.
fn flusher() -> &'static Flusher {
    static FLUSHER: OfProcess<Flusher> = OfProcess::new();
    FLUSHER.get(|| Flusher { queue: Mutex::default(), work: Condvar::new(), room: Condvar::new() })
}

impl Queue {
    fn running_in(&self, lane: Option<rates::Target>) -> impl Iterator<Item = &Running> {
        self.running.iter().filter(move |running| running.job.lane() == lane)
    }

    fn is_ready(&self, job: &Job) -> bool {
        self.running_in(job.lane()).count() < THREADS
    }

    /// The first job for which its target has a thread left; it runs from now on.
    fn take_ready(&mut self) -> Option<Arc<Job>> {
        let at = self.waiting.iter().position(|job| self.is_ready(job))?;
        let job = self.waiting.remove(at)?;
        self.running.push(Running { job: job.clone(), begun: Instant::now() });
        Some(job)
    }

    /// Takes out the jobs that take too long and have another target, and those that wait behind
    /// them.
    fn take_overdue(&mut self) -> Vec<Arc<Job>> {
        let now = Instant::now();
        let is_late = |begun: Instant, job: &Job| {
            let steered = job.target.steered.as_ref().filter(|steered| steered.has_other());
            let deadline = steered.and_then(|steered| steered.deadline);
            deadline.is_some_and(|deadline| now.duration_since(begun) >= deadline)
        };
        let mut overdue = Vec::new();
        self.running.retain(|running| {
            let is_overdue = is_late(running.begun, &running.job);
            if is_overdue {
                overdue.push(running.job.clone());
            }
            !is_overdue
        });
        for job in &overdue {
            if let Some(Steered { rates, target, .. }) = &job.target.steered {
                rates.fence(*target);
            }
        }
        let all = std::mem::take(&mut self.waiting);
        let waits_in_vain = |job: &Job| {
            let Some(steered) = &job.target.steered else { return false };
            let all_are_late = || self.running_in(job.lane()).all(|one| is_late(one.begun, job));
            steered.deadline.is_some()
                && steered.has_other()
                && (steered.rates.is_fenced(steered.target)
                    || (!self.is_ready(job) && all_are_late()))
        };
        let (in_vain, waiting): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|job| waits_in_vain(job));
        self.waiting = waiting.into();
        overdue.extend(in_vain);
        self.bytes -= overdue.iter().map(|job| job.length).sum::<usize>();
        overdue
    }
}

impl Flusher {
    /// Sees to it that there are threads for all that can be done now.
    fn staff(&'static self, queue: &mut Queue) {
        let mut lanes: Vec<(Option<rates::Target>, usize)> = Vec::new();
        let mut work = queue.calls.len();
        for job in &queue.waiting {
            let lane = job.lane();
            let at = lanes.iter().position(|(of, _)| *of == lane).unwrap_or_else(|| {
                lanes.push((lane, queue.running_in(lane).count()));
                lanes.len() - 1
            });
            if lanes[at].1 < THREADS {
                lanes[at].1 += 1;
                work += 1;
            }
        }
        // Those that were told of work and have not come yet are still idle.
        for _ in queue.idle..work {
            if !spawn_for_ever("plfs-flush", move || self.work()) {
                break;
            }
            queue.threads += 1;
            queue.idle += 1;
        }
        match work {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// The life of a thread.
    fn work(&'static self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(call) = queue.calls.pop_front() {
                queue.idle -= 1;
                drop(queue);
                call();
            } else if let Some(job) = queue.take_ready() {
                queue.idle -= 1;
                drop(queue);
                self.run(job);
            } else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue = lock(&self.queue);
            queue.idle += 1;
        }
    }

    fn run(&'static self, job: Arc<Job>) {
        let begun = Moment::now(&job);
        let result = write(&job);
        let took = begun.at.elapsed();
        if let Some(steered) = job.target.steered.as_ref().filter(|it| it.is_measure) {
            steered.rates.took(steered.target, took);
        }
        let is_still_ours = {
            let mut queue = lock(&self.queue);
            let at = queue.running.iter().position(|running| Arc::ptr_eq(&running.job, &job));
            if let Some(at) = at {
                queue.running.swap_remove(at);
                queue.bytes -= job.length;
            }
            at.is_some()
        };
        match is_still_ours {
            true => settle(&job, result, begun),
            false => {
                if let (Ok(()), Some(steered)) = (result, &job.target.steered) {
                    steered.rates.unfence(steered.target);
                }
            }
        }
        self.room.notify_all();
    }

    /// Takes from the threads what takes too long, and has another place to go.
    fn give_up(&'static self) {
        let overdue = {
            let mut queue = lock(&self.queue);
            let overdue = queue.take_overdue();
            if !overdue.is_empty() {
                self.staff(&mut queue);
            }
            overdue
        };
        if overdue.is_empty() {
            return;
        }
        for job in overdue {
            let Some(bytes) = job.take() else { continue };
            let Target { path, segment, offset, .. } = &job.target;
            let mut state = lock(&job.owner.state);
            state.has_given_up = true;
            state.refused.push(Refused {
                segment: *segment,
                offset: *offset,
                bytes,
                error: given_up("write the data log", path),
            });
            state.jobs -= 1;
            job.owner.idle.notify_all();
        }
        self.room.notify_all();
    }
}

/// Somebody has waited longer than the deadline.
pub(super) fn given_up(op: &'static str, path: &Path) -> Error {
    Error::Io { op, path: path.to_path_buf(), errno: Errno::TIMEDOUT }
}

fn write(job: &Job) -> Result<()> {
    let Target { file, path, offset, pace, steered, .. } = &job.target;
    // It is there until the thread comes back, or it was given up before.
    let Some(mut bytes) = lock(&job.bytes).clone() else { return Ok(()) };
    let has_given_up = lock(&job.owner.state).has_given_up;
    let copy;
    // A thread that hangs keeps what it writes from: not another part of the journal, which has
    // four.
    let there = match has_given_up {
        true => {
            copy = bytes.bytes().to_vec();
            bytes = Arc::default();
            &copy[..]
        }
        false => bytes.bytes(),
    };
    store::write_full(file.as_ref(), there, *offset).at("write the data log", path)?;
    drop(bytes);
    if let Some((from, length)) = *pace
        && let Err(errno) = store::heard(
            file.write_back(from, length, false).and_then(|()| file.write_back(from, length, true)),
        )
        && let Some(set) = steered.as_ref().and_then(|steered| steered.set.upgrade())
    {
        // The system tells it once: the next sync says it, and all after that.
        let _ = set.note_failure(Err(errno));
    }
    Ok(())
}

/// What comes of a job that its thread has ended.
fn settle(job: &Job, result: Result<()>, begun: Moment) {
    let Some(mut bytes) = job.take() else { return };
    let Target { segment, offset, has_choice, has_sums, .. } = job.target;
    let mut sums = Sums::default();
    if has_sums && result.is_ok() {
        sums.push(segment, offset, bytes.bytes());
    }
    let mut state = lock(&job.owner.state);
    match result {
        Ok(()) => {
            bytes.is_done();
            if !state.written.contains(&segment) {
                state.written.push(segment);
            }
            sums.take().into_iter().for_each(|stretch| state.sums.add(stretch));
            state.measure(job, begun);
            // Nobody else has it, unless it was given up before.
            if let Some(mut bytes) = Arc::into_inner(std::mem::take(&mut bytes)) {
                bytes.clear();
                match bytes.into_private() {
                    Some(memory) if state.spare.is_empty() && memory.capacity() > 0 => {
                        state.spare.push(memory);
                    }
                    Some(memory) => keep_buffer(Buffer::private(memory)),
                    None => {}
                }
            }
        }
        Err(error) if has_choice && error.is_refused(job.lane().is_some()) => {
            state.refused.push(Refused { segment, offset, bytes, error });
        }
        Err(error) => {
            bytes.keep();
            state.failed.get_or_insert(error);
        }
    }
    state.jobs -= 1;
    job.owner.idle.notify_all();
}

impl State {
    /// Takes note that the target of a job that was begun then has its bytes.
    fn measure(&mut self, job: &Job, begun: Moment) {
        let Some(steered) = job.target.steered.as_ref().filter(|it| it.is_measure) else { return };
        let (rates, target, done) = (&steered.rates, steered.target, Instant::now());
        let at = self.windows.iter().position(|window| window.target == target);
        let at = at.unwrap_or_else(|| {
            let busy = Duration::ZERO;
            self.windows.push(Window { target, bytes: 0, busy, until: None, since: None });
            self.windows.len() - 1
        });
        let window = &mut self.windows[at];
        let bytes = job.target.pace.map_or(job.length as u64, |(_, length)| length);
        let got = rates.got(target, bytes);
        // Of jobs that ran at the same time each moment counts once.
        let since = window.until.map_or(begun.at, |until| until.max(begun.at));
        if window.until.is_none_or(|until| until + WINDOW / 4 < begun.at) {
            window.since = None;
        }
        let first = *window.since.get_or_insert(begun);
        window.bytes += bytes;
        window.busy += done.saturating_duration_since(since);
        window.until = Some(done);
        if window.busy < WINDOW {
            return;
        }
        let of = |bytes: u64, time: Duration| bytes as f64 / time.as_secs_f64().max(1e-9);
        let time = done.saturating_duration_since(first.at);
        let all = (time * 2 >= WINDOW).then(|| of(got.wrapping_sub(first.got), time));
        // What this writer got while it waited, and what all got meanwhile: the target can do no
        // less than either. Its own part alone says nothing where others write, too.
        if all.is_some() || rates.writers_of(target) <= 1 || rates.measured(target).is_none() {
            let own = of(window.bytes, window.busy);
            rates.note(target, own.max(all.unwrap_or(0.0)));
            self.is_measured = true;
        }
        window.since = Some(Moment { at: done, got });
        (window.bytes, window.busy) = (0, Duration::ZERO);
    }
}
