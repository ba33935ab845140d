//! From index logs to an index that answers reads: load, follow what others commit, take in what this process writes.

use std::collections::{HashMap, HashSet};

use plfs_format::flat_index;
use plfs_format::index_log::{Block, Header, Record, decode_block};
use plfs_format::name::{self, Name, SegmentRef};
use zerocopy::IntoBytes;

use super::{ExtentMap, Found, Order, Run, Stamped};
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::log;
use crate::store::{Bytes, Errno, Open};
use crate::write::{Committed, Fresh};

/// Threads that read index logs side by side: storage latency, not computing, is what they hide.
const THREADS: usize = 8;

/// Where every byte of a logical file lives, as far as this process has looked.
#[derive(Debug, Default)]
pub struct Index {
    extents: ExtentMap,
    segments: Vec<SegmentRef>,
    numbers: HashMap<SegmentRef, u32>,
    /// How far each index log has been read.
    scanned: HashMap<u32, u64>,
    /// Stamps of this process's blocks, which it need not read.
    own: HashSet<u64>,
    max_hlc: u64,
    /// Changes whenever a lookup may answer differently.
    generation: u64,
    /// Why a flat index that exists is not used.
    flat_ignored: Option<String>,
    uses_flat: bool,
}

impl Index {
    /// Reads the flat index if it fits, and all index logs as far as it does not cover them.
    pub fn load(container: &Container) -> Result<Index> {
        let mut index = Index::default();
        let names = container.list()?;
        if names.contains(&Name::Flat) {
            match index.load_flat(container, &names)? {
                Ok(()) => index.uses_flat = true,
                Err(why) => index = Index { flat_ignored: Some(why), ..Index::default() },
            }
        }
        index.read_logs(container, &names)?;
        if !index.uses_flat {
            // One sorted level: lookups in what was loaded search one tree.
            index.extents.compact();
        }
        Ok(index)
    }

    /// Reads what others committed since the last look. Costs a listing and a stat for each index log; reads only what is new. True if it had to begin
    /// anew: then writes of this process that are in no log must be added again.
    pub fn refresh(&mut self, container: &Container) -> Result<bool> {
        let names = container.list()?;
        if self.scanned.keys().any(|set| !names.contains(&Name::LogSet(*set))) {
            // Logs were removed, after a truncate to nothing or by a compaction: what we knew may be gone.
            let generation = self.generation;
            *self = Index { generation: generation + 1, ..Index::load(container)? };
            return Ok(true);
        }
        self.read_logs(container, &names).map(|()| false)
    }

    fn load_flat(&mut self, container: &Container, names: &[Name]) -> Result<std::result::Result<(), String>> {
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
        for covered in &flat.covered {
            let path = container.path(&name::index_log(covered.set));
            let len = match names.contains(&Name::LogSet(covered.set)) {
                true => container.store.stat(&path, true).map_or(0, |stat| stat.len),
                false => 0,
            };
            if len < covered.bytes {
                return Ok(Err(format!("it is stale: it covers {} bytes of {}, which has {len}", covered.bytes, path.display())));
            }
            self.scanned.insert(covered.set, covered.bytes);
        }
        let (at, count) = (flat.entries_at, flat.entries as usize);
        self.extents = match ExtentMap::with_base(bytes, at, count, flat.max_hlc) {
            Some(map) => map,
            None => return Ok(Err("it is damaged: its entries end outside the file".into())),
        };
        for cut in &flat.truncates {
            self.extents.insert_truncate(Order { hlc: cut.hlc, set: cut.set, seq: cut.seq }, cut.size);
        }
        self.segments = flat.segments;
        self.numbers = self.segments.iter().enumerate().map(|(i, at)| (*at, i as u32)).collect();
        self.max_hlc = flat.max_hlc;
        Ok(Ok(()))
    }

    fn read_logs(&mut self, container: &Container, names: &[Name]) -> Result<()> {
        let sets: Vec<(u32, u64)> = names
            .iter()
            .filter_map(|name| match name {
                Name::LogSet(set) => Some((*set, self.scanned.get(set).copied().unwrap_or(0))),
                _ => None,
            })
            .collect();
        for (set, end, blocks) in read_side_by_side(container, &sets)? {
            self.scanned.insert(set, end);
            for (header, block) in blocks {
                if !self.own.remove(&header.hlc) {
                    self.insert_block(set, &block);
                }
            }
        }
        Ok(())
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

    /// All extents, merged, as a flat index stores them.
    pub fn merged_entries(&mut self) -> Vec<u8> {
        self.extents.compact().as_bytes().to_vec()
    }

    /// All extents.
    pub fn extents(&self) -> &ExtentMap {
        &self.extents
    }

    /// How far each index log has been read: (set, bytes).
    pub fn scanned(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.scanned.iter().map(|(set, bytes)| (*set, *bytes))
    }

    /// Whether a flat index is in use, and if one exists but is not, why.
    pub fn flat(&self) -> (bool, Option<&str>) {
        (self.uses_flat, self.flat_ignored.as_deref())
    }
}

fn order(stamp: u64, set: u32) -> Order {
    Order { hlc: stamp, set, seq: 0 }
}

type Blocks = Vec<(Header, Block)>;

fn read_side_by_side(container: &Container, sets: &[(u32, u64)]) -> Result<Vec<(u32, u64, Blocks)>> {
    let read = |(set, from): (u32, u64)| -> Result<(u32, u64, Blocks)> {
        let bytes = log::read_index_log_from(container, set, from)?;
        let mut blocks = Vec::new();
        let end = log::scan_whole(container, set, from, &bytes, |offset, header, at| {
            let block =
                decode_block(container.log_id(set), header, offset, at).map_err(|bad| Error::Corrupt { path: container.path(&name::index_log(set)), bad })?;
            blocks.push((header, block));
            Ok(())
        })?;
        Ok((set, end, blocks))
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
