//! A node's log set: the one index log and the few data logs that the processes of a node write a
//! container with (docs/decisions/0002).
//!
//! What the processes share are numbers in a page of memory: tails of the streams, the hybrid
//! logical clock, the append position. Regions are reserved by one compare-and-swap on a tail;
//! nobody waits for anybody's data. Index blocks are appended under the page's lock, which the
//! kernel releases when its holder dies.

mod eof;

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use plfs_format::clock::{Clock, Covers};
use plfs_format::index_log::{Append, Record, align_up, encode_block};
use plfs_format::mark::Mark;
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::superblock::STREAMS_MAX;
use plfs_index::{REGION_ALIGN, next_region};

pub use eof::Era;

use super::Durability;
use super::index_log::scan;
use crate::config::Config;
use crate::container::Container;
use crate::container::{cover_all, publish, raise_clock, read_clock, wall_clock, write_clock};
use crate::error::{At, Error, Result};
use crate::store::machine::random_u64;
use crate::store::shm::{PageGuard, SharedPage, WORDS};
use crate::store::{self, CachedFile, Errno, Keep, Links, Open, Place, Store, StoreFile};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, Mutex, MutexGuard, Word, lock};

/// An index log longer than this is not taken over: whoever does reads it. 1 MiB: some 5,000 short
/// sessions.
const TAKEOVER_MAX_BYTES: u64 = 1 << 20;

/// Names in a container up to which somebody who comes looks for a log set to take over: some 200
/// log sets. A listing of so many is two calls.
const TAKEOVER_NAMES_MAX: usize = 400;

/// Names in a container from which on its founders are held to be there by their marks: some 64
/// log sets. Linux keeps the locks of a directory in a list, and walks it at each lock and at each
/// close: 0.7 ms for 10,000.
const CROWD_NAMES: usize = 128;

// Places in the shared page. Word 0 is 0 until the owner has set the page up.
const SET: usize = 0;
const CLOCK: usize = 1;
const NEXT_STREAM: usize = 2;
/// The largest stamp of a record of data that a process has begun.
const WRITTEN: usize = 3;
const SYNCED: usize = 4;
const INDEX_NAMED: usize = 5;
/// The nonce of the tenancy.
const NONCE: usize = 6;
/// Stamp of the last truncate that the end of file takes into account.
const CUT: usize = 7;
/// Where the last block that a process of the node appended ends.
const INDEX_END: usize = 8;
/// The index log is durable up to here.
const INDEX_SYNCED: usize = 9;
/// All data that blocks below this offset of the index log point to is durable.
const DATA_DURABLE: usize = 10;
/// A sync of data failed: nobody knows whose bytes are lost.
const SYNC_FAILED: usize = 11;
/// The file's clock covers all commits up to this stamp; 0: as far as the node knows nobody goes by
/// it.
const COVERED: usize = 12;
/// Goes up when a truncate begins and when it ends: odd while one is under way, or where one has
/// failed or its process has died.
const CUTS: usize = 13;
/// How many truncates have counted.
const CUTS_DONE: usize = 14;
/// Stamp of the last O_APPEND write that took its place.
const APPENDED: usize = 15;
/// What [`CLOCK`] was when the last truncate began.
const CUT_SINCE: usize = 16;
/// What [`INDEX_END`] was then: its block lies behind that, if it has one.
const CUT_FROM: usize = 17;
/// Where the file ends; after each truncate that counts it is the next of so many words. What
/// somebody says who has not noticed the truncate is said to a word that counts no more.
const EOFS: usize = 32;
const EOF_WORDS: usize = 32;
const TAILS: usize = EOFS + EOF_WORDS;
/// For each stream what was written and is not durable yet: see [`Unsynced`].
const UNSYNCED: usize = TAILS + STREAMS_MAX as usize;
/// The container's directory: its length, then its bytes. For whoever finds the page of dead
/// processes; length 0 if it is too long.
const DIR: usize = UNSYNCED + STREAMS_MAX as usize;
const _: () = assert!(DIR < WORDS);
/// Word 0 = this bit + the set's number: set 0 is a valid number.
const READY: u64 = 1 << 32;
/// Word 0 = this bit + the set's number, while a process founds the set: if it dies, its mark is
/// found by the nonce.
const FOUNDING: u64 = 1 << 33;
/// A tail is segment << 32 | offset in units of [`REGION_ALIGN`].
const OFFSET_BITS: u32 = 32;

/// Where a stream ends, as a word of the page. `None`: the segment is longer than a tail can say,
/// 16 TiB.
fn pack_tail((segment, offset): (u32, u64)) -> Option<u64> {
    let units = u32::try_from(offset.div_ceil(REGION_ALIGN)).ok()?;
    Some(u64::from(segment) << OFFSET_BITS | u64::from(units))
}

/// Segment and offset.
fn unpack_tail(tail: u64) -> (u32, u64) {
    ((tail >> OFFSET_BITS) as u32, u64::from(tail as u32) * REGION_ALIGN)
}

fn too_long() -> Error {
    Error::invalid(
        Errno::FBIG,
        "a segment of the file's last number is as long as one can be: compact the file",
    )
}

/// What a sync has to do about the name of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileName {
    /// Nothing, unless somebody has said that the file is new.
    Known,
    /// The file is new, and its name perhaps not durable.
    New,
}

/// What the node's processes wrote to a stream and nobody has made durable: a word of the page.
///
/// A process sets it after its bytes are with the store and before an index block points to them.
/// Whoever syncs clears it after the sync, unless it was set anew meanwhile: so nobody finds it
/// clear while another process's sync is still under way, and a process that dies in a sync leaves
/// it set.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Unsynced(u64);

impl Unsynced {
    const SEGMENT_BITS: u32 = 33;
    const NEW_NAME: u64 = 1 << Unsynced::SEGMENT_BITS;
    const TURN: u64 = Unsynced::NEW_NAME << 1;

    /// The lowest segment with such bytes; `None`: all is durable.
    fn first(self) -> Option<u32> {
        (self.0 & (Unsynced::NEW_NAME - 1)).checked_sub(1).map(|first| first as u32)
    }

