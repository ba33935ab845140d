//! What one writer has written and not committed, in memory that outlives its process: records of
//! its writes, and the bytes of those that are not with the store (docs/decisions/0024).
//!
//! A [`Journal`] is a file in the node's shared memory. It has *entries*, one for each act on the
//! writer's [`Folder`], and *buffers*, from which the data log is written. When the writer dies,
//! another process of the node [inherits](inherit) it: it writes the buffers to their places, acts
//! on a folder of its own as the entries say, and commits the records that come of that.
//!
//! Nothing that counts is written over: bytes come before the entry about them, and what makes
//! either count is one store to one word. So whatever instruction the kill comes at, an heir finds
//! all that was acknowledged. To do the heir's work twice does no harm: bytes go to the same
//! places, and records have the stamps that they had.

use std::path::{Path, PathBuf};

use plfs_format::index_log::{Repeat, nest_end};
use plfs_format::name::SegmentRef;
use plfs_index::{Folder, HOLE, Run, Stamped};

use crate::store::locked_memory::{Inherited, LockedMemory, NUMBERS_BYTES, Part};
use crate::store::machine::random_u64;
use crate::store::{Errno, Result};
use crate::sync::plain::Mutex;
use crate::sync::plain::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Word, plain};

/// Says that it is one, and of this version.
const MAGIC: u64 = u64::from_le_bytes(*b"plfsjrn1");

// Numbers, by the byte where they are.
const MAGIC_AT: usize = 0;
/// The nonce of the tenancy that the writer is in.
const NONCE_AT: usize = 8;
/// What the writer's records have as their writer.
const WRITER_AT: usize = 16;
/// Which entries count: the first, and the one after the last.
const ENTRIES_RANGE_AT: usize = 24;
/// The buffers' numbers.
const BUFFERS_AT: usize = 64;
const BUFFER_WORDS: usize = 64;
/// In a buffer's numbers: two places, segment and physical offset of its first byte.
const PLACES: [usize; 2] = [0, 16];
/// In a buffer's numbers: which of its bytes count, and by its highest bit for which place.
const BYTES_RANGE: usize = 32;
const SECOND_PLACE: u64 = 1 << 63;

const ENTRIES_FROM: usize = NUMBERS_BYTES;
const ENTRY_BYTES: usize = 64;
// Where an entry has some of its numbers.
const LENGTH_AT: usize = 8;
const STRIDE_AT: usize = 16;
const COUNT_AT: usize = 56;
/// 1 MiB. As many writes make a commit; its block has a few hundred bytes if they fold.
const ENTRIES_MAX: usize = 16_384;
/// A journal is folded if the records are so many times less than the entries that it can have:
/// that takes two for each record, twice.
const FOLDS_TO_PART: usize = 16;
/// Of what is allocated at first, and at least.
const PAGE: usize = 4096;

const DATA_FROM: usize = ENTRIES_FROM + ENTRY_BYTES * ENTRIES_MAX;
/// Buffers of a journal: one that is filled, two that threads write, one that waits for them.
const BUFFERS: usize = 4;
/// The longest that a data log has.
const BUFFER_MAX: usize = 4 << 20;
const MAPPED: usize = DATA_FROM + BUFFERS * BUFFER_MAX;
/// A buffer begins with so many bytes, and grows by and by up to so many.
const BEGINS_WITH: usize = 16 << 10;
const GROWS_TO: usize = 64 << 10;

/// Bytes of all journals of this process.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Journals that no writer has now: to make one anew costs ten system calls, and fresh memory.
static SPARE: Mutex<Vec<(PathBuf, u32, Allocated)>> = Mutex::new(Vec::new());
/// What follows the user in their names.
pub(super) const SPARE_NAME: &str = "spare";
/// So many are kept, and none with more memory: a process that makes many files has one or two of
/// them open at a time, and short ones.
const SPARE_JOURNALS: usize = 4;
const SPARE_BYTES: usize = 256 << 10;

/// The journal of one writer.
#[derive(Debug)]
pub struct Journal {
    has: Mutex<Allocated>,
    memory: Arc<LockedMemory>,
    /// Which of the node's journals it is.
    number: usize,
    uid: u32,
    /// Bytes that this process may have in journals.
    budget_bytes: usize,
}

