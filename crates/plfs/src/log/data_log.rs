//! One process's bytes on their way into a stream: placed in reserved regions, gathered in a
//! buffer, written as large appends.

mod leave;
mod region;
mod segment;

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use plfs_format::name::SegmentRef;
use plfs_index::{Regions, Stretch, Sums};

use self::region::Visit;
use super::LogSet;
use super::flusher::{self, InFlight, Refused, Steered, Target, aside, looks_every, write_behind};
use super::journal::{Buffer, Journal};
use super::log_set::FileName;
use super::steering::Steering;
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::{self, CachedFile, Open, StoreFile};
use crate::sync::Arc;
use crate::sync::plain::atomic::{AtomicUsize, Ordering};

/// How bytes travel on one kind of file system.
#[derive(Clone, Copy, Debug)]
struct Travel {
    /// Writes of this length or more skip the buffer.
    direct_bytes: usize,
    /// Length of a full buffer, a power of two.
    buffer_bytes: usize,
    /// Whether full buffers are written by background threads.
    behind: bool,
}

/// In memory the page cache is the buffer: ours only saves system calls, and should stay in the
/// processor's L2 cache.
const MEMORY: Travel = Travel { direct_bytes: 16 << 10, buffer_bytes: 256 << 10, behind: false };
/// On a local file system as well. But pieces that begin and end anywhere cost the kernel more than
/// a copy of ours: ext4 takes 1.4 times as many pieces of 47,001 bytes a second as aligned appends,
/// for which it has large folios (Linux 6.18).
const LOCAL: Travel = Travel { direct_bytes: 256 << 10, ..MEMORY };
/// On a file system where a write travels, larger is better and the application should not wait. 4
/// MiB: an object of CephFS, a stripe of many Lustre layouts.
const REMOTE: Travel = Travel { direct_bytes: 4 << 20, buffer_bytes: 4 << 20, behind: true };

/// Bytes in the buffers of all data logs of this process, as [counted](DataLog::count).
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The buffer of one data log is counted in steps of this, or a sixteenth of the buffer: threads
/// that write small pieces would take the word from each other.
const COUNTED_BYTES: usize = 16 << 10;

struct Segment {
    at: SegmentRef,
    path: Arc<Path>,
    /// By what the rates of its target are known.
    key: Arc<Path>,
    file: Arc<CachedFile>,
    /// It has been given bytes that the node does not know of yet.
    dirty: bool,
    /// The store has bytes there that were acknowledged.
    has_bytes: bool,
    /// New as long as the node does not know that this process may have made the file.
    file_name: FileName,
}

impl Segment {
    /// The store has bytes there.
    fn holds(&mut self) {
        (self.dirty, self.has_bytes) = (true, true);
    }

    /// The file, opened again if it was closed between two uses.
    fn open(&self, container: &Container) -> Result<Arc<dyn StoreFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let open = |how| match container.store.open(&self.path, how) {
            Err(store::Errno::NOENT) if self.at.backend > 0 => {
                // The backend may have moved.
                let path = container.segment_path(&self.at).map_err(|error| error.errno())?;
                container.store.open(&path, how)
            }
            other => other,
        };
        self.file.get_or_open(|_| open(Open::READ_WRITE)).at("open the data log again", &self.path)
    }
}

/// Bytes that had a place, for which the store had no room there, and that have another one. The
/// records of them say so before they are in any index log.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Index into [`DataLog::segments`], and offset in the segment.
    pub from: (u32, u64),
    /// How many.
    pub length: u64,
    /// The same of the other place.
    pub to: (u32, u64),
    /// What these two segment numbers mean.
    pub segments: (SegmentRef, SegmentRef),
}

/// Whether a log chooses between targets.
enum Steers {
    /// Nobody has looked.
    Unknown,
    /// It has no choice.
    No,
    Yes(Box<Steering>),
}

/// How often somebody looks for room on other backends in one call. Each try makes a segment; a
/// file has few backends.
const TRIES: usize = 16;