    /// [`FileName::New`] if that is so of any segment.
    fn file_name(self) -> FileName {
        match self.0 & Unsynced::NEW_NAME {
            0 => FileName::Known,
            _ => FileName::New,
        }
    }

    fn with(self, segment: u32, file_name: FileName) -> Unsynced {
        let first = self.first().map_or(segment, |first| first.min(segment));
        let named = match [file_name, self.file_name()].contains(&FileName::New) {
            true => Unsynced::NEW_NAME,
            false => 0,
        };
        Unsynced(
            (self.0 & !(Unsynced::TURN - 1)).wrapping_add(Unsynced::TURN)
                | named
                | (u64::from(first) + 1),
        )
    }

    fn without(self) -> Unsynced {
        Unsynced(self.0 & !(Unsynced::TURN - 1))
    }
}

enum Shared {
    Page(SharedPage),
    Private(Box<Private>),
}

/// What a process has that shares with nobody.
struct Private {
    words: [Word; WORDS],
    short: Mutex<()>,
    gate: Mutex<()>,
    cut: Mutex<()>,
}

/// Holds a lock of a page or of what stands for one.
#[allow(dead_code, reason = "held for its drop")]
enum Guard<'a> {
    Page(PageGuard<'a>),
    Private(MutexGuard<'a, ()>),
}

impl Shared {
    fn words(&self) -> &[Word; WORDS] {
        match self {
            Shared::Page(page) => page.words(),
            Shared::Private(private) => &private.words,
        }
    }

    /// Where the processes meet, as marks have it; 0 if a process shares with nobody.
    fn place(&self) -> store::Result<u32> {
        match self {
            Shared::Page(page) => page.place().map(|(dev, ino)| Mark::place_of(dev, ino)),
            Shared::Private(_) => Ok(0),
        }
    }

    /// The short lock: one append at a time.
    fn lock(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.lock().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.short))),
        }
    }

    fn gate(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.gate().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.gate))),
        }
    }

    fn cut(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.cut().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.cut))),
        }
    }
}

/// Holds back whoever makes the index log durable, until an append of what is not durable itself is
/// over: see [`LogSet::gate`].
pub struct Gate<'a>(#[allow(dead_code, reason = "held for its drop")] Guard<'a>);

/// This process's membership in its node's log set of one container.
pub struct LogSet {
    container: Arc<Container>,
    shared: Shared,
    set: u32,
    /// Opened by the first append: a node that has nothing to say yet leaves nothing for others to
    /// read.
    index: Arc<CachedFile>,
    index_path: PathBuf,
    /// The mark that says that the node owns the set, and the nonce in it.
    mark_path: PathBuf,
    nonce: u64,
    /// The container's directory on a file system with other clients, to publish through.
    dir: Option<Arc<dyn StoreFile>>,
    /// See [`LogSet::is_of_crowd`].
    is_of_crowd: bool,
}

/// What only the process knows that founded a tenancy.
struct Founder {
    is_of_crowd: bool,
}

impl std::fmt::Debug for LogSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSet")
            .field("set", &self.set)
            .field("index", &self.index_path)
            .finish_non_exhaustive()
    }
}

/// What was known about the container when the process joined.
#[derive(Clone, Copy, Debug)]
pub struct CommitHorizon {
    /// Largest stamp in any index log.
    pub max_hlc: u64,
    /// No set was there to take over.
    pub is_new: bool,
}

/// Whether an old log set that nobody owns will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It will.
    Any,
    /// Only a new one will, unless the node has one already.
    New,
}

impl LogSet {
    /// Joins the node's log set, or founds it: takes over a set that nobody owns, unless a new one
    /// is `wanted`, else makes one.
    ///
    /// `complete` is asked of a set before it is taken over: `None` if nobody may append to it,
    /// else a stamp that none of its blocks exceeds.
    ///
    /// [`Error::CloseToOpen`] where the file must not be written.
    ///
    /// Founding costs a listing and the creation of the open mark (docs/decisions/0009); joining
    /// costs a look at the mark.
    pub fn join(
        container: Arc<Container>,
        config: &Config,
        seen: CommitHorizon,
        wanted: Wanted,
        owner: impl Fn() -> Mark,
        complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
    ) -> Result<LogSet> {
        container.must_be_coherent(config)?;
        let mut shared = share(&container, config)?;
        // Opened before anything is created in it: looking it up afterwards could wait for what we
        // created.
        let dir = (!container.local)
            .then(|| container.store.open(&container.dir, Open::READ))
            .transpose()
            .at("open", &container.dir)?;
        let (set, is_of_crowd) = loop {
            match LogSet::join_locked(&container, &shared, seen, wanted, &owner, &complete)? {
                Some((set, founder)) => {
                    if founder.is_some() {
                        publish(dir.as_deref());
                    }
                    break (set, founder.is_some_and(|founder| founder.is_of_crowd));
                }
                // Whoever still lives there will find out. Nobody else shall meet them.
                None => {
                    if let Shared::Page(page) = &shared {
                        let _guard = page.lock().at("lock the shared page of", &container.dir)?;
                        page.remove();
                    }
                    shared = share(&container, config)?;
                }
            }
        };
        let index_path = container.path(&name::index_log(set));
        let mark_path = container.path(&name::open_mark(set));
        let nonce = shared.words()[NONCE].load(Ordering::SeqCst);
        Ok(LogSet {
            index: CachedFile::for_writing(container.local),
            container,
            shared,
            set,
            index_path,
            mark_path,
            nonce,
            dir,
            is_of_crowd,
        })
    }

