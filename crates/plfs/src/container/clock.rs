//! `clock`: a stamp that whoever comes next starts behind (FORMAT.md section 4).

use plfs_format::{clock, name};

use super::create::put_file;
use super::layout::Container;
use crate::error::{At, Error, Result};
use crate::store::{self, Errno, Open};

/// The stamp; 0 if there is none. To be asked after the creation of an open mark.
pub fn read_clock(container: &Container) -> Result<u64> {
    let path = container.path(name::CLOCK);
    let file = match container.store.open(&path, Open::READ) {
        Err(Errno::NOENT) => return Ok(0),
        other => other.at("open", &path)?,
    };
    let mut bytes = [0; clock::BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
    clock::decode(&bytes[..n]).map_err(|bad| Error::Corrupt { path, bad })
}

/// Sets the stamp, durably.
pub fn write_clock(container: &Container, stamp: u64) -> Result<()> {
    put_file(container, name::CLOCK, name::CLOCK_TMP, &clock::encode(stamp), true)
}
