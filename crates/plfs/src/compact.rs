//! L5: rewriting a file so that its storage holds what the file has, in order, and nothing else
//! (FORMAT.md section 7).

use std::ops::ControlFlow;

use plfs_format::index_log::Record;
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::{Bad, summary};
use plfs_index::{BLOCK_RECORDS, Folder, Found, Run, Stamped, block_of, in_blocks};

use crate::catalog::{self, Index, Totalizer, Totals};
use crate::config::Config;
use crate::container::{Container, log_sets, write_clock};
use crate::error::{At, Error, Result};
use crate::lifecycle::{self, Hold};
use crate::log::{CommitHorizon, DataLog, Durability, LogSet, Moved, Placed, Wanted};
use crate::read::{SegmentFiles, fetch};
use crate::store::{self, Errno, Links};
use crate::sync::Arc;
use crate::write::Identity;

/// Bytes that are copied at once. 8 MiB: two objects of CephFS, some ten requests in flight of a
/// disk.
const WINDOW_BYTES: u64 = 8 << 20;
/// How often larger stamps are tried than those of writers who came and went meanwhile.
const TRIES: usize = 8;

/// What a file takes and what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that all its data logs take on their backends.
    pub stored_bytes: u64,
    /// Bytes that the file has: its size without holes.
    pub live_bytes: u64,
}

impl Usage {
    /// Bytes that a compaction frees.
    pub fn dead_bytes(&self) -> u64 {
        self.stored_bytes.saturating_sub(self.live_bytes)
    }
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes copied: all that the file has.
    pub copied_bytes: u64,
    /// Bytes that its data logs took on their backends before.
    pub stored_before: u64,
    /// And after. More than was copied if other users' log sets could not be removed, or somebody
    /// came and wrote.
    pub stored_after: u64,
}

/// Whether the last writer to leave should compact the file, going by what it sums up: it is small,
/// most of its logs is dead, and they can be removed by this user. Costs nothing unless the logs
/// take far more than the file, then a listing and a stat for each log set.
pub(crate) fn is_worth(container: &Container, config: &Config, totals: &Totals) -> bool {
    let most = config.compact_bytes;
    if most == 0
        || container.superblock.has_base
        || totals.size > most
        || totals.stored_bytes < totals.size.saturating_mul(4).saturating_add(most)
    {
        return false;
    }
    // Other users' log sets would stay, and each closer would try again.
    let store = container.store.as_ref();
    let can_go = |name: &Name| match name {
        Name::LogSet(set) => store
            .stat(&container.path(&name::log_set(*set)), Links::Stay)
            .is_ok_and(|stat| lifecycle::is_removable(store, &stat)),
        _ => true,
    };
    container.list().is_ok_and(|names| names.iter().all(can_go))
}

/// Says what compacting would free. Loads the index and looks at each data log.
pub(crate) fn usage(container: &Container) -> Result<Usage> {
    let mut index = Index::load(container)?;
    let mut live_bytes = 0;
    walk(container, &mut index, |_, pieces| {
        live_bytes += pieces.iter().map(|piece| piece.length).sum::<u64>();
        Ok(())
    })?;
    Ok(Usage { stored_bytes: stored_bytes(container)?, live_bytes })
}