    /// Joins or founds with the page's lock held: the set, and what its founder knows. `None` if
    /// the page is that of a tenancy that has ended: processes that do not know yet still reserve
    /// regions of its set by the page's numbers, which must not become another set's.
    fn join_locked(
        container: &Arc<Container>,
        shared: &Shared,
        seen: CommitHorizon,
        wanted: Wanted,
        owner: impl Fn() -> Mark,
        complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
    ) -> Result<Option<(u32, Option<Founder>)>> {
        let _guard = shared.lock().at("lock the shared page of", &container.dir)?;
        let words = shared.words();
        words[CLOCK].fetch_max(seen.max_hlc, Ordering::SeqCst);
        let (state, nonce) =
            (words[SET].load(Ordering::SeqCst), words[NONCE].load(Ordering::SeqCst));
        let is_ours = state & (READY | FOUNDING) != 0
            && read_mark(container, state as u32)?.is_some_and(|mark| mark.nonce == nonce);
        match is_ours {
            true if state & READY != 0 => {
                // Other nodes may have set it since this one came; what cannot be read says nothing
                // to a member, whose node knows its own stamps.
                if let Ok(clock) = read_clock(container) {
                    heed(words, clock);
                }
                return Ok(Some((state as u32, None)));
            }
            // Its founder died before it was done, so nobody else is in the page: we are its heir.
            true => remove_mark(container, state as u32)?,
            false if state & READY != 0 => return Ok(None),
            false => {}
        }
        let (set, founder) = {
            let mark = Mark {
                place: shared
                    .place()
                    .at("stat the directory of shared memory for", &container.dir)?,
                ..owner()
            };
            let claim = |set: u32| {
                words[NONCE].store(mark.nonce, Ordering::SeqCst);
                words[SET].store(FOUNDING | u64::from(set), Ordering::SeqCst);
                claim(container, set, &mark)
            };
            put_dir(words, &container.dir);
            let wanted = if seen.is_new { Wanted::New } else { wanted };
            let Found { set, youngest, is_of_crowd } = found(container, wanted, claim, complete)?;
            // Fenced before the set's directory was there: the set may have been removed, and
            // somebody else's by now.
            if read_mark(container, set)?.is_none_or(|there| there.nonce != mark.nonce) {
                return Err(Error::Fenced { path: container.dir.clone(), set });
            }
            // Only now that the mark is there: who found none takes it that we know.
            let clock = match read_clock(container) {
                // A power cut tore it. Then the logs have to say what it said.
                Err(Error::Corrupt { .. }) => {
                    newest(container).map(|stamp| Clock { stamp, covers: Covers::Begun })
                }
                other => other,
            };
            let clock = clock.or_else(|error| remove_mark(container, set).and(Err(error)))?;
            if is_of_crowd && clock.stamp == 0 {
                // It tells who wants to remove the container that marks count.
                let stamp = words[CLOCK].load(Ordering::SeqCst).max(1);
                write_clock(container, stamp, false)
                    .or_else(|error| remove_mark(container, set).and(Err(error)))?;
            }
            words[CLOCK].fetch_max(youngest.unwrap_or(0), Ordering::SeqCst);
            words[COVERED].store(0, Ordering::SeqCst);
            heed(words, clock);
            words[SYNCED].store(0, Ordering::SeqCst);
            // CUTS goes up for ever, so that it never says again what it said once. Nobody is left
            // to ask what became of a truncate that an earlier tenancy did not end.
            let cuts = words[CUTS].load(Ordering::SeqCst);
            words[CUTS].store(cuts.next_multiple_of(2), Ordering::SeqCst);
            for word in [SYNC_FAILED, INDEX_NAMED, INDEX_END, INDEX_SYNCED, DATA_DURABLE]
                .into_iter()
                .chain([CUT, CUTS_DONE, APPENDED, WRITTEN])
                .chain(EOFS..EOFS + EOF_WORDS)
                .chain(UNSYNCED..DIR)
            {
                words[word].store(0, Ordering::SeqCst);
            }
            let tails = if youngest.is_none() {
                vec![0; container.superblock.streams as usize]
            } else {
                tails(container, set)
                    .or_else(|error| remove_mark(container, set).and(Err(error)))?
            };
            for (stream, tail) in tails.into_iter().enumerate() {
                words[TAILS + stream].store(tail, Ordering::SeqCst);
                // What earlier owners left may not be durable, and the next sync makes durable what
                // points to it.
                let unsynced = match tail {
                    0 => Unsynced(0),
                    _ => Unsynced(0).with(0, FileName::New),
                };
                words[UNSYNCED + stream].store(unsynced.0, Ordering::SeqCst);
            }
            words[SET].store(READY | u64::from(set), Ordering::SeqCst);
            (set, Founder { is_of_crowd })
        };
        Ok(Some((set, Some(founder))))
    }

