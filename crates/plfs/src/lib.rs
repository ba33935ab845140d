//! PLFS: a parallel log-structured file system as a library. Many processes write one file in small
//! pieces; storage sees large appends to a few logs; an index finds every byte again.
//!
//! ```
//! use plfs::store::Links;
//! use plfs::{Config, OpenOptions, Opened, Plfs};
//!
//! # fn main() -> plfs::Result<()> {
//! let dir = std::env::temp_dir().join(format!("plfs-doc-{}", std::process::id()));
//! std::fs::create_dir_all(&dir).unwrap();
//! let plfs = Plfs::posix(Config::shared());
//! let Opened::Logical(file) = plfs.open(&dir.join("ckpt"), OpenOptions::create())? else {
//! panic!("a plain file was there") }; file.write_at(b"world", 6)?;
//! file.write_at(b"hello ", 0)?;
//! let mut text = [0; 11];
//! assert_eq!(file.read_at(&mut text, 0)?, 11);
//! assert_eq!(&text, b"hello world");
//! file.sync()?;
//! file.close()?;
//! assert_eq!(plfs.stat(&dir.join("ckpt"), Links::Follow)?.stat.len, 11);
//! plfs.unlink(&dir.join("ckpt"))?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! The layers, from the ground: [`store`] and [`index`] (L1), container (L2), log (L3), catalog,
//! write and read (L4), lifecycle, compact and [`pack`] (L5), file and [`Plfs`] (L6). A module uses
//! only lower ones, as `tests/engine/layers.rs` checks; docs/ARCHITECTURE.md has the picture,
//! docs/FORMAT.md the bytes.
#![deny(unsafe_code)]

mod autocommit;
mod catalog;
mod compact;
pub mod config;
mod container;
mod ending;
pub mod environment;
mod error;
mod federation;
mod file;
mod in_place;
mod lifecycle;
mod log;
mod logical;
pub mod pack;
mod packs;
mod plain;
mod plfs;
pub mod plfsrc;
mod probe;
mod process;
mod read;
mod sessions;
mod spread;
pub mod store;
mod sync;
mod write;

pub use autocommit::FORK_GATE;
pub use catalog::{Standing, Totals};
pub use compact::{Compacted, Usage};
pub use config::{CloseToOpen, Config, is_built, is_setting};
pub use container::base::decision_of;
pub use container::{
    Container, DirTurn, DirectoryLayout, Setting, add_backend, is_hidden, is_layout, is_map,
    is_of_pack, is_pack, prepare,
};
pub use ending::Ending;
pub use error::{Error, Result};
pub use federation::{
    BackendStatus, Drained, Held, Left, Presence, Progress, SETTLES, backend_dirs, backends, drain,
    join_backend, move_backend, remove_backend, remove_table,
};
pub use file::{Access, Extent, File};
pub use lifecycle::{
    Cleared, Finding, FlatState, FlatTotals, Health, IndexRecord, Lost, OpenMark, RecordKind,
    Records, Report, Severity, StreamAt, Unreachable, WrittenBy, check, check_name, check_tree,
    clear_marks, discard, flat_state, lost_and_found, lost_at, open_marks, put_back, records,
    repair, unreachable,
};
pub use log::CommitHorizon;
pub use packs::{OpenPack, PackPlace, STAND_IN_BEGINS, STAND_IN_BYTES, STAND_IN_HEAD, StandIn};
pub use plain::{LOOK_BYTES, Written};
pub use plfs::{
    FileStat, NameFile, OpenOptions, Opened, Place, Plfs, REPACK_SETTLES, Repacked, Small, Writers,
    is_too_long_to_promote, link_text_of, may_be_logical,
};
pub use plfs_format::attribute::{Decision, NAME as ATTRIBUTE_NAME};
pub use plfs_format::backend::State as BackendState;
pub use plfs_format::layout::{Backends, Layout, Placement, Workload};
pub use plfs_format::name::LAYOUT as LAYOUT_NAME;
pub use plfs_format::pack::NAME as PACK_NAME;
pub use plfs_index as index;
pub use probe::{
    Probed, TargetKnown, TargetPlace, choose_dirs, known_of, probe, targets_of, tell_site,
};
pub use spread::{FlatDir, FlatReport, Line as FlatLine, is_in_shadow, link_text as flat_text};
pub use store::writers::Entry;

/// Length of every name's file on the storage: what a stat without PLFS shows.
pub const SUPERBLOCK_BYTES: usize = plfs_format::superblock::FILE_BYTES;

/// Its first bytes.
pub const SUPERBLOCK_BEGINS: [u8; 8] = match plfs_format::superblock::BANNER.as_bytes() {
    [a, b, c, d, e, f, g, h, ..] => [*a, *b, *c, *d, *e, *f, *g, *h],
    _ => panic!("the banner is longer"),
};
