//! What a container's logs add up to: size, bytes, stamps. From the summary if nobody writes, else
//! by replaying the index logs, which builds no index.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use plfs_format::flat_index;
use plfs_format::index_log::{Block, Header, Record, decode_block};
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::summary::{self, Summary};
use plfs_format::superblock::FILE_BYTES;

use super::{Index, flatten_if_worth, load_if_cheap};
use crate::container::{Container, log_sets};
use crate::error::{At, Error, Result, is_of_descriptors};
use crate::log::{self, Carried};
use crate::store::machine::random_u64;
use crate::store::{self, Errno, Open, Time};
use crate::sync::Arc;

/// Totals of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Size of the logical file, bytes.
    pub size: u64,
    /// Bytes of all data logs up to the last one that a record names: overwritten bytes and
    /// unfilled regions included.
    pub stored_bytes: u64,
    /// Largest stamp.
    pub max_stamp: u64,
    /// Stamp of the last truncate; 0 if there is none, or if they came from a summary.
    pub cut: u64,
    /// Bytes of index logs.
    pub index_bytes: u64,
    /// Records in index logs, writer records included.
    pub records: u64,
    /// Log sets.
    pub log_sets: u32,
    /// Log sets whose index log has nothing or is not there; 0 if they came from a summary.
    pub silent_sets: u32,
    /// Data logs that records name.
    pub data_logs: u32,
    /// Whether they came from a valid summary.
    pub from_summary: bool,
}

/// Keeps totals up to date: the summary while it is valid, else the index logs, of which each look
/// reads only what is new.
#[derive(Debug, Default)]
pub struct Totalizer {
    summary: Option<Summary>,
    /// A summary that counts no more.
    void: Option<Summary>,
    /// A time of the container's directory for which there was no summary, though it may be a
    /// token.
    bare: Option<Time>,
    scanned: HashMap<u32, u64>,
    size: SizeReplay,
    max_stamp: u64,
    records: u64,
    /// Largest physical end in each segment.
    segments: HashMap<SegmentRef, u64>,
}

impl Totalizer {
    /// Nothing known but perhaps a summary, which may be void.
    #[inline]
    pub fn new(summary: Option<Summary>) -> Totalizer {
        // Not from a default, which would be moved.
        Totalizer {
            summary,
            void: None,
            bare: None,
            scanned: HashMap::new(),
            size: SizeReplay::default(),
            max_stamp: 0,
            records: 0,
            segments: HashMap::new(),
        }
    }

    /// The summary, which may be void by now.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// The summary, if it counts at this moment. One stat; if another has been written since, or
    /// this machine had an old copy of the superblock, one open and one read.
    pub(crate) fn settled(&mut self, container: &Container) -> Result<Option<Summary>> {
        self.settled_at(container).map(|(summary, _)| summary)
    }

    /// [`Totalizer::settled`], and the time of the container's directory.
    fn settled_at(&mut self, container: &Container) -> Result<(Option<Summary>, Time)> {
        let time = container.time()?;
        let counts =
            |summary: &Summary| time == Time { sec: summary.token_sec, nsec: summary.token_nsec };
        if !self.summary.as_ref().is_some_and(counts) {
            self.void = self.summary.take().or(self.void.take());
            if TOKEN_SECONDS.contains(&time.sec) && self.bare != Some(time) {
                // As good as one from before the stat: what has the directory's time as its token
                // was true then, or has even what came after.
                self.summary = read_summary(container).ok().flatten().filter(counts);
                self.bare = self.summary.is_none().then_some(time);
            }
        }
        Ok((self.summary.clone(), time))
    }

    /// The totals as of the last commit. One stat if the summary is valid; else a listing, unless
    /// the one before still counts, a look at each log and a read of what is new.
    pub fn look(&mut self, container: &Container) -> Result<Totals> {
        let (summary, time) = self.settled_at(container)?;
        match summary {
            // Somebody may go on writing a plain file in place after it became a container, and die
            // before he notices: then a cut in the logs says whether that counts.
            Some(summary) if container.base_len()?.is_some_and(|len| len > summary.size) => {
                self.look_at_logs(container, &container.list_at(time)?)
            }
            Some(summary) => Ok(Totals {
                size: summary.size,
                stored_bytes: summary.stored_bytes,
                max_stamp: summary.max_stamp,
                cut: 0,
                index_bytes: summary.index_bytes,
                records: summary.records,
                log_sets: summary.log_sets,
                silent_sets: 0,
                data_logs: summary.data_logs,
                from_summary: true,
            }),
            None => {
                let names = container.list_at(time)?;
                match carry_left(container, &names)? {
                    true => self.look_at_logs(container, &container.list()?),
                    false => self.look_at_logs(container, &names),
                }
            }
        }
    }