    /// Sees to it that who goes by the file's clock starts behind `stamp`.
    fn cover(&self, stamp: u64) -> Result<()> {
        let covered = &self.shared.words()[COVERED];
        if covered.load(Ordering::SeqCst) < stamp {
            covered.fetch_max(raise_clock(&self.container, stamp)?, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Makes sure that the node still owned the set when it appended last: [`Error::Fenced`] if
    /// not. To be asked after an append and its syncs, before they are called a success: whoever
    /// fences later finds what was appended. One readlink; on storage that machines share, also a
    /// look for the file's clock, which somebody may have begun to go by since the append began.
    pub fn must_own(&self) -> Result<()> {
        let (store, words) = (&self.container.store, self.shared.words());
        if !self.container.local && words[COVERED].load(Ordering::SeqCst) == 0 {
            let stamp = words[CLOCK].load(Ordering::SeqCst);
            match read_clock(&self.container) {
                Ok(Clock { covers: Covers::Some, .. }) => {}
                // Torn by a power cut: who tore it went by it, perhaps.
                Ok(_) | Err(Error::Corrupt { .. }) => self.cover(stamp)?,
                Err(error) => return Err(error),
            }
        }
        match read_mark(&self.container, self.set)? {
            Some(mark) if mark.nonce == self.nonce => Ok(()),
            // The whole file may have been removed; then there is nothing to own.
            None if store.stat(&self.container.path(name::SUPER), Links::Stay)
                == Err(Errno::NOENT) =>
            {
                Ok(())
            }
            _ => Err(Error::Fenced { path: self.container.dir.clone(), set: self.set }),
        }
    }

    /// This process founded the tenancy in a container of many log sets, which has a clock then:
    /// the mark says that the process is there, and whoever removes the container believes it.
    pub fn is_of_crowd(&self) -> bool {
        self.is_of_crowd
    }

    /// Number of the set.
    pub fn id(&self) -> u32 {
        self.set
    }

    /// The stream that this process shall write: round robin over the node's processes.
    pub fn next_stream(&self) -> u16 {
        let turn = self.shared.words()[NEXT_STREAM].fetch_add(1, Ordering::Relaxed);
        (turn % self.container.superblock.streams as u64) as u16
    }

    /// Reserves `bytes` (rounded up to whole regions of 4 KiB) of a stream for the caller alone:
    /// segment and offset in it.
    pub fn reserve(&self, stream: u16, bytes: u64) -> Result<(u32, u64)> {
        let bytes = bytes.next_multiple_of(REGION_ALIGN);
        let tail = &self.shared.words()[TAILS + stream as usize];
        let mut now = tail.load(Ordering::Relaxed);
        loop {
            let (segment, offset) =
                next_region(unpack_tail(now), bytes, self.container.superblock.segment_bytes);
            let next = pack_tail((segment, offset.saturating_add(bytes))).ok_or_else(too_long)?;
            match tail.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok((segment, offset)),
                Err(other) => now = other,
            }
        }
    }

    /// Takes note of a stamp: later ones of this node will be larger.
    pub fn observe(&self, hlc: u64) {
        self.shared.words()[CLOCK].fetch_max(hlc, Ordering::SeqCst);
    }

    /// Says that this process has given bytes to a segment of a stream, which are not durable. Call
    /// it when the store has them, and before a block points to them.
    pub fn mark_unsynced(&self, stream: u16, segment: u32, file_name: FileName) {
        let set = |now| Some(Unsynced(now).with(segment, file_name).0);
        // The closure never says None, so this never fails.
        let _ = self.shared.words()[UNSYNCED + stream as usize].fetch_update(
            Ordering::SeqCst,
            Ordering::SeqCst,
            set,
        );
    }

    /// Makes durable what any process of the node has given to the set's data logs, as far as it
    /// was [marked](LogSet::mark_unsynced) before the call. Costs a sync for each segment with such
    /// bytes, and none if there are none.
    pub fn sync_data(&self) -> Result<()> {
        let words = self.shared.words();
        if words[SYNC_FAILED].load(Ordering::SeqCst) != 0 {
            // The kernel tells each failure once: a later sync would say that all is well.
            return Err(Error::refused(
                Errno::IO,
                "sync",
                &self.container.dir,
                "an earlier sync of the data failed for a process of this node",
            ));
        }
        let end = words[INDEX_END].load(Ordering::SeqCst);
        for stream in 0..self.container.superblock.streams {
            let word = &words[UNSYNCED + stream as usize];
            let seen = Unsynced(word.load(Ordering::SeqCst));
            let Some(first) = seen.first() else { continue };
            let (last, _) = unpack_tail(words[TAILS + stream as usize].load(Ordering::SeqCst));
            for segment in first..=last {
                self.sync_segment(stream, segment, seen.file_name())?;
            }
            // Set again meanwhile: it stays, for whoever set it.
            let _ =
                word.compare_exchange(seen.0, seen.without().0, Ordering::SeqCst, Ordering::SeqCst);
        }
        words[DATA_DURABLE].fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    fn sync_segment(&self, stream: u16, segment: u32, file_name: FileName) -> Result<()> {
        let at = SegmentRef {
            set: self.set,
            stream,
            segment,
            backend: self.container.backend_of(self.set, stream),
        };
        let path = self.container.segment_path(&at)?;
        let store = &self.container.store;
        match store.open(&path, Open::READ) {
            Ok(file) => {
                if let Err(errno) = file.sync_data() {
                    self.shared.words()[SYNC_FAILED].store(1, Ordering::SeqCst);
                    return Err(errno).at("sync the data log", &path);
                }
            }
            // Reserved by a process that has not made it yet, or died before.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno).at("open the data log", &path),
        }
        if file_name == FileName::New {
            // On the root backend the directories above are the container's, which a sync makes
            // durable; on others they came with the first segment.
            let dirs = if at.backend > 0 { 5 } else { 1 };
            for dir in path.ancestors().skip(1).take(dirs) {
                store.sync_dir(dir).at("sync the directory", dir)?;
            }
        }
        Ok(())
    }

    /// Keeps others from making the index log durable while the result lives. Hold it over an
    /// [append](LogSet::append_index) of a block whose data is not durable: a sync of another
    /// process must not make the block durable without its data. Take it before any lock that
    /// readers or writers of this process need: it waits for a sync that is under way.
    pub fn gate(&self) -> Result<Gate<'_>> {
        self.shared.gate().map(Gate).at("lock the shared page of", &self.container.dir)
    }

    /// Appends one block to the index log; `data` is what its records point to. Gives its stamp and
    /// where it ends.
    pub fn append_index(
        &self,
        segments: &[SegmentRef],
        records: &[Record],
        data: Durability,
    ) -> Result<(u64, u64)> {
        let _short = self.shared.lock().at("lock the shared page of", &self.index_path)?;
        let index = self.index()?;
        let offset = align_up(index.stat().at("stat the index log", &self.index_path)?.len);
        let hlc = self.tick();
        let durable = self.shared.words()[DATA_DURABLE].load(Ordering::SeqCst);
        let is_data_durable = data == Durability::Durable;
        let append = Append { offset, stamp: hlc, durable, is_data_durable };
        let block = encode_block(self.container.log_id(self.set), append, segments, records)
            .map_err(|bad| Error::of_bytes(&self.index_path, bad))?;
        // Before anybody can see the block.
        if self.shared.words()[COVERED].load(Ordering::SeqCst) != 0 {
            self.cover(hlc)?;
        } else if self.container.local && hlc > wall_clock() {
            // Whoever comes from now on goes by the wall clock, which has not come so far.
            write_clock(&self.container, hlc, false)?;
        }
        store::write_full(index.as_ref(), &block, offset)
            .at("append to the index log", &self.index_path)?;
        let end = offset + block.len() as u64;
        self.shared.words()[INDEX_END].store(end, Ordering::SeqCst);
        Ok((hlc, end))
    }

    /// Makes the index log durable up to `end` (u64::MAX: all of it, again), and before it all data
    /// that its blocks point to, whoever of the node wrote them.
    ///
    /// Processes that sync at once wait for each other, and one does it for all that have appended
    /// until then: 128 of them pay for two syncs.
    pub fn sync_index(&self, end: u64) -> Result<()> {
        let _gate = self.gate()?;
        let words = self.shared.words();
        if words[INDEX_SYNCED].load(Ordering::SeqCst) >= end
            && words[INDEX_NAMED].load(Ordering::SeqCst) == 1
        {
            return Ok(());
        }
        // With the gate held, all that comes now has durable data already.
        let upto = words[INDEX_END].load(Ordering::SeqCst);
        self.sync_data()?;
        self.index()?.sync_data().at("sync the index log", &self.index_path)?;
        // Its name too, once: what was found under no name after a power loss would be found by
        // nobody.
        if words[INDEX_NAMED].load(Ordering::SeqCst) == 0 {
            let dir = self.index_path.parent().unwrap_or(&self.container.dir);
            self.container.store.sync_dir(dir).at("sync the directory", dir)?;
            words[INDEX_NAMED].store(1, Ordering::SeqCst);
        }
        words[INDEX_SYNCED].fetch_max(upto, Ordering::SeqCst);
        Ok(())
    }

    /// Says what closing the index log would say, where that can be an error.
    pub fn close_index(&self) -> Result<()> {
        match self.container.local {
            true => Ok(()),
            false => self.index.flush().at("close the index log", &self.index_path),
        }
    }

    fn index(&self) -> Result<Arc<dyn StoreFile>> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let mut is_first = false;
        let open = |was_open: bool| {
            is_first = !was_open;
            let how = if was_open { Open::READ_WRITE } else { Open::create(0o644) };
            self.container.store.open(&self.index_path, how)
        };
        let index = self.index.get_or_open(open).at("open the index log", &self.index_path)?;
        if is_first {
            open_to_readers(&self.container, &self.index_path, index.stat(), 0o644)?;
        }
        Ok(index)
    }

    /// What was said when the index log was closed between two uses, where that can be an error.
    pub fn index_failure(&self) -> Result<()> {
        self.index.failure().at("close the index log", &self.index_path)
    }

    /// Runs `sync`, which makes the container's names durable, unless some process of the node has
    /// done it.
    pub fn sync_names_once(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let synced = &self.shared.words()[SYNCED];
        if synced.load(Ordering::SeqCst) == 0 {
            sync()?;
            synced.store(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The next stamp: at least the wall clock, larger than every stamp seen on this node
    /// (FORMAT.md section 4).
    pub fn tick(&self) -> u64 {
        let wall = wall_clock();
        let clock = &self.shared.words()[CLOCK];
        let mut last = clock.load(Ordering::SeqCst);
        loop {
            // Only bytes that lie have the last stamp there is.
            let next = wall.max(last.saturating_add(1));
            match clock.compare_exchange_weak(last, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return next,
                Err(other) => last = other,
            }
        }
    }

    /// Removes what killed writers of a container left in shared memory. For a container that is
    /// gone.
    pub fn forget_page(container: &Container, dir: &Path) {
        SharedPage::remove_file(&page_path(container, dir));
    }

    /// Leaves the set. True if this was the node's last process: then the open mark is gone and the
    /// caller owes a summary.
    pub fn leave(self) -> Result<bool> {
        if let Shared::Page(page) = &self.shared {
            let _guard = page.lock().at("lock the shared page of", &self.container.dir)?;
            if !page.try_be_last() {
                page.leave();
                return Ok(false);
            }
            // In this order: who dies in between leaves a page whose nonce no mark has, not a mark
            // whose owner nobody knows.
            let left = self.unmark();
            page.remove();
            return left;
        }
        self.unmark()
    }

    fn unmark(&self) -> Result<bool> {
        match self.container.store.unlink(&self.mark_path) {
            Ok(()) => {
                publish(self.dir.as_deref());
                Ok(true)
            }
            // The container was removed, or we were fenced: nothing to sum up for us.
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).at("remove", &self.mark_path),
        }
    }
}

fn share(container: &Container, config: &Config) -> Result<Shared> {
    if let Some(dir) = &config.shared_memory {
        let path = page_path(container, dir);
        let _acting = container.store.act();
        match SharedPage::join(&path, container.store.user()) {
            // Without shared memory a process has a set of its own: slower to read, never wrong. So
            // too if it is full, or something else is in the way.
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::PERM
                | Errno::ROFS
                | Errno::NODEV
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::NOMEM,
            ) => {}
            other => return other.map(Shared::Page).at("share memory through", &path),
        }
    }
    Ok(Shared::Private(Box::new(Private {
        words: [const { Word::new(0) }; WORDS],
        short: Mutex::default(),
        gate: Mutex::default(),
        cut: Mutex::default(),
    })))
}

/// Writes the container's directory into the page.
fn put_dir(words: &[Word; WORDS], dir: &Path) {
    let bytes = dir.as_os_str().as_bytes();
    let room = &words[DIR + 1..];
    if bytes.len() > room.len() * 8 {
        return;
    }
    for (word, chunk) in room.iter().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(value), Ordering::SeqCst);
    }
    words[DIR].store(bytes.len() as u64, Ordering::SeqCst);
}

