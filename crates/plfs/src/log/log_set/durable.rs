//! What makes data and the index log durable: who has written since the last sync, the syncs, and
//! the gate that keeps records whose data is not durable from going first.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plfs_format::name::{self, SegmentRef};

use super::LogSet;
use super::mark::{must_be_synced, note_failed_sync};
use super::page::{
    DATA_DURABLE, Guard, INDEX_END, INDEX_NAMED, INDEX_SYNCED, PLACES, SYNC_FAILED, SYNCED, TAILS,
    TRAY_FROM, UNSYNCED, unpack_tail,
};
use super::place::{PlaceOf, find_segment};
use crate::container::Container;
use crate::error::{At, Error, Result, is_of_descriptors};
use crate::log::flusher::{LOOKS_EVERY, aside, looks_every};
use crate::store::rates::Rates;
use crate::store::shm::WORDS;
use crate::store::{self, Errno, Open};
use crate::sync::plain::atomic::Ordering;
use crate::sync::plain::mpsc::channel;
use crate::sync::{Arc, Word, plain};

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
pub(super) struct Unsynced(pub(super) u64);

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

    pub(super) fn with(self, segment: u32, file_name: FileName) -> Unsynced {
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

/// [`LogSet::mark_unsynced`] in the words of a page.
pub(super) fn mark_unsynced(words: &[Word; WORDS], stream: u16, segment: u32, file_name: FileName) {
    let set = |now| Some(Unsynced(now).with(segment, file_name).0);
    let Some(word) = words.get(UNSYNCED + stream as usize) else { return };
    // The closure never says None, so this never fails.
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, set);
}

/// So many streams are synced at the same time, at most: each takes a descriptor and a thread
/// meanwhile.
const AT_ONCE_MAX: usize = 64;

/// Holds back whoever makes the index log durable, until an append of what is not durable itself is
/// over: see [`LogSet::gate`].
pub struct Gate<'a>(#[allow(dead_code, reason = "held for its drop")] Guard<'a>);

