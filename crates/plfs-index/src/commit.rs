//! What a writer tells the readers of its own process.

use plfs_format::name::SegmentRef;

use crate::Stamped;

/// Records, and what their segment numbers mean.
#[derive(Default)]
pub struct Fresh {
    /// The log set whose stamps they have.
    pub set: u32,
    /// The records.
    pub runs: Vec<Stamped>,
    /// What segment numbers mean.
    pub segments: Vec<SegmentRef>,
}

/// What a commit appended.
pub struct Committed {
    /// The log set.
    pub set: u32,
    /// The truncate: stamp and size.
    pub truncate: Option<(u64, u64)>,
    /// The hole that makes the file longer.
    pub room: Option<Stamped>,
    /// Stamps of the index blocks.
    pub blocks: Vec<u64>,
}
