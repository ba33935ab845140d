//! A node's log set: the one index log and the few data logs that the processes of a node write a
//! container with (docs/decisions/0002).
//!
//! What the processes share are numbers in a page of memory: tails of the streams, the hybrid
//! logical clock, the append position. Regions are reserved by one compare-and-swap on a tail;
//! nobody waits for anybody's data. Index blocks are appended under the page's lock, which the
//! kernel releases when its holder dies.

mod durable;
mod eof;
mod join;
mod journals;
mod mark;
mod page;
mod place;
mod tray;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::clock::{Clock, Covers};
use plfs_format::index_log::{ALIGN, Append, Record, align_up, encode_block};
use plfs_format::name::{self, SegmentRef};
use plfs_format::pack;
use plfs_index::{REGION_ALIGN, next_region};

pub use durable::FileName;
pub use eof::Era;
pub use join::{CommitHorizon, Wanted, horizon};
pub(crate) use journals::{
    Carried, carry_left, dir_with_left, forget_spare_journals, remove_stray_journals,
};
pub(crate) use mark::{claim, claim_in, must_be_synced, note_failed_sync, read_mark};
pub use page::lives;
use page::{
    BESIDE, CLOCK, COVERED, DATA_DURABLE, Guard, INDEX_END, NEXT_STREAM, Shared, TAILS, pack_tail,
    too_long, unpack_tail,
};
pub use page::{NodeLog, node_log};
pub(crate) use page::{names_tenancy, page_path_of, reclaim};
pub use tray::HeldData;
use tray::{Logs, Tray};

use super::Durability;
use crate::container::{Container, raise_clock, read_clock, touch_dir, wall_clock, write_clock};
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::{self, CachedFile, Errno, Links, Open, StoreFile};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, Mutex, lock};

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
    /// Segments to which this process has carried the tray, the last ones first.
    carried_to: Mutex<Vec<(SegmentRef, Arc<CachedFile>, PathBuf)>>,
}

/// Stamps behind each one that a node has seen, and behind each cut, with which nothing is written:
/// by the first files are made longer (FORMAT.md section 4).
const GROWTHS: u64 = 1;

/// Segments that are kept open for the tray: one for each process of a node that writes is enough,
/// and a descriptor is closed where they become few.
const CARRIED_TO_MAX: usize = 64;

/// The end of the node's index log, for the caller that builds the next block while no other
/// process of the node appends.
pub struct LogEnd<'a> {
    /// Where the next block will lie.
    pub offset: u64,
    tray: Option<Tray<'a>>,
}

impl LogEnd<'_> {
    /// [`LogSet::recent`].
    pub fn recent(&self, from: u64) -> Option<(u64, Vec<u8>)> {
        self.tray.as_ref()?.index_from(from)
    }
}

impl std::fmt::Debug for LogSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSet")
            .field("set", &self.set)
            .field("index", &self.index_path)
            .finish_non_exhaustive()
    }
}

