//! Compaction of a pack: all that its files show goes to a log set of its own, whose last block
//! says that all before it says nothing any more (FORMAT.md sections 7 and 11).

use std::ops::ControlFlow;

use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::pack::{FileId, Place, Record};
use plfs_format::sum;
use plfs_pack::{FileState, Write};

use super::index::complete;
use super::{Pack, State, data_log, nothing_moves};
use crate::config::Config;
use crate::container::{log_sets, write_clock};
use crate::error::{At, Error, Result};
use crate::lifecycle;
use crate::log::{
    CommitHorizon, DataLog, Durability, LogSet, Piece, Wanted, scan_pieces_at, unexplained,
};
use crate::store::{Errno, Links};
use crate::sync::{Arc, lock};
use crate::write::Identity;

/// How often a compactor takes larger stamps because somebody came and went.
const TRIES: usize = 8;

/// Records of a block. 4,096: half a megabyte.
const BLOCK_RECORDS: usize = 4096;

/// Bytes that are copied at once. 1 MiB.
const COPY_BYTES: u64 = 1 << 20;

/// What the files of a pack take, and what they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackUsage {
    /// Bytes of the data logs.
    pub stored_bytes: u64,
    /// Bytes that files show.
    pub live_bytes: u64,
}

impl PackUsage {
    /// Whether a compaction pays.
    pub fn is_compaction_due(&self) -> bool {
        plfs_pack::is_compaction_due(self.stored_bytes, self.live_bytes)
    }
}

impl Pack {
    /// What a compaction would free. Goes through all files, and looks at each data log.
    pub fn usage(&self) -> Result<PackUsage> {
        let state = &mut *lock(&self.state);
        self.look(state)?;
        let (mut usage, mut after) = (PackUsage::default(), Vec::new());
        while let Some((name, _)) = state.index.next(&after)? {
            for (_, file) in state.index.lookup(&name)? {
                let extents = file
                    .extents(|write| self.is_sound(&mut state.sound, &state.index.node, write))?;
                usage.live_bytes += extents.iter().map(|extent| extent.length).sum::<u64>();
            }
            after = name;
        }
        for set in log_sets(self.container.list()?) {
            for dir in self.container.backend_dirs()? {
                let dir = dir.join(name::log_set(set));
                for entry in self.container.store.list(&dir).unwrap_or_default() {
                    let is_data = |name: &str| name::parse_data_log(name).is_some();
                    if entry.name.to_str().is_some_and(is_data) {
                        let stat = self.container.store.stat(&dir.join(entry.name), Links::Stay);
                        usage.stored_bytes += stat.map_or(0, |stat| stat.len);
                    }
                }
            }
        }
        Ok(usage)
    }

    /// Frees what was removed, cut or written over. Leaves the node's log set first.
    ///
    /// EBUSY if another process writes the pack. Readers go on; writers may come meanwhile. Durable
    /// on return; whatever ends it before leaves the pack as it was.
    pub fn compact(&self) -> Result<()> {
        self.compact_to(None, &mut |_| ControlFlow::Continue(())).map(drop)
    }

    /// [`Pack::compact`] with its data on this backend, if one is given. `progress` is told the
    /// bytes copied so far, and may end it: EINTR. The bytes copied.
    pub(crate) fn compact_to(
        &self,
        backend: Option<u16>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let state = &mut *lock(&self.state);
        self.leave_locked(state)?;
        if self.is_written()? {
            return self.busy();
        }
        // A page into which it looked as a guest does not know what was said since.
        self.is_guest(state);
        // What it says last would hide what a lost index log says, if that is put back.
        for set in log_sets(&self.container.list()?) {
            if let Some(path) = unexplained(&self.container, set)? {
                return Err(Error::refused(Errno::IO, "compact", &path, lifecycle::UNEXPLAINED));
            }
        }
        // Without shared memory: nobody else appends to the set.
        let alone = Config { shared_memory: None, ..self.config.as_ref().clone() };
        let identity = Identity::of_this_process(self.container.store.user());
        let set = Arc::new(LogSet::join(
            self.container.clone(),
            &alone,
            CommitHorizon { max_stamp: 0, is_new: true },
            Wanted::New,
            || identity.mark(),
            complete,
        )?);
        let copied = self.copy(state, &set, backend, progress);
        let cleared = match &copied {
            Ok((dead, _)) => lifecycle::remove_stale_sets(&self.container, set.id(), *dead),
            // In vain: nothing of it was needed yet.
            Err(_) => lifecycle::remove_log_sets(&self.container, [set.id()]),
        };
        let left = match Arc::into_inner(set) {
            Some(set) => set.leave().map(drop),
            None => Ok(()),
        };
        state.index.load()?;
        self.heed(state);
        let (_, copied) = copied?;
        cleared.and(left)?;
        self.segments.clear();
        // A tree is a cache: who may not write one leaves it to others.
        let _ = self.fold_locked(state);
        Ok(copied)
    }

    /// Removes what a compaction has left that died, or to which a backend was not there: log sets
    /// on their way out of which all was said to be dead.
    pub(crate) fn remove_what_has_gone(&self) -> Result<()> {
        let (state, container) = (&mut *lock(&self.state), &self.container);
        state.index.load()?;
        for name in container.list()? {
            let Name::Gone(set) = name else { continue };
            let (mut youngest, mut is_whole) = (0, true);
            let path = container.path(&name::gone(set)).join("index");
            let scanned = scan_pieces_at(container, &path, set, 0, |_, piece| {
                match piece {
                    Piece::Block(header, _) => youngest = youngest.max(header.stamp),
                    Piece::Gap { torn, .. } => is_whole &= torn,
                    Piece::Refused(_) => is_whole = false,
                }
                Ok(())
            })?;
            if scanned.is_some() && is_whole && youngest <= state.index.clear {
                lifecycle::remove_gone(container, set)?;
            }
        }
        Ok(())
    }

