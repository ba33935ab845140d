//! L3: a container on its backends: where its files are, how it comes to be, what its logs add up to, how it goes away.
//!
//! Knows nothing of open handles. A [`Container`] is cheap: a superblock and paths.

mod check;
mod create;
mod layout;
mod remove;
mod totals;

pub use check::{FlatState, OpenMark, flat_state, open_marks};
pub use create::create;
pub use create::{chmod, chown};
pub(crate) use create::{dir_mode, make_dir, random_u64};
pub use layout::{Container, find_root, read_name};
pub use remove::{remove_if_nameless, remove_stale_sets};
pub use totals::{Totalizer, Totals, open_super, write_summary};