impl LogSet {
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
        let words = self.shared.words();
        if !self.container.local && words[COVERED].load(Ordering::SeqCst) == 0 {
            let stamp = words[CLOCK].load(Ordering::SeqCst);
            match read_clock(&self.container) {
                Ok(Clock { covers: Covers::Some, .. }) => {}
                // Torn by a power cut: who tore it went by it, perhaps.
                Ok(_) | Err(Error::Corrupt { .. }) => self.cover(stamp)?,
                Err(error) => return Err(error),
            }
        }
        self.must_have_mark()
    }

    /// [`LogSet::must_own`] where nobody goes by the file's clock: one readlink.
    pub fn must_have_mark(&self) -> Result<()> {
        let store = &self.container.store;
        match read_mark(&self.container, self.set)? {
            Some(mark) if mark.nonce == self.nonce => Ok(()),
            // The whole file may have been removed; then there is nothing to own.
            None if store.stat(&self.container.path(name::SUPER), Links::Stay)
                == Err(Errno::NOENT) =>
            {
                Ok(())
            }
            _ => {
                // Who fenced the set may have summed the file up before the append.
                touch_dir(&self.container);
                Err(Error::Fenced { path: self.container.dir.to_path_buf(), set: self.set })
            }
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
    /// segment and offset in it. They end before `limit`, unless the segment has nothing else.
    pub fn reserve(&self, stream: u16, bytes: u64, limit: u64) -> Result<(u32, u64)> {
        let bytes = bytes.next_multiple_of(REGION_ALIGN);
        let tail = &self.shared.words()[TAILS + stream as usize];
        let limit = limit.min(self.container.superblock.segment_bytes);
        let mut now = tail.load(Ordering::Relaxed);
        loop {
            let (segment, offset) = next_region(unpack_tail(now), bytes, limit);
            let next = pack_tail((segment, offset.saturating_add(bytes))).ok_or_else(too_long)?;
            match tail.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok((segment, offset)),
                Err(other) => now = other,
            }
        }
    }

    /// Takes note of a stamp: later ones of this node will be larger, by more than [`GROWTHS`].
    pub fn observe(&self, stamp: u64) {
        join::observe(self.shared.words(), stamp);
    }

    /// Appends one block to the index log; `data` is what its records point to. Gives its stamp and
    /// where it ends.
    pub fn append_index(
        &self,
        segments: &[SegmentRef],
        records: &[Record],
        data: Durability,
    ) -> Result<(u64, u64)> {
        let _short = self.short()?;
        let index = self.index()?;
        let offset = align_up(index.stat().at("stat the index log", &self.index_path)?.len);
        let append = self.next_append(offset, data);
        let stamp = append.stamp;
        let block = encode_block(self.container.log_id(self.set), append, segments, records)
            .map_err(|bad| Error::of_bytes(&self.index_path, bad))?;
        // Before anybody can see the block.
        if self.shared.words()[COVERED].load(Ordering::SeqCst) != 0 {
            self.cover(stamp)?;
        } else if self.container.local && stamp > wall_clock() {
            // Whoever comes from now on goes by the wall clock, which has not come so far.
            write_clock(&self.container, stamp, false)?;
        }
        self.put_block(index.as_ref(), &block, offset).map(|end| (stamp, end))
    }

    /// Appends a block of a pack: `build` makes its records, or none, when nobody of the node
    /// appends, and is told where the log ends. So what it finds in the log up to there is what the
    /// node has said, until its own word is there. Gives what `build` gives, and the block's stamp
    /// and where it ends, if there is one.
    ///
    /// Who comes to a pack reads its logs, so nobody goes by the file's clock.
    pub fn append_pack<T>(
        &self,
        data: Durability,
        build: impl FnOnce(&LogEnd<'_>) -> Result<(Vec<SegmentRef>, Vec<pack::Record>, T)>,
    ) -> Result<(T, Option<(u64, u64)>)> {
        let _short = self.short()?;
        let length = || -> Result<u64> {
            Ok(self.index()?.stat().at("stat the index log", &self.index_path)?.len)
        };
        // Open until it has the block: nothing of that is known before, and who finds no descriptor
        // can try again.
        let _index = self.tray().is_none().then(|| self.index()).transpose()?;
        let offset = match self.tray() {
            Some(tray) => tray.next_block(length)?,
            None => align_up(length()?),
        };
        let (segments, records, given) = build(&LogEnd { offset, tray: self.tray() })?;
        if records.is_empty() {
            return Ok((given, None));
        }
        let append = self.next_append(offset, data);
        let stamp = append.stamp;
        let log = self.container.log_id(self.set);
        let block = pack::encode_block(log, append, &segments, &records)
            .map_err(|bad| Error::of_bytes(&self.index_path, bad))?;
        let end = match self.tray() {
            None => self.put_block(self.index()?.as_ref(), &block, offset)?,
            Some(tray) => {
                if tray.room() < block.len() + ALIGN as usize {
                    // Without the gate: a block may become durable before its data, as a power cut
                    // at any other moment leaves it (SEMANTICS S14).
                    tray.carry(self)?;
                }
                let full = || Error::invalid(Errno::FBIG, "a block is longer than a tray");
                tray.put_block(&block, offset).ok_or_else(full)?
            }
        };
        Ok((given, Some((stamp, end))))
    }

    /// How many names processes of the node have made beside a pack.
    pub fn made_beside(&self) -> u64 {
        self.shared.words()[BESIDE].load(Ordering::SeqCst)
    }

    /// There is one more.
    pub fn count_beside(&self) {
        self.shared.words()[BESIDE].fetch_add(1, Ordering::SeqCst);
    }

    fn tray(&self) -> Option<Tray<'_>> {
        self.shared.tray().map(Tray)
    }

    /// Whether what is said waits in memory for who carries it to the storage.
    pub fn has_tray(&self) -> bool {
        self.shared.tray().is_some()
    }

    /// Takes bytes of a data log to the tray; false: it does not take so many, or there is none.
    pub fn put_data(
        &self,
        at: &SegmentRef,
        file_name: FileName,
        physical: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        let most = self.shared.tray().map_or(0, |page| page.tray_bytes() / 4);
        if bytes.len() > most {
            return Ok(false);
        }
        let size = Tray::size_of(bytes.len());
        self.make_room(size)?;
        let _short = self.short()?;
        let Some(tray) = self.tray() else { return Ok(false) };
        if tray.room() < size {
            // Others were faster.
            tray.carry(self)?;
        }
        Ok(tray.put_data(at, file_name, physical, bytes).is_some())
    }

    /// Sees to it that the tray has room for so many bytes. An error if the storage does not take
    /// what is in it, now or the last time that somebody tried.
    pub fn make_room(&self, bytes: usize) -> Result<()> {
        // Without the lock: who has it looks again.
        match self.tray() {
            Some(tray) if tray.is_refused() || tray.room() < bytes => self.carry(),
            _ => Ok(()),
        }
    }

    /// Gives to the storage what processes of the node have said. What fails stays, and all who say
    /// something later are told until it succeeds.
    pub fn carry(&self) -> Result<()> {
        match self.shared.tray() {
            Some(_) => {
                let _gate = self.gate()?;
                self.carry_behind_gate()
            }
            None => Ok(()),
        }
    }

    fn carry_behind_gate(&self) -> Result<()> {
        if !self.has_tray() {
            return Ok(());
        }
        let _short = self.short()?;
        self.tray().map_or(Ok(()), |tray| tray.carry(self))
    }

    /// How old the oldest in the tray is.
    pub fn waits_for(&self) -> Option<Duration> {
        let since = self.tray()?.since()?;
        Some(Duration::from_nanos(boot_time_ns().saturating_sub(since)))
    }

    /// What the tray has of the node's index log from `from` on: where that begins, and its bytes.
    /// `None`: there is no tray.
    pub fn recent(&self, from: u64) -> Result<Option<(u64, Vec<u8>)>> {
        if !self.has_tray() {
            return Ok(None);
        }
        let _short = self.short()?;
        Ok(self.tray().and_then(|tray| tray.index_from(from)))
    }

    /// What the tray has of these bytes of a data log; the storage has the rest.
    pub fn data_of(&self, at: &SegmentRef, physical: u64, length: usize) -> Result<Vec<HeldData>> {
        if !self.tray().is_some_and(|tray| tray.has_data()) {
            return Ok(Vec::new());
        }
        let _short = self.short()?;
        Ok(self.tray().map_or(Vec::new(), |tray| tray.data_of(at, physical, length)))
    }

    fn short(&self) -> Result<Guard<'_>> {
        self.shared.lock().at("lock the shared page of", &self.index_path)
    }

    fn next_append(&self, offset: u64, data: Durability) -> Append {
        let stamp = self.tick();
        let durable = self.shared.words()[DATA_DURABLE].load(Ordering::SeqCst);
        Append { offset, stamp, durable, is_data_durable: data == Durability::Durable }
    }

    fn put_block(&self, index: &dyn StoreFile, block: &[u8], offset: u64) -> Result<u64> {
        store::write_full(index, block, offset).at("append to the index log", &self.index_path)?;
        let end = offset + block.len() as u64;
        self.shared.words()[INDEX_END].store(end, Ordering::SeqCst);
        Ok(end)
    }

    /// Where the last block ends that a process of the node has appended; 0 if none has in this
    /// tenancy.
    pub fn index_end(&self) -> u64 {
        self.shared.words()[INDEX_END].load(Ordering::SeqCst)
    }

    /// Says what closing the index log would say, where that can be an error.
    pub fn close_index(&self) -> Result<()> {
        match self.container.local {
            true => Ok(()),
            false => {
                self.index.flush().at("close the index log", &self.index_path)?;
                let known = lock(&self.carried_to);
                known
                    .iter()
                    .try_for_each(|(_, file, path)| file.flush().at("close the data log", path))
            }
        }
    }

    pub(super) fn index(&self) -> Result<Arc<dyn StoreFile>> {
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

    /// The name of the index log outlives a power cut from here on, so that data on another file
    /// system does not outlive it alone.
    pub(super) fn keep_index(&self) -> Result<()> {
        self.index()?;
        let store = &self.container.store;
        let dir = self.container.path(&name::log_set(self.set));
        store.sync_dir(&dir).at("sync", &dir)?;
        store.sync_dir(&self.container.dir).at("sync", &self.container.dir)
    }

    /// What was said when the index log, or a segment that the tray was carried to, was closed
    /// between two uses, where that can be an error.
    pub fn index_failure(&self) -> Result<()> {
        self.index.failure().at("close the index log", &self.index_path)?;
        let known = lock(&self.carried_to);
        known.iter().try_for_each(|(_, file, path)| file.failure().at("close the data log", path))
    }

    /// The next stamp: at least the wall clock, larger than every stamp seen on this node
    /// (FORMAT.md section 4).
    pub fn tick(&self) -> u64 {
        let wall = wall_clock();
        let clock = &self.shared.words()[CLOCK];
        let mut last = clock.load(Ordering::SeqCst);
        loop {
            // Only a corrupt log has the largest stamp; no clock gets there.
            let next = wall.max(last.saturating_add(1));
            match clock.compare_exchange_weak(last, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return next,
                Err(other) => last = other,
            }
        }
    }
}