    /// The totals by the index logs among these names, whatever a summary says.
    pub(crate) fn look_at_logs(&mut self, container: &Container, names: &[Name]) -> Result<Totals> {
        let mut totals = self.look_once(container, names)?;
        while totals.is_none() {
            *self = Totalizer::default();
            totals = self.look_once(container, &container.list()?)?;
        }
        Ok(totals.unwrap_or_default())
    }

    /// `None` if a log set was removed meanwhile.
    fn look_once(&mut self, container: &Container, names: &[Name]) -> Result<Option<Totals>> {
        let sets = log_sets(names);
        if self.scanned.keys().any(|set| !sets.contains(set)) {
            *self = Totalizer::default();
        }
        self.begin_with_flat(container, names)?;
        let (mut totals, mut missing) = (Totals::default(), Vec::new());
        for set in sets {
            let from = self.scanned.get(&set).copied().unwrap_or(0);
            let scan = log::scan(container, set, from, |offset, header, at| {
                match decode_block(header, offset, at) {
                    Ok(block) => block.records.iter().for_each(|(_, record)| {
                        self.size.push_record(set, record);
                        if let Record::Run(run) = record {
                            let at = block.segments[usize::from(run.segment)];
                            let end = self.segments.entry(at).or_default();
                            *end = (*end).max(run.physical_end());
                        }
                    }),
                    // Damage that reading will report; the header still tells a size.
                    Err(_) => self.size.push((header.stamp, set), header.eof, header.truncates),
                }
                self.max_stamp = self.max_stamp.max(header.stamp);
                // A hostile summary has any number of them.
                self.records = self.records.saturating_add(header.records as u64);
                Ok(())
            })?;
            if scan.is_none() {
                missing.push(set);
            }
            let log::Scan { end, length } = scan.unwrap_or(log::Scan { end: from, length: from });
            self.scanned.insert(set, end);
            totals.log_sets += 1;
            totals.silent_sets += u32::from(length == 0);
            totals.index_bytes = totals.index_bytes.saturating_add(length);
        }
        if container.has_lost(&missing)? || self.size.is_overtaken {
            return Ok(None);
        }
        let base = container.base_len()?;
        if let Some(len) = base {
            self.segments.insert(SegmentRef::BASE, len);
        }
        totals.data_logs = self.segments.len() as u32;
        // Corrupt logs may have any lengths: their sum must not overflow.
        totals.stored_bytes = self.segments.values().fold(0, |sum, end| sum.saturating_add(*end));
        totals.cut = self.size.last_cut();
        (totals.size, totals.max_stamp, totals.records) =
            (self.size.size(), self.max_stamp, self.records);
        if self.size.cut.is_none() {
            // Below all records, so a truncate hides what it has; and sets the size.
            totals.size = totals.size.max(base.unwrap_or(0));
        }
        Ok(Some(totals))
    }

    /// Spares the first look what a flat index has of the logs, if all of that was there when a
    /// summary was written: so the file was left by all since, and nobody writes now who has not
    /// seen it. Each process that appends a line to a file asks once how long the file is.
    fn begin_with_flat(&mut self, container: &Container, names: &[Name]) -> Result<()> {
        let Some(void) = self.void.take() else { return Ok(()) };
        if !self.scanned.is_empty() || container.superblock.has_base {
            return Ok(());
        }
        let index = Index::begin(container, names)?;
        let totals = index.totals();
        if index.flat().0 && index.knows_cut() && totals.max_stamp <= void.max_stamp {
            self.size = SizeReplay::beginning_with(&totals);
            (self.max_stamp, self.records) = (totals.max_stamp, totals.records);
            (self.segments, self.scanned) = index.read();
        }
        Ok(())
    }
}

/// Whether the file is what it was when `summary` was written, which may be an old one; no if there
/// was none. Each write, truncate and compaction has stamps of its own.
pub fn is_as_summed(container: &Container, summary: &Option<Summary>) -> Result<bool> {
    let Some(then) = summary else { return Ok(false) };
    let now = Totalizer::new(None).look(container)?;
    Ok((now.max_stamp, now.size) == (then.max_stamp, then.size))
}