    fn busy<T>(&self) -> Result<T> {
        Err(Error::refused(Errno::BUSY, "compact", &self.dir(), "it is open for writing"))
    }

    /// Copies all that shows, and says that all before is dead: gives the stamp up to which, and
    /// the bytes.
    fn copy(
        &self,
        state: &mut State,
        set: &Arc<LogSet>,
        backend: Option<u16>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(u64, u64)> {
        let dead = self.stamp_of_all(state, set)?;
        let budget = self.config.buffer_bytes;
        let data = match backend {
            Some(id) => DataLog::on(self.container.clone(), set.clone(), budget, vec![id]),
            None => data_log(&self.container, set, budget),
        };
        let (segments, records) = (Vec::new(), Vec::new());
        let mut copier = Copier { pack: self, data, set, segments, records, copied: 0 };
        let mut after = Vec::new();
        while let Some((name, _)) = state.index.next(&after)? {
            for (id, file) in state.index.lookup(&name)? {
                copier.copy(state, id, file)?;
            }
            after = name;
            if progress(copier.copied).is_break() {
                return Err(Error::invalid(Errno::INTR, "interrupted; the pack is as it was"));
            }
        }
        copier.commit()?;
        let copied = copier.copied;
        // All of it has to be durable before what says that it is all there is.
        set.sync_index(u64::MAX)?;
        let dir = &self.container.dir;
        self.container.store.sync_dir(dir).at("sync", dir)?;
        let clear = vec![Record::Clear { stamp: dead }];
        set.append_pack(Durability::Durable, |_| Ok((Vec::new(), clear, ())))?;
        set.sync_index(u64::MAX)?;
        Ok((dead, copied))
    }

    /// A stamp that all that is there is before, and all who write from now on are behind; what is
    /// there is known.
    fn stamp_of_all(&self, state: &mut State, set: &LogSet) -> Result<u64> {
        for _ in 0..TRIES {
            let (dead, behind) = (set.tick(), set.tick());
            write_clock(&self.container, behind, true)?;
            let is_other =
                |name: &Name| matches!(name, Name::OpenMark(other) if *other != set.id());
            if self.container.list()?.iter().any(is_other) {
                return self.busy();
            }
            state.index.load()?;
            if state.index.max_stamp < dead && dead < behind {
                return Ok(dead);
            }
            set.observe(state.index.max_stamp);
        }
        Err(Error::invalid(
            Errno::AGAIN,
            "writers come and go too often to compact the pack, or its logs say that they are from \
             the end of time",
        ))
    }
}

/// Files on their way into a new log set.
struct Copier<'a> {
    pack: &'a Pack,
    set: &'a Arc<LogSet>,
    data: DataLog,
    segments: Vec<SegmentRef>,
    records: Vec<Record>,
    copied: u64,
}

impl Copier<'_> {
    fn copy(&mut self, state: &mut State, id: FileId, file: FileState) -> Result<()> {
        let extents =
            file.extents(|write| self.pack.is_sound(&mut state.sound, &state.index.node, write))?;
        let mut writes = Vec::new();
        for extent in extents {
            let mut done = 0;
            while done < extent.length {
                let mut bytes = vec![0; (extent.length - done).min(COPY_BYTES) as usize];
                let at = extent.physical + done;
                let (segments, container) = (&self.pack.segments, &self.pack.container);
                segments.read(container, extent.segment, at, &mut bytes)?;
                let logical = extent.logical + done;
                done += bytes.len() as u64;
                self.copied += bytes.len() as u64;
                writes.push(self.write(logical, &bytes, extent.place)?);
            }
        }
        let copied = file.copied(writes);
        let segments = &mut self.segments;
        let number = |segment: SegmentRef| {
            let known = segments.iter().position(|known| *known == segment);
            known.unwrap_or_else(|| {
                segments.push(segment);
                segments.len() - 1
            }) as u16
        };
        let records = copied.records(id, number);
        // A file that was renamed was created first, by the name that it had then.
        if let Some(Record::File { bound, mode, uid, gid, former, .. }) = records.first()
            && *bound != id
        {
            let (mode, uid, gid, name) = (*mode, *uid, *gid, former.clone());
            let former = Box::default();
            self.records.push(Record::File { id, bound: id, mode, uid, gid, name, former });
        }
        self.records.extend(records);
        match self.records.len() >= BLOCK_RECORDS {
            true => self.commit(),
            false => Ok(()),
        }
    }

    fn write(&mut self, logical: u64, bytes: &[u8], place: Place) -> Result<Write> {
        let placed = self.data.buffer(bytes, &mut nothing_moves)?;
        if (placed.length as usize) < bytes.len() {
            let path = &self.pack.container.dir;
            return Err(Errno::NOSPC).at("write the data log of", path);
        }
        let mut segments = self.data.segments();
        let Some(segment) = segments.nth(placed.segment as usize) else {
            return Err(Error::invalid(Errno::IO, "the data log has no such segment"));
        };
        let (length, physical, crc) = (bytes.len() as u32, placed.physical, sum(bytes));
        Ok(Write { logical, length, segment, physical, place, crc, doubt: 0 })
    }

    /// Appends what was copied, once its data is durable.
    fn commit(&mut self) -> Result<()> {
        self.data.flush(&mut nothing_moves)?;
        drop(self.data.take_sums());
        self.set.sync_data()?;
        let (segments, records) =
            (std::mem::take(&mut self.segments), std::mem::take(&mut self.records));
        self.set.append_pack(Durability::Durable, |_| Ok((segments, records, ())))?;
        Ok(())
    }
}