impl Logs for LogSet {
    fn index(&self) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        Ok((LogSet::index(self)?, self.index_path.clone()))
    }

    fn segment(&self, at: &SegmentRef) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        let mut known = lock(&self.carried_to);
        let i = match known.iter().position(|(of, ..)| of == at) {
            Some(i) => i,
            None => {
                let file = CachedFile::for_writing(self.container.local);
                known.insert(0, (*at, file, self.container.segment_path(at)?));
                known.truncate(CARRIED_TO_MAX);
                0
            }
        };
        let (_, file, path) = &known[i];
        let open = |_| self.container.store.open(path, Open::READ_WRITE);
        Ok((file.get_or_open(open).at("open the data log", path)?, path.clone()))
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

#[cfg(test)]
mod tests {
    use plfs_format::index_log::SEGMENT_MAX;
    use plfs_format::mark::Mark;

    use super::*;
    use crate::config::Config;
    use crate::container::create;
    use crate::log::scan;
    use crate::store::machine::random_u64;
    use crate::store::{PosixStore, Store};

    pub(super) const DURABLE: Durability = Durability::Durable;

    /// A directory with a new container, that goes with the value.
    pub(super) struct Scratch(PathBuf);

    impl Scratch {
        pub(super) fn new() -> Scratch {
            let dir = std::env::temp_dir().join(format!("plfs-log-set-{:016x}", random_u64()));
            std::fs::create_dir(&dir).unwrap();
            Scratch(dir)
        }