/// Replays records in any order of arrival (FORMAT.md section 4, "Size").
#[derive(Debug, Default)]
struct SizeReplay {
    /// The last truncate: its place in the order and the size it set.
    cut: Option<((u64, u32), u64)>,
    /// Ends of later runs, in order, as far as they matter: each is larger than all behind it.
    ends: BTreeMap<(u64, u32), u64>,
    /// What it began with has no orders up to this stamp, if it is not 0.
    floor: u64,
    /// The stamp of the last truncate in that.
    cut_before: u64,
    /// A record came that is not younger than that.
    is_overtaken: bool,
}

impl SizeReplay {
    /// Of a file that had these totals when all records up to their largest stamp had been
    /// replayed.
    fn beginning_with(totals: &Totals) -> SizeReplay {
        let floor = totals.max_stamp;
        SizeReplay {
            cut: Some(((floor, u32::MAX), totals.size)),
            floor,
            cut_before: totals.cut,
            ..SizeReplay::default()
        }
    }

    /// The stamp of the last truncate; 0 if there is none.
    fn last_cut(&self) -> u64 {
        match self.cut {
            Some(((stamp, _), _)) if stamp > self.floor => stamp,
            _ => self.cut_before,
        }
    }

    fn push_record(&mut self, set: u32, record: &Record) {
        match record {
            // Decoding has checked that there is an end.
            Record::Run(run) => self.push((run.stamp, set), run.end().unwrap_or(0), false),
            Record::Hole { logical, length, stamp, .. } => {
                self.push((*stamp, set), logical + length, false)
            }
            Record::Truncate { size, stamp } => self.push((*stamp, set), *size, true),
            Record::Writer { .. } | Record::Sums { .. } => {}
        }
    }

    fn push(&mut self, key: (u64, u32), end: u64, truncates: bool) {
        self.is_overtaken |= self.floor > 0 && key.0 <= self.floor;
        if self.cut.is_some_and(|(cut, _)| key < cut) {
            return;
        }
        if truncates {
            self.cut = Some((key, end));
            self.ends = self.ends.split_off(&key);
        } else if self.ends.range(key..).next().is_none_or(|(_, later)| *later < end) {
            while let Some((&before, _)) =
                self.ends.range(..key).next_back().filter(|(_, known)| **known <= end)
            {
                self.ends.remove(&before);
            }
            self.ends.insert(key, end);
        }
    }

    fn size(&self) -> u64 {
        let cut = self.cut.map_or(0, |(_, size)| size);
        self.ends.first_key_value().map_or(cut, |(_, end)| cut.max(*end))
    }
}

/// If a log set has an owner, going by these names: what processes of this node had written that
/// are dead, and had not committed, goes to the logs. True if others have to be read now, and the
/// names listed again.
pub(super) fn carry_left(container: &Container, names: &[Name]) -> Result<bool> {
    if !has_owner(names) {
        return Ok(false);
    }
    match log::carry_left(container)? {
        Carried::Nothing => Ok(false),
        Carried::InLogs => Ok(true),
        Carried::InLogsAsLast => {
            // The last one owes it. Without it readers look at the logs.
            if let Ok(file) = open_super(container) {
                let _ = write_summary(container, file.as_ref(), &container.list()?);
            }
            Ok(true)
        }
    }
}

/// The names in the container, after what the dead have left is [in the logs](carry_left).
pub(super) fn list_with_what_was_left(container: &Container) -> Result<Vec<Name>> {
    let names = container.list()?;
    match carry_left(container, &names)? {
        true => container.list(),
        false => Ok(names),
    }
}

/// Whether a log set has an owner, going by the names in the container.
pub fn has_owner(names: &[Name]) -> bool {
    names.iter().any(|name| matches!(name, Name::OpenMark(_)))
}

