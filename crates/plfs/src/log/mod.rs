//! L3: logs. [`LogSet`] is a node's share of a container: it hands out regions of data logs, stamps
//! and appends index blocks. [`DataLog`] buffers one process's bytes and gets them to storage.
//! [`scan`] walks an index log's blocks.
//!
//! Knows nothing of the index: whoever joins says how to look at a set before it is taken over.

mod data_log;
mod flusher;
mod index_log;
mod journal;
mod log_set;
mod policy;
mod steering;

pub use data_log::{DataLog, Moved, Placed};
pub use index_log::{Piece, Scan, scan, scan_pieces, scan_pieces_at, scan_whole, unexplained};
pub use journal::{Journal, Records, TakenTo};
pub(crate) use log_set::{
    Carried, carry_left, claim, claim_in, dir_with_left, forget_spare_journals, lives,
    must_be_synced, names_tenancy, note_failed_sync, page_path_of, read_mark, reclaim,
    remove_stray_journals,
};
pub use log_set::{
    CommitHorizon, Era, HeldData, LogEnd, LogSet, NodeLog, Wanted, horizon, node_log,
};

use crate::config::Config;

/// What a commit promises, or what is known of data that records point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Others see it. A power cut may take it.
    Visible,
    /// It survives a power cut as well.
    Durable,
}

impl Durability {
    /// What a close promises.
    pub fn on_close(config: &Config) -> Durability {
        match config.sync_on_close {
            true => Durability::Durable,
            false => Durability::Visible,
        }
    }
}
