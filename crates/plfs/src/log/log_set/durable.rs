//! What makes data and the index log durable: who has written since the last sync, the syncs, and
//! the gate that keeps records whose data is not durable from going first.

use std::collections::HashMap;

use plfs_format::name::{self, SegmentRef};

use super::LogSet;
use super::mark::{must_be_synced, note_failed_sync};
use super::page::{
    DATA_DURABLE, Guard, INDEX_END, INDEX_NAMED, INDEX_SYNCED, SYNC_FAILED, SYNCED, TAILS,
    TRAY_FROM, UNSYNCED, unpack_tail,
};
use crate::error::{At, Error, Result};
use crate::store::shm::WORDS;
use crate::store::{self, Errno, Open, StoreFile};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, Word};

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

/// So many streams are synced at the same time, at most: each takes a descriptor meanwhile.
const BEGUN_MAX: usize = 64;

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
        let mut begun = self.begin_sync()?;
        for stream in 0..self.container.superblock.streams {
            let word = &words[UNSYNCED + stream as usize];
            let seen = Unsynced(word.load(Ordering::SeqCst));
            let Some(first) = seen.first() else { continue };
            let (last, _) = unpack_tail(words[TAILS + stream as usize].load(Ordering::SeqCst));
            for segment in first..=last {
                let begun = begun.remove(&(stream, segment));
                self.sync_segment(stream, segment, seen.file_name(), begun)?;
            }
            // Before anybody hears that it is durable: somebody who has no part in the page may
            // have been told of a failure that was this one's.
            must_be_synced(&self.container, self.set)?;
            // Set again meanwhile: it stays, for whoever set it.
            let _ =
                word.compare_exchange(seen.0, seen.without().0, Ordering::SeqCst, Ordering::SeqCst);
        }
        words[DATA_DURABLE].fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    /// Passes on the result of a sync. After a failure all syncs of the node fail, and a note in
    /// the container tells those who come to the file later.
    pub fn note_failure(&self, result: store::Result<()>) -> store::Result<()> {
        if result.is_err() {
            self.shared.words()[SYNC_FAILED].store(1, Ordering::SeqCst);
            note_failed_sync(&self.container, self.set);
        }
        result
    }

    /// Has the storage begin with the last segment of each stream, if there are several: they may
    /// lie on different targets, which then work at the same time and not one after the other. To
    /// be synced by the same descriptors, which find what failed since.
    fn begin_sync(&self) -> Result<HashMap<(u16, u32), Arc<dyn StoreFile>>> {
        let (words, mut begun) = (self.shared.words(), HashMap::new());
        let is_unsynced = |stream: &u16| {
            Unsynced(words[UNSYNCED + *stream as usize].load(Ordering::SeqCst)).first().is_some()
        };
        let unsynced: Vec<u16> =
            (0..self.container.superblock.streams).filter(is_unsynced).take(BEGUN_MAX).collect();
        if unsynced.len() < 2 || self.container.superblock.backends.len() < 2 {
            return Ok(begun);
        }
        for stream in unsynced {
            let (last, _) = unpack_tail(words[TAILS + stream as usize].load(Ordering::SeqCst));
            // What is in the way is so for the sync, too, which tells.
            let Ok(Some((_, path))) = self.find_segment(stream, last) else { continue };
            let Ok(file) = self.container.store.open(&path, Open::READ) else { continue };
            let to_the_end = store::heard(file.write_back(0, 0, false));
            self.note_failure(to_the_end).at("sync the data log", &path)?;
            begun.insert((stream, last), file);
        }
        Ok(begun)
    }

    fn sync_segment(
        &self,
        stream: u16,
        segment: u32,
        file_name: FileName,
        begun: Option<Arc<dyn StoreFile>>,
    ) -> Result<()> {
        // Reserved by a process that has not made it yet, or died before.
        let Some((backend, mut path)) = self.find_segment(stream, segment)? else { return Ok(()) };
        let store = &self.container.store;
        let mut opened = begun.map_or_else(|| store.open(&path, Open::READ), Ok);
        if opened.as_ref().is_err_and(|errno| *errno == Errno::NOENT) && backend > 0 {
            // The backend may have moved under descriptors that go on working, or be gone.
            let at = SegmentRef { set: self.set, stream, segment, backend };
            path = self.container.backend_dir_again(backend)?.join(name::data_log(&at));
            opened = store.open(&path, Open::READ);
        }
        match opened {
            Ok(file) => self.note_failure(file.sync_data()).at("sync the data log", &path)?,
            // Decided, and not made yet.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno).at("open the data log", &path),
        }
        if file_name == FileName::New {
            // On the root backend the directories above are the container's, which a sync makes
            // durable; on others they came with the first segment.
            let dirs = if backend > 0 { 5 } else { 1 };
            for dir in path.ancestors().skip(1).take(dirs) {
                self.note_failure(store.sync_dir(dir)).at("sync the directory", dir)?;
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