/// Compacts the file. `progress` is told the bytes copied so far, at each [`WINDOW_BYTES`], and may
/// end it: EINTR.
///
/// EBUSY if somebody has it open for writing. Writers may come while it runs; readers are not
/// disturbed. Takes room for a second copy of what the file has until it is done. Durable on
/// return; whatever ends it before leaves the file as it was.
pub(crate) fn compact(
    container: &Arc<Container>,
    config: &Config,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Compacted> {
    compact_to(container, config, None, progress)
}

/// [`compact`] by a process that has the file open and keeps it so: on storage that machines share
/// nobody sees that. It takes the container away when it closes the file, if that has no name then.
pub(crate) fn compact_in_use(container: &Arc<Container>, config: &Config) -> Result<Compacted> {
    copy(container, config, None, &mut |_| ControlFlow::Continue(()))
}

/// [`compact`] with its logs on these backends, whatever those of the file are.
pub(crate) fn compact_to(
    container: &Arc<Container>,
    config: &Config,
    backends: Option<&[u16]>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Compacted> {
    let done = copy(container, config, backends, progress);
    // Whoever removed the last name meanwhile has left the container to us, who held it.
    let removed = lifecycle::remove_if_nameless(container, config.shared_memory.as_deref());
    done.and_then(|done| removed.map(|_| done))
}

fn copy(
    container: &Arc<Container>,
    config: &Config,
    backends: Option<&[u16]>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Compacted> {
    if container.superblock.has_base {
        let why = "it was a plain file before, and nobody can tell whether a program still writes \
                   it in place; copy it to a new file instead";
        return Err(Error::refused(Errno::BUSY, "compact", &container.dir, why));
    }
    let names = container.list()?;
    if catalog::has_owner(&names)
        && (!lifecycle::end_the_dead(container, config, &names)?
            || catalog::has_owner(&container.list()?))
    {
        return busy(container);
    }
    if lifecycle::has_lost_records(container) {
        let bad = Bad::new(
            summary::OFFSET,
            "its index logs have fewer records than this summary counts: put the lost logs back, \
             or copy what is left",
        );
        return Err(Error::Corrupt { path: container.path(name::SUPER), bad });
    }
    // What is lost must not be made durable as it is: then nobody could tell any more.
    let sets = log_sets(&names);
    for set in sets.iter().filter(|set| names.contains(&Name::Unsynced(**set))) {
        crate::log::must_be_synced(container, *set)?;
    }
    // Its truncate would hide what a lost index log says, if that is put back.
    for set in sets {
        if let Some(path) = crate::log::unexplained(container, set)? {
            return Err(Error::refused(Errno::IO, "compact", &path, lifecycle::UNEXPLAINED));
        }
    }
    let stored_before = stored_bytes(container)?;
    let _hold = Hold::take(container, config.shared_memory.as_deref())?;
    // Without shared memory: nobody else appends to the set.
    let alone = Config { shared_memory: None, ..config.clone() };
    let identity = Identity::of_this_process(container.store.user());
    let set = Arc::new(LogSet::join(
        container.clone(),
        &alone,
        CommitHorizon { max_stamp: 0, is_new: true },
        Wanted::New,
        || identity.mark(),
        catalog::complete,
    )?);
    let copied = Copier::new(container, config, &set, identity, backends)
        .and_then(|copier| copier.run(progress));
    let cleared = match &copied {
        Ok((_, dead)) => lifecycle::remove_stale_sets(container, set.id(), *dead),
        // In vain: nothing of it was needed yet.
        Err(_) => lifecycle::remove_log_sets(container, [set.id()]),
    };
    let left = match Arc::into_inner(set) {
        Some(set) => set.leave(),
        None => Ok(false),
    };
    let (copied_bytes, _) = copied?;
    cleared?;
    if left? {
        lifecycle::sum_up(container)?;
    }
    Ok(Compacted { copied_bytes, stored_before, stored_after: stored_bytes(container)? })
}

fn busy<T>(container: &Container) -> Result<T> {
    Err(Error::refused(
        Errno::BUSY,
        "compact",
        &container.dir,
        "it is open for writing (`plfs stat` says by whom)",
    ))
}

/// The names in a container but for a log set.
fn without(mut names: Vec<Name>, set: u32) -> Vec<Name> {
    names.retain(|name| *name != Name::LogSet(set));
    names
}

/// The bytes of a file on their way into a new log set.
struct Copier<'a> {
    container: &'a Arc<Container>,
    set: &'a Arc<LogSet>,
    identity: Identity,
    index: Index,
    /// Stamps of the truncate to nothing, of what is copied, of the truncate to the file's size,
    /// and of a hole that says how far it reaches by then.
    stamps: [u64; 4],
    /// One for each backend that one log set can have data on.
    streams: Vec<Stream>,
}

struct Stream {
    data: DataLog,
    folder: Folder,
}

impl<'a> Copier<'a> {
    /// Makes sure that all who write from now on are younger, and learns what the file has.
    fn new(
        container: &'a Arc<Container>,
        config: &Config,
        set: &'a Arc<LogSet>,
        identity: Identity,
        backends: Option<&[u16]>,
    ) -> Result<Copier<'a>> {
        for _ in 0..TRIES {
            let stamps = [set.tick(), set.tick(), set.tick(), set.tick()];
            write_clock(container, stamps[3], true)?;
            let names = container.list()?;
            if names.iter().any(|name| matches!(name, Name::OpenMark(other) if *other != set.id()))
            {
                return busy(container);
            }
            let others = without(names, set.id());
            let mut index = Index::begin(container, &others)?;
            let is_whole = index.finish(container, &others)?;
            if is_whole && index.max_stamp() < stamps[0] && stamps.is_sorted_by(|a, b| a < b) {
                let all = match backends {
                    Some(backends) => backends.len(),
                    None => container.targets(set.id(), 0)?.len(),
                };
                let (container_of, budget) = (|| container.clone(), config.buffer_bytes);
                let stream = |_| Stream {
                    data: match backends {
                        Some(on) => DataLog::on(container_of(), set.clone(), budget, on.to_vec()),
                        None => DataLog::new(container_of(), set.clone(), budget),
                    },
                    folder: Folder::new(),
                };
                let streams = all.min(container.superblock.streams.into());
                return Ok(Copier {
                    container,
                    set,
                    identity,
                    index,
                    stamps,
                    streams: (0..streams).map(stream).collect(),
                });
            }
            set.observe(index.max_stamp());
        }
        Err(Error::invalid(
            Errno::AGAIN,
            "writers come and go too often to compact the file, or its logs say that they are \
             from the end of time",
        ))
    }

    /// Copies everything and makes everything else dead. Gives the bytes copied and the stamp below
    /// which all is dead.
    fn run(mut self, progress: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<(u64, u64)> {
        let [dead, _, size_is, size_is_still] = self.stamps;
        self.set.append_index(&[], &[self.identity.record()], Durability::Durable)?;
        let (mut copied, mut end) = (0, 0);
        let (segments, mut buf, mut index) =
            (SegmentFiles::default(), Vec::new(), std::mem::take(&mut self.index));
        walk(self.container, &mut index, |index, pieces| {
            let from = pieces[0].logical;
            end = pieces[pieces.len() - 1].logical + pieces[pieces.len() - 1].length;
            buf.resize((end - from) as usize, 0);
            fetch(from, &mut buf, pieces.iter().copied(), |piece, out| {
                let at = index.segment(piece.segment).ok_or_else(|| {
                    Error::invalid(Errno::IO, "the index names a data log that is not listed")
                })?;
                segments.read(self.container, at, piece.physical, out)
            })
            .map_err(|short| short.error)?;
            for (start, length) in contiguous(pieces) {
                let at = (start - from) as usize;
                self.write(start, &buf[at..at + length as usize])?;
                copied += length;
            }
            match progress(copied) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => {
                    Err(Error::invalid(Errno::INTR, "interrupted; the file is as it was"))
                }
            }
        })?;
        self.commit()?;
        let size = index.eof().max(self.reached()?);
        if end < size {
            self.truncate(size, size_is)?;
        }
        // All of it has to be durable before what says that it is all there is.
        self.set.sync_index(u64::MAX)?;
        self.container.store.sync_dir(&self.container.dir).at("sync", &self.container.dir)?;
        self.give_to_owner()?;
        self.truncate(0, dead)?;
        let reached = self.reached()?;
        if size < reached {
            self.reach(reached, size_is_still)?;
        }
        self.set.sync_index(u64::MAX)?;
        Ok((copied, dead))
    }

    fn truncate(&self, size: u64, stamp: u64) -> Result<()> {
        let record = Record::Truncate { size, stamp };
        self.set.append_index(&[], &[record], Durability::Durable)?;
        Ok(())
    }

    /// Makes the file reach so far at least, as who reserves room does: that cuts nothing which
    /// others have reserved since somebody looked.
    fn reach(&self, size: u64, stamp: u64) -> Result<()> {
        let hole = Stamped::new(Run::hole(size - 1, 1), stamp);
        let (segments, records) = block_of(&[], &[hole], self.identity.writer);
        self.set.append_index(&segments, &records, Durability::Durable)?;
        Ok(())
    }

    /// How far the file reaches by what others say. Room that is reserved while this runs has a
    /// stamp right behind the last cut, and the truncate to nothing hides it. Who reserves it looks
    /// at the logs behind his record: if this does not find that, he finds the truncate, and says
    /// it again.
    fn reached(&self) -> Result<u64> {
        let others = without(self.container.list()?, self.set.id());
        Ok(Totalizer::default().look_at_logs(self.container, &others)?.size)
    }

    fn write(&mut self, logical: u64, bytes: &[u8]) -> Result<()> {
        let (turn, stamp) =
            ((logical / WINDOW_BYTES) as usize % self.streams.len(), self.stamps[1]);
        let Stream { data, folder } = &mut self.streams[turn];
        let Placed { segment, physical, length } = if data.is_direct(bytes.len()) {
            let place = loop {
                let place = data.place(bytes.len() as u64)?;
                let written = store::write_full(place.file.as_ref(), bytes, place.physical)
                    .at("write the data log", &place.path);
                match written {
                    Err(error) if error.is_full() && data.leave_full(place.segment) => {}
                    other => break other.map(|()| place)?,
                }
            };
            data.wrote(&place, &[]);
            Placed { segment: place.segment, physical: place.physical, length: bytes.len() as u64 }
        } else {
            data.buffer(bytes, &mut |moved| relocate(folder, moved, stamp))?
        };
        folder.push(logical, length, segment, physical, || stamp);
        if folder.len() >= BLOCK_RECORDS {
            self.commit()?;
        }
        match bytes.split_at(length as usize).1 {
            [] => Ok(()),
            // There is no room for it, which its own write says.
            rest => self.write(logical + length, rest),
        }
    }

    /// Appends what was written to the index log, once it is durable: what the records repeat is
    /// dead to readers from then on.
    fn commit(&mut self) -> Result<()> {
        let stamp = self.stamps[1];
        for Stream { data, folder } in &mut self.streams {
            data.flush(&mut |moved| relocate(folder, moved, stamp))?;
            // All is durable before a record says so.
            data.take_sums();
        }
        self.set.sync_data()?;
        for Stream { data, folder } in &mut self.streams {
            let all: Vec<SegmentRef> = data.segments().collect();
            for runs in in_blocks(&folder.take(|| self.stamps[1])) {
                let (segments, records) = block_of(&all, runs, self.identity.writer);
                self.set.append_index(&segments, &records, Durability::Durable)?;
            }
        }
        Ok(())
    }

    /// An administrator's logs belong to the file's owner, who may go on with them, and remove
    /// them.
    fn give_to_owner(&self) -> Result<()> {
        let store = &self.container.store;
        let path = self.container.inode_path();
        let owner = store.stat(&path, Links::Stay).at("stat", &path)?;
        if owner.uid == store.user() || store.user() != 0 {
            return Ok(());
        }
        for dir in self.container.backend_dirs()? {
            let set = dir.join(name::log_set(self.set.id()));
            let files = match store.list(&set) {
                Err(Errno::NOENT) => continue,
                other => other.at("list", &set)?,
            };
            // On another backend the container's directory may be new.
            let above = (*dir != *self.container.dir).then_some(dir);
            let files = files.into_iter().map(|file| set.join(file.name));
            for path in files.chain([set.clone()]).chain(above) {
                store
                    .chown(&path, Some(owner.uid), Some(owner.gid), Links::Stay)
                    .at("set the owner of", &path)?;
            }
        }
        Ok(())
    }
}

fn relocate(folder: &mut Folder, Moved { from, length, to, .. }: Moved, stamp: u64) {
    folder.relocate(from, length, to, || stamp);
}

/// Calls `visit` with all that the file has, ascending, in windows of at most [`WINDOW_BYTES`],
/// none of which is empty. A damaged flat index is replaced by the logs on the way.
fn walk(
    container: &Container,
    index: &mut Index,
    mut visit: impl FnMut(&Index, &[Found]) -> Result<()>,
) -> Result<()> {
    let (mut at, mut pieces) = (0, Vec::new());
    loop {
        let from = index.next_data(at);
        let to = from.map_or(at, |from| {
            (from - from % WINDOW_BYTES).saturating_add(WINDOW_BYTES).min(index.eof())
        });
        index.lookup(from.unwrap_or(at), to, &mut pieces);
        if let Some(why) = index.is_broken() {
            index.rebuild_from_logs(container, why)?;
            continue;
        }
        match from {
            Some(from) if from < to => {
                if !pieces.is_empty() {
                    visit(index, &pieces)?;
                }
            }
            _ => return Ok(()),
        }
        at = to;
    }
}

/// Where `pieces` follow each other without a hole: beginnings and lengths.
fn contiguous(pieces: &[Found]) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for piece in pieces {
        match parts.last_mut() {
            Some((start, length)) if *start + *length == piece.logical => *length += piece.length,
            _ => parts.push((piece.logical, piece.length)),
        }
    }
    parts
}

/// What the data logs take on their backends, those included that no record names. Parts of a
/// region that nobody wrote take nothing on most file systems.
pub(crate) fn stored_bytes(container: &Container) -> Result<u64> {
    let mut sum = 0;
    for set in log_sets(container.list()?) {
        for dir in container.backend_dirs()? {
            let dir = dir.join(name::log_set(set));
            let files = match container.store.list(&dir) {
                Err(Errno::NOENT) => continue,
                other => other.at("list", &dir)?,
            };
            for file in files.iter().filter(|file| {
                file.name.to_str().is_some_and(|name| name::parse_data_log(name).is_some())
            }) {
                // One that goes meanwhile takes nothing.
                sum += container
                    .store
                    .stat(&dir.join(&file.name), Links::Stay)
                    .map_or(0, |stat| stat.len.min(stat.blocks.saturating_mul(512)));
            }
        }
    }
    Ok(sum)
}
