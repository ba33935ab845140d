//! All records of a container, for tools.

use std::collections::HashMap;
use std::path::PathBuf;

use plfs_format::index_log::{Record, RunRecord, decode_block};
use plfs_format::name::{self, SegmentRef};
use plfs_index::{Run, Stamped};

use crate::catalog::Nests;
use crate::container::{Container, log_sets};
use crate::error::{Error, Result};
use crate::log;

/// Who wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrittenBy {
    /// Host.
    pub host: String,
    /// Process id there.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// These bytes are there; `segment` counts in [`Records::data_logs`].
    Run(Run),
    /// These bytes are a hole.
    Hole {
        /// Offset in the file.
        logical: u64,
        /// Bytes.
        length: u64,
    },
    /// The size became this.
    Truncate(u64),
}

/// One run, hole or truncate of an index log; of a nest, one of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRecord {
    /// When, in units of 2^-16 ms since 1970; decides overlaps.
    pub stamp: u64,
    /// Stamp of its block: all of it was written before. So was it before the writer's next
    /// record, because a writer has one record under way at a time.
    pub committed: u64,
    /// Log set: decides between equal stamps.
    pub set: u32,
    /// What it says.
    pub said: RecordKind,
    /// Who, as a place in [`Records::writers`].
    pub writer: Option<u32>,
}

/// What a data log is a piece of, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamAt {
    /// The log set.
    pub set: u32,
    /// The stream of that.
    pub stream: u16,
    /// Its number in the stream.
    pub segment: u32,
    /// The backend, by its id. `None`: the plain file that the container was made of.
    pub backend: Option<u16>,
}

impl StreamAt {
    fn of(at: &SegmentRef) -> StreamAt {
        let SegmentRef { set, stream, segment, backend } = *at;
        StreamAt { set, stream, segment, backend: (*at != SegmentRef::BASE).then_some(backend) }
    }
}

/// All records of a container.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// In the order that decides overlaps: later ones win.
    pub records: Vec<IndexRecord>,
    /// Data logs that runs name.
    pub data_logs: Vec<PathBuf>,
    /// Of each of them, which stream on which backend it is.
    pub streams: Vec<StreamAt>,
    /// Writers that records name.
    pub writers: Vec<WrittenBy>,
}

/// Reads every run, hole and truncate that any writer committed, whether later ones hide it or not.
/// Memory grows with their number.
pub fn records(container: &Container) -> Result<Records> {
    let mut all = Records::default();
    let (mut numbers, nests) = (HashMap::new(), Nests::default());
    for set in log_sets(container.list()?) {
        let path = container.path(&name::index_log(set));
        let mut writers = HashMap::new();
        let mut wrote = Vec::new();
        log::scan(container, set, 0, |offset, header, at| {
            let block =
                decode_block(header, offset, at).map_err(|bad| Error::of_bytes(&path, bad))?;
            for (_, record) in block.records {
                match record {
                    Record::Run(run) => {
                        let at = block.segments[usize::from(run.segment)];
                        let segment = match numbers.get(&at) {
                            Some(number) => *number,
                            None => {
                                all.data_logs.push(container.segment_path(&at)?);
                                all.streams.push(StreamAt::of(&at));
                                *numbers.entry(at).or_insert(all.data_logs.len() as u32 - 1)
                            }
                        };
                        let RunRecord { writer, stamp, .. } = run;
                        let runs = Stamped::of_record(&run, segment);
                        nests.may_have(container, &runs)?;
                        for run in runs.each() {
                            wrote.push((all.records.len(), writer));
                            all.records.push(IndexRecord {
                                stamp,
                                committed: header.stamp,
                                set,
                                said: RecordKind::Run(run),
                                writer: None,
                            });
                        }
                    }
                    Record::Hole { logical, length, writer, stamp } => {
                        wrote.push((all.records.len(), writer));
                        all.records.push(IndexRecord {
                            stamp,
                            committed: header.stamp,
                            set,
                            said: RecordKind::Hole { logical, length },
                            writer: None,
                        });
                    }
                    Record::Truncate { size, stamp } => all.records.push(IndexRecord {
                        stamp,
                        committed: header.stamp,
                        set,
                        said: RecordKind::Truncate(size),
                        writer: None,
                    }),
                    Record::Writer { writer, pid, uid, host, .. } => {
                        writers.insert(writer, all.writers.len() as u32);
                        all.writers.push(WrittenBy { host, pid, uid });
                    }
                    Record::Sums { .. } => {}
                }
            }
            Ok(())
        })?;
        for (i, writer) in wrote {
            all.records[i].writer = writers.get(&writer).copied();
        }
    }
    all.records.sort_by_key(|record| (record.stamp, record.set));
    Ok(all)
}
