//! From index logs to an index that answers reads: load, follow what others commit, take in what this process writes.

use std::collections::{HashMap, HashSet};

use plfs_format::Bad;
use plfs_format::flat_index::{self, Covered, FlatIndex, Segment, Truncate};
use plfs_format::index_log::{Block, Header, Record, align_up, decode_block};
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::summary::Summary;
use zerocopy::{FromBytes, IntoBytes};

use super::{Entry, ExtentMap, Found, Order, Run, Stamped};
use crate::container::{Container, Totals};
use crate::error::{At, Error, Result};
use crate::log;
use crate::store::{Bytes, Errno, Open, Time};
use crate::write::{Committed, Fresh};

/// Threads that read index logs side by side: storage latency, not computing, is what they hide.
const THREADS: usize = 8;

/// Where every byte of a logical file lives, as far as this process has looked.
#[derive(Debug, Default)]
pub struct Index {
    extents: ExtentMap,
    segments: Vec<SegmentRef>,
    /// Largest physical end of a run read from logs in each of `segments`.
    ends: Vec<u64>,
    numbers: HashMap<SegmentRef, u32>,
    /// How far each index log has been read.
    scanned: HashMap<u32, Scanned>,
    /// Records read from logs, of all kinds.
    records: u64,
    /// Stamps of this process's blocks, which it need not read.
    own: HashSet<u64>,
    max_hlc: u64,
    /// Changes whenever a lookup may answer differently.
    generation: u64,
    /// Why a flat index that exists is not used.
    flat_ignored: Option<String>,
    /// The flat index in use.
    flat: Option<Flat>,
    /// While the container directory has this time, nobody has written since the index was loaded.
    token: Option<Time>,
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

/// A flat index in use.
#[derive(Debug)]
struct Flat {
    /// [`FlatIndex::id`].
    id: u32,
    /// How far each index log is in it.
    covered: HashMap<u32, u64>,
}

impl Index {
    /// Reads the flat index if it fits, and all index logs as far as it does not cover them.
    pub fn load(container: &Container) -> Result<Index> {
        let names = container.list()?;
        let mut index = Index::begin(container, &names)?;
        index.finish(container, &names)?;
        Ok(index)
    }

    /// [`Index::load`] by who has read a summary: if that counts still and names the flat index, nothing else is looked at. Costs two calls and a read then.
    pub fn load_summed_up(container: &Container, summary: Option<&Summary>) -> Result<Index> {
        match Index::load_settled(container, summary)? {
            Some(index) => Ok(index),
            None => Index::load(container),
        }
    }

    fn load_settled(container: &Container, summary: Option<&Summary>) -> Result<Option<Index>> {
        let Some(summary) = summary.filter(|summary| summary.flat != 0) else { return Ok(None) };
        let mut index = Index { token: Some(token_of(summary)), ..Index::default() };
        let whole = index.is_settled(container)? && index.load_flat(container, Expect::Id(summary.flat))?.is_ok();
        Ok(whole.then_some(index))
    }

    /// Bytes of index logs that a reader has to read because no flat index has them.
    pub(crate) fn pending_bytes(container: &Container, summary: Option<&Summary>) -> Result<u64> {
        if Index::load_settled(container, summary)?.is_some() {
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
            index = Index { flat_ignored: Some(why), ..Index::default() };
        }
        Ok(index)
    }

    /// A share of the index, for processes that load it together: every `parts`-th index log from the `part`-th on, past what the flat index covers; part 0 has that too.
    /// [`Index::merge`] of all parts is what [`Index::load`] gives.
    pub(crate) fn load_part(container: &Container, summary: Option<&Summary>, part: u32, parts: u32) -> Result<Index> {
        if let Some(index) = Index::load_settled(container, summary)? {
            return Ok(if part == 0 { index } else { Index::default() });
        }
        let names = container.list()?;
        let mut sets: Vec<u32> = names.iter().filter_map(|name| if let Name::LogSet(set) = name { Some(*set) } else { None }).collect();
        sets.sort_unstable();
        let share: Vec<Name> = sets.into_iter().skip(part as usize).step_by(parts as usize).map(Name::LogSet).collect();
        Index::begin(container, &names)?.tails(container, &share, part == 0)
    }

