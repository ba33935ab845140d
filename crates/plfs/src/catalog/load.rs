//! From index logs to an index that answers reads: load, follow what others commit, take in what
//! this process writes.

use std::collections::{HashMap, HashSet};

use plfs_format::Bad;
use plfs_format::flat_index::{self, Covered, FlatIndex, Segment, Truncate};
use plfs_format::index_log::{Record, align_up, decode_block};
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::summary::Summary;
use plfs_index::{
    Base, Bulk, Committed, ExtentMap, Found, Fresh, Numbers, Order, Overlaps, Run, renumbered,
};
use zerocopy::IntoBytes;

use super::Totals;
use super::doubt::{Block, Case, Doubts, Durable, Taken, Verdict, sums_of};
use crate::container::{Container, log_sets};
use crate::error::{At, Error, Result};
use crate::log;
use crate::store::machine::random_u64;
use crate::store::{self, Bytes, Errno, Links, Open, StoreFile, Time};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, thread};

/// Threads that read index logs side by side: storage latency, not computing, is what they hide.
const THREADS: usize = 8;

/// Records up to which a map holds them as entries; more are packed as they are read.
const PACK_RECORDS: u64 = 1 << 16;

/// Where every byte of a logical file lives, as far as this process has looked.
#[derive(Debug, Default)]
pub struct Index {
    extents: ExtentMap,
    segments: Vec<SegmentRef>,
    /// Largest physical end of a run read from logs in each of `segments`.
    ends: Vec<u64>,
    /// The number of each of `segments`; empty as long as nobody has asked for one.
    numbers: HashMap<SegmentRef, u32>,
    /// How far each index log has been read.
    scanned: HashMap<u32, Scanned>,
    /// Records read from logs, of all kinds.
    records: u64,
    /// Log set and stamp of this process's blocks, which it need not read. Nodes do not know each
    /// other's clocks: a block of another set can have the same stamp.
    own: HashSet<(u32, u64)>,
    max_hlc: u64,
    /// Changes whenever a lookup may answer differently.
    generation: u64,
    /// Why a flat index that exists is not used.
    flat_ignored: Option<String>,
    /// The flat index in use.
    flat: Option<Flat>,
    /// What was read has no orders up to this stamp, if it is not 0: a record that comes later and
    /// is not younger would not find its place.
    floor: u64,
    /// Why nothing that was looked up is to be believed any more.
    fault: Option<Fault>,
    /// While the container directory has this time, nobody has written since the index was loaded.
    token: Option<Time>,
    /// How it came to its flat index.
    source: Source,
    /// Records whose data may not be there, and that lay over nothing when they came, ascending.
    unproven: Vec<(Run, Order)>,
    /// Where there is anything above the base, for who has doubts about what comes over it. `None`
    /// as long as nobody has, and after a truncate.
    occupied: Option<Overlaps>,
    /// What was left out, because its data is not there and there is something older.
    taken: Vec<Taken>,
    /// What it is loaded for.
    purpose: Purpose,
    /// What the logs say of the data.
    data: DataFacts,
}

/// What is wrong with an index whose bytes were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A record came that is not younger than the index's floor.
    Overtaken,
    /// Data that a flat index has is not there, and no log was looked at.
    DataMissing,
}

/// How an index came to its flat index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// By a look at all logs.
    #[default]
    Logs,
    /// By the word of a summary: no log was looked at.
    Summary,
}

/// What an index is loaded for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To read by.
    #[default]
    Reading,
    /// For a flat index, which outlasts this boot of the machine.
    Lasting,
}

/// What blocks of logs say of the data that they point to.
#[derive(Clone, Copy, Debug, Default)]
struct DataFacts {
    /// Some of it may not be durable; only looked for if the index is to last.
    has_doubts: bool,
    /// Some of that lies over something older.
    is_layered: bool,
    /// Some is durable.
    has_durable: bool,
}

/// What the data of a part of an index is like. A byte that somebody made durable may lie below one
/// that a power cut took, and if they are in two parts, nobody who has one of them can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Some of it may be gone.
    pub is_doubtful: bool,
    /// Some of it was made durable.
    pub is_durable: bool,
}

impl Standing {
    /// Whether parts of which one or another is so can be merged.
    pub fn may_merge(self) -> bool {
        !(self.is_doubtful && self.is_durable)
    }
}

/// How far an index log has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Scanned {
    /// Where it was begun: past 0 in a part that leaves what a flat index covers to another.
    from: u64,
    /// Where the next look starts.
    end: u64,
    /// Bytes that the log had.
    length: u64,
}

/// Why a flat index does not fit.
#[derive(Debug)]
enum Unfit {
    /// It has more of a log than is left of that.
    Outlived(String),
    /// Anything else.
    Other(String),
}

/// A flat index in use.
#[derive(Debug)]
pub(crate) struct Flat {
    /// [`FlatIndex::id`].
    id: u32,
    /// How far each index log is in it.
    covered: Vec<(u32, u64)>,
}

