//! The FUSE door: a mount that shows a directory, with its PLFS files as ordinary files. For
//! shells, archive tools, containers, Go and static programs, which a preloaded library does not
//! reach.
//!
//! [`mount`] is the daemon; `fuse` translates the kernel's requests to calls of `fs`; `store` and
//! `creds` make new files the right user's. docs/ARCHITECTURE.md, "The FUSE door", says how it fits
//! together and docs/SEMANTICS.md what it promises.
#![deny(unsafe_code)]

mod acl;
mod creds;
mod fs;
mod fuse;
mod inode;
pub mod mount;
mod status;
mod store;
mod xattr;

pub use status::{JsonPath, LOG_ATTRIBUTE, Status};
