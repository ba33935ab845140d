//! L2: a container on its backends: where its files are, how it comes to be, who may use it.
//!
//! Knows nothing of logs, nor of open handles. A [`Container`] is cheap: a superblock and paths.

mod attributes;
mod backends;
mod clock;
mod coherent;
mod create;
mod layout;

pub(crate) use attributes::dir_mode;
pub use attributes::{chmod, chown};
pub(crate) use backends::check_table;
pub use clock::{cover_all, raise_clock, read_clock, write_clock};
pub(crate) use clock::{goes_by_wall_clock, touch_dir};
pub use create::{create, prepare};
pub(crate) use create::{make_dir, make_shared, publish, put_file};
pub use layout::{Container, find_root, read_name};
pub(crate) use layout::{in_roots, log_sets, root_of};