/// The memory of a journal, and how much there is.
#[derive(Debug)]
struct Allocated {
    memory: Arc<LockedMemory>,
    bytes: usize,
    /// Entries for which there is memory.
    entries: usize,
    buffers: [Slot; BUFFERS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    is_used: bool,
    allocated: usize,
}

impl Drop for Allocated {
    fn drop(&mut self) {
        HELD_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Allocated {
    /// Memory for `[from, from + bytes)`. NOSPC if there is none.
    fn allocate(&mut self, from: usize, bytes: usize, budget_bytes: usize) -> Result<()> {
        let held = HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
        let allocated = match held.saturating_add(bytes) <= budget_bytes {
            true => self.memory.allocate(from, bytes),
            false => Err(Errno::NOSPC),
        };
        match allocated {
            Ok(()) => self.bytes += bytes,
            Err(_) => drop(HELD_BYTES.fetch_sub(bytes, Ordering::Relaxed)),
        }
        allocated
    }
}

impl Journal {
    /// A journal at `path` for a writer in this tenancy, which grows as long as those of the
    /// process have fewer bytes than it may. Errors of [`LockedMemory::create`].
    pub(super) fn create(
        path: &Path,
        number: usize,
        uid: u32,
        (nonce, writer): (u64, u32),
        budget_bytes: usize,
    ) -> Result<Journal> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let spare = {
            let mut spare = plain::lock(&SPARE);
            let found = spare.iter().position(|(of, user, _)| of == dir && *user == uid);
            found.map(|i| spare.swap_remove(i).2)
        };
        let is_spare = spare.is_some();
        let has = match spare {
            Some(spare) => spare,
            None => {
                let first = ENTRIES_FROM + PAGE;
                let memory = Arc::new(LockedMemory::create(path, uid, first, MAPPED)?);
                HELD_BYTES.fetch_add(first, Ordering::Relaxed);
                let entries = PAGE / ENTRY_BYTES;
                Allocated { memory, bytes: first, entries, buffers: Default::default() }
            }
        };
        let memory = has.memory.clone();
        memory.word(NONCE_AT).store(nonce, Ordering::Relaxed);
        memory.word(WRITER_AT).store(u64::from(writer), Ordering::Relaxed);
        memory.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        if is_spare {
            memory.rename(path).inspect_err(|_| memory.remove())?;
        }
        Ok(Journal { has: Mutex::new(has), memory, number, uid, budget_bytes })
    }

    /// Which of the node's journals it is.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.memory.path()
    }

    /// Ends it: nothing in it is needed any more.
    pub(super) fn end(self: Arc<Self>) {
        let memory = self.memory.clone();
        memory.word(MAGIC_AT).store(0, Ordering::Release);
        let has = Arc::into_inner(self).map(|journal| (journal.uid, journal.has.into_inner()));
        // Who still has it has a buffer that the store has refused.
        let Some((uid, Ok(has))) = has else { return memory.remove() };
        let is_used = |slot: &Slot| slot.is_used;
        let mut spare = plain::lock(&SPARE);
        if has.bytes > SPARE_BYTES
            || has.buffers.iter().any(is_used)
            || spare.len() >= SPARE_JOURNALS
        {
            return memory.remove();
        }
        memory.word(ENTRIES_RANGE_AT).store(0, Ordering::Relaxed);
        for buffer in 0..BUFFERS {
            let range = BUFFERS_AT + buffer * BUFFER_WORDS + BYTES_RANGE;
            memory.word(range).store(0, Ordering::Relaxed);
        }
        let path = memory.path();
        let dir = path.parent().unwrap_or(Path::new("/"));
        match memory.rename(&dir.join(format!("plfs-{uid}-{SPARE_NAME}-{:016x}", random_u64()))) {
            Ok(()) => spare.push((dir.to_path_buf(), uid, has)),
            Err(_) => memory.remove(),
        }
    }

    /// Removes those that no writer has: for a process that is about to end, to fork or to become
    /// another program.
    pub(super) fn forget_spare() {
        plain::lock(&SPARE).drain(..).for_each(|(_, _, has)| has.memory.remove());
    }

    fn allocate(&self, from: usize, bytes: usize) -> bool {
        plain::lock(&self.has).allocate(from, bytes, self.budget_bytes).is_ok()
    }

    /// An empty buffer that nobody uses; NOSPC if there is none.
    fn take_buffer(self: &Arc<Self>) -> Result<Buffer> {
        let mut has = plain::lock(&self.has);
        let free = has.buffers.iter().position(|slot| !slot.is_used);
        let number = free.ok_or(Errno::NOSPC)?;
        if has.buffers[number].allocated == 0 {
            // The first one that each writer needs.
            let budget_bytes = if number == 0 { usize::MAX } else { self.budget_bytes };
            has.allocate(data_of(number), BEGINS_WITH, budget_bytes)?;
            has.buffers[number].allocated = BEGINS_WITH;
        }
        let part = self.memory.take(data_of(number), BUFFER_MAX).ok_or(Errno::NOSPC)?;
        has.buffers[number].is_used = true;
        let memory = Memory::Shared {
            journal: self.clone(),
            number,
            part,
            capacity: has.buffers[number].allocated,
        };
        Ok(Buffer::with(memory))
    }

    /// The word that says which bytes of a buffer count, and for which of its places.
    fn range(&self, number: usize) -> &Word {
        self.memory.word(BUFFERS_AT + number * BUFFER_WORDS + BYTES_RANGE)
    }

    fn give_back(&self, number: usize, allocated: usize) {
        plain::lock(&self.has).buffers[number] = Slot { is_used: false, allocated };
    }
}

/// Bytes on their way to a data log.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    /// The bytes that are there lie between these.
    begin: usize,
    end: usize,
    /// See [`Buffer::keep`].
    is_kept: AtomicBool,
}

#[derive(Debug)]
enum Memory {
    Private(Vec<u8>),
    Shared { journal: Arc<Journal>, number: usize, part: Part, capacity: usize },
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::private(Vec::new())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The memory keeps what it says: the child of a fork drops what its parent goes on with.
        let memory = std::mem::replace(&mut self.memory, Memory::Private(Vec::new()));
        if let Memory::Shared { journal, number, part, capacity, .. } = memory {
            drop(part);
            if !self.is_kept.load(Ordering::Relaxed) {
                journal.give_back(number, capacity);
            }
        }
    }
}

impl Buffer {
    /// An empty one in memory of the process.
    pub fn private(memory: Vec<u8>) -> Buffer {
        debug_assert!(memory.is_empty());
        Buffer::with(Memory::Private(memory))
    }