impl Index {
    /// Reads the flat index if it fits, and all index logs as far as it does not cover them.
    pub fn load(container: &Container) -> Result<Index> {
        loop {
            let names = container.list()?;
            let mut index = Index::begin(container, &names)?;
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// [`Index::load`] for a flat index.
    pub(crate) fn load_to_last(container: &Container) -> Result<Index> {
        loop {
            let names = container.list()?;
            let mut index = Index::begin(container, &names)?.lasting();
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// What it loads from now on is for a flat index: so it looks whether all that would be in
    /// there can be believed when power has been cut.
    pub(crate) fn lasting(self) -> Index {
        Index { purpose: Purpose::Lasting, ..self }
    }

    /// If it is [lasting](Index::lasting): whether a flat index of it could hide, after a power
    /// cut, what was synced. A record whose data is not durable lies over something older; or, if
    /// not all writers are done (not `settled`), something older may come yet.
    pub(crate) fn is_doubtful(&self, settled: bool) -> bool {
        self.data.is_layered || !settled && self.data.has_doubts
    }

    /// What was left out: data of it is not there.
    pub(crate) fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Reads all index logs and no flat index, for this reason.
    pub fn load_logs(container: &Container, why: &str) -> Result<Index> {
        loop {
            let names = container.list()?;
            let mut index = Index { flat_ignored: Some(why.into()), ..Index::default() };
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// Why what is known is not to be believed, though its bytes were: a block of the flat index
    /// was damaged, or a record came that the flat index has no place for. Then
    /// [`Index::load_logs`] helps.
    pub fn is_broken(&self) -> Option<&'static str> {
        if self.extents.is_damaged() {
            return Some(
                "it is damaged: a block does not match its checksum, or an entry contradicts the \
                 format",
            );
        }
        self.fault.map(|fault| match fault {
            Fault::Overtaken => "a writer that it does not have began before it was made",
            Fault::DataMissing => {
                "it has data that is not there: power was cut before all was durable"
            }
        })
    }

    /// Tells it that data which it points to is missing. After a power cut a summary and its flat
    /// index can be there without what they sum up; true if that may be so, because no log
    /// was looked at: then it is broken.
    pub(crate) fn doubt(&mut self) -> bool {
        let may_be = self.token.is_some() && self.flat.is_some();
        if may_be {
            self.fault = Some(Fault::DataMissing);
        }
        may_be
    }

    /// [`Index::load`] by who has a summary that counted a moment ago, if there is one: if it names
    /// the flat index, nothing else is looked at. Costs a call and a read then.
    pub fn load_summed_up(container: &Container, settled: Option<Summary>) -> Result<Index> {
        match Index::load_settled(container, settled)? {
            Some(index) => Ok(index),
            None => Index::load(container),
        }
    }

    fn load_settled(container: &Container, settled: Option<Summary>) -> Result<Option<Index>> {
        let Some(summary) = settled.filter(|summary| summary.flat != 0) else { return Ok(None) };
        let mut index =
            Index { token: Some(token_of(&summary)), source: Source::Summary, ..Index::default() };
        let named = Expect::Id(summary.flat);
        let whole = match summary.flat_index {
            short if short.is_empty() => index.load_flat(container, named)?,
            short => index.use_flat(container, Arc::new(short), named),
        };
        Ok(whole.is_ok().then_some(index))
    }

    /// Bytes of index logs that a reader has to read because no flat index has them.
    pub(crate) fn pending_bytes(container: &Container, settled: Option<Summary>) -> Result<u64> {
        if Index::load_settled(container, settled)?.is_some() {
            return Ok(0);
        }
        let names = container.list()?;
        Ok(Index::begin(container, &names)?.unread_bytes(container, &names))
    }

    /// The index without the tails of the logs: [`Index::finish`] reads them.
    pub(crate) fn begin(container: &Container, names: &[Name]) -> Result<Index> {
        let mut index = Index::default();
        if names.contains(&Name::Flat)
            && let Err(why) = index.load_flat(container, Expect::Logs(names))?
        {
            let (Unfit::Outlived(why) | Unfit::Other(why)) = why;
            index = Index { flat_ignored: Some(why), ..Index::default() };
        }
        Ok(index)
    }

    /// A share of the index, for processes that load it together: every `parts`-th index log from
    /// the `part`-th on, past what the flat index covers; part 0 has that too. [`Index::merge`] of
    /// all parts is what [`Index::load`] gives.
    pub(crate) fn load_part(
        container: &Container,
        settled: Option<Summary>,
        part: u32,
        parts: u32,
    ) -> Result<Index> {
        if let Some(index) = Index::load_settled(container, settled)? {
            return Ok(if part == 0 { index } else { Index::default() });
        }
        let names = container.list()?;
        let mut sets: Vec<u32> = names
            .iter()
            .filter_map(|name| if let Name::LogSet(set) = name { Some(*set) } else { None })
            .collect();
        sets.sort_unstable();
        let share: Vec<Name> = sets
            .into_iter()
            .skip(part as usize)
            .step_by(parts as usize)
            .map(Name::LogSet)
            .collect();
        Index::begin(container, &names)?.tails(container, &share, part == 0)
    }

    /// What the data of a part of the index is like, for who merges it with others.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            is_doubtful: !self.unproven.is_empty(),
            is_durable: self.data.has_durable || self.flat.is_some(),
        }
    }

    /// What the index log of `set` has past the flat index; `with_base` adds the flat index.
    pub(crate) fn load_own(
        container: &Container,
        set: Option<u32>,
        with_base: bool,
    ) -> Result<Index> {
        let own: Vec<Name> = set.map(Name::LogSet).into_iter().collect();
        let own = Index::begin(container, &container.list()?)?
            .lasting()
            .tails(container, &own, with_base)?;
        if own.data.has_doubts {
            // Whether another part has something older there, nobody would look.
            return Err(Error::invalid(
                Errno::AGAIN,
                "data of this part of the index may not be durable: who closes last decides",
            ));
        }
        Ok(own)
    }

    fn tails(mut self, container: &Container, names: &[Name], with_base: bool) -> Result<Index> {
        if !with_base {
            self = Index { scanned: self.scanned, purpose: self.purpose, ..Index::default() };
            let sets = log_sets(names);
            self.scanned.retain(|set, _| sets.contains(set));
            self.scanned.values_mut().for_each(|log| log.from = log.end);
        }
        match self.read_logs(container, names)? {
            true => Ok(self),
            false => Err(Error::invalid(
                Errno::AGAIN,
                "the parts of the index do not follow each other: logs were removed meanwhile",
            )),
        }
    }

    /// One index of several encoded ones ([`Index::encode`]). EAGAIN if they do not follow each
    /// other, because somebody flattened the file between one load and another.
    pub(crate) fn merge(container: &Container, parts: &[&[u8]]) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let decode = |bytes: &&[u8]| -> Result<FlatIndex> {
            flat_index::decode(bytes, &container.superblock.uuid).map_err(corrupt)
        };
        let mut flats =
            parts.iter().map(|bytes| Ok((*bytes, decode(bytes)?))).collect::<Result<Vec<_>>>()?;
        // What has no orders goes below the others.
        flats.sort_by_key(|(_, flat)| std::cmp::Reverse((flat.floor, flat.shapes.len())));
        let mut shares: Vec<Covered> = flats
            .iter()
            .flat_map(|(_, flat)| flat.covered.iter().filter(|share| share.bytes > 0).copied())
            .collect();
        let (mut all, mut bulks) = (Index::default(), Vec::new());
        for (i, (bytes, flat)) in flats.into_iter().enumerate() {
            // A copy, because a map holds on to what it looks at.
            let base = Base::new(Arc::new(bytes.to_vec()), flat.clone());
            base.check().map_err(corrupt)?;
            if i == 0 {
                all.take_flat(base);
                all.flat = None;
                continue;
            }
            if !flat.shapes.is_empty() {
                return Err(corrupt(Bad::new(
                    68,
                    "two parts of an index have shapes: only one can have the flat index",
                )));
            }
            let mut bulk = Bulk::default();
            for segment in &flat.segments {
                bulk.number(segment.at);
                let number = all.number(segment.at) as usize;
                all.ends[number] = all.ends[number].max(segment.bytes);
            }
            ExtentMap::with_base(base).for_each(|run, order| bulk.push(run, order));
            flat.truncates
                .iter()
                .for_each(|cut| bulk.push_truncate(cut.size, Order { hlc: cut.hlc, set: cut.set }));
            (all.max_hlc, all.records) =
                (all.max_hlc.max(flat.max_hlc), all.records.saturating_add(flat.records));
            bulks.push(bulk);
        }
        shares.sort_unstable_by_key(|share| (share.set, share.from, share.bytes));
        for share in shares {
            let (end, length) = (align_up(share.bytes), share.bytes);
            let log = all.scanned.entry(share.set).or_insert(Scanned {
                from: share.from,
                end: share.from,
                length,
            });
            if log.end != share.from {
                return Err(Error::invalid(
                    Errno::AGAIN,
                    "the parts of the index do not follow each other: somebody flattened the file \
                     meanwhile",
                ));
            }
            *log = Scanned { end, length, ..*log };
        }
        all.take_bulks(container, bulks)?;
        if all.fault == Some(Fault::Overtaken) {
            return Err(Error::invalid(
                Errno::AGAIN,
                "a part of the index is older than the flat index, which has no place for it",
            ));
        }
        all.extents.compact();
        Ok(all)
    }

    /// An index that other processes have merged, used where it lies. It counts as complete while
    /// `summary` does, if it has all that this sums up.
    pub(crate) fn use_encoded(
        container: &Container,
        bytes: Bytes,
        summary: Option<&Summary>,
        generation: u64,
    ) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let flat =
            flat_index::decode((*bytes).as_ref(), &container.superblock.uuid).map_err(corrupt)?;
        let summary = summary
            .filter(|summary| (summary.records, summary.max_hlc) == (flat.records, flat.max_hlc));
        let token = match summary.map(token_of) {
            Some(token) if container.time()? == token => Some(token),
            _ => None,
        };
        let mut index = Index { token, generation, ..Index::default() };
        for covered in flat.covered.iter().filter(|covered| covered.bytes > 0) {
            index.scanned.insert(
                covered.set,
                Scanned { from: covered.from, end: align_up(covered.bytes), length: covered.bytes },
            );
        }
        index.must_be_whole()?;
        index.take_flat(Base::new(bytes, flat));
        Ok(index)
    }

    /// Refuses a part that lacks the beginning of some log.
    pub(crate) fn must_be_whole(&self) -> Result<()> {
        match self.scanned.values().all(|log| log.from == 0) {
            true => Ok(()),
            false => Err(Error::invalid(
                Errno::AGAIN,
                "a part of the index is missing: what the flat index has",
            )),
        }
    }

    /// Reads the tails of the logs. False as from [`Index::read_logs`].
    pub(crate) fn finish(&mut self, container: &Container, names: &[Name]) -> Result<bool> {
        let mut is_whole = self.read_logs(container, names)?;
        if is_whole && self.fault == Some(Fault::Overtaken) {
            *self = Index {
                flat_ignored: self.is_broken().map(Into::into),
                purpose: self.purpose,
                ..Index::default()
            };
            is_whole = self.read_logs(container, names)?;
        }
        if self.flat.is_none() {
            // One sorted level: lookups in what was loaded search one tree.
            self.extents.compact();
        }
        Ok(is_whole)
    }

    /// Reads what others committed since the last look. Costs one stat if nobody came; else a
    /// listing, unless the one before still counts, and a look at each index log; reads only what
    /// is new. True if it had to begin anew: then writes of this process that are in no log must be
    /// added again.
    pub fn refresh(&mut self, container: &Container) -> Result<bool> {
        let time = container.time()?;
        if self.token == Some(time) {
            return Ok(false);
        }
        self.token = None;
        let names = container.list_at(time)?;
        if self.source == Source::Summary
            || !self.has_all(&names)
            || !self.read_logs(container, &names)?
        {
            // Logs were removed, after a truncate to nothing or by a compaction: what we knew may
            // be gone. Or nobody has looked whether they are there.
            let generation = self.generation;
            *self = Index { generation: generation + 1, ..Index::load(container)? };
            return Ok(true);
        }
        match self.is_broken() {
            Some(why) => self.rebuild_from_logs(container, why).map(|()| true),
            None => Ok(false),
        }
    }

    /// [`Index::load_logs`] in place; writes of this process that are in no log must be added
    /// again.
    pub fn rebuild_from_logs(&mut self, container: &Container, why: &str) -> Result<()> {
        let generation = self.generation;
        *self = Index { generation: generation + 1, ..Index::load_logs(container, why)? };
        Ok(())
    }

    /// Whether all logs that were read are there still.
    pub(crate) fn has_all(&self, names: &[Name]) -> bool {
        let sets = log_sets(names);
        self.scanned.keys().all(|set| sets.contains(set))
    }

    /// [`Index::use_flat`] of the file.
    fn load_flat(
        &mut self,
        container: &Container,
        expect: Expect,
    ) -> Result<std::result::Result<(), Unfit>> {
        let path = container.path(name::FLAT);
        match container.store.open(&path, Open::READ) {
            Ok(file) => match read_flat(container, file).at("read", &path)? {
                Ok(base) => Ok(self.use_base(container, base, expect)),
                Err(bad) => Ok(Err(Unfit::Other(format!("it is damaged {bad}")))),
            },
            Err(Errno::NOENT) => Ok(Err(Unfit::Other("it was just removed".into()))),
            Err(Errno::ACCESS | Errno::PERM) => {
                Ok(Err(Unfit::Other("this user may not read it".into())))
            }
            Err(errno) => Err(errno).at("open", &path),
        }
    }

    /// Begins with a flat index, or says why it does not fit.
    fn use_flat(
        &mut self,
        container: &Container,
        bytes: Bytes,
        expect: Expect,
    ) -> std::result::Result<(), Unfit> {
        let damaged = |bad| Unfit::Other(format!("it is damaged {bad}"));
        let flat =
            flat_index::decode((*bytes).as_ref(), &container.superblock.uuid).map_err(damaged)?;
        self.use_base(container, Base::new(bytes, flat), expect)
    }

    fn use_base(
        &mut self,
        container: &Container,
        base: Base,
        expect: Expect,
    ) -> std::result::Result<(), Unfit> {
        let flat = base.flat();
        if flat.covered.iter().any(|covered| covered.from != 0) {
            return Err(Unfit::Other("it is a part of one".into()));
        }
        if matches!(expect, Expect::Id(id) if id != flat.id) {
            return Err(Unfit::Other("the summary means another".into()));
        }
        let listed =
            if let Expect::Logs(names) = expect { log_sets(names) } else { HashSet::new() };
        for covered in flat.covered.iter().filter(|covered| covered.bytes > 0) {
            let length = match expect {
                Expect::Log(set) if covered.set != set => continue,
                Expect::Id(_) => covered.bytes,
                Expect::Logs(_) if !listed.contains(&covered.set) => {
                    return Err(Unfit::Other(format!(
                        "it is stale: log set {:08x} is gone",
                        covered.set
                    )));
                }
                Expect::Logs(_) | Expect::Log(_) => {
                    let path = container.path(&name::index_log(covered.set));
                    let length =
                        container.store.stat(&path, Links::Follow).map_or(0, |stat| stat.len);
                    if length < covered.bytes {
                        return Err(Unfit::Outlived(format!(
                            "it is stale: it covers {} bytes of {}, which has {length}",
                            covered.bytes,
                            path.display()
                        )));
                    }
                    length
                }
            };
            self.scanned
                .insert(covered.set, Scanned { from: 0, end: align_up(covered.bytes), length });
        }
        self.take_flat(base);
        Ok(())
    }

    /// Uses a decoded flat index where it lies.
    fn take_flat(&mut self, base: Base) {
        let flat = base.flat();
        (self.segments, self.ends) =
            flat.segments.iter().map(|segment| (segment.at, segment.bytes)).unzip();
        self.numbers.clear();
        (self.max_hlc, self.records) = (flat.max_hlc, flat.records);
        self.floor = flat.floor;
        self.flat = Some(Flat {
            id: flat.id,
            covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect(),
        });
        self.extents = ExtentMap::with_base(base);
        self.occupied = None;
    }

    /// Everything that was read, as a flat index, which counts as the one in use from now on.
    /// `settled` makes it small: for files that nobody is writing, because it is good only
    /// until a record comes that is older than the youngest in it.
    ///
    /// The error is of a file whose index is longer than a flat index can be.
    pub(crate) fn encode(&mut self, container: &Container, settled: bool) -> Result<Vec<u8>> {
        let (sets, set_of) = self.sets();
        let numbers = Numbers { set_of: &set_of, sets: &sets };
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let image = self.extents.image(Vec::new(), &numbers, settled).map_err(corrupt)?;
        if let Some(why) = self.is_broken() {
            return Err(Error::invalid(Errno::AGAIN, why));
        }
        // A log is covered as far as blocks were found, but not past its length: the last block's
        // padding may be missing.
        let covered = |set: &u32| match self.scanned.get(set) {
            Some(log) => Covered { set: *set, from: log.from, bytes: log.end.min(log.length) },
            None => Covered { set: *set, from: 0, bytes: 0 },
        };
        let segment = |old: &u32| Segment {
            at: self.segments[*old as usize],
            bytes: self.ends[*old as usize],
        };
        let mut flat = FlatIndex {
            covered: sets.iter().map(covered).collect(),
            segments: image.segments.iter().map(segment).collect(),
            ..self.bare(container)
        };
        if settled {
            flat.truncates.clear();
            flat.floor = flat.max_hlc;
        }
        let bytes =
            flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
        flat.id = flat_index::id(&bytes);
        self.flat = Some(Flat {
            id: flat.id,
            covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect(),
        });
        Ok(bytes)
    }

    /// What a flat index says beside its tables of logs.
    fn bare(&self, container: &Container) -> FlatIndex {
        FlatIndex {
            uuid: container.superblock.uuid,
            size: self.eof(),
            records: self.records,
            max_hlc: self.max_hlc,
            floor: self.floor,
            truncates: self
                .extents
                .truncates()
                .iter()
                .map(|(order, size)| Truncate { hlc: order.hlc, set: order.set, size: *size })
                .collect(),
            ..FlatIndex::default()
        }
    }

    /// The log sets, those of the flat index below first, and for each segment which of them it
    /// belongs to.
    fn sets(&self) -> (Vec<u32>, Vec<u32>) {
        let mut sets: Vec<u32> = self.extents.base().map_or(Vec::new(), |base| {
            base.flat().covered.iter().map(|covered| covered.set).collect()
        });
        let known: HashSet<u32> = sets.iter().copied().collect();
        let mut more: Vec<u32> = self
            .scanned
            .keys()
            .copied()
            .chain(self.segments.iter().map(|at| at.set))
            .filter(|set| !known.contains(set))
            .collect();
        more.sort_unstable();
        more.dedup();
        sets.extend(more);
        let by_id: HashMap<u32, u32> =
            sets.iter().enumerate().map(|(i, set)| (*set, i as u32)).collect();
        let set_of = self.segments.iter().map(|at| by_id[&at.set]).collect();
        (sets, set_of)
    }

    /// Reads what the logs among `names` have beyond what was read. False if one of them was
    /// removed meanwhile: what others say may be from before that or from after it, so all
    /// must be read anew. So too if something older came below a record whose data may not be
    /// there.
    pub(crate) fn read_logs(&mut self, container: &Container, names: &[Name]) -> Result<bool> {
        let sets: Vec<(u32, u64)> = names
            .iter()
            .filter_map(|name| match name {
                Name::LogSet(set) => Some((*set, self.scanned.get(set).map_or(0, |log| log.end))),
                _ => None,
            })
            .collect();
        let doubts = Doubts::of(container, self.purpose);
        let mut parts = read_side_by_side(container, &sets, &self.own, doubts)?;
        let missing: Vec<u32> =
            parts.iter().flat_map(|part| part.missing.iter().copied()).collect();
        if container.has_lost(&missing)? {
            return Ok(false);
        }
        if !self.decide(container, doubts, &mut parts)? {
            return Ok(false);
        }
        let mut bulks = Vec::new();
        for part in parts {
            for (set, scanned) in part.scanned {
                let log = self.scanned.entry(set).or_default();
                *log = Scanned { from: log.from, ..scanned };
            }
            for (at, end) in part.bulk.segments().iter().zip(&part.ends) {
                let number = self.number(*at) as usize;
                self.ends[number] = self.ends[number].max(*end);
            }
            self.records = self.records.saturating_add(part.records);
            if part.is_news {
                self.generation += 1;
                self.max_hlc = self.max_hlc.max(part.max_hlc);
            }
            for block in &part.own {
                self.own.remove(block);
            }
            self.data.has_durable |= part.has_durable;
            bulks.push(part.bulk);
        }
        self.take_bulks(container, bulks).map(|()| true)
    }

    /// Decides what is to be believed of blocks in doubt, and adds it to their parts' bulks. False
    /// if all must be read anew.
    fn decide(
        &mut self,
        container: &Container,
        doubts: Doubts,
        parts: &mut [Part],
    ) -> Result<bool> {
        let new = |part: &Part| {
            let doubted = part.doubted.iter().flat_map(|block| &block.runs);
            doubted.map(|(_, order)| order.hlc).fold(part.bulk.oldest(), u64::min)
        };
        let oldest = parts.iter().map(new).min().unwrap_or(u64::MAX);
        let is_older = |(_, order): &(Run, Order)| order.hlc < oldest;
        let above = self.unproven.partition_point(is_older);
        if above == self.unproven.len() && parts.iter().all(|part| part.doubted.is_empty()) {
            return Ok(true);
        }
        for (order, size) in parts.iter().flat_map(|part| part.bulk.truncates()) {
            self.cut(*order, *size);
        }
        let mut case = Case::default();
        self.unproven[above..].iter().for_each(|(run, order)| case.unproven(*run, *order));
        let mut blocks: Vec<(&Block, &[SegmentRef])> = Vec::new();
        for part in parts.iter() {
            part.bulk.for_each(|run, order| case.believe(run, order));
            for block in &part.doubted {
                for (i, (run, order)) in block.runs.iter().enumerate() {
                    case.doubt(blocks.len(), i, *run, *order);
                }
                blocks.push((block, part.bulk.segments()));
            }
        }
        let occupied = self.occupied.take().unwrap_or_else(|| occupied(&self.extents));
        let known = (&self.extents, &occupied);
        let verdict = case.decide(container, known, doubts, &blocks)?;
        self.occupied = Some(occupied);
        let Some(verdict) = verdict else {
            return Ok(false);
        };
        if !verdict.taken.is_empty() && !self.unproven.is_empty() {
            // Power was cut since the last look: what was right then may be gone as well.
            return Ok(false);
        }
        self.believe(doubts, verdict, parts);
        Ok(true)
    }

    fn believe(&mut self, doubts: Doubts, verdict: Verdict, parts: &mut [Part]) {
        let mut number = 0;
        for part in parts {
            for block in std::mem::take(&mut part.doubted) {
                for (i, (run, order)) in block.runs.iter().enumerate() {
                    for left in verdict.left(number, i, *run) {
                        part.bulk.push(left, *order);
                        if doubts.is_over(block.boot) {
                            let at = self.unproven.partition_point(|(_, there)| there <= order);
                            self.unproven.insert(at, (left, *order));
                        }
                    }
                }
                self.data.has_doubts |= !block.runs.is_empty();
                number += 1;
            }
        }
        self.data.is_layered |= verdict.is_layered;
        self.taken.extend(verdict.taken);
    }

    /// Takes note of a record that comes too late for what has no orders.
    fn must_be_younger(&mut self, stamp: u64) {
        if self.floor > 0 && stamp <= self.floor {
            self.fault.get_or_insert(Fault::Overtaken);
        }
    }

    /// Adds what was read.
    fn take_bulks(&mut self, container: &Container, bulks: Vec<Bulk>) -> Result<()> {
        let oldest = bulks.iter().map(Bulk::oldest).min().unwrap_or(u64::MAX);
        self.must_be_younger(oldest);
        let bulks: Vec<(Bulk, Vec<u32>)> = bulks
            .into_iter()
            .map(|bulk| {
                let numbers = bulk.segments().iter().map(|at| self.number(*at)).collect();
                (bulk, numbers)
            })
            .collect();
        for (order, size) in bulks.iter().flat_map(|(bulk, _)| bulk.truncates()) {
            self.cut(*order, *size);
        }
        if bulks.iter().map(|(bulk, _)| bulk.records()).sum::<u64>() > PACK_RECORDS {
            return self.pack(container, bulks);
        }
        for (bulk, numbers) in bulks {
            if let Some(occupied) = &mut self.occupied {
                bulk.for_each(|run, order| occupy(occupied, &self.extents, run, order));
            }
            let runs = bulk.into_runs().map(|(run, order)| {
                (Run { segment: renumbered(run.segment, &numbers), ..run }, order)
            });
            self.extents.extend(runs);
        }
        Ok(())
    }

    fn cut(&mut self, order: Order, size: u64) {
        self.extents.insert_truncate(order, size);
        self.occupied = None;
    }

    /// Makes one packed index in memory of what is known and many records.
    fn pack(&mut self, container: &Container, bulks: Vec<(Bulk, Vec<u32>)>) -> Result<()> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let (sets, set_of) = self.sets();
        let numbers = Numbers { set_of: &set_of, sets: &sets };
        let newest = bulks.iter().map(|(bulk, _)| bulk.newest()).max().unwrap_or_default();
        let image = self.extents.image(bulks, &numbers, false).map_err(corrupt)?;
        let covered = sets.iter().map(|set| Covered { set: *set, from: 0, bytes: 0 }).collect();
        let segments = self
            .segments
            .iter()
            .zip(&self.ends)
            .map(|(at, bytes)| Segment { at: *at, bytes: *bytes })
            .collect();
        let flat = FlatIndex {
            covered,
            segments,
            max_hlc: newest.max(self.extents.max_hlc()),
            ..self.bare(container)
        };
        let bytes =
            flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
        drop(image);
        let flat = flat_index::decode(&bytes, &container.superblock.uuid).map_err(corrupt)?;
        self.extents = ExtentMap::with_base(Base::new(hold(container, bytes), flat)).grown();
        self.occupied = None;
        Ok(())
    }