/// Writes the summary if no owner is left, and before it a flat index if that is worth it; the last
/// closer of a node calls it after it removed its open mark (FORMAT.md section 5), with the
/// container's listing since, and its superblock open for reading and writing. What it sums up;
/// `None` if it did not.
///
/// Where logs are lost, or nobody can tell now, the summary from before stays: it counts what is
/// not there, which keeps `check` and `compact` from taking the data of the lost logs for garbage.
pub fn write_summary(
    container: &Container,
    file: &dyn store::StoreFile,
    names: &[Name],
) -> Result<Option<Totals>> {
    let before = match container.local {
        true => read_summary_of(container, file),
        // Only an open makes sure that what is known of a file is not old.
        false => read_summary(container),
    };
    let Ok(before) = before else { return Ok(None) };
    // The flat index comes first, because a file of its own moves the directory's time. Whoever
    // writes while it is made is found by the second look.
    let mut index = load_if_cheap(container, names);
    let index_bytes = before.as_ref().map_or(0, |summary| summary.index_bytes);
    let short = index.as_mut().map(|index| flatten_if_worth(container, index, index_bytes));
    let short: Arc<[u8]> = short.unwrap_or_default().into();
    for _ in 0..SUMMARY_TRIES {
        let Some(token) = take_token(container)? else { return Ok(None) };
        let names = container.list()?;
        if has_owner(&names) {
            return Ok(None);
        }
        let current = index.take().filter(|index| index.has_all(&names)).and_then(|mut index| {
            (index.read_logs(container, &names).unwrap_or(false) && index.is_broken().is_none())
                .then_some(index)
        });
        let (totals, flat) = match &current {
            Some(index) => (index.totals(), index.whole_flat()),
            None => (Totalizer::default().look_at_logs(container, &names)?, 0),
        };
        index = current;
        if are_logs_lost(container, before.as_ref(), &totals, &names)? {
            return Ok(None);
        }
        let summary = Summary {
            token_sec: token.sec,
            token_nsec: token.nsec,
            log_sets: totals.log_sets,
            data_logs: totals.data_logs,
            size: totals.size,
            stored_bytes: totals.stored_bytes,
            max_stamp: totals.max_stamp,
            index_bytes: totals.index_bytes,
            records: totals.records,
            flat,
            flat_index: if !short.is_empty() && flat == flat_index::id(&short) {
                short.clone()
            } else {
                [].into()
            },
        };
        // Several clients may each find that nobody is left. The one with the last token writes;
        // who has written over its summary all the same begins again.
        if !has_token(container, token)? {
            return Ok(None);
        }
        store::write_full(file, &summary.encode(&container.superblock.uuid), summary::OFFSET)
            .at("write the summary of", &container.path(name::SUPER))?;
        if has_token(container, token)? {
            return Ok(Some(totals));
        }
    }
    Ok(None)
}

/// Whether an index that has the logs, and adds up to `totals`, lacks some that the summary counts.
/// Rightly so if power was cut before they were durable: so reads give what there is. Costs a read;
/// only if there seem to be fewer records, the logs.
pub(crate) fn lacks_logs(container: &Container, totals: &Totals) -> Result<bool> {
    let before = read_summary(container).ok().flatten();
    match before.filter(|before| before.records > totals.records) {
        Some(before) => are_logs_lost(container, Some(&before), totals, &container.list()?),
        None => Ok(false),
    }
}

/// Whether index logs are lost, going by a summary from before these names were listed, and by data
/// that no index log explains. Reads the logs once more where there are not as many as then, or not
/// as many records.
fn are_logs_lost(
    container: &Container,
    before: Option<&Summary>,
    totals: &Totals,
    names: &[Name],
) -> Result<bool> {
    let sets = log_sets(names);
    if totals.silent_sets > 0 {
        for set in &sets {
            if log::unexplained(container, *set)?.is_some() {
                return Ok(true);
            }
        }
    }
    let is_less =
        |before: &&Summary| before.log_sets != totals.log_sets || before.records > totals.records;
    let Some(before) = before.filter(is_less) else { return Ok(false) };
    let mut recount = Recount::of(Some(before));
    for set in sets {
        log::scan(container, set, 0, |offset, header, bytes| {
            recount.push(&header);
            if header.truncates
                && let Ok(block) = decode_block(header, offset, bytes)
            {
                recount.push_truncates(&block);
            }
            Ok(())
        })?;
    }
    Ok(recount.is_short_of(before))
}

/// Counts what the index logs have of the records that a summary counts. If there are fewer, index
/// logs are lost: this is the rule for all who want to know.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    /// The summary does not count blocks with larger stamps.
    last: u64,
    records: u64,
    emptied: u64,
}

impl Recount {
    /// Counts all records if there is no summary.
    pub(crate) fn of(summary: Option<&Summary>) -> Recount {
        Recount {
            last: summary.map_or(u64::MAX, |summary| summary.max_stamp),
            ..Recount::default()
        }
    }

