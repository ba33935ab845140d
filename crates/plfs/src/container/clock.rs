//! `clock`: a stamp that whoever comes next starts behind (FORMAT.md section 4).

use plfs_format::{clock, name};

use super::create::put_file;
use super::layout::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::random_u64;
use crate::store::{self, Errno, Open, Time};

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

/// Moves the time of the container's directory to now, for those who look at it to learn that something happened. Best effort.
pub(crate) fn touch_dir(container: &Container) {
    let store = &container.store;
    if store.set_times(&container.dir, None, Some(Time::now())).is_err() {
        // Only the owner may set times; whoever may write makes a name, and takes it away again.
        let name = container.path(&format!("{}{:08x}", name::CLOCK_TMP, random_u64() as u32));
        if store.open(&name, Open::create_new(0o600)).is_ok() {
            let _ = store.unlink(&name);
        }
    }
}