    fn with(memory: Memory) -> Buffer {
        Buffer { memory, begin: 0, end: 0, is_kept: AtomicBool::new(false) }
    }

    /// An empty one of the journal; NOSPC if all are used, or there is no memory for it.
    pub fn of(journal: &Arc<Journal>) -> Result<Buffer> {
        journal.take_buffer()
    }

    /// The memory, if it is the process's own.
    pub fn into_private(mut self) -> Option<Vec<u8>> {
        match &mut self.memory {
            Memory::Private(bytes) => Some(std::mem::take(bytes)),
            Memory::Shared { .. } => None,
        }
    }

    /// Whether it has memory already.
    pub fn has_memory(&self) -> bool {
        match &self.memory {
            Memory::Private(bytes) => bytes.capacity() > 0,
            Memory::Shared { .. } => true,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.begin
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Private(bytes) => &bytes[self.begin..],
            Memory::Shared { part, .. } => part.bytes(self.begin, self.end - self.begin),
        }
    }

    /// Its bytes are with nobody else: they stay as long as the journal, for an heir. Its part of
    /// the journal is never used again: the number is not given back.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Says where its first byte lies; it is empty.
    pub fn begin_at(&mut self, segment: &SegmentRef, physical: u64) {
        debug_assert!(self.is_empty());
        (self.begin, self.end) = (0, 0);
        if let Memory::Private(bytes) = &mut self.memory {
            bytes.clear();
        }
        // It counts with the first byte.
        self.put_place(segment, physical, 0);
    }

    /// Says that the bytes that are there lie elsewhere. Behind the entry that says so. Of one that
    /// others have, too: by one thread at a time.
    pub fn move_to(&self, segment: &SegmentRef, physical: u64) {
        let range = range_word(self.begin, self.end);
        self.put_place(segment, physical.wrapping_sub(self.begin as u64), range);
    }

    /// Says for an heir that the store has all of it. Does not touch the bytes, which somebody may
    /// still read.
    pub fn is_done(&self) {
        if let Memory::Shared { journal, number, .. } = &self.memory {
            journal.range(*number).store(0, Ordering::Release);
        }
    }

    fn put_place(&self, segment: &SegmentRef, first: u64, bytes: u64) {
        if let Memory::Shared { journal, number, .. } = &self.memory {
            let range = journal.range(*number);
            let other = (range.load(Ordering::Relaxed) & SECOND_PLACE) ^ SECOND_PLACE;
            let place = BUFFERS_AT + number * BUFFER_WORDS + PLACES[usize::from(other != 0)];
            journal.memory.word(place).store(pack(segment), Ordering::Relaxed);
            journal.memory.word(place + 8).store(first, Ordering::Relaxed);
            range.store(bytes | other, Ordering::Release);
        }
    }

    /// Whether it takes so many bytes more as it is; an empty one takes none.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        !self.is_empty() && bytes <= self.capacity() - self.end
    }

    #[inline]
    fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Private(memory) => memory.capacity(),
            Memory::Shared { capacity, .. } => *capacity,
        }
    }

    /// Sees to it that it can have so many bytes, of `most` that it may have in the end. Gives how
    /// many it can.
    #[inline]
    pub fn reserve(&mut self, bytes: usize, most: usize) -> usize {
        if self.begin + bytes <= self.capacity() { bytes } else { self.grow(bytes, most) }
    }

    #[cold]
    fn grow(&mut self, bytes: usize, most: usize) -> usize {
        let begin = self.begin;
        match &mut self.memory {
            Memory::Private(memory) => {
                if bytes > GROWS_TO {
                    // At once: to grow by and by would copy all to fresh pages each time.
                    memory.reserve_exact(begin + most - memory.len());
                }
                bytes
            }
            Memory::Shared { journal, number, capacity, .. } => {
                let wanted = match bytes > GROWS_TO {
                    true => begin + most,
                    false => (begin + bytes).next_power_of_two(),
                };
                let wanted = wanted.next_multiple_of(PAGE).min(BUFFER_MAX);
                if wanted > *capacity
                    && journal.allocate(data_of(*number) + *capacity, wanted - *capacity)
                {
                    *capacity = wanted;
                }
                bytes.min(*capacity - begin)
            }
        }
    }

    /// Adds bytes, for which there is room.
    #[inline]
    pub fn extend(&mut self, more: &[u8]) {
        match &mut self.memory {
            Memory::Private(bytes) => bytes.extend_from_slice(more),
            Memory::Shared { part, capacity, .. } => {
                assert!(self.end + more.len() <= *capacity, "there is room for the bytes");
                part.put(self.end, more);
            }
        }
        self.end += more.len();
        self.publish();
    }

    /// The store has the first so many bytes.
    pub fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
        self.publish();
    }

    /// Takes the last bytes back, as if they had never come.
    pub fn truncate(&mut self, bytes: usize) {
        self.end = self.begin + bytes;
        if let Memory::Private(memory) = &mut self.memory {
            memory.truncate(self.end);
        }
        self.publish();
    }

    /// The store has all of it, or nobody needs it.
    pub fn clear(&mut self) {
        (self.begin, self.end) = (0, 0);
        if let Memory::Private(bytes) = &mut self.memory {
            bytes.clear();
        }
        self.publish();
    }

    #[inline]
    fn publish(&mut self) {
        if let Memory::Shared { journal, number, .. } = &self.memory {
            let range = journal.range(*number);
            let place = range.load(Ordering::Relaxed) & SECOND_PLACE;
            range.store(range_word(self.begin, self.end) | place, Ordering::Release);
        }
    }
}