    /// Counts the records of a block.
    pub(crate) fn push(&mut self, header: &Header) {
        if header.stamp <= self.last {
            self.records += u64::from(header.records);
        }
    }

    /// Looks for truncates to nothing in a block.
    pub(crate) fn push_truncates(&mut self, block: &Block) {
        for (_, record) in &block.records {
            if let Record::Truncate { size: 0, stamp } = record {
                self.emptied = self.emptied.max(*stamp);
            }
        }
    }

    /// How many records were counted.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The stamp of the last truncate to nothing; 0 if there is none.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied
    }

    /// Whether records of the summary are lost. A truncate to nothing that came later makes them
    /// dead, and then they may go.
    pub(crate) fn is_short_of(&self, summary: &Summary) -> bool {
        summary.records > self.records && self.emptied <= summary.max_stamp
    }
}

/// How often a last closer tries to write a summary that counts. Each failure takes another client
/// in a window of two calls; without a summary, stat reads the logs.
const SUMMARY_TRIES: usize = 3;

/// Gives the container's directory a random time, and says which it kept; `None` if another change
/// came between.
fn take_token(container: &Container) -> Result<Option<Time>> {
    let token = random_token();
    container
        .store
        .set_times(&container.dir, None, Some(token))
        .at("set the time of", &container.dir)?;
    // Some file systems keep whole seconds only: what they kept is the token.
    let kept = container.time()?;
    Ok((kept.sec == token.sec).then_some(kept))
}

fn has_token(container: &Container, token: Time) -> Result<bool> {
    Ok(container.time()? == token)
}

/// Directories of a backend above those of log sets: of the container, two letters, `.plfs`, and
/// the backend itself.
const ABOVE_SETS: usize = 4;

/// Makes all logs of a log set durable, or of all sets. Fails if a sync of one of them has failed
/// before in this boot of the host. EACCES, after all others are durable, if there are some that
/// this user may not open.
pub fn sync_logs(container: &Container, only: Option<u32>) -> Result<()> {
    let mut refused: Option<PathBuf> = None;
    let sets = match only {
        Some(set) => BTreeSet::from([set]),
        None => log_sets(container.list()?),
    };
    for set in sets {
        let note_failure = |result: store::Result<()>| {
            if result.is_err_and(|errno| !is_of_descriptors(errno)) {
                log::note_failed_sync(container, set);
            }
            result
        };
        let named = Cell::new(None);
        for (backend, is_used) in backends_of(container, set)? {
            let is_used = || -> Result<bool> {
                if is_used {
                    return Ok(true);
                }
                let all = named.take().map_or_else(|| named_by(container, set), Ok)?;
                let is_named = all.contains(&backend);
                named.set(Some(all));
                Ok(is_named)
            };
            let dir_of = |found: Result<PathBuf>| match found {
                Ok(dir) => Ok(Some(dir.join(name::log_set(set)))),
                // Nothing of the set is there.
                Err(_) if !is_used()? => Ok(None),
                Err(error) => Err(error),
            };
            let Some(mut dir) = dir_of(container.backend_dir(backend))? else { continue };
            let mut listed = container.store.list(&dir);
            if listed == Err(Errno::NOENT) && backend > 0 && is_used()? {
                // It may have moved, or be gone.
                let Some(again) = dir_of(container.backend_dir_again(backend))? else { continue };
                dir = again;
                listed = container.store.list(&dir);
            }
            let entries = match listed {
                Err(Errno::NOENT) => continue,
                Err(Errno::ACCESS | Errno::PERM) => {
                    if is_used()? {
                        refused.get_or_insert(dir);
                    }
                    continue;
                }
                other => other.at("list", &dir)?,
            };
            for entry in entries {
                let path = dir.join(&entry.name);
                match container.store.open(&path, Open::READ) {
                    Ok(file) => note_failure(file.sync_data()).at("sync", &path)?,
                    Err(Errno::NOENT) => {}
                    Err(Errno::ACCESS | Errno::PERM) => {
                        refused.get_or_insert(path);
                    }
                    Err(errno) => return Err(errno).at("open, to sync it,", &path),
                }
            }
            // On the root those above are durable with the file's name.
            let above = if backend == 0 { 0 } else { ABOVE_SETS };
            for dir in dir.ancestors().take(1 + above) {
                match container.store.sync_dir(dir) {
                    Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => {}
                    other => note_failure(other).at("sync", dir)?,
                }
            }
        }
        log::must_be_synced(container, set)?;
    }
    refused.map_or(Ok(()), |path| {
        let why = "it is of another user, and this one may not open it";
        Err(Error::refused(Errno::ACCESS, "sync", &path, why))
    })
}