    fn number(&mut self, at: SegmentRef) -> u32 {
        if self.numbers.is_empty() {
            self.numbers =
                self.segments.iter().enumerate().map(|(i, at)| (*at, i as u32)).collect();
        }
        *self.numbers.entry(at).or_insert_with(|| {
            self.segments.push(at);
            self.ends.push(0);
            self.segments.len() as u32 - 1
        })
    }

    /// Takes in writes of this process.
    pub fn add_own(&mut self, fresh: &Fresh) {
        if fresh.runs.is_empty() {
            return;
        }
        self.generation += 1;
        let numbers: Vec<u32> = fresh.segments.iter().map(|at| self.number(*at)).collect();
        for item in &fresh.runs {
            self.must_be_younger(item.stamp);
            for run in item.each() {
                let order = order(item.stamp, fresh.set);
                if let Some(occupied) = &mut self.occupied {
                    occupy(occupied, &self.extents, run, order);
                }
                self.extents
                    .insert(Run { segment: renumbered(run.segment, &numbers), ..run }, order);
            }
        }
    }

    /// Takes in a commit of this process.
    pub fn add_committed(&mut self, commit: &Committed) {
        if let Some((stamp, size)) = commit.truncate {
            self.generation += 1;
            self.cut(order(stamp, commit.set), size);
        }
        self.own.extend(commit.blocks.iter().map(|stamp| (commit.set, *stamp)));
        self.max_hlc = commit.blocks.iter().fold(self.max_hlc, |max, hlc| max.max(*hlc));
    }