/// Takes note of what the file's clock says.
fn heed(words: &[Word; WORDS], clock: Clock) {
    words[CLOCK].fetch_max(clock.stamp, Ordering::SeqCst);
    if clock.covers != Covers::Some {
        // Never 0, which says that nobody goes by it.
        words[COVERED].fetch_max(clock.stamp.max(1), Ordering::SeqCst);
    }
}

/// A stamp that no acknowledged commit of the file exceeds, without a look at each log set, if
/// there are so many that it pays: by the file's clock, which is made to say it.
pub fn horizon(container: &Container, config: &Config) -> Result<Option<u64>> {
    match read_clock(container) {
        Ok(Clock { stamp, covers: Covers::All }) => return Ok(Some(stamp)),
        Ok(_) | Err(Error::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let (_, is_whole) = container.list_some(config.asked_names)?;
    if is_whole {
        return Ok(None);
    }
    Ok(cover_all(container, || newest(container))?.map(|clock| clock.stamp))
}

/// The largest stamp of a block in any index log. Reads them all.
fn newest(container: &Container) -> Result<u64> {
    let mut newest = 0;
    for name in container.list()? {
        let Name::LogSet(set) = name else { continue };
        scan(container, set, 0, |_, header, _| {
            newest = newest.max(header.hlc);
            Ok(())
        })?;
    }
    Ok(newest)
}

/// What [`put_dir`] wrote.
fn dir_of(words: &[Word; WORDS]) -> Option<PathBuf> {
    let room = &words[DIR + 1..];
    let len = usize::try_from(words[DIR].load(Ordering::SeqCst))
        .ok()
        .filter(|len| (1..=room.len() * 8).contains(len))?;
    let mut bytes: Vec<u8> = room
        .iter()
        .take(len.div_ceil(8))
        .flat_map(|word| word.load(Ordering::SeqCst).to_le_bytes())
        .collect();
    bytes.truncate(len);
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Whether the processes that shared the page of user `uid` at `path` are all dead; then their mark
/// in the container goes, if it has the nonce of the page, and the page.
///
/// The store has the container; nobody needs to have it open. False also if there is no page, or if
/// the container is not where it was: then a page is removed, and a mark stays.
pub(crate) fn reclaim(store: &dyn Store, path: &Path, uid: u32) -> Result<bool> {
    let heir = |page: &SharedPage| -> Result<()> {
        let words = page.words();
        let (state, nonce) =
            (words[SET].load(Ordering::SeqCst), words[NONCE].load(Ordering::SeqCst));
        if state & (READY | FOUNDING) != 0
            && let Some(dir) = dir_of(words)
            && let Some(root) = root_of_container(&dir)
        {
            let view = store
                .inside(vec![Place { root: root.to_path_buf(), dir: dir.clone() }], Keep::Nothing);
            let store = view.as_deref().unwrap_or(store);
            let mark = dir.join(name::open_mark(state as u32));
            let text = store.readlink(&mark).ok();
            if text
                .as_ref()
                .and_then(|text| text.to_str())
                .and_then(Mark::parse)
                .is_some_and(|mark| mark.nonce == nonce)
            {
                match store.unlink(&mark) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno).at("remove", &mark),
                }
            }
        }
        page.remove();
        Ok(())
    };
    match SharedPage::inherit(path, uid, heir) {
        Ok(Some(done)) => done.map(|()| true),
        // Something that is not the user's page: nobody shares it, and nobody inherits it.
        Ok(None) | Err(Errno::PERM) => Ok(false),
        Err(errno) => Err(errno).at("look at the shared page", path),
    }
}

/// The root of a container's directory; `None` for a directory that is not where containers are,
/// whatever a page says.
fn root_of_container(dir: &Path) -> Option<&Path> {
    let top = dir.ancestors().nth(2)?;
    top.parent().filter(|_| top.file_name().is_some_and(|name| name == name::ROOT_DIR))
}

/// Whether a process lives that shares the page of user `uid` at `path` in the tenancy with this
/// nonce. PERM if something is there that is not the user's page.
pub fn lives(path: &Path, uid: u32, nonce: u64) -> Result<bool> {
    let page = match SharedPage::peek(path, uid) {
        // Another user's: who may not look cannot say that they are dead.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(true),
        other => other.at("look at the shared page", path)?,
    };
    Ok(page.is_some_and(|page| {
        page.words()[NONCE].load(Ordering::SeqCst) == nonce && page.has_members()
    }))
}

/// Where the processes of this node and user meet for a container.
fn page_path(container: &Container, dir: &Path) -> PathBuf {
    page_path_of(container, dir, container.store.user())
}

/// Where the processes of this node and another user meet.
pub(crate) fn page_path_of(container: &Container, dir: &Path, uid: u32) -> PathBuf {
    dir.join(format!("plfs-{uid}-{:x}-{}", container.identity.0, container.superblock.uuid))
}

/// A log set that a process has become the founder of.
struct Found {
    set: u32,
    /// A stamp that none of its blocks exceeds; `None`: it is new.
    youngest: Option<u64>,
    /// The container has many log sets: see [`CROWD_NAMES`].
    is_of_crowd: bool,
}

/// Becomes owner of a set: one without a mark whose index log this user may write, else (or if only
/// that is `wanted`) a new one. Creating the mark exclusively is what makes us the owner.
fn found(
    container: &Container,
    wanted: Wanted,
    own: impl Fn(u32) -> Result<bool>,
    complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
) -> Result<Found> {
    // A file with so many log sets gets no better by a look at all of them for each that comes.
    let (names, is_whole) = match wanted {
        Wanted::Any => container.list_some(TAKEOVER_NAMES_MAX)?,
        Wanted::New => (Vec::new(), true),
    };
    let is_of_crowd = names.len() > CROWD_NAMES;
    let marked: HashSet<&Name> = names.iter().collect();
    for name in names.iter().filter(|_| is_whole) {
        let Name::LogSet(set) = *name else { continue };
        if marked.contains(&Name::OpenMark(set)) || marked.contains(&Name::Fenced(set)) {
            continue;
        }
        let path = container.path(&name::index_log(set));
        let found = match container.store.open(&path, Open::READ_WRITE).and_then(|file| file.stat())
        {
            Ok(stat) => (stat.uid, stat.len),
            // Whoever made the set died before it appended anything.
            Err(Errno::NOENT) => {
                match container.store.stat(&container.path(&name::log_set(set)), Links::Stay) {
                    Ok(dir) => (dir.uid, 0),
                    Err(_) => continue,
                }
            }
            Err(_) => continue,
        };
        let ours = found.0 == container.store.user() && found.1 <= TAKEOVER_MAX_BYTES;
        // The look comes before the mark, because who dies in between leaves a mark whose owner
        // nobody knows.
        if ours
            && let Some(youngest) = complete(container, set)?
            && own(set)?
        {
            // Owned and fenced since the listing: it has had its last owner.
            if is_fenced(container, set) {
                remove_mark(container, set)?;
                continue;
            }
            // It may have gone, or got longer, before it was ours.
            let youngest = match container.store.stat(&path, Links::Follow) {
                Ok(now) if now.len == found.1 => Ok(Some(youngest)),
                Ok(_) => complete(container, set),
                Err(Errno::NOENT) if found.1 == 0 => Ok(container
                    .store
                    .stat(&container.path(&name::log_set(set)), Links::Stay)
                    .is_ok()
                    .then_some(youngest)),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno).at("stat the index log", &path),
            };
            match youngest {
                Ok(Some(youngest)) => {
                    return Ok(Found { set, youngest: Some(youngest), is_of_crowd });
                }
                Ok(None) => remove_mark(container, set)?,
                Err(error) => return remove_mark(container, set).and(Err(error)),
            }
        }
    }
    loop {
        let set = random_u64() as u32;
        if !own(set)? {
            continue;
        }
        if is_fenced(container, set) {
            remove_mark(container, set)?;
            continue;
        }
        let dir = container.path(&name::log_set(set));
        match container.store.mkdir(&dir, 0o755) {
            Ok(()) => {
                open_to_readers(container, &dir, container.store.stat(&dir, Links::Stay), 0o755)?;
                return Ok(Found { set, youngest: None, is_of_crowd });
            }
            Err(Errno::EXIST) => remove_mark(container, set)?,
            Err(errno) => return remove_mark(container, set).and(Err(errno).at("create", &dir)),
        }
    }
}