/// Where the bytes of a buffer lie in the memory.
fn data_of(buffer: usize) -> usize {
    DATA_FROM + buffer * BUFFER_MAX
}

#[inline]
fn range_word(begin: usize, end: usize) -> u64 {
    (begin as u64) << 32 | end as u64
}

/// Begin and end; `None` if they are not in order, or past `most`.
fn range_of(word: u64, most: usize) -> Option<(usize, usize)> {
    let (begin, end) = ((word >> 32) as usize, word as u32 as usize);
    (begin <= end && end <= most).then_some((begin, end))
}

/// A segment of the log set, as a number.
fn pack(segment: &SegmentRef) -> u64 {
    u64::from(segment.stream) << 48 | u64::from(segment.backend) << 32 | u64::from(segment.segment)
}

fn unpack(set: u32, word: u64) -> SegmentRef {
    let (stream, backend) = ((word >> 48) as u16, (word >> 32) as u16);
    match backend == SegmentRef::BASE.backend {
        true => SegmentRef::BASE,
        false => SegmentRef { set, stream, segment: word as u32, backend },
    }
}

/// What was done to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// A run of pieces was pushed.
    Push(Run),
    /// All that was pushed is whole.
    Seal,
    /// Bytes of what was pushed lie elsewhere.
    Relocate { from: (u32, u64), length: u64, to: (u32, u64) },
    /// A record was put there as it is,
    Put(Run),
    /// which recurs like this: said before it.
    Repeat([Repeat; 2]),
}

const PUSH: u32 = 1;
const PUSH_HOLE: u32 = 2;
const SEAL: u32 = 3;
const RELOCATE: u32 = 4;
const PUT: u32 = 5;
const PUT_HOLE: u32 = 6;
const REPEAT: u32 = 7;

/// A folder whose acts a journal has, if there is one.
#[derive(Debug, Default)]
pub struct Records {
    folder: Folder,
    entries: Option<Entries>,
    /// The last stamp that a record was given.
    stamp: u64,
}

/// The entries of a journal, for the writer.
#[derive(Debug)]
struct Entries {
    journal: Arc<Journal>,
    part: Part,
    begin: usize,
    end: usize,
    /// The last entry, if the next write may go on with it: pieces, what their segment is, and
    /// their stamp.
    last: Option<(Run, u64, u64)>,
    allocated: usize,
    /// There is little room, and no memory for more.
    is_due: bool,
    folded: u64,
}

/// What of the records a commit takes: up to which entry, and how often the journal had been
/// [folded](Records::fold) then.
#[derive(Clone, Copy, Debug)]
pub struct TakenTo(usize, u64);

impl Records {
    /// None yet.
    pub fn new(journal: Option<Arc<Journal>>) -> Records {
        let entries = journal.and_then(|journal| {
            let (allocated, last) = (plain::lock(&journal.has).entries, None);
            let part = journal.memory.take(ENTRIES_FROM, ENTRY_BYTES * ENTRIES_MAX)?;
            Some(Entries {
                journal,
                part,
                begin: 0,
                end: 0,
                last,
                allocated,
                is_due: false,
                folded: 0,
            })
        });
        Records { folder: Folder::new(), entries, stamp: 0 }
    }

    /// [`Folder::push_run`]; `at` is what the run's segment number means.
    #[inline]
    pub fn push_run(&mut self, run: Run, at: &SegmentRef, stamp: impl FnMut() -> u64) {
        self.folder.push_run(run, noted(&mut self.stamp, stamp));
        if let Some(entries) = &mut self.entries
            && !entries.goes_on(&run, pack(at), self.stamp)
        {
            entries.add(Act::Push(run), (pack(at), 0), self.stamp);
        }
    }

    /// [`Folder::seal`].
    pub fn seal(&mut self, stamp: impl FnMut() -> u64) {
        if self.folder.is_empty() {
            return;
        }
        self.folder.seal(noted(&mut self.stamp, stamp));
        self.add(Act::Seal, 0, 0);
    }

    /// [`Folder::relocate`]; `at` is what the segment numbers mean.
    pub fn relocate(
        &mut self,
        from: (u32, u64),
        length: u64,
        to: (u32, u64),
        at: (&SegmentRef, &SegmentRef),
        stamp: impl FnMut() -> u64,
    ) {
        self.folder.relocate(from, length, to, noted(&mut self.stamp, stamp));
        self.add(Act::Relocate { from, length, to }, pack(at.0), pack(at.1));
    }

    /// [`Folder::len`].
    pub fn len(&self) -> usize {
        self.folder.len()
    }