    /// The visible pieces in `[from, to)`, ascending; what they leave out is holes.
    pub fn lookup(&self, from: u64, to: u64, out: &mut Vec<Found>) {
        self.extents.lookup(from, to, out);
    }

    /// Size of the logical file, own writes included.
    pub fn eof(&self) -> u64 {
        self.extents.eof()
    }

    /// Offset of the next byte at or after `from` that was written, or `None` if only holes follow.
    pub fn next_data(&self, from: u64) -> Option<u64> {
        self.extents.next_data(from)
    }

    /// Offset of the next hole at or after `from`; the end of the file counts as one.
    pub fn next_hole(&self, from: u64) -> u64 {
        self.extents.next_hole(from).unwrap_or(from)
    }

    /// What segment number `number` of a [`Found`] means; `None` only if a flat index lies.
    pub fn segment(&self, number: u32) -> Option<SegmentRef> {
        self.segments.get(number as usize).copied()
    }

    /// Where segment number `number` ends as far as the logs tell: writes of this process that are
    /// in none may lie behind.
    pub fn segment_end(&self, number: u32) -> u64 {
        self.ends.get(number as usize).copied().unwrap_or(0)
    }

    /// All segments.
    pub fn segments(&self) -> &[SegmentRef] {
        &self.segments
    }