/// Logs are there for all whom the container's directory lets in; a strict umask must not say
/// otherwise.
pub(super) fn open_to_readers(
    container: &Container,
    path: &Path,
    stat: store::Result<store::Stat>,
    mode: u32,
) -> Result<()> {
    let stat = stat.at("stat", path)?;
    if stat.mode & 0o044 != 0o044 && stat.uid == container.store.user() {
        container.store.chmod(path, mode).at("set the mode of", path)?;
    }
    Ok(())
}

/// Whether a log set has had its last owner. For an owner: a listing from before the creation of
/// its mark may be old.
fn is_fenced(container: &Container, set: u32) -> bool {
    // What cannot be looked at is not gone on with.
    container.store.stat(&container.path(&name::fenced_mark(set)), Links::Stay) != Err(Errno::NOENT)
}

/// Creates the mark of a log set, unless somebody owns the set: whether it did.
pub(crate) fn claim(container: &Container, set: u32, mark: &Mark) -> Result<bool> {
    claim_in(container.store.as_ref(), &container.dir, set, mark)
}

/// [`claim`] in a container's directory on the root backend.
pub(crate) fn claim_in(store: &dyn Store, dir: &Path, set: u32, mark: &Mark) -> Result<bool> {
    let path = dir.join(name::open_mark(set));
    match store.symlink(Path::new(&mark.text()), &path) {
        Ok(()) => Ok(true),
        // A network file system may have repeated the call.
        Err(Errno::EXIST) => {
            Ok(read_mark_in(store, dir, set)?.is_some_and(|there| there.nonce == mark.nonce))
        }
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(Error::Unfit { path, what: "symbolic links" })
        }
        Err(errno) => Err(errno).at("create", &path),
    }
}

