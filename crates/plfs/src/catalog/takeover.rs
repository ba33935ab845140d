//! Whether a node may go on with a log set that nobody owns.

use plfs_format::index_log::{Record, decode_block};
use plfs_format::name;

use super::Index;
use crate::container::Container;
use crate::error::{Error, Result};
use crate::log::scan_whole;
use crate::store::Links;

/// A stamp that no block of a set exceeds, if the data logs of the set are as long as its records
/// say, and its index log as the flat index. After a power cut they may not be: what was
/// lost must not come back as other bytes or other blocks, so nobody appends there.
/// [`LogSet::join`](crate::log::LogSet::join) asks it.
pub fn complete(container: &Container, set: u32) -> Result<Option<u64>> {
    // A flat index spares most of the log: a file that is opened and closed many times has a long
    // one.
    let Some(index) = Index::flat_for(container, set) else { return Ok(None) };
    let ((mut ends, from), mut youngest) = (index.read_of(set), index.max_stamp());
    let scanned = scan_whole(container, set, from, |offset, header, at| {
        let path = container.path(&name::index_log(set));
        let block = decode_block(header, offset, at).map_err(|bad| Error::of_bytes(&path, bad))?;
        youngest = youngest.max(header.stamp);
        for (_, record) in &block.records {
            if let Record::Run(run) = record {
                let end: &mut u64 =
                    ends.entry(block.segments[usize::from(run.segment)]).or_default();
                *end = (*end).max(run.physical_end());
            }
        }
        Ok(())
    });
    let len =
        |at| Some(container.store.stat(&container.segment_path(at).ok()?, Links::Follow).ok()?.len);
    let are_whole = || ends.iter().all(|(at, end)| len(at) >= Some(*end));
    Ok((scanned.is_ok() && are_whole()).then_some(youngest))
}