    /// Changes whenever a lookup may answer differently.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Largest stamp seen.
    pub fn max_hlc(&self) -> u64 {
        self.max_hlc
    }

    /// All extents.
    pub fn extents(&self) -> &ExtentMap {
        &self.extents
    }

    /// Sets which flat index is in use, and says which was: for one that [`Index::encode`] made and
    /// that did not come to where readers look.
    pub(crate) fn swap_flat(&mut self, flat: Option<Flat>) -> Option<Flat> {
        std::mem::replace(&mut self.flat, flat)
    }

    /// The flat index if it fits the log of `set`, whatever became of the others; else an empty
    /// one. `None` if it has more than is left of the log.
    pub(crate) fn flat_for(container: &Container, set: u32) -> Option<Index> {
        let mut index = Index::default();
        match index.load_flat(container, Expect::Log(set)) {
            Ok(Ok(())) => Some(index),
            Ok(Err(Unfit::Outlived(_))) => None,
            _ => Some(Index::default()),
        }
    }

    /// What was read of one log set: the largest physical end in each of its segments, and where in
    /// its index log the next look starts.
    pub(crate) fn read_of(&self, set: u32) -> (HashMap<SegmentRef, u64>, u64) {
        let ends = self
            .segments
            .iter()
            .copied()
            .zip(self.ends.iter().copied())
            .filter(|(at, _)| at.set == set);
        (ends.collect(), self.scanned.get(&set).map_or(0, |log| log.end))
    }

