//! From records to index blocks.

use plfs_format::index_log::{BLOCK_NEST_RUNS_MAX, Record, RunRecord};
use plfs_format::name::SegmentRef;

use crate::{HOLE, Run, Stamped};

/// Records in one index block at most: each may be of another segment, and a block can name so
/// many. 56 KB each thousand, far below the format's limit.
pub const BLOCK_RECORDS: usize = u16::MAX as usize;
/// Records a writer may hold before it appends them on its own: about 3 MB.
pub const PENDING_RECORDS: usize = 65_536;

impl Stamped {
    /// What a record says; `segment` is the number that its reader has for the segment.
    pub fn of_record(record: &RunRecord, segment: u32) -> Stamped {
        let RunRecord { logical, length, stride, count, physical, stamp, repeat, .. } = *record;
        let run = Run { logical, length, stride, count, segment, physical };
        Stamped { run, repeat, stamp }
    }
}

/// What an index block says of `runs`, whose segment numbers are indexes into `all`: the segments
/// that they use, and a record each.
pub fn block_of(
    all: &[SegmentRef],
    runs: &[Stamped],
    writer: u32,
) -> (Vec<SegmentRef>, Vec<Record>) {
    let (mut segments, mut local) = (Vec::new(), vec![None::<u16>; all.len()]);
    // One more than runs: the first block of a writer gets a record of who it is.
    let mut records = Vec::with_capacity(runs.len() + 1);
    for Stamped { run, repeat, stamp } in runs {
        if run.segment == HOLE {
            // Holes side by side are one piece; no others fold, because none follows another in a
            // segment.
            records.push(Record::Hole {
                logical: run.logical,
                length: run.bytes(),
                writer,
                stamp: *stamp,
            });
            continue;
        }
        let segment = *local[run.segment as usize].get_or_insert_with(|| {
            segments.push(all[run.segment as usize]);
            segments.len() as u16 - 1
        });
        records.push(Record::Run(RunRecord {
            logical: run.logical,
            length: run.length,
            stride: run.stride,
            count: run.count,
            segment,
            physical: run.physical,
            writer,
            stamp: *stamp,
            repeat: *repeat,
        }));
    }
    (segments, records)
}

/// Cuts records into what a block each can hold.
pub fn in_blocks(mut runs: &[Stamped]) -> impl Iterator<Item = &[Stamped]> {
    std::iter::from_fn(move || {
        let mut nested = 0;
        let fits = |item: &&Stamped| {
            nested += item.runs();
            nested <= BLOCK_NEST_RUNS_MAX
        };
        let (block, rest) = runs.split_at(runs.iter().take(BLOCK_RECORDS).take_while(fits).count());
        runs = rest;
        (!block.is_empty()).then_some(block)
    })
}

#[cfg(test)]
mod tests {
    use plfs_format::index_log::{Append, LogId, Repeat, encode_block};

    use super::*;

    /// One more than a block can name was a number too large, or a block that could not be made.
    #[test]
    fn each_record_may_have_a_segment_of_its_own() {
        let all: Vec<SegmentRef> = (0..=u32::from(u16::MAX))
            .map(|segment| SegmentRef { set: 1, stream: 0, segment, backend: 0 })
            .collect();
        let run = |segment: u32| Run::single(u64::from(segment) * 9, 4, segment, 0);
        let stamped = |segment| Stamped { run: run(segment), repeat: [Repeat::ONCE; 2], stamp: 1 };
        let runs: Vec<Stamped> = (0..all.len() as u32).map(stamped).collect();
        let mut found = 0;
        for block in in_blocks(&runs) {
            let (segments, records) = block_of(&all, block, 0);
            let log = LogId { uuid: plfs_format::Uuid::default(), set: 1 };
            encode_block(log, Append::default(), &segments, &records).unwrap();
            for record in records {
                let Record::Run(run) = record else { panic!("{record:?}") };
                assert_eq!(u64::from(segments[usize::from(run.segment)].segment) * 9, run.logical);
                found += 1;
            }
        }
        assert_eq!(found, runs.len());
    }
}