    /// [`Folder::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.folder.is_empty()
    }

    /// Says in the journal what there is, instead of how it came to be; before that `frozen`, which
    /// was taken and is not committed. `at` says what segment numbers mean. For a journal that is
    /// [due](Records::is_due), if the records are few.
    pub fn fold(&mut self, frozen: &[Stamped], at: impl Fn(u32) -> SegmentRef) {
        let Some(entries) = &mut self.entries else { return };
        if self.folder.len() + frozen.len() > entries.allocated / FOLDS_TO_PART {
            return;
        }
        let now = self.folder.clone().take(|| self.stamp);
        let segment_of = |run: &Run| if run.segment == HOLE { 0 } else { pack(&at(run.segment)) };
        let entry = |item: &Stamped| {
            let repeat = encode(Act::Repeat(item.repeat), (0, 0), 0);
            let put = encode(Act::Put(item.run), (segment_of(&item.run), 0), item.stamp);
            [repeat, put]
        };
        let all: Vec<_> = frozen.iter().chain(&now).flat_map(entry).collect();
        entries.replace(&all);
    }

    /// Whether the journal has room for little more: a commit makes room.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.is_due)
    }

    /// [`Folder::take`]. The journal has them until they are [committed](Records::committed).
    pub fn take(&mut self, stamp: impl FnMut() -> u64) -> Vec<Stamped> {
        if self.folder.is_empty() {
            return Vec::new();
        }
        let taken = self.folder.take(noted(&mut self.stamp, stamp));
        self.add(Act::Seal, 0, 0);
        taken
    }

    /// As far as everything was [taken](Records::take) now.
    pub fn taken_to(&self) -> TakenTo {
        self.entries.as_ref().map_or(TakenTo(0, 0), |entries| TakenTo(entries.end, entries.folded))
    }

    /// The logs have what was taken up to there.
    pub fn committed(&mut self, to: TakenTo) {
        let Some(entries) = &mut self.entries else { return };
        if to.1 != entries.folded {
            // It says them together with what came after: until the next commit it says too much.
            return;
        }
        entries.begin = to.0;
        if entries.begin == entries.end {
            (entries.begin, entries.end) = (0, 0);
            entries.last = None;
        }
        entries.is_due &= entries.is_nearly_full();
        entries.publish();
    }

    fn add(&mut self, act: Act, at: u64, to: u64) {
        if let Some(entries) = &mut self.entries {
            entries.add(act, (at, to), self.stamp);
        }
    }
}

/// `stamp`, which takes note of each that it gives.
#[inline]
fn noted(last: &mut u64, mut stamp: impl FnMut() -> u64) -> impl FnMut() -> u64 {
    move || {
        *last = stamp();
        *last
    }
}

impl Entries {
    /// So that other threads find room until a commit is done.
    #[inline]
    fn is_nearly_full(&self) -> bool {
        self.end >= self.allocated / 4 * 3
    }

    fn grow(&mut self) -> bool {
        let more = (3 * self.allocated).min(ENTRIES_MAX - self.allocated);
        let from = ENTRIES_FROM + self.allocated * ENTRY_BYTES;
        let has_grown = more > 0 && self.journal.allocate(from, more * ENTRY_BYTES);
        if has_grown {
            self.allocated += more;
            plain::lock(&self.journal.has).entries = self.allocated;
        }
        has_grown
    }

    #[inline(never)]
    fn add(&mut self, act: Act, (at, to): (u64, u64), stamp: u64) {
        if self.end == self.allocated {
            // Other threads were faster than the commit that makes room. Who writes this waits for
            // one, which takes it, too.
            self.is_due = true;
            return;
        }
        let entry = encode(act, (at, to), stamp);
        self.part.put(self.end * ENTRY_BYTES, &entry);
        self.end += 1;
        self.publish();
        self.last = match act {
            Act::Push(run) if run.segment != HOLE => Some((run, at, stamp)),
            _ => None,
        };
        if !self.is_due && self.is_nearly_full() {
            self.is_due = !self.grow();
        }
    }

    /// Makes the last entry say the write, too, if that goes on with it. What counts is one store.
    #[inline]
    fn goes_on(&mut self, run: &Run, at: u64, stamp: u64) -> bool {
        let Some((last, of, then)) = &mut self.last else { return false };
        let may = run.count == 1
            && (*of, *then, last.segment) == (at, stamp, run.segment)
            && last.physical + last.bytes() == run.physical;
        if !may {
            return false;
        }
        let entry = (self.end - 1) * ENTRY_BYTES;
        if last.count == 1 && last.logical + last.length == run.logical {
            last.length += run.length;
            self.part.put_word(entry + LENGTH_AT, last.length);
            return true;
        }
        // Offsets are at most 2^63-1, so the difference fits.
        let distance = run.logical as i64 - last.logical as i64;
        let is_next = match last.count {
            1 => distance.unsigned_abs() >= last.length,
            u32::MAX => false,
            count => i128::from(distance) == i128::from(count) * i128::from(last.stride),
        };
        if !is_next || last.length != run.length {
            return false;
        }
        if last.count == 1 {
            // Nobody looks at it as long as there is one.
            last.stride = distance;
            self.part.put_word(entry + STRIDE_AT, distance as u64);
        }
        last.count += 1;
        self.part.put_word(entry + COUNT_AT, count_and_kind(last.count, PUSH));
        true
    }

    /// These instead of all that there are.
    fn replace(&mut self, all: &[[u8; ENTRY_BYTES]]) {
        // To where none count: behind all, and then in front, if there was no room before.
        if self.begin < all.len() && !self.put_all(self.end, all) {
            return;
        }
        if self.begin >= all.len() {
            self.put_all(0, all);
        }
        self.folded += 1;
        self.is_due = self.is_nearly_full();
    }