/// The data side of one writer. Not shared: its owner locks.
pub struct DataLog {
    container: Arc<Container>,
    set: Arc<LogSet>,
    /// The stream of all its regions, unless there are several targets to choose from.
    stream: u16,
    steering: Steers,
    travel: Travel,
    budget_bytes: usize,
    segments: Vec<Segment>,
    regions: Regions,
    /// The regions are those of a visit to an idle target (steering.rs).
    visit: Option<Visit>,
    /// The region of the last one: its segment, and where it lies there.
    visited: (u32, Range<u64>),
    /// A target has failed: who visits others meets it, who stays at home does not.
    stays_home: bool,
    /// Has what the next buffers are in, if an heir shall find them.
    journal: Option<Arc<Journal>>,
    buffer: Buffer,
    buffer_segment: u32,
    buffer_at: u64,
    /// What of the buffer is in [`HELD_BYTES`], at least.
    counted_bytes: usize,
    /// The store did not take all of the buffer the last time: what is left goes first.
    is_stuck: bool,
    in_flight: Arc<InFlight>,
    /// The backends that may have its segments, if not those that the file has.
    only: Option<Vec<u16>>,
    /// Backends that had no room.
    full: Vec<u16>,
    /// Backends that gave no answer when they were looked for.
    lost: Vec<u16>,
    /// How many targets of backends that have several had none, one after the other.
    full_targets: usize,
    /// All had none: until this time of the machine's clock they are not asked again.
    rests_until: u64,
    /// What has been given to the store since the last [`DataLog::take_sums`]; `None` where nothing
    /// outlasts the machine's power.
    sums: Option<Sums>,
}

/// Where a log has the bytes of a write.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Index into [`DataLog::segments`].
    pub segment: u32,
    /// Offset in the segment.
    pub physical: u64,
    /// Fewer than given only if the store had no room for the rest.
    pub length: u64,
}

/// A place for bytes that the caller writes itself.
pub struct Place {
    /// Index into [`DataLog::segments`].
    pub segment: u32,
    /// Offset in the segment.
    pub physical: u64,
    /// The segment's file.
    pub file: Arc<dyn StoreFile>,
    /// Its path, for messages.
    pub path: Arc<Path>,
}

impl Drop for DataLog {
    fn drop(&mut self) {
        // To close a file may wait for its storage.
        let hangs = self.segments.iter().any(|segment| self.is_fenced(&segment.key));
        if hangs {
            let segments = std::mem::take(&mut self.segments);
            aside(move || drop(segments));
        }
        HELD_BYTES.fetch_sub(self.counted_bytes, Ordering::Relaxed);
    }
}

impl DataLog {
    /// A log that nothing was written to yet; no file is made before the first byte. `budget_bytes`
    /// bounds what may wait for storage.
    pub fn new(container: Arc<Container>, set: Arc<LogSet>, budget_bytes: usize) -> DataLog {
        store::learn_size_limit();
        let sums = container.store.boot(container.root()).map(|_| Sums::default());
        let mut travel = match (container.local, &sums) {
            (true, None) => MEMORY,
            (true, Some(_)) => LOCAL,
            (false, _) => REMOTE,
        };
        // A small budget makes small buffers, so that two fit.
        let most = (budget_bytes / 2).max(4096);
        travel.buffer_bytes = travel.buffer_bytes.min(1 << most.ilog2());
        travel.direct_bytes = travel.direct_bytes.min(travel.buffer_bytes);
        DataLog {
            stream: set.next_stream(),
            steering: Steers::Unknown,
            sums,
            container,
            set,
            travel,
            budget_bytes,
            segments: Vec::new(),
            regions: Regions::default(),
            visit: None,
            visited: (0, 0..0),
            stays_home: false,
            journal: None,
            buffer: Buffer::default(),
            buffer_segment: 0,
            buffer_at: 0,
            counted_bytes: 0,
            is_stuck: false,
            in_flight: Arc::default(),
            only: None,
            full: Vec::new(),
            lost: Vec::new(),
            full_targets: 0,
            rests_until: 0,
        }
    }

    /// A log whose segments lie on these backends, whatever those of the file are.
    pub fn on(
        container: Arc<Container>,
        set: Arc<LogSet>,
        budget_bytes: usize,
        backends: Vec<u16>,
    ) -> DataLog {
        let mut log = DataLog::new(container, set, budget_bytes);
        log.only = Some(backends);
        log
    }

    /// Bytes that the store does not have are in this journal from now on; nothing was written yet.
    /// NOSPC: there is no memory for that.
    pub fn keep_in(&mut self, journal: &Arc<Journal>) -> store::Result<()> {
        (self.buffer, self.journal) = (Buffer::of(journal)?, Some(journal.clone()));
        Ok(())
    }

