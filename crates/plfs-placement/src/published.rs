//! What was measured elsewhere and published: the points that the simulation is held against.
//!
//! CONT: IOR on a Lustre of 480 targets, MPI-IO, blocks of 4 MB, transfers of 1 MB, 100 segments,
//! so 400 MB a rank.

use crate::simulate::Strategy;

/// Bytes of the papers' MB.
pub const MB: u64 = 1 << 20;
/// Targets of that file system.
pub const TARGETS: u32 = 480;
/// What a rank wrote.
pub const BYTES_A_RANK: u64 = 400 * MB;

/// A line of the table.
pub struct Line {
    /// Processes.
    pub ranks: u32,
    /// One shared file, tuned: 160 stripes of 128 MB.
    pub tuned_mb_s: f64,
    /// PLFS of 2012, with a log a rank.
    pub log_per_rank_mb_s: f64,
}

/// The table.
pub const TABLE: [Line; 9] = [
    line(16, 404.0, 753.0),
    line(32, 405.0, 727.0),
    line(64, 857.0, 1777.0),
    line(128, 1988.0, 3815.0),
    line(256, 4355.0, 7127.0),
    line(512, 8985.0, 10723.0),
    line(1024, 13860.0, 8575.0),
    line(2048, 16200.0, 5696.0),
    line(4096, 16917.0, 3069.0),
];

/// Ranks of the one run with the file system's default layout, and what it got.
const DEFAULT_LAYOUT: (u32, f64) = (1024, 313.0);

const fn line(ranks: u32, tuned_mb_s: f64, log_per_rank_mb_s: f64) -> Line {
    Line { ranks, tuned_mb_s, log_per_rank_mb_s }
}

/// MB a second that were published for so many ranks.
pub fn mb_s(strategy: Strategy, ranks: u32) -> Option<f64> {
    let line = TABLE.iter().find(|line| line.ranks == ranks);
    match strategy {
        Strategy::SharedTuned => line.map(|line| line.tuned_mb_s),
        Strategy::LogPerRank => line.map(|line| line.log_per_rank_mb_s),
        Strategy::SharedDefault => (ranks == DEFAULT_LAYOUT.0).then_some(DEFAULT_LAYOUT.1),
        Strategy::FilePerRank | Strategy::Streams => None,
    }
}