    /// Bytes of index logs that have not been read.
    pub(crate) fn unread_bytes(&self, container: &Container, names: &[Name]) -> u64 {
        let unread = |name: &Name| match name {
            Name::LogSet(set) => {
                let length = container
                    .store
                    .stat(&container.path(&name::index_log(*set)), Links::Follow)
                    .map_or(0, |stat| stat.len);
                length.saturating_sub(self.scanned.get(set).map_or(0, |log| log.end))
            }
            _ => 0,
        };
        names.iter().map(unread).sum()
    }

    /// How much of the logs no flat index has: (logs, bytes).
    pub(crate) fn uncovered(&self) -> (usize, u64) {
        let covered: HashMap<u32, u64> =
            self.flat.iter().flat_map(|flat| flat.covered.iter().copied()).collect();
        let covered = |set: &u32| covered.get(set).map_or(0, |bytes| align_up(*bytes));
        self.scanned
            .iter()
            .map(|(set, log)| log.end.saturating_sub(covered(set)))
            .filter(|bytes| *bytes > 0)
            .fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes))
    }

    /// Which flat index has everything that was read; 0 if there is none.
    pub(crate) fn whole_flat(&self) -> u32 {
        match &self.flat {
            Some(flat)
                if self.uncovered() == (0, 0)
                    && flat.covered.iter().filter(|covered| covered.1 > 0).count()
                        == self.scanned.len() =>
            {
                flat.id
            }
            _ => 0,
        }
    }

    /// What the logs add up to, without writes of this process that are in none.
    pub fn totals(&self) -> Totals {
        Totals {
            size: self.eof(),
            // Bytes that lie may say anything: a sum of them must not overflow.
            stored_bytes: self.ends.iter().fold(0, |sum, end| sum.saturating_add(*end)),
            max_hlc: self.max_hlc,
            cut: 0,
            index_bytes: self.scanned.values().fold(0, |sum, log| sum.saturating_add(log.length)),
            records: self.records,
            log_sets: self.scanned.len() as u32,
            data_logs: self.ends.iter().filter(|end| **end > 0).count() as u32,
            from_summary: false,
        }
    }

    /// Whether a flat index is in use, and if one exists but is not, why.
    pub fn flat(&self) -> (bool, Option<&str>) {
        (self.flat.is_some(), self.flat_ignored.as_deref())
    }
}

