//! L2: logs. [`LogSet`] is a node's share of a container: it hands out regions of data logs, stamps and appends index blocks. [`DataLog`] buffers one process's bytes
//! and gets them to storage. [`scan`] walks an index log's blocks.

mod data_log;
mod flusher;
mod index_log;
mod log_set;
mod regions;

pub use data_log::DataLog;
pub(crate) use flusher::lock;
pub use index_log::{Piece, Scan, scan, scan_pieces, scan_pieces_at, scan_whole};
pub use log_set::{LogSet, Seen};
pub use regions::{Regions, next_region};