    fn put_all(&mut self, at: usize, all: &[[u8; ENTRY_BYTES]]) -> bool {
        if at + all.len() > self.allocated {
            return false;
        }
        self.part.put(at * ENTRY_BYTES, all.as_flattened());
        (self.begin, self.end, self.last) = (at, at + all.len(), None);
        self.publish();
        true
    }

    #[inline]
    fn publish(&self) {
        let range = range_word(self.begin, self.end);
        self.journal.memory.word(ENTRIES_RANGE_AT).store(range, Ordering::Release);
    }
}

fn count_and_kind(count: u32, kind: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(count)
}

/// An entry: logical offset, length, stride, physical offset, stamp, segment, the segment that
/// bytes were moved to, count, act. Of those that were moved the logical offset has where to.
#[inline]
fn encode(act: Act, (at, to): (u64, u64), stamp: u64) -> [u8; ENTRY_BYTES] {
    let (kind, run, to) = match act {
        Act::Push(run) if run.segment == HOLE => (PUSH_HOLE, run, 0),
        Act::Push(run) => (PUSH, run, 0),
        Act::Seal => (SEAL, Run::single(0, 1, 0, 0), 0),
        Act::Relocate { from, length, to: (_, physical) } => {
            (RELOCATE, Run::single(physical, length, 0, from.1), to)
        }
        Act::Put(run) if run.segment == HOLE => (PUT_HOLE, run, 0),
        Act::Put(run) => (PUT, run, 0),
        Act::Repeat([rows, planes]) => {
            let run = Run {
                logical: rows.stride as u64,
                length: u64::from(rows.count),
                stride: planes.stride,
                count: planes.count,
                segment: 0,
                physical: 0,
            };
            (REPEAT, run, 0)
        }
    };
    let last = count_and_kind(run.count, kind);
    let Run { logical, length, stride, physical, .. } = run;
    let numbers = [logical, length, stride as u64, physical, stamp, at, to, last];
    let mut entry = [0; ENTRY_BYTES];
    for (place, number) in entry.as_chunks_mut().0.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
    entry
}

/// What a dead writer has left.
#[derive(Debug)]
pub(super) struct Left {
    journal: Arc<LockedMemory>,
    /// What its records have as their writer.
    pub writer: u32,
    /// Bytes, with their places.
    pub bytes: Vec<(SegmentRef, u64, Vec<u8>)>,
    /// What the segment numbers of the records mean.
    pub segments: Vec<SegmentRef>,
    pub records: Vec<Stamped>,
}

impl Left {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.bytes.is_empty()
    }

    /// The logs have it.
    pub fn remove(&self) {
        // First: who dies in between has said it twice otherwise, which does no harm.
        self.journal.word(ENTRIES_RANGE_AT).store(0, Ordering::Release);
        self.journal.remove();
    }
}

/// What becomes of a journal that somebody looks at.
#[derive(Debug)]
pub(super) enum Found {
    /// There is none.
    None,
    /// Its writer lives.
    Held,
    /// Its writer is dead.
    Left(Left),
    /// It is of no use: of another tenancy, or damaged. It was removed.
    Void,
}

/// Looks at a journal of log set `set` in the tenancy `nonce`.
pub(super) fn inherit(path: &Path, uid: u32, set: u32, nonce: u64) -> Result<Found> {
    let memory = match LockedMemory::inherit(path, uid)? {
        Inherited::Nothing => return Ok(Found::None),
        Inherited::Held => return Ok(Found::Held),
        Inherited::Left(memory) => Arc::new(memory),
    };
    let is_ours = memory.len() >= ENTRIES_FROM
        && memory.word(MAGIC_AT).load(Ordering::Acquire) == MAGIC
        && memory.word(NONCE_AT).load(Ordering::Relaxed) == nonce;
    let left = if is_ours { replay(&memory, set) } else { None };
    match left {
        Some(left) => Ok(Found::Left(left)),
        None => {
            memory.remove();
            Ok(Found::Void)
        }
    }
}

/// `None`: it is damaged.
fn replay(memory: &Arc<LockedMemory>, set: u32) -> Option<Left> {
    let Replayed { segments, records, moved } = replay_entries(memory, set)?;
    let mut bytes = Vec::new();
    for buffer in 0..BUFFERS {
        let words = BUFFERS_AT + buffer * BUFFER_WORDS;
        let word = memory.word(words + BYTES_RANGE).load(Ordering::Acquire);
        let (begin, end) = range_of(word & !SECOND_PLACE, BUFFER_MAX)?;
        if begin == end {
            continue;
        }
        let part = memory.take(data_of(buffer), end)?;
        let place = words + PLACES[usize::from(word & SECOND_PLACE != 0)];
        let segment = memory.word(place).load(Ordering::Relaxed);
        let first = memory.word(place + 8).load(Ordering::Relaxed);
        let mut at = (segment, first.wrapping_add(begin as u64));
        // The entry was written and the place was not.
        if let Some((_, to)) = moved.iter().rev().find(|(from, _)| *from == at) {
            at = *to;
        }
        at.1.checked_add((end - begin) as u64).filter(|end| *end <= plfs_format::MAX_OFFSET)?;
        bytes.push((unpack(set, at.0), at.1, part.bytes(begin, end - begin).to_vec()));
    }
    let writer = memory.word(WRITER_AT).load(Ordering::Relaxed) as u32;
    Some(Left { journal: memory.clone(), writer, bytes, segments, records })
}

