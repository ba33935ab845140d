//! L5: what happens to a container as a whole: how it goes away, whether it is healthy, who holds
//! it, and the repairs that lose nothing.
//!
//! Knows nothing of open handles.

mod check;
mod lost;
mod marks;
mod remove;
mod repair;
mod unreachable;

pub use check::{
    Finding, FlatState, FlatTotals, Health, IndexRecord, RecordKind, Records, Report, Severity,
    StreamAt, WrittenBy, check, check_name, check_tree, flat_state, records,
};
pub(crate) use check::{has_lost_records, uuid_of};
pub use lost::{Lost, discard, lost_and_found, lost_at, put_back};
pub use marks::{Cleared, OpenMark, clear_marks, open_marks};
pub(crate) use marks::{LOOK_MAX, carry_all_left, end_node, end_the_dead, reap};
pub(crate) use remove::remove_gone;
pub use remove::{
    Hold, is_removable, remove_if_nameless, remove_log_sets, remove_nameless, remove_stale_sets,
};
pub use repair::repair;
pub(crate) use repair::{remove_what_has_gone, sum_up};
pub use unreachable::{Unreachable, unreachable};

/// Why data logs stay as they are, and with them the file, until a person has said what they are.
pub(crate) const UNEXPLAINED: &str = "no index log says what these data logs are: put the log set's index log back, or move the \
     directory away by hand (`plfs check` says more)";