        pub(super) fn container(&self) -> (Config, Arc<Container>) {
            let store: Arc<dyn Store> = Arc::new(PosixStore::new());
            let config = Config { shared_memory: None, ..Config::default() };
            let (container, _) =
                create(&store, &config, &self.0, &self.0.join("f"), 0o644).unwrap();
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
            youngest = youngest.max(header.stamp);
            Ok(())
        })?;
        Ok(Some(youngest))
    }

    pub(super) fn join(config: &Config, container: &Arc<Container>, seen: CommitHorizon) -> LogSet {
        LogSet::join(container.clone(), config, seen, Wanted::Any, Mark::default, youngest).unwrap()
    }

    /// A log says that it was written at the end of time. The clock wrapped to 0 after that, or
    /// panicked.
    #[test]
    fn the_clock_does_not_wrap() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_stamp: u64::MAX, is_new: true });
        assert_eq!(set.tick(), u64::MAX);
    }

    /// With the smallest segments and four digits for their numbers a stream had 65,536 after 4
    /// GiB. The number of the next did not fit: the stream went on in segment 0, over bytes that
    /// records pointed to. There are 2^32 now; the last takes all the rest, as far as a tail can
    /// say, and never carries into the number.
    #[test]
    fn the_last_segment_takes_all_the_rest() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_stamp: 0, is_new: true });
        let (limit, region) = (container.superblock.segment_bytes, REGION_ALIGN);
        let tail = &set.shared.words()[TAILS];
        tail.store(pack_tail((SEGMENT_MAX - 1, limit)).unwrap(), Ordering::SeqCst);
        assert_eq!(set.reserve(0, limit, u64::MAX).unwrap(), (SEGMENT_MAX, 0));
        assert_eq!(set.reserve(0, 1, u64::MAX).unwrap(), (SEGMENT_MAX, limit));
        assert_eq!(set.reserve(0, 1, u64::MAX).unwrap(), (SEGMENT_MAX, limit + region));
        let last = u64::from(u32::MAX) * region;
        tail.store(pack_tail((SEGMENT_MAX, last - region)).unwrap(), Ordering::SeqCst);
        assert_eq!(set.reserve(0, 1, u64::MAX).unwrap(), (SEGMENT_MAX, last - region));
        assert_eq!(set.reserve(0, 1, u64::MAX).unwrap_err().errno(), Errno::FBIG);
        assert_eq!(unpack_tail(tail.load(Ordering::SeqCst)), (SEGMENT_MAX, last));
        assert_eq!(
            (pack_tail((7, last + 1)), pack_tail((7, 1)).map(unpack_tail)),
            (None, Some((7, region)))
        );
    }
}