/// What entries come to.
struct Replayed {
    segments: Vec<SegmentRef>,
    records: Vec<Stamped>,
    /// From where to where bytes were moved: segments as numbers, and offsets.
    moved: Vec<((u64, u64), (u64, u64))>,
}

fn replay_entries(memory: &Arc<LockedMemory>, set: u32) -> Option<Replayed> {
    let word = memory.word(ENTRIES_RANGE_AT).load(Ordering::Acquire);
    let (begin, end) = range_of(word, ENTRIES_MAX)?;
    let part = memory.take(ENTRIES_FROM, end * ENTRY_BYTES)?;
    let (mut folder, mut segments, mut moved) = (Folder::new(), Vec::<SegmentRef>::new(), vec![]);
    let mut number_of = |word: u64| {
        let at = unpack(set, word);
        let number = segments.iter().rposition(|known| *known == at);
        number.unwrap_or_else(|| {
            segments.push(at);
            segments.len() - 1
        }) as u32
    };
    let (mut last, mut repeat) = (0, [Repeat::ONCE; 2]);
    for i in begin..end {
        let entry = part.bytes(i * ENTRY_BYTES, ENTRY_BYTES);
        let number = |i: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&entry[8 * i..8 * i + 8]);
            u64::from_le_bytes(bytes)
        };
        let (stamp, at, to) = (number(4), number(5), number(6));
        let (count, kind) = (number(7) as u32, (number(7) >> 32) as u32);
        let mut run = Run {
            logical: number(0),
            length: number(1),
            stride: number(2) as i64,
            count,
            segment: 0,
            physical: number(3),
        };
        if count == 1 && kind != REPEAT {
            // Its process died before it said that there are two.
            run.stride = 0;
        }
        last = last.max(stamp);
        match kind {
            PUSH | PUSH_HOLE | PUT | PUT_HOLE if !run.is_valid() => return None,
            PUSH => {
                run.segment = number_of(at);
                folder.push_run(run, || stamp);
            }
            PUSH_HOLE => {
                run.segment = HOLE;
                folder.push_run(run, || stamp);
            }
            SEAL => folder.seal(|| stamp),
            RELOCATE => {
                let (from, to) = ((at, run.physical), (to, run.logical));
                let to_number = number_of(to.0);
                folder.relocate((number_of(at), from.1), run.length, (to_number, to.1), || stamp);
                moved.push((from, to));
            }
            REPEAT => {
                let rows = Repeat { stride: run.logical as i64, count: run.length as u32 };
                repeat = [rows, Repeat { stride: run.stride, count: run.count }];
            }
            PUT | PUT_HOLE => {
                run.segment = if kind == PUT { number_of(at) } else { HOLE };
                let Run { logical, length, stride, count, physical, .. } = run;
                let repeat = std::mem::replace(&mut repeat, [Repeat::ONCE; 2]);
                nest_end(logical, length, stride, count, physical, repeat)?;
                folder.put(Stamped { run, repeat, stamp }, || stamp);
            }
            _ => return None,
        }
    }
    let records = folder.take(|| last);
    Some(Replayed { segments, records, moved })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SET: u32 = 7;
    const NONCE: u64 = 11;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn journal(path: &Path) -> Arc<Journal> {
        Arc::new(Journal::create(path, 0, me(), (NONCE, 3), 1 << 30).unwrap())
    }

    fn path() -> PathBuf {
        PathBuf::from(format!("/dev/shm/plfs-test-journal-{:016x}", random_u64()))
    }

    fn left(path: &Path) -> Left {
        match inherit(path, me(), SET, NONCE).unwrap() {
            Found::Left(left) => left,
            other => panic!("{other:?}"),
        }
    }

    fn at(number: u32) -> SegmentRef {
        SegmentRef { set: SET, stream: 5, segment: 100 + number, backend: 2 }
    }

    /// Where each byte lies by these records, the last in their order.
    fn bytes(
        records: &[Stamped],
        segment: impl Fn(u32) -> SegmentRef,
    ) -> BTreeMap<u64, (u64, Option<(SegmentRef, u64)>)> {
        let mut all = BTreeMap::new();
        let mut in_order: Vec<_> = records.iter().collect();
        in_order.sort_by_key(|item| item.stamp);
        for item in in_order {
            for run in item.each() {
                for i in 0..run.bytes() {
                    let (piece, rest) = (i / run.length, i % run.length);
                    let logical = run.logical as i64 + piece as i64 * run.stride + rest as i64;
                    let lies =
                        (run.segment != HOLE).then(|| (segment(run.segment), run.physical + i));
                    all.insert(logical as u64, (item.stamp, lies));
                }
            }
        }
        all
    }

    /// A writer does all that a writer may do, in any order, and dies: what its heir finds is what
    /// it had and had not committed, byte for byte, with the same stamps. Some commits end in the
    /// death: then the heir says again what the log has.
    #[test]
    fn an_heir_has_what_the_writer_had() {
        let seed = random_u64();
        println!("seed {seed}");
        let mut state = seed | 1;
        let mut below = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % n
        };
        let (mut folds, mut dues) = (0, 0);
        // One of 50 seeds has no fold in 200 rounds.
        let mut rounds = 0;
        while rounds < 200 || folds == 0 && rounds < 2000 {
            rounds += 1;
            let path = path();
            let mut records = Records::new(Some(journal(&path)));
            let (mut frozen, mut taken) = (Vec::<Stamped>::new(), None);
            // What was taken is with the store, and does not move.
            let (mut clock, mut physical, mut stored) = (0, [0; 3], 0);
            let most = if below(10) == 0 { 40_000 } else { 300 };
            let acts = 1 + below(most);
            let (is_regular, step) = (below(2) == 0, 3 + below(2) * 7);
            for act in 0..acts {
                let mut stamp = || {
                    clock += 1;
                    clock
                };
                match below(100) {
                    0 => records.seal(stamp),
                    1 => {
                        frozen.extend(records.take(stamp));
                        taken = Some((frozen.len(), records.taken_to()));
                        stored = physical[0];
                    }
                    2 => {
                        if let Some((count, to)) = taken.take() {
                            frozen.drain(..count);
                            records.committed(to);
                        }
                    }
                    3 if physical[0] > stored + 100 => {
                        let from = stored + below(physical[0] - stored - 50);
                        let length = 1 + below(50);
                        let to = (1, physical[1]);
                        records.relocate((0, from), length, to, (&at(0), &at(1)), stamp);
                        physical[1] += length;
                    }
                    4 => {
                        let hole = Run::single(below(4000), 1 + below(100), HOLE, 0);
                        let hole = Run { physical: hole.logical, ..hole };
                        records.push_run(hole, &SegmentRef::BASE, stamp);
                    }
                    _ => {
                        let segment = if is_regular { 0 } else { below(3) as u32 };
                        let length = if is_regular { 3 } else { 1 + below(9) };
                        let count = if below(20) == 0 { 1 + below(5) as u32 } else { 1 };
                        let stride = if count == 1 { 0 } else { 10 };
                        let from = &mut physical[segment as usize];
                        let logical = if is_regular { act % 1000 * step } else { below(4000) };
                        let run = Run { logical, length, stride, count, segment, physical: *from };
                        *from += run.bytes();
                        records.push_run(run, &at(segment), &mut stamp);
                    }
                }
                if records.is_due() {
                    records.fold(&frozen, at);
                    folds += u64::from(!records.is_due());
                    dues += 1;
                }
                if records.is_due() {
                    // As the writer does then: it commits.
                    let mut stamp = || {
                        clock += 1;
                        clock
                    };
                    records.take(&mut stamp);
                    frozen.clear();
                    taken = None;
                    records.committed(records.taken_to());
                }
            }
            let mut has = frozen.clone();
            has.extend(records.folder.clone().take(|| clock + 1));
            drop(records);
            let left = left(&path);
            let (has, found) =
                (bytes(&has, at), bytes(&left.records, |number| left.segments[number as usize]));
            for (byte, has) in &has {
                assert_eq!(found.get(byte).map(|found| found.1), Some(has.1), "byte {byte}");
            }
            left.remove();
            assert!(matches!(inherit(&path, me(), SET, NONCE).unwrap(), Found::None));
        }
        assert!(folds > 0, "{folds} of {dues} folded");
    }

    /// What is in a buffer comes with its place, and what was moved with the other one, whether the
    /// writer died before or after the buffer said so.
    #[test]
    fn an_heir_has_the_bytes_that_the_store_does_not_have() {
        for is_moved in [false, true] {
            let path = path();
            let journal = journal(&path);
            let mut records = Records::new(Some(journal.clone()));
            let mut buffer = Buffer::of(&journal).unwrap();
            buffer.begin_at(&at(0), 1000);
            assert_eq!(buffer.reserve(8, 1 << 18), 8);
            buffer.extend(b"abcdefgh");
            buffer.consume(2);
            buffer.truncate(5);
            records.push_run(Run::single(50, 7, 0, 1000), &at(0), || 1);
            records.relocate((0, 1002), 5, (1, 70), (&at(0), &at(1)), || 2);
            if is_moved {
                buffer.move_to(&at(1), 70);
            }
            drop((buffer, records, journal));
            let left = left(&path);
            assert_eq!(left.bytes, [(at(1), 70, b"cdefg".to_vec())]);
            let found = bytes(&left.records, |number| left.segments[number as usize]);
            assert_eq!(found[&51].1, Some((at(0), 1001)));
            assert_eq!(found[&52].1, Some((at(1), 70)));
            left.remove();
        }
    }

    /// Whatever is in a journal, nothing is read or written that is not in it, and a journal of
    /// another tenancy is nobody's.
    #[test]
    fn what_is_no_journal_is_void() {
        let path = path();
        let damage = |word: usize, number: u64| {
            let journal = journal(&path);
            let mut records = Records::new(Some(journal.clone()));
            records.push_run(Run::single(50, 7, 0, 1000), &at(0), || 1);
            journal.memory.word(word).store(number, Ordering::SeqCst);
            drop((journal, records));
            let found = inherit(&path, me(), SET, NONCE).unwrap();
            assert!(matches!(found, Found::Void), "{word}: {found:?}");
        };
        damage(MAGIC_AT, 1);
        damage(NONCE_AT, NONCE + 1);
        damage(ENTRIES_RANGE_AT, 1 << 32);
        damage(ENTRIES_RANGE_AT, u64::from(u32::MAX));
        damage(ENTRIES_RANGE_AT, 2);
        damage(BUFFERS_AT + BYTES_RANGE, BUFFER_MAX as u64 + 1);
        damage(BUFFERS_AT + BYTES_RANGE, 1);
    }
}