/// The mark of a log set. `None` if there is none, or none that this version can read: then the set
/// has an owner of whom nothing is known.
pub(crate) fn read_mark(container: &Container, set: u32) -> Result<Option<Mark>> {
    read_mark_in(container.store.as_ref(), &container.dir, set)
}

fn read_mark_in(store: &dyn Store, dir: &Path, set: u32) -> Result<Option<Mark>> {
    let path = dir.join(name::open_mark(set));
    match store.readlink(&path) {
        Ok(text) => Ok(text.to_str().and_then(Mark::parse)),
        // EINVAL: it is no link.
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno).at("read", &path),
    }
}

pub(crate) fn remove_mark(container: &Container, set: u32) -> Result<()> {
    let path = container.path(&name::open_mark(set));
    match container.store.unlink(&path) {
        // Fenced at once: then it is another's word that counts.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", &path),
    }
}

/// Where each stream of a set goes on: behind the last byte of its last segment.
fn tails(container: &Container, set: u32) -> Result<Vec<u64>> {
    let mut last = vec![None; container.superblock.streams as usize];
    // What lies on a backend that is not there has no record, or the set would not be taken over.
    for dir in container.backend_dirs()? {
        let dir = dir.join(name::log_set(set));
        let entries = match container.store.list(&dir) {
            Err(Errno::NOENT) => continue,
            other => other.at("list", &dir)?,
        };
        for entry in entries {
            if let Some((stream, segment)) = entry.name.to_str().and_then(name::parse_data_log)
                && let Some(last) = last.get_mut(stream as usize)
            {
                *last = last.take().max(Some((segment, dir.join(&entry.name))));
            }
        }
    }
    let mut tails = Vec::new();
    for last in last {
        tails.push(match last {
            Some((segment, path)) => {
                let len =
                    container.store.stat(&path, Links::Follow).at("stat the data log", &path)?.len;
                pack_tail((segment, len)).ok_or_else(too_long)?
            }
            None => 0,
        });
    }
    Ok(tails)
}

#[cfg(test)]
mod tests {
    use plfs_format::MAX_OFFSET;
    use plfs_format::index_log::SEGMENT_MAX;

    use super::*;
    use crate::container::create;
    use crate::log::scan;
    use crate::store::{PosixStore, Store};

    const DURABLE: Durability = Durability::Durable;

