//! `clock`: a stamp that whoever comes next starts behind (FORMAT.md section 4).

use std::time::Duration;

use plfs_format::{clock, name};

use super::create::put_file;
use super::layout::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_id, boot_time_ns, random_u64};
use crate::store::{self, Errno, Open, StoreFile, Time};
use crate::sync::thread;

/// How long somebody waits for others who set the clock: each holds it for some microseconds.
const TRIES: u32 = 1000;

/// The stamp; 0 if there is none. To be asked after the creation of an open mark. Corrupt if a
/// power cut tore it: then only the logs know.
pub fn read_clock(container: &Container) -> Result<u64> {
    let path = container.path(name::CLOCK);
    match container.store.open(&path, Open::READ) {
        Err(Errno::NOENT) => Ok(0),
        other => read(other.at("open", &path)?.as_ref(), container),
    }
}

fn read(file: &dyn StoreFile, container: &Container) -> Result<u64> {
    let path = container.path(name::CLOCK);
    let mut bytes = [0; clock::BYTES];
    let n = store::read_full(file, &mut bytes, 0).at("read", &path)?;
    clock::decode(&bytes[..n]).map_err(|bad| Error::of_bytes(&path, bad))
}

/// Sets the stamp, unless it is larger already, and with `durable` durably. One setter at a time
/// has a lock on the file, so it never goes back.
pub fn write_clock(container: &Container, stamp: u64, durable: bool) -> Result<()> {
    let (store, path) = (&container.store, container.path(name::CLOCK));
    let file = match store.open(&path, Open::create(0o666)) {
        // Another user's, who has a strict umask: in its place, with what it says at least.
        Err(Errno::ACCESS | Errno::PERM) => {
            let stamp = stamp.max(read_clock(container).unwrap_or(0));
            return put_file(
                container,
                name::CLOCK,
                name::CLOCK_TMP,
                &clock::encode(stamp),
                durable,
            );
        }
        other => other.at("create", &path)?,
    };
    for _ in 0..TRIES {
        if file.try_lock(true).at("lock", &path)? {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    // A new one is empty, and one that a power cut tore says nothing.
    if read(file.as_ref(), container).unwrap_or(0) < stamp {
        store::write_full(file.as_ref(), &clock::encode(stamp), 0).at("write", &path)?;
    }
    if durable {
        file.sync_data().at("sync", &path)?;
        store.sync_dir(&container.dir).at("sync", &container.dir)?;
    }
    Ok(())
}

/// Whether the wall clock of this machine is one that all who write the file go by, and has not
/// been set back since the file was made: then whoever comes has a later time than what was
/// committed before, or finds it in [`read_clock`], and need not ask the logs. One stat.
pub(crate) fn goes_by_wall_clock(container: &Container) -> Result<bool> {
    let made = &container.superblock;
    let now = Time::now().ns();
    // All this holds for the machine that has the file system for itself, as long as it runs.
    let is_same_clock = container.local && made.boot != 0 && made.boot == boot_id();
    let was_set_back = now - i128::from(boot_time_ns())
        < i128::from(made.created_ns) - i128::from(made.created_boot_ns);
    Ok(is_same_clock && !was_set_back && container.time()?.ns() <= now)
}

/// Moves the time of the container's directory to now, for those who look at it to learn that
/// something happened. Best effort.
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