/// [`Container::sync_names`] by who has no writer. What failed is known to all later syncs.
pub fn sync_names(
    container: &Container,
    open: Option<&dyn store::StoreFile>,
    named: Option<&Path>,
) -> Result<()> {
    container.sync_names(open, named).inspect_err(|error| {
        if error.is_of_sync() {
            let sets = log_sets(container.list().unwrap_or_default());
            sets.iter().for_each(|set| log::note_failed_sync(container, *set));
        }
    })
}

/// The backends on which logs of a set may lie, and whether its streams do, if there is room.
fn backends_of(container: &Container, set: u32) -> Result<Vec<(u16, bool)>> {
    let streams = 0..container.superblock.streams;
    let used: Vec<u16> = streams.map(|stream| container.backend_of(set, stream)).collect();
    let ids = container.backends()?.into_iter();
    Ok(ids.map(|id| (id, id == 0 || used.contains(&id))).collect())
}

/// The backends on which records of a set have data: also such as took what found no room where its
/// streams lie. Reads the index log.
fn named_by(container: &Container, set: u32) -> Result<HashSet<u16>> {
    let mut named = HashSet::new();
    log::scan(container, set, 0, |offset, header, at| {
        // Those of packs are where its streams lie.
        if let Ok(block) = decode_block(header, offset, at) {
            named.extend(block.segments.iter().map(|at| at.backend));
        }
        Ok(())
    })?;
    Ok(named)
}

/// The summary that the storage has, whatever this machine remembers.
fn read_summary(container: &Container) -> store::Result<Option<Summary>> {
    let file = container.store.open(&container.path(name::SUPER), Open::READ.briefly())?;
    if !container.local {
        // A ceph-fuse client keeps pages that another client has changed.
        file.forget_cached();
    }
    read_summary_of(container, file.as_ref())
}

/// [`read_summary`] of a superblock that is open for reading.
fn read_summary_of(
    container: &Container,
    file: &dyn store::StoreFile,
) -> store::Result<Option<Summary>> {
    let mut bytes = [0; FILE_BYTES];
    let n = store::read_full(file, &mut bytes, 0)?;
    let bytes = bytes.get(summary::OFFSET as usize..n);
    Ok(bytes.and_then(|bytes| Summary::decode(bytes, &container.superblock.uuid)))
}

/// Opens the superblock for writing its summary.
pub fn open_super(container: &Container) -> Result<Arc<dyn store::StoreFile>> {
    let path = container.path(name::SUPER);
    container.store.open(&path, Open::READ_WRITE.briefly()).at("open", &path)
}

/// When tokens are: between 1978 and 1987.
const TOKEN_SECONDS: std::ops::Range<i64> = 1 << 28..1 << 29;

/// A random time of [`TOKEN_SECONDS`]: no later change of a directory gives it by chance.
fn random_token() -> Time {
    let random = random_u64();
    Time { sec: TOKEN_SECONDS.start + (random >> 36) as i64, nsec: (random as u32) % 1_000_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All kinds of five records with ends 1 to 3, in several orders of arrival, give the size that
    /// replaying them in order gives.
    #[test]
    fn size_does_not_depend_on_arrival() {
        for case in 0..6u64.pow(5) {
            let records: Vec<(u64, u64, bool)> = (0..5u32)
                .map(|i| (i as u64, case / 6u64.pow(i) % 3 + 1, case / 6u64.pow(i) % 6 >= 3))
                .collect();
            let expect = records.iter().fold(
                0,
                |size, (_, end, truncates)| if *truncates { *end } else { size.max(*end) },
            );
            for arrival in [
                [0, 1, 2, 3, 4],
                [4, 3, 2, 1, 0],
                [2, 0, 4, 1, 3],
                [1, 4, 0, 3, 2],
                [3, 2, 4, 0, 1],
            ] {
                let mut replay = SizeReplay::default();
                arrival
                    .iter()
                    .map(|i: &usize| records[*i])
                    .for_each(|(stamp, end, truncates)| replay.push((stamp, 0), end, truncates));
                assert_eq!(replay.size(), expect, "{records:?} {arrival:?}");
            }
        }
    }
}
