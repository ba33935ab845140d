//! L3: a container on its backends: where its files are, how it comes to be, what its logs add up to, how it goes away.
//!
//! Knows nothing of open handles. A [`Container`] is cheap: a superblock and paths.

mod check;
mod clock;
mod create;
mod layout;
mod remove;
mod totals;

pub use check::{
    Cleared, Finding, FlatState, FlatTotals, Health, IndexRecord, Lost, OpenMark, Records, Report, Said, Severity, WrittenBy, check, check_name, check_tree,
    clear_marks, discard, flat_state, lost_and_found, lost_at, open_marks, put_back, records, repair,
};
pub(crate) use check::{has_lost_records, sum_up};
pub use clock::{read_clock, write_clock};
pub use create::{chmod, chown, create, prepare};
pub(crate) use create::{dir_mode, make_dir, must_be_there, publish, put_file, random_u64};
pub use layout::{Container, find_root, read_name};
pub use remove::{Hold, is_removable, remove_if_nameless, remove_log_sets, remove_stale_sets};
pub use totals::{Totalizer, Totals, has_owner, open_super, sync_logs, write_summary};
