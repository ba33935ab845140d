//! Where every byte of a logical file lies: an [`Index`] takes what is read from logs and what this
//! process writes, decides what of it to believe, and answers reads.

mod encode;
mod flat;
mod load;
mod logs;

use std::collections::{HashMap, HashSet};

use plfs_format::index_log::align_up;
use plfs_format::name::{Name, SegmentRef};
use plfs_index::{Bulk, Committed, ExtentMap, Found, Fresh, Order, Overlaps, Run, renumbered};

use flat::Flat;
pub(crate) use flat::read_flat;
pub(crate) use load::Purpose;
use load::Source;
pub(crate) use logs::Nests;
use logs::{Due, Part, read_side_by_side};

use super::Totals;
use super::doubt::{Block, Case, Doubts, Taken, Verdict};
use crate::container::{Container, log_sets};
use crate::error::Result;
use crate::store::Time;

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
    max_stamp: u64,
    /// Changes whenever a lookup may answer differently.
    generation: u64,
    /// Why a flat index that exists is not used.
    flat_ignored: Option<String>,
    /// The flat index in use.
    flat: Option<Flat>,
    /// What was read has no orders up to this stamp, if it is not 0: a record that comes later and
    /// is not younger would not find its place.
    floor: u64,
    /// See [`FlatIndex::may_lack_cut`](plfs_format::flat_index::FlatIndex::may_lack_cut).
    may_lack_cut: bool,
    /// Why nothing that was looked up is to be believed any more.
    fault: Option<Fault>,
    /// While the container directory has this time, nobody has written since the index was loaded.
    token: Option<Time>,
    /// How it came to its flat index.
    source: Source,
    /// Records whose data may not be there, and that lay over nothing when they came. What their
    /// segment numbers mean nobody asks.
    unproven: Bulk,
    /// Where there is anything above the base, for who has doubts about what comes over it. `None`
    /// as long as nobody has, and after a truncate.
    occupied: Option<Overlaps>,
    /// What was left out, because its data is not there and there is something older.
    taken: Vec<Taken>,
    /// What it is loaded for.
    purpose: Purpose,
    /// Whether its records have data that may not be durable.
    undurable: Undurable,
    /// Some of the data was made durable. That says nothing about the rest.
    has_durable: bool,
    /// Bytes of the base that it has, if the container has a base.
    base_len: u64,
}

/// What is wrong with an index whose bytes were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Something in a flat index contradicts the format, and what it had was packed anew since.
    Damaged,
    /// A record came that is not younger than the index's floor.
    Overtaken,
    /// Data that a flat index has is not there, and no log was looked at.
    DataMissing,
    /// The plain file below the logs has another length than when the flat index was made.
    BaseChanged,
}

/// Data that may not be durable; only looked for if the index is to last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Undurable {
    /// There is none.
    #[default]
    None,
    /// There is some, and all of it lies over nothing.
    OverNothing,
    /// Some of it lies over something older.
    OverOlder,
}

/// What the data of a part of an index is like. A byte that somebody made durable may lie below one
/// that a power cut took, and if they are in two parts, nobody who has one of them can tell. Two
/// flags, because a part may have both kinds of data, or neither.
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

impl Index {
    /// If it is [lasting](Index::lasting): whether a flat index of it could hide, after a power
    /// cut, what was synced. A record whose data is not durable lies over something older; or, if
    /// not all writers are done (not `settled`), something older may come yet.
    pub(crate) fn is_doubtful(&self, settled: bool) -> bool {
        match self.undurable {
            Undurable::None => false,
            Undurable::OverNothing => !settled,
            Undurable::OverOlder => true,
        }
    }

    /// What was left out: data of it is not there.
    pub(crate) fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Why what is known is not to be believed, though its bytes were: a block of the flat index
    /// was damaged, or a record came that the flat index has no place for. Then
    /// [`Index::load_logs`] helps.
    pub fn is_broken(&self) -> Option<&'static str> {
        let fault = self.extents.is_damaged().then_some(Fault::Damaged).or(self.fault);
        fault.map(|fault| match fault {
            Fault::Damaged => {
                "it is damaged: a block does not match its checksum, or an entry contradicts the \
                 format"
            }
            Fault::Overtaken => "a writer that it does not have began before it was made",
            Fault::DataMissing => {
                "it has data that is not there: power was cut before all was durable"
            }
            Fault::BaseChanged => "the plain file below the logs has changed its length",
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

    /// What the data of a part of the index is like, for who merges it with others.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            is_doubtful: self.unproven.records() > 0,
            is_durable: self.has_durable || self.flat.is_some(),
        }
    }

    /// The same for a part of a flat index: what is not durable yet is doubtful, too.
    pub(crate) fn standing_to_last(&self) -> Standing {
        Standing { is_doubtful: self.undurable > Undurable::None, ..self.standing() }
    }

