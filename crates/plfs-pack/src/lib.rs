//! L1: the files of a pack, from what its logs say (FORMAT.md section 12, docs/decisions/0019).
//!
//! [`FileState`] is the join of all records of one file, [`Names`] that of all files that logs have
//! named since the last [`fold`], below it lies a sorted [`tree`]. None of them cares in which
//! order records come, or how often. No I/O, no clock: who uses it fetches blocks, and brings
//! stamps.
#![forbid(unsafe_code)]

mod file;
mod fold;
mod names;
mod pieces;
mod shown;
pub mod tree;
mod view;

pub use file::{FileState, Write};
pub use fold::{Folded, fold};
pub use names::{Base, Found, Names, NoBase};
pub use shown::{Extent, Shown};
pub use view::View;

/// Files in memory at which a fold pays. 65,536: some 16 MB.
const FOLD_FILES: u64 = 65_536;

/// Whether the files that came since the last fold are to be folded into a tree of so many: when
/// they are many, and at least an eighth of those, so that each is written some eight times.
pub fn is_fold_due(in_memory: u64, in_tree: u64) -> bool {
    in_memory >= FOLD_FILES.max(in_tree / 8)
}

/// Bytes that are dead at which a compaction pays. 64 MiB: less is copied in a second.
const DEAD_BYTES: u64 = 64 << 20;

/// Whether a pack whose data logs have `stored` bytes, of which its files show `live`, is to be
/// compacted: more than half is dead, and much.
pub fn is_compaction_due(stored: u64, live: u64) -> bool {
    let dead = stored.saturating_sub(live);
    dead > stored / 2 && dead > DEAD_BYTES
}