    /// What the index log of `set` has past the flat index; `with_base` adds the flat index.
    pub(crate) fn load_own(container: &Container, set: Option<u32>, with_base: bool) -> Result<Index> {
        let own: Vec<Name> = set.map(Name::LogSet).into_iter().collect();
        Index::begin(container, &container.list()?)?.tails(container, &own, with_base)
    }

    fn tails(mut self, container: &Container, names: &[Name], with_base: bool) -> Result<Index> {
        if !with_base {
            self = Index { scanned: self.scanned, ..Index::default() };
            self.scanned.retain(|set, _| names.contains(&Name::LogSet(*set)));
            self.scanned.values_mut().for_each(|log| log.from = log.end);
        }
        self.read_logs(container, names)?;
        Ok(self)
    }

    /// One index of several encoded ones ([`Index::encode`]). EAGAIN if they do not follow each other, because somebody flattened the file between one load and another.
    pub(crate) fn merge(container: &Container, parts: &[&[u8]]) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let (mut all, mut shares) = (Index::default(), Vec::new());
        for bytes in parts {
            let flat = flat_index::decode(bytes, &container.superblock.uuid).map_err(corrupt)?;
            let lies = corrupt(Bad { at_bytes: flat.entries_at as u64, what: "an entry of a part of the index contradicts the format" });
            let numbers: Vec<u32> = flat.segments.iter().map(|segment| all.number(segment.at)).collect();
            for (segment, number) in flat.segments.iter().zip(&numbers) {
                all.ends[*number as usize] = all.ends[*number as usize].max(segment.bytes);
            }
            let entries = bytes.get(flat.entries_at..).and_then(|bytes| <[Entry]>::ref_from_bytes(bytes).ok()).unwrap_or_default();
            if !entries.iter().all(|entry| entry.is_sound() && (entry.run().segment as usize) < numbers.len()) {
                return Err(lies);
            }
            all.extents.extend(entries.iter().map(|entry| (Run { segment: numbers[entry.run().segment as usize], ..entry.run() }, entry.order())));
            for cut in &flat.truncates {
                all.extents.insert_truncate(Order { hlc: cut.hlc, set: cut.set, seq: cut.seq }, cut.size);
            }
            (all.max_hlc, all.records) = (all.max_hlc.max(flat.max_hlc), all.records.saturating_add(flat.records));
            shares.extend(flat.covered);
        }
        shares.sort_unstable_by_key(|share| (share.set, share.from, share.bytes));
        for share in shares {
            let (end, length) = (align_up(share.bytes), share.bytes);
            let log = all.scanned.entry(share.set).or_insert(Scanned { from: share.from, end: share.from, length });
            if log.end != share.from {
                return Err(Error::invalid(Errno::AGAIN, "the parts of the index do not follow each other: somebody flattened the file meanwhile"));
            }
            *log = Scanned { end, length, ..*log };
        }
        all.extents.compact();
        Ok(all)
    }