    /// Reads what the logs among `names` have beyond what was read. False if one of them was
    /// removed meanwhile: what others say may be from before that or from after it, so all
    /// must be read anew. So too if something older came below a record whose data may not be
    /// there.
    pub(crate) fn read_logs(&mut self, container: &Container, names: &[Name]) -> Result<bool> {
        let has_failed = |set: u32| names.contains(&Name::Unsynced(set));
        let is_any = names.iter().any(|name| matches!(name, Name::Unsynced(_)));
        let sets: Vec<Due> = log_sets(names)
            .into_iter()
            .map(|set| Due {
                set,
                from: self.scanned.get(&set).map_or(0, |log| log.end),
                has_failed: is_any && has_failed(set),
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
                self.max_stamp = self.max_stamp.max(part.max_stamp);
            }
            for block in &part.own {
                self.own.remove(block);
            }
            self.has_durable |= part.has_durable;
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
            doubted.map(|(_, order)| order.stamp).fold(part.bulk.oldest(), u64::min)
        };
        let oldest = parts.iter().map(new).min().unwrap_or(u64::MAX);
        let is_over_all = self.unproven.records() == 0 || self.unproven.newest() < oldest;
        if is_over_all && parts.iter().all(|part| part.doubted.is_empty()) {
            return Ok(true);
        }
        for (order, size) in parts.iter().flat_map(|part| part.bulk.truncates()) {
            self.cut(*order, *size);
        }
        let mut case = Case::default();
        if !is_over_all {
            self.unproven.for_each(|run, order| {
                if order.stamp >= oldest {
                    case.unproven(run, order);
                }
            });
        }
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
        if !verdict.taken.is_empty() && self.unproven.records() > 0 {
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
                        if block.may_be_gone(doubts) {
                            self.unproven.push(left, *order);
                        }
                    }
                }
                if !block.runs.is_empty() {
                    self.undurable = self.undurable.max(Undurable::OverNothing);
                }
                number += 1;
            }
        }
        if verdict.is_layered {
            self.undurable = Undurable::OverOlder;
        }
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

    /// Takes in what was written in place since the last look, if the file was a plain one: it lies
    /// below all records. A stat.
    pub(super) fn follow_base(&mut self, container: &Container) -> Result<()> {
        let Some(len) = container.base_len()? else { return Ok(()) };
        // Counted as a data log, be it empty.
        let number = self.number(SegmentRef::BASE);
        if len != self.base_len && self.flat.is_some() {
            // What hid these bytes may have hidden nothing when it was made, and is not in it.
            self.fault.get_or_insert(Fault::BaseChanged);
        }
        if len > self.base_len {
            let (from, new) = (self.base_len, len - self.base_len);
            let run = Run::single(from, new, number, from);
            let lowest = Order { stamp: 0, set: 0 };
            if let Some(occupied) = &mut self.occupied {
                occupy(occupied, &self.extents, run, lowest);
            }
            self.extents.insert(run, lowest);
            self.ends[number as usize] = len;
            self.base_len = len;
            self.generation += 1;
        }
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
        let runs: Vec<_> = commit.room.into_iter().collect();
        self.add_own(&Fresh { set: commit.set, runs, segments: Vec::new() });
        self.own.extend(commit.blocks.iter().map(|stamp| (commit.set, *stamp)));
        self.max_stamp = commit.blocks.iter().fold(self.max_stamp, |max, stamp| max.max(*stamp));
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

    /// What segment number `number` of a [`Found`] means; `None` only if a flat index is corrupt.
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
    pub fn max_stamp(&self) -> u64 {
        self.max_stamp
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

    /// What was read of all log sets: the largest physical end in each segment, and where in each
    /// index log the next look starts.
    pub(crate) fn read(&self) -> (HashMap<SegmentRef, u64>, HashMap<u32, u64>) {
        (
            self.segments
                .iter()
                .copied()
                .zip(self.ends.iter().copied())
                .filter(|(_, end)| *end > 0)
                .collect(),
            self.scanned.iter().map(|(set, log)| (*set, log.end)).collect(),
        )
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
        // The base is, also if it is empty.
        let is_there = |(at, end): &(&SegmentRef, &u64)| **end > 0 || **at == SegmentRef::BASE;
        Totals {
            size: self.eof(),
            // Corrupt logs may have any lengths: their sum must not overflow.
            stored_bytes: self.ends.iter().fold(0, |sum, end| sum.saturating_add(*end)),
            max_stamp: self.max_stamp,
            cut: self.extents.truncates().last().map_or(0, |(order, _)| order.stamp),
            index_bytes: self.scanned.values().fold(0, |sum, log| sum.saturating_add(log.length)),
            records: self.records,
            log_sets: self.scanned.len() as u32,
            silent_sets: self.scanned.values().filter(|log| log.length == 0).count() as u32,
            data_logs: self.segments.iter().zip(&self.ends).filter(is_there).count() as u32,
            from_summary: false,
        }
    }

    /// Whether [`Totals::cut`] of [`Index::totals`] is that of the last truncate.
    pub(super) fn knows_cut(&self) -> bool {
        !self.may_lack_cut
    }

    /// Whether a flat index is in use, and if one exists but is not, why.
    pub fn flat(&self) -> (bool, Option<&str>) {
        (self.flat.is_some(), self.flat_ignored.as_deref())
    }
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

fn order(stamp: u64, set: u32) -> Order {
    Order { stamp, set }
}