/// Bytes up to which a flat index is read whole. 4 MiB: more than a million irregular pieces, a
/// millisecond.
const FLAT_WHOLE_BYTES: u64 = 4 << 20;
/// Bytes of a flat index in front of its blocks at most: 15 million patterns. What has more is not
/// used.
const FLAT_HEAD_BYTES: u64 = 1 << 30;
/// Bytes of it that are read at once.
const FLAT_PIECE_BYTES: usize = 4 << 20;

/// The flat index in `file`, or why it is none. A short one is read whole; of a long one all but
/// the blocks, which are read when they are asked for. What it says of lengths takes no more memory
/// than there are bytes: a hole in front of the blocks is damage.
pub(crate) fn read_flat(
    container: &Container,
    file: Arc<dyn StoreFile>,
) -> store::Result<std::result::Result<Base, Bad>> {
    let uuid = &container.superblock.uuid;
    let length = file.stat()?.len;
    let mut bytes = vec![0; flat_index::HEADER_BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0)?;
    bytes.truncate(n);
    let bad = |at_bytes, what| Ok(Err(Bad::new(at_bytes, what)));
    if length > FLAT_WHOLE_BYTES
        && let Err(error) = flat_index::check_header(&bytes, uuid)
    {
        return Ok(Err(error));
    }
    let head = match flat_index::head_bytes(&bytes) {
        _ if length <= FLAT_WHOLE_BYTES => length,
        Some(head) if head <= length.min(FLAT_HEAD_BYTES) => head,
        _ => {
            return bad(
                72,
                "the file's length does not match its header, or its tables and entries are \
                 longer than any can be used",
            );
        }
    };
    while (bytes.len() as u64) < head {
        let at = bytes.len();
        if file.next_data(at as u64)?.is_none_or(|data| data > at as u64) {
            return bad(at as u64, "there is a hole in it");
        }
        let more = FLAT_PIECE_BYTES.min((head - at as u64) as usize);
        bytes.reserve_exact(more);
        bytes.resize(at + more, 0);
        let n = store::read_full(file.as_ref(), &mut bytes[at..], at as u64)?;
        if n < more {
            return bad((at + n) as u64, "it became shorter while it was read");
        }
    }
    let flat = match flat_index::decode_head(&bytes, length, uuid) {
        Ok(flat) => flat,
        Err(bad) => return Ok(Err(bad)),
    };
    let bytes: Bytes = Arc::new(bytes);
    if head == length {
        return Ok(Ok(Base::new(bytes, flat)));
    }
    let read = move |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        let n = store::read_full(file.as_ref(), &mut bytes, offset).ok()?;
        bytes.truncate(n);
        Some(bytes)
    };
    Ok(Ok(Base::in_file(bytes, Box::new(read), length, flat)))
}

/// An index in memory, or if it is longer than the user wants there, in a file that goes with its
/// last user. Memory also if there is no room for the file.
fn hold(container: &Container, bytes: Vec<u8>) -> Bytes {
    if bytes.len() as u64 > container.index_bytes {
        let path = std::env::temp_dir().join(format!("plfs-index-{:016x}", random_u64()));
        let mapped = container.store.open(&path, Open::create_new(0o600)).and_then(|file| {
            let mapped = store::write_full(file.as_ref(), &bytes, 0).and_then(|()| file.map());
            container.store.unlink(&path)?;
            mapped
        });
        if let Ok(mapped) = mapped {
            return mapped;
        }
    }
    Arc::new(bytes)
}