    /// An index that other processes have merged, used where it lies. It counts as complete while `summary`, read before they began, does.
    pub(crate) fn use_encoded(container: &Container, bytes: Bytes, summary: Option<&Summary>, generation: u64) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let flat = flat_index::decode((*bytes).as_ref(), &container.superblock.uuid).map_err(corrupt)?;
        let mut index = Index { token: summary.map(token_of), generation, ..Index::default() };
        if !index.is_settled(container)? {
            index.token = None;
        }
        for covered in &flat.covered {
            index.scanned.insert(covered.set, Scanned { from: covered.from, end: align_up(covered.bytes), length: covered.bytes });
        }
        index.must_be_whole()?;
        match index.take_flat(bytes, flat) {
            true => Ok(index),
            false => Err(corrupt(Bad { at_bytes: 0, what: "the entries of a merged index end outside of it" })),
        }
    }

    /// Refuses a part that lacks the beginning of some log.
    pub(crate) fn must_be_whole(&self) -> Result<()> {
        match self.scanned.values().all(|log| log.from == 0) {
            true => Ok(()),
            false => Err(Error::invalid(Errno::AGAIN, "a part of the index is missing: what the flat index has")),
        }
    }

    pub(crate) fn finish(&mut self, container: &Container, names: &[Name]) -> Result<()> {
        self.read_logs(container, names)?;
        if self.flat.is_none() {
            // One sorted level: lookups in what was loaded search one tree.
            self.extents.compact();
        }
        Ok(())
    }

    /// Whether nobody can have written since the index was loaded.
    fn is_settled(&self, container: &Container) -> Result<bool> {
        match self.token {
            Some(token) => Ok(container.store.stat(&container.dir, true).at("stat", &container.dir)?.mtime == token),
            None => Ok(false),
        }
    }

    /// Reads what others committed since the last look. Costs a listing and a stat for each index log, or one stat if nobody came; reads only what is new. True if it had to
    /// begin anew: then writes of this process that are in no log must be added again.
    pub fn refresh(&mut self, container: &Container) -> Result<bool> {
        if self.is_settled(container)? {
            return Ok(false);
        }
        self.token = None;
        let names = container.list()?;
        if !self.has_all(&names) {
            // Logs were removed, after a truncate to nothing or by a compaction: what we knew may be gone.
            let generation = self.generation;
            *self = Index { generation: generation + 1, ..Index::load(container)? };
            return Ok(true);
        }
        self.read_logs(container, &names).map(|()| false)
    }

    /// Whether all logs that were read are there still.
    pub(crate) fn has_all(&self, names: &[Name]) -> bool {
        self.scanned.keys().all(|set| names.contains(&Name::LogSet(*set)))
    }

    fn load_flat(&mut self, container: &Container, expect: Expect) -> Result<std::result::Result<(), String>> {
        let path = container.path(name::FLAT);
        let bytes: Bytes = match container.store.open(&path, Open::READ) {
            Ok(file) => file.map().at("map", &path)?,
            Err(Errno::NOENT) => return Ok(Err("it was just removed".into())),
            Err(errno) => return Err(errno).at("open", &path),
        };
        let flat = match flat_index::decode((*bytes).as_ref(), &container.superblock.uuid) {
            Ok(flat) => flat,
            Err(bad) => return Ok(Err(format!("it is damaged {bad}"))),
        };
        if flat.covered.iter().any(|covered| covered.from != 0) {
            return Ok(Err("it is a part of one".into()));
        }
        for covered in &flat.covered {
            let length = match expect {
                Expect::Log(set) if covered.set != set => continue,
                Expect::Id(id) if id == flat.id => covered.bytes,
                Expect::Id(_) => return Ok(Err("the summary means another".into())),
                Expect::Logs(names) if !names.contains(&Name::LogSet(covered.set)) => {
                    return Ok(Err(format!("it is stale: log set {:08x} is gone", covered.set)));
                }
                Expect::Logs(_) | Expect::Log(_) => {
                    let path = container.path(&name::index_log(covered.set));
                    let length = container.store.stat(&path, true).map_or(0, |stat| stat.len);
                    if length < covered.bytes {
                        return Ok(Err(format!("it is stale: it covers {} bytes of {}, which has {length}", covered.bytes, path.display())));
                    }
                    length
                }
            };
            self.scanned.insert(covered.set, Scanned { from: 0, end: align_up(covered.bytes), length });
        }
        match self.take_flat(bytes, flat) {
            true => Ok(Ok(())),
            false => Ok(Err("it is damaged: its entries end outside the file".into())),
        }
    }

    /// Uses a decoded flat index where it lies; false if it contradicts itself.
    fn take_flat(&mut self, bytes: Bytes, flat: FlatIndex) -> bool {
        self.extents = match ExtentMap::with_base(bytes, flat.entries_at, flat.entries as usize, flat.max_hlc) {
            Some(map) => map,
            None => return false,
        };
        for cut in &flat.truncates {
            self.extents.insert_truncate(Order { hlc: cut.hlc, set: cut.set, seq: cut.seq }, cut.size);
        }
        (self.segments, self.ends) = flat.segments.iter().map(|segment| (segment.at, segment.bytes)).unzip();
        self.numbers = self.segments.iter().enumerate().map(|(i, at)| (*at, i as u32)).collect();
        (self.max_hlc, self.records) = (flat.max_hlc, flat.records);
        self.flat = Some(Flat { id: flat.id, covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect() });
        true
    }

    /// Everything that was read, as a flat index. It counts as the one in use from now on.
    pub(crate) fn encode(&mut self, container: &Container) -> Vec<u8> {
        // A log is covered as far as blocks were found, but not past its length: the last block's padding may be missing.
        let mut covered: Vec<Covered> = self.scanned.iter().map(|(set, log)| Covered { set: *set, from: log.from, bytes: log.end.min(log.length) }).collect();
        covered.sort_by_key(|covered| covered.set);
        let mut flat = FlatIndex {
            uuid: container.superblock.uuid,
            size: self.eof(),
            records: self.records,
            max_hlc: self.max_hlc,
            covered,
            segments: self.segments.iter().zip(&self.ends).map(|(at, bytes)| Segment { at: *at, bytes: *bytes }).collect(),
            truncates: self.extents.truncates().iter().map(|(order, size)| Truncate { hlc: order.hlc, set: order.set, seq: order.seq, size: *size }).collect(),
            entries: 0,
            entries_at: 0,
            id: 0,
        };
        let bytes = flat_index::encode(&flat, self.extents.compact().as_bytes());
        flat.id = flat_index::id(&bytes);
        self.flat = Some(Flat { id: flat.id, covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect() });
        bytes
    }

    /// Reads what the logs among `names` have beyond what was read.
    pub(crate) fn read_logs(&mut self, container: &Container, names: &[Name]) -> Result<()> {
        let sets: Vec<(u32, u64)> = names
            .iter()
            .filter_map(|name| match name {
                Name::LogSet(set) => Some((*set, self.scanned.get(set).map_or(0, |log| log.end))),
                _ => None,
            })
            .collect();
        for (set, scanned, blocks) in read_side_by_side(container, &sets)? {
            let log = self.scanned.entry(set).or_default();
            *log = Scanned { from: log.from, ..scanned };
            for (header, block) in blocks {
                self.count(&block);
                if !self.own.remove(&header.hlc) {
                    self.insert_block(set, &block);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, block: &Block) {
        self.records = self.records.saturating_add(block.header.records.into());
        for (_, record) in &block.records {
            if let Record::Run { segment, physical, length, count, .. } = record {
                let number = self.number(block.segments[*segment as usize]) as usize;
                self.ends[number] = self.ends[number].max(physical + length * u64::from(*count));
            }
        }
    }

    fn insert_block(&mut self, set: u32, block: &Block) {
        self.generation += 1;
        self.max_hlc = self.max_hlc.max(block.header.hlc);
        let numbers: Vec<u32> = block.segments.iter().map(|at| self.number(*at)).collect();
        let runs = block.records.iter().filter_map(|(_, record)| match record {
            Record::Run { logical, length, stride, count, segment, physical, stamp, .. } => {
                let segment = numbers[*segment as usize];
                Some((Run { logical: *logical, length: *length, stride: *stride, count: *count, segment, physical: *physical }, order(*stamp, set)))
            }
            Record::Truncate { .. } | Record::Writer { .. } => None,
        });
        self.extents.extend(runs);
        for (_, record) in &block.records {
            if let Record::Truncate { size, stamp } = record {
                self.extents.insert_truncate(order(*stamp, set), *size);
            }
        }
    }

    fn number(&mut self, at: SegmentRef) -> u32 {
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
        for Stamped { run, stamp } in &fresh.runs {
            self.extents.insert(Run { segment: numbers[run.segment as usize], ..*run }, order(*stamp, fresh.set));
        }
    }

    /// Takes in a commit of this process.
    pub fn add_committed(&mut self, commit: &Committed) {
        self.add_own(&commit.fresh);
        if let Some((stamp, size)) = commit.truncate {
            self.generation += 1;
            self.extents.insert_truncate(order(stamp, commit.fresh.set), size);
        }
        self.own.extend(&commit.blocks);
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

    /// The flat index that [`Index::encode`] made is not where readers look.
    pub(crate) fn forget_flat(&mut self) {
        self.flat = None;
    }

    /// The flat index if it fits the log of `set`, whatever became of the others; else nothing.
    pub(crate) fn flat_for(container: &Container, set: u32) -> Index {
        let mut index = Index::default();
        match index.load_flat(container, Expect::Log(set)) {
            Ok(Ok(())) => index,
            _ => Index::default(),
        }
    }

    /// What was read of one log set: the largest physical end in each of its segments, and where in its index log the next look starts.
    pub(crate) fn read_of(&self, set: u32) -> (HashMap<SegmentRef, u64>, u64) {
        let ends = self.segments.iter().copied().zip(self.ends.iter().copied()).filter(|(at, _)| at.set == set);
        (ends.collect(), self.scanned.get(&set).map_or(0, |log| log.end))
    }

    /// Bytes of index logs that have not been read.
    pub(crate) fn unread_bytes(&self, container: &Container, names: &[Name]) -> u64 {
        let unread = |name: &Name| match name {
            Name::LogSet(set) => {
                let length = container.store.stat(&container.path(&name::index_log(*set)), true).map_or(0, |stat| stat.len);
                length.saturating_sub(self.scanned.get(set).map_or(0, |log| log.end))
            }
            _ => 0,
        };
        names.iter().map(unread).sum()
    }

    /// How much of the logs no flat index has: (logs, bytes).
    pub(crate) fn uncovered(&self) -> (usize, u64) {
        let covered = |set: &u32| self.flat.as_ref().and_then(|flat| flat.covered.get(set)).map_or(0, |bytes| align_up(*bytes));
        self.scanned
            .iter()
            .map(|(set, log)| log.end.saturating_sub(covered(set)))
            .filter(|bytes| *bytes > 0)
            .fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes))
    }

    /// Which flat index has everything that was read; 0 if there is none.
    pub(crate) fn whole_flat(&self) -> u32 {
        match &self.flat {
            Some(flat) if self.uncovered() == (0, 0) && flat.covered.len() == self.scanned.len() => flat.id,
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

fn token_of(summary: &Summary) -> Time {
    Time { sec: summary.token_sec, nsec: summary.token_nsec }
}

fn order(stamp: u64, set: u32) -> Order {
    Order { hlc: stamp, set, seq: 0 }
}

type Blocks = Vec<(Header, Block)>;

fn read_side_by_side(container: &Container, sets: &[(u32, u64)]) -> Result<Vec<(u32, Scanned, Blocks)>> {
    let read = |(set, from): (u32, u64)| -> Result<(u32, Scanned, Blocks)> {
        let bytes = log::read_index_log_from(container, set, from)?;
        let mut blocks = Vec::new();
        let end = log::scan_whole(container, set, from, &bytes, |offset, header, at| {
            let block =
                decode_block(container.log_id(set), header, offset, at).map_err(|bad| Error::Corrupt { path: container.path(&name::index_log(set)), bad })?;
            blocks.push((header, block));
            Ok(())
        })?;
        Ok((set, Scanned { from: 0, end, length: from + bytes.len() as u64 }, blocks))
    };
    // Where a read travels, the first look at each log that another client wrote costs milliseconds; where it does not, a thread costs more than a few reads.
    let worth = if container.local { THREADS } else { 2 };
    if sets.len() < worth {
        return sets.iter().map(|set| read(*set)).collect();
    }
    let chunks: Vec<&[(u32, u64)]> = sets.chunks(sets.len().div_ceil(THREADS)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = chunks.iter().map(|chunk| scope.spawn(|| chunk.iter().map(|set| read(*set)).collect::<Result<Vec<_>>>())).collect();
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(part) => all.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}
