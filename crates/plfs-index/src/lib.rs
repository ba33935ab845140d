//! L1: where every logical byte lives. Pure: no I/O, no clock, no paths.
//!
//! [`Folder`] turns a stream of writes into few [`Run`]s as they happen; [`Regions`] says where
//! their bytes go, [`block_of`] what an index block says of them, and [`Committed`] takes them from
//! a writer to the readers of its process. [`ExtentMap`] holds runs of all writers and answers
//! lookups exactly, newest write first, without expanding a run.
#![forbid(unsafe_code)]

mod block;
mod commit;
mod extent_map;
mod overlap;
mod pattern;
mod regions;
mod run;
mod sums;

pub use block::{BLOCK_RECORDS, PENDING_RECORDS, block_of, in_blocks};
pub use commit::{Committed, Fresh};
pub use extent_map::{
    Base, Bulk, Bytes, Entry, ExtentMap, Found, Image, Numbers, ReadAt, Row, Scratch,
};
pub use overlap::{Overlaps, Ranges};
pub use pattern::{Folder, Stamped};
pub use plfs_format::flat_index::HOLE;
pub use regions::{REGION_ALIGN, Regions, next_region};
use run::MAX_END;
pub use run::{Order, Run, renumbered};
pub use sums::{Stretch, Sums};
