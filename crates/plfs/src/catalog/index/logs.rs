//! Reads index logs side by side: each thread fills a [`Part`] with what it found.

use std::collections::HashSet;

use plfs_format::index_log::{BLOCK_NEST_RUNS_MAX, Record, decode_block};
use plfs_format::name;
use plfs_index::{Bulk, Run, Stamped};

use super::{Scanned, order};
use crate::catalog::doubt::{Block, Doubts, Durable, sums_of};
use crate::container::Container;
use crate::error::{Error, Result};
use crate::log;
use crate::store::Errno;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread;

/// Threads that read index logs side by side: storage latency, not computing, is what they hide.
const THREADS: usize = 8;

/// Bytes of [`Container::index_bytes`] for each run of a nest: 72 of an entry, rounded.
const NEST_RUN_BYTES: u64 = 64;
/// Runs of nests that an index may have in any case: those of a block.
const NEST_RUNS_LEAST: u64 = BLOCK_NEST_RUNS_MAX as u64;

/// Runs of nests that were made of records so far. A record of 80 bytes stands for up to 65,536 of
/// them, and a few forged ones would take all memory: so they are counted before they are made.
#[derive(Debug, Default)]
pub(crate) struct Nests(AtomicU64);

impl Nests {
    /// Counts the runs of a record. ENOMEM if they are too many, with what a user can do.
    pub(crate) fn may_have(&self, container: &Container, record: &Stamped) -> Result<()> {
        let runs = u64::from(record.runs());
        let most = (container.index_bytes / NEST_RUN_BYTES).max(NEST_RUNS_LEAST);
        if runs > 1 && self.0.fetch_add(runs, Ordering::Relaxed) + runs > most {
            let why = "its records stand for more strided runs than PLFS_INDEX_BYTES allows, at 64 \
                       bytes each; set that higher if you trust who wrote the file";
            return Err(Error::refused(Errno::NOMEM, "load the index of", &container.dir, why));
        }
        Ok(())
    }
}

/// An index log that is to be read.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) set: u32,
    /// Where.
    pub(super) from: u64,
    /// A sync of the set has failed.
    pub(super) has_failed: bool,
}

/// What a thread has read.
#[derive(Default)]
pub(super) struct Part {
    pub(super) bulk: Bulk,
    pub(super) scanned: Vec<(u32, Scanned)>,
    /// Largest physical end of a run in each of the bulk's segments.
    pub(super) ends: Vec<u64>,
    pub(super) records: u64,
    pub(super) max_stamp: u64,
    /// Blocks of this process, which it has already.
    pub(super) own: Vec<(u32, u64)>,
    /// There were blocks of others.
    pub(super) is_news: bool,
    /// Log sets without an index log.
    pub(super) missing: Vec<u32>,
    /// Blocks in doubt, whose runs the bulk does not have yet.
    pub(super) doubted: Vec<Block>,
    /// A block says of some data that it is durable.
    pub(super) has_durable: bool,
}

impl Part {
    fn read(
        &mut self,
        container: &Container,
        Due { set, from, has_failed }: Due,
        own: &HashSet<(u32, u64)>,
        doubts: Doubts,
        nests: &Nests,
    ) -> Result<()> {
        let (mut durable, mut doubted) = (Durable::default(), Vec::new());
        let scan = log::scan_whole(container, set, from, |offset, header, at| {
            let block = decode_block(header, offset, at)
                .map_err(|bad| Error::of_bytes(&container.path(&name::index_log(set)), bad))?;
            self.records = self.records.saturating_add(header.records.into());
            let is_own = own.contains(&(set, header.stamp));
            match is_own {
                true => self.own.push((set, header.stamp)),
                false => (self.is_news, self.max_stamp) = (true, self.max_stamp.max(header.stamp)),
            }
            let numbers: Vec<u32> = block.segments.iter().map(|at| self.bulk.number(*at)).collect();
            self.ends.resize(self.bulk.segments().len(), 0);
            durable.push(&block);
            self.has_durable |= header.is_data_durable || header.durable > 0;
            let doubt = doubts.about(&block, has_failed).filter(|_| !is_own);
            let mut runs = Vec::new();
            for (_, record) in &block.records {
                match *record {
                    Record::Run(ref run) => {
                        let segment = numbers[usize::from(run.segment)];
                        let end = &mut self.ends[segment as usize];
                        *end = (*end).max(run.physical_end());
                        let all = Stamped::of_record(run, segment);
                        nests.may_have(container, &all)?;
                        all.each().for_each(|run| match doubt {
                            _ if is_own => {}
                            Some(_) => runs.push((run, order(all.stamp, set))),
                            None => self.bulk.push(run, order(all.stamp, set)),
                        });
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
                doubted.push(Block { set, offset, boot, has_failed, sums, runs });
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

pub(super) fn read_side_by_side(
    container: &Container,
    sets: &[Due],
    own: &HashSet<(u32, u64)>,
    doubts: Doubts,
) -> Result<Vec<Part>> {
    let nests = Nests::default();
    let read = |next: &dyn Fn() -> Option<Due>| -> Result<Part> {
        let mut part = Part::default();
        while let Some(due) = next() {
            part.read(container, due, own, doubts, &nests)?;
        }
        Ok(part)
    };
    let at = AtomicUsize::new(0);
    let next = || sets.get(at.fetch_add(1, Ordering::Relaxed)).copied();
    // Where a read travels, the first look at each log that another client wrote costs
    // milliseconds; where it does not, a thread costs more than a few reads, and than many of logs
    // of which only the end is new.
    let worth = match container.local {
        true => sets.iter().filter(|due| due.from == 0).count() >= THREADS,
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