    /// A directory with a new container, that goes with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let dir = std::env::temp_dir().join(format!("plfs-log-set-{:016x}", random_u64()));
            std::fs::create_dir(&dir).unwrap();
            Scratch(dir)
        }

        fn container(&self) -> (Config, Arc<Container>) {
            let store: Arc<dyn Store> = Arc::new(PosixStore::new());
            let config = Config { shared_memory: None, ..Config::default() };
            let (container, _) =
                create(&store, &config, &self.0, &self.0.join("f"), 0o644, 0).unwrap();
            (config, Arc::new(container))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The takeover look without a look at the data.
    fn youngest(container: &Container, set: u32) -> Result<Option<u64>> {
        let mut youngest = 0;
        scan(container, set, 0, |_, header, _| {
            youngest = youngest.max(header.hlc);
            Ok(())
        })?;
        Ok(Some(youngest))
    }

    fn join(config: &Config, container: &Arc<Container>, seen: CommitHorizon) -> LogSet {
        LogSet::join(container.clone(), config, seen, Wanted::Any, Mark::default, youngest).unwrap()
    }

    /// A process looks at the logs, to take one over; before it does, another node whose clock is
    /// ahead takes it, appends and leaves. The stamps of the first went on from what it
    /// had seen, so the log's last block was older than the one before it, and what it wrote lost
    /// against what was there.
    #[test]
    fn who_takes_a_log_over_goes_on_behind_its_last_block() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let old = join(&config, &container, CommitHorizon { max_hlc: 1 << 62, is_new: true });
        let cut = |set: &LogSet| {
            set.append_index(&[], &[Record::Truncate { size: 1, stamp: 1 }], DURABLE).unwrap().0
        };
        let stamp = cut(&old);
        assert!(stamp > 1 << 62);
        let id = old.id();
        assert!(old.leave().unwrap());
        let new = join(&config, &container, CommitHorizon { max_hlc: 0, is_new: false });
        assert_eq!(new.id(), id);
        assert!(cut(&new) > stamp);
    }

    /// A log says that it was written at the end of time. The clock wrapped to 0 after that, or
    /// panicked.
    #[test]
    fn the_clock_does_not_wrap() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_hlc: u64::MAX, is_new: true });
        assert_eq!(set.tick(), u64::MAX);
    }

    /// A damaged summary says that the file ends where numbers do. The end of file wrapped to 0,
    /// and an append went there, or panicked.
    #[test]
    fn the_end_of_file_does_not_wrap() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_hlc: 0, is_new: true });
        let era = set.era().unwrap();
        set.reached(era, MAX_OFFSET - 1);
        assert_eq!(set.append_position(era, 4, MAX_OFFSET), (MAX_OFFSET - 1, 1));
        assert_eq!(set.append_position(era, 4, MAX_OFFSET), (MAX_OFFSET, 0));
        set.reached(era, u64::MAX);
        assert_eq!(set.append_position(era, 4, MAX_OFFSET), (u64::MAX, 0));
    }

    /// A process died in a truncate, or its truncate failed. Appends go on where the file was cut
    /// to, if the log says that it was; else who had a place before keeps it.
    #[test]
    fn what_became_of_a_truncate_that_nobody_ended_is_in_the_log() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_hlc: 0, is_new: true });
        let old = set.tick();
        // Takes a place, and then somebody dies, who has perhaps told the log.
        let die = |size: Option<u64>, stamp: Option<u64>| {
            let era = set.era().unwrap();
            let (place, _) = set.append_position(era, 10, MAX_OFFSET);
            let cutting = set.begin_cut().unwrap();
            if let Some(size) = size {
                let stamp = stamp.unwrap_or_else(|| set.tick());
                set.append_index(&[], &[Record::Truncate { size, stamp }], DURABLE).unwrap();
            }
            // Others commit before anybody looks.
            set.append_index(&[], &[], DURABLE).unwrap();
            drop(cutting);
            assert!(!set.is_still(era));
            (place, set.era().unwrap().is_uncut(era))
        };
        assert_eq!(die(None, None), (0, true));
        assert_eq!(die(Some(4), None), (10, false));
        // A truncate that was over before this one began.
        assert_eq!(die(Some(1), Some(old)), (4, true));
        assert_eq!(die(Some(7), None), (14, false));
        set.begin_cut().unwrap().done(2, set.tick());
        assert_eq!(set.append_position(set.era().unwrap(), 1, MAX_OFFSET).0, 2);
    }

    /// What the logs say of a cut that the node did not make: its end of file was taken back below
    /// what its processes had written since, or not at all if the cut was older than the tenancy;
    /// and the next stamp of a node whose clock is behind was older than the cut.
    #[test]
    fn a_cut_of_another_node_is_followed_by_its_stamp() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_hlc: 1 << 20, is_new: true });
        let append = || set.append_position(set.era().unwrap(), 10, MAX_OFFSET).0;
        set.follow(100, 5).unwrap();
        set.follow(40, 7).unwrap();
        // From before the second cut.
        set.follow(100, 5).unwrap();
        let ahead = set.tick() + (1 << 40);
        set.follow(30, ahead).unwrap();
        let later = set.tick();
        assert!(later > ahead);
        set.stamp_of_append();
        assert_eq!(append(), 30);
        // Older than the append, which it does not cut.
        set.follow(0, later).unwrap();
        assert_eq!(append(), 40);
        set.follow(0, set.tick()).unwrap();
        assert_eq!(append(), 0);
    }

    /// With the smallest segments and four digits for their numbers a stream had 65,536 after 4
    /// GiB. The number of the next did not fit: the stream went on in segment 0, over bytes that
    /// records pointed to. There are 2^32 now; the last takes all the rest, as far as a tail can
    /// say, and never carries into the number.
    #[test]
    fn the_last_segment_takes_all_the_rest() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_hlc: 0, is_new: true });
        let (limit, region) = (container.superblock.segment_bytes, REGION_ALIGN);
        let tail = &set.shared.words()[TAILS];
        tail.store(pack_tail((SEGMENT_MAX - 1, limit)).unwrap(), Ordering::SeqCst);
        assert_eq!(set.reserve(0, limit).unwrap(), (SEGMENT_MAX, 0));
        assert_eq!(set.reserve(0, 1).unwrap(), (SEGMENT_MAX, limit));
        assert_eq!(set.reserve(0, 1).unwrap(), (SEGMENT_MAX, limit + region));
        let last = u64::from(u32::MAX) * region;
        tail.store(pack_tail((SEGMENT_MAX, last - region)).unwrap(), Ordering::SeqCst);
        assert_eq!(set.reserve(0, 1).unwrap(), (SEGMENT_MAX, last - region));
        assert_eq!(set.reserve(0, 1).unwrap_err().errno(), Errno::FBIG);
        assert_eq!(unpack_tail(tail.load(Ordering::SeqCst)), (SEGMENT_MAX, last));
        assert_eq!(
            (pack_tail((7, last + 1)), pack_tail((7, 1)).map(unpack_tail)),
            (None, Some((7, region)))
        );
    }
}