impl LogSet {
    /// Says that this process has given bytes to a segment of a stream, which are not durable. Call
    /// it when the store has them, and before a block points to them.
    pub fn mark_unsynced(&self, stream: u16, segment: u32, file_name: FileName) {
        mark_unsynced(self.shared.words(), stream, segment, file_name);
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
                "an earlier sync failed for a process of this node",
            ));
        }
        // What points to data that is in the tray is there as well.
        let end = match self.tray() {
            Some(_) => words[TRAY_FROM].load(Ordering::SeqCst),
            None => u64::MAX,
        };
        let end = words[INDEX_END].load(Ordering::SeqCst).min(end);
        let unsynced: Vec<(u16, Unsynced)> = (0..self.container.superblock.streams)
            .map(|stream| (stream, &words[UNSYNCED + stream as usize]))
            .map(|(stream, word)| (stream, Unsynced(word.load(Ordering::SeqCst))))
            .filter(|(_, seen)| seen.first().is_some())
            .collect();
        for some in unsynced.chunks(AT_ONCE_MAX) {
            self.sync_streams(some)?;
        }
        words[DATA_DURABLE].fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    /// Passes on the result of a sync. After a failure all syncs of the node fail, and a note in
    /// the container tells those who come to the file later. Not so of one that did not begin, for
    /// lack of a descriptor.
    pub fn note_failure(&self, result: store::Result<()>) -> store::Result<()> {
        if result.is_err_and(|errno| !is_of_descriptors(errno)) {
            self.shared.words()[SYNC_FAILED].store(1, Ordering::SeqCst);
            note_failed_sync(&self.container, self.set);
        }
        result
    }

    /// Makes streams durable whose words were `seen`: those of a file with several backends at the
    /// same time, because they may lie on different targets. There a target that was given up has
    /// the deadline to answer in: then it has failed as any other sync.
    fn sync_streams(&self, seen: &[(u16, Unsynced)]) -> Result<()> {
        let words = self.shared.words();
        let (tell, hear) = channel();
        let mut asked = Vec::new();
        for (stream, seen) in seen {
            let word = &words[PLACES + *stream as usize];
            let (last, _) = unpack_tail(words[TAILS + *stream as usize].load(Ordering::SeqCst));
            let sync = StreamSync {
                container: self.container.clone(),
                set: self.set,
                stream: *stream,
                place: PlaceOf::unpack(word.load(Ordering::SeqCst)),
                segments: seen.first().unwrap_or(0)..=last,
                file_name: seen.file_name(),
                now: Arc::default(),
            };
            let (now, tell, seen) = (sync.now.clone(), tell.clone(), *seen);
            let run = move || drop(tell.send((sync.stream, sync.run())));
            match self.container.superblock.backends.len() < 2 {
                true => run(),
                false => drop(aside(run)),
            }
            asked.push((*stream, seen, now));
        }
        // All are heard: what one says is told once. It is noted before the others are there.
        let (begun, mut first) = (Instant::now(), Ok(()));
        while !asked.is_empty() {
            let every = self.container.deadline.map_or(LOOKS_EVERY, looks_every);
            match hear.recv_timeout(every) {
                Ok((stream, result)) => {
                    let Some(at) = asked.iter().position(|(of, ..)| *of == stream) else {
                        continue;
                    };
                    let (_, seen, _) = asked.swap_remove(at);
                    let done = match result {
                        Ok(()) => self.is_synced(stream, seen),
                        Err(Failed::ToSync(errno, op, path)) => {
                            self.note_failure(Err(errno)).at(op, &path)
                        }
                        Err(Failed::ToBegin(error)) => Err(error),
                    };
                    first = first.and(done);
                }
                Err(_) if self.container.deadline.is_none_or(|it| begun.elapsed() < it) => {}
                Err(_) => {
                    for (_, _, now) in &asked {
                        let Some((backend, path)) = plain::lock(now).clone() else { continue };
                        if self.is_given_up(backend) {
                            let _ = self.note_failure(Err(Errno::TIMEDOUT));
                            return Err(Error::hangs("sync", &path));
                        }
                    }
                }
            }
        }
        first
    }

    /// All that a stream had when its word was `seen` is durable.
    fn is_synced(&self, stream: u16, seen: Unsynced) -> Result<()> {
        // Before anybody hears that it is durable: somebody who has no part in the page may have
        // been told of a failure that was this one's.
        must_be_synced(&self.container, self.set)?;
        // Set again meanwhile: it stays, for whoever set it.
        let word = &self.shared.words()[UNSYNCED + stream as usize];
        let _ = word.compare_exchange(seen.0, seen.without().0, Ordering::SeqCst, Ordering::SeqCst);
        Ok(())
    }

    /// Whether a process of the user has given up a target of a backend, and it has not answered
    /// since.
    fn is_given_up(&self, backend: u16) -> bool {
        let (container, store) = (&self.container, &self.container.store);
        let rates = {
            let _acting = store.act();
            container.shared_memory.as_deref().and_then(|dir| Rates::of(dir, store.user()))
        };
        let (Some(rates), Ok((dir, is_seen))) = (rates, container.backend_entry(backend)) else {
            return false;
        };
        let is_fenced = |key: &Path| rates.find(key).is_some_and(|target| rates.is_fenced(target));
        is_fenced(&dir)
            || is_seen && store.targets(&dir).targets().iter().any(|one| is_fenced(&one.key))
    }

    /// Keeps others from making the index log durable while the result lives. Hold it over an
    /// [append](LogSet::append_index) of a block whose data is not durable: a sync of another
    /// process must not make the block durable without its data. Take it before any lock that
    /// readers or writers of this process need: it waits for a sync that is under way.
    pub fn gate(&self) -> Result<Gate<'_>> {
        self.shared.gate().map(Gate).at("lock the shared page of", &self.container.dir)
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
        self.carry_behind_gate()?;
        // With the gate held, all that comes now has durable data already, or is in the tray.
        let upto = match self.tray() {
            Some(_) => words[TRAY_FROM].load(Ordering::SeqCst),
            None => words[INDEX_END].load(Ordering::SeqCst),
        };
        self.sync_data()?;
        let index = self.index()?;
        self.note_failure(index.sync_data()).at("sync the index log", &self.index_path)?;
        // Its name too, once: what was found under no name after a power loss would be found by
        // nobody.
        if words[INDEX_NAMED].load(Ordering::SeqCst) == 0 {
            let dir = self.index_path.parent().unwrap_or(&self.container.dir);
            self.note_failure(self.container.store.sync_dir(dir)).at("sync the directory", dir)?;
            words[INDEX_NAMED].store(1, Ordering::SeqCst);
        }
        must_be_synced(&self.container, self.set)?;
        words[INDEX_SYNCED].fetch_max(upto, Ordering::SeqCst);
        Ok(())
    }

    /// Runs `sync`, which makes the container's names durable, unless some process of the node has
    /// done it.
    pub fn sync_names_once(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let synced = &self.shared.words()[SYNCED];
        if synced.load(Ordering::SeqCst) == 0 {
            sync().inspect_err(|error| {
                if error.is_of_sync() {
                    let _ = self.note_failure(Err(error.errno()));
                }
            })?;
            synced.store(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// The sync of some segments of a stream, which may take for ever.
struct StreamSync {
    container: Arc<Container>,
    set: u32,
    stream: u16,
    place: Option<PlaceOf>,
    segments: RangeInclusive<u32>,
    file_name: FileName,
    /// What it waits for: which backend, and which file.
    now: Arc<plain::Mutex<Option<(u16, PathBuf)>>>,
}

/// Why a stream is not durable.
enum Failed {
    /// A sync has failed, which the system tells once: what was attempted, and on what.
    ToSync(Errno, &'static str, PathBuf),
    /// It has not come to that.
    ToBegin(Error),
}

impl StreamSync {
    fn run(&self) -> std::result::Result<(), Failed> {
        self.segments.clone().try_for_each(|segment| self.sync(segment))
    }

    fn sync(&self, segment: u32) -> std::result::Result<(), Failed> {
        let (container, store) = (&self.container, &self.container.store);
        let at = |backend| SegmentRef { set: self.set, stream: self.stream, segment, backend };
        // Reserved by a process that has not made it yet, or died before.
        let Some((backend, mut path)) =
            find_segment(container, at, self.place).map_err(Failed::ToBegin)?
        else {
            return Ok(());
        };
        *plain::lock(&self.now) = Some((backend, path.clone()));
        let mut opened = store.open(&path, Open::READ);
        if opened.as_ref().is_err_and(|errno| *errno == Errno::NOENT) && backend > 0 {
            // The backend may have moved under descriptors that go on working, or be gone.
            let dir = container.backend_dir_again(backend).map_err(Failed::ToBegin)?;
            path = dir.join(name::data_log(&at(backend)));
            opened = store.open(&path, Open::READ);
        }
        match opened {
            Ok(file) => file
                .sync_data()
                .map_err(|errno| Failed::ToSync(errno, "sync the data log", path.clone()))?,
            // Decided, and not made yet.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => {
                return Err(errno).at("open the data log", &path).map_err(Failed::ToBegin);
            }
        }
        if self.file_name == FileName::New {
            // On the root backend the directories above are the container's, which a sync makes
            // durable; on others they came with the first segment.
            let dirs = if backend > 0 { 5 } else { 1 };
            for dir in path.ancestors().skip(1).take(dirs) {
                store.sync_dir(dir).map_err(|errno| {
                    Failed::ToSync(errno, "sync the directory", dir.to_path_buf())
                })?;
            }
        }
        Ok(())
    }
}
