//! L2: a container on its backends: where its files are, how it comes to be, who may use it.
//!
//! Knows nothing of logs, nor of open handles. A [`Container`] is cheap: a superblock and paths.

mod attributes;
mod backends;
pub(crate) mod base;
mod clock;
mod coherent;
mod create;
mod directory;
mod layout;
mod pack;

pub(crate) use attributes::dir_mode;
pub use attributes::{chmod, chown, follow_base};
pub(crate) use backends::{
    Table, check_table, identity_of as identity_at, path_of, read as read_text,
};
pub use clock::{cover_all, raise_clock, read_clock, wall_clock, wall_clock_at, write_clock};
pub(crate) use clock::{goes_by_wall_clock, touch_dir};
#[cfg(test)]
pub(crate) use create::create;
pub use create::{add_backend, create_laid_out, prepare};
pub(crate) use create::{make_backend, make_dir, make_shared, publish, put_file};
pub use directory::{
    DirTurn, DirectoryLayout, Layouts, Setting, check_layout, is_layout, layout_turn, own_layout,
    set_layout,
};
pub(crate) use layout::WRITTEN_TO;
pub use layout::{Container, find_root, read_name};
pub(crate) use layout::{in_roots, log_sets, root_of};
pub use pack::{
    find_pack, is_hidden, is_map, is_of_pack, is_pack, is_pack_at, make_pack, pack_in_container,
};