/// Which flat index is the right one.
#[derive(Clone, Copy)]
enum Expect<'a> {
    /// The one that the summary names.
    Id(u32),
    /// One that fits the logs, which are among these names.
    Logs(&'a [Name]),
    /// One that fits this log, which alone matters.
    Log(u32),
}

/// Where an index has anything above its base.
fn occupied(extents: &ExtentMap) -> Overlaps {
    let mut occupied = Overlaps::default();
    extents.for_each_above(|run, order| occupy(&mut occupied, extents, run, order));
    occupied
}

/// Adds what the truncates leave of a record.
fn occupy(occupied: &mut Overlaps, extents: &ExtentMap, run: Run, order: Order) {
    let left = run.clipped(extents.clip(order));
    left.into_iter().flatten().for_each(|run| occupied.add(&run));
}

fn token_of(summary: &Summary) -> Time {
    Time { sec: summary.token_sec, nsec: summary.token_nsec }
}

fn order(stamp: u64, set: u32) -> Order {
    Order { hlc: stamp, set }
}

/// What a thread has read.
#[derive(Default)]
struct Part {
    bulk: Bulk,
    scanned: Vec<(u32, Scanned)>,
    /// Largest physical end of a run in each of the bulk's segments.
    ends: Vec<u64>,
    records: u64,
    max_hlc: u64,
    /// Blocks of this process, which it has already.
    own: Vec<(u32, u64)>,
    /// There were blocks of others.
    is_news: bool,
    /// Log sets without an index log.
    missing: Vec<u32>,
    /// Blocks in doubt, whose runs the bulk does not have yet.
    doubted: Vec<Block>,
    /// A block says of some data that it is durable.
    has_durable: bool,
}

impl Part {
    fn read(
        &mut self,
        container: &Container,
        set: u32,
        from: u64,
        own: &HashSet<(u32, u64)>,
        doubts: Doubts,
    ) -> Result<()> {
        let (mut durable, mut doubted) = (Durable::default(), Vec::new());
        let scan = log::scan_whole(container, set, from, |offset, header, at| {
            let block = decode_block(header, offset, at)
                .map_err(|bad| Error::of_bytes(&container.path(&name::index_log(set)), bad))?;
            self.records = self.records.saturating_add(header.records.into());
            let is_own = own.contains(&(set, header.hlc));
            match is_own {
                true => self.own.push((set, header.hlc)),
                false => (self.is_news, self.max_hlc) = (true, self.max_hlc.max(header.hlc)),
            }
            let numbers: Vec<u32> = block.segments.iter().map(|at| self.bulk.number(*at)).collect();
            self.ends.resize(self.bulk.segments().len(), 0);
            durable.push(&block);
            self.has_durable |= header.is_data_durable || header.durable > 0;
            let doubt = doubts.about(&block).filter(|_| !is_own);
            let mut runs = Vec::new();
            for (_, record) in &block.records {
                match *record {
                    Record::Run {
                        logical,
                        length,
                        stride,
                        count,
                        segment,
                        physical,
                        stamp,
                        ..
                    } => {
                        let segment = numbers[segment as usize];
                        let end = &mut self.ends[segment as usize];
                        *end = (*end).max(physical + length * u64::from(count));
                        let run = Run { logical, length, stride, count, segment, physical };
                        match doubt {
                            _ if is_own => {}
                            Some(_) => runs.push((run, order(stamp, set))),
                            None => self.bulk.push(run, order(stamp, set)),
                        }
                    }
                    Record::Hole { logical, length, stamp, .. } if !is_own => {
                        self.bulk.push(Run::hole(logical, length), order(stamp, set))
                    }
                    Record::Truncate { size, stamp } if !is_own => {
                        self.bulk.push_truncate(size, order(stamp, set))
                    }
                    Record::Hole { .. }
                    | Record::Truncate { .. }
                    | Record::Writer { .. }
                    | Record::Sums { .. } => {}
                }
            }
            if let Some(boot) = doubt {
                let sums = sums_of(&block, &numbers);
                doubted.push(Block { set, offset, boot, sums, runs });
            }
            Ok(())
        })?;
        for block in doubted {
            match durable.has(block.boot, block.offset) {
                true => block.runs.into_iter().for_each(|(run, order)| self.bulk.push(run, order)),
                false => self.doubted.push(block),
            }
        }
        if scan.is_none() {
            self.missing.push(set);
        }
        let log::Scan { end, length } = scan.unwrap_or(log::Scan { end: from, length: from });
        self.scanned.push((set, Scanned { from: 0, end, length }));
        Ok(())
    }
}

fn read_side_by_side(
    container: &Container,
    sets: &[(u32, u64)],
    own: &HashSet<(u32, u64)>,
    doubts: Doubts,
) -> Result<Vec<Part>> {
    let read = |next: &dyn Fn() -> Option<(u32, u64)>| -> Result<Part> {
        let mut part = Part::default();
        while let Some((set, from)) = next() {
            part.read(container, set, from, own, doubts)?;
        }
        Ok(part)
    };
    let at = AtomicUsize::new(0);
    let next = || sets.get(at.fetch_add(1, Ordering::Relaxed)).copied();
    // Where a read travels, the first look at each log that another client wrote costs
    // milliseconds; where it does not, a thread costs more than a few reads, and than many of logs
    // of which only the end is new.
    let worth = match container.local {
        true => sets.iter().filter(|(_, from)| *from == 0).count() >= THREADS,
        false => sets.len() > 1,
    };
    if !worth {
        return Ok(vec![read(&next)?]);
    }
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS.min(sets.len())).map(|_| scope.spawn(|| read(&next))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Part>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}
