//! Reads index logs side by side: each thread fills a [`Part`] with what it found.

use std::collections::HashSet;

use plfs_format::index_log::{Record, decode_block};
use plfs_format::name;
use plfs_index::{Bulk, Run};

use super::{Scanned, order};
use crate::catalog::doubt::{Block, Doubts, Durable, sums_of};
use crate::container::Container;
use crate::error::{Error, Result};
use crate::log;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;

/// Threads that read index logs side by side: storage latency, not computing, is what they hide.
const THREADS: usize = 8;

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
    let read = |next: &dyn Fn() -> Option<Due>| -> Result<Part> {
        let mut part = Part::default();
        while let Some(due) = next() {
            part.read(container, due, own, doubts)?;
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