    /// What a segment number of this log means.
    pub fn segment_at(&self, number: u32) -> SegmentRef {
        self.segments[number as usize].at
    }

    /// What segment numbers of this log mean.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = SegmentRef> + '_ {
        self.segments.iter().map(|segment| segment.at)
    }

    /// Whether a write of `bytes` should skip the buffer: then [`DataLog::place`] it, write, and
    /// record it.
    pub fn is_direct(&mut self, bytes: usize) -> bool {
        if bytes >= MEMORY.direct_bytes {
            self.learn_targets();
        }
        // Where the process holds as much as it may, a copy gains nothing.
        bytes >= self.travel.direct_bytes
            || (!self.travel.behind && bytes >= MEMORY.direct_bytes && self.holds_back_too_much())
    }

    /// Reserves `bytes` in one piece. [`DataLog::wrote`] once they are written.
    pub fn place(&mut self, bytes: u64) -> Result<Place> {
        let (segment, physical) = self.reserve(bytes)?;
        let of = &self.segments[segment as usize];
        let file = of.open(&self.container)?;
        Ok(Place { segment, physical, file, path: of.path.clone() })
    }

    /// Says that the store has bytes that were [placed](DataLog::place) there. Not before: a sync
    /// of another thread that comes first must leave them to the next one. Costs their sum, of
    /// which threads wait for each other less than for the store, where they append to the same
    /// file.
    pub fn wrote(&mut self, place: &Place, bytes: &[u8]) {
        self.segments[place.segment as usize].holds();
        if let Some(sums) = &mut self.sums {
            sums.push(place.segment, place.physical, bytes);
        }
    }

    /// How many bytes the sums take in an index block.
    pub fn sums_bytes(&self) -> usize {
        let behind = if self.travel.behind { self.in_flight.sums_bytes() } else { 0 };
        self.sums.as_ref().map_or(0, Sums::bytes) + behind
    }

    /// Takes the sums of all that has been given to the store since the last time. After a
    /// [flush](DataLog::flush) that is all that was written.
    pub fn take_sums(&mut self) -> Vec<Stretch> {
        self.take_written();
        self.sums.as_mut().map_or(Vec::new(), Sums::take)
    }

    /// Takes note of what threads have given to the store.
    fn take_written(&mut self) {
        let (segments, stretches) = self.in_flight.take_written();
        for number in segments {
            self.segments[number as usize].holds();
        }
        if let Some(sums) = &mut self.sums {
            stretches.into_iter().for_each(|stretch| sums.add(stretch));
        }
    }

    /// Many open files share the budget: past a half of it nobody holds back; the other half may be
    /// on its way.
    fn holds_back_too_much(&self) -> bool {
        HELD_BYTES.load(Ordering::Relaxed) > self.budget_bytes / 2
    }

    /// Counts what the buffer has more, or nothing if it is empty.
    #[inline]
    fn count(&mut self) {
        if self.buffer.len() > self.counted_bytes {
            let step = COUNTED_BYTES.min(self.travel.buffer_bytes / 16);
            let more = (self.buffer.len() - self.counted_bytes).next_multiple_of(step);
            self.counted_bytes += more;
            HELD_BYTES.fetch_add(more, Ordering::Relaxed);
        } else if self.buffer.is_empty() {
            HELD_BYTES.fetch_sub(std::mem::take(&mut self.counted_bytes), Ordering::Relaxed);
        }
    }

    /// Copies `bytes` into the buffer, which goes to storage when it is full. If the store has no
    /// room for it on any backend, what earlier calls gave stays in the buffer, and goes first at
    /// the next call; of `bytes` is taken what the store has, an error if that is nothing. After an
    /// error ask [`DataLog::has_lost`].
    ///
    /// `moved` hears of bytes of earlier calls that have another place than those were told, also
    /// if this one fails; so it is with the other calls that have it.
    #[inline]
    pub fn buffer(&mut self, bytes: &[u8], moved: &mut dyn FnMut(Moved)) -> Result<Placed> {
        let length = bytes.len() as u64;
        let place = match self.travel.behind || self.is_stuck {
            true => None,
            false => self.regions.place_in_current(length),
        };
        if let Some((segment, physical)) = place
            && self.goes_on(segment, physical, bytes.len())
        {
            self.buffer.extend(bytes);
            self.count();
            return Ok(Placed { segment, physical, length });
        }
        self.buffer_slowly(place, bytes, moved)
    }

    /// Whether the buffer takes so many bytes more, which go there, without becoming full.
    #[inline]
    fn goes_on(&self, segment: u32, physical: u64, bytes: usize) -> bool {
        let end = self.buffer_at + self.buffer.len() as u64;
        let left = self.travel.buffer_bytes - (end as usize & (self.travel.buffer_bytes - 1));
        (self.buffer_segment, end) == (segment, physical)
            && bytes < left
            && self.buffer.has_room(bytes)
            && !self.holds_back_too_much()
    }

    /// [`DataLog::buffer`] of bytes that may have their place already.
    fn buffer_slowly(
        &mut self,
        mut place: Option<(u32, u64)>,
        bytes: &[u8],
        moved: &mut dyn FnMut(Moved),
    ) -> Result<Placed> {
        if self.travel.behind {
            self.recall(moved)?;
            self.in_flight.failure()?;
        }
        if self.is_stuck {
            self.write_out(moved)?;
        }
        let mut tries = 0..TRIES;
        loop {
            let (segment, physical) = match place.take() {
                Some(place) => place,
                None => self.reserve(bytes.len() as u64)?,
            };
            let (taken, error) = self.buffer_at(bytes, (segment, physical), moved)?;
            let Some(error) = error else {
                return Ok(Placed { segment, physical, length: taken as u64 });
            };
            // What earlier calls gave goes first. Then all of this one, so that it has one place.
            let goes_on = self.may_go_elsewhere(&error)
                && tries.next().is_some()
                && (self.buffer.is_empty() || self.write_out(moved).is_ok())
                && self.leave(self.segment_at(segment), &error);
            match taken {
                _ if goes_on => {}
                0 => return Err(error),
                _ => return Ok(Placed { segment, physical, length: taken as u64 }),
            }
        }
    }

    /// [`DataLog::buffer`] at a place that is the call's: how much was taken, and why not all.
    fn buffer_at(
        &mut self,
        bytes: &[u8],
        (segment, physical): (u32, u64),
        moved: &mut dyn FnMut(Moved),
    ) -> Result<(usize, Option<Error>)> {
        if !self.buffer.is_empty()
            && (self.buffer_segment, self.buffer_at + self.buffer.len() as u64)
                != (segment, physical)
        {
            self.write_out(moved)?;
        }
        let mut taken = 0;
        while taken < bytes.len() {
            if self.buffer.is_empty() {
                if self.journal.is_none() && !self.buffer.has_memory() {
                    self.buffer = Buffer::private(flusher::spare_buffer());
                }
                (self.buffer_segment, self.buffer_at) = (segment, physical + taken as u64);
                self.buffer.begin_at(&self.segments[segment as usize].at, self.buffer_at);
            }
            // Buffers end at multiples of their size, so that appends become aligned.
            let full = self.travel.buffer_bytes
                - (self.buffer_at as usize & (self.travel.buffer_bytes - 1));
            let wanted = (self.buffer.len() + bytes.len() - taken).min(full);
            let fits = self.buffer.reserve(wanted, full);
            let n = fits - self.buffer.len();
            self.buffer.extend(&bytes[taken..taken + n]);
            self.count();
            taken += n;
            let is_full = fits == full || fits < wanted;
            if (is_full || self.holds_back_too_much())
                && let Err(error) = self.write_buffer()
            {
                let refused = self.buffer.len().min(taken);
                self.buffer.truncate(self.buffer.len() - refused);
                self.count();
                return Ok((taken - refused, Some(error)));
            }
        }
        Ok((taken, None))
    }

    /// The error by which bytes are lost that a call has taken, as far as that is known.
    pub fn check(&self) -> Result<()> {
        match self.travel.behind {
            true => self.in_flight.failure(),
            false => Ok(()),
        }
    }

    /// Whether bytes are lost that a call has taken. If not, a call that failed may be made again.
    pub fn has_lost(&self) -> bool {
        self.in_flight.failure().is_err() || self.failure().is_err()
    }

    /// Hands everything to the store, waits until it has it, and tells the node what is not
    /// durable: records of it may be appended now. After an error ask [`DataLog::has_lost`].
    pub fn flush(&mut self, moved: &mut dyn FnMut(Moved)) -> Result<()> {
        loop {
            self.write_out(moved)?;
            self.in_flight.wait()?;
            if !self.in_flight.has_refused() {
                break;
            }
            self.recall(moved)?;
        }
        self.take_written();
        self.failure()?;
        if self.journal.is_none() {
            // Of many files that are open few are written at a time.
            flusher::keep_buffer(std::mem::take(&mut self.buffer));
        }
        self.in_flight.give_up_spare();
        for segment in self.segments.iter_mut().filter(|segment| segment.dirty) {
            self.set.mark_unsynced(segment.at.stream, segment.at.segment, segment.file_name);
            (segment.dirty, segment.file_name) = (false, FileName::Known);
        }
        Ok(())
    }

    /// Gives what is buffered to `put`, with its place; if that does not take it (false), it stays
    /// for a [flush](DataLog::flush).
    pub fn put_by(
        &mut self,
        put: impl FnOnce(&SegmentRef, FileName, u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        if self.buffer.is_empty() || self.is_stuck {
            return Ok(());
        }
        let segment = &mut self.segments[self.buffer_segment as usize];
        if put(&segment.at, segment.file_name, self.buffer_at, self.buffer.bytes())? {
            segment.file_name = FileName::Known;
            self.buffer.clear();
            self.count();
        }
        Ok(())
    }

    /// Says what closing the data logs would say, where that can be an error.
    pub fn close(&self) -> Result<()> {
        if self.container.local {
            return Ok(());
        }
        let has_bytes = |segment: &&Segment| segment.has_bytes;
        self.segments.iter().filter(has_bytes).try_for_each(|segment| {
            let op = "close the data log";
            let Some(deadline) = self.deadline() else {
                return segment.file.flush().at(op, &segment.path);
            };
            // As long as the target is not given up a flush takes as long as it takes.
            let (file, begun) = (segment.file.clone(), Instant::now());
            aside(move || file.flush())
                .wait(looks_every(deadline), || {
                    begun.elapsed() >= deadline && self.is_fenced(&segment.key)
                })
                .map_or_else(
                    || Err(Error::hangs("close", &segment.path)),
                    |it| it.at(op, &segment.path),
                )
        })
    }

    /// What was said when a data log was closed between two uses, where that can be an error: bytes
    /// that were acknowledged are lost.
    pub fn failure(&self) -> Result<()> {
        if self.container.local {
            return Ok(());
        }
        self.segments
            .iter()
            .try_for_each(|segment| segment.file.failure().at("close the data log", &segment.path))
    }

    /// Hands what is buffered to the store, and gives what to [wait](InFlight::wait) for: a
    /// [flush](DataLog::flush) after it finds little to do.
    pub fn begin_flush(&mut self, moved: &mut dyn FnMut(Moved)) -> Result<Arc<InFlight>> {
        self.write_out(moved)?;
        Ok(self.in_flight.clone())
    }

    /// Hands what is buffered to the store: on another backend, if there is no room.
    fn write_out(&mut self, moved: &mut dyn FnMut(Moved)) -> Result<()> {
        let mut tries = 0..TRIES;
        loop {
            match self.write_buffer() {
                Err(error) if self.may_go_elsewhere(&error) && tries.next().is_some() => {
                    let from = (self.buffer_segment, self.buffer_at);
                    let length = self.buffer.len() as u64;
                    if !self.leave(self.segment_at(from.0), &error) {
                        return Err(error);
                    }
                    let Ok(to) = self.reserve(length) else { return Err(error) };
                    let segments = (self.segment_at(from.0), self.segment_at(to.0));
                    moved(Moved { from, length, to, segments });
                    (self.buffer_segment, self.buffer_at) = to;
                    self.buffer.move_to(&segments.1, to.1);
                }
                other => return other,
            }
        }
    }

    /// Gives what the store has not taken from threads another place, from where they give it to
    /// the store. An error: there is none; it stays for the next call.
    fn recall(&mut self, moved: &mut dyn FnMut(Moved)) -> Result<()> {
        while let Some(refused) = self.in_flight.take_refused() {
            self.write_elsewhere(refused, moved)?;
        }
        Ok(())
    }

    fn write_elsewhere(&mut self, refused: Refused, moved: &mut dyn FnMut(Moved)) -> Result<()> {
        let from = (refused.segment, refused.offset);
        let length = refused.bytes.len() as u64;
        self.stays_home = true;
        let to = match self.leave(self.segment_at(from.0), &refused.error) {
            true => self.reserve(length).ok(),
            false => None,
        };
        let Refused { bytes, error, .. } = refused;
        let (to, may_give_up) = match to {
            Some(to) => {
                let segments = (self.segment_at(from.0), self.segment_at(to.0));
                moved(Moved { from, length, to, segments });
                bytes.move_to(&segments.1, to.1);
                (to, true)
            }
            // Where else is no place either: it is waited for, as a plain file is. The same bytes
            // to the same place do no harm, whichever are there first.
            None if error.is_given_up() => (from, false),
            None => {
                let refused = Refused { segment: from.0, offset: from.1, bytes, error };
                let error = refused.error.clone();
                self.in_flight.put_back(refused);
                return Err(error);
            }
        };
        match self.segments[to.0 as usize].open(&self.container) {
            Ok(file) => {
                self.submit(to, file, bytes, may_give_up);
                Ok(())
            }
            Err(why) => {
                self.in_flight.put_back(Refused { segment: to.0, offset: to.1, bytes, error });
                Err(why)
            }
        }
    }

    /// Has threads give bytes to the store.
    fn submit(
        &mut self,
        to: (u32, u64),
        file: Arc<dyn StoreFile>,
        bytes: Arc<Buffer>,
        may_give_up: bool,
    ) {
        let segment = &self.segments[to.0 as usize];
        let (mut pace, mut steered) = (None, None);
        if let Steers::Yes(steering) = &mut self.steering {
            let is_local = self.container.local;
            let target = steering.rates().target(&segment.key);
            if is_local {
                let length = bytes.len() as u64;
                // The two parts of a visit are less than what is waited for else.
                pace = match self.visited {
                    (segment, ref region) if segment == to.0 && region.contains(&to.1) => {
                        Some((to.1, length))
                    }
                    _ => steering.gather(to.0, to.1, length),
                };
            }
            steered = target.map(|target| Steered {
                rates: steering.rates().clone(),
                target,
                is_measure: !is_local || pace.is_some(),
                deadline: self.container.deadline.filter(|_| may_give_up),
                others: steering.targets().clone(),
                set: Arc::downgrade(&self.set),
            });
        }
        let target = Target {
            file,
            path: segment.path.clone(),
            segment: to.0,
            has_choice: self.has_choice(),
            offset: to.1,
            has_sums: self.sums.is_some(),
            pace,
            steered,
        };
        write_behind(target, bytes, &self.in_flight, self.budget_bytes / 2);
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.is_stuck = !self.buffer.is_empty();
        if !self.is_stuck {
            return Ok(());
        }
        let segment = &self.segments[self.buffer_segment as usize];
        let (file, key, path) =
            (segment.open(&self.container)?, segment.key.clone(), segment.path.clone());
        let next = match &self.journal {
            _ if !self.travel.behind => None,
            Some(journal) => self.in_flight.next_of(journal),
            None => Some(Buffer::private(self.in_flight.spare())),
        };
        if let Some(next) = next {
            let bytes = std::mem::replace(&mut self.buffer, next);
            self.is_stuck = false;
            self.count();
            self.submit((self.buffer_segment, self.buffer_at), file, Arc::new(bytes), true);
            self.reconsider();
            return Ok(());
        }
        let op = "write the data log";
        while !self.buffer.is_empty() {
            let there = self.buffer.bytes();
            let (at, to) = (self.buffer_at, file.clone());
            let written = match self.deadline_at(&key) {
                None => store::write_some(file.as_ref(), there, at).at(op, &path)?,
                Some(_) => {
                    let (there, name) = (there.to_vec(), path.clone());
                    self.in_time(&key, (op, &path), move || {
                        store::write_some(to.as_ref(), &there, at).at(op, &name)
                    })?
                }
            };
            if let Some(sums) = &mut self.sums {
                sums.push(self.buffer_segment, self.buffer_at, &self.buffer.bytes()[..written]);
            }
            self.segments[self.buffer_segment as usize].holds();
            self.buffer.consume(written);
            self.buffer_at += written as u64;
        }
        self.is_stuck = false;
        self.count();
        Ok(())
    }
}
